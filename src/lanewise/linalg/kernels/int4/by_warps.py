"""The product of up to eight rows with 4-bit weights: mma.sync on weights that each lane copies for itself.

Each lane copies the words that it unpacks, so that nobody waits for others' weights, and copies by threads
read memory faster than bulk copies do (docs/matmul-kernels.md, "Floors"). The rows and scales of a
stage are copied by the warps that share a part of K, a team. Parts of K, of the teams of a block and of the
blocks of a cluster, are added in order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_WORDS
from lanewise.linalg.kernels.int4.sums import meet, put_sums, store_sums
from lanewise.linalg.kernels.int4.traits import DEEP, LANES, LINE, Traits
from lanewise.linalg.kernels.int4.unpacking import scale_pairs, unpacked

#: Elements that a thread copies at once: of the rows one piece of each stage.
_PIECE = 8


class Stages:
    """The stages of a team in shared memory: rows, words, scales, one stage behind the other."""

    def __init__(self, T: Traits, team) -> None:
        of_rows, of_weights, _ = T.piece_bytes
        #: (row, element), as all arrays of the first stage
        of_x = Layout((T.tile.rows, CHUNK), (CHUNK, 1))
        self.x = lw.dynamic_shared(T.dtype, of_x, swizzle=Swizzle(3, 3, 4))
        #: (word, thread, half of K)
        self.words = lw.dynamic_shared(
            lw.u32, Layout((4, T.team_threads, 2), (1, 4, 4 * T.team_threads)), offset=of_rows
        )
        #: (column, group of K)
        self.scales = lw.dynamic_shared(
            T.dtype, Layout((COLUMNS, T.groups), (1, COLUMNS)), offset=of_rows + of_weights
        )
        #: Where the team's first stage begins, in bytes behind that of the first team.
        self.start = team * (T.stages * T.stage_bytes)


class Copies:
    """What a thread copies into the stages of its team, chunk after chunk of K: its own words, some of the
    rows, some of the scales."""

    def __init__(self, T: Traits, stages: Stages, thread, arguments) -> None:
        self.T, self.thread, self.arguments = T, thread, arguments
        self.own = stages.words.ptr(0, thread, 0)
        #: Where in a stage this thread's piece of the rows is, and its piece of the scales.
        self.row, self.k = thread // (CHUNK // _PIECE), thread % (CHUNK // _PIECE) * _PIECE
        self.of_rows = stages.x.ptr(self.row, self.k)
        across = COLUMNS // _PIECE
        self.number, self.column = thread // across, thread % across * _PIECE
        self.copies_scales = thread < across * T.groups
        self.of_scales = stages.scales.ptr(self.column, self.number)

    def begin(self, first):
        """Return where a chunk of K is: its words, its piece of a row, what is left of that row, its scales,
        and how far it is into their group."""
        A, W, scales, tile, (M, K, lda), (chunks, per_group, groups) = self.arguments
        place = (tile.to(lw.i64) * chunks.to(lw.i64) + first.to(lw.i64)) * TILE_WORDS
        words = W + (place + (self.thread * 4).to(lw.i64))
        k = first * CHUNK + self.k
        row = A + (lw.min(self.row, M - 1).to(lw.i64) * lda + k.to(lw.i64))
        group = (first * 2 + self.number) // per_group
        into = first * 2 + self.number - group * per_group
        scales = scales + ((tile * groups + group).to(lw.i64) * COLUMNS + self.column.to(lw.i64))
        return [words, row, K - k, scales, into]

    @lw.device
    def copy(self, places, offset):
        """Begin to copy a chunk of K into the stage at an offset in bytes; return the places of the next."""
        T, (_, per_group, _) = self.T, self.arguments[-1]
        words, row, left, scales, into = places
        for half in range(2):
            lw.cp_async(
                (self.own + (offset // 4 + half * 4 * T.team_threads)).aligned(16),
                (words + half * (TILE_WORDS // 2)).aligned(16), 16,
            )  # fmt: skip
        target = (self.of_rows + offset // 2).aligned(16)
        if left >= _PIECE:
            lw.cp_async(target, row.aligned(16), 16)
        else:
            lw.cp_async(target, row.aligned(16), 16, src_bytes=lw.max(left, 0) * 2)
        if self.copies_scales:
            lw.cp_async((self.of_scales + offset // 2).aligned(16), scales.aligned(16), 16)
            into = into + 2
            for _ in range(2):
                if into >= per_group:
                    scales, into = scales + COLUMNS, into - per_group
        return [words + TILE_WORDS, row + CHUNK, left - CHUNK, scales, into]


@lw.device
def with_products(T, acc, pointers, offset):
    """Return sums with the products of the stage at an offset in bytes; `pointers` are those of the first."""
    own, xs, scales = pointers
    pairs = [scale_pairs(scale + offset // 2) for scale in scales]
    for half in range(2):
        words = (own + (offset // 4 + half * 4 * T.team_threads)).aligned(16).load(4)
        fragments = [lw.ldmatrix(x + (offset // 2 + half * LINE)).registers for x in xs]
        for n, word in enumerate(words):
            weights = tuple(unpacked(T.dtype, word, pairs[half % T.groups]))
            acc = T.instruction(weights, fragments[n // 2][n % 2 * 2 : n % 2 * 2 + 2], acc)
    return acc


@lw.device
def mainloop(T, arguments, number, thread, first, steps):
    """Return a thread's sums over its team's stages of K."""
    lane, last = lw.lane_id(), T.stages - 1
    stages = Stages(T, number)
    copies = Copies(T, stages, thread, arguments)
    places = copies.begin(first)
    column = thread // LANES * 16 + lane // 4
    xs = [stages.x.ptr(lane % 8, pair * 2 * DEEP + lane // 8 * 8) for pair in range(2)]
    scales = [stages.scales.ptr(column, i) for i in range(T.groups)]
    pointers = stages.words.ptr(0, thread, 0), xs, scales
    acc = T.instruction.zeros()
    for stage in range(last):
        if stage < steps:
            places = copies.copy(places, stages.start + stage * T.stage_bytes)
        lw.cp_async_commit()
    read, write = stages.start, stages.start + last * T.stage_bytes
    end = write
    for step in lw.range(steps):
        lw.cp_async_wait(last - 1)
        lw.barrier(2 + number, T.team_threads)  # the stage has arrived, and all have left the one before
        if step + last < steps:
            places = copies.copy(places, write)
        lw.cp_async_commit()
        acc = with_products(T, acc, pointers, read)
        write = read
        read = lw.where(read == end, stages.start, read + T.stage_bytes)
    lw.cp_async_wait(0)
    return acc


@cache
def product(T: Traits) -> Kernel:
    """Return the kernel of a product; the grid is the tiles of columns · blocks that share K."""
    bias_type, residual_type = T.problem.epilogue.added_dtypes
    of_operands: Any = lw.Ptr[T.dtype, 16]
    of_results: Any = lw.Ptr[T.out]

    @lw.kernel(
        max_threads=T.threads, min_blocks=T.tile.at_once, cluster=T.tile.split if T.tile.split > 1 else None
    )
    def int4_by_warps(
        A: of_operands, W: lw.Ptr[lw.i32, 16], scales: of_operands, Out: of_results,
        M: lw.i32, N: lw.i32, K: lw.i32, lda: lw.i64, chunks: lw.i32, per_group: lw.i32, groups: lw.i32,
        out_row: lw.i64, out_column: lw.i64, bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, scale_out: lw.Ptr[f32], alpha: f32, beta: f32,
        folded_rows: lw.i32,
    ):  # fmt: skip
        chunks, per_group = lw.assume(chunks, nonnegative=True), lw.assume(per_group, nonnegative=True)
        lda = lw.assume(lda, multiple_of=8)
        if T.width > 1:
            out_row, out_column = lw.assume(out_row, multiple_of=T.width), lw.i64(1)
        number, thread = lw.thread_idx.x // T.team_threads, lw.thread_idx.x % T.team_threads
        share = lw.cdiv(chunks, T.tile.parts)
        part = number
        if T.tile.split > 1:
            part = number + lw.cluster.rank() * T.tile.teams
        first = lw.min(part * share, chunks)
        steps = lw.min(chunks - first, share)
        sizes = (M, K, lda), (chunks, per_group, groups)
        arguments = (A, W, scales, lw.block_idx.x // T.tile.split, *sizes)
        put_sums(T, mainloop(T, arguments, number, thread, first, steps), steps)
        if T.tile.split == 1:
            lw.syncthreads()
        meet(T)
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, None, None, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        store_sums(T, Out, (out_row, out_column), given, lw.i32(0), lw.cdiv(chunks, share), (M, N))
        meet(T)

    return int4_by_warps
