"""The watch of one host thread: its shadow memory, clocks, counts, and its findings.

Each thread that runs blocks of a checked launch has a watch of its own, so nothing in it needs a lock.
"""

import os
from collections.abc import Callable

import numpy as np

from lanewise.jit.host_memory import Bytes, address, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.checker import records
from lanewise.machine.checker.allocations.pointer_bounds import (
    bound_to_own_shared_memory,
    bound_to_views,
    shared_extents,
)
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.findings import AllocationAccesses, Marks
from lanewise.machine.checker.proxy_records import (
    BARRIERS_FOLLOWED,
    CELLS,
    FENCES_KEPT,
    OPERATIONS_KEPT,
    AsyncClock,
    FollowedBarrier,
    NotedOperation,
    RegisterState,
    RemoteAccess,
    TensorCell,
    TensorClock,
    WarpFence,
)
from lanewise.machine.checker.records import (
    OBSERVATIONS_KEPT,
    RELEASES_KEPT,
    AllocationShadow,
    BlockWatch,
    Flag,
    LaneClocks,
    ObservedWrites,
    PartialRelease,
    RegisterValue,
    ShadowPlane,
    SiteRow,
    WarpClock,
    WatchRecord,
)
from lanewise.machine.checker.shadow_pool import SHADOWS
from lanewise.machine.checker.site_table import fresh_table
from lanewise.machine.checker.triage import Triage
from lanewise.machine.runtime.device_memory import Allocation
from lanewise.machine.runtime.heap import heap_of
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.machine.runtime.launch import Launch
from lanewise.machine.runtime.state import BlockState

#: Words of shadow memory that are compared at a time.
_STRETCH = 1 << 20
#: Words of shadow memory that are in use for a cell which is written and read.
_WORDS_OF_A_CELL = 8


def most_shadow_bytes() -> int:
    """Return the bytes of shadow memory that a check may have: half of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not known on every system
        return 1 << 32


class Watch:
    """What one host thread observes of a checked launch, and the memory that it is kept in."""

    def __init__(
        self,
        launch: Launch,
        kernel: CheckedKernel,
        epochs: int,
        recorded: set[int],
        stay_alone: Callable[[], bool],
    ) -> None:
        self.launch, self.kernel, self.epochs = launch, kernel, epochs
        shape = launch.shape
        self.rows, self.last_requests = fresh_table(kernel.watched)
        self._observing = kernel.observing_lanes(shape.block)
        for load, masks in self._observing.items():
            self.rows[load, SiteRow.observing // 8] = address(masks)
        bound_to_views(self.rows, launch, kernel)
        bound_to_own_shared_memory(self.rows, launch)
        self.extents = shared_extents(launch)
        self.runs = np.zeros((max(len(kernel.blocks), 1), 2), np.int64)
        self.diverged = np.zeros(max(len(kernel.program.sites), 1), np.int64)
        self.log = SHADOWS.take_log(epochs)
        self.begun = np.zeros(shape.blocks + 1, np.uint32)
        self.partial_releases = zeroed_bytes(RELEASES_KEPT * PartialRelease.BYTES)
        self.observed_writes = zeroed_bytes(OBSERVATIONS_KEPT * ObservedWrites.BYTES)
        self.operations = zeroed_bytes(OPERATIONS_KEPT * NotedOperation.BYTES * kernel.follows_async)
        self.fences = zeroed_bytes(FENCES_KEPT * WarpFence.BYTES * kernel.follows_async)
        self.record = zeroed_bytes(WatchRecord.BYTES).view(np.int64)
        self.triage = Triage(launch, self.rows, self.log, self.begun, self.record, kernel, stay_alone)
        self.triage.operations = self.operations.view(np.uint32)
        shifts = self.shifts = [self._cell_shift(allocation) for allocation in launch.allocations]
        planes = len(ShadowPlane) if kernel.follows_async else ShadowPlane.FIRST_READ
        #: Allocations whose shadow memory would take too much: races in them are not looked for.
        self.unwatched = self._too_large(recorded)
        cells = [
            (allocation.size >> shift) + 8
            if allocation.first in recorded and allocation not in self.unwatched
            else 0
            for allocation, shift in zip(launch.allocations, shifts, strict=True)
        ]
        self._pieces = [SHADOWS.take(planes * cell_count) for cell_count in cells]
        self.shadows = [
            piece.words[: planes * count].reshape(planes, count)
            for piece, count in zip(self._pieces, cells, strict=True)
        ]
        #: The bytes of address space of its shadow memory; those of pages that are touched are in use.
        self.shadow_bytes = sum(shadow.nbytes for shadow in self.shadows)
        #: Marks of the bytes of memory that outlives the launch.
        self._marks: list[Bytes] = []
        self.shadow_table = np.zeros((max(len(self.shadows), 1), AllocationShadow.BYTES // 8), np.int64)
        for row, allocation, shadow, shift in zip(
            self.shadow_table, launch.allocations, self.shadows, shifts, strict=False
        ):
            for field, value in (
                (AllocationShadow.first, allocation.first),
                (AllocationShadow.size, allocation.size),
                (AllocationShadow.plane, address(shadow) if shadow.size else 0),
                (AllocationShadow.stride, shadow.strides[0]),
                (AllocationShadow.cell_shift, shift),
                (AllocationShadow.host, allocation.host),
                (AllocationShadow.accessed_from, allocation.size),
                (AllocationShadow.reads_recorded, allocation.first in recorded),
                (AllocationShadow.byte_states, _byte_states(allocation, kernel)),
                (AllocationShadow.initialised, self._initialised(allocation)),
            ):
                row[field // 8] = value
        for field, value in (
            (WatchRecord.log, address(self.log)),
            (WatchRecord.log_size, epochs),
            (WatchRecord.sites, address(self.rows)),
            (WatchRecord.allocations, address(self.shadow_table)),
            (WatchRecord.allocation_count, len(launch.allocations)),
            (WatchRecord.callback, self.triage.address),
            (WatchRecord.begun, address(self.begun)),
            (WatchRecord.partial_releases, address(self.partial_releases)),
            (WatchRecord.observed_writes, address(self.observed_writes)),
            (WatchRecord.operations, address(self.operations) if kernel.follows_async else 0),
            (WatchRecord.fences, address(self.fences) if kernel.follows_async else 0),
            (WatchRecord.extents, address(self.extents)),
            (WatchRecord.extent_count, len(self.extents)),
        ):
            self.record[field // 8] = value
        self._kept: list[object] = []
        #: The bytes that the records of one block take.
        self.block_bytes = 0

    def _initialised(self, allocation: Allocation) -> int:
        """Return where the marks of an allocation's written bytes lie; 0 if all of them are written."""
        marks = INITIALISED.marks(allocation.first, allocation.size)
        if marks is None:
            return 0
        self._marks.append(marks)
        return address(marks)

    def _too_large(self, recorded: set[int]) -> list[Allocation]:
        """Return the allocations that are not watched, the largest first, so that others fit in memory."""
        unwatched: list[Allocation] = []
        shadow_bytes = {
            allocation: _WORDS_OF_A_CELL * 4 * (allocation.size >> shift)
            for allocation, shift in zip(self.launch.allocations, self.shifts, strict=True)
            if allocation.first in recorded
        }
        for allocation in sorted(shadow_bytes, key=lambda allocation: -shadow_bytes[allocation]):
            if (
                sum(shadow_bytes[other] for other in shadow_bytes if other not in unwatched)
                <= most_shadow_bytes()
            ):
                break
            unwatched.append(allocation)
        return unwatched

    def _cell_shift(self, allocation: Allocation) -> int:
        """Return the bytes of a cell of an allocation, as a power of two: no access to it is smaller."""
        sizes = self.kernel.access_sizes
        if allocation.is_variable:
            return sizes.smallest.bit_length() - 1
        parameters = self.launch.parameters
        smallest = min(
            (
                size
                for offset, size in sizes.by_parameter.items()
                if int.from_bytes(parameters[offset : offset + 8].tobytes(), "little") in allocation
            ),
            default=sizes.elsewhere,
        )
        return min(smallest, sizes.elsewhere).bit_length() - 1

    @property
    def out_of_epochs(self) -> bool:
        """Whether the run was too long to look for races to its end."""
        return bool(self.record[WatchRecord.now // 8] >= self.epochs - 1)

    def attach(self, state: BlockState) -> None:
        """Allocate the records that a thread block is watched with, and enter them in its BlockRecord."""
        warps, shared_bytes = self.launch.shape.warps, self.launch.shared_limit
        kernel, blocks = self.kernel, self.launch.shape.cluster_blocks
        local_bytes = abi.aligned(kernel.launch_info.local_bytes, 4)
        #: The bytes of the arrays that it points to.
        sizes = {
            BlockWatch.assigned: RegisterValue.BYTES * warps * len(kernel.plan.registers) + 8,
            BlockWatch.clocks: warps * WarpClock.BYTES,
            BlockWatch.barriers: abi.BARRIERS * WarpClock.BYTES,
            BlockWatch.lane_clocks: warps * LaneClocks.BYTES,
            BlockWatch.local_shadow: warps * abi.LANES * local_bytes // 4 + 8,
        }
        if kernel.follows_async:
            sizes |= {
                BlockWatch.async_clocks: (warps + abi.BARRIERS) * AsyncClock.BYTES,
                BlockWatch.followed: BARRIERS_FOLLOWED * FollowedBarrier.BYTES,
                BlockWatch.register_states: warps * len(kernel.warpgroups.registers) * RegisterState.BYTES
                + 8,
            }
            if kernel.launch_info.uses_tensor_memory:
                sizes[BlockWatch.tensor_cells] = CELLS * TensorCell.BYTES
                sizes[BlockWatch.tensor_clocks] = warps * TensorClock.BYTES
            if blocks > 1:
                sizes[BlockWatch.remote_accesses] = blocks * warps * RemoteAccess.BYTES
        arrays = {field: zeroed_bytes(size) for field, size in sizes.items()}
        shift = kernel.access_sizes.shared.bit_length() - 1
        shadow = np.zeros((len(ShadowPlane), (shared_bytes >> shift) + 8), np.uint32)
        record = zeroed_bytes(BlockWatch.BYTES).view(np.int64)
        fields = {field: address(array) for field, array in arrays.items()} | {
            BlockWatch.runs: address(self.runs),
            BlockWatch.diverged: address(self.diverged),
            BlockWatch.watch: address(self.record),
            BlockWatch.linear: -1,
            BlockWatch.warps: warps,
            BlockWatch.cluster_blocks: blocks,
            BlockWatch.shadow: address(shadow),
            BlockWatch.stride: shadow.strides[0],
            BlockWatch.cell_shift: shift,
            BlockWatch.shared_bytes: shared_bytes,
            BlockWatch.local_bytes: local_bytes,
            BlockWatch.register_bytes: sizes.get(BlockWatch.register_states, 0),
            BlockWatch.tensor_clock_bytes: sizes.get(BlockWatch.tensor_clocks, 0),
        }
        for field, value in fields.items():
            record[field // 8] = value
        state[BlockRecord.watch] = address(record)
        self.block_bytes = record.nbytes + shadow.nbytes + sum(sizes.values())
        self._kept.append((record, shadow, arrays))
        self.triage.states[address(state.record)] = state

    def give_back(self) -> None:
        """Give its shadow memory to the next check: this watch is done."""
        for row, shadow, piece, shift in zip(
            self.shadow_table, self.shadows, self._pieces, self.shifts, strict=False
        ):
            first, last, flags = (
                int(row[field // 8])
                for field in (
                    AllocationShadow.accessed_from,
                    AllocationShadow.accessed_to,
                    AllocationShadow.flags,
                )
            )
            if shadow.size:
                planes, cells = shadow.shape
                first, last = min(first >> shift, cells), min((last >> shift) + 8, cells)
                begins = [plane * cells for plane in _planes_in_use(flags) if plane < planes]
                SHADOWS.give(piece, [(start + first, start + last) for start in begins if first < last])
        SHADOWS.give_log(self.log, int(self.record[WatchRecord.now // 8]))
        self.shadows, self._pieces, self.log = [], [], self.log[:0]

    def forget(self, first: int, size: int) -> None:
        """Clear the shadow memory of some bytes, because the heap gives them to a new owner."""
        for allocation, shadow, shift in zip(self.launch.allocations, self.shadows, self.shifts, strict=True):
            if first in allocation:
                start = (first - allocation.first) >> shift
                shadow[:, start : start - (-size >> shift)] = 0


def _byte_states(allocation: Allocation, kernel: CheckedKernel) -> int:
    """Return where the states of an allocation's bytes lie, if it is the heap; else 0."""
    return address(heap_of(kernel.module).track()) if allocation.first == abi.HEAP_BASE else 0


def _planes_in_use(flags: int) -> list[ShadowPlane]:
    """Return the planes that may not be zero after accesses with some flags."""
    if flags & Flag.STRONG_ACCESS:
        return list(ShadowPlane)
    used = range(ShadowPlane.READ_EPOCH)
    reads = range(ShadowPlane.READ_EPOCH, ShadowPlane.PUBLICATION) if flags & Flag.READS else ()
    by_async_proxy = range(ShadowPlane.ASYNC_READ_EPOCH, len(ShadowPlane)) if flags & Flag.ASYNC_READS else ()
    return [ShadowPlane(plane) for plane in (*used, *reads, *by_async_proxy)]


def conflict(watches: list[Watch]) -> bool:
    """Return whether blocks of two watches accessed one cell, at least one of them writing.

    In memory whose reads are not put on record nobody wrote, or the launch would have been stopped.
    """
    return any(
        allocation.writable and _accesses_conflict(watches, number)
        for number, allocation in enumerate(watches[0].launch.allocations)
        if watches[0].shadow_table[number, AllocationShadow.reads_recorded // 8]
    )


def _accesses_conflict(watches: list[Watch], number: int) -> bool:
    """Return whether two watches have a cell of an allocation that one wrote and the other accessed."""
    ranges = []
    for watch in watches:
        row, shift = watch.shadow_table[number], watch.shifts[number]
        first, last = (
            int(row[field // 8]) >> shift
            for field in (AllocationShadow.accessed_from, AllocationShadow.accessed_to)
        )
        ranges.append((first, last + 1))
    # Cells that one watch alone has accessed need not be looked at.
    firsts, lasts = sorted(first for first, _ in ranges), sorted(last for _, last in ranges)
    shadows = [watch.shadows[number] for watch in watches]
    for start in range(firsts[1], lasts[-2], _STRETCH):
        stretch = slice(start, min(start + _STRETCH, lasts[-2]))
        by_watch = [shadow[ShadowPlane.WRITE_EPOCH, stretch] != 0 for shadow in shadows]
        if not any(writes.any() for writes in by_watch):
            continue
        written = np.zeros(stretch.stop - stretch.start, bool)
        read = np.zeros_like(written)
        for shadow, writes in zip(shadows, by_watch, strict=True):
            reads = shadow[ShadowPlane.READ_EPOCH, stretch] != 0
            if watches[0].kernel.follows_async:
                reads |= shadow[ShadowPlane.ASYNC_READ_EPOCH, stretch] != 0
            if (writes & (written | read)).any() or (reads & written).any():
                return True
            written |= writes
            read |= reads
    return False


def accesses_of(watches: list[Watch]) -> list[AllocationAccesses]:
    """Return what a launch has accessed, given the watches of its host threads."""
    accesses = []
    for number, allocation in enumerate(watches[0].launch.allocations):
        if allocation.is_variable or not watches[0].shadows[number].size:
            continue
        shift = watches[0].shifts[number]
        rows = [watch.shadow_table[number] for watch in watches]
        low = min(int(row[AllocationShadow.accessed_from // 8]) for row in rows) >> shift
        high = (max(int(row[AllocationShadow.accessed_to // 8]) for row in rows) - 1 >> shift) + 1
        if low >= high:
            continue
        marks = [np.zeros(high - low, bool) for _ in range(4)]
        for watch in watches:
            for mark, seen in zip(marks, _marks(watch, number, slice(low, high)), strict=True):
                mark |= seen
        start = allocation.first + (low << shift)
        accesses.append(AllocationAccesses(allocation.first, start, 1 << shift, *marks))
    return accesses


def _marks(watch: Watch, number: int, part: slice) -> tuple[Marks, Marks, Marks, Marks]:
    """Return weak and strong reads, weak and strong writes, of some cells."""
    shadow = watch.shadows[number]
    read, wrote = (shadow[plane, part] != 0 for plane in (ShadowPlane.READ_EPOCH, ShadowPlane.WRITE_EPOCH))
    strong_read, strong_write = (
        shadow[plane, part] & records.STRONG != 0 for plane in (ShadowPlane.READER, ShadowPlane.WRITER)
    )
    weak_read = read & ~strong_read
    if watch.kernel.follows_async:
        weak_read |= shadow[ShadowPlane.ASYNC_READ_EPOCH, part] != 0
    return weak_read, wrote & ~strong_write, read & strong_read, wrote & strong_write
