"""Called when an operation of the pipe of tcgen05 is issued: what it reads and writes, and what commits tell.

Matrices in shared memory are walked as the product walks them. The shapes of D, A and of scale factors in
tensor memory are those of `isa/tensor_memory`, in groups of 16 lanes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.isa.asynchronous.descriptor import KINDS, Product
from lanewise.isa.matrix_descriptor import PIECE_BYTES, TCGEN05_FIELD, TCGEN05_VERSION, Major
from lanewise.isa.tensor_memory.accumulators import FACTORS_OF_WORD, METADATA, ROWS_OF_WORDS
from lanewise.isa.tensor_memory.copy_shapes import EXPANSIONS, SHAPES, CopyShape
from lanewise.jit.compiled_functions import Function, signature_only
from lanewise.jit.lane_functions import address_of
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.checker.proxy_records import (
    CELL_LANES,
    COMMITS_KEPT,
    OPERAND_SHIFT,
    AsyncKind,
    TensorFlag,
    TensorOperand,
)
from lanewise.machine.checker.records import Access, BlockWatch, Flag
from lanewise.machine.checker.watch_code.clocks.clusters import is_in_cluster, note_remote
from lanewise.machine.checker.watch_code.clocks.mbarriers_and_atomics import access_strongly
from lanewise.machine.checker.watch_code.clocks.vector_clocks import begin_epoch, watch_of, watch_of_running
from lanewise.machine.checker.watch_code.proxy.async_clocks import begin_operation
from lanewise.machine.checker.watch_code.proxy.async_operations import (
    BF16_TYPE,
    F16_TYPE,
    BegunOperation,
    Issued,
    Matrix,
    look_at_matrix,
    word_of,
)
from lanewise.machine.checker.watch_code.proxy.phases import (
    check_commit,
    check_initialised,
    follow_barrier,
    followed_barrier,
    phase_of_commit,
    tensor_clock,
)
from lanewise.machine.checker.watch_code.tensor.cells import (
    groups_without_value,
    leave_without_value,
    look_at_cells,
)
from lanewise.machine.checker.watch_code.watch_module import (
    LaneLongs,
    WatchCode,
    load_long,
    longs_of,
    words_of,
    written,
)
from lanewise.machine.codegen.function_code import Record
from lanewise.machine.codegen.tensor_pipe import is_paired, other_block
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.tensor_core import tcgen05_product as product
from lanewise.machine.tensor_core.descriptors import LINES_TOGETHER, Body, each_piece, field_of
from lanewise.machine.tensor_core.tcgen05_product import LONG_K
from lanewise.machine.tensor_core.tcgen05_statement import Form
from lanewise.machine.tensor_memory import copies
from lanewise.machine.tensor_memory.copies import SHIFTED_COLUMNS
from lanewise.machine.tensor_memory_records import LANE_SHIFT

#: The number of an access whose address has no bounds in the site table: the bytes have to lie in the shared
#: variable in which they begin.
UNBOUNDED = 1
#: A function that is called when an operation of the pipe is issued.
Hook = Function[[WarpFrame, AsyncOperation], None]


def _number(words: Product, in_tensor_memory: bool = False) -> int:
    """Return a form of tcgen05.mma as the number that its operations carry."""
    return Form(words, in_tensor_memory, "sm_100a").packed()


_PLAIN = Product(KINDS["f16"])
#: The bits of a form that say what matters here.
PAIRED, SPARSE, WS = (
    _number(_PLAIN) ^ _number(changed)
    for changed in (_PLAIN._replace(cta_group=2), _PLAIN._replace(sparse=True), _PLAIN._replace(ws=True))
)
TENSOR_A = _number(_PLAIN) ^ _number(_PLAIN, in_tensor_memory=True)
KIND_BITS = 15
#: The numbers of kinds with elements of 32 bits, of 16 bits and of 4 bits; others have 8.
TF32, F16 = (_number(Product(KINDS[kind])) & KIND_BITS for kind in ("tf32", "f16"))
MXF4, MXF4NVF4 = (_number(Product(KINDS[kind], block=32)) & KIND_BITS for kind in ("mxf4", "mxf4nvf4"))
F8F6F4 = _number(Product(KINDS["f8f6f4"])) & KIND_BITS
MXF8F6F4 = _number(Product(KINDS["mxf8f6f4"], block=32)) & KIND_BITS
#: The numbers of formats of 6 and of 4 bits, which lie packed in the first bytes of a piece beside 8 bits.
E2M3, E3M2, E2M1 = (KINDS["f8f6f4"].formats[name] for name in ("e2m3", "e3m2", "e2m1"))
SIX_BIT_BYTES, FOUR_BIT_BYTES = (EXPANSIONS[name].held_bytes for name in ("b6x16_p32", "b4x16_p64"))
#: The first number of the kinds with scale factors.
SCALED_FROM = MXF8F6F4
#: Fields of the instruction descriptor: first bit, mask, unit.
N_BIT, N_MASK, M_BIT, M_MASK, A_MAJOR_BIT, B_MAJOR_BIT = 17, 63, 24, 31, 15, 16
A_FORMAT_BIT, B_FORMAT_BIT, FORMAT_MASK, BF16_FORMAT = 7, 10, 7, KINDS["f16"].formats["bf16"]
#: The bits of scale ids, and that of K = 96; of a form, the bit of a scale factor for each 16 elements.
A_ID_BIT, B_ID_BIT, LONG_K_BIT = 29, 4, 31
BLOCK16 = _number(Product(KINDS["mxf4nvf4"], block=16)) ^ _number(Product(KINDS["mxf4nvf4"], block=32))
#: Columns of A in tensor memory: 32 bytes of K, and the 48 of K = 96.
A_COLUMNS, LONG_A_COLUMNS = 8, 12
#: Groups of lanes: all, and those of the first 16 lanes of each warp.
ALL_GROUPS, SCATTERED_GROUPS, FIRST_PARTITION = 0xFF, 0x55, 0x3
#: Rows whose scale factors share a column; the words of 128 rows, after which further factors follow.
ROWS_OF_COLUMN = 32
COLUMNS_OF_WORDS = ROWS_OF_WORDS // ROWS_OF_COLUMN
#: Warps whose lanes are others, columns of metadata of 8- and 4-bit elements, the bits of the selector.
PARTITIONS, NARROW_METADATA_COLUMNS, SELECTOR_MASK = 4, METADATA[8].columns, 3
COLUMN_MASK = (1 << LANE_SHIFT) - 1
#: The bits of addresses that a swizzle changes, plus one, by the code of the swizzle; 0: not compared.
SWIZZLED_BITS = {0: 1, 1: 0x61, 2: 0x71, 4: 0x31, 6: 0x11}


@compiled()
def begin_pipe_operation(frame: WarpFrame, made: AsyncOperation, issued: Issued) -> None:
    """Begin an operation of the pipe, in an epoch of its own."""
    watch = watch_of_running(frame)
    row = made.site * MOST_ROWS
    watch.watch.sites[row].requests += 1
    issued.row = row
    issued.epoch = begin_operation(frame, AsyncKind.TENSOR, made.lane, 0, 0, 0, watch)
    issued.who = word_of(watch, row, made.lane)


# what a product does to tensor memory -----------------------------------------------------------------------


@inlined
def groups_of_rows(form: int, m: int, address: int) -> int:
    """Return the groups of lanes in which the rows of a block's D, and of an A, lie."""
    is_small = m == 64 if form & PAIRED == 0 else (m == 128) & (form & SPARSE != 0)
    is_scattered = is_small & (form & WS == 0)
    return SCATTERED_GROUPS << ((address >> (LANE_SHIFT + 4)) & 1) if is_scattered else ALL_GROUPS


@inlined
def columns_of_d(form: int, m: int, n: int) -> int:
    """Return the columns that D takes in a block: fewer than N if rows lie in several groups of lanes."""
    if form & WS != 0:
        return n * m // 128
    is_halved = (form & PAIRED != 0) & (m == 128) & (form & SPARSE == 0)
    return n // 2 if is_halved else n


@inlined
def is_wide(form: int) -> bool:
    """Return whether elements have 16 or 32 bits: their metadata is a column that the selector chooses."""
    kind = form & KIND_BITS
    return (kind == TF32) | (kind == F16)


@inlined
def is_long(form: int, descriptor: int) -> bool:
    """Return whether K is 96, which takes 48 bytes of a row."""
    kind = form & KIND_BITS
    return ((kind == MXF4) | (kind == MXF4NVF4)) & ((descriptor >> LONG_K_BIT) & 1 != 0)


@inlined
def words_of_factors(form: int, descriptor: int, id_bit: int) -> int:
    """Return how many words a row's scale factors lie in: with K = 96 there may be two."""
    factors = 0
    if is_long(form, descriptor):
        factors = LONG_K // 16 if form & BLOCK16 != 0 else LONG_K // 32
    beyond = ((descriptor >> id_bit) & 3) + factors > FACTORS_OF_WORD
    return 2 if beyond & (factors != 0) else 1


@inlined
def unless_own_sums(first: int, count: int, d: int, columns: int) -> int:
    """Return the flag of an operand that is not read from sums; its overlap with D is reported by itself."""
    is_apart = (first + count <= d) | (d + columns <= first)
    return TensorFlag.NO_SUMS if is_apart else 0


@compiled()
def look_at_product(
    frame: WarpFrame, issued: Issued, made: AsyncOperation, home: BlockWatch, form: int, descriptor: int
) -> None:
    """A product reads and writes the tensor memory of a block: A, scale factors, D."""
    row, epoch, me = issued.row, issued.epoch, issued.who
    m, n = ((descriptor >> M_BIT) & M_MASK) * 16, ((descriptor >> N_BIT) & N_MASK) * 8
    d, a = made.tensor_operands[product.D], made.tensor_operands[product.A]
    scale_a, scale_b = made.tensor_operands[product.SCALE_A], made.tensor_operands[product.SCALE_B]
    metadata = made.tensor_operands[product.METADATA_ADDRESS]
    groups, columns, hollow = groups_of_rows(form, m, d), columns_of_d(form, m, n), 0
    sums = d & COLUMN_MASK
    # Which lanes of .ws have copies is not looked at.
    every = TensorFlag.EVERY_COLUMN if form & WS != 0 else TensorFlag.EVERY_CELL
    reads = TensorFlag.READS | TensorFlag.PIPE | every
    if form & TENSOR_A != 0:
        of_a = reads | TensorOperand.MATRIX_A << OPERAND_SHIFT
        of_k = LONG_A_COLUMNS if is_long(form, descriptor) else A_COLUMNS
        if form & KIND_BITS != TF32:  # sums of 32 bits lie as an A of 32 bits does
            of_a = of_a | unless_own_sums(a & COLUMN_MASK, of_k, sums, columns)
        if form & WS == 0:
            hollow = groups_without_value(home, groups, a & COLUMN_MASK, of_k, of_a)
        # Rows of A without a value give such rows of D, which nobody may read; if all are so, A is missing.
        hollow = hollow if hollow != groups else 0
        look_at_cells(frame, row, home, groups & ~hollow, a & COLUMN_MASK, of_k, epoch, me, of_a)
        if hollow != 0:
            look_at_cells(frame, row, home, hollow, a & COLUMN_MASK, of_k, epoch, me, TensorFlag.PIPE)
    if form & SPARSE != 0:
        of_metadata = reads | TensorOperand.METADATA << OPERAND_SHIFT
        first = (metadata & COLUMN_MASK) + (descriptor & SELECTOR_MASK if is_wide(form) else 0)
        count = 1 if is_wide(form) else NARROW_METADATA_COLUMNS
        of_metadata = of_metadata | unless_own_sums(first, count, sums, columns)
        look_at_cells(frame, row, home, groups, first, count, epoch, me, of_metadata)
    if form & KIND_BITS >= SCALED_FROM:
        # Each warp's lanes have their own copy, of which the factors of A for other rows are not used.
        of_scales = reads | TensorOperand.SCALES_OF_A << OPERAND_SHIFT
        count = max((m // 2 if form & PAIRED != 0 else m) // ROWS_OF_COLUMN, 1)
        for word in range(words_of_factors(form, descriptor, A_ID_BIT)):
            for partition in range(PARTITIONS):
                first = (scale_a & COLUMN_MASK) + partition % count + word * COLUMNS_OF_WORDS
                lanes = FIRST_PARTITION << 2 * partition
                of_word = of_scales | unless_own_sums(first, 1, sums, columns)
                look_at_cells(frame, row, home, lanes, first, 1, epoch, me, of_word)
        of_scales = reads | TensorOperand.SCALES_OF_B << OPERAND_SHIFT
        further = (columns + ROWS_OF_WORDS - 1) // ROWS_OF_WORDS * COLUMNS_OF_WORDS
        count = (columns + ROWS_OF_COLUMN - 1) // ROWS_OF_COLUMN
        for word in range(words_of_factors(form, descriptor, B_ID_BIT)):
            first = (scale_b & COLUMN_MASK) + word * further
            of_word = of_scales | unless_own_sums(first, count, sums, columns)
            look_at_cells(frame, row, home, ALL_GROUPS, first, count, epoch, me, of_word)
    adds = made.tensor_operands[product.ADDS] != 0
    writes = TensorFlag.WRITES | TensorFlag.PIPE | TensorFlag.SUMS
    flags = writes | reads if adds else writes
    look_at_cells(frame, row, home, groups & ~hollow, sums, columns, epoch, me, flags)
    if hollow != 0:
        look_at_cells(frame, row, home, hollow, sums, columns, epoch, me, writes)
        leave_without_value(home, hollow, sums, columns)


# what a product reads from shared memory --------------------------------------------------------------------


@inlined
def elements_of_piece(form: int) -> int:
    """Return how many elements of a matrix 16 bytes hold."""
    kind = form & KIND_BITS
    if kind == TF32:
        return 4
    if kind == F16:
        return 8
    return 32 if (kind == MXF4) | (kind == MXF4NVF4) else 16


@compiled()
def groups_of_matrix(form: int, descriptor: int, lines: int, by_columns: int, is_sparse_b: int) -> int:
    """Return how many groups of eight lines a matrix has; by columns, K is counted in lines."""
    k = 2 * elements_of_piece(form) << is_sparse_b
    return (k if by_columns != 0 else lines) // 8


@compiled()
def pieces_of_matrix(form: int, descriptor: int, lines: int, by_columns: int, is_sparse_b: int) -> int:
    """Return how many pieces of 16 bytes a line of a matrix has."""
    elements = elements_of_piece(form)
    if is_long(form, descriptor):
        return LONG_K // elements
    return (lines + elements - 1) // elements if by_columns != 0 else 2 << is_sparse_b


@compiled()
def bytes_of_piece(form: int, number: int) -> int:
    """Return how many of a piece's bytes hold elements of the format with a number; the others are a gap."""
    kind = form & KIND_BITS
    is_mixed = (kind == F8F6F4) | (kind == MXF8F6F4)
    is_six = (number == E2M3) | (number == E3M2)
    if is_mixed & is_six:
        return SIX_BIT_BYTES
    return FOUR_BIT_BYTES if is_mixed & (number == E2M1) else PIECE_BYTES


@compiled()
def type_of_format(form: int, number: int) -> int:
    """Return the number in a tensor map of a format of 16 bits, by its number in a descriptor; else 0."""
    if form & KIND_BITS != F16:
        return 0
    return BF16_TYPE if number == BF16_FORMAT else F16_TYPE


def _read_matrix(
    begun: BegunOperation,
    block: Record,
    descriptor: Value,
    by_columns: Value,
    groups: Value,
    pieces: Value,
    lines: int = LINES_TOGETHER,
    size: Value | int = PIECE_BYTES,
    type: Value | int = 0,
) -> None:
    """Write that an operation of the pipe reads the pieces that a descriptor names."""
    code, swizzle = begun.code, field_of(descriptor, TCGEN05_FIELD["swizzle"])
    bits = code.number(0)
    for mode, changed in SWIZZLED_BITS.items():
        bits = swizzle.equals(mode).select(code.number(changed), bits)
    start, stride = (
        field_of(descriptor, TCGEN05_FIELD[name]) for name in ("start_address", "stride_byte_offset")
    )
    lane = code.record("operation").get(AsyncOperation.lane)
    matrix = Matrix(start, stride, bits, by_columns, groups, pieces)

    def each(major: Major, body: Body) -> None:
        with code.when(swizzle < 7):  # else it is a fault
            each_piece(
                code, descriptor, major, groups, pieces, body,
                version=TCGEN05_VERSION, may_go_on=major == "K",
            )  # fmt: skip

    look_at_matrix(begun, block, UNBOUNDED, lane, matrix, each, lines, size, type)


def _write_product_issued(code: WatchCode) -> None:
    """Write that a product reads its matrices, in both blocks if it is one of a pair."""
    begun, made = BegunOperation(code), code.record("operation")
    code.run(begin_pipe_operation, frame=begun.frame, made=made, issued=begun.issued)

    def operand(number: int) -> Value:
        return made.get(AsyncOperation.tensor_operands + 8 * number)

    form, descriptor = operand(product.FORM), operand(product.DESCRIPTOR)
    m, n = ((descriptor >> M_BIT) & M_MASK) * 16, ((descriptor >> N_BIT) & N_MASK) * 8
    paired, sparse = ((form & flag).differs(0) for flag in (PAIRED, SPARSE))
    with _each_block(code, begun, paired.select(code.number(1), 0)) as block:
        home = Record(code, block.get(BlockRecord.watch), BlockWatch)
        for matrix, size, bit, format_bit, more in (
            (product.A, m, A_MAJOR_BIT, A_FORMAT_BIT, code.number(0)),
            (product.B, n, B_MAJOR_BIT, B_FORMAT_BIT, sparse.select(code.number(1), 0)),
        ):
            by_columns = (descriptor >> bit) & 1
            lines = paired.select(size >> 1, size)
            facts = {"form": form, "descriptor": descriptor, "lines": lines}
            facts |= {"by_columns": by_columns, "is_sparse_b": more}
            groups, pieces = (
                code.run(count_of, **facts) for count_of in (groups_of_matrix, pieces_of_matrix)
            )
            in_shared = (form & TENSOR_A).equals(0) if matrix == product.A else code.number(1).differs(0)
            with code.when(in_shared):
                kind = (descriptor >> format_bit) & FORMAT_MASK
                held = code.run(bytes_of_piece, form=form, number=kind)
                type = code.run(type_of_format, form=form, number=kind)
                _read_matrix(begun, block, operand(matrix), by_columns, groups, pieces, size=held, type=type)
        code.run(
            look_at_product, frame=begun.frame, issued=begun.issued, made=made, home=home, form=form,
            descriptor=descriptor,
        )  # fmt: skip
    code.done()


@contextmanager
def _each_block(code: WatchCode, begun: BegunOperation, paired: Value) -> Iterator[Record]:
    """Run the body for the block that issues an operation, and for the other one if it is of a pair."""
    own = begun.block
    # An operation of a pair that the launch does not have is a fault.
    others = is_paired(own).select(paired, code.number(0))
    with code.loop(others + 1) as number:
        chosen = code.variable(own.address)
        with code.when(number.differs(0)):
            chosen.set(other_block(code, own).address)
        block = Record(code, chosen.get(), BlockRecord)
        with code.when(block.get(BlockRecord.ended).equals(0)):
            yield block


@written(_write_product_issued, name="check_product_issued", external=True)
def product_issued(frame: WarpFrame, operation: AsyncOperation) -> None:
    """tcgen05.mma is about to be issued."""
    signature_only()


# tcgen05.cp and shift ---------------------------------------------------------------------------------------


def _look_at_target(
    code: WatchCode, begun: BegunOperation, made: Record, groups: Value | int, columns: int, flags: int
) -> None:
    """Write that a copy or shift writes columns of tensor memory, in both blocks if it is one of a pair."""
    address = made.get(AsyncOperation.tensor_operands + 8 * copies.ADDRESS)
    with _each_block(code, begun, made.get(AsyncOperation.tensor_operands + 8 * copies.PAIRED)) as block:
        home = Record(code, block.get(BlockRecord.watch), BlockWatch)
        epoch, me = begun.issued.get(Issued.epoch), begun.issued.get(Issued.who)
        code.run(
            look_at_cells, frame=begun.frame, row=begun.row, home=home, groups=groups,
            first=address & COLUMN_MASK, columns=columns, epoch=epoch, me=me, flags=int(flags),
        )  # fmt: skip


def _copy_hook(shape: CopyShape) -> Hook:
    """Return the function that is called when a tcgen05.cp of a shape is issued."""
    lanes = {lane // CELL_LANES for row in range(shape.rows) for lane in shape.lanes_of(row)}
    groups = sum(1 << lane for lane in lanes)

    def write(code: WatchCode) -> None:
        begun, made = BegunOperation(code), code.record("operation")
        code.run(begin_pipe_operation, frame=begun.frame, made=made, issued=begun.issued)
        descriptor = made.get(AsyncOperation.tensor_operands + 8 * copies.DESCRIPTOR)
        paired = made.get(AsyncOperation.tensor_operands + 8 * copies.PAIRED)
        held = made.get(AsyncOperation.tensor_operands + 8 * copies.HELD_BYTES)
        with _each_block(code, begun, paired) as block:
            by_eights = code.number(-(-shape.rows // LINES_TOGETHER))
            lines = min(shape.rows, LINES_TOGETHER)
            size = by_eights, code.number(shape.pieces)
            _read_matrix(begun, block, descriptor, code.number(0), *size, lines, held)
        _look_at_target(code, begun, made, groups, shape.columns, TensorFlag.WRITES | TensorFlag.PIPE)
        code.done()

    name = shape.name.replace(".", "_").replace(":", "_")

    @written(write, name=f"check_copy_{name}_issued", external=True)
    def copy_to_tensor_issued(frame: WarpFrame, operation: AsyncOperation) -> None:
        signature_only()

    return copy_to_tensor_issued


#: By the name of the shape.
copy_hooks: dict[str, Hook] = {name: _copy_hook(shape) for name, shape in SHAPES.items()}


def _write_shift_issued(code: WatchCode) -> None:
    """Write that tcgen05.shift moves rows of a partition in place."""
    begun, made = BegunOperation(code), code.record("operation")
    code.run(begin_pipe_operation, frame=begun.frame, made=made, issued=begun.issued)
    lane = made.get(AsyncOperation.tensor_operands + 8 * copies.ADDRESS) >> LANE_SHIFT
    groups = code.number(FIRST_PARTITION) << ((lane & 127) >> 4)
    flags = TensorFlag.READS | TensorFlag.WRITES | TensorFlag.PIPE
    _look_at_target(code, begun, made, groups, SHIFTED_COLUMNS, flags)
    code.done()


@written(_write_shift_issued, name="check_shift_issued", external=True)
def shift_issued(frame: WarpFrame, operation: AsyncOperation) -> None:
    """tcgen05.shift is about to be issued."""
    signature_only()


# commits ----------------------------------------------------------------------------------------------------


@inlined
def arrive_by_commit(frame: WarpFrame, operation: AsyncOperation, home: BlockWatch) -> None:
    """The thread of a tcgen05.commit arrives at the mbarrier, which publishes what it did before."""
    watch, lane, row = watch_of(frame.block), operation.lane, operation.site * MOST_ROWS
    made = Access.on_stack()
    made.frame = frame
    made.watch = watch
    made.home = home
    made.site = row
    made.row = watch.watch.sites[row]
    made.flags = Flag.WRITES | Flag.STRONG_ACCESS | Flag.RELEASES | Flag.PHASES
    made.active = 1 << lane
    made.shared = 1
    made.host = operation.barrier_block.shared
    made.plane = home.shadow
    made.stride = home.stride
    made.shift = home.cell_shift
    made.offsets = longs_of(words_of(operation.barrier - made.host))
    made.addresses = longs_of(words_of(operation.barrier_address))
    if (home is not watch) & is_in_cluster(watch):
        note_remote(watch, home, row, LaneLongs.at(address_of(made.addresses)), made.active)
    access_strongly(made)


@compiled(name="check_commit_issued", external=True)
def commit_issued(frame: WarpFrame, operation: AsyncOperation) -> None:
    """tcgen05.commit is about to be issued: an arrival after all that its thread has issued."""
    watch, home = watch_of_running(frame), watch_of(operation.barrier_block)
    offset = operation.barrier - operation.barrier_block.shared
    number = follow_barrier(home, offset, load_long(operation.barrier))
    clock = tensor_clock(watch, frame.index)
    commit = clock.commits[clock.commit_count & (COMMITS_KEPT - 1)]
    clock.commit_count += 1
    commit.epoch = begin_operation(frame, AsyncKind.TENSOR, operation.lane, 0, 0, 0, watch)
    commit.lane = operation.lane
    commit.home = home
    commit.number = number
    commit.phase = phase_of_commit(home, number, load_long(operation.barrier))
    if number >= 0:
        barrier = followed_barrier(home, number)
        barrier.commit_epoch = commit.epoch
        barrier.commit_row = operation.site * MOST_ROWS
        row, address = barrier.commit_row, operation.barrier_address
        check_initialised(frame, row, home, number, operation.lane, address)
        check_commit(frame, row, barrier, commit.phase, operation.lane, load_long(operation.barrier))
    begin_epoch(frame)
    arrive_by_commit(frame, operation, home)
