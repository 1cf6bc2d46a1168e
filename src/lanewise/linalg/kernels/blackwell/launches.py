"""Products by TMA and tcgen05 on sm_100a: how a problem and its plan become launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import tf32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.kernels.blackwell.kernel import compiled
from lanewise.linalg.kernels.blackwell.operand_tiles import operand_tiles
from lanewise.linalg.kernels.blackwell.scale_factors import ScaleFactors
from lanewise.linalg.kernels.blackwell.scaled_operands import prepare, prepared_bytes
from lanewise.linalg.kernels.blackwell.traits import ROWS, THREADS, BlackwellTraits, traits_of
from lanewise.linalg.kernels.copies.launches import copied, copies
from lanewise.linalg.kernels.copies.launches import workspace_bytes as copy_bytes
from lanewise.linalg.kernels.family import Launch, or_null, residual_strides
from lanewise.linalg.kernels.hopper.launches import scale_strides
from lanewise.linalg.loading import needs_copy
from lanewise.linalg.orientation import oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.pointers import COUNTER_BYTES, Pointers, flat
from lanewise.linalg.problem import Problem


def kernel(problem: Problem, plan: Plan) -> Kernel:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(traits_of(oriented(_loaded(problem, plan), plan), plan))


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""
    traits_of(oriented(_loaded(problem, plan), plan), plan).require_possible()
    for name, operand, is_copied in (("a", problem.a, plan.copy_a), ("b", problem.b, plan.copy_b)):
        if needs_copy(operand, problem.precision, tcgen05=True) and not is_copied:
            raise LanewiseError(
                f"copy_{name}=False: TMA cannot load {name} as it lies, and the plan does not copy it: make "
                f"the plan for these arrays, or take copy_{name}=True"
            )


def _loaded(problem: Problem, plan: Plan) -> Problem:
    """Return a problem with its operands as they are loaded, after copies."""
    of_a, of_b = copies(problem, plan)
    return replace(
        problem,
        a=problem.a if of_a is None else of_a.result,
        b=problem.b if of_b is None else of_b.result,
    )


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes: those of copies of operands."""
    bytes_ = copy_bytes(problem, plan) + prepared_bytes(problem)
    return bytes_ + COUNTER_BYTES if bytes_ else 0


def launches(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int | None = None
) -> list[Launch]:
    """Return the launches of a plan, in order: of copies, and of the products."""
    made: list[Launch] = []
    if plan.copy_a or plan.copy_b:
        problem, pointers, copy = copied(problem, plan, pointers)
        made.append(copy)
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
    arguments = (
        *tensor_maps(traits, pointers), *factor_maps(traits, pointers),
        flat(pointers.out.swapaxes(-1, -2) if traits.transposed else pointers.out),
        problem.m, problem.n, problem.k, problem.batch, plan.group,
        problem.out.leading, problem.out.batch_stride,
        or_null(pointers.bias), or_null(pointers.residual), *residual_strides(problem),
        *((0, 0) if traits.block_format else (or_null(pointers.scale_a), or_null(pointers.scale_b))),
        or_null(pointers.scale_out),
        *(scale_strides(pointers) if traits.scaled_by_blocks else (0, 0, 0, 0)),
        float(pointers.alpha), float(pointers.beta), problem.folded_rows,
    )  # fmt: skip
    return [*made, Launch(compiled(traits)[blocks, THREADS, traits.shared_bytes], arguments)]


def tensor_maps(traits: BlackwellTraits, pointers: Pointers) -> tuple[Any, Any]:
    """Return the tensor maps of A and B."""
    from lanewise.tensor_maps import tensor_map

    T = traits
    planes = (T.planes,) if T.batched else ()
    tile_a, tile_b = operand_tiles(T)
    dtype = "tf32" if T.a is tf32 else None
    rows_a = pointers.a if T.problem.a.k_major else pointers.a.swapaxes(-1, -2)
    rows_b = pointers.b.swapaxes(-1, -2) if T.problem.b.k_major else pointers.b
    return (
        tensor_map(rows_a, (*planes, *tile_a.box), swizzle="128B", dtype=dtype),
        tensor_map(rows_b, (*planes, *tile_b.box), swizzle="128B", dtype=dtype),
    )


def factor_maps(traits: BlackwellTraits, pointers: Pointers) -> tuple[Any, Any]:
    """Return the tensor maps of scale factors; null if there are none."""
    from lanewise.tensor_maps import tensor_map

    if traits.block_format is None:
        return 0, 0
    box = ScaleFactors(traits).box
    return tensor_map(pointers.scale_a, box), tensor_map(pointers.scale_b, box)
