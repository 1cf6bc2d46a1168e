"""Hypothesis strategies and small measures that the layout tests share."""

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everything import examples
from lanewise.layout import Layout, flatten, product, unflatten


def law(*strategies: Any) -> Callable[[Any], Any]:
    """Hold a test, which states a law, to inputs from these strategies."""
    return lambda test: settings(max_examples=examples(40), deadline=None)(given(*strategies)(test))  # type: ignore[no-untyped-call]  # Hypothesis does not annotate what it wraps


EXTENTS = (1, 2, 3, 4, 6, 8)
STRIDES = (0, 1, 2, 3, 4, 6, 8, 12)


def shapes(extents: tuple[int, ...] = EXTENTS, max_size: int = 128) -> st.SearchStrategy[Any]:
    """Shapes, bare or nested."""
    nested = st.recursive(
        st.sampled_from(extents), lambda c: st.lists(c, min_size=1, max_size=3).map(tuple), max_leaves=5
    )
    return nested.filter(lambda s: product(s) <= max_size)


@st.composite
def layouts(draw: Any, extents: tuple[int, ...] = EXTENTS, strides: tuple[int, ...] = STRIDES) -> Layout:
    """Any layout: strides at random, so indices may repeat."""
    shape = draw(shapes(extents))
    n = len(flatten(shape))
    flat = tuple(draw(st.lists(st.sampled_from(strides), min_size=n, max_size=n)))
    return Layout(shape, unflatten(flat, shape))


@st.composite
def injections(draw: Any, extents: tuple[int, ...] = EXTENTS, gaps: tuple[int, ...] = (1, 1, 2, 3)) -> Layout:
    """A compact layout in any order of modes, with gaps of whole multiples between them."""
    shape = draw(shapes(extents))
    flat = flatten(shape)
    strides = [0] * len(flat)
    stride = draw(st.sampled_from(gaps))
    for i in draw(st.permutations(range(len(flat)))):
        strides[i] = stride
        stride *= flat[i] * draw(st.sampled_from(gaps))
    return Layout(shape, unflatten(tuple(strides), shape))


def bijections(extents: tuple[int, ...] = EXTENTS) -> st.SearchStrategy[Layout]:
    """A compact layout in any order of modes."""
    return injections(extents, gaps=(1,))


def powers_of_two() -> st.SearchStrategy[Layout]:
    """Layouts in powers of two, which always divide one another."""
    return layouts((1, 2, 4, 8), (0, 1, 2, 4, 8, 16))


def image(layout: Any) -> list[int]:
    """The indices in the order of linear coordinates."""
    return [layout(i) for i in range(layout.size())]


def random_layout(rnd: random.Random, depth: int = 2, extents: tuple[int, ...] = EXTENTS[1:]) -> Layout:
    """A layout for the comparisons that run thousands of times."""

    def shape(d: int) -> Any:
        if d == 0 or rnd.random() < 0.4:
            return rnd.choice(extents)
        return tuple(shape(d - 1) for _ in range(rnd.randint(1, 3)))

    s = shape(depth)
    while product(s) > 200:
        s = shape(depth)
    flat = flatten(s)
    if rnd.random() < 0.3:
        return Layout(s, unflatten(tuple(rnd.choice(STRIDES) for _ in flat), s))
    strides = [0] * len(flat)
    stride = rnd.choice((1, 1, 2))
    for i in rnd.sample(range(len(flat)), len(flat)):
        strides[i] = stride
        stride *= flat[i] * rnd.choice((1, 1, 1, 2, 3))
    return Layout(s, unflatten(tuple(strides), s))
