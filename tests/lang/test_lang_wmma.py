"""WMMA in kernels: every row of the programming guide's tables, against the catalogue's arithmetic."""

from shared_tests import collected_from, wmma

globals().update(collected_from(wmma))
