"""TiledMMA: MMA operations side by side over threads, and their data rearranged into one larger tile.

What a tiling can do is written for the lone atom in `mma_atom.py`; here is how many, and in what order.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from lanewise.atoms.lookup import atom
from lanewise.atoms.mma_atom import LONE, MMA_Atom, ThrMMA, registers
from lanewise.atoms.names import Operation
from lanewise.atoms.tiling import check_permutation
from lanewise.atoms.value_types import ScaleOut
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction
from lanewise.isa.naming.shorthand import is_cutlass_name
from lanewise.layout import Layout, Tensor, append, rank, size
from lanewise.layout.int_tuple import spell
from lanewise.tracebacks import short_traceback


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TiledMMA(MMA_Atom):
    """An MMA operation repeated over AtomLayoutMNK, with data rearranged by PermutationMNK.

    >>> mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1), (32, 32, 16))
    >>> mma.thr_layout_vmnk, mma.tile_size_mnk
    ((32,2,2,1):(1,32,64,0), (32, 32, 16))
    >>> mma.get_slice(37).partition_A(Tensor(0, Layout((64, 32))))
    145 o ((2,2,2),2,2):((64,8,512),32,1024)
    """

    INSTEAD: ClassVar = {
        name: f"take a thread's part of it first: .get_slice(thread).{name}(…)"
        for name in (
            "partition_A",
            "partition_B",
            "partition_C",
            "partition_fragment_A",
            "partition_fragment_B",
            "partition_fragment_C",
        )
    }
    AtomLayoutMNK: Layout = LONE
    PermutationMNK: tuple[object, ...] = (None, None, None)

    def __init__(
        self,
        operation: Operation | str,
        arguments: Mapping[str, Enum] | None = None,
        accumulate_: ScaleOut = ScaleOut.One,
        AtomLayoutMNK: object = (1, 1, 1),
        PermutationMNK: object = None,
    ) -> None:
        super().__init__(operation, arguments, accumulate_)
        object.__setattr__(self, "AtomLayoutMNK", _atom_layout(AtomLayoutMNK))
        object.__setattr__(self, "PermutationMNK", _permutation(PermutationMNK))
        for name, entry, extent, threads in zip(
            "MNK", self.PermutationMNK, self.Shape_MNK, list(self.thr_layout_vmnk)[1:], strict=True
        ):
            check_permutation(name, entry, extent * size(threads))

    def __repr__(self) -> str:
        permutation = "" if self.PermutationMNK == (None, None, None) else f", {spell(self.PermutationMNK)}"
        return f"TiledMMA({self.name}, {self.AtomLayoutMNK}{permutation})"

    def __str__(self) -> str:
        rows = (
            f"  ThrLayoutVMNK:  {self.thr_layout_vmnk}",
            f"  PermutationMNK: {spell(self.PermutationMNK)}",
        )
        return "\n".join(["TiledMMA", *rows, super().__str__()])


@short_traceback
def make_tiled_mma(mma_atom: object, atom_layout: object = (1, 1, 1), permutation: object = None) -> TiledMMA:
    """Return a tiled MMA: an atom repeated along M, N and K.

    `atom_layout` is a shape that says how many atoms there are along M, N and K (neighbours along the first
    mode take neighbouring threads), or a layout that also says their order. `permutation` gives for each of
    M, N and K the extent of the tile, or the layout that rearranges it, or None.

    >>> print(make_tiled_mma("SM70_8x8x4_F32F16F16F32_NT", (2, 2)).thr_layout_vmnk)
    ((4,2),2,2,1):((1,16),4,8,0)
    """
    chosen = mma_atom
    if isinstance(chosen, Instruction) or (isinstance(chosen, str) and not is_cutlass_name(chosen)):
        with suppress(LanewiseError):  # then it names no instruction either
            chosen = atom(chosen)
    chosen = MMA_Atom(chosen) if isinstance(chosen, str) else chosen
    if not isinstance(chosen, MMA_Atom):
        raise LanewiseError(f"make_tiled_mma takes an MMA atom or its name, not {mma_atom!r}")
    return TiledMMA(chosen.operation, chosen.arguments, chosen.accumulate_, atom_layout, permutation)


def _atom_layout(what: object) -> Layout:
    """A layout of rank 3; what is left out is one operation wide."""
    if isinstance(what, Layout | str):
        layout = Layout(what) if isinstance(what, str) else what
    else:
        shape = what if isinstance(what, tuple) else (what,)
        compact = Layout(shape)
        # as CuTe has it: a mode of extent 1 does not move
        layout = Layout(shape, tuple(0 if size(mode) == 1 else mode.stride for mode in compact))
    if rank(layout) > 3:
        raise LanewiseError(f"AtomLayoutMNK has modes M, N and K; {layout} has {rank(layout)}")
    result: Layout = append(layout, Layout(1, 0), 3)
    if len({result(i) for i in range(size(result))}) < size(result):
        raise LanewiseError(
            f"AtomLayoutMNK {result} gives two operations the same threads: each needs its own"
        )
    return result


def _permutation(what: object) -> tuple[object, ...]:
    entries = (None,) if what is None else what if isinstance(what, tuple) else (what,)
    if len(entries) > 3:
        raise LanewiseError(f"PermutationMNK has entries for M, N and K; {len(entries)} were given")
    return entries + (None,) * (3 - len(entries))


def partition_shape_A(mma: MMA_Atom, shape: object) -> Any:
    """Return the shape that partition_A gives for a tensor of this shape (M, K, …).

    >>> partition_shape_A(make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2)), (64, 32))
    ((2, 2, 2), 2, 2)
    """
    return ThrMMA(mma, 0, (0, 0, 0, 0)).partition_A(Layout(shape)).shape


def partition_shape_B(mma: MMA_Atom, shape: object) -> Any:
    """Return the shape that partition_B gives for a tensor of this shape (N, K, …).

    >>> partition_shape_B(make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2)), (64, 32))
    ((2, 2), 4, 2)
    """
    return ThrMMA(mma, 0, (0, 0, 0, 0)).partition_B(Layout(shape)).shape


def partition_shape_C(mma: MMA_Atom, shape: object) -> Any:
    """Return the shape that partition_C gives for a tensor of this shape (M, N, …).

    >>> partition_shape_C(make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2)), (64, 64))
    ((2, 2), 2, 4)
    """
    return ThrMMA(mma, 0, (0, 0, 0, 0)).partition_C(Layout(shape)).shape


def partition_fragment_C(mma: MMA_Atom, shape: object) -> Tensor:
    """Return registers for the accumulators of a tile of this shape (M, N, …).

    >>> partition_fragment_C(make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2)), (64, 64)).layout
    ((2,2),2,4):((1,2),4,8)
    """
    return registers(mma.FrgTypeC, Layout(partition_shape_C(mma, shape)))
