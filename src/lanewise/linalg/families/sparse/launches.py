"""Products with a sparse B on sm_90a: how a problem and its plan become a launch of the sparse kernel."""

from __future__ import annotations

from math import prod
from typing import Any

from lanewise.linalg.families.build import SWIZZLED
from lanewise.linalg.families.copies.launches import copied
from lanewise.linalg.families.copies.launches import workspace_bytes as copy_bytes
from lanewise.linalg.families.sparse.metadata import metadata_shape
from lanewise.linalg.families.sparse.sparse_build import SparseBuild, sparse_build_of
from lanewise.linalg.families.sparse.sparse_kernel import compiled, sparse_tiles
from lanewise.linalg.orientation import oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import COUNTER_BYTES, Pointers, flat
from lanewise.linalg.problem import Problem


def launch(
    problem: Problem, plan: Plan, pointers: Pointers, stream: Any = None, multiprocessors: int = 132
) -> None:
    """Compute a problem by a plan, on the GPU of the arrays or, for NumPy's, on the CPU machine."""
    if plan.copy_a:
        problem, pointers = copied(problem, plan, pointers, stream)
    configured, arguments = prepared(problem, plan, pointers, multiprocessors)
    configured(*arguments, stream=stream, overlap=plan.copy_a)


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes, at an address that is a multiple of 128; 0: none."""
    bytes_ = copy_bytes(problem, plan)
    return bytes_ + COUNTER_BYTES if bytes_ else 0


def prepared(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int = 132
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel and its arguments: to be launched, or checked.

    `pointers.b` are the values that are kept, (K/2, N), and `pointers.metadata` says where they stood.
    """
    problem, pointers = oriented_launch(problem, plan, pointers)
    build = sparse_build_of(problem, plan)
    across, along = build.cluster
    clusters = -(-problem.m // (build.bm * across)) * -(-problem.n // (build.bn * along))
    blocks = min(clusters, multiprocessors // build.cluster_size) * build.cluster_size
    residual = problem.epilogue.residual
    steps = (0, 0) if residual is None else residual.strides
    arguments = (
        *_tensor_maps(build, pointers), flat(pointers.metadata),
        problem.m, problem.n, problem.k, prod(metadata_shape(problem.m, problem.k, build.element_bytes)[1:]),
        plan.group,
        problem.out.leading,
        _or_null(pointers.bias), _or_null(pointers.residual), *steps,
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        float(pointers.alpha), float(pointers.beta), problem.folded_rows,
    )  # fmt: skip
    return compiled(build)[blocks, build.threads, build.shared_bytes], arguments


def _tensor_maps(build: SparseBuild, pointers: Pointers) -> tuple[Any, Any, Any]:
    """Return the tensor maps of A, B and the result (the array itself if it is not stored by TMA)."""
    from lanewise.tensor_maps import tensor_map

    T = build
    tile_a, tile_b = sparse_tiles(T)
    rows_b = pointers.b.swapaxes(-1, -2) if T.b_k_major else pointers.b
    rows_out = pointers.out.swapaxes(-1, -2) if T.transposed else pointers.out
    of_out = flat(rows_out)
    if T.store_by_tma:
        wide = T.box_columns * T.out.bits // 8
        swizzle: Any = f"{wide}B" if wide in SWIZZLED else "none"
        of_out = tensor_map(rows_out, (T.box_rows, T.box_columns), swizzle=swizzle)
    return (
        tensor_map(pointers.a, tile_a.box, swizzle="64B"),
        tensor_map(rows_b, tile_b.box, swizzle="128B"),
        of_out,
    )


def _or_null(array: Any) -> Any:
    """Return an array's memory, or the address that a kernel never reads."""
    return 0 if array is None else flat(array)
