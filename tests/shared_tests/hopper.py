"""Real kernels of sm_90a in CUDA C++ (`kernels/hopper`): exact under every schedule, without findings."""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from cluster_kernels import CUDA as DISTRIBUTED
from everything import EVERYTHING, only_with_everything, sampled
from machine.classics import classic, compiled

ARCH = "sm_90a"
STAGES, TILE = 3, 64 * 128
BARRIERS = 1024  # bytes of shared memory that are enough for them
#: NumPy's types of operands and sums, the instruction beside m64n64, elements of K in a row of 128 bytes.
TYPES: dict[str, tuple[Any, Any, str, int]] = {
    "bf16": (ml_dtypes.bfloat16, np.float32, "k16.f32.bf16.bf16", 64),
    "f16": (np.float16, np.float32, "k16.f32.f16.f16", 64),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.float32, "k32.f32.e4m3.e4m3", 128),
    "tf32": (np.float32, np.float32, "k8.f32.tf32.tf32", 32),
    "s8": (np.int8, np.int32, "k32.s32.s8.s8", 128),
}

#: Types whose kernels are checked as well; those of the others differ in one instruction alone.
CHECKED = ("bf16", "tf32", "s8")
#: Types that are tried each time, by one kernel or the other; with LANEWISE_EVERYTHING both try all of them.
COOPERATIVE = tuple(TYPES) if EVERYTHING else ("bf16", "e4m3", "s8")
PINGPONG = tuple(TYPES) if EVERYTHING else ("bf16", "f16", "tf32")


def same_everywhere(
    launched: Any, arguments: tuple[Any, ...], out: np.ndarray, checked: bool = True
) -> np.ndarray:
    """Run a kernel under every schedule and under the checker; returns what all of them write to `out`."""
    begin = out.copy()
    launched(*arguments)
    result = out.copy()
    for schedule in ("early", "late", 1, 2):
        out[...] = begin
        launched(*arguments, schedule=schedule)
        assert out.tobytes() == result.tobytes(), schedule
    if not checked:
        return result
    out[...] = begin
    report = lw.check(launched, *arguments)
    assert out.tobytes() == result.tobytes(), "under check"
    assert report.ok, str(report)
    return result


def operands(kind: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A (m, k) and B (n, k)."""
    rng = np.random.default_rng(k)
    dtype = TYPES[kind][0]
    if kind == "s8":
        return rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (n, k), np.int8)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (n, k)))
    if kind == "tf32":
        for each in (a, b):
            each.view(np.uint32)[...] &= 0xFFFFE000
    return a, b


def product(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the instruction gives, repeated along K."""
    instruction = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n64{TYPES[kind][2]}")
    return instruction.gemm(a, np.ascontiguousarray(b.T), arch=ARCH)


def operand_map(array: np.ndarray, rows: int, kind: str) -> Any:
    dtype = "tf32" if kind == "tf32" else None
    return lw.tensor_map(array, (rows, TYPES[kind][3]), swizzle="128B", dtype=dtype)


@cache
def source(name: str) -> lw.Module:
    return classic(f"hopper/{name}", ARCH)


# products ---------------------------------------------------------------------------------------------------


@sampled(6)
@pytest.mark.parametrize("kind", COOPERATIVE)
def test_cooperative_gemm(kind: str) -> None:
    """Two warpgroups multiply a tile of 128 × 64, a third loads it by TMA through three stages."""
    m, n, k = 128, 128, 4 * TYPES[kind][3]
    a, b = operands(kind, m, n, k)
    d = np.zeros((m, n), TYPES[kind][1])
    launched = source("gemm")[f"cooperative<{kind}, 1, 1>"][(2, 1), 384, STAGES * 3 * TILE + BARRIERS]
    arguments = (operand_map(a, 128, kind), operand_map(b, 64, kind), d, n, 4)
    found = same_everywhere(launched, arguments, d, checked=kind in CHECKED)
    assert found.tobytes() == product(kind, a, b).tobytes()


@only_with_everything
@sampled(2)
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_gemm_with_multicast_in_clusters(cluster: tuple[int, int]) -> None:
    """Blocks of a cluster share A's tile or B's: each loads a half of it for both."""
    m, n, steps = 256, 128, 5
    a, b = operands("bf16", m, n, 64 * steps)
    d = np.zeros((m, n), np.float32)
    kernel = source("gemm")[f"cooperative<bf16, {cluster[0]}, {cluster[1]}>"]
    launched = kernel[(2, 2), 384, STAGES * 3 * TILE + BARRIERS].in_clusters(cluster)
    maps = operand_map(a, 128 // cluster[0], "bf16"), operand_map(b, 64 // cluster[1], "bf16")
    assert same_everywhere(launched, (*maps, d, n, steps), d).tobytes() == product("bf16", a, b).tobytes()


@only_with_everything
@sampled(6)
@pytest.mark.parametrize("kind", PINGPONG)
def test_persistent_pingpong_gemm_with_tma_stores(kind: str) -> None:
    """Two blocks take six tiles; of their two consumers one multiplies while the other stores."""
    m, n, steps = 128, 192, 2
    a, b = operands(kind, m, n, steps * TYPES[kind][3])
    d = np.zeros((m, n), TYPES[kind][1])
    shared = STAGES * 2 * TILE + 2 * 64 * 64 * 4 + BARRIERS
    launched = source("gemm")[f"pingpong<{kind}>"][2, 384, shared]
    maps = operand_map(a, 64, kind), operand_map(b, 64, kind), lw.tensor_map(d, (64, 64))
    found = same_everywhere(launched, (*maps, 3, 6, steps), d, checked=kind == "bf16")
    assert found.tobytes() == product(kind, a, b).tobytes()


@only_with_everything
def test_gemm_with_a_in_registers() -> None:
    """Weights of 8 bits become bf16 in registers and are multiplied from there."""
    m, n, k = 128, 128, 192
    rng = np.random.default_rng(3)
    a = rng.integers(-128, 128, (m, k), np.int8)
    b = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16)
    d = np.zeros((m, n), np.float32)
    launched = source("registers")["mixed"][(2, 2), 160, 2 * TILE + BARRIERS]
    found = same_everywhere(launched, (a, operand_map(b, 64, "bf16"), d, n, k), d)
    assert found.tobytes() == product("bf16", a.astype(ml_dtypes.bfloat16), b).tobytes()


@only_with_everything
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    """Keys and values stream by TMA; scores stay in registers, as the A of the second product."""
    heads, length, depth = 2, 256, 64
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((heads, length, depth)).astype(ml_dtypes.bfloat16) for _ in range(3))
    out = np.zeros(q.shape, np.float32)
    maps = [lw.tensor_map(each, (1, 64, 64), swizzle="128B") for each in (q, k, v)]
    kernel = source("registers")[f"attention<{str(causal).lower()}>"]
    launched = kernel[(length // 128, heads), 288, 6 * TILE + BARRIERS]
    found = same_everywhere(launched, (*maps, out, length, depth**-0.5 * np.log2(np.e)), out, causal)
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * depth**-0.5
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    exact = np.einsum("hqk,hkd->hqd", weights, v.astype(np.float64))
    assert np.abs(found - exact).max() < 2**-8 * np.abs(exact).max()  # weights are rounded to bf16


# copies -----------------------------------------------------------------------------------------------------

#: Shapes of tensors and boxes, where a box is read and where it is written, all outermost first.
BOXES: list[tuple[tuple[int, ...], ...]] = [
    ((100,), (32,), (80,), (16,)),
    ((20, 72), (8, 16), (-3, 64), (4, 8)),
    ((5, 9, 40), (2, 4, 8), (4, 7, 32), (0, 3, 16)),
    ((3, 4, 5, 24), (2, 2, 3, 8), (-1, 3, 3, 16), (1, 2, 0, 8)),
    ((2, 3, 4, 5, 16), (1, 2, 2, 3, 8), (1, 2, 3, -2, 8), (1, 1, 2, 1, 0)),
]


def read_box(tensor: np.ndarray, box: tuple[int, ...], at: tuple[int, ...], fill: float) -> np.ndarray:
    """A box of a tensor, with what lies outside of it filled."""
    padded = np.pad(tensor, [(size, size) for size in box], constant_values=fill)
    return padded[tuple(slice(start + size, start + 2 * size) for start, size in zip(at, box, strict=True))]


def written_box(tensor: np.ndarray, box: np.ndarray, at: tuple[int, ...], add: bool) -> np.ndarray:
    """A tensor with a box stored, or added; what would lie outside is left out."""
    result = tensor.copy()
    within = tuple(slice(start, start + size) for start, size in zip(at, box.shape, strict=True))
    kept = box[tuple(slice(0, size) for size in result[within].shape)]
    result[within] = result[within] + kept if add else kept
    return result


def coordinates(at: tuple[int, ...]) -> bytes:
    return np.array([*at[::-1], 0, 0, 0, 0][:5], np.int32).tobytes()


@sampled(4)
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("case", BOXES, ids=[f"{len(case[0])}d" for case in BOXES])
def test_tensor_copies(case: tuple[tuple[int, ...], ...], add: bool) -> None:
    shape, box, source_at, target_at = case
    rng = np.random.default_rng(len(shape))
    tensor = rng.integers(-50, 50, shape).astype(np.float16)
    swizzles: tuple[Any, ...] = ("none", "32B", "64B", "128B") if len(shape) == 2 else ("none",)
    kernel = source("copies")[f"copy_box<{len(shape)}, {str(add).lower()}>"]
    for swizzle in swizzles:
        out = rng.integers(-50, 50, shape).astype(np.float16)
        before = out.copy()
        maps = [lw.tensor_map(each, box, swizzle=swizzle) for each in (tensor, out)]
        arguments = (*maps, coordinates(source_at), coordinates(target_at), maps[0].box_bytes)
        found = same_everywhere(kernel[1, 32, 32 << 10], arguments, out, checked=not add)
        expected = written_box(before, read_box(tensor, box, source_at, 0), target_at, add)
        assert np.array_equal(found, expected), swizzle


def test_tensor_copy_with_element_strides_and_nan() -> None:
    """Every other row, beyond the end; outside is NaN."""
    tensor = np.arange(30 * 16, dtype=np.float32).reshape(30, 16)
    out = np.zeros((8, 16), np.float32)
    maps = (
        lw.tensor_map(tensor, (16, 16), element_strides=(2, 1), fill="nan"), lw.tensor_map(out, (8, 16)),
    )  # fmt: skip
    launched = source("copies")["copy_box<2, false>"][1, 32, 4096]
    arguments = (*maps, coordinates((21, 0)), coordinates((0, 0)), maps[0].box_bytes)
    found = same_everywhere(launched, arguments, out)
    assert np.array_equal(found[:5], tensor[21::2])
    assert np.isnan(found[5:]).all()


@pytest.mark.parametrize("interleave", ["16B", "32B"])
def test_interleaved_tensor_copy(interleave: Any) -> None:
    """Channels in slices of 16 or 32 bytes, which stand for one element of the innermost axis each."""
    channels = int(interleave[:2]) // 2
    tensor = np.arange(2 * 3 * 6 * 16 * channels, dtype=np.uint16).reshape(2, 3, 6, 16, channels)
    out = np.zeros_like(tensor)
    swizzle: Any = "32B" if interleave == "32B" else "none"
    maps = [
        lw.tensor_map(
            each.reshape(2, 3, 6, -1)[..., :16], (1, 1, 2, 8), interleave=interleave, swizzle=swizzle
        )
        for each in (tensor, out)
    ]
    launched = source("copies")["copy_box<4, false>"][1, 32, 4096]
    arguments = (*maps, coordinates((1, 2, 3, 8)), coordinates((0, 1, 4, 0)), maps[0].box_bytes)
    found = same_everywhere(launched, arguments, out)
    expected = np.zeros_like(tensor)
    expected[0, 1, 4:6, :8] = tensor[1, 2, 3:5, 8:]
    assert np.array_equal(found, expected)


def test_bulk_copies_around_a_cluster() -> None:
    data = np.random.default_rng(5).integers(0, 256, (4, 256), np.uint8)
    out = np.zeros_like(data)
    launched = source("copies")["copy_bytes"][4, 32, 512].in_clusters(4)
    assert np.array_equal(same_everywhere(launched, (data, out, 256), out), np.roll(data, 1, 0))


def test_multicast_tensor_copy() -> None:
    data = np.random.default_rng(6).integers(0, 1000, (8, 64)).astype(np.int32)
    out = np.zeros((32, 64), np.int32)
    maps = [lw.tensor_map(each, (8, 64)) for each in (data, out)]
    launched = source("copies")["broadcast"][4, 32, 2048].in_clusters(4)
    found = same_everywhere(launched, (*maps, 8, maps[0].box_bytes), out)
    assert np.array_equal(found, np.tile(data, (4, 1)))


# distributed shared memory ----------------------------------------------------------------------------------


@only_with_everything
def test_distributed_histogram() -> None:
    data = np.random.default_rng(7).integers(0, 1 << 20, 3000, np.uint32)
    bins = np.zeros(4 * 40, np.uint32)
    launched = compiled(DISTRIBUTED, ARCH)["histogram"][8, 64, 4 * 40].in_clusters(4)
    found = same_everywhere(launched, (data, data.size, bins, 40), bins)
    assert np.array_equal(found, np.bincount(data % 160, minlength=160))


def test_distributed_reduction() -> None:
    data = np.random.default_rng(8).integers(0, 1 << 32, 5000, np.uint32)
    result = np.zeros(1, np.uint32)
    found = same_everywhere(source("copies")["reduce"][8, 32], (data, data.size, result), result)
    assert found[0] == data.sum(dtype=np.uint32)
