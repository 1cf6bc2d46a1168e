"""Operators of traced numbers: the PTX instructions behind Python's `+`, `//`, `&`, `<`, …, and `lw.where`.

Importing this module gives `Scalar` its operators. Constants stay constants, and an integer keeps the
constant added to it until an instruction needs the sum. Floating arithmetic always states its rounding.
Conversions are in `convert.py`; branches on a condition are traced by `frontend/control_flow.py`.
"""

from __future__ import annotations

from functools import partial
from math import copysign, gcd
from typing import Any, NoReturn

from lanewise.formats import Format, bf16, f16, f32, f64, u8
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import OPERATORS, Scalar, literal, scalar
from lanewise.lang.trace.traced import Traced, describe, is_number, map_leaves, plain_number, refuse
from lanewise.lang.trace.types import (
    PAIRS,
    dtype_name,
    i8,
    i32,
    i64,
    is_float,
    is_int,
    pred,
    register_kind,
    u32,
    u64,
)

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
#: How messages write an operator.
_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "min": "lw.min", "max": "lw.max", **_COMPARISONS,
}  # fmt: skip
#: Integers that PTX loads and stores, but has no arithmetic for.
NARROW = (i8, u8)
#: Bits by which a number that is not negative is shifted at most, to be still taken for one: more move the
#: bits of a word, and are not for an index.
_SHIFT_OF_INDEX = 7


def same_dtype_operands(name: str, a: object, b: object) -> tuple[Scalar, Scalar]:
    """Return two operands of one dtype: a Python number takes the other's; two dtypes are an error."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        if a.dtype == b.dtype:
            return a, b
        raise current().error(_mixed_dtypes(name, a, b))
    if isinstance(a, Scalar):
        if not is_number(b):
            refuse(b, f"`{_SYMBOLS.get(name, name)}`")
        return a, number_operand(name, b, a.dtype)
    if not is_number(a):
        refuse(a, f"`{_SYMBOLS.get(name, name)}`")
    if isinstance(b, Scalar):
        return number_operand(name, a, b.dtype), b
    if not is_number(b):
        refuse(b, f"`{_SYMBOLS.get(name, name)}`")
    first = scalar(a, f32 if isinstance(b, float) else None, f"`{_SYMBOLS.get(name, name)}`")
    return first, number_operand(name, b, first.dtype)


def number_operand(name: str, value: object, dtype: Format) -> Scalar:
    """Return a Python number as the other operand of an operator; a pair takes none but bits and 0."""
    number = plain_number(value)
    if dtype in PAIRS and number != 0 and name not in ("and", "or", "xor"):
        half = f"lw.{dtype_name(PAIRS[dtype])}({number!r})"
        refuse_dtype(name, dtype, f"{number!r} is one number, and it takes two: lw.pack({half}, {half})")
    return literal(number, dtype)


def _mixed_dtypes(name: str, a: Scalar, b: Scalar) -> str:
    """Return the message that two dtypes are not mixed, and which of them to convert."""
    first, second = a.dtype, b.dtype
    wider = first if first.bits >= second.bits else second
    if is_float(first) != is_float(second):
        wider = first if is_float(first) else second
    narrow = b if wider is first else a
    return (
        f"`{_SYMBOLS.get(name, name)}` of {describe(a)} and {describe(b)}: types are never mixed silently; "
        f"convert one, as in {'b' if narrow is b else 'a'}.to(lw.{dtype_name(wider)})"
    ) + (_first_value(narrow) if is_float(wider) else "")


def _first_value(value: Scalar) -> str:
    """Return, for a variable that was a Python integer before a loop, what to write there for a float."""
    for part in current().open_control_flow:
        named = part.first_number(value.register) if part.repeats else None
        if named is not None:
            name, first = named
            return f". {name} is an integer because it is {first} before the loop: write {first}.0 there"
    return ""


def compute(dtype: Format, opcode: str, *sources: Any, **more: Any) -> Scalar:
    """Return the outcome of a pure instruction as a Scalar of a dtype."""
    return Scalar(dtype, current().define(opcode, register_kind(dtype), *sources), **more)


def refuse_dtype(name: str, dtype: Format, advice: str) -> NoReturn:
    """Raise the error that an operator does not work on a dtype, with advice what to do instead."""
    raise current().error(f"`{_SYMBOLS.get(name, name)}` does not work on {dtype_name(dtype)}: {advice}")


def integer_operands(name: str, a: object, b: object) -> tuple[Scalar, Scalar]:
    """Return two operands of one integer dtype of at least 16 bits.

    It raises an error for others and for division by 0.
    """
    a, b = same_dtype_operands(name, a, b)
    if not is_int(a.dtype) or a.dtype in NARROW:
        refuse_dtype(name, a.dtype, "it is for integers of 16 bits and more; convert with .to(lw.i32)")
    if b.constant == 0 and name in ("floordiv", "mod"):
        raise current().error(f"`{_SYMBOLS[name]}` by zero")
    return a, b


# sums, products and signs -------------------------------------------------------------------------------


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
        dtype, root=root, addend=addend, multiple=gcd(root.multiple, addend),
        nonnegative=nonnegative and abs(addend) < limit // 4,
    )  # fmt: skip


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
    grows = 0 < factor < 1 << dtype.bits // 2  # as an index does; a larger factor scatters a word's bits
    nonnegative = nonnegative and grows
    more: dict[str, Any] = {"multiple": x.multiple * abs(factor), "nonnegative": x.nonnegative and grows}
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
    """Return the absolute value of a float, of two in a register, or of a signed integer."""
    floats = is_float(a.dtype) or a.dtype in PAIRS
    if not floats and not (is_int(a.dtype) and a.dtype.signed and a.dtype.bits > 8):
        refuse_dtype("abs", a.dtype, "it has no sign, or no arithmetic; x.to(lw.i32) of 8 bits has one")
    if PAIRS.get(a.dtype, a.dtype) is bf16:
        current().need(f"abs.{a.dtype.name}", 80, "7.0")
    return compute(a.dtype, f"abs.{a.dtype.name}", a.operand)  # of the least integer it is negative


def mul_wide(a: object, b: object) -> Scalar:
    """Return the whole product of two 32-bit integers, in 64 bits."""
    a, b = same_dtype_operands("lw.mul_wide", a, b)
    if a.dtype not in (i32, u32):
        raise current().error(f"lw.mul_wide takes i32 or u32, not {describe(a)}")
    return compute(i64 if a.dtype is i32 else u64, f"mul.wide.{a.dtype.name}", a.operand, b.operand)


# bits ---------------------------------------------------------------------------------------------------


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


def invert(a: Scalar) -> Scalar:
    """Return ~a: an integer with all its bits flipped, or the opposite of a predicate."""
    if a.constant is not None:
        if a.dtype is pred:
            return literal(not a.constant, pred)
        return literal(~a.constant if a.dtype.signed else a.constant ^ int(a.dtype.max), a.dtype)
    if is_float(a.dtype):
        refuse_dtype("~", a.dtype, "it has no bits of its own; lw.bitcast(x, lw.u32) gives them")
    if a.dtype is u8:  # whose register has zeros above its bits
        return compute(u8, "xor.b16", a.operand, "0xFF")
    return compute(a.dtype, "not.pred" if a.dtype is pred else f"not.b{max(16, a.dtype.bits)}", a.operand)


def _shift_amount(b: object) -> object:
    """Return the operand for the number of bits to shift by; an error unless it is i32, u32 or at least 0."""
    if isinstance(b, Scalar):
        if not is_int(b.dtype) or b.dtype.bits != 32:
            raise current().error(f"a shift takes an i32 or u32 amount, not {describe(b)}: convert it")
        return b.operand
    if not isinstance(b, int) or isinstance(b, bool) or b < 0:
        raise current().error(f"a shift takes an amount of at least 0, not {describe(b)}")
    return str(min(b, int(u32.max)))  # as any that is larger than the type


def _type_of_amount(b: object) -> Format:
    """Return the type of a Python number that is shifted: that of the amount."""
    return u32 if isinstance(b, Scalar) and b.dtype is u32 else i32


def lshift(a: object, b: object) -> Scalar:
    """Return a << b: the product with a power of two if that is small."""
    a = a if isinstance(a, Scalar) else literal(a, _type_of_amount(b))
    a, _ = integer_operands("lshift", a, a)
    if isinstance(b, int) and not isinstance(b, bool) and b >= 0 and 1 << min(b, 64) <= a.dtype.max:
        moved = mul(a, 1 << b)
        if b > _SHIFT_OF_INDEX and moved.constant is None:
            moved.nonnegative = False
        return moved
    return compute(a.dtype, f"shl.b{a.dtype.bits}", a.operand, _shift_amount(b))


def rshift(a: Any, b: Any, multiple: int = 1) -> Scalar:
    """Return a >> b, which keeps the sign of signed dtypes."""
    a = a if isinstance(a, Scalar) else literal(a, _type_of_amount(b))
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


# comparisons and choice ---------------------------------------------------------------------------------


#: The comparison that holds when its operands change sides.
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def compare(name: str, a: object, b: object) -> Scalar:
    """Return the predicate of a comparison, such as a < b. A NaN is unequal to everything."""
    a, b = same_dtype_operands(name, a, b)
    dtype = a.dtype
    if not is_int(dtype) and not is_float(dtype) and dtype is not pred:
        _require_comparable(name, dtype)
    if a.constant is not None and b.constant is not None:
        x, y = a.constant, b.constant
        outcomes = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}
        return literal(outcomes[name], pred)
    if dtype is pred:
        if name not in ("eq", "ne"):
            refuse_dtype(name, dtype, "truth values are equal or not")
        differs = bitwise("xor", a, b)
        return differs if name == "ne" else invert(differs)
    if dtype is bf16:  # comparing takes sm_90; the values are f32's, too
        return compare(name, a.to(f32), b.to(f32))
    if a.constant is not None:
        a, b, name = b, a, _SWAPPED[name]
    if is_float(dtype):
        test = f"setp.{'neu' if name == 'ne' else name}.{dtype.name}"
    elif is_int(dtype):
        # bytes lie in 16-bit registers
        test = f"setp.{name}.{dtype.name if dtype.bits >= 16 else f'{dtype.name[0]}16'}"
    else:
        test = f"setp.{name}.b{dtype.bits}"
    return compute(pred, test, a.operand, b.operand)


def _require_comparable(name: str, dtype: Format) -> None:
    """Raise an error for a comparison that PTX does not have: small floats, pairs, the order of bits."""
    if dtype.kind != "bits":
        refuse_dtype(name, dtype, "convert it first, as in x.to(lw.f32)")
    if dtype in PAIRS and name in ("eq", "ne"):
        advice = "lw.unpack(x) gives its two values, and lw.bitcast(x, lw.u32) its bits"
        refuse_dtype(name, dtype, advice)
    if dtype.bits < 16 or name not in ("eq", "ne"):
        refuse_dtype(name, dtype, "lw.unpack(x) gives its two values")


def where(condition: object, a: object, b: object) -> Any:
    """Return a where the condition holds, else b: both are computed, and one is chosen.

    Inside a kernel: `lw.where(x > 0, x, 0.0)`.
    """
    if not isinstance(condition, Traced):
        return a if condition else b
    test = as_predicate(condition)
    if test.constant is not None:
        return a if test.constant else b
    return map_leaves(lambda x, y: select(test, x, y), a, b, what="lw.where")


def select(test: Scalar, x: Any, y: Any) -> Scalar:
    """Return one scalar where a predicate holds and another where it does not.

    No instruction if they are one.
    """
    signs = isinstance(x, float) and isinstance(y, float) and copysign(1, x) != copysign(1, y)
    known = not signs and not isinstance(x, Traced) and not isinstance(y, Traced)
    if x is y or (known and type(x) is type(y) and x == y):
        return x  # type: ignore[no-any-return]  # both branches are one value, whatever it is
    if not isinstance(x, Scalar) and not isinstance(y, Scalar):
        x = scalar(x, f32 if isinstance(y, float) else None, "lw.where")
    x, y = same_dtype_operands("lw.where", x, y)
    if x.dtype is pred:
        return bitwise("or", bitwise("and", test, x), bitwise("and", invert(test), y))
    nonnegative = x.nonnegative and y.nonnegative
    opcode = f"selp.{register_kind(x.dtype)}"
    return compute(
        x.dtype,
        opcode,
        x.operand,
        y.operand,
        test.operand,
        nonnegative=nonnegative,
        multiple=gcd(x.multiple, y.multiple),
    )


def as_predicate(value: object) -> Scalar:
    """Return a condition as a predicate: a number counts as true if it is not zero."""
    if isinstance(value, Scalar):
        if value.dtype is pred:
            return value
        if is_int(value.dtype) or is_float(value.dtype):
            return compare("ne", value, 0)
    if isinstance(value, bool):
        return literal(value, pred)
    hint = value.AS_CONDITION if isinstance(value, Traced) else ""
    raise current().error(f"a condition is a comparison or a number, not {describe(value)}{hint}")


# division -----------------------------------------------------------------------------------------------


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
    inexact = compare("ne", remainder, 0) & compare("lt", remainder ^ b, 0)
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
    other_sign = compare("ne", remainder, 0) & compare("lt", remainder ^ b, 0)
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


OPERATORS.update(
    {
        **{"add": add, "sub": sub, "mul": mul, "pow": power, "neg": neg, "abs": absolute},
        **{"truediv": truediv, "floordiv": floordiv, "mod": mod},
        **{name: partial(bitwise, name) for name in ("and", "or", "xor")},
        **{"invert": invert, "lshift": lshift, "rshift": rshift, "compare": compare},
    }
)
