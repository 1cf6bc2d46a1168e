"""Lowerings of roots, reciprocals and approximate functions, within the PTX ISA's error bounds."""

from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Value, f32, f64
from lanewise.machine.arithmetic.floating import finished, float_type, flushed_input, write_halves
from lanewise.machine.arithmetic.integer import U32, U64
from lanewise.machine.arithmetic.rounding import operate, quiet, rounding_of
from lanewise.machine.arithmetic.small_floats import flush_half, is_nan, round_to, widen
from lanewise.machine.codegen.lane_vectors import Lanes, intrinsic
from lanewise.machine.program.ops import Op

#: Bits of a fraction, and of them those that choose no coefficients.
_FRACTION, _LOW = 23, 17
#: Of C0 the quarters, of C1 the fours, and C2, by the first 6 bits of a fraction.
_QUARTERS = (
    33554435, 33919818, 34289182, 34662565, 35040018, 35421577, 35807292, 36197209, 36591372, 36989825,
    37392616, 37799797, 38211409, 38627504, 39048131, 39473337, 39903173, 40337690, 40776937, 41220970,
    41669836, 42123592, 42582286, 43045977, 43514717, 43988561, 44467565, 44951786, 45441278, 45936101,
    46436314, 46941971, 47453135, 47969867, 48492225, 49020269, 49554065, 50093674, 50639159, 51190582,
    51748011, 52311510, 52881146, 53456983, 54039091, 54627538, 55222393, 55823725, 56431607, 57046106,
    57667297, 58295254, 58930048, 59571754, 60220447, 60876205, 61539104, 62209220, 62886634, 63571424,
    64263672, 64963458, 65670863, 66385972,
)  # fmt: skip
_FOURS = (
    22713, 22960, 23210, 23463, 23718, 23977, 24238, 24502, 24768, 25038, 25311, 25586, 25865, 26147, 26431,
    26719, 27010, 27304, 27602, 27902, 28206, 28513, 28824, 29138, 29455, 29776, 30100, 30428, 30759, 31094,
    31432, 31775, 32121, 32471, 32824, 33182, 33543, 33908, 34277, 34651, 35028, 35409, 35795, 36185, 36579,
    36977, 37380, 37787, 38198, 38614, 39035, 39460, 39889, 40324, 40763, 41207, 41655, 42109, 42568, 43031,
    43500, 43973, 44452, 44936,
)  # fmt: skip
_SQUARES = (
    494, 501, 506, 511, 518, 521, 527, 532, 541, 546, 551, 559, 564, 568, 577, 583, 589, 596, 600, 609, 615,
    622, 627, 633, 641, 647, 655, 661, 670, 677, 686, 691, 699, 705, 715, 721, 730, 739, 748, 753, 763, 773,
    779, 787, 796, 806, 813, 822, 833, 842, 849, 858, 870, 877, 887, 896, 909, 917, 925, 938, 946, 959, 969,
    980,
)  # fmt: skip
#: What is added before the sum is rounded down, in units of 2^-40: it makes up for what is cut off.
_ROUNDER = 24456
#: Where the fours and the squares begin in an entry of the table, and how many bits each has.
_FOURS_AT, _SQUARES_AT, _QUARTER_BITS, _FOUR_BITS = 27, 43, 27, 16
#: Exponents of f32: that of 1, the first beyond what the unit takes, and what keeps differences above zero.
_ONE, _BEYOND, _ABOVE = 127, 135, 256
_INFINITY, _NAN = 0x7F800000, 0x7FFFFFFF


def exp2(lanes: Lanes, x: Value, flushes: bool) -> Value:
    """Return 2^x of f32 as `ex2.approx.f32`, or with `flushes` as `ex2.approx.ftz.f32`.

    Without .ftz ptxas halves arguments below -126 and squares what the unit gives.
    """
    if flushes:
        return _unit(lanes, x)
    small = x < -126.0
    power = _unit(lanes, small.select(x * 0.5, x))
    return small.select(power * power, power)


def _unit(lanes: Lanes, x: Value) -> Value:
    """Return what the special function unit gives (MUFU.EX2): a table, a parabola whose square is cut off.

    Found by asking an H200 for all fractions of five binades and for a million and a half other words: every
    bit is as here. The unit is that of Oberman and Siu, "A high-performance area-efficient multifunction
    interpolator" (2005). The magnitude is cut off after 23 bits behind the binary point; the fraction of a
    negative number is inverted and not negated, unless it is zero. The first 6 bits of the fraction choose
    coefficients, the other 17 are a number x from 0 to 1, and

        2^fraction = C0 + C1·x + C2·S(x)    in units of 2^-23, rounded down,

    where S(x) is the sum of the products of bits of x, as in x², that weigh 2^-15 or more.
    """
    bits = x.view(U32)
    exponent = (bits >> 23) & 0xFF
    significand = (bits & 0x7FFFFF) | 0x800000
    zero = lanes.constant(U32, 0)
    left = (exponent > _ONE).select(exponent - _ONE, zero)
    right = (exponent < _ONE).select((zero + _ONE) - exponent, zero)
    fixed = (significand << (left > 7).select(zero + 7, left)) >> (right > 24).select(zero + 24, right)
    whole, fraction = fixed >> _FRACTION, fixed & 0x7FFFFF
    negative = (bits >> 31).differs(0)
    exact = fraction.equals(0)
    fraction = (negative & ~exact).select(fraction ^ 0x7FFFFF, fraction)
    below = (zero + (_ONE + _ABOVE)) - whole - (~exact).to(U32)
    power = negative.select(below, whole + (_ONE + _ABOVE))
    word = ((power - _ABOVE) << 23) | _significand(fraction)
    infinity = zero + _INFINITY
    beyond = negative.select(zero, infinity)
    word = (power > _ABOVE + 254).select(infinity, (power < _ABOVE + 1).select(zero, word))
    word = (exponent > _BEYOND - 1).select(beyond, word)
    word = exponent.equals(0).select(zero + 0x3F800000, word)
    return is_nan(x).select(zero + _NAN, word).view(f32)


def _significand(fraction: Value) -> Value:
    """Return the 23 bits of 2^fraction behind the binary point."""
    low = fraction & ((1 << _LOW) - 1)
    entry = _entries(fraction >> _LOW)
    quarters = entry & ((1 << _QUARTER_BITS) - 1)
    fours = (entry >> _FOURS_AT) & ((1 << _FOUR_BITS) - 1)
    squares = entry >> _SQUARES_AT
    # In units of 2^-40: a quarter is 2^15 of them, x has 17 bits and S(x) has 15.
    total = (quarters << 15) + ((fours * low.to(U64)) << 2) + ((squares * _square(low).to(U64)) << 2)
    return ((total + _ROUNDER) >> _LOW).to(U32) & 0x7FFFFF


def _square(low: Value) -> Value:
    """Return the sum of the products of two bits of x that weigh 2^-15 or more, in units of 2^-15.

    The product of the bits i < j, counted from the highest, occurs twice and weighs 2^-(i + j + 1).
    """
    total: Value | None = None
    for i in range(7):
        others = (low >> (2 + i)) & ((1 << (14 - 2 * i)) - 1)
        term = ((low >> (16 - i)) & 1).differs(0).select(others + (1 << (13 - 2 * i)), others & 0)
        total = term if total is None else total + term
    assert total is not None
    return total


def _entries(index: Value) -> Value:
    """Return the table's entry for each lane's index."""
    code = index.code
    name = "coefficients of 2^x"
    table = code.module.variables.get(name)
    if table is None:
        numbers = [
            quarter | four << _FOURS_AT | square << _SQUARES_AT
            for quarter, four, square in zip(_QUARTERS, _FOURS, _SQUARES, strict=True)
        ]
        kind = ir.ArrayType(U64.ir, len(numbers))
        table = ir.GlobalVariable(code.module, kind, name)
        table.initializer = ir.Constant(kind, numbers)
        table.global_constant, table.linkage = True, "internal"
    pointer = Pointer(code, U64, code.builder.bitcast(table, ir.IntType(8).as_pointer()))
    lanes_of = index.type.lanes
    if lanes_of == 1:
        return pointer.load(index.to(U64))
    type = U64.by(lanes_of)
    entries: ir.Operand = ir.Constant(type.ir, ir.Undefined)
    for lane in range(lanes_of):
        one = pointer.load(index.lane(lane).to(U64))
        entries = code.builder.insert_element(entries, one.handle, ir.Constant(ir.IntType(32), lane))
    return Value(code, type, entries)


def root(lanes: Lanes, op: Op) -> None:
    """Lower sqrt and rcp.

    The approximate forms of f32 round to nearest, which is within their error bound.
    """
    type = f32 if float_type(op) == "f32" else f64
    value = flushed_input(op, lanes.read(op.operands[1], type))
    values = [value] if op.opcode == "sqrt" else [lanes.constant(type, 1.0), value]
    if op.opcode == "rcp" and type is f64 and op.has("approx"):
        # The low words are zero: a 20-bit mantissa.
        value = (value.view(U64) & 0xFFFFFFFF00000000).view(f64)
        result = operate(lanes, "div", [values[0], value], "rn")
        word = result.view(U64) & 0xFFFFFFFF00000000
        lanes.write(op.operands[0], is_nan(result).select(lanes.constant(U64, 0x7FFFFFFF00000000), word))
        return
    name = "div" if op.opcode == "rcp" else "sqrt"
    result = operate(lanes, name, values, rounding_of(op))
    lanes.write(op.operands[0], finished(lanes, op, name, values, result))


def inverse_root(lanes: Lanes, op: Op) -> None:
    """Lower rsqrt.approx: it is computed in f64, which is within the error bound."""
    single = float_type(op) == "f32"
    value = flushed_input(op, lanes.read(op.operands[1], f32 if single else f64))
    wide = value.to(f64)
    result = Value(
        lanes.code,
        wide.type,
        lanes.code.builder.fdiv(lanes.constant(f64, 1.0).handle, intrinsic("sqrt", wide).handle),
    )
    if single:
        result = result.to(f32)
    elif op.has("ftz"):
        result = (result.view(U64) & 0xFFFFFFFF00000000).view(f64)
    lanes.write(op.operands[0], finished(lanes, op, "rsqrt", [value], quiet(result, value)))


def approximate(lanes: Lanes, op: Op) -> None:
    """Lower ex2, lg2, sin, cos and tanh, computed to about one ulp of f32, within the error bounds.

    ex2 of f32 has the bits of an H200.
    """
    names = {"ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos"}

    def function(value: Value) -> Value:
        if op.opcode == "tanh":
            return quiet(_call_per_lane(value, "tanhf"))
        return quiet(intrinsic(names[op.opcode], value))

    fmt = float_type(op)
    if fmt == "f32":
        value = flushed_input(op, lanes.read(op.operands[1], f32))
        if op.opcode == "ex2":
            lanes.write(op.operands[0], exp2(lanes, value, op.has("ftz")))
            return
        lanes.write(op.operands[0], finished(lanes, op, op.opcode, [value], function(value)))
        return

    def compute(element: str, words: list[Value]) -> Value:
        result = round_to(function(widen(words[0], element)), element)
        return flush_half(result) if op.has("ftz") and element == "f16" else result

    write_halves(lanes, op, fmt, compute)


def _call_per_lane(value: Value, name: str) -> Value:
    """Call a function of the C library for each lane and return the results as a vector."""
    code, single = value.code, ir.FloatType()
    function = code.external(name, single, [single])
    results: ir.Operand = ir.Constant(value.type.ir, ir.Undefined)
    for lane in range(value.type.lanes):
        result = code.builder.call(function, [value.lane(lane).handle])
        results = code.builder.insert_element(results, result, ir.Constant(ir.IntType(32), lane))
    return Value(code, value.type, results)
