"""Triton's own cases for its concurrency sanitizer, ConSan, told by lanewise instead, on a virtual B200.

    python benchmarks/consan.py test_consan.py --triton VENV/bin/python --save benchmarks/results/consan.json

The file is `python/test/gluon/test_consan.py` of the release of Triton that is installed in the environment.
Its kernels are compiled without ConSan's instrumentation, and every launch is checked. A case is told right
if something is found exactly where its test expects that ConSan asserts. `-k WORDS` chooses cases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

LIBRARY = Path(__file__).parent.parent / "src"
#: Beside the cases: kernels run in the process of the test, and what is found takes the place of the
#: assertion of an instrumented kernel. The sentences that ConSan would print are not compared. What ConSan
#: does not look at is in the record, but does not count: memory without values (many cases multiply what
#: nobody has written), global memory, and columns that are freed while a product may still write them.
CONFTEST = """
import pytest
from lanewise.pytest import LaunchFailed


class AnyText(str):
    def __contains__(self, text):
        return True


def looked_at_by_consan(finding):
    if finding.kind == "uninitialised" or finding.message.startswith("global "):
        return False
    return not finding.message.startswith("tcgen05.dealloc")


class WithoutConsan(pytest.MonkeyPatch):
    def setenv(self, name, value, prepend=None):
        if name != "TRITON_INSTRUMENTATION_MODE":
            super().setenv(name, value, prepend)


@pytest.fixture
def device():
    return "cuda"


@pytest.fixture(autouse=True)
def told_by_lanewise(request, monkeypatch, record_property):
    module = request.module

    def run_in_process(client, args=(), kwargs={}):
        plain = WithoutConsan()
        args = tuple(plain if isinstance(each, pytest.MonkeyPatch) else each for each in args)
        failed = None
        try:
            client(*args, **kwargs)
        except BaseException as error:
            failed = error
        finally:
            plain.undo()
        from lanewise.virtual_gpu.session import active

        found = [failed, *active().driver.take_unseen()]
        reports = [each.report for each in found if isinstance(each, LaunchFailed)]
        if failed is not None and not reports:
            raise failed
        findings = [each for report in reports for each in report.findings if each.severity == "error"]
        for finding in findings:
            record_property("found", f"{finding.kind}: {finding.message}")
        findings = [each for each in findings if looked_at_by_consan(each)]
        error = RuntimeError("device-side assert triggered") if findings else None
        return module.ProcessResult(error, AnyText() if findings else "")

    monkeypatch.setattr(module, "run_in_process", run_in_process)
    yield
"""
#: Cases that read past their input get a larger one: a launch stops at what is out of bounds.
LARGER = {
    "input = torch.randn((XBLOCK, ), device": "input = torch.randn((2 * XBLOCK * XBLOCK, ), device",
    "A = torch.randn((BLOCK_M, BLOCK_K), device": "A = torch.randn((BLOCK_M, 512), device",
}
#: Cases about ConSan's own settings, which say nothing about kernels.
SETTINGS = "not cache_miss and not profile_scratch and not initializes_allocations"


def run(cases: Path, python: str, words: str) -> dict[str, dict[str, object]]:
    """Run the cases; return of each whether it is told right, and what was found."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        text = cases.read_text()
        for small, large in LARGER.items():
            text = text.replace(small, large)
        (root / "test_consan.py").write_text(text)
        (root / "conftest.py").write_text(CONFTEST)
        options = ["-p", "lanewise.pytest", "--gpu", "B200", "--check-launches", "-q", "--tb=short"]
        options += ["-o", "junit_family=xunit1"]
        chosen = f"({SETTINGS}) and ({words})" if words else SETTINGS
        command = [python, "-m", "pytest", *options, "-k", chosen, "--junit-xml=record.xml", "test_consan.py"]
        path = os.pathsep.join(filter(None, (str(LIBRARY), os.environ.get("PYTHONPATH", ""))))
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
            print(f"{name}: {case.get('why')}")
    counts = Counter("right" if each["right"] else "otherwise" for each in told.values())
    right = f"{counts['right']} of {len(told)} cases"
    print(f"Triton {triton.stdout.strip()}: {right} are told as ConSan tells them")
    if given.save:
        record = {"triton": triton.stdout.strip(), "gpu": "B200", "right": counts["right"], "cases": told}
        given.save.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
