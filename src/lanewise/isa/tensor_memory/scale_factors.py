"""Where the scale factors of tcgen05.mma lie in tensor memory: a byte for a row or column and a block of K.

Facts: PTX ISA, "Scale factors in tensor memory"; CUTLASS's tmem_sf_frg
(tests/isa/cutlass_tcgen05_layouts.json). None was seen on a GPU.
"""

from typing import NamedTuple

from lanewise.isa.tensor_memory.accumulators import PARTITION

#: Scale factors of a row in a word, and the rows whose words lie side by side: their factors of the next
#: blocks along K follow.
FACTORS_OF_WORD, ROWS_OF_WORDS = 4, 128


class FactorPlace(NamedTuple):
    """A scale factor: the lane, the column of 32 bits counted from the address, and the byte in it."""

    lane: int
    column: int
    byte: int


def first_bytes(factors: int) -> tuple[int, ...]:
    """Return the bytes of a column at which the scale factors of a row may begin (SFA_ID and SFB_ID).

    Three and six factors of a row (K = 96) may go on in a further column.

    >>> first_bytes(2), first_bytes(3), first_bytes(6)
    ((0, 2), (0, 1, 2, 3), (0, 2))
    """
    return tuple(range(0, FACTORS_OF_WORD, {3: 1, 6: 2}.get(factors, factors)))


def further_columns(rows: int) -> int:
    """Return how many columns after its first word a row's further scale factors lie: 4 for each 128 rows.

    >>> [further_columns(rows) for rows in (64, 128, 192)]
    [4, 4, 8]
    """
    return -(-rows // ROWS_OF_WORDS) * (ROWS_OF_WORDS // PARTITION)


def factor_columns(rows: int, factors: int, first_byte: int) -> int:
    """Return how many columns of tensor memory the scale factors of some rows span.

    >>> factor_columns(128, 4, 0), factor_columns(64, 6, 2), factor_columns(192, 3, 3)
    (4, 6, 14)
    """
    words = -(-(first_byte + factors) // FACTORS_OF_WORD)
    return (words - 1) * further_columns(rows) + -(-rows // PARTITION)


def factor_place(row: int, factor: int, first_byte: int, lane: int = 0, rows: int = 128) -> FactorPlace:
    """Return where a scale factor lies that the data path from `lane` on uses.

    Each partition of 32 lanes has a copy. `row` counts the rows of A in the block, or the columns of D in the
    data path's region; there are `rows` of them, which says where the factors beyond a word lie (K = 96).

    >>> factor_place(70, 1, 2)
    FactorPlace(lane=6, column=2, byte=3)
    >>> factor_place(70, 3, 2, rows=256)
    FactorPlace(lane=6, column=10, byte=1)
    """
    partition = lane // PARTITION * PARTITION
    word, byte = divmod(first_byte + factor, FACTORS_OF_WORD)
    column = row // PARTITION + word * further_columns(rows)
    return FactorPlace(partition + row % PARTITION, column, byte)
