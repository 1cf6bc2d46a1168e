"""What a debugger tells of a moment: values, source lines, barriers, copies, memory, findings, origins.

Lanes are shown as a table, fragments and arrays as matrices."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lanewise.debug.debugger import Debugger
from lanewise.debug.expressions import Expression, Kind, Value
from lanewise.debug.lines import PTX, Frame
from lanewise.debug.moments import COORDINATES
from lanewise.debug.stops import Breakpoint, lanes_text, shown
from lanewise.draw.tensor_memory import UNWRITTEN, allocated_text
from lanewise.errors import LanewiseError
from lanewise.machine.abi import LANES
from lanewise.numpy_types import AnyArray
from lanewise.traces.arrays import source_name
from lanewise.traces.history import lanes_of
from lanewise.traces.step import Step

#: Lanes in a row of a table; rows and columns of a matrix that are shown.
LANE_COLUMNS, MOST_ROWS, MOST_COLUMNS = 8, 32, 16
#: Lines that `list` shows.
AROUND = 9


def printed(debugger: Debugger, text: str) -> str:
    """Return an expression's value at the position as text: a fragment is drawn as its matrix."""
    moment = debugger.moment
    expression = Expression(text)
    value = expression.evaluate(moment)
    plain = expression.text
    if value.items is not None:
        elements = ", ".join(f"{plain}[{key!r}]" for key in value.items)
        return f"{plain} has {len(value.items)} element{'s' * (len(value.items) != 1)}: {elements}"
    variable = value.variable
    note = "  (nothing has written it yet)" if variable and not moment.is_written(variable) else ""
    if value.kind is Kind.VECTOR and variable is not None:
        operand = moment.operand(variable)
        matrix = moment.fragment(variable)
        if operand is not None and matrix is not None:
            who = "four warps" if operand.threads > LANES else "the warp"
            head = f"{plain}: {operand.format.name}, {matrix.shape[0]} × {matrix.shape[1]}, held by {who}"
            return f"{head}{note}\n{grid(matrix)}"
    return f"{value_text(plain, value, shown_lanes(debugger))}{note}"


def shown_lanes(debugger: Debugger) -> npt.NDArray[np.bool_]:
    """Return the lanes that are looked at: those that the user chose, else those at the instruction."""
    return debugger.lanes if debugger.lanes is not None else debugger.moment.active


def value_text(name: str, value: Value, lanes: npt.NDArray[np.bool_]) -> str:
    """Return a value as text."""
    data = value.data
    match value.kind:
        case Kind.SCALAR:
            return f"{name} = {shown(data)}"
        case Kind.LANES:
            return _lanes(name, data, lanes)
        case Kind.VECTOR:
            rows = [[f"lane {lane}", *map(shown, data[lane])] for lane in np.flatnonzero(lanes)]
            heads = ["", *(f"[{number}]" for number in range(data.shape[1]))]
            return f"{name}, {data.shape[1]} elements a lane:\n{columns([heads, *rows])}"
    return f"{name}: {data.dtype}, {' × '.join(map(str, data.shape))}\n{grid(data, value.axes)}"


def _lanes(name: str, data: AnyArray, lanes: npt.NDArray[np.bool_]) -> str:
    """Return a number for each lane as a table, or once if it is the same in all."""
    chosen = [shown(value) for value in data[lanes]]
    if not chosen:
        return f"{name}: no lane is active here"
    if len(set(chosen)) == 1:
        return f"{name} = {chosen[0]} in {lanes_text(lanes)}"
    rows = [["lane", *(f"+{number}" for number in range(LANE_COLUMNS))]]
    for first in range(0, LANES, LANE_COLUMNS):
        cells = [shown(data[lane]) if lanes[lane] else "·" for lane in range(first, first + LANE_COLUMNS)]
        if lanes[first : first + LANE_COLUMNS].any():
            rows.append([str(first), *cells])
    return f"{name}:\n{columns(rows)}"


def grid(data: AnyArray, axes: tuple[range, ...] = ()) -> str:
    """Return a matrix as text with its rows and columns numbered; a large one without its middle.

    `axes` are the numbers of the rows and columns, if the matrix is a part of another.
    """
    if data.ndim == 0:
        return shown(data)
    numbers = axes or tuple(range(size) for size in data.shape)
    flat = data.reshape(1, -1) if data.ndim == 1 else data.reshape(-1, data.shape[-1])
    rows, cols = _kept(flat.shape[0], MOST_ROWS), _kept(flat.shape[1], MOST_COLUMNS)
    table = [["", *("…" if col is None else str(numbers[-1][col]) for col in cols)]]
    for row in rows:
        if row is None:
            table.append(["…"] * (len(cols) + 1))
            continue
        cells = ["…" if col is None else shown(flat[row, col], digits=4) for col in cols]
        index = np.unravel_index(row, data.shape[:-1]) if data.ndim > 1 else ()
        label = ",".join(str(axis[place]) for axis, place in zip(numbers, index, strict=False))
        table.append([label, *cells])
    return columns(table)


def _kept(size: int, most: int) -> list[int | None]:
    """Return the numbers of rows that are shown; None stands for those that are not."""
    if size <= most:
        return list(range(size))
    return [*range(most // 2), None, *range(size - most // 2, size)]


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text, each column as wide as its widest cell."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def where(debugger: Debugger) -> str:
    """Return where the debugger is: the step, the warp and its lanes, the line and its text."""
    step, frame = debugger.step, debugger.frame
    if frame is None:
        return "nothing was recorded: the block executed no instruction"
    if step is None:
        return f"warp {debugger.warp} has ended, after step {debugger.position - 1}"
    lanes = lanes_text(debugger.moment.active)
    head = f"step {step}, warp {debugger.warp}, {lanes}: {frame}"
    text = debugger.lines.text(frame).strip()
    return f"{head}\n{frame.line}\t{text}"


def listing(debugger: Debugger, frame: Frame, instruction: int | None = None) -> str:
    """Return the lines around one, with an arrow at the present one and stars at breakpoints."""
    lines = debugger.lines.lines_of(frame.file)
    if not lines:
        return f"{frame.file} cannot be read; list ptx shows the PTX"
    first = max(1, min(frame.line - AROUND // 2, len(lines) - AROUND + 1))
    last = min(len(lines), first + AROUND - 1)
    stars = {stop.frame for stop in debugger.stops.values() if isinstance(stop, Breakpoint)}
    present = debugger.frame if frame.file != PTX else Frame(PTX, instruction or frame.line)
    rows = []
    for line in range(first, last + 1):
        star = "*" if Frame(frame.file, line) in stars else " "
        arrow = "->" if present == Frame(frame.file, line) else "  "
        rows.append(f"{star}{arrow} {line:>{len(str(last))}}  {lines[line - 1]}".rstrip())
    return "\n".join(rows)


#: Elements that are listed one by one.
_LISTED = 6
#: Characters of an instruction's name in a table.
_NAME = 48


def recorded(debugger: Debugger) -> str:
    """Return what was recorded, and what is missing of it."""
    trace = debugger.recorded.trace
    warps = len(debugger.lines.of_warp)
    lines = [
        f"{debugger.launch.name}, block {debugger.block} of {debugger.launch.grid}: "
        f"{len(trace)} steps of {warps} warp{'s' if warps != 1 else ''}"
    ]
    if not trace.is_complete:
        limit = debugger.recorded.recording.run.limit
        lines.append(
            f"The limit of {limit} bytes was reached: these are the first {len(trace)} steps; the launch "
            "itself ran to its end. --limit raises it."
        )
    if trace.fault:
        lines.append(f"The launch did not end: {trace.fault.splitlines()[0]}")
    return "\n".join(lines)


def backtrace(debugger: Debugger) -> str:
    """Return the lines through which the code was inlined, the innermost first."""
    rows = []
    for number, frame in enumerate(debugger.frames):
        mark = ">" if number == min(debugger.up, len(debugger.frames) - 1) else " "
        rows.append(f"{mark} #{number}  {frame}  {debugger.lines.text(frame).strip()}")
    step = debugger.moment.step
    lanes = lanes_text(debugger.moment.active)
    rows.append(f"  {debugger.launch.name}, block {debugger.block}, warp {debugger.warp}, {lanes}")
    if step is not None:
        rows.append(f"  step {step.number} of {len(debugger.lines)}: PTX line {step.line}: {step.text}")
    return "\n".join(rows)


def info(debugger: Debugger, topic: str) -> str:
    """Return what is asked for by the name of a topic, or the beginning of it."""
    topic = _TOPICS_ELSEWHERE.get(topic.strip(), topic)
    topics = [name for name in TOPICS if topic and name.startswith(topic.strip())]
    if len(topics) != 1:
        what = f"knows no topic {topic!r}" if topic else "needs a topic"
        raise LanewiseError(f"info {what}; topics are {', '.join(TOPICS)}")
    return TOPICS[topics[0]](debugger)


def _barriers(debugger: Debugger) -> str:
    if not debugger.position:
        return "No warp waits at a barrier."
    # Before the last instruction of a launch that did not end: it was executed, too.
    is_last = bool(debugger.recorded.trace.fault) and debugger.position == len(debugger.lines) - 1
    waiting = Step(debugger.recorded.recording, debugger.position - (not is_last)).waiting
    lines = []
    for wait in waiting:
        lines.append(
            f"warp {wait.warp} waits {wait.what} since step {wait.since}, {lanes_text(lanes_of(wait.lanes))}"
        )
        if wait.missing:
            lines.append(f"    {wait.missing}")
    return "\n".join(lines) or "No warp waits at a barrier."


def _copies(debugger: Debugger) -> str:
    here, rows = debugger.position, [["warp", "issued", "committed", "complete", "bytes", "", "now"]]
    for copy in debugger.recorded.trace.copies:
        if copy.issued >= here:
            continue
        done = copy.completed is not None and copy.completed < here
        closed = copy.committed is not None and copy.committed < here
        state = "complete" if done else "in a group" if closed else "under way"
        steps = (
            "-" if step is None or step >= here else str(step) for step in (copy.committed, copy.completed)
        )
        size = "-" if copy.bytes is None else str(copy.bytes)
        rows.append([str(copy.warp), str(copy.issued), *steps, size, _shortened(copy.text), state])
    kept = [rows[0], *rows[-16:]] if len(rows) > 17 else rows
    return columns(kept) if len(rows) > 1 else "No asynchronous copy was issued up to here."


def _shortened(text: str) -> str:
    """Return the name of an instruction as a table has room for it."""
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"


def _shared(debugger: Debugger) -> str:
    arrays = debugger.recorded.recording.shared_arrays
    rows = [
        [array.name, array.dtype.name, " × ".join(map(str, array.shape)), f"at {array.offset}"]
        for array in arrays.all()
    ]
    known = {row[0] for row in rows}
    for name, symbol in arrays.variables.items():
        if source_name(name) not in known:
            known.add(source_name(name))
            rows.append([source_name(name), "", f"{symbol.size} bytes", f"at {symbol.address}"])
    return columns(rows) if rows else "The kernel has no shared memory."


def _tensor(debugger: Debugger) -> str:
    """Return which columns of tensor memory are allocated, who wrote them last, what the next step does."""
    memory = debugger.moment.tensor_memory()
    text = allocated_text(memory.allocated)
    lines = [f"{text[0].upper()}{text[1:]}."]
    written = memory.writers.max(axis=0)
    rows = [["columns", "lanes", "last written by"]]
    edges = [0, *(np.flatnonzero(np.diff(written)) + 1).tolist(), len(written)]
    for first, last in itertools.pairwise(edges):
        step = int(written[first])
        if step != UNWRITTEN:
            lanes = np.flatnonzero((memory.writers[:, first:last] != UNWRITTEN).any(axis=1)).tolist()
            text = _shortened(debugger.recorded.trace.at(step).op.head)
            rows.append([_spans(range(first, last)), _spans(lanes), f"step {step}: {text}"])
    lines += [columns(rows)] if len(rows) > 1 else ["Nothing has been written to it."]
    for access in memory.touched:
        lanes, cols = (np.flatnonzero(access.words.any(axis=axis)).tolist() for axis in (1, 0))
        verb = {"read": "reads", "write": "writes"}.get(access.kind, "reads and writes")
        lines.append(f"The next step {verb} {access.operand}: lanes {_spans(lanes)}, columns {_spans(cols)}.")
    return "\n".join(lines)


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as ranges.

    >>> _spans([0, 1, 2, 3, 8, 10, 11])
    '0-3, 8, 10-11'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _findings(debugger: Debugger) -> str:
    lines = []
    for finding, step in debugger.recorded.findings:
        at = f"step {step}" if step is not None else f"block {finding.block}" if finding.block else "launch"
        lines.append(f"{at}:\n{finding}")
    return "\n".join(lines) or "The checker found nothing."


def _breakpoints(debugger: Debugger) -> str:
    return "\n".join(f"{number}  {stop}" for number, stop in debugger.stops.items()) or "There are none."


def _registers(debugger: Debugger) -> str:
    moment, lanes = debugger.moment, shown_lanes(debugger)
    names = moment.recording.names
    wanted = names.variables or names.by_name
    # The registers of a fragment are shown by `print` of the fragment.
    parts = {
        register
        for variable in names.variables.values()
        if variable.is_vector
        for part in variable.elements
        for register in part
    }
    rows = []
    for name in wanted:
        variable = names.find(name)
        if not moment.is_written(variable) or variable.is_vector or parts & set(variable.elements[0]):
            continue
        values = [shown(register) for register in moment.registers[name][lanes]]
        same = len(set(values)) == 1
        text = values[0] if same else ", ".join(values[:_LISTED]) + (", …" if len(values) > _LISTED else "")
        rows.append([name, text])
    if not rows:
        return "Nothing has been written to a register yet."
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{name:{width}}  {text}" for name, text in rows)


def _warps(debugger: Debugger) -> str:
    rows = []
    for warp in debugger.lines.of_warp:
        step = debugger.lines.next_of(warp, debugger.position)
        at = "has ended"
        if step is not None:
            frames = debugger.lines.frames(step) or (Frame(PTX, debugger.lines.ptx_line(step)),)
            at = f"step {step}, {frames[0]}"
        rows.append(f"{'>' if warp == debugger.warp else ' '} warp {warp}  {at}")
    return "\n".join(rows)


def _variables(debugger: Debugger) -> str:
    recording, tensor = debugger.recorded.recording, debugger.moment.tensor_names
    lines = [
        f"arrays: {', '.join(argument.name for argument in recording.arguments) or 'none'}",
        f"shared: {', '.join(debugger.moment.shared_names) or 'none'}",
        *([f"tensor memory: {', '.join(tensor)}"] if tensor else []),
        f"variables: {', '.join(recording.names.variables) or 'none'}",
        f"registers: {', '.join(list(recording.names.by_name)[:40])}",
        f"special: $lane, $warp, $step, {', '.join(f'{coordinate}.x' for coordinate in COORDINATES)}",
    ]
    return "\n".join(lines)


#: What gdb calls topics.
_TOPICS_ELSEWHERE = {"locals": "variables", "args": "variables", "threads": "warps", "regs": "registers"}
TOPICS: dict[str, Callable[[Debugger], str]] = {
    "barriers": _barriers,
    "copies": _copies,
    "shared": _shared,
    "tensor": _tensor,
    "findings": _findings,
    "breakpoints": _breakpoints,
    "registers": _registers,
    "variables": _variables,
    "warps": _warps,
}


def why(debugger: Debugger, element: str) -> str:
    """Return the tree of instructions and inputs that made a value, and the inputs in short."""
    if not element:
        raise LanewiseError("name an element, such as C[3, 5], As[1, 2] or acc[1]")
    lane = int(np.flatnonzero(shown_lanes(debugger))[0]) if shown_lanes(debugger).any() else 0
    before = debugger.position if debugger.position < len(debugger.lines) else None
    origin = debugger.recorded.trace.origin(element, lane=lane, warp=debugger.warp, before=before)
    if origin.kind == "input":
        value = printed(debugger, element).partition(" = ")[2]
        return (
            f"{origin.what} = {value}: no step of block {debugger.block} has written it up to here, so it is "
            "what it was before the launch"
        )
    if origin.kind == "initial":
        return f"{element}: nothing has written it up to here"
    lines = [str(origin)]
    for name, indices in origin.inputs.items():
        listed = ", ".join(f"{name}{list(end)}" for end in _ends(indices))
        lines.append(
            f"made from {len(indices)} element{'s' if len(indices) != 1 else ''} of {name}: {listed}"
        )
    return "\n".join(lines)


def _ends(indices: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return some of many elements."""
    return list(indices) if len(indices) <= _LISTED else [*indices[: _LISTED - 1], indices[-1]]


def draw(debugger: Debugger, name: str, path: str) -> Path:
    """Draw who holds the elements of a fragment, or how an array lies in shared memory."""
    from lanewise.draw import save

    moment = debugger.moment
    if name in moment.tensor_names:
        return save(moment.tensor_memory(), path)
    if name in moment.shared_names:
        return save(moment.recording.shared_arrays.declared[name].layout, path)
    operand = moment.operand(moment.recording.names.find(name))
    if operand is None:
        raise LanewiseError(f"{name} is neither a fragment nor an array in shared or tensor memory")
    return save(operand, path)
