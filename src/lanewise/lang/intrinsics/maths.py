"""Mathematics: what PTX computes in one instruction or a few, each with its rounding or error stated.

Functions marked approximate have the PTX ISA's error bounds; their last bits differ between GPU and machine.
"""

from __future__ import annotations

import math
from typing import Any

from lanewise.formats import Format, bf16, f16, f32, f64
from lanewise.lang.arithmetic import absolute, mul, pair
from lanewise.lang.builder import current
from lanewise.lang.division import floordiv
from lanewise.lang.types import PAIRS, i32, i64, is_float, is_int, pred, register_kind, u32, u64
from lanewise.lang.values import Scalar, Traced, describe, is_number, literal, plain_number, public, scalar

_LOG2_E = math.log2(math.e)


def _value(dtype: Format, opcode: str, *sources: Any, **more: Any) -> Scalar:
    return Scalar(dtype, current().define(opcode, register_kind(dtype), *sources), **more)


def _float(name: str, x: Any, *dtypes: Format) -> Scalar:
    """An argument of one of some float types; a Python number is f32."""
    if is_number(x):
        x = literal(float(plain_number(x)), f32)
    value = scalar(x, None, f"lw.{name}")
    if value.dtype not in dtypes:
        names = ", ".join(public(each) for each in dtypes)
        raise current().error(f"lw.{name} takes {names}, not {describe(value)}: convert it with .to(lw.f32)")
    return value


def fma(a: Any, b: Any, c: Any) -> Scalar:
    """a·b + c, rounded once. Inside a kernel: `lw.fma(x, y, z)`."""
    known = next((each for each in (a, b, c) if isinstance(each, Scalar)), None)
    if known is None:
        raise current().error("lw.fma takes a traced value among its three")
    values = [scalar(each, known.dtype, "lw.fma") for each in (a, b, c)]
    dtype = known.dtype
    if not is_float(dtype) and dtype not in PAIRS:
        raise current().error(f"lw.fma is for floats; for {public(dtype)} write a * b + c")
    if dtype is bf16 or PAIRS.get(dtype) is bf16:
        current().need("fma.bf16", 80, "7.0")
    return _value(dtype, f"fma.rn.{dtype.name}", *(each.operand for each in values))


def sqrt(x: Any) -> Scalar:
    """The square root of an f32 or f64, correctly rounded."""
    value = _float("sqrt", x, f32, f64)
    return _value(value.dtype, f"sqrt.rn.{value.dtype.name}", value.operand)


def rsqrt(x: Any) -> Scalar:
    """1 / √x of an f32, approximate (2 ulp)."""
    value = _float("rsqrt", x, f32)
    return _value(f32, "rsqrt.approx.f32", value.operand)


def rcp(x: Any, *, approx: bool = False) -> Scalar:
    """1 / x of an f32 or f64, correctly rounded; approximate (1 ulp) if asked for."""
    value = _float("rcp", x, f32) if approx else _float("rcp", x, f32, f64)
    return _value(value.dtype, f"rcp.{'approx' if approx else 'rn'}.{value.dtype.name}", value.operand)


def exp2(x: Any) -> Scalar:
    """2 to the power of x, f32 or f16, approximate (2 ulp in f32)."""
    value = _float("exp2", x, f32, f16)
    if value.dtype is f16:
        current().need("ex2.f16", 75, "7.0")
    return _value(value.dtype, f"ex2.approx.{value.dtype.name}", value.operand)


def exp(x: Any) -> Scalar:
    """e to the power of x, f32: exp2 of x·log2(e), approximate."""
    return exp2(mul(_float("exp", x, f32), _LOG2_E))


def log2(x: Any) -> Scalar:
    """The logarithm to base 2 of an f32, approximate."""
    return _value(f32, "lg2.approx.f32", _float("log2", x, f32).operand)


def log(x: Any) -> Scalar:
    """The natural logarithm of an f32: log2(x)·ln 2, approximate."""
    return mul(log2(x), math.log(2))


def sin(x: Any) -> Scalar:
    """The sine of an f32, approximate (2^-20.5 within ±π)."""
    return _value(f32, "sin.approx.f32", _float("sin", x, f32).operand)


def cos(x: Any) -> Scalar:
    """The cosine of an f32, approximate (2^-20.5 within ±π)."""
    return _value(f32, "cos.approx.f32", _float("cos", x, f32).operand)


def tanh(x: Any) -> Scalar:
    """The hyperbolic tangent of an f32 or f16, approximate (2^-11 relative in f32)."""
    value = _float("tanh", x, f32, f16)
    current().need("tanh", 75, "7.0")
    return _value(value.dtype, f"tanh.approx.{value.dtype.name}", value.operand)


def _integral(name: str, x: Any, rounding: str) -> Scalar:
    value = _float(name, x, f32, f64, f16)
    return _value(value.dtype, f"cvt.{rounding}.{value.dtype.name}.{value.dtype.name}", value.operand)


def floor(x: Any) -> Scalar:
    """The nearest whole float below."""
    return _integral("floor", x, "rmi")


def ceil(x: Any) -> Scalar:
    """The nearest whole float above."""
    return _integral("ceil", x, "rpi")


def trunc(x: Any) -> Scalar:
    """The nearest whole float towards zero."""
    return _integral("trunc", x, "rzi")


def round(x: Any) -> Scalar:
    """The nearest whole float, ties to even."""
    return _integral("round", x, "rni")


def _extreme(name: str, values: tuple[Any, ...], nan: bool) -> Any:
    if len(values) < 2:
        raise current().error(f"lw.{name} takes two values or more")
    if not any(isinstance(each, Traced) for each in values):
        return (min_ if name == "min" else max_)(values)
    found = values[0]
    for each in values[1:]:
        if not isinstance(found, Traced) and not isinstance(each, Traced):
            found = (min_ if name == "min" else max_)((found, each))
            continue
        a, b = pair(name, found, each)
        dtype = a.dtype
        if dtype is pred or (not is_int(dtype) and not is_float(dtype) and dtype not in PAIRS):
            raise current().error(f"lw.{name} compares numbers, not {describe(a)}")
        if dtype in (f16, bf16) or dtype in PAIRS or nan:
            current().need(f"{name} of 16-bit floats, or with NaN", 80, "7.0")
        if nan and not (is_float(dtype) or dtype in PAIRS):
            raise current().error(f"nan=True is for floats, not {public(dtype)}")
        opcode = f"{name}{'.NaN' if nan else ''}.{dtype.name}"
        natural = a.natural and b.natural if name == "min" else a.natural or b.natural
        found = _value(dtype, opcode, a.operand, b.operand, natural=natural)
    return found


min_, max_ = min, max


def minimum(*values: Any, nan: bool = False) -> Any:
    """The least of several values; a NaN is passed over, or with nan=True is the outcome."""
    return _extreme("min", values, nan)


def maximum(*values: Any, nan: bool = False) -> Any:
    """The greatest of several values; a NaN is passed over, or with nan=True is the outcome."""
    return _extreme("max", values, nan)


def magnitude(x: Any) -> Any:
    """|x|."""
    return absolute(x) if isinstance(x, Scalar) else abs(x)


def isnan(x: Any) -> Scalar:
    """Whether a float is NaN."""
    value = _float("isnan", x, f32, f64, f16)
    return _value(pred, f"setp.nan.{value.dtype.name}", value.operand, value.operand)


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up, of integers, traced or not.

    >>> cdiv(10, 4)
    3
    """
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return -(-a // b)
    return floordiv(a + (b - 1), b)


def _bits(name: str, x: Any) -> Scalar:
    value = scalar(x, None, f"lw.{name}")
    if not is_int(value.dtype) or value.dtype.bits < 32:
        raise current().error(f"lw.{name} takes an integer of 32 or 64 bits, not {describe(value)}")
    return value


def popc(x: Any) -> Scalar:
    """How many bits are set, as i32."""
    value = _bits("popc", x)
    return _value(i32, f"popc.b{value.dtype.bits}", value.operand, natural=True)


def clz(x: Any) -> Scalar:
    """How many zeros lead, as i32."""
    value = _bits("clz", x)
    return _value(i32, f"clz.b{value.dtype.bits}", value.operand, natural=True)


def brev(x: Any) -> Scalar:
    """The bits in reverse order."""
    value = _bits("brev", x)
    return _value(value.dtype, f"brev.b{value.dtype.bits}", value.operand)


def mulhi(a: Any, b: Any) -> Scalar:
    """The high half of the product of two integers."""
    a, b = pair("lw.mulhi", a, b)
    _bits("mulhi", a)
    return _value(a.dtype, f"mul.hi.{a.dtype.name}", a.operand, b.operand)


def mul_wide(a: Any, b: Any) -> Scalar:
    """The whole product of two 32-bit integers, in 64 bits."""
    a, b = pair("lw.mul_wide", a, b)
    if a.dtype not in (i32, u32):
        raise current().error(f"lw.mul_wide takes i32 or u32, not {describe(a)}")
    return _value(i64 if a.dtype is i32 else u64, f"mul.wide.{a.dtype.name}", a.operand, b.operand)


def assume(x: Any, *, multiple_of: int = 1, nonnegative: bool = False) -> Any:
    """A value with a promise about it: widths of accesses and divisions are chosen by such knowledge.

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
        natural=x.natural or nonnegative,
    )


def select_bits(a: Any, b: Any, selector: Any) -> Scalar:
    """prmt: four bytes out of the eight of two words, chosen by the hexadecimal digits of a selector."""
    first, second = scalar(a, u32, "lw.prmt"), scalar(b, u32, "lw.prmt")
    chosen = scalar(selector, u32, "lw.prmt")
    return _value(u32, "prmt.b32", first.operand, second.operand, chosen.operand)
