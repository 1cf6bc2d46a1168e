"""lw.matmul on random products that nobody measured before, against the better of torch and cuBLASLt.

    python benchmarks/matmul_random.py --seed 7 --seconds 240 --json random.json [--only main e4m3 f32 groups]

Sizes are log-uniform from 1 to 16384, in steps of 1, 8 and 64; operands are bf16 and f16 in four layouts, in
batches of 1, 4 and 16. cuBLASLt is the fastest of its heuristic's first eight algorithms. Calls are timed by
turns, the L2 cache swept before each; times are medians. Several processes compile the kernels first. A JSON
file that exists is continued: what it has of the same seed is not measured again. The command returns 1 if a
call fails or its result is far from the library's.
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import fields
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Any

import numpy as np
from random_shapes import Shape, operands, shapes

#: The kinds of products, with their types and how many of them are drawn.
KINDS = {"main": (("bf16", "f16"), 240), "e4m3": (("e4m3", "s8"), 80), "f32": (("f32",), 40)}
GROUPS = 12
#: Rounds that are timed, those by which cuBLASLt's algorithms are compared, and calls before them.
ROUNDS, FIRST_ROUNDS, WARM_UP = 21, 5, 9
#: The most seconds that one product's rounds take.
MOST_SECONDS = 1.0
#: The goals for classes of products: geometric mean, and the least.
GOALS = {
    "all": (1.30, 0.95), "large": (1.00, 0.98), "small": (1.10, 0.97), "skinny": (1.10, 0.97),
    "long K": (1.10, 0.97), "batches": (1.10, 0.97), "odd": (4.0, 1.0), "e4m3": (1.05, 0.97),
    "s8": (1.05, 0.97), "f32": (2.0, 1.0), "groups": (1.3, 0.0),
}  # fmt: skip
#: Classes of which "all" consists.
ALL = ("large", "small", "skinny", "long K", "batches", "odd")
WORST = 12
#: What nothing is faster than on an H200: microseconds of an empty kernel between two events, bytes and
#: products of numbers of a microsecond. f32 takes six products of bf16.
EMPTY, MEMORY = 3.0, 4.3e6
PRODUCTS = {"bf16": 3.75e8, "f16": 3.75e8, "e4m3": 7.5e8, "s8": 7.5e8, "f32": 3.75e8 / 6}


def compile_some(number: int, workers: int, every: list[Shape], until: float) -> None:
    """Make the launches of some products, which the cache folder keeps."""
    import torch

    import lanewise as lw

    for shape in every[number::workers]:
        if time.time() > until:
            return
        try:
            a, b, _, keywords = operands(shape)
            lw.matmul(a, b, **keywords)
            torch.cuda.synchronize()
        except Exception as error:  # said when it is measured
            print(f"{shape}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        torch.cuda.empty_cache()


def compile_all(every: list[Shape], workers: int, seconds: float) -> None:
    """Make the launches of all products by several processes."""
    spawn = get_context("spawn")
    until = time.time() + seconds
    running = [spawn.Process(target=compile_some, args=(n, workers, every, until)) for n in range(workers)]
    for each in running:
        each.start()
    for each in running:
        each.join(max(1.0, until + 20 - time.time()))
        if each.is_alive():
            each.terminate()


def times_of(runs: dict[str, Any], rounds: int, seconds: float) -> dict[str, float]:
    """Return the median microseconds of each run, all of them by turns."""
    from gpu_times import timed

    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.time()
    for number in range(rounds):
        for name in runs if number % 2 == 0 else reversed(list(runs)):
            times[name].append(timed(runs[name]))
        if number >= FIRST_ROUNDS and time.time() - began > seconds:
            break
    return {name: median(each) for name, each in times.items()}


def measured(shape: Shape, lt: Any) -> dict[str, Any]:
    """Return a row of the record: microseconds of lanewise, torch and cuBLASLt, and the ratio."""
    import torch
    from planner_sweep import is_wrong, library_runs, text_of, works

    import lanewise as lw

    a, b, out, keywords = operands(shape)
    out.zero_()
    row: dict[str, Any] = {**shape.fields(), "group": shape.group}

    def own() -> Any:
        return lw.matmul(a, b, **keywords)

    for _ in range(WARM_UP):
        own()
    torch.cuda.synchronize()
    runs = {name: run for name, run in library_runs(shape, a, b, keywords, lt).items() if works(run)}
    if shape.dtype in ("bf16", "f16", "f32"):
        row["wrong"] = is_wrong(out, torch.matmul(a, b), shape.k)
    algorithms = {name: run for name, run in runs.items() if name != "torch"}
    peers = {"torch": runs["torch"]} if "torch" in runs else {}
    if algorithms:
        first = times_of(algorithms, FIRST_ROUNDS, MOST_SECONDS / 2)
        peers["cublaslt"] = algorithms[min(first, key=lambda name: first[name])]
    found = times_of({"lanewise": own, **peers}, ROUNDS, MOST_SECONDS)
    row |= {name: round(value, 2) for name, value in found.items()}
    row["ratio"] = round(min(found[name] for name in peers) / found["lanewise"], 4) if peers else None
    plan = lw.plan(a, b, **keywords)
    row["plan"] = text_of(plan.plan)
    row["expected"] = round(plan.estimate.seconds * 1e6, 2)
    return row


def grouped(seed: int, count: int) -> list[tuple[list[int], int, int]]:
    """Return products of experts: the ends of their rows, N and K. A few have most of the rows."""
    rng = np.random.default_rng(seed * 10 + 9)
    drawn = []
    for _ in range(count):
        experts = int(rng.choice([8, 16, 32, 64, 128, 256]))
        rows = int(2 ** rng.uniform(8, 14)) // 8 * 8
        shares = rng.dirichlet(np.full(experts, 0.5))
        ends = np.round(np.cumsum(shares) * rows).astype(int)
        ends[-1] = rows
        n, k = (int(2 ** rng.uniform(9, 13)) // 64 * 64 for _ in range(2))
        drawn.append((ends.tolist(), n, k))
    return drawn


def measured_group(ends: list[int], n: int, k: int) -> dict[str, Any]:
    """Return a row of the record for one grouped product."""
    import torch

    import lanewise as lw

    a = torch.randn(ends[-1], k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(len(ends), k, n, device="cuda", dtype=torch.bfloat16)
    on_gpu = torch.tensor(ends, device="cuda", dtype=torch.int32)

    def own() -> Any:
        return lw.grouped_matmul(a, b, on_gpu)

    def loop() -> None:
        for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                torch.matmul(a[start:end], b[group])

    runs: dict[str, Any] = {"lanewise": own, "loop": loop}
    if hasattr(torch, "_grouped_mm"):
        runs["torch"] = lambda: torch._grouped_mm(a, b, on_gpu)
    for _ in range(WARM_UP):
        own()
    for name in list(runs):
        try:
            runs[name]()
            torch.cuda.synchronize()
        except RuntimeError:
            del runs[name]
    found = times_of(runs, ROUNDS, MOST_SECONDS)
    others = [value for name, value in found.items() if name != "lanewise"]
    row: dict[str, Any] = {"m": ends[-1], "n": n, "k": k, "experts": len(ends), "group": "groups"}
    row |= {name: round(value, 2) for name, value in found.items()}
    return {**row, "ratio": round(min(others) / found["lanewise"], 4)}


def report(rows: list[dict[str, Any]]) -> None:
    """Print each class's geometric mean, 10th percentile and least ratio, and the worst products."""
    for name in GOALS:
        ratios = [row["ratio"] for row in rows if row.get("ratio") and _is_of(row, name)]
        if not ratios:
            continue
        tenth = quantiles(ratios, n=10, method="inclusive")[0] if len(ratios) > 1 else ratios[0]
        mean, least = GOALS[name]
        bounds = [bound(row) for row in rows if row.get("ratio") and _is_of(row, name) and "dtype" in row]
        print(
            f"{name:8s} {len(ratios):4d} products: mean {geometric_mean(ratios):.3f} (goal {mean:.2f}), "
            f"10th percentile {tenth:.3f}, least {min(ratios):.3f} (goal {least:.2f})"
            + (f"; bound of the mean {geometric_mean(bounds):.2f}" if bounds else "")
        )
    worst = sorted((row for row in rows if row.get("ratio")), key=lambda row: row["ratio"])
    for row in worst[:WORST]:
        print(f"  {row['ratio']:.3f} {_words(row)}: {row['lanewise']} µs, {row.get('plan', '')}")
    alone = sum(row.get("ratio") is None for row in rows)
    wrong = [_words(row) for row in rows if row.get("wrong")]
    print(f"{alone} products that nobody else computes; wrong: {', '.join(wrong) or 'none'}")


def bound(row: dict[str, Any]) -> float:
    """Return the ratio if a product took no longer than an empty kernel and its bytes, or its products."""
    shape = Shape(**{each.name: row[each.name] for each in fields(Shape)})
    microseconds: float = EMPTY + max(shape.bytes / MEMORY, shape.products / PRODUCTS[shape.dtype])
    return min(float(row[name]) for name in ("torch", "cublaslt") if name in row) / microseconds


def _is_of(row: dict[str, Any], name: str) -> bool:
    return row["group"] in ALL if name == "all" else row["group"] == name


def _words(row: dict[str, Any]) -> str:
    if "experts" in row:
        return f"{row['experts']} experts, {row['m']}×{row['n']}×{row['k']}"
    names = ("m", "n", "k", "dtype", "layout", "batch", "fused")
    return str(Shape(*(row[name] for name in names)))


def main() -> int:
    """Read the command line, compile, measure until the time is over, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")))
    parser.add_argument("--only", nargs="*", default=[*KINDS, "groups"], choices=[*KINDS, "groups"])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--shapes", type=int, help="how many products of each kind")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--processes", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 2)))
    given = parser.parse_args()
    began = time.time()
    rows: list[dict[str, Any]] = []
    if given.json and given.json.exists():
        old = json.loads(given.json.read_text(encoding="utf-8"))
        rows = old["products"] if old["seed"] == given.seed else []
    done = {_words(row) for row in rows}
    every: list[Shape] = []
    for number, (name, (dtypes, count)) in enumerate(KINDS.items()):
        if name in given.only:
            every += shapes(given.seed * 10 + number, given.shapes or count, dtypes)
    every = [each for each in dict.fromkeys(every) if str(each) not in done]
    if given.processes > 1 and every:
        compile_all(every, given.processes, given.seconds * 0.4)
        print(f"{len(every)} products compiled after {time.time() - began:.0f} s", flush=True)
    import torch
    from cublaslt import CublasLt
    from gpu_times import save

    lt, failed = CublasLt(), 0
    jobs: list[Any] = [lambda shape=shape: measured(shape, lt) for shape in every]
    if "groups" in given.only:
        some = grouped(given.seed, GROUPS)
        jobs += [lambda job=job: measured_group(*job) for job in some]
        jobs = jobs[-len(some) :] + jobs[: -len(some)]
    for job in jobs:
        if time.time() - began > given.seconds:
            print("the time is over; run it again with --json to continue")
            break
        try:
            rows.append(job())
        except Exception as error:
            failed += 1
            print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
        torch.cuda.empty_cache()
    save(given.json, f"benchmarks/matmul_random.py --seed {given.seed}", seed=given.seed, products=rows)
    print(f"seed {given.seed}, {time.time() - began:.0f} s")
    report(rows)
    return 1 if failed or any(row.get("wrong") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
