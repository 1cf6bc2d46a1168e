"""Int tuples and coordinates: what they compute, and that coordinates and indices turn into one another."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    Integer,
    ceil_div,
    compatible,
    congruent,
    crd2crd,
    crd2idx,
    depth,
    dice,
    elem_scale,
    flatten,
    has_none,
    idx2crd,
    inner_product,
    is_int,
    is_tuple,
    prefix_product,
    product,
    rank,
    shape_div,
    signum,
    slice_,
    suffix_product,
    tuple_max,
    unflatten,
    weakly_compatible,
    weakly_congruent,
)
from layout.layout_strategies import law, shapes


@law(shapes())
def test_flatten_and_unflatten_are_inverse(shape: int | tuple[Any, ...]) -> None:
    assert unflatten(flatten(shape), shape) == shape


@law(shapes())
def test_product_is_the_product_of_the_leaves(shape: int | tuple[Any, ...]) -> None:
    assert product(shape) == math.prod(flatten(shape))
    assert tuple_max(shape) == max(flatten(shape))


@law(shapes())
def test_every_index_has_one_coordinate(shape: int | tuple[Any, ...]) -> None:
    coordinates = [idx2crd(i, shape) for i in range(product(shape))]
    assert len(set(coordinates)) == product(shape)
    assert [crd2idx(c, shape) for c in coordinates] == list(range(product(shape)))
    assert all(crd2crd(i, shape) == c for i, c in enumerate(coordinates))
    assert all(crd2crd(c, product(shape), shape) == i for i, c in enumerate(coordinates))


@law(shapes())
def test_prefix_and_suffix_products_are_compact(shape: int | tuple[Any, ...]) -> None:
    """The greatest coordinate has the greatest index, and the first (last) mode has stride 1."""
    last = idx2crd(product(shape) - 1, shape)
    assert inner_product(last, prefix_product(shape)) == product(shape) - 1
    assert inner_product(last, suffix_product(shape)) == product(shape) - 1
    assert flatten(prefix_product(shape))[0] == 1
    assert flatten(suffix_product(shape))[-1] == 1


@law(shapes((2, 3, 4, 6)), st.data())
def test_shape_div_leaves_the_rest(shape: int | tuple[Any, ...], data: Any) -> None:
    """Taking a divisor that is made of whole leading extents leaves size / divisor."""
    flat = flatten(shape)
    n = math.prod(flat[: data.draw(st.integers(0, len(flat)))])
    assert product(shape_div(shape, n)) == product(shape) // n
    assert congruent(shape_div(shape, n), shape)


@law(shapes(), st.data())
def test_slice_and_dice_share_out_the_leaves(shape: int | tuple[Any, ...], data: Any) -> None:
    flat = flatten(shape)
    crd = unflatten(tuple(data.draw(st.sampled_from((None, 0))) for _ in flat), shape)
    assert sorted(slice_(crd, shape) + dice(crd, shape)) == sorted(flat)
    assert has_none(crd) == (len(slice_(crd, shape)) > 0)


@law(shapes(), shapes())
def test_relations(a: int | tuple[Any, ...], b: int | tuple[Any, ...]) -> None:
    assert congruent(a, a) and compatible(a, a) and weakly_congruent(a, a) and weakly_compatible(a, a)
    assert compatible(product(a), a) and weakly_congruent(1, a)
    if compatible(a, b):
        assert product(a) == product(b) and weakly_congruent(a, b) and weakly_compatible(a, b)
        assert compatible(b, a) == congruent(a, b)
    if congruent(a, b):
        assert depth(a) == depth(b) and rank(a) == rank(b)


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: elem_scale((2, 3), (5, (2, 2))), (10, 12)),
        (lambda: shape_div((3, 4), 6), (1, 2)),
        (lambda: shape_div((3, 4), 36), (1, 1)),
        (lambda: shape_div((6, (3, 4)), 36), (1, (1, 2))),
        (lambda: shape_div((6, 8), (3, 16)), (2, 1)),
        (lambda: ceil_div((10, 7), (4, 2)), (3, 4)),
        (lambda: prefix_product(((2, 3), 4), 5), ((5, 10), 30)),
        (lambda: prefix_product((3, 2), (7, 9)), (7, 9)),
        (lambda: suffix_product((3, (4, 5))), (20, (5, 1))),
        (lambda: crd2idx((1, None), (4, 8), (8, 1)), 8),
        (lambda: idx2crd((3, 7), (2, (2, 4))), (1, (1, 3))),
        (lambda: idx2crd(5, (4, 1), (2, 0)), (2, 0)),
        (lambda: (signum(-7), signum(0), signum(7)), (-1, 0, 1)),
        (lambda: (depth(()), depth(((1,), 2)), rank(5)), (1, 2, 1)),
    ],
)
def test_examples(call: Callable[..., Any], result: tuple[Any, ...] | int) -> None:
    assert call() == result


@pytest.mark.parametrize("x", [3, np.int8(3), np.uint64(3)])
def test_integers(x: Any) -> None:
    assert is_int(x) and isinstance(x, Integer) and issubclass(type(x), Integer) and not is_tuple(x)


@pytest.mark.parametrize("x", [True, np.True_, 3.0, "3", (3,), None])
def test_no_integers(x: Any) -> None:
    assert not is_int(x) and not isinstance(x, Integer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: product((2, "3")), "'3' is not an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: product(2.5), "2.5 is not an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: inner_product((1, 2), (1, 2, 3)), "different profiles"),
        (lambda: inner_product(1, (1, 2)), "different profiles"),
        (lambda: elem_scale((1, 2), 3), "different profiles"),
        (lambda: shape_div(6, 4), "neither number divides"),
        (lambda: shape_div(6, 0), "division by zero"),
        (lambda: prefix_product(6, (1, 2)), "different profiles"),
        (lambda: suffix_product((6, 2), (1,)), "different profiles"),
        (lambda: unflatten((1, 2), (1, 2, 3)), "different profiles"),
        (lambda: tuple_max(()), "empty"),
        (lambda: crd2idx((1, 2, 3), (4, 8)), "one entry for each mode"),
        (lambda: crd2idx((1, 2), 8), "does not fit shape 8"),
        (lambda: crd2idx(1.5, (4, 8)), "1.5 is not an integer"),
        (lambda: crd2idx(3, ()), "only 0"),
        (lambda: idx2crd((1, 2), 8), "does not fit"),
        (lambda: idx2crd(3, 4, 0), "share one index"),
        (lambda: crd2crd(8, 8), "outside shape 8"),
        (lambda: crd2crd(-1, 8), "outside shape 8"),
        (lambda: crd2crd((1, 2), 8), "src_shape"),
        (lambda: slice_((None, 1), (1, 2, 3)), "one entry for each mode"),
        (lambda: dice((None, 1), 4), "one entry for each mode"),
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call()
