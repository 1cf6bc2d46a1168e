"""What the operators share: operands of one dtype, errors in the words of the operator, pure instructions.

The operators themselves are in `arithmetic.py`, `division.py`, `bitwise.py` and `compare.py`.
"""

from typing import Any, NoReturn

from lanewise.formats import Format, u8
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar, literal
from lanewise.lang.trace.traced import describe, is_number, plain_number, refuse
from lanewise.lang.trace.types import PAIRS, dtype_name, i8, is_float, is_int, register_kind

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
#: How messages write an operator.
_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "min": "lw.min", "max": "lw.max", **_COMPARISONS,
}  # fmt: skip
#: Integers that PTX loads and stores, but has no arithmetic for.
NARROW = (i8, u8)


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
    assert isinstance(b, Scalar)
    return number_operand(name, a, b.dtype), b


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
