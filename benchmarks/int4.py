"""`lw.matmul` with 4-bit weights of `lw.quantize`, beside products of bf16 by torch and by lanewise.

    python benchmarks/int4.py [--json FILE] [--rounds 25] [--rows 1 16 …]

Layers of Llama 3 (8B and 70B), 1 to 8192 rows. Each time is the median of rounds in which the products take
turns, the L2 cache swept before every run.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from attention import medians
from gpu_times import save

import lanewise as lw

#: K and N of the layers.
LAYERS = ((4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672))
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


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--layers", type=int, default=len(LAYERS), help="so many of the layers")
    given = parser.parse_args()
    found = [row for k, n in LAYERS[: given.layers] for row in measure(k, n, given.rows, given.rounds)]
    how = "4-bit weights, bf16 rows, by turns, L2 swept, medians; ratio: the better product of bf16 / int4"
    save(given.json, how, rounds=given.rounds, rows=found)


if __name__ == "__main__":
    main()
