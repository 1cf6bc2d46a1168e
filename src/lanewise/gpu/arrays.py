"""Arrays of other libraries as a launch sees them: which library's, on which device, at which address.

torch and CuPy are asked directly, everyone else through `__cuda_array_interface__` or DLPack. No copies.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.gpu.device import context
from lanewise.ptx.host_tensors import dlpack_device

#: Device types of DLPack: CUDA memory, and CUDA managed memory.
DLPACK_CUDA = (2, 13)
_DLPACK_HOST = (1, 3)
_POINTER_ORDINAL = 9


@dataclass(frozen=True)
class Library:
    """How a library tells of its arrays, and which stream it works on at the moment."""

    name: str
    address: Callable[[Any], int]
    ordinal: Callable[[Any], int]
    contiguous: Callable[[Any], bool]
    in_one_piece: Callable[[Any], bool]
    current_stream: Callable[[int], int]


@dataclass(frozen=True)
class ArrayLocation:
    """Where an array lies. `ordinal` is None in host memory, and where an empty array does not tell."""

    library: str
    on_gpu: bool
    ordinal: int | None = None
    address: int = 0
    in_one_piece: bool = True
    #: The stream on which its content is being made, if its library says.
    stream: int | None = None
    #: What has to live until the launch is under way.
    owner: object = None

    def __str__(self) -> str:
        number = "" if self.ordinal is None else f":{self.ordinal}"
        return f"on cuda{number} ({self.library})" if self.on_gpu else f"in host memory ({self.library})"


def any_on_gpu(values: Sequence[object]) -> bool:
    """Return whether any of the arguments of a launch is an array on a GPU.

    >>> any_on_gpu([np.zeros(4), 3, 2.5, None])
    False
    """
    return any(_on_gpu(value) for value in values)


def _on_gpu(value: object) -> bool:
    if value is None or isinstance(value, int | float | bytes | np.ndarray | np.generic):
        return False
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return bool(value.is_cuda)
    device = dlpack_device(value)
    return device[0] in DLPACK_CUDA if device is not None else interface_of(value) is not None


def locate(value: Any, stream: int) -> ArrayLocation | None:
    """Where an argument lies, if it is an array; `stream` is the launch's, for libraries that order by it."""
    library = library_of(value)
    if library is not None:
        if library.name == "torch" and not value.is_cuda:
            return ArrayLocation("torch", on_gpu=False)
        return ArrayLocation(
            library.name, True, library.ordinal(value), library.address(value), library.in_one_piece(value)
        )
    if isinstance(value, np.ndarray):
        return ArrayLocation("NumPy", on_gpu=False) if value.ndim else None
    if value is None or isinstance(value, int | float | bytes | bytearray | np.generic):
        return None
    package = type(value).__module__.partition(".")[0]
    interface = interface_of(value)
    if interface is not None:
        return _by_interface(package, interface)
    device = dlpack_device(value)
    if device is not None and device[0] in DLPACK_CUDA:
        return _by_dlpack(package, value, device[1], stream)
    if (device is not None and device[0] in _DLPACK_HOST) or hasattr(value, "__array_interface__"):
        return ArrayLocation(package, on_gpu=False)
    return None


# torch and CuPy --------------------------------------------------------------------------------------------


def library_of(value: object) -> Library | None:
    """The library of an array, if it is one that is asked directly."""
    kind = type(value)
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and issubclass(kind, torch.Tensor):
        return _torch()
    if cupy is not None and issubclass(kind, cupy.ndarray):
        return _cupy()
    return None


@cache
def _torch() -> Library:
    torch = sys.modules["torch"]

    def current_stream(ordinal: int) -> int:
        return int(torch.cuda.current_stream(ordinal).cuda_stream)

    tensor = torch.Tensor
    return Library(
        "torch",
        tensor.data_ptr,
        tensor.get_device,
        tensor.is_contiguous,
        lambda value: value.is_contiguous() or dense(value.shape, value.stride()),
        # Without the object around it, as Triton takes it: a tenth of the time.
        getattr(torch._C, "_cuda_getCurrentRawStream", current_stream),
    )


@cache
def _cupy() -> Library:
    cupy = sys.modules["cupy"]

    def in_one_piece(value: Any) -> bool:
        return bool(value.flags.c_contiguous or value.flags.f_contiguous)

    return Library(
        "cupy",
        lambda value: int(value.data.ptr),
        lambda value: int(value.device.id),
        in_one_piece,
        in_one_piece,
        lambda ordinal: int(cupy.cuda.get_current_stream().ptr),
    )


def dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements with these strides (in elements) lie side by side, in C's order or in Fortran's.

    >>> dense((4, 8), (8, 1)), dense((4, 8), (1, 4)), dense((4, 8), (16, 1))
    (True, True, False)
    """
    if 0 in shape:
        return True

    def grows(sizes: Sequence[int], steps: Sequence[int]) -> bool:
        expected = 1
        for size, step in zip(sizes, steps, strict=True):
            if size != 1 and step != expected:
                return False
            expected *= size
        return True

    return grows(shape[::-1], strides[::-1]) or grows(shape, strides)


# everyone else ---------------------------------------------------------------------------------------------


def interface_of(value: Any) -> dict[str, Any] | None:
    """What `__cuda_array_interface__` says; where there is none, which libraries say so, DLPack has to do.

    JAX does so for types that NumPy has not, PyTorch for tensors with a gradient.
    """
    try:
        interface = value.__cuda_array_interface__
    except (AttributeError, TypeError, RuntimeError):
        return None
    except Exception as error:  # what a library raises is its own
        raise LanewiseError(
            f"{type(value).__name__} cannot say where it lies: its __cuda_array_interface__ raises "
            f"{type(error).__name__}: {error}"
        ) from None
    if not isinstance(interface, dict):
        return None
    wrong = _malformed(interface)
    if wrong:
        raise LanewiseError(f"the __cuda_array_interface__ of {type(value).__name__} is malformed: {wrong}")
    return interface


def _integers(value: object, low: int) -> bool:
    """Whether something is a tuple or list of integers that are not below a number."""
    return isinstance(value, tuple | list) and all(
        isinstance(size, int | np.integer) and size >= low for size in value
    )


def _malformed(interface: dict[str, Any]) -> str:
    """What is wrong with a field of an interface, in words; nothing if all are as the protocol has them."""
    fields: list[Any] = [interface.get(field) for field in ("typestr", "shape", "data", "strides")]
    typestr, shape, data, strides = fields
    try:
        is_type = isinstance(typestr, str) and np.dtype(typestr).itemsize > 0
    except TypeError:
        is_type = False
    if not is_type:
        return f"typestr is a type as NumPy writes it, such as '<f4', not {typestr!r}"
    if not _integers(shape, 0):
        return f"shape is a tuple of sizes, not {shape!r}"
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    address = data[0] if is_pair else -1
    if address is not None and not (isinstance(address, int | np.integer) and 0 <= int(address) < 1 << 64):
        return f"data is an address and whether it is read-only, not {data!r}"
    if strides is not None and not (_integers(strides, -1 << 63) and len(strides) == len(shape)):
        return f"strides are as many integers as the shape has, or None; not {strides!r}"
    return ""


def _by_interface(package: str, interface: dict[str, Any]) -> ArrayLocation:
    if interface.get("mask") is not None:
        raise LanewiseError("an array with a mask cannot be passed to a kernel")
    address, _ = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    whole = True
    # Views of `linalg/` say that their kernels follow the strides.
    if strides is not None and not interface.get("any_strides"):
        size = np.dtype(interface["typestr"]).itemsize
        whole = dense(shape, [step // size if step % size == 0 else -1 for step in strides])
    stream = interface.get("stream")
    made_on = stream if isinstance(stream, int) and stream > 0 else None
    return ArrayLocation(package, True, ordinal_of(address), address or 0, whole, made_on)


def ordinal_of(address: int | None) -> int | None:
    """The device of an address; None for the address of nothing."""
    if not address:
        return None
    first = context(0)
    ordinal = ctypes.c_int()
    with first.current():
        first.driver("cuPointerGetAttribute", ctypes.byref(ordinal), _POINTER_ORDINAL, address)
    return ordinal.value


class _Tensor(ctypes.Structure):
    """The beginning of DLPack's DLManagedTensor: a DLTensor."""

    #: What owns the memory.
    capsule: Any = None
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@cache
def _capsule_pointer() -> Any:
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.argtypes, read.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    return read


def dlpack_tensor(value: Any, stream: int = 1) -> _Tensor:
    """The DLTensor of an array; it has what keeps the array's memory. 1 is the legacy default stream."""
    try:
        capsule = value.__dlpack__(stream=stream)
        place = _capsule_pointer()(capsule, b"dltensor")
    except Exception as error:  # what a library raises is its own
        raise LanewiseError(
            f"{type(value).__name__} says by DLPack that it lies on a GPU, and gives no tensor: __dlpack__() "
            f"should return a capsule named dltensor ({type(error).__name__}: {error})"
        ) from None
    tensor = _Tensor.from_address(place)
    tensor.capsule = capsule
    return tensor


def _by_dlpack(package: str, value: object, ordinal: int, stream: int) -> ArrayLocation:
    tensor = dlpack_tensor(value, stream or 1)
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    whole = not tensor.strides or dense(shape, tensor.strides[: tensor.ndim])
    return ArrayLocation(
        package, True, ordinal, (tensor.data or 0) + tensor.byte_offset, whole, owner=tensor.capsule
    )


#: DLPack's codes of types as NumPy and ml_dtypes begin their names.
_DLPACK_TYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
#: Small floats of DLPack have a code each, from this one on.
_FIRST_SMALL_FLOAT = 7


class ArrayLayout(NamedTuple):
    """An array's shape, strides in bytes, bytes of an element, and the type as NumPy or torch names it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str


def layout_of(value: Any) -> ArrayLayout | None:
    """Return the layout of an array on a GPU; None for anything else."""
    library = library_of(value)
    if library is not None and library.name == "torch":
        if not value.is_cuda:
            return None
        size = value.element_size()
        strides = tuple(size * step for step in value.stride())
        return ArrayLayout(tuple(value.shape), strides, size, str(value.dtype).removeprefix("torch."))
    if library is not None:
        return ArrayLayout(tuple(value.shape), tuple(value.strides), value.dtype.itemsize, value.dtype.name)
    interface = interface_of(value)
    if interface is not None:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(interface["shape"])
        name = getattr(getattr(value, "dtype", dtype), "name", dtype.name)
        strides = tuple(interface.get("strides") or _packed(shape, dtype.itemsize))
        return ArrayLayout(shape, strides, dtype.itemsize, name)
    device = dlpack_device(value)
    if device is None or device[0] not in DLPACK_CUDA:
        return None
    tensor = dlpack_tensor(value)
    shape = tuple(tensor.shape[: tensor.ndim])
    size = tensor.bits * tensor.lanes // 8
    strides = _packed(shape, size)
    if tensor.strides:
        strides = tuple(size * step for step in tensor.strides[: tensor.ndim])
    kind = "float8" if tensor.code >= _FIRST_SMALL_FLOAT else _DLPACK_TYPES.get(tensor.code, "opaque")
    name = kind if kind in ("bool", "float8") else f"{kind}{tensor.bits}"
    return ArrayLayout(shape, strides, size, name)


def _packed(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the strides in bytes of an array in C's order without gaps.

    >>> _packed((2, 3, 4), 2)
    (24, 8, 2)
    """
    strides = [size]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides)) if shape else ()
