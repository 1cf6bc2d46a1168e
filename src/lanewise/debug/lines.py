"""Lines of the source: which a step belongs to, through which calls it was inlined, where lines begin."""

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.machine.program.ops import Op
from lanewise.machine.tracer.log import Numbers
from lanewise.traces.recording import Recording

#: The file name of the PTX itself.
PTX = "ptx"


class Frame(NamedTuple):
    """A line of a source file, or of the PTX."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{'PTX line ' if self.file == PTX else f'{Path(self.file).name}:'}{self.line}"


class Lines:
    """The lines of a recorded kernel, and the order of the steps within each warp."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        ops = [point.op for point in recording.log.points]
        frames = [self._frames(op) for op in ops]
        #: Whether the kernel has a source that can be read; if not, its lines are those of the PTX.
        self.has_source = any(frames)
        if not self.has_source:
            frames = [(Frame(PTX, op.line),) if op is not None else () for op in ops]
        self._by_point = frames
        self._ptx_lines = np.array([op.line if op is not None else 0 for op in ops])
        entries = recording.log.entries[recording.steps]
        self.points: Numbers = entries["point"].astype(np.int64)
        self.warps: Numbers = entries["warp"].astype(np.int64)
        self.previous, self.following = self._neighbours()

    def _frames(self, op: Op | None) -> tuple[Frame, ...]:
        """Return the lines that an instruction belongs to, the innermost first.

        Lines of headers that cannot be read are left out.
        """
        if op is None or op.loc is None:
            return ()
        chain = self.recording.module.inlined_through(op.loc)
        return tuple(Frame(*frame) for frame in chain if self.recording.file_lines(frame[0]))

    def _neighbours(self) -> tuple[Numbers, Numbers]:
        """Return for each step the one before and the one after it in its warp; -1 if there is none."""
        previous, following = np.full(len(self.points), -1), np.full(len(self.points), -1)
        order = np.argsort(self.warps, kind="stable")
        same = self.warps[order][1:] == self.warps[order][:-1]
        previous[order[1:][same]] = order[:-1][same]
        following[order[:-1][same]] = order[1:][same]
        return previous, following

    def __len__(self) -> int:
        return len(self.points)

    def frames(self, step: int) -> tuple[Frame, ...]:
        """Return the lines of a step, the innermost first; none for code that has no line."""
        return self._by_point[int(self.points[step])]

    def ptx_line(self, step: int) -> int:
        """Return the line of the PTX that a step is."""
        return int(self._ptx_lines[int(self.points[step])])

    def jumps_back(self, step: int) -> bool:
        """Return whether a step is reached from further down in the PTX, as the head of a loop is."""
        before = int(self.previous[step])
        return before >= 0 and self.ptx_line(step) <= self.ptx_line(before)

    @cached_property
    def of_warp(self) -> dict[int, Numbers]:
        """The steps of each warp, in order."""
        return {int(warp): np.flatnonzero(self.warps == warp) for warp in np.unique(self.warps)}

    def next_of(self, warp: int, position: int) -> int | None:
        """Return the first step of a warp from a position on; None if it has ended."""
        mine = self.of_warp.get(warp, np.zeros(0, np.int64))
        index = int(np.searchsorted(mine, position))
        return int(mine[index]) if index < len(mine) else None

    # breakpoints -------------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """The lines of each file that have code."""
        numbers: dict[str, set[int]] = {}
        for frames in self._by_point:
            for frame in frames:
                numbers.setdefault(frame.file, set()).add(frame.line)
        numbers[PTX] = {int(line) for line in self._ptx_lines if line}
        return {name: sorted(lines) for name, lines in numbers.items()}

    @cached_property
    def main_file(self) -> str:
        """The file of the kernel itself."""
        outermost = [frames[-1].file for frames in self._by_point if frames]
        return max(set(outermost), key=outermost.count) if outermost else PTX

    def find(self, text: str) -> Frame:
        """Return the line that a user names, `28`, `gemm.cu:28` or `ptx:123`, or the next one with code."""
        name, colon, number = text.strip().rpartition(":")
        if not number.strip().isdecimal():
            raise LanewiseError(f"a line is named as 28, gemm.cu:28 or ptx:123, not as {text.strip()!r}")
        file = self._file(name.strip()) if colon else self.main_file
        line = int(number)
        code = self.files.get(file, [])
        if line in code:
            return Frame(file, line)
        later = [number for number in code if number > line]
        if not later:
            last = f"; the last line with code is {code[-1]}" if code else ""
            raise LanewiseError(f"{Frame(file, line)} and the lines after it have no code{last}")
        return Frame(file, later[0])

    def _file(self, name: str) -> str:
        """Return the file of the kernel that a user names by its path or the end of it."""
        for file in self.files:
            if file == name or Path(file).name == Path(name).name:
                return file
        if name.endswith(".ptx"):
            return PTX
        known = ", ".join(Path(file).name for file in self.files)
        raise LanewiseError(f"the kernel has no code from {name}; its files are {known}")

    def beginnings(self, frame: Frame) -> npt.NDArray[np.int64]:
        """Return the steps at which warps come to a line: from another line, or around a loop."""
        if frame.file == PTX:
            inside = self._ptx_lines == frame.line
            inner = inside
        else:
            inside = np.array([frame in frames for frames in self._by_point])
            inner = np.array([bool(frames) and frames[0] == frame for frames in self._by_point])
        here = inside[self.points]
        before = self.previous
        ptx = self._ptx_lines[self.points]
        enters = (before < 0) | ~inside[self.points[before]]
        loops = inner[self.points] & (ptx <= ptx[before])
        return np.flatnonzero(here & (enters | loops))

    def text(self, frame: Frame) -> str:
        """Return the text of a line; empty if it cannot be read."""
        lines = self.lines_of(frame.file)
        return lines[frame.line - 1] if 0 < frame.line <= len(lines) else ""

    def lines_of(self, file: str) -> list[str]:
        """Return all lines of a file, or of the PTX."""
        if file == PTX:
            return (self.recording.module.text or str(self.recording.module)).splitlines()
        return self.recording.file_lines(file)
