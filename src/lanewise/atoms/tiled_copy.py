"""TiledCopy: copy atoms laid over a tile of data by a (thread, value) layout, and one thread's share of it.

How such layouts are made, from threads and values or after a TiledMMA, is in `make_copy.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lanewise.atoms.copy_atom import Copy_Atom
from lanewise.atoms.copy_names import CopyOperation
from lanewise.atoms.tiling import as_tensor, check_divides
from lanewise.engines import THREAD_SLICE
from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    Tensor,
    coalesce,
    composition,
    is_int,
    logical_product,
    make_layout,
    product,
    rank,
    right_inverse,
    size,
    upcast,
    with_shape,
    zipped_divide,
)
from lanewise.layout.int_tuple import spell
from lanewise.layout.layout import on_domain


@dataclass(frozen=True, init=False, repr=False)
class TiledCopy(Copy_Atom):
    """Copy atoms repeated over a tile; TiledLayout_TV maps (thread, value) to the column-major index in it.

    >>> from lanewise.atoms import make_tiled_copy
    >>> copy = make_tiled_copy("UniversalCopy<uint128_t>", Layout((16, 8), (8, 1)), Layout((1, 8)), "half_t")
    >>> copy.Tiler_MN, copy.TiledLayout_TV
    ((16, 64), ((8,16),8):((128,1),16))
    >>> copy.get_slice(9).partition_S(Tensor(0, Layout((32, 64), (64, 1))))
    72 o ((8,1),2,1):((1,0),1024,0)
    """

    TiledLayout_TV: Layout
    Tiler_MN: tuple[object, ...]

    def __init__(
        self,
        operation: CopyOperation | str,
        ValType: object,
        TiledLayout_TV: Layout,
        Tiler_MN: tuple[object, ...],
    ) -> None:
        super().__init__(operation, ValType)
        if (
            not isinstance(TiledLayout_TV, Layout)
            or len(TiledLayout_TV) != 2
            or not isinstance(Tiler_MN, tuple)
        ):
            raise LanewiseError(
                "a tiled copy has a layout (threads, values) and a tile of extents or layouts, one for each "
                f"mode; {TiledLayout_TV!r} and {Tiler_MN!r} were given"
            )
        object.__setattr__(self, "TiledLayout_TV", TiledLayout_TV)
        object.__setattr__(self, "Tiler_MN", Tiler_MN)
        for what, have, need in (
            ("threads", size(self.TiledLayout_TV[0]), size(self.ValLayoutRef[0])),
            ("values a thread", size(self.TiledLayout_TV[1]), size(self.ValLayoutRef[1])),
        ):
            if have % need:
                raise LanewiseError(
                    f"a tiled copy with {self.name} of {self.ValType} takes a multiple of {need} {what}; "
                    f"{self.TiledLayout_TV} has {have}. Take an atom that needs fewer, or a larger tile"
                )

    @property
    def atom(self) -> Copy_Atom:
        """The copy atom alone."""
        return Copy_Atom(self.operation, self.ValType)

    @property
    def tile_mn(self) -> tuple[int, ...]:
        """The extents (M, N) of the tile."""
        return tuple(size(entry) for entry in self.Tiler_MN)

    def size(self) -> int:
        """Return how many threads take part."""
        return size(self.TiledLayout_TV[0])

    # layouts -------------------------------------------------------------------------------------------

    @cached_property
    def _src_from_ref(self) -> Layout:
        """(thread, value) of the source to the index of the same value in the reference."""
        result: Layout = composition(right_inverse(self.ValLayoutRef), self.ValLayoutSrc)
        return result

    @cached_property
    def _dst_from_ref(self) -> Layout:
        """(thread, value) of the destination to the index of the same value in the reference."""
        result: Layout = composition(right_inverse(self.ValLayoutRef), self.ValLayoutDst)
        return result

    def _thrval(self, from_ref: Layout) -> Layout:
        """((thread), (value of an atom, atoms)) to the index in the tile, for one side of the copy."""
        atom_shape = (size(self.ValLayoutRef[0]), size(self.ValLayoutRef[1]))
        atoms, rest = zipped_divide(self.TiledLayout_TV, atom_shape)
        thread, value = composition(atoms, from_ref)
        side = make_layout(make_layout(thread, rest[0]), make_layout(value, rest[1]))
        return coalesce(side, (1, (1, 1)))

    def _tidfrg(self, name: str, tensor: object, from_ref: Layout) -> object:
        target = as_tensor(tensor)
        check_divides(f"tidfrg_{name}", target, "MN", self.Tiler_MN)
        return _tile_to_threads(target, self.Tiler_MN, self._thrval(from_ref))

    def tidfrg_S(self, tensor: object) -> Any:
        """A source (M, N, …) as (Thr, (FrgV, FrgX), (RestM, RestN, …)): values of an atom, atoms, tiles."""
        return self._tidfrg("S", tensor, self._src_from_ref)

    def tidfrg_D(self, tensor: object) -> Any:
        """A destination (M, N, …) as (Thr, (FrgV, FrgX), (RestM, RestN, …)), as tidfrg_S."""
        return self._tidfrg("D", tensor, self._dst_from_ref)

    def get_layoutS_TV(self) -> Layout:
        """(thread, value) of the source to the index in the tile."""
        return self._layout_tv(self._src_from_ref)

    def get_layoutD_TV(self) -> Layout:
        """(thread, value) of the destination to the index in the tile."""
        return self._layout_tv(self._dst_from_ref)

    def _layout_tv(self, from_ref: Layout) -> Layout:
        result: Layout = composition(Layout(self._tiler_shape), self._thrval(from_ref))
        return result

    @property
    def _tiler_shape(self) -> tuple[object, ...]:
        return tuple(entry.shape if isinstance(entry, Layout) else entry for entry in self.Tiler_MN)

    def retile(self, tensor: object) -> Any:
        """Return a thread's fragment (V, RestM, RestN, …) in the order in which this copy takes values."""
        part = as_tensor(tensor)
        values = size(part.shape[0]) if isinstance(part.shape, tuple) else 0
        if values == 0 or rank(part.shape) < 1 + len(self.Tiler_MN):
            raise LanewiseError(
                f"retile takes a thread's fragment, (V, Rest, …) of {1 + len(self.Tiler_MN)} modes at least; "
                f"one of shape {spell(part.shape)} was given"
            )
        try:
            in_tile = with_shape(right_inverse(self.TiledLayout_TV), *self._tiler_shape)
            fragments = upcast(in_tile, self.size() * values)
        except LanewiseError:
            raise self._no_retile(part.shape) from None
        atom_values = size(self.ValLayoutRef[1])
        order = logical_product(Layout(values), right_inverse(fragments))
        if size(order) % atom_values:
            raise self._no_retile(part.shape)
        tile = (values, *(product(mode.shape) for mode in fragments))
        check_divides("retile", part, "VMN", tile)
        return _retile(part, tile, zipped_divide(order, Layout(atom_values)))

    def _no_retile(self, shape: object) -> LanewiseError:
        return LanewiseError(
            f"a fragment of shape {spell(shape)} does not hold whole atoms of {self!r}: retile one that was "
            "partitioned by the TiledMMA or TiledCopy that this copy was made after"
        )

    # one thread ----------------------------------------------------------------------------------------

    def get_slice(self, thr_idx: Any) -> Any:
        """Return the part of one thread, a ThrCopy; inside a kernel the index may be traced."""
        if hasattr(thr_idx, "is_traced"):
            return THREAD_SLICE.function(self, thr_idx)
        if not is_int(thr_idx) or not 0 <= thr_idx < self.size():
            raise LanewiseError(
                f"thread {thr_idx!r} does not take part in {self!r}, "
                f"which runs on threads 0 to {self.size() - 1}"
            )
        return ThrCopy(self, int(thr_idx))

    def get_thread_slice(self, thr_idx: object) -> Any:
        """Return the same as `get_slice`, under CuTe's other name."""
        return self.get_slice(thr_idx)

    def __repr__(self) -> str:
        return f"TiledCopy({self.name}, {self.ValType}, {self.TiledLayout_TV}, {spell(self.Tiler_MN)})"

    def __str__(self) -> str:
        rows = (f"  Tiler_MN:       {spell(self.Tiler_MN)}", f"  TiledLayout_TV: {self.TiledLayout_TV}")
        return "\n".join(["TiledCopy", *rows, super().__str__()])


@on_domain
def _tile_to_threads(layout: Layout, tiler: tuple[Any, ...], thrval: Layout) -> Layout:
    """A layout (M, N, …) as (Thr, Frg, (RestM, RestN, …))."""
    tile, rest = zipped_divide(layout, tiler)
    thread, value = composition(tile, thrval)
    return make_layout(thread, value, rest)


@on_domain
def _retile(layout: Layout, tile: tuple[int, ...], order: Layout) -> Layout:
    """A layout (V, RestM, …) as ((values of an atom, atoms), RestM, …)."""
    inside, rest = zipped_divide(layout, tile)
    return make_layout([composition(inside, order), *rest[1:]])


@dataclass(frozen=True, repr=False)
class ThrCopy:
    """One thread's share of a tiled copy: what it reads, and what it writes."""

    copy: TiledCopy
    thr_idx: int

    def partition_S(self, tensor: object) -> Tensor:
        """What the thread reads of a source (M, N, …), as ((FrgV, FrgX), RestM, RestN, …)."""
        return self._part(self.copy.tidfrg_S(tensor))

    def partition_D(self, tensor: object) -> Tensor:
        """What the thread writes of a destination (M, N, …), as ((FrgV, FrgX), RestM, RestN, …)."""
        return self._part(self.copy.tidfrg_D(tensor))

    def _part(self, whole: object) -> Tensor:
        if not isinstance(whole, Tensor):
            whole = Tensor(0, whole)
        part: Tensor = whole[self.thr_idx, None, (None,) * rank(whole.shape[2])]
        return part

    def retile_S(self, tensor: object) -> Tensor:
        """A fragment to be read, seen in the order of this copy."""
        result: Tensor = self.copy.retile(tensor)
        return result

    def retile_D(self, tensor: object) -> Tensor:
        """A fragment to be written, seen in the order of this copy."""
        result: Tensor = self.copy.retile(tensor)
        return result

    def __repr__(self) -> str:
        return f"ThrCopy({self.thr_idx}, {self.copy!r})"
