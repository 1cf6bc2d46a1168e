"""Sets of bytes as sorted ranges, and what an operation does with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag, auto
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.virtual_gpu.order.host_lines import host_line
from lanewise.virtual_gpu.order.stream_order import LEGACY, NODE, Moment, StreamKey, StreamOrder

if TYPE_CHECKING:
    from lanewise.machine.checker.report import Finding


#: First address and the one behind the last, a row for each range; rows are sorted and do not touch.
Ranges = npt.NDArray[np.int64]


class AccessKind(IntFlag):
    """What an operation does with bytes."""

    READ = auto()
    WRITE = auto()
    #: By atomic or other strong operations at the scope of the GPU, which do not race with each other.
    STRONG = auto()

    @property
    def verb(self) -> str:
        """What the operation does, in words."""
        words = "writes" if self & AccessKind.WRITE else "reads"
        return f"{words} (atomically)" if self & AccessKind.STRONG else words

    def conflicts(self, other: AccessKind) -> bool:
        """Return whether two accesses to one byte race if nothing orders them."""
        both_strong = bool(self & other & AccessKind.STRONG)
        return bool((self | other) & AccessKind.WRITE) and not both_strong


class Access(NamedTuple):
    """Bytes of one allocation that an operation reads or writes; `home` is where the allocation begins."""

    home: int
    kind: AccessKind
    ranges: Ranges


def one_range(first: int, size: int) -> Ranges:
    """Return a single range."""
    return np.array([(first, first + size)], np.int64)


def ranges_of(marks: npt.NDArray[np.bool_], first: int, step: int) -> Ranges:
    """Return the ranges of bytes that cells of some bytes each have marks for, from an address on.

    >>> ranges_of(np.array([True, True, False, True]), 100, 4).tolist()
    [[100, 108], [112, 116]]
    """
    edges = np.flatnonzero(np.diff(marks, prepend=False, append=False))
    return (first + step * edges.astype(np.int64)).reshape(-1, 2)


def common(one: Ranges, other: Ranges) -> tuple[int, int] | None:
    """Return the first bytes that two sets share, as an address and the one behind; None if none.

    >>> common(np.array([[0, 4], [8, 12]]), np.array([[4, 8], [10, 20]]))
    (10, 12)
    """
    if not one.size or not other.size or one[-1, 1] <= other[0, 0] or other[-1, 1] <= one[0, 0]:
        return None
    # The first range of `other` that ends behind the begin of each range of `one`.
    at = np.searchsorted(other[:, 1], one[:, 0], "right")
    near = at < len(other)
    meets = np.zeros(len(one), bool)
    meets[near] = other[at[near], 0] < one[near, 1]
    if not meets.any():
        return None
    number = int(np.argmax(meets))
    mate = other[at[number]]
    return int(max(one[number, 0], mate[0])), int(min(one[number, 1], mate[1]))


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
