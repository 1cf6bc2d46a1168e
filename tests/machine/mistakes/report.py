"""Print what `lw.check` finds of the planted mistakes, by cause: `python tests/machine/mistakes/report.py`.

Words on the command line pick the pairs whose name, cause or file contains one of them; `-v` prints the
findings of those that fail; `--json` prints the verdict on each pair as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections import Counter
from typing import Any

from machine.mistakes.corpus import CAUSES, PAIRS, Pair, accusations


def verdict(pair: Pair) -> tuple[str, str, list[str]]:
    """Return what became of the wrong kernel and of the right twin, and the findings behind it."""
    details = []
    wrong = right = "-"
    try:
        if pair.kinds:
            report = pair.check(wrong=True)
            wrong = "found" if pair.found(report) else "elsewhere" if report.findings else "missed"
            details += [f"wrong: {f.kind} {f.source} {f.message}" for f in report.findings]
            if wrong != "found":
                details.insert(0, f"expected {sorted(pair.kinds)} on lines {sorted(pair.lines)}")
    except Exception:
        wrong, details = "error", [*details, traceback.format_exc(limit=-2)]
    try:
        accused = accusations(pair.check(wrong=False))
        right = "accused" if accused else "right"
        details += [f"right: {f.kind} {f.source} {f.message}" for f in accused]
    except Exception:
        right, details = "error", [*details, traceback.format_exc(limit=-2)]
    return wrong, right, details


def main() -> None:
    """Run the pairs that the command line picks and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    start = time.perf_counter()
    totals: dict[str, Counter[str]] = {cause: Counter() for cause in CAUSES}
    failures = []
    rows: dict[str, Any] = {}
    for pair in PAIRS:
        described = f"{pair.name} {pair.cause} {pair.file}"
        if options.words and not any(word in described for word in options.words):
            continue
        wrong, right, details = verdict(pair)
        totals[pair.cause].update([f"wrong {wrong}", f"right {right}"])
        rows[pair.name] = {"cause": pair.cause, "wrong": wrong, "right": right}
        if wrong not in ("found", "-") or right != "right":
            failures.append((pair, wrong, right, details))
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
