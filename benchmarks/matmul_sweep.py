"""Time plans of the Hopper kernels against torch, by turns, and write the fastest as the planner's table.

    python benchmarks/matmul_sweep.py plan 4096,4096,4096 64,14336,4096 --jobs jobs.json
    python benchmarks/matmul_sweep.py run jobs.json --out src/lanewise/linalg/measured/h200.json

The first command lists the plans that the model finds worth trying; it needs no GPU. The second compiles
their kernels by several processes, checks each result against torch's, and times all of them: in each round
every plan and torch (with cuBLAS and with cuBLASLt) run once, the L2 cache swept before each. Figures are
medians.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lanewise.formats import bf16, f32
from lanewise.linalg.kernels.hopper.candidates import traits_for
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.hopper_model import hopper_plans
from lanewise.linalg.planning.measured import fields_of
from lanewise.linalg.planning.measured import plan_from as plan_of_fields
from lanewise.linalg.pointers import Pointers
from lanewise.linalg.problem import Operand, Problem

#: Which of A and B is contiguous along K, by BLAS's names of layouts.
LAYOUTS = {"NN": (True, False), "NT": (True, True), "TN": (False, False), "TT": (False, True)}
#: Cycles that the GPU sleeps before a launch, for the host to be ahead of it.
SLEPT_CYCLES = 60_000


def problem_of(m: int, n: int, k: int, layout: str) -> Problem:
    """Return the problem of bf16 matrices without gaps."""
    a_k, b_k = LAYOUTS[layout]

    def operand(k_major: bool, leading: int) -> Operand:
        alignment = next(each for each in (16, 8, 4, 2) if leading * 2 % each == 0)
        return Operand(bf16, k_major, leading, 0, alignment)

    a, b = operand(a_k, k if a_k else m), operand(b_k, k if b_k else n)
    return Problem(m, n, k, a, b, operand(True, n), f32)


def plan_from(fields: dict[str, Any]) -> Plan:
    """Return the plan of a row of JSON."""
    return plan_of_fields(fields, "sm_90a", "")


def named(plan: Plan) -> str:
    """Return a short name for tables."""
    rows, columns, _ = plan.tile
    more = f" {plan.split}x{plan.groups} parts" if plan.split * plan.groups > 1 else ""
    more += " gathered" if plan.gather else ""
    turned = " swapped" if plan.swap else ""
    return f"{rows}x{columns} {plan.cluster} {plan.schedule[:4]} {plan.stages} stages{more}{turned}"


def list_jobs(shapes: list[str], layouts: list[str], count: int, path: Path) -> None:
    """Write the plans that are worth trying for some shapes."""
    jobs = []
    for text in shapes:
        m, n, k = map(int, text.split(","))
        for layout in layouts:
            plans = hopper_plans(problem_of(m, n, k, layout), count)
            rows = [fields_of(plan) for plan in plans]
            jobs.append({"m": m, "n": n, "k": k, "layout": layout, "plans": rows})
    path.write_text(json.dumps(jobs))


def compile_one(job: tuple[tuple[int, int, int, str], dict[str, Any]]) -> str:
    """Fill the disk cache with a plan's machine code; return what went wrong, if anything did."""
    from lanewise.gpu.assemble import cubin
    from lanewise.gpu.device import context
    from lanewise.linalg.kernels.hopper.kernel import compiled

    plan = plan_from(job[1])
    try:
        cubin(compiled(traits_for(problem_of(*job[0]), plan)).module("sm_90a"), context(0))
    except Exception as error:
        return f"{job[0]} {named(plan)}: {error}"
    return ""


def measure(job: dict[str, Any], rounds: int, workspace: Any) -> dict[str, Any]:
    """Time the plans of one shape; return a row of the table."""
    import torch
    from gpu_times import timed

    from lanewise.linalg.kernels.family import run as make
    from lanewise.linalg.kernels.hopper.launches import launches

    m, n, k, layout = job["m"], job["n"], job["k"], job["layout"]
    problem = problem_of(m, n, k, layout)
    a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
    a = a if problem.a.k_major else a.t().contiguous().t()
    b = b.t().contiguous().t() if problem.b.k_major else b
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    wanted = torch.matmul(a, b).float()

    def by(library: str) -> Any:
        def run() -> None:
            torch.backends.cuda.preferred_blas_library(library)
            torch.matmul(a, b, out=c)

        return run

    runs: dict[Any, Any] = {"cublas": by("cublas"), "cublaslt": by("cublaslt")}
    for fields in job["plans"]:
        plan = plan_from(fields)
        try:
            every = launches(problem, plan, Pointers(a, b, c, workspace=workspace))
            c.fill_(float("nan"))
            make(every)
            unlike = ~((c.float() - wanted).abs() <= 0.02 * (wanted.abs() + k**0.5))
            if int(unlike.sum()):
                raise ValueError(f"{int(unlike.sum())} elements are wrong")
        except Exception as error:
            print(m, n, k, layout, named(plan), "failed:", str(error)[:200], flush=True)
            continue
        runs[plan] = lambda every=every: make(every)
    times: dict[Any, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            taken = timed(run, SLEPT_CYCLES)
            if number >= 2:
                times[name].append(taken)
    median = {name: sorted(each)[len(each) // 2] for name, each in times.items()}
    library = min(median.pop("cublas"), median.pop("cublaslt"))
    ours = sorted(median.items(), key=lambda each: each[1])
    best, time = ours[0]
    tflops, share = 2e-6 * m * n * k / time, library / time
    print(
        f"{m}x{n}x{k} {layout}: {time:.1f} us, {tflops:.0f} TF, {share:.3f} of {library:.1f} us", flush=True
    )
    for plan, each in ours[:4]:
        print(f"    {named(plan):52s} {each:8.1f} us", flush=True)
    majors = ("t" if problem.a.k_major else "n") + ("n" if problem.b.k_major else "t")
    return {
        "kind": f"bf16·bf16→bf16 f32 {majors}", "m": m, "n": n, "k": k,
        "plan": fields_of(best),
        "us": round(time, 2), "library_us": round(library, 2), "share": round(share, 3),
    }  # fmt: skip


def run_jobs(path: Path, out: Path, rounds: int) -> None:
    """Compile, check and time all plans of a list; write the table."""
    import torch
    from gpu_times import circumstances

    jobs = json.loads(path.read_text())
    every = [((job["m"], job["n"], job["k"], job["layout"]), plan) for job in jobs for plan in job["plans"]]
    unique = {traits_for(problem_of(*key), plan_from(plan)): (key, plan) for key, plan in every}
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
        for problem in filter(None, pool.map(compile_one, unique.values(), chunksize=4)):
            print("not compiled:", problem, flush=True)
    print(len(unique), "kernels", flush=True)
    found: dict[str, Any] = {**circumstances(), "plans": []}
    workspace = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
    for job in jobs:
        try:
            found["plans"].append(measure(job, rounds, workspace))
        except Exception as error:
            print(job["m"], job["n"], job["k"], "failed:", str(error)[:300], flush=True)
        out.write_text(json.dumps(found, indent=1, ensure_ascii=False, default=str))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan")
    plan.add_argument("shapes", nargs="+")
    plan.add_argument("--layouts", nargs="+", default=["NT"], choices=LAYOUTS)
    plan.add_argument("--count", type=int, default=8)
    plan.add_argument("--jobs", type=Path, default=Path("jobs.json"))
    run = commands.add_parser("run")
    run.add_argument("jobs", type=Path)
    run.add_argument("--out", type=Path, default=Path("h200.json"))
    run.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if given.command == "plan":
        list_jobs(given.shapes, given.layouts, given.count, given.jobs)
    else:
        run_jobs(given.jobs, given.out, given.rounds)


if __name__ == "__main__":
    main()
