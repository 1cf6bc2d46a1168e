"""Vector code that decodes floats: raw words to f32 numbers, exponents, signs, specials.

`fused_narrow.py` and `fused_wide.py` are built from it.
"""

from lanewise.arith.models import NAN_BITS
from lanewise.formats import Format
from lanewise.jit.simd import Type, Value, f32, f64, i32, u8, u16, u32

NAN = NAN_BITS["f32"]
#: The bits of an element that a sparse A does not have. Its zeros are all +0.
ABSENT = 0x80000000


def raw_type(fmt: Format) -> Type:
    """Return the type of an element's raw word."""
    return {8: u8, 16: u16, 32: u32}[fmt.word_bits]


def decode(raw: Value, fmt: Format) -> Value:
    """Return the f32 numbers of raw words, infinities and NaNs included."""
    words = raw.to(u32)
    if fmt.exponent_bits == 8:
        bits = words << (32 - fmt.bits) if fmt.bits < 32 else words
        return (bits & ~((1 << (23 - fmt.mantissa_bits)) - 1)).view(f32)
    top = fmt.exponent_bits + fmt.mantissa_bits
    magnitude = words & ((1 << top) - 1)
    sign = (words & (1 << top)) << (31 - top)
    aligned = magnitude << (23 - fmt.mantissa_bits)
    # The fields read as f32 are the number with another bias, subnormals included.
    bits = (aligned.view(f32) * 2.0 ** (127 - fmt.bias)).view(u32)
    if fmt.has_inf:
        infinite = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
        bits = (magnitude >= infinite).select(aligned | 0x7F800000, bits)
    elif fmt.has_nan:
        bits = magnitude.equals((1 << top) - 1).select(bits | NAN, bits)
    return (bits | sign).view(f32)


def exponent_field(number: Value) -> Value:
    """Return the biased exponent of f32 numbers as i32, 0 to 255."""
    return ((number.view(u32) << 1) >> 24).view(i32)


def is_zero(number: Value) -> Value:
    """Return where f32 numbers are +0 or -0."""
    return (number.view(u32) << 1).equals(0)


def is_nan(number: Value) -> Value:
    """Return where f32 numbers are NaN."""
    return (number.view(u32) << 1) > 0xFF000000


def is_special(number: Value) -> Value:
    """Return where f32 numbers are infinite or NaN."""
    return exponent_field(number).equals(255)


def power_of_two(biased: Value) -> Value:
    """Return 2 to the power of a biased exponent: f32 from i32, f64 from i64."""
    return (biased << 23).view(f32) if biased.type.bits == 32 else (biased << 52).view(f64)


def finite_part(number: Value) -> Value:
    """Return f32 numbers with 0 in place of infinities and NaNs."""
    return is_special(number).select(number.code.constant(number.type, 0.0), number)


def classify(number: Value) -> Value:
    """Return 0 for zeros, ±1 for other finite f32 numbers, infinities and NaNs as they are."""
    one = ((number.view(u32) & 0x80000000) | 0x3F800000).view(f32)
    kept = is_special(number).select(number, one)
    return is_zero(number).select(number.code.constant(number.type, 0.0), kept)


def with_one_nan(number: Value) -> Value:
    """Return f32 numbers with every NaN replaced by the one that results have."""
    bits = number.view(u32)
    return is_nan(number).select(number.code.constant(bits.type, NAN), bits).view(f32)
