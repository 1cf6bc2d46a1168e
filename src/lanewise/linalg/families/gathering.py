"""Sums of one tile from several clusters, added in order by a second kernel on all multiprocessors.

With many groups the cluster that comes last would read a megabyte alone (`meeting.py`). Here all clusters
leave their sums in the workspace and end; each block of the second kernel adds 64 rows and 8 columns of all
groups, in order of K, and stores them after the epilogue. Nothing is counted.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.layout import Layout
from lanewise.linalg.epilogue_code import EpilogueValues
from lanewise.linalg.families.build import ROWS, WARPGROUP, Build
from lanewise.linalg.families.direct_output import DirectOutput
from lanewise.linalg.families.meeting import fragment_of

#: Loads of four sums that a thread has in flight. With more groups than this, four teams of a warpgroup each
#: load their share of the groups to shared memory, from which all are added in order.
_IN_FLIGHT, _TEAMS = 8, 4
#: Sums of 64 rows and 8 columns: what one block adds.
_SUMS = 4 * WARPGROUP


def _teams(build: Build) -> int:
    """Return the warpgroups of a block of the second kernel."""
    return 1 if build.groups <= _IN_FLIGHT else _TEAMS


def chunks(build: Build) -> int:
    """Return the blocks that add the sums of one consumer of the first kernel."""
    return build.consumer_rows // ROWS * build.store_columns // 8


def gathering_shape(build: Build, m: int, n: int, batch: int) -> tuple[tuple[int, int, int], int, int]:
    """Return the second kernel's grid, threads and bytes of shared memory.

    Columns, and who summed them, are along x; rows along y; the batch along z.
    """
    across, along = build.cluster
    rows, columns = -(-m // (build.bm * across)), -(-n // (build.bn * along))
    grid = columns * build.sharing * build.owners * build.consumers * chunks(build), rows, batch
    teams = _teams(build)
    return grid, WARPGROUP * teams, _IN_FLIGHT * _TEAMS * _SUMS * 4 if teams > 1 else 0


@lw.device
def _added(build: Any, sums: Any, number: Any, block: Any, four: Any) -> Any:
    """Return this thread's four sums, those of all groups added in order."""
    parts = [
        fragment_of(build, sums, number, group, block, four).load(4, cache="cg")
        for group in range(build.groups)
    ]
    added = list(parts[0])
    for part in parts[1:]:
        added = [added[i] + part[i] for i in range(4)]
    return added


@lw.device
def _added_by_teams(build: Any, sums: Any, number: Any, block: Any, four: Any) -> Any:
    """Return the same: teams load different groups, and each thread adds one of the 512 sums of all."""
    at_once, thread = _IN_FLIGHT * _TEAMS, lw.thread_idx.x
    team, within = lw.shfl_sync(thread // WARPGROUP, 0), thread % WARPGROUP
    staged = lw.dynamic_shared(f32, Layout((_SUMS, at_once), (1, _SUMS)))
    total = f32(0.0)
    for start in range(0, build.groups, at_once):
        count = min(at_once, build.groups - start)
        parts = []
        for each in range(_IN_FLIGHT):  # groups beyond the last are loaded and left out
            group = lw.min(start + each * _TEAMS + team, build.groups - 1)
            parts.append(fragment_of(build, sums, number, group, block, four).load(4, cache="cg"))
        if start:
            lw.syncthreads()  # what was staged before has been added
        for each in range(_IN_FLIGHT):
            staged.ptr(4 * within, each * _TEAMS + team).store(parts[each])
        lw.syncthreads()
        for each in range(count):
            value = staged[thread, each]
            total = value if start + each == 0 else total + value
    lw.syncthreads()
    staged[thread, 0] = total
    lw.syncthreads()
    return list(staged.ptr(4 * within, 0).load(4))


@cache
def gathering(build: Build) -> Any:
    """Return the second kernel for some constants."""
    T = build
    across, along = T.cluster
    bias_dtype = T.epilogue.bias_dtype or f32
    residual_dtype = T.epilogue.residual.dtype if T.epilogue.residual is not None else f32
    of_c = lw.Ptr[T.out]
    per_consumer = chunks(T)
    per_block = per_consumer // (T.consumer_rows // ROWS)

    @lw.kernel(max_threads=WARPGROUP * _teams(T))
    def gather(
        C: of_c, M: lw.i32, N: lw.i32, leading: lw.i64, stride: lw.i64,
        bias: lw.Ptr[bias_dtype], residual: lw.Ptr[residual_dtype],
        residual_row: lw.i64, residual_column: lw.i64, residual_stride: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: f32, beta: f32, sums: lw.Ptr[f32, 16],
    ):  # fmt: skip
        matrix = lw.block_idx.z
        number, chunk = lw.block_idx.x // per_consumer, lw.block_idx.x % per_consumer
        block, four = chunk // per_block, chunk % per_block
        own, rest = number % T.consumers, number // T.consumers
        mine, tile = rest % T.owners, rest // T.owners
        place, column = tile % T.sharing, tile // T.sharing
        row = (lw.block_idx.y * across + place % across) * T.bm + own * T.consumer_rows + block * ROWS
        column = (column * along + place // across) * T.bn + mine * T.store_columns + four * 8
        number = (matrix * lw.grid_dim.y + lw.block_idx.y) * (lw.grid_dim.x // per_consumer) + number
        if T.batched:
            C = C + matrix.to(lw.i64) * stride
            if T.epilogue.residual is not None:
                residual = residual + matrix.to(lw.i64) * residual_stride
        given = EpilogueValues(
            alpha, beta, bias, residual, residual_row, residual_column, scale_a, scale_b, scale_out
        )
        elements = DirectOutput(T, C, given, N, leading)
        elements.last_row, elements.batch = M, None
        lw.wait_on_dependencies()
        if _teams(T) == 1:
            elements.store_eight(_added(T, sums, number, block, four), row, column)
        else:
            added = _added_by_teams(T, sums, number, block, four)
            if lw.thread_idx.x < WARPGROUP:
                elements.store_eight(added, row, column)

    return gather
