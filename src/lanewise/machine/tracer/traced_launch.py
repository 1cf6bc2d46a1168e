"""A traced launch: a check on one host thread that writes a log of the blocks and warps that were chosen."""

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import address, zeroed_bytes
from lanewise.machine.abi import BlockRecord, LaunchRecord
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.checked_launch import CheckedLaunch
from lanewise.machine.checker.merged_findings import key, with_sources
from lanewise.machine.checker.report import Finding
from lanewise.machine.checker.schedules import RunSchedule
from lanewise.machine.compile.compiled import TRACED, ReadyKernels
from lanewise.machine.errors import KernelFault
from lanewise.machine.runtime.state import BlockState
from lanewise.machine.tracer.log import Log, cluster_member
from lanewise.machine.tracer.points import Points
from lanewise.machine.tracer.records import BlockChoice, EntryHeader, TracerRecord
from lanewise.machine.tracer.step_code import ASYNC_WRITTEN, COPY_KEPT
from lanewise.machine.tracer.steps import TracerSteps
from lanewise.machine.tracer.tensor_log import TensorLog
from lanewise.ptx import Function, Module, Shape

#: The bytes of a log unless a limit is given, if the machine has twice as many.
USUAL_LIMIT = 1 << 30
#: The fewest bytes that a log may have.
LEAST_LIMIT = 1 << 16


class TracedKernel(CheckedKernel):
    """A compiled kernel that checks itself and writes a log."""

    def __init__(self, module: Module, function: Function, arch: str) -> None:
        super().__init__(module, function, arch)
        self._variant = TRACED

    def _instrumentation(self) -> TracerSteps:  # type: ignore[override]  # both are an Instrumentation
        return TracerSteps(super()._instrumentation(), self.points, self.program)

    @cached_property
    def points(self) -> Points:
        """The points at which the kernel is logged."""
        return Points(self.blocks, self.program)


#: The kernel for an arch, as traced launches run it.
traced = ReadyKernels(TracedKernel)


class LoggedFinding(NamedTuple):
    """A finding of the checker, and how many entries the log had when it came up."""

    finding: Finding
    entries: int


#: Where Linux tells the limit of a container's memory, and how much of it is used: control groups 2, and 1.
CONTAINER_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
MEMORY_FIGURES = "/proc/meminfo"


def available_bytes() -> int:
    """Return the bytes of memory that are free, as far as the system tells: a container may have fewer."""
    limits = [_free_bytes()]
    for limit, used in CONTAINER_LIMITS:
        try:
            texts = [Path(file).read_text().strip() for file in (limit, used)]
            limits.append(max(int(texts[0]) - int(texts[1]), 0))
        except (OSError, ValueError):  # there is no such file, or no limit
            continue
    return min(limits)


def _free_bytes() -> int:
    """Return the bytes of memory that the machine has free; what it only keeps of files counts."""
    try:
        figures = dict(
            line.split(":", 1) for line in Path(MEMORY_FIGURES).read_text().splitlines() if ":" in line
        )
        return int(figures["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not known on every system
        return 4 * USUAL_LIMIT


class TracedLaunch(CheckedLaunch):
    """One run of a kernel under watch, with a log of the chosen blocks and warps."""

    def __init__(
        self,
        kernel: TracedKernel,
        shape: Shape,
        values: tuple[object, ...],
        steps: int | None,
        schedule: RunSchedule,
        blocks: Iterable[int],
        warps: Iterable[int],
        limit: int,
    ) -> None:
        super().__init__(kernel, shape, values, steps, schedule, side_by_side=False, record_all=True)
        self.traced_kernel = kernel
        self._blocks_logged = np.zeros(shape.blocks, np.uint8)
        for block in blocks:
            for rank in range(shape.cluster_blocks):
                other = cluster_member(shape, block, rank)
                self._blocks_logged[other] = self._blocks_logged[other] or BlockChoice.WRITES
        self._blocks_logged[list(blocks)] = BlockChoice.EVERYTHING
        self._warps_logged = np.zeros(shape.warps, np.uint8)
        self._warps_logged[list(warps)] = 1
        try:
            # Pages that nothing is written to take no memory.
            self._memory = np.empty(limit, np.uint8)
        except MemoryError:
            raise LanewiseError(
                f"there is no memory for a log of {limit} bytes: give a smaller limit="
            ) from None
        start = -address(self._memory) % 64
        self._memory = self._memory[start : start + (limit - start) // 64 * 64]
        self._record = zeroed_bytes(TracerRecord.BYTES).view(np.int64)
        base = address(self._memory)
        for field, value in (
            (TracerRecord.blocks, address(self._blocks_logged)),
            (TracerRecord.warps, address(self._warps_logged)),
            (TracerRecord.next_entry, base),
            (TracerRecord.last_payload, base + self._memory.size),
            (TracerRecord.base, base),
        ):
            self._record[field // 8] = value
        self[LaunchRecord.tracer] = address(self._record)
        self._tensor_log = TensorLog(kernel.program, self._record, self._memory, self._blocks_logged)
        self.findings: list[LoggedFinding] = []
        #: The fault that ended the launch.
        self.fault: KernelFault | None = None
        #: Whether somebody stopped the launch before its end.
        self.interrupted = False

    @property
    def _entries(self) -> int:
        """How many entries the log has."""
        written = self._record[TracerRecord.next_entry // 8] - self._record[TracerRecord.base // 8]
        return int(written) // EntryHeader.BYTES

    def new_block(self, worker: int) -> BlockState:
        """Return the memory of a thread block; from the first on, findings are noted as they come up."""
        state = super().new_block(worker)
        for member in state.members:
            member[BlockRecord.written_hook] = self.native.place(ASYNC_WRITTEN)
            member[BlockRecord.kept_hook] = self.native.place(COPY_KEPT)
            member[BlockRecord.piped_hook] = self._tensor_log.address
        for watch in self.watches:
            watch.triage.on_finding = self._note
        return state

    def _note(self, finding: Finding) -> None:
        """Note how many entries the log had when a finding came up."""
        self.findings.append(LoggedFinding(finding, self._entries))

    def located_verdict(self) -> list[tuple[Finding, int]]:
        """Return the findings of a check, each with how many entries the log had when it came up."""
        raw = with_sources((finding.finding for finding in self.findings), self.compiled.program)
        entries: dict[object, int] = {}
        for finding, logged in zip(raw, self.findings, strict=True):
            entries.setdefault(key(finding), logged.entries)
        return [(finding, entries.get(key(finding), 0)) for finding in self.verdict()]

    def trace(self, keep_interrupted: bool = False) -> Log:
        """Run the launch and return its log; a fault ends the run and is kept in `fault`.

        Ctrl-C is raised, unless the log of a launch that was interrupted is to be kept.
        """
        try:
            self.run()
            self.interrupted = self.stopped.is_set()
            self.ended = not self.interrupted
        except KernelFault as fault:
            self.fault = fault
        except KeyboardInterrupt:
            if not keep_interrupted:
                raise
            self.interrupted = True
        if self._tensor_log.failures:
            raise self._tensor_log.failures[0]
        is_full = bool(self._record[TracerRecord.full // 8])
        return Log(self._memory, self._entries, self.traced_kernel.points.all, is_full, self.shape)
