"""Copy_Atom: a copy operation on values of one type; its layouts are the traits' in units of that type."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lanewise.atoms.copy_names import CopyOperation
from lanewise.atoms.copy_traits import ROW_BITS, Copy_Traits
from lanewise.atoms.value_types import ValueType, value_type
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.layout import Layout, flatten, size, upcast


@dataclass(frozen=True, init=False, repr=False)
class Copy_Atom(Copy_Traits, Drawn):
    """A copy operation and the type of the values that it moves, by default that of the operation.

    >>> copy = Copy_Atom("SM75_U32x4_LDSM_N", "half_t")
    >>> copy.ValLayoutSrc, copy.ValLayoutDst
    ((32,8):(8,1), (32,(2,4)):(2,(1,64)))
    """

    ValType: ValueType

    def __init__(self, operation: CopyOperation | str, ValType: object = None) -> None:
        super().__init__(operation)
        object.__setattr__(self, "ValType", value_type(self._natural_bits() if ValType is None else ValType))
        if self.operation.move is not None and self.operation.move.kind == "cp":
            return  # it moves rows of shared memory, of which CuTe numbers some bits only
        for bits, values in (
            (self.BitLayoutSrc, self.ValLayoutSrc),
            (self.BitLayoutDst, self.ValLayoutDst),
        ):
            if size(values[0]) != size(bits[0]) or size(values[1]) * self.ValType.bits != size(bits[1]):
                raise self._unfit()

    def _natural_bits(self) -> int:
        inst = self.instruction
        if self.operation.move is not None:
            return 8 if self.operation.move.kind == "cp" else 16 if self.name.endswith("_16b") else 32
        if inst is None:
            return min(self.operation.bits, ROW_BITS)
        return next(iter(inst.operands.values())).format.bits

    def _unfit(self) -> LanewiseError:
        kept = min(flatten(bits[1].shape)[0] for bits in (self.BitLayoutSrc, self.BitLayoutDst))
        return LanewiseError(
            f"{self.operation.name} keeps {kept} neighbouring bits together, so values of {self.ValType} "
            f"({self.ValType.bits} bits) cannot be moved by it as a whole"
        )

    def _in_values(self, layout: Layout) -> Layout:
        try:
            result: Layout = upcast(layout, self.ValType.bits)
        except LanewiseError:
            raise self._unfit() from None
        return result

    @property
    def name(self) -> str:
        """CUTLASS's name of the operation."""
        return self.operation.name

    @property
    def traits(self) -> Copy_Traits:
        """The traits of the operation, without the value type that the atom copies."""
        return Copy_Traits(self.operation)

    @property
    def BitLayoutSrc(self) -> Layout:
        """The layout from (thread, bit) to the bit of the source that the thread reads."""
        return self.SrcLayout

    @property
    def BitLayoutDst(self) -> Layout:
        """The layout from (thread, bit) to the bit of the destination that the thread writes."""
        return self.DstLayout

    @property
    def BitLayoutRef(self) -> Layout:
        """The layout from (thread, bit) by which CuTe arranges the copy."""
        return self.RefLayout

    @cached_property
    def ValLayoutSrc(self) -> Layout:
        """The layout from (thread, value) to the value of the source that the thread reads."""
        return self._in_values(self.SrcLayout)

    @cached_property
    def ValLayoutDst(self) -> Layout:
        """The layout from (thread, value) to the value of the destination that the thread writes."""
        return self._in_values(self.DstLayout)

    @cached_property
    def ValLayoutRef(self) -> Layout:
        """The layout from (thread, value) by which CuTe arranges the copy."""
        return self._in_values(self.RefLayout)

    @property
    def NumValSrc(self) -> int:
        """How many values a thread reads."""
        return size(self.ValLayoutSrc[1])

    @property
    def NumValDst(self) -> int:
        """How many values a thread writes."""
        return size(self.ValLayoutDst[1])

    def __call__(self, *operands: object) -> Any:
        """Copy as the instruction does: take an array as shared memory and addresses, and return registers.

        >>> import numpy as np
        >>> load = Copy_Atom("SM75_U32x1_LDSM_N", "half_t")
        >>> load(np.arange(64, dtype=np.uint16), 16 * np.arange(8))[1].tolist()
        [196610]
        """
        if self.instruction is None or self.operation.swaps_bytes:
            raise LanewiseError(
                f"{self.name} copies the values of one thread; on arrays, a plain assignment does that"
            )
        return self.instruction(*operands)

    def __repr__(self) -> str:
        return f"Copy_Atom({self.name}, {self.ValType})"

    def __str__(self) -> str:
        names = ("ThrID", "ValLayoutSrc", "ValLayoutDst", "ValLayoutRef")
        rows = [f"  {name + ':':14}{getattr(self, name)}" for name in names]
        return "\n".join(["Copy_Atom", *rows, f"  {'ValueType:':14}{self.ValType.bits}b"])
