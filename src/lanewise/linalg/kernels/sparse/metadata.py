"""Which elements of a sparse matrix are kept, and where they stood, in the order in which threads read it.

For each stage of K and each 64 rows, a thread of a warpgroup has one word of metadata (16-bit types) or two
(8-bit types). Which codes are in whose word is the instruction's own layout (`isa/sparsity.py`). A kernel
prunes a matrix on a GPU to two of four neighbours along K: each of its threads makes one word, and the values
that belong to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lanewise import lang as lw
from lanewise.formats import Format, u8
from lanewise.isa import Instruction, instruction
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.matrix.fragment import element_coordinates
from lanewise.linalg.kernels.family import launch, made_by_constants
from lanewise.linalg.kernels.hopper.traits import LINE, ROWS, SPARSE_GROUP, WARPGROUP, metadata_words
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
    columns = np.prod(tiles.shape[2:], dtype=int)
    return np.ascontiguousarray(tiles.reshape(shape[1] * ROWS, columns)[:rows, : k // 2])


# pruning on a GPU -------------------------------------------------------------------------------------------


#: Bits of a code of the metadata: two places of two bits each.
_CODE, _PLACE = 4, 2


def _infinity(fmt: Format) -> int:
    """Return the largest magnitude that is a number, as bits: those above it are NaN."""
    codes = np.arange(1 << (fmt.bits - 1)).astype(np.uint8 if fmt.bits == 8 else np.uint16)
    numbers = codes.view(fmt.dtype).astype(np.float32)
    return int(np.nonzero(~np.isnan(numbers))[0][-1])


@made_by_constants
def pruning(fmt: Format) -> Kernel:
    """Return the kernel for a format. Its blocks are 64 rows along x, stages and words along y."""
    element = u8 if fmt.bits == 8 else lw.u16
    mma, words, stage_k = sparse_instruction(fmt), metadata_words(fmt.bits // 8), LINE // (fmt.bits // 8)
    infinity = 0 if fmt.kind == "int" else _infinity(fmt)

    @lw.kernel(max_threads=WARPGROUP)
    def prune(
        B: lw.Ptr[element], values: lw.Ptr[element], metadata: lw.Ptr[lw.i32],
        K: lw.i32, N: lw.i32, step_k: lw.i64, step_n: lw.i64, leading: lw.i64,
    ):  # fmt: skip
        thread = lw.thread_idx.x
        stage, word = lw.block_idx.y // words, lw.block_idx.y % words
        first = stage * stage_k + step_of(mma, thread, word) * mma.k
        codes = lw.u32(0)
        for i in range(mma.metadata.values):
            row, group = element_coordinates(mma.metadata, i)
            n, k = lw.block_idx.x * ROWS + row, first + group * SPARSE_GROUP
            given = [lw.u32(0) for _ in range(SPARSE_GROUP)]
            if (n < N) & (k < K):
                place = B + (n.to(lw.i64) * step_n + k.to(lw.i64) * step_k)
                given = [place[member * step_k].to(lw.u32) for member in range(SPARSE_GROUP)]
            low, high, one, other = kept(given, fmt, infinity)
            codes = codes | ((low | high << _PLACE) << (_CODE * i))
            if (n < N) & (k < K):
                target = values + (n.to(lw.i64) * leading + (k // 2).to(lw.i64))
                target[0], target[1] = one.to(element), other.to(element)
        at = (lw.block_idx.y // words * lw.grid_dim.x + lw.block_idx.x) * words + word
        metadata[at.to(lw.i64) * WARPGROUP + thread.to(lw.i64)] = codes.to(lw.i32)

    return prune


@lw.device
def step_of(mma, thread, word):
    """Return which of a stage's instructions a thread's word belongs to: the selector says it of some."""
    choices = mma.metadata.lane_choices
    if choices == 1:
        return word
    return word * choices + thread // mma.metadata.lane_step % choices


@lw.device
def kept(given, fmt, infinity):
    """Return the two places of four elements that are kept, ascending, and the elements there, as u32.

    These are the larger magnitudes, of equal ones the first. NaN is larger than all numbers.
    """
    sizes = [magnitude(value, fmt, infinity) for value in given]
    stay = []
    for j in range(4):
        before = lw.u32(0)  # how many come first
        for i in range(4):
            if i != j:
                wins = sizes[i] >= sizes[j] if i < j else sizes[i] > sizes[j]
                before = before + lw.where(wins, lw.u32(1), lw.u32(0))
        stay.append(before < 2)
    low = lw.where(stay[0], lw.u32(0), lw.where(stay[1], lw.u32(1), lw.u32(2)))
    high = lw.where(stay[3], lw.u32(3), lw.where(stay[2], lw.u32(2), lw.u32(1)))
    one = lw.where(stay[0], given[0], lw.where(stay[1], given[1], given[2]))
    other = lw.where(stay[3], given[3], lw.where(stay[2], given[2], given[1]))
    return low, high, one, other


@lw.device
def magnitude(bits, fmt, infinity):
    """Return a number that is larger for a larger magnitude; all NaN have the same."""
    if fmt.kind == "int":
        return lw.where(bits > 127, lw.u32(256) - bits, bits)
    return lw.min(bits & ((1 << (fmt.bits - 1)) - 1), lw.u32(infinity + 1))


def prune_into(
    b, values, metadata, sizes: tuple[int, int], steps: tuple[int, int], leading: int,
    fmt: Format, stream = None,
) -> None:  # fmt: skip
    """Prune a matrix b, (K, N) in `sizes` with steps of elements along both, by one launch."""
    k, n = sizes
    stages, blocks, words, _ = metadata_shape(n, k, fmt.bits // 8)
    kernel = pruning(fmt)[(blocks, stages * words), WARPGROUP]
    launch(kernel, (b, values, metadata, k, n, *steps, leading))(stream)
