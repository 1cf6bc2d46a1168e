"""The records by which a check follows asynchronous operations: wgmma, bulk copies, mbarriers, proxy fences.

An asynchronous operation has an epoch of its own, in which its instruction was issued. Which bytes it reads
and writes is noted in shadow memory under that epoch; who knows that it is complete is found here. Only
kernels that have such instructions keep these records, and only those with tcgen05 the records of tensor
memory at the end.
"""

from enum import IntEnum, IntFlag, auto

from lanewise.isa.multiprocessor import MOST_CLUSTER_BLOCKS
from lanewise.jit.record_layout import embedded, pointer
from lanewise.machine.abi import LANES, RecordLayout, WarpFrame, field, per_lane
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, TENSOR_LANES

#: Groups of operations that a clock keeps, a power of two.
GROUPS_KEPT = 16
#: Operations that a watch keeps, a power of two: older ones count as complete.
OPERATIONS_KEPT = 1 << 15
#: mbarriers of a block that are followed, and completed phases of each that are kept, a power of two.
BARRIERS_FOLLOWED, PHASES_KEPT = 64, 8


#: Asynchronous reads that are remembered while the runs of one operation are looked at, a power of two.
READS_VERIFIED = 4


class AsyncKind(IntEnum):
    """By what an asynchronous operation tells that it is complete."""

    #: A group of wgmma, for which the warpgroup waits.
    WGMMA = 1
    #: A group of bulk copies, for which the thread waits.
    BULK_GROUP = 2
    #: A phase of an mbarrier.
    PHASE = 3
    #: A tcgen05.commit after it, which arrives at an mbarrier.
    TENSOR = 4


class AsyncFlag(IntFlag):
    """What one run of bytes of an asynchronous operation is to the checker."""

    READS = auto()
    WRITES = auto()
    #: The memory is shared, and not global.
    SHARED = auto()
    #: What is written is combined with what is there, element by element, as atomics do.
    REDUCES = auto()
    #: The access is by the generic proxy: it needs no fence after plain accesses.
    GENERIC = auto()


class RunView(RecordLayout):
    """What is needed to look at runs of bytes of one operation, in one block's shared memory or one array."""

    frame = pointer(lambda: WarpFrame)
    site = field()
    flags = field()
    epoch = field()
    #: The access in one word.
    who = field()
    #: The BlockWatch of the block that issued it, and of the block whose memory it is.
    observed = pointer(lambda: BlockWatch)
    home = pointer(lambda: BlockWatch)
    # The shadow memory: the first plane, the distance of planes, the bytes of a cell as a power of two.
    plane = field()
    stride = field()
    shift = field()
    #: Where the memory begins on the host, and on the device.
    host = field()
    origin = field()
    #: The marks of the bytes of an allocation that were ever written; 0 if they are not followed.
    initialised = field()
    # Epochs: what was accessed up to there is ordered before, and what was written visible to the other
    # proxy as well; before the last one nothing was written.
    floor = field()
    fenced = field()
    start = field()
    #: Plain reads up to there may be written over by the other proxy.
    handed_over = field()
    # What was examined before, and found or reported: the last write, and the last asynchronous reads (the
    # slices of a tile are read by several wgmma), with how many there were.
    verified = field()
    verified_reads = field(4, READS_VERIFIED)
    verified_earlier = field(4, READS_VERIFIED)
    verified_count = field()
    # The same for plain reads that are ordered before.
    verified_plain_reads = field(4, READS_VERIFIED)
    verified_plain_count = field()
    #: The bits of addresses that a matrix descriptor swizzles, plus one; 0 for other operations.
    swizzle = field()
    #: The number of the type in a tensor map that a product takes the elements for; 0 if it is not known.
    type = field()


class NotedOperation(RecordLayout):
    """One operation, found by the last bits of its epoch."""

    epoch = field(4)
    kind = field(4)
    #: The warp that issued it, or the first warp of the warpgroup, as a number in its block; the lane.
    agent = field(4)
    lane = field(4)
    #: Of a phase: the number of the mbarrier in the table of its block, and that of the phase; of wgmma: the
    #: number of the group.
    barrier = field(4)
    phase = field(4)
    #: Of a bulk group: the epoch in which its thread knew it to be complete; 0 before.
    completed = field(4)
    #: Of a phase: the BlockWatch of the mbarrier's block; of tcgen05: that of the issuer's; else 0.
    home = pointer(lambda: BlockWatch)
    #: Of a bulk group: what is copied from where to where, as one number; 0 for a reduction.
    contents = field()
    #: Of a load of a box: the bits of shared addresses that its swizzle changes, plus one; 0 if unknown.
    swizzle = field(4)
    #: The number of its type in the tensor map, if that is f16 or bf16; else 0.
    type = field(4)
    #: Whether it writes by the generic proxy.
    generic = field(4)


class AsyncClock(RecordLayout):
    """What a warp knows of asynchronous operations, and what it has under way; a barrier has one too.

    The vectors have an element for each warp of the block: an epoch up to which something is known of it.
    The four warps of a warpgroup count their groups of wgmma alike, since they execute the same ones.
    """

    #: Its writes by plain stores are visible to the asynchronous proxy: to shared, and to global memory.
    fenced_of = per_lane()
    fenced_global_of = per_lane()
    #: The sources of its bulk groups have been read, and their results are written.
    reads_of = per_lane()
    writes_of = per_lane()
    #: How many groups of wgmma of its warpgroup are complete; the element is that of the first warp.
    wgmma_of = per_lane()
    #: Its plain reads of shared memory lie before a fence between the proxies, or are known by an mbarrier or
    #: a flag: the asynchronous proxy may write there.
    handed_over_of = per_lane()
    #: Its writes to shared and to global memory that the warp whose clock this is had learnt of when it
    #: executed a fence.proxy.async.
    covered_by_own_fence = per_lane()
    covered_by_own_global_fence = per_lane()
    # The last plain writes of each lane, and its last fences, for shared and for global memory.
    wrote = per_lane()
    wrote_global = per_lane()
    last_fence = per_lane()
    last_global_fence = per_lane()
    #: The last fence.mbarrier_init of each lane, and the last ones that acquire and that release tensor maps.
    init_fenced = per_lane()
    map_fenced = per_lane()
    map_released = per_lane()
    # Bulk groups of each lane: its last operation, how many groups were committed and in which epochs, the
    # epochs up to which it knows them to be read and to be complete, and when it learnt that.
    bulk_issued = per_lane()
    bulk_groups = per_lane()
    bulk_read = per_lane()
    bulk_done = per_lane()
    bulk_read_at = per_lane()
    bulk_done_at = per_lane()
    bulk_ring = per_lane(4, GROUPS_KEPT)
    #: How many groups of wgmma the warp has committed, and how many of them it knows to be complete.
    wgmma_groups = field()
    wgmma_done = field()
    #: How many wgmma.fence it has executed.
    fences = field()
    # The accumulators of its last wgmma, as one number, and its group plus one; 0 if one was touched since.
    sums = field()
    sums_group = field()
    # The registers that setmaxnreg has left it with (0: those of the launch), the row of the last one, and
    # all numbers that it has asked for, in one.
    registers = field()
    registers_row = field()
    registers_history = field()


#: How many vectors an AsyncClock begins with that pass to others when threads synchronise; the last of them.
VECTORS, HANDED_OVER = 6, 5
assert AsyncClock.handed_over_of == HANDED_OVER * 4 * LANES


class AsyncVectors(RecordLayout):
    """These vectors of an AsyncClock, or as a PhaseRecord has them."""

    vectors = per_lane(4, VECTORS)


class RegisterState(RecordLayout):
    """A register of wgmma in one warp: in which group it is in flight, and who wrote it last."""

    # The number of the last group, plus one, in which it is an accumulator, and in which it is read.
    group = field(4)
    read_group = field(4)
    #: The instruction of that group, and how many accumulators it has.
    product = field(4)
    shape = field(4)
    #: The fences that the warp had executed when another instruction wrote it, plus one; and which one.
    written = field(4)
    writer = field(4)


class RemoteAccess(RecordLayout):
    """The last access of each lane of a warp to the shared memory of one other block of its cluster."""

    #: The epoch, 0 if there is none or it is known to the block; and the row of the site table.
    epoch = per_lane()
    row = per_lane()
    #: Of an arrival at an mbarrier: the phase, and the number of the mbarrier; else 0.
    phase = per_lane()
    address = per_lane(8)


class WarpFence(RecordLayout):
    """The last fence between proxies of a warp, found by the last bits of its number in the watch."""

    #: The number plus one, and the epoch.
    warp = field(4)
    epoch = field(4)


#: Warps whose last fence a watch keeps, a power of two.
FENCES_KEPT = 4096


class PhaseRecord(RecordLayout):
    """One phase of an mbarrier: what the threads that arrived knew, and who has seen that it is complete."""

    #: AsyncVectors: the join over those who arrived.
    known = per_lane(4, VECTORS)
    #: By warp of the block: the epoch in which it saw the phase complete, and which lanes did.
    witnessed = per_lane()
    witnesses = per_lane()
    # By warp of the block: the epoch of its last arrival, and which lanes have arrived.
    arrived = per_lane()
    arrivers = per_lane()
    # In a cluster: by rank the epoch up to which those who arrived knew the block, the same as arrivals of
    # the block's own scope tell it, and that up to which they knew everything.
    members = field(4, MOST_CLUSTER_BLOCKS)
    narrow_members = field(4, MOST_CLUSTER_BLOCKS)
    acquired = field()


class BarrierUse(IntEnum):
    """What an access is to the words of an mbarrier: a plain access, or the begin or end of its life."""

    STORE = 0
    INIT = 1
    INVAL = 2
    LOAD = 3


class FollowedBarrier(RecordLayout):
    """An mbarrier of a block: where it lies, and its phases."""

    offset = field()
    parity = field()
    #: The row of the last instruction that made it expect bytes.
    row = field()
    #: The last phase that bytes of a copy were counted for, and the row of that copy.
    copy_phase = field()
    copy_row = field()
    #: The last phase in which a copy counts bytes, or at which its end arrives, and its row.
    owed_phase = field()
    owed_row = field()
    # When and by which lane of which warp it was initialised (0: before it was followed), that access in one
    # word, and whether it was looked at if that is visible to the asynchronous proxy.
    init_epoch = field()
    initialiser = field()
    init_warp = field()
    init_lane = field()
    visible = field()
    # The epoch of the last instruction that arrived, and how often its lanes have.
    arrival_epoch = field()
    arrivals = field()
    # The last phase in which a tcgen05.commit was issued, how many were, the epoch of the last and its row.
    commit_phase = field()
    commits = field()
    commit_epoch = field()
    commit_row = field()
    #: How many phases are complete.
    phase = field()
    phases = embedded(PhaseRecord, PHASES_KEPT)


#: Lanes of a cell, and the groups of so many lanes that tensor memory has.
CELL_LANES = 16
LANE_GROUPS = TENSOR_LANES // CELL_LANES
CELLS = LANE_GROUPS * TENSOR_COLUMNS
#: Waits, and commits, of a warp that are kept, powers of two: older ones count as known to all.
WAITS_KEPT, COMMITS_KEPT = 16, 64


class TensorFlag(IntFlag):
    """What an instruction does to the cells of tensor memory that it reaches."""

    READS = auto()
    WRITES = auto()
    #: It is an operation of the pipe: tcgen05.mma, cp or shift. Others are loads and stores of a warp.
    PIPE = auto()
    #: Every column has to be written before it is read; without it, one of them has to be.
    EVERY_COLUMN = auto()
    #: That some columns were never written is worth advice.
    ADVISES = auto()
    #: The columns are freed.
    FREES = auto()
    #: Every cell has to be written before it is read.
    EVERY_CELL = auto()
    #: It is D of a product that is written.
    SUMS = auto()
    #: What a product has written as D cannot be read as this operand.
    NO_SUMS = auto()


class TensorOperand(IntEnum):
    """What a product reads from tensor memory; above the bits of TensorFlag, in one number with them."""

    SUMS = 0
    MATRIX_A = 1
    SCALES_OF_A = 2
    SCALES_OF_B = 3
    METADATA = 4


#: The first bit of a TensorOperand beside TensorFlags.
OPERAND_SHIFT = 16
assert max(TensorFlag) < 1 << OPERAND_SHIFT


class TensorWait(IntEnum):
    """What a warp executes after its own instructions of tcgen05, so that others may rely on them."""

    LOADS = 0  # tcgen05.wait::ld
    STORES = 1  # tcgen05.wait::st
    FENCE = 2  # tcgen05.fence::before_thread_sync


class TensorCell(RecordLayout):
    """A cell: the epochs and words (`who`) of its last write, its last load, and its last use by the pipe.

    `extent` is that of the last write, if the pipe wrote: all columns that the instruction wrote, and whether
    they are D of a product. `used_as` is the TensorOperand of the last use.
    """

    written = field(4)
    writer = field(4)
    loaded = field(4)
    loader = field(4)
    used = field(4)
    user = field(4)
    extent = field(4)
    used_as = field(4)


class Commit(RecordLayout):
    """A tcgen05.commit: its epoch and lane, and the phase of the mbarrier that it arrives in."""

    epoch = field()
    lane = field()
    home = pointer(lambda: BlockWatch)
    number = field()
    phase = field()


class TensorClock(RecordLayout):
    """What a warp has done to wait for its own tcgen05 instructions; the last ones of each are kept."""

    #: The epochs of what a TensorWait counts, WAITS_KEPT for each kind of it, and how many there were.
    waits = field(8, len(TensorWait) * WAITS_KEPT)
    wait_counts = field(8, len(TensorWait))
    # The epoch of the last tcgen05.fence::after_thread_sync, and what the warp knew of others by then, as in
    # its WarpClock.
    after_fence = field()
    after_acquired = field()
    after_seen = per_lane()
    #: The columns that the warp asked for last; 0: it has allocated none.
    allocated = field()
    commit_count = field()
    commits = embedded(Commit, COMMITS_KEPT)
