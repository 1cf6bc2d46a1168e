"""A launch under watch: what is wrong becomes findings, and what it costs is counted.

Independent blocks run on all processors, each host thread with a watch of its own. Where there is anything to
tell (a finding, a fault, blocks that access one word), the launch is repeated on one thread, so that a report
is the same for any number of threads.
"""

import sys
import threading
from dataclasses import replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.hints import Named
from lanewise.jit.host_memory import Bytes, address
from lanewise.machine.abi import BlockRecord, LaunchRecord, RunStatus
from lanewise.machine.checker import counters, fault_findings
from lanewise.machine.checker.access_descriptions import source_of
from lanewise.machine.checker.allocations.heap_checks import leaks
from lanewise.machine.checker.checked_kernel import CheckedKernel, checked_by_lanes
from lanewise.machine.checker.findings import WANTED
from lanewise.machine.checker.merged_findings import across_schedules, verdict
from lanewise.machine.checker.report import Finding, Inefficiency, Line, Report
from lanewise.machine.checker.schedules import RunSchedule
from lanewise.machine.checker.triage import NotOnItsOwn, Triage
from lanewise.machine.checker.watch import Watch, accesses_of, conflict, most_shadow_bytes
from lanewise.machine.errors import KernelFault
from lanewise.machine.program.operands import TexelOperand
from lanewise.machine.program.source_lines import short_place
from lanewise.machine.runtime import resident_blocks
from lanewise.machine.runtime.device_memory import Allocation, heap_in_use
from lanewise.machine.runtime.heap import HeapState, heap_of
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.machine.runtime.launch import Launch, Progress
from lanewise.machine.runtime.resident_blocks import ResidentBlocks, Stuck
from lanewise.machine.runtime.state import BlockState
from lanewise.ptx import Shape

#: Epochs that a watch may have, which last some minutes; later races are not looked for.
EPOCHS = 1 << 27
#: Blocks that a check keeps account of.
MOST_BLOCKS = 1 << 31
#: Blocks that may be under way at a time, if they only wait; more than any GPU has.
MOST_RESIDENT = 1 << 16
#: Seconds that one host thread runs alone: a second watch costs more than it gains in short launches.
ALONE_SECONDS = 0.001


class CheckedLaunch(Launch):
    """One run of a kernel under watch: on one host thread, and on more of them once it takes its time."""

    tracks_heap = True

    def __init__(
        self,
        kernel: CheckedKernel,
        shape: Shape,
        values: tuple[object, ...],
        steps: int | None,
        schedule: RunSchedule,
        side_by_side: bool,
        record_all: bool,
    ) -> None:
        super().__init__(kernel, shape, values, steps)
        self.kernel, self.side_by_side, self.schedule = kernel, side_by_side, schedule
        self[LaunchRecord.order], self[LaunchRecord.seed] = schedule.order, schedule.seed
        self[LaunchRecord.completion] = schedule.completion
        self[LaunchRecord.waits_in_turns] = False  # the order of warps is the schedule's
        #: Whether all blocks ran to their end.
        self.ended = False
        self.resident: list[ResidentBlocks] = []
        #: The blocks of the heap that were there before.
        self._blocks_before = set(heap_of(kernel.module).blocks) if kernel.launch_info.uses_heap else set()
        self._watches: dict[int, Watch] = {}
        self._beginning, self._ended, self._alone = threading.Lock(), threading.Event(), not side_by_side
        self.printed: list[tuple[int, str]] = []
        #: Allocations that may be written: what is read from them is put on record too.
        self.written = [
            allocation for allocation in self.allocations if record_all or self._may_be_written(allocation)
        ]
        self._recorded = {allocation.first for allocation in self.written}

    def _may_be_written(self, allocation: Allocation) -> bool:
        """Return whether the kernel may write an allocation: by a parameter, or because it is no argument."""
        written = self.kernel.written_parameters
        if allocation.is_variable or written is None:
            return True
        if INITIALISED.marks(allocation.first, allocation.size) is not None:
            return True  # asynchronous reads of it are looked at, too
        pointers = (
            int.from_bytes(self.parameters[offset : offset + 8].tobytes(), "little") for offset in written
        )
        return any(pointer in allocation for pointer in pointers)

    @property
    def watches(self) -> list[Watch]:
        """The watches of all host threads that ran blocks."""
        return [self._watches[worker] for worker in sorted(self._watches)]

    def workers(self) -> int:
        """Return how many host threads run blocks: one, unless blocks may run side by side."""
        return super().workers() if self.side_by_side else 1

    def _work(self, worker: int, errors: list[BaseException]) -> None:
        """Run blocks on a host thread; all but the first begin late, and not at all if it is alone."""
        if worker and self._ended.wait(ALONE_SECONDS):
            return
        try:
            with self._beginning:
                if worker and (self._alone or not self._has_memory_for_another_watch()):
                    return
                self._watches[worker] = Watch(self, self.kernel, EPOCHS, self._recorded, self.stay_alone)
            super()._work(worker, errors)
        except BaseException as error:  # no memory for a watch? The first does without others.
            if worker and isinstance(error, MemoryError):
                return
            self.stop()
            errors.append(error)
        finally:
            self._ended.set()

    def _has_memory_for_another_watch(self) -> bool:
        """Return whether shadow memory for one more host thread stays within its bound."""
        held = sum(watch.shadow_bytes for watch in self.watches)
        return held + held // max(len(self._watches), 1) <= most_shadow_bytes()

    def stay_alone(self) -> bool:
        """Let no other host thread begin; return whether none has. Then the run is that of one thread."""
        with self._beginning:
            if len(self._watches) == 1:
                self._alone = True
        return self._alone

    def new_block(self, worker: int) -> BlockState:
        """Return the memory of a thread block, with its watch attached."""
        state = super().new_block(worker)
        for member in state.members:
            self._watches[worker].attach(member)
        return state

    def resident_blocks(self, worker: int) -> ResidentBlocks:
        """Return what runs the blocks of a host thread, in the order of the schedule."""
        new_block, order = partial(self.new_block, worker), self.schedule.for_worker()
        made = ResidentBlocks(
            self,
            self.queue_of(worker),
            new_block,
            self._settle,
            order,
            self._end_endless,
            self.kernel.deciding_bytes,
            self.kernel.time_decides,
            self._has_errors,
        )
        self.resident.append(made)
        return made

    def resident_limit(self, bytes: int) -> int:
        """Return how many blocks may be under way, each of some bytes, with its records of the check."""
        watched = self.watches[0].block_bytes * self.shape.cluster_blocks
        return min(MOST_RESIDENT, resident_blocks.MOST_BYTES // (bytes + watched))

    def allocated(self, given: list[tuple[int, int]]) -> None:
        """Forget the accesses to heap memory that was freed and is allocated again."""
        for watch in self.watches:
            for first, size in given:
                watch.forget(first, size)

    def say(self, state: BlockState, text: str) -> None:
        """Keep what a kernel prints: a repeated run prints once, and in the order of blocks."""
        self.printed.append((state[BlockRecord.linear], text))

    def print_kept(self) -> None:
        """Print what was kept, in the order in which one thread would have printed it."""
        order = (lambda entry: entry[0]) if self.side_by_side else (lambda entry: 0)
        sys.stdout.write("".join(text for _, text in sorted(self.printed, key=order)))

    def run(self, progress: Progress | None = None) -> None:
        """Run all blocks, and raise exceptions that happened during triage."""
        super().run(progress)
        for watch in self.watches:
            if watch.triage.failure is not None:
                raise watch.triage.failure
        if self.kernel.launch_info.uses_heap:
            for finding in leaks(self, self._blocks_before):
                self.watches[0].triage.add(finding)

    def _settle(self, state: BlockState, status: int) -> None:
        """Add a finding for a fault before it ends the launch."""
        triage = next(watch.triage for watch in self.watches if address(state.record) in watch.triage.states)
        if triage.failure is not None:
            raise triage.failure
        try:
            super()._settle(state, status)
        except KernelFault as fault:
            if self.stay_alone():
                self._fault(triage, state, status, fault)
            raise

    @property
    def is_conclusive(self) -> bool:
        """Whether the run found all that a run on one host thread would have found."""
        if len(self._watches) == 1:
            return True
        return not any(watch.out_of_epochs for watch in self.watches) and not conflict(self.watches)

    def _fault(self, triage: Triage, state: BlockState, status: int, fault: KernelFault) -> None:
        """Add the finding of a fault, deadlock or endless loop."""
        match status:
            case RunStatus.STOPPED:
                triage.add(fault_findings.stopped(self, state, fault))
            case RunStatus.DEADLOCKED:
                triage.add(fault_findings.deadlock(self, state, str(fault)))
            case RunStatus.LIMIT:
                triage.add(fault_findings.over_the_limit(self, state, str(fault).split("\n")[0]))
            case _:
                triage.add(Finding(fault.kind, str(fault), fault.line, "", block=state.ctaid))

    def _has_errors(self) -> bool:
        """Return whether an error was found so far."""
        return any(watch.triage.has_errors for watch in self.watches)

    def _end_endless(self, stuck: Stuck) -> None:
        """Raise an error for a launch that can never end, and add its finding."""
        fault = fault_findings.endless(self, stuck)
        if self.stay_alone():
            self.watches[0].triage.add(fault.finding)
        raise fault

    # the report ---------------------------------------------------------------------------------------------

    def report(self, notes: list[str]) -> Report:
        """Return the findings and counters of all watches."""
        kernel, program = self.kernel, self.compiled.program
        tables = zip(*((watch.runs, watch.rows, watch.diverged) for watch in self.watches), strict=True)
        ran = counters.Ran(*(reduce(np.add, table) for table in tables))
        requests = [watch.last_requests for watch in self.watches]
        overlap = any(len(allocation.views) > 1 for allocation in self.allocations)
        notes = [
            *notes,
            *(
                f"races in {allocation.title} were not looked for: it has {allocation.size:,} bytes, and to "
                "keep record of them would take more than half of this computer's memory"
                for allocation in self.watches[0].unwatched
            ),
        ]
        notes += self._boxes_outside()
        if any(watch.out_of_epochs for watch in self.watches):
            notes = [*notes, "the run was too long: races were not looked for in its last part"]
        return Report(
            program.entry.name,
            self.verdict(),
            Named("counter", self._totals(ran)),
            notes,
            partial(_judged, kernel, ran, requests, overlap) if self.ended else None,
            partial(_lines, kernel, ran),
            kernel.module,
            self.ended,
            tuple(accesses_of(self.watches)) if WANTED.get() else (),
        )

    def verdict(self) -> list[Finding]:
        """Return the findings of the launch, one for each mistake, in the order in which they came up."""
        raw = [finding for watch in self.watches for finding in watch.triage.findings()]
        findings = verdict(raw, self.compiled.program) + self._more_than_a_gpu()
        if self.schedule.is_default:
            return findings
        return [replace(finding, schedule=self.schedule.name) for finding in findings]

    def _boxes_outside(self) -> list[str]:
        """Return a note on a tensor copy whose box lay wholly outside of its tensor."""
        site = self[LaunchRecord.outside_site] - 1
        if site < 0:
            return []
        op = self.compiled.program.sites[site]
        rank = next(len(operand.coordinates) for operand in op.operands if isinstance(operand, TexelOperand))
        first = tuple(self[LaunchRecord.outside_coordinates + 8 * axis] for axis in range(rank))
        named = f"{first} (innermost first)" if self.compiled.module.names is None else str(first[::-1])
        place = short_place(source_of(self, op) or f"line {op.line}")
        effect = "a load fills in zeros or NaN, and a store writes nothing"
        return [f"{place}: the box at {named} lies wholly outside of its tensor: {effect}"]

    def _totals(self, ran: counters.Ran) -> counters.Counts:
        """Return the sum of all counters; with the clusters, if the launch has any."""
        total = self.kernel.counters.total(ran)
        if self.shape.cluster_blocks > 1:
            total[counters.CLUSTERS] = self.shape.blocks // self.shape.cluster_blocks
        return total

    def last_report(self, notes: list[str]) -> Report:
        """Return the report of a launch that nothing else is asked of."""
        report = self.report(notes)
        self.give_back()
        return report

    def give_back(self) -> None:
        """Let the next check have the shadow memory."""
        for watch in self.watches:
            watch.give_back()

    def _more_than_a_gpu(self) -> list[Finding]:
        """Return advice if more blocks waited for later ones than run at a time on any GPU."""
        most = max((blocks.most_stuck for blocks in self.resident), default=0)
        if not most:
            return []
        entry = self.compiled.program.entry
        message = (
            f"{most} blocks wait at the same time for later blocks to begin: the largest GPU runs at most "
            f"{resident_blocks.ON_A_GPU} at a time, and this launch would never end there"
        )
        return [Finding("deadlock", message, entry.line, f".entry {entry.name}", severity="advice")]


def _lines(kernel: CheckedKernel, ran: counters.Ran) -> list[Line]:
    """Return the lines of the PTX that ran, with their counters."""
    by_line: dict[tuple[int, str], Line] = {}
    for op, counts in kernel.counters.of_launch(ran):
        text = kernel.texts[op.site]
        by_line[op.line, text] = Line(op.line, text, kernel.sources[op.site], counts)
    return [by_line[key] for key in sorted(by_line)]


def _judged(
    kernel: CheckedKernel,
    ran: counters.Ran,
    requests: list[npt.NDArray[np.uint8]],
    arguments_overlap: bool,
) -> list[Inefficiency]:
    """Return what wastes time in a launch, from what its watches counted."""
    from lanewise.machine.checker.cost.launch_costs import LaunchCosts  # many checks are not asked for it
    from lanewise.machine.checker.cost.verdicts import performance

    return performance(LaunchCosts(kernel, ran, requests, arguments_overlap))


class CheckRun(NamedTuple):
    """A kernel with its shape and arguments, to be run under watch; what stops a plain run is a finding."""

    kernel: CheckedKernel
    shape: Shape
    values: tuple[object, ...]
    steps: int | None
    progress: Progress | None = None

    def report(self, schedules: list[RunSchedule], notes: list[str]) -> Report:
        """Run it in each of some schedules, with the same arguments, and return the report.

        The arrays have the results of the first run, and the counters are those of the first run.
        """
        if self.shape.blocks > MOST_BLOCKS:
            raise LanewiseError(
                f"the grid has {self.shape.blocks} blocks, and a check takes at most {MOST_BLOCKS}: check a "
                "smaller grid"
            )
        if len(schedules) == 1:
            launch = self.run(schedules[0])
            launch.print_kept()
            return launch.last_report(notes)
        untouched = self.launch(schedules[0])
        memory = WrittenMemory(untouched, untouched.written)
        before = memory.copy()
        after: MemoryCopy | None = None
        reports: list[Report] = []
        for schedule in schedules:
            launch = self.run(schedule)
            reports.append(launch.last_report(notes))
            if after is None:
                launch.print_kept()
                after, ended = memory.copy(), launch.ended
            elif launch.ended and ended:
                changed = [allocation.title for allocation in memory.differing(after)]
                others = (
                    f"{title} has other results under the schedule {schedule.name}" for title in changed
                )
                notes = [*notes, *others]
            memory.put_back(before)
        if after is not None:
            memory.put_back(after)
        extra = [note for note in reports[0].notes if note not in notes]
        findings = across_schedules([report.findings for report in reports])
        return replace(reports[0], findings=findings, notes=[*notes, *extra])

    def launch(
        self, schedule: RunSchedule, side_by_side: bool = False, record_all: bool = True
    ) -> CheckedLaunch:
        """Return a launch that has not run."""
        kernel, shape, values, steps, _ = self
        return CheckedLaunch(kernel, shape, values, steps, schedule, side_by_side, record_all)

    def run(self, schedule: RunSchedule) -> CheckedLaunch:
        """Run it with one schedule; return the launch that found all that is to be found."""
        kernel = self.kernel
        side_by_side = kernel.blocks_are_independent and self.shape.blocks > 1
        # It is repeated if blocks are not independent after all, write memory whose reads are not on record,
        # or load lanes of tensor memory without a value.
        may_repeat = side_by_side or kernel.written_parameters is not None or kernel.loads_lanes
        launch = self.launch(schedule, side_by_side, record_all=WANTED.get() or not may_repeat)
        memory = WrittenMemory(launch, launch.written)
        before = memory.copy() if may_repeat else None

        def again(run: CheckRun, copy: MemoryCopy) -> CheckedLaunch:
            memory.put_back(copy)
            launch.give_back()
            repeated = run.launch(schedule)
            _is_whole(repeated, self.progress)
            return repeated

        if not _is_whole(launch, self.progress) and before is not None:
            launch = again(self, before)
        if any(watch.triage.lanes_unwritten for watch in launch.watches) and before is not None:
            by_lanes = checked_by_lanes(kernel.module, kernel.function, kernel.arch)
            launch = again(self._replace(kernel=by_lanes), before)
        return launch


def _is_whole(launch: CheckedLaunch, progress: Progress | None) -> bool:
    """Run a launch; return whether it found all that a run on one host thread would have found."""
    try:
        launch.run(progress)
    except KernelFault:
        return launch.stay_alone()
    except NotOnItsOwn:
        return False
    launch.ended = True
    return launch.is_conclusive


class MemoryCopy(NamedTuple):
    """What memory held at some time, and who had which part of the heap."""

    contents: list[Bytes]
    heap: HeapState | None
    #: Which bytes of the memory had ever been written, where that is followed.
    initialised: list[Bytes | None]


class WrittenMemory:
    """The memory that a launch may write, where the caller has it."""

    def __init__(self, launch: Launch, written: list[Allocation]) -> None:
        self.allocations = [allocation for allocation in written if allocation.writable]
        self._marks = [
            INITIALISED.marks(allocation.first, allocation.size) for allocation in self.allocations
        ]
        self._own = [launch.arrays.caller_memory(allocation) for allocation in self.allocations]
        self._heap = heap_of(launch.compiled.module) if heap_in_use(launch.compiled.module) else None

    def copy(self) -> MemoryCopy:
        """Return a copy of what it holds."""
        heap = self._heap.state() if self._heap is not None else None
        marks = [None if mark is None else mark.copy() for mark in self._marks]
        return MemoryCopy([content.copy() for content in self._own], heap, marks)

    def put_back(self, copy: MemoryCopy) -> None:
        """Restore what `copy` returned."""
        for own, content in zip(self._own, copy.contents, strict=True):
            own[:] = content
        for marks, before in zip(self._marks, copy.initialised, strict=True):
            if marks is not None and before is not None:
                marks[:] = before
        if self._heap is not None and copy.heap is not None:
            self._heap.restore(copy.heap)

    def differing(self, copy: MemoryCopy) -> list[Allocation]:
        """Return the allocations that hold something else than when they were copied."""
        pairs = zip(self.allocations, self._own, copy.contents, strict=True)
        return [allocation for allocation, own, content in pairs if not np.array_equal(own, content)]
