"""Swizzle and ComposedLayout: a permutation that is its own inverse, and a layout followed by a function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    coalesce,
    composition,
    cosize,
    depth,
    group,
    is_layout,
    is_swizzled,
    make_layout,
    rank,
    shiftl,
    shiftr,
    size,
)
from layout.layout_strategies import image, law, layouts


@st.composite
def swizzles(draw: Callable[..., Any]) -> Swizzle:
    bits = draw(st.integers(0, 3))
    shift = draw(st.integers(bits, 4)) * draw(st.sampled_from((1, -1)))
    return Swizzle(bits, draw(st.integers(0, 3)), shift)


@law(swizzles())
def test_a_swizzle_permutes_and_is_its_own_inverse(swizzle: Swizzle) -> None:
    n = size_of(swizzle)
    values = [swizzle(i) for i in range(n)]
    assert sorted(values) == list(range(n))
    assert [swizzle(v) for v in values] == list(range(n))
    low = (1 << swizzle.base) - 1
    assert all(v & low == i & low for i, v in enumerate(values))


def size_of(swizzle: Swizzle) -> int:
    assert swizzle.size() == swizzle.cosize() == 1 << (swizzle.bits + swizzle.base + abs(swizzle.shift))
    return swizzle.size()


@law(swizzles(), st.integers(0, 1 << 12))
def test_a_swizzle_is_linear_over_the_bits(swizzle: Swizzle, x: int) -> None:
    assert swizzle(x ^ 0b1011) == swizzle(x) ^ swizzle(0b1011)
    assert swizzle(x) & ~swizzle.zzz_msk == x & ~swizzle.zzz_msk
    assert swizzle(x ^ (swizzle.size() << 3)) == swizzle(x) ^ (swizzle.size() << 3)


def test_known_values() -> None:
    """The 128-byte swizzle, on byte addresses: chunk c of 16 bytes in row r of 128 bytes goes to c ^ r."""
    swizzle = Swizzle(3, 4, 3)
    for row in range(8):
        for chunk in range(8):
            assert swizzle(row * 128 + chunk * 16) == row * 128 + (chunk ^ row) * 16
    assert [Swizzle(1, 0, -1)(i) for i in range(4)] == [0, 3, 2, 1]
    assert Swizzle(0, 4, 0)(12345) == 12345
    assert (shiftl(3, 2), shiftr(12, 2), shiftl(12, -2), shiftr(3, -2)) == (12, 3, 3, 12)


def test_arrays_of_offsets() -> None:
    swizzle = Swizzle(3, 4, 3)
    x = np.arange(1024, dtype=np.int16)
    assert swizzle(x).tolist() == [swizzle(int(i)) for i in x]
    smem = composition(swizzle, Layout((8, 128), (128, 1)))
    assert smem(x).tolist() == image(smem)


@law(swizzles(), st.integers(0, 20), layouts())
def test_a_composed_layout_is_a_layout_then_a_function(swizzle: Swizzle, offset: int, layout: Layout) -> None:
    composed = ComposedLayout(swizzle, offset, layout)
    assert image(composed) == [swizzle(offset + i) for i in image(layout)]
    assert size(composed) == size(layout) and rank(composed) == len(composed) == rank(layout)
    assert depth(composed) == depth(layout) and composed.shape == layout.shape
    assert cosize(composed) == max(image(composed)) + 1
    assert image(coalesce(composed)) == image(composed) == image(group(composed, 0, rank(composed)))
    assert is_layout(composed) and is_swizzled(composed) == (swizzle.bits > 0)
    assert composed == ComposedLayout(swizzle, offset, layout) != ComposedLayout(swizzle, offset + 1, layout)
    assert hash(composed) == hash(ComposedLayout(swizzle, offset, layout))
    assert [m.layoutA for m in composed] == list(layout)


@law(swizzles(), layouts())
def test_slicing_a_composed_layout(swizzle: Swizzle, layout: Layout) -> None:
    """The slice gives what the whole gives, whatever the function after it."""
    if rank(layout) == 1:
        return
    composed = composition(swizzle, layout)
    nested = ComposedLayout(lambda i: 3 * i, 1, composed)
    for c in range(size(layout[0])):
        crd = (c, *(None,) * (rank(layout) - 1))
        rest = [composed(c + size(layout[0]) * i) for i in range(size(layout) // size(layout[0]))]
        assert image(composed(crd)) == image(composed(*crd)) == rest
        assert image(nested(crd)) == [3 * (1 + i) for i in rest]


def test_printing() -> None:
    composed = composition(Swizzle(3, 4, 3), 0, Layout((8, 64), (64, 1)))
    assert str(composed) == repr(composed) == "SW_3_4_3 o 0 o (8,64):(64,1)"
    assert repr(Swizzle(3, 4, 3)) == "Swizzle(3,4,3)" and str(Swizzle(3, 4, 3)) == "SW_3_4_3"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Swizzle(3, 0, 2), "overlap"),
        (lambda: Swizzle(-1, 0, 2), "at least 0"),
        (lambda: Swizzle(1, -1, 2), "at least 0"),
        (lambda: Swizzle(1.0, 0, 2), "not an integer"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: Swizzle(1, 0, 2)(1.5), "not an integer"),
        (lambda: ComposedLayout(5, 0, Layout(4)), "give a function"),
        (lambda: ComposedLayout(Swizzle(1, 0, 1), 0, 4), "give a function"),
        (
            lambda: make_layout(composition(Swizzle(1, 0, 1), Layout(4)), Layout(2)),
            "each mode must be a Layout",
        ),
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call()
