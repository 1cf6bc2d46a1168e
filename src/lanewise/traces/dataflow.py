"""What elements of a wgmma's result were made from: A and B through matrix descriptors, or A in registers."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lanewise.isa import Instruction
from lanewise.isa.matrix_descriptor import MatrixDescriptor
from lanewise.machine import abi
from lanewise.machine.abi import LANES, SHARED_WINDOW, WARPGROUP
from lanewise.machine.program.basic_blocks import callees
from lanewise.machine.program.instruction_record import AccessKind, BlockEnd, Level, Size
from lanewise.machine.program.instruction_table import BARRIER_RESULT, CALL_RESULTS
from lanewise.machine.program.memory_accesses import tile_lines
from lanewise.machine.program.operands import (
    MemoryOperand,
    Negated,
    Register,
    RegisterPart,
    ResolvedOperand,
    SpecialRegister,
    Symbol,
    elements_of,
)
from lanewise.machine.program.ops import Op, all_registers
from lanewise.machine.tensor_core.wgmma import SharedMatrix, Statement
from lanewise.machine.tracer.log import COMPLETION
from lanewise.machine.tracer.points import LoggedAccess, Point
from lanewise.machine.tracer.records import ASYNC_WRITE_POINT, FILLED
from lanewise.ptx import Immediate
from lanewise.traces.byte_flow import Part, control_registers, parts_of, used_operands
from lanewise.traces.fragments import MatrixOperand, matrix_operands
from lanewise.traces.history import space_of
from lanewise.traces.places import MemoryPlace, RegisterPlace, Source
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_origins import TensorOrigins


class WarpgroupProducts:
    """Finds the sources of results of wgmma.mma_async."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.log = recording, recording.log

    def product(
        self, entry: int, op: Op, operands: dict[str, MatrixOperand], place: RegisterPlace
    ) -> list[Source]:
        """D[row, col] comes from the sum before, unless scale-d is 0, a row of A and a column of B."""
        instruction = op.source.instruction()
        assert instruction is not None
        statement = Statement(op, instruction.on(self.recording.run.arch))
        d = operands["d"].operand
        thread = place.warp % WARPGROUP * LANES + place.lane
        _, row, col = d.cell(thread, slots_of(operands["d"], place)[0])
        sources = []
        if self._adds(statement, op, place, entry):
            sources.append(Source(place, f"d[{row}, {col}]", d.format))
        when = self.recording.warpgroup_entry(entry)
        matrices = {matrix.name: matrix for matrix in statement.matrices()}
        if "a" in matrices:
            sources += self._shared(matrices["a"], row, statement, place, entry, when)
        elif "a" in operands:
            sources += self._registers(operands["a"], row, place)
        return sources + self._shared(matrices["b"], col, statement, place, entry, when)

    def _value(self, op: Op, offset: int, place: RegisterPlace, entry: int) -> int:
        """Return what a lane holds in the register at an offset of the frame, before an entry."""
        register = next(register for register in all_registers(op) if register.offset == offset)
        return self._held(register, place, entry)

    def _held(self, register: Register, place: RegisterPlace, entry: int) -> int:
        values, _ = self.recording.registers.last(place.block, place.warp, [register], entry - 1)
        return int(values[place.lane])

    def _adds(self, statement: Statement, op: Op, place: RegisterPlace, entry: int) -> bool:
        """Return whether the product is added to the sum before: what scale-d says."""
        offset, number = statement.scale_d
        return bool(self._value(op, offset, place, entry) ^ number if offset else number)

    def _shared(
        self,
        matrix: SharedMatrix,
        line: int,
        statement: Statement,
        place: RegisterPlace,
        entry: int,
        when: int,
    ) -> list[Source]:
        """Return the elements of a row of A, or of a column of B, in shared memory."""
        descriptor = matrix.constant
        if matrix.register:
            descriptor = self._value(statement.op, matrix.register, place, entry)
        addresses = element_addresses(descriptor, matrix)[line]
        operand = statement.instruction.operands[matrix.name]
        size = max(matrix.bits // 8, 1)
        return [
            Source(
                MemoryPlace(SHARED_WINDOW + int(address), size, place.block, place.warp, place.lane),
                f"{matrix.name}[{line}, {k}]" if matrix.name == "a" else f"{matrix.name}[{k}, {line}]",
                operand.format,
                when,
            )
            for k, address in enumerate(addresses)
        ]

    def _registers(self, a: MatrixOperand, row: int, place: RegisterPlace) -> list[Source]:
        """Return the elements of a row of A that the threads of a warp hold in registers."""
        layout, sources = a.operand, []
        first = place.warp // WARPGROUP * WARPGROUP
        for k in range(layout.cols):
            holder = layout.holder(row, k)
            where = RegisterPlace(
                place.block, first + holder.lane // LANES, holder.lane % LANES,
                (a.registers[holder.register],), holder.slot * layout.slot_bits // 8,
                max(layout.slot_bits // 8, 1),
            )  # fmt: skip
            sources.append(Source(where, f"a[{row}, {k}]", layout.format))
        return sources


@lru_cache(maxsize=256)
def element_addresses(descriptor: int, matrix: SharedMatrix) -> npt.NDArray[np.int64]:
    """Return the shared address of each element of a matrix, by row of A or column of B, and k."""
    fields = MatrixDescriptor.decode(descriptor)
    return fields.element_addresses(matrix.rows, matrix.k, matrix.bits, matrix.major)


def slots_of(operand: MatrixOperand, place: RegisterPlace) -> range:
    """Return which elements of a lane's fragment the bytes of a register hold, counted over all registers."""
    layout = operand.operand
    number = operand.registers.index(place.registers[0]) if place.registers[0] in operand.registers else 0
    first, end = 8 * place.first, 8 * (place.first + max(place.size, 1))
    before = number * layout.slots
    return range(before + first // layout.slot_bits, before + -(-end // layout.slot_bits))


def elements_in(operand: MatrixOperand, place: RegisterPlace) -> list[RegisterPlace]:
    """Return the parts of a place that each hold an element; elements of less than a byte share theirs."""
    size = max(operand.operand.slot_bits // 8, 1)
    end = place.first + place.size
    borders = [place.first, *range(place.first // size * size + size, end, size), end]
    return [replace(place, first=first, size=end - first) for first, end in pairwise(borders)]


class Dataflow:
    """Finds the sources of what entries of a recording wrote."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.log = recording, recording.log
        self._warpgroup, self.tensor = WarpgroupProducts(recording), TensorOrigins(recording)

    # what a register was made from ------------------------------------------------------------------------

    def of_register(self, entry: int, place: RegisterPlace) -> list[Source]:
        """Return the sources of what an entry wrote to bytes of a register of one lane."""
        point = self.log.point(entry)
        op = point.op
        results = [
            operand
            for operand in (matrix_operands(op, self.recording.run.arch) if op is not None else ())
            if operand.is_result and place.registers[0] in operand.registers
        ]
        parts = elements_in(results[0], place) if results and place.size else [place]
        sources = [source for part in parts for source in self._of_element(entry, point, part)]
        return list(dict.fromkeys(sources))

    def _of_element(self, entry: int, point: Point, place: RegisterPlace) -> list[Source]:
        """Return the sources of bytes of a register that hold no more than one element of a matrix."""
        op = point.op
        if op is None or op.opcode == CALL_RESULTS:
            targets = self._passed_to(point)
            return self._passed(
                entry, place, [n for n, target in enumerate(targets) if target in place.registers]
            )
        if op.opcode == BARRIER_RESULT:
            return []
        if op.record.touches_tensor_memory and op.has("ld"):
            return self.tensor.loaded(entry, op, place)
        operands = matrix_operands(op, self.recording.run.arch)
        if op.record.multiplies:
            return self._product(entry, op, operands, place)
        if point.accesses:
            return self._loaded(entry, point, op, operands, place)
        if op.record.shuffles:
            return self._shuffled(entry, op, place)
        if len(operands) == 2:  # movmatrix
            return self._transposed(operands, place)
        if op.record.level is not Level.LANE:
            return self._of_the_warp(entry, op, place)
        return list(self._computed(entry, op, place))

    def _product(
        self, entry: int, op: Op, operands: list[MatrixOperand], place: RegisterPlace
    ) -> list[Source]:
        """D[row, col] comes from C[row, col], a row of A and a column of B."""
        by_name = {operand.name: operand for operand in operands}
        d = by_name.get("d")
        if d is not None and d.operand.threads > LANES:
            return self._warpgroup.product(entry, op, by_name, place)
        if d is None or not {"a", "b"} <= by_name.keys():
            return list(self._computed(entry, op, place))
        product, row, col = self._cell(d, place)
        elements = []
        if "c" in by_name:
            elements.append(self._element(by_name["c"], product, row, col, place))
        a, b = by_name["a"], by_name["b"]
        elements += [self._element(a, product, row, k, place) for k in range(a.operand.cols)]
        elements += [self._element(b, product, k, col, place) for k in range(b.operand.rows)]
        return elements

    def _cell(self, operand: MatrixOperand, place: RegisterPlace) -> tuple[int, int, int]:
        """Return the product, row and column of the element that a place of a result holds."""
        return operand.operand.cell(place.lane, slots_of(operand, place)[0])

    def _element(
        self, operand: MatrixOperand, product: int, row: int, col: int, place: RegisterPlace
    ) -> Source:
        """Return an element of a matrix that a warp holds."""
        layout = operand.operand
        holder = layout.holder(row, col, product)
        size = max(layout.slot_bits // 8, 1)
        where = RegisterPlace(
            place.block, place.warp, holder.lane, (operand.registers[holder.register],),
            holder.slot * layout.slot_bits // 8, size,
        )  # fmt: skip
        return Source(where, f"{operand.name}[{row}, {col}]", layout.format)

    def _loaded(
        self, entry: int, point: Point, op: Op, operands: list[MatrixOperand], place: RegisterPlace
    ) -> list[Source]:
        """Return the memory that a load put into a register."""
        access = point.accesses[-1]
        if not access.located.access.reads:
            return list(self._computed(entry, op, place))
        instruction = op.source.instruction()
        addresses = self.log.addresses(entry, access)
        if instruction is None or not operands:
            row, (offset, size) = place.lane, _loaded_bytes(op, access, place)
        else:
            _, first, second = self._cell(operands[0], place)
            row, offset = _row_and_offset(instruction, operands[0], access, first, second)
            within = place.first % max(operands[0].operand.slot_bits // 8, 1)
            offset, size = offset + within, min(place.size, access.located.size)
        if not int(addresses[row]) or not size:
            return []
        memory = self._memory(int(addresses[row]) + offset, size, place)
        if op.record.is_atomic:
            return self._combined(entry, access, memory, [lane for lane in range(LANES) if lane < row])
        read = self.log.bytes_of(entry, access)[row][offset : offset + size].tobytes()
        return [Source(memory, read=read)]

    def _memory(self, address: int, size: int, place: RegisterPlace) -> MemoryPlace:
        """Return the memory at an address that a lane used; shared memory may be that of another block."""
        blocks, addresses = self.log.owners(np.array([place.block]), np.array([address], np.uint64))
        return MemoryPlace(int(addresses[0]), size, int(blocks[0]), place.warp, place.lane)

    def _shuffled(self, entry: int, op: Op, place: RegisterPlace) -> list[Source]:
        """Return the register of the lane that shfl reads."""
        source = op.operands[1]
        results = elements_of(op.operands[0])
        if not isinstance(source, Register) or place.registers[0] is not results[0]:
            return list(self._computed(entry, op, place))
        b, c = (self._number(operand, place, entry) for operand in op.operands[2:4])
        lane = _shuffle_source(op, place.lane, b, c)
        where = RegisterPlace(place.block, place.warp, lane, (source,), place.first, place.size)
        return [Source(where, f"{source.name} of lane {lane}")]

    def _number(self, operand: ResolvedOperand, place: RegisterPlace, entry: int) -> int:
        """Return the value of an integer operand in the lane of a place."""
        if isinstance(operand, Register):
            values, _ = self.recording.registers.last(place.block, place.warp, [operand], entry - 1)
            return int(values[place.lane])
        return int(operand.bits) if isinstance(operand, Immediate) else 0

    def _transposed(self, operands: list[MatrixOperand], place: RegisterPlace) -> list[Source]:
        """Return the element of a transposed matrix that movmatrix moved."""
        d, a = operands
        _, row, col = self._cell(d, place)
        return [self._element(a, 0, col, row, place)]

    def _of_the_warp(self, entry: int, op: Op, place: RegisterPlace) -> list[Source]:
        """Return the sources of an instruction that looks at registers of all active lanes: vote, redux."""
        active = int(self.log.entries["active"][entry])
        return [
            source
            for lane in range(LANES)
            if active >> lane & 1
            for source in self._computed(entry, op, replace(place, lane=lane, first=0, size=0))
        ]

    def _computed(self, entry: int, op: Op, place: RegisterPlace) -> Iterator[Source]:
        """Yield the bytes of operands that bytes of the result of a lane's instruction come from."""
        controls = {
            number: self._number(register, place, entry) for number, register in control_registers(op).items()
        }
        for part in parts_of(op, Part(place.registers[0], place.first, place.size or None), controls):
            yield self._operand(part.operand, place, part.first, part.size)

    def _operand(
        self, operand: ResolvedOperand, place: RegisterPlace, first: int = 0, size: int | None = None
    ) -> Source:
        """Return an operand as a source."""
        match operand:
            case Register():
                width = operand.bits // 8 if size is None else min(size, operand.bits // 8)
                where = RegisterPlace(place.block, place.warp, place.lane, (operand,), first, width)
                return Source(where, operand.name)
            case RegisterPart(register, selector):
                where = RegisterPlace(place.block, place.warp, place.lane, (register,), 0, register.bits // 8)
                return Source(where, f"{register.name}.{selector}")
            case Negated(_, inner):
                return self._operand(inner, place, first, size)
            case SpecialRegister(name, element):
                return Source(None, f"{name}.{element}" if element else name)
            case Symbol(name):
                return Source(None, f"the address of {name}")
            case Immediate():
                return Source(None, str(operand))
        return Source(None, str(operand))

    # what a call passes -------------------------------------------------------------------------------------

    def _passed_to(self, point: Point) -> tuple[ResolvedOperand, ...]:
        """Return what a call passes values to: a function's parameters, or what takes its results."""
        if point.function is not None:
            return point.function.parameters
        return elements_of(point.op.operands[0]) if point.op is not None else ()

    def _passed(self, entry: int, place: RegisterPlace, numbers: list[int]) -> list[Source]:
        """Return the argument or the result of a call that was passed to a place, by its number."""
        point = self.log.point(entry)
        sources: tuple[ResolvedOperand, ...] = ()
        if point.function is not None:
            call = self._call_before(entry, place)
            sources = elements_of(call.operands[2]) if call is not None else ()
        elif point.op is not None:
            names = callees(point.op)
            sources = self.recording.program.body(names[0]).returns if len(names) == 1 else ()
        if not numbers or numbers[0] >= len(sources):
            return []
        source = sources[numbers[0]]
        if isinstance(source, Symbol) and source.space == "local":
            address = abi.LOCAL_WINDOW + source.address + place.first
            return [Source(MemoryPlace(address, place.size, place.block, place.warp, place.lane))]
        return [self._operand(source, place, place.first, place.size)]

    def _call_before(self, entry: int, place: RegisterPlace) -> Op | None:
        """Return the call by which a lane came to a function that begins with an entry."""
        entries = self.log.entries
        for number in range(entry - 1, -1, -1):
            header = entries[number]
            if int(header["warp"]) != place.warp or int(header["block"]) != place.block:
                continue
            op = self.log.point(number).op
            if op is not None and op.record.ends is BlockEnd.CALL and int(header["active"]) >> place.lane & 1:
                return op
        return None

    # what memory was made from ----------------------------------------------------------------------------

    def of_memory(self, write: int, place: MemoryPlace) -> list[Source]:
        """Return the sources of what a write, by its number among all writes, put into bytes of memory."""
        writes = self.log.writes
        entry, row = int(writes.entry[write]), int(writes.row[write])
        offset = place.address - int(writes.address[write])
        point, header = self.log.point(entry), self.log.entries[entry]
        op = point.op
        if point.number == ASYNC_WRITE_POINT:
            return self._copied(write, place)
        access = point.accesses[int(writes.access[write])]
        block, warp = int(header["block"]), int(header["warp"])
        here = RegisterPlace(block, warp, row, (), 0, 0)
        if op is None or op.opcode == CALL_RESULTS:
            base = access.located.address.base
            targets = self._passed_to(point)
            passed = RegisterPlace(block, warp, row, (), offset, place.size)
            return self._passed(entry, passed, [n for n, target in enumerate(targets) if target == base])
        if op.record.is_atomic:
            memory = replace(place, warp=warp, lane=row)
            return self._combined(entry, access, memory, [lane for lane in range(LANES) if lane <= row])
        if op.record.is_plain_store:
            return self._stored(op, access, here, offset, place.size, None)
        reads = [access for access in point.accesses if access.located.access.reads]
        if reads:  # a copy from memory to memory
            start = int(self.log.addresses(entry, reads[0])[row])
            memory = self._memory(start + offset, place.size, here)
            return [Source(memory, read=self.log.written(write, place.address, place.size))] if start else []
        instruction, operands = op.source.instruction(), matrix_operands(op, self.recording.run.arch)
        if instruction is not None and operands:
            cells = (
                _cell_in_row(instruction, operands[0], access, row, byte)
                for byte in range(offset, offset + place.size)
            )
            return [self._element(operands[0], 0, *cell, here) for cell in dict.fromkeys(cells)]
        return self._data(op, here)

    def issuer(self, write: int) -> tuple[int, int] | None:
        """Return the entry and the lane that issued the asynchronous operation behind a write, if known."""
        log, writes = self.log, self.log.writes
        number, made = int(writes.access[write]), log.runs
        issuers, lanes = made.issuer, made.lane
        if number == COMPLETION:
            number = int(np.searchsorted(log.completions.entry, writes.entry[write]))
            issuers, lanes = log.completions.issuer, log.completions.lane
        entry = int(issuers[number])
        return (entry, int(lanes[number])) if entry >= 0 else None

    def _copied(self, write: int, place: MemoryPlace) -> list[Source]:
        """Return what an asynchronous operation has written: from memory, from registers, or filled in."""
        issuer, run = self.issuer(write), int(self.log.writes.access[write])
        old = Source(MemoryPlace(place.address, place.size, place.block), "the value before")
        if run == COMPLETION:
            op = self.log.point(issuer[0]).op if issuer is not None else None
            commits = op is not None and op.record.touches_tensor_memory
            name = "an arrival by tcgen05.commit" if commits else "the bytes that have arrived"
            return [old, Source(None, name)]
        runs = self.log.runs
        source, offset = int(runs.source[run]), place.address - int(runs.target[run])
        if source == FILLED:
            return [Source(None, "filled in, because it lies beyond the tensor")]
        op = self.log.point(issuer[0]).op if issuer is not None else None
        if issuer is None or op is None:
            return []
        entry, lane = issuer
        if op.record.touches_tensor_memory:
            return self.tensor.written(entry, lane, int(self.log.writes.entry[write]), place)
        header, accesses = self.log.entries[entry], self.log.point(entry).accesses
        here = RegisterPlace(int(header["block"]), int(header["warp"]), lane, (), 0, 0)
        reads = [access for access in accesses if access.located.access.kind is AccessKind.READ]
        before = [old] if accesses[0].located.access.kind is AccessKind.ATOMIC else []
        if not reads:  # st.async and red.async
            return [*before, *self._stored(op, accesses[0], here, offset, place.size, entry)]
        start = source or int(self.log.addresses(entry, reads[0])[lane])
        memory = self._memory(start + offset, place.size, here)
        read = b"" if before else self.log.written(write, place.address, place.size)
        return [*before, Source(memory, entry=int(runs.reader[run]), read=read)]

    def _stored(
        self, op: Op, access: LoggedAccess, here: RegisterPlace, offset: int, size: int, entry: int | None
    ) -> list[Source]:
        """Return the registers whose values a store put so many bytes after a lane's address."""
        elements = elements_of(op.operands[access.located.access.data])
        width = access.located.size // max(len(elements), 1)
        sources = []
        for number, element in enumerate(elements):
            first, end = max(offset - number * width, 0), min(offset + size - number * width, width)
            if first < end:
                sources.append(replace(self._operand(element, here, first, end - first), entry=entry))
        return sources

    def _combined(
        self, entry: int, access: LoggedAccess, place: MemoryPlace, lanes: list[int]
    ) -> list[Source]:
        """Return what an atomic operation made memory from: its value before, and the data of some lanes.

        The lanes of a warp do it one after the other.
        """
        op, header = self.log.point(entry).op, self.log.entries[entry]
        assert op is not None
        block, warp, size = int(header["block"]), int(header["warp"]), access.located.size
        owners, plain = self.log.owners(np.full(LANES, block), self.log.addresses(entry, access))
        distances = place.address - plain.astype(np.int64)
        is_here = (distances >= 0) & (distances < size)
        if space_of(place.address) == "shared":
            is_here &= owners == place.block
        sources, reached = [], [lane for lane in lanes if is_here[lane]]
        if op.has("exch"):
            reached = reached[-1:]
        if not (op.has("exch") and reached):
            row = next(row for row in range(LANES) if is_here[row])
            start = int(distances[row])
            before = self.log.bytes_of(entry, access, before=True)[row]
            read = before[start : start + place.size].tobytes()
            sources.append(Source(place, "the value before", read=read))
        for lane in reached:
            here = RegisterPlace(block, warp, lane, (), int(distances[lane]), place.size)
            sources += self._atomic_data(op, here, size)
        return sources

    def _atomic_data(self, op: Op, place: RegisterPlace, size: int) -> Iterator[Source]:
        """Yield what an atomic operation on `size` bytes takes for some of them from a lane's registers."""
        grain = 1 if op.has("exch") else 2 if op.types[-1:] in (("f16x2",), ("bf16x2",)) else size
        for operand in self._values(op):
            elements = elements_of(operand)
            width = size // len(elements)
            unit = min(grain, width)
            first, end = place.first // unit * unit, -(-(place.first + place.size) // unit) * unit
            for number, element in enumerate(elements):
                low, high = max(first, number * width), min(end, (number + 1) * width)
                if low < high:
                    yield self._operand(element, place, low - number * width, high - low)

    def _values(self, op: Op) -> list[ResolvedOperand]:
        """Return the operands that an instruction on memory uses, without addresses."""
        return [operand for operand in used_operands(op) if not isinstance(operand, MemoryOperand)]

    def _data(self, op: Op, place: RegisterPlace) -> list[Source]:
        """Return these operands as sources, as a whole."""
        parts = (part for operand in self._values(op) for part in elements_of(operand))
        return [self._operand(part, place) for part in parts]


def _loaded_bytes(op: Op, access: LoggedAccess, place: RegisterPlace) -> tuple[int, int]:
    """Return where after a lane's address the bytes of a register were loaded from, and how many.

    A register may be wider than what is loaded: above it are zeros, or copies of its sign.
    """
    elements = elements_of(op.operands[0])
    number = next((n for n, element in enumerate(elements) if element in place.registers), 0)
    width = access.located.size // len(elements)
    first, size = place.first, min(place.size, width - place.first)
    if size <= 0:
        is_signed = any(name.startswith("s") for name in op.types)
        first, size = width - 1, int(is_signed)
    return number * width + first, size


def _row_and_offset(
    instruction: Instruction, operand: MatrixOperand, access: LoggedAccess, row: int, col: int
) -> tuple[int, int]:
    """Return which row of an access an element of a matrix lies in, and how many bytes after its begin."""
    if access.located.access.size is Size.TILE_LINE:
        tile = tile_lines(instruction)
        line, within = (row, col) if instruction.layouts[0] == "row" else (col, row)
        return line, within * tile.element_bits // 8
    return row, col * operand.operand.slot_bits // 8


def _cell_in_row(
    instruction: Instruction, operand: MatrixOperand, access: LoggedAccess, row: int, offset: int
) -> tuple[int, int]:
    """Return the row and column of the element that lies so many bytes after the begin of a row."""
    if access.located.access.size is Size.TILE_LINE:
        within = offset * 8 // tile_lines(instruction).element_bits
        return (row, within) if instruction.layouts[0] == "row" else (within, row)
    return row, offset * 8 // operand.operand.slot_bits


def _shuffle_source(op: Op, lane: int, b: int, c: int) -> int:
    """Return the lane that a lane of shfl reads, as the PTX ISA defines it (section shfl.sync)."""
    clamp, mask = c & 31, c >> 8 & 31
    most = lane & mask | clamp & ~mask & 31
    step = b & 31
    if op.has("up"):
        source = lane - step
        return source if source >= most else lane
    if op.has("down"):
        source = lane + step
    elif op.has("bfly"):
        source = lane ^ step
    else:
        source = lane & mask | step & ~mask & 31
    return source if source <= most else lane
