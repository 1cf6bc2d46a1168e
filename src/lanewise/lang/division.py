"""Division: of floats correctly rounded, of integers rounded down as in Python, or towards zero as in C."""

from __future__ import annotations

from typing import Any

from lanewise.formats import f32, f64
from lanewise.lang.arithmetic import (
    bitwise,
    compare,
    integers,
    mul,
    pair,
    refuse_dtype,
    rshift,
    select,
    shifted,
    split,
    sub,
    value_of,
    xor,
)
from lanewise.lang.types import is_int
from lanewise.lang.values import OPERATORS, Scalar, literal


def truediv(a: Any, b: Any) -> Scalar:
    """a / b of floats, correctly rounded."""
    a, b = pair("truediv", a, b)
    if a.dtype in (f32, f64):
        return value_of(a.dtype, f"div.rn.{a.dtype.name}", a.operand, b.operand)
    if is_int(a.dtype):
        advice = "use // for integers, or convert with .to(lw.f32)"
    else:
        advice = "PTX divides f32 and f64 alone; convert with .to(lw.f32)"
    refuse_dtype("truediv", a.dtype, advice)


def floordiv(a: Any, b: Any) -> Scalar:
    """a // b rounded down, as Python has it."""
    a, b = integers("floordiv", a, b)
    dtype, divisor = a.dtype, b.constant
    if a.constant is not None and divisor is not None:
        return literal(a.constant // divisor, dtype)
    if divisor == 1:
        return shifted(*split(a), dtype, a.natural)
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        multiple = a.multiple // divisor if a.multiple % divisor == 0 else 1
        return rshift(a, divisor.bit_length() - 1, multiple=max(1, multiple))
    if not dtype.signed or (a.natural and b.natural):
        return value_of(dtype, f"div.{_unsigned(a, b)}", a.operand, b.operand, natural=True)
    quotient = truncated_div(a, b)
    remainder = sub(a, mul(quotient, b))
    inexact = compare("ne", remainder, 0) & compare("lt", xor(remainder, b), 0)
    return select(inexact, quotient - 1, quotient)


def mod(a: Any, b: Any) -> Scalar:
    """a % b with the sign of b, as Python has it."""
    a, b = integers("mod", a, b)
    dtype, divisor = a.dtype, b.constant
    if a.constant is not None and divisor is not None:
        return literal(a.constant % divisor, dtype)
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        if a.multiple % divisor == 0:
            return literal(0, dtype)
        return bitwise("and", a, divisor - 1)
    if not dtype.signed or (a.natural and b.natural):
        return value_of(dtype, f"rem.{_unsigned(a, b)}", a.operand, b.operand, natural=True)
    remainder = truncated_rem(a, b)
    other_sign = compare("ne", remainder, 0) & compare("lt", xor(remainder, b), 0)
    return select(other_sign, remainder + b, remainder)


def _unsigned(a: Scalar, b: Scalar) -> str:
    """Known not to be negative: the unsigned division is the shorter one."""
    return f"u{a.dtype.bits}" if a.natural and b.natural else a.dtype.name


def truncated_div(a: Any, b: Any) -> Scalar:
    """a / b of integers, rounded towards zero as in C."""
    a, b = integers("div", a, b)
    return value_of(a.dtype, f"div.{a.dtype.name}", a.operand, b.operand)


def truncated_rem(a: Any, b: Any) -> Scalar:
    """The remainder of `div`, with the sign of a as in C."""
    a, b = integers("rem", a, b)
    return value_of(a.dtype, f"rem.{a.dtype.name}", a.operand, b.operand)


OPERATORS.update({"truediv": truediv, "floordiv": floordiv, "mod": mod})
