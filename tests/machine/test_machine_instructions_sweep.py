"""With --on-gpu: every exact form of a lane's own that sm_90 has, on the machine and on the GPU, bit for bit.

What each is held against elsewhere is an oracle of its own; this finds what the oracles have in common.
"""

import re
from functools import cache

import numpy as np
import pytest

from lanewise.machine.program.instruction_record import Level
from lanewise.machine.program.instruction_table import record_of
from machine.forms import forms
from machine.kernels import Case, edges, run_cases
from machine.legal_forms import legal, reason

COUNT, GROUP, PARTS = 1024, 120, 6
BITS = {"h": 16, "r": 32, "d": 64}
#: Approximate, or about places and not about numbers, or tied to what ran before.
LEFT_OUT = re.compile(
    r"\w+\.(approx|full)|(mov|mapa|getctarank|createpolicy|isspacep|cvta|addc|subc|madc|fns)\b|\w+(\.\w+)*\.cc\b"
)


def of_each_lane(text: str) -> bool:
    """Whether the machine computes an instruction for each lane alone."""
    opcode, *modifiers = text.split(".")
    record = record_of(opcode, tuple(modifiers))
    return record is not None and record.level is Level.LANE


def case_of(form: str) -> Case | None:
    """A form as a case; none if it has other operands than registers of 16, 32 and 64 bits."""
    text, _, operands = form.rstrip(";").partition(" ")
    if LEFT_OUT.match(form) or not of_each_lane(text) or reason(form) or "|" in operands or not operands:
        return None
    parts = [each.strip() for each in operands.split(",")]
    matches = [re.fullmatch(r"(-?)%([a-z])\d((?:\.[bh]\d+)?)|(0x)?\d+", part) for part in parts]
    if any(match is None or (match[2] or "r") not in "hrdp" for match in matches):
        return None
    if any(match is not None and match[2] == "p" for match in matches[1:]):
        return None
    sources: list[int] = []
    written = []
    for match, part in zip(matches, parts, strict=True):
        assert match is not None
        if match[2] is None:
            written.append(part)
        elif not written:
            written.append("{d}" + match[3])
        else:
            written.append(f"{match[1]}{{{len(sources)}}}{match[3]}")
            sources.append(BITS[match[2]])
    assert matches[0] is not None
    return Case(text, tuple(sources), BITS.get(matches[0][2] or "", 0), ", ".join(written))


@cache
def cases() -> list[Case]:
    """Every form; of the video instructions, which combine the same few modifiers, every eighth."""
    found = [case_of(form) for form in legal(forms(), "sm_90a")]
    every = [case for case in found if case is not None]
    video = [case for case in every if case.text.startswith("v")]
    return [case for case in every if case not in set(video)] + video[::8]


def numbers(bits: int, rng: np.random.Generator) -> np.ndarray:
    """Integers and floats of every kind that so many bits may be."""
    kinds = {16: ("", "f16", "bf16"), 32: ("", "f32"), 64: ("", "f64")}[bits]
    return rng.permutation(np.concatenate([edges(bits, rng, COUNT, kind) for kind in kinds]))[:COUNT]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_form_of_a_lanes_own_on_the_gpu(part: int, everything: bool) -> None:
    if not everything:
        pytest.skip("needs --on-gpu")
    rng = np.random.default_rng(part)
    given = {bits: [numbers(bits, rng) for _ in range(5)] for bits in (16, 32, 64)}
    every = cases()
    assert len(every) > 1500
    every = every[part::PARTS]
    wrong = []
    for start in range(0, len(every), GROUP):
        try:
            run_cases(every[start : start + GROUP], given)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)
