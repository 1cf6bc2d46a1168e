"""Products by mma.sync, for every arch that has it: tiles by cp.async, fragments by ldmatrix, sums in registers.

A block computes one tile of the result. Its warps each own a part of the tile; while they multiply one step
along K, ldmatrix brings the fragments of the next, and cp.async the tiles some stages ahead. Turing has no
cp.async: there each tile passes through registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32, f64, tf32
from lanewise.isa import Instruction, instruction
from lanewise.isa.archs import arch_number
from lanewise.linalg.epilogue_code import EpilogueValues
from lanewise.linalg.families.warp_output import store
from lanewise.linalg.families.warp_tiles import LANES, TileShape, fragment, share_out
from lanewise.linalg.order import instruction_of, multiplied_as
from lanewise.linalg.orientation import transposed, transposed_pointers
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import Pointers
from lanewise.linalg.problem import Epilogue, Problem

#: The first arch with cp.async.
_AMPERE = 80
#: K of the f64 instruction: all give the same bits, and this one leaves registers for a tile of 128 by 128.
_F64_STEP = 8


@dataclass(frozen=True)
class WarpBuild:
    """What is compiled into a kernel: the types, how A and B lie, the tiles, and what is known of alignment."""

    arch: str
    instruction: str
    a: Format
    b: Format
    out: Format
    a_k_major: bool
    b_k_major: bool
    tile: tuple[int, int, int]
    stages: int
    #: Bytes that a copy of A, of B and a store of the result may move at once.
    align_a: int
    align_b: int
    align_out: int
    group: int
    epilogue: Epilogue

    @property
    def mma(self) -> Instruction:
        """The matrix instruction."""
        return instruction(self.instruction)

    @property
    def warp(self) -> tuple[int, int]:
        """A warp's part of the tile: 64 by 64, less for f64 and where four warps would not share a tile."""
        m, n = min(64, self.tile[0]), min(32 if self.a is f64 else 64, self.tile[1])
        while self.tile[0] // m * (self.tile[1] // n) < 4 and max(m, n) > 16:
            m, n = (m // 2, n) if m >= n and m > self.mma.m else (m, n // 2)
        return m, n

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

    @property
    def asynchronous(self) -> bool:
        """Whether the arch has cp.async."""
        return arch_number(self.arch) >= _AMPERE

    @property
    def wide(self) -> Format:
        """The format of alpha, beta and everything that is done to a sum."""
        return f64 if self.a is f64 else f32


def build_of(problem: Problem, plan: Plan) -> WarpBuild:
    """Return what is compiled for a problem, whose rows of the result are contiguous, and a plan."""
    if problem.promote is not None or problem.precision == "f32":
        asked = "sums promoted along K" if problem.promote is not None else 'precision="f32"'
        raise LanewiseError(
            f"plans of family 'warp' have no {asked}; those of 'warpgroup' have (arch sm_90a)"
        )
    if plan.split != 1:
        raise LanewiseError(f"plans of family 'warp' do not split K: split={plan.split}")
    mma = instruction_of(problem, plan)
    if problem.a.dtype is f64 and mma.k > _F64_STEP:
        mma = instruction(mma.text.replace(f"k{mma.k}.", f"k{_F64_STEP}.", 1))
    a, b = (
        tf32 if name == "tf32" else each.dtype
        for name, each in zip(multiplied_as(problem), (problem.a, problem.b), strict=True)
    )
    return WarpBuild(
        plan.arch, mma.text, a, b, problem.out.dtype, problem.a.k_major, problem.b.k_major, plan.tile, plan.stages,
        problem.a.alignment, problem.b.alignment, problem.out.alignment, plan.group, problem.epilogue,
    )  # fmt: skip


def in_groups(number: Any, tall: Any, wide: Any, group: int) -> tuple[Any, Any]:
    """Some rows of tiles at a time, column by column: blocks that run together share rows and columns."""
    first = number // (wide * group) * group
    rest, size = number % (wide * group), lw.min(tall - first, group)
    return first + rest % size, rest // size


@cache
def compiled(T: WarpBuild) -> Any:
    """Return the kernel of a build."""
    mma = T.mma
    (bm, bn, bk), (wm, wn), stages = T.tile, T.warp, T.stages
    tile_a, tile_b = T.tiles
    width_a, width_b = tile_a.width(T.align_a), tile_b.width(T.align_b)
    steps = bk // mma.k
    epilogue = T.epilogue
    bias_type = epilogue.bias_dtype or f32
    residual_type = epilogue.residual.dtype if epilogue.residual is not None else f32
    rounds = T.a is tf32

    @lw.kernel(max_threads=T.threads)
    def by_warps(
        A: lw.Ptr[T.a, T.align_a], B: lw.Ptr[T.b, T.align_b], Out: lw.Ptr[T.out, T.align_out],
        M: lw.i32, N: lw.i32, K: lw.i32,
        lda: lw.i64, ldb: lw.i64, ldo: lw.i64, batch_a: lw.i64, batch_b: lw.i64, batch_out: lw.i64,
        bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, residual_batch: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: T.wide, beta: T.wide,
    ):  # fmt: skip
        M, N, K = (lw.assume(each, nonnegative=True) for each in (M, N, K))
        lda, ldb = lw.assume(lda, multiple_of=width_a), lw.assume(ldb, multiple_of=width_b)
        batch_a, batch_b = lw.assume(batch_a, multiple_of=width_a), lw.assume(batch_b, multiple_of=width_b)
        batch = lw.block_idx.y.to(lw.i64)
        row, column = in_groups(lw.block_idx.x, lw.cdiv(M, bm), lw.cdiv(N, bn), T.group)
        row, column = row * bm, column * bn
        warp = lw.thread_idx.x // LANES
        own_row, own_column = warp % (bm // wm) * wm, warp // (bm // wm) * wn
        sA = tile_a.array(stages, 0)
        sB = tile_b.array(stages, stages * tile_a.elements * tile_a.size)
        copies = [
            share_out(tile, matrix, leading, first, (limit, K), array, T.threads, width, T.asynchronous)
            for tile, matrix, leading, first, limit, array, width in (
                (tile_a, A + batch * batch_a, lda, row, M, sA, width_a),
                (tile_b, B + batch * batch_b, ldb, column, N, sB, width_b),
            )
        ]

        def fetch(along_k, stage):
            for each in copies:
                each.start(along_k, stage)
            if T.asynchronous:
                lw.cp_async_commit()

        def load(step, stage):
            along_k = step * mma.k
            return (
                [
                    fragment(mma.a, sA, tile_a, own_row + i, along_k, stage, rounds)
                    for i in range(0, wm, mma.m)
                ],
                [
                    fragment(mma.b, sB, tile_b, own_column + j, along_k, stage, rounds)
                    for j in range(0, wn, mma.n)
                ],
            )

        for stage in range(stages - 1):
            fetch(lw.i32(stage * bk), stage)
        if T.asynchronous:
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
                    if T.asynchronous:
                        lw.cp_async_wait(stages - 2)
                    lw.syncthreads()
                    read = lw.where(read == stages - 1, 0, read + 1)
                following = load((step + 1) % steps, read)
                for i in range(len(a)):
                    for j in range(len(b)) if i % 2 == 0 else reversed(range(len(b))):
                        acc[i][j] = mma(a[i], b[j], acc[i][j])
                a, b = following
        if T.asynchronous:
            lw.cp_async_wait(0)
        given = EpilogueValues(
            alpha, beta, bias, residual + batch * residual_batch, residual_row, residual_column, scale_a, scale_b,
            scale_out,
        )  # fmt: skip
        store(T, acc, Out + batch * batch_out, ldo, row + own_row, column + own_column, M, N, given)

    return by_warps


def kernel(problem: Problem, plan: Plan) -> Any:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(build_of(problem if problem.out.k_major else transposed(problem), plan))


def launch(
    problem: Problem, plan: Plan, pointers: Pointers, stream: Any = None, multiprocessors: int = 132
) -> None:
    """Compute a problem by a plan, on the GPU of the arrays or, for NumPy's, on the CPU machine."""
    configured, arguments = prepared(problem, plan, pointers, multiprocessors)
    configured(*arguments, stream=stream)


def prepared(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int = 132
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel and its arguments: to be launched, or checked."""
    if not problem.out.k_major:
        problem, pointers = transposed(problem), transposed_pointers(pointers)
    build = build_of(problem, plan)
    tiles = -(-problem.m // build.tile[0]) * -(-problem.n // build.tile[1])
    residual, strides = problem.epilogue.residual, (0, 0, 0)
    if residual is not None:
        steps = (residual.leading, 1) if residual.k_major else (1, residual.leading)
        strides = (*steps, residual.batch_stride)
    operands = (problem.a, problem.b, problem.out)
    arguments = (
        pointers.a, pointers.b, pointers.out, problem.m, problem.n, problem.k,
        *(each.leading for each in operands), *(each.batch_stride for each in operands),
        _or_null(pointers.bias), _or_null(pointers.residual), *strides,
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        float(pointers.alpha), float(pointers.beta),
    )  # fmt: skip
    return compiled(build)[(tiles, problem.batch), build.threads, build.shared_bytes], arguments


def _or_null(array: Any) -> Any:
    """Return an array, or the address that a kernel never reads."""
    return 0 if array is None else array
