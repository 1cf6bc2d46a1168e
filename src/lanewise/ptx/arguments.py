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
from lanewise.ptx.model.directives import Variable
from lanewise.ptx.model.function import Function
from lanewise.ptx.model.names import demangle, parameter_texts

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
        missing = ", ".join(described(parameter) for parameter in parameters[len(values) :])
        without = f": there is none for {missing}" if missing and values else ""
        raise LanewiseError(
            f"{demangle(function.name)} takes {count} ({names}); {len(values)} given{without}"
        )
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
    >>> [described(parameter) for parameter in kernel.parameters]
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
        from lanewise.ptx.cuda_types import declared_parameters

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
        from lanewise.ptx.cuda_types import aliased_type, cuda_type  # few kernels need it

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
        from lanewise.ptx.cuda_types import declared_parameters
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
    if getattr(value, "is_traced", False):
        raise LanewiseError(
            f"argument {title} is a value of the kernel that is being traced, and a kernel does not launch "
            "another: mark the function @lw.device and call it"
        )
    if hasattr(value, "__dlpack__") or hasattr(value, "__array__") or _is_buffer(value):
        raise LanewiseError(
            f"argument {title}: {type(value).__name__} in host memory cannot be passed; "
            "numpy.asarray makes a NumPy array of it without a copy"
        )
    raise LanewiseError(
        f"argument {title} is .{variable.type}: {type(value).__name__} {repr(value)} cannot be passed; "
        + _wanted(value, variable)
    )


def _wanted(value: object, variable: Variable) -> str:
    """What a parameter takes that cannot take a value, as the end of a message."""
    if variable.size == 8 and variable.type[0] != "f":
        return "pass an array or an integer"
    if variable.type[0] not in "su":
        return "pass a number"
    if isinstance(value, float) and value.is_integer():
        return f"pass an integer; int(…) makes {int(value)} of it"
    return "pass an integer"


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
        with np.errstate(over="ignore", under="ignore"):
            return bytes(np.array(float(value)).astype(f"f{variable.size}").tobytes())
    except OverflowError:
        raise LanewiseError(f"argument {title}: {repr(value)} does not fit into .{variable.type}") from None


def is_native(dtype: np.dtype) -> bool:
    """Return whether all numbers of a type, those of its fields too, are little-endian."""
    if dtype.subdtype is not None:
        return is_native(dtype.subdtype[0])
    if dtype.fields is not None:
        return all(is_native(field[0]) for field in dtype.fields.values())
    return dtype.byteorder != ">"


# structs by value -------------------------------------------------------------------------------------------

#: Objects of ctypes, which have bytes: structures, unions, arrays and numbers.
_CTYPES = (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)


def struct_bytes(title: str, value: object, size: int, alignment: int, kind: CudaType | None) -> bytes:
    """Return a value as the bytes of a parameter of a size; `kind` is its type in C++, if that is known.

    >>> from lanewise.ptx.cuda_types import cuda_type
    >>> struct_bytes("0 (x)", (1, 2), 8, 8, cuda_type("uint2")).hex()
    '0100000002000000'
    >>> struct_bytes("0 (x)", 1.0, 2, 2, cuda_type("__half")).hex()
    '003c'
    """
    if kind is not None and kind.size != size:
        kind = None  # another type of this name
    number = _numbers(value)
    if number is not None and not (isinstance(value, np.generic) and value.nbytes == size):
        return _of_numbers(title, number, value, size, kind)
    if isinstance(value, bytes | bytearray):
        raw = bytes(value)
    elif isinstance(value, _CTYPES):
        raw = bytes(value)
        _require_alignment(title, ctypes.alignment(value), alignment)
    elif isinstance(value, np.generic | np.ndarray):
        raw = _of_numpy(title, value, size, alignment)
    else:
        raise LanewiseError(f"argument {title} is {_called(size, kind)}: {_what_to_pass(size, kind)}")
    if len(raw) != size:
        raise LanewiseError(f"argument {title} is {size} bytes; {len(raw)} were given{_padding(value, size)}")
    return raw


def _called(size: int, kind: CudaType | None) -> str:
    """Return a parameter's type in messages."""
    return kind.name if kind is not None else f"a struct of {size} bytes"


def _what_to_pass(size: int, kind: CudaType | None) -> str:
    """Return what a parameter takes."""
    if kind is not None and kind.numbers > 1:
        return f"pass a tuple of {kind.numbers} numbers"
    if kind is not None:
        return "pass a number"
    half = ", numpy.float16(x) for a half, ml_dtypes.bfloat16(x) for a bfloat16" if size == 2 else ""
    return f"pass bytes, a ctypes structure, or a NumPy structured scalar of that size{half}"


def _numbers(value: object) -> Sequence[object] | None:
    """Return a number, or a tuple or list of them, as a sequence; None for anything else."""
    if isinstance(value, complex | np.complexfloating):
        return [value.real, value.imag]
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return [value]
    if isinstance(value, tuple | list) and all(
        isinstance(item, bool | int | float | np.number) for item in value
    ):
        return value
    return None


def _of_numbers(
    title: str, numbers: Sequence[object], value: object, size: int, kind: CudaType | None
) -> bytes:
    """Return numbers as a value of a type, which has to be known."""
    if kind is None or len(numbers) != kind.numbers:
        given = f"; {len(numbers)} given" if kind is not None else f", not {type(value).__name__} {value!r}"
        raise LanewiseError(f"argument {title} is {_called(size, kind)}: {_what_to_pass(size, kind)}{given}")
    return b"".join(_number(title, number, kind) for number in numbers)


def _number(title: str, number: Any, kind: CudaType) -> bytes:
    """Return one number in the format of a type."""
    dtype = kind.dtype
    plain = number.item() if isinstance(number, np.generic) else number
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not isinstance(plain, int):
            raise LanewiseError(f"argument {title} is {kind.name}: {number!r} is not an integer")
        if not limits.min <= plain <= limits.max:
            raise LanewiseError(f"argument {title}: {number} does not fit into {kind.name}")
        return np.array(plain, dtype).tobytes()
    try:
        with np.errstate(over="ignore", under="ignore"):
            return np.array(plain if dtype.kind == "b" else float(plain)).astype(dtype).tobytes()
    except OverflowError:
        raise LanewiseError(f"argument {title}: a number does not fit into {kind.name}") from None


def _of_numpy(title: str, value: np.generic | np.ndarray, size: int, alignment: int) -> bytes:
    """Return the bytes of a NumPy scalar or array."""
    dtype = value.dtype
    if dtype.hasobject:
        raise LanewiseError(
            f"argument {title} is a struct of {size} bytes; pass bytes, a NumPy record or a ctypes structure"
        )
    if not is_native(dtype):
        raise LanewiseError(f"argument {title} has big-endian numbers; GPUs have them little-endian")
    if dtype.isalignedstruct:
        _require_alignment(title, dtype.alignment, alignment)
    return value.tobytes()


def _require_alignment(title: str, given: int, alignment: int) -> None:
    """Raise an error if a struct has a field that needs more alignment than the parameter has."""
    if given > alignment:
        raise LanewiseError(
            f"argument {title} is a struct aligned to {alignment} bytes; the one given has a field that "
            f"needs {given}: its fields are not those of the kernel"
        )


def _padding(value: object, size: int) -> str:
    """Return a hint if a NumPy type lacks the padding that C++ puts between fields."""
    dtype = value.dtype if isinstance(value, np.generic | np.ndarray) else None
    if dtype is None or dtype.fields is None or dtype.isalignedstruct:
        return ""
    padded = np.dtype([(name, field[0]) for name, field in dtype.fields.items()], align=True)
    return "; numpy.dtype(…, align=True) puts fields where C++ has them" if padded.itemsize == size else ""
