"""What a fetch returns: the nearest texel, a blend of the nearest ones, or four texels of one channel."""

from __future__ import annotations

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, f32, i64
from lanewise.machine.abi import Geometry, TextureRow
from lanewise.machine.codegen.function_code import U32, FunctionCode, Record
from lanewise.machine.textures import coordinates
from lanewise.machine.textures.objects import COORDINATES
from lanewise.machine.textures.texels import WORDS, place_of, read_texel

S32 = Type("i", 32)
_AXES = {"x": 0, "y": 1, "z": 2}
Write = Callable[[FunctionCode], None]


class Fetch:
    """The coordinates of a fetch while its function is written, by the names of its geometry."""

    def __init__(self, code: FunctionCode, geometry: Geometry, integers: bool) -> None:
        self.code, self.row, self.results = code, code.record("row"), code.record("results")
        given = code.record("coordinates")
        names = [name for name in COORDINATES[geometry] if name]
        self.coordinates: dict[int, Value] = {}
        self.layer = code.constant(i64, 0)
        for number, name in enumerate(names):
            if name == "layer":
                wanted = given.get(4 * number, S32).to(i64)
                last = self.row.get(TextureRow.layers) - 1
                low = wanted.max(0)
                self.layer = (low > last).select(last, low)
            else:
                self.coordinates[_AXES[name]] = given.get(4 * number, S32 if integers else f32)

    def texels(self, axis: int) -> Value:
        """Return a coordinate in texels."""
        return coordinates.texel_coordinate(self.code, self.row, axis, self.coordinates[axis])

    def read(self, places: dict[int, Value], results: Record) -> None:
        """Write the words of the texel at indices along the axes to memory."""
        zero = self.code.constant(i64, 0)
        x, y, z = (places.get(axis, zero) for axis in range(3))
        beyond = (z | self.layer) < 0
        plane = beyond.select(self.code.constant(i64, -1), z + self.layer)
        read_texel(self.code, self.row, place_of(self.row, x, y, plane), results.address)


def fetch_writer(geometry: Geometry, integers: bool) -> Write:
    """Return a function that writes the code of a fetch by integers or by f32 coordinates."""

    def write(code: FunctionCode) -> None:
        fetch = Fetch(code, geometry, integers)
        if integers:
            _write_integer(fetch)
            return
        linear = fetch.row.get(TextureRow.linear_filter).differs(0)
        with code.when(linear):
            _write_linear(fetch)
            code.give(0)
        _write_nearest(fetch)

    return write


def _write_integer(fetch: Fetch) -> None:
    """Write a fetch by integer coordinates."""
    code, row = fetch.code, fetch.row
    places = {
        axis: coordinates.addressed(code, row, axis, value.to(i64))
        for axis, value in fetch.coordinates.items()
    }
    fetch.read(places, fetch.results)


def _write_nearest(fetch: Fetch) -> None:
    """Write a fetch of the texel that the coordinates lie in."""
    code, row = fetch.code, fetch.row
    places = {
        axis: coordinates.addressed(code, row, axis, coordinates.floor(code, fetch.texels(axis)))
        for axis in fetch.coordinates
    }
    fetch.read(places, fetch.results)


def _write_linear(fetch: Fetch) -> None:
    """Write a blend of the two nearest texels along each axis."""
    code, row = fetch.code, fetch.row
    with code.builder.goto_entry_block():
        memory = code.builder.alloca(ir.ArrayType(ir.IntType(32), WORDS), align=16)
        address = Value(code, i64, code.builder.ptrtoint(memory, ir.LONG))
    texel = Record(code, address)
    sides: dict[int, list[tuple[Value, Value]]] = {}
    for axis in fetch.coordinates:
        fixed = coordinates.fixed_point(code, fetch.texels(axis)) - coordinates.ONE // 2
        first, weight = fixed >> coordinates.FRACTION, (fixed & (coordinates.ONE - 1)).to(f32) * (1 / 256)
        sides[axis] = [
            (coordinates.addressed(code, row, axis, first), 1.0 - weight),
            (coordinates.addressed(code, row, axis, first + 1), weight),
        ]
    sums = [code.variable(code.constant(f32, 0.0)) for _ in range(WORDS)]
    for corner in range(1 << len(sides)):
        chosen = {axis: sides[axis][corner >> number & 1] for number, axis in enumerate(sides)}
        fetch.read({axis: place for axis, (place, _) in chosen.items()}, texel)
        weight = code.constant(f32, 1.0)
        for _, part in chosen.values():
            weight = weight * part
        for number, variable in enumerate(sums):
            variable.set(variable.get() + texel.get(4 * number, f32) * weight)
    for number, variable in enumerate(sums):
        fetch.results.set(4 * number, variable.get().view(U32))


def gather_writer(geometry: Geometry, component: int) -> Write:
    """Return a function that writes the code of tld4: one channel of the texels that a blend would take."""

    def write(code: FunctionCode) -> None:
        fetch = Fetch(code, geometry, integers=False)
        row = fetch.row
        with code.builder.goto_entry_block():
            memory = code.builder.alloca(ir.ArrayType(ir.IntType(32), WORDS), align=16)
            address = Value(code, i64, code.builder.ptrtoint(memory, ir.LONG))
        texel = Record(code, address)
        firsts = {
            axis: (coordinates.fixed_point(code, fetch.texels(axis)) - coordinates.ONE // 2)
            >> coordinates.FRACTION
            for axis in fetch.coordinates
        }
        # Counter-clockwise from the lower left: (0, 1), (1, 1), (1, 0), (0, 0).
        for number, (right, down) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
            places = {
                axis: coordinates.addressed(code, row, axis, firsts[axis] + step)
                for axis, step in ((0, right), (1, down))
            }
            fetch.read(places, texel)
            fetch.results.set(4 * number, texel.get(4 * component, U32))

    return write
