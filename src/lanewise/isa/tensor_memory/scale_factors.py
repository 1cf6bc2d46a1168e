"""Where the scale factors of tcgen05.mma lie in tensor memory: a byte for a row or column and a block of K.

Facts: PTX ISA, "Scale factors in tensor memory"; CUTLASS's tmem_sf_frg
(tests/isa/cutlass_tcgen05_layouts.json). None was seen on a GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from lanewise.isa.tensor_memory.accumulators import PARTITION

#: Scale factors of a row that one instruction uses, by the words of its text and by kind.
_FACTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_OF_KIND = {"mxf8f6f4": 1, "mxf4": 2}


class FactorPlace(NamedTuple):
    """A scale factor: the lane, the column of 32 bits counted from the address, and the byte in it."""

    lane: int
    column: int
    byte: int


def factors_per_row(kind: str, words: tuple[str, ...]) -> int:
    """Return how many scale factors of a row, or of a column, an instruction uses.

    >>> factors_per_row("mxf4nvf4", ("block_scale", "block16"))
    4
    """
    for word in words:
        if word in _FACTORS:
            return _FACTORS[word]
        if kind == "mxf4nvf4" and word in ("block16", "block32"):
            return 4 if word == "block16" else 2
    return _OF_KIND[kind]


def first_bytes(factors: int) -> tuple[int, ...]:
    """Return the bytes of a column at which the scale factors of a row may begin (SFA_ID and SFB_ID)."""
    return tuple(range(0, 4, factors))


def factor_place(row: int, factor: int, first_byte: int, lane: int = 0) -> FactorPlace:
    """Return where a scale factor lies that the data path from `lane` on uses.

    Each partition of 32 lanes has a copy. `row` counts the rows of A in the block, or the columns of D in the
    data path's region.

    >>> factor_place(70, 1, 2)
    FactorPlace(lane=6, column=2, byte=3)
    """
    partition = lane // PARTITION * PARTITION
    return FactorPlace(partition + row % PARTITION, row // PARTITION, first_byte + factor)
