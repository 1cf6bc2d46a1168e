"""Products with weights that `lw.quantize` made: few rows by a kernel that unpacks, many by unpacked weights.

The order of sums is part of what a call asks for: it depends on the number of rows and on the result's type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.linalg.kernels.int4.packing import CHUNK
from lanewise.linalg.kernels.int4.plans import Tile, int4_plan
from lanewise.linalg.operands import View, empty, note_written, of_library, view_of
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.problem import Problem
from lanewise.linalg.quantize import QuantizedMatrix
from lanewise.linalg.rules import Request, request_of

if TYPE_CHECKING:
    from lanewise.linalg.launch.known_calls import CallKind

#: Rows up to which a kernel unpacks weights as it multiplies, each time it reads them.
MOST_UNPACKING_ROWS = 1024
#: The archs of this kernel: a GPU of sm_90 is planned as sm_90a.
_ARCHS = ("sm_90", "sm_90a")
#: Bits of the results that it stores.
_LEAST_BITS = 16


def product(
    a: object, b: QuantizedMatrix, options: Options, known: CallKind | None,
    dense: Callable[[Any, Any, Options], Any], one_by_one: Callable[[Request, Any, Any, Options], None],
) -> Any:  # fmt: skip
    """Return the product with quantized weights; `known` keeps its launch, `dense` multiplies two arrays, and
    `one_by_one` computes matrices of a batch that do not lie as one."""
    for name in ("accumulate", "precision", "plan", "scale_a", "scale_b"):
        if getattr(options, name) is not None:
            raise LanewiseError(f"products with weights of lw.quantize take no {name}=")
    left = view_of(a, "a")
    # b stands for a matrix of its type that is nowhere
    kept = View((b.k, b.shape[1]), (1, b.k), b.format, 0, left.library, left.device, None)
    request = request_of(a, b, options, kept=kept)
    problem = request.problem
    if options.arch is not None and planned_arch(options.arch) not in _ARCHS:
        raise LanewiseError(f"products with weights of lw.quantize are for sm_90a, not for {options.arch}")
    if problem is None or problem.batch > 1:
        one_by_one(request, a, b, options)
        return _returned(request, a, options)
    few = options.batch_invariant or problem.m <= MOST_UNPACKING_ROWS
    few = few and problem.out.dtype.bits >= _LEAST_BITS and b.k > 0
    if left.device is None:
        if not few:
            return dense(a, b.rows().T, options)
        _on_cpu(request, problem, b, int4_plan(problem, b.chunks))
    elif not few:
        call = UnpackedCall(dense)
        if known is not None and left.library == "torch":
            from lanewise.linalg.launch.known_calls import remember

            remember(known.key, call)
        return call(a, b, options)
    else:
        from lanewise.linalg.launch.int4 import multiply

        prepared = multiply(request, problem, b, int4_plan(problem, b.chunks))
        if known is not None and prepared is not None:
            known.remember(prepared, request, options)
    return _returned(request, a, options)


def _returned(request: Request, a: object, options: Options) -> Any:
    note_written(options.out)
    return of_library(request.a, a, request.result) if options.out is None else options.out


class UnpackedCall:
    """What makes a kind of call with many rows: weights are unpacked, and `dense` multiplies."""

    #: It is not given to machine code; the product that it makes is.
    calls = 0

    def __init__(self, dense: Callable[[Any, Any, Options], Any]) -> None:
        self.dense = dense

    def __call__(self, a: object, b: QuantizedMatrix, options: Options) -> Any:
        return self.dense(a, _unpacked(b, view_of(a, "a")), options)


def _on_cpu(request: Request, problem: Problem, b: QuantizedMatrix, tile: Tile) -> None:
    """Compute a product in host memory, in the order in which the blocks of the kernel sum."""
    from lanewise.linalg.cpu.epilogue import as_matrices
    from lanewise.linalg.cpu.sums import compute

    share = -(-b.chunks // tile.parts)
    parts = -(-b.chunks // share)
    k = parts * share * CHUNK
    rows = np.ascontiguousarray(as_matrices(request.a.array, request.a.shape))
    x = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, k - b.k)])
    w = np.pad(b.rows(), ((0, 0), (0, k - b.k))).T
    whole = replace(request, a=view_of(x, "a"), b=view_of(w, "b"), k=k)
    plan = Plan("warpgroup", "sm_90a", (128, 128, CHUNK), 2, groups=parts)
    compute(whole, replace(problem, k=k), plan)


def _unpacked(b: QuantizedMatrix, like: View) -> Any:
    """Return the weights (K, N) on a GPU, unpacked into memory of the array's library."""
    from lanewise.linalg.launch.int4 import unpack

    rows = empty(like, (b.shape[1], b.chunks * CHUNK), b.format)
    if b.k:
        unpack(b, like, view_of(rows, "b"))
    return rows[:, : b.k].T if like.library != "torch" else rows[:, : b.k].mT
