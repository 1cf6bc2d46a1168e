"""The graph of a deadlock: what threads wait for, and which of the threads that wait would release it.

The cause of the deadlock is what nobody in the graph would release, or a circle of what waits for each other.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.analysis.pointer_provenance import AddressSources
from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.program.basic_blocks import successors
from lanewise.machine.program.instruction_record import Order, Size, Waits
from lanewise.machine.program.operands import ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.fault_report import value_in_lane
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.ptx import Immediate

#: Barriers of a block are numbered 0 to 15.
NAMED_BARRIERS = 16
#: The instructions at which lanes wait so; others are those of block barriers.
_WAITS = {
    abi.WAITS_FOR_PHASE: (Waits.PHASE,),
    abi.WAITS_FOR_WARPGROUP: (Waits.WARPGROUP,),
    abi.WAITS_FOR_CLUSTER: (Waits.CLUSTER,),
    abi.WAITS_FOR_SIBLINGS: (Waits.MEMBERS, Waits.WARP, Waits.WARPGROUP, Waits.COLUMNS),
    abi.WAITS_FOR_COLUMNS: (Waits.COLUMNS,),
}


class WaitingLane(NamedTuple):
    """A lane that waits when a launch is deadlocked: where it goes on, and what it waits for."""

    block: BlockState
    warp: int
    lane: int
    #: The number of the basic block with which it goes on.
    basic_block: int
    reason: int


class Awaited(NamedTuple):
    """What a lane waits for.

    A block barrier has the number of its block in the grid and its own, an mbarrier the rank of its block and
    its offset there; lanes of a warp are given by their block and warp, other things by their block.
    """

    reason: int
    home: int
    number: int = 0


def waiting_lanes(launch: LaunchState, stuck: list[BlockState]) -> Iterator[WaitingLane]:
    """Yield the lanes that wait; those for a phase may just have been let go to test it once more."""
    for block in stuck:
        for warp in range(launch.shape.warps):
            pcs, reasons = (
                block.lanes(warp, field, 32) for field in (abi.WarpFrame.pcs, abi.WarpFrame.barrier)
            )
            for lane, (pc, reason) in enumerate(zip(pcs.tolist(), reasons.tolist(), strict=True)):
                parked = abi.PARKED <= pc < abi.EXITED
                if parked or (pc < abi.PARKED and reason == abi.WAITS_FOR_PHASE):
                    yield WaitingLane(block, warp, lane, pc & (abi.PARKED - 1), reason)


class WaitGraph:
    """What the lanes of a deadlock wait for, and who among them would release it."""

    def __init__(self, launch: LaunchState, lanes: list[WaitingLane]) -> None:
        self.launch, self.lanes = launch, lanes
        self._coming: dict[int, frozenset[Op]] = {}
        self._senders: dict[int, tuple[list[Op], list[Op]]] = {}

    @cached_property
    def waiters(self) -> dict[Awaited, list[WaitingLane]]:
        """The lanes by what they wait for."""
        waiters: dict[Awaited, list[WaitingLane]] = {}
        for lane in self.lanes:
            awaited = self._what(lane)
            if awaited is not None:
                waiters.setdefault(awaited, []).append(lane)
        return waiters

    def _what(self, lane: WaitingLane) -> Awaited | None:
        linear = lane.block[BlockRecord.linear]
        match lane.reason:
            case abi.WAITS_FOR_PHASE:
                address = self.barrier_address(lane)
                if address is None:
                    return None
                return Awaited(lane.reason, address >> abi.RANK_SHIFT, address & ((1 << abi.RANK_SHIFT) - 1))
            case abi.WAITS_FOR_CLUSTER:
                return Awaited(lane.reason, 0)
            case abi.WAITS_FOR_SIBLINGS:
                return Awaited(lane.reason, linear, lane.warp)
            case abi.WAITS_FOR_WARPGROUP:
                return Awaited(lane.reason, linear, lane.warp // abi.WARPGROUP)
            case abi.WAITS_FOR_COLUMNS:
                return Awaited(lane.reason, linear)
        return Awaited(lane.reason, linear, lane.reason)

    # who releases what --------------------------------------------------------------------------------------

    @cached_property
    def releases(self) -> dict[Awaited, set[Awaited]]:
        """For each thing that is awaited: the others that threads wait for which would release it."""
        released: dict[Awaited, set[Awaited]] = {}
        for awaited in self.waiters:
            released[awaited] = {
                other
                for other, lanes in self.waiters.items()
                if other != awaited and self._would_release(awaited, lanes)
            }
        return released

    def _would_release(self, awaited: Awaited, lanes: list[WaitingLane]) -> bool:
        """Return whether one of some lanes may come to an instruction that releases what is awaited."""
        reason, home, number = awaited
        if reason == abi.WAITS_FOR_PHASE:
            senders = {op for ops in self.senders(number) for op in ops}
            return any(senders & self.coming(lane) for lane in lanes)
        if reason == abi.WAITS_FOR_CLUSTER:
            return any(
                op.record.orders is Order.CLUSTER_ARRIVAL or op.record.waits is Waits.CLUSTER
                for lane in lanes
                for op in self.coming(lane)
            )
        there = [lane for lane in lanes if lane.block[BlockRecord.linear] == home]
        if reason == abi.WAITS_FOR_SIBLINGS:
            return any(lane.warp == number for lane in there)
        if reason == abi.WAITS_FOR_WARPGROUP:
            return any(lane.warp // abi.WARPGROUP == number for lane in there)
        if reason == abi.WAITS_FOR_COLUMNS:
            return bool(there)
        return any(_counts_at(op, number) for lane in there for op in self.coming(lane))

    def behind(self, awaited: Awaited) -> set[Awaited]:
        """Return all that must be released first, so that a thread comes which releases what is awaited."""
        met, pending = set[Awaited](), [awaited]
        while pending:
            new = self.releases.get(pending.pop(), set()) - met
            met |= new
            pending += new
        return met

    def comes_to(self, lane: WaitingLane) -> set[Awaited]:
        """Return the things that lanes wait for which a lane may come to release."""
        return {awaited for awaited in self.waiters if self._would_release(awaited, [lane])}

    def is_root(self, awaited: Awaited) -> bool:
        """Return whether it waits for nothing but what waits for it, too."""
        return all(awaited in self.behind(other) for other in self.behind(awaited))

    def coming(self, lane: WaitingLane) -> frozenset[Op]:
        """Return the instructions that a lane may come to."""
        if lane.basic_block not in self._coming:
            self._coming[lane.basic_block] = frozenset(self._following(lane.basic_block))
        return self._coming[lane.basic_block]

    def _following(self, number: int) -> Iterator[Op]:
        pending, seen = [self.launch.compiled.blocks[number]], {number}
        while pending:
            block = pending.pop()
            yield from block.executed
            following = [successor for successor in successors(block) if successor.number not in seen]
            seen |= {successor.number for successor in following}
            pending += following

    @cached_property
    def _sources(self) -> AddressSources:
        return AddressSources(ReachingDefinitions(self.launch.compiled.blocks))

    def senders(self, offset: int) -> tuple[list[Op], list[Op]]:
        """Return what may arrive at an mbarrier at an offset, and the copies that bring bytes.

        An arrival at another variable is left out, as far as one can tell where its address comes from.
        """
        if offset not in self._senders:
            self._senders[offset] = self._find_senders(offset)
        return self._senders[offset]

    def _find_senders(self, offset: int) -> tuple[list[Op], list[Op]]:
        arrivals, copies = [], []
        for op in self.launch.compiled.program.sites:
            if op.has("mbarrier::complete_tx::bytes"):
                copies.append(op)
            accesses = [access for access in op.record.memory if access.size is Size.MBARRIER]
            if not accesses or not accesses[0].releases:
                continue
            symbol = self._sources.variable(op, op.address(accesses[0].operand).base)
            if symbol is None or symbol.address <= offset < symbol.address + symbol.size:
                arrivals.append(op)
        return arrivals, copies

    # where a lane waits -------------------------------------------------------------------------------------

    def instruction(self, lane: WaitingLane) -> Op | None:
        """Return the instruction at which a lane waits; None if it is not known.

        Barriers of the block and of the cluster end the basic block before the one with which the lane goes
        on; the others are executed in that one, when what they wait for has come.
        """
        blocks = self.launch.compiled.blocks
        if lane.reason < NAMED_BARRIERS or lane.reason == abi.WAITS_FOR_CLUSTER:
            before = (block.op for block in blocks if block.following is blocks[lane.basic_block])
            ops = [op for op in before if op is not None]
        else:
            ops = list(blocks[lane.basic_block].executed)
        return next((op for op in ops if op.record.waits in _WAITS.get(lane.reason, (Waits.BARRIER,))), None)

    def line(self, lane: WaitingLane) -> int:
        """Return the line of the PTX at which a lane waits, or else that with which it goes on."""
        op = self.instruction(lane)
        return op.line if op is not None else self.launch.compiled.launch_info.lines[lane.basic_block]

    def barrier_address(self, lane: WaitingLane) -> int | None:
        """Return the address of the mbarrier that a lane waits for; None if it is not known."""
        op = self.instruction(lane)
        if op is None:
            return None
        start = value_in_lane(lane.block, op.address(1).base, lane.warp, lane.lane)
        address = (start + op.address(1).offset) & ((1 << 64) - 1)
        return address - abi.SHARED_WINDOW if address >= abi.SHARED_WINDOW else address


def _counts_at(op: Op, number: int) -> bool:
    """Return whether an instruction counts threads at a barrier of the block."""
    if op.record.waits is not Waits.BARRIER:
        return False
    operand = op.operands[1 if op.has("red") else 0] if op.operands else None
    return number == 0 if operand is None else may_be(operand, number)


def may_be(operand: ResolvedOperand, number: int) -> bool:
    """Return whether an operand may be a number."""
    return not isinstance(operand, Immediate) or operand.bits == number
