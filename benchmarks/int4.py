"""`lw.matmul` with 4-bit weights of `lw.quantize`, beside products of bf16 by torch and by lanewise.

    python benchmarks/int4.py [--json FILE] [--rounds 25] [--rows 1 16 …]
    python benchmarks/int4.py --plans [--json FILE]

Layers of Llama 3 (8B and 70B), 1 to 8192 rows. Each time is the median of rounds in which the products take
turns, the L2 cache swept before every run. With `--plans`, all divisions that the planner has to choose from
are timed, on layers of random sizes, too, and its regret is printed: the time of its choice over the least.
"""

import argparse
import random
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from attention import medians
from gpu_times import save, timed

import lanewise as lw
from lanewise.linalg import int4_matmul
from lanewise.linalg.kernels.int4.plans import candidates, tile_of
from lanewise.linalg.launch.known_calls import forget

#: K and N of the layers, how many random ones there are beside them, and rows.
LAYERS = ((4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672))
RANDOM_LAYERS = 12
ROWS = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 4096, 8192)


def measure(k: int, n: int, rows: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return microseconds for one layer: lanewise's with 4 bits, torch's and lanewise's with bf16."""
    weights = torch.randn((n, k), device="cuda", dtype=torch.bfloat16).mT
    packed = lw.quantize(weights)
    unpacked = packed.dequantize()
    found = []
    for m in rows:
        x = torch.randn((m, k), device="cuda", dtype=torch.bfloat16)
        times = medians(
            {
                "int4": lambda x=x: lw.matmul(x, packed),
                "torch": lambda x=x: torch.matmul(x, weights),
                "lanewise": lambda x=x: lw.matmul(x, weights),
            },
            rounds,
        )
        exact = x.double() @ unpacked.double()
        error = ((lw.matmul(x, packed).double() - exact).abs().max() / exact.abs().max()).item()
        best = min(times["torch"], times["lanewise"])
        found.append(
            {"rows": m, "k": k, "n": n, "microseconds": times, "ratio": round(best / times["int4"], 3),
             "ratio_to_torch": round(times["torch"] / times["int4"], 3), "error": error}
        )  # fmt: skip
        print(found[-1], flush=True)
    return found


def measure_plans(k: int, n: int, rows: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return microseconds of each division of the products with a layer, if a kernel unpacks, and of bf16."""
    weights = torch.randn((n, k), device="cuda", dtype=torch.bfloat16).mT
    packed = lw.quantize(weights)
    found = []
    for m in rows:
        if m > int4_matmul.MOST_UNPACKING_ROWS:
            continue
        x, times = torch.randn((m, k), device="cuda", dtype=torch.bfloat16), {}
        for tile in candidates(m, n):
            forget()
            with mock.patch.object(int4_matmul, "int4_plan", lambda problem, chunks, tile=tile: tile):
                lw.matmul(x, packed)
            rounds_of_tile = [timed(lambda x=x: lw.matmul(x, packed)) for _ in range(rounds)]
            times[tile] = round(statistics.median(rounds_of_tile), 2)
        forget()
        dense = {
            "torch": lambda x=x: torch.matmul(x, weights), "lanewise": lambda x=x: lw.matmul(x, weights)
        }  # fmt: skip
        bf16 = {name: round(time, 2) for name, time in medians(dense, rounds).items()}
        regret = times[tile_of(m, n, packed.chunks)] / min(times.values())
        measured = [{**asdict(tile), "microseconds": time} for tile, time in times.items()]
        found.append({"rows": m, "k": k, "n": n, "regret": round(regret, 3), "bf16": bf16, "tiles": measured})
        best = min(times, key=lambda tile: times[tile])
        print({name: value for name, value in found[-1].items() if name != "tiles"}, best, flush=True)
    return found


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--layers", type=int, default=len(LAYERS), help="so many of the layers")
    parser.add_argument("--plans", action="store_true", help="time all divisions of each product")
    parser.add_argument("--seed", type=int, help="with --plans: so that random layers are the same again")
    given = parser.parse_args()
    if given.plans:
        rng = random.Random(given.seed)
        sizes = [(rng.uniform(9, 14), rng.uniform(9, 15)) for _ in range(RANDOM_LAYERS)]
        layers = [*LAYERS[: given.layers], *((int(2**k) // 64 * 64, int(2**n) // 64 * 64) for k, n in sizes)]
        found = [row for k, n in layers for row in measure_plans(k, n, given.rows, given.rounds)]
        regrets = sorted(row["regret"] for row in found)
        print(f"regret: median {regrets[len(regrets) // 2]}, 95 % {regrets[len(regrets) * 19 // 20]}")
        how = "divisions of products with 4-bit weights, bf16 rows, L2 swept, medians; regret: of the planner"
        how = f"benchmarks/int4.py --plans --seed {given.seed}: {how}"
        save(given.json, how, rounds=given.rounds, products=found)
        return
    found = [row for k, n in LAYERS[: given.layers] for row in measure(k, n, given.rows, given.rounds)]
    how = "4-bit weights, bf16 rows, by turns, L2 swept, medians; ratio: the better product of bf16 / int4"
    save(given.json, how, rounds=given.rounds, rows=found)


if __name__ == "__main__":
    main()
