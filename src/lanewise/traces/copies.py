"""Asynchronous operations of a trace: where each was issued, where its group was closed, where it was done.

These are copies, and what a block gives to the pipe of tcgen05: products, copies, shifts and commits.
"""

from typing import NamedTuple

import numpy as np

from lanewise.machine.program.instruction_record import Order, Proxy
from lanewise.machine.program.ops import Op
from lanewise.machine.tracer.points import Point
from lanewise.ptx import Immediate
from lanewise.traces.recording import Recording
from lanewise.traces.tensor_memory import tensor_reading


class Copy(NamedTuple):
    """An asynchronous copy of a warp, or a tcgen05 operation: the steps of issue, commit and completion.

    A copy with a group is complete where its warp has waited for the group. One that tells an mbarrier has no
    group, and is complete where its bytes have arrived. None stands for what had not happened when the trace
    ended. cp.async arrives at once on the machine, which is one of the times that the PTX ISA allows; nobody
    may read the bytes before `completed`. A tcgen05.mma, cp or shift is committed by the next tcgen05.commit
    of its warp, and complete where that has arrived at its mbarrier; a tcgen05.st where its warp has waited.
    """

    warp: int
    block: int
    issued: int
    committed: int | None
    completed: int | None
    #: The instruction, and the bytes that it wrote as far as they are known.
    text: str = ""
    bytes: int | None = None


#: Orders that close a group, and those that wait for groups: of cp.async, and of bulk copies.
_COMMITS = {Order.COMMIT: Proxy.GENERIC, Order.BULK_COMMIT: Proxy.ASYNC}
_WAITS = {
    Order.WAIT_GROUP: Proxy.GENERIC,
    Order.WAIT_ALL: Proxy.GENERIC,
    Order.BULK_WAIT: Proxy.ASYNC,
}
#: A block, a warp, and the proxy of its copies.
_Key = tuple[int, int, Proxy]


class _Groups:
    """The copies of each warp: those in no group yet, and the groups that nobody has waited for."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.open: dict[_Key, list[int]] = {}
        self.closed: dict[_Key, list[list[int]]] = {}

    def commit(self, key: _Key, step: int) -> None:
        """Close the group of a warp."""
        group = self.open.pop(key, [])
        self.closed.setdefault(key, []).append(group)
        for number in group:
            self.copies[number] = self.copies[number]._replace(committed=step)

    def wait(self, key: _Key, step: int, kept: int, all_copies: bool) -> None:
        """Complete all groups but some of the latest, and copies without a group if all are waited for."""
        waiting = self.closed.get(key, [])
        done = waiting[: max(len(waiting) - kept, 0)]
        self.closed[key] = waiting[len(done) :]
        if all_copies:
            done = [*done, self.open.pop(key, [])]
        for number in (copy for group in done for copy in group):
            self.copies[number] = self.copies[number]._replace(completed=step)


def copies_of(recording: Recording) -> list[Copy]:
    """Return the asynchronous copies in the order in which they were issued."""
    log, groups, pipe = recording.log, _Groups(), _TensorPipe(recording)
    issues = [_issued_by(point) for point in log.points]
    for step, entry in enumerate(recording.steps.tolist()):
        header = log.entries[entry]
        point, op = log.point(entry), recording.op(entry)
        if op is None or not int(header["active"]):
            continue
        block, warp, order = int(header["block"]), int(header["warp"]), op.record.orders
        proxy = issues[point.number]
        if op.record.touches_tensor_memory:
            pipe.step(groups.copies, op, entry, Copy(warp, block, step, None, None, op.head))
        elif proxy is not None:
            number = len(groups.copies)
            size = _bytes(recording, entry, point)
            groups.copies.append(Copy(warp, block, step, None, None, op.head, size))
            if _tells_mbarrier(point):
                arrived = _arrival(recording, entry)
                groups.copies[number] = groups.copies[number]._replace(completed=arrived)
            else:
                groups.open.setdefault((block, warp, proxy), []).append(number)
        elif order in _COMMITS:
            groups.commit((block, warp, _COMMITS[order]), step)
        elif order in _WAITS:
            groups.wait((block, warp, _WAITS[order]), step, _kept(op), order is Order.WAIT_ALL)
    return groups.copies


class _TensorPipe:
    """The tcgen05 operations of each warp that no commit, and the stores that no wait has followed yet."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.issued: dict[tuple[int, int], list[int]] = {}
        self.stores: dict[tuple[int, int], list[int]] = {}

    def step(self, copies: list[Copy], op: Op, entry: int, now: Copy) -> None:
        """Add what a step issues to the copies, or complete those that it commits or waits for."""
        key = now.block, now.warp
        if op.has("commit"):
            arrived = self._arrival(entry)
            for number in self.issued.pop(key, []):
                copies[number] = copies[number]._replace(committed=now.issued, completed=arrived)
            copies.append(now._replace(completed=arrived))
        elif "wait::st" in op.head:
            for number in self.stores.pop(key, []):
                copies[number] = copies[number]._replace(completed=now.issued)
        elif op.record.multiplies or op.has("st") or op.has("cp") or op.has("shift"):
            own = self.stores if op.has("st") else self.issued
            own.setdefault(key, []).append(len(copies))
            words = sum(
                access.words for access in tensor_reading(self.recording).accesses(entry) if access.writes
            )
            copies.append(now._replace(bytes=4 * words))

    def _arrival(self, entry: int) -> int | None:
        """Return the step at which the mbarriers of a commit were reached; None if one of them was not."""
        completions = self.recording.log.completions
        mine = completions.entry[completions.issuer == entry]
        return _step_of(self.recording, int(mine[-1])) if len(mine) else None


def _issued_by(point: Point) -> Proxy | None:
    """Return the proxy of the asynchronous copy that an instruction issues; None if it issues none."""
    writes = (
        access.located.access
        for access in point.accesses
        if access.located.access.asynchronous and access.located.access.writes
    )
    return next((write.proxy for write in writes), None)


def _tells_mbarrier(point: Point) -> bool:
    """Return whether an mbarrier is told of the copy, which then belongs to no group."""
    return point.op is not None and any("complete_tx" in modifier for modifier in point.op.modifiers)


def _arrival(recording: Recording, entry: int) -> int | None:
    """Return the first step after which all bytes of a copy that tells an mbarrier are there."""
    log = recording.log
    issuer, lanes = log.runs.issuer, int(log.entries["active"][entry]).bit_count()
    mine = np.unique(log.runs.entry[issuer == entry])
    if len(mine) < lanes:  # a lane's copy has not taken effect, or was not logged
        return None
    return _step_of(recording, int(mine[-1]))


def _step_of(recording: Recording, entry: int) -> int:
    """Return the step at which, or before which, an asynchronous operation took effect."""
    during = int(recording.log.entries["barrier"][entry])
    return max(int(np.searchsorted(recording.steps, entry)) - bool(during), 0)


def _bytes(recording: Recording, entry: int, point: Point) -> int | None:
    """Return the bytes that a copy has written; None if nothing of it is known yet."""
    log = recording.log
    written = log.runs.size[log.runs.issuer == entry]
    if len(written):
        return int(written.sum())
    fixed = [
        access.located for access in point.accesses if access.located.access.writes and access.located.size
    ]
    if fixed and fixed[0].access.proxy is Proxy.GENERIC:
        return fixed[0].size * int(log.entries["active"][entry]).bit_count()
    return None


def _kept(op: Op) -> int:
    """Return how many of the latest groups a wait leaves alone."""
    operand = op.operands[0] if op.operands else None
    return int(operand.bits) if isinstance(operand, Immediate) else 0
