"""Counters of `lanewise.check` against Nsight Compute on the device: equal where PTX and SASS do the same."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu import counted
from gpu.device import Device

Compared = dict[str, dict[str, tuple[int, int]]]


@pytest.fixture(scope="module")
def compared(device: Device) -> Iterator[Compared]:
    tool = counted.profiler()
    if not tool:
        pytest.skip("Nsight Compute (ncu) is not here: its counters are what is compared")
    found = counted.compared()
    path = os.environ.get("LANEWISE_COUNTERS")
    if path:
        equal = sum(a == b for case in found.values() for name, (a, b) in case.items() if _counts(name))
        total = sum(_counts(name) for case in found.values() for name in case)
        record = {
            "what": "[Nsight Compute, lanewise.check] of each counter",
            **device.describe(),
            "profiler": tool,
            "date": datetime.date.today().isoformat(),
            "compared": total,
            "equal": equal,
            "cases": found,
        }
        Path(path).write_text(json.dumps(record, indent=1) + "\n")
    yield found


def _counts(name: str) -> bool:
    """ptxas makes other instructions than PTX has: their number is recorded, not compared."""
    return name != counted.INSTRUCTIONS


def test_every_counter_agrees(compared: Compared) -> None:
    wrong = [
        f"{case}: {name} is {read}, check says {said}"
        for case, counters in compared.items()
        for name, (read, said) in counters.items()
        if _counts(name) and read != said
    ]
    assert not wrong, "\n".join(wrong)


def test_tensor_instructions_and_wavefronts_were_among_them(compared: Compared) -> None:
    names = {name for counters in compared.values() for name in counters}
    assert counted.SHARED.format("ldsm") in names and counted.SECTORS.format("ld") in names
