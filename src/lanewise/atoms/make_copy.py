"""Making tiled copies: from layouts of threads and values, after a TiledMMA's operand, after another copy."""

from lanewise.atoms.copy_atom import Copy_Atom
from lanewise.atoms.mma_atom import MMA_Atom
from lanewise.atoms.template import unwrapped
from lanewise.atoms.tiled_copy import TiledCopy
from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    coalesce,
    composition,
    filter,
    flatten,
    is_int,
    left_inverse,
    make_layout,
    raked_product,
    right_inverse,
    size,
    with_shape,
)
from lanewise.tracebacks import short_traceback


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
