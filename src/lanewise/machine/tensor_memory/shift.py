"""tcgen05.shift: 31 of 32 lanes of tensor memory take the words of the next lane, in eight columns.

The PTX ISA says that rows are shifted "down, except the last", and CUTLASS that what refills them is the last
lane of each partition (by the copy of shape .4x256b). So lane r takes the words of lane r + 1, and the last
one keeps its own. No GPU has confirmed it.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import u32
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record, shared
from lanewise.machine.codegen.tensor_pipe import PipeOperation, lane_and_column, operand_of, tensor_word
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory.targets import (
    ADDRESS,
    PAIRED,
    Target,
    demand_target,
    each_block,
    issue_each,
)
from lanewise.machine.tensor_memory_records import LANE_BYTES

#: Lanes that are shifted together, and the columns of an element of 32 bytes.
ROWS, WIDTH = 32, 8


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.shift.down: one operation for each active lane."""
    if not op.has("down"):
        raise op.unsupported("it shifts .down")
    issue_each(code, op, "tcgen05.shift", _write_issue)


def _write_issue(code: BlockCode) -> None:
    made = PipeOperation(code)
    demand_target(code, Target(ROWS, ROWS - 1, WIDTH))
    made.operand(ADDRESS, code["address"])
    made.operand(PAIRED, code["paired"])
    made.give(
        shared(code.module, "execute tcgen05.shift", ir.FunctionType(ir.WORD, [ir.LONG]), _write_execute)
    )


def _write_execute(module: ir.Module, name: str) -> None:
    code = FunctionCode(module, name, ("operation",), ir.WORD, "")
    operation = code.record("operation")
    lane, column = lane_and_column(operand_of(operation, ADDRESS))
    with each_block(code, operation) as block:
        first = tensor_word(block, lane, column)
        with code.loop(ROWS - 1) as row:
            place = Record(code, first + row * LANE_BYTES)
            place.pointer(0, u32).store(place.get(LANE_BYTES, u32, WIDTH))
    code.give(0)
