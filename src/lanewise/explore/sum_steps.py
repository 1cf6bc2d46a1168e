"""A matrix product's sum step by step: how each term is aligned, what is cut off, how the total is rounded.

It follows the models on exact fractions, as `arith/reference.py` does and with its functions, and keeps what
happens on the way. The last step gives the bits that the engines give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from lanewise.arith.models import FmaChain, FusedSum, IntegerSum, Model, PopcountSum
from lanewise.arith.reference import (
    add,
    bits_of,
    exponent,
    exponent_of,
    fma_chain,
    fused_multiply_add,
    integer_sum,
    nearest,
    round_sum,
    scaled_term,
)
from lanewise.formats import Format, f16, f32, f64

Number = float | Fraction
#: The most binary digits that are written of what is cut off a number.
MOST_CUT = 48
ROUNDINGS = {
    "RZ-FP32": "toward zero, to the 24 significant bits of f32",
    "RZ-E8M13": "toward zero, to 14 significant bits in f32's range",
    "RNE-FP16": "to the nearest f16, ties to even",
}
_MODES = {"rn": "to nearest, ties to even", "rz": "toward zero", "rm": "down", "rp": "up"}


@dataclass(frozen=True)
class Row:
    """A number that takes part in a step: a product, C or the sum so far."""

    label: str
    value: Number
    #: The exponent that it counts with when terms are aligned; None where nothing is aligned.
    exponent: int | None = None
    #: What it is made from, such as "1.5 × 2".
    detail: str = ""


@dataclass(frozen=True)
class SumStep:
    """One step: the numbers that are added, the last bit that each keeps, the sum and its rounding."""

    title: str
    rows: tuple[Row, ...]
    #: The exponent of the last bit that terms keep; None if they are added exactly.
    unit: int | None
    total: Number
    rounding: str
    result: Number
    #: How many products have been added after this step; None where they do not come in ascending order.
    products: int | None
    #: The largest exponent, by which terms are aligned.
    largest: int | None = None


@dataclass
class ExplainedSum:
    """All steps of one element of D, and its raw bits."""

    steps: list[SumStep] = field(default_factory=list)
    bits: int = 0


@dataclass(frozen=True)
class AlignedBits:
    """A number's magnitude as binary digits: those at or above the last kept position, and those below."""

    negative: bool
    kept: str
    cut: str


def aligned_bits(value: Fraction, top: int, unit: int) -> AlignedBits:
    """Return the binary digits of a number from 2^top to 2^unit, and what lies below that.

    >>> aligned_bits(Fraction(-11, 8), 1, -1)
    AlignedBits(negative=True, kept='010', cut='11')
    """
    magnitude = abs(value)
    steps, rest = divmod(magnitude, Fraction(2) ** unit)
    rest /= Fraction(2) ** unit
    cut = ""
    while rest and len(cut) < MOST_CUT:
        rest *= 2
        digit = int(rest)
        cut += str(digit)
        rest -= digit
    return AlignedBits(
        value < 0, format(int(steps), "b").rjust(max(top - unit + 1, 1), "0"), cut + ("…" if rest else "")
    )


def explain_sum(
    model: Model,
    pairs: Sequence[tuple[Any, Any]],
    c: Any,
    scales: Sequence[tuple[float, float]] | None = None,
) -> ExplainedSum:
    """Return the steps by which one instruction computes an element of D from pairs of A and B, and C.

    >>> from lanewise.arith.models import model_of
    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    >>> sum = explain_sum(model_of(mma, "sm_80"), [(0.5, 3.0)] * 8, 1.0)
    >>> len(sum.steps), sum.steps[0].result, hex(sum.bits)
    (1, 13.0, '0x41500000')
    """
    match model.scheme:
        case FusedSum():
            return _fused(model, model.scheme, pairs, c, scales)
        case FmaChain():
            return _chain(model, model.scheme, pairs, c)
        case IntegerSum():
            return _integers(model, pairs, c)
        case PopcountSum():
            return _counted(model, pairs, c)


def explain_product(
    model: Model, pairs: Sequence[tuple[object, object]], c: object, decode: Any
) -> ExplainedSum:
    """Return the steps of a product that is longer than one instruction: each one's D is the next one's C.

    What does not fill an instruction is zeros. `decode` turns the bits of D into the number that C is then.
    """
    zero = 0 if model.a.kind != "float" else 0.0
    whole, start = ExplainedSum(), c
    for first in range(0, max(len(pairs), 1), model.k):
        part = list(pairs[first : first + model.k])
        count = len(part)
        partial = explain_sum(model, part + [(zero, zero)] * (model.k - count), start)
        for step in partial.steps:
            products = None if step.products is None else first + min(step.products, count)
            whole.steps.append(_moved(step, first, count, products))
        whole.bits = partial.bits
        start = decode(partial.bits)
    return whole


def _moved(step: SumStep, first: int, count: int, products: int | None) -> SumStep:
    """Return the step with the products' numbers in the whole sum, and without the zeros that fill it."""
    rows = tuple(
        replace(row, label=_renumbered(row.label, first)) for row in step.rows if _number(row.label) < count
    )
    title = f"the next instruction: {step.title}" if first else step.title
    return replace(step, title=title, rows=rows, products=products)


def _number(label: str) -> int:
    """Return the number of a product by its label; -1 of everything else."""
    return int(label[2 : label.index("]")]) if label.startswith("a[") else -1


def _renumbered(label: str, first: int) -> str:
    return _product(_number(label) + first) if label.startswith("a[") else label


def _product(k: int) -> str:
    return f"a[{k}]·b[{k}]"


# The truncated fused sum ------------------------------------------------------------------------------------


def _fused(
    model: Model,
    scheme: FusedSum,
    pairs: Sequence[tuple[float, float]],
    c: float,
    scales: Sequence[tuple[float, float]] | None,
) -> ExplainedSum:
    order = list(range(len(pairs)))
    if scheme.k_order == "halves of four":
        order.sort(key=lambda k: (k % 4 // 2, k))
    accumulator = f16 if scheme.rounding == "RNE-FP16" else f32
    explained = ExplainedSum()
    first = scheme.c_enters == "first"
    total, label = (c, "C") if first else (0.0, "0")
    ascending = scheme.k_order == "ascending" and first
    for start in range(0, len(order), model.block):
        numbers = order[start : start + model.block]
        step = _fused_block(model, scheme, pairs, numbers, Row(label, total), accumulator, scales)
        done = start + len(numbers) if ascending else None
        explained.steps.append(replace(step, products=done))
        total, label = float(step.result), "sum so far"
    if not first:
        exact = add(total, c)
        rows = (Row("sum so far", total), Row("C", c))
        result = nearest(exact, accumulator)
        explained.steps.append(
            SumStep("C is added", rows, None, exact, f"to the nearest {accumulator}", result, None)
        )
        total = result
    return _narrowed(model, explained, total, accumulator)


def _fused_block(
    model: Model,
    scheme: FusedSum,
    pairs: Sequence[tuple[float, float]],
    numbers: Sequence[int],
    carried: Row,
    accumulator: Format,
    scales: Sequence[tuple[float, float]] | None,
) -> SumStep:
    rows = []
    for start in range(0, len(numbers), scheme.group):
        group = numbers[start : start + scheme.group]
        alpha, beta = (1.0, 1.0) if scales is None else scales[start * len(scales) // len(numbers)]
        value, e = scaled_term(model, scheme, [pairs[k] for k in group], alpha, beta)
        label = _product(group[0]) if len(group) == 1 else f"products {group[0]} to {group[-1]}"
        detail = " + ".join(f"{shown(pairs[k][0])} × {shown(pairs[k][1])}" for k in group)
        if scales is not None:
            detail = f"({detail}) × {shown(alpha)} × {shown(beta)}"
        rows.append(Row(label, value, e, detail))
    c = float(carried.value)
    title = f"products {min(numbers)} to {max(numbers)} and {carried.label}"
    if scheme.k_order != "ascending":
        title = f"{len(numbers)} products from {min(numbers)} on, and {carried.label}"
    rounding = ROUNDINGS[scheme.rounding]
    infinite = [row.value for row in (*rows, carried) if not _finite(row.value)]
    if infinite:
        special = sum((float(number) for number in infinite), 0.0)
        everything = (*rows, Row(carried.label, c))
        return SumStep(title, everything, None, special, "an infinity or NaN decides", special, None)
    e_c = scheme.e_zero if c == 0 else exponent(c, accumulator.emin)
    everything = (*rows, Row(carried.label, c, e_c))
    largest = max(term.exponent for term in everything if term.exponent is not None)
    unit = Fraction(2) ** (largest - scheme.fraction)
    total = sum(int(Fraction(term.value) / unit) for term in everything) * unit
    result = round_sum(total, scheme)
    return SumStep(title, everything, largest - scheme.fraction, total, rounding, result, None, largest)


def _narrowed(model: Model, explained: ExplainedSum, total: float, held: Format) -> ExplainedSum:
    """Add the step by which the sum becomes D, if D is narrower than what carried the sum."""
    result = nearest(total, model.d)
    if model.d.name != held.name:
        rows = (Row("sum", total),)
        explained.steps.append(
            SumStep(
                f"the sum becomes {model.d}", rows, None, total, f"to the nearest {model.d}", result, None
            )
        )
    explained.bits = bits_of(result, model.d)
    return explained


# Chains of fused multiply-adds ------------------------------------------------------------------------------


def _chain(model: Model, scheme: FmaChain, pairs: Sequence[tuple[float, float]], c: float) -> ExplainedSum:
    fmt = f64 if scheme.format == "f64" else f32
    explained, total, label = ExplainedSum(), c, "C"
    group = scheme.group or len(pairs)
    rounding = f"{_MODES[model.rounding]}, to {fmt}"
    for start in range(0, len(pairs), group):
        chain, held = (float(scheme.zero), scheme.zero) if scheme.group else (total, label)
        for k, (x, y) in enumerate(pairs[start : start + group], start):
            exact = _exact(x, y, chain)
            result = fused_multiply_add(x, y, chain, fmt, model.rounding)
            product = Row(_product(k), _times(x, y), detail=f"{shown(x)} × {shown(y)}")
            done = None if scheme.group else k + 1
            title = f"fused multiply-add {k}"
            explained.steps.append(
                SumStep(title, (product, Row(held, chain)), None, exact, rounding, result, done)
            )
            chain, held = result, "sum so far"
        if scheme.group:
            exact = add(total, chain)
            rows, total = (Row(label, total), Row("these products", chain)), nearest(exact, fmt)
            done = min(start + group, len(pairs))
            explained.steps.append(
                SumStep(f"added to {label}", rows, None, exact, f"to the nearest {fmt}", total, done)
            )
        else:
            total = chain
        label = "sum so far"
    if model.d.name != fmt.name:
        _narrowed(model, explained, total, fmt)
    explained.bits = fma_chain(model, scheme, pairs, c)
    return explained


def _times(x: float, y: float) -> Number:
    return Fraction(x) * Fraction(y) if math.isfinite(x) and math.isfinite(y) else x * y


def _exact(x: float, y: float, z: float) -> Number:
    if all(math.isfinite(number) for number in (x, y, z)):
        return Fraction(x) * Fraction(y) + Fraction(z)
    return x * y + z


# Integers ---------------------------------------------------------------------------------------------------


def _integers(model: Model, pairs: Sequence[tuple[int, int]], c: int) -> ExplainedSum:
    rows = tuple(
        Row(_product(k), Fraction(int(x) * int(y)), detail=f"{int(x)} × {int(y)}")
        for k, (x, y) in enumerate(pairs)
    )
    total = Fraction(int(c)) + sum(row.value for row in rows)
    bits = integer_sum(model, pairs, c)
    result = Fraction(bits - ((bits >> 31) << 32))
    rounding = "clamped to 32 bits" if model.satfinite else "exact, wrapped to 32 bits"
    title = f"products 0 to {len(pairs) - 1} and C"
    step = SumStep(title, (*rows, Row("C", Fraction(int(c)))), 0, total, rounding, result, len(pairs))
    return ExplainedSum([step], bits)


def _counted(model: Model, pairs: Sequence[tuple[int, int]], c: int) -> ExplainedSum:
    hits = [int((x != y) if model.bitop == "xor" else bool(x and y)) for x, y in pairs]
    rows = (
        Row(f"ones in a {model.bitop} b", Fraction(sum(hits)), detail="".join(map(str, hits))),
        Row("C", Fraction(int(c))),
    )
    total = Fraction(int(c) + sum(hits))
    bits = int(total) % (1 << 32)
    result = Fraction(bits - ((bits >> 31) << 32))
    step = SumStep("bits counted", rows, 0, total, "exact, wrapped to 32 bits", result, len(pairs))
    return ExplainedSum([step], bits)


# Numbers as text --------------------------------------------------------------------------------------------


def _finite(value: Number) -> bool:
    return isinstance(value, Fraction) or math.isfinite(value)


def shown(value: Any) -> str:
    """Return a number as short text: decimal digits that give it back, without an exponent if they are few.

    >>> shown(0.5), shown(Fraction(3)), shown(1e-30), shown(Fraction(1, 1 << 149))
    ('0.5', '3', '1e-30', '1.401298464324817e-45')
    """
    if isinstance(value, Fraction):
        if value.denominator == 1 and abs(value) < 1 << 63:
            return str(value.numerator)
        return repr(_as_float(value)).removesuffix(".0")
    if isinstance(value, int):
        return str(value)
    return repr(float(value)).removesuffix(".0")


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def exact_text(value: Fraction) -> str:
    """Return a binary fraction exactly: an odd integer times a power of two.

    >>> exact_text(Fraction(3, 8)), exact_text(Fraction(-20)), exact_text(Fraction(0))
    ('3 × 2^-3', '-5 × 2^2', '0')
    """
    if not value:
        return "0"
    numerator, power = value.numerator, -(value.denominator.bit_length() - 1)
    while numerator % 2 == 0:
        numerator //= 2
        power += 1
    return f"{numerator} × 2^{power}" if power else str(numerator)


def top_exponent(values: Sequence[Number], least: int) -> int:
    """Return the exponent of the highest bit that any of some numbers has, and `least` at least."""
    finite = [Fraction(value) for value in values if _finite(value) and value]
    return max([least, *(exponent_of(number, -(1 << 20)) for number in finite)])
