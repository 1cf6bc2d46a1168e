"""Tiled copies between registers, shared memory and a tensor in tensor memory: make_tmem_copy and its kin.

The atoms and their layouts are in `tmem.py`; partitions are those of any TiledCopy.
"""

from dataclasses import dataclass
from typing import Any

from lanewise.atoms.copy_atom import Copy_Atom
from lanewise.atoms.tiled_copy import TiledCopy, as_copy_atom, cotiled, tiler_and_layout
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
    is_int,
    left_inverse,
    make_layout,
    rank,
    size,
    upcast,
    zipped_divide,
)
from lanewise.layout.layout import on_domain

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
