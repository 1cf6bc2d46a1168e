"""The rules for tensor memory: what may come before an instruction that reads or writes one of its cells.

An operation of the pipe has to be complete before a warp touches what it writes, or overwrites what it reads;
a warp has to wait for its own loads and stores before the pipe comes to their cells. Operations of the pipe
that one thread issues stay in order by themselves; those of several threads need one. The functions at the
end are called before instructions of a warp: loads, stores, waits, alloc and dealloc.
"""

from lanewise.jit.lane_functions import lowest_bit, set_bits
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import (
    CELL_LANES,
    LANE_GROUPS,
    OPERAND_SHIFT,
    WAITS_KEPT,
    TensorCell,
    TensorClock,
    TensorFlag,
    TensorWait,
)
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.happens_before import UNORDERED, lane_of, lanes_of, ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    epochs_exhausted,
    in_block,
    local_warp,
    operand_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import operation
from lanewise.machine.checker.watch_code.proxy.completion import async_finished
from lanewise.machine.checker.watch_code.proxy.phases import (
    completion_is_fenced,
    is_fenced,
    tensor_clock,
    tensor_is_complete,
)
from lanewise.machine.checker.watch_code.watch_module import EVERY_LANE, LANES
from lanewise.machine.tensor_memory_records import LANE_SHIFT, TENSOR_COLUMNS, UNIT, TensorAllocator

#: The answers of `awaited`: no tcgen05.wait has followed; one has, but nothing orders it before; all is well.
NOT_AWAITED, NOT_ORDERED, AWAITED = 0, 1, 2
#: All groups of lanes.
EVERY_GROUP = (1 << LANE_GROUPS) - 1
#: Nothing is wrong with a cell.
GOOD = -1
#: An extent: the first column, then the number of columns, then whether it is D of a product.
EXTENT_COLUMNS, EXTENT_SUMS = 1 << 10, 1 << 20


@inlined
def tensor_cell(home: BlockWatch, group: int, column: int) -> TensorCell:
    """Return a cell of a block's tensor memory."""
    return TensorCell.at(home.tensor_cells + (group * TENSOR_COLUMNS + column) * TensorCell.BYTES)


@inlined
def wait_at(clock: TensorClock, kind: int, number: int) -> int:
    """Return the epoch of what a TensorWait counts of a warp, by its number."""
    return clock.waits[kind * WAITS_KEPT + (number & (WAITS_KEPT - 1))]


@compiled()
def awaited(watch: BlockWatch, home: BlockWatch, epoch: int, me: int, kind: int) -> int:
    """Return whether the running warp may rely on a load or store, which was issued in an epoch.

    Its warp has executed what a TensorWait says, and that is ordered before `me`.
    """
    index = local_warp(home, epoch)
    if not in_block(home, index):
        return AWAITED  # of an earlier block
    clock = tensor_clock(home, index)
    count = clock.wait_counts[kind]
    first = 0
    for number in range(max(count - WAITS_KEPT, 0), count):
        at = wait_at(clock, kind, number)
        if (at >= epoch) & (first == 0):
            first = at
    if first == 0:
        return NOT_AWAITED
    is_own = (home is watch) & (index == watch.clock.index)
    if is_own or ordered(watch, first, 0, EVERY_LANE, me) != UNORDERED:
        return AWAITED
    # The first wait after it may be longer ago than is on record.
    return AWAITED if (count > WAITS_KEPT) & (wait_at(clock, kind, count) == first) else NOT_ORDERED


@inlined
def is_of_running_thread(watch: BlockWatch, epoch: int, me: int) -> bool:
    """Return whether the thread that runs has issued an operation of the pipe."""
    noted = operation(watch, epoch)
    is_own = (noted.home is watch) & (noted.agent == watch.clock.index) & (noted.lane == lane_of(me))
    return (noted.epoch == epoch) & is_own


@compiled()
def wrong_after_pipe(watch: BlockWatch, epoch: int, who: int, me: int, flags: int, reads: bool) -> int:
    """Return what is wrong with a cell that the pipe wrote, or `reads`, before; GOOD if nothing is."""
    if flags & TensorFlag.PIPE != 0:
        if is_of_running_thread(watch, epoch, me):
            return GOOD
        if async_finished(watch, epoch, me, reads=False):
            return GOOD
        is_unordered = ordered(watch, epoch, who, lanes_of(who), me) == UNORDERED
        return Suspicion.TENSOR_UNORDERED if is_unordered else GOOD
    if async_finished(watch, epoch, me, reads=False):
        return GOOD
    return Suspicion.TENSOR_IN_USE if reads else Suspicion.TENSOR_UNFINISHED


@compiled()
def wrong_after_warp(
    watch: BlockWatch, home: BlockWatch, epoch: int, me: int, flags: int, stores: bool
) -> int:
    """Return what is wrong with a cell that a warp loaded, or `stores`, before; GOOD if nothing is."""
    by_pipe, frees = flags & TensorFlag.PIPE != 0, flags & TensorFlag.FREES != 0
    is_own = (home is watch) & (local_warp(home, epoch) == watch.clock.index)
    if frees and ordered(watch, epoch, 0, EVERY_LANE, me) == UNORDERED:
        return Suspicion.TENSOR_UNORDERED
    if frees & (stores | is_own):
        return GOOD
    # Stores of a warp after its own accesses: what it stores may depend on what it loaded.
    if is_own & (not by_pipe) & (flags & TensorFlag.READS == 0):
        return GOOD
    answer = awaited(watch, home, epoch, me, TensorWait.STORES if stores else TensorWait.LOADS)
    if answer == AWAITED:
        return GOOD
    # A wait that comes after the threads have synchronised is none.
    if answer == NOT_ORDERED and ordered(watch, epoch, 0, EVERY_LANE, me) == UNORDERED:
        return Suspicion.TENSOR_UNORDERED
    return Suspicion.TENSOR_STORE_UNAWAITED if stores else Suspicion.TENSOR_LOAD_UNAWAITED


@inlined
def wrong_before(watch: BlockWatch, home: BlockWatch, cell: TensorCell, me: int, flags: int) -> int:
    """Return what is wrong with an access of a cell after the last write of it; GOOD if nothing is."""
    epoch, who = cell.written, cell.writer
    if who & records.ASYNC_PROXY != 0:
        return wrong_after_pipe(watch, epoch, who, me, flags, reads=False)
    return wrong_after_warp(watch, home, epoch, me, flags, stores=True)


@inlined
def is_seen_by_each(watch: BlockWatch, epoch: int, me: int) -> bool:
    """Return whether each lane of a warp that loads or stores knows that the pipe is done, and not only some.

    A lane that waits for a phase acquires for itself; what others have acquired it knows by bar.warp.sync.
    """
    noted = operation(watch, epoch)
    if (me & records.COLLECTIVE == 0) | (noted.epoch != epoch):
        return True
    return tensor_is_complete(watch, noted, epoch, me, by_each=True)


@compiled()
def unfenced(watch: BlockWatch, home: BlockWatch, epoch: int, who: int, me: int, flags: int) -> int:
    """Return which fence an access lacks after one of another thread that is ordered before; GOOD if none.

    PTX ISA, "Canonical synchronization patterns" of tcgen05: asynchronous instructions of different threads
    need tcgen05.fence::before_thread_sync and after_thread_sync on the two sides of what orders the threads;
    a tcgen05.commit stands for the first one. tcgen05.dealloc is no asynchronous instruction.
    """
    if flags & TensorFlag.FREES != 0:
        return GOOD
    by_pipe = flags & TensorFlag.PIPE != 0
    if who & records.ASYNC_PROXY != 0:
        if by_pipe and is_of_running_thread(watch, epoch, me):
            return GOOD
        if async_finished(watch, epoch, me, reads=False):
            if not completion_is_fenced(watch, epoch, me):
                return Suspicion.TENSOR_UNFENCED_AFTER
            return GOOD if is_seen_by_each(watch, epoch, me) else Suspicion.TENSOR_SEEN_BY_SOME
    elif (home is watch) & (local_warp(home, epoch) == watch.clock.index):
        return GOOD
    if awaited(watch, home, epoch, me, TensorWait.FENCE) != AWAITED:
        return Suspicion.TENSOR_UNFENCED_BEFORE
    return GOOD if is_fenced(watch, epoch) else Suspicion.TENSOR_UNFENCED_AFTER


@compiled()
def note_cell(cell: TensorCell, epoch: int, who: int, flags: int, extent: int) -> None:
    """Put an access of a cell on record; `extent` is that of an operation of the pipe that writes."""
    if flags & (TensorFlag.FREES | TensorFlag.WRITES) != 0:
        frees = flags & TensorFlag.FREES != 0
        cell.written = 0 if frees else epoch
        cell.writer = 0 if frees else who
        cell.loaded = 0
        cell.used = 0
        cell.extent = extent
    elif flags & TensorFlag.PIPE != 0:
        cell.used = epoch
        cell.user = who
        cell.used_as = flags >> OPERAND_SHIFT
    else:
        cell.loaded = epoch
        cell.loader = who


@compiled()
def groups_without_value(home: BlockWatch, groups: int, first: int, columns: int, flags: int) -> int:
    """Return those of some groups of lanes, as bits, in which one of some columns was never written.

    Sums of a product are no value of an operand that is not read from sums.
    """
    missing, no_sums = 0, flags & TensorFlag.NO_SUMS != 0
    for group in set_bits(groups & EVERY_GROUP):
        for column in range(first, min(first + columns, TENSOR_COLUMNS)):
            cell = tensor_cell(home, group, column)
            if (cell.written < home.start) | (no_sums & (cell.extent & EXTENT_SUMS != 0)):
                missing = missing | (1 << group)
    return missing


@compiled()
def leave_without_value(home: BlockWatch, groups: int, first: int, columns: int) -> None:
    """A product has written columns of some groups of lanes, and its A has no value there: nor have they.

    `writer` says who has written them.
    """
    for group in set_bits(groups & EVERY_GROUP):
        for column in range(first, min(first + columns, TENSOR_COLUMNS)):
            tensor_cell(home, group, column).written = 0


@compiled()
def tell(
    frame: WarpFrame, row: int, kind: int, group: int, column: int, epoch: int, who: int, me: int
) -> None:
    """Report what is wrong with a cell; its address is that of its first lane."""
    lane = 0 if me & records.COLLECTIVE != 0 else lane_of(me)
    suspect(kind, frame, row, lane, (group * CELL_LANES << LANE_SHIFT) | column, epoch, who)


@inlined
def is_allocated(frame: WarpFrame, home: BlockWatch, column: int) -> bool:
    """Return whether a column is allocated; of another block it is not looked at."""
    allocated = TensorAllocator.at(frame.block.tensor_allocator).allocated
    return (home is not watch_of(frame.block)) | ((allocated >> (column // UNIT)) & 1 != 0)


@compiled()
def tell_unwritten(
    frame: WarpFrame, row: int, home: BlockWatch, group: int, column: int, me: int, flags: int, is_all: bool
) -> None:
    """Report that an instruction reads columns of which some, or all, have no value; one of them is given."""
    needs_every = flags & (TensorFlag.EVERY_CELL | TensorFlag.EVERY_COLUMN) != 0
    operand = flags >> OPERAND_SHIFT
    if is_all | needs_every:
        writer = tensor_cell(home, group, column).writer
        is_hollow = (writer != 0) & (writer != me)
        kind = Suspicion.TENSOR_HOLLOW if is_hollow else Suspicion.TENSOR_UNWRITTEN
        tell(frame, row, kind, group, column, operand, 0, me)
    elif flags & TensorFlag.ADVISES != 0:
        tell(frame, row, Suspicion.TENSOR_PARTLY_UNWRITTEN, 0, column, operand, 0, me)


@inlined
def extent_of(first: int, columns: int, flags: int) -> int:
    """Return the extent of an operation of the pipe that writes; 0 of other instructions."""
    of_sums = EXTENT_SUMS if flags & TensorFlag.SUMS != 0 else 0
    is_write = flags & (TensorFlag.WRITES | TensorFlag.PIPE) == TensorFlag.WRITES | TensorFlag.PIPE
    return first + columns * EXTENT_COLUMNS + of_sums if is_write else 0


@inlined
def is_lost(home: BlockWatch, cell: TensorCell, extent: int, me: int) -> bool:
    """Return whether nobody has read what the pipe wrote to a cell that an operation like it overwrites.

    If lanes of one warp issue the same instruction, that is the mistake, and is reported by itself.
    """
    is_unread = (cell.loaded < home.start) & (cell.used < home.start)
    is_same_kind = (cell.extent != 0) & ((cell.extent ^ extent) & EXTENT_SUMS == 0)
    is_same_site = cell.writer >> records.SITE_SHIFT == me >> records.SITE_SHIFT
    return is_unread & is_same_kind & ((not is_same_site) | (lane_of(cell.writer) == lane_of(me)))


@compiled()
def look_at_overwritten(
    frame: WarpFrame, row: int, home: BlockWatch, groups: int, first: int, columns: int, me: int, flags: int
) -> None:
    """An operation of the pipe overwrites columns, and reads nothing there: who has read what they hold?

    Results that nobody reads are lost by mistake if the operation that wrote them has other columns as well,
    or if they are all of a product's sums. Of a copy, or of a product's last tile, some may be left unread.
    """
    extent, lost, cells, is_told = extent_of(first, columns, flags), 0, 0, 0
    for column in range(first, min(first + columns, TENSOR_COLUMNS)):
        for group in set_bits(groups & EVERY_GROUP):
            cell = tensor_cell(home, group, column)
            cells += 1
            if (cell.written >= home.start) and is_lost(home, cell, extent, me):
                lost += 1
                if (cell.extent != extent) & (is_told == 0):
                    is_told = 1
                    tell(frame, row, Suspicion.TENSOR_LOST, group, column, cell.written, cell.writer, me)
    # A product without columns, or beyond the last one, is a fault: there are no cells.
    if (is_told == 0) & (lost == cells) & (lost > 0) & (extent & EXTENT_SUMS != 0):
        lowest = lowest_bit(groups)
        sums = tensor_cell(home, lowest, first)
        tell(frame, row, Suspicion.TENSOR_LOST, lowest, first, sums.written, sums.writer, me)


@compiled()
def look_at_cells(
    frame: WarpFrame,
    row: int,
    home: BlockWatch,
    groups: int,
    first: int,
    columns: int,
    epoch: int,
    me: int,
    flags: int,
) -> None:
    """An instruction accesses columns of some groups of lanes, given as bits; `me` is it in one word."""
    watch = watch_of(frame.block)
    if epochs_exhausted(watch) | (home.tensor_cells == 0):
        return
    reads, writes = flags & TensorFlag.READS != 0, flags & (TensorFlag.WRITES | TensorFlag.FREES) != 0
    good_write, good_load, good_use = 0, 0, 0
    is_told, is_advised, unwritten, first_unwritten, group_unwritten = 0, 0, 0, 0, 0
    every_cell, no_sums = flags & TensorFlag.EVERY_CELL != 0, flags & TensorFlag.NO_SUMS != 0
    extent = extent_of(first, columns, flags)
    if (extent != 0) & (not reads):
        look_at_overwritten(frame, row, home, groups, first, columns, me, flags)
    for column in range(first, min(first + columns, TENSOR_COLUMNS)):
        has_value, unwritten_here = 0, -1
        for group in set_bits(groups & EVERY_GROUP):
            cell = tensor_cell(home, group, column)
            written = cell.written
            if written >= home.start:
                has_value = 1
                if (written != good_write) & (is_told == 0):
                    kind = wrong_before(watch, home, cell, me, flags)
                    good_write = written
                    if (kind == GOOD) & (is_advised == 0):
                        kind = unfenced(watch, home, written, cell.writer, me, flags)
                        is_advised = 1 if kind != GOOD else 0
                    elif kind != GOOD:
                        is_told = 1
                    if kind != GOOD:
                        tell(frame, row, kind, group, column, written, cell.writer, me)
                if no_sums & (cell.extent & EXTENT_SUMS != 0) & (is_told == 0):
                    is_told = 1
                    tell(frame, row, Suspicion.TENSOR_SUMS_READ, group, column, written, cell.writer, me)
            elif unwritten_here < 0:
                unwritten_here = group
            loaded = cell.loaded
            if writes & (loaded >= home.start) & (loaded != good_load) & (is_told == 0):
                after_load = wrong_after_warp(watch, home, loaded, me, flags, stores=False)
                good_load = loaded
                if (after_load == GOOD) & (is_advised == 0):
                    after_load = unfenced(watch, home, loaded, cell.loader, me, flags)
                    is_advised = 1 if after_load != GOOD else 0
                elif after_load != GOOD:
                    is_told = 1
                if after_load != GOOD:
                    tell(frame, row, after_load, group, column, loaded, cell.loader, me)
            used = cell.used
            if (extent != 0) & (used == epoch) & (is_told == 0):
                is_told = 1
                tell(frame, row, Suspicion.TENSOR_OVERLAP, group, first, cell.used_as, 0, me)
            if writes & (used >= home.start) & (used != good_use) & (is_told == 0):
                after_use = wrong_after_pipe(watch, used, cell.user, me, flags, reads=True)
                good_use = used
                if (after_use == GOOD) & (is_advised == 0):
                    after_use = unfenced(watch, home, used, cell.user, me, flags)
                    is_advised = 1 if after_use != GOOD else 0
                elif after_use != GOOD:
                    is_told = 1
                if after_use != GOOD:
                    tell(frame, row, after_use, group, column, used, cell.user, me)
            note_cell(cell, epoch, me, flags, extent)
        if (has_value == 0) | (every_cell & (unwritten_here >= 0)):
            if unwritten == 0:
                first_unwritten = column
                group_unwritten = unwritten_here
            unwritten += 1
    # Columns that are not allocated are a fault.
    if reads & (unwritten > 0) and is_allocated(frame, home, first_unwritten):
        tell_unwritten(frame, row, home, group_unwritten, first_unwritten, me, flags, unwritten == columns)


#: Lanes that a warp reaches, as groups of lanes of a cell, and warps that reach different ones.
WARP_GROUPS, PARTITIONS = 32 // CELL_LANES, 4


@inlined
def word_of(watch: BlockWatch, row: int) -> int:
    """Return an access of a whole warp in one word."""
    return (watch.watch.sites[row].number << records.SITE_SHIFT) | records.COLLECTIVE


@compiled()
def lanes_without_value(watch: BlockWatch, groups: int, first: int, columns: int) -> int:
    """Return the lanes of a warp, as bits, for which nothing was written to any of some columns.

    It is 0 if that holds for all lanes, which is a finding by itself.
    """
    lanes = 0
    for group in set_bits(groups):
        written = 0
        for column in range(first, min(first + columns, TENSOR_COLUMNS)):
            written = 1 if tensor_cell(watch, group, column).written >= watch.start else written
        of_group = ((1 << CELL_LANES) - 1) << (group % WARP_GROUPS * CELL_LANES)
        lanes = lanes | of_group if written == 0 else lanes
    return lanes if lanes != EVERY_LANE else 0


@compiled()
def move_words(
    frame: WarpFrame, row: int, active: int, register: int, number: int, lanes: int, columns: int, split: int,
    stores: int,
) -> None:  # fmt: skip
    """A warp loads or stores columns of 16 or 32 lanes; `split`: the columns to a second half, or 0."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    address = operand_of(frame, lowest_bit(active), register, 0) + number
    first, column = (address >> LANE_SHIFT) & (32 - 1), address & ((1 << LANE_SHIFT) - 1)
    of_warp = (frame.index & (PARTITIONS - 1)) * WARP_GROUPS
    groups = 3 << of_warp if lanes == 32 else 1 << (of_warp + first // CELL_LANES)
    flags = TensorFlag.WRITES if stores != 0 else TensorFlag.READS | TensorFlag.ADVISES
    me = word_of(watch, row)
    look_at_cells(frame, row, watch, groups, column, columns, watch.epoch, me, flags)
    if (lanes == LANES) & (stores == 0) & (watch.tensor_cells != 0):
        watch.unwritten_lanes[0] = lanes_without_value(watch, groups, column, columns)
        if watch.unwritten_lanes[0] != 0:
            suspect(Suspicion.TENSOR_LANES_UNWRITTEN, frame, row, 0, 0, 0, 0)
    if split != 0:
        look_at_cells(frame, row, watch, groups, column + split, columns, watch.epoch, me, flags)


@compiled()
def wait_for_moves(frame: WarpFrame, active: int, kind: int) -> None:
    """A warp executes what a TensorWait counts: tcgen05.wait, or fence::before_thread_sync."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    clock = tensor_clock(watch, frame.index)
    count = clock.wait_counts[kind]
    clock.waits[kind * WAITS_KEPT + (count & (WAITS_KEPT - 1))] = watch.epoch
    clock.wait_counts[kind] = count + 1
    watch.fresh = 1  # what follows is not waited for


@compiled()
def fence_after_sync(frame: WarpFrame, active: int) -> None:
    """A warp executes tcgen05.fence::after_thread_sync."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    clock = tensor_clock(watch, frame.index)
    clock.after_fence = watch.epoch
    clock.after_acquired = watch.clock.acquired
    clock.after_seen = watch.clock.seen
    watch.fresh = 1  # what the warp learns from now on comes after it


@compiled()
def allocate_columns(frame: WarpFrame, row: int, active: int, count_register: int, count: int) -> None:
    """A warp executes tcgen05.alloc: it should not ask for more columns than any warp of its block before."""
    if active == 0:
        return
    watch, lane = watch_of_running(frame), lowest_bit(active)
    columns, before = operand_of(frame, lane, count_register, count), TENSOR_COLUMNS
    for index in range(watch.warps):
        asked = tensor_clock(watch, index).allocated
        before = min(before, asked) if asked > 0 else before
    if columns > before:
        suspect(Suspicion.TENSOR_GROWING, frame, row, lane, columns, before, 0)
    watch.tensor_alloc_row = row
    tensor_clock(watch, frame.index).allocated = columns


@compiled()
def free_columns(
    frame: WarpFrame, row: int, active: int, register: int, number: int, count_register: int, count: int
) -> None:
    """A warp executes tcgen05.dealloc: the pipe must be done with the columns."""
    if active == 0:
        return
    watch, lane = watch_of_running(frame), lowest_bit(active)
    column = (operand_of(frame, lane, register, 0) + number) & ((1 << LANE_SHIFT) - 1)
    columns = operand_of(frame, lane, count_register, count)
    if tensor_clock(watch, frame.index).allocated == 0:
        suspect(Suspicion.TENSOR_FREED_ELSEWHERE, frame, row, lane, 0, 0, 0)
    me = word_of(watch, row)
    look_at_cells(frame, row, watch, EVERY_GROUP, column, columns, watch.epoch, me, TensorFlag.FREES)


@compiled()
def columns_at_end(frame: WarpFrame) -> None:
    """A block ends: all its columns have to be free."""
    watch, allocator = watch_of(frame.block), TensorAllocator.at(frame.block.tensor_allocator)
    if watch.tensor_clocks != 0 and allocator.allocated != 0:
        suspect(Suspicion.TENSOR_NEVER_FREED, frame, watch.tensor_alloc_row, 0, allocator.allocated, 0, 0)
