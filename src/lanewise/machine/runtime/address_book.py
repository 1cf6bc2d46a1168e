"""Arrays with a device address of their own, outside of any launch: what `lanewise.address` gives.

Kernels follow such addresses in arrays of pointers and in structs, where a launch does not see the array. So
a launch has the memory of every array that is in the book. An array leaves the book when it is collected.
What has an address is the owner of an array's memory: the array that it is a view of.
"""

import threading
import weakref
from collections import deque

import numpy as np

from lanewise.jit.host_memory import address
from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.runtime.device_memory import View
from lanewise.numpy_types import AnyArray

Array = AnyArray


def owner_of(array: Array) -> Array:
    """Return the array whose memory an array is a view of: itself if it is not a view.

    Memory that NumPy did not allocate (a buffer, a mapped file) belongs to the first array made of it.

    >>> whole = np.zeros(8)
    >>> owner_of(whole[2:5][1:]) is whole, owner_of(whole) is whole
    (True, True)
    """
    owner, base = array, array.base
    # as_strided puts an object of NumPy's own between a view and the array that it is of.
    while isinstance(base, np.ndarray) or type(base).__module__.partition(".")[0] == "numpy":
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


#: Alignments that hosts give to bytes by hand: 64 is that of a tensor map in C++, 4096 that of a page.
_BY_HAND = (4096, 2048, 1024, 512, 256, 128, 64)


def alignment_by_hand(array: Array, owner: Array) -> int:
    """Return to how many bytes the host has aligned a view of an owner of bytes; 1 if it has not.

    That is how hosts align: of more bytes than they need, they pass those from the first multiple on.

    >>> page = np.zeros(8192, np.uint8)
    >>> raw = np.frombuffer(page[-address(page) % 4096 + 16 :].data, np.uint8)
    >>> alignment_by_hand(raw[112:], raw), alignment_by_hand(raw[113:], raw)
    (128, 1)
    """
    start, first = bounds(owner)[0], bounds(array)[0]
    if owner.itemsize != 1 or first == start:
        return 1
    return next((multiple for multiple in _BY_HAND if first - start == -start % multiple), 1)


def bounds(array: Array) -> tuple[int, int]:
    """Return the host addresses of an array's first byte and of the byte after its last."""
    low = high = address(array)
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    for size, stride in zip(array.shape, array.strides, strict=True):
        span = (size - 1) * stride
        low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high + array.itemsize


#: Device addresses between two owners that belong to neither.
GAP = 1 << 24
#: The alignment of an owner's device address; cudaMalloc's is 256 bytes or more.
ALIGNMENT = 1 << 21
#: Arrays of the past that a fault can still name.
_MOST_COLLECTED = 4096


class AddressedMemory:
    """Memory of an owner in the book: host addresses, the device address of its start, its arrays."""

    def __init__(
        self, start: int, stop: int, first: int, title: str, is_foreign: bool, views: list[View] | None = None
    ) -> None:
        self.start, self.stop, self.first, self.title = start, stop, first, title
        #: Whether NumPy did not allocate it: then another owner may overlap.
        self.is_foreign = is_foreign
        self.views = views or []

    def __contains__(self, place: int) -> bool:
        return self.first <= place < self.first + self.stop - self.start


class AddressBook:
    """The device addresses of arrays, by owner. Owners that overlap on the host keep their distance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = abi.ADDRESSED_BASE
        self._known: dict[int, tuple[weakref.ref[Array], AddressedMemory]] = {}
        self._foreign: dict[int, tuple[weakref.ref[Array], AddressedMemory]] = {}
        self._collected: deque[AddressedMemory] = deque(maxlen=_MOST_COLLECTED)

    def __len__(self) -> int:
        return len(self._known)

    def enter(self, array: Array, function: str = "lw.address") -> int:
        """Return the device address of an array; it has one from now on. `function` is what asked for it."""
        owner = owner_of(array)
        title = f"the array of {function} ({array.dtype}, {array.shape})"
        with self._lock:
            memory = self._entry(owner, title, alignment_by_hand(array, owner))
            first, end = bounds(array)
            view = View(title, first - memory.start, end - first, bool(array.flags.writeable))
            if view not in memory.views:
                memory.views.append(view)
            return memory.first + address(array) - memory.start

    def _entry(self, owner: Array, title: str, alignment: int) -> AddressedMemory:
        """Return the memory of an owner in the book, entered now if it is new.

        A new one keeps its host address, up to a multiple of an alignment.
        """
        start, stop = bounds(owner)
        known = self._known.get(id(owner))
        if known is not None and known[0]() is owner and (known[1].start, known[1].stop) == (start, stop):
            return known[1]
        is_foreign = not owner.flags.owndata
        near = self._overlapping(start, stop, is_foreign)
        if near is not None:
            first = near.first + start - near.start
        else:
            first = self._next + start % alignment
            self._next = aligned(first + stop - start + GAP, ALIGNMENT)
        return self._add(owner, AddressedMemory(start, stop, first, title, is_foreign))

    def _overlapping(self, start: int, stop: int, is_foreign: bool) -> AddressedMemory | None:
        """Return memory in the book that overlaps a range; two ranges that NumPy allocated never do."""
        known = self._known if is_foreign else self._foreign
        ranges = [span for _, span in list(known.values())]  # an array may be collected meanwhile
        return next((span for span in ranges if start < span.stop and span.start < stop), None)

    def _add(self, owner: Array, memory: AddressedMemory) -> AddressedMemory:
        """Add an owner, which leaves the book when it is collected."""
        self._known[id(owner)] = weakref.ref(owner), memory
        if memory.is_foreign:
            self._foreign[id(owner)] = self._known[id(owner)]
        weakref.finalize(owner, self._forget, id(owner), memory).atexit = False
        return memory

    def adopt(self, array: Array, first: int, views: tuple[View, ...]) -> None:
        """Give an array a certain device address: a worker has a copy of memory that another process has."""
        start, stop = bounds(array)
        title = views[0].name if views else "the array of lw.address"
        with self._lock:
            # Where device addresses are the host's, memory of the past may have had them.
            past = [gone for gone in list(self._collected) if first < gone.first + gone.stop - gone.start]
            for gone in past:
                if gone.first < first + stop - start:
                    self._collected.remove(gone)
            self._add(array, AddressedMemory(start, stop, first, title, False, list(views)))

    def withdraw(self, array: Array) -> None:
        """Take an array out of the book although it is not collected: its memory is given back."""
        with self._lock:
            known = self._known.get(id(array))
            if known is not None and known[0]() is array:
                self._forget(id(array), known[1])

    def _forget(self, key: int, memory: AddressedMemory) -> None:
        """Take an owner out of the book; runs when it is collected, in any thread and without the lock."""
        known = self._known.get(key)
        if known is not None and known[1] is memory:
            self._known.pop(key, None)
            self._foreign.pop(key, None)
            self._collected.append(memory)

    def living(self) -> list[tuple[Array, AddressedMemory]]:
        """Return the owners that are in the book, each with its memory."""
        known = [(reference(), memory) for reference, memory in list(self._known.values())]
        return [(owner, memory) for owner, memory in known if owner is not None]

    def collected_at(self, place: int) -> AddressedMemory | None:
        """Return the memory at a device address whose array was collected; None if there was none."""
        return next((gone for gone in reversed(list(self._collected)) if place in gone), None)


#: The arrays that `lanewise.address` was asked for.
ADDRESSES = AddressBook()
