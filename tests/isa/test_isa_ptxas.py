"""The catalogue against ptxas itself: what it lists assembles, what it refuses is refused, arch by arch."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from everything import EVERYTHING, sampled
from isa.facts import facts
from isa.near_misses import SPELLING, near_misses
from isa.probe import VERSIONS, Probe, operands, refused, shuffled
from lanewise.errors import IllegalInstruction
from lanewise.isa import ARCHS, Instruction, instruction, instructions
from lanewise.isa.syntax import read
from ptxas import find_ptxas

pytestmark = pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is not installed: pip install 'nvidia-cuda-nvcc==13.0.*'"
)

#: Where every form is tried; the others have the same forms as one of these and are sampled.
FULL = ("sm_70", "sm_72", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
#: wgmma has some 2000 forms that differ in N only: these widths for every type, all widths for some.
WIDTHS = (8, 24, 256) if EVERYTHING else (8, 256)
#: Of the forms that an older arch has too, one in so many is assembled for a newer one again.
SAMPLED = 1 if EVERYTHING else 16
#: Of the forms that no older arch has, one in so many is assembled.
FIRST_SAMPLED = 1 if EVERYTHING else 6


def probe(found: Instruction) -> Probe:
    return found.text, found.a_source, found.stride


def choice(text: str, a_source: str, stride: bool) -> dict[str, Any]:
    """What `instruction` is told beside the text."""
    if text.startswith("wgmma"):
        return {"a_source": a_source}
    return {"stride": stride} if text.startswith(("wmma.load", "wmma.store")) else {}


def on_trial(arch: str) -> list[Instruction]:
    """The forms of an arch that are assembled for it."""
    found = instructions(arch)
    if arch not in FULL:
        step = 11 if EVERYTHING else 33
        return found[ARCHS.index(arch) % step :: step]
    older = set(ARCHS[: ARCHS.index(arch)])
    return [
        each
        for number, each in enumerate(found)
        if (each.threads == 32 or each.n in WIDTHS or number % 12 == 0)
        and (number % SAMPLED == 0 or (older.isdisjoint(each.archs) and number % FIRST_SAMPLED == 0))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_listed_forms_assemble(arch: str) -> None:
    probes = [probe(found) for found in on_trial(arch)]
    complaints = refused(probes, arch)
    assert {probes[index]: message for index, message in complaints.items()} == {}


@sampled(2)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
def test_modifiers_in_any_order_assemble(arch: str) -> None:
    chance = Random(arch)
    some = instructions(arch)[:: 9 if EVERYTHING else 27]
    probes = [(shuffled(text, chance), a, stride) for text, a, stride in map(probe, some)]
    complaints = refused(probes, arch)
    assert {probes[index]: message for index, message in complaints.items()} == {}


def test_statements_that_assemble_are_read_back() -> None:
    """The operands that ptxas takes with a form are those that the catalogue expects."""
    for arch in ("sm_90a", "sm_120a"):
        for found in on_trial(arch):
            written, _ = operands(*probe(found))
            assert instruction(f"@%p1 {found.text} {written};", arch=arch) == found


@sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_near_misses(arch: str) -> None:
    """ptxas takes exactly those that are legal on the arch, and the forms that only it knows of."""
    holes = {fact.text: fact.archs for fact in facts(documented=False)}
    probes = near_misses(arch, 400 if arch in FULL else 120)
    expected = set()
    for text, a_source, stride in probes:
        try:
            read(text)  # as PTX is written: `instruction` takes short names too
            found = instruction(text, **choice(text, a_source, stride))
        except IllegalInstruction as error:
            only_ptxas = "ptxas accepts it, but no document mentions it" in str(error)
            base = _canonical(text) if only_ptxas else ""
            assert not only_ptxas or base in holes, text
            if only_ptxas and arch in holes[base]:
                expected.add((text, a_source, stride))
        else:
            if arch in found.archs and found.until is None:
                expected.add((text, a_source, stride))
    complaints = refused(probes, arch)
    taken = {each for index, each in enumerate(probes) if index not in complaints}
    assert taken == expected


def _canonical(text: str) -> str:
    """The text of an undocumented form as the record has it: in order, without state space."""
    form = read(text)
    return form.text.replace(f".{form.space}", "", 1) if form.space else form.text


@sampled(8)
@pytest.mark.parametrize("arch", ARCHS)
def test_forms_of_other_archs_are_refused(arch: str) -> None:
    elsewhere = [found for found in instructions() if arch not in found.archs]
    step = max(1, len(elsewhere) // (250 if arch in FULL else 60))
    probes = [probe(found) for found in elsewhere[ARCHS.index(arch) % step :: step]]
    complaints = refused(probes, arch)
    assert [each for index, each in enumerate(probes) if index not in complaints] == []


@sampled(12)
@pytest.mark.parametrize("older, first", list(pairwise(VERSIONS)))
def test_first_ptx_version(older: str, first: str) -> None:
    """A form assembles with its first PTX version, and not with the one before."""
    by_arch: dict[str, list[Probe]] = {}
    for found in instructions():
        if found.since == first:
            by_arch.setdefault(found.archs[0], []).append(probe(found))
    for arch, probes in by_arch.items():
        sample = probes[:: max(1, len(probes) // 40)]
        assert refused(sample, arch, first) == {}
        assert len(refused(sample, arch, older)) == len(sample)


def test_last_ptx_version() -> None:
    """wmma's .satfinite on floats ended with PTX 6.4."""
    gone = [found for found in instructions("sm_70", withdrawn=True) if found.until is not None]
    probes = [probe(found) for found in gone]
    assert {found.until for found in gone} == {"6.4"}
    assert refused(probes, "sm_70", "6.3") == refused(probes, "sm_70", "6.4") == {}
    assert len(refused(probes, "sm_70", "6.5")) == len(probes) == 48


@pytest.mark.parametrize("text, arch, message", SPELLING)
def test_slips_that_ptxas_overlooks(text: str, arch: str, message: str) -> None:
    """The catalogue is stricter than ptxas here, and says what is wrong."""
    assert refused([(text, "descriptor" if text.startswith("wgmma") else "", True)], arch) == {}
    with pytest.raises(IllegalInstruction) as caught:
        instruction(text)
    assert message in str(caught.value)
