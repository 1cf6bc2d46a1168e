"""The choices that GMMA (wgmma) operations take as template arguments, under CUTLASS's names.

Only the names; what they mean for operands and results is in the traits and in `compute.py`.
"""

from enum import Enum

from lanewise.errors import LanewiseError


class Major(Enum):
    """Which index of a shared-memory operand is contiguous: K, or M (for B: N)."""

    K = 0
    MN = 1


class ScaleIn(Enum):
    """Whether the elements of an operand are taken as they are or negated."""

    Neg = -1
    One = 1


class ScaleOut(Enum):
    """Whether the product is added to the accumulator (One) or replaces it (Zero)."""

    Zero = 0
    One = 1


def scale_out(what: object) -> ScaleOut:
    """The ScaleOut that a value stands for: itself, or 0 and 1.

    >>> scale_out(0)
    <ScaleOut.Zero: 0>
    """
    try:
        return ScaleOut(what)
    except ValueError:
        raise LanewiseError(f"ScaleOut is ScaleOut.Zero (0) or ScaleOut.One (1), not {what!r}") from None


class SparseSel(Enum):
    """Which threads of a quad hold the metadata of a sparse operation."""

    Zero = 0
    One = 1
