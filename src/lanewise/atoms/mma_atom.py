"""MMA_Atom: an MMA operation with its threads and values, what it computes, how it is tiled, its fragments.

A lone atom is the tiling of one; TiledMMA in `tiled_mma.py` sets other tilings, with the same members.
ThrMMA is one thread's share of it, as ThrCopy is of a TiledCopy. A fragment is the registers, or the
descriptors, that hold one thread's partition of an operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lanewise.atoms.compute import fma, multiply
from lanewise.atoms.mma_traits import MMA_Traits, OfOperand
from lanewise.atoms.names import Operation
from lanewise.atoms.tiling import Modes, as_tensor, check_divides, thread_of_index, thrfrg
from lanewise.atoms.value_types import ScaleOut, ValueType, scale_out
from lanewise.engines import THREAD_SLICE, Drawn
from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    ScaledBasis,
    Tensor,
    composition,
    flatten,
    is_int,
    make_fragment_like,
    rank,
    size,
    tiled_product,
    upcast,
)
from lanewise.layout import replace as replace_mode
from lanewise.layout.int_tuple import spell
from lanewise.tracebacks import short_methods

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray


def check_partitioned(name: str, part: Tensor, values: int) -> None:
    """An error unless a tensor looks like what partition_… returned."""
    if not isinstance(part, Tensor) or rank(part.shape) < 3 or size(part.shape[0]) != values:
        shape = spell(part.shape) if isinstance(part, Tensor) else repr(part)
        raise LanewiseError(
            f"make_fragment_{name} takes what partition_{name} returns, (FrgV, Rest, Rest, …) with {values} "
            f"values in mode 0; {shape} was given"
        )


def registers(kind: ValueType, layout: Layout) -> Tensor:
    """A tensor of zeros of a value type, with a compact layout."""
    import numpy as np

    return Tensor(np.zeros(layout.cosize(), dtype=kind.dtype), layout)


def fragment_like(kind: ValueType, part: Tensor) -> Tensor:
    """Registers for the elements of a partition, the values of an operation next to each other.

    >>> from lanewise.atoms.value_types import value_type
    >>> fragment_like(value_type("half_t"), Tensor(0, Layout((2, 2, 4), (8, 1, 16))))
    ndarray[16]+0 o (2,2,4):(1,2,4)
    """
    domain = _plain(part)
    if any(isinstance(stride, ScaledBasis) for stride in flatten(domain.stride)):
        return registers(kind, Layout(domain.shape))
    return registers(kind, make_fragment_like(domain))


def _plain(part: Tensor) -> Layout:
    """Return the layout of a tensor, before the swizzle if it has one."""
    domain: Any = part.layout
    while not isinstance(domain, Layout):
        domain = domain._domain()
    return domain


#: Bits of the unit in which descriptors count addresses.
_DESCRIPTOR_UNIT = 128


def umma_descriptors(name: str, part: Tensor, bits: int) -> Tensor:
    """Return where the descriptor of each tcgen05.mma points, (1, Rest, …) in units of 16 bytes.

    >>> smem = Tensor(0, Layout(((128, 16), 1, 4), ((64, 1), 0, 16)))
    >>> umma_descriptors("A", smem, 16)
    0 o (1,1,4):(0,0,2)
    """
    bits = max(bits, 8) if bits != 4 else 4
    count, offset = _DESCRIPTOR_UNIT // bits, part.offset
    try:
        if not isinstance(offset, int) or offset % count:
            raise LanewiseError("it begins inside of such a unit")
        units = upcast(_plain(part), count)
    except LanewiseError as error:
        raise LanewiseError(
            f"{name} of layout {part.layout} has no descriptors, which count {count} elements (16 bytes): "
            f"{error}"
        ) from None
    return Tensor(offset // count, replace_mode(units, 0, Layout(1, 0)))


def descriptors(part: Tensor) -> Tensor:
    """Where the descriptor of each operation points: the partition with its first element alone in mode 0."""
    result: Tensor = replace_mode(part, 0, Layout(1, 0))
    return result


LONE = Layout((1, 1, 1), (0, 0, 0))
#: The modes of each operand among M, N and K.
_MODES = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}


@short_methods
@dataclass(frozen=True, init=False, eq=False, repr=False)
class MMA_Atom(MMA_Traits, Drawn):
    """One MMA operation: its traits, the thread and value layouts of its operands, and what it computes.

    >>> from lanewise.atoms import MMA_Atom, make_tiled_mma
    >>> mma = MMA_Atom("SM80_16x8x16_F32F16F16F32_TN")
    >>> mma.Shape_MNK, mma.LayoutC_TV, mma.ThrID
    ((16, 8, 16), ((4,8),(2,2)):((32,1),(16,8)), 32:1)
    >>> mma == make_tiled_mma(mma, (1, 1, 1)), mma.tile_size_mnk
    (True, (16, 8, 16))
    """

    accumulate_: ScaleOut

    def __init__(
        self,
        operation: Operation | str,
        arguments: Mapping[str, Enum] | None = None,
        accumulate_: ScaleOut = ScaleOut.One,
    ) -> None:
        super().__init__(operation, arguments)
        object.__setattr__(self, "accumulate_", scale_out(accumulate_))

    @property
    def AtomLayoutMNK(self) -> Layout:
        """The layout of the operations along M, N and K: how many there are, and which threads each takes."""
        return LONE

    @property
    def PermutationMNK(self) -> tuple[object, ...]:
        """How each of M, N and K is rearranged before operations are distributed over it, or None."""
        return (None, None, None)

    # one operation -------------------------------------------------------------------------------------

    @property
    def traits(self) -> MMA_Traits:
        """The traits of the operation, without a tiling and without `with_`."""
        return MMA_Traits(self.operation, self.arguments)

    LayoutA_TV = OfOperand[Layout]("layout", "A")
    """The layout from (thread, value) of A to m + M·k."""
    LayoutB_TV = OfOperand[Layout]("layout", "B")
    """The layout from (thread, value) of B to n + N·k."""
    LayoutC_TV = OfOperand[Layout]("layout", "C")
    """The layout from (thread, value) of C and D to m + M·n."""

    def with_(self, accumulate: ScaleOut) -> MMA_Atom:
        """Return the atom that adds to the accumulator (One) or overwrites it (Zero)."""
        return replace(self, accumulate_=accumulate)

    def fma(
        self, a: object, b: object, c: object, *more: Any, arch: str | None = None, **options: Any
    ) -> AnyArray:
        """Return the registers of D for the registers of A, B and C: see `lanewise.atoms.compute.fma`."""
        if self.umma is not None:
            raise LanewiseError(
                f"{self.name} has no registers, since its operands lie in shared and tensor memory: give "
                "whole matrices, atom(a, b, c)"
            )
        return fma(self, a, b, c, *more, arch=arch, **{"scale_D": self.accumulate_, **options})

    def __call__(
        self, a: object, b: object, c: object = None, *, arch: str | None = None, **options: Any
    ) -> AnyArray:
        """Return D = A·B + C for whole matrices (M, K), (K, N), (M, N)."""
        return multiply(self, a, b, c, arch=arch, **{"scale_D": self.accumulate_, **options})

    # the tiling ----------------------------------------------------------------------------------------

    @cached_property
    def thr_layout_vmnk(self) -> Layout:
        """(thread of an operation, operation along M, along N, along K) to thread index."""
        return tiled_product(self.ThrID, self.AtomLayoutMNK)

    def get_thr_layout_vmnk(self) -> Layout:
        """thr_layout_vmnk, as CuTe calls it."""
        return self.thr_layout_vmnk

    def size(self) -> int:
        """Return how many threads take part."""
        return size(self.thr_layout_vmnk)

    @property
    def permutation_mnk(self) -> Modes:
        """For each of M, N and K: the extent or layout by which data is rearranged into one tile."""
        return Modes(
            extent * size(threads) if entry is None else entry
            for entry, extent, threads in zip(
                self.PermutationMNK, self.Shape_MNK, list(self.thr_layout_vmnk)[1:], strict=True
            )
        )

    @property
    def tile_size_mnk(self) -> Modes:
        """The extents (M, N, K) of one tile."""
        return Modes(size(entry) for entry in self.permutation_mnk)

    def _thrfrg(self, name: str, tensor: object) -> Any:
        target, modes = as_tensor(tensor), _MODES[name]
        tile = tuple(self.tile_size_mnk[i] for i in modes)
        check_divides(f"thrfrg_{name}", target, "".join("MNK"[i] for i in modes), tile)
        return thrfrg(
            target,
            tuple(self.permutation_mnk[i] for i in modes),
            tuple(self.Shape_MNK[i] for i in modes),
            self.operands.layout(name),
            tuple(size(self.thr_layout_vmnk[i + 1]) for i in modes),
        )

    def thrfrg_A(self, tensor: object) -> Any:
        """A tensor or layout (M, K, …) as ((ThrV, (ThrM, ThrK)), (FrgV, (RestM, RestK, …)))."""
        return self._thrfrg("A", tensor)

    def thrfrg_B(self, tensor: object) -> Any:
        """A tensor or layout (N, K, …) as ((ThrV, (ThrN, ThrK)), (FrgV, (RestN, RestK, …)))."""
        return self._thrfrg("B", tensor)

    def thrfrg_C(self, tensor: object) -> Any:
        """A tensor or layout (M, N, …) as ((ThrV, (ThrM, ThrN)), (FrgV, (RestM, RestN, …)))."""
        return self._thrfrg("C", tensor)

    def get_layoutA_TV(self) -> Layout:
        """(thread index, value) of one tile of A to m + M·k; threads along N share the elements."""
        return self._layout_tv("A")

    def get_layoutB_TV(self) -> Layout:
        """(thread index, value) of one tile of B to n + N·k; threads along M share the elements."""
        return self._layout_tv("B")

    def get_layoutC_TV(self) -> Layout:
        """(thread index, value) of one tile of C to m + M·n; threads along K share the elements."""
        return self._layout_tv("C")

    def _layout_tv(self, name: str) -> Layout:
        layout: Layout = self.by_index(name, Layout(tuple(self.tile_size_mnk[i] for i in _MODES[name])))
        return layout

    def by_index(self, name: str, tensor: object) -> Any:
        """What thrfrg_A, _B or _C gives, the threads by their index: (thread index, (FrgV, (Rest, …))).

        >>> MMA_Atom("SM80_16x8x8_F32TF32TF32F32_TN").by_index("C", Layout((16, 16)))
        ((4,8),((2,2),(1,2))):((32,1),((16,8),(0,128)))
        """
        m, n, k = (size(mode) for mode in list(self.thr_layout_vmnk)[1:])
        # a thread's place along the mode that an operand has not changes nothing
        over_mnk: dict[str, tuple[object, object]] = {
            "A": (Layout((m, n), (1, 0)), None),
            "B": (Layout((m, n), (0, 1)), None),
            "C": (None, Layout((n, k), (1, 0))),
        }
        tile = composition(self._thrfrg(name, tensor), ((None, over_mnk[name]), None))
        return composition(tile, (thread_of_index(self.thr_layout_vmnk), None))

    def umma_part(self, name: str) -> tuple[int, int]:
        """Return the rows and columns of A, B or C that a block gives to one tcgen05.mma.

        >>> atom = MMA_Atom("SM100_MMA_S8_2x1SM_SS<int8_t, int8_t, int32_t, 256, 64, Major::K, Major::K>")
        >>> atom.umma_part("A"), atom.umma_part("B"), atom.umma_part("C")
        ((128, 32), (32, 32), (128, 64))
        """
        rows, columns = self.operands.layout(name)[1].shape
        return rows, columns

    # one thread ----------------------------------------------------------------------------------------

    def get_slice(self, thr_idx: Any) -> Any:
        """Return the part of one thread, a ThrMMA; inside a kernel the index may be traced."""
        layout = self.thr_layout_vmnk
        if hasattr(thr_idx, "is_traced"):
            return THREAD_SLICE.function(self, thr_idx)
        if not is_int(thr_idx):
            raise LanewiseError(f"a thread is an integer, not {thr_idx!r}")
        if 0 <= thr_idx < layout.cosize():
            v, m, n, k = layout.get_flat_coord(int(thr_idx))
            if layout((v, m, n, k)) == thr_idx:
                return ThrMMA(self, int(thr_idx), (v, m, n, k))
        if self.umma is not None:
            blocks = "block 0 alone" if self.size() == 1 else f"blocks 0 to {self.size() - 1} of a pair"
            raise LanewiseError(
                f"a slice of {self!r} is that of a block, and {blocks} take part; {thr_idx} was given"
            )
        taking = "" if size(layout) == layout.cosize() else f", of which {size(layout)} take part: {layout}"
        raise LanewiseError(
            f"thread {thr_idx} does not take part in {self!r}, "
            f"which runs on threads 0 to {layout.cosize() - 1}{taking}"
        )

    def get_thread_slice(self, thr_idx: object) -> Any:
        """Return the same as `get_slice`, under CuTe's other name."""
        return self.get_slice(thr_idx)

    def make_fragment_A(self, part: Tensor) -> Tensor:
        """Return registers for a partition of A, or its descriptors if A stays in shared memory.

        For an A that tcgen05.mma reads from tensor memory, it is a tensor there.
        """
        return self.fragment("A", part)

    def make_fragment_B(self, part: Tensor) -> Tensor:
        """Return registers for a partition of B, or its descriptors if B stays in shared memory."""
        return self.fragment("B", part)

    def make_fragment_C(self, part: Tensor) -> Tensor:
        """Return registers for a partition of C; of tcgen05.mma, a tensor in tensor memory at address 0."""
        return self.fragment("C", part)

    def fragment(self, name: str, part: Tensor) -> Tensor:
        """Return what make_fragment_A, _B or _C does."""
        check_partitioned(name, part, size(self.operands.layout(name)[1]))
        if self.umma is not None:
            if self.umma.in_tensor_memory(name):
                return self.umma.fragment(name, part.shape)
            return umma_descriptors(name, part, self.umma.value_type(name).bits)
        if self.instruction.operands[name.lower()].where != "registers":
            return descriptors(part)
        kind = getattr(self, f"FrgType{name}")
        return registers(kind, Layout(part.shape)) if name == "C" else fragment_like(kind, part)

    # as a value and as a picture -----------------------------------------------------------------------

    def _identity(self) -> tuple[object, ...]:
        return (
            self.operation,
            tuple(self.arguments.items()),
            self.accumulate_,
            self.thr_layout_vmnk,
            self.permutation_mnk,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MMA_Atom) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"MMA_Atom({self.name})"

    def __str__(self) -> str:
        names = ("ThrID", "Shape_MNK", "LayoutA_TV", "LayoutB_TV", "LayoutC_TV")
        return "\n".join(["MMA_Atom", *(f"  {name + ':':12}{spell(getattr(self, name))}" for name in names)])


@short_methods
@dataclass(frozen=True, repr=False)
class ThrMMA:
    """One thread's share of a tiled MMA; `thr_vmnk` is its coordinate in (ThrV, ThrM, ThrN, ThrK).

    >>> from lanewise.atoms import atom
    >>> from lanewise.layout import make_identity_tensor
    >>> thr = atom("SM80_16x8x16_F32F16F16F32_TN").get_slice(5)
    >>> list(thr.partition_C(make_identity_tensor((16, 8))))
    [(1, 2), (1, 3), (9, 2), (9, 3)]
    """

    mma: MMA_Atom
    thr_idx: int
    thr_vmnk: tuple[int, int, int, int]

    def partition_A(self, tensor: object) -> Tensor:
        """The thread's elements of a tensor (M, K, …), as (FrgV, RestM, RestK, …)."""
        return self._partition("A", tensor)

    def partition_B(self, tensor: object) -> Tensor:
        """The thread's elements of a tensor (N, K, …), as (FrgV, RestN, RestK, …)."""
        return self._partition("B", tensor)

    def partition_C(self, tensor: object) -> Tensor:
        """The thread's elements of a tensor (M, N, …), as (FrgV, RestM, RestN, …)."""
        return self._partition("C", tensor)

    def _in_kernel(self, method: str, tensor: object) -> Any:
        """The same share of a tensor inside a kernel."""
        return getattr(THREAD_SLICE.function(self.mma, self.thr_idx), method)(tensor)

    def _partition(self, name: str, tensor: object) -> Tensor:
        if hasattr(tensor, "is_traced"):
            part: Tensor = self._in_kernel(f"partition_{name}", tensor)
            return part
        whole = getattr(self.mma, f"thrfrg_{name}")(tensor)
        if not isinstance(whole, Tensor):
            whole = Tensor(0, whole)
        v, *mnk = self.thr_vmnk
        place = (v, tuple(mnk[i] for i in _MODES[name]))
        part = whole[place, (None, (None,) * rank(whole.shape[1][1]))]
        return part

    def partition_fragment_A(self, tensor: object) -> Tensor:
        """Registers for partition_A(tensor); for an operand in shared memory, one descriptor an operation."""
        return self._partition_fragment("A", tensor)

    def partition_fragment_B(self, tensor: object) -> Tensor:
        """Registers for partition_B(tensor); for an operand in shared memory, one descriptor an operation."""
        return self._partition_fragment("B", tensor)

    def partition_fragment_C(self, tensor: object) -> Tensor:
        """Registers for the accumulators of partition_C(tensor)."""
        return self._partition_fragment("C", tensor)

    def _partition_fragment(self, name: str, tensor: object) -> Tensor:
        if hasattr(tensor, "is_traced"):
            fragment: Tensor = self._in_kernel(f"partition_fragment_{name}", tensor)
            return fragment
        return self.mma.fragment(
            name, self._partition(name, Layout(tensor) if isinstance(tensor, tuple) else tensor)
        )

    def __repr__(self) -> str:
        return f"ThrMMA({self.thr_idx}, thr_vmnk={spell(self.thr_vmnk)}, {self.mma!r})"
