"""Triton's own cases for its concurrency sanitizer, ConSan, told by lanewise instead, on a virtual B200.

    python benchmarks/consan.py test_consan.py --triton VENV/bin/python --save benchmarks/results/consan.json

The file is `python/test/gluon/test_consan.py` of the release of Triton that is installed in the environment.
Its kernels are compiled without ConSan's instrumentation, and every launch is checked. A case is told right
if something is found exactly where its test expects that ConSan asserts. `-k WORDS` chooses cases. Cases in
which lanewise reports a mistake that ConSan does not look at, and that Triton has mended, are counted apart.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

HERE = Path(__file__).parent
#: Cases about ConSan's own settings, which say nothing about kernels.
SETTINGS = "not cache_miss and not profile_scratch and not initializes_allocations and not noinline"


class Mended(NamedTuple):
    """A mistake in a case of Triton's: the commit that mended it, what it is, how a finding of it begins."""

    commit: str
    mistake: str
    finding: str


#: Cases of which lanewise reports more than ConSan does, by the name of the test.
MORE = {
    "test_tcgen5_mma_multibar": Mended(
        "9f95cc7fab (#11244)",
        "mbarriers are invalidated while a tcgen05.commit is on its way to them",
        "asynchronous copy: mbarrier.inval ends the mbarrier",
    ),
}


def blocks_of(name: str) -> str:
    """Return how many blocks of a cluster a case has, as its name says it; "a fixed number" if it does not.

    >>> blocks_of("test_async_tma_kernel[2ctas-True]"), blocks_of("test_clc[missing]")
    ('2', 'a fixed number')
    """
    named = re.search(r"\b(\d+)ctas", name)
    return named[1] if named else "a fixed number"


def run(cases: Path, python: str, words: str) -> dict[str, dict[str, object]]:
    """Run the cases; return of each whether it is told right, and what was found."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "test_consan.py").write_text(cases.read_text())
        options = ["-p", "lanewise.pytest", "-p", "consan_cases", "--gpu", "B200", "--check-launches"]
        options += ["-q", "--tb=short", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
        options += ["-o", "junit_family=xunit1"]
        chosen = f"({SETTINGS}) and ({words})" if words else SETTINGS
        command = [python, "-m", "pytest", *options, "-k", chosen, "--junit-xml=record.xml", "test_consan.py"]
        path = os.pathsep.join(
            filter(None, (str(HERE.parent / "src"), str(HERE), os.environ.get("PYTHONPATH", "")))
        )
        subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": path}, check=False)
        told: dict[str, dict[str, object]] = {}
        for case in ElementTree.parse(root / "record.xml").iter("testcase"):
            if case.find("skipped") is not None:
                continue
            wrong = case.find("failure")
            wrong = case.find("error") if wrong is None else wrong
            found = [each.get("value") for each in case.iter("property") if each.get("name") == "found"]
            entry: dict[str, object] = {"right": wrong is None, "found": found}
            if wrong is not None:
                entry["why"] = (wrong.get("message") or "").splitlines()[0][:300]
                mended = MORE.get(str(case.get("name")).partition("[")[0])
                counted = [each for each in found if each and not each.endswith("(not counted)")]
                if mended and counted and all(each.startswith(mended.finding) for each in counted):
                    entry["more"] = f"{mended.mistake}; mended by {mended.commit}"
            told[str(case.get("name"))] = entry
        return told


def main() -> None:
    """Run the cases, print what is told otherwise, and save a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--triton", default=sys.executable, help="a Python in which Triton and torch are")
    parser.add_argument("--save", type=Path)
    parser.add_argument("-k", dest="words", default="")
    given = parser.parse_args()
    version = "import triton; print(triton.__version__)"
    triton = subprocess.run([given.triton, "-c", version], capture_output=True, text=True, check=True)
    told = run(given.cases, given.triton, given.words)
    for name, case in told.items():
        if not case["right"]:
            print(f"{name}: {case.get('more') or case.get('why')}")
    counts = Counter(
        "right" if each["right"] else "more" if "more" in each else "otherwise" for each in told.values()
    )
    right = f"{counts['right']} of {len(told)} cases"
    for blocks, count in sorted(Counter(map(blocks_of, told)).items()):
        agree = sum(each["right"] is True for name, each in told.items() if blocks_of(name) == blocks)
        print(f"{agree} of {count} with {blocks} of blocks")
    print(f"Triton {triton.stdout.strip()}: {right} are told as ConSan tells them")
    print(f"{counts['more']} more have a mistake that ConSan does not look at")
    if given.save:
        record = {
            "triton": triton.stdout.strip(),
            "gpu": "B200",
            "right": counts["right"],
            "more": counts["more"],
            "cases": told,
        }
        given.save.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
