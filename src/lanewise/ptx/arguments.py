"""Arguments of a launch, held against a kernel's parameters: how many, which kind, and their bytes.

Where arrays lie, and what their addresses are, is the business of the engine that runs the kernel.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from reprlib import repr
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.ptx.byte_order import is_native
from lanewise.ptx.model.function import Function
from lanewise.ptx.model.names import demangle, parameter_texts
from lanewise.ptx.model.variables import Variable

if TYPE_CHECKING:
    from lanewise.ptx.cuda_types import CudaType

#: What compilers of CUDA call parameters, whose names they do not keep.
_NUMBERED = re.compile(r".+_param_\d+")


def titled(function: Function, values: Sequence[object]) -> Iterator[tuple[str, Variable, Any]]:
    """Each argument as messages call it, its parameter and its value; an error if there are not as many.

    >>> from lanewise.ptx import parse
    >>> kernel = parse(".version 9.0\\n.target sm_80\\n.entry k(.param .u64 p, .param .u32 n) { ret; }")["k"]
    >>> [(title, variable.type, value) for title, variable, value in titled(kernel.function, (0, 7))]
    [('0 (p)', 'u64', 0), ('1 (n)', 'u32', 7)]
    """
    parameters = function.parameters
    if len(values) != len(parameters):
        names = ", ".join(described(parameter) for parameter in parameters)
        count = f"{len(parameters)} argument{'s' if len(parameters) != 1 else ''}"
        raise LanewiseError(f"{demangle(function.name)} takes {count} ({names}); {len(values)} given")
    for number, (variable, value) in enumerate(zip(parameters, values, strict=True)):
        yield _title(number, variable.name), variable, value


@lru_cache(maxsize=1024)
def _title(number: int, name: str) -> str:
    """An argument as messages call it, by its number and the name of its parameter."""
    return f"{number} ({name})" if name and not _NUMBERED.fullmatch(name) else f"{number}"


def own_name(variable: Variable) -> str:
    """The name of a parameter; nothing where the compiler made it up from that of the kernel and a number."""
    return "" if _NUMBERED.fullmatch(variable.name) else variable.name


def described(variable: Variable) -> str:
    """A parameter as messages list it.

    >>> from lanewise.ptx import parse
    >>> text = ".version 9.0\\n.target sm_80\\n.entry k(.param .u64 k_param_0, .param .u32 n) { ret; }"
    >>> kernel = parse(text)["k"]
    >>> [described(each) for each in kernel.parameters]
    ['.u64', '.u32 n']
    """
    return f".{variable.type} {own_name(variable)}".rstrip()


#: Kinds of NumPy types that no kernel reads as they are, and what to pass in their stead.
_UNFIT_KINDS = {
    "O": "Python objects; give it a type with array.astype(…)",
    "M": "dates; array.view(numpy.int64) has their numbers",
    "m": "spans of time; array.view(numpy.int64) has their numbers",
    "U": "text; numpy.frombuffer(text.encode(), numpy.uint8) has its bytes",
    "c": "complex numbers; array.view(numpy.float32) or .view(numpy.float64) has their parts side by side",
}


#: Bytes of a double: NumPy's longdouble is the host's own.
_WIDEST_FLOAT = 8


def require_plain_array(title: str, array: np.ndarray) -> None:
    """An error if an array's elements are not what a kernel reads: objects, dates, big-endian, masked."""
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):  # numpy.ma is slow to import
        raise LanewiseError(
            f"argument {title} is a masked array, whose mask no kernel sees; pass array.filled(value)"
        )
    unfit = _UNFIT_KINDS.get(array.dtype.kind)
    if unfit is None and array.dtype.hasobject:
        unfit = _UNFIT_KINDS["O"]
    if unfit is not None:
        raise LanewiseError(f"argument {title} is an array of {unfit}")
    if array.dtype.kind == "f" and array.dtype.itemsize > _WIDEST_FLOAT:
        raise LanewiseError(
            f"argument {title} is an array of {array.dtype.name}, which no GPU has; use array.astype(float)"
        )
    if not is_native(array.dtype):
        raise LanewiseError(
            f"argument {title} is an array of {array.dtype.str}, which is big-endian; "
            "array.astype(array.dtype.newbyteorder('=')) is as GPUs have it"
        )


def require_pointer(title: str, variable: Variable) -> None:
    """An error if a parameter cannot hold an array's address."""
    if variable.element_size != 8 or variable.dims or variable.type.startswith("f"):
        raise LanewiseError(f"argument {title} is .{variable.type} and takes a number; an array was given")


def require_alignment(title: str, variable: Variable, address: int) -> None:
    """An error if an array lies at an address that the kernel was not compiled for (`.ptr .align`)."""
    align = variable.pointer.align if variable.pointer is not None else 0
    if align > 1 and address % align:
        raise LanewiseError(
            f"argument {title} is a pointer to memory aligned to {align} bytes; "
            f"the array begins {address % align} bytes after a multiple of that: copy it to memory of its own"
        )


class ArrayArgument:
    """An argument that is made of an array, its `array`: a texture, a surface or a tensor map."""

    array: Any


class HandleArgument(ArrayArgument):
    """An argument that a kernel knows by a handle of 64 bits: a texture or a surface."""


@lru_cache(maxsize=1024)
def _parameter_texts(name: str, source: str, count: int) -> tuple[str, ...] | None:
    """The types of a kernel's parameters as its mangled name has them, or else its source."""
    full = demangle(name)
    if full != name:
        texts: Sequence[str] = parameter_texts(full)
    elif source:
        from lanewise.ptx.cuda_declarations import declared_parameters

        declared = declared_parameters(source, name)
        texts = [parameter.type for parameter in declared] if declared is not None else ()
    else:
        return None
    return tuple(texts) if len(texts) == count else None


class ParameterTypes:
    """The types of a kernel's parameters in C++: by its mangled name, or by its source."""

    def __init__(self, function: Function, source: str = "") -> None:
        self.function, self.source = function, source

    @cached_property
    def _types(self) -> list[CudaType | None]:
        from lanewise.ptx.cuda_declarations import aliased_type  # few kernels need it
        from lanewise.ptx.cuda_types import cuda_type

        texts = self.texts
        if texts is None:
            return [None] * len(self.function.parameters)
        return [cuda_type(text) or cuda_type(aliased_type(self.source, text)) for text in texts]

    @cached_property
    def texts(self) -> tuple[str, ...] | None:
        """The types of all parameters as C++ writes them; None if nothing tells them."""
        return _parameter_texts(self.function.name, self.source, len(self.function.parameters))

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of all parameters in the source; None if they are not seen there."""
        from lanewise.ptx.cuda_declarations import declared_parameters
        from lanewise.ptx.model.names import plain_name

        declared = declared_parameters(self.source, plain_name(self.function.name)) if self.source else None
        if declared is None or len(declared) != len(self.function.parameters):
            return None
        return tuple(parameter.name for parameter in declared)

    def of(self, variable: Variable) -> CudaType | None:
        """The type of a parameter; None if it is a struct of the user's, or nothing tells."""
        return next(
            (
                kind
                for parameter, kind in zip(self.function.parameters, self._types, strict=True)
                if parameter is variable
            ),
            None,
        )


def encode(title: str, value: object, variable: Variable, types: ParameterTypes | None = None) -> bytes:
    """A number or a struct as the bytes of a parameter; `types` tell what a struct is in C++.

    >>> from lanewise.ptx import parse
    >>> kernel = parse(".version 9.0\\n.target sm_80\\n.entry k(.param .s32 n, .param .f32 x) { ret; }")["k"]
    >>> [encode(variable.name, -2, variable).hex() for variable in kernel.parameters]
    ['feffffff', '000000c0']
    """
    size = variable.size
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.fields is None:
        raise LanewiseError(
            f"argument {title} is an array without dimensions; pass a number (array.item()) "
            "or an array of one element (array.reshape(1))"
        )
    if variable.dims or variable.vector > 1:
        from lanewise.ptx.struct_bytes import struct_bytes  # few kernels take structs

        declared = types.of(variable) if types is not None else None
        return struct_bytes(title, value, size, variable.alignment, declared)
    if isinstance(value, ctypes._SimpleCData):
        value = value.value
    if (
        isinstance(value, np.generic | np.ndarray)
        and value.dtype.itemsize == size
        and value.dtype.kind not in "OUSMmc"
    ):
        mismatch = (variable.type[0] == "f" and value.dtype.kind in "biu") or (
            variable.type[0] in "su" and value.dtype.kind in "fc"
        )
        if not mismatch:
            return bytes(np.asarray(value).tobytes())
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    kind = variable.type[0]
    if isinstance(value, bool | int) and kind in "sub":
        number = int(value)
        low = -(1 << 8 * size - 1)
        high = (1 << 8 * size) - 1 if kind != "s" else (1 << 8 * size - 1) - 1
        if not low <= number <= high:
            raise LanewiseError(f"argument {title}: {number} does not fit into .{variable.type}")
        return (number % (1 << 8 * size)).to_bytes(size, "little")
    if isinstance(value, bool | int | float) and kind in "fb" and size in (2, 4, 8):
        return _encode_float(title, value, variable)
    if value is None and size == 8:
        return bytes(8)
    if hasattr(value, "__dlpack__") or hasattr(value, "__array__") or _is_buffer(value):
        raise LanewiseError(
            f"argument {title}: {type(value).__name__} in host memory cannot be passed; "
            "numpy.asarray makes a NumPy array of it without a copy"
        )
    raise LanewiseError(
        f"argument {title} is .{variable.type}: {type(value).__name__} {repr(value)} cannot be passed; "
        + ("pass an array or an integer" if size == 8 else "pass a number")
    )


def _is_buffer(value: Any) -> bool:
    """Whether an object other than bytes has memory that NumPy can use: array.array, ctypes arrays."""
    if isinstance(value, bytes | bytearray):
        return False
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _encode_float(title: str, value: float, variable: Variable) -> bytes:
    """A number as the bytes of a floating-point parameter; floats too large become infinite, as in NumPy."""
    try:
        with np.errstate(over="ignore"):
            return bytes(np.array(float(value)).astype(f"f{variable.size}").tobytes())
    except OverflowError:
        raise LanewiseError(f"argument {title}: {repr(value)} does not fit into .{variable.type}") from None
