"""The heap of a module's kernels: `malloc` and `free`, and `new` and `delete`, which call them."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from enum import IntEnum
from typing import NamedTuple

from lanewise.jit.host_memory import Bytes, address, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.runtime.device_memory import HEAPS, Allocation
from lanewise.ptx import Module

#: Sizes are multiples of this.
UNIT = 16
#: Ranges of up to so many units are kept by their exact size, longer ones by powers of two.
_EXACT_UNITS = 64


class FreeRanges:
    """The free ranges of some memory.

    >>> free = FreeRanges()
    >>> free.give(0, 64), free.take(16), free.take(64)
    (64, 0, None)
    >>> free.give(0, 16), free.take(64)
    (64, 0)
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        #: The starts of ranges by their class of size; dictionaries, because they keep their order.
        self._classes: defaultdict[int, dict[int, None]] = defaultdict(dict)

    def copy(self) -> FreeRanges:
        """Return ranges like these, which change by themselves."""
        made = FreeRanges()
        for start, end in self._ends.items():
            made.give(start, end - start)
        return made

    def give(self, start: int, size: int) -> int:
        """Add a range; return the size of the range that it is a part of now."""
        end = start + size
        before, behind = self._starts.get(start), self._ends.get(end)
        if before is not None:
            self._remove(before)
            start = before
        if behind is not None:
            self._remove(end)
            end = behind
        self._ends[start], self._starts[end] = end, start
        self._classes[_class_of(end - start)][start] = None
        return end - start

    def take(self, size: int) -> int | None:
        """Return the start of a range of a size that was free; None if there is none so long."""
        start = self._find(size)
        if start is None:
            return None
        end = self._ends[start]
        self._remove(start)
        if end > start + size:
            self.give(start + size, end - start - size)
        return start

    def _find(self, size: int) -> int | None:
        """Return the start of a range of at least a size, of the first class that has one."""
        least = _class_of(size)
        for number in sorted(
            class_of for class_of, starts in self._classes.items() if starts and class_of >= least
        ):
            for start in self._classes[number]:
                if self._ends[start] - start >= size:
                    return start
        return None

    def _remove(self, start: int) -> None:
        """Take a whole range out."""
        end = self._ends.pop(start)
        del self._starts[end]
        del self._classes[_class_of(end - start)][start]


def _class_of(size: int) -> int:
    """Return the class of a size; a range of a higher class is longer than one of a lower."""
    units = size // UNIT
    return units if units <= _EXACT_UNITS else _EXACT_UNITS + units.bit_length()


#: Bytes of a heap: the default of a GPU (cudaLimitMallocHeapSize).
HEAP_BYTES = 8 << 20
#: Bytes between two blocks of memory that belong to neither; a GPU keeps its own account there.
GAP = 16


class ByteState(IntEnum):
    """What a byte of the heap is to a checked launch."""

    UNALLOCATED = 0
    UNINITIALISED = 1
    INITIALISED = 2
    FREED = 3


class Caller(NamedTuple):
    """Who called malloc or free: the instruction's site, the thread and its block."""

    site: int
    thread: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def title(self) -> str:
        """The thread in messages."""
        return f"by thread {self.thread} in block {self.block}"


class HeapBlock(NamedTuple):
    """Memory that malloc gave: its address, the size that was asked for, who asked, and who freed it."""

    first: int
    size: int
    owner: Caller
    freed_by: Caller | None = None

    @property
    def whole(self) -> int:
        """The bytes that it takes, with those behind it that belong to nobody."""
        return aligned(max(self.size, 1), UNIT) + GAP

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and self.first <= place < self.first + self.size

    @property
    def title(self) -> str:
        """The block of memory in messages."""
        freed = f", freed {self.freed_by.title}" if self.freed_by is not None else ""
        return f"{self.size} bytes from malloc {self.owner.title}{freed}"


class HeapState(NamedTuple):
    """Who had which memory of a heap at some time; what the memory held is not in it."""

    blocks: dict[int, HeapBlock]
    freed: dict[int, HeapBlock]
    waiting: tuple[HeapBlock, ...]
    free: FreeRanges
    states: Bytes | None


class Heap:
    """The heap of a module; it lasts from launch to launch.

    New memory comes from where none was before, as long as there is any: a use of memory after it was freed
    then finds it as it was left, and a check knows whose it was.
    """

    def __init__(self) -> None:
        self.memory = zeroed_bytes(HEAP_BYTES)
        self.lock = threading.Lock()
        self.blocks: dict[int, HeapBlock] = {}
        #: Blocks that were freed and whose memory has no new owner yet.
        self.freed: dict[int, HeapBlock] = {}
        #: A ByteState for each byte, once a checked launch has asked for them.
        self.states: Bytes | None = None
        #: Memory that was freed and waits for its turn, the longest freed first; and what can be given.
        self._waiting: deque[HeapBlock] = deque()
        self._free = FreeRanges()
        self._free.give(abi.HEAP_BASE + GAP, HEAP_BYTES - GAP)

    @property
    def allocation(self) -> Allocation:
        """The whole heap as one allocation."""
        return Allocation("the heap", abi.HEAP_BASE, HEAP_BYTES, address(self.memory), True)

    def state(self) -> HeapState:
        """Return a copy of who has which memory, for `restore`."""
        with self.lock:
            states = self.states.copy() if self.states is not None else None
            return HeapState(
                dict(self.blocks), dict(self.freed), tuple(self._waiting), self._free.copy(), states
            )

    def restore(self, state: HeapState) -> None:
        """Let everybody have what they had before: a launch is repeated."""
        with self.lock:
            self.blocks, self.freed = dict(state.blocks), dict(state.freed)
            self._waiting, self._free = deque(state.waiting), state.free.copy()
            if self.states is not None:  # where it lies, launches know
                self.states[:] = state.states if state.states is not None else ByteState.INITIALISED

    def track(self) -> Bytes:
        """Return the state of each byte, kept from now on; what is allocated now counts as initialised."""
        with self.lock:
            if self.states is None:
                self.states = zeroed_bytes(HEAP_BYTES)
                for block in self.freed.values():
                    self._mark(block, ByteState.FREED)
                for block in self.blocks.values():
                    self._mark(block, ByteState.INITIALISED)
            return self.states

    def take_as_initialised(self) -> None:
        """Count all memory as initialised: a launch begins that does not keep account of what it writes."""
        if self.states is not None:
            with self.lock:
                self.states[self.states == ByteState.UNINITIALISED] = ByteState.INITIALISED

    def _mark(self, block: HeapBlock, state: ByteState) -> None:
        """Set the state of the bytes of a block."""
        if self.states is not None:
            start = block.first - abi.HEAP_BASE
            self.states[start : start + block.size] = state

    def allocate(self, size: int, owner: Caller, tracked: bool = False) -> int:
        """Return the address of new memory of some bytes, or 0 if there is not enough.

        Its bytes count as uninitialised if a checked launch, which tracks what is written, asks for them.
        """
        block = HeapBlock(0, size, owner)
        with self.lock:
            start = self._take(block.whole)
            if not start:
                return 0
            block = self.blocks[start] = block._replace(first=start)
            if self.states is not None:
                offset = start - abi.HEAP_BASE
                self.states[offset : offset + block.whole] = ByteState.UNALLOCATED
            self._mark(block, ByteState.UNINITIALISED if tracked else ByteState.INITIALISED)
            return start

    def _take(self, whole: int) -> int:
        """Return the address of free memory of some bytes, or 0: untouched memory, else the longest freed."""
        start = self._free.take(whole)
        while start is None and self._waiting:
            block = self._waiting.popleft()
            self.freed.pop(block.first, None)
            if self._free.give(block.first, block.whole) >= whole:
                start = self._free.take(whole)
        return start or 0

    def free(self, place: int, caller: Caller) -> str:
        """Free memory by its address; return why that cannot be, or an empty text."""
        with self.lock:
            block = self.blocks.pop(place, None)
            if block is None:
                return "" if place == 0 else self._why_not(place)
            freed = self.freed[place] = HeapBlock(block.first, block.size, block.owner, caller)
            self._mark(freed, ByteState.FREED)
            self._waiting.append(freed)
            return ""

    def _why_not(self, place: int) -> str:
        """Return why memory at an address cannot be freed."""
        if place in self.freed:
            return f"which was freed before ({self.freed[place].title})"
        block = self.at(place)
        if block is not None and block.freed_by is None and place in block:
            return (
                f"which malloc did not return: it is byte {place - block.first} of {block.title}; "
                "free takes the address of the first"
            )
        return "which malloc did not return"

    def at(self, place: int) -> HeapBlock | None:
        """Return the block that has an address, or else the last before it; freed ones count."""
        known = [*self.blocks.values(), *self.freed.values()]
        before = [block for block in known if block.first <= place]
        return max(before, key=lambda block: block.first, default=None)


def heap_of(module: Module) -> Heap:
    """Return the heap of a module's kernels; instances of its templates share it."""
    module = module.root or module
    kept = HEAPS.get(id(module))
    if kept is None:
        kept = HEAPS[id(module)] = Heap()
        weakref.finalize(module, HEAPS.pop, id(module), None)
    return kept
