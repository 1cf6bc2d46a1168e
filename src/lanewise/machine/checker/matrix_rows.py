"""What the lanes of stmatrix write: whether rows that overlap agree."""

from __future__ import annotations

import numpy as np

from lanewise.machine.program.instruction_record import AccessKind, Size
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.shared_names import space_of_generic
from lanewise.machine.runtime.state import BlockState

#: The most bytes of a cell of shadow memory, all of which a suspicion is about.
_CELL_BYTES = 4


def rows_agree(state: BlockState, warp: int, op: Op, address: int) -> bool:
    """Return whether all rows that a stmatrix writes at an address have the same elements there.

    For other instructions nothing is known of the values, and the answer is no.
    """
    located = accesses(op)[0]
    if located.access.kind is not AccessKind.WRITE or located.access.size is not Size.MATRIX_ROW:
        return False
    instruction, base = op.source.instruction(), located.address.base
    if instruction is None or not isinstance(base, Register):
        return False
    (matrix,) = instruction.operands.values()
    registers = elements_of(op.operands[located.access.data or 1])
    starts = state.lanes(warp, base.offset, base.bits).astype(np.int64) + located.address.offset
    element_bytes = matrix.format.bits // 8
    written: dict[int, set[int]] = {}
    for row in range(instruction.row_addresses.rows):
        start = int(starts[row])
        if located.space == "generic":
            start = space_of_generic(start)[1]
        for place in range(address, address + _CELL_BYTES, element_bytes):
            if not 0 <= place - start < instruction.row_addresses.row_bytes:
                continue
            holder = matrix.holder(row, (place - start) // element_bytes)
            register = registers[holder.register]
            if not isinstance(register, Register):
                return False
            held = int(state.lanes(warp, register.offset, register.bits)[holder.lane])
            element = held >> matrix.format.bits * holder.slot & (1 << matrix.format.bits) - 1
            written.setdefault(place, set()).add(element)
    return all(len(each) == 1 for each in written.values())
