"""What of a product's time is its loads, and what its products: kernels in which the other is left out.

    python benchmarks/matmul_parts.py --json parts.json

Each plan is timed as it is, without its wgmma ("loads"), without its loads by TMA ("products", on whatever
shared memory has) and without both ("neither": launch, barriers, epilogue). Timed as `benchmarks/matmul.py`
does it, medians by turns, the L2 cache swept before each run.
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from gpu_times import save, timed

import lanewise as lw
from lanewise.formats import bf16, u8
from lanewise.lang.tiles.pipeline import Pipeline
from lanewise.linalg.arrays import Pointers, device_view
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import kernel, mainloop, operand_tiles
from lanewise.linalg.kernels.hopper.launches import launches
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import problem_of_sizes

WORKSPACE_BYTES, SLEPT_CYCLES = 96 << 20, 300_000
SHAPES = (
    (5000, 5000, 5000), (5120, 5120, 5120), (3000, 3000, 3000), (3072, 3072, 3072), (4096, 4096, 4096),
    (2048, 2048, 2048), (1536, 1536, 1536), (1024, 1024, 1024), (768, 768, 768), (512, 512, 512),
    (512, 512, 32768), (256, 256, 16384), (128, 128, 65536),
)  # fmt: skip
#: What is left out of each kind of kernel: products, loads.
KINDS = {"whole": (False, False), "loads": (True, False), "products": (False, True), "neither": (True, True)}
_WHOLE: dict[str, Any] = {
    "multiply": mainloop.Mainloop.multiply,
    "load": operand_tiles.OperandTile.load,
    "commit": Pipeline.commit,
}


@lw.device
def no_products(self: Any, accumulators: Any, stage: Any, further: Any) -> Any:
    """Return the sums as they are, in place of `Mainloop.multiply`."""
    return accumulators


def no_load(self: Any, *arguments: Any) -> None:
    """Load nothing, in place of `OperandTile.load`."""


def commit_nothing(self: Any, state: Any) -> None:
    """Say that a stage is full at once, in place of `Pipeline.commit`."""
    self.full[state.stage].arrive()


def leave_out(products: bool, loads: bool) -> None:
    """Let kernels that are traced from now on have no products, or no loads."""
    cast(Any, kernel.compiled).cache_clear()
    classes: tuple[Any, Any, Any] = (mainloop.Mainloop, operand_tiles.OperandTile, Pipeline)
    classes[0].multiply = no_products if products else _WHOLE["multiply"]
    classes[1].load = no_load if loads else _WHOLE["load"]
    classes[2].commit = commit_nothing if loads else _WHOLE["commit"]


def measure(m: int, n: int, k: int, plan: Plan, rounds: int) -> dict[str, float]:
    """Return the medians of all kinds of kernels of a plan, and torch's own."""
    problem = problem_of_sizes(m, n, k, "bf16", layout="nt")
    a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16().t()
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    views = [
        device_view(0, each.data_ptr(), each.shape, each.stride(), bf16 if each is not workspace else u8)
        for each in (a, b.t(), out, workspace)
    ]
    pointers = Pointers(views[0], views[1], views[2], workspace=views[3])
    runs: dict[str, Callable[[], Any]] = {"torch": lambda: torch.matmul(a, b, out=out)}
    for kind, left_out in KINDS.items():
        leave_out(*left_out)
        every = launches(problem, plan, pointers)
        runs[kind] = partial(run, every)
        run(every)
    leave_out(False, False)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, each in runs.items():
            times[name].append(timed(each, SLEPT_CYCLES))
    return {name: round(median(each), 2) for name, each in times.items()}


def main() -> None:
    """Measure all shapes by the planner's own plans, or those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shapes", nargs="+", help="m,n,k of each")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    shapes = [tuple(map(int, each.split(","))) for each in given.shapes] if given.shapes else list(SHAPES)
    rows = []
    for m, n, k in shapes:
        plan = plan_of(problem_of_sizes(m, n, k, "bf16", layout="nt"), "sm_90a")
        found = measure(m, n, k, plan, given.rounds)
        rows.append({"m": m, "n": n, "k": k, "tile": plan.tile[:2], "cluster": plan.cluster, **found})
        print(f"{m}×{n}×{k}, {plan.tile[0]}×{plan.tile[1]}: {found}", flush=True)
        how = f"benchmarks/matmul_parts.py: medians of {given.rounds} in microseconds, by turns"
        save(given.json, how, rows=rows)


if __name__ == "__main__":
    main()
