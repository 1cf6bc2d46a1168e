"""Comparisons, conditions and the choice between two values: `<` and its kin, `lw.where`.

Branches on a condition are traced by `frontend/control_flow.py`.
"""

from __future__ import annotations

from math import copysign, gcd
from typing import Any

from lanewise.formats import Format, bf16, f32
from lanewise.lang.trace.bitwise import bitwise, invert
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import compute, refuse_dtype, same_dtype_operands
from lanewise.lang.trace.pytrees import map_leaves
from lanewise.lang.trace.scalar import OPERATORS, Scalar, literal, scalar
from lanewise.lang.trace.traced import Traced, describe
from lanewise.lang.trace.types import is_float, is_int, pred, register_kind

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
        test = f"setp.{name}.{_compared_type(dtype)}"
    else:
        test = f"setp.{name}.b{dtype.bits}"
    return compute(pred, test, a.operand, b.operand)


def _require_comparable(name: str, dtype: Format) -> None:
    """Raise an error for a comparison that PTX does not have: of small floats, and the order of pairs."""
    if dtype.kind != "bits":
        refuse_dtype(name, dtype, "convert it first, as in x.to(lw.f32)")
    if dtype.bits < 16 or name not in ("eq", "ne"):
        refuse_dtype(name, dtype, "lw.unpack(x) gives its two values")


def _compared_type(dtype: Format) -> str:
    """Return the type by which PTX compares an integer dtype: bytes lie in 16-bit registers."""
    return dtype.name if dtype.bits >= 16 else f"{dtype.name[0]}16"


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


OPERATORS["compare"] = compare
