"""upcast, downcast and recast: the same memory in wider and narrower elements."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    Swizzle,
    composition,
    downcast,
    flatten,
    make_identity_layout,
    recast,
    recast_layout,
    right_inverse,
    size,
    upcast,
)
from layout.layout_strategies import bijections, image, injections, law, layouts

WIDTHS = st.sampled_from((1, 2, 4, 8))


@law(bijections((2, 4, 8)), WIDTHS)
def test_upcast_gives_each_group_once(layout: Layout, n: int) -> None:
    """Over all of its memory a layout upcasts to all groups of n, each once."""
    if size(layout) % n == 0:
        assert sorted(image(upcast(layout, n))) == list(range(size(layout) // n))


@law(injections((2, 4, 8), gaps=(1, 2)), WIDTHS)
def test_downcast_splits_each_element(layout: Layout, n: int) -> None:
    """Element x becomes n x to n x + n - 1."""
    if size(right_inverse(layout)) == 1:
        return
    assert sorted(image(upcast(downcast(layout, n), n))) == sorted(image(layout))
    assert_splits_each_element(layout, n)


@law(layouts((1, 2, 3, 8), (0, 1, 2, 3, 8)), WIDTHS)
def test_downcast_splits_each_element_of_any_layout(layout: Layout, n: int) -> None:
    """Also where modes have extent 1, or an index is there more than once."""
    modes = zip(flatten(layout.shape), flatten(layout.stride), strict=True)
    contiguous = [extent for extent, stride in modes if stride == 1]
    if contiguous and sum(extent > 1 for extent in contiguous) <= 1:  # CuTe lengthens several, which overlap
        assert_splits_each_element(layout, n)


@pytest.mark.parametrize(
    ("layout", "factor", "expected"),
    [
        (Layout((1, 8)), 2, Layout((1, 16), (2, 1))),
        (Layout((8, 1), (1, 1)), 2, Layout((16, 1), (1, 2))),
        (Layout((1, 4, 8)), 2, Layout((1, 8, 8), (2, 1, 8))),
        (Layout((1, 1)), 4, Layout((4, 1), (1, 4))),
        (Layout((8, 1), (2, 1)), 4, Layout((8, 4), (8, 1))),
    ],
)
def test_downcast_lengthens_one_mode(layout: Layout, factor: int, expected: Layout) -> None:
    assert downcast(layout, factor) == recast(layout, 8 * factor, 8) == expected
    assert_splits_each_element(layout, factor)


def assert_splits_each_element(layout: Layout, n: int) -> None:
    assert sorted(image(downcast(layout, n))) == sorted(n * x + k for x in image(layout) for k in range(n))


@law(bijections((2, 4, 8)), st.sampled_from((4, 8, 16, 32)), st.sampled_from((4, 8, 16, 32)))
def test_recast_and_back(layout: Layout, old: int, new: int) -> None:
    if size(layout) * old % new == 0 and size(right_inverse(layout)) > 1 and old >= new:
        assert recast(recast(layout, old, new), new, old) == layout
    assert recast_layout is recast


class Wide:
    bits = 32


def test_examples() -> None:
    assert upcast(Layout((8, 4), (4, 1)), 4) == Layout((8, 1), (1, 1))
    assert upcast(Layout((8, (2, 2)), (4, (1, 2))), 4) == Layout((8, (1, 1)), (1, (1, 1)))
    assert upcast(Layout((4, 3), (0, 8)), 8) == Layout((4, 3), (0, 1))
    assert upcast(Layout(8, -1), 4) == Layout(2, -1)
    assert downcast(Layout((3, 4), (4, 1)), 2) == Layout((3, 8), (8, 1))
    assert recast(Layout((8, 8)), 8, Wide) == Layout((2, 8), (1, 2))
    assert recast(Layout((8, 8)), 8, 8) == Layout((8, 8))


@law(st.integers(0, 3), st.integers(0, 4), st.integers(3, 5), st.integers(0, 3))
def test_a_swizzle_recast_does_the_same_to_the_groups(bits: int, base: int, shift: int, log2: int) -> None:
    n = 1 << log2
    narrow = Swizzle(bits, base, shift)
    wide = upcast(narrow, n)
    assert all(wide(x // n) == narrow(x) // n for x in range(1 << 14) if x % 7 == 0)
    assert all(downcast(wide, n)(n * x) == n * wide(x) for x in range(0, 4096, 5))
    assert upcast(downcast(narrow, n), n) == narrow


def test_composed_layouts_recast_part_by_part() -> None:
    """The shared memory atom of 128-byte rows, in bits, in halves and in bytes."""
    bits = composition(Swizzle(3, 7, 3), 0, Layout((8, 1024), (1024, 1)))
    half = upcast(bits, 16)
    assert half == composition(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1)))
    assert (
        recast(half, 16, 8) == upcast(bits, 8) == composition(Swizzle(3, 4, 3), 0, Layout((8, 128), (128, 1)))
    )
    assert upcast(composition(Swizzle(3, 7, 3), 32, Layout(64)), 16).offset == 2
    assert downcast(composition(Swizzle(3, 3, 3), 2, Layout(4)), 16).offset == 32


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: upcast(Layout(6), 4), r"upcast\(6:1, 4\): mode 6:1 does not hold whole groups of 4"),
        (lambda: upcast(Layout(8, 3), 4), "mode 8:3"),
        (lambda: upcast(Layout(8), 0), "at least 1"),
        (lambda: upcast(Layout(8), 1.5), "not an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: upcast((8, 1), 2), "takes a layout or a swizzle"),
        (lambda: upcast(make_identity_layout((8, 8)), 2), "use integer strides"),
        (lambda: upcast(Swizzle(2, 3, 3), 3), "power of two"),
        (lambda: upcast(Swizzle(2, 0, -3), 2), "bits that wider elements"),
        (lambda: upcast(composition(Swizzle(2, 3, 3), 3, Layout(8)), 2), "offset 3 is not a multiple"),
        (lambda: downcast(Layout(8, 2), 2), "no mode has stride 1"),
        (lambda: recast(Layout(8), 16, 24), "multiple of the other"),
        (lambda: recast(Layout(8), 0, 8), "multiple of the other"),
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call()
