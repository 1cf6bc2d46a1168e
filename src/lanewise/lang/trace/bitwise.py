"""Bits of integers and of predicates: `&`, `|`, `^`, `~`, `<<` and `>>`, and the instructions behind them.

Importing this module gives `Scalar` these operators; bits of floats are reached by `bitcast` (`convert.py`).
"""

from functools import partial
from math import gcd
from typing import Any

from lanewise.lang.trace.arithmetic import mul
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import compute, integer_operands, refuse_dtype, same_dtype_operands
from lanewise.lang.trace.scalar import OPERATORS, Scalar, literal
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import i32, is_float, is_int, pred


def bitwise(name: str, a: object, b: object) -> Scalar:
    """Return a & b, a | b or a ^ b: of integers bit by bit, of predicates as truth values."""
    a, b = same_dtype_operands(name, a, b)
    dtype = a.dtype
    if is_float(dtype):
        refuse_dtype(name, dtype, "it has no bits of its own; lw.bitcast(x, lw.u32) gives them")
    if a.constant is not None and b.constant is not None:
        x, y = a.constant, b.constant
        return literal({"and": x & y, "or": x | y, "xor": x ^ y}[name], dtype)
    for x, y in ((a, b), (b, a)):
        if y.constant is not None and (neutral := _neutral(name, x, y.constant)) is not None:
            return neutral
    nonnegative = (name == "and" and (a.nonnegative or b.nonnegative)) or (a.nonnegative and b.nonnegative)
    multiple = 1
    if name == "and" and is_int(dtype):
        known = (a.constant if a.constant is not None else b.constant) or 1
        multiple = known & -known
    elif is_int(dtype):
        multiple = gcd(_power_of_two_in(a.multiple), _power_of_two_in(b.multiple))
    type = "pred" if dtype is pred else f"b{max(16, dtype.bits)}"
    return compute(dtype, f"{name}.{type}", a.operand, b.operand, nonnegative=nonnegative, multiple=multiple)


def _power_of_two_in(number: int) -> int:
    """Return the largest power of two that divides a number."""
    return number & -number if number else 1 << 20


def _neutral(name: str, x: Scalar, constant: object) -> Scalar | None:
    """Return what an operation with a constant leaves without an instruction; None if it takes one."""
    if x.dtype is pred:
        if name == "and":
            return x if constant else literal(False, pred)
        if name == "or":
            return literal(True, pred) if constant else x
        return invert(x) if constant else x
    if constant == 0:
        return literal(0, x.dtype) if name == "and" else x
    return None


def xor(a: object, b: object) -> Scalar:
    """Return a ^ b, bit by bit."""
    return bitwise("xor", a, b)


def invert(a: Scalar) -> Scalar:
    """Return ~a: an integer with all its bits flipped, or the opposite of a predicate."""
    if a.constant is not None:
        if a.dtype is pred:
            return literal(not a.constant, pred)
        return literal(~a.constant if a.dtype.signed else a.constant ^ int(a.dtype.max), a.dtype)
    if is_float(a.dtype):
        refuse_dtype("~", a.dtype, "it has no bits of its own; lw.bitcast(x, lw.u32) gives them")
    return compute(a.dtype, "not.pred" if a.dtype is pred else f"not.b{max(16, a.dtype.bits)}", a.operand)


def _shift_amount(b: object) -> object:
    """Return the operand for the number of bits to shift by; an error unless it is i32, u32 or at least 0."""
    if isinstance(b, Scalar):
        if not is_int(b.dtype) or b.dtype.bits != 32:
            raise current().error(f"a shift takes an i32 or u32 amount, not {describe(b)}: convert it")
        return b.operand
    if not isinstance(b, int) or isinstance(b, bool) or b < 0:
        raise current().error(f"a shift takes an amount of at least 0, not {describe(b)}")
    return str(b)


def lshift(a: object, b: object) -> Scalar:
    """Return a << b: the product with a power of two."""
    if isinstance(b, int) and not isinstance(b, bool) and 0 <= b < 31 and isinstance(a, Scalar):
        integer_operands("lshift", a, a)
        return mul(a, 1 << b)
    a = a if isinstance(a, Scalar) else literal(a, i32)
    a, _ = integer_operands("lshift", a, a)
    return compute(a.dtype, f"shl.b{a.dtype.bits}", a.operand, _shift_amount(b))


def rshift(a: Any, b: Any, multiple: int = 1) -> Scalar:
    """Return a >> b, which keeps the sign of signed dtypes."""
    a = a if isinstance(a, Scalar) else literal(a, i32)
    a, _ = integer_operands("rshift", a, a)
    if a.constant is not None and isinstance(b, int) and b >= 0:
        return literal(a.constant >> b, a.dtype)
    return compute(
        a.dtype,
        f"shr.{a.dtype.name}",
        a.operand,
        _shift_amount(b),
        nonnegative=a.nonnegative,
        multiple=multiple,
    )


OPERATORS.update(
    {
        **{name: partial(bitwise, name) for name in ("and", "or", "xor")},
        "invert": invert,
        "lshift": lshift,
        "rshift": rshift,
    }
)
