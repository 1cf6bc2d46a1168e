"""What ordinary instructions cost chains of wgmma that run beside them, in cycles of a multiprocessor.

    python benchmarks/wgmma_beside.py --json beside.json

Two warpgroups multiply 128 × 128 × 128 numbers of e4m3 again and again: each issues four wgmma of m64n128k32
to one accumulator while it uses the sums in the other. The operands lie at rest in shared memory, so that a
step takes 512 cycles if nothing gets in the way of the tensor cores. This is the inner loop of products with
block scales; the record explains how fast they can be.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,valid-type"

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import lanewise as lw
from lanewise import lang
from lanewise.formats import e4m3, f32
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.kernels.hopper.shared_memory import line_swizzle

COLUMNS, WARPGROUPS, BLOCKS, PAIRS = 128, 2, 132, 500
THREADS, REGISTERS = 128 * WARPGROUPS, COLUMNS // 2
STEP_BYTES = (64 * WARPGROUPS + COLUMNS) * 128
#: Numbers in shared memory beside the operands: 256 that are loaded, and room for the copies on their way.
SCALES = 256 + 2048
#: Cycles that the tensor cores take for a step: they multiply 4096 pairs of 8 bits in a cycle.
IDEAL = 64 * WARPGROUPS * COLUMNS * 128 // 4096
#: A number of loops that nobody asks for.
NEVER = -1


class Beside(NamedTuple):
    """What each thread does in a step: fused multiply-adds, loads from shared memory, and copies to it.

    A copy of 4 bytes is made in each step by half of the threads; one of 16 bytes in every fourth step. They
    read rows that are 128 bytes apart, as scales of blocks lie in memory.
    """

    fma: int = 0
    loads: int = 0
    copied_bytes: int = 0

    def __str__(self) -> str:
        words = [f"{self.fma} fma"] if self.fma else []
        words += [f"{self.loads} loads"] if self.loads else []
        words += [f"copies of {self.copied_bytes} bytes"] if self.copied_bytes else []
        return ", ".join(words) or "nothing"


CASES = (
    Beside(), Beside(fma=32), Beside(fma=64), Beside(fma=128), Beside(copied_bytes=4),
    Beside(copied_bytes=16), Beside(64, 3), Beside(64, 3, 4), Beside(64, 3, 16),
)  # fmt: skip


def kernel(beside: Beside) -> Any:
    """Return the kernel that multiplies with some work beside."""
    mma = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k32.f32.e4m3.e4m3")
    swizzle: Swizzle = line_swizzle(1)
    rows = 64 * WARPGROUPS

    @lang.device
    def chain(sums, a, b, own, stage):
        lang.wgmma_fence()
        for k in range(0, 128, 32):
            sums = mma(a[0, k, own, stage], b[0, k, stage], sums, accumulate=k > 0)
        lang.wgmma_commit()
        return sums

    @lang.device
    def work(totals, sums, factor, scales, memory, step):
        thread = lang.thread_idx.x
        for i in range(beside.loads):
            factor = factor + scales[thread // 4 + 64 * i]
        for i in range(beside.fma):
            at = i % REGISTERS
            totals[at] = lang.fma(sums[at], factor, totals[at])
        if beside.copied_bytes:  # noqa: SIM102, decided while tracing
            if thread < 128:
                source = memory + ((lang.block_idx.x * 128 + thread) * 32 + step)
                if beside.copied_bytes == 4:
                    lang.cp_async(scales.ptr(256 + step % 8 * 128 + thread), source, 4)
                elif step % 4 == 0:
                    target = scales.ptr(256 + step // 4 % 4 * 512 + 4 * thread)
                    lang.cp_async(target.aligned(16), source.aligned(16), 16)
                lang.cp_async_commit()
                lang.cp_async_wait(4)
        return totals

    @lang.kernel(max_threads=THREADS, min_blocks=1)
    def beside_wgmma(
        memory: lang.Ptr[f32], out: lang.Ptr[f32], cycles: lang.Ptr[lang.i32], pairs: lang.i32, factor: f32
    ):
        shape, steps = (64, 128, WARPGROUPS, 2), (128, 1, 64 * 128, rows * 128)
        of_a = lang.dynamic_shared(e4m3, Layout(shape, steps), swizzle=swizzle)
        of_b = lang.dynamic_shared(
            e4m3, Layout((COLUMNS, 128, 2), (128, 1, COLUMNS * 128)), swizzle=swizzle, offset=2 * rows * 128
        )
        a, b = lang.make_gmma_desc(of_a), lang.make_gmma_desc(of_b)
        words = lang.dynamic_shared(lang.i32, Layout((2 * STEP_BYTES // 4,), (1,)))
        scales = lang.dynamic_shared(f32, Layout((SCALES,), (1,)), offset=2 * STEP_BYTES)
        thread = lang.thread_idx.x
        own = lang.shfl_sync(thread // 128, 0)
        for word in lang.range(thread, 2 * STEP_BYTES // 4, THREADS):
            bits = word * 1103515245 + 12345
            words[word] = ((bits ^ (bits >> 7)) * 747796405) & 0x77777777  # no NaN
        for scale in lang.range(thread, SCALES, THREADS):
            scales[scale] = f32(0.5)
        lang.fence_proxy_async()
        lang.syncthreads()
        sums = [mma.zeros(), mma.zeros()]
        totals = [factor * i for i in range(REGISTERS)]
        began = lang.clock()
        sums[0] = chain(sums[0], a, b, own, 0)
        for pair in lang.range(pairs):
            for turn in range(2):
                sums[1 - turn] = chain(sums[1 - turn], a, b, own, 1 - turn)
                lang.wgmma_wait(1)
                totals = work(totals, sums[turn], factor, scales, memory, (2 * pair + turn) % 32)
                if pairs == NEVER:
                    lang.trap()  # without a way out here, ptxas waits for each wgmma before the next (C7514)
        lang.wgmma_wait(0)
        if thread % 128 == 0:
            cycles[lang.block_idx.x * WARPGROUPS + own] = (lang.clock() - began).to(lang.i32)
        total = f32(0.0)
        for i in range(REGISTERS):
            total = total + totals[i] + sums[0][i] + sums[1][i]
        out[lang.block_idx.x * THREADS + thread] = total

    return beside_wgmma


def cycles_of_a_step(beside: Beside) -> float:
    """Return the cycles of a step in the slower warpgroup, the median of all multiprocessors."""
    import torch

    memory = torch.rand(BLOCKS * 128 * 32, device="cuda")
    out = torch.zeros(BLOCKS * THREADS, device="cuda")
    cycles = torch.zeros(BLOCKS * WARPGROUPS, dtype=torch.int32, device="cuda")
    launch = kernel(beside)[BLOCKS, THREADS, 2 * STEP_BYTES + 4 * SCALES]
    for _ in range(3):
        launch(memory, out, cycles, PAIRS, 0.5)
    return float(median(cycles.view(BLOCKS, WARPGROUPS).amax(1).tolist())) / (2 * PAIRS + 1)


def main() -> None:
    """Measure all cases, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = lw.gpu.devices()[0]
    rows = []
    print(f"{'beside each step':<40}{'cycles':>8}{'more':>8}")
    for beside in CASES:
        cycles = cycles_of_a_step(beside)
        print(f"{beside!s:<40}{cycles:>8.1f}{cycles - IDEAL:>8.1f}", flush=True)
        rows.append({"beside": str(beside), **beside._asdict(), "cycles": round(cycles, 1), "ideal": IDEAL})
    if given.json:
        found = {
            "device": device.name, "driver": device.driver, "date": datetime.now(UTC).date().isoformat(),
            "rows": rows,
        }  # fmt: skip
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
