"""Products by mma.sync, for every arch that has it: tiles by cp.async, fragments by ldmatrix, sums in registers.

A block computes one tile of the result. Its warps each own a part of the tile; while they multiply one step
along K, ldmatrix brings the fragments of the next, and cp.async the tiles some stages ahead. Turing has no
cp.async: there each tile passes through registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import lanewise as lw
from lanewise.linalg.families.warp_tiles import LANES, TileShape, fragment, share_out


@dataclass(frozen=True)
class Shape:
    """What is compiled into a kernel: the types, how A and B lie, the tiles, and what is known of alignment."""

    arch: str
    a: lw.Format
    b: lw.Format
    sums: lw.Format
    out: lw.Format
    a_k_major: bool
    b_k_major: bool
    #: The block's tile, a warp's part of it, and the stages of shared memory.
    tile: tuple[int, int, int]
    warp: tuple[int, int]
    stages: int
    #: Bytes that a copy of A, of B and a store of the result may move at once.
    align_a: int
    align_b: int
    align_out: int
    group: int
    #: The instruction's step along K; None for the longest that the arch has.
    step: int | None = None

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.tile[0] // self.warp[0] * (self.tile[1] // self.warp[1]) * LANES

    @property
    def tiles(self) -> tuple[TileShape, TileShape]:
        """The tiles of A and B."""
        m, n, k = self.tile
        return TileShape(self.a, m, k, self.a_k_major), TileShape(self.b, n, k, self.b_k_major)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.stages * sum(each.elements * each.size for each in self.tiles)


@cache
def instruction(
    arch: str, a: lw.Format, b: lw.Format, sums: lw.Format, step: int | None = None
) -> lw.Instruction:
    """The largest mma.sync of an arch for the types of A, B and the sums, or the one with a step along K.

    >>> instruction("sm_75", lw.f16, lw.f16, lw.f32).shape, instruction("sm_90a", lw.f16, lw.f16, lw.f32).shape
    ((16, 8, 8), (16, 8, 16))
    """
    found = [
        each
        for each in lw.instructions(arch, "mma", a=a.name, b=b.name, c=sums.name, d=sums.name, kind="")
        if each.layouts == ("row", "col") and not each.satfinite and not each.rounding and not each.bitop
        and step in (None, each.k)
    ]
    if not found:
        raise lw.LanewiseError(
            f"{arch} has no mma.sync that multiplies {a.name} by {b.name} and sums in {sums.name}"
        )
    return max(found, key=lambda each: each.m * each.n * each.k)


def in_groups(number: Any, tall: Any, wide: Any, group: int) -> tuple[Any, Any]:
    """Some rows of tiles at a time, column by column: blocks that run together share rows and columns."""
    first = number // (wide * group) * group
    rest, size = number % (wide * group), lw.min(tall - first, group)
    return first + rest % size, rest // size


@cache
def compiled(shape: Shape, finish: Any) -> lw.Kernel:
    """The kernel of a shape; `finish` is what is done to a sum before it is stored."""
    mma = instruction(shape.arch, shape.a, shape.b, shape.sums, shape.step)
    (bm, bn, bk), (wm, wn), stages = shape.tile, shape.warp, shape.stages
    tile_a, tile_b = shape.tiles
    asynchronous = mma.legality is not None and shape.arch not in ("sm_70", "sm_72", "sm_75")
    steps = bk // mma.k

    @lw.kernel(max_threads=shape.threads)
    def by_warps(
        A: lw.Ptr[shape.a, shape.align_a], B: lw.Ptr[shape.b, shape.align_b],
        Out: lw.Ptr[shape.out, shape.align_out], M: lw.i32, N: lw.i32, K: lw.i32,
        lda: lw.i64, ldb: lw.i64, ldo: lw.i64, batch_a: lw.i64, batch_b: lw.i64, batch_out: lw.i64,
    ):  # fmt: skip
        lda, ldb = lw.assume(lda, multiple_of=tile_a.width(shape.align_a)), lw.assume(
            ldb, multiple_of=tile_b.width(shape.align_b)
        )
        batch = lw.block_idx.y.to(lw.i64)
        row, column = in_groups(lw.block_idx.x, lw.cdiv(M, bm), lw.cdiv(N, bn), shape.group)
        row, column = row * bm, column * bn
        warp = lw.thread_idx.x // LANES
        own_row, own_column = warp % (bm // wm) * wm, warp // (bm // wm) * wn
        sA = tile_a.array(stages, 0)
        sB = tile_b.array(stages, stages * tile_a.elements * tile_a.size)
        copies = [
            share_out(tile, matrix, leading, first, (limit, K), array, shape.threads, width, asynchronous)
            for tile, matrix, leading, first, limit, array, width in (
                (tile_a, A + batch * batch_a, lda, row, M, sA, tile_a.width(shape.align_a)),
                (tile_b, B + batch * batch_b, ldb, column, N, sB, tile_b.width(shape.align_b)),
            )
        ]

        def fetch(along_k, stage):
            for each in copies:
                each.start(along_k, stage)
            if asynchronous:
                lw.cp_async_commit()

        def load(step, stage):
            along_k = step * mma.k
            return (
                [fragment(mma.a, sA, tile_a, own_row + i, along_k, stage) for i in range(0, wm, mma.m)],
                [fragment(mma.b, sB, tile_b, own_column + j, along_k, stage) for j in range(0, wn, mma.n)],
            )

        for stage in range(stages - 1):
            fetch(lw.i32(stage * bk), stage)
        if asynchronous:
            lw.cp_async_wait(stages - 2)
        lw.syncthreads()
        acc = [[mma.zeros() for _ in range(0, wn, mma.n)] for _ in range(0, wm, mma.m)]
        a, b = load(0, 0)
        read, write = lw.i32(0), lw.i32(stages - 1)
        for k in lw.range(0, K, bk):
            for step in range(steps):
                if step == 0:  # the stage that all warps have left
                    fetch(k + (stages - 1) * bk, write)
                    write = lw.where(write == stages - 1, 0, write + 1)
                if step == steps - 1:
                    if asynchronous:
                        lw.cp_async_wait(stages - 2)
                    lw.syncthreads()
                    read = lw.where(read == stages - 1, 0, read + 1)
                following = load((step + 1) % steps, read)
                for i in range(len(a)):
                    for j in range(len(b)) if i % 2 == 0 else reversed(range(len(b))):
                        acc[i][j] = mma(a[i], b[j], acc[i][j])
                a, b = following
        if asynchronous:
            lw.cp_async_wait(0)
        store(acc, Out + batch * batch_out, ldo, row + own_row, column + own_column, (M, N), shape, mma, finish)

    return by_warps


@lw.device
def store(acc, matrix, leading, row, column, limits, shape, mma, finish):
    """The sums of a warp, finished and rounded, to global memory: neighbours go together where they may."""
    for i in range(len(acc)):
        for j in range(len(acc[i])):
            values = acc[i][j]
            for first in range(0, len(values), 2):
                r, c = values.element(first)
                r, c = row + i * mma.m + r, column + j * mma.n + c
                pair = [finish(values[first + n], r, c + n).to(matrix.dtype) for n in range(2)]
                place = matrix + r.to(lw.i64) * leading + c
                if shape.align_out * 8 >= 2 * shape.out.bits:
                    if (r < limits[0]) & (c < limits[1]):
                        place.store(pair)
                else:
                    if (r < limits[0]) & (c < limits[1]):
                        place.store(pair[0])
                    if (r < limits[0]) & (c + 1 < limits[1]):
                        (place + 1).store(pair[1])
