"""Split-K over many clusters: sums of one tile, added in order by a second kernel on all multiprocessors.

With many groups the cluster that comes last would read a megabyte alone (`split_k_workspace.py`). Here all
clusters leave their sums in the workspace and end; each block of the second kernel adds 64 rows (16, if there
are many groups) and 8 columns of all groups, in order of K, and stores them after the epilogue. Nothing is
counted.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.memory.pointer import Pointer
from lanewise.layout import Layout
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues
from lanewise.linalg.kernels.hopper.register_stores import RegisterEpilogue
from lanewise.linalg.kernels.hopper.split_k_workspace import fragment_of
from lanewise.linalg.kernels.hopper.traits import ROWS, Traits

#: Loads of four sums that a thread has in flight at most.
_IN_FLIGHT = 8
#: Sums of a warp for 16 rows and 8 columns.
_OF_WARP = 4 * 32


class Crew(NamedTuple):
    """Who adds the sums of one block of the second kernel: `teams` of some warps, 16 rows for each warp.

    Teams load different groups to shared memory, from which all are added in order.
    """

    warps: int
    teams: int

    @classmethod
    def of(cls, groups: int) -> Crew:
        """Return the crew for a number of groups; with many of them a block has few rows."""
        if groups <= _IN_FLIGHT:
            return cls(4, 1)
        return cls(4, 4) if groups <= 4 * _IN_FLIGHT else cls(1, 16)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps * self.teams

    @property
    def sums(self) -> int:
        """Sums that a block adds up."""
        return _OF_WARP * self.warps

    @property
    def parts(self) -> int:
        """Blocks that share 64 rows."""
        return 4 // self.warps

    def at_once(self, groups: int) -> int:
        """Return how many groups are in shared memory at the same time."""
        return min(_IN_FLIGHT, -(-groups // self.teams)) * self.teams


def chunks(traits: Traits) -> int:
    """Return the blocks that add the sums of one consumer of the first kernel."""
    return traits.consumer_rows // ROWS * traits.store_columns // 8 * Crew.of(traits.plan.groups).parts


def reduction_shape(traits: Traits, m: int, n: int, batch: int) -> tuple[tuple[int, int, int], int, int]:
    """Return the second kernel's grid, threads and bytes of shared memory.

    Columns, and who summed them, are along x; rows along y; the batch along z.
    """
    across, along = traits.plan.cluster
    rows, columns = -(-m // (traits.bm * across)), -(-n // (traits.bn * along))
    grid = columns * traits.multicasting * traits.owners * traits.consumers * chunks(traits), rows, batch
    crew = Crew.of(traits.plan.groups)
    shared = crew.at_once(traits.plan.groups) * crew.sums * 4 if crew.teams > 1 else 0
    return grid, crew.threads, shared


@lw.device
def _added(groups, place):
    """Return this thread's four sums, all groups added in order; `place` tells where those of a group lie."""
    parts = [place(group).load(4, cache="cg") for group in range(groups)]
    added = list(parts[0])
    for part in parts[1:]:
        added = [added[i] + part[i] for i in range(4)]
    return added


@lw.device
def _added_by_teams(groups, place, crew):
    """Return the same: teams load different groups, and each thread adds one of the sums of all."""
    at_once, thread = crew.at_once(groups), lw.thread_idx.x
    team, within = lw.shfl_sync(thread // (32 * crew.warps), 0), thread % (32 * crew.warps)
    staged = lw.dynamic_shared(f32, Layout((crew.sums, at_once), (1, crew.sums)))
    total = f32(0.0)
    for start in range(0, groups, at_once):
        count = min(at_once, groups - start)
        each_loads = -(-count // crew.teams)
        parts = []
        for load in range(each_loads):  # groups beyond the last are loaded and left out
            group = lw.min(start + load * crew.teams + team, groups - 1)
            parts.append(place(group).load(4, cache="cg"))
        if start:
            lw.syncthreads()  # what was staged before has been added
        for load in range(each_loads):
            staged.ptr(4 * within, load * crew.teams + team).store(parts[load])
        lw.syncthreads()
        if thread < crew.sums:
            for part in range(count):
                value = staged[thread, part]
                total = value if start + part == 0 else total + value
    lw.syncthreads()
    if thread < crew.sums:
        staged[thread, 0] = total
    lw.syncthreads()
    return list(staged.ptr(4 * within, 0).load(4))


@cache
def reduction(traits: Traits) -> Kernel:
    """Return the second kernel for some constants."""
    T = traits
    across, along = T.plan.cluster
    bias_dtype, residual_dtype = T.problem.epilogue.added_dtypes
    of_c = lw.Ptr[T.out]
    per_consumer, crew = chunks(T), Crew.of(T.plan.groups)
    per_block = T.store_columns // 8

    @lw.kernel(max_threads=crew.threads)
    def gather(
        C: of_c, M: lw.i32, N: lw.i32, leading: lw.i64, stride: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64, residual_stride: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: f32, beta: f32, folded_rows: lw.i32, sums: lw.Ptr[f32, 16],
    ):  # fmt: skip
        matrix = lw.block_idx.z
        number, chunk = lw.block_idx.x // per_consumer, lw.block_idx.x % per_consumer
        part, chunk = chunk % crew.parts, chunk // crew.parts
        block, four = chunk // per_block, chunk % per_block
        own, rest = number % T.consumers, number // T.consumers
        mine, tile = rest % T.owners, rest // T.owners
        rank, column = tile % T.multicasting, tile // T.multicasting
        row = (lw.block_idx.y * across + rank % across) * T.bm + own * T.consumer_rows + block * ROWS
        row = row + part * 16 if crew.parts > 1 else row
        column = (column * along + rank // across) * T.bn + mine * T.store_columns + four * 8
        number = (matrix * lw.grid_dim.y + lw.block_idx.y) * (lw.grid_dim.x // per_consumer) + number
        if T.batched:
            C = C + matrix.to(lw.i64) * stride
            if T.problem.epilogue.residual is not None:
                residual = residual + matrix.to(lw.i64) * residual_stride
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out,
            folded_rows=folded_rows,
        )  # fmt: skip
        elements = RegisterEpilogue(T, C, given, N, leading)
        elements.last_row, elements.batch = M, None
        thread = part * 32 + lw.thread_idx.x % (32 * crew.warps)

        def place(group) -> Pointer:
            return fragment_of(T, sums, number, group, block, four, thread)

        lw.wait_on_dependencies()
        if crew.teams == 1:
            elements.store_eight(_added(T.plan.groups, place), row, column)
        else:
            added = _added_by_teams(T.plan.groups, place, crew)
            if lw.thread_idx.x < 32 * crew.warps:
                elements.store_eight(added, row, column)

    return gather
