"""What the rooms answer, held against lanewise, ptxas and NVRTC: instructions, code, layouts, banks, tour."""

import json
import random
import types
import typing
from importlib import import_module
from typing import Any

import pytest

import lanewise as lw
from everything import EVERYTHING
from lanewise.draw.picture import CONFLICTS, MARK, PASTELS, TEXT
from lanewise.errors import LanewiseError
from lanewise.explore import answers, tensor_instructions
from lanewise.explore.answers import Session, answer
from lanewise.explore.code_forms import forms_of_code
from lanewise.explore.expressions import evaluate
from lanewise.explore.instructions import about, catalogue, of_descriptor, of_tensor_map
from lanewise.explore.layouts import EXAMPLES, banks, evaluated
from lanewise.explore.server import PAGE
from lanewise.explore.static_site import file_name, questions
from lanewise.explore.tour import tour
from lanewise.isa.asynchronous import Tcgen05Instruction
from lanewise.isa.tensor_map import TiledTensor
from ptxas import assemble, find_ptxas

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#: A few of every family: some that have everything that a statement can have.
TEXTS = (
    MMA,
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16",
    "wmma.store.d.sync.aligned.col.m16n16k16.global.f32",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8.satfinite",
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16",
)


def held(operand: dict[str, Any]) -> list[list[int]]:
    """The element of each lane and value, as the page unpacks it."""
    sent: dict[str, Any] = operand["held"]
    if "all" in sent:
        return list(sent["all"])
    return [[lane + value for value in sent["values"]] for lane in sent["lanes"]]


@pytest.mark.parametrize("text", TEXTS)
def test_fragments_are_those_of_the_catalogue(text: str) -> None:
    inst = lw.instruction(text)
    sent = about(text)
    assert sent["archs"] == inst.archs
    for operand in sent["operands"]:
        real = inst.operands[operand["key"]]
        if real.where != "registers":
            assert operand["held"] is None
            continue
        for lane, values in enumerate(held(operand)):
            for value, index in enumerate(values):
                product, row, col = real.cell(lane, value)
                assert index == (product * real.rows + row) * real.cols + col


def test_names_of_atoms_are_looked_up_too() -> None:
    assert about("SM80_16x8x16_F32F16F16F32_TN")["text"] == MMA
    assert about("Copy_Atom<SM75_U32x4_LDSM_N, half_t>")["text"].startswith("ldmatrix")
    with pytest.raises(LanewiseError, match="SM80_17x8x16"):
        about("SM80_17x8x16_F32F16F16F32_TN")
    with pytest.raises(LanewiseError, match="no fragments in registers"):
        about("cp.async.bulk.commit_group")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("tcgen05 m64n24k16 f16", ""),
        ("umma m128n64 pair bf16", ""),
        ("umma nvfp4 m256n32k64", ""),
        ("tcgen05.mma.ws.cta_group::1.kind::tf32", "m=32 n=64"),
        ("tcgen05 sparse m64n8k32 f16", ""),
    ],
)
def test_tensor_memory_says_where_every_element_lies(text: str, fields: str) -> None:
    """What the page unpacks, a first element for each lane and steps, is what the instruction says."""
    found, mma = about(text, fields=fields), tensor_instructions.named(text, fields)
    assert isinstance(mma, Tcgen05Instruction)
    for operand in found["operands"]:
        if operand["held"] is None:
            assert operand["key"] in ("a", "b") and operand["where"] == "shared memory"
            continue
        held = operand["held"]
        lanes = held.get("all") or [[first + step for step in held["values"]] for first in held["lanes"]]
        slots, size = operand["slots"], operand["rows"] * operand["cols"]
        places = {
            (number, lane, value // slots, value % slots)
            for lane, values in enumerate(lanes)
            for value, number in enumerate(values)
            if number >= 0
        }
        expected = {
            (
                row * operand["cols"] + col,
                128 * each.block + each.lane,
                each.column,
                each.first_bit * slots // 32,
            )
            for row in range(operand["rows"])
            for col in range(operand["cols"])
            for each in mma.tensor_bits(operand["key"], row, col)
        }
        assert places == expected and {number for number, *_ in places} == set(range(size))


def test_every_tcgen05_of_the_list_is_described() -> None:
    for form in tensor_instructions.listed()[:: 1 if EVERYTHING else 9]:
        found = about(form.text)
        assert found["text"] == form.text and found["code"]["PTX"].startswith(form.text)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("m", "is no field"),
        ("m=65", "M is 65"),
        ("descriptor=0xffffffff", "reserve"),
        ("n=64 q=3", "no field 'q'"),
        ("m=0x", "m"),
        ("descriptor=99999999999999", "32 bits"),
    ],
)
def test_fields_that_do_not_fit_are_sentences(fields: str, says: str) -> None:
    with pytest.raises(LanewiseError, match=says):
        about("tcgen05.mma.cta_group::1.kind::f16", fields=fields)
    with pytest.raises(LanewiseError, match="plain copy"):
        about("SM80_CP_ASYNC_CACHEALWAYS<uint128_t>")


def test_every_form_has_an_entry_and_every_entry_is_a_form() -> None:
    found = catalogue()
    texts: set[str] = set()
    for entry in found["entries"]:
        sizes = found["sizes"][entry["sizes"]] if "sizes" in entry else ()
        texts |= {entry["text"].replace("n*", f"n{size}") for size in sizes} or {entry["text"]}
        archs = {arch for number, arch in enumerate(found["archs"]) if entry["archs"] >> number & 1}
        first = entry["text"].replace("n*", f"n{entry.get('usual')}")
        assert archs == set(lw.instruction(first).archs)
    tensor = {form.text for form in tensor_instructions.listed()}
    assert texts == {form.text for form in lw.instructions()} | tensor


def test_words_of_sass_and_of_c_find_an_entry() -> None:
    found = catalogue()
    words = {entry["text"]: found["words"][entry["words"]].split() for entry in found["entries"]}
    assert {"hmma", "16816", "half", "16x8x16"} <= set(words[MMA])
    assert "ldsm" in words["ldmatrix.sync.aligned.m8n8.x4.shared.b16"]
    assert "hgmma" in words["wgmma.mma_async.sync.aligned.m64n*k16.f32.f16.f16"]
    assert "A100" in found["gpus"]["sm_80"]


def statement_arch(inst: lw.Instruction) -> str:
    """An arch that ptxas assembles for and that has the instruction."""
    return next(arch for arch in ("sm_90a", "sm_100a", "sm_120a", "sm_80", *inst.archs) if arch in inst.archs)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_ptx_to_copy_assembles() -> None:
    some = random.Random(0).sample([form for form in lw.instructions() if form.n <= 32], 40)
    by_arch: dict[str, list[str]] = {}
    for inst in [*(lw.instruction(text) for text in TEXTS), *some]:
        by_arch.setdefault(statement_arch(inst), []).append(forms_of_code(inst)["PTX"])
    for arch, statements in by_arch.items():
        bodies = [
            f".visible .entry k{number}()\n{{\n{body}\nret;\n}}" for number, body in enumerate(statements)
        ]
        module = f".version 8.8\n.target {arch}\n.address_size 64\n" + "\n".join(bodies)
        assert assemble(module, arch) == []


def test_cuda_to_copy_compiles() -> None:
    by_arch: dict[str, list[str]] = {}
    for text in TEXTS:
        inst = lw.instruction(text)
        by_arch.setdefault(statement_arch(inst), []).append(forms_of_code(inst)["CUDA C++"])
    for arch, functions in by_arch.items():
        source = "\n".join(
            f"namespace n{number} {{\n{body.replace('#include <cstdint>', '')}\n}}"
            for number, body in enumerate(functions)
        )
        types = "#include <cstdint>\n"
        try:
            lw.cuda(f'{types}{source}\nextern "C" __global__ void k() {{}}', arch=arch)
        except LanewiseError as error:
            if "NVRTC" in str(error) and "install" in str(error):
                pytest.skip("NVRTC is not installed")
            raise


@pytest.mark.parametrize("text", [MMA, TEXTS[2], TEXTS[8], TEXTS[11]])
def test_lanewise_to_copy_runs(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(forms_of_code(lw.instruction(text))["lanewise"], {})
    assert "Holder(lane=0" in capsys.readouterr().out


def test_cute_to_copy_names_the_same_instruction() -> None:
    for text in (MMA, TEXTS[8], TEXTS[11]):
        code = forms_of_code(lw.instruction(text))["CuTe"]
        name = code.split("using Atom = ")[1].split(";")[0].replace("cute::", "")
        found = lw.atoms.atom(name).instruction
        assert found is not None and found.text == text


def test_a_descriptor_puts_pieces_where_the_catalogue_says() -> None:
    for major in ("K", "MN"):
        for swizzle in ("none", "32B", "64B", "128B"):
            found = of_descriptor(64, 16, 16, major, swizzle, "")
            again = of_descriptor(64, 16, 16, major, "none", found["number"])
            assert again["pieces"] == found["pieces"]
            places = [address for line in found["pieces"] for address in line]
            assert len(set(places)) == len(places) == 64 * 16 * 2 // 16
            assert max(places) + 16 - min(places) == 64 * 16 * 2 or (major, swizzle) != ("K", "none")
    with pytest.raises(LanewiseError, match="no descriptor"):
        of_descriptor(64, 16, 16, "K", "none", "seven")


def test_a_tensor_copy_puts_pieces_where_the_map_says() -> None:
    found = of_tensor_map("f16", [64, 64], [16, 64], "128B")
    tensor = TiledTensor("f16", (64, 64), (128,), (64, 16), (1, 1), swizzle="128B")
    assert found["pieces"][5][2] == tensor.swizzled(5 * 128 + 32)
    for wrong in (
        ("f17", [8, 8], [8, 8], "none"),
        ("f16", [8], [8, 8], "none"),
        ("f16", [0, 8], [8, 8], "none"),
    ):
        with pytest.raises(LanewiseError):
            of_tensor_map(*wrong)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["name"])
def test_proposals_remove_the_conflicts(example: dict[str, Any]) -> None:
    found = banks(example["text"], example["bits"], example["access"], example["vector"])
    assert found["wavefronts"] >= found["ideal"]
    assert bool(found["proposals"]) == (found["wavefronts"] > found["ideal"])
    for proposal in found["proposals"]:
        again = banks(proposal["text"], example["bits"], example["access"], example["vector"])
        assert (again["wavefronts"], again["memory"]) == (found["ideal"], proposal["memory"])
        assert {tuple(map(tuple, lane["cells"])) for lane in again["lanes"]} == {
            tuple(map(tuple, lane["cells"])) for lane in found["lanes"]
        }


def test_banks_agree_with_the_bank_map() -> None:
    for text in ("(16,32):(32,1)", "(16,32):(40,1)", "Sw<2,3,3> o (16,32):(32,1)", "(64,16):(1,64)"):
        layout, _ = evaluate(text)
        phases = lw.draw.bank_map(layout, 16).conflicts
        found = banks(text, 16, "ldmatrix", 8)
        assert found["wavefronts"] == sum(
            max(lane["turn"] for lane in found["lanes"] if lane["phase"] == phase) + 1 for phase in range(4)
        )
        assert found["wavefronts"] // 4 in {turns for row in phases for turns in row}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(8,8):(8,1)", lw.Layout((8, 8), (8, 1))),
        ("8", 8),
        ("Layout((4,2), (2,1))", lw.Layout((4, 2), (2, 1))),
        ("A = (4,2):(2,1)\nA o 8:1", lw.layout.composition(lw.Layout((4, 2), (2, 1)), lw.Layout(8, 1))),
        (
            "Sw<3,4,3> o 16 o (8,64):(64,1)",
            lw.ComposedLayout(lw.Swizzle(3, 4, 3), 16, lw.Layout((8, 64), (64, 1))),
        ),
        ("zipped_divide((8,8), (2,4))", lw.layout.zipped_divide(lw.Layout((8, 8)), (2, 4))),
        ("make_layout((2,2):(1,2), 4:8)[1]", lw.Layout(4, 8)),
        ("A = (8,4):(4,1); A(2)", 8),
        ("# a remark\nsize((3,4))", 12),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert evaluate(text)[0] == value


@pytest.mark.parametrize(
    "text",
    [
        "", "(", "(8", "8:", "(8,8):(8,1,1)", "foo", "__import__", "os.system", "A", "A = ", "composition(",
        "size()", "lambda: 3", "(8).real", "'x'", "{}", "1.5", "size = 3", "((8,8):(8,1)",
        "composition((8,8), (9,9), 1, 2, 3)", "(" * 60 + "8" + ")" * 60, "x" * 5000,
        "\n".join(f"a{n} = 3" for n in range(99)),
        "Sw<99,3,3>", "Swizzle(8)",
        "A = (99999,99999)\n" + "\n".join("A = logical_product(A, A)" for _ in range(30)), "upcast((4,4), 0)",
        "complement((4,4):(1,1))", "left_inverse(make_identity_layout((2,2)))", "tile_to_shape(3, 4, 5)",
        "group(3)",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_a_sentence(text: str) -> None:
    found = answer(Session(), "layouts", "evaluate", json.dumps({"text": text}).encode())
    sent = json.loads(found.content)
    assert found.status == 400 or sent["kind"], sent
    assert found.status != 500
    again = answer(Session(), "layouts", "banks", json.dumps({"text": text}).encode())
    assert again.status in (200, 400)


def test_a_large_layout_is_not_drawn() -> None:
    assert evaluated("(999999,999999)")["indices"] is None
    assert evaluated("make_identity_layout((2,2))")["indices"] == [["(0,0)", "(0,1)"], ["(1,0)", "(1,1)"]]
    with pytest.raises(LanewiseError, match="up to"):
        banks("(9999,9999):(1,9999)")


@pytest.mark.parametrize(
    "body",
    [
        {"bits": 7}, {"access": "sideways"}, {"access": "along", "vector": 3},
        {"access": "lanes", "lanes": "(4,4)"}, {"access": "lanes", "lanes": "32:99999"},
        {"text": "make_identity_layout((8,8))"}, {"text": "(8,8):(-8,-1)"},
        {"access": "across", "vector": -4}, {"text": "(32,33):(33,1)"}, {"text": "3", "access": "along"},
    ],
)  # fmt: skip
def test_an_access_that_cannot_be(body: dict[str, Any]) -> None:
    found = answer(Session(), "layouts", "banks", json.dumps({"text": "(32,32):(32,1)", **body}).encode())
    assert found.status == 400 and json.loads(found.content)["error"]


def test_an_access_by_a_layout_of_lanes() -> None:
    plain = banks("(32,32):(32,1)", 32, "across", 1)
    assert banks("(32,32):(32,1)", 32, "lanes", 1, "32:1")["lanes"] == plain["lanes"]


def test_inverses() -> None:
    found = evaluated("Sw<2,3,3> o (16,32):(32,1)")
    layout, _ = evaluate("Sw<2,3,3> o (16,32):(32,1)")
    for index, place in enumerate(found["inverse"]["memory"]):
        assert layout(*place) == index
    inverse, _ = evaluate(found["inverse"]["text"])
    assert all(inverse(layout(coordinate)) == coordinate for coordinate in range(layout.size()))


def test_a_layout_over_threads_and_values() -> None:
    d = lw.instruction(MMA).d
    found = evaluated(str(d.layout), "16,8")["fragments"]
    assert held(found["operands"][0]) == d.gather.reshape(32, -1).tolist()
    with pytest.raises(LanewiseError):
        evaluated(str(d.layout), "8,8")


def test_the_tour_knows_its_answers() -> None:
    mma = lw.instruction(MMA)
    tasks = {page["key"]: page["task"] for page in tour() if "task" in page}
    key, *place = tasks["fragment"]["want"]
    assert f"Lane {mma.operands[key].holder(*place).lane}," in tasks["fragment"]["right"]
    assert mma.b.holder(9, 3).lane == tasks["lane"]["want"]
    assert mma.d.element(lane=5, value=2) == tuple(tasks["product"]["want"])
    for page in tour():
        layouts = page.get("widget", {}).get("layouts", ())
        costs = [banks(text, 16, "ldmatrix", 8) for text in layouts]
        free = [each["wavefronts"] == each["ideal"] for each in costs]
        assert not layouts or (any(free) and not all(free))
        for room, name, body in page.get("widget", {}).get("asks", ()):
            assert answer(Session(), room, name, json.dumps(body).encode()).status == 200


def test_the_static_site_has_an_answer_for_each_entry() -> None:
    asked = list(questions())
    texts = {body["text"] for _, name, body in asked if name == "about" and "text" in body}
    assert texts >= {form.text for form in lw.instructions()}
    names = [(room, name, file_name(body)) for room, name, body in asked]
    bodies = {json.dumps([room, name, body], sort_keys=True) for room, name, body in asked}
    assert len(set(names)) == len(bodies)
    assert all(len(name) < 200 for *_, name in names)


def test_the_colours_of_the_page_are_those_of_pictures() -> None:
    style = (PAGE / "style.css").read_text()
    for number, colour in enumerate(PASTELS):
        assert f"--cell-{number}: {colour};" in style
    for number, colour in enumerate(CONFLICTS):
        assert f"--turn-{number}: {colour};" in style
    assert f"--cell-mark: {MARK};" in style and f"--cell-ink: {TEXT};" in style


SENSELESS = (
    "", "mma", "wgmma", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "(8,64):(64,1)", "(8,-1):(0,1)", "((((",
    "Sw<3,3,3> o (8,64):(64,1)", "sm_90", "sm_999", "nan", "1e999", "f16", "a" * 300, "\0", "K", "128B",
    "9" * 400, "0x4000004000000040", "(99999999,99999999):(1,1)",
)  # fmt: skip
NUMBERS = (0, 1, 8, 31, 64, -1, 10**6, 2**63, 10**30)


def some(rng: random.Random, wanted: Any) -> Any:
    """Return a value of a type, but hardly one that makes sense."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return some(rng, rng.choice(inner))
    if origin is typing.Literal:
        return rng.choice(inner)
    if origin is list:
        return [some(rng, inner[0]) for _ in range(rng.randrange(4))]
    if origin is dict:
        return {rng.choice(SENSELESS): some(rng, inner[1]) for _ in range(rng.randrange(3))}
    kinds = {int: NUMBERS, float: (0, 0.5, -1, 1e300), str: SENSELESS, bool: (True, False)}
    return rng.choice(kinds.get(wanted, (None,)))


def test_questions_that_make_no_sense_are_answered_in_sentences() -> None:
    for room in ("bits", "instructions", "layouts", "tour"):
        import_module(answers.ROOMS[room])
    asked = [key for key in answers._questions if key[0] in ("bits", "instructions", "layouts", "tour")]
    asked = [key for key in asked if key[1] not in ("broken", "endless", "slow")]  # those of other tests
    rng, session = random.Random(3), Session()
    for _ in range(150):
        room, name = rng.choice(asked)
        found = answers._questions[room, name]
        body = {
            each: some(rng, wanted)
            for each, wanted in found.types.items()
            if each in found.required or rng.random() < 0.5
        }
        told = answer(session, room, name, json.dumps(body).encode())
        assert told.status in (200, 400), (room, name, body, told.content[:300])
        assert told.status == 200 or len(json.loads(told.content)["error"]) > 10
