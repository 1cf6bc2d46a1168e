"""A whose rows begin between multiples of 16 bytes, where TMA has no tensor map.

Idle warps bring whole granules of 16 bytes by cp.async: a line, and the bytes beside it, as it lies.
Consumers of 8 or 16 bits read the words of their fragments, two neighbours for each, and shift what they need
out of both; of an A that lies along M they read single elements, and of f32 numbers, which they split into
three bf16. Nothing is copied before: memory is read once.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32, u8
from lanewise.lang.trace.types import u16, u32
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.loaded_apart import LOADING, LoadedApart, arrive_when_copied
from lanewise.linalg.kernels.hopper.split_tile import split_fragments
from lanewise.linalg.kernels.hopper.traits import GRANULE, ROWS, Traits

#: Bytes of a register of a fragment; those between the first half of an instruction's K and the second.
_WORD, _HALF = 4, 16


class GranuleTile(LoadedApart):
    """`rows` × `bk` elements in each of several stages: lines along K, or along M, of an odd number of
    granules, so that eight neighbouring lines are in different banks. Zeros lie behind the ends of lines."""

    def __init__(self, traits: Traits) -> None:
        super().__init__(traits)
        #: Whether A is f32 that is split; bytes of an element, and of what a lane reads at once of a line.
        self.splits = traits.splits_a
        self.size, self.read = (4, 2 * _WORD) if self.splits else (traits.element_bytes, _WORD)
        self.lines, along = (self.rows, self.bk) if self.k_major else (self.bk, self.rows)
        self.granules = along * self.size // GRANULE + 1
        self.pitch = self.granules * GRANULE
        #: Whether elements may begin between two words.
        self.shifts = traits.problem.a.alignment < _WORD

    def base(self, stage):
        """Return where a stage begins in shared memory."""
        bytes_ = self.lines * self.pitch
        stages = lw.dynamic_shared(u8, Layout((self.stages * bytes_,), (1,)))
        return stages.ptr(0).address + (stage * bytes_).to(lw.u32)

    # what is loaded ---------------------------------------------------------------------------------------

    @lw.device
    def of_tile(self, A, sizes, strides, at) -> Any:
        """Return this thread's granules of a tile: of each its line, where it is, and how many bytes of the
        line, of M or of K, lie from there on; and where the array begins, and how far steps are apart."""
        (first_row, first_k, matrix), (leading, stride), (M, K) = at, strides, sizes
        source = (A + matrix.to(lw.i64) * stride).address.to(lw.u64)
        outer, inner, lines, length = first_row, first_k, M, K
        if not self.k_major:
            outer, inner, lines, length = first_k, first_row, K, M
        pitch, rest = (leading * self.size).to(lw.u64), (length - inner) * self.size
        thread, granules = lw.thread_idx.x - 32, []
        line, number = thread // self.granules, thread % self.granules
        place = source + (outer + line).to(lw.u64) * pitch + (inner * self.size).to(lw.u64)
        down, across = LOADING // self.granules, LOADING % self.granules  # from one to the next
        for _ in range(0, self.lines * self.granules, LOADING):
            head = (place & (GRANULE - 1)).to(lw.i32) - number * GRANULE
            left = rest + head
            if self.k_major:
                left = lw.where(outer + line < lines, left, 0)
            granules.append((line, place - head.to(lw.i64).to(lw.u64), left))
            turns = number + across >= self.granules
            number = number + lw.where(turns, across - self.granules, across)
            line = line + lw.where(turns, down + 1, down)
            place = place + lw.where(turns, pitch * (down + 1), pitch * down)
        further = lw.u64(self.bk * self.size) if self.k_major else pitch * self.bk
        return granules, A.address.to(lw.u64), further, (first_k, K)

    @lw.device
    def load_stage(self, tile, step, stage, full) -> None:
        """Begin to copy this thread's granules of a step of a tile's K, and arrive when they are there."""
        granules, array, further, (first_k, K) = tile
        k, further = first_k + step * self.bk, step.to(lw.u64) * further
        target = self.base(stage) + ((lw.thread_idx.x - 32) * GRANULE).to(lw.u32)
        for number, (line, start, left) in enumerate(granules):
            place, to = start + further, target + number * LOADING * GRANULE
            left = left - step * (self.bk * self.size) if self.k_major else lw.where(k + line < K, left, 0)
            left = lw.max(lw.min(left, GRANULE), 0)
            if number == 0:
                if (place < array) & (left > 0):
                    store_first_granule(to, place, array, left, self.size)
                else:
                    copy_granule(to, place, left)
            elif (number + 1) * LOADING <= self.lines * self.granules or line < self.lines:
                copy_granule(to, place, left)
        arrive_when_copied(full)

    # what is read -----------------------------------------------------------------------------------------

    @lw.device
    def source(self, first_row, A, strides, at) -> Any:
        """Return what fragments of a tile are read by: where in a stage the lane's first words are, and by
        how many bits they are shifted; or where its first two elements of K are."""
        (row_of_tile, matrix), (leading, stride) = at, strides
        thread = lw.thread_idx.x % 128
        row, t = first_row + thread // 32 * 16 + thread % 32 // 4, thread % 4
        start = (A + lw.i32(matrix).to(lw.i64) * stride).address.to(lw.u32)
        pitch, first = (leading * self.size).to(lw.u32), (row_of_tile * self.size).to(lw.u32)
        places = []
        for number in range(2):
            if self.k_major:
                line = row + number * 8
                head = (start + (row_of_tile + line).to(lw.u32) * pitch) & (GRANULE - 1)
                place = (line * self.pitch + t * self.read).to(lw.u32) + head
                places.append((place & ~lw.u32(_WORD - 1), (place & (_WORD - 1)) * 8))
            else:
                line = t * 2 + number
                head = (start + line.to(lw.u32) * pitch + first) & (GRANULE - 1)
                places.append((line * self.pitch + row * self.size).to(lw.u32) + head)
        return places

    @lw.device
    def fragments(self, source, block: int, stage, depths):
        """Return A of the wgmma of a block of 64 rows and some k of a stage, by plane and step of K."""
        base = self.base(stage)
        if self.splits:
            return split_fragments(depths, lambda row, k: self.numbers(base, source, block, row, k))
        registers = []
        for k in depths:
            words = []
            for half in range(2):
                for down in range(2):
                    if self.k_major:
                        place, bits = source[down]
                        at = base + place + (block * ROWS * self.pitch + k * self.size + half * _HALF)
                        words.append(self.word(at, bits))
                    else:
                        at = (k + half * 8) * self.pitch + (block * ROWS + down * 8) * self.size
                        low, high = (
                            lw.pointer(base + place + at, u16, "shared", 2).load().to(lw.u32)
                            for place in source
                        )
                        words.append(low | (high << 16))
            registers.append(tuple(words))
        return [registers]

    def numbers(self, base, source, block: int, row: int, k: int):
        """Return the two f32 of a lane in row 0 or 8 of its fragment, from some k of a stage on."""
        if self.k_major:
            place, _ = source[row // 8]
            at = base + place + (block * ROWS * self.pitch + k * self.size)
            return [lw.pointer(at + i * self.size, f32, "shared", _WORD).load() for i in range(2)]
        at = base + (k * self.pitch + (block * ROWS + row) * self.size)
        return [lw.pointer(at + place, f32, "shared", _WORD).load() for place in source]

    def word(self, place, bits):
        """Return a word of a line, some bits behind a place in shared memory."""
        first = lw.pointer(place, u32, "shared", _WORD).load()
        if not self.shifts:
            return first
        second = lw.pointer(place + _WORD, u32, "shared", _WORD).load()
        return lw.asm("shf.r.clamp.b32 {d}, {a}, {b}, {c};", d=lw.u32, a=first, b=second, c=bits)


def copy_granule(target, place, left) -> None:
    """Begin to copy a granule; zeros lie behind what is left of it. L2 reads whole lines: neighbouring steps
    need the rest of them, and memory would move half of its atoms twice."""
    to, source = lw.pointer(target, u32, "shared", GRANULE), lw.pointer(place, u32, "global", GRANULE)
    lw.cp_async(to, source, GRANULE, src_bytes=left, l2_bytes=128)


@lw.device
def store_first_granule(target, place, array, left, size: int) -> None:
    """Store the granule in which an array begins, without the bytes before it."""
    kind = {1: u8, 2: u16, 4: u32}[size]
    for i in range(GRANULE // size):
        value = kind(0)
        if (place + i * size >= array) & (i * size < left):
            value = lw.pointer(place + i * size, kind, "global", size).load()
        lw.pointer(target + i * size, kind, "shared", size).store(value)
    lw.fence("block")  # before the arrival
