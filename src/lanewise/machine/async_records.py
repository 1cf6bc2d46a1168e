"""Records of asynchronous operations, such as copies by TMA: one with its operands, and those pending."""

from enum import IntEnum

from lanewise.jit.record_layout import pointer, table
from lanewise.machine.abi import BlockRecord, RecordLayout, field


class Completion(IntEnum):
    """When asynchronous operations take effect."""

    #: As soon as they are issued.
    EARLY = 0
    #: When somebody waits for them and nothing else can go on.
    LATE = 1
    #: At any time between, as a seed draws it.
    RANDOM = 2


class CompleteHow(IntEnum):
    """Which pending operations the scheduler asks for."""

    #: Those that a seed draws.
    ANY = 0
    #: One at least, since nothing else can go on, or only spins.
    ONE = 1
    #: All, since the block ends.
    EVERY = 2


class AsyncOperation(RecordLayout):
    """An asynchronous copy or reduction with its operands evaluated: all that it needs to take effect later.

    Addresses of memory are those of the host.
    """

    #: A function(operation) that carries it out; it returns 0, or BlockAnswer.STOPPING after a fault.
    execute = field()
    # The block, instruction, warp and lane that issued it.
    block = pointer(lambda: BlockRecord)
    site = field()
    warp = field()
    lane = field()
    #: The bulk group of its thread: OPEN_GROUP until that is committed, 0 if an mbarrier tells its end.
    group = field()
    #: Operations of one pipe take effect in the order in which they were issued; NO_PIPE: in any order.
    pipe = field()
    #: Where it reads, 0 for `data`; the bytes that its source spans, for a copy of it.
    source = field()
    source_bytes = field()
    target = field()
    #: The bytes that are copied, and that the mbarrier counts.
    size = field()
    #: A function(target, source, bytes) that reduces; 0: the bytes are copied.
    combine = field()
    #: The address of the target in the shared memory of a block, and that block's record, 0: not shared.
    target_address = field()
    target_block = pointer(lambda: BlockRecord)
    # The mbarrier (0: none), its device address, and the record of the block that it belongs to.
    barrier = field()
    barrier_address = field()
    barrier_block = pointer(lambda: BlockRecord)
    #: What st.async and red.async store.
    data = field(elements=2)
    #: In a traced launch the entries of the log of its issue, and of the wait that copied its source; else 0.
    issue_entry = field()
    read_entry = field()
    # A box of a tensor: the tensor's address on the device, what is added to such an address to get that of
    # the host, the end of the memory that may be written, the box's shared address. Then for each dimension,
    # the innermost first: the tensor's elements and the bytes from one to the next, the box's elements, the
    # step from one to the next, and the coordinate of the first.
    #: Where the tensor map lies on the host.
    map = field()
    tensor = field()
    tensor_shift = field()
    tensor_end = field()
    shared_address = field()
    sizes = field(elements=5)
    pitches = field(elements=5)
    boxes = field(elements=5)
    steps = field(elements=5)
    coordinates = field(elements=5)
    # A box that is a column of pixels (im2col) has a row for each pixel, of which coordinates are counted on.
    # For each axis along which pixels lie, the innermost first: the tensor's size and pitch, the step, the
    # coordinate of the first pixel and what is added to it; and the first and last coordinate in the
    # bounding box, beyond which the next axis is counted on.
    is_column = field()
    # In the modes im2col::w and im2col::w::128 so many pixels more, the halo, follow each period of pixels.
    halo = field()
    halo_period = field()
    pixel_sizes = field(elements=5)
    pixel_pitches = field(elements=5)
    pixel_steps = field(elements=5)
    first_pixel = field(elements=5)
    offsets = field(elements=5)
    lows = field(elements=5)
    highs = field(elements=5)
    #: Whether the rows of the box are four rows of a matrix in any order (gather4, scatter4), and which.
    is_gather = field()
    gathered_rows = field(elements=4)
    #: Bytes of an element, and of the box's rows as they lie in shared memory.
    element_bytes = field()
    row_bytes = field()
    #: The bits of an address that the swizzle may change, how far above them those lie by which it does, and
    #: bit 3 if it exchanges the halves of 16 bytes in every other line.
    swizzle_mask = field()
    swizzle_shift = field()
    swizzle_flip = field()
    #: The bytes of global memory that 16 bytes of shared memory hold, if these have padding; else 0.
    packed_bytes = field()
    #: The element that a load writes where the box lies beyond the tensor, repeated to 8 bytes.
    fill = field()
    #: Whether a load rounds elements of f32 to tf32.
    rounds = field()
    #: The operands of tcgen05.mma, cp, shift and commit; what each is, the module that issues them says.
    tensor_operands = field(elements=16)


class PendingOperations(RecordLayout):
    """The asynchronous operations of a block that have not taken effect yet, the oldest first."""

    count = field()
    #: A function(block, how) that completes some; `how` is a CompleteHow.
    complete = field()
    #: Random numbers that were drawn.
    draws = field()
    #: The bulk groups that each thread has committed, the operations, and copies of their sources.
    groups = field()
    operations = table(lambda: AsyncOperation)
    stage = field()
    staged_bytes = field()
    #: A ThreadCopies for each thread.
    copies = field()


class KeptCopy(RecordLayout):
    """A cp.async that has not taken effect: where its bytes are on the host, and its thread's group."""

    target = field()
    source = field()
    size = field()
    group = field()
    # Its lane, and in a traced launch the entry of the log of its issue.
    lane = field()
    issue_entry = field()


#: Copies of cp.async that a thread may have pending: older ones take effect.
MOST_COPIES = 64


class ThreadCopies(RecordLayout):
    """The pending copies of one thread, the oldest first, and how many groups it has committed."""

    count = field()
    groups = field()
    entries = field(elements=MOST_COPIES * KeptCopy.BYTES // 8)


#: Operations of a block that may be pending at a time, and bytes of copies of their sources.
MOST_PENDING, STAGE_BYTES = 512, 1 << 18
#: The group of operations that no commit_group has closed.
OPEN_GROUP = -1
#: Pipes: of operations without one, and of the tcgen05 operations that a block issues.
NO_PIPE, TENSOR_PIPE = 0, 1
