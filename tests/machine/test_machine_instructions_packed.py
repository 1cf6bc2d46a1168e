"""Packed conversions against ml_dtypes and exact fractions; logic with predicates; choices among three."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from machine.exact import BF16, F16, F32, Fmt, decode, encode
from machine.integers import clamp, signed
from machine.kernels import Case, edges, run_cases

COUNT = 256
#: Of each format: its dtype, its largest code, what NaN becomes, bits in a packed pair.
SMALL: dict[str, tuple[Any, int, int, int]] = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 0x7E, 0x7F, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 0x7B, 0x7F, 8),
    "e3m2": (ml_dtypes.float6_e3m2fn, 0x1F, 0x1F, 8),
    "e2m3": (ml_dtypes.float6_e2m3fn, 0x1F, 0x1F, 8),
    "e2m1": (ml_dtypes.float4_e2m1fn, 0x07, 0x07, 4),
}


def small(value: float, name: str, relu: bool = False) -> int:
    """The code of a number, to nearest, clamped to the finite ones."""
    dtype, largest, nan, _ = SMALL[name]
    if math.isnan(value):
        return nan
    if relu and math.copysign(1, value) < 0:
        return 0
    limit = float(np.array(largest, np.uint8).view(dtype))
    code = int(np.array(min(max(value, -limit), limit), np.float32).astype(dtype).view(np.uint8))
    return code & (2 * (1 << largest.bit_length()) - 1)


def f32s(seed: int, places: int, count: int = COUNT) -> dict[int, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {32: [edges(32, rng, count, "f32") for _ in range(places)]}


def number(word: int) -> float:
    return float(np.uint32(word).view(np.float32))


def hold(
    cases: list[Case], given: dict[int, list[np.ndarray]], oracles: list[Callable[..., int]], target: str
) -> None:
    wrong = []
    for case, oracle, got in zip(cases, oracles, run_cases(cases, given, target), strict=True):
        for row, found in enumerate(got):
            words = [int(given[bits][place][row]) for place, bits in enumerate(case.sources)]
            expected = oracle(*words)
            if expected != int(found):
                shown = [hex(each) for each in words]
                wrong.append(f"{case.text} {shown}: {int(found):#x}, expected {expected:#x}")
                break
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("names", "target"), [(("e4m3", "e5m2"), "sm_90"), (("e3m2", "e2m3", "e2m1"), "sm_100a")]
)
def test_pairs_of_small_floats(names: tuple[str, ...], target: str) -> None:
    cases, oracles = [], []
    for name in names:
        bits = SMALL[name][3]
        for relu in (False, True):
            cases.append(Case(f"cvt.rn.satfinite{'.relu' * relu}.{name}x2.f32", (32, 32), 2 * bits))
            oracles.append(
                lambda a, b, n=name, bits=bits, r=relu: (
                    small(number(a), n, r) << bits | small(number(b), n, r)
                )
            )
    hold(cases, f32s(1, 2), oracles, target)


def test_pairs_of_halves_to_eight_bits() -> None:
    given = {32: [edges(16, np.random.default_rng(2), 2 * COUNT, "f16").view(np.uint32)]}

    def both(word: int, name: str) -> int:
        low, high = (float(np.uint16(each).view(np.float16)) for each in (word & 0xFFFF, word >> 16))
        return small(high, name) << 8 | small(low, name)

    names = ("e4m3", "e5m2")
    cases = [Case(f"cvt.rn.satfinite.{name}x2.f16x2", (32,), 16) for name in names]
    hold(cases, given, [lambda word, n=name: both(word, n) for name in names], "sm_90")


@pytest.mark.parametrize(
    ("names", "target"), [(("e4m3", "e5m2"), "sm_90"), (("e3m2", "e2m3"), "sm_100a"), (("e2m1",), "sm_100a")]
)
def test_small_floats_widened_exactly(names: tuple[str, ...], target: str) -> None:
    bits = SMALL[names[0]][3]
    codes = np.arange(COUNT, dtype=np.uint16) & ((2 << SMALL[names[0]][1].bit_length()) - 1)
    words = codes | (codes[::-1] << np.uint16(bits))
    given = {16: [words]} if bits == 8 else {8: [words.astype(np.uint8)]}

    def widened(word: int, name: str, relu: bool) -> int:
        found = 0
        for place in (0, 1):
            code = word >> (place * bits) & ((1 << bits) - 1)
            value = float(np.array(code, np.uint8).view(SMALL[name][0]))
            half = 0x7FFF if math.isnan(value) else int(np.float16(value).view(np.uint16))
            found |= (0 if relu and half >> 15 else half) << 16 * place
        return found

    forms = [(name, relu) for name in names for relu in (False, True)]
    cases = [Case(f"cvt.rn{'.relu' * relu}.f16x2.{name}x2", (2 * bits,), 32) for name, relu in forms]
    hold(cases, given, [lambda word, n=n, r=r: widened(word, n, r) for n, r in forms], target)


def test_scales() -> None:
    """ue8m0: powers of two; against fractions, and NVIDIA's own headers' reading of the ends."""

    def scale(word: int, up: bool, saturate: bool) -> int:
        value = decode(word & 0x7FFFFFFF, F32)
        if isinstance(value, float) and math.isnan(value):
            return 255
        if isinstance(value, float) and math.isinf(value):
            return 254 if saturate else 255
        size = Fraction(value)
        code = 0
        while code < 255 and Fraction(2) ** (code - 127) < size:
            code += 1
        if not up and code and Fraction(2) ** (code - 127) > size:
            code -= 1
        return min(code, 254) if saturate else code

    cases, oracles = [], []
    for mode, saturate in (("rz", False), ("rz", True), ("rp", False), ("rp", True)):
        cases.append(Case(f"cvt.{mode}{'.satfinite' * saturate}.ue8m0x2.f32", (32, 32), 16))
        oracles.append(lambda a, b, u=mode == "rp", s=saturate: scale(a, u, s) << 8 | scale(b, u, s))
    given = f32s(3, 2, 64)
    # Below 2^-126 the exponent field is 0, whatever the number: what is rounded down stays there.
    hold(cases, given, oracles, "sm_100a")
    codes = {16: [np.arange(COUNT, dtype=np.uint16) * np.uint16(257)]}

    def bfloat(word: int) -> int:
        found = 0
        for place in (0, 1):
            code = word >> 8 * place & 255
            half = 0x7FFF if code == 255 else encode(Fraction(2) ** (code - 127), BF16)
            found |= half << 16 * place
        return found

    hold([Case("cvt.rn.bf16x2.ue8m0x2", (16,), 32)], codes, [bfloat], "sm_100a")


def test_stochastic_rounding_is_within_an_ulp_and_unbiased() -> None:
    """Whatever the layout of the random bits: never beyond the neighbours, and right on the average."""
    rng = np.random.default_rng(4)
    for name, fmt in (("f16", F16), ("bf16", BF16)):
        values = np.full(4096, 1 + 0.3 * 2.0**-fmt.mantissa, np.float32)
        random = rng.integers(0, 1 << 32, values.size, dtype=np.uint32)
        given = {32: [values.view(np.uint32), values.view(np.uint32), random]}
        (got,) = run_cases([Case(f"cvt.rs.{name}x2.f32", (32, 32, 32), 32)], given, "sm_100a")
        one = fmt.bias << fmt.mantissa
        for place in (0, 16):
            steps = (got >> place & 0xFFFF).astype(np.int64) - one
            assert set(steps.tolist()) <= {0, 1}
            assert abs(steps.mean() - 0.3) < 0.03
    names = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
    values = np.full(4096, 1 + 0.25 * 2.0**-3, np.float32)
    random = rng.integers(0, 1 << 32, values.size, dtype=np.uint32)
    given = {32: [values.view(np.uint32)] * 4 + [random]}
    pattern = "{d}, {{{0}, {1}, {2}, {3}}}, {4}"
    cases = [
        Case(f"cvt.rs.satfinite.{name}x4.f32", (32,) * 5, 16 if name == "e2m1" else 32, pattern)
        for name in names
    ]
    for name, got in zip(names, run_cases(cases, given, "sm_100a"), strict=True):
        dtype, _, _, width = SMALL[name]
        one = int(np.array(1, np.float32).astype(dtype).view(np.uint8))
        for place in range(4):
            steps = (got >> np.uint32(place * width) & ((1 << width) - 1)).astype(np.int64) - one
            assert set(steps.tolist()) <= {0, 1}, name
            assert abs(steps.mean() - 0.25 * 2.0 ** (int(name[-1]) - 3)) < 0.03, name


def test_integers_packed() -> None:
    rng = np.random.default_rng(5)
    given = {32: [edges(32, rng, COUNT) for _ in range(3)]}
    cases, oracles = [], []
    for kind in ("s16", "u16", "s8", "u8", "s4", "u4", "s2", "u2"):
        bits = int(kind[1:])
        third = bits < 16

        def oracle(a: int, b: int, c: int = 0, kind: str = kind, bits: int = bits) -> int:
            high, low = (clamp(signed(each, 32), bits, kind[0] == "s") % (1 << bits) for each in (a, b))
            return (c << 2 * bits | high << bits | low) & 0xFFFFFFFF

        cases.append(Case(f"cvt.pack.sat.{kind}.s32{'.b32' * third}", (32,) * (2 + third), 32))
        oracles.append(oracle)
    hold(cases, given, oracles, "sm_90")


def test_any_function_of_three_bits_with_a_predicate() -> None:
    rng = np.random.default_rng(6)
    zeros = rng.random((3, COUNT)) < 0.5
    given = {32: [np.where(zero, 0, edges(32, rng, COUNT)).astype(np.uint32) for zero in zeros]}
    table = 0x96

    def function(a: int, b: int, c: int) -> int:
        rows = zip(*(f"{each:032b}" for each in (a, b, c)), strict=True)
        return int("".join(str(table >> int(x + y + z, 2) & 1) for x, y, z in rows), 2)

    cases, oracles = [], []
    for name, holds in (("and", False), ("or", False), ("and", True), ("or", True)):
        given_predicate = "%p0" if holds else "!%p0"
        # The predicate is known: the instruction before set it.
        setting = "setp.eq.u32 %p0, 0, 0; "
        case = Case(
            f"{setting}lop3.{name}.b32",
            (32, 32, 32),
            0,
            f"_|{{d}}, {{0}}, {{1}}, {{2}}, {table}, {given_predicate}",
        )
        cases.append(case)
        oracles.append(
            lambda a, b, c, n=name, h=holds: int(
                (function(a, b, c) != 0) and h if n == "and" else (function(a, b, c) != 0) or h
            )
        )
    hold(cases, given, oracles, "sm_90")


def test_the_least_of_three() -> None:
    def choose(words: list[int], name: str, absolute: bool, nan: bool) -> int:
        if absolute:
            words = [word & 0x7FFFFFFF for word in words]
        values = [decode(word, F32) for word in words]
        wrong = [isinstance(value, float) and math.isnan(value) for value in values]
        if all(wrong) or (nan and any(wrong)):
            return 0x7FFFFFFF
        rest = [word for word, bad in zip(words, wrong, strict=True) if not bad]
        return (max if name == "max" else min)(
            # As integers: the sign reverses the order of magnitudes.
            rest,
            key=lambda word: -(word & 0x7FFFFFFF) - 1 if word >> 31 else word,
        )

    cases, oracles = [], []
    for name in ("min", "max"):
        for absolute in (False, True):
            for nan in (False, True):
                cases.append(Case(f"{name}{'.NaN' * nan}{'.abs' * absolute}.f32", (32, 32, 32), 32))
                oracles.append(lambda a, b, c, n=name, x=absolute, y=nan: choose([a, b, c], n, x, y))
    hold(cases, f32s(7, 3), oracles, "sm_100a")


def test_reductions_of_floats_over_a_warp() -> None:
    given = f32s(8, 1)
    words = given[32][0].reshape(-1, 32)
    cases, expected = [], []
    for name in ("min", "max"):
        for absolute in (False, True):
            for nan in (False, True):
                text = f"redux.sync.{name}{'.abs' * absolute}{'.NaN' * nan}.f32"
                cases.append(Case(text, (32,), 32, "{d}, {0}, -1"))
                rows = words & 0x7FFFFFFF if absolute else words
                found = []
                for row in rows:
                    values = row.view(np.float32)
                    numbers = row[~np.isnan(values)].astype(np.int64)
                    keys = np.where(numbers >> 31, -(numbers & 0x7FFFFFFF) - 1, numbers)
                    if (nan and numbers.size < 32) or not numbers.size:
                        found.append(0x7FFFFFFF)
                    else:
                        found.append(int(numbers[keys.argmax() if name == "max" else keys.argmin()]))
                expected.append(found)
    for case, wanted, got in zip(cases, expected, run_cases(cases, given, "sm_100a"), strict=True):
        assert got.reshape(-1, 32)[:, 0].tolist() == wanted, case.text
        assert (got.reshape(-1, 32) == got.reshape(-1, 32)[:, :1]).all()


def test_pairs_of_f32() -> None:
    """Each half of an f32x2 is what an instruction of f32 gives, in all roundings; NaNs are the GPU's."""
    from machine.exact import operate

    rng = np.random.default_rng(23)
    given = {64: [edges(32, rng, 2 * COUNT, "f32").view(np.uint64) for _ in range(3)]}
    cases: list[Case] = []
    oracles: list[Callable[..., int]] = []

    def both(words: tuple[int, ...], name: str, mode: str) -> int:
        halves = ([word >> shift & 0xFFFFFFFF for word in words] for shift in (0, 32))
        low, high = (operate(name, half, F32, mode) for half in halves)
        return high << 32 | low

    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for mode in ("rn", "rz", "rm", "rp"):
            cases.append(Case(f"{name}.{mode}.f32x2", (64,) * count, 64))
            oracles.append(lambda *words, n=name, m=mode: both(words, n, m))
    hold(cases, given, oracles, "sm_100")
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for mode in ("rn", "rz", "rm", "rp"):
            pair = run_cases([Case(f"{name}.{mode}.ftz.f32x2", (64,) * count, 64)], given, "sm_100")[0]
            alone = {32: [each.view(np.uint32) for each in given[64]]}
            single = run_cases([Case(f"{name}.{mode}.ftz.f32", (32,) * count, 32)], alone, "sm_100")[0]
            assert (pair.view(np.uint32) == single).all(), (name, mode)


def test_sums_of_f32_and_half_precision() -> None:
    rng = np.random.default_rng(9)
    for name, fmt in (("f16", F16), ("bf16", BF16)):
        given = {
            16: [edges(16, rng, 64, name) for _ in range(2)],
            32: [edges(32, rng, 64, "f32") for _ in range(3)],
        }

        def wide(word: int, fmt: Fmt = fmt) -> int:
            return encode(decode(word, fmt), F32)

        from machine.exact import operate

        cases: list[Case] = []
        oracles: list[Callable[..., int]] = []
        for mode in ("rn", "rz", "rm", "rp"):
            for operation in ("add", "sub"):
                cases.append(Case(f"{operation}.{mode}.f32.{name}", (16, 32), 32))
                oracles.append(lambda a, b, o=operation, m=mode: operate(o, [wide(a), b], F32, m))
            cases.append(Case(f"fma.{mode}.f32.{name}", (16, 16, 32), 32))
            oracles.append(lambda a, b, c, m=mode: operate("fma", [wide(a), wide(b), c], F32, m))
        hold(cases, given, oracles, "sm_100a")
