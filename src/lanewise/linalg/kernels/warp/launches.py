"""Products by mma.sync, for every arch that has it: plans of family "warp"."""

from __future__ import annotations

from dataclasses import replace

from lanewise.isa.multiprocessor import LARGEST_GRID
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.family import Launch, launch
from lanewise.linalg.kernels.hopper.traits import WARPGROUP
from lanewise.linalg.kernels.parameters import arguments_of
from lanewise.linalg.kernels.warp.kernel import compiled
from lanewise.linalg.kernels.warp.traits import WarpTraits, traits_of
from lanewise.linalg.orientation import oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

#: Tiles along N, or along M, from which on A, or B, is read through a multiprocessor's own cache; bytes of K
#: up to which both are. Otherwise all blocks wait for the same few lines of L2.
_MANY_READERS, _SHORT = 32, 32


def kernel(problem: Problem, plan: Plan) -> Kernel:
    """Return the kernel of a plan, cached by what is compiled in."""
    return _compiled(traits_of(oriented(problem, plan), plan))


def _compiled(traits: WarpTraits) -> Kernel:
    """Return the kernel for some constants, by who loads the tiles."""
    if traits.by_tma:
        from lanewise.linalg.kernels.warp import f64_by_tma

        return f64_by_tma.compiled(traits)
    return compiled(traits)


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""
    traits_of(oriented(problem, plan), plan).require_possible()


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes: none."""
    return 0


def launches(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int | None = None
) -> list[Launch]:
    """Return the one launch of a plan; each block computes one tile, on any number of multiprocessors, or
    some blocks of a cluster share one."""
    problem, pointers = oriented_launch(problem, plan, pointers)
    traits = traits_of(problem, plan)
    rows, columns = -(-problem.m // traits.plan.tile[0]), -(-problem.n // traits.plan.tile[1])
    tiles = rows * columns
    grid, threads = (tiles, 1, 1), WARPGROUP + traits.threads
    if not traits.by_tma:
        one_group = rows <= plan.group and max(columns, problem.batch) <= min(LARGEST_GRID[1:])
        grid = (rows, columns, problem.batch) if one_group else (tiles, problem.batch, 1)
        grid, threads = (grid[0] * plan.groups, *grid[1:]), traits.threads
        is_short = problem.k * traits.tiles[0].size <= _SHORT
        cached = columns >= _MANY_READERS or is_short, rows >= _MANY_READERS or is_short
        traits = replace(traits, one_group=one_group, cached=cached)
    configured = _compiled(traits)[grid, threads, traits.shared_bytes]
    return [launch(configured, arguments_of(problem, pointers))]
