"""Texels in compiled code: where one lies, and the four words that a fetch returns for it."""

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, f32, i64
from lanewise.machine.arithmetic.small_floats import widen
from lanewise.machine.codegen.function_code import U8, U32, FunctionCode, Record, shared
from lanewise.machine.texture_records import ElementKind, TextureRow

U16 = Type("u", 16)
#: Words of a fetch: red, green, blue, alpha.
WORDS = 4


def read_texel(code: FunctionCode, row: Record, place: Value, results: Value, normalize: bool = True) -> None:
    """Write the four words of a texel to memory; a place below 0 is beyond the border.

    Integers that are read as floats are made floats, unless `normalize` is false.
    """
    name = "texel" if normalize else "texel as it is"
    type = ir.FunctionType(ir.WORD, [ir.LONG] * 3)
    function = shared(code.module, name, type, lambda module, name: _write_texel(module, name, normalize))
    code.builder.call(function, [row.address.handle, place.handle, results.handle])


def place_of(row: Record, x: Value, y: Value, plane: Value) -> Value:
    """Return the number of a texel; a coordinate below 0, which is beyond the border, makes it negative."""
    row_texels, height = row.get(TextureRow.row_texels), row.get(TextureRow.size + 8)
    place = (plane * height + y) * row_texels + x
    beyond = (x | y | plane) < 0
    return beyond.select(row.code.constant(i64, -1), place)


def _write_texel(module: ir.Module, name: str, normalize: bool) -> None:
    """Write `texel(row, place, results)`."""
    code = FunctionCode(module, name, ("row", "place", "results"), ir.WORD, "")
    row, place, results = code.record("row"), code["place"], code.record("results")
    is_float = row.get(TextureRow.element_kind).equals(ElementKind.FLOAT)
    for number in range(WORDS):  # channels that a texel does not have read as 0
        results.set(4 * number, code.constant(U32, 0))
    inside = row.get(TextureRow.host) + place * row.get(TextureRow.texel_bytes)
    texel = (place < 0).select(row.address + TextureRow.border, inside)
    size = row.get(TextureRow.element_bytes)
    with code.loop(row.get(TextureRow.channels)) as channel:
        element = Record(code, texel + channel * size)
        word = code.variable(code.constant(U32, 0))
        with code.when(size.equals(1)):
            word.set(_small(code, row, element.get(0, U8), normalize))
        with code.when(size.equals(2)):
            half = _unaligned(code, element, U16)
            word.set(is_float.select(widen(half, "f16").view(U32), _small(code, row, half, normalize)))
        with code.when(size.equals(4)):
            word.set(_unaligned(code, element, U32))
        results.set(channel * 4, word.get())
    code.give(0)


def _unaligned(code: FunctionCode, element: Record, type: Type) -> Value:
    pointer = code.builder.bitcast(element.handle, type.ir.as_pointer())
    return Value(code, type, code.builder.load(pointer, align=1))


def _small(code: FunctionCode, row: Record, element: Value, normalize: bool) -> Value:
    """Return an integer of 8 or 16 bits as a word: extended, or as a float from -1 or 0 to 1."""
    bits = element.type.bits
    signed = row.get(TextureRow.element_kind).equals(ElementKind.SIGNED)
    extended = signed.select(element.view(Type("i", bits)).to(Type("i", 32)).to(U32), element.to(U32))
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
    return normalized.select(clamped.view(U32), extended)
