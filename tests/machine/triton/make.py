"""Compile Triton kernels for sm_80, sm_90 and sm_100; keep their PTX and what a launch needs.

Needs `pip install triton torch` (no GPU): `python tests/machine/triton/make.py`. The kernels for sm_100 are
those of benchmarks/kernels/blackwell/triton_kernels.py; their PTX is in blackwell.zip.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[2] / "benchmarks/kernels/blackwell"))

import triton_kernels as blackwell  # noqa: E402  # the folder of kernels is no package


@triton.jit
def matmul(
    a, b, c, M, N, K, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """C = A B, f16 with f32 sums, by tiles."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    a_places = a + rows[:, None] * stride_a + steps[None, :]
    b_places = b + steps[:, None] * stride_b + cols[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = tl.load(a_places, mask=(rows[:, None] < M) & (steps[None, :] < K - k * BK), other=0.0)
        right = tl.load(b_places, mask=(steps[:, None] < K - k * BK) & (cols[None, :] < N), other=0.0)
        sums = tl.dot(left, right, sums)
        a_places += BK
        b_places += BK * stride_b
    tl.store(
        c + rows[:, None] * stride_c + cols[None, :], sums, mask=(rows[:, None] < M) & (cols[None, :] < N)
    )


@triton.jit
def softmax(x, y, stride_x, stride_y, n, BLOCK: tl.constexpr):
    """Of one row each."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride_x + cols, mask=cols < n, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * stride_y + cols, powers / tl.sum(powers, axis=0), mask=cols < n)


@triton.jit
def layer_norm(x, y, weight, bias, mean, rstd, stride, n, eps, BLOCK: tl.constexpr):
    """Of one row each, f16 in and out, in two passes over the row."""
    row = tl.program_id(0)
    x += row * stride
    y += row * stride
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        sums += tl.load(x + cols, mask=cols < n, other=0.0).to(tl.float32)
    average = tl.sum(sums, axis=0) / n
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        values = tl.load(x + cols, mask=cols < n, other=0.0).to(tl.float32)
        distance = tl.where(cols < n, values - average, 0.0)
        squares += distance * distance
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean + row, average)
    tl.store(rstd + row, scale)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        values = tl.load(x + cols, mask=cols < n, other=0.0).to(tl.float32)
        w, b = tl.load(weight + cols, mask=cols < n), tl.load(bias + cols, mask=cols < n)
        tl.store(y + cols, (values - average) * scale * w + b, mask=cols < n)


@triton.jit
def attention(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal attention of one head and BM queries."""
    first, head = tl.program_id(0) * BM, tl.program_id(1) * length * D
    rows, depth = first + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + head + rows[:, None] * D + depth[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for start in range(0, first + BM, BN):
        cols = start + tl.arange(0, BN)
        keys = tl.load(k + head + cols[None, :] * D + depth[:, None])
        scores = tl.dot(queries, keys) * (scale * 1.4426950408889634)
        scores = tl.where(rows[:, None] >= cols[None, :], scores, -float("inf"))
        highest = tl.maximum(top, tl.max(scores, 1))
        powers = tl.math.exp2(scores - highest[:, None])
        shrink = tl.math.exp2(top - highest)
        total = total * shrink + tl.sum(powers, 1)
        values = tl.load(v + head + cols[:, None] * D + depth[None, :])
        sums = tl.dot(powers.to(tl.float16), values, sums * shrink[:, None])
        top = highest
    tl.store(out + head + rows[:, None] * D + depth[None, :], (sums / total[:, None]).to(tl.float16))


@triton.jit
def described(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A Bᵀ of tensors that the host describes."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK):
        sums = tl.dot(a.load([row, k]), b.load([col, k]).T, sums)
    c.store([row, col], sums)


@triton.jit
def describes(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A Bᵀ of tensors that the kernel describes."""
    of_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    of_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    of_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK):
        sums = tl.dot(of_a.load([row, k]), of_b.load([col, k]).T, sums)
    of_c.store([row, col], sums)


#: Kernel, types of its arguments (16-byte multiples marked *), constants, warps, stages.
KERNELS: list[tuple[Any, dict[str, str], dict[str, int], int, int]] = [
    (
        matmul,
        {"a": "*fp16*", "b": "*fp16*", "c": "*fp32*", "M": "i32", "N": "i32", "K": "i32*",
         "stride_a": "i32*", "stride_b": "i32*", "stride_c": "i32*"},
        {"BM": 64, "BN": 64, "BK": 32}, 4, 3,
    ),
    (
        softmax,
        {"x": "*fp32*", "y": "*fp32*", "stride_x": "i32", "stride_y": "i32", "n": "i32"},
        {"BLOCK": 1024}, 4, 2,
    ),
    (
        layer_norm,
        {"x": "*fp16*", "y": "*fp16*", "weight": "*fp32*", "bias": "*fp32*", "mean": "*fp32*",
         "rstd": "*fp32*", "stride": "i32*", "n": "i32", "eps": "fp32"},
        {"BLOCK": 256}, 4, 2,
    ),
    (
        attention,
        {"q": "*fp16*", "k": "*fp16*", "v": "*fp16*", "out": "*fp16*", "length": "i32*", "scale": "fp32"},
        {"BM": 64, "BN": 32, "D": 64}, 4, 2,
    ),
]  # fmt: skip
TILES = {"BM": 64, "BN": 64, "BK": 64}
#: The same for sm_90, with the name of the file.
HOPPER: list[tuple[str, Any, dict[str, str], dict[str, int], int, int]] = [
    ("wgmma_matmul", matmul, KERNELS[0][1], TILES, 4, 3),
    (
        "described", described,
        {"a": "tensordesc<fp16[64,64]>", "b": "tensordesc<fp16[64,64]>", "c": "tensordesc<fp32[64,64]>",
         "K": "i32*"}, TILES, 4, 3,
    ),
    (
        "describes", describes,
        {"a": "*bf16*", "b": "*bf16*", "c": "*fp32*", "M": "i32*", "N": "i32*", "K": "i32*"}, TILES, 4, 3,
    ),
]  # fmt: skip


def tensor(kind: str, *block: int) -> str:
    """Return the type of a tensor that the host describes."""
    return f"tensordesc<{kind}[{','.join(map(str, block))}]>"


def matmul_types(kind: str, sums: str) -> dict[str, str]:
    """Return the types of the arguments of sm_100's `matmul`."""
    return dict(zip("abc", (f"*{each}*" for each in (kind, kind, sums)), strict=True)) | {
        "M": "i32", "N": "i32", "K": "i32*", "stride_a": "i32*", "stride_b": "i32*", "stride_c": "i32*"
    }  # fmt: skip


def described_row(kind: str, depth: int, specialised: bool) -> tuple[Any, ...]:
    """Return the row of `described`."""
    types = {
        "a": tensor(kind, 128, depth), "b": tensor(kind, 64, depth), "c": tensor("fp32", 128, 64),
        "K": "i32*",
    }  # fmt: skip
    tiles = {"BM": 128, "BN": 64, "BK": depth, "SPECIALISED": specialised}
    return blackwell.described, types, tiles, 4, 3


def scaled_row(name: str, element: str, factor: str) -> tuple[Any, ...]:
    """Return the row of `scaled_described`."""
    kind, _, block = blackwell.SCALED[name]
    pairs = 2 if kind == "e2m1" else 1
    operand, factors = tensor(element, 128, 128 // pairs), tensor(factor, 1, 1, 128 // block // 4, 2, 256)
    types = {
        "a": operand, "sa": factors, "b": operand, "sb": factors, "c": tensor("fp32", 128, 128), "K": "i32*",
    }  # fmt: skip
    constants = {
        "TA": kind, "TB": kind, "PA": pairs, "PB": pairs, "VEC": block, "BM": 128, "BN": 128, "BK": 128,
    }  # fmt: skip
    return blackwell.scaled_described, types, constants, 4, 2


HALVES = tensor("fp16", 128, 64)
#: The same for sm_100.
BLACKWELL: dict[str, tuple[Any, ...]] = {
    "dot_fp16": (
        blackwell.matmul, matmul_types("fp16", "fp32"),
        {"OUT": tl.float32, "BM": 64, "BN": 64, "BK": 64}, 4, 3,
    ),
    "dot_i8": (
        blackwell.matmul, matmul_types("i8", "i32"),
        {"OUT": tl.int32, "BM": 128, "BN": 64, "BK": 128}, 4, 2,
    ),
    "described_e4m3": described_row("fp8e4nv", 128, False),
    "specialised_tf32": described_row("fp32", 32, True),
    "persistent": (
        blackwell.persistent,
        {"a": HALVES, "b": HALVES, "c": tensor("fp16", 128, 128), "M": "i32", "N": "i32", "K": "i32*"},
        {"BM": 128, "BN": 128, "BK": 64, "SPECIALISED": True, "FLATTEN": True}, 4, 3,
    ),
    "scaled_mxfp8": scaled_row("mxfp8", "fp8e4nv", "u8"),
    "scaled_mxfp4": scaled_row("mxfp4", "u8", "u8"),
    "scaled_nvfp4": scaled_row("nvfp4", "u8", "fp8e4nv"),
    "attention": (
        blackwell.attention,
        {"q": HALVES, "k": tensor("fp16", 64, 64), "v": tensor("fp16", 64, 64), "out": HALVES,
         "length": "i32*", "scale": "fp32"},
        {"BM": 128, "BN": 64, "D": 64, "CAUSAL": True, "SPECIALISED": True}, 4, 2,
    ),
    "gathered": (
        blackwell.gathered,
        {"a": tensor("fp16", 1, 64), "index": "*i32*", "b": HALVES, "c": tensor("fp16", 1, 128), "K": "i32*"},
        {"BM": 128, "BN": 128, "BK": 64}, 4, 2,
    ),
}  # fmt: skip


def compiled(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int, stages: int, capability: int
) -> tuple[str, dict[str, Any]]:
    """Return a kernel's PTX without the lines that name its source, and what a launch needs."""
    signature = {key: kind[:1] + kind[1:].rstrip("*") for key, kind in types.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(types.values())
        if kind[1:].endswith("*")
    }
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": warps, "num_stages": stages}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    lines = [line for line in made.asm["ptx"].splitlines() if not line.lstrip().startswith((".loc", ".file"))]
    text = "\n".join(lines)
    text = text[: text.index(".section")] if ".section" in text else text
    about = {
        "signature": types, "constants": constants, "num_warps": warps, "num_stages": stages,
        "shared": made.metadata.shared, "global_scratch": made.metadata.global_scratch_size,
        "triton": triton.__version__, "target": f"sm_{capability}",
    }  # fmt: skip
    if capability == 100:
        about["constants"] = {key: str(value) for key, value in constants.items()}
        about["num_warps"] = made.metadata.num_warps  # with those of warp specialisation
        about["boxes"] = [(each["block_size"], each["swizzle"]) for each in made.metadata.tensordesc_meta]
    return text.rstrip() + "\n", about


def main() -> None:
    """Write the PTX, `kernels.json` and, for sm_100, `blackwell.zip` and `blackwell.json`."""
    abouts = {}
    named = [(each[0].__name__, *each, 80) for each in KERNELS] + [(*each, 90) for each in HOPPER]
    for name, *row in named:
        text, abouts[name] = compiled(*row)
        (FOLDER / f"{name}.ptx").write_text(text)
    (FOLDER / "kernels.json").write_text(json.dumps(abouts, indent=1) + "\n")
    abouts = {}
    with zipfile.ZipFile(FOLDER / "blackwell.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept:
        for name, row in BLACKWELL.items():
            text, abouts[name] = compiled(*row, 100)
            kept.writestr(zipfile.ZipInfo(f"{name}.ptx"), text, zipfile.ZIP_DEFLATED)
    (FOLDER / "blackwell.json").write_text(json.dumps(abouts, indent=1) + "\n")


if __name__ == "__main__":
    main()
