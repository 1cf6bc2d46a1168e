"""Lowerings of txq and suq: sizes and settings of a texture or surface."""

from __future__ import annotations

from lanewise.machine.abi import TextureRow
from lanewise.machine.codegen.function_code import U32, BlockCode
from lanewise.machine.program.ops import Op
from lanewise.machine.textures.objects import row_of

_FIELDS = {
    "width": TextureRow.size,
    "height": TextureRow.size + 8,
    "depth": TextureRow.size + 16,
}


def lower(code: BlockCode, op: Op) -> None:
    """Lower txq and suq, lane after lane."""
    field = next((_FIELDS[each] for each in op.modifiers if each in _FIELDS), None)
    if field is None:
        raise op.unsupported(f"it can be asked for {', '.join(_FIELDS)}")
    with code.each_lane(code.bits(code.active(op))) as lane:
        row = row_of(code, op, 1, lane, None, is_surface=op.opcode == "suq")
        code.lane_write(op.operands[0], row.get(field).to(U32), lane)
