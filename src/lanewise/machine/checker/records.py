"""Where things lie while a kernel is checked: the launch's and each block's watch, clocks, shadow memory.

Offsets are in bytes. The compiled functions (`shadow.py`, `clocks.py`) and Python use them.

Time is counted in epochs: one begins whenever another warp runs, and whenever lanes of a warp have
synchronised. Execution is by one thread, so an epoch belongs to one warp.
"""

from __future__ import annotations

from lanewise.machine.codegen.instrumentation import FRESH

# The launch.
(
    NOW, LOG, LOG_SIZE, NEXT_WARP, CURRENT, SITES, ALLOCATIONS, ALLOCATION_COUNT, CALLBACK, BEGUN
) = range(0, 80, 8)  # fmt: skip
WATCH_BYTES = 128

# A block of threads; begins with what `observe.py` calls.
(
    WATCH, LINEAR, EPOCH, START, FIRST_WARP, WARPS, SHADOW, STRIDE, SHARED_BYTES, LOCAL_SHADOW, LOCAL_BYTES,
    SHARED_FLOOR, GLOBAL_FLOOR, CLOCKS, BARRIERS, CLOCK,
) = range(FRESH + 8, FRESH + 8 + 16 * 8, 8)  # fmt: skip
OBSERVED_BYTES = 512

# A warp's clock: what of each other warp of its block, and of everybody, happened before now.
LEAST, ACQUIRED, PUBLISHED, COPIED, GROUPS = range(0, 40, 8)
# Lanes that others of the warp wait for, at a barrier or a mask; whether they did something meanwhile.
PARTIAL, AWAITED, BROKEN = 40, 48, 56
RING, RING_LENGTH = 64, 64  # the epochs at which groups of asynchronous copies were committed
SEEN, SEEN_COPIES = 320, 448
TRACKED = 576  # the epoch up to which an mbarrier is told of copies when they are complete
CLOCK_BYTES = 640
# A barrier: what those who arrived bring along. ACQUIRED, PUBLISHED, SEEN and SEEN_COPIES are as above.
BARRIER_BYTES = CLOCK_BYTES
BARRIER_COUNT = 16

# Shadow memory: planes of 32-bit words, one for each word of memory.
# The last write (epoch, by whom), the last read, a reader before it, and how far a word has published.
PLANES = WRITE_EPOCH, WRITER, READ_EPOCH, READER, EARLIER_EPOCH, EARLIER_READER, PUBLICATION = range(7)
#: An epoch with this bit: an asynchronous copy that was not yet waited for when it was noted.
PENDING = 1 << 31
EPOCHS = PENDING - 1
# Who: lane, bytes of the word, bytes ever written in this block, several lanes, strong, volatile, the
# instruction.
LANE_BITS, MASK_SHIFT, INITIALISED_SHIFT, SEVERAL, STRONG, VOLATILE, SITE_SHIFT = (
    5,
    5,
    9,
    1 << 13,
    1 << 14,
    1 << 15,
    16,
)
MOST_ROWS = 0xFFFF

# An allocation.
FIRST, SIZE, PLANE, PLANE_STRIDE = range(0, 32, 8)
ALLOCATION_BYTES = 32

# An instruction: how it is to be watched, then what was counted.
(
    BASE, BASE_BITS, DISPLACEMENT, SPACE, ACCESS_SIZE, FLAGS, LANES_READ, LOWEST, HIGHEST, STEP, STEP_BASE,
    LINES, KEPT, REQUESTS, THREADS, WAVEFRONTS, IDEAL, SECTORS, BYTES, MEMORY,
) = range(0, 20 * 8, 8)  # fmt: skip
COUNTS, LIMITS = 160, 160 + 20 * 8  # how often each kind of suspicion came up; how often to tell of it
SITE_BYTES = 160 + 40 * 8
# MEMORY leads to what is remembered of an instruction's last request: a key, what it cost (and where that is
# added up), the least and greatest offset of a lane, whether lanes follow one another, the offsets.
REMEMBERED = ((8, WAVEFRONTS), (16, IDEAL), (24, SECTORS))
LEAST_OFFSET, MOST_OFFSET, SIDE_BY_SIDE, PATTERN = 32, 40, 48, 64
MEMORY_BYTES = PATTERN + 8 * 32

# Spaces.
GLOBAL, SHARED, LOCAL, GENERIC = range(4)
# Flags.
(
    READS, WRITES, STRONG_ACCESS, RELEASES, COPIES, MATRIX, TILE, EVERY_LANE, BY_WORD, VOLATILE_ACCESS,
) = (1 << n for n in range(10))  # fmt: skip

# Kinds of suspicion, told to Python.
(
    AFTER_WRITE, AFTER_READ, UNINITIALISED, UNFINISHED_COPY, SAME_PLACE, OUTSIDE, NOT_A_MEMBER, ABSENT_MEMBER,
    SPLIT_BARRIER, TILE_ALIGNMENT, TILE_STRIDE, TILE_UNIFORM, UNINITIALISED_LOCAL,
    IGNORED_ADDRESS, IGNORED_ALIGNMENT, BARRIER_COUNT_WRONG, NO_VALUE,
) = range(17)  # fmt: skip

# What ORDER does.
FENCE, COMMIT, WAIT, TRACK = 1, 2, 3, 4
