"""Constant expressions: what they are worth, held against ptxas on random ones."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everything import EVERYTHING
from lanewise.ptx import PtxSyntaxError, constant, ptxas
from lanewise.ptx.syntax.operand_parser import PRECEDENCE
from lanewise.ptx.tools.toolkit import find_tools

needs_ptxas = pytest.mark.skipif(not find_tools("ptxas"), reason="ptxas is not installed (extra `cuda`)")

INTEGERS = st.sampled_from(
    ["0", "1", "2", "3", "7", "5U", "0x10", "017", "0b101", "63", "64", "65", "WARP_SZ", "0xFFFFFFFFU",
     "9223372036854775807", "0x8000000000000000", "18446744073709551615"]
)  # fmt: skip
FLOATS = st.sampled_from(["0.5", "1.5", "3.0", "1e10", "0d3FF8000000000000", ".25", "1e-300", "7."])
OPERATORS = list(PRECEDENCE)


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} {}".format, st.sampled_from("-~!+"), parts),
        st.builds("({}){}".format, st.sampled_from([".s64", ".u64"]), parts),
        st.builds("({})".format, parts),
        st.builds("({} ? {} : {})".format, parts, parts, parts),
        st.builds("{} {} {}".format, parts, st.sampled_from(OPERATORS), parts),
    )


def float_sums(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("- {}".format, parts),
        st.builds("({})".format, parts),
        st.builds("{} {} {}".format, parts, st.sampled_from("+-*/"), parts),
    )


def worth(text: str) -> bool:
    try:
        constant(text)
    except PtxSyntaxError as error:
        assert "zero" in str(error), str(error)
        return False
    return True


def section(image: bytes, name: str) -> bytes:
    """The bytes of a section of an ELF file."""
    table = struct.unpack_from("<Q", image, 40)[0]
    count, names = struct.unpack_from("<HH", image, 60)
    headers = [struct.unpack_from("<IIQQQQ", image, table + 64 * place) for place in range(count)]
    strings = headers[names][4]
    for offset, _, _, _, start, size in headers:
        end = image.index(b"\0", strings + offset)
        if image[strings + offset : end].decode() == name:
            return image[start : start + size]
    raise AssertionError(f"no section {name}")


def values_in_ptxas(expressions: list[str], type_name: str) -> list[int]:
    """What ptxas initialises an array with."""
    values = ",\n".join(expressions)
    ptx = (
        ".version 9.0\n.target sm_80\n.address_size 64\n"
        f".visible .global .{type_name} a[{len(expressions)}] = {{\n{values}\n}};\n"
    )
    image = ptxas(ptx).image
    return list(struct.unpack(f"<{len(expressions)}Q", section(image, ".nv.global.init")))


@needs_ptxas
@settings(max_examples=12 if EVERYTHING else 4, deadline=None)
@given(st.lists(st.recursive(INTEGERS, combined, max_leaves=8).filter(worth), min_size=200, max_size=400))
def test_integers_agree_with_ptxas(expressions: list[str]) -> None:
    assert [constant(text).bits for text in expressions] == values_in_ptxas(expressions, "u64")


@needs_ptxas
@settings(max_examples=5, deadline=None)
@given(st.lists(st.recursive(FLOATS, float_sums, max_leaves=6).filter(worth), min_size=100, max_size=200))
def test_floats_agree_with_ptxas(expressions: list[str]) -> None:
    assert [constant(text).bits for text in expressions] == values_in_ptxas(expressions, "f64")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("1 << 2 + 1", 8),
        ("10 - 4 - 3", 3),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("1 | 6 & 3", 3),
        ("1 == 1 && 2 > 1 || 0", 1),
        ("0 ? 1 : 0 ? 2 : 3", 3),
        ("- - 5", 5),
        ("~0 >> 63", 1),
        ("-1 >> 63", -1),
        ("1.5 + 2.5", 4.0),
        ("1.5 < 2.5", 1),
    ],
)
def test_precedence_and_types(text: str, value: float) -> None:
    assert constant(text).value == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1 / 0", "division by zero"),
        ("1.0 / 0.0", "division by zero"),
        ("1 % (2 - 2)", "division by zero"),
        ("1 + 1.5", "nothing converts"),
        ("~1.5", "needs an integer"),
        ("1.5 ? 1 : 2", "needs an integer"),
        ("1 ? 2", "':'"),
        ("(1", "')'"),
        ("", "a constant"),
        ("1 +", "a constant"),
        ("x", "a constant"),
        ("1 2", "the end"),
        ("0x", "malformed number"),
        ("(.f32)1", "a cast to .s64 or .u64"),
        ("18446744073709551616", "64 bits"),
        ("9" * 5000, "64 bits"),
        ("1e400", "64 bits"),
        ("(" * 100 + "1" + ")" * 100, "deep"),
        ("-" * 10000 + "1", "deep"),
        ("1?" * 10000, "deep"),
    ],
)
def test_refusals(text: str, complaint: str) -> None:
    with pytest.raises(
        PtxSyntaxError, match=complaint.replace("(", r"\(").replace(")", r"\)").replace(".", r"\.")
    ):
        constant(text)
