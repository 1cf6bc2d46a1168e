"""A launch that is watched: one thread, shadow memory, counters; what is wrong becomes findings."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from lanewise.jit import machine_code
from lanewise.jit.host_memory import address
from lanewise.jit.host_memory import zeroed_bytes as room
from lanewise.machine import abi
from lanewise.machine.checker import counters, records, site_table
from lanewise.machine.checker.report import Finding, Line, Report
from lanewise.machine.checker.triage import Suspicions, allocation_of, source_of, thread_at
from lanewise.machine.codegen import instrumentation
from lanewise.machine.compile.compiled import Compiled
from lanewise.machine.errors import KernelFault
from lanewise.machine.program.resolve import Op
from lanewise.machine.runtime.fault_report import at_source
from lanewise.machine.runtime.launch import BlockState, Launch
from lanewise.ptx import Shape

#: Epochs that a run may have before races are no longer looked for: a few minutes.
EPOCHS = 1 << 27
#: Findings of faults under other names than those of the machine.
_RENAMED = {
    "bad branch": "out of bounds",
    "bad operand": "barrier",
    "mbarrier": "barrier",
    "host call": "trap",
}


@cache
def native() -> machine_code.Program:
    """The compiled watch."""
    from lanewise.machine.checker.access_hook import write_watch

    return machine_code.load("watch", write_watch)


class CheckedLaunch(Launch):
    """One run of a kernel under watch."""

    def __init__(self, compiled: Compiled, shape: Shape, values: tuple[Any, ...], steps: int | None) -> None:
        super().__init__(compiled, shape, values, steps)
        program = compiled.program
        self.rows, self.remembered = site_table.table(compiled.watched)
        self.runs = np.zeros((max(len(compiled.blocks), 1), 2), np.int64)
        self.diverged = np.zeros(max(len(program.sites), 1), np.int64)
        self.epochs = EPOCHS
        self.log = np.zeros(self.epochs, np.uint32)
        self.begun = np.zeros(shape.blocks + 1, np.uint32)
        self.plan = compiled.plan
        self.suspicions = Suspicions(self, self.rows, self.log, self.begun, self.plan.registers)
        self.shadows = [
            np.zeros((len(records.PLANES), each.size // 4 + 8), np.uint32) for each in self.allocations
        ]
        table = [
            (each.first, each.size, address(shadow), shadow.strides[0])
            for each, shadow in zip(self.allocations, self.shadows, strict=True)
        ]
        self.shadow_table = np.array(table or [(0, 0, 0, 0)], np.int64)
        self.watch = room(records.WATCH_BYTES).view(np.int64)
        for offset, value in {
            records.LOG: address(self.log),
            records.LOG_SIZE: self.epochs,
            records.SITES: address(self.rows),
            records.ALLOCATIONS: address(self.shadow_table),
            records.ALLOCATION_COUNT: len(self.allocations),
            records.CALLBACK: self.suspicions.address,
            records.BEGUN: address(self.begun),
        }.items():
            self.watch[offset // 8] = value
        self.watched: list[Any] = []

    def workers(self) -> int:
        """One: shadow memory needs no locks, and a run says the same every time."""
        return 1

    def prepare(self, state: BlockState) -> None:
        """What a block of threads is watched with."""
        program = native()
        warps = self.shape.warps
        observed = room(records.OBSERVED_BYTES).view(np.int64)
        clocks = room(warps * records.CLOCK_BYTES)
        barriers = room(records.BARRIER_COUNT * records.BARRIER_BYTES)
        shadow = np.zeros((len(records.PLANES), self.shared_bytes // 4 + 8), np.uint32)
        local_bytes = -(-self.compiled.program.local_bytes // 4) * 4
        local = room(warps * abi.LANES * local_bytes // 4 + 8)
        assigned = room(4 * warps * len(self.plan.registers) + 8)
        for offset, value in {
            instrumentation.ACCESS: program.place("access"),
            instrumentation.ARRIVE: program.place("arrive"),
            instrumentation.RELEASE: program.place("release"),
            instrumentation.ORDER: program.place("order"),
            instrumentation.MEMBERS: program.place("members"),
            instrumentation.PARTED: program.place("parted"),
            instrumentation.UNASSIGNED: program.place("without_value"),
            instrumentation.ASSIGNED: address(assigned),
            instrumentation.RUNS: address(self.runs),
            instrumentation.DIVERGED: address(self.diverged),
            records.WATCH: address(self.watch),
            records.LINEAR: -1,
            records.WARPS: warps,
            records.SHADOW: address(shadow),
            records.STRIDE: shadow.strides[0],
            records.SHARED_BYTES: self.shared_bytes,
            records.LOCAL_SHADOW: address(local),
            records.LOCAL_BYTES: local_bytes,
            records.CLOCKS: address(clocks),
            records.BARRIERS: address(barriers),
        }.items():
            observed[offset // 8] = value
        state[abi.OBSERVED] = address(observed)
        self.watched.append((observed, clocks, barriers, shadow, local, assigned))
        self.suspicions.states[id(state)] = state

    def allocated(self, first: int, size: int) -> None:
        """What those did who had this memory before, and gave it back, is of no concern to its new owner."""
        for each, shadow in zip(self.allocations, self.shadows, strict=True):
            if first in each:
                start = (first - each.first) // 4
                shadow[:, start : start + -(-size // 4)] = 0

    def _settle(self, state: BlockState, status: int) -> None:
        """A fault is a finding before it ends the launch."""
        if self.suspicions.failure is not None:
            raise self.suspicions.failure
        try:
            super()._settle(state, status)
        except KernelFault as fault:
            self._fault(state, status, fault)
            raise

    def _fault(self, state: BlockState, status: int, fault: KernelFault) -> None:
        x, y, z = (state[abi.CTAID + 8 * axis] for axis in range(3))
        block = (x, y, z)
        program = self.compiled.program
        if status == abi.STOPPED:
            op = program.sites[state[abi.SITE]]
            kind = _RENAMED.get(fault.kind, fault.kind)
            if fault.kind == "bad operand" and op.opcode not in ("bar", "barrier"):
                kind = "trap"
            memory = state[abi.KIND] in (1, 2, 3)
            place = state[abi.ADDRESS] & (1 << 64) - 1
            second = at_source(self, state, op)
            _, allocation = allocation_of(self, op, place, second) if memory else ("", "")
            message = str(fault).split("\n")[0]
            if memory:
                message += f" ({str(fault).splitlines()[-1].strip()})"
            lane = state[abi.LANE]
            self.suspicions.add(
                Finding(
                    kind,
                    message,
                    op.line,
                    str(op.source),
                    source_of(self, op),
                    thread_at(self, state[abi.WARP], lane),
                    block,
                    place if memory else None,
                    allocation or None,
                )
            )
            return
        if status == abi.DEADLOCKED:
            self._deadlock(state, str(fault), block)
            return
        if status == abi.LIMIT:
            self._endless(state, str(fault), block)
            return
        self.suspicions.add(Finding(fault.kind, str(fault), fault.line, "", block=block))

    def _endless(self, state: BlockState, message: str, block: tuple[int, int, int]) -> None:
        """The first thread that still runs, and where."""
        warp, lane, op = 0, 0, None
        for number in range(self.shape.warps):
            pcs = state.lanes(number, abi.PCS, 32)
            running = np.flatnonzero(pcs < abi.PARKED)
            if running.size:
                warp, lane = number, int(running[0])
                code = self.compiled.blocks[int(pcs[lane])]
                op = next(iter(code.ops), code.op)
                break
        self.suspicions.add(
            Finding(
                "endless",
                message.split("\n")[0],
                op.line if op else 0,
                str(op.source) if op else "",
                source_of(self, op) if op else None,
                thread_at(self, warp, lane),
                block,
            )
        )

    def _deadlock(self, state: BlockState, message: str, block: tuple[int, int, int]) -> None:
        """Threads that wait: for lanes elsewhere, or at barriers that nobody completes."""
        waiting: list[tuple[bool, int, int, int]] = []
        for warp in range(self.shape.warps):
            pcs = state.lanes(warp, abi.PCS, 32)
            barriers = state.lanes(warp, abi.BARRIER, 32)
            for lane in range(abi.LANES):
                pc = int(pcs[lane])
                if abi.PARKED <= pc < abi.EXITED:
                    waiting.append((int(barriers[lane]) != abi.SIBLINGS, warp, lane, pc))
        if not waiting:
            self.suspicions.add(Finding("deadlock", message, 0, "", block=block))
            return
        at_barrier, warp, lane, pc = min(waiting)
        op = self._waits_at(pc & (abi.PARKED - 1))
        self.suspicions.add(
            Finding(
                "barrier" if at_barrier else "divergence",
                message,
                op.line if op else 0,
                str(op.source) if op else "",
                source_of(self, op) if op else None,
                thread_at(self, warp, lane),
                block,
            )
        )

    def _waits_at(self, number: int) -> Op | None:
        """The instruction that lanes wait at who will go on with a block of code."""
        for block in self.compiled.blocks:
            if (
                block.end in ("barrier", "sync", "phase")
                and block.following
                and block.following.number == number
            ):
                return block.op
        return None

    def report(self, notes: list[str]) -> Report:
        """What there is to say."""
        program = self.compiled.program
        ran = counters.executed(self.compiled.blocks, self.runs, len(program.sites))
        by_line: dict[tuple[int, str], Line] = {}
        parts = []
        for op in program.sites:
            if not ran[op.site, 0]:
                continue
            found = counters.of_site(
                op, ran[op.site], self.rows, int(self.diverged[op.site]), self.compiled.arch
            )
            parts.append(found)
            text = self.compiled.texts[op.site]
            by_line[op.line, text] = Line(op.line, text, source_of(self, op), found)
        if self.watch[records.NOW // 8] >= self.epochs - 1:
            notes = [*notes, "the run was too long to look for races to its end"]
        return Report(
            program.entry.name,
            self.suspicions.findings(),
            counters.total_of(parts),
            [by_line[key] for key in sorted(by_line)],
            notes,
        )


def run_checked(
    compiled: Compiled,
    shape: Shape,
    values: tuple[Any, ...],
    steps: int | None,
    notes: list[str],
    progress: Any = None,
) -> Report:
    """Run a kernel under watch; what would stop a plain run is a finding."""
    launch = CheckedLaunch(compiled, shape, values, steps)
    with suppress(KernelFault):
        launch.run(progress)
    if launch.suspicions.failure is not None:
        raise launch.suspicions.failure
    return launch.report(notes)
