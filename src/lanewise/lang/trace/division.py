"""Division: of floats correctly rounded, of integers rounded down as in Python, or towards zero as in C.

Importing this module gives `Scalar` the operators `/`, `//` and `%`.
"""

from typing import Any

from lanewise.formats import f32, f64
from lanewise.lang.trace.arithmetic import mul, root_and_addend, sub, with_addend
from lanewise.lang.trace.bitwise import bitwise, rshift, xor
from lanewise.lang.trace.compare import compare, select
from lanewise.lang.trace.operators import compute, integer_operands, refuse_dtype, same_dtype_operands
from lanewise.lang.trace.scalar import OPERATORS, Scalar, literal
from lanewise.lang.trace.types import is_int


def truediv(a: object, b: object) -> Scalar:
    """Return a / b of floats, correctly rounded."""
    a, b = same_dtype_operands("truediv", a, b)
    if a.dtype in (f32, f64):
        return compute(a.dtype, f"div.rn.{a.dtype.name}", a.operand, b.operand)
    if is_int(a.dtype):
        advice = "use // for integers, or convert with .to(lw.f32)"
    else:
        advice = "PTX divides f32 and f64 alone; convert with .to(lw.f32)"
    refuse_dtype("truediv", a.dtype, advice)


def floordiv(a: Any, b: object) -> Scalar:
    """Return a // b of integers, rounded down as Python does."""
    a, b = integer_operands("floordiv", a, b)
    dtype, divisor = a.dtype, b.constant
    if a.constant is not None and divisor is not None:
        return literal(a.constant // divisor, dtype)
    if divisor == 1:
        return with_addend(*root_and_addend(a), dtype, a.nonnegative)
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        multiple = a.multiple // divisor if a.multiple % divisor == 0 else 1
        return rshift(a, divisor.bit_length() - 1, multiple=max(1, multiple))
    if not dtype.signed or (a.nonnegative and b.nonnegative):
        return compute(dtype, f"div.{_division_type(a, b)}", a.operand, b.operand, nonnegative=True)
    quotient = truncated_div(a, b)
    remainder = sub(a, mul(quotient, b))
    inexact = compare("ne", remainder, 0) & compare("lt", xor(remainder, b), 0)
    return select(inexact, quotient - 1, quotient)


def mod(a: Any, b: object) -> Scalar:
    """Return a % b of integers, with the sign of b as in Python."""
    a, b = integer_operands("mod", a, b)
    dtype, divisor = a.dtype, b.constant
    if a.constant is not None and divisor is not None:
        return literal(a.constant % divisor, dtype)
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        if a.multiple % divisor == 0:
            return literal(0, dtype)
        return bitwise("and", a, divisor - 1)
    if not dtype.signed or (a.nonnegative and b.nonnegative):
        return compute(dtype, f"rem.{_division_type(a, b)}", a.operand, b.operand, nonnegative=True)
    remainder = truncated_rem(a, b)
    other_sign = compare("ne", remainder, 0) & compare("lt", xor(remainder, b), 0)
    return select(other_sign, remainder + b, remainder)


def _division_type(a: Scalar, b: Scalar) -> str:
    """Return the type to divide in: unsigned for numbers known not to be negative, since that is shorter."""
    return f"u{a.dtype.bits}" if a.nonnegative and b.nonnegative else a.dtype.name


def truncated_div(a: object, b: object) -> Scalar:
    """Return a / b of integers, rounded towards zero as in C."""
    a, b = integer_operands("div", a, b)
    return compute(a.dtype, f"div.{a.dtype.name}", a.operand, b.operand)


def truncated_rem(a: object, b: object) -> Scalar:
    """Return the remainder of `lw.div`, with the sign of a as in C."""
    a, b = integer_operands("rem", a, b)
    return compute(a.dtype, f"rem.{a.dtype.name}", a.operand, b.operand)


OPERATORS.update({"truediv": truediv, "floordiv": floordiv, "mod": mod})
