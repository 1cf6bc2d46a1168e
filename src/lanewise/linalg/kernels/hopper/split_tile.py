"""A of f32 that is split into three bf16 in registers: this is for an A that is much larger than B.

The three bf16 are those of a copy (`copies/chunks.py`), and so are the bits of the product. A warp beside the
producer loads A by TMA; `granule_tile.py` has an A whose rows begin at no multiples of 16 bytes.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.memory.array import Array
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.loaded_apart import LoadedApart
from lanewise.linalg.kernels.hopper.shared_memory import POLICIES, line_swizzle
from lanewise.linalg.kernels.hopper.traits import LINE, ROWS, Traits

#: Elements of a line of 128 bytes.
_WIDE = LINE // 4
#: What conversions of two numbers to bf16 towards zero need.
_NEEDS = ("sm_90", "7.8")


class SplitTile(LoadedApart):
    """`rows` × `bk` f32 in each of several stages, in boxes with lines of 128 bytes.

    Lines lie along K, 32 elements of all rows, or along M, 32 rows for all of K.
    """

    line = LINE

    def __init__(self, traits: Traits) -> None:
        super().__init__(traits)
        letter = traits.plan.l2[:1] or "-"
        self.cache: dict[str, Any] = {} if letter == "-" else {"cache": POLICIES[letter]}
        lines, along = (self.rows, self.bk) if self.k_major else (self.bk, self.rows)
        self.lines, self.boxes = lines, along // _WIDE

    @property
    def box(self) -> tuple[int, int]:
        """The box of the tensor map, outermost first."""
        return self.lines, _WIDE

    def target(self) -> Array:
        """Return the array that loads write: (line, place in it, which box, stage)."""
        size = self.lines * _WIDE
        layout = Layout((self.lines, _WIDE, self.boxes, self.stages), (_WIDE, 1, size, size * self.boxes))
        return lw.dynamic_shared(f32, layout, swizzle=line_swizzle(4))

    @property
    def arrivals(self) -> int:
        """How many threads arrive at a stage's barrier for A."""
        return 1

    def of_tile(self, A, sizes, strides, at) -> Any:
        """Return what loads of a tile need: A, and where the tile begins."""
        return A, at

    @lw.device
    def load_stage(self, tile, step, stage, full) -> None:
        """Begin to load a step of a tile's K, and arrive at the barrier of its stage."""
        A, (first, k, matrix) = tile
        k, target = k + step * self.bk, self.target()
        full.arrive(expect=4 * self.rows * self.bk)
        for box in range(self.boxes):
            place = (first, k + box * _WIDE) if self.k_major else (k, first + box * _WIDE)
            lw.tma.load(target[None, None, box, stage], A, (matrix, *place), full, **self.cache)

    def source(self, first_row) -> tuple[Array, Any]:
        """Return what fragments are read by: the array of A, and the first row."""
        return self.target(), first_row

    @lw.device
    def fragments(self, source, block: int, stage, depths):
        """Return A of the wgmma of a block of 64 rows and some k of a stage, by plane and step of K."""
        array, first_row = source
        thread = lw.thread_idx.x % 128
        row, column = first_row + block * ROWS + thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
        return split_fragments(depths, lambda down, k: self.pair(array, row + down, column, k, stage))

    @lw.device
    def pair(self, array, row, column, k: int, stage):
        """Return two neighbours along K: of a row, from k and a column of the fragment on."""
        if self.k_major:
            place = array.ptr(row, k % _WIDE + column, k // _WIDE, stage)
            return lw.pointer(place.address, f32, "shared", 8).load(2)
        return [array[k + column + i, row % _WIDE, row // _WIDE, stage] for i in range(2)]


def split_fragments(depths, pair) -> list[list[tuple[Scalar, ...]]]:
    """Return fragments of A by plane and step of K; `pair(row, k)` gives two numbers of row 0 or 8."""
    planes: list[list[tuple[Scalar, ...]]] = [[], [], []]
    for k in depths:
        # registers of A: rows 0 and 8 of the first eight of K, then of the others
        split = [split_pair(*pair(row, k + deep)) for deep in (0, 8) for row in (0, 8)]
        for plane in range(3):
            planes[plane].append(tuple(each[plane] for each in split))
    return planes


@lw.device
def split_pair(first, second):
    """Return two f32 as three pairs of bf16 in a register each: their sums are the numbers."""
    numbers = [first, second]
    high = lw.asm("cvt.rz.bf16x2.f32 {d}, {y}, {x};", needs=_NEEDS, d=lw.u32, x=first, y=second)
    left = unpacked_pair(high)
    rest = [lw.where(lw.abs(numbers[i]) < float("inf"), numbers[i] - left[i], f32(0.0)) for i in range(2)]
    middle = lw.asm("cvt.rn.bf16x2.f32 {d}, {y}, {x};", needs=_NEEDS, d=lw.u32, x=rest[0], y=rest[1])
    left = unpacked_pair(middle)
    low = [rest[i] - left[i] for i in range(2)]
    lowest = lw.asm("cvt.rn.bf16x2.f32 {d}, {y}, {x};", needs=_NEEDS, d=lw.u32, x=low[0], y=low[1])
    return high, middle, lowest


@lw.device
def unpacked_pair(register):
    """Return the two bf16 of a register as f32."""
    return lw.bitcast(register << 16, f32), lw.bitcast(register & 0xFFFF0000, f32)
