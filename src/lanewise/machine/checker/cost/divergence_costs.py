"""What divergent branches cost: instructions that run with some lanes of a warp switched off."""

from collections.abc import Iterator
from typing import NamedTuple

from lanewise.machine import abi
from lanewise.machine.checker.cost.launch_costs import LaunchCosts
from lanewise.machine.program.basic_blocks import BasicBlock, postdominators, until_lanes_meet
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
    known: dict[int, int] = {}
    for block in costs.kernel.blocks:
        op = block.op
        if op is None or block.end is not BlockEnd.JUMP:
            continue
        executed, diverged = int(costs.runs[block.number, 0]), int(costs.diverged[op.site])
        often = diverged >= LEAST_DIVERGED and diverged >= DIVERGED_SHARE * executed
        if often or (diverged >= FEW_DIVERGED and diverged > MOST_EXECUTIONS * executed):
            known = known or postdominators(costs.kernel.blocks)
            branches.append((block, until_lanes_meet(block, known)))
    wasted: dict[int, float] = {block.number: 0.0 for block, _ in branches}
    leading: dict[int, tuple[int, int]] = {}
    for start, region in branches:
        for number in region:
            leading[number] = min(
                leading.get(number, (len(region), start.number)), (len(region), start.number)
            )
    for block in costs.kernel.blocks:
        times, threads = (int(count) for count in costs.runs[block.number])
        if block.number in leading and times:
            wasted[leading[block.number][1]] += len(block.executed) * (times - threads / abi.LANES)
    for block, _ in branches:
        assert block.op is not None
        executed, diverged = int(costs.runs[block.number, 0]), int(costs.diverged[block.op.site])
        yield DivergentBranch(block.op, executed, diverged, wasted[block.number])
