"""Bounds of accesses by what their address was made from: a view of an array, or the kernel's shared memory.

On a GPU, and in a plain launch, a view is an address in its array: an access beyond the view does not fault
while it stays in the array. A check reports it where it leads into another view that was passed: its memory
is not the view's own.
"""

import numpy as np
import numpy.typing as npt

from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.records import SharedExtent, SiteRow, Space
from lanewise.machine.checker.site_table import bounds_of_operand
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.runtime.device_memory import Allocation, View
from lanewise.machine.runtime.state import LaunchState


def bound_to_views(rows: npt.NDArray[np.int64], launch: LaunchState, kernel: CheckedKernel) -> None:
    """Enter bounds in the rows of accesses whose address is made from one pointer to a view."""
    if not any(len(allocation.views) > 1 for allocation in launch.allocations):
        return
    for row, offsets in kernel.address_parameters.items():
        bounds = _bounds(launch, offsets)
        if bounds is not None:
            _, low, high = bounds
            rows[row, SiteRow.lowest // 8], rows[row, SiteRow.highest // 8] = low, high
    for (site, number), offsets in kernel.async_parameters.items():
        bounds = _bounds(launch, offsets)
        if bounds is not None:
            allocation, low, high = bounds
            field = bounds_of_operand(number) // 8
            rows[site * MOST_ROWS, field : field + 2] = allocation.first + low, allocation.first + high


def _bounds(launch: LaunchState, parameters: frozenset[int]) -> tuple[Allocation, int, int] | None:
    """Return the allocation of the one view that parameters point to, and offsets in it as bounds."""
    views = [passed for passed in (_passed(launch, offset) for offset in parameters) if passed is not None]
    if len(views) != 1:
        return None
    allocation, view = views[0]
    low, high = _reach(allocation, view)
    return (allocation, low, high) if (low, high) != (0, allocation.size) else None


def bound_to_own_shared_memory(rows: npt.NDArray[np.int64], launch: LaunchState) -> None:
    """Enter bounds in the rows of other accesses to shared memory, if the system's lies before it."""
    info = launch.compiled.launch_info
    if info.shared_base and not info.uses_reserved_memory:
        free = (rows[:, SiteRow.space // 8] == Space.SHARED) & (rows[:, SiteRow.highest // 8] == 0)
        rows[free, SiteRow.lowest // 8] = info.shared_base
        rows[free, SiteRow.highest // 8] = launch.shared_limit


def shared_extents(launch: LaunchState) -> npt.NDArray[np.int64]:
    """Return a SharedExtent for each variable of shared memory; dynamic shared memory is one."""
    info = launch.compiled.launch_info
    ranges = [
        (variable.address, variable.address + variable.size)
        for variable in shared_variables(launch.compiled.program)
    ]
    ranges.append((info.dynamic_offset, launch.shared_limit))
    extents = np.zeros((len(ranges), SharedExtent.BYTES // 8), np.int64)
    for row, (first, end) in zip(extents, ranges, strict=True):
        row[SharedExtent.first // 8], row[SharedExtent.end // 8] = first, end
    return extents


def _passed(launch: LaunchState, offset: int) -> tuple[Allocation, View] | None:
    """Return the view that a parameter points to; None if it is a number, or points to more than one."""
    pointer = int.from_bytes(launch.parameters[offset : offset + 8].tobytes(), "little")
    for allocation in launch.allocations:
        views = {view for view in allocation.views if allocation.first + view.offset == pointer and view.size}
        if views:
            return allocation, max(views, key=lambda view: view.size)
    return None


def _reach(allocation: Allocation, view: View) -> tuple[int, int]:
    """Return the offsets between which a pointer to a view meets no byte that only another view has.

    A view that holds all of it does not count: both are the same array to the kernel.
    """
    others = [
        other
        for other in allocation.views
        if other.size and other.is_argument and not (other.offset <= view.offset and view.end <= other.end)
    ]
    low = max((min(other.end, view.offset) for other in others if other.offset < view.offset), default=0)
    high = min(
        (max(other.offset, view.end) for other in others if other.end > view.end), default=allocation.size
    )
    return low, high


def view_name(launch: LaunchState, address: int, low: int, high: int) -> str:
    """Return the name in messages of the view that has these bounds.

    They are offsets in its allocation, or addresses.
    """
    for allocation in launch.allocations:
        offsets = (low, high), (low - allocation.first, high - allocation.first)
        for view in allocation.views:
            if address in allocation and view.size and _reach(allocation, view) in offsets:
                return f"argument {view.name}, of {view.size} bytes"
    return "the array"
