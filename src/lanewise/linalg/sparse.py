"""Products with a b that `lw.sparsify` made: the rules hold, and the arrays decide who computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.linalg.cpu.epilogue import as_matrices, finished
from lanewise.linalg.operands import View, view_of, with_items
from lanewise.linalg.order import instruction_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import Options, Request, request_of
from lanewise.linalg.sparse_matrix import OnDevice, SparseMatrix

if TYPE_CHECKING:
    from lanewise.linalg.launch.prepare import Prepared


def sparse_product(
    a: Any, b: SparseMatrix, options: Options, arch: str | None, plan: Any, stream: Any,
    remember: Callable[[Prepared, Request], None] | None = None,
) -> Any:  # fmt: skip
    """Return a · b for arrays in host memory or on a GPU, with the same bits.

    `remember` is told of launches that calls of the same kind can repeat.
    """
    for name, given in (("accumulate", options.accumulate), ("precision", options.precision), ("plan", plan)):
        if given is not None:
            raise LanewiseError(f"products with a sparse b take no {name}=")
    left = view_of(a, "a")
    planned = planned_arch("sm_90a" if arch is None else arch)
    if planned != "sm_90a":
        raise LanewiseError(f"products with a sparse b are planned for sm_90a only, not for {planned}")
    device = None if left.device is None else b.on_device(left)
    kept = View(
        (b.k // 2, b.shape[1]), (1, b.leading), b.format, 0 if device is None else device.values_address,
        left.library, left.device, None if device is None else device.values,
    )  # fmt: skip
    request = request_of(a, b, options, kept=kept)
    problem = request.problem
    if problem is None or (problem.batch > 1 and left.device is not None):
        return _each_of_batch(request, a, b, options, arch, stream)
    if problem.promote is not None:
        raise LanewiseError(
            "products with a sparse b take one scale, or scales of rows and columns, but no scales of blocks"
        )
    if left.device is None:
        _on_cpu(request, replace(problem, sparse=True), b)
        return request.result
    scattered = [each for each in (problem.a, problem.out, problem.epilogue.residual) if _is_scattered(each)]
    if scattered and request.m and request.n:
        return _on_copies(request, problem, a, b, options, stream)
    assert device is not None
    prepared = _on_gpu(request, problem, device, stream)
    if remember is not None and prepared is not None and request.k:
        remember(prepared, request)
    return request.result


def _on_cpu(request: Request, problem: Problem, b: SparseMatrix) -> None:
    """Compute a product in host memory by the sparse instruction's own sums, in order of K."""
    out = as_matrices(request.out.array, request.out.shape)
    if not out.size:
        return
    multiply = instruction_of(problem, Plan("sparse", "sm_90a", (128, 128, 64), 1))
    dense = np.ascontiguousarray(as_matrices(request.a.array, request.a.shape))
    rows = dense.reshape(prod(request.batch) * request.m, b.k)
    padding = -b.k % multiply.k or (multiply.k if not b.k else 0)
    values = np.pad(b.values, ((0, 0), (0, padding // 2)))
    # The places of what is not there: 0 and 1 of each group, whose elements are zeros.
    indices = np.concatenate(
        [b.indices, np.tile(np.array([0, 1], np.uint8), (b.indices.shape[0], padding // 4))], axis=1
    )
    columns = np.pad(rows, ((0, 0), (0, padding))).T
    total = multiply.gemm(values, columns, arch="sm_90a", metadata=indices)
    shape = (*request.batch, request.m, request.n)
    out[...] = finished(request, problem, np.ascontiguousarray(total.T).reshape(shape))


def _on_gpu(request: Request, problem: Problem, device: OnDevice, stream: Any) -> Prepared | None:
    """Compute a product on its GPU; returns what repeats it, None where nothing had to be launched."""
    from lanewise.linalg.kernels.sparse.plans import sparse_plan
    from lanewise.linalg.launch.prepare import arch_of_device, run

    assert request.a.device is not None
    own = arch_of_device(request.a.device)
    if own != "sm_90a":
        raise LanewiseError(
            f"products with a sparse b run on sm_90a, or in host memory; this GPU is {own}: pass b.dense()"
        )
    if not problem.k:  # what the epilogue makes of zeros
        return run(request, problem, None, None, stream)
    if not (problem.m and problem.n):
        return None
    problem = replace(problem, sparse=True)
    size = 4
    request.metadata = View(
        (len(device.metadata) // size,), (1,), request.b.format, device.metadata_address,
        request.a.library, request.a.device, device.metadata,
    )  # fmt: skip
    return run(request, problem, None, sparse_plan(problem), stream)


def _is_scattered(operand: Operand | None) -> bool:
    """Return whether an operand has neighbours along neither axis, or runs backwards."""
    return operand is not None and (operand.inner != 1 or operand.leading < 0)


def _on_copies(
    request: Request, problem: Problem, a: Any, b: SparseMatrix, options: Options, stream: Any
) -> Any:
    """Compute a product on a GPU whose operands are scattered, on copies that their library makes of them."""

    def compact(array: Any, operand: Operand | None) -> Any:
        if array is None or not _is_scattered(operand):
            return array
        return array.contiguous() if hasattr(array, "contiguous") else array.copy(order="C")

    out, residual = options.out, options.residual
    if residual is None and request.residual is not None:
        residual = out  # what it holds is added
    scattered = _is_scattered(problem.out)
    changed = replace(
        options,
        out=None if scattered else out,
        out_dtype=problem.out.dtype.name,
        residual=compact(residual, problem.epilogue.residual),
        beta=options.beta if residual is not None else None,
    )
    result = sparse_product(compact(a, problem.a), b, changed, None, None, stream)
    if scattered:
        out[...] = result
        return out
    return result


def _each_of_batch(
    request: Request, a: Any, b: SparseMatrix, options: Options, arch: str | None, stream: Any
) -> Any:
    """Compute a batch whose rows are not those of one long matrix: a product for each of its first axis."""
    axes = len(request.batch)
    a, scale_a = with_items(a, "a"), with_items(options.scale_a, "scale_a")
    residual, result = with_items(options.residual, "residual"), with_items(request.result, "out")

    def item(array: Any, index: int) -> Any:
        if array is None or not hasattr(array, "shape") or len(array.shape) < axes + 2:
            return array
        return array[0 if array.shape[0] == 1 else index]

    for index in range(request.batch[0]):
        part = replace(
            options,
            out=result[index],
            residual=None if residual is None else residual[index],
            scale_a=item(scale_a, index),
            out_dtype=None,
        )
        sparse_product(item(a, index), b, part, arch, None, stream)
    return request.result
