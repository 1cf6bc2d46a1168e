"""Access to words of shadow memory for code that is being written: one word, or a vector of neighbours."""

from __future__ import annotations

from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, ShadowPlane
from lanewise.machine.checker.vector_clocks import WatchCode
from lanewise.machine.codegen.function_code import U32, Record

LANES = abi.LANES
#: All bytes of a word.
WHOLE = 0xF
#: In the record of a word's writer: all of its bytes were written in this block.
INITIALISED = WHOLE << records.INITIALISED_SHIFT


class Word:
    """The code that reads and writes one word of shadow memory, in all planes."""

    def __init__(self, code: WatchCode, address: Value, stride: Value) -> None:
        self.code, self.address, self.stride = code, address, stride

    def plane(self, plane: int) -> Record:
        """Return the word in one plane as a record."""
        return Record(self.code, self.address + self.stride * plane)

    def get(self, plane: int, lanes: int = 1) -> Value:
        """Load the word from a plane, or a vector that begins with it."""
        return self.plane(plane).get(0, U32, lanes)

    def set(self, plane: int, value: Value) -> None:
        """Store the word in a plane."""
        self.plane(plane).set(0, value)


class View:
    """The epochs that the running warp compares with, for shared or for other memory."""

    def __init__(self, observed: Record, shared: Value) -> None:
        self.floor = shared.select(
            observed.get(BlockWatch.shared_floor), observed.get(BlockWatch.global_floor)
        ).to(U32)
        self.start = shared.select(observed.get(BlockWatch.start), 0).to(U32)
        self.now = observed.get(BlockWatch.epoch).to(U32)
        # What the writer's record must have before a word is read: in shared memory, all bytes written.
        self.needed = shared.select(observed.code.constant(i64, INITIALISED), 0).to(U32)


class WordVector:
    """Neighbouring words of shadow memory that an access touches, processed as one vector."""

    def __init__(self, code: WatchCode, view: View, word: Word, count: int) -> None:
        self.code, self.word, self.count = code, word, count
        self.floor, self.start, self.now, self.needed = (
            self.spread(each) for each in (view.floor, view.start, view.now, view.needed)
        )

    def spread(self, value: Value) -> Value:
        """Return a vector with a number in every element."""
        return value.spread(self.count) if self.count > 1 else value

    def _unordered(self, when: int, who: int, me: Value) -> Value:
        """Return which words were accessed by somebody whose access is not ordered before this one."""
        epochs = self.word.get(when, self.count)
        own = epochs.equals(self.now) & (
            (self.word.get(who, self.count) ^ me) & (LANES - 1 | records.SEVERAL | records.STRONG)
        ).equals(0)
        return (epochs > self.floor) & ~own

    def suspicious(self, me: Value, writes: bool) -> Value:
        """Return whether these words have to be examined one by one."""
        return self.doubts(me, writes).any()

    def doubts(self, me: Value, writes: bool) -> Value:
        """Return which words have to be examined."""
        word = self.word
        bad = self._unordered(ShadowPlane.WRITE_EPOCH, ShadowPlane.WRITER, me)
        if writes:
            bad = bad | self._unordered(ShadowPlane.READ_EPOCH, ShadowPlane.READER, me)
            bad = bad | (word.get(ShadowPlane.EARLIER_EPOCH, self.count) > self.floor)
            return bad
        unwritten = (word.get(ShadowPlane.WRITER, self.count) & self.needed).differs(self.needed)
        return bad | unwritten | (word.get(ShadowPlane.WRITE_EPOCH, self.count) < self.start)

    def stirred(self) -> Value:
        """Return which words read outside of shared memory may have to be examined or may be busy."""
        return (self.word.get(ShadowPlane.WRITE_EPOCH, self.count) > self.floor) | self.busy(False)

    def _moves(self) -> Value:
        """Return which words have a last reader that must move to the plane of earlier readers."""
        epochs, held = (
            self.word.get(each, self.count) for each in (ShadowPlane.READ_EPOCH, ShadowPlane.EARLIER_EPOCH)
        )
        return (epochs > self.floor) & epochs.differs(self.now) & ~(held > self.floor)

    def busy(self, writes: bool) -> Value:
        """Return which words have a record that cannot simply be overwritten."""
        if writes:
            return (self.word.get(ShadowPlane.WRITE_EPOCH, self.count) & records.EPOCHS).equals(self.now)
        return self.word.get(ShadowPlane.READ_EPOCH, self.count).equals(self.now) | self._moves()

    def put(self, me: Value, writes: bool, pending: Value) -> None:
        """Overwrite the record of all words."""
        when, who = (
            (ShadowPlane.WRITE_EPOCH, ShadowPlane.WRITER)
            if writes
            else (ShadowPlane.READ_EPOCH, ShadowPlane.READER)
        )
        epoch = self.now | self.spread(pending) if writes else self.now
        self.word.plane(when).pointer(0, U32).store(epoch)
        self.word.plane(who).pointer(0, U32).store(me | INITIALISED if writes else me)

    def note(self, me: Value, writes: bool, pending: Value) -> None:
        """Put an access of whole words on record that is not suspicious, keeping earlier readers."""
        word, count = self.word, self.count
        now = self.now
        if writes:
            word.plane(ShadowPlane.WRITE_EPOCH).pointer(0, U32).store(now | self.spread(pending))
            word.plane(ShadowPlane.WRITER).pointer(0, U32).store(me | INITIALISED)
            return
        epochs = word.get(ShadowPlane.READ_EPOCH, count)
        held = word.get(ShadowPlane.EARLIER_EPOCH, count)
        moves = self._moves()
        with self.code.when(moves.any()):
            earlier = word.plane(ShadowPlane.EARLIER_READER).pointer(0, U32)
            earlier.store(moves.select(word.get(ShadowPlane.READER, count), earlier.load(0, count)))
            word.plane(ShadowPlane.EARLIER_EPOCH).pointer(0, U32).store(moves.select(epochs, held))
        word.plane(ShadowPlane.READ_EPOCH).pointer(0, U32).store(now)
        word.plane(ShadowPlane.READER).pointer(0, U32).store(me)
