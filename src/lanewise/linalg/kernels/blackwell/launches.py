"""Products by TMA and tcgen05 on sm_100a: how a problem and its plan become launches."""

from __future__ import annotations

from dataclasses import replace

from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import COUNTER_BYTES, Memory, Pointers
from lanewise.linalg.kernels.blackwell.block_scales import prepare, prepared_bytes
from lanewise.linalg.kernels.blackwell.kernel import compiled
from lanewise.linalg.kernels.blackwell.traits import ROWS, THREADS, traits_of
from lanewise.linalg.kernels.copies.launches import copied, loaded, require_copies
from lanewise.linalg.kernels.copies.launches import workspace_bytes as copy_bytes
from lanewise.linalg.kernels.family import Launch, launch
from lanewise.linalg.kernels.parameters import arguments_of
from lanewise.linalg.orientation import oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem


def kernel(problem: Problem, plan: Plan) -> Kernel:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(traits_of(oriented(loaded(problem, plan), plan), plan))


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""
    traits_of(oriented(loaded(problem, plan), plan), plan).require_possible()
    require_copies(problem, plan, tcgen05=True)


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes: those of copies of operands."""
    bytes_ = copy_bytes(problem, plan) + prepared_bytes(problem)
    return bytes_ + COUNTER_BYTES if bytes_ else 0


def launches(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int | None = None
) -> list[Launch]:
    """Return the launches of a plan, in order: of copies, and of the products."""
    problem, pointers, made = copied(problem, plan, pointers)
    problem, pointers = oriented_launch(problem, plan, pointers)
    if problem.block_format:
        size = prepared_bytes(problem)  # at the end of the workspace
        memory = None if pointers.workspace is None else pointers.workspace[len(pointers.workspace) - size :]
        pointers, more = prepare(problem, pointers, memory)
        made += more
    traits = traits_of(problem, plan)
    tiles = -(-problem.m // (ROWS * traits.pair)) * -(-problem.n // traits.bn) * problem.batch
    at_once = (multiprocessors or GPUS[plan.arch].multiprocessors) // traits.pair
    blocks = min(tiles, max(1, at_once)) * traits.pair
    factors: tuple[Memory | None, Memory | None] = (None, None)
    if traits.block_format:  # scale factors of block-scaled formats are loaded by TMA; the epilogue has none
        factors = pointers.scale_a, pointers.scale_b
        pointers = replace(pointers, scale_a=None, scale_b=None)
    arguments = arguments_of(problem, pointers, plan.group)
    arguments["factors_a"], arguments["factors_b"] = factors
    return [*made, launch(compiled(traits)[blocks, THREADS, traits.shared_bytes], arguments)]
