"""Rung 9: TMA loads whole tiles, and wgmma multiplies them out of shared memory; in tiles, CuTe's way.

One thread asks for a tile and an mbarrier counts its bytes; nobody computes addresses, and no fragment of A
or B goes through registers. A warpgroup, four warps, multiplies 64×256 in one instruction.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import parts
import rung7_rasterised

import lanewise as lw

#: Columns of 16-bit elements in 128 bytes, which is as wide as a swizzled box can be.
WIDE = 64
SWIZZLE = lw.Swizzle(3, 3, 3)


@dataclass(frozen=True)
class Tiling:
    """A block's tile of C, its step along K, and the tiles in flight; each warpgroup has 64 rows."""

    BM: int = 128
    BN: int = 256
    BK: int = 64
    stages: int = 4

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.BM // 64 * 128

    @property
    def stage_bytes(self) -> int:
        """Bytes of one tile of A and one of B."""
        return 2 * (self.BM + self.BN) * self.BK

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.stages * self.stage_bytes


TILING = Tiling()


def tiles_of_a(T: Any, dtype: lw.Format) -> Any:
    """The stages of A in shared memory, (m, k, stage): rows of 128 bytes, swizzled."""
    layout = lw.Layout((T.BM, T.BK, T.stages), (T.BK, 1, T.BM * T.BK))
    return lw.dynamic_shared(dtype, layout, swizzle=SWIZZLE)


def tiles_of_b(T: Any, dtype: lw.Format) -> tuple[Any, Any]:
    """The stages of B in shared memory, as wgmma has them, (n, k, stage), and as TMA does, (k, n, stage).

    B is row-major, so that n are neighbours: boxes of 64 columns lie one after the other.
    """
    columns, along = (WIDE, T.BN // WIDE), (1, T.BK * WIDE)
    rest = {"swizzle": SWIZZLE, "offset": 2 * T.stages * T.BM * T.BK}
    step = T.BN * T.BK
    by_column = lw.Layout((columns, T.BK, T.stages), (along, WIDE, step))
    by_row = lw.Layout((T.BK, columns, T.stages), (WIDE, along, step))
    return lw.dynamic_shared(dtype, by_column, **rest), lw.dynamic_shared(dtype, by_row, **rest)


def instruction(dtype: lw.Format, accumulate: lw.Format, n: int = TILING.BN) -> lw.Instruction:
    """The wgmma that multiplies 64 rows by n columns."""
    inner, outer = dtype.name, accumulate.name
    return lw.instruction(f"wgmma.mma_async.sync.aligned.m64n{n}k16.{outer}.{inner}.{inner}")


def atom(dtype: lw.Format, accumulate: lw.Format, n: int) -> str:
    """CUTLASS's name of the wgmma for K-major A and N-major B in shared memory."""
    inner, outer = dtype.name.upper(), accumulate.name.upper()
    return f"SM90_64x{n}x16_{outer}{inner}{inner}_SS<GMMA::Major::K, GMMA::Major::MN>"


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format, T: Tiling = TILING) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = lw.make_tiled_mma(atom(dtype, accumulate, T.BN), (T.BM // 64, 1, 1))
    box_a, box_b = (T.BM, T.BK), (T.BK, WIDE)

    @lw.kernel(max_threads=T.threads, min_blocks=1)
    def tma_wgmma(
        A: lw.TensorMap[dtype, box_a, 128], B: lw.TensorMap[dtype, box_b, 128],
        C: lw.Ptr[dtype, 16], M: lw.i32, N: lw.i32, K: lw.i32,
    ) -> None:  # fmt: skip
        N = lw.assume(N, multiple_of=8)
        thread = lw.thread_idx.x
        bm, bn = rung7_rasterised.in_groups(lw.block_idx.x, lw.cdiv(M, T.BM), lw.cdiv(N, T.BN))
        sA, (sB, sB_boxes) = tiles_of_a(T, dtype), tiles_of_b(T, dtype)
        full = lw.mbarrier(T.stages)
        load_a, load_b = (lw.make_tma_copy("SM90_TMA_LOAD", tensor_map) for tensor_map in (A, B))
        gA = lw.local_tile(load_a.get_tma_tensor((M, K)), (T.BM, T.BK), (bm, None))
        gB = lw.local_tile(load_b.get_tma_tensor((K, N)), (T.BK, T.BN), (None, bn))
        tAgA, tAsA = lw.tma_partition(load_a, gA, sA)
        tBgB, tBsB = lw.tma_partition(load_b, gB, sB_boxes)
        share = mma.get_slice(thread)
        tCrA, tCrB = share.partition_fragment_A(sA), share.partition_fragment_B(sB)  # descriptors
        acc = share.partition_fragment_C((T.BM, T.BN))
        steps = lw.cdiv(K, T.BK)

        def load(step: Any, stage: Any) -> None:
            full[stage].arrive(expect=T.stage_bytes)
            lw.copy(load_a.with_(full[stage]), tAgA[None, step], tAsA[None, stage])
            lw.copy(load_b.with_(full[stage]), tBgB[None, step], tBsB[None, stage])

        if thread == 0:
            full.init(1)
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if (thread < 32) & lw.elect_one():
            for first in lw.range(lw.min(steps, T.stages - 1)):
                load(first, first)
        for step in lw.range(steps):
            stage = step % T.stages
            full[stage].wait(step // T.stages % 2)
            lw.wgmma_fence()
            for k in range(T.BK // 16):
                lw.gemm(mma, acc, tCrA[None, None, k, stage], tCrB[None, None, k, stage])
            lw.wgmma_commit()
            lw.wgmma_wait(1)  # the step before is done, in this warpgroup
            lw.syncthreads()  # and in the others: its stage is free
            ahead = step + T.stages - 1
            if (ahead < steps) & (thread < 32) & lw.elect_one():
                load(ahead, ahead % T.stages)
        lw.wgmma_wait(0)
        gC = lw.local_tile(lw.make_tensor(C, (M, N), (N, 1)), (T.BM, T.BN), (bm, bn))
        lw.copy(acc.to(dtype), share.partition_C(gC), pred=lw.inside)

    return tma_wgmma


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
    configured = kernel(parts.format_of(a), accumulate)[blocks, T.threads, T.shared_bytes]
    return configured, (*maps, c, m, n, k), {}
