"""What is called confirmed on hardware is in the record of the hardware runs, without a differing bit."""

import json
from pathlib import Path

import pytest

from lanewise.isa import Instruction, instructions

RECORD = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "h200_arithmetic.json").read_text()
)
FAMILIES = ("mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma", "wgmma", "wgmma.sp")
#: wgmma's families were run at these N.
WIDTHS = (8, 24, 256)


def recorded_as(instruction: Instruction) -> str:
    source = {"registers": " (A in registers)", "descriptor": " (A in shared memory)"}
    return instruction.text + source.get(instruction.a_source, "")


@pytest.mark.parametrize("family", FAMILIES)
def test_confirmed_forms_are_recorded(family: str) -> None:
    seen = RECORD["checks"]["every bit"]
    confirmed = [
        form
        for form in instructions("sm_90a", family)
        if form.fidelity("sm_90a") == "confirmed on hardware"
        and (not family.startswith("wgmma") or form.n in WIDTHS)
    ]
    assert confirmed
    for form in confirmed:
        outcome = seen[recorded_as(form)]
        assert outcome["differing"] == 0 and outcome["vectors"] >= 160 * 64, form.text


def test_record_says_where_it_was_made() -> None:
    made = RECORD["made"]
    assert made["arch"] == "sm_90a"
    assert all(made[key] for key in ("device", "driver", "assembler", "date", "seed"))


def test_totals_are_the_sums() -> None:
    for name, total in RECORD["totals"].items():
        outcomes = RECORD["checks"][name].values()
        assert total["vectors"] == sum(outcome["vectors"] for outcome in outcomes)
        assert total["differing"] == sum(outcome["differing"] for outcome in outcomes) == 0
