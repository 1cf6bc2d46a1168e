"""Lowerings of mbarrier: objects in shared memory that count arrivals and bytes.

The 64 bits of an object: arrivals that a phase expects (0-19), those still pending (20-39), bytes still to
come (40-60, signed), what is known of the phase before (61-62, a Before; 0 if the object is not initialised),
the phase's parity (63). A token is the object before the arrival. Lanes that wait for a phase yield.

Messages about deadlocks need to know whether anybody has seen that a phase was completed: if not, more
threads arrive than it was initialised for, or a wait is missing. The block's record keeps the first mbarrier
of which a phase is completed while nobody has seen that the one before was.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from lanewise.jit.simd import Code, Pointer, Value, Variable, i64, u32, u64
from lanewise.machine.abi import BlockRecord, FaultKind
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record, shared_routine
from lanewise.machine.codegen.pending_operations import finish_copies
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import WRITE, Access, reached_space

COUNT_BITS, BYTES_BITS = 20, 21
MOST = (1 << COUNT_BITS) - 1
PENDING, BYTES, BEFORE, PHASE = COUNT_BITS, 2 * COUNT_BITS, 61, 63
BEFORE_BITS = 2
NOT_INITIALISED, TOO_MANY_ARRIVALS = 0, 2
#: The messages of mbarrier faults, by their number.
WRONG = {
    NOT_INITIALISED: "no mbarrier was initialised here",
    1: f"a count of arrivals must be 1 to {MOST}",
    TOO_MANY_ARRIVALS: "there are more arrivals than the phase of the mbarrier still expects",
    3: "an arrival with .noComplete would complete the phase",
    4: "there are more bytes than an mbarrier can count",
}


class Before(IntEnum):
    """What is known of the phase before the one that an mbarrier is in."""

    #: There is none: no phase has been completed.
    NONE = 1
    #: A thread has tested it, and knows that it is complete.
    SEEN = 2
    UNSEEN = 3


#: What mends each of them.
MENDS = {
    NOT_INITIALISED: (
        "let one thread initialise it first (mbarrier.init), then all threads meet at a barrier of the block"
    ),
    1: f"give a count of 1 to {MOST}",
    TOO_MANY_ARRIVALS: "initialise it with the number of arrivals of a phase, or let fewer threads arrive",
    3: "leave out .noComplete for the last arrival of a phase",
    4: "announce fewer bytes in a phase, or copy in several phases",
}


class Phase(NamedTuple):
    """The phase of an mbarrier object: what it expects, and what it still lacks.

    >>> str(Phase.of(2 | 1 << 20 | 4096 << 40 | 1 << 62))
    '1 of 2 arrivals and 4096 bytes'
    """

    expected: int
    pending: int
    bytes: int
    #: The parity of the phase: 0 for the first, 1 for the second, and so on.
    parity: int = 0
    before: Before = Before.NONE

    @classmethod
    def of(cls, word: int) -> Phase:
        """Return the phase of an object, by its 64 bits."""
        count = (word >> BYTES) & ((1 << BYTES_BITS) - 1)
        count -= count >> (BYTES_BITS - 1) << BYTES_BITS
        before = Before(max(word >> BEFORE & ((1 << BEFORE_BITS) - 1), Before.NONE))
        return cls(word & MOST, (word >> PENDING) & MOST, count, word >> PHASE & 1, before)

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has come in this phase."""
        return self.pending == self.expected and not self.bytes

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has ever come."""
        return self.is_untouched and self.before is Before.NONE

    def __str__(self) -> str:
        come = f"an expect_tx for {-self.bytes} bytes that have come"
        more = f"{self.bytes} bytes" if self.bytes >= 0 else come
        arrivals = f"{self.pending} of {self.expected} arrivals"
        parts = [*([arrivals] if self.pending else []), *([more] if self.bytes else [])]
        return " and ".join(parts) or "nothing: the thread waits for another phase"


class _Object:
    """One lane's mbarrier object while its instruction is lowered."""

    def __init__(self, code: BlockCode, op: Op, lane: Value) -> None:
        self.code, self.op, self.lane = code, op, lane
        (located,) = accesses(op)
        self.address = code.address_of(located.address, lane)
        flags = WRITE if located.access.writes else 0
        access = Access(code, op.site, reached_space(op, located), located.size, located.size, flags)
        self.pointer = Pointer(code, u64, access.host(self.address, lane))
        self.word = self.pointer.load(0)

    def demand(self, holds: Value, why: int) -> None:
        """Stop the launch unless a condition holds."""
        with self.code.when(~holds):
            self.code.fault(FaultKind.MBARRIER, self.op.site, self.lane, self.address, why)

    def known(self) -> None:
        """Stop the launch unless the object was initialised."""
        self.demand(self.field(BEFORE, BEFORE_BITS).differs(0), NOT_INITIALISED)

    def field(self, start: int, bits: int) -> Value:
        """Return a bit field of the object."""
        return (self.word >> start) & ((1 << bits) - 1)

    def replace(self, start: int, bits: int, value: Value) -> None:
        """Replace a bit field of the object."""
        mask = ((1 << bits) - 1) << start
        self.word = (self.word & ~mask) | ((value << start) & mask)

    def bytes_to_come(self) -> Value:
        """Return the bytes that are still to come; negative if more have come than were announced."""
        return (self.word << (64 - BYTES - BYTES_BITS)).view(i64) >> (64 - BYTES_BITS)

    def host(self) -> Value:
        """Return the object's address on the host."""
        return Value(self.code, i64, self.code.builder.ptrtoint(self.pointer.handle, i64.ir))

    def note_surplus(self) -> None:
        """Keep the bytes that have come and were not announced, once, for messages about deadlocks."""
        block, surplus = self.code.block, 0 - self.bytes_to_come()
        with self.code.when((surplus > 0) & block.get(BlockRecord.surplus).equals(0)):
            block.set(BlockRecord.surplus, surplus)
            block.set(BlockRecord.surplus_barrier, self.host())

    def expect(self, bytes: Value) -> None:
        """Add to the bytes that are still to come in this phase; the number may be negative."""
        old, limit = self.bytes_to_come() + bytes.view(i64), 1 << BYTES_BITS - 1
        self.demand((old < limit) & (old > -limit), 4)
        self.replace(BYTES, BYTES_BITS, old.view(u64))

    def arrive(self, count: Value, drop: bool = False) -> None:
        """Subtract arrivals from those pending."""
        pending = self.field(PENDING, COUNT_BITS)
        self.demand(count.differs(0) & (count < MOST + 1), 1)
        self.demand(~(count > pending), TOO_MANY_ARRIVALS)
        self.replace(PENDING, COUNT_BITS, pending - count)
        if drop:
            self.replace(0, COUNT_BITS, self.field(0, COUNT_BITS) - count)

    def complete(self, allowed: bool = True, completed: Variable | None = None) -> None:
        """Store the object; if nothing is pending any more, the next phase begins.

        `completed` is the address at which a lane of this instruction has completed a phase before, plus one.
        A second phase there is one too many, which the block's record keeps for messages.
        """
        code = self.code
        done = self.field(PENDING, COUNT_BITS).equals(0) & self.field(BYTES, BYTES_BITS).equals(0)
        if not allowed:
            self.demand(~done, 3)
        self.pointer.store(done.select(_next_phase(self.word), self.word))
        with code.when(done):
            block = code.block
            if completed is not None:
                with code.when(completed.get().equals(self.address + 1)):
                    block.set(BlockRecord.overrun_at_once, self.host())
                completed.set(self.address + 1)
            _note_phase(code, block, self.word, self.host())


def _next_phase(word: Value) -> Value:
    """Return an object whose phase is complete in its next phase, whose parity is the other one."""
    fresh = (word & ~(MOST << PENDING)) | ((word & MOST) << PENDING)
    return (fresh | (Before.UNSEEN << BEFORE)) ^ (1 << PHASE)


def _note_phase(code: Code, block: Record, word: Value, host: Value) -> None:
    """Count a phase that is complete; keep the mbarrier if nobody has seen that the phase before was."""
    block.set(BlockRecord.phases, block.get(BlockRecord.phases) + 1)
    unseen = ((word >> BEFORE) & ((1 << BEFORE_BITS) - 1)).equals(Before.UNSEEN)
    with code.when(unseen & block.get(BlockRecord.overrun).equals(0)):
        block.set(BlockRecord.overrun, host)


def lower(code: BlockCode, op: Op) -> None:
    """Lower mbarrier.init, inval, expect_tx, complete_tx, arrive and arrive_drop, lane after lane."""
    verb = op.modifiers[0]
    if verb not in op.record.modifiers:
        raise op.unsupported(f"what it does stands directly after mbarrier, where .{verb} stands")
    after_address = op.record.memory[0].operand + 1
    completed = code.variable(code.constant(u64, 0))
    with code.each_lane(code.bits(code.active(op))) as lane:
        barrier = _Object(code, op, lane)
        rest = [code.lane_read(operand, u32, lane).to(u64) for operand in op.operands[after_address:]]
        if verb == "init":
            if not rest:
                raise op.unsupported("it names no count of arrivals")
            barrier.demand(rest[0].differs(0) & (rest[0] < MOST + 1), 1)
            barrier.pointer.store(rest[0] | (rest[0] << PENDING) | (Before.NONE << BEFORE))
        elif verb == "inval":
            barrier.known()
            barrier.pointer.store(code.constant(u64, 0))
        elif verb in ("expect_tx", "complete_tx"):
            barrier.known()
            if verb == "expect_tx":
                barrier.note_surplus()
            barrier.expect(rest[0] if verb == "expect_tx" else 0 - rest[0])
            barrier.complete()
        else:
            barrier.known()
            code.lane_write(op.operands[0], barrier.word, lane)
            count = code.constant(u64, 1)
            if op.has("expect_tx"):
                barrier.note_surplus()
                barrier.expect(rest[0])
            elif rest:
                count = rest[0]
            barrier.arrive(count, verb == "arrive_drop")
            barrier.complete(not op.has("noComplete"), completed)


def pending_count(code: BlockCode, op: Op) -> None:
    """Lower mbarrier.pending_count: the arrivals that the phase of a token still expected."""
    with code.each_lane(code.bits(code.active(op))) as lane:
        state = code.lane_read(op.operands[1], u64, lane)
        code.lane_write(op.operands[0], ((state >> PENDING) & MOST).to(u32), lane)


def arrive_copies(code: BlockCode, op: Op) -> None:
    """Lower cp.async.mbarrier.arrive: copies that were kept take effect, and the thread arrives now.

    Without .noinc the arrival is added to those expected, and nothing changes.
    """
    pending = code.block.get(BlockRecord.pending).differs(0)
    with code.each_lane(code.bits(code.active(op))) as lane:
        with code.when(pending):
            code.invoke(finish_copies(code.module), code["frame"], lane)
        barrier = _Object(code, op, lane)
        barrier.known()
        if op.has("noinc"):
            barrier.arrive(code.constant(u64, 1))
            barrier.complete()


def _finished(code: BlockCode, op: Op, lane: Value) -> Value:
    """Return whether the phase that one lane asks for is complete."""
    barrier = _Object(code, op, lane)
    barrier.known()
    asked = op.operands[2]
    now = barrier.word >> PHASE
    if op.has("parity"):
        finished = now.differs(code.lane_read(asked, u32, lane).to(u64) & 1)
    else:
        finished = now.differs(code.lane_read(asked, u64, lane) >> PHASE)
    with code.when(finished & barrier.field(BEFORE, BEFORE_BITS).equals(Before.UNSEEN)):
        barrier.pointer.store(barrier.word ^ ((Before.UNSEEN ^ Before.SEEN) << BEFORE))
    return finished


def test_wait(code: BlockCode, op: Op) -> None:
    """Lower mbarrier.test_wait and try_wait: write the predicate after lanes have waited for the phase."""
    with code.each_lane(code.bits(code.active(op))) as lane:
        code.lane_write(op.operands[0], _finished(code, op, lane), lane)


def unfinished(code: BlockCode, op: Op) -> Value:
    """Return the lanes, as bits, whose phase is not complete; they wait before they test again."""
    waiting = code.variable(code.constant(u32, 0))
    with code.each_lane(code.bits(code.active(op))) as lane:
        waits = ~_finished(code, op, lane)
        waiting.set(waiting.get() | (waits.to(u32) << lane.to(u32)))
    return waiting.get()


@shared_routine("arrive_once", ("block", "host"), quickly=True)
def arrive_once(code: FunctionCode) -> None:
    """`arrive_once(block, host)`: one arrival at an mbarrier of a block, given by its host address.

    It returns 0, or one more than the number of what is WRONG.
    """
    place = code.record("host").pointer(0, u64)
    word = place.load(0)
    with code.when(((word >> BEFORE) & ((1 << BEFORE_BITS) - 1)).equals(0)):
        code.give(1)
    pending = (word >> PENDING) & MOST
    with code.when(pending.equals(0)):
        code.give(3)
    _store_phase(code, place, word - (1 << PENDING))


def _store_phase(code: FunctionCode, place: Pointer, word: Value) -> None:
    """Store an mbarrier object of a block; if nothing is pending any more, its next phase begins."""
    bytes_ = ((1 << BYTES_BITS) - 1) << BYTES
    done = (word & (bytes_ | MOST << PENDING)).equals(0)
    place.store(done.select(_next_phase(word), word))
    with code.when(done):
        _note_phase(code, Record(code, code["block"]), word, code["host"])


@shared_routine("complete_bytes", ("block", "host", "bytes"), quickly=True)
def complete_bytes(code: FunctionCode) -> None:
    """`complete_bytes(block, host, bytes)`: bytes have arrived for an mbarrier of a block.

    The object is given by its host address. It returns 0, or one more than the number of what is WRONG.
    """
    place = code.record("host").pointer(0, u64)
    word = place.load(0)
    with code.when(((word >> BEFORE) & ((1 << BEFORE_BITS) - 1)).equals(0)):
        code.give(1)
    old = (word << (64 - BYTES - BYTES_BITS)).view(i64) >> (64 - BYTES_BITS)
    left, limit = old - code["bytes"], 1 << BYTES_BITS - 1
    with code.when(~((left < limit) & (left > -limit))):
        code.give(5)
    mask = ((1 << BYTES_BITS) - 1) << BYTES
    _store_phase(code, place, (word & ~mask) | ((left.view(u64) << BYTES) & mask))
