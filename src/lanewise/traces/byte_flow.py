"""Byte flow: the bytes of an instruction's operands that some bytes of its result come from.

It is about instructions that each lane executes alone. Which bits they move is known to
`lanewise.machine.analysis.demanded_bits`; where nothing is known, a byte comes from all operands as a whole.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import NamedTuple

from lanewise.machine.analysis.demanded_bits import demands_of
from lanewise.machine.program.instruction_record import BitFlow, Level, Role
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.ptx import Immediate

#: Types of two numbers in one register, and the bytes of each number.
_PAIRS = {"f16x2": 2, "bf16x2": 2, "u16x2": 2, "s16x2": 2, "f32x2": 4}
#: The numbers of the operands that say how far or which bits are moved.
_CONTROLS = {
    BitFlow.SHIFT_LEFT: (2,),
    BitFlow.SHIFT_RIGHT: (2,),
    BitFlow.FUNNEL: (3,),
    BitFlow.EXTRACT: (2, 3),
    BitFlow.INSERT: (3, 4),
    BitFlow.PERMUTE: (3,),
}


class Part(NamedTuple):
    """An operand, and the bytes of it that are taken; without a size, it is taken as a whole."""

    operand: ResolvedOperand
    first: int = 0
    size: int | None = None


def used_operands(op: Op) -> list[ResolvedOperand]:
    """Return the operands whose values an instruction takes."""
    roles = (Role.USED, Role.MEMBERS, Role.BARRIER)
    return [operand for number, operand in enumerate(op.operands) if op.record.role(number) in roles]


def control_registers(op: Op) -> dict[int, Register]:
    """Return the registers that say how far or which bits are moved, by the number of the operand."""
    return {
        number: operand
        for number in _CONTROLS.get(op.record.bit_flow, ())
        if isinstance(operand := op.operands[number], Register)
    }


def parts_of(op: Op, result: Part, controls: Mapping[int, int]) -> list[Part]:
    """Return the parts of an instruction's operands that a part of its result comes from.

    The operand of `result` is a register that the instruction writes; `controls` has the values of the
    control registers.
    """
    targets = elements_of(op.operands[0]) if op.operands else ()
    number = targets.index(result.operand) if result.operand in targets else 0
    if result.size is None:
        return _whole(op)
    if op.types and all(name in _PAIRS for name in op.types):
        return _of_pairs(op, number, result)
    if op.opcode == "cvt" and (packed := _packed(op, result)):
        return packed
    if op.record.bit_flow is BitFlow.ALL or (number and op.record.bit_flow is not BitFlow.MOVE):
        return _whole(op)
    known = copy(op)
    known.operands = tuple(
        Immediate("u32", controls[at], "") if at in controls else operand
        for at, operand in enumerate(op.operands)
    )
    first = result.first + number * _bytes(result.operand)
    demands = demands_of(known, (1 << 8 * result.size) - 1 << 8 * first)
    moved = [part for operand, mask in demands for part in _masked(operand, mask)]
    return [*moved, *(Part(op.operands[at]) for at in _CONTROLS.get(op.record.bit_flow, ()))]


def whole_number(op: Op, first: int, size: int, register_size: int) -> tuple[int, int]:
    """Return the first byte and the size of the numbers that bytes of a result belong to.

    Instructions that move bits leave each byte alone; others compute a number, or one for each half.
    """
    if op.record.level is not Level.LANE or op.record.bit_flow is not BitFlow.ALL or not size:
        return first, size
    unit = min(_PAIRS.get(op.types[0], register_size) if op.types else register_size, register_size)
    start = first // unit * unit
    return start, -(-(first + size) // unit) * unit - start


def _bytes(operand: ResolvedOperand) -> int:
    """Return the bytes of a register; 0 for other operands."""
    return operand.bits // 8 if isinstance(operand, Register) else 0


def _whole(op: Op) -> list[Part]:
    return [Part(element) for operand in used_operands(op) for element in elements_of(operand)]


def _masked(operand: ResolvedOperand, mask: int) -> Iterator[Part]:
    """Yield the bytes of an operand that have a bit of a mask, those side by side as one part."""
    if not mask:
        return
    if not isinstance(operand, Register) or operand.is_predicate:
        yield from (Part(element) for element in elements_of(operand))
        return
    first = None
    for byte in range(_bytes(operand) + 1):
        is_taken = byte < _bytes(operand) and bool(mask >> 8 * byte & 255)
        if is_taken and first is None:
            first = byte
        elif not is_taken and first is not None:
            yield Part(operand, first, byte - first)
            first = None


def _of_pairs(op: Op, number: int, result: Part) -> list[Part]:
    """Return the same number of each pair: what is done to one has nothing to do with the other."""
    size = _PAIRS[op.types[0]]
    assert result.size is not None
    if isinstance(result.operand, Register) and result.operand.is_predicate:  # setp has one for each number
        first = number * size
    else:
        first, size = whole_number(op, result.first, result.size, _bytes(result.operand))
    return [
        part if isinstance(part.operand, Register) and part.operand.is_predicate
        else Part(part.operand, first, size)
        for part in _whole(op)
    ]  # fmt: skip


def _packed(op: Op, result: Part) -> list[Part]:
    """Return the sources of numbers that cvt packs; none if it packs none, or less than a byte each."""
    target, count = op.types[0], int(op.types[0][-1]) if op.types[0][-2:] in ("x2", "x4") else 0
    sources = [part.operand for part in _whole(op)]
    if op.has("pack"):
        bits, lowest_first = TYPE_BITS[target], [sources[1], sources[0]]
    elif count and len(sources) >= count:
        bits, lowest_first = TYPE_BITS[target] // count, sources[count - 1 :: -1]
    else:
        return _repacked(op, result)
    if bits % 8 or result.size is None:
        return []
    width, end = bits // 8, result.first + result.size
    parts = [
        Part(source)
        for number, source in enumerate(lowest_first)
        if result.first < (number + 1) * width and number * width < end
    ]
    above = len(lowest_first) * width
    if op.has("pack") and end > above and len(sources) > 2:  # the numbers that were packed before
        first = max(result.first - above, 0)
        parts.append(Part(sources[2], first, end - above - first))
    elif not op.has("pack"):
        parts += [Part(source) for source in sources[count:]]  # random bits
    return parts


def _repacked(op: Op, result: Part) -> list[Part]:
    """Return the source of numbers that cvt converts from one packed type to another."""
    if len(op.types) != 2 or not all(name.endswith("x2") for name in op.types) or result.size is None:
        return []
    to, come = (TYPE_BITS[name] // 2 for name in op.types)
    if to % 8 or come % 8:
        return []
    first, last = (byte * 8 // to for byte in (result.first, result.first + result.size - 1))
    return [Part(part.operand, first * come // 8, (last - first + 1) * come // 8) for part in _whole(op)]
