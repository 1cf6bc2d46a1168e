"""Plans of the Hopper kernels that are worth trying for a problem, by a model of their time.

The model's figures were fitted to an H200: the speed of products, what L2 gives to all multiprocessors and to
one of them, the cost of a launch, of a tile's epilogue, and of an exchange between blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lanewise.errors import LanewiseError
from lanewise.linalg.families.build import ROWS, Build, build_of
from lanewise.linalg.orientation import transposed
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

#: bf16 products of one multiprocessor in a microsecond; bytes that L2 gives to all and to one, and memory.
_PRODUCTS, _L2, _PORT, _MEMORY = 3.3e6, 7.6e6, 1.05e5, 3.7e6
#: Microseconds of a launch, and of one in clusters beyond that; of an epilogue, and for each 64 columns of a
#: warpgroup; of exchanges.
_LAUNCH, _CLUSTER, _EPILOGUE, _TURN, _CLUSTER_EXCHANGE, _MEMORY_EXCHANGE = 3.2, 0.7, 0.7, 0.25, 1.2, 2.5
#: Blocks that run at the same time, by the size of a cluster.
RESIDENT = {1: 132, 2: 132, 4: 120, 8: 120}
_MOST_STAGES, _LEAST_STAGES = 16, 3


def natural(problem: Problem, plan: Plan) -> Problem:
    """Return the problem as the kernel of a plan computes it."""
    return transposed(problem) if problem.out.k_major == plan.swap else problem


def fitted(problem: Problem, plan: Plan) -> Plan | None:
    """Return a plan with as many stages as shared memory holds; None if the kernel cannot have its tile.

    Results that threads store one by one go through shared memory all at once, if three stages are left then.
    """
    seen = natural(problem, plan)
    most: Plan | None = None
    for stages in range(_MOST_STAGES, 1, -1):
        tried = replace(plan, stages=stages)
        try:
            build = build_of(seen, tried)
            build.require_possible()
        except LanewiseError:
            continue
        if build.store_by_tma or build.stages_all_at_once:
            return tried
        most = most or tried
        if stages <= _LEAST_STAGES:
            break
    return most


def sectors(problem: Problem, element_bytes: int) -> float:
    """Return how much more L2 reads where rows along K have half a sector of 32 bytes too many.

    Every second row begins between two sectors then, and lines of 128 bytes take five of them instead of
    four. K alone decides, not where an array lies, as plans must not depend on that.
    """
    if problem.k * element_bytes % 32 != 16:
        return 1.0
    return 1.0 + 0.0625 * (problem.a.k_major + problem.b.k_major)


def microseconds(problem: Problem, plan: Plan) -> float:
    """Return the time that the model expects of a plan."""
    seen, build = natural(problem, plan), build_of(natural(problem, plan), plan)
    across, along = build.cluster
    size = build.cluster_size
    tiles = -(-seen.m // (build.bm * across)) * -(-seen.n // (build.bn * along)) * seen.batch * plan.groups
    waves = -(-tiles // (RESIDENT[size] // size))
    active = min(tiles * size, RESIDENT[size])
    all_steps = -(-seen.k // build.bk)
    steps = -(-all_steps // (plan.split * plan.groups))
    line = build.bk * build.element_bytes
    products = build.bm * max(build.bn, 32) * build.bk * build.planes * (build.planes + 1) / 2
    multiply = products * build.element_bytes / 2 / _PRODUCTS
    shared = active * (build.bm / along + build.bn / across) * line * build.planes / _L2
    shared *= sectors(seen, build.element_bytes)
    port = (build.bm + build.bn) * line * build.planes / _PORT
    turns = build.consumer_rows / ROWS * build.bn / 64
    moved = (seen.m + seen.n) * seen.k * build.element_bytes + seen.m * seen.n * build.out.bits / 8
    time = waves * (steps * max(multiply, shared, port) + _EPILOGUE + _TURN * turns)
    filled = min(1.0, active / 90)  # fewer blocks do not fill the memory's bandwidth
    time = max(time, seen.batch * moved / (_MEMORY * filled) + 1.0)
    exchanges = (_CLUSTER_EXCHANGE if plan.split > 1 else 0.0) + (
        _MEMORY_EXCHANGE if plan.groups > 1 else 0.0
    )
    return _LAUNCH + (_CLUSTER if size > 1 else 0.0) + time + exchanges


def hopper_plans(problem: Problem, count: int = 8) -> list[Plan]:
    """Return up to `count` plans for a problem, by the model's time; no more than some of one kind."""
    ranked = sorted(_all(problem), key=lambda plan: (microseconds(problem, plan), plan.tile, plan.cluster))
    taken: list[Plan] = []
    kinds: dict[tuple[int, int, int, bool, str], int] = {}
    for each in ranked:
        kind = (each.tile[0], each.split, each.groups, each.swap, each.schedule)
        if kinds.get(kind, 0) < max(2, count // 3):
            kinds[kind] = kinds.get(kind, 0) + 1
            taken.append(each)
        if len(taken) == count:
            break
    return taken


def _all(problem: Problem) -> Iterator[Plan]:
    """Yield all tiles, clusters and ways to cut K that fit a problem."""
    size = {"tf32": 4, "f32": 2}.get(problem.precision, problem.a.dtype.bits // 8)
    bk = 128 // size
    for swap in (False, True):
        plain = Plan("warpgroup", "sm_90a", (64, 64, bk), 2, swap=swap)
        seen = natural(problem, plain)
        if swap and min(problem.m, problem.n) > 128:
            continue  # a result that is stored transposed, for few rows alone
        for rows in (64, 128, 192, 256):
            for columns in _columns(seen, rows):
                for cluster in ((1, 1), (2, 1), (1, 2)):
                    yield from _cut(problem, replace(plain, tile=(rows, columns, bk), cluster=cluster), seen)
        pingpong = replace(plain, tile=(128, 128, bk), cluster=(2, 1), schedule="pingpong")
        if not (problem.promote or problem.experts) and (found := fitted(problem, pingpong)) is not None:
            yield found


def _columns(seen: Problem, rows: int) -> list[int]:
    """Return the widths of tiles that are tried: finer where a whole result is narrow."""
    if seen.n <= 128:
        least = next(
            each
            for each in (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128)
            if each >= seen.n
        )
        return [least, *(each for each in (32, 64) if each < least)]
    return [each for each in range(32, 257, 8) if each <= seen.n + 56]


def _cut(problem: Problem, plan: Plan, seen: Problem) -> Iterator[Plan]:
    """Yield a plan with all of K in one block and, where tiles are few, with K cut."""
    rows, columns, bk = plan.tile
    sharing = plan.cluster[0] * plan.cluster[1]
    tiles = -(-seen.m // rows) * -(-seen.n // columns) * seen.batch
    steps = -(-seen.k // bk)
    for split in (1, 2, 4, 8):
        for groups in (1, 2, 3, 4, 6, 8, 12, 16):
            parts = split * groups
            if parts > 1 and (
                tiles * parts > RESIDENT[min(8, split * sharing)]
                or sharing * split > 8
                or (columns // 8) % split
                or -(-steps // parts) < 4
                or (parts - 1) * -(-steps // parts) >= steps
                or problem.promote
                or problem.precision == "f32"
                or problem.experts
                or problem.sums.bits == 16
            ):
                continue
            found = fitted(problem, replace(plan, split=split, groups=groups))
            if found is not None:
                yield found


def build_for(problem: Problem, plan: Plan) -> Build:
    """Return what is compiled for a problem and a plan, on a GPU with 132 multiprocessors."""
    from lanewise.linalg.families.warpgroup import for_shape

    seen, build = natural(problem, plan), build_of(natural(problem, plan), plan)
    return for_shape(build, seen.m, seen.n, seen.batch, RESIDENT[build.cluster_size])
