"""The kernels of 4-bit weights: the product of rows with them, and the weights as a matrix of f16 or bf16.

The product is computed as its transpose: wgmma takes its first operand from registers, in which a warpgroup
unpacks the weights of a stage while the tensor cores multiply those of the stage before. One warp loads rows
by TMA, weights and scales by bulk copies. Blocks of a cluster sum parts of K, which are added in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import Format, f32
from lanewise.isa import Instruction, instruction
from lanewise.isa.multiprocessor import multiprocessor
from lanewise.lang.frontend.kernel import Kernel
from lanewise.layout import Layout
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.family import Launch, arguments_of, launch
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.hopper.shared_memory import line_swizzle
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, GROUP_STEP, TILE_WORDS
from lanewise.linalg.kernels.int4.plans import Tile
from lanewise.linalg.kernels.tile_traits import compiled_in
from lanewise.linalg.kernels.warp.epilogue import finished_sum
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import wgmma_name

LANES, WARPGROUP = 32, 128
#: Threads of a block that unpacks a tile to memory.
UNPACKING = 2 * WARPGROUP
#: Words between rows of sums in shared memory beside their columns, so that no two lanes write to one bank.
_GAP = 4
#: K of a line of 128 bytes, and of an instruction.
LINE, DEEP = 64, 16
#: Rows of a tile from which on its sums need registers that a warpgroup which loads gives up; stages at most.
MANY, MOST_STAGES = 256, 12
#: Registers of a thread of that warpgroup, and of one that multiplies.
_REGISTERS = (40, 232)
#: Shared memory of a block that its barriers take: the stages behind them are aligned to 1024 bytes.
_OF_BARRIERS = 1024
#: What arithmetic of two bf16 at once needs.
_NEEDS = ("sm_90", "7.8")
#: By type: the bits of a number with a 4-bit integer in its last place, and what is subtracted from it.
_MAGIC = {"bf16": (0x4300, 128 + 8), "f16": (0x6400, 1024 + 8)}


@dataclass(frozen=True)
class Traits:
    """The constants of one product kernel."""

    #: The problem without sizes; what is fused is compiled in.
    problem: Problem
    tile: Tile
    #: Groups of K in a stage that have scales of their own.
    groups: int
    #: Columns of results that a thread stores at once.
    width: int

    #: The type of sums.
    wide = f32

    @property
    def dtype(self) -> Format:
        """The type of the rows, and of the weights once they are unpacked."""
        return self.problem.a.dtype

    @property
    def out(self) -> Format:
        """The type of results."""
        return self.problem.out.dtype

    @property
    def threads(self) -> int:
        """Threads of a block: one more warp loads; if it moves registers, one of a warpgroup."""
        return self.consumers + (WARPGROUP if self.tile.rows >= MANY else LANES)

    @property
    def consumers(self) -> int:
        """Threads of a block that multiply: a warpgroup for each tile of its columns."""
        return self.tile.tiles * WARPGROUP

    @property
    def columns(self) -> int:
        """Columns of the weights that a block multiplies."""
        return self.tile.tiles * COLUMNS

    @property
    def sums(self) -> Layout:
        """How sums lie in shared memory: (row, column)."""
        return Layout((self.tile.rows, self.columns), (self.columns + _GAP, 1))

    @property
    def piece_bytes(self) -> tuple[int, int, int]:
        """Bytes of a stage: of rows, of weights, of scales."""
        return self.tile.rows * CHUNK * 2, self.tile.tiles * TILE_WORDS * 4, self.groups * self.columns * 2

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return sum(self.piece_bytes)

    @property
    def stages(self) -> int:
        """Stages that fit into shared memory, if so many blocks share a multiprocessor."""
        sm = multiprocessor("sm_90a")
        room = sm.shared_bytes // self.tile.at_once - sm.reserved_bytes - _OF_BARRIERS
        return min(MOST_STAGES, room // self.stage_bytes)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages, then sums."""
        return max(self.stages * self.stage_bytes, self.tile.rows * (self.columns + _GAP) * 4)

    @property
    def instruction(self) -> Instruction:
        """The instruction that multiplies weights, from registers: 64 columns by a tile's rows, its N."""
        name = self.dtype.name
        return instruction(wgmma_name(self.tile.rows, "f32", name, name), a_source="registers")


class Stages:
    """The arrays of all stages in shared memory."""

    def __init__(self, T: Traits) -> None:
        of_rows, of_weights, _ = T.piece_bytes
        columns, rows = T.columns, T.tile.rows
        #: (row, element, which half of K, stage)
        self.x = lw.dynamic_shared(
            T.dtype, Layout((rows, LINE, 2, T.stages), (LINE, 1, rows * LINE, rows * CHUNK)),
            swizzle=line_swizzle(2),
        )  # fmt: skip
        #: (word, lane, warp, which half of K, tile of columns, stage)
        self.words = lw.dynamic_shared(
            lw.u32,
            Layout(
                (4, LANES, 4, 2, T.tile.tiles, T.stages),
                (1, 4, 4 * LANES, TILE_WORDS // 2, TILE_WORDS, T.tile.tiles * TILE_WORDS),
            ),
            offset=T.stages * of_rows,
        )
        #: (column, group of K, stage)
        self.scales = lw.dynamic_shared(
            T.dtype, Layout((columns, T.groups, T.stages), (1, columns, columns * T.groups)),
            offset=T.stages * (of_rows + of_weights),
        )  # fmt: skip


@lw.device
def produce(T, pipeline, X, W, scales, first_row, steps, sizes) -> None:
    """Load all stages of a block: `steps` are the first and how many, `sizes` all of K's stages, elements of
    a group in units of 64, and padded columns."""
    first, count = steps
    chunks, per_group, padded = sizes
    stages, filling = Stages(T), pipeline.producer_state()
    block = lw.block_idx.x // T.tile.split
    weights = W + (block * T.tile.tiles).to(lw.i64) * chunks.to(lw.i64) * TILE_WORDS
    of_columns = scales + (block * T.columns).to(lw.i64)
    for step in lw.range(count):
        chunk, stage = first + step, filling.stage
        pipeline.acquire(filling)
        pipeline.commit(filling)
        full = pipeline.barrier(filling)
        for tile in range(T.tile.tiles):
            place = (chunks * tile + chunk).to(lw.i64) * TILE_WORDS
            target = stages.words.ptr(0, 0, 0, 0, tile, stage).aligned(16)
            lw.tma.copy(target, (weights + place).aligned(16), TILE_WORDS * 4, full)
        for half in range(2):
            lw.tma.load(stages.x[None, None, half, stage], X, (first_row, chunk * CHUNK + half * LINE), full)
        for number in range(T.groups):
            group = ((chunk * 2 + number) // per_group).to(lw.i64) * padded.to(lw.i64)
            target = stages.scales.ptr(0, number, stage).aligned(16)
            lw.tma.copy(target, (of_columns + group).aligned(16), T.columns * 2, full)
        filling = filling.next()


@lw.device
def unpacked(dtype, word, scales):
    """Return four registers of two weights each: q · scale, rounded once; `scales` are of two columns."""
    magic, offset = _MAGIC[dtype.name]
    name = f"{dtype.name}x2"
    offsets = int(dtype.array([offset] * 2).view("uint32")[0])
    minus = lw.asm(f"mov.b32 {{d}}, {offsets};", d=lw.u32)  # which takes two numbers from registers alone
    pairs = []
    for number in range(4):
        moved = lw.bitcast(word, lw.u32) >> (4 * number)
        # (moved & mask) | magic in one instruction
        pair = lw.asm(f"lop3.b32 {{d}}, {{x}}, 0x000F000F, {magic << 16 | magic}, 0xEA;", d=lw.u32, x=moved)
        whole = lw.asm(f"sub.rn.{name} {{d}}, {{x}}, {{y}};", needs=_NEEDS, d=lw.u32, x=pair, y=minus)
        scale = scales[number % 2]
        pairs.append(lw.asm(f"mul.rn.{name} {{d}}, {{x}}, {{y}};", needs=_NEEDS, d=lw.u32, x=whole, y=scale))
    return pairs


@lw.device
def scale_pairs(scales):
    """Return the scales of columns g and g + 8, twice in a register each; a pointer is to the first."""
    return [lw.pack(scales[8 * half], scales[8 * half]) for half in range(2)]


@lw.device
def mainloop(T, pipeline, steps):
    """Return a thread's sums over its block's stages of K."""
    mma, stages = T.instruction, Stages(T)
    x = lw.make_gmma_desc(stages.x)
    lane, thread = lw.lane_id(), lw.thread_idx.x
    tile, warp = thread // WARPGROUP, thread % WARPGROUP // LANES
    column = thread // LANES * 16 + lane // 4
    acc = mma.zeros()
    reading = pipeline.consumer_state()
    before = reading
    for done in lw.range(steps):
        pipeline.wait(reading)
        stage = reading.stage
        words = [stages.words.ptr(0, lane, warp, half, tile, stage).aligned(16).load(4) for half in range(2)]
        pairs = [scale_pairs(stages.scales.ptr(column, number, stage)) for number in range(T.groups)]
        for half in range(2):
            # Each half has registers of its own: a wgmma in flight still reads those of the other one.
            fragments = [unpacked(T.dtype, word, pairs[half % T.groups]) for word in words[half]]
            lw.wgmma_fence()
            for number, fragment in enumerate(fragments):
                further = True if half + number > 0 else done > 0
                acc = mma(tuple(fragment), x[0, number * DEEP, half, stage], acc, accumulate=further)
            lw.wgmma_commit()
            lw.wgmma_wait(1)
            if half == 0:  # noqa: SIM102, decided while tracing
                if done > 0:  # the stage before is done
                    lw.syncwarp()
                    if lane == 0:
                        pipeline.release(before)
        before = reading
        reading = reading.next()
    lw.wgmma_wait(0)
    return acc


@lw.device
def put_sums(T, acc, steps) -> None:
    """Write a thread's sums to shared memory, where the stages were: zeros if there was none."""
    sums = lw.dynamic_shared(f32, T.sums)
    lw.barrier(1, T.consumers)  # nobody reads stages any more
    lane = lw.lane_id()
    column = lw.thread_idx.x // LANES * 16 + lane // 4
    for i in range(T.tile.rows // 2):
        row = i // 4 * 8 + lane % 4 * 2 + i % 2
        sums[row, column + i // 2 % 2 * 8] = lw.where(steps > 0, acc[i], f32(0.0))


@lw.device
def store_sums(T, Out, strides, given, first_row, parts, sizes) -> None:
    """Add the parts of K, each in the shared memory of a block, and store a share of the tile's results."""
    M, N = sizes
    sums = lw.dynamic_shared(f32, T.sums)
    rank = lw.cluster.rank() if T.tile.split > 1 else 0
    first_column = lw.block_idx.x // T.tile.split * T.columns
    across = T.columns // T.width
    count = lw.min(M - first_row, T.tile.rows) * across
    for piece in lw.range(lw.thread_idx.x + rank * T.consumers, count, T.tile.split * T.consumers):
        row, column = piece // across, piece % across * T.width
        place = sums.ptr(row, column).aligned(4 * T.width)
        places = [lw.cluster.map(place, part) if T.tile.split > 1 else place for part in range(T.tile.split)]
        values = [place.load(T.width) if T.width > 1 else [place.load()] for place in places]
        row, column = first_row + row, first_column + column
        results = []
        for i in range(T.width):
            total = values[0][i]
            for part in range(1, T.tile.split):
                total = lw.where(part < parts, total + values[part][i], total)
            results.append(finished_sum(T, given, total, row, column + i, M, N).to(T.out))
        target = Out + (row.to(lw.i64) * strides[0] + column.to(lw.i64) * strides[1])
        if column + (T.width - 1) < N:
            target.aligned(T.width * T.out.bits // 8).store(results)
        else:
            for i in range(T.width - 1):
                if column + i < N:
                    target[i] = results[i]


@lw.device
def meet(T) -> None:
    """Wait for all blocks of the cluster."""
    if T.tile.split > 1:
        lw.cluster.sync()


@cache
def product(T: Traits) -> Kernel:
    """Return the kernel of a product; the grid is (columns · parts of K, rows)."""
    bias_type, residual_type = T.problem.epilogue.added_dtypes
    of_rows: Any = lw.TensorMap[T.dtype, (T.tile.rows, LINE), 2 * LINE]
    of_scales: Any = lw.Ptr[T.dtype, 16]
    of_results: Any = lw.Ptr[T.out]

    @lw.kernel(
        max_threads=T.threads, min_blocks=T.tile.at_once, cluster=T.tile.split if T.tile.split > 1 else None
    )
    def rows_by_int4(
        X: of_rows, W: lw.Ptr[lw.i32, 16], scales: of_scales, Out: of_results,
        M: lw.i32, N: lw.i32, chunks: lw.i32, per_group: lw.i32, padded: lw.i32,
        out_row: lw.i64, out_column: lw.i64, bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, scale_out: lw.Ptr[f32], alpha: f32, beta: f32,
        folded_rows: lw.i32,
    ):  # fmt: skip
        chunks, per_group = lw.assume(chunks, nonnegative=True), lw.assume(per_group, nonnegative=True)
        if T.width > 1:
            out_row, out_column = lw.assume(out_row, multiple_of=T.width), lw.i64(1)
        thread = lw.thread_idx.x
        warp = lw.shfl_sync(thread // LANES, 0)  # the same in a warp, and the compiler knows
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=T.consumers // LANES)
        if thread == T.consumers:
            lw.tma.prefetch_map(X)
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        share = lw.cdiv(chunks, T.tile.split)
        part = lw.cluster.rank() if T.tile.split > 1 else 0
        first = lw.min(part * share, chunks)
        steps = lw.min(chunks - first, share)
        first_row = lw.block_idx.y * T.tile.rows
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, None, None, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        if warp >= T.consumers // LANES:
            if T.tile.rows >= MANY:
                lw.setmaxnreg_dec(_REGISTERS[0])
            if (warp == T.consumers // LANES) & lw.elect_one():
                sizes = (chunks, per_group, padded)
                produce(T, pipeline, X, W, scales, first_row, (first, steps), sizes)
            lw.syncwarp()
            meet(T)
        else:
            if T.tile.rows >= MANY:
                lw.setmaxnreg_inc(_REGISTERS[1])
            put_sums(T, mainloop(T, pipeline, steps), steps)
            if T.tile.split == 1:
                lw.barrier(1, T.consumers)
            meet(T)
            parts = lw.cdiv(chunks, share)
            store_sums(T, Out, (out_row, out_column), given, first_row, parts, (M, N))
        meet(T)  # nobody leaves while others read its sums

    return rows_by_int4


@cache
def unpacking(dtype: Format) -> Kernel:
    """Return the kernel that writes weights as a matrix (N, K): a warp has 16 columns and 64 of K."""
    pitch = LINE + 8

    @lw.kernel(max_threads=UNPACKING)
    def unpack_int4(
        W: lw.Ptr[lw.i32, 16], scales: lw.Ptr[dtype], Out: lw.Ptr[dtype, 16], N: lw.i32, chunks: lw.i32,
        per_group: lw.i32, padded: lw.i32,
    ):  # fmt: skip
        chunks, per_group = lw.assume(chunks, nonnegative=True), lw.assume(per_group, nonnegative=True)
        lane, warp = lw.lane_id(), lw.thread_idx.x // LANES
        tile, chunk, half = lw.block_idx.y, lw.block_idx.x, warp // 4
        held = lw.shared(dtype, Layout((LINE, 16, UNPACKING // LANES), (1, pitch, 16 * pitch)), align=16)
        place = (tile.to(lw.i64) * chunks.to(lw.i64) + chunk.to(lw.i64)) * TILE_WORDS
        words = (W + place + (lw.thread_idx.x * 4).to(lw.i64)).aligned(16).load(4)
        first = tile * COLUMNS + warp % 4 * 16
        group = ((chunk * 2 + half) // per_group).to(lw.i64) * padded.to(lw.i64)
        pairs = scale_pairs(scales + group + (first + lane // 4).to(lw.i64))
        for number, word in enumerate(words):
            for i, pair in enumerate(unpacked(dtype, word, pairs)):
                k = number * DEEP + i // 2 * 8 + lane % 4 * 2
                target = held.ptr(k, lane // 4 + i % 2 * 8, warp)
                lw.pointer(target.address, lw.u32, "shared", 4).store(pair)
        lw.syncwarp()
        for number in range(4):
            row, k = number * 4 + lane // 8, lane % 8 * 8
            eight = lw.pointer(held.ptr(k, row, warp).address, lw.u32, "shared", 16).load(4)
            if first + row < N:
                line = (first + row).to(lw.i64) * (chunks.to(lw.i64) * CHUNK)
                target = Out + line + (chunk * CHUNK + half * LINE + k).to(lw.i64)
                lw.pointer(target.address, lw.u32, "global", 16).store(tuple(eight))

    return unpack_int4


# launches ---------------------------------------------------------------------------------------------------


#: Columns of results that are stored at once where they lie side by side.
_WIDTH = 4


def product_launch(problem: Problem, pointers: Pointers, packed: tuple[int, int, int], tile: Tile) -> Launch:
    """Return the launch of a product; `pointers.b` are words, `pointers.metadata` are scales.

    `packed` are the weights' tiles of K, elements of a group, and padded columns.
    """
    chunks, group, columns = packed
    out = problem.out
    beside = out.k_major and out.inner == 1 and out.alignment * 8 >= _WIDTH * out.dtype.bits
    traits = Traits(
        compiled_in(problem), tile, 1 if group % CHUNK == 0 else CHUNK // GROUP_STEP, _WIDTH if beside else 1
    )
    arguments = arguments_of(problem, pointers) | {
        "X": pointers.a, "W": pointers.b, "scales": pointers.metadata, "chunks": chunks,
        "per_group": group // GROUP_STEP, "padded": columns,
    }  # fmt: skip
    arguments["out_row"], arguments["out_column"] = out.strides
    down = -(-problem.m // tile.rows)
    grid = (tile.blocks(problem.m, problem.n) // down, down)
    return launch(product(traits)[grid, traits.threads, traits.shared_bytes], arguments)


def unpack_launch(dtype: Format, memory: Sequence[object], n: int, packed: tuple[int, int, int]) -> Launch:
    """Return the launch that writes weights (N, K); `memory` are words, scales and the matrix as words."""
    chunks, group, columns = packed
    arguments = (*memory, n, chunks, group // GROUP_STEP, columns)
    return launch(unpacking(dtype)[(chunks, -(-n // COLUMNS)), UNPACKING], arguments)
