"""The room Bits: its steps lead to the engines' bits for every format and GPU; where GPUs part is told."""

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from everything import EVERYTHING, sampled
from lanewise.arith.models import model_of
from lanewise.arith.on_arrays import gemm
from lanewise.arith.reference import multiply
from lanewise.errors import LanewiseError
from lanewise.explore import bits
from lanewise.explore.sum_steps import aligned_bits, explain_product, explain_sum
from lanewise.formats import f16, f32, format_of, s8
from lanewise.isa import instruction

KINDS = ("same size", "wide", "cancelling", "any bits")


@cache
def cases() -> dict[Any, tuple[bits.Unit, tuple[str, str, str]]]:
    """Every model of the room once: a unit and formats that have it."""
    found: dict[Any, tuple[bits.Unit, tuple[str, str, str]]] = {}
    for each in bits.combinations():
        formats = each["a"], each["b"], each["d"]
        for unit in bits.UNITS:
            if unit.key in each["units"]:
                chosen = bits.chosen(unit, *formats)
                assert chosen is not None
                found.setdefault((chosen[1].scheme, formats), (unit, formats))
    return found


def engines() -> list[tuple[bits.Unit, tuple[str, str, str]]]:
    """One case for each scheme, of which a third is tried each time: the engine of these is compiled.

    All others are held against the reference.
    """
    return list({key[0]: case for key, case in cases().items()}.values())[:: 1 if EVERYTHING else 3]


@sampled(9)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("oracle", ["engine", "reference"])
def test_the_steps_end_with_the_bits_of(oracle: str, kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for number, (unit, formats) in enumerate(engines() if oracle == "engine" else cases().values()):
        chosen = bits.chosen(unit, *formats)
        assert chosen is not None
        mma, model = chosen
        a, b, d = map(format_of, formats)
        # More than one instruction, and one that is not full.
        k = model.k + model.k // 2 if oracle == "engine" and number % 3 == 0 else model.k
        rows = a.array(np.array([bits._random(a, kind, k, rng) for _ in range(3)]))
        column = b.array(np.array([bits._random(b, kind, k, rng)]).T)
        c = d.array(
            np.array(
                [bits._random(d, "any bits" if kind == "any bits" else "wide", 1, rng) for _ in range(3)]
            )
        )
        result = (
            gemm(mma, rows, column, c, arch=unit.arch)
            if oracle == "engine"
            else multiply(model, rows, column, c)
        )
        expected = d.to_bits(result)[:, 0]
        left, right = a.decode(a.to_bits(rows)).tolist(), b.decode(b.to_bits(column))[:, 0].tolist()
        start = d.decode(d.to_bits(c))[:, 0].tolist()

        def decoded(word: int, d: Any = d) -> Any:
            return d.decode(np.array([word], d.word_dtype)).tolist()[0]

        for row in range(3):
            found = explain_product(model, list(zip(left[row], right, strict=True)), start[row], decoded)
            assert found.bits == expected[row], (unit, formats, row)
            assert len(found.steps) >= 1


def test_scaled_sums_end_with_the_engines_bits() -> None:
    rng = np.random.default_rng(7)
    for text, scales, fmt in (
        ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0", 1, "e4m3"),
        ("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
         4, "e2m1"),
    ):  # fmt: skip
        mma = instruction(text)
        model = model_of(mma, "sm_120a")
        assert model is not None and model.scale is not None
        a, scale = format_of(fmt), model.scale
        left, right = (a.array(a.decode(a.encode(rng.standard_normal(shape), saturate=True)))
                       for shape in ((16, mma.k), (mma.k, 8)))  # fmt: skip
        alpha, beta = (
            scale.array(2.0 ** rng.integers(-3, 4, shape)) for shape in ((16, scales), (scales, 8))
        )
        expected = mma(
            left, right, np.zeros((16, 8), np.float32), arch="sm_120a", scale_a=alpha, scale_b=beta
        )
        values = [each.astype(float) for each in (left, right, alpha, beta)]
        pairs = list(zip(values[0][3].tolist(), values[1][:, 5].tolist(), strict=True))
        factors = list(zip(values[2][3].tolist(), values[3][:, 5].tolist(), strict=True))
        found = explain_sum(model, pairs, 0.0, factors)
        assert found.bits == int(f32.to_bits(expected)[3, 5])


def test_terms_are_cut_where_the_model_says() -> None:
    # 2^12 and 2^-12.5: an A100 keeps 24 bits below the largest exponent, an H100 keeps 25.
    answer = bits.explained(
        ["4096", "0.015625"], ["1", "0.0146484375"], "0", ["f16", "f16", "f32"], ["sm_80", "sm_90"]
    )
    a100, h100 = answer["columns"]
    for column, fraction in ((a100, 24), (h100, 25)):
        step = column["steps"][0]
        assert step["largest"] - step["unit"] == fraction
        small = step["rows"][1]
        assert small["cut"].strip("0") and set(small["cut"]) <= {"0", "1"}
        kept = Fraction(int(small["kept"], 2)) * Fraction(2) ** step["unit"]
        digits = small["cut"]
        cut = Fraction(int(digits, 2), 1 << len(digits)) * Fraction(2) ** step["unit"]
        assert kept + cut == Fraction(0.015625) * Fraction(0.0146484375)
    assert Fraction(answer["reference"]["exact"].split(" × ")[0]) * Fraction(2) ** int(
        answer["reference"]["exact"].split("^")[1]
    ) == 4096 + Fraction(0.015625) * Fraction(0.0146484375)


def test_where_two_gpus_part() -> None:
    found = bits.parting_numbers(["f16", "f16", "f32"], ["sm_70", "sm_90"], 16, 3)
    answer = bits.explained(found["a"], found["b"], found["c"][0], ["f16", "f16", "f32"], ["sm_70", "sm_90"])
    first, second = answer["columns"]
    assert first["bits"] != second["bits"]
    assert len(answer["parts"]) == 1 and "H100 parts from V100" in answer["parts"][0]
    same = bits.explained(["1"], ["1"], "1", ["f16", "f16", "f32"], ["sm_70", "sm_90"])
    assert same["parts"] == ["All of them give the same bits of f32"]
    assert same["columns"][0]["error"] == "exact" and same["columns"][0]["value"] == "2"


@pytest.mark.parametrize(
    ("text", "fmt", "expected"),
    [("0.1", f16, 0x2E66), ("0xffff", f16, 0xFFFF), ("-2^-24", f16, 0x8001), ("1/3", f32, 0x3EAAAAAB),
     ("−1", f16, 0xBC00), ("1.5 × 2^3", f16, 0x4A00), ("-128", s8, 0x80),
     ("0x80", s8, 0x80), ("nan", f32, 0x7FC00000)],
)  # fmt: skip
def test_numbers_as_they_are_typed(text: str, fmt: Any, expected: int) -> None:
    assert bits.parse_number(text, fmt) == expected


@pytest.mark.parametrize(
    ("text", "fmt", "message"),
    [("", f16, "a number of f16"), ("one", f16, "is wanted"), ("0x12345", f16, "16 bits"),
     ("1.5", s8, "an integer"), ("128", s8, "-128 to 127"), ("1e999999", s8, "integer"),
     ("1/0", f32, "is wanted"),
     ("9" * 500, f32, "wanted")],
)  # fmt: skip
def test_numbers_that_are_none(text: str, fmt: Any, message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        bits.parse_number(text, fmt)


def test_bad_questions_are_sentences() -> None:
    good: dict[str, Any] = {
        "a": ["1"], "b": ["1"], "c": "0", "formats": ["f16", "f16", "f32"], "units": ["sm_80"],
    }  # fmt: skip
    for change, message in (
        ({"b": ["1", "2"]}, "A has 1 numbers and B 2"),
        ({"formats": ["f16", "f16"]}, "three formats"),
        ({"formats": ["f16", "f16", "f17"]}, "f17"),
        ({"units": ["sm_1"]}, "none of the GPUs"),
        ({"a": ["1"] * 129, "b": ["1"] * 129}, "1 to 128 products"),
    ):
        with pytest.raises(LanewiseError, match=message):
            bits.explained(**{**good, **change})
    missing = bits.explained(["1"], ["1"], "0", ["e4m3", "e4m3", "f32"], ["sm_70"])
    assert missing["columns"] == [] and "V100 has no mma" in missing["missing"][0]["why"]


def test_infinities_and_nan_are_told() -> None:
    answer = bits.explained(["inf", "1"], ["1", "nan"], "0", ["f16", "f16", "f32"], ["sm_80"])
    (column,) = answer["columns"]
    assert column["value"] == "nan" and column["bits"] == "0x7fffffff" and answer["reference"]["exact"] == ""
    assert "an infinity or NaN decides" in column["steps"][0]["rounding"]


def test_digits_of_a_number() -> None:
    found = aligned_bits(Fraction(5, 4), 3, 0)
    assert (found.kept, found.cut, found.negative) == ("0001", "01", False)
    assert aligned_bits(Fraction(1, 3), 0, 0).cut.endswith("…")
