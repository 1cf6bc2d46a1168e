"""Layout: a shape and a stride, the function from coordinates to indices that they define.

Building, calling, slicing and measuring one; the algebra that relates layouts is in the modules beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.layout.basis import ScaledBasis
from lanewise.layout.coordinates import crd2idx, has_none, idx2crd, index_of, nested_alike, slice_
from lanewise.layout.int_tuple import IntTuple, Nested, flatten, is_int, prefix_product, product, spell
from lanewise.layout.text import read_shape_and_stride
from lanewise.tracebacks import short_constructor, shorten


class Mapped(Drawn, ABC):
    """Anything whose coordinates are those of a Layout: a Layout, a ComposedLayout, a Tensor.

    An operation on coordinates (divide, slice, regroup) is written once, for Layout, and applies to all.
    """

    __slots__ = ()
    INSTEAD: ClassVar = {
        method: f"lanewise.layout.{function}(layout, …) does it"
        for method, function in {
            "compose": "composition",
            "divide": "logical_divide",
            "product": "logical_product",
            "inverse": "right_inverse",
            **{name: name for name in ("composition", "complement", "coalesce", "flatten", "select", "rank")},
        }.items()
    } | dict.fromkeys(("T", "transpose"), "lanewise.layout.select(layout, [1, 0]) exchanges its two modes")

    @abstractmethod
    def _domain(self) -> Mapped:
        """The layout one step inside, which defines the coordinates."""

    @abstractmethod
    def _on(self, domain: object) -> object:
        """The same object over other coordinates."""


class LayoutBase(Mapped):
    """What is_layout accepts: a Layout, or a composition that is no Layout any more."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, *crd: object) -> Nested: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def cosize(self) -> int: ...


M = TypeVar("M", bound=Mapped)
P = ParamSpec("P")


def on_domain(f: Callable[Concatenate[Layout, P], LayoutBase]) -> Callable[Concatenate[M, P], M]:
    """Let an operation on Layout take anything that is Mapped."""

    @wraps(f)
    def lifted(layout: object, *args: P.args, **kwargs: P.kwargs) -> Any:
        if isinstance(layout, Layout):
            return f(layout, *args, **kwargs)
        if isinstance(layout, Mapped):
            return layout._on(lifted(layout._domain(), *args, **kwargs))
        raise LanewiseError(f"{f.__name__} takes a layout or a tensor first, not {layout!r}")

    return cast("Callable[Concatenate[M, P], M]", lifted)


@short_constructor
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Layout(LayoutBase):
    """A layout shape:stride, which maps coordinates to indices.

    Without a stride it is compact, and its first mode is contiguous.

    Text is read as CuTe prints it, "(4,8):(1,4)", and as C++ has it, "Layout<Shape<_4,_8>, Stride<_1,_4>>".

    >>> tv = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    >>> tv((5, 1)), tv(5, 1), tv((1, 1), (1, 0))
    (49, 49, 49)
    >>> tv, tv[1], tv.size(), tv((1, None), 0)
    (((4,8),(2,2)):((32,1),(16,8)), (2,2):(16,8), 128, (8,):(1,))
    """

    shape: Nested
    stride: Nested

    def __init__(self, shape: Nested, stride: Nested = None) -> None:
        if isinstance(shape, str) and stride is None:
            shape, stride = read_shape_and_stride(shape)
        shape, stride = nested_alike(shape, prefix_product(shape) if stride is None else stride)
        if any(s < 1 for s in flatten(shape)):
            raise LanewiseError(f"shape {spell(shape)} has no elements: every extent is at least 1")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", stride)

    @staticmethod
    def _of(shape: object, stride: object) -> Layout:
        """A layout from parts of layouts, which need no check."""
        new = object.__new__(Layout)
        object.__setattr__(new, "shape", shape)
        object.__setattr__(new, "stride", stride)
        return new

    def _domain(self) -> Layout:
        return self

    def _on(self, domain: object) -> object:
        return domain

    def __len__(self) -> int:
        """The rank: how many modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    def __call__(self, *crd: Nested) -> Nested:
        """Return the index of a coordinate; if the coordinate has a None, the layout of the slice."""
        c = crd[0] if len(crd) == 1 else crd
        try:
            if has_none(c):
                return Layout._of(slice_(c, self.shape), slice_(c, self.stride))
            index = index_of(c, self.shape, self.stride)
        except LanewiseError as error:
            shorten(error)
            raise
        return index.as_tuple() if isinstance(index, ScaledBasis) else index

    def __getitem__(self, mode: int | slice) -> Layout:
        """Return one mode as a layout, or several modes for a slice."""
        try:
            if isinstance(self.shape, tuple):
                return Layout._of(self.shape[mode], self.stride[mode])
            return Layout._of((self.shape,)[mode], (self.stride,)[mode])
        except (IndexError, TypeError):
            index = f"; layout{mode} is the index at a coordinate" if isinstance(mode, tuple) else ""
            raise LanewiseError(
                f"{self} has modes 0 to {len(self) - 1}; there is no mode {mode!r}{index}"
            ) from None

    def __iter__(self) -> Iterator[Layout]:
        """The modes, as layouts."""
        return (self[i] for i in range(len(self)))

    def size(self) -> int:
        """Return the number of coordinates: the product of the shape."""
        return product(self.shape)

    def coshape(self) -> Nested:
        """Return the extent of the indices: an integer, or a tuple if the indices are coordinates."""
        last = Layout._of(self.shape, _absolute(self.stride))(self.size() - 1)
        return _successor(last)

    def cosize(self) -> int:
        """Return one more than the greatest index; negative strides count as positive ones."""
        return product(self.coshape())

    def get_hier_coord(self, index: int) -> Nested:
        """Return the coordinate of an index, nested like the shape; strides must be compact in some order."""
        return idx2crd(index, self.shape, self.stride)

    def get_flat_coord(self, index: int) -> tuple[int, ...]:
        """Return the coordinate of an index with one integer for each mode."""
        return tuple(crd2idx(mode.get_hier_coord(index), mode.shape) for mode in self)

    def get_1d_coord(self, index: int) -> int:
        """Return the coordinate of an index as one integer."""
        crd: int = crd2idx(self.get_hier_coord(index), self.shape)
        return crd

    def __str__(self) -> str:
        return f"{spell(self.shape)}:{spell(self.stride)}"

    __repr__ = __str__


def _absolute(stride: Nested) -> object:
    return tuple(map(_absolute, stride)) if isinstance(stride, tuple) else abs(stride)


def _successor(value: Nested) -> object:
    return tuple(map(_successor, value)) if isinstance(value, tuple) else value + 1


def is_layout(x: object) -> bool:
    """Whether x is a Layout or a ComposedLayout.

    >>> is_layout(Layout(4)), is_layout((4, 1))
    (True, False)
    """
    return isinstance(x, LayoutBase)


def make_layout(*layouts: Any) -> Layout:
    """Return a layout whose modes are the given layouts, or one made of a shape and a stride.

    >>> make_layout(Layout(4, 2), Layout(2, 1)), make_layout([Layout(4)]), make_layout((4, 2), (2, 1))
    ((4,2):(2,1), (4,):(1,), (4,2):(2,1))
    """
    modes: Iterable[Any] = layouts
    if len(layouts) == 1 and not is_layout(layouts[0]):
        if is_int(layouts[0]) or layouts[0] is None:
            return Layout(layouts[0])
        try:
            modes = tuple(layouts[0])
        except TypeError:
            raise LanewiseError(
                f"make_layout takes layouts, or shape and stride, not {layouts[0]!r}"
            ) from None
    modes = tuple(modes)
    if all(isinstance(m, Layout) for m in modes):
        return Layout._of(tuple(m.shape for m in modes), tuple(m.stride for m in modes))
    if any(is_layout(m) for m in modes):
        raise LanewiseError(f"make_layout({spell(modes)}): each mode must be a Layout, with shape and stride")
    if len(layouts) <= 2:
        return Layout(*layouts)
    raise LanewiseError(f"make_layout takes layouts, or a shape and a stride, not {len(layouts)} int tuples")


def make_identity_layout(shape: IntTuple) -> Layout:
    """The layout that maps each coordinate of shape to itself.

    >>> identity = make_identity_layout((4, 8))
    >>> identity, identity(13)
    ((4,8):(1@0,1@1), (1, 3))
    """

    def basis(s: object, path: tuple[int, ...]) -> Nested:
        if isinstance(s, tuple):
            return tuple(basis(x, (*path, i)) for i, x in enumerate(s))
        return ScaledBasis(1, path or (0,))

    return Layout(shape, basis(shape, ()))


def size(layout: Any) -> int:
    """How many coordinates a layout, a tensor or a shape has.

    >>> size(Layout((4, 8))), size((4, 8))
    (32, 32)
    """
    return product(layout) if isinstance(layout, tuple) or is_int(layout) else _measure(layout, "size")


def cosize(layout: object) -> int:
    """One more than the greatest index of a layout.

    >>> cosize(Layout((4, 2), (1, 16)))
    20
    """
    return _measure(layout, "cosize")


def _measure(layout: object, name: str) -> int:
    method = getattr(layout, name, None)
    if not isinstance(layout, Mapped) or method is None:
        raise LanewiseError(f"{name} takes a layout, not {layout!r}")
    result: int = method()
    return result


def slice_and_offset(crd: Nested, layout: object) -> tuple[Nested, Nested]:
    """The layout of a slice, and the index at which it begins (0 for a composition, which keeps it inside).

    >>> slice_and_offset((None, 3), Layout((4, 8), (8, 1)))
    ((4,):(8,), 3)
    """
    if not isinstance(layout, LayoutBase):
        raise LanewiseError(f"slice_and_offset takes a layout, not {layout!r}")
    if not isinstance(layout, Layout):
        return layout(crd), 0
    part = Layout._of(slice_(crd, layout.shape), slice_(crd, layout.stride))
    return part, index_of(crd, layout.shape, layout.stride)
