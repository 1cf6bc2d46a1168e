"""What makes a launch stop: breakpoints at lines, watched values, findings of the checker."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.debug.expressions import Expression
from lanewise.debug.launches import Recorded
from lanewise.debug.lines import Frame, Lines
from lanewise.debug.moments import Moment
from lanewise.errors import LanewiseError
from lanewise.machine.abi import LANES
from lanewise.traces.history import NOTHING, lanes_of
from lanewise.traces.places import MemoryPlace, PlaceNames, RegisterPlace
from lanewise.traces.step import Registers


class Stop(NamedTuple):
    """A position at which a launch stops, the warp that is looked at there, and why, in words."""

    position: int
    warp: int
    reason: str
    why: str = "breakpoint"
    number: int = 0
    #: Of a finding: its kind, such as "race".
    kind: str = ""


@dataclass(eq=False)
class Breakpoint:
    """A line at which warps stop, if a condition holds in one of the lanes that are there."""

    number: int
    frame: Frame
    condition: Expression | None = None
    temporary: bool = False
    hits: int = 0
    #: The file in which an editor asked for it.
    asked_in: str = ""

    def positions(self, lines: Lines) -> npt.NDArray[np.int64]:
        """Return the steps at which warps come to the line."""
        return lines.beginnings(self.frame)

    def stop(self, recorded: Recorded, step: int, warp: int) -> Stop | None:
        """Return the stop before a step at which a warp comes to the line; None if the condition fails."""
        lanes = ""
        if self.condition is not None:
            holds = self.condition.holds(Moment(recorded, step, warp))
            if not holds.any():
                return None
            lanes = f", {self.condition} in {lanes_text(holds)}"
        self.hits += 1
        return Stop(step, warp, f"breakpoint {self.number}{lanes}", "breakpoint", self.number)

    def __str__(self) -> str:
        condition = f" if {self.condition}" if self.condition is not None else ""
        hits = f", {self.hits} time{'s' if self.hits != 1 else ''} hit" if self.hits else ""
        return f"break {self.frame}{condition}{hits}"


class Change(NamedTuple):
    """A change of a watched value: the step that made it, its warp, the value before and after."""

    step: int
    warp: int
    text: str


@dataclass(eq=False)
class Watchpoint:
    """A register of some lanes, or an element of memory, whose changes stop the launch."""

    number: int
    what: str
    lanes: npt.NDArray[np.bool_]
    warp: int
    hits: int = 0
    _found: dict[int, list[Change]] = field(default_factory=dict)

    def changes(self, recorded: Recorded) -> list[Change]:
        """Return all changes of the value in a recording, in order."""
        key = id(recorded)
        if key not in self._found:
            self._found = {key: self._changes(recorded)}
        return self._found[key]

    def _changes(self, recorded: Recorded) -> list[Change]:
        recording = recorded.recording
        lane = int(np.flatnonzero(self.lanes)[0])
        place = PlaceNames(recording).find(self.what, lane, self.warp, None)
        if isinstance(place, MemoryPlace):
            return self._memory_changes(recorded)
        changes, _ = recording.registers.writes(place.block, place.warp, place.registers)
        return [
            change
            for entry in changes.tolist()
            if (change := self._register_change(recorded, place, entry)) is not None
        ]

    def _register_change(self, recorded: Recorded, place: RegisterPlace, entry: int) -> Change | None:
        recording = recorded.recording
        before, after = (
            place.of_lanes(Registers(recording, place.block, place.warp, near).bits(place.registers))
            for near in (entry - 1, entry)
        )
        changed = self.lanes & (before != after).any(axis=1)
        step = recording.step_of(entry)
        if not changed.any() or step is None:
            return None
        one = int(np.flatnonzero(changed)[0])
        values = [shown(place.shown(raw)[one]) for raw in (before, after)]
        more = f" (and in {int(changed.sum()) - 1} more lanes)" if changed.sum() > 1 else ""
        return Change(step, self.warp, f"{values[0]} → {values[1]} in lane {one}{more}")

    def _memory_changes(self, recorded: Recorded) -> list[Change]:
        recording, changes = recorded.recording, []
        place = PlaceNames(recording).find(self.what, 0, self.warp, None)
        assert isinstance(place, MemoryPlace)
        numbers: set[int] = set()
        for byte in range(place.address, place.address + place.size):
            numbers |= set(recording.memory.before(byte, len(recording.log), place.block))
        entries = sorted({int(recording.memory.writes.entry[number]) for number in numbers})
        before: Any = self._value(recorded, entries[0]) if entries else 0
        for entry in entries:
            after = self._value(recorded, entry + 1)
            # What an asynchronous copy writes belongs to the step before.
            step = max(int(np.searchsorted(recording.steps, entry, "right")) - 1, 0)
            if not np.array_equal(before, after, equal_nan=np.asarray(after).dtype.kind == "f"):
                warp = int(recording.log.entries["warp"][recording.steps[step]])
                changes.append(Change(step, warp, f"{shown(before)} → {shown(after)}"))
            before = after
        return changes

    def _value(self, recorded: Recorded, entry: int) -> Any:
        """Return what an element of memory held before an entry."""
        origins = recorded.trace.origins
        place = PlaceNames(recorded.recording).find(self.what, 0, self.warp, None)
        node = origins.find(place, entry)
        if node.entry != NOTHING or node.kind == "parts":
            return node.value
        return Expression(self.what).evaluate(Moment(recorded, 0, self.warp)).data

    def __str__(self) -> str:
        return f"watch {self.what}"


def shown(value: Any, digits: int = 6) -> str:
    """Return a number as text, short enough for a line or a cell."""
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    try:
        return f"{float(value):.{digits}g}"
    except (TypeError, ValueError):
        return str(value)


def lanes_text(lanes: npt.NDArray[np.bool_]) -> str:
    """Return some lanes in words.

    >>> lanes_text(np.arange(32) < 4), lanes_text(np.arange(32) == 7), lanes_text(np.arange(32) % 16 < 2)
    ('lanes 0-3', 'lane 7', 'lanes 0-1,16-17')
    """
    numbers = np.flatnonzero(lanes)
    if not len(numbers):
        return "no lane"
    ranges = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    texts = [f"{lanes[0]}-{lanes[-1]}" if len(lanes) > 1 else str(lanes[0]) for lanes in ranges]
    return f"lane{'s' if len(numbers) > 1 else ''} {','.join(texts)}"


def lanes_of_text(text: str) -> npt.NDArray[np.bool_]:
    """Return the lanes that a user names: `0-3,7`, a mask as `0xff`, or `all`.

    >>> lanes_text(lanes_of_text("0-3,7")), lanes_text(lanes_of_text("0xff"))
    ('lanes 0-3,7', 'lanes 0-7')
    """
    wrong = LanewiseError(f"lanes are named as 0-3,7, as a mask 0xff, or as all; not as {text.strip()!r}")
    plain = text.strip().lower()
    if plain == "all":
        return np.ones(LANES, np.bool_)
    chosen = np.zeros(LANES, np.bool_)
    if plain.startswith("0x"):
        try:
            mask = int(plain, 16)
        except ValueError:
            raise wrong from None
        if not 0 < mask < 1 << LANES:
            raise wrong
        return lanes_of(mask)
    for part in plain.split(","):
        first, dash, last = (text.strip() for text in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise wrong
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < LANES:
            raise wrong
        chosen[low : high + 1] = True
    return chosen
