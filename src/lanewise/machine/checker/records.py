"""The records that a checked launch keeps in memory: watches, clocks, shadow memory, the site table.

The compiled functions of the checker and Python both take offsets, flags and numbers from here. Time is
counted in epochs: one begins whenever another warp runs, and whenever lanes of a warp have met. Each watch
belongs to one thread of the host, so an epoch belongs to one warp.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, auto

from lanewise.jit.record_layout import numbers, pointer, table
from lanewise.machine.abi import LANES, RecordLayout, WarpFrame, field, per_lane
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.program.instruction_record import Order
from lanewise.machine.program.ops import Op


class WatchRecord(RecordLayout):
    """The state of one watch, which belongs to a thread of the host that runs blocks."""

    #: The current epoch.
    now = field()
    #: The warp of each epoch, counted over all blocks of this watch; and how many epochs there may be.
    log = numbers(4)
    log_size = field()
    next_warp = field()
    #: The warp that has its turn: the address of its frame.
    current = field()
    #: The site table.
    sites = table(lambda: SiteRow)
    #: An AllocationShadow for each allocation.
    allocations = table(lambda: AllocationShadow)
    allocation_count = field()
    #: The Python function that suspicions are reported to.
    callback = field()
    #: The number in the grid of each block that began.
    begun = numbers(4)
    #: Not 0 once Python cannot go on: no access is made any more.
    failed = field()
    #: A PartialRelease for each of RELEASES_KEPT epochs, by the last bits of the epoch.
    partial_releases = table(lambda: PartialRelease)
    #: An ObservedWrites for each of OBSERVATIONS_KEPT pairs of a cell and a warp.
    observed_writes = table(lambda: ObservedWrites)
    #: A NotedOperation for each of OPERATIONS_KEPT asynchronous operations, by the last bits of the epoch; 0
    #: if the kernel has none.
    operations = field()
    #: A WarpFence for each of FENCES_KEPT warps.
    fences = field()
    #: A SharedExtent for each variable of shared memory, and how many there are.
    extents = table(lambda: SharedExtent)
    extent_count = field()


class SharedExtent(RecordLayout):
    """A variable of shared memory: the offsets of its first byte and of the byte after its last."""

    first = field()
    end = field()


#: Releases by some lanes of a warp that are kept, a power of two.
RELEASES_KEPT = 4096


class PartialRelease(RecordLayout):
    """A release by some lanes, while others of the warp have made accesses since they last synchronised.

    It publishes accesses of those others only up to the epoch `synced`. Of each release, by some or by all
    lanes, `released` is the epoch, and `seen` what the warp knew then of the others of its block.
    """

    epoch = field(4)
    synced = field(4)
    others = field(4)
    released = field(4)
    seen = per_lane()


#: Pairs of a cell and a warp whose observations are kept, a power of two.
OBSERVATIONS_KEPT = 1024


class ObservedWrites(RecordLayout):
    """The writes of one cell that lanes of one warp have observed by strong reads of it.

    A read observes the write whose value it reads, and by a chain of atomics the writes before that one.
    """

    #: The address of the cell in its first plane, and the warp, counted over all blocks of the watch.
    place = field()
    warp = field()
    # For each lane: the epochs of the first write of the chain that it has observed, of the last one that it
    # has waited for, of the last one that it has observed, waiting or not, and of the read. The last writes
    # are 0 if there is none.
    first = per_lane()
    waited_for = per_lane()
    last = per_lane()
    read = per_lane()


#: The most elements that a load has.
MOST_ELEMENTS = 16


class RegisterValue(RecordLayout):
    """What is known of the value of a tracked register in a warp."""

    #: The lanes in which it has a value.
    lanes = field(4)
    # The row of the first instruction that computed without a value, and the index of the register that had
    # none, both one more; 0 if nothing was computed and the register itself is to be named.
    row = field(4)
    register = field(4)


class BlockWatch(RecordLayout):
    """The state that a watch keeps for one thread block while it runs."""

    #: For each warp and each doubtful register, a RegisterValue.
    assigned = field()
    #: For each basic block: how often it ran, and with how many lanes in all.
    runs = field()
    #: For each instruction: how often lanes diverged at it.
    diverged = field()
    #: The lane that each lane of the last shuffle reads; LANES if that one takes no part.
    shuffle_sources = per_lane()
    #: For each element of the last load from local memory: the lanes for which a byte was never written. The
    #: last one stands for the load: lanes for which nothing was written, nor beside it in a structure. Of a
    #: load from tensor memory the first one stands for all.
    unwritten_lanes = field(4, MOST_ELEMENTS + 1)
    #: The lanes in which the last comparison is combined with a predicate that has no value.
    undecided = field()
    #: The row of the last instruction that left a lane without a value: a shuffle, a load from local memory.
    undelivered_by = field()
    # By warp: the epoch in which lanes first learnt that cluster launch control has no block left for them,
    # the lanes, and the row of the instruction.
    refused = per_lane()
    refused_lanes = per_lane()
    refused_row = per_lane()
    #: Not 0 if the running warp begins a new epoch with its next access.
    fresh = field()
    #: The WatchRecord.
    watch = pointer(lambda: WatchRecord)
    linear = field()
    epoch = field()
    #: The epoch after which all are of the running warp, since it has its turn.
    own_after = field()
    #: The epoch in which the block began.
    start = field()
    first_warp = field()
    warps = field()
    # The blocks of its cluster, the first warp of the first one, and the last arrival at its barrier.
    cluster_blocks = field()
    cluster_first = field()
    cluster_arrival = field()
    # Shadow memory of shared memory, the distance of its planes, and the bytes of a cell as a power of two.
    shadow = field()
    stride = field()
    cell_shift = field()
    shared_bytes = field()
    local_shadow = field()
    local_bytes = field()
    # The epochs up to which everything has happened before now, for shared and for other memory.
    shared_floor = field()
    global_floor = field()
    #: A WarpClock for each warp, one for each barrier, and that of the running warp.
    clocks = table(lambda: WarpClock)
    barriers = table(lambda: WarpClock)
    #: The barriers that warps have arrived at since the block began, as bits: a new block clears these.
    barriers_used = field()
    clock = pointer(lambda: WarpClock)
    #: A LaneClocks for each warp, and that of the running warp.
    lane_clocks = table(lambda: LaneClocks)
    running_lanes = pointer(lambda: LaneClocks)
    # An AsyncClock for each warp, then one for each barrier; 0 if the kernel has no asynchronous operations.
    # Then its mbarriers, a FollowedBarrier each, and how many there are.
    async_clocks = field()
    followed = field()
    followed_count = field()
    #: They lie in shared memory from the first of these offsets to the second.
    followed_from = field()
    followed_to = field()
    #: A RemoteAccess for each warp of the cluster; 0 if the block is alone.
    remote_accesses = field()
    #: The epoch of the last copy out of the block's memory that an mbarrier of another block counts.
    sent = field()
    #: For each warp and each register of wgmma that is followed: a RegisterState.
    register_states = field()
    register_bytes = field()
    # Of tensor memory: a TensorCell for each group of lanes and column, a TensorClock for each warp (0: the
    # kernel has no tcgen05), and the row of the last tcgen05.alloc.
    tensor_cells = field()
    tensor_clocks = field()
    tensor_clock_bytes = field()
    tensor_alloc_row = field()


#: Acquires by some of its lanes that a warp's clock keeps.
LEARNT_LENGTH = 8
#: Publications of other blocks that a warp's clock keeps.
FOREIGN_LENGTH = 8
#: Releases that a warp's clock keeps beside the last one of each warp.
RELEASES_KNOWN = 8
#: Groups of asynchronous copies that a warp's clock keeps.
RING_LENGTH = 256
#: Waits for asynchronous copies that are kept of each lane, a power of two.
WAITS_KEPT = 8


class WarpClock(RecordLayout):
    """The vector clock of a warp: the epochs up to which the work of other warps happened before now.

    A barrier has one too: the join of the clocks of the warps that arrived.
    """

    #: The warp's number in its block.
    index = field()
    least = field()
    acquired = field()
    #: The epoch that strong reads without a fence behind them have shown the work of others up to.
    glimpsed = field()
    #: The same, as flags of the cluster's blocks have shown it, and as those of the own block have.
    glimpsed_in_cluster = field()
    glimpsed_in_block = field()
    #: The same by warp of the block.
    glimpsed_seen = per_lane()
    #: Publications of other blocks that this warp has read, the last ones; those without a fence since are
    #: marked as GLIMPSED. And how many there were.
    foreign = field(4, FOREIGN_LENGTH)
    foreign_count = field()
    # The epochs of the last fences: of any scope, at least of the cluster's, and of the scope of the GPU.
    published = field()
    published_cluster = field()
    published_gpu = field()
    #: Whether the warp knew then all that its block had done.
    published_whole = field()
    #: The epoch of the warp's last turn.
    last = field()
    # The epochs of the last synchronisation of all lanes, of some lanes, and of the last instructions at
    # which all lanes, and some lanes, met without an order of their accesses.
    synced = field()
    partly_synced = field()
    converged = field()
    partly_met = field()
    # Lanes that others of the warp wait for, at a barrier or by a mask; whether they accessed memory then.
    partial = field()
    awaited = field()
    broken = field()
    # Lanes that have accessed memory since all lanes synchronised or one of them acquired something; the
    # epoch of that acquire; and whether a publication was read that no acquire has followed.
    touched = field()
    acquired_at = field()
    shown = field()
    #: Of a barrier: the epochs of the fences with which warps have come, since their last barrier; else 0.
    fences = per_lane()
    #: Of a barrier: the epoch in which each warp arrived, and the same when it was last complete.
    arrivals = per_lane()
    last_arrivals = per_lane()
    # Acquires by some lanes since all lanes synchronised: the epochs that they learnt of, the lanes, and how
    # many there were; and the epochs up to which all lanes know everything, for shared and other memory.
    learnt = field(4, LEARNT_LENGTH)
    learners = field(4, LEARNT_LENGTH)
    #: What the warp knew before of the warp that released: lanes that did not acquire still know that.
    known_before = field(4, LEARNT_LENGTH)
    learnt_count = field()
    #: The lanes that have met one of these learners since, without an order.
    met_learners = field(4, LEARNT_LENGTH)
    shared_known = field()
    global_known = field()
    # The last release of the warp's own that came back to it by way of others: what its lanes did before is
    # known to all that have acquired the publication that brought it.
    returned = field()
    returned_by = field()
    #: The same, as strong reads without a fence behind them have shown it.
    returning = field()
    returning_by = field()
    #: The epoch from which on a release was incomplete that this warp relies on.
    incomplete_from = field()
    # Releases of warps of the block that this warp knows, and that a later one by some lanes only does not
    # stand for; and how many there were.
    known_releases = field(4, RELEASES_KNOWN)
    known_count = field()
    # The mbarrier at which lanes of the warp arrived last, by its address on the host, and the lanes that
    # have arrived there and accessed nothing since.
    arrived_at = field()
    arrived_lanes = field()
    # Lanes that have arrived at a barrier of the warp which is not complete; its mask and the row of the
    # first of them; and lanes that have accessed memory since.
    waiting = field()
    waiting_mask = field()
    waiting_row = field()
    strayed = field()
    #: By warp of the block: the epoch up to which it is known to have happened before; and its copies.
    seen = per_lane()
    seen_copies = per_lane()
    #: The epoch up to which an mbarrier counts copies when they are complete; and the epoch of the last
    #: phase that was waited for.
    tracked = field()
    phase_acquired = field()
    # The epoch of the last arrival at the barrier of the cluster, or of the last fence if it is relaxed; and
    # the one up to which all blocks of the cluster are known.
    cluster_arrival = field()
    cluster_known = field()
    # Lanes that have arrived there and not waited since; the epoch of the last arrival, relaxed or not; and
    # both epochs as they were when the barrier was last complete.
    cluster_unwaited = field()
    cluster_reached = field()
    cluster_completed = field()
    cluster_passed = field()


class LaneClocks(RecordLayout):
    """What the lanes of one warp know of each other, and their asynchronous copies."""

    #: For each lane: the epochs up to which the accesses of every lane happened before its own.
    seen = per_lane(4, LANES)
    #: The same, as lanes know that have met at a shuffle or a vote, without an order of their accesses.
    met = per_lane(4, LANES)
    #: The epochs up to which a lane's asynchronous copies are complete, as the lane and as other lanes know.
    copied = per_lane()
    copied_for_all = per_lane()
    #: The epoch of a lane's last asynchronous copy.
    issued = per_lane()
    #: How many groups of copies a lane has committed, and the epochs of the last ones.
    groups = per_lane()
    ring = per_lane(4, RING_LENGTH)
    #: How many waits of a lane found copies complete, in all blocks; the epochs of the last ones, and the
    #: epochs up to which the copies of the lane were complete then.
    waits = per_lane()
    waited_at = per_lane(4, WAITS_KEPT)
    waited_for = per_lane(4, WAITS_KEPT)


class ShadowPlane(IntEnum):
    """The planes of shadow memory; each has a 32-bit word for every cell of 1, 2 or 4 bytes of memory."""

    WRITE_EPOCH = 0
    WRITER = 1
    #: The lanes of one instruction that wrote the same value, if the writer has the flag SEVERAL.
    WRITE_LANES = 2
    READ_EPOCH = 3
    READER = 4
    #: The lanes of the last reader's warp that have read without an order among them.
    READ_LANES = 5
    #: A reader before the last one; or an atomic, or a weak write, before the last write.
    EARLIER_EPOCH = 6
    EARLIER_READER = 7
    #: The epoch up to which a cell has published what happened before.
    PUBLICATION = 8
    #: Of an mbarrier: the warps of the block that have arrived in a phase, as bits.
    PUBLISHERS = 9
    # If the last write is strong: the epoch of the first write of the chain of atomics that it belongs to,
    # and the word that the last write has replaced.
    CHAIN_BEGIN = 10
    REPLACED_WORD = 11
    # Of shared memory: the first epoch in which the cell was read after its last write, and the warps of the
    # block that have read it since, as bits.
    FIRST_READ = 12
    READ_WARPS = 13
    # The last asynchronous read, and the last one by another warpgroup or warp.
    ASYNC_READ_EPOCH = 14
    ASYNC_READER = 15
    ASYNC_EARLIER_EPOCH = 16
    ASYNC_EARLIER_READER = 17


#: An epoch with this bit: an asynchronous copy that was not yet waited for when it was noted.
PENDING = 1 << 31
EPOCHS = PENDING - 1
# Bits of a publication: by a fence whose scope is the block; the parity of an mbarrier's phase; the warp knew
# all that its block had done; it rests on publications of other blocks. The rest is an epoch.
WITHIN_BLOCK, ODD_PHASE, WHOLE, CHAIN = 1 << 31, 1 << 30, 1 << 29, 1 << 28
PUBLISHED = CHAIN - 1
#: Of a publication that is no phase's, beside WITHIN_BLOCK: the blocks of the cluster see it, too.
WITHIN_CLUSTER = 1 << 30
# In the list of a warp's clock: no fence has followed the read; an arrival in another block at the scope of
# its own told of it, which orders reads before later writes, but gives no guarantee for what was written.
GLIMPSED, NARROW = 1 << 30, 1 << 31
#: There, too, beside GLIMPSED: a flag of the own block told of it, so that an acquire of any scope is enough.
TOLD_IN_BLOCK = CHAIN
#: Beside an earlier access in one word: it is a write, and what comes after it reads.
READ_OF_WRITTEN = 1 << 32
# An access in one word (`who`): the lane, flags, then the number of the access.
#: An instruction of the whole warp: the access belongs to no single lane.
COLLECTIVE = 1 << 5
#: Several lanes of one instruction wrote the same value.
SEVERAL = 1 << 6
#: Of what is kept as an earlier reader: it is a weak write that a strong one has replaced.
REPLACED_WRITE = SEVERAL
# Strong at the scope of the GPU, and at that of the block; both: at that of the cluster.
STRONG, STRONG_IN_BLOCK = 1 << 7, 1 << 8
VOLATILE = 1 << 9
#: A read and a write in one step.
ATOMIC = 1 << 10
#: A read by ld.global.nc, of memory that must not be written while the kernel runs.
CONSTANT_READ = 1 << 11
#: Beside an access in one word that is reported: a strong read has observed it, perhaps without waiting.
OBSERVED = 1 << 33
#: An asynchronous operation, which accesses memory by the asynchronous proxy.
ASYNC_PROXY = 1 << 12
SITE_SHIFT = 13
MOST_NUMBERS = (1 << 32 - SITE_SHIFT) - 1


class AllocationShadow(RecordLayout):
    """The shadow memory of an allocation: the address of its first plane, the distance of its planes."""

    first = field()
    size = field()
    plane = field()
    stride = field()
    #: The bytes of a cell, as a power of two.
    cell_shift = field()
    #: The address of its memory on the host.
    host = field()
    # The bytes that were accessed lie from here to there; without any, the first is beyond the last.
    accessed_from = field()
    accessed_to = field()
    #: Whether reads are put on record: they need not be in memory that nobody writes.
    reads_recorded = field()
    #: Of the heap: the state of each byte; else 0.
    byte_states = field()
    #: The flags of all accesses to it; -1 if asynchronous ones are among them.
    flags = field()
    #: Of memory that outlives the launch: a mark for each byte that was ever written; else 0.
    initialised = field()


#: The most accesses of an asynchronous operation that are held to bounds: target, source, mbarrier.
MOST_BOUNDED = 3


class SiteRow(RecordLayout):
    """A row of the site table: how an instruction, or one access of it, is watched, and what was counted."""

    # The address, a mask or the number of a barrier: a register's offset (-1: none), its bits, a constant.
    base = field()
    base_bits = field()
    displacement = field()
    space = field()
    access_size = field()
    flags = field()
    lanes_read = field()
    # The bounds of what the address was computed from, as offsets: a shared variable, or a view of an array
    # up to the next view that was passed. 0 if that is not known.
    lowest = field()
    highest = field()
    # The same for the accesses of an asynchronous operation, by their number in its record: two words each,
    # offsets in shared memory or addresses of global memory.
    operand_bounds = field(elements=2 * MOST_BOUNDED)
    # The stride of a tile, the count of a barrier, the parity that is waited for at an mbarrier or the
    # arrivals there: a constant, and a register's offset if it is in one.
    step = field()
    step_base = field()
    #: The bytes that the address of a tile has to be a multiple of; of a load from local memory: the bytes of
    #: the block in which it may meet padding of a structure.
    alignment = field()
    #: The bits of an element of a tile, or of a load.
    element_bits = field()
    #: The AllocationShadow of the last access; how often it was another one than before.
    last_allocation = pointer(lambda: AllocationShadow)
    allocation_changes = field()
    #: The number of the access in shadow memory; 0 if the row is of none.
    number = field()
    requests = field()
    threads = field()
    wavefronts = field()
    ideal = field()
    sectors = field()
    #: The sectors that the same bytes would take if they lay side by side.
    least_sectors = field()
    moved_bytes = field()
    # What a plain store writes: how many elements, and the address of a list of StoredElement. The count is
    # negative if they only decide on what is written, as the count of an mbarrier does.
    stored_count = field()
    stored = table(lambda: StoredElement)
    #: The LastRequest of the instruction.
    last_request = pointer(lambda: LastRequest)
    # Bytes of a load in which padding was seen, as the bits of masks: those that nobody needs, and those that
    # are copied, which are padding if something was written in the same aligned block of so many bytes.
    dropped_bytes = field()
    copied_bytes = field()
    padded_block = field()
    # Of a strong read: a Decision about its value, what the value is compared with (a register's offset, -1:
    # none, or a constant), and the bit that is flipped before.
    decision = field()
    decision_base = field()
    decision_constant = field()
    flipped_bit = field()
    #: Of a load: the lanes of each warp that can observe what it gives them; 0 if all can.
    observing = numbers(4)
    #: How often each kind of suspicion came up, and how often to report it.
    counts = field(elements=len(Suspicion))
    limits = field(elements=len(Suspicion))


class StoredElement(RecordLayout):
    """An element that a store writes: a register's offset (-1: none), a constant, its bytes in memory.

    Of stmatrix there is one for each element of each row, with the lane that holds it and its first bit in
    the register.
    """

    register = field()
    register_bits = field()
    constant = field()
    bytes = field()
    lane = field()
    first_bit = field()


#: Cells of shadow memory that are examined together where lanes tile memory.
CELLS_TOGETHER = 16
#: The most bytes of a warp's access: 16 for each lane.
MOST_BYTES = 16 * LANES


#: Requests of an instruction whose addresses are kept: the first ones that differ in their pattern.
MOST_SAMPLES = 4
#: … and the most places at which requests with the same distances between lanes are kept.
MOST_SAMPLE_BASES = 16


class LastRequest(RecordLayout):
    """The last request of an instruction; its cost holds for the next request of the same pattern."""

    key = field()
    wavefronts = field()
    ideal = field()
    sectors = field()
    least_sectors = field()
    least_offset = field()
    most_offset = field()
    #: If lanes fill a range of cells exactly, in any order: how many, and the lane of each; else 0.
    tiled_cells = field()
    lane_of_cell = field(1, MOST_BYTES, 64)
    pattern = per_lane(8)
    # Samples for verdicts on its cost: how many there are, and which of them the last request is like (-1:
    # none). Of each whether it is of shared memory, the active lanes, the lanes' offsets in shared memory or
    # in an allocation; the offsets of the first active lane in requests like it, the sample's own first.
    sample_count = field()
    current_sample = field()
    sample_shared = field(8, MOST_SAMPLES)
    sample_lanes = field(8, MOST_SAMPLES)
    sample_offsets = field(8, MOST_SAMPLES * LANES)
    sample_base_count = field(8, MOST_SAMPLES)
    sample_bases = field(8, MOST_SAMPLES * MOST_SAMPLE_BASES)


class Access(RecordLayout):
    """An access by lanes of one warp to one allocation, to a block's shared memory, or to local memory."""

    frame = pointer(lambda: WarpFrame)
    #: The BlockWatch of the warp's block, and of the block whose memory it is.
    watch = pointer(lambda: BlockWatch)
    home = pointer(lambda: BlockWatch)
    #: The row of the site table, by its number and its address; its flags and the bytes of each lane.
    site = field()
    row = pointer(lambda: SiteRow)
    flags = field()
    size = field()
    #: The lanes whose bytes all lie in the memory.
    active = field()
    #: A Space that is not generic; whether it is shared memory.
    space = field()
    shared = field()
    # The memory: its first address, its bytes, and where it lies on the host.
    origin = field()
    limit = field()
    host = field()
    # Its shadow memory: the first plane, the distance of planes, the bytes of a cell as a power of two.
    plane = field()
    stride = field()
    shift = field()
    # The offset of the first byte that lanes access, and of the byte after the last; whether all lie inside.
    lowest = field()
    highest = field()
    inside = field()
    #: The access in one word, but for its lane; PENDING if it is the write of an asynchronous copy, else 0.
    who = field()
    pending = field()
    #: The addresses of all lanes, and their offsets in the memory.
    addresses = per_lane(8)
    offsets = per_lane(8)


class Space(IntEnum):
    """The state spaces as the rows of the site table name them."""

    GLOBAL = 0
    SHARED = 1
    LOCAL = 2
    GENERIC = 3


class Flag(IntFlag):
    """The properties of an access that the compiled checker needs."""

    READS = auto()
    WRITES = auto()
    STRONG_ACCESS = auto()
    #: Strong, but only for threads of the same block, or of the same cluster.
    IN_BLOCK = auto()
    IN_CLUSTER = auto()
    RELEASES = auto()
    ACQUIRES = auto()
    #: The write of an asynchronous copy.
    COPIES = auto()
    #: Rows of ldmatrix or stmatrix.
    MATRIX = auto()
    #: Lines of wmma.load or wmma.store.
    TILE = auto()
    #: The addresses of all lanes have to be good; for a barrier: it is one of lanes of a warp.
    EVERY_LANE = auto()
    #: A word of a row comes from the lane that holds it, not from that of its address.
    BY_WORD = auto()
    VOLATILE_ACCESS = auto()
    #: An mbarrier object, whose phases publish what came before them.
    PHASES = auto()
    #: A barrier at which threads wait, and do not only arrive.
    WAITS = auto()
    #: It reads memory that must not be written in this launch.
    CONSTANT = auto()
    #: It reads registers of other lanes.
    SHUFFLES = auto()
    #: It ends the life of an mbarrier.
    INVALIDATES = auto()
    #: An arrival at an mbarrier that publishes for the own block only, wherever the mbarrier is; or a test of
    #: its phase that acquires only what threads of the own block released.
    NARROW_PHASE = auto()
    #: An arrival at an mbarrier that comes when the thread's copies are complete: cp.async.mbarrier.arrive.
    ARRIVES_LATER = auto()
    #: An asynchronous store by the generic proxy: st.async, red.async.
    GENERIC_PROXY = auto()
    #: An atomic that leaves what is there, as the addition of 0 does: threads poll by it and publish nothing.
    POLLS = auto()
    #: One lane makes the access for all that execute the instruction.
    BY_ONE_LANE = auto()
    #: Of an allocation, beside the flags of other accesses to it: asynchronous operations have read it.
    ASYNC_READS = auto()


class ShuffleMode(IntEnum):
    """How shfl finds the lane that it reads."""

    INDEX = 0
    UP = 1
    DOWN = 2
    BUTTERFLY = 3


#: Vector clocks follow the kind, and not only the clocks of asynchronous operations.
VECTOR_CLOCKS = True


class OrderKind(IntEnum):
    """A kind of ordering instruction: its number in the flags of a row, and which instructions it is for.

    A kind with modifiers is for instructions that have one of them, and comes after the kind without.
    """

    order: Order
    modifiers: tuple[str, ...]
    in_vector_clocks: bool

    def __new__(
        cls, order: Order, modifiers: tuple[str, ...] = (), in_vector_clocks: bool = False
    ) -> OrderKind:
        """Give each kind the next number, from 1 on."""
        number = len(cls.__members__) + 1
        made = int.__new__(cls, number)
        made._value_ = number
        made.order, made.modifiers, made.in_vector_clocks = order, modifiers, in_vector_clocks
        return made

    FENCE = Order.FENCE, (), VECTOR_CLOCKS
    #: A fence whose scope is the block, and one whose scope is the cluster.
    BLOCK_FENCE = Order.FENCE, ("cta",), VECTOR_CLOCKS
    CLUSTER_FENCE = Order.FENCE, ("cluster",), VECTOR_CLOCKS
    COMMIT = Order.COMMIT, (), VECTOR_CLOCKS
    #: Waits for all groups but the latest ones, as many as the displacement says; -1: for all copies.
    WAIT = Order.WAIT_GROUP, (), VECTOR_CLOCKS
    TRACK = Order.TRACK, (), VECTOR_CLOCKS
    # From here on, those of asynchronous operations: fences between the generic and the asynchronous proxy.
    PROXY_FENCE = (Order.PROXY_FENCE,)
    PROXY_FENCE_SHARED = Order.PROXY_FENCE, ("shared::cta", "shared::cluster")
    PROXY_FENCE_GLOBAL = Order.PROXY_FENCE, ("global",)
    # Groups of wgmma and of bulk copies; how many of the latest are not waited for is the displacement.
    WGMMA_FENCE = (Order.WARPGROUP_FENCE,)
    WGMMA_COMMIT = (Order.WARPGROUP_COMMIT,)
    WGMMA_WAIT = (Order.WARPGROUP_WAIT,)
    BULK_COMMIT = (Order.BULK_COMMIT,)
    BULK_WAIT = (Order.BULK_WAIT,)
    BULK_WAIT_READ = (Order.BULK_WAIT_READ,)
    #: What mbarrier.init wrote is visible to all.
    INIT_FENCE = Order.INIT_FENCE, (), VECTOR_CLOCKS
    #: A tensor map that was changed is seen as it is.
    MAP_FENCE = (Order.MAP_FENCE,)
    # A tensor map that was changed before is released; the same by the instruction that copies it.
    MAP_RELEASE = (Order.MAP_RELEASE,)
    MAP_COPY = (Order.MAP_COPY,)
    # A warpgroup gives up registers, or takes some; how many it has then is the displacement.
    GIVE_REGISTERS = (Order.REGISTERS,)
    TAKE_REGISTERS = Order.REGISTERS, ("inc",)
    # Arrivals at the barrier of a cluster; one that is relaxed releases nothing.
    CLUSTER_ARRIVAL = Order.CLUSTER_ARRIVAL, (), VECTOR_CLOCKS
    CLUSTER_ARRIVAL_RELAXED = Order.CLUSTER_ARRIVAL, ("relaxed",), VECTOR_CLOCKS


def order_kind(op: Op) -> OrderKind:
    """Return the kind of an instruction that orders something."""
    order = op.record.orders
    order = Order.WAIT_GROUP if order is Order.WAIT_ALL else order
    first, *others = (kind for kind in OrderKind if kind.order is order)
    return next((kind for kind in others if any(op.has(name) for name in kind.modifiers)), first)
