"""mbarrier: objects in shared memory that count arrivals and bytes; who waits for a phase yields.

The 64 bits of an object: arrivals a phase expects (0-19), those still pending (20-39), bytes still to come
(40-60, signed), a mark that it was initialised (62), the phase's parity (63). A token is the object before.
"""

from __future__ import annotations

from lanewise.jit.simd import Pointer, Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import U32, U64, BlockCode
from lanewise.machine.program.basic_blocks import is_wait
from lanewise.machine.program.resolve import Op, Place
from lanewise.machine.warp_ops.addresses import WRITE, Access, effective_space

COUNT_BITS, BYTES_BITS = 20, 21
MOST = (1 << COUNT_BITS) - 1
PENDING, BYTES, READY, PHASE = COUNT_BITS, 2 * COUNT_BITS, 62, 63
#: What the fault of an object says.
WRONG = {
    0: "no mbarrier was initialised here",
    1: f"a count of arrivals is 1 to {MOST}",
    2: "more arrivals than the phase of the mbarrier still expects",
    3: "an arrival with .noComplete completes the phase",
    4: "more bytes than an mbarrier can count",
}


class _Object:
    """One lane's mbarrier while its instruction is written."""

    def __init__(self, code: BlockCode, op: Op, place: Place, lane: Value, writes: bool) -> None:
        self.code, self.op, self.lane = code, op, lane
        self.address = code.address_of(place, lane)
        access = Access(code, op.site, effective_space(op, place), 8, 8, WRITE if writes else 0)
        self.pointer = Pointer(code, U64, access.host(self.address, lane))
        self.word = self.pointer.load(0)

    def demand(self, holds: Value, why: int) -> None:
        """Stop the launch unless something holds."""
        with self.code.when(~holds):
            self.code.fault(abi.BAD_MBARRIER, self.op.site, self.lane, self.address, why)

    def known(self) -> None:
        """It must have been initialised."""
        self.demand(self.field(READY, 1).differs(0), 0)

    def field(self, start: int, bits: int) -> Value:
        """Some bits of it."""
        return (self.word >> start) & ((1 << bits) - 1)

    def replace(self, start: int, bits: int, value: Value) -> None:
        """Change some bits of it."""
        mask = ((1 << bits) - 1) << start
        self.word = (self.word & ~mask) | ((value << start) & mask)

    def expect(self, bytes: Value) -> None:
        """More bytes to come in this phase; fewer if negative."""
        old = ((self.word << (64 - BYTES - BYTES_BITS)).view(i64) >> (64 - BYTES_BITS)) + bytes.view(i64)
        limit = 1 << BYTES_BITS - 1
        self.demand((old < limit) & (old > -limit), 4)
        self.replace(BYTES, BYTES_BITS, old.view(U64))

    def arrive(self, count: Value, drop: bool = False) -> None:
        """So many arrivals."""
        pending = self.field(PENDING, COUNT_BITS)
        self.demand(count.differs(0) & (count < MOST + 1), 1)
        self.demand(~(count > pending), 2)
        self.replace(PENDING, COUNT_BITS, pending - count)
        if drop:
            self.replace(0, COUNT_BITS, self.field(0, COUNT_BITS) - count)

    def complete(self, allowed: bool = True) -> None:
        """If nothing is pending any more: the next phase begins. Then store it."""
        code = self.code
        done = self.field(PENDING, COUNT_BITS).equals(0) & self.field(BYTES, BYTES_BITS).equals(0)
        if not allowed:
            self.demand(~done, 3)
        fresh = (self.word & ~(((1 << COUNT_BITS) - 1) << PENDING)) | (self.field(0, COUNT_BITS) << PENDING)
        self.pointer.store(done.select(fresh ^ (1 << PHASE), self.word))
        with code.when(done):
            block = code.block
            block.set(abi.PHASES, block.get(abi.PHASES) + 1)


def _place(op: Op, number: int) -> Place:
    place = op.operands[number]
    if not isinstance(place, Place):
        raise op.unsupported("its address is none")
    return place


def lower(code: BlockCode, op: Op) -> None:
    """mbarrier.init and all its kin, lane after lane."""
    verb = op.modifiers[0]
    active = code.bits(code.active(op))
    if verb == "pending_count":
        with code.each_lane(active) as lane:
            state = code.lane_read(op.operands[1], U64, lane)
            code.lane_write(op.operands[0], ((state >> PENDING) & MOST).to(U32), lane)
        return
    if is_wait(op):
        _test(code, op, active)
        return
    first = 1 if verb in ("arrive", "arrive_drop") else 0
    place = _place(op, first)
    with code.each_lane(active) as lane:
        it = _Object(code, op, place, lane, True)
        rest = [code.lane_read(each, U32, lane).to(U64) for each in op.operands[first + 1 :]]
        if verb == "init":
            it.demand(rest[0].differs(0) & (rest[0] < MOST + 1), 1)
            it.pointer.store(rest[0] | (rest[0] << PENDING) | (1 << READY))
        elif verb == "inval":
            it.known()
            it.pointer.store(code.constant(U64, 0))
        elif verb in ("expect_tx", "complete_tx"):
            it.known()
            it.expect(rest[0] if verb == "expect_tx" else 0 - rest[0])
            it.complete()
        elif verb in ("arrive", "arrive_drop"):
            it.known()
            code.lane_write(op.operands[0], it.word, lane)
            count = code.constant(U64, 1)
            if op.has("expect_tx"):
                it.expect(rest[0])
            elif rest:
                count = rest[0]
            it.arrive(count, verb == "arrive_drop")
            it.complete(not op.has("noComplete"))
        else:
            raise op.unsupported("no such operation on an mbarrier")


def arrive_copies(code: BlockCode, op: Op) -> None:
    """cp.async.mbarrier.arrive: copies are done at once, so the thread arrives now, or not to any effect."""
    place = _place(op, 0)
    with code.each_lane(code.bits(code.active(op))) as lane:
        it = _Object(code, op, place, lane, True)
        it.known()
        if op.has("noinc"):
            it.arrive(code.constant(U64, 1))
            it.complete()


def _finished(code: BlockCode, op: Op, lane: Value) -> Value:
    """Whether the phase that one lane asks for is over."""
    it = _Object(code, op, _place(op, 1), lane, False)
    it.known()
    asked = op.operands[2]
    now = it.word >> PHASE
    if op.has("parity"):
        return now.differs(code.lane_read(asked, U32, lane).to(U64) & 1)
    return now.differs(code.lane_read(asked, U64, lane) >> PHASE)


def _test(code: BlockCode, op: Op, active: Value) -> None:
    """The predicate, after the wait."""
    with code.each_lane(active) as lane:
        code.lane_write(op.operands[0], _finished(code, op, lane), lane)


def unfinished(code: BlockCode, op: Op) -> Value:
    """The lanes, as bits, whose phase is not over: they wait before they ask again."""
    found = code.variable(code.constant(U32, 0))
    found.set(code.constant(U32, 0))
    with code.each_lane(code.bits(code.active(op))) as lane:
        waits = ~_finished(code, op, lane)
        found.set(found.get() | (waits.to(U32) << lane.to(U32)))
    return found.get()
