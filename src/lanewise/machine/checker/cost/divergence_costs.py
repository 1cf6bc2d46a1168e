"""What divergent branches cost: instructions that run with some lanes of a warp switched off."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import and_
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
    postdominators: dict[int, int] = {}
    for block in costs.kernel.blocks:
        op = block.op
        if op is None or block.end is not BlockEnd.JUMP:
            continue
        executed, diverged = int(costs.runs[block.number, 0]), int(costs.diverged[op.site])
        often = diverged >= LEAST_DIVERGED and diverged >= DIVERGED_SHARE * executed
        if often or (diverged >= FEW_DIVERGED and diverged > MOST_EXECUTIONS * executed):
            postdominators = postdominators or _postdominators(costs.kernel.blocks)
            branches.append((block, _until_lanes_meet(block, postdominators)))
    wasted: dict[int, float] = {block.number: 0.0 for block, _ in branches}
    leading: dict[int, tuple[int, int]] = {}
    for start, region in branches:
        for number in region:
            leading[number] = min(
                leading.get(number, (len(region), start.number)), (len(region), start.number)
            )
    for block in costs.kernel.blocks:
        times, threads = (int(each) for each in costs.runs[block.number])
        if block.number in leading and times:
            wasted[leading[block.number][1]] += len(block.executed) * (times - threads / abi.LANES)
    for block, _ in branches:
        assert block.op is not None
        executed, diverged = int(costs.runs[block.number, 0]), int(costs.diverged[block.op.site])
        yield DivergentBranch(block.op, executed, diverged, wasted[block.number])


def _until_lanes_meet(branch: BasicBlock, postdominators: dict[int, int]) -> dict[int, BasicBlock]:
    """Return the basic blocks after a branch up to where all of its paths have met, by number."""
    meeting = _meeting(branch, postdominators)
    between: dict[int, BasicBlock] = {}
    pending = [*successors(branch)]
    while pending:
        follower = pending.pop()
        if follower.number not in between and follower.number != meeting:
            between[follower.number] = follower
            pending += successors(follower)
    return between


def _meeting(branch: BasicBlock, postdominators: dict[int, int]) -> int:
    """Return the number of the first basic block that all paths from a branch go through; -1 if none does."""
    following = successors(branch)
    if not following:
        return -1
    common = reduce(and_, (postdominators[each.number] for each in following))
    if any(postdominators[each.number] < 0 for each in following):
        # Some path never ends, and is said to go through everything: only what it reaches counts.
        common &= reduce(and_, (sum(1 << number for number in _reachable(each)) for each in following))
    return (common & -common).bit_length() - 1


def _postdominators(blocks: list[BasicBlock]) -> dict[int, int]:
    """Return for each basic block those that every path from it to the end goes through, as bits of a mask.

    It is -1, all bits, for a block from which no path ends. Numbers are in reverse post-order, so that one
    round from the last to the first does nearly everything.
    """
    masks = {block.number: -1 for block in blocks}
    changed = True
    while changed:
        changed = False
        for block in sorted(blocks, key=lambda each: -each.number):
            following = successors(block)
            common = -1 if following else 0
            for follower in following:
                common &= masks[follower.number]
            new = common | 1 << block.number
            if new != masks[block.number]:
                masks[block.number], changed = new, True
    return masks


def _reachable(block: BasicBlock) -> set[int]:
    """Return the numbers of a basic block and all that can follow it in its function."""
    reached = {block.number}
    pending = successors(block)
    while pending:
        follower = pending.pop()
        if follower.number not in reached:
            reached.add(follower.number)
            pending += successors(follower)
    return reached
