"""The state of a launch in memory: the records of the launch and of its blocks, as Python sees them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lanewise.jit.host_memory import Bytes, address, as_bytes, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockQueue, BlockRecord, CacheEntry, LaunchRecord, MemberRow, WarpFrame
from lanewise.machine.compile.compiled import Compiled
from lanewise.machine.runtime.address_book import ADDRESSES
from lanewise.machine.runtime.device_memory import Allocation
from lanewise.machine.tensor_core.mma_library import MmaTable, mma_table
from lanewise.machine.tensor_memory_records import TENSOR_BYTES, TensorAllocator
from lanewise.ptx import Shape

if TYPE_CHECKING:
    import numpy.typing as npt

    from lanewise.machine.runtime.texture_table import TextureTable
    from lanewise.numpy_types import AnyArray

Three = tuple[int, int, int]


class LaunchState:
    """The record of a launch, with the memory and tables that it points to."""

    #: Arrays that have a device address without being arguments.
    book = ADDRESSES
    #: Whether it keeps account of what is written to the heap.
    tracks_heap = False

    def __init__(
        self,
        compiled: Compiled,
        shape: Shape,
        allocations: list[Allocation],
        parameters: Bytes,
        table: npt.NDArray[np.int64],
    ) -> None:
        self.compiled, self.shape, self.allocations = compiled, shape, allocations
        self.parameters, self.table = parameters, table
        #: The machine code of this launch; later ones may have another.
        self.native = compiled.native_for_launch()
        self.textures: TextureTable | None = None
        info = compiled.launch_info
        end = info.dynamic_offset + shape.shared_bytes if shape.shared_bytes else info.shared_bytes
        #: The bytes of shared memory of the kernel itself, and the offset behind those that may be touched.
        self.shared_bytes, self.shared_limit = end - info.shared_base, end
        #: Where the bytes begin that the system reserves.
        self.reserved_shared = 0 if info.shared_base else abi.aligned(end, abi.RESERVED_ALIGNMENT)
        if info.uses_reserved_memory:
            self.shared_limit = max(end, self.reserved_shared + abi.RESERVED_SHARED_BYTES)
        elif not self.shared_bytes:
            self.shared_limit = 0
        self.template = _template(info.frame_bytes, info.entry, shape.block)
        self.record = zeroed_bytes(LaunchRecord.BYTES)
        self._words = self.record.view(np.int64)
        for field, value in (
            (LaunchRecord.allocations, address(table)),
            (LaunchRecord.allocation_count, len(table)),
            (LaunchRecord.parameters, address(parameters)),
            (LaunchRecord.parameter_bytes, info.parameter_bytes),
            (LaunchRecord.cluster_blocks, shape.cluster_blocks),
            (LaunchRecord.warps, shape.warps),
            (LaunchRecord.threads, shape.threads),
            (LaunchRecord.shared_bytes, self.shared_limit),
            (LaunchRecord.own_shared_bytes, self.shared_bytes),
            (LaunchRecord.dynamic_shared_bytes, shape.shared_bytes),
            (LaunchRecord.reserved_shared, self.reserved_shared),
            (LaunchRecord.local_bytes, info.local_bytes),
            (LaunchRecord.frame_bytes, info.frame_bytes),
            (LaunchRecord.template, address(self.template)),
            (LaunchRecord.reads_clock, info.reads_clock),
            (LaunchRecord.code, self.native.data(abi.CODE_TABLE)),
        ):
            self[field] = value
        for axis in range(3):
            self[LaunchRecord.ntid + 8 * axis] = shape.block[axis]
            self[LaunchRecord.nctaid + 8 * axis] = shape.grid[axis]
            self[LaunchRecord.cluster + 8 * axis] = (shape.cluster or (1, 1, 1))[axis]
        self[LaunchRecord.explicit_cluster] = int(shape.cluster is not None)

    def __setitem__(self, field: int, value: int) -> None:
        self._words[field // 8] = value

    __iter__ = None

    def __getitem__(self, field: int) -> int:
        return int(self._words[field // 8])

    def shared_queue(self, blocks: range) -> QueueState:
        """Return a range of blocks as the queue that all host threads share."""
        first = LaunchRecord.next_block // 8
        return QueueState(self._words[first : first + BlockQueue.BYTES // 8], blocks)

    def thread_at(self, warp: int, lane: int) -> Three:
        """Return the coordinates of a thread in its block."""
        number = warp * abi.LANES + lane
        x, y, _ = self.shape.block
        return number % x, number // x % y, number // (x * y)

    def block_at(self, linear: int) -> Three:
        """Return the coordinates of a block in the grid."""
        x, y, _ = self.shape.grid
        return linear % x, linear // x % y, linear // (x * y)


@lru_cache(maxsize=8)
def _template(frame_bytes: int, entry: int, block: Three) -> Bytes:
    """Return the frames of a thread block at its start; compiled code only reads them."""
    shape = Shape((1, 1, 1), block)
    template = zeroed_bytes(frame_bytes * shape.warps)
    frames = template.reshape(shape.warps, frame_bytes)
    frames[:, WarpFrame.index : WarpFrame.index + 8].view(np.int64)[:, 0] = np.arange(shape.warps)
    numbers = np.arange(shape.warps * abi.LANES)
    x, y, _ = block
    tids = (numbers % x, numbers // x % y, numbers // (x * y))
    pcs = np.where(numbers < shape.threads, entry, abi.EXITED)
    for field, values in (
        (WarpFrame.pcs, pcs),
        *((WarpFrame.tid + 4 * abi.LANES * axis, tid) for axis, tid in enumerate(tids)),
    ):
        lanes = frames[:, field : field + 4 * abi.LANES].view(np.uint32)
        lanes[:] = values.reshape(shape.warps, abi.LANES)
    return template


class QueueState:
    """The blocks of a launch that have not begun, of one host thread or of all; compiled code takes them."""

    def __init__(self, words: npt.NDArray[np.int64], blocks: range) -> None:
        self._words, self._first = words, blocks.start
        words[:] = blocks.start, blocks.stop

    @property
    def address(self) -> int:
        """The address of its BlockQueue."""
        return address(self._words)

    @property
    def left(self) -> int:
        """How many blocks have not begun."""
        return max(0, int(self._words[1]) - int(self._words[0]))

    @property
    def begun(self) -> int:
        """How many blocks have begun, or were taken over."""
        return int(self._words[1]) - self._first - self.left


class BlockState:
    """The memory of one thread block while it runs; of a cluster's first block, with that of the others.

    Compiled code runs a cluster by its first block.
    """

    def __init__(self, launch: LaunchState, rank: int = 0) -> None:
        compiled, shape = launch.compiled, launch.shape
        info = compiled.launch_info
        self.launch = launch
        self.record = zeroed_bytes(BlockRecord.BYTES)
        self._words = self.record.view(np.int64)
        self.frames = zeroed_bytes(info.frame_bytes * shape.warps)
        self.shared = zeroed_bytes(max(launch.shared_limit, 1))
        self.local = zeroed_bytes(max(info.local_bytes * shape.warps * abi.LANES, 1))
        self.saved_registers = zeroed_bytes(info.frame_bytes)
        self.caches = zeroed_bytes(CacheEntry.BYTES * max(info.sites, 1))
        self.mma_table: MmaTable | None = mma_table(info, compiled.arch)
        for field, value in (
            (BlockRecord.launch, address(launch.record)),
            (BlockRecord.shared, address(self.shared)),
            (BlockRecord.frames, address(self.frames)),
            (BlockRecord.local, address(self.local)),
            (BlockRecord.caches, address(self.caches)),
            (BlockRecord.saved_registers, address(self.saved_registers)),
            (BlockRecord.mma_table, address(self.mma_table.table) if self.mma_table else 0),
            (BlockRecord.rank, rank),
            (BlockRecord.shared_first, rank << abi.RANK_SHIFT),
        ):
            self[field] = value
        self.tensor_memory = zeroed_bytes(TENSOR_BYTES if info.uses_tensor_memory else 0)
        if info.uses_tensor_memory:
            self.tensor_allocator = zeroed_bytes(TensorAllocator.BYTES)
            self[BlockRecord.tensor_memory] = address(self.tensor_memory)
            self[BlockRecord.tensor_allocator] = address(self.tensor_allocator)
        if launch[LaunchRecord.completion]:  # not all asynchronous operations take effect at once
            self._keep_operations(shape.warps)

        #: The other blocks of the cluster, if this is its first one.
        self._others = [BlockState(launch, other) for other in range(1, shape.cluster_blocks) if rank == 0]
        if rank == 0:
            self._fill_member_table()

    def _keep_operations(self, warps: int) -> None:
        """Allocate the queue of asynchronous operations that do not take effect at once."""
        from lanewise.machine.async_records import (
            MOST_PENDING,
            STAGE_BYTES,
            AsyncOperation,
            PendingOperations,
            ThreadCopies,
        )

        self.pending = zeroed_bytes(PendingOperations.BYTES)
        parts = (
            (PendingOperations.groups, zeroed_bytes(8 * warps * abi.LANES)),
            (PendingOperations.operations, zeroed_bytes(MOST_PENDING * AsyncOperation.BYTES)),
            (PendingOperations.stage, zeroed_bytes(STAGE_BYTES)),
            (PendingOperations.copies, zeroed_bytes(warps * abi.LANES * ThreadCopies.BYTES)),
        )
        for field, memory in parts:
            self.pending.view(np.int64)[field // 8] = address(memory)
        self._kept_for_operations = parts
        self[BlockRecord.pending] = address(self.pending)

    def _fill_member_table(self) -> None:
        """Write the rows of the cluster's blocks, and let the record of each block refer to them."""
        members = self.members
        if self._others:
            self._table = zeroed_bytes(MemberRow.BYTES * len(members))
            rows, first = self._table.view(np.int64), address(self._table)
        else:
            rows = self._words[BlockRecord.own_row // 8 :]
            first = address(self.record) + BlockRecord.own_row
        for rank, member in enumerate(members):
            start = rank * MemberRow.BYTES // 8
            rows[start + MemberRow.block // 8] = address(member.record)
            rows[start + MemberRow.shared // 8] = address(member.shared)
            rows[start + MemberRow.bytes // 8] = self.launch.shared_limit
            member[BlockRecord.members] = first

    @property
    def members(self) -> list[BlockState]:
        """The blocks of the cluster by rank, if this is its first one."""
        return [self, *self._others]

    @property
    def cluster_numbers(self) -> list[int]:
        """The numbers in the grid of the blocks of its cluster, by rank; any block of it knows them."""
        count = self.launch.shape.cluster_blocks
        rows = as_bytes(self[BlockRecord.members], count * MemberRow.BYTES).view(np.int64)
        records = rows[MemberRow.block // 8 :: MemberRow.BYTES // 8]
        return [int(as_bytes(int(first) + BlockRecord.linear, 8).view(np.int64)[0]) for first in records]

    @property
    def running(self) -> BlockState:
        """The block of the cluster that ran last."""
        return self.members[self[BlockRecord.running_member]]

    def member(self, rank: int) -> npt.NDArray[np.int64]:
        """Return the words of the BlockRecord of a block of the cluster."""
        row = as_bytes(self[BlockRecord.members] + rank * MemberRow.BYTES, MemberRow.BYTES).view(np.int64)
        return as_bytes(int(row[MemberRow.block // 8]), BlockRecord.BYTES).view(np.int64)

    def shared_bytes_at(self, address: int, size: int) -> bytes:
        """Return bytes at an address in the shared memory of the cluster; fewer if there are not as many."""
        rank, offset = address >> abi.RANK_SHIFT, address & abi.OFFSET_MASK
        if rank >= self.launch.shape.cluster_blocks:
            return b""
        row = as_bytes(self[BlockRecord.members] + rank * MemberRow.BYTES, MemberRow.BYTES).view(np.int64)
        there, limit = (int(row[field // 8]) for field in (MemberRow.shared, MemberRow.bytes))
        return as_bytes(there, limit)[offset : offset + size].tobytes() if limit else b""

    @property
    def steps(self) -> int:
        """The basic blocks that the blocks of the cluster have run."""
        return sum(member[BlockRecord.steps] for member in self.members)

    @property
    def bytes(self) -> int:
        """The bytes of memory that the block, or its cluster, takes."""
        return sum(
            memory.size
            for block in self.members
            for memory in (
                block.record,
                block.frames,
                block.shared,
                block.local,
                block.caches,
                block.tensor_memory,
            )
        )

    @property
    def ctaid(self) -> Three:
        """The coordinates of the block in the grid."""
        x, y, z = (self[BlockRecord.ctaid + 8 * axis] for axis in range(3))
        return x, y, z

    def __setitem__(self, field: int, value: int) -> None:
        self._words[field // 8] = value

    __iter__ = None

    def __getitem__(self, field: int) -> int:
        return int(self._words[field // 8])

    def frame_of(self, warp: int) -> Bytes:
        """Return the frame of a warp."""
        size = self.launch.compiled.launch_info.frame_bytes
        return self.frames[warp * size : (warp + 1) * size]

    def lanes(self, warp: int, offset: int, bits: int) -> AnyArray:
        """Return an array in a warp's frame, with one element for each lane."""
        return self.frame_of(warp)[offset : offset + bits // 8 * abi.LANES].view(f"uint{bits}")
