"""Attention of examples/attention_hopper.py on a GPU, beside FlashAttention-2 and cuDNN as torch has them.

Run `python benchmarks/attention.py [--json FILE]` on a Hopper GPU: bf16, 16 heads, 16,384 tokens, by turns,
with the L2 cache swept before every run; medians. The last column is the largest difference from
FlashAttention-2's result.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

HEADS, TOKENS, ROUNDS = 16, 16384, 25


def medians(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Milliseconds of each, by turns."""
    from gpu_times import timed

    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS + 2):
        for name, run in runs.items():
            microseconds = timed(run)
            if turn >= 2:
                taken[name].append(microseconds / 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def measure(torch: Any, depth: int, length: int, causal: bool) -> dict[str, Any]:
    """TFLOP/s of the three for one length of a head and of a sequence."""
    import attention_hopper
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    shape = (TOKENS // length * HEADS, length, depth)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    keys = (TOKENS // length, HEADS, length, depth)
    out = torch.zeros_like(q)
    configured, arguments = attention_hopper.prepare(q, k, v, out, causal)

    def by(backend: Any) -> Callable[[], Any]:
        def run() -> Any:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(
                    q.view(keys), k.view(keys), v.view(keys), is_causal=causal
                )

        return run

    flash = by(SDPBackend.FLASH_ATTENTION)
    runs = {
        "lanewise": lambda: configured(*arguments), "flash": flash, "cudnn": by(SDPBackend.CUDNN_ATTENTION)
    }  # fmt: skip
    taken = medians(runs)
    difference = (out.float() - flash().view(shape).float()).abs().max().item()
    operations = 4 * shape[0] * length * length * depth / (2 if causal else 1)
    speeds = {name: round(operations / milliseconds / 1e9, 1) for name, milliseconds in taken.items()}
    return {"depth": depth, "length": length, "causal": causal, **speeds, "difference": difference}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    import torch

    import lanewise as lw

    rows = [
        measure(torch, depth, length, causal)
        for depth in (64, 128)
        for causal in (False, True)
        for length in (2048, 8192)
    ]
    print("depth  length  causal  lanewise  FlashAttention-2  cuDNN  TFLOP/s   ratios       difference")
    for row in rows:
        ratios = [row["lanewise"] / row[peer] for peer in ("flash", "cudnn")]
        print(
            f"{row['depth']:5}  {row['length']:6}  {row['causal']!s:6}  {row['lanewise']:8}  "
            f"{row['flash']:16}  {row['cudnn']:5}            {ratios[0]:.2f}  {ratios[1]:.2f}"
            f"   {row['difference']:.1e}"
        )
    if given.json:
        device = lw.gpu.devices()[0]
        cudnn: Any = torch.backends.cudnn
        record = {
            "what": "attention forward, bf16, TFLOP/s (causal: half of the operations)",
            "device": device.name,
            "driver": device.driver,
            "torch": torch.__version__,
            "cudnn": str(cudnn.version()),
            "cuda": torch.version.cuda,
            "date": datetime.date.today().isoformat(),
            "heads": HEADS,
            "tokens": TOKENS,
            "rounds": ROUNDS,
            "rows": rows,
        }
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
