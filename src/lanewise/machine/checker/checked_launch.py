"""A launch under watch: what is wrong becomes findings, and what it costs is counted.

Independent blocks run on all processors, each host thread with a watch of its own. Where there is anything to
tell (a finding, a fault, blocks that access one word), the launch is repeated on one thread, so that a report
is the same for any number of threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import as_bytes
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, RunStatus, WarpFrame
from lanewise.machine.checker import counters
from lanewise.machine.checker.access_descriptions import allocation_at, source_of
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.report import Finding, Line, Report
from lanewise.machine.checker.triage import NotOnItsOwn, Triage
from lanewise.machine.checker.watch import Watch, conflict
from lanewise.machine.errors import KernelFault
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import Waits
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.device_memory import Allocation
from lanewise.machine.runtime.fault_report import faulting_access
from lanewise.machine.runtime.launch import Launch, Progress
from lanewise.machine.runtime.state import BlockState, Three
from lanewise.machine.runtime.texture_faults import handle_operand, title_of
from lanewise.ptx import Shape

#: Epochs that a watch may have, which last some minutes; later races are not looked for.
EPOCHS = 1 << 27
#: Blocks that a check keeps account of.
MOST_BLOCKS = 1 << 31
#: Seconds that one host thread runs alone: a second watch costs more than it gains in short launches.
ALONE_SECONDS = 0.001
#: The kinds of findings for faults that have another name in the machine.
_RENAMED = {
    "bad branch": "out of bounds",
    "bad operand": "barrier",
    "mbarrier": "barrier",
    "host call": "trap",
}


class CheckedLaunch(Launch):
    """One run of a kernel under watch: on one host thread, and on more of them once it takes its time."""

    def __init__(
        self,
        kernel: CheckedKernel,
        shape: Shape,
        values: tuple[Any, ...],
        steps: int | None,
        side_by_side: bool,
        record_all: bool,
    ) -> None:
        super().__init__(kernel, shape, values, steps)
        self.kernel, self.side_by_side = kernel, side_by_side
        self._watches: dict[int, Watch] = {}
        self._beginning, self._ended, self._alone = threading.Lock(), threading.Event(), not side_by_side
        self.printed: list[tuple[int, str]] = []
        #: Allocations that may be written: what is read from them is put on record too.
        self.written = [each for each in self.allocations if record_all or self._may_be_written(each)]
        self._recorded = {each.first for each in self.written}

    def _may_be_written(self, allocation: Allocation) -> bool:
        """Return whether the kernel may write an allocation: by a parameter, or because it is no argument."""
        written = self.kernel.written_parameters
        if allocation.is_variable or written is None:
            return True
        pointers = (int.from_bytes(self.parameters[each : each + 8].tobytes(), "little") for each in written)
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
                if worker and self._alone:
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

    def stay_alone(self) -> bool:
        """Let no other host thread begin; return whether none has. Then the run is that of one thread."""
        with self._beginning:
            if len(self._watches) == 1:
                self._alone = True
        return self._alone

    def new_block(self, worker: int) -> BlockState:
        """Return the memory of a thread block, with its watch attached."""
        state = super().new_block(worker)
        self._watches[worker].attach(state)
        return state

    def allocated(self, first: int, size: int) -> None:
        """Forget the accesses to heap memory that was freed and is allocated again."""
        for watch in self.watches:
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

    def _settle(self, state: BlockState, status: int) -> None:
        """Add a finding for a fault before it ends the launch."""
        triage = next(each.triage for each in self.watches if state in each.triage.states)
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

    # faults as findings -------------------------------------------------------------------------------------

    def _fault(self, triage: Triage, state: BlockState, status: int, fault: KernelFault) -> None:
        """Add the finding of a fault, deadlock or endless loop."""
        match status:
            case RunStatus.STOPPED:
                triage.add(self._stopped(state, fault))
            case RunStatus.DEADLOCKED:
                triage.add(self._deadlock(state, str(fault)))
            case RunStatus.LIMIT:
                triage.add(self._endless(state, str(fault)))
            case _:
                triage.add(Finding(fault.kind, str(fault), fault.line, "", block=state.ctaid))

    def _stopped(self, state: BlockState, fault: KernelFault) -> Finding:
        """Return the finding for an instruction that could not be executed."""
        op = self.compiled.program.sites[state[BlockRecord.fault_site]]
        kind = _RENAMED.get(fault.kind, fault.kind)
        if fault.kind == FaultKind.BAD_OPERAND.title and op.record.waits is not Waits.BARRIER:
            kind = "trap"
        message = str(fault).split("\n")[0]
        address, allocation = None, ""
        if state[BlockRecord.fault_kind] in (*abi.ADDRESS_FAULTS, FaultKind.BAD_TEXTURE):
            message += f" ({str(fault).splitlines()[-1].strip()})"
        if handle_operand(op) is not None:
            allocation = title_of(self, state, op)
        elif state[BlockRecord.fault_kind] in abi.ADDRESS_FAULTS:
            address = state[BlockRecord.fault_address] & (1 << 64) - 1
            access = faulting_access(self, state, op)
            _, allocation = allocation_at(self, access.space if access else op.space, address)
        thread = self.thread_at(state[BlockRecord.fault_warp], state[BlockRecord.fault_lane])
        return self._finding(kind, message, op, thread, state, address, allocation)

    def _finding(
        self,
        kind: str,
        message: str,
        op: Op | None,
        thread: Three | None,
        state: BlockState,
        address: int | None = None,
        allocation: str = "",
    ) -> Finding:
        """Return a finding at an instruction of this launch."""
        line, text, source = (op.line, str(op.source), source_of(self, op)) if op else (0, "", None)
        return Finding(kind, message, line, text, source, thread, state.ctaid, address, allocation or None)

    def _endless(self, state: BlockState, message: str) -> Finding:
        """Return the finding of an endless loop: the first thread that still runs, and where."""
        warp, lane, op = 0, 0, None
        for number in range(self.shape.warps):
            pcs = state.lanes(number, WarpFrame.pcs, 32)
            running = np.flatnonzero(pcs < abi.PARKED)
            if running.size:
                warp, lane = number, int(running[0])
                block = self.compiled.blocks[int(pcs[lane])]
                op = next(iter(block.ops), block.op)
                break
        return self._finding("endless", message.split("\n")[0], op, self.thread_at(warp, lane), state)

    def _deadlock(self, state: BlockState, message: str) -> Finding:
        """Return the finding of a deadlock: threads wait for lanes elsewhere, or at barriers."""
        waiting: list[tuple[bool, int, int, int]] = []
        for warp in range(self.shape.warps):
            pcs = state.lanes(warp, WarpFrame.pcs, 32)
            barriers = state.lanes(warp, WarpFrame.barrier, 32)
            for parked in np.flatnonzero((pcs >= abi.PARKED) & (pcs < abi.EXITED)):
                at_barrier = int(barriers[parked]) != abi.WAITS_FOR_SIBLINGS
                waiting.append((at_barrier, warp, int(parked), int(pcs[parked])))
        if not waiting:
            return self._finding("deadlock", message, None, None, state)
        at_barrier, warp, lane, pc = min(waiting)
        op = _waited_for(self.compiled.blocks, pc & (abi.PARKED - 1))
        kind = "barrier" if at_barrier else "divergence"
        return self._finding(kind, message, op, self.thread_at(warp, lane), state)

    # the report ---------------------------------------------------------------------------------------------

    def report(self, notes: list[str]) -> Report:
        """Return the findings and counters of all watches."""
        kernel, program = self.kernel, self.compiled.program
        runs = sum((watch.runs for watch in self.watches), np.zeros_like(self.watches[0].runs))
        rows = sum((watch.rows for watch in self.watches), np.zeros_like(self.watches[0].rows))
        diverged = sum((watch.diverged for watch in self.watches), np.zeros_like(self.watches[0].diverged))
        by_line: dict[tuple[int, str], Line] = {}
        by_site = []
        for op, counts in kernel.counters.of_launch(runs, rows, diverged):
            by_site.append(counts)
            text = kernel.texts[op.site]
            by_line[op.line, text] = Line(op.line, text, kernel.sources[op.site], counts)
        if any(watch.out_of_epochs for watch in self.watches):
            notes = [*notes, "the run was too long to look for races to its end"]
        return Report(
            program.entry.name,
            [finding for watch in self.watches for finding in watch.triage.findings()],
            counters.total_of(by_site),
            [by_line[key] for key in sorted(by_line)],
            notes,
        )


def _waited_for(blocks: list[BasicBlock], number: int) -> Op | None:
    """Return the instruction at which lanes wait that go on with a basic block."""
    for block in blocks:
        waits = block.op is not None and block.op.record.waits is not Waits.NOBODY
        if waits and block.following and block.following.number == number:
            return block.op
    return None


def _kept_memory(launch: CheckedLaunch) -> Callable[[], None]:
    """Copy the memory that a launch may write; return a function that restores it."""
    own = [as_bytes(each.host, each.size) for each in launch.written if each.writable]
    copies = [content.copy() for content in own]

    def put_back() -> None:
        for content, copy in zip(own, copies, strict=True):
            content[:] = copy

    return put_back


def run_checked(
    kernel: CheckedKernel,
    shape: Shape,
    values: tuple[Any, ...],
    steps: int | None,
    notes: list[str],
    progress: Progress | None = None,
) -> Report:
    """Run a kernel under watch and return the report; what would stop a plain run is a finding."""
    if shape.blocks > MOST_BLOCKS:
        raise LanewiseError(f"a grid of {shape.blocks} blocks has more than can be checked: {MOST_BLOCKS}")
    side_by_side = kernel.blocks_are_independent and shape.blocks > 1
    launch = CheckedLaunch(kernel, shape, values, steps, side_by_side, record_all=not side_by_side)
    put_back = _kept_memory(launch) if side_by_side else None
    if not _is_whole(launch, progress) and put_back is not None:
        put_back()
        launch = CheckedLaunch(kernel, shape, values, steps, side_by_side=False, record_all=True)
        _is_whole(launch, progress)
    launch.print_kept()
    return launch.report(notes)


def _is_whole(launch: CheckedLaunch, progress: Progress | None) -> bool:
    """Run a launch; return whether it found all that a run on one host thread would have found."""
    try:
        launch.run(progress)
    except KernelFault:
        return launch.stay_alone()
    except NotOnItsOwn:
        return False
    return launch.is_conclusive
