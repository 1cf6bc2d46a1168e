"""right_inverse, left_inverse, and the vectors that two layouts share."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    Swizzle,
    composition,
    cosize,
    filter,
    left_inverse,
    make_identity_layout,
    max_common_layout,
    max_common_vector,
    right_inverse,
    size,
)
from layout.layout_strategies import bijections, image, injections, law, layouts


def check_right_inverse(layout: Layout) -> Layout:
    result = right_inverse(layout)
    assert [layout(result(i)) for i in range(size(result))] == list(range(size(result)))
    assert all(0 <= c < size(layout) for c in image(result))
    return result


@law(layouts())
def test_right_inverse(layout: Layout) -> None:
    result = check_right_inverse(layout)
    assert (size(result) > 1) == any(layout(i) == 1 for i in range(size(layout)) if i in _steps(layout))


def _steps(layout: Layout) -> set[Any]:
    """The coordinates one step along each single mode."""
    steps, before = set(), 1
    for mode in _leaves(layout):
        if size(mode) > 1:
            steps.add(before)
        before *= size(mode)
    return steps


def _leaves(layout: Layout) -> list[Any]:
    if isinstance(layout.shape, tuple):
        return [leaf for mode in layout for leaf in _leaves(mode)]
    return [layout]


@law(bijections())
def test_a_bijection_has_one_inverse_on_both_sides(layout: Layout) -> None:
    assert size(check_right_inverse(layout)) == size(layout)
    assert image(left_inverse(layout)) == image(right_inverse(layout))
    assert image(right_inverse(right_inverse(layout))) == image(layout)


@law(injections())
def test_left_inverse(layout: Layout) -> None:
    result = left_inverse(layout)
    assert [result(i) for i in image(layout)] == list(range(size(layout)))


@law(injections(), layouts())
def test_left_inverse_of_a_broadcast(layout: Layout, other: Layout) -> None:
    """With strides of 0 the law is weaker: the coordinate found has the same index."""
    broadcast = Layout((3, layout.shape), (0, layout.stride))
    result = left_inverse(broadcast)
    assert [broadcast(result(i)) for i in image(broadcast)] == image(broadcast)
    try:
        result = left_inverse(other)
    except LanewiseError as e:
        assert "each dividing the next" in str(e)
    else:
        assert [other(result(i)) for i in image(other)] == image(other)


@law(layouts())
def test_a_refused_left_inverse_was_not_plain(layout: Layout) -> None:
    """Refused are only layouts that repeat an index or whose strides do not divide each other."""
    try:
        left_inverse(layout)
    except LanewiseError:
        once = filter(layout)
        strides = sorted(m.stride for m in _leaves(once))
        repeats = len(set(image(once))) < size(once)
        assert repeats or any(b % a for a, b in pairwise(strides))


@pytest.mark.parametrize(
    ("layout", "right", "left"),
    [
        (Layout((8, 4), (4, 1)), Layout((4, 8), (8, 1)), Layout((4, 8), (8, 1))),
        (Layout(4, 2), Layout(1, 0), Layout((2, 4), (4, 1))),
        (Layout((4, 2), (1, 16)), Layout(4, 1), Layout((4, 4, 2), (1, 8, 4))),
        (Layout((2, 2), (2, 8)), Layout(1, 0), Layout((2, 2, 2, 2), (4, 1, 8, 2))),
        (Layout((4, 2), (1, 6)), Layout(4, 1), Layout((6, 2), (1, 4))),
        (Layout((2, 4, 4), (0, 1, 8)), Layout(4, 2), Layout((4, 2, 4), (2, 32, 8))),
        (Layout((3, 7), (0, 0)), Layout(1, 0), Layout(1, 0)),
        (6, Layout(6), Layout(6)),
        (None, None, None),
        (Swizzle(3, 4, 3), Swizzle(3, 4, 3), Swizzle(3, 4, 3)),
    ],
)
def test_examples(layout: Any, right: Layout | Swizzle | None, left: Layout | Swizzle | None) -> None:
    assert right_inverse(layout) == right and left_inverse(layout) == left


def test_of_two_modes_with_one_stride_the_first_is_taken() -> None:
    assert right_inverse(Layout((4, 2), (1, 1))) == Layout(4) and right_inverse(
        Layout((2, 4), (1, 1))
    ) == Layout(2)


def test_negative_strides_have_no_part_in_a_right_inverse() -> None:
    assert right_inverse(Layout((4, 2), (-1, 1))) == Layout(2, 4)


def check_max_common(a: Layout, b: Layout) -> int:
    result = max_common_layout(a, b)
    n = size(result)
    assert n == max_common_vector(a, b) >= 1
    assert [a(result(i)) for i in range(n)] == [b(result(i)) for i in range(n)] == list(range(n))
    assert cosize(result) <= min(size(a), size(b))
    return n


@law(layouts(), layouts())
def test_max_common(a: Layout, b: Layout) -> None:
    check_max_common(a, b)


@law(bijections((1, 2, 4)), injections((1, 2, 4)))
def test_the_common_vector_cannot_be_longer(a: Layout, b: Layout) -> None:
    """Element n, the next one in a, is elsewhere in b, or there is none."""
    n = check_max_common(a, b)
    where = {index: c for c, index in enumerate(image(a))}
    assert n == size(a) or where[n] >= size(b) or b(where[n]) != n


def test_a_common_vector_may_end_within_a_mode() -> None:
    a, b = Layout((8, (2, 2)), (4, (1, 64))), Layout((8, 4), (4, 1))
    assert check_max_common(a, b) == 2 and max_common_layout(a, b) == Layout(2, 8)
    assert max_common_layout(Layout((6, 4), (4, 1)), Layout((6, 4), (4, 1))) == Layout((4, 6), (6, 1))


def test_max_common_of_a_swizzled_layout() -> None:
    """A swizzle keeps two to the base elements together."""
    plain = Layout((64, 8))
    assert max_common_vector(composition(Swizzle(3, 3, 3), plain), plain) == 8
    assert max_common_vector(plain, composition(Swizzle(3, 3, 3), plain)) == 8
    assert max_common_vector(composition(Swizzle(3, 3, 3), 8, plain), plain) == 1
    assert max_common_vector(composition(Swizzle(0, 3, 3), plain), plain) == 512


@pytest.mark.parametrize("inverse", [right_inverse, left_inverse])
def test_complaints(inverse: Callable[..., Any]) -> None:
    with pytest.raises(LanewiseError, match="use integer strides"):
        inverse(make_identity_layout((4, 4)))
    with pytest.raises(LanewiseError, match="takes a Layout"):
        inverse((4, 4))
    with pytest.raises(LanewiseError, match="takes a Layout"):
        inverse(composition(Swizzle(1, 0, 1), Layout(4)))
    with pytest.raises(LanewiseError, match="may share an index"):
        left_inverse(Layout((4, 4), (1, 2)))
