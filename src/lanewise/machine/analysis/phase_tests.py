"""Tests of mbarriers that show nothing: nobody looks at their result, or the thread goes on without one.

A test may give up, so it orders nothing by itself. What a thread does after it is ordered only if the result
decides whether the thread goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lanewise.machine.analysis.definite_assignment import assigned
from lanewise.machine.analysis.value_uses import stored_registers
from lanewise.machine.program.basic_blocks import BasicBlock, split, successors
from lanewise.machine.program.instruction_record import Level, Role, Waits
from lanewise.machine.program.operands import Register, registers_in
from lanewise.machine.program.ops import Op, Program


def unheeded_tests(program: Program) -> set[int]:
    """Return the sites of tests of mbarriers that show nothing.

    A result is heeded if it, or what is computed from it, guards an instruction, chooses a value or leaves
    the registers, other than to global memory: there it comes too late for the thread itself. A test whose
    failure leads to one that is not heeded, and from there to where its success leads, shows nothing either.
    """
    if not any(op.record.waits is Waits.PHASE for op in program.sites):
        return set()
    tests = [
        _Test(op, block, position)
        for block in split(program)
        for position, op in enumerate(block.executed)
        if op.record.waits is Waits.PHASE
    ]
    for test in tests:
        test.follow()
    sites = {test.op.site for test in tests if not test.is_heeded}
    while sites:
        heeded = {id(test.block): test for test in tests if test.op.site not in sites}
        unheeded = {id(test.block) for test in tests if test.op.site in sites}
        retried = {
            test.op.site for test in heeded.values() if test.gives_up(set(heeded), unheeded, sites, tests)
        }
        if not retried:
            break
        sites |= retried
    return sites


#: Basic blocks that are reached, by identity.
_Way = dict[int, BasicBlock]


@dataclass
class _Test:
    """A test of a phase: where it is, and what its result decides."""

    op: Op
    block: BasicBlock
    position: int
    is_heeded: bool = False
    #: Registers that hold its result, or what is computed from it.
    results: set[Register] = field(default_factory=set)
    #: The basic blocks that end with a branch which it decides.
    branches: list[BasicBlock] = field(default_factory=list)

    def follow(self) -> None:
        """Find what becomes of the result."""
        left = [(register, self.block, self.position + 1) for register in self.op.registers(Role.DEFINED)]
        seen = {(register, id(block), position) for register, block, position in left}
        while left:
            register, block, start = left.pop()
            self.results.add(register)
            for place, position, op in _uses(register, block, start):
                if op.guard is not None and op.guard[0] == register:
                    self.is_heeded = True
                    if op is place.op:
                        self.branches.append(place)
                    continue
                if op.record.is_plain_store and op.space == "global" and register in stored_registers(op):
                    continue
                if op.record.level is not Level.LANE or _chooses_by(op, register):
                    self.is_heeded = True
                    continue
                for further in assigned(op):
                    key = (further, id(place), position + 1)
                    if key not in seen:
                        seen.add(key)
                        left.append((further, place, position + 1))

    def gives_up(self, heeded: set[int], unheeded: set[int], sites: set[int], tests: list[_Test]) -> bool:
        """Return whether a failure leads to a test that is not heeded, and on as if it had not failed."""
        for other in tests:
            guard = other.op.guard
            if other.op.site in sites and guard is not None and guard[0] in self.results:
                return True
        for branch in self.branches:
            stops = heeded | {id(branch)}  # beyond it another result decides
            ways = [_reached([successor], stops) for successor in successors(branch)]
            for way in self._after_failure(branch, ways):
                others = {number for other in ways if other is not way for number in other}
                retries = [block for number, block in way.items() if number in unheeded - others]
                if not others.isdisjoint(_reached(retries, stops)):
                    return True
        return False

    def _after_failure(self, branch: BasicBlock, ways: list[_Way]) -> list[_Way]:
        """Return the ways that a branch may take if the test has failed: one, if its own result decides."""
        assert branch.op is not None and branch.op.guard is not None
        result, negated = branch.op.guard
        if len(ways) != 2 or result not in self.op.registers(Role.DEFINED):
            return ways
        target, following = ways
        return [target if negated else following]


def _uses(register: Register, block: BasicBlock, start: int) -> Iterator[tuple[BasicBlock, int, Op]]:
    """Yield the uses of a register that its value at a position of a basic block reaches."""
    left, seen = [(block, start)], set[int]()
    while left:
        place, first = left.pop()
        ops = place.executed
        for position in range(first, len(ops)):
            op = ops[position]
            used = {
                used_register for operand in op.operands for used_register in registers_in(operand)
            } - assigned(op)
            if register in used or (op.guard is not None and op.guard[0] == register):
                yield place, position, op
            if register in assigned(op) and op.guard is None:
                break
        else:
            for following in successors(place):
                if id(following) not in seen:
                    seen.add(id(following))
                    left.append((following, 0))


def _reached(starts: list[BasicBlock], stops: set[int]) -> _Way:
    """Return the basic blocks that some lead to, by identity, those beyond `stops` left out."""
    reached: _Way = {}
    left = list(starts)
    while left:
        block = left.pop()
        if id(block) not in reached:
            reached[id(block)] = block
            if id(block) not in stops:
                left += successors(block)
    return reached


def _chooses_by(op: Op, register: Register) -> bool:
    """Return whether a register chooses between values, one of which at least is no constant."""
    if not op.record.chooses or op.operands[3] != register:
        return False
    return any(True for operand in op.operands[1:3] for _ in registers_in(operand))
