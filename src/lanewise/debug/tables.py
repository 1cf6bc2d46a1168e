"""Values as text: lanes as a table, fragments and arrays as matrices, lines of the source around one."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lanewise.debug.debugger import Debugger
from lanewise.debug.expressions import Expression, Kind, Value
from lanewise.debug.lines import PTX, Frame
from lanewise.debug.stops import Breakpoint, lanes_text, shown
from lanewise.machine.abi import LANES
from lanewise.numpy_types import AnyArray

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
