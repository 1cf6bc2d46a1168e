"""Workspaces of products on a GPU: memory for copies of operands, for sums over split K, and for counters.

Counters lie at the beginning of a workspace. Kernels find them zero, and leave them zero.
"""

from __future__ import annotations

import sys
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import u8
from lanewise.gpu.driver import GpuError
from lanewise.linalg.arrays import COUNTER_BYTES
from lanewise.linalg.operands import View, empty


def workspace_for(like: View, size: int, counts: bool = False) -> Any:
    """Return memory of a call's own on the GPU, from the allocator of the arrays' library.

    If a kernel counts in it, its beginning is set to zero, on the library's current stream.
    """
    try:
        made = empty(like, (size,), u8)
        if counts:
            made[:COUNTER_BYTES] = 0
        return made
    except LanewiseError:
        raise LanewiseError(
            f"this product needs a workspace of {size} bytes, which only torch and CuPy can allocate: pass "
            f"arrays of theirs, or contiguous and aligned arrays of {like.library}"
        ) from None
    except RuntimeError as error:
        raise GpuError(
            f"this product needs a workspace of {size} bytes, more than the GPU has left ({error})",
            "lw.matmul",
            "CUDA_ERROR_OUT_OF_MEMORY",
        ) from None


#: torch's workspaces in which kernels count, by device and stream, whose launches follow each other.
_COUNTING: dict[tuple[int, int], Any] = {}


def counting_workspace(ordinal: int, stream: int, size: int) -> Any:
    """Return a workspace that begins with zeros: the stream's own; a new one while a graph is captured."""
    torch = sys.modules["torch"]
    kept, capturing = kept_workspace(ordinal, stream, size), torch.cuda.is_current_stream_capturing()
    if kept is not None and not capturing:
        return kept
    made = torch.empty(size, dtype=torch.uint8, device=f"cuda:{ordinal}")
    made[:COUNTER_BYTES].zero_()
    if not capturing:
        _COUNTING[ordinal, stream] = made
    return made


def forget_counting() -> None:
    """Give the workspaces of streams back: their GPU is another one from now on."""
    _COUNTING.clear()


def counters_for(like: View, ordinal: int, stream: int) -> Any:
    """Return counters for a launch on a stream; None for arrays of a library that allocates nothing here."""
    if like.library == "torch":
        return counting_workspace(ordinal, stream, COUNTER_BYTES)
    return workspace_for(like, COUNTER_BYTES, counts=True) if like.library == "cupy" else None


def kept_workspace(ordinal: int, stream: int, size: int) -> Any:
    """Return the workspace that a stream has already; None if it has none that is large enough."""
    kept = _COUNTING.get((ordinal, stream))
    return kept if kept is not None and kept.numel() >= size else None
