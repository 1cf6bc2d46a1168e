"""Views: tensors in memory as CuTe has them, a static layout over addresses with a traced beginning.

Elements, slices and their addresses are here; tiles of tensors and what threads take of them are in `tiles/`.
"""

from __future__ import annotations

from typing import Any

from lanewise.atoms import TmemTensor
from lanewise.atoms.value_types import of_format
from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.lang.memory.addresses import Addresses, Coordinates, StridedAddresses, TmemAddresses
from lanewise.lang.memory.layout_index import offsets, shape_text, static_modes, static_offset
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import dtype_name
from lanewise.layout import Layout, size
from lanewise.layout.coordinates import has_none, slice_
from lanewise.layout.int_tuple import Nested

#: Elements of a thread for which addresses are computed ahead.
_MOST_PREPARED = 1024


class View(Node):
    """Elements in memory through a layout, from a traced address on: `v[m, None, k]`, `v.ptr(m, n, k)`.

    None (or `:`) keeps a mode; a coordinate without either is an element.
    """

    __slots__ = ("addresses", "layout")

    def __init__(self, addresses: Addresses, layout: Layout) -> None:
        self.addresses, self.layout = addresses, layout

    def children(self) -> list[Any]:
        return self.addresses.traced()

    def with_children(self, children: list[object], fresh: bool = False) -> View:
        return View(self.addresses.with_traced(children), self.layout)

    def same_kind(self, other: object) -> bool:
        return (
            isinstance(other, View)
            and self.layout == other.layout
            and self.addresses.same_kind(other.addresses)
        )

    @property
    def dtype(self) -> Format:
        """The dtype of the elements."""
        return self.addresses.pointer.dtype

    @property
    def space(self) -> str:
        """The state space: shared, global, local."""
        return self.addresses.pointer.space

    @property
    def shape(self) -> Any:
        """The shape of the coordinates; an extent that only the running kernel knows is very large."""
        return self.layout.shape

    def addresses_at(self, coordinate: object, layout: Layout, mask: int | None = None) -> Addresses:
        """Return the addresses from a coordinate of a layout on."""
        return self.addresses.moved(offsets(layout.shape, layout.stride, coordinate), mask)

    def offset(self, number: int) -> Any:
        """Return how far the number-th coordinate leads, in elements or along each mode of the tensor."""
        return static_offset(self.layout(number), self.addresses.rank)

    def ptr(self, *coordinates: object) -> Pointer:
        """Return the pointer to an element; without coordinates, to the first."""
        if not coordinates:
            return self.addresses.pointer_at(static_offset(0, self.addresses.rank))
        crd = as_coordinate(coordinates[0] if len(coordinates) == 1 else coordinates, self.layout)
        return self.addresses_at(crd, self.layout).pointer_at(static_offset(0, self.addresses.rank))

    def coordinates(self, *coordinates: object) -> tuple[Any, ...]:
        """Return the coordinates of an element in the whole tensor that this view was cut from."""
        crd = as_coordinate(coordinates[0] if len(coordinates) == 1 else coordinates, self.layout)
        return self.addresses_at(crd, self.layout).coordinates(static_offset(0, self.addresses.rank))

    def as_tmem_tensor(self) -> TmemTensor:
        """Return the layout in tensor memory, for lw.make_tmem_copy; an error if it lies elsewhere."""
        if not isinstance(self.addresses, TmemAddresses):
            raise current().error(f"a tensor in tensor memory is needed, and {self} is not there")
        return TmemTensor(of_format(self.dtype), self.layout)

    def are_contiguous(self, numbers: list[int]) -> bool:
        """Return whether the elements of these coordinates lie side by side in memory, in order."""
        offsets = [self.offset(number) for number in numbers]
        if isinstance(self.addresses, StridedAddresses):
            for mode, stride in enumerate(self.addresses.strides):
                moves = any(offset[mode] != offsets[0][mode] for offset in offsets)
                if moves and (isinstance(stride, Scalar) or stride != 1):
                    return False
            offsets = [sum(offset) for offset in offsets]
        return [offset - offsets[0] for offset in offsets] == list(range(len(offsets)))

    def prepared(self) -> View:
        """Return the view, with what its addresses share computed here, before a loop that uses them."""
        inside = static_modes(self.layout)
        if size(inside) <= _MOST_PREPARED:
            offsets = [static_offset(inside(number), self.addresses.rank) for number in range(size(inside))]
            self.addresses.prepare(offsets)
        return self

    def __getitem__(self, coordinate: object) -> Any:
        crd = as_coordinate(coordinate, self.layout)
        if not has_none(crd):
            here, first = self.addresses_at(crd, self.layout), static_offset(0, self.addresses.rank)
            return here.coordinates(first) if isinstance(here, Coordinates) else here.pointer_at(first).load()
        return View(self.addresses_at(crd, self.layout), slice_layout(crd, self.layout))

    def __setitem__(self, coordinate: object, value: object) -> None:
        crd = as_coordinate(coordinate, self.layout)
        if has_none(crd):
            raise current().error("a slice is written by lw.copy(source, slice)")
        self.addresses_at(crd, self.layout).pointer_at(static_offset(0, self.addresses.rank)).store(value)

    def __iter__(self) -> Any:
        raise current().error("a tensor in memory is not iterated over: index it in a loop")

    def __str__(self) -> str:
        if isinstance(self.addresses, Coordinates):
            return f"a tensor of coordinates, of shape {shape_text(self.shape)}"
        return (
            f"a tensor of {dtype_name(self.dtype)} in {self.space} memory, of shape {shape_text(self.shape)}"
        )


def as_coordinate(coordinate: object, layout: Layout) -> Any:
    """Return a coordinate with None for `:`; an error unless it has an entry for each mode of the layout."""
    crd = without_slices(coordinate)
    if isinstance(crd, tuple) and isinstance(layout.shape, tuple) and len(crd) != len(layout.shape):
        raise current().error(
            f"{len(crd)} coordinates do not fit shape {shape_text(layout.shape)}: give one for each mode, "
            "None for those to keep"
        )
    return crd


def without_slices(crd: object) -> Any:
    """Return a coordinate with None for `:`."""
    if isinstance(crd, slice):
        if crd != slice(None):
            raise current().error(f"a slice of a tensor is `:` or None, a whole mode; not {crd}")
        return None
    return tuple(map(without_slices, crd)) if isinstance(crd, tuple) else crd


def slice_layout(crd: Nested, layout: Layout) -> Layout:
    """Return the modes of a layout that a coordinate keeps, those where it is None."""
    if crd is None:
        return layout
    try:
        return Layout._of(slice_(crd, layout.shape), slice_(crd, layout.stride))
    except LanewiseError as error:
        raise current().error(str(error)) from None
