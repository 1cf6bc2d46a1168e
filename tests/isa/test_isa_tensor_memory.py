<<<<<<< HEAD
"""Shapes of tcgen05.ld, st and cp: the tables against the layouts that CUTLASS's copy traits print."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
=======
"""Layouts of tcgen05's matrices against CUTLASS, whose own were compiled and printed (see the record)."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any
>>>>>>> tensorcore

import numpy as np
import pytest

<<<<<<< HEAD
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.isa.asynchronous.table import rows
from lanewise.isa.tensor_memory import copy_shapes, load_shapes
from lanewise.layout import Layout

RECORD = json.loads((Path(__file__).parent / "cutlass_tensor_copies.json").read_text())
LANE = RECORD["bits_of_a_lane"]
#: Bits that are looked at one in so many: those of a word lie together.
WORD = 32
MOVES = re.compile(r"SM100_TMEM_(?:LOAD|STORE)_(\d+)dp(\d+)b(\d+)x(_16b)?")
#: CUTLASS's names of the copies, with PTX's.
COPIES = {
    "128dp256bit": "128x256b",
    "128dp128bit": "128x128b",
    "4dp256bit": "4x256b",
    "2x64dp128bitlw0213": "64x128b.warpx2::02_13",
    "2x64dp128bitlw0123": "64x128b.warpx2::01_23",
    "4x32dp128bit": "32x128b.warpx4",
}


def layouts(name: str) -> tuple[Layout, Layout]:
    """The two layouts of a record."""
    values, threads = (
        Layout(*(ast.literal_eval(part) for part in text.split(":"))) for text in RECORD["layouts"][name]
    )
    return values, threads


@pytest.mark.parametrize("name", [name for name in RECORD["layouts"] if MOVES.match(name)])
def test_loads_and_stores_hold_the_words_that_cutlass_says(name: str) -> None:
    match = MOVES.match(name)
    assert match is not None
    lanes, bits, num, packed = int(match[1]), int(match[2]), int(match[3]), bool(match[4])
    shape = load_shapes.SHAPES[{(16, 32): "16x32bx2"}.get((lanes, bits), f"{lanes}x{bits}b")]
    count = shape.registers_of(num)
    held, columns = shape.places(num, packed, shape.columns_of(num, packed))
    values, threads = layouts(name)
    chosen = sorted({0, count - 1, *(1 << n for n in range(8) if 1 << n < count), count // 3})
    for thread in (0, 1, 2, 4, 8, 16, 27, 31):  # the bits of a thread's number, and some together
        for register in chosen:
            for half in range(2):
                address = values(threads(thread, 32 * register + 16 * half))
                lane, bit = divmod(address, LANE)
                assert lane == held[thread, register]
                wanted = columns[thread, register] * 32 + (32 if packed else 16) * half
                assert bit == wanted, (thread, register, half)


@sampled(3)
@pytest.mark.parametrize("name", [name for name in RECORD["layouts"] if "UTCCP" in name])
def test_copies_go_to_the_lanes_that_cutlass_says(name: str) -> None:
    shape = copy_shapes.SHAPES[COPIES[name.split("_")[2]]]
    values, source = layouts(name)
    # (row and bit) of the source, for each place of the target; 4x256b is told the other way round.
    targets: dict[tuple[int, int], set[tuple[int, int]]] = {}
    if shape.name == "4x256b":
        for number in (each for each in range(4 * 256) if each // 4 % WORD == 0):
            lane, bit = divmod(values(source(0, number)), LANE)
            targets.setdefault((number % 4, number // 4), set()).add((lane, bit))
    else:
        # CUTLASS numbers rows first; of two parts of 32 rows each part by itself.
        part = 4096 if "lw0123" in name else shape.rows * shape.bits
        rows_of_part = 32 if "lw0123" in name else shape.rows
        for number in (each for each in range(values.size()) if each // rows_of_part % WORD == 0):
            row_and_bit = source(0, number)
            inside, which = row_and_bit % part, row_and_bit // part
            row = inside % rows_of_part + 32 * which
            lane, bit = divmod(values(number), LANE)
            targets.setdefault((row, inside // rows_of_part), set()).add((lane, bit))
    assert len(targets) == shape.rows * shape.bits // WORD
    for (row, bit), places in targets.items():
        assert places == {(lane, bit) for lane in shape.lanes_of(row)}


def test_every_form_of_the_catalogue_has_a_shape() -> None:
    texts = [text for row in rows() for text in row.texts()]
    for text in texts:
        words = text.split(".")
        if words[1] in ("ld", "st"):
            shape = next(load_shapes.SHAPES[each] for each in words if each in load_shapes.SHAPES)
            num = next(int(each[1:]) for each in words if re.fullmatch(r"x\d+", each))
            assert 1 <= shape.registers_of(num) <= 128
        elif words[:2] == ["tcgen05", "cp"]:
            assert any(set(name.split(".")) <= set(words) for name in copy_shapes.SHAPES)


def test_shapes_are_repeated_as_often_as_registers_allow() -> None:
    with pytest.raises(LanewiseError, match=r"\.16x128b is repeated .* up to \.x64, not \.x128"):
        load_shapes.SHAPES["16x128b"].registers_of(128)
    with pytest.raises(LanewiseError, match=r"not \.x3"):
        load_shapes.SHAPES["32x32b"].layout(3)


@pytest.mark.parametrize("name", copy_shapes.EXPANSIONS)
def test_expanded_elements_lose_nothing(name: str) -> None:
    """Every element of a piece stands in its byte, the others are not touched, and padding counts nothing."""
    expansion = copy_shapes.EXPANSIONS[name]
    rng = np.random.default_rng(3)
    elements = rng.integers(0, 1 << expansion.bits, (5, 16))
    numbers = [sum(int(v) << expansion.bits * n for n, v in enumerate(row)) for row in elements]
    padding = [int(rng.integers(1, 1 << 30)) << 16 * expansion.bits for _ in numbers]
    whole = [(number | pad) & (1 << 128) - 1 for number, pad in zip(numbers, padding, strict=True)]
    pieces = np.array([list(each.to_bytes(16, "little")) for each in whole], np.uint8)
    np.testing.assert_array_equal(expansion.expand(pieces), elements << expansion.first_bit)
=======
from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import MatrixDescriptor, tcgen05_fault
from lanewise.isa.tensor_memory.accumulators import (
    LANES,
    METADATA,
    a_column,
    d_places,
    data_path,
    metadata_place,
    regions,
)
from lanewise.isa.tensor_memory.scale_factors import factor_place, factors_per_row, first_bytes
from lanewise.layout import Layout

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


def test_factors_per_row_follow_the_words() -> None:
    assert factors_per_row("mxf8f6f4", ("block_scale",)) == 1
    assert factors_per_row("mxf4nvf4", ("block_scale", "scale_vec::4X")) == 4
    assert [first_bytes(each) for each in (1, 2, 4)] == [(0, 1, 2, 3), (0, 2), (0,)]
>>>>>>> tensorcore
