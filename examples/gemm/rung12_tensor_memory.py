"""Rung 12: Blackwell. The sums lie in tensor memory, and one thread multiplies 128×256 by one instruction.

One lane of a warp loads by TMA, one lane of another multiplies, and four warps bring the sums to C: each
thread holds a row of them. Nobody holds accumulators in registers while products are under way.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import parts
import rung9_tma_wgmma
from rung9_tma_wgmma import SWIZZLE, WIDE, tiles_of_a, tiles_of_b

import lanewise as lw

#: Threads of the four warps that bring the sums to C; a warp that loads and one that multiplies follow.
ROWS = 128
LOADER, MULTIPLIER = 4, 5


@dataclass(frozen=True)
class Tiling(rung9_tma_wgmma.Tiling):
    """A block's tile of C, 128×256, its step along K of 64, and four stages in flight; a box of C."""

    @property
    def threads(self) -> int:
        """Threads of a block: a row of the tile each, a warp that loads and one that multiplies."""
        return ROWS + 2 * 32

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: the stages, and a box of C."""
        return super().shared_bytes + 2 * self.BM * WIDE


TILING = Tiling()


def instruction(dtype: lw.Format, accumulate: lw.Format, n: int = TILING.BN) -> Any:
    """The product of a block: 128 rows, n columns, 16 of K."""
    return lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=n, a=dtype, b=dtype, d=accumulate)


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format, T: Tiling = TILING) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = instruction(dtype, accumulate, T.BN)
    box_a, box_b, box_c = (T.BM, T.BK), (T.BK, WIDE), (T.BM, WIDE)

    @lw.kernel(max_threads=T.threads, min_blocks=1)
    def in_tensor_memory(
        A: lw.TensorMap[dtype, box_a, 128],
        B: lw.TensorMap[dtype, box_b, 128],
        C: lw.TensorMap[dtype, box_c, 128],
        K: lw.i32,
    ) -> None:
        sA = tiles_of_a(T, dtype)
        sB, boxes = tiles_of_b(T, dtype)
        sC = lw.dynamic_shared(
            dtype, lw.Layout((T.BM, WIDE), (WIDE, 1)), swizzle=SWIZZLE, offset=T.stages * T.stage_bytes
        )
        warp = lw.shfl_sync(lw.warp_id(), 0)  # the same in a warp, and the compiler knows
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes)
        done = lw.mbarrier()[0]
        if lw.thread_idx.x == 0:
            pipeline.init()
            done.init(1)
            lw.fence_mbarrier_init()
        memory = lw.tmem.alloc(T.BN)  # all threads meet in it
        acc = memory.accumulator(mma)
        first_row, first_column = lw.block_idx.y * T.BM, lw.block_idx.x * T.BN
        steps = lw.cdiv(K, T.BK)
        if (warp == LOADER) & lw.elect_one():
            filling = pipeline.producer_state()
            for step in lw.range(steps):
                pipeline.acquire(filling)
                pipeline.commit(filling)
                full = pipeline.barrier(filling)
                lw.tma.load(sA[None, None, filling.stage], A, (first_row, step * T.BK), full)
                for part in range(T.BN // WIDE):
                    at = (step * T.BK, first_column + part * WIDE)
                    lw.tma.load(boxes[None, (None, part), filling.stage], B, at, full)
                filling = filling.next()
        if (warp == MULTIPLIER) & lw.elect_one():
            a, b = lw.make_umma_desc(sA), lw.make_umma_desc(sB)
            reading = pipeline.consumer_state()
            for step in lw.range(steps):
                pipeline.wait(reading)
                lw.tcgen05.fence_after()
                for k in range(0, T.BK, 16):
                    begins = (step == 0) & (k == 0)
                    mma(a[0, k, reading.stage], b[0, k, reading.stage], acc, accumulate=~begins)
                lw.tcgen05.commit(pipeline.empty[reading.stage])  # gives the stage back when it was read
                reading = reading.next()
            lw.tcgen05.commit(done)
        if warp < LOADER:
            done.wait(0)
            lw.tcgen05.fence_after()
            write_rows(T.BN, acc, sC, C, first_row, first_column, warp)
        lw.syncwarp()
        memory.free()

    return in_tensor_memory


@lw.device
def write_rows(columns: int, acc: Any, sC: Any, C: Any, first_row: Any, first_column: Any, warp: Any) -> None:
    """Bring the sums to C, 64 columns at a time, through a box in shared memory that TMA stores."""
    row = lw.thread_idx.x
    for column in range(0, columns, WIDE):
        sums = acc.load(column, WIDE)
        for piece in range(0, WIDE, 8):
            values = tuple(sums[piece + i].to(C.dtype) for i in range(8))
            sC.ptr(row, piece).aligned(16).store(values)
        lw.fence_proxy_async()
        lw.barrier(1, ROWS)
        if (warp == 0) & lw.elect_one():
            lw.tma.store(C, (first_row, first_column + column), sC)
            lw.tma.commit()
            lw.tma.wait(0, read=True)  # the box is free again
        lw.barrier(1, ROWS)
    if (warp == 0) & lw.elect_one():
        lw.tma.wait(0)


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, and N and K that are multiples of 8."""
    (m, k), n = a.shape, b.shape[1]
    T = TILING
    maps = (
        lw.tensor_map(a, (T.BM, T.BK), swizzle="128B"),
        lw.tensor_map(b, (T.BK, WIDE), swizzle="128B"),
        lw.tensor_map(c, (T.BM, WIDE), swizzle="128B"),
    )
    grid = -(-n // T.BN), -(-m // T.BM)
    return kernel(parts.format_of(a), accumulate)[grid, T.threads, T.shared_bytes], (*maps, k), {}
