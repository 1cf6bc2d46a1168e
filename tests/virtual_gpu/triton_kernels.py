"""Kernels of Triton's for the tests of the virtual GPU."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(
        out_ptr + offsets,
        tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask),
        mask=mask,
    )


@triton.jit
def scalars(out_ptr, small, large, real, flag, nothing):
    tl.store(out_ptr, small.to(tl.float64))
    tl.store(out_ptr + 1, large.to(tl.float64))
    tl.store(out_ptr + 2, real.to(tl.float64))
    tl.store(out_ptr + 3, tl.where(flag, 1.0, 0.0).to(tl.float64))


@triton.jit
def product(a_desc, b_desc, c_desc, K):
    row, column = tl.program_id(0) * 64, tl.program_id(1) * 64
    total = tl.zeros((64, 64), dtype=tl.float32)
    for k in tl.range(0, K, 64, warp_specialize=True):
        total = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), total)
    c_desc.store([row, column], total)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=[])
@triton.jit
def tuned(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, BLOCK)


@triton.jit
def racy(x_ptr, out_ptr):
    offsets = tl.arange(0, 64)
    tl.store(out_ptr + offsets // 2, tl.load(x_ptr + offsets) + offsets)  # racy
