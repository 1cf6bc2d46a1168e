"""Called before instructions of a warp that touch tensor memory: loads, stores, waits, alloc and dealloc."""

from lanewise.jit.lane_functions import lowest_bit
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.tensor_memory.records import CELL_LANES, LANE_GROUPS, WAITS_KEPT, TensorFlag
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    operand_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.tensor_commits import tensor_clock
from lanewise.machine.checker.watch_code.tensor.cells import look_at_cells, tensor_cell
from lanewise.machine.checker.watch_code.watch_module import EVERY_LANE, LANES
from lanewise.machine.tensor_memory_records import LANE_SHIFT, TENSOR_COLUMNS, TensorAllocator

#: Lanes that a warp reaches, as groups of lanes of a cell, and warps that reach different ones.
WARP_GROUPS, PARTITIONS = 32 // CELL_LANES, 4
#: All groups of lanes.
EVERY_GROUP = 0xFF


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
    for group in range(LANE_GROUPS):
        if (groups >> group) & 1 != 0:
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
