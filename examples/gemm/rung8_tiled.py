"""Rung 8: the pipeline of rung 7 written in tiles, CuTe's way: layouts say who copies and multiplies what.

No index arithmetic is left: tiled copies and the MMA cut tensors into threads' parts, and work on those.
"""

from functools import cache
from typing import Any

import parts
import rung7_rasterised

import lanewise as lw

TILING = rung7_rasterised.TILING
#: By the format of A and B, and of the sums.
ATOMS: dict[tuple[lw.Format, lw.Format], str] = {
    (lw.f16, lw.f32): "SM80_16x8x16_F32F16F16F32_TN",
    (lw.f16, lw.f16): "SM80_16x8x16_F16F16F16F16_TN",
    (lw.bf16, lw.f32): "SM80_16x8x16_F32BF16BF16F32_TN",
}
#: By how many elements can be moved at once: the copy from global to shared memory.
FETCHES = {
    8: "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>",
    4: "SM80_CP_ASYNC_CACHEALWAYS<uint64_t>",
    2: "SM80_CP_ASYNC_CACHEALWAYS<uint32_t>",
    1: "UniversalCopy<uint16_t>",
}


def threads_along(copy: str, dtype: lw.Format, length: int, width: int, mode: int) -> lw.TiledCopy:
    """A copy of `width` elements at once, its threads side by side along a mode of so many elements."""
    across = length // width
    shape, order = (TILING.threads // across, across), (across, 1)
    threads, values = lw.Layout(shape, order), lw.Layout((1, width))
    if mode == 0:
        threads, values = lw.Layout(shape[::-1], order[::-1]), lw.Layout((width, 1))
    return lw.make_tiled_copy(copy, threads, values, dtype)


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = lw.make_tiled_mma(ATOMS[dtype, accumulate], (4, 2, 1), (64, 32, 16))
    load_a = lw.make_tiled_copy_A("SM75_U32x4_LDSM_N", mma)
    load_b = lw.make_tiled_copy_B("SM75_U16x8_LDSM_T", mma)
    pairs = lw.make_tiled_copy_C(lw.atom("UniversalCopy<uint32_t>", dtype), mma)

    @lw.kernel(max_threads=TILING.threads)
    def tiled(
        A: lw.Ptr[dtype, 16], B: lw.Ptr[dtype, 16], C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32,
        T: lw.Constexpr, WHOLE: lw.Constexpr, WIDTH_A: lw.Constexpr, WIDTH_B: lw.Constexpr,
    ) -> None:  # fmt: skip
        fetch_a = threads_along(FETCHES[WIDTH_A], dtype, T.BK, WIDTH_A, 1)
        fetch_b = threads_along(FETCHES[WIDTH_B], dtype, T.BN, WIDTH_B, 0)
        rows = threads_along(f"UniversalCopy<uint{16 * WIDTH_B}_t>", dtype, T.BN, WIDTH_B, 1)
        M, N, K = M, lw.assume(N, multiple_of=WIDTH_B), lw.assume(K, multiple_of=WIDTH_A)
        bm, bn = rung7_rasterised.in_groups(lw.block_idx.x, lw.cdiv(M, T.BM), lw.cdiv(N, T.BN))
        # the tensors, and this block's tiles of them: (BM, BK, k), (BN, BK, k), (BM, BN)
        gA = lw.local_tile(lw.make_tensor(A, (M, K), (K, 1)), (T.BM, T.BK), (bm, None))
        gB = lw.local_tile(lw.make_tensor(B, (N, K), (1, N)), (T.BN, T.BK), (bn, None))
        gC = lw.local_tile(lw.make_tensor(C, (M, N), (N, 1)), (T.BM, T.BN), (bm, bn))
        sA = lw.dynamic_shared(dtype, lw.Layout((T.BM, T.BK, T.stages), (T.BK, 1, T.BM * T.BK)),
                               swizzle=parts.swizzle(T.BK))  # fmt: skip
        sB = lw.dynamic_shared(dtype, lw.Layout((T.BN, T.BK, T.stages), (1, T.BN, T.BN * T.BK)),
                               swizzle=parts.swizzle(T.BN), offset=2 * T.stages * T.BM * T.BK)  # fmt: skip
        sC = lw.dynamic_shared(dtype, lw.Layout((T.BM, T.BN), (T.BN, 1)), swizzle=parts.swizzle(T.BN))
        # this thread's parts of them, for each copy and for the product
        tid = lw.thread_idx.x
        fa, fb, la, lb, thread = [x.get_slice(tid) for x in (fetch_a, fetch_b, load_a, load_b, mma)]
        tAgA, tAsA = fa.partition_S(gA), fa.partition_D(sA)
        tBgB, tBsB = fb.partition_S(gB), fb.partition_D(sB)
        tCrA = thread.partition_fragment_A(sA[None, None, 0])
        tCrB = thread.partition_fragment_B(sB[None, None, 0])
        tCrC = thread.partition_fragment_C((T.BM, T.BN))
        tCsA, tCsB = la.partition_S(sA), lb.partition_S(sB)
        tCrA_load, tCrB_load = la.retile_D(tCrA), lb.retile_D(tCrB)
        tiles, steps = lw.cdiv(K, T.BK), T.BK // 16

        def fetch(k: Any, stage: Any) -> None:  # zeros beyond the matrix, and beyond K
            inside = k < tiles if WHOLE else lw.inside
            lw.copy(fetch_a, tAgA[None, None, None, k], tAsA[None, None, None, stage], pred=inside, fill=0)
            lw.copy(fetch_b, tBgB[None, None, None, k], tBsB[None, None, None, stage], pred=inside, fill=0)

        def load(step: Any, stage: Any) -> None:
            lw.copy(load_a, tCsA[None, None, step, stage], tCrA_load[None, None, step])
            lw.copy(load_b, tCsB[None, None, step, stage], tCrB_load[None, None, step])

        for s in range(T.stages - 1):
            fetch(s, s)
            lw.cp_async_commit()
        lw.cp_async_wait(T.stages - 2)
        lw.syncthreads()
        load(0, 0)
        read, write = lw.i32(0), lw.i32(T.stages - 1)
        for k in lw.range(tiles):
            for step in range(steps):
                if step == steps - 1:
                    lw.cp_async_wait(T.stages - 2)
                    lw.syncthreads()
                    read = (read + 1) % T.stages
                load((step + 1) % steps, read)
                if step == 0:
                    fetch(k + T.stages - 1, write)
                    lw.cp_async_commit()
                    write = (write + 1) % T.stages
                lw.gemm(mma, tCrC, tCrA[None, None, step], tCrB[None, None, step])
        lw.cp_async_wait(0)
        lw.syncthreads()  # nobody reads tiles any more: C takes their place
        out, back = pairs.get_slice(tid), rows.get_slice(tid)
        lw.copy(pairs, out.retile_S(tCrC.to(dtype)), out.partition_D(sC))
        lw.syncthreads()
        lw.copy(rows, back.partition_S(sC), back.partition_D(gC), pred=None if WHOLE else lw.inside)

    return tiled


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, N and K."""
    return parts.prepared(kernel(parts.format_of(a), accumulate), TILING, a, b, c, flat=True)
