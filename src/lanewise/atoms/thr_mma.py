"""ThrMMA: one thread's share of the operands of a tiled MMA, and fragments to hold it in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanewise.atoms.value_types import ValueType
from lanewise.errors import LanewiseError
from lanewise.layout import Layout, ScaledBasis, Tensor, flatten, make_fragment_like, rank, replace, size
from lanewise.layout.int_tuple import spell

if TYPE_CHECKING:
    from lanewise.atoms.mma_atom import MMA_Atom


@dataclass(frozen=True, repr=False)
class ThrMMA:
    """The part of a tiled MMA that one thread has; `thr_vmnk` is its place among (ThrV, ThrM, ThrN, ThrK).

    >>> from lanewise.atoms import atom
    >>> from lanewise.layout import make_identity_tensor
    >>> thr = atom("SM80_16x8x16_F32F16F16F32_TN").get_slice(5)
    >>> list(thr.partition_C(make_identity_tensor((16, 8))))
    [(1, 2), (1, 3), (9, 2), (9, 3)]
    """

    mma: MMA_Atom
    thr_idx: int
    thr_vmnk: tuple[int, int, int, int]

    def partition_A(self, tensor: Any) -> Tensor:
        """The thread's elements of a tensor (M, K, …), as (FrgV, RestM, RestK, …)."""
        v, m, _, k = self.thr_vmnk
        return self._part(self.mma.thrfrg_A, tensor, (v, (m, k)))

    def partition_B(self, tensor: Any) -> Tensor:
        """The thread's elements of a tensor (N, K, …), as (FrgV, RestN, RestK, …)."""
        v, _, n, k = self.thr_vmnk
        return self._part(self.mma.thrfrg_B, tensor, (v, (n, k)))

    def partition_C(self, tensor: Any) -> Tensor:
        """The thread's elements of a tensor (M, N, …), as (FrgV, RestM, RestN, …)."""
        v, m, n, _ = self.thr_vmnk
        return self._part(self.mma.thrfrg_C, tensor, (v, (m, n)))

    @staticmethod
    def _part(thrfrg: Any, tensor: Any, place: Any) -> Tensor:
        whole = thrfrg(tensor)
        if not isinstance(whole, Tensor):
            whole = Tensor(0, whole)
        part: Tensor = whole[place, (None, (None,) * rank(whole.shape[1][1]))]
        return part

    def partition_fragment_A(self, tensor: Any) -> Tensor:
        """Registers for partition_A(tensor); for an operand in shared memory, one descriptor an operation."""
        return self.mma.make_fragment_A(self.partition_A(tensor))

    def partition_fragment_B(self, tensor: Any) -> Tensor:
        """Registers for partition_B(tensor); for an operand in shared memory, one descriptor an operation."""
        return self.mma.make_fragment_B(self.partition_B(tensor))

    def partition_fragment_C(self, tensor: Any) -> Tensor:
        """Registers for the accumulators of partition_C(tensor)."""
        return self.mma.make_fragment_C(self.partition_C(tensor))

    def __repr__(self) -> str:
        return f"ThrMMA({self.thr_idx}, thr_vmnk={spell(self.thr_vmnk)}, {self.mma!r})"


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
    domain: Any = part.layout
    while not isinstance(domain, Layout):
        domain = domain._domain()
    if any(isinstance(stride, ScaledBasis) for stride in flatten(domain.stride)):
        return registers(kind, Layout(domain.shape))
    return registers(kind, make_fragment_like(domain))


def descriptors(part: Tensor) -> Tensor:
    """Where the descriptor of each operation points: the partition with its first element alone in mode 0."""
    result: Tensor = replace(part, 0, Layout(1, 0))
    return result
