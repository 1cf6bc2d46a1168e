"""Modes: rank and depth, choosing, adding and regrouping top-level modes, and how two profiles relate.

Relations (congruent, compatible, and their one-sided weak forms) hold between shapes; a layout or a tensor
counts as its shape. What keeps the function of a layout but changes its modes by value (coalesce, with_shape)
is elsewhere.
"""

from collections.abc import Callable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.coordinates import dice as dice_tuple
from lanewise.layout.int_tuple import Nested, as_int, is_int, product
from lanewise.layout.layout import Layout, Mapped, on_domain


def rank(x: object) -> int:
    """How many modes a layout, a tensor or an int tuple has.

    >>> rank(Layout(((2, 2), 4))), rank(4)
    (2, 1)
    """
    x = shape_of(x)
    return len(x) if isinstance(x, tuple) else 1


def depth(x: object) -> int:
    """How deep a layout, a tensor or an int tuple is nested.

    >>> depth(Layout(((2, 2), 4))), depth((2, 2)), depth(4)
    (2, 1, 0)
    """
    x = shape_of(x)
    return 1 + max(map(depth, x), default=0) if isinstance(x, tuple) else 0


def shape_of(x: object) -> Nested:
    """The shape of a layout or a tensor; anything else is taken for a shape."""
    while isinstance(x, Mapped):
        x = x.shape if isinstance(x, Layout) else x._domain()
    return x


def _on_tuples(x: object, f: Callable[[tuple[object, ...]], tuple[object, ...]]) -> object:
    """f on a tuple, or on both the shape and the stride of a layout."""
    if isinstance(x, Layout):
        shape = x.shape if isinstance(x.shape, tuple) else (x.shape,)
        stride = x.stride if isinstance(x.stride, tuple) else (x.stride,)
        return Layout._of(f(shape), f(stride))
    if isinstance(x, Mapped):
        return x._on(_on_tuples(x._domain(), f))
    return f(x if isinstance(x, tuple) else (x,))


def select(x: object, *modes: int) -> Any:
    """The given modes, in the given order.

    >>> select(Layout((2, 3, 5)), 2, 0), select((2, 3, 5), 1)
    ((5,2):(6,1), (3,))
    """
    _check_modes("select", x, modes)
    return _on_tuples(x, lambda t: tuple(t[i] for i in modes))


def take(x: object, begin: int, end: int) -> Any:
    """The modes from begin up to, not including, end.

    >>> take(Layout((2, 3, 5)), 1, 3)
    (3,5):(2,6)
    """
    _check_range("take", x, begin, end)
    return _on_tuples(x, lambda t: t[begin:end])


def group(x: object, begin: int, end: int) -> Any:
    """The modes from begin up to, not including, end made one.

    >>> group(Layout((2, 3, 5)), 0, 2), group((2, 3, 5), 1, 3)
    (((2,3),5):((1,2),6), (2, (3, 5)))
    """
    _check_range("group", x, begin, end)
    return _on_tuples(x, lambda t: (*t[:begin], t[begin:end], *t[end:]))


def replace(x: object, mode: int, new: object) -> Any:
    """x with another mode in place of one.

    >>> replace(Layout((2, 3)), 1, Layout(4, 10))
    (2,4):(1,10)
    """
    _check_modes("replace", x, (mode,))
    return _with_new(x, new, lambda t, n: (*t[:mode], n, *t[mode + 1 :]))


def append(x: object, new: object = None, rank: int | None = None) -> Any:
    """x with a mode added at the end (1:0, in a tuple 1, if none is given), or added until it has a rank.

    >>> append(Layout(4), Layout(2, 8)), append((4, 5), 1, rank=4)
    ((4,2):(1,8), (4, 5, 1, 1))
    """
    missing = _missing("append", x, rank)
    return _with_new(x, new, lambda t, n: (*t, *(n,) * missing)) if missing else x


def prepend(x: object, new: object = None, rank: int | None = None) -> Any:
    """x with a mode added at the front, as append does at the end.

    >>> prepend(Layout(4), Layout(2, 8))
    (2,4):(8,1)
    """
    missing = _missing("prepend", x, rank)
    return _with_new(x, new, lambda t, n: (*(n,) * missing, *t)) if missing else x


def _missing(name: str, x: object, wanted: int | None) -> int:
    if wanted is None:
        return 1
    if as_int(wanted) < rank(x):
        raise LanewiseError(f"{name}: {x} has {rank(x)} modes already, so rank {wanted} is too small")
    return wanted - rank(x)


def _with_new(
    x: object, new: object, f: Callable[[tuple[object, ...], object], tuple[object, ...]]
) -> object:
    if isinstance(x, Layout):
        new = Layout(1, 0) if new is None else new
        if not isinstance(new, Layout):
            raise LanewiseError(f"the new mode of a layout is a Layout, not {new!r}")
        shape = x.shape if isinstance(x.shape, tuple) else (x.shape,)
        stride = x.stride if isinstance(x.stride, tuple) else (x.stride,)
        return Layout._of(f(shape, new.shape), f(stride, new.stride))
    if isinstance(x, Mapped):
        return x._on(_with_new(x._domain(), new, f))
    return f(x if isinstance(x, tuple) else (x,), 1 if new is None else new)


def dice(crd: Nested, x: object) -> Any:
    """The modes that crd fixes, of a layout or a tuple: the rest of a slice.

    >>> dice((None, 3), Layout((4, 8)))
    (8,):(4,)
    """
    if isinstance(x, Mapped):
        return _dice_domain(x, crd)
    return dice_tuple(crd, x)


@on_domain
def _dice_domain(layout: Layout, crd: Nested) -> Layout:
    return Layout._of(dice_tuple(crd, layout.shape), dice_tuple(crd, layout.stride))


def _check_modes(name: str, x: object, modes: tuple[int, ...]) -> None:
    for i in modes:
        if not is_int(i) or not -rank(x) <= i < rank(x):
            raise LanewiseError(f"{name}: {x} has modes 0 to {rank(x) - 1}; there is no mode {i!r}")


def _check_range(name: str, x: object, begin: int, end: int) -> None:
    if not (is_int(begin) and is_int(end) and 0 <= begin < end <= rank(x)):
        raise LanewiseError(f"{name}: {begin!r} to {end!r} is no range of the {rank(x)} modes of {x}")


def _fit(a: Any, b: Any, fits: Callable[[Any, Any], bool]) -> bool:
    """Whether b is nested like a, and what it has in the place of each integer of a fits."""
    a, b = shape_of(a), shape_of(b)
    if not isinstance(a, tuple):
        return fits(a, b)
    return (
        isinstance(b, tuple) and len(a) == len(b) and all(_fit(x, y, fits) for x, y in zip(a, b, strict=True))
    )


def congruent(a: object, b: object) -> bool:
    """Whether a and b are nested alike.

    >>> congruent((2, (3, 4)), (1, (1, 1))), congruent((2, 3), (2, (3, 1)))
    (True, False)
    """
    return _fit(a, b, lambda _, y: not isinstance(y, tuple))


def weakly_congruent(a: object, b: object) -> bool:
    """Whether b is nested like a, or deeper where a has an integer.

    >>> weakly_congruent((2, 3), (1, (1, 1))), weakly_congruent((1, (1, 1)), (2, 3))
    (True, False)
    """
    return _fit(a, b, lambda *_: True)


def compatible(a: Nested, b: Nested) -> bool:
    """Whether every coordinate in a is one in b, with the same size overall.

    >>> compatible((2, 12), (2, (3, 4))), compatible(24, (2, (3, 4))), compatible((2, (3, 4)), 24)
    (True, True, False)
    """
    return _fit(a, b, lambda x, y: as_int(x) == product(y))


def weakly_compatible(a: Nested, b: Nested) -> bool:
    """Whether every coordinate in a is one in b, each extent of b being a multiple.

    >>> weakly_compatible((2, 3), (4, (3, 4))), weakly_compatible(5, (2, 4))
    (True, False)
    """
    return _fit(a, b, lambda x, y: as_int(x) != 0 and product(y) % as_int(x) == 0)
