"""One launch of a kernel: host threads that run its blocks, and the error raised when one stops."""

import operator
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit import threads
from lanewise.jit.host_memory import address, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockQueue, BlockRecord, FaultKind, LaunchRecord, RunStatus
from lanewise.machine.compile.compiled import Compiled
from lanewise.machine.errors import Deadlock, KernelFault
from lanewise.machine.runtime import device_memory, resident_blocks
from lanewise.machine.runtime.address_book import ADDRESSES, AddressBook
from lanewise.machine.runtime.device_memory import Allocation
from lanewise.machine.runtime.parameter_bytes import Arguments
from lanewise.machine.runtime.resident_blocks import InOrder, ResidentBlocks
from lanewise.machine.runtime.state import BlockState, LaunchState, QueueState
from lanewise.ptx import Shape
from lanewise.ptx.model.names import demangle

#: Seconds between two calls of `progress`.
LOOK = 0.2

#: Called with the blocks that are done and the blocks in all.
Progress = Callable[[int, int], None]


def _budget(steps: int | None) -> int:
    """Return how many basic blocks a thread block may run."""
    most = 1 << 62
    if steps is None:
        return most
    try:
        count = operator.index(steps)
    except TypeError:
        raise LanewiseError(f"steps= is a number of basic blocks, not {steps!r}") from None
    if count < 1:
        raise LanewiseError(f"steps={count} allows nothing to run; it is at least 1")
    return min(count, most)


class Launch(LaunchState):
    """One run of a kernel, or of a range of its blocks."""

    def __init__(
        self,
        compiled: Compiled,
        shape: Shape,
        values: tuple[object, ...],
        steps: int | None = None,
        blocks: range | None = None,
        book: AddressBook = ADDRESSES,
        schedule: object = None,
    ) -> None:
        info, module = compiled.launch_info, compiled.module
        source = module.cuda.text if module.cuda is not None else ""
        arguments = Arguments(compiled.function, info.parameters, info.parameter_bytes, values, book, source)
        placed, addresses = arguments.arrays.allocate()
        allocations = [*placed, *device_memory.variables(module, info)]
        if info.uses_heap or device_memory.heap_in_use(module):
            from lanewise.machine.runtime.heap import heap_of  # few kernels have one

            allocations.append(heap_of(module).allocation)
            if not self.tracks_heap:
                heap_of(module).take_as_initialised()
        if info.uses_grid:
            # The layout that `grid.sync()` expects: a size, and the count of blocks that have arrived.
            self.grid = zeroed_bytes(16)
            barrier = Allocation("the grid's barrier", abi.GRID_BASE, 16, address(self.grid), True)
            allocations.append(barrier)
        table = device_memory.table(allocations)
        super().__init__(compiled, shape, allocations, arguments.bytes(addresses), table)
        self.keep = values
        #: The device address of each array among the arguments, by its `id`.
        self.addresses = addresses
        self.arrays, self.book = arguments.arrays, book
        self.textures = arguments.textures
        if self.textures is not None:
            self[LaunchRecord.textures] = address(self.textures.in_memory())
            self[LaunchRecord.texture_count] = len(self.textures.images)
        self.blocks = blocks if blocks is not None else range(shape.blocks)
        self[LaunchRecord.step_limit] = _budget(steps)
        self[LaunchRecord.waits_in_turns] = schedule is None
        if schedule is not None:
            from lanewise.machine.runtime.completion import completion_of  # few launches ask for it

            self[LaunchRecord.completion], self[LaunchRecord.seed] = completion_of(schedule)
        #: The blocks that have not begun, for each host thread.
        self.queues = [self.shared_queue(self.blocks)]
        self.stopped = threading.Event()
        self.running: list[int] = []
        self.printing = threading.Lock()

    def new_block(self, worker: int) -> BlockState:
        """Return the memory of a thread block; a checked launch attaches its watch."""
        return BlockState(self)

    def allocated(self, given: list[tuple[int, int]]) -> None:
        """Do nothing when threads allocate heap memory, some bytes at an address; a check overrides it."""

    # running ------------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> None:
        """Run all blocks; return when they are done, raise an error if one stops.

        `progress` is called from the waiting thread a few times a second, and once at the end.
        """
        began, count = time.perf_counter(), self.workers()
        self.running = [0] * count
        if count > 1:
            self.queues = self._queues(count)
        errors: list[BaseException] = []
        tasks: list[threads.Task] = []
        try:
            for number in range(count):
                tasks.append(threads.Task(partial(self._work, number, errors), in_new_thread=count > 1))
            look = time.monotonic() + LOOK
            for task in tasks:
                while not task.wait(max(0.0, look - time.monotonic())):
                    look = max(look, time.monotonic()) + LOOK
                    if progress is not None:
                        progress(*self.progress())
            if progress is not None:
                progress(*self.progress())
        except BaseException:
            self.stop()
            for task in tasks:
                while not task.wait(LOOK):
                    pass
            raise
        finally:
            self.compiled.launched(time.perf_counter() - began)
            self.write_back()
        failed = next((error for error in errors if not isinstance(error, _Interrupted)), None)
        errors.clear()  # an error refers to this frame, so the frame must not refer to it
        if failed is not None:
            try:
                raise failed
            finally:
                del failed

    def write_back(self) -> None:
        """Write what was done in copies of the caller's memory, where there are any, to that memory."""
        for staged in self.arrays.staged:
            staged.write_back()

    def say(self, state: BlockState, text: str) -> None:
        """Print what a thread of a block prints."""
        with self.printing:
            sys.stdout.write(text)

    def workers(self) -> int:
        """Return how many host threads run blocks."""
        return min(threads.processors(), len(self.blocks) // self.shape.cluster_blocks)

    def _queues(self, workers: int) -> list[QueueState]:
        """Return the blocks that have not begun, for each of several host threads.

        All take from one queue, unless clusters take over others (cluster launch control): then each thread
        has a share of the grid, so that which cluster takes over which does not depend on their speed.
        """
        if not self.compiled.launch_info.takes_over_clusters:
            return self.queues * workers
        size = self.shape.cluster_blocks
        clusters = len(self.blocks) // size
        edges = [self.blocks.start + clusters * worker // workers * size for worker in range(workers + 1)]
        words = np.zeros((workers, BlockQueue.BYTES // 8), np.int64)
        return [QueueState(row, range(*ends)) for row, ends in zip(words, pairwise(edges), strict=True)]

    def progress(self) -> tuple[int, int]:
        """Return blocks done and blocks in all; any thread may call it while the launch runs."""
        # The running blocks are read first, so that none is counted as done too early.
        running = sum(self.running) * self.shape.cluster_blocks
        begun = sum(queue.begun for queue in dict.fromkeys(self.queues))
        return max(0, begun - running), len(self.blocks)

    def stop(self) -> None:
        """Make all blocks return soon."""
        self.stopped.set()
        self[LaunchRecord.stop] = 1

    def _work(self, worker: int, errors: list[BaseException]) -> None:
        """Run blocks on a host thread; an error stops the launch and is kept."""
        try:
            self._blocks(worker)
            self.running[worker] = 0
        except BaseException as error:
            self.stop()
            errors.append(error)

    def _blocks(self, worker: int) -> None:
        """Run blocks until none is left; blocks that are stuck give way to others."""
        self.resident_blocks(worker).run(self._most_resident, partial(self.running.__setitem__, worker))

    def resident_blocks(self, worker: int) -> ResidentBlocks:
        """Return what runs the blocks of a host thread; a checked launch chooses their order."""
        return ResidentBlocks(
            self, self.queue_of(worker), partial(self.new_block, worker), self._settle, InOrder()
        )

    def queue_of(self, worker: int) -> QueueState:
        """Return the blocks that a host thread takes."""
        return self.queues[worker]

    def resident_limit(self, bytes: int) -> int:
        """Return how many blocks that take some bytes each may be under way at a time."""
        on_a_gpu = resident_blocks.ON_A_GPU // self.shape.cluster_blocks
        return min(on_a_gpu, resident_blocks.MOST_BYTES // bytes)

    def _most_resident(self, first: BlockState) -> int:
        """Return how many blocks, or clusters, a host thread may have under way, given the first of them."""
        most = max(1, self.resident_limit(first.bytes) // len(self.running))
        all_blocks = most * len(self.running) * self.shape.cluster_blocks
        if self.compiled.launch_info.uses_grid and len(self.blocks) > all_blocks:
            raise LanewiseError(
                f"the blocks of {demangle(self.compiled.function.name)} wait for each other (grid.sync()): "
                f"at most {all_blocks} of them can be under way at a time, not {len(self.blocks)}"
            )
        return most

    def _settle(self, state: BlockState, status: int) -> None:
        """Do what a stopped block asks of Python, or raise the error that ends the launch."""
        if status == RunStatus.STOPPED and state[BlockRecord.fault_kind] == FaultKind.HOST_CALL:
            from lanewise.machine.runtime.host_calls import host_call  # it resolves the names

            host_call(self, state, partial(self.say, state), self.allocated)
            # The compiled code has not checked `stop`: it returned before its turn was over.
            if self.stopped.is_set():
                raise _Interrupted
            if state[BlockRecord.steps] <= self[LaunchRecord.step_limit]:
                return
            status = RunStatus.LIMIT
        if status == RunStatus.INTERRUPTED:
            raise _Interrupted
        if status == RunStatus.DEADLOCKED:
            from lanewise.machine.runtime.deadlock_report import describe_deadlock

            raise Deadlock(*describe_deadlock(self, state))
        if status == RunStatus.LIMIT:
            from lanewise.machine.runtime.fault_report import describe_limit

            message, line = describe_limit(self, state)
            raise KernelFault(message, "endless", line)
        if state.mma_table is not None and state.mma_table.failures:
            raise state.mma_table.failures[0]
        from lanewise.machine.runtime.fault_report import describe

        message, line = describe(self, state)
        raise KernelFault(message, FaultKind(state[BlockRecord.fault_kind]).title, line)


class _Interrupted(LanewiseError):
    """Another block stopped the launch, so this one ended early."""
