"""The record of other people's programs on a virtual GPU, and the table of the page that quotes it.

    python benchmarks/program_record.py --suite cutlass tests.json --why NAME "why it fails"
    python benchmarks/program_record.py            # writes the counts and the table alone

The results are those that virtual_gpu_programs.py and cutlass_tests.py save. A program's last verdict counts;
what is not among the results keeps the record's verdict, and a reason is kept as long as its program fails.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TypedDict, cast

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks/results/virtual_gpu_programs.json"
PAGE = ROOT / "docs/virtual-gpu.md"
HEAD = "| programs in CUDA C++ |"
#: The record's words for what the benchmarks print.
VERDICTS = {"ended, no verdict of its own": "status 0", "time": "stopped by the time limit"}
#: Verdicts by which a program did not run, and why.
NOT_RUN = {
    "skips itself": "skips itself",
    "not compiled in": "that CUTLASS compiles into no executable (see found.md)",
}


class Program(TypedDict, total=False):
    """A program of the record."""

    suite: str
    name: str
    file: str
    verdict: str
    why: str
    gpu: str
    seconds: float
    arguments: list[str]
    #: What was replaced in a copy of its source.
    smaller: list[str]


class Suite(TypedDict, total=False):
    """A suite of the record: `note` is written by hand, `why_not` derived."""

    suite: str
    note: str
    why_not: str


def converted(row: dict[str, object]) -> Program:
    """Return a result of a benchmark as the record has it."""
    verdict = str(row["verdict"])
    program: Program = {
        "name": str(row.get("test", row.get("name"))),
        "verdict": VERDICTS.get(verdict, verdict),
    }
    if "file" in row:
        program["file"] = str(row["file"])
    if verdict in NOT_RUN:
        program["verdict"], program["why"] = "left out", NOT_RUN[verdict]
    elif "why" in row:
        program["why"] = str(row["why"])
    if "gpu" in row:
        program["gpu"] = str(row["gpu"])
    for key in ("arguments", "smaller"):
        if row.get(key):
            program[key] = [str(each) for each in cast(list[object], row[key])]
    if isinstance(row.get("seconds"), float):
        program["seconds"] = float(str(row["seconds"]))
    return program


def merged(
    suite: Suite,
    programs: list[Program],
    results: list[dict[str, object]],
    *,
    anew: bool,
    reasons: dict[str, str],
) -> list[Program]:
    """Return the record's programs with the results of one suite: `anew` in place of all that it had."""
    known = {each["name"]: each for each in programs if each["suite"] == suite["suite"]}
    new: dict[str, Program] = {}
    for row in map(converted, results):
        before = known.get(row["name"], row)
        if row["verdict"] == before["verdict"] == "failed" and "why" in before:
            row.setdefault("why", before["why"])
        new[row["name"]] = {"suite": suite["suite"], **row}
    of_suite = new if anew else {**known, **new}
    for name, reason in reasons.items():
        of_suite[name]["why"] = reason
    return [each for each in programs if each["suite"] != suite["suite"]] + list(of_suite.values())


def why_not(suite: Suite, programs: list[Program]) -> str:
    """Return why programs of a suite did not pass or did not run."""
    parts = [suite["note"]] if suite.get("note") else []
    stopped = [each for each in programs if each["verdict"] == "stopped by the time limit"]
    for each in stopped:
        if "why" in each:
            parts.append(f"{each['name'].rpartition('/')[2]} stopped by the time limit: {each['why']}")
    unexplained = sum("why" not in each for each in stopped)
    parts += [f"{unexplained} stopped by the time limit"] if unexplained else []
    reasons: dict[str, list[str]] = {}
    for program in programs:
        if program["verdict"] in ("failed", "not built"):
            reasons.setdefault(program.get("why", "not looked into"), []).append(
                program["name"].rpartition("/")[2]
            )
    for reason, names in reasons.items():
        parts.append(f"{names[0]}: {reason}" if len(names) == 1 else f"{len(names)} fail: {reason}")
    left_out = Counter(each.get("why", "") for each in programs if each["verdict"] == "left out")
    if left_out:
        parts.append("left out: " + ", ".join(f"{count} {why}" for why, count in left_out.most_common()))
    return "; ".join(parts)


def row_of(suite: Suite, programs: list[Program]) -> str:
    """Return a suite's row of the page."""
    ran = sum(each["verdict"] != "left out" for each in programs)
    passed = sum(each["verdict"] in ("passed", "status 0") for each in programs)
    return f"| {suite['suite']} | {len(programs)} | {ran} | {passed} | {suite['why_not']} |"


def main() -> None:
    """Merge results into the record, and write the page's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="*")
    parser.add_argument("--suite", default="", help="a part of the suite's name in the record")
    parser.add_argument("--why", nargs=2, action="append", default=[], metavar=("NAME", "REASON"))
    parser.add_argument("--note", help="what is said of the suite first")
    parser.add_argument(
        "--anew", action="store_true", help="forget the programs that the record has of the suite"
    )
    asked = parser.parse_args()
    record = json.loads(RECORD.read_text())
    suites: list[Suite] = record["suites"]
    programs: list[Program] = record["programs"]
    if asked.suite:
        (suite,) = [each for each in suites if asked.suite in each["suite"]]
        if asked.note is not None:
            suite["note"] = asked.note
        results = [row for file in asked.results for row in json.loads(file.read_text())]
        programs = merged(suite, programs, results, anew=asked.anew, reasons=dict(asked.why))
    for each in suites:
        each["why_not"] = why_not(
            each, [program for program in programs if program["suite"] == each["suite"]]
        )
    order = [each["suite"] for each in suites]
    record["programs"] = sorted(programs, key=lambda each: (order.index(each["suite"]), each["name"]))
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    before, head, rest = PAGE.read_text().partition(HEAD)
    title, rule = rest.splitlines()[:2]
    after = rest.partition("\n\n")[2]
    table = [
        row_of(each, [program for program in programs if program["suite"] == each["suite"]])
        for each in suites
    ]
    PAGE.write_text(before + "\n".join([head + title, rule, *table]) + "\n\n" + after)


if __name__ == "__main__":
    main()
