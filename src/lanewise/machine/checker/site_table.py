"""The site table of a checked kernel: how each instruction is watched, read by the compiled checker.

Each instruction has as many rows as `instruction_table.MOST_ROWS` says: first what it orders or which lanes
it names, then one row for each of its accesses.
"""

import numpy as np
import numpy.typing as npt

from lanewise.isa.tensor_memory.copy_shapes import EXPANSIONS
from lanewise.jit.host_memory import address
from lanewise.machine.analysis.cas_loops import guessing_loads
from lanewise.machine.analysis.phase_tests import unheeded_tests
from lanewise.machine.analysis.pointer_provenance import DESCRIPTOR_SHIFT, AddressSources
from lanewise.machine.analysis.register_pool import registers_at_launch
from lanewise.machine.analysis.value_uses import Use, ValueUses
from lanewise.machine.checker.allocations.padding import padded_block
from lanewise.machine.checker.deciding_values import Comparison, DecidingValues
from lanewise.machine.checker.records import (
    MOST_BOUNDED,
    MOST_NUMBERS,
    Flag,
    LastRequest,
    ShuffleMode,
    SiteRow,
    Space,
    StoredElement,
    order_kind,
)
from lanewise.machine.program.instruction_record import Order, Proxy, Role, Size, Waits
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import (
    LocatedAccess,
    tile_alignment,
    tile_lines,
    watched_accesses,
)
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, Symbol, elements_of
from lanewise.machine.program.ops import Op, Program
from lanewise.ptx import Immediate

_SPACES = {
    "global": Space.GLOBAL,
    "shared": Space.SHARED,
    "local": Space.LOCAL,
    "generic": Space.GENERIC,
}
#: Modifiers of accesses that do not race with each other.
_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
_RELEASING = frozenset(("release", "acq_rel"))
_ACQUIRING = frozenset(("acquire", "acq_rel"))
_SHUFFLES = {"up": ShuffleMode.UP, "down": ShuffleMode.DOWN, "bfly": ShuffleMode.BUTTERFLY}
#: Instructions whose first operand is a number: of the latest groups that they do not wait for, of registers.
_OF_NUMBERS = (
    Order.WAIT_GROUP, Order.WARPGROUP_WAIT, Order.BULK_WAIT, Order.BULK_WAIT_READ, Order.REGISTERS,
)  # fmt: skip
#: How many harmless suspicions of one kind an instruction may report to Python.
PATIENCE = 20_000

Row = dict[int, int]


def has_order_row(op: Op) -> bool:
    """Return whether the first row of an instruction says what it orders."""
    return op.record.orders is not Order.NOTHING


def first_access_row(op: Op) -> int:
    """Return the number of the row of an instruction's first access."""
    return MOST_ROWS * op.site + (op.record.orders is not Order.NOTHING)


def is_followed(op: Op) -> bool:
    """Return whether a kernel with this instruction has the records of asynchronous operations."""
    orders = op.record.orders in (Order.REGISTERS, Order.CLUSTER_ARRIVAL)
    record = op.record
    return by_async_proxy(op) or record.makes_mbarrier or record.touches_tensor_memory or orders


def by_async_proxy(op: Op) -> bool:
    """Return whether an instruction accesses memory by the asynchronous proxy; it has one row for that."""
    return any(access.proxy is Proxy.ASYNC for access in op.record.memory)


def is_warp_barrier(op: Op) -> bool:
    """Return whether an instruction is a barrier of the lanes that its mask names: bar.warp.sync."""
    return op.record.waits is Waits.MEMBERS and not op.record.has_code


def access_of(op: Op, row: int) -> LocatedAccess | None:
    """Return the access that a row of an instruction stands for; None if it stands for none."""
    accesses = watched_accesses(op)
    number = row - first_access_row(op)
    return accesses[number] if 0 <= number < len(accesses) else None


def fresh_table(watched: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return a watch's copy of the site table, and the memory of its last requests."""
    rows = watched.copy()
    memory = np.zeros((len(rows), LastRequest.BYTES), np.uint8)
    rows[:, SiteRow.last_request // 8] = address(memory) + np.arange(len(rows)) * LastRequest.BYTES
    return rows, memory


def watched_sites(
    program: Program, sources: AddressSources, uses: ValueUses, arch: str
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Return the site table before anything ran, and the lists of stored elements that its rows point to.

    `sources` says which variables addresses lead into, `uses` what becomes of values that are read.
    """
    rows = np.zeros((len(program.sites) * MOST_ROWS + 1, SiteRow.BYTES // 8), np.int64)
    rows[:, SiteRow.limits // 8 :] = PATIENCE
    guessing, unheeded = guessing_loads(program), unheeded_tests(program)
    registers, values = registers_at_launch(program, arch), DecidingValues(program)
    elements: list[npt.NDArray[np.int64]] = []
    for op in program.sites:
        site_rows = _rows(op, program, arch, sources)
        for row in site_rows:
            if _is_strong_read(row) and _uses_value(op, uses):
                row |= _decision(values.comparison(op))
        if op in guessing:
            for row in site_rows:
                row[SiteRow.flags] |= Flag.STRONG_ACCESS
        if op.site in unheeded:
            for row in site_rows:
                row[SiteRow.flags] = 0  # it may have given up, and shows nothing
        if op.record.orders is Order.REGISTERS:
            site_rows[0][SiteRow.step] = registers
        stored = _stored(op)
        if stored is not None:
            elements.append(stored)
            known = op.record.is_plain_store or op.record.is_matrix_store
            count = len(stored) if known else -len(stored)
            written = site_rows[-len(watched_accesses(op))]  # cp.async reads by another row
            written |= {SiteRow.stored_count: count, SiteRow.stored: address(stored)}
        for number, row in enumerate(site_rows):
            for offset, value in row.items():
                rows[op.site * MOST_ROWS + number, offset // 8] = _as_i64(value)
    _number_accesses(rows, program)
    return rows, elements


def _as_i64(value: int) -> int:
    """Return the signed number of 64 bits with the same low bits: displacements wrap around, as addresses do.

    >>> _as_i64(2**63) == -(2**63), _as_i64(-1), _as_i64(7)
    (True, -1, 7)
    """
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _stored(op: Op) -> npt.NDArray[np.int64] | None:
    """Return a StoredElement for each element that decides on what is written; None if none is known.

    Those are the elements of a plain store, the rows of stmatrix, the count of mbarrier.init, that of
    tcgen05.alloc, and where cp.async reads how many bytes.
    """
    if op.record.is_matrix_store:
        return _stored_rows(op)
    if not watched_accesses(op):
        return None
    located, *_ = watched_accesses(op)
    if located.access.asynchronous:
        source = op.operands[1]
        assert isinstance(source, MemoryOperand)
        elements = (*([source.base] if isinstance(source.base, Register) else []), *op.operands[2:])
    elif op.record.makes_mbarrier or op.record.allocates_tensor_memory:
        elements = op.operands[1:2]
    elif op.record.is_plain_store:
        elements = elements_of(op.operands[located.access.data])
    else:
        return None
    if not elements:  # mbarrier.inval
        return None
    stored = np.zeros((len(elements), StoredElement.BYTES // 8), np.int64)
    for row, element in zip(stored, elements, strict=True):
        row[StoredElement.register // 8] = -1
        row[StoredElement.bytes // 8] = located.size // len(elements)
        if isinstance(element, Register):
            row[StoredElement.register // 8] = element.offset
            row[StoredElement.register_bits // 8] = element.bits
        elif isinstance(element, Immediate):
            row[StoredElement.constant // 8] = (element.bits + (1 << 63)) % (1 << 64) - (1 << 63)
        else:
            return None
    return stored


def _stored_rows(op: Op) -> npt.NDArray[np.int64] | None:
    """Return a StoredElement for each element of the rows that stmatrix writes, row after row."""
    instruction, (located,) = op.source.instruction(), watched_accesses(op)
    assert instruction is not None
    (matrix,) = instruction.operands.values()
    registers = elements_of(op.operands[located.access.data])
    element_bytes = matrix.format.bits // 8
    elements = instruction.row_addresses.row_bytes // element_bytes
    stored = np.zeros((instruction.row_addresses.rows * elements, StoredElement.BYTES // 8), np.int64)
    for number, row in enumerate(stored):
        holder = matrix.holder(*divmod(number, elements))
        register = registers[holder.register]
        if not isinstance(register, Register):
            return None
        row[StoredElement.register // 8] = register.offset
        row[StoredElement.register_bits // 8] = register.bits
        row[StoredElement.bytes // 8] = element_bytes
        row[StoredElement.lane // 8] = holder.lane
        row[StoredElement.first_bit // 8] = matrix.format.bits * holder.slot
    return stored


def _number_accesses(rows: npt.NDArray[np.int64], program: Program) -> None:
    """Give each access the number that stands for it in shadow memory, from 1 on.

    If there are more accesses than numbers, copies of one line of the source have the same.
    """
    access_rows = [
        first_access_row(op) + number
        for op in program.sites
        for number in range(
            len(watched_accesses(op)) or by_async_proxy(op) or op.record.touches_tensor_memory
        )
    ]
    keys: list[object] = list(access_rows)
    if len(access_rows) >= MOST_NUMBERS:
        sites = (program.sites[row // MOST_ROWS] for row in access_rows)
        keys = [(program.module.origin(op.loc), op.opcode) if op.loc is not None else op.line for op in sites]
    numbers: dict[object, int] = {}
    for row, key in zip(access_rows, keys, strict=True):
        number = numbers.setdefault(key, len(numbers) + 1)
        rows[row, SiteRow.number // 8] = min(number, MOST_NUMBERS)


def row_of_number(rows: npt.NDArray[np.int64], number: int) -> int:
    """Return the first row of the access that has a number in shadow memory."""
    return int(np.argmax(rows[:, SiteRow.number // 8] == number))


def _rows(op: Op, program: Program, arch: str, sources: AddressSources) -> list[Row]:
    """Return the rows of one instruction."""
    rows: list[Row] = []
    record = op.record
    if record.waits is Waits.BARRIER:
        rows.append(_barrier(op))
    elif record.waits is Waits.MEMBERS:
        # A barrier of the warp waits for lanes that have not arrived.
        flags = Flag.EVERY_LANE if is_warp_barrier(op) else Flag(0)
        mask = op.operands[-1] if op.operands else Immediate("s64", -1, "-1")
        row = {SiteRow.flags: int(flags)} | _operand(mask, SiteRow.base, SiteRow.displacement)
        rows.append(row | _shuffle(op))
    if has_order_row(op):
        rows.append(_order(op))
    if by_async_proxy(op):
        rows.append(_operand_bounds(op, sources))
    for access in watched_accesses(op):
        row = _access(op, access, program, arch)
        rows.append(row | _bounds(sources.variable(op, access.address.base)))
    return rows


def _operand(operand: ResolvedOperand, register: int, constant: int) -> Row:
    """Return a 32-bit operand as fields of a row: a register's offset, or a constant."""
    if isinstance(operand, Register):
        return {register: operand.offset}
    return {register: -1, constant: operand.bits & 0xFFFFFFFF if isinstance(operand, Immediate) else 0}


def _shuffle(op: Op) -> Row:
    """Return the fields of a shuffle: how it finds the lane that it reads; nothing for other instructions."""
    if not op.record.shuffles:
        return {}
    mode = next((mode for name, mode in _SHUFFLES.items() if op.has(name)), ShuffleMode.INDEX)
    return (
        {SiteRow.flags: int(Flag.SHUFFLES), SiteRow.element_bits: mode}
        | _operand(op.operands[2], SiteRow.step_base, SiteRow.step)
        | _operand(op.operands[3], SiteRow.lowest, SiteRow.highest)
    )


def _barrier(op: Op) -> Row:
    """Return the row of a barrier: its number and its count of threads."""
    operands = list(op.operands)
    if op.record.role(0) is Role.DEFINED:
        operands = operands[1:-1]
    row: Row = {SiteRow.flags: 0 if op.has("arrive") else Flag.WAITS}
    if operands:
        row |= _operand(operands[0], SiteRow.base, SiteRow.displacement)
    if len(operands) > 1:
        row |= _operand(operands[1], SiteRow.step_base, SiteRow.step)
    return row


def _order(op: Op) -> Row:
    """Return the row of a fence, commit or wait, or of setmaxnreg."""
    row: Row = {SiteRow.flags: order_kind(op)}
    if op.record.orders in _OF_NUMBERS:
        number = op.operands[0] if op.operands else None
        row[SiteRow.displacement] = number.bits if isinstance(number, Immediate) else 0
    elif op.record.orders is Order.WAIT_ALL:
        row[SiteRow.displacement] = -1
    return row


def _bounds(variable: Symbol | None) -> Row:
    """Return the bounds of the shared variable that an address was computed from, if it is known."""
    if variable is None:
        return {}
    return {SiteRow.lowest: variable.address, SiteRow.highest: variable.address + variable.size}


def _operand_bounds(op: Op, sources: AddressSources) -> Row:
    """Return the bounds of the shared variables that an asynchronous operation's addresses lead into.

    The row also says whether it accesses them by the generic proxy.
    """
    row: Row = {SiteRow.flags: int(Flag.GENERIC_PROXY) if op.record.stores_asynchronously else 0}
    for number, access in enumerate(op.record.memory):
        operand = op.operands[access.operand] if access.operand < len(op.operands) else None
        if isinstance(operand, MemoryOperand) and access.space == "shared":
            variable = sources.variable(op, operand.base)
        elif isinstance(operand, Register) and access.size is Size.DESCRIPTOR:
            variable = sources.variable(op, operand, DESCRIPTOR_SHIFT)
        else:
            continue
        if variable is not None:
            field = bounds_of_operand(number)
            row |= {field: variable.address, field + 8: variable.address + variable.size}
    return row


def bounds_of_operand(number: int) -> int:
    """Return the field of a row with the lowest address of an access by its number; the next is the end."""
    assert number < MOST_BOUNDED
    return SiteRow.operand_bounds + 16 * number


def _address(address: MemoryOperand, program: Program) -> Row:
    """Return an address as fields of a row: a register's offset and width, and a displacement."""
    base = address.base
    if isinstance(base, Register):
        return {
            SiteRow.base: base.offset,
            SiteRow.base_bits: base.bits,
            SiteRow.displacement: address.offset,
        }
    if isinstance(base, Symbol):
        start = base.address + (program.dynamic_offset if base.space == "dynamic" else 0)
    else:
        start = base.bits
    return {SiteRow.base: -1, SiteRow.displacement: start + address.offset}


def _leaves_value(op: Op) -> bool:
    """Return whether an atomic writes what it reads: it adds 0, or compares with what it would store."""
    if op.has("cas"):
        return bool(op.operands[2] == op.operands[3])
    zero = isinstance(op.operands[-1], Immediate) and op.operands[-1].bits == 0
    return zero and (op.has("add") or op.has("or") or op.has("xor"))


def _is_strong_read(row: Row) -> bool:
    """Return whether a row is of an access that reads a word by a strong operation."""
    strong = Flag.READS | Flag.STRONG_ACCESS
    return row.get(SiteRow.flags, 0) & (strong | Flag.PHASES) == strong and SiteRow.access_size in row


def _uses_value(op: Op, uses: ValueUses) -> bool:
    """Return whether the kernel uses a value that an instruction reads.

    A thread that does not look at the value of an atomic goes on without having observed another one before.
    """
    values = enumerate(elements_of(op.operands[0]))
    return any(isinstance(value, Register) and uses.of(op, number) > Use.DROPPED for number, value in values)


def _decision(comparison: Comparison) -> Row:
    """Return how the value of a strong read is compared, as fields of a row."""
    row = {SiteRow.decision: int(comparison.decision), SiteRow.flipped_bit: comparison.flipped_bit}
    if comparison.operand is None:
        return row
    return row | _operand(comparison.operand, SiteRow.decision_base, SiteRow.decision_constant)


def _access(op: Op, located: LocatedAccess, program: Program, arch: str) -> Row:
    """Return the row of one access."""
    access = located.access
    relaxed = op.has("relaxed")  # an arrival at an mbarrier then publishes nothing, a wait acquires nothing
    is_mbarrier = access.size is Size.MBARRIER
    releases = (access.releases and not relaxed) or _RELEASING.intersection(op.modifiers)
    holding = (
        (Flag.READS, access.reads),
        (Flag.WRITES, access.writes),
        (Flag.STRONG_ACCESS, access.strong or _STRONG.intersection(op.modifiers)),
        (Flag.RELEASES, releases),
        (Flag.ACQUIRES, (access.acquires and not relaxed) or _ACQUIRING.intersection(op.modifiers)),
        (Flag.POLLS, access.reads and access.writes and not releases and _leaves_value(op)),
        (Flag.IN_BLOCK, op.has("cta")),
        (Flag.IN_CLUSTER, op.has("cluster")),
        (Flag.CONSTANT, op.has("nc")),
        (Flag.PHASES, is_mbarrier),
        # The block is the default scope.
        (Flag.NARROW_PHASE, is_mbarrier and (access.releases or access.acquires) and not op.has("cluster")),
        (Flag.INVALIDATES, is_mbarrier and op.has("inval")),
        (Flag.ARRIVES_LATER, is_mbarrier and op.record.orders is Order.TRACK),
        (Flag.VOLATILE_ACCESS, op.has("volatile")),
        (Flag.COPIES, access.asynchronous),
        (Flag.BY_ONE_LANE, access.by_one_lane),
    )
    flags = sum(flag for flag, holds in holding if holds)
    asked: Row = _arrivals(op) if is_mbarrier else {}
    if is_mbarrier and access.acquires:
        asked = _operand(op.operands[2], SiteRow.step_base, SiteRow.step)
        asked[SiteRow.element_bits] = getattr(op.operands[2], "bits", 32)
    row: Row = (
        _address(located.address, program)
        | {
            SiteRow.space: _SPACES.get(located.space, Space.GLOBAL),
            SiteRow.access_size: located.size,
            SiteRow.flags: flags,
        }
        | asked
    )
    if access.size is Size.TYPE:
        elements = len(elements_of(op.operands[access.data]))
        row[SiteRow.element_bits] = 8 * located.size // elements
        row[SiteRow.alignment] = padded_block(located.size, elements, program.local_alignment)
    if access.size is Size.MATRIX_ROW:
        _add_matrix(op, row, access.writes, arch)
    elif access.size is Size.TILE_LINE:
        _add_tile(op, row)
    return row


def _arrivals(op: Op) -> Row:
    """Return how often a lane arrives at an mbarrier as fields of a row; nothing if it does not."""
    if op.record.orders is Order.TRACK:
        return {SiteRow.step: int(op.has("noinc"))}
    if op.record.role(0) is not Role.DEFINED:
        return {}
    counted = len(op.operands) > 2 and not op.has("expect_tx")
    return _operand(op.operands[2], SiteRow.step_base, SiteRow.step) if counted else {SiteRow.step: 1}


def _add_matrix(op: Op, row: Row, writes: bool, arch: str) -> None:
    """Add what ldmatrix and stmatrix need: the first lanes give the addresses of matrix rows."""
    instruction = op.source.instruction()
    assert instruction is not None
    count = instruction.row_addresses.rows
    row[SiteRow.flags] |= Flag.MATRIX
    packed = next((expansion for name, expansion in EXPANSIONS.items() if op.has(name)), None)
    if packed is not None:  # the rest of a row is a gap
        row[SiteRow.access_size] = packed.held_bytes
    if writes and not op.has("trans"):
        row[SiteRow.flags] |= Flag.BY_WORD
    if arch == "sm_75" and count < 32:
        row[SiteRow.flags] |= Flag.EVERY_LANE
    row[SiteRow.lanes_read] = (1 << count) - 1


def _add_tile(op: Op, row: Row) -> None:
    """Add what wmma.load and wmma.store need: lines of a tile, a stride apart."""
    instruction = op.source.instruction()
    assert instruction is not None
    tile = tile_lines(instruction)
    row[SiteRow.flags] |= Flag.TILE
    row[SiteRow.lanes_read] = (1 << tile.lines) - 1
    row[SiteRow.element_bits] = tile.element_bits
    row[SiteRow.alignment] = tile_alignment(instruction)
    if instruction.stride:
        row |= _operand(op.operands[-1], SiteRow.step_base, SiteRow.step)
    else:
        row[SiteRow.step] = tile.elements
