"""What a fetch returns: the nearest texel, a blend of the nearest ones, or four texels of one channel."""

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, f32, i64
from lanewise.machine.codegen.function_code import U32, U64, FunctionCode, Record
from lanewise.machine.texture_records import Geometry, TextureRow
from lanewise.machine.textures import blend, coordinates
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
        self.is_cube = geometry.is_cube
        names = [name for name in COORDINATES[geometry] if name]
        self.coordinates: dict[int, Value] = {}
        self.layer = code.constant(i64, 0)
        for number, name in enumerate(names):
            if name == "layer":
                self.layer = self._layer(given.get(4 * number, S32), integers)
            else:
                self.coordinates[_AXES[name]] = given.get(4 * number, S32 if integers else f32)
        if self.is_cube:
            face, horizontal, vertical = coordinates.cube_face(code, *self.coordinates.values())
            self.layer = self.layer * coordinates.CUBE_FACES + face
            self.coordinates = {0: horizontal, 1: vertical}

    def _layer(self, wanted: Value, integers: bool) -> Value:
        """Return the layer: the last one for numbers beyond it, none for those of a fetch by integers."""
        last = self.row.get(TextureRow.layers) - 1
        if self.is_cube:  # its layers are whole cubes
            last = (last + 1) // self.code.constant(i64, coordinates.CUBE_FACES) - 1
        number = wanted.view(U32).to(U64).to(i64)
        beyond = self.code.constant(i64, -1) if integers else last
        return (number > last).select(beyond, number)

    def texels(self, axis: int) -> Value:
        """Return a coordinate in texels."""
        return coordinates.texel_coordinate(self.code, self.row, axis, self.coordinates[axis])

    def read(self, places: dict[int, Value], results: Record, normalize: bool = True) -> None:
        """Write the words of the texel at indices along the axes to memory."""
        zero = self.code.constant(i64, 0)
        x, y, z = (places.get(axis, zero) for axis in range(3))
        beyond = (z | self.layer) < 0
        plane = beyond.select(self.code.constant(i64, -1), z + self.layer)
        read_texel(self.code, self.row, place_of(self.row, x, y, plane), results.address, normalize)


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
    """Write a fetch by integer coordinates: beyond the texels it gives 0, whatever the address mode."""
    code, row = fetch.code, fetch.row
    inside = fetch.layer >= 0
    for axis, value in fetch.coordinates.items():
        inside = inside & (value >= 0) & (value.to(i64) < row.get(TextureRow.size + 8 * axis))
    with code.when(inside):
        fetch.read({axis: value.to(i64) for axis, value in fetch.coordinates.items()}, fetch.results)
        code.give(0)
    for number in range(WORDS):
        fetch.results.set(4 * number, code.constant(U32, 0))


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
    corners = 1 << len(fetch.coordinates)
    with code.builder.goto_entry_block():
        memory = code.builder.alloca(ir.ArrayType(ir.IntType(32), WORDS * corners), align=16)
        address = Value(code, i64, code.builder.ptrtoint(memory, ir.LONG))
    texels = Record(code, address)
    sides: dict[int, tuple[Value, Value]] = {}
    fractions: list[Value] = []
    for axis in fetch.coordinates:
        fixed = coordinates.filter_position(code, row, axis, fetch.texels(axis))
        first = fixed >> coordinates.FRACTION
        fractions.append(fixed & (coordinates.ONE - 1))
        sides[axis] = (
            coordinates.addressed(code, row, axis, first),
            coordinates.addressed(code, row, axis, first + 1),
        )
    parts = blend.weights(fractions)
    places = [{axis: both[corner >> axis & 1] for axis, both in sides.items()} for corner in range(corners)]
    for number in range(WORDS):
        fetch.results.set(4 * number, code.constant(U32, 0))
    integers = row.get(TextureRow.normalized_float).differs(0)
    with code.when(integers):
        for corner, place in enumerate(places):
            fetch.read(place, Record(code, address + 4 * WORDS * corner), normalize=False)
        with code.loop(row.get(TextureRow.channels)) as channel:
            words = [texels.get(channel * 4 + 4 * WORDS * corner, S32) for corner in range(corners)]
            fetch.results.set(channel * 4, blend.blended_integers(code, row, words, parts))
        code.give(0)
    for corner, place in enumerate(places):
        fetch.read(place, Record(code, address + 4 * WORDS * corner))
    halves = row.get(TextureRow.element_bytes).equals(2)
    counts = blend.counting(fractions)
    with code.loop(row.get(TextureRow.channels)) as channel:
        words = [texels.get(channel * 4 + 4 * WORDS * corner, U32) for corner in range(corners)]
        fetch.results.set(channel * 4, blend.blended(code, words, parts, counts, halves))


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
            axis: coordinates.fixed_point(code, fetch.texels(axis)) >> coordinates.FRACTION
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
