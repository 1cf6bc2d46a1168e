"""How the dynamic shared memory of a Hopper block is divided: stages of operands, results on their way out,
terms of columns, block scales, and the sums that blocks of a cluster exchange.

Results leave in subtiles: 64 rows and some columns, which a consumer writes between two barriers. A subtile
is one or several boxes, the unit that TMA stores.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from math import gcd

from lanewise.layout import Swizzle
from lanewise.linalg.kernels.hopper.traits import GRANULE, LINE, MOST_SHARED, ROWS, WARPGROUP, Store, Traits

#: Subtiles of results that a consumer has in shared memory at the same time.
MOST_BUFFERS = 4
#: Bits of the swizzle of a box's rows by their bytes; bytes of the narrowest of several boxes; columns of the
#: widest.
SWIZZLED = {128: 3, 64: 2, 32: 1}
_LEAST_BOX, _WIDEST_BOX = 64, 256
#: Columns of results that are stored transposed at once, at least.
_LEAST_TRANSPOSED = 32
#: What shared memory of results is aligned to, whatever lies before it: whole patterns of the swizzle.
_ALIGNED = 1024
#: Columns of a sparse product's tile, if its lines are stored transposed, that pass through at once, at most.
_MOST_SPARSE_COLUMNS = 32
#: Cache policies of TMA by their letters in a plan.
POLICIES = {"f": "evict_first", "n": "evict_normal"}


def line_swizzle(element_bytes: int, line: int = LINE) -> Swizzle:
    """Return the swizzle of lines of 128, 64 or 32 bytes, for elements of a size."""
    return Swizzle(SWIZZLED[line], 4 - (element_bytes.bit_length() - 1), 3)


class SharedMemory:
    """The sizes in bytes, and where each part begins."""

    def __init__(self, traits: Traits) -> None:
        self.traits = traits

    # stages of operands -------------------------------------------------------------------------------------

    @cached_property
    def a_bytes(self) -> int:
        """Bytes of A in one stage; of a sparse A, of the values that are kept."""
        T = self.traits
        size = 4 if T.splits_a else T.element_bytes
        if T.threads_load_a:  # a granule more of each line
            lines, along = (T.bm, T.bk) if T.problem.a.k_major else (T.bk, T.bm)
            return lines * (along * size + GRANULE)
        if T.splits_a:
            return T.bm * T.bk * size
        return T.bm * LINE // 2 if T.problem.sparse else self._operand_bytes(T.bm, T.problem.a.k_major)

    @cached_property
    def b_bytes(self) -> int:
        """Bytes of B in one stage."""
        return self._operand_bytes(self.traits.bn, self.traits.problem.b.k_major)

    def _operand_bytes(self, rows: int, k_major: bool) -> int:
        """Bytes of rows × K, or of K × rows in boxes as wide as the swizzle."""
        T = self.traits
        wide = LINE // T.element_bytes
        lines = rows if k_major else -(-rows // wide) * wide
        return lines * T.bk * T.element_bytes * T.planes

    @property
    def metadata_bytes(self) -> int:
        """Bytes of a stage's metadata of a sparse A."""
        T = self.traits
        return T.bm // ROWS * T.metadata_words * WARPGROUP * 4 if T.problem.sparse else 0

    @property
    def loaded_bytes(self) -> int:
        """Bytes that the producer loads into one stage: not those of an A that other warps load."""
        of_a = 0 if self.traits.loads_a_apart else self.a_bytes
        return of_a + self.b_bytes + self.metadata_bytes

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of one stage."""
        return self.a_bytes + self.b_bytes + -(-self.metadata_bytes // _ALIGNED) * _ALIGNED

    # what has a place of its own ----------------------------------------------------------------------------

    @property
    def term_bytes(self) -> int:
        """Bytes of the terms of a tile's columns, of each consumer."""
        T = self.traits
        return -(-len(T.column_terms) * T.store_columns * 4 // 16) * 16 * T.consumers

    @property
    def scale_bytes(self) -> int:
        """Bytes of the block scales of all stages."""
        return -(-sum(self.traits.scales_of_stage) // 4) * 16 * self.traits.plan.stages

    @property
    def exchange_bytes(self) -> int:
        """Bytes of the sums that blocks which split K send to this one."""
        T, split = self.traits, self.traits.plan.split
        if split == 1:
            return 0
        return split * T.consumers * T.consumer_rows // ROWS * T.store_columns // 2 * WARPGROUP * 4

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where each part begins, one behind the other, and where the last one ends, "total"."""
        T, stages = self.traits, self.traits.plan.stages
        stored = T.store is not Store.REGISTERS and not T.plan.gather
        parts = {
            "a": stages * self.a_bytes, "b": stages * self.b_bytes,
            "metadata": stages * (self.stage_bytes - self.a_bytes - self.b_bytes),
            "results": self.buffers * T.consumers * self.subtile_bytes if stored else 0,
            "terms": self.term_bytes, "scales": self.scale_bytes, "exchange": self.exchange_bytes,
        }  # fmt: skip
        return dict(zip((*parts, "total"), accumulate(parts.values(), initial=0), strict=True))

    @property
    def total(self) -> int:
        """All dynamic shared memory of a block."""
        return self.offsets["total"]

    # results: boxes and subtiles ----------------------------------------------------------------------------

    @cached_property
    def room(self) -> int:
        """Bytes that are left for the results of one consumer."""
        left = MOST_SHARED - self.traits.plan.stages * self.stage_bytes - self.exchange_bytes
        left -= self.term_bytes + self.scale_bytes
        return left // self.traits.consumers // 1024 * 1024

    @cached_property
    def holds_all_results(self) -> bool:
        """Whether all results of a consumer fit into what is left."""
        T = self.traits
        if self.stages_rows and not T.transposed:
            return self.box_columns == T.store_columns
        return (
            T.consumer_rows == ROWS
            and not T.problem.epilogue.is_long
            and self._box_bytes(T.store_columns) <= self.room
        )

    def _box_bytes(self, columns: int) -> int:
        """Bytes of 64 rows with so many columns."""
        return ROWS * columns * self.traits.out.bits // 8

    @cached_property
    def box_columns(self) -> int:
        """Columns of one box: the widest of which several buffers fit; they divide those of the tile."""
        T = self.traits
        if T.transposed:
            return ROWS if self.stages_rows else min(ROWS, LINE * 8 // T.out.bits)
        if T.store is Store.ROWS:
            return T.store_columns
        if self.stages_rows:
            boxes = range(1, T.store_columns // 8 + 1)
            widths = [-(-T.store_columns // (8 * count)) * 8 for count in boxes]  # the last may be narrower
            widths = [width for width in widths if not (T.loops and T.store_columns % width)]
            return next((width for width in widths if ROWS * self._row_bytes(width) <= self.room), widths[-1])
        if T.store is Store.WARPS:
            wide = LINE * 8 // T.out.bits
            while T.loops and T.store_columns % wide:
                wide //= 2
            return wide
        widths = [width for width in range(T.store_columns, 0, -1) if self._can_be_box(width)]
        if self.holds_all_results:
            return widths[0] if widths else 1
        for buffers in (MOST_BUFFERS, 2):
            for width in widths:
                if width * T.out.bits >= _LEAST_BOX * 8 and buffers * self._box_bytes(width) <= self.room:
                    return width
        narrow = [width for width in widths if width * T.out.bits <= _LEAST_BOX * 8]
        return (narrow or widths[-1:] or [1])[0]

    @property
    def stages_rows(self) -> bool:
        """Whether rows lie in shared memory one behind the other: those that warps store at any address, as
        long parts of them as there is room for, and those of which a bulk copy stores the whole sectors."""
        T = self.traits
        return T.store is Store.ROWS or not (T.aligned_rows or T.store is Store.REGISTERS)

    def _row_bytes(self, columns: int) -> int:
        """Bytes from one row of a box to the next: an odd multiple of 16 if rows have no swizzle."""
        size = columns * self.traits.out.bits // 8
        return (size // 16 | 1) * 16 if self.stages_rows else size

    @property
    def pitch(self) -> int:
        """Columns from one row of a box to the next."""
        return self._row_bytes(self.box_columns) * 8 // self.traits.out.bits

    def _can_be_box(self, columns: int) -> bool:
        """Return whether rows of a box may have so many columns: without conflicts of shared memory's banks.

        Rows of 128, 64, 32 and 16 bytes are swizzled; an odd multiple of 16 bytes takes no swizzle.
        """
        T = self.traits
        row, rest = divmod(columns * T.out.bits, 128)
        return (
            not rest
            and columns % 8 == T.store_columns % columns == 0
            and columns <= _WIDEST_BOX
            and (row % 2 == 1 or row * 16 in SWIZZLED)
        )

    @property
    def box_swizzle(self) -> int:
        """Bytes of the swizzle of a box's rows; 0: none."""
        wide = self.box_columns * self.traits.out.bits // 8
        return wide if wide in SWIZZLED and not self.stages_rows else 0

    @cached_property
    def box_rows(self) -> int:
        """Rows of one box; stored transposed, these are columns of the tile, the same in every subtile."""
        return gcd(self.traits.store_columns, self.staged_rows) if self.traits.transposed else ROWS

    @cached_property
    def staged_rows(self) -> int:
        """Rows of a subtile; stored transposed, these are columns of the tile.

        A tile that is stored transposed by TMA leaves through two buffers, in the fewest subtiles that are
        possible, and those in the fewest boxes; or all columns of 64 rows leave at once.
        """
        T = self.traits
        if not T.transposed:
            return ROWS
        most = T.store_columns
        if T.problem.sparse:
            return max(columns for columns in range(8, _MOST_SPARSE_COLUMNS + 1, 8) if most % columns == 0)
        if T.store is not Store.TMA or (T.consumer_rows == ROWS and most <= _WIDEST_BOX and self._fits(most)):
            return most
        tried = range(_LEAST_TRANSPOSED, min(most, _WIDEST_BOX) + 1, 8)
        fitting = [columns for columns in tried if self._fits(2 * columns)]
        by_boxes = {columns: (-most // columns, gcd(most, columns)) for columns in fitting}
        return max(fitting, key=lambda columns: by_boxes[columns], default=min(most, _LEAST_TRANSPOSED))

    def _fits(self, columns: int) -> bool:
        """Return whether 64 rows of so many results fit into what is left for a consumer."""
        return self._box_bytes(columns) <= self.room

    def _boxes_bytes(self, boxes: int) -> int:
        """Bytes of so many boxes, in whole patterns of the swizzle."""
        bits = self.staged_rows * boxes * self.pitch * self.traits.out.bits
        return -(-bits // 8 // _ALIGNED) * _ALIGNED

    @cached_property
    def _staged(self) -> tuple[int, int]:
        """Boxes of a subtile, and how many subtiles fit.

        All results at once if there is room; else a box at a time (or some, if they are narrow), in so many
        buffers that TMA has read the first when it is written again.
        """
        T = self.traits
        across = ROWS if T.transposed else T.store_columns
        boxes = across // self.box_columns
        if T.transposed and T.problem.sparse:
            subtiles = T.consumer_rows // ROWS * T.store_columns // self.staged_rows
            return boxes, max(1, min(MOST_BUFFERS, self.room // self._boxes_bytes(boxes), subtiles))
        if T.transposed:
            whole = self._boxes_bytes(boxes)
            several = T.consumer_rows * T.store_columns > ROWS * self.staged_rows
            return boxes, 2 if several and 2 * whole <= self.room else 1
        if T.store is Store.ROWS:  # 64 rows at a time, through one buffer each if there is room
            return 1, min(2, T.consumer_rows // ROWS) if 2 * self._boxes_bytes(1) <= self.room else 1
        if self.stages_rows:
            return 1, 1
        if T.store is Store.WARPS:
            return 1, 2 if 2 * self._boxes_bytes(1) <= self.room else 1
        if self.holds_all_results:
            return boxes, 1
        if T.store is not Store.TMA:  # threads store a subtile before the next is written: long lines
            fitting = max(1, self.room // self._boxes_bytes(1))
            return max(count for count in range(1, fitting + 1) if boxes % count == 0), 1
        narrow = max(1, _LEAST_BOX * 8 // T.out.bits // self.box_columns)
        together = next(
            (
                count
                for count in range(narrow, 1, -1)
                if 2 * self._boxes_bytes(count) <= self.room and not (T.loops and boxes % count)
            ),
            1,
        )
        subtiles = T.consumer_rows // ROWS * -(-boxes // together)
        fitting = self.room // self._boxes_bytes(together)
        return together, max(1, min(MOST_BUFFERS, fitting, subtiles))

    @property
    def subtile_boxes(self) -> int:
        """Boxes of one subtile."""
        return self._staged[0]

    @property
    def buffers(self) -> int:
        """Subtiles that are in shared memory at the same time."""
        return self._staged[1]

    @property
    def subtile_bytes(self) -> int:
        """Bytes of one subtile."""
        return self._boxes_bytes(self.subtile_boxes)

    @property
    def subtile_columns(self) -> int:
        """Columns of a subtile; the last of a tile may have fewer."""
        T = self.traits
        return self.staged_rows if T.transposed else self.box_columns * self.subtile_boxes

    @property
    def subtiles(self) -> int:
        """Subtiles in which a warpgroup writes its results of a tile."""
        T = self.traits
        return T.consumer_rows // ROWS * -(-T.store_columns // self.subtile_columns)

    def unread(self, subtile: int) -> int | None:
        """Return how many subtiles before this one TMA may still read when the next is written.

        None: TMA must have read this one, too. Subtiles take the buffers in order, and begin with the first
        buffer for each tile.
        """
        following = (subtile + 1) % self.subtiles
        distance = self.buffers
        if following < self.buffers:
            last = (self.subtiles - 1 - following) // self.buffers * self.buffers + following
            distance = min(distance, self.subtiles - last + following)
        return distance - 2 if distance >= 2 else None
