"""The record of an instruction: what it reads, writes, waits for and counts, and how it is lowered.

The records themselves are in `instruction_table.py`. Everything that the machine or the checker has to know
of an opcode is a field here, so that no other file compares opcodes to find it out.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Level(Enum):
    """The threads that execute an instruction together; it decides the arguments of the lowering function."""

    #: Each lane alone: `lower(lanes, op)` writes vector code over some lanes of a warp.
    LANE = auto()
    #: The lanes of a warp in one request: `lower(code, op)` writes code for the warp.
    WARP = auto()
    #: The threads of a block.
    BLOCK = auto()
    #: Four neighbouring warps.
    WARPGROUP = auto()
    #: The blocks of a cluster.
    CLUSTER = auto()


class Role(Enum):
    """What an instruction does with an operand."""

    #: A register that it writes.
    DEFINED = "def"
    #: A value that it reads.
    USED = "use"
    #: An address of memory.
    ADDRESS = "address"
    #: A matrix: its descriptor of shared memory, or the registers that hold it.
    DESCRIPTOR = "descriptor"
    #: An address of tensor memory: the lane in its bits 16 to 31, the column in its bits 0 to 15.
    TENSOR_ADDRESS = "tmem"
    #: A matrix of tcgen05.mma: its descriptor of shared memory, or its address in tensor memory.
    MATRIX = "matrix"
    #: The handle of a texture or surface, with coordinates where texels are accessed.
    HANDLE = "handle"
    #: The address of a tensor map with the coordinates of a box.
    TENSOR = "tensor"
    #: The lanes of the warp that take part, as bits.
    MEMBERS = "members"
    #: The number of a barrier of the block.
    BARRIER = "barrier"
    #: A label or a list of labels.
    LABEL = "label"
    #: The function that is called.
    CALLEE = "callee"


class AccessKind(Enum):
    """What an instruction does to memory."""

    READ = "read"
    WRITE = "write"
    #: A read and a write in one indivisible step.
    ATOMIC = "atomic"


class Proxy(Enum):
    """The proxy by which memory is accessed; only a proxy fence orders accesses by two proxies."""

    GENERIC = auto()
    ASYNC = auto()


class Size(Enum):
    """The source of the number of bytes that a lane accesses."""

    #: The type among the modifiers, times the elements of the data operand.
    TYPE = auto()
    #: An operand that is a constant.
    OPERAND = auto()
    #: An operand; if it is not a constant, the size is known only when the instruction runs.
    ANY_OPERAND = auto()
    #: The row of a matrix for ldmatrix: 16 bytes.
    MATRIX_ROW = auto()
    #: A line of the matrix that wmma.load or wmma.store moves.
    TILE_LINE = auto()
    #: An mbarrier object: 8 bytes.
    MBARRIER = auto()
    #: An address of tensor memory, as tcgen05.alloc writes it: 4 bytes.
    TENSOR_MEMORY_ADDRESS = auto()
    #: A tensor map: 128 bytes.
    TENSOR_MAP = auto()
    #: What a matrix descriptor names: pieces of 16 bytes, for the warpgroup as a whole.
    DESCRIPTOR = auto()
    #: Known only when the instruction runs: a register, or what a tensor map says.
    RUN_TIME = auto()


@dataclass(frozen=True)
class MemoryAccess:
    """One access to memory: the operand with the address, what it does, and how many bytes it has."""

    kind: AccessKind
    #: The number of the operand that is its address.
    operand: int
    size: Size
    #: The number of the operand that is its data (Size.TYPE, rows that are stored), or its number of bytes
    #: (Size.OPERAND and Size.ANY_OPERAND).
    data: int = 0
    #: The state space, where the modifiers do not decide it.
    space: str = ""
    #: Whether the bytes arrive later, when a group or an mbarrier is waited for.
    asynchronous: bool = False
    #: Whether it never races with another access of this kind.
    strong: bool = False
    #: Whether it publishes what its thread did before, to whoever reads it after.
    releases: bool = False
    #: Whether its thread then knows what the writers of the value have published.
    acquires: bool = False
    #: The number of the operand, if it is there, that says how many bytes are read or that none are.
    shortened_by: int = 0
    proxy: Proxy = Proxy.GENERIC
    #: Whether one lane makes the access for all that execute the instruction.
    by_one_lane: bool = False

    @property
    def verb(self) -> str:
        """The name of the access in messages, such as "asynchronous write"."""
        return f"asynchronous {self.kind.value}" if self.asynchronous else self.kind.value

    @property
    def reads(self) -> bool:
        """Whether the old content of memory is read."""
        return self.kind is not AccessKind.WRITE

    @property
    def writes(self) -> bool:
        """Whether the content of memory may change."""
        return self.kind is not AccessKind.READ


class Waits(Enum):
    """Which threads a lane waits for before it executes an instruction."""

    NOBODY = auto()
    #: The lanes of its warp that the MEMBERS operand names.
    MEMBERS = auto()
    #: All lanes of its warp.
    WARP = auto()
    #: All lanes of its warp, then the other three warps of its warpgroup.
    WARPGROUP = auto()
    #: Threads of its block, at one of the sixteen barriers.
    BARRIER = auto()
    #: The completion of a phase of an mbarrier.
    PHASE = auto()
    #: The threads of its cluster, at the cluster's barrier where it has arrived before.
    CLUSTER = auto()
    #: All lanes of its warp, then free columns of tensor memory.
    COLUMNS = auto()


class BlockEnd(Enum):
    """How control leaves a basic block."""

    #: The next one follows.
    FALLTHROUGH = "fallthrough"
    JUMP = "jump"
    #: A jump by a list of labels.
    SWITCH = "switch"
    RETURN = "return"
    EXIT = "exit"
    CALL = "call"
    TRAP = "trap"
    #: A call of a function that Python executes: printf, malloc.
    HOST_CALL = "host call"
    #: Lanes wait for others of their warp.
    WARP_SYNC = "warp sync"
    #: Warps wait for the others of their warpgroup.
    WARPGROUP_SYNC = "warpgroup sync"
    BARRIER = "barrier"
    PHASE = "phase"
    CLUSTER = "cluster"
    #: A warp allocates columns of tensor memory, and waits until there are enough.
    COLUMNS = "columns"


class Order(Enum):
    """What an instruction orders, or which asynchronous copies it groups."""

    NOTHING = auto()
    #: A fence of the generic proxy.
    FENCE = auto()
    #: The copies of a thread up to here become a group.
    COMMIT = auto()
    #: All groups but a number of the latest are complete.
    WAIT_GROUP = auto()
    #: All copies of a thread are complete.
    WAIT_ALL = auto()
    #: It arrives at an mbarrier when the copies of a thread up to here are complete.
    TRACK = auto()
    #: Registers and shared memory that were written before are seen by the wgmma that follow.
    WARPGROUP_FENCE = auto()
    #: The wgmma of a warpgroup up to here become a group.
    WARPGROUP_COMMIT = auto()
    #: All groups of wgmma but a number of the latest are complete.
    WARPGROUP_WAIT = auto()
    #: What a thread did before it arrives at the barrier of its cluster is known to those who wait there.
    CLUSTER_ARRIVAL = auto()
    #: What was accessed by the generic proxy before is seen by the asynchronous proxy after, and the reverse.
    PROXY_FENCE = auto()
    #: The initialisation of mbarriers is visible to the cluster and to the asynchronous proxy.
    INIT_FENCE = auto()
    #: A tensor map that was changed by the generic proxy is seen by copies that follow.
    MAP_FENCE = auto()
    #: A tensor map that a thread has changed is released to those who execute a MAP_FENCE; or one is copied
    #: and released.
    MAP_RELEASE = auto()
    MAP_COPY = auto()
    #: The bulk copies of a thread up to here become a group.
    BULK_COMMIT = auto()
    #: All bulk groups but a number of the latest are complete; or they have read their sources.
    BULK_WAIT = auto()
    BULK_WAIT_READ = auto()
    #: A warpgroup takes registers that others of its block have given up, or gives some up.
    REGISTERS = auto()


class AddressFlow(Enum):
    """How the address of a variable passes through an instruction, for `pointer_provenance.py`."""

    #: Nothing is known of the result if a source is an address.
    NONE = auto()
    #: The result is the source.
    COPY = auto()
    #: The result is the source in another width, which keeps the address.
    CONVERSION = auto()
    #: A source that is an address stays one when numbers are added.
    SUM = auto()
    #: The same for a number that is subtracted; two addresses into one variable give a number.
    DIFFERENCE = auto()
    #: An address of which low bits are masked off stays one; its low bits alone are a number.
    MASK = auto()
    #: An address shifted by a constant, as the descriptors of wgmma hold it; and bits taken from one.
    SHIFT_RIGHT = auto()
    SHIFT_LEFT = auto()
    BIT_FIELD = auto()
    #: A product is a number; the third source may be an address that it is added to.
    PRODUCT = auto()
    MULTIPLY_ADD = auto()
    #: The result comes from memory: a number.
    MEMORY = auto()


class BitFlow(Enum):
    """Which bits of the sources a bit of the result comes from, for `demanded_bits.py`."""

    #: Any bit of the result may depend on all bits of the sources.
    ALL = auto()
    #: The result is the source; registers in braces are its parts.
    MOVE = auto()
    #: The same bit of each source; where a constant may clear it, MASK.
    BITWISE = auto()
    MASK = auto()
    #: A bit further down or up, by a constant.
    SHIFT_LEFT = auto()
    SHIFT_RIGHT = auto()
    #: Two sources are shifted as one, by a constant.
    FUNNEL = auto()
    #: A field of bits is taken from the source, or put into it.
    EXTRACT = auto()
    INSERT = auto()
    #: Each byte is one of the sources'.
    PERMUTE = auto()
    #: Integers of other widths share their low bits.
    CONVERSION = auto()


class Fusion(Enum):
    """The part that an instruction plays where ptxas fuses a product with a sum."""

    NONE = auto()
    PRODUCT = auto()
    SUM = auto()
    #: It passes a product on.
    PASSES = auto()


class CodeLength(Enum):
    """Whether the code of a lane's instruction is long enough to be a function that all kernels share."""

    SHORT = auto()
    #: Long for f16 and smaller floats, which are computed through wider ones.
    LONG_FOR_SMALL_FLOATS = auto()
    #: Long unless it is of f32 or f64, for which the host has instructions.
    LONG_BUT_FOR_FLOATS = auto()
    LONG = auto()


@dataclass(frozen=True)
class InstructionRecord:
    """Everything that the machine knows of the instructions that a pattern matches."""

    #: Opcode and modifiers that all have to be there, in any order: "cp.async.wait_group".
    pattern: str
    level: Level = Level.LANE
    #: The role of each operand; the last one holds for all that follow.
    roles: tuple[Role, ...] = ()
    #: The types that it may have; one of them at least has to be there. Without any, the lowering decides.
    types: frozenset[str] = frozenset()
    #: How many operands there are at least, and at most.
    least: int = 0
    most: int = 0
    #: Whether it may name several types: that of its result and those of its sources.
    mixes_types: bool = False
    #: The function that writes its code, as "package.module:function" below `lanewise.machine`; without one
    #: there is nothing to do.
    lowering: str = ""
    #: The function that gives it as a step of threaded code which all kernels share. For forms that are no
    #: such step it gives None, and `lowering` has to write them.
    shared_step: str = ""
    memory: tuple[MemoryAccess, ...] = ()
    waits: Waits = Waits.NOBODY
    ends: BlockEnd = BlockEnd.FALLTHROUGH
    orders: Order = Order.NOTHING
    #: The operation by which Nsight Compute counts a memory instruction: "ld", "ldsm".
    counter: str = ""
    #: Whether it is a product of matrices.
    multiplies: bool = False
    #: Whether the PTX ISA states an error for it instead of its bits.
    approximate: bool = False
    #: What of its result no hardware has confirmed, for want of a GPU that has it.
    inferred: str = ""
    #: The arch on which hardware has confirmed it all the same.
    confirmed_on: str = ""
    fusion: Fusion = Fusion.NONE
    #: Whether a source register without a value is a mistake here. Instructions that only move or choose bits
    #: pass it on: compilers generate them for values that are not read.
    needs_values: bool = False
    #: Whether two equal sources give zero, whatever they hold.
    cancels_equal_sources: bool = False
    #: Of logic of predicates: the value of one of them that decides on the result, whatever the others are.
    decided_by: bool | None = None
    #: Whether all lanes of a warp have to be at a barrier together.
    whole_warps: bool = False
    #: Whether it only takes the result of an instruction that was counted before.
    second_half: bool = False
    #: Whether its result is one of its first two sources, by a predicate that is the third.
    chooses: bool = False
    #: Whether its lanes read registers of other lanes, as its third and fourth operand say.
    shuffles: bool = False
    #: Whether it writes texels of a surface.
    writes_surface: bool = False
    #: Whether it needs the tensor memory of its block.
    touches_tensor_memory: bool = False
    #: Whether it takes memory from the stack of its thread.
    takes_stack: bool = False
    #: Whether a cluster takes over another one by it, which then never begins.
    takes_over_clusters: bool = False
    #: Whether it decodes the answer to such a request, its second operand.
    decodes_answer: bool = False
    address_flow: AddressFlow = AddressFlow.NONE
    bit_flow: BitFlow = BitFlow.ALL
    length: CodeLength = CodeLength.SHORT
    #: The first GPUs that have it, as 80 for sm_80; single forms may need later ones.
    since: int = 0
    #: Why the machine cannot run it.
    refused: str = ""

    def __post_init__(self) -> None:
        places = (Role.ADDRESS, Role.DESCRIPTOR, Role.TENSOR)
        addresses = {number for number, role in enumerate(self.roles) if role in places}
        for access in self.memory:
            assert access.operand in addresses, f"{self.pattern}: operand {access.operand} is no address"
        assert self.waits is not Waits.MEMBERS or Role.MEMBERS in self.roles, self.pattern
        assert not (self.refused and self.lowering), f"{self.pattern}: refused, and yet it is lowered"
        assert not self.memory or self.counter, f"{self.pattern}: its requests are counted under no name"

    @property
    def opcode(self) -> str:
        """The opcode, which is the first word of the pattern."""
        return self.pattern.split(".")[0]

    @property
    def modifiers(self) -> frozenset[str]:
        """The modifiers that an instruction must have to match."""
        return frozenset(self.pattern.split(".")[1:])

    @property
    def has_code(self) -> bool:
        """Whether a lowering or shared step generates code for it."""
        return bool(self.lowering or self.shared_step)

    @property
    def does_nothing(self) -> bool:
        """Whether the machine skips it: a hint, or a fence, since its memory is coherent."""
        idle = self.waits is Waits.NOBODY and self.ends is BlockEnd.FALLTHROUGH
        return idle and not self.has_code

    @property
    def is_plain_load(self) -> bool:
        """Whether it is a single read of as many bytes as its type has: ld, ldu."""
        return [(access.kind, access.size) for access in self.memory] == [(AccessKind.READ, Size.TYPE)]

    @property
    def is_plain_store(self) -> bool:
        """Whether it is a single write of as many bytes as its type has: st."""
        return [(access.kind, access.size) for access in self.memory] == [(AccessKind.WRITE, Size.TYPE)]

    @property
    def is_matrix_store(self) -> bool:
        """Whether it is a single write of rows of matrices: stmatrix."""
        return [(access.kind, access.size) for access in self.memory] == [(AccessKind.WRITE, Size.MATRIX_ROW)]

    @property
    def stores_asynchronously(self) -> bool:
        """Whether values of registers are stored at a later time: st.async, red.async.

        They do so by the generic proxy (CUDA Programming Guide, "async thread and async proxy").
        """
        first = self.memory[0] if self.memory else None
        return first is not None and first.proxy is Proxy.ASYNC and first.size is Size.TYPE

    @property
    def makes_mbarrier(self) -> bool:
        """Whether a plain write begins or ends the life of an mbarrier: mbarrier.init, mbarrier.inval."""
        made = [(AccessKind.WRITE, Size.MBARRIER, False)]
        return [(access.kind, access.size, access.strong) for access in self.memory] == made

    @property
    def allocates_tensor_memory(self) -> bool:
        """Whether it writes the address of columns that it has allocated: tcgen05.alloc."""
        return any(access.size is Size.TENSOR_MEMORY_ADDRESS for access in self.memory)

    @property
    def is_atomic(self) -> bool:
        """Whether it reads and writes memory in one step: atom, red."""
        return any(access.kind is AccessKind.ATOMIC for access in self.memory)

    @property
    def count_in_words(self) -> str:
        """The number of operands that it takes, for messages."""
        if self.least == self.most:
            return f"{self.least} operand{'s' if self.least != 1 else ''}"
        return f"{self.least} to {self.most} operands"

    def role(self, number: int) -> Role:
        """Return the role of an operand by its number."""
        return self.roles[min(number, len(self.roles) - 1)] if self.roles else Role.USED
