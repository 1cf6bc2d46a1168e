"""Races between operations of a program: launches, copies and fills that no stream, event or wait orders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanewise.virtual_gpu.order.byte_ranges import Access, AccessKind, Ranges, common
from lanewise.virtual_gpu.order.host_lines import host_line
from lanewise.virtual_gpu.order.stream_order import LEGACY, NODE, Moment, StreamKey, StreamOrder

if TYPE_CHECKING:
    from lanewise.machine.checker.report import Finding

#: Accesses to one allocation that are kept while the host has not waited for them; the oldest are dropped.
MOST_KEPT = 1024


@dataclass(frozen=True)
class Operation:
    """A launch, copy or fill: what it is in words, when it runs, and the line of the program that made it."""

    title: str
    moment: Moment
    line: str | None

    @property
    def stream(self) -> str:
        """The stream in words."""
        return stream_title(self.moment.stream)

    @property
    def is_node(self) -> bool:
        """Whether it is a node of a graph."""
        return self.moment.stream[0] == NODE

    @property
    def where(self) -> str:
        """Where it runs, as messages say it."""
        return "in a graph" if self.is_node else f"on {self.stream}"


@dataclass(frozen=True)
class _Kept:
    """An access that a later operation may race with."""

    operation: Operation
    kind: AccessKind
    ranges: Ranges


def stream_title(key: StreamKey) -> str:
    """Return a stream as messages call it."""
    kind, number = key
    if kind == NODE:
        return "the graph's stream"
    return "the default stream" if key == LEGACY else f"{kind} {number}"


class StreamRaces:
    """Follows the operations of a program and finds pairs that touch the same bytes without an order."""

    def __init__(self, titles: Callable[[int], str]) -> None:
        self.order = StreamOrder()
        #: What messages call the memory at an address.
        self._titles = titles
        self._lock = threading.RLock()
        self._kept: dict[int, list[_Kept]] = {}
        self._found: dict[tuple[object, ...], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """The races, each pair of operations of the program once."""
        return list(self._found.values())

    def operation(
        self, title: str, stream: StreamKey, accesses: Sequence[Access], line: str | None = None
    ) -> None:
        """Note an operation that is issued now, by a line of the program, and find what it races with."""
        with self._lock:
            now = Operation(title, self.order.operation(stream), line or host_line())
            for access in accesses:
                if access.ranges.size:
                    self._compare(now, access)
            for access in accesses:
                if access.ranges.size:
                    self._keep(now, access)

    def forget(self, home: int) -> None:
        """Forget the accesses to an allocation that is no more."""
        with self._lock:
            self._kept.pop(home, None)

    def _compare(self, now: Operation, access: Access) -> None:
        kept = self._kept.get(access.home)
        if not kept:
            return
        living = [earlier for earlier in kept if not self.order.is_over(earlier.operation.moment)]
        self._kept[access.home] = living
        for earlier in living:
            if access.kind.conflicts(earlier.kind) and not now.moment.follows(earlier.operation.moment):
                shared = common(earlier.ranges, access.ranges)
                if shared is not None:
                    self._add(earlier, now, access, shared)

    def _keep(self, now: Operation, access: Access) -> None:
        kept = self._kept.setdefault(access.home, [])
        new = _Kept(now, access.kind, access.ranges)
        # A launch that is repeated on its stream stands for the one before it.
        for number, earlier in enumerate(kept):
            if (
                earlier.operation.moment.stream == now.moment.stream
                and (earlier.kind, earlier.operation.title, earlier.operation.line)
                == (access.kind, now.title, now.line)
                and earlier.ranges.shape == access.ranges.shape
                and bool((earlier.ranges == access.ranges).all())
            ):
                kept[number] = new
                return
        kept.append(new)
        del kept[:-MOST_KEPT]

    def _add(self, before: _Kept, now: Operation, access: Access, shared: tuple[int, int]) -> None:
        from lanewise.machine.checker.report import Finding

        first = before.operation
        key = (first.title, first.line, now.title, now.line)
        if key in self._found:
            return
        start, end = shared
        size = f"{end - start:,} byte{'s' if end - start != 1 else ''} at {start:#x}"
        message = (
            f"{now.title} {now.where} {access.kind.verb} {size}, which {first.title} {first.where} "
            f"{before.kind.verb}; no event and no wait orders the two"
        )
        other = Finding("race", f"{first.title} {first.where}", *_place(first.line), quote=_text(first.line))
        self._found[key] = Finding(
            "race",
            message,
            *_place(now.line),
            address=start,
            allocation=self._titles(start) or None,
            other=other,
            mend=_mend(first, now),
            quote=_text(now.line),
        )


def _place(line: str | None) -> tuple[int, str, str | None]:
    """Return the number of a line of the program, no text of PTX, and the line as findings have it."""
    return (int(line.rpartition(":")[2]) if line else 0), "", line


def _text(line: str | None) -> str:
    """Return the text of a line of the program."""
    import linecache

    if line is None:
        return ""
    name, _, number = line.rpartition(":")
    return linecache.getline(name, int(number)).strip()


def _mend(first: Operation, now: Operation) -> str:
    """Return what orders two operations."""

    def at(operation: Operation) -> str:
        where = f" (line {operation.line.rpartition(':')[2]})" if operation.line else ""
        return f"{operation.title}{where}"

    if first.is_node and now.is_node:
        return (
            f"let one node depend on the other: {at(first)} and {at(now)}; in a capture, by an event of one "
            "stream that the other waits for"
        )
    return (
        f"record an event on {first.stream} after {at(first)}, and let {now.stream} wait for it before "
        f"{at(now)}: cudaEventRecord and cudaStreamWaitEvent, or wait_stream in torch"
    )
