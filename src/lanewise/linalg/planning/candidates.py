"""Plans of the Hopper kernels that are worth a look for a problem, ranked by the model.

A call cannot wait until a kernel of each candidate is built. So all of them are ranked on numbers alone;
whether a kernel can have a tile is asked of those at the top.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lanewise.linalg.kernels.hopper.traits import (
    FIRST_REGISTERS,
    FRAGMENT_REGISTERS,
    GRANULE,
    INSTRUCTION_REGISTERS,
    LARGEST_CLUSTER,
    LINE,
    MOST_SHARED,
    OTHER_REGISTERS,
    REGISTERS,
    REGISTERS_OF_CONSUMERS,
    ROWS,
    WIDEST,
    WIDEST_PROMOTED,
)
from lanewise.linalg.kernels.tile_traits import SECTOR, has_aligned_rows
from lanewise.linalg.kernels.warp.traits import BLOCKS_OF_K
from lanewise.linalg.operand_copies import can_be_shifted, has_long_lines, needs_copy, needs_transpose
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.model import (
    H200,
    Case,
    consumers_of,
    expected,
    plan_columns,
    problem_columns,
)
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import element_bytes, multiplied_as, planes_of, wgmma_widths

ARCH = "sm_90a"
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))
_SPLITS, _GROUPS = (1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16)
_IS_SMALL = np.isin(range(_GROUPS[-1] + 2), _GROUPS)
_TILE_ROWS = (64, 128, 192, 256)
#: Tiles that were fastest for experts of 4 to 900 rows, without clusters, in which tiles would be left over.
_EXPERT_ROWS, _EXPERT_COLUMNS = (64, 128), (128, 192, 256)
#: Steps of K that each part has at least.
_LEAST_STEPS = 4
#: Groups from which on a second kernel adds their sums.
_GATHERED = 3
#: Columns of results up to which tiles are tried that are narrower than 32, and of tiles up to which results
#: are stored from registers.
_SMALL, _DIRECT = 512, 24
#: Bytes of K up to which fewer stages are tried, so that all results of a tile fit into shared memory.
_SHORT_K = 4096
#: Columns of results that are few: tiles are as wide. Columns up to which the transpose is tried, and
#: products from which on it always is: the columns of tiles are multiples of 8, and their rows of 64.
_FEW, _TRANSPOSED, _MANY = 128, 512, 4_000_000_000
#: Bytes of K up to which tiles are tried that overlap, if L2 does not hold the results and if it does; bytes
#: of results from which on, and their columns.
_SHORT_K_OF_SECTORS, _MANY_RESULTS, _LEAST_OVERLAPPING = (400, 1024), 4_000_000, 64
#: Columns of tiles that take two instructions side by side.
_WIDE = tuple(range(272, 385, 16))
#: Columns of promoted sums of which 64 rows fit into the registers twice, beside their totals.
_TWICE = 128
_LEAST_STAGES, _MOST_STAGES = 2, 16
#: The largest tile, in 64 × 64, of which each warpgroup has its own.
_LARGEST_PINGPONG = 6
#: Which of two candidates comes first if the model expects the same of them: the last of these counts most.
_ORDER_OF_TIES = ("swap", "gather", "groups", "split", "along", "across", "columns", "rows")
#: Tiles of the mma.sync kernels, bytes of their steps of K, stages of small and of large tiles, and into how
#: many parts K is cut; the largest K, in bytes, the most rows or columns, and the most results of products
#: that are tried with them though nothing had to be copied.
_WARP_TILES = (
    (16, 8), (16, 64), (64, 8), (128, 8), (32, 32), (64, 64), (128, 64), (64, 128), (128, 128), (32, 256)
)  # fmt: skip
_WARP_STEPS, _WARP_STAGES, _WARP_SPLITS = (32, 64, 128), (4, 3), (1, 2, 4, 8)
#: Rows of the tile of mma.sync kernels, of 128 columns and all of K, that is slower than the one with half as
#: many if results are stored element by element, by 3 % in the mean of 53 products of five sweeps, though the
#: model finds it best. Tiles of four-byte results do not fit into shared memory.
_SLOW_BY_ELEMENTS = 128
#: Bytes of longer steps, each of which is all of K: nothing is loaded behind its end, and no loop is needed.
_WHOLE_STEPS = (256, 512)
_THIN, _FEW_ROWS, _FEW_RESULTS = 256, 16, 1 << 17
#: Bytes of a copy by cp.async; K of a step of f32 that is split into bf16.
_PIECE, _SPLIT_STEP = 16, 16
#: The most tiles whose K is cut into parts that warps of one block sum, and bytes of K that are never cut;
#: results of a tile that one warp computes.
_MOST_SPLIT, _LEAST_CUT, _OF_ONE_WARP = 2048, 256, 128
#: The most bytes of operands of which the blocks of a cluster read parts in a loop.
_MOST_IN_CLUSTERS = 10_000_000
#: Rows of tiles that are run through together: usually, and where L2 does not hold the results,
#: so that long parts of few rows are written at the same time.
_RASTER, _RASTER_OF_STREAMS = 8, 2
#: How much longer than the best candidate those may take of which another raster order is tried.
_NEAR = 1.15
#: Bytes of shared memory that results of each warpgroup have beside the stages, and of a sum.
_RESULT_BYTES, _SUM_BYTES = (6_144, 16_384), 4
#: Candidates as columns: an array for each field of a plan.
Choices = dict[str, Any]


class Ranked:
    """The candidates of a problem with the model's times in microseconds, the fastest first."""

    def __init__(self, problem: Problem, choices: Choices) -> None:
        self.step = LINE // element_bytes(problem)
        choices = {**choices, "raster": np.full(len(choices["rows"]), _RASTER)}
        case = _case(problem, choices)
        expectation = expected(case, H200, GPUS[ARCH])
        total, ties = expectation.total, (choices[name] for name in _ORDER_OF_TIES)
        if _streams(problem):
            near = np.flatnonzero(total <= _NEAR * total.min())
            other = case.of(near)._replace(raster=np.full(len(near), float(_RASTER_OF_STREAMS)))
            times = expected(other, H200, GPUS[ARCH]).total
            faster = times < total[near]
            total[near[faster]] = times[faster]
            for raster in (choices["raster"], case.raster):
                raster[near[faster]] = _RASTER_OF_STREAMS
        if not (has_aligned_rows(problem) and problem.out.dtype.word_bits <= 16):
            total = _with_smaller_tiles(choices, total)
        order = np.lexsort((*ties, expectation.waves, total))
        self.choices = {name: values[order] for name, values in choices.items()}
        self.case, self.microseconds = case.of(order), total[order]

    def __len__(self) -> int:
        return len(self.microseconds)

    def plan(self, place: int) -> Plan:
        """Return the plan of a candidate, with the most stages that it may have."""
        of = {name: int(values[place]) for name, values in self.choices.items()}
        if of["warp"]:
            tile, stages = (of["rows"], of["columns"], of["step"]), of["stages"]
            return Plan(
                "warp", ARCH, tile, stages, split=of["split"], schedule="one tile", groups=of["groups"]
            )
        schedule = "by turns" if of["by_turns"] else ("pingpong" if of["pingpong"] else "cooperative")
        return Plan(
            "warpgroup", ARCH, (of["rows"], of["columns"], self.step), of["stages"],
            (of["across"], of["along"]), of["split"], schedule, of["raster"], bool(of["swap"]),
            groups=of["groups"], gather=bool(of["gather"]), direct=bool(of["direct"]),
            a_in_registers=bool(of["a_in_registers"]), whole_sectors=bool(of["whole_sectors"]),
        )  # fmt: skip

    def next_tile(self, place: int) -> int | None:
        """Return the best candidate after one at `place` that has another tile; None if there is none."""
        rows, columns = self.choices["rows"], self.choices["columns"]
        others = np.flatnonzero((rows != rows[place]) | (columns != columns[place]))
        later = others[others > place]
        return int(later[0]) if len(later) else None


def _with_smaller_tiles(choices: Choices, total: Any) -> Any:
    """Return times in which the tile of `_SLOW_BY_ELEMENTS` gives its own to that with half as many rows."""
    x, total = choices, total.copy()
    of_tile = (x["warp"] > 0) & (x["stages"] == 1) & (x["columns"] == _SLOW_BY_ELEMENTS)
    for slow in np.flatnonzero(of_tile & (x["rows"] == _SLOW_BY_ELEMENTS)):
        half = of_tile & (2 * x["rows"] == x["rows"][slow]) & (x["step"] == x["step"][slow])
        total[half] = np.minimum(total[half], total[slow])
        total[slow] = np.inf
    return total


def ranked(
    problem: Problem,
    forced: tuple[int, int] | None = None,
    most_groups: int | None = None,
) -> Ranked:
    """Return all candidates by the model's time; without `cuts`, those that sum all of K in one chain.

    `forced` says how K is cut, its split and its groups; `most_groups` bounds the latter.
    """
    may_cut = forced is None and most_groups is None
    if _is_chain(problem):
        forced = forced or (1, 1)
    products = problem.m * problem.n * problem.k * problem.batch
    both = min(problem.m, problem.n) <= _TRANSPOSED or (products >= _MANY and planes_of(problem) == 1)
    both |= _is_transposed(problem.b, problem)  # the transpose has it first, and need not copy it
    orientations = [False, True] if both else [False]
    parts = [_choices(problem, swap, forced, most_groups) for swap in orientations]
    is_invariant = problem.batch_invariant or most_groups is not None
    if forced in (None, (1, 1)) and _suits_warps(problem) and not (is_invariant and planes_of(problem) > 1):
        plans = warp_plans(problem, may_cut and problem.sums.bits == 32)
        parts += [_warp_choices(plans)] if plans else []
    return Ranked(problem, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def warp_plans(problem: Problem, cuts: bool = True) -> list[Plan]:
    """Return plans of the mma.sync kernels: threads load elements as they lie, nothing is copied first.

    The sums have the same bits as those of wgmma, except for e4m3, e5m2 and sums in f16, for which there are
    no such plans, nor for results of 8 bits. There may be no kernel of some of them. Without `cuts`, K is
    summed in one chain. Sums of f32 that is split into bf16 are promoted after steps of their own.
    """
    if problem.promote or problem.experts:
        return []
    if problem.a.dtype.name in ("e4m3", "e5m2") or min(problem.sums.bits, problem.out.dtype.bits * 2) == 16:
        return []
    plans, is_split = [], planes_of(problem) > 1
    most, most_in_parts = (2 * ROWS**2, ROWS**2 // 4) if is_split else (4 * ROWS**2, ROWS**2)
    size = _SUM_BYTES if is_split else element_bytes(problem)
    copied = _is_copied(problem)
    for rows, columns in _WARP_TILES:
        if rows * columns > most:  # sums of split f32 and their totals do not fit into the registers
            continue
        tiles = -(-problem.m // rows) * -(-problem.n // columns) * problem.batch
        in_parts = cuts and rows * columns <= most_in_parts and problem.k * size > _LEAST_CUT
        for split, groups in _warp_cuts(tiles) if in_parts else [(1, 1)]:
            for step, stages in _warp_steps(problem, size, rows + columns > 2 * ROWS, split * groups):
                tile = (rows, columns, step)
                plan = Plan("warp", ARCH, tile, stages, split=split, groups=groups, schedule="one tile")
                fits = split * stages * (rows + columns) * step * size <= MOST_SHARED
                if fits and _suits_parts(problem, plan, tiles, copied):
                    plans.append(plan)
    return plans


def _warp_cuts(tiles: int) -> list[tuple[int, int]]:
    """Return how many warps of a block, and blocks of a cluster, may share the K of so many tiles."""
    gpu = GPUS[ARCH]
    return [
        (split, groups)
        for groups in BLOCKS_OF_K
        if groups == 1 or tiles <= gpu.slots(groups)
        for split in _WARP_SPLITS
        if split == 1 or tiles < _MOST_SPLIT
    ]


def _suits_parts(problem: Problem, plan: Plan, tiles: int, is_copied: bool) -> bool:
    """Return whether the parts of K of a plan are worth a look; wgmma may need copies of operands.

    All of K at once suits the tile of one warp, if blocks are few, and others where operands are
    copied. A loop over a long K is as fast by wgmma, but for copied operands if they are small.
    """
    is_whole = plan.stages == 1
    if plan.tile[0] * plan.tile[1] <= _OF_ONE_WARP:
        few = plan.split * plan.groups > 1 and tiles <= GPUS[ARCH].multiprocessors
        lines = problem.b.k_major or plan.tile[1] * element_bytes(problem) >= _PIECE
        return few and lines and (is_whole or is_copied)
    if plan.split * plan.groups == 1:
        return True
    if is_whole:
        return is_copied
    if plan.groups == 1:
        return True
    read = (problem.m + problem.n) * problem.k * problem.batch * element_bytes(problem)
    return is_copied and read <= _MOST_IN_CLUSTERS


def _warp_steps(problem: Problem, size: int, is_large: bool, parts: int) -> list[tuple[int, int]]:
    """Return steps of K of mma.sync kernels, in elements, and stages, if K is cut into so many parts.

    No more than half of the parts are empty, and parts of several steps have some.
    """
    steps = (_SPLIT_STEP * size,) if planes_of(problem) > 1 else _WARP_STEPS
    depth = -(-problem.k * size // parts)
    last = next((number for number, step in enumerate(steps) if step >= depth), len(steps) - 1)
    tried = steps[max(last - 1, 0) : last + 1]
    if steps[last] < depth and planes_of(problem) == 1:
        tried += tuple(step for step in _WHOLE_STEPS if step >= depth)[:1]
    if parts == 1:
        return [(step // size, 1 if step >= depth else _WARP_STAGES[is_large]) for step in tried]
    whole = [(step // size, 1) for step in tried if step >= depth and 2 * depth > step]
    long = [(step // size, _WARP_STAGES[is_large]) for step in tried if depth >= _LEAST_STEPS * step]
    return whole + long


def _suits_warps(problem: Problem) -> bool:
    """Return whether mma.sync kernels are worth a look: operands had to be copied, or the product is thin."""
    small = min(problem.m, problem.n) <= _FEW_ROWS or problem.m * problem.n * problem.batch <= _FEW_RESULTS
    return _is_copied(problem) or problem.k * element_bytes(problem) <= _THIN or small


def _is_copied(problem: Problem) -> bool:
    """Return whether kernels of wgmma need a copy of an operand."""
    return needs_copy(problem.a, problem.precision) or needs_copy(problem.b, problem.precision)


def _is_chain(problem: Problem) -> bool:
    """Return whether K is never cut."""
    return problem.promote is not None or problem.experts > 0 or problem.sums.bits == 16


def _warp_choices(plans: list[Plan]) -> Choices:
    """Return plans of the mma.sync kernels as candidates."""
    columns = [{**plan_columns(plan), "swap": plan.swap} for plan in plans]
    return {name: np.array([int(row[name]) for row in columns]) for name in columns[0] if name != "raster"}


def _any_plan(swap: bool) -> Plan:
    """Return a plan that stands for all that compute a product, or its transpose."""
    return Plan("warpgroup", ARCH, (64, 64, 64), _LEAST_STAGES, swap=swap)


def _case(problem: Problem, choices: Choices) -> Case:
    """Return candidates as the model sees them."""
    of = {swap: problem_columns(problem, _any_plan(swap)) for swap in (False, True)}
    x = {name: values.astype(float) for name, values in choices.items()}
    swap = x.pop("swap") > 0
    seen = {name: np.where(swap, of[True][name], of[False][name]) for name in of[False]}
    return Case(**seen, **x)


def _streams(problem: Problem) -> bool:
    """Return whether L2 does not hold the results of a thin product: then the raster order matters to memory.

    Blocks of a longer product would share less of the operands.
    """
    results = problem.m * problem.n * problem.batch * problem.out.dtype.word_bits // 8
    is_thin = problem.k * element_bytes(problem) <= _THIN
    return is_thin and results > GPUS[ARCH].l2_bytes and not problem.experts


def _choices(
    problem: Problem, swap: bool, forced: tuple[int, int] | None, most_groups: int | None
) -> Choices:
    """Return the candidates that compute a product, or its transpose: a column for each field."""
    seen = oriented(problem, _any_plan(swap))
    split, groups = forced or (0, 0)
    tiles = _tiles(seen, max(split, 1))
    clusters = np.array(_CLUSTERS[:1] if problem.experts or problem.precision == "f32" else _CLUSTERS)
    splits = np.array([split] if forced else _SPLITS)
    tile, cluster, split_at = (
        choice.ravel() for choice in np.indices((len(tiles), len(clusters), len(splits)))
    )
    x = {
        "rows": tiles[tile, 0], "columns": tiles[tile, 1], "across": clusters[cluster, 0],
        "along": clusters[cluster, 1], "split": splits[split_at],
    }  # fmt: skip
    if not forced:
        whole_or_cut = (x["split"] == 1) | _is_worth_cutting(seen, x, x["split"])
        x = {name: values[whole_or_cut] for name, values in x.items()}
    x = _with_groups(seen, x, groups)
    kept = _can_be_cut(seen, x, forced is not None)
    if most_groups is not None:
        kept &= x["groups"] <= most_groups
    x = {name: values[kept] for name, values in x.items()}
    gathers = problem.sums.name == "f32" and seen.out.dtype.word_bits > 8
    consumers = consumers_of(x["rows"], 0)
    x["gather"] = (x["groups"] >= _GATHERED) & gathers
    x["direct"] = (x["columns"] <= _DIRECT) & (gathers and not swap and not problem.experts)
    twice = (x["rows"] == consumers * ROWS) & (consumers < 3) & (x["columns"] <= _TWICE)
    x["by_turns"] = twice & bool(problem.promote)
    x["swap"] = np.full(len(x["rows"]), swap)
    x["warp"] = np.zeros(len(x["rows"]), int)
    x["step"] = np.full(len(x["rows"]), LINE // element_bytes(problem))
    x = _in_both_ways(x, "pingpong", _can_pingpong(problem, x))
    x = _in_both_ways(x, "a_in_registers", _can_have_a_in_registers(seen, x))
    x = _in_both_ways(x, "whole_sectors", _can_store_whole_sectors(seen, x))
    return _with_stages(seen, x)


def _in_both_ways(x: Choices, field: str, possible: Any) -> Choices:
    """Return candidates without a field of a plan, and behind them those for which it is possible with it."""
    with_it = np.flatnonzero(possible)
    x = {name: np.concatenate([values, values[with_it]]) for name, values in x.items()}
    return {**x, field: np.repeat([0, 1], [len(possible), len(with_it)])}


def _can_pingpong(problem: Problem, x: Choices) -> Any:
    """Return of which candidates each warpgroup may have a tile of its own: of several for each block."""
    if problem.promote or problem.precision == "f32" or problem.experts:
        return np.zeros(len(x["rows"]), bool)
    small = (x["rows"] <= 2 * ROWS) & (x["rows"] * x["columns"] <= _LARGEST_PINGPONG * ROWS**2)
    several = -(-problem.m // x["rows"]) * -(-problem.n // x["columns"]) * problem.batch
    several = several >= GPUS[ARCH].multiprocessors
    whole = (x["split"] == 1) & (x["groups"] == 1) & (x["direct"] == 0) & (x["columns"] >= 64)
    return small & several & whole


def _can_store_whole_sectors(problem: Problem, x: Choices) -> Any:
    """Return of which candidates tiles may overlap: where rows of many results begin between two sectors."""
    out, size = problem.out, problem.out.dtype.word_bits // 8
    between = has_aligned_rows(problem) and out.k_major and out.leading * size % SECTOR > 0
    results, depth = problem.m * problem.n * problem.batch * size, problem.k * element_bytes(problem)
    short, longest = _SHORT_K_OF_SECTORS
    is_short = depth <= (longest if results <= GPUS[ARCH].l2_bytes else short)
    allowed = between and is_short and results >= _MANY_RESULTS and not (problem.promote or problem.experts)
    whole = (x["split"] == 1) & (x["groups"] == 1) & (x["direct"] == 0)
    return whole & (x["columns"] >= _LEAST_OVERLAPPING) & (problem.n > x["columns"]) & allowed


def _with_stages(problem: Problem, x: Choices) -> Choices:
    """Return candidates with numbers of stages: as many as shared memory holds beside some of the results.

    Where K is short, fewer are tried beside all results of a tile: their lines are stored whole then.
    """
    consumers = consumers_of(x["rows"], x["pingpong"])
    exchange = np.where(x["split"] > 1, x["rows"] * x["columns"] * _SUM_BYTES, 0)
    line = LINE // element_bytes(problem)
    loaded = x["columns"] if problem.b.k_major else -(-x["columns"] // line) * line
    stage = (x["rows"] + loaded) * LINE * planes_of(problem)
    if planes_of(problem) > 1:
        stage -= x["a_in_registers"] * x["rows"] * LINE
    if not problem.a.tma:  # a granule more of each line
        stage += x["a_in_registers"] * (x["rows"] if problem.a.k_major else line) * GRANULE
    whole = ROWS * x["columns"] * problem.out.dtype.word_bits // 8
    by_tma = (x["direct"] == 0) & (x["gather"] == 0) & problem.out.k_major & (problem.out.alignment == 16)
    is_short = problem.k * element_bytes(problem) <= _SHORT_K
    high = x["rows"] // np.where(x["pingpong"] > 0, 1, consumers)
    tried = [np.ones(len(stage), bool), by_tma, by_tma & is_short & (high == ROWS)]
    two = by_tma & (x["pingpong"] > 0) & (_streams(problem) and problem.k <= line)
    numbers: list[Any] = []
    places: list[Any] = []
    few, some = _RESULT_BYTES
    transposed = np.minimum(whole * np.minimum(high // ROWS, 2), some)  # two buffers of some columns
    least = np.where(by_tma, few, some) if problem.out.k_major else transposed
    rows_apart = x["whole_sectors"] > 0  # all of 64 rows, each at an odd multiple of 16 bytes
    least = np.where(rows_apart, (whole // ROWS // _PIECE | 1) * _PIECE * ROWS, least)
    tried = [tried[0], *(each & ~rows_apart for each in tried[1:])]
    for results, kept in zip((least, some, whole), tried, strict=True):
        stages = np.minimum((MOST_SHARED - consumers * results - exchange) // stage, _MOST_STAGES)
        stages = stages if numbers else np.maximum(stages, _LEAST_STAGES)
        new = kept & (stages >= _LEAST_STAGES)
        for other in numbers:
            new &= stages != other
        numbers.append(stages)
        places.append(np.flatnonzero(new))
    numbers.append(np.full(len(stage), _LEAST_STAGES))  # nothing is gained by loads far ahead of such stores
    places.append(np.flatnonzero(two & (numbers[0] > _LEAST_STAGES)))
    at = np.concatenate(places)
    stages = np.concatenate([number[place] for number, place in zip(numbers, places, strict=True)])
    return {**{name: values[at] for name, values in x.items()}, "stages": stages}


def _is_transposed(operand: Operand, problem: Problem) -> bool:
    """Return whether an operand of tf32 lies along M or N, and TMA can load it as it lies."""
    is_tf32 = problem.precision == "tf32" and not problem.experts
    return is_tf32 and operand.tma and needs_transpose(operand, problem.precision)


def _can_have_a_in_registers(problem: Problem, x: Choices) -> Any:
    """Return of which candidates the kernel's A may be loaded as it lies, and go through registers."""
    planes, shifts = planes_of(problem), can_be_shifted(problem)
    if problem.a.inner != 1 or (planes == 1 and not (shifts or _is_transposed(problem.a, problem))):
        return np.zeros(len(x["rows"]), bool)
    if not problem.a.tma and has_long_lines(problem):
        return np.zeros(len(x["rows"]), bool)
    consumers = consumers_of(x["rows"], x["pingpong"])
    high = x["rows"] // np.where(x["pingpong"] > 0, 1, consumers) // ROWS
    first, most = (
        np.array([0, *registers.values()])[consumers] - OTHER_REGISTERS
        for registers in (FIRST_REGISTERS, REGISTERS_OF_CONSUMERS if problem.a.tma else FIRST_REGISTERS)
    )
    sums = x["columns"] if planes > 1 else x["columns"] // 2
    fitting = high * (sums + FRAGMENT_REGISTERS[planes]) <= most
    fitting &= x["columns"] // 2 + INSTRUCTION_REGISTERS <= first
    if planes > 1:
        fitting &= high == 1
    if shifts:
        fitting &= x["along"] == 1
    return fitting & (consumers <= (3 if problem.a.tma else 2))


def _tiles(problem: Problem, split: int) -> Any:
    """Return rows and columns of tiles, for a problem in the kernel's orientation."""
    wide = problem.experts and problem.n > _FEW
    columns = _EXPERT_COLUMNS if wide else _widths(problem, split)
    kind = problem.sums.bits, planes_of(problem), problem.precision == "f32", bool(problem.promote)
    held = _tiles_in_registers(
        _EXPERT_ROWS if problem.experts else _TILE_ROWS, tuple(columns), *kind, problem.scale_blocks[1]
    )
    return np.array(held, int).reshape(-1, 2)


def _widths(problem: Problem, split: int) -> list[int]:
    """Return the widths of tiles that are tried: finer where the result is narrow.

    If K has to be cut over the blocks of a cluster, each of them owns some eights of the columns.
    """
    n = problem.n
    of_instructions = wgmma_widths(*multiplied_as(problem), problem.sums.name)
    widths = [width for width in of_instructions if width // 8 % split == 0]
    if n <= _FEW:
        least = next(width for width in widths if width >= n)
        return [least, *(width for width in (32, 64) if width < least)]
    wide = _WIDE if element_bytes(problem) == 2 and not problem.promote and not problem.experts else ()
    return [width for width in (*widths, *wide) if (16 if n <= _SMALL else 32) <= width <= n + 56]


@lru_cache(maxsize=256)
def _tiles_in_registers(
    rows: tuple[int, ...], columns: tuple[int, ...], sum_bits: int, planes: int, splits: bool, promotes: bool,
    scaled_columns: int,
) -> list[tuple[int, int]]:  # fmt: skip
    """Return the tiles of these rows and columns whose sums fit into a warpgroup's registers.

    Those of a wide tile are promoted in halves, which is fast where no block of scales lies in both.
    """

    def fits(rows: int, columns: int) -> bool:
        consumers = int(consumers_of(rows, 0))
        in_halves = columns > WIDEST_PROMOTED and columns // 2 % (scaled_columns or columns) == 0
        promoted = (columns // 2 if in_halves else columns) if promotes or splits else 0
        if columns > WIDEST and (rows > 2 * ROWS or planes > 1):
            return False
        bits = min(sum_bits, 32)
        if min(columns, WIDEST) // 2 * bits // 32 + OTHER_REGISTERS > FIRST_REGISTERS[consumers]:
            return False
        sums = rows // consumers // ROWS * (columns + promoted) // 2
        return sums * bits // 32 + OTHER_REGISTERS <= REGISTERS[consumers][1]

    return [(high, wide) for high in rows for wide in columns if fits(high, wide)]


def _with_groups(problem: Problem, x: Choices, groups: int) -> Choices:
    """Return candidates with numbers of groups: small ones, and those that fill the GPU, or half of it.

    If `groups` is not 0, all of them have that number.
    """
    if groups:
        return {**x, "groups": np.full(len(x["rows"]), groups)}
    size = x["across"] * x["along"] * x["split"]
    tiles = -(-problem.m // (x["rows"] * x["across"])) * -(-problem.n // (x["columns"] * x["along"]))
    most = GPUS[ARCH].slots(size) // (tiles * problem.batch)
    small = np.broadcast_to(_GROUPS, (len(most), len(_GROUPS)))
    last = len(_IS_SMALL) - 1
    filling = [np.where(_IS_SMALL[np.minimum(group, last)], 0, group) for group in (most, most // 2)]
    numbers = np.column_stack([small, *filling])
    place, at = np.nonzero((numbers == 1) | ((numbers > 1) & (numbers <= most[:, None])))
    return {**{name: values[place] for name, values in x.items()}, "groups": numbers[place, at]}


def _can_be_cut(problem: Problem, x: Choices, forced: bool) -> Any:
    """Return which candidates the kernels can have, and whose parts of K are worth a block each."""
    size, parts = x["across"] * x["along"] * x["split"], x["split"] * x["groups"]
    steps = -(-problem.k // (LINE // element_bytes(problem)))
    share = -(-steps // parts)
    possible = (x["columns"] // 8 % x["split"] == 0) & ((parts - 1) * share < steps)
    line = LINE // element_bytes(problem)
    # the parts of a tile that is contiguous along K have eights of its rows
    shared = (x["rows"] // 8 % x["along"] == 0) & (
        (x["columns"] // 8 % x["across"] == 0) | (not problem.b.k_major)
    )
    if not forced:
        possible &= _is_worth_cutting(problem, x, parts)
    halves = parts == 1
    halves &= x["columns"] // x["across"] <= WIDEST if problem.b.k_major else x["columns"] // 2 % line == 0
    return (
        (size <= LARGEST_CLUSTER) & shared & ((parts == 1) | possible) & (halves | (x["columns"] <= WIDEST))
    )


def _is_worth_cutting(problem: Problem, x: Choices, parts: Any) -> Any:
    """Return which candidates have so many parts at most that each has a block, and some steps of K."""
    size = x["across"] * x["along"] * x["split"]
    steps = -(-problem.k // (LINE // element_bytes(problem)))
    tiles = -(-problem.m // x["rows"]) * -(-problem.n // x["columns"]) * problem.batch
    return (tiles * parts <= GPUS[ARCH].slots(size) * size) & (-(-steps // parts) >= _LEAST_STEPS)
