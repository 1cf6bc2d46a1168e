"""Lowerings of tex and tld4: each lane's coordinates go to a function that all kernels share."""

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, f32, i64
from lanewise.machine.arithmetic.small_floats import round_to
from lanewise.machine.codegen.function_code import U32, BlockCode, FunctionCode, Record, shared
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.texture_records import Geometry
from lanewise.machine.textures import filtering
from lanewise.machine.textures.objects import geometry_of, named_coordinates, row_of
from lanewise.machine.textures.texels import WORDS

S32 = Type("i", 32)
_COMPONENTS = {"r": 0, "g": 1, "b": 2, "a": 3}
#: The registers of a result for each of its types.
_REGISTERS = {"f32": WORDS, "u32": WORDS, "s32": WORDS, "f16": WORDS, "f16x2": WORDS // 2}


def lower(code: BlockCode, op: Op) -> None:
    """Lower tex and tld4, lane after lane. Without mipmaps a level or gradients change nothing."""
    geometry = geometry_of(op)
    if len(op.types) != 2 or op.types[0] not in _REGISTERS or op.types[1] not in ("f32", "s32"):
        raise op.unsupported(
            "it names the type of its result (f32, u32, s32, f16, f16x2) and of its coordinates"
        )
    result, of_coordinates = op.types
    targets, resident = _targets(op, result)
    coordinates = named_coordinates(op, 1)
    integers = of_coordinates == "s32"
    if integers and geometry.is_cube:
        raise op.unsupported("a cube map takes the f32 coordinates of a direction")
    if op.opcode == "tld4":
        component = next((number for name, number in _COMPONENTS.items() if op.has(name)), -1)
        if component < 0 or geometry not in (Geometry._2D, Geometry.A2D) or integers:
            raise op.unsupported("it gathers r, g, b or a of a 2d or a2d texture, by f32 coordinates")
        write = filtering.gather_writer(geometry, component)
        name = f"texture gather {geometry.title} {component}"
    else:
        write = filtering.fetch_writer(geometry, integers)
        name = f"texture fetch {geometry.title} {of_coordinates}"
    function = _shared_fetch(code.module, name, write)
    memory = _stack(code)
    with code.each_lane(code.bits(code.active(op))) as lane:
        row = row_of(code, op, 1, lane, geometry, is_surface=False)
        for number, (axis, operand) in enumerate(coordinates.items()):
            type = S32 if integers or axis == "layer" else f32
            memory.set(4 * number, code.lane_read(operand, type, lane).view(U32))
        results = memory.address + 16
        values = [row.address, memory.address, results]
        code.builder.call(function, [value.handle for value in values])
        words = [memory.get(16 + 4 * number, U32) for number in range(WORDS)]
        for target, word in zip(targets, _as_type(words, result), strict=True):
            code.lane_write(target, word, lane)
        if resident is not None:
            code.lane_write(resident, code.constant(Type("u", 1), 1), lane)


def _targets(op: Op, result: str) -> tuple[tuple[ResolvedOperand, ...], ResolvedOperand | None]:
    """Return the registers of the result, and the predicate that says whether the texel was in memory."""
    targets, resident = elements_of(op.operands[0]), None
    last = targets[-1] if targets else None
    if len(targets) == _REGISTERS[result] + 1 and isinstance(last, Register) and last.is_predicate:
        targets, resident = targets[:-1], last
    if len(targets) != _REGISTERS[result]:
        raise op.unsupported(f"its result takes {_REGISTERS[result]} registers")
    wanted = 16 if result == "f16" else 32
    if any(isinstance(target, Register) and target.bits != wanted for target in targets):
        raise op.unsupported(f"its result takes registers of {wanted} bits")
    return targets, resident


def _as_type(words: list[Value], result: str) -> list[Value]:
    """Return the four words of a fetch as registers of the result's type."""
    if not result.startswith("f16"):
        return words
    halves = [round_to(word.view(f32), "f16").to(U32) & 0xFFFF for word in words]
    if result == "f16":
        return halves
    return [halves[0] | (halves[1] << 16), halves[2] | (halves[3] << 16)]


def _stack(code: BlockCode) -> Record:
    """Return memory on the stack for the coordinates and the result of a fetch."""
    with code.builder.goto_entry_block():
        memory = code.builder.alloca(ir.ArrayType(ir.IntType(32), 2 * WORDS), align=16)
        address = code.builder.ptrtoint(memory, ir.LONG)
    return Record(code, Value(code, i64, address))


def _shared_fetch(module: ir.Module, name: str, write: Callable[[FunctionCode], None]) -> ir.Function:
    """Declare `fetch(row, coordinates, results)`, which all kernels share."""

    def write_whole(module: ir.Module, name: str) -> None:
        code = FunctionCode(module, name, ("row", "coordinates", "results"), ir.WORD, "")
        write(code)
        code.give(0)

    return shared(module, name, ir.FunctionType(ir.WORD, [ir.LONG] * 3), write_whole)
