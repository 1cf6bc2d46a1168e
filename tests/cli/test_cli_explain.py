"""`lanewise explain` says what the operands say: holders, elements, registers, bits, whole layouts."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.isa import FAMILIES, SelectedOperand, instruction, instructions
from lanewise.isa.matrix_descriptor import MatrixDescriptor

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
VOLTA = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
CONTAINED = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
BITS = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
DOUBLE = "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"
WMMA = "wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"
MANY = (MMA, VOLTA, SPARSE, SCALED, CONTAINED, BITS, DOUBLE, WMMA, WGMMA, LDMATRIX)


def held_operands(text: str) -> list[Any]:
    return [operand for operand in instruction(text).operands.values() if operand.where == "registers"]


def spelled(operand: Any) -> str:
    return operand.name.replace(" ", "-")


@pytest.mark.parametrize("text", MANY)
def test_element_lists_every_holder(answered: Callable[..., str], text: str) -> None:
    rng = random.Random(text)
    for operand in held_operands(text):
        row, col = rng.randrange(operand.rows), rng.randrange(operand.cols)
        product = rng.randrange(operand.products)
        options = ("--product", product) if operand.products > 1 else ()
        found = json.loads(
            answered("explain", text, "--element", spelled(operand), row, col, *options, "--json")
        )
        places = tuple((place["lane"], place["register"], place["slot"]) for place in found["holders"])
        assert places == operand.holders(row, col, product)


@pytest.mark.parametrize("text", MANY)
def test_bits_are_where_pack_puts_them(answered: Callable[..., str], text: str) -> None:
    """Pack a matrix that is zero but for one element of all ones: its bits show in the register."""
    rng = random.Random(text)
    for operand in held_operands(text):
        if isinstance(operand, SelectedOperand):
            continue
        row, col = rng.randrange(operand.rows), rng.randrange(operand.cols)
        words = np.zeros(operand.matrix_shape, operand.format.word_dtype)
        words[(0,) * (words.ndim - 2) + (row, col)] = (1 << operand.format.bits) - 1
        packed = operand.pack(operand.format.from_bits(words))
        found = json.loads(answered("explain", text, "--element", operand.name, row, col, "--json"))
        told = np.zeros_like(packed)
        for place in found["holders"]:
            ones = (1 << (place["last_bit"] + 1)) - (1 << place["first_bit"])
            told[place["lane"], place["register"]] |= told.dtype.type(ones)
        assert np.array_equal(told, packed)


@pytest.mark.parametrize("text", MANY)
def test_lane_holds_what_its_values_are(answered: Callable[..., str], text: str) -> None:
    lane = 21
    found = json.loads(answered("explain", text, "--lane", lane, "--json"))["holds"]
    expected = []
    for operand in held_operands(text):
        for value in range(operand.values):
            product, row, col = operand.cell(lane, value)
            expected.append((operand.name, product, row, col, *divmod(value, operand.slots)))
    told = [
        (each["operand"], each.get("product", 0), each["row"], each["col"], each["register"], each["slot"])
        for each in found
    ]
    assert told == expected


@pytest.mark.parametrize("text", MANY)
def test_register_and_element_are_inverse(answered: Callable[..., str], text: str) -> None:
    operand = held_operands(text)[-1]
    register = operand.registers - 1
    found = json.loads(answered("explain", text, "--register", spelled(operand), 13, register, "--json"))[
        "holds"
    ]
    assert len(found) == min(operand.slots, operand.values - register * operand.slots)
    for each in found:
        assert (13, register, each["slot"]) in operand.holders(
            each["row"], each["col"], each.get("product", 0)
        )


@sampled(6)
@pytest.mark.parametrize("text", MANY)
@pytest.mark.parametrize("transpose", [False, True])
def test_whole_layout_has_every_holder_in_its_cell(
    answered: Callable[..., str], text: str, transpose: bool
) -> None:
    turned = ("--transpose",) if transpose else ()
    for operand in held_operands(text)[:2]:
        header, *rows = csv.reader(
            io.StringIO(answered("explain", text, "--operand", spelled(operand), *turned, "--csv"))
        )
        several = header[0] == "product"
        assert several == (operand.products > 1)
        seen = 0
        for line in rows:
            product = int(line[0]) if several else 0
            for name, cell in zip(header[1 + several :], line[1 + several :], strict=True):
                row, col = int(line[several]), int(name)
                row, col = (col, row) if transpose else (row, col)
                places = [tuple(map(int, re.split("[:.]", place))) for place in cell.split("/")]
                assert tuple(places) == operand.holders(row, col, product)
                seen += 1
        assert seen == operand.products * operand.rows * operand.cols


@pytest.mark.parametrize("text", MANY)
def test_layout_by_lane_lists_every_register(answered: Callable[..., str], text: str) -> None:
    operand = held_operands(text)[0]
    header, *rows = csv.reader(
        io.StringIO(answered("explain", text, "--operand", operand.name, "--by-lane", "--csv"))
    )
    several = header[1] == "product"
    assert [int(row[0]) for row in rows] == list(range(operand.threads))
    for row in rows:
        lane = int(row[0])
        cells = []
        for register in row[1 + several :]:
            for first, last, left, right in re.findall(
                r"\[(\d+)(?:\.\.(\d+))?\]\[(\d+)(?:\.\.(\d+))?\]", register
            ):
                cells += [
                    (i, j)
                    for i in range(int(first), int(last or first) + 1)
                    for j in range(int(left), int(right or left) + 1)
                ]
        assert cells == [operand.element(lane, value) for value in range(operand.values)]


@pytest.mark.parametrize("text", [MMA, VOLTA, SCALED, WMMA])
def test_whole_layout_as_json_equals_the_holders(answered: Callable[..., str], text: str) -> None:
    operand = instruction(text).a
    found = json.loads(answered("explain", text, "--operand", "a", "--json"))
    assert (found["rows"], found["cols"], found["layout"]) == (
        operand.rows,
        operand.cols,
        str(operand.layout),
    )
    assert len(found["elements"]) == operand.products * operand.rows * operand.cols
    for each in found["elements"]:
        places = tuple((place["lane"], place["register"], place["slot"]) for place in each["holders"])
        assert places == operand.holders(each["row"], each["col"], each.get("product", 0))


def test_inputs_are_the_row_of_a_the_column_of_b_and_c(answered: Callable[..., str]) -> None:
    found = json.loads(answered("explain", MMA, "--element", "D", 3, 4, "--inputs", "--json"))["inputs"]
    cells = {(each["operand"], each["row"], each["col"]) for each in found}
    assert cells == {("A", 3, k) for k in range(16)} | {("B", k, 4) for k in range(16)} | {("C", 3, 4)}


def test_inputs_of_a_register_are_those_of_its_elements(answered: Callable[..., str]) -> None:
    half = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
    found = json.loads(answered("explain", half, "--register", "D", 5, 1, "--inputs", "--json"))
    columns = {each["col"] for each in found["holds"]}
    assert len(columns) == 2
    assert {each["col"] for each in found["inputs"] if each["operand"] == "B"} == columns
    assert {each["row"] for each in found["inputs"] if each["operand"] == "A"} == {found["holds"][0]["row"]}


@pytest.mark.parametrize(
    "text",
    [
        SPARSE,
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    ],
)
def test_packed_element_comes_with_the_code_that_places_it(answered: Callable[..., str], text: str) -> None:
    """The dense columns that some metadata gives must lie in the group whose code is named."""
    metadata, a = instruction(text).metadata, instruction(text).a
    indices = np.zeros(metadata.indices_shape, np.uint8)
    if metadata.per_code == 2:
        indices[:, 1::2] = 3
    columns = metadata.columns(indices)
    for row, col in ((0, 0), (7, a.cols // 2 + 1), (a.rows - 1, a.cols - 1)):
        found = json.loads(answered("explain", text, "--element", "A", row, col, "--json"))["with"]
        assert {(each["row"], each["col"]) for each in found} == {(row, columns[row, col] // metadata.group)}


def test_scaled_element_comes_with_its_scale(answered: Callable[..., str]) -> None:
    scaled = instruction(SCALED)
    for k in (0, 15, 16, 63):
        of_a = json.loads(answered("explain", SCALED, "--element", "A", 9, k, "--json"))["with"]
        of_b = json.loads(answered("explain", SCALED, "--element", "B", k, 7, "--json"))["with"]
        assert [each["lane"] for each in of_a] == [h.lane for h in scaled.scale_a.holders(9, k // 16)]
        assert [each["lane"] for each in of_b] == [h.lane for h in scaled.scale_b.holders(k // 16, 7)]


@pytest.mark.parametrize("text", [SPARSE, SCALED, "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"])
def test_selectors_are_those_under_which_a_place_is_read(answered: Callable[..., str], text: str) -> None:
    for operand in instruction(text).operands.values():
        if not isinstance(operand, SelectedOperand):
            continue
        found = json.loads(answered("explain", text, "--element", spelled(operand), 0, 0, "--json"))[
            "holders"
        ]
        for place in found:
            told = place.get("read_when", {})
            thread = told.get("sparsity-selector", told.get("thread-id", 0))
            read = operand.holders(0, 0, thread_id=thread, byte_id=told.get("byte-id", 0))
            assert (place["lane"], place["register"], place["slot"]) in read


def test_row_addresses_of_ldmatrix(answered: Callable[..., str]) -> None:
    addresses = instruction(LDMATRIX).row_addresses
    for row in range(addresses.rows):
        found = json.loads(answered("explain", LDMATRIX, "--element", "D", row, 0, "--json"))
        assert found["address_from_lane"] == addresses.lane(row)
    assert json.loads(answered("explain", LDMATRIX, "--lane", 3, "--json"))["row_address"] == 3
    assert json.loads(answered("explain", LDMATRIX, "--lane", 16, "--json"))["row_address"] is None
    assert "16 to 31  not used" in answered("explain", LDMATRIX)


def test_operand_narrows_a_lane(answered: Callable[..., str]) -> None:
    found = json.loads(answered("explain", MMA, "--lane", 5, "--operand", "b", "--json"))["holds"]
    assert {each["operand"] for each in found} == {"B"} and len(found) == instruction(MMA).b.values


def test_product_narrows_a_lane(answered: Callable[..., str]) -> None:
    found = json.loads(answered("explain", VOLTA, "--lane", 9, "--product", 2, "--json"))["holds"]
    assert len(found) == sum(operand.values for operand in held_operands(VOLTA))
    assert json.loads(answered("explain", VOLTA, "--lane", 9, "--product", 1, "--json"))["holds"] == []


# the summary --------------------------------------------------------------------------------------------


@sampled(6)
@pytest.mark.parametrize("family", FAMILIES)
def test_summary_of_each_family(answered: Callable[..., str], family: str) -> None:
    form = instructions(family=family)[-1]
    found = json.loads(answered("explain", form.text, "--json"))
    assert (found["instruction"], found["family"]) == (form.text, family)
    assert tuple(found["archs"]) == form.archs
    assert set(found["lowering"]) == set(form.archs)
    told = instruction(form.text)  # the text leaves a choice of operands open for wgmma and wmma.load
    for name, operand in told.operands.items():
        entry = found["operands"][name]
        assert entry["layout"] == str(operand.layout)
        assert (entry["registers"], entry["format"]) == (operand.registers, operand.format.name)
    text = answered("explain", form.text)
    for operand in told.operands.values():
        assert operand.packing in text and str(operand.layout) in text


def test_summary_shows_who_holds_a(answered: Callable[..., str]) -> None:
    lines = answered("explain", MMA).splitlines()
    start = lines.index("Lane:register of A") + 1
    names, *rows = (line.split() for line in lines[start : start + 17])
    a = instruction(MMA).a
    for row, (_, *cells) in enumerate(rows):
        for name, cell in zip(names[1:], cells, strict=True):
            first, last = map(int, name.split("-"))
            for col in range(first, last + 1):
                lane, register, _ = a.holder(row, col)
                assert cell == f"{lane}:{register}"


def test_summary_for_one_arch(answered: Callable[..., str]) -> None:
    found = json.loads(answered("explain", MMA, "--arch", "86", "--json"))
    assert list(found["lowering"]) == ["sm_86"]


def test_a_source_and_stride(answered: Callable[..., str]) -> None:
    for where in ("registers", "descriptor"):
        found = json.loads(answered("explain", WGMMA, "--a-source", where, "--json"))
        assert found["operands"]["a"]["registers"] == instruction(WGMMA, a_source=where).a.registers
    load = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"
    assert "with a stride" in answered("explain", load, "--stride")
    assert "with a stride" not in answered("explain", load, "--no-stride")


def test_atoms_stand_for_their_instructions(answered: Callable[..., str]) -> None:
    assert answered("explain", "SM80_16x8x16_F32F16F16F32_TN") == answered("explain", MMA)
    by_name = answered("explain", "SM90::GMMA::MMA_64x24x16_F32F16F16_RS", "--lane", 99)
    assert by_name == answered("explain", WGMMA, "--a-source", "registers", "--lane", 99)


def test_operands_after_the_text_are_read(answered: Callable[..., str]) -> None:
    statement = f"{MMA} {{d0,d1,d2,d3}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{c0,c1,c2,c3}};"
    assert answered("explain", statement) == answered("explain", MMA)


# styles -------------------------------------------------------------------------------------------------

QUESTIONS = [
    (),
    ("--lane", 5),
    ("--element", "A", 3, 9),
    ("--register", "B", 5, 1),
    ("--operand", "C"),
    ("--operand", "C", "--by-lane"),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_csv_is_one_rectangle(answered: Callable[..., str], question: tuple[Any, ...]) -> None:
    rows = list(csv.reader(io.StringIO(answered("explain", MMA, *question, "--csv"))))
    assert len(rows) > 1 and len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("question", QUESTIONS)
def test_markdown_tables_are_rectangles(answered: Callable[..., str], question: tuple[Any, ...]) -> None:
    text = answered("explain", MMA, *question, "--markdown")
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert blocks
    for header, rule, *rows in blocks:
        width = len(re.split(r"(?<!\\)\|", header))
        assert re.fullmatch(r"\| (---:?( \| |(?= \|$)))+ \|", rule), rule
        assert rows and all(len(re.split(r"(?<!\\)\|", row)) == width for row in rows)


def test_csv_and_json_say_the_same(answered: Callable[..., str]) -> None:
    rows = csv.DictReader(io.StringIO(answered("explain", SPARSE, "--lane", 6, "--csv")))
    records = json.loads(answered("explain", SPARSE, "--lane", 6, "--json"))["holds"]
    for row, record in zip(rows, records, strict=True):
        assert row["operand"] == record["operand"]
        for name in ("row", "col", "register", "slot"):
            assert int(row[name]) == record[name]
        high, _, low = row["bits"].partition(":")
        assert (int(low or high), int(high)) == (record["first_bit"], record["last_bit"])


def test_pictures_are_written_beside_the_answer(answered: Callable[..., str], tmp_path: Path) -> None:
    svg, tex = tmp_path / "a.svg", tmp_path / "a.tex"
    said = answered("explain", MMA, "--element", "A", 3, 9, "--svg", svg, "--latex", tex)
    assert said == answered("explain", MMA, "--element", "A", 3, 9)
    assert svg.read_text().startswith("<svg ") and "tikz" in tex.read_text()
    answered("explain", SCALED, "--operand", "scale-a", "--svg", svg)
    assert "scale A" in svg.read_text()


# tcgen05, bulk copies, tensor copies -----------------------------------------------------------------------


def test_an_asynchronous_instruction(answered: Callable[..., str], lanewise: Callable[..., Any]) -> None:
    told = json.loads(answered("explain", "tcgen05.mma.cta_group::2.kind::f16", "--json"))
    assert told["shapes"]["m"] == "128 or 256" and "sm_100a" in told["archs"]
    assert told["words"]["cta_group::2"].startswith("a pair of blocks")
    said = lanewise("explain", "tcgen05.mma.cta_group::2.kind::f16", "--arch", "H100")
    assert said.code == 2 and "sm_90a does not have it" in said.err
    said = lanewise("explain", "tcgen05.mma.cta_group::2.kind::f16", "--register", "D", "3", "0")
    assert said.code == 2 and "fragments in registers" in said.err
    listed = json.loads(answered("list", "--family", "tcgen05.cp", "warpx4", "--json"))
    assert len(listed) == 6
    said = lanewise("list", "--family", "tcgen05.mm", "--count")
    assert said.code == 0 and "464" in said.out.split()[-1]
    said = lanewise("list", "--family", "tcgen05.mma", "--a", "f16")
    assert said.code == 2 and "chosen by words alone" in said.err


def test_a_tcgen05_product_by_name_and_by_descriptor(
    answered: Callable[..., str], lanewise: Callable[..., Any]
) -> None:
    by_name = json.loads(answered("explain", "tcgen05", "m64n40k16", "f16", "bf16", "--json"))
    assert by_name["shape"] == [64, 40, 16] and by_name["formats"] == {"d": "f32", "a": "f16", "b": "bf16"}
    text = "tcgen05.mma.cta_group::1.kind::f16"
    by_bits = json.loads(answered("explain", text, "--descriptor", by_name["descriptor"], "--json"))
    assert by_bits == by_name
    values = {field["name"]: field["value"] for field in by_bits["instruction_descriptor"]}
    assert (values["M"], values["N"], values["format of B"]) == (64, 40, "bf16")
    assert by_bits["bits"]["sm_100a"]["fidelity"] == "inferred"  # f16 by bf16: no one has published it
    scaled = answered("explain", "umma", "nvfp4", "m256n64", "--arch", "B200")
    assert "ue4m3, 4 along K: A 256×4, B 4×64" in scaled and "35 fraction bits" in scaled
    for words, says in (
        ((text, "--descriptor", "0x8400c90"), "format of B in bits 10-12"),
        ((text, "--descriptor", "many"), "--descriptor is a number such as 0x8400490, not 'many'"),
        ((text, "--descriptor", "0x100000000"), "an instruction descriptor has 32 bits"),
        (("m16n8k16", "bf16", "--descriptor", "3"), "--descriptor is for tcgen05.mma"),
        (("tcgen05.shift.cta_group::1.down", "--descriptor", "3"), "multiplies nothing"),
    ):
        said = lanewise("explain", *words)
        assert said.code == 2 and says in said.err
    assert "--descriptor 0x8400490" in answered("explain", "0x8400490")
    place = json.loads(
        answered("explain", "umma", "m256n16k16", "f16", "--element", "D", "140", "3", "--json")
    )
    assert (place["block"], place["lane"], place["column"]) == (1, 12, 3)
    said = lanewise("explain", text, "--element", "Q", "0", "0")
    assert said.code == 2 and "has no operand 'Q'; it has A, B, C, D" in said.err


def test_tensor_memory_element_by_element(answered: Callable[..., str], lanewise: Callable[..., Any]) -> None:
    """From the PTX ISA: lanes and columns of D, of an A in tensor memory, and of scale factors."""

    def places(*words: str) -> list[tuple[int, int, int, int]]:
        found = json.loads(answered("explain", *words, "--json"))["places"]
        return [(each["block"], each["lane"], each["column"], each["first_bit"]) for each in found]

    assert places("tcgen05", "m64n16k16", "bf16", "--element", "D", "37", "9") == [(0, 69, 9, 0)]
    # A pair with M = 128 has both halves of D's columns in a block, and a copy of A's row for each.
    assert places("umma", "m128n64", "pair", "f16", "--element", "A", "100", "7") == [
        (1, 36, 3, 16),
        (1, 100, 3, 16),
    ]
    assert places("umma", "nvfp4", "m128n64", "--element", "scale-a", "70", "1") == [(0, 70, 2, 8)]
    assert places("umma", "nvfp4", "m128n64", "--element", "scale-b", "3", "40") == [
        (0, lane, 1, 24) for lane in (8, 40, 72, 104)
    ]
    told = json.loads(answered("explain", "umma", "m256n96k16", "f16", "--json"))
    assert {"operand": "B", "block": 1, "rows": "0-15", "columns": "48-95"} in told["pair"]
    said = lanewise("explain", "umma", "m256n96k16", "f16", "--element", "D", "256", "0")
    assert said.code == 2 and "row" in said.err and "Traceback" not in said.err


@pytest.mark.parametrize(
    ("form", "thread", "register", "lane", "column"),
    # Figures of the PTX ISA: .16x256b has two neighbours in a row, then 8 rows below; .16x64b takes turns.
    [
        ("16x256b.x2", 13, 7, 11, 11),
        ("16x128b.x4", 9, 5, 10, 9),
        ("16x64b.x8", 6, 3, 1, 7),
        ("32x32b.x16", 31, 15, 31, 15),
    ],
)
def test_loads_by_thread_and_by_word(
    answered: Callable[..., str], form: str, thread: int, register: int, lane: int, column: int
) -> None:
    for verb in ("ld", "st"):
        text = f"tcgen05.{verb}.sync.aligned.{form}.b32"
        told = json.loads(answered("explain", text, "--lane", str(thread), "--json"))
        assert told["words"][register] == {"register": register, "lane": lane, "column": column}
        word = json.loads(answered("explain", text, "--element", "tmem", str(lane), str(column), "--json"))
        assert (word["thread"], word["register"]) == (thread, register)


def test_numbers_are_descriptors_of_tcgen05(answered: Callable[..., str]) -> None:
    made = lw.InstructionDescriptor("f8f6f4", 64, 48, "e4m3", "e2m1", negate_b=True)
    told = json.loads(answered("explain", hex(made.encode()), "--json"))
    says = {row["kind"]: row for row in told["instruction_descriptor"]}
    assert says["f8f6f4"]["legal"] == "yes" and says["i8"]["legal"] == "no"
    assert says["f8f6f4"]["says"] == "m64n48k32, A e4m3, B e2m1, D f32, negate_b"
    matrix = MatrixDescriptor(0x2000, 64, 512, swizzle="64B", version=1)
    told = json.loads(answered("explain", hex(matrix.encode()), "--json"))
    assert (told["version"], told["swizzle"], told["stride_byte_offset"]) == (1, "64B", 512)
    broken = matrix.encode() | 1 << 55
    assert "bits 53 to 60" in answered("explain", hex(broken))


def test_words_need_no_quotes_and_the_most_common_meaning_is_explained(lanewise: Callable[..., Any]) -> None:
    usual, other = (
        f"mma.sync.aligned.m16n8k16.row.col.{types}" for types in ("f32.f16.f16.f32", "f16.f16.f16.f16")
    )
    for words in (["m16n8k16", "f16"], ["m16n8k16 f16"], ["mma.m16n8k16.f16"]):
        said = lanewise("explain", *words)
        assert said.code == 0 and said.out == lanewise("explain", usual).out
        assert said.err == f"lanewise: taken as {usual}; it may also mean {other}\n"


def test_names_with_many_meanings_list_them_line_by_line(lanewise: Callable[..., Any]) -> None:
    said = lanewise("explain", "mma")
    lines = said.err.splitlines()
    assert (
        said.code == 2
        and lines[1] == "    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        and len(lines) > 4
    )


def test_a_layout_is_told_where_it_is_drawn(lanewise: Callable[..., Any]) -> None:
    for text in ("(4,8):(1,4)", "Layout<Shape<_4,_8>>", "Sw<3,4,3> o (8,64):(64,1)"):
        said = lanewise("explain", text)
        assert said.code == 2 and f"lanewise draw layout '{text}'" in said.err
