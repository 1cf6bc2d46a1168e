"""Shapes of tcgen05.ld, st and cp: the tables against the layouts that CUTLASS's copy traits print."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest

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
