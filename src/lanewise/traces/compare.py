"""Comparison of two traces: the first step at which two runs part, and in what."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.machine.abi import LANES
from lanewise.machine.tracer.log import NOT_KEPT, Numbers
from lanewise.numpy_types import AnyArray
from lanewise.traces.arrays import ArgumentArray, bytes_of
from lanewise.traces.history import NOTHING, lanes_of
from lanewise.traces.recording import Recording
from lanewise.traces.step import Step

#: Entries whose bytes are compared at a time.
_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class Difference:
    """Where two runs part: a step of each, what differs, in which lanes, and the values there."""

    step: Step | None
    other: Step | None
    what: str
    lanes: tuple[int, ...] = ()
    ours: object = None
    theirs: object = None

    def __str__(self) -> str:
        lines = [self.what]
        for name, step in (("here", self.step), ("there", self.other)):
            if step is not None:
                where = f" ({step.source})" if step.source else ""
                lines.append(
                    f"    {name}: step {step.number}, block {step.block}, warp {step.warp}, "
                    f"line {step.line}: {step.text}{where}"
                )
        if self.lanes:
            shown = ", ".join(map(str, self.lanes[:8])) + (", …" if len(self.lanes) > 8 else "")
            lines.append(f"    lanes {shown}: {_some(self.ours)} here, {_some(self.theirs)} there")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{self}>"


def _some(values: object) -> str:
    """Return the first few of some values as text."""
    flat = np.asarray(values).ravel()
    return ", ".join(str(value) for value in flat[:4]) + (", …" if flat.size > 4 else "")


def compare_runs(mine: Recording, other: Recording) -> Difference | None:
    """Return the first step at which two runs part; None if they are alike wherever both were traced.

    Warps are compared one by one, because the order between warps may differ.
    """
    differences: list[tuple[int, Difference]] = []
    for linear in (block for block in mine.run.blocks if block in other.run.blocks):
        for warp in (warp for warp in mine.run.warps if warp in other.run.warps):
            different = _compare_warps(mine, other, linear, warp)
            if different is not None:
                differences.append(different)
    return min(differences, key=lambda pair: pair[0])[1] if differences else None


def _entries(recording: Recording, linear: int, warp: int) -> Numbers:
    """Return the entries of a warp."""
    entries = recording.log.entries
    return np.flatnonzero((entries["block"] == linear) & (entries["warp"] == warp))


def _compare_warps(
    mine: Recording, other: Recording, linear: int, warp: int
) -> tuple[int, Difference] | None:
    """Return the first entry of a warp that differs, and the difference."""
    ours, theirs = _entries(mine, linear, warp), _entries(other, linear, warp)
    texts = [_texts(recording) for recording in (mine, other)]
    common = min(len(ours), len(theirs))
    for number in np.flatnonzero(_may_differ(mine, other, ours[:common], theirs[:common])).tolist():
        first, second = int(ours[number]), int(theirs[number])
        pair = _Pair(mine, other, first, second)
        a, b = (texts[0][pair.points[0]], texts[1][pair.points[1]])
        if a != b:
            return first, pair.difference("other instructions")
        different = pair.compare()
        if different is not None:
            return first, different
    if len(ours) == len(theirs) or mine.log.is_full or other.log.is_full:
        return None
    shorter, longer, entry = (
        (mine, other, theirs[len(ours)]) if len(ours) < len(theirs) else (other, mine, ours[len(theirs)])
    )
    where = longer.step_of(int(entry))
    step = Step(longer, where) if where is not None else None
    what = f"one run of warp {warp} ends after {min(len(ours), len(theirs))} instructions, the other goes on"
    mine_step, other_step = (None, step) if shorter is mine else (step, None)
    return int(ours[-1]) if len(ours) else 0, Difference(mine_step, other_step, what)


def _may_differ(mine: Recording, other: Recording, ours: Numbers, theirs: Numbers) -> npt.NDArray[np.bool_]:
    """Return which pairs of entries are not the same byte for byte: only these need a closer look."""
    a, b = mine.log.entries[ours], other.log.entries[theirs]
    differs = (a["active"] != b["active"]) | (a["state"] != b["state"])
    sizes = [np.array([point.size for point in recording.log.points]) for recording in (mine, other)]
    size = sizes[0][a["point"]]
    differs |= size != sizes[1][b["point"]]
    heads = {head: number for number, head in enumerate({*_texts(mine), *_texts(other)})}
    kinds = [np.array([heads[head] for head in _texts(recording)]) for recording in (mine, other)]
    differs |= kinds[0][a["point"]] != kinds[1][b["point"]]
    for bytes_ in np.unique(size[~differs]):
        span = np.arange(int(bytes_))
        for chosen in np.array_split(np.flatnonzero(~differs & (size == bytes_)), 1 + len(size) // _AT_ONCE):
            left = mine.log.memory[a["payload"][chosen][:, None] + span]
            right = other.log.memory[b["payload"][chosen][:, None] + span]
            differs[chosen] |= (left != right).any(axis=1)
    return np.asarray(differs)


def _texts(recording: Recording) -> list[str]:
    """Return the opcode of each point: registers may be named otherwise in another kernel."""
    return [point.op.head if point.op is not None else "" for point in recording.log.points]


class _Pair:
    """Two entries that should be alike."""

    def __init__(self, mine: Recording, other: Recording, first: int, second: int) -> None:
        self.recordings, self.entries = (mine, other), (first, second)
        self.headers = mine.log.entries[first], other.log.entries[second]
        self.points = int(self.headers[0]["point"]), int(self.headers[1]["point"])

    def steps(self) -> tuple[Step | None, Step | None]:
        """Return both as steps."""
        mine, other = (
            Step(recording, number) if (number := recording.step_of(entry)) is not None else None
            for recording, entry in zip(self.recordings, self.entries, strict=True)
        )
        return mine, other

    def difference(self, what: str, lanes: Any = (), ours: Any = None, theirs: Any = None) -> Difference:
        """Return the difference of both."""
        return Difference(*self.steps(), what, tuple(int(lane) for lane in lanes), ours, theirs)

    def compare(self) -> Difference | None:
        """Return in what they differ: lanes, registers or memory."""
        a, b = (int(header["active"]) for header in self.headers)
        if a != b:
            lanes = np.flatnonzero(lanes_of(a ^ b))
            return self.difference("other lanes are active", lanes, lanes_of(a)[lanes], lanes_of(b)[lanes])
        logs = [recording.log for recording in self.recordings]
        points = [log.points[number] for log, number in zip(logs, self.points, strict=True)]
        active = lanes_of(a)
        for mine, other in zip(points[0].registers, points[1].registers, strict=False):
            ours, theirs = (
                log.register(entry, register)
                for log, entry, register in zip(logs, self.entries, (mine, other), strict=True)
            )
            unlike = self._unlike(ours, theirs, active)
            if unlike.any():
                lanes = np.flatnonzero(unlike)
                pair = [step.written for step in self.steps() if step is not None]
                values = [
                    value[register.register.name][lanes]
                    for value, register in zip(pair, (mine, other), strict=False)
                ]
                values += [ours[lanes], theirs[lanes]][len(values) :]
                return self.difference(f"{mine.register.name} gets another value", lanes, *values)
        for first, second in zip(points[0].accesses, points[1].accesses, strict=False):
            if first.size != second.size:
                continue
            ours, theirs = (
                log.bytes_of(entry, register)
                for log, entry, register in zip(logs, self.entries, (first, second), strict=True)
            )
            rows = logs[0].addresses(self.entries[0], first) != 0
            unlike = rows & (ours != theirs).any(axis=1)
            if unlike.any():
                lanes = np.flatnonzero(unlike)
                return self.difference("memory holds another value", lanes, ours[lanes], theirs[lanes])
        return None

    def _unlike(
        self, ours: AnyArray, theirs: AnyArray, active: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return the active lanes that differ; addresses of the same element of an argument do not.

        Nor do addresses of shared memory that differ by as much as shared memory begins later.
        """
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return active
        unlike = ours != theirs
        unlike = (unlike.any(axis=1) if unlike.ndim > 1 else unlike) & active
        mine, other = self.recordings
        moved = mine.program.shared_base - other.program.shared_base
        if moved and ours.ndim == 1:  # shared memory begins at another address on another arch
            unlike &= ours - theirs != ours.dtype.type(moved % (1 << 8 * ours.dtype.itemsize))
        if ours.dtype == np.uint64 and ours.ndim == 1:
            for lane in np.flatnonzero(unlike):
                places = [
                    _argument_offset(recording.arguments, int(values[lane]))
                    for recording, values in zip(self.recordings, (ours, theirs), strict=True)
                ]
                if places[0] is not None and places[0] == places[1]:
                    unlike[lane] = False
        return np.asarray(unlike)


def _argument_offset(arguments: list[ArgumentArray], address: int) -> tuple[int, int] | None:
    """Return which argument an address lies in, and how many bytes after its begin; None if in none."""
    for number, argument in enumerate(arguments):
        if 0 <= address - argument.address <= argument.array.nbytes:
            return number, address - argument.address
    return None


def compare_with_array(mine: Recording, expected: object, name: str) -> Difference | None:
    """Return the first step that wrote an element of an argument that is not the expected one at the end.

    If no step has written any of the wrong elements, the difference is the first of these, without a step.
    """
    array = next((argument for argument in mine.arguments if argument.name == name), None)
    if array is None:
        names = ", ".join(argument.name for argument in mine.arguments) or "none"
        raise LanewiseError(f"the launch has no array {name}: its arrays are {names}")
    wanted = np.asarray(expected)
    if wanted.shape != array.array.shape:
        raise LanewiseError(f"{name} has the shape {array.array.shape}, what is expected has {wanted.shape}")
    wanted = wanted.astype(array.array.dtype, copy=False).ravel(order=array.order)
    held, last = _held_and_written(mine, array)
    wrong = held != wanted
    wrong &= ~((held != held) & (wanted != wanted))  # NaN is as good as any other NaN
    elements = np.flatnonzero(wrong)
    if not len(elements):
        return None
    written = elements[last[elements] != NOTHING]
    unwritten = len(elements) - len(written)
    element = int(min(written, key=lambda number: (last[number], number)) if len(written) else elements[0])
    index = [int(i) for i in np.unravel_index(element, array.array.shape, order=array.order)]
    what = f"{name}{index} is not what was expected ({len(elements)} elements are not"
    ours, theirs = held[element], wanted[element]
    if not len(written):
        who = "no traced step" if len(mine.run.blocks) < mine.run.shape.blocks else "no step"
        what = f"{what}): {who} has written it; it holds {ours}, and {theirs} was expected"
        return Difference(None, None, what, (), [ours], [theirs])
    what += f", {unwritten} of them no step has written)" if unwritten else ")"
    write = int(last[element])
    number = mine.step_of(int(mine.memory.writes.entry[write]))
    step = Step(mine, number) if number is not None else None
    lane = int(mine.memory.writes.row[write]) % LANES
    return Difference(step, None, what, (lane,), [ours], [theirs])


def _held_and_written(mine: Recording, array: ArgumentArray) -> tuple[AnyArray, Numbers]:
    """Return the elements of an argument at the end, and for each the last write that was logged.

    Both are in the order of memory. Elements that no write was logged of hold what the array holds.
    """
    writes, log = mine.memory.writes, mine.log
    memory = bytes_of(array.array).copy()
    last = np.full(len(memory), NOTHING, np.int64)
    offsets = writes.address.astype(np.int64) - array.address
    for write in np.flatnonzero((offsets >= 0) & (offsets < len(memory))).tolist():
        first, start = int(offsets[write]), int(writes.offset[write])
        end = min(first + int(writes.size[write]), len(memory))
        last[first:end] = write
        if start != NOT_KEPT:
            memory[first:end] = log.memory[start : start + end - first]
    return memory.view(array.array.dtype), last.reshape(-1, array.array.itemsize).max(axis=1)
