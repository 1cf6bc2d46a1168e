"""fp8, fp6 and fp4: what PTX's cvt converts, two at a time, and on which archs.

One value is converted as the low one of a pair; two neighbours of a loaded register share one instruction.
Conversions that go by way of f32 or f16 are put together in `convert.py`.
"""

from typing import Any

from lanewise.formats import Format, bf16, e2m1, e2m3, e3m2, e4m3, e5m2, f16, f32, ue8m0
from lanewise.isa.archs import targets
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.packed_register import PackedElement
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import SMALL_PAIRS, bf16x2, dtype_name, f16x2, register_kind

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
