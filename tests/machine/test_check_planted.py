"""Planted bugs are found, each on its line; their repaired twins, and kernels that are right, are silent."""

from collections.abc import Iterator

import pytest

import lanewise as lw
from everything import sampled
from lanewise.machine.checker.report import Report
from lanewise.ptx import ToolMissing
from machine.planted.cases import CASES, Case

PLANTED = [case for case in CASES if case.kinds]


def places(report: Report, ptx: bool) -> Iterator[tuple[str, int]]:
    """(kind, line) of findings: the line of the source, of both places of a race."""
    for finding in report.findings:
        for place in (finding, finding.other):
            if place is not None:
                line = place.line if ptx else int((place.source or ":0").rpartition(":")[2])
                yield finding.kind, line


def report_of(case: Case, repaired: bool) -> Report:
    try:
        kernel = case.entry(repaired)[case.configuration(repaired)]
    except ToolMissing as missing:
        pytest.skip(str(missing))
    return lw.check(kernel, *case.values(), **case.options)


@sampled(24)
@pytest.mark.slow
@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_bug_is_found_on_its_line(case: Case) -> None:
    report = report_of(case, repaired=False)
    assert not report.ok
    assert any(
        kind in case.kinds and line == case.line for kind, line in places(report, case.file.endswith(".ptx"))
    ), f"{case.what}: line {case.line} is one of {case.kinds}\n{report}"


@sampled(24)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_repaired_twin_is_silent(case: Case) -> None:
    report = report_of(case, repaired=True)
    assert report.ok, f"{case.what}\n{report}"


def test_there_are_enough_kinds() -> None:
    assert len(PLANTED) == len({case.name for case in PLANTED}) >= 40
