"""The product of up to eight rows with 4-bit weights: mma.sync on weights that each lane copies for itself.

Each lane copies the words that it unpacks, so that nobody waits for others' weights, and copies by threads
read memory faster than bulk copies do (docs/matmul-kernels.md, "Floors"). The rows and scales of a
stage are copied by the warps that share a part of K, a team. Parts of K, of the teams of a block and of the
blocks of a cluster, are added in order.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_WORDS
from lanewise.linalg.kernels.int4.traits import DEEP, LANES, LINE, Traits
from lanewise.linalg.kernels.int4.unpacking import Weights, own_column, scale_pairs, unpacked

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

    def __init__(self, T: Traits, stages: Stages, thread, weights: Weights) -> None:
        self.T, self.thread, self.weights = T, thread, weights
        self.own = stages.words.ptr(0, thread, 0)
        #: Where in a stage this thread's piece of the rows is, and its piece of the scales.
        self.row, self.k = thread // (CHUNK // _PIECE), thread % (CHUNK // _PIECE) * _PIECE
        self.of_rows = stages.x.ptr(self.row, self.k)
        across = COLUMNS // _PIECE
        self.number, self.column = thread // across, thread % across * _PIECE
        self.copies_scales = thread < across * T.groups
        self.of_scales = stages.scales.ptr(self.column, self.number)

    def begin(self, rows, tile, first):
        """Return where a chunk of K is: its words, its piece of a row, what is left of that row, its scales,
        and how far it is into their group."""
        A, M, K, lda = rows
        words = self.weights.words(tile, first) + self.thread * 4
        k = first * CHUNK + self.k
        row = A + (lw.min(self.row, M - 1).to(lw.i64) * lda + k.to(lw.i64))
        scales, into = self.weights.scales(tile, first, self.number)
        return [words, row, K - k, scales + self.column, into]

    @lw.device
    def copy(self, places, offset):
        """Begin to copy a chunk of K into the stage at an offset in bytes; return the places of the next."""
        T, per_group = self.T, self.weights.per_group
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
def mainloop(T, rows, weights, result):
    """Return a thread's sums over its team's part of K; `rows` are their pointer, M, K and lda."""
    team, thread = lw.thread_idx.x // T.team_threads, lw.thread_idx.x % T.team_threads
    first, steps = result.part(team)
    lane, last = lw.lane_id(), T.stages - 1
    stages = Stages(T, team)
    copies = Copies(T, stages, thread, weights)
    places = copies.begin(rows, result.first_tile, first)
    column = own_column(thread // LANES)
    xs = [stages.x.ptr(lane % 8, pair * 2 * DEEP + lane // 8 * 8) for pair in range(2)]
    scales = [stages.scales.ptr(column, i) for i in range(T.groups)]
    pointers = copies.own, xs, scales
    acc = T.instruction.zeros()
    for stage in range(last):
        if stage < steps:
            places = copies.copy(places, stages.start + stage * T.stage_bytes)
        lw.cp_async_commit()
    read, write = stages.start, stages.start + last * T.stage_bytes
    end = write
    for step in lw.range(steps):
        lw.cp_async_wait(last - 1)
        lw.barrier(2 + team, T.team_threads)  # the stage has arrived, and all have left the one before
        if step + last < steps:
            places = copies.copy(places, write)
        lw.cp_async_commit()
        acc = with_products(T, acc, pointers, read)
        write = read
        read = lw.where(read == end, stages.start, read + T.stage_bytes)
    return acc
