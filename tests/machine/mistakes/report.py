"""Print what `lw.check` finds of the planted mistakes, by cause.

    PYTHONPATH=tests python tests/machine/mistakes/report.py

Words on the command line pick the pairs whose name, cause or file contains one of them; `-v` prints the
findings of those that fail; `--schedule late` checks them in that order; `--json` prints the verdict on each
pair as JSON; `--markdown RECORD` prints a table beside what `benchmarks/sanitizer.py` recorded of
compute-sanitizer.
"""

import argparse
import json
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from machine.mistakes.corpus import CAUSES, PAIRS, Pair, accusations

#: The tools of compute-sanitizer, in the order of the table.
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def verdict(pair: Pair, schedule: str | int = "in order") -> tuple[str, str, list[str]]:
    """Return what became of the wrong kernel and of the right twin, and the findings behind it."""
    details = []
    wrong = right = "-"
    try:
        if pair.kinds:
            report = pair.check(wrong=True, schedule=schedule)
            wrong = "found" if pair.found(report) else "elsewhere" if report.findings else "missed"
            details += [f"wrong: {f.kind} {f.source} {f.message}" for f in report.findings]
            if wrong != "found":
                details.insert(0, f"expected {sorted(pair.kinds)} on lines {sorted(pair.lines)}")
    except Exception:
        wrong, details = "error", [*details, traceback.format_exc(limit=-2)]
    try:
        accused = accusations(pair.check(wrong=False, schedule=schedule))
        right = "accused" if accused else "right"
        details += [f"right: {f.kind} {f.source} {f.message}" for f in accused]
    except Exception:
        right, details = "error", [*details, traceback.format_exc(limit=-2)]
    return wrong, right, details


def markdown(rows: dict[str, Any], record: dict[str, Any]) -> str:
    """Return a table of what `lw.check` and each tool of compute-sanitizer found, by cause.

    `record` is what `benchmarks/sanitizer.py` wrote. A tool has found a mistake if it reports an error or a
    warning for the wrong kernel and none for the right twin; otherwise it accuses the right twin.
    """
    kernels = {name: each for name, each in record["kernels"].items() if name in rows}

    def told(each: dict[str, Any], twin: str, tool: str) -> int:
        said = each[twin].get(tool, {})
        return int(said.get("errors", 0)) + int(said.get("warnings", 0))

    def cells(names: list[str]) -> list[str]:
        planted = [name for name in names if rows[name]["wrong"] != "-"]
        found = [sum(rows[name]["wrong"] == "found" for name in planted)]
        for tool in TOOLS:
            heard = (name for name in planted if told(kernels[name], "wrong", tool))
            found.append(sum(not told(kernels[name], "right", tool) for name in heard))
        return [str(len(planted)), *map(str, found)]

    lines = [
        "| cause | planted | `lw.check` | " + " | ".join(TOOLS) + " |",
        "|---|" + "---|" * (2 + len(TOOLS)),
    ]
    for cause, words in CAUSES.items():
        names = [name for name, each in kernels.items() if each["cause"] == cause]
        if names:
            lines.append(f"| {words} | " + " | ".join(cells(names)) + " |")
    lines.append("| **all** | " + " | ".join(cells(list(kernels))) + " |")
    accused = [sum(rows[name]["right"] == "accused" for name in kernels)]
    accused += [sum(told(each, "right", tool) > 0 for each in kernels.values()) for tool in TOOLS]
    lines.append(f"| right kernels accused, of {len(kernels)} | | " + " | ".join(map(str, accused)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the pairs that the command line picks and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--schedule", default="in order", help="reverse, early, late or a seed")
    parser.add_argument(
        "--markdown", type=Path, metavar="RECORD", help="a table beside compute-sanitizer's tools"
    )
    options = parser.parse_args()
    schedule = int(options.schedule) if options.schedule.isdigit() else options.schedule
    start = time.perf_counter()
    totals: dict[str, Counter[str]] = {cause: Counter() for cause in CAUSES}
    failures = []
    rows: dict[str, Any] = {}
    for pair in PAIRS:
        described = f"{pair.name} {pair.cause} {pair.file}"
        if options.words and not any(word in described for word in options.words):
            continue
        wrong, right, details = verdict(pair, schedule)
        totals[pair.cause].update([f"wrong {wrong}", f"right {right}"])
        rows[pair.name] = {"cause": pair.cause, "wrong": wrong, "right": right}
        if wrong not in ("found", "-") or right != "right":
            failures.append((pair, wrong, right, details))
    if options.markdown:
        print(markdown(rows, json.loads(options.markdown.read_text())))
        return
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for pair, wrong, right, details in failures:
        print(f"{pair.file:22} {pair.name:34} {pair.cause:20} wrong {wrong:9} right {right}")
        if options.verbose:
            print("".join(f"    {detail}\n" for detail in details), end="")
    columns = [f"wrong {word}" for word in ("found", "missed", "elsewhere", "error")]
    columns += [f"right {word}" for word in ("right", "accused", "error")]
    print("\n" + f"{'cause':22}" + "".join(f"{column:>17}" for column in columns))
    for cause, counts in [*totals.items(), ("all", sum(totals.values(), Counter()))]:
        if counts:
            print(f"{cause:22}" + "".join(f"{counts[column]:17}" for column in columns))
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
