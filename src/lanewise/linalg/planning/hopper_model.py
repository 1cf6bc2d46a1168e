"""Plans of the Hopper kernels for a problem, the most promising first, in milliseconds.

A call cannot wait until each candidate is built. So all of them are ranked by a model on numbers alone, that
of `kernels/hopper/candidates.py`; whether a kernel can have a tile is asked of those at the top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lanewise.linalg.kernels.hopper import candidates as hopper
from lanewise.linalg.kernels.hopper.candidates import Cut, Sizes
from lanewise.linalg.kernels.hopper.traits import OTHER_REGISTERS, REGISTERS, ROWS, consumers_of
from lanewise.linalg.order import instruction_widths
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))
_SPLITS, _GROUPS = (1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16)
_LARGEST_CLUSTER = 8
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


class Candidate(NamedTuple):
    """A plan before it is built, with its time in microseconds and its waves."""

    microseconds: float
    waves: float
    cut: Cut
    swap: bool
    #: Whether results are stored from registers.
    direct: bool = False
    schedule: str = "cooperative"

    @property
    def plan(self) -> Plan:
        """The plan, its stages left open."""
        cut = self.cut
        return Plan(
            "warpgroup", "sm_90a", cut.tile, 2, cut.cluster, cut.split, swap=self.swap, groups=cut.groups,
            gather=cut.gather, direct=self.direct, schedule=self.schedule,
        )  # fmt: skip


def hopper_candidates(
    problem: Problem, cuts: bool = True, forced: tuple[int, int] | None = None
) -> list[Candidate]:
    """Return all candidates by the model's time; without `cuts`, those that sum all of K in one chain.

    `forced` says how K is cut: its split and its groups.
    """
    return sorted(_all(problem, cuts, forced))


def _all(problem: Problem, cuts: bool, forced: tuple[int, int] | None) -> Iterator[Candidate]:
    uncut = (
        not cuts
        or problem.promote
        or problem.precision == "f32"
        or problem.experts
        or problem.sums.bits == 16
    )
    splits = _SPLITS[:1] if uncut else _SPLITS
    if forced is not None:
        splits = forced[:1]
    for swap in (False, True):
        if swap and min(problem.m, problem.n) > _FEW:
            continue
        seen = oriented(problem, Plan("warpgroup", "sm_90a", (64, 64, 64), 2, swap=swap))
        sizes = Sizes.of(seen)
        step = 128 // sizes.element_bytes
        gathers = problem.sums.name == "f32" and sizes.out_bytes > 1
        for rows in _EXPERT_ROWS if problem.experts else (64, 128, 192, 256):
            wide = problem.experts and sizes.n > _FEW
            for columns in _EXPERT_COLUMNS if wide else _columns(seen, forced[0] if forced else 1):
                if not _has_registers(problem, rows, columns):
                    continue
                for cluster in _CLUSTERS[:1] if problem.experts else _CLUSTERS:
                    for split in splits:
                        cut = Cut((rows, columns, step), cluster, split)
                        groupings = _GROUPS[:1] if uncut else _groupings(sizes, cut)
                        if forced is not None:
                            groupings = forced[1:]
                        for groups in groupings:
                            whole = cut._replace(groups=groups, gather=gathers and groups >= _GATHERED)
                            if _worth_trying(sizes, whole, forced is not None):
                                time, waves = hopper.expected_time(sizes, whole)
                                direct = gathers and not swap and columns <= _DIRECT and not problem.experts
                                turns = _by_turns(problem, rows, columns)
                                schedule = "by turns" if turns else "cooperative"
                                yield Candidate(time, waves, whole, swap, direct, schedule)


def _columns(problem: Problem, split: int) -> list[int]:
    """Return the widths of tiles that are tried: finer where the result is narrow.

    If K has to be cut over the blocks of a cluster, each of them owns some eights of the columns.
    """
    n = problem.n
    widths = [each for each in instruction_widths(problem) if each // 8 % split == 0]
    if n <= _FEW:
        least = next(each for each in widths if each >= n)
        return [least, *(each for each in (32, 64) if each < least)]
    return [each for each in widths if (16 if n <= _SMALL else 32) <= each <= n + 56]


def _by_turns(problem: Problem, rows: int, columns: int) -> bool:
    """Return whether a warpgroup has two accumulators of sums that are promoted: faster, if they fit."""
    consumers = consumers_of(rows)
    return bool(problem.promote) and rows == consumers * ROWS and consumers < 3 and columns <= _TWICE


def _has_registers(problem: Problem, rows: int, columns: int) -> bool:
    """Return whether the sums of a tile fit into a warpgroup's registers."""
    consumers = consumers_of(rows)
    promotes = bool(problem.promote) or problem.precision == "f32"
    sums = rows // consumers // ROWS * columns // 2 * (2 if promotes else 1)
    return sums * min(problem.sums.bits, 32) // 32 + OTHER_REGISTERS <= REGISTERS[consumers][1]


def _groupings(sizes: Sizes, cut: Cut) -> list[int]:
    """Return the numbers of groups that are tried: small ones, and those that fill the GPU, or half of it."""
    if cut.cluster_size > _LARGEST_CLUSTER:
        return []
    (rows, columns, _), (across, along) = cut.tile, cut.cluster
    tiles = -(-sizes.m // (rows * across)) * -(-sizes.n // (columns * along)) * sizes.batch
    most = hopper.RESIDENT[cut.cluster_size] // cut.cluster_size // tiles
    return sorted({each for each in (*_GROUPS, most, most // 2) if each == 1 or 1 < each <= most})


def _worth_trying(sizes: Sizes, cut: Cut, forced: bool) -> bool:
    """Return whether the kernels can have a cut of K, and each part of it is worth a block."""
    if cut.cluster_size > _LARGEST_CLUSTER:
        return False
    parts = cut.split * cut.groups
    if parts == 1:
        return True
    (rows, columns, step), k = cut.tile, sizes.k
    steps = -(-k // step)
    share = -(-steps // parts)
    if (columns // 8) % cut.split or (parts - 1) * share >= steps:
        return False
    tiles = -(-sizes.m // rows) * -(-sizes.n // columns) * sizes.batch
    return forced or (tiles * parts <= hopper.RESIDENT[cut.cluster_size] and share >= _LEAST_STEPS)


def best_candidates(
    problem: Problem,
    count: int,
    cuts: bool = True,
    forced: tuple[int, int] | None = None,
    most_groups: int | None = None,
) -> list[Candidate]:
    """Return the candidates that the model expects most of, the best first; with so many groups at most."""
    found = hopper_candidates(problem, cuts, forced)
    if most_groups is not None:
        found = [each for each in found if each.cut.groups <= most_groups]
    return found[:count]


def hopper_plans(problem: Problem, count: int = 8) -> list[Plan]:
    """Return up to `count` plans for a problem, by the model's time; no more than some of one kind."""
    taken: list[Plan] = []
    kinds: dict[tuple[int, int, int, bool], int] = {}
    for each in hopper_candidates(problem):
        kind = (each.cut.tile[0], each.cut.split, each.cut.groups, each.swap)
        if kinds.get(kind, 0) >= max(2, count // 3):
            continue
        plan = hopper.fitted(problem, each.plan)
        if plan is not None:
            kinds[kind] = kinds.get(kind, 0) + 1
            taken.append(plan)
        if len(taken) == count:
            break
    if taken and not (problem.promote or problem.experts):
        turns = replace(taken[0], tile=(128, 128, taken[0].tile[2]), cluster=(2, 1), schedule="pingpong")
        found = hopper.fitted(problem, replace(turns, split=1, groups=1, gather=False))
        taken += [] if found is None else [found]
    return taken


def expected(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Return the microseconds and the waves that the model expects of a plan of the Hopper kernels."""
    cut = Cut(plan.tile, plan.cluster, plan.split, plan.groups, plan.gather)
    return hopper.expected_time(Sizes.of(oriented(problem, plan)), cut)
