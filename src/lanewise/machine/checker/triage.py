"""Triage of the compiled checker's suspicions: harmless ones are dropped, the others become findings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address as address_of
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.analysis.delivered_loads import is_delivered, is_used_behind_a_barrier
from lanewise.machine.analysis.value_uses import Use
from lanewise.machine.checker import records
from lanewise.machine.checker.access_descriptions import allocation_at, finding_at, source_of, tensor_place
from lanewise.machine.checker.allocations.padding import Padding, padding_met
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.mends import ControlFlow, Place, Reach, reach_farther
from lanewise.machine.checker.proxy_records import OPERATIONS_KEPT, AsyncKind, NotedOperation
from lanewise.machine.checker.records import SiteRow, WatchRecord
from lanewise.machine.checker.report import Finding
from lanewise.machine.checker.site_table import PATIENCE, access_of, by_async_proxy, row_of_number
from lanewise.machine.checker.suspicion_facts import Facts, Other, name_of
from lanewise.machine.checker.suspicions import SUSPICIONS, Subject, Suspicion
from lanewise.machine.program.instruction_record import BlockEnd
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import LocatedAccess, accesses, writes_unseen_bytes
from lanewise.machine.program.operands import Sink, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.launch import Launch
from lanewise.machine.runtime.shared_names import in_reserved_memory
from lanewise.machine.runtime.state import BlockState

_MASK = (1 << 64) - 1
#: How often an instruction may report advice of one kind again: it may be about another variable.
ADVICE_AGAIN = 16
#: How often an instruction may report a race again: another one may be of threads that are farther apart.
RACES_AGAIN = 4096
RACES = (Suspicion.AFTER_WRITE, Suspicion.AFTER_READ)
#: Of bytes that a plain store wrote, before the asynchronous proxy accesses them.
_FENCES = (Suspicion.UNFENCED, Suspicion.WEAKLY_FENCED)
#: Of matrices that wgmma and tcgen05.mma read by descriptors.
_DESCRIPTORS = (
    Suspicion.SWIZZLE_DIFFERS,
    Suspicion.FORMAT_DIFFERS,
    Suspicion.MATRIX_ROWS_OVERLAP,
    Suspicion.MATRIX_LINE_LEFT,
)
#: Of a load that is advice.
_DELIVERED = (
    "All that it loads is stored, or decides a branch, by then, so that GPUs have read the columns; the PTX "
    "ISA asks for the wait all the same (9.7.16.6.4.5)"
)
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
        #: Suspicions that were reported before, by row, kind and allocation.
        self.advised: set[tuple[int, Suspicion, str]] = set()
        #: Findings, each with the row and kind that count how often it came up.
        self.findings_by_key: dict[Key, tuple[Finding, tuple[int, Suspicion] | None]] = {}
        #: How far the threads of a race were apart so far, by row and kind.
        self.reached: dict[tuple[int, Suspicion], Reach] = {}
        #: Whether a tcgen05.ld that is not waited for is needed in time: by site, and if columns are freed.
        self.delivered: dict[tuple[int, bool], bool] = {}
        #: Whether lanes of tensor memory without a value were loaded.
        self.lanes_unwritten = False
        self.failure: BaseException | None = None
        #: Called with each finding when it comes up, if somebody wants to know when.
        self.on_finding: Callable[[Finding], None] | None = None
        kinds = [ctypes.c_int64] * 7
        self.callback = ctypes.CFUNCTYPE(None, *kinds)(self._guarded)
        #: The ways through the kernel, by which mends are placed.
        self.flow = ControlFlow(launch.compiled.blocks)
        self.writes_unseen_bytes = writes_unseen_bytes(launch.compiled.program.sites)

    @property
    def has_errors(self) -> bool:
        """Whether one of the findings so far is more than advice."""
        return any(finding.severity == "error" for finding, _ in self.findings_by_key.values())

    @property
    def address(self) -> int:
        """The address of the function that compiled code calls."""
        return int(ctypes.cast(self.callback, ctypes.c_void_p).value or 0)

    def _guarded(self, *values: int) -> None:
        """Call `consider`; an exception is kept and stops the launch."""
        try:
            self.consider(SUSPICIONS[values[0]], *values[1:])
        except BaseException as error:  # nothing may escape into compiled code
            self.failure = error
            self.watch_record[WatchRecord.failed // 8] = 1
            self.launch.stop()

    def _state(self, warp_frame: int) -> tuple[BlockState, int]:
        """Return the block that a warp's frame belongs to, and the warp's index in it."""
        size = self.launch.compiled.launch_info.frame_bytes
        state = self.states[ctypes.c_int64.from_address(warp_frame + WarpFrame.block).value]
        return state, (warp_frame - address_of(state.frames)) // size

    def consider(self, kind: Suspicion, warp_frame: int, row: int, *values: int) -> None:
        """Decide on a suspicion: drop it, or add a finding."""
        if kind is Suspicion.UNRECORDED_READS:
            raise NotOnItsOwn
        if kind is Suspicion.TENSOR_LANES_UNWRITTEN:  # the launch is repeated, and the lanes are followed
            self.lanes_unwritten = True
            self._hear(row, kind, 0)
            return
        numbers = dict(zip(kind.numbers, values, strict=True))
        state, warp = self._state(warp_frame)
        if self.reached.get((row, kind), Reach.THREAD) >= self._race_reach(kind, state, warp, numbers):
            return
        if kind.subject is Subject.BLOCK_BARRIER:
            self._at_barrier(kind, state, warp, row, numbers)
            return
        launch, lane, address = self.launch, numbers["lane"], numbers.get("address", 0)
        needing = launch.compiled.program.sites[row // MOST_ROWS]
        op = self._lacking(needing, numbers)
        access = access_of(op, row)
        is_delivered = self._is_delivered(kind, op, numbers)
        if self._needs_no_value(kind, op, row, numbers) or (is_delivered and op.has("dealloc")):
            return
        advice = kind.is_advice_on(launch.compiled.arch) or is_delivered
        if kind is Suspicion.UNINITIALISED:
            met = padding_met(launch.compiled.program, self.uses, state, warp, op, lane, address)
            advice = met is not None
            self._note_padding(row, met)
        if kind not in RACES:
            self._hear_less(row, kind, advice)
        space, allocation = allocation_at(launch, self._space(op, access, address), address)
        if kind.is_of_tensor_memory:
            space, allocation = "tensor", tensor_place(address)
        if kind in RACES:
            # Threads farther apart may race there as well, and then the mend has to reach as far.
            self.reached[row, kind] = self._race_reach(kind, state, warp, numbers)
            farther = self.reached[row, kind] < self._farthest(space)
            self._hear(row, kind, RACES_AGAIN if farther else 0)
        if advice and (row, kind, allocation) in self.advised:
            return
        if advice:
            self.advised.add((row, kind, allocation))
        other, side = None, None
        if kind.subject is Subject.TWO_ACCESSES:
            other, side = self._other(kind, state, warp, lane, space, allocation, numbers)
            is_data = by_async_proxy(op) and kind in (*_FENCES, Suspicion.AFTER_WRITE)
            if is_data and side.place.op.record.allocates_tensor_memory:
                self._after_alloc(kind, warp_frame, row, lane, address)
                return
        elif (instruction := self._instruction(kind, numbers)) is not None:
            other, side = instruction
        facts = Facts(
            kind,
            numbers,
            launch,
            self.flow,
            Place(op, source_of(launch, op)),
            access,
            space,
            allocation,
            self.registers if kind is Suspicion.NO_VALUE else self.warpgroup_registers,
            frozenset(self.folded),
            side,
            self._operation(numbers["epoch"]) if kind.subject is Subject.TWO_ACCESSES else None,
            int(self.rows[row, SiteRow.alignment // 8]),
            space == "shared" and (address ^ state[BlockRecord.shared_first]) >> abi.RANK_SHIFT != 0,
            needing=Place(needing, source_of(launch, needing)),
        )
        of_tcgen05 = kind in _DESCRIPTORS and op.record.touches_tensor_memory
        title, message = "tensor memory" if of_tcgen05 else kind.kind, facts.message()
        if advice and kind is Suspicion.TENSOR_LOAD_UNAWAITED:
            message = f"{message}. {_DELIVERED}"
        finding = finding_at(launch, op, title, message, launch.thread_at(warp, lane), state.ctaid)
        finding = replace(
            finding,
            address=address & _MASK if kind.is_of_memory else None,
            allocation=allocation or None if kind.is_of_memory else None,
            other=other,
            severity="advice" if advice else "error",
            mend=facts.mend(),
            races=(facts.race,) if "{order}" in kind.mend else (),
        )
        self.add(self._read_too_early(finding, facts), (row, kind))

    def _lacking(self, op: Op, numbers: dict[str, int]) -> Op:
        """Return the first instruction that lacked the value that another one needs, or that one itself."""
        computed = numbers.get("computed")  # its row, and one more
        return self.launch.compiled.program.sites[(computed - 1) // MOST_ROWS] if computed else op

    def _read_too_early(self, finding: Finding, facts: Facts) -> Finding:
        """Return an unordered write of tensor memory that was read before without a value as that read."""
        read = finding.other
        if facts.kind is not Suspicion.TENSOR_UNORDERED or read is None or facts.op.has("dealloc"):
            return finding  # who frees columns gives them no value
        if not any(key[:3] == ("uninitialised", read.line, read.text) for key in self.findings_by_key):
            return finding
        write = replace(finding, message=f"tensor access by {name_of(facts.op)}", other=None, mend="")
        return replace(
            read, message=facts.tensor_read_early, other=write, mend=facts.tensor_wait_before_other
        )

    def _after_alloc(self, kind: Suspicion, warp_frame: int, row: int, lane: int, address: int) -> None:
        """Decide on a word that tcgen05.alloc wrote and the asynchronous proxy accesses.

        What writes it is in order after the alloc. What reads it reads an address in place of data.
        """
        self.rows[row, (SiteRow.counts + 8 * kind) // 8] -= 1
        self.rows[row, (SiteRow.limits + 8 * kind) // 8] = PATIENCE
        self.reached.pop((row, kind), None)
        if kind is not Suspicion.WEAKLY_FENCED:
            self.consider(Suspicion.UNINITIALISED, warp_frame, row, lane, address, 0, 0)

    def _needs_no_value(self, kind: Suspicion, op: Op, row: int, numbers: dict[str, int]) -> bool:
        """Return whether memory that nothing was written to is accessed without harm."""
        if kind not in (Suspicion.UNINITIALISED, Suspicion.NEVER_WRITTEN):
            return False
        if kind is Suspicion.UNINITIALISED and (
            self.writes_unseen_bytes or in_reserved_memory(self.launch, numbers["address"])
        ):
            self.rows[row, (SiteRow.counts + 8 * kind) // 8] -= 1
            return True
        if self._only_writes(op):
            self._hear(row, kind, 0)
            return True
        if kind is Suspicion.NEVER_WRITTEN and not self._needs(op, numbers["unwritten"]):
            self._hear(row, kind, ADVICE_AGAIN)
            return True
        return False

    def _only_writes(self, op: Op) -> bool:
        """Return whether an atomic replaces a value that no instruction uses: then it is a write."""
        if not (op.record.is_atomic and op.has("exch")):
            return False
        return isinstance(op.operands[0], Sink) or self.uses.of(op, 0) is Use.DROPPED

    def _needs(self, op: Op, unwritten: int) -> bool:
        """Return whether a load needs elements that were never written, given as bits of its bytes.

        A value that is only chosen from is perhaps dropped. What is only copied, beside elements that were
        written, is perhaps padding of a structure.
        """
        if not op.record.is_plain_load:
            return True
        (located,) = accesses(op)
        count = len(elements_of(op.operands[located.access.data]))
        size = located.size // count
        missing = [number for number in range(count) if unwritten >> number * size & 1]
        least = Use.COPIED if len(missing) == count else Use.COMPUTED
        return any(self.uses.of(op, number) >= least for number in missing)

    def _hear_less(self, row: int, kind: Suspicion, advice: bool) -> None:
        """Bound how often an instruction reports a suspicion again; the compiled code goes on counting.

        An error is reported once, advice a few times. Padding is known to the compiled code from then on.
        """
        if kind is not Suspicion.UNINITIALISED or not advice:
            # Another load may be one whose registers nobody needs in time.
            again = RACES_AGAIN if kind is Suspicion.TENSOR_LOAD_UNAWAITED else ADVICE_AGAIN
            self._hear(row, kind, again if advice else 0)

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

    def _is_delivered(self, kind: Suspicion, op: Op, numbers: dict[str, int]) -> bool:
        """Return whether a tcgen05.ld without a wait is needed before its thread arrives anywhere.

        Before columns are freed: whether it is not first used behind a barrier.
        """
        if kind is not Suspicion.TENSOR_LOAD_UNAWAITED:
            return False
        load, frees, blocks = self._op_of(numbers["who"]), op.has("dealloc"), self.launch.compiled.blocks
        if (load.site, frees) not in self.delivered:
            delivered = not is_used_behind_a_barrier(load, blocks) if frees else is_delivered(load, blocks)
            self.delivered[load.site, frees] = delivered
        return self.delivered[load.site, frees]

    def _row_of(self, who: int) -> int:
        """Return the row of the access that cells of shadow memory keep."""
        return row_of_number(self.rows, (who >> records.SITE_SHIFT) & records.MOST_NUMBERS)

    def _op_of(self, who: int) -> Op:
        return self.launch.compiled.program.sites[self._row_of(who) // MOST_ROWS]

    def _race_reach(self, kind: Suspicion, state: BlockState, warp: int, numbers: dict[str, int]) -> Reach:
        """Return how far the threads of a race are apart; farther than any, if it is no race."""
        if kind not in RACES:
            return Reach.GRID
        number = int(self.log[numbers["epoch"] & records.EPOCHS])
        warps = self.launch.shape.warps
        return self._reach(state, warp, int(self.begun[number // warps]), number % warps)

    def _farthest(self, space: str) -> Reach:
        """Return how far two threads of the launch may be apart that access memory of a space."""
        shape = self.launch.shape
        if space == "global" and shape.blocks > 1:
            return Reach.GRID
        if shape.cluster_blocks > 1:
            return Reach.CLUSTER
        return Reach.BLOCK if shape.warps > 1 else Reach.WARP

    @staticmethod
    def _space(op: Op, access: LocatedAccess | None, address: int) -> str:
        """Return the state space of an address that an instruction accesses."""
        if access is not None:
            return access.space
        if op.record.touches_tensor_memory:
            return "shared"
        if by_async_proxy(op):  # shared addresses are small numbers, also those of other blocks of a cluster
            return "shared" if 0 <= address < abi.WINDOW_BYTES else "global"
        return op.space

    def _instruction(self, kind: Suspicion, numbers: dict[str, int]) -> tuple[Finding, Other] | None:
        """Return the other instruction of a finding about registers, if there is one."""
        sites = self.launch.compiled.program.sites
        what = "the other instruction"
        if "other" in numbers:
            op = sites[numbers["other"]]
        elif numbers.get("other_row"):
            op = sites[numbers["other_row"] // MOST_ROWS]
        elif "undelivered" in numbers and self.undelivered[numbers["register"]]:
            op = sites[numbers["undelivered"] // MOST_ROWS]
            what = "a shuffle from a lane that takes no part or has no value there"
            if op.record.decodes_answer:
                what = "the block of an answer that names none"
            elif op.record.touches_tensor_memory:
                what = "a load from lanes of tensor memory that nothing was written to"
            elif not op.record.shuffles:
                what = "a read of local memory that nothing was written to"
        else:
            return None
        other = Other(Place(op, source_of(self.launch, op)), Reach.THREAD, writes=False)
        return finding_at(self.launch, op, kind.kind, what), other

    def _operation(self, epoch: int) -> AsyncKind | None:
        """Return how the operation of an epoch completes; None if it is none of the asynchronous proxy."""
        if not len(self.operations):
            return None
        row = self.operations.reshape(-1, NotedOperation.BYTES // 4)[epoch & (OPERATIONS_KEPT - 1)]
        if row[NotedOperation.epoch // 4] != epoch & records.EPOCHS:
            return None
        return AsyncKind(int(row[NotedOperation.kind // 4]))

    def add(self, finding: Finding, counted: tuple[int, Suspicion] | None = None) -> None:
        """Keep a finding unless an equal one was kept before."""
        key = (finding.kind, finding.line, finding.text, finding.allocation, finding.severity)
        if key not in self.findings_by_key:
            if not self.stay_alone():
                raise NotOnItsOwn
            self.findings_by_key[key] = finding, counted
            if self.on_finding is not None:
                self.on_finding(finding)
        elif finding.races:
            first, before = self.findings_by_key[key]
            shown = finding if reach_farther(finding.races, than=first.races) else first
            self.findings_by_key[key] = replace(shown, races=first.races + finding.races), before

    def findings(self) -> list[Finding]:
        """Return all findings in the order in which they came up, with their counts."""
        findings = []
        for finding, counted in self.findings_by_key.values():
            count = 1
            if counted is not None:
                row, kind = counted
                count = max(int(self.rows[row, (SiteRow.counts + 8 * kind) // 8]), 1)
            findings.append(replace(finding, count=count))
        return findings

    def _other(
        self,
        kind: Suspicion,
        state: BlockState,
        warp: int,
        lane: int,
        space: str,
        allocation: str,
        numbers: dict[str, int],
    ) -> tuple[Finding, Other]:
        """Return the other access of a race or of an unfinished copy, as a finding, and who made it."""
        launch, who = self.launch, numbers["who"]
        warps = launch.shape.warps
        number = int(self.log[numbers["epoch"] & records.EPOCHS])
        linear = int(self.begun[number // warps])
        op = self._op_of(who)
        access = access_of(op, self._row_of(who))
        message = f"{space} {access.access.verb if access else 'asynchronous access'}"
        if op.record.touches_tensor_memory:
            message = f"{space} access by {name_of(op)}"
        if who & records.SEVERAL:
            message += " by several lanes, of which this is the first"
        collective = bool(who & records.COLLECTIVE)
        its_lane = 0 if collective else who & (abi.LANES - 1)
        same_lane = its_lane == lane and not collective
        reach = self._reach(state, warp, linear, number % warps)
        place = Place(op, source_of(launch, op))
        thread, address = launch.thread_at(number % warps, its_lane), numbers["address"] & _MASK
        block = launch.block_at(linear)
        finding = finding_at(launch, op, kind.kind, message, thread, block, address, allocation)
        writes = access is None or access.access.writes
        return finding, Other(place, Reach.THREAD if reach is Reach.WARP and same_lane else reach, writes)

    @staticmethod
    def _reach(state: BlockState, warp: int, linear: int, other_warp: int) -> Reach:
        """Return how far a warp of a block is from a warp of a block with a number in the grid."""
        if linear == state[BlockRecord.linear]:
            return Reach.WARP if warp == other_warp else Reach.BLOCK
        return Reach.CLUSTER if linear in state.cluster_numbers else Reach.GRID

    # barriers of a block ------------------------------------------------------------------------------------

    def _barrier_at(self, pc: int) -> Op | None:
        """Return the barrier at which lanes with a program counter wait."""
        if not self.barriers:
            self.barriers = {
                block.following.number: block.op
                for block in reversed(self.launch.compiled.blocks)
                if block.end is BlockEnd.BARRIER and block.following
            }
        return self.barriers.get(pc & (abi.PARKED - 1))

    def _at_barrier(
        self, kind: Suspicion, state: BlockState, warp: int, row: int, numbers: dict[str, int]
    ) -> None:
        """Add a finding about threads that wait at a barrier of the block, at its instruction."""
        if row and kind is not Suspicion.BARRIER_OVERFULL:  # row 0 is for lanes that are elsewhere
            self._hear(row, kind, more=0)
        place = numbers["place"] & 0xFFFFFFFF
        op = self._barrier_at(place)
        if op is None:
            return
        absent = gone = 0
        if kind is Suspicion.SPLIT_BARRIER:
            if not op.record.whole_warps:
                return
            absent, gone = self._missing_lanes(state, warp, place, numbers)
            if not (absent or gone or numbers["bypassed"]):
                return
        launch = self.launch
        here = Place(op, source_of(launch, op))
        facts = Facts(kind, numbers, launch, self.flow, here, None, "", "", absent=absent, gone=gone)
        advice = kind.is_advice or (kind is Suspicion.SPLIT_BARRIER and facts.is_harmless)
        first = int(np.flatnonzero(state.lanes(warp, WarpFrame.pcs, 32) == place)[0])
        finding = finding_at(
            launch,
            op,
            kind.kind,
            facts.message(),
            launch.thread_at(warp, first),
            state.ctaid,
            mend=facts.mend(),
        )
        self.add(replace(finding, severity="advice" if advice else "error"))

    def _missing_lanes(
        self, state: BlockState, warp: int, place: int, numbers: dict[str, int]
    ) -> tuple[int, int]:
        """Return the lanes of a warp that are not at a barrier: those elsewhere, and those that have exited.

        Lanes that `bypassed` the barrier, accessed memory and exited have to be told from those that exited.
        """
        pcs, barriers = (state.lanes(warp, field, 32) for field in (WarpFrame.pcs, WarpFrame.barrier))
        threads = self.launch.shape.threads - abi.LANES * warp
        there = (1 << max(min(threads, abi.LANES), 0)) - 1  # a last warp may not have all lanes
        gone = _mask(pcs == abi.EXITED) & there
        absent = _mask((pcs != place) & (pcs != abi.EXITED))
        if numbers["bypassed"] and not absent:
            # Lanes at the same instruction may wait at another barrier, if its number is in a register.
            absent = _mask(barriers != numbers["barrier"]) & there & ~gone
        return absent, gone


def _mask(lanes: npt.NDArray[np.bool_]) -> int:
    """Return lanes as the bits of a mask."""
    return sum(1 << int(lane) for lane in np.flatnonzero(lanes))
