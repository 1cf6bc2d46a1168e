"""The blend of up to eight texels, as an H200 computes it: integer weights, an exact sum, one rounding.

Found by experiment (tests/data/textures_h200.npz holds it): a fraction has 8 bits. The weights of the texels
are integers that add up to 256, rounded from the products of fractions axis by axis. In each plane of four
texels the significands are cut to 28 bits below the largest exponent (of f16: 15). The sum is then exact, and
rounded to the nearest f32 (of f16 texels: f16), ties away from zero. Subnormal f32 numbers count as zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.jit.simd import Type, Value, f32, f64, i64, u32
from lanewise.machine.arithmetic.small_floats import to_odd, two_sum
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.texture_records import ElementKind, TextureRow

U64 = Type("u", 64)
#: Weights add up to this: a fraction has 8 bits.
ONE = 256
#: Bits of a significand, and bits that a texel of the largest exponent has below it.
_SIGNIFICAND, _GUARD = 24, 4
#: What a NaN or a sum of infinities of both signs becomes, and infinity.
_NAN, _INFINITY = 0x7FFFFFFF, 0x7F800000
#: The same of f16 texels, and the bits by which an f16's significand is shorter.
_HALF_NAN, _SHORTER = 0x7FFFE000, 13


def weights(fractions: Sequence[Value]) -> list[Value]:
    """Return the weights of the texels of a blend from the fractions along x, y and z, in 1/256.

    The first axis changes fastest: (0, 0, 0), (1, 0, 0), (0, 1, 0), …
    """
    code = fractions[0].code
    zero = code.constant(i64, 0)
    x, y, z = (*fractions, zero, zero)[:3]
    planes = [ONE - z, z] if len(fractions) > 2 else [code.constant(i64, ONE)]
    corners: list[Value] = []
    for plane in planes:
        right = (x * plane + ONE // 2) >> 8
        left = plane - right
        lower_right = (right * y + ONE // 2) >> 8
        lower_left = (left * y + (ONE // 2 - 1)) >> 8  # here a tie goes down, so that the sum stays
        corners += [left - lower_left, right - lower_right, lower_left, lower_right]
    return corners[: 1 << len(fractions)] if len(fractions) < 3 else corners


@dataclass(frozen=True)
class _Plane:
    """The sum of up to four weighted texels: its value, and what overrides it."""

    total: Value
    is_nan: Value
    is_positive_infinity: Value
    is_negative_infinity: Value
    all_negative: Value


def counting(fractions: Sequence[Value]) -> list[Value]:
    """Return whether each texel takes part: not at all where it lies beyond a fraction of 0.

    One whose weight is rounded to 0 takes part: if it is NaN, so is the blend.
    """
    counts = [fractions[0].code.constant(Type("u", 1), 1)]
    for fraction in fractions:
        counts += [count & fraction.differs(0) for count in counts]
    return counts


def blended_integers(
    code: FunctionCode, row: Record, numbers: Sequence[Value], parts: Sequence[Value]
) -> Value:
    """Return the f32 word of a blend of normalised integers: it is rounded to 16 bits, ties up."""
    total = code.constant(i64, 0)
    for number, part in zip(numbers, parts, strict=True):
        total = total + number.to(i64) * part
    is_byte = row.get(TextureRow.element_bytes).equals(1)
    signed = row.get(TextureRow.element_kind).equals(ElementKind.SIGNED)
    # Bytes become 16 bits by repeating their bits; below the last one, those of s8 do so in steps of 1/8.
    as_byte = signed.select(total * 258 + ((total >> 12) << 5), total * 257)
    rounded = (is_byte.select(as_byte, total) + ONE // 2) >> 8
    least = code.constant(i64, -32767)
    rounded = (rounded < least).select(least, rounded)
    most = signed.select(code.constant(f32, 32767.0), code.constant(f32, 65535.0))
    return Value(code, f32, code.builder.fdiv(rounded.to(f32).handle, most.handle)).view(u32)


def blended(
    code: FunctionCode,
    words: Sequence[Value],
    parts: Sequence[Value],
    counts: Sequence[Value],
    halves: Value,
) -> Value:
    """Return the f32 word of a blend of f32 words with integer weights; `halves`: the texels are f16."""
    planes = [
        _plane(code, words[start : start + 4], parts[start : start + 4], counts[start : start + 4], halves)
        for start in range(0, len(words), 4)
    ]
    total, is_nan = planes[0].total, planes[0].is_nan
    up, down = planes[0].is_positive_infinity, planes[0].is_negative_infinity
    negative = planes[0].all_negative
    for other in planes[1:]:
        total = to_odd(*two_sum(total, other.total))
        is_nan = is_nan | other.is_nan
        up, down = up | other.is_positive_infinity, down | other.is_negative_infinity
        negative = negative & other.all_negative
    finite = halves.select(_rounded_half(code, total, negative), _rounded(code, total, negative))
    nan = halves.select(code.constant(u32, _HALF_NAN), code.constant(u32, _NAN))
    word = up.select(code.constant(u32, _INFINITY), finite)
    word = down.select(code.constant(u32, _INFINITY | 1 << 31), word)
    return (is_nan | (up & down)).select(nan, word)


def _plane(
    code: FunctionCode,
    words: Sequence[Value],
    parts: Sequence[Value],
    counting: Sequence[Value],
    halves: Value,
) -> _Plane:
    """Return the sum of some texels, aligned to the largest exponent among those with a weight."""
    false, true = (code.constant(Type("u", 1), number) for number in (0, 1))
    is_nan, up, down, negative = false, false, false, true
    exponents = []
    largest = code.constant(u32, 0)
    for word, part, counts in zip(words, parts, counting, strict=True):
        exponent = (word >> 23) & 0xFF
        exponents.append(exponent)
        largest = largest.max(part.differs(0).select(exponent, 0))
        is_nan = is_nan | (counts & ((word & 0x7FFFFFFF) > _INFINITY))
        up = up | (counts & word.equals(_INFINITY))
        down = down | (counts & word.equals(_INFINITY | 1 << 31))
        negative = negative & (~counts | (word >> 31).differs(0))
    total = code.constant(i64, 0)
    for word, part, exponent in zip(words, parts, exponents, strict=True):
        significand = ((word & 0x7FFFFF) | 1 << 23).to(U64) << _GUARD
        far = (exponent > largest).select(code.constant(u32, 0), largest - exponent)
        shift = (far > 63).select(code.constant(u32, 63), far)
        aligned = significand >> shift.to(U64)
        aligned = halves.select((aligned >> _SHORTER) << _SHORTER, aligned).to(i64)
        aligned = exponent.equals(0).select(code.constant(i64, 0), aligned)
        signed = (word >> 31).differs(0).select(0 - aligned, aligned)
        total = total + signed * part
    # A texel is its aligned significand times 2^(largest - 127 - 23 - 4), and weights are 1/256.
    bias = 1023 - 127 - (_SIGNIFICAND - 1) - _GUARD - 8
    scale = ((largest.to(U64) + bias) << 52).view(f64)
    return _Plane(total.to(f64) * scale, is_nan, up, down, negative)


def _rounded(code: FunctionCode, total: Value, negative: Value, fewer: int = 0) -> Value:
    """Return a double as an f32 word, ties away from zero; what would be subnormal is zero.

    The significand has some bits fewer, for f16.
    """
    bits = total.view(U64)
    magnitude = bits & ((1 << 63) - 1)
    shorter = ((magnitude + (1 << (28 + fewer))) >> (29 + fewer)) << fewer
    sign = ((bits >> 63) << 31).to(u32)
    least = (1023 - 126) << 23
    word = (shorter - ((1023 - 127) << 23)).to(u32)
    zero_sign = negative.select(code.constant(u32, 1 << 31), 0)
    word = (shorter < least).select(code.constant(u32, 0), word) | sign
    return magnitude.equals(0).select(zero_sign, word)


def _rounded_half(code: FunctionCode, total: Value, negative: Value) -> Value:
    """Return a double as the f32 word of the nearest f16, ties away from zero, subnormal ones included."""
    magnitude = code.intrinsic("fabs", f64, [total])
    steps = code.intrinsic("floor", f64, [magnitude * 2.0**24 + 0.5])
    small = code.intrinsic("copysign", f64, [steps * 2.0**-24, total])
    is_small = magnitude < 2.0**-14
    return is_small.select(_rounded(code, small, negative), _rounded(code, total, negative, _SHORTER))
