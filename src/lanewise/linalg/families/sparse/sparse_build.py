"""What is compiled into a kernel of wgmma.sp: a `Build` whose A has half of its elements, and metadata.

wgmma takes a sparse A only. So the kernel's A is the transpose of the product's sparse B, and the result is
computed as its transpose.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from lanewise import isa
from lanewise.isa import Instruction
from lanewise.linalg.families.build import LINE, MOST_BUFFERS, ROWS, Build, build_of
from lanewise.linalg.order import sparse_name
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem

#: Elements of a row of A that one 4-bit code of the metadata selects two of.
GROUP = 4
#: What shared memory of the results is aligned to, whatever lies before it.
_ALIGNED = 1024
#: Rows that metadata is padded to: those of two blocks of the largest tile, a cluster.
MOST_ROWS = 512


def metadata_words(element_bytes: int) -> int:
    """Return the words of metadata that a thread has for 64 rows of a stage: 64 · 128 bytes of a dense A.

    >>> metadata_words(2), metadata_words(1)
    (1, 2)
    """
    return LINE // element_bytes // GROUP * 4 * ROWS // 32 // 128


@dataclass(frozen=True)
class SparseBuild(Build):
    """The constants of one kernel with a sparse A. A stage has 64 bytes of each of its rows."""

    #: Columns of a tile, whose lines are stored transposed, that pass through shared memory at once, at most.
    most_columns: int = 32

    @property
    def box_rows(self) -> int:
        """Rows of one box of the result; stored transposed, these are columns of the tile: some at a time."""
        if not self.transposed:
            return super().box_rows
        widths = range(8, self.most_columns + 1, 8)
        return max(each for each in widths if self.store_columns % each == 0)

    @property
    def staged(self) -> tuple[int, int]:
        """Boxes that a warpgroup writes to shared memory between two barriers, and how many turns fit."""
        if not self.transposed:
            return super().staged
        boxes = ROWS // self.box_columns
        turns = self.consumer_rows // ROWS * self.store_columns // self.box_rows
        return boxes, max(1, min(MOST_BUFFERS, self._room // self._boxes_bytes(boxes), turns))

    @property
    def turn_columns(self) -> int:
        """Columns of a turn."""
        return self.box_rows if self.transposed else super().turn_columns

    @property
    def instruction(self) -> Instruction:
        """The wgmma.sp that multiplies 64 rows by the tile's columns."""
        return isa.instruction(sparse_name(self.bn, self.sums.name, self.a.name, self.b.name))

    @property
    def step(self) -> int:
        """Elements of K that one instruction multiplies, the dropped ones counted."""
        return self.instruction.k

    @property
    def a_bytes(self) -> int:
        """Bytes of the values that are kept of A in one stage."""
        return self.bm * LINE // 2

    @property
    def words(self) -> int:
        """Words of metadata that each thread has for 64 rows of a stage."""
        return metadata_words(self.element_bytes)

    @property
    def metadata_bytes(self) -> int:
        """Bytes of a stage's metadata."""
        return self.bm // ROWS * self.words * 128 * 4

    @property
    def loaded_bytes(self) -> int:
        """Bytes that arrive in one stage."""
        return self.a_bytes + self.b_bytes + self.metadata_bytes

    @property
    def stage_bytes(self) -> int:
        """Bytes of shared memory of one stage."""
        return self.a_bytes + self.b_bytes + -(-self.metadata_bytes // _ALIGNED) * _ALIGNED


def sparse_build_of(problem: Problem, plan: Plan) -> SparseBuild:
    """Return what a problem, oriented as the kernel computes it, and its plan compile to."""
    dense = build_of(problem, plan)
    return SparseBuild(**{each.name: getattr(dense, each.name) for each in fields(dense)})
