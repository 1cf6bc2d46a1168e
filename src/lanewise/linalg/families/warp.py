"""Products by mma.sync, for every arch that has it: plans of family "warp"."""

from __future__ import annotations

from typing import Any

from lanewise.linalg.families.warp_build import WarpBuild, build_of
from lanewise.linalg.families.warp_kernel import compiled
from lanewise.linalg.orientation import oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import Pointers
from lanewise.linalg.problem import Problem


def kernel(problem: Problem, plan: Plan) -> Any:
    """Return the kernel of a plan, cached by what is compiled in."""
    build = build_of(oriented(problem, plan), plan)
    if build.by_tma:
        from lanewise.linalg.families import warp_by_tma

        return warp_by_tma.compiled(build)
    return compiled(build)


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""
    build_of(oriented(problem, plan), plan).require_possible()


def launch(
    problem: Problem, plan: Plan, pointers: Pointers, stream: Any = None, multiprocessors: int = 132
) -> None:
    """Compute a problem by a plan, on the GPU of the arrays or, for NumPy's, on the CPU machine."""
    configured, arguments = prepared(problem, plan, pointers, multiprocessors)
    configured(*arguments, stream=stream)


def prepared(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int = 132
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel and its arguments: to be launched, or checked."""
    problem, pointers = oriented_launch(problem, plan, pointers)
    build = build_of(problem, plan)
    tiles = -(-problem.m // build.tile[0]) * -(-problem.n // build.tile[1])
    residual, strides = problem.epilogue.residual, (0, 0, 0)
    if residual is not None:
        strides = (*residual.strides, residual.batch_stride)
    if build.by_tma:
        return _prepared_by_tma(problem, build, pointers, tiles, strides)
    operands = (problem.a, problem.b, problem.out)
    arguments = (
        pointers.a, pointers.b, pointers.out, problem.m, problem.n, problem.k,
        *(each.leading for each in operands), *(each.batch_stride for each in operands),
        _or_null(pointers.bias), _or_null(pointers.residual), *strides,
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        float(pointers.alpha), float(pointers.beta), problem.folded_rows,
    )  # fmt: skip
    return compiled(build)[(tiles, problem.batch), build.threads, build.shared_bytes], arguments


def _prepared_by_tma(
    problem: Problem, build: WarpBuild, pointers: Pointers, tiles: int, strides: tuple[int, int, int]
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel whose tiles TMA loads, and its arguments."""
    from lanewise.linalg.families.build import WARPGROUP
    from lanewise.linalg.families.warp_by_tma import compiled as compiled_by_tma
    from lanewise.tensor_maps import tensor_map

    bm, bn, bk = build.tile
    arguments = (
        tensor_map(pointers.a, (bm, bk), swizzle="128B"),
        tensor_map(pointers.b.swapaxes(-1, -2), (bn, bk), swizzle="128B"),
        pointers.out, problem.m, problem.n, problem.k, problem.out.leading,
        _or_null(pointers.bias), _or_null(pointers.residual), *strides[:2],
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        float(pointers.alpha), float(pointers.beta),
    )  # fmt: skip
    return compiled_by_tma(build)[tiles, WARPGROUP + build.threads, build.shared_bytes], arguments


def _or_null(array: Any) -> Any:
    """Return an array, or the address that a kernel never reads."""
    return 0 if array is None else array
