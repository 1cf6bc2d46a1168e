"""What a log says of the past: who wrote a register of a lane or a byte of memory last, and with what."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lanewise.machine import abi
from lanewise.machine.abi import LANES
from lanewise.machine.program.operands import Register
from lanewise.machine.tracer.log import NOT_KEPT, Log, MemoryWrites, Numbers
from lanewise.machine.tracer.points import LoggedRegister
from lanewise.machine.tracer.records import EntryState
from lanewise.numpy_types import AnyArray
from lanewise.recently_used import RecentlyUsed

#: The number of the entry that has written what nothing has written: registers and shared memory begin as 0.
NOTHING = -1
#: How many contents of registers are remembered.
MOST_HELD = 4096


class RegisterHistory:
    """Who wrote the registers of warps: for each lane the last entry up to some entry."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._kept: dict[tuple[int, int, tuple[int, ...]], tuple[Numbers, dict[int, LoggedRegister]]] = {}
        self._held: RecentlyUsed[tuple[int, int, int, int], tuple[AnyArray, Numbers]] = RecentlyUsed(
            MOST_HELD
        )

    def writes(
        self, block: int, warp: int, registers: Sequence[Register]
    ) -> tuple[Numbers, dict[int, LoggedRegister]]:
        """Return the entries of a warp that wrote one of some registers, and where their points log it."""
        key = block, warp, tuple(register.offset for register in registers)
        if key not in self._kept:
            log = self.log
            by_point: dict[int, LoggedRegister] = {}
            for register in registers:
                by_point |= log.writers.get(register.offset, {})
            table = np.zeros(len(log.points), np.bool_)
            table[list(by_point)] = True
            entries = log.entries
            chosen = table[entries["point"]] & (entries["warp"] == warp) & (entries["block"] == block)
            chosen &= entries["state"] == EntryState.COMPLETE
            self._kept[key] = np.flatnonzero(chosen), by_point
        return self._kept[key]

    def last(
        self, block: int, warp: int, registers: Sequence[Register], entry: int
    ) -> tuple[AnyArray, Numbers]:
        """Return what the lanes of a warp hold after an entry, and the entry that wrote it in each lane."""
        writes, by_point = self.writes(block, warp, registers)
        position = int(np.searchsorted(writes, entry, "right"))
        # Between two writes the lanes hold the same: the list of writes is kept, so its identity is a key.
        key = block, warp, id(writes), position
        kept = self._held.get(key)
        if kept is None:
            kept = self._collect(writes, by_point, registers[0].bits, position)
            self._held.put(key, kept)
        return kept

    def _collect(
        self, writes: Numbers, by_point: dict[int, LoggedRegister], bits: int, position: int
    ) -> tuple[AnyArray, Numbers]:
        """Return what the lanes hold after some of the writes, from the last one back."""
        values = np.zeros((LANES, 2) if bits == 128 else LANES, f"uint{min(bits, 64)}")
        writers = np.full(LANES, NOTHING, np.int64)
        missing = (1 << LANES) - 1
        while missing and position:
            position -= 1
            number = int(writes[position])
            lanes = int(self.log.entries["active"][number]) & missing
            if lanes:
                chosen = lanes_of(lanes)
                written = self.log.register(number, by_point[int(self.log.entries["point"][number])])
                if written.shape == values.shape:
                    values[chosen] = written[chosen]
                    writers[chosen] = number
                    missing &= ~lanes
        values.flags.writeable = writers.flags.writeable = False
        return values, writers


class MemoryHistory:
    """Who wrote memory: the last write of a byte before an entry, and what a block's shared memory held."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._words: dict[tuple[int, int], tuple[Numbers, npt.NDArray[np.uint64]]] = {}

    @property
    def writes(self) -> MemoryWrites:
        """All writes that were logged, in order."""
        return self.log.writes

    @cached_property
    def _by_word(self) -> tuple[npt.NDArray[np.uint64], Numbers]:
        """Words of 4 bytes that were written, in order, and the number of each write to them."""
        writes = self.writes
        # Tensor memory has many words and few writes: those are looked through one by one.
        elsewhere = np.flatnonzero(writes.address < np.uint64(abi.TENSOR_WINDOW))
        writes = MemoryWrites._make(write[elsewhere] for write in writes)
        first = writes.address >> np.uint64(2)
        last = (writes.address + np.maximum(writes.size, 1).astype(np.uint64) - np.uint64(1)) >> np.uint64(2)
        counts = (last - first).astype(np.int64) + 1
        which = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        words = first[which] + within.astype(np.uint64)
        order = np.lexsort((which, words))
        return words[order], elsewhere[which[order]]

    def before(self, address: int, entry: int, block: int, warp: int = 0, lane: int = 0) -> Iterator[int]:
        """Yield the writes of a byte before an entry, the last first, as numbers of `writes`.

        Of shared and tensor memory, those of the block; of local memory, those of the thread.
        """
        writes, entries, space = self.writes, self.log.entries, space_of(address)
        if space == "tensor":
            numbers = np.flatnonzero(writes.address <= np.uint64(address))
            numbers = numbers[writes.address[numbers].astype(np.int64) + writes.size[numbers] > address]
        else:
            words, which = self._by_word
            word = np.uint64(address >> 2)
            low, high = np.searchsorted(words, word, "left"), np.searchsorted(words, word, "right")
            numbers = which[low:high]
        numbers = numbers[: np.searchsorted(writes.entry[numbers], entry, "left")]
        for number in numbers[::-1]:
            if not 0 <= address - int(writes.address[number]) < int(writes.size[number]):
                continue
            owner = entries[int(writes.entry[number])]
            if space in ("shared", "local", "tensor") and int(writes.block[number]) != block:
                continue
            if space == "local" and (int(owner["warp"]), int(writes.row[number])) != (warp, lane):
                continue
            yield int(number)

    def words(self, block: int, address: int) -> tuple[Numbers, npt.NDArray[np.uint64]]:
        """Return the 64-bit words that were written at an address of a block's shared memory, in order.

        An mbarrier is only written as a whole; the entries of the writes come first.
        """
        key = block, address
        if key not in self._words:
            words, which = self._by_word
            low, high = (np.searchsorted(words, np.uint64(address >> 2), side) for side in ("left", "right"))
            writes, numbers = self.writes, which[low:high]
            whole = (writes.address[numbers] == address) & (writes.size[numbers] == 8)
            numbers = numbers[whole & (writes.block[numbers] == block) & (writes.offset[numbers] != NOT_KEPT)]
            raw = self.log.memory[writes.offset[numbers][:, None] + np.arange(8)]
            self._words[key] = writes.entry[numbers], np.ascontiguousarray(raw).view(np.uint64).ravel()
        return self._words[key]

    def shared(self, block: int, size: int, entry: int) -> npt.NDArray[np.uint8]:
        """Return the shared memory of a block after an entry: zeros, and what was written since."""
        writes = self.writes
        memory = np.zeros(size, np.uint8)
        end = int(np.searchsorted(writes.entry, entry, "right"))
        offset = writes.address[:end].astype(np.int64) - abi.SHARED_WINDOW
        chosen = (offset >= 0) & (offset < size) & (writes.block[:end] == block)
        sizes = writes.size[:end]
        # Writes of one size in a row are done together; the last of several to one address counts.
        numbers = np.flatnonzero(chosen & (writes.offset[:end] != NOT_KEPT))
        borders = np.flatnonzero(np.diff(sizes[numbers])) + 1
        for group in np.split(numbers, borders):
            if not len(group):
                continue
            span = np.arange(int(sizes[group[0]]))
            memory[(offset[group][:, None] + span)] = self.log.memory[writes.offset[group][:, None] + span]
        return memory


def lanes_of(bits: int) -> npt.NDArray[np.bool_]:
    """Return the lanes whose bits are set, as conditions.

    >>> lanes_of(0b101)[:4].tolist()
    [True, False, True, False]
    """
    return np.asarray((bits >> np.arange(LANES)) & 1 != 0)


def space_of(address: int) -> str:
    """Return the state space of a generic address.

    >>> space_of(abi.SHARED_WINDOW + 4), space_of(abi.ARGUMENT_BASE)
    ('shared', 'global')
    """
    for name, window in (
        ("shared", abi.SHARED_WINDOW),
        ("local", abi.LOCAL_WINDOW),
        ("param", abi.PARAM_WINDOW),
        ("tensor", abi.TENSOR_WINDOW),
    ):
        if 0 <= address - window < abi.WINDOW_BYTES:
            return name
    return "const" if abi.CONST_BASE <= address < abi.GLOBAL_BASE else "global"
