"""Rung 10: warps with roles. One warp loads, two warpgroups multiply, and a pipeline of mbarriers joins them.

Nobody waits for the whole block any more: a consumer waits until a stage is full, the producer until it is
empty. The warpgroup that loads gives its registers away, and those that multiply take them.
"""

from functools import cache
from typing import Any

import parts
import rung7_rasterised
import rung9_tma_wgmma
from rung9_tma_wgmma import WIDE, Tiling, atom, instruction, tiles_of_a, tiles_of_b

import lanewise as lw

TILING = rung9_tma_wgmma.TILING
WARPGROUP = 128
__all__ = ["instruction", "kernel", "prepare"]


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format, T: Tiling = TILING) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    consumers = T.BM // 64
    mma = lw.make_tiled_mma(atom(dtype, accumulate, T.BN), (consumers, 1, 1))
    box_a, box_b = (T.BM, T.BK), (T.BK, WIDE)

    @lw.kernel(max_threads=T.threads + WARPGROUP, min_blocks=1)
    def specialised(
        A: lw.TensorMap[dtype, box_a, 128], B: lw.TensorMap[dtype, box_b, 128],
        C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32,
    ) -> None:  # fmt: skip
        N = lw.assume(N, multiple_of=8)
        thread = lw.thread_idx.x
        bm, bn = rung7_rasterised.in_groups(lw.block_idx.x, lw.cdiv(M, T.BM), lw.cdiv(N, T.BN))
        sA, (sB, sB_boxes) = tiles_of_a(T, dtype), tiles_of_b(T, dtype)
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=consumers)
        steps = lw.cdiv(K, T.BK)
        if thread == 0:
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if lw.shfl_sync(thread // WARPGROUP, 0) == consumers:  # the last warpgroup loads
            lw.setmaxnreg_dec(40)
            load_a, load_b = (lw.make_tma_copy("SM90_TMA_LOAD", tensor_map) for tensor_map in (A, B))
            gA = lw.local_tile(load_a.get_tma_tensor((M, K)), (T.BM, T.BK), (bm, None))
            gB = lw.local_tile(load_b.get_tma_tensor((K, N)), (T.BK, T.BN), (None, bn))
            tAgA, tAsA = lw.tma_partition(load_a, gA, sA)
            tBgB, tBsB = lw.tma_partition(load_b, gB, sB_boxes)
            if (thread // 32 == consumers * 4) & lw.elect_one():
                filling = pipeline.producer_state()
                for step in lw.range(steps):
                    pipeline.acquire(filling)
                    pipeline.commit(filling)
                    full = pipeline.barrier(filling)
                    lw.copy(load_a.with_(full), tAgA[None, step], tAsA[None, filling.stage])
                    lw.copy(load_b.with_(full), tBgB[None, step], tBsB[None, filling.stage])
                    filling = filling.next()
        else:
            lw.setmaxnreg_inc(232)
            share = mma.get_slice(thread)
            tCrA, tCrB = share.partition_fragment_A(sA), share.partition_fragment_B(sB)
            acc = share.partition_fragment_C((T.BM, T.BN))
            reading = before = pipeline.consumer_state()
            for number in lw.range(steps):
                pipeline.wait(reading)
                lw.wgmma_fence()
                for k in range(T.BK // 16):
                    lw.gemm(mma, acc, tCrA[None, None, k, reading.stage], tCrB[None, None, k, reading.stage])
                lw.wgmma_commit()
                lw.wgmma_wait(1)  # the step before is done: give its stage back
                if (number > 0) & (thread % WARPGROUP == 0):
                    pipeline.release(before)
                before, reading = reading, reading.next()
            lw.wgmma_wait(0)
            gC = lw.local_tile(lw.make_tensor(C, (M, N), (N, 1)), (T.BM, T.BN), (bm, bn))
            lw.copy(acc.to(dtype), share.partition_C(gC), pred=lw.inside)

    return specialised


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, and N and K that are multiples of 8."""
    (m, k), n, T = a.shape, b.shape[1], TILING
    maps = (
        lw.tensor_map(a, (T.BM, T.BK), swizzle="128B"),
        lw.tensor_map(b, (T.BK, WIDE), swizzle="128B"),
    )
    blocks = -(-m // T.BM) * -(-n // T.BN)
    configured = kernel(parts.format_of(a), accumulate)[blocks, T.threads + WARPGROUP, T.shared_bytes]
    return configured, (*maps, c, m, n, k), {}
