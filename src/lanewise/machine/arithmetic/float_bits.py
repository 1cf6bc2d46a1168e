"""Lowerings that look at the bits of floats and round nothing: abs, neg, min, max, copysign, testp."""

from lanewise.jit.simd import Type, Value, f32, f64
from lanewise.machine.arithmetic import integer
from lanewise.machine.arithmetic.floating import float_type, flushed_input, write_halves
from lanewise.machine.arithmetic.integer import U32
from lanewise.machine.arithmetic.small_floats import flush_half, is_nan, round_to, widen
from lanewise.machine.codegen.lane_vectors import Lanes
from lanewise.machine.program.ops import Op


def sign(lanes: Lanes, op: Op) -> None:
    """Lower abs and neg of every type; for floats they change only the sign bit."""
    if not integer.is_float(op):
        integer.absolute(lanes, op) if op.opcode == "abs" else integer.negate(lanes, op)
        return
    fmt = float_type(op)

    def change(word: Value, bits: int) -> Value:
        top = 1 << bits - 1
        return word & (top - 1) if op.opcode == "abs" else word ^ top

    if fmt in ("f32", "f64"):
        value = flushed_input(op, lanes.read(op.operands[1], f32 if fmt == "f32" else f64))
        bits = value.type.bits
        raw = value.view(Type("u", bits))
        # Seen on an H200: an f64 NaN keeps its sign and becomes quiet, any other becomes the canonical one.
        nan = lanes.constant(U32, 0x7FFFFFFF) if bits == 32 else raw | (1 << 51)
        lanes.write(op.operands[0], is_nan(value).select(nan, change(raw, bits)))
        return

    def compute(element: str, words: list[Value]) -> Value:
        word = flush_half(words[0]) if op.has("ftz") and element == "f16" else words[0]
        return is_nan(widen(word, element)).select(lanes.constant(Type("u", 16), 0x7FFF), change(word, 16))

    write_halves(lanes, op, fmt, compute)


def min_max(lanes: Lanes, op: Op) -> None:
    """Lower min and max: a number wins over NaN unless .NaN is given, and -0 is less than +0."""
    if not integer.is_float(op):
        integer.min_max(lanes, op)
        return
    fmt = float_type(op)

    def chosen(values: list[Value], nan: int) -> Value:
        bits = values[0].type.bits
        if op.has("abs") and not op.has("xorsign"):
            unsigned, clear = Type("u", bits), (1 << bits - 1) - 1
            values = [(value.view(unsigned) & clear).view(value.type) for value in values]
        best = values[0]
        for other in values[1:]:
            best = pick(op, op.opcode == "max", best, other, nan)
        return best

    if fmt in ("f32", "f64"):
        type = f32 if fmt == "f32" else f64
        read = lanes.read if op.has("xorsign") else lanes.number  # the sign of a NaN counts for .xorsign
        values = [flushed_input(op, read(operand, type)) for operand in op.operands[1:]]
        lanes.write(op.operands[0], chosen(values, 0x7FFFFFFF if type is f32 else 0x7FFFFFFFFFFFFFFF))
        return

    def compute(element: str, words: list[Value]) -> Value:
        if op.has("ftz") and element == "f16":
            words = [flush_half(word) for word in words]
        return round_to(chosen([widen(word, element) for word in words], 0x7FFFFFFF), element)

    write_halves(lanes, op, fmt, compute)


def pick(op: Op, larger: bool, a: Value, b: Value, nan: int = 0x7FFFFFFF) -> Value:
    """Return the larger or the smaller of two floats, following the modifiers .NaN and .xorsign.abs."""
    bits = a.type.bits
    unsigned = Type("u", bits)
    first, second = a, b
    if op.has("xorsign"):
        clear = (1 << bits - 1) - 1
        first, second = ((operand.view(unsigned) & clear).view(operand.type.by(1)) for operand in (a, b))
    left, right = first.view(unsigned), second.view(unsigned)
    both_zero = first.equals(0.0) & second.equals(0.0)
    if larger:
        picked = (first > second).select(left, right)
        picked = both_zero.select(left & right, picked)
    else:
        picked = (first < second).select(left, right)
        picked = both_zero.select(left | right, picked)
    # Seen on an H200: of two NaNs of f64 the second, quiet.
    canonical = picked.code.constant(picked.type, nan) if bits == 32 else right | (1 << 51)
    no_a, no_b = is_nan(first), is_nan(second)
    if op.has("NaN"):
        picked = (no_a | no_b).select(canonical, picked)
    else:
        picked = no_a.select(right, no_b.select(left, picked))
        picked = (no_a & no_b).select(canonical, picked)
    if op.has("xorsign"):
        sign = (a.view(unsigned) ^ b.view(unsigned)) & (1 << bits - 1)
        no_sign = no_a | no_b if op.has("NaN") else no_a & no_b
        picked = no_sign.select(picked, picked | sign)
    return picked.view(a.type.by(1))


def copysign(lanes: Lanes, op: Op) -> None:
    """Lower copysign: the sign of a with the magnitude of b."""
    bits = 32 if float_type(op) == "f32" else 64
    a, b = (lanes.read(operand, Type("u", bits)) for operand in op.operands[1:3])
    top = 1 << bits - 1
    lanes.write(op.operands[0], (a & top) | (b & (top - 1)))


def test(lanes: Lanes, op: Op) -> None:
    """Lower testp: test whether a float is finite, infinite, a number, NaN, normal or subnormal."""
    bits, mantissa = (32, 23) if float_type(op) == "f32" else (64, 52)
    word = lanes.read(op.operands[1], Type("u", bits))
    magnitude = word & ((1 << bits - 1) - 1)
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    tiny = (magnitude < (1 << mantissa)) & magnitude.differs(0)
    match op.modifiers[0]:
        case "finite":
            result = magnitude < infinity
        case "infinite":
            result = magnitude.equals(infinity)
        case "number":
            result = ~(magnitude > infinity)
        case "notanumber":
            result = magnitude > infinity
        case "normal":
            result = (magnitude < infinity) & ~tiny
        case "subnormal":
            # Zero counts as normal (measured on an H200).
            result = tiny
        case other:
            raise op.unsupported(f"it does not test for .{other}")
    lanes.write(op.operands[0], result)
