"""The algebra against tensor-layouts, an independent implementation, on thousands of random layouts.

Where the two differ the law decides, or CuTe's code, and the difference is named here. tensor-layouts
- gives an answer for some inputs that have none: overlapping modes, groups that do not divide;
- refuses some compositions that never pass the end of a mode, which the law allows;
- gives the gaps of a left inverse stride 0, where CuTe numbers them;
- chooses another of two modes with equal strides in a right inverse, and so in a common vector;
- divides a nested mode by an integer inside its first leaf, where CuTe divides the mode as a whole;
- spaces the copies of a blocked product by its own rule, so those are checked by law alone.
"""

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from everything import EVERYTHING, sampled
from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    coalesce,
    complement,
    composition,
    cosize,
    downcast,
    flat_divide,
    flat_product,
    flatten,
    left_inverse,
    logical_divide,
    logical_product,
    max_common_vector,
    nullspace,
    raked_product,
    right_inverse,
    size,
    tiled_divide,
    tiled_product,
    upcast,
    zipped_divide,
    zipped_product,
)
from layout.layout_strategies import image, random_layout

oracle = pytest.importorskip("tensor_layouts")

#: One in so many of the random cases is compared.
STEP = 1 if EVERYTHING else 3


def theirs(layout: Layout) -> Any:
    return oracle.Layout(layout.shape, layout.stride)


def equal(mine: Layout, other: Any) -> bool:
    """The same leaves in the same order, but for modes of extent 1, whose strides say nothing."""
    if size(mine) != oracle.size(other):
        return False
    leaves = zip(flatten(mine.shape), flatten(mine.stride), strict=True)
    others = zip(
        oracle.as_tuple(oracle.flatten(other.shape)),
        oracle.as_tuple(oracle.flatten(other.stride)),
        strict=True,
    )
    return [x for x in leaves if x[0] != 1] == [x for x in others if x[0] != 1]


def same_function(mine: Layout, other: Any) -> bool:
    return size(mine) == oracle.size(other) and image(mine) == [other(i) for i in range(size(mine))]


def compare(
    f: Callable[..., Any],
    g: Callable[..., Any],
    cases: list[Any],
    at_least: int,
    same: Callable[..., Any] = equal,
) -> None:
    """f and g agree on every case that f accepts; of all cases so many at least are compared."""
    compared = 0
    for case in cases[::STEP]:
        try:
            mine = f(*case)
        except LanewiseError:
            continue
        other = g(*(theirs(x) if isinstance(x, Layout) else x for x in case))
        assert same(mine, other), f"{f.__name__}{case}: {mine}, but tensor-layouts has {other}"
        compared += 1
    assert compared * STEP >= at_least * 0.9, f"only {compared} cases were compared"


@cache
def singles(seed: int, n: int = 2000, depth: int = 2) -> list[Any]:
    rnd = random.Random(seed)
    return [(random_layout(rnd, depth),) for _ in range(n)]


@cache
def pairs(seed: int, n: int = 1500) -> list[Any]:
    """Pairs whose second stays inside the first, as far as that is possible at random."""
    rnd = random.Random(seed)
    made: list[tuple[Layout, Layout]] = []
    while len(made) < n:
        a, b = random_layout(rnd), random_layout(rnd, depth=1)
        if cosize(b) <= size(a) and divides(a, b):
            made.append((a, b))
    return made


@pytest.mark.parametrize(
    ("f", "g", "at_least"),
    [
        (coalesce, oracle.coalesce, 2000),
        (complement, oracle.complement, 1500),
        (nullspace, oracle.nullspace, 2000),
        (cosize, oracle.cosize, 2000),
    ],
)
def test_of_one_layout(f: Callable[..., Any], g: Callable[..., Any], at_least: int) -> None:
    compare(f, g, singles(1), at_least, same=(lambda a, b: a == b) if f is cosize else equal)


def test_complement_up_to_a_size() -> None:
    rnd = random.Random(2)
    compare(complement, oracle.complement, [(x, rnd.randint(1, 500)) for (x,) in singles(3)], 1500)


def test_right_inverse() -> None:
    """Among layouts with no two strides alike there is no choice."""
    cases = [(x,) for (x,) in singles(4) if len(set(flatten(x.stride))) == len(flatten(x.stride))]
    compare(right_inverse, oracle.right_inverse, cases, 1000)


def test_left_inverse() -> None:
    """The gaps are numbered in their own ways, so only what the layout reaches is compared."""
    compared = 0
    for (layout,) in singles(5, 1500):
        try:
            mine = left_inverse(layout)
        except LanewiseError:
            continue
        if len(set(image(layout))) == size(layout):
            other = oracle.left_inverse(theirs(layout))
            assert [mine(i) for i in image(layout)] == [other(i) for i in image(layout)]
            compared += 1
    assert compared >= 700


@sampled(6)
@pytest.mark.parametrize(
    ("f", "g", "at_least"),
    [
        (composition, oracle.compose, 1200),
        (logical_divide, oracle.logical_divide, 800),
        (zipped_divide, oracle.zipped_divide, 800),
        (tiled_divide, oracle.tiled_divide, 800),
        (flat_divide, oracle.flat_divide, 800),
    ],
)
def test_of_a_layout_and_one_inside_it(f: Callable[..., Any], g: Callable[..., Any], at_least: int) -> None:
    compare(f, g, pairs(6), at_least)


def divides(a: Layout, b: Layout) -> bool:
    """Not among the cases that tensor-layouts refuses although b never passes the end of a mode of a."""
    try:
        oracle.compose(theirs(a), theirs(b))
    except Exception:
        return False
    return True


@sampled(4)
@pytest.mark.parametrize(
    ("f", "g"),
    [
        (logical_product, oracle.logical_product),
        (zipped_product, oracle.zipped_product),
        (tiled_product, oracle.tiled_product),
        (flat_product, oracle.flat_product),
    ],
)
def test_products(f: Callable[..., Any], g: Callable[..., Any]) -> None:
    rnd = random.Random(7)
    cases = [(random_layout(rnd), random_layout(rnd, depth=1)) for _ in range(1500)]
    compare(f, g, [c for c in cases if multiplies(*c)], 600)


def multiplies(a: Layout, b: Layout) -> bool:
    try:
        oracle.logical_product(theirs(a), theirs(b))
    except Exception:
        return False
    return True


def test_raked_product() -> None:
    rnd = random.Random(8)
    twos = (2, 4)
    cases = [
        (random_layout(rnd, depth=1, extents=twos), random_layout(rnd, depth=1, extents=twos))
        for _ in range(1500)
    ]
    cases = [(a, b) for a, b in cases if len(a) > 1 and len(b) > 1 and multiplies(a, b)]
    # CuTe coalesces each mode of the result, tensor-layouts does not
    compare(raked_product, oracle.raked_product, cases, 100, same_function)


@pytest.mark.parametrize("f", [logical_divide, zipped_divide, tiled_divide, flat_divide])
def test_division_by_mode(f: Callable[..., Any]) -> None:
    rnd = random.Random(9)
    cases = []
    for (layout,) in singles(10, 1500, depth=1):
        if len(layout) > 1:
            cases.append(
                (layout, tuple(rnd.choice([d for d in (1, 2, 3, 4) if size(m) % d == 0]) for m in layout))
            )
    compare(f, getattr(oracle, f.__name__), cases, 200)


@pytest.mark.parametrize("f", [upcast, downcast])
def test_recast(f: Callable[..., Any]) -> None:
    rnd = random.Random(11)
    compare(f, getattr(oracle, f.__name__), [(x, rnd.choice((2, 4, 8))) for (x,) in singles(12)], 400)


def test_max_common_vector() -> None:
    rnd = random.Random(13)
    cases = []
    for (a,) in singles(14, 1500):
        b = rnd.choice((a, Layout(a.shape), Layout(size(a))))
        if len(set(flatten(a.stride))) < len(flatten(a.stride)):
            continue
        try:
            oracle.max_common_vector(theirs(a), theirs(b))
        except Exception:
            continue
        cases.append((a, b))
    compare(max_common_vector, oracle.max_common_vector, cases, 700, same=lambda x, y: x == y)
