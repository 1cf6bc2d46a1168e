"""`lanewise.trace` runs a kernel on the CPU machine and keeps what chosen blocks executed: a `Trace`.

A trace has the steps of the launch, what was written where and when, and files to take along."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.hints import Suggests
from lanewise.isa import find_arch
from lanewise.launch import require_shared_memory
from lanewise.machine.checker.fault_findings import beyond_limits
from lanewise.machine.checker.report import Finding
from lanewise.machine.checker.schedules import run_schedule
from lanewise.machine.tracer.traced_launch import (
    LEAST_LIMIT,
    USUAL_LIMIT,
    TracedLaunch,
    available_bytes,
    traced,
)
from lanewise.ptx import Shape, shape_refusals
from lanewise.ptx.host_tensors import host_arguments
from lanewise.ptx.signatures import require_signature
from lanewise.tracebacks import short_methods, short_traceback
from lanewise.traces.arrays import ArgumentArray, argument_arrays, with_contents_before
from lanewise.traces.compare import Difference, compare_runs, compare_with_array
from lanewise.traces.copies import Copy, copies_of
from lanewise.traces.history import NOTHING
from lanewise.traces.origin import Origin, Origins
from lanewise.traces.places import MemoryPlace, PlaceNames, coordinates, is_integer
from lanewise.traces.recording import Recording, Run, Three
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


@short_methods
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

    def history(
        self, of: object, *, lane: int | None = None, warp: int | None = None, block: object = None
    ) -> list[Written]:
        """Return everything that was written to a place, in order. What `of` may be is said at `origin`."""
        place = self._places.find(of, lane, warp, block)
        recording = self._recording
        if isinstance(place, MemoryPlace):
            memory = recording.memory
            numbers = {
                number
                for address in range(place.address, place.address + place.size)
                for number in memory.before(address, len(recording.log), place.block, place.warp, place.lane)
            }
            entries = [int(memory.writes.entry[number]) for number in sorted(numbers)]
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
        _check_ending(
            path, (".html", ".htm"), "a trace is saved as .html; trace.to_perfetto writes .json for Perfetto"
        )
        from lanewise.traces.page import page

        return _written(path, page(self._recording))

    def to_perfetto(self, path: str | Path) -> Path:
        """Write a file that Perfetto (ui.perfetto.dev) and chrome://tracing show: a track for each warp.

        The name ends in .json or .trace, or has no ending.
        """
        _check_ending(
            path, (".json", ".trace", ""), "Perfetto's traces are saved as .json; trace.save writes .html"
        )
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


def _check_ending(path: str | Path, endings: tuple[str, ...], allowed: str) -> None:
    """Raise an error unless the name of a file ends as it should; what is there and is no file may not."""
    if Path(path).suffix not in endings and (Path(path).is_file() or not Path(path).exists()):
        raise LanewiseError(f"{path}: {allowed}")


def _written(path: str | Path, text: str) -> Path:
    """Write a file as a whole, or leave what was there: a disk may be full.

    What is there and is no file, such as /dev/stdout, is written to as it is.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise LanewiseError(f"{path} could not be written: there is no folder {target.parent}")
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


#: What a trace says of a launch that was stopped from outside.
INTERRUPTED = "the launch was interrupted: these are the steps up to there"


@short_traceback
def trace(
    configured: object,
    *arguments: object,
    blocks: object = ((0, 0),),
    warps: Iterable[int] | int | None = None,
    limit: int | None = None,
    arch: str | None = None,
    steps: int | None = None,
    schedule: object = None,
    cluster: object = None,
    unchecked: bool = False,
    **constants: object,
) -> Trace:
    """Run a kernel and keep every instruction that chosen blocks execute; return the trace.

    The whole launch runs, under the checker, and the arrays have its results; a fault ends it and is told by
    the trace. `blocks` are coordinates in the grid, or "all"; `warps` those of each block, all if not given.
    `limit` bounds the bytes that are kept: once it is reached the launch runs on, and the trace says that it
    is not complete. `arch`, `steps`, `schedule`, `cluster`, `unchecked` and `constants` are those of
    `lanewise.check`.

    >>> import numpy as np
    >>> import lanewise as lw
    >>> @lw.kernel
    ... def double(x: lw.Ptr[lw.f32]):
    ...     i = lw.thread_idx.x
    ...     y = x[i] * 2
    ...     x[i] = y
    >>> run = lw.trace(double[1, 32], np.arange(32, dtype=np.float32))
    >>> run.at(-1).registers["y"][:4].tolist(), str(run.writer("x[3]").step.op.opcode)
    ([0.0, 2.0, 4.0, 6.0], 'st')
    """
    options = TraceOptions(blocks, warps, limit, arch, steps, schedule, cluster, unchecked)
    return record(configured, arguments, constants, options)


@dataclass(frozen=True)
class TraceOptions:
    """How a launch is traced: the options of `trace`, which says what they are."""

    blocks: object = ((0, 0),)
    warps: Iterable[int] | int | None = None
    limit: int | None = None
    arch: str | None = None
    steps: int | None = None
    schedule: object = None
    cluster: object = None
    unchecked: bool = False


def record(
    configured: object,
    arguments: tuple[object, ...],
    constants: dict[str, object],
    options: TraceOptions,
    started: Callable[[TracedLaunch], None] | None = None,
) -> Trace:
    """Run a kernel as `trace` does, for a debugger that may interrupt the launch.

    `started` is called with the launch before it runs. If it is given, a launch that Ctrl-C or
    `TracedLaunch.stop` ends is no error: the trace has the steps up to there, and its `fault` says so.
    """
    if not hasattr(configured, "bind"):
        raise LanewiseError(
            "lw.trace takes a kernel with its grid and block, then its arguments: "
            f"lw.trace(kernel[grid, block], a, b, …), not {type(configured).__name__}"
        )
    order = run_schedule(options.schedule)
    bytes = _limit(options.limit)
    bound, values = configured.bind(*arguments, arch=options.arch, **constants)
    if options.cluster is not None:
        bound = bound.in_clusters(options.cluster)
    values = host_arguments(values)
    if not isinstance(options.unchecked, bool):
        raise LanewiseError(f"unchecked= is True or False, not {options.unchecked!r}")
    if not options.unchecked:
        require_signature(bound.entry, values)
    shape: Shape = bound.shape
    linear, chosen = _blocks(options.blocks, shape), _warps(options.warps, shape)
    module = bound.entry.module
    name = find_arch(options.arch if options.arch is not None else module.arch)
    ready = traced(module, bound.entry.function, name)
    if refused := shape_refusals(bound.entry.function, shape):
        raise LanewiseError(refused[0])
    require_shared_memory(ready.launch_info, shape, name, bound.entry.demangled)
    launch = TracedLaunch(ready, shape, values, options.steps, order, linear, chosen, bytes)
    arrays = argument_arrays(bound.entry, values, launch.addresses)
    before = [argument.array.copy(order="K") for argument in arrays]
    if started is not None:
        started(launch)
    log = launch.trace(keep_interrupted=started is not None)
    launch.print_kept()
    run = Run(
        ready.program,
        name,
        shape,
        launch.shared_limit,
        with_contents_before(arrays, before),
        log,
        tuple(linear),
        tuple(chosen),
        [
            *((finding, 0) for finding in beyond_limits(ready.program, shape, name)),
            *launch.located_verdict(),
        ],
        str(launch.fault) if launch.fault is not None else INTERRUPTED if launch.interrupted else "",
        bytes,
    )
    return Trace(Recording(run))


def _limit(asked: int | None) -> int:
    """Return the bytes that a log may have; an error if the machine has not as many."""
    free = available_bytes()
    if asked is None:
        return max(LEAST_LIMIT, min(USUAL_LIMIT, free // 2))
    try:
        limit = operator.index(asked)
    except TypeError:
        raise LanewiseError(f"limit= is a number of bytes, not {asked!r}") from None
    if limit < LEAST_LIMIT:
        raise LanewiseError(f"limit={limit} is too little for a trace: it is at least {LEAST_LIMIT} bytes")
    if limit > free:
        raise LanewiseError(
            f"limit={limit} is more than the {free} bytes of memory that are free: trace less"
        )
    return limit


def _blocks(asked: object, shape: Shape) -> list[int]:
    """Return the numbers in the grid of the blocks that are asked for."""
    if isinstance(asked, str) and asked == "all":
        return list(range(shape.blocks))
    if not isinstance(asked, Iterable) or isinstance(asked, str | bytes) or getattr(asked, "ndim", 1) == 0:
        raise LanewiseError(f'blocks= is a list of coordinates, as [(0, 0), (1, 0)], or "all", not {asked!r}')
    given = list(asked)
    if isinstance(asked, tuple) and given and all(is_integer(value) for value in given):
        given = [asked]
    blocks = []
    for value in given:
        known = coordinates(value, shape.grid)
        if known is None:
            raise LanewiseError(f"there is no block {value!r} in a grid of {shape.grid}")
        x, y, z = known
        blocks.append(x + shape.grid[0] * (y + shape.grid[1] * z))
    if not blocks:
        raise LanewiseError("blocks=[]: name at least one block")
    return sorted(set(blocks))


def _warps(asked: Iterable[int] | int | None, shape: Shape) -> list[int]:
    """Return the warps that are asked for; all of a block if none is named."""
    if asked is None:
        return list(range(shape.warps))
    one = is_integer(asked)
    if not one and (
        not isinstance(asked, Iterable) or isinstance(asked, str) or getattr(asked, "ndim", 1) == 0
    ):
        raise LanewiseError(f"warps= is a number of a warp, or a list of them, not {asked!r}")
    given: list[Any] = [asked] if one else list(asked)  # type: ignore[arg-type]  # it is iterable then
    for value in given:
        if not is_integer(value) or not 0 <= value < shape.warps:
            raise LanewiseError(f"a block has warps 0 to {shape.warps - 1}; there is no warp {value!r}")
    if not given:
        raise LanewiseError("warps=[]: name at least one warp")
    return sorted({operator.index(value) for value in given})
