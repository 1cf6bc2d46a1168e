"""Work of the GPU that the host has not waited for, and host code that touches what it has changed.

On the virtual GPU all work is done when its call returns, so that a wait which is missing changes nothing. A
check knows better: pages of managed and pinned memory that a kernel or an asynchronous copy has changed are
taken from host code until it waits. Host code that touches them before is stopped by the processor; the
mistake is noted, and it goes on. Kernels that signal to the host while they run are left alone.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.virtual_gpu.driver.reserved_addresses import NO_ACCESS, protect_memory
from lanewise.virtual_gpu.order.host_lines import host_line

if TYPE_CHECKING:
    from lanewise.jit.host_memory import Bytes
    from lanewise.ptx import Entry
    from lanewise.ptx.model.function import Function
    from lanewise.virtual_gpu.driver.host_mistakes import HostMistakes
    from lanewise.virtual_gpu.driver.memory import Allocation, Memory

#: The kind of a finding.
KIND = "missing wait"
#: Shared memory of more bytes than this is not compared before and after a launch.
_MOST_BYTES = 64 << 20
#: By instructions with these modifiers a kernel and the host can talk while the kernel runs.
_SIGNALS = frozenset(("sys", "volatile", "mmio"))
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


@dataclass(frozen=True)
class Unfinished:
    """Bytes that work of the GPU has to do with: what work, the line that started it, and which bytes."""

    title: str
    line: str | None
    first: int
    #: Of each byte from the first on, whether the work has it; None if it has all.
    marks: Bytes | None
    size: int
    is_written: bool

    def has(self, place: int) -> bool:
        """Return whether the work has a byte."""
        offset = place - self.first
        return 0 <= offset < self.size and (self.marks is None or bool(self.marks[offset]))


def _changed(now: Bytes, before: Bytes) -> Bytes:
    """Return of each byte whether it is another than before; words of four bytes change as a whole.

    >>> _changed(np.array([0, 0, 1, 0, 5], np.uint8), np.array([0, 0, 0, 0, 5], np.uint8)).tolist()
    [1, 1, 1, 1, 0]
    """
    words = np.zeros(-(-now.size // 4) * 4, bool)
    words[: now.size] = now != before
    return np.repeat(words.reshape(-1, 4).any(axis=1), 4)[: now.size].astype(np.uint8)


class UnfinishedWork:
    """The work that the host has not waited for, while launches are checked."""

    def __init__(self, memory: Memory, mistakes: HostMistakes) -> None:
        self._memory, self._mistakes = memory, mistakes
        self._works: list[Unfinished] = []
        self._pages: set[int] = set()
        #: Kernels, by the identity of their function, and whether they may talk with the host as they run.
        self._kernels: dict[int, tuple[Function, bool]] = {}

    @property
    def _is_watched(self) -> bool:
        return self._memory.reserved is not None and self._mistakes.are_reported

    def _signals(self, entry: Entry) -> bool:
        """Return whether a kernel, or a function that it may call, can talk with the host while it runs."""
        kernel = entry.function
        if id(kernel) not in self._kernels:
            calls = any(operation.opcode == "call" for operation in kernel.operations)
            code = (kernel, *entry.module.functions.values()) if calls else (kernel,)
            can = any(_SIGNALS.intersection(it.modifiers) for part in code for it in part.operations)
            self._kernels[id(kernel)] = kernel, can
        return self._kernels[id(kernel)][1]

    def before_launch(self, entry: Entry) -> dict[int, Bytes]:
        """Return copies of the memory that host and device share, by its address."""
        if not self._is_watched:
            return {}
        shared = self._memory.shared()
        if not shared or sum(known.size for known in shared) > _MOST_BYTES or self._signals(entry):
            return {}
        return {known.first: known.bytes.copy() for known in shared}

    def launched(self, title: str, before: dict[int, Bytes]) -> None:
        """Note what a launch has changed in memory that host and device share."""
        for first, content in before.items():
            known = self._memory.find(first)
            if known is None or known.size != content.size:
                continue
            changed = _changed(known.bytes, content)
            if changed.any():
                self._add(Unfinished(title, host_line(), first, changed, known.size, True))

    def copied(self, target: int, source: int, bytes: int) -> None:
        """Note an asynchronous copy, from or to pinned memory of the host for instance."""
        if not self._is_watched or not bytes:
            return
        for place, is_written in ((target, True), (source, False)):
            known = self._memory.find(place)
            if known is not None and known.is_shared:
                self._add(Unfinished("the copy", host_line(), place, None, bytes, is_written))

    def _add(self, work: Unfinished) -> None:
        """Keep work, and take the pages from host code most of whose bytes it has."""
        self._works.append(work)
        known = self._memory.find(work.first)
        assert known is not None
        for page in range(work.first // mmap.PAGESIZE, -(-(work.first + work.size) // mmap.PAGESIZE)):
            start = page * mmap.PAGESIZE
            begin = max(start, known.first)
            end = min(start + mmap.PAGESIZE, known.first + known.size)
            low, high = max(begin, work.first), min(end, work.first + work.size)
            if work.marks is not None:
                held = np.flatnonzero(work.marks[low - work.first : high - work.first])
                low, high = (low + int(held[0]), low + int(held[-1]) + 1) if held.size else (low, low)
            if 2 * (high - low) >= end - begin and page not in self._pages:
                self._pages.add(page)
                protect_memory(start, mmap.PAGESIZE, NO_ACCESS)

    def waited(self) -> None:
        """Note that the host has waited: nothing is unfinished, and all pages are the host's again."""
        if self._works:
            self._works.clear()
            for page in self._pages:
                protect_memory(page * mmap.PAGESIZE, mmap.PAGESIZE, _READ_WRITE)
            self._pages.clear()

    def forget(self, known: Allocation) -> None:
        """Forget memory that is given back."""
        self._works = [work for work in self._works if not known.has(work.first)]
        first, last = known.first // mmap.PAGESIZE, (known.first + known.size - 1) // mmap.PAGESIZE
        self._pages = {page for page in self._pages if not first <= page <= last}

    def touched(self, place: int, verb: str, line: str | None) -> bool:
        """Give a page back to host code, which touches it; return whether it was taken from it.

        It is a mistake if unfinished work has the byte. A page that work only reads may be read.
        """
        page = place // mmap.PAGESIZE
        if page not in self._pages:
            return False
        known, start = self._memory.find(place), page * mmap.PAGESIZE
        may_be_read = not any(
            work.is_written and work.first < start + mmap.PAGESIZE and start < work.first + work.size
            for work in self._works
        )
        if verb == "reads" and may_be_read:
            protect_memory(start, mmap.PAGESIZE, mmap.PROT_READ)
            return True
        self._pages.discard(page)
        protect_memory(start, mmap.PAGESIZE, _READ_WRITE)
        for work in self._works:
            if known is not None and work.has(place) and (work.is_written or verb == "writes"):
                from lanewise.machine.program.source_lines import short_place

                what = "written" if work.is_written else "read"
                where = f" ({short_place(work.line)})" if work.line else ""
                message = (
                    f"host code {verb} byte {place - known.first:,} of {known.title}, which {work.title}"
                    f"{where} has {what}, and the host has not waited for it: on a GPU it may not be done"
                )
                mend = f"cudaDeviceSynchronize() before host code {verb} the memory"
                self._mistakes.add(KIND, message, mend, line, place)
                break
        return True
