"""Counters of `lanewise.check` against Nsight Compute on the device: equal where PTX and SASS do the same."""

import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu import counted
from gpu.device import Device

Compared = dict[str, dict[str, tuple[int, int]]]

#: Counters that are recorded and not compared, by the beginning of the case's name and the counter's: why.
EXPLAINED = {
    ("", counted.INSTRUCTIONS): "ptxas makes other instructions than PTX has",
    ("hgemm", counted.DIVERGENT): "ptxas makes predicates of short branches",
    (
        "cp16",
        counted.SHARED.format("ldgsts"),
    ): "past L1, a wavefront is what arrives of a line of global memory",
    ("cp16", counted.CONFLICTS.format("ldgsts")): "past L1, no wavefront counts as a conflict",
}


@pytest.fixture(scope="module")
def compared(device: Device) -> Iterator[Compared]:
    tool = counted.profiler()
    if not tool:
        pytest.skip("Nsight Compute (ncu) is not here: its counters are what is compared")
    found = counted.compared()
    path = os.environ.get("LANEWISE_COUNTERS")
    if path:
        pairs = [pair for case in found for name, pair in found[case].items() if not explained(case, name)]
        record = {
            "what": "[Nsight Compute, lanewise.check] of each counter",
            **device.describe(),
            "profiler": tool,
            "date": datetime.date.today().isoformat(),
            "compared": len(pairs),
            "equal": sum(read == said for read, said in pairs),
            "not_compared": [f"{case} {name}: {why}".strip() for (case, name), why in EXPLAINED.items()],
            "cases": found,
        }
        Path(path).write_text(json.dumps(record, indent=1) + "\n")
    yield found


def explained(case: str, name: str) -> bool:
    """Whether a counter may differ for a reason that is known."""
    return any(case.startswith(start) and name == each for start, each in EXPLAINED)


def test_every_counter_agrees(compared: Compared) -> None:
    wrong = [
        f"{case}: {name} is {read}, check says {said}"
        for case, counters in compared.items()
        for name, (read, said) in counters.items()
        if read != said and not explained(case, name)
    ]
    assert not wrong, "\n".join(wrong)


def test_tensor_instructions_and_wavefronts_were_among_them(compared: Compared) -> None:
    names = {name for counters in compared.values() for name in counters}
    assert counted.SHARED.format("ldsm") in names and counted.SECTORS.format("ld") in names
