"""tcgen05.mma with Python integers, written from the published rules and not from the library's code.

A float is (significand, exponent of its last bit, exponent that alignment sees); infinities and NaN apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: Exponent bits, mantissa bits, bias; whether the largest exponent is infinities and NaN.
FLOATS = {
    "f16": (5, 10, 15, True), "bf16": (8, 7, 127, True), "tf32": (8, 10, 127, True),
    "f32": (8, 23, 127, True), "e5m2": (5, 2, 15, True), "e4m3": (4, 3, 7, False),
    "e3m2": (3, 2, 3, False), "e2m3": (2, 3, 1, False), "e2m1": (2, 1, 1, False),
}  # fmt: skip
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


@dataclass(frozen=True)
class Number:
    """A number: its exact value is significand · 2^last; alignment sees it at 2^exponent."""

    significand: int
    last: int
    exponent: int
    special: str = ""


def number(word: int, name: str) -> Number:
    """Return what a word means; tf32 is the upper 19 bits of 32."""
    if name == "tf32":
        word >>= 13
    if name == "ue8m0":
        return Number(1, word - 127, word - 127, "nan" if word == 255 else "")
    if name == "ue4m3":
        return number(word & 0x7F, "e4m3")
    bits, mantissa, bias, specials = FLOATS[name]
    fraction = word & ((1 << mantissa) - 1)
    field = word >> mantissa & ((1 << bits) - 1)
    sign = -1 if word >> (bits + mantissa) & 1 else 1
    largest = (1 << bits) - 1
    if specials and field == largest:
        return Number(sign, 0, 0, "nan" if fraction else "inf")
    if name == "e4m3" and field == largest and fraction == 7:
        return Number(0, 0, 0, "nan")
    exponent = max(field, 1) - bias
    return Number(sign * (fraction + (1 << mantissa if field else 0)), exponent - mantissa, exponent)


def shifted(significand: int, places: int) -> int:
    """Return significand · 2^places, truncated toward zero."""
    if places >= 0:
        return significand << places
    magnitude = abs(significand) >> -places
    return magnitude if significand >= 0 else -magnitude


def truncated_sum(terms: Sequence[tuple[int, int, int]], fraction: int) -> tuple[int, int]:
    """Return the sum of (significand, last, exponent) in units of 2^(largest exponent - fraction)."""
    unit = max(exponent for *_, exponent in terms) - fraction
    return sum(shifted(significand, last - unit) for significand, last, _ in terms), unit


def rounded(total: int, unit: int, result: str) -> int:
    """Return the bits of total · 2^unit: f32 truncated, f16 to nearest even; an exact or lost zero is +0."""
    bits, mantissa, bias, _ = FLOATS[result]
    size = abs(total)
    if size == 0:
        return 0
    exponent = max(size.bit_length() - 1 + unit, 1 - bias)
    last = exponent - mantissa
    places = last - unit
    kept = shifted(size, -places)
    if result == "f16" and places > 0:
        rest, half = size - (kept << places), 1 << (places - 1)
        kept += rest > half or (rest == half and kept & 1)
    if kept >> (mantissa + 1):
        kept, exponent = kept >> 1, exponent + 1
    if exponent > bias:
        kept, exponent = 1 << mantissa, bias + 1  # infinity
    if kept == 0:
        return 0
    field = exponent + bias if kept >> mantissa else 0
    sign = (total < 0) << (bits + mantissa)
    return sign | field << mantissa | kept & ((1 << mantissa) - 1)


def special_sum(factors: Sequence[Sequence[Number]], c: Number, result: str) -> int | None:
    """Return the bits of a sum with infinities or NaN in it, None if there are none."""
    signs = set()
    for term in [*factors, (c,)]:
        kinds = {each.special for each in term} - {""}
        if not kinds:
            continue
        zero = any(each.significand == 0 and not each.special for each in term)
        if "nan" in kinds or zero:
            return NAN[result]
        sign = 1
        for each in term:
            sign = -sign if each.significand < 0 else sign
        signs.add(sign)
    if not signs:
        return None
    if len(signs) == 2:
        return NAN[result]
    _, mantissa, bias, _ = FLOATS[result]
    infinity = (2 * bias + 1) << mantissa
    return infinity if signs == {1} else infinity | 1 << (31 if result == "f32" else 15)


def fused(
    pairs: Sequence[tuple[Number, Number]],
    c: Number,
    result: str,
    scales: Sequence[tuple[Number, Number]] = (),
    grouped: bool = False,
) -> int:
    """Return D's bits for the products of one instruction: terms aligned, truncated, added, rounded once.

    `grouped` is the rule of block-scaled fp4: sums of 16 products are exact, and their scales say the
    exponents; 35 fraction bits instead of 25.
    """
    each_scale = [scales[at * len(scales) // len(pairs)] if scales else () for at in range(len(pairs))]
    known = special_sum([(*pair, *scale) for pair, scale in zip(pairs, each_scale, strict=True)], c, result)
    if known is not None:
        return known
    zero = -139 if grouped else -21 if result == "f16" else -133
    terms = [(c.significand, c.last, c.exponent if c.significand else zero)]
    step = 16 if grouped else 1
    for start in range(0, len(pairs), step):
        products = [(a.significand * b.significand, a.last + b.last) for a, b in pairs[start : start + step]]
        least = min(last for _, last in products)
        total = sum(significand << (last - least) for significand, last in products)
        exponent = 0 if grouped else sum(each.exponent for each in pairs[start])
        scale = each_scale[start]
        for factor in scale:
            total, least, exponent = (
                total * factor.significand,
                least + factor.last,
                exponent + factor.exponent,
            )
        lost = all(significand == 0 for significand, _ in products) or any(not s.significand for s in scale)
        terms.append((total, least, zero if lost else exponent))
    return rounded(*truncated_sum(terms, 35 if grouped else 25), result)
