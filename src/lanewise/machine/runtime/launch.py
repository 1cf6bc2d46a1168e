"""A launch: memory for blocks under way, threads that run them, and what is said when one stops."""

from __future__ import annotations

import operator
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit import threads
from lanewise.jit.host_memory import address
from lanewise.jit.host_memory import zeroed_bytes as room
from lanewise.machine import abi
from lanewise.machine.compile.compiled import Compiled
from lanewise.machine.errors import Deadlock, KernelFault
from lanewise.machine.runtime import device_memory
from lanewise.machine.runtime.arguments import Arguments
from lanewise.machine.runtime.device_memory import Allocation, Bytes
from lanewise.ptx import Shape

if TYPE_CHECKING:
    import numpy.typing as npt

#: Blocks of code that a path of a warp runs before another path or warp has a turn.
SLICE = 20_000
#: Turns of all warps that a block of threads has before another block may.
TURNS = 4
#: Blocks that may be under way at a time, as on the largest GPU: 32 on each of 148 multiprocessors; and their
#: memory, which is the host's.
RESIDENT, RESIDENT_BYTES = 32 * 148, 1 << 30
#: Seconds between two looks at how far a launch is.
LOOK = 0.2

#: Told how far a launch is: blocks done, blocks in all.
Progress = Callable[[int, int], None]


def _budget(steps: int | None) -> int:
    """How many blocks of code a block of threads may run."""
    most = 1 << 62
    if steps is None:
        return most
    try:
        given = operator.index(steps)
    except TypeError:
        raise LanewiseError(f"steps= is a number of blocks of code, not {steps!r}") from None
    if given < 1:
        raise LanewiseError(f"steps={given} allows nothing to run; it is at least 1")
    return min(given, most)


class BlockState:
    """The memory of one block of threads under way."""

    def __init__(self, launch: Launch) -> None:
        compiled, shape = launch.compiled, launch.shape
        program = compiled.footprint
        self.launch = launch
        self.record = room(abi.BLOCK_BYTES)
        self.frames = room(program.frame_bytes * shape.warps)
        self.shared = room(max(launch.shared_bytes, 1))
        self.local = room(max(program.local_bytes * shape.warps * abi.LANES, 1))
        self.shadow = room(program.frame_bytes)
        self.caches = room(abi.CACHE_BYTES * max(program.sites, 1))
        self.scratch: Any = launch.scratch()
        for offset, value in (
            (abi.LAUNCH, address(launch.record)),
            (abi.SHARED, address(self.shared)),
            (abi.FRAMES, address(self.frames)),
            (abi.LOCAL, address(self.local)),
            (abi.CACHES, address(self.caches)),
            (abi.SHADOW, address(self.shadow)),
            (abi.SCRATCH, address(self.scratch.table) if self.scratch is not None else 0),
        ):
            self[offset] = value
        launch.prepare(self)

    @property
    def bytes(self) -> int:
        """How much it is."""
        return sum(each.size for each in (self.record, self.frames, self.shared, self.local, self.caches))

    def __setitem__(self, offset: int, value: int) -> None:
        self.record[offset : offset + 8].view(np.int64)[0] = value

    def __getitem__(self, offset: int) -> int:
        return int(self.record[offset : offset + 8].view(np.int64)[0])

    def frame_of(self, warp: int) -> Bytes:
        """The frame of a warp."""
        size = self.launch.compiled.footprint.frame_bytes
        return self.frames[warp * size : (warp + 1) * size]

    def lanes(self, warp: int, offset: int, bits: int) -> npt.NDArray[Any]:
        """An array of a warp's frame, one element a lane."""
        return self.frame_of(warp)[offset : offset + bits // 8 * abi.LANES].view(f"uint{bits}")


class Launch:
    """One run of a kernel, or of a range of its blocks."""

    def __init__(
        self,
        compiled: Compiled,
        shape: Shape,
        values: tuple[Any, ...],
        steps: int | None = None,
        blocks: range | None = None,
    ) -> None:
        self.compiled, self.shape = compiled, shape
        self.blocks = blocks if blocks is not None else range(shape.blocks)
        program, module = compiled.footprint, compiled.module
        arguments = Arguments(compiled.function, program.parameters, program.parameter_bytes, values)
        placed, where = arguments.arrays.place()
        self.allocations: list[Allocation] = [*placed, *device_memory.variables(module, program)]
        if program.uses_heap:
            self.allocations.append(device_memory.heap(module).allocation)
        if program.uses_grid:
            # As `grid.sync()` finds it: a size, and the count of blocks that have come.
            self.grid = room(16)
            barrier = Allocation("the grid's barrier", abi.GRID_BASE, 16, address(self.grid), True)
            self.allocations.append(barrier)
        self.parameters = arguments.bytes(where)
        self.keep = values
        self.table = device_memory.table(self.allocations)
        self.shared_bytes = (
            program.dynamic_offset + shape.shared_bytes if shape.shared_bytes else program.shared_bytes
        )
        self.template = self._template()
        self.record = room(abi.LAUNCH_BYTES)
        slots = self.record.view(np.int64)
        for offset, value in {
            abi.ALLOCATIONS: address(self.table),
            abi.ALLOCATION_COUNT: len(self.allocations),
            abi.PARAMETERS: address(self.parameters),
            abi.PARAMETER_BYTES: program.parameter_bytes,
            abi.WARPS: shape.warps,
            abi.SHARED_BYTES: self.shared_bytes,
            abi.LOCAL_BYTES: program.local_bytes,
            abi.FRAME_BYTES: program.frame_bytes,
            abi.SLICE: SLICE,
            abi.NEXT_BLOCK: self.blocks.start,
            abi.BLOCKS: self.blocks.stop,
            abi.TEMPLATE: address(self.template),
            abi.STEP_LIMIT: _budget(steps),
            abi.THREADS: shape.threads,
            abi.YIELDS: TURNS,
            abi.CODE: compiled.native.data(abi.CODE_TABLE),
        }.items():
            slots[offset // 8] = value
        slots[abi.NTID // 8 : abi.NTID // 8 + 3] = shape.block
        slots[abi.NCTAID // 8 : abi.NCTAID // 8 + 3] = shape.grid
        self.stopped = threading.Event()
        self.under_way: list[int] = []
        self.printing = threading.Lock()

    def prepare(self, state: BlockState) -> None:
        """A block of threads has its memory: a launch that is checked adds what it watches it with."""

    def allocated(self, first: int, size: int) -> None:
        """A thread was given memory of the heap."""

    def scratch(self) -> Any:
        """Memory for matrix instructions, if the kernel has any."""
        from lanewise.machine.tensor_core.mma_library import scratch_for

        return scratch_for(self.compiled)

    def _template(self) -> Bytes:
        """The frames of a block at its start."""
        shape, size = self.shape, self.compiled.footprint.frame_bytes
        template = room(size * shape.warps)
        count = shape.warps * abi.LANES
        numbers = np.arange(count)
        x, y, _ = shape.block
        tids = numbers % x, numbers // x % y, numbers // (x * y)
        pcs = np.where(numbers < shape.threads, self.compiled.footprint.entry, abi.EXITED)
        for warp in range(shape.warps):
            own = template[warp * size : (warp + 1) * size]
            some = slice(warp * abi.LANES, (warp + 1) * abi.LANES)
            own[abi.INDEX : abi.INDEX + 8].view(np.int64)[0] = warp
            own[abi.PCS : abi.PCS + 128].view(np.uint32)[:] = pcs[some]
            for axis, tid in enumerate(tids):
                start = abi.TID + 128 * axis
                own[start : start + 128].view(np.uint32)[:] = tid[some]
        return template

    # running ------------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> None:
        """Run all blocks; returns when they are done, raises if one stops.

        `progress` is called from the waiting thread a few times a second, and once at the end.
        """
        count = self.workers()
        self.under_way = [0] * count
        errors: list[BaseException] = []
        workers = [
            threading.Thread(target=self._work, args=(number, errors), name=f"lanewise-machine-{number}")
            for number in range(count)
        ]
        try:
            for worker in workers:
                worker.start()
            look = time.monotonic() + LOOK
            for worker in workers:
                while worker.is_alive():
                    worker.join(max(0.0, look - time.monotonic()))
                    if time.monotonic() >= look:
                        look += LOOK
                        if progress is not None:
                            progress(*self.progress())
            if progress is not None:
                progress(*self.progress())
        except BaseException:
            self.stop()
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
            raise
        failed = next((each for each in errors if not isinstance(each, _Interrupted)), None)
        errors.clear()  # an error leads to this frame, which must not lead back to it
        if failed is not None:
            try:
                raise failed
            finally:
                del failed

    def say(self, text: str) -> None:
        """What a kernel prints."""
        with self.printing:
            sys.stdout.write(text)

    def workers(self) -> int:
        """Threads that run blocks."""
        return min(threads.processors(), len(self.blocks))

    def progress(self) -> tuple[int, int]:
        """Blocks done and blocks in all; may be asked from any thread while the launch runs."""
        # Who reads the blocks under way first never counts one as done too early.
        under_way = sum(self.under_way)
        begun = min(int(self.record.view(np.int64)[abi.NEXT_BLOCK // 8]), self.blocks.stop)
        total = len(self.blocks)
        return max(0, begun - self.blocks.start - under_way), total

    def stop(self) -> None:
        """Make all blocks return soon."""
        self.stopped.set()
        self.record.view(np.int64)[abi.STOP // 8] = 1

    def _work(self, worker: int, errors: list[BaseException]) -> None:
        try:
            self._blocks(worker)
            self.under_way[worker] = 0
        except BaseException as error:
            self.stop()
            errors.append(error)

    def _blocks(self, worker: int) -> None:
        """Take blocks until none is left; those that only spin have to wait for the others."""
        waiting: deque[BlockState] = deque()
        first = BlockState(self)
        most = max(1, min(RESIDENT, RESIDENT_BYTES // first.bytes) // len(self.under_way))
        if self.compiled.footprint.uses_grid and len(self.blocks) > most * len(self.under_way):
            raise LanewiseError(
                f"the blocks of {self.compiled.function.name} wait for each other (grid.sync()): at most "
                f"{most * len(self.under_way)} of them can be under way at a time, not {len(self.blocks)}"
            )
        state: BlockState | None = first
        resume = 0
        while state is not None:
            self.under_way[worker] = len(waiting) + 1
            self.compiled.native(abi.RUN, [address(state.record), resume])
            status = state[abi.STATUS]
            if status == abi.DONE:
                # No block is left to begin.
                state, resume = (waiting.popleft(), 1) if waiting else (None, 0)
                continue
            if status == abi.YIELDED:
                waiting.append(state)
                left = int(self.record.view(np.int64)[abi.NEXT_BLOCK // 8]) < self.blocks.stop
                if left and len(waiting) < most:
                    state, resume = BlockState(self), 0
                else:
                    state, resume = waiting.popleft(), 1
                    if len(waiting) == 0:
                        os.sched_yield() if hasattr(os, "sched_yield") else None
                continue
            self._settle(state, status)
            resume = 1

    def _settle(self, state: BlockState, status: int) -> None:
        """Python's turn, or the end."""
        if status == abi.STOPPED and state[abi.KIND] == abi.HOST_CALL:
            from lanewise.machine.runtime.host_calls import host_call

            host_call(self, state)
            # The compiled code has no chance to look: it returned before its turn was over.
            if self.stopped.is_set():
                raise _Interrupted
            if state[abi.STEPS] <= self.record.view(np.int64)[abi.STEP_LIMIT // 8]:
                return
            status = abi.LIMIT
        if status == abi.INTERRUPTED:
            raise _Interrupted
        if status == abi.DEADLOCKED:
            raise Deadlock(*describe_deadlock(self, state))
        if status == abi.LIMIT:
            allowed = self.record.view(np.int64)[abi.STEP_LIMIT // 8]
            name = self.compiled.function.name
            raise KernelFault(
                f"{name}: a block ran more than the {allowed} steps allowed (steps=)", "endless"
            )
        if state.scratch is not None and state.scratch.failures:
            raise state.scratch.failures[0]
        from lanewise.machine.runtime.fault_report import describe

        message, line = describe(self, state)
        raise KernelFault(message, abi.FAULTS.get(state[abi.KIND], ""), line)


class _Interrupted(LanewiseError):
    """Another block stopped the launch."""


def describe_deadlock(launch: Launch, state: BlockState) -> tuple[str, str, int]:
    """Who waits where."""
    lines: dict[tuple[int, int], int] = {}
    for warp in range(launch.shape.warps):
        pcs = state.lanes(warp, abi.PCS, 32)
        barriers = state.lanes(warp, abi.BARRIER, 32)
        for pc, barrier in zip(pcs, barriers, strict=True):
            if abi.PARKED <= pc < abi.EXITED:
                line = launch.compiled.footprint.lines[int(pc) & (abi.PARKED - 1)]
                key = (line, int(barrier))
                lines[key] = lines.get(key, 0) + 1

    def what(barrier: int) -> str:
        if barrier == abi.PHASE:
            return "for a phase of an mbarrier"
        return "for their warp" if barrier == abi.SIBLINGS else f"at barrier {barrier}"

    waits = "; ".join(
        f"{count} threads wait {what(barrier)} before line {line}"
        for (line, barrier), count in sorted(lines.items())
    )
    block = tuple(state[abi.CTAID + 8 * axis] for axis in range(3))
    first = min((line for line, _ in lines), default=0)
    return f"deadlock in block {block}: {waits}", "deadlock", first
