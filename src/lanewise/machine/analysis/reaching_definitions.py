"""Reaching definitions: which instructions may have given a register the value that an instruction reads.

Compilers write each register once, but for variables that loops change; people and inline assembly write the
same register again for something else. Analyses that follow values ask here, so that a later use of a
register does not blur what it held before.
"""

from __future__ import annotations

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
        self._of: dict[Register, tuple[int, ...]] = {}
        for block in blocks:
            for op in block.executed:
                written = [each for each in assigned(op) if each.bits >= _LEAST_BITS]
                if written:
                    self.writers.append((op, list(enumerate(written, len(self.definitions)))))
                    for number, register in self.writers[-1][1]:
                        self.definitions.append(Definition(key_of(op), register))
                        self._of[register] = (*self._of.get(register, ()), number)
        #: Registers that callers give a value, too.
        self.parameters = {
            each
            for body in {id(block.body): block.body for block in blocks}.values()
            for each in (*body.parameters, *body.returns)
            if isinstance(each, Register) and not body.function.is_entry
        }
        self._several = {register for register, each in self._of.items() if len(each) > 1}
        self._at: dict[Definition, tuple[int, ...]] = {}
        if self._several:
            self._flow(blocks)

    def reaching(self, op: Op, register: Register) -> tuple[int, ...]:
        """Return the numbers of the definitions whose value an instruction may read from a register."""
        every = self._of.get(register, ())
        return self._at.get(Definition(key_of(op), register), ()) if len(every) > 1 else every

    def _flow(self, blocks: list[BasicBlock]) -> None:
        """Find what reaches each use of the registers that have several definitions.

        Sets of definitions are the bits of an integer.
        """
        first: dict[Register, int] = {}
        all_of = dict[Register, int]()
        writes: dict[Key, list[tuple[Register, int]]] = {}
        count = 0
        for register in self._several:
            definitions = self._of[register]
            first[register], all_of[register] = count, ((1 << len(definitions)) - 1) << count
            for place, number in enumerate(definitions, count):
                writes.setdefault(self.definitions[number].key, []).append((register, 1 << place))
            count += len(definitions)
        made, kept = dict[int, int](), dict[int, int]()
        for block in blocks:
            live, stays = 0, -1
            for op in block.executed:
                for register, bit in writes.get(key_of(op), ()):
                    if op.guard is None:
                        live &= ~all_of[register]
                        stays &= ~all_of[register]
                    live |= bit
            made[block.number], kept[block.number] = live, stays
        entering = dict.fromkeys(made, 0)
        following = {block.number: [each.number for each in successors(block)] for block in blocks}
        changed = True
        while changed:  # in reverse post-order, so that one round mostly does but for loops
            changed = False
            for number, targets in following.items():
                leaving = made[number] | (entering[number] & kept[number])
                for target in targets:
                    if leaving & ~entering[target]:
                        entering[target] |= leaving
                        changed = True
        sets: dict[tuple[Register, int], tuple[int, ...]] = {}
        for block in blocks:
            live = entering[block.number]
            for op in block.executed:
                for operand in op.operands:
                    for register in registers_in(operand):
                        if register in self._several:
                            chosen = register, (live & all_of[register]) >> first[register]
                            if chosen not in sets:
                                sets[chosen] = _chosen(chosen[1], self._of[register])
                            self._at[Definition(key_of(op), register)] = sets[chosen]
                for register, bit in writes.get(key_of(op), ()):
                    live = (live if op.guard is not None else live & ~all_of[register]) | bit

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


def _chosen(bits: int, definitions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the definitions of a register that the bits of a set stand for."""
    return tuple(each for number, each in enumerate(definitions) if bits >> number & 1)
