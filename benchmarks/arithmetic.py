"""How fast the arithmetic is: GFLOP/s of each type, the ratios to MMA-Sim on the same product, first calls.

Run `python benchmarks/arithmetic.py [--size 1024] [--json PATH]`. MMA-Sim (`pip install mmasim`) is left out
where it is not installed. Where it is, it is timed in two ways: tile by tile, as the instruction it models,
and with all rows and columns of the product passed at once, which it does not forbid. What it returns is
held against ours, bit for bit. The first case is computed by both at full size.
"""

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
from lanewise.arith import Model, model_of
from lanewise.jit import threads

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


def processor_seconds(work: Callable[[], None], repeats: int) -> float:
    """The least time that all processors together took for some work: what others run does not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def matrices(model: Model, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ordinary numbers for A, B and C."""
    rng = np.random.default_rng(0)

    def some(fmt: lw.Format) -> np.ndarray:
        if fmt.kind == "float":
            return fmt.array(rng.normal(size=(size, size)))
        return fmt.array(rng.integers(max(int(fmt.min), -1000), min(int(fmt.max), 1000) + 1, (size, size)))

    return some(model.a), some(model.b), some(model.c)


def mma_sim(names: tuple[str, str]) -> Any:
    """MMA-Sim's operation, if it is installed."""
    try:
        ctypes.CDLL("libgomp.so.1", ctypes.RTLD_GLOBAL)  # its extension asks for OpenMP without linking it
        import torch
        from mmasim import nv_ptx
    except (ImportError, OSError):
        return None
    torch.set_num_threads(threads.processors())
    arch, shape = names
    return (nv_ptx.WGMMA if shape.startswith("m64") else nv_ptx.MMA)(arch, shape)


def simulate(operation: Any, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, float, float]:
    """MMA-Sim's product, its instruction repeated along K on whole matrices; its seconds; one tile's."""
    import torch

    def tensor(array: np.ndarray, dtype: Any) -> Any:
        return torch.from_numpy(array.view(f"u{array.dtype.itemsize}").copy()).view(dtype)

    x, y, d = tensor(a, operation.a_type), tensor(b, operation.b_type), tensor(c, operation.c_type)
    m, n, k = operation.m, operation.n, operation.k
    tile = seconds(lambda: operation(x[:m, :k], y[:k, :n], d[:m, :n]), 20)
    start = time.perf_counter()
    for step in range(0, x.shape[1], k):
        d = operation(x[:, step : step + k], y[step : step + k], d)
    return np.asarray(d.numpy()), time.perf_counter() - start, tile


def measure(text: str, arch: str, peer: tuple[str, str] | None, size: int, peer_size: int) -> dict[str, Any]:
    """One row of the table."""
    instruction = lw.instruction(text)
    model = model_of(instruction, arch)
    assert model is not None
    a, b, c = matrices(model, size)
    ours = 2 * size**3 / seconds(lambda: instruction.gemm(a, b, c, arch=arch), 3) / 1e9
    row: dict[str, Any] = {"instruction": text, "arch": arch, "size": size, "gflops": round(ours, 3)}
    operation = mma_sim(peer) if peer else None
    if operation:
        a, b, c = matrices(model, peer_size)
        theirs, taken, tile = simulate(operation, a, b, c)
        d = instruction.gemm(a, b, c, arch=arch)
        same = np.array_equal(model.d.to_bits(d), model.d.to_bits(theirs))
        here = seconds(lambda: instruction.gemm(a, b, c, arch=arch), 3)
        tiles = peer_size**3 / (operation.m * operation.n * operation.k)
        row |= {
            "peer_size": peer_size,
            "peer_by_tile_gflops": float(f"{2 * peer_size**3 / (tile * tiles) / 1e9:.3g}"),
            "ratio_by_tile": round(tile * tiles / here, 1),
            "peer_at_once_gflops": float(f"{2 * peer_size**3 / taken / 1e9:.3g}"),
            "ratio_at_once": round(taken / here, 1),
            "bits_agree": same,
        }
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
        "system": f"{platform.system()} {platform.machine()}",
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
    parser.add_argument("--quick", action="store_true", help="the first case, too, at --peer-size")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    print(f"{'':68} {'ours':>8} {'MMA-Sim by tile':>18} {'at once':>18}")
    columns = f"{'GFLOP/s':>8} {'GFLOP/s':>9} {'ratio':>8} {'GFLOP/s':>9} {'ratio':>8}  bits"
    print(f"{'instruction':60} {'arch':7} {columns}")
    rows: list[dict[str, Any]] = []
    for text, arch, peer in CASES:
        full = not rows and not options.quick
        row = measure(text, arch, peer, options.size, options.size if full else options.peer_size)
        rows.append(row)
        line = f"{text:60} {arch:7} {row['gflops']:8.2f}"
        if peer and "ratio_by_tile" in row:
            line += f" {row['peer_by_tile_gflops']:9.5f} {row['ratio_by_tile']:8.0f}"
            line += f" {row['peer_at_once_gflops']:9.5f} {row['ratio_at_once']:8.0f}"
            line += "  agree" if row["bits_agree"] else "  DIFFER"
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
