"""How fast the arithmetic is: GFLOP/s of each type, the ratio to MMA-Sim on the same product, the first call.

Run `python benchmarks/arithmetic.py [--size 1024] [--json PATH]`. MMA-Sim (`pip install mmasim`) is left out
where it is not installed; where it is, both products are also held against each other, bit for bit. It takes
minutes for the first case, which it computes at full size; `--quick` spares that.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np

import lanewise as lw
from lanewise.arith import Model, model_of, threads

MMA = "mma.sync.aligned."
WGMMA = "wgmma.mma_async.sync.aligned."
# The instruction, the arch, and what it is called in MMA-Sim, where that models it.
CASES: list[tuple[str, str, tuple[str, str] | None]] = [
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_90", ("Hopper", "m16n8k16.f32.f16.f16.f32")),
    (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", ("Hopper", "m16n8k16.f32.bf16.bf16.f32")),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90", ("Hopper", "m16n8k8.f32.tf32.tf32.f32")),
    (MMA + "m16n8k16.row.col.f16.f16.f16.f16", "sm_90", ("Hopper", "m16n8k16.f16.f16.f16.f16")),
    (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", None),
    (MMA + "m16n8k32.row.col.f16.e4m3.e4m3.f16", "sm_90", None),
    (WGMMA + "m64n128k32.f32.e4m3.e4m3", "sm_90a", ("Hopper", "m64n128k32.f32.e4m3.e4m3")),
    (WGMMA + "m64n128k32.f16.e4m3.e4m3", "sm_90a", ("Hopper", "m64n128k32.f16.e4m3.e4m3")),
    (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", ("Ada Lovelace", "m16n8k32.f32.e4m3.e4m3.f32")),
    (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120", ("RTX Blackwell", "m16n8k32.f32.e4m3.e4m3.f32")),
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_80", ("Ampere", "m16n8k16.f32.f16.f16.f32")),
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_70", ("Volta", "m8n8k4.f32.f16.f16.f32")),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_80", ("Ampere", "m8n8k4.f64.f64.f64.f64")),
    (MMA + "m16n8k32.row.col.s32.s8.s8.s32", "sm_90", None),
    (MMA + "m16n8k64.row.col.s32.s4.s4.s32", "sm_90", None),
    (MMA + "m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_90", None),
]
TILES = 100_000
FIRST_CALL = """
import time
import numpy as np
import lanewise as lw
mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
a, b = np.ones((16, 16), "f2"), np.ones((16, 8), "f2")
start = time.perf_counter()
mma(a, b, arch="sm_90")
print(time.perf_counter() - start)
"""


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The shortest of some runs, after one that compiles."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def matrices(model: Model, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ordinary numbers for A, B and C."""
    rng = np.random.default_rng(0)

    def some(fmt: lw.Format) -> np.ndarray:
        if fmt.kind == "float":
            return fmt.array(rng.normal(size=(size, size)))
        return fmt.array(rng.integers(max(int(fmt.min), -1000), min(int(fmt.max), 1000) + 1, (size, size)))

    return some(model.a), some(model.b), some(model.c)


def mma_sim(names: tuple[str, str]) -> Callable[..., np.ndarray] | None:
    """MMA-Sim's product as a function of NumPy arrays, its instruction repeated along K."""
    try:
        ctypes.CDLL("libgomp.so.1", ctypes.RTLD_GLOBAL)  # its extension asks for OpenMP without linking it
        import torch
        from mmasim import nv_ptx
    except (ImportError, OSError):
        return None
    arch, shape = names
    operation = (nv_ptx.WGMMA if shape.startswith("m64") else nv_ptx.MMA)(arch, shape)
    torch.set_num_threads(threads.processors())

    def tensor(array: np.ndarray, dtype: Any) -> Any:
        words = array.view(f"u{array.dtype.itemsize}")
        return torch.from_numpy(words.copy()).view(dtype)

    def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        x, y, d = tensor(a, operation.a_type), tensor(b, operation.b_type), tensor(c, operation.c_type)
        for k in range(0, x.shape[1], operation.k):
            d = operation(x[:, k : k + operation.k], y[k : k + operation.k], d)
        return np.asarray(d.numpy())

    return multiply


def measure(text: str, arch: str, peer: tuple[str, str] | None, size: int, peer_size: int) -> dict[str, Any]:
    """One row of the table."""
    instruction = lw.instruction(text)
    model = model_of(instruction, arch)
    assert model is not None
    a, b, c = matrices(model, size)
    ours = 2 * size**3 / seconds(lambda: instruction.gemm(a, b, c, arch=arch), 3) / 1e9
    row: dict[str, Any] = {"instruction": text, "arch": arch, "size": size, "gflops": round(ours, 3)}
    simulate = mma_sim(peer) if peer else None
    if simulate:
        a, b, c = matrices(model, peer_size)
        start = time.perf_counter()
        theirs = simulate(a, b, c)
        taken = time.perf_counter() - start
        d = instruction.gemm(a, b, c, arch=arch)
        same = np.array_equal(model.d.to_bits(d), model.d.to_bits(theirs))
        taken_here = seconds(lambda: instruction.gemm(a, b, c, arch=arch), 3)
        row |= {"peer_size": peer_size, "peer_gflops": round(2 * peer_size**3 / taken / 1e9, 5)}
        row |= {"ratio": round(taken / taken_here, 1), "bits_agree": same}
    return row


def measure_tiles() -> dict[str, Any]:
    """Many single instructions in one call."""
    mma = lw.instruction(CASES[0][0])
    rng = np.random.default_rng(0)
    a, b, c = (
        rng.standard_normal((TILES, *shape), dtype=np.float32) for shape in ((16, 16), (16, 8), (16, 8))
    )
    a, b = a.astype(np.float16), b.astype(np.float16)
    taken = seconds(lambda: mma(a, b, c, arch="sm_90"), 3)
    return {
        "instruction": mma.text,
        "arch": "sm_90",
        "tiles": TILES,
        "gflops": round(TILES * 4096 / taken / 1e9, 3),
    }


def measure_first_call() -> float:
    """Seconds of the first product in a new process, machine code on disk."""
    times = []
    for _ in range(4):
        run = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
        times.append(float(run.stdout))
    return min(times[1:])


def machine() -> dict[str, Any]:
    """Where this was measured."""
    name = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        models = [
            line.split(":")[1].strip() for line in listing.read_text().splitlines() if "model name" in line
        ]
        name = models[0] if models else name
    from llvmlite import binding

    return {
        "processor": name,
        "llvm_processor": binding.get_host_cpu_name(),
        "processors": threads.processors(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "llvmlite": llvmlite.__version__,
        "lanewise": lw.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="M, N and K of our products")
    parser.add_argument("--peer-size", type=int, default=256, help="M, N and K of the products both compute")
    parser.add_argument("--quick", action="store_true", help="MMA-Sim's first product at --peer-size, too")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    print(f"{'instruction':60} {'arch':7} {'GFLOP/s':>8} {'MMA-Sim':>9} {'ratio':>8}  bits")
    rows = []
    for text, arch, peer in CASES:
        full = not rows and not options.quick
        row = measure(text, arch, peer, options.size, options.size if full else options.peer_size)
        rows.append(row)
        line = f"{text:60} {arch:7} {row['gflops']:8.2f}"
        if "ratio" in row:
            verdict = "agree" if row["bits_agree"] else "DIFFER"
            line += f" {row['peer_gflops']:9.5f} {row['ratio']:8.0f}  {verdict}"
        print(line, flush=True)
    tiles, first = measure_tiles(), measure_first_call()
    print(f"{TILES} tiles of m16n8k16 f16, sm_90: {tiles['gflops']:.2f} GFLOP/s")
    print(f"first call in a new process: {first:.3f} s")
    if options.json:
        record = {
            "machine": machine(),
            "products": rows,
            "tiles": tiles,
            "first_call_seconds": round(first, 3),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
