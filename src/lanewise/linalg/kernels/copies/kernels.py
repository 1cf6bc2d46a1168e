"""Kernels that copy matrices for TMA and wgmma: realigned, transposed, or f32 as parts of bf16.

One launch copies both operands. Its blocks write what the product reads first at the end, so that it is found
in the L2 cache; the product, launched to overlap with it, begins while the last of them are at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from lanewise import lang as lw
from lanewise.formats import Format, bf16, f32, u8
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u16, u32
from lanewise.linalg.kernels.copies.chunks import CHUNK, Chunk, store_chunk, whole_granules
from lanewise.linalg.kernels.copies.tiles import split_tile, transpose_bytes, transpose_tile

#: Threads of a block, and chunks of 16 bytes of the result that each makes (of each plane, if there are
#: several).
THREADS = 256
CHUNKS_EACH = {1: 4, 3: 2}
_WORDS = {1: u8, 2: u16, 4: u32}


class Kind(NamedTuple):
    """What is compiled in of one operand's copy."""

    #: Bytes of an element as it is read.
    size: int
    transposed: bool = False
    #: 1: bytes are copied; 3: f32 becomes three planes of bf16.
    planes: int = 1
    #: Whether there are several matrices, and whether all lines begin at multiples of 16 bytes, or of four if
    #: bytes are transposed.
    batched: bool = False
    aligned: bool = False
    #: Whether chunks are counted with 64 bits; whether there are too few bytes to read 16 at once.
    wide: bool = False
    tiny: bool = False

    @property
    def source(self) -> Format:
        """The type of the elements that are read."""
        return f32 if self.planes > 1 else _WORDS[self.size]

    @property
    def target(self) -> Format:
        """The type of the elements that are written."""
        return bf16 if self.planes > 1 else _WORDS[self.size]

    @property
    def transposes_words(self) -> bool:
        """Whether bytes are transposed that can be read four at once."""
        return self.transposed and self.size == 1 and self.aligned

    @property
    def per_chunk(self) -> int:
        """Elements of 16 bytes of the result."""
        return CHUNK // (2 if self.planes > 1 else self.size)


@dataclass
class Lines:
    """An operand's lines in memory, before and after, as one launch has them: traced pointers and numbers."""

    source: Pointer
    target: Pointer
    lines: Scalar
    length: Scalar
    #: Elements from line to line, and from matrix to matrix (or from plane to plane).
    leading: Scalar
    padded: Scalar
    source_stride: Scalar
    target_stride: Scalar
    matrices: Scalar
    #: n // chunks of a line = (n · magic) >> 32 >> shift, for n below 2³¹.
    magic: Scalar
    shift: Scalar


def division(divisor: int) -> tuple[int, int]:
    """Return the multiplier and the shift that divide numbers below 2³¹ by a divisor of at least 2.

    >>> magic, shift = division(264)
    >>> all((n * magic >> 32) >> shift == n // 264 for n in (0, 263, 264, 2**31 - 1))
    True
    """
    bits = (divisor - 1).bit_length()
    return -(-(1 << (31 + bits)) // divisor), bits - 1


@cache
def copying(first: Kind, second: Kind | None = None) -> Kernel:
    """Return the kernel that copies one operand, or two."""
    of_1, to_1 = first.source, first.target
    if second is None:

        @lw.kernel(max_threads=THREADS)
        def copy(
            source: lw.Ptr[of_1], target: lw.Ptr[to_1, 16], lines: lw.i32, length: lw.i32,
            leading: lw.i64, padded: lw.i32, source_stride: lw.i64, target_stride: lw.i64,
            matrices: lw.i32, magic: lw.u32, shift: lw.u32,
        ):  # fmt: skip
            lw.launch_dependents()
            given = Lines(
                source, target, lines, length, leading, padded, source_stride, target_stride, matrices,
                magic, shift,
            )  # fmt: skip
            copy_part(first, given, lw.grid_dim.x - 1 - lw.block_idx.x)

        return copy

    of_2, to_2 = second.source, second.target

    @lw.kernel(max_threads=THREADS)
    def copy_both(
        source: lw.Ptr[of_1], target: lw.Ptr[to_1, 16], lines: lw.i32, length: lw.i32,
        leading: lw.i64, padded: lw.i32, source_stride: lw.i64, target_stride: lw.i64,
        matrices: lw.i32, magic: lw.u32, shift: lw.u32,
        source_2: lw.Ptr[of_2], target_2: lw.Ptr[to_2, 16], lines_2: lw.i32,
        length_2: lw.i32, leading_2: lw.i64, padded_2: lw.i32, source_stride_2: lw.i64,
        target_stride_2: lw.i64, matrices_2: lw.i32, magic_2: lw.u32, shift_2: lw.u32, blocks: lw.i32,
    ):  # fmt: skip
        lw.launch_dependents()
        if lw.block_idx.x < blocks:
            given = Lines(
                source, target, lines, length, leading, padded, source_stride, target_stride, matrices,
                magic, shift,
            )  # fmt: skip
            copy_part(first, given, blocks - 1 - lw.block_idx.x)
        else:
            given = Lines(
                source_2, target_2, lines_2, length_2, leading_2, padded_2, source_stride_2, target_stride_2,
                matrices_2, magic_2, shift_2,
            )  # fmt: skip
            copy_part(second, given, lw.grid_dim.x - 1 - lw.block_idx.x)

    return copy_both


@lw.device
def copy_part(kind, given, block) -> None:
    """Copy one block's part of an operand: some chunks of its lines, or a tile."""
    if kind.transposed:
        if kind.planes > 1:
            split_tile(given, block)
        elif kind.transposes_words:
            transpose_bytes(given, block)
        else:
            transpose_tile(kind.size, kind.source, given, block)
    else:
        copy_chunks(kind, given, block)


@lw.device
def copy_chunks(kind, given, block) -> None:
    """Copy chunks of 16 bytes, neighbours by neighbouring threads: all of them are loaded, then stored."""
    per_thread = CHUNKS_EACH[kind.planes]
    per_line = given.padded // kind.per_chunk
    # the block's first chunk, as a line and the chunks before it in this line
    if kind.wide:
        first = block.to(lw.u64) * (THREADS * per_thread)
        line = (first // per_line.to(lw.u64)).to(lw.i32)
        before = (first - line.to(lw.u64) * per_line.to(lw.u64)).to(lw.u32)
    else:
        first = (block * (THREADS * per_thread)).to(lw.u32)
        start = divided(first, given)
        line, before = start.to(lw.i32), first - start * per_line.to(lw.u32)
    limits = whole_granules(kind, given)
    places, loaded = [], []
    for i in range(per_thread):
        number = before + lw.thread_idx.x.to(lw.u32) + i * THREADS
        further = divided(number, given)
        column = (number - further * per_line.to(lw.u32)).to(lw.i32) * kind.per_chunk
        place = line + further.to(lw.i32)
        matrix = lw.i32(0)
        row = place
        if kind.batched:
            matrix = place // given.lines
            row = place - matrix * given.lines
        places.append((place, matrix, row, column))
        flat = row.to(lw.i64) * given.leading + column.to(lw.i64)
        if kind.batched:
            flat = flat + matrix.to(lw.i64) * given.source_stride
        loaded.append(Chunk(kind, given, flat, given.length - column, limits))
    for i in range(per_thread):
        place, matrix, row, column = places[i]
        if place < given.lines * given.matrices:
            to = row.to(lw.i64) * given.padded.to(lw.i64) + column.to(lw.i64)
            if kind.planes > 1:
                numbers = loaded[i].as_planes()
                for plane in range(kind.planes):
                    at = (matrix * kind.planes + plane).to(lw.i64) * given.target_stride + to
                    store_chunk(given.target + at, numbers[plane])
            else:
                at = to + matrix.to(lw.i64) * given.target_stride if kind.batched else to
                store_chunk(given.target + at, loaded[i].words())


@lw.device
def divided(number, given):
    """Return a number below 2³¹ divided by the chunks of a line."""
    return lw.mulhi(number, given.magic) >> given.shift
