"""Lowerings of suld, sust and sured: texels of a surface by their place, x in bytes."""

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64
from lanewise.machine.abi import FaultKind
from lanewise.machine.codegen.function_code import BlockCode, Record
from lanewise.machine.program.operands import elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import in_memory_bytes
from lanewise.machine.texture_records import TextureRow
from lanewise.machine.textures.objects import geometry_of, named_coordinates, row_of

S32 = Type("i", 32)
#: What happens beyond the surface: a fault, the nearest place, or nothing (a load gives 0).
BEYOND = ("trap", "clamp", "zero")
#: The operations of sured, and the types that ptxas takes for each.
_REDUCED = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32",),
    "or": ("b32",),
}


class Place:
    """Code for the place of a lane's access: whether it is inside, and where it lies in host memory."""

    def __init__(self, code: BlockCode, op: Op, operand: int, size: int, lane: Value) -> None:
        geometry = geometry_of(op)
        row = row_of(code, op, operand, lane, geometry, is_surface=True)
        self.code, self.op, self.lane, self.size = code, op, lane, size
        coordinates = {
            name: code.lane_read(coordinate, S32, lane).to(i64)
            for name, coordinate in named_coordinates(op, operand).items()
        }
        zero = code.constant(i64, 0)
        row_bytes = row.get(TextureRow.size) * row.get(TextureRow.texel_bytes)
        height, depth = (row.get(TextureRow.size + 8 * axis) for axis in (1, 2))
        limits = {"x": row_bytes - (size - 1), "y": height, "z": depth, "layer": row.get(TextureRow.layers)}
        with code.when(row_bytes < size):  # no place of the surface has room for it
            code.fault(FaultKind.OUT_OF_BOUNDS, op.site, lane, 0, size)
        inside = code.constant(Type("u", 1), 1)
        for name, value in coordinates.items():
            inside = inside & (value >= 0) & (value < limits[name])
        self.inside = inside
        if op.has("clamp"):
            coordinates = {
                name: _clamped(value, limits[name] - 1, size if name == "x" else 1)
                for name, value in coordinates.items()
            }
        x, y, z, layer = (coordinates.get(name, zero) for name in ("x", "y", "z", "layer"))
        self.x = x
        plane = (z + layer) * height + y
        self.host = Record(code, row.get(TextureRow.host) + plane * row_bytes + x).handle

    def check(self) -> None:
        """Stop the launch for a place out of bounds, or one that is not a multiple of the access's size."""
        code = self.code
        if self.op.has("trap"):
            with code.when(~self.inside):
                code.fault(FaultKind.OUT_OF_BOUNDS, self.op.site, self.lane, 0, self.size)
        if self.size > 1:
            with code.when((self.x & (self.size - 1)).differs(0)):
                code.fault(FaultKind.MISALIGNED, self.op.site, self.lane, 0, self.size)


def _clamped(value: Value, last: Value, step: int) -> Value:
    """Return a coordinate moved into its range, at a multiple of the access's size along x."""
    low = value.max(0)
    high = (low > last).select(last, low)
    return high & -step if step > 1 else high


def lower(code: BlockCode, op: Op) -> None:
    """Lower suld, sust and sured, lane after lane."""
    if sum(op.has(name) for name in BEYOND) != 1:
        raise op.unsupported("it says by .trap, .clamp or .zero what happens beyond the surface")
    if op.has("p"):
        raise op.unsupported("formatted access (.p) is not supported; CUDA C++ writes surfaces by .b")
    handle = 1 if op.opcode == "suld" else 0
    data = elements_of(op.operands[1 - handle])
    word = Type("u", 8 * in_memory_bytes(op.types[-1]))
    size = word.bits // 8 * len(data)
    if size > 16 or size & (size - 1):
        raise op.unsupported(f"of {size} bytes")
    with code.each_lane(code.bits(code.active(op))) as lane:
        place = Place(code, op, handle, size, lane)
        place.check()
        if op.opcode == "suld":
            _load(code, op, place, word)
        elif op.opcode == "sust":
            with code.when(_reached(place)):
                for number, element in enumerate(data):
                    value = code.lane_read(element, word, lane)
                    code.builder.store(value.handle, _pointer(code, place, word, number), align=1)
        else:
            with code.when(_reached(place)):
                _reduce(code, op, place, word)


def _reached(place: Place) -> Value:
    """Return whether an access touches memory: .zero leaves those beyond the surface out."""
    return place.inside if place.op.has("zero") else place.code.constant(Type("u", 1), 1)


def _pointer(code: BlockCode, place: Place, word: Type, number: int) -> ir.Operand:
    offset = ir.Constant(ir.IntType(64), number * word.bits // 8)
    return code.builder.bitcast(code.builder.gep(place.host, [offset]), word.ir.as_pointer())


def _load(code: BlockCode, op: Op, place: Place, word: Type) -> None:
    """Write a load; what lies beyond the surface reads as 0 under .zero."""
    data = elements_of(op.operands[0])
    variables = [code.variable(code.constant(word, 0)) for _ in data]
    with code.when(_reached(place)):
        for number, variable in enumerate(variables):
            variable.set(Value(code, word, code.builder.load(_pointer(code, place, word, number), align=1)))
    for element, variable in zip(data, variables, strict=True):
        code.lane_write(element, variable.get(), place.lane)


def _reduce(code: BlockCode, op: Op, place: Place, word: Type) -> None:
    """Write an atomic operation on a texel."""
    name = next((modifier for modifier in op.modifiers if modifier in _REDUCED), "")
    if op.types[-1] not in _REDUCED.get(name, ()):
        allowed = "; ".join(f"{operation}: {', '.join(types)}" for operation, types in _REDUCED.items())
        raise op.unsupported(f"its operations and their types are {allowed}")
    if op.has("a1d") or op.has("a2d"):
        raise op.unsupported("surfaces of layers have no reductions")
    if name in ("min", "max") and op.types[-1][0] != "s":
        name = f"u{name}"
    value = code.lane_read(elements_of(op.operands[1])[0], word, place.lane)
    code.builder.atomic_rmw(name, _pointer(code, place, word, 0), value.handle, "seq_cst")
