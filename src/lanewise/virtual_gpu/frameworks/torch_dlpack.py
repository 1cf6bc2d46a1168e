"""DLPack capsules of "cuda" tensors under a virtual GPU: they name the device, and torch takes them back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState

#: Kinds of devices by the numbers of dlpack.h.
DLPACK_HOST, DLPACK_CUDA = 1, 2
#: Where the kind of the device stands in what a capsule of each name points to. The newer one begins with a
#: version, the manager, its deleter and flags.
_DEVICE_OFFSETS = {b"dltensor": 8, b"dltensor_versioned": 40}

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _capsule_device(capsule: object) -> ctypes.c_int32:
    """Return the word of a capsule that has the kind of its device."""
    for name, offset in _DEVICE_OFFSETS.items():
        if _api.PyCapsule_IsValid(capsule, name):
            return ctypes.c_int32.from_address(_api.PyCapsule_GetPointer(capsule, name) + offset)
    raise TypeError("the capsule is not one of DLPack's, or its tensor was taken from it already")


def set_capsule_device(capsule: object, kind: int) -> None:
    """Change the kind of the device that a capsule names."""
    _capsule_device(capsule).value = kind


def install_torch_dlpack(gpu: FrameworkState, patches: Patches) -> None:
    """Let torch take capsules of the virtual device, until the patches are taken back."""

    def from_dlpack(own: Callable[..., torch.Tensor], value: object, **options: object) -> torch.Tensor:
        capsule = value.__dlpack__() if hasattr(value, "__dlpack__") else value
        word = _capsule_device(capsule)
        on_device = word.value == DLPACK_CUDA
        word.value = DLPACK_HOST if on_device else word.value
        result = own(capsule, **options)
        if on_device:
            gpu.torch.add(result)
        return result

    patches.wrap(torch, "from_dlpack", from_dlpack)
    patches.wrap(torch.utils.dlpack, "from_dlpack", from_dlpack)
