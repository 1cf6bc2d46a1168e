"""Traces as Perfetto and chrome://tracing show them: a process for each block, a track for each warp.

An instruction takes one microsecond of the picture: the machine runs one after the other, and has no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from lanewise.traces.copies import Copy
from lanewise.traces.recording import Recording
from lanewise.traces.step import Step

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
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in events)
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
    """Yield an event for each wait at a barrier, from the arrival to the completion."""
    entries, done = recording.log.entries, recording.completions
    barriers = [
        point.number
        for point in recording.log.points
        if point.op is not None and point.op.record.waits.name == "BARRIER"
    ]
    for entry in recording.steps[np.isin(entries["point"][recording.steps], barriers)].tolist():
        barrier, header = recording.barrier_of(entry), entries[entry]
        later = done[done > entry]
        mine = later[(entries["block"][later] == header["block"]) & (entries["barrier"][later] == barrier)]
        if barrier is None or not len(mine) or int(mine[0]) <= entry + 1:
            continue
        yield {
            "ph": "X", "name": f"waits at barrier {barrier}", "cat": "wait", "pid": int(header["block"]),
            "tid": int(header["warp"]), "ts": entry + 1, "dur": int(mine[0]) - entry - 1, "args": {},
        }  # fmt: skip


def _copies(recording: Recording, copies: list[Copy]) -> Iterator[Event]:
    """Yield the begin and the end of each asynchronous copy."""
    end = len(recording.log)
    for number, each in enumerate(copies):
        stop = int(recording.steps[each.completed]) if each.completed is not None else end
        same = {"cat": "copy", "name": "cp.async", "id": number, "pid": each.block, "tid": each.warp}
        args = {"issued": each.issued, "committed": each.committed, "completed": each.completed}
        yield {"ph": "b", "ts": int(recording.steps[each.issued]), "args": args, **same}
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
