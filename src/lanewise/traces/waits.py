"""Who waits in a trace: at barriers, for mbarriers, for a warpgroup, for columns of tensor memory.

A warp arrives at a barrier of its block or cluster with an instruction that is logged, and goes on when the
barrier is complete. It waits for a phase of an mbarrier, for the other warps of its warpgroup, or for columns
of tensor memory before the instruction that is logged; so its wait begins with the instruction before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lanewise.draw.tensor_memory import allocated_text
from lanewise.isa.tensor_memory.accumulators import COLUMNS
from lanewise.machine import abi
from lanewise.machine.abi import LANES, WARPGROUP
from lanewise.machine.program.instruction_record import BlockEnd, Order, Waits
from lanewise.machine.program.operands import BranchTarget, MemoryOperand, Register, Symbol
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory_records import UNIT
from lanewise.machine.tracer.log import Numbers
from lanewise.machine.tracer.records import EntryState
from lanewise.machine.warp_ops.mbarrier import PHASE, Phase
from lanewise.ptx import Immediate
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_memory import tensor_reading

#: Where a wait ends that did not end before the trace did.
NEVER = np.iinfo(np.int64).max
_WAITING = (Waits.BARRIER, Waits.CLUSTER, Waits.PHASE, Waits.WARPGROUP, Waits.COLUMNS)


@dataclass(frozen=True)
class Wait:
    """Lanes of a warp that wait: from an entry of the log on, until another one has let them go."""

    kind: Waits
    block: int
    warp: int
    lanes: int
    since: int
    until: int
    #: The number of a barrier of the block, or the generic address of an mbarrier; and the phase's parity.
    barrier: int = 0
    parity: int = 0
    #: How many columns of tensor memory are waited for, and whether a pair of blocks allocates them.
    columns: int = 0
    of_pair: bool = False

    def goes_on(self, entry: int) -> bool:
        """Return whether it is a wait for an mbarrier that an entry does not end."""
        return self.kind is Waits.PHASE and self.since <= entry < self.until


@dataclass(frozen=True)
class Waiting:
    """Lanes of a warp that wait, the step since which they do, what for, and what is missing."""

    warp: int
    lanes: int
    #: The number of a barrier of the block; of an mbarrier, its address in shared memory.
    barrier: int
    since: int
    #: "barrier", "mbarrier", "cluster", "warpgroup" or "columns".
    kind: str = "barrier"
    #: What is waited for, such as "at barrier 0" or "for phase 1 of full+8"; what is missing, in words.
    what: str = ""
    missing: str = ""

    def __str__(self) -> str:
        more = f": {self.missing}" if self.missing else ""
        return f"warp {self.warp} waits {self.what} since step {self.since}{more}"


def waits_of(recording: Recording) -> WaitHistory:
    """Return the waits of a recording; they are found once."""
    history = recording.derived.setdefault("waits", WaitHistory(recording))
    assert isinstance(history, WaitHistory)
    return history


class WaitHistory:
    """All waits of the traced warps."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.log = recording, recording.log

    @cached_property
    def all(self) -> list[Wait]:
        """The waits, in the order in which they began."""
        waits: list[Wait] = []
        entries = self.log.entries
        kinds = np.array(
            [point.op is not None and point.op.record.waits in _WAITING for point in self.log.points]
        )
        for block in self.recording.run.blocks:
            for warp in self.recording.run.warps:
                mine = np.flatnonzero((entries["block"] == block) & (entries["warp"] == warp))
                of_warp: list[Wait] = []
                for position in np.flatnonzero(kinds[entries["point"][mine]]).tolist():
                    if of_warp and of_warp[-1].goes_on(int(mine[position])):
                        continue  # another try of the same wait
                    wait = self._of(mine, position)
                    if wait is not None and wait.until > wait.since + 1:
                        of_warp.append(wait)
                if not of_warp or of_warp[-1].until != NEVER:
                    of_warp += self._at_the_end(mine)
                waits += of_warp
        return sorted(waits, key=lambda wait: wait.since)

    def at(self, entry: int, block: int) -> Iterator[Wait]:
        """Yield the waits of a block's warps that go on after an entry."""
        for wait in self.all:
            if wait.block == block and wait.since <= entry < wait.until:
                yield wait

    # one wait ----------------------------------------------------------------------------------------------

    def _of(self, mine: Numbers, position: int) -> Wait | None:
        """Return the wait of an instruction of a warp, given the warp's entries; None if it did not wait."""
        entries, entry = self.log.entries, int(mine[position])
        header, op = entries[entry], self.recording.op(entry)
        assert op is not None
        lanes, block, warp = int(header["active"]), int(header["block"]), int(header["warp"])
        if not lanes:
            return None
        if op.record.waits is Waits.BARRIER:
            barrier = self.recording.barrier_of(entry)
            if barrier is None:
                return None
            until = min(self._completion(entry, block, barrier), self._next(mine, position, lanes))
            return Wait(Waits.BARRIER, block, warp, lanes, entry, until, barrier)
        if op.record.waits is Waits.CLUSTER:
            return Wait(Waits.CLUSTER, block, warp, lanes, entry, self._next(mine, position, lanes))
        before = self._before(mine, position, lanes)
        if before is None:
            return None
        if op.record.waits is Waits.WARPGROUP:
            until = self.recording.warpgroup_entry(entry)
            return Wait(Waits.WARPGROUP, block, warp, lanes, before, until)
        if op.record.waits is Waits.COLUMNS:
            wait = self._columns(op, block, warp, lanes, before, entry)
            return wait if self._lacking(wait, before) else None
        return self._phase(op, block, warp, lanes, before)

    def _at_the_end(self, mine: Numbers) -> Iterator[Wait]:
        """Yield the waits that a warp was in when the launch ended without it: a deadlock, or a fault."""
        entries, left = self.log.entries, (1 << LANES) - 1
        for entry in mine[::-1].tolist():
            header, op = entries[entry], self.recording.op(entry)
            lanes = int(header["lanes"]) & left
            if not lanes or op is None or int(header["state"]) != EntryState.COMPLETE:
                left &= ~lanes
                continue
            left &= ~lanes
            taken = lanes & int(header["active"])
            for following, there in self._followers(op, taken, lanes & ~taken):
                block, warp = int(header["block"]), int(header["warp"])
                if there and following.record.waits is Waits.PHASE:
                    wait = self._phase(following, block, warp, there, entry)
                    if wait is not None:
                        yield wait
                elif there and following.record.waits is Waits.WARPGROUP:
                    yield Wait(Waits.WARPGROUP, block, warp, there, entry, NEVER)
                elif there and following.record.waits is Waits.COLUMNS:
                    yield self._columns(following, block, warp, there, entry, NEVER)
            if not left:
                return

    def _followers(self, op: Op, taken: int, others: int) -> Iterator[tuple[Op, int]]:
        """Yield the instructions that may come next, with the lanes that go there."""
        body = next((body for body in self.recording.program.bodies if op in body.ops), None)
        if body is None:
            return
        position = body.ops.index(op)
        following = body.ops[position + 1] if position + 1 < len(body.ops) else None
        if op.record.ends is BlockEnd.JUMP:
            targets = [operand for operand in op.operands if isinstance(operand, BranchTarget)]
            for position in targets[0].positions if targets else ():
                if body.labels[position] < len(body.ops):
                    yield body.ops[body.labels[position]], taken
            if following is not None:
                yield following, others
        elif op.record.ends is BlockEnd.FALLTHROUGH and following is not None:
            yield following, taken | others

    def _completion(self, entry: int, block: int, barrier: int) -> int:
        """Return the entry at which a barrier of a block was complete; NEVER if it was not."""
        entries, done = self.log.entries, self.recording.completions
        later = done[np.searchsorted(done, entry) :]
        mine = later[(entries["block"][later] == block) & (entries["barrier"][later] == barrier)]
        return int(mine[0]) if len(mine) else NEVER

    def _next(self, mine: Numbers, position: int, lanes: int) -> int:
        """Return the next entry of some lanes of a warp; NEVER if there is none."""
        for entry in mine[position + 1 :].tolist():
            if int(self.log.entries["lanes"][entry]) & lanes:
                return int(entry)
        return NEVER

    def _before(self, mine: Numbers, position: int, lanes: int) -> int | None:
        """Return the entry before, of some lanes of a warp; None if there is none."""
        for entry in mine[:position][::-1].tolist():
            if int(self.log.entries["lanes"][entry]) & lanes:
                return int(entry)
        return None

    # columns of tensor memory ------------------------------------------------------------------------------

    def _columns(self, op: Op, block: int, warp: int, lanes: int, since: int, until: int) -> Wait:
        """Return the wait of a tcgen05.alloc."""
        lane = (lanes & -lanes).bit_length() - 1
        columns = self._held(op.operands[1], block, warp, lane, since) or 0
        of_pair = op.has("cta_group::2")
        return Wait(Waits.COLUMNS, block, warp, lanes, since, until, columns=columns, of_pair=of_pair)

    def _lacking(self, wait: Wait, entry: int) -> str:
        """Return why columns that a warp asks for cannot be had after an entry; empty if they can."""
        reading = tensor_reading(self.recording)
        blocks = [wait.block, reading.partner(wait.block)] if wait.of_pair else [wait.block]
        allocated = [columns for block in blocks for columns in reading.allocated(block, entry)]
        columns = {column for span in allocated for column in span}
        places = range(0, COLUMNS - wait.columns + 1, UNIT)
        if all(columns.intersection(range(first, first + wait.columns)) for first in places):
            return allocated_text(tuple(sorted(allocated, key=lambda columns: columns.start)))
        if wait.of_pair and not self._has_asked(blocks[1], entry):
            return f"block {self.recording.block_at(blocks[1])} has not asked for its part"
        return ""

    def _has_asked(self, block: int, entry: int) -> bool:
        """Return whether a warp of a block has come to a tcgen05.alloc by an entry."""
        entries = self.log.entries
        for warp in self.recording.run.warps:
            mine = np.flatnonzero((entries["block"] == block) & (entries["warp"] == warp))
            for position in range(1, len(mine)):
                op = self.recording.op(int(mine[position]))
                if op is not None and op.record.allocates_tensor_memory and int(mine[position - 1]) <= entry:
                    return True
        return False

    # mbarriers ---------------------------------------------------------------------------------------------

    def _phase(self, op: Op, block: int, warp: int, lanes: int, since: int) -> Wait | None:
        """Return the wait for a phase of an mbarrier; None if the phase was complete already."""
        lane = (lanes & -lanes).bit_length() - 1
        address = self._address(op, block, warp, lane, since)
        asked = op.operands[2]
        number = self._held(asked, block, warp, lane, since)
        if address is None or number is None:
            return None
        parity = number & 1 if op.has("parity") else number >> PHASE & 1
        owner, plain = self._owner(block, address)
        if self.word(owner, plain, since) >> PHASE != parity:
            return None
        written, words = self.recording.memory.words(owner, plain)
        done = written[(written > since) & (words >> np.uint64(PHASE) != parity)]
        # A try in vain is made again and again.
        until = int(done[0]) if len(done) else NEVER
        return Wait(Waits.PHASE, block, warp, lanes, since, until, address, parity)

    def _address(self, op: Op, block: int, warp: int, lane: int, entry: int) -> int | None:
        """Return the generic address of the mbarrier that a lane names."""
        operand = op.operands[op.record.memory[0].operand]
        if not isinstance(operand, MemoryOperand):
            return None
        if isinstance(operand.base, Symbol):
            first = operand.base.address
            if operand.base.space == "dynamic":
                first += self.recording.program.dynamic_offset
            return abi.SHARED_WINDOW + first + operand.offset
        held = self._held(operand.base, block, warp, lane, entry)
        if held is None:
            return None
        is_generic = held >= abi.SHARED_WINDOW
        return held + operand.offset + (0 if is_generic else abi.SHARED_WINDOW)

    def _held(self, operand: object, block: int, warp: int, lane: int, entry: int) -> int | None:
        """Return the number that a lane holds after an entry, or a constant."""
        if isinstance(operand, Immediate):
            return int(operand.bits)
        if not isinstance(operand, Register):
            return None
        values, _ = self.recording.registers.last(block, warp, [operand], entry)
        return int(values[lane])

    def _owner(self, block: int, address: int) -> tuple[int, int]:
        """Return the block whose shared memory an address lies in, and the address there."""
        blocks, plain = self.log.owners(np.array([block]), np.array([address], np.uint64))
        return int(blocks[0]), int(plain[0])

    def word(self, block: int, address: int, entry: int) -> int:
        """Return the 64 bits of an mbarrier after an entry; 0 if it was not initialised."""
        written, words = self.recording.memory.words(block, address)
        number = int(np.searchsorted(written, entry, "right"))
        return int(words[number - 1]) if number else 0

    # in words ----------------------------------------------------------------------------------------------

    def described(self, wait: Wait, entry: int) -> Waiting:
        """Return a wait in words, as it stands after an entry."""
        since = max(int(np.searchsorted(self.recording.steps, wait.since, "right")) - 1, 0)
        barrier, name = wait.barrier, wait.kind.name.lower()
        if wait.kind is Waits.BARRIER:
            what, missing = f"at barrier {barrier}", self._arrivals(wait, entry)
        elif wait.kind is Waits.CLUSTER:
            what, missing = "at the barrier of its cluster", self._cluster_arrivals(wait, entry)
        elif wait.kind is Waits.WARPGROUP:
            what, missing = "for the other warps of its warpgroup", self._missing_warps(wait, entry)
        elif wait.kind is Waits.COLUMNS:
            what, missing = f"for {wait.columns} columns of tensor memory", self._lacking(wait, entry)
        else:
            owner, plain = self._owner(wait.block, barrier)
            whose = "" if owner == wait.block else f" of block {self.recording.block_at(owner)}"
            place = self.recording.described(barrier)
            what = f"for the phase of parity {wait.parity} of the mbarrier {place}{whose}"
            word = self.word(owner, plain, entry)
            lacks = str(Phase.of(word)) if word else ""
            missing = f"it lacks {lacks}" if word else "it was not initialised"
            name, barrier = "mbarrier", barrier - abi.SHARED_WINDOW & abi.OFFSET_MASK
        return Waiting(wait.warp, wait.lanes, barrier, since, name, what, missing)

    @cached_property
    def _barrier_points(self) -> npt.NDArray[np.bool_]:
        """Which points are instructions of barriers of a block."""
        return np.array(
            [point.op is not None and point.op.record.waits is Waits.BARRIER for point in self.log.points]
        )

    def _arrivals(self, wait: Wait, entry: int) -> str:
        """Return how many threads have arrived at a barrier of the block; empty if not all are traced."""
        run, entries = self.recording.run, self.log.entries
        if len(run.warps) < run.shape.warps:
            return ""
        done = self.recording.completions
        mine = done[(entries["block"][done] == wait.block) & (entries["barrier"][done] == wait.barrier)]
        first = mine[mine <= wait.since]
        start = int(first[-1]) if len(first) else -1
        op = self.recording.op(wait.since)
        wanted = run.shape.block[0] * run.shape.block[1] * run.shape.block[2]
        counts = [
            operand
            for operand in (op.operands[1:2] if op is not None else ())
            if isinstance(operand, Immediate)
        ]
        if counts:
            wanted = int(counts[0].bits)
        part = entries[start + 1 : entry + 1]
        at_barriers = self._barrier_points[part["point"]] & (part["block"] == wait.block)
        arrived = sum(
            int(entries["active"][number]).bit_count()
            for number in (np.flatnonzero(at_barriers) + start + 1).tolist()
            if self.recording.barrier_of(number, arrivals=True) == wait.barrier
        )
        return f"{arrived} of {wanted} threads have arrived"

    def _cluster_arrivals(self, wait: Wait, entry: int) -> str:
        """Return which traced warps have not arrived at the barrier of the cluster as often as this one."""
        entries = self.log.entries
        arrivals = [
            point.number
            for point in self.log.points
            if point.op is not None and point.op.record.orders is Order.CLUSTER_ARRIVAL
        ]
        seen = np.isin(entries["point"][: entry + 1], arrivals)

        def count(block: int, warp: int) -> int:
            of_warp = (entries["block"][: entry + 1] == block) & (entries["warp"][: entry + 1] == warp)
            return int(np.count_nonzero(seen & of_warp))

        own = count(wait.block, wait.warp)
        run = self.recording.run
        late = [
            f"warp {warp} of block {self.recording.block_at(block)}"
            for block in run.blocks
            for warp in run.warps
            if count(block, warp) < own
        ]
        if late:
            more = f" and {len(late) - 4} more" if len(late) > 4 else ""
            return f"{', '.join(late[:4])}{more} {'have' if len(late) > 1 else 'has'} not arrived"
        return "" if len(run.blocks) == run.shape.blocks else "blocks that are not traced have not arrived"

    def _missing_warps(self, wait: Wait, entry: int) -> str:
        """Return the warps of the warpgroup that do not wait here yet."""
        first = wait.warp // WARPGROUP * WARPGROUP
        here = {other.warp for other in self.at(entry, wait.block) if other.kind is Waits.WARPGROUP}
        others = [str(warp) for warp in range(first, first + WARPGROUP) if warp not in here]
        return f"warp{'s' if len(others) > 1 else ''} {', '.join(others)} missing" if others else ""
