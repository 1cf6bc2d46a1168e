"""composition: R(c) == A(B(c)), or a complaint that says which mode does not divide."""

from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    coalesce,
    compatible,
    composition,
    cosize,
    make_layout,
    rank,
    size,
)
from layout.layout_strategies import EXTENTS, bijections, image, injections, law, layouts, powers_of_two

LONG = EXTENTS[1:]


def check_composition(a: Layout, b: Layout, result: Layout) -> None:
    assert compatible(b.shape, result.shape)
    assert [result(i) for i in range(size(b))] == [a(b(i)) for i in range(size(b))]


@law(powers_of_two(), injections((1, 2, 4, 8), gaps=(1, 2, 4)))
def test_powers_of_two_always_compose(a: Layout, b: Layout) -> None:
    result = composition(a, b)
    if cosize(b) <= size(a):
        check_composition(a, b, result)
    else:
        assert compatible(b.shape, result.shape)


@law(layouts(LONG), layouts())
def test_any_composition_keeps_the_law_or_is_refused(a: Layout, b: Layout) -> None:
    try:
        result = composition(a, b)
    except LanewiseError as e:
        assert "divisibility" in str(e) or "modes of the right together" in str(e)
    else:
        check_composition(a, b, result)


@law(injections(), injections())
def test_a_last_mode_of_extent_1_does_not_end_a_layout(a: Layout, b: Layout) -> None:
    """Beyond its shape a layout runs on along its last mode longer than 1, so that tiles may stick out."""
    assume(size(a) > 1)
    padded = Layout((a.shape, 1), (a.stride, 5))
    try:
        result = composition(coalesce(a), b)
    except LanewiseError:
        with pytest.raises(LanewiseError):
            composition(padded, b)
    else:
        assert composition(padded, b) == result


@law(layouts(), bijections())
def test_a_permutation_of_a_single_mode_composes(a: Layout, b: Layout) -> None:
    """The left side is one mode, so nothing needs to divide."""
    line = Layout(size(b), 3)
    check_composition(line, b, composition(line, b))
    check_composition(a, Layout(size(a)), composition(a, Layout(size(a))))


@law(layouts())
def test_identities(a: Layout) -> None:
    assert image(composition(a, Layout(size(a)))) == image(a)
    assert image(composition(Layout(cosize(a)), a)) == image(a)
    assert composition(a, None) is a


@law(powers_of_two(), bijections((2, 4)), st.sampled_from((1, 2, 4)))
def test_composition_is_associative(a: Layout, b: Layout, step: int) -> None:
    assume(size(b) <= size(a) and step <= size(b))
    c = Layout(size(b) // step, step)
    assert image(composition(composition(a, b), c)) == image(composition(a, composition(b, c)))


@law(powers_of_two(), st.data())
def test_composition_by_mode(a: Layout, data: Any) -> None:
    tiler = tuple(
        data.draw(st.one_of(st.none(), st.sampled_from((1, 2, 4)), injections((1, 2, 4, 8), gaps=(1, 2, 4))))
        for _ in range(data.draw(st.integers(1, len(a))))
    )
    result = composition(a, tiler)
    assert rank(result) == rank(a)
    for i, mode in enumerate(a):
        t = tiler[i] if i < len(tiler) else None
        assert result[i] == (mode if t is None else composition(mode, Layout(t) if isinstance(t, int) else t))


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)), Layout(((2, 2), 3), ((24, 2), 8))),
        (Layout(20, 2), Layout((5, 4), (4, 1)), Layout((5, 4), (8, 2))),
        (Layout((10, 2), (16, 4)), Layout((5, 4), (1, 5)), Layout((5, (2, 2)), (16, (80, 4)))),
        # the extent 6 ends inside mode 8, which it does not divide
        (Layout((4, 6, 8, 10), (2, 3, 5, 7)), Layout(6, 12), Layout((2, 3), (9, 5))),
        # stride 3 does not divide 8, but three steps of 3 stay inside it
        (Layout((4, 2, 8), (3, 12, 97)), Layout(3, 3), Layout(3, 9)),
        # beyond its shape a layout runs on along its last mode
        (Layout(1, 3), Layout(4), Layout(4, 3)),
        (Layout(4, -2), Layout(3, 1), Layout(3, -2)),
        (Layout(4, 2), Layout(3, -1), Layout(3, -2)),
    ],
)
def test_examples(a: Layout, b: Layout, result: Layout) -> None:
    assert composition(a, b) == result
    check_composition(a, b, result)


@law(layouts())
def test_what_is_no_layout_composes_as_a_function(a: Layout) -> None:
    sw = Swizzle(2, 1, 3)
    assert image(composition(sw, a)) == [sw(i) for i in image(a)]
    assert image(composition(sw, 5, a)) == [sw(5 + i) for i in image(a)]
    composed = composition(sw, 5, a)
    assert image(composition(composed, Layout(size(a)))) == image(composed)
    after = composition(Layout((8, 8), (8, 1)), composed)
    assert isinstance(after, ComposedLayout) and image(after) == [
        Layout((8, 8), (8, 1))(i) for i in image(composed)
    ]


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (
            Layout((4, 3), (3, 1)),
            Layout(5, 1),
            r"composition\(\(4,3\):\(3,1\), 5:1\).*multiple of 4.*shape divis",
        ),
        (Layout((4, 3), (3, 1)), Layout(4, 3), r"stride 3 and mode 4 .*stride divisibility.*divides 4"),
        (Layout((4, 3), (3, 1)), Layout(2, -1), "below coordinate 0"),
        (Layout((4, 3), (3, 1)), Layout((2, 4), (1, 1)), "together reach 4 within mode 4"),
        (Layout((4, 3), (3, 1)), Layout((8, 2), (1, 1)), "together reach 4 within mode 4"),
        (Layout((4, 3)), (1, 1, 1), "more entries"),
        (Layout((4, 3)), "x", "no layout, integer, None or tuple"),
        ((4, 3), Layout(2), "takes a layout or a tensor first"),
        (Swizzle(3, 3, 3), Swizzle(3, 3, 3), "the right side .* has the shape .* a swizzle does not have"),
        (Layout(8), Swizzle(2, 0, 2), r"a swizzle does not have; give a layout there, such as 16:1"),
    ],
)
def test_complaints(a: Any, b: Any, words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        composition(a, b)


def test_three_arguments() -> None:
    with pytest.raises(LanewiseError, match="function, offset and layout"):
        composition(Layout(4), 0, Layout(4), Layout(4))
    with pytest.raises(LanewiseError, match="give a function"):
        composition(4, 0, Layout(4))
    assert make_layout(Layout(4)) == Layout((4,))
