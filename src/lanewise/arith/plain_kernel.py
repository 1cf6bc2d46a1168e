"""Compiled loops for the schemes that need no alignment: fused multiply-adds, integers, population counts.

All have one shape: chunks of K, each summed up from a start and joined to the total.
"""

from dataclasses import dataclass

from lanewise.arith.models import NAN_BITS, FmaChain, IntegerSum, Model, PopcountSum
from lanewise.jit import ir
from lanewise.jit.float_mode import write_entry_point
from lanewise.jit.simd import Code, Type, Value, f32, f64, i16, i32, i64, u32, u64

#: The arguments of `items`. Items are products: A [row][k], B [strip][k][column], sums [row][column].
#: `chunks` times `chunk` is K.
ITEMS = (
    "a", "a_offsets", "b", "b_offsets", "sum", "sum_offsets", "first_item", "last_item", "rows", "strips",
    "chunks", "chunk",
)  # fmt: skip

#: Rows of A done together, so that a vector of B is loaded once for all of them.
ROWS_TOGETHER = 4


#: The bit that tells a quiet f64 NaN from a signalling one.
QUIET = 1 << 51


def _is_nan(number: Value) -> Value:
    """Return where f64 numbers are NaN."""
    return (number.view(u64) << 1) > 0xFFE0000000000000


@dataclass(frozen=True)
class FmaStep:
    """Sums by fused multiply-adds, from the total or in groups from zero.

    `passes_nans` (f64 only): a NaN is that of B, of the sum or of A, made quiet, never the processor's own.
    """

    element: Type
    sum: Type
    group: int
    unrolled: int
    zero: float = 0.0
    passes_nans: bool = False

    def start(self, total: Value) -> Value:
        """Return what a chunk begins with: the total, or zero for groups."""
        return total.code.constant(total.type, self.zero) if self.group else total

    def add(self, partial: Value, a: Value, b: Value) -> Value:
        """Return the partial sum with one product more, rounded once."""
        a = a.spread(partial.type.lanes)
        result = partial.code.intrinsic("fma", partial.type, [a, b, partial])
        if not self.passes_nans:
            return result
        bits = partial.code.constant(u64.by(partial.type.lanes), NAN_BITS["f64"])
        for operand in (a, partial, b):  # the last that is a NaN stays
            bits = _is_nan(operand).select(operand.view(u64) | QUIET, bits)
        return _is_nan(result).select(bits, result.view(u64)).view(f64)

    def join(self, total: Value, partial: Value) -> Value:
        """Return the total with a chunk's sum added."""
        return total + partial if self.group else partial


@dataclass(frozen=True)
class IntegerStep:
    """Sums products of int16 in int32; the total wraps, or clamps when a chunk joins it."""

    saturate: bool
    element: Type = i16
    sum: Type = i32
    unrolled: int = 8

    def start(self, total: Value) -> Value:
        """Return zero, with which every chunk begins."""
        return total.code.constant(total.type, 0)

    def add(self, partial: Value, a: Value, b: Value) -> Value:
        """Return the partial sum with one product more."""
        return partial + a.spread(partial.type.lanes).to(i32) * b.to(i32)

    def join(self, total: Value, partial: Value) -> Value:
        """Return the total with a chunk's sum added, clamped if asked for."""
        return total.saturating_add(partial) if self.saturate else total + partial


@dataclass(frozen=True)
class PopcountStep:
    """Sums the ones in the xor or the and of 32-bit words."""

    bitop: str
    element: Type = u32
    sum: Type = i32
    unrolled: int = 4

    def start(self, total: Value) -> Value:
        """Return the total, with which every chunk goes on."""
        return total

    def add(self, partial: Value, a: Value, b: Value) -> Value:
        """Return the partial sum with the ones of one word more."""
        both = b ^ a if self.bitop == "xor" else b & a
        return partial + partial.code.intrinsic("ctpop", both.type, [both]).view(i32)

    def join(self, total: Value, partial: Value) -> Value:
        """Return the chunk's sum, which has the total in it."""
        return partial


#: How a scheme sums: the types of elements and sums, how many steps of K are unrolled (a divisor of every
#: chunk), what a chunk begins with, how a product is added, and how a chunk joins the total.
Step = FmaStep | IntegerStep | PopcountStep


def step_of(model: Model, passes_nans: bool = False) -> Step:
    """Return the step of a model's scheme."""
    match model.scheme:
        case FmaChain(format="f64"):
            return FmaStep(f64, f64, 0, 4, passes_nans=passes_nans)
        case FmaChain(group=group, zero=zero):
            return FmaStep(f32, f32, group, group, float(zero))
        case IntegerSum():
            return IntegerStep(model.satfinite)
        case PopcountSum():
            return PopcountStep(model.bitop)
    raise AssertionError(model.scheme)


@dataclass(frozen=True)
class Cut:
    """How columns are divided: vectors of `lanes` sums, strips of `strip` columns."""

    lanes: int
    strip: int


def write_module(model: Model, cut: Cut, passes_nans: bool = False) -> str:
    """Return the LLVM IR of `items`."""
    module = ir.Module("plain")
    step = step_of(model, passes_nans)
    write_entry_point(write_items(module, step, cut), "items", model.rounding)
    return str(module)


def write_items(module: ir.Module, step: Step, cut: Cut) -> Code:
    """Write `items`: products strip by strip, four rows at a time, then the rows that are left."""
    code = Code(module, "inner_items", ITEMS)
    rows = code["rows"]
    together = rows >> (ROWS_TOGETHER.bit_length() - 1)
    with code.loop(code["last_item"], code["first_item"]) as item, code.loop(code["strips"]) as strip:
        with code.loop(together) as block:
            write_rows(code, step, cut, item, strip, block * ROWS_TOGETHER, ROWS_TOGETHER)
        with code.loop(rows, together * ROWS_TOGETHER) as row:
            write_rows(code, step, cut, item, strip, row, 1)
    code.end()
    return code


def write_rows(code: Code, step: Step, cut: Cut, item: Value, strip: Value, row: Value, count: int) -> None:
    """Write a strip of some neighbouring rows of one item."""
    chunk, k_total = code["chunk"], code["chunks"] * code["chunk"]
    a = code.pointer("a", step.element).moved(code.pointer("a_offsets", i64).load(item))
    b = code.pointer("b", step.element).moved(code.pointer("b_offsets", i64).load(item))
    b = b + strip * k_total * cut.strip
    sums = code.pointer("sum", step.sum).moved(code.pointer("sum_offsets", i64).load(item))
    sums = sums + (row * code["strips"] + strip) * cut.strip
    tiles = [(r, column) for r in range(count) for column in range(0, cut.strip, cut.lanes)]

    def sum_offset(r: int, column: int) -> Value:
        return code["strips"] * (r * cut.strip) + column

    totals = {tile: code.variable(sums.load(sum_offset(*tile), cut.lanes)) for tile in tiles}
    with code.loop(code["chunks"]) as number:
        partials = {tile: code.variable(step.start(totals[tile].get())) for tile in tiles}
        with code.loop(chunk >> (step.unrolled.bit_length() - 1)) as group:
            k = number * chunk + group * step.unrolled
            elements = [a.load((row + r) * k_total + k, step.unrolled) for r in range(count)]
            for u in range(step.unrolled):
                columns = {
                    c: b.load((k + u) * cut.strip + c, cut.lanes) for c in range(0, cut.strip, cut.lanes)
                }
                for r, column in tiles:
                    partial = partials[r, column]
                    partial.set(step.add(partial.get(), elements[r].lane(u), columns[column]))
        for tile in tiles:
            totals[tile].set(step.join(totals[tile].get(), partials[tile].get()))
    for tile in tiles:
        sums.store(totals[tile].get(), sum_offset(*tile))
