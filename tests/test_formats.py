"""Every format against NumPy and ml_dtypes: all bit patterns of the narrow ones, random ones of the wide."""

import copy
import dataclasses
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format, format_of
from lanewise.isa.operands import RAW
from lanewise.lang.trace import types
from lanewise.lang.trace.types import i64, u64

pytestmark = pytest.mark.filterwarnings(
    "ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning"
)

NARROW = [each for each in FORMATS.values() if each.bits <= 16]
NARROW_FLOATS = [each for each in NARROW if each.kind == "float"]
FLOATS = [each for each in FORMATS.values() if each.kind == "float"]
INTEGERS = [each for each in FORMATS.values() if each.kind != "float"]

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "b1": np.bool_,
    "s32": np.int32,
}


def every_word(fmt: Format) -> np.ndarray:
    return np.arange(1 << fmt.bits, dtype=np.uint32).astype(fmt.word_dtype)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal values, NaN with NaN, and zeros of the same sign."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return bool(np.array_equal(left, right, equal_nan=True)) and bool(
        np.array_equal(np.signbit(left) & ~np.isnan(left), np.signbit(right) & ~np.isnan(right))
    )


@pytest.mark.parametrize("name", FORMATS)
def test_dtype_is_the_documented_one(name: str) -> None:
    assert FORMATS[name].dtype == np.dtype(DTYPES[name])


@pytest.mark.parametrize("fmt", NARROW, ids=str)
def test_decode_agrees_with_the_dtype_on_every_word(fmt: Format) -> None:
    words = every_word(fmt)
    if fmt.name == "ue4m3":  # an e4m3 whose sign bit is ignored
        expected = (words & 0x7F).view(fmt.dtype).astype(np.float64)
    else:
        expected = words.view(fmt.dtype).astype(np.float64)
    assert same(fmt.decode(words), expected)


@pytest.mark.parametrize("fmt", NARROW, ids=str)
def test_encode_inverts_decode_on_every_number(fmt: Format) -> None:
    words = every_word(fmt)
    numbers = fmt.decode(words)
    kept = ~np.isnan(numbers.astype(float)) & ((words < 0x80) if fmt.name == "ue4m3" else True)
    assert np.array_equal(fmt.encode(numbers[kept]), words[kept])


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_to_bits_inverts_from_bits(fmt: Format) -> None:
    words = every_word(fmt) if fmt.bits <= 16 else np.arange(0, 1 << 31, 7919, dtype=fmt.word_dtype)
    array = fmt.from_bits(words)
    assert array.dtype == fmt.dtype
    assert np.array_equal(fmt.to_bits(array), words)


@pytest.mark.parametrize("fmt", [each for each in NARROW_FLOATS if each.signed and each.has_nan], ids=str)
def test_encode_rounds_as_the_dtype_does(fmt: Format) -> None:
    rng = np.random.default_rng(5)
    words = every_word(fmt)
    numbers = np.sort(fmt.decode(words)[np.isfinite(fmt.decode(words))])
    ties = (numbers[1:] + numbers[:-1]) / 2
    around = np.concatenate([ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])
    wild = rng.uniform(-2 * fmt.max, 2 * fmt.max, 1000)
    tiny = rng.uniform(-4, 4, 1000) * fmt.smallest_subnormal
    # ml_dtypes rounds float64 to bfloat16 through float32, so exact ties and float32 inputs only.
    values = np.concatenate([ties, around, wild, tiny]).astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        expected = values.astype(fmt.dtype)
    assert same(fmt.decode(fmt.encode(values)), expected.astype(np.float64))


@pytest.mark.parametrize("fmt", [each for each in NARROW_FLOATS if not each.has_nan], ids=str)
def test_formats_without_nan_saturate_on_request_only(fmt: Format) -> None:
    values = np.linspace(-2 * float(fmt.max), 2 * float(fmt.max), 4001)
    expected = values.astype(fmt.dtype).astype(np.float64)  # ml_dtypes saturates these
    assert same(fmt.decode(fmt.encode(values, saturate=True)), expected)
    for value in (2 * fmt.max, -2 * fmt.max, np.inf, np.nan):
        with pytest.raises(LanewiseError, match="not representable"):
            fmt.encode([value])


def test_ue8m0_rounds_as_ml_dtypes() -> None:
    fmt = FORMATS["ue8m0"]
    values = np.ldexp(np.random.default_rng(1).uniform(1, 2, 4000), np.arange(4000) % 250 - 126)
    values = np.concatenate([values, [1.5, 3.0, 6.0, 0.0, -1.0, np.nan, 2.0**-127]]).astype(np.float32)
    assert same(fmt.decode(fmt.encode(values)), values.astype(fmt.dtype).astype(np.float64))


def test_wide_floats_agree_with_numpy() -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(0, 1 << 64, 20000, dtype=np.uint64)
    f64, f32, tf32 = FORMATS["f64"], FORMATS["f32"], FORMATS["tf32"]
    assert same(f64.decode(words), words.view(np.float64))
    single = (words >> 32).astype(np.uint32)
    assert same(f32.decode(single), single.view(np.float32).astype(np.float64))
    assert same(tf32.decode(single), (single & 0xFFFFE000).view(np.float32).astype(np.float64))
    values = single.view(np.float32).astype(np.float64) * rng.uniform(0.5, 2.0, single.size)
    with np.errstate(over="ignore", under="ignore"):
        assert same(f32.decode(f32.encode(values)), values.astype(np.float32).astype(np.float64))
    assert np.array_equal(f64.decode(f64.encode(values)), values, equal_nan=True)


def test_tf32_rounds_to_nearest_even_with_ten_mantissa_bits() -> None:
    tf32 = FORMATS["tf32"]
    step = 2.0**-10
    values = [1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2.0**-40, -(1 + step / 4)]
    assert tf32.decode(tf32.encode(values)).tolist() == [1.0, 1 + 2 * step, 1 + step, -1.0]
    assert not (tf32.encode(np.random.default_rng(0).normal(size=100)) & 0x1FFF).any()


@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_limits_are_the_numbers_at_the_ends(fmt: Format) -> None:
    assert fmt.decode(fmt.encode([fmt.max, fmt.smallest_subnormal])).tolist() == [
        fmt.max,
        fmt.smallest_subnormal,
    ]
    assert np.frexp(fmt.max)[1] - 1 == fmt.emax
    if fmt.bits <= 16:
        numbers = fmt.decode(every_word(fmt))
        finite = numbers[np.isfinite(numbers)]
        assert finite.max() == fmt.max and finite.min() == fmt.min
        assert finite[finite > 0].min() == fmt.smallest_subnormal
        assert np.isinf(numbers).any() == fmt.has_inf and np.isnan(numbers).any() == fmt.has_nan


@pytest.mark.parametrize(
    ("name", "emin"),
    [("f16", -14), ("e5m2", -14), ("bf16", -126), ("tf32", -126), ("f32", -126), ("e4m3", -6)],
)
def test_emin_is_the_exponent_subnormals_share(name: str, emin: int) -> None:
    assert FORMATS[name].emin == emin


@pytest.mark.parametrize("fmt", INTEGERS, ids=str)
def test_integers_must_fit_or_saturate(fmt: Format) -> None:
    low, high = int(fmt.min), int(fmt.max)
    assert fmt.decode(fmt.encode([low, high])).tolist() == [low, high]
    assert fmt.decode(fmt.encode([low - 1, high + 1], saturate=True)).tolist() == [low, high]
    for wrong in ([high + 1], [low - 1], [0.5]):
        with pytest.raises(LanewiseError):
            fmt.encode(wrong)


def test_saturate_replaces_infinities() -> None:
    for name in ("f16", "bf16", "e5m2", "f32", "f64", "tf32", "e4m3"):
        fmt = FORMATS[name]
        assert fmt.decode(fmt.encode([np.inf, -np.inf], saturate=True)).tolist() == [fmt.max, -fmt.max]


def test_scalars_and_empty_arrays() -> None:
    assert FORMATS["f16"].decode(0x3C00) == 1.0
    assert FORMATS["f16"].encode(1.0).shape == ()
    assert FORMATS["e4m3"].from_bits([]).shape == (0,)
    assert FORMATS["s4"].array(np.zeros((2, 0, 3))).shape == (2, 0, 3)


def test_bad_words_and_dtypes_are_named() -> None:
    with pytest.raises(LanewiseError, match=r"below 2\*\*4"):
        FORMATS["e2m1"].decode([16])
    with pytest.raises(LanewiseError, match="unsigned"):
        FORMATS["f16"].decode([1.5])
    with pytest.raises(LanewiseError, match="float16, not float64"):
        FORMATS["f16"].to_bits(np.zeros(3))
    with pytest.raises(LanewiseError, match="real numbers"):
        FORMATS["f16"].encode(["x"])


@pytest.mark.parametrize(
    "given",
    [1j, None, "1.5", [None], np.array(1, "M8[s]"), [[1], [1, 2]], [10**400], np.zeros(2, "V4")],
    ids=repr,
)
@pytest.mark.parametrize("name", ["f16", "s8"])
def test_what_is_no_real_number_is_refused_and_not_cast(name: str, given: object) -> None:
    with pytest.raises(LanewiseError):
        FORMATS[name].encode(given)  # type: ignore[arg-type]  # the point of the test


def test_any_real_dtype_is_encoded() -> None:
    for dtype in (
        np.longdouble,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.int4,
        ">f4",
        object,
    ):
        assert FORMATS["f16"].encode(np.array([1, 2]).astype(dtype)).tolist() == [0x3C00, 0x4000]


def test_rows_of_unequal_length_are_no_array() -> None:
    for ask in (FORMATS["f16"].decode, FORMATS["f16"].to_bits, FORMATS["f16"].from_bits):
        with pytest.raises(LanewiseError, match="not an array"):
            ask([[1], [1, 2]])


def test_saturate_is_not_advised_for_nan() -> None:
    with pytest.raises(LanewiseError, match="has no NaN") as error:
        FORMATS["e2m1"].encode([np.nan], saturate=True)
    assert "saturate" not in str(error.value)


@pytest.mark.parametrize("given", [None, 3.5, [1], object()], ids=lambda given: type(given).__name__)
def test_what_names_no_format_is_refused(given: object) -> None:
    with pytest.raises(LanewiseError, match="the formats are"):
        format_of(given)  # type: ignore[arg-type]  # the point of the test


def test_format_of_takes_names_dtypes_and_formats() -> None:
    for name, fmt in FORMATS.items():
        assert format_of(name) is fmt and format_of(fmt) is fmt
        if name not in ("tf32", "ue4m3"):
            assert format_of(fmt.dtype) is fmt
    with pytest.raises(LanewiseError, match="the formats are"):
        format_of("f17")
    with pytest.raises(LanewiseError, match="the formats are"):
        format_of(np.complex64)


def nearest_word(fmt: Format, value: Fraction) -> int:
    """The word of the number nearest to a value, ties to even words, by exact arithmetic."""
    words = every_word(fmt) if fmt.bits <= 8 else words_near(fmt, float(value))
    numbers = [float(number) for number in fmt.decode(words)]
    finite = [
        (abs(Fraction(x) - value), int(word) >> fmt.ignored_low_bits & 1, int(word))
        for x, word in zip(numbers, words, strict=True)
        if np.isfinite(x)
    ]
    return min(finite)[2]


def words_near(fmt: Format, value: float) -> np.ndarray:
    """The word of a number and the words beside it."""
    step = 1 << fmt.ignored_low_bits
    return (int(fmt.encode(value)) + step * np.arange(-1, 2)).astype(fmt.word_dtype)


def values_around_ties(fmt: Format, count: int) -> list[Fraction]:
    """Numbers that are just beside the middle between two neighbours, nearer than float64 can tell."""
    rng = np.random.default_rng(1)
    top = min(62, fmt.emax)
    result = []
    for power in rng.integers(top - 3, top, count) if fmt.mantissa_bits else [top] * count:
        significand = int(rng.integers(1 << fmt.mantissa_bits, 2 << fmt.mantissa_bits))
        tie = Fraction(2 * significand + 1) * Fraction(2) ** int(power - fmt.mantissa_bits - 1)
        beside = int(rng.integers(-1, 2)) * (1 if top == 62 else Fraction(1, 2**58))
        result.append((tie + beside) * (1 if not fmt.signed else int(rng.choice([-1, 1]))))
    return [value for value in result if abs(value) <= fmt.max]


@pytest.mark.parametrize("fmt", [fmt for fmt in FLOATS if fmt.bits < 64 and fmt.mantissa_bits], ids=str)
def test_numbers_of_any_type_are_rounded_once(fmt: Format) -> None:
    values = values_around_ties(fmt, 200)
    expected = [nearest_word(fmt, value) for value in values]
    assert len(values) > 50 and fmt.encode(np.array(values, object)).tolist() == expected
    if all(value.denominator == 1 for value in values):
        integers = np.array([int(value) for value in values], np.int64)
        assert fmt.encode(integers).tolist() == expected
        positive = [nearest_word(fmt, 2 * abs(value)) for value in values]
        assert fmt.encode(2 * abs(integers).astype(np.uint64)).tolist() == positive
    if np.finfo(np.longdouble).nmant >= 63:
        wide = np.array([np.longdouble(value.numerator) / value.denominator for value in values])
        exact = [nearest_word(fmt, Fraction(*number.as_integer_ratio())) for number in wide]
        assert fmt.encode(wide).tolist() == exact


def test_a_large_integer_is_rounded_once() -> None:
    tie = 2**62 + 2**38
    assert FORMATS["f32"].array(np.array([tie + 1, -tie - 1, tie])).tolist() == [
        2.0**62 + 2**39,
        -(2.0**62) - 2**39,
        2.0**62,
    ]
    assert FORMATS["f32"].array(np.array([2 * tie + 1], np.uint64)).tolist() == [2.0**63 + 2**40]
    assert FORMATS["tf32"].array(np.array([2**62 + 2**51 + 1])).tolist() == [2.0**62 + 2**52]
    assert FORMATS["ue8m0"].array(np.array([2**62 + 2**61 + 1])).astype(float).tolist() == [2.0**63]


@pytest.mark.parametrize("name", ["s64", "u64"])
def test_integers_of_64_bits_are_exact(name: str) -> None:
    fmt = {"s64": i64, "u64": u64}[name]
    ends = [fmt.min, fmt.max, 5]
    assert fmt.array(np.array(ends, dtype=fmt.dtype)).tolist() == ends
    assert fmt.array(np.array(ends, dtype=object)).tolist() == ends
    assert fmt.array([-np.inf, 2.0**70], saturate=True).tolist() == ends[:2]
    with pytest.raises(LanewiseError, match="pass saturate=True"):
        fmt.array([2.0**64])


EVERY_FORMAT = [*FORMATS.values(), *RAW.values(), *(x for x in vars(types).values() if isinstance(x, Format))]


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=str)
def test_copies_and_pickles_are_the_format_itself(fmt: Format) -> None:
    assert copy.copy(fmt) is copy.deepcopy([fmt])[0] is fmt
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(fmt, protocol)) is fmt


@lw.kernel
def through_shared(T: lw.Constexpr, x: lw.Ptr[lw.f16], y: lw.Ptr[lw.f16]):  # type: ignore[no-untyped-def]  # a kernel returns nothing
    tile = lw.shared(T, (32,))
    i = lw.thread_idx.x
    tile[i] = x[i]
    y[i] = tile[i]


def test_a_copied_format_is_the_same_constant_of_a_kernel() -> None:
    x, y = np.arange(32, dtype=np.float16), np.zeros(32, np.float16)
    through_shared[1, 32](pickle.loads(pickle.dumps(FORMATS["f16"])), x, y)
    assert np.array_equal(x, y)


def test_a_format_is_made_once() -> None:
    made = Format("e1m2", 4, "float", "uint8", exponent_bits=1, mantissa_bits=2)
    assert dataclasses.replace(made, name="other") is not made
    assert dataclasses.replace(made) is made is copy.deepcopy(made)
    assert (
        made.encode([1.0]).tolist() == Format("e1m2", 4, "float", "uint8", True, 1, 2).encode([1.0]).tolist()
    )
