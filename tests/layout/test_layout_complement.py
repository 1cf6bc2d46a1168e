"""complement: rising, disjoint, and enough to fill what is asked for."""

from itertools import pairwise

import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import Layout, complement, cosize, filter, make_identity_layout, make_layout, size
from layout.layout_strategies import image, injections, law, layouts


def check_complement(layout: Layout, target: int) -> Layout:
    result = complement(layout, target)
    places = image(result)
    assert places[0] == 0 and all(a < b for a, b in pairwise(places)), "not rising"
    assert not set(places[1:]) & set(image(layout)), "not disjoint"
    both = image(make_layout(filter(layout), result))
    assert len(set(both)) == len(both), "copies overlap"
    return result


@law(injections(), st.integers(1, 600))
def test_complement(layout: Layout, target: int) -> None:
    result = check_complement(layout, target)
    assert size(result) * size(filter(layout)) >= target
    assert set(range(target)) <= set(image(make_layout(layout, result))), "not filled"
    assert complement(layout, (target, 2)) == complement(layout, 2 * target)


@law(layouts(), st.integers(1, 100))
def test_any_complement_keeps_the_law_or_is_refused(layout: Layout, target: int) -> None:
    """Strides that do not divide leave gaps that no layout fills, but the rest of the law stands."""
    try:
        check_complement(layout, target)
    except LanewiseError as e:
        assert "stride" in str(e)


@law(injections())
def test_the_complement_of_a_layout_alone_fills_its_gaps(layout: Layout) -> None:
    result = complement(layout)
    assert cosize(make_layout(layout, result)) == size(filter(layout)) * size(result)


@pytest.mark.parametrize(
    ("layout", "target", "result"),
    [
        (Layout(4, 1), 24, Layout(6, 4)),
        (Layout(6, 4), 24, Layout(4, 1)),
        (Layout((4, 6), (1, 4)), 24, Layout(1, 0)),
        (Layout(4, 2), 24, Layout((2, 3), (1, 8))),
        (Layout((2, 4), (1, 6)), 24, Layout(3, 2)),
        (Layout((2, 2), (1, 6)), 24, Layout((3, 2), (2, 12))),
        (Layout(4, 0), 24, Layout(24, 1)),
        (4, 24, Layout(6, 4)),
    ],
)
def test_examples(layout: Layout | int, target: int, result: Layout) -> None:
    assert complement(layout, target) == result


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout((4, 4), (1, 2)), "mode 4:2 has a stride below 4"),
        (Layout((2, 2), (1, 1)), "stride below 2"),
        (Layout(4, -1), "negative stride"),
        (make_identity_layout((4, 4)), "use integer strides"),
        ("x", "takes a Layout"),
    ],
)
def test_complaints(layout: Layout | str, words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        complement(layout)
