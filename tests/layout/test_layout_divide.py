"""Division: mode 0 is what the tiler points to, and nothing is lost or doubled."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    composition,
    flat_divide,
    hier_unzip,
    logical_divide,
    make_layout,
    rank,
    size,
    tiled_divide,
    zipped_divide,
)
from layout.layout_strategies import bijections, image, injections, law, powers_of_two


def check_divide(layout: Layout, tile: Layout) -> Layout:
    result = logical_divide(layout, tile)
    assert rank(result) == 2
    inside = [(i, c) for i, c in enumerate(image(tile)) if c < size(layout)]
    assert [result[0](i) for i, _ in inside] == [layout(c) for _, c in inside]
    return result


@law(powers_of_two(), bijections((1, 2, 4)))
def test_logical_divide(layout: Layout, tile: Layout) -> None:
    """A compact tile takes the first elements, and all tiles together take all."""
    result = check_divide(layout, tile)
    if size(layout) % size(tile) == 0:
        assert sorted(image(result)) == sorted(image(layout))
    else:
        assert size(result) == size(tile) * -(-size(layout) // size(tile))


@law(powers_of_two(), injections((1, 2, 4), gaps=(1, 2)))
def test_logical_divide_by_a_tile_with_gaps(layout: Layout, tile: Layout) -> None:
    result = check_divide(layout, tile)
    assert size(result) >= size(layout)
    assert set(image(layout)) <= set(image(result))


def tilers(layout: Layout, draw: Callable[..., Any]) -> tuple[Any, ...]:
    n = draw(st.integers(1, len(layout)))
    return tuple(
        draw(st.sampled_from((None, 1, 2, 4, Layout(2, 2), Layout((2, 2), (2, 1))))) for _ in range(n)
    )


@law(powers_of_two(), st.data())
def test_the_forms_of_division_differ_in_nesting_only(layout: Layout, data: Any) -> None:
    tiler = tilers(layout, data.draw)
    logical, zipped = logical_divide(layout, tiler), zipped_divide(layout, tiler)
    tiled, flat = tiled_divide(layout, tiler), flat_divide(layout, tiler)
    assert zipped == hier_unzip(logical_divide, layout, tiler) and rank(zipped) == 2
    assert image(zipped) == image(tiled) == image(flat)
    assert tiled[0] == zipped[0] and tiled[1:] == make_layout(list(zipped[1]))
    assert flat == make_layout([*zipped[0], *zipped[1]])
    assert sorted(image(zipped)) == sorted(image(logical)) or None in tiler or len(tiler) < len(layout)
    assert size(logical) == size(zipped)
    for i, t in enumerate(tiler):
        if t is None:
            assert zipped[0][i] == Layout(1, 0) and zipped[1][i] == layout[i] == logical[i]
        else:
            assert logical[i] == make_layout(zipped[0][i], zipped[1][i])
    for i in range(len(tiler), len(layout)):
        assert zipped[1][i] == layout[i] == logical[i]


def test_examples() -> None:
    assert logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)) == Layout(
        ((2, 2), (2, 3)), ((4, 1), (2, 8))
    )
    layout = Layout((9, (4, 8)), (59, (13, 1)))
    tiler = (Layout(3, 3), Layout((2, 4), (1, 8)))
    assert logical_divide(layout, tiler) == Layout(
        ((3, 3), ((2, 4), (2, 2))), ((177, 59), ((13, 2), (26, 1)))
    )
    assert zipped_divide(layout, tiler) == Layout(((3, (2, 4)), (3, (2, 2))), ((177, (13, 2)), (59, (26, 1))))
    assert logical_divide(Layout(10), 4) == Layout((4, 3), (1, 4))
    assert logical_divide(layout, None) is layout
    assert zipped_divide(layout, None) == make_layout(Layout(1, 0), layout)


def test_composed_layouts_are_divided_through_their_coordinates() -> None:
    smem = composition(Swizzle(2, 1, 2), Layout((8, 8), (8, 1)))
    result = zipped_divide(smem, (4, 2))
    assert isinstance(result, ComposedLayout) and rank(result) == 2
    assert result(((3, 1), (1, 2))) == smem(7, 5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: logical_divide(Layout((4, 3), (3, 1)), 3),
            r"cannot be divided by the tile 3:1.*divisibility",
        ),
        (lambda: logical_divide(Layout(16), Layout((4, 4), (1, 2))), "cannot be divided.*stride below"),
        (lambda: zipped_divide(Layout((4, 3)), (1, 1, 1)), "more entries"),
        (lambda: logical_divide(Layout((4, 3)), (1, 1, 1)), "more entries"),
        (lambda: logical_divide(Layout(4), 2.0), "a tiler is"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: logical_divide(Layout(4), 0), "at least 1"),
        (lambda: zipped_divide(4, 2), "takes a layout or a tensor first"),  # type: ignore[type-var]  # wrong on purpose
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call()
