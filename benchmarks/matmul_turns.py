"""Calls of random products by two checkouts of lanewise, by turns: which of them is faster, and where.

    git worktree add ../before COMMIT
    python benchmarks/matmul_turns.py ../before . --seed 7 --json turns.json
    python benchmarks/matmul_turns.py ../before . --seed 7 --changed 10  # ten times as many, with other plans

Both arguments are folders that hold `src/lanewise`. Each has a cache and processes of its own: some compile
the kernels, then one times all products with the L2 cache swept before each call, twice, by turns with that
of the other. A figure is the time of the first checkout over that of the second. What both runs of the same
checkout differ by is printed, too: smaller differences mean nothing.
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from random_shapes import Shape, shapes

#: Types of the products that are drawn, and how many of each.
KINDS = ((("bf16", "f16"), 260), (("f32",), 60), (("e4m3", "s8"), 40))
CLASSES = ("large", "small", "skinny", "long K", "batches", "odd", "f32", "e4m3", "s8")
#: Calls that are timed, and those before them.
ROUNDS, WARM_UP, WORST = 13, 3, 12
#: Processes that compile, and seconds that they may take.
PROCESSES, SECONDS = 14, 120


def drawn(seed: int, times: int = 1) -> list[Shape]:
    """Return the products of a seed, or some times as many."""
    parts = [
        shapes(seed * 1000 + 1 + number, count * times, dtypes)
        for number, (dtypes, count) in enumerate(KINDS)
    ]
    return list(dict.fromkeys(shape for part in parts for shape in part))


def plans(every: Sequence[Shape]) -> dict[str, str]:
    """Return the plans of products by this checkout, which takes no GPU."""
    from fit_planner import problem_of
    from planner_sweep import text_of

    from lanewise.linalg.planning.planner import plan_of

    return {str(shape): text_of(plan_of(problem_of(shape), "sm_90a")) for shape in every}


def work(part: str, file: Path) -> None:
    """Do a checkout's part for the products in a file, and write to it what is found: plans, or also µs."""
    from matmul_random import compile_all

    every = [Shape(**row) for row in json.loads(file.read_text(encoding="utf-8"))]
    if part == "compile":
        compile_all(every, PROCESSES, SECONDS)
        return
    if part == "plans":
        file.write_text(json.dumps(plans(every)), encoding="utf-8")
        return
    import torch
    from gpu_times import timed
    from planner_sweep import text_of
    from random_shapes import operands

    import lanewise as lw

    found: dict[str, Any] = {}
    for shape in every:
        a, b, _, keywords = operands(shape)

        def call(a: Any = a, b: Any = b, keywords: dict[str, Any] = keywords) -> Any:
            return lw.matmul(a, b, **keywords)

        for _ in range(WARM_UP):
            call()
        microseconds = median(timed(call) for _ in range(ROUNDS))
        found[str(shape)] = [round(microseconds, 2), text_of(lw.plan(a, b, **keywords).plan)]
        torch.cuda.empty_cache()
    file.write_text(json.dumps(found), encoding="utf-8")


def run(folder: Path, every: Sequence[Shape], part: str) -> dict[str, Any]:
    """Run a checkout's part in a process of its own, and return what it wrote."""
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve() / "src")}
    with tempfile.TemporaryDirectory() as at:
        file = Path(at) / "part.json"
        file.write_text(json.dumps([shape.fields() for shape in every]), encoding="utf-8")
        command = [sys.executable, __file__, "--part", part, "--json", str(file)]
        subprocess.run(command, env=environment, check=True)
        found = json.loads(file.read_text(encoding="utf-8"))
    return dict(found) if part != "compile" else {}


def rows_of(every: Sequence[Shape], runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each product: the times of before, after, before and after, and both plans."""
    return [
        {**shape.fields(), "group": shape.group, "times": [each[str(shape)][0] for each in runs],
         "plans": [each[str(shape)][1] for each in runs[:2]]}
        for shape in every
    ]  # fmt: skip


def gain(row: dict[str, Any]) -> float:
    """Return how many times as fast the second checkout is."""
    one, other, one_again, other_again = row["times"]
    return math.sqrt(one * one_again / (other * other_again))


def report(rows: list[dict[str, Any]]) -> None:
    """Print the gains of all products and of each class, the noise, and the products that lost most."""
    for name in ("all", *CLASSES):
        some = [row for row in rows if name in ("all", row["group"])]
        if some:
            gains = [gain(row) for row in some]
            print(f"{name:8s} {len(some):4d} products: {geometric_mean(gains):.3f}, least {min(gains):.3f}")
    for place, name in enumerate(("before", "after")):
        between = geometric_mean([row["times"][place] / row["times"][place + 2] for row in rows])
        print(f"both runs of {name}: {between:.3f}")
    for row in sorted(rows, key=gain)[:WORST]:
        shape = Shape(*(row[name] for name in ("m", "n", "k", "dtype", "layout", "batch", "fused")))
        before, after = row["plans"]
        print(f"  {gain(row):.3f} {shape}: {row['times'][2]} and {row['times'][3]} µs, {before} | {after}")


def main() -> None:
    """Read the command line, run both checkouts by turns, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="*", help="two checkouts: before and after")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--changed", type=int, metavar="TIMES", help="of so many times the products, those whose plans differ"
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        work(given.part, given.json)
        return
    if len(given.folders) != 2:
        parser.error("name two folders that hold src/lanewise")
    from gpu_times import save

    how, every = f"benchmarks/matmul_turns.py --seed {given.seed}", drawn(given.seed, given.changed or 1)
    if given.changed:
        before, after = (run(folder, every, "plans") for folder in given.folders)
        changed = [shape for shape in every if before[str(shape)] != after[str(shape)]]
        print(f"{len(changed)} of {len(every)} products have other plans")
        how, every = f"{how} --changed {given.changed}", changed
    for folder in given.folders:
        run(folder, every, "compile")
    rows = rows_of(every, [run(folder, every, "times") for folder in [*given.folders, *given.folders]])
    save(given.json, how, seed=given.seed, products=rows)
    report(rows)


if __name__ == "__main__":
    main()
