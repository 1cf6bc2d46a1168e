"""What words of tensor memory, and registers that tcgen05.ld filled, were made from."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.formats import FORMATS, Format
from lanewise.isa.asynchronous.tensor_places import stored_bits
from lanewise.isa.matrix_descriptor import TCGEN05_VERSION, Major, MatrixDescriptor
from lanewise.isa.tensor_memory import copy_shapes
from lanewise.isa.tensor_memory.accumulators import PARTITION, Region, block_rows, factor_place
from lanewise.machine import abi
from lanewise.machine.program.operands import MemoryOperand, ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.tcgen05_statement import Statement
from lanewise.machine.tensor_memory.loads_and_stores import Access
from lanewise.machine.tensor_memory_records import LANE_BYTES
from lanewise.machine.tracer.tensor_log import ProductNumbers, lane_and_column
from lanewise.traces.places import MemoryPlace, RegisterPlace, Source
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_memory import tensor_reading


def word_place(lane: int, column: int, block: int, first: int = 0, size: int = 4) -> MemoryPlace:
    """Return the place of a word of tensor memory, or of some of its bytes."""
    return MemoryPlace(abi.TENSOR_WINDOW + lane * LANE_BYTES + 4 * column + first, size, block)


def lane_column(place: MemoryPlace) -> tuple[int, int, int]:
    """Return the lane, the column and the first byte in it of a place in tensor memory."""
    lane, rest = divmod(place.address - abi.TENSOR_WINDOW, LANE_BYTES)
    return lane, rest // 4, rest % 4


class _Product(NamedTuple):
    """A tcgen05.mma in a recording: its numbers, its statement, who issued it, when it took effect."""

    numbers: ProductNumbers
    statement: Statement
    issuer: int
    lane: int
    entry: int


class TensorOrigins:
    """Finds the sources of tcgen05 instructions in a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.reading = recording, tensor_reading(recording)

    def format_of(self, issuer: int) -> Format | None:
        """Return the format of what an instruction writes to tensor memory, if it says it: D of a product."""
        op = self.recording.op(issuer)
        if op is None or not op.record.multiplies:
            return None
        return FORMATS[self.reading.product(issuer, op).decoded.d]

    # loads and stores ---------------------------------------------------------------------------------------

    def loaded(self, entry: int, op: Op, place: RegisterPlace) -> list[Source]:
        """Return the words that a tcgen05.ld put into a register of a lane."""
        access = Access.of(op)
        numbers = [n for n, register in enumerate(access.registers) if register in place.registers]
        if op.has("red") and not numbers:  # the reduced value
            numbers = list(range(len(access.registers)))
        lanes, columns = self._places(access)
        lane, column = self._first(entry)
        sources = []
        for number in numbers:
            at = lane + int(lanes[place.lane, number]), column + int(columns[place.lane, number])
            if access.form.packed:  # the low halves of two columns
                halves = (
                    half
                    for half in range(2)
                    if place.first < 2 * half + 2 and 2 * half < place.first + place.size
                )
                sources += [Source(word_place(at[0], at[1] + half, place.block, 0, 2)) for half in halves]
            else:
                sources.append(Source(word_place(*at, place.block, place.first, place.size)))
        return sources

    def _places(self, access: Access) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        shape = access.form.shape
        num = len(access.registers) // shape.registers.size()
        return shape.places(num, access.form.packed, access.half_split)

    def _first(self, entry: int) -> tuple[int, int]:
        """Return the first lane and column that a load or store reaches."""
        op = self.recording.op(entry)
        assert op is not None
        area = self.reading.moved(entry, op).areas[0]
        return area.lanes[0], area.column

    def _stored(self, issuer: int, op: Op, place: MemoryPlace) -> list[Source]:
        """Return the register of the lane that a tcgen05.st took a word from."""
        access, (lane, column, first) = Access.of(op), lane_column(place)
        lanes, columns = self._places(access)
        start = self._first(issuer)
        wide = 2 if access.form.packed else 1
        hit = np.argwhere((lanes + start[0] == lane) & ((columns + start[1]) // wide == column // wide))
        header = self.recording.log.entries[issuer]
        sources = []
        for thread, number in hit.tolist():
            offset = (column - start[1]) % 2 * 2 if access.form.packed else first
            if access.form.packed and first >= 2:
                continue  # the upper half is 0
            where = RegisterPlace(
                int(header["block"]), int(header["warp"]), thread, (access.registers[number],), offset,
                min(place.size, 2 if access.form.packed else 4),
            )  # fmt: skip
            sources.append(Source(where, access.registers[number].name, entry=issuer))
        return sources

    # what operations have written ---------------------------------------------------------------------------

    def written(self, issuer: int, lane: int, entry: int, place: MemoryPlace) -> list[Source]:
        """Return the sources of a word that an instruction wrote, which took effect at an entry."""
        op = self.recording.op(issuer)
        assert op is not None
        if op.record.multiplies:
            return self._product(issuer, op, lane, entry, place)
        if op.has("st"):
            return self._stored(issuer, op, place)
        if op.has("cp"):
            return self._copied(issuer, op, lane, entry, place)
        if op.has("shift"):
            row, column, first = lane_column(place)
            return [Source(word_place(row + 1, column, place.block, first, place.size), entry=entry)]
        return []

    def _copied(self, issuer: int, op: Op, lane: int, entry: int, place: MemoryPlace) -> list[Source]:
        """Return the bytes of shared memory that a tcgen05.cp copied to a word."""
        shape = next(
            shape for name, shape in copy_shapes.SHAPES.items() if {*name.split(".")} <= {*op.modifiers}
        )
        first_lane, first_column = lane_and_column(self.reading.number(issuer, op.operands[0], lane))
        row_lane, column, first = lane_column(place)
        row = next(n for n in range(shape.rows) if row_lane - first_lane in shape.lanes_of(n))
        addresses = _addresses(
            self.reading.number(issuer, op.operands[1], lane), shape.rows, shape.bits // 8, 8, "K"
        )[row]
        byte, size = 4 * (column - first_column) + first, place.size
        if op.has("b8x16"):  # 16 packed elements of a piece become 16 bytes: the piece is the source
            byte, size = byte // copy_shapes.PIECE_BYTES * copy_shapes.PIECE_BYTES, copy_shapes.PIECE_BYTES
        where = MemoryPlace(abi.SHARED_WINDOW + int(addresses[byte]), size, place.block)
        return [Source(where, entry=entry)]

    def _product(self, issuer: int, op: Op, lane: int, entry: int, place: MemoryPlace) -> list[Source]:
        """D[row, col] comes from the sum before, if it is added, a row of A and a column of B."""
        statement = Statement(op, self.recording.run.arch)
        multiplied = _Product(self.reading.product(issuer, op, lane), statement, issuer, lane, entry)
        numbers, own = multiplied.numbers, int(self.recording.log.entries["block"][issuer])
        decoded = numbers.decoded
        at, column, _ = lane_column(place)
        first_lane, first_column = lane_and_column(numbers.d)
        region = next(
            region for region in numbers.regions if 0 <= at - first_lane - region.lane < region.rows
        )
        row, col = region.row + at - first_lane - region.lane, region.column + column - first_column
        names = row + block_rows(decoded.m, numbers.form.product.cta_group) * int(place.block != own), col
        sources = []
        if numbers.adds:
            sources.append(Source(place, f"d[{names[0]}, {names[1]}]", FORMATS[decoded.d], entry))
        sources += self._row_of_a(multiplied, place.block, (row, names[0], at))
        sources += self._column_of_b(multiplied, own, col)
        if numbers.form.product.block:
            sources += self._scale_factors(numbers, entry, place, (row, at), (col, region))
        return sources

    def _scale_factors(
        self,
        numbers: ProductNumbers,
        entry: int,
        place: MemoryPlace,
        row: tuple[int, int],
        column: tuple[int, Region],
    ) -> list[Source]:
        """Return the words with the scale factors of a row of A and of a column of B."""
        decoded, product, (col, region) = numbers.decoded, numbers.form.product, column
        sources, rows = [], block_rows(decoded.m, product.cta_group)
        for name, address, first, number, count in (
            ("scale a", numbers.scale_a, decoded.scale_a_id, row[0], rows),
            ("scale b", numbers.scale_b, decoded.scale_b_id, col - region.column, region.columns),
        ):
            partition = row[1] // PARTITION * PARTITION
            spots = (
                factor_place(number, factor, first, partition, count)
                for factor in range(product.factors(decoded.k))
            )
            for lane, further in dict.fromkeys((spot.lane, spot.column) for spot in spots):
                word = word_place(lane, lane_and_column(address)[1] + further, place.block)
                sources.append(Source(word, f"{name}[{number}]", entry=entry))
        return sources

    def _row_of_a(self, multiplied: _Product, block: int, row: tuple[int, int, int]) -> list[Source]:
        """Return a row of A: in shared memory, or in the lane of D. `row` is its number in the block, its
        number in the pair, and its lane."""
        numbers, entry = multiplied.numbers, multiplied.entry
        decoded, product = numbers.decoded, numbers.form.product
        if isinstance(multiplied.statement.a, MemoryOperand):
            _, column = lane_and_column(numbers.a)
            return [
                Source(word_place(row[2], column + n, block), f"a[{row[1]}], word {n}", entry=entry)
                for n in range(numbers.a_columns)
            ]
        size = block_rows(decoded.m, product.cta_group), decoded.k // 2 if product.sparse else decoded.k
        return self._elements(multiplied, "a", size, row[0], block, lambda n: f"a[{row[1]}, {n}]")

    def _column_of_b(self, multiplied: _Product, own: int, col: int) -> list[Source]:
        """Return a column of B; of a pair, each block has half of the columns in its shared memory."""
        decoded = multiplied.numbers.decoded
        columns = decoded.n // multiplied.numbers.form.product.cta_group
        block = own if col < columns else self.reading.partner(own)
        size = columns, decoded.k
        return self._elements(multiplied, "b", size, col % columns, block, lambda n: f"b[{n}, {col}]")

    def _elements(
        self, multiplied: _Product, key: str, size: tuple[int, int], row: int, block: int,
        name: Callable[[int], str],
    ) -> list[Source]:  # fmt: skip
        """Return a row of A, or a column of B, in a block's shared memory, element by element."""
        decoded = multiplied.numbers.decoded
        operand: ResolvedOperand = getattr(multiplied.statement, key)
        descriptor = self.reading.number(multiplied.issuer, operand, multiplied.lane)
        bits, fmt = (
            stored_bits(decoded, multiplied.numbers.form.product, key)[0],
            FORMATS[getattr(decoded, key)],
        )
        addresses = _addresses(descriptor, *size, bits, getattr(decoded, f"{key}_major"))[row]
        return [
            Source(
                MemoryPlace(abi.SHARED_WINDOW + int(address), max(bits // 8, 1), block),
                name(n),
                fmt if fmt.word_bits == max(bits, 8) else None,
                multiplied.entry,
            )
            for n, address in enumerate(addresses)
        ]


@lru_cache(maxsize=256)
def _addresses(descriptor: int, rows: int, k: int, bits: int, major: Major) -> npt.NDArray[np.int64]:
    """Return the shared address of each element of a matrix, by row of A or column of B, and k."""
    return MatrixDescriptor.decode(descriptor, TCGEN05_VERSION).element_addresses(rows, k, bits, major)
