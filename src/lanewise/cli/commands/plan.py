"""`lanewise plan`: which kernel `lw.matmul` runs for a product, in which tiles, how fast and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.input.options import flag, with_groups

if TYPE_CHECKING:
    from lanewise.linalg.problem import Operand, Problem

#: What torch calls the types of operands.
_TORCH_TYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "s8": "int8",
}  # fmt: skip


#: Bytes of an operand that no GPU has memory for; the largest have less than 1 TiB.
_MOST_BYTES = 1 << 40


@dataclass(frozen=True)
class ProductOptions:
    """What is multiplied, beside the sizes: types, layout, batch."""

    dtype: Annotated[str, flag("--dtype", "f16, bf16, f32, f64, e4m3, e5m2, s8, mxfp8, mxfp4, nvfp4.")] = (
        "bf16"
    )
    out: Annotated[str | None, flag("--out", "The type of the result.")] = None
    precision: Annotated[str | None, flag("--precision", "How to multiply f32: as f32 or as tf32.")] = None
    layout: Annotated[str, flag("--layout", "nn, nt, tn or tt: t for a transposed A or B.")] = "nn"
    batch: Annotated[int, typer.Option("--batch", min=1, help="How many products a batch has.")] = 1
    batch_invariant: Annotated[
        bool, flag("--batch-invariant", "Choose the order of sums from N, K and types alone.")
    ] = False


@with_groups
def plan(
    m: Annotated[int, typer.Argument(min=1, help="Rows of A and of the result.")],
    n: Annotated[int, typer.Argument(min=1, help="Columns of B and of the result.")],
    k: Annotated[int, typer.Argument(min=1, help="Columns of A and rows of B.")],
    product: ProductOptions,
    arch: Annotated[str, flag("--arch", "sm_75 … sm_90a, sm_100a, sm_120, or a GPU.")] = "sm_90a",
    regret: Annotated[bool, flag("--regret", "Measure the plan and other candidates on this GPU.")] = False,
) -> None:
    """Say which plan `lw.matmul` has for a product: kernel, tile, stages, split, waves, bound, and why.

    \b
    lanewise plan 4096 4096 4096 --dtype bf16
    lanewise plan 16 4096 14336 --dtype e4m3 --out bf16 --layout nt
    lanewise plan 4096 4096 4096 --dtype nvfp4 --arch sm_100a
    lanewise plan 1152 1152 1152 --regret
    """
    from lanewise.errors import LanewiseError
    from lanewise.linalg.matmul import planned
    from lanewise.linalg.operands import in_units
    from lanewise.linalg.planning.gpus import planned_arch
    from lanewise.linalg.rules import problem_of_sizes

    if product.layout not in ("nn", "nt", "tn", "tt"):
        raise LanewiseError(f"--layout is nn, nt, tn or tt; not {product.layout!r}")
    problem = problem_of_sizes(m, n, k, **vars(product))
    operands = {"A": (problem.a, m * k), "B": (problem.b, k * n), "the result": (problem.out, m * n)}
    for name, (operand, elements) in operands.items():
        size = product.batch * elements * operand.dtype.word_bits // 8
        if size > _MOST_BYTES:
            raise LanewiseError(f"{name} takes {in_units(size)}, more than any GPU has: give smaller sizes")
    print(planned(problem, planned_arch(arch)))
    if regret:
        print(_measured_regret(problem, product.out))


def _measured_regret(problem: Problem, out: str | None) -> str:
    """Return a table of measured plans for a problem of contiguous arrays, and the regret of the first."""
    from lanewise.errors import LanewiseError
    from lanewise.gpu import available

    if not available():
        raise LanewiseError("--regret measures plans on a GPU, and this machine has none")
    try:
        import torch
    except ImportError:
        raise LanewiseError("--regret measures products of torch's tensors: install torch") from None
    from lanewise.linalg.tune import measure_plans

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
