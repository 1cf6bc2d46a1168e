"""Views: tensors in memory as CuTe has them, a static layout over addresses with a traced beginning.

Addresses go through a swizzle, or by strides known when the kernel runs; or they are coordinates, or lie in
tensor memory. How far a coordinate leads is computed in `layout_index.py`. Tiles of tensors and what threads
take of them are in `tiles/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.lang.memory.layout_index import (
    Offsets,
    Piece,
    offsets,
    piece_at,
    run_of,
    shape_text,
    static_modes,
    static_offset,
    swizzled,
    wide_sum,
)
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import mul, mul_wide
from lanewise.lang.trace.scalar import Scalar, literal
from lanewise.lang.trace.traced import Node
from lanewise.lang.trace.types import dtype_name, i32, i64, u32
from lanewise.layout import Layout, Swizzle, size
from lanewise.layout.coordinates import has_none, slice_
from lanewise.layout.int_tuple import Nested

if TYPE_CHECKING:
    from lanewise.atoms import TmemTensor


class _FromTracedBeginning:
    """What all kinds of addresses share: those that differ in traced values alone are of one kind."""

    swizzle: Swizzle | None
    #: The shape of the whole tensor, of those by strides.
    limits: tuple[Any, ...]

    @property
    def rank(self) -> int:
        """The number of modes that offsets have an entry for; 0 if they are integers, in elements."""
        return 0

    def _kind(self) -> tuple[object, ...]:
        """Return what is known while tracing."""
        return (self.rank,)

    def same_kind(self, other: object) -> bool:
        """Return whether others differ from these in traced values alone."""
        return isinstance(other, type(self)) and self._kind() == other._kind()

    def prepare(self, offsets: list[Any]) -> None:
        """Compute here, so that a loop does not, what the addresses of offsets share; here, nothing."""

    def contiguous_run(self) -> int:
        """Return how many aligned neighbours stay neighbours in memory; 0 for all."""
        return 0


@dataclass(frozen=True)
class SwizzledAddresses(_FromTracedBeginning):
    """Memory counted in elements: pointer[outer + swizzle(inner + static + offset)].

    `inner` has only the bits of `mask` (-1: any). A swizzle xors bits onto others, so it goes through a sum
    without carries bit by bit; `outer` and whole periods pass by it.
    """

    pointer: Pointer
    swizzle: Swizzle | None = None
    inner: Any = None
    mask: int = 0
    static: int = 0
    outer: Any = None

    def traced(self) -> list[Any]:
        """Return the traced values among its fields."""
        return [self.pointer, *(part for part in (self.inner, self.outer) if part is not None)]

    def with_traced(self, values: list[Any]) -> SwizzledAddresses:
        """Return the same addresses with other traced values."""
        rest = iter(values)
        return replace(
            self,
            pointer=next(rest),
            inner=None if self.inner is None else next(rest),
            outer=None if self.outer is None else next(rest),
        )

    def _kind(self) -> tuple[object, ...]:
        return self.swizzle, self.mask, self.static, self.inner is None, self.outer is None

    def moved(self, total: Offsets, mask: int | None = None) -> SwizzledAddresses:
        """Return the addresses from further on; `mask` has the bits that a traced offset can have."""
        offset = total.get((), 0)
        if not isinstance(offset, Scalar):
            return replace(self, static=self.static + offset)
        if offset.root is not None:  # its constant addend stays a constant offset
            return replace(self, static=self.static + offset.addend).moved({(): offset.root}, mask)
        if self.swizzle is None and mask is not None:
            return replace(self, pointer=self.pointer.at(offset))
        if self.swizzle is None or offset.multiple % self.swizzle.size() == 0:
            return replace(self, outer=wide_sum(self.outer, offset))
        bits = -1 if mask is None else mask
        if self.inner is not None:
            bits = bits | self.mask if bits >= 0 and self.mask >= 0 and not bits & self.mask else -1
        return replace(self, inner=wide_sum(self.inner, offset), mask=bits)

    def pointer_at(self, offset: int) -> Pointer:
        """Return the pointer to the element so many elements further on."""
        index = self.static + offset
        if self.swizzle is None:
            target = self.pointer.at(index)
        else:
            low = index % self.swizzle.size()
            target = self.pointer.at(self._swizzled(self.swizzle, low)).at(index - low)
            if self.inner is None and self.outer is None:
                piece = piece_at(self.swizzle, index, index + self.swizzle.size(), target.size)
            else:
                piece = Piece(run_of(self.swizzle) * target.size, self.swizzle, target.size)
            target = target.within(piece)
        return target if self.outer is None else target.at(self.outer)

    def linear_pointer(self) -> Pointer:
        """Return the pointer to where the first element would lie without the swizzle, as descriptors say it.

        Its alignment is that of the memory, from which the swizzle's pattern counts.
        """
        target = self.pointer.at(self.static)
        for part in (self.inner, self.outer):
            target = target if part is None else target.at(part)
        whole = self.outer is None or self.outer.multiple % (self.swizzle.size() if self.swizzle else 1) == 0
        align = self.pointer.align if whole else 1
        return Pointer(
            target.dtype, target.space, target.base, target.offset, align, variable=target.variable
        )

    def _swizzled(self, swizzle: Swizzle, low: int) -> object:
        """Return swizzle(inner + low) for a constant `low` smaller than the swizzle's period."""
        if self.inner is None:
            return swizzle(low)
        if self.mask < 0 or low & self.mask:
            return swizzled(swizzle, wide_sum(self.inner, low))
        moved = swizzle(low)
        index = swizzled(swizzle, self.inner)
        return index ^ moved if moved else index

    def prepare(self, offsets: list[int]) -> None:
        """Compute here, so that a loop does not, what the swizzle makes of offsets, but for whole periods."""
        if self.swizzle is not None:
            unit = self.contiguous_run()
            lows = {(self.static + offset) % self.swizzle.size() // unit * unit for offset in offsets}
            for low in sorted(lows):
                self.pointer_at(low - self.static)

    def contiguous_run(self) -> int:
        return 0 if self.swizzle is None else run_of(self.swizzle)

    def coordinates(self, offset: int) -> tuple[Any, ...]:
        """Raise the error that the coordinates of these elements are not kept."""
        raise current().error(
            "the coordinates of this tensor's elements are not kept: make it by "
            "lw.make_tensor(pointer, shape, stride)"
        )


@dataclass(frozen=True)
class StridedAddresses(_FromTracedBeginning):
    """Memory by coordinates: pointer[Σ coordinate · stride], with traced numbers among the strides.

    `pointer` is already at the coordinates of `origin`; `limits` is the shape of the whole tensor.
    """

    pointer: Pointer
    strides: tuple[Any, ...]
    limits: tuple[object, ...]
    origin: tuple[object, ...]

    swizzle = None

    @property
    def rank(self) -> int:
        return len(self.strides)

    def traced(self) -> list[Any]:
        """Return the traced values among its fields."""
        return [self.pointer, *map(_carried, self.origin)]

    def with_traced(self, values: list[Any]) -> StridedAddresses:
        """Return the same addresses with other traced values."""
        return replace(self, pointer=values[0], origin=tuple(values[1:]))

    def _kind(self) -> tuple[object, ...]:
        return tuple(map(id, self.strides)), tuple(map(id, self.limits))

    def moved(self, total: Offsets, mask: int | None = None) -> StridedAddresses:
        """Return the addresses from further on."""
        origin, pointer = list(self.origin), self.pointer
        for (mode,), step in total.items():
            origin[mode] = wide_sum(origin[mode], step)
            pointer = pointer.at(stride_product(step, self.strides[mode]))
        return replace(self, origin=tuple(origin), pointer=pointer)

    def pointer_at(self, offset: tuple[int, ...]) -> Pointer:
        """Return the pointer to the element so far along each mode."""
        target: Pointer = self.pointer
        for number, stride in zip(offset, self.strides, strict=True):
            if number and isinstance(stride, Scalar):
                target = target.at(stride_product(number, stride))
        fixed = sum(
            n * stride
            for n, stride in zip(offset, self.strides, strict=True)
            if not isinstance(stride, Scalar)
        )
        return target.moved(fixed, target.size)

    def prepare(self, offsets: list[tuple[int, ...]]) -> None:
        """Compute here, so that a loop does not, how far offsets lead along traced strides."""
        for mode, stride in enumerate(self.strides):
            if isinstance(stride, Scalar):
                for number in sorted({offset[mode] for offset in offsets} - {0}):
                    mul(stride_product(number, stride), self.pointer.size)

    def coordinates(self, offset: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the coordinates in the whole tensor of the element so far along each mode."""
        return tuple(wide_sum(first, more) for first, more in zip(self.origin, offset, strict=True))


@dataclass(frozen=True)
class Coordinates(_FromTracedBeginning):
    """The coordinates themselves from `origin` on, in place of addresses in memory."""

    origin: tuple[object, ...]

    swizzle = None

    @property
    def rank(self) -> int:
        return len(self.origin)

    @property
    def pointer(self) -> Pointer:
        """Raise the error that coordinates have no memory."""
        raise current().error("a tensor of coordinates has no memory: index it, as in row, col = t[v, m, n]")

    def traced(self) -> list[Any]:
        """Return the traced values among its fields."""
        return [*map(_carried, self.origin)]

    def with_traced(self, values: list[object]) -> Coordinates:
        """Return the same addresses with other traced values."""
        return Coordinates(tuple(values))

    def moved(self, total: Offsets, mask: int | None = None) -> Coordinates:
        """Return the addresses from further on."""
        origin = list(self.origin)
        for (mode,), step in total.items():
            origin[mode] = wide_sum(origin[mode], step)
        return Coordinates(tuple(origin))

    def pointer_at(self, offset: tuple[int, ...]) -> Pointer:
        """Raise the error that coordinates have no memory."""
        return self.pointer

    def coordinates(self, offset: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the coordinates so far along each mode."""
        return tuple(wide_sum(first, more) for first, more in zip(self.origin, offset, strict=True))


class TensorSpace(NamedTuple):
    """What a view says of tensor memory in place of a pointer: the dtype, and the space for messages."""

    dtype: Format
    space: str = "tensor"


@dataclass(frozen=True)
class TmemAddresses(_FromTracedBeginning):
    """Tensor memory counted in elements from an address on; its lanes lie above its columns."""

    base: Scalar
    dtype: Format
    static: int = 0

    swizzle = None

    @property
    def pointer(self) -> Any:
        """The dtype and the space; there are no pointers to tensor memory."""
        return TensorSpace(self.dtype)

    def traced(self) -> list[Any]:
        """Return the traced values among its fields."""
        return [self.base]

    def with_traced(self, values: list[Any]) -> TmemAddresses:
        """Return the same addresses with other traced values."""
        return replace(self, base=values[0])

    def _kind(self) -> tuple[object, ...]:
        return self.dtype, self.static

    def moved(self, total: Offsets, mask: int | None = None) -> TmemAddresses:
        """Return the addresses from further on."""
        offset = total.get((), 0)
        if not isinstance(offset, Scalar):
            return replace(self, static=self.static + offset)
        per_column = 32 // self.dtype.bits
        if offset.multiple % per_column:
            raise current().error(
                f"an address of tensor memory is that of a whole column, which {per_column} elements of "
                f"{self.dtype.name} share: this index is not known to be a multiple of {per_column}"
            )
        return replace(self, base=self.base + (offset // per_column).to(u32))

    def address_at(self, offset: int) -> Scalar:
        """Return the address of the element so many elements further on, as a u32."""
        bits = (self.static + offset) * self.dtype.bits
        if bits % 32:
            raise current().error(
                f"an address of tensor memory is that of a whole column, and the element "
                f"{self.static + offset} of {self.dtype.name} lies inside of one"
            )
        return self.base + bits // 32 if bits else self.base

    def pointer_at(self, offset: int) -> Pointer:
        """Raise the error that there are no pointers to tensor memory."""
        raise current().error(
            "tensor memory is loaded and stored by whole warps: lw.copy(lw.make_tmem_copy(atom, tensor), …)"
        )

    def coordinates(self, offset: int) -> tuple[Any, ...]:
        """Raise the error that the coordinates of these elements are not kept."""
        raise current().error(
            "tensor memory keeps no coordinates: partition lw.make_identity_tensor(shape) alike"
        )


def _carried(coordinate: object) -> Scalar:
    """Return a coordinate as a value that a loop or a branch may change."""
    return coordinate if isinstance(coordinate, Scalar) else literal(coordinate, i32)


def stride_product(step: Any, stride: Nested) -> Any:
    """Return step · stride, in 64 bits where both are traced or the product may be large."""
    if not isinstance(stride, Scalar):
        wide = isinstance(step, Scalar) and stride not in (0, 1)
        return (step.to(i64) if wide else step) * stride
    if isinstance(step, Scalar) and step.dtype == stride.dtype and step.dtype.bits == 32:
        product = mul_wide(step, stride)
        product.multiple = step.multiple * stride.multiple
        return product
    if isinstance(step, Scalar):
        step = step.to(i64)
    return stride.to(i64) * step


Addresses = SwizzledAddresses | StridedAddresses | Coordinates | TmemAddresses


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
        from lanewise.atoms import TmemTensor  # loaded where a kernel has tensor memory
        from lanewise.atoms.value_types import of_format

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
