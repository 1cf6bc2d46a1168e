"""The records of an H200 hold what the pages quote: nothing differed, and the figures are reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_the_machine_and_the_gpu_left_the_same_bits() -> None:
    seen = record("h200_same_bits")
    exact = {name: each for name, each in seen["entries"].items() if not each.get("approximate")}
    assert seen["device"] and seen["driver"] and seen["date"]
    assert len(exact) > 100 and all(each["launches"] and each["compared"] for each in exact.values())
    assert not any(each["differing"] for each in exact.values())
    assert seen["entries"]["attention"]["largest_difference"] < 0.002


def test_every_compared_counter_was_equal() -> None:
    seen = record("h200_counters")
    assert seen["compared"] == seen["equal"] == 490


def test_the_ladder_reaches_its_share() -> None:
    seen = record("h200_ladder")
    best = max(seen["rungs"], key=lambda row: row["tflops"])
    assert best["share_of_torch"] >= 0.6 and best["tflops"] > 396
    assert all(row["elements_unlike_torch"] == 0 for row in seen["rungs"])


def test_a_warm_launch_costs_less_than_five_microseconds() -> None:
    launches = record("h200_launch")["microseconds_a_warm_launch"]
    for way in ("lanewise: k = kernel[grid, block]; k(…)", "lanewise language: kernel[grid, block](…)"):
        assert launches[way]["best"] <= 5
