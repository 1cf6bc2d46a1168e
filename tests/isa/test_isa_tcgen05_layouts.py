"""Layouts of tcgen05's matrices against CUTLASS, whose own were compiled and printed (see the record)."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import MatrixDescriptor, tcgen05_fault
from lanewise.isa.tensor_memory.accumulators import (
    LANES,
    METADATA,
    a_column,
    d_places,
    data_path,
    factor_place,
    first_bytes,
    metadata_place,
    regions,
)
from lanewise.layout import Layout, logical_product

RECORD = json.loads((Path(__file__).parent / "cutlass_tcgen05_layouts.json").read_text())
#: The bits that a unit of an address stands for where it is not the element: metadata, by bits of elements.
METADATA_UNITS = {32: 2.0, 16: 1.0, 8: 1.0, 4: 0.5}


def cases(what: str) -> list[dict[str, Any]]:
    return [each for each in RECORD["fragments"] if each["what"] == what]


def name(case: Any) -> str:
    keys = ("major", "bits", "swizzle", "m", "n", "cta_group", "ws", "unit")
    return "-".join(str(case[key]) for key in keys if key in case)


def cute(case: dict[str, Any]) -> Layout:
    """The layout that CUTLASS printed."""
    shape, stride = (eval(part.replace("_", "")) for part in case["layout"].split(":"))
    return Layout(shape, stride)


def lane_and_bit(address: int, unit: float) -> tuple[int, int]:
    """Where an address of so many bits a unit points to: lanes are 2^16 columns of 32 bits apart."""
    return divmod(int(address * unit), 32 << 16)


@pytest.mark.parametrize("case", RECORD["shared"], ids=name)
def test_canonical_layouts_lie_where_their_descriptors_say(case: dict[str, Any]) -> None:
    bits = int(case["descriptor"], 16)
    found = MatrixDescriptor.decode(bits, version=1)
    assert found.swizzle == case["swizzle"] and found.encode() == bits
    addresses = found.element_addresses(case["rows"], case["k"], case["bits"], case["major"])
    text = ",".join(map(str, addresses.reshape(-1)))
    assert hashlib.sha256(text.encode()).hexdigest()[:24] == case["digest"]


@pytest.mark.parametrize("case", cases("d"), ids=name)
def test_accumulators_lie_as_in_cutlass(case: dict[str, Any]) -> None:
    m, n, group, ws = (case[key] for key in ("m", "n", "cta_group", "ws"))
    lanes, columns = d_places(m, n, group, bool(ws))
    layout = cute(case)
    for row in range(lanes.shape[0]):
        for column in range(n):
            expected = lane_and_bit(layout(row, column), case["unit"])
            assert (lanes[row, column], 32 * columns[row, column]) == expected


@pytest.mark.parametrize("case", cases("a"), ids=name)
def test_a_lies_in_the_lanes_of_d(case: dict[str, Any]) -> None:
    layout, m = cute(case), case["m"]
    copies = case["size"][0] // (m // case["cta_group"])  # CUTLASS counts copies of A as rows
    lanes = d_places(m, 32, case["cta_group"])[0]
    for row in range(case["size"][0]):
        lane = lanes[row, 0] if copies == 1 else np.unique(lanes)[row]
        for k in range(case["n"]):
            column, bit = a_column(k, case["unit"])
            assert lane_and_bit(layout(row, k), case["unit"]) == (lane, 32 * column + bit)


@pytest.mark.parametrize("case", cases("metadata"), ids=name)
def test_metadata_lie_as_in_cutlass(case: dict[str, Any]) -> None:
    layout, bits = cute(case), case["unit"]
    group = METADATA[bits].group
    for row in range(128):
        for code in range(case["n"] // group):
            lane, column, bit = metadata_place(row, code, bits)
            expected = lane_and_bit(layout(row, code * group), METADATA_UNITS[bits])
            assert (lane, 32 * column + bit) == expected


@pytest.mark.parametrize("case", [*cases("scale a"), *cases("scale b")], ids=name)
def test_scale_factors_lie_as_in_cutlass(case: dict[str, Any]) -> None:
    layout = cute(case)
    rows = case["m"]
    for copy in range(4):  # one in each partition
        for row in range(rows):
            for factor in range(case["n"]):
                place = factor_place(row, factor, 0, 32 * copy)
                k = factor * (case["size"][1] // case["n"])
                expected = lane_and_bit(layout(row + copy * rows, k), 8)
                assert (place.lane, 32 * place.column + 8 * place.byte) == expected


@pytest.mark.parametrize("rows", [64, 128, 192, 256])
def test_further_scale_factors_lie_as_in_cutlass(rows: int) -> None:
    """The fragment through which CUTLASS's main loop for sm_103 (K = 96) steps: one factor after the other.

    tmem_sf_frg repeats an atom of 32 × (MN / 32) rows and one factor; MN is a multiple of 128. Bytes of a
    lane are 128 apart, and columns 512.
    """
    padded = -(-rows // 128) * 128
    atom = Layout((32, padded // 32, 4), (1, 512, 32))
    fragment = logical_product(atom, Layout(12))
    for row in range(rows):
        for factor in range(12):
            place = factor_place(row, factor, 0, 0, rows)
            offset = fragment((row % 32, row // 32, 0), factor)
            assert (place.lane, place.column, place.byte) == (offset % 128, offset // 512, offset // 128 % 4)


def test_scale_factors_of_halves_lie_where_their_columns_are_computed() -> None:
    (case,) = cases("scale b halved")
    layout, n = cute(case), case["m"]
    for region in regions(128, n, cta_group=2):
        for column in range(region.columns):
            place = factor_place(column, 1, 0, region.lane)
            k = case["size"][1] // case["n"]
            expected = lane_and_bit(layout(region.column + column, k), 8)
            assert (place.lane, 32 * place.column + 8 * place.byte) == expected


@pytest.mark.parametrize(
    ("m", "group", "ws"), [(64, 1, False), (128, 2, False), (256, 2, False), (32, 1, True)]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_no_two_elements_share_a_place(m: int, group: int, ws: bool, sparse: bool) -> None:
    lanes, columns = d_places(m, 64, group, ws, sparse)
    places = set(zip(lanes.reshape(-1).tolist(), columns.reshape(-1).tolist(), strict=True))
    assert len(places) == lanes.size and lanes.min() >= 0 and lanes.max() < LANES


def test_an_m_that_a_form_lacks_is_an_error() -> None:
    with pytest.raises(LanewiseError, match=re.escape("cta_group::1 has no M of 256")):
        data_path(256, 1, ws=False, sparse=False)


@pytest.mark.parametrize(
    ("bits", "reason"),
    [
        (0x4000_0040_0000_0040, "version of tcgen05"),
        (3 << 61 | 1 << 46, "swizzle mode of the matrix descriptor (bits 61 to 63) is 3"),
        (1 << 46 | 1 << 55, "bits 53 to 60"),
        (1 << 46 | 1 << 52, "absolute address"),
    ],
)
def test_descriptors_that_are_none_say_why(bits: int, reason: str) -> None:
    assert reason in tcgen05_fault(bits)
    with pytest.raises(LanewiseError, match=re.escape(reason)):
        MatrixDescriptor.decode(bits, version=1)


def test_factors_of_a_row_begin_where_they_do_not_pass_a_column() -> None:
    assert [first_bytes(each) for each in (1, 2, 4)] == [(0, 1, 2, 3), (0, 2), (0,)]
