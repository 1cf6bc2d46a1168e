"""Products: the block stands unchanged in mode 0, its copies do not overlap."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    Swizzle,
    blocked_product,
    compatible,
    complement,
    composition,
    cosize,
    filter,
    flat_product,
    logical_product,
    make_layout,
    raked_product,
    rank,
    size,
    tile_to_shape,
    tiled_product,
    zipped_product,
)
from layout.layout_strategies import bijections, image, injections, law

TWOS = (1, 2, 4)


def check_product(block: Layout, tiler: Layout) -> None:
    result = logical_product(block, tiler)
    assert rank(result) == 2 and result[0] == block
    assert compatible(tiler.shape, result[1].shape)
    places = complement(block, size(block) * cosize(tiler))
    assert image(result[1]) == [places(i) for i in image(tiler)]
    once = image(make_layout(filter(block), filter(result[1])))
    assert len(set(once)) == len(once), "copies overlap"


@law(injections(TWOS, gaps=(1, 2)), injections(TWOS, gaps=(1, 2)))
def test_logical_product(block: Layout, tiler: Layout) -> None:
    check_product(block, tiler)


@law(bijections(), bijections())
def test_a_product_of_bijections_is_one(block: Layout, tiler: Layout) -> None:
    check_product(block, tiler)
    result = logical_product(block, tiler)
    assert sorted(image(result)) == list(range(size(block) * size(tiler)))


@law(injections(TWOS, gaps=(1, 2)), st.data())
def test_the_forms_of_product_differ_in_nesting_only(block: Layout, data: Any) -> None:
    tiler = tuple(
        data.draw(st.sampled_from((None, 1, 2, Layout((2, 2), (2, 1)))))
        for _ in range(data.draw(st.integers(1, rank(block))))
    )
    logical, zipped = logical_product(block, tiler), zipped_product(block, tiler)
    tiled, flat = tiled_product(block, tiler), flat_product(block, tiler)
    assert image(zipped) == image(tiled) == image(flat) and size(logical) == size(zipped)
    assert tiled[0] == zipped[0] and flat == make_layout([*zipped[0], *zipped[1]])
    for i, t in enumerate(tiler):
        if t is not None:
            assert zipped[0][i] == block[i]
            assert logical[i] == make_layout(zipped[0][i], zipped[1][i]) == logical_product(block[i], t)


def check_ranked(block: Layout, tiler: Layout, product: Callable[..., Any], block_first: bool) -> None:
    """Element (b, t) of the product is element b of the block put where copy t goes."""
    result = product(block, tiler)
    n = max(rank(block), rank(tiler))
    assert rank(result) == n and size(result) == size(block) * size(tiler)
    places = complement(block, size(block) * cosize(tiler))
    b = make_layout([*block] + [Layout(1, 0)] * (n - rank(block)))
    t = make_layout([*tiler] + [Layout(1, 0)] * (n - rank(tiler)))
    for i in range(size(b)):
        for j in range(size(t)):
            bc, tc = Layout(tuple(map(size, b))), Layout(tuple(map(size, t)))
            bi, tj = (x.get_flat_coord(k) for x, k in ((bc, i), (tc, j)))
            crd = tuple(
                p + size(bm) * q if block_first else q + size(tm) * p
                for p, q, bm, tm in zip(bi, tj, b, t, strict=True)
            )
            assert result(crd) == block(i) + places(tiler(j))


@law(bijections((1, 2, 3)), bijections(TWOS))
def test_blocked_and_raked_product(block: Layout, tiler: Layout) -> None:
    if size(block) * size(tiler) <= 400:
        check_ranked(block, tiler, blocked_product, block_first=True)
        check_ranked(block, tiler, raked_product, block_first=False)


def test_examples() -> None:
    block, tiler = Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))
    assert blocked_product(block, tiler) == Layout((6, (5, 4)), (5, (1, 30)))
    assert raked_product(block, tiler) == Layout(((3, 2), (4, 5)), ((10, 5), (30, 1)))
    assert tiled_product(Layout((4, 2), (1, 16)), Layout((2, 2))) == Layout(((4, 2), 2, 2), ((1, 16), 4, 8))
    assert logical_product(block, 4) == logical_product(block, Layout(4)) == Layout(((2, 5), 4), ((5, 1), 10))
    assert logical_product(block, None) is block


def test_tile_to_shape() -> None:
    atom = Layout((8, 4), (4, 1))
    for order in (None, (0, 1), (1, 0)):
        result = tile_to_shape(atom, (32, 8), order)
        assert tuple(map(size, result)) == (32, 8) and sorted(image(result)) == list(range(256))
        assert [result(m, k) for m in range(8) for k in range(4)] == [
            atom(m, k) for m in range(8) for k in range(4)
        ]
        assert result(8, 0) == (64 if order == (1, 0) else 32) and result(0, 4) == (
            32 if order == (1, 0) else 128
        )
    assert tile_to_shape(Layout(4), (8, 3)).shape == ((8, 3))
    smem = tile_to_shape(composition(Swizzle(2, 1, 2), Layout((8, 8), (8, 1))), (16, 16))
    assert sorted(image(smem)) == list(range(256)) and smem(3, 5) == Swizzle(2, 1, 2)(29)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: logical_product(Layout(8, 2), 3), "8:2 cannot be repeated as 3:1.*shape divisibility"),
        (lambda: logical_product(Layout((4, 4), (1, 2)), 2), "cannot be repeated.*stride below"),
        (lambda: blocked_product(Layout(4), "x"), "a tiler is"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tile_to_shape(Layout((8, 4)), (12, 4)), "not a multiple"),
        (lambda: tile_to_shape(Layout((8, 4)), 64), "more modes"),
        (lambda: tiled_product(Layout(4), (1, 2)), "more entries"),
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call()
