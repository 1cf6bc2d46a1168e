"""C++ types as CUTLASS spells them: value types with their formats, arrays in registers, GMMA's enums.

What the choices that GMMA (wgmma) operations take as template arguments mean is in the traits and in
`compute.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format, format_of
from lanewise.layout import is_int

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyDtype


class Major(Enum):
    """Which index of a shared-memory operand is contiguous: K, or M (for B: N)."""

    K = 0
    MN = 1


class ScaleIn(Enum):
    """Whether the elements of an operand are taken as they are or negated."""

    Neg = -1
    One = 1


class ScaleOut(Enum):
    """Whether the product is added to the accumulator (One) or replaces it (Zero)."""

    Zero = 0
    One = 1


def scale_out(what: object) -> ScaleOut:
    """The ScaleOut that a value stands for: itself, or 0 and 1.

    >>> scale_out(0)
    <ScaleOut.Zero: 0>
    """
    try:
        return ScaleOut(what)
    except ValueError:
        raise LanewiseError(f"ScaleOut is ScaleOut.Zero (0) or ScaleOut.One (1), not {what!r}") from None


class SparseSel(Enum):
    """Which threads of a quad hold the metadata of a sparse operation."""

    Zero = 0
    One = 1


#: CUTLASS's name of each number format.
NAMES = {
    "f64": "double", "f32": "float", "tf32": "tfloat32_t", "f16": "half_t", "bf16": "bfloat16_t",
    "e5m2": "float_e5m2_t", "e4m3": "float_e4m3_t", "e3m2": "float_e3m2_t", "e2m3": "float_e2m3_t",
    "e2m1": "float_e2m1_t", "ue8m0": "float_ue8m0_t", "ue4m3": "float_ue4m3_t", "s32": "int32_t",
    "s8": "int8_t", "u8": "uint8_t", "s4": "int4b_t", "u4": "uint4b_t", "b1": "uint1b_t",
}  # fmt: skip
_FORMAT_OF = {cpp: FORMATS[name] for name, cpp in NAMES.items()}
#: Other names of the same types.
ALIASES = {"int4_t": "int4b_t", "uint4_t": "uint4b_t", "uint1_t": "uint1b_t", "int": "int32_t"}
_UNSIGNED = re.compile(r"u?int(\d+)_t")
#: What copies move without looking into it.
_WIDTHS = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class ValueType:
    """A C++ value type: its name, its bits, and its number format if it has one.

    >>> print(value_type("f16")), value_type("half_t").bits
    half_t
    (None, 16)
    """

    name: str
    bits: int
    format: Format | None = None

    @property
    def dtype(self) -> AnyDtype:
        """The NumPy dtype of one value."""
        import numpy as np

        if self.format is not None:
            return np.dtype(self.format.dtype)
        if self == COMPLEX:
            return np.dtype(np.complex128)
        if self == GAUSS_COMPLEX:
            return np.dtype([(name, np.float64) for name in ("t0", "t1", "t2")])
        if _UNSIGNED.fullmatch(self.name) and self.bits <= 64:
            return np.dtype(self.name.removesuffix("_t"))
        raise LanewiseError(f"{self.name} has no NumPy dtype")

    def __str__(self) -> str:
        return self.name


#: complex<double>, and the three partial sums of Gauss's complex product (a+bi)(c+di):
#: t0 = ac, t1 = bd, t2 = (a+b)(c+d), so that the result is (t0 - t1) + (t2 - t0 - t1) i.
COMPLEX = ValueType("complex<double>", 128)
GAUSS_COMPLEX = ValueType("GaussComplex", 192)


def of_format(fmt: Format) -> ValueType:
    """The value type of a number format.

    >>> of_format(FORMATS["e4m3"]).name
    'float_e4m3_t'
    """
    return ValueType(NAMES[fmt.name], fmt.bits, fmt)


def sparse(sparsity: int, raw: ValueType) -> ValueType:
    """The type of an operand of which every raw value stands for several indices along K.

    >>> print(sparse(2, value_type("half_t")))
    sparse_elem<2, half_t>
    """
    return ValueType(f"sparse_elem<{sparsity}, {raw}>", raw.bits, raw.format)


def smem_desc(major: Major) -> ValueType:
    """The fragment type of an operand that stays in shared memory: a descriptor of 64 bits.

    >>> print(smem_desc(Major.K))
    GMMA::smem_desc<GMMA::Major::K>
    """
    return ValueType(f"GMMA::smem_desc<GMMA::Major::{major.name}>", 64)


def value_type(what: Any) -> ValueType:
    """Return the value type for a C++ name, a format, its name, a NumPy dtype or a number of bits.

    >>> value_type("uint128_t").bits, value_type("cutlass::float_e5m2_t").format.name, value_type(16).name
    (128, 'e5m2', 'uint16_t')
    """
    if isinstance(what, ValueType):
        return what
    given = what
    if is_int(what):
        if int(what) in _WIDTHS:
            return ValueType(f"uint{int(what)}_t", int(what), _FORMAT_OF.get(f"uint{int(what)}_t"))
        raise _unknown(what)
    if isinstance(what, str):
        name = re.sub(r"^(?:cutlass|cute|std)::", "", what.strip())
        name = ALIASES.get(name, name)
        if name in _FORMAT_OF:
            return of_format(_FORMAT_OF[name])
        if name == COMPLEX.name:
            return COMPLEX
        match = _UNSIGNED.fullmatch(name)
        if match and int(match.group(1)) in _WIDTHS:
            return ValueType(name, int(match.group(1)))
        what = name
    try:
        return of_format(format_of(what))
    except (LanewiseError, TypeError, KeyError):
        raise _unknown(given) from None


def _unknown(what: object) -> LanewiseError:
    return LanewiseError(
        f"unknown value type {what!r}; give a C++ name ({', '.join(NAMES.values())}, uint16_t, …), "
        f"a format ({', '.join(NAMES)}) or a number of bits ({', '.join(map(str, _WIDTHS))})"
    )


@dataclass(frozen=True)
class RegisterArray:
    """The registers that one thread passes for an operand; none if the type is void.

    >>> print(RegisterArray("uint32_t", 4))
    uint32_t[4]
    """

    type: str
    count: int

    def __str__(self) -> str:
        return f"{self.type}[{self.count}]" if self.count else self.type
