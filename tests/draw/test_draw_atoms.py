"""Pictures of atoms and tilings: each element under the threads whose partitions have it."""

from collections import defaultdict
from typing import Any

import pytest

from draw.picture_reader import numbers, read_svg, read_text
from everything import sampled
from lanewise.atoms import (
    atom,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_mma,
)
from lanewise.draw import latex, svg, text
from lanewise.errors import LanewiseError
from lanewise.layout import Layout, make_identity_tensor, size

SM80 = "SM80_16x8x16_F32F16F16F32_TN"
MMAS = [
    atom(SM80),
    atom("SM80_8x8x4_F64F64F64F64_TN"),
    atom("SM70_8x8x4_F32F16F16F32_NT"),
    make_tiled_mma("SM70_8x8x4_F16F16F16F16_TN", (2, 2, 1)),
    make_tiled_mma(SM80, (2, 2, 1), (32, 32, 16)),
    make_tiled_mma(SM80, (1, 2, 2)),
    make_tiled_mma("SM80_16x8x8_F32TF32TF32F32_TN", (2, 1, 1), (32, Layout((2, 8), (8, 1)), 8)),
]
COPIES = [
    make_tiled_copy("UniversalCopy<uint32_t>", Layout((8, 4), (4, 1)), Layout((2, 2), (2, 1)), "half_t"),
    make_tiled_copy("UniversalCopy<uint128_t>", Layout((16, 8), (8, 1)), Layout((1, 8)), "half_t"),
    make_tiled_copy("UniversalCopy<uint32_t>", Layout(8), Layout(2), "half_t"),
    make_tiled_copy_A("SM75_U32x4_LDSM_N", make_tiled_mma(SM80, (2, 1, 1), (32, 16, 16))),
    make_tiled_copy_B("SM75_U32x2_LDSM_N", make_tiled_mma(SM80, (1, 2, 1))),
]


def owned(parts: dict[Any, Any]) -> tuple[Any, ...]:
    """The threads that have each element, and as which of their values, from {thread: coordinates}."""
    threads, values = defaultdict(set), defaultdict(set)
    for thread, part in parts.items():
        for value, at in enumerate(part):
            threads[at].add(thread)
            values[at].add(value)
    return threads, values


def check_panel(labels: dict[Any, Any], parts: dict[Any, Any]) -> None:
    threads, values = owned(parts)
    assert set(labels) == set(threads)
    for at, (lanes, value) in labels.items():
        assert lanes[0] == "T" and value[0] == "V"
        assert numbers(lanes) == threads[at]
        assert numbers(value) == values[at]


def parts_of_mma(mma: Any) -> dict[Any, Any]:
    m, n, k = mma.tile_size_mnk
    slices = {t: mma.get_slice(t) for t in map(mma.thr_layout_vmnk, range(size(mma.thr_layout_vmnk)))}
    return {
        "A": {t: list(s.partition_A(make_identity_tensor((m, k)))) for t, s in slices.items()},
        "B": {t: [at[::-1] for at in s.partition_B(make_identity_tensor((n, k)))] for t, s in slices.items()},
        "C, D": {t: list(s.partition_C(make_identity_tensor((m, n)))) for t, s in slices.items()},
    }


@sampled(8)
@pytest.mark.parametrize("mma", MMAS, ids=repr)
def test_mma_panels_are_the_partitions_of_all_threads(mma: Any) -> None:
    picture = read_svg(svg(mma))
    parts = parts_of_mma(mma)
    assert set(picture.panels) == set(parts)
    for name, of_threads in parts.items():
        check_panel(picture.panels[name].labels, of_threads)
    assert repr(mma) in picture.words


def test_text_of_a_tiled_mma() -> None:
    mma = MMAS[6]
    parts = parts_of_mma(mma)
    for name in "ABC":
        (cells,) = read_text(text(mma, operand=name)).values()
        labels = {at: label.split() for at, label in cells.items()}
        check_panel(labels, parts["C, D" if name == "C" else name])


def test_an_atom_looks_like_its_instruction() -> None:
    mma = atom(SM80)
    drawn, instruction = (read_svg(svg(x)).panels for x in (mma, mma.instruction))
    for name in ("A", "B", "C, D"):
        assert drawn[name].labels == instruction[name].labels
        assert drawn[name].colours == instruction[name].colours


def test_wgmma_leaves_descriptors_empty() -> None:
    mma = make_tiled_mma("SM90::GMMA::MMA_64x8x16_F32F16F16_SS")
    panels = read_svg(svg(mma)).panels
    assert panels["A"].labels == panels["B"].labels == {}
    assert len(panels["C, D"].labels) == 64 * 8
    from_registers = read_svg(svg(make_tiled_mma("SM90::GMMA::MMA_64x8x16_F32F16F16_RS"))).panels
    assert len(from_registers["A"].labels) == 64 * 16


def test_every_operation_of_cutlass_families_draws() -> None:
    for name in (
        "SM75_8x8x16_S32S8S8S32_TN",
        "SM80_16x8x256_S32U1U1S32_TN_XORPOPC",
        "SM80_8x8x4_C64C64C64C64_TN",
        "SM89_16x8x32_F32E4M3E5M2F32_TN",
        "SM90::GMMA::SPARSE::GMMA_64x8x32_F32F16F16_RS",
    ):
        assert svg(atom(name), labels=False, hover=False).startswith("<svg ")


def parts_of_copy(copy: Any, side: str) -> dict[Any, Any]:
    tile = copy.tile_mn
    coordinates = make_identity_tensor(tile)
    parts = {}
    for thread in range(copy.size()):
        share = copy.get_slice(thread)
        part = share.partition_S(coordinates) if side == "S" else share.partition_D(coordinates)
        parts[thread] = [at if len(tile) == 2 else (0, *at) for at in part]
    return parts


@pytest.mark.parametrize("copy", COPIES, ids=repr)
def test_copy_panels_are_the_partitions_of_all_threads(copy: Any) -> None:
    panels = read_svg(svg(copy)).panels
    check_panel(panels["D"].labels, parts_of_copy(copy, "D"))
    source = parts_of_copy(copy, "S")
    if copy.instruction is not None:  # only the lanes whose address is looked at
        rows = copy.instruction.row_addresses.rows
        source = {thread: part for thread, part in source.items() if thread % 32 < rows}
    check_panel(panels["S"].labels, source)


@pytest.mark.parametrize(
    "name", ["SM75_U32x1_LDSM_N", "SM75_U32x4_LDSM_N", "SM75_U16x4_LDSM_T", "SM90_U32x2_STSM_N"]
)
def test_a_matrix_copy_shows_rows_on_one_side_and_the_fragment_on_the_other(name: str) -> None:
    copy = atom(name, "half_t")
    panels = read_svg(svg(copy)).panels
    memory, registers = ("S", "D") if copy.instruction.family == "ldmatrix" else ("D", "S")
    (operand,) = copy.instruction.operands.values()
    for row in range(operand.rows):
        for col in range(operand.cols):
            assert panels[memory].labels[row, col] == [
                f"T{copy.instruction.row_addresses.lane(row)}",
                f"V{col}",
            ]
            held = operand.holder(row, col)
            value = held.register * operand.slots + held.slot
            assert panels[registers].labels[row, col] == [f"T{held.lane}", f"V{value}"]


def test_a_plain_copy_is_a_row() -> None:
    panels = read_svg(svg(atom("UniversalCopy<uint128_t>", "half_t"))).panels
    assert panels["S"].labels == panels["D"].labels == {(0, v): ["T0", f"V{v}"] for v in range(8)}


def test_a_thread_and_an_element_stand_out() -> None:
    mma = MMAS[6]
    picture = read_svg(svg(mma, lane=37, element=("D", 17, 9)))
    for name, parts in parts_of_mma(mma).items():
        panel = picture.panels[name]
        assert set(panel.labels) - panel.faded == set(parts[37])
    assert picture.panels["C, D"].marks == [(17, 9)]
    assert read_svg(svg(COPIES[0], operand="S", element=("S", 3, 4))).panels["S"].marks == [(3, 4)]


def test_what_is_too_large_or_not_there_is_explained() -> None:
    large = make_tiled_mma(SM80, (2, 2, 1), (128, 128, 32))
    assert svg(large).count("<tspan") > 2 * (128 * 128 + 2 * 128 * 32)
    with pytest.raises(LanewiseError, match=r"A is 128×32.*64×64.*SVG"):
        latex(large)
    with pytest.raises(LanewiseError, match="256×256"):
        svg(make_tiled_mma(SM80, (1, 1, 1), (512, 8, 16)))
    with pytest.raises(LanewiseError, match="A, B, C and D"):
        svg(large, operand="E")
    with pytest.raises(LanewiseError, match="source"):
        svg(COPIES[0], operand="A")
    with pytest.raises(LanewiseError, match="0 to 127"):
        svg(large, lane=128)
