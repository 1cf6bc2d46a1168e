"""Kernels in Triton that become tcgen05 on a B200, each compared with float64: a program for a virtual GPU.

`lanewise run --gpu B200 benchmarks/kernels/blackwell/triton_kernels.py -- [NAME …]` prints a line of JSON for
each kernel: its name, the largest error (relative to the sums of absolute products) and whether it is right.
"""

# mypy: ignore-errors
# (Triton compiles these functions, and its language has no types for them.)
from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# kernels ----------------------------------------------------------------------------------------------------


@triton.jit
def matmul(
    a, b, c, M, N, K, stride_a, stride_b, stride_c,
    OUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """C = A Bᵀ by tiles, without descriptors."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    a_at = a + rows[:, None] * stride_a + steps[None, :]
    b_at = b + cols[None, :] * stride_b + steps[:, None]
    sums = tl.zeros((BM, BN), OUT)
    for k in range(0, tl.cdiv(K, BK)):
        left = tl.load(a_at, mask=(rows[:, None] < M) & (steps[None, :] < K - k * BK), other=0.0)
        right = tl.load(b_at, mask=(steps[:, None] < K - k * BK) & (cols[None, :] < N), other=0.0)
        sums = tl.dot(left, right, sums, out_dtype=OUT)
        a_at += BK
        b_at += BK
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c + rows[:, None] * stride_c + cols[None, :], sums, mask=mask)


@triton.jit
def described(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALISED: tl.constexpr):
    """C = A Bᵀ of tensors that the host describes, with or without warp specialisation."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=SPECIALISED):
        sums = tl.dot(a.load([row, k]), b.load([col, k]).T, sums)
    c.store([row, col], sums.to(c.dtype))


@triton.jit
def transposed(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B, where A lies by columns and B by rows: both operands have K outermost."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK):
        sums = tl.dot(a.load([k, row]).T, b.load([k, col]), sums)
    c.store([row, col], sums.to(c.dtype))


@triton.jit
def persistent(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPECIALISED: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """C = A Bᵀ by fewer programs than tiles."""
    columns = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * columns
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=SPECIALISED
    ):
        row, col = tile // columns * BM, tile % columns * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            sums = tl.dot(a.load([row, k * BK]), b.load([col, k * BK]).T, sums)
        c.store([row, col], sums.to(c.dtype))


@triton.jit
def scaled(
    a, sa, b, sb, c, K, stride_a, stride_b, stride_sa, stride_sb, stride_c,
    TA: tl.constexpr, TB: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """C = A Bᵀ with scale factors that lie by rows: they reach tensor memory through registers."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ka, kb, ks = tl.arange(0, BK // PA), tl.arange(0, BK // PB), tl.arange(0, BK // VEC)
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * stride_a + (k // PA + ka)[None, :])
        right = tl.load(b + cols[None, :] * stride_b + (k // PB + kb)[:, None])
        scale_left = tl.load(sa + rows[:, None] * stride_sa + (k // VEC + ks)[None, :])
        scale_right = tl.load(sb + cols[:, None] * stride_sb + (k // VEC + ks)[None, :])
        sums = tl.dot_scaled(left, scale_left, TA, right, scale_right, TB, sums)
    tl.store(c + rows[:, None] * stride_c + cols[None, :], sums)


@triton.jit
def scaled_described(
    a, sa, b, sb, c, K,
    TA: tl.constexpr, TB: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr, VEC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """C = A Bᵀ with scale factors in chunks of 512 bytes, which tcgen05.cp takes from shared memory."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    rm: tl.constexpr = BM // 128
    rn: tl.constexpr = BN // 128
    rk: tl.constexpr = BK // VEC // 4
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK)):
        left, right = a.load([row, k * (BK // PA)]), b.load([col, k * (BK // PB)])
        scale_left = sa.load([0, tl.program_id(0) * rm, k * rk, 0, 0])
        scale_right = sb.load([0, tl.program_id(1) * rn, k * rk, 0, 0])
        scale_left = scale_left.reshape(rm, rk, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BM, BK // VEC)
        scale_right = scale_right.reshape(rn, rk, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BN, BK // VEC)
        sums = tl.dot_scaled(left, scale_left, TA, right.T, scale_right, TB, sums)
    c.store([row, col], sums)


@triton.jit
def attention(
    q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr, SPECIALISED: tl.constexpr,
):  # fmt: skip
    """Attention of one head and BM queries."""
    first, head = tl.program_id(0) * BM, tl.program_id(1) * length
    rows = first + tl.arange(0, BM)
    queries = q.load([head + first, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    end = length
    if CAUSAL:
        end = first + BM
    for start in tl.range(0, end, BN, warp_specialize=SPECIALISED):
        cols = start + tl.arange(0, BN)
        scores = tl.dot(queries, k.load([head + start, 0]).T) * (scale * 1.4426950408889634)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= cols[None, :], scores, -1.0e6)
        highest = tl.maximum(top, tl.max(scores, 1))
        powers = tl.math.exp2(scores - highest[:, None])
        shrink = tl.math.exp2(top - highest)
        total = total * shrink + tl.sum(powers, 1)
        values = v.load([head + start, 0])
        sums = tl.dot(powers.to(tl.float16), values, sums * shrink[:, None])
        top = highest
    out.store([head + first, 0], (sums / total[:, None]).to(tl.float16))


@triton.jit
def grouped(pointers, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products of groups of tensors, which the kernel describes."""
    tile = tl.program_id(0)
    last = 0
    for g in range(groups):
        m, n, k = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        tiles_n = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * tiles_n
        if tile >= last and tile < last + tiles:
            a_at = tl.load(pointers + g * 3).to(tl.pointer_type(tl.float16))
            b_at = tl.load(pointers + g * 3 + 1).to(tl.pointer_type(tl.float16))
            c_at = tl.load(pointers + g * 3 + 2).to(tl.pointer_type(tl.float16))
            a = tl.make_tensor_descriptor(a_at, [m, k], [k, 1], [BM, BK])
            b = tl.make_tensor_descriptor(b_at, [n, k], [k, 1], [BN, BK])
            c = tl.make_tensor_descriptor(c_at, [m, n], [n, 1], [BM, BN])
            while tile >= last and tile < last + tiles:
                row, col = (tile - last) // tiles_n * BM, (tile - last) % tiles_n * BN
                sums = tl.zeros((BM, BN), tl.float32)
                for at in range(0, k, BK):
                    sums = tl.dot(a.load([row, at]), b.load([col, at]).T, sums)
                c.store([row, col], sums.to(tl.float16))
                tile += tl.num_programs(0)
        last += tiles


@triton.jit
def gathered(a, index, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of A are gathered and rows of C scattered by TMA, four at once."""
    rows = tl.load(index + tl.program_id(0) * BM + tl.arange(0, BM))
    col = tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK):
        sums = tl.dot(a.gather(rows, k), b.load([col, k]).T, sums)
    c.scatter(sums.to(tl.float16), rows, col)


# operands and launches --------------------------------------------------------------------------------------

#: Sizes of a random product: they are not multiples of the tiles where descriptors or masks allow it.
SIZES = (256, 256, 320)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
TORCH = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
    "tf32": torch.float32, "i8": torch.int8,
}  # fmt: skip
#: Elements of 128 bytes.
DEPTH = {"fp16": 64, "bf16": 64, "e4m3": 128, "e5m2": 128, "tf32": 32, "i8": 128}


#: One generator for all, so that no two operands are equal.
RANDOM = np.random.default_rng(23)


def random(kind: str, *shape: int) -> torch.Tensor:
    """Return random numbers on the device; those for tf32 have its 10 bits."""
    if kind == "i8":
        return torch.from_numpy(RANDOM.integers(-128, 128, shape, np.int8)).cuda()
    values = RANDOM.standard_normal(shape).astype(np.float32)
    if kind == "tf32":
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return torch.from_numpy(values).to(TORCH[kind]).cuda()


def wide(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor in float64."""
    host = tensor.cpu()
    return host.to(torch.float32).numpy().astype(np.float64) if host.is_floating_point() else host.numpy()


def error_of(c: torch.Tensor, a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest error of C = A Bᵀ, relative to the sums of absolute products."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((np.abs(wide(c) - a @ b.T) / (np.abs(a) @ np.abs(b).T + 1e-30)).max())


def of(tensor: torch.Tensor, *block: int) -> TensorDescriptor:
    """Describe a tensor for TMA."""
    return TensorDescriptor.from_tensor(tensor, list(block))


def run_matmul(kind: str, tile: tuple[int, int, int], out: str = "fp32", warps: int = 4) -> float:
    """Launch `matmul` on sizes that are not multiples of the tile."""
    m, n, k = 200, 280, 272 if kind != "tf32" else 144
    a, b = random(kind, m, k), random(kind, n, k)
    types = {"fp32": (torch.float32, tl.float32), "fp16": (torch.float16, tl.float16)}
    dtype, sums = types.get(out, (torch.int32, tl.int32))
    c = torch.zeros((m, n), dtype=dtype, device="cuda")
    bm, bn, bk = tile
    grid = (triton.cdiv(m, bm), triton.cdiv(n, bn))
    matmul[grid](a, b, c, m, n, k, k, k, n, OUT=sums, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=3)
    return error_of(c, wide(a), wide(b))


def run_described(kind: str, specialised: bool, tile: tuple[int, int] = (128, 128), **options: Any) -> float:
    """Launch `described`."""
    m, n, k = SIZES
    bm, bn = tile
    depth = DEPTH[kind]
    a, b = random(kind, m, k), random(kind, n, k)
    c = torch.zeros((m, n), dtype=torch.float32 if kind == "tf32" else torch.float16, device="cuda")
    described[(m // bm, n // bn)](
        of(a, bm, depth), of(b, bn, depth), of(c, bm, bn), k,
        BM=bm, BN=bn, BK=depth, SPECIALISED=specialised, **({"num_stages": 3} | options),
    )  # fmt: skip
    return error_of(c, wide(a), wide(b))


def run_transposed(kind: str) -> float:
    """Launch `transposed`."""
    m, n, k = SIZES
    depth = DEPTH[kind]
    a, b = random(kind, k, m), random(kind, k, n)
    c = torch.zeros((m, n), dtype=torch.float16, device="cuda")
    transposed[(m // 128, n // 128)](
        of(a, depth, 128), of(b, depth, 128), of(c, 128, 128), k, BM=128, BN=128, BK=depth, num_stages=2
    )
    return error_of(c, wide(a).T, wide(b).T)


def run_persistent(specialised: bool, flatten: bool) -> float:
    """Launch `persistent`: two programs for six tiles."""
    m, n, k = 256, 384, 320
    a, b = random("fp16", m, k), random("fp16", n, k)
    c = torch.zeros((m, n), dtype=torch.float16, device="cuda")
    persistent[(2,)](
        of(a, 128, 64), of(b, 128, 64), of(c, 128, 128), m, n, k,
        BM=128, BN=128, BK=64, SPECIALISED=specialised, FLATTEN=flatten, num_stages=3,
    )  # fmt: skip
    return error_of(c, wide(a), wide(b))


#: Types of A and B, elements that share a factor.
SCALED = {
    "mxfp8": ("e4m3", "e4m3", 32),
    "mxfp8_e5m2": ("e5m2", "e4m3", 32),
    "mxfp4": ("e2m1", "e2m1", 32),
    "nvfp4": ("e2m1", "e2m1", 16),
    "mxfp8_mxfp4": ("e4m3", "e2m1", 32),
}


def narrow(kind: str, rows: int, k: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return random elements of 8 bits, or pairs of 4 bits, and their values."""
    if kind != "e2m1":
        tensor = random(kind, rows, k)
        return tensor, wide(tensor)
    codes = RANDOM.integers(0, 256, (rows, k // 2), np.uint8)
    return torch.from_numpy(codes).cuda(), E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(rows, k)]


def factors(block: int, rows: int, count: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return random scale factors, powers of two for e8m0, and their values."""
    if block == 32:
        codes = RANDOM.integers(123, 132, (rows, count), np.uint8)
        return torch.from_numpy(codes).cuda(), np.exp2(codes.astype(np.float64) - 127)
    tensor = torch.from_numpy(RANDOM.uniform(0.25, 4, (rows, count)).astype(np.float32)).to(
        torch.float8_e4m3fn
    )
    return tensor.cuda(), wide(tensor)


def run_scaled(name: str, by_tma: bool, bn: int = 128, bk: int = 128) -> float:
    """Launch `scaled` or `scaled_described`."""
    kind_a, kind_b, block = SCALED[name]
    m, n, k = 256, 256, 512
    (a, values_a), (b, values_b) = narrow(kind_a, m, k), narrow(kind_b, n, k)
    (sa, scales_a), (sb, scales_b) = factors(block, m, k // block), factors(block, n, k // block)
    c = torch.zeros((m, n), dtype=torch.float32, device="cuda")
    pa, pb = (2 if kind == "e2m1" else 1 for kind in (kind_a, kind_b))
    constants = {"TA": kind_a, "TB": kind_b, "PA": pa, "PB": pb, "VEC": block, "BM": 128, "BN": bn, "BK": bk}
    grid = (m // 128, n // bn)
    if by_tma:
        chunks = [
            scales.reshape(len(scales) // 128, 4, 32, k // block // 4, 4)
            .permute(0, 3, 2, 1, 4)
            .contiguous()
            .reshape(1, len(scales) // 128, k // block // 4, 2, 256)
            for scales in (sa, sb)
        ]
        scaled_described[grid](
            of(a, 128, bk // pa), of(chunks[0], 1, 1, bk // block // 4, 2, 256),
            of(b, bn, bk // pb), of(chunks[1], 1, bn // 128, bk // block // 4, 2, 256), of(c, 128, bn),
            k, **constants, num_stages=2,
        )  # fmt: skip
    else:
        scaled[grid](
            a, sa, b, sb, c, k, k // pa, k // pb, k // block, k // block, n, **constants, num_stages=2
        )
    return error_of(c, values_a * np.repeat(scales_a, block, 1), values_b * np.repeat(scales_b, block, 1))


def run_attention(causal: bool, specialised: bool) -> float:
    """Launch `attention`; the error is relative to the largest value."""
    heads, length, depth = 2, 256, 64
    q, k, v = (random("fp16", heads * length, depth) for _ in range(3))
    out = torch.zeros_like(q)
    attention[(length // 128, heads)](
        of(q, 128, 64), of(k, 64, 64), of(v, 64, 64), of(out, 128, 64), length, depth**-0.5,
        BM=128, BN=64, D=64, CAUSAL=causal, SPECIALISED=specialised, num_warps=4, num_stages=2,
    )  # fmt: skip
    q, k, v = (wide(tensor).reshape(heads, length, depth) for tensor in (q, k, v))
    scores = np.einsum("hqd,hkd->hqk", q, k) * depth**-0.5
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), v)
    return float(np.abs(wide(out).reshape(exact.shape) - exact).max() / np.abs(exact).max())


def run_grouped() -> float:
    """Launch `grouped` on three products of different sizes."""
    shapes = [(256, 128, 192), (128, 256, 64), (128, 128, 128)]
    tensors = [
        (random("fp16", m, k), random("fp16", n, k), torch.zeros((m, n), dtype=torch.float16, device="cuda"))
        for m, n, k in shapes
    ]
    pointers = torch.tensor([[t.data_ptr() for t in group] for group in tensors], dtype=torch.int64).cuda()
    sizes = torch.tensor(shapes, dtype=torch.int32).cuda()
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    grouped[(2,)](pointers, sizes, len(shapes), BM=128, BN=128, BK=64, num_stages=3)
    return max(error_of(c, wide(a), wide(b)) for a, b, c in tensors)


def run_gathered() -> float:
    """Launch `gathered` with rows in random order."""
    m, n, k = SIZES
    a, b = random("fp16", m, k), random("fp16", n, k)
    c = torch.zeros((m, n), dtype=torch.float16, device="cuda")
    index = torch.from_numpy(RANDOM.permutation(m).astype(np.int32)).cuda()
    gathered[(m // 128, n // 128)](
        of(a, 1, 64), index, of(b, 128, 64), of(c, 1, 128), k, BM=128, BN=128, BK=64, num_stages=3
    )
    return error_of(c, wide(a), wide(b))


#: Sums of f32 are truncated after every instruction.
F32 = 2.0**-18
#: What runs, and the bound of its error.
CASES: dict[str, tuple[Callable[[], float], float]] = {
    **{
        f"dot {kind}": (lambda kind=kind: run_matmul(kind, (128, 128, DEPTH[kind])), F32)
        for kind in ("fp16", "bf16", "e4m3", "e5m2", "tf32")
    },
    "dot i8": (lambda: run_matmul("i8", (128, 128, 128), "i32"), 0.0),
    "dot fp16, sums of fp16": (lambda: run_matmul("fp16", (128, 64, 64), "fp16"), 2.0**-8),
    "dot fp16, 64 rows": (lambda: run_matmul("fp16", (64, 64, 64)), F32),
    "dot fp16, 256 columns": (lambda: run_matmul("fp16", (128, 256, 64), warps=8), F32),
    "dot fp16, 256 rows": (lambda: run_matmul("fp16", (256, 128, 64), warps=8), F32),
    **{
        f"{'warp-specialised' if special else 'TMA'} {kind}": (
            lambda kind=kind, special=special: run_described(kind, special),
            F32 if kind == "tf32" else 2.0**-11,
        )
        for kind in ("fp16", "e4m3", "tf32")
        for special in (False, True)
    },
    "TMA fp16, two blocks": (lambda: run_described("fp16", False, (256, 128), num_ctas=2), 2.0**-11),
    "TMA transposed fp16": (lambda: run_transposed("fp16"), 2.0**-11),
    "TMA transposed e4m3": (lambda: run_transposed("e4m3"), 2.0**-11),
    **{
        f"persistent{', warp-specialised' * special}{', flattened' * flat}": (
            lambda special=special, flat=flat: run_persistent(special, flat),
            2.0**-11,
        )
        for special in (False, True)
        for flat in (False, True)
    },
    **{f"scaled {name}": (lambda name=name: run_scaled(name, False), F32) for name in SCALED},
    **{f"scaled {name}, TMA": (lambda name=name: run_scaled(name, True), F32) for name in SCALED},
    **{
        f"scaled {name}, TMA, 256 columns": (lambda name=name: run_scaled(name, True, 256, 256), F32)
        for name in SCALED
    },
    **{
        f"attention{', causal' * causal}{', warp-specialised' * special}": (
            lambda causal=causal, special=special: run_attention(causal, special),
            2.0**-8,
        )
        for causal in (False, True)
        for special in (False, True)
    },
    "grouped": (run_grouped, 2.0**-11),
    "gather and scatter": (run_gathered, 2.0**-11),
}  # fmt: skip


def main() -> None:
    """Run all kernels, or those whose names have one of the words given; a whole name is one kernel."""
    words = sys.argv[1:]
    for name, (run, bound) in CASES.items():
        if words and not any(word == name if word in CASES else word in name for word in words):
            continue
        begin = time.perf_counter()
        line: dict[str, Any] = {"kernel": name, "triton": triton.__version__}
        try:
            error = run()
            line |= {"error": error, "right": error <= bound}
        except Exception as problem:  # the next kernel is tried whatever befell this one
            line |= {"right": False, "failed": f"{type(problem).__name__}: {str(problem).strip()[:300]}"}
            if "-v" in sys.argv:
                traceback.print_exc()
        print(json.dumps(line | {"seconds": round(time.perf_counter() - begin, 1)}), flush=True)


if __name__ == "__main__":
    main()
