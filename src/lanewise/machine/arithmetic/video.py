"""Lowerings of the video instructions: operations on bytes, halves and words with a second operation after.

`%r1.b2` and `%r1.h0` select a byte or half of a register; `vadd2` and the like work on both halves, `vadd4`
on four bytes. ptxas expands each into several SASS instructions, which do not always compute what the PTX ISA
says: the machine computes what they do (ptxas 13.0 for sm_90, results of an H200).
"""

from collections.abc import Callable

from lanewise.jit.simd import Type, Value
from lanewise.machine.arithmetic.integer import U32, clamped
from lanewise.machine.codegen.lane_vectors import Lanes
from lanewise.machine.program.operands import Negated, RegisterPart, ResolvedOperand
from lanewise.machine.program.ops import Op

#: The type of results of two 32-bit numbers, signed or not.
WIDE = Type("i", 64)
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


def _field(word: Value, index: int, bits: int, signed: bool) -> Value:
    """Extract a byte, half or word, sign- or zero-extended to 64 bits."""
    up = 32 - bits * (index + 1)
    moved = (word << up).view(Type("i" if signed else "u", 32))
    return (moved >> (32 - bits)).to(WIDE)


def _read(lanes: Lanes, operand: ResolvedOperand, signed: bool) -> Value:
    """Read a source operand: a selected byte or half of a register, or a whole one."""
    if isinstance(operand, RegisterPart):
        bits = 8 if operand.selector[0] == "b" else 16
        return _field(lanes.read(operand.register, U32), int(operand.selector[1:]), bits, signed)
    return _field(lanes.read(operand, U32), 0, 32, signed)


def _limits(bits: int, signed: bool) -> tuple[int, int]:
    """Return the smallest and the largest number of a type."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _bits_of_destination(operand: ResolvedOperand) -> tuple[int, int]:
    """Return the first bit of the destination, and how many bits it has."""
    if not isinstance(operand, RegisterPart):
        return 0, 32
    bits = 8 if operand.selector[0] == "b" else 16
    return bits * int(operand.selector[1:]), bits


def _saturated(op: Op, value: Value, signed: bool) -> Value:
    """Return the result of a sum, difference or selection after .sat."""
    _, bits = _bits_of_destination(op.operands[0])
    if bits < 32:
        # Into a byte or half: everything outside of u32, negative numbers too, becomes the largest number.
        largest = value.code.constant(value.type, _limits(bits, signed)[1])
        return ((value < 0) | (value > 0xFFFFFFFF)).select(largest, clamped(value, *_limits(bits, signed)))
    # A result too large for u32 is truncated, not clamped.
    return clamped(value, *_limits(32, True)) if signed else value.max(0)


def _shift_saturated(value: Value, signed: bool) -> Value:
    """Return the result of a shift after .sat: 34 bits of it, clamped to 32 bits."""
    return clamped((value << 30) >> 30, *_limits(32, signed)).to(Type("i", 32)).to(WIDE)


def _finish(lanes: Lanes, op: Op, value: Value, signed: bool) -> None:
    """Write the result after the second operation, or merge it into the selected bits of the destination."""
    destination = op.operands[0]
    word = value.to(U32)
    if isinstance(destination, RegisterPart):
        first_bit, bits = _bits_of_destination(destination)
        mask = ((1 << bits) - 1) << first_bit
        third = lanes.read(op.operands[3], U32)
        # .h1 gets the upper half of the result; all other parts the lowest bits.
        moved = word if destination.selector == "h1" else word << first_bit
        lanes.write(destination.register, (third & ~mask & 0xFFFFFFFF) | (moved & mask))
        return
    if len(op.operands) > 3:
        third = lanes.read(op.operands[3], U32)
        if op.has("add"):
            word = word + third
        elif op.has("min") or op.has("max"):
            # 64 bits are compared, with signs if the result has one.
            kind = Type("i" if signed else "u", 64)
            first, last = value.view(kind), third.view(Type(kind.kind, 32)).to(kind)
            word = ((first < last) if op.has("min") else (first > last)).select(word, third)
        else:
            raise op.unsupported("a third operand without .add, .min or .max")
    lanes.write(destination, word)


def _signs(op: Op) -> list[bool]:
    return [kind == "s32" for kind in op.types]


def simple(lanes: Lanes, op: Op) -> None:
    """Lower vadd, vsub, vabsdiff, vmin, vmax: one operation on two extended numbers."""
    result, first, second = _signs(op)
    a, b = _read(lanes, op.operands[1], first), _read(lanes, op.operands[2], second)
    value = OPERATIONS[op.opcode](a, b)
    value = _saturated(op, value, result) if op.has("sat") else value
    if op.opcode in ("vadd", "vsub"):
        value = value.to(Type("i", 32)).to(WIDE)  # a second operation sees 32 bits of them
    _finish(lanes, op, value, result)


def shift(lanes: Lanes, op: Op) -> None:
    """Lower vshl and vshr; the count clamps at 32 or wraps."""
    result, first, _ = _signs(op)
    a, count = _read(lanes, op.operands[1], first), _read(lanes, op.operands[2], False)
    count = count & 31 if op.has("wrap") else (count > 32).select(lanes.constant(WIDE, 32), count)
    shifted = a << count if op.opcode == "vshl" else a >> count
    _finish(lanes, op, _shift_saturated(shifted, result) if op.has("sat") else shifted, result)


def compare(lanes: Lanes, op: Op) -> None:
    """Lower vset: 1 where the comparison holds, else 0."""
    first, second = _signs(op)
    a, b = _read(lanes, op.operands[1], first), _read(lanes, op.operands[2], second)
    _finish(lanes, op, _compared(op, a, b), first)


def _compared(op: Op, a: Value, b: Value) -> Value:
    """Return whether a comparison holds, as 1 or 0."""
    return _COMPARE[op.one_of(_COMPARE, "it names no comparison")](a, b).to(Type("u", 64)).to(WIDE)


def multiply_add(lanes: Lanes, op: Op) -> None:
    """Lower vmad: a·b + c of selected bytes or halves, then shifted and clamped.

    A minus sign may stand on a product or on c; .po adds one more. Words count as signed whatever their type;
    the types and minus signs decide whether the sum does.
    """
    _, first, second = _signs(op)
    negated = [isinstance(operand, Negated) for operand in op.operands[1:4]]
    plain = [operand.operand if isinstance(operand, Negated) else operand for operand in op.operands[1:4]]
    minus = negated[0] != negated[1]
    signed = first or second or minus or negated[2]
    a, b = (
        _read(lanes, value, sign).to(Type("i", 32)).to(WIDE)
        for value, sign in zip(plain[:2], (first, second), strict=True)
    )
    third = lanes.read(plain[2], Type("i", 32)).to(WIDE)
    total = a * b
    if not op.has("po"):
        total = ~total if minus else total
        third = ~third if negated[2] else third
    total = total + third + int(op.has("po") or minus or negated[2])
    total = total.view(Type("i" if signed else "u", 64))
    total = total >> (7 if op.has("shr7") else 15 if op.has("shr15") else 0)
    if op.has("sat"):
        total = clamped(total.view(WIDE), *_limits(32, signed))
    lanes.write(op.operands[0], total.to(U32))


def parallel(lanes: Lanes, op: Op) -> None:
    """Lower vadd2, vadd4 and the like: operations on halves or bytes, then summed or merged with c."""
    name, count = op.opcode[:-1], int(op.opcode[-1])
    bits = 32 // count
    signs = _signs(op)
    result = signs[0] if name != "vset" else False
    first, second = signs[-2:]
    registers = [
        operand.register if isinstance(operand, RegisterPart) else operand for operand in op.operands[:3]
    ]
    sources = [lanes.read(register, U32) for register in registers[1:]]
    third = lanes.read(op.operands[3], U32)

    def chosen(operand: ResolvedOperand, start: int) -> list[int]:
        """Return which of the halves or bytes of (a, b) are selected, the lowest first."""
        digits = operand.selector[1:] if isinstance(operand, RegisterPart) else ""
        indices = [int(digit) for digit in digits[::-1]] or list(range(start, start + count))
        if len(indices) != count or max(indices) >= 2 * count:
            raise op.unsupported(f"it picks .{operand.selector if isinstance(operand, RegisterPart) else ''}")
        return indices

    picks = chosen(op.operands[1], 0), chosen(op.operands[2], count)
    destination = op.operands[0]
    mask = (
        [int(digit) for digit in destination.selector[1:]]
        if isinstance(destination, RegisterPart)
        else range(count)
    )
    total, merged = third, lanes.constant(U32, 0)
    for index in range(count):
        a, b = (
            _field(sources[pick[index] // count], pick[index] % count, bits, signed)
            for pick, signed in zip(picks, (first, second), strict=True)
        )
        value = _compared(op, a, b) if name == "vset" else OPERATIONS[name](a, b)
        if op.has("sat"):
            value = clamped(value, *_limits(bits, result))
        word = value.to(U32)
        field = ((1 << bits) - 1) << (bits * index)
        if index in mask:
            total = total + word
            merged = merged | ((word << (bits * index)) & field)
        else:
            merged = merged | (third & field)
    lanes.write(registers[0], total if op.has("add") else merged)
