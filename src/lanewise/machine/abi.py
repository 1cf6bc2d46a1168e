"""Where things lie in memory while a kernel runs: launch, block and warp records, and the address windows.

Offsets are in bytes. The compiled code and the Python side both take them from here.
"""

from __future__ import annotations

LANES = 32

#: Names in a kernel's machine code: the function that runs blocks of threads, the table of blocks of code.
RUN, CODE_TABLE = "run", "code"

# The launch, one a run: 8-byte slots.
STOP, ALLOCATIONS, ALLOCATION_COUNT, PARAMETERS, PARAMETER_BYTES = range(0, 40, 8)
NTID, NCTAID = 40, 64
WARPS, SHARED_BYTES, LOCAL_BYTES, FRAME_BYTES, SLICE, NEXT_BLOCK, BLOCKS, TEMPLATE = range(88, 152, 8)
STEP_LIMIT, THREADS, YIELDS, WORKERS = range(152, 184, 8)
CODE = 184  # a row for each block of code
LAUNCH_BYTES = 256

# A row of the table of blocks of code: its function or 0, the registers it writes in every lane, its script.
FUNCTION, WRITES, SCRIPT = range(0, 24, 8)
ROW_BYTES = 24

# A block, one for each that is under way.
LAUNCH, SHARED, FRAMES, LOCAL = range(0, 32, 8)
CTAID, LINEAR, CACHES, STATUS, KIND, SITE, ADDRESS, WARP, LANE, SIZE, STEPS, SCRATCH = (
    32, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136,
)  # fmt: skip
ARRIVED = 160  # sixteen counts of threads that only arrived at a barrier
# Phases of mbarriers that were completed, those seen by the scheduler, how often it then waited for more.
PHASES, PHASES_SEEN, TRIES = 480, 488, 496
SHADOW = 144  # room for a frame: registers of lanes that do not take part
OBSERVED = 288  # what checks keep of it, if it is checked
BLOCK_BYTES = 512

# A warp.
BLOCK, INDEX, MASK, BASE, MASK_BYTES, PCS = 0, 8, 16, 20, 32, 64
#: Not 0 while all 32 lanes wait at a plain barrier together: its number, and where they go on, plus one. The
#: last bit says that they may.
TOGETHER, TOGETHER_BITS, RELEASED = 24, 26, 1 << 31
BARRIER, BARRIER_ARGUMENT, BARRIER_VALUE, BARRIER_RESULT = 192, 320, 448, 576
TID = 704  # x, y, z: 128 bytes each
CARRY = 1088  # the carry flag of add.cc and its kin, a byte a lane
REGISTERS = 1152

#: Numbers a lane's pc may have beyond those of blocks of code.
PARKED = 0x4000_0000
EXITED = 0x7FFF_FFFF
#: What a lane waits for if not for one of the sixteen barriers: its siblings, a phase of an mbarrier.
SIBLINGS, PHASE = 16, 17

# What a run of a block of threads ends with.
DONE, YIELDED, STOPPED, INTERRUPTED, DEADLOCKED, LIMIT = range(6)

# Why it stopped (KIND).
FAULTS = {
    1: "out of bounds",
    2: "misaligned",
    3: "read-only",
    4: "trap",
    5: "assertion",
    6: "host call",
    7: "bad branch",
    8: "bad operand",
    9: "divergence",
    10: "mbarrier",
    11: "stack",
    12: "bad call",
}
#: What a thread has for the frames of functions that may call themselves, and for alloca.
STACK_BYTES = 32768
HOST_CALL, BAD_MBARRIER, STACK, BAD_CALL = 6, 10, 11, 12

# Address windows.
CONST_BASE = 0x1_0000_0000
GLOBAL_BASE = 0x2_0000_0000
HEAP_BASE = 0x80_0000_0000
GRID_BASE = 0x90_0000_0000
ARGUMENT_BASE = 0x100_0000_0000
SHARED_WINDOW = 0x7000_0000_0000
LOCAL_WINDOW = 0x7100_0000_0000
PARAM_WINDOW = 0x7200_0000_0000
FUNCTION_BASE = 0x7300_0000_0000
WINDOW_BYTES = 1 << 32

#: What a site remembers of the allocation it touched last: first address, bytes, where it is, writable.
CACHE_BYTES = 32
ALLOCATION_BYTES = 32


def aligned(size: int, alignment: int) -> int:
    """Rounded up to a multiple.

    >>> aligned(13, 8)
    16
    """
    return -(-size // alignment) * alignment
