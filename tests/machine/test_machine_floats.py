"""Floating-point instructions against exact arithmetic with fractions, and conversions among all formats."""

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from machine.exact import BF16, F16, F32, F64, FMTS, Fmt, decode, encode, operate
from machine.kernels import Case, edges, run_cases

COUNT = 128


def inputs(bits: int, fmt: str, seed: int, places: int = 3) -> dict[int, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {bits: [edges(bits, rng, COUNT, fmt) for _ in range(places)]}


def same(expected: int, found: int, fmt: Fmt, loose_nan: bool = False) -> bool:
    if loose_nan and math.isnan(float(_float(expected, fmt))):
        return math.isnan(float(_float(found, fmt)))
    return expected == found


def _float(word: int, fmt: Fmt) -> float:
    value = decode(word, fmt)
    if isinstance(value, float):
        return value
    return 0.0  # only asked whether it is NaN


def compare(
    cases: list[Case],
    given: dict[int, list[np.ndarray]],
    oracles: list[Callable[..., int]],
    fmt: Fmt,
    loose_nan: bool = False,
) -> None:
    wrong = []
    for case, got, oracle in zip(cases, run_cases(cases, given), oracles, strict=True):
        arrays = [given[bits][place] for place, bits in enumerate(case.sources)]
        for row, found in enumerate(got):
            words = [int(array[row]) for array in arrays]
            expected = oracle(*words)
            if not same(expected, int(found), fmt, loose_nan):
                wrong.append(
                    f"{case.text} {[hex(word) for word in words]}: {int(found):#x}, expected {expected:#x}"
                )
                break
    assert not wrong, "\n".join(wrong)


def flushed(word: int) -> int:
    return word & 0x80000000 if word & 0x7F800000 == 0 else word


def saturated(word: int) -> int:
    value = decode(word, F32)
    if isinstance(value, float) and math.isnan(value):
        return 0
    if value <= 0:
        return 0
    return min(word, 0x3F800000)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_arithmetic_in_every_rounding_mode(name: str) -> None:
    fmt = FMTS[name]
    cases, oracles = [], []
    for operation, count in (("add", 2), ("sub", 2), ("mul", 2), ("div", 2), ("fma", 3)):
        for mode in ("rn", "rz", "rm", "rp"):
            cases.append(Case(f"{operation}.{mode}.{name}", (fmt.bits,) * count, fmt.bits))
            oracles.append(lambda *words, o=operation, m=mode: operate(o, list(words), fmt, m))
    if name == "f32":
        for operation, count in (("add", 2), ("mul", 2), ("fma", 3)):
            cases.append(Case(f"{operation}.rn.ftz.f32", (32,) * count, 32))
            oracles.append(lambda *words, o=operation: flushed(operate(o, [flushed(w) for w in words], F32)))
            cases.append(Case(f"{operation}.rn.sat.f32", (32,) * count, 32))
            oracles.append(lambda *words, o=operation: saturated(operate(o, list(words), F32)))
    compare(cases, inputs(fmt.bits, name, 3), oracles, fmt, loose_nan=name == "f64")


def near_the_smallest_normal(fmt: Fmt, seed: int) -> list[np.ndarray]:
    """Words whose product, or whose product plus the third, is about the smallest normal number."""
    rng, bits, mantissa = np.random.default_rng(seed), fmt.bits, fmt.mantissa
    rows = []
    for _ in range(512):
        first = (1 << mantissa) + int(rng.integers(1, 1 << mantissa) if rng.random() < 0.8 else 1)
        second = (1 << 2 * mantissa + 1) // first + int(rng.integers(-1, 2))
        second = min(max(second, 1 << mantissa), (2 << mantissa) - 1)
        half = int(rng.integers(1, fmt.bias - 1))  # how the exponent falls to the two
        lower = int(rng.integers(0, half)) if rng.random() < 0.4 else 0
        exponents = fmt.bias - half, half - lower
        third = 0 if not lower else (1 << mantissa) + int(rng.integers(-1, 2))
        words = [
            (e << mantissa) + w - (1 << mantissa) for e, w in zip(exponents, (first, second), strict=True)
        ]
        rows.append([word | int(rng.integers(0, 2)) << bits - 1 for word in (*words, third)])
    return [np.array(column, f"uint{bits}") for column in zip(*rows, strict=True)]


def flushing(exact: Fraction, fmt: Fmt, mode: str) -> int:
    """A result with .ftz, as an H200 has it: kept if it is normal when rounded without a least exponent."""
    endless = Fmt(12, fmt.mantissa, 0)
    size = abs(Fraction(decode(encode(exact, endless, mode), endless)))
    kept = size >= Fraction(2) ** (1 - fmt.bias)
    return encode(exact, fmt, mode) if kept else (1 << fmt.bits - 1) * (exact < 0)


@pytest.mark.parametrize("name", ["f32", "f16"])
def test_results_about_the_smallest_normal_number_are_kept_or_flushed(name: str) -> None:
    fmt = FMTS[name]

    def product(mode: str, a: int, b: int, c: int = 0) -> int:
        third = c if c & fmt.inf else 0
        return flushing(
            Fraction(decode(a, fmt)) * Fraction(decode(b, fmt)) + Fraction(decode(third, fmt)), fmt, mode
        )

    modes = ("rn", "rz", "rm", "rp") if name == "f32" else ("rn",)
    cases = [
        Case(f"{operation}.{mode}.ftz.{name}", (fmt.bits,) * count, fmt.bits)
        for operation, count in (("mul", 2), ("fma", 3))
        for mode in modes
    ]
    oracles: list[Callable[..., int]] = [functools.partial(product, mode) for mode in (*modes, *modes)]
    compare(cases, {fmt.bits: near_the_smallest_normal(fmt, 21)}, oracles, fmt)


def test_quotients_and_conversions_about_the_smallest_normal_number_are_kept_or_flushed() -> None:
    modes = ("rn", "rz", "rm", "rp")
    rows = np.arange(64, dtype=np.uint32)
    above, ones = rows // 8 + (1 << 23), rows % 8 + (127 << 23)
    compare(
        [Case(f"div.{mode}.ftz.f32", (32, 32), 32) for mode in modes],
        {32: [above, ones]},
        [
            lambda a, b, m=mode: flushing(Fraction(decode(a, F32)) / Fraction(decode(b, F32)), F32, m)
            for mode in modes
        ],
        F32,
    )
    near = (1 + np.arange(-64, 64) * 2.0**-27) * 2.0**-126
    compare(
        [Case(f"cvt.{mode}.ftz.f32.f64", (64,), 32) for mode in modes],
        {64: [near.view(np.uint64)]},
        [lambda a, m=mode: flushing(Fraction(decode(a, F64)), F32, m) for mode in modes],
        F32,
    )


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_square_roots(name: str) -> None:
    fmt = FMTS[name]

    def root(word: int, mode: str) -> int:
        value = decode(word, fmt)
        if isinstance(value, float) and (math.isnan(value) or value == 0 or value > 0):
            return encode(value, fmt)
        if value < 0:
            return fmt.nan
        if value == 0:
            return word
        # Enough digits that rounding them rounds the root: a root is never a tie, nor near one.
        scale = 1 << 300
        digits = math.isqrt(value.numerator * value.denominator * scale * scale)
        exact = digits * digits == value.numerator * value.denominator * scale * scale
        found = Fraction(2 * digits + (not exact), 2 * scale * value.denominator)
        return encode(found, fmt, mode)

    modes = ("rn", "rz", "rm", "rp")
    cases = [Case(f"sqrt.{mode}.{name}", (fmt.bits,), fmt.bits) for mode in modes]
    compare(
        cases,
        inputs(fmt.bits, name, 4, 1),
        [lambda word, m=mode: root(word, m) for mode in modes],
        fmt,
        name == "f64",
    )


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_arithmetic(name: str) -> None:
    fmt = FMTS[name]
    packed = {"f16": "f16x2", "bf16": "bf16x2"}[name]
    cases, oracles = [], []
    for operation, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        cases.append(Case(f"{operation}.rn.{name}", (16,) * count, 16))
        oracles.append(lambda *words, o=operation: operate(o, list(words), fmt))
    compare(cases, inputs(16, name, 5), oracles, fmt)
    given = inputs(16, name, 6)[16]
    pairs = {32: [array[::2].astype(np.uint32) | array[1::2].astype(np.uint32) << 16 for array in given]}
    cases = [
        Case(case.text.replace(f".{name}", f".{packed}"), (32,) * len(case.sources), 32) for case in cases
    ]

    def both(operation: str, words: tuple[int, ...]) -> int:
        low, high = (operate(operation, [word >> side & 0xFFFF for word in words], fmt) for side in (0, 16))
        return high << 16 | low

    names = [case.text.split(".")[0] for case in cases]
    compare(cases, pairs, [lambda *words, o=o: both(o, words) for o in names], F32)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_min_max(name: str) -> None:
    fmt = FMTS[name]

    def pick(word_a: int, word_b: int, largest: bool, nan: bool) -> int:
        a, b = decode(word_a, fmt), decode(word_b, fmt)
        no_a, no_b = (isinstance(x, float) and math.isnan(x) for x in (a, b))
        canonical = 0x7FFFFFFFFFFFFFFF if name == "f64" else fmt.nan
        if (no_a and no_b) or (nan and (no_a or no_b)):
            return canonical
        if no_a or no_b:
            return word_b if no_a else word_a
        if a == b == 0:
            return word_a & word_b if largest else word_a | word_b
        return word_a if (a > b) == largest else word_b

    cases, oracles = [], []
    for operation in ("min", "max"):
        for nan in ("", ".NaN") if name != "f64" else ("",):
            cases.append(Case(f"{operation}{nan}.{name}", (fmt.bits, fmt.bits), fmt.bits))
            oracles.append(lambda a, b, o=operation, n=nan: pick(a, b, o == "max", bool(n)))
    compare(cases, inputs(fmt.bits, name, 7, 2), oracles, fmt, loose_nan=True)


def test_comparisons() -> None:
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }  # fmt: skip
    for name in ("f32", "f64", "f16"):
        fmt = FMTS[name]

        def holds(a: int, b: int, test: str, fmt: Fmt = fmt) -> int:
            x, y = decode(a, fmt), decode(b, fmt)
            unordered = any(isinstance(v, float) and math.isnan(v) for v in (x, y))
            if test in ("num", "nan"):
                return int(unordered == (test == "nan"))
            if test.endswith("u"):
                return int(unordered or tests[test[:-1]](x, y))
            return int(not unordered and tests[test](x, y))

        names = [*tests, *(f"{each}u" for each in tests), "num", "nan"]
        cases = [Case(f"setp.{test}.{name}", (fmt.bits, fmt.bits), 0) for test in names]
        compare(
            cases, inputs(fmt.bits, name, 8, 2), [lambda a, b, t=t, h=holds: h(a, b, t) for t in names], F32
        )


def test_floats_to_integers() -> None:
    rounds: dict[str, Callable[[Fraction], int]] = {
        "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil,
    }  # fmt: skip
    for name in ("f32", "f64", "f16"):
        fmt = FMTS[name]
        cases, oracles = [], []
        for kind in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
            width = int(kind[1:])
            low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
            out = max(width, 16)

            def convert(
                word: int, rounding: str, low: int = low, high: int = high, out: int = out, fmt: Fmt = fmt
            ) -> int:
                value = decode(word, fmt)
                if isinstance(value, float) and math.isnan(value):
                    # Seen on an H200; the PTX ISA says 0.
                    whole = 0 if fmt.bits < 64 and high < 1 << 62 else (low or (high + 1) // 2)
                elif isinstance(value, float):
                    whole = 0 if value == 0 else (high if value > 0 else low)
                else:
                    whole = min(max(rounds[rounding](value), low), high)
                return whole % (1 << out)

            for rounding in rounds:
                cases.append(Case(f"cvt.{rounding}.{kind}.{name}", (fmt.bits,), out))
                oracles.append(lambda word, r=rounding, c=convert: c(word, r))
        compare(cases, inputs(fmt.bits, name, 9, 1), oracles, F64)


@pytest.mark.slow
def test_integers_to_floats() -> None:
    rng = np.random.default_rng(10)
    given = {bits: [edges(bits, rng, COUNT)] for bits in (16, 32, 64)}
    cases, oracles = [], []
    for kind in ("s16", "u16", "s32", "u32", "s64", "u64"):
        bits = int(kind[1:])
        for name in ("f16", "bf16", "f32", "f64"):
            for mode in ("rn", "rz", "rm", "rp"):
                if name == "bf16" and mode != "rn":
                    continue

                def convert(
                    word: int, kind: str = kind, bits: int = bits, name: str = name, mode: str = mode
                ) -> int:
                    value = word - (1 << bits) if kind[0] == "s" and word >> (bits - 1) else word
                    return encode(Fraction(value), FMTS[name], mode)

                cases.append(Case(f"cvt.{mode}.{name}.{kind}", (bits,), FMTS[name].bits))
                oracles.append(convert)
    compare(cases, given, oracles, F64)


def test_floats_to_floats() -> None:
    for source in ("f16", "bf16", "f32", "f64"):
        fmt = FMTS[source]
        cases, oracles = [], []
        for target in ("f16", "bf16", "f32", "f64"):
            goal = FMTS[target]
            if target == source or {source, target} <= {"f16", "bf16"}:
                continue
            narrower = goal.bits < fmt.bits or target == "bf16"
            for mode in (
                ("rn", "rz", "rm", "rp") if narrower and target != "bf16" else ("rn",) if narrower else ("",)
            ):

                def convert(word: int, mode: str = mode, goal: Fmt = goal, fmt: Fmt = fmt) -> int:
                    return encode(decode(word, fmt), goal, mode or "rn")

                cases.append(
                    Case(f"cvt.{mode + '.' if mode else ''}{target}.{source}", (fmt.bits,), goal.bits)
                )
                oracles.append(convert)
        got = run_cases(cases, given := inputs(fmt.bits, source, 11, 1))
        for case, results, oracle in zip(cases, got, oracles, strict=True):
            goal = FMTS[case.text.split(".")[-2]]
            for word, found in zip(given[fmt.bits][0], results, strict=True):
                assert same(oracle(int(word)), int(found), goal, loose_nan=True), (
                    case.text,
                    hex(word),
                    hex(found),
                )


def test_packed_conversions() -> None:
    given = inputs(32, "f32", 12, 2)

    def eight(word: int, dtype: np.typing.DTypeLike, largest: int, nan: int) -> int:
        value = np.uint32(word).view(np.float32)
        if math.isnan(value):
            return nan
        with np.errstate(over="ignore"):
            found = int(np.array(value).astype(dtype).view(np.uint8))
        return largest | (found & 0x80) | (0x80 if value < 0 else 0) if (found & 0x7F) > largest else found

    def e4m3(word: int) -> int:
        return eight(word, ml_dtypes.float8_e4m3fn, 0x7E, 0x7F)

    def e5m2(word: int) -> int:
        return eight(word, ml_dtypes.float8_e5m2, 0x7B, 0x7F)

    cases = [
        Case("cvt.rn.f16x2.f32", (32, 32), 32), Case("cvt.rz.bf16x2.f32", (32, 32), 32),
        Case("cvt.rn.bf16x2.f32", (32, 32), 32), Case("cvt.rn.satfinite.e4m3x2.f32", (32, 32), 16),
        Case("cvt.rn.satfinite.e5m2x2.f32", (32, 32), 16), Case("cvt.rna.tf32.f32", (32,), 32),
    ]  # fmt: skip

    def half(word: int, fmt: Fmt, mode: str) -> int:
        return encode(decode(word, F32), fmt, mode)

    def tf32(word: int) -> int:
        if word & 0x7FFFFFFF > 0x7F800000:  # a NaN is only cut (seen on an H200)
            return word & 0xFFFFE000
        return half(word, Fmt(8, 10, 0x3FFFF), "rna") << 13

    compare(
        cases,
        given,
        [
            lambda a, b: half(a, F16, "rn") << 16 | half(b, F16, "rn"),
            lambda a, b: half(a, BF16, "rz") << 16 | half(b, BF16, "rz"),
            lambda a, b: half(a, BF16, "rn") << 16 | half(b, BF16, "rn"),
            lambda a, b: e4m3(a) << 8 | e4m3(b),
            lambda a, b: e5m2(a) << 8 | e5m2(b),
            tf32,
        ],
        F64,
    )


def test_approximate_functions_stay_within_the_stated_error() -> None:
    rng = np.random.default_rng(13)
    values = np.concatenate([rng.uniform(0.01, 20, 96), rng.uniform(1e-30, 1e30, 32)]).astype(np.float32)
    angles = rng.uniform(-np.pi, np.pi, 128).astype(np.float32)
    given = {32: [values.view(np.uint32), angles.view(np.uint32)]}

    def second(text: str) -> Case:
        return Case(text, (32,), 32)

    got = run_cases([second(f"{name}.approx.f32") for name in ("rcp", "sqrt", "rsqrt", "lg2")], given)
    wide = values.astype(np.float64)
    for found, exact, error in zip(
        got[:3], (1 / wide, np.sqrt(wide), 1 / np.sqrt(wide)), (2**-23, 2**-23, 2**-22.9), strict=True
    ):
        assert (np.abs(found.view(np.float32) / exact - 1) <= error * 1.0001).all()
    assert (
        np.abs(got[3].view(np.float32) - np.log2(wide)) <= np.maximum(2**-22, 2**-22 * np.abs(np.log2(wide)))
    ).all()
    swapped = {32: [given[32][1]]}
    sines = run_cases([second(f"{name}.approx.f32") for name in ("sin", "cos", "ex2", "tanh")], swapped)
    x = angles.astype(np.float64)
    for found, exact, error in zip(
        sines,
        (np.sin(x), np.cos(x), np.exp2(x), np.tanh(x)),
        (2**-20.5, 2**-20.5, 2**-20, 2**-11),
        strict=True,
    ):
        assert (np.abs(found.view(np.float32) - exact) <= error).all()


def test_nans_come_out_as_on_hardware() -> None:
    """Bits that an H200 returned (driver 580, PTX assembled for sm_90)."""
    cases = [
        ("add.rn.f64", 64, (0x7FF0000000000001, 0xFFF8000000000000), 0xFFF8000000000000),
        ("mul.rn.f64", 64, (0xFFF8000000000000, 0x7FF0000000000001), 0x7FF8000000000001),
        ("sqrt.rn.f64", 64, (0xBFF0000000000001,), 0xFFF8000000000000),
        ("div.rz.f64", 64, (0x0000000000000000, 0x8000000000000000), 0xFFF8000000000000),
        ("div.rn.f64", 64, (0x7FF0000000000000, 0x7FF0000000000000), 0xFFF8000000000000),
        ("add.rm.f64", 64, (0x7FF0000000000000, 0xFFF0000000000000), 0xFFF8000000000000),
        ("mul.rn.f64", 64, (0x0000000000000000, 0x7FF0000000000000), 0xFFF8000000000000),
        ("min.f64", 64, (0x7FF0000000000001, 0xFFF8000000000000), 0xFFF8000000000000),
        ("max.f64", 64, (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000001), 0x7FF8000000000001),
        ("cvt.sat.f64.f64", 64, (0xFFF0000000000001,), 0),
        ("abs.f64", 64, (0xFFF0000000000001,), 0xFFF8000000000001),
        ("neg.f64", 64, (0x7FF8000000000000,), 0x7FF8000000000000),
        ("abs.f32", 32, (0xFFC00000,), 0x7FFFFFFF),
        ("neg.f32", 32, (0x7F800001,), 0x7FFFFFFF),
        ("add.rn.f32", 32, (0x7F800000, 0xFF800000), 0x7FFFFFFF),
        ("max.xorsign.abs.f32", 32, (0xFF800001, 0x7FC00000), 0x7FFFFFFF),
        ("max.NaN.xorsign.abs.f32", 32, (0x9BB16776, 0x7FFFFFFF), 0x7FFFFFFF),
        ("cvt.sat.f32.f32", 32, (0x7F800001,), 0),
        ("cvt.ftz.f32.f32", 32, (0xFF800001,), 0x7FFFFFFF),
        ("cvt.rna.tf32.f32", 32, (0x7FF34271,), 0x7FF34000),
        ("cvt.rna.satfinite.tf32.f32", 32, (0x7FF34271,), 0x7FF32000),
        ("cvt.sat.f16.f16", 16, (0xFC01,), 0),
        ("neg.f16", 16, (0xFE00,), 0x7FFF),
        ("abs.bf16", 16, (0x7F81,), 0x7FFF),
    ]
    for bits in (16, 32, 64):
        rows = [case for case in cases if case[1] == bits]
        given = {bits: [np.zeros(64, f"uint{bits}") for _ in range(2)]}  # of each thread, a row's operands
        for thread, (_, _, words, _) in enumerate(rows):
            for place, word in enumerate(words):
                given[bits][place][thread] = word
        got = run_cases([Case(text, (bits,) * len(words), bits) for text, _, words, _ in rows], given)
        for thread, (text, _, _, expected) in enumerate(rows):
            assert got[thread][thread] == expected, (text, hex(int(got[thread][thread])))


def test_nans_converted_as_on_hardware() -> None:
    wide = {64: [np.array([0x7FF0000000000001, 0xFFF8000000000000] * 32, np.uint64)]}
    names = ("f32", "f16", "bf16")
    got = run_cases([Case(f"cvt.rn.{name}.f64", (64,), FMTS[name].bits) for name in names], wide)
    for found, expected in zip(
        got, ((0x7FC00000, 0xFFC00000), (0x7E00, 0xFE00), (0x7FC0, 0xFFC0)), strict=True
    ):
        assert tuple(found[:2].tolist()) == expected
    (gone,) = run_cases([Case("cvt.rn.sat.f16.f64", (64,), 16)], wide)
    assert not gone.any()
    single = {32: [np.array([0x7F800001, 0xFFC00000] * 32, np.uint32)]}
    (gone,) = run_cases([Case("cvt.rz.sat.f16.f32", (32,), 16)], single)
    assert not gone.any()
    (kept,) = run_cases([Case("cvt.ftz.f64.f32", (32,), 64)], single)
    assert (kept == 0x7FFFFFFFE0000000).all()
    (up,) = run_cases([Case("cvt.f64.f16", (16,), 64)], {16: [np.array([0x7C01, 0xFE00] * 32, np.uint16)]})
    assert up[:2].tolist() == [0x7FF8040000000000, 0xFFF8000000000000]


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("factor", [0, 1])
def test_a_factor_out_of_bounds_makes_fma_oob_zero(name: str, factor: int) -> None:
    """Every word as a factor: fma.oob is fma but for the NaN that stands for an element out of bounds."""
    words = np.arange(1 << 16, dtype=np.uint16)
    rng = np.random.default_rng(7)
    others = [rng.integers(0, 1 << 16, len(words), dtype=np.uint16) for _ in range(2)]
    given = [words, *others] if factor == 0 else [others[0], words, others[1]]
    texts = [f"fma.rn{oob}{relu}.{name}" for relu in ("", ".relu") for oob in (".oob", "")]
    results = run_cases([Case(text, (16, 16, 16), 16) for text in texts], {16: given})
    outside = np.isin(given[0], (0x7FF7, 0xFFF7)) | np.isin(given[1], (0x7FF7, 0xFFF7))
    assert outside[0x7FF7] and outside.sum() < 20
    for special, plain in (results[:2], results[2:]):
        assert (special == np.where(outside, 0, plain)).all()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_fma_oob_of_two_halves_looks_at_each(name: str) -> None:
    rng = np.random.default_rng(8)
    halves = [rng.integers(0, 1 << 16, 4096, dtype=np.uint16) for _ in range(3)]
    for each in halves[:2]:
        each[rng.random(len(each)) < 0.2] = 0x7FF7
    (pairs,) = run_cases(
        [Case(f"fma.rn.oob.{name}x2", (32, 32, 32), 32)], {32: [each.view(np.uint32) for each in halves]}
    )
    (single,) = run_cases([Case(f"fma.rn.oob.{name}", (16, 16, 16), 16)], {16: halves})
    assert (pairs.view(np.uint16) == single).all()


#: Instructions on the bits of floats, and what they make of two words.
ON_BITS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "setp.lt.s32 %p, A, B; selp.u32 C, 1, 0, %p;": lambda a, b: a.view(np.int32) < b.view(np.int32),
    "setp.lt.u32 %p, A, B; selp.u32 C, 1, 0, %p;": lambda a, b: a < b,
    "setp.eq.b32 %p, A, B; selp.u32 C, 1, 0, %p;": lambda a, b: a == b,
    "set.ge.u32.s32 C, A, B;": lambda a, b: np.where(a.view(np.int32) >= b.view(np.int32), 2**32 - 1, 0),
    "max.s32 C, A, B;": lambda a, b: np.maximum(a.view(np.int32), b.view(np.int32)).view(np.uint32),
    "min.u32 C, A, B;": np.minimum,
    "add.u32 C, A, B;": np.add,
    "mad.lo.u32 C, A, 3, B;": lambda a, b: a * np.uint32(3) + b,
    "and.b32 C, A, B;": np.bitwise_and,
    "sub.s32 C, A, B;": np.subtract,
    "shr.s32 C, A, 3;": lambda a, b: (a.view(np.int32) >> 3).view(np.uint32),
    "slct.u32.s32 C, 1, 2, A;": lambda a, b: np.where(a.view(np.int32) >= 0, 1, 2),
    "abs.s32 C, A;": lambda a, b: np.abs(a.view(np.int32)).view(np.uint32),
    "neg.s32 C, A;": lambda a, b: -a,
    "mul.hi.u32 C, A, B;": lambda a, b: (a.astype(np.uint64) * b >> 32).astype(np.uint32),
}


@sampled(6)
@pytest.mark.parametrize("moved", ["", "mov.b32 %r4, %r1; mov.b32 %r5, %r2;"], ids=["at once", "moved"])
@pytest.mark.parametrize("instruction", ON_BITS)
def test_bits_of_a_float_that_was_just_computed(instruction: str, moved: str) -> None:
    a, b = ("%r4", "%r5") if moved else ("%r1", "%r2")
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z) {{
    .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p;
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [z];
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 4;
    add.s64 %rd0, %rd0, %rd3; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
    ld.global.b32 %r1, [%rd0]; ld.global.b32 %r2, [%rd1];
    add.f32 %r1, %r1, %r1; mul.f32 %r2, %r2, 0f40000000;
    {moved}
    {instruction.replace("A", a).replace("B", b).replace("C", "%r3")}
    st.global.u32 [%rd2], %r3;
    ret;
}}
"""
    rng = np.random.default_rng(9)
    x, y = (rng.standard_normal(128).astype(np.float32) for _ in range(2))
    x[::7] = y[::7]
    found = np.zeros(128, np.uint32)
    lw.load(text)["k"][1, 128](x, y, found)
    expected = ON_BITS[instruction]((x + x).view(np.uint32), (y + y).view(np.uint32))
    assert (found == expected.astype(np.uint32)).all()
