"""A block of the truncated fused sum in f32 and int32: the fast method, for numbers of ordinary size.

A product of two short significands is exact in f32, so is its scaling by a power of two, and conversion to
int32 truncates toward zero: that is the alignment rule. What does not fit goes through `fused_wide.py`.
"""

from functools import reduce

from lanewise.arith.decoding import exponent_field, is_zero, power_of_two
from lanewise.arith.fused_tiles import Block, Plan
from lanewise.formats import Format
from lanewise.jit.simd import Code, Value, f32, i8, i32, u8, u32

#: Exponents of factors that fit: products stay normal in f32, and their exponents above ZERO + HIGHEST.
LOWEST, HIGHEST = -40, 47
#: The exponent that stands for a zero factor, and for a block whose products are all zero.
ZERO = -128
#: A floor for e_max, below every product's exponent and above what a scale in f32 can undo.
FLOOR = -100
#: The bias of f32.
BIAS = 127


def exponents(number: Value, fmt: Format, emin: int) -> tuple[Value, Value]:
    """Return the exponents of f32 numbers as int8, and whether any lane does not fit the narrow method."""
    field = exponent_field(number)
    # Subnormals are not normalised: as f32 they may have been, so no exponent is below emin.
    exponent = (field - BIAS).max(emin)
    zero = is_zero(number)
    if fmt.exponent_bits == 8:
        unfit = ((exponent < LOWEST) | (exponent > HIGHEST)) & (zero ^ True)
    else:
        unfit = field.equals(255)
    marked = zero.select(number.code.constant(exponent.type, ZERO), exponent)
    return marked.to(i8), unfit.any()


def narrow_block(code: Code, plan: Plan, work: Block) -> None:
    """Write a block for all rows that fit, in short passes, so that many vectors are in flight."""
    find_scales(code, plan, work)
    for column in range(0, plan.strip, plan.lanes):
        add_products(code, plan, work, column)
    round_sums(code, plan, work)


def fits(work: Block, row: Value) -> Value:
    """Return whether a row can use the narrow method."""
    return work.room.unfit.load(row).equals(0)


def find_scales(code: Code, plan: Plan, work: Block) -> None:
    """Write the scales 2^(fraction - e_max), which make kept digits integers; flag rows that do not fit."""
    b = [work.b_exponents.load(k * plan.strip, plan.strip) for k in range(plan.length)]
    # e_zero counts in f16 sums only: in f32 ones every product that fits is far above it.
    floor = BIAS + (max(plan.scheme.e_zero, FLOOR) if plan.half else FLOOR)
    with code.loop(work.rows) as row:
        flag = work.a.flags.load(row * work.a.blocks + work.number)
        unfit = None
        offset = work.row_offset(row, plan.length)
        sums = [work.a.exponents.load(offset + k).saturating_add(b[k]) for k in range(plan.length)]
        tops = reduce(Value.max, sums).to(i32)
        for column in range(0, plan.strip, plan.lanes):
            e_max = (tops.part(column, plan.lanes) + BIAS).max(floor)
            if work.before is not None:
                c = work.before.load(row, column, plan.lanes)
                field = exponent_field(c)
                if plan.half:
                    outside = field.equals(255)
                else:  # also numbers so small that the floor would change the result
                    outside = ((field - floor).view(u32) >= 255 - floor) & (is_zero(c) ^ True)
                unfit = outside if unfit is None else unfit | outside
                if plan.half:
                    field = field.max(BIAS + plan.sum_emin) & field.differs(0).mask(field.type)
                e_max = e_max.max(field)
            scale = power_of_two(2 * BIAS + plan.scheme.fraction - e_max)
            work.room.scales.store(scale, row * plan.strip + column)
        if unfit is not None:
            flag = flag | unfit.any().to(u8)
        work.room.unfit.store(flag, row)


def add_products(code: Code, plan: Plan, work: Block, column: int) -> None:
    """Write the sum of truncated terms for one vector of columns and all rows that fit.

    B stays in registers.
    """
    b = [work.b_values.load(k * plan.strip + column, plan.lanes) for k in range(plan.length)]
    with code.loop(work.rows) as row, code.when(fits(work, row)):
        scale = work.room.scales.load(row * plan.strip + column, plan.lanes)
        terms = []
        if work.before is not None:
            terms.append((work.before.load(row, column, plan.lanes) * scale).to(i32))
        offset = work.row_offset(row, plan.length)
        if plan.element_loads:
            a = [work.a.values.load(offset + k) for k in range(plan.length)]
        else:
            elements = work.a.values.load(offset, plan.length)
            a = [elements.lane(k) for k in range(plan.length)]
        terms += [(a[k].spread(plan.lanes) * b[k] * scale).to(i32) for k in range(plan.length)]
        half = len(terms) // 2 if in_halves(plan) else len(terms)
        work.room.sums.store(total_of(terms[:half]), row * plan.strip + column)
        if half < len(terms):
            work.room.more_sums.store(total_of(terms[half:]), row * plan.strip + column)


def in_halves(plan: Plan) -> bool:
    """Return whether a sum can exceed int32, so that it is kept in two halves."""
    return plan.bound >= (1 << 31) - (1 << 8)


def round_sums(code: Code, plan: Plan, work: Block) -> None:
    """Write the rounding of a block's sums, and store them as its results."""
    with code.loop(work.rows) as row, code.when(fits(work, row)):
        for column in range(0, plan.strip, plan.lanes):
            offset = row * plan.strip + column
            scale = work.room.scales.load(offset, plan.lanes)
            unit = ((2 * BIAS) << 23) - scale.view(i32)
            work.after.store(rounded_sum(plan, work, offset, unit.view(f32)), row, column)


def rounded_sum(plan: Plan, work: Block, offset: Value, unit: Value) -> Value:
    """Return an exact sum of int32, rounded once, times the unit."""
    total = work.room.sums.load(offset, plan.lanes)
    if plan.bound < 1 << 24:  # exact in f32
        bits = (total.to(f32) * unit).view(u32)
        if plan.half:
            return nearest_half(plan, (bits & 0x7FFFFFFF).view(f32), bits & 0x80000000)
        return ((bits & ~0x3FF) if plan.scheme.rounding == "RZ-E8M13" else bits).view(f32) + 0.0
    # The whole sum fits uint32 with room to be rounded up, and one more than half of its terms fit int32.
    assert plan.scheme.rounding != "RZ-E8M13" and plan.bound < (1 << 32) - (1 << 9)
    assert plan.bound * (plan.model.block // 2 + 1) / plan.model.block < 1 << 31
    if in_halves(plan):
        # The sign of the whole sum is known even where it wraps around; its magnitude fits uint32.
        first, second = total, work.room.more_sums.load(offset, plan.lanes)
        total = first + second
        negative = (total ^ ((first ^ total) & (second ^ total))) >> 31
        magnitude = ((total ^ negative) - negative).view(u32)
    else:
        negative = total >> 31
        magnitude = (total ^ negative) - negative
    number = magnitude.to(f32)  # to nearest; one step back where that was away from zero
    back = number.to(magnitude.type)
    bits = number.view(i32) + (back > magnitude).mask(negative.type)
    sign = negative & -0x80000000
    if plan.half:
        # Truncated with a sticky last bit, a second rounding to fewer bits is correct.
        sticky = back.differs(magnitude).mask(bits.type) & 1
        return nearest_half(plan, (bits | sticky).view(f32) * unit, sign.view(u32))
    return ((bits.view(f32) * unit).view(i32) | sign).view(f32)


def nearest_half(plan: Plan, magnitude: Value, sign: Value) -> Value:
    """Return magnitudes rounded to f16, kept as f32: adding a power of two rounds at its last digit."""
    field = magnitude.view(u32) & 0x7F800000
    anchor = (field.max((BIAS + plan.sum_emin) << 23) + (13 << 23)).view(f32)
    rounded = (magnitude + anchor) - anchor
    rounded = (rounded >= 65536.0).select(rounded.code.constant(rounded.type, float("inf")), rounded)
    signed = (rounded.view(u32) | sign).view(f32)
    return signed if plan.scheme.underflow == "signed" else signed + 0.0


def total_of(terms: list[Value]) -> Value:
    """Return the sum of integer vectors."""
    return reduce(Value.__add__, terms)
