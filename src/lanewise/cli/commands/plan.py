"""`lanewise plan`: which kernel `lw.matmul` runs for a product, in which tiles, how fast and why."""

from __future__ import annotations

from typing import Annotated

import typer


def plan(
    m: Annotated[int, typer.Argument(min=1, help="Rows of A and of the result.")],
    n: Annotated[int, typer.Argument(min=1, help="Columns of B and of the result.")],
    k: Annotated[int, typer.Argument(min=1, help="Columns of A and rows of B.")],
    dtype: Annotated[
        str, typer.Option("--dtype", help="f16, bf16, f32, f64, e4m3, e5m2, s8, mxfp8, mxfp4, nvfp4.")
    ] = "bf16",
    out: Annotated[str | None, typer.Option("--out", help="The type of the result.")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="How to multiply f32: as f32 or as tf32.")
    ] = None,
    layout: Annotated[
        str, typer.Option("--layout", help="nn, nt, tn or tt: t for a transposed A or B.")
    ] = "nn",
    batch: Annotated[int, typer.Option("--batch", min=1, help="How many products a batch has.")] = 1,
    arch: Annotated[
        str, typer.Option("--arch", help="sm_75 … sm_90a, sm_100a, sm_120, or a GPU.")
    ] = "sm_90a",
    batch_invariant: Annotated[
        bool, typer.Option("--batch-invariant", help="Choose the order of sums from N, K and types alone.")
    ] = False,
    regret: Annotated[
        bool, typer.Option("--regret", help="Measure the plan and other candidates on this GPU.")
    ] = False,
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
    from lanewise.linalg.planning.gpus import planned_arch
    from lanewise.linalg.planning.sizes import problem_of_sizes

    if layout not in ("nn", "nt", "tn", "tt"):
        raise LanewiseError(f"--layout is nn, nt, tn or tt; not {layout!r}")
    problem = problem_of_sizes(
        m,
        n,
        k,
        dtype,
        out=out,
        precision=precision,
        layout=layout,
        batch=batch,
        batch_invariant=batch_invariant,
    )
    print(planned(problem, planned_arch(arch)))
    if regret:
        from lanewise.cli.plan_regret import measured_regret

        print(measured_regret(problem, out))
