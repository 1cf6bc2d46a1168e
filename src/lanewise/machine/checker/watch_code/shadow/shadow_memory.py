"""Shadow memory: the last write and the last reads of each cell of 1, 2 or 4 bytes.

An access that no unordered access came before costs a few vector instructions (`shadow_vectors.py`). All
others are examined cell by cell here, and what looks wrong is reported to Python, where `triage.py` decides.
"""

from lanewise.jit.lane_functions import address_of, mask_of, set_bits, unsigned_less
from lanewise.jit.record_layout import RecordLayout, field
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.records import MOST_ELEMENTS, Access, Flag
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.happens_before import (
    ORDERED,
    UNORDERED,
    WEAKLY_ORDERED,
    lane_of,
    lanes_of,
    ordered,
)
from lanewise.machine.checker.watch_code.clocks.observations import order_by_observation
from lanewise.machine.checker.watch_code.clocks.vector_clocks import lane_is_in, suspect, warp_of
from lanewise.machine.checker.watch_code.proxy.completion import async_finished, finished
from lanewise.machine.checker.watch_code.watch_module import (
    LANES,
    ByteArray,
    LaneBytes,
    LaneLongs,
    LaneShorts,
    LaneWords,
    ShadowCell,
    cell_of,
    follows_async,
    load_byte,
    load_short,
    load_word,
    shifted_right,
)
from lanewise.machine.runtime.heap import ByteState

# what a store writes ----------------------------------------------------------------------------------------


@inlined
def register_bits(frame: WarpFrame, register: int, bits: int, lane: int) -> int:
    """Return the bits of a register of one lane."""
    place = address_of(frame) + register
    if bits == 8:
        return LaneBytes.at(place).bytes[lane]
    if bits == 16:
        return LaneShorts.at(place).shorts[lane]
    return LaneWords.at(place).words[lane] if bits == 32 else LaneLongs.at(place).longs[lane]


@inlined
def element_bits(access: Access, number: int, lane: int) -> int:
    """Return the bits of an element of what a lane stores, or of what decides on it."""
    element = access.row.stored[number]
    bits = element.constant
    if element.register >= 0:
        bits = register_bits(access.frame, element.register, element.register_bits, lane)
    return bits


@compiled()
def stored_bits(access: Access, lane: int, offset: int) -> int:
    """Return the bits that a lane of a store writes to a cell at an offset."""
    byte, size = offset - access.offsets[lane], access.row.stored[0].bytes
    bits = element_bits(access, byte // size, lane)
    return shifted_right(bits, (byte % size) * 8) & ((1 << (8 << access.shift)) - 1)


@compiled()
def decide_alike(access: Access, one: int, other: int) -> bool:
    """Return whether two lanes write the same, of which only what decides on it is known."""
    for number in range(0 - access.row.stored_count):
        if element_bits(access, number, one) != element_bits(access, number, other):
            return False
    return access.offsets[one] == access.offsets[other]


@compiled()
def content(access: Access, offset: int) -> int:
    """Return the bits that memory holds where a cell is."""
    place = access.host + offset
    if access.shift == 0:
        return load_byte(place)
    return load_short(place) if access.shift == 1 else load_word(place)


@inlined
def is_in_row(access: Access, row: int, offset: int) -> bool:
    """Return whether a row of stmatrix has the cell at an offset."""
    return unsigned_less(offset - access.offsets[row], access.size)


@compiled()
def row_bits(access: Access, row: int, offset: int) -> int:
    """Return the bits that a row of stmatrix writes to a cell at an offset."""
    elements, start = access.row.stored, offset - access.offsets[row]
    size = elements[0].bytes
    bits = 0
    for number in range(1 << access.shift):
        byte = start + number
        element = elements[(row * access.size + byte) // size]
        held = register_bits(access.frame, element.register, element.register_bits, element.lane)
        bits |= (shifted_right(held, element.first_bit + (byte % size) * 8) & 255) << (8 * number)
    return bits


@compiled()
def rows_write(access: Access, offset: int, bits: int) -> bool:
    """Return whether all rows of stmatrix that have a cell write the same bits to it."""
    for row in set_bits(access.active):
        if is_in_row(access, row, offset) and row_bits(access, row, offset) != bits:
            return False
    return True


@compiled()
def rows_agree(access: Access, offset: int) -> bool:
    """Return whether all rows of stmatrix that have a cell write the same to it."""
    for row in set_bits(access.active):
        if is_in_row(access, row, offset):
            return rows_write(access, offset, row_bits(access, row, offset))
    return True


@inlined
def stores_what_is_there(access: Access, me: int, offset: int) -> bool:
    """Return whether a plain store or stmatrix writes the value that is there, which changes nothing."""
    if access.row.stored_count <= 0:
        return False
    if access.flags & Flag.MATRIX != 0:
        return rows_write(access, offset, content(access, offset))
    return stored_bits(access, lane_of(me), offset) == content(access, offset)


# examining a cell -------------------------------------------------------------------------------------------


@inlined
def suspect_access(access: Access, me: int, offset: int, kind: int, epoch: int, who: int) -> None:
    """Report a suspicion about a cell and another access to it."""
    suspect(kind, access.frame, access.site, lane_of(me), access.origin + offset, epoch, who)


@inlined
def is_padding(access: Access, me: int, offset: int) -> bool:
    """Count a cell and return true if it lies where triage has seen padding of a structure before."""
    row, watch, start = access.row, access.watch, access.offsets[lane_of(me)]
    byte = (offset - start) & 63
    is_known = lane_is_in(byte, row.dropped_bytes)
    if not is_known and lane_is_in(byte, row.copied_bytes):
        first = start & -row.padded_block
        end = min(max(first + row.padded_block, start + row.access_size), watch.shared_bytes)
        for neighbour in range(first, end):
            if cell_of(access, neighbour).write_epoch & records.EPOCHS >= watch.start:
                is_known = True
    if is_known:
        row.counts[Suspicion.UNINITIALISED] += 1
    return is_known


@inlined
def floor_of(access: Access) -> int:
    """Return the epoch before the first that counts: of shared memory, that in which the block began."""
    return access.watch.start - 1 if access.shared != 0 else 0


@inlined
def writes_now(access: Access, lane: int, offset: int) -> bool:
    """Return whether a lane is one of those that access a cell by this instruction."""
    return lane_is_in(lane, access.active) and unsigned_less(offset - access.offsets[lane], access.size)


@compiled()
def other_writers(access: Access, writers: int, me: int, offset: int, writes: bool) -> int:
    """Return which lanes of this warp, of those that wrote one value to a cell, an access has to come after.

    A lane that was among them reads what it wrote. Lanes that all write again do so after themselves.
    """
    if not writes:
        return 0 if writers & lanes_of(me) != 0 else writers
    others = 0
    for lane in set_bits(writers):
        if not writes_now(access, lane, offset):
            others |= 1 << lane
    return others


@inlined
def writers_before(access: Access, cell: ShadowCell, me: int, offset: int, writes: bool) -> int:
    """Return the lanes whose last write of a cell an access has to come after."""
    watch, writer = access.watch, cell.writer
    is_same_warp = warp_of(watch, cell.write_epoch & records.EPOCHS) == warp_of(watch, watch.epoch)
    if (writer & records.SEVERAL != 0) & is_same_warp:
        return other_writers(access, cell.write_lanes, me, offset, writes)
    return lanes_of(writer)


@inlined
def check_after_write(access: Access, cell: ShadowCell, me: int, offset: int, writes: bool) -> bool:
    """Report the last write of a cell if it is not complete or not ordered before; true if it is good."""
    watch, writer, held = access.watch, cell.writer, cell.write_epoch
    epoch = held & records.EPOCHS
    update_both = writer & me & records.ATOMIC != 0
    if (held & records.PENDING != 0) & (not update_both) and not finished(watch, epoch, writer, me):
        suspect_access(access, me, offset, Suspicion.UNFINISHED_COPY, epoch, writer)
        return True  # what else is wrong with the cell is reported, too
    # An asynchronous operation that is known to be complete is known to have happened before.
    if writer & records.ASYNC_PROXY != 0:
        return True
    earlier = writer if writes else writer | records.READ_OF_WRITTEN
    order = ordered(watch, epoch, earlier, writers_before(access, cell, me, offset, writes), me)
    if order == ORDERED:
        return True
    observed = order_by_observation(access, offset, epoch, writer, me)
    if observed == ORDERED:
        return True
    if writes and stores_what_is_there(access, me, offset):
        return False
    is_weak = (order == WEAKLY_ORDERED) | (observed == WEAKLY_ORDERED)
    kind = Suspicion.WEAKLY_AFTER_WRITE if is_weak else Suspicion.AFTER_WRITE
    suspect_access(access, me, offset, kind, epoch, as_observed(writer, observed))
    return False


@inlined
def as_observed(who: int, observed: int) -> int:
    """Return an access in one word, with a mark if a strong read has observed it."""
    return who | records.OBSERVED if observed == WEAKLY_ORDERED else who


@inlined
def check_after_earlier_write(access: Access, cell: ShadowCell, me: int, offset: int) -> bool:
    """Report an earlier atomic, or a weak write that a strong one replaced; true if nothing is wrong.

    This thread may have made the last atomic, and cannot know of the others; what does not race with a strong
    write may race with the weak one before it.
    """
    earlier, epoch = cell.earlier_reader, cell.earlier_epoch & records.EPOCHS
    is_replaced = earlier & records.REPLACED_WRITE != 0
    if (epoch <= floor_of(access)) | (earlier & (records.ATOMIC | records.REPLACED_WRITE) == 0):
        return True
    if earlier & records.ASYNC_PROXY != 0:  # a reduction by a bulk copy
        if earlier & me & records.ATOMIC != 0 or async_finished(access.watch, epoch, me, reads=False):
            return True
        suspect_access(access, me, offset, Suspicion.UNFINISHED_COPY, epoch, earlier)
        return False
    plain = earlier & ~records.REPLACED_WRITE
    order = ordered(access.watch, epoch, plain, lanes_of(plain), me)
    if order == ORDERED:
        return True
    observed = order_by_observation(access, offset, epoch, plain, me)
    if observed == ORDERED:
        if access.flags & (Flag.WRITES | Flag.STRONG_ACCESS) == Flag.WRITES:
            cell.earlier_epoch = 0  # what comes after this plain write comes after that one
        return True
    is_certain = is_replaced & (order != WEAKLY_ORDERED)
    kind = Suspicion.AFTER_WRITE if is_certain else Suspicion.WEAKLY_AFTER_WRITE
    suspect_access(access, me, offset, kind, epoch, as_observed(plain, observed))
    return False


@inlined
def check_after_reader(
    access: Access, cell: ShadowCell, me: int, offset: int, held: int, reader: int, lanes: int, is_last: bool
) -> bool:
    """Report a read of a cell that is about to be written if it is not ordered before; true if it is.

    `held` is what the cell keeps of it, an epoch and whether it was by an asynchronous copy.
    """
    watch, epoch = access.watch, held & records.EPOCHS
    if epoch <= floor_of(access):
        return True
    if held & records.PENDING != 0 and not finished(watch, epoch, reader, me):
        suspect_access(access, me, offset, Suspicion.UNFINISHED_COPY, epoch, reader)
        return False
    no_reader = records.ATOMIC if is_last else records.ATOMIC | records.REPLACED_WRITE
    if reader & no_reader != 0:
        return True
    order = ordered(watch, epoch, reader, lanes, me)
    if order == ORDERED:
        return True
    has_others = (cell.read_epoch == held) & (cell.read_lanes & ~lanes_of(reader) != 0)
    named = reader | records.SEVERAL if has_others else reader
    kind = Suspicion.WEAKLY_AFTER_READ if order == WEAKLY_ORDERED else Suspicion.AFTER_READ
    suspect_access(access, me, offset, kind, epoch, named)
    return False


@inlined
def hides_last_readers(access: Access, cell: ShadowCell, me: int, earlier: int, lanes: int) -> bool:
    """Return whether the earlier reader is ordered weakly before a write, and the last ones are not at all.

    Some lanes of a warp may have met the one that writes, and others not.
    """
    watch, last, held = access.watch, cell.read_epoch, cell.earlier_epoch
    are_plain = (held | last) & records.PENDING == 0
    are_read = (held > floor_of(access)) & (last > floor_of(access)) & are_plain
    if are_read and ordered(watch, last, cell.reader, cell.read_lanes, me) == UNORDERED:
        return ordered(watch, held, earlier, lanes, me) == WEAKLY_ORDERED
    return False


@inlined
def check_after_async_reader(access: Access, me: int, offset: int, epoch: int, reader: int) -> bool:
    """Report an asynchronous read that is not known to be done before a write; true if it is."""
    if epoch > floor_of(access) and not async_finished(access.watch, epoch, me, reads=True):
        suspect_access(access, me, offset, Suspicion.UNFINISHED_READ, epoch, reader)
        return False
    return True


@inlined
def check_warps_between(access: Access, cell: ShadowCell, me: int, offset: int) -> None:
    """Report a warp that read a cell between the first and the last reader and is not ordered before.

    Each of them did so in the first epoch of a read or later, and is not ordered before if it was last seen
    before that.
    """
    if access.shared == 0:
        return  # cells of global memory have no such planes
    watch, clock, since = access.watch, access.watch.clock, cell.first_read
    is_weak = me & (records.STRONG | records.STRONG_IN_BLOCK) == 0
    is_known = (cell.write_epoch & records.EPOCHS < since) & (since >= watch.start)
    # Warps of other blocks of a cluster are not told apart from those of the own one.
    if is_weak & (watch.cluster_blocks == 1) & is_known:
        for index in range(watch.warps):
            is_unknown = (clock.seen[index] < since) & (clock.acquired < since)
            if lane_is_in(index, cell.read_warps) & is_unknown & (index != clock.index):
                suspect_access(
                    access, me, offset, Suspicion.AFTER_READ, watch.clocks[index].last, cell.reader
                )
                return


@compiled()
def examine_read(access: Access, me: int, offset: int) -> None:
    """Report the first unordered access to a cell that came before this read."""
    cell = cell_of(access, offset)
    held = cell.write_epoch
    is_written = held & records.EPOCHS > floor_of(access)
    if (access.shared != 0) & (not is_written):
        if not is_padding(access, me, offset):
            suspect_access(access, me, offset, Suspicion.UNINITIALISED, 0, 0)
        return
    if (me & records.CONSTANT_READ != 0) & (held != 0) & (access.shared == 0):
        suspect_access(access, me, offset, Suspicion.NOT_CONSTANT, held & records.EPOCHS, cell.writer)
        return
    if not is_written or check_after_write(access, cell, me, offset, writes=False):
        check_after_earlier_write(access, cell, me, offset)


@compiled()
def examine_write(access: Access, me: int, offset: int) -> None:
    """Report the first unordered access to a cell that came before this write."""
    cell = cell_of(access, offset)
    reader, is_written = cell.reader, cell.write_epoch & records.EPOCHS > floor_of(access)
    if (access.shared != 0) & (me & records.ATOMIC != 0) & (not is_written):
        if not is_padding(access, me, offset):
            suspect_access(access, me, offset, Suspicion.UNINITIALISED, 0, 0)
        return
    if (reader & records.CONSTANT_READ != 0) & (access.shared == 0):
        suspect_access(access, me, offset, Suspicion.NOT_CONSTANT, cell.read_epoch & records.EPOCHS, reader)
        return
    if is_written and not check_after_write(access, cell, me, offset, writes=True):
        return
    if not check_after_earlier_write(access, cell, me, offset):
        return
    if follows_async():
        if not check_after_async_reader(
            access, me, offset, cell.async_earlier_epoch, cell.async_earlier_reader
        ):
            return
        if not check_after_async_reader(access, me, offset, cell.async_read_epoch, cell.async_reader):
            return
    # The earlier reader first: among lanes of one warp, the last one may be this lane.
    earlier, lanes = cell.earlier_reader, lanes_of(cell.earlier_reader)
    if not hides_last_readers(access, cell, me, earlier, lanes) and not check_after_reader(
        access, cell, me, offset, cell.earlier_epoch, earlier, lanes, is_last=False
    ):
        return
    if check_after_reader(access, cell, me, offset, cell.read_epoch, reader, cell.read_lanes, is_last=True):
        check_warps_between(access, cell, me, offset)


@compiled()
def examine_wait(access: Access) -> None:
    """Report lanes that wait at an mbarrier before they can know of a plain write there: its initialisation.

    What they learn by the wait itself does not count: without an order they may see the words before it.
    """
    watch, not_weak = access.watch, records.STRONG | records.STRONG_IN_BLOCK | records.ASYNC_PROXY
    for lane in set_bits(access.active):
        offset = access.offsets[lane]
        cell = cell_of(access, offset)
        writer, epoch = cell.writer, cell.write_epoch & records.EPOCHS
        if writer & not_weak != 0:  # an arrival has replaced it
            earlier = cell.earlier_reader
            epoch = cell.earlier_epoch & records.EPOCHS if earlier & records.REPLACED_WRITE != 0 else 0
            writer = earlier & ~records.REPLACED_WRITE
        me = access.who | lane
        if epoch > watch.shared_floor and ordered(watch, epoch, writer, lanes_of(writer), me) == UNORDERED:
            suspect_access(access, me, offset, Suspicion.AFTER_WRITE, epoch, writer)


# putting accesses on record ---------------------------------------------------------------------------------


@inlined
def writes_here(access: Access, lane: int, offset: int) -> bool:
    """Return whether a lane writes the cell by this instruction, and not in an earlier round of a loop.

    Where the values are not known, neither is the lane: then it counts as one that does.
    """
    is_unknown = (access.row.stored_count == 0) | (access.flags & Flag.BY_WORD != 0)
    return is_unknown or unsigned_less(offset - access.offsets[lane], access.row.access_size)


@inlined
def check_same_address(access: Access, me: int, offset: int, earlier: int) -> None:
    """Report lanes of one instruction that write different values to a cell."""
    if access.row.stored_count != 0:
        if access.flags & Flag.MATRIX != 0:
            agree = rows_agree(access, offset)
        elif access.row.stored_count < 0:
            agree = decide_alike(access, lane_of(me), lane_of(earlier))
        else:
            mine = stored_bits(access, lane_of(me), offset)
            agree = mine == stored_bits(access, lane_of(earlier), offset)
        if agree:
            return
    suspect_access(access, me, offset, Suspicion.SAME_ADDRESS, access.watch.epoch, earlier)


@inlined
def keep_earlier_write(access: Access, cell: ShadowCell, me: int) -> None:
    """Keep the last write of a cell beside the one that is put on record, if others may race with it.

    Of atomics, one by another lane is kept: a plain access may race with it. So is a weak write that a strong
    one replaces: strong accesses of others may race with it.
    """
    watch, held, earlier = access.watch, cell.write_epoch, cell.writer
    floor = watch.shared_floor if access.shared != 0 else watch.global_floor
    is_of_turn = (held > watch.own_after) & (held <= watch.epoch)
    is_other = (lane_of(earlier) != lane_of(me)) | (not is_of_turn)
    is_another = (me & earlier & records.ATOMIC != 0) & is_other
    holds_replaced = (cell.earlier_reader & records.REPLACED_WRITE != 0) & (cell.earlier_epoch > floor)
    is_strong = me & (records.STRONG | records.STRONG_IN_BLOCK) != 0
    not_weak = records.STRONG | records.STRONG_IN_BLOCK | records.ASYNC_PROXY
    was_weak = (earlier & not_weak == 0) & (held > floor) & (held & records.PENDING == 0)
    if (is_another & (not holds_replaced)) | (is_strong & was_weak):
        cell.earlier_epoch = held & records.EPOCHS
        cell.earlier_reader = earlier | records.REPLACED_WRITE if is_strong & was_weak else earlier


@compiled()
def note_write(access: Access, me: int, offset: int) -> None:
    """Put a write of a cell on record, which other lanes may have accessed too."""
    cell, now = cell_of(access, offset), access.watch.epoch
    earlier = cell.writer
    is_same_site = earlier >> records.SITE_SHIFT == me >> records.SITE_SHIFT
    is_strong = me & (records.STRONG | records.STRONG_IN_BLOCK) != 0
    # Another lane of this instruction has written the cell, or another row: do they write the same?
    is_another_row = (lane_of(earlier) != lane_of(me)) | (access.flags & Flag.BY_WORD != 0)
    is_now = cell.write_epoch & records.EPOCHS == now
    may_meet = is_now & is_same_site & is_another_row & (not is_strong)
    several = may_meet and writes_here(access, lane_of(earlier), offset)
    if several:
        check_same_address(access, me, offset, earlier)
    keep_earlier_write(access, cell, me)
    if several:
        before = cell.write_lanes if earlier & records.SEVERAL != 0 else lanes_of(earlier)
        cell.write_lanes = before | lanes_of(me)
    # Of several lanes the first is named.
    first = (me & ~(LANES - 1)) | lane_of(earlier) | records.SEVERAL
    cell.writer = first if several else me
    cell.write_epoch = now | access.pending


@compiled()
def forget_ordered_readers(access: Access, me: int, offset: int) -> None:
    """Forget lanes that read a cell before and are ordered before this lane, or have met it since.

    They need not be kept: what comes after this read comes after theirs. Of those that have met it, which are
    ordered on hardware alone, the last one is kept as an earlier reader.
    """
    cell, watch = cell_of(access, offset), access.watch
    read = cell.read_epoch
    if (read > watch.own_after) & (me & records.COLLECTIVE == 0):
        lanes, lane = watch.running_lanes, lane_of(me)
        known = mask_of(lanes.seen[lane] >= read) | mask_of(lanes.met[lane] >= read)
        cell.read_lanes = cell.read_lanes & ~known


# local memory -----------------------------------------------------------------------------------------------


@inlined
def was_written(shadow: ByteArray, byte: int) -> bool:
    """Return whether a byte of local memory was ever written."""
    return (shadow.bytes[byte >> 2] >> (byte & 3)) & 1 != 0


@inlined
def note_unwritten(access: Access, shadow: ByteArray, lane: int, element_bytes: int) -> bool:
    """Put the elements of a lane's load on record of which a byte was not written; true if there are some."""
    watch, start = access.watch, access.offsets[lane]
    some = False
    for number in range(access.size):
        if not was_written(shadow, start + number):
            element = number // element_bytes
            watch.unwritten_lanes[element] = watch.unwritten_lanes[element] | 1 << lane
            some = True
    return some


@inlined
def block_is_unwritten(access: Access, shadow: ByteArray, start: int) -> bool:
    """Return whether nothing was written in the aligned block of a structure that a load belongs to."""
    padded = max(access.row.alignment, access.size)
    first = start & -padded
    for byte in range(first, min(max(first + padded, start + access.size), access.watch.local_bytes)):
        if was_written(shadow, byte):
            return False
    return True


@compiled()
def access_local(access: Access) -> None:
    """Follow which bytes of local memory were ever written.

    Of a read the lanes are put on record for which some byte of an element was not.
    """
    watch, size = access.watch, access.size
    element_bytes = access.row.element_bits >> 3
    for element in range(MOST_ELEMENTS + 1):
        watch.unwritten_lanes[element] = 0
    for lane in set_bits(access.active):
        start = access.offsets[lane]
        if unsigned_less(start, watch.local_bytes) & (start + size <= watch.local_bytes):
            thread = access.frame.index * LANES + lane
            # Four bits of a byte of the shadow stand for a word.
            shadow = ByteArray.at(watch.local_shadow + thread * (watch.local_bytes >> 2))
            if access.flags & Flag.WRITES != 0:
                for byte in range(start, start + size):
                    shadow.bytes[byte >> 2] = shadow.bytes[byte >> 2] | 1 << (byte & 3)
            elif note_unwritten(access, shadow, lane, element_bytes) and block_is_unwritten(
                access, shadow, start
            ):
                watch.unwritten_lanes[MOST_ELEMENTS] = watch.unwritten_lanes[MOST_ELEMENTS] | 1 << lane


# the heap ---------------------------------------------------------------------------------------------------


#: How many states a byte may have.
STATES = len(ByteState)


class StateCounts(RecordLayout):
    """How many bytes of a lane's access are in each ByteState."""

    counts = field(8, STATES)


@inlined
def count_states(access: Access, states: ByteArray, start: int) -> StateCounts:
    """Count the states of the bytes that a lane accesses, and note those that it writes."""
    counted = StateCounts.on_stack()
    for state in range(STATES):
        counted.counts[state] = 0
    for byte in range(start, start + access.size):
        state_of_byte = states.bytes[byte]
        counted.counts[state_of_byte] += 1
        if (access.flags & Flag.WRITES != 0) & (state_of_byte == ByteState.UNINITIALISED):
            states.bytes[byte] = ByteState.INITIALISED
    return counted


@compiled()
def access_heap(access: Access, states: ByteArray) -> None:
    """Report bytes of the heap that nobody has, and reads of bytes of which none was written."""
    for lane in set_bits(access.active):
        start = access.offsets[lane]
        counted = count_states(access, states, start)
        if counted.counts[ByteState.FREED] != 0:
            report_heap(access, Suspicion.HEAP_FREED, lane)
        elif counted.counts[ByteState.UNALLOCATED] != 0:
            report_heap(access, Suspicion.HEAP_OUTSIDE, lane)
        is_unwritten = counted.counts[ByteState.UNINITIALISED] == access.size
        if (access.flags & Flag.READS != 0) & is_unwritten:
            report_heap(access, Suspicion.HEAP_UNINITIALISED, lane)


# memory that outlives the launch ----------------------------------------------------------------------------


@inlined
def all_written(marks: ByteArray, start: int, end: int) -> bool:
    """Return whether all bytes of a range have a mark."""
    missing = 0
    for byte in range(start, end):
        missing |= 1 - marks.bytes[byte]
    return missing == 0


@inlined
def mark_written(marks: ByteArray, start: int, end: int) -> None:
    """Mark the bytes of a range."""
    for byte in range(start, end):
        marks.bytes[byte] = 1


@compiled()
def read_unwritten(access: Access, marks: ByteArray) -> None:
    """Report a lane that reads an element of which no byte was ever written."""
    element = max(access.row.element_bits >> 3, 1)
    for lane in set_bits(access.active):
        start = access.offsets[lane]
        unwritten = 0
        for byte in range(access.size):
            first = start + byte - byte % element
            some = 0
            for other in range(first, min(first + element, start + access.size)):
                some |= marks.bytes[other]
            unwritten |= (1 - some) << byte
        if unwritten != 0:
            address = access.origin + start
            suspect(Suspicion.NEVER_WRITTEN, access.frame, access.site, lane, address, unwritten, 0)


@compiled()
def follow_initialised(access: Access, marks: ByteArray) -> None:
    """Report what is read and was never written, and mark what is written."""
    is_range = (access.inside != 0) & (access.row.last_request.tiled_cells != 0)
    reads = access.flags & Flag.READS != 0
    if reads and not (is_range and all_written(marks, access.lowest, access.highest)):
        read_unwritten(access, marks)
    if access.flags & Flag.WRITES != 0:
        if is_range:
            mark_written(marks, access.lowest, access.highest)
        else:
            for lane in set_bits(access.active):
                start = access.offsets[lane]
                mark_written(marks, start, start + access.size)


@inlined
def report_heap(access: Access, kind: int, lane: int) -> None:
    """Report a lane's access to the heap."""
    suspect(kind, access.frame, access.site, lane, access.offsets[lane] + abi.HEAP_BASE, 0, 0)
