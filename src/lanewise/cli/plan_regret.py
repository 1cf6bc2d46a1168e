"""`lanewise plan --regret`: the planner's plan and other candidates, measured on the GPU at hand."""

from __future__ import annotations

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.linalg.problem import Operand, Problem

_TORCH_TYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "s8": "int8",
}  # fmt: skip


def measured_regret(problem: Problem, out: str | None) -> str:
    """Return a table of measured plans for a problem of contiguous arrays, and the regret of the first."""
    from lanewise.gpu import available

    if not available():
        raise LanewiseError("--regret measures plans on a GPU, and this machine has none")
    try:
        import torch
    except ImportError:
        raise LanewiseError("--regret measures products of torch's tensors: install torch") from None
    from lanewise.linalg.tuning import measure_plans

    a = _array(torch, problem.a, problem.batch, problem.m, problem.k)
    b = _array(torch, problem.b, problem.batch, problem.n, problem.k).transpose(-1, -2)
    keywords: dict[str, Any] = {} if out is None else {"out_dtype": out}
    if problem.precision:
        keywords["precision"] = problem.precision
    rows = measure_plans(a, b, **keywords)
    own, best = rows[0], min(rows, key=lambda row: row.measured)
    lines = ["", f"{'measured':>9} {'expected':>9}  plan"]
    for row in sorted(rows, key=lambda row: row.measured):
        plan, mark = row.plan, "  (the planner's own)" if row is own else ""
        parts = f", {plan.split * plan.groups} parts of K" if plan.split * plan.groups > 1 else ""
        lines.append(
            f"{row.measured:6.1f} µs {row.expected:6.1f} µs  {plan.tile[0]} × {plan.tile[1]}, cluster "
            f"{plan.cluster[0]} × {plan.cluster[1]}, {plan.schedule}{parts}"
            f"{', transposed' if plan.swap else ''}{mark}"
        )
    ratio = own.measured / best.measured
    lines.append(f"regret: {ratio:.3f} (1 if no candidate is faster than the planner's own)")
    return "\n".join(lines)


def _array(torch: Any, operand: Operand, batch: int, rows: int, k: int) -> Any:
    """Return random numbers on the GPU that lie in memory as an operand does, as rows × K."""
    lead = (batch,) if batch > 1 else ()
    shape = (*lead, rows, k) if operand.k_major else (*lead, k, rows)
    dtype = getattr(torch, _TORCH_TYPES[operand.dtype.name])
    if operand.dtype.name == "s8":
        made = torch.randint(-90, 91, shape, device="cuda", dtype=dtype)
    else:
        made = torch.randn(shape, device="cuda").to(dtype)
    return made if operand.k_major else made.transpose(-1, -2)
