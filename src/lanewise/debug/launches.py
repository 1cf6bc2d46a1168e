"""The launch that is debugged: run once for each block that is looked at, from the same arrays each time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.machine.checker.report import Finding
from lanewise.machine.tracer.traced_launch import TracedLaunch
from lanewise.traces.recording import Recording, Three
from lanewise.traces.step import Step
from lanewise.traces.trace import Trace, TraceOptions, record

#: Options of a launch that a recording takes; a progress bar and an executor have nothing to do there.
_KEPT = ("arch", "steps", "schedule", "cluster")


@dataclass(frozen=True, eq=False)
class Recorded:
    """The trace of one block of the launch."""

    trace: Trace
    recording: Recording

    @property
    def findings(self) -> list[tuple[Finding, int | None]]:
        """The findings of the whole launch, each with its step; None for one of a block not recorded."""
        located: dict[int, int] = {}
        for _, entries in self.recording.run.findings:
            for entry in (entries - 1, entries):
                number = self.recording.step_of(entry)
                if number is not None:
                    located |= {id(finding): number for finding in Step(self.recording, number).findings}
        block = self.trace.blocks[0]
        return [
            (finding, located.get(id(finding)) if finding.block in (None, block) else None)
            for finding in self.trace.findings
        ]


@dataclass(eq=False)
class DebuggedLaunch:
    """A kernel with its grid, block and arguments, which can be recorded again and again."""

    configured: Any
    arguments: Sequence[Any]
    options: dict[str, Any]
    limit: int | None = None
    #: Called with each run before it begins, so that somebody else may stop it.
    started: Callable[[TracedLaunch], None] = field(default=lambda launch: None)

    def __post_init__(self) -> None:
        self._before = [
            argument.copy() if isinstance(argument, np.ndarray) else None for argument in self.arguments
        ]
        self._ran = False

    @property
    def name(self) -> str:
        """The name of the kernel, as its source has it."""
        return str(self.configured.entry.demangled)

    @property
    def grid(self) -> Three:
        """The shape of the grid, in blocks."""
        shape: Three = self.configured.shape.grid
        return shape

    def record(self, block: Three = (0, 0, 0)) -> Recorded:
        """Run the launch and record one block; the arrays are put back first if it ran before."""
        if any(coordinate >= extent for coordinate, extent in zip(block, self.grid, strict=True)):
            raise LanewiseError(f"there is no block {block} in a grid of {self.grid}")
        if self._ran:
            for array, before in zip(self.arguments, self._before, strict=True):
                if before is not None and array.flags.writeable:
                    array[...] = before
        self._ran = True
        options = {name: value for name, value in self.options.items() if name in _KEPT}
        chosen = TraceOptions(blocks=[block], limit=self.limit, **options)
        trace = record(self.configured, tuple(self.arguments), {}, chosen, self.started)
        return Recorded(trace, trace.recording)
