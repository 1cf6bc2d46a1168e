"""What a product that reads some megabytes cannot beat: an empty kernel, and kernels that only read.

    python benchmarks/memory_floors.py --json floors.json
    python benchmarks/memory_floors.py --rows 2048 8192

Timed as `benchmarks/matmul.py` times products: the L2 cache is swept before each run, by writes (which leave
it full of lines that have to be written back) and, in the second column, by reads. Figures are medians in
microseconds, by turns.
"""
# mypy: disable-error-code="no-untyped-call,misc"

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu_times import save, timed

import lanewise as lw

SOURCE = Path(__file__).parent / "kernels" / "hopper" / "floors.cu"
MULTIPROCESSORS, THREADS, SLEPT_CYCLES = 132, 384, 60_000
#: Kinds of cache hints, as floors.cu numbers them.
HINTS = ("none", "evict_first", "evict_unchanged", "evict_last", "evict_normal", "half evict_first")
#: Rows of K = 4096 elements of 16 bits: 33.5, 117 and 235 MB.
ROWS = (4096, 14336, 28672)
K = 4096


def runs(rows: int) -> dict[str, Callable[[], Any]]:
    """Return the ways to read so many rows of weights."""
    module = lw.cuda(SOURCE.read_text(encoding="utf-8"), arch="sm_90a")
    weights = torch.randn(rows, K, device="cuda").to(torch.bfloat16)
    other, total = torch.empty_like(weights), weights.numel() * 2
    flat, seen = weights.view(torch.uint8).view(-1), torch.zeros(32, dtype=torch.int32, device="cuda")
    found: dict[str, Callable[[], Any]] = {}

    def bulk(size: int, stages: int, hint: int) -> None:
        launch = module["bulk"][MULTIPROCESSORS, THREADS, size * stages]
        name = f"bulk copies, {stages} × {size >> 10} KB in flight, {HINTS[hint]}"
        found[name] = lambda: launch(flat, total, size, stages, hint)

    def boxes(
        tall: int, stages: int, hint: int, blocks: int = MULTIPROCESSORS, promotion: Any = None
    ) -> None:
        map = lw.tensor_map(weights, (tall, 64), swizzle="128B", l2_promotion=promotion)
        launch = module["boxes"][blocks, THREADS, tall * 128 * stages]
        few = "" if blocks == MULTIPROCESSORS else f", {blocks} blocks"
        few += f", L2 promotion {promotion}" if promotion is not None else ""
        name = f"boxes of {tall} × 64, {stages} × {tall >> 3} KB in flight, {HINTS[hint]}{few}"
        found[name] = lambda: launch(map, tall, rows // tall, K // 64, stages, hint)

    for size, stages in ((8192, 8), (8192, 16), (8192, 25), (16384, 8), (16384, 12), (32768, 6)):
        bulk(size, stages, 0)
        bulk(size, stages, 1)
    for hint in (2, 3, 4, 5):
        bulk(16384, 12, hint)
    for tall, stages in ((64, 8), (64, 16), (64, 25), (128, 12), (256, 6)):
        boxes(tall, stages, 0)
        boxes(tall, stages, 1)
    for blocks in (64, 128):
        boxes(64, 16, 1, blocks)
    for promotion in ("64B", "128B", "256B"):
        boxes(64, 16, 1, promotion=promotion)
    for blocks in (132, 264, 528):
        for hint in (0, 1):
            launch = module["loads"][blocks, 1024 if blocks < 528 else 512]
            name = f"plain loads, {blocks} blocks, {HINTS[hint]}"
            found[name] = lambda launch=launch, hint=hint: launch(flat, total, seen, hint)
    found["torch: copy_ to other memory"] = lambda: other.copy_(weights)
    words = weights.view(torch.int32)
    found["torch: sum"] = lambda: words.sum()
    return found


def small_runs() -> dict[str, Callable[[], Any]]:
    """Return kernels that do nothing, or read one box in each block."""
    module = lw.cuda(SOURCE.read_text(encoding="utf-8"), arch="sm_90a")
    out = torch.zeros(1024, device="cuda")
    weights = torch.randn(132 * 64, 64, device="cuda").to(torch.bfloat16)
    flat, seen = weights.view(torch.uint8).view(-1), torch.zeros(32, dtype=torch.int32, device="cuda")
    map = lw.tensor_map(weights, (64, 64), swizzle="128B")
    total = weights.numel() * 2
    return {
        "nothing between two events": lambda: None,
        "an empty kernel, 132 blocks": lambda: module["nothing"][132, THREADS](out, 0),
        "an empty kernel, 200 KB of shared memory": lambda: module["nothing"][132, THREADS, 200 << 10](
            out, 0
        ),
        "an empty kernel in clusters of two": lambda: module["nothing_in_clusters"][132, THREADS](out, 0),
        "one bulk copy of 8 KB in each block": lambda: module["bulk"][132, THREADS, 200 << 10](
            flat, total, 8192, 8, 0
        ),
        "one box of 8 KB in each block": lambda: module["boxes"][132, THREADS, 200 << 10](
            map, 64, 132, 1, 8, 0
        ),
        "plain loads of 8 KB in each block": lambda: module["loads"][132, 512](flat, total, seen, 0),
    }


def measured(found: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of all runs, swept by writes and by reads, in microseconds."""
    times: dict[str, dict[str, list[float]]] = {name: {"writes": [], "reads": []} for name in found}
    for run in found.values():
        run()
    torch.cuda.synchronize()
    for _ in range(rounds):
        for name, run in found.items():
            for how in ("writes", "reads"):
                times[name][how].append(timed(run, SLEPT_CYCLES, reads=how == "reads"))
    return {name: {how: median(each) for how, each in both.items()} for name, both in times.items()}


def main() -> None:
    """Measure all floors and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="of K = 4096 elements of 16 bits")
    given = parser.parse_args()
    kept = {}
    groups = {"no memory": (0, small_runs)} | {
        f"{rows * K * 2 / 1e6:.1f} MB": (rows * K * 2, lambda rows=rows: runs(rows)) for rows in given.rows
    }
    for name, (total, make) in groups.items():
        found = measured(make(), given.rounds)
        kept[name] = found
        print(f"{name:<58}{'writes':>8}{'reads':>8}")
        for run, each in found.items():
            speed = f"{total / each['writes'] / 1e6:8.2f} TB/s" if total else ""
            print(f"  {run:<56}{each['writes']:>8.1f}{each['reads']:>8.1f}{speed}", flush=True)
    how = f"medians of {given.rounds} in microseconds, by turns, the L2 cache swept before each run"
    save(given.json, how, floors=kept)


if __name__ == "__main__":
    main()
