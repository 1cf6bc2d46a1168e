"""Reaching definitions: which instructions may have given a register the value that an instruction reads.

Compilers write each register once, but for variables that loops change; people and inline assembly write the
same register again for something else. Analyses that follow values ask here, so that a later use of a
register does not blur what it held before.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from lanewise.machine.analysis.definite_assignment import Key, assigned, key_of
from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.operands import Register, registers_in
from lanewise.machine.program.ops import Op

#: Registers of fewer bits hold no address.
_LEAST_BITS = 32
Fact = TypeVar("Fact")


class Definition(NamedTuple):
    """A register that an instruction writes."""

    key: Key
    register: Register


class ReachingDefinitions:
    """The definitions of registers of 32 bits and more, and those that reach each use of them.

    A definition is known by its number, since analyses look up many.
    """

    def __init__(self, blocks: list[BasicBlock]) -> None:
        self.definitions: list[Definition] = []
        #: Every instruction that runs, in the order of basic blocks, with its definitions.
        self.writers: list[tuple[Op, list[tuple[int, Register]]]] = []
        self._of: dict[Register, list[int]] = {}
        for block in blocks:
            for op in block.executed:
                written = [register for register in assigned(op) if register.bits >= _LEAST_BITS]
                if written:
                    self.writers.append((op, list(enumerate(written, len(self.definitions)))))
                    for number, register in self.writers[-1][1]:
                        self.definitions.append(Definition(key_of(op), register))
                        self._of.setdefault(register, []).append(number)
        #: Registers that callers give a value, too.
        self.parameters = {
            parameter
            for body in {id(block.body): block.body for block in blocks}.values()
            for parameter in (*body.parameters, *body.returns)
            if isinstance(parameter, Register) and not body.function.is_entry
        }
        self._several = {register for register, numbers in self._of.items() if len(numbers) > 1}
        self._at: dict[Definition, tuple[int, ...]] = {}
        if self._several:
            self._flow(blocks)

    def reaching(self, op: Op, register: Register) -> tuple[int, ...]:
        """Return the numbers of the definitions whose value an instruction may read from a register."""
        every = self._of.get(register, ())
        return self._at.get(Definition(key_of(op), register), ()) if len(every) > 1 else tuple(every)

    def _flow(self, blocks: list[BasicBlock]) -> None:
        """Find what reaches each use of the registers that have several definitions."""
        numbers = {
            self.definitions[number]: number for register in self._several for number in self._of[register]
        }
        writes: dict[Key, list[tuple[Register, int]]] = {}
        for definition, number in numbers.items():
            writes.setdefault(definition.key, []).append((definition.register, number))
        ends = {block.number: _at_end(block, writes) for block in blocks}
        entering = _entering(blocks, ends)
        for block in blocks:
            live = _Live(entering[block.number])
            for op in block.executed:
                for operand in op.operands:
                    for register in registers_in(operand):
                        if register in self._several:
                            self._at[Definition(key_of(op), register)] = live.definitions(register)
                for register, number in writes.get(key_of(op), ()):
                    live.write(register, number, is_certain=op.guard is None)

    def solve(
        self,
        made: Callable[[Op, Register, dict[int, Fact]], Fact | None],
        join: Callable[[Fact, Fact], Fact],
    ) -> dict[int, Fact]:
        """Return a fact about each definition by its number, by iteration until nothing changes.

        `made` gives the fact of one result of an instruction from those known so far, None where it cannot
        tell yet; `join` combines what is known of a definition with what is new.
        """
        known: dict[int, Fact] = {}
        changed = True
        while changed:
            changed = False
            for op, definitions in self.writers:
                for number, register in definitions:
                    fact, old = made(op, register, known), known.get(number)
                    if fact is None:
                        continue
                    new = fact if old is None else join(old, fact)
                    if new != old:
                        known[number] = new
                        changed = True
        return known


class _AtEnd(NamedTuple):
    """What a basic block leaves: definitions that reach its end, and registers that it surely writes."""

    definitions: list[tuple[Register, int]]
    written: set[Register]


def _at_end(block: BasicBlock, writes: dict[Key, list[tuple[Register, int]]]) -> _AtEnd:
    """Return what a basic block leaves behind; an instruction with a guard may write nothing."""
    last: dict[Register, list[int]] = {}
    written: set[Register] = set()
    for op in block.executed:
        for register, number in writes.get(key_of(op), ()):
            if op.guard is None:
                last[register] = [number]
                written.add(register)
            else:
                last.setdefault(register, []).append(number)
    return _AtEnd([(register, number) for register, numbers in last.items() for number in numbers], written)


class _Exposed(NamedTuple):
    """Definitions that reach the end of a basic block, each a bit of a set, and those of each register."""

    numbers: list[int]
    of_register: dict[Register, int]


class _Entering(NamedTuple):
    """The set of exposed definitions that reach the begin of a basic block."""

    exposed: _Exposed
    bits: int


def _entering(blocks: list[BasicBlock], ends: dict[int, _AtEnd]) -> dict[int, _Entering]:
    """Return which definitions reach the begin of each basic block, by iteration until nothing changes."""
    exposed = _Exposed([], {})
    bits: dict[int, int] = {}
    for number, end in ends.items():
        bits[number] = 0
        for register, definition in end.definitions:
            bit = 1 << len(exposed.numbers)
            exposed.numbers.append(definition)
            exposed.of_register[register] = exposed.of_register.get(register, 0) | bit
            bits[number] |= bit
    kept = {}
    for number, end in ends.items():
        kept[number] = -1
        for register in end.written:
            kept[number] &= ~exposed.of_register[register]
    entering = dict.fromkeys(ends, 0)
    following = {block.number: [successor.number for successor in successors(block)] for block in blocks}
    changed = True
    while changed:  # in reverse post-order, so that one round mostly does but for loops
        changed = False
        for number, targets in following.items():
            leaving = bits[number] | (entering[number] & kept[number])
            for target in targets:
                if leaving & ~entering[target]:
                    entering[target] |= leaving
                    changed = True
    return {number: _Entering(exposed, definitions) for number, definitions in entering.items()}


class _Live:
    """The definitions whose values registers may hold, instruction by instruction of a basic block."""

    def __init__(self, entering: _Entering) -> None:
        self._entering = entering
        self._known: dict[Register, tuple[int, ...]] = {}

    def definitions(self, register: Register) -> tuple[int, ...]:
        """Return the definitions that a register may hold the value of."""
        known = self._known.get(register)
        if known is None:
            exposed, bits = self._entering
            left = bits & exposed.of_register.get(register, 0)
            reaching = []
            while left:
                lowest = left & -left
                reaching.append(exposed.numbers[lowest.bit_length() - 1])
                left ^= lowest
            known = self._known[register] = tuple(sorted(reaching))
        return known

    def write(self, register: Register, number: int, is_certain: bool) -> None:
        """Note that the next instruction writes a register, certainly or if its guard holds."""
        before = () if is_certain else self.definitions(register)
        self._known[register] = (*before, number)
