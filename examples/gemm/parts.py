"""What the rungs share: tiles into shared memory, fragments out of it, results back to global memory.

Plain functions are macros, run while a kernel is traced; those with `if` on traced values are `@lw.device`.
"""

from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

import lanewise as lw

LANES = 32


@cache
def instruction(dtype: lw.Format, accumulate: lw.Format) -> lw.Instruction:
    """The m16n8k16 product of f16 or bf16 matrices, summed in f32 or f16."""
    inner, outer = dtype.name, accumulate.name
    return lw.instruction(f"mma.sync.aligned.m16n8k16.row.col.{outer}.{inner}.{inner}.{outer}")


def vector(leading: int) -> int:
    """Elements of 16 bits that one copy can move: every row begins at a multiple of them.

    >>> vector(4096), vector(1001 * 2)
    (8, 2)
    """
    return gcd(leading, 8)


@dataclass(frozen=True)
class Tiling:
    """A block's tile of C and its step along K, a warp's share of it, and the tiles in flight."""

    BM: int
    BN: int
    BK: int
    WM: int
    WN: int
    stages: int = 1
    #: Elements between the end of a row in shared memory and the beginning of the next.
    padding: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.BM // self.WM * (self.BN // self.WN) * LANES

    @property
    def stage(self) -> int:
        """Elements of one tile of A and one of B."""
        return self.BM * (self.BK + self.padding) + self.BK * (self.BN + self.padding)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 2 * self.stage * self.stages

    def grid(self, m: int, n: int) -> tuple[int, int]:
        """Blocks along N and along M."""
        return -(-n // self.BN), -(-m // self.BM)

    def whole(self, m: int, n: int, k: int) -> bool:
        """Whether no tile sticks out of the matrices."""
        return not (m % self.BM or n % self.BN or k % self.BK)

    def warp(self) -> tuple[Any, Any]:
        """Row and column of this warp's share in the block's tile."""
        warp = lw.thread_idx.x // LANES
        tall = self.BM // self.WM
        return warp % tall * self.WM, warp // tall * self.WN

    def sums(self, mma: lw.Instruction) -> list[list[Any]]:
        """Zeros for a warp's share, a fragment for every 16×8 block."""
        return [[mma.zeros() for _ in range(self.WN // 8)] for _ in range(self.WM // 16)]


def swizzle(length: int) -> lw.Swizzle:
    """Rows of so many 16-bit elements in shared memory, their 16-byte pieces XORed with the row's number.

    The eight rows that one phase of ldmatrix reads, and the pieces that a copy writes, meet all 32 banks.

    >>> swizzle(64), swizzle(32)
    (Swizzle(3, 3, 3), Swizzle(2, 3, 3))
    """
    bits = length.bit_length() - 4  # of the number of a piece in its row
    return lw.Swizzle(min(bits, 3), 3, max(bits, 3))


def arrays(dtype: lw.Format, tiling: Tiling, swizzled: bool = True) -> tuple[Any, Any]:
    """The tiles of A and B in dynamic shared memory: (row, column, stage)."""
    shapes = (tiling.BM, tiling.BK), (tiling.BK, tiling.BN)
    tiles, offset = [], 0
    for rows, cols in shapes:
        length = cols + tiling.padding
        layout = lw.Layout((rows, cols, tiling.stages), (length, 1, tiling.stage))
        tiles.append(
            lw.dynamic_shared(dtype, layout, swizzle=swizzle(cols) if swizzled else None, offset=offset)
        )
        offset += 2 * rows * length
    return tiles[0], tiles[1]


@dataclass(frozen=True)
class Tile:
    """Copies of a tile of a row-major matrix into shared memory, shared out among the threads of a block.

    A thread copies `count` pieces of `width` elements in one column, `step` rows apart. `rows` and `cols` are
    what the matrix has from the tile's first element on; None where every tile is whole.
    """

    source: Any
    leading: Any
    array: Any
    row: Any
    col: Any
    count: int
    step: int
    width: int
    rows: Any
    cols: Any

    def piece(self, number: int) -> Any:
        """Where a piece of the first tile is, in global memory."""
        return self.source + self.leading * (number * self.step) if number else self.source

    def target(self, number: int) -> Any:
        """Where it goes, in shared memory."""
        return self.array.ptr(self.row + number * self.step, self.col, 0)

    def inside(self, number: int, down: Any, right: Any) -> Any:
        """Whether a piece lies in the matrix, for a tile so many rows and columns further on."""
        tests = []
        if self.rows is not None:
            tests.append(self.row + down + number * self.step < self.rows)
        if self.cols is not None:
            tests.append(self.col + right < self.cols)
        return tests[0] & tests[1] if len(tests) == 2 else tests[0] if tests else None


def tile(
    matrix: Any, leading: Any, origin: tuple[Any, Any], array: Any, shape: tuple[int, int], threads: int,
    width: int, limits: tuple[Any, Any] | None = None,
) -> Tile:  # fmt: skip
    """Who copies what: thread t begins with the t-th piece of the tile."""
    (first_row, first_col), (rows, cols) = origin, shape
    across = cols // width
    step, count = threads // across, rows * cols // width // threads
    assert threads % across == 0 and rows % step == 0, "a tile is shared out evenly"
    row, col = lw.thread_idx.x // across, lw.thread_idx.x % across * width
    source = matrix + (row + first_row).to(lw.i64) * leading.to(lw.i64) + (col + first_col)
    left = [limit - at for limit, at in zip(limits, origin, strict=True)] if limits else [None, None]
    return Tile(source, leading, array, row, col, count, step, width, left[0], left[1])


@lw.device
def load_or_zero(source: Any, width: int, inside: Any) -> Any:
    """Neighbouring elements, or zeros where they would lie outside the matrix."""
    if inside is None:
        return source.load(width)
    values = (source.dtype(0),) * width if width > 1 else source.dtype(0)
    if inside:
        values = source.load(width)
    return values


def copy_now(tile: Tile, offset: Any, down: Any = 0, right: Any = 0) -> None:
    """Load a tile into registers and store it: `offset` elements from where the first tile was."""
    loaded = [
        load_or_zero(tile.piece(number) + offset, tile.width, tile.inside(number, down, right))
        for number in range(tile.count)
    ]
    for number, values in enumerate(loaded):
        tile.target(number).store(values)


def copy_async(
    tile: Tile, offset: Any, stage: Any, down: Any, right: Any, there: Any, part: int = 0, parts: int = 1
) -> None:
    """Start the copies of a tile, or of one of several parts of it; what lies outside the matrix is zero.

    `there` says whether the tile is inside at all, where the tile itself does not look.
    """
    size = 2 * tile.width
    for number in range(part, tile.count, parts):
        inside = tile.inside(number, down, right)
        inside = there if inside is None else inside
        target, source = tile.target(number) + stage, tile.piece(number) + offset
        if size < 4:  # an odd leading dimension: no copy is that small, so it goes through a register
            target.store(load_or_zero(source, 1, inside))
        else:
            lw.cp_async(target, source, size, src_bytes=lw.where(inside, size, 0))


def fetch(
    tile_a: Tile, tile_b: Tile, k: Any, stage: Any, K: Any, N: Any, part: int = 0, parts: int = 1
) -> None:
    """Start the copies of both tiles from column k of A and row k of B on; beyond K there are zeros."""
    copy_async(tile_a, k, stage, 0, k, k < K, part, parts)
    copy_async(tile_b, k.to(lw.i64) * N.to(lw.i64), stage, k, 0, k < K, part, parts)


def next_stage(stage: Any, tiling: Tiling) -> Any:
    """The stage after one, in turn; counted in elements."""
    return lw.where(stage == (tiling.stages - 1) * tiling.stage, 0, stage + tiling.stage)


def fragments_a(array: Any, first: Any, tall: int, deep: int) -> list[list[Any]]:
    """Where this lane points for ldmatrix: [16-row block][16-column step] of A in shared memory."""
    lane = lw.lane_id()
    return [
        [array.ptr(first + i * 16 + lane % 16, k * 16 + lane // 16 * 8, 0) for k in range(deep // 16)]
        for i in range(tall // 16)
    ]


def fragments_b(array: Any, first: Any, wide: int, deep: int) -> list[list[Any]]:
    """Where this lane points for ldmatrix.trans: [16-column block][16-row step] of B in shared memory."""
    lane = lw.lane_id()
    return [
        [array.ptr(k * 16 + lane % 16, first + j * 16 + lane // 16 * 8, 0) for k in range(deep // 16)]
        for j in range(wide // 16)
    ]


def load_a(places: list[list[Any]], step: int, stage: Any = 0) -> list[Any]:
    """Fragments of A for one step of 16 along K."""
    return [lw.ldmatrix(row[step] + stage) for row in places]


def load_b(places: list[list[Any]], step: int, stage: Any = 0) -> list[Any]:
    """Fragments of B, two 8-column blocks in one ldmatrix."""
    pairs = [lw.ldmatrix(column[step] + stage, trans=True).registers for column in places]
    return [half for four in pairs for half in (four[:2], four[2:])]


def multiply(mma: lw.Instruction, acc: list[list[Any]], a: list[Any], b: list[Any]) -> None:
    """acc += a · b, every pair of blocks; every other row runs backwards, so that one operand stays."""
    for i, left in enumerate(a):
        order = range(len(b)) if i % 2 == 0 else reversed(range(len(b)))
        for j in order:
            acc[i][j] = mma(left, b[j], acc[i][j])


@lw.device
def store(
    acc: list[list[Any]], matrix: Any, leading: Any, row: Any, col: Any, limits: Any, width: int
) -> None:
    """Sums of a warp to global memory, straight from registers: `width` says how many go together."""
    rows, cols = limits or (None, None)
    for i in range(len(acc)):
        for j in range(len(acc[i])):
            for first in range(0, 4, 2):
                r, c = acc[i][j].element(first)
                r, c = row + i * 16 + r, col + j * 8 + c
                pair = [acc[i][j][first + n].to(matrix.dtype) for n in range(2)]
                place = matrix + r.to(lw.i64) * leading.to(lw.i64) + c
                if rows is None:
                    place.store(pair)
                elif width > 1:
                    if (r < rows) & (c < cols):
                        place.store(pair)
                else:
                    if (r < rows) & (c < cols):
                        place.store(pair[0])
                    if (r < rows) & (c + 1 < cols):
                        (place + 1).store(pair[1])


@lw.device
def store_rows(
    acc: list[list[Any]], matrix: Any, leading: Any, row: Any, col: Any, limits: Any, matrices: bool = False
) -> None:
    """Sums of a warp by way of shared memory, 16 rows at a time, so that 16 bytes leave at once.

    With `matrices` they go there by stmatrix, four 8×8 blocks at a time.
    """
    rows, cols = limits or (None, None)
    wide = 8 * len(acc[0])
    padded = wide + 8  # rows begin in other banks
    own = lw.dynamic_shared(matrix.dtype, lw.Layout((16, wide, 32), (padded, 1, 16 * padded)))
    stage = lw.tensor(own.ptr(0, 0, lw.thread_idx.x // LANES), lw.Layout((16, wide), (padded, 1)))
    lw.syncthreads()  # nobody reads tiles any more
    for i in range(len(acc)):
        lw.syncwarp()
        for j in range(0, len(acc[i]), 2 if matrices else 1):
            if matrices:
                lane = lw.lane_id()
                four = [lw.pack(*pairs(acc[i][j + n // 2], n % 2, matrix.dtype)) for n in range(4)]
                lw.stmatrix(stage.ptr(lane % 16, j * 8 + lane // 16 * 8), four)
            else:
                for half in range(2):
                    r, c = acc[i][j].element(2 * half)
                    stage.ptr(r, j * 8 + c).store(pairs(acc[i][j], half, matrix.dtype))
        lw.syncwarp()
        for number in range(16 * wide // 8 // LANES):
            piece = lw.lane_id() + number * LANES
            r, c = piece // (wide // 8), piece % (wide // 8) * 8
            values = stage.ptr(r, c).load(8)
            r, c = row + i * 16 + r, col + c
            place = matrix + r.to(lw.i64) * leading.to(lw.i64) + c
            if rows is None:
                place.store(values)
            else:
                if (r < rows) & (c < cols):
                    place.store(values)


def pairs(sums: Any, half: int, dtype: lw.Format) -> list[Any]:
    """The two neighbouring sums of the upper or the lower eight rows, rounded."""
    return [sums[2 * half + n].to(dtype) for n in range(2)]


def format_of(array: Any) -> lw.Format:
    """The format of a NumPy, torch or CuPy array."""
    return lw.format_of(str(array.dtype).removeprefix("torch."))


def prepared(
    kernel: lw.Kernel, tiling: Tiling, a: Any, b: Any, c: Any, *, flat: bool = False
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel, its arguments and its constants, for whatever sizes the arrays have."""
    (m, k), n = a.shape, b.shape[1]
    wide, tall = tiling.grid(m, n)
    grid = wide * tall if flat else (wide, tall)
    constants = {
        "T": tiling, "WHOLE": tiling.whole(m, n, k), "WIDTH_A": vector(k), "WIDTH_B": vector(n),
    }  # fmt: skip
    return kernel[grid, tiling.threads, tiling.shared_bytes], (a, b, c, m, n, k), constants
