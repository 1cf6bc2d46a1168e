"""Lowerings of roots, reciprocals and approximate functions, within the PTX ISA's error bounds."""

from lanewise.jit import ir
from lanewise.jit.simd import Value, f32, f64
from lanewise.machine.arithmetic.exponentials import exp2
from lanewise.machine.arithmetic.floating import finished, float_type, flushed_input, write_halves
from lanewise.machine.arithmetic.integer import U64
from lanewise.machine.arithmetic.rounding import operate, quiet, rounding_of
from lanewise.machine.arithmetic.small_floats import flush_half, is_nan, round_to, widen
from lanewise.machine.codegen.lane_vectors import Lanes, intrinsic
from lanewise.machine.program.ops import Op


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
