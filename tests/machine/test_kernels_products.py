"""Published shapes of products on the machine: WMMA, HGEMM, integers, bits, sparse; bit for bit."""

from shared_tests import collected_from, products

globals().update(collected_from(products))
