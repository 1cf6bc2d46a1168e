"""The kernels of `tests/machine/kernels`: compiled by NVRTC, or taken as PTX kept beside the source.

`python tests/machine/classics.py` writes that PTX anew.
"""

from functools import cache
from pathlib import Path

import pytest

import lanewise as lw
from lanewise.ptx import ToolMissing

FOLDER = Path(__file__).parent / "kernels"
#: Sources whose PTX is kept.
KEPT = ("hgemm_naive", "hgemm_multistage", "reductions")


@cache
def classic(name: str, arch: str = "sm_80") -> lw.Module:
    """A source of the folder, compiled for an arch."""
    kept = FOLDER / f"{name}.{arch}.ptx"
    try:
        return lw.cuda(FOLDER / f"{name}.cu", arch=arch)
    except ToolMissing as error:
        if not kept.exists():
            pytest.skip(str(error))
    return lw.load(kept)


def compiled(source: str, arch: str = "sm_80") -> lw.Module:
    """CUDA C++ text, compiled; skips where there is no NVRTC."""
    try:
        return lw.cuda(source, arch=arch)
    except ToolMissing as error:
        pytest.skip(str(error))


if __name__ == "__main__":
    for kept_name in KEPT:
        text = str(lw.cuda(FOLDER / f"{kept_name}.cu", arch="sm_80", lineinfo=False))
        (FOLDER / f"{kept_name}.sm_80.ptx").write_text(text)
