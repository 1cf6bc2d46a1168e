"""PTX that Triton compiled for sm_80 and sm_90 (`tests/machine/triton/make.py`) on the machine."""

from shared_tests import collected_from, triton

globals().update(collected_from(triton))
