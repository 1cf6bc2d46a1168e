"""Lowerings of add, sub, mul, fma and div of floats; f16 and bf16 are computed through f32."""

from functools import partial
from typing import Any

from lanewise.jit.simd import Type, Value, f32, f64
from lanewise.machine.arithmetic import integer
from lanewise.machine.arithmetic.integer import U32, U64
from lanewise.machine.arithmetic.rounding import flushed, operate, plain, rounded, rounding_of, saturate
from lanewise.machine.arithmetic.small_floats import (
    flush,
    flush_half,
    flush_to_half,
    is_nan,
    round_to,
    single_odd,
    to_odd,
    two_sum,
    widen,
)
from lanewise.machine.codegen.lane_vectors import Lanes
from lanewise.machine.program.ops import Op

#: Elements of the packed types, and how many there are.
PACKED = {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2)}


def small_operate(name: str, fmt: str, words: list[Value], ftz: bool = False) -> Value:
    """Return an operation on f16 or bf16 words, rounded only once."""
    values = [widen(word, fmt) for word in words]
    if name == "fma":
        a, b, c = (value.to(f64) for value in values)
        total = single_odd(to_odd(*two_sum(a * b, c)))
    else:
        total = plain(words[0].code, name, values)
    return round_to(flush_to_half(total) if ftz else total, fmt)


def write_halves(lanes: Lanes, op: Op, fmt: str, compute: Any) -> None:
    """Write the result of `compute` on 16-bit words, or on both halves of 32-bit words."""
    element, count = PACKED.get(fmt, (fmt, 1))
    if count == 1:
        words = [lanes.read(operand, Type("u", 16)) for operand in op.operands[1:]]
        lanes.write(op.operands[0], compute(element, words))
        return
    pairs = [integer.halves(lanes.read(operand, U32)) for operand in op.operands[1:]]
    low, high = (compute(element, [pair[side] for pair in pairs]) for side in (0, 1))
    lanes.write(op.operands[0], integer.joined(low, high))


def float_type(op: Op) -> str:
    """Return the first type that an instruction names, which is that of its result."""
    types = op.types
    return types[0] if types else ""


def _small_result(op: Op, name: str, element: str, words: list[Value]) -> Value:
    """Return the result of an instruction on words of f16 or bf16, with its .ftz, .sat and .relu."""
    ftz = op.has("ftz") and element == "f16"
    words = [flush_half(word) for word in words] if ftz else words
    result = small_operate(name, element, words, ftz)
    if op.has("sat"):
        result = round_to(saturate(widen(result, element)), element)
    if op.has("relu"):
        negative = (result > 0x8000 - 1) & ~(is_nan(widen(result, element)))
        result = negative.select(result ^ result, result)
    return result


def _general(lanes: Lanes, op: Op, name: str) -> None:
    """Lower add, sub, mul, fma or div of any floating-point type."""
    fmt = float_type(op)
    if len(set(op.types)) > 1:
        _mixed(lanes, op, name)
        return
    if fmt in ("f16", "bf16", "f16x2", "bf16x2"):
        write_halves(lanes, op, fmt, partial(_small_result, op, name))
        return
    if fmt == "f32x2":
        words = [lanes.read(operand, U64) for operand in op.operands[1:]]
        results = []
        for side in (0, 32):
            halves = [flushed_input(op, (word >> side).to(U32).view(f32)) for word in words]
            results.append(finished(lanes, op, name, halves, operate(lanes, name, halves, rounding_of(op))))
        low, high = (result.view(U32).to(U64) for result in results)
        lanes.write(op.operands[0], low | (high << 32))
        return
    type = f32 if fmt == "f32" else f64
    values = [flushed_input(op, lanes.number(operand, type)) for operand in op.operands[1:]]
    if type is f32:
        result = rounded(lanes, name, values, rounding_of(op))
        lanes.write_number(op.operands[0], finished(lanes, op, name, values, result))
    else:
        result = operate(lanes, name, values, rounding_of(op))
        lanes.write(op.operands[0], finished(lanes, op, name, values, result))


def _mixed(lanes: Lanes, op: Op, name: str) -> None:
    """Lower f32 arithmetic with 16-bit operands, such as add.f32.f16."""
    types = op.types
    if types[0] != "f32" or any(kind not in ("f16", "bf16") for kind in types[1:]):
        raise op.unsupported("of these types")
    count = {"fma": 2}.get(name, 1)
    sources = list(op.operands[1:])
    values = [
        widen(lanes.read(source, Type("u", 16)), types[1]) if position < count else lanes.read(source, f32)
        for position, source in enumerate(sources)
    ]
    result = operate(lanes, name, values, rounding_of(op))
    lanes.write(op.operands[0], finished(lanes, op, name, values, result))


def flushed_input(op: Op, value: Value) -> Value:
    """Return a source operand with subnormal f32 numbers flushed to zero if the instruction has .ftz."""
    return flush(value) if op.has("ftz") and value.type.bits == 32 else value


def finished(lanes: Lanes, op: Op, name: str, values: list[Value], result: Value) -> Value:
    """Return the result of an operation after the instruction's modifiers .ftz and .sat."""
    if op.has("ftz") and result.type.bits == 32:
        result = flushed(lanes, name, values, rounding_of(op), result)
    return saturate(result) if op.has("sat") else result


def add(lanes: Lanes, op: Op) -> None:
    """Lower add and sub of every type."""
    _general(lanes, op, op.opcode) if integer.is_float(op) else integer.add_sub(lanes, op)


def multiply(lanes: Lanes, op: Op) -> None:
    """Lower mul of every type, integers included."""
    _general(lanes, op, "mul") if integer.is_float(op) else integer.multiply(lanes, op)


def fma(lanes: Lanes, op: Op) -> None:
    """Lower fma of every floating-point type."""
    _general(lanes, op, "fma")


#: The NaN that stands for an element out of bounds, the same in f16 and bf16, with either sign. Seen on an
#: H200: of all 65,536 words only these make `fma.oob` differ from `fma`, as factors and not as the summand.
OUT_OF_BOUNDS = 0x7FF7


def fma_out_of_bounds(lanes: Lanes, op: Op) -> None:
    """Lower fma.oob of f16 and bf16: as fma, but 0 where a factor stands for an element out of bounds."""

    def compute(element: str, words: list[Value]) -> Value:
        a, b = ((factor & 0x7FFF).equals(OUT_OF_BOUNDS) for factor in words[:2])
        result = _small_result(op, "fma", element, words)
        return (a | b).select(result ^ result, result)

    fmt = float_type(op)
    if fmt not in ("f16", "bf16", "f16x2", "bf16x2"):
        raise op.unsupported("it is of f16 and bf16")
    write_halves(lanes, op, fmt, compute)


def mad(lanes: Lanes, op: Op) -> None:
    """Lower mad of every type; for floats it is fma."""
    fma(lanes, op) if integer.is_float(op) else integer.mad(lanes, op)


def divide(lanes: Lanes, op: Op) -> None:
    """Lower div of every type; .approx and .full round to nearest, which is within their error bounds."""
    if not integer.is_float(op):
        integer.divide(lanes, op)
        return
    _general(lanes, op, "div")
