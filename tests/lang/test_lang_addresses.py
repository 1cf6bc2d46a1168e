"""Addresses and loops at their edges: behind the pointer, u32 that wraps, steps known only in the kernel."""

import numpy as np
import pytest

import lanewise as lw
from everything import sampled


@lw.kernel
def differences(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], n: lw.i32):
    i = lw.thread_idx.x
    s = lw.shared(lw.f32, 64)
    s[i] = x[i]
    lw.syncthreads()
    if 0 < i < n:
        y[i] = (x[i] - x[i - 1]) + (s[i] - s[i - 1])


def test_elements_before_a_pointer() -> None:
    x = np.random.default_rng(0).normal(size=64).astype(np.float32)
    y = np.zeros_like(x)
    assert lw.check(differences[1, 64], x, y, 64).ok
    assert np.array_equal(y[1:], 2 * np.diff(x))
    assert "+-4]" in differences.ptx("sm_80")  # as ptxas reads it; [%rd1-4] is no PTX


@lw.kernel
def unsigned(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.i32], a: lw.u32, b: lw.u32):
    y[0] = x[a - b + 10]
    y[1] = (x + b - a)[0]
    y[2] = (x + 3 - lw.u32(2))[0]


def test_unsigned_indices_wrap_as_in_c() -> None:
    y = np.zeros(3, np.int32)
    unsigned[1, 1](np.arange(16, dtype=np.int32), y, 3, 7)
    assert y.tolist() == [6, 4, 1]


@lw.kernel
def steps(out: lw.Ptr[lw.i32], start: lw.i32, stop: lw.i32, step: lw.i32):
    count = 0
    for i in lw.range(start, stop, step):
        if i < stop + 1000:  # the same comparison as the loop's own must not be taken for it
            out[count] = i
        count += 1
    out[31] = count


@pytest.mark.parametrize("bounds", [(0, 7, 2), (7, 0, -2), (3, 3, 1), (3, 3, -1), (0, 5, -1), (5, 0, 1)])
def test_a_traced_step_may_go_down(bounds: tuple[int, int, int]) -> None:
    out = np.zeros(32, np.int32)
    steps[1, 1](out, *bounds)
    wanted = list(range(*bounds))
    assert out[:31].tolist() == wanted + [0] * (31 - len(wanted)) and out[31] == len(wanted)


@lw.kernel
def constants(out: lw.Ptr[lw.f32], ints: lw.Ptr[lw.i32], n: lw.i32):
    out[0] = np.float32(0.5) * out[0]
    out[1] = np.float64(0.25) + out[1]
    out[2] = lw.where(n > 0, 0.0, -0.0)
    ints[0] = lw.i32(300).to(lw.u8, saturate=True).to(lw.i32)
    ints[1], ints[2] = divmod(n, 4)
    ints[3] = (lw.u32(0xFFFFFFFF) // n.to(lw.u32)).to(lw.i32) // 3


def test_constants_and_conversions() -> None:
    out, ints = np.full(4, 3, np.float32), np.zeros(4, np.int32)
    constants[1, 1](out, ints, -7)
    assert out.tolist() == [1.5, 3.25, 0, 3] and np.signbit(out[2])
    assert ints.tolist() == [255, -2, 1, 0]
    constants[1, 1](out, ints, 1)
    assert ints[3] == -1  # 0xFFFFFFFF is -1 as an i32, and // rounds down


FORMATS = {
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": (1.5, -2),
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32": (1.5, -2),
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32": (-3, 9),
}


@sampled(4)
@pytest.mark.parametrize("text", FORMATS)
def test_numbers_in_fragments_are_numbers(text: str) -> None:
    mma, (a, b) = lw.instruction(text), FORMATS[text]
    dtype = lw.f32 if mma.c.format is lw.f32 else lw.i32

    @lw.kernel
    def product(out: lw.Ptr[dtype]):
        out[lw.lane_id()] = mma(mma.a.full(a), mma.b.full(b))[0]

    out = np.zeros(32, dtype.dtype)
    product[1, 32](out, arch="sm_90")
    assert (out == a * b * mma.a.cols).all()
