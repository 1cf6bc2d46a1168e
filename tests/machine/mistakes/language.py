"""Planted mistakes in the Python language: `WRONG` says which twin is traced (`corpus.py`)."""

# mypy: ignore-errors
from __future__ import annotations

import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


# @ block barriers | race | 1, 64 | f32[64], f32[64]=0 | a warp reads what the other has not yet written
@lw.kernel
def language_reverse(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 64)
    tile[t] = x[t]  #!
    if not WRONG:
        lw.syncthreads()
    y[t] = tile[63 - t]  #!


# @ small elements | race | 1, 32 | f16[256], f16[256]=0 | a tile of halves transposed without syncwarp
@lw.kernel
def language_transpose(x: lw.Ptr[lw.f16], y: lw.Ptr[lw.f16], WRONG: lw.Constexpr = False):
    lane = lw.lane_id()
    tile = lw.shared(lw.f16, (16, 16))
    for i in range(8):
        tile[i * 2 + lane // 16, lane % 16] = x[i * 32 + lane]  #!
    if not WRONG:
        lw.syncwarp()
    for i in range(8):
        y[i * 32 + lane] = tile[lane % 16, i * 2 + lane // 16]  #!


# @ block barriers | race | 1, 64 | f32[256], f32[64]=0 | the tile is refilled while the other warp reads it
@lw.kernel
def language_tile_loop(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 64)
    total = lw.f32(0)
    for i in lw.range(0, 4):
        tile[t] = x[i * 64 + t]  #!
        lw.syncthreads()
        total = total + tile[63 - t]  #!
        if not WRONG:
            lw.syncthreads()
    y[t] = total


# @ async copies | asynchronous copy/race | 1, 64 | f32[512], f32[64]=0 | three stages with two groups pending
@lw.kernel
def language_pipeline(x: lw.Ptr[lw.f32, 16], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tiles = lw.shared(lw.f32, (3, 64))
    for stage in range(2):
        lw.cp_async(tiles.ptr(stage, t), x + stage * 64 + t, 4)  #!
        lw.cp_async_commit()
    total = lw.f32(0)
    for i in lw.range(0, 6):
        lw.cp_async_wait(2 if WRONG else 1)
        lw.syncthreads()
        lw.cp_async(tiles.ptr((i + 2) % 3, t), x + (i + 2) * 64 + t, 4)  #!
        lw.cp_async_commit()
        total = total + tiles[i % 3, 63 - t]  #!
    lw.cp_async_wait(0)
    y[t] = total


# @ read-modify-write | race | 1, 32 | i32[32]%4, i32[4]=0 | a histogram without atomics
@lw.kernel
def language_histogram(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.i32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    if WRONG:
        y[x[t]] = y[x[t]] + 1  #!
    else:
        lw.atomic_add(y + x[t], 1)


# @ lanes collide | race | 1, 32 | f32[32], f32[1]=0 | every lane stores its own part of the sum
@lw.kernel
def language_missing_guard(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    lane = lw.lane_id()
    v = x[lane]
    for distance in (16, 8, 4, 2, 1):
        v = v + lw.shfl_down_sync(v, distance)
    if WRONG:
        y[0] = v  #!
    else:
        if lane == 0:
            y[0] = v


# @ bounds | out of bounds | 1, 64 | f32[60], f32[60]=0, i32:60 | no guard for the tail
@lw.kernel
def language_tail(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], n: lw.i32, WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    if WRONG:
        y[t] = x[t] * 2.0  #!
    else:
        if t < n:
            y[t] = x[t] * 2.0


# @ alignment | misaligned | 1, 16 | f32[72], f32[64]=0 | four floats from an odd one on
@lw.kernel
def language_vector(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    (y + t * 4).store((x + t * 4 + (1 if WRONG else 4)).load(4))  #!


# @ matrix accesses | advice race/uninitialised | 1, 32 | f16[256], f16[128], f32[128]=0 | no syncwarp
@lw.kernel
def language_product(
    A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16, 16], D: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False
):
    lane = lw.lane_id()
    As, Bs = lw.shared(lw.f16, (16, 16)), lw.shared(lw.f16, (16, 8))
    r, c = lane // 2, lane % 2 * 8
    As.ptr(r, c).store((A + r * 16 + c).load(8))  #!
    if lane < 16:
        Bs.ptr(lane, 0).store((B + lane * 8).load(8))  #!
    if not WRONG:
        lw.syncwarp()
    a = lw.ldmatrix(As.ptr(lane % 16, lane // 16 * 8), num=4)  #!
    b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)  #!
    d = mma(a, b)
    for i in range(len(d)):
        r, c = d.element(i)
        D[r * 8 + c] = d[i]


# @ uninitialised memory | uninitialised | 1, 64 | f32[64], f32[64]=0 | half of the tile is never filled
@lw.kernel
def language_half_filled(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 128)
    tile[t] = x[t]
    if not WRONG:
        tile[t + 64] = x[t]
    lw.syncthreads()
    y[t] = tile[127 - t] + 1.0  #!


# @ named barriers | barrier/race/deadlock | 1, 128 | f32[128], f32[128]=0 | for one warp fewer than come
@lw.kernel
def language_named_barrier(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 128)
    tile[t] = x[t]  #!
    lw.barrier(1, 96 if WRONG else 128)  #!
    y[t] = tile[127 - t]  #!


# @ divergence | deadlock/barrier/divergence/race | 1, 64 | f32[64], f32[64]=0 | in a branch of one warp
@lw.kernel
def language_barrier_in_branch(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 64)
    tile[t] = x[t]
    if t < 32:
        if WRONG:
            lw.syncthreads()  #!
        tile[t] = tile[t] + 1.0  #!
    lw.syncthreads()  #!
    y[t] = tile[63 - t]  #!


# @ scopes | race | 4, 32 | i32[1]=0 | atomics of different blocks at block scope
@lw.kernel
def language_block_scope(count: lw.Ptr[lw.i32], WRONG: lw.Constexpr = False):
    lw.atomic_add(count, 1, scope="block" if WRONG else "gpu")  #!


# @ warp order | race | 1, 32 | f32[32], f32[32]=0 | syncwarp for half the lanes, data from the other half
@lw.kernel
def language_partial_mask(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    lane = lw.lane_id()
    tile = lw.shared(lw.f32, 32)
    tile[lane] = x[lane]  #!
    if WRONG:
        lw.syncwarp(lw.where(lane < 16, lw.u32(0x0000FFFF), lw.u32(0xFFFF0000)))
    else:
        lw.syncwarp()
    y[lane] = tile[lane ^ 16]  #!


# @ block barriers | race | 1, 64 | f32[64], f32[1]=0 | a block's sum, whose warps' parts are read unordered
@lw.kernel
def language_sum_of_warps(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    parts = lw.shared(lw.f32, 2)
    v = x[t]
    for distance in (16, 8, 4, 2, 1):
        v = v + lw.shfl_xor_sync(v, distance)
    if t % 32 == 0:
        parts[t // 32] = v  #!
    if not WRONG:
        lw.syncthreads()
    if t == 0:
        y[0] = parts[0] + parts[1]  #!


# @ global races | race | 4, 32 | f32[32], f32[32]=0 | all blocks write the same elements
@lw.kernel
def language_index_without_block(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t, block = lw.thread_idx.x, lw.block_idx.x
    if WRONG:
        y[t] = x[t] * lw.f32(block)  #!
    else:
        if t // 8 == block:
            y[t] = x[t] * lw.f32(block)


# @ bounds | out of bounds | 1, 64 | f32[64], f32[64]=0 | a shared tile one row too short
@lw.kernel
def language_short_tile(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, (7 if WRONG else 8, 8))
    other = lw.shared(lw.f32, 64)
    (tile.ptr(0, 0) + t).store(x[t])  #!
    other[t] = x[t]  #!
    lw.syncthreads()
    y[t] = (tile.ptr(0, 0) + t).load() + other[63 - t]  #!


# @ divergence | advice divergence | 1, 32 | f32[32], f32[32]=0 | a shuffle of all lanes inside a branch
@lw.kernel
def language_shuffle_in_branch(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    v = x[t]
    if WRONG:
        if t < 20:
            y[t] = lw.shfl_xor_sync(v, 1)  #!
    else:
        w = lw.shfl_xor_sync(v, 1)
        if t < 20:
            y[t] = w


# @ TMA | out of bounds | 1, 32 | f32[64], f32[64]=0 | a bulk copy of 256 bytes into a tile of 128
@lw.kernel
def language_bulk_copy_past_tile(x: lw.Ptr[lw.f32, 16], y: lw.Ptr[lw.f32, 16], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 32, align=128)
    kept = lw.shared(lw.f32, 32, align=128)
    bars = lw.mbarrier(1)
    kept[t] = -1.0
    lw.fence_proxy_async()
    if t == 0:
        bars[0].init(1)
        lw.fence_mbarrier_init()
    lw.syncthreads()
    bytes = 256 if WRONG else 128
    if t == 0:
        bars[0].arrive(expect=bytes)
        lw.tma.copy(tile.ptr(0), x, bytes, bars[0])  #!
    bars[0].wait(0)
    y[t] = tile[t] + kept[t]


# @ views | out of bounds | 1, 64 | @disjoint_views | a loop that goes on past the end of its view
@lw.kernel
def language_loop_past_view(y: lw.Ptr[lw.f32], z: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    for i in lw.range(0, 2 if WRONG else 1):
        y[i * 64 + t] = 1.0  #!
    z[63 - t] = 2.0


# @ uninitialised memory | uninitialised | 1, 32 | f32[128], f32[128]=0 | vectors of a tile half filled
@lw.kernel
def language_vectors_never_written(x: lw.Ptr[lw.f32, 16], y: lw.Ptr[lw.f32, 16], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, (32, 4), align=16)
    for i in range(2 if WRONG else 4):
        tile[i * 8 + t // 4, t % 4] = x[i * 32 + t]
    lw.syncwarp()
    (y + t * 4).store((tile.ptr(0, 0) + (31 - t) * 4).load(4))  #!
