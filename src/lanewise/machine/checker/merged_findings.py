"""One finding for each mistake: copies of a source line that the compiler made are merged, and counted.

The compiler unrolls loops and inlines functions, so that one line of the source becomes many of the PTX. What
triage finds at each of them is one mistake if it is of one kind, at one line of the source, in one array.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from lanewise.machine.checker.access_descriptions import TENSOR_MEMORY
from lanewise.machine.checker.mends import race_mend, reach_farther
from lanewise.machine.checker.report import Finding
from lanewise.machine.checker.suspicions import STILL_VALID
from lanewise.machine.program.source_lines import source_chain, source_text
from lanewise.machine.runtime.fault_report import MBARRIER_FAULT
from lanewise.machine.warp_ops.mbarrier import NOT_INITIALISED, TOO_MANY_ARRIVALS, WRONG

if TYPE_CHECKING:
    from lanewise.machine.program.ops import Op, Program

#: Kinds whose findings at one place differ by what they say.
_SAID_APART = frozenset(("launch", "wmma", "divergence", "barrier"))
#: Kinds of which a kernel has one finding for each thing that is missing, which the message begins with.
_ONCE = frozenset(("fence",))
#: What the two directions of a race add to its message.
BOTH_WAYS = "; elsewhere they came in the opposite order"
#: A line of the source with those that called it, or, where the PTX does not tell, a line of the PTX.
Place = tuple[object, ...]
Key = tuple[object, ...]


def verdict(findings: Iterable[Finding], program: Program) -> list[Finding]:
    """Return the findings of a launch as every report shows them: one for each mistake."""
    return merged(with_sources(findings, program))


def with_sources(findings: Iterable[Finding], program: Program) -> list[Finding]:
    """Return findings with the text of their lines, and the calls that inlined them, on both sides."""
    raw = list(findings)
    ops = {(op.line, str(op.source)): op for op in program.sites} if raw else {}
    return [_with_source(finding, program, ops) for finding in raw]


def _with_source(finding: Finding, program: Program, ops: dict[tuple[int, str], Op]) -> Finding:
    op = ops.get((finding.line, finding.text))
    chain = source_chain(program.module, op.loc) if op is not None and op.loc is not None else ()
    other = _with_source(finding.other, program, ops) if finding.other is not None else None
    quote = source_text(program.module, finding.source) if finding.source else ""
    return replace(finding, chain=chain, other=other, quote=quote)


def place(finding: Finding) -> Place:
    """Return what is the same for all copies of the code that a finding is at."""
    if finding.chain:
        return finding.chain
    return (finding.source,) if finding.source else (finding.line, finding.text)


def key(finding: Finding) -> Key:
    """Return what findings of one mistake have in common."""
    if finding.kind in _ONCE:
        return finding.severity, finding.kind, finding.message.partition(" ")[0]
    if finding.allocation is not None and finding.allocation.endswith(TENSOR_MEMORY):
        # A loop over columns is one mistake, wherever it begins.
        other = place(finding.other) if finding.other is not None else None
        return finding.severity, finding.kind, place(finding), other, finding.message.partition(". ")[0]
    same: Key = (finding.severity, finding.kind, finding.allocation)
    if finding.other is not None and finding.kind == "race":
        return *same, frozenset((place(finding), place(finding.other)))
    if finding.kind in _SAID_APART:
        return *same, place(finding), re.sub(r"%\w+|0x[0-9a-f]+|\d+", "#", finding.message)
    return *same, place(finding)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for each mistake; their counts are added.

    Errors come first, then advice, each in the order in which they came up. Where there is an error, advice
    about the same is not needed.
    """
    by_key: dict[Key, Finding] = {}
    for finding in findings:
        first = by_key.get(key(finding))
        if first is None:
            by_key[key(finding)] = finding
            continue
        turned = finding.kind == "race" and place(finding) != place(first)
        both_ways = turned or first.message.endswith(BOTH_WAYS)
        shown = finding if reach_farther(finding.races, than=first.races) else first
        message = shown.message.removesuffix(BOTH_WAYS) + BOTH_WAYS * both_ways
        by_key[key(finding)] = replace(
            shown, count=first.count + finding.count, message=message, races=first.races + finding.races
        )
    by_key = {name: _with_mend(finding) for name, finding in by_key.items()}
    errors = {key(finding)[1:] for finding in by_key.values() if finding.severity == "error"}
    needed = [
        finding
        for finding in by_key.values()
        if finding.severity == "error" or key(finding)[1:] not in errors
    ]
    return _errors_first(_wrong_addresses_first(_without_consequences(_without_second_verdicts(needed))))


def _errors_first(findings: list[Finding]) -> list[Finding]:
    """Put errors before advice, which may follow from them."""
    return sorted(findings, key=lambda finding: finding.severity != "error")


def _wrong_addresses_first(findings: list[Finding]) -> list[Finding]:
    """Put an access out of bounds before what else is found at its line, which is of wrong bytes as well."""
    outside = {place(finding) for finding in findings if finding.kind == "out of bounds"}
    sides = [{place(side) for side in (finding, finding.other) if side} for finding in findings]
    first = next((number for number, places in enumerate(sides) if places & outside), 0)
    return findings[:first] + sorted(findings[first:], key=lambda finding: finding.kind != "out of bounds")


def _with_mend(finding: Finding) -> Finding:
    """Return a race with the mend that orders all pairs of accesses of its two lines."""
    if not finding.races:
        return finding
    return replace(finding, mend=race_mend(finding.races), races=())


def _without_consequences(findings: list[Finding]) -> list[Finding]:
    """Drop findings of uninitialised reads where a race is reported: without order the reads came too early.

    In tensor memory the columns do not matter: a loop that loads them is one mistake.
    """
    early = {
        place(finding)
        for finding in findings
        if finding.kind == "tensor memory" and finding.other is not None
    }
    raced = {
        (place(side), side.allocation)
        for finding in findings
        if finding.kind in ("race", "asynchronous copy")
        for side in (finding, finding.other)
        if side is not None
    }
    return [
        finding
        for finding in findings
        if finding.kind != "uninitialised"
        or finding.allocation is None
        or ((place(finding), finding.allocation) not in raced and place(finding) not in early)
    ]


def _without_second_verdicts(findings: list[Finding]) -> list[Finding]:
    """Drop what is found beside a fault of an mbarrier: the fault, if its cause was found, or all others.

    Too many arrivals are found as such, and an mbarrier that is not initialised may have been overwritten.
    """
    overwritten = {place(finding) for finding in findings if finding.message.endswith(STILL_VALID)}
    faults = {
        place(finding): finding.message.endswith(WRONG[TOO_MANY_ARRIVALS])
        or (finding.message.endswith(WRONG[NOT_INITIALISED]) and place(finding) in overwritten)
        for finding in findings
        if finding.kind == "barrier" and finding.message.startswith(MBARRIER_FAULT)
    }
    counted = {place(finding) for finding in findings if finding.kind == "mbarrier"}
    return [
        finding
        for finding in findings
        if place(finding) not in counted.intersection(faults)
        or (finding.kind == "barrier") != faults[place(finding)]
    ]


def across_schedules(runs: list[list[Finding]]) -> list[Finding]:
    """Return the findings of the first run, then those that only later ones have; errors before advice."""
    distinct: list[Finding] = []
    known: set[Key] = set()
    for findings in runs:
        for finding in findings:
            if key(finding) not in known:
                known.add(key(finding))
                distinct.append(finding)
    return _errors_first(distinct)
