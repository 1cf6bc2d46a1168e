"""Types of the language: formats as dtypes, the annotations of parameters, and how PTX names each dtype.

Values of these types are in `scalar.py`, conversions between them in `convert.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.formats import (
    Format,
    b1,
    bf16,
    e2m1,
    e2m3,
    e3m2,
    e4m3,
    e5m2,
    f16,
    f32,
    f64,
    format_of,
    s8,
    s32,
    tf32,
    u8,
    ue8m0,
)
from lanewise.tracebacks import short_constructor, short_traceback

i8, i32 = s8, s32
i16 = Format("s16", 16, "int", "int16")
i64 = Format("s64", 64, "int", "int64")
u16 = Format("u16", 16, "int", "uint16", signed=False)
u32 = Format("u32", 32, "int", "uint32", signed=False)
u64 = Format("u64", 64, "int", "uint64", signed=False)
#: The outcome of a comparison.
pred = Format("pred", 1, "bits", "bool", signed=False)
#: Two halves in one 32-bit register, the first in the low bits.
f16x2 = Format("f16x2", 32, "bits", "uint32", signed=False)
bf16x2 = Format("bf16x2", 32, "bits", "uint32", signed=False)
#: Two small floats, the first in the low bits: a byte each, and two fp4 in one byte.
e4m3x2 = Format("e4m3x2", 16, "bits", "uint16", signed=False)
e5m2x2 = Format("e5m2x2", 16, "bits", "uint16", signed=False)
e2m3x2 = Format("e2m3x2", 16, "bits", "uint16", signed=False)
e3m2x2 = Format("e3m2x2", 16, "bits", "uint16", signed=False)
e2m1x2 = Format("e2m1x2", 8, "bits", "uint8", signed=False)
ue8m0x2 = Format("ue8m0x2", 16, "bits", "uint16", signed=False)

#: The dtypes with arithmetic of their own.
INTEGERS = (i8, i16, i32, i64, u8, u16, u32, u64)
FLOATS = (f16, bf16, f32, f64)
_INTEGER_NAMES, _FLOAT_NAMES = (frozenset(dtype.name for dtype in kind) for kind in (INTEGERS, FLOATS))
#: A packed pair and what it is made of.
PAIRS = {f16x2: f16, bf16x2: bf16}
#: Small floats that PTX converts and has no arithmetic for, by their pairs.
SMALL_PAIRS = {e4m3x2: e4m3, e5m2x2: e5m2, e2m3x2: e2m3, e3m2x2: e3m2, e2m1x2: e2m1, ue8m0x2: ue8m0}
SMALL_FLOATS = tuple(SMALL_PAIRS.values())


def is_int(dtype: Format) -> bool:
    """Return whether values of a dtype are whole numbers with arithmetic."""
    return dtype.name in _INTEGER_NAMES


def is_float(dtype: Format) -> bool:
    """Return whether values of a dtype are floats with arithmetic."""
    return dtype.name in _FLOAT_NAMES


def register_kind(dtype: Format) -> str:
    """Return the PTX type of the register that holds one value of a dtype.

    >>> register_kind(f16), register_kind(f32), register_kind(u8), register_kind(i64)
    ('b16', 'f32', 'b16', 'b64')
    """
    if dtype is pred:
        return "pred"
    if dtype in (f32, f64):
        return dtype.name
    return f"b{max(16, dtype.bits)}"


def memory_type(dtype: Format) -> str:
    """Return the type that a load or store of a dtype names.

    >>> memory_type(f16), memory_type(u8), memory_type(f32)
    ('b16', 'u8', 'f32')
    """
    if dtype in (f32, f64):
        return dtype.name
    if dtype.bits <= 8:
        return "s8" if dtype is i8 else "u8"
    return f"b{dtype.bits}"


def storage_bytes(dtype: Format) -> int:
    """Return how many bytes one element takes in memory."""
    return max(1, dtype.bits // 8)


def meant_format(dtype: object) -> str:
    """Return the name of the format that a NumPy dtype or the name of a format stands for; empty for none."""
    try:
        return dtype_name(format_of(dtype))  # type: ignore[arg-type]  # anything may be written
    except LanewiseError:
        return ""


def written_as(dtype: object) -> str:
    """Return what to write in place of a NumPy dtype or the name of a format, as the end of a message."""
    name = meant_format(dtype)
    return f"; write lw.{name}" if name else ""


@short_constructor
@dataclass(frozen=True)
class Ptr:
    """The annotation of a pointer parameter: `Ptr[f16]`, or `Ptr[f16, 16]` for one aligned to 16 bytes.

    >>> Ptr[f16, 16]
    Ptr[f16, 16]
    """

    dtype: Format
    align: int

    @short_traceback
    def __class_getitem__(cls, what: object) -> Ptr:
        """Return the type that an annotation names."""
        dtype, align = what if isinstance(what, tuple) and len(what) == 2 else (what, 0)
        if not isinstance(dtype, Format) or dtype in (pred, b1):
            mend = "; lw.u8 holds truth values in memory" if dtype is pred else written_as(dtype)
            raise LanewiseError(f"lw.Ptr[dtype] takes a format such as lw.f16, not {dtype!r}{mend}")
        align = align or storage_bytes(dtype)
        if not isinstance(align, int) or align < storage_bytes(dtype) or align & (align - 1):
            raise LanewiseError(
                f"lw.Ptr[{dtype.name}, {align!r}]: an alignment is a power of two of at least the size of an "
                f"element, {storage_bytes(dtype)} bytes"
            )
        return cls(dtype, align)

    def __repr__(self) -> str:
        more = f", {self.align}" if self.align != storage_bytes(self.dtype) else ""
        return f"Ptr[{self.dtype.name}{more}]"


@dataclass(frozen=True)
class TensorMapType:
    """What a kernel knows of a tensor map while it is traced: element, rank or box, and the swizzle."""

    dtype: Format
    rank: int
    box: tuple[int, ...] | None
    swizzle: str | None

    def __repr__(self) -> str:
        box = self.rank if self.box is None else self.box
        more = f", {self.swizzle.removesuffix('B')}" if self.swizzle else ""
        return f"TensorMap[{self.dtype.name}, {box}{more}]"


class Constexpr:
    """The annotation of a parameter whose value is known when the kernel is traced: any hashable object."""


#: Scalars that may be parameters.
SCALARS = (*INTEGERS, *FLOATS)
_PARAMETER_TYPES = {f16: "b16", bf16: "b16", tf32: "b32"}


def parameter_type(dtype: Format) -> str:
    """Return the PTX type of a scalar parameter of a kernel."""
    return _PARAMETER_TYPES.get(dtype, dtype.name)


#: Names of the language that differ from those of the formats.
_NAMES = {"s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64"}


def dtype_name(dtype: Format) -> str:
    """Return a dtype's name in the language: PTX's s32 is i32."""
    return _NAMES.get(dtype.name, dtype.name)
