"""fp8, fp6 and fp4 in kernels: conversions held against the formats' own tables, packed loads, archs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lang.small_float_kernels import SMALL, kernels
from ptxas import assemble

FORMATS = pytest.mark.parametrize("element", list(SMALL), ids=lambda each: each.name)
rng = np.random.default_rng(3)


def encoded(element: Any, values: Any) -> Any:
    """The words of numbers as PTX's cvt gives them: it saturates; NaN is NaN, or the largest without one."""
    nan = np.isnan(values)
    words = element.encode(np.where(nan, 0, values), saturate=True)
    word = {"e4m3": 0x7F, "e5m2": 0x7F, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x7}[element.name]
    return np.where(nan, np.uint8(word), words)


@FORMATS
def test_conversions_to_a_small_float(element: Any) -> None:
    arch, pair = SMALL[element]
    largest = float(element.max)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, largest * 1.07, 1e30, 1e-30, 2.0**-10]
    spread = rng.normal(size=4096 - 512 - len(special)) * 2.0 ** rng.integers(
        -12, 10, 4096 - 512 - len(special)
    )
    exact = element.decode(np.arange(1 << element.bits))
    exact = exact[np.isfinite(exact)]
    halves = (exact[:, None] + exact[None, : 512 // len(exact) + 1]).ravel()[:512] / 2
    x = np.concatenate([special, halves, spread]).astype(np.float32)
    x = np.resize(x, 4096)
    one, four = np.zeros(1024, element.dtype), np.zeros(4096, element.dtype)
    two = np.zeros(2048, pair.dtype)
    kernels(element, pair)[0][1024 // 32, 32](x, one, four, two, arch=arch)
    wanted = encoded(element, x)
    assert np.array_equal(element.to_bits(four), wanted)
    assert np.array_equal(element.to_bits(one), wanted[:1024])
    shift = pair.bits // 2
    assert np.array_equal(two, wanted[0::2].astype(pair.dtype) | wanted[1::2].astype(pair.dtype) << shift)


@FORMATS
def test_conversions_from_a_small_float(element: Any) -> None:
    arch, pair = SMALL[element]
    words = np.resize(np.arange(1 << element.bits), 256).astype(np.uint8)
    right = element.decode(words)
    one, four, ints = np.zeros(256, np.float32), np.zeros(256, np.float16), np.zeros(256, np.int32)
    _, wide, pairs = kernels(element, pair)
    wide[1, 64](element.from_bits(words), one, four, ints, arch=arch)
    assert np.array_equal(one, right, equal_nan=True) and np.array_equal(four, right, equal_nan=True)
    finite = np.isfinite(right)
    assert np.array_equal(ints[finite], np.trunc(right[finite]))
    shift = pair.bits // 2
    other = rng.permutation(words)
    both, low, high = np.zeros(256, np.uint32), np.zeros(256, np.float16), np.zeros(256, np.float16)
    packed = words.astype(pair.dtype) | other.astype(pair.dtype) << shift
    pairs[1, 256](packed, both, low, high, arch=arch)
    for found in (low, (both & 0xFFFF).astype(np.uint16).view(np.float16)):
        assert np.array_equal(found, right, equal_nan=True)
    for found in (high, (both >> 16).astype(np.uint16).view(np.float16)):
        assert np.array_equal(found, element.decode(other), equal_nan=True)


def test_scales() -> None:
    @lw.kernel
    def scales(x: lw.Ptr[lw.f32], down: lw.Ptr[lw.ue8m0], up: lw.Ptr[lw.ue8m0], back: lw.Ptr[lw.f32]):
        i = lw.thread_idx.x
        down[i], up[i] = x[i].to(lw.ue8m0), x[i].to(lw.ue8m0, rounding="rp", saturate=True)
        back[i] = down[i].to(lw.f32)

    x = np.array([1.0, 1.5, 2.0, 3.9, 2.0**-100, 1e20, 0.7] * 5, np.float32)[:32]
    down, up, back = np.zeros(32, lw.ue8m0.dtype), np.zeros(32, lw.ue8m0.dtype), np.zeros(32, np.float32)
    scales[1, 32](x, down, up, back, arch="sm_100a")
    assert np.array_equal(back, 2.0 ** np.floor(np.log2(x)))
    assert np.array_equal(up.astype(np.float32), (2.0 ** np.ceil(np.log2(x))).astype(np.float32))


def test_neighbours_share_an_instruction() -> None:
    _, wide, _ = kernels(lw.e4m3, lw.e4m3x2)
    text = wide.ptx("sm_90")
    loaded = text[text.index("ld.global.b32") :]
    assert loaded.count("cvt.rn.f16x2.e4m3x2") == 2


@pytest.mark.parametrize("arch", ["sm_89", "sm_120a"])
def test_ptxas_takes_them(arch: str) -> None:
    @lw.kernel
    def every(x: lw.Ptr[lw.f32], bytes: lw.Ptr[lw.u8], y: lw.Ptr[lw.f16x2]):
        for element, (needs, pair) in SMALL.items():
            if needs == "sm_90" or arch != "sm_89":
                bytes.to(element)[0] = x[0].to(element)
                bytes.to(pair)[1] = lw.pack(x[1], x[2], element)
                x[3] = bytes.to(element)[4].to(lw.f32) + bytes.to(element).load(4)[3].to(lw.f32)
                y[0] = bytes.to(pair)[2].to(lw.f16x2)
                if element not in (lw.e2m3, lw.e3m2):
                    bytes.to(pair)[3] = y[1].to(pair)

    assert assemble(every.ptx(arch), arch) == []


def test_what_an_arch_lacks_is_named() -> None:
    @lw.kernel
    def eight(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.e4m3]):
        y[0] = x[0].to(lw.e4m3)

    @lw.kernel
    def four(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.e2m1]):
        y[0] = x[0].to(lw.e2m1)

    @lw.kernel
    def towards_zero(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.e5m2]):
        y[0] = x[0].to(lw.e5m2, rounding="rz")

    with pytest.raises(lw.KernelError, match="cvt of e4m3 needs sm_89; the kernel is traced for sm_80"):
        eight.ptx("sm_80")
    assert ".target sm_89" in eight.ptx() and ".target sm_100a" in four.ptx()
    with pytest.raises(lw.KernelError, match=r"cvt of e2m1 exists on sm_100a, .* only; .* for sm_90"):
        four.ptx("sm_90")
    with pytest.raises(lw.KernelError, match="to e5m2 PTX rounds to nearest even, rn; not rz"):
        towards_zero.ptx("sm_90")
