"""The page quotes the record of programs that ran under a virtual GPU, and its commands can be run."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROWS: list[dict[str, Any]] = json.loads(
    (ROOT / "benchmarks/results/virtual_gpu_frameworks.json").read_text()
)["rows"]


def test_every_row_of_the_record_is_on_the_page_and_no_other() -> None:
    page = (ROOT / "docs/virtual-gpu.md").read_text()
    columns = ("framework", "program", "ran", "passed", "why_not")
    rows = ["| " + " | ".join(str(row[name]) for name in columns) + " |" for row in ROWS]
    table = page.partition("| framework | program |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == rows
    assert all(row["passed"] <= row["ran"] for row in ROWS)


#: What a command may begin with, and the options whose values are files that it writes.
PROGRAMS, WRITTEN = ("lanewise", "python", "pytest"), (".json", ".jsonl")


def unknown_files(row: dict[str, Any]) -> list[str]:
    """Return the files of a row's command that are neither in this repository nor in the one to fetch."""
    fetched = row.get("fetch", "").partition(" ")[0].rpartition("/")[2]
    unknown = []
    for part in row["command"].split(" && "):
        words = [each for each in shlex.split(part) if not re.fullmatch(r"[A-Z_]+=\S*", each)]
        assert words[0] in PROGRAMS, part
        is_inside = "public_tests.py" in part  # whose files are named from the fetched folder
        for word in words[1:]:
            looks_like_a_file = "/" in word or re.search(r"\.(py|cu|json|jsonl)$", word)
            if not looks_like_a_file or word.startswith("-") or word.endswith(WRITTEN):
                continue
            at_home = (ROOT / word).exists()
            elsewhere = fetched and (word.partition("/")[0] == fetched or is_inside)
            if not at_home and not elsewhere:
                unknown.append(word)
    return unknown


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['framework']}: {row['program'][:40]}" for row in ROWS])
def test_every_command_of_the_record_names_files_that_there_are(row: dict[str, Any]) -> None:
    assert not unknown_files(row)
    assert re.fullmatch(r"(https://github.com/\S+/\S+ \S+)?", row.get("fetch", ""))
    assert all(re.fullmatch(r"[\w\[\]-]+(==[\w.]+)?", each) for each in row["needs"])


def test_a_command_that_names_a_script_that_nobody_has_is_seen() -> None:
    assert unknown_files({"command": "lanewise run --gpu H100 call.py"}) == ["call.py"]
    assert unknown_files({"command": "lanewise run --gpu H100 triton/a.py"}) == ["triton/a.py"]
    fetch = "https://github.com/triton-lang/triton v3.6.0"
    assert not unknown_files({"command": "lanewise run --gpu H100 triton/a.py", "fetch": fetch})


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


def test_the_page_counts_the_samples_that_ended_under_streams() -> None:
    record = json.loads((ROOT / "benchmarks/results/virtual_gpu_programs.json").read_text())
    page = " ".join((ROOT / "docs/virtual-gpu.md").read_text().split())
    rows = record["streams"]["programs"]
    ended = [row["name"].rpartition("/")[2] for row in rows if "time limit" not in row["verdict"]]
    sentence = page.partition(f"Of {len(rows)} of NVIDIA's samples under `--streams`, {len(ended)} ended, ")[
        2
    ]
    names, _, rest = sentence.partition(". ")
    assert ended and all(name in names for name in ended)
    assert rest.startswith(f"{len(rows) - len(ended)} were stopped")
    assert all("no race between streams" in row["why"] for row in rows if row["verdict"] == "failed")
