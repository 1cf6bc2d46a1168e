"""Functions of torch's module of C++ that a build for CPUs lacks, where libraries ask for them directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState


def _empty_strided(shape: Any, strides: Any, dtype: Any) -> Any:
    """Return an uninitialised tensor on the device."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def _current_stream(*_: Any) -> int:
    """Return the handle of torch's current stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def install_torch_extension(gpu: FrameworkState, patches: Patches) -> None:
    """Let `torch._C` answer for the virtual GPU, until the patches are taken back."""
    answers: dict[str, Callable[..., Any]] = {
        "_cuda_getCurrentRawStream": _current_stream,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda *_: None,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_synchronize": lambda *_: None,
        "_cuda_exchangeDevice": lambda *_: 0,
        "_cuda_maybeExchangeDevice": lambda *_: 0,
    }
    for name, answer in answers.items():
        patches.set(torch._C, name, answer)
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if guards is not None:
        patches.set(guards, "_empty_strided_cuda", _empty_strided)
