"""Mathematics: what PTX computes in one instruction or a few, each with its rounding or error stated.

Functions marked approximate have the PTX ISA's error bounds; their last bits differ between GPU and machine.
"""

import math
from typing import Any

from lanewise.formats import Format, bf16, f16, f32, f64
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.operators import (
    NARROW,
    absolute,
    compute,
    floordiv,
    integer_operands,
    mul,
    number_operand,
    refuse_dtype,
    same_dtype_operands,
    truncated_div,
    where,
)
from lanewise.lang.trace.scalar import Scalar, literal, scalar
from lanewise.lang.trace.traced import Traced, describe, is_number, plain_number
from lanewise.lang.trace.types import PAIRS, dtype_name, i32, is_float, is_int, pred, u32

_LOG2_E = math.log2(math.e)
#: The bits of the NaN that arithmetic of f32 returns.
_NAN = 0x7FFFFFFF


def _float(name: str, x: object, *dtypes: Format) -> Scalar:
    """Return an argument of one of some float dtypes; a Python number is f32."""
    if is_number(x):
        x = literal(float(plain_number(x)), f32)
    value = scalar(x, None, f"lw.{name}")
    if value.dtype not in dtypes:
        names = ", ".join(dtype_name(dtype) for dtype in dtypes)
        raise current().error(f"lw.{name} takes {names}, not {describe(value)}: convert it with .to(lw.f32)")
    return value


def fma(a: object, b: object, c: object) -> Scalar:
    """Return a·b + c, rounded once. Inside a kernel: `lw.fma(x, y, z)`."""
    known = next((operand for operand in (a, b, c) if isinstance(operand, Scalar)), None)
    if known is None:
        raise current().error("lw.fma takes a traced value among its three")
    values = [
        number_operand("lw.fma", operand, known.dtype)
        if is_number(operand)
        else scalar(operand, known.dtype, "lw.fma")
        for operand in (a, b, c)
    ]
    dtype = known.dtype
    if not is_float(dtype) and dtype not in PAIRS:
        raise current().error(f"lw.fma is for floats; for {dtype_name(dtype)} write a * b + c")
    if dtype is bf16 or PAIRS.get(dtype) is bf16:
        current().need("fma.bf16", 80, "7.0")
    return compute(dtype, f"fma.rn.{dtype.name}", *(value.operand for value in values))


def sqrt(x: object) -> Scalar:
    """Return the square root of an f32 or f64, correctly rounded."""
    value = _float("sqrt", x, f32, f64)
    return compute(value.dtype, f"sqrt.rn.{value.dtype.name}", value.operand)


def rsqrt(x: object) -> Scalar:
    """Return 1 / √x of an f32, approximate (2 ulp)."""
    value = _float("rsqrt", x, f32)
    return compute(f32, "rsqrt.approx.f32", value.operand)


def rcp(x: object, *, approx: bool = False) -> Scalar:
    """Return 1 / x of an f32 or f64, correctly rounded; approximate (1 ulp) if asked for."""
    value = _float("rcp", x, f32) if approx else _float("rcp", x, f32, f64)
    return compute(value.dtype, f"rcp.{'approx' if approx else 'rn'}.{value.dtype.name}", value.operand)


def exp2(x: object) -> Scalar:
    """Return 2 to the power of x, f32 or f16, approximate (2 ulp in f32)."""
    value = _float("exp2", x, f32, f16)
    if value.dtype is f16:
        current().need("ex2.f16", 75, "7.0")
    return compute(value.dtype, f"ex2.approx.{value.dtype.name}", value.operand)


def exp(x: object) -> Scalar:
    """Return e to the power of x, f32: exp2 of x·log2(e), approximate."""
    return exp2(mul(_float("exp", x, f32), _LOG2_E))


def log2(x: object) -> Scalar:
    """Return the logarithm to base 2 of an f32, approximate."""
    return compute(f32, "lg2.approx.f32", _float("log2", x, f32).operand)


def log(x: object) -> Scalar:
    """Return the natural logarithm of an f32: log2(x)·ln 2, approximate."""
    return mul(log2(_float("log", x, f32)), math.log(2))


def sin(x: object) -> Scalar:
    """Return the sine of an f32, approximate (2^-20.5 within ±π)."""
    return compute(f32, "sin.approx.f32", _float("sin", x, f32).operand)


def cos(x: object) -> Scalar:
    """Return the cosine of an f32, approximate (2^-20.5 within ±π)."""
    return compute(f32, "cos.approx.f32", _float("cos", x, f32).operand)


def tanh(x: object) -> Scalar:
    """Return the hyperbolic tangent of an f32 or f16, approximate (2^-11 relative in f32)."""
    value = _float("tanh", x, f32, f16)
    current().need("tanh", 75, "7.0")
    return compute(value.dtype, f"tanh.approx.{value.dtype.name}", value.operand)


def _integral(name: str, x: object, rounding: str) -> Scalar:
    """Return a float rounded to a whole one."""
    value = _float(name, x, f32, f64, f16)
    return compute(value.dtype, f"cvt.{rounding}.{value.dtype.name}.{value.dtype.name}", value.operand)


def floor(x: object) -> Scalar:
    """Return the nearest whole float below."""
    return _integral("floor", x, "rmi")


def ceil(x: object) -> Scalar:
    """Return the nearest whole float above."""
    return _integral("ceil", x, "rpi")


def trunc(x: object) -> Scalar:
    """Return the nearest whole float towards zero."""
    return _integral("trunc", x, "rzi")


def round(x: object) -> Scalar:
    """Return the nearest whole float, ties to even."""
    return _integral("round", x, "rni")


def _extreme(name: str, values: tuple[Any, ...], nan: bool) -> object:
    """Return the least or the greatest of several values, by one instruction for each after the first."""
    if len(values) < 2:
        raise current().error(f"lw.{name} takes two values or more")
    of_numbers: Any = min if name == "min" else max
    if not any(isinstance(value, Traced) for value in values):
        return of_numbers(values)
    extreme = values[0]
    for value in values[1:]:
        if not isinstance(extreme, Traced) and not isinstance(value, Traced):
            extreme = of_numbers((extreme, value))
            continue
        a, b = same_dtype_operands(name, extreme, value)
        dtype = a.dtype
        if dtype is pred or (not is_int(dtype) and not is_float(dtype) and dtype not in PAIRS):
            raise current().error(f"lw.{name} compares numbers, not {describe(a)}")
        if dtype in NARROW:
            refuse_dtype(name, dtype, "convert it first, as in x.to(lw.i32)")
        if dtype in (f16, bf16) or dtype in PAIRS or (nan and not current().lacks(80)):
            current().need(f"{name} of 16-bit floats, or with NaN", 80, "7.0")
        if nan and not (is_float(dtype) or dtype in PAIRS):
            raise current().error(f"nan=True is for floats, not {dtype_name(dtype)}")
        if nan and dtype == f64:
            raise current().error(
                f"nan=True is for f32 and 16-bit floats: PTX has no {name}.NaN.f64; "
                f"lw.where(lw.isnan(x) | lw.isnan(y), x + y, lw.{name}(x, y)) does the same"
            )
        selects_nan = nan and current().lacks(80)
        opcode = f"{name}{'.NaN' if nan and not selects_nan else ''}.{dtype.name}"
        nonnegative = a.nonnegative and b.nonnegative if name == "min" else a.nonnegative or b.nonnegative
        extreme = compute(dtype, opcode, a.operand, b.operand, nonnegative=nonnegative)
        if selects_nan:
            is_nan = compute(pred, "setp.nan.f32", a.operand, b.operand)
            extreme = where(is_nan, bitcast(literal(_NAN, u32), f32), extreme)
    return extreme


def minimum(*values: object, nan: bool = False) -> Any:
    """Return the least of several values; a NaN is passed over, or with nan=True is the outcome."""
    return _extreme("min", values, nan)


def maximum(*values: object, nan: bool = False) -> Any:
    """Return the greatest of several values; a NaN is passed over, or with nan=True is the outcome."""
    return _extreme("max", values, nan)


def absolute_value(x: Any) -> Any:
    """Return the absolute value of a number, traced or not."""
    return absolute(x) if isinstance(x, Scalar) else abs(x)


def isnan(x: object) -> Scalar:
    """Return whether a float is NaN."""
    value = _float("isnan", x, f32, f64, f16)
    return compute(pred, f"setp.nan.{value.dtype.name}", value.operand, value.operand)


def cdiv(a: Any, b: Any) -> Any:
    """Return a / b rounded up, of integers, traced or not. Traced, a + b - 1 must be in the range of the type
    if neither is negative.

    >>> cdiv(10, 4)
    3
    """
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return -(-a // b)
    a, b = integer_operands("cdiv", a, b)
    if not b.dtype.signed or b.nonnegative or (b.constant is not None and b.constant > 0):
        return floordiv(a + (b - 1), b)
    quotient = truncated_div(a, b)
    remainder = a - quotient * b
    return where((remainder != 0) & ((remainder ^ b) >= 0), quotient + 1, quotient)


def _word(name: str, x: object) -> Scalar:
    """Return an argument that is an integer of 32 or 64 bits; an error if it is another value."""
    value = scalar(x, None, f"lw.{name}")
    if not is_int(value.dtype) or value.dtype.bits < 32:
        raise current().error(f"lw.{name} takes an integer of 32 or 64 bits, not {describe(value)}")
    return value


def popc(x: object) -> Scalar:
    """Return how many bits are set, as i32."""
    value = _word("popc", x)
    return compute(i32, f"popc.b{value.dtype.bits}", value.operand, nonnegative=True)


def clz(x: object) -> Scalar:
    """Return how many leading bits are zero, as i32."""
    value = _word("clz", x)
    return compute(i32, f"clz.b{value.dtype.bits}", value.operand, nonnegative=True)


def brev(x: object) -> Scalar:
    """Return the bits in reverse order."""
    value = _word("brev", x)
    return compute(value.dtype, f"brev.b{value.dtype.bits}", value.operand)


def mulhi(a: object, b: object) -> Scalar:
    """Return the high half of the product of two integers."""
    a, b = same_dtype_operands("lw.mulhi", a, b)
    _word("mulhi", a)
    return compute(a.dtype, f"mul.hi.{a.dtype.name}", a.operand, b.operand)


def assume(x: object, *, multiple_of: int = 1, nonnegative: bool = False) -> Any:
    """Return a value with a promise about it: widths of accesses and divisions are chosen by such knowledge.

    Inside a kernel: `K = lw.assume(K, multiple_of=8, nonnegative=True)`.
    """
    if not isinstance(x, Scalar):
        return x
    if not is_int(x.dtype) or not isinstance(multiple_of, int) or multiple_of < 1:
        raise current().error("lw.assume is for integers, and a multiple of at least 1")
    return Scalar(
        x.dtype,
        x.in_register,
        multiple=x.multiple * multiple_of // math.gcd(x.multiple, multiple_of),
        nonnegative=x.nonnegative or nonnegative,
    )


def permute_bytes(a: object, b: object, selector: object) -> Scalar:
    """Emit prmt: four bytes out of the eight of two words, chosen by the hexadecimal digits of a selector."""
    first, second = scalar(a, u32, "lw.prmt"), scalar(b, u32, "lw.prmt")
    chosen = scalar(selector, u32, "lw.prmt")
    return compute(u32, "prmt.b32", first.operand, second.operand, chosen.operand)
