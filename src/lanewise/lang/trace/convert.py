"""Conversions between dtypes: `x.to(dtype)`, `bitcast`, and packing two values into a register.

Importing this module gives `Scalar` its `.to`. Python numbers are turned into constants by `scalar.py`. PTX
converts fp8, fp6 and fp4 two at a time: one value is the low one of a pair, and two neighbours of a loaded
register share one instruction.
"""

from math import isfinite
from typing import Any

from lanewise.formats import Format, bf16, e2m1, e2m3, e3m2, e4m3, e5m2, f16, f32, f64, tf32, ue8m0
from lanewise.isa.archs import targets
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import compare, compute, select
from lanewise.lang.trace.scalar import (
    OPERATORS,
    PackedElement,
    Scalar,
    literal,
    pack_register,
    scalar,
    unpack_register,
)
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
#: Bits of an integer up to which f32 has each one.
_EXACT_IN_F32 = 16
#: Floats that `saturate` clamps to 0 … 1.
_CLAMPED = (f16, bf16, tf32, f32, f64)
_WITH_SMALL_FLOATS = frozenset((*SMALL_FLOATS, *SMALL_PAIRS))


def convert(value: Scalar, dtype: Format, rounding: str = "", saturate: bool = False) -> Scalar:
    """Return a value in another dtype. To a float it rounds to nearest even; to an integer, towards zero.

    With `saturate` floats are clamped to 0 … 1, as PTX's .sat does it, fp8 and smaller ones to their largest
    number, and integers to the other's range.
    """
    if not isinstance(dtype, Format):
        raise current().error(f".to() takes a dtype such as lw.f32, not {dtype!r}")
    if rounding and rounding not in _ROUNDINGS:
        raise current().error(f"rounding is one of {', '.join(_ROUNDINGS)}, not {rounding!r}")
    if rounding == "rna" and dtype is not tf32:
        raise current().error(f"rounding='rna' is for tf32; to {dtype_name(dtype)} it is rn, rz, rm or rp")
    source = value.dtype
    if source == dtype and not (saturate and dtype in _CLAMPED):
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
        if how in ("rm", "rp"):
            raise current().error(f"to tf32 PTX rounds to nearest, rna or rn, or towards zero, rz; not {how}")
        current().need("cvt to tf32", 80 if how == "rna" else 90, "7.0" if how == "rna" else "7.8")
        return compute(dtype, f"cvt.{how}.tf32.f32", convert(value, f32, saturate=saturate).operand)
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
        if saturate:
            raise current().error(
                "saturate=True clamps floats to 0 … 1 or to an integer's range: take lw.min and lw.max"
            )
        if dtype is bf16:
            return _integer_to_bf16(value, rounding)
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
        return Scalar(dtype, _extended(value.in_register, dtype), **keep)
    return compute(
        dtype, f"cvt{'.sat' if saturate else ''}.{dtype.name}.{source.name}", value.operand, **keep
    )


def _extended(register: Any, dtype: Format) -> Any:
    """Return the register of a value whose bits another dtype had: of 8 bits, the other 8 of the register are
    its sign if it has one, and zeros otherwise."""
    if dtype.bits != 8:
        return register
    if is_int(dtype) and dtype.signed:
        return current().define("cvt.s16.s8", "b16", register)
    return current().define("and.b16", "b16", register, "0xFF")


def _integer_to_bf16(value: Scalar, rounding: str) -> Scalar:
    """Return an integer as bf16, rounded once: by way of an f32 that is rounded to odd, as sm_80 converts no
    other type."""
    source = value.dtype
    if rounding in ("rz", "rm", "rp"):  # twice in one direction is once
        return convert(compute(f32, f"cvt.{rounding}.f32.{source.name}", value.operand), bf16, rounding)
    near = compute(f32, f"cvt.rz.f32.{source.name}", value.operand)
    if source.bits > _EXACT_IN_F32:
        again = compute(source, f"cvt.rzi.{source.name}.f32", near.operand)
        near = bitcast(select(compare("ne", again, value), bitcast(near, u32) | 1, bitcast(near, u32)), f32)
    return convert(near, bf16, rounding)


def _float(value: Scalar, dtype: Format, rounding: str, saturate: bool) -> Scalar:
    """Return a float in another float dtype; to and from bf16 it goes through f32."""
    source, builder = value.dtype, current()
    sat = ".sat" if saturate else ""
    if source is bf16:  # its bits are the upper half of f32's: exact, and on every arch
        zero = builder.define("mov.b16", "b16", "0")
        wide = Scalar(f32, builder.define("mov.b32", "f32", (zero, value.operand)))
        return convert(wide, dtype, rounding, saturate)
    if dtype is bf16:
        if source is f64:
            raise builder.error(
                "f64 does not convert to bf16 at once: x.to(lw.f32).to(lw.bf16), rounding twice"
            )
        wide = convert(value, f32, saturate=saturate)  # exact
        builder.need("cvt to bf16", 80, "7.0")
        return compute(dtype, f"cvt.{rounding or 'rn'}.bf16.f32", wide.operand)
    if dtype.bits >= source.bits:
        return compute(dtype, f"cvt{sat}.{dtype.name}.{source.name}", value.operand)
    return compute(dtype, f"cvt.{rounding or 'rn'}{sat}.{dtype.name}.{source.name}", value.operand)


def _small_float(value: Scalar, dtype: Format, rounding: str, saturate: bool) -> Scalar:
    """Return a value to or from fp8, fp6 or fp4, by way of the types that PTX converts them to."""
    source = value.dtype
    if dtype in SMALL_PAIRS or source in SMALL_PAIRS:
        return convert_pair(value, dtype, rounding, saturate)
    if source in SMALL_FLOATS:
        wide = widened(value)
        wide = convert(wide, f32) if dtype is bf16 and wide.dtype is f16 else wide
        return convert(wide, dtype, rounding, saturate)
    if source is f64:
        raise current().error(f"f64 to {dtype.name} goes through f32: x.to(lw.f32).to(lw.{dtype.name})")
    # of integers that f32 rounds only ue8m0 has as large ones, which it rounds in one direction
    towards = (rounding or "rz") if dtype is ue8m0 and is_int(source) else ""
    return narrowed(convert(value, f32, towards), dtype, rounding, saturate)


def bitcast(value: object, dtype: Format) -> Scalar:
    """Return the same bits as another dtype of the same size. Inside a kernel: `lw.bitcast(x, lw.u32)`."""
    number = scalar(value, None, "lw.bitcast")
    if number.dtype.bits != dtype.bits or pred in (number.dtype, dtype):
        raise current().error(
            f"lw.bitcast keeps the bits: {describe(number)} is not of {dtype_name(dtype)}'s size"
        )
    kind, target = register_kind(number.dtype), register_kind(dtype)
    if kind == target:
        return Scalar(dtype, _extended(number.in_register, dtype))
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
    if dtype is not None and low.dtype == high.dtype == f32:
        return pair_of_floats(low, high, dtype, "", False)
    if low.dtype == high.dtype and dtype in (None, low.dtype):
        return joined(low, high)
    raise current().error(
        f"lw.pack makes a pair of small floats of two f32 and a dtype, or of two of one small float; not of "
        f"{describe(low)} and {describe(high)}"
    )


def unpack(value: object, dtype: Format | None = None) -> tuple[Scalar, Scalar]:
    """Return the two values of a register, low one first; `dtype` says what two 16-bit ones are."""
    pair = scalar(value, None, "lw.unpack")
    if pair.dtype in SMALL_PAIRS:
        return apart(pair)
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


# fp8, fp6 and fp4 ---------------------------------------------------------------------------------------


#: The archs that convert a format, as the catalogue writes them, and the first PTX version that does.
_SINCE = {
    e4m3: ("sm_89+", "8.1"),
    e5m2: ("sm_89+", "8.1"),
    **dict.fromkeys((e2m3, e3m2, e2m1, ue8m0), ("sm_100a+", "8.6")),
}
_PAIR_OF = {element: pair for pair, element in SMALL_PAIRS.items()}


def widened_dtype(element: Format) -> Format:
    """Return the 16-bit float that PTX converts a small one to, exactly: f16, or bf16 for ue8m0."""
    return bf16 if element is ue8m0 else f16


def _require(element: Format) -> None:
    """Note what conversions of a format need; an error if the arch that is traced for has none."""
    builder, (notation, version) = current(), _SINCE[element]
    archs, what = targets(notation), f"cvt of {element.name}"
    if archs[0][-1] not in "af":
        builder.need(what, int(archs[0][3:]), version)
        return
    if builder.arch is None:
        builder.need_specific(what, archs[0], version)
    elif builder.arch not in archs:
        raise builder.error(
            f"{what} exists on {', '.join(archs)} only; the kernel is traced for {builder.arch}"
        )
    else:
        builder.need(what, 100, version)


def _rounding(element: Format, rounding: str, saturate: bool) -> str:
    """Return the modifiers of a conversion to a small float: how it rounds, and that it saturates."""
    if element is ue8m0:
        if rounding not in ("", "rz", "rp"):
            raise current().error(f"to ue8m0, a power of two, rounding is rz or rp, not {rounding}")
        return f"{rounding or 'rz'}{'.satfinite' if saturate else ''}"
    if rounding not in ("", "rn"):
        raise current().error(f"to {element.name} PTX rounds to nearest even, rn; not {rounding}")
    return "rn.satfinite"


def _define(opcode: str, dtype: Format, *sources: object) -> Any:
    """Return the register of a conversion; a pair of fp4 is in an 8-bit register, here widened to 16."""
    builder = current()
    if dtype.bits != 8:
        return builder.define(opcode, register_kind(dtype), *sources)
    return builder.define("cvt.u16.u8", "b16", builder.define(opcode, "b8", *sources))


def pair_of_floats(low: Scalar, high: Scalar, element: Format, rounding: str, saturate: bool) -> Scalar:
    """Return two f32 values converted to a small float by one instruction, as a pair."""
    _require(element)
    pair = _PAIR_OF[element]
    opcode = f"cvt.{_rounding(element, rounding, saturate)}.{pair.name}.f32"
    return Scalar(pair, _define(opcode, pair, high.operand, low.operand))


def narrowed(value: Scalar, element: Format, rounding: str, saturate: bool) -> Scalar:
    """Return an f32 value as a small float: the low one of a pair with zero."""
    pair = pair_of_floats(value, Scalar(f32, constant=0.0), element, rounding, saturate)
    if element is not ue8m0:
        return Scalar(element, pair.in_register)
    low = current().define("and.b16", "b16", pair.in_register, "0xFF")  # a scale of 0 is not the word 0
    return Scalar(element, low)


def widened(value: Scalar) -> Scalar:
    """Return a small float as f16, a scale as bf16.

    Neighbours in a loaded register are converted by one instruction, which is emitted once.
    """
    element = value.dtype
    target = widened_dtype(element)
    if (
        isinstance(value, PackedElement)
        and value.slot_bits == 8
        and element.bits > 4
        and not value.first_bit % 8
    ):
        half = value.first_bit // 16
        both = PackedElement(f16, value.packed, 16 * half, 16).operand
        wide = _widened_pair(_PAIR_OF[element], both)
        return PackedElement(target, wide, value.first_bit - 16 * half and 16, 16)
    return PackedElement(target, _widened_pair(_PAIR_OF[element], value.in_register), 0, 16)


def _widened_pair(pair: Format, register: object) -> Any:
    """Return the 32-bit register with a pair converted to f16x2, or to bf16x2."""
    element = SMALL_PAIRS[pair]
    _require(element)
    if pair.bits == 8:
        register = current().define("cvt.u8.u16", "b8", register)
    return current().define(f"cvt.rn.{widened_dtype(element).name}x2.{pair.name}", "b32", register)


def convert_pair(value: Scalar, dtype: Format, rounding: str, saturate: bool) -> Scalar:
    """Return a pair converted to a pair: small floats to f16x2 and back, scales to bf16x2 and back."""
    source = value.dtype
    if source in SMALL_PAIRS:
        wide = bf16x2 if SMALL_PAIRS[source] is ue8m0 else f16x2
        if dtype is wide:
            return Scalar(wide, _widened_pair(source, value.in_register))
        raise current().error(
            f"{describe(value)} converts to {wide.name}, not to {dtype_name(dtype)}: lw.unpack(x) takes it "
            "apart"
        )
    element = SMALL_PAIRS[dtype]
    wide = bf16x2 if element is ue8m0 else f16x2
    if source is not wide or element in (e2m3, e3m2):
        how = f"lw.pack(low, high, lw.{element.name}) converts two f32"
        raise current().error(f"{describe(value)} does not convert to {dtype.name}: {how}")
    _require(element)
    opcode = f"cvt.{_rounding(element, rounding, saturate)}.{dtype.name}.{wide.name}"
    return Scalar(dtype, _define(opcode, dtype, value.in_register))


def joined(low: Scalar, high: Scalar) -> Scalar:
    """Return two small floats side by side, as a pair."""
    builder, element = current(), low.dtype
    pair = _PAIR_OF[element]
    shifted = builder.define("shl.b16", "b16", high.in_register, str(pair.bits // 2))
    return Scalar(pair, builder.define("or.b16", "b16", shifted, low.in_register))


def apart(value: Scalar) -> tuple[Scalar, Scalar]:
    """Return the two small floats of a pair, the low one first."""
    builder, element = current(), SMALL_PAIRS[value.dtype]
    width = value.dtype.bits // 2
    register = value.in_register
    low = builder.define("and.b16", "b16", register, hex((1 << width) - 1))
    high = builder.define("shr.u16", "b16", register, str(width))
    return Scalar(element, low), Scalar(element, high)


OPERATORS["convert"] = convert
