"""Tensor memory in a trace: what tcgen05 instructions read and write, which columns are allocated.

What operations have written is in the log (`machine/tracer/tensor_log.py`); what an instruction names is read
off its operands here, as the lanes held them when it was executed.
"""

import itertools
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lanewise.draw.tensor_memory import UNWRITTEN, TensorMemory, Touched, bits_as
from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, PARTITION
from lanewise.machine import abi
from lanewise.machine.program.operands import MemoryOperand, Negated, Register, ResolvedOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core.tcgen05_statement import Statement
from lanewise.machine.tensor_memory.loads_and_stores import Access
from lanewise.machine.tensor_memory_records import LANE_BYTES
from lanewise.machine.tracer.log import cluster_member
from lanewise.machine.tracer.tensor_log import (
    ProductNumbers,
    TensorAccess,
    copy_accesses,
    inside,
    lane_and_column,
    moved_area,
    product_accesses,
    shift_accesses,
)
from lanewise.numpy_types import AnyArray
from lanewise.ptx import Immediate
from lanewise.ptx.model.source_names import SourceMatrix
from lanewise.traces.recording import Recording

Words = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]


class TensorReading:
    """Reads tensor memory, and what instructions do to it, out of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.log = recording, recording.log

    @cached_property
    def is_used(self) -> bool:
        """Whether the kernel has tcgen05 instructions at all."""
        return any(op.record.touches_tensor_memory for op in self.recording.program.sites)

    # contents ---------------------------------------------------------------------------------------------

    @cached_property
    def _written(self) -> tuple[Numbers, Numbers]:
        """The numbers of the runs that lie in tensor memory, and where each entry's begin among them."""
        target = self.log.runs.target
        numbers = np.flatnonzero(
            (target >= abi.TENSOR_WINDOW) & (target < abi.TENSOR_WINDOW + abi.WINDOW_BYTES)
        )
        borders = np.flatnonzero(np.diff(self.log.runs.entry[numbers])) + 1
        return numbers, np.concatenate([[0], borders, [len(numbers)]]).astype(np.int64)

    @property
    def runs(self) -> Numbers:
        """The numbers of the log's runs that lie in tensor memory, in the order of their writes."""
        return self._written[0]

    def run_places(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return the lane and the first column of some of these runs."""
        lanes, start = np.divmod(self.log.runs.target[numbers] - abi.TENSOR_WINDOW, LANE_BYTES)
        return lanes, start // 4

    def contents(self, block: int, entry: int) -> tuple[Words, Numbers]:
        """Return the words of a block after an entry, and for each the entry of the write; -1 if none."""
        runs, (numbers, borders) = self.log.runs, self._written
        words, writers = np.zeros((LANES, COLUMNS), np.uint32), np.full((LANES, COLUMNS), UNWRITTEN)
        for first, last in itertools.pairwise(borders):
            mine = numbers[first:last]
            if not len(mine) or int(runs.entry[mine[0]]) > entry:
                break
            if int(runs.block[mine[0]]) != block:
                continue
            for part in np.split(mine, np.flatnonzero(np.diff(runs.size[mine])) + 1):
                size = int(runs.size[part[0]])
                lanes, start = self.run_places(part)
                columns = start[:, None] + np.arange(size // 4)
                raw = self.log.memory[runs.offset[part][:, None] + np.arange(size)]
                words[lanes[:, None], columns] = np.ascontiguousarray(raw).view(np.uint32)
                writers[lanes[:, None], columns] = int(runs.entry[mine[0]])
        return words, writers

    def steps_of(self, writers: Numbers) -> Numbers:
        """Return the steps that issued the writes of some entries; UNWRITTEN where it is not known."""
        steps = writers.copy()
        runs = self.log.runs
        for entry in np.unique(writers[writers != UNWRITTEN]).tolist():
            issuer = int(runs.issuer[int(np.searchsorted(runs.entry, entry))])
            step = self.recording.step_of(issuer) if issuer >= 0 else None
            if step is None:  # of a warp that is not traced: the step before
                step = max(int(np.searchsorted(self.recording.steps, entry)) - 1, 0)
            steps[writers == entry] = step
        return steps

    def memory(self, block: int, entry: int, of_step: int | None = None) -> TensorMemory:
        """Return the tensor memory of a block after an entry, with what the instruction of a step touches."""
        words, writers = self.contents(block, entry)
        touched = []
        for access in self.accesses(of_step) if of_step is not None else []:
            own = int(self.log.entries["block"][of_step])
            if (self.partner(own) if access.in_other else own) != block:
                continue
            mask = np.zeros((LANES, COLUMNS), np.bool_)
            for area in access.areas:
                mask[list(area.lanes), area.column : area.column + area.columns] = True
            touched.append(Touched(access.kind, access.operand, mask))
        where = self.recording.block_at(block)
        return TensorMemory(
            words, self.steps_of(writers), self.allocated(block, entry), tuple(touched),
            f"Tensor memory of block {where}",
        )  # fmt: skip

    def partner(self, block: int) -> int:
        """Return the other block of a pair."""
        shape = self.recording.run.shape
        members = [cluster_member(shape, block, rank) for rank in range(shape.cluster_blocks)]
        return members[(members.index(block) ^ 1) % len(members)]

    # matrices of the source -------------------------------------------------------------------------------

    @cached_property
    def matrices(self) -> dict[str, SourceMatrix]:
        """The matrices that the source has in tensor memory, by name."""
        names = self.recording.module.names
        return dict(names.matrices) if names is not None else {}

    def matrix(self, name: str, block: int, warp: int, entry: int) -> AnyArray:
        """Return a matrix of the source as it is in tensor memory after an entry, by its rows and columns.

        A warp's register has its address.
        """
        lanes, columns, shifts, fmt = self.matrix_places(name, block, warp, entry)
        words, _ = self.contents(block, entry)
        return bits_as(words[lanes, columns] >> shifts.astype(np.uint32), fmt)

    def matrix_places(
        self, name: str, block: int, warp: int, entry: int
    ) -> tuple[Numbers, Numbers, Numbers, Format]:
        """Return the lane, the column and the first bit of each element of a matrix, and its format."""
        matrix = self.matrices[name]
        registers = [
            register for held in matrix.registers for register in self.recording.names.by_name.get(held, ())
        ]
        if not registers:
            raise LanewiseError(f"no register holds the address of {name} in tensor memory")
        values, writers = self.recording.registers.last(block, warp, registers, entry)
        if int(writers[0]) < 0:
            raise LanewiseError(f"{name} has no columns of tensor memory yet: it is allocated later")
        first_lane, first = lane_and_column(int(values[0]))
        lanes, elements = np.indices((LANES - first_lane, matrix.spread.lane_columns))
        rows, cols = (
            np.broadcast_to(coordinates, lanes.shape) for coordinates in matrix.spread.place(lanes, elements)
        )
        kept = lanes % matrix.spread.lanes < matrix.spread.rows
        shape = int(rows[kept].max()) + 1, int(cols[kept].max()) + 1
        columns, bits = np.divmod(elements * matrix.slot_bits, 32)
        made = []
        for numbers in (lanes + first_lane, np.minimum(first + columns, COLUMNS - 1), bits):
            ordered = np.zeros(shape, np.int64)
            ordered[rows[kept], cols[kept]] = numbers[kept]
            made.append(ordered)
        return made[0], made[1], made[2], matrix.format

    # allocation -------------------------------------------------------------------------------------------

    @cached_property
    def allocations(self) -> list[tuple[int, int, int, int]]:
        """Allocations and releases in order: entry, block, first column, and columns (negative: freed)."""
        points = [
            point.number
            for point in self.log.points
            if point.op is not None
            and (point.op.record.allocates_tensor_memory or "dealloc" in point.op.source.head.split("."))
        ]
        allocations = []
        for entry in np.flatnonzero(np.isin(self.log.entries["point"], points)).tolist():
            header, point = self.log.entries[entry], self.log.point(entry)
            op = point.op
            if op is None or not int(header["active"]) or not int(header["state"]):
                continue
            columns = self.number(entry, op.operands[1])
            if op.record.allocates_tensor_memory:
                address = int(self.log.bytes_of(entry, point.accesses[0])[0].view(np.uint32)[0])
            else:
                address, columns = self.number(entry, op.operands[0]), -columns
            allocations.append((entry, int(header["block"]), address & 0xFFFF, columns))
        return allocations

    def allocated(self, block: int, entry: int) -> tuple[range, ...]:
        """Return the columns of a block that are allocated after an entry, a range for each allocation."""
        now: dict[int, int] = {}
        for at, owner, first, columns in self.allocations:
            if at > entry or owner != block:
                continue
            if columns > 0:
                now[first] = columns
            else:
                now.pop(first, None)
        return tuple(range(first, first + columns) for first, columns in sorted(now.items()))

    # what an instruction names ----------------------------------------------------------------------------

    def number(self, entry: int, operand: ResolvedOperand | None, lane: int | None = None) -> int:
        """Return an operand of an instruction as a number: what a lane, or the first active one, held."""
        match operand:
            case Immediate():
                return int(operand.bits)
            case Register():
                header = self.log.entries[entry]
                active = int(header["active"]) or 1
                lane = (active & -active).bit_length() - 1 if lane is None else lane
                values, _ = self.recording.registers.last(
                    int(header["block"]), int(header["warp"]), [operand], entry - 1
                )
                return int(values[lane])
            case MemoryOperand():
                base = self.number(entry, operand.base, lane)
                return base + operand.offset & 0xFFFFFFFF
            case Negated(_, inner):
                return int(not self.number(entry, inner, lane))
        return 0

    def accesses(self, entry: int) -> list[TensorAccess]:
        """Return what the instruction of an entry reads and writes in tensor memory."""
        op = self.recording.op(entry)
        if op is None or not op.record.touches_tensor_memory or not int(self.log.entries["active"][entry]):
            return []
        try:
            return [inside(access) for access in self._accesses(entry, op)]
        except LanewiseError:  # a descriptor that is no good: the instruction faults
            return []

    def _accesses(self, entry: int, op: Op) -> Iterator[TensorAccess]:
        if op.record.multiplies:
            yield from product_accesses(self.product(entry, op))
        elif op.has("ld") or op.has("st"):
            yield self.moved(entry, op)
        elif op.has("cp"):
            yield from copy_accesses(op, self.number(entry, op.operands[0]))
        elif op.has("shift"):
            yield from shift_accesses(op, self.number(entry, op.operands[0]))

    def moved(self, entry: int, op: Op) -> TensorAccess:
        """Return the words that a tcgen05.ld or st moves: the lanes of its warp."""
        access = Access.of(op)
        shape = access.form.shape
        named, column = lane_and_column(self.number(entry, access.address))
        lane = int(self.log.entries["warp"][entry]) % (LANES // PARTITION) * PARTITION + named % PARTITION
        num = len(access.registers) // shape.registers.size()
        area = moved_area(shape, num, access.form.packed, access.half_split, lane, column)
        return area._replace(kind="write" if access.form.storing else "read")

    def product(self, entry: int, op: Op, lane: int | None = None) -> ProductNumbers:
        """Return the operands of a tcgen05.mma as numbers."""
        statement = Statement(op, self.recording.run.arch)
        masks = [self.number(entry, word, lane) for word in statement.mask]
        bits = sum(mask << 32 * n for n, mask in enumerate(masks))
        return ProductNumbers(
            statement.form,
            self.number(entry, statement.descriptor, lane),
            self.number(entry, statement.d, lane),
            self.number(entry, statement.a, lane),
            self.number(entry, statement.scale_a, lane),
            self.number(entry, statement.scale_b, lane),
            self.number(entry, statement.metadata, lane),
            bool(self.number(entry, statement.enable, lane)),
            (bits & (1 << 128) - 1, bits >> 128),
        )


def tensor_reading(recording: Recording) -> TensorReading:
    """Return what reads tensor memory out of a recording; made once."""
    reading = recording.derived.get("tensor memory")
    if not isinstance(reading, TensorReading):
        reading = recording.derived["tensor memory"] = TensorReading(recording)
    return reading
