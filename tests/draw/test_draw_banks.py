"""Bank maps: banks by address arithmetic, and the wavefronts of ldmatrix by counting words bank by bank."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draw.picture_reader import numbers, read_svg
from everything import examples
from lanewise.draw import bank_map, svg, text
from lanewise.errors import LanewiseError
from lanewise.layout import Layout, Swizzle, composition


def turns(layout: Any, bits: int, cells: list[Any]) -> int:
    """Wavefronts of one access to these cells: words of different address in one bank wait for each other."""
    words = defaultdict(set)
    for i, j in cells:
        for bit in range(layout(i, j) * bits, (layout(i, j) + 1) * bits, 8):
            words[bit // 32 % 32].add(bit // 32)
    return max(map(len, words.values()))


def check_conflicts(layout: Any, bits: int) -> None:
    rows, cols = (layout[i].size() for i in (0, 1))
    mapped = bank_map(layout, bits)
    chunk = 128 // bits
    assert mapped.across
    for group, line in enumerate(mapped.conflicts):
        for column, ways in enumerate(line):
            phase = [
                (i, j)
                for i in range(8 * group, min(8 * group + 8, rows))
                for j in range(chunk * column, chunk * column + chunk)
            ]
            assert ways == turns(layout, bits, phase)
    assert len(mapped.conflicts[0]) * chunk == cols


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_conflicts_are_what_counting_words_gives(data: Any) -> None:
    bits = data.draw(st.sampled_from([8, 16, 32]))
    chunk = 128 // bits
    rows = data.draw(st.sampled_from([4, 8, 16]))
    chunks = data.draw(st.sampled_from([1, 2, 4, 8]))
    padding = data.draw(st.integers(0, 3))
    layout = Layout((rows, chunks * chunk), ((chunks + padding) * chunk, 1))
    swizzle_bits = data.draw(st.integers(0, 3))
    check_conflicts(composition(Swizzle(swizzle_bits, chunk.bit_length() - 1, 3), layout), bits)


def test_well_known_cases() -> None:
    tile = Layout((8, 64), (64, 1))
    assert bank_map(tile, 16).conflicts == [[8] * 8]
    assert bank_map(composition(Swizzle(3, 3, 3), tile), 16).conflicts == [[1] * 8]
    assert bank_map(Layout((8, 64), (72, 1)), 16).conflicts == [[1] * 8]
    assert bank_map(composition(Swizzle(2, 3, 3), Layout((8, 32), (32, 1))), 16).conflicts == [[1] * 4]
    assert bank_map(Layout((8, 32), (32, 1)), 16).conflicts == [[4] * 4]
    assert bank_map(Layout((8, 64), (0, 1)), 16).conflicts == [[1] * 8]  # one address for all is no conflict


def test_a_column_major_tile_is_its_transpose() -> None:
    row_major = composition(Swizzle(3, 3, 3), Layout((16, 64), (64, 1)))
    column_major = composition(Swizzle(3, 3, 3), Layout((64, 16), (1, 64)))
    across, down = bank_map(row_major, 16), bank_map(column_major, 16)
    assert across.across and down.across is False
    assert [list(line) for line in zip(*down.conflicts, strict=True)] == across.conflicts


@pytest.mark.parametrize("bits", [4, 8, 16, 32, 64, 128])
def test_elements_show_bank_and_byte(bits: int) -> None:
    layout = composition(Swizzle(2, 3, 3), Layout((8, 32), (32, 1)))
    panel = read_svg(svg(bank_map(layout, bits, unit="element"))).panels["banks"]
    for i in range(8):
        for j in range(32):
            bank, byte = panel.labels[i, j]
            first, last = layout(i, j) * bits, (layout(i, j) + 1) * bits - 1
            assert numbers(bank) == {word % 32 for word in range(first // 32, last // 32 + 1)}
            assert float(byte[1:]) == first / 8


@pytest.mark.parametrize("transposed", [False, True])
def test_chunks_show_their_four_banks_and_phases_their_turns(transposed: bool) -> None:
    rows, cols = (64, 16) if transposed else (16, 64)
    plain = Layout((rows, cols), (1, rows) if transposed else (cols, 1))
    layout = composition(Swizzle(1, 3, 3), plain)
    mapped = bank_map(layout, 16)
    panels = read_svg(svg(mapped)).panels
    down, over = (8, 1) if transposed else (1, 8)
    assert panels["banks"].extent == (rows // down, cols // over)
    for (i, j), (banks, byte) in panels["banks"].labels.items():
        address = layout(i * down, j * over) * 2
        assert int(byte[1:]) == address
        assert numbers(banks) == {(address // 4 + w) % 32 for w in range(4)}
    drawn = {at: int(label.rstrip("×")) for at, (label,) in panels["phases"].labels.items()}
    assert drawn == {(i, j): w for i, line in enumerate(mapped.conflicts) for j, w in enumerate(line)}
    assert set(drawn.values()) == {4}


def test_a_phase_stands_out() -> None:
    layout = Layout((16, 64), (64, 1))
    panels = read_svg(svg(bank_map(layout, 16, phase=(1, 2)))).panels
    assert set(panels["banks"].labels) - panels["banks"].faded == {(row, 2) for row in range(8, 16)}
    assert panels["phases"].marks == [(1, 2)]


def test_layouts_without_chunks_are_drawn_by_elements() -> None:
    loose = Layout((8, 8), (24, 3))
    mapped = bank_map(loose, 16)
    assert mapped.across is None
    assert set(read_svg(svg(mapped)).panels) == {"banks"}
    assert "cannot read" in text(mapped)
    with pytest.raises(LanewiseError, match="16 bytes"):
        _ = mapped.conflicts
