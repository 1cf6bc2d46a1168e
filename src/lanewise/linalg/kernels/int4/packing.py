"""How weights of 4 bits lie in memory: in the order in which the lanes of a warpgroup read them.

A tile is 64 columns of the weights (64 results) and 128 elements of K, 4 KB: what a warpgroup multiplies of
one stage. Its weights are the first operand of eight wgmma, from registers. A lane has a word for each of
them, the elements 2·c, 2·c + 1, 2·c + 8 and 2·c + 9 of 16 along K for two columns, g and g + 8, where
g = lane / 4 and c = lane % 4; four words lie side by side. The warps of the warpgroup have 16 columns each.
Scales of a tile of columns are neighbours, too, one group of K behind the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.numpy_types import AnyArray

#: Columns and elements of K of a tile, and its words.
COLUMNS, CHUNK, TILE_WORDS = 64, 128, 1024
#: What divides the elements of K that share a scale.
GROUP_STEP = 64
#: Tiles of columns to which weights are padded: those of the widest block.
TILES = 2
#: What is added to an element before it is stored: 0 … 15 are -8 … 7.
OFFSET = 8


class Packed(NamedTuple):
    """What of packed weights a launch depends on, beside their addresses."""

    #: Tiles along K.
    chunks: int
    #: Elements of K that share a scale, and how many such groups there are.
    group: int
    groups: int


#: The axes of a tile's columns (warp, half, g) and of its elements of K (half, word, half, c, element).
_COLUMN_AXES, _K_AXES = (4, 2, 8), (2, 4, 2, 4, 2)
#: The bit at which the element of a word begins: half of the columns, half of K, element.
_SHIFTS = np.array([[[4 * (h + 2 * s) + 16 * i for i in range(2)] for s in range(2)] for h in range(2)])


def padded(columns: int, k: int) -> tuple[int, int]:
    """Return the columns and the K of whole blocks.

    >>> padded(100, 100)
    (128, 128)
    """
    wide = TILES * COLUMNS
    return -(-columns // wide) * wide, -(-k // CHUNK) * CHUNK


def pack(values: AnyArray) -> AnyArray:
    """Return weights (N, K) from -8 to 7 as words: (tile of columns, tile of K, word of the tile)."""
    n, k = values.shape
    whole = np.full(padded(n, k), OFFSET, np.uint32)
    whole[:n, :k] = values.astype(np.int32) + OFFSET
    tiles, chunks = whole.shape[0] // COLUMNS, whole.shape[1] // CHUNK
    apart = whole.reshape(tiles, *_COLUMN_AXES, chunks, *_K_AXES)
    # (tile, chunk, half of K, warp, g, c, word, half of the columns, half of 16, element)
    ordered = apart.transpose(0, 4, 5, 1, 3, 8, 6, 2, 7, 9)
    words = (ordered << _SHIFTS.astype(np.uint32)).sum(axis=(7, 8, 9), dtype=np.uint32)
    return np.ascontiguousarray(words).reshape(tiles, chunks, TILE_WORDS)


def pack_scales(scales: AnyArray) -> AnyArray:
    """Return scales (groups of K, padded columns) as they lie on a GPU: (tile of columns, group, column)."""
    groups, columns = scales.shape
    return scales.reshape(groups, columns // COLUMNS, COLUMNS).swapaxes(0, 1)


def unpack(words: AnyArray, n: int, k: int) -> AnyArray:
    """Return the weights (N, K) of words.

    >>> weights = np.arange(-8, 8).reshape(1, 16).repeat(40, 0)
    >>> bool((unpack(pack(weights), 40, 16) == weights).all())
    True
    """
    tiles, chunks = words.shape[:2]
    apart = words.reshape(tiles, chunks, 2, 4, 8, 4, 4)[..., None, None, None] >> _SHIFTS.astype(np.uint32)
    # (tile, chunk, half of K, warp, g, c, word, half of the columns, half of 16, element)
    values = (apart & 15).astype(np.int8) - OFFSET
    ordered = values.transpose(0, 3, 7, 4, 1, 2, 6, 8, 5, 9)
    return np.ascontiguousarray(ordered).reshape(tiles * COLUMNS, chunks * CHUNK)[:n, :k]
