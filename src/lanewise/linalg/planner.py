"""A plan for a problem: by a model of waves and bandwidth, and by what was measured where something was.

The model gives each candidate (tile, cluster, split) a time and takes the least. Only the split changes the
order of sums; with `batch_invariant` it is chosen from N, K and the types alone, as if M were one tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.linalg.gpus import GPUS, Gpu
from lanewise.linalg.measured import measured_plan
from lanewise.linalg.order import instruction_of, k_of, multiplied_as
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

#: Tiles of the Hopper kernels: rows, columns, cluster, schedule, and the share of the tensor cores' speed
#: that they reach on long K.
_WARPGROUP_TILES = (
    (128, 256, (2, 1), "cooperative", 0.93),
    (256, 128, (2, 1), "cooperative", 0.93),
    (128, 192, (2, 1), "cooperative", 0.90),
    (128, 128, (2, 1), "pingpong", 0.84),
    (128, 128, (1, 1), "cooperative", 0.80),
    (128, 96, (1, 1), "cooperative", 0.70),
    (64, 256, (1, 1), "cooperative", 0.72),
    (128, 64, (1, 1), "cooperative", 0.60),
    (64, 128, (1, 1), "cooperative", 0.60),
    (64, 64, (1, 1), "cooperative", 0.42),
    (64, 32, (1, 1), "cooperative", 0.25),
)
#: Tiles of the mma.sync kernels.
_WARP_TILES = ((128, 256, 0.85), (128, 128, 0.80), (128, 64, 0.62), (64, 64, 0.48))
#: Bytes of K in one stage; what a wgmma kernel keeps of shared memory for barriers and results.
_STAGE_BYTES, _KEPT_SHARED = 128, 33 << 10
_LEAST_STAGES, _MOST_STAGES = 2, 8
_SPLITS = (2, 4, 8)
#: Seconds: a launch from start to end with nothing to do, the first loads of a tile, the exchange of parts.
_LAUNCH, _FILL, _EXCHANGE = 3.0e-6, 1.0e-6, 1.5e-6
#: M as batch-invariant plans see it.
_ONE_TILE = 128


class Estimate(NamedTuple):
    """What the model says of a plan: seconds, tiles for each multiprocessor, what bounds it."""

    seconds: float
    waves: float
    bound: str


def plan_of(problem: Problem, arch: str, multiprocessors: int | None = None) -> Plan:
    """Return the plan for a problem on an arch. The same problem has the same plan everywhere.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 8192)
    >>> plan_of(Problem(8192, 8192, 8192, matrix, matrix, matrix, f32), "sm_90a").tile
    (128, 256, 64)
    """
    return _plan_of(_without_addresses(problem), arch, multiprocessors)


def _without_addresses(problem: Problem) -> Problem:
    """Return a problem without a user's function, which plans do not depend on."""
    return replace(problem, epilogue=replace(problem.epilogue, function=None))


@lru_cache(maxsize=4096)
def _plan_of(problem: Problem, arch: str, multiprocessors: int | None) -> Plan:
    gpu = _gpu(arch, multiprocessors)
    family = _family(problem, arch)
    require_possible(problem, Plan(family, arch, (64, 64, 64), 1))
    if (found := measured_plan(problem, arch)) is not None:
        chosen = found
    else:
        best = min(
            ((estimate(problem, plan, gpu), plan) for plan in _candidates(problem, family, arch, gpu)),
            key=lambda each: (each[0].seconds, each[1].split),
        )
        chosen = replace(best[1], why=_why(problem, best[1], best[0], gpu))
    if problem.batch_invariant:
        split = _invariant_split(problem, chosen, gpu)
        if split != chosen.split:
            cluster = (1, 1) if split > 1 else chosen.cluster
            chosen = replace(chosen, split=split, cluster=cluster, schedule="cooperative")
            if chosen.family != "warp":
                chosen = _fitted(problem, chosen, gpu) or _narrow(problem, chosen, gpu)
    copies = family != "warp"
    return replace(
        chosen,
        copy_a=copies and not _loadable(problem, "a"),
        copy_b=copies and not _loadable(problem, "b"),
    )


def _gpu(arch: str, multiprocessors: int | None) -> Gpu:
    found = GPUS[arch]
    return found if multiprocessors is None else replace(found, multiprocessors=multiprocessors)


def _family(problem: Problem, arch: str) -> str:
    """Return the family of kernels: wgmma where the arch and the types have it, mma.sync elsewhere."""
    if arch != "sm_90a" or problem.a.dtype.name == "f64":
        return "warp"
    return "warpgroup"


def _loadable(problem: Problem, name: str) -> bool:
    """Return whether TMA can load an operand as wgmma wants it: other types than 16-bit ones along K."""
    operand = problem.a if name == "a" else problem.b
    if problem.precision == "f32":
        return False
    return operand.tma and (operand.k_major or operand.dtype.word_bits == 16)


def require_possible(problem: Problem, plan: Plan) -> None:
    """Raise an error if an arch has no instruction for a problem, or a plan does not fit it."""
    instruction_of(problem, plan)
    step = plan.tile[2]
    steps = -(-k_of(problem) // step) if step else 0
    if plan.split < 1 or (plan.split > 1 and (plan.split - 1) * -(-steps // plan.split) >= steps):
        raise LanewiseError(
            f"split={plan.split}: K of {problem.k} has {steps} steps of {step}: not one for each part"
        )
    if problem.promote is not None and (-(-steps // plan.split) * step) % problem.promote and plan.split > 1:
        raise LanewiseError(
            f"split={plan.split}: parts of K begin at multiples of {problem.promote}, where sums are promoted"
        )


def candidates(problem: Problem, arch: str) -> list[Plan]:
    """Return all plans that the planner considers for a problem on an arch."""
    return list(_candidates(problem, _family(problem, arch), arch, GPUS[arch]))


# candidates -------------------------------------------------------------------------------------------------


def _candidates(problem: Problem, family: str, arch: str, gpu: Gpu) -> Iterator[Plan]:
    """Yield the plans that are considered."""
    size = 4 if problem.precision else problem.a.dtype.word_bits // 8
    step = _STAGE_BYTES // size
    if family == "warp":
        step = 32 if arch == "sm_75" or size > 2 else 64 // size
        for rows, columns, _ in _WARP_TILES:
            stages = 2 if arch == "sm_75" else min(4, gpu.shared_bytes // ((rows + columns) * step * size))
            plain = Plan(family, arch, (rows, columns, step), max(stages, 2), schedule="one tile")
            yield from _splits(problem, plain, gpu)
        return
    for rows, columns, cluster, schedule, _ in _WARPGROUP_TILES:
        tall = -(-problem.m // rows)
        plain = Plan(
            family, arch, (rows, columns, step), _MOST_STAGES, cluster if tall % cluster[0] == 0 else (1, 1),
            schedule=schedule,
        )  # fmt: skip
        for plan in _splits(problem, plain, gpu):
            fitted = _fitted(problem, plan, gpu)
            if fitted is not None:
                yield fitted


def _fitted(problem: Problem, plan: Plan, gpu: Gpu) -> Plan | None:
    """Return a plan of the Hopper kernels with as many stages as shared memory holds; None if none fits."""
    rows, columns, _ = plan.tile
    kept = _KEPT_SHARED + (rows * columns * 4 if plan.split > 1 else 0)
    stages = min(_MOST_STAGES, (gpu.shared_bytes - kept) // ((rows + columns) * _STAGE_BYTES))
    return replace(plan, stages=stages) if stages >= _LEAST_STAGES else None


def _splits(problem: Problem, plan: Plan, gpu: Gpu) -> Iterator[Plan]:
    """Yield a plan with one part of K and, where tiles do not fill the GPU, with several.

    The blocks that compute a tile's parts are a cluster: there are 2, 4 or 8 of them.
    """
    yield plan
    if problem.sums.name == "f16" or plan.family == "warp":
        return  # parts are added in f32 by the Hopper kernels
    steps = -(-k_of(problem) // plan.tile[2])
    unit = max(1, (problem.promote or 0) // plan.tile[2])
    for split in _SPLITS:
        per_part = -(-steps // split)
        if (
            _tiles(problem, plan) * split <= 2 * gpu.multiprocessors
            and per_part >= 2 * unit
            and per_part % unit == 0
            and (split - 1) * per_part < steps
        ):
            yield replace(plan, split=split, cluster=(1, 1))


def _tiles(problem: Problem, plan: Plan) -> int:
    rows, columns, _ = plan.tile
    return -(-problem.m // rows) * -(-problem.n // columns) * problem.batch


def _invariant_split(problem: Problem, plan: Plan, gpu: Gpu) -> int:
    """Return a split that N, K and the types decide: that of one row of tiles, with one tile's width."""
    alone = replace(problem, m=_ONE_TILE, batch=1)
    square = replace(plan, tile=(_ONE_TILE, _ONE_TILE, plan.tile[2]), split=1, schedule="cooperative")
    ways = _splits(alone, square, gpu)
    return min(ways, key=lambda each: (estimate(alone, each, gpu).seconds, each.split)).split


def _narrow(problem: Problem, plan: Plan, gpu: Gpu) -> Plan:
    """Return a plan with a smaller tile, for which several parts fit into shared memory."""
    found = _fitted(problem, replace(plan, tile=(_ONE_TILE, 64, plan.tile[2])), gpu)
    assert found is not None
    return found


# the model --------------------------------------------------------------------------------------------------


def estimate(problem: Problem, plan: Plan, gpu: Gpu) -> Estimate:
    """Return what the model says of a plan."""
    rows, columns, step = plan.tile
    k = k_of(problem)
    tiles = _tiles(problem, plan) * plan.split
    waves = tiles / gpu.multiprocessors
    steps = -(-k // step)
    per_tile = -(-steps // plan.split) * step
    speed = gpu.speed_of(multiplied_as(problem)[0]) / gpu.multiprocessors * _efficiency(plan)
    multiply = math.ceil(waves) * (2 * rows * columns * per_tile / speed + _FILL)
    sizes = [operand.dtype.word_bits // 8 for operand in (problem.a, problem.b, problem.out)]
    moved = problem.batch * (
        problem.m * problem.k * sizes[0] + problem.k * problem.n * sizes[1] + problem.m * problem.n * sizes[2]
    )
    # A GPU that is not filled does not reach its bandwidth: about half of the multiprocessors do.
    move = moved / (gpu.bandwidth * min(1.0, 2 * max(tiles, 1) / gpu.multiprocessors))
    seconds = _LAUNCH + max(multiply, move) + (_EXCHANGE if plan.split > 1 else 0)
    bound = "tensor cores" if multiply >= move else "bandwidth"
    if max(multiply, move) < _LAUNCH:
        bound = "latency of a launch"
    return Estimate(seconds, waves, bound)


def _efficiency(plan: Plan) -> float:
    """Return the share of the tensor cores' speed that a tile reaches on long K."""
    rows, columns, _ = plan.tile
    if plan.family == "warp":
        known = {(each[0], each[1]): each[2] for each in _WARP_TILES}
    else:
        known = {(each[0], each[1]): each[4] for each in reversed(_WARPGROUP_TILES)}
        if plan.schedule == "pingpong" and (rows, columns) == (128, 128):
            return 0.84
    return known.get((rows, columns), 0.5 * min(1.0, rows * columns / (128 * 128)) + 0.2)


def _why(problem: Problem, plan: Plan, found: Estimate, gpu: Gpu) -> str:
    """Return why a plan was chosen, in a sentence."""
    rows, columns, _ = plan.tile
    tiles = _tiles(problem, plan)
    text = f"{tiles} tiles of {rows}×{columns} on {gpu.multiprocessors} multiprocessors"
    if plan.split > 1:
        text += f", too few to fill them: K is cut into {plan.split} parts"
    else:
        text += f" are {found.waves:.2f} waves"
    return f"{text}; the model expects {found.seconds * 1e6:.1f} µs, bound by {found.bound}."
