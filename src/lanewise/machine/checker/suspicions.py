"""What compiled code of the checker reports to Python: the kinds of suspicions."""

from __future__ import annotations

from enum import IntEnum, auto


class Suspicion(IntEnum):
    """What compiled code reports to Python, which decides whether it is a finding."""

    AFTER_WRITE = 0
    AFTER_READ = auto()
    # Ordered, but only because lanes met or because a read without a fence saw a flag.
    WEAKLY_AFTER_WRITE = auto()
    WEAKLY_AFTER_READ = auto()
    UNINITIALISED = auto()
    UNFINISHED_COPY = auto()
    #: An asynchronous operation may still be reading what is written.
    UNFINISHED_READ = auto()
    # What plain stores wrote, and an asynchronous operation accesses: without a fence between the proxies, or
    # with one, but not in the thread that wrote.
    UNFENCED = auto()
    WEAKLY_FENCED = auto()
    #: What plain loads read, and an asynchronous operation writes: no fence between the proxies.
    READ_UNFENCED = auto()
    # Registers of wgmma: touched while it is in flight; written without a fence after it; no fence at all.
    REGISTER_IN_FLIGHT = auto()
    REGISTER_UNFENCED = auto()
    NO_WGMMA_FENCE = auto()
    #: A thread exits while its bulk copies may still be reading shared memory.
    EXITED_COPYING = auto()
    #: A block ends while a bulk copy into its shared memory was never waited for.
    ENDED_COPYING = auto()
    #: A live mbarrier is overwritten, or initialised again.
    BARRIER_OVERWRITTEN = auto()
    #: Bytes that an mbarrier was told to expect have not come when its block ends, or more have.
    BYTES_LEFT_OVER = auto()
    #: The asynchronous proxy uses an mbarrier whose initialisation no fence has made visible to it.
    BARRIER_UNFENCED = auto()
    #: wgmma reads with another swizzle than a tensor copy wrote with.
    SWIZZLE_DIFFERS = auto()
    #: A tensor map is used that was changed, without a fence that acquires it.
    MAP_UNFENCED = auto()
    # Lanes of one instruction arrive more often at an mbarrier than its phase expects; a thread arrives that
    # does not know whether the phase before is complete.
    ARRIVALS_BEYOND_COUNT = auto()
    ARRIVAL_UNORDERED = auto()
    #: A second arrival at the barrier of a cluster with no wait between.
    CLUSTER_ARRIVED_TWICE = auto()
    # A block accesses the memory of another one that may have exited by then; the same, but the other block
    # has waited at the cluster's barrier, where this one's arrival was relaxed.
    TARGET_MAY_EXIT = auto()
    TARGET_WEAKLY_KEPT = auto()
    # setmaxnreg: by some lanes of a warp only; by warps of a warpgroup that differ; more than the block has;
    # nothing is taken or given; ignored, since no bound is known.
    REGISTERS_BY_SOME_LANES = auto()
    REGISTERS_OF_SOME_WARPS = auto()
    REGISTERS_BEYOND_POOL = auto()
    REGISTERS_NEEDLESS = auto()
    REGISTERS_UNBOUNDED = auto()
    #: Memory that is read by ld.global.nc is written in the same launch.
    NOT_CONSTANT = auto()
    SAME_ADDRESS = auto()
    # An access outside of what its address was computed from; an asynchronous operation that begins in a
    # variable of shared memory and ends outside of it.
    OUTSIDE = auto()
    RUNS_OUT = auto()
    NOT_A_MEMBER = auto()
    ABSENT_MEMBER = auto()
    EXITED_MEMBER = auto()
    MASKS_DIFFER = auto()
    BARRIER_OVERFULL = auto()
    EXITED_WARPS = auto()
    #: Threads of a block have exited when it arrives at the barrier of the grid.
    LEFT_GRID = auto()
    SPLIT_BARRIER = auto()
    TILE_ALIGNMENT = auto()
    TILE_STRIDE = auto()
    TILE_UNIFORM = auto()
    IGNORED_ADDRESS = auto()
    IGNORED_ALIGNMENT = auto()
    BARRIER_COUNT_WRONG = auto()
    NO_VALUE = auto()
    HEAP_OUTSIDE = auto()
    HEAP_FREED = auto()
    HEAP_UNINITIALISED = auto()
    #: Memory is written that was taken for memory that is only read: the launch has to be repeated.
    UNRECORDED_READS = auto()
