"""Pictures of layouts and tensors: the index, element or owner of every coordinate, in its place."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draw.picture_reader import numbers, read_svg, read_text
from everything import examples
from lanewise.draw import svg, text, tv
from lanewise.isa import instruction
from lanewise.layout import Layout, Swizzle, Tensor, composition, make_identity_layout, product

LAYOUTS = [
    Layout((4, 8), (8, 1)),
    Layout(((2, 2), (2, 4)), ((1, 4), (2, 8))),
    Layout((3, 5), (-1, 7)),
    Layout((2, 4), (0, 1)),
    Layout(12, 2),
    Layout((6,), (3,)),
    Layout(()),
    Layout((4, 2, 3)),
    Layout((2, (2, 2), 3, 2), (1, (40, 2), 7, 100)),
    composition(Swizzle(2, 0, 3), Layout((8, 8), (8, 1))),
    composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))),
]


def expected(layout: Any) -> dict[Any, Any]:
    """Mode 0 down, the linear coordinate of the rest across; a lone mode across."""
    shape = layout.shape
    size = layout.size()
    rows = product(shape[0]) if isinstance(shape, tuple) and len(shape) > 1 else 1
    return {(c % rows, c // rows): str(layout(c)) for c in range(size)}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_coordinate_shows_its_index(layout: Any) -> None:
    picture = read_svg(svg(layout))
    (panel,) = picture.panels.values()
    assert {at: label for at, (label,) in panel.labels.items()} == expected(layout)
    (cells,) = read_text(text(layout)).values()
    assert cells == expected(layout)
    assert any(str(layout) in word for word in picture.words)


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_any_small_layout(data: Any) -> None:
    modes = data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(-9, 99)), min_size=1, max_size=4))
    layout = Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))
    (panel,) = read_svg(svg(layout)).panels.values()
    assert {at: label for at, (label,) in panel.labels.items()} == expected(layout)


def test_one_is_no_plural() -> None:
    assert "8 coordinates, 1 different index, 0 to 0" in text(Layout((2, 4), (0, 0)))
    assert "1 coordinate, 1 different index, 0 to 0" in text(Layout(1))


def test_coordinates_as_values() -> None:
    (panel,) = read_svg(svg(make_identity_layout((3, 4)))).panels.values()
    assert panel.labels[2, 3] == ["(2,3)"]


def test_plain_layouts_are_grey_by_index_and_swizzled_ones_show_what_moves() -> None:
    (plain,) = read_svg(svg(Layout((4, 8), (8, 1)))).panels.values()
    shades = [plain.colours.get((0, col), "#ffffff") for col in range(8)]
    assert len(set(shades)) == 8 and all(s[1:3] == s[3:5] == s[5:7] for s in shades)
    (swizzled,) = read_svg(svg(composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))))).panels.values()
    for col in range(0, 64, 8):  # every chunk of a column went another way, and a chunk stays together
        assert len({swizzled.colours[row, col] for row in range(8)}) == 8
        assert all(len({swizzled.colours[row, col + i] for i in range(8)}) == 1 for row in range(8))


def test_tensors_show_their_elements() -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4) / 4
    (panel,) = read_svg(svg(Tensor(data))).panels.values()
    for row in range(3):
        for col in range(4):
            assert float(panel.labels[row, col][0]) == data[row, col]
    (pointer,) = read_svg(svg(Tensor(1000, Layout((2, 3))))).panels.values()
    assert pointer.labels[1, 2] == ["1005"]


def test_strange_elements_make_no_broken_document() -> None:
    strange = Tensor(["<&>", 'a"b', "x\ny", "\x00\ud800", "]]>", "\\{}"], Layout((2, 3)))
    (panel,) = read_svg(svg(strange)).panels.values()
    assert panel.labels[0, 0] == ["<&>"] and panel.labels[1, 2] == ["\\{}"]
    assert text(strange).count("x?y") == 1


@pytest.mark.parametrize("name", ["a", "c"])
def test_tv_layouts_show_the_owner_of_each_element(name: str) -> None:
    operand = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands[name]
    owned = tv(operand.layout, operand.shape)
    (panel,) = read_svg(svg(owned)).panels.values()
    (cells,) = read_text(text(owned)).values()
    for row in range(operand.rows):
        for col in range(operand.cols):
            held = operand.holder(row, col)
            label = [f"T{held.lane}", f"V{held.register * operand.slots + held.slot}"]
            assert panel.labels[row, col] == label == cells[row, col].split()
    assert owned._repr_svg_() == svg(owned)


def test_tv_layouts_that_leave_out_or_repeat_elements() -> None:
    (panel,) = read_svg(svg(tv(Layout((4, 2), (2, 16)), (8, 4)))).panels.values()
    assert len(panel.labels) == 8 and panel.labels[2, 2] == ["T1", "V1"]
    (panel,) = read_svg(svg(tv(Layout(((4, 2), 2), ((0, 1), 2)), (2, 2)))).panels.values()
    assert numbers(panel.labels[1, 0][0]) == {4, 5, 6, 7}
