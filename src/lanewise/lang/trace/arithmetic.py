"""Sums and products of numbers, negation and absolute values: the PTX instructions behind `+`, `-` and `*`.

Constants stay constants, and an integer keeps the constant added to it until an instruction needs the sum.
Floating arithmetic always states its rounding. Division is in `division.py`, bits in `bitwise.py`.
"""

from math import gcd
from typing import Any

from lanewise.formats import Format, bf16, f16, f32, f64
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import NARROW, compute, refuse_dtype, same_dtype_operands
from lanewise.lang.trace.scalar import OPERATORS, Scalar, literal
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import PAIRS, i32, i64, is_float, is_int, register_kind, u32, u64


def root_and_addend(a: Scalar) -> tuple[Scalar | None, int]:
    """Return an integer as (root, addend): a value in a register, or None, and the constant added to it."""
    if a.constant is not None:
        return None, a.constant
    return (a.root, a.addend) if a.root is not None else (a, 0)


def with_addend(root: Scalar | None, addend: int, dtype: Format, nonnegative: bool = False) -> Scalar:
    """Return the integer root + addend, which no instruction computes until it is needed."""
    limit = 1 << dtype.bits
    if root is None:
        if not dtype.min <= addend <= dtype.max:  # wraps, as registers do
            addend = (addend - int(dtype.min)) % limit + int(dtype.min)
        return literal(addend, dtype)
    if addend == 0:
        return root
    addend = (addend + limit // 2) % limit - limit // 2
    return Scalar(
        dtype, root=root, addend=addend, multiple=gcd(root.multiple, addend), nonnegative=nonnegative
    )


def add(a: object, b: object) -> Scalar:
    """Return a + b; of integers, constants are added while tracing."""
    a, b = same_dtype_operands("add", a, b)
    dtype = a.dtype
    if is_int(dtype) and dtype not in NARROW:
        (x, left), (y, right) = root_and_addend(a), root_and_addend(b)
        nonnegative = a.nonnegative and b.nonnegative
        if x is None or y is None:
            return with_addend(y if x is None else x, left + right, dtype, nonnegative)
        base = compute(
            dtype, f"add.{dtype.name}", x.operand, y.operand, multiple=gcd(x.multiple, y.multiple),
            nonnegative=x.nonnegative and y.nonnegative,
        )  # fmt: skip
        return with_addend(base, left + right, dtype, nonnegative)
    return _float("add", a, b)


def sub(a: object, b: object) -> Scalar:
    """Return a - b; of integers, constants are subtracted while tracing."""
    a, b = same_dtype_operands("sub", a, b)
    dtype = a.dtype
    if is_int(dtype) and dtype not in NARROW:
        (x, left), (y, right) = root_and_addend(a), root_and_addend(b)
        if y is None:
            return with_addend(x, left - right, dtype)
        if x is not None and x.register is not None and x.register is y.register:
            return with_addend(None, left - right, dtype)
        first = "0" if x is None else x.operand
        multiple = gcd(0 if x is None else x.multiple, y.multiple)
        base = compute(dtype, f"sub.{dtype.name}", first, y.operand, multiple=multiple)
        return with_addend(base, left - right, dtype)
    return _float("sub", a, b)


def mul(a: Any, b: Any) -> Scalar:
    """Return a · b; of integers, the low half of the product."""
    a, b = same_dtype_operands("mul", a, b)
    dtype = a.dtype
    if not is_int(dtype) or dtype in NARROW:
        return _float("mul", a, b)
    if a.constant is not None:
        a, b = b, a
    (x, left), factor = root_and_addend(a), b.constant
    nonnegative = a.nonnegative and b.nonnegative
    if factor is None or x is None:
        if x is None:
            return with_addend(None, left * int(factor or 0), dtype)
        multiple = a.multiple * b.multiple
        return compute(
            dtype, f"mul.lo.{dtype.name}", a.operand, b.operand, multiple=multiple, nonnegative=nonnegative
        )
    if factor == 0:
        return literal(0, dtype)
    if factor == 1:
        return with_addend(x, left, dtype, nonnegative)
    more: dict[str, Any] = {"multiple": x.multiple * abs(factor), "nonnegative": x.nonnegative and factor > 0}
    if factor > 0 and factor & (factor - 1) == 0:
        base = compute(dtype, f"shl.b{dtype.bits}", x.operand, str(factor.bit_length() - 1), **more)
    else:
        base = compute(dtype, f"mul.lo.{dtype.name}", x.operand, str(factor), **more)
    return with_addend(base, left * factor, dtype, nonnegative)


def _float(name: str, a: Scalar, b: Scalar) -> Scalar:
    """Return the sum, difference or product of floats, or of packed pairs of them."""
    dtype = a.dtype
    if dtype in (f32, f64, f16) or (dtype in PAIRS and PAIRS[dtype] is f16):
        return compute(dtype, f"{name}.rn.{dtype.name}", a.operand, b.operand)
    if dtype is bf16 or dtype in PAIRS:
        # sm_80 has the fused form alone; with 1, -1 or -0 as third number it rounds once, to the same bits
        current().need("arithmetic on bf16", 80, "7.0")
        one, minus, zero = ("0x3F80", "0xBF80", "0x8000")
        kind = register_kind(dtype)
        if kind == "b32":
            one, minus, zero = (f"{text}{text[2:]}" for text in (one, minus, zero))

        def number(text: str) -> Any:
            return current().define(f"mov.{kind}", kind, text)

        fma = f"fma.rn.{dtype.name}"
        if name == "add":
            return compute(dtype, fma, a.operand, number(one), b.operand)
        if name == "sub":
            return compute(dtype, fma, b.operand, number(minus), a.operand)
        return compute(dtype, fma, a.operand, b.operand, number(zero))
    advice = "convert it first, as in x.to(lw.i32)" if dtype in NARROW else "it has no arithmetic"
    refuse_dtype(name, dtype, advice)


def neg(a: Scalar) -> Scalar:
    """Return -a of an integer, a float or a packed pair of floats."""
    if a.constant is not None and not is_int(a.dtype):
        return Scalar(a.dtype, constant=-a.constant)
    if is_int(a.dtype):
        return sub(0, a)
    if is_float(a.dtype) or a.dtype in PAIRS:
        if a.dtype not in (f32, f64, f16):
            current().need("neg.bf16", 80, "7.0")
        return compute(a.dtype, f"neg.{a.dtype.name}", a.operand)
    refuse_dtype("-", a.dtype, "it is no number")


def power(a: Scalar, exponent: object) -> Scalar:
    """Return a ** n for n from 1 to 4, by multiplication."""
    if isinstance(exponent, int) and 1 <= exponent <= 4:
        product = a
        for _ in range(exponent - 1):
            product = mul(product, a)
        return product
    raise current().error("x ** n works for n = 1 to 4; otherwise use lw.exp2(n * lw.log2(x))")


def absolute(a: Scalar) -> Scalar:
    """Return the absolute value of a float or of a signed integer."""
    if not is_float(a.dtype) and not (is_int(a.dtype) and a.dtype.signed and a.dtype.bits > 8):
        refuse_dtype("abs", a.dtype, "it has no sign, or no arithmetic")
    if a.dtype is bf16:
        current().need("abs.bf16", 80, "7.0")
    return compute(a.dtype, f"abs.{a.dtype.name}", a.operand, nonnegative=True)


def mul_wide(a: object, b: object) -> Scalar:
    """Return the whole product of two 32-bit integers, in 64 bits."""
    a, b = same_dtype_operands("lw.mul_wide", a, b)
    if a.dtype not in (i32, u32):
        raise current().error(f"lw.mul_wide takes i32 or u32, not {describe(a)}")
    return compute(i64 if a.dtype is i32 else u64, f"mul.wide.{a.dtype.name}", a.operand, b.operand)


OPERATORS.update({"add": add, "sub": sub, "mul": mul, "pow": power, "neg": neg, "abs": absolute})
