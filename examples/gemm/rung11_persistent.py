"""Rung 11: blocks that stay for many tiles, in clusters whose blocks share tiles of B, and TMA stores.

Two blocks of a cluster compute neighbouring tiles of a column: each loads half of the tile of B and
multicasts it to both. One warp loads, two warpgroups multiply 64×256 each; while they write a tile of C
through shared memory, the loads of the next tile are under way.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import parts
import rung9_tma_wgmma
from rung9_tma_wgmma import WIDE, instruction

import lanewise as lw

WARPGROUP = 128


@dataclass(frozen=True)
class Tiling(rung9_tma_wgmma.Tiling):
    """A block's tile of C, 128×256, its step along K and stages; the cluster, and rows grouped for L2."""

    cluster: int = 2
    group: int = 8
    #: Columns of C that a warpgroup keeps in shared memory while TMA stores them.
    store_columns: int = 128

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply, each 64 rows of the tile."""
        return self.BM // 64

    @property
    def threads(self) -> int:
        """Threads of a block: one warpgroup loads."""
        return (1 + self.consumers) * WARPGROUP

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: the stages, and what TMA stores."""
        return super().shared_bytes + 2 * self.BM * self.store_columns


TILING = Tiling()


@cache
def kernel(dtype: lw.Format, accumulate: lw.Format, T: Tiling = TILING) -> lw.Kernel:
    """The kernel for a format of A, B and C, and one of the sums."""
    mma = instruction(dtype, accumulate, T.BN)
    share = T.BN // T.cluster  # columns of B that a block loads for its cluster
    everybody = (1 << T.cluster) - 1
    swizzle = lw.Swizzle(3, 3, 3)
    box_a, box_b = (T.BM, T.BK), (T.BK, WIDE)

    @lw.kernel(max_threads=T.threads, min_blocks=1, cluster=T.cluster)
    def persistent(
        A: lw.TensorMap[dtype, box_a, 128],
        B: lw.TensorMap[dtype, box_b, 128],
        C: lw.TensorMap[dtype, (64, WIDE), 128],
        M: lw.i32, N: lw.i32, K: lw.i32,
    ) -> None:  # fmt: skip
        at_b = 2 * T.stages * T.BM * T.BK
        at_c = T.stages * T.stage_bytes
        sA = lw.dynamic_shared(
            dtype, lw.Layout((T.BM, T.BK, T.stages), (T.BK, 1, T.BM * T.BK)), swizzle=swizzle
        )
        sB = lw.dynamic_shared(  # (n, k, stage), and as boxes (k, 64 columns, which of them, stage)
            dtype,
            lw.Layout(((WIDE, T.BN // WIDE), T.BK, T.stages), ((1, T.BK * WIDE), WIDE, T.BN * T.BK)),
            swizzle=swizzle,
            offset=at_b,
        )
        boxes = lw.dynamic_shared(
            dtype,
            lw.Layout((T.BK, WIDE, T.BN // WIDE, T.stages), (WIDE, 1, T.BK * WIDE, T.BN * T.BK)),
            swizzle=swizzle,
            offset=at_b,
        )
        thread = lw.thread_idx.x
        group = lw.shfl_sync(thread // WARPGROUP, 0)  # the same in a warp, and the compiler knows
        rank = lw.cluster.rank()
        pipeline = lw.Pipeline(T.stages, bytes=T.stage_bytes, consumers=T.consumers * T.cluster)
        if thread == 0:
            lw.tma.prefetch_map(A)
            lw.tma.prefetch_map(B)
            lw.tma.prefetch_map(C)
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.cluster.sync()
        tiles = lw.PersistentTiles(
            lw.cdiv(M, T.BM * T.cluster), lw.cdiv(N, T.BN), group=T.group, cluster=T.cluster
        )
        steps = lw.cdiv(K, T.BK)
        if group == 0:
            lw.setmaxnreg_dec(40)
            if (thread < 32) & lw.elect_one():
                filling = pipeline.producer_state()
                for number in lw.range(tiles.first, tiles.count, tiles.step):
                    row, column = tiles[number]
                    first_row, first_column = (row * T.cluster + rank) * T.BM, column * T.BN
                    for step in lw.range(steps):
                        stage = filling.stage
                        pipeline.acquire(filling)
                        pipeline.commit(filling)
                        full = pipeline.barrier(filling)
                        lw.tma.load(sA[None, None, stage], A, (first_row, step * T.BK), full)
                        for part in range(share // WIDE):
                            which = rank * (share // WIDE) + part
                            lw.tma.load(
                                boxes[None, None, which, stage], B,
                                (step * T.BK, first_column + which * WIDE), full, multicast=everybody,
                            )  # fmt: skip
                        filling = filling.next()
        else:
            lw.setmaxnreg_inc(232)
            own = group - 1
            multiply_and_store(T, mma, pipeline, tiles, steps, sA, sB, C, at_c, own, rank)
        lw.syncwarp()
        lw.cluster.sync()  # nobody leaves while others still arrive at its barriers

    return persistent


@lw.device
def multiply_and_store(
    T: Any,
    mma: Any,
    pipeline: Any,
    tiles: Any,
    steps: Any,
    sA: Any,
    sB: Any,
    C: Any,
    at_c: Any,
    own: Any,
    rank: Any,
) -> None:
    """What a consumer does: the products of a tile, two steps in flight, then its rows of C."""
    thread = lw.thread_idx.x % WARPGROUP
    lane, warp = lw.lane_id(), lw.shfl_sync(thread // 32, 0)
    dtype = C.dtype
    pieces = T.store_columns // WIDE
    sC = lw.dynamic_shared(
        dtype,
        lw.Layout((64, WIDE, pieces, T.consumers), (WIDE, 1, 64 * WIDE, 64 * T.store_columns)),
        swizzle=lw.Swizzle(3, 3, 3),
        offset=at_c,
    )
    a, b = lw.make_gmma_desc(sA)[own * 64, 0, 0], lw.make_gmma_desc(sB)
    reading = pipeline.consumer_state()
    acc = mma.zeros()
    for number in lw.range(tiles.first, tiles.count, tiles.step):
        row, column = tiles[number]
        # the first step begins the sums
        pipeline.wait(reading)
        lw.wgmma_fence()
        for k in range(0, T.BK, 16):
            acc = mma(a[0, k, reading.stage], b[0, k, reading.stage], acc, accumulate=k > 0)
        lw.wgmma_commit()
        before = reading
        reading = reading.next()
        for _ in lw.range(1, steps):
            pipeline.wait(reading)
            lw.wgmma_fence()
            for k in range(0, T.BK, 16):
                acc = mma(a[0, k, reading.stage], b[0, k, reading.stage], acc)
            lw.wgmma_commit()
            lw.wgmma_wait(1)  # the step before is done: give its stage back
            if thread < T.cluster:
                pipeline.release(before, thread)
            before = reading
            reading = reading.next()
        lw.wgmma_wait(0)
        if thread < T.cluster:
            pipeline.release(before, thread)
        first_row = (row * T.cluster + rank) * T.BM + own * 64
        for half in range(T.BN // T.store_columns):
            if (warp == 0) & lw.elect_one():
                lw.tma.wait(0, read=True)  # the buffer is free again
            lw.barrier(1 + own, WARPGROUP)
            for piece in range(pieces):
                for sixteen in range(WIDE // 16):
                    start = (half * T.store_columns + piece * WIDE + sixteen * 16) // 8 * 4
                    packed = [lw.pack(acc[start + i], acc[start + i + 1], dtype) for i in range(0, 8, 2)]
                    place = sC.ptr(warp * 16 + lane % 16, sixteen * 16 + lane // 16 * 8, piece, own)
                    lw.stmatrix(place, packed)
            lw.fence_proxy_async()
            lw.barrier(1 + own, WARPGROUP)
            if (warp == 0) & lw.elect_one():
                for piece in range(pieces):
                    at = column * T.BN + half * T.store_columns + piece * WIDE
                    lw.tma.store(C, (first_row, at), sC[None, None, piece, own])
                lw.tma.commit()
    if (warp == 0) & lw.elect_one():
        lw.tma.wait(0)


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, and N and K that are multiples of 8."""
    (m, k), n = a.shape, b.shape[1]
    tiles = -(-m // (TILING.BM * TILING.cluster)) * -(-n // TILING.BN)
    present = [device.multiprocessors for device in lw.gpu.devices()] or [132]
    blocks = min(tiles, present[0] // TILING.cluster) * TILING.cluster
    maps = (
        lw.tensor_map(a, (TILING.BM, TILING.BK), swizzle="128B"),
        lw.tensor_map(b, (TILING.BK, WIDE), swizzle="128B"),
        lw.tensor_map(c, (64, WIDE), swizzle="128B"),
    )
    configured = kernel(parts.format_of(a), accumulate)[blocks, TILING.threads, TILING.shared_bytes]
    return configured, (*maps, m, n, k), {}
