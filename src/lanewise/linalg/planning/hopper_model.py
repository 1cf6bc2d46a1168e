"""Plans of the Hopper kernels for a problem, the most promising first, in milliseconds.

A call cannot wait until each candidate is built and measured by the model of `families/candidates.py`. So all
are ranked by the same formula on numbers alone; the model has the last word on those at the top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lanewise.linalg.families import candidates as hopper
from lanewise.linalg.families.build import PLANES, ROWS
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

_CLUSTERS = ((1, 1), (2, 1), (1, 2))
_SPLITS, _GROUPS = (1, 2, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16)
_LARGEST_CLUSTER = 8
#: Columns of results for which the transpose is tried.
_FEW = 128


class Candidate(NamedTuple):
    """A plan before it is built, with its time in microseconds and its waves."""

    microseconds: float
    waves: float
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    split: int
    groups: int
    swap: bool
    schedule: str

    @property
    def plan(self) -> Plan:
        """The plan, its stages left open."""
        return Plan(
            "warpgroup", "sm_90a", self.tile, 2, self.cluster, self.split, self.schedule, swap=self.swap,
            groups=self.groups,
        )  # fmt: skip


def element_bytes(problem: Problem) -> int:
    """Return the bytes of an element as it is multiplied."""
    return {"tf32": 4, "f32": 2}.get(problem.precision, problem.a.dtype.word_bits // 8)


def hopper_candidates(
    problem: Problem, cuts: bool = True, forced: tuple[int, int] | None = None
) -> list[Candidate]:
    """Return all candidates by the model's time; without `cuts`, those that sum all of K in one chain.

    `forced` says how K is cut: its split and its groups.
    """
    found = list(_all(problem, cuts, forced))
    return sorted(
        found, key=lambda each: (each.microseconds, each.tile, each.cluster, each.split, each.groups)
    )


def _all(problem: Problem, cuts: bool, forced: tuple[int, int] | None) -> Iterator[Candidate]:
    size = element_bytes(problem)
    step = 128 // size
    uncut = (
        not cuts
        or problem.promote
        or problem.precision == "f32"
        or problem.experts
        or problem.sums.bits == 16
    )
    splits, groupings = (_SPLITS[:1], _GROUPS[:1]) if uncut else (_SPLITS, _GROUPS)
    if forced is not None:
        splits, groupings = (forced[0],), (forced[1],)
    for swap in (False, True):
        if swap and min(problem.m, problem.n) > _FEW:
            continue
        turned = problem.out.k_major == swap
        m, n = (problem.n, problem.m) if turned else (problem.m, problem.n)
        for rows in (64, 128, 192, 256):
            for columns in _columns(n):
                for cluster in _CLUSTERS:
                    for split in splits:
                        for groups in groupings:
                            found = _candidate(
                                problem, m, n, size, (rows, columns, step), cluster, split, groups, swap,
                                forced is not None,
                            )  # fmt: skip
                            if found is not None:
                                yield found


def _columns(n: int) -> list[int]:
    """Return the widths of tiles that are tried: finer where the result is narrow."""
    if n <= _FEW:
        least = -(-max(n, 1) // 8) * 8
        return [least, *(each for each in (32, 64) if each < least)]
    return [each for each in range(32, 257, 8) if each <= n + 56]


def _candidate(
    problem: Problem,
    m: int,
    n: int,
    size: int,
    tile: tuple[int, int, int],
    cluster: tuple[int, int],
    split: int,
    groups: int,
    swap: bool,
    forced: bool = False,
) -> Candidate | None:
    """Return a candidate with its time; None if the kernels cannot have it, or if it is not worth trying."""
    rows, columns, step = tile
    across, along = cluster
    blocks = across * along * split
    consumers = 1 if rows < 2 * ROWS else (2 if rows % (2 * ROWS) == 0 else rows // ROWS)
    high = rows // consumers
    promotes = bool(problem.promote) or problem.precision == "f32"
    if high // ROWS * columns * (2 if promotes else 1) > 256 * (32 // min(problem.sums.bits, 32)):
        return None
    tiles = -(-m // (rows * across)) * -(-n // (columns * along)) * problem.batch * groups
    steps = -(-problem.k // step)
    parts = split * groups
    if blocks > _LARGEST_CLUSTER:
        return None
    if parts > 1:
        all_tiles = -(-m // rows) * -(-n // columns) * problem.batch
        share = -(-steps // parts)
        if (
            (not forced and (all_tiles * parts > hopper.RESIDENT[blocks] or share < 4))
            or (columns // 8) % split
            or (parts - 1) * share >= steps
        ):
            return None
    resident = hopper.RESIDENT[blocks]
    waves = tiles / (resident // blocks)
    active = min(tiles * blocks, resident)
    planes = PLANES if problem.precision == "f32" else 1
    line = step * size
    products = rows * max(columns, 32) * step * planes * (planes + 1) / 2
    multiply = products * size / 2 / hopper._PRODUCTS
    shared = active * (rows / along + columns / across) * line * planes / hopper._L2
    shared *= hopper.sectors(problem, size)
    port = (rows + columns) * line * planes / hopper._PORT
    turns = high / ROWS * columns / 64
    moved = (m + n) * problem.k * size + m * n * problem.out.dtype.word_bits / 8
    time = -(-tiles // (resident // blocks)) * (
        -(-steps // parts) * max(multiply, shared, port) + hopper._EPILOGUE + hopper._TURN * turns
    )
    filled = min(1.0, max(active, 1) / 90)
    time = max(time, problem.batch * moved / (hopper._MEMORY * filled) + 1.0)
    time += hopper._LAUNCH
    time += (hopper._CLUSTER_EXCHANGE if split > 1 else 0) + (hopper._MEMORY_EXCHANGE if groups > 1 else 0)
    return Candidate(time, waves, tile, cluster, split, groups, swap, "cooperative")


def best_candidates(
    problem: Problem, count: int, cuts: bool = True, forced: tuple[int, int] | None = None
) -> list[tuple[float, Candidate]]:
    """Return candidates with the model's own time in microseconds, the best first."""
    ranked = hopper_candidates(problem, cuts, forced)[:count]
    timed = [(hopper.microseconds(problem, each.plan), each) for each in ranked]
    return sorted(timed, key=lambda each: (each[0], each[1].tile, each[1].cluster))


def expected(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Return the microseconds and the waves that the model expects of a plan of the Hopper kernels."""
    turned = problem.out.k_major == plan.swap
    m, n = (problem.n, problem.m) if turned else (problem.m, problem.n)
    found = _candidate(
        problem, m, n, element_bytes(problem), plan.tile, plan.cluster, plan.split, plan.groups, plan.swap,
        forced=True,
    )  # fmt: skip
    return hopper.microseconds(problem, plan), 0.0 if found is None else found.waves
