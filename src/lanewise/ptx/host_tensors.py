"""Tensors of other libraries in host memory, torch's above all, as NumPy arrays of the same memory."""

import sys
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError

#: DLPack's devices that are host memory: plain, and pinned by CUDA.
_HOST_DEVICES = (1, 3)
#: Types that NumPy does not have, by their size: torch hands them over as integers.
_SAME_SIZE = {1: "uint8", 2: "int16"}


def host_arguments(values: tuple[object, ...]) -> tuple[object, ...]:
    """Return the arguments of a launch, tensors in host memory among them as NumPy arrays of their memory.

    >>> host_arguments((1, 2.5, None))
    (1, 2.5, None)
    """
    if all(value is None or isinstance(value, int | float | np.ndarray | np.generic) for value in values):
        return values
    return tuple(host_array(value) for value in values)


def host_array(value: Any) -> Any:
    """Return a tensor in host memory as a NumPy array of the same memory; anything else as it is."""
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack_device__"):
        return value
    device = dlpack_device(value)
    if device is None or device[0] not in _HOST_DEVICES:
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_array(torch, value.detach())
    try:
        return np.from_dlpack(value)
    except Exception:  # a type that NumPy does not have, or what the library itself raises
        return value if torch is None else _by_torch(torch, value)


def _by_torch(torch: Any, value: Any) -> Any:
    """Return a tensor of another library whose type torch has and NumPy has not; any other as it is."""
    try:
        return _torch_array(torch, torch.from_dlpack(value))
    except Exception:  # what torch or the library itself raises
        return value


def dlpack_device(value: object) -> tuple[int, int] | None:
    """Return the type and number of the device of an array by DLPack; None if it is no array of DLPack.

    >>> dlpack_device(np.zeros(4))
    (1, 0)
    """
    try:
        ask = getattr(value, "__dlpack_device__", None)
        if ask is None:
            return None
        kind, number = ask()
        return int(kind), int(number)
    except Exception as error:  # what a library raises is its own
        raise LanewiseError(
            f"{type(value).__name__} does not say by DLPack on which device it lies: __dlpack_device__() "
            f"should return two integers ({type(error).__name__}: {error})"
        ) from None


def _torch_array(torch: object, tensor: Any) -> object:
    """Return the array of a torch tensor; of bfloat16 and fp8, which NumPy does not have, by ml_dtypes."""
    if not tensor.ndim:
        return tensor.item()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return _numpy_view(torch, tensor, name)
    except (TypeError, RuntimeError, ValueError) as error:  # sparse, conjugated, quantized …
        reason = str(error).partition("\n")[0]
        raise LanewiseError(f"a torch tensor that NumPy cannot share cannot be passed: {reason}") from None


def _numpy_view(torch: object, tensor: Any, name: str) -> object:
    """Return the array of a torch tensor by the name of its type; the tensor itself if nothing has it."""
    if hasattr(np, name):
        return tensor.numpy()
    import ml_dtypes

    size = tensor.element_size()
    if not hasattr(ml_dtypes, name) or size not in _SAME_SIZE:
        return tensor
    return tensor.view(getattr(torch, _SAME_SIZE[size])).numpy().view(getattr(ml_dtypes, name))
