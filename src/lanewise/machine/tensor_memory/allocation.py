"""tcgen05.alloc, dealloc and relinquish_alloc_permit: columns of tensor memory.

A warp allocates 32, 64, 128, 256 or 512 columns of all 128 lanes. If there are too few, it waits until
another warp of its block frees some. With .cta_group::2 a warp of each block of a pair allocates, and both
get the same columns; a warp that comes first waits for the other. The columns are the lowest that are free
one after the other; which ones hardware chooses is not documented. Each block has 512 columns of its own
here: on hardware the blocks that a multiprocessor runs at a time share them.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Value, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord, WarpFrame
from lanewise.machine.codegen.cluster_scheduler import release_waiting
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Kernel, Record, shared_code
from lanewise.machine.codegen.tensor_pipe import is_paired, other_block
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, UNIT, UNITS, TensorAllocator
from lanewise.machine.warp_ops.addresses import WRITE, Access, reached_space
from lanewise.ptx import Immediate

#: What `try_to_allocate` answers.
GRANTED, WAITING, FAULT = range(3)
#: Operands of alloc and dealloc: the site, whether blocks allocate in pairs, and pairs of a register's offset
#: (0: none) and a number for the columns, and for the address that dealloc frees.
_SITE, _PAIRED, _COLUMNS, _ADDRESS = 0, 8, 16, 32


def is_for_pair(op: Op) -> bool:
    """Return whether an instruction is one of a pair of blocks."""
    return op.has("cta_group::2")


def register_or_number(op: Op, operand: ResolvedOperand) -> list[int]:
    """Return a 32-bit operand as two words of a step: the offset of its register (0: none), or a number."""
    if isinstance(operand, Immediate):
        return [0, operand.bits & 0xFFFFFFFF]
    if isinstance(operand, Register) and operand.bits == 32:
        return [operand.offset, 0]
    raise op.unsupported("its operands are 32-bit registers or constants")


def uniform(code: BlockCode, words: Record, operand: int, wrong: Wrong) -> Value:
    """Return an operand of 32 bits, a register's value plus a number: the same in all lanes, else a fault.

    `register_or_number` gives the two words of it.
    """
    register = words.get(operand)
    number = code.variable(words.get(operand + 8))
    with code.when(register.differs(0)):
        lanes = code.frame.get(register, u32, abi.LANES)
        first = code.frame.get(register, u32)
        with code.when(lanes.differs(first.spread(abi.LANES)).any()):
            fault(code, words, wrong, first.to(u64))
        number.set((first.to(u64).to(number.type) + words.get(operand + 8)) & 0xFFFFFFFF)
    return number.get()


def fault(code: BlockCode, words: Record, why: Wrong, number: Value | int) -> None:
    """Stop the launch: something is wrong with tensor memory."""
    code.fault(FaultKind.TENSOR_MEMORY, words.get(_SITE), 0, number, int(why))


def allocator_of(code: FunctionCode, block: Record) -> Record:
    """Return the record of a block's allocated columns."""
    return Record(code, block.get(BlockRecord.tensor_allocator), TensorAllocator)


def _need_pair(code: BlockCode, words: Record) -> None:
    """Stop the launch unless the block has another one with which it is a pair."""
    with code.when(~is_paired(code.block)):
        fault(code, words, Wrong.NO_PAIR, code.launch.get(LaunchRecord.cluster_blocks))


# alloc ------------------------------------------------------------------------------------------------------


def end_operands(op: Op) -> list[int]:
    """Return the operands with which `try_to_allocate` finds columns for a tcgen05.alloc."""
    return [op.site, int(is_for_pair(op)), *register_or_number(op, op.operands[1])]


def try_to_allocate(code: BlockCode, operands: Value) -> Value:
    """Write a call that allocates columns for the running warp; return GRANTED, WAITING or FAULT.

    If they are granted, the first one is in `barrier_result` of the warp's frame.
    """
    function = shared_code(code.module, "allocate_columns", ("operands",), _write_allocate, quickly=True)
    answer = code.invoke(function, code["frame"], operands)
    known = answer.equals(GRANTED) | answer.equals(WAITING)
    return known.select(answer, code.constant(u32, FAULT))


def _write_allocate(code: BlockCode) -> None:
    words = code.record("operands")
    columns = uniform(code, words, _COLUMNS, Wrong.COUNTS_DIFFER)
    _check_count(code, words, columns)
    own = allocator_of(code, code.block)
    with code.when(own.get(TensorAllocator.relinquished).differs(0)):
        fault(code, words, Wrong.RELINQUISHED, columns)
    with code.when(words.get(_PAIRED).differs(0)):
        _need_pair(code, words)
        _allocate_for_pair(code, words, own, columns)
    first = _free_columns(code, own.get(TensorAllocator.allocated), columns)
    with code.when(first < 0):
        code.give(WAITING)
    _mark(code, own, first, columns, first + 1)
    _grant(code, first)


def _allocate_for_pair(code: BlockCode, words: Record, own: Record, columns: Value) -> None:
    """Write the allocation of a pair: the first warp leaves its request, the second allocates for both."""
    index = code.frame.get(WarpFrame.index)
    mine = own.get(TensorAllocator.asked).differs(0) & own.get(TensorAllocator.asked_warp).equals(index)
    granted = own.get(TensorAllocator.granted)
    with code.when(mine & granted.differs(0)):
        own.set(TensorAllocator.asked, 0)
        own.set(TensorAllocator.granted, 0)
        _wake(code, code.block)
        _grant(code, granted - 1)
    with code.when(own.get(TensorAllocator.asked).differs(0) & ~mine):  # another warp of the block is first
        code.give(WAITING)
    partner = other_block(code, code.block)
    with code.when(partner.get(BlockRecord.ended).differs(0)):
        fault(code, words, Wrong.PAIR_EXITED, code.block.get(BlockRecord.rank) ^ 1)
    other = allocator_of(code, partner)
    theirs = other.get(TensorAllocator.asked)
    with code.when(theirs.equals(0) | other.get(TensorAllocator.granted).differs(0)):
        own.set(TensorAllocator.asked, columns)
        own.set(TensorAllocator.asked_warp, index)
        code.give(WAITING)
    with code.when(theirs.differs(columns)):
        fault(code, words, Wrong.PAIR_COUNT, columns)
    both = own.get(TensorAllocator.allocated) | other.get(TensorAllocator.allocated)
    first = _free_columns(code, both, columns)
    with code.when(first < 0):
        own.set(TensorAllocator.asked, columns)
        own.set(TensorAllocator.asked_warp, index)
        code.give(WAITING)
    for allocator in (own, other):
        _mark(code, allocator, first, columns, first + 1)
    own.set(TensorAllocator.asked, 0)
    other.set(TensorAllocator.granted, first + 1)
    for block in (code.block, partner):
        _wake(code, block)
    _grant(code, first)


def _grant(code: BlockCode, first: Value) -> None:
    """Leave the first column that was allocated in the frame, and return."""
    code.frame.pointer(WarpFrame.barrier_result, u32).store(first.to(u32).spread(abi.LANES))
    code.give(GRANTED)


def _check_count(code: BlockCode, words: Record, columns: Value) -> None:
    """Stop the launch unless a number of columns is a power of two from 32 to 512."""
    power = (columns & (columns - 1)).equals(0)
    with code.when(~(power & ~(columns < UNIT) & ~(columns > TENSOR_COLUMNS))):
        fault(code, words, Wrong.COUNT, columns)


def _free_columns(code: FunctionCode, allocated: Value, columns: Value) -> Value:
    """Return the first of so many free columns one after the other; -1 if there are not as many."""
    units = columns >> (UNIT.bit_length() - 1)
    wanted = (code.number(1) << units) - 1
    first = code.variable(code.number(-1))
    with code.loop(code.number(UNITS + 1) - units) as unit:
        free = ((allocated >> unit) & wanted).equals(0)
        with code.when(free & (first.get() < 0)):
            first.set(unit * UNIT)
    return first.get()


def _mark(code: FunctionCode, allocator: Record, first: Value, columns: Value, owner: Value | int) -> None:
    """Write that columns belong to an allocation; to none if `owner` is 0."""
    unit, units = (number >> (UNIT.bit_length() - 1) for number in (first, columns))
    bits = ((code.number(1) << units) - 1) << unit
    allocated = allocator.get(TensorAllocator.allocated) & ~bits
    freed = allocator.get(TensorAllocator.freed) & ~bits
    is_freed = isinstance(owner, int)
    allocator.set(TensorAllocator.allocated, allocated if is_freed else allocated | bits)
    allocator.set(TensorAllocator.freed, freed | bits if is_freed else freed)
    with code.loop(unit + units, unit) as number:
        allocator.set(number * 8 + TensorAllocator.owners, owner)


def _wake(code: FunctionCode, block: Record) -> None:
    """Let the warps of a block that wait for columns try again."""
    launch = block.at(BlockRecord.launch)
    size, frames = launch.get(LaunchRecord.frame_bytes), block.get(BlockRecord.frames)
    with code.loop(launch.get(LaunchRecord.warps)) as index:
        release_waiting(code, Record(code, frames + index * size), abi.WAITS_FOR_COLUMNS)


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.alloc after the columns were allocated: their address is written to shared memory."""
    active, lane = code.bits(code.active(op)), code.number(0)
    with code.when(active.differs(0)):
        with code.when(active.differs(-1)):
            code.fault(FaultKind.DIVERGENCE, op.site)
        (located,) = accesses(op)
        access = Access(code, op.site, reached_space(op, located), located.size, located.size, WRITE)
        host = access.host(code.address_of(located.address, lane), lane)
        Pointer(code, u32, host).store(code.frame.get(WarpFrame.barrier_result, u32))


# dealloc and relinquish_alloc_permit ------------------------------------------------------------------------


def dealloc_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.dealloc as a shared step."""
    address, columns = (register_or_number(op, operand) for operand in op.operands)
    function = shared_code(module, "free_columns", STEP_ARGUMENTS, _write_dealloc, quickly=True)
    return Step(function, [op.site, int(is_for_pair(op)), *columns, *address])


def _write_dealloc(code: BlockCode) -> None:
    words = code.record("operands")
    code.demand_whole_warp(words.get(0))
    columns = uniform(code, words, _COLUMNS, Wrong.COUNTS_DIFFER)
    address = uniform(code, words, _ADDRESS, Wrong.ADDRESSES_DIFFER)
    _check_count(code, words, columns)
    own, last = allocator_of(code, code.block), address + columns - UNIT
    with code.when((address & (UNIT - 1)).differs(0) | ~(last < TENSOR_COLUMNS)):
        fault(code, words, Wrong.NOT_AN_ALLOCATION, address)
    first_unit, units = (number >> (UNIT.bit_length() - 1) for number in (address, columns))
    is_whole = code.variable(code.number(0))
    with code.loop(UNITS) as number:  # the units of the allocation, and no others
        belongs = own.get(number * 8 + TensorAllocator.owners).equals(address + 1)
        named = ~(number < first_unit) & (number < first_unit + units)
        is_whole.set(is_whole.get() | (belongs ^ named).to(u64).to(is_whole.type))
    with code.when(is_whole.get().differs(0)):
        fault(code, words, Wrong.NOT_AN_ALLOCATION, address)
    _mark(code, own, address, columns, 0)
    _wake(code, code.block)
    with code.when(words.get(_PAIRED).differs(0)):
        _need_pair(code, words)
        partner = other_block(code, code.block)
        with code.when(partner.get(BlockRecord.ended).equals(0)):
            _wake(code, partner)


def relinquish_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return tcgen05.relinquish_alloc_permit as a shared step."""
    function = shared_code(module, "relinquish_columns", STEP_ARGUMENTS, _write_relinquish, quickly=True)
    return Step(function, [op.site, int(is_for_pair(op))])


def _write_relinquish(code: BlockCode) -> None:
    words = code.record("operands")
    code.demand_whole_warp(words.get(0))
    with code.when(words.get(_PAIRED).differs(0)):
        _need_pair(code, words)
    allocator_of(code, code.block).set(TensorAllocator.relinquished, 1)
