"""Layout itself: the forms of call, slices, modes, measures, printing, and what it refuses."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lanewise.errors import LanewiseError
from lanewise.layout import (
    ArithmeticTuple,
    E,
    Layout,
    ScaledBasis,
    Swizzle,
    append,
    coalesce,
    composition,
    cosize,
    crd2idx,
    depth,
    dice,
    flatten,
    group,
    idx2crd,
    inner_product,
    is_layout,
    make_fragment_like,
    make_identity_layout,
    make_layout,
    make_layout_like,
    make_ordered_layout,
    prepend,
    product,
    rank,
    replace,
    right_inverse,
    select,
    size,
    slice_and_offset,
    take,
    with_shape,
)
from layout.layout_strategies import bijections, image, injections, law, layouts


@law(layouts())
def test_a_layout_is_the_inner_product_of_coordinate_and_stride(layout: Layout) -> None:
    for i in range(size(layout)):
        natural = idx2crd(i, layout.shape)
        assert layout(i) == layout(natural) == inner_product(natural, layout.stride)
        if isinstance(natural, tuple) and len(natural) > 1:
            assert layout(*natural) == layout(i)


@law(layouts())
def test_an_array_of_coordinates_gives_an_array_of_indices(layout: Layout) -> None:
    assert layout(np.arange(size(layout), dtype=np.uint8 if size(layout) < 256 else None)).tolist() == image(
        layout
    )


@law(layouts())
def test_cosize_is_one_more_than_the_greatest_index(layout: Layout) -> None:
    assert cosize(layout) == layout.cosize() == max(image(layout)) + 1


def test_cosize_counts_strides_without_their_sign() -> None:
    assert cosize(Layout((4, 2), (-1, 4))) == 8 and cosize(Layout(4, -3)) == 10


@law(layouts())
def test_modes(layout: Layout) -> None:
    assert len(layout) == rank(layout) == len(list(layout))
    assert make_layout(list(layout)) == make_layout(*layout)
    modes = make_layout(list(layout))
    assert image(modes) == image(layout)
    assert size(layout) == product(layout.shape) == product(tuple(size(m) for m in layout))
    assert layout[-1] == layout[len(layout) - 1] and layout[0:1] == make_layout([layout[0]])


@law(layouts())
def test_a_slice_and_its_offset_give_the_layout_back(layout: Layout) -> None:
    """Fix mode 0 and keep the rest, for each coordinate in mode 0."""
    if len(layout) == 1:
        return
    for c in range(size(layout[0])):
        crd = (c, *(None,) * (len(layout) - 1))
        part, offset = slice_and_offset(crd, layout)
        assert part == layout(crd) == layout(*crd)
        assert len(part) == len(layout) - 1
        assert [offset + x for x in image(part)] == [
            layout(c + size(layout[0]) * i) for i in range(size(part))
        ]


@law(layouts())
def test_equal_layouts_hash_alike(layout: Layout) -> None:
    twin = Layout(layout.shape, layout.stride)
    assert twin == layout and hash(twin) == hash(layout) and layout != layout.shape


def test_layouts_travel() -> None:
    for x in (Layout((4, 2)), Swizzle(2, 1, 3), composition(Swizzle(2, 1, 3), Layout(4)), E(1)):
        assert pickle.loads(pickle.dumps(x)) == x == copy.deepcopy(x)


def test_layouts_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Layout(4).shape = 5


def test_printing() -> None:
    assert str(Layout((4, 2), (1, 16))) == repr(Layout((4, 2), (1, 16))) == "(4,2):(1,16)"
    assert str(Layout(8, 2)) == "8:2" and str(Layout((8,))) == "(8,):(1,)"
    assert str(make_identity_layout((4, (2, 3)))) == "(4,(2,3)):(1@0,(1@0@1,1@1@1))"


def test_numpy_integers_become_plain() -> None:
    layout = Layout((np.int8(100), np.int16(8)), (np.int64(2), np.uint8(200)))
    assert all(type(x) is int for x in flatten(layout.shape) + flatten(layout.stride))
    assert layout(np.int8(99), np.int8(7)) == 198 + 1400
    assert type(layout(np.int8(99), np.int8(7))) is int


def test_the_empty_layout() -> None:
    empty = Layout((4, 8))(1, 2) and Layout((), ())
    assert size(empty) == 1 and cosize(empty) == 1 and empty() == empty(0) == empty(()) == 0
    assert coalesce(empty) == Layout(1, 0) and rank(empty) == 0 and image(empty) == [0]
    assert composition(empty, Layout(4)) == Layout(4, 0)


def test_make_layout() -> None:
    a, b = Layout(4, 2), Layout((2, 3))
    assert make_layout(a, b) == make_layout([a, b]) == make_layout(x for x in (a, b)) == make_layout((a, b))
    assert make_layout((4, 2), (2, 1)) == Layout((4, 2), (2, 1)) and make_layout((4, 2)) == Layout((4, 2))
    assert make_layout(a) == Layout((4,), (2,)) and make_layout(5) == Layout(5)
    assert is_layout(a) and not is_layout((a, b))


@law(injections())
def test_coordinates_of_an_index(layout: Layout) -> None:
    """Where every index has one coordinate, the three get_ functions find it."""
    flat = Layout(layout.shape)
    if cosize(layout) != size(layout):
        return
    for i in range(size(layout)):
        index = layout(i)
        assert layout.get_1d_coord(index) == i
        assert flat(layout.get_hier_coord(index)) == i and flat(*layout.get_flat_coord(index)) == i
        assert len(layout.get_flat_coord(index)) == len(layout)


@law(layouts())
def test_regrouping_keeps_the_function(layout: Layout) -> None:
    n = len(layout)
    assert image(group(layout, 0, n)) == image(layout)
    assert image(append(layout)) == image(prepend(layout)) == image(layout)
    assert image(append(layout, rank=n + 2)) == image(layout) and rank(append(layout, rank=n + 2)) == n + 2
    assert image(make_layout([*take(layout, 0, 1), *layout[1:]])) == image(layout)
    assert select(layout, *range(n)) == take(layout, 0, n)
    assert replace(layout, 0, layout[0]) == take(layout, 0, n)
    assert append(layout, Layout(3, 5))[-1] == Layout(3, 5) == prepend(layout, Layout(3, 5))[0]
    assert depth(group(take(layout, 0, n), 0, n)) == 1 + depth(take(layout, 0, n))


def test_modes_of_tuples() -> None:
    assert select((1, 2, 3), 2, 0) == (3, 1) and take((1, 2, 3), 1, 3) == (2, 3)
    assert (
        group((1, 2, 3), 1, 3) == (1, (2, 3))
        and group((1, 2, 3), 0, 2) == ((1, 2), 3)
        and replace((1, 2), 0, 9) == (9, 2)
    )
    assert append((1, 2), 7) == (1, 2, 7) and prepend(1, 7) == (7, 1)
    assert dice((None, 3), Layout((4, 8))) == Layout((8,), (4,)) and dice((None, 3), (4, 8)) == (8,)


@law(bijections())
def test_with_shape_keeps_the_order(layout: Layout) -> None:
    assert image(with_shape(layout, size(layout))) == image(layout)
    assert image(with_shape(layout, (1, size(layout)))) == image(layout)


def test_ordered_layouts() -> None:
    assert make_ordered_layout((2, 3, 4), (1, 0, 2)) == Layout((2, 3, 4), (3, 1, 6))
    assert make_ordered_layout((2, (3, 4)), (1, (2, 0))) == Layout((2, (3, 4)), (4, (8, 1)))
    assert make_ordered_layout((2, (3, 4)), (7, 7)) == Layout((2, (3, 4)))


@law(injections())
def test_a_layout_like_another_is_compact_and_runs_in_its_order(layout: Layout) -> None:
    compact = make_layout_like(layout)
    assert compact.shape == layout.shape
    assert sorted(image(compact)) == list(range(size(layout)))
    pairs = sorted(zip(image(layout), image(compact), strict=True))
    assert [c for _, c in pairs] == sorted(image(compact))
    fragment = make_fragment_like(layout)
    assert sorted(image(fragment)) == list(range(size(layout)))
    assert image(make_layout([fragment[0]])) == list(range(size(layout[0])))


def test_broadcast_modes_stay() -> None:
    assert make_layout_like(Layout((4, 3, 2), (100, 0, 1))) == Layout((4, 3, 2), (2, 0, 1))
    assert make_fragment_like(Layout(((2, 2), 3, 4), ((0, 8), 1, 0))) == Layout(
        ((2, 2), 3, 4), ((0, 1), 2, 0)
    )


@law(bijections())
def test_an_identity_layout_gives_coordinates(layout: Layout) -> None:
    identity = make_identity_layout(layout.shape)
    for i in range(size(layout)):
        natural = idx2crd(i, layout.shape)
        assert identity(i) == (natural if isinstance(natural, tuple) else (natural,))
    assert product(identity.coshape()) == identity.cosize() == size(layout)


@law(bijections((2, 3, 4)).filter(lambda a: isinstance(a.shape, tuple)))
def test_composition_selects_by_coordinate(a: Layout) -> None:
    """A layout of coordinates, applied before a, picks its modes; after its inverse, it finds them."""
    identity = make_identity_layout(a.shape)
    assert image(composition(a, identity)) == image(a)
    reached = composition(identity, right_inverse(a))
    assert [a(reached(i)) for i in range(size(a))] == list(range(size(a)))


def test_coordinates_add_up() -> None:
    assert E(0) + E(1) == (1, 1) and 2 * E(1) + 3 * E(0) == (3, 2) and E(0, 1) + E(1) == ((0, 1), 1)
    assert 0 + E(2) == E(2) == ScaledBasis(1, (2,)) and ArithmeticTuple((1, (2, 3))) + E(1, 0) == (1, (3, 3))
    with pytest.raises(LanewiseError, match="no sum"):
        ArithmeticTuple((1, 2)) + 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Layout((4, 2), (1,)), r"stride \(1,\) is not nested like shape \(4,2\)"),
        (lambda: Layout((4, 2), 1), "not nested like"),
        (lambda: Layout(4, (1, 2)), "not nested like"),
        (lambda: Layout([4, 2]), "not an integer"),
        (lambda: Layout("ab", 1), "not an integer or a tuple"),
        (lambda: Layout((4, True), (1, 4)), "True is not an integer"),
        (lambda: Layout((4, 2), (1, 0.5)), "0.5 is not an integer"),
        (lambda: Layout((4, 0)), "at least 1"),
        (lambda: Layout(-4), "at least 1"),
        (lambda: Layout((4, 2))(1, 2, 3), "one entry for each mode"),
        (lambda: Layout((4, 2))(1.0), "1.0 is not an integer"),
        (lambda: Layout((4, 2))[2], "modes 0 to 1; there is no mode 2"),
        (lambda: Layout(4)[1], "there is no mode 1"),
        (lambda: Layout(4)["a"], "there is no mode 'a'"),  # type: ignore[index]  # wrong on purpose
        (lambda: make_layout(Layout(4), 4), "each mode must be a Layout"),
        (lambda: make_layout(1, 2, 3), "not 3 int tuples"),
        (lambda: make_layout(None), "not an integer"),
        (lambda: make_layout(3.5), "not 3.5"),
        (lambda: size("abc"), "size takes a layout"),
        (lambda: cosize((4, 8)), "cosize takes a layout"),
        (lambda: coalesce((4, 8)), "coalesce takes a layout or a tensor"),  # type: ignore[type-var]  # wrong on purpose
        (lambda: coalesce(Layout(4), (1, 1)), "more entries"),
        (lambda: select(Layout((4, 2)), 2), "there is no mode 2"),
        (lambda: take(Layout((4, 2)), 1, 1), "no range"),
        (lambda: group(Layout((4, 2)), 0, 3), "no range"),
        (lambda: replace(Layout((4, 2)), 5, Layout(1)), "there is no mode 5"),
        (lambda: append(Layout((4, 2)), 3), "is a Layout, not 3"),
        (lambda: append(Layout((4, 2)), rank=1), "too small"),
        (lambda: make_ordered_layout((4, 2), (1, 2, 3)), "not nested like"),
        (lambda: make_layout_like(make_identity_layout((4, 4))), "use integer strides"),
        (lambda: crd2idx({}, 4), "not an integer"),
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call()


def test_a_number_of_too_many_digits_is_called_that() -> None:
    with pytest.raises(LanewiseError, match="its numbers have at most 18 digits"):
        Layout(f"({10**18},2)")
    assert Layout(f"({10**17},2)").shape == (10**17, 2)
