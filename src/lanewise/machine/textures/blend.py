"""The blend of up to eight texels, as an H200 computes it: integer weights, an exact sum, one rounding.

Found by experiment (benchmarks/results/textures_h200.json): a fraction has 8 bits. The weights of the texels are
integers that add up to 256, rounded from the products of fractions axis by axis. In each plane of four texels
the significands are cut to 28 bits below the largest exponent; what is cut off is lost. The sum is then exact,
and rounded to the nearest f32, ties away from zero. Subnormal numbers count and are returned as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.jit.simd import Type, Value, f64, i64
from lanewise.machine.arithmetic.small_floats import to_odd, two_sum
from lanewise.machine.codegen.function_code import U32, FunctionCode

U64 = Type("u", 64)
#: Weights add up to this: a fraction has 8 bits.
ONE = 256
#: Bits of a significand, and bits that a texel of the largest exponent has below it.
_SIGNIFICAND, _GUARD = 24, 4
#: What a NaN or a sum of infinities of both signs becomes, and infinity.
_NAN, _INFINITY = 0x7FFFFFFF, 0x7F800000


def weights(fractions: Sequence[Value]) -> list[Value]:
    """Return the weights of the texels of a blend from the fractions along x, y and z, in 1/256.

    The first axis changes fastest: (0, 0, 0), (1, 0, 0), (0, 1, 0), …
    """
    code = fractions[0].code
    zero = code.constant(i64, 0)
    x, y, z = (*fractions, zero, zero)[:3]
    planes = [ONE - z, z] if len(fractions) > 2 else [code.constant(i64, ONE)]
    found: list[Value] = []
    for plane in planes:
        right = (x * plane + ONE // 2) >> 8
        left = plane - right
        lower_right = (right * y + ONE // 2) >> 8
        lower_left = (left * y + (ONE // 2 - 1)) >> 8  # here a tie goes down, so that the sum stays
        found += [left - lower_left, right - lower_right, lower_left, lower_right]
    return found[: 1 << len(fractions)] if len(fractions) < 3 else found


@dataclass(frozen=True)
class _Plane:
    """The sum of up to four weighted texels: its value, and what overrides it."""

    total: Value
    is_nan: Value
    is_positive_infinity: Value
    is_negative_infinity: Value
    all_negative: Value


def blended(code: FunctionCode, words: Sequence[Value], parts: Sequence[Value]) -> Value:
    """Return the f32 word of a blend of f32 words with integer weights."""
    planes = [
        _plane(code, words[start : start + 4], parts[start : start + 4]) for start in range(0, len(words), 4)
    ]
    total, is_nan = planes[0].total, planes[0].is_nan
    up, down = planes[0].is_positive_infinity, planes[0].is_negative_infinity
    negative = planes[0].all_negative
    for other in planes[1:]:
        total = to_odd(*two_sum(total, other.total))
        is_nan = is_nan | other.is_nan
        up, down = up | other.is_positive_infinity, down | other.is_negative_infinity
        negative = negative & other.all_negative
    finite = _rounded(code, total, negative)
    word = up.select(code.constant(U32, _INFINITY), finite)
    word = down.select(code.constant(U32, _INFINITY | 1 << 31), word)
    return (is_nan | (up & down)).select(code.constant(U32, _NAN), word)


def _plane(code: FunctionCode, words: Sequence[Value], parts: Sequence[Value]) -> _Plane:
    """Return the sum of some texels, aligned to the largest exponent among those with a weight."""
    false, true = (code.constant(Type("u", 1), number) for number in (0, 1))
    is_nan, up, down, negative = false, false, false, true
    exponents = []
    largest = code.constant(U32, 0)
    for word, part in zip(words, parts, strict=True):
        counts = part.differs(0)
        exponent = (word >> 23) & 0xFF
        exponents.append(exponent)
        largest = largest.max(counts.select(exponent, 0))
        is_nan = is_nan | (counts & ((word & 0x7FFFFFFF) > _INFINITY))
        up = up | (counts & word.equals(_INFINITY))
        down = down | (counts & word.equals(_INFINITY | 1 << 31))
        negative = negative & (part.equals(0) | (word >> 31).differs(0))
    total = code.constant(i64, 0)
    for word, part, exponent in zip(words, parts, exponents, strict=True):
        significand = ((word & 0x7FFFFF) | 1 << 23).to(U64) << _GUARD
        far = (exponent > largest).select(code.constant(U32, 0), largest - exponent)
        shift = (far > 63).select(code.constant(U32, 63), far)
        aligned = (significand >> shift.to(U64)).to(i64)
        aligned = exponent.equals(0).select(code.constant(i64, 0), aligned)
        signed = (word >> 31).differs(0).select(0 - aligned, aligned)
        total = total + signed * part
    # A texel is its aligned significand times 2^(largest - 127 - 23 - 4), and weights are 1/256.
    bias = 1023 - 127 - (_SIGNIFICAND - 1) - _GUARD - 8
    scale = ((largest.to(U64) + bias) << 52).view(f64)
    return _Plane(total.to(f64) * scale, is_nan, up, down, negative)


def _rounded(code: FunctionCode, total: Value, negative: Value) -> Value:
    """Return a double as an f32 word, ties away from zero; what would be subnormal is zero."""
    bits = total.view(U64)
    magnitude = bits & ((1 << 63) - 1)
    shorter = (magnitude + (1 << 28)) >> 29
    sign = ((bits >> 63) << 31).to(U32)
    least = (1023 - 126) << 23
    word = (shorter - ((1023 - 127) << 23)).to(U32)
    zero_sign = negative.select(code.constant(U32, 1 << 31), 0)
    word = (shorter < least).select(code.constant(U32, 0), word) | sign
    return magnitude.equals(0).select(zero_sign, word)
