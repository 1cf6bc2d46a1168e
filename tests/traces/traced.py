"""Kernels that the tests of traces run, and what a trace says of memory as an array."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

import lanewise as lw

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page_at(path: Path, step: int) -> str:
    """Return a saved page as a browser shows it at a step."""
    profile = f"--user-data-dir={path.parent / 'b'}"
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", profile,
            "--virtual-time-budget=5000", "--dump-dom", f"{path.as_uri()}#{step}",
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SWIZZLE = lw.Swizzle(1, 3, 3)


@lw.kernel
def hgemm(A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16, 16], C: lw.Ptr[lw.f32], N: lw.i32, K: lw.i32):
    lane = lw.lane_id()
    row, col = lw.block_idx.y * 16, lw.block_idx.x * 8
    As, Bs = lw.shared(lw.f16, lw.Layout((16, 16), (16, 1)), swizzle=SWIZZLE), lw.shared(lw.f16, (16, 8))
    acc = mma.zeros()
    for k in lw.range(0, K, 16):
        r, c = lane // 2, lane % 2 * 8
        As.ptr(r, c).store((A + (row + r) * K + k + c).load(8))
        if lane < 16:
            Bs.ptr(lane, 0).store((B + (k + lane) * N + col).load(8))
        lw.syncthreads()
        a = lw.ldmatrix(As.ptr(lane % 16, lane // 16 * 8), num=4)
        b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)
        acc = mma(a, b, acc)
        lw.syncthreads()
    for i in range(len(acc)):
        r, c = acc.element(i)
        C[(row + r) * N + col + c] = acc[i]


@lw.kernel
def reduction(X: lw.Ptr[lw.f32], Y: lw.Ptr[lw.f32], N: lw.i32):
    """Sums by shuffles, then over warps: lanes part in loops and branches."""
    i = lw.thread_idx.x
    parts = lw.shared(lw.f32, (4,))
    total = lw.f32(0)
    for j in lw.range(i, N, lw.block_dim.x):
        x = X[j]
        if x > 0:
            total += x * 2
        else:
            total -= x
    for step in (16, 8, 4, 2, 1):
        total += lw.shfl_down_sync(total, step)
    if i % 32 == 0:
        parts[i // 32] = total
    lw.syncthreads()
    if i == 0:
        whole = parts[0] + parts[1] + parts[2] + parts[3]
        Y[0] = whole


def matrices(m: int = 32, n: int = 16, k: int = 48, seed: int = 0) -> list[npt.NDArray[np.generic]]:
    """Return A, B and an empty C."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return [a, b, np.zeros((m, n), np.float32)]


def hgemm_trace(arrays: list[npt.NDArray[np.generic]], **options: object) -> lw.traces.Trace:
    """Return the trace of the product of some matrices."""
    a, b, c = arrays
    (m, k), n = a.shape, b.shape[1]
    return lw.trace(hgemm[(n // 8, m // 16), 32], a, b, c, n, k, **options)


def written(run: lw.traces.Trace, name: str) -> npt.NDArray[np.generic]:
    """Return an argument as the stores and asynchronous copies of a trace made it, from zeros."""
    array = next(each for each in run.arrays if each.name == name)
    memory = np.zeros(array.array.nbytes, np.uint8)
    stores: list[tuple[int, int, npt.NDArray[np.uint8]]] = []
    for step in run.steps:
        for access in step.memory:
            if access.kind != "read" and access.space == "global" and not access.asynchronous:
                for address, values in zip(access.generic, access.values, strict=True):
                    stores.append((step.entry, int(address), np.ascontiguousarray(values).view(np.uint8)))
    runs, log = run.recording.log.runs, run.recording.log.memory
    for entry, address, size, first in zip(runs.entry, runs.target, runs.size, runs.offset, strict=True):
        stores.append((int(entry), int(address), log[first : first + size]))
    for _, address, raw in sorted(stores, key=lambda store: store[0]):
        offset = address - array.address
        if 0 <= offset < memory.size:
            memory[offset : offset + raw.size] = raw[: memory.size - offset]
    return memory.view(array.array.dtype).reshape(array.array.shape)
