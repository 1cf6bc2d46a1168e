"""What elements of a wgmma's result were made from: A and B through matrix descriptors, or A in registers."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lanewise.isa.matrix_descriptor import MatrixDescriptor
from lanewise.machine.abi import LANES, SHARED_WINDOW, WARPGROUP
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op, all_registers
from lanewise.machine.tensor_core.wgmma import SharedMatrix, Statement
from lanewise.traces.fragments import MatrixOperand
from lanewise.traces.places import MemoryPlace, RegisterPlace
from lanewise.traces.recording import Recording
from lanewise.traces.sources import Source


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
        number = operands["d"].registers.index(place.registers[0])
        thread = place.warp % WARPGROUP * LANES + place.lane
        _, row, col = d.cell(thread, number * d.slots + place.first * 8 // d.slot_bits)
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
