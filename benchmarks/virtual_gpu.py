"""Times of the virtual GPU against the simulators of the frameworks, in one run: prints ratios, writes JSON.

    python benchmarks/virtual_gpu.py [--out FILE]

- Triton: a product of 512 x 512 x 512 in float16 with tiles of 64 x 64 x 32, against TRITON_INTERPRET=1; and
  the first call against the time that Triton's compiler alone takes.
- Numba: a tiled product of 64 x 64 matrices against Numba's own simulator (NUMBA_ENABLE_CUDASIM=1).
- A launch of a kernel that does nothing through Triton's launcher, against the same launch by the machine.

Every figure comes from a process of its own. A framework that is not installed is left out.
"""

import argparse
import json
import os
import platform
from importlib.util import find_spec
from pathlib import Path

from triton_scripts import PRODUCT, measured

TRITON = (
    """
import json, os, sys, time
import lanewise as lw
from contextlib import nullcontext

virtual = os.environ.get("TRITON_INTERPRET", "0") != "1"
with lw.virtual_gpu("H100") if virtual else nullcontext() as gpu:
    import torch
    import triton
    import triton.language as tl
"""
    + PRODUCT
    + """
    @triton.jit
    def nothing(a):
        pass

    n = 512
    device = "cuda" if virtual else "cpu"
    a, b = (torch.randn(n, n, device=device).half() for _ in range(2))
    c = torch.empty(n, n, device=device, dtype=torch.float16)
    call = lambda: product[(n // 64, n // 64)](a, b, c, n, n, 64, 64, 32)
    figures = {}
    if virtual:
        begin = time.perf_counter()
        product.warmup(a, b, c, n, n, 64, 64, 32, grid=(8, 8))
        figures["compiler_s"] = time.perf_counter() - begin
    begin = time.perf_counter()
    call()
    figures["first_s"] = time.perf_counter() - begin + figures.get("compiler_s", 0)
    times = []
    for _ in range(10 if virtual else 1):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    figures["warm_s"] = min(times)
    wanted = a.float() @ b.float()
    figures["error"] = float((c.float() - wanted).abs().max())
    if virtual:
        def least(function):
            times = []
            for _ in range(200):
                begin = time.perf_counter()
                function()
                times.append(time.perf_counter() - begin)
            return min(times)

        x = torch.zeros(4, device="cuda")
        figures["launch_s"] = least(lambda: nothing[(1,)](x))
        module = lw.load(next(iter(nothing.device_caches.values()))[0].popitem()[1].asm["ptx"])
        kernel = module[next(iter(module.entries))]
        import numpy as np
        values = [np.zeros(4, np.float32)] + [0] * (len(kernel.parameters) - 1)
        block = kernel.function.limit("reqntid")
        figures["machine_launch_s"] = least(lambda: kernel[1, block](*values, unchecked=True))
print(json.dumps(figures))
"""
)

NUMBA = """
import json, os, time
import lanewise as lw
from contextlib import nullcontext

virtual = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "1"
with lw.virtual_gpu("H100") if virtual else nullcontext():
    import warnings
    import numpy as np
    from numba import cuda, float32
    warnings.simplefilter("ignore")
    T = 16

    @cuda.jit
    def product(a, b, c):
        left = cuda.shared.array((T, T), float32)
        right = cuda.shared.array((T, T), float32)  # on a line of its own: the simulator takes a line for one
        x, y = cuda.grid(2)
        row, column = cuda.threadIdx.y, cuda.threadIdx.x
        total = float32(0)
        for part in range(a.shape[1] // T):
            left[row, column] = a[y, part * T + column]
            right[row, column] = b[part * T + row, x]
            cuda.syncthreads()
            for k in range(T):
                total += left[row, k] * right[k, column]
            cuda.syncthreads()
        c[y, x] = total

    n = 64
    rng = np.random.default_rng(0)
    a, b = (rng.random((n, n), np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    on_device = [cuda.to_device(each) for each in (a, b, c)]
    times = []
    for _ in range(5 if virtual else 1):
        begin = time.perf_counter()
        product[(n // T, n // T), (T, T)](*on_device)
        cuda.synchronize()
        times.append(time.perf_counter() - begin)
    error = float(abs(on_device[2].copy_to_host() - a @ b).max())
print(json.dumps({"first_s": times[0], "warm_s": min(times), "error": error}))
"""


def triton_row() -> dict[str, object]:
    """Return the times of Triton's product under the virtual GPU and under Triton's interpreter."""
    virtual, interpreted = measured(TRITON), measured(TRITON, TRITON_INTERPRET="1")
    return {
        "virtual": virtual,
        "interpreter": interpreted,
        "warm_ratio": interpreted["warm_s"] / virtual["warm_s"],
        "first_call_in_compiler_times": virtual["first_s"] / virtual["compiler_s"],
        "launch_overhead_ms": (virtual["launch_s"] - virtual["machine_launch_s"]) * 1e3,
    }


def numba_row() -> dict[str, object]:
    """Return the times of Numba's product under the virtual GPU and under Numba's simulator."""
    virtual, simulated = measured(NUMBA), measured(NUMBA, NUMBA_ENABLE_CUDASIM="1")
    ratio = simulated["warm_s"] / virtual["warm_s"]
    return {"virtual": virtual, "simulator": simulated, "warm_ratio": ratio}


def main() -> None:
    """Measure what is installed, print it, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="a JSON file; the rows that it has already are kept")
    out = parser.parse_args().out
    record = json.loads(out.read_text()) if out is not None and out.exists() else {"rows": {}}
    record |= {"cores": os.cpu_count(), "load": os.getloadavg()[0], "machine": platform.machine()}
    for package, row in (("triton", triton_row), ("numba_cuda", numba_row)):
        if find_spec(package) is None:
            print(f"{package}: not installed")
            continue
        record["rows"][package] = figures = row()
        print(package, json.dumps(figures, indent=2))
    if out is not None:
        out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
