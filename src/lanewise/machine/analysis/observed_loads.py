"""Which threads can do anything with the value that a load gives them, by backward dataflow analysis.

Where a tensor has fewer elements than a block has threads, Triton lets several threads load and compute the
same, and switches off the stores of all but one. A thread whose stores are all off may load what another one
overwrites meanwhile: nobody observes the value that it gets.

The analysis is one of registers, not of single uses. For each register it collects the instructions with an
effect (stores, accesses, branches, calls) that its value can reach, by their guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.machine import abi
from lanewise.machine.analysis.thread_predicates import ThreadPredicates
from lanewise.machine.program.basic_blocks import BasicBlock, postdominators, until_lanes_meet
from lanewise.machine.program.instruction_record import BlockEnd, Level, Order, Role, Waits
from lanewise.machine.program.operands import Register, registers_in
from lanewise.machine.program.ops import Op, Program

#: More effects than these count as one that is always on.
_MOST_EFFECTS = 64
#: What an instruction may wait for that only exchanges registers with other lanes.
_LANES = (Waits.NOBODY, Waits.MEMBERS, Waits.WARP)
#: Roles of the operands of an instruction that only computes.
_VALUES = (Role.DEFINED, Role.USED, Role.MEMBERS)


class Effect(NamedTuple):
    """An instruction with an effect: its guard, and whether lanes get the value from others of their warp."""

    guard: Register
    negated: bool
    from_others: bool = False


#: The effects that a value can reach; None if one of them has no guard.
Effects = frozenset[Effect] | None
_NOTHING: frozenset[Effect] = frozenset()


class _Flow(NamedTuple):
    """What becomes of the values that an instruction reads: effects, and results that are made from them.

    Registers are known by their offsets, since there are many.
    """

    sources: set[int]
    targets: set[int]
    effects: Effects = _NOTHING
    from_others: bool = False


class ObservedLoads:
    """The loads of a kernel whose values do not matter to all threads."""

    def __init__(self, program: Program, blocks: list[BasicBlock]) -> None:
        self.program = program
        self._effects: dict[int, Effects] = {}
        self.loads: dict[Op, frozenset[Effect]] = {}
        loads = [op for op in program.sites if op.record.is_plain_load and op.space in ("global", "generic")]
        if len(program.bodies) > 1 or not loads:
            return  # values pass through memory of calls
        flows = [_flow(op) for block in reversed(blocks) for op in reversed(block.executed)]
        flows += _branches(blocks)
        changed = True
        while changed:
            changed = False
            for flow in flows:
                changed |= self._spread(flow)
        for op in loads:
            effects = _joined(self._effects.get(register, _NOTHING) for register in registers_of(op).written)
            if effects is not None:
                self.loads[op] = effects

    def _spread(self, flow: _Flow) -> bool:
        """Add the effects of an instruction's results to those of its sources; return whether that is new."""
        effects = flow.effects
        for register in flow.targets:
            effects = _joined((effects, self._effects.get(register, _NOTHING)))
        if effects is not None and flow.from_others:
            effects = frozenset(effect._replace(from_others=True) for effect in effects)
        changed = False
        for register in flow.sources:
            before = self._effects.get(register, _NOTHING)
            if before is not None and effects != _NOTHING:
                self._effects[register] = _joined((before, effects))
                changed |= self._effects[register] != before
        return changed

    def lanes(self, block: tuple[int, int, int]) -> dict[Op, npt.NDArray[np.uint32]]:
        """Return the lanes that can observe what a load gives them, a mask for each warp of a block.

        Loads that all lanes observe are left out.
        """
        if not self.loads:
            return {}
        predicates = ThreadPredicates(self.program, block)
        count = -(-predicates.count // abi.LANES) * abi.LANES
        weights = (1 << np.arange(abi.LANES, dtype=np.uint64)).astype(np.uint64)
        masks: dict[Op, npt.NDArray[np.uint32]] = {}
        for op, effects in self.loads.items():
            observing = np.zeros((count // abi.LANES, abi.LANES), np.bool_)
            for guard, negated, from_others in effects:
                truth = predicates.truth(guard)
                possible = np.zeros(count, np.bool_)
                possible[: predicates.count] = ~(truth.true if negated else truth.false)
                warps = possible.reshape(observing.shape)
                observing |= warps.any(axis=1, keepdims=True) if from_others else warps
            if not observing.reshape(-1)[: predicates.count].all():
                masks[op] = (observing * weights).sum(axis=1).astype(np.uint32)
        return masks


def _joined(several: Iterable[Effects]) -> Effects:
    """Return the effects that one of several values can reach."""
    every = _NOTHING
    for effects in several:
        if effects is None:
            return None
        every |= effects
    return None if len(every) > _MOST_EFFECTS else every


class ReadAndWritten(NamedTuple):
    """The registers that an instruction reads and writes, by their offsets."""

    read: set[int]
    written: set[int]


def registers_of(op: Op) -> ReadAndWritten:
    """Return the registers that an instruction reads and writes; its guard is read."""
    registers = ReadAndWritten(set(), set())
    for number, operand in enumerate(op.operands):
        has_role = registers.written if op.record.role(number) is Role.DEFINED else registers.read
        has_role.update(register.offset for register in registers_in(operand))
    if op.guard is not None:
        registers.read.add(op.guard[0].offset)
    return registers


def _flow(op: Op) -> _Flow:
    """Return what an instruction does with the values that it reads; a branch does what lies behind it."""
    if op.record.does_nothing or op.record.ends is BlockEnd.JUMP:
        return _Flow(set(), set())
    read, written = registers_of(op)
    if _only_computes(op):
        return _Flow(read, written, from_others=op.record.level is Level.WARP)
    # A product of a warpgroup adds to its results.
    return _Flow(read | written if op.record.multiplies else read, set(), _effect(op))


def _effect(op: Op) -> Effects:
    return None if op.guard is None else frozenset((Effect(*op.guard),))


def _branches(blocks: list[BasicBlock]) -> Iterator[_Flow]:
    """Yield what predicates of branches decide on: all that is done until the lanes meet again.

    A loop may never end with another value, which is an effect by itself.
    """
    known = postdominators(blocks)
    for branch in blocks:
        if branch.end is not BlockEnd.JUMP or branch.op is None or branch.op.guard is None:
            continue
        between = until_lanes_meet(branch, known)
        effects: Effects = None if branch.number in between else _NOTHING
        targets: set[int] = set()
        for op in (op for block in between.values() for op in block.executed):
            if effects is None:
                break
            if op.record.waits is Waits.NOBODY and _only_computes(op):
                targets |= registers_of(op).written
            elif not op.record.does_nothing and op.record.ends is not BlockEnd.JUMP:
                effects = _joined((effects, _effect(op)))
        yield _Flow({branch.op.guard[0].offset}, targets, effects)


def _only_computes(op: Op) -> bool:
    """Return whether all that an instruction does is to write registers, of its lane or of its warp."""
    record = op.record
    if record.is_plain_load and op.space == "param" and not op.registers(Role.ADDRESS):
        return True
    if record.level is not Level.LANE and (record.level is not Level.WARP or record.waits not in _LANES):
        return False
    if any(record.role(number) not in _VALUES for number in range(len(op.operands))):
        return False
    touches = record.memory or record.touches_tensor_memory or record.writes_surface or record.takes_stack
    leaves = record.ends is not BlockEnd.FALLTHROUGH or record.orders is not Order.NOTHING
    # The carry of .cc is no register; which lanes take part is a constant.
    return not (touches or leaves or record.second_half or op.has("cc") or op.registers(Role.MEMBERS))
