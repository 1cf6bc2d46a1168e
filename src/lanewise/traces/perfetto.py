"""Traces as Perfetto and chrome://tracing show them: a process for each block, a track for each warp.

An instruction takes one microsecond of the picture: the machine runs one after the other, and has no clock.
"""

import json
from collections.abc import Iterator
from typing import Any

from lanewise.traces.copies import Copy
from lanewise.traces.recording import Recording
from lanewise.traces.step import Step
from lanewise.traces.waits import NEVER, waits_of

Event = dict[str, Any]


def perfetto(recording: Recording, copies: list[Copy]) -> str:
    """Return the trace in the JSON trace event format."""
    events = [
        *_tracks(recording),
        *_steps(recording),
        *_waits(recording),
        *_copies(recording, copies),
        *_findings(recording),
    ]
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{lines}\n]}}\n'


def _tracks(recording: Recording) -> Iterator[Event]:
    """Yield the names of blocks and warps."""
    for block in recording.run.blocks:
        title = f"block {recording.block_at(block)}"
        yield {"ph": "M", "name": "process_name", "pid": block, "args": {"name": title}}
        for warp in recording.run.warps:
            name = {"name": f"warp {warp}"}
            yield {"ph": "M", "name": "thread_name", "pid": block, "tid": warp, "args": name}


def _steps(recording: Recording) -> Iterator[Event]:
    """Yield an event for each step."""
    entries = recording.log.entries
    said: dict[int, dict[str, Any]] = {}
    for number, entry in enumerate(recording.steps.tolist()):
        header = entries[entry]
        point = int(header["point"])
        if point not in said:
            op = recording.log.points[point].op
            assert op is not None
            where = {"source": recording.source(op)} if op.loc is not None else {}
            said[point] = {"name": op.head, "args": {"line": op.line, "ptx": str(op.source), **where}}
        args = {"step": number, "active": f"{int(header['active']):#010x}", **said[point]["args"]}
        yield {
            "ph": "X", "name": said[point]["name"], "pid": int(header["block"]), "tid": int(header["warp"]),
            "ts": entry, "dur": 1, "args": args,
        }  # fmt: skip


def _waits(recording: Recording) -> Iterator[Event]:
    """Yield an event for each wait, from its begin to its end."""
    waits, end = waits_of(recording), len(recording.log)
    for wait in waits.all:
        said = waits.described(wait, wait.since)
        stop = end if wait.until == NEVER else wait.until
        yield {
            "ph": "X", "name": f"waits {said.what}", "cat": "wait", "pid": wait.block, "tid": wait.warp,
            "ts": wait.since + 1, "dur": stop - wait.since - 1, "args": {"missing": said.missing},
        }  # fmt: skip


def _copies(recording: Recording, copies: list[Copy]) -> Iterator[Event]:
    """Yield the begin and the end of each asynchronous copy."""
    end = len(recording.log)
    for number, copy in enumerate(copies):
        stop = int(recording.steps[copy.completed]) if copy.completed is not None else end
        same = {"cat": "copy", "name": "cp.async", "id": number, "pid": copy.block, "tid": copy.warp}
        args = {"issued": copy.issued, "committed": copy.committed, "completed": copy.completed}
        yield {"ph": "b", "ts": int(recording.steps[copy.issued]), "args": args, **same}
        yield {"ph": "e", "ts": stop, **same}


def _findings(recording: Recording) -> Iterator[Event]:
    """Yield an event for each finding of the checker, at its step."""
    for finding, entries in recording.run.findings:
        entry = min(max(entries - 1, 0), max(len(recording.log) - 1, 0))
        if not len(recording.log):
            return
        number = recording.step_of(entry)
        step = Step(recording, number) if number is not None else None
        header = recording.log.entries[entry]
        yield {
            "ph": "i", "s": "p", "name": f"{finding.title}: {finding.message}", "pid": int(header["block"]),
            "tid": step.warp if step is not None else 0, "ts": entry, "args": {"line": finding.line},
        }  # fmt: skip
