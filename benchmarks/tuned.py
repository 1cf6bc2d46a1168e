"""What `lw.tune` gains: random products, tuned, then timed by turns against the planner's own plans.

    python benchmarks/tuned.py [--shapes 12] [--seconds 100] [--seed 20260101] [--json FILE]

Sizes, types and layouts are drawn from a seed, today's date unless one is given; half of the products have
rows that TMA cannot load. A cache folder of its own is used. In the end a new process makes every call again,
with the plans that were kept, and compares with float64. 1 is returned if a call fails or is wrong, or if a
product became slower by more than the noise of its times.
"""
# mypy: disable-error-code="no-untyped-call,misc"

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

#: Types of a and b, with what is asked for.
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bfloat16", {}), ("float16", {}), ("float16", {"out_dtype": "float32"}), ("float8_e4m3fn", {}),
    ("int8", {}), ("float32", {"precision": "tf32"}), ("float32", {}), ("bfloat16", {"activation": "gelu"}),
)  # fmt: skip
#: Rounds in which both plans are timed, and how much slower a tuned product may seem by noise.
ROUNDS, NOISE = 31, 0.03
#: By what share of the sum of absolute products a result may be wrong.
TOLERANCE = {"bfloat16": 8e-3, "float16": 2e-3, "float8_e4m3fn": 8e-3, "int8": 0.0, "float32": 2e-3}


def drawn(seed: int) -> tuple[Any, Any, dict[str, Any], str]:
    """Return two operands, the keywords of the call, and what it is in words."""
    import torch

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    name, keywords = KINDS[int(rng.integers(len(KINDS)))]
    m, n, k = (round(float(2 ** rng.uniform(3, 12.5))) for _ in range(3))
    if rng.random() < 0.5:
        m, n, k = (max(16, each // 16 * 16) for each in (m, n, k))

    def matrix(rows: int, columns: int) -> Any:
        turned = rng.random() < 0.5
        shape = (columns, rows) if turned else (rows, columns)
        if name == "int8":
            made = torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
        else:
            made = torch.randn(shape, device="cuda").to(getattr(torch, name))
        return made.T if turned else made

    a, b = matrix(m, k), matrix(k, n)
    majors = "".join("n" if each.stride(-1) == 1 else "t" for each in (a, b))
    return a, b, keywords, f"{m}×{n}×{k} {name} {majors} {keywords or ''}".strip()


def tuned_and_timed(seed: int) -> tuple[str, float, float, bool]:
    """Tune one product; returns what it is, microseconds with the planner's plan and now, and the change."""
    from gpu_times import timed

    import lanewise as lw

    a, b, keywords, words = drawn(seed)
    usual = lw.plan(a, b, **keywords)
    found = lw.tune(a, b, progress=False, **keywords)
    calls = {
        "usual": lambda: lw.matmul(a, b, plan=usual, **keywords),
        "tuned": lambda: lw.matmul(a, b, **keywords),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 10):
        for name in calls if number % 2 else reversed(calls):
            took = timed(calls[name], reads=True)
            if number >= 10:  # the first ones record the launches
                times[name].append(took)
    changed = replace(found.plan, why="") != replace(usual.plan, why="")
    return words, median(times["usual"]), median(times["tuned"]), changed


def checked(seeds: list[int]) -> int:
    """Make the calls of some seeds with what is kept; returns how many fail or are wrong."""
    import torch

    import lanewise as lw

    wrong = 0
    for seed in seeds:
        a, b, keywords, words = drawn(seed)
        try:
            result = lw.matmul(a, b, **keywords).double()
        except Exception as error:
            print(f"  {words}: {type(error).__name__}: {error}")
            wrong += 1
            continue
        exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        if "activation" in keywords:
            exact = torch.nn.functional.gelu(exact)
        allowed = TOLERANCE[str(a.dtype).removeprefix("torch.")] * (exact.abs() + 0.1 * size) + 1e-6
        if bool(((result - exact).abs() > allowed).any()):
            print(f"  {words}: the result is wrong")
            wrong += 1
    return wrong


def main() -> int:
    """Tune, time, check in a new process, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shapes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", type=int, nargs="*", help="make these calls only")
    given = parser.parse_args()
    if given.check is not None:
        return checked(given.check)
    began = time.time()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LANEWISE_CACHE_DIR"] = folder
        rows, seeds = [], []
        for number in range(given.shapes):
            if time.time() - began > given.seconds:
                break
            seeds.append(given.seed * 1000 + number)
            words, usual, tuned, changed = tuned_and_timed(seeds[-1])
            rows.append((words, usual, tuned, changed))
            mark = "kept" if changed else "planner's own"
            print(f"{usual:9.1f} µs → {tuned:8.1f} µs, {usual / tuned:5.2f}×  {mark:<14} {words}", flush=True)
        script = [sys.executable, __file__, "--check", *map(str, seeds)]
        wrong = subprocess.run(script, check=False).returncode
    gains = [usual / tuned for _, usual, tuned, _ in rows]
    slower = [row for row in rows if row[2] > row[1] * (1 + NOISE)]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    print(
        f"seed {given.seed}: {len(rows)} products, {sum(row[3] for row in rows)} plans kept; tuned ones run "
        f"at {mean:.3f}× the speed (from {min(gains):.2f} to {max(gains):.2f}), {len(slower)} slower, "
        f"{wrong} wrong"
    )
    if given.json:
        from gpu_times import save

        save(given.json, f"benchmarks/tuned.py --seed {given.seed}", products=rows, mean=mean, wrong=wrong)
    return 1 if wrong or slower else 0


if __name__ == "__main__":
    sys.exit(main())
