"""Pictures of tensor maps and matrix descriptors say where TMA writes and wgmma reads each 16 bytes."""

import numpy as np
import pytest

import lanewise as lw
from draw.picture_reader import read_svg
from lanewise import draw
from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import MatrixDescriptor
from lanewise.isa.tensor_map import TiledTensor


def test_a_box_lies_as_cutes_swizzle_has_it() -> None:
    tensor_map = lw.tensor_map(np.zeros((256, 64), np.float16), (16, 64), swizzle="128B")
    panel = read_svg(draw.svg(tensor_map)).panels["memory"]
    swizzle = lw.Swizzle(3, 4, 3)
    for row in range(16):
        for piece in range(8):
            place = swizzle(128 * row + 16 * piece)
            assert panel.labels[place // 128, place % 128 // 16] == [str(row), f"{8 * piece}–{8 * piece + 7}"]


def test_rows_of_a_narrow_box_have_gaps_and_outer_axes_their_coordinates() -> None:
    tensor = TiledTensor("f16", (200, 100, 9), (400, 40000), (24, 8, 2), (1, 1, 1), swizzle="64B")
    picture = read_svg(draw.svg(tensor))
    panel = picture.panels["memory"]
    assert panel.labels[0, 0] == ["0,0", "0–7"] and (0, 3) not in panel.labels
    assert panel.labels[4, 4] == ["1,1", "0–7"]
    assert any("A row has 48 bytes and takes 64" in word for word in picture.words)


def test_boxes_at_the_edge_say_how_much_lies_inside() -> None:
    panel = read_svg(draw.svg(lw.tensor_map(np.zeros((1000, 200), np.float16), (16, 64)))).panels["tensor"]
    assert panel.caption == "the tensor in 63×4 boxes"
    assert panel.labels[0, 3] == ["16×8"] and panel.labels[6, 0] == ["8×64"] and panel.labels[5, 1] == ["…"]
    assert panel.rows == ["0", "16", "32", "48", "64", "…", "992"]


def test_one_axis_and_interleaved_layouts() -> None:
    assert "the tensor in 4 boxes" in draw.text(TiledTensor("u8", (100,), (), (32,), (1,)))
    tensor = TiledTensor("u8", (64, 8, 8), (64, 512), (16, 4, 4), (2, 1, 1), interleave="32B", swizzle="32B")
    assert (tensor.copied, tensor.box_bytes) == ((8, 1, 4), 8 * 4 * 32)
    panel = read_svg(draw.svg(tensor)).panels["memory"]
    assert panel.labels[0, 0] == panel.labels[0, 1] == ["0,0", "0"] and panel.labels[2, 0] == ["1,0", "0"]


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("major", ["K", "MN"])
def test_a_descriptor_shows_the_address_of_every_piece(swizzle: str, major: str) -> None:
    descriptor = MatrixDescriptor(0x2000, 16384, 1024, swizzle=swizzle)
    matrix = draw.described_matrix(descriptor, 64, 16, 16, major)
    addresses = descriptor.element_addresses(64, 16, 16, matrix.major)
    picture = read_svg(draw.svg(matrix))
    lines = picture.panels["operand"].labels
    first = int(picture.panels["memory"].rows[0], 16)
    for (line, piece), (address, _) in lines.items():
        row, k = (line, 8 * piece) if major == "K" else (8 * piece, line)
        assert int(address, 16) == addresses[row, k]
        cell = divmod(int(address, 16) - first, 128)
        held = picture.panels["memory"].labels.get((cell[0], cell[1] // 16))
        assert held is None or held == [
            f"{'r' if major == 'K' else 'k'}{line}",
            f"{8 * piece}–{8 * piece + 7}",
        ]


def test_pieces_that_lie_on_one_another_are_marked() -> None:
    picture = read_svg(draw.svg(draw.described_matrix(MatrixDescriptor(0, 0, 128))))
    assert picture.panels["memory"].labels[0, 0] == ["r0", "0–7+"]


def test_in_notebooks_and_refusals() -> None:
    tensor_map = lw.tensor_map(np.zeros((64, 64), np.float32), (8, 32))
    svg = tensor_map._repr_svg_()
    assert svg is not None and svg == tensor_map.tensor._repr_svg_()
    assert (MatrixDescriptor(0, 0, 1024, swizzle="128B")._repr_svg_() or "").startswith("<svg")
    for options, words in (
        ({"bits": 12}, "elements of wgmma have"),
        ({"rows": 63}, "rows=63: give a multiple of 8"),
        ({"k": 4}, "k=4: give a multiple of 8"),
        ({"major": "M"}, '"K"-major or "MN"-major'),
    ):
        with pytest.raises(LanewiseError, match=words):
            draw.described_matrix(0, **options)
    with pytest.raises(LanewiseError, match="lane=3 means nothing for a tensor map"):
        draw.svg(tensor_map, lane=3)
    with pytest.raises(LanewiseError, match="is a multiple of 16 bytes"):
        draw.svg(TiledTensor("f16", (64,), (), (7,), (1,)))
