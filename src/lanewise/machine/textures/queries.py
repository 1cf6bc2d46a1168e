"""Lowerings of txq and suq: sizes and settings of a texture or surface."""

from lanewise.jit.simd import Value, i64
from lanewise.machine.codegen.function_code import U32, BlockCode, Record
from lanewise.machine.program.ops import Op
from lanewise.machine.texture_records import Geometry, TextureRow
from lanewise.machine.textures.objects import row_of

QUERIES = ("width", "height", "depth")


def lower(code: BlockCode, op: Op) -> None:
    """Lower txq and suq, lane after lane."""
    name = next((modifier for modifier in op.modifiers if modifier in QUERIES), None)
    if name is None:
        raise op.unsupported(f"it can be asked for {', '.join(QUERIES)}; drivers take no other question")
    is_surface = op.opcode == "suq"
    with code.each_lane(code.bits(code.active(op))) as lane:
        row = row_of(code, op, 1, lane, None, is_surface)
        code.lane_write(op.operands[0], _answer(code, row, name, is_surface).to(U32), lane)


def _answer(code: BlockCode, row: Record, name: str, is_surface: bool) -> Value:
    """Return a size as an H200 tells it: layers are the dimension after the last; what is not there is 0."""
    geometry = row.get(TextureRow.geometry)
    width, height, depth = (row.get(TextureRow.size + 8 * axis) for axis in range(3))
    layers, zero = row.get(TextureRow.layers), code.constant(i64, 0)
    if name == "width":
        return width
    if name == "height":
        if is_surface:
            height = geometry.equals(Geometry._1D).select(zero, height)
        return geometry.equals(Geometry.A1D).select(layers, height)
    has_layers = (
        geometry.equals(Geometry.A2D) | geometry.equals(Geometry.CUBE) | geometry.equals(Geometry.ACUBE)
    )
    return geometry.equals(Geometry._3D).select(depth, has_layers.select(layers, zero))
