"""PTX that Triton compiled for sm_100 (`tests/machine/triton/make.py`) on the machine."""

from shared_tests import collected_from, triton_blackwell

globals().update(collected_from(triton_blackwell))
