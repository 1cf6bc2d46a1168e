"""Instructions on arrays: published products, batches, whole matrices, and what is said of wrong input."""

import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise
from everything import sampled
from lanewise.arith import compute, gemm
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.formats import FORMATS
from lanewise.isa import instruction

EXAMPLES = json.loads((Path(__file__).parent.parent / "data" / "worked_examples.json").read_text())[
    "products"
]
MMA = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
WMMA = instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
WGMMA = instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
SPARSE = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SCALED = instruction("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0")
ORDERED = instruction(SPARSE.text.replace(".sp.", ".sp::ordered_metadata."))
S8 = instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
RNG = np.random.default_rng(11)


def half(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float16)


def single(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@sampled(3)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["instruction"][:60])
def test_published_products_come_out_exactly(example: dict[str, Any]) -> None:
    each = instruction(example["instruction"].split(" ")[0])
    for arch in each.archs:
        d = compute(each, example["A"], example["B"], arch=arch)
        assert d.tolist() == example["D"], arch


def test_an_instruction_computes_when_called() -> None:
    a, b, c = half(16, 16), half(16, 8), single(16, 8)
    mma = lanewise.instruction(MMA.text)
    assert np.array_equal(mma(a, b, c, arch="sm_90"), compute(MMA, a, b, c, arch="sm_90"))
    assert np.array_equal(mma.gemm(a, b, c, arch="sm_80"), gemm(MMA, a, b, c, arch="sm_80"))
    assert mma.fidelity("sm_90") == "confirmed on hardware"


def test_batches_are_products_side_by_side() -> None:
    a, b, c = half(3, 1, 16, 16), half(5, 16, 8), single(3, 5, 16, 8)
    d = compute(MMA, a, b, c, arch="sm_90")
    assert d.shape == (3, 5, 16, 8) and d.dtype == np.float32
    for i in range(3):
        for j in range(5):
            assert np.array_equal(d[i, j], compute(MMA, a[i, 0], b[j], c[i, j], arch="sm_90"))


def test_large_products_in_a_batch() -> None:
    a, b, c = half(2, 1, 80, 96), half(1, 3, 96, 72), single(80, 72)
    d = gemm(MMA, a, b, c, arch="sm_90")
    assert d.shape == (2, 3, 80, 72)
    assert np.array_equal(d[1, 2], gemm(MMA, a[1, 0], b[0, 2], c, arch="sm_90"))


def test_gemm_repeats_the_instruction_along_k() -> None:
    a, b, c = half(16, 64), half(64, 8), single(16, 8)
    d = c
    for k in range(0, 64, 16):
        d = compute(MMA, a[:, k : k + 16], b[k : k + 16], d, arch="sm_80")
    assert np.array_equal(gemm(MMA, a, b, c, arch="sm_80"), d)


def test_gemm_pads_tails_with_zeros() -> None:
    a, b, c = half(19, 37), half(37, 11), single(19, 11)
    padded_a, padded_b, padded_c = (
        np.zeros((32, 48), np.float16),
        np.zeros((48, 16), np.float16),
        np.zeros((32, 16), "f4"),
    )
    padded_a[:19, :37], padded_b[:37, :11], padded_c[:19, :11] = a, b, c
    whole = gemm(MMA, padded_a, padded_b, padded_c, arch="sm_90")
    assert np.array_equal(gemm(MMA, a, b, c, arch="sm_90"), whole[:19, :11])


def test_f16_d_of_m8n8k4_rounds_after_every_instruction() -> None:
    each = instruction("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16")
    a, b, c = half(8, 16), half(16, 8), half(8, 8)
    d = c
    for k in range(0, 16, 4):
        d = compute(each, a[:, k : k + 4], b[k : k + 4], d, arch="sm_90")
    assert np.array_equal(gemm(each, a, b, c, arch="sm_90"), d)


def test_no_c_is_a_c_of_zeros() -> None:
    a, b = half(16, 16), half(16, 8)
    assert np.array_equal(
        compute(MMA, a, b, arch="sm_90"), compute(MMA, a, b, np.zeros((16, 8), "f4"), arch="sm_90")
    )


def test_strides_do_not_matter() -> None:
    a, b, c = half(16, 32), half(8, 16), single(8, 16)
    plain = compute(MMA, a[:, ::2].copy(), b.T.copy(), c.T.copy(), arch="sm_90")
    assert np.array_equal(compute(MMA, a[:, ::2], b.T, c.T, arch="sm_90"), plain)
    unaligned = np.frombuffer(b"\0" + b.T.tobytes(), np.float16, offset=1).reshape(16, 8)
    assert np.array_equal(compute(MMA, a[:, ::2], unaligned, c.T, arch="sm_90"), plain)


def test_inputs_are_left_alone() -> None:
    a, b, c = half(16, 16), half(16, 8), single(16, 8)
    c[0, 0] = -np.nan
    kept = a.tobytes(), b.tobytes(), c.tobytes()
    for array in (a, b, c):
        array.flags.writeable = False
    compute(MMA, a, b, c, arch="sm_90")
    gemm(MMA, a, b, c, arch="sm_90")
    assert (a.tobytes(), b.tobytes(), c.tobytes()) == kept


@pytest.mark.parametrize(
    "shapes", [((0, 16), (16, 8)), ((16, 16), (16, 0)), ((4, 0, 16), (16, 8)), ((0, 3, 16), (16, 8))]
)
def test_nothing_times_something_is_nothing(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.zeros(shape, np.float16) for shape in shapes)
    assert gemm(MMA, a, b, arch="sm_90").shape == (a @ b).shape


def test_an_empty_k_leaves_c() -> None:
    c = single(5, 6)
    assert np.array_equal(gemm(MMA, np.zeros((5, 0), "f2"), np.zeros((0, 6), "f2"), c, arch="sm_90"), c)


def test_lists_of_exact_numbers_are_taken() -> None:
    a = [[0.5] * 16] * 16
    d = compute(MMA, a, np.ones((16, 8), np.float16), arch="sm_90")
    assert (d == 8.0).all()
    with pytest.raises(LanewiseError, match=r"A: 0.1 is not a number of f16.*formats\.f16\.array"):
        compute(MMA, [[0.1] * 16] * 16, np.ones((16, 8), np.float16), arch="sm_90")
    assert compute(S8, [[1] * 32] * 16, [[-2] * 8] * 32, arch="sm_90")[3, 3] == -64


def test_satfinite_is_wmmas() -> None:
    a, b = np.full((16, 16), 65504.0, np.float16), np.full((16, 16), 65504.0, np.float16)
    c = np.full((16, 16), np.float32(3.4e38))
    c[0], c[1] = -np.inf, np.nan
    a[2] = np.inf
    d = compute(WMMA, a, b, c, arch="sm_90", satfinite=True)
    big = np.finfo(np.float32).max
    assert (d[0] == -big).all() and (d[1] == 0).all() and not np.signbit(d[1]).any() and (d[2] == big).all()
    half_d = compute(
        instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16"), a, b, arch="sm_90", satfinite=True
    )
    assert (half_d == 65504.0).all() and half_d.dtype == np.float16
    with pytest.raises(LanewiseError, match="has no such form"):
        compute(MMA, a, b[:, :8], arch="sm_90", satfinite=True)


def test_satfinite_clamps_every_instruction_of_a_gemm() -> None:
    a = np.full((16, 32), 65504.0, np.float16)
    b = np.full((32, 16), 65504.0, np.float16)
    c = np.full((16, 16), np.finfo(np.float32).max)
    b[16:] = -65504.0
    stepped = compute(WMMA, a[:, :16], b[:16], c, arch="sm_90", satfinite=True)
    stepped = compute(WMMA, a[:, 16:], b[16:], stepped, arch="sm_90", satfinite=True)
    assert np.array_equal(gemm(WMMA, a, b, c, arch="sm_90", satfinite=True), stepped)


def test_wgmma_negates_its_factors() -> None:
    a, b = half(64, 16), half(16, 8)
    plain = compute(WGMMA, a, b, arch="sm_90a")
    assert np.array_equal(compute(WGMMA, a, b, arch="sm_90a", negate_a=True), -plain)
    assert np.array_equal(compute(WGMMA, a, b, arch="sm_90a", negate_a=True, negate_b=True), plain)
    with pytest.raises(LanewiseError, match="cannot negate"):
        compute(MMA, half(16, 16), half(16, 8), arch="sm_90", negate_b=True)


def test_a_sparse_product_is_the_dense_one_of_what_is_selected() -> None:
    packed, b = half(16, 8), half(16, 8)
    places = np.array([(0, 1), (0, 3), (1, 2), (2, 3)] * 16).reshape(16, 8)
    dense = np.zeros((16, 16), np.float16)
    np.put_along_axis(dense, places + np.repeat(np.arange(4) * 4, 2), packed, axis=1)
    want = compute(MMA, dense, b, arch="sm_90")
    assert np.array_equal(compute(SPARSE, packed, b, arch="sm_90", metadata=places), want)
    wide = gemm(
        SPARSE, np.tile(packed, (2, 2)), np.tile(b, (2, 3)), arch="sm_90", metadata=np.tile(places, (2, 2))
    )
    assert np.array_equal(wide[16:, 8:16], gemm(MMA, np.tile(dense, 2), np.tile(b, (2, 1)), arch="sm_90"))


def wrong(
    message: str, *args: Any, each: lanewise.Instruction = MMA, arch: str = "sm_90", **options: Any
) -> None:
    with pytest.raises(LanewiseError, match=message):
        compute(each, *args, arch=arch, **options)


def test_too_many_arrays_are_named() -> None:
    a, b, c = half(16, 16), half(16, 8), single(16, 8)
    with pytest.raises(TypeError, match=r"takes a, b and, if you like, c; 4 arrays are given.*metadata="):
        MMA(a, b, c, c, arch="sm_90")
    with pytest.raises(TypeError, match="c is given twice"):
        MMA(a, b, c, c=c, arch="sm_90")


def test_wrong_shapes_are_named() -> None:
    a, b, c = half(16, 16), half(16, 8), single(16, 8)
    wrong(r"A has shape \(16, 8\).*takes \(…, 16, 16\)", a[:, :8], b[:8])
    wrong(r"B has shape \(16, 4\).*takes \(…, 16, 8\)", a, b[:, :4])
    wrong(r"A has shape \(16, 16\) and B \(8, 8\); A needs as many columns as B has rows", a, b[:8])
    wrong(r"C has shape \(8, 8\)", a, b, c[:8])
    wrong("A is a matrix", a[0], b)
    wrong(r"do not broadcast: A \(2,\), B \(3,\)", np.stack([a] * 2), np.stack([b] * 3))
    wrong("A is neither an array nor nested lists", [[1, 2], [3]], b)
    wrong("A is neither an array nor nested lists", "text", b)
    wrong("A is neither an array nor nested lists", None, b)


def test_wrong_dtypes_are_named_with_the_way_out() -> None:
    a, b, c = half(16, 16), half(16, 8), single(16, 8)
    wrong(
        r"A is f16 and takes an array of dtype float16, not float32; lanewise\.formats\.f16\.array\(A\)",
        a.astype("f4"),
        b,
    )
    wrong("B is f16 and takes an array of dtype float16, not bfloat16", a, b.astype(ml_dtypes.bfloat16))
    wrong("C is f32 and takes an array of dtype float32, not float16", a, b, c.astype("f2"))
    wrong("A is f16 and takes .* not >f2", a.astype(">f2"), b)
    wrong(
        "A is s8 and takes an array of dtype int8, not int64",
        np.ones((16, 32), int),
        np.ones((32, 8), "i1"),
        each=S8,
    )


def test_wrong_archs_are_named() -> None:
    a, b = half(16, 16), half(16, 8)
    with pytest.raises(IllegalInstruction, match="not on sm_75; legal on sm_80 and later"):
        compute(MMA, a, b, arch="sm_75")
    with pytest.raises(LanewiseError, match="unknown arch"):
        compute(MMA, a, b, arch="sm_91")
    with pytest.raises(IllegalInstruction, match="sm_90a only"):
        compute(WGMMA, half(64, 16), half(16, 8), arch="sm_90")
    with pytest.raises(LanewiseError, match="computes nothing"):
        compute(instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), a, b, arch="sm_80")


@pytest.mark.parametrize(
    "form",
    [
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k32.row.col.s32.s8.u8.s32",
        "m16n8k64.row.col.s32.s4.s4.s32",
    ],
)
def test_metadata_in_any_order(form: str) -> None:
    """Without ::ordered_metadata the first packed element stands at the first index, even if it is larger."""
    sparse = instruction(f"mma.sp.sync.aligned.{form}")
    a, metadata = sparse.operands["a"], sparse.metadata
    packed = a.format.array(RNG.integers(-8, 8, a.shape))
    b = sparse.operands["b"].format.array(RNG.integers(0, 8, sparse.operands["b"].shape))
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    places = np.array(pairs)[RNG.integers(0, 12, (16, metadata.cols))].reshape(metadata.indices_shape)
    exact = metadata.expand(packed, places).astype(int) @ b.astype(int)
    assert np.array_equal(compute(sparse, packed, b, arch="sm_80", metadata=places).astype(int), exact)
    assert np.array_equal(metadata.unpack(metadata.pack(places)), places)
    dense = metadata.expand(packed, places)
    elements = packed.reshape(16, metadata.cols, 2, metadata.run)
    group = dense.reshape(16, metadata.cols, 4, metadata.run)
    for which in range(2):
        index = places.reshape(16, metadata.cols, 2)[..., which, None, None]
        assert np.array_equal(np.take_along_axis(group, index, 2)[..., 0, :], elements[..., which, :])


@pytest.mark.parametrize(
    "text",
    [
        "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16",
    ],
)
def test_metadata_that_must_ascend(text: str) -> None:
    metadata = instruction(text).metadata
    with pytest.raises(LanewiseError, match="must differ and ascend"):
        metadata.codes(np.tile([3, 1], (metadata.rows, metadata.cols)))


def test_metadata_goes_with_sparse_instructions_only() -> None:
    packed, b = half(16, 8), half(16, 8)
    places = np.tile([0, 1], (16, 4))
    wrong(r"needs metadata: an integer array \(…, 16, 8\)", packed, b, each=SPARSE)
    wrong(r"got int64 \(16, 4\)", packed, b, each=SPARSE, metadata=places[:, :4])
    wrong("got float64", packed, b, each=SPARSE, metadata=places * 1.0)
    wrong("0…3", packed, b, each=SPARSE, metadata=places + 3)
    wrong("must differ and ascend", packed, b, each=ORDERED, metadata=places[:, ::-1])
    wrong(
        "selects 0 then 0; the two places of a group must differ$",
        packed,
        b,
        each=SPARSE,
        metadata=0 * places,
    )
    wrong("takes no metadata", half(16, 16), b, metadata=places)
    wrong("needs half as many columns as B has rows", half(16, 16), b, each=SPARSE, metadata=places)
    with pytest.raises(LanewiseError, match="a sparse K is a multiple of 16"):
        gemm(SPARSE, half(16, 4), half(8, 8), arch="sm_90", metadata=places[:, :4])


def test_scales_go_with_block_scaled_instructions_only() -> None:
    fp8, scale = FORMATS["e4m3"], FORMATS["ue8m0"]
    a, b = fp8.array(np.ones((16, 32))), fp8.array(np.ones((32, 8)))
    good: dict[str, Any] = {"scale_a": scale.array(np.ones((16, 1))), "scale_b": scale.array(np.ones((1, 8)))}
    assert (compute(SCALED, a, b, arch="sm_120a", **good) == 32).all()
    wrong(r"needs scale_a: float8_e8m0fnu of shape \(…, 16, 1\)", a, b, each=SCALED, arch="sm_120a")
    wrong("scale_a has shape", a, b, each=SCALED, arch="sm_120a", **good | {"scale_a": good["scale_a"][:4]})
    wrong("scale_b is ue8m0", a, b, each=SCALED, arch="sm_120a", **good | {"scale_b": np.ones((1, 8), "f4")})
    wrong("takes no scale_a", half(16, 16), half(16, 8), **good)


def test_callers_may_be_many() -> None:
    a, b, c = half(64, 128), half(128, 64), single(64, 64)
    want = gemm(MMA, a, b, c, arch="sm_90")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: gemm(MMA, a, b, c, arch="sm_90"), range(40)))
    assert all(np.array_equal(result, want) for result in results)


def _in_child(queue: Any, a: np.ndarray, b: np.ndarray) -> None:
    queue.put(gemm(MMA, a, b, arch="sm_90").tobytes())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes_too() -> None:
    a, b = half(64, 128), half(128, 64)
    want = gemm(MMA, a, b, arch="sm_90").tobytes()  # the parent's threads are running by now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, a, b))
    child.start()
    assert queue.get() == want
    child.join()
    assert child.exitcode == 0


def test_withdrawn_satfinite_is_what_the_assembler_leaves_of_it() -> None:
    text = "wmma.mma.sync.aligned.row.col.m16n16k16.{}.{}{}"
    a = np.full((16, 16), np.inf, np.float16)
    b = np.ones((16, 16), np.float16)
    saturating = instruction(text.format("f32", "f32", ".satfinite"))
    assert np.isinf(saturating(a, b, arch="sm_90")).all()  # ptxas 13.0 drops it from sm_80 on
    assert saturating.fidelity("sm_90") == "inferred"
    assert (saturating(a, b, arch="sm_70") == np.finfo(np.float32).max).all()
    # What is left of it: an f32 sum becomes an f16 D toward zero.
    narrowing = instruction(text.format("f16", "f32", ".satfinite"))
    c = np.full((16, 16), 1 + 2**-10 - 2**-20, np.float32)
    c[0, :4] = 70000, -70000, np.inf, 65519
    d = narrowing(np.zeros_like(a), b, c, arch="sm_90")
    assert d[1, 1] == 1 and d[0, :4].tolist() == [65504, -65504, np.inf, 65504]


def test_gemm_refuses_to_lose_an_accumulator() -> None:
    half_c = instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16")
    a, b = np.ones((8, 8), np.float16), np.ones((8, 8), np.float16)
    with pytest.raises(LanewiseError, match="cannot be repeated along K"):
        half_c.gemm(a, b, arch="sm_70")
    assert half_c.gemm(a[:, :4], b[:4], arch="sm_70")[0, 0] == 4


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ],
)
def test_satfinite_only_where_it_means_something(text: str) -> None:
    form = instruction(text)
    a, b = np.zeros(form.a.shape, form.a.format.dtype), np.zeros(form.b.shape, form.b.format.dtype)
    with pytest.raises(LanewiseError, match="satfinite=True is for"):
        form(a, b, arch="sm_90", satfinite=True)


def test_masked_and_ragged_operands_are_refused() -> None:
    form = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    a, b = np.zeros((16, 8), np.float16), np.zeros((16, 8), np.float16)
    with pytest.raises(LanewiseError, match="masked"):
        form(np.ma.masked_array(a, mask=True), b, arch="sm_80", metadata=np.zeros((16, 8), int))
    with pytest.raises(LanewiseError, match="metadata"):
        form(a, b, arch="sm_80", metadata=[[1], [1, 2]])
