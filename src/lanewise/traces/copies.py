"""Asynchronous copies of a trace: where each was issued, where its group was closed, where it was awaited."""

from __future__ import annotations

from typing import NamedTuple

from lanewise.machine.program.instruction_record import Order
from lanewise.ptx import Immediate
from lanewise.traces.recording import Recording


class Copy(NamedTuple):
    """An asynchronous copy of a warp: the steps of its issue, of its group's commit, and of the wait for it.

    None stands for what had not happened when the trace ended. On the machine the bytes arrive at once, which
    is one of the times that the PTX ISA allows; nobody may read them before `completed`.
    """

    warp: int
    block: int
    issued: int
    committed: int | None
    completed: int | None


def copies_of(recording: Recording) -> list[Copy]:
    """Return the asynchronous copies in the order in which they were issued."""
    log = recording.log
    orders = [point.op.record.orders if point.op is not None else Order.NOTHING for point in log.points]
    issues = [
        any(each.located.access.asynchronous and each.located.access.writes for each in point.accesses)
        for point in log.points
    ]
    relevant = [
        order in (Order.COMMIT, Order.WAIT_GROUP, Order.WAIT_ALL) or issue
        for order, issue in zip(orders, issues, strict=True)
    ]
    found: list[Copy] = []
    #: For each block and warp: copies not yet committed, then groups not yet complete, as numbers of `found`.
    open_copies: dict[tuple[int, int], list[int]] = {}
    groups: dict[tuple[int, int], list[list[int]]] = {}
    for step, entry in enumerate(recording.steps):
        header = log.entries[int(entry)]
        point = int(header["point"])
        if not relevant[point] or not int(header["active"]):
            continue
        warp = int(header["block"]), int(header["warp"])
        if issues[point]:
            open_copies.setdefault(warp, []).append(len(found))
            found.append(Copy(warp[1], warp[0], step, None, None))
        elif orders[point] is Order.COMMIT:
            group = open_copies.pop(warp, [])
            groups.setdefault(warp, []).append(group)
            for number in group:
                found[number] = found[number]._replace(committed=step)
        else:
            kept = 0
            op = log.points[point].op
            if orders[point] is Order.WAIT_GROUP and op is not None and op.operands:
                operand = op.operands[0]
                kept = int(operand.bits) if isinstance(operand, Immediate) else 0
            waiting = groups.get(warp, [])
            done = waiting[: max(len(waiting) - kept, 0)]
            groups[warp] = waiting[len(done) :]
            if orders[point] is Order.WAIT_ALL:
                done = [*done, open_copies.pop(warp, [])]
            for number in (each for group in done for each in group):
                found[number] = found[number]._replace(completed=step)
    return found
