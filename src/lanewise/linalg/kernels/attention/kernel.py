"""The attention kernel and its launch: a producer that loads by TMA, one to three consumers of 64 queries."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lanewise import lang as lw
from lanewise.formats import Format, f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.kernels.attention.consumer import Consumer
from lanewise.linalg.kernels.attention.sizes import Operands, Sizes, Tile
from lanewise.linalg.kernels.attention.split_keys import PartialSums, merge_launch
from lanewise.linalg.kernels.attention.tile_scheduler import QueryTiles
from lanewise.linalg.kernels.attention.traits import Traits, boxes
from lanewise.linalg.kernels.family import Launch, launch, made_by_constants
from lanewise.linalg.kernels.hopper.traits import ROWS, WARPGROUP

#: Bytes that L2 reads at once from memory: where rows of a panel are shorter, it is asked for twice as many.
_SECTORS = 128


@lw.device
def produce(T, tiles, maps, pipelines, heads, heads_per_key) -> None:
    """Load the queries of all tiles of a block, and for each tile the keys and values that it sees, the last
    ones first; `heads_per_key` heads of queries share one head of keys. The first keys go before the queries,
    whose place may be taken for longer, by the results of the tile before."""
    Q, K, V = maps
    of_queries, of_keys, of_values = pipelines
    to_q = boxes(T, T.tile.queries, 1, 0)
    to_k = boxes(T, T.tile.keys, T.tile.stages, T.keys_offset)
    to_v = boxes(T, T.tile.keys, T.tile.stages, T.values_offset)
    filling, asked = of_keys.producer_state(), of_queries.producer_state()

    def load(pipeline, state, target, source, place, announced=None) -> None:
        pipeline.acquire(state)
        if announced is not None and T.tile.persistent:
            tiles.announce(state, *announced)
        pipeline.commit(state)
        for panel in range(T.panels):
            box = target[None, None, None, None, panel, state.stage]
            lw.tma.load(box, source, (*place, panel * T.width), pipeline.barrier(state))

    number = lw.block_idx.y if T.divided else lw.block_idx.x
    while number < tiles.count:
        all_heads, first = tiles.place(number)
        batch, head = all_heads // heads, all_heads % heads
        begin, end = tiles.part(first)
        for done in lw.range(end - begin):
            place = (batch, head // heads_per_key, (end - 1 - done) * T.tile.keys)
            load(of_keys, filling, to_k, K, place)
            if done == 0:
                load(of_queries, asked, to_q, Q, (batch, head, first), (all_heads, first))
                asked = asked.next()
            load(of_values, filling, to_v, V, place)
            filling = filling.next()
        number = tiles.next(number)
    if T.tile.persistent:
        of_queries.acquire(asked)
        tiles.announce(asked, -1, 0)
        of_queries.barrier(asked).arrive()


class Counts(NamedTuple):
    """Of what a kernel computes how many; `heads_per_key` is how many heads share those of one."""

    queries: lw.i32
    keys: lw.i32
    batch: lw.i32
    heads: lw.i32
    heads_per_key: lw.i32


@made_by_constants
def compiled(T: Traits) -> Kernel:
    """Return the kernel for some constants. Arrays are (batch, head, row, column)."""
    of_queries = lw.TensorMap[T.dtype, (1, 1, T.tile.queries, T.width), T.line]
    of_keys = lw.TensorMap[T.dtype, (1, 1, T.tile.keys, T.width), T.line]
    of_results = lw.TensorMap[T.dtype, (1, 1, ROWS, T.width), T.line]

    @lw.kernel(max_threads=T.threads, min_blocks=T.blocks_at_once)
    def attention(
        Q: of_queries, K: of_keys, V: of_keys, Out: of_results,
        lse: lw.Ptr[f32], counter: lw.Ptr[lw.u32], partial: lw.Ptr[f32, 16], counts: Counts, scale: f32,
    ):  # fmt: skip
        queries, keys, batch, heads, heads_per_key = (lw.assume(count, nonnegative=True) for count in counts)
        thread = lw.thread_idx.x
        role = lw.shfl_sync(thread // WARPGROUP, 0)  # the same in a warp, and the compiler knows
        count = T.tile.consumers
        pipelines = (
            lw.Pipeline(1, bytes=T.query_bytes, consumers=count),
            lw.Pipeline(T.tile.stages, bytes=T.tile_bytes, consumers=count),
            lw.Pipeline(T.tile.stages, bytes=T.tile_bytes, consumers=count),
        )
        if thread == 0:
            for tensor in (Q, K, V, Out):
                lw.tma.prefetch_map(tensor)
            for pipeline in pipelines:
                pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        tiles = QueryTiles(T, (queries, keys), batch * heads, counter)
        if role == 0:
            if T.registers:
                lw.setmaxnreg_dec(T.registers[0])
            if (thread < 32) & lw.elect_one():
                produce(T, tiles, (Q, K, V), pipelines, heads, heads_per_key)
        else:
            if T.registers:
                lw.setmaxnreg_inc(T.registers[1])
            consumer = Consumer(T, role - 1, pipelines, (queries, keys), scale)
            if T.divided:
                sums = PartialSums(partial, lw.grid_dim.x, batch * heads * queries, T.depth)
                consumer.run_part(tiles, sums)
                lw.launch_dependents()
            else:
                consumer.run(tiles, Out, lse, heads)

    return attention


def traits_of(sizes: Sizes, dtype: Format, causal: bool, tile: Tile) -> Traits:
    """Return what is compiled into the kernel of an attention: all but the number of parts."""
    aligned = (sizes.keys - sizes.queries) % tile.keys == 0 if causal else True
    return Traits(dtype, sizes.depth, replace(tile, parts=1), causal, aligned, tile.parts > 1)


def launches_of(
    sizes: Sizes, dtype: Format, causal: bool, tile: Tile, operands: Operands, scale: float,
    multiprocessors: int,
) -> list[Launch]:  # fmt: skip
    """Return the launches of an attention: one, and where keys are divided, another that adds the parts."""
    T = traits_of(sizes, dtype, causal, tile)
    blocks = -(-sizes.queries // T.tile.queries) * sizes.batch * sizes.heads
    if T.tile.persistent:
        blocks = min(blocks, multiprocessors * T.blocks_at_once)
    arguments = (
        *operands, sizes.queries, sizes.keys, sizes.batch, sizes.heads, sizes.heads // sizes.key_heads, scale,
    )  # fmt: skip
    grid = (tile.parts, blocks) if T.divided else blocks
    promoted = ("K", "V") if T.line < _SECTORS else ()
    attended = launch(compiled(T)[grid, T.threads, T.shared_bytes], arguments, promoted=promoted)
    return [attended, merge_launch(sizes, dtype, operands, scale, tile.parts)] if T.divided else [attended]
