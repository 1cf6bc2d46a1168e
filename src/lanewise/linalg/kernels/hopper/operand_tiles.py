"""A tile of A or B in shared memory: how TMA loads it, in parts for a cluster, and how wgmma reads it.

A may be loaded as it lies in memory, and go to wgmma from the registers of the warpgroup that multiplies it.
Nothing is copied before, so that memory is read once. wgmma takes tf32 from shared memory along K alone; from
registers, A may lie along M. Two more kinds of such an A are loaded by other warps than the producer's: f32
that is split (`split_tile.py`), and rows at any address (`granule_tile.py`).
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import Format
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.lang.memory.array import Array
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.granule_tile import GranuleTile
from lanewise.linalg.kernels.hopper.shared_memory import POLICIES, SharedMemory, line_swizzle
from lanewise.linalg.kernels.hopper.split_tile import SplitTile
from lanewise.linalg.kernels.hopper.traits import LINE, ROWS, Traits


def operand_tiles(traits: Traits) -> tuple[Any, OperandTile]:
    """Return how tiles of A and B lie in shared memory; of a sparse A, the half that is kept.

    A may go through registers: tf32 that is transposed, f32 that is split, rows at any address.
    """
    T, plan = traits, traits.plan
    across, along = plan.cluster
    l2_a, l2_b = list(plan.l2 or "--")
    depth = T.bk // 2 if T.problem.sparse else T.bk
    offset = SharedMemory(T).offsets["b"]
    of_b = OperandTile(T, T.b, (T.bn, T.bk), T.problem.b.k_major, across, offset, l2_b)
    if T.loads_a_apart:
        return (GranuleTile if T.threads_load_a else SplitTile)(T), of_b
    kind = TransposedTile if T.transposes_a else OperandTile
    return kind(T, T.a, (T.bm, depth), T.problem.a.k_major, along, 0, l2_a), of_b


class OperandTile:
    """`rows` × `bk` elements in each of several stages. `parts` blocks of a cluster load a part each.

    A K-major tile lies as rows of 128 bytes (64 of a sparse A); one whose neighbours lie along M or N as
    boxes of `bk` lines. A block's part of the latter is some of the boxes, or some lines of each of them.
    """

    def __init__(
        self, traits: Traits, dtype: Format, tile: tuple[int, int], k_major: bool, parts: int, offset: int,
        l2: str,
    ) -> None:  # fmt: skip
        #: What L2 is told of the lines that are loaded.
        self.cache = {} if l2 == "-" else {"cache": POLICIES[l2]}
        #: Matrices that lie one after the other, whose sum is meant; all of them are loaded at once.
        self.planes = traits.planes
        self.dtype, (self.rows, self.bk), self.stages = dtype, tile, traits.plan.stages
        self.k_major, self.parts, self.offset = k_major, parts, offset
        self.size = dtype.word_bits // 8
        self.wide = LINE // self.size
        self.boxes = -(-self.rows // self.wide)
        #: Blocks of a cluster that share the lines of a box.
        self.sharing = 1 if k_major or self.boxes % parts == 0 else parts
        #: Bytes of a line, which is as long as its swizzle.
        self.line = self.bk * self.size if k_major else LINE

    @property
    def elements(self) -> int:
        """Elements of one stage."""
        return self.plane * self.planes

    @property
    def plane(self) -> int:
        """Elements of one plane of a stage."""
        return (self.rows if self.k_major else self.boxes * self.wide) * self.bk

    @property
    def box(self) -> tuple[int, int]:
        """The box of the operand's tensor map, outermost first."""
        return (self.rows // self.parts, self.bk) if self.k_major else (self.bk // self.sharing, self.wide)

    def _array(self, shape, strides) -> Array:
        swizzle = line_swizzle(self.size, self.line)
        return lw.dynamic_shared(self.dtype, Layout(shape, strides), swizzle=swizzle, offset=self.offset)

    def descriptor(self, whole: bool) -> Descriptor:
        """Return wgmma's descriptor: (row, k, plane, stage); if not `whole`, (…, which 64 rows, …)."""
        return lw.make_gmma_desc(self.read(whole))

    def read(self, whole: bool) -> Array:
        """Return the array that products read: (row, k, plane, stage), or (…, which 64 rows, …)."""
        rest, steps = (self.planes, self.stages), (self.plane, self.elements)
        if self.k_major and whole:
            return self._array((self.rows, self.bk, *rest), (self.bk, 1, *steps))
        if self.k_major:
            blocks, step = self.rows // ROWS, ROWS * self.bk
            return self._array((ROWS, self.bk, blocks, *rest), (self.bk, 1, step, *steps))
        step = self.bk * self.wide
        if whole:
            return self._array(((self.wide, self.boxes), self.bk, *rest), ((1, step), self.wide, *steps))
        return self._array((ROWS, self.bk, self.boxes, *rest), (1, self.wide, step, *steps))

    def target(self) -> Any:
        """Return the array that loads write: (box…, which part or box, stage); (box…, which of the lines of a
        box, which box, stage) if its lines are shared."""
        if self.k_major:
            rows = self.rows // self.parts
            return self._array(
                (rows * self.planes, self.bk, self.parts, self.stages),
                (self.bk, 1, rows * self.bk, self.elements),
            )
        lines = self.bk // self.sharing
        shape, strides = (lines, self.wide), (self.wide, 1)
        if self.sharing > 1:
            shape, strides = (*shape, self.sharing), (*strides, lines * self.wide)
        return self._array((*shape, self.boxes, self.stages), (*strides, self.bk * self.wide, self.elements))

    def load(self, map, target, at, stage, barrier, part, mask) -> None:
        """Load this block's part of a tile; `at` is its row (or column), its k, its matrix of the batch.

        It goes to the blocks of a mask; without one, to this block alone.
        """
        first, k, batch = at
        lead = (batch * self.planes if self.planes > 1 else batch,) if map.kind.rank == 3 else ()
        many = {"multicast": mask, **self.cache} if self.parts > 1 and mask is not None else self.cache
        if self.k_major:
            row, place = first, 0
            if self.parts > 1:
                row, place = first + part * (self.rows // self.parts), part
            lw.tma.load(target[None, None, place, stage], map, (*lead, row, k), barrier, **many)
            return
        if self.sharing > 1:
            k = k + part * (self.bk // self.sharing)
            for which in range(self.boxes):
                at_box = (*lead, k, first + which * self.wide)
                lw.tma.load(target[None, None, part, which, stage], map, at_box, barrier, **many)
            return
        share = self.boxes // self.parts
        for number in range(share):
            which = number if self.parts == 1 else part * share + number
            column = first + which * self.wide
            lw.tma.load(target[None, None, which, stage], map, (*lead, k, column), barrier, **many)


# A of tf32 that is transposed in registers ------------------------------------------------------------------


#: K of half a fragment: of its first two registers, and of the others.
_HALF = 4


class TransposedTile(OperandTile):
    """A of tf32 that lies along M: it is loaded like others, and threads read the fragments of wgmma.

    Lane 4g + t of a warp has rows g and g + 8, and t and t + 4 of K. Rows of eight g lie in two of the eight
    16-byte chunks of a line; the swizzle adds the number of the line to that of the chunk, without carry, so
    that lines 0 to 3 have four chunks, and lines 4 to 7 the others. So odd t load t + 4 while even t load t,
    and the other one then: the lanes of a load are in all banks.
    """

    @lw.device
    def source(self, first_row) -> tuple[Scalar, Any]:
        """Return what fragments are read by: whether t is odd, and where this thread's first ones are."""
        thread = lw.thread_idx.x % 128
        row, t = first_row + thread // 32 * 16 + thread % 32 // 4, thread % 4
        odd = t % 2
        array = self.read(whole=True)
        places = []
        for line in (t + _HALF * odd, t + _HALF - _HALF * odd):
            for down in (0, 8):
                at = ((row + down) % self.wide, (row + down) // self.wide)
                places.append(array.ptr(at, line, 0, 0).address)
        return odd > 0, places

    @lw.device
    def fragments(self, source, block: int, stage, depths):
        """Return A of the wgmma of a block of 64 rows and some k of a stage, by plane (one) and step of K."""
        odd, places = source
        begin = stage * (self.elements * self.size) + block * ROWS * self.bk * self.size
        bases = [place + begin.to(lw.u32) for place in places]
        registers = []
        for k in depths:
            loaded = [
                lw.pointer(base + k * self.wide * self.size, lw.u32, "shared", 4).load() for base in bases
            ]
            first = [lw.where(odd, loaded[i + 2], loaded[i]) for i in range(2)]
            second = [lw.where(odd, loaded[i], loaded[i + 2]) for i in range(2)]
            registers.append((*first, *second))
        return [registers]
