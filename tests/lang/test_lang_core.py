"""Kernels traced, run on the machine, and compared with NumPy; what ptxas says of their PTX."""

from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from ptxas import assemble, find_ptxas

MMA = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
LDMATRIX = lw.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16")


@lw.kernel
def saxpy(a: lw.f32, x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], n: lw.i32):
    i = lw.block_idx.x * lw.block_dim.x + lw.thread_idx.x
    if i < n:
        y[i] = a * x[i] + y[i]


@lw.kernel
def collatz(x: lw.Ptr[lw.i32], n: lw.i32):
    i = lw.block_idx.x * lw.block_dim.x + lw.thread_idx.x
    if i >= n:
        return
    v = x[i]
    steps = 0
    while v != 1:
        if v % 2 == 0:  # noqa: SIM108 (the statement is what is tested)
            v = v // 2
        else:
            v = 3 * v + 1
        steps += 1
    x[i] = steps


@lw.kernel
def hgemm(A: lw.Ptr[lw.f16, 16], B: lw.Ptr[lw.f16, 16], C: lw.Ptr[lw.f32], N: lw.i32, K: lw.i32):
    lane = lw.lane_id()
    row, col = lw.block_idx.y * 16, lw.block_idx.x * 8
    As = lw.shared(lw.f16, (16, 16))
    Bs = lw.shared(lw.f16, (16, 8))
    acc = MMA.zeros()
    for k in lw.range(0, K, 16):
        r, c = lane // 2, lane % 2 * 8
        As.ptr(r, c).store((A + ((row + r) * K + k + c)).load(8))
        if lane < 16:
            Bs.ptr(lane, 0).store((B + ((k + lane) * N + col)).load(8))
        lw.syncthreads()
        a = LDMATRIX(As.ptr(lane % 16, lane // 16 * 8))
        b = lw.ldmatrix(Bs.ptr(lane % 16, 0), num=2, trans=True)
        acc = MMA(a, b, acc)
        lw.syncthreads()
    for i in range(len(acc)):
        r, c = acc.element(i)
        C[(row + r) * N + col + c] = acc[i]


def test_saxpy_is_numpys() -> None:
    x = np.arange(100, dtype=np.float32) / 3
    y = np.ones(100, np.float32)
    expected = np.float32(0.1) * x + y
    saxpy[4, 32](0.1, x, y, 100)
    assert np.array_equal(y, expected)


@lw.kernel
def compared_pointers(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
    out[0] = lw.where(x != 0, 1, 0)
    out[1] = lw.where(x == None, 1, 0)  # noqa: E711, as a user may write it
    out[2] = lw.where(x == y, 1, 0)
    out[3] = lw.where(x < y + 1, 1, 0)
    if x == 0:
        out[4] = 1


def test_pointers_are_compared_by_their_addresses() -> None:
    array, rows = np.zeros(8, np.int32), []
    for x, y in ((None, array), (array, array), (array[4:], array)):
        out = np.zeros(5, np.int32)
        compared_pointers[1, 1](x, y, out)
        rows.append(out.tolist())
    assert rows == [[0, 1, 0, 1, 1], [1, 0, 1, 1, 0], [1, 0, 0, 0, 0]]


def test_while_runs_as_python_does() -> None:
    x = np.arange(1, 101, dtype=np.int32)
    collatz[4, 32](x, 100)

    def steps(v: int) -> int:
        return 0 if v == 1 else 1 + steps(v // 2 if v % 2 == 0 else 3 * v + 1)

    assert x.tolist() == [steps(v) for v in range(1, 101)]


def test_hgemm_has_the_bits_of_the_instruction() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((32, 64), (64, 24)))
    c = np.zeros((32, 24), np.float32)
    hgemm[(3, 2), 32](a, b, c, 24, 64, arch="sm_90")
    assert np.array_equal(c, MMA.gemm(a, b, arch="sm_90"))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("kernel", [saxpy, collatz, hgemm], ids=lambda kernel: kernel.name)
def test_ptxas_takes_the_ptx(kernel: lw.Kernel, arch: str) -> None:
    if find_ptxas() is None:
        pytest.skip("no ptxas")
    if kernel is hgemm and arch == "sm_75":
        with pytest.raises(lw.LanewiseError, match="sm_75"):
            kernel.ptx(arch)
        return
    assert assemble(kernel.ptx(arch), arch) == []


def test_two_traces_give_the_same_text() -> None:
    assert hgemm._trace("sm_80", {})[0] == hgemm._trace("sm_80", {})[0]


def test_ptx_names_the_python_lines() -> None:
    text = hgemm.ptx()
    lines = Path(__file__).read_text().split("\n")
    number = next(n for n, line in enumerate(lines, 1) if line.strip() == "acc = MMA(a, b, acc)")
    assert f"// test_lang_core.py:{number}  acc = MMA(a, b, acc)" in text
    assert f".loc 1 {number} " in text
    assert text.startswith(".version 7.0\n.target sm_80\n")


def test_constants_that_are_equal_and_not_the_same() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.f32], WHAT: lw.Constexpr):
        x[0] = 2.0 if WHAT is True else 3.0 if isinstance(WHAT, float) else 4.0

    x = np.zeros(1, np.float32)
    for value, expected in ((1, 4), (True, 2), (1.0, 3), (1, 4)):
        run[1, 1](x, value)
        assert x[0] == expected
    assert run.module(WHAT=1) is run.module(WHAT=1)
