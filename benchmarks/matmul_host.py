"""What a call of lw.matmul costs the host, beside torch.matmul: warm, in a new process, with nothing kept.

    python benchmarks/matmul_host.py [--json FILE]

Warm: microseconds until the call returns, the least of many batches, the GPU having less to do than the host.
A new process imports torch and lanewise and does some work on the GPU first; then its first product of 512³
is timed until the result is there. The cache folder is empty at first, and is then used by the next process.
Python's own bytecode is there, as in an installed package: a process before has written it.
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST = """
import time
import torch
a, b = (torch.randn(512, 512, device="cuda").bfloat16() for _ in range(2))
torch.matmul(a, b)
import lanewise as lw
lw.matmul
torch.cuda.synchronize()
began = time.perf_counter()
lw.matmul(a, b)
torch.cuda.synchronize()
print(time.perf_counter() - began)
"""


def warm(call: Callable[[], Any], calls: int = 200, batches: int = 25) -> float:
    """Return the microseconds of host time that a call takes, of the fastest batch."""
    import torch

    for _ in range(50):
        call()
    best = float("inf")
    for _ in range(batches):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - began) / calls)
    return best * 1e6


def first_call(cache: str, bytecode: str) -> float:
    """Return the seconds of a new process's first product; its kernels are in the folder, or are made."""
    environment = {**os.environ, "LANEWISE_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def main() -> None:
    """Measure, print, and write what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import torch

    import lanewise as lw

    a, b = (torch.randn(64, 64, device="cuda").bfloat16() for _ in range(2))
    out, bias = torch.empty_like(a), torch.randn(64, device="cuda").bfloat16()
    sparse = lw.sparsify(b)
    found = {
        "lw.matmul(a, b)": warm(lambda: lw.matmul(a, b)),
        "torch.matmul(a, b)": warm(lambda: torch.matmul(a, b)),
        "lw.matmul(a, b, out=out)": warm(lambda: lw.matmul(a, b, out=out)),
        "torch.matmul(a, b, out=out)": warm(lambda: torch.matmul(a, b, out=out)),
        "lw.matmul(a, b, bias=bias)": warm(lambda: lw.matmul(a, b, bias=bias)),
        "torch.addmm(bias, a, b)": warm(lambda: torch.addmm(bias, a, b)),
        "lw.matmul(a, sparse)": warm(lambda: lw.matmul(a, sparse)),
        "lw.matmul(a, sparse, bias=bias)": warm(lambda: lw.matmul(a, sparse, bias=bias)),
        "torch.empty": warm(lambda: torch.empty((64, 64), device="cuda")),
    }
    for name, microseconds in found.items():
        print(f"{name:<32}{microseconds:8.1f} µs of host time")
    with tempfile.TemporaryDirectory() as folder:
        bytecode = f"{folder}/bytecode"
        first_call(f"{folder}/first", bytecode)
        times = {
            "first call, nothing kept": first_call(f"{folder}/second", bytecode),
            "first call, kernel kept": min(first_call(f"{folder}/second", bytecode) for _ in range(2)),
        }
    for name, seconds in times.items():
        print(f"{name:<32}{seconds * 1e3:8.1f} ms")
    if given.json:
        content: dict[str, Any] = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "python": sys.version,
        }
        content |= {"microseconds": found, "seconds": times, "date": time.strftime("%Y-%m-%d")}
        given.json.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
