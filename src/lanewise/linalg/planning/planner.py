"""A plan for a problem: the candidate that takes least by the model of its family's kernels.

Plans of the Hopper kernels are ranked in `candidates.py` by the model of `model.py`; a simple model of those
of mma.sync is here. Only how K is cut changes the order of sums; with `batch_invariant` it is chosen from N,
K and the types alone, as if M were one tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.isa.archs import arch_number
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.operand_copies import as_loaded, with_copies
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Estimate, Plan, require_fields, usual_fields
from lanewise.linalg.planning.blackwell import blackwell_plan, blackwell_plans, expected, suits_tcgen05
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.measured import measured_plan
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import element_bytes, instruction_of, multiplied_as, plane_products, planes_of
from lanewise.linalg.types import ROUNDED_SINCE

if TYPE_CHECKING:
    from lanewise.linalg.planning.candidates import Ranked

#: Tiles of the mma.sync kernels, and the share of the tensor cores' speed that they reach on long K.
_WARP_TILES = ((128, 256, 0.85), (128, 128, 0.80), (128, 112, 0.80), (128, 64, 0.62), (64, 64, 0.48))
#: Stages of the f64 tile that TMA loads.
_STAGES_BY_TMA = 6
#: Seconds: a launch from start to end with nothing to do, the first loads of a tile.
_LAUNCH, _FILL = 3.0e-6, 1.0e-6
#: M as batch-invariant plans see it.
_ONE_TILE = 128
#: Groups of K in batch-invariant plans: each adds a matrix of sums to the workspace, for any number of rows.
_MOST_INVARIANT_GROUPS = 16
#: Candidates of the Hopper kernels that are built, until one can be had.
_MOST_BUILT = 64
#: Rows from which on a few more make no difference to the model but for tiles.
_MANY_ROWS = 512
#: How far off the simple model of the mma.sync kernels may be: it was not fitted.
_ERROR_OF_SIMPLE_MODEL = 0.3


def plan_of(problem: Problem, arch: str) -> Plan:
    """Return the plan for a problem on an arch. The same problem has the same plan everywhere.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 8192)
    >>> plan_of(Problem(8192, 8192, 8192, matrix, matrix, matrix, f32), "sm_90a").tile[2]
    64
    """
    epilogue = replace(problem.epilogue, function=None, folded=None)  # no plan depends on a user's function
    return _plan_of(replace(_not_empty(problem), epilogue=epilogue, folded_rows=0), arch)


def _not_empty(problem: Problem) -> Problem:
    """Return a problem with at least one element, as plans see it."""
    return replace(problem, **{name: max(1, getattr(problem, name)) for name in ("m", "n", "k", "batch")})


@lru_cache(maxsize=4096)
def _plan_of(problem: Problem, arch: str) -> Plan:
    family = _family(problem, arch)
    require_possible(problem, Plan(family, arch, (64, 64, 64), 1))
    chosen = measured_plan(problem, arch)
    if family == "warp":
        return chosen or _warp_plan(problem, arch)
    if family == "blackwell":
        return blackwell_plan(problem)
    if chosen is not None:
        chosen = _as_can_be_had(problem, chosen)
    if problem.batch_invariant:
        alone = _hopper_plan(_one_tile(problem), None, _MOST_INVARIANT_GROUPS)
        chosen = _hopper_plan(problem, (alone.split, alone.groups))
    elif chosen is None:
        chosen = _hopper_plan(_with_whole_eights(problem))
    return with_copies(problem, chosen)


def _with_whole_eights(problem: Problem) -> Problem:
    """Return a problem with its rows rounded up, where the model sees no difference: plans are made for
    every eighth number of rows, as tiles have multiples of 8 columns, and of 64 rows."""
    along_rows = problem.a.k_major and problem.out.k_major and not problem.experts
    if not along_rows or problem.m < _MANY_ROWS:
        return problem
    return replace(problem, m=-(-problem.m // 8) * 8)


def _one_tile(problem: Problem) -> Problem:
    """Return what of a problem decides how a batch-invariant plan cuts K: N, K, the types and how B lies.

    How the rows of A, of the result and of a residual lie does not: a row by itself, which has no stride, may
    lie in another way than the same row among others.
    """
    residual = problem.epilogue.residual
    epilogue = replace(
        problem.epilogue, residual=None if residual is None else _aligned_rows(residual, problem.n)
    )
    return replace(
        problem, m=_ONE_TILE, batch=1, batch_invariant=False, epilogue=epilogue,
        a=_aligned_rows(problem.a, problem.k), out=_aligned_rows(problem.out, problem.n),
    )  # fmt: skip


def _aligned_rows(operand: Operand, columns: int) -> Operand:
    """Return a matrix of contiguous rows that TMA can load and store."""
    packed = 128 // operand.dtype.word_bits
    return Operand(operand.dtype, True, -(-columns // packed) * packed)


def _as_can_be_had(problem: Problem, plan: Plan) -> Plan | None:
    """Return a plan that was measured for nearly this problem, with fewer stages if it is possible then."""
    from lanewise.linalg.kernels.hopper.limits import fitted
    from lanewise.linalg.kernels.hopper.limits import require_possible as require_traits
    from lanewise.linalg.kernels.hopper.traits import Store, traits_of

    for stages in range(plan.stages, plan.stages // 2, -1):
        tried = replace(plan, stages=stages)
        try:
            require_possible(problem, tried)
            traits = traits_of(oriented(as_loaded(problem, tried), tried), tried)
            require_traits(traits)
        except LanewiseError:
            continue
        if traits.store is Store.TMA:
            return tried
        return fitted(as_loaded(problem, tried), tried)
    return None


@lru_cache(maxsize=4096)
def _hopper_plan(
    problem: Problem, forced: tuple[int, int] | None = None, most_groups: int | None = None
) -> Plan:
    """Return the best plan of the Hopper kernels that can be had; `forced` may say how K is cut."""
    from lanewise.linalg.planning.candidates import ranked

    candidates = ranked(problem, forced, most_groups)
    for place in range(min(len(candidates), _MOST_BUILT)):
        plan = built(problem, candidates.plan(place))
        if plan is not None:
            return replace(plan, why=_why_of(candidates, place))
    raise LanewiseError(
        f"the Hopper kernels have no tile for {problem.m}×{problem.n}×{problem.k} of these types"
    )


def built(problem: Problem, plan: Plan) -> Plan | None:
    """Return a candidate with its stages, if there is a kernel of it; else None."""
    if plan.family == "warpgroup":
        from lanewise.linalg.kernels.hopper.limits import fitted

        return fitted(as_loaded(problem, plan), plan)
    from lanewise.linalg.kernels.warp.traits import traits_of

    try:
        traits_of(oriented(problem, plan), plan).require_possible()
    except LanewiseError:
        return None
    return plan


def _why_of(candidates: Ranked, place: int) -> str:
    """Return why the model chose a plan, in a sentence, and by how much it is better than other tiles."""
    text = f"of {len(candidates)} candidates the model expects the least time of it"
    beside = candidates.next_tile(place)
    if beside is None:
        return text
    more = float(candidates.microseconds[beside] / candidates.microseconds[place]) - 1
    rows, columns, _ = candidates.plan(beside).tile
    return f"{text}; the next tile, {rows}×{columns}, would take {100 * more:.1f} % longer"


def chain_plan(problem: Problem, arch: str, fitted: bool = False) -> Plan:
    """Return a plan whose sums are one chain along K; without `fitted`, one for the order of sums alone.

    The order does not depend on the number of rows.
    """
    problem = replace(problem, batch_invariant=True)
    family = _family(problem, arch)
    plan = Plan(family, arch, (128, 128, 128 // element_bytes(problem)), 4, why="one chain along K")
    require_possible(problem, plan)
    if family == "warp":
        return _warp_plan(problem, arch)
    if not fitted:
        return plan
    if family == "blackwell":
        return blackwell_plan(problem)
    return with_copies(problem, _hopper_plan(problem, (1, 1)))


def _warp_plan(problem: Problem, arch: str) -> Plan:
    """Return the best plan of the mma.sync kernels by the simple model."""
    best = min(_warp_plans(problem, arch), key=lambda plan: estimate(problem, plan).seconds)
    return replace(best, why=_why(problem, best))


def _family(problem: Problem, arch: str) -> str:
    """Return the family of kernels: wgmma or tcgen05 where the arch and the types have it, else mma.sync."""
    if arch == "sm_100a" and suits_tcgen05(problem):
        return "blackwell"
    if arch != "sm_90a" or problem.a.dtype.name == "f64":
        return "warp"
    return "warpgroup"


def require_possible(problem: Problem, plan: Plan) -> None:
    """Raise an error if an arch has no instruction for a problem, or a plan does not fit it."""
    instruction_of(problem, plan)
    result = problem.out.dtype
    since = ROUNDED_SINCE.get(result.name, 0)
    if arch_number(plan.arch) < since:
        raise LanewiseError(
            f"{plan.arch} has no instruction that rounds to {result.dtype_name}, which sm_{since} and later "
            "ones have: pass out_dtype= of another type"
        )
    step = plan.tile[2]
    steps = -(-problem.k // step) if step else 0
    parts = plan.split * plan.groups
    may_be_empty = plan.family == "warp"  # its last parts add zeros then
    if not may_be_empty and parts > 1 and (parts - 1) * -(-steps // parts) >= steps:
        raise LanewiseError(
            f"split={plan.split}, groups={plan.groups}: K is {problem.k}, which is {steps} steps of {step}, "
            f"not enough for {parts} parts"
        )
    if parts > 1 and problem.promote is not None:
        raise LanewiseError(
            f"split={plan.split}, groups={plan.groups}: K cannot be split where sums are promoted to f32"
        )


def candidates(problem: Problem, arch: str) -> list[Plan]:
    """Return the plans that are worth measuring for a problem on an arch, the most promising first."""
    if _family(problem, arch) == "warp":
        return list(_warp_plans(problem, arch))
    if _family(problem, arch) == "blackwell":
        return list(blackwell_plans(problem))
    from lanewise.linalg.planning.candidates import ranked

    ranking = ranked(problem)
    tried = (built(problem, ranking.plan(place)) for place in range(min(len(ranking), _MOST_BUILT)))
    return [with_copies(problem, plan) for plan in dict.fromkeys(tried) if plan is not None]


def _warp_plans(problem: Problem, arch: str) -> Iterator[Plan]:
    """Yield the plans of the mma.sync kernels."""
    size = element_bytes(problem)
    step = 32 if arch == "sm_75" or size > 2 else 64 // size
    widest = 256
    if size == 8:  # a sum takes two registers: a wider tile would not fit
        widest, step = 128, 16
    elif planes_of(problem) > 1:  # nor where sums have totals
        size, widest, step = 4, 64, 16
    for rows, columns, _ in _WARP_TILES:
        if columns > widest or columns & (columns - 1):
            continue
        stages = 2 if arch == "sm_75" else min(4, GPUS[arch].shared_bytes // ((rows + columns) * step * size))
        yield Plan("warp", arch, (rows, columns, step), max(stages, 2), schedule="one tile")
    if size == 8:
        from lanewise.linalg.kernels.warp.traits import TILE_BY_TMA, loads_by_tma

        plan = Plan("warp", arch, TILE_BY_TMA, _STAGES_BY_TMA, schedule="one tile")
        if loads_by_tma(oriented(problem, plan), arch):
            yield plan


def _tiles(problem: Problem, plan: Plan) -> int:
    rows, columns, _ = plan.tile
    return -(-problem.m // rows) * -(-problem.n // columns) * problem.batch


# the model --------------------------------------------------------------------------------------------------


def estimate(problem: Problem, plan: Plan) -> Estimate:
    """Return what the model says of a plan."""
    problem, gpu = _not_empty(problem), GPUS[plan.arch]
    if plan.arch == "sm_90a" and problem.a.dtype.name != "f64":
        return _hopper_estimate(problem, plan)
    if plan.family == "blackwell":
        return expected(problem, plan)
    sizes = [operand.dtype.word_bits // 8 for operand in (problem.a, problem.b, problem.out)]
    moved = problem.batch * (
        problem.m * problem.k * sizes[0] + problem.k * problem.n * sizes[1] + problem.m * problem.n * sizes[2]
    )
    move = moved / gpu.bandwidth
    rows, columns, step = plan.tile
    waves = _tiles(problem, plan) / gpu.multiprocessors
    share = {tile[:2]: tile[2] for tile in _WARP_TILES}.get((rows, columns), 0.5)
    whole = gpu.speed_of(multiplied_as(problem)[0])
    products = len(plane_products(planes_of(problem)))
    long = -(-problem.k // step) * step * products
    tile = 2 * rows * columns * long / (whole / gpu.multiprocessors * share) + _FILL
    seconds = _LAUNCH + max(math.ceil(waves) * tile, move)
    work = 2 * problem.m * problem.n * problem.k * problem.batch / whole
    bound = "tensor cores" if work >= move else "bandwidth"
    if max(work, move) < _LAUNCH:
        bound = "latency of a launch"
    return Estimate(seconds, waves, bound, _ERROR_OF_SIMPLE_MODEL)


#: What bounds a product, by the part of its time that is the longest.
_BOUNDS = {
    "launch": "latency of a launch", "tensor_cores": "tensor cores", "loads": "loads from L2",
    "memory": "bandwidth", "epilogue": "epilogues", "exchange": "exchange of sums",
    "copies": "copies of operands",
}  # fmt: skip


def _hopper_estimate(problem: Problem, plan: Plan) -> Estimate:
    """Return what the model of the Hopper kernels says of a plan."""
    from lanewise.linalg.planning.model import ERRORS, H200, case_of
    from lanewise.linalg.planning.model import expected as hopper_expected

    expectation = hopper_expected(case_of(problem, [plan]), H200, GPUS[plan.arch])
    parts = {name: float(getattr(expectation, name)[0]) for name in _BOUNDS}
    longest = max(parts, key=lambda name: parts[name])
    said = {_BOUNDS[name]: value for name, value in parts.items()}
    seconds, waves = float(expectation.total[0]) / 1e6, float(expectation.waves[0])
    return Estimate(seconds, waves, _BOUNDS[longest], ERRORS[longest], said)


def _why(problem: Problem, plan: Plan) -> str:
    """Return why a plan was chosen, in a sentence."""
    (rows, columns, _), expectation = plan.tile, estimate(problem, plan)
    many = GPUS[plan.arch].multiprocessors
    text = f"{_tiles(problem, plan)} tiles of {rows}×{columns} on {many} multiprocessors"
    text += f" are {expectation.waves:.2f} waves"
    return f"{text}; the model expects {expectation.seconds * 1e6:.1f} µs, bound by {expectation.bound}."


# plans that a caller forces ---------------------------------------------------------------------------------


#: Plans and problems that are known to go together.
_MOST_CHECKED = 512


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise an error if there is no kernel of a plan for a problem. It is looked up once for each of them.

    >>> from lanewise.formats import bf16, f32
    >>> from lanewise.linalg.problem import Operand
    >>> matrix = Operand(bf16, True, 64)
    >>> problem = Problem(64, 64, 64, matrix, matrix, matrix, f32)
    >>> require_kernel(problem, Plan("warp", "sm_80", (64, 64, 8), 2))
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: tile (64, 64, 8), 2 stages: 8 elements of K are not a multiple of 16, \
those of mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    """
    function = None if problem.epilogue.function is None else "any"  # which one it is does not matter
    _require_kernel(replace(_not_empty(problem), epilogue=replace(problem.epilogue, function=function)), plan)


def with_fewer_stages(problem: Problem, plan: Plan) -> Plan:
    """Return a plan with fewer stages if there is a kernel of it only then, else as it is."""
    for stages in range(plan.stages, 1, -1):
        tried = replace(plan, stages=stages)
        with suppress(LanewiseError):
            require_kernel(problem, tried)
            return tried
    return plan


@lru_cache(maxsize=_MOST_CHECKED)
def _require_kernel(problem: Problem, plan: Plan) -> None:
    require_fields(plan)
    for name, usual in usual_fields(plan.family).items():
        if getattr(plan, name) != usual:
            have = f"plans of family {plan.family!r} have {name}={usual!r}"
            raise LanewiseError(f"{have}, not {getattr(plan, name)!r}")
    require_possible(problem, plan)
    if plan.family == "warp":
        # the CPU alone promotes sums of mma.sync; the tiles have to suit the products that are left
        problem = replace(problem, promote=None)
    family_of(plan.family).require_kernel(problem, plan)
