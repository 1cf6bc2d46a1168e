"""Lowerings of tex and tld4: each lane's coordinates go to a function that all kernels share."""

from collections.abc import Callable

from lanewise.jit.simd import Type, Value, f32, i64, u8, u16, u32, u64
from lanewise.machine.arithmetic.small_floats import round_to, widen
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record, routine
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.texture_records import ElementKind, Geometry, TextureRow
from lanewise.machine.textures import blend, coordinates
from lanewise.machine.textures.objects import COORDINATES, geometry_of, named_coordinates, row_of

#: Words of a fetch: red, green, blue, alpha.
WORDS = 4


def read_texel(code: FunctionCode, row: Record, place: Value, results: Value, normalize: bool = True) -> None:
    """Write the four words of a texel to memory; a place below 0 is beyond the border.

    Integers that are read as floats are made floats, unless `normalize` is false.
    """
    name = "texel" if normalize else "texel as it is"
    arguments = ("row", "place", "results")
    function = routine(code.module, name, arguments, lambda inner: _write_texel(inner, normalize))
    code.invoke(function, row.address, place, results)


def place_of(row: Record, x: Value, y: Value, plane: Value) -> Value:
    """Return the number of a texel; a coordinate below 0, which is beyond the border, makes it negative."""
    row_texels, height = row.get(TextureRow.row_texels), row.get(TextureRow.size + 8)
    place = (plane * height + y) * row_texels + x
    beyond = (x | y | plane) < 0
    return beyond.select(row.code.constant(i64, -1), place)


def _write_texel(code: FunctionCode, normalize: bool) -> None:
    """Write `texel(row, place, results)`."""
    row, place, results = code.record("row"), code["place"], code.record("results")
    is_float = row.get(TextureRow.element_kind).equals(ElementKind.FLOAT)
    for number in range(WORDS):  # channels that a texel does not have read as 0
        results.set(4 * number, code.constant(u32, 0))
    inside = row.get(TextureRow.host) + place * row.get(TextureRow.texel_bytes)
    texel = (place < 0).select(row.address + TextureRow.border, inside)
    size = row.get(TextureRow.element_bytes)
    with code.loop(row.get(TextureRow.channels)) as channel:
        element = Record(code, texel + channel * size)
        word = code.variable(code.constant(u32, 0))
        with code.when(size.equals(1)):
            word.set(_small(code, row, element.get(0, u8), normalize))
        with code.when(size.equals(2)):
            half = code.load_unaligned(element.handle, u16)
            word.set(is_float.select(widen(half, "f16").view(u32), _small(code, row, half, normalize)))
        with code.when(size.equals(4)):
            word.set(code.load_unaligned(element.handle, u32))
        results.set(channel * 4, word.get())


def _small(code: FunctionCode, row: Record, element: Value, normalize: bool) -> Value:
    """Return an integer of 8 or 16 bits as a word: extended, or as a float from -1 or 0 to 1."""
    bits = element.type.bits
    signed = row.get(TextureRow.element_kind).equals(ElementKind.SIGNED)
    extended = signed.select(element.view(Type("i", bits)).to(Type("i", 32)).to(u32), element.to(u32))
    if not normalize:
        return extended
    largest = signed.select(
        code.constant(f32, float((1 << bits - 1) - 1)), code.constant(f32, float((1 << bits) - 1))
    )
    number = extended.view(Type("i", 32)).to(f32)
    quotient = Value(code, f32, code.builder.fdiv(number.handle, largest.handle))
    least = code.constant(f32, -1.0)
    clamped = (quotient < least).select(least, quotient)
    normalized = row.get(TextureRow.normalized_float).differs(0)
    return normalized.select(clamped.view(u32), extended)


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
        number = wanted.view(u32).to(u64).to(i64)
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
        fetch.results.set(4 * number, code.constant(u32, 0))


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
    texels = code.stack_record(4 * WORDS * corners, align=16)
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
        fetch.results.set(4 * number, code.constant(u32, 0))
    integers = row.get(TextureRow.normalized_float).differs(0)
    with code.when(integers):
        for corner, place in enumerate(places):
            fetch.read(place, Record(code, texels.address + 4 * WORDS * corner), normalize=False)
        with code.loop(row.get(TextureRow.channels)) as channel:
            words = [texels.get(channel * 4 + 4 * WORDS * corner, S32) for corner in range(corners)]
            fetch.results.set(channel * 4, blend.blended_integers(code, row, words, parts))
        code.give(0)
    for corner, place in enumerate(places):
        fetch.read(place, Record(code, texels.address + 4 * WORDS * corner))
    halves = row.get(TextureRow.element_bytes).equals(2)
    counts = blend.counting(fractions)
    with code.loop(row.get(TextureRow.channels)) as channel:
        words = [texels.get(channel * 4 + 4 * WORDS * corner, u32) for corner in range(corners)]
        fetch.results.set(channel * 4, blend.blended(code, words, parts, counts, halves))


def gather_writer(geometry: Geometry, component: int) -> Write:
    """Return a function that writes the code of tld4: one channel of the texels that a blend would take."""

    def write(code: FunctionCode) -> None:
        fetch = Fetch(code, geometry, integers=False)
        row = fetch.row
        texel = code.stack_record(4 * WORDS, align=16)
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
            fetch.results.set(4 * number, texel.get(4 * component, u32))

    return write


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
        write = gather_writer(geometry, component)
        name = f"texture gather {geometry.title} {component}"
    else:
        write = fetch_writer(geometry, integers)
        name = f"texture fetch {geometry.title} {of_coordinates}"
    function = routine(code.module, name, ("row", "coordinates", "results"), write)
    memory = code.stack_record(8 * WORDS, align=16)  # for the coordinates and the result of a fetch
    with code.each_lane(code.bits(code.active(op))) as lane:
        row = row_of(code, op, 1, lane, geometry, is_surface=False)
        for number, (axis, operand) in enumerate(coordinates.items()):
            type = S32 if integers or axis == "layer" else f32
            memory.set(4 * number, code.lane_read(operand, type, lane).view(u32))
        code.invoke(function, row.address, memory.address, memory.address + 16)
        words = [memory.get(16 + 4 * number, u32) for number in range(WORDS)]
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
    halves = [round_to(word.view(f32), "f16").to(u32) & 0xFFFF for word in words]
    if result == "f16":
        return halves
    return [halves[0] | (halves[1] << 16), halves[2] | (halves[3] << 16)]
