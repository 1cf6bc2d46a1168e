"""How weights of 4 bits lie in memory: in the order in which the lanes of a warp read them.

A tile is 16 columns of the weights (16 results) and 64 elements of K, 512 bytes. A lane has 16 bytes of it,
the elements 16·c … 16·c + 15 of two columns, g and g + 8, where g = lane / 4 and c = lane % 4. Each word of
these is what the lane has of one m16n8k16 with the weights as its first operand, in four registers of two
elements. So an instruction does not multiply 16 neighbours along K, but four of each of four sixteens.
"""

from __future__ import annotations

import numpy as np

from lanewise.numpy_types import AnyArray

#: Columns and elements of K of a tile, and its bytes.
COLUMNS, CHUNK, TILE_BYTES = 16, 64, 512
#: What is added to an element before it is stored: 0 … 15 are -8 … 7.
OFFSET = 8
#: The axes of a tile's elements: (half of the columns, column, c, word, half of the word, element).
_AXES = (2, 8, 4, 4, 2, 2)
#: The bit at which the element of a word begins, by its axes: half of the columns, half of the word, element.
_SHIFTS = np.array([[[4 * (h + 2 * s) + 16 * i for i in range(2)] for s in range(2)] for h in range(2)])


def padded(columns: int, k: int) -> tuple[int, int]:
    """Return the columns and the K of whole tiles.

    >>> padded(100, 100)
    (128, 128)
    """
    return -(-columns // (2 * COLUMNS)) * 2 * COLUMNS, -(-k // CHUNK) * CHUNK


def pack(values: AnyArray) -> AnyArray:
    """Return weights (N, K) from -8 to 7 as words: (tile of columns, tile of K, lane, word)."""
    n, k = values.shape
    whole = np.full(padded(n, k), OFFSET, np.uint32)
    whole[:n, :k] = values.astype(np.int32) + OFFSET
    tiles = whole.reshape(-1, 2, 8, whole.shape[1] // CHUNK, 4, 4, 2, 2)
    # (tile, half, column, chunk, c, word, half of the word, element)
    shifted = tiles << _SHIFTS[None, :, None, None, None, None].astype(np.uint32)
    words = shifted.sum(axis=(1, 6, 7), dtype=np.uint32)  # (tile, column, chunk, c, word)
    return np.ascontiguousarray(words.transpose(0, 2, 1, 3, 4)).reshape(words.shape[0], -1, 32, 4)


def unpack(words: AnyArray, n: int, k: int) -> AnyArray:
    """Return the weights (N, K) of words.

    >>> weights = np.arange(-8, 8).reshape(1, 16).repeat(40, 0)
    >>> bool((unpack(pack(weights), 40, 16) == weights).all())
    True
    """
    tiles, chunks = words.shape[:2]
    apart = words.reshape(tiles, chunks, 8, 4, 4)[..., None, None, None] >> _SHIFTS.astype(np.uint32)
    # (tile, chunk, column, c, word, half, half of the word, element)
    values = (apart & 15).astype(np.int8) - OFFSET
    ordered = values.transpose(0, 5, 2, 1, 3, 4, 6, 7)
    return np.ascontiguousarray(ordered).reshape(tiles * COLUMNS, chunks * CHUNK)[:n, :k]


def order_of_k() -> AnyArray:
    """Return the elements of a chunk of K in the order in which instructions multiply them.

    >>> order_of_k()[:16].tolist()
    [0, 1, 16, 17, 32, 33, 48, 49, 2, 3, 18, 19, 34, 35, 50, 51]
    """
    return np.arange(CHUNK).reshape(4, 4, 2, 2).transpose(1, 2, 0, 3).reshape(-1)
