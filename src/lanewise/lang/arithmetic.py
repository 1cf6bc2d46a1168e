"""Operators on scalars: which PTX instruction each one is, and what stays a constant or an unspent addend.

Importing this module gives `Scalar` its operators. Floating arithmetic always states its rounding.
"""

from __future__ import annotations

from functools import partial
from math import copysign, gcd
from typing import Any, NoReturn

from lanewise.formats import Format, bf16, f16, f32, f64, u8
from lanewise.lang.builder import current
from lanewise.lang.types import PAIRS, i8, i32, is_float, is_int, pred, register_kind
from lanewise.lang.values import (
    OPERATORS,
    Scalar,
    Traced,
    describe,
    is_number,
    literal,
    plain_number,
    public,
    refuse,
)

_BITS = ("and", "or", "xor")
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "min": "lw.min", "max": "lw.max", **_COMPARISONS,
}  # fmt: skip
_NARROW = (i8, u8)


def pair(name: str, a: Any, b: Any) -> tuple[Scalar, Scalar]:
    """Two operands of one type: a Python number takes the other's; two types are an error."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        if a.dtype == b.dtype:
            return a, b
        raise current().error(_mixed(name, a, b))
    if isinstance(a, Scalar):
        if not is_number(b):
            refuse(b, f"`{_SYMBOLS.get(name, name)}`")
        return a, literal(plain_number(b), a.dtype)
    if not is_number(a):
        refuse(a, f"`{_SYMBOLS.get(name, name)}`")
    assert isinstance(b, Scalar)
    return literal(plain_number(a), b.dtype), b


def _mixed(name: str, a: Scalar, b: Scalar) -> str:
    first, second = a.dtype, b.dtype
    wider = first if first.bits >= second.bits else second
    if is_float(first) != is_float(second):
        wider = first if is_float(first) else second
    narrow = b if wider is first else a
    return (
        f"`{_SYMBOLS.get(name, name)}` of {describe(a)} and {describe(b)}: types are never mixed silently; "
        f"convert one, as in {'b' if narrow is b else 'a'}.to(lw.{public(wider)})"
    )


def value_of(dtype: Format, opcode: str, *sources: Any, **more: Any) -> Scalar:
    return Scalar(dtype, current().define(opcode, register_kind(dtype), *sources), **more)


def refuse_dtype(name: str, dtype: Format, advice: str) -> NoReturn:
    raise current().error(f"`{_SYMBOLS.get(name, name)}` does not work on {public(dtype)}: {advice}")


# addition and multiplication ------------------------------------------------------------------------------


def split(a: Scalar) -> tuple[Scalar | None, int]:
    """An integer as (root, addend)."""
    if a.constant is not None:
        return None, a.constant
    return (a.root, a.addend) if a.root is not None else (a, 0)


def shifted(root: Scalar | None, addend: int, dtype: Format, natural: bool = False) -> Scalar:
    """root + addend, not computed yet."""
    limit = 1 << dtype.bits
    if root is None:
        if not dtype.min <= addend <= dtype.max:  # wraps, as registers do
            addend = (addend - int(dtype.min)) % limit + int(dtype.min)
        return literal(addend, dtype)
    if addend == 0:
        return root
    addend = (addend + limit // 2) % limit - limit // 2
    return Scalar(dtype, root=root, addend=addend, multiple=gcd(root.multiple, addend), natural=natural)


def add(a: Any, b: Any) -> Scalar:
    """a + b."""
    a, b = pair("add", a, b)
    dtype = a.dtype
    if is_int(dtype) and dtype not in _NARROW:
        (x, left), (y, right) = split(a), split(b)
        natural = a.natural and b.natural
        if x is None or y is None:
            return shifted(y if x is None else x, left + right, dtype, natural)
        base = value_of(
            dtype, f"add.{dtype.name}", x.operand, y.operand, multiple=gcd(x.multiple, y.multiple),
            natural=x.natural and y.natural,
        )  # fmt: skip
        return shifted(base, left + right, dtype, natural)
    return _float("add", a, b)


def sub(a: Any, b: Any) -> Scalar:
    """a - b."""
    a, b = pair("sub", a, b)
    dtype = a.dtype
    if is_int(dtype) and dtype not in _NARROW:
        (x, left), (y, right) = split(a), split(b)
        if y is None:
            return shifted(x, left - right, dtype)
        if x is not None and x.register is not None and x.register is y.register:
            return shifted(None, left - right, dtype)
        first = "0" if x is None else x.operand
        multiple = gcd(0 if x is None else x.multiple, y.multiple)
        base = value_of(dtype, f"sub.{dtype.name}", first, y.operand, multiple=multiple)
        return shifted(base, left - right, dtype)
    return _float("sub", a, b)


def mul(a: Any, b: Any) -> Scalar:
    """a · b; integers keep the low half."""
    a, b = pair("mul", a, b)
    dtype = a.dtype
    if not is_int(dtype) or dtype in _NARROW:
        return _float("mul", a, b)
    if a.constant is not None:
        a, b = b, a
    (x, left), factor = split(a), b.constant
    natural = a.natural and b.natural
    if factor is None or x is None:
        if x is None:
            return shifted(None, left * int(factor or 0), dtype)
        multiple = a.multiple * b.multiple
        return value_of(
            dtype, f"mul.lo.{dtype.name}", a.operand, b.operand, multiple=multiple, natural=natural
        )
    if factor == 0:
        return literal(0, dtype)
    if factor == 1:
        return shifted(x, left, dtype, natural)
    more: dict[str, Any] = {"multiple": x.multiple * abs(factor), "natural": x.natural and factor > 0}
    if factor > 0 and factor & (factor - 1) == 0:
        base = value_of(dtype, f"shl.b{dtype.bits}", x.operand, str(factor.bit_length() - 1), **more)
    else:
        base = value_of(dtype, f"mul.lo.{dtype.name}", x.operand, str(factor), **more)
    return shifted(base, left * factor, dtype, natural)


def _float(name: str, a: Scalar, b: Scalar) -> Scalar:
    """Addition, subtraction and multiplication of floats and of pairs of them."""
    dtype = a.dtype
    if dtype in (f32, f64, f16) or (dtype in PAIRS and PAIRS[dtype] is f16):
        return value_of(dtype, f"{name}.rn.{dtype.name}", a.operand, b.operand)
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
            return value_of(dtype, fma, a.operand, number(one), b.operand)
        if name == "sub":
            return value_of(dtype, fma, b.operand, number(minus), a.operand)
        return value_of(dtype, fma, a.operand, b.operand, number(zero))
    advice = "convert it first, as in x.to(lw.i32)" if dtype in _NARROW else "it has no arithmetic"
    refuse_dtype(name, dtype, advice)


def neg(a: Scalar) -> Scalar:
    """-a."""
    if a.constant is not None and not is_int(a.dtype):
        return Scalar(a.dtype, constant=-a.constant)
    if is_int(a.dtype):
        return sub(0, a)
    if is_float(a.dtype) or a.dtype in PAIRS:
        if a.dtype not in (f32, f64, f16):
            current().need("neg.bf16", 80, "7.0")
        return value_of(a.dtype, f"neg.{a.dtype.name}", a.operand)
    refuse_dtype("-", a.dtype, "it is no number")


def integers(name: str, a: Any, b: Any) -> tuple[Scalar, Scalar]:
    a, b = pair(name, a, b)
    if not is_int(a.dtype) or a.dtype in _NARROW:
        refuse_dtype(name, a.dtype, "it is for integers of 16 bits and more; convert with .to(lw.i32)")
    if b.constant == 0 and name in ("floordiv", "mod"):
        raise current().error(f"`{_SYMBOLS[name]}` by zero")
    return a, b


# bits -----------------------------------------------------------------------------------------------------


def bitwise(name: str, a: Any, b: Any) -> Scalar:
    """a & b, a | b, a ^ b: of integers bit by bit, of predicates as truth values."""
    a, b = pair(name, a, b)
    dtype = a.dtype
    if is_float(dtype):
        refuse_dtype(name, dtype, "it has no bits of its own; lw.bitcast(x, lw.u32) gives them")
    if a.constant is not None and b.constant is not None:
        x, y = a.constant, b.constant
        return literal({"and": x & y, "or": x | y, "xor": x ^ y}[name], dtype)
    for x, y in ((a, b), (b, a)):
        if y.constant is not None and (neutral := _neutral(name, x, y.constant)) is not None:
            return neutral
    natural = (name == "and" and (a.natural or b.natural)) or (a.natural and b.natural)
    multiple = 1
    if name == "and" and is_int(dtype):
        known = (a.constant if a.constant is not None else b.constant) or 1
        multiple = known & -known
    elif is_int(dtype):
        multiple = gcd(_two(a.multiple), _two(b.multiple))
    type = "pred" if dtype is pred else f"b{max(16, dtype.bits)}"
    return value_of(dtype, f"{name}.{type}", a.operand, b.operand, natural=natural, multiple=multiple)


def _two(number: int) -> int:
    """The power of two in a number."""
    return number & -number if number else 1 << 20


def _neutral(name: str, x: Scalar, constant: Any) -> Scalar | None:
    if x.dtype is pred:
        if name == "and":
            return x if constant else literal(False, pred)
        if name == "or":
            return literal(True, pred) if constant else x
        return invert(x) if constant else x
    if constant == 0:
        return literal(0, x.dtype) if name == "and" else x
    return None


def xor(a: Any, b: Any) -> Scalar:
    """a ^ b."""
    return bitwise("xor", a, b)


def invert(a: Scalar) -> Scalar:
    """~a: all bits of an integer, or the opposite of a predicate."""
    if a.constant is not None:
        return literal(not a.constant if a.dtype is pred else ~a.constant, a.dtype)
    if is_float(a.dtype):
        refuse_dtype("~", a.dtype, "it has no bits of its own; lw.bitcast(x, lw.u32) gives them")
    return value_of(a.dtype, "not.pred" if a.dtype is pred else f"not.b{max(16, a.dtype.bits)}", a.operand)


def _amount(b: Any) -> Any:
    if isinstance(b, Scalar):
        if not is_int(b.dtype) or b.dtype.bits != 32:
            raise current().error(f"a shift takes an i32 or u32 amount, not {describe(b)}: convert it")
        return b.operand
    if not isinstance(b, int) or isinstance(b, bool) or b < 0:
        raise current().error(f"a shift takes an amount of at least 0, not {describe(b)}")
    return str(b)


def lshift(a: Any, b: Any) -> Scalar:
    """a << b."""
    if isinstance(b, int) and not isinstance(b, bool) and 0 <= b < 31 and isinstance(a, Scalar):
        return mul(a, 1 << b)
    a = a if isinstance(a, Scalar) else literal(a, i32)
    a, _ = integers("lshift", a, a)
    return value_of(a.dtype, f"shl.b{a.dtype.bits}", a.operand, _amount(b))


def rshift(a: Any, b: Any, multiple: int = 1) -> Scalar:
    """a >> b: keeps the sign of signed types."""
    a = a if isinstance(a, Scalar) else literal(a, i32)
    a, _ = integers("rshift", a, a)
    if a.constant is not None and isinstance(b, int) and b >= 0:
        return literal(a.constant >> b, a.dtype)
    return value_of(
        a.dtype, f"shr.{a.dtype.name}", a.operand, _amount(b), natural=a.natural, multiple=multiple
    )


# comparison and choice ------------------------------------------------------------------------------------


def compare(name: str, a: Any, b: Any) -> Scalar:
    """A predicate: a < b and its kin. A NaN is unequal to everything."""
    a, b = pair(name, a, b)
    dtype = a.dtype
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
        test = f"setp.{name}.{_compared(dtype)}"
    else:
        test = f"setp.{name}.b{dtype.bits}"
    return value_of(pred, test, a.operand, b.operand)


def _compared(dtype: Format) -> str:
    return dtype.name if dtype.bits >= 16 else f"{dtype.name[0]}16"


def where(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b: both are computed, and one is chosen.

    Inside a kernel: `lw.where(x > 0, x, 0.0)`.
    """
    from lanewise.lang.trees import map_leaves

    if not isinstance(condition, Traced):
        return a if condition else b
    test = truth(condition)
    if test.constant is not None:
        return a if test.constant else b
    return map_leaves(lambda x, y: select(test, x, y), a, b, what="lw.where")


def select(test: Scalar, x: Any, y: Any) -> Scalar:
    signs = isinstance(x, float) and isinstance(y, float) and copysign(1, x) != copysign(1, y)
    known = not signs and not isinstance(x, Traced) and not isinstance(y, Traced)
    if x is y or (known and type(x) is type(y) and x == y):
        return x  # type: ignore[no-any-return]  # both branches are one value, whatever it is
    if not isinstance(x, Scalar) and not isinstance(y, Scalar):
        from lanewise.lang.values import scalar

        x = scalar(x, f32 if isinstance(y, float) else None, "lw.where")
    x, y = pair("lw.where", x, y)
    if x.dtype is pred:
        return bitwise("or", bitwise("and", test, x), bitwise("and", invert(test), y))
    natural = x.natural and y.natural
    opcode = f"selp.{register_kind(x.dtype)}"
    return value_of(
        x.dtype,
        opcode,
        x.operand,
        y.operand,
        test.operand,
        natural=natural,
        multiple=gcd(x.multiple, y.multiple),
    )


def truth(value: Any) -> Scalar:
    """A condition as a predicate: a number counts as true if it is not zero."""
    if isinstance(value, Scalar):
        if value.dtype is pred:
            return value
        if is_int(value.dtype) or is_float(value.dtype):
            return compare("ne", value, 0)
    if isinstance(value, bool):
        return literal(value, pred)
    raise current().error(f"a condition is a comparison or a number, not {describe(value)}")


def power(a: Scalar, exponent: Any) -> Scalar:
    """a ** n for small n, by multiplication."""
    if isinstance(exponent, int) and 1 <= exponent <= 4:
        found = a
        for _ in range(exponent - 1):
            found = mul(found, a)
        return found
    raise current().error("x ** n works for n = 1 to 4; otherwise use lw.exp2(n * lw.log2(x))")


def absolute(a: Scalar) -> Scalar:
    """|a|."""
    if not is_float(a.dtype) and not (is_int(a.dtype) and a.dtype.signed and a.dtype.bits > 8):
        refuse_dtype("abs", a.dtype, "it has no sign, or no arithmetic")
    if a.dtype is bf16:
        current().need("abs.bf16", 80, "7.0")
    return value_of(a.dtype, f"abs.{a.dtype.name}", a.operand, natural=True)


OPERATORS.update(
    {
        "add": add, "sub": sub, "mul": mul, 
        "lshift": lshift, "rshift": rshift, "compare": compare, "pow": power, "neg": neg, "invert": invert,
        "abs": absolute, **{name: partial(bitwise, name) for name in _BITS},
    }
)  # fmt: skip
