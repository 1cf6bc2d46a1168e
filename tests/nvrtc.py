"""NVRTC for tests that compile CUDA C++: they are skipped where it is not installed."""

import pytest

from lanewise.ptx.tools.runtime_compiler import load


def need_nvrtc() -> None:
    """Skip the test that calls this, unless NVRTC is installed."""
    if load(13) is None:
        pytest.skip("NVRTC is not installed (extra `cuda`)")
