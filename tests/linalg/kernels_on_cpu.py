"""The kernels that a call of `lw.matmul` launches on a GPU, run on the CPU machine on the call's own arrays.

`lw.matmul` of arrays in host memory runs no kernel: it computes sums by the instruction's arithmetic. Here
the family's kernels run, as they would on a GPU, on the problem that the rules make of the call.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.family import family_of, run
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.problem import Operand
from lanewise.linalg.rules import Request, request_of
from lanewise.linalg.types import BLOCK


def by_kernels(a: Any, b: Any, arch: str = "sm_90a", plan: Plan | None = None, **keywords: Any) -> Any:
    """Return the product of two NumPy arrays as the kernels of its plan compute it."""
    request = request_of(a, b, Options(**keywords))
    problem = request.problem
    assert problem is not None, "the axes of the batch cannot be joined"
    plan = plan or plan_of(problem, arch)
    family = family_of(plan.family)
    size = family.workspace_bytes(problem, plan)
    epilogue = problem.epilogue
    if epilogue.scale_a == "block":
        problem = replace(problem, epilogue=replace(epilogue, scale_a=None, scale_b=None))
    run(family.launches(problem, plan, _pointers(request, size)))
    return request.result


def _pointers(request: Request, workspace: int) -> Pointers:
    """Return the arrays of a request as kernels get them: of two axes, or of three with the batch first."""
    problem = request.problem
    assert problem is not None

    def matrix(array: Any, operand: Operand, rows: int, columns: int, turned: bool = False) -> Any:
        steps = operand.strides
        shape: tuple[int, ...] = (columns, rows) if turned else (rows, columns)
        strides: tuple[int, ...] = steps[::-1] if turned else steps
        if problem.batch > 1:
            shape, strides = (problem.batch, *shape), (operand.batch_stride, *strides)
        words = array.view(f"u{array.itemsize}")  # NumPy has no name for some types of ml_dtypes
        bytes_ = [each * array.itemsize for each in strides]
        return np.lib.stride_tricks.as_strided(words, shape, bytes_).view(array.dtype)

    m, n, k = problem.m, problem.n, problem.k
    found: dict[str, Any] = {
        "a": matrix(request.a.array, problem.a, m, k),
        "b": matrix(request.b.array, problem.b, n, k, turned=True),
        "out": matrix(request.out.array, problem.out, m, n),
    }
    if request.residual is not None and problem.epilogue.residual is not None:
        found["residual"] = matrix(request.residual.array, problem.epilogue.residual, m, n)
    for name in ("bias", "scale_out"):
        view = getattr(request, name)
        found[name] = None if view is None else np.ascontiguousarray(view.array).reshape(-1)
    for name, rows, each in (("scale_a", m, 1), ("scale_b", n, BLOCK)):
        scale = getattr(request, name)
        if scale.view is None:
            continue
        array = np.asarray(scale.view.array)
        if scale.form == "factors":
            found[name] = array.reshape(-1) if scale.swizzled else array.reshape(array.shape[-2:])
            continue
        found[name] = array.reshape(-1)
        if scale.form == "block":
            _, step, deep = getattr(problem.epilogue, f"{name}_strides")
            shape, strides = (-(-rows // each), -(-k // BLOCK)), (step * 4, deep * 4)
            if name == "scale_b":
                shape, strides = shape[::-1], strides[::-1]
            found[name] = np.lib.stride_tricks.as_strided(array, shape, strides)
    if problem.promote and found.get("scale_a") is None:
        found["scale_a"] = found["scale_b"] = np.ones((1, 1), np.float32)
    if workspace:
        found["workspace"] = np.zeros(workspace + 128, np.uint8)
        first = -found["workspace"].ctypes.data % 128
        found["workspace"] = found["workspace"][first : first + workspace]
    return Pointers(**found, alpha=request.alpha, beta=request.beta)
