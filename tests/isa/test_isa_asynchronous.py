"""tcgen05, bulk copies and tensor copies against ptxas: what is listed assembles, what is not is refused."""

import re
from collections.abc import Sequence
from itertools import product

import pytest

from everything import sampled
from isa.probe import VERSIONS
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.isa import ARCHS
from lanewise.isa.asynchronous import AsyncInstruction, async_instruction, async_instructions
from lanewise.isa.asynchronous.descriptor import BLOCK_SCALED, DENSE, shapes
from lanewise.isa.asynchronous.instruction import meaning
from lanewise.isa.asynchronous.table import REGISTERS, rows
from ptxas import assemble, find_ptxas

needs_ptxas = pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is not installed: pip install 'nvidia-cuda-nvcc==13.0.*'"
)
#: ptxas gives up after some errors, so refused forms are asked about a few at a time.
FEW = 8
NEWEST = VERSIONS[-1]


def operands(text: str, a_in_tensor_memory: bool = False) -> str:
    """Operands in PTX, written from the words of an instruction and not from the table that is on trial."""
    words = text.split(".")
    hint = ", %rd9" if "L2::cache_hint" in words else ""
    mask = ", %rs0" if "multicast::cluster" in words else ""
    if words[0] == "tcgen05":
        return _of_tensor_memory(text, words, a_in_tensor_memory)
    if words[-1] in ("commit_group",):
        return ""
    if "wait_group" in words:
        return "0"
    if "tensor" in words:
        return _of_tensor_copy(words, mask, hint)
    if "prefetch" in words:
        return f"[%rd0], 16{hint}"
    first, second = (word for word in words if word in ("global", "shared::cta", "shared::cluster"))
    target, source = (
        f"[%rd{n}]" if space == "global" else f"[%r{n}]" for n, space in enumerate((first, second))
    )
    barrier = ", [%r2]" if "mbarrier::complete_tx::bytes" in words else ""
    return f"{target}, {source}, 16{barrier}{mask}{hint}{', %rs3' if 'cp_mask' in words else ''}"


def _of_tensor_memory(text: str, words: Sequence[str], a_in_tensor_memory: bool) -> str:
    name = words[1].partition("::")[0]
    if name in ("relinquish_alloc_permit", "wait", "fence"):
        return ""
    if name == "alloc":
        return "[%r0], 32" if "shared::cta" in words else "[%rd0], 32"
    if name == "commit":
        mask = ", %rs0" if "multicast::cluster" in words else ""
        return ("[%r0]" if "shared::cluster" in words else "[%rd0]") + mask
    if name in ("ld", "st"):
        shape = next(word for word in words if re.fullmatch(r"\d+x\d+b(x2)?", word))
        num = next(int(word[1:]) for word in words if re.fullmatch(r"x\d+", word))
        bits = {"16x64b": 64 * 16, "16x128b": 128 * 16, "16x256b": 256 * 16}.get(shape, 32 * 32)
        count = bits * num // (32 * 32)  # bits of a warp, in registers of 32 bits for each of 32 lanes
        vector = "{" + ",".join(f"%r{n}" for n in range(count)) + "}"
        half = ", 16" if shape == "16x32bx2" else ""
        if name == "st":
            return f"[%r0]{half}, {vector}"
        reduced = (", %f0" if "f32" in words else ", %r200") if "red" in words else ""
        return f"{vector}{reduced}, [%r0]{half}"
    if name == "mma":
        a = "[%r1]" if a_in_tensor_memory else "%rd0"
        metadata = ", [%r2]" if "sp" in words else ""
        scales = ", [%r4], [%r5]" if "block_scale" in words else ""
        return f"[%r0], {a}, %rd1{metadata}, %r3{scales}, %p0"
    return {"dealloc": "%r0, 32", "cp": "[%r0], %rd0", "shift": "[%r0]"}[name]


def _of_tensor_copy(words: Sequence[str], mask: str, hint: str) -> str:
    sizes = next(int(word[0]) for word in words if re.fullmatch(r"\dd", word))
    mode = next((word for word in words if word.startswith(("im2col", "tile"))), "tile")
    count = 5 if mode.endswith("4") else sizes
    box = f"[%rd0, {{{','.join(f'%r{10 + n}' for n in range(count))}}}]"
    offsets = ""
    if mode.startswith("im2col") and mode != "im2col_no_offs":
        count = 2 if mode.startswith("im2col::w") else max(1, sizes - 2)
        offsets = f", {{{','.join(f'%rs{1 + n}' for n in range(count))}}}"
    if "prefetch" in words:
        return f"{box}{offsets}{hint}"
    if "bulk_group" in words:
        return f"{box}, [%r0]{hint}"
    return f"[%r0], {box}, [%r1]{offsets}{mask}{hint}"


def refused(probes: Sequence[tuple[str, bool]], arch: str, version: str = NEWEST) -> dict[str, str]:
    """The instructions that ptxas refuses, and why."""
    head = f".version {version}\n.target {arch}\n.address_size 64\n"
    registers = ".reg .b32 %r<300>;.reg .b64 %rd<20>;.reg .b16 %rs<20>;.reg .f32 %f<200>;.reg .pred %p<4>;"
    lines = [
        f".entry k{n}(){{{registers}{text} {operands(text, a)};ret;}}" for n, (text, a) in enumerate(probes)
    ]
    return {
        probes[line - 4][0]: message
        for line, message in assemble(head + "\n".join(lines) + "\n", arch)
        if line
    }


def sources(each: AsyncInstruction) -> tuple[bool, ...]:
    """Whether A may be behind a descriptor (False) and in tensor memory (True)."""
    if ".mma." not in each.text:
        return (False,)
    return (True,) if "ashift" in each.text else (False, True)


def some_of(found: Sequence[AsyncInstruction], step: int) -> list[AsyncInstruction]:
    """The first of each row, and some of all."""
    first = {each.row: each for each in reversed(found)}
    return [*first.values(), *found[::step]]


@needs_ptxas
@pytest.mark.slow
@sampled(6)
@pytest.mark.parametrize("arch", [arch for arch in ARCHS if async_instructions(arch)])
def test_listed_forms_assemble(arch: str) -> None:
    found = async_instructions(arch)
    if arch not in ("sm_90", "sm_100a"):  # the others have the same forms as one of these
        found = some_of(found, 19)
    assert refused([(each.text, a) for each in found for a in sources(each)], arch) == {}


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100", "sm_100f", "sm_103a", "sm_110f", "sm_120a"])
def test_forms_of_other_archs_are_refused(arch: str) -> None:
    first = {each.row: each for each in async_instructions() if arch not in each.archs}
    probes = [(each.text, sources(each)[0]) for each in first.values()]
    accepted = {text for text, _ in probes}
    for at in range(0, len(probes), FEW):
        accepted -= set(refused(probes[at : at + FEW], arch))
    assert accepted == set()


@needs_ptxas
def test_each_row_begins_with_its_version() -> None:
    """The version before it refuses the row, if that version knows an arch of the row at all."""
    knows = {"sm_90": "7.8", "sm_100a": "8.6", "sm_103a": "8.8"}  # the first version with this target
    first = {each.row: each for each in reversed(async_instructions())}
    groups: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for row, each in first.items():
        arch = next(arch for arch in knows if arch in each.archs)
        groups.setdefault((arch, row.since), []).append((each.text, sources(each)[0]))
    assert len(groups) > 4
    for (arch, since), probes in groups.items():
        assert refused(probes, arch, since) == {}
        before = VERSIONS[VERSIONS.index(since) - 1]
        if VERSIONS.index(before) < VERSIONS.index(knows[arch]):
            continue
        accepted = {text for text, _ in probes}
        for start in range(0, len(probes), FEW):
            accepted -= set(refused(probes[start : start + FEW], arch, before))
        assert accepted == set(), f"PTX {before} has them already"


#: Wider patterns than the table's: their forms that the table does not have must be refused by ptxas.
NEIGHBOURS = (
    "tcgen05.cp cta_group::1 128x256b|4x256b|64x128b|32x128b |warpx2::02_13|warpx4",
    "tcgen05.mma cta_group::1 kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 block_scale "
    "|scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32",
    "tcgen05.mma cta_group::2 kind::f16 ashift collector::a::fill|collector::a::use|collector::a::lastuse",
    "tcgen05.mma.ws cta_group::1|cta_group::2 kind::f16|kind::mxf4",
    "tcgen05.ld sync aligned 16x128b|16x256b|32x32b x32|x64|x128 b32",
    "tcgen05.ld.red sync aligned 32x32b|16x64b x1|x2 min f32|u32",
    "cp.async.bulk shared::cluster|shared::cta global mbarrier::complete_tx::bytes |multicast::cluster",
    "cp.async.bulk.tensor 1d|2d|3d|5d shared::cta global tile|tile::gather4|im2col "
    "mbarrier::complete_tx::bytes |multicast::cluster",
    "cp.async.bulk.tensor 1d|2d|3d global shared::cta tile::scatter4|im2col_no_offs bulk_group",
    "cp.reduce.async.bulk global shared::cta bulk_group and|add|inc|min f16|b32|u32|s64|f32|b64",
)


@needs_ptxas
@pytest.mark.parametrize("pattern", NEIGHBOURS, ids=lambda pattern: pattern.split()[0])
def test_neighbours_are_refused(pattern: str) -> None:
    arch = "sm_103a"
    texts = [".".join(filter(None, words)) for words in product(*(w.split("|") for w in pattern.split()))]
    known = {each.text for each in async_instructions(arch)}
    strangers = [text for text in texts if text not in known]
    assert strangers
    probes = [(text, "ashift" in text) for text in strangers]
    accepted = set(strangers)
    for at in range(0, len(probes), FEW):
        accepted -= set(refused(probes[at : at + FEW], arch))
    assert accepted == set(), f"ptxas takes them for {arch}, and the table does not have them"
    for text in strangers:
        with pytest.raises(IllegalInstruction, match="Nearest legal form"):
            async_instruction(text)


def test_every_word_is_explained() -> None:
    for each in async_instructions():
        assert each.does
        for word, says in each.words:
            assert says and meaning(word) == says, f"{each.text}: {word}"


def test_a_text_is_one_form() -> None:
    texts = [text for row in rows() for text in row.texts()]
    assert len(texts) == len(set(texts)) == len({frozenset(text.split(".")) for text in texts})
    assert len(texts) == len(async_instructions())


def test_words_in_another_order_and_operands() -> None:
    found = async_instruction("tcgen05.mma.kind::f16.cta_group::2 [%r0], %rd0, %rd1, %r1, %p0;")
    assert found.text == "tcgen05.mma.cta_group::2.kind::f16"
    assert async_instruction("tcgen05.wait::st.sync.aligned;").family == "tcgen05.wait"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tcgen05.mma.cta_group::1.kind::f17", "kind::f17 is no word.*Nearest.*kind::f16"),
        ("cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes", "in this order"),
        ("tcgen05.ld.sync.aligned.32x32b.x3.b32", "x3 is no word.*32x32b"),
        ("tcgen05", "begins [0-9]+ instructions"),
        ("tcgen05." + "mma." * 1000, "…"),
    ],
)
def test_mistakes_are_refused_with_the_nearest_form(text: str, says: str) -> None:
    with pytest.raises(IllegalInstruction, match=says) as raised:
        async_instruction(text)
    assert len(str(raised.value)) < 500


def test_an_arch_without_it_is_told() -> None:
    with pytest.raises(IllegalInstruction, match=r"sm_90a does not have it; sm_100a, .* have"):
        async_instruction("tcgen05.fence::before_thread_sync", arch="H100")
    with pytest.raises(LanewiseError, match=r"families are tcgen05\.alloc"):
        async_instructions(family="tcgen06")


def test_the_fields_of_the_instruction_descriptor_do_not_overlap() -> None:
    for fields in (DENSE, BLOCK_SCALED):
        bits = [bit for field in fields for bit in range(field.first, field.first + field.bits)]
        assert len(bits) == len(set(bits)) and max(bits) == 31


def test_every_product_has_shapes() -> None:
    for each in async_instructions():
        if ".mma." in each.text:
            assert all(shapes(each.text))
    assert shapes("tcgen05.mma.sp.cta_group::1.kind::f16").k == "32"
    assert set(REGISTERS) == {"16x64b", "16x128b", "16x256b", "32x32b", "16x32bx2"}


def test_an_opcode_alone_lists_instructions_that_begin_with_it() -> None:
    for opcode in ("tcgen05", "tcgen05.ld", "tcgen05.mma", "cp.async.bulk", "cp.async.bulk.tensor"):
        with pytest.raises(IllegalInstruction, match=f"'{opcode}' begins [0-9]+ instructions") as caught:
            async_instruction(opcode)
        lines = [line.strip() for line in str(caught.value).splitlines()[1:]]
        named = [line for line in lines if " more: " not in line]
        assert named and all(async_instruction(each).text.startswith(opcode) for each in named)
