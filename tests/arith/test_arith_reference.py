"""The specification on sums worked out by hand: alignment, truncation, roundings, zeros, specials."""

import math
from fractions import Fraction

import numpy as np
import pytest

from lanewise.arith import model_of
from lanewise.arith.reference import fused_multiply_add, multiply, nearest, truncate
from lanewise.formats import FORMATS, f16, f32, f64
from lanewise.isa import instruction

MMA = "mma.sync.aligned."
F16_F32 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"
F16_F16 = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
BF16 = MMA + "m16n8k8.row.col.f32.bf16.bf16.f32"
FP8 = MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32"


def dot(text: str, arch: str, pairs: list[tuple[float, float]], c: float = 0.0) -> float:
    """One element of D, from products at the front of K; the rest of K is zeros."""
    each = instruction(text)
    model = model_of(each, arch)
    assert model is not None
    a, b = np.zeros((1, each.k)), np.zeros((each.k, 1))
    for k, (x, y) in enumerate(pairs):
        a[0, k], b[k, 0] = x, y
    words_c = np.array([[c]]).astype(model.c.dtype)
    return float(multiply(model, model.a.array(a), model.b.array(b), words_c)[0, 0])


def test_a_term_is_cut_off_below_e_max_minus_f() -> None:
    # e_max = 0: sm_80 keeps multiples of 2^-24, sm_90 of 2^-25, sm_70's m8n8k4 of 2^-23.
    for text, arch, kept in [
        (F16_F32, "sm_80", 24),
        (F16_F32, "sm_90", 25),
        (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_70", 23),
    ]:
        for bits in (kept, kept + 1):
            left = dot(text, arch, [(1.0, 1.0), (2.0**-14, 2.0 ** (14 - bits)), (-1.0, 1.0)])
            assert left == (2.0**-bits if bits <= kept else 0.0), (arch, bits)


def test_truncation_is_toward_zero_for_either_sign() -> None:
    # 1.5 units each: both keep one, and neither floor nor rounding gives that.
    unit = 2.0**-25
    for sign in (1.0, -1.0):
        got = dot(F16_F32, "sm_90", [(1.0, 1.0), (sign * 1.5 * 2.0**-12, 2.0**-13), (-1.0, 1.0)])
        assert got == sign * unit


def test_the_exponent_of_a_product_is_not_renormalised() -> None:
    # 1.5·1.5 = 2.25 counts with exponent 0, so 2^-25 beside it survives.
    assert dot(F16_F32, "sm_90", [(1.5, 1.5), (2.0**-12, 2.0**-13), (-1.5, 1.5)]) == 2.0**-25


def test_subnormals_count_with_emin() -> None:
    # 2^-24 · 2^10 has exponent -14 + 10 = -4, not -14: units are 2^-29, and 2^-30 is lost beside it.
    tiny = 2.0**-24
    assert dot(F16_F32, "sm_90", [(tiny, 2.0**10), (2.0**-14, 2.0**-15), (-tiny, 2.0**10)]) == 2.0**-29
    assert dot(F16_F32, "sm_90", [(tiny, 2.0**10), (2.0**-14, 2.0**-16), (-tiny, 2.0**10)]) == 0.0


def test_c_is_aligned_like_a_product() -> None:
    assert dot(F16_F32, "sm_90", [(2.0**-13, 2.0**-12)], c=1.0) == 1.0  # 1 + 2^-25 truncates to f32
    assert dot(F16_F32, "sm_90", [(2.0**-13, 2.0**-12), (-1.0, 1.0)], c=1.0) == 2.0**-25
    assert dot(F16_F32, "sm_90", [(2.0**-13, 2.0**-13), (-1.0, 1.0)], c=1.0) == 0.0


def test_blocks_round_one_after_the_other() -> None:
    # sm_80 takes K = 16 in two blocks: the first rounds 1 + 2^-24 away, sm_90 keeps it until 1 is taken away.
    pairs = [(1.0, 1.0), (2.0**-12, 2.0**-12)] + [(0.0, 0.0)] * 6 + [(-1.0, 1.0)]
    assert dot(F16_F32, "sm_80", pairs) == 0.0
    assert dot(F16_F32, "sm_90", pairs) == 2.0**-24


def test_f32_sums_truncate_and_f16_sums_round_to_even() -> None:
    assert dot(F16_F32, "sm_90", [(1.0, 1.0), (2.0**-12, 1.5 * 2.0**-12)]) == 1.0
    assert dot(F16_F16, "sm_90", [(1.0, 1.0), (2.0**-11, 1.0)]) == 1.0
    assert dot(F16_F16, "sm_90", [(1.0, 1.0), (2.0**-11, 1.0), (2.0**-12, 2.0**-11)]) == 1.0 + 2.0**-10
    assert dot(F16_F16, "sm_90", [(1.0, 1.0), (3 * 2.0**-11, 1.0)]) == 1.0 + 2.0**-9


def test_overflow_is_infinite_though_sums_truncate() -> None:
    assert dot(BF16, "sm_90", [(2.0**127, 1.0)], c=2.0**127) == math.inf
    assert dot(BF16, "sm_90", [(-(2.0**127), 1.0)], c=-(2.0**127)) == -math.inf
    assert dot(BF16, "sm_90", [(2.0**127, 1.0)], c=2.0**127 - 2.0**103) == float(f32.max)
    assert dot(F16_F16, "sm_90", [(256.0, 256.0)]) == math.inf


def test_subnormal_results_are_kept() -> None:
    assert dot(BF16, "sm_90", [(2.0**-70, 2.0**-79)]) == 2.0**-149
    assert dot(BF16, "sm_90", [(2.0**-70, 2.0**-80)]) == 0.0
    assert dot(F16_F16, "sm_90", [(2.0**-12, 2.0**-12)]) == 2.0**-24


@pytest.mark.parametrize(
    ("text", "pairs", "c"),
    [
        (F16_F32, [(-0.0, 1.0)], -0.0),
        (F16_F32, [(1.0, 1.0), (-1.0, 1.0)], 0.0),
        (F16_F16, [(-0.0, 1.0)], -0.0),
        (F16_F16, [(1.0, 1.0), (-1.0, 1.0)], 0.0),
        (F16_F16, [(-(2.0**-14), 2.0**-12)], 0.0),
        (BF16, [(-(2.0**-80), 2.0**-80)], 0.0),
    ],
)
def test_a_zero_result_is_plus_zero(text: str, pairs: list[tuple[float, float]], c: float) -> None:
    got = dot(text, "sm_90", pairs, c)
    assert got == 0.0 and math.copysign(1.0, got) == 1.0


def test_the_fp8_sums_of_ada_keep_thirteen_bits() -> None:
    assert dot(FP8, "sm_89", [(1.0, 1.0), (2.0**-6, 2.0**-7)]) == 1.0 + 2.0**-13
    assert dot(FP8, "sm_89", [(1.0, 1.0), (2.0**-7, 2.0**-7)]) == 1.0
    assert dot(FP8, "sm_120", [(1.0, 1.0), (2.0**-7, 2.0**-7)]) == 1.0 + 2.0**-14


def test_emulated_fp8_adds_c_last_to_nearest() -> None:
    # C takes no part in the alignment on sm_90: 2^-13 meets it in an ordinary addition.
    assert dot(FP8, "sm_90", [(2.0**-6, 2.0**-7)], c=float(2**10)) == 2**10 + 2.0**-13
    assert dot(FP8, "sm_89", [(2.0**-6, 2.0**-7)], c=float(2**10)) == 2**10
    # An addition that rounds to nearest, not toward zero: 2^24 + 3 is halfway.
    assert dot(FP8, "sm_90", [(3.0, 1.0)], c=2.0**24) == 2.0**24 + 4


@pytest.mark.parametrize("text", [F16_F32, F16_F16, BF16])
def test_specials(text: str) -> None:
    inf, nan = math.inf, math.nan
    assert dot(text, "sm_90", [(inf, 2.0)]) == inf
    assert dot(text, "sm_90", [(inf, -2.0), (1.0, 1.0)]) == -inf
    assert dot(text, "sm_90", [(1.0, 1.0)], c=-inf) == -inf
    for pairs, c in [
        ([(inf, 0.0)], 0.0),
        ([(inf, 1.0), (-inf, 1.0)], 0.0),
        ([(inf, 1.0)], -inf),
        ([(nan, 0.0)], 0.0),
    ]:
        assert math.isnan(dot(text, "sm_90", pairs, c))
    assert math.isnan(dot(text, "sm_90", [], nan))


@pytest.mark.parametrize(("name", "bits"), [("f32", 0x7FFFFFFF), ("f16", 0x7FFF)])
def test_every_nan_is_the_same(name: str, bits: int) -> None:
    model = model_of(instruction(MMA + f"m16n8k16.row.col.{name}.f16.f16.{name}"), "sm_90")
    assert model is not None
    c = FORMATS[name].from_bits(FORMATS[name].to_bits(np.full((1, 1), -np.nan, FORMATS[name].dtype)) ^ 5)
    d = multiply(model, np.zeros((1, 16), np.float16), np.zeros((16, 1), np.float16), c)
    assert FORMATS[name].to_bits(d).tolist() == [[bits]]


def test_tf32_drops_its_low_bits_before_anything_else() -> None:
    model = model_of(instruction(MMA + "m16n8k8.row.col.f32.tf32.tf32.f32"), "sm_90")
    assert model is not None
    a = np.zeros((1, 8), np.uint32)
    a[0, 0] = 0x7F800001  # a NaN only in the bits that are dropped
    b = np.zeros((8, 1), np.float32)
    b[0, 0] = 1.0
    assert multiply(model, a.view(np.float32), b)[0, 0] == np.inf
    a[0, 0] = 0x3F801FFF
    assert multiply(model, a.view(np.float32), b)[0, 0] == 1.0


def test_nearest_and_truncate_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    for value in (rng.normal(size=300) * 2.0 ** rng.integers(-160, 128, 300)).tolist():
        with np.errstate(all="ignore"):
            rounded = float(np.float32(value))
            assert nearest(Fraction(value), f32) == rounded
            toward_zero = (
                rounded
                if abs(rounded) <= abs(value)
                else float(np.nextafter(np.float32(rounded), np.float32(0)))
            )
            assert truncate(Fraction(value), 23) == toward_zero
            assert nearest(value, f16) == float(np.float16(np.longdouble(value)))


def test_fma_rounds_once_in_every_mode() -> None:
    x = 1.0 + 2.0**-30
    exact = Fraction(x) * Fraction(x) + Fraction(2.0**-80)
    got = {mode: fused_multiply_add(x, x, 2.0**-80, f64, mode) for mode in ("rn", "rz", "rm", "rp")}
    below = 1.0 + 2.0**-29
    assert got["rz"] == got["rm"] == below and got["rp"] == math.nextafter(below, 2.0)
    assert abs(Fraction(got["rn"]) - exact) <= min(abs(Fraction(got[m]) - exact) for m in got)
    assert math.copysign(1, fused_multiply_add(1.0, 1.0, -1.0, f64, "rm")) == -1.0
    assert math.copysign(1, fused_multiply_add(1.0, 1.0, -1.0, f64, "rn")) == 1.0
    assert fused_multiply_add(2.0**1000, 2.0**1000, -math.inf, f64, "rn") == -math.inf


def test_integers_wrap_or_clamp_once() -> None:
    text = MMA + "m16n8k32.row.col{}.s32.s8.s8.s32"
    a, b = np.full((1, 32), 127, np.int8), np.full((32, 1), 127, np.int8)
    c = np.array([[2**31 - 1]], np.int32)
    wrapped, clamped = (model_of(instruction(text.format(sat)), "sm_90") for sat in ("", ".satfinite"))
    assert wrapped is not None and clamped is not None
    assert multiply(wrapped, a, b, c)[0, 0] == 2**31 - 1 + 32 * 127**2 - 2**32
    assert multiply(clamped, a, b, c)[0, 0] == 2**31 - 1
    b[16:] = -127  # the sum is C: clamping in between would lose it
    assert multiply(clamped, a, b, c)[0, 0] == 2**31 - 1
    assert multiply(clamped, a, -b, np.array([[-(2**31)]], np.int32))[0, 0] == -(2**31)


def test_block_scales_move_exponents_and_nothing_else() -> None:
    text = MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    model = model_of(instruction(text), "sm_120a")
    assert model is not None and model.scale is not None
    one = model.a.array(np.eye(1, 32))
    for e_a, e_b in [(0, 0), (100, -90), (-127, 127), (-127, -127), (127, 127)]:
        scales = [model.scale.array([[2.0**e]]) for e in (e_a, e_b)]
        d = multiply(model, one, one.T, scale_a=scales[0], scale_b=scales[1])
        assert d[0, 0] == (
            math.inf if e_a + e_b >= 128 else np.float32(math.ldexp(1.0, max(e_a + e_b, -1000)))
        )
    nan = model.scale.from_bits([[255]])
    assert np.isnan(multiply(model, one * 0, one.T, scale_a=nan, scale_b=nan)).all()
