"""The kernel that prunes a matrix to two of four neighbours along K, and writes what the products read.

Each thread makes one word of the metadata, as the instruction has it, and the values that belong to it.
"""

from __future__ import annotations

from functools import cache

from lanewise import lang as lw
from lanewise.formats import Format, u8
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.matrix.fragment import element_coordinates
from lanewise.linalg.kernels.hopper.traits import LINE, ROWS, SPARSE_GROUP, WARPGROUP, metadata_words
from lanewise.linalg.kernels.sparse.metadata import metadata_shape, sparse_instruction

#: Bits of a code of the metadata: two places of two bits each.
_CODE, _PLACE = 4, 2


def _infinity(fmt: Format) -> int:
    """Return the largest magnitude that is a number, as bits: those above it are NaN."""
    import numpy as np

    codes = np.arange(1 << (fmt.bits - 1)).astype(np.uint8 if fmt.bits == 8 else np.uint16)
    numbers = codes.view(fmt.dtype).astype(np.float32)
    return int(np.nonzero(~np.isnan(numbers))[0][-1])


@cache
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
    pruning(fmt)[(blocks, stages * words), WARPGROUP](
        b, values, metadata, k, n, steps[0], steps[1], leading, stream=stream
    )
