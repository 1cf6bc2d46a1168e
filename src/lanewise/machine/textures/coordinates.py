"""Texture coordinates in compiled code: which texels a coordinate stands for, and with which weight."""

from lanewise.jit.simd import Value, f32, f64, i64, u32
from lanewise.machine.arithmetic.small_floats import is_nan
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.texture_records import AddressMode, TextureRow

#: Bits of fraction that a coordinate has for the linear filter.
FRACTION = 8
ONE = 1 << FRACTION
#: The faces of a cube map, in the order of its layers: +x, -x, +y, -y, +z, -z.
CUBE_FACES = 6


def cube_face(code: FunctionCode, x: Value, y: Value, z: Value) -> tuple[Value, Value, Value]:
    """Return the face of a cube map that a direction meets, and the normalised coordinates there.

    The programming guide's table: the coordinate of the largest magnitude names the face and divides the two
    others. Of equal magnitudes z comes first, then y.
    """
    sign_bit = 0x80000000
    magnitudes = [(coordinate.view(u32) & (sign_bit - 1)).view(f32) for coordinate in (x, y, z)]
    along_z = (magnitudes[2] >= magnitudes[0]) & (magnitudes[2] >= magnitudes[1])
    along_y = magnitudes[1] >= magnitudes[0]

    def chosen(of_x: Value, of_y: Value, of_z: Value) -> Value:
        return along_z.select(of_z, along_y.select(of_y, of_x))

    def signed(number: Value, like: Value, flip: int = 0) -> Value:
        """Return a number whose sign changes where another one is negative."""
        return (number.view(u32) ^ ((like.view(u32) ^ flip) & sign_bit)).view(f32)

    down = signed(y, code.constant(f32, -1.0))
    horizontal = chosen(signed(z, x, sign_bit), x, signed(x, z))
    vertical = chosen(down, signed(z, y), down)
    first = chosen(*(code.constant(i64, face) for face in (0, 2, 4)))
    face = first + (chosen(x, y, z).view(u32) >> 31).to(i64)

    def place(number: Value) -> Value:
        divided = Value(code, f32, code.builder.fdiv(number.handle, chosen(*magnitudes).handle))
        return divided * 0.5 + 0.5

    return face, place(horizontal), place(vertical)


def texel_coordinate(code: FunctionCode, row: Record, axis: int, coordinate: Value) -> Value:
    """Return an f32 coordinate in texels, as a double: those that run from 0 to 1 are scaled.

    As seen on an H200: subnormal numbers and NaN count as 0. Normalised coordinates are rounded down to a
    number of steps; where texels repeat, whole repetitions are taken off then, and infinity is 0 too.
    """
    size = row.get(TextureRow.size + 8 * axis).to(f64)
    steps = row.get(TextureRow.coordinate_steps + 8 * axis).to(f64)
    tiny = (coordinate.view(u32) & 0x7F800000).equals(0)
    wide = (tiny | is_nan(coordinate)).select(code.constant(f64, 0.0), coordinate.to(f64))
    whole = code.intrinsic("floor", f64, [wide * steps])
    period = steps * 2.0
    periods = code.intrinsic("floor", f64, [Value(code, f64, code.builder.fdiv(whole.handle, period.handle))])
    rest = whole - periods * period
    rest = is_nan(rest).select(code.constant(f64, 0.0), rest)
    whole = _repeats(row, axis).select(rest, whole)
    rounded = Value(code, f64, code.builder.fdiv(whole.handle, steps.handle))
    return row.get(TextureRow.normalized_coordinates).differs(0).select(rounded * size, wide)


def _repeats(row: Record, axis: int) -> Value:
    """Return whether texels repeat beyond the last: wrapped or mirrored, with normalised coordinates."""
    mode = row.get(TextureRow.address_mode + 8 * axis)
    repeating = mode.equals(AddressMode.WRAP) | mode.equals(AddressMode.MIRROR)
    return repeating & row.get(TextureRow.normalized_coordinates).differs(0)


def fixed_point(code: FunctionCode, texels: Value) -> Value:
    """Return half a texel less than a coordinate, in 1/256 texels, rounded to the nearest, ties up."""
    scaled = _bounded(code, texels * float(ONE))
    return code.intrinsic("floor", f64, [scaled + 0.5]).to(i64) - ONE // 2


def filter_position(code: FunctionCode, row: Record, axis: int, texels: Value) -> Value:
    """Return where a filter begins along an axis, in 1/256 texels: half a texel before the coordinate."""
    fixed = fixed_point(code, texels)
    border = row.get(TextureRow.address_mode + 8 * axis).equals(AddressMode.BORDER)
    last = (row.get(TextureRow.size + 8 * axis) - 1) * ONE
    low = fixed.max(0)
    clamped = (low > last).select(last, low)
    return (border | _repeats(row, axis)).select(fixed, clamped)


def floor(code: FunctionCode, texels: Value) -> Value:
    """Return the texel that a coordinate lies in."""
    return code.intrinsic("floor", f64, [_bounded(code, texels)]).to(i64)


def _bounded(code: FunctionCode, number: Value) -> Value:
    """Return a number that an integer can hold; no texture is so large."""
    limit = 2.0**40
    bounded = (number > limit).select(code.constant(f64, limit), number)
    return (bounded < -limit).select(code.constant(f64, -limit), bounded)


def addressed(code: FunctionCode, row: Record, axis: int, index: Value) -> Value:
    """Return the texel that an address mode gives for an index along an axis; -1 beyond the border."""
    size = row.get(TextureRow.size + 8 * axis)
    mode = row.get(TextureRow.address_mode + 8 * axis)
    normalized = row.get(TextureRow.normalized_coordinates).differs(0)
    last = size - 1
    zero = code.constant(i64, 0)
    low = index.max(0)
    clamped = (low > last).select(last, low)
    outside = clamped.differs(index)
    wrapped = code.variable(clamped)
    with code.when(outside & mode.equals(AddressMode.BORDER)):
        wrapped.set(code.constant(i64, -1))
    with code.when(outside & normalized & mode.equals(AddressMode.WRAP)):
        wrapped.set(_modulo(code, index, size))
    with code.when(outside & normalized & mode.equals(AddressMode.MIRROR)):
        within = _modulo(code, index, size + size)
        wrapped.set((within > last).select(size + size - 1 - within, within))
    return (size.equals(0)).select(zero, wrapped.get())


def _modulo(code: FunctionCode, value: Value, divisor: Value) -> Value:
    """Return the remainder that has the divisor's sign."""
    rest = Value(code, i64, code.builder.srem(value.handle, divisor.handle))
    return (rest < 0).select(rest + divisor, rest)
