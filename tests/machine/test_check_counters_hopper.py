"""Counters of Hopper's asynchronous operations: what Nsight Compute read on an H200 for the same launches."""

import json
from pathlib import Path

import pytest

from everything import EVERYTHING, sampled
from gpu.counted_hopper import HopperCase, hopper_cases, on_cpu

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_counters.json"
CASES = list(hopper_cases())
#: Every fifth launch; all of them when asked.
CHOSEN = CASES if EVERYTHING else CASES[::5]


@sampled(6)
@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_counters_are_those_on_record(case: HopperCase) -> None:
    read = {name: pair[0] for name, pair in json.loads(RECORD.read_text())["cases"][case.name].items()}
    said = on_cpu(case)
    assert {name: said[name] for name in read} == read
