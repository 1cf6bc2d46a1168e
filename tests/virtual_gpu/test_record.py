"""The page quotes the record of programs that ran under a virtual GPU."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_of_the_record_is_on_the_page_and_no_other() -> None:
    record = json.loads((ROOT / "benchmarks/results/virtual_gpu_frameworks.json").read_text())
    page = (ROOT / "docs/virtual-gpu.md").read_text()
    columns = ("framework", "program", "ran", "passed", "why_not")
    rows = ["| " + " | ".join(str(row[name]) for name in columns) + " |" for row in record["rows"]]
    table = page.partition("| framework | program |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == rows
    assert all(row["passed"] <= row["ran"] for row in record["rows"])
    assert all(row["command"] for row in record["rows"])


def test_the_table_of_programs_counts_those_of_the_record() -> None:
    record = json.loads((ROOT / "benchmarks/results/virtual_gpu_programs.json").read_text())
    page = (ROOT / "docs/virtual-gpu.md").read_text()
    table = page.partition("| programs in CUDA C++ |")[2].partition("\n\n")[0].splitlines()[2:]
    expected = []
    for suite in record["suites"]:
        verdicts = [each["verdict"] for each in record["programs"] if each["suite"] == suite["suite"]]
        ran = sum(verdict != "left out" for verdict in verdicts)
        passed = sum(verdict in ("passed", "status 0") for verdict in verdicts)
        expected.append(f"| {suite['suite']} | {len(verdicts)} | {ran} | {passed} | {suite['why_not']} |")
    assert table == expected
