"""Demanded bits: which bits of a register some instruction may depend on, by backward dataflow analysis.

Compilers and inline assembly put a register together of bytes of which only some have a value, and store or
convert just those. The analysis is that of a compiler's pass for dead bits (LLVM calls it BDCE): it is one of
registers, not of single uses, so a register that is read as a whole anywhere is demanded as a whole.
"""

from collections.abc import Callable, Iterable, Iterator

from lanewise.machine.program.instruction_record import BitFlow, Level, Role
from lanewise.machine.program.operands import (
    Register,
    RegisterPart,
    ResolvedOperand,
    Sink,
    elements_of,
    registers_in,
)
from lanewise.machine.program.ops import Op, all_registers
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.ptx import Immediate

_EVERY_BIT = -1
#: The bits of a word.
_WORD = (1 << 32) - 1
#: An operand, and the mask of its bits that are demanded.
Demand = tuple[ResolvedOperand, int]


class DemandedBits:
    """The demanded bits of some registers, among them all to which instructions pass bits of the others."""

    def __init__(self, ops: Iterable[Op], registers: set[Register]) -> None:
        self._masks = dict.fromkeys(registers, 0)
        readers = [op for op in ops if not registers.isdisjoint(all_registers(op))]
        changed = True
        while changed:
            changed = False
            for op in reversed(readers):
                for register, mask in self._of(op):
                    before = self._masks.get(register, mask)
                    if mask & ~before:
                        self._masks[register] = before | mask
                        changed = True

    def passed(self, op: Op, sources: set[Register]) -> set[Register]:
        """Return those of an instruction's sources of which it passes demanded bits on."""
        if self._masks.keys().isdisjoint(sources):
            return sources
        return sources & {register for register, mask in self._of(op) if mask}

    def _of(self, op: Op) -> Iterator[tuple[Register, int]]:
        """Yield the bits of registers that an instruction demands."""
        if op.guard is not None:
            yield op.guard[0], _EVERY_BIT
        for operand, mask in self._demands(op):
            for register in registers_in(operand):
                yield register, mask & (1 << register.bits) - 1

    def _demands(self, op: Op) -> list[Demand]:
        record = op.record
        if record.is_plain_store:
            (access,) = record.memory
            stored = (1 << TYPE_BITS[op.types[0]]) - 1
            masks = (stored if number == access.data else _EVERY_BIT for number in range(len(op.operands)))
            return list(zip(op.operands, masks, strict=True))
        if record.level is not Level.LANE or record.needs_values:
            adds = record.multiplies  # to its result
            reads = (adds or record.role(number) is not Role.DEFINED for number in range(len(op.operands)))
            return [
                (operand, _EVERY_BIT) for operand, is_read in zip(op.operands, reads, strict=True) if is_read
            ]
        result = self._result(op) if op.operands else 0
        return demands_of(op, result) if result else []

    def _mask(self, target: ResolvedOperand) -> int:
        if isinstance(target, Sink):
            return 0
        return self._masks.get(target, _EVERY_BIT) if isinstance(target, Register) else _EVERY_BIT

    def _result(self, op: Op) -> int:
        """Return the demanded bits of an instruction's result; those of a vector follow each other."""
        targets = elements_of(op.operands[0])
        masks = [self._mask(target) for target in targets]
        if len(targets) == 1 or op.record.bit_flow is not BitFlow.MOVE:
            return _EVERY_BIT if any(masks[1:]) else masks[0]
        width = _width(op.operands[1]) // len(targets)
        return sum((mask & (1 << width) - 1) << number * width for number, mask in enumerate(masks))


def demands_of(op: Op, result: int) -> list[Demand]:
    """Return the bits of each source that some bits of an instruction's result depend on.

    The instruction is one of each lane alone. The result is a mask; registers of an unpacked vector follow
    each other in it.
    """
    elements = (element for operand in op.operands for element in elements_of(operand))
    if any(isinstance(element, RegisterPart) for element in elements):
        return _whole(op)
    return _RULES.get(op.record.bit_flow, _whole)(op, result)


def _width(operand: ResolvedOperand) -> int:
    """Return how many bits a register has; a constant has as many as any."""
    return operand.bits if isinstance(operand, Register) else 128


def _constant(op: Op, number: int) -> int | None:
    """Return the value of an operand that is a constant."""
    operand = op.operands[number]
    return operand.bits if isinstance(operand, Immediate) else None


def _field(op: Op, number: int) -> int | None:
    """Return the position or the length of a field, if it is a constant: the lowest byte counts."""
    value = _constant(op, number)
    return None if value is None else value & 255


def _whole(op: Op, _: int = _EVERY_BIT) -> list[Demand]:
    return [(operand, _EVERY_BIT) for operand in op.operands[1:]]


def _moved(op: Op, result: int) -> list[Demand]:
    """Registers that are packed are parts of the result, the lowest first."""
    elements = elements_of(op.operands[1])
    width = _width(op.operands[0]) // len(elements)
    return [(element, result >> number * width & (1 << width) - 1) for number, element in enumerate(elements)]


def _bitwise(op: Op, result: int) -> list[Demand]:
    """A bit of the result comes from the same bit of each source; a predicate that chooses is whole."""
    last = [(op.operands[3], _EVERY_BIT)] if op.record.chooses else []
    return [(operand, result) for operand in op.operands[1 : 3 if op.record.chooses else None]] + last


def _masked(op: Op, result: int) -> list[Demand]:
    """Bits that a constant clears are not demanded."""
    first, second = (_constant(op, number) for number in (1, 2))
    masks = (result if second is None else result & second, result if first is None else result & first)
    return list(zip(op.operands[1:], masks, strict=True))


def _shifted(op: Op, result: int) -> list[Demand]:
    distance, width = _constant(op, 2), TYPE_BITS[op.types[0]]
    if distance is None:
        return _whole(op)
    distance = min(distance & _WORD, width)
    if op.record.bit_flow is BitFlow.SHIFT_LEFT:
        return [(op.operands[1], (result & (1 << width) - 1) >> distance)]
    moved = (result & (1 << width) - 1) << distance
    sign = 1 << width - 1 if moved >> width and op.types[0].startswith("s") else 0
    return [(op.operands[1], moved & (1 << width) - 1 | sign)]


def _funneled(op: Op, result: int) -> list[Demand]:
    """Two words are shifted as one of 64 bits, of which the lower or, by shf.l, the upper half is kept."""
    count = _constant(op, 3)
    if count is None:
        return _whole(op)
    count = count & 31 if op.has("wrap") else min(count & _WORD, 32)
    both = (result & _WORD) << (32 - count if op.has("l") else count)
    return [(op.operands[1], both & _WORD), (op.operands[2], both >> 32)]


def _extracted(op: Op, result: int) -> list[Demand]:
    """The field of bfe; above it are zeros or the field's highest bit."""
    position, length = _field(op, 2), _field(op, 3)
    if position is None or length is None:
        return _whole(op)
    if not length:
        return []
    every = (1 << TYPE_BITS[op.types[0]]) - 1
    field = (result & (1 << length) - 1) << position & every
    if op.types[0].startswith("s") and (result & every) >> length:
        field |= 1 << min(position + length, TYPE_BITS[op.types[0]]) - 1
    return [(op.operands[1], field)]


def _inserted(op: Op, result: int) -> list[Demand]:
    """The field of bfi comes from the first source, the rest from the second."""
    position, length = _field(op, 3), _field(op, 4)
    if position is None or length is None:
        return _whole(op)
    field = (1 << length) - 1
    return [(op.operands[1], result >> position & field), (op.operands[2], result & ~(field << position))]


def _permuted(op: Op, result: int) -> list[Demand]:
    """Each byte of prmt is one of the eight of both sources, or eight times its highest bit."""
    selector = _constant(op, 3)
    if selector is None:
        return _whole(op)
    both = 0
    for number in range(4):
        byte = result >> 8 * number & 255
        choice, is_sign = _chosen_byte(op, selector, number)
        both |= (128 if byte and is_sign else byte) << 8 * choice
    return [(op.operands[1], both & _WORD), (op.operands[2], both >> 32)]


def _chosen_byte(op: Op, selector: int, number: int) -> tuple[int, bool]:
    """Return which of the eight bytes a byte of prmt's result is, and whether only its highest bit counts."""
    low = selector & 3
    modes = {
        "f4e": low + number,
        "b4e": low - number & 7,
        "rc8": low,
        "ecl": max(low, number),
        "ecr": min(low, number),
        "rc16": 2 * (selector & 1) + number % 2,
    }
    mode = next((name for name in modes if op.has(name)), None)
    if mode is not None:
        return modes[mode], False
    choice = selector >> 4 * number & 15
    return choice & 7, choice > 7


def _converted(op: Op, result: int) -> list[Demand]:
    """Integers keep their low bits; all others depend on the whole source, which its type says."""
    if len(op.types) != 2 or len(op.operands) != 2:
        return _whole(op)
    target, source = op.types
    kept = min(TYPE_BITS[target], TYPE_BITS[source])
    if op.has("sat") or not {target[0], source[0]} <= {"s", "u"}:
        return [(op.operands[1], (1 << TYPE_BITS[source]) - 1)]
    is_extended = result & ~((1 << kept) - 1) and "s" in (target[0], source[0])
    return [(op.operands[1], result & (1 << kept) - 1 | (1 << kept - 1 if is_extended else 0))]


_RULES: dict[BitFlow, Callable[[Op, int], list[Demand]]] = {
    BitFlow.MOVE: _moved,
    BitFlow.BITWISE: _bitwise,
    BitFlow.MASK: _masked,
    BitFlow.SHIFT_LEFT: _shifted,
    BitFlow.SHIFT_RIGHT: _shifted,
    BitFlow.FUNNEL: _funneled,
    BitFlow.EXTRACT: _extracted,
    BitFlow.INSERT: _inserted,
    BitFlow.PERMUTE: _permuted,
    BitFlow.CONVERSION: _converted,
}
