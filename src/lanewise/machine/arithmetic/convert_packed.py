"""Lowerings of cvt for packed numbers: pairs and fours of small floats, scales (ue8m0), and cvt.pack."""

import re

from lanewise.jit.simd import Type, Value, f32
from lanewise.machine.arithmetic.integer import I32, U32, clamped
from lanewise.machine.arithmetic.small_floats import SMALL, is_nan, round_to, widen
from lanewise.machine.codegen.lane_vectors import Lanes
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


def _mode(op: Op) -> str:
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
            words.append(scale(value, _mode(op), op.has("satfinite")))
            continue
        random = None
        if stochastic:
            share = 32 // count
            random = (lanes.read(sources[count], U32) >> (index * share)) & ((1 << bits) - 1), bits
        words.append(round_to(value, element, _mode(op), op.has("satfinite"), op.has("relu"), random))
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
            words.append(scale(widen(word, element), _mode(op), op.has("satfinite")))
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
