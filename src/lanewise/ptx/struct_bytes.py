"""Structs by value: what a caller passes for one (bytes, ctypes, NumPy, numbers) as the parameter's bytes."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.ptx.byte_order import is_native
from lanewise.ptx.cuda_types import CudaType

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
        with np.errstate(over="ignore"):
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
