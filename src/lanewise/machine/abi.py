"""What compiled code and Python agree on: records in memory, address windows, numbers of states and faults.

Records are declared field by field, and their offsets are computed. Compiled code reads a field by its
offset, Python by a view of the same bytes.
"""

from enum import IntEnum
from typing import Self

from lanewise.jit.record_layout import LANES as LANES
from lanewise.jit.record_layout import RecordLayout as RecordLayout
from lanewise.jit.record_layout import aligned as aligned
from lanewise.jit.record_layout import field as field
from lanewise.jit.record_layout import per_lane as per_lane
from lanewise.jit.record_layout import pointer, table

#: Warps of a warpgroup; the number of the first is a multiple of it.
WARPGROUP = 4

#: Names in a kernel's machine code: the function that runs thread blocks, the table of basic blocks.
RUN, CODE_TABLE = "run", "code"


class LaunchRecord(RecordLayout):
    """The state of one launch, which all of its blocks share."""

    #: Not 0 once all blocks have to return.
    stop = field()
    allocations = field()
    allocation_count = field()
    parameters = field()
    parameter_bytes = field()
    ntid = field(elements=3)
    nctaid = field(elements=3)
    #: The blocks of a cluster along x, y and z, and in all; 1 for a launch without clusters.
    cluster = field(elements=3)
    cluster_blocks = field()
    #: Whether the launch says how large a cluster is.
    explicit_cluster = field()
    warps = field()
    threads = field()
    #: The bytes of shared memory that a block may touch; those of the kernel itself, and how many of them are
    #: dynamic; where the bytes that the system reserves begin.
    shared_bytes = field()
    own_shared_bytes = field()
    dynamic_shared_bytes = field()
    reserved_shared = field()
    local_bytes = field()
    frame_bytes = field()
    #: Basic blocks that a thread block may run in all.
    step_limit = field()
    #: The BlockQueue of all blocks: the next one to begin, and the end of those to run.
    next_block = field()
    end_block = field()
    #: The frames of a block at its start.
    template = field()
    #: The table of basic blocks: a CodeRow for each.
    code = field()
    #: The slice and the turns (see BlockRecord) with which a block begins.
    first_slice = field()
    first_turns = field()
    #: Whether the kernel reads a clock, so that a loop may end by itself although nothing changes.
    reads_clock = field()
    # The order of the blocks and warps of a checked launch, a RunOrder, and the seed of a random one.
    order = field()
    seed = field()
    #: When asynchronous operations take effect, a Completion (`async_records.py`).
    completion = field()
    #: Whether a warp that waits for a phase lets the other warps run first, also where the phase is complete.
    waits_in_turns = field()
    #: A TextureRow for each texture and surface among the arguments.
    textures = field()
    texture_count = field()
    #: The TracerRecord of a traced launch.
    tracer = field()
    #: A tensor copy whose box lay wholly outside of its tensor: its site plus one, and the coordinates.
    outside_site = field()
    outside_coordinates = field(elements=5)


class BlockQueue(RecordLayout):
    """The blocks that have not begun, numbered cluster by cluster: the next one, and the end.

    The host threads of a launch share one, which its record holds, unless clusters take over others.
    """

    next = field()
    end = field()


class CodeRow(RecordLayout):
    """An entry of the code table: the registers that a basic block writes in all lanes, its threaded code."""

    written_registers = field()
    steps = field()


class BlockRecord(RecordLayout):
    """The state of a thread block while it runs: where its memory lies, and why it stopped."""

    launch = pointer(lambda: LaunchRecord)
    #: The blocks that begin on its host thread once it is done, or that it takes over.
    queue = pointer(lambda: BlockQueue)
    shared = field()
    frames = field()
    local = field()
    ctaid = field(elements=3)
    #: Its number in the grid, -1 once no block is left to begin.
    linear = field()
    #: A CacheEntry for each instruction.
    caches = field()
    #: A RunStatus.
    status = field()
    # Why it stopped.
    fault_kind = field()
    fault_site = field()
    fault_address = field()
    fault_warp = field()
    fault_lane = field()
    fault_size = field()
    #: Basic blocks that were run.
    steps = field()
    #: A MmaEntry for each instruction.
    mma_table = field()
    #: A buffer like a frame for the registers of lanes that do not execute a basic block.
    saved_registers = field()
    #: For each of the barriers: threads that arrived without waiting.
    arrived = field(elements=16)
    # Phases of mbarriers that were completed, those that the scheduler has seen, how often it waited in vain,
    # and a digest of the registers after many such tries.
    phases = field()
    phases_seen = field()
    phase_tries = field()
    vain_digest = field()
    #: The time that has passed while it waited in vain, in the units of the clocks.
    idle_time = field()
    #: The BlockWatch of a checked launch.
    watch = field()
    #: Its rank in its cluster, and the first address of its shared memory.
    rank = field()
    shared_first = field()
    #: A MemberRow for each block of the cluster, by rank; and the row of a block that is alone.
    members = table(lambda: MemberRow)
    own_row = field(elements=3)
    #: Whether all of its threads have exited.
    ended = field()
    #: Of the first block of a cluster: the rank of the block that runs.
    running_member = field()
    #: Basic blocks that a path of a warp may run before another path or warp has its turn.
    slice = field()
    #: Turns of all warps that the block has before another block may have its own.
    turns = field()
    # In a checked launch: the order of its warps, a RunOrder; its longest slice; the turns that it had.
    order = field()
    whole_slice = field()
    turn = field()
    #: The PendingOperations, if asynchronous operations do not all take effect at once; else 0.
    pending = field()
    # In a traced launch: a function(operation) when an asynchronous operation has taken effect; a
    # function(block, copy, done) when a cp.async is kept, and when it has taken effect; and the entry of the
    # log that is being written.
    written_hook = field()
    kept_hook = field()
    log_entry = field()
    #: In a traced launch: a function(operation) when an operation of a pipe (tcgen05) has taken effect.
    piped_hook = field()
    # Hooks of a checked launch: function(frame, operation) when an asynchronous operation is issued,
    # and function(frame, site, descriptor, groups, pieces, mn_major) when wgmma reads a matrix.
    issued_hook = field()
    operand_hook = field()
    # For messages about deadlocks; mbarriers by their address on the host, 0 if there is none. The first one
    # of which it has completed a phase while nobody has seen that the one before was complete; one of which
    # an instruction has completed several phases; the bytes that had come to one and were not announced.
    overrun = field()
    overrun_at_once = field()
    surplus = field()
    surplus_barrier = field()
    #: Its tensor memory, lane after lane (`tensor_memory_records.py`), and the TensorAllocator; 0 for kernels
    #: without tcgen05.
    tensor_memory = field()
    tensor_allocator = field()


class WarpFrame(RecordLayout):
    """The state of a warp, followed by its registers with one element for each lane."""

    block = pointer(lambda: BlockRecord)
    index = field()
    #: The lanes that execute the current basic block, as bits (`mask_bytes`: as a byte for each).
    mask = field(4)
    #: The basic block with which the next turn begins.
    base = field(4)
    #: Not 0 while all 32 lanes wait at a plain barrier together (see TOGETHER_BITS).
    together = field(4)
    #: Not 0 once another warp of its warpgroup has computed the product that it is about to execute.
    multiplied = field(4)
    #: The lanes that have arrived at the barrier of the cluster, as bits, until all threads have.
    cluster_arrived = field(4)
    mask_bytes = per_lane(1)
    #: The basic block that each lane runs next, PARKED beside it while the lane waits, or EXITED.
    pcs = per_lane()
    #: What each lane waits for: the number of a barrier, or one of the WAITS_FOR_… below.
    barrier = per_lane()
    barrier_argument = per_lane()
    barrier_value = per_lane()
    barrier_result = per_lane()
    #: x, y, z.
    tid = per_lane(elements=3)
    #: The carry flag of add.cc, sub.cc and mad.cc.
    carry = per_lane(1)
    registers = field(1, 0, 64)


class MemberRow(RecordLayout):
    """An entry of the table of a cluster's blocks: the block's record, and its shared memory on the host."""

    block = pointer(lambda: BlockRecord)
    shared = field()
    #: The bytes of shared memory that may be touched; 0 once the block has exited.
    bytes = field()


class AllocationRow(RecordLayout):
    """An entry of the allocation table: the address range that a launch may touch, and its host memory."""

    first = field()
    size = field()
    host = field()
    writable = field()


class CacheEntry(RecordLayout):
    """The allocation that an instruction accessed last; it is tried first by the next access."""

    first = field()
    size = field()
    host = field()


class MmaEntry(RecordLayout):
    """The function that a matrix instruction calls, and a buffer for registers where Python computes.

    wgmma has a second function, which prepares B, and a buffer for its operands.
    """

    function = field()
    stage = field()
    pack_b = field()


#: Numbers that a lane's pc may have beyond those of basic blocks.
PARKED = 0x4000_0000
EXITED = 0x7FFF_FFFF
#: What a lane waits for if not for one of the sixteen barriers.
WAITS_FOR_SIBLINGS, WAITS_FOR_PHASE, WAITS_FOR_WARPGROUP, WAITS_FOR_CLUSTER = 16, 17, 18, 19
WAITS_FOR_COLUMNS = 20
BARRIERS = 16
#: `together` has the basic block where the lanes go on, plus one, in its low bits, then the barrier's number;
#: the last bit says that they may go on.
TOGETHER_BITS, RELEASED = 26, 1 << 31


class BlockAnswer(IntEnum):
    """What a basic block returns when no basic block follows directly."""

    #: Lanes diverged, and their pcs are in the frame.
    DIVERGED = -1
    #: The launch stops, or Python has to execute a call.
    STOPPING = -2
    #: The whole warp waits at a barrier.
    TOGETHER = -3


class WarpStatus(IntEnum):
    """How the turn of a warp ended. The values are bits, so that those of all warps can be or-ed."""

    WAITING = 0
    OUT_OF_TIME = 1
    STOPPED = 2
    TOGETHER = 4


class RunStatus(IntEnum):
    """How the run of a thread block ended."""

    DONE = 0
    YIELDED = 1
    STOPPED = 2
    INTERRUPTED = 3
    DEADLOCKED = 4
    LIMIT = 5
    #: Its lanes wait for what only other blocks of its cluster can do.
    BLOCKED = 6


class RunOrder(IntEnum):
    """The order in which a checked launch runs blocks, and the warps of a block."""

    IN_ORDER = 0
    REVERSE = 1
    RANDOM = 2


class FaultReason(IntEnum):
    """Why a rule of some instructions stops a launch: a number for compiled code, a sentence for people.

    A fault has one number beside it that tells more, which the sentence names by {0}.
    """

    text: str

    def __new__(cls, text: str) -> Self:
        """Make a member of its sentence; members are numbered from 1 on."""
        member = int.__new__(cls, len(cls.__members__) + 1)
        member._value_, member.text = int(member), text
        return member

    @classmethod
    def numbered(cls, number: int) -> Self:
        """Return the reason with a number."""
        return next(reason for reason in cls if reason == number)

    def sentence(self, number: int = 0) -> str:
        """Return what is wrong; `number` is the 64-bit number that the fault has beside it."""
        return self.text.format((number + (1 << 63)) % (1 << 64) - (1 << 63))


class FaultKind(IntEnum):
    """Why a thread block stopped."""

    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    READ_ONLY = 3
    TRAP = 4
    ASSERTION = 5
    HOST_CALL = 6
    BAD_BRANCH = 7
    BAD_OPERAND = 8
    DIVERGENCE = 9
    MBARRIER = 10
    STACK = 11
    BAD_CALL = 12
    BAD_TEXTURE = 13
    #: The size of such a fault is a WarpgroupFault.
    WARPGROUP = 14
    BAD_RANK = 15
    EXITED_BLOCK = 16
    CLUSTER_BARRIER = 17
    BULK_COPY = 18
    #: The size of such a fault is a Wrong of `tensor_memory/faults.py`.
    TENSOR_MEMORY = 19
    #: The size of such a fault is a Wrong of `tensor_core/tcgen05_faults.py`.
    TENSOR_PRODUCT = 20

    @property
    def title(self) -> str:
        """The name of the fault as it appears in error messages, such as "out of bounds"."""
        return "read-only" if self is FaultKind.READ_ONLY else self.name.lower().replace("_", " ")


class WarpgroupFault(FaultReason):
    """What is wrong with an instruction of a warpgroup."""

    INCOMPLETE = "the block does not have four warps for this warpgroup: give it a multiple of 128 threads"
    DESCRIPTORS_DIFFER = "a matrix descriptor is not the same in all threads of the warpgroup"
    SCALES_DIFFER = "scale-d is not the same in all threads of the warpgroup"
    BAD_METADATA = "the instruction does not take this sparsity selector or this metadata"


#: Faults that an address is the reason for.
ADDRESS_FAULTS = (
    FaultKind.OUT_OF_BOUNDS,
    FaultKind.MISALIGNED,
    FaultKind.READ_ONLY,
    FaultKind.BAD_RANK,
    FaultKind.EXITED_BLOCK,
)
#: Bytes of a thread's stack, for frames of recursive functions and for alloca.
STACK_BYTES = 32768

#: Bytes of shared memory that the system reserves in each block from sm_80 on, and those that it uses,
#: as an H200 tells (driver 580.159.04, CUDA 13.0, 2026-11-15).
RESERVED_SHARED_BYTES, RESERVED_USED_BYTES = 1024, 288
#: Cycles that pass with every reading of a clock: about what a loop that only waits takes on a GPU, so that
#: kernels that wait for milliseconds end soon.
CLOCK_READING_CYCLES = 32
#: The arch from which on they lie before the kernel's own shared memory; earlier, they lie behind it.
RESERVED_FIRST_ARCH = 90
#: The alignment of that memory where it lies behind.
RESERVED_ALIGNMENT = 128

#: The bits of an address in shared memory: the offset in the memory of a block, then the block's rank in its
#: cluster, as the addresses of an H200 have it.
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1

# Address windows.
CONST_BASE = 0x1_0000_0000
GLOBAL_BASE = 0x2_0000_0000
HEAP_BASE = 0x80_0000_0000
GRID_BASE = 0x90_0000_0000
ARGUMENT_BASE = 0x100_0000_0000
ADDRESSED_BASE = 0x1000_0000_0000
SHARED_WINDOW = 0x7000_0000_0000
LOCAL_WINDOW = 0x7100_0000_0000
PARAM_WINDOW = 0x7200_0000_0000
FUNCTION_BASE = 0x7300_0000_0000
#: The handle of the first texture or surface; those of a launch follow one another in steps.
TEXTURE_BASE, TEXTURE_STEP = 0x7400_0000_0000, 64
#: Where a trace's log has tensor memory; no instruction has such an address.
TENSOR_WINDOW = 0x7500_0000_0000
WINDOW_BYTES = 1 << 32
