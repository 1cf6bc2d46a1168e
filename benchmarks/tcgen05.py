"""How fast the machine runs kernels with tensor memory: products, checks, cold compiles, cost against blocks.

    python benchmarks/tcgen05.py [--only NAME …] [--out benchmarks/results/tcgen05_speed.json]

Rungs 12 and 13 of examples/gemm are the kernels: 512³ in bf16, beside the same product by the instruction's
`gemm`. Ratios are of processor time, so that what else runs on the machine does not count.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from arithmetic import machine, processor_seconds

import lanewise as lw

HERE = Path(__file__).parent
LADDER = HERE.parent / "examples" / "gemm"
SIZE = 512
RUNGS = {11: "rung11_persistent", 12: "rung12_tensor_memory", 13: "rung13_pairs"}
#: A new process that compiles a rung, runs it or checks it; it prints its processor time and that of imports.
FIRST = """
import sys, time
sys.path[:0] = [{ladder!r}, {here!r}]
from tcgen05 import prepared
launched, arguments, _ = prepared({number}, {size})
begun = time.process_time()
import lanewise as lw
{work}
print(time.process_time() - begun)
"""
WORKS = {"launch": "launched(*arguments)", "check": "lw.check(launched, *arguments)"}
#: Each thread writes a word of tensor memory and adds what it loads to a sum.
WORDS = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry words(.param .u64 sums)
{
    .reg .b32 %r<6>; .reg .b64 %rd<3>; .reg .pred %p<2>;
    .shared .align 4 .b32 place;
    ld.param.u64 %rd0, [sums];
    mov.u32 %r0, %tid.x;
    setp.gt.u32 %p0, %r0, 31;
    @%p0 bra $ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
$ALLOCATED:
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %r1, [place];
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r0};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r1];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    red.global.add.u32 [%rd1], %r2;
    bar.sync 0;
    @%p0 bra $FREED;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;
$FREED:
    ret;
}
"""


def prepared(number: int, size: int) -> tuple[Any, tuple[Any, ...], tuple[Any, Any, Any]]:
    """Return a rung's configured kernel, its arguments, and A, B and C."""
    if str(LADDER) not in sys.path:
        sys.path.insert(0, str(LADDER))
    rung = __import__(RUNGS[number])
    rng = np.random.default_rng(number)
    a, b = (rng.standard_normal((size, size)).astype(lw.bf16.dtype) for _ in range(2))
    c = np.zeros((size, size), lw.bf16.dtype)
    launched, arguments, _ = rung.prepare(a, b, c)
    return launched, arguments, (a, b, c)


def measure_product(number: int) -> dict[str, Any]:
    """A rung beside `gemm` of its instruction, and a check of it."""
    launched, arguments, (a, b, c) = prepared(number, SIZE)
    group = 1 if number == 12 else 2
    mma: Any = lw.instruction(f"tcgen05.mma.cta_group::{group}.kind::f16", a="bf16", b="bf16", d="f32")

    def on_machine() -> None:
        launched(*arguments)

    def by_gemm() -> None:
        mma.gemm(a, b, arch="sm_100a")

    def checked() -> None:
        str(lw.check(launched, *arguments))

    on_machine()
    assert c.tobytes() == np.asarray(mma.gemm(a, b, arch="sm_100a")).astype(c.dtype).tobytes()
    checked()
    by_rounds = [[processor_seconds(work, 1) for work in (on_machine, by_gemm, checked)] for _ in range(12)]
    ours, whole, under_check = (min(times) for times in zip(*by_rounds, strict=True))
    row = {
        "size": SIZE,
        "processor_seconds": round(ours, 4),
        "gemm_processor_seconds": round(whole, 4),
        "share_of_gemm": round(whole / ours, 3),
        "check_processor_seconds": round(under_check, 4),
        "check": round(under_check / ours, 2),
    }
    print(
        f"rung {number}: {row['share_of_gemm']:.2f} of gemm's rate, a check {row['check']:.2f} x", flush=True
    )
    return row


def measure_first(size: int = 256) -> dict[str, Any]:
    """Processor seconds of a first launch and of a first check in a new process, nothing on disk."""
    rows: dict[str, Any] = {}
    for name, work in WORKS.items():
        for number in RUNGS:
            times = []
            for _ in range(3):
                with tempfile.TemporaryDirectory() as directory:
                    code = FIRST.format(
                        ladder=str(LADDER), here=str(HERE), number=number, size=size, work=work
                    )
                    run = subprocess.run(
                        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
                        env={**os.environ, "LANEWISE_CACHE_DIR": directory},
                    )  # fmt: skip
                    times.append(float(run.stdout.split()[-1]))
            rows[f"{name}_rung_{number}"] = round(min(times), 2)
        for number in (12, 13):
            ratio = rows[f"{name}_rung_{number}"] / rows[f"{name}_rung_11"]
            rows[f"{name}_rung_{number}_to_11"] = round(ratio, 2)
    print(f"first launches and checks, empty cache: {rows}", flush=True)
    return rows


def measure_blocks() -> dict[str, Any]:
    """Seconds and memory of launches with tensor memory against the number of blocks."""
    kernel = lw.load(WORDS)["words"]
    sums = np.zeros(128, np.uint32)
    kernel[10, 128](sums)
    rows: dict[str, Any] = {}
    for blocks in (1000, 4000, 16_000):
        sums[:] = 0
        kernel[blocks, 128](sums)
        assert (sums == np.arange(128) * blocks).all()
        spent = processor_seconds(lambda blocks=blocks: kernel[blocks, 128](sums), 3)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows[str(blocks)] = {"microseconds_a_block": round(spent / blocks * 1e6, 2), "peak_MB": memory >> 10}
    print(f"launches with tensor memory: {rows}", flush=True)
    return rows


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "rung_12": lambda: measure_product(12),
    "rung_13": lambda: measure_product(13),
    "first": measure_first,
    "blocks": measure_blocks,
}


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts alone")
    parser.add_argument("--out", type=Path, help="write the figures here; parts that are not measured stay")
    asked = parser.parse_args()
    rows: dict[str, Any] = {}
    if asked.out and asked.out.is_file():
        rows = json.loads(asked.out.read_text())
    rows |= {"machine": machine(), "date": time.strftime("%Y-%m-%d")}
    for name in asked.only or PARTS:
        rows[name] = PARTS[name]()
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
