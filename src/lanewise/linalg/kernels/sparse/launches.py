"""Products with a sparse B on sm_90a: how a problem and its plan become launches of the sparse kernel."""

from __future__ import annotations

from math import prod

from lanewise.errors import LanewiseError
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import COUNTER_BYTES, Pointers
from lanewise.linalg.kernels.copies.launches import copied
from lanewise.linalg.kernels.copies.launches import workspace_bytes as copy_bytes
from lanewise.linalg.kernels.family import Launch, epilogue_arguments, or_null
from lanewise.linalg.kernels.hopper.launches import tensor_maps
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import traits_of
from lanewise.linalg.kernels.sparse.kernel import compiled
from lanewise.linalg.kernels.sparse.metadata import metadata_shape
from lanewise.linalg.orientation import oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem


def launches(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int | None = None
) -> list[Launch]:
    """Return the launches of a plan: of a copy of the dense operand, if it needs one, and of the products.

    `pointers.b` are the values that are kept, (K/2, N), and `pointers.metadata` says where they stood.
    """
    before: list[Launch] = []
    if plan.copy_a:
        problem, pointers, copy = copied(problem, plan, pointers)
        before = [copy]
    problem, pointers = oriented_launch(problem, plan, pointers)
    traits, at_once = traits_of(problem, plan), multiprocessors or GPUS[plan.arch].multiprocessors
    clusters = prod(traits.tiles(problem.m, problem.n))
    blocks = min(clusters, at_once // traits.cluster_size) * traits.cluster_size
    stage_words = prod(metadata_shape(problem.m, problem.k, traits.element_bytes)[1:])
    arguments = (
        *tensor_maps(traits, pointers), or_null(pointers.metadata),
        problem.m, problem.n, problem.k, stage_words, plan.group, problem.out.leading,
        *epilogue_arguments(problem, pointers, batched=False), problem.folded_rows,
    )  # fmt: skip
    configured = compiled(traits)[blocks, traits.threads, SharedMemory(traits).total]
    return [*before, Launch(configured, arguments, overlap=plan.copy_a)]


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes: for the copy of the dense operand."""
    bytes_ = copy_bytes(problem, plan)
    return bytes_ + COUNTER_BYTES if bytes_ else 0


def kernel(problem: Problem, plan: Plan) -> Kernel:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(traits_of(oriented(problem, plan), plan))


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise an error: callers have no plans of this family."""
    raise LanewiseError("plans of family 'sparse' are for products with a b of lw.sparsify")
