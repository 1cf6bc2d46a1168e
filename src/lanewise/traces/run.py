"""`lanewise.trace`: runs a kernel on the CPU machine and keeps every instruction of the chosen blocks."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.launch import require_shared_memory
from lanewise.machine.checker.fault_findings import beyond_limits
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
from lanewise.tracebacks import short_traceback
from lanewise.traces.arrays import argument_arrays
from lanewise.traces.places import coordinates, is_integer
from lanewise.traces.recording import Recording, Run
from lanewise.traces.trace import Trace

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
    if started is not None:
        started(launch)
    log = launch.trace(keep_interrupted=started is not None)
    launch.print_kept()
    run = Run(
        ready.program,
        name,
        shape,
        launch.shared_limit,
        argument_arrays(bound.entry, values, launch.addresses),
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
