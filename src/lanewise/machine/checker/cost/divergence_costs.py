"""What divergent branches cost: instructions that run with some lanes of a warp switched off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lanewise.machine import abi
from lanewise.machine.checker.cost.launch_costs import LaunchCosts
from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import BlockEnd
from lanewise.machine.program.ops import Op

#: A branch is judged if lanes parted at it so often, and in such a part of its executions.
LEAST_DIVERGED, DIVERGED_SHARE = 16, 0.1
#: In a small launch it is judged, with a higher threshold of what is wasted, if lanes parted in most
#: executions: a last warp that is not full is no divergent branch.
FEW_DIVERGED, MOST_EXECUTIONS = 4, 0.5


class DivergentBranch(NamedTuple):
    """A branch at which lanes parted, and the warp instructions that were wasted until they met again."""

    op: Op
    executed: int
    diverged: int
    wasted: float

    @property
    def in_a_small_launch(self) -> bool:
        """Whether lanes parted so seldom that only a large waste is worth a word."""
        return self.diverged < LEAST_DIVERGED


def divergent_branches(costs: LaunchCosts) -> Iterator[DivergentBranch]:
    """Return the branches at which lanes parted often.

    A basic block that several of them lead to counts for the one that leads to the fewest.
    """
    branches: list[tuple[BasicBlock, dict[int, BasicBlock]]] = []
    for block in costs.kernel.blocks:
        op = block.op
        if op is None or block.end is not BlockEnd.JUMP:
            continue
        executed, diverged = int(costs.runs[block.number, 0]), int(costs.diverged[op.site])
        often = diverged >= LEAST_DIVERGED and diverged >= DIVERGED_SHARE * executed
        if often or (diverged >= FEW_DIVERGED and diverged > MOST_EXECUTIONS * executed):
            branches.append((block, _until_lanes_meet(block)))
    wasted: dict[int, float] = {block.number: 0.0 for block, _ in branches}
    for block in costs.kernel.blocks:
        times, threads = (int(each) for each in costs.runs[block.number])
        leading = [(len(region), start.number) for start, region in branches if block.number in region]
        if leading and times:
            _, number = min(leading)
            wasted[number] += len(block.executed) * (times - threads / abi.LANES)
    for block, _ in branches:
        assert block.op is not None
        executed, diverged = int(costs.runs[block.number, 0]), int(costs.diverged[block.op.site])
        yield DivergentBranch(block.op, executed, diverged, wasted[block.number])


def _until_lanes_meet(branch: BasicBlock) -> dict[int, BasicBlock]:
    """Return the basic blocks after a branch up to where all of its paths have met, by number."""
    meeting = _meeting(branch)
    found: dict[int, BasicBlock] = {}
    pending = [*successors(branch)]
    while pending:
        each = pending.pop()
        if each.number not in found and each.number != meeting:
            found[each.number] = each
            pending += successors(each)
    return found


def _meeting(branch: BasicBlock) -> int:
    """Return the number of the first basic block that all paths from a branch go through; -1 if none does."""
    paths = [_reachable(each) for each in successors(branch)]
    common = set.intersection(*(set(each) for each in paths)) if paths else set()
    for number in sorted(common):
        blocks = [each for path in paths for each in path.values()]
        if all(_passes(start, number) for start in successors(branch)) and blocks:
            return number
    return -1


def _reachable(block: BasicBlock) -> dict[int, BasicBlock]:
    """Return a basic block and all that can follow it in its function, by number."""
    found = {block.number: block}
    pending = successors(block)
    while pending:
        each = pending.pop()
        if each.number not in found:
            found[each.number] = each
            pending += successors(each)
    return found


def _passes(start: BasicBlock, number: int) -> bool:
    """Return whether every path from a basic block to the end of the function passes another one."""
    seen: set[int] = set()
    pending = [start]
    while pending:
        each = pending.pop()
        if each.number == number or each.number in seen:
            continue
        seen.add(each.number)
        following = successors(each)
        if not following:
            return False
        pending += following
    return True
