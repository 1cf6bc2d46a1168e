"""A long matrix at any address by a few rows or columns: memory's own speed, where TMA has no tensor map.

Rows that begin between multiples of 16 bytes have no tensor map. But plain bulk copies bring whole granules
of 16 bytes: a row, and the few bytes beside it, as it lies. Two warps of each team ask for them, row by row;
the others read fragments from shared memory, two neighbouring granules for each, and shift what they need out
of both. No thread copies anything but the ends of the matrix, and nothing is moved in shared memory.

Which lane gets which element follows from how the long matrix lies. The sum of an instruction does not depend
on the order of its 16 products. So, where rows lie along K, lane t of a row's four has four neighbours, 4t to
4t + 3 of 16. Where rows lie along M or N, a lane has eight neighbours, one in each of eight matrices of eight
columns: columns of the result are permuted, and stored where they belong.

The blocks of a cluster, which run on different multiprocessors, may share a tile's K. Each of them owns a
part of the tile, and gets the sums of this part from all of them.
"""

from __future__ import annotations

from functools import cache, partial

from lanewise import lang as lw
from lanewise.formats import f32
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.trace.types import u16, u32
from lanewise.layout import Layout
from lanewise.linalg.kernels.copies.chunks import CHUNK, moved_down
from lanewise.linalg.kernels.fused_epilogue import EpilogueValues, rounded
from lanewise.linalg.kernels.warp.epilogue import finished_sum
from lanewise.linalg.kernels.warp.kernel import in_groups
from lanewise.linalg.kernels.warp.split_k import ClusterExchange, added_parts, part_of_k, wait_for_cluster
from lanewise.linalg.kernels.warp.tiles import LANES
from lanewise.linalg.kernels.warp.traits import ASKING, WarpTraits

#: Rows of an 8×8 matrix; K of an instruction; bytes of an element, and of what a lane loads of a row along K.
ROWS, DEEP, SIZE, _HALF = 8, 16, 2, 8
#: How many times 16 elements of K are loaded at once, where a long matrix lies along M or N, and along K.
_TOGETHER = (2, 4)
#: The barrier at which teams meet that have summed their parts of K.
_SUMMED = 1


@cache
def compiled(T: WarpTraits) -> Kernel:
    """Return the kernel for some constants."""
    T.require_possible()
    bm, bn, _ = T.plan.tile
    bias_type, residual_type = T.problem.epilogue.added_dtypes
    of_a, of_b, of_out, wide = lw.Ptr[T.a], lw.Ptr[T.b], lw.Ptr[T.out], T.wide
    groups = T.plan.groups

    @lw.kernel(max_threads=T.threads, cluster=groups if groups > 1 else None)
    def by_streams(
        A: of_a, B: of_b, Out: of_out,
        M: lw.i32, N: lw.i32, K: lw.i32,
        lda: lw.i64, ldb: lw.i64, ldo: lw.i64, batch_a: lw.i64, batch_b: lw.i64, batch_out: lw.i64,
        bias: lw.Ptr[bias_type], residual: lw.Ptr[residual_type],
        residual_row: lw.i64, residual_column: lw.i64, residual_batch: lw.i64,
        scale_a: lw.Ptr[f32], scale_b: lw.Ptr[f32], scale_out: lw.Ptr[f32],
        alpha: wide, beta: wide, folded_rows: lw.i32,
    ):  # fmt: skip
        M, N, K = (lw.assume(size, nonnegative=True) for size in (M, N, K))
        batch = lw.block_idx.y.to(lw.i64)
        tile = lw.block_idx.x // groups if groups > 1 else lw.block_idx.x
        row, column = in_groups(tile, lw.cdiv(M, bm), lw.cdiv(N, bn), T.plan.group)
        row, column = row * bm, column * bn
        full, empty = lw.mbarrier(T.all_stages), lw.mbarrier(T.all_stages)
        exchange = ClusterExchange(T) if groups > 1 else None
        if lw.thread_idx.x == 0:
            full.init(ASKING)
            empty.init(T.team // LANES)
            if exchange is not None:
                exchange.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        if exchange is not None:
            lw.cluster.arrive(relaxed=True)  # the fence has released the mbarriers
        a = Side(T, True, A + batch * batch_a, lda, row, M, K)
        b = Side(T, False, B + batch * batch_b, ldb, column, N, K)
        consumers = T.plan.split * T.team
        if lw.thread_idx.x >= consumers:
            lane = lw.thread_idx.x - consumers
            team, lane = lane // ASKING, lane % ASKING
            produce(T, (a, b), (full, empty), (team, lane), *ends_of_part(T, K, team))
            wait_for_cluster(T)
        else:
            team = lw.thread_idx.x // T.team
            start, end = ends_of_part(T, K, team)
            acc = multiply(T, a, b, (full, empty), team, start, end)
            wait_for_cluster(T)
            if T.plan.split > 1:
                behind = T.all_stages * T.streamed_bytes
                acc = added_parts(T, acc, team, partial(lw.barrier, _SUMMED, consumers), behind)
            given = EpilogueValues(
                alpha, beta, bias, residual + batch * residual_batch, residual_row, residual_column, scale_a,
                scale_b, scale_out, folded_rows=folded_rows,
            )  # fmt: skip
            if team == 0:
                sums, first, is_owner = [tile for row in acc for tile in row], 0, True
                if exchange is not None:
                    sums, first, is_owner = exchange.added(sums)
                if is_owner:
                    store(T, sums, first, Out + batch * batch_out, ldo, (a, b), (M, N), given)

    return by_streams


class Side:
    """The rows of A, or the columns of B, that a block multiplies: how they lie, and what a lane has."""

    def __init__(self, T: WarpTraits, is_a: bool, matrix, leading, first, limit, K) -> None:
        self.matrix, self.leading, self.first, self.limit, self.K = matrix, leading, first, limit, K
        self.is_a, self.k_major = is_a, (T.problem.a if is_a else T.problem.b).k_major
        self.is_long, self.permutes_k = T.long_is_a == is_a, T.permutes_k
        self.length, self.step = T.plan.tile[0 if is_a else 1], T.plan.tile[2]
        self.own = T.warp[0 if is_a else 1]
        self.place = T.staged[0 if is_a else 1]
        #: The first of a warp's rows in the tile, and how many rows of the tile there are.
        warp = lw.thread_idx.x % T.team // LANES
        self.begin = warp * self.own if self.is_long else lw.i32(0)
        self.count = lw.min(limit - first, self.length)
        self.g, self.t = lw.lane_id() // 4, lw.lane_id() % 4

    # what is loaded ---------------------------------------------------------------------------------------

    @lw.device
    def granules(self, number, k, target):
        """Return where in memory the granules of a row of the tile begin, how many bytes they have, and where
        they belong: of K from `k` on; and what `store_ends` needs: granules that are not wholly inside of the
        matrix are not among them."""
        outer, inner, count = self.row(number, k)
        begin = self.matrix.address.to(lw.u64)
        rows, columns = (self.limit, self.K) if self.k_major else (self.K, self.limit)
        finish = begin + (((rows - 1).to(lw.i64) * self.leading + columns.to(lw.i64)) * SIZE).to(lw.u64)
        start = begin + ((outer.to(lw.i64) * self.leading + inner.to(lw.i64)) * SIZE).to(lw.u64)
        count = lw.where(number < self.place.rows, lw.max(count, 0), 0)
        end = start + (count * SIZE).to(lw.u64)
        low, high = start >> 4 << 4, (end + (CHUNK - 1)) >> 4 << 4
        first, last = lw.max(low, (begin + (CHUNK - 1)) >> 4 << 4), lw.min(high, finish >> 4 << 4)
        bytes_ = lw.where((last > first) & (count > 0), (last - first).to(lw.i32), 0)
        ends = (count > 0) & (first > low), (count > 0) & (last < high), (low, high), (start, end)
        return first, bytes_, target + (first - low).to(lw.u32), ends

    @lw.device
    def store_ends(self, target, is_first, is_last, granules, row) -> None:
        """Store the first and the last granule of a row that are not wholly inside of the matrix."""
        low, high = granules
        if is_first:
            store_granule(target, low, *row)
        if is_last:
            store_granule(target + (high - low - CHUNK).to(lw.u32), high - CHUNK, *row)

    def row(self, number, k):
        """Return the outer and the inner index of a row's first element, and how many elements are taken."""
        if self.k_major:
            inside = lw.min(self.K - k, self.step)
            return self.first + number, k, lw.where(number < self.count, inside, 0)
        if self.is_long:
            return k + number, self.first, lw.where(k + number < self.K, self.count, 0)
        deep = lw.min(self.K - k, self.step)  # rows of few elements are one
        return k, self.first, ((deep - 1).to(lw.i64) * self.leading).to(lw.i32) + self.count

    # what is read -----------------------------------------------------------------------------------------

    def deep(self, register: int, half: int):
        """Return the element of K, of 16, in half of a register of this lane."""
        if self.permutes_k:
            return self.t * 4 + register * 2 + half
        return self.t * 2 + register * 8 + half

    def along(self, number: int):
        """Return the row of the warp that the lane has in an 8×8 matrix."""
        if self.is_long and not self.k_major:
            return self.g * ROWS + number
        return self.g + number * ROWS

    def head(self, outer, inner):
        """Return how many bytes an element lies behind a multiple of 16."""
        place = self.matrix + (outer.to(lw.i64) * self.leading + inner.to(lw.i64))
        return place.address.to(lw.u32) & (CHUNK - 1)

    def places(self, k):
        """Return what the lane reads of a stage: for each row a place, or those of two neighbouring granules
        and by how many bytes what is needed lies behind the first.

        They are the same in all stages: steps of K are multiples of 16 bytes, however rows lie. Of rows and
        columns that the matrix does not have, the last one's are read.
        """
        if self.is_long and not self.k_major:
            return [self.across(k, self.deep(register, half)) for register in range(2) for half in range(2)]
        numbers = [
            lw.min(self.begin + self.along(number), self.count - 1) for number in range(self.own // ROWS)
        ]
        if not self.k_major:
            head = self.head(k, self.first)
            return [head + (number * SIZE).to(lw.u32) for number in numbers]
        heads = [self.head(self.first + number, k) for number in numbers]
        lines = [(number * self.place.pitch).to(lw.u32) for number in numbers]
        if not self.is_long:
            return [line + head for line, head in zip(lines, heads, strict=True)]
        lane = (self.t * _HALF).to(lw.u32)
        return [
            self.neighbours(line + lane + (head & _HALF), _HALF, head & (_HALF - 1))
            for line, head in zip(lines, heads, strict=True)
        ]

    def across(self, k, deep):
        """Return two granules of a row along M or N that the lane reads, and by how many bytes they shift."""
        shift = self.head(k + deep, self.first)
        line = (deep * self.place.pitch).to(lw.u32)
        last = (shift + (self.count * SIZE - 1).to(lw.u32)) // CHUNK
        number = lw.min((self.begin // ROWS + self.g).to(lw.u32), (self.count - 1).to(lw.u32) // ROWS)
        other = lw.min(number + lw.where(shift > 0, lw.u32(1), lw.u32(0)), last)
        return line + number * CHUNK, line + other * CHUNK, shift

    def neighbours(self, place, width: int, shift):
        """Return a granule, the next one if anything of it is needed, and the shift."""
        return place, place + lw.where(shift > 0, lw.u32(width), lw.u32(0)), shift

    def registers(self, stage, block, places):
        """Return the registers of 16 elements of K, `block` of a stage that begins at an address."""
        if not self.is_long:
            return self.few(stage, block, places)
        if self.k_major:
            start = stage + (block * (DEEP * SIZE)).to(lw.u32)
            return [
                shifted([*_words(start + one, _HALF), *_words(start + other, _HALF)], shift)
                for one, other, shift in places
            ]
        start = stage + (block * (DEEP * self.place.pitch)).to(lw.u32)
        rows = [
            moved_down([*_words(start + one, CHUNK), *_words(start + other, CHUNK)], shift, SIZE)
            for one, other, shift in places
        ]
        return [
            [lw.prmt(rows[2 * register][n // 2], rows[2 * register + 1][n // 2], 0x7632 if n % 2 else 0x5410)
             for register in range(2)]
            for n in range(ROWS)
        ]  # fmt: skip

    def few(self, stage, block, places):
        """Return the registers of 16 elements of K of a few rows, element by element."""
        pitch = (self.leading * SIZE).to(lw.u32)
        registers = []
        for place in places:
            pair = []
            for register in range(2):
                halves = []
                for half in range(2):
                    deep = (block * DEEP).to(lw.u32) + self.deep(register, half).to(lw.u32)
                    at = stage + place + (deep * SIZE if self.k_major else deep * pitch)
                    halves.append(lw.pointer(at, u16, "shared", SIZE).load().to(lw.u32))
                pair.append(halves[0] | (halves[1] << 16))
            registers.append(pair)
        return registers

    @lw.device
    def last(self, k):
        """Return the registers of what K has behind the last 16 of them, from memory; zeros lie behind it."""
        registers = []
        for number in range(self.own // ROWS):
            row, pair = self.first + self.begin + self.along(number), []
            for register in range(2):
                halves = []
                for half in range(2):
                    deep = k + self.deep(register, half)
                    outer, inner = (row, deep) if self.k_major else (deep, row)
                    value = u16(0)
                    if (row < self.limit) & (deep < self.K):
                        place = self.matrix + (outer.to(lw.i64) * self.leading + inner.to(lw.i64))
                        value = lw.pointer(place.address, u16, "global", SIZE).load()
                    halves.append(value.to(lw.u32))
                pair.append(halves[0] | (halves[1] << 16))
            registers.append(pair)
        return registers

    def fragments(self, registers):
        """Return the fragments of the instruction: of A, 16 rows each; of B, 8 columns."""
        if not self.is_a:
            return [tuple(pair) for pair in registers]
        return [
            (registers[i][0], registers[i + 1][0], registers[i][1], registers[i + 1][1])
            for i in range(0, len(registers), 2)
        ]

    def place_of(self, number: int, index):
        """Return the row, or column, of the tile that one of an instruction's is."""
        if not self.is_long or self.k_major:
            return self.begin + number * (2 * ROWS if self.is_a else ROWS) + index
        if self.is_a:
            return self.begin + index % ROWS * ROWS + number * 2 + index // ROWS
        return self.begin + index * ROWS + number


def _words(address, width: int):
    """Return the words of a granule in shared memory."""
    return lw.pointer(address, u32, "shared", width).load(width // 4)


def shifted(words, shift):
    """Return two words out of four, `shift` bytes further on: below 8, a multiple of 2."""
    moves = (shift & 4) != 0
    three = [lw.where(moves, words[i + 1], words[i]) for i in range(3)]
    bits = (shift & 3) * 8
    return [
        lw.asm("shf.r.clamp.b32 {d}, {a}, {b}, {c};", d=lw.u32, a=three[i], b=three[i + 1], c=bits)
        for i in range(2)
    ]


@lw.device
def store_granule(target, place, start, end) -> None:
    """Store a granule that is not wholly inside of the matrix: elements of a row, and zeros beside them."""
    for i in lw.range(CHUNK // SIZE):
        source, value = place + (i * SIZE).to(lw.u64), u16(0)
        if (source >= start) & (source < end):
            value = lw.pointer(source, u16, "global", SIZE).load()
        lw.pointer(target + (i * SIZE).to(lw.u32), u16, "shared", SIZE).store(value)
    lw.fence_proxy_async()  # the copy of a later stage writes here


def ends_of_part(T: WarpTraits, K, team):
    """Return where the part of K begins and ends that a team sums."""
    start, length = part_of_k(T, K, team)
    return lw.min(start, K), lw.min(start + length, K)


@lw.device
def produce(T, sides, barriers, who, start, end) -> None:
    """Ask for the granules of a team's part of K, stage after stage: each lane for some of the rows."""
    (full, empty), (team, lane) = barriers, who
    stage, phase = lw.i32(0), lw.i32(1)
    for k in lw.range(start, end, T.plan.tile[2]):
        number = team * T.plan.stages + stage
        empty[number].wait(phase)
        base = stage_address(T, number)
        ends, asked = [], lw.i32(0)
        for side in sides:
            place = side.place
            for first in range(0, place.rows, ASKING):
                row = first + lane
                target = base + (place.offset + row * place.pitch).to(lw.u32)
                source, bytes_, inside, of_row = side.granules(row, k, target)
                if bytes_ > 0:
                    to = lw.pointer(inside, u16, "shared", CHUNK)
                    lw.tma.copy(to, lw.pointer(source, u16, "global", CHUNK), bytes_, full[number])
                asked = asked + bytes_
                ends.append((side, target, of_row))
        for side, target, of_row in ends:  # while the copies are on their way
            side.store_ends(target, *of_row)
        full[number].arrive(expect=asked)
        stage = lw.where(stage == T.plan.stages - 1, 0, stage + 1)
        phase = lw.where(stage == 0, phase ^ 1, phase)


def stage_address(T: WarpTraits, number):
    """Return where a stage begins in shared memory."""
    stages = lw.dynamic_shared(u16, Layout((T.all_stages * T.streamed_bytes // SIZE,), (1,)))
    return stages.ptr(0).address + (number * T.streamed_bytes).to(lw.u32)


@lw.device
def multiply(T, a, b, barriers, team, start, end):
    """Return a warp's sums over its team's part of K."""
    full, empty = barriers
    mma, (wm, wn) = T.mma, T.warp
    acc = [[mma.zeros() for _ in range(wn // mma.n)] for _ in range(wm // mma.m)]
    stage, phase = lw.i32(0), lw.i32(0)
    rest = [side.fragments(side.last(end // DEEP * DEEP)) for side in (a, b)]  # while the first stage comes
    of_a, of_b = a.places(start), b.places(start)
    for k in lw.range(start, end, T.plan.tile[2]):
        number = team * T.plan.stages + stage
        full[number].wait(phase)
        base = stage_address(T, number)
        blocks = lw.min(end - k, T.plan.tile[2]) // DEEP
        together = min(_TOGETHER[T.permutes_k], T.plan.tile[2] // DEEP)
        for block in lw.range(0, blocks // together * together, together):
            acc = blocks_added(T, (a, b), base, [block + n for n in range(together)], (of_a, of_b), acc)
        for block in lw.range(blocks // together * together, blocks):
            acc = blocks_added(T, (a, b), base, [block], (of_a, of_b), acc)
        lw.syncwarp()
        if lw.lane_id() == 0:
            empty[number].arrive()
        stage = lw.where(stage == T.plan.stages - 1, 0, stage + 1)
        phase = lw.where(stage == 0, phase ^ 1, phase)
    if (end % DEEP != 0) & (start < end):
        acc = added(T, *rest, acc)
    return acc


@lw.device
def blocks_added(T, sides, base, blocks, places, acc):
    """Return sums with the products of some 16 elements of K of a stage added: all are loaded first."""
    loaded = []
    for block in blocks:
        loaded.append([
            side.fragments(side.registers(base + side.place.offset, block, of_side))
            for side, of_side in zip(sides, places, strict=True)
        ])  # fmt: skip
    for fragments in loaded:
        acc = added(T, *fragments, acc)
    return acc


@lw.device
def added(T, a, b, acc):
    """Return sums with the products of fragments added."""
    for i in range(len(a)):
        for j in range(len(b)):
            acc[i][j] = T.mma(a[i], b[j], acc[i][j])
    return acc


@lw.device
def store(T, sums, first, matrix, leading, sides, limits, given):
    """Store some of a warp's fragments of sums, from number `first` on, each sum where it belongs."""
    (a, b), wide = sides, T.warp[1] // T.mma.n
    for number in range(len(sums)):
        values, i, j = sums[number], (first + number) // wide, (first + number) % wide
        for index in range(len(values)):
            r, c = values.element(index)
            r, c = a.first + a.place_of(i, r), b.first + b.place_of(j, c)
            value = rounded(finished_sum(T, given, values[index], r, c, *limits), T.out)
            if (r < limits[0]) & (c < limits[1]):
                (matrix + r.to(lw.i64) * leading + c).store(value)
