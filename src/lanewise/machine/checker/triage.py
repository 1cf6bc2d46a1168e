"""Triage of the compiled checker's suspicions: harmless ones are dropped, the others become findings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address as address_of
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import async_findings, records
from lanewise.machine.checker.access_descriptions import (
    NOT_PROMISED,
    allocation_at,
    described,
    grid_message,
    in_reserved_memory,
    mask_message,
    shared_name,
    source_of,
    split_barrier_message,
)
from lanewise.machine.checker.allocations.heap_checks import heap_message
from lanewise.machine.checker.allocations.padding import Padding, padding_met
from lanewise.machine.checker.allocations.pointer_bounds import OF_BOUNDS, bounds_message
from lanewise.machine.checker.async_findings import ASYNC_KINDS
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.matrix_rows import rows_agree
from lanewise.machine.checker.proxy_records import OPERATIONS_KEPT, AsyncKind, NotedOperation
from lanewise.machine.checker.records import SiteRow, WatchRecord
from lanewise.machine.checker.report import Finding, Severity
from lanewise.machine.checker.site_table import access_of, by_async_proxy, row_of_number
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.program.instruction_record import BlockEnd
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.launch import Launch
from lanewise.machine.runtime.state import BlockState

#: The kind of finding that each suspicion becomes.
KINDS = {
    Suspicion.AFTER_WRITE: "race",
    Suspicion.AFTER_READ: "race",
    Suspicion.WEAKLY_AFTER_WRITE: "race",
    Suspicion.WEAKLY_AFTER_READ: "race",
    Suspicion.SAME_ADDRESS: "race",
    Suspicion.UNINITIALISED: "uninitialised",
    Suspicion.NO_VALUE: "uninitialised",
    Suspicion.UNFINISHED_COPY: "asynchronous copy",
    **ASYNC_KINDS,
    Suspicion.NOT_CONSTANT: "race",
    **dict.fromkeys(OF_BOUNDS, "out of bounds"),
    Suspicion.HEAP_OUTSIDE: "out of bounds",
    Suspicion.HEAP_FREED: "heap",
    Suspicion.HEAP_UNINITIALISED: "uninitialised",
    Suspicion.NOT_A_MEMBER: "divergence",
    Suspicion.ABSENT_MEMBER: "divergence",
    Suspicion.SPLIT_BARRIER: "divergence",
    Suspicion.EXITED_MEMBER: "divergence",
    Suspicion.MASKS_DIFFER: "divergence",
    Suspicion.LEFT_GRID: "divergence",
    Suspicion.BARRIER_COUNT_WRONG: "barrier",
    Suspicion.TILE_ALIGNMENT: "wmma",
    Suspicion.TILE_STRIDE: "wmma",
    Suspicion.TILE_UNIFORM: "wmma",
    Suspicion.IGNORED_ADDRESS: "out of bounds",
    Suspicion.IGNORED_ALIGNMENT: "misaligned",
}
#: Races that hardware is not known to run wrongly: lanes that met, a flag read without a fence.
_WEAK_RACES = (Suspicion.WEAKLY_AFTER_WRITE, Suspicion.WEAKLY_AFTER_READ)
_RACES = (Suspicion.AFTER_WRITE, Suspicion.AFTER_READ, Suspicion.SAME_ADDRESS, *_WEAK_RACES)
_ADVICE = (*_WEAK_RACES, Suspicion.EXITED_MEMBER, *async_findings.ADVICE)
#: Suspicions about two accesses; the other one is told too.
_OF_TWO = (
    *_RACES, Suspicion.UNFINISHED_COPY, Suspicion.UNFINISHED_READ, Suspicion.NOT_CONSTANT, Suspicion.UNFENCED,
    Suspicion.WEAKLY_FENCED, Suspicion.READ_UNFENCED, Suspicion.SWIZZLE_DIFFERS, Suspicion.MAP_UNFENCED,
)  # fmt: skip
#: Suspicions whose number is not an address.
_NOT_OF_MEMORY = (
    Suspicion.NOT_A_MEMBER, Suspicion.ABSENT_MEMBER, Suspicion.EXITED_MEMBER, Suspicion.MASKS_DIFFER,
    Suspicion.LEFT_GRID, Suspicion.BARRIER_COUNT_WRONG, Suspicion.TILE_STRIDE, Suspicion.NO_VALUE,
    *async_findings.NOT_OF_MEMORY,
)  # fmt: skip
#: The end of the message of a race.
_UNORDERED = "no barrier or other synchronisation orders the two accesses"
_MASK = (1 << 64) - 1
#: How often an instruction may report advice of one kind again: it may be about another variable.
ADVICE_AGAIN = 16
#: Findings with the same key are one: kind, line, text, allocation and severity.
Key = tuple[str, int, str, str | None, str]


class NotOnItsOwn(Exception):
    """There is something to tell, and other watches are at work: a run on one host thread has to tell it.

    So a report does not depend on how many threads there are. It is also raised where a watch cannot tell
    what happened, because reads were not put on record.
    """


class Triage:
    """Decides on the suspicions of one watch, and keeps its findings."""

    def __init__(
        self,
        launch: Launch,
        rows: npt.NDArray[np.int64],
        log: npt.NDArray[np.uint32],
        begun: npt.NDArray[np.uint32],
        watch_record: npt.NDArray[np.int64],
        kernel: CheckedKernel,
        stay_alone: Callable[[], bool],
    ) -> None:
        self.launch, self.rows, self.log, self.begun = launch, rows, log, begun
        self.watch_record, self.stay_alone = watch_record, stay_alone
        self.registers, self.undelivered = kernel.plan.registers, kernel.plan.undelivered
        self.folded, self.uses = kernel.plan.folded, kernel.value_uses
        self.warpgroup_registers = kernel.warpgroups.registers
        #: The table of asynchronous operations, a NotedOperation each, if there is one.
        self.operations = np.zeros(0, np.uint32)
        #: Blocks by the address of their record, which the frames of their warps begin with.
        self.states: dict[int, BlockState] = {}
        #: Barriers by the number of the basic block after them; filled when one is first asked for.
        self.barriers: dict[int, Op | None] = {}
        #: Suspicions that were told before, by row, kind and allocation.
        self.advised: set[tuple[int, Suspicion, str]] = set()
        #: Findings, each with the row and kind that count how often it came up.
        self.found: dict[Key, tuple[Finding, tuple[int, Suspicion] | None]] = {}
        self.failure: BaseException | None = None
        #: Called with each finding when it comes up, if somebody wants to know when.
        self.on_finding: Callable[[Finding], None] | None = None
        kinds = [ctypes.c_int64] * 7
        self.callback = ctypes.CFUNCTYPE(None, *kinds)(self._guarded)

    @property
    def address(self) -> int:
        """The address of the function that compiled code calls."""
        return int(ctypes.cast(self.callback, ctypes.c_void_p).value or 0)

    def _guarded(self, *values: int) -> None:
        """Call `consider`; an exception is kept and stops the launch."""
        try:
            self.consider(Suspicion(values[0]), *values[1:])
        except BaseException as error:  # nothing may escape into compiled code
            self.failure = error
            self.watch_record[WatchRecord.failed // 8] = 1
            self.launch.stop()

    def _state(self, warp_frame: int) -> tuple[BlockState, int]:
        """Return the block that a warp's frame belongs to, and the warp's index in it."""
        size = self.launch.compiled.launch_info.frame_bytes
        state = self.states[ctypes.c_int64.from_address(warp_frame + WarpFrame.block).value]
        return state, (warp_frame - address_of(state.frames)) // size

    def consider(
        self, kind: Suspicion, warp_frame: int, row: int, lane: int, address: int, epoch: int, who: int
    ) -> None:
        """Decide on a suspicion: drop it, or add a finding."""
        launch = self.launch
        state, warp = self._state(warp_frame)
        if kind is Suspicion.SPLIT_BARRIER:
            self._split_barrier(state, warp, address & 0xFFFFFFFF, epoch, bypassed=bool(who))
            if row:  # row 0 is for lanes that are elsewhere
                self._hear(row, kind, more=0)
            return
        if kind is Suspicion.EXITED_WARPS:
            self._hear(row, kind, more=0)
            self._left_barrier(state, warp, address & 0xFFFFFFFF, epoch)
            return
        if kind is Suspicion.BARRIER_OVERFULL:
            self._overfull_barrier(state, warp, address & 0xFFFFFFFF, lane, epoch, who)
            return
        if kind is Suspicion.UNRECORDED_READS:
            raise NotOnItsOwn
        op = launch.compiled.program.sites[row // MOST_ROWS]
        access = access_of(op, row)
        harmless = kind is Suspicion.SAME_ADDRESS and rows_agree(state, warp, op, address)
        if harmless or (kind is Suspicion.UNINITIALISED and in_reserved_memory(launch, address)):
            self.rows[row, (SiteRow.counts + 8 * kind) // 8] -= 1
            return
        advice = kind in _ADVICE
        if kind is Suspicion.UNINITIALISED:
            met = padding_met(launch.compiled.program, self.uses, state, warp, op, lane, address)
            advice = met is not None
            self._note_padding(row, met)
        self._hear_less(row, kind, advice)
        space, allocation = allocation_at(launch, self._space(op, access, address), address)
        if advice and (row, kind, allocation) in self.advised:
            return
        if advice:
            self.advised.add((row, kind, allocation))
        other = None
        if kind in _OF_TWO:
            other = self._other(kind, state, space, allocation, epoch, who, address)
        if kind is Suspicion.NO_VALUE and self.undelivered[address]:
            other = self._undelivered(launch.compiled.program.sites[epoch // MOST_ROWS])
        if kind in async_findings.OF_REGISTERS:
            other = self._instruction(KINDS[kind], launch.compiled.program.sites[epoch])
        if kind in async_findings.OF_REGISTER_POOL and who:
            other = self._instruction(KINDS[kind], launch.compiled.program.sites[who // MOST_ROWS])
        of_memory = kind not in _NOT_OF_MEMORY
        finding = Finding(
            KINDS[kind],
            self._async_message(kind, op, access, space, address, epoch, other)
            or self._message(kind, row, access, space, address, epoch, who),
            op.line,
            str(op.source),
            source_of(launch, op),
            launch.thread_at(warp, lane),
            state.ctaid,
            address & _MASK if of_memory else None,
            allocation or None if of_memory else None,
            other=other,
            severity="advice" if advice else "error",
        )
        self.add(finding, (row, kind))

    def _hear_less(self, row: int, kind: Suspicion, advice: bool) -> None:
        """Bound how often an instruction reports a suspicion again; the compiled code goes on counting.

        An error is reported once, advice a few times. Padding is known to the compiled code from then on.
        """
        if kind is not Suspicion.UNINITIALISED or not advice:
            self._hear(row, kind, ADVICE_AGAIN if advice and kind not in async_findings.ADVICE else 0)

    def _note_padding(self, row: int, padding: Padding | None) -> None:
        """Let the compiled code know where an instruction reads padding: it does not report it again."""
        if padding is None:
            return
        known = self.rows[row]
        known[SiteRow.dropped_bytes // 8], known[SiteRow.copied_bytes // 8] = padding.dropped, padding.copied
        block = int(known[SiteRow.padded_block // 8])
        known[SiteRow.padded_block // 8] = min(block, padding.block) if block else padding.block

    def _hear(self, row: int, kind: Suspicion, more: int) -> None:
        limit = (SiteRow.limits + 8 * kind) // 8
        self.rows[row, limit] = min(int(self.rows[row, limit]), more)

    @staticmethod
    def _space(op: Op, access: LocatedAccess | None, address: int) -> str:
        """Return the state space of an address that an instruction accesses."""
        if access is not None:
            return access.space
        if by_async_proxy(op):  # shared addresses are small numbers, also those of other blocks of a cluster
            return "shared" if 0 <= address < abi.WINDOW_BYTES else "global"
        return op.space

    def _instruction(self, kind: str, op: Op) -> Finding:
        """Return an instruction as the other side of a finding about registers."""
        return Finding(kind, "the other instruction", op.line, str(op.source), source_of(self.launch, op))

    def _async_message(
        self, kind: Suspicion, op: Op, access: LocatedAccess | None, space: str, address: int, epoch: int,
        other: Finding | None,
    ) -> str:  # fmt: skip
        """Return the sentence of a suspicion about asynchronous operations; empty for all others."""
        what = described(access, space) if access else async_findings.accessed(op, space)
        if kind in (Suspicion.UNFINISHED_COPY, Suspicion.UNFINISHED_READ):
            operation = self._operation(epoch)
            if operation is None:
                return ""
            return async_findings.unfinished(what, operation, kind is Suspicion.UNFINISHED_READ)
        if kind in (Suspicion.UNFENCED, Suspicion.WEAKLY_FENCED, Suspicion.READ_UNFENCED):
            return async_findings.fence_message(kind, what, op.line, other.line if other else 0)
        if kind in (*async_findings.OF_REGISTERS, Suspicion.NO_WGMMA_FENCE):
            registers = self.warpgroup_registers
            name = registers[address].name if address < len(registers) else ""
            return async_findings.register_message(kind, name)
        if kind in async_findings.OF_REGISTER_POOL:
            return async_findings.pool_message(kind, op, address, epoch)
        if kind in (Suspicion.TARGET_MAY_EXIT, Suspicion.TARGET_WEAKLY_KEPT):
            return async_findings.exit_message(kind, what, address)
        if kind in ASYNC_KINDS:
            place = shared_name(self.launch, address & 0xFFFFFF)
            return async_findings.barrier_message(kind, place, epoch)
        return ""

    def _operation(self, epoch: int) -> AsyncKind | None:
        """Return how the operation of an epoch completes; None if it is none of the asynchronous proxy."""
        if not len(self.operations):
            return None
        row = self.operations.reshape(-1, NotedOperation.BYTES // 4)[epoch & (OPERATIONS_KEPT - 1)]
        if row[NotedOperation.epoch // 4] != epoch & records.EPOCHS:
            return None
        return AsyncKind(int(row[NotedOperation.kind // 4]))

    def _undelivered(self, op: Op) -> Finding:
        """Return the instruction that left a register without a value, as the other side of a finding."""
        what = "a shuffle from a lane that takes no part or has no value there"
        if not op.record.shuffles:
            what = "a read of local memory that nothing was written to"
        source = source_of(self.launch, op)
        return Finding("uninitialised", what, op.line, str(op.source), source)

    def _message(
        self,
        kind: Suspicion,
        row: int,
        access: LocatedAccess | None,
        space: str,
        address: int,
        epoch: int,
        who: int,
    ) -> str:
        """Return a sentence that says what is wrong."""
        op = self.launch.compiled.program.sites[row // MOST_ROWS]
        what = described(access, space) if access else async_findings.accessed(op, space)
        match kind:
            case Suspicion.AFTER_WRITE:
                return f"{what}: the same bytes were written before, and {_UNORDERED}"
            case Suspicion.AFTER_READ:
                return f"{what}: the same bytes were read before, and {_UNORDERED}"
            case Suspicion.WEAKLY_AFTER_WRITE | Suspicion.WEAKLY_AFTER_READ:
                before = "written" if kind is Suspicion.WEAKLY_AFTER_WRITE else "read"
                return (
                    f"{what}: the same bytes were {before} before, and by the PTX memory model nothing "
                    "orders the two accesses. Usual reasons: lanes of a warp met without __syncwarp, a flag "
                    "was read without a fence, the scope of an arrival does not include the other block, or "
                    "atomics are mixed with plain accesses"
                )
            case Suspicion.SAME_ADDRESS:
                return (
                    f"{space} write: two lanes write different values to the same address in one "
                    "instruction, and which value stays is not defined"
                )
            case Suspicion.NOT_CONSTANT:
                return (
                    f"{what}: the kernel reads this memory with ld.global.nc (const __restrict__, __ldg), so "
                    "it must not be written while the kernel runs"
                )
            case Suspicion.UNFINISHED_COPY:
                return (
                    f"{what}: an asynchronous copy of these bytes may not be complete; wait for it first, "
                    "with cp.async.wait_group or an mbarrier"
                )
            case Suspicion.UNINITIALISED:
                return f"{space} read of memory that nothing was written to"
            case Suspicion.NO_VALUE:
                what = f"the register {self.registers[address].name} has no value"
                return f"{what}: the compiler wrote a NaN in its place" if address in self.folded else what
            case Suspicion.OUTSIDE | Suspicion.RUNS_OUT:
                return bounds_message(self.launch, kind, what, space, address, epoch, who)
            case Suspicion.HEAP_OUTSIDE | Suspicion.HEAP_FREED | Suspicion.HEAP_UNINITIALISED:
                return heap_message(self.launch, kind, what, address)
            case (
                Suspicion.NOT_A_MEMBER
                | Suspicion.ABSENT_MEMBER
                | Suspicion.MASKS_DIFFER
                | Suspicion.EXITED_MEMBER
            ):
                return mask_message(kind, address, epoch)
            case Suspicion.LEFT_GRID:
                return grid_message(address)
            case Suspicion.BARRIER_COUNT_WRONG:
                return f"a barrier for {address} threads: the number of threads has to be a multiple of 32"
            case Suspicion.TILE_ALIGNMENT:
                bytes_each = int(self.rows[row, SiteRow.alignment // 8])
                size = f"{bytes_each} bytes, the size of one lane's fragment"
                return f"the {space} pointer is not a multiple of {size}"
            case Suspicion.TILE_STRIDE:
                return f"the stride of {address} elements is not a multiple of 16 bytes"
            case Suspicion.TILE_UNIFORM:
                return "the pointer and the stride have to be the same in all lanes of the warp"
        wrong = "not a multiple of 16" if kind is Suspicion.IGNORED_ALIGNMENT else "out of bounds"
        return (
            f"the {space} row address of this lane is {wrong}: on sm_75 all 32 lanes have to give valid "
            "addresses, also those whose address is not used"
        )

    def add(self, finding: Finding, counted: tuple[int, Suspicion] | None = None) -> None:
        """Keep a finding unless an equal one was kept before."""
        key = (finding.kind, finding.line, finding.text, finding.allocation, finding.severity)
        if key not in self.found:
            if not self.stay_alone():
                raise NotOnItsOwn
            self.found[key] = finding, counted
            if self.on_finding is not None:
                self.on_finding(finding)

    def findings(self) -> list[Finding]:
        """Return all findings in the order in which they came up, with their counts."""
        found = []
        for finding, counted in self.found.values():
            count = 1
            if counted is not None:
                row, kind = counted
                count = max(int(self.rows[row, (SiteRow.counts + 8 * kind) // 8]), 1)
            found.append(replace(finding, count=count))
        return found

    def _other(
        self,
        kind: Suspicion,
        state: BlockState,
        space: str,
        allocation: str,
        epoch: int,
        who: int,
        address: int,
    ) -> Finding:
        """Return the other access of a race or of an unfinished copy, as a finding."""
        launch = self.launch
        warps = launch.shape.warps
        number = int(self.log[epoch & records.EPOCHS])
        linear = int(self.begun[number // warps])
        row = row_of_number(self.rows, (who >> records.SITE_SHIFT) & records.MOST_NUMBERS)
        other = launch.compiled.program.sites[row // MOST_ROWS]
        access = access_of(other, row)
        message = f"{space} {access.access.verb if access else 'asynchronous access'}"
        if who & records.SEVERAL:
            message += " by several lanes, of which this is the first"
        return Finding(
            KINDS[kind],
            message,
            other.line,
            str(other.source),
            source_of(launch, other),
            launch.thread_at(number % warps, 0 if who & records.COLLECTIVE else who & (abi.LANES - 1)),
            launch.block_at(linear),
            address & _MASK,
            allocation or None,
        )

    def _barrier_at(self, pc: int) -> Op | None:
        """Return the barrier at which lanes with a program counter wait."""
        if not self.barriers:
            self.barriers = {
                block.following.number: block.op
                for block in reversed(self.launch.compiled.blocks)
                if block.end is BlockEnd.BARRIER and block.following
            }
        return self.barriers.get(pc & (abi.PARKED - 1))

    def _add_at_barrier(
        self, kind: str, message: str, op: Op, state: BlockState, warp: int, pc: int, severity: Severity
    ) -> None:
        """Add a finding about the first lane of a warp that waits at a barrier."""
        first = int(np.flatnonzero(state.lanes(warp, WarpFrame.pcs, 32) == pc)[0])
        thread = self.launch.thread_at(warp, first)
        source = source_of(self.launch, op)
        self.add(
            Finding(kind, message, op.line, str(op.source), source, thread, state.ctaid, severity=severity)
        )

    def _split_barrier(self, state: BlockState, warp: int, pc: int, barrier: int, bypassed: bool) -> None:
        """Add a finding if lanes wait at an aligned barrier that others of the warp are not at.

        Those have exited or are elsewhere, or they `bypassed` the barrier, accessed memory and exited.
        """
        op = self._barrier_at(pc)
        if op is None or not op.record.whole_warps:
            return
        pcs, barriers = (state.lanes(warp, field, 32) for field in (WarpFrame.pcs, WarpFrame.barrier))
        threads = self.launch.shape.threads - abi.LANES * warp
        there = (1 << max(min(threads, abi.LANES), 0)) - 1  # a last warp may not have all lanes
        gone = _mask(pcs == abi.EXITED) & there
        absent = _mask((pcs != pc) & (pcs != abi.EXITED))
        if absent or bypassed:
            # Lanes at the same instruction may wait at another barrier, if its number is in a register.
            absent = absent or _mask(barriers != barrier) & there & ~gone
            message = split_barrier_message(absent, gone)
            self._add_at_barrier("divergence", message, op, state, warp, pc, "error")
        elif gone:
            message = split_barrier_message(0, gone, harmless=True)
            self._add_at_barrier("divergence", message, op, state, warp, pc, "advice")

    def _left_barrier(self, state: BlockState, warp: int, pc: int, warps: int) -> None:
        """Add advice about a barrier of the whole block that some of its warps have left by an exit."""
        op = self._barrier_at(pc)
        if op is not None:
            exited = f"{warps} warps have" if warps != 1 else "1 warp has"
            message = f"this barrier is for the whole block, but {exited} exited before; {NOT_PROMISED}"
            self._add_at_barrier("divergence", message, op, state, warp, pc, "advice")

    def _overfull_barrier(
        self, state: BlockState, warp: int, pc: int, threads: int, most: int, least: int
    ) -> None:
        """Add a finding for a barrier that more threads have come to than it is for."""
        op = self._barrier_at(pc)
        if op is None:
            return
        counts = f"{most} threads"
        if least != most:
            counts = f"{least or 'all'} threads in some of its instructions and {most} in others"
        undefined = "which of them wait for each other is not defined"
        message = f"{threads} threads have come to a barrier for {counts}: {undefined}"
        self._add_at_barrier("barrier", message, op, state, warp, pc, "error")


def _mask(lanes: npt.NDArray[np.bool_]) -> int:
    """Return lanes as the bits of a mask."""
    return sum(1 << int(lane) for lane in np.flatnonzero(lanes))
