"""Where the kept elements of a sparse matrix stood, in the order in which the kernel's threads read it.

For each stage of K and each 64 rows, a thread of a warpgroup has one word of metadata (16-bit types) or two
(8-bit types). Which codes are in whose word is the instruction's own layout (`isa/sparsity.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lanewise.formats import Format
from lanewise.isa import Instruction, instruction
from lanewise.linalg.kernels.hopper.traits import LINE, ROWS, WARPGROUP, metadata_words
from lanewise.linalg.sum_order import sparse_name

#: Rows that metadata is padded to: those of two blocks of the largest tile, a cluster.
MOST_ROWS = 512


def metadata_shape(rows: int, k: int, element_bytes: int) -> tuple[int, int, int, int]:
    """Return the shape of a matrix's metadata: (stages of K, rows / 64, words, threads).

    Rows are padded to those of the largest cluster, and K to whole stages.

    >>> metadata_shape(100, 100, 2)
    (2, 8, 1, 128)
    """
    stage = LINE // element_bytes
    padded = -(-rows // MOST_ROWS) * MOST_ROWS
    return -(-k // stage), padded // ROWS, metadata_words(element_bytes), WARPGROUP


def sparse_instruction(fmt: Format) -> Instruction:
    """Return a wgmma.sp of a format; its metadata does not depend on its columns."""
    return instruction(sparse_name(8, "s32" if fmt.kind == "int" else "f32", fmt.name, fmt.name))


def _steps(fmt: Format, words: int) -> list[tuple[int, int]]:
    """Return for each instruction of a stage the word of its metadata, and the selector of lanes."""
    count = LINE // (fmt.bits // 8) // sparse_instruction(fmt).k
    return [divmod(step * words, count) for step in range(count)]


def ordered_metadata(indices: npt.NDArray[np.uint8], fmt: Format) -> npt.NDArray[np.int32]:
    """Return the words of all threads for a matrix (rows, K/2) of the places 0…3 of its kept elements.

    What is beyond the matrix has the places 0 and 1, and values of zero.
    """
    rows, half = indices.shape
    stages, blocks, words, threads = metadata_shape(rows, 2 * half, fmt.bits // 8)
    mma, steps = sparse_instruction(fmt), _steps(fmt, words)
    padded = np.empty((blocks * ROWS, stages * len(steps) * mma.k // 2), np.uint8)
    padded[:, 0::2], padded[:, 1::2] = 0, 1
    padded[:rows, :half] = indices
    tiles = padded.reshape(blocks, ROWS, stages, len(steps), mma.k // 2).transpose(2, 0, 3, 1, 4)
    packed = np.zeros((stages, blocks, words, threads), np.uint32)
    for step, (word, selector) in enumerate(steps):
        packed[:, :, word] |= mma.metadata.pack(tiles[:, :, step], thread_id=selector)[..., 0]
    return packed.view(np.int32)


def indices_of(metadata: npt.NDArray[np.int32], rows: int, k: int, fmt: Format) -> npt.NDArray[np.uint8]:
    """Return the places of the kept elements, (rows, K/2), for the words of all threads.

    >>> from lanewise.formats import f16
    >>> places = np.array([[1, 3] * 25, [0, 2] * 25], np.uint8)
    >>> bool((indices_of(ordered_metadata(places, f16), 2, 100, f16) == places).all())
    True
    """
    shape = metadata_shape(rows, k, fmt.bits // 8)
    words = metadata.view(np.uint32).reshape(shape)
    mma, steps = sparse_instruction(fmt), _steps(fmt, shape[2])
    parts = [mma.metadata.unpack(words[:, :, word, :, None], thread_id=selector) for word, selector in steps]
    tiles = np.stack(parts, 2).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(tiles.reshape(shape[1] * ROWS, -1)[:rows, : k // 2])
