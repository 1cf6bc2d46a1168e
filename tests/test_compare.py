"""benchmarks/compare.py: which figures it compares, in which direction, and when it fails."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORDS = sorted(
    path for kind in ("machine", "arithmetic") for path in (BENCHMARKS / "results").glob(f"{kind}_*.json")
)


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_compare", BENCHMARKS / "compare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for the names of types
    spec.loader.exec_module(module)
    return module


compare = loaded()

BEFORE: dict[str, Any] = {
    "machine": {"processor": "x", "processors": 2, "load": 0.5},
    "compile": {"20": {"instructions": 20, "seconds": 0.02, "processor_seconds": 0.02}},
    "start": {"import": 0.2},
    "saxpy": {"warp_instructions": 1000, "seconds": 0.5, "millions_a_second": 100.0},
    "hgemm": {"size": 1024, "gflops": 4.0, "share": 0.5},
    "linear": {"blocks": [0.001, 0.0001]},
    "check": {"hgemm": 3.0},
    "products": [
        {
            "instruction": "mma a",
            "arch": "sm_90",
            "gflops": 7.0,
            "peer_by_tile_gflops": 0.1,
            "bits_agree": True,
        },
        {"instruction": "mma a", "arch": "sm_80", "gflops": 8.0},
    ],
}


def changed(**sections: Any) -> dict[str, Any]:
    return {**BEFORE, **sections}


def run(tmp_path: Path, before: Any, after: Any, *options: str) -> int:
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, record in zip(paths, (before, after), strict=True):
        path.write_text(json.dumps(record))
    status: int = compare.main([*map(str, paths), *options])
    return status


def test_times_fall_and_rates_rise_and_sizes_are_no_figures() -> None:
    directions = {name: smaller for name, (_, smaller) in compare.figures(BEFORE).items()}
    assert directions == {
        "compile / 20 / seconds": True,
        "compile / 20 / processor_seconds": True,
        "start / import": True,
        "saxpy / seconds": True,
        "saxpy / millions_a_second": False,
        "hgemm / gflops": False,
        "hgemm / share": False,
        "linear / blocks / 0": True,
        "linear / blocks / 1": True,
        "check / hgemm": True,
        "products / mma a sm_90 / gflops": False,
        "products / mma a sm_80 / gflops": False,
    }


def test_a_ratio_is_one_of_speeds() -> None:
    assert compare.Comparison("seconds", 2.0, 1.0, True).ratio == 2
    assert compare.Comparison("gflops", 2.0, 1.0, False).ratio == 0.5
    assert compare.Comparison("seconds", 0.0, 0.0, True).ratio == 1
    assert compare.Comparison("seconds", 0.5, 0.0, True).ratio == float("inf")
    assert compare.Comparison("seconds", 0.0, 0.5, True).ratio == 0


def test_worst_first_and_status_1_below_the_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = changed(hgemm={"size": 1024, "gflops": 3.8, "share": 0.6}, start={"import": 0.25})
    assert run(tmp_path, BEFORE, after) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["start", "/", "import", "smaller", "0.2", "0.25", "0.800", "below"]
    assert lines[2].split() == ["hgemm", "/", "gflops", "larger", "4", "3.8", "0.950", "below"]
    assert lines[-2].split() == ["hgemm", "/", "share", "larger", "0.5", "0.6", "1.200"]
    assert lines[-1] == "12 figures, 2 below 0.97, 0 missing"
    assert run(tmp_path, BEFORE, after, "--at-least", "0.8") == 0
    assert run(tmp_path, BEFORE, after, "--at-least", "0.81") == 1


def test_equal_records_are_no_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, BEFORE, BEFORE) == 0
    assert "different machines" not in capsys.readouterr().out


def test_a_figure_that_is_gone_is_a_loss_and_a_new_one_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = changed(attention={"seconds": 1.0})
    assert run(tmp_path, longer, BEFORE) == 1
    assert "missing from the second record: attention / seconds" in capsys.readouterr().out
    assert run(tmp_path, BEFORE, longer) == 0
    assert "new in the second record: attention / seconds" in capsys.readouterr().out


def test_a_folder_counts_by_the_medians_of_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side, times in (("before", (1.0, 1.1, 9.0)), ("after", (0.5, 1.0, 0.9))):
        (tmp_path / side).mkdir()
        for number, taken in enumerate(times):
            (tmp_path / side / f"{number}.json").write_text(json.dumps({"saxpy": {"seconds": taken}}))
    assert compare.main([str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "saxpy", "/", "seconds", "smaller", "1.1", "0.9", "1.222",
    ]  # fmt: skip


def test_records_without_a_common_figure_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, {"a": {"seconds": 1}}, {"b": {"seconds": 1}}) == 2
    assert "no figure in common" in capsys.readouterr().err


def test_other_machines_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, BEFORE, changed(machine={"processor": "y", "processors": 2})) == 0
    assert capsys.readouterr().out.startswith("measured on different machines: x, 2; y, 2\n")


#: What the benchmarks write that is no figure: sizes, counts, and what other libraries reached.
NO_FIGURES = {"size", "instructions", "warp_instructions", "tiles", "peer_size"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_number_on_record_is_compared_or_known_to_be_no_figure(path: Path) -> None:
    record = json.loads(path.read_text())
    left_out = {
        names[-1]
        for names, _ in compare.leaves(record)
        if compare.smaller_is_better(names) is None and names[0] != "machine"
    }
    assert {name for name in left_out if not name.startswith(("peer_", "ratio_"))} <= NO_FIGURES
    assert len(compare.figures(record)) > 15


def test_launch_and_ladder_records_are_understood() -> None:
    launch = compare.figures(json.loads((BENCHMARKS / "results" / "h200_launch.json").read_text()))
    assert launch and all(smaller for _, smaller in launch.values())
    ladder = compare.figures(json.loads((BENCHMARKS / "results" / "h200_ladder.json").read_text()))
    assert {name.rpartition(" / ")[2]: smaller for name, (_, smaller) in ladder.items()} == {
        "milliseconds": True,
        "tflops": False,
        "share_of_torch": False,
    }
