"""Texture and surface objects in compiled code: a lane's handle becomes a row of the launch's table."""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord, WarpFrame
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record, shared_routine
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, TexelOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.texture_records import Geometry, TextureRow

_GEOMETRIES = {geometry.title: geometry for geometry in Geometry}
#: Coordinates that an instruction names for a geometry: its layer first, and some are there for their number.
COORDINATES = {
    Geometry._1D: ("x",),
    Geometry._2D: ("x", "y"),
    Geometry._3D: ("x", "y", "z", ""),
    Geometry.A1D: ("layer", "x"),
    Geometry.A2D: ("layer", "x", "y", ""),
    Geometry.CUBE: ("x", "y", "z", ""),
    Geometry.ACUBE: ("layer", "x", "y", "z"),
}


def geometry_of(op: Op) -> Geometry:
    """Return the geometry that an instruction names."""
    geometries = [_GEOMETRIES[modifier] for modifier in op.modifiers if modifier in _GEOMETRIES]
    if len(geometries) != 1 or (op.opcode.startswith("su") and geometries[0].is_cube):
        raise op.unsupported(
            "textures and surfaces are 1d, 2d, 3d, a1d and a2d here, textures cube and acube too"
        )
    return geometries[0]


def handle_of(op: Op, number: int) -> Register:
    """Return the register with the handle of a texture or surface."""
    operand = op.operands[number]
    handle = operand.base if isinstance(operand, MemoryOperand) else operand
    if isinstance(operand, TexelOperand):
        handle = operand.handle
    if not isinstance(handle, Register) or handle.bits != 64:
        raise op.unsupported("a texture or surface is given by its handle in a 64-bit register")
    return handle


def named_coordinates(op: Op, number: int) -> dict[str, ResolvedOperand]:
    """Return the coordinates of an instruction by their names: layer, x, y, z."""
    operand = op.operands[number]
    names = COORDINATES[geometry_of(op)]
    if not isinstance(operand, TexelOperand) or len(operand.coordinates) != len(names):
        raise op.unsupported(f"it takes {len(names)} coordinate{'s' if len(names) > 1 else ''}")
    return {name: coordinate for name, coordinate in zip(names, operand.coordinates, strict=True) if name}


def row_of(
    code: BlockCode, op: Op, number: int, lane: Value, geometry: Geometry | None, is_surface: bool
) -> Record:
    """Return the row of the texture or surface whose handle a lane has; a wrong handle stops the launch.

    Without a geometry any will do.
    """
    handle = code.lane_read(handle_of(op, number), u64, lane).to(i64)
    facts = (int(geometry or 0), int(is_surface), op.site, lane)
    row = code.invoke(_find_row(code.module), code["frame"], handle, *facts)
    code.stop_if(row.equals(0))
    return Record(code, row)


@shared_routine("texture_row", ("frame", "handle", "geometry", "is_surface", "site", "lane"), ir.LONG)
def _find_row(code: FunctionCode) -> None:
    """`texture_row(frame, handle, geometry, is_surface, site, lane)`: the address of a row, or 0."""
    block = code.record("frame").at(WarpFrame.block)
    launch = block.at(BlockRecord.launch)
    into = (code["handle"] - abi.TEXTURE_BASE).to(u64)
    # A handle with low bits set turns into a number that is too large, and is found to be wrong.
    shift = abi.TEXTURE_STEP.bit_length() - 1
    index = (into >> shift) | (into << (64 - shift))
    with code.when(index < launch.get(LaunchRecord.texture_count).to(u64)):
        row = Record(code, launch.get(LaunchRecord.textures) + index.to(i64) * TextureRow.BYTES)
        wanted, geometry = code["geometry"], row.get(TextureRow.geometry)
        fits = (wanted.equals(0) | wanted.equals(geometry)) & row.get(TextureRow.is_surface).equals(
            code["is_surface"]
        )
        with code.when(fits):
            code.give(row.address)
    code.record_fault(block, FaultKind.BAD_TEXTURE, code["site"], code["lane"], code["handle"], 0)


QUERIES = ("width", "height", "depth")


def query(code: BlockCode, op: Op) -> None:
    """Lower txq and suq, lane after lane."""
    name = op.one_of(QUERIES, f"it can be asked for {', '.join(QUERIES)}; drivers take no other question")
    is_surface = op.opcode == "suq"
    with code.each_lane(code.bits(code.active(op))) as lane:
        row = row_of(code, op, 1, lane, None, is_surface)
        code.lane_write(op.operands[0], _answer(code, row, name, is_surface).to(u32), lane)


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
