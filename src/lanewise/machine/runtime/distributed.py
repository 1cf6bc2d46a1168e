"""A launch spread over a `concurrent.futures.Executor`: each job runs a range of blocks on copies of memory.

Nothing is merged before all jobs are done and agree. Kernels whose blocks need one another's memory while
they run are refused.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.jit import threads
from lanewise.jit.host_memory import Bytes, as_bytes
from lanewise.machine import abi
from lanewise.machine.analysis.block_independence import dependence_between_blocks
from lanewise.machine.compile.compiled import Compiled, compiled
from lanewise.machine.runtime.address_book import AddressBook
from lanewise.machine.runtime.device_memory import View
from lanewise.machine.runtime.launch import LOOK, Launch, Progress
from lanewise.machine.runtime.state import BlockState
from lanewise.numpy_types import AnyArray, AnyDtype
from lanewise.ptx import Module, Shape, parse
from lanewise.ptx.arguments import ArrayArgument, HandleArgument

#: Bytes of arguments up to which a launch is divided into more jobs than there are workers.
SMALL = 1 << 24
#: Bytes of memory that are compared at a time.
STRETCH = 1 << 20


class CannotSpread(LanewiseError):
    """A launch whose blocks cannot run apart; `line` is the line of the PTX, if an instruction is why."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.line))


# a part, where it runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a worker needs to run a range of blocks. Values are numbers, or slices of the memory sent."""

    text: str
    entry: str
    arch: str
    shape: Shape
    blocks: tuple[int, int]
    steps: int | None
    #: Each argument: its value, or a Slice or MappedSlice of the memory sent.
    values: tuple[Any, ...]
    memory: tuple[Bytes, ...]
    writable: tuple[bool, ...]
    variables: dict[str, Bytes]
    #: Memory that has a device address without being an argument: its number, the address, its arrays.
    addressed: tuple[tuple[int, int, tuple[View, ...]], ...] = ()


@dataclass(frozen=True)
class Slice:
    """An array among the arguments: a range of bytes of one allocation."""

    memory: int
    start: int
    stop: int
    writable: bool

    def of(self, copies: Sequence[Bytes]) -> Bytes:
        """Return the array in a worker's copies of the memory."""
        array = copies[self.memory][self.start : self.stop]
        array.flags.writeable = self.writable
        return array


@dataclass(frozen=True)
class MappedSlice:
    """A tensor map among the arguments: its array is a view of one allocation, with gaps or without."""

    memory: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: AnyDtype
    writable: bool
    tensor: Any

    def of(self, copies: Sequence[Bytes]) -> ArrayArgument:
        """Return the tensor map of the array in a worker's copies of the memory."""
        from lanewise.ptx.tensor_maps import TensorMap  # few launches have one

        memory = copies[self.memory]
        array: AnyArray = np.ndarray(self.shape, self.dtype, memory, self.start, self.strides)
        array.flags.writeable = self.writable
        return TensorMap(array, self.tensor)


@dataclass(frozen=True)
class Written:
    """The bytes of an allocation that a job changed: their offsets and new values."""

    offsets: npt.NDArray[np.int64]
    values: Bytes


@dataclass(frozen=True)
class JobResult:
    """The result of a job: changes of arguments and of variables, and what was printed."""

    memory: tuple[Written, ...]
    variables: dict[str, Written]
    printed: str


class _JobLaunch(Launch):
    """The launch of a job's blocks on one thread; the executor decides how many jobs run at a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lines: list[str] = []

    def workers(self) -> int:
        """Return 1, because the executor has as many workers as it should."""
        return 1

    def say(self, state: BlockState, text: str) -> None:
        """Keep what is printed for the process that started the launch."""
        self.lines.append(text)


def _changes(before: Bytes, after: Bytes) -> Written:
    """Return the bytes that differ between two copies of memory."""
    offsets, values = [], []
    for start in range(0, before.size, STRETCH):
        old, new = before[start : start + STRETCH], after[start : start + STRETCH]
        if np.array_equal(old, new):
            continue
        changed = np.flatnonzero(old != new)
        offsets.append(changed + start)
        values.append(new[changed])
    if not offsets:
        return Written(np.zeros(0, np.int64), np.zeros(0, np.uint8))
    return Written(np.concatenate(offsets).astype(np.int64), np.concatenate(values))


@lru_cache(maxsize=8)
def _module(text: str) -> Module:
    """Return the parsed module of a text; the latest are kept."""
    return parse(text)


def run_job(job: Job) -> JobResult:
    """Run a range of blocks on copies of the memory that was sent."""
    module = _module(job.text)
    if job.variables:  # they belong to a module: jobs that run in one process must not share them
        module = parse(job.text)
    ready = compiled(module, module.entries[job.entry], job.arch)
    copies = [np.array(memory) for memory in job.memory]
    arguments = tuple(
        value.of(copies) if isinstance(value, Slice | MappedSlice) else value for value in job.values
    )
    book = AddressBook()
    for number, first, views in job.addressed:
        book.adopt(copies[number], first, views)
    launch = _JobLaunch(ready, job.shape, arguments, job.steps, range(*job.blocks), book)
    variables = {
        allocation.name: as_bytes(allocation.host, allocation.size)
        for allocation in launch.allocations
        if allocation.is_variable
    }
    for name, image in job.variables.items():
        variables[name][:] = image
    launch.run()
    return JobResult(
        tuple(
            _changes(before, after) if writable else Written(np.zeros(0, np.int64), np.zeros(0, np.uint8))
            for before, after, writable in zip(job.memory, copies, job.writable, strict=True)
        ),
        {name: _changes(image, variables[name]) for name, image in job.variables.items()},
        "".join(launch.lines),
    )


# the launch -----------------------------------------------------------------------------------------------


def _workers(executor: Executor) -> int:
    """Return how many jobs an executor runs at a time, as the standard library, mpi4py and Dask tell."""
    for name in ("_max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(map(int, client.nthreads().values())))
    return threads.processors()


def spread(
    ready: Compiled,
    shape: Shape,
    values: tuple[object, ...],
    executor: Executor,
    steps: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Run a kernel's blocks on an executor's workers and merge what they wrote."""
    if not callable(getattr(executor, "submit", None)):
        raise LanewiseError(
            f"executor= takes a concurrent.futures.Executor, or what has its submit(); not {executor!r}"
        )
    dependence = dependence_between_blocks(ready.program)
    if dependence is not None:
        raise CannotSpread(
            f"{ready.program.entry.name} cannot be spread over an executor: {dependence.why}\n"
            + (f"    line {dependence.op.line}: {dependence.op.source}\n" if dependence.op else "")
            + "    launch it without executor=: all blocks then run in this process",
            dependence.op.line if dependence.op else 0,
        )
    whole = Launch(ready, shape, values, steps)
    pieces = [allocation for allocation in whole.allocations if not allocation.is_variable]
    memory = tuple(as_bytes(allocation.host, allocation.size) for allocation in pieces)
    variables = {
        allocation.name: as_bytes(allocation.host, allocation.size)
        for allocation in whole.allocations
        if allocation.is_variable and allocation.writable
    }

    def sent(value: Any) -> Any:
        array = value.array if isinstance(value, ArrayArgument) else value
        first = whole.addresses.get(id(array))
        if first is None:
            return value
        number = next(n for n, piece in enumerate(pieces) if piece.first <= first <= piece.first + piece.size)
        start, writable = first - pieces[number].first, bool(array.flags.writeable)
        if array is not value and not isinstance(value, HandleArgument):
            return MappedSlice(number, start, array.shape, array.strides, array.dtype, writable, value.tensor)
        return value if array is not value else Slice(number, start, start + array.nbytes, writable)

    module = ready.program.module
    count = _workers(executor) * (4 if sum(piece.size for piece in memory) <= SMALL else 1)
    clusters = shape.blocks // shape.cluster_blocks  # a job runs whole clusters
    edges = np.linspace(0, clusters, min(count, clusters) + 1).astype(int) * shape.cluster_blocks
    jobs = [
        Job(
            module.text or str(module),
            ready.program.entry.name,
            ready.arch,
            shape,
            span,
            steps,
            tuple(map(sent, values)),
            memory,
            tuple(piece.writable for piece in pieces),
            variables,
            tuple(
                (number, piece.first, piece.views)
                for number, piece in enumerate(pieces)
                if not abi.ARGUMENT_BASE <= piece.first < abi.ADDRESSED_BASE  # at an address of its own
            ),
        )
        for span in pairwise(edges.tolist())
    ]
    done = _results(executor, jobs, shape.blocks, progress)
    spans = [job.blocks for job in jobs]
    agreed = [
        (
            target,
            _agreed(f"argument {piece.name}", target.size, spans, [result.memory[number] for result in done]),
        )
        for number, (piece, target) in enumerate(zip(pieces, memory, strict=True))
    ] + [
        (target, _agreed(f"variable {name}", target.size, spans, [result.variables[name] for result in done]))
        for name, target in variables.items()
    ]
    for target, written in agreed:
        for write in written:
            target[write.offsets] = write.values
    whole.write_back()
    sys.stdout.write("".join(result.printed for result in done))


def _results(executor: Executor, jobs: list[Job], blocks: int, progress: Progress | None) -> list[JobResult]:
    """Submit all jobs and return their results; if one fails, cancel the others and raise its error."""
    futures: list[Future[JobResult]] = [executor.submit(run_job, job) for job in jobs]
    try:
        while True:
            done, pending = wait(futures, timeout=LOOK, return_when=FIRST_EXCEPTION)
            if progress is not None:
                ready = [job for job, future in zip(jobs, futures, strict=True) if future in done]
                progress(sum(job.blocks[1] - job.blocks[0] for job in ready), blocks)
            if not pending or any(future.exception() for future in done):
                break
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    for future in futures:
        if future.done() and future.exception() is not None:
            for other in futures:
                other.cancel()
            future.result()
    return [future.result() for future in futures]


def _agreed(title: str, size: int, spans: Sequence[tuple[int, int]], written: list[Written]) -> list[Written]:
    """Return what all jobs wrote; raise an error if two wrote different values to one byte."""
    if sum(write.offsets.size for write in written) == 0:
        return written
    seen: npt.NDArray[np.int32] = np.zeros(size, np.int32)  # the job that wrote each byte, counted from 1
    values = np.zeros(size, np.uint8)
    for number, write in enumerate(written):
        before = seen[write.offsets]
        wrong = np.flatnonzero((before > 0) & (values[write.offsets] != write.values))
        if wrong.size:
            other, offset = spans[before[wrong[0]] - 1], write.offsets[wrong[0]]
            raise CannotSpread(
                f"{title}: blocks {other[0]} to {other[1] - 1} and blocks {spans[number][0]} to "
                f"{spans[number][1] - 1} wrote different values to byte {offset}; nothing was merged. "
                "Blocks that write to one place cannot be spread over an executor"
            )
        seen[write.offsets] = number + 1
        values[write.offsets] = write.values
    return written
