"""Products on a stream that is not the current one of their arrays' library.

Results and workspaces come from the library's allocator, which gives memory back to the stream that was
current when it was taken. So the stream of the call is made the current one for as long as the call lasts.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.gpu.streams import stream_handle


def working_on(stream: object, array: Any) -> AbstractContextManager[object] | None:
    """Return what makes a stream the current one of an array's library; None if it is that already."""
    handle = stream_handle(stream)
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    is_tensor = torch is not None and isinstance(array, torch.Tensor)
    if isinstance(array, np.ndarray) or (is_tensor and array.device.type == "cpu"):
        raise LanewiseError("stream= is for arrays on a GPU, and these lie in host memory: leave it out")
    if torch is not None and is_tensor:
        if not array.is_cuda or torch._C._cuda_getCurrentRawStream(array.get_device()) == handle:
            return None
        external = torch.cuda.ExternalStream(handle, device=array.device)
        context: AbstractContextManager[Any] = torch.cuda.stream(external)
        return context
    if cupy is not None and isinstance(array, cupy.ndarray):
        if cupy.cuda.get_current_stream().ptr == handle:
            return None
        if hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14 deprecates ExternalStream
            context = cupy.cuda.Stream.from_external(_Stream(handle))
        else:
            context = cupy.cuda.ExternalStream(handle)
        return context
    return None


class _Stream:
    """A stream by its handle, as the protocol of CUDA streams has it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the handle."""
        return 0, self._handle
