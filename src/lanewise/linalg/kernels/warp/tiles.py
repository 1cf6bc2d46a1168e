"""Tiles of A and B in shared memory for the products of a warp: how they get there, and out as fragments.

A tile is kept as it lies in global memory: rows along K where K is contiguous ("K-major"), else rows along M
or N. Pieces of 16 bytes are XORed with their row, so that ldmatrix and the copies meet all 32 banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lanewise import lang as lw
from lanewise.formats import Format, u8
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u16, u32
from lanewise.layout import Layout, Swizzle
from lanewise.linalg.kernels.copies.chunks import moved_down, split_number
from lanewise.linalg.sum_order import SPLIT_PARTS

LANES = 32
#: Bytes of a row of an 8×8 matrix, and of the widest copy; those of the narrowest that cp.async makes.
PIECE, _WORD = 16, 4
#: Bits of an f32 that a tf32 lacks, and its NaN.
TF32_LOST, TF32_NAN = 13, 0x7FFFE000


@dataclass(frozen=True)
class TileShape:
    """A tile of one operand: its length along M or N, its depth along K, and how it lies in memory."""

    dtype: Format
    length: int
    depth: int
    k_major: bool
    #: Whether many blocks read the same lines: they would wait for L2 without a cache of their own.
    cached: bool = False

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.bits // 8

    @property
    def rows(self) -> int:
        """Rows of the tile in memory."""
        return self.length if self.k_major else self.depth

    @property
    def columns(self) -> int:
        """Elements of a row, which are neighbours in memory."""
        return self.depth if self.k_major else self.length

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.length * self.depth

    @property
    def cache(self) -> str:
        """Which caches copies of 16 bytes pass: cg is L2 alone, ca the multiprocessor's own as well."""
        return "ca" if self.cached else "cg"

    def width(self, alignment: int) -> int:
        """Elements that a copy may move at once, of addresses and rows that are so many bytes apart."""
        return min(alignment // self.size, self.columns) or 1

    def piece(self, threads: int, width: int) -> int:
        """Elements of one copy: at most `width`, and so few that each of the threads has one to make."""
        width = min(width, self.columns)
        while width > 1 and self.elements < threads * width:
            width //= 2
        return width

    def is_shifted(self, threads: int, alignment: int) -> bool:
        """Return whether 16 bytes are copied at once and then moved to where they belong.

        This is for rows that begin at no multiple of four bytes, which nothing else copies together.
        """
        per_piece = PIECE // self.size
        if alignment >= _WORD or self.size > 2 or not per_piece <= self.columns <= LANES * per_piece:
            return False
        return self.is_shared_evenly(threads, per_piece)

    def behind(self, stages: int, offset: int) -> Array:
        """Return 16 bytes behind each row of the tiles, in shared memory: (row, place, stage)."""
        per_piece = PIECE // self.size
        layout = Layout((self.rows, per_piece, stages), (per_piece, 1, self.rows * per_piece))
        return lw.dynamic_shared(self.dtype, layout, offset=offset)

    def is_shared_evenly(self, threads: int, width: int) -> bool:
        """Return whether each thread copies as many pieces as the others, all of them in one column."""
        across, rest = divmod(self.columns, width)
        step = threads // across
        return not (rest or width & (width - 1) or threads % across) and step > 0 and self.rows % step == 0

    @property
    def swizzle(self) -> Swizzle:
        """The XOR of a piece's number with its row.

        f64 is read element by element, 32 bytes of each of four rows in one access: there the pieces have
        32 bytes.
        """
        piece = (PIECE if self.size < 8 else 2 * PIECE) // self.size
        bits = max(0, (self.columns // piece).bit_length() - 1)
        most = 3 if self.size < 8 else 2
        return Swizzle(min(bits, most), piece.bit_length() - 1, max(bits, most))

    def array(self, stages: int, offset: int) -> Array:
        """The tiles in dynamic shared memory: (row, column, stage)."""
        layout = Layout((self.rows, self.columns, stages), (self.columns, 1, self.elements))
        return lw.dynamic_shared(self.dtype, layout, swizzle=self.swizzle, offset=offset)


@dataclass(frozen=True)
class Copy:
    """Copies of a tile from global to shared memory, shared out among the threads of a block.

    A thread copies `count` pieces of `width` elements in one column, `step` rows apart. `rows` and `columns`
    are what the matrix has from the tile's first element on.
    """

    tile: TileShape
    source: Pointer
    leading: Scalar
    array: Array
    row: Scalar
    column: Scalar
    count: int
    step: int
    width: int
    rows: Scalar
    columns: Scalar
    asynchronous: bool
    #: Where the array begins, and the 16 bytes behind each row of the tile; None if pieces are copied as they
    #: lie.
    shifted: tuple[Pointer, Array] | None = None

    def start(self, along_k, stage) -> list[Any]:
        """Begin to copy the tile `along_k` elements along K into a stage; zeros lie outside the matrix.

        Returns what a thread has loaded itself, which `put` stores later: nobody waits for a load here.
        """
        down, right = (0, along_k) if self.tile.k_major else (along_k, 0)
        offset = along_k.to(lw.i64) * (1 if self.tile.k_major else self.leading)
        waiting = []
        for number in range(self.count):
            row = self.row + number * self.step
            source = self.source + self.leading * (number * self.step) + offset
            target = self.array.ptr(row, self.column, stage)
            # elements of the piece that are inside: its row may end within it
            left = lw.where(row + down < self.rows, self.columns - right - self.column, -self.width)
            size = self.width * self.tile.size
            if self.shifted is not None:
                array, behind = self.shifted
                is_last = self.column + self.width == self.tile.columns
                behind_row = behind.ptr(row, 0, stage)
                copy_granules(self.tile, target, behind_row, source, left, array, is_last)
            elif self.asynchronous and size >= _WORD:
                bytes_ = lw.max(lw.min(left, self.width), 0) * self.tile.size
                lw.cp_async(
                    target, source, size, src_bytes=bytes_, cache=self.tile.cache if size == PIECE else ""
                )
            else:
                waiting.append(load_or_zero(source, self.width, left))
        return waiting

    def put(self, loaded: list[Any], stage) -> None:
        """Store what a thread has loaded for a stage."""
        for number, values in enumerate(loaded):
            self.array.ptr(self.row + number * self.step, self.column, stage).store(values)

    @lw.device
    def shift(self, stage) -> None:
        """Move the pieces of a tile that has arrived to where they belong; a row is in the hands of one warp.

        Steps along K are multiples of 16 bytes, so that a row begins as far behind one in all of them.
        """
        if self.shifted is not None:
            moved = []
            for number in range(self.count):
                row = self.row + number * self.step
                address = (self.source + self.leading * (number * self.step)).address.to(lw.u32)
                following = _words(self.array.ptr(row, (self.column + self.width) % self.tile.columns, stage))
                is_last = self.column + self.width == self.tile.columns
                behind = _words(self.shifted[1].ptr(row, 0, stage))
                first = _words(self.array.ptr(row, self.column, stage)).load(4)
                second = lw.pointer(
                    lw.where(is_last, behind.address, following.address), u32, "shared", PIECE
                ).load(4)
                moved.append(moved_down([*first, *second], address & (PIECE - 1), self.tile.size))
            lw.syncwarp()  # all of its pieces are read
            for number in range(self.count):
                row = self.row + number * self.step
                _words(self.array.ptr(row, self.column, stage)).store(moved[number])


def _words(place) -> Pointer:
    """Return a pointer to 16 bytes of shared memory as four words."""
    return lw.pointer(place.address, u32, "shared", PIECE)


@lw.device
def copy_granules(tile: TileShape, target, behind, source, left, array, is_last) -> None:
    """Begin to copy the 16 bytes at a multiple of 16 in which a piece begins; for the last of a row, the next
    as well.

    What lies behind the end of the row becomes zero. Where the 16 bytes begin before the array, its elements
    are stored one by one.
    """
    size, address = tile.size, source.address.to(lw.u64)
    start = address >> 4 << 4
    bytes_ = left * size + (address - start).to(lw.i32)
    place = lw.pointer(start, u32, "global", PIECE)
    to = _words(target)
    if start >= array.address.to(lw.u64):
        lw.cp_async(to, place, PIECE, src_bytes=lw.max(lw.min(bytes_, PIECE), 0), cache=tile.cache)
    else:
        kind = u16 if size == 2 else u8
        into, bits = lw.pointer(to.address, kind, "shared", size), lw.pointer(start, kind, "global", size)
        for i in range(PIECE // size):
            value = kind(0)
            if (i * size >= (address - start).to(lw.i32)) & (i * size < bytes_):
                value = bits[i]
            into[i] = value
    if is_last:
        more = lw.max(lw.min(bytes_ - PIECE, PIECE), 0)
        lw.cp_async(_words(behind), place + 4, PIECE, src_bytes=more, cache=tile.cache)


def share_out(
    tile: TileShape, matrix, leading, first, lengths: tuple[Scalar, Scalar], array,
    threads: int, width: int, asynchronous: bool, shifted: tuple[Pointer, Array] | None = None,
) -> Copy:  # fmt: skip
    """Who copies what: thread t of those that share the tile begins with the t-th piece.

    `first` is the tile's place along M or N, `lengths` are those of the matrix along M or N, and along K.
    """
    width = PIECE // tile.size if shifted is not None else tile.piece(threads, width)
    across = tile.columns // width
    step, count = threads // across, tile.elements // width // threads
    assert tile.is_shared_evenly(threads, width)
    thread = lw.thread_idx.x % threads
    row, column = thread // across, thread % across * width
    first_row, first_column = (first, 0) if tile.k_major else (0, first)
    rows, columns = lengths if tile.k_major else lengths[::-1]
    source = matrix + (row + first_row).to(lw.i64) * leading + (column + first_column)
    return Copy(
        tile, source, leading, array, row, column, count, step, width,
        rows - first_row, columns - first_column, asynchronous, shifted,
    )  # fmt: skip


@lw.device
def load_or_zero(source, width: int, left):
    """Neighbouring elements, of which `left` lie inside the matrix, or zeros for the others."""
    if width == 1:
        value = source.dtype(0)
        if left > 0:
            value = source.load()
        return value
    values = [source.dtype(0) for _ in range(width)]
    if left >= width:
        values = list(source.load(width))
    else:
        for i in range(width):
            if i < left:
                values[i] = source[i]
    return values


def fragment(
    operand, array, tile: TileShape, first, along_k: int, stage, rounds: bool
) -> Fragment | tuple[Scalar, ...]:
    """A fragment of A or B from its tile, beginning at `first` along M or N and at `along_k` along K.

    `rounds`: its elements are f32 and are rounded to tf32.

    ldmatrix brings the words that the fragment has, if words are neighbours along K, or, transposed, 16-bit
    elements that are not; anything else is loaded element by element.
    """
    if tile.size < 8 and (tile.k_major or tile.size == 2):
        registers = by_ldmatrix(operand, array, tile, first, along_k, stage)
        return tuple(map(rounded_tf32, registers)) if rounds else registers
    fragment = by_element(operand, array, tile, first, along_k, stage)
    return tuple(map(rounded_tf32, fragment.registers)) if rounds else fragment


def by_ldmatrix(operand, array, tile: TileShape, first, along_k: int, stage) -> tuple[Scalar, ...]:
    """The registers of a fragment, each an 8×8 matrix of 16-bit places: rows of 16 bytes along K.

    Register r of A has rows 8·(r mod 2) and up, and the (r // 2)-th 16 bytes along K; that of B the r-th.
    """
    count, is_a = operand.registers, operand.name == "A"
    rows = min(operand.shape[0 if is_a else 1] // 8, 2)
    matrix, inner = lw.lane_id() // 8 % count, lw.lane_id() % 8  # sm_75 wants good addresses of all lanes
    along = matrix % rows * 8 if rows > 1 else 0
    deep = matrix // rows if rows > 1 else matrix
    wide = PIECE // tile.size
    if tile.k_major:
        place = array.ptr(first + along + inner, along_k + deep * wide, stage)
    else:
        place = array.ptr(along_k + deep * wide + inner, first + along, stage)
    return lw.ldmatrix(place, num=count, trans=not tile.k_major).registers


def by_element(operand, array, tile: TileShape, first, along_k: int, stage) -> Fragment:
    """A fragment of single elements: each lane loads its own."""
    fragment = operand.full(0)
    for index in range(len(fragment)):
        row, column = fragment.element(index)
        along, deep = (row, column) if operand.name == "A" else (column, row)
        at = (first + along, along_k + deep) if tile.k_major else (along_k + deep, first + along)
        fragment[index] = array[(*at, stage)]
    return fragment


def split_fragments(operand, array, tile: TileShape, first, along_k: int, stage) -> list[Fragment]:
    """Return three fragments of bf16 whose sum one of f32 is."""
    planes = [operand.full(0) for _ in range(SPLIT_PARTS)]
    for index in range(0, len(planes[0]), 2):  # neighbours along K
        row, column = planes[0].element(index)
        along, deep = (row, column) if operand.name == "A" else (column, row)
        along, deep = first + along, along_k + deep
        if tile.k_major:
            place = array.ptr(along, deep, stage)
            both = lw.pointer(place.address, tile.dtype, "shared", 2 * tile.size).load(2)
        else:
            both = [array[deep, along, stage], array[deep + 1, along, stage]]
        for n in range(2):
            parts = split_number(both[n])
            for plane in range(SPLIT_PARTS):
                planes[plane][index + n] = parts[plane]
    return planes


def rounded_tf32(word) -> Scalar:
    """The bits of an f32 rounded to tf32, to nearest even, as TMA does it; every NaN becomes one."""
    odd = (word >> TF32_LOST) & 1
    rounded = (word + ((1 << (TF32_LOST - 1)) - 1) + odd) & (0xFFFFFFFF << TF32_LOST & 0xFFFFFFFF)
    return lw.where((word & 0x7FFFFFFF) > 0x7F800000, TF32_NAN, rounded)
