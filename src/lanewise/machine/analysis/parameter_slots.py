"""Parameters and results of device functions as places that a lack of values passes through.

A *slot* is where a value lies in the parameter memory of a function. It is given as a register that no frame
has, so that dataflow analysis follows it like any other; no number of a real offset is negative.
"""

from typing import NamedTuple

from lanewise.machine.program.basic_blocks import BasicBlock, callees
from lanewise.machine.program.instruction_record import BlockEnd, Role
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import (
    IndirectCallee,
    OperandList,
    Register,
    ResolvedOperand,
    Symbol,
    elements_of,
)
from lanewise.machine.program.ops import FunctionBody, Op


class Move(NamedTuple):
    """A value goes from one register or slot to another; without a source it is one that has a value."""

    target: Register
    source: Register | None


def slot_at(address: int) -> Register:
    """Return the slot at an address of a lane's local memory, where parameters lie."""
    return Register("a parameter", "b8", 8, -1 - address)


def _address(slot: Register) -> int:
    return -1 - slot.offset


def is_slot(register: Register) -> bool:
    """Return whether a register is a slot."""
    return register.offset < 0


def _elements(op: Op) -> list[tuple[Register, ResolvedOperand]]:
    """Return the slots that a plain load or store of a parameter accesses, with its registers."""
    if op.space != "param" or not (op.record.is_plain_load or op.record.is_plain_store):
        return []
    (located,) = accesses(op)
    base = located.address.base
    if not isinstance(base, Symbol) or base.space != "local":
        return []
    elements = elements_of(op.operands[located.access.data])
    first, size = base.address + located.address.offset, located.size // len(elements)
    return [(slot_at(first + size * number), element) for number, element in enumerate(elements)]


class ParameterSlots:
    """The moves of values by which the functions of a program pass parameters and results."""

    def __init__(self, blocks: list[BasicBlock]) -> None:
        self.bodies: dict[str, FunctionBody] = {block.body.function.name: block.body for block in blocks}
        ops = [op for block in blocks for op in block.executed]
        calls = [block.op for block in blocks if block.end is BlockEnd.CALL and block.op is not None]
        self.stored = sorted(
            {_address(slot) for op in ops if op.record.is_plain_store for slot, _ in _elements(op)}
        )
        #: Calls through registers are not followed, nor is anything if there are some.
        self.followed = bool(calls) and not any(isinstance(op.operands[1], IndirectCallee) for op in calls)
        if self.followed:
            # What one function passes on to another is stored there too.
            grown = True
            while grown:
                passed = {_address(move.target) for op in ops for move in self._passed(op)}
                grown = not passed <= set(self.stored)
                self.stored = sorted(passed.union(self.stored))

    def moves(self, op: Op) -> list[Move]:
        """Return the moves to or from slots that an instruction makes."""
        if not self.followed:
            return []
        if op.record.is_plain_store:
            pairs = _elements(op)
            return [Move(slot, element if isinstance(element, Register) else None) for slot, element in pairs]
        if op.record.is_plain_load:
            return [Move(element, slot) for slot, element in _elements(op) if isinstance(element, Register)]
        return self._passed(op)

    def _passed(self, op: Op) -> list[Move]:
        """Return the moves of a call: arguments in its first half, results in the second."""
        if op.record.role(1) is not Role.CALLEE or callees(op)[0] not in self.bodies:
            return []
        body = self.bodies[callees(op)[0]]
        wanted, given = op.operands[0], op.operands[2]
        assert isinstance(wanted, OperandList) and isinstance(given, OperandList)
        targets: tuple[ResolvedOperand, ...] = wanted.elements if op.record.second_half else body.parameters
        sources: tuple[ResolvedOperand, ...] = body.returns if op.record.second_half else given.elements
        moves = []
        for target, source in zip(targets, sources, strict=False):
            if isinstance(source, Symbol) and isinstance(target, Symbol):
                end = source.address + min(source.size, target.size)
                inside = [address for address in self.stored if source.address <= address < end]
                shift = target.address - source.address
                moves += [Move(slot_at(address + shift), slot_at(address)) for address in inside]
            elif isinstance(target, Symbol):
                moves.append(Move(slot_at(target.address), source if isinstance(source, Register) else None))
        return moves
