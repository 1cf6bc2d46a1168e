"""Bounds of accesses by what their address was made from: a view of an array, or the kernel's shared memory.

Memory of another view of the same array is not a view's own.

On a GPU, and in a plain launch, a view is an address in its array: an access beyond the view does not fault
while it stays in the array. A check tells of it where it leads into another view that was passed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.records import SiteRow, Space
from lanewise.machine.runtime.device_memory import Allocation, View
from lanewise.machine.runtime.state import LaunchState


def bound_to_views(rows: npt.NDArray[np.int64], launch: LaunchState, kernel: CheckedKernel) -> None:
    """Enter bounds in the rows of accesses whose address is made from one pointer to a view."""
    if not any(len(each.views) > 1 for each in launch.allocations):
        return
    for row, offsets in kernel.address_parameters.items():
        found = [each for each in (_passed(launch, offset) for offset in offsets) if each is not None]
        if len(found) != 1:
            continue
        allocation, view = found[0]
        low, high = _reach(allocation, view)
        if (low, high) != (0, allocation.size):
            rows[row, SiteRow.lowest // 8], rows[row, SiteRow.highest // 8] = low, high


def bound_to_own_shared_memory(rows: npt.NDArray[np.int64], launch: LaunchState) -> None:
    """Enter bounds in the rows of other accesses to shared memory, if the system's lies before it."""
    info = launch.compiled.launch_info
    if info.shared_base and not info.uses_reserved_memory:
        free = (rows[:, SiteRow.space // 8] == Space.SHARED) & (rows[:, SiteRow.highest // 8] == 0)
        rows[free, SiteRow.lowest // 8] = info.shared_base
        rows[free, SiteRow.highest // 8] = launch.shared_limit


def _passed(launch: LaunchState, offset: int) -> tuple[Allocation, View] | None:
    """Return the view that a parameter points to; None if it is a number, or points to more than one."""
    pointer = int.from_bytes(launch.parameters[offset : offset + 8].tobytes(), "little")
    for each in launch.allocations:
        views = {view for view in each.views if each.first + view.offset == pointer and view.size}
        if views:
            return each, max(views, key=lambda view: view.size)
    return None


def _reach(allocation: Allocation, view: View) -> tuple[int, int]:
    """Return the offsets between which a pointer to a view meets no other view that does not overlap it."""
    others = [other for other in allocation.views if other.size and other.is_argument]
    low = max((other.end for other in others if other.end <= view.offset), default=0)
    high = min((other.offset for other in others if other.offset >= view.end), default=allocation.size)
    return low, high


def view_of_row(launch: LaunchState, row: npt.NDArray[np.int64]) -> str:
    """Return the name in messages of the view that the addresses of a row are made from."""
    bounds = int(row[SiteRow.lowest // 8]), int(row[SiteRow.highest // 8])
    for each in launch.allocations:
        for view in each.views:
            if len(each.views) > 1 and view.size and _reach(each, view) == bounds:
                return f"argument {view.name}, of {view.size} bytes"
    return "the array"
