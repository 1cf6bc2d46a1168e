"""Kernels of reductions and scans, for the machine and a GPU."""

from __future__ import annotations

from typing import Any

import lanewise as lw

THREADS = 96


@lw.kernel
def over_warps(x: lw.Ptr[lw.f32], n: lw.Ptr[lw.i32], f: lw.Ptr[lw.f32], i: lw.Ptr[lw.i32], W: lw.Constexpr):
    t = lw.thread_idx.x
    for k, op in enumerate(("sum", "max", "min")):
        f[k * THREADS + t] = lw.warp_reduce(x[t], op, width=W)
        i[k * THREADS + t] = lw.warp_reduce(n[t], op, width=W)
        f[(3 + k) * THREADS + t] = lw.warp_scan(x[t], op, width=W)
        i[(3 + k) * THREADS + t] = lw.warp_scan(n[t], op, width=W, exclusive=True)
    best, where = lw.warp_reduce(x[t], "argmax", width=W)
    f[6 * THREADS + t], i[6 * THREADS + t] = best, where
    least, place = lw.warp_reduce((n[t], 1000 - t), "argmin", width=W)
    i[7 * THREADS + t], f[7 * THREADS + t] = place, least.to(lw.f32)


@lw.kernel
def over_blocks(x: lw.Ptr[lw.f32], f: lw.Ptr[lw.f32], i: lw.Ptr[lw.i32], rounds: lw.i32):
    t, size = lw.thread_rank(), lw.block_dim.x * lw.block_dim.y
    for k in lw.range(rounds):  # the same slots of shared memory again and again
        f[k * size + t] = lw.block_reduce(x[t] + k.to(lw.f32), "sum")
    f[rounds * size + t] = lw.block_scan(x[t])
    f[(rounds + 1) * size + t] = lw.block_scan(x[t], "max", exclusive=True)
    best, where = lw.block_reduce(x[t], "argmax")
    f[(rounds + 2) * size + t], i[t] = best, where


def compose(a: Any, b: Any) -> Any:
    """The composition of two maps x → m·x + c: associative, and not commutative."""
    return b[0] * a[0], b[0] * a[1] + b[1]


@lw.kernel
def with_a_function(m: lw.Ptr[lw.i32], c: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
    t = lw.thread_idx.x
    here = m[t], c[t]
    results = (
        lw.warp_reduce(here, compose),
        lw.warp_scan(here, compose),
        lw.block_reduce(here, compose),
        lw.block_scan(here, compose, exclusive=True, initial=(1, 0)),
    )
    for k in range(4):
        for part in range(2):
            out[(2 * k + part) * THREADS + t] = results[k][part]
