"""A block of the truncated fused sum in f64: the method for any bits, scale factors and groups.

Every step is exact in f64 until the one rounding. Infinities and NaNs are tracked separately, by signs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lanewise.arith.decoding import (
    ABSENT,
    classify,
    exponent_field,
    finite_part,
    is_special,
    is_zero,
    power_of_two,
    with_one_nan,
)
from lanewise.arith.fused_tiles import Block, Plan
from lanewise.jit.simd import Code, Pointer, Value, f32, f64, i32, i64, u32, u64

#: An exponent below all others.
NONE = -(1 << 16)
#: Exponents that mark scale factors: NaN, and zero (two of which still make a power of two in f64).
NAN_SCALE, ZERO_SCALE = 1 << 20, -500


@dataclass(frozen=True)
class ScaleFactors:
    """Scale factors as exponents (i32) and significands (f32): A's [row][step], B's [step][column].

    `steps` counts A's scale factors of a whole row, `columns` B's columns.
    """

    a_exponents: Pointer
    a_significands: Pointer
    b_exponents: Pointer
    b_significands: Pointer
    steps: Value
    columns: Value


@dataclass(frozen=True)
class Scale:
    """The product of two scale factors: its exponent, its significand, and NaN or 0."""

    exponent: Value
    significand: Value
    nan: Value


def wide_row(code: Code, plan: Plan, work: Block, row: Value, factors: ScaleFactors | None) -> None:
    """Write one row of a block, vector by vector."""
    with code.loop(plan.strip // plan.lanes) as vector:
        wide_vector(code, plan, work, row, vector * plan.lanes, factors)


def wide_vector(
    code: Code, plan: Plan, work: Block, row: Value, column: Value, factors: ScaleFactors | None
) -> None:
    """Write one vector of a row: find e_max and the specials; then align, truncate, sum, round."""
    lanes, scheme = plan.lanes, plan.scheme
    groups = plan.length // plan.group
    zeros = code.constant(f32.by(lanes), 0.0)
    c = zeros if work.before is None else work.before.load(row, column, lanes)
    special = code.variable(is_special(c).select(c, zeros))
    e_max = code.variable(exponent_or(finite_part(c), plan.sum_emin, NONE).max(scheme.e_zero))
    with code.loop(groups) as group:
        largest = code.variable(code.constant(i32.by(lanes), NONE))
        with code.loop(group * plan.group + plan.group, group * plan.group) as k:
            a, b = factors_at(plan, work, row, column, k)
            with present(code, plan, a):
                special.set(special.get() + classify(a).spread(lanes) * classify(b))
                largest.set(largest.get().max(product_exponent(plan, a, b)))
        exponent = largest.get()
        if factors is not None:
            scale = scale_at(code, plan, work, row, column, group, factors)
            exponent = exponent + scale.exponent
            special.set(special.get() + scale.nan)
        e_max.set(e_max.get().max(exponent))
    top = e_max.get().to(i64)
    steps = power_of_two(1023 + scheme.fraction - top)
    total = code.variable(truncate(code, finite_part(c).to(f64) * steps))
    with code.loop(groups) as group:
        exact = code.variable(code.constant(f64.by(lanes), 0.0))
        with code.loop(group * plan.group + plan.group, group * plan.group) as k:
            a, b = factors_at(plan, work, row, column, k)
            product = finite_part(a).to(f64).spread(lanes) * finite_part(b).to(f64)
            exact.set(exact.get() + product)
        value = exact.get()
        if factors is not None:
            scale = scale_at(code, plan, work, row, column, group, factors)
            value = value * scale.significand * power_of_two(scale.exponent.to(i64) + 1023)
        total.set(total.get() + truncate(code, value * steps))
    result = rounded(code, plan, total.get() * power_of_two(top + (1023 - scheme.fraction)))
    extra = special.get()
    work.after.store(with_one_nan(is_special(extra).select(extra, result)), row, column)


def factors_at(plan: Plan, work: Block, row: Value, column: Value, k: Value) -> tuple[Value, Value]:
    """Return A's element and B's vector at one k of the block."""
    a = work.a.values.load(work.row_offset(row, plan.length) + k)
    return a, work.b_values.load(k * plan.strip + column, plan.lanes)


@contextmanager
def present(code: Code, plan: Plan, a: Value) -> Iterator[None]:
    """Run the body for selected elements: what a sparse A has not selected meets no infinity of B."""
    if not plan.model.sparse:
        yield
        return
    with code.when(a.view(u32).differs(ABSENT)):
        yield


def exponent_or(number: Value, emin: int, otherwise: int) -> Value:
    """Return the exponent of finite numbers; zeros get another one."""
    exponent = (exponent_field(number) - 127).max(emin)
    return is_zero(number).select(number.code.constant(exponent.type, otherwise), exponent)


def product_exponent(plan: Plan, a: Value, b: Value) -> Value:
    """Return the exponent that a product is aligned by; 0 in a group, where only scales count."""

    def of(number: Value, emin: int) -> Value:
        exponent = exponent_or(finite_part(number), emin, NONE)
        if plan.scheme.group > 1:
            exponent = exponent.equals(NONE).select(exponent, 0)
        return exponent

    return of(a, plan.model.emin("a")).spread(plan.lanes) + of(b, plan.model.emin("b"))


def scale_at(
    code: Code, plan: Plan, work: Block, row: Value, column: Value, group: Value, factors: ScaleFactors
) -> Scale:
    """Return the scale of a group of products."""
    per_scale = plan.length // plan.group // plan.model.scale_vec
    step = work.number * plan.model.scale_vec + (
        group if per_scale == 1 else group >> per_scale.bit_length() - 1
    )
    a_offset = row * factors.steps + step
    b_offset = step * factors.columns + work.first_column + column
    e_a = factors.a_exponents.load(a_offset)
    e_b = factors.b_exponents.load(b_offset, plan.lanes)
    nan = e_b.equals(NAN_SCALE) | e_a.equals(NAN_SCALE).spread(plan.lanes)
    significand = factors.a_significands.load(a_offset).to(f64).spread(plan.lanes)
    significand = significand * factors.b_significands.load(b_offset, plan.lanes).to(f64)
    zeros = code.constant(f32.by(plan.lanes), 0.0)
    not_a_number = code.constant(f32.by(plan.lanes), float("nan"))
    return Scale(e_a.spread(plan.lanes) + e_b, significand, nan.select(not_a_number, zeros))


def truncate(code: Code, number: Value) -> Value:
    """Return numbers truncated toward zero to integers, kept in f64."""
    return code.intrinsic("trunc", number.type, [number])


def rounded(code: Code, plan: Plan, total: Value) -> Value:
    """Return exact f64 sums rounded once, as f32."""
    sign = (total.view(u64) >> 32).to(u32) & 0x80000000
    bits = total.view(u64) & 0x7FFFFFFFFFFFFFFF
    magnitude = bits.view(f64)
    if plan.half:
        # Adding a power of two rounds at its last digit.
        field = bits & 0x7FF0000000000000
        anchor = (field.max((1023 + plan.sum_emin) << 52) + (42 << 52)).view(f64)
        nearest = (magnitude + anchor) - anchor
        infinity = code.constant(total.type, float("inf"))
        result = (nearest >= 65536.0).select(infinity, nearest).to(f32).view(u32)
    else:
        number = magnitude.to(f32)  # to nearest; one step back where that was away from zero
        above = (number.to(f64) > magnitude) & (magnitude < 2.0**128)
        result = number.view(u32) + above.mask(number.view(u32).type)
        if plan.scheme.rounding == "RZ-E8M13":
            result = result & ~0x3FF
    signed = (result | sign).view(f32)
    if plan.scheme.underflow == "signed":
        return bits.equals(0).select(code.constant(signed.type, 0.0), signed)
    return signed + 0.0
