"""The product of rows with 4-bit weights by wgmma.

It is computed as its transpose: wgmma takes its first operand from registers, in which a warpgroup unpacks
the weights of a stage while the tensor cores multiply those of the stage before. One warp loads rows by TMA,
weights and scales by bulk copies. Blocks of a cluster sum parts of K, which are added in order.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.shared_memory import line_swizzle
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_WORDS
from lanewise.linalg.kernels.int4.sums import meet
from lanewise.linalg.kernels.int4.traits import DEEP, LANES, LINE, MOVES_REGISTERS, WARPGROUP, Traits
from lanewise.linalg.kernels.int4.unpacking import own_column, scale_pairs, unpacked

#: Registers of a thread of a warpgroup that loads, and of one that multiplies.
_REGISTERS = (40, 232)


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
def produce(T, pipeline, A, weights, result) -> None:
    """Load all stages of a block."""
    first, count = result.part(0)
    stages, filling = Stages(T), pipeline.producer_state()
    words = [weights.words(result.first_tile + tile, first) for tile in range(T.tile.tiles)]
    for step in lw.range(count):
        chunk, stage = first + step, filling.stage
        pipeline.acquire(filling)
        pipeline.commit(filling)
        full = pipeline.barrier(filling)
        for tile in range(T.tile.tiles):
            target = stages.words.ptr(0, 0, 0, 0, tile, stage).aligned(16)
            lw.tma.copy(target, words[tile].aligned(16), TILE_WORDS * 4, full)
        for half in range(2):
            place = result.first_row, chunk * CHUNK + half * LINE
            lw.tma.load(stages.x[None, None, half, stage], A, place, full)
        for number in range(T.groups):
            for tile in range(T.tile.tiles):
                target = stages.scales.ptr(tile * COLUMNS, number, stage).aligned(16)
                scales, _ = weights.scales(result.first_tile + tile, chunk, number)
                lw.tma.copy(target, scales.aligned(16), COLUMNS * 2, full)
        words, filling = [place + TILE_WORDS for place in words], filling.next()


@lw.device
def mainloop(T, pipeline, steps):
    """Return a thread's sums over its block's stages of K."""
    mma, stages = T.instruction, Stages(T)
    x = lw.make_gmma_desc(stages.x)
    lane, thread = lw.lane_id(), lw.thread_idx.x
    tile, warp = thread // WARPGROUP, thread % WARPGROUP // LANES
    column = own_column(thread // LANES)
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
def multiply(T, A, weights, result) -> None:
    """Compute a block's tile of results: one warp loads stages, and the warpgroups before it multiply."""
    thread = lw.thread_idx.x
    warp = lw.shfl_sync(thread // LANES, 0)  # the same in a warp, and the compiler knows
    pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=T.consumers // LANES)
    if thread == T.consumers:
        lw.tma.prefetch_map(A)
        pipeline.init()
        lw.fence_mbarrier_init()
    lw.syncthreads()
    if warp >= T.consumers // LANES:
        if T.tile.rows >= MOVES_REGISTERS:
            lw.setmaxnreg_dec(_REGISTERS[0])
        if (warp == T.consumers // LANES) & lw.elect_one():
            produce(T, pipeline, A, weights, result)
        lw.syncwarp()
        meet(T)
    else:
        if T.tile.rows >= MOVES_REGISTERS:
            lw.setmaxnreg_inc(_REGISTERS[1])
        _, steps = result.part(0)
        result.finish(mainloop(T, pipeline, steps))
