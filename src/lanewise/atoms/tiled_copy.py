"""TiledCopy: copy atoms laid over a tile of data by a (thread, value) layout, and one thread's share of it.

Such layouts are made from those of threads and of values, after a TiledMMA's operand, after another copy, or
after a tensor in tensor memory (make_tmem_copy and its kin).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from lanewise.atoms.copy_atom import Copy_Atom
from lanewise.atoms.copy_names import CopyOperation
from lanewise.atoms.mma_atom import MMA_Atom
from lanewise.atoms.template import unwrapped
from lanewise.atoms.tiling import as_tensor, check_divides
from lanewise.atoms.tmem import TmemTensor, lane_stride
from lanewise.engines import THREAD_SLICE
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_memory.accumulators import LANES, PARTITION
from lanewise.isa.tensor_memory.load_shapes import WARP
from lanewise.layout import (
    Layout,
    Tensor,
    coalesce,
    composition,
    filter,
    flatten,
    is_int,
    left_inverse,
    logical_product,
    make_layout,
    product,
    raked_product,
    rank,
    right_inverse,
    size,
    upcast,
    with_shape,
    zipped_divide,
)
from lanewise.layout.int_tuple import spell
from lanewise.layout.layout import on_domain
from lanewise.tracebacks import short_methods, short_traceback


@short_methods
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

    INSTEAD: ClassVar = {
        name: f"take a thread's part of it first: .get_slice(thread).{name}(…)"
        for name in ("partition_S", "partition_D", "retile_S", "retile_D")
    }
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


@short_methods
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


def as_copy_atom(copy_atom: object, kind: object = None) -> Copy_Atom:
    """A copy atom, from itself or from its name and the type of its values."""
    if isinstance(copy_atom, str):
        name, own = unwrapped(copy_atom)
        return Copy_Atom(name, kind if own is None else own)
    if not isinstance(copy_atom, Copy_Atom):
        raise LanewiseError(f"a tiled copy is made of a copy atom or its name, not {copy_atom!r}")
    return copy_atom


def _tiled(copy_atom: Copy_Atom, layout_tv: Layout, tiler: tuple[object, ...]) -> TiledCopy:
    return TiledCopy(copy_atom.operation, copy_atom.ValType, layout_tv, tiler)


def _layout(what: object, name: str) -> Layout:
    if isinstance(what, Layout):
        return what
    if isinstance(what, tuple) or is_int(what):
        return Layout(what)
    if isinstance(what, str) and not what.isalnum():
        try:
            return Layout(what)
        except LanewiseError as error:
            raise LanewiseError(f"{name} is a layout or a shape, not {what!r}: {error}") from None
    raise LanewiseError(f"{name} is a layout or a shape, not {what!r}")


@short_traceback
def make_tiled_copy(
    copy_atom: object, thr_layout: object, val_layout: object = 1, kind: object = None
) -> TiledCopy:
    """Return a tiled copy, given the layouts from (m, n) to the thread and from (m, n) to a thread's value.

    If the atom is given by its name, `kind` is the type of the values that it moves.

    >>> copy = make_tiled_copy("UniversalCopy<uint128_t>", Layout((16, 8), (8, 1)), Layout((1, 8)), "half_t")
    >>> print(copy.TiledLayout_TV)
    ((8,16),8):((128,1),16)
    """
    threads, values = _layout(thr_layout, "thr_layout"), _layout(val_layout, "val_layout")
    for name, layout in (("thr_layout", threads), ("val_layout", values)):
        if sorted(map(layout, range(size(layout)))) != list(range(size(layout))):
            raise LanewiseError(
                f"{name} {layout} must number the {size(layout)} places of its shape from 0 on, each once"
            )
    in_tile = raked_product(threads, values)
    layout_tv = with_shape(right_inverse(in_tile), size(threads), size(values))
    return _tiled(as_copy_atom(copy_atom, kind), layout_tv, tuple(size(mode) for mode in in_tile))


def make_tiled_copy_A(copy_atom: object, mma: MMA_Atom) -> TiledCopy:
    """Return the tiled copy that copies to each thread its part of A; by default it moves A's type.

    >>> from lanewise.atoms import make_tiled_mma
    >>> mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2), (32, 32, 16))
    >>> make_tiled_copy_A("SM75_U32x4_LDSM_N", mma).get_layoutS_TV()
    ((16,2,2,2),(8,1)):((1,256,16,0),(32,0))
    """
    tile = _checked(mma).tile_size_mnk
    return _tiled(as_copy_atom(copy_atom, mma.ValTypeA), mma.get_layoutA_TV(), (tile[0], tile[2]))


def make_tiled_copy_B(copy_atom: object, mma: MMA_Atom) -> TiledCopy:
    """Return the tiled copy that copies to each thread its part of B, which is (N, K).

    >>> from lanewise.atoms import make_tiled_mma
    >>> mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2), (32, 32, 16))
    >>> make_tiled_copy_B("SM75_U32x4_LDSM_N", mma).Tiler_MN
    (32, 16)
    """
    tile = _checked(mma).tile_size_mnk
    return _tiled(as_copy_atom(copy_atom, mma.ValTypeB), mma.get_layoutB_TV(), (tile[1], tile[2]))


def make_tiled_copy_C(copy_atom: object, mma: MMA_Atom) -> TiledCopy:
    """Return the tiled copy that copies each thread's part of C.

    >>> from lanewise.atoms import make_tiled_mma
    >>> mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2), (32, 32, 16))
    >>> make_tiled_copy_C("UniversalCopy<uint64_t>", mma).get_slice(0).partition_D(Layout((32, 32), (32, 1)))
    0 o ((2,(2,2)),1,1):((1,(256,16)),0,0)
    """
    tile = _checked(mma).tile_size_mnk
    return _tiled(as_copy_atom(copy_atom, mma.ValTypeC), mma.get_layoutC_TV(), (tile[0], tile[1]))


def _checked(mma: object) -> MMA_Atom:
    if not isinstance(mma, MMA_Atom):
        raise LanewiseError(f"the copy is made after a TiledMMA or an MMA atom, not {mma!r}")
    return mma


def _checked_copy(copy: object) -> TiledCopy:
    if not isinstance(copy, TiledCopy):
        raise LanewiseError(f"the copy is made after a TiledCopy, not {copy!r}")
    return copy


def make_tiled_copy_C_atom(copy_atom: object, mma: MMA_Atom) -> TiledCopy:
    """Return the smallest tiled copy that takes a thread's accumulators in order: those of one atom."""
    copy, layout_c = as_copy_atom(copy_atom, _checked(mma).ValTypeC), mma.get_layoutC_TV()
    if copy.NumValSrc > size(layout_c[1]):
        raise LanewiseError(
            f"{copy!r} takes {copy.NumValSrc} values a thread; a tile of {mma!r} has {size(layout_c[1])}"
        )
    layout_tv = composition(layout_c, Layout((size(layout_c[0]), copy.NumValSrc)))
    return _restrided(copy, layout_tv, (mma.tile_size_mnk[0], mma.tile_size_mnk[1]))


def tiler_and_layout(layout_tv: Layout, shape: tuple[int, ...]) -> tuple[tuple[object, ...], Layout]:
    """Return the tile of those elements that a (thread, value) layout reaches, and the layout into it."""
    rank = len(shape)
    tiler = tuple(
        filter(composition(Layout(shape, tuple(int(i == j) for j in range(rank))), layout_tv))
        for i in range(rank)
    )
    from_tile = composition(Layout(shape), tiler)
    return tiler, composition(left_inverse(from_tile), layout_tv)


def _restrided(copy: Copy_Atom, layout_tv: Layout, shape: tuple[int, ...]) -> TiledCopy:
    """The copy over only those elements of a tile that a (thread, value) layout reaches."""
    tiler, layout = tiler_and_layout(layout_tv, shape)
    return _tiled(copy, layout, tiler)


def cotiled(copy: Copy_Atom, atom_tv_layout: Layout, data_layout: Layout) -> TiledCopy | None:
    """Return the copy whose layout maps (thread, value) to an offset into data; None if data lacks some."""
    # beyond its end, the inverse stays where it is
    inverse = make_layout(left_inverse(data_layout), Layout(1, 0))
    layout_tv = composition(inverse, atom_tv_layout)
    reached = composition(make_layout(data_layout, Layout(1, 0)), layout_tv)
    last = atom_tv_layout(size(atom_tv_layout) - 1)
    if coalesce(reached) != coalesce(atom_tv_layout) or not _has_offset(data_layout, last):
        return None
    return _restrided(copy, layout_tv, tuple(size(mode) for mode in data_layout))


def _has_offset(layout: Layout, offset: int) -> bool:
    """Return whether a layout whose strides divide each other leads to an offset."""
    modes = zip(flatten((layout.stride,)), flatten((layout.shape,)), strict=True)
    for stride, extent in sorted(modes, reverse=True):
        if stride:
            offset -= min(offset // stride, extent - 1) * stride
    return offset == 0


def make_cotiled_copy(copy_atom: object, atom_tv_layout: Layout, data_layout: Layout) -> TiledCopy:
    """Return the tiled copy whose layout maps (thread, value) to an offset into data with a layout.

    >>> copy = make_cotiled_copy("UniversalCopy<uint32_t>", Layout((32, 4), (4, 1)), Layout((16, 8), (8, 1)))
    >>> copy.Tiler_MN, copy.TiledLayout_TV
    ((16:1, (2,4):(4,1)), ((2,16),4):((16,1),32))
    """
    for name, layout in (("atom_tv_layout", atom_tv_layout), ("data_layout", data_layout)):
        if not isinstance(layout, Layout):
            raise LanewiseError(f"make_cotiled_copy: {name} is a layout, not {layout!r}")
    if len(atom_tv_layout) != 2:
        raise LanewiseError(f"make_cotiled_copy: atom_tv_layout is (threads, values), not {atom_tv_layout}")
    missing = {*map(atom_tv_layout, range(size(atom_tv_layout)))} - {
        *map(data_layout, range(size(data_layout)))
    }
    tiled = None if missing else cotiled(as_copy_atom(copy_atom), atom_tv_layout, data_layout)
    if tiled is None:
        least = f"{len(missing)} offsets, {min(missing)} the first," if missing else "offsets in an order"
        raise LanewiseError(
            f"make_cotiled_copy: {atom_tv_layout} leads to {least} that {data_layout} does not have"
        )
    return tiled


def make_tiled_copy_S(copy_atom: object, tiled_copy: TiledCopy) -> TiledCopy:
    """Return the tiled copy whose threads hold what the source of another tiled copy holds.

    >>> load = make_tiled_copy("SM75_U32x1_LDSM_N", Layout(32), Layout(2), "half_t")
    >>> make_tiled_copy_S("UniversalCopy<uint128_t>", load).TiledLayout_TV
    ((8,4),(8,1)):((8,0),(1,0))
    """
    copy = as_copy_atom(copy_atom, _checked_copy(tiled_copy).ValType)
    return _tiled(copy, tiled_copy.get_layoutS_TV(), tiled_copy.Tiler_MN)


def make_tiled_copy_D(copy_atom: object, tiled_copy: TiledCopy) -> TiledCopy:
    """Return the tiled copy whose threads hold what the destination of another tiled copy holds.

    >>> load = make_tiled_copy("SM75_U32x1_LDSM_N", Layout(32), Layout(2), "half_t")
    >>> make_tiled_copy_D("UniversalCopy<uint32_t>", load).TiledLayout_TV
    (32,(2,1)):(2,(1,0))
    """
    copy = as_copy_atom(copy_atom, _checked_copy(tiled_copy).ValType)
    return _tiled(copy, tiled_copy.get_layoutD_TV(), tiled_copy.Tiler_MN)


#: Warps that reach all lanes together.
WARPS = LANES // PARTITION


def make_tmem_copy(copy_atom: object, tmem: Any) -> TiledCopy:
    """Return the tiled copy of four warps between registers and a tensor in tensor memory.

    `copy_atom` is an atom SM100_TMEM_LOAD_… or SM100_TMEM_STORE_…, or its name; `tmem` is what
    `make_fragment_C` of a tcgen05.mma returns, or a part of it.

    >>> from lanewise.atoms import make_tiled_mma
    >>> mma = make_tiled_mma("SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, 64, Major::K, Major::K>")
    >>> acc = mma.make_fragment_C(mma.get_slice(0).partition_C(Tensor(0, Layout((128, 64)))))
    >>> copy = make_tmem_copy("SM100_TMEM_LOAD_32dp32b8x", acc)
    >>> copy.get_slice(37).partition_S(acc)
    tmem_[32b](0x0020.0000) o (((8,32),1),8,1,1):(((1,65536),0),8,0,0)
    """
    tmem = _as_tmem_tensor(tmem)
    atom = _tensor_atom("make_tmem_copy", copy_atom, tmem, ("ld", "st"))
    lanes = Layout((WARP, WARPS), (0, PARTITION * lane_stride(tmem.value_type.bits)))
    return _cotiled("make_tmem_copy", atom, lanes, tmem)


def make_utccp_copy(copy_atom: object, tmem: Any) -> TiledCopy:
    """Return the tiled copy from shared to tensor memory by tcgen05.cp; its threads are the blocks.

    >>> from lanewise.atoms.value_types import value_type
    >>> scales = TmemTensor(value_type("float_ue8m0_t"), Layout(((32, 4), 16), ((262144, 8388608), 1)))
    >>> make_utccp_copy("SM100_UTCCP_4x32dp128bit_1cta", scales).Tiler_MN
    (128:1, 16:1)
    """
    tmem = _as_tmem_tensor(tmem)
    atom = _tensor_atom("make_utccp_copy", copy_atom, tmem, ("cp",))
    return _cotiled("make_utccp_copy", atom, Layout(size(atom.ThrID), 0), tmem)


def _as_tmem_tensor(tensor: object) -> Any:
    """Return a tensor in tensor memory; one inside a kernel by its layout alone."""
    return tensor.as_tmem_tensor() if hasattr(tensor, "as_tmem_tensor") else tensor


def _tensor_atom(what: str, copy_atom: object, tmem: object, kinds: tuple[str, ...]) -> Copy_Atom:
    """Return the atom for the values of a tensor in tensor memory."""
    if not isinstance(tmem, TmemTensor):
        raise LanewiseError(
            f"{what} takes a tensor in tensor memory, as make_fragment_C of a tcgen05.mma returns; not "
            f"{tmem!r}"
        )
    atom = as_copy_atom(copy_atom, tmem.value_type)
    move = atom.operation.move
    if move is None or move.kind not in kinds:
        names = "SM100_UTCCP_…" if "cp" in kinds else "SM100_TMEM_LOAD_… or SM100_TMEM_STORE_…"
        raise LanewiseError(f"{what} takes an atom {names}, not {atom.name}")
    if atom.ValType.bits != tmem.value_type.bits:
        raise LanewiseError(
            f"{what}: {atom!r} moves values of {atom.ValType.bits} bits, and {tmem!r} has "
            f"{tmem.value_type.bits}"
        )
    return atom


def _cotiled(what: str, atom: Copy_Atom, threads: Layout, tmem: TmemTensor) -> TiledCopy:
    """Return the copy whose values lie in tensor memory as the atom wants them; an error if they do not."""
    values = coalesce(upcast(atom.ValID, atom.ValType.bits))
    _require_inverse(what, tmem)
    tiled = cotiled(atom, make_layout(threads, values), tmem.layout)
    if tiled is None:
        raise LanewiseError(
            f"{what}: {atom.name} moves values at {values} from the first lanes {threads} of the warps, and "
            f"{tmem!r} does not have all of them: take an atom of other lanes or fewer columns, or, for "
            "values of 16 bits with a column each, one that ends with _16b"
        )
    return tiled


def _require_inverse(what: str, tmem: TmemTensor) -> None:
    """Raise an error if CuTe's algebra cannot tell which element lies at an address."""
    try:
        left_inverse(tmem.layout)
    except LanewiseError:
        raise LanewiseError(
            f"{what}: the layout of {tmem!r} has no inverse, since a tile's columns divide no lane: take one "
            "tile after the other, tensor[(None, None), m, n]"
        ) from None


@dataclass(frozen=True)
class WarpPartitioner:
    """Which elements of a tensor each of four warps reaches: `get_slice(warp).partition(tensor)`."""

    TiledLayout_TV: Layout
    Tiler_MN: tuple[object, ...]

    def size(self) -> int:
        """Return how many warps there are."""
        return size(self.TiledLayout_TV)

    def tiles(self, tensor: object) -> Any:
        """Return a tensor or layout (M, N, …) as (warp, (RestM, RestN, …))."""
        target = as_tensor(tensor)
        names = "".join("MNKL"[: len(self.Tiler_MN)])
        check_divides("partition", target, names, self.Tiler_MN)
        return _warp_tiles(target, self.Tiler_MN, self.TiledLayout_TV)

    def get_slice(self, warp: Any) -> Any:
        """Return the part of one warp; inside a kernel its number may be traced."""
        if hasattr(warp, "is_traced"):
            return THREAD_SLICE.function(self, warp)
        if not is_int(warp) or not 0 <= warp < self.size():
            raise LanewiseError(f"warps are 0 to {self.size() - 1}; {warp!r} was given")
        return WarpSlice(self, int(warp))


@dataclass(frozen=True)
class WarpSlice:
    """One warp of a partitioner."""

    partitioner: WarpPartitioner
    warp: int

    def partition(self, tensor: object) -> Tensor:
        """Return what the warp reaches of a tensor (M, N, …), as (RestM, RestN, …)."""
        whole = self.partitioner.tiles(tensor)
        if not isinstance(whole, Tensor):
            whole = Tensor(0, whole)
        part: Tensor = whole[self.warp, (None,) * rank(whole.shape[1])]
        return part


@on_domain
def _warp_tiles(layout: Layout, tiler: tuple[Any, ...], warps: Layout) -> Layout:
    """Return a layout (M, N, …) as (warp, (RestM, RestN, …))."""
    tile, rest = zipped_divide(layout, tiler)
    return make_layout(composition(tile, warps), rest)


def make_tmem_warp_partitioner(tmem: Any) -> WarpPartitioner:
    """Return how the four warps that reach all lanes share a tensor in tensor memory.

    >>> from lanewise.atoms.value_types import value_type
    >>> acc = TmemTensor(value_type("float"), Layout((128, 64), (65536, 1)))
    >>> make_tmem_warp_partitioner(acc).get_slice(1).partition(acc)
    tmem_[32b](0x0020.0000) o (32,64):(65536,1)
    """
    tmem = _as_tmem_tensor(tmem)
    if not isinstance(tmem, TmemTensor):
        raise LanewiseError(f"make_tmem_warp_partitioner takes a tensor in tensor memory, not {tmem!r}")
    _require_inverse("make_tmem_warp_partitioner", tmem)
    warps = Layout(WARPS, PARTITION * lane_stride(tmem.value_type.bits))
    inverse = make_layout(left_inverse(tmem.layout), Layout(1, 0))
    tiler, layout = tiler_and_layout(composition(inverse, warps), tuple(size(mode) for mode in tmem.layout))
    return WarpPartitioner(layout, tiler)
