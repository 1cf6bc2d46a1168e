"""`lw.attention` on a GPU, beside torch's attention by cuDNN, FlashAttention-2 and its efficient kernel.

    python benchmarks/attention.py [--json FILE] [--only 64 128] [--rounds 25] [--tiles]
    python benchmarks/attention.py --random 40 --seed 7  # attentions that nobody measured before

bf16, 16 heads and about 16,384 tokens, lengths that are multiples of the tile and others, causal and not, as
many keys as queries and more, heads that share keys. Each time is the median of rounds in which the libraries
take turns, the L2 cache swept before every run. `--tiles` also measures other tiles than the chosen one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from gpu_times import save, timed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import lanewise as lw
from lanewise.formats import bf16
from lanewise.linalg.kernels.attention.kernel import launches_of
from lanewise.linalg.kernels.attention.plans import HEAD_SIZES
from lanewise.linalg.kernels.attention.sizes import Operands, Sizes, Tile

HEADS, TOKENS = 16, 16384
#: Cycles for which the GPU sleeps before a run, more than the host needs for any call.
SLEEP = 1_000_000
LENGTHS = (128, 256, 512, 1000, 2048, 2777, 4096, 8192, 16384)
BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
#: Tiles that were tried, by the size of a head.
TRIED: dict[int, tuple[Tile, ...]] = {
    64: (Tile(ordered=True, persistent=True), Tile(persistent=True)),
    96: (Tile(112, persistent=True), Tile(112, ordered=True, persistent=True), Tile(128, persistent=True)),
    128: (Tile(176, ordered=True), Tile(128), Tile(112, ordered=True, persistent=True)),
    256: (Tile(64, persistent=True), Tile(80, persistent=True), Tile(64)),
}


def medians(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the microseconds of each, by turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            microseconds = timed(run, sleep=SLEEP)
            if number >= 2:
                times[name].append(microseconds)
    return {name: round(statistics.median(all_rounds), 2) for name, all_rounds in times.items()}


def by_torch(q: Any, k: Any, v: Any, causal: bool) -> dict[str, Callable[[], Any]]:
    """Return torch's attention by each backend that takes it; if causal, with as many keys as queries."""

    def by(backend: Any) -> Callable[[], Any]:
        def run() -> Any:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
                )

        return run

    runs = {}
    for name, backend in BACKENDS.items():
        try:
            by(backend)()
            runs[name] = by(backend)
        except RuntimeError:  # this backend does not take it
            continue
    return runs


def by_tile(q: Any, k: Any, v: Any, causal: bool, tile: Tile) -> Callable[[], Any]:
    """Return lanewise's attention by a tile."""
    sizes = Sizes(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    counter = torch.zeros(1, dtype=torch.uint32, device="cuda")
    operands = Operands(q, k, v, torch.empty_like(q), counter=counter)
    at_once = lw.gpu.devices()[0].multiprocessors
    (launch,) = launches_of(sizes, bf16, causal, tile, operands, sizes.depth**-0.5, at_once)
    return lambda: launch()


def measure(sizes: Sizes, causal: bool, rounds: int, tiles: bool) -> dict[str, Any]:
    """Return microseconds of all for one attention, and how far the results differ."""
    B, H, G, L, S, D = sizes
    q = torch.randn((B, H, L, D), device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn((B, G, S, D), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    others = {} if causal and L not in (1, S) else by_torch(q, k, v, causal and L > 1)  # another mask
    runs: dict[str, Callable[[], Any]] = {"lanewise": lambda: lw.attention(q, k, v, causal=causal)}
    if tiles:
        runs |= {str(tile): by_tile(q, k, v, causal, tile) for tile in TRIED[D]}
    result = lw.attention(q, k, v, causal=causal).float()
    differences = [(result - run().float()).abs().max().item() for run in others.values()]
    operations = 4 * B * H * L * S * D / (2 if causal else 1)
    found = medians(runs | others, rounds)
    best = min((found[name] for name in others), default=float("nan"))
    return {
        **sizes._asdict(), "causal": causal, "microseconds": found,
        "teraflops": round(operations / found["lanewise"] / 1e6, 1),
        "ratio": round(best / found["lanewise"], 3), "difference": max(differences, default=0.0),
    }  # fmt: skip


def random_cases(count: int, seed: int) -> list[tuple[Sizes, bool]]:
    """Return attentions of sizes at random, those alone that torch computes: its causal mask begins at the
    first query and key."""
    from attention_plans import drawn

    every = drawn(seed, count, count, 2 * count)
    return [(sizes, causal) for sizes, causal in every if not causal or sizes.queries == sizes.keys]


def report_classes(rows: list[dict[str, Any]]) -> None:
    """Print the ratios of single queries, of few and of more."""
    for name, first, last in (("1 query", 1, 1), ("2 to 64 queries", 2, 64), ("more", 65, 1 << 31)):
        ratios = [row["ratio"] for row in rows if first <= row["queries"] <= last and row["ratio"] > 0]
        if ratios:
            print(
                f"{name}: {len(ratios)} attentions, {statistics.geometric_mean(ratios):.3f} in the mean, "
                f"{min(ratios):.3f} at least, {sum(ratio < 1 for ratio in ratios)} below 1"
            )


def host_microseconds(calls: int = 2000) -> float:
    """Return the host's time for one warm call, on tensors that take the GPU less."""
    q = torch.randn((1, 2, 16, 64), device="cuda", dtype=torch.bfloat16)
    cuda: Any = torch.cuda
    times = []
    for number in range(calls):
        if number % 100 == 0:
            cuda.synchronize()
        begin = perf_counter()
        lw.attention(q, q, q)
        times.append(perf_counter() - begin)
    return round(statistics.median(times) * 1e6, 2)


def cases(depths: list[int]) -> list[tuple[Sizes, bool]]:
    """Return the attentions to measure."""
    found = []
    for depth in depths:
        for causal in (False, True):
            for length in LENGTHS:
                batch = max(1, TOKENS // length)
                found.append((Sizes(batch, HEADS, HEADS, length, length, depth), causal))
        found.append((Sizes(4, 32, 8, 2048, 2048, depth), True))
        found.append((Sizes(4, 32, 8, 300, 5000, depth), False))
        found.append((Sizes(32, 32, 8, 1, 4096, depth), False))
    return found


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--only", type=int, nargs="*", default=list(HEAD_SIZES), help="sizes of heads")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--lengths", type=int, nargs="*", help="these lengths alone")
    parser.add_argument("--tiles", action="store_true", help="measure other tiles, too")
    parser.add_argument("--random", type=int, metavar="COUNT", help="attentions at random, of each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rows = []
    for sizes, causal in random_cases(given.random, given.seed) if given.random else cases(given.only):
        if given.lengths and sizes.queries not in given.lengths:
            continue
        row = measure(sizes, causal, given.rounds, given.tiles)
        rows.append(row)
        times = "  ".join(f"{name} {time}" for name, time in row["microseconds"].items())
        print(
            f"{tuple(sizes)} {'causal' if causal else 'all   '} {row['teraflops']} TFLOP/s, ratio "
            f"{row['ratio']}, difference {row['difference']:.1e}: {times}",
            flush=True,
        )
    report_classes(rows)
    how = "lw.attention, forward, bf16, by turns, L2 swept, medians; ratio: best of torch's / lanewise"
    host = host_microseconds()
    print(f"a warm call takes the host {host} µs")
    save(given.json, how, rounds=given.rounds, host_microseconds=host, rows=rows)


if __name__ == "__main__":
    main()
