"""Chunks of 16 bytes of a result, made of elements at any address.

Memory is read in granules: 16 bytes at a multiple of 16. A chunk that begins inside of one needs the next
as well; selections and funnel shifts make it of both. At the ends of an array, where a granule would reach
beyond it, elements are read one by one.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import bf16, f32
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u32

#: Bytes of a chunk, and of a granule; words of four bytes of both.
CHUNK, WORDS = 16, 4


def granules_read(kind) -> int:
    """Return how many granules one chunk of the result is read from."""
    needed: int = kind.per_chunk * kind.size // CHUNK
    return needed if kind.aligned else needed + 1


def moved_down(words, shift, size: int) -> list[Scalar]:
    """Return words, four fewer, with bytes that lie `shift` further on: below 16, a multiple of `size`."""
    moved = list(words)
    for bytes_ in (8, 4):
        moves = (shift & bytes_) != 0
        kept = len(moved) - bytes_ // 4
        moved = [lw.where(moves, moved[i + bytes_ // 4], moved[i]) for i in range(kept)]
    count = len(words) - WORDS
    if size < 4:
        bits = (shift & 3) * 8
        moved = [
            lw.asm("shf.r.clamp.b32 {d}, {a}, {b}, {c};", d=lw.u32, a=moved[i], b=moved[i + 1], c=bits)
            for i in range(count)
        ]
    return moved[:count]


@lw.device
def whole_granules(kind, given):
    """Return the addresses of the first and last granules with which a chunk may begin."""
    last = (given.lines - 1).to(lw.i64) * given.leading + given.length.to(lw.i64)
    if kind.batched:
        last = last + (given.matrices - 1).to(lw.i64) * given.source_stride
    start, end = given.source.address.to(lw.u64), (given.source + last).address.to(lw.u64)
    lowest = (start + (CHUNK - 1)) >> 4 << 4
    return lowest, (end >> 4 << 4) - CHUNK * granules_read(kind)


class Chunk:
    """What one chunk of the result is made of: granules, loaded as soon as it is created.

    `left` are the elements from the chunk's first to the end of the line; chunks behind it are zeros.
    """

    def __init__(self, kind, given, flat, left, limits) -> None:
        self.kind, self.given, self.flat, self.left = kind, given, flat, left
        self.loaded: list[Scalar] = []
        if kind.tiny:
            return
        address = (given.source + flat).address.to(lw.u64)
        granule = address >> 4 << 4
        lowest, highest = limits
        nearest = lw.max(lw.min(granule, highest), lowest)
        self.shift = address.to(lw.u32) & (CHUNK - 1)
        #: Whether the granules are inside of the array. Those of chunks behind a line do not matter.
        self.inside = (nearest == granule) | (left <= 0)
        place = lw.pointer(nearest, u32, "global", CHUNK)
        for _ in range(granules_read(kind)):
            self.loaded += place.aligned(CHUNK).load(4, cache="nc")
            place = place + 4

    @lw.device
    def elements(self):
        """Return the words of the chunk's elements as they are read, without regard to the line's end."""
        kind = self.kind
        count = kind.per_chunk * kind.size // 4
        words = [lw.u32(0) for _ in range(count)]
        if kind.tiny:
            self.one_by_one(words)
            return words
        moved = list(self.loaded) if kind.aligned else moved_down(self.loaded, self.shift, kind.size)
        for i in range(count):
            words[i] = moved[i]
        if not self.inside:
            self.one_by_one(words)
        return words

    @lw.device
    def one_by_one(self, words) -> None:
        """Read the elements of the line into `words`, each by itself."""
        kind, per_word = self.kind, 4 // self.kind.size
        for i in range(len(words)):
            words[i] = lw.u32(0)
        for number in lw.range(lw.max(lw.min(self.left, kind.per_chunk), 0)):
            value = self.given.source[self.flat + number.to(lw.i64)]
            if kind.planes > 1:
                value = lw.bitcast(value, u32)
            bits = (number % per_word).to(lw.u32) * (8 * kind.size)
            moved = value.to(lw.u32) << bits
            for i in range(len(words)):
                words[i] = words[i] | lw.where(number // per_word == i, moved, lw.u32(0))

    @lw.device
    def words(self):
        """Return the chunk as four words; elements behind the line's end are zeros."""
        words = self.elements()
        if self.left < self.kind.per_chunk:
            per_word = 4 // self.kind.size
            for i in range(WORDS):
                kept = lw.min(lw.max(self.left - i * per_word, 0), per_word) * (8 * self.kind.size)
                # shifted twice: a shift by all 32 bits has no meaning
                mask = ((lw.u32(1) << (kept >> 1).to(lw.u32)) << (kept - (kept >> 1)).to(lw.u32)) - 1
                words[i] = words[i] & mask
        return words

    @lw.device
    def as_planes(self):
        """Return eight f32 as three chunks of bf16, each as four words."""
        words = self.elements()
        parts = []
        for i in range(self.kind.per_chunk):
            value = lw.where(self.left > i, lw.bitcast(words[i], f32), f32(0.0))
            parts.append(split_number(value))
        return [
            [lw.bitcast(lw.pack(parts[i][plane], parts[i + 1][plane]), u32) for i in (0, 2, 4, 6)]
            for plane in range(3)
        ]


@lw.device
def store_chunk(place, words) -> None:
    """Store four words at an address that is a multiple of 16 bytes."""
    lw.pointer(place.address, u32, "global", CHUNK).store(words)


@lw.device
def split_number(value):
    """Return an f32 as three bf16 whose sum it is; of an infinity the others are zero.

    The first is the value rounded towards zero, the others are what is left, rounded to nearest.
    """
    high = value.to(bf16, rounding="rz")
    rest = lw.where(lw.abs(value) < float("inf"), value - high.to(f32), f32(0.0))
    middle = rest.to(bf16)
    low = (rest - middle.to(f32)).to(bf16)
    return high, middle, low
