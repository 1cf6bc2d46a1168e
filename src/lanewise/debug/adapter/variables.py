"""What an editor shows of a moment: scopes, and in them lanes, fragments, arrays and registers, on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lanewise.debug.moments import Moment
from lanewise.debug.stops import lanes_text, shown
from lanewise.errors import LanewiseError
from lanewise.machine.abi import LANES
from lanewise.numpy_types import AnyArray
from lanewise.traces.names import Variable

#: Rows of an array that are sent at a time if the editor does not say how many it wants.
MOST_ROWS = 256
#: Values of lanes in the summary of a variable.
_SUMMARY = 4


@dataclass(frozen=True)
class Shown:
    """A line in an editor's list of variables; `inner` makes the lines below it."""

    name: str
    value: str
    type: str = ""
    #: The expression that has this value, and what a data breakpoint watches: an element, and a lane.
    expression: str = ""
    watched: str = ""
    lane: int | None = None
    inner: Callable[[], list[Shown]] | None = None
    count: int = 0


def scopes(moment: Moment) -> list[tuple[str, Callable[[], list[Shown]], bool]]:
    """Return the scopes of a moment: name, what makes their lines, whether they take long."""
    names = moment.recording.names
    listed: list[tuple[str, Callable[[], list[Shown]], bool]] = []
    if names.variables:
        listed.append(("Variables", lambda: list(_registers(moment, list(names.variables))), False))
    listed.append(("Lanes", lambda: _lanes(moment), False))
    if any(moment.operand(variable) is not None for variable in names.variables.values()):
        listed.append(("Fragments", lambda: list(_fragments(moment)), False))
    if moment.shared_names:
        listed.append(
            ("Shared memory", lambda: list(_arrays(moment, moment.shared_names, moment.shared)), False)
        )
    if moment.tensor_names:
        listed.append(
            ("Tensor memory", lambda: list(_arrays(moment, moment.tensor_names, moment.tensor)), True)
        )
    if moment.argument_names:
        listed.append(
            ("Arrays", lambda: list(_arrays(moment, moment.argument_names, moment.argument)), False)
        )
    listed.append(("Special registers", lambda: _special(moment), False))
    listed.append(("Registers", lambda: list(_registers(moment, list(names.by_name))), True))
    return listed


def summary(values: AnyArray, active: npt.NDArray[np.bool_]) -> str:
    """Return what lanes hold in a few words.

    >>> summary(np.arange(32), np.arange(32) < 8)
    '0, 1, 2, 3, … (lanes 0-7)'
    """
    texts = [shown(value) for value in values[active]]
    if len(set(texts)) <= 1:
        return f"{texts[0] if texts else '-'} ({lanes_text(active)})"
    more = ", …" if len(texts) > _SUMMARY else ""
    return f"{', '.join(texts[:_SUMMARY])}{more} ({lanes_text(active)})"


def _registers(moment: Moment, wanted: list[str]) -> Iterator[Shown]:
    names, active = moment.recording.names, moment.active
    for name in wanted:
        variable = names.find(name)
        if not moment.is_written(variable):
            continue
        data = moment.values(variable)
        if data.ndim > 1:
            yield Shown(
                name, f"{data.shape[1]} elements a lane", variable.format.name if variable.format else "",
                name, inner=_elements(moment, variable, data), count=data.shape[1],
            )  # fmt: skip
        else:
            yield _of_lanes(name, name, data, active)


def _elements(moment: Moment, variable: Variable, data: AnyArray) -> Callable[[], list[Shown]]:
    def inner() -> list[Shown]:
        names = [f"{variable.name}[{number}]" for number in range(data.shape[1])]
        return [_of_lanes(name, name, data[:, number], moment.active) for number, name in enumerate(names)]

    return inner


def _of_lanes(name: str, expression: str, data: AnyArray, active: npt.NDArray[np.bool_]) -> Shown:
    """Return the line of a register, with a line for each lane below it."""

    def inner() -> list[Shown]:
        return [
            Shown(f"lane {lane}", shown(data[lane]) + ("" if active[lane] else "  (not active)"),
                  watched=expression, lane=lane)
            for lane in range(LANES)
        ]  # fmt: skip

    return Shown(name, summary(data, active), str(data.dtype), expression, expression, None, inner, LANES)


def _lanes(moment: Moment) -> list[Shown]:
    """Return a line for each lane, with the variables of that lane below it."""
    names = moment.recording.names
    wanted = list(names.variables or names.by_name)

    def lane_of(lane: int) -> Callable[[], list[Shown]]:
        def inner() -> list[Shown]:
            children = []
            for name in wanted:
                if moment.is_written(variable := names.find(name)):
                    data = moment.values(variable)[lane]
                    text = ", ".join(map(shown, data)) if np.ndim(data) else shown(data)
                    watched = "" if np.ndim(data) else name
                    children.append(Shown(name, text, expression=name, watched=watched, lane=lane))
            return children

        return inner

    return [
        Shown(f"lane {lane}", "active" if moment.active[lane] else "not active", inner=lane_of(lane))
        for lane in range(LANES)
    ]


def _fragments(moment: Moment) -> Iterator[Shown]:
    for name, variable in moment.recording.names.variables.items():
        operand = moment.operand(variable)
        if operand is None or not moment.is_written(variable):
            continue
        matrix = moment.fragment(variable)
        if matrix is not None:
            kind = f"{operand.format.name} {matrix.shape[0]} × {matrix.shape[1]}"
            yield Shown(name, kind, kind, name, inner=_rows(name, matrix, ""), count=len(matrix))


def _arrays(moment: Moment, names: list[str], values: Callable[[str], AnyArray]) -> Iterator[Shown]:
    for name in names:
        data = values(name)
        kind = f"{data.dtype} {' × '.join(map(str, data.shape))}"
        yield Shown(
            name, kind, kind, name, inner=_rows(name, data, name), count=len(data) if data.ndim else 0
        )


def _rows(name: str, data: AnyArray, watched: str, index: tuple[int, ...] = ()) -> Callable[[], list[Shown]]:
    """Return what makes the lines of an array: a row each, and elements below a row."""

    def inner() -> list[Shown]:
        children = []
        for number, row in enumerate(data):
            place = (*index, number)
            label = f"[{', '.join(map(str, place))}]"
            if np.ndim(row):
                text = ", ".join(shown(value, 4) for value in row.ravel()[:8]) + (
                    ", …" if row.size > 8 else ""
                )
                children.append(Shown(label, text, inner=_rows(name, row, watched, place), count=len(row)))
            else:
                element = f"{watched}{label}" if watched else ""
                children.append(Shown(label, shown(row), expression=element, watched=element))
        return children

    return inner


def _special(moment: Moment) -> list[Shown]:
    active = moment.active
    shown = [_of_lanes("laneid", "", np.arange(LANES), active), Shown("warp", str(moment.warp))]
    for name in ("tid", "ctaid", "ntid", "nctaid"):
        for axis in "xyz":
            value = moment.special(name, axis)
            if isinstance(value, int):
                shown.append(Shown(f"{name}.{axis}", str(value), expression=f"{name}.{axis}"))
            else:
                shown.append(_of_lanes(f"{name}.{axis}", "", np.asarray(value), active))
    return shown


class References:
    """The numbers by which an editor asks for the lines below a line; they hold while nothing moves."""

    def __init__(self) -> None:
        self._made: list[Callable[[], list[Shown]]] = []
        self._kept: dict[int, list[Shown]] = {}

    def add(self, inner: Callable[[], list[Shown]]) -> int:
        """Return the number of some lines that are made when they are asked for."""
        self._made.append(inner)
        return len(self._made)

    def lines(self, number: int) -> list[Shown]:
        """Return the lines of a number."""
        if not 0 < number <= len(self._made):
            raise LanewiseError(f"there are no variables {number} any more: the launch has moved on")
        if number not in self._kept:
            self._kept[number] = self._made[number - 1]()
        return self._kept[number]

    def protocol(self, variable: Shown) -> dict[str, object]:
        """Return a line as the protocol has it."""
        message: dict[str, object] = {"name": variable.name, "value": variable.value, "variablesReference": 0}
        if variable.type:
            message["type"] = variable.type
        if variable.expression:
            message["evaluateName"] = variable.expression
        if variable.inner is not None:
            message["variablesReference"] = self.add(variable.inner)
            if variable.count > MOST_ROWS:
                message["indexedVariables"] = variable.count
        return message
