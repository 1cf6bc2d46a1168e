"""The compiled loops against the reference, bit for bit, on inputs of every kind."""

import platform

import numpy as np
import pytest

from arith.samples import KINDS, differing, expected, operands
from everything import sampled
from lanewise.arith import compute, gemm, model_of
from lanewise.formats import FORMATS
from lanewise.isa import instruction
from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Code

# One instruction for each way that the kernels are put together: block lengths 4 to 64, sums of 24, 31 and
# 32 bits, each rounding, C first and last, sparse, scaled and grouped, chains, integers, bits.
MMA = "mma.sync.aligned."
CASES = [
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    (MMA + "m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90"),
    (MMA + "m16n8k16.row.col.f16.e5m2.e4m3.f16", "sm_90"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "sm_90a"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e5m2", "sm_90a"),
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    (MMA + "m8n8k4.row.col.f16.f16.f16.f16", "sm_70"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m3.e3m2.f32", "sm_120a"),
    (MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0", "sm_120a"),
    (MMA + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32", "sm_80"),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32", "sm_90"),
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_90"),
    (MMA + "m8n8k4.row.col.f16.f16.f16.f16", "sm_90"),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_90"),
    (MMA + "m16n8k8.row.col.f64.f64.f64.f64.rm", "sm_90"),
    (MMA + "m16n8k32.row.col.satfinite.s32.u8.s8.s32", "sm_90"),
    (MMA + "m16n8k64.row.col.s32.s4.u4.s32", "sm_90"),
    (MMA + "m16n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_90"),
    (MMA + "m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_90"),
]


@sampled(32)
@pytest.mark.parametrize(("text", "arch"), CASES)
def test_one_instruction(text: str, arch: str) -> None:
    each, rng = instruction(text), np.random.default_rng(len(text))
    model = model_of(each, arch)
    assert model is not None
    for kind in KINDS:
        a, b, c, more = operands(each, model, rng, kind)
        d = compute(each, a, b, c, arch=arch, **more)
        want = expected(each, model, a, b, c, more, slice(0, 4), slice(0, 8))
        assert differing(model.d, d[:4, :8], want) == 0, kind


@sampled(16)
@pytest.mark.parametrize(("text", "arch"), CASES)
def test_whole_matrices(text: str, arch: str) -> None:
    # Large enough to be cut into strips and shared out, with rows and columns that fill no instruction.
    each, rng = instruction(text), np.random.default_rng(len(text))
    model = model_of(each, arch)
    assert model is not None
    rows, columns, steps = 67, 61, 3
    kind = str(rng.choice(KINDS))
    a, b, c, more = operands(each, model, rng, kind, rows, columns, steps)
    d = gemm(each, a, b, c, arch=arch, **more)
    some_rows, some_columns = np.array([0, 17, 66]), np.array([0, 33, 60])
    want = expected(each, model, a, b, c, more, some_rows, some_columns, steps)
    assert differing(model.d, d[some_rows][:, some_columns], want) == 0, kind


def test_the_maximal_sum_passes_int32() -> None:
    # 16 largest f16 products and a C beside them: 2,212,495,868 units, above 2^31.
    each = instruction(MMA + "m16n8k16.row.col.f32.f16.f16.f32")
    model = model_of(each, "sm_90")
    assert model is not None
    c = np.full((16, 8), np.nextafter(np.float32(2.0**31), np.float32(0)))
    for sign in (1, -1):
        a, b = np.full((16, 16), sign * 65504, np.float16), np.full((16, 8), 65504, np.float16)
        d = compute(each, a, b, sign * c, arch="sm_90")
        want = expected(each, model, a, b, sign * c, {}, slice(0, 1), slice(0, 1))
        assert (d == want[0, 0]).all()


def test_small_numbers_and_large_share_a_matrix() -> None:
    # Rows, columns and sums that go the wide way beside others that go the narrow one.
    each, rng = instruction(MMA + "m16n8k16.row.col.f32.bf16.bf16.f32"), np.random.default_rng(7)
    model = model_of(each, "sm_90")
    assert model is not None
    a, b = rng.normal(size=(40, 64)), rng.normal(size=(64, 48))
    a[5] *= 2.0**-100
    a[9, 20] = np.inf
    b[:, 30] *= 2.0**100
    b[50, 3] = np.nan
    c = rng.normal(size=(40, 48)).astype(np.float32)
    c[20:] *= np.float32(2.0**-120)
    c[7, 7] = -np.inf
    a, b = model.a.array(a), model.b.array(b)
    d = gemm(each, a, b, c, arch="sm_90")
    rows, columns = np.array([4, 5, 7, 9, 21]), np.array([2, 3, 7, 29, 30])
    want = expected(each, model, a, b, c, {}, rows, columns, 4)
    assert differing(model.d, d[rows][:, columns], want) == 0


def test_an_unselected_element_meets_no_infinity() -> None:
    each = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    a = np.ones((16, 8), np.float16)
    b = np.ones((16, 8), np.float16)
    b[3::4] = np.inf  # never selected: places 0 and 1 are
    places = np.tile([0, 1], (16, 4)).astype(np.uint8)
    assert (compute(each, a, b, arch="sm_80", metadata=places) == 8.0).all()
    assert np.isnan(compute(each, a * 0, b, arch="sm_80", metadata=places + 2)).all()


def write_flush(code: Code, flush: bool) -> None:
    """Make this thread flush subnormals, or keep them."""
    word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    if platform.machine() in ("aarch64", "arm64"):
        put = code.external("llvm.aarch64.set.fpcr", ir.VoidType(), [ir.IntType(64)])
        code.builder.call(put, [ir.Constant(ir.IntType(64), flush << 24)])
    else:
        put = code.external("llvm.x86.sse.ldmxcsr", ir.VoidType(), [pointer])
        mode = code.builder.alloca(word)
        code.builder.store(ir.Constant(word, 0x1F80 | flush * 0x8040), mode)
        code.builder.call(put, [code.builder.bitcast(mode, pointer)])
    code.end()


@pytest.mark.skipif(
    platform.machine() not in ("aarch64", "arm64", "x86_64", "AMD64"),
    reason="this processor's mode is not known",
)
def test_subnormals_survive_in_a_thread_that_flushes_them() -> None:
    each = instruction(MMA + "m16n8k16.row.col.f32.bf16.bf16.f32")
    rng = np.random.default_rng(5)
    a, b = (FORMATS["bf16"].array(rng.normal(size=shape) * 2.0**-64) for shape in ((16, 16), (16, 8)))
    c = (rng.normal(size=(16, 8)) * 2.0**-128).astype(np.float32)
    want = compute(each, a, b, c, arch="sm_90").view(np.uint32)
    assert ((want & 0x7F800000) == 0).any() and want.any()
    module = ir.Module("test")
    write_flush(Code(module, "flush", ()), True)
    write_flush(Code(module, "keep", ()), False)
    program = machine_code.Program([machine_code.compile(str(module))])
    program("flush", [])
    try:
        flushed = np.float32(2.0**-120) * np.float32(2.0**-10)
        got = compute(each, a, b, c, arch="sm_90").view(np.uint32)
    finally:
        program("keep", [])
    assert flushed == 0 and np.array_equal(got, want)
