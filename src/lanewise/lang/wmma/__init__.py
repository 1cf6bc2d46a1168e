"""WMMA in kernels, under the names of the CUDA programming guide: fragments, and functions that change them.

The catalogue says which fragments and products exist; a program never sees how they lie in registers.
"""

from lanewise.lang.wmma.fragment import fragment
from lanewise.lang.wmma.load_store import fill_fragment, load_matrix_sync, store_matrix_sync
from lanewise.lang.wmma.mma import bmma_sync, float_to_tf32, mma_sync
from lanewise.lang.wmma.names import (
    accumulator,
    bmmaAccumulateOpPOPC,
    bmmaBitOpAND,
    bmmaBitOpXOR,
    col_major,
    experimental,
    matrix_a,
    matrix_b,
    mem_col_major,
    mem_row_major,
    precision,
    row_major,
)

__all__ = [
    "accumulator", "bmmaAccumulateOpPOPC", "bmmaBitOpAND", "bmmaBitOpXOR", "bmma_sync", "col_major",
    "experimental", "fill_fragment", "float_to_tf32", "fragment", "load_matrix_sync", "matrix_a",
    "matrix_b", "mem_col_major", "mem_row_major", "mma_sync", "precision", "row_major", "store_matrix_sync",
]  # fmt: skip
