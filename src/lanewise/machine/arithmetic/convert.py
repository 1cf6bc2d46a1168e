"""Lowering of cvt among all integer and floating-point formats, with rounding and saturation.

And of packed numbers: pairs and fours of small floats, scales (ue8m0), and cvt.pack.
"""

import re

from lanewise.jit.simd import Type, Value, f32, f64
from lanewise.machine.arithmetic.integer import I32, U32, U64, clamped
from lanewise.machine.arithmetic.rounding import operate, quiet, saturate
from lanewise.machine.arithmetic.small_floats import SCALE, SMALL, flush, is_nan, round_to, single_odd, widen
from lanewise.machine.codegen.lane_vectors import Lanes, intrinsic, type_of
from lanewise.machine.program.operands import elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import ROUNDINGS

#: Random bits that stochastic rounding has for each number. The operand's layout is inferred: the PTX ISA
#: shows it in figures that are not at hand, and no GPU that has these instructions was.
_RANDOM = {"f16": 13, "bf16": 16}


def packed(name: str) -> tuple[str, int]:
    """Return element type and count of a packed floating-point type; ("", 0) for any other type.

    >>> packed("e4m3x2"), packed("s16x2")
    (('e4m3', 2), ('', 0))
    """
    match = re.fullmatch(r"(f16|bf16|ue8m0|e\dm\d)x([24])", name)
    return (match[1], int(match[2])) if match else ("", 0)


def _width(element: str) -> int:
    return 8 if element == "ue8m0" else SMALL[element].container


def _joined(words: list[Value], element: str) -> Value:
    """Pack words into one register, the first word lowest."""
    width = _width(element)
    whole = Type("u", width * len(words))
    joined = words[0].to(whole)
    for index, word in enumerate(words[1:], 1):
        joined = joined | (word.to(whole) << (index * width))
    return joined


def _apart(lanes: Lanes, op: Op, element: str, count: int) -> list[Value]:
    """Unpack the words of the source register, the lowest first."""
    width = _width(element)
    whole = lanes.read(op.operands[1], Type("u", width * count))
    word = Type("u", max(width, 8))
    return [((whole >> (index * width)) & ((1 << width) - 1)).to(word) for index in range(count)]


def _packed_mode(op: Op) -> str:
    """Return the rounding mode that a cvt names, to nearest if it names none."""
    return next((modifier for modifier in op.modifiers if modifier in (*ROUNDINGS, "rs")), "rn")


def scale(value: Value, mode: str, saturate: bool) -> Value:
    """Convert f32 to ue8m0: the rounded exponent. The sign is ignored, and NaN becomes 255."""
    magnitude = value.view(U32) & 0x7FFFFFFF
    exponent, fraction = magnitude >> 23, magnitude & 0x7FFFFF
    if mode == "rp":
        # 2^-127, the smallest scale, is a subnormal number.
        inexact = fraction.differs(0) & (magnitude > 0x400000) & (magnitude < 0x7F800000)
        exponent = exponent + inexact.to(U32)
    if saturate:
        exponent = ((exponent > 254) & ~is_nan(value)).select(exponent ^ exponent | 254, exponent)
    return exponent.to(Type("u", 8))


def _from_scale(word: Value) -> Value:
    """Convert ue8m0 to the bf16 number that it stands for."""
    wide = word.to(Type("u", 16))
    finite = wide.equals(0).select(wide | 0x0040, wide << 7)
    return wide.equals(255).select(wide | 0x7FFF, finite)


def pack(lanes: Lanes, op: Op, target: str, source: str) -> None:
    """Lower cvt from f32 to a packed type; the first operand goes to the highest element."""
    element, count = packed(target)
    sources = [element for operand in op.operands[1:] for element in elements_of(operand)]
    stochastic = op.has("rs")
    if source != "f32" or len(sources) != count + stochastic:
        raise op.unsupported("of these operands")
    values = [lanes.read(source, f32) for source in sources[:count]][::-1]
    words = []
    bits = _RANDOM.get(element, 8)
    for index, value in enumerate(values):
        if element == "ue8m0":
            words.append(scale(value, _packed_mode(op), op.has("satfinite")))
            continue
        random = None
        if stochastic:
            share = 32 // count
            random = (lanes.read(sources[count], U32) >> (index * share)) & ((1 << bits) - 1), bits
        words.append(round_to(value, element, _packed_mode(op), op.has("satfinite"), op.has("relu"), random))
    lanes.write(op.operands[0], _joined(words, element))


def repack(lanes: Lanes, op: Op, target: str, source: str) -> None:
    """Lower cvt from one packed type of small floats to another."""
    (goal, count), (element, same) = packed(target), packed(source)
    if count != same or len(op.operands) != 2:
        raise op.unsupported("of these operands")
    words = []
    for word in _apart(lanes, op, element, count):
        if element == "ue8m0":
            words.append(_from_scale(word))
        elif goal == "ue8m0":
            words.append(scale(widen(word, element), _packed_mode(op), op.has("satfinite")))
        else:
            words.append(round_to(widen(word, element), goal, "rn", op.has("satfinite"), op.has("relu")))
    lanes.write(op.operands[0], _joined(words, goal))


def pack_integers(lanes: Lanes, op: Op) -> None:
    """Lower cvt.pack: two clamped integers side by side, and above them the integers packed before."""
    kind, source = op.types[:2]
    if source != "s32" or not op.has("sat"):
        raise op.unsupported("of these types")
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    a, b = (
        clamped(lanes.read(operand, I32), low, high).view(U32) & ((1 << bits) - 1)
        for operand in op.operands[1:3]
    )
    packed = (a << bits) | b
    if len(op.operands) > 3:
        packed = packed | (lanes.read(op.operands[3], U32) << (2 * bits))
    lanes.write(op.operands[0], packed)


_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FLOATS = ("f16", "bf16", "f32", "f64", "tf32")


def _mode(op: Op) -> str:
    """Return the rounding mode that a cvt names, to nearest if it names none."""
    return next((modifier for modifier in op.modifiers if modifier in (*ROUNDINGS, "rna")), "rn")


def single_nan(value: Value) -> Value:
    """Return the f32 bits of an f64 NaN: quiet, with its sign and payload (measured on an H200)."""
    bits = value.view(U64)
    return ((bits >> 63).to(U32) << 31) | 0x7FC00000 | ((bits >> 29).to(U32) & 0x3FFFFF)


def to_single(value: Value, mode: str) -> Value:
    """Convert f64 to f32 in a rounding mode."""
    near = value.to(f32)
    if mode == "rn":
        return is_nan(value).select(single_nan(value), near.view(U32)).view(f32)
    bits, back = near.view(U32), near.to(f64)
    clear = (1 << 63) - 1
    negative = bits > 0x7FFFFFFF
    if mode == "rz":
        above = (back.view(U64) & clear) > (value.view(U64) & clear)
        moved = bits - (above & ~is_nan(value)).to(U32)
    else:
        wrong = (back < value) if mode == "rp" else (back > value)
        outwards = negative if mode == "rm" else ~negative
        step = outwards.select(bits + 1, bits - 1)
        moved = wrong.select(step, bits)
    return is_nan(value).select(single_nan(value), moved).view(f32)


def _integer_to_double(lanes: Lanes, value: Value, mode: str) -> Value:
    """Convert an integer to f64. 64-bit integers become two exact halves, added in the rounding mode."""
    if value.type.bits <= 32:
        return value.to(f64)
    if mode == "rn":
        return value.to(f64)
    high = (value >> 32).to(f64) * 2.0**32
    low = (value.view(U64) & 0xFFFFFFFF).to(f64)
    return operate(lanes, "add", [high, low], mode)


def _integer_odd(value: Value) -> Value:
    """Convert an integer to f64, rounded to odd, so that a second rounding gives the right result."""
    if value.type.bits <= 32:
        return value.to(f64)
    negative = value < 0 if value.type.kind == "i" else value.differs(value)
    magnitude = negative.select(0 - value, value).view(U64)
    sticky = (magnitude & 0x7FF).differs(0).to(U64) << 11
    # Up to 53 bits it is exact as it is.
    cut = ((magnitude >> 11) << 11) | sticky
    rounded = (magnitude < 1 << 53).select(magnitude, cut).to(f64)
    return negative.select(0.0 - rounded, rounded)


def _to_integer(lanes: Lanes, op: Op, value: Value, target: Type) -> Value:
    """Convert a float to an integer, rounded and clamped to the target's range."""
    rounding = next((modifier for modifier in op.modifiers if modifier in _TO_INTEGER), "rzi")
    whole = intrinsic(_TO_INTEGER[rounding], value)
    name = "fptosi.sat" if target.kind == "i" else "fptoui.sat"
    wide = Type(target.kind, max(target.bits, 32)).by(lanes.count)
    function = lanes.code.external(f"llvm.{name}.{wide.name}.{value.type.name}", wide.ir, [value.type.ir])
    integer = Value(lanes.code, wide, lanes.code.builder.call(function, [whole.handle]))
    if target.bits < 32:
        integer = _clamped(integer, target)
    if value.type.bits == 64 or target.bits == 64:
        # Seen on an H200: NaN becomes 0, as the PTX ISA says, only from f32 and f16 to 32 bits and fewer.
        integer = is_nan(value).select(lanes.constant(wide.by(1), 1 << target.bits - 1), integer)
    return integer


def _clamped(value: Value, target: Type) -> Value:
    """Clamp an integer to the range of a type that is narrower or of other signedness."""
    signed_target = target.kind == "i"
    high = (1 << target.bits - 1) - 1 if signed_target else (1 << target.bits) - 1
    low = -(1 << target.bits - 1) if signed_target else 0
    code, bits = value.code, value.type.bits
    if value.type.kind == "i":
        if high < 1 << bits - 1:
            value = intrinsic("smin", value, code.constant(value.type, high))
        if low >= -(1 << bits - 1):
            value = intrinsic("smax", value, code.constant(value.type, low))
    elif high < 1 << bits:
        value = intrinsic("umin", value, code.constant(value.type, high))
    return value


def convert(lanes: Lanes, op: Op) -> None:
    """Lower cvt in every form that the machine supports."""
    types = op.types
    if len(types) < 2:
        raise op.unsupported("it names no two types")
    target, source = types[0], types[1]
    if op.has("pack"):
        pack_integers(lanes, op)
    elif packed(target)[1] and packed(source)[1]:
        repack(lanes, op, target, source)
    elif packed(target)[1]:
        pack(lanes, op, target, source)
    elif target in (*_FLOATS,) or source in _FLOATS:
        _with_floats(lanes, op, target, source)
    elif any(letter not in ("s", "u", "b") for letter in (target[0], source[0])):
        raise op.unsupported("of these types")
    else:
        value = lanes.read(op.operands[1], type_of(source))
        goal = type_of(target)
        if op.has("sat"):
            value = _clamped(value, goal)
        lanes.write(op.operands[0], value.to(Type(value.type.kind, goal.bits)).to(goal))


def _with_floats(lanes: Lanes, op: Op, target: str, source: str) -> None:
    """Lower a cvt whose source or target is a floating-point format."""
    mode = _mode(op)
    value: Value
    if source in ("f16", "bf16"):
        word = lanes.read(op.operands[1], Type("u", 16))
        value = widen(word, source)
        if source == "f16" and target == "f32":
            value = quiet(value)
    elif source in ("f32", "f64"):
        value = lanes.read(op.operands[1], f32 if source == "f32" else f64)
        if op.has("ftz") and source == "f32" and target != "f16":  # not of f16 (seen on an H200)
            value = flush(value)
    elif source in _FLOATS:
        raise op.unsupported("of these types")
    else:
        integer = lanes.read(op.operands[1], type_of(source))
        if target == "f64":
            value = _integer_to_double(lanes, integer, mode)
        elif target == "f32" and mode == "rn":
            value = integer.to(f32)
        elif target == "f32":
            value = to_single(_integer_odd(integer), mode)
        else:
            value = single_odd(_integer_odd(integer))
    if target not in _FLOATS:
        goal = type_of(target)
        lanes.write(op.operands[0], _to_integer(lanes, op, value, goal).to(goal))
        return
    whole = next((modifier for modifier in op.modifiers if modifier in _TO_INTEGER), "")
    if whole:
        value = quiet(intrinsic(_TO_INTEGER[whole], value), value)
    if op.has("ftz") and value.type.bits == 32:
        value = quiet(value)
    if target == "f64":
        value = value.to(f64)
        lanes.write(op.operands[0], saturate(value) if op.has("sat") else value)
    elif target == "f32":
        single = to_single(value, mode) if value.type.bits == 64 else value
        if source == "f32" and whole == "" and not op.has("ftz"):
            single = value
        if op.has("ftz"):
            single = flush(single, to_single(value * SCALE, mode) if value.type.bits == 64 else None)
        lanes.write(op.operands[0], saturate(quiet(single)) if op.has("sat") else single)
    else:
        single = single_odd(value) if value.type.bits == 64 else value
        if op.has("sat"):
            single = saturate(single)
        if target == "tf32" and not any(op.has(name) for name in ("rn", "rz", "rna")):
            raise op.unsupported("it names no rounding")
        word = round_to(single, target, mode, op.has("satfinite"), op.has("relu"))
        if source == "f64" and not op.has("relu") and not op.has("sat"):
            nan = single_nan(value)
            kept = nan >> 16 if target == "bf16" else ((nan >> 16) & 0x8000) | 0x7C00 | ((nan >> 13) & 0x3FF)
            word = is_nan(value).select(kept.to(word.type), word)
        if target == "tf32" and mode == "rna":
            kept = single.view(U32) & 0xFFFFE000
            # ptxas makes NaN smaller as it does infinity.
            word = is_nan(single).select(kept - 0x2000 if op.has("satfinite") else kept, word)
        lanes.write(op.operands[0], word)
