"""`lw.grouped_matmul`: rows of one A multiplied by different matrices, as a mixture of experts does it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.linalg.call import matmul
from lanewise.linalg.operands import View, empty, operand, require_own_elements, view_of
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.planning.planner import chain_plan, plan_of
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import Options, Request, request_of
from lanewise.linalg.scales import Scale
from lanewise.linalg.types import product_of, result_of, sums_of

#: Types of which a kernel computes all groups in one launch; those of others are computed one by one.
_AT_ONCE = ("f16", "bf16")


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    out: Any = None,
    counts: Any = None,
    out_dtype: Any = None,
    arch: str | None = None,
    **keywords: Any,
) -> Any:
    """Return the rows of `a` multiplied by the matrix of their group: one matrix of `b` for each group.

    `a` is (rows, K), `b` (groups, K, N). `offsets` are integers, one for each group: where the group's rows
    end (and the next group's begin), as in torch._grouped_mm. With `counts`, group g has only its first
    counts[g] rows; the other rows of the result are left as they are (`out`) or zero. Keywords are those of
    `lw.matmul`. Sums are one chain along K, so that a row's bits do not depend on its group's size.

    >>> import numpy as np
    >>> a, b = np.ones((3, 4), np.float16), np.stack([np.full((4, 2), x, np.float16) for x in (1, 10)])
    >>> grouped_matmul(a, b, [1, 3]).tolist()
    [[4.0, 4.0], [40.0, 40.0], [40.0, 40.0]]
    """
    left, right = view_of(a, "a"), view_of(b, "b")
    if len(left.shape) != 2 or len(right.shape) != 3 or left.shape[1] != right.shape[1]:
        raise LanewiseError(
            f"a is (rows, K) and b (groups, K, N); they have shapes {left.shape} and {right.shape}"
        )
    for name in ("residual", "scale_a", "scale_b", "plan", "beta"):
        if keywords.get(name) is not None:
            raise LanewiseError(f"lw.grouped_matmul takes no {name}=")
    if left.device != right.device:
        raise LanewiseError(f"a is {left.where} and b {right.where}; a product takes one device")
    groups, rows = right.shape[0], left.shape[0]
    ends = _integers(offsets, "offsets", groups)
    starts = [0, *ends[:-1]]
    falling = any(end < start for start, end in zip(starts, ends, strict=True))
    if falling or (ends and ends[-1] > rows):
        raise LanewiseError(f"offsets {ends} ascend from 0 to at most the {rows} rows of a")
    whole = counts is None and bool(ends) and ends[-1] == rows
    if counts is not None:
        kept = _integers(counts, "counts", groups)
        if any(not 0 <= count <= end - start for count, start, end in zip(kept, starts, ends, strict=True)):
            raise LanewiseError(f"counts {kept} are at least 0 and at most the rows of their groups")
        ends = [start + count for start, count in zip(starts, kept, strict=True)]
    product = product_of(left.format, right.format)
    given = None if out is None else view_of(out, "out")
    fmt = result_of(product, left.format, None if given is None else given.format, out_dtype, False)
    if given is None:
        out = empty(left, (rows, right.shape[2]), fmt)
        if not whole:
            out[...] = 0
        given = view_of(out, "out")
    elif given.shape != (rows, right.shape[2]):
        raise LanewiseError(f"out has shape {given.shape}; the result has {(rows, right.shape[2])}")
    require_own_elements(given, "out")
    plain = not any(value is not None for value in keywords.values())
    at_once = left.device is not None and left.library == "torch" and left.format.name in _AT_ONCE and plain
    if at_once and _in_one_launch(left, right, given, starts, ends, out):
        return out
    for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end > start:
            part = a[start:end], b[group], out[start:end]
            chained = _chain(part[0], part[1], keywords, fmt.name, arch)
            matmul(part[0], part[1], out=part[2], plan=chained, **keywords)
    return out


def _chain(a: Any, b: Any, keywords: dict[str, Any], out_dtype: str, arch: str | None) -> Any:
    """Return a plan for one group whose sums are one chain along K."""
    known = {name: value for name, value in keywords.items() if name in Options.__dataclass_fields__}
    request = request_of(a, b, Options(**known, out_dtype=out_dtype), empty_result=False)
    assert request.problem is not None
    if request.a.device is None:
        return chain_plan(request.problem, planned_arch(arch or "sm_90a"))
    from lanewise.linalg.launching.on_gpu import arch_of_device

    return chain_plan(request.problem, arch_of_device(request.a.device), fitted=True)


def _in_one_launch(
    left: View, right: View, given: View, starts: list[int], ends: list[int], out: Any
) -> bool:
    """Compute all groups in one launch on the GPU; False if kernels cannot take the arrays as they lie."""
    from lanewise.linalg.launching.on_gpu import arch_of_device, run

    ordinal = left.device
    assert ordinal is not None
    (rows, k), (groups, _, n) = left.shape, right.shape
    sums, _ = sums_of(product_of(left.format, right.format), left.format, None)
    of_b = operand(right, n, k, right.strides[2], right.strides[1], groups, right.strides[0])
    problem = Problem(
        rows,
        n,
        k,
        operand(left, rows, k, left.strides[0], left.strides[1], 1, 0),
        replace(of_b, batch_stride=right.strides[0]),
        operand(given, rows, n, given.strides[0], given.strides[1], 1, 0),
        sums,
        experts=groups,
    )
    if not (problem.a.tma and problem.b.tma and problem.out.k_major and problem.out.inner == 1 and k and n):
        return False
    if arch_of_device(ordinal) != "sm_90a" or not rows:
        return False
    torch = sys.modules["torch"]
    bounds = torch.tensor([starts, ends], dtype=torch.int32).to(f"cuda:{ordinal}", non_blocking=True)
    request = Request(
        left, right, given, None, None, Scale(), Scale(), None, 1.0, 1.0, (), rows, n, k, problem, out,
        bounds=bounds,
    )  # fmt: skip
    run(request, problem, None, plan_of(problem, "sm_90a"), None)
    return True


def _integers(given: Any, name: str, groups: int) -> list[int]:
    """Return offsets or counts as integers: one for each group."""
    values = given.tolist() if hasattr(given, "tolist") else given
    try:
        found = [int(each.__index__()) for each in values]
    except (TypeError, AttributeError):
        raise LanewiseError(f"{name} are integers, one for each group; not {given!r}") from None
    if len(found) != groups:
        raise LanewiseError(f"{name} has {len(found)} numbers; b has {groups} groups")
    return found
