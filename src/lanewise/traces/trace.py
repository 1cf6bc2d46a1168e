"""The trace of a launch: its steps, what was written where and when, and files to take along."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.hints import Suggests
from lanewise.machine.checker.report import Finding
from lanewise.tracebacks import short_traceback
from lanewise.traces.arrays import ArgumentArray
from lanewise.traces.compare import Difference, compare_runs, compare_with_array
from lanewise.traces.copies import Copy, copies_of
from lanewise.traces.history import NOTHING
from lanewise.traces.origin import Origin, Origins
from lanewise.traces.places import MemoryPlace, PlaceNames
from lanewise.traces.recording import Recording, Three
from lanewise.traces.step import Step


class Steps(Sequence[Step]):
    """The steps of a trace in the order in which they ran; each is made when it is asked for."""

    def __init__(self, recording: Recording, numbers: range) -> None:
        self._recording, self._numbers = recording, numbers

    @overload
    def __getitem__(self, number: int) -> Step: ...
    @overload
    def __getitem__(self, number: slice) -> Steps: ...
    def __getitem__(self, number: int | slice) -> Step | Steps:
        if isinstance(number, slice):
            return Steps(self._recording, self._numbers[number])
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no step {number}: there are {len(self)}")
        return Step(self._recording, self._numbers[number])

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Step]:
        return (Step(self._recording, number) for number in self._numbers)

    def __repr__(self) -> str:
        return f"<{len(self)} steps>"


class Written(NamedTuple):
    """A value that was written to a place, and the step that wrote it (None: a warp that is not traced)."""

    step: Step | None
    value: Any


class Trace(Suggests):
    """Every instruction that the chosen blocks and warps of a launch executed.

    `lw.trace` makes it. `trace.steps` are the steps in order; other methods ask backwards: who wrote what.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._places, self._origins = PlaceNames(recording), Origins(recording)

    def __reduce__(self) -> Any:
        """Copy and pickle the recording alone."""
        return Trace, (self._recording,)

    @property
    def recording(self) -> Recording:
        """The log with all that is needed to read it, for other tools that stand on traces."""
        return self._recording

    @property
    def origins(self) -> Origins:
        """What finds origins in the recording, for other tools that stand on traces."""
        return self._origins

    # what was traced ---------------------------------------------------------------------------------------

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self._recording.program.entry.name

    @property
    def arch(self) -> str:
        """The GPU whose matrix instructions it computed like."""
        return self._recording.run.arch

    @property
    def blocks(self) -> list[Three]:
        """The blocks that were traced."""
        return [self._recording.block_at(block) for block in self._recording.run.blocks]

    @property
    def warps(self) -> tuple[int, ...]:
        """The warps of each block that were traced."""
        return self._recording.run.warps

    @property
    def arrays(self) -> list[ArgumentArray]:
        """The arrays among the arguments, with the names by which elements are asked for."""
        return list(self._recording.arguments)

    @property
    def is_complete(self) -> bool:
        """Whether everything was kept; False if the limit was reached, and the last steps are missing."""
        return not self._recording.log.is_full

    @property
    def nbytes(self) -> int:
        """The bytes that the trace takes in memory."""
        return self._recording.log.bytes

    @property
    def fault(self) -> str:
        """The message of the fault that ended the launch; empty if it ran to its end."""
        return self._recording.run.fault

    @property
    def findings(self) -> list[Finding]:
        """What the checker found in the whole launch, as `lw.check` finds it, in order."""
        return [finding for finding, _ in self._recording.run.findings]

    @cached_property
    def copies(self) -> list[Copy]:
        """The asynchronous copies, from issue to completion, as numbers of steps."""
        return copies_of(self._recording)

    # forwards ----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> Steps:
        """All steps, in the order in which they ran."""
        return Steps(self._recording, range(len(self._recording.steps)))

    def at(self, step: int) -> Step:
        """Return a step by its number; negative ones count from the end."""
        count = len(self._recording.steps)
        try:
            number = operator.index(step)
        except TypeError:
            raise LanewiseError(
                f"a step is asked for by its number, not by {step!r}; trace.steps[3:7] are several, and "
                'trace.origin("C[3, 5]") says who wrote an element'
            ) from None
        if not -count <= number < count:
            there = f"steps 0 to {count - 1}" if count else "no step"
            raise LanewiseError(f"there is no step {number}: the trace has {there}{self._cut}")
        return Step(self._recording, number % count)

    @property
    def _cut(self) -> str:
        """What to say where steps are missing because the limit was reached."""
        if self.is_complete:
            return ""
        limit = self._recording.run.limit
        return f", and its limit of {limit} bytes was reached there: later steps were not kept (limit=)"

    def first(self, holds: Callable[[Step], object], start: int = 0) -> Step | None:
        """Return the first step, from a number on, for which a condition holds; None if it never does."""
        if not callable(holds):
            raise LanewiseError(
                f'a condition is a function, as in lambda step: step.op.opcode == "mma"; not {holds!r}'
            )
        try:
            first = operator.index(start)
        except TypeError:
            raise LanewiseError(f"start= is the number of a step, not {start!r}") from None
        for step in self.steps[first:]:
            if holds(step):
                return step
        return None

    # backwards ---------------------------------------------------------------------------------------------

    def _entry(self, before: int | Step | None) -> int:
        """Return the entry before which something is asked for; the end of the log if none is given."""
        if before is None:
            return len(self._recording.log)
        step = before if isinstance(before, Step) else self.at(before)
        return step.entry

    @short_traceback
    def origin(
        self,
        of: object,
        *,
        lane: int | None = None,
        warp: int | None = None,
        block: object = None,
        before: int | Step | None = None,
    ) -> Origin:
        """Return the tree of instructions and inputs that made a value.

        `of` is an element of an argument or of an array in shared memory ("C[3, 5]", "As[1, 2]", or the
        array and an index), or a register or variable of a lane ("%r7", "acc[2]"). It is the value at the end
        of the trace, or before a step.
        """
        return self._origins.find(self._places.find(of, lane, warp, block), self._entry(before))

    @short_traceback
    def writer(
        self,
        of: object,
        *,
        lane: int | None = None,
        warp: int | None = None,
        block: object = None,
        before: int | Step | None = None,
    ) -> Origin | None:
        """Return who wrote a value last, at which step and from what; None if no traced block wrote it.

        What `of` may be is said at `origin`.
        """
        origin = self.origin(of, lane=lane, warp=warp, block=block, before=before)
        return None if origin.entry == NOTHING and origin.kind != "parts" else origin

    @short_traceback
    def history(
        self, of: object, *, lane: int | None = None, warp: int | None = None, block: object = None
    ) -> list[Written]:
        """Return everything that was written to a place, in order. What `of` may be is said at `origin`."""
        place = self._places.find(of, lane, warp, block)
        recording = self._recording
        if isinstance(place, MemoryPlace):
            memory = recording.memory
            numbers = list(
                memory.before(place.address, len(recording.log), place.block, place.warp, place.lane)
            )
            entries = [int(memory.writes.entry[number]) for number in reversed(numbers)]
        else:
            writes, _ = recording.registers.writes(place.block, place.warp, place.registers)
            active = recording.log.entries["active"][writes]
            entries = [int(write) for write in writes[(active >> np.uint32(place.lane)) & 1 != 0]]
        written = []
        for entry in dict.fromkeys(entries):
            node = self._origins.find(place, entry + 1)
            written.append(Written(node.step, node.value))
        return written

    def compare(self, other: object, of: str | None = None) -> Difference | None:
        """Return the first step at which two runs differ; None if they do not.

        `other` is another trace: of another arch or schedule, or of a kernel that was changed. Or it is an
        array of what is expected, and `of` names the argument that should hold it.
        """
        if isinstance(other, Trace):
            return compare_runs(self._recording, other._recording)
        if of is None:
            raise LanewiseError(
                "compare takes another trace, or an array of what is expected and the argument's name: "
                'trace.compare(expected, of="C")'
            )
        return compare_with_array(self._recording, other, of)

    # taken along -------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the trace as one HTML file, which opens in any browser and needs nothing else.

        The name ends in .html or .htm; what is there and is no file, such as /dev/stdout, has any name.
        """
        if Path(path).suffix not in (".html", ".htm") and (Path(path).is_file() or not Path(path).exists()):
            raise LanewiseError(
                f"{path}: a trace is saved as .html; trace.to_perfetto writes .json for Perfetto"
            )
        from lanewise.traces.page import page

        return _written(path, page(self._recording))

    def to_perfetto(self, path: str | Path) -> Path:
        """Write a file that Perfetto (ui.perfetto.dev) and chrome://tracing show: a track for each warp."""
        from lanewise.traces.perfetto import perfetto

        return _written(path, perfetto(self._recording, self.copies))

    def _repr_html_(self) -> str:
        from lanewise.traces.page import frame

        return frame(self._recording)

    def __len__(self) -> int:
        return len(self._recording.steps)

    def __getitem__(self, number: int) -> Step:
        return self.at(number)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __str__(self) -> str:
        blocks, warps = len(self.blocks), len(self.warps)
        lines = [
            f"{len(self)} steps of {self.kernel} as {self.arch} computes: {blocks} "
            f"block{'s' if blocks != 1 else ''}, {warps} warp{'s' if warps != 1 else ''} each, "
            f"{self.nbytes / 1e6:.1f} MB"
        ]
        if not self.is_complete:
            lines.append(
                f"the limit of {self._recording.run.limit} bytes was reached: these are the first steps, "
                "later ones were not kept; the launch itself ran on"
            )
        if self.fault:
            lines.append(f"the launch ended by a fault: {self.fault.splitlines()[0]}")
        if self.findings:
            lines.append(f"the checker found: {', '.join(finding.title for finding in self.findings)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{self}>"


def _written(path: str | Path, text: str) -> Path:
    """Write a file as a whole, or leave what was there: a disk may be full.

    What is there and is no file, such as /dev/stdout, is written to as it is.
    """
    target = Path(path)
    part = target.with_name(f"{target.name}.part") if target.name else target
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return target
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        with contextlib.suppress(OSError, ValueError):
            if part != target:
                part.unlink(missing_ok=True)
        raise LanewiseError(f"{str(target)!r} could not be written: {error}") from error
    return target
