"""Plans of the Hopper kernels that are worth a look for a problem, ranked by the model.

A call cannot wait until a kernel of each candidate is built. So all of them are ranked on numbers alone; whether a
kernel can have a tile is asked of those at the top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lanewise.linalg.families.build import MOST_SHARED, OTHER_REGISTERS, REGISTERS, ROWS
from lanewise.linalg.order import element_bytes, instruction_widths, planes_of
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.cases import problem_columns
from lanewise.linalg.planning.costs import H200
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.model import LINE, Case, Parts, expected
from lanewise.linalg.problem import Problem

ARCH = "sm_90a"
_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))
_SPLITS, _GROUPS = (1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16)
_LARGEST_CLUSTER = 8
_TILE_ROWS = (64, 128, 192, 256)
#: Tiles whose two warpgroups compute tiles of their own.
_PINGPONG_ROWS = (64, 128)
#: Tiles that were fastest for experts of 4 to 900 rows, without clusters, in which tiles would be left over.
_EXPERT_ROWS, _EXPERT_COLUMNS = (64, 128), (128, 192, 256)
#: Steps of K that each part has at least.
_LEAST_STEPS = 4
#: Groups from which on a second kernel adds their sums.
_GATHERED = 3
#: Columns of results up to which tiles are tried that are narrower than 32, and of tiles up to which results
#: are stored from registers.
_SMALL, _DIRECT = 512, 24
#: Columns of results for which the transpose is tried.
_FEW = 128
#: Columns of promoted sums of which 64 rows fit into the registers twice, beside their totals.
_TWICE = 128
_MOST_STAGES = 16
#: Tiles of M that are run through before the next column of tiles: in most plans.
_RASTER = 8


class Choice(NamedTuple):
    """What a candidate has of its own, before its stages are known."""

    swap: bool
    rows: int
    columns: int
    cluster: tuple[int, int]
    split: int = 1
    groups: int = 1
    gather: bool = False
    direct: bool = False
    schedule: str = "cooperative"


class Ranked:
    """The candidates of a problem with the model's times, the fastest first."""

    def __init__(self, problem: Problem, choices: list[Choice]) -> None:
        self.step = LINE // element_bytes(problem)
        case = _case(problem, choices)
        possible = np.flatnonzero(case.stages >= 2)
        parts = expected(case, H200, GPUS[ARCH])
        order = possible[np.argsort(parts.total[possible], kind="stable")]
        self.choices = [choices[place] for place in order]
        self.case, self.parts = case.of(order), Parts(*(np.asarray(each)[order] for each in _columns_of(parts, len(choices))))

    def __len__(self) -> int:
        return len(self.choices)

    def plan(self, place: int) -> Plan:
        """Return the plan of a candidate, its stages left open."""
        swap, rows, columns, cluster, split, groups, gather, direct, schedule = self.choices[place]
        return Plan(
            "warpgroup", ARCH, (rows, columns, self.step), 2, cluster, split, swap=swap, groups=groups,
            gather=gather, direct=direct, schedule=schedule,
        )  # fmt: skip

    def microseconds(self, place: int) -> float:
        """Return the time that the model expects of a candidate."""
        return float(self.parts.total[place])


def _columns_of(parts: Parts, count: int) -> list[np.ndarray]:
    return [np.broadcast_to(getattr(parts, name), count) for name in Parts.__dataclass_fields__]


def _case(problem: Problem, choices: list[Choice]) -> Case:
    """Return candidates as the model sees them, with about as many stages as shared memory holds."""
    of = {swap: problem_columns(problem, Plan("warpgroup", ARCH, (64, 64, 64), 2, swap=swap)) for swap in (False, True)}
    swap = np.array([each.swap for each in choices])
    seen = {name: np.where(swap, of[True][name], of[False][name]) for name in of[False]}
    table = np.array(
        [
            (x.rows, x.columns, *x.cluster, x.split, x.groups, x.gather, x.direct, x.schedule == "pingpong")
            for x in choices
        ],
        float,
    ).reshape(-1, 9)
    rows, columns, across, along, split, groups, gather, direct, pingpong = table.T
    out = seen["out_bytes"]
    wide = 128 / seen["element_bytes"]
    padded = np.where(seen["b_along_n"], np.ceil(columns / wide) * wide, columns)
    stage = (rows + padded) * LINE * planes_of(problem)
    results = np.where((direct + gather) > 0, 0, 2 * np.maximum(rows / ROWS, 2 * pingpong) * ROWS * np.minimum(columns, 64) * out)
    exchanged = np.where(split > 1, rows * columns * 4, 0)
    stages = np.minimum(np.floor((MOST_SHARED - results - exchanged) / stage), _MOST_STAGES)
    return Case(
        **seen, rows=rows, columns=columns, across=across, along=along, split=split, groups=groups,
        gather=gather, stages=np.maximum(stages, 1), pingpong=pingpong, direct=direct, raster=_RASTER,
    )  # fmt: skip


def ranked(problem: Problem, cuts: bool = True, forced: tuple[int, int] | None = None, most_groups: int | None = None) -> Ranked:
    """Return all candidates by the model's time; without `cuts`, those that sum all of K in one chain.

    `forced` says how K is cut, its split and its groups; `most_groups` bounds the latter.
    """
    choices = list(_choices(problem, cuts, forced))
    if most_groups is not None:
        choices = [each for each in choices if each.groups <= most_groups]
    return Ranked(problem, choices)


def _choices(problem: Problem, cuts: bool, forced: tuple[int, int] | None) -> Iterator[Choice]:
    chain = not cuts or problem.promote or problem.precision == "f32" or problem.experts or problem.sums.bits == 16
    splits = _SPLITS[:1] if chain else _SPLITS
    if forced is not None:
        splits = forced[:1]
    for swap in (False, True):
        if swap and min(problem.m, problem.n) > _FEW:
            continue
        seen = oriented(problem, Plan("warpgroup", ARCH, (64, 64, 64), 2, swap=swap))
        gathers = problem.sums.name == "f32" and seen.out.dtype.word_bits > 8
        for rows, columns in _tiles(seen, forced[0] if forced else 1):
            direct = gathers and not swap and columns <= _DIRECT and not problem.experts
            schedule = "by turns" if _by_turns(problem, rows, columns) else "cooperative"
            for cluster in _CLUSTERS[:1] if problem.experts else _CLUSTERS:
                for split in splits:
                    for groups in forced[1:] if forced else _groupings(seen, rows, columns, cluster, split, bool(chain)):
                        if _can_be_cut(seen, rows, columns, cluster, split, groups, forced is not None):
                            gather = gathers and groups >= _GATHERED
                            yield Choice(swap, rows, columns, cluster, split, groups, gather, direct, schedule)
                if _has_pingpong(problem, rows, columns) and forced in (None, (1, 1)) and not direct:
                    yield Choice(swap, rows, columns, cluster, schedule="pingpong")


def _tiles(problem: Problem, split: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of tiles, for a problem in the kernel's orientation."""
    wide = problem.experts and problem.n > _FEW
    columns = _EXPERT_COLUMNS if wide else _widths(problem, split)
    for rows in _EXPERT_ROWS if problem.experts else _TILE_ROWS:
        for each in columns:
            if _has_registers(problem, rows, each):
                yield rows, each


def _widths(problem: Problem, split: int) -> list[int]:
    """Return the widths of tiles that are tried: finer where the result is narrow.

    If K has to be cut over the blocks of a cluster, each of them owns some eights of the columns.
    """
    n = problem.n
    widths = [each for each in instruction_widths(problem) if each // 8 % split == 0]
    if n <= _FEW:
        least = next(each for each in widths if each >= n)
        return [least, *(each for each in (32, 64) if each < least)]
    return [each for each in widths if (16 if n <= _SMALL else 32) <= each <= n + 56]


def _consumers(rows: int) -> int:
    """Return the warpgroups that share a tile of so many rows."""
    return 1 if rows < 2 * ROWS else (2 if rows % (2 * ROWS) == 0 else rows // ROWS)


def _by_turns(problem: Problem, rows: int, columns: int) -> bool:
    """Return whether a warpgroup has two accumulators of sums that are promoted: faster, if they fit."""
    consumers = _consumers(rows)
    return bool(problem.promote) and rows == consumers * ROWS and consumers < 3 and columns <= _TWICE


def _has_pingpong(problem: Problem, rows: int, columns: int) -> bool:
    """Return whether two warpgroups can compute tiles of their own by turns."""
    if problem.promote or problem.precision == "f32" or problem.experts or rows not in _PINGPONG_ROWS:
        return False
    sums = rows // ROWS * columns // 2 * min(problem.sums.bits, 32) // 32
    return sums + OTHER_REGISTERS <= REGISTERS[2][1]


def _has_registers(problem: Problem, rows: int, columns: int) -> bool:
    """Return whether the sums of a tile fit into a warpgroup's registers."""
    consumers = _consumers(rows)
    promotes = bool(problem.promote) or problem.precision == "f32"
    sums = rows // consumers // ROWS * columns // 2 * (2 if promotes else 1)
    return sums * min(problem.sums.bits, 32) // 32 + OTHER_REGISTERS <= REGISTERS[consumers][1]


def _slots(size: int) -> int:
    """Return how many clusters of a size run at the same time."""
    gpu = GPUS[ARCH]
    return (gpu.multiprocessors if size <= 2 else gpu.clustered) // size


def _groupings(problem: Problem, rows: int, columns: int, cluster: tuple[int, int], split: int, chain: bool) -> list[int]:
    """Return the numbers of groups that are tried: small ones, and those that fill the GPU, or half of it."""
    size = cluster[0] * cluster[1] * split
    if chain or size > _LARGEST_CLUSTER:
        return [1] if size <= _LARGEST_CLUSTER else []
    tiles = -(-problem.m // (rows * cluster[0])) * -(-problem.n // (columns * cluster[1])) * problem.batch
    most = _slots(size) // tiles
    return sorted({each for each in (*_GROUPS, most, most // 2) if each == 1 or 1 < each <= most})


def _can_be_cut(
    problem: Problem, rows: int, columns: int, cluster: tuple[int, int], split: int, groups: int, forced: bool
) -> bool:
    """Return whether the kernels can have a cut of K, and each part of it is worth a block."""
    size, parts = cluster[0] * cluster[1] * split, split * groups
    if size > _LARGEST_CLUSTER:
        return False
    if parts == 1:
        return True
    steps = -(-problem.k // (LINE // element_bytes(problem)))
    share = -(-steps // parts)
    if (columns // 8) % split or (parts - 1) * share >= steps:
        return False
    tiles = -(-problem.m // rows) * -(-problem.n // columns) * problem.batch
    return forced or (tiles * parts <= _slots(size) * size and share >= _LEAST_STEPS)
