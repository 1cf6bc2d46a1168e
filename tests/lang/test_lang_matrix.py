"""Matrix instructions in kernels: the catalogue's operands in, the bits of `instruction(a, b, c)` out."""

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from ptxas import assemble, find_ptxas

RNG = np.random.default_rng(3)
MULTIPLIED = [
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
]


def numbers(operand: lw.Operand) -> np.ndarray:
    if operand.format.kind == "int":
        return operand.format.array(RNG.integers(-8 * operand.format.signed, 8, operand.shape))
    return operand.format.array(RNG.normal(size=operand.shape))


def kind_of(operand: lw.Operand) -> lw.Format:
    """The dtype of the registers that hold an operand."""
    return operand.format if operand.format in (lw.f32, lw.f64, lw.i32) else lw.u32


@sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("text", MULTIPLIED)
def test_registers_in_and_out(text: str) -> None:
    mma = lw.instruction(text)
    kinds = {name: kind_of(mma.operands[name]) for name in "abcd"}
    a, b, c, d = kinds.values()

    @lw.kernel
    def run(A: lw.Ptr[a], B: lw.Ptr[b], C: lw.Ptr[c], D: lw.Ptr[d], E: lw.Ptr[lw.u32]):
        lane = lw.lane_id()

        def held(pointer, operand):
            count = operand.registers
            return operand.fragment([pointer[lane * count + i] for i in range(count)])

        more = {"metadata": E[lane], "selector": 0} if mma.sparse else {}
        acc = mma(held(A, mma.a), held(B, mma.b), held(C, mma.c), **more)
        for i, register in enumerate(acc.registers):
            D[lane * mma.d.registers + i] = register

    a, b, c = (numbers(mma.operands[name]) for name in "abc")
    options = {}
    metadata = np.zeros((32, 1), np.uint32)
    if mma.sparse:
        choices = RNG.choice([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], mma.metadata.shape)
        options["metadata"] = mma.metadata.indices(choices)
        metadata = mma.metadata.pack(options["metadata"])
    packed = [mma.operands[name].pack(each) for name, each in zip("abc", (a, b, c), strict=True)]
    views = [each.view(kinds[name].dtype) for name, each in zip("abc", packed, strict=True)]
    out = np.zeros((32, mma.d.registers), kinds["d"].dtype)
    run[1, 32](*views, out, metadata, arch="sm_90")
    word = np.uint64 if mma.d.register_bits == 64 else np.uint32
    assert np.array_equal(mma.d.unpack(out.view(word)), mma(a, b, c, arch="sm_90", **options))


def test_elements_of_every_fragment_lie_where_the_catalogue_says() -> None:
    operands = [lw.instruction(text).operands[name] for text in MULTIPLIED[:3] for name in "abc"]

    @lw.kernel
    def run(out: lw.Ptr[lw.i32]):
        start = 0
        for operand in operands:
            fragment = operand.full(0)
            for i in range(len(fragment)):
                row, col = fragment.element(i)
                out[start + lw.lane_id() * len(fragment) + i] = row * operand.cols + col
            start += 32 * len(fragment)

    expected = np.concatenate([operand.gather.ravel() for operand in operands])
    out = np.zeros(expected.size, np.int32)
    run[1, 32](out)
    assert np.array_equal(out, expected)


def test_elements_are_read_and_written() -> None:
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    integers = lw.instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")

    @lw.kernel
    def run(out: lw.Ptr[lw.f16], small: lw.Ptr[lw.i8]):
        lane = lw.lane_id()
        acc = mma.c.full(1.5)
        acc[2] = acc[3] + 2.0
        doubled = acc.map(lambda x: x * 2.0)
        a = integers.a.full(lw.i8(-3))
        a[5] = (a[4].to(lw.i32) * 7).to(lw.i8)
        for i in range(4):
            out[lane * 4 + i] = doubled[i]
            small[lane * 4 + i] = a[i + 4]

    out, small = np.zeros((32, 4), np.float16), np.zeros((32, 4), np.int8)
    run[1, 32](out, small)
    assert (out == [3, 3, 7, 3]).all() and (small == [-3, -21, -3, -3]).all()


def test_movmatrix_and_stmatrix_transpose() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.f16], moved: lw.Ptr[lw.f16], stored: lw.Ptr[lw.f16]):
        lane = lw.lane_id()
        tile, other = lw.shared(lw.f16, (8, 8)), lw.shared(lw.f16, (8, 8))
        row, col = lane // 4, lane % 4 * 2
        for i in range(2):
            tile[row, col + i] = x[lane * 2 + i]
        lw.syncwarp()
        a = lw.ldmatrix(tile.ptr(lane % 8, 0), num=1)
        lw.stmatrix(other.ptr(lane % 8, 0), a, trans=True)
        lw.syncwarp()
        turned = lw.movmatrix(a)
        low, high = lw.unpack(turned.registers[0], lw.f16)
        moved[lane * 2], moved[lane * 2 + 1] = low, high
        for i in range(2):
            stored[lane * 2 + i] = other[row, col + i]

    x = np.arange(64, dtype=np.float16).reshape(8, 8)
    moved, stored = np.zeros((8, 8), np.float16), np.zeros((8, 8), np.float16)
    with pytest.raises(lw.LanewiseError, match="sm_80"):
        run[1, 32](x, moved, stored, arch="sm_80")
    run[1, 32](x, moved, stored)
    assert run.module().target == "sm_90"
    assert np.array_equal(moved, x.T) and np.array_equal(stored, x.T)


@sampled(2)
@pytest.mark.parametrize("arch", ["sm_90", "sm_120a"])
def test_ptxas_takes_every_mma_of_an_arch(arch: str) -> None:
    if find_ptxas() is None:
        pytest.skip("no ptxas")
    forms = [
        each
        for each in lw.instructions(arch=arch)
        if each.family.startswith("mma") and each.until is None and each.products == 1
    ]
    assert len(forms) > 30

    @lw.kernel
    def run(x: lw.Ptr[lw.u32]):
        word = x[lw.lane_id()]
        for number, mma in enumerate(forms):
            operands = [mma.operands[name].full(0) for name in "abc"]
            more = {"metadata": word} if mma.sparse else {}
            if mma.scale_type:
                more |= {"scale_a": word, "scale_b": (word, 0, 1)}
            acc = mma(*operands, **more).registers[0]
            x[number] = lw.bitcast(acc.to(lw.f32) if acc.dtype is lw.f64 else acc, lw.u32)

    assert assemble(run.ptx(arch), arch) == []
