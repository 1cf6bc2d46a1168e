"""Tensor: indexing, slicing and writing agree, and partitions share the elements out."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    Swizzle,
    Tensor,
    coalesce,
    composition,
    cosize,
    depth,
    domain_offset,
    flat_divide,
    group,
    idx2crd,
    inner_partition,
    local_partition,
    local_tile,
    logical_divide,
    make_identity_tensor,
    make_layout,
    make_tensor,
    outer_partition,
    rank,
    select,
    size,
    tiled_divide,
    with_shape,
    zipped_divide,
)
from layout.layout_strategies import image, injections, law, layouts, powers_of_two


def data_for(layout: Any) -> list[Any]:
    """Data in which each element tells its index."""
    return [1000 + i for i in range(cosize(layout))]


@law(layouts(), st.booleans())
def test_a_tensor_is_data_behind_a_layout(layout: Layout, swizzled: bool) -> None:
    view = composition(Swizzle(2, 1, 2), layout) if swizzled else layout
    tensor = Tensor(data_for(view), view)
    assert list(tensor) == [1000 + i for i in image(view)] and len(tensor) == tensor.size() == size(layout)
    for i in range(size(layout)):
        natural = idx2crd(i, layout.shape)
        assert tensor[i] == tensor[natural] == tensor(i) == tensor(natural) == 1000 + view(i)
    assert tensor.shape == layout.shape and rank(tensor) == rank(layout) and depth(tensor) == depth(layout)
    assert list(Tensor(7, view)) == [7 + i for i in image(view)]


@law(layouts(), st.booleans(), st.data())
def test_slicing_equals_indexing(layout: Layout, swizzled: bool, data: Any) -> None:
    """A slice at the coordinates it kept is the tensor at all of them."""
    if rank(layout) == 1:
        return
    view = composition(Swizzle(2, 1, 2), layout) if swizzled else layout
    tensor = Tensor(data_for(view), view)
    crd = tuple(data.draw(st.one_of(st.none(), st.integers(0, size(m) - 1))) for m in layout)
    part = tensor[crd] if None in crd else tensor[(None, *crd[1:])]
    crd = crd if None in crd else (None, *crd[1:])
    kept = [i for i, c in enumerate(crd) if c is None]
    assert isinstance(part, Tensor) and rank(part) == len(kept)
    for i in range(size(part)):
        where = Layout(tuple(size(layout[k]) for k in kept)).get_flat_coord(i)
        full = list(crd)
        for k, c in zip(kept, where, strict=True):
            full[k] = c
        assert part[i] == tensor[tuple(full)]
    colons = tuple(slice(None) if c is None else c for c in crd)
    assert list(tensor[colons]) == list(part) == list(tensor(*crd))


@law(injections(), st.booleans())
def test_writing(layout: Layout, swizzled: bool) -> None:
    view = composition(Swizzle(2, 1, 2), layout) if swizzled else layout
    tensor = Tensor(data_for(view), view)
    before = list(tensor.data)
    for i in range(size(layout)):
        tensor[i] = -i
    assert list(tensor) == [-i for i in range(size(layout))]
    untouched = set(range(len(before))) - set(image(view))
    assert all(tensor.data[i] == before[i] for i in untouched)
    tensor[None] = 5
    assert set(tensor) == {5}
    tensor[None] = Tensor(list(range(size(layout))), Layout(size(layout)))
    assert list(tensor) == list(range(size(layout)))


def test_a_slice_shares_the_data() -> None:
    array = np.arange(32)
    tensor = Tensor(array, Layout((4, 8), (8, 1)))
    tensor[2, :][3] = 99
    assert array[19] == 99 and tensor[2, 3] == 99
    tensor[:, 0] = tensor[:, 1]
    assert array[::8].tolist() == array[1::8].tolist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_several_dimensions(order: Any) -> None:
    array = np.asarray(np.arange(12).reshape(3, 4), order=order)
    tensor = Tensor(array)
    assert tensor.shape == (3, 4) and all(tensor[i, j] == array[i, j] for i in range(3) for j in range(4))
    tensor[1, 2] = -1
    assert array[1, 2] == -1
    flat = Tensor(array, Layout(12))
    assert list(flat) == array.ravel(order="K").tolist()
    assert Tensor(np.arange(5))[4] == 4 and Tensor([1, 2, 3]).shape == 3


def test_algebra_on_tensors_is_that_of_their_layouts() -> None:
    layout = Layout((8, 6), (1, 8))
    tensor = Tensor(data_for(layout), layout)
    tile = (Layout(4), Layout(2, 3))
    for f in (logical_divide, zipped_divide, tiled_divide, flat_divide, composition):
        result = f(tensor, tile)
        assert isinstance(result, Tensor) and result.layout == f(layout, tile)
        assert list(result) == [1000 + i for i in image(f(layout, tile))]
    assert coalesce(tensor).layout == Layout(48) and group(tensor, 0, 2).shape == ((8, 6),)
    assert select(tensor, 1).layout == Layout((6,), (8,)) and with_shape(tensor, 6, 8).shape == (6, 8)
    assert size(tensor) == 48


@law(powers_of_two(), st.data())
def test_tiles_share_a_tensor_out(layout: Layout, data: Any) -> None:
    """All inner (and all outer) partitions together have each element as often as the divided tensor."""
    tensor = Tensor(0, layout)
    tiler = tuple(data.draw(st.sampled_from((1, 2, 4))) for _ in range(rank(layout)))
    whole = Counter(zipped_divide(tensor, tiler))
    tiles = zipped_divide(layout, tiler)
    inner: Counter[Any] = Counter()
    outer: Counter[Any] = Counter()
    for c in range(size(tiles[1])):
        inner.update(inner_partition(tensor, tiler, c))
    for c in range(size(tiles[0])):
        outer.update(outer_partition(tensor, tiler, c))
    assert inner == outer == whole


def test_local_tile() -> None:
    array = np.arange(64 * 48).reshape(64, 48)
    tensor = Tensor(array)
    tile = local_tile(tensor, (16, 12), (2, 3))
    assert all(tile[i, j] == array[32 + i, 36 + j] for i in range(16) for j in range(12))
    rows = local_tile(tensor, (16, 12), (2, None))
    assert rows.shape == (16, 12, 4) and rows[5, 6, 3] == array[37, 42]
    assert local_tile(tensor, (16, 12), (2,)).layout == rows.layout
    # a tiler over (M, N, K), of which the matrix has M and K
    projected = local_tile(tensor, (16, 99, 12), (2, 7, None), (1, None, 1))
    assert list(projected) == list(rows)


def test_local_partition() -> None:
    array = np.arange(16 * 16).reshape(16, 16)
    tensor = Tensor(array)
    threads = Layout((4, 8), (8, 1))
    seen: Counter[Any] = Counter()
    for t in range(32):
        part = local_partition(tensor, threads, t)
        row, col = divmod(t, 8)
        assert part.shape == (4, 2) and part[1, 1] == array[row + 4, col + 8]
        seen.update(int(x) for x in part)
    assert seen == Counter(range(256))
    projected = local_partition(tensor, Layout((4, 2, 8), (1, 4, 8)), 9, (1, None, 1))
    assert projected[0] == array[1, 1] and projected.shape == (4, 2)


@law(injections())
def test_an_identity_tensor_tells_where_elements_are(layout: Layout) -> None:
    """Partitioned like the tensor, it gives the coordinates of the partition's elements."""
    tensor, where = Tensor(data_for(layout), layout), make_identity_tensor(layout.shape)
    parts = (x[None] if rank(layout) == 1 else x[(0, *(None,) * (rank(layout) - 1))] for x in (tensor, where))
    for value, crd in zip(*parts, strict=True):
        crd = crd if isinstance(layout.shape, tuple) else crd[0]
        assert tensor[crd] == value


def test_domain_offset() -> None:
    tensor = Tensor(0, Layout((8, 8)))
    assert domain_offset((2, 3), tensor)[1, 1] == tensor[3, 4]
    smem = Tensor(0, composition(Swizzle(2, 1, 2), Layout((8, 8))))
    assert domain_offset((2, 3), smem)[1, 1] == smem[3, 4]


def test_printing() -> None:
    assert repr(Tensor(5, Layout(4))) == "5 o 4:1"
    assert repr(Tensor([0] * 8, Layout((2, 4)))[1, :]) == "list[8]+1 o (4,):(2,)"
    assert make_tensor(0, (4, 2)).layout == make_tensor(0, Layout((4, 2))).layout == Layout((4, 2))
    assert make_tensor([1, 2]).layout == Layout(2) and make_layout(Layout(2)) == Layout((2,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t[4, 0], r"coordinate 4 is outside 4: 0 to 3"),
        (lambda t: t[-1], "coordinate -1 is outside"),
        (lambda t: t[32], "0 to 31 are inside"),
        (lambda t: t[1, 2, 3], "one entry for each mode"),
        (lambda t: t[1.0, 2], "not an integer"),
        (lambda t: t[1:2, 0], "a whole mode"),
        (lambda t: Tensor([0] * 31, t.layout)[31], r"leads to index 31, outside the 31"),
        (lambda t: Tensor([0] * 9, Layout(4, -1))[1], "leads to index -1"),
        (lambda t: t.__setitem__((0, 0), 1), "no data to write"),
        (lambda t: Tensor([0] * 32, t.layout).__setitem__((None, 0), t), "32 elements, but"),
        (lambda t: Tensor(np.broadcast_to(0, 32), t.layout).__setitem__((0, 0), 1), "read-only"),
        (lambda t: Tensor((0,) * 32, t.layout).__setitem__((None, 0), 1), "does not take 1 at index 0"),
        (lambda t: Tensor(5), "needs a layout"),
        (lambda t: Tensor(object(), Layout(4)), "indexed by one"),
        (lambda t: Tensor(np.zeros((4, 4))[:, ::2], Layout(8)), "not contiguous"),
        (lambda t: Tensor([1, 2], make_identity_tensor((2, 2)).layout)[0], "leads to coordinates"),
        (lambda t: Tensor(0, composition(Swizzle(1, 0, 1), Layout(4))).stride, "no strides"),
        (lambda t: local_tile(t, (2, 2), (0, 0, 0)), "more entries"),
        (lambda t: local_tile(t, (2, 2), (9, 0)), "outside"),
        (lambda t: local_partition(t, Layout((2, 2)), 4), "thread 4 is not among the 4"),
        (lambda t: local_partition(t, (2, 2), 0), "Layout of threads"),  # type: ignore[arg-type]  # wrong on purpose
    ],
)
def test_complaints(call: Callable[..., Any], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        call(Tensor(0, Layout((4, 8))))
