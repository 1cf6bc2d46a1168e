"""Real kernels of sm_100a in CUDA C++ (`kernels/blackwell`): right, and the same under every schedule."""

from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything, sampled
from machine.classics import classic

ARCH = "sm_100a"
STAGES, THREADS = 3, 192
BARRIERS = 1024  # bytes of shared memory that are enough for them
#: Schedules besides the default one.
SCHEDULES = ("early", "late", 1, 2) if EVERYTHING else ("late",)


class Type(NamedTuple):
    """An operand's type in NumPy, that of sums, the kind, formats of operands and sums."""

    dtype: Any
    sums: Any
    kind: str
    format: str
    sum_format: str = "f32"
    elements: int = 128  # of K in a row of 128 bytes


TYPES = {
    "bf16": Type(ml_dtypes.bfloat16, np.float32, "f16", "bf16", elements=64),
    "f16": Type(np.float16, np.float32, "f16", "f16", elements=64),
    "f16_to_f16": Type(np.float16, np.float16, "f16", "f16", "f16", elements=64),
    "tf32": Type(np.float32, np.float32, "tf32", "tf32", elements=32),
    "e4m3": Type(ml_dtypes.float8_e4m3fn, np.float32, "f8f6f4", "e4m3"),
    "e5m2": Type(ml_dtypes.float8_e5m2, np.float32, "f8f6f4", "e5m2"),
    "u8": Type(np.uint8, np.int32, "i8", "u8", "s32"),
    "s8": Type(np.int8, np.int32, "i8", "s8", "s32"),
}


@cache
def source(name: str) -> lw.Module:
    return classic(f"blackwell/{name}", ARCH)


def same_everywhere(launched: Any, arguments: tuple[Any, ...], out: np.ndarray) -> np.ndarray:
    """Run a kernel under every schedule; returns what all of them write to `out`."""
    begin = out.copy()
    launched(*arguments)
    result = out.copy()
    for schedule in SCHEDULES:
        out[...] = begin
        launched(*arguments, schedule=schedule)
        assert out.tobytes() == result.tobytes(), schedule
    return result


def operands(kind: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A (m, k) and B (n, k)."""
    rng = np.random.default_rng(m + n + k)
    dtype = TYPES[kind].dtype
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        a, b = (rng.integers(limits.min, limits.max + 1, (rows, k), dtype) for rows in (m, n))
        return a, b
    a, b = (rng.standard_normal((rows, k)).astype(dtype) for rows in (m, n))
    if kind == "tf32":
        for operand in (a, b):
            operand.view(np.uint32)[...] &= 0xFFFFE000
    return a, b


def require_right(kind: str, group: int, d: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compare D with float64, and bit for bit with the instruction that is repeated along K."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(d.astype(np.float64) - wide_a @ wide_b.T) / (np.abs(wide_a) @ np.abs(wide_b).T)
    bound = {"s32": 0, "f32": 2.0**-21, "f16": 2.0**-8}[TYPES[kind].sum_format]
    assert error.max() <= bound
    chosen = TYPES[kind]
    instruction: Any = lw.instruction(
        f"tcgen05.mma.cta_group::{group}.kind::{chosen.kind}",
        a=chosen.format, b=chosen.format, d=chosen.sum_format,
    )  # fmt: skip
    expected = instruction.gemm(a, np.ascontiguousarray(b.T), arch=ARCH)
    assert d.tobytes() == np.asarray(expected).astype(d.dtype).tobytes()


def operand_map(
    array: np.ndarray, kind: str, rows: int, row_bytes: int = 128, by_columns: bool = False
) -> Any:
    """A map of an operand's tiles; by columns, of the transposed array."""
    dtype = "tf32" if kind == "tf32" else None
    depth = TYPES[kind].elements * row_bytes // 128
    if by_columns:
        return lw.tensor_map(np.ascontiguousarray(array.T), (depth, depth), swizzle="128B", dtype=dtype)
    swizzle: Any = f"{row_bytes}B"
    return lw.tensor_map(array, (rows, depth), swizzle=swizzle, dtype=dtype)


# products ---------------------------------------------------------------------------------------------------

#: Type, M and N of a tile, bytes of a row, whether A and B lie by columns.
SINGLE = [
    ("bf16", 128, 64, 128, False, False),
    ("f16", 128, 64, 128, False, False),
    ("f16_to_f16", 128, 64, 128, False, False),
    ("tf32", 128, 64, 128, False, False),
    ("e4m3", 128, 64, 128, False, False),
    ("e5m2", 128, 64, 128, False, False),
    ("u8", 128, 64, 128, False, False),
    ("s8", 128, 64, 128, False, False),
    ("bf16", 64, 96, 128, False, False),
    ("bf16", 128, 256, 64, False, False),
    ("s8", 64, 32, 32, False, False),
    ("f16", 128, 64, 128, True, False),
    ("f16", 64, 128, 128, False, True),
    ("e4m3", 128, 128, 128, True, True),
]


def written(value: object) -> str:
    return str(value).lower()


@sampled(14)
@pytest.mark.parametrize("case", SINGLE, ids=["-".join(map(written, case)) for case in SINGLE])
def test_gemm_of_single_blocks(case: tuple[str, int, int, int, bool, bool]) -> None:
    """A warp loads by TMA through three stages, one multiplies into tensor memory, four store."""
    kind, tile_m, tile_n, row_bytes, columns_a, columns_b = case
    depth = TYPES[kind].elements * row_bytes // 128
    m, n, steps = 2 * tile_m, 2 * tile_n, 5
    a, b = operands(kind, m, n, steps * depth)
    d = np.zeros((m, n), TYPES[kind].sums)
    shared = STAGES * (tile_m + tile_n) * row_bytes + BARRIERS
    launched = source("gemm")[f"single<{', '.join(map(written, case))}>"][(2, 2), THREADS, shared]
    maps = (
        operand_map(a, kind, tile_m, row_bytes, columns_a),
        operand_map(b, kind, tile_n, row_bytes, columns_b),
    )
    result = same_everywhere(launched, (*maps, d, n, steps), d)
    require_right(kind, 1, result, a, b)


#: Type, M and N of the tile of a pair.
PAIRS = [("bf16", 256, 128), ("e4m3", 256, 64), ("tf32", 256, 64), ("s8", 256, 64), ("bf16", 128, 128)]


@sampled(5)
@pytest.mark.parametrize("case", PAIRS, ids=["-".join(map(written, case)) for case in PAIRS])
def test_gemm_of_pairs_of_blocks(case: tuple[str, int, int]) -> None:
    """Both blocks of a pair hold a half of A, of B and of D; the even one multiplies for both."""
    kind, tile_m, tile_n = case
    m, n, steps = 2 * tile_m, 2 * tile_n, 4
    a, b = operands(kind, m, n, steps * TYPES[kind].elements)
    d = np.zeros((m, n), TYPES[kind].sums)
    shared = STAGES * (tile_m + tile_n) // 2 * 128 + BARRIERS
    kernel = source("gemm")[f"pair<{kind}, {tile_m}, {tile_n}>"]
    launched = kernel[(4, 2), THREADS, shared].in_clusters((2, 1))
    maps = operand_map(a, kind, tile_m // 2), operand_map(b, kind, tile_n // 2)
    require_right(kind, 2, same_everywhere(launched, (*maps, d, n, steps), d), a, b)


def test_persistent_gemm_with_cluster_launch_control() -> None:
    """A block takes over the tiles of blocks that have not started; every tile is computed once."""
    m, n, steps = 256, 320, 2
    a, b = operands("bf16", m, n, 64 * steps)
    d = np.zeros((m, n), np.float32)
    tiles = np.zeros((2, 5), np.int32)
    launched = source("gemm")["persistent<bf16, 64>"][(5, 2), THREADS, STAGES * 192 * 128 + BARRIERS]
    arguments = (operand_map(a, "bf16", 128), operand_map(b, "bf16", 64), d, n, steps, tiles)
    for schedule in (None, *SCHEDULES):
        d[...], tiles[...] = 0, 0
        launched(*arguments, **({} if schedule is None else {"schedule": schedule}))
        assert (tiles == 1).all()
        require_right("bf16", 1, d, a, b)


# scale factors ----------------------------------------------------------------------------------------------


class Scaled(NamedTuple):
    """A block-scaled format: its words, element and factor types, elements in 128 bytes and in a block."""

    words: str
    element: Any
    factor: Any
    elements: int
    block: int


SCALED = {
    "mxf8": Scaled(
        "mxf8f6f4.block_scale.scale_vec::1X", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, 128, 32
    ),
    "mxf4": Scaled(
        "mxf4.block_scale.scale_vec::2X", ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu, 256, 32
    ),
    "nvf4": Scaled(
        "mxf4nvf4.block_scale.scale_vec::4X", ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, 256, 16
    ),
}


def factors(kind: str, rows: int, count: int) -> np.ndarray:
    """Random scale factors (rows, count), all of them positive."""
    rng = np.random.default_rng(rows + count)
    return np.exp2(rng.integers(-4, 5, (rows, count))).astype(SCALED[kind].factor)


def in_chunks(scales: np.ndarray) -> np.ndarray:
    """Factors as tcgen05.cp takes them: for 128 rows and 4 columns, 32 × 4 rows of 4."""
    rows, columns = scales.shape
    parts = scales.view(np.uint8).reshape(rows // 128, 4, 32, columns // 4, 4)
    return np.ascontiguousarray(parts.transpose(0, 3, 2, 1, 4))


def packed(array: np.ndarray) -> np.ndarray:
    """Elements as they lie in memory: two of 4 bits in a byte, the first in its lower half."""
    if array.dtype != ml_dtypes.float4_e2m1fn:
        return array
    codes = array.view(np.uint8) & 15
    return codes[:, ::2] | codes[:, 1::2] << 4


@sampled(6)
@pytest.mark.parametrize("kind", SCALED)
def test_gemm_with_scale_factors(kind: str) -> None:
    """Scale factors are copied to tensor memory in order with the products that use them."""
    words, element, _, elements, block = SCALED[kind]
    m, n, steps = 256, 128, 3
    k = steps * elements
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(element) for rows in (m, n))
    scale_a, scale_b = factors(kind, m, k // block), factors(kind, n, k // block)
    d = np.zeros((m, n), np.float32)
    chunks = elements // block // 4
    shared = 2 * (2 * 128 * 128 + 2 * chunks * 512) + BARRIERS
    launched = source("scaled")[f"scaled<{kind}>"][(1, 2), THREADS, shared]
    maps = [lw.tensor_map(packed(array).view(np.uint8), (128, 128), swizzle="128B") for array in (a, b)]
    arguments = (*maps, in_chunks(scale_a), in_chunks(scale_b), d, n, steps)
    result = same_everywhere(launched, arguments, d)
    wide_a, wide_b = (
        array.astype(np.float64) * np.repeat(scales.astype(np.float64), block, 1)
        for array, scales in ((a, scale_a), (b, scale_b))
    )
    error = np.abs(result - wide_a @ wide_b.T) / (np.abs(wide_a) @ np.abs(wide_b).T)
    assert error.max() <= 2.0**-21
    instruction: Any = lw.instruction(f"tcgen05.mma.cta_group::1.kind::{words}")
    transposed = np.ascontiguousarray(b.T), np.ascontiguousarray(scale_b.T)
    expected = instruction.gemm(a, transposed[0], arch=ARCH, scale_a=scale_a, scale_b=transposed[1])
    assert result.tobytes() == expected.tobytes()


# attention --------------------------------------------------------------------------------------------------


@only_with_everything
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    """Scores, weights and sums stay in tensor memory; weights are the A of the second product."""
    heads, length, depth = 2, 256, 64
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((heads * length, depth)).astype(np.float16) for _ in range(3))
    out = np.zeros((heads * length, depth), np.float32)
    maps = [lw.tensor_map(array, (rows, 64), swizzle="128B") for array, rows in ((q, 128), (k, 64), (v, 64))]
    kernel = source("attention")[f"attention<{written(causal)}>"]
    launched = kernel[(length // 128, heads), THREADS, 6 * 8192 + BARRIERS]
    arguments = (*maps, out, length, depth**-0.5 * np.log2(np.e))
    result = same_everywhere(launched, arguments, out).reshape(heads, length, depth)
    query, key, value = (array.astype(np.float64).reshape(heads, length, depth) for array in (q, k, v))
    scores = np.einsum("hqd,hkd->hqk", query, key) * depth**-0.5
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), value)
    assert np.abs(result - exact).max() < 2**-9 * np.abs(exact).max()  # weights are rounded to f16
