"""What a call of sizes that no call had before costs the host, where the kernel is known: without a GPU.

    python benchmarks/new_sizes.py [--json FILE]

The driver is one that does nothing, so that what is timed is the library's own work: the plan, the arguments,
tensor maps, and what is kept on disk. Products are (M, 4096) by (4096, 4096), bf16, of 40 random M, each
followed by one with a row less; attentions have one query of 32 heads that share 8, and a key more each time.
A second process begins with the kernels that the first one kept, and with other numbers of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from lanewise.gpu import device
from lanewise.linalg import attention
from lanewise.linalg.launch import attention as launch_attention
from lanewise.linalg.launch import prepare
from lanewise.linalg.options import Options
from lanewise.linalg.rules import request_of

#: Attributes of an H200, by their numbers.
_ATTRIBUTES = {16: 132, 75: 9, 76: 0, 97: 232448}
_DEPTH, _SEED = 4096, 5


class NoDriver:
    """A driver that does nothing."""

    version, places = (13, 0), (0, 0)

    def number(self, name: str, *arguments: Any) -> int:
        """Return an attribute."""
        if name == "cuDeviceGetAttribute":
            return _ATTRIBUTES[arguments[0]]
        if name == "cuFuncGetAttribute":
            return {0: 1024, 4: 168}.get(arguments[0], 0)
        return int(name == "cuDeviceGetCount")

    def handle(self, *_: Any, kernel: str = "") -> int:
        """Return a handle."""
        return 7

    def __call__(self, *_: Any, kernel: str = "") -> None:
        """Do nothing."""

    def launch(self, *_: Any) -> int:
        """Launch nothing."""
        return 0


def without_a_gpu() -> None:
    """Let launches go to a driver that does nothing."""
    import lanewise.gpu.arrays
    import lanewise.gpu.driver

    driver: Any = lanewise.gpu.driver
    driver.load = NoDriver
    there = device.Context(0)
    modules: list[Any] = [prepare, lanewise.gpu.arrays]
    for module in modules:
        module.context = lambda _: there
    both: list[Any] = [prepare, launch_attention]
    for module in both:
        module.workspace_for = lambda like, size, counts=False: np.empty(size, np.uint8)
        module.current_stream = lambda like, ordinal: 0
        module.address_of = lambda memory: 0 if memory is None else memory.ctypes.data
    both[1].counters_for = lambda like, ordinal, stream: np.empty(64, np.uint32)


def multiply(rows: int, weights: Any) -> Callable[[], None]:
    """Return a product of some rows."""
    x = np.zeros((rows, _DEPTH), ml_dtypes.bfloat16)

    def call() -> None:
        request = request_of(x, weights, Options())
        for name in ("a", "b", "out"):
            setattr(request, name, getattr(request, name)._replace(device=0))
        assert request.problem is not None
        prepare.run(request, request.problem, None, None, 0)

    return call


def attend(q: Any, k: Any, keys: int) -> Callable[[], None]:
    """Return an attention of a query to the first keys."""
    arrays = (q, k[:, :, :keys], k[:, :, :keys], np.empty_like(q))

    def call() -> None:
        views = [
            attention._operand(each, name)._replace(device=0, library="torch")
            for each, name in zip(arrays, ("q", "k", "v", "out"), strict=True)
        ]
        settings = attention.AttentionSettings(False, 0.1, False, False)
        made = attention._call(views[:3], views[3], None, settings)
        launch_attention.compute(made, None)

    return call


def median(calls: list[Callable[[], None]]) -> float:
    """Return the median of the microseconds that calls take, each made once."""
    times = []
    for call in calls:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return round(1e6 * float(np.median(times)), 1)


def measured(second: bool) -> dict[str, float]:
    """Return what this process measures; the second one begins with what the first one kept."""
    without_a_gpu()
    weights = np.zeros((_DEPTH, _DEPTH), ml_dtypes.bfloat16).T
    rows = [8 * int(each) for each in np.random.default_rng(_SEED).permutation(np.arange(1, 375))[:40]]
    if second:
        return {"product, kernel kept by another process": median([multiply(m - 2, weights) for m in rows])}
    found = {"product, kernel not known": median([multiply(m, weights) for m in rows])}
    found["product, one row less"] = median([multiply(m - 1, weights) for m in rows])
    q, k = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((1, 32, 1, 128), (1, 8, 4000, 128)))
    median([attend(q, k, keys) for keys in range(2500, 2600)])
    found["attention, one key more"] = median([attend(q, k, keys) for keys in range(2600, 3000)])
    return found


def main() -> None:
    """Measure in two processes, print, and write what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--process", type=int, choices=(1, 2), help="what one of the processes measures")
    given = parser.parse_args()
    if given.process:
        print(json.dumps(measured(given.process == 2)))
        return
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LANEWISE_CACHE_DIR": folder}
        for process in ("1", "2"):
            command = [sys.executable, __file__, "--process", process]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            found |= json.loads(done.stdout)
            for kept in Path(folder).glob("*.launch"):
                kept.unlink()
    for name, microseconds in found.items():
        print(f"{name:42s} {microseconds:10.1f} µs")
    if given.json:
        about = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        given.json.write_text(json.dumps({**about, "microseconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
