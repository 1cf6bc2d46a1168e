"""The kernel of f64 products on Hopper: tiles by TMA, fragments from shared memory, sums in registers.

One thread of a warpgroup of its own loads whole tiles; eight warps multiply by mma.sync, as those of
`kernel.py` do. Each stage of shared memory has two mbarriers, so that warps do not wait for each other.

TMA swizzles rows of 128 bytes by their number modulo 8, and an access to shared memory has elements of four
rows. So the rows 0, 2, 4, 6 of eight are those of the first four groups of lanes, and 1, 3, 5, 7 those of the
others: then the four rows of an access lie in different banks. Which row of a tile a group of lanes has is up
to the kernel, as long as it stores the sums where they belong.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.family import made_by_constants
from lanewise.linalg.kernels.hopper.shared_memory import line_swizzle
from lanewise.linalg.kernels.hopper.traits import REGISTERS, WARPGROUP
from lanewise.linalg.kernels.parameters import Sizes, Strides, epilogue_types
from lanewise.linalg.kernels.warp.epilogue import finished_sum
from lanewise.linalg.kernels.warp.kernel import in_groups, with_products
from lanewise.linalg.kernels.warp.tiles import LANES
from lanewise.linalg.kernels.warp.traits import WarpTraits


def spread(index) -> Scalar:
    """Return the row of a tile that a fragment's row is: 0, 2, 4, 6, 1, 3, 5, 7 of each eight."""
    within = index % 8
    return index - within + within % 4 * 2 + within // 4


@made_by_constants
def compiled(T: WarpTraits) -> Kernel:
    """Return the kernel for some constants."""
    T.require_possible()
    (bm, bn, bk), (wm, wn), stages, size = T.plan.tile, T.warp, T.plan.stages, T.a.bits // 8
    of_epilogue = epilogue_types(T.problem.epilogue, T.wide)
    of_sizes, of_strides = Sizes(), Strides(ldo=lw.i64)
    of_a, of_b = lw.TensorMap[T.a, (bm, bk), 128], lw.TensorMap[T.b, (bn, bk), 128]
    of_out = lw.Ptr[T.out, T.problem.out.alignment]
    few, many = REGISTERS[T.threads // WARPGROUP]

    @lw.kernel(max_threads=WARPGROUP + T.threads, min_blocks=1)
    def by_warps(
        A: of_a, B: of_b, C: of_out, sizes: of_sizes, strides: of_strides, epilogue: of_epilogue
    ):  # fmt: skip
        M, N, K = (lw.assume(size, nonnegative=True) for size in sizes[:3])
        row, column = in_groups(lw.block_idx.x, lw.cdiv(M, bm), lw.cdiv(N, bn), T.plan.group)
        row, column = row * bm, column * bn
        pipeline = lw.Pipeline(stages, bytes=(bm + bn) * bk * size, consumers=T.threads // LANES)
        role = lw.shfl_sync(lw.thread_idx.x // WARPGROUP, 0)
        loads = (lw.thread_idx.x < LANES) & lw.elect_one()
        if loads:
            lw.tma.prefetch_map(A)
            lw.tma.prefetch_map(B)
            pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if role == 0:
            lw.setmaxnreg_dec(few)
            if loads:
                produce(T, pipeline, A, B, row, column, K)
        else:
            lw.setmaxnreg_inc(many)
            warp = lw.shfl_sync(lw.thread_idx.x // LANES, 0) - WARPGROUP // LANES
            own_row, own_column = warp % (bm // wm) * wm, warp // (bm // wm) * wn
            acc = summed(T, pipeline, Tiles(T, own_row, own_column), K)
            store(T, acc, C, strides.ldo, row + own_row, column + own_column, M, N, epilogue)

    return by_warps


def offset_of_b(T: WarpTraits) -> int:
    """Return where tiles of B begin in shared memory."""
    return T.plan.stages * T.plan.tile[0] * T.plan.tile[2] * T.a.bits // 8


@lw.device
def produce(T, pipeline, A, B, row, column, K):
    """Load the tiles of A and B, stage after stage, and zeros once beyond the end of K."""
    bm, bn, bk = T.plan.tile
    swizzle = line_swizzle(T.a.bits // 8)
    sA = lw.dynamic_shared(T.a, Layout((bm, bk, T.plan.stages), (bk, 1, bm * bk)), swizzle=swizzle)
    layout = Layout((bn, bk, T.plan.stages), (bk, 1, bn * bk))
    sB = lw.dynamic_shared(T.b, layout, swizzle=swizzle, offset=offset_of_b(T))
    filling = pipeline.producer_state()
    for k in lw.range(0, K + bk, bk):
        pipeline.acquire(filling)
        pipeline.commit(filling)
        full = pipeline.barrier(filling)
        lw.tma.load(sA[None, None, filling.stage], A, (row, k), full)
        lw.tma.load(sB[None, None, filling.stage], B, (column, k), full)
        filling = filling.next()


class Tiles:
    """The fragments of one warp in the tiles of A and B.

    A lane's elements lie in rows with the same number modulo 8, so that the swizzle moves all of them alike:
    the offset of each four of K within its row is computed once.
    """

    def __init__(self, T: WarpTraits, own_row, own_column) -> None:
        self.traits = T
        (bm, bn, bk), stages = T.plan.tile, T.plan.stages
        lane = lw.lane_id()
        group, within = spread(lane // 4), lane % 4
        flat_a = lw.dynamic_shared(T.a, Layout(bm * bk * stages, 1))
        flat_b = lw.dynamic_shared(T.b, Layout(bn * bk * stages, 1), offset=offset_of_b(T))
        self.a, self.b = flat_a.ptr((own_row + group) * bk), flat_b.ptr((own_column + group) * bk)
        self.offsets = [((within // 2 + k // 2) ^ group) * 2 + within % 2 for k in range(0, bk, 4)]

    @lw.device
    def load(self, step, stage):
        """Return the fragments of A and B of one step of a stage."""
        T, mma = self.traits, self.traits.mma
        (bm, bn, bk), (wm, wn) = T.plan.tile, T.warp
        a = [self.fragment(mma.a, self.a + stage * (bm * bk), i, step) for i in range(0, wm, mma.m)]
        b = [self.fragment(mma.b, self.b + stage * (bn * bk), j, step) for j in range(0, wn, mma.n)]
        return a, b

    def fragment(self, operand, tile, first: int, step: int) -> Fragment:
        """Return a fragment of rows from `first` on: element i of a lane has row 8·(i mod 2) and K 4·(i // 2)
        of A, and K 4·i of B, beside the lane's own."""
        mma, bk = self.traits.mma, self.traits.plan.tile[2]
        fragment = operand.full(0)
        for index in range(len(fragment)):
            down, k = (index % 2 * 8, index // 2 * 4) if operand.name == "A" else (0, index * 4)
            place = tile + self.offsets[(step * mma.k + k) // 4]
            fragment[index] = place[(first + down) * bk]
        return fragment


@lw.device
def summed(T, pipeline, tiles, K):
    """Return a warp's sums over K; each warp goes on when a stage is full, and says when it has left one."""
    (wm, wn), bk, mma = T.warp, T.plan.tile[2], T.mma
    steps = bk // mma.k
    reading = pipeline.consumer_state()
    pipeline.wait(reading)
    acc = [[mma.zeros() for _ in range(0, wn, mma.n)] for _ in range(0, wm, mma.m)]
    a, b = tiles.load(0, reading.stage)
    for _ in lw.range(0, K, bk):
        for step in range(steps):
            if step == steps - 1:  # all fragments of the stage are in registers
                lw.syncwarp()
                if lw.lane_id() == 0:
                    pipeline.release(reading)
                reading = reading.next()
                pipeline.wait(reading)
            following = tiles.load((step + 1) % steps, reading.stage)
            acc = with_products(T, a, b, acc)
            a, b = following
    return acc


@lw.device
def store(T, acc, matrix, leading, row, column, M, N, given):
    """Store the sums of a warp, whose part of the tile begins at a row and a column."""
    mma = T.mma
    for i in range(len(acc)):
        for j in range(len(acc[i])):
            values = acc[i][j]
            for index in range(len(values)):
                r, c = values.element(index)
                r, c = row + i * mma.m + spread(r), column + j * mma.n + spread(c)
                value = finished_sum(T, given, values[index], r, c, M, N)
                if (r < M) & (c < N):
                    (matrix + r.to(lw.i64) * leading + c).store(value)
