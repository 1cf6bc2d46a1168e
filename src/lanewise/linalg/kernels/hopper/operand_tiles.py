"""A tile of A or B in shared memory: how TMA loads it, in parts for a cluster, and how wgmma reads it.

A may be loaded as it lies in memory, and go to wgmma from the registers of the warpgroup that multiplies it.
Nothing is copied before, so that memory is read once. wgmma takes tf32 from shared memory along K alone; from
registers, A may lie along M.

A of f32 is split into three bf16 in registers: this is for an A that is much larger than B. The three bf16
are those of a copy (`copies/chunks.py`), and so are the bits of the product. A warp beside the producer loads
A by TMA, and does not wait until B is copied; where rows of A begin at no multiples of 16 bytes, all idle
warps of the producer's warpgroup do, by cp.async.
"""

from __future__ import annotations

from typing import Any

from lanewise import lang as lw
from lanewise.formats import Format, f32
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.lang.memory.array import Array
from lanewise.lang.trace.scalar import Scalar
from lanewise.layout import Layout
from lanewise.linalg.kernels.hopper.shared_memory import POLICIES, SharedMemory, line_swizzle
from lanewise.linalg.kernels.hopper.tile_scheduler import numbers
from lanewise.linalg.kernels.hopper.traits import LINE, ROWS, Traits


def operand_tiles(traits: Traits) -> tuple[Any, OperandTile]:
    """Return how tiles of A and B lie in shared memory; of a sparse A, the half that is kept.

    A may go through registers, as tf32 or as f32 that is split there.
    """
    T, plan = traits, traits.plan
    across, along = plan.cluster
    l2_a, l2_b = list(plan.l2 or "--")
    depth = T.bk // 2 if T.problem.sparse else T.bk
    offset = SharedMemory(T).offsets["b"]
    of_b = OperandTile(T, T.b, (T.bn, T.bk), T.problem.b.k_major, across, offset, l2_b)
    if T.splits_a:
        return SplitTile(T), of_b
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


# A of f32 that is split in registers ------------------------------------------------------------------------


#: Elements of a line of 128 bytes.
_WIDE = LINE // 4
#: Warps that load A where TMA cannot, their threads, and how each says that its loads are there.
_LOADING = 3
LOADING = 32 * _LOADING
_ARRIVE = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];"
#: What conversions of two numbers to bf16 towards zero need.
_NEEDS = ("sm_90", "7.8")


class SplitTile:
    """`rows` × `bk` f32 in each of several stages, in boxes with lines of 128 bytes.

    Lines lie along K, 32 elements of all rows, or along M, 32 rows for all of K.
    """

    line = LINE

    def __init__(self, traits: Traits) -> None:
        plan, self.k_major = traits.plan, traits.problem.a.k_major
        letter = plan.l2[:1] or "-"
        self.cache = {} if letter == "-" else {"cache": POLICIES[letter]}
        self.rows, self.bk, self.stages = traits.bm, traits.bk, plan.stages
        lines, along = (self.rows, self.bk) if self.k_major else (self.bk, self.rows)
        self.lines, self.boxes = lines, along // _WIDE
        #: Elements that a thread loads at once, if threads do.
        self.by_threads, self.width = not traits.problem.a.tma, traits.problem.a.alignment // 4

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
        return LOADING if self.by_threads else 1

    def load(self, map, target, at, stage, barrier) -> None:
        """Load a tile by TMA; `at` is its first row, its k, and its matrix of the batch."""
        first, k, batch = at
        for box in range(self.boxes):
            place = (first, k + box * _WIDE) if self.k_major else (k, first + box * _WIDE)
            lw.tma.load(target[None, None, box, stage], map, (batch, *place), barrier, **self.cache)

    @lw.device
    def load_by_threads(self, A, array, sizes, leading, at, stage) -> None:
        """Begin this thread's loads of a tile: a line, or two, by each warp at once; zeros lie outside."""
        M, K = sizes
        first, k = at
        lane = lw.lane_id()
        warp = lw.thread_idx.x // 32 - 1
        across = _WIDE // self.width
        own = warp * self.width + lane // across
        place = lane % across * self.width
        first_line, first_place, lines, places = (first, k, M, K) if self.k_major else (k, first, K, M)
        source = A + (first_line + own).to(lw.i64) * leading + (first_place + place).to(lw.i64)
        lines_at_once = _LOADING * self.width
        for box in range(self.boxes):
            left = lw.max(lw.min(places - first_place - place - box * _WIDE, self.width), 0) * 4
            for begin in range(0, self.lines, lines_at_once):
                line = begin + own
                if begin + lines_at_once <= self.lines or line < self.lines:
                    there = source + leading * begin + box * _WIDE
                    bytes_ = lw.where(first_line + line < lines, left, 0)
                    target = array.ptr(line, place, box, stage).aligned(4 * self.width)
                    lw.cp_async(target, there.aligned(4 * self.width), 4 * self.width, src_bytes=bytes_)

    @lw.device
    def run(self, T, pipeline, tiles, place, A, sizes, strides, steps) -> None:
        """Load all stages of this block's tiles; `steps` are the first step of K, and how many there are."""
        leading, stride = strides
        first_step, count = steps
        filling, array = pipeline.producer_state(), self.target()
        for number in numbers(tiles, tiles.first, tiles.step):
            row, column, matrix = tiles[number]
            first_row, _ = place.first_element(T, row, column)
            matrix = lw.i32(0 if T.repeats(T.problem.a) else matrix)
            for step in lw.range(count):
                k = (first_step + step) * self.bk
                full = pipeline.barrier(filling)
                pipeline.acquire(filling)
                if self.by_threads:
                    source = A + matrix.to(lw.i64) * stride
                    self.load_by_threads(source, array, sizes, leading, (first_row, k), filling.stage)
                    lw.asm(_ARRIVE, needs=("sm_80", "7.0"), barrier=full.pointer)
                else:
                    full.arrive(expect=4 * self.rows * self.bk)
                    self.load(A, array, (first_row, k, matrix), filling.stage, full)
                filling = filling.next()

    def source(self, first_row) -> tuple[Array, Any]:
        """Return what fragments are read by: the array of A, and the first row."""
        return self.target(), first_row

    @lw.device
    def fragments(self, source, block: int, stage, depths):
        """Return A of the wgmma of a block of 64 rows and some k of a stage, by plane and step of K."""
        array, first_row = source
        thread = lw.thread_idx.x % 128
        row, column = first_row + block * ROWS + thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
        planes: list[list[tuple[Scalar, ...]]] = [[], [], []]
        for k in depths:
            registers: list[list[Scalar]] = [[], [], []]
            for deep in (0, 8):
                for down in (0, 8):
                    split = split_pair(*self.pair(array, row + down, column, k + deep, stage))
                    for plane in range(3):
                        registers[plane].append(split[plane])
            # registers of A: rows 0 and 8 of the first eight of K, then of the others
            for plane in range(3):
                planes[plane].append(tuple(registers[plane]))
        return planes

    @lw.device
    def pair(self, array, row, column, k: int, stage):
        """Return two neighbours along K: of a row, from k and a column of the fragment on."""
        if self.k_major:
            place = array.ptr(row, k % _WIDE + column, k // _WIDE, stage)
            return lw.pointer(place.address, f32, "shared", 8).load(2)
        return [array[k + column + i, row % _WIDE, row // _WIDE, stage] for i in range(2)]


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
