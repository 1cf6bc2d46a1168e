"""Rung 13: two blocks, on two multiprocessors, multiply 256×256 by one instruction, tile after tile.

Each block of a pair loads its half of the rows of A and half of the columns of B, and holds half of the rows
of the sums. One thread of the first block multiplies for both. Blocks stay for many tiles, and tensor memory
has two accumulators: while four warps write one, products go into the other.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import parts
import rung12_tensor_memory
from rung9_tma_wgmma import SWIZZLE, WIDE, tiles_of_a, tiles_of_b
from rung12_tensor_memory import LOADER, MULTIPLIER, ROWS, write_rows

import lanewise as lw

PAIR, BOTH = 2, 0b11


@dataclass(frozen=True)
class Tiling(rung12_tensor_memory.Tiling):
    """A block's half of the pair's tile; two accumulators in tensor memory, and rows grouped for L2."""

    #: Columns of B that a block loads.
    BN: int = 128
    accumulators: int = 2
    group: int = 8

    @property
    def columns(self) -> int:
        """Columns of the pair's tile."""
        return PAIR * self.BN


TILING = Tiling()


def instruction(dtype: lw.Format, accumulate: lw.Format, n: int = TILING.columns) -> Any:
    """The product of a pair: 256 rows, n columns, 16 of K."""
    return lw.instruction("tcgen05.mma.cta_group::2.kind::f16", m=256, n=n, a=dtype, b=dtype, d=accumulate)


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format, T: Tiling = TILING) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = instruction(dtype, accumulate, T.columns)
    box_a, box_b, box_c = (T.BM, T.BK), (T.BK, WIDE), (T.BM, WIDE)

    @lw.kernel(max_threads=T.threads, min_blocks=1, cluster=PAIR)
    def in_pairs(
        A: lw.TensorMap[dtype, box_a, 128],
        B: lw.TensorMap[dtype, box_b, 128],
        C: lw.TensorMap[dtype, box_c, 128],
        M: lw.i32, N: lw.i32, K: lw.i32,
    ) -> None:  # fmt: skip
        sA = tiles_of_a(T, dtype)
        sB, boxes = tiles_of_b(T, dtype)
        sC = lw.dynamic_shared(
            dtype, lw.Layout((T.BM, WIDE), (WIDE, 1)), swizzle=SWIZZLE, offset=T.stages * T.stage_bytes
        )
        warp, rank = lw.shfl_sync(lw.warp_id(), 0), lw.cluster.rank()
        pipeline = lw.Pipeline(T.stages, bytes=PAIR * T.stage_bytes)  # the first block counts for both
        # the accumulators between the thread that multiplies and the warps that write
        full, empty = lw.mbarrier(T.accumulators), lw.mbarrier(T.accumulators)
        if lw.thread_idx.x == 0:
            pipeline.init()
            full.init(1)
            empty.init(PAIR)
            lw.fence_mbarrier_init()
        memory = lw.tmem.alloc(T.accumulators * T.columns, cta_group=PAIR)  # both blocks meet in it
        tiles = lw.PersistentTiles(
            lw.cdiv(M, PAIR * T.BM), lw.cdiv(N, T.columns), group=T.group, cluster=PAIR
        )
        steps = lw.cdiv(K, T.BK)
        if (warp == LOADER) & lw.elect_one():
            filling = pipeline.producer_state()
            for number in lw.range(tiles.first, tiles.count, tiles.step):
                row, column = tiles[number]
                first_row, first_column = (row * PAIR + rank) * T.BM, (column * PAIR + rank) * T.BN
                for step in lw.range(steps):
                    pipeline.acquire(filling)
                    if rank == 0:
                        pipeline.commit(filling)
                    loaded = pipeline.barrier(filling).remote(0)
                    lw.tma.load(
                        sA[None, None, filling.stage], A, (first_row, step * T.BK), loaded, cta_group=PAIR
                    )
                    for part in range(T.BN // WIDE):
                        at = (step * T.BK, first_column + part * WIDE)
                        lw.tma.load(boxes[None, (None, part), filling.stage], B, at, loaded, cta_group=PAIR)
                    filling = filling.next()
        if (rank == 0) & (warp == MULTIPLIER) & lw.elect_one():
            a, b = lw.make_umma_desc(sA), lw.make_umma_desc(sB)
            reading, next_tile = pipeline.consumer_state(), lw.i32(0)
            for _ in lw.range(tiles.first, tiles.count, tiles.step):
                which = next_tile % T.accumulators
                empty[which].wait((next_tile // T.accumulators + 1) % 2)
                lw.tcgen05.fence_after()
                acc = memory.accumulator(mma, column=which * T.columns)
                for step in lw.range(steps):
                    pipeline.wait(reading)
                    lw.tcgen05.fence_after()
                    for k in range(0, T.BK, 16):
                        begins = (step == 0) & (k == 0)
                        mma(a[0, k, reading.stage], b[0, k, reading.stage], acc, accumulate=~begins)
                    lw.tcgen05.commit(pipeline.empty[reading.stage], cta_group=PAIR, multicast=BOTH)
                    reading = reading.next()
                lw.tcgen05.commit(full[which], cta_group=PAIR, multicast=BOTH)
                next_tile = next_tile + 1
        if warp < LOADER:
            tile = lw.i32(0)
            for number in lw.range(tiles.first, tiles.count, tiles.step):
                row, column = tiles[number]
                which = tile % T.accumulators
                full[which].wait(tile // T.accumulators % 2)
                lw.tcgen05.fence_after()
                acc = memory.accumulator(mma, column=which * T.columns)
                first_row = (row * PAIR + rank) * T.BM
                write_rows(T.columns, acc, sC, C, first_row, column * T.columns, warp)
                lw.tcgen05.fence_before()
                lw.barrier(1, ROWS)
                if lw.thread_idx.x == 0:
                    empty[which].remote(0).arrive()
                tile = tile + 1
        lw.syncwarp()
        memory.free()

    return in_pairs


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, and N and K that are multiples of 8."""
    (m, k), n = a.shape, b.shape[1]
    T = TILING
    tiles = -(-m // (PAIR * T.BM)) * -(-n // T.columns)
    present = [device.multiprocessors for device in lw.gpu.devices()] or [148]
    blocks = min(tiles, present[0] // PAIR) * PAIR
    maps = (
        lw.tensor_map(a, (T.BM, T.BK), swizzle="128B"),
        lw.tensor_map(b, (T.BK, WIDE), swizzle="128B"),
        lw.tensor_map(c, (T.BM, WIDE), swizzle="128B"),
    )
    configured = kernel(parts.format_of(a), accumulate)[blocks, T.threads, T.shared_bytes]
    return configured, (*maps, m, n, k), {}
