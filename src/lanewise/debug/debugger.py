"""The debugger: a position in the recording of a launch, and the moves forwards and backwards from it.

It says nothing itself: the prompt and the debug adapter show where it is.
"""

import heapq
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from lanewise.debug.expressions import Expression
from lanewise.debug.launches import DebuggedLaunch, Recorded
from lanewise.debug.lines import Frame, Lines
from lanewise.debug.moments import Moment
from lanewise.debug.stops import Breakpoint, Stop, Watchpoint
from lanewise.errors import LanewiseError
from lanewise.traces.recording import Three
from lanewise.traces.step import Step

#: The reasons for which a move ends that found nothing to stop at.
END, START = "the end of the launch", "the start of the launch"


class Debugger:
    """A launch that is walked through: the position is before a step, of which one warp is looked at."""

    def __init__(
        self, launch: DebuggedLaunch, stops: dict[int, Breakpoint | Watchpoint] | None = None
    ) -> None:
        self.launch = launch
        self.stops: dict[int, Breakpoint | Watchpoint] = stops if stops is not None else {}
        #: Whether findings and faults stop `go_on`.
        self.catches = False
        self.lanes: npt.NDArray[np.bool_] | None = None
        #: How many calls up from the innermost line the user looks.
        self.up = 0
        self.show_block((0, 0, 0))

    # what is recorded --------------------------------------------------------------------------------------

    def show_block(self, block: Three) -> None:
        """Record a block of the launch and go to its start."""
        self.recorded: Recorded = self.launch.record(block)
        self.block = block
        self.lines = Lines(self.recorded.recording)
        self.warp = min(self.lines.of_warp, default=0)
        self.position = 0
        self.to_start()

    def to_start(self) -> Stop:
        """Go to the first step that has a line."""
        warp = min(self.lines.of_warp, default=0)
        first = self.lines.next_of(warp, 0)
        while first is not None and not self.lines.frames(first) and self.lines.following[first] >= 0:
            first = int(self.lines.following[first])
        return self._arrive(Stop(first or 0, warp, "the start of the launch", "entry"))

    @property
    def step(self) -> int | None:
        """The step that the warp does next; None if it has ended."""
        return self.lines.next_of(self.warp, self.position)

    @property
    def moment(self) -> Moment:
        """What is held at the position."""
        return Moment(self.recorded, self.position, self.warp)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The lines at which the warp is, the innermost first; the last ones of a warp that has ended."""
        step = self.step
        if step is None:
            mine = self.lines.of_warp.get(self.warp)
            step = int(mine[-1]) if mine is not None and len(mine) else None
        if step is None:
            return ()
        return self.lines.frames(step) or (Frame("ptx", self.lines.ptx_line(step)),)

    @property
    def frame(self) -> Frame | None:
        """The line that the user looks at, of those through which the code was inlined."""
        frames = self.frames
        return frames[min(self.up, len(frames) - 1)] if frames else None

    def focus(self, warp: int) -> None:
        """Look at another warp, at the same moment."""
        if warp not in self.lines.of_warp:
            known = sorted(self.lines.of_warp)
            there = f"warps 0 to {known[-1]}" if len(known) > 1 else "warp 0 only"
            raise LanewiseError(f"there is no warp {warp}: the block has {there}")
        self.warp, self.up = warp, 0

    def _arrive(self, stop: Stop) -> Stop:
        self.position, self.warp, self.up = stop.position, stop.warp, 0
        return stop

    def go_to(self, position: int) -> Stop:
        """Go to a step by its number."""
        if not 0 <= position <= len(self.lines):
            raise LanewiseError(f"steps are 0 to {len(self.lines)}, not {position}")
        warp = int(self.lines.warps[position]) if position < len(self.lines) else self.warp
        return self._arrive(Stop(position, warp, f"step {position}", "goto"))

    # breakpoints -------------------------------------------------------------------------------------------

    def _next_number(self) -> int:
        return max(self.stops, default=0) + 1

    def add_breakpoint(self, where: str, condition: str = "", temporary: bool = False) -> Breakpoint:
        """Add a breakpoint at a line; a condition is tried once, so that mistakes are told at once."""
        frame = self.lines.find(where) if where.strip() else self.frame
        if frame is None:
            raise LanewiseError("there is no line here: name one, as in break 28")
        expression = Expression(condition) if condition.strip() else None
        made = Breakpoint(self._next_number(), frame, expression, temporary)
        steps = made.positions(self.lines)
        if expression is not None and len(steps):
            expression.holds(Moment(self.recorded, int(steps[0]), int(self.lines.warps[steps[0]])))
        self.stops[made.number] = made
        return made

    def add_watchpoint(self, what: str) -> Watchpoint:
        """Watch a register of the lanes that are looked at, or an element of memory."""
        lanes = self.lanes if self.lanes is not None else np.ones(32, np.bool_)
        made = Watchpoint(self._next_number(), what.strip(), lanes, self.warp)
        made.changes(self.recorded)  # an error if there is no such value
        self.stops[made.number] = made
        return made

    def delete(self, number: int) -> None:
        """Delete a breakpoint or watchpoint."""
        if number not in self.stops:
            known = ", ".join(map(str, self.stops)) or "none"
            raise LanewiseError(f"there is no breakpoint {number}; there are {known}")
        del self.stops[number]

    # moves over everything ---------------------------------------------------------------------------------

    def run(self) -> Stop:
        """Go to the start and on to the first stop, which may be the very first step."""
        self.to_start()
        self.position = -1
        return self.go_on(here=-1)

    def go_on(self, backwards: bool = False, here: int | None = None) -> Stop:
        """Go to the next breakpoint, change of a watched value or finding, of any warp of the block."""
        if here is None:
            here = self.position if self.step is None else self.step
        streams = [self._candidates(stop, here, backwards) for stop in self.stops.values()]
        streams.append(self._findings(here, backwards))
        merged = heapq.merge(*streams, key=lambda pair: -pair[0] if backwards else pair[0])
        for _, stop in merged:
            stopped = stop()
            if stopped is not None:
                made = self.stops.get(stopped.number)
                if isinstance(made, Breakpoint) and made.temporary:
                    del self.stops[made.number]
                return self._arrive(stopped)
        if backwards:
            return self.to_start()
        fault = self.fault_step
        if fault is not None:
            return self._arrive(Stop(fault, int(self.lines.warps[fault]), self._end(), "fault"))
        reason = END if self.recorded.trace.is_complete and not self.recorded.trace.fault else self._end()
        return self._arrive(Stop(len(self.lines), self.warp, reason, "end"))

    @property
    def fault_step(self) -> int | None:
        """The step that a fault ended, which is the last one; None if there was no fault."""
        last = len(self.lines) - 1
        if last < 0 or not self.recorded.trace.fault:
            return None
        return None if Step(self.recorded.recording, last).is_complete else last

    def _candidates(
        self, marker: Breakpoint | Watchpoint, here: int, backwards: bool
    ) -> Iterator[tuple[int, Callable[[], Stop | None]]]:
        """Yield the positions at which one breakpoint may stop, from the nearest on."""
        if isinstance(marker, Breakpoint):
            steps = marker.positions(self.lines)
            steps = steps[steps < here][::-1] if backwards else steps[steps > here]
            for step in steps.tolist():
                warp = int(self.lines.warps[step])
                yield step, partial(marker.stop, self.recorded, step, warp)
            return
        changes = marker.changes(self.recorded)
        for change in reversed(changes) if backwards else changes:
            # Forwards a change is seen after the step that made it, backwards before it is made.
            position = change.step + (not backwards)
            if (position < self.position) if backwards else (position > self.position):
                reason = f"watchpoint {marker.number}, {marker.what}: {change.text}"
                stop = Stop(position, change.warp, reason, "watch", marker.number)
                yield position, partial(_same, stop)

    def _findings(self, here: int, backwards: bool) -> Iterator[tuple[int, Callable[[], Stop | None]]]:
        """Yield the steps with findings, if these stop the launch."""
        findings = [(step, finding) for finding, step in self.recorded.findings if step is not None]
        if not self.catches:
            return
        for step, finding in sorted(findings, key=lambda pair: -pair[0] if backwards else pair[0]):
            if (step < here) if backwards else (step > here):
                stop = Stop(step, int(self.lines.warps[step]), str(finding), "finding", kind=finding.title)
                yield step, partial(_same, stop)

    def to_first_finding(self) -> Stop | None:
        """Go to the first finding, in whatever block it came up; None if the checker found nothing."""
        findings = self.recorded.findings
        if not findings:
            return None
        located = next(((finding, step) for finding, step in findings if step is not None), None)
        if located is None:
            block = next((finding.block for finding, _ in findings if finding.block is not None), None)
            if block is not None and block != self.block:
                self.show_block(block)
                located = next(((finding, n) for finding, n in self.recorded.findings if n is not None), None)
        if located is None:
            first = findings[0][0]
            return Stop(self.position, self.warp, str(first), "finding", kind=first.title)
        finding, step = located
        warp = int(self.lines.warps[step])
        return self._arrive(Stop(step, warp, str(finding), "finding", kind=finding.title))

    # moves of one warp -------------------------------------------------------------------------------------

    def _walk(self, ends: Callable[[int], bool], reason: str = "step") -> Stop:
        """Go on in the warp until a condition holds before a step, or a breakpoint of the warp does."""
        step = self.step
        if step is None:
            return self._arrive(Stop(self.position, self.warp, self._end(), "end"))
        if step == self.fault_step:
            return self._arrive(Stop(step, self.warp, self._end(), "fault"))
        breakpoints = [stop for stop in self.stops.values() if isinstance(stop, Breakpoint)]
        marked = {int(step): stop for stop in breakpoints for step in stop.positions(self.lines)}
        step = int(self.lines.following[step])
        while step >= 0:
            if ends(step):
                return self._arrive(Stop(step, self.warp, reason, "step"))
            stop = marked[step].stop(self.recorded, step, self.warp) if step in marked else None
            if stop is not None:
                return self._arrive(stop)
            step = int(self.lines.following[step])
        last = int(self.lines.of_warp[self.warp][-1])
        return self._arrive(Stop(last + 1, self.warp, self._end(), "end"))

    def _end(self) -> str:
        """Return how the warp ended, in words."""
        if self.recorded.trace.fault:
            return f"the launch did not end: {self.recorded.trace.fault.splitlines()[0]}"
        if not self.recorded.trace.is_complete:
            return "the recording ends here, because its limit was reached (--limit)"
        return f"the end of warp {self.warp}"

    def _is_new_line(self, start: int, step: int) -> bool:
        frames = self.lines.frames(step)
        mine = self.lines.frames(start)
        if not frames:
            return False
        return not mine or frames[0] != mine[0] or (self.lines.jumps_back(step) and step != start)

    def _is_deeper(self, start: int, step: int) -> bool:
        """Return whether a step is in code that was inlined into the function of another step."""
        mine, theirs = self.lines.frames(start), self.lines.frames(step)
        return len(theirs) > len(mine) > 0 and theirs[len(theirs) - len(mine) + 1 :] == mine[1:]

    def step_in(self) -> Stop:
        """Go to the next line of the warp, into inlined functions too."""
        start = self.step
        return self._walk(lambda step: self._is_new_line(start or 0, step))

    def step_over(self) -> Stop:
        """Go to the next line of the warp in the same function or in one that called it."""
        start = self.step or 0
        return self._walk(lambda step: self._is_new_line(start, step) and not self._is_deeper(start, step))

    def step_out(self) -> Stop:
        """Go on until the warp has left the inlined function that it is in."""
        depth = len(self.frames)
        if depth < 2:
            raise LanewiseError("the warp is in the kernel itself, and not in an inlined function")
        return self._walk(lambda step: 0 < len(self.lines.frames(step)) < depth)

    def step_instruction(self, count: int = 1) -> Stop:
        """Go over some instructions of the warp; a negative number goes back."""
        if count < 0:
            stop = self._back(lambda step: True)
            return stop if count == -1 else self.step_instruction(count + 1)
        stop = self._walk(lambda step: True)
        return stop if count <= 1 or stop.why != "step" else self.step_instruction(count - 1)

    def until(self, where: str = "") -> Stop:
        """Go on in the warp to a line, or to any line after the present one: out of a loop."""
        start = self.step
        if where.strip():
            frame = self.lines.find(where)
            targets = {int(beginning) for beginning in self.lines.beginnings(frame)}
            return self._walk(lambda step: step in targets)
        mine = self.frame
        if start is None or mine is None:
            return self.step_over()
        return self._walk(
            lambda step: any(
                frame.file == mine.file and frame.line > mine.line for frame in self.lines.frames(step)
            )
        )

    def _back(self, ends: Callable[[int], bool]) -> Stop:
        """Go back in the warp until a condition holds before a step."""
        step = self.step
        mine = self.lines.of_warp[self.warp]
        before = int(self.lines.previous[step]) if step is not None else int(mine[-1])
        while before >= 0:
            if ends(before):
                return self._arrive(Stop(before, self.warp, "step", "step"))
            before = int(self.lines.previous[before])
        return self._arrive(Stop(int(mine[0]), self.warp, START, "entry"))

    def step_back(self, over: bool = False) -> Stop:
        """Go back to where the line before began; `over` does not go back into inlined functions."""
        start = self.step

        def ends(step: int) -> bool:
            if not self.lines.frames(step) or (over and start is not None and self._is_deeper(start, step)):
                return False
            before = int(self.lines.previous[step])
            return before < 0 or self._is_new_line(before, step) or not self.lines.frames(before)

        return self._back(ends)


def _same(stop: Stop) -> Stop:
    """Return a stop that is known already, where a breakpoint works its own out when it is asked."""
    return stop
