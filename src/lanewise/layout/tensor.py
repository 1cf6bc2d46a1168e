"""Tensor: a pointer or an array, seen through a layout; indexed, sliced and written by coordinates.

The algebra applies to it as to its layout. A tensor is cut into the tiles of blocks and the elements of
threads; partitions by instruction fragments are in the atoms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout.basis import ArithmeticTuple, as_offset
from lanewise.layout.coordinates import dice, has_none
from lanewise.layout.divides import zipped_divide
from lanewise.layout.int_tuple import IntTuple, Nested, as_int, is_int, product, spell, suffix_product
from lanewise.layout.layout import Layout, LayoutBase, Mapped, make_identity_layout, slice_and_offset
from lanewise.layout.modes import rank
from lanewise.layout.swizzle import ComposedLayout
from lanewise.tracebacks import short_methods


@short_methods
class Tensor(Mapped):
    """Data seen through a layout: the element at coordinate c is data[offset + layout(c)].

    `data` is anything that an integer indexes, such as a list or a NumPy array. An array of several
    dimensions is taken as its elements in memory order, and provides the layout if none is given. If `data`
    is an integer or a coordinate, the element is data + layout(c).

    >>> t = Tensor(list(range(100, 132)), Layout((4, 8), (8, 1)))
    >>> t[1, 2], t[5], t[1, None], t[1, None][2]
    (110, 109, list[32]+8 o (8,):(1,), 110)
    >>> t[:, 0] = 0
    >>> list(t[None, 0]), Tensor(1000, Layout((4, 8)))[1, 1]
    ([0, 0, 0, 0], 1005)
    """

    __slots__ = ("data", "layout", "offset")

    data: Any
    layout: Any
    offset: Nested

    def __init__(self, data: object, layout: object = None, offset: object = 0) -> None:
        if layout is None:
            layout = _natural_layout(data)
        elif not isinstance(layout, LayoutBase):
            layout = Layout(layout)
        self.layout = layout
        self.data = None
        self.offset = as_offset(offset)
        if is_int(data) or isinstance(data, ArithmeticTuple):
            self.offset = as_offset(data) + self.offset
        elif data is not None:
            self.data = _in_memory_order(data)

    def _domain(self) -> Nested:
        return self.layout

    def _on(self, domain: object) -> Tensor:
        return self._at(domain, self.offset)

    def _at(self, layout: object, offset: object) -> Tensor:
        new = Tensor.__new__(Tensor)
        new.data, new.layout, new.offset = self.data, layout, offset
        return new

    @property
    def shape(self) -> Nested:
        """The shape of the coordinates."""
        return self.layout.shape

    @property
    def stride(self) -> Nested:
        """The strides, if the layout has any."""
        if not isinstance(self.layout, Layout):
            raise LanewiseError(f"{self.layout} is a composition, which has no strides")
        return self.layout.stride

    def size(self) -> int:
        """Return the number of elements; elements that share memory count each."""
        n: int = self.layout.size()
        return n

    def __len__(self) -> int:
        return self.size()

    def __getitem__(self, crd: object) -> Any:
        """Return the element at a coordinate; if it has a None or `:`, the tensor of the slice."""
        crd = _checked(crd, self.shape)
        return self._slice(crd) if has_none(crd) else self._get(self._index(crd))

    def __call__(self, *crd: object) -> Nested:
        """Return the same as t[…], in CuTe's spelling."""
        return self[crd[0] if len(crd) == 1 else crd]

    def __setitem__(self, crd: object, value: object) -> None:
        """Write an element; over a slice, write one value everywhere or the elements of a tensor in order."""
        if self.data is None:
            raise LanewiseError(f"{self} has no data to write to; give Tensor a list or an array")
        crd = _checked(crd, self.shape)
        if not has_none(crd):
            self._put(self._index(crd), value)
            return
        target = self._slice(crd)
        n = target.size()
        if isinstance(value, Tensor) and value.size() != n:
            raise LanewiseError(f"{value} has {value.size()} elements, but {target} has {n}")
        values = list(value) if isinstance(value, Tensor) else [value] * n
        for i, v in enumerate(values):
            target._put(target._index(i), v)

    def __iter__(self) -> Iterator[Any]:
        """The elements in the order of linear coordinates."""
        return (self._get(self._index(i)) for i in range(self.size()))

    def _slice(self, crd: object) -> Tensor:
        if crd is None:
            return self
        if isinstance(self.layout, Layout):
            part, begin = slice_and_offset(crd, self.layout)
            return self._at(part, self.offset + begin)
        return self._at(self.layout(crd), self.offset)

    def _index(self, crd: object) -> object:
        index = self.offset + self.layout(crd)
        if isinstance(index, tuple) and self.data is not None:
            raise LanewiseError(f"{self} leads to coordinates, but its data takes an integer index")
        if self.data is not None and not 0 <= index < len(self.data):
            raise LanewiseError(
                f"coordinate {spell(crd)} of {self} leads to index {index}, "
                f"outside the {len(self.data)} elements of its data"
            )
        return index

    def _get(self, index: object) -> object:
        return index if self.data is None else self.data[index]

    def _put(self, index: object, value: object) -> None:
        try:
            self.data[index] = value
        except (TypeError, ValueError) as error:  # read-only data, or a value that it cannot hold
            raise LanewiseError(f"{self} does not take {value!r} at index {index}: {error}") from error

    def __repr__(self) -> str:
        base = "" if self.data is None else f"{type(self.data).__name__}[{len(self.data)}]+"
        return f"{base}{spell(self.offset)} o {self.layout}"


def _checked(crd: Nested, shape: Nested) -> object:
    """The coordinate with None for each ':', if it is inside shape."""
    if isinstance(crd, slice):
        if crd != slice(None):
            raise LanewiseError(
                f"a slice of a tensor is ':' or None, a whole mode; for {crd} divide it first"
            )
        return None
    if crd is None:
        return None
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(crd) != len(shape):
            raise LanewiseError(
                f"coordinate {spell(crd)} does not fit shape {spell(shape)}: "
                "give one integer, or one entry for each mode"
            )
        return tuple(_checked(c, s) for c, s in zip(crd, shape, strict=True))
    if not 0 <= as_int(crd) < product(shape):
        raise LanewiseError(
            f"coordinate {crd} is outside {spell(shape)}: 0 to {product(shape) - 1} are inside"
        )
    return as_int(crd)


def _natural_layout(data: object) -> Layout:
    shape = getattr(data, "shape", None)
    if isinstance(shape, tuple) and shape:
        return Layout(shape, None if _is_column_major(data) else suffix_product(shape))
    if hasattr(data, "__len__"):
        return Layout(len(data))
    raise LanewiseError(f"Tensor({data!r}) needs a layout: its shape does not follow from the data")


def _is_column_major(data: object) -> bool:
    flags = getattr(data, "flags", None)
    return bool(flags is not None and flags.f_contiguous and not flags.c_contiguous)


def _in_memory_order(data: Any) -> object:
    """data as one dimension that shares its memory."""
    if getattr(data, "ndim", 1) == 1:
        if not hasattr(data, "__getitem__"):
            raise LanewiseError(f"a tensor's data is an integer or something indexed by one, not {data!r}")
        return data
    flags = getattr(data, "flags", None)
    if data.ndim == 0 or flags is None or not (flags.c_contiguous or flags.f_contiguous):
        raise LanewiseError("the array is not contiguous: give a one-dimensional view of it, and a layout")
    return (data.T if _is_column_major(data) else data).reshape(-1)


def make_tensor(data: object, *layout: object) -> Tensor:
    """A tensor from a pointer or an array and a layout, or a shape and a stride.

    >>> make_tensor(0, (4, 8), (8, 1))[3, 5]
    29
    """
    if len(layout) == 1 and isinstance(layout[0], LayoutBase):
        return Tensor(data, layout[0])
    return Tensor(data, Layout(*layout) if layout else None)


def make_identity_tensor(shape: IntTuple) -> Tensor:
    """The tensor whose elements are their own coordinates: partition it to see which element goes where.

    >>> make_identity_tensor((4, 8))[3, 5], make_identity_tensor((4, 8))[:, 5][2]
    ((3, 5), (2, 5))
    """
    return Tensor(_origin(shape), make_identity_layout(shape))


def _origin(shape: object) -> ArithmeticTuple:
    extents = shape if isinstance(shape, tuple) else (shape,)
    return ArithmeticTuple(_origin(s) if isinstance(s, tuple) else 0 for s in extents)


def inner_partition(tensor: Tensor, tiler: object, crd: object) -> Tensor:
    """One tile of a tensor: the one at crd among the tiles. Fewer entries in crd leave the last modes whole.

    >>> inner_partition(Tensor(0, Layout((8, 8))), (2, 4), (1, 1))
    34 o (2,4):(1,8)
    """
    tiles = _tiles("inner_partition", tensor, tiler)
    part: Tensor = tiles[(None,) * rank(tiles.layout[0]), _filled("inner_partition", crd, tiles.shape[1])]
    return part


def outer_partition(tensor: Tensor, tiler: object, crd: object) -> Tensor:
    """The elements of a tensor that lie at crd within each tile.

    >>> outer_partition(Tensor(0, Layout((8, 8))), (2, 4), (1, 1))
    9 o (4,2):(2,32)
    """
    tiles = _tiles("outer_partition", tensor, tiler)
    part: Tensor = tiles[_filled("outer_partition", crd, tiles.shape[0]), (None,) * rank(tiles.layout[1])]
    return part


def _tiles(name: str, tensor: Tensor, tiler: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise LanewiseError(
            f"{name} takes a Tensor, not {tensor!r}; Tensor(0, layout) is one of indices alone"
        )
    return zipped_divide(tensor, tiler)


def _filled(name: str, crd: object, shape: object) -> Nested:
    """crd with None for the modes of shape that it leaves out."""
    if not isinstance(crd, tuple) or not isinstance(shape, tuple):
        return crd
    if len(crd) > len(shape):
        raise LanewiseError(f"{name}: coordinate {spell(crd)} has more entries than {spell(shape)}")
    return crd + (None,) * (len(shape) - len(crd))


def local_tile(tensor: Tensor, tiler: object, crd: Nested, proj: Nested = None) -> Tensor:
    """The tile of a tensor that belongs to the block at crd.

    With proj, a tuple, the entries of tiler and crd where proj has None are left out: a tiler of (M, N, K)
    serves A with (1, None, 1), B with (None, 1, 1), C with (1, 1, None).

    >>> A = Tensor(0, Layout((256, 64)))
    >>> local_tile(A, (128, 96, 16), (1, 2, None), (1, None, 1))
    128 o (128,16,4):(1,256,4096)
    """
    if proj is not None:
        tiler, crd = dice(proj, tiler), dice(proj, crd)
    return inner_partition(tensor, tiler, crd)


def local_partition(tensor: Tensor, threads: Layout, index: int, proj: Nested = None) -> Tensor:
    """The elements of a tensor that belong to one thread, the layout of threads laid over it tile by tile.

    >>> local_partition(Tensor(0, Layout((8, 8))), Layout((2, 4), (4, 1)), 5)
    9 o (4,2):(2,32)
    """
    if not isinstance(threads, Layout):
        raise LanewiseError(f"local_partition takes a Layout of threads, not {threads!r}")
    if not 0 <= as_int(index) < threads.cosize():
        raise LanewiseError(f"thread {index} is not among the {threads.cosize()} threads of {threads}")
    tiler: object = tuple(product(mode.shape) for mode in threads)
    crd: Nested = threads.get_flat_coord(index)
    if proj is not None:
        tiler, crd = dice(proj, tiler), dice(proj, crd)
    return outer_partition(tensor, tiler, crd)


def domain_offset(crd: object, tensor: Tensor) -> Tensor:
    """The same tensor seen from crd: its coordinate 0 is what crd was.

    >>> domain_offset((2, 3), Tensor(0, Layout((8, 8))))[0]
    26
    """
    if not isinstance(tensor, Tensor) or has_none(crd):
        raise LanewiseError(
            f"domain_offset takes a whole coordinate and a Tensor, not {crd!r} and {tensor!r}"
        )
    layout = tensor.layout
    if isinstance(layout, ComposedLayout):  # the step must pass through the swizzle
        return tensor._on(layout.shifted(crd))
    return tensor._at(layout, tensor.offset + layout(crd))
