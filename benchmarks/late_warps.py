"""Does a warp that comes late load what another warp of its Triton program has already stored?

    python benchmarks/late_warps.py --json late_warps.json

Needs torch, Triton and a GPU. Triton lets every thread of a program load a scalar. In `late`, one thread then
stores a new value in its place, and all threads keep what they loaded: with `tl.debug_barrier()` before the
store, or without. `rounds` of arithmetic before the load let warps drift apart. In `running`, nobody but the
thread that stores uses what was loaded. A check accuses `late` without a barrier, and nothing else:

    lanewise check --gpu H100 benchmarks/late_warps.py -- --blocks 2 --launches 1
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"

import argparse
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from gpu_times import save

HOW = (
    "launches of `blocks` programs with as many `elements` as threads; `values`: what the threads of all "
    "launches kept of the scalar that their program had before the launch; `wrong`: those that are another"
)


@triton.jit
def late(p, out, work, N: tl.constexpr, BARRIER: tl.constexpr, ROUNDS: tl.constexpr):
    """Every thread keeps the number of launches before this one, which one thread counts."""
    pid = tl.program_id(0)
    at = tl.arange(0, N)
    v = at.to(tl.float32) + pid
    for _ in range(ROUNDS):
        v = tl.exp(tl.sin(v)) * 1.25
    tl.store(work + pid * N + at, v)
    x = tl.load(p + pid)
    if BARRIER:
        tl.debug_barrier()
    tl.store(p + pid, x + 1)
    tl.store(out + pid * N + at, x + at * 0)


@triton.jit
def running(p, momentum):
    """A running mean: one thread uses what all of them load."""
    x = tl.load(p + tl.program_id(0))
    tl.store(p + tl.program_id(0), x * momentum + 1.0)


def old_values(warps: int, rounds: int, *, barrier: bool, blocks: int, launches: int) -> dict[str, Any]:
    """Count the threads that kept another value than the one before the launch."""
    elements = 32 * warps
    counts = torch.zeros(blocks, dtype=torch.int32, device="cuda")
    out = torch.empty(blocks, elements, dtype=torch.int32, device="cuda")
    work = torch.empty(blocks, elements, device="cuda")
    wrong = 0
    for launch in range(launches):
        late[(blocks,)](counts, out, work, elements, barrier, rounds, num_warps=warps)
        wrong += int((out != launch).sum())
        assert (counts == launch + 1).all()
    return {
        "kernel": "late", "warps": warps, "rounds": rounds, "barrier": barrier, "blocks": blocks,
        "elements": elements, "launches": launches, "values": launches * out.numel(), "wrong": wrong,
    }  # fmt: skip


def running_means(blocks: int, launches: int) -> dict[str, Any]:
    """Count the running means that differ from the CPU's."""
    means, expected, wrong = torch.zeros(blocks, device="cuda"), torch.zeros(blocks), 0
    for _ in range(launches):
        running[(blocks,)](means, 0.5, num_warps=32)
        expected = expected * 0.5 + 1.0
        wrong += int((means.cpu() != expected).sum())
    return {
        "kernel": "running", "warps": 32, "blocks": blocks, "launches": launches,
        "values": launches * blocks, "wrong": wrong,
    }  # fmt: skip


def main() -> None:
    """Make the experiments, print a line for each, and save them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--blocks", type=int, default=2048, help="programs of a launch")
    parser.add_argument("--launches", type=int, default=25)
    options = parser.parse_args()
    rows = []
    for warps in (4, 8, 32):
        for rounds in (0, 32):
            for barrier in (False, True):
                size = {"blocks": options.blocks, "launches": options.launches}
                rows.append(old_values(warps, rounds, barrier=barrier, **size))
                print(*rows[-1].values(), flush=True)
    rows.append(running_means(2 * options.blocks, 8 * options.launches))
    print(*rows[-1].values(), flush=True)
    save(options.json, HOW, triton=triton.__version__, experiments=rows)


if __name__ == "__main__":
    main()
