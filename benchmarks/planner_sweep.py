"""Times of many plans for many random products: what the planner's model is fitted to.

    python benchmarks/planner_sweep.py --seed 1 --seconds 380 --record h200_plans.json
    python benchmarks/planner_sweep.py --short …  # products of short K, half of their plans by mma.sync
    python benchmarks/planner_sweep.py --list products.json …  # [{"m": …, "n": …, "k": …, "plans": […]}, …]

Workers share the GPU. Each of them draws its products and compiles the kernels of their plans, which takes
most of the time; then it holds a lock while it times them, by turns and the L2 cache swept before each run,
beside torch and cuBLASLt. What a record already has is not measured again. A record has one row for each
product: what it is, the library's microseconds, and those of each plan.
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from random_shapes import Shape, operands, shapes

from lanewise.errors import LanewiseError
from lanewise.linalg.plan import Plan

#: Rounds in which all plans of a product are timed, those in which the best of them are, and how many.
SCREENING, FINAL, FINALISTS = 7, 15, 6
#: Plans that a row has at least, where the time was over before all were compiled.
LEAST_PLANS = 2
#: Seconds that one product's rounds may take.
MOST_SECONDS = 1.2
#: Seeds of the parts of a sweep: types, the share with bias and gelu, and the share of all products.
PARTS = ((("bf16", "f16"), 0.06, 0.42), (("e4m3", "s8"), 0.0, 0.14), (("f32", "tf32"), 0.0, 0.1))
#: The same for single products of at least 64 rows and columns, whose sizes are multiples of 8 or 64, and the
#: fewest products of numbers.
MATRICES = (
    (("bf16", "f16"), 0.1, 0.24, 0.0), (("e4m3", "s8"), 0.0, 0.08, 0.0), (("bf16", "f16"), 0.1, 0.16, 4e9),
    (("e4m3", "s8"), 0.0, 0.04, 4e9),
)  # fmt: skip
LEAST_SIZE = 64
#: The longest K of products that are short, and the fewest results.
SHORT, LEAST_RESULTS = 320, 1 << 19
#: How much longer than the best a candidate may take by the planner's model, and how many of a kind there
#: are.
NEAR, MOST_OF_A_KIND = 1.45, 3
#: The most stages of a plan.
_MOST_STAGES = 16


def drawn(seed: int, count: int) -> list[Shape]:
    """Return the products of a sweep, its parts mixed; three quarters of the odd ones are left out."""
    mixed: list[tuple[float, Shape]] = []
    for number, (dtypes, fused, share) in enumerate(PARTS):
        made = [
            each
            for place, each in enumerate(shapes(seed * 10 + number, 2 * int(count * share), dtypes, fused))
            if each.is_aligned or place % 4 == 0
        ]
        mixed += [(place / len(made), each) for place, each in enumerate(made)]
    for number, (dtypes, fused, share, least) in enumerate(MATRICES):
        made = [
            each
            for each in shapes(seed * 10 + 5 + number, 40 * int(count * share), dtypes, fused)
            if each.is_aligned and each.batch == 1 and min(each.m, each.n, each.k) >= LEAST_SIZE
            if each.products >= least
        ][: int(count * share)]
        mixed += [(place / len(made), each) for place, each in enumerate(made)]
    return [each for _, each in sorted(mixed, key=lambda pair: pair[0])]


def drawn_short(seed: int, count: int) -> list[Shape]:
    """Return products of short K with many results."""
    found: list[Shape] = []
    while len(found) < count:
        every = shapes(seed * 1000 + len(found), 40 * count, ("bf16", "f16"))
        found += [x for x in every if x.k <= SHORT and x.m * x.n * x.batch >= LEAST_RESULTS]
    return found[:count]


def jobs(given: argparse.Namespace) -> list[tuple[Shape, list[Plan]]]:
    """Return the products of a sweep, each with its plans if there is a list of them."""
    if given.list is None:
        drawing = drawn_short if given.short else drawn
        return [(shape, []) for shape in drawing(given.seed, given.shapes)]
    rows = json.loads(given.list.read_text(encoding="utf-8"))
    return [
        (Shape(**{name: value for name, value in row.items() if name != "plans"}),
         [plan_of_text(text) for text in row.get("plans", ())])
        for row in rows
    ]  # fmt: skip


# plans ------------------------------------------------------------------------------------------------------


def plans_for(problem: Any, seed: int, count: int) -> list[Plan]:
    """Return the planner's own plan, those that its model finds best, and some of their neighbours."""
    from lanewise.linalg.operand_copies import with_copies
    from lanewise.linalg.planning.candidates import ranked, warp_plans
    from lanewise.linalg.planning.planner import built, plan_of

    rng = random.Random(seed)
    own = replace(plan_of(problem, "sm_90a"), why="")
    candidates = ranked(problem)
    times = candidates.microseconds
    near = [candidates.plan(place) for place in range(len(times)) if times[place] <= NEAR * times[0]]
    best: list[Plan] = []
    kinds: dict[Any, int] = {}
    for each in near:  # the best of each kind
        kind = (
            each.tile[0], each.split * each.groups > 1, each.cluster != (1, 1), each.swap, each.schedule,
            each.whole_sectors,
        )  # fmt: skip
        if kinds.get(kind, 0) < MOST_OF_A_KIND:
            kinds[kind] = kinds.get(kind, 0) + 1
            best.append(each)
    some = best[: count // 2] + rng.sample(near, min(count // 4, len(near)))
    warps = warp_plans(problem)
    some += rng.sample(warps, min(count // (2 if problem.k <= SHORT else 4), len(warps)))
    if own.family == "warpgroup" and not (problem.promote or problem.precision == "f32"):
        some += _pingpong(problem, own, rng, count // 8)
    tried = [own, *(built(problem, each) for each in dict.fromkeys(some))]
    made = [with_copies(problem, each) for each in tried if each is not None]
    if problem.m * problem.n * problem.batch > 6000 * 3000:  # the order of tiles matters
        groups = (1, 2, 8) if problem.k <= SHORT else (4, 16)
        made += [replace(each, group=group) for each in made[:2] for group in groups]
    return list(dict.fromkeys(made))[: count * 3 // 2 + 6]


def _pingpong(problem: Any, own: Plan, rng: random.Random, count: int) -> list[Plan]:
    """Return plans whose warpgroups compute tiles of their own, by turns."""
    step, rows = (
        own.tile[2],
        [(64, 128), (64, 192), (64, 256), (128, 64), (128, 96), (128, 128), (128, 160), (128, 192)],
    )
    tiles = -(-problem.m // 128) * -(-problem.n // 128) * problem.batch
    if tiles < 100:
        return []
    base = replace(own, split=1, groups=1, gather=False, direct=False, skew=0, schedule="pingpong", l2="")
    base = replace(base, stages=_MOST_STAGES)
    every = [
        replace(base, tile=(*tile, step), cluster=cluster, swap=False)
        for tile in rows
        for cluster in ((1, 1), (2, 1), (1, 2))
    ]
    return [replace(base, tile=(128, 128, step), cluster=(2, 1), swap=False), *rng.sample(every, count)]


def listed_plans(problem: Any, listed: Sequence[Plan]) -> list[Plan]:
    """Return the planner's own plan and those of a list, with as many of their stages as fit."""
    from lanewise.linalg.operand_copies import with_copies
    from lanewise.linalg.planning.planner import built, plan_of

    own = replace(plan_of(problem, "sm_90a"), why="")
    made = [built(problem, each) for each in listed]
    return list(dict.fromkeys([own, *(with_copies(problem, each) for each in made if each is not None)]))


def text_of(plan: Plan) -> str:
    """Return a plan as a record has it: fields that are not those of most plans are named.

    >>> text_of(Plan("warpgroup", "sm_90a", (128, 256, 64), 4, (2, 1), swap=True))
    '128x256x64 4 stages 2x1 swap'
    """
    words = ["x".join(map(str, plan.tile)), f"{plan.stages} stages", "x".join(map(str, plan.cluster))]
    usual = Plan("warpgroup", "sm_90a", plan.tile, plan.stages, plan.cluster)
    for name in ("split", "groups", "schedule", "group", "skew", "l2", "family"):
        value = getattr(plan, name)
        if value != getattr(usual, name):
            words.append(f"{name}={str(value).replace(' ', '_')}")
    names = ("swap", "gather", "direct", "a_in_registers", "copy_a", "copy_b", "whole_sectors")
    words += [name for name in names if getattr(plan, name, False)]  # older checkouts lack some
    return " ".join(words)


#: Words of older records, and the fields that they are now.
_OLD_WORDS = {"splits_a": "a_in_registers"}


def plan_of_text(text: str) -> Plan:
    """Return the plan of its text in a record.

    >>> plan = Plan("warpgroup", "sm_90a", (128, 256, 64), 4, (2, 1), 1, "by turns", group=4, gather=True)
    >>> plan_of_text(text_of(plan)) == plan
    True
    """
    tile, stages, _, cluster, *more = text.split()
    fields: dict[str, Any] = {}
    for word in more:
        name, _, value = word.partition("=")
        name = _OLD_WORDS.get(name, name)
        fields[name] = (int(value) if value.isdigit() else value.replace("_", " ")) if value else True
    sizes = tuple(map(int, tile.split("x")))
    blocks = tuple(map(int, cluster.split("x")))
    return Plan(
        **{
            "family": "warpgroup",
            "arch": "sm_90a",
            "tile": sizes,
            "stages": int(stages),
            "cluster": blocks,
            **fields,
        }
    )


# a worker ---------------------------------------------------------------------------------------------------


def library_runs(shape: Shape, a: Any, b: Any, keywords: dict[str, Any], lt: Any) -> dict[str, Any]:
    """Return what torch and cuBLASLt's first algorithms run for a product, by name."""
    import torch

    out = torch.empty_like(keywords["out"])
    runs: dict[str, Any] = {}
    torch.backends.cuda.matmul.allow_tf32 = shape.dtype == "tf32"
    if shape.dtype in ("bf16", "f16", "f32", "tf32"):
        runs["torch"] = lambda: torch.matmul(a, b, out=out)
    elif shape.dtype == "s8" and shape.batch == 1:
        runs["torch"] = lambda: torch._int_mm(a, b)
    elif shape.dtype == "e4m3" and shape.batch == 1:
        one = torch.ones((), device=a.device)
        runs["torch"] = lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=out.dtype, use_fast_accum=True
        )
    try:
        for number, run in enumerate(lt.algorithms(a, b, out, tf32=shape.dtype == "tf32")):
            runs[f"lt{number}"] = run
    except (RuntimeError, KeyError):
        pass
    return runs


def works(run: Any) -> bool:
    """Return whether a library computes a product."""
    import torch

    try:
        run()
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def timed_rounds(runs: dict[Any, Any], rounds: int, times: dict[Any, list[float]], deadline: float) -> None:
    """Time all runs by turns."""
    from gpu_times import timed

    for number in range(rounds):
        for name in runs if number % 2 == 0 else reversed(list(runs)):
            times.setdefault(name, []).append(timed(runs[name]))
        if time.time() > deadline and number:
            break


def is_wrong(out: Any, wanted: Any, k: int) -> bool:
    """Return whether a result is far from the library's."""
    far = (out.float() - wanted.float()).abs() > 0.03 * (wanted.float().abs() + k**0.5)
    return bool(far.any()) or bool(out.isnan().any())


def measure(
    shape: Shape, index: int, lt: Any, lock: Any, count: int, until: float, listed: Sequence[Plan] = ()
) -> dict[str, Any] | None:
    """Return one row of the record; None if the time was over before two plans were compiled.

    If plans are `listed`, they are measured beside the planner's own; else there are about `count` plans.
    """
    import torch

    import lanewise as lw

    with lock:
        a, b, out, keywords = operands(shape)
        torch.cuda.synchronize()
        problem = lw.plan(a, b, **keywords).problem
    plans = (
        listed_plans(problem, listed)
        if listed
        else plans_for(problem, zlib.crc32(str(shape).encode()), count)
    )
    runs: dict[Any, Any] = {}
    failed = []
    for plan in plans:
        if time.time() > until:
            break
        try:
            lw.matmul(a, b, plan=plan, **keywords)
            runs[plan] = lambda plan=plan: lw.matmul(a, b, plan=plan, **keywords)
        except LanewiseError as error:
            failed.append(f"{text_of(plan)}: {str(error)[:120]}")
    if len(runs) < LEAST_PLANS:
        return None
    times: dict[Any, list[float]] = {}
    with lock:
        libraries = {n: r for n, r in library_runs(shape, a, b, keywords, lt).items() if works(r)}
        if not shape.fused and shape.dtype in ("bf16", "f16") and out.numel() <= 1 << 24:
            wanted = torch.matmul(a, b)
            for plan in list(runs):
                out.fill_(float("nan"))
                runs[plan]()
                if is_wrong(out, wanted, shape.k):
                    failed.append(f"{text_of(plan)}: WRONG")
                    del runs[plan]
        for call in runs.values():
            for _ in range(2):
                call()
        began = time.time()
        timed_rounds(libraries, 3, times, began + MOST_SECONDS / 4)
        timed_rounds(runs, SCREENING, times, began + MOST_SECONDS)
        names = [n for n in libraries if n != "torch"]
        finalists = sorted(runs, key=lambda plan: median(times[plan]))[:FINALISTS]
        if plans and plans[0] in runs and plans[0] not in finalists:
            finalists.append(plans[0])
        final = {plan: runs[plan] for plan in finalists}
        final |= {n: libraries[n] for n in sorted(names, key=lambda n: median(times[n]))[:1]}
        final |= {n: r for n, r in libraries.items() if n == "torch"}
        second: dict[Any, list[float]] = {}
        timed_rounds(final, FINAL, second, began + 2 * MOST_SECONDS)
        torch.cuda.synchronize()
    screened = {plan: median(times[plan]) for plan in runs}
    last = {plan: median(second[plan]) for plan in final if not isinstance(plan, str)}
    # kernels of the first rounds do not find their code in a cache: there are too many
    shorter = median(last[plan] / screened[plan] for plan in last)
    times |= {name: found for name, found in second.items() if isinstance(name, str)}
    row = {"index": index, **shape.fields()}
    row["torch"] = round(median(times["torch"]), 2) if "torch" in times else None
    best = [median(times[n]) for n in names]
    row["cublaslt"] = round(min(best), 2) if best else None
    row["plans"] = [
        [text_of(plan), round(last.get(plan, time * shorter), 2), len(second.get(plan, times[plan]))]
        for plan, time in screened.items()
    ]
    row["failed"] = failed
    return row


def work(number: int, workers: int, given: Any, done: set[int], lock: Any, until: float) -> None:
    """Measure every product of a worker until the time is over; append rows to its own file."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file
    import torch
    from cublaslt import CublasLt

    lt = CublasLt()
    every = jobs(given)
    with Path(f"{given.record}.{number}").open("a", encoding="utf-8") as file:
        for index in range(number, len(every), workers):
            if index in done:
                continue
            if time.time() > until:
                break
            shape, listed = every[index]
            try:
                row = measure(shape, index, lt, lock, given.plans, until, listed)
            except (LanewiseError, torch.OutOfMemoryError, RuntimeError) as error:
                print(f"{shape}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                if "CUDA error" in str(error):
                    break
                continue
            if row is None:
                continue
            file.write(json.dumps(row) + "\n")
            file.flush()
            torch.cuda.empty_cache()


def merged(record: Path) -> dict[str, Any]:
    """Return a record with the rows of all workers' files in it."""
    found: dict[str, Any] = {"rows": []}
    if record.exists():
        found = json.loads(record.read_text(encoding="utf-8"))
    rows = {row["index"]: row for row in found["rows"]}
    for path in record.parent.glob(record.name + ".*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            rows[row["index"]] = row
    return {**found, "rows": [rows[index] for index in sorted(rows)]}


def write(record: Path, found: dict[str, Any]) -> None:
    """Write a record with one line for each product."""
    head = {name: value for name, value in found.items() if name != "rows"}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found["rows"])
    text = json.dumps(head, ensure_ascii=False)[:-1]
    record.write_text(f'{text}{", " if head else ""}"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Read the command line, start the workers, and merge what they measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=2000)
    parser.add_argument("--short", action="store_true", help="products of short K")
    parser.add_argument("--list", type=Path, help="products and their plans")
    parser.add_argument("--plans", type=int, default=20, help="plans of each product")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--record", type=Path, default=Path("h200_plans.json"))
    given = parser.parse_args()
    began = time.time()
    found = merged(given.record)
    done = {row["index"] for row in found["rows"]}
    spawn = get_context("spawn")
    lock = spawn.Lock()
    until = began + given.seconds - 12
    workers = [
        spawn.Process(target=work, args=(number, given.workers, given, done, lock, until))
        for number in range(given.workers)
    ]
    for each in workers:
        each.start()
    while any(each.is_alive() for each in workers) and time.time() < began + given.seconds - 2:
        time.sleep(2)
        if int(time.time() - began) % 30 < 2:
            rows = sum(
                path.read_bytes().count(b"\n") for path in given.record.parent.glob(given.record.name + ".*")
            )
            print(f"{time.time() - began:.0f} s: {rows} products", flush=True)
    for each in workers:
        if each.is_alive():
            each.terminate()
    from gpu_times import circumstances

    seeded = f"--seed {given.seed}" + " --short" * given.short
    found = {
        **circumstances(),
        "how": "benchmarks/planner_sweep.py " + (f"--list {given.list.name}" if given.list else seeded),
        **merged(given.record),
    }
    write(given.record, found)
    for path in given.record.parent.glob(given.record.name + ".*"):
        path.unlink()
    pairs = sum(len(row["plans"]) for row in found["rows"])
    failed = sum(len(row["failed"]) for row in found["rows"])
    print(f"{len(found['rows'])} products, {pairs} plans timed, {failed} failed, {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
