"""The catalogue against the record of ptxas 13.0 and of an H200: legality, registers, layouts, lowering."""

from dataclasses import fields, replace

import pytest

from isa.facts import Fact, facts, recorded
from lanewise.errors import IllegalInstruction
from lanewise.isa import ARCHS, FAMILIES, Form, Instruction, Operand, instruction, instructions
from lanewise.isa.table import forms, legality_of


def catalogued(fact: Fact) -> Instruction:
    return instruction(fact.text, **fact.choice)


def elements(operand: Operand) -> list[list[int]]:
    return [list(operand.element(t, v)) for t in range(operand.threads) for v in range(operand.values)]


def test_the_record_is_whole() -> None:
    assert len(facts()) == 2838
    assert len(facts(documented=False)) == 208
    assert tuple(recorded("ptxas_13_0")["archs"]) == ARCHS
    assert tuple(sorted(recorded("ptxas_13_0")["counts"])) == tuple(sorted(FAMILIES))


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_per_arch(family: str) -> None:
    counted = {arch: len(instructions(arch, family)) for arch in ARCHS}
    assert counted == recorded("ptxas_13_0")["counts"][family]


def test_every_recorded_form_is_catalogued_as_recorded() -> None:
    for fact in facts():
        found = catalogued(fact)
        assert found.text == str(found) == fact.text
        assert found.family == fact.record["family"]
        assert (found.archs, found.since, found.until) == (fact.archs, fact.record["since"], None)


def test_nothing_else_is_catalogued() -> None:
    known = {(fact.text, fact.a_source or "") for fact in facts()}
    spaceless = {
        (found.text.replace(f".{found.space}", "", 1) if found.space else found.text, found.a_source)
        for found in instructions()
    }
    assert spaceless == known


def test_a_form_is_looked_up_as_all_are_listed() -> None:
    """Every form, and forms that differ from it in one field, legal or not."""
    for family in FAMILIES:
        listed = forms(family)
        values = {field.name: {getattr(form, field.name) for form in listed} for field in fields(Form)}
        for number, form in enumerate(listed):
            assert legality_of(form) == listed[form]
            if number % 16 == 0:
                for name in values.keys() - {"family"}:
                    for other in (replace(form, **{name: value}) for value in values[name]):
                        assert legality_of(other) == listed.get(other)


def test_state_spaces() -> None:
    for fact in facts():
        spaces = fact.record.get("spaces")
        if spaces is None:
            continue
        words = fact.text.split(".")
        for space in ("", "global", "shared", "shared::cta"):
            text = ".".join([*words, space]) if space else fact.text
            if space not in spaces:
                with pytest.raises(IllegalInstruction, match=r"state space is \.global"):
                    instruction(text)
                continue
            found = instruction(text)
            assert (found.space, found.archs) == (space, fact.archs)
            late = space == "shared::cta" and fact.record["since"] in ("6.3", "6.5", "7.0")
            assert found.since == ("7.8" if late else fact.record["since"])


def test_forms_that_nobody_documents_are_refused_by_name() -> None:
    for fact in facts(documented=False):
        with pytest.raises(IllegalInstruction, match="ptxas accepts it, but no document mentions it"):
            catalogued(fact)


def test_withdrawn_forms() -> None:
    gone = [found for found in instructions(withdrawn=True) if found.until is not None]
    assert {(found.family, found.satfinite, found.until) for found in gone} == {("wmma.mma", True, "6.4")}
    assert len(gone) == 48
    assert set(gone).isdisjoint(instructions())


def test_registers() -> None:
    for fact in facts():
        operands = catalogued(fact).operands
        for name, count in fact.registers().items():
            operand = next(iter(operands.values())) if name == "R" else operands[name.lower()]
            assert operand.registers == count, (fact.text, name)


def test_fragments() -> None:
    """Every value of every lane of every operand whose layout PTX or CuTe gives.

    Many forms share a layout: where all that an element's place follows from is the same, once is enough.
    """
    compared: dict[tuple[object, ...], object] = {}
    operands_seen = 0
    for fact in facts():
        operands = catalogued(fact).operands
        for name, table in fact.fragments().items():
            if name not in ("A", "B", "C", "D", "R"):
                continue
            operand = next(iter(operands.values())) if name == "R" else operands[name.lower()]
            key = (operand.shape, operand.layout, operand.thr_id, operand.transposed, operand.threads)
            if compared.get(key) is not table:
                assert elements(operand) == table, (fact.text, name)
                compared[key] = table
            operands_seen += 1
    assert operands_seen == 2988
    assert len(compared) == 53


def test_movmatrix_transposes() -> None:
    (fact,) = (fact for fact in facts() if fact.record["family"] == "movmatrix")
    source, result = fact.fragments()["A"], fact.fragments()["source of D"]
    move = catalogued(fact)
    assert elements(move.a) == source
    assert [[col, row] for row, col in elements(move.d)] == result


def test_metadata() -> None:
    seen = 0
    for fact in facts():
        table = fact.fragments().get("metadata")
        if table is None:
            continue
        metadata = catalogued(fact).metadata
        assert (metadata.lane_choices, metadata.rows, metadata.cols) == (len(table), 16, len(table[0][0]))
        for selector, rows in enumerate(table):
            for row, groups in enumerate(rows):
                for group, (lane, bit) in enumerate(groups):
                    assert metadata.holders(row, group, thread_id=selector) == ((lane, 0, bit // 4),)
        seen += 1
    assert seen == 196


def test_scales() -> None:
    seen = 0
    for fact in facts():
        for name in ("scale_A", "scale_B"):
            table = fact.fragments().get(name)
            if table is None:
                continue
            scale = catalogued(fact).operands[name.lower()]
            for choice in table:
                selectors = {"thread_id": choice["thread_id"], "byte_id": choice["byte_id"]}
                for outer, places in enumerate(choice["places"]):
                    for inner, (lane, byte) in enumerate(places):
                        cell = (outer, inner) if name == "scale_A" else (inner, outer)
                        assert scale.holders(*cell, **selectors) == ((lane, 0, byte),)
            seen += 1
    assert seen == 216


def test_lowering() -> None:
    sets = recorded("ptxas_13_0")["arch_sets"]
    seen = 0
    for fact in facts():
        found = catalogued(fact)
        for kind, opcodes, archs in fact.record.get("lowering", ()):
            for arch in sets[archs]:
                lowering = found.lowering(arch)
                assert lowering.kind == kind, (fact.text, arch)
                assert all(opcode in lowering.detail for opcode in opcodes), (fact.text, arch, lowering)
                seen += 1
    assert seen > 7000


def test_wmma_fragments_as_an_h200_has_them() -> None:
    layouts = recorded("wmma_h200")["layouts"]
    assert len(layouts) == 88
    for text, table in layouts.items():
        load = instruction(text)
        operand = load.operands[load.matrix]
        seen = [
            [row * operand.cols + col for row, col in (operand.element(t, v) for v in range(operand.values))]
            for t in range(32)
        ]
        assert seen == table, text
        assert "observed on an H200" in operand.source


def test_wmma_multiplies_what_it_loads() -> None:
    """Fragments are handed from load to mma to store, so the layouts must agree."""
    for mma in instructions(family="wmma.mma"):
        for name, operand in mma.operands.items():
            family = "wmma.store.d" if name == "d" else f"wmma.load.{name}"
            way = {"a": mma.layout_a, "b": mma.layout_b}.get(name, "row")
            moved = instruction(f"{family}.sync.aligned.{way}.{mma.shape_text}.{operand.format}")
            assert moved.operands[name] == operand
