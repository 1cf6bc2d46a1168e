"""The thread blocks that one host thread has under way: which of them runs next, and for how long.

A block that has run for a while is asked whether it makes progress: it is stuck if all that decides on what
it does next (program counters, registers, its memory) is as it was before. A stuck block gives way. Once all
blocks are stuck, and global memory does not change either, the launch can never end.
"""

import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address, as_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, RunOrder, RunStatus, WarpFrame
from lanewise.machine.runtime.state import BlockState, LaunchState, QueueState


class Share(NamedTuple):
    """How long a block may run: basic blocks of a path of a warp in a turn, and turns after the first."""

    slice: int
    turns: int


#: A share that shows whether a block is stuck: a loop of up to 6 basic blocks is at the same place after it,
#: because 120 is a multiple of 1 to 6.
POLL = Share(120, 0)
#: Polls after the first share. The first one lets all paths of a warp run, so that lanes arrive at barriers.
POLLS = 2
#: The share of a block that makes progress.
WHOLE = Share(168 * POLL.slice, 3)
#: A share of one basic block. A loop of any number of basic blocks up to 16 is found by 32 of them.
STEP, STEPS = Share(1, 0), 32
#: Shares in which a block that makes progress may go on before others have theirs.
PATIENCE = STEPS + 16
#: Blocks that run at a time on the largest GPU: 32 on each of 148 multiprocessors.
ON_A_GPU = 32 * 148
#: The bytes of host memory that blocks under way may take.
MOST_BYTES = 1 << 30
#: Basic blocks that may run between two looks at memory while no block ends, for each warp under way. The
#: launch is endless if memory is then as it was.
FRUITLESS = 1 << 24


class Schedule(Protocol):
    """The order in which a launch runs its blocks and warps, and how long a block may run at first."""

    #: The order of the warps of a block, and the share with which it begins.
    order: RunOrder
    first_share: Share

    def gives_way(self) -> bool:
        """Return whether a block that makes progress gives way to another although it need not."""

    def chosen(self, waiting: int) -> int | None:
        """Return which of so many waiting blocks goes on; None if the next block of the grid begins."""

    def cut(self, length: int) -> int:
        """Return after how many of its basic blocks a share is interrupted; 0 if it is not."""


class InOrder:
    """Blocks and warps run in the order of their numbers; a block runs until it is done or stuck."""

    order = RunOrder.IN_ORDER

    def __init__(self, first_share: Share = WHOLE) -> None:
        self.first_share = first_share

    def gives_way(self) -> bool:
        """Return that no block gives way before it has to."""
        return False

    def chosen(self, waiting: int) -> int | None:
        """Return that the next block of the grid begins."""
        return None

    def cut(self, length: int) -> int:
        """Return that no share is interrupted."""
        return 0


class Resident:
    """A block under way, or a cluster of them: its memory, and what is known of its progress."""

    def __init__(self, state: BlockState) -> None:
        self.state = state
        #: Whether it has begun, so that it is resumed.
        self.begun = False
        #: The number in the grid when it was looked at last, and the basic blocks that it had run.
        self.linear, self.steps = -1, 0
        #: How often it was looked at since it began, and what it is compared with.
        self.looks, self.reference, self.stuck = 0, b"", False
        #: Basic blocks that a path may have run since it was the reference.
        self.distance = 0
        #: The share that it has now, and that of a look while it is stuck.
        self.share, self.poll = POLL, POLL
        #: Basic blocks that are left of a share that was interrupted: it is looked at after all of them.
        self.left = 0


class Stuck(NamedTuple):
    """What a launch that cannot end looks like: blocks that wait or spin, and how many have not begun."""

    blocks: list[BlockState]
    not_begun: int
    #: Whether it is certain, because nothing changes any more; else it has only run for very long.
    certain: bool


#: Called with blocks that can never end; it raises an error.
Judge = Callable[[Stuck], None]


class ResidentBlocks:
    """Runs blocks on one host thread until none is left.

    `new_block` gives the memory of another one, `settle` handles one that stopped, `judge` ends a launch that
    cannot end by itself (none: it goes on until somebody interrupts it). `deciding`: see `fingerprint`. If
    `time_decides`, a block that runs is never stuck: a clock that it reads goes on.
    """

    def __init__(
        self,
        launch: LaunchState,
        queue: QueueState,
        new_block: Callable[[], BlockState],
        settle: Callable[[BlockState, int], None],
        schedule: Schedule,
        judge: Judge | None = None,
        deciding: npt.NDArray[np.int64] | None = None,
        time_decides: bool = False,
    ) -> None:
        self.launch, self.queue, self.new_block, self.settle = launch, queue, new_block, settle
        self.schedule, self.judge, self.deciding = schedule, judge, deciding
        self.time_decides = time_decides
        launch[LaunchRecord.first_slice], launch[LaunchRecord.first_turns] = schedule.first_share
        #: Blocks to go on with, the next one at the end; and those that were looked at since.
        self.waiting: list[Resident] = []
        self.looked_at: list[Resident] = []
        #: How many of them are not stuck.
        self.busy = 0
        #: Whether a block began or ended since the last round of all blocks.
        self.progress = True
        #: Whether all blocks were stuck in the last round: then no share is interrupted.
        self.settling = False
        self.quiet_memory: bytes | None = None
        self.fruitless, self.fruitless_memory = 0, b""
        #: The most blocks that were under way at a time because none of them could go on.
        self.most_stuck = 0

    @property
    def count(self) -> int:
        """How many blocks wait."""
        return len(self.waiting) + len(self.looked_at)

    def run(self, most: Callable[[BlockState], int], count: Callable[[int], None]) -> None:
        """Run blocks until none is left; `count` is called with how many are under way.

        `most` returns how many may be, given the first one.
        """
        current: Resident | None = self._new()
        assert current is not None
        self.most = most(current.state)
        while current is not None:
            count(self.count + 1)
            if current.begun:
                self._share(current)
            self.launch.native(abi.RUN, [address(current.state.record), int(current.begun)])
            current.begun = True
            status = current.state[BlockRecord.status]
            if status == RunStatus.DONE:  # no block is left to begin
                self.progress = True
                current = self._next_waiting()
            elif status == RunStatus.YIELDED:
                current = self._after_yield(current)
            else:
                self.settle(current.state.running, status)

    def _share(self, resident: Resident) -> None:
        """Set how long a block that goes on may run, and in which order its warps run."""
        state, looks = resident.state, resident.looks
        if resident.left:
            for member in state.members:
                member[BlockRecord.slice] = member[BlockRecord.whole_slice] = resident.left
            resident.left = 0
            return
        in_order = True  # a look compares what a block was with what it is: warps run in one order in between
        if resident.stuck:
            share = resident.poll
        elif looks <= POLLS:
            share = POLL
        elif POLLS + 1 < looks <= POLLS + 1 + STEPS:
            share = STEP
        else:
            share, in_order = Share(WHOLE.slice, 0) if looks == POLLS + 1 else WHOLE, False
        resident.share = share
        cut = 0 if self.settling or share.turns else self.schedule.cut(share.slice)
        resident.left = share.slice - cut if cut else 0
        for member in state.members:
            member[BlockRecord.slice] = member[BlockRecord.whole_slice] = cut or share.slice
            member[BlockRecord.turns] = share.turns
            member[BlockRecord.order] = RunOrder.IN_ORDER if in_order else self.schedule.order

    def _after_yield(self, resident: Resident) -> Resident | None:
        """Look whether a block is stuck; return the block that runs next."""
        if not resident.left:
            self._look(resident)
        if resident.stuck or resident.left or resident.looks > PATIENCE or self.schedule.gives_way():
            self.looked_at.append(resident)
            self.busy += not resident.stuck
            return self._begun() or self._next_waiting()
        return resident

    def _look(self, resident: Resident) -> None:
        """Compare a block with what it was before, by Brent's algorithm, to see whether it is stuck."""
        state = resident.state
        linear, steps = state[BlockRecord.linear], state.steps
        if linear != resident.linear:  # the block before it has ended
            resident.linear, resident.steps, resident.looks, resident.stuck = linear, 0, 0, False
            resident.reference = b""
            self.progress, self.fruitless = True, 0
        self._count_fruitless(resident, steps - resident.steps)
        resident.steps = steps
        now = b"".join(fingerprint(member, self.deciding) for member in state.members)
        now += str(steps).encode() if self.time_decides else b""
        resident.distance += resident.share.slice * (resident.share.turns + 1)
        if now == resident.reference:
            if not resident.stuck:
                resident.poll = Share(-(-POLL.slice // resident.distance) * resident.distance, 0)
            resident.stuck, resident.distance = True, 0
            return
        if resident.stuck:  # it is no longer: what it waited for has happened
            resident.stuck, resident.looks = False, 0
        resident.looks += 1
        if resident.looks & (resident.looks - 1) == 0:
            resident.reference, resident.distance = now, 0

    def _begun(self) -> Resident | None:
        """Return the next block of the grid, or None: none is left, there are too many, or one waits."""
        if not self.queue.left or self.count >= self.most:
            return None
        if self.count >= ON_A_GPU:
            if self.busy:
                return None
            self.most_stuck = max(self.most_stuck, self.count)
        chosen = self.schedule.chosen(self.count)
        if chosen is not None:
            if chosen < len(self.waiting):
                return self._resumed(self.waiting, chosen)
            return self._resumed(self.looked_at, chosen - len(self.waiting))
        self.progress, self.fruitless = True, 0
        return self._new()

    def _new(self) -> Resident:
        """Return the memory of another block, or cluster, of this host thread."""
        state = self.new_block()
        for member in state.members:
            member[BlockRecord.queue] = self.queue.address
        return Resident(state)

    def _next_waiting(self) -> Resident | None:
        """Return the next of the waiting blocks; None if there is none.

        A round goes back through the blocks of the last one, so that chains of blocks that wait for their
        neighbours end in one round, whichever way they go.
        """
        if not self.waiting:
            self._end_round()
            self.waiting, self.looked_at = self.looked_at, []
        return self._resumed(self.waiting, -1) if self.waiting else None

    def _resumed(self, blocks: list[Resident], index: int) -> Resident:
        """Return one of the waiting blocks, which goes on now."""
        resident = blocks.pop(index)
        self.busy -= not resident.stuck
        return resident

    def _end_round(self) -> None:
        """Judge a round of all blocks: if none made progress, and memory has not changed, none ever will."""
        blocks, progress = self.looked_at, self.progress
        self.progress = False
        self.settling = not progress and all(block.stuck for block in blocks)
        if not self.settling or not blocks or any(block.left for block in blocks):
            self.quiet_memory = None
        elif self.judge is None:
            if hasattr(os, "sched_yield"):  # blocks of other host threads may have to do something
                os.sched_yield()
        else:
            memory = memory_digest(self.launch)
            if memory == self.quiet_memory:
                self._end_launch(blocks, certain=True)
            self.quiet_memory = memory

    def _count_fruitless(self, resident: Resident, steps: int) -> None:
        """Count basic blocks in which nothing was achieved; end the launch after very many."""
        self.fruitless += steps
        warps = self.launch.shape.warps * self.launch.shape.cluster_blocks
        bound = FRUITLESS * warps * (self.count + 1)
        if self.judge is not None and self.fruitless > bound:
            memory = memory_digest(self.launch)
            if memory == self.fruitless_memory:
                self._end_launch([*self.waiting, *self.looked_at, resident], certain=False)
            self.fruitless, self.fruitless_memory = 0, memory

    def _end_launch(self, residents: list[Resident], certain: bool) -> None:
        """Let the judge end a launch that does not end by itself."""
        assert self.judge is not None
        blocks = [member for resident in residents for member in resident.state.members]
        stuck = sorted(blocks, key=lambda state: state[BlockRecord.linear])
        self.judge(Stuck(stuck, self.queue.left, certain))


def fingerprint(state: BlockState, deciding: npt.NDArray[np.int64] | None = None) -> bytes:
    """Return a digest of everything but global memory that decides what a block does next.

    `deciding` are the offsets in a frame of bytes of registers that count; without it all registers do.
    """
    digest = hashlib.blake2b(state.record[BlockRecord.arrived : BlockRecord.phases].data, digest_size=16)
    size = state.launch.compiled.launch_info.frame_bytes
    frames = state.frames.reshape(-1, size)
    digest.update(np.ascontiguousarray(frames[:, WarpFrame.base : WarpFrame.cluster_arrived + 4]).data)
    digest.update(np.ascontiguousarray(frames[:, WarpFrame.pcs : WarpFrame.tid]).data)
    registers = frames[:, deciding] if deciding is not None else frames[:, WarpFrame.carry :]
    digest.update(np.ascontiguousarray(registers).data)
    for memory in (state.shared, state.local, state.tensor_memory):
        digest.update(memory.data)
    return digest.digest()


def memory_digest(launch: LaunchState) -> bytes:
    """Return a digest of the global memory that a launch may write."""
    digest = hashlib.blake2b(digest_size=16)
    for allocation in launch.allocations:
        if allocation.writable:
            digest.update(as_bytes(allocation.host, allocation.size).data)
    return digest.digest()
