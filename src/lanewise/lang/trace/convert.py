"""Conversions between dtypes: `x.to(dtype)`, `bitcast`, and packing two 16-bit values into a register.

Importing this module gives `Scalar` its `.to`. Python numbers are turned into constants by `scalar.py`.
"""

from math import isfinite
from typing import Any

from lanewise.formats import Format, bf16, f16, f32, f64, tf32
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import compute
from lanewise.lang.trace.packed_register import pack_register, unpack_register
from lanewise.lang.trace.scalar import OPERATORS, Scalar, literal, scalar
from lanewise.lang.trace.traced import describe, is_number
from lanewise.lang.trace.types import (
    PAIRS,
    SMALL_FLOATS,
    SMALL_PAIRS,
    bf16x2,
    dtype_name,
    f16x2,
    is_float,
    is_int,
    pred,
    register_kind,
    u16,
    u32,
)

_ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
_WITH_SMALL_FLOATS = frozenset((*SMALL_FLOATS, *SMALL_PAIRS))


def convert(value: Scalar, dtype: Format, rounding: str = "", saturate: bool = False) -> Scalar:
    """Return a value in another dtype. To a float it rounds to nearest even; to an integer, towards zero."""
    if not isinstance(dtype, Format):
        raise current().error(f".to() takes a dtype such as lw.f32, not {dtype!r}")
    if rounding and rounding not in _ROUNDINGS:
        raise current().error(f"rounding is one of {', '.join(_ROUNDINGS)}, not {rounding!r}")
    source = value.dtype
    if source == dtype:
        return value
    if not _WITH_SMALL_FLOATS.isdisjoint((dtype, source)):
        return _small_float(value, dtype, rounding, saturate)
    if value.constant is not None and not rounding and not saturate and source is not pred:
        return _constant(value.constant, source, dtype)
    if source is pred and (is_int(dtype) or is_float(dtype)):
        one, zero = literal(1, dtype), literal(0, dtype)
        kind = register_kind(dtype)
        register = current().define(f"selp.{kind}", kind, one.operand, zero.operand, value.operand)
        return Scalar(dtype, register, nonnegative=True)
    if is_int(source) and is_int(dtype):
        return _integer(value, dtype, saturate)
    if dtype is tf32 and source is f32:
        how = rounding or "rna"
        current().need("cvt to tf32", 80 if how == "rna" else 90, "7.0" if how == "rna" else "7.8")
        return compute(dtype, f"cvt.{how}.tf32.f32", value.operand)
    if source is tf32:
        return convert(bitcast(value, f32), dtype, rounding, saturate)
    if is_float(source) and is_float(dtype):
        return _float(value, dtype, rounding, saturate)
    if is_float(source) and is_int(dtype):
        if source is bf16:
            return convert(convert(value, f32), dtype, rounding, saturate)
        towards = {"": "rzi", "rn": "rni", "rz": "rzi", "rm": "rmi", "rp": "rpi"}.get(rounding)
        if towards is None:
            raise current().error(f"to an integer, rounding is rn, rz, rm or rp, not {rounding}")
        return compute(dtype, f"cvt.{towards}.{dtype.name}.{source.name}", value.operand)
    if is_int(source) and is_float(dtype):
        if dtype is bf16:
            return convert(convert(value, f32), bf16, rounding)
        return compute(dtype, f"cvt.{rounding or 'rn'}.{dtype.name}.{source.name}", value.operand)
    if is_number(value.constant):
        return literal(value.constant, dtype)
    raise current().error(
        f"{describe(value)} does not convert to {dtype_name(dtype)}; lw.bitcast(x, dtype) takes its bits"
    )


def _constant(value: Any, source: Format, dtype: Format) -> Scalar:
    """Return a constant of one dtype as a constant of another; integers wrap as registers do."""
    if is_int(dtype):
        if isinstance(value, float) and not isfinite(value):
            raise current().error(f"{value} is no {dtype_name(dtype)}: a constant must fit")
        number = int(value)
        if is_int(source):
            number = (number - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min)
        return literal(number, dtype)
    return literal(float(value) if is_float(dtype) else value, dtype)


def _integer(value: Scalar, dtype: Format, saturate: bool) -> Scalar:
    """Return an integer in another integer dtype; one of the same size is the same register."""
    source = value.dtype
    nonnegative = (
        value.nonnegative and dtype.bits >= source.bits if source.signed else dtype.bits > source.bits
    )
    keep: dict[str, Any] = {"multiple": value.multiple, "nonnegative": nonnegative}
    if dtype.min <= source.min and source.max <= dtype.max:
        saturate = False  # every number fits, and PTX has no form that saturates then
    if source.bits == dtype.bits and not saturate:  # the same register, read as another dtype
        return Scalar(dtype, value.in_register, **keep)
    return compute(
        dtype, f"cvt{'.sat' if saturate else ''}.{dtype.name}.{source.name}", value.operand, **keep
    )


def _float(value: Scalar, dtype: Format, rounding: str, saturate: bool) -> Scalar:
    """Return a float in another float dtype; to and from bf16 it goes through f32."""
    source, builder = value.dtype, current()
    sat = ".sat" if saturate else ""
    if source is bf16:  # its bits are the upper half of f32's: exact, and on every arch
        zero = builder.define("mov.b16", "b16", "0")
        wide = Scalar(f32, builder.define("mov.b32", "f32", (zero, value.operand)))
        return wide if dtype is f32 else _float(wide, dtype, rounding, saturate)
    if dtype is bf16:
        if source is not f32:
            raise builder.error(
                f"{source.name} to bf16 goes through f32: x.to(lw.f32).to(lw.bf16)"
                + (", rounding twice" if source is f64 else "")
            )
        builder.need("cvt to bf16", 80, "7.0")
        return compute(dtype, f"cvt.{rounding or 'rn'}.bf16.f32", value.operand)
    if dtype.bits > source.bits:
        return compute(dtype, f"cvt{sat}.{dtype.name}.{source.name}", value.operand)
    return compute(dtype, f"cvt.{rounding or 'rn'}{sat}.{dtype.name}.{source.name}", value.operand)


def _small_float(value: Scalar, dtype: Format, rounding: str, saturate: bool) -> Scalar:
    """Return a value to or from fp8, fp6 or fp4, by way of the types that PTX converts them to."""
    from lanewise.lang.trace import small_floats  # loaded where a kernel needs it

    source = value.dtype
    if dtype in SMALL_PAIRS or source in SMALL_PAIRS:
        return small_floats.convert_pair(value, dtype, rounding, saturate)
    if source in SMALL_FLOATS:
        return convert(small_floats.widened(value), dtype, rounding, saturate)
    if source is f64:
        raise current().error(f"f64 to {dtype.name} goes through f32: x.to(lw.f32).to(lw.{dtype.name})")
    return small_floats.narrowed(convert(value, f32), dtype, rounding, saturate)


def bitcast(value: object, dtype: Format) -> Scalar:
    """Return the same bits as another dtype of the same size. Inside a kernel: `lw.bitcast(x, lw.u32)`."""
    number = scalar(value, None, "lw.bitcast")
    if number.dtype.bits != dtype.bits or pred in (number.dtype, dtype):
        raise current().error(
            f"lw.bitcast keeps the bits: {describe(number)} is not of {dtype_name(dtype)}'s size"
        )
    kind, target = register_kind(number.dtype), register_kind(dtype)
    if kind == target:
        return Scalar(dtype, number.in_register)
    return Scalar(dtype, current().define(f"mov.b{dtype.bits}", target, number.in_register))


_PACKED = {f16: f16x2, bf16: bf16x2}


def pack(low: object, high: object, dtype: Format | None = None) -> Scalar:
    """Return two 16-bit values in one 32-bit register: f16x2, bf16x2, or u32 for integers.

    With `dtype` f16, bf16 or a small float, two f32 values are converted and packed by one instruction. Two
    small floats make a pair such as e4m3x2.
    """
    low, high = scalar(low, None, "lw.pack"), scalar(high, None, "lw.pack")
    if dtype in SMALL_FLOATS or low.dtype in SMALL_FLOATS:
        return _pack_small_floats(low, high, dtype)
    if dtype is not None and (low.dtype, high.dtype) == (f32, f32) and dtype in _PACKED:
        current().need("cvt of two", 80, "7.0")
        opcode = f"cvt.rn.{_PACKED[dtype].name}.f32"
        return Scalar(_PACKED[dtype], current().define(opcode, "b32", high.operand, low.operand))
    if dtype is not None and low.dtype != dtype:
        raise current().error(
            f"lw.pack(…, dtype) converts two f32 to f16, bf16 or a small float, not {describe(low)}"
        )
    if low.dtype != high.dtype or low.dtype.bits not in (16, 32, 8):
        raise current().error(
            f"lw.pack takes two values of one 16-bit type, not {describe(low)}, {describe(high)}"
        )
    if low.dtype.bits != 16:
        raise current().error(f"lw.pack takes two 16-bit values; convert {describe(low)} first, .to(lw.f16)")
    return Scalar(_PACKED.get(low.dtype, u32), pack_register([low, high], 16))


def _pack_small_floats(low: Scalar, high: Scalar, dtype: Format | None) -> Scalar:
    """Return a pair of small floats, made of two f32 by one instruction or of two that are small already."""
    from lanewise.lang.trace import small_floats  # loaded where a kernel needs it

    if dtype is not None and low.dtype == high.dtype == f32:
        return small_floats.pair_of_floats(low, high, dtype, "", False)
    if low.dtype == high.dtype and dtype in (None, low.dtype):
        return small_floats.joined(low, high)
    raise current().error(
        f"lw.pack makes a pair of small floats of two f32 and a dtype, or of two of one small float; not of "
        f"{describe(low)} and {describe(high)}"
    )


def unpack(value: object, dtype: Format | None = None) -> tuple[Scalar, Scalar]:
    """Return the two values of a register, low one first; `dtype` says what two 16-bit ones are."""
    pair = scalar(value, None, "lw.unpack")
    if pair.dtype in SMALL_PAIRS:
        from lanewise.lang.trace import small_floats  # loaded where a kernel needs it

        return small_floats.apart(pair)
    if pair.dtype.bits != 32 or pair.dtype is f32:
        raise current().error(f"lw.unpack takes a 32-bit register of two values, not {describe(pair)}")
    element = dtype or PAIRS.get(pair.dtype, u16)
    low, high = unpack_register(pair.in_register, element, 16)
    return low, high


def dtype_call(dtype: Format, value: object) -> Scalar:
    """Return what `lw.f32(x)` is: a number as a constant of the dtype, or a traced value converted to it."""
    current()
    if isinstance(value, Scalar):
        return convert(value, dtype)
    return scalar(value, dtype, f"lw.{dtype_name(dtype)}(…)")


OPERATORS["convert"] = convert
