"""Launches of Triton kernels on a virtual GPU, plain and checked, by turns: prints ratios, writes JSON.

    python benchmarks/virtual_gpu_checks.py [--turns 3] [--first 2] [--out FILE]

`--first` measures first calls of the product with empty caches: Triton's compiler alone, then the call.

Each turn is a process for the plain launches and one for the checked ones. The figures are the least
processor time of 20 launches, on which other work of the machine has little effect. Needs torch and Triton.
"""

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

from triton_scripts import PRODUCT, measured

LAUNCHES = (
    """
import json, os, time
import lanewise as lw

with lw.virtual_gpu("A100", check=os.environ["CHECKED"] == "1") as gpu:
    import torch
    import triton
    import triton.language as tl
"""
    + PRODUCT
    + """
    @triton.jit
    def softmax(x, y, n, stride, B: tl.constexpr):
        at = tl.arange(0, B)
        row = tl.program_id(0) * stride
        v = tl.load(x + row + at, mask=at < n, other=-float("inf"))
        v = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row + at, v / tl.sum(v, axis=0), mask=at < n)

    @triton.jit
    def norm(x, y, n, stride, eps, B: tl.constexpr):
        row = tl.program_id(0) * stride
        total, squares = tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
        for start in range(0, n, B):
            at = start + tl.arange(0, B)
            v = tl.load(x + row + at, mask=at < n, other=0.0).to(tl.float32)
            total += v
            squares += v * v
        mean = tl.sum(total, axis=0) / n
        scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n - mean * mean + eps)
        for start in range(0, n, B):
            at = start + tl.arange(0, B)
            v = tl.load(x + row + at, mask=at < n, other=0.0).to(tl.float32)
            tl.store(y + row + at, (v - mean) * scale, mask=at < n)

    @triton.jit
    def reduction(x, y, n, B: tl.constexpr):
        at = tl.program_id(0) * B + tl.arange(0, B)
        tl.atomic_add(y, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))

    @triton.jit
    def add(x, y, n, B: tl.constexpr):
        at = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    n = 512
    a, b = (torch.randn(n, n, device="cuda").half() for _ in range(2))
    c = torch.empty_like(a)
    s, h = torch.randn(1823, 781, device="cuda"), torch.randn(1151, 1024, device="cuda").half()
    s_out, h_out = torch.empty_like(s), torch.empty_like(h)
    r, total = torch.randn(1 << 20, device="cuda"), torch.zeros(1, device="cuda")
    cases = {
        "matmul, 512 x 512 x 512 in f16, tiles of 64 x 64 x 32": lambda: product[(8, 8)](
            a, b, c, n, n, 64, 64, 32
        ),
        "softmax, 1823 x 781": lambda: softmax[(1823,)](s, s_out, 781, 781, 1024),
        "layer norm, 1151 x 1024 in f16": lambda: norm[(1151,)](h, h_out, 1024, 1024, 1e-5, 512),
        "sum of 2^20 numbers by atomics": lambda: reduction[(1024,)](r, total, 1 << 20, 1024),
        "one small block": lambda: add[(1,)](r, s_out, 128, 128),
    }
    def spent():
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    figures = {}
    if os.environ["CHECKED"] == "first":
        begin = spent()
        product.warmup(a, b, c, n, n, 64, 64, 32, grid=(8, 8))
        figures["compiler_s"] = spent() - begin
        begin = spent()
        product[(8, 8)](a, b, c, n, n, 64, 64, 32)
        figures["first_call_s"] = figures["compiler_s"] + spent() - begin
        cases = {}
    for name, launch in cases.items():
        launch()
        times = []
        for _ in range(20):
            begin = time.process_time()
            launch()
            times.append(time.process_time() - begin)
        figures[name] = min(times) * 1000
    assert os.environ["CHECKED"] != "1" or not gpu.findings
print(json.dumps(figures))
"""
)


def launched(what: str, **variables: str) -> dict[str, float]:
    """Return the figures of a process: plain launches ("0"), checked ones ("1"), or a first call."""
    figures: dict[str, float] = measured(LAUNCHES, CHECKED=what, **variables)
    return figures


def first_call() -> dict[str, float]:
    """Return the seconds of processor time of a first call, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"LANEWISE_CACHE_DIR": f"{folder}/lanewise", "TRITON_CACHE_DIR": f"{folder}/triton"}
        figures = launched("first", **caches)
    return {**figures, "ratio": round(figures["first_call_s"] / figures["compiler_s"], 2)}


def main() -> None:
    """Measure by turns, print the ratios, and write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--first", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    turns = [(launched("0"), launched("1")) for _ in range(options.turns)]
    rows = {
        name: {
            "plain_ms": [round(plain[name], 2) for plain, _ in turns],
            "checked_ms": [round(checked[name], 2) for _, checked in turns],
            "ratios": [round(checked[name] / plain[name], 2) for plain, checked in turns],
        }
        for name in (turns[0][0] if turns else ())
    }
    firsts = [first_call() for _ in range(options.first)]
    for each in firsts:
        print(f"first call: {each['ratio']} times the compiler's {each['compiler_s']:.1f} s")
    for name, row in rows.items():
        print(f"{name:56} {min(row['ratios'])} to {max(row['ratios'])}")
    if options.out is not None:
        about = {
            "what": "processor time of warm launches, plain and checked, least of 20, by turns",
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
        }
        options.out.write_text(json.dumps({**about, "rows": rows, "first_calls": firsts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
