"""The plan of a product with a sparse B: its tile, by a model of what multiprocessors read and multiply."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from lanewise.errors import LanewiseError
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import LINE, Store, traits_of
from lanewise.linalg.operand_copies import as_loaded, with_copies
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem

#: Tiles that are tried: rows of the sparse matrix (the result's columns) by rows of the dense one.
_TILES = (
    (128, 256), (256, 192), (256, 160), (256, 128), (128, 192), (128, 128), (128, 64), (64, 64), (64, 32),
    (64, 16), (64, 8),
)  # fmt: skip
_CLUSTERS = ((2, 1), (1, 1))
#: bf16 products of one multiprocessor in a microsecond, the dropped ones counted; bytes that its shared
#: memory reads and writes in one, and bytes that L2 gives to all multiprocessors.
_PRODUCTS, _SHARED, _L2 = 6.6e6, 2.5e5, 7.6e6
#: Microseconds of a tile's epilogue, for each 64 · 64 results of a warpgroup.
_EPILOGUE = 0.5
_MULTIPROCESSORS = GPUS["sm_90a"].multiprocessors
_MOST_STAGES = 12


@lru_cache(maxsize=1024)
def sparse_plan(problem: Problem) -> Plan:
    """Return the plan of a product with a sparse B on sm_90a."""
    tried = sorted(
        (_expected(problem, tile, cluster), number, tile, cluster)
        for number, (tile, cluster) in enumerate((t, c) for t in _TILES for c in _CLUSTERS)
    )
    for time, _, tile, cluster in tried:
        plan = fitted(problem, tile, cluster)
        if plan is not None:
            why = f"the model of sparse tiles expects it to take {time:.1f} µs"
            return with_copies(problem, replace(plan, why=why))
    raise LanewiseError(f"no tile of wgmma.sp fits {problem.m}×{problem.n}×{problem.k} of these types")


def fitted(problem: Problem, tile: tuple[int, int], cluster: tuple[int, int]) -> Plan | None:
    """Return a plan of a tile with as many stages as shared memory holds; None if there is no such kernel."""
    size = problem.a.dtype.bits // 8
    for stages in range(_MOST_STAGES, 1, -1):
        plan = Plan("sparse", "sm_90a", (*tile, LINE // size), stages, cluster, swap=True)
        traits = traits_of(oriented(as_loaded(problem, plan), plan), plan)
        try:
            require_possible(traits)
        except LanewiseError:
            continue
        memory = SharedMemory(traits)
        if memory.buffers >= min(2, memory.subtiles) or traits.store is not Store.TMA:
            return plan
    return None


def _expected(problem: Problem, tile: tuple[int, int], cluster: tuple[int, int]) -> float:
    """Return the microseconds that the model expects of a tile."""
    (rows, columns), (across, along) = tile, cluster
    size = problem.a.dtype.bits // 8
    steps = -(-problem.k * size // LINE)
    tiles = -(-problem.n // (rows * across)) * -(-problem.m // (columns * along)) * across * along
    waves = -(-tiles // _MULTIPROCESSORS)
    blocks = rows // 64
    multiply = rows * columns * LINE / 2 / _PRODUCTS
    loaded = (rows // 2 + columns) * LINE
    # Each 64 rows read all of B's tile; what TMA writes passes through the same ports.
    shared = (blocks * (columns * LINE + 64 * LINE // 2) + loaded) / _SHARED
    active = min(tiles, _MULTIPROCESSORS)
    l2 = active * (rows / 2 / along + columns / across) * LINE / _L2
    finish = _EPILOGUE * rows * columns / 8192
    return waves * (steps * max(multiply, shared, l2) + finish)
