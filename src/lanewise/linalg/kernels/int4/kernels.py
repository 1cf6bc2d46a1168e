"""The kernels of 4-bit weights: a product of few rows, and the weights as a matrix of f16 or bf16."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import Format, f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.layout import Layout
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_BYTES
from lanewise.linalg.kernels.warp.epilogue import finished_sum
from lanewise.linalg.problem import Problem

LANES = 32
#: Warps of a block, each of which sums a part of K.
PARTS = 8
#: Chunks of K that are on their way to a warp.
STAGES = 8
#: Elements of 16 bytes of scales.
_PER_PIECE = 8
#: Rows of a result that an instruction computes.
ROWS = 8
#: What arithmetic of two bf16 at once needs.
_NEEDS = ("sm_90", "7.8")
#: By type: the bits of a number with a 4-bit integer in its last place, and what is subtracted from it.
_MAGIC = {"bf16": (0x4300, 128 + 8), "f16": (0x6400, 1024 + 8)}


@dataclass(frozen=True)
class FewRows:
    """The constants of one product kernel."""

    #: The problem without sizes; what is fused is compiled in.
    problem: Problem
    #: Tiles of columns, and instructions' rows, of a block.
    tiles: int
    blocks: int
    stages = STAGES

    @property
    def dtype(self) -> Format:
        """The type of the rows, and of the weights once they are unpacked."""
        return self.problem.a.dtype

    @property
    def out(self) -> Format:
        """The type of results."""
        return self.problem.out.dtype

    #: The type of sums.
    wide = f32

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return COLUMNS * self.tiles

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return ROWS * self.blocks

    @property
    def loads_ahead(self) -> bool:
        """Whether rows are loaded a chunk ahead: there are no registers for many."""
        return self.blocks <= 2

    @property
    def stage_bytes(self) -> tuple[int, int]:
        """Bytes of the weights and scales of a chunk for all warps."""
        return PARTS * self.tiles * TILE_BYTES, PARTS * self.columns * 2

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: chunks on their way, then sums of all warps."""
        return max(self.stages * sum(self.stage_bytes), PARTS * self.rows * (self.columns + 1) * 4)


@lw.device
def unpacked(dtype, word, scales):
    """Return four registers of two weights each: q · scale, rounded once; `scales` are of two columns."""
    magic, offset = _MAGIC[dtype.name]
    name = f"{dtype.name}x2"
    offsets = int(dtype.array([offset] * 2).view("uint32")[0])
    minus = lw.asm(f"mov.b32 {{d}}, {offsets};", d=lw.u32)  # which takes two numbers from registers alone
    found = []
    for number in range(4):
        pair = ((lw.bitcast(word, lw.u32) >> (4 * number)) & 0x000F000F) | (magic << 16 | magic)
        whole = lw.asm(f"sub.rn.{name} {{d}}, {{x}}, {{y}};", needs=_NEEDS, d=lw.u32, x=pair, y=minus)
        scale = scales[number % 2]
        found.append(lw.asm(f"mul.rn.{name} {{d}}, {{x}}, {{y}};", needs=_NEEDS, d=lw.u32, x=whole, y=scale))
    return found


@lw.device
def scale_pairs(scales, place):
    """Return the scales of columns g and g + 8, twice in a register each."""
    return [lw.pack(scales[place + 8 * half], scales[place + 8 * half]) for half in range(2)]


class Ring:
    """What is on its way to a warp: some chunks of K of its weights, and their scales."""

    def __init__(self, T, W, scales, sizes) -> None:
        self.traits, self.W, self.scales = T, W, scales
        self.chunks, self.per_group, self.padded = sizes
        self.lane, self.warp = lw.lane_id(), lw.thread_idx.x // LANES
        self.tile = lw.block_idx.y * T.tiles
        self.words = lw.dynamic_shared(lw.u32, (PARTS, T.stages, T.tiles, LANES, 4))
        after = T.stages * T.stage_bytes[0]
        self.kept_scales = lw.dynamic_shared(T.dtype, (PARTS, T.stages, T.columns), offset=after)

    @lw.device
    def fetch(self, chunk, end, stage) -> None:
        """Begin to copy a chunk, if it lies before the end."""
        T, lane = self.traits, self.lane
        if chunk < end:
            for number in range(T.tiles):
                place = (self.tile + number).to(lw.i64) * self.chunks.to(lw.i64) + chunk.to(lw.i64)
                source = (self.W + place * (LANES * 4) + lane.to(lw.i64) * 4).aligned(16)
                lw.cp_async(self.words.ptr(self.warp, stage, number, lane, 0).aligned(16), source, 16)
            if lane < T.columns // _PER_PIECE:
                group = (chunk // self.per_group).to(lw.i64) * self.padded.to(lw.i64)
                column = (self.tile * COLUMNS + lane * _PER_PIECE).to(lw.i64)
                target = self.kept_scales.ptr(self.warp, stage, lane * _PER_PIECE)
                lw.cp_async(target.aligned(16), (self.scales + group + column).aligned(16), 16)
        lw.cp_async_commit()

    @lw.device
    def of_stage(self, stage):
        """Return a lane's words of weights, and its pairs of scales."""
        lane, numbers = self.lane, range(self.traits.tiles)
        words = [self.words.ptr(self.warp, stage, number, lane, 0).aligned(16).load(4) for number in numbers]
        places = self.kept_scales.ptr(self.warp, stage, lane // 4)
        return words, [scale_pairs(places, number * COLUMNS) for number in numbers]


@lw.device
def mainloop(T, mma, X, W, scales, first_row, M, leading, sizes):
    """Return a warp's sums over its part of K; `sizes` are chunks, those of a group, and padded columns."""
    lane, warp, chunks = lw.lane_id(), lw.thread_idx.x // LANES, sizes[0]
    share = lw.cdiv(chunks, PARTS)
    begin = lw.min(warp * share, chunks)
    end = lw.min(begin + share, chunks)
    ring = Ring(T, W, scales, sizes)
    for ahead in range(T.stages - 1):
        ring.fetch(begin + ahead, end, ahead)
    rows = []
    for block in range(T.blocks):
        row = lw.min(first_row + block * ROWS + lane // 4, M - 1).to(lw.i64)  # what is beyond is not stored
        rows.append(X + row * leading + lane % 4 * 16)

    def load(chunk):
        """Return a chunk of the rows."""
        found = []
        for row in rows:
            source = lw.pointer((row + chunk.to(lw.i64) * CHUNK).address, lw.u32, "global", 16)
            found.append([*source.load(4), *(source + 4).load(4)])
        return found

    acc = [[mma.zeros() for _ in range(T.blocks)] for _ in range(T.tiles)]
    stage = lw.i32(0)
    x = load(lw.min(begin, chunks - 1))
    for chunk in lw.range(begin, end):
        following = load(lw.min(chunk + 1, end - 1)) if T.loads_ahead else None
        if not T.loads_ahead:
            x = load(chunk)
        lw.cp_async_wait(T.stages - 2)
        lw.syncwarp()  # all lanes' copies are there, and the stage before has been read
        words, pairs = ring.of_stage(stage)
        ring.fetch(chunk + (T.stages - 1), end, lw.where(stage == 0, T.stages - 1, stage - 1))
        stage = lw.where(stage == T.stages - 1, 0, stage + 1)
        for step in range(4):
            for number in range(T.tiles):
                a = unpacked(T.dtype, words[number][step], pairs[number])
                for block in range(T.blocks):
                    b = x[block][2 * step : 2 * step + 2]
                    acc[number][block] = mma(a, b, acc[number][block])
        if T.loads_ahead:
            x = following
    lw.cp_async_wait(0)
    return acc


@cache
def few_rows(T: FewRows) -> Kernel:
    """Return the kernel of a product of few rows; the grid is (rows, columns)."""
    from lanewise.isa import instruction

    name = T.dtype.name
    mma = instruction(f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32")
    bias_type, residual_type = T.problem.epilogue.added_dtypes
    of_rows: Any = lw.Ptr[T.dtype, 16]
    of_scales: Any = lw.Ptr[T.dtype, 16]
    of_results: Any = lw.Ptr[T.out]

    @lw.kernel(max_threads=PARTS * LANES)
    def few_rows_by_int4(
        X: of_rows, W: lw.Ptr[lw.i32, 16], scales: of_scales, Out: of_results,
        M: lw.i32, N: lw.i32, chunks: lw.i32, per_group: lw.i32, padded: lw.i32, leading: lw.i64,
        out_row: lw.i64, out_column: lw.i64, bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, scale_out: lw.Ptr[f32], alpha: f32, beta: f32,
        folded_rows: lw.i32,
    ):  # fmt: skip
        chunks, per_group = lw.assume(chunks, nonnegative=True), lw.assume(per_group, nonnegative=True)
        leading = lw.assume(leading, multiple_of=8)
        first_row, first_column = lw.block_idx.x * T.rows, lw.block_idx.y * T.columns
        acc = mainloop(T, mma, X, W, scales, first_row, M, leading, (chunks, per_group, padded))
        lane, warp = lw.lane_id(), lw.thread_idx.x // LANES
        sums = lw.dynamic_shared(f32, Layout((PARTS, T.rows, T.columns), strides_of(T)))
        lw.syncthreads()  # nobody reads weights any more
        for number in range(T.tiles):
            for block in range(T.blocks):
                for i in range(4):
                    row, column = (
                        block * ROWS + lane % 4 * 2 + i % 2,
                        number * COLUMNS + lane // 4 + i // 2 * 8,
                    )
                    sums[warp, row, column] = acc[number][block][i]
        lw.syncthreads()
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, None, None, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        used = lw.cdiv(chunks, lw.cdiv(chunks, PARTS))
        for element in lw.range(lw.thread_idx.x, T.rows * T.columns, PARTS * LANES):
            row, column = element // T.columns, element % T.columns
            total = sums[0, row, column]
            for part in lw.range(1, used):
                total = total + sums[part, row, column]
            row, column = first_row + row, first_column + column
            value = finished_sum(T, given, total, row, column, M, N)
            if (row < M) & (column < N):
                Out[row.to(lw.i64) * out_row + column.to(lw.i64) * out_column] = value.to(T.out)

    return few_rows_by_int4


def strides_of(T: FewRows) -> tuple[int, int, int]:
    """Return the strides of the warps' sums in shared memory, a row an odd number of words long."""
    return T.rows * (T.columns + 1), T.columns + 1, 1


@cache
def unpacking(dtype: Format) -> Kernel:
    """Return the kernel that writes weights as a matrix (N, K): a warp a tile."""

    @lw.kernel(max_threads=PARTS * LANES)
    def unpack_int4(
        W: lw.Ptr[lw.i32, 16], scales: lw.Ptr[dtype], Out: lw.Ptr[dtype, 16], N: lw.i32, chunks: lw.i32,
        per_group: lw.i32, padded: lw.i32,
    ):  # fmt: skip
        chunks, per_group = lw.assume(chunks, nonnegative=True), lw.assume(per_group, nonnegative=True)
        lane, warp = lw.lane_id(), lw.thread_idx.x // LANES
        tile, chunk = lw.block_idx.y, lw.block_idx.x * PARTS + warp
        if chunk < chunks:
            place = (tile.to(lw.i64) * chunks.to(lw.i64) + chunk.to(lw.i64)) * (LANES * 4)
            words = (W + place + lane.to(lw.i64) * 4).aligned(16).load(4)
            column = tile * COLUMNS + lane // 4
            group = (chunk // per_group).to(lw.i64) * padded.to(lw.i64)
            pairs = scale_pairs(scales, group + column.to(lw.i64))
            found = [unpacked(dtype, word, pairs) for word in words]
            for half in range(2):
                if column + 8 * half < N:
                    line = (column + 8 * half).to(lw.i64) * (chunks.to(lw.i64) * CHUNK)
                    target = Out + line + (chunk * CHUNK + lane % 4 * 16).to(lw.i64)
                    pairs_of_k = lw.pointer(target.address, lw.u32, "global", 16)
                    parts = [found[word][half + 2 * s] for word in range(4) for s in range(2)]
                    pairs_of_k.store(tuple(parts[:4]))
                    (pairs_of_k + 4).store(tuple(parts[4:]))

    return unpack_int4
