"""`lanewise list` says what the catalogue says."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from lanewise.atoms import atom, atoms
from lanewise.isa import ARCHS, FAMILIES, instruction, instructions
from lanewise.isa.asynchronous import async_instructions, families


def test_forms_are_those_of_the_catalogue(answered: Callable[..., str]) -> None:
    found = json.loads(answered("list", "--arch", "sm_89", "--a", "e4m3", "--json"))
    forms = instructions("sm_89", a="e4m3")
    assert [entry["text"] for entry in found] == [form.text for form in forms]
    for entry, form in zip(found, forms, strict=True):
        assert entry["registers"] == {name: operand.registers for name, operand in form.operands.items()}
        assert entry["lowering"] == form.lowering("sm_89")._asdict()
        assert (tuple(entry["archs"]), entry["since"]) == (form.archs, form.since)


@pytest.mark.parametrize(
    ("options", "filters"),
    [
        (("--family", "ldmatrix"), {"family": "ldmatrix"}),
        (("--shape", "m16n8k32", "--sparse"), {"shape": "m16n8k32", "sparse": True}),
        (("--shape", "m16n8k*", "--dense"), {"shape": "m16n8k*", "sparse": False}),
        (("--shape", "16x8x32"), {"shape": "m16n8k32"}),
        (("--shape", "8x8", "--family", "movmatrix"), {"shape": "m8n8", "family": "movmatrix"}),
        (("--kind", "mxf4"), {"kind": "mxf4"}),
        (("--kind", "none", "--family", "mma"), {"kind": "", "family": "mma"}),
        (
            ("--a", "s8", "--b", "u8", "--c", "s32", "--d", "s32"),
            {"a": "s8", "b": "u8", "c": "s32", "d": "s32"},
        ),
        (("--family", "wmma.mma", "--withdrawn"), {"family": "wmma.mma", "withdrawn": True}),
    ],
)
def test_every_filter_is_passed_on(
    answered: Callable[..., str], options: tuple[Any, ...], filters: dict[Any, Any]
) -> None:
    rows = list(csv.reader(io.StringIO(answered("list", *options, "--csv"))))
    assert [row[0] for row in rows[1:]] == [form.text for form in instructions(**filters)]
    assert len(rows) > 1


def test_words_are_whole_modifiers(answered: Callable[..., str]) -> None:
    """f16 asks for f16, not for bf16; several words must all be there."""
    found = json.loads(answered("list", "mma", "f16", ".m16n8k16", "--json"))
    expected = [
        form.text
        for form in instructions()
        if {"mma", "f16", "m16n8k16"} <= {word.split("::")[0] for word in form.text.split(".")}
    ]
    assert [entry["text"] for entry in found] == expected and expected
    assert json.loads(answered("list", "row.col.f32.bf16", "m16n8k8", "--family", "mma", "--json"))


def test_counts_add_up_to_the_catalogue(answered: Callable[..., str]) -> None:
    counts = json.loads(answered("list", "--count", "--json"))
    assert list(counts) == list(FAMILIES)
    for family in FAMILIES:
        for arch in ("sm_70", "sm_86", "sm_90a", "sm_120f"):
            assert counts[family][arch] == len(instructions(arch, family))
        assert list(counts[family]) == list(ARCHS)


def test_counts_as_text_have_a_line_a_family(answered: Callable[..., str]) -> None:
    lines = answered("list", "--count").splitlines()
    assert lines[0].split() == ["family", *ARCHS]
    table = {line.split()[0]: [int(word) for word in line.split()[1:]] for line in lines[1:]}
    total = table.pop("all")
    assert [sum(column) for column in zip(*table.values(), strict=True)] == total


def test_text_is_one_line_a_form(answered: Callable[..., str]) -> None:
    lines = answered("list", "--arch", "80", "--family", "mma").splitlines()
    forms = instructions("sm_80", "mma")
    assert [line.split()[0] for line in lines[1 : 1 + len(forms)]] == [form.text for form in forms]
    assert lines[-1].startswith(f"{len(forms)} forms")


def test_operand_variants_can_be_told_apart(answered: Callable[..., str]) -> None:
    rows = answered("list", "--family", "wgmma", "--shape", "m64n8k16", "--csv").splitlines()
    assert len(rows) == len(set(rows))


def test_atoms_come_with_their_instructions(answered: Callable[..., str]) -> None:
    found = json.loads(answered("atoms", "16x8x16*F32F16", "--json"))
    assert [entry["atom"] for entry in found] == atoms("16x8x16*F32F16")
    for entry in found:
        assert instruction(entry["instruction"]) == atom(entry["atom"]).instruction
    copies = json.loads(answered("atoms", "CP_ASYNC", "--json"))
    assert copies and all(entry["instruction"] is None for entry in copies)
    assert "No atom" in answered("atoms", "xyz")


def test_nothing_fits(answered: Callable[..., str]) -> None:
    assert "No form fits" in answered("list", "--a", "f64", "--kind", "mxf4")
    assert json.loads(answered("list", "--a", "f64", "--kind", "mxf4", "--json")) == []


def test_words_as_people_spell_them(answered: Callable[..., str]) -> None:
    wanted = answered("list", "mma", "m16n8k16", "f16", "--arch", "sm_90")
    for words in (("mma", "16x8x16", "half"), ("mma", "m16n8k16", "FP16")):
        assert answered("list", *words, "--arch", "sm_90") == wanted
    assert "e4m3" in answered("list", "mma", "fp8") and "e5m2" in answered("list", "mma", "fp8")


def test_says_which_condition_leaves_nothing(answered: Callable[..., str]) -> None:
    told = answered("list", "--arch", "T4", "--family", "mma", "f16", "m16n8k16")
    assert "without --arch sm_75" in told and "without m16n8k16" in told
    assert "--dense" in answered("list", "--dense", "--family", "mma.sp")
    assert "Did you mean mma?" in answered("list", "mm")


def test_says_which_condition_leaves_no_asynchronous_form(answered: Callable[..., str]) -> None:
    counts = {
        words: len(json.loads(answered("list", "tcgen05.mma", *words, "--json")))
        for words in (("s8",), ("bf16",))
    }
    told = answered("list", "tcgen05.mma", "bf16", "m256n63")
    assert told == f"No form fits all of that; there are {counts['bf16',]} without m256n63.\n"
    assert told == answered("list", "tcgen05.mma", "bf16", "m256n63", "--count")
    told = answered("list", "tcgen05.mma", "s8", "--arch", "sm_103a")
    assert f"{counts['s8',]} without --arch sm_103a" in told and "without s8" in told
    assert "no instruction has the word 'bff16'" in answered("list", "tcgen05.mma", "bff16").lower()
    assert json.loads(answered("list", "tcgen05.mma", "bff16", "--json")) == []
    assert answered("list", "tcgen05", "bff16", "--csv") == "instruction,operands,archs,PTX\n"


def test_without_conditions_the_families_are_counted(answered: Callable[..., str]) -> None:
    rows = [line.split() for line in answered("list").splitlines()]
    counts = {row[0]: row[1] for row in rows if len(row) > 1}
    for family in FAMILIES:
        assert int(counts[family]) == len(instructions(family=family))
    for family in families():
        assert int(counts[family]) == len(async_instructions(family=family))
    assert len(rows) < 50 < len(answered("list", "--all").splitlines())
    assert len(json.loads(answered("list", "--json"))) == len(instructions())


@pytest.mark.parametrize("word", ["sparse", "dense", "Sparse"])
def test_sparse_is_a_word_as_well_as_an_option(word: str, answered: Callable[..., str]) -> None:
    assert answered("list", "mma", word, "f16") == answered("list", f"--{word.lower()}", "mma", "f16")


def test_tcgen05_products_are_found_by_format_and_shape(answered: Callable[..., str]) -> None:
    def texts(*words: str) -> set[str]:
        return {each["text"] for each in json.loads(answered("list", "tcgen05.mma", *words, "--json"))}

    assert texts("bf16") == texts("kind::f16") and texts("int8") == texts("s8") == texts("kind::i8")
    assert texts("e2m1") == texts("kind::f8f6f4") | texts("kind::mxf8f6f4") | texts("fp4", "block_scale")
    assert texts("bf16", "m256n64") == texts("kind::f16", "cta_group::2")
    assert texts("bf16", "32x64x16") == {
        each for each in texts("kind::f16") if ".ws." in each and ".sp." not in each
    }
    assert texts("m64n40k32", "s8") == set()
    assert texts("nvfp4") == texts("kind::mxf4nvf4", "block16") | texts("kind::mxf4nvf4", "scale_vec::4X")


def test_asynchronous_families_are_found_by_their_name(answered: Callable[..., str]) -> None:
    for family in ("tcgen05", "tcgen05.mma", "cp.async.bulk.tensor"):
        assert answered("list", family) == answered("list", "--family", family)
    words = answered("list", "tcgen05.mma", "kind::f16")
    assert words == answered("list", "--family", "tcgen05.mma", "kind::f16")
