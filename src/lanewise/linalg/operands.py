"""Arrays of any library as the operands of a product: where their elements lie, and of which format they are.

NumPy, torch and CuPy are asked directly, others through `__cuda_array_interface__` or DLPack. Nothing is
copied here. What the shapes and formats of several operands must be to each other is in `rules.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import Format, format_of
from lanewise.linalg.arrays import array_at
from lanewise.linalg.problem import Operand
from lanewise.linalg.types import TAKEN, names_taken
from lanewise.ptx.host_tensors import host_array

#: Bytes that tensor maps want addresses and strides to be multiples of.
_ALIGNED = 16
#: How hard NumPy may try to tell whether two views overlap; a view for which it takes longer is refused.
_OVERLAP_WORK = 10_000


class View(NamedTuple):
    """An array: its shape, its strides in elements, its format, its address and who has it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    format: Format
    address: int
    #: "numpy", "torch", "cupy", or the name of another library.
    library: str
    #: None in host memory, else the number of the GPU.
    device: int | None
    #: The array itself; in host memory as a NumPy array of the same memory.
    array: Any

    @property
    def where(self) -> str:
        """The device in words."""
        return "in host memory" if self.device is None else f"on cuda:{self.device}"

    @property
    def bytes(self) -> int:
        """The bytes of an element."""
        return self.format.word_bits // 8


def view_of(value: object, name: str) -> View:
    """Return the view of an array; anything else, and arrays of other types, are errors that name it.

    >>> view_of(np.zeros((4, 6), np.float16)[:, ::2], "a")[:3]
    ((4, 3), (6, 2), <f16>)
    """
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | list | tuple | dict):
        if type(value) is View:
            return value
        mend = "; np.array(…, np.float32) makes one" if isinstance(value, list | tuple) else ""
        raise LanewiseError(
            f"{name} must be an array of NumPy, torch, CuPy, or one with DLPack, not "
            f"{type(value).__name__}{mend}"
        )
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            return _torch_view(torch, value, name)
        if isinstance(value, np.ndarray | np.generic):
            return _numpy_view(np.asanyarray(value), name, "numpy")
        return _other_view(value, name)
    except LanewiseError:
        raise
    except Exception as error:  # what an array of another library says of itself is that library's code
        raise LanewiseError(
            f"{name} is a {type(value).__name__} that cannot be read as an array: "
            f"{type(error).__name__}: {error}"
        ) from error


def _numpy_view(array: np.ndarray[Any, Any], name: str, library: str) -> View:
    """Return the view of a NumPy array."""
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise LanewiseError(f"{name} is a masked array: pass {name}.filled(value), without masked elements")
    size, fmt = array.itemsize, _format(array.dtype.name, name)
    if any(step % size for step in array.strides):
        raise LanewiseError(
            f"{name} has strides of {array.strides} bytes, which are not multiples of the {size} bytes of an "
            "element: copy it with numpy.ascontiguousarray"
        )
    address = array.__array_interface__["data"][0] if array.dtype.kind != "V" else array.ctypes.data
    if address % size:
        mend = "pass an array that numpy.empty made" if name == "out" else f"pass {name}.copy()"
        raise LanewiseError(
            f"{name} lies at an address that is not a multiple of the {size} bytes of an element: {mend}"
        )
    if name == "out" and not array.flags.writeable:
        if library == "jax":
            raise LanewiseError("out is an array of JAX, which cannot be written: leave out out=")
        raise LanewiseError("out is read-only: pass an array that can be written, or leave it out")
    _require_byte_order(array.dtype, name)
    strides = tuple(step // size for step in array.strides)
    return View(array.shape, strides, fmt, address, library, None, array)


def _require_byte_order(dtype: np.dtype[Any], name: str) -> None:
    """Raise an error for elements in another byte order than the machine's own: no product takes them."""
    if not dtype.isnative:
        raise LanewiseError(
            f"{name} has elements of type {dtype.str}, in another byte order than this machine's: pass "
            f"{name}.astype({name}.dtype.newbyteorder('='))"
        )


def _torch_view(torch: Any, tensor: Any, name: str) -> View:
    """Return the view of a torch tensor, on a GPU or in host memory."""
    kind = type(tensor)
    if kind not in plain_tensors() and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise LanewiseError(
            f"{name} is a {kind.__name__}, which stands for other tensors: call the function of "
            "lanewise.torch, which takes it, or pass those"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise LanewiseError(
            f"{name} requires a gradient, and lw.matmul records none: call lanewise.torch.matmul, which "
            f"does, or pass {name}.detach()"
        )
    if tensor.is_nested:
        raise LanewiseError(f"{name} is a nested tensor, of rows of several lengths: pass a padded one")
    if tensor.is_neg():  # as x.conj().imag: its memory holds the numbers with the other sign
        raise LanewiseError(f"{name} is a negative view of its memory: pass {name}.resolve_neg()")
    if tensor.layout is not torch.strided:
        raise LanewiseError(
            f"{name} has layout {tensor.layout}, and not {torch.strided}: pass {name}.to_dense()"
        )
    if str(tensor.dtype) == "torch.float4_e2m1fn_x2":
        return _pairs_view(torch, tensor, name)
    fmt = _format(str(tensor.dtype).removeprefix("torch."), name)
    if not tensor.is_cuda:
        if tensor.device.type != "cpu":
            raise LanewiseError(f"{name} is on {tensor.device}; products take tensors on the CPU or on CUDA")
        array = host_array(tensor if tensor.ndim else tensor.reshape(1))
        array = array if tensor.ndim else array.reshape(())
        return View(tuple(tensor.shape), tensor.stride(), fmt, tensor.data_ptr(), "torch", None, array)
    return View(
        tuple(tensor.shape), tensor.stride(), fmt, tensor.data_ptr(), "torch", tensor.get_device(), tensor
    )


def _pairs_view(torch: Any, tensor: Any, name: str) -> View:
    """Return the view of torch's pairs of e2m1: a copy with one element in a byte, as NumPy has them.

    The elements of a pair are neighbours along the axis whose steps are 1, the first in the low bits.
    """
    axis = _axis_of_pairs(tensor.stride(), tensor.is_cuda, name)
    words = tensor.view(torch.uint8).numpy()
    pairs = np.stack([words & 15, words >> 4], axis=axis + 1)
    shape = (*words.shape[:axis], 2 * words.shape[axis], *words.shape[axis + 1 :])
    fp4 = _format("float4_e2m1fn", name)
    return _numpy_view(fp4.from_bits(pairs.reshape(shape)), name, "torch")


def _axis_of_pairs(strides: Sequence[int], on_gpu: bool, name: str) -> int:
    """Return the axis along which the two elements of torch's pairs of e2m1 are neighbours."""
    if on_gpu:
        raise LanewiseError(f"{name} is float4_e2m1fn_x2 on a GPU, which lw.matmul takes in host memory only")
    axes = [axis for axis, step in enumerate(strides) if step == 1]
    if not axes:
        raise LanewiseError(f"{name} is float4_e2m1fn_x2 and contiguous along no axis: pass a copy of it")
    return axes[-1]


def view_without_memory(
    dtype: str, shape: Sequence[int], strides: Sequence[int], device: int | None, name: str
) -> View:
    """Return the view of a torch tensor of which nothing but this is known, for rules: it has no elements.

    >>> view_without_memory("bfloat16", (8, 16), (16, 1), None, "a")[:3]
    ((8, 16), (16, 1), <bf16>)
    """
    if dtype == "float4_e2m1fn_x2":
        axis = _axis_of_pairs(strides, device is not None, name)
        shape = [2 * size if axis == at else size for at, size in enumerate(shape)]
        dtype, strides = "float4_e2m1fn", packed_strides(shape)
    return View(tuple(shape), tuple(strides), _format(dtype, name), 0, "torch", device, None)


@cache
def plain_tensors() -> tuple[type, ...]:
    """Return torch's types of tensors that are nothing but memory."""
    torch = sys.modules["torch"]
    return torch.Tensor, torch.nn.Parameter, torch.nn.Buffer


def _other_view(value: object, name: str) -> View:
    """Return the view of an array of another library."""
    from lanewise.gpu.arrays import interface_of, layout_of, library_of, locate

    interface = interface_of(value)
    if interface is not None and library_of(value) is None:
        _require_interface(interface, name)
    package = type(value).__module__.partition(".")[0]
    package = "jax" if package == "jaxlib" else package
    where = locate(value, 0)
    if where is None and package == "jax":
        raise LanewiseError(
            f"{name} is a {type(value).__name__} of JAX, which stands for arrays to come: lw.matmul computes "
            "on arrays, outside of jax.jit, jax.grad and jax.vmap; inside of them jax.pure_callback calls it"
        )
    if where is None:
        place = getattr(type(value), "STANDS_FOR", None)
        raise LanewiseError(
            f"{name} must be an array of NumPy, torch, CuPy, or one with DLPack, not {type(value).__name__}"
            + (f": it is {place} of lw.matmul, and of nothing else" if place else "")
        )
    if not where.on_gpu:
        array = host_array(value)
        if not isinstance(array, np.ndarray):
            array = np.asarray(value)
        if array.dtype.hasobject and hasattr(value, "__dlpack__"):  # NumPy took it for no array
            array = np.from_dlpack(value)  # which says why not
        return _numpy_view(array, name, package)
    layout = layout_of(value)
    assert layout is not None
    if layout.itemsize and any(step % layout.itemsize for step in layout.strides):
        raise LanewiseError(f"{name} has strides that are not multiples of the size of an element: copy it")
    strides = tuple(step // layout.itemsize for step in layout.strides)
    # An empty array may have no address, which would tell on which GPU it lies.
    ordinal = where.ordinal or 0
    return View(layout.shape, strides, _format(layout.dtype, name), where.address, package, ordinal, value)


def _require_interface(interface: dict[str, Any], name: str) -> None:
    """Raise an error if a `__cuda_array_interface__`, whose fields are well-formed, has no array to offer.

    >>> _require_interface({"shape": (4,), "typestr": "<f2", "data": (0, False)}, "a")
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: a has a __cuda_array_interface__ whose data is (0, False): an array with \
elements must have an address
    """
    _require_byte_order(np.dtype(interface["typestr"]), name)
    address, read_only = data = interface["data"]
    if not address and 0 not in interface["shape"]:
        raise LanewiseError(
            f"{name} has a __cuda_array_interface__ whose data is {data!r}: an array with elements must have "
            "an address"
        )
    if name == "out" and read_only:
        raise LanewiseError("out is read-only: pass an array that can be written, or leave it out")


@cache
def _named(name: str) -> Format | None:
    """Return the format of a dtype's name; None if products do not take it."""
    try:
        known = format_of(name)
    except LanewiseError:
        return None
    return known if known.name in TAKEN else None


def _format(name: str, operand: str) -> Format:
    """Return the format of a dtype; an error that names the operand if products do not take it."""
    known = _named(name)
    if known is None:
        mend = "" if operand == "out" else ": convert it first"
        raise LanewiseError(
            f"{operand} has elements of type {name}; it must have {names_taken(operand)}{mend}"
        )
    return known


# matrices ---------------------------------------------------------------------------------------------------


def operand(
    view: View, rows: int, columns: int, row_stride: int, column_stride: int, batch: int, batch_stride: int
) -> Operand:
    """Return a matrix of the view, or a batch of them, as kernels see it. `columns` are the axis that counts
    as K of A: if its neighbours lie side by side, the operand is `k_major`.

    >>> view = view_of(np.zeros((8, 24), np.float16), "a")
    >>> of_a = operand(view, 8, 24, 24, 1, 1, 0)
    >>> of_a.k_major, of_a.leading, of_a.tma
    (True, 24, True)
    """
    k_major, leading, inner = lying(rows, columns, row_stride, column_stride, _ALIGNED // view.bytes)
    bits = view.address | leading * view.bytes | _ALIGNED  # it lies at multiples of the last one that is set
    if batch > 1:
        bits |= batch_stride * view.bytes
    return Operand(view.format, k_major, leading, batch_stride, bits & -bits, inner)


def lying(rows: int, columns: int, row_stride: int, column_stride: int, packed: int) -> tuple[bool, int, int]:
    """Return whether a matrix lies along its columns, and the strides of its lines and of their elements.

    An axis of one element has any stride; it gets one that suits tensor maps, a multiple of `packed`.

    >>> lying(1, 100, 1, 1, 8), lying(100, 1, 1, 1, 8)
    ((True, 104, 1), (False, 104, 1))
    """
    inner = 1
    if columns == 1:
        k_major = row_stride != 1 and rows > 1
        leading = row_stride if k_major else -(-rows // packed) * packed
    elif rows == 1:
        k_major = column_stride == 1
        leading = -(-columns // packed) * packed if k_major else column_stride
    else:
        k_major = column_stride == 1 or (row_stride != 1 and abs(column_stride) <= abs(row_stride))
        leading, inner = (row_stride, column_stride) if k_major else (column_stride, row_stride)
    return k_major, leading, inner


# overlap ----------------------------------------------------------------------------------------------------


def require_own_elements(view: View, name: str) -> None:
    """Raise an error if two elements of a view may be the same memory: results cannot be written there."""
    if 0 in view.shape:
        return
    span = 0
    for step, size in sorted((abs(step), size) for step, size in zip(view.strides, view.shape, strict=True)):
        if size > 1:
            if step <= span:
                raise LanewiseError(
                    f"{name} has shape {view.shape} and strides {view.strides}, so that some of its elements "
                    "share memory, or lie between others: pass an array whose axes lie one inside the other"
                )
            span += step * (size - 1)


def require_apart(out: View, read: View, name: str) -> None:
    """Raise an error if a result would be written where an operand, which is still read, has its elements."""
    if overlap(out, read):
        raise LanewiseError(
            f"out overlaps {name} in memory, and {name} is still read while results are written: pass a copy "
            "of one of them"
        )


def overlap(one: View, other: View) -> bool:
    """Return whether two views share memory, or may: NumPy decides it by arithmetic on addresses."""
    if 0 in one.shape or 0 in other.shape or one.device != other.device:
        return False
    (first, end), (other_first, other_end) = reach(one), reach(other)
    if one.address + end <= other.address + other_first or other.address + other_end <= one.address + first:
        return False
    try:
        work: Any = _OVERLAP_WORK  # NumPy's annotations know two of the numbers that it takes
        first_array, other_array = (
            array_at(view.address, view.shape, view.strides, view.bytes) for view in (one, other)
        )
        return bool(np.shares_memory(first_array, other_array, max_work=work))
    except np.exceptions.TooHardError:
        return True


def reach(view: View) -> tuple[int, int]:
    """Return the bytes before and after a view's address that it takes."""
    steps = [step * (size - 1) for step, size in zip(view.strides, view.shape, strict=True) if size]
    before, after = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    return view.bytes * before, view.bytes * (1 + after)


# operands that are more than one array --------------------------------------------------------------------

#: What serves in place of attributes of arrays that sparse and quantized matrices do not have.
OF_OPERANDS = {
    "T": "transpose the matrix before: lw.sparsify(b.T), lw.quantize(w.T)",
    **dict.fromkeys(
        ("toarray", "todense", "numpy", "to_dense", "dense", "dequantize"),
        "a sparse matrix has dense(), a quantized one dequantize(), which return an array",
    ),
    "dtype": "format is the type of its elements",
}


def multiplied_by_matmul(*_: object) -> Any:
    """Refuse the operator @ of an operand that is more than one array, as its product has options."""
    raise LanewiseError(
        "this matrix is multiplied by lw.matmul(a, b), not by @; a sparse or quantized one is its b"
    )


# results ----------------------------------------------------------------------------------------------------


def in_units(size: float) -> str:
    """Return a number of bytes in the unit that suits it.

    >>> in_units(32_000_000_000_000), in_units(100)
    ('29.1 TiB', '100 bytes')
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    exponent = min(int(max(size, 1)).bit_length() - 1, 10 * len(units) - 1) // 10
    return f"{size / (1 << 10 * exponent):.3g} {units[exponent]}"


@cache
def _host_memory() -> int:
    """Return the bytes of memory that this machine has; more than any, if nothing tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # on Windows, say
        return 1 << 62


def _out_of_memory(shape: Sequence[int], fmt: Format, size: int) -> LanewiseError:
    return LanewiseError(
        f"the result of shape {tuple(shape)} and type {fmt.dtype_name} takes {in_units(size)} "
        f"({size:,} bytes), and this machine has {in_units(_host_memory())} of memory: compute some rows of "
        "a at a time, or pass out=, an array of numpy.memmap"
    )


def empty(like: View, shape: Sequence[int], fmt: Format) -> Any:
    """Return a new array of the library and on the device of another one."""
    size = prod(map(int, shape)) * fmt.dtype.itemsize
    if like.device is None and size > _host_memory():  # a system may promise more than it has
        raise _out_of_memory(shape, fmt, size)
    if like.library == "torch":
        torch = sys.modules["torch"]
        device = "cpu" if like.device is None else f"cuda:{like.device}"
        return torch.empty(tuple(shape), dtype=getattr(torch, fmt.dtype_name), device=device)
    if like.device is None:
        try:
            return np.empty(shape, fmt.dtype)
        except MemoryError:
            raise _out_of_memory(shape, fmt, size) from None
    if like.library == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device):
            return cupy.empty(tuple(shape), fmt.dtype)
    raise LanewiseError(
        f"lanewise cannot make an array of {like.library} on a GPU; pass one as out=, of shape "
        f"{tuple(shape)} and type {fmt.dtype_name}"
    )


def of_library(view: View, like: Any, result: Any) -> Any:
    """Return a new result as an operand's library has it: JAX gets a copy, which nobody writes to."""
    if view.library == "jax" and view.device is None:
        return sys.modules["jax"].device_put(result, next(iter(like.devices())))
    return result


#: Where torch keeps the level of tangents; what says whether modes, transforms and traces see operators.
Following = tuple[Any, Callable[[], Any], Callable[[], Any], Callable[[], Any]]


def is_followed() -> bool:
    """Return whether torch follows computations by more than `requires_grad`: for tangents, or in a trace."""
    if sys.modules.get("torch") is None:
        return False
    levels, modes, transforms, tracing = following()
    return bool(levels._current_level >= 0 or modes() or transforms() or tracing())


@cache
def following() -> Following:
    """Return what says whether torch follows computations."""
    torch = sys.modules["torch"]
    core = torch._C
    transforms = core._are_functorch_transforms_active
    return torch.autograd.forward_ad, core._len_torch_dispatch_stack, transforms, core._is_tracing


def require_not_followed(function: str, arrays: Mapping[str, object]) -> None:
    """Raise an error for tensors whose computation torch follows, as it would not see that of lanewise."""
    torch = sys.modules["torch"]
    for name, tensor in arrays.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        where, forward_ad = "", torch.autograd.forward_ad
        if torch._C._are_functorch_transforms_active():
            where = "inside torch.func"
        elif torch._C._is_tracing() or _records_graph():
            where = "in a trace"
        elif forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            where = "with a tangent of forward mode"
        if where:
            mend = f"call lanewise.torch.{function}"
            if function == "grouped_matmul":
                mend = "multiply group by group, by lanewise.torch.matmul"
            raise LanewiseError(
                f"{name} is a tensor {where}, and torch does not see what lw.{function} computes: {mend}"
            )


def _records_graph() -> bool:
    """Return whether make_fx records what is computed."""
    proxy_tensor = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return proxy_tensor is not None and proxy_tensor.get_proxy_mode() is not None


def note_written(out: Any) -> None:
    """Tell torch that an `out` has other numbers now, so that a backward pass which saved it is refused."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(out, torch.Tensor) and not out.is_inference():
        torch.autograd.graph.increment_version(out)


def with_items(array: object, name: str) -> Any:
    """Return an array whose matrices can be taken one by one: itself, or NumPy's view of the same memory."""
    if array is None or isinstance(array, int | float) or hasattr(array, "__getitem__"):
        return array
    view = view_of(array, name)
    if view.device is None:
        return view.array
    raise LanewiseError(
        f"{name} is a {type(array).__name__}, of which lw.matmul cannot take matrices of the batch one by "
        "one: pass a batch whose strides let it be treated as one axis, or an array of torch or CuPy"
    )


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array.

    >>> packed_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def batch_strides(view: View, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return a view's strides along the axes of the batch, 0 where it is repeated."""
    own = view.shape[:-2]
    strides = [0 if size == 1 else step for size, step in zip(own, view.strides, strict=False)]
    return (0,) * (len(batch) - len(own)) + tuple(strides)


def merged_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return axes of several arrays joined where each array's elements allow it: sizes, and the strides of
    each axis, one for each array. Axes of one element are left out.

    >>> merged_axes((4, 1, 8), [(8, 8, 1), (0, 0, 0), (16, 16, 1)])
    ([4, 8], [(8, 0, 16), (1, 0, 1)])
    >>> merged_axes((4, 8), [(8, 1), (0, 0)])
    ([32], [(1, 0)])
    """
    sizes: list[int] = []
    steps: list[tuple[int, ...]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = tuple(stride[axis] for stride in strides)
        if sizes and all(outer == size * inner for outer, inner in zip(steps[-1], here, strict=True)):
            sizes[-1] *= size
            steps[-1] = here
        else:
            sizes.append(size)
            steps.append(here)
    return sizes, steps
