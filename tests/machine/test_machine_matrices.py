"""Matrix instructions on the machine against `lanewise.arith` and the catalogue's own fragments."""

import random
from functools import cache

import numpy as np
import pytest

import lanewise as lw
import lanewise.ptx as ptx
from everything import sampled
from gpu.kernels import register_kernel, row_kernel, wmma_move_kernel
from lanewise.arith.models import model_of
from lanewise.formats import Format
from lanewise.isa import instruction, instructions
from lanewise.launch import launch
from lanewise.machine import KernelFault

PRODUCTS = [
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_86"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80"),
    ("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", "sm_75"),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", "sm_80"),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16", "sm_80"),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32", "sm_80"),
]  # fmt: skip


def entry(text: str) -> ptx.Entry:
    return ptx.parse(text)["k"]


def draw(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if fmt.kind == "int" or fmt.bits == 1:
        words = rng.integers(0, 1 << min(fmt.bits, 20), shape, dtype=np.uint64)
        return fmt.from_bits(words.astype(fmt.word_dtype))
    return fmt.from_bits(fmt.encode(rng.standard_normal(shape)))


@sampled(8)
@pytest.mark.parametrize(("text", "arch"), PRODUCTS)
def test_products_have_the_bits_of_the_arithmetic(text: str, arch: str) -> None:
    mma = instruction(text)
    rng = np.random.default_rng(5)
    items = 3
    a, b, c = (
        draw(mma.operands[name].format, (items, *mma.operands[name].matrix_shape), rng) for name in "abc"
    )
    kernel = register_kernel(mma, arch)
    d = np.zeros((items, 32, mma.d.registers), f"uint{mma.d.register_bits}")
    launch(entry(kernel.ptx), (items, kernel.threads))(
        mma.a.pack(a), mma.b.pack(b), mma.c.pack(c), d, arch=arch
    )
    assert (d == mma.d.pack(mma(a, b, c, arch=arch))).all()


FUSED = [
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", "sm_90"),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f16.f16", "sm_90"),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32", "sm_80"),
]


@sampled(32)
@pytest.mark.parametrize("kind", ["zeros", "subnormal", "far apart", "one special"])
@pytest.mark.parametrize(("text", "arch"), FUSED)
def test_fused_sums_of_unusual_numbers(text: str, arch: str, kind: str) -> None:
    mma, rng, items = instruction(text), np.random.default_rng(29), 4
    given = {}
    for name in "abc":
        fmt, shape = mma.operands[name].format, (items, *mma.operands[name].matrix_shape)
        spread = {"far apart": min(60, fmt.bias // 2), "subnormal": 4}.get(kind, 0)
        middle = -(fmt.bias // 2) if kind == "subnormal" and name != "c" else 0
        numbers = rng.standard_normal(shape) * 2.0 ** rng.integers(
            middle - spread, middle + spread + 1, shape
        )
        if kind == "subnormal":
            numbers[0] *= 2.0**fmt.emin
        if kind == "zeros":
            numbers[rng.random(shape) < 0.7] = 0
        words = fmt.encode(numbers)
        if kind == "one special":  # the largest of words: a NaN where there are such
            words.reshape(items, -1)[np.arange(items), rng.integers(0, words[0].size, items)] = (
                1 << fmt.bits - 1
            ) - 1
        given[name] = fmt.from_bits(words)
    kernel = register_kernel(mma, arch)
    d = np.zeros((items, 32, mma.d.registers), f"uint{mma.d.register_bits}")
    launch(entry(kernel.ptx), (items, kernel.threads))(
        *(mma.operands[name].pack(given[name]) for name in "abc"), d, arch=arch
    )
    assert (d == mma.d.pack(mma(given["a"], given["b"], given["c"], arch=arch))).all()


@cache
def sample() -> list[tuple[str, str]]:
    """Six forms drawn from the whole catalogue, of each kind of operand one, each on an arch that has it."""
    forms: dict[object, tuple[str, str]] = {}
    draw_from = random.Random(20)
    for mma in instructions():
        if mma.multiplies and not mma.family.startswith("wgmma"):
            archs = [arch for arch in mma.archs if model_of(mma, arch) is not None]
            kind = (mma.family.split("::")[0], mma.a.format.name, mma.scale_vec, mma.products)
            if archs and (kind not in forms or draw_from.random() < 0.2):
                forms[kind] = (mma.text, draw_from.choice(archs))
    return draw_from.sample(sorted(forms.values()), 6)


@sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_products_of_any_bits(number: int) -> None:
    """Infinities, NaNs and subnormal numbers too; metadata and scale factors where there are such."""
    text, arch = sample()[number]  # drawn here: it takes a second, and every worker collects all tests
    mma = instruction(text)
    rng = np.random.default_rng(23)
    words: dict[str, np.ndarray] = {}
    given: dict[str, np.ndarray] = {}
    for name, operand in mma.operands.items():
        if name in ("d", "metadata"):
            continue
        raw = rng.integers(0, 1 << min(operand.format.bits, 63), operand.matrix_shape, dtype=np.uint64)
        given[name] = operand.format.from_bits(raw.astype(operand.format.word_dtype))
        words[name] = operand.pack(given[name])
    if mma.sparse:
        rows, columns = mma.metadata.indices_shape
        one = mma.metadata.per_code == 1
        pairs = [(i, j) for i in range(4) for j in range(4) if i < j or (i > j and not mma.metadata.ordered)]
        choices = np.array([[0], [1]] if one else pairs)
        chosen = choices[rng.integers(0, len(choices), (rows, columns // choices.shape[1]))]
        given["metadata"] = chosen.reshape(rows, columns).astype(np.uint8)
        words["metadata"] = mma.metadata.pack(given["metadata"])
    kernel = register_kernel(mma, arch)
    order = [name for name in mma.operands if name != "d"]
    d = np.zeros((1, 32, mma.d.registers), f"uint{mma.d.register_bits}")
    target = "a" if mma.scale_vec or mma.kind else ""
    text = kernel.ptx.replace(f".target {arch}\n", f".target {arch}{target}\n")
    launch(entry(text), (1, 32))(*(words[name] for name in order), d, arch=arch)
    a, b, c = (given.pop(name) for name in "abc")
    with np.errstate(all="ignore"):
        expected = mma.d.pack(mma(a, b, c, arch=arch, **given))
    assert (d[0] == expected).all()


@pytest.mark.parametrize("selector", [0, 1])
def test_sparse_products(selector: int) -> None:
    mma = instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    rng = np.random.default_rng(6)
    a, b, c = (draw(mma.operands[name].format, mma.operands[name].shape, rng) for name in "abc")
    places = (
        np.array([(0, 1), (3, 0), (1, 2), (2, 3)])[rng.integers(0, 4, (16, 8))]  # in any order
        .reshape(16, 16)
        .astype(np.uint8)
    )
    kernel = register_kernel(mma, "sm_80", selector)
    d = np.zeros((1, 32, mma.d.registers), np.uint32)
    words = mma.metadata.pack(places, thread_id=selector)
    launch(entry(kernel.ptx), (1, 32))(mma.a.pack(a), mma.b.pack(b), mma.c.pack(c), words, d, arch="sm_80")
    assert (d[0] == mma.d.pack(mma(a, b, c, metadata=places, arch="sm_80"))).all()


def test_metadata_of_zeros_may_be_any() -> None:
    """CUTLASS's compressor writes the code 0 for a group of four zeros."""
    mma = instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    rng = np.random.default_rng(6)
    a, b, c = (draw(mma.operands[name].format, mma.operands[name].shape, rng) for name in "abc")
    places = np.tile(np.array([0, 1], np.uint8), (16, 8))
    a[3] = 0
    other = places.copy()
    other[3, 1::2] = 2
    valid, changed = (mma.metadata.pack(each, thread_id=0) for each in (places, other))
    words = valid & ~(valid ^ changed)  # codes 0b0100 and 0b1000 become 0
    d = np.zeros((1, 32, mma.d.registers), np.uint32)
    configured = launch(entry(register_kernel(mma, "sm_80", 0).ptx), (1, 32))
    operands = mma.a.pack(a), mma.b.pack(b), mma.c.pack(c)
    configured(*operands, words, d, arch="sm_80")
    assert (d[0] == mma.d.pack(mma(a, b, c, metadata=places, arch="sm_80"))).all()


@pytest.mark.parametrize("form", ["m16n8k16.row.col.f32.tf32.tf32.f32", "m16n8k32.row.col.f32.f16.f16.f32"])
def test_metadata_of_an_a_of_zeros_may_be_zero(form: str) -> None:
    """CUTLASS loads zeros of A and of its metadata beyond K; numbers beside such a code are a fault."""
    mma = instruction(f"mma.sp.sync.aligned.{form}")
    a, b, c = (
        mma.operands[name].format.array(np.ones(mma.operands[name].shape, np.float32)) for name in "abc"
    )
    words = np.zeros((32, mma.metadata.registers), np.uint32)
    d = np.zeros((1, 32, mma.d.registers), np.uint32)
    configured = launch(entry(register_kernel(mma, "sm_80", 0).ptx), (1, 32))
    configured(mma.a.pack(0 * a), mma.b.pack(b), mma.c.pack(c), words, d, arch="sm_80")
    assert (d[0] == mma.d.pack(c)).all()
    with pytest.raises(lw.LanewiseError, match="metadata"):
        configured(mma.a.pack(a), mma.b.pack(b), mma.c.pack(c), words, d, arch="sm_80")


@pytest.mark.parametrize("text", [
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16",
    "ldmatrix.sync.aligned.m8n8.x1.b16", "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16",
])  # fmt: skip
def test_rows_of_matrices(text: str) -> None:
    move = instruction(text)
    rng = np.random.default_rng(7)
    kernel = row_kernel(move, "sm_90")
    rows = move.row_addresses.rows
    offsets = (rng.permutation(32).astype(np.uint32) * 16)[None, :]
    operand = move.d if move.family == "ldmatrix" else move.a
    matrix = rng.integers(0, 1 << 16, operand.shape).astype(np.uint16)
    image = np.zeros(512, np.uint8)
    packed = operand.pack(matrix)[None]
    for row in range(rows):
        image[offsets[0, row] : offsets[0, row] + 16] = matrix[row].view(np.uint8)
    if move.family == "ldmatrix":
        got = np.zeros_like(packed)
        launch(entry(kernel.ptx), (1, 32))(image, offsets.reshape(1, 32, 1), got)
        assert (got == packed).all()
    else:
        out = np.zeros_like(image)
        launch(entry(kernel.ptx), (1, 32))(packed, offsets.reshape(1, 32, 1), out)
        assert (out == image).all()


@pytest.mark.parametrize("text", [
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16", "wmma.load.b.sync.aligned.col.m32n8k16.global.s8",
    "wmma.store.d.sync.aligned.col.m16n16k16.global.f32",
])  # fmt: skip
def test_fragments_from_and_to_memory(text: str) -> None:
    move = instruction(text, stride=True)
    operand = move.operands[move.matrix]
    by_row = move.layouts[0] == "row"
    lines, length = operand.shape if by_row else operand.shape[::-1]
    stride = length + 16
    word = operand.format.word_dtype
    rng = np.random.default_rng(8)
    memory = rng.integers(0, 200, (lines, stride)).astype(word)
    kernel = wmma_move_kernel(move, "sm_80", memory.nbytes, stride)
    matrix = memory[:, :length] if by_row else memory[:, :length].T
    packed = operand.pack(operand.format.from_bits(np.ascontiguousarray(matrix)))[None]
    size = -(-memory.nbytes // 512) * 512
    image = np.zeros(size, np.uint8)
    if move.family == "wmma.load":
        image[: memory.nbytes] = memory.view(np.uint8).ravel()
        got = np.zeros_like(packed)
        launch(entry(kernel.ptx), (1, 32))(image, got)
        assert (got == packed).all()
    else:
        launch(entry(kernel.ptx), (1, 32))(packed, image)
        stored = image[: memory.nbytes].view(word).reshape(memory.shape)
        assert (stored[:, :length] == memory[:, :length]).all()
        assert (stored[:, length:] == 0).all()


def test_movmatrix_transposes() -> None:
    body = """.reg .b32 %r<3>; .reg .b64 %a;
ld.param.u64 %a, [p]; mov.u32 %r0, %tid.x; mad.wide.u32 %a, %r0, 4, %a;
ld.global.b32 %r1, [%a]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%a], %r2; ret;"""
    move = instruction("movmatrix.sync.aligned.m8n8.trans.b16")
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    words = move.a.pack(matrix)
    launch(
        entry(f".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 p) {{ {body} }}"), (1, 32)
    )(words)
    assert (move.d.unpack(words) == matrix.T).all()


HGEMM = r"""
#include <cuda_fp16.h>
extern "C" __global__ void hgemm(const half* A, const half* B, half* C, int M, int N, int K) {
    int row = blockIdx.y * 16, col = blockIdx.x * 8, lane = threadIdx.x;
    __shared__ half As[16][16], Bs[8][16], Cs[16][8];
    unsigned c0 = 0, c1 = 0;
    for (int i = 0; i < K / 16; i++) {
        *((int4*)&As[lane / 2][0] + lane % 2) = *((const int4*)&A[(row + lane / 2) * K + i * 16] + lane % 2);
        if (lane < 16) *((int4*)&Bs[lane / 2][0] + lane % 2) = *((const int4*)&B[i * 16 + (col + lane / 2) * K] + lane % 2);
        __syncthreads();
        unsigned a[4], b[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
            : "r"((unsigned)__cvta_generic_to_shared(&As[lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1])
            : "r"((unsigned)__cvta_generic_to_shared(&Bs[lane % 8][lane / 8 % 2 * 8])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"
            : "=r"(c0), "=r"(c1) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c0), "r"(c1));
        __syncthreads();
    }
    *((unsigned*)&Cs[lane / 4][0] + lane % 4) = c0;
    *((unsigned*)&Cs[lane / 4 + 8][0] + lane % 4) = c1;
    __syncthreads();
    if (lane < 16) *(int4*)&C[(row + lane) * N + col] = *(int4*)&Cs[lane][0];
}
"""  # noqa: E501  # CUDA C++ as it is written


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_hgemm_equals_the_instruction_repeated(arch: str) -> None:
    try:
        module = ptx.cuda(HGEMM, arch="sm_80")
    except ptx.ToolMissing as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(9)
    m, n, k = 64, 48, 96
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    launch(module["hgemm"], ((n // 8, m // 16), 32))(a, np.ascontiguousarray(b.T), c, m, n, k, arch=arch)
    mma = instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    assert (c.view(np.uint16) == mma.gemm(a, b, arch=arch).view(np.uint16)).all()


def test_a_warp_that_is_not_whole_cannot_multiply() -> None:
    mma = instruction("movmatrix.sync.aligned.m8n8.trans.b16")
    text = f".version 8.0\n.target sm_80\n.entry k() {{ .reg .b32 %r<2>;\n{mma.text} %r0, %r1;\nret; }}"
    with pytest.raises(KernelFault, match="not all lanes"):
        launch(entry(text), (1, 16))()


ROWS = [
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8",
    "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32", "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8",
    "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64",
    "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
]  # fmt: skip


@sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("text", ROWS)
def test_rows_of_bytes_and_of_packed_elements(text: str) -> None:
    """Rows of 16 elements of a byte, or of six or four bits that each get a byte."""
    move = instruction(text)
    rng = np.random.default_rng(17)
    bits = {"b6x16_p32": 6, "b4x16_p64": 4}.get(move.types[-1], 8)
    operand = move.d if move.family == "ldmatrix" else move.a
    matrix = rng.integers(0, 1 << bits, operand.shape).astype(np.uint8)
    offsets = (rng.permutation(32).astype(np.uint32) * 16)[None, :]
    image = np.zeros(512, np.uint8)
    for row in range(move.row_addresses.rows):
        packed = sum(int(value) << (bits * place) for place, value in enumerate(matrix[row]))
        image[offsets[0, row] : offsets[0, row] + 16] = np.frombuffer(packed.to_bytes(16, "little"), np.uint8)
    words = operand.pack(matrix)[None]
    kernel = row_kernel(move, "sm_100").ptx.replace(".target sm_100\n", ".target sm_100a\n")
    if move.family == "ldmatrix":
        got = np.zeros_like(words)
        launch(entry(kernel), (1, 32))(image, offsets.reshape(1, 32, 1), got)
        assert (got == words).all()
    else:
        out = np.zeros_like(image)
        launch(entry(kernel), (1, 32))(words, offsets.reshape(1, 32, 1), out)
        assert (out == image).all()


def test_matrix_instructions_of_two_branches_are_not_one() -> None:
    text = """.version 8.0
.target sm_80
.entry k() { .reg .b32 %r<3>; .reg .pred %p; mov.u32 %r2, %tid.x; setp.lt.u32 %p, %r2, 16;
@%p bra other;
movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;
bra done;
other: movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;
done: ret; }"""
    with pytest.raises(KernelFault, match="not all lanes"):
        launch(entry(text), (1, 32))()


@pytest.mark.parametrize("braces", ["{}", "{{{}}}"], ids=["plain", "braces"])
def test_a_scale_factor_may_stand_in_braces(braces: str) -> None:
    """CUTLASS's kernels for sm_120 write the register of a scale factor as a vector of one."""
    scale = braces.format("%r7")
    text = f"""
.version 8.7
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .b32 %r<10>; .reg .f32 %f<8>; .reg .b64 %rd<4>; .reg .b16 %h<2>;
    ld.param.u64 %rd1, [out]; mov.u32 %r9, %tid.x; mul.wide.u32 %rd2, %r9, 4; add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r1, 0x22222222; mov.u32 %r7, 0x38383838; mov.f32 %f1, 0f00000000; mov.b16 %h0, 0;
    mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3
        {{%f2, %f3, %f4, %f5}}, {{%r1, %r1, %r1, %r1}}, {{%r1, %r1}}, {{%f1, %f1, %f1, %f1}},
        {scale}, {{%h0, %h0}}, {scale}, {{%h0, %h0}};
    st.global.f32 [%rd1], %f2;
    ret;
}}"""
    out = np.zeros(32, np.float32)
    lw.load(text)["k"][1, 32](out)
    assert (out == 64).all()  # 64 products of ones, with scales of one
