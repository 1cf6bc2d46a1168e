"""Operators, conversions and intrinsics: each compared with NumPy, or with its definition, lane by lane."""

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from ptxas import assemble, find_ptxas

RNG = np.random.default_rng(7)


def launch(kernel, *arrays):
    """Run a kernel on the machine; ptxas must take its PTX as well, at the lowest arch and version."""
    kernel[1, 32](*arrays)
    taken_by_ptxas(kernel)
    return arrays[-1]


def taken_by_ptxas(kernel) -> None:
    if find_ptxas() is not None:
        module = kernel.module()
        assert assemble(module.text, module.target) == []
        assert assemble(kernel.ptx("sm_120"), "sm_120") == []


def test_integer_operators_are_numpys() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
        i = lw.thread_idx.x
        a, b = x[i], y[i]
        found = [
            a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, ~a, -a, a >> 3, a << 2, lw.min(a, b),
            lw.max(a, b, 5), lw.abs(a), a * 8 + 3 - 1, lw.where(a < b, a, b), (a > b).to(lw.i32), lw.popc(a),
            lw.clz(a), lw.div(a, b), lw.rem(a, b), lw.cdiv(a, b), a // 16, a % 16, a // 1, 7 - a, a - a,
            a * 0, lw.mulhi(a, b), lw.mul_wide(a, b).to(lw.i32), lw.brev(a), (a >= 0).to(lw.i32) + 1,
        ]  # fmt: skip
        for number, value in enumerate(found):
            out[number * 32 + i] = value

    x = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)
    y = RNG.integers(-50, 50, 32).astype(np.int32)
    y[y == 0] = 3
    out = launch(run, x, y, np.zeros((33, 32), np.int32))
    a, b = x.astype(np.int64), y.astype(np.int64)
    quotient = np.fix(x / y).astype(np.int64)
    wide = [
        a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, ~a, -a, a >> 3, a << 2, np.minimum(a, b),
        np.maximum(np.maximum(a, b), 5), abs(a), a * 8 + 2, np.minimum(a, b), (a > b) + 0,
        np.array([int(v).bit_count() for v in x.view(np.uint32)]),
        np.array([32 - int(v).bit_length() for v in x.view(np.uint32)]), quotient, a - quotient * b,
        -(-a // b), a // 16, a % 16, a, 7 - a, a * 0, a * 0, a * b >> 32, a * b,
        np.array([int(f"{int(v):032b}"[::-1], 2) for v in x.view(np.uint32)]), (a >= 0) + 1,
    ]  # fmt: skip
    expected = np.array(wide).astype(np.uint32).view(np.int32)
    keep = [number for number in range(33) if number != 22]  # a + b - 1 of cdiv may wrap
    assert np.array_equal(out[keep], expected[keep])


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_float_operators_round_once(name: str) -> None:
    dtype = getattr(lw, name)

    @lw.kernel
    def run(x: lw.Ptr[dtype], y: lw.Ptr[dtype], out: lw.Ptr[dtype]):
        i = lw.thread_idx.x
        a, b = x[i], y[i]
        found = [a + b, a - b, a * b, -a, a * 0.5, lw.fma(a, b, a), lw.max(a, b), lw.min(a, 0.25), lw.abs(a)]
        found += [a if a < b else b, lw.where(a != b, a, 1.0)]
        for number, value in enumerate(found):
            out[number * 32 + i] = value

    x, y = (RNG.normal(size=32).astype(dtype.dtype) for _ in range(2))
    out = launch(run, x, y, np.zeros((11, 32), dtype.dtype))
    a, b = x.astype(np.longdouble), y.astype(np.longdouble)
    exact = [a + b, a - b, a * b, -a, a / 2, a * b + a, np.maximum(a, b), np.minimum(a, 0.25), abs(a)]
    expected = np.array([*exact, np.minimum(a, b), a])
    if name == "f64":
        expected[5] = [float(np.longdouble(p) * q + p) for p, q in zip(x, y, strict=True)]
        assert np.array_equal(np.delete(out, 5, 0), np.delete(expected, 5, 0).astype(np.float64))
        assert np.allclose(out[5], expected[5].astype(float), rtol=1e-15)
        return
    assert np.array_equal(out, expected.astype(np.float64).astype(dtype.dtype))


def test_conversions() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.f32], out: lw.Ptr[lw.i32]):
        i = lw.thread_idx.x
        v = x[i]
        n = v.to(lw.i32)
        found = [
            n, v.to(lw.i32, rounding="rm"), v.to(lw.i32, rounding="rn"), v.to(lw.i64).to(lw.i32),
            lw.bitcast(v, lw.i32), lw.bitcast(v.to(lw.f16).to(lw.f32), lw.i32),
            lw.bitcast(v.to(lw.bf16).to(lw.f32), lw.i32), lw.bitcast(v.to(lw.f64).to(lw.f32), lw.i32),
            n.to(lw.i8).to(lw.i32), n.to(lw.u8).to(lw.i32), n.to(lw.u16).to(lw.i32), n.to(lw.i16).to(lw.i32),
            lw.bitcast(n.to(lw.f32), lw.i32), lw.bitcast(n.to(lw.f16).to(lw.f32), lw.i32),
            lw.bitcast(lw.pack(v.to(lw.f16), lw.f16(1.0)), lw.i32), (v > 0).to(lw.i32),
            lw.bitcast(v.to(lw.tf32).to(lw.f32), lw.i32),
            lw.bitcast(lw.unpack(lw.pack(v.to(lw.bf16), v.to(lw.bf16)))[1].to(lw.f32), lw.i32),
            lw.bitcast(lw.floor(v), lw.i32), lw.bitcast(lw.round(v), lw.i32), lw.isnan(v).to(lw.i32),
        ]  # fmt: skip
        for number, value in enumerate(found):
            out[number * 32 + i] = value

    x = (RNG.normal(size=32) * 300).astype(np.float32)
    out = launch(run, x, np.zeros((21, 32), np.int32))
    n = np.trunc(x).astype(np.int32)
    half = x.astype(np.float16)
    brain = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    tf32 = ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.int32)
    expected = [
        n, np.floor(x), np.rint(x), n, x.view(np.int32), half.astype(np.float32).view(np.int32),
        brain.view(np.int32), x.view(np.int32), n.astype(np.int8), n.astype(np.uint8), n.astype(np.uint16),
        n.astype(np.int16), n.astype(np.float32).view(np.int32),
        n.astype(np.float16).astype(np.float32).view(np.int32),
        (half.view(np.uint16) | np.uint32(0x3C000000)).view(np.int32), x > 0, tf32, brain.view(np.int32),
        np.floor(x).view(np.int32), np.rint(x).view(np.int32), x != x,
    ]  # fmt: skip
    for number, each in enumerate(expected):
        assert np.array_equal(out[number], each.astype(np.int32)), number


def test_mathematics_is_near() -> None:
    names = [
        "sqrt",
        "rsqrt",
        "rcp",
        "exp2",
        "exp",
        "log2",
        "log",
        "sin",
        "cos",
        "tanh",
        "floor",
        "ceil",
        "trunc",
    ]

    @lw.kernel
    def run(x: lw.Ptr[lw.f32], out: lw.Ptr[lw.f32]):
        i = lw.thread_idx.x
        for number, name in enumerate(names):
            out[number * 32 + i] = getattr(lw, name)(x[i])

    x = RNG.uniform(0.1, 3.0, 32).astype(np.float32)
    out = launch(run, x, np.zeros((len(names), 32), np.float32))
    wide = x.astype(np.float64)
    mine = {"rsqrt": 1 / np.sqrt(wide), "rcp": 1 / wide}
    for number, name in enumerate(names):
        assert np.allclose(
            out[number], mine[name] if name in mine else getattr(np, name)(wide), 2e-3, 2e-6
        ), name
    assert np.array_equal(out[0], np.sqrt(x)) and np.array_equal(out[2], np.float32(1) / x)


def test_lanes_together() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.i32], out: lw.Ptr[lw.i32]):
        i = lw.lane_id()
        v = x[i]
        wide = lw.shfl_xor_sync(v.to(lw.i64) * 3, 1).to(lw.i32)
        same, all_same = lw.match_all_sync(v)
        found = [
            lw.shfl_sync(v, 5), lw.shfl_up_sync(v, 2), lw.shfl_down_sync(v, 3, width=8),
            lw.shfl_xor_sync(v, 6), wide, lw.shfl_sync(v.to(lw.f32), i ^ 1).to(lw.i32), lw.reduce_add_sync(v),
            lw.reduce_max_sync(v),
            lw.ballot_sync(v > 3).to(lw.i32), lw.all_sync(v >= 0).to(lw.i32), lw.any_sync(v > 100).to(lw.i32),
            lw.match_any_sync(v).to(lw.i32), same.to(lw.i32) + all_same.to(lw.i32),
            lw.shfl_sync(v.to(lw.i16), 3).to(lw.i32), lw.activemask().to(lw.i32),
            lw.shfl_sync(v > 3, 7).to(lw.i32),
        ]  # fmt: skip
        for number, value in enumerate(found):
            out[number * 32 + i] = value

    x = RNG.integers(0, 8, 32).astype(np.int32)
    out = launch(run, x, np.zeros((16, 32), np.int32))
    lane = np.arange(32)
    ballot = sum(1 << k for k in range(32) if x[k] > 3)
    expected = [
        np.full(32, x[5]), np.where(lane < 2, x, x[lane - 2]), np.where(lane % 8 > 4, x, x[(lane + 3) % 32]),
        x[lane ^ 6], x[lane ^ 1] * 3, x[lane ^ 1], np.full(32, x.sum()), np.full(32, x.max()),
        np.full(32, ballot), np.full(32, 1), np.full(32, 0),
        [sum(1 << k for k in range(32) if x[k] == v) for v in x], np.full(32, 0), np.full(32, x[3]),
        np.full(32, -1), np.full(32, int(x[7] > 3)),
    ]  # fmt: skip
    for number, each in enumerate(expected):
        assert np.array_equal(
            out[number].view(np.uint32), np.array(each).astype(np.int64).astype(np.uint32)
        ), number


def test_atomics_and_named_barriers() -> None:
    @lw.kernel
    def run(counts: lw.Ptr[lw.i32], total: lw.Ptr[lw.f32], flags: lw.Ptr[lw.u32]):
        bins = lw.shared(lw.i32, 8)
        t = lw.thread_idx.x
        if t < 8:
            bins[t] = 0
        lw.syncthreads()
        lw.atomic_add(bins.ptr(t % 8), t)
        lw.barrier(1, 64)
        if t < 8:
            lw.atomic_add(counts + t, bins[t])
            lw.atomic_max(counts + 8 + t, bins[t])
        lw.atomic_add(total, 1.0)
        lw.atomic_or(flags, lw.u32(1) << (t % 32))
        old = lw.atomic_cas(flags + 1, 0, t.to(lw.u32) + 1)
        if old == 0:
            lw.atomic_exch(flags + 2, 77)
        lw.atomic_inc(flags + 3, 9)

    counts, total, flags = np.zeros(16, np.int32), np.zeros(1, np.float32), np.zeros(4, np.uint32)
    run[3, 64](counts, total, flags)
    taken_by_ptxas(run)
    bins = np.bincount(np.arange(64) % 8, np.arange(64)).astype(int)
    assert counts[:8].tolist() == (3 * bins).tolist() and counts[8:].tolist() == bins.tolist()
    assert (
        total[0] == 192 and flags[0] == 2**32 - 1 and flags[1] > 0 and flags[2] == 77 and flags[3] == 192 % 10
    )


def test_memory_of_every_kind() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.f16, 16], out: lw.Ptr[lw.f16, 16], small: lw.Ptr[lw.i8], wide: lw.Ptr[lw.i64]):
        t = lw.thread_idx.x
        tile = lw.shared(lw.f16, (32, 8), swizzle=lw.Swizzle(2, 3, 2))
        more = lw.dynamic_shared(lw.f32, (32,), offset=64)
        own = lw.local(lw.i32, 4)
        tile.ptr(t, 0).store((x + t * 8).load(8))
        more[t] = t.to(lw.f32)
        for i in lw.range(4):
            own[i] = i * t
        lw.syncthreads()
        other = 31 - t
        values = tile.ptr(other, 0).load(8)
        out.moved(t, 16).store(tuple(reversed(values)), cache="cs")
        small[t] = (small[t].to(lw.i32) + own[t % 4]).to(lw.i8)
        wide[t] = wide[t] * 2 + more[other].to(lw.i64)

    x = RNG.normal(size=(32, 8)).astype(np.float16)
    out = np.zeros((32, 8), np.float16)
    small, wide = np.arange(-16, 16, dtype=np.int8), np.arange(32) * 10**12
    lane = np.arange(32)
    run[1, 32, 64 + 128](x, out, small, wide)
    taken_by_ptxas(run)
    assert np.array_equal(out, x[::-1, ::-1])
    assert np.array_equal(small, np.arange(-16, 16) + lane % 4 * lane)
    assert np.array_equal(wide, lane * 2 * 10**12 + 31 - lane)


def test_array_parameters_and_traced_strides() -> None:
    layout = lw.Layout((4, (2, 4)), (2, (1, 8)))

    @lw.kernel
    def run(x: lw.Array[lw.f32, layout], y: lw.Ptr[lw.f32], n: lw.i32):
        t = lw.thread_idx.x
        rows = lw.tensor(y, ((8, 4), (n, 1)))
        flat = lw.tensor(y + 64, lw.Layout((8, 4), (1, 8)))
        rows[t // 4, t % 4] = x[t % 4, t // 4]
        flat[t] = x[t]
        if lw.arch() == "sm_90":
            y[100] = 1.0

    x = RNG.normal(size=32).astype(np.float32)
    y = np.zeros(128, np.float32)
    run[1, 32](x, y, 5)
    for t in range(32):
        assert y[t // 4 * 5 + t % 4] == x[layout(t % 4, t // 4)] and y[64 + t] == x[layout(t)]
    assert y[100] == 0
    run[1, 32](x, y, 5, arch="sm_90")
    assert y[100] == 1


def test_cp_async_pipeline_with_a_tail() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.f32, 16], out: lw.Ptr[lw.f32], n: lw.i32):
        t = lw.thread_idx.x
        buffer = lw.shared(lw.f32, (2, 32, 4))
        left = lw.max(0, lw.min(16, (n - t * 4) * 4))
        lw.cp_async(buffer.ptr(0, t, 0), x + t * 4, 16, src_bytes=left, l2_bytes=128)
        lw.cp_async_commit()
        lw.cp_async(buffer.ptr(1, t, 0), x + t * 4, 4)
        lw.cp_async_commit()
        lw.cp_async_wait(1)
        for i in range(4):
            out[t * 4 + i] = buffer[0, t, i]
        lw.cp_async_wait()
        out[t * 4] += buffer[1, t, 0]

    x = RNG.normal(size=128).astype(np.float32)
    out = np.zeros(128, np.float32)
    run[1, 32](x, out, 66)
    taken_by_ptxas(run)
    assert "cp.async.cg.shared.global.L2::128B" in run.ptx() and ".version 7.4" in run.ptx()
    expected = np.where(np.arange(128) < 66, x, 0).astype(np.float32)
    expected[::4] += x[::4]
    assert np.array_equal(out, expected)


def test_asm_printf_and_assertions(capsys: pytest.CaptureFixture[str]) -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.u32], limit: lw.i32):
        t = lw.thread_idx.x
        total, carry = lw.asm(
            "{ .reg .b64 w; add.cc.u32 {low}, {a}, {b}; addc.u32 {high}, 0, 0; }",
            low=lw.u32, high=lw.u32, a=x[t], b=lw.u32(0xFFFFFFFF),
        )  # fmt: skip
        x[t] = total + carry
        if t == 3:
            lw.printf("lane %d has %u, %.2f\n", t, x[t], t.to(lw.f32) / 2.0)
        assert t < limit, "too many threads"

    x = np.arange(1, 33, dtype=np.uint32)
    run[1, 32](x, 32)
    taken_by_ptxas(run)
    assert np.array_equal(x, np.arange(1, 33))
    assert capsys.readouterr().out == "lane 3 has 4, 1.50\n"
    with pytest.raises(lw.LanewiseError, match="too many threads"):
        run[1, 32](x, 5)
