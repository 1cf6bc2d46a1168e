"""Floating-point arithmetic: add, sub, mul, fma, div of f32 and f64, of f16 and bf16 through f32."""

from __future__ import annotations

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
from lanewise.machine.codegen.lane_vectors import Lanes, lowers, types
from lanewise.machine.program.resolve import Op

#: Elements of the packed types, and how many there are.
PACKED = {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2)}


def small_operate(name: str, fmt: str, words: list[Value], ftz: bool = False) -> Value:
    """An operation on f16 or bf16 words, rounded once."""
    values = [widen(word, fmt) for word in words]
    if name == "fma":
        a, b, c = (value.to(f64) for value in values)
        total = single_odd(to_odd(*two_sum(a * b, c)))
    else:
        total = plain(words[0].code, name, values)
    return round_to(flush_to_half(total) if ftz else total, fmt)


def each_half(lanes: Lanes, op: Op, fmt: str, compute: Any) -> None:
    """The instruction on 16-bit words, or on both halves of 32-bit ones."""
    element, count = PACKED.get(fmt, (fmt, 1))
    if count == 1:
        words = [lanes.read(each, Type("u", 16)) for each in op.operands[1:]]
        lanes.write(op.operands[0], compute(element, words))
        return
    pairs = [integer.halves(lanes.read(each, U32)) for each in op.operands[1:]]
    low, high = (compute(element, [pair[side] for pair in pairs]) for side in (0, 1))
    lanes.write(op.operands[0], integer.joined(low, high))


def float_type(op: Op) -> str:
    """The floating-point type of an instruction."""
    found = types(op)
    return found[0] if found else ""


def _general(lanes: Lanes, op: Op, name: str) -> None:
    """add, sub, mul, fma."""
    fmt = float_type(op)
    if len(set(types(op))) > 1:
        _mixed(lanes, op, name)
        return
    if fmt in ("f16", "bf16", "f16x2", "bf16x2"):

        def compute(element: str, words: list[Value]) -> Value:
            ftz = op.has("ftz") and element == "f16"
            words = [flush_half(word) for word in words] if ftz else words
            found = small_operate(name, element, words, ftz)
            if op.has("sat"):
                found = round_to(saturate(widen(found, element)), element)
            if op.has("relu"):
                negative = (found > 0x8000 - 1) & ~(is_nan(widen(found, element)))
                found = negative.select(found ^ found, found)
            return found

        each_half(lanes, op, fmt, compute)
        return
    if fmt == "f32x2":
        words = [lanes.read(each, U64) for each in op.operands[1:]]
        found = []
        for side in (0, 32):
            parts = [given(op, (word >> side).to(U32).view(f32)) for word in words]
            found.append(finished(lanes, op, name, parts, operate(lanes, name, parts, rounding_of(op))))
        low, high = (each.view(U32).to(U64) for each in found)
        lanes.write(op.operands[0], low | (high << 32))
        return
    type = f32 if fmt == "f32" else f64
    values = [given(op, lanes.number(each, type)) for each in op.operands[1:]]
    if type is f32:
        result = rounded(lanes, name, values, rounding_of(op))
        lanes.write_number(op.operands[0], finished(lanes, op, name, values, result))
    else:
        result = operate(lanes, name, values, rounding_of(op))
        lanes.write(op.operands[0], finished(lanes, op, name, values, result))


def _mixed(lanes: Lanes, op: Op, name: str) -> None:
    """f32 arithmetic with a 16-bit operand (add.f32.f16 and its kin)."""
    found = types(op)
    if found[0] != "f32" or any(each not in ("f16", "bf16") for each in found[1:]):
        raise op.unsupported("of these types")
    count = {"fma": 2}.get(name, 1)
    sources = list(op.operands[1:])
    values = [
        widen(lanes.read(each, Type("u", 16)), found[1]) if place < count else lanes.read(each, f32)
        for place, each in enumerate(sources)
    ]
    result = operate(lanes, name, values, rounding_of(op))
    lanes.write(op.operands[0], finished(lanes, op, name, values, result))


def given(op: Op, value: Value) -> Value:
    return flush(value) if op.has("ftz") and value.type.bits == 32 else value


def finished(lanes: Lanes, op: Op, name: str, values: list[Value], result: Value) -> Value:
    """The result of an operation as the instruction's modifiers .ftz and .sat have it."""
    if op.has("ftz") and result.type.bits == 32:
        result = flushed(lanes, name, values, rounding_of(op), result)
    return saturate(result) if op.has("sat") else result


@lowers("add", "sub")
def add(lanes: Lanes, op: Op) -> None:
    """add and sub of every type."""
    _general(lanes, op, op.opcode) if integer.is_float(op) else integer.add_sub(lanes, op)


@lowers("mul")
def multiply(lanes: Lanes, op: Op) -> None:
    """mul of every type."""
    _general(lanes, op, "mul") if integer.is_float(op) else integer.multiply(lanes, op)


@lowers("fma")
def fma(lanes: Lanes, op: Op) -> None:
    """fma, and mad of floats."""
    _general(lanes, op, "fma")


@lowers("div")
def divide(lanes: Lanes, op: Op) -> None:
    """div of every type; .approx and .full round to nearest, which is within their error."""
    if not integer.is_float(op):
        integer.divide(lanes, op)
        return
    _general(lanes, op, "div")
