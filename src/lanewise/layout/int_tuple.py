"""Int tuples: an integer or a nested tuple of them, and the arithmetic of shapes, strides and coordinates.

The ground of the layout algebra; what a Layout is and does lives in the modules above.
"""

import operator
from abc import ABC
from collections.abc import Iterator
from numbers import Integral
from typing import Any, NoReturn, TypeAlias

from lanewise.errors import LanewiseError

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
Coord: TypeAlias = "int | tuple[Coord, ...] | None"
#: A shape, stride, coordinate or offset as the algebra computes with it: nested tuples of integers, or of
#: what adds and multiplies as integers do (basis vectors, kernel values, arrays of coordinates). mypy cannot
#: say that.
Nested: TypeAlias = Any


class Integer(ABC):  # noqa: B024 (a type test, not an interface: pycute's name for "counts as an integer")
    """The integers that layouts are made of: int and NumPy's integers, not bool.

    >>> isinstance(3, Integer), isinstance(True, Integer), isinstance(3.0, Integer)
    (True, False, False)
    """

    @classmethod
    def __subclasshook__(cls, c: type) -> bool:
        return issubclass(c, Integral) and not issubclass(c, bool)


def is_int(x: object) -> bool:
    """Whether x is an integer.

    >>> is_int(3), is_int((3,)), is_int(True)
    (True, False, False)
    """
    return type(x) is int or isinstance(x, Integer)


def is_tuple(x: object) -> bool:
    """Whether x is a tuple.

    >>> is_tuple((3, 4)), is_tuple(3)
    (True, False)
    """
    return isinstance(x, tuple)


def as_int(x: Any) -> int:
    """x as a plain int, so that no NumPy integer overflows further on.

    >>> as_int(7)
    7
    """
    if type(x) is int:
        return x
    if is_int(x):
        return operator.index(x)
    raise LanewiseError(
        f"{x!r} is not an integer: int tuples are made of int and of tuples of int{as_tuple(x)}"
    )


def as_tuple(x: object) -> str:
    """Return the end of a message about a list or an array that should be a tuple; empty for others.

    >>> as_tuple([4, 8]), as_tuple(4.5)
    ('; write the tuple (4, 8)', '')
    """
    values = x.tolist() if hasattr(x, "tolist") else x
    return f"; write the tuple {tuple(values)}" if isinstance(values, list) else ""


def spell(a: object) -> str:
    """An int tuple the way CuTe writes it, without blanks.

    >>> spell(((4, 8), (2,)))
    '((4,8),(2,))'
    """
    if isinstance(a, tuple):
        return f"({','.join(map(spell, a))}{',' if len(a) == 1 else ''})"
    return "_" if a is None else str(a)


def _mismatch(name: str, a: object, b: object) -> NoReturn:
    raise LanewiseError(
        f"{name}: {spell(a)} and {spell(b)} have different profiles; give two tuples with as many modes each"
    )


def _pairs(name: str, a: tuple[object, ...], b: object) -> Iterator[tuple[Nested, Nested]]:
    if not isinstance(b, tuple) or len(a) != len(b):
        _mismatch(name, a, b)
    return zip(a, b, strict=True)


def flatten(t: object) -> tuple[Nested, ...]:
    """The leaves of a nested tuple, in order; anything that is no tuple is a leaf.

    >>> flatten((1, (2, (3,))))
    (1, 2, 3)
    """
    if not isinstance(t, tuple):
        return (t,)
    leaves: list[object] = []
    for x in t:
        leaves += flatten(x)
    return tuple(leaves)


def unflatten(flat: tuple[object, ...], profile: object) -> Nested:
    """The leaves of flat, nested like profile.

    >>> unflatten((1, 2, 3), (0, (0, 0)))
    (1, (2, 3))
    """
    if not isinstance(flat, tuple) or len(flat) != len(flatten(profile)):
        _mismatch("unflatten", flat, profile)
    leaves = iter(flat)

    def fill(p: object) -> Nested:
        return tuple(fill(x) for x in p) if isinstance(p, tuple) else next(leaves)

    return fill(profile)


def signum(a: int) -> int:
    """-1, 0 or 1 by the sign of a.

    >>> signum(-3), signum(0), signum(5)
    (-1, 0, 1)
    """
    a = as_int(a)
    return (a > 0) - (a < 0)


def product(a: IntTuple) -> int:
    """The product of all leaves.

    >>> product(((2, 3), 4))
    24
    """
    if isinstance(a, tuple):
        result = 1
        for x in a:
            result *= product(x)
        return result
    return as_int(a)


def product_each(a: IntTuple) -> IntTuple:
    """The product of each mode.

    >>> product_each(((2, 3), 4))
    (6, 4)
    """
    return tuple(product(x) for x in a) if isinstance(a, tuple) else as_int(a)


def inner_product(a: IntTuple, b: IntTuple) -> int:
    """The sum of products of corresponding leaves.

    >>> inner_product(((2, 3), 4), ((2, 1), 2))
    15
    """
    if isinstance(a, tuple):
        return sum(inner_product(x, y) for x, y in _pairs("inner_product", a, b))
    if isinstance(b, tuple):
        _mismatch("inner_product", a, b)
    return as_int(a) * as_int(b)


def tuple_max(a: IntTuple) -> int:
    """The greatest of the integers in a nested tuple.

    >>> tuple_max((3, (7, 2)))
    7
    """
    if isinstance(a, tuple):
        if not a:
            raise LanewiseError("tuple_max: the empty tuple has no greatest leaf")
        return max(tuple_max(x) for x in a)
    return as_int(a)


def elem_scale(a: IntTuple, b: IntTuple) -> IntTuple:
    """Each leaf of a times what stands at its place in b, a whole sub-tuple counting as its product.

    >>> elem_scale((2, 3), (5, (2, 2)))
    (10, 12)
    """
    if isinstance(a, tuple):
        return tuple(elem_scale(x, y) for x, y in _pairs("elem_scale", a, b))
    return as_int(a) * product(b)


def ceil_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """a / b rounded up, leaf by leaf; an integer b is used up along a tuple a, as in shape_div.

    >>> ceil_div((10, 7), (4, 2)), ceil_div(10, 4), ceil_div((4, 8), 8)
    ((3, 4), 3, (1, 4))
    """
    return _divide("ceil_div", a, b, exact=False)


def shape_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """The shape left of a when b of its elements are taken from the front; one must divide the other.

    >>> shape_div((3, 4), 6), shape_div((6, (3, 4)), 36)
    ((1, 2), (1, (1, 2)))
    """
    return _divide("shape_div", a, b, exact=True)


def _divide(name: str, a: IntTuple, b: IntTuple, exact: bool) -> IntTuple:
    if isinstance(a, tuple):
        if isinstance(b, tuple):
            return tuple(_divide(name, x, y, exact) for x, y in _pairs(name, a, b))
        result = []
        for x in a:
            result.append(_divide(name, x, b, exact))
            b = _divide(name, b, product(x), exact)
        return tuple(result)
    a, b = as_int(a), product(b)
    if b == 0:
        raise LanewiseError(f"{name}({a}, 0): division by zero")
    if not exact or a % b == 0:
        return -(-a // b)
    if a != 0 and b % a == 0:
        return signum(a * b)
    raise LanewiseError(
        f"{name}({a}, {b}): neither number divides the other; use a multiple or a divisor of {a}"
    )


def prefix_product(a: IntTuple, init: IntTuple = 1) -> IntTuple:
    """Exclusive prefix products: the strides of a compact layout whose first mode runs fastest.

    >>> prefix_product(((2, 3), 4))
    ((1, 2), 6)
    """
    return _exclusive_products("prefix_product", a, init, 1)


def suffix_product(a: IntTuple, init: IntTuple = 1) -> IntTuple:
    """Exclusive suffix products: the strides of a compact layout whose last mode runs fastest.

    >>> suffix_product(((2, 3), 4))
    ((12, 4), 1)
    """
    return _exclusive_products("suffix_product", a, init, -1)


def _exclusive_products(name: str, a: IntTuple, init: IntTuple, step: int) -> IntTuple:
    """Products of what stands before each integer, in the order of a step through every tuple."""
    if isinstance(a, tuple):
        if isinstance(init, tuple):
            return tuple(_exclusive_products(name, x, i, step) for x, i in _pairs(name, a, init))
        result = []
        for x in a[::step]:
            result.append(_exclusive_products(name, x, init, step))
            init = init * product(x)
        return tuple(result[::step])
    if isinstance(init, tuple):
        _mismatch(name, a, init)
    return as_int(init)
