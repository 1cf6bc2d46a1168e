"""Pictures of instructions and operands: every element once, under the lane that holds it."""

import re
from typing import Any

import pytest

from draw.picture_reader import numbers, read_svg, read_text
from everything import sampled
from lanewise import LanewiseError
from lanewise.draw import svg, text
from lanewise.isa import FAMILIES, instruction, instructions
from lanewise.isa.asynchronous import async_instructions
from lanewise.isa.asynchronous.descriptor import legal_shapes, product_of

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TEXTS = [
    MMA,
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "wmma.mma.sync.aligned.row.col.m8n32k16.f16.f16",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16",
    "wmma.store.d.sync.aligned.row.m32n8k16.f32",
]
WGMMA = [
    ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", "registers"),
    ("wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e5m2", "descriptor"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16", "registers"),
]


def panel_names(instruction: Any) -> dict[Any, Any]:
    """Which panel an operand is in: C and D share one where nothing tells them apart."""
    operands = instruction.operands
    shared = {"c", "d"} <= set(operands) and (operands["c"].layout, operands["c"].format) == (
        operands["d"].layout,
        operands["d"].format,
    )
    return {key: "C, D" if shared and key in "cd" else operand.name for key, operand in operands.items()}


def holds_as_drawn(operand: Any, labels: dict[Any, Any], product: int = 0) -> None:
    """The law: the label of every element names exactly the lanes and values that hold it."""
    if operand.where != "registers":
        assert labels == {}
        return
    assert set(labels) == {(row, col) for row in range(operand.rows) for col in range(operand.cols)}
    for (row, col), (lanes, values) in labels.items():
        held = operand.holders(row, col, product)
        assert lanes[0] == "T" and numbers(lanes) == {h.lane for h in held}
        assert values[0] == "V" and numbers(values) == {h.register * operand.slots + h.slot for h in held}


def check_picture(inst: Any, **options: Any) -> Any:
    picture = read_svg(svg(inst, **options))
    names = panel_names(inst)
    assert set(picture.panels) == set(names.values())
    for key, operand in inst.operands.items():
        panel = picture.panels[names[key]]
        assert panel.extent == operand.shape
        assert panel.rows == [str(i) for i in range(operand.rows)]
        holds_as_drawn(operand, panel.labels, options.get("product", 0))
    assert inst.text in picture.words
    return picture


@sampled(4)
@pytest.mark.parametrize("spelling", TEXTS)
def test_svg_shows_who_holds_every_element(spelling: str) -> None:
    check_picture(instruction(spelling))


@sampled(4)
@pytest.mark.parametrize(("spelling", "a_source"), WGMMA)
def test_svg_of_wgmma(spelling: str, a_source: str) -> None:
    check_picture(instruction(spelling, a_source=a_source))


@pytest.mark.parametrize(
    ("spelling", "m", "n"), [("tcgen05 m64n8 f16", 64, 8), ("umma m128n16 pair f16", 128, 16)]
)
def test_tensor_memory_is_drawn_by_lane_and_column(spelling: str, m: int, n: int) -> None:
    """From the PTX ISA: M = 64 has 16 rows in each partition, a pair's M = 128 two halves of columns."""
    panels = read_svg(svg(instruction(spelling).d)).panels
    cells = [panel for name, panel in panels.items() if name.startswith("D")]
    for row in range(m):
        for col in range(n):
            if m == 64:
                block, lane, column = 0, row // 16 * 32 + row % 16, col
            else:  # a block of the pair has 64 rows, with halves of their columns in halves of the lanes
                block, lane, column = row // 64, row % 64 + col // (n // 2) * 64, col % (n // 2)
            assert cells[block].labels[row % (m // len(cells)), col] == [f"L{lane}", f"C{column}"]
    assert "tensor memory" in text(instruction(spelling)) and "<svg" in svg(instruction(spelling).d)


def test_a_pair_is_drawn_as_two_blocks() -> None:
    mma = instruction("umma m256n32k16 bf16")
    panels = read_svg(svg(mma)).panels
    for name, rows, cols in (("A", 128, 16), ("B", 16, 16), ("C, D", 128, 32)):
        for block in range(2):
            assert panels[f"{name}, block {block}"].extent == (rows, cols)
    assert panels["C, D, block 1"].rows[5] == "133" and panels["B, block 1"].cols[3] == "19"
    marked = read_svg(svg(mma, element=("D", 133, 19), inputs=True)).panels
    assert marked["C, D, block 1"].marks == [(5, 19)] and not marked["C, D, block 0"].marks
    assert {row for row, _ in marked["A, block 1"].marks} == {5} and not marked["A, block 0"].marks
    assert {col for _, col in marked["B, block 1"].marks} == {3} and not marked["B, block 0"].marks


#: From the figures of the PTX ISA: thread and register of lane 9, column 3, and of lane 2, column 6.
LOADS = {
    "tcgen05.ld.sync.aligned.32x32b.x8.b32": [(9, 3), (2, 6)],
    "tcgen05.ld.sync.aligned.16x64b.x4.b32": [(7, 1), (8, 3)],
    "tcgen05.st.sync.aligned.16x128b.x2.b32": [(7, 1), (10, 2)],
    "tcgen05.st.sync.aligned.16x256b.x1.b32": [(5, 3), (11, 0)],
    "tcgen05.ld.sync.aligned.32x32b.x8.pack::16b.b32": [(9, 1), (2, 3)],
}


@pytest.mark.parametrize("form", LOADS)
def test_a_load_is_drawn_by_thread_and_register(form: str) -> None:
    (panel,) = read_svg(svg(instruction(form))).panels.values()
    for place, (thread, register) in zip([(9, 3), (2, 6)], LOADS[form], strict=True):
        assert panel.labels[place] == [f"T{thread}", f"R{register}"]


def test_a_copy_is_drawn_with_the_lanes_of_each_row() -> None:
    panels = read_svg(svg(instruction("tcgen05.cp.cta_group::1.64x128b.warpx2::01_23"))).panels
    for lane, row in ((5, 5), (37, 5), (69, 37), (101, 37)):  # rows 0 to 31 go to warps 0 and 1
        assert panels["tensor memory"].labels[lane, 0] == [f"r{row}", "p0"]
    assert panels["shared memory"].extent == (64, 1) and panels["tensor memory"].extent == (128, 1)


#: Forms of tcgen05 that differ in what is drawn.
TENSOR_FORMS = [
    each.text
    for each in async_instructions()
    if each.family.startswith("tcgen05") and not re.search("collector|ashift|ld.red", each.text)
]


@sampled(30)
@pytest.mark.parametrize("form", TENSOR_FORMS)
def test_every_form_of_tcgen05_has_a_picture_or_says_why(form: str) -> None:
    fields: dict[str, Any] = {"n": legal_shapes(product_of(form)).n[0]} if ".mma" in form else {}
    try:
        drawn = svg(instruction(form, **fields), labels=False, hover=False)
    except LanewiseError as error:
        assert re.search("has no picture|choose a smaller", str(error))
    else:
        assert drawn.startswith("<svg ")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_pictures(family: str) -> None:
    found = instructions(family=family)
    for inst in found[:: max(1, len(found) // 3)]:
        if inst.n <= 64:
            assert svg(inst, labels=False, hover=False).startswith("<svg ")


@pytest.mark.parametrize("product", range(4))
def test_volta_draws_the_product_asked_for(product: int) -> None:
    inst = instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16")
    picture = check_picture(inst, product=product)
    assert set(picture.panels) == {"A", "B", "C", "D"}  # f16 and f32 accumulators are held differently


@sampled(2)
@pytest.mark.parametrize("spelling", TEXTS)
def test_text_shows_who_holds_every_element(spelling: str) -> None:
    inst = instruction(spelling)
    for operand in inst.operands.values():
        (cells,) = read_text(text(operand)).values()
        holds_as_drawn(operand, {at: label.split() for at, label in cells.items()})


def test_wide_text_stacks_its_panels() -> None:
    inst = instruction(MMA)
    panels = read_text(text(inst))
    for caption, operand in zip(panels, (inst.a, inst.b, inst.c), strict=True):
        holds_as_drawn(operand, {at: label.split() for at, label in panels[caption].items()})


def test_a_is_left_of_c_and_b_above_it() -> None:
    drawn = svg(instruction(MMA), hover=False)
    corner = {}
    for name, body in re.findall(r'<g data-panel="([^"]+)">(.*?)\n</g>\n(?=<g data|</svg)', drawn, re.DOTALL):
        xs, ys = zip(*((int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)[hv]", body)), strict=True)
        corner[name] = min(xs), min(ys)
    assert corner["A"][0] < corner["C, D"][0] and corner["A"][1] == corner["C, D"][1]
    assert corner["B"][0] == corner["C, D"][0] and corner["B"][1] < corner["C, D"][1]


@pytest.mark.parametrize("colour", ["thread", "value", "register"])
def test_cells_have_one_colour_exactly_if_they_agree_modulo_eight(colour: str) -> None:
    inst = instruction(MMA)
    picture = read_svg(svg(inst, colour=colour))
    for operand, name in ((inst.a, "A"), (inst.b, "B"), (inst.d, "C, D")):
        colours = picture.panels[name].colours
        classes: dict[Any, Any] = {}
        for row in range(operand.rows):
            for col in range(operand.cols):
                held = operand.holder(row, col)
                value = held.register * operand.slots + held.slot
                number = {"thread": held.lane, "value": value, "register": held.register}[colour] % 8
                classes.setdefault(number, set()).add(colours[row, col])
        assert all(len(found) == 1 for found in classes.values())
        assert len(set.union(*classes.values())) == len(classes)


@pytest.mark.parametrize("lane", [0, 5, 31])
def test_a_lane_stands_out_with_the_elements_it_holds(lane: int) -> None:
    inst = instruction(MMA)
    picture = read_svg(svg(inst, lane=lane))
    for operand, name in ((inst.a, "A"), (inst.b, "B"), (inst.c, "C, D")):
        panel = picture.panels[name]
        own = {operand.element(lane, value) for value in range(operand.values)}
        assert set(panel.labels) - panel.faded == own
        faint = {panel.colours[at] for at in panel.faded}
        assert len(faint) == 1 and not faint & {panel.colours[at] for at in own}


def test_an_element_is_marked_and_explained() -> None:
    inst = instruction(MMA)
    picture = read_svg(svg(inst, element=("A", 3, 9)))
    assert picture.panels["A"].marks == [(3, 9)]
    assert picture.panels["B"].marks == picture.panels["C, D"].marks == []
    held = inst.a.holder(3, 9)
    told = next(word for word in picture.words if word.startswith("Marked"))
    assert f"lane {held.lane}" in told and f"register {held.register}, slot {held.slot}" in told


def test_d_is_marked_in_the_panel_it_shares_with_c() -> None:
    picture = read_svg(svg(instruction(MMA), element=("d", 1, 2)))
    assert picture.panels["C, D"].marks == [(1, 2)]


def test_hover_titles_name_register_and_slot() -> None:
    inst = instruction(MMA)
    titles = read_svg(svg(inst)).panels["A"].titles
    assert len(titles) == 256
    for (row, col), title in titles.items():
        held = inst.a.holder(row, col)
        assert title.startswith(f"A[{row}][{col}]: lane {held.lane}, ")
        assert title.endswith(f"(register {held.register}, slot {held.slot})")
    assert read_svg(svg(inst, hover=False)).panels["A"].titles == {}


def test_one_operand_alone() -> None:
    inst = instruction(MMA)
    assert set(read_svg(svg(inst, operand="b")).panels) == {"B"}
    assert read_svg(svg(inst, operand="B")).panels["B"].labels == read_svg(svg(inst.b)).panels["B"].labels
    sparse = instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    assert set(read_svg(svg(sparse, operand="metadata")).panels) == {"E"}


def test_without_labels_the_colours_stay() -> None:
    with_labels, without = (read_svg(svg(instruction(MMA), labels=on)) for on in (True, False))
    assert without.panels["A"].labels == {}
    assert without.panels["A"].colours == with_labels.panels["A"].colours
    assert without.width < with_labels.width


@pytest.mark.parametrize(
    "spelling",
    [
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16",
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8",
        "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32",
        "stmatrix.sync.aligned.m8n8.x4.shared.b16",
        "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8",
    ],
)
def test_ldmatrix_and_stmatrix_show_row_addresses_beside_the_fragment(spelling: str) -> None:
    inst = instruction(spelling)
    picture = read_svg(svg(inst))
    (operand,) = inst.operands.values()
    addresses = picture.panels.pop("row address")
    tile = picture.panels.pop("tile", None)
    (fragment,) = picture.panels.values()
    assert (tile is not None) == (fragment.extent == (32, 8))
    if tile is not None:  # upper left, lower left, upper right, lower right
        assert tile.extent == (16, 16)
        for (row, col), label in tile.labels.items():
            assert label == fragment.labels[row // 8 * 8 + col // 8 * 16 + row % 8, col % 8]
    holds_as_drawn(operand, fragment.labels)
    rows = inst.row_addresses
    assert addresses.labels == {(row, 0): [f"T{rows.lane(row)}"] for row in range(rows.rows)}
    assert addresses.extent[0] == fragment.extent[0] == operand.rows


def test_movmatrix_shows_both_sides() -> None:
    inst = instruction("movmatrix.sync.aligned.m8n8.trans.b16")
    picture = read_svg(svg(inst))
    holds_as_drawn(inst.a, picture.panels["A"].labels)
    holds_as_drawn(inst.d, picture.panels["D"].labels)


def test_the_tile_of_ldmatrix_is_the_fragment_of_a() -> None:
    """Four matrices from the corners of a 16×16 tile are what m16n8k16 takes as A."""
    tile = read_svg(svg(instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16"))).panels["tile"]
    holds_as_drawn(instruction(MMA).a, tile.labels)


def test_inputs_mark_the_row_of_a_and_the_column_of_b() -> None:
    picture = read_svg(svg(instruction(MMA), element=("D", 3, 4), inputs=True))
    assert sorted(picture.panels["A"].marks) == [(3, k) for k in range(16)]
    assert sorted(picture.panels["B"].marks) == [(k, 4) for k in range(16)]
    assert picture.panels["C, D"].marks == [(3, 4)]
    for wrong in ({"inputs": True}, {"inputs": True, "element": ("A", 3, 4)}):
        with pytest.raises(LanewiseError, match="about an element of D"):
            svg(instruction(MMA), **wrong)


def test_wide_panels_are_cut_into_pieces() -> None:
    wide = instruction("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16").d
    drawn = text(wide)
    assert max(map(len, drawn.splitlines())) <= 160
    (cells,) = read_text(drawn).values()
    holds_as_drawn(wide, {at: label.split() for at, label in cells.items()})
    whole, cut = (svg(wide, columns=columns, hover=False) for columns in (None, 64))
    assert "D: 64×256 f32, n 192 to 255" in cut and "192 to 255" not in whole
    assert whole.count("T127") == cut.count("T127")
    with pytest.raises(LanewiseError, match="columns=0 is not a number of columns"):
        svg(wide, columns=0)


def test_the_corner_above_a_holds_the_notes() -> None:
    drawn = svg(instruction(MMA), hover=False)
    top_of_c = min(int(y) for y in re.findall(r'y="(\d+)"[^>]*><tspan[^>]*>C, D: 16', drawn))
    notes = [int(y) for y in re.findall(r'y="(\d+)"[^>]*><tspan[^>]*>[ABCD, ]*: row = ', drawn)]
    assert len(notes) == 3 and max(notes) < top_of_c
