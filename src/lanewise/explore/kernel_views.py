"""What the room Kernels shows of a launch: its trace, what the checker counted, arrays, origins, SASS."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.explore.kernel_requests import RequestedLaunch
from lanewise.explore.time_limits import seconds
from lanewise.machine import abi
from lanewise.machine.checker.check import check
from lanewise.machine.checker.report import Finding, Report
from lanewise.machine.program.instruction_record import Order
from lanewise.machine.tensor_memory_records import LANE_BYTES
from lanewise.machine.tracer.log import NOT_KEPT
from lanewise.machine.tracer.records import ASYNC_WRITE_POINT
from lanewise.machine.tracer.tensor_log import Area
from lanewise.machine.tracer.traced_launch import TracedLaunch
from lanewise.ptx import Immediate, load, nvdisasm, ptxas
from lanewise.ptx.tools.assembler import sass_of
from lanewise.traces.origin import Origin, shown
from lanewise.traces.page import packed, packed_parts, page_data
from lanewise.traces.places import MemoryPlace
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_memory import tensor_reading
from lanewise.traces.trace import Trace, TraceOptions, record

#: Bytes that are recorded of a launch, and bytes of them that the page is given.
TRACED_BYTES, SHOWN_BYTES = 96 << 20, 12 << 20
#: Basic blocks that a thread block may run, and seconds after which a launch is stopped and shown as it is.
MOST_STEPS, TRACE_SECONDS = 20_000_000, seconds(6.0)
#: Seconds that a trace may have taken if a check is to follow, and that each of NVIDIA's tools may take.
CHECKED_SECONDS, TOOL_SECONDS = seconds(3.0), seconds(15.0)
#: Rows and columns of an argument that are shown.
CORNER = 16
#: Steps whose accesses to tensor memory are sent.
MOST_TOUCHED = 20_000
#: How deep and wide an origin is shown, and nodes that are looked at for its inputs.
DEPTH, WIDTH, MOST_NODES = 4, 40, 20_000
#: The name of the file that SASS names where its lines are those of the PTX itself.
OWN_LINES = "PTX"
_SASS_LINE = re.compile(r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)')


@dataclass
class KernelView:
    """A launch that ran: its trace, and the report of a check where there was time for one."""

    launch: RequestedLaunch
    trace: Trace
    report: Report | None
    printed: str = ""
    notes: list[str] = field(default_factory=list)


def view_of(
    launch: RequestedLaunch,
    traced: Sequence[int] = (0, 0, 0),
    schedule: object = None,
    started: Callable[[TracedLaunch], None] = lambda launch: None,
) -> KernelView:
    """Run a launch, recorded for one block and then checked; the arrays have its results."""
    options = {name: launch.options[name] for name in ("arch", "cluster") if name in launch.options}
    constants = {
        name: value
        for name, value in launch.options.items()
        if name not in ("arch", "cluster", "steps", "schedule")
    }
    timers: list[threading.Timer] = []
    begun: list[float] = []

    def begin(running: TracedLaunch) -> None:
        begun.append(time.perf_counter())
        timer = threading.Timer(TRACE_SECONDS, running.stop)
        timer.daemon = True
        timer.start()
        timers.append(timer)
        started(running)

    notes: list[str] = []
    limit = _limit()
    try:
        chosen = TraceOptions([tuple(traced)], limit=limit, steps=MOST_STEPS, schedule=schedule, **options)
        trace = record(launch.configured, launch.arguments, constants, chosen, begin)
    finally:
        for earlier in timers:
            earlier.cancel()
    took = time.perf_counter() - begun[0]
    if "interrupted" in trace.fault:
        notes.append(
            f"The kernel was stopped after {TRACE_SECONDS:.0f} seconds at most; shown are its steps."
        )
        return KernelView(launch, trace, None, notes=notes)
    if took > CHECKED_SECONDS:
        notes.append(
            "The launch was not checked as well, because it takes long: the heat counts traced steps."
        )
        return KernelView(launch, trace, None, notes=notes)
    launch.restore()
    report = check(
        launch.configured, *launch.arguments, steps=MOST_STEPS, schedule=schedule, **options, **constants
    )
    return KernelView(launch, trace, report, notes=notes)


def _limit() -> int:
    from lanewise.machine.tracer.traced_launch import LEAST_LIMIT, available_bytes

    return max(LEAST_LIMIT, min(TRACED_BYTES, available_bytes() // 2))


# The page's data --------------------------------------------------------------------------------------------


def data_of(view: KernelView) -> dict[str, Any]:
    """Return everything that the page shows of a launch; it steps through it without the server."""
    recording = view.trace.recording
    data = page_data(recording, SHOWN_BYTES)
    used = {point.get("file") for point in data["points"]}
    data["files"] |= {name: text.splitlines() for name, text in view.launch.files.items() if name in used}
    names = _short_names(data, view)
    for point in data["points"]:
        if point.get("file"):
            point["file"] = names.get(point["file"], Path(point["file"]).name)
    files = {names[name]: lines for name, lines in data["files"].items() if name in names}
    data["files"] = files
    data["findings"] = [
        {**_finding(finding, names), "step": row["step"]}
        for (finding, _), row in zip(recording.run.findings, data["findings"], strict=True)
    ]
    data |= {
        "copies": _copies(view.trace),
        "groups": product_groups(recording),
        "report": _report(view.report, names) if view.report is not None else None,
        "results": _results(view),
        "printed": view.printed[-20_000:],
        "notes": [*view.notes, *(view.report.notes if view.report is not None else ())],
        "cluster": recording.run.shape.cluster_blocks,
        "sharedBytes": recording.run.shared_bytes,
        "variables": _shared_variables(recording),
        "sharedWrites": shared_writes(recording, data["kept"]),
        "tensor": tensor_data(recording, data["kept"]),
    }
    return data


def _short_names(data: dict[str, Any], view: KernelView) -> dict[str, str]:
    """Return the files that may be shown, each with a name without its folder."""
    allowed = view.launch.files
    names: dict[str, str] = {}
    for name in data["files"]:
        if allowed and name not in allowed and Path(name).name not in allowed:
            continue
        short = Path(name).name
        while short in names.values():
            short += "′"
        names[name] = short
    return names


def _finding(finding: Finding, names: dict[str, str]) -> dict[str, object]:
    text = str(finding)
    for name, short in names.items():
        text = text.replace(name, short)
    file, line = _place(finding.source, names)
    return {
        "title": finding.title,
        "message": finding.message,
        "text": text,
        "line": finding.line,
        "file": file,
        "source": line,
        "severity": finding.severity,
    }


def _place(source: str | None, names: dict[str, str]) -> tuple[str, int]:
    if not source:
        return "", 0
    name, _, line = source.rpartition(":")
    return names.get(name, Path(name).name), int(line)


def _report(report: Report, names: dict[str, str]) -> dict[str, object]:
    """Return what the checker counted for each line, what it found, and what wastes time."""
    files = {}
    for file in report.listing():
        name = names.get(file.name, Path(file.name).name)
        files[name] = {
            "columns": list(file.columns),
            "lines": {
                str(line.number): {
                    "figures": {
                        column: line.figures[column] for column in file.columns if line.figures.get(column)
                    },
                    "remarks": line.remarks,
                }
                for line in file.lines
                if any(line.figures.values()) or line.remarks
            },
        }
    return {
        "files": files,
        "ptx": _by_ptx_line(report),
        "summary": report.summary,
        "ok": report.ok,
        "findings": [_finding(finding, names) for finding in report.findings],
        "performance": [
            {
                "text": entry.description,
                "line": entry.line,
                "file": _place(entry.source, names)[0],
                "source": _place(entry.source, names)[1],
            }
            for entry in report.performance
        ],
        "counters": {name: _number(value) for name, value in report.counters.items()},
    }


def _by_ptx_line(report: Report) -> dict[str, dict[str, int]]:
    """Return the figures of each line of the PTX."""
    from lanewise.machine.checker.reporting.listing import COLUMNS

    by_line: dict[str, dict[str, int]] = {}
    for line in report.lines:
        figures = {
            column: sum(int(line.counters.get(counter, 0)) for counter in counters)
            for column, counters in COLUMNS.items()
        }
        by_line[str(line.line)] = {column: value for column, value in figures.items() if value}
    return by_line


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _copies(trace: Trace) -> list[list[int | str | None]]:
    return [
        [copy.warp, copy.block, copy.issued, copy.committed, copy.completed, copy.text, copy.bytes]
        for copy in trace.copies
    ]


def product_groups(recording: Recording) -> list[list[int | None]]:
    """Return the groups of wgmma of each warp: warp, block, steps of first issue, commit and wait."""
    open_: dict[tuple[int, int], list[int | None]] = {}
    closed: dict[tuple[int, int], list[list[int | None]]] = {}
    groups = []
    interesting = np.array(
        [
            point.op is not None
            and (
                point.op.record.orders in (Order.WARPGROUP_COMMIT, Order.WARPGROUP_WAIT)
                or (point.op.opcode == "wgmma" and point.op.record.multiplies)
            )
            for point in recording.log.points
        ],
        np.bool_,
    )
    entries = recording.log.entries
    for step in np.flatnonzero(interesting[entries["point"][recording.steps]]).tolist():
        entry = int(recording.steps[step])
        op = recording.op(entry)
        if op is None:
            continue
        key = int(entries["block"][entry]), int(entries["warp"][entry])
        if op.record.orders is Order.WARPGROUP_COMMIT:
            group = open_.pop(key, None)
            if group is not None:
                group[3] = step
                closed.setdefault(key, []).append(group)
        elif op.record.orders is Order.WARPGROUP_WAIT:
            operand = op.operands[0] if op.operands else None
            kept = int(operand.bits) if isinstance(operand, Immediate) else 0
            waiting = closed.get(key, [])
            for group in waiting[: max(len(waiting) - kept, 0)]:
                group[4] = step
            closed[key] = waiting[max(len(waiting) - kept, 0) :]
        elif key not in open_:
            open_[key] = [key[1], key[0], step, None, None]
            groups.append(open_[key])
    return groups


def _results(view: KernelView) -> list[dict[str, Any]]:
    """Return a corner of each argument that is an array, and which of its elements the launch changed."""
    rows = []
    for argument in view.trace.recording.arguments:
        array = argument.array if argument.array.ndim else argument.array.reshape(1)
        flat = array.reshape(1, -1) if array.ndim == 1 else array.reshape(-1, array.shape[-1])
        before = view.launch.before(argument.array)
        changed = None
        if before is not None:
            same = np.ascontiguousarray(array).view(np.uint8) == np.ascontiguousarray(before).view(np.uint8)
            changed = int((~same.reshape(*flat.shape, -1)).any(axis=-1).sum()) if array.size else 0
        corner = flat[:CORNER, : CORNER * 2]
        rows.append(
            {
                "name": argument.name,
                "type": str(array.dtype),
                "shape": list(argument.array.shape),
                "changed": changed,
                "rows": [[_short(value) for value in row] for row in corner.tolist()],
            }
        )
    return rows


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shared_variables(recording: Recording) -> list[dict[str, object]]:
    """Return the variables in shared memory that the source says nothing more of."""
    from lanewise.traces.arrays import source_name

    arrays = recording.shared_arrays
    known = {array.offset for array in arrays.all()}
    return [
        {"name": source_name(name), "first": symbol.address, "bytes": symbol.size}
        for name, symbol in arrays.variables.items()
        if symbol.address not in known
    ]


def shared_writes(recording: Recording, kept: int) -> dict[str, object]:
    """Return what was written to the shared memory of the traced block, asynchronous copies included.

    Each write has the step after which it is there, its offset, its bytes, and the lane or row that wrote it.
    """
    writes, entries = recording.log.writes, recording.log.entries
    offset = writes.address.astype(np.int64) - abi.SHARED_WINDOW
    steps = np.searchsorted(recording.steps, writes.entry, "right") - 1
    chosen = (offset >= 0) & (offset < recording.run.shared_bytes) & (writes.offset != NOT_KEPT)
    chosen &= (writes.block == recording.run.blocks[0]) & (steps < kept)
    numbers = np.flatnonzero(chosen)
    numbers = numbers[: int(np.searchsorted(np.cumsum(writes.size[numbers]), SHOWN_BYTES, "right"))]
    lanes = np.where(entries["point"][writes.entry[numbers]] == ASYNC_WRITE_POINT, -1, writes.row[numbers])
    columns = {"step": steps[numbers], "offset": offset[numbers], "size": writes.size[numbers], "lane": lanes}
    content = packed_parts(recording.log.memory, writes.offset[numbers], writes.size[numbers])
    return {**_packed_columns(columns), "bytes": content}


def _packed_columns(columns: dict[str, Any]) -> dict[str, str]:
    """Return columns of integers compressed, as text."""
    return {name: packed(np.ascontiguousarray(column.astype(np.int32))) for name, column in columns.items()}


# Tensor memory ----------------------------------------------------------------------------------------------


def tensor_data(recording: Recording, kept: int) -> dict[str, Any] | None:
    """Return the tensor memory of the traced block, step by step; None for kernels without tcgen05.

    Each write has the step after which it is there and the step that issued it, its lane, column and words.
    """
    reading = tensor_reading(recording)
    if not reading.is_used:
        return None
    log, block = recording.log, recording.run.blocks[0]
    runs = log.runs
    numbers = np.flatnonzero((runs.target >= abi.TENSOR_WINDOW) & (runs.block == block))
    steps = np.searchsorted(recording.steps, runs.entry[numbers], "right") - 1
    numbers, steps = numbers[steps < kept], steps[steps < kept]
    fits = int(np.searchsorted(np.cumsum(runs.size[numbers]), SHOWN_BYTES, "right"))
    numbers, steps = numbers[:fits], steps[:fits]
    lanes, first = np.divmod(runs.target[numbers] - abi.TENSOR_WINDOW, LANE_BYTES)
    issuers = np.searchsorted(recording.steps, runs.issuer[numbers])
    columns = {
        "step": steps,
        "issuer": np.where(runs.issuer[numbers] >= 0, issuers, steps),
        "lane": lanes,
        "column": first // 4,
        "words": runs.size[numbers] // 4,
    }
    return {
        **_packed_columns(columns),
        "bytes": packed_parts(log.memory, runs.offset[numbers], runs.size[numbers]),
        "allocated": _allocated(recording, kept),
        "touched": _touched(recording, kept),
        "matrices": sorted(reading.matrices),
    }


def _allocated(recording: Recording, kept: int) -> list[list[int]]:
    """Return when columns of the block were allocated and freed: step, first column, columns (freed: < 0)."""
    allocations = []
    for entry, block, first, columns in tensor_reading(recording).allocations:
        step = int(np.searchsorted(recording.steps, entry, "right")) - 1
        if block == recording.run.blocks[0] and step < kept:
            allocations.append([step, first, columns])
    return allocations


def _touched(recording: Recording, kept: int) -> list[list[Any]]:
    """Return what steps do to the tensor memory of the block: step, kind, operand, and areas of lanes."""
    reading, accesses = tensor_reading(recording), []
    points = np.array(
        [point.op is not None and point.op.record.touches_tensor_memory for point in recording.log.points]
    )
    entries = recording.log.entries
    block = recording.run.blocks[0]
    steps = np.flatnonzero(points[entries["point"][recording.steps[:kept]]])[:MOST_TOUCHED]
    for step in steps.tolist():
        entry = int(recording.steps[step])
        own = int(entries["block"][entry])
        for access in reading.accesses(entry):
            if (reading.partner(own) if access.in_other else own) == block:
                areas = [area for part in access.areas for area in _spans(part)]
                accesses.append([step, access.kind, access.operand, areas])
    return accesses


def _spans(area: Area) -> list[list[int]]:
    """Return an area as spans of neighbouring lanes: first lane, lanes, first column, columns."""
    spans: list[list[int]] = []
    for lane in area.lanes:
        if spans and lane == spans[-1][0] + spans[-1][1]:
            spans[-1][1] += 1
        else:
            spans.append([lane, 1, area.column, area.columns])
    return spans


# Origins ----------------------------------------------------------------------------------------------------


def origin_of(
    view: KernelView, of: str, lane: int | None, warp: int, step: int, block: int
) -> dict[str, Any]:
    """Return the tree of what made a value, as it was after a step."""
    trace = view.trace
    recording = trace.recording
    count = len(recording.steps)
    if not 0 <= step < count:
        raise LanewiseError(f"there is no step {step}: the trace has {count} steps")
    before = step + 1 if step + 1 < count else None
    if block not in recording.run.blocks:
        raise LanewiseError(f"block {block} was not traced")
    root = trace.origin(of, lane=lane, warp=warp, block=recording.block_at(block), before=before)
    inputs: dict[str, list[list[int]]] = {}
    if sum(1 for _ in root.walk(MOST_NODES)) < MOST_NODES:
        inputs = {name: [list(index) for index in indices] for name, indices in root.inputs.items()}
    return {"of": of, "tree": _node(view, root, DEPTH), "inputs": inputs}


def _node(view: KernelView, origin: Origin, depth: int) -> dict[str, object]:
    step = origin.step
    sources = origin.sources if depth else ()
    return {
        "line": _line(view, origin),
        "kind": origin.kind,
        "step": step.number if step is not None else None,
        "warp": origin.warp,
        "lane": origin.lane,
        "sources": [_node(view, source, depth - 1) for source in sources[:WIDTH]],
        "more": max(len(origin.sources) - len(sources[:WIDTH]), 0),
    }


def _line(view: KernelView, origin: Origin) -> str:
    """Return a node as text; an input has the value that it had before the launch."""
    if origin.kind != "input" or not isinstance(origin.place, MemoryPlace):
        return origin.line
    for argument in view.trace.recording.arguments:
        index = argument.index_at(origin.place.address)
        before = view.launch.before(argument.array)
        if index is not None and before is not None and argument.array.itemsize == origin.place.size:
            return f"{origin.what} = {shown(before[index])}  (input)"
    return origin.line


# SASS -------------------------------------------------------------------------------------------------------


def sass_of_view(view: KernelView, arch: str = "") -> dict[str, object]:
    """Return the kernel's SASS, each line with the line that ptxas says it came from.

    That is a line of the source; of PTX that says nothing of a source, it is the PTX's own.
    """
    recording = view.trace.recording
    module = recording.module
    text = module.text or str(module)
    if not module.files:
        module = load(_with_own_lines(text, {point.op.line for point in recording.log.points if point.op}))
    cubin = ptxas(module, arch or view.trace.arch, options=["--generate-line-info"], timeout=TOOL_SECONDS)
    listing = nvdisasm(cubin, options=["-c", "-g"], timeout=TOOL_SECONDS)
    used = cubin.resources.get(recording.program.entry.name)
    resources = (
        f"{used.registers} registers, {used.shared} bytes of shared memory, "
        f"{used.spill_stores + used.spill_loads} bytes of spills"
        if used is not None
        else ""
    )
    return {
        "lines": _sass_lines(sass_of(listing, recording.program.entry.name)),
        "resources": resources,
        "arch": cubin.arch,
        "notes": list(cubin.notes),
    }


def _sass_lines(text: str) -> list[dict[str, object]]:
    """Return the instructions and labels of a listing, each with the line that it came from."""
    lines: list[dict[str, object]] = []
    file, source = "", 0
    for line in text.splitlines():
        match = _SASS_LINE.search(line)
        if match is not None:
            file, source = Path(match["file"]).name, int(match["line"])
        elif "/*" in line and "*/" in line and not line.lstrip().startswith("//"):
            lines.append({"text": line.strip(), "file": file, "source": source})
        elif line.strip().endswith(":") or line.strip().startswith(".L"):
            lines.append({"text": line.strip(), "file": "", "source": 0})
    return lines


def _with_own_lines(text: str, instructions: set[int]) -> str:
    """Return PTX that names its own lines as the source of its instructions."""
    lines = []
    is_named = False
    for number, line in enumerate(text.splitlines(), 1):
        if number in instructions:
            lines.append(f"\t.loc 1 {number} 0")
        lines.append(line)
        if not is_named and line.strip().startswith(".address_size"):
            lines.append(f'.file 1 "{OWN_LINES}"')
            is_named = True
    return "\n".join(lines) if is_named else text
