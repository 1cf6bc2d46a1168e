"""Video instructions: sums, differences and choices of bytes, halves and words with one more operation after.

`%r1.b2` and `%r1.h0` are parts of registers; `vadd2` and its kin work on both halves, `vadd4` on four bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from lanewise.arith.simd import Type, Value
from lanewise.machine.integer import U32, clamped
from lanewise.machine.lanes import Lanes, lowers, types
from lanewise.machine.resolve import Inverted, Op, Part, Resolved

#: Wide enough for whatever two 32-bit numbers of any sign give.
WIDE, WIDEST = Type("i", 64), Type("i", 128)
_COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: a.equals(b),
    "ne": lambda a, b: a.differs(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: ~(a > b),
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _absolute(value: Value) -> Value:
    return (value < 0).select(0 - value, value)


def _average(a: Value, b: Value) -> Value:
    total = a + b
    return (total >= 0).select(total + 1, total) >> 1


OPERATIONS: dict[str, Callable[[Value, Value], Value]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: _absolute(a - b),
    "vmin": lambda a, b: (a < b).select(a, b),
    "vmax": lambda a, b: (a > b).select(a, b),
    "vavrg": _average,
}


def _field(word: Value, place: int, bits: int, signed: bool) -> Value:
    """Some bits of a word, extended."""
    up = 32 - bits * (place + 1)
    moved = (word << up).view(Type("i" if signed else "u", 32))
    return (moved >> (32 - bits)).to(WIDE)


def _read(lanes: Lanes, operand: Resolved, signed: bool) -> Value:
    """A source: a part of a register, or a whole one."""
    if isinstance(operand, Part):
        bits = 8 if operand.part[0] == "b" else 16
        return _field(lanes.read(operand.register, U32), int(operand.part[1:]), bits, signed)
    return _field(lanes.read(operand, U32), 0, 32, signed)


def _limits(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _finish(lanes: Lanes, op: Op, found: Value, signed: bool) -> None:
    """Saturate; then the second operation, or the merge into a part."""
    destination = op.operands[0]
    part = destination.part if isinstance(destination, Part) else ""
    bits = 32 if not part else 8 if part[0] == "b" else 16
    if op.has("sat"):
        found = clamped(found, *_limits(bits, signed))
    word = found.to(U32)
    if isinstance(destination, Part):
        third = lanes.read(op.operands[3], U32)
        place, mask = int(part[1:]) * bits, (1 << bits) - 1
        merged = (third & ~(mask << place) & 0xFFFFFFFF) | ((word & mask) << place)
        lanes.write(destination.register, merged)
        return
    if len(op.operands) > 3:
        kind = Type("i" if signed else "u", 32)
        first, third = word.view(kind), lanes.read(op.operands[3], kind)
        second = next((each for each in ("add", "min", "max") if op.has(each)), "")
        if not second:
            raise op.unsupported("a third operand without .add, .min or .max")
        word = {
            "add": first + third,
            "min": (first < third).select(first, third),
            "max": (first > third).select(first, third),
        }[second]
    lanes.write(destination, word)


def _signs(op: Op) -> list[bool]:
    return [each == "s32" for each in types(op)]


@lowers("vadd", "vsub", "vabsdiff", "vmin", "vmax")
def simple(lanes: Lanes, op: Op) -> None:
    """Two numbers, sign- or zero-extended."""
    result, first, second = _signs(op)
    a, b = _read(lanes, op.operands[1], first), _read(lanes, op.operands[2], second)
    _finish(lanes, op, OPERATIONS[op.opcode](a, b), result)


@lowers("vshl", "vshr")
def shift(lanes: Lanes, op: Op) -> None:
    """Shifts; the count clamps at 32 or wraps."""
    result, first, _ = _signs(op)
    a, count = _read(lanes, op.operands[1], first), _read(lanes, op.operands[2], False)
    count = count & 31 if op.has("wrap") else (count > 32).select(lanes.constant(WIDE, 32), count)
    _finish(lanes, op, a << count if op.opcode == "vshl" else a >> count, result)


@lowers("vset")
def compare(lanes: Lanes, op: Op) -> None:
    """1 where the comparison holds."""
    first, second = _signs(op)
    a, b = _read(lanes, op.operands[1], first), _read(lanes, op.operands[2], second)
    _finish(lanes, op, _COMPARE[_comparison(op)](a, b).to(Type("u", 64)).to(WIDE), False)


def _comparison(op: Op) -> str:
    found = next((each for each in op.modifiers if each in _COMPARE), "")
    if not found:
        raise op.unsupported("it names no comparison")
    return found


@lowers("vmad")
def multiply_add(lanes: Lanes, op: Op) -> None:
    """a·b + c of parts, one more for .po; a minus sign on a product or on c; shifted; clamped."""
    _, first, second = _signs(op)
    negated = [isinstance(each, Inverted) for each in op.operands[1:4]]
    plain = [each.operand if isinstance(each, Inverted) else each for each in op.operands[1:4]]
    minus = negated[0] != negated[1]
    signed = first or second or minus or negated[2]
    a, b = _read(lanes, plain[0], first).to(WIDEST), _read(lanes, plain[1], second).to(WIDEST)
    third = lanes.read(plain[2], U32)
    total = a * b
    if not op.has("po"):
        total = ~total if minus else total
        third = ~third if negated[2] else third
    total = total + third.view(Type("i" if signed else "u", 32)).to(WIDEST)
    total = total + int(op.has("po") or minus or negated[2])
    total = total >> (7 if op.has("shr7") else 15 if op.has("shr15") else 0)
    if op.has("sat"):
        total = clamped(total, *_limits(32, signed))
    lanes.write(op.operands[0], total.to(U32))


@lowers(*(f"{name}{count}" for name in (*OPERATIONS, "vset") for count in (2, 4)))
def parallel(lanes: Lanes, op: Op) -> None:
    """The same on two halves or four bytes, chosen among those of a and b; summed, or merged with c."""
    name, count = op.opcode[:-1], int(op.opcode[-1])
    bits = 32 // count
    signs = _signs(op)
    result = signs[0] if name != "vset" else False
    first, second = signs[-2:]
    registers = [each.register if isinstance(each, Part) else each for each in op.operands[:3]]
    sources = [lanes.read(each, U32) for each in registers[1:]]
    third = lanes.read(op.operands[3], U32)

    def chosen(operand: Resolved, start: int) -> list[int]:
        """Which parts of (a, b), the lowest first."""
        given = operand.part[1:] if isinstance(operand, Part) else ""
        found = [int(digit) for digit in given[::-1]] or list(range(start, start + count))
        if len(found) != count or max(found) >= 2 * count:
            raise op.unsupported(f"it picks .{operand.part if isinstance(operand, Part) else ''}")
        return found

    picks = chosen(op.operands[1], 0), chosen(op.operands[2], count)
    destination = op.operands[0]
    mask = [int(digit) for digit in destination.part[1:]] if isinstance(destination, Part) else range(count)
    total, merged = third, lanes.constant(U32, 0)
    for place in range(count):
        a, b = (
            _field(sources[pick[place] // count], pick[place] % count, bits, signed)
            for pick, signed in zip(picks, (first, second), strict=True)
        )
        if name == "vset":
            value = _COMPARE[_comparison(op)](a, b).to(Type("u", 64)).to(WIDE)
        else:
            value = OPERATIONS[name](a, b)
        if op.has("sat"):
            value = clamped(value, *_limits(bits, result))
        word = value.to(U32)
        field = ((1 << bits) - 1) << (bits * place)
        if place in mask:
            total = total + word
            merged = merged | ((word << (bits * place)) & field)
        else:
            merged = merged | (third & field)
    lanes.write(registers[0], total if op.has("add") else merged)
