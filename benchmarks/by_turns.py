"""Time two checkouts of lanewise by turns: for each figure, how many times as fast the second one is.

Run `python benchmarks/by_turns.py BEFORE AFTER` on two folders that hold `src/lanewise`, with an interpreter
that has their dependencies (`git worktree add ../before COMMIT` makes such a folder). Busy machines sway two
records that were made one after the other by 20 % and more. Here each checkout has a process of its own, the
two run the same work by turns, and the ratio of each pair of neighbours counts: the median of these ratios is
the figure, with the range that holds the true median in 19 cases of 20. The exit status is 1 if that range
lies wholly below `--at-least`.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

KERNELS = Path(__file__).parent / "kernels" / "machine.ptx"
START = f"""
import time
began = time.process_time()
import lanewise as lw
import numpy as np
a = np.ones((64, 64), np.float16)
lw.load({str(KERNELS)!r})["hgemm"][(8, 4), 32](a, a, np.zeros_like(a), 64, 64, 64)
print(time.process_time() - began)
"""
#: Matrix instructions and the GPU whose arithmetic they have; square matrices of the size that follows.
PRODUCTS = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", 384),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", 384),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", 384),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90", 384),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90", 384),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", 384),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120", 384),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90", 512),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80", 512),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70", 384),
    ("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3", "sm_90a", 384),
)


def works() -> dict[str, Callable[[], Any]]:
    """The work of each figure, by name; only what every release has is called."""
    import numpy as np

    import lanewise as lw

    module = lw.load(KERNELS)
    made: dict[str, Callable[[], Any]] = {}

    def launch(name: str, kernel: str, grid: Any, block: Any, *arguments: Any) -> None:
        configured = module[kernel][grid, block]
        made[name] = lambda: configured(*arguments)

    def check(name: str, kernel: str, grid: Any, block: Any, *arguments: Any) -> None:
        configured = module[kernel][grid, block]
        made[f"check / {name}"] = lambda: lw.check(configured, *arguments)

    counts = np.zeros(512 * 128, np.int32)
    launch("mandelbrot", "mandelbrot", 256, 256, counts, 512, np.float32(2.5 / 512), 256)
    for blocks, turns in [(count, 4) for count in (1, 10, 100, 1000)] + [(8, count) for count in (100, 1000)]:
        x = np.linspace(-1, 1, 256 * blocks, dtype=np.float32)
        name = f"polynomial / {blocks} blocks of {turns} turns"
        launch(name, "polynomial", blocks, 256, x, np.zeros_like(x), turns)
    x, y = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    launch("saxpy", "saxpy", 1 << 12, 256, x, y, np.float32(1e-3), len(x))
    large = np.zeros(512 << 18, np.float32)
    launch("saxpy / a block of 512 MB", "saxpy", 1, 256, large, large, np.float32(2), 256)
    square = np.ones((1024, 1024), np.float32)
    launch("transpose", "transpose", (32, 32), (32, 8), square, square.copy(), 1024)
    launch("reduction", "reduction", 1024, 256, x[: 1 << 18], np.zeros(1024, np.float32))
    check("saxpy", "saxpy", 1 << 10, 256, x, y, np.float32(2), 1 << 18)
    small = np.ones((512, 512), np.float32)
    check("transpose", "transpose", (16, 16), (32, 8), small, small.copy(), 512)
    check("reduction", "reduction", 256, 256, x[: 1 << 16], np.zeros(256, np.float32))
    for size in (256, 512):
        a = np.ones((size, size), np.float16)
        arguments = (a, a, np.zeros_like(a), size, size, size)
        launch(f"hgemm / {size}", "hgemm", (size // 8, size // 16), 32, *arguments)
        check(f"hgemm {size}", "hgemm", (size // 8, size // 16), 32, *arguments)
    for text, arch, size in PRODUCTS:
        mma = lw.instruction(text)
        rng = np.random.default_rng(0)
        a, b = (operand.format.array(rng.integers(-7, 8, (size, size))) for operand in (mma.a, mma.b))
        made[f"product / {text} {arch}"] = partial(mma.gemm, a, b, arch=arch)

    def compiled() -> None:
        with tempfile.TemporaryDirectory() as empty:
            run = {**os.environ, "LANEWISE_CACHE_DIR": empty}
            subprocess.run([sys.executable, "-c", START], check=True, capture_output=True, env=run)

    made["new process, nothing kept"] = compiled
    made["new process, machine code kept"] = lambda: subprocess.run(
        [sys.executable, "-c", START], check=True, capture_output=True
    )
    return made


def processor_seconds() -> float:
    """The time that processors have spent on this process and on the children that it waited for."""
    import resource  # POSIX alone has it

    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def serve(clock: Callable[[], float]) -> None:
    """Answer on standard output, in seconds, each line of standard input that names a work."""
    made = works()
    print(json.dumps(list(made)), flush=True)
    for line in sys.stdin:
        began = clock()
        made[line.strip()]()
        print(clock() - began, flush=True)


class Checkout:
    """A process that runs one checkout's work when asked."""

    def __init__(self, folder: Path, cache: Path, *options: str) -> None:
        source = folder.resolve() / "src"
        if not (source / "lanewise").is_dir():
            raise SystemExit(f"{folder} holds no src/lanewise")
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "LANEWISE_CACHE_DIR": str(cache),
            "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", *options],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.names = json.loads(self.answer())

    def answer(self) -> str:
        output: IO[str] | None = self.process.stdout
        line = output.readline() if output else ""
        if not line:
            raise SystemExit(f"a process ended early, with status {self.process.wait()}")
        return line

    def seconds(self, name: str) -> float:
        """The seconds that one run takes."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def median_range(ratios: list[float]) -> tuple[float, float, float]:
    """The median of a sample, and the range of ranks that holds the true one in 19 cases of 20."""
    ordered = sorted(ratios)
    away = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - away))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + away) - 1)
    return statistics.median(ordered), ordered[low], ordered[high]


def by_turns(
    before: Checkout, after: Checkout, name: str, rounds: int, limit: float
) -> tuple[list[float], float, float]:
    """The ratios of neighbours, and the shortest time of either checkout."""
    for each in (before, after):
        for _ in range(2):  # compile, then load what is used from the second run on
            each.seconds(name)
    ratios: list[float] = []
    old, new = [], []
    began = time.monotonic()
    while len(ratios) < rounds and (len(ratios) < 10 or time.monotonic() - began < limit):
        first, second = (before, after) if len(ratios) % 2 else (after, before)
        taken = {id(first): first.seconds(name), id(second): second.seconds(name)}
        old.append(taken[id(before)])
        new.append(taken[id(after)])
        ratios.append(old[-1] / new[-1])
    return ratios, min(old), min(new)


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    listing = Path("/proc/cpuinfo")
    names = listing.read_text().splitlines() if listing.exists() else []
    return next((line.partition(": ")[2] for line in names if "model name" in line), platform.machine())


def main() -> int:
    """Print a line for each figure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, nargs="?", help="a checkout to compare with")
    parser.add_argument("after", type=Path, nargs="?", help="the checkout to judge")
    parser.add_argument("--at-least", type=float, default=0.97, help="the lowest ratio that is no loss")
    parser.add_argument("--rounds", type=int, default=101, help="pairs of runs for each figure, at most")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds for each figure, after 10 rounds")
    parser.add_argument("--only", default="", help="figures whose names contain this")
    parser.add_argument(
        "--processors", action="store_true", help="count processors' time: for machines that others use too"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to a file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(processor_seconds if options.processors else time.perf_counter)
        return 0
    if options.before is None or options.after is None:
        parser.error("two checkouts are needed: BEFORE AFTER")
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as caches:
        before, after = (
            Checkout(folder, Path(caches) / side, *["--processors"] * options.processors)
            for side, folder in (("before", options.before), ("after", options.after))
        )
        print(f"{'ratio':>6}  {'range':13}  {'before':>9}  {'after':>9}  rounds  figure")
        for name in before.names:
            if options.only not in name:
                continue
            ratios, old, new = by_turns(before, after, name, options.rounds, options.limit)
            middle, low, high = median_range(ratios)
            rows[name] = {"ratio": middle, "low": low, "high": high, "before": old, "after": new}
            mark = "  below" if high < options.at_least else ""
            print(
                f"{middle:6.3f}  {low:5.3f} – {high:5.3f}  {old:9.3g}  {new:9.3g}  {len(ratios):6}  "
                f"{name}{mark}",
                flush=True,
            )
        before.close()
        after.close()
    if options.json:
        record = {
            "processor": processor(),
            "processors": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d"),
            "before": str(options.before),
            "after": str(options.after),
            "figures": rows,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    below = [name for name, row in rows.items() if row["high"] < options.at_least]
    print(f"{len(rows)} figures, {len(below)} below {options.at_least:g}")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
