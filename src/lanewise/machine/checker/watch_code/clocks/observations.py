"""Which strong writes a strong read has observed: the observation order of the PTX memory model.

A write precedes a read in observation order if the two are morally strong and the read takes its value from
the write, or from an atomic that the write precedes in that order. A write X then precedes an access Y in
causality order if it precedes such a read Z, and Z precedes Y in base causality order: if Y follows Z in its
thread, or is ordered after it by barriers, releases and acquires (PTX ISA, memory consistency model). No
fence is needed for that: a thread that has seen a flag may access the flag itself by a plain load or store.
What else the writer did before is known only by a release and an acquire.

A thread may observe a write that it does not wait for: then it goes on without that write in another order of
the threads, and the two race. So a write counts only if what the thread decides by the value would have been
different before the write. Where that is not known, it counts as a weak order.
"""

from lanewise.jit.lane_functions import lowest_bit, mask_of, set_bits
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.checker import records
from lanewise.machine.checker.deciding_values import Decision
from lanewise.machine.checker.records import Access, BlockWatch, Flag, ObservedWrites
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    ORDERED,
    UNORDERED,
    WEAKLY_ORDERED,
    need_no_order,
    ordered,
)
from lanewise.machine.checker.watch_code.clocks.vector_clocks import operand_of, warp_of
from lanewise.machine.checker.watch_code.watch_module import ShadowCell, cell_at, load_word

#: The records of warps that observe one cell are so many places apart; an odd number.
WARP_STEP = 37
#: Bytes of a word.
WORD = 4


@inlined
def observed_writes(watch: BlockWatch, place: int, warp: int) -> ObservedWrites:
    """Return the record of what a warp has observed of a cell; another one may be there."""
    number = (place >> 2) + warp * WARP_STEP
    return watch.watch.observed_writes[number & (records.OBSERVATIONS_KEPT - 1)]


@inlined
def takes_value(access: Access, cell: ShadowCell, me: int) -> bool:
    """Return whether a strong read takes its value from a write that is morally strong with it."""
    held, watch = cell.write_epoch, access.watch
    is_of_block = (access.shared == 0) | (held >= watch.start)
    is_write = (held != 0) & (held & records.PENDING == 0)
    return is_write & is_of_block and need_no_order(watch, held, cell.writer, me)


# what a thread has waited for -------------------------------------------------------------------------------


@inlined
def decides_alike(access: Access, lane: int, before: int, now: int) -> bool:
    """Return whether a comparison by which a lane decides has the same result for two words."""
    row = access.row
    other = operand_of(access.frame, lane, row.decision_base, row.decision_constant)
    if row.decision == Decision.EQUAL:
        return (before == other) == (now == other)
    bit = row.flipped_bit
    if row.decision == Decision.BELOW:
        return ((before ^ bit) < (other ^ bit)) == ((now ^ bit) < (other ^ bit))
    return ((before ^ bit) > (other ^ bit)) == ((now ^ bit) > (other ^ bit))


@inlined
def is_waited_for(access: Access, cell: ShadowCell, lane: int, offset: int) -> int:
    """Return whether a lane that reads a word waits for the last write of it, as an order of the two."""
    decision = access.row.decision
    if (decision == Decision.UNKNOWN) | (access.size != WORD):
        return WEAKLY_ORDERED
    if decision == Decision.EXACT:
        return ORDERED
    is_needless = decides_alike(access, lane, cell.replaced_word, load_word(access.host + offset))
    return UNORDERED if is_needless else ORDERED


@inlined
def note_observed(watch: BlockWatch, place: int, lane: int, first: int, last: int, order: int) -> None:
    """Put on record that a lane has observed a chain of writes of a cell; `order` is that of the last one."""
    warp = warp_of(watch, watch.epoch)
    noted = observed_writes(watch, place, warp)
    if (noted.place != place) | (noted.warp != warp):
        noted.place = place
        noted.warp = warp
        noted.first = noted.first ^ noted.first
    if noted.first[lane] != first:
        noted.first[lane] = first
        noted.waited_for[lane] = 0
        noted.last[lane] = 0
    # Of a write that it does not wait for, those before it are observed.
    seen = last if order != UNORDERED else last - 1
    if seen > noted.last[lane]:
        noted.last[lane] = seen
        noted.read[lane] = watch.epoch
    if (order == ORDERED) & (last > noted.waited_for[lane]):
        noted.waited_for[lane] = last
        noted.read[lane] = watch.epoch


@inlined
def observe_cell(access: Access, number: int, lane: int, offset: int, together: int) -> None:
    """Follow a strong access of a lane to one of its cells; `together` are the lanes that access the same.

    An atomic goes on with the chain of the one before it, and observes that. Lanes of one instruction follow
    each other in the same epoch: only the last of them is known to have observed all the others.
    """
    watch, flags, decision = access.watch, access.flags, access.row.decision
    place = access.plane + (((offset >> access.shift) + number) << 2)
    cell = cell_at(place, access.stride)
    reads, writes = flags & Flag.READS != 0, flags & Flag.WRITES != 0
    first, last, order = 0, 0, UNORDERED
    if reads and takes_value(access, cell, access.who | lane):
        first = cell.chain_begin
        last = cell.write_epoch
        if decision != Decision.NONE:
            order = is_waited_for(access, cell, lane, offset)
    elif writes:
        first = watch.epoch
        cell.chain_begin = first
    is_first = lowest_bit(together) == lane
    if not is_first:
        order = WEAKLY_ORDERED
        if together >> lane == 1:
            last = watch.epoch
    if (decision != Decision.NONE) & (first != 0) & (last != 0):
        note_observed(watch, place, lane, first, last, order)
    if writes & is_first:
        cell.replaced_word = load_word(access.host + offset)


@compiled()
def observe(access: Access, lane: int, offset: int) -> None:
    """Follow a strong access of a lane: the chain that its write belongs to, and what its read observes."""
    if (access.row.decision == Decision.NONE) & (access.flags & Flag.WRITES == 0):
        return
    together = access.active & mask_of(access.offsets == offset)
    for number in range(max(access.size >> access.shift, 1)):
        observe_cell(access, number, lane, offset, together)


# what was observed ------------------------------------------------------------------------------------------


@inlined
def order_by_warp(watch: BlockWatch, noted: ObservedWrites, epoch: int, me: int) -> int:
    """Return how an access is ordered after a write of a cell by what lanes of a warp have observed of it."""
    answer = UNORDERED
    for lane in set_bits(mask_of(noted.last >= epoch) & mask_of(noted.first <= epoch)):
        if ordered(watch, noted.read[lane], lane, 1 << lane, me) == ORDERED:
            if noted.waited_for[lane] >= epoch:
                return ORDERED
            answer = WEAKLY_ORDERED
    return answer


@compiled()
def order_by_observation(access: Access, offset: int, epoch: int, writer: int, me: int) -> int:
    """Return how an access is ordered after a write of its cell, because a strong read has observed that.

    Weakly: it is not known whether the thread of the read has waited for the write.
    """
    watch, answer = access.watch, UNORDERED
    is_strong = writer & (records.STRONG | records.STRONG_IN_BLOCK) != 0
    # Lanes that exchange values by volatile accesses alone rely on lock step.
    if (not is_strong) | (writer & me & records.VOLATILE != 0):
        return UNORDERED
    place = access.plane + ((offset >> access.shift) << 2)
    for index in range(watch.warps):
        warp = watch.first_warp + index
        noted = observed_writes(watch, place, warp)
        if (noted.place == place) & (noted.warp == warp):
            order = order_by_warp(watch, noted, epoch, me)
            if order == ORDERED:
                return ORDERED
            answer = max(answer, order)
    return answer
