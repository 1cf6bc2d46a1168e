"""The constants of a Blackwell kernel: what of a problem and its plan is compiled in; never a size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from lanewise.errors import LanewiseError
from lanewise.formats import Format, u8
from lanewise.isa import Instruction
from lanewise.isa.multiprocessor import shared_bytes_of
from lanewise.linalg.block_scaling import BLOCK_FORMATS, SWIZZLED_BYTES, SWIZZLED_FACTORS, BlockFormat
from lanewise.linalg.kernels.tile_traits import TileTraits, compiled_in, has_aligned_rows
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import plane_products, stored_bits, tcgen05_of

#: Rows of a tile, one for each lane of tensor memory, and bytes of a line of the 128-byte swizzle.
ROWS, LINE = 128, 128
#: Threads that bring sums to memory, the warp that loads, the warp that multiplies, and all threads.
EPILOGUE_THREADS, LOADER, MULTIPLIER, THREADS = 128, 4, 5, 192
#: Accumulators in tensor memory: while one is stored, products go into the other.
ACCUMULATORS = 2
#: Columns of tiles; of promoted sums, whose totals are registers of one thread, fewer.
WIDTHS, MOST_PROMOTED = (16, 32, 64, 128, 256), 128
#: Columns of tiles of block-scaled products, 128 rows of scale factors of B, and of pairs of blocks.
SCALED_WIDTHS, PAIRED_WIDTHS = (128,), (128, 256)
#: Clusters along M and N: a block alone, or a pair whose tensor cores multiply together.
CLUSTERS = ((1, 1), (2, 1))
#: Columns of tensor memory: the fewest that can be allocated, and those of 128 × 4 scale factors.
_LEAST_COLUMNS, FACTOR_COLUMNS = 32, 4
#: Dynamic shared memory that a block can have beside its mbarriers.
MOST_SHARED = shared_bytes_of("sm_100a") - 1024
_LEAST_STAGES, _MOST_STAGES = 2, 8


@dataclass(frozen=True)
class BlackwellTraits(TileTraits):
    """The constants of one kernel; `traits_of` makes them."""

    #: Whether rows of the result begin and end at multiples of 16 bytes, so that threads store 16 at once.
    aligned_rows: bool = False

    @property
    def pair(self) -> int:
        """Blocks that multiply together, each with rows of its own: 1 or 2. Each loads its share of B."""
        return self.plan.cluster[0]

    @property
    def loaded_columns(self) -> int:
        """Columns of B that a block loads."""
        return self.bn // self.pair

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Which planes of A and B are multiplied, in the order of sums."""
        return plane_products(self.planes, self.problem.is_transpose)

    @cached_property
    def mma(self) -> Instruction:
        """The instruction: 128 rows and as many columns as the tile."""
        return tcgen05_of(
            self.a.name, self.b.name, self.problem.sums.name, columns=self.bn,
            block_format=self.problem.block_format, blocks=self.pair,
        )  # fmt: skip

    # how operands lie in memory -----------------------------------------------------------------------------

    @cached_property
    def block_format(self) -> BlockFormat | None:
        """The block-scaled format of A and B, if they have one."""
        return BLOCK_FORMATS.get(self.problem.block_format)

    @property
    def packed(self) -> bool:
        """Whether two elements of A and B lie in a byte."""
        return self.bits == 4

    @cached_property
    def bits(self) -> int:
        """Bits of an element of A and B in memory."""
        return stored_bits(self.problem)

    @property
    def stored(self) -> tuple[Format, Format]:
        """The formats of A and B in memory: bytes, where two elements lie in one."""
        return (u8, u8) if self.packed else (self.a, self.b)

    @property
    def depth(self) -> int:
        """Elements of these formats along K in one stage."""
        return self.bk // 2 if self.packed else self.bk

    @property
    def factor_blocks(self) -> int:
        """Blocks of 128 × 4 scale factors that A, and B, have in one stage; 0 without scale factors."""
        if self.block_format is None:
            return 0
        return self.bk // self.block_format.block // SWIZZLED_FACTORS

    @property
    def factor_bytes(self) -> int:
        """Bytes of the scale factors of A, and of those of B, in one stage."""
        return self.factor_blocks * SWIZZLED_BYTES

    @property
    def factor_column(self) -> int:
        """The first column of tensor memory that holds scale factors: those of A, then those of B."""
        return ACCUMULATORS * self.bn

    @property
    def columns(self) -> int:
        """Columns of tensor memory that a block allocates: a power of two."""
        used = self.factor_column + 2 * FACTOR_COLUMNS * self.factor_blocks
        return max(_LEAST_COLUMNS, 1 << (used - 1).bit_length())

    @property
    def b_offset(self) -> int:
        """Where the stages of B begin in shared memory."""
        return self.plan.stages * self._tile_bytes(self.problem.a, ROWS)

    @property
    def factor_offset(self) -> int:
        """Where the scale factors of all stages begin in shared memory: those of A, then those of B."""
        return self.plan.stages * (self.stage_bytes - 2 * self.factor_bytes)

    @property
    def stage_bytes(self) -> int:
        """Bytes that are loaded for a stage."""
        tiles = self._tile_bytes(self.problem.a, ROWS) + self._tile_bytes(self.problem.b, self.loaded_columns)
        return tiles + 2 * self.factor_bytes

    def _tile_bytes(self, operand: Operand, rows: int) -> int:
        """Return the bytes of a tile in shared memory; what lies along M or N has whole lines."""
        wide = LINE * 8 // self.bits
        lines = rows if operand.k_major else -(-rows // wide) * wide
        return lines * self.bk * self.planes * self.bits // 8

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.plan.stages * self.stage_bytes

    @property
    def widths(self) -> tuple[int, ...]:
        """The columns that tiles may have."""
        if self.pair > 1:
            return PAIRED_WIDTHS
        return SCALED_WIDTHS if self.block_format else WIDTHS

    def require_possible(self) -> None:
        """Raise an error if there is no kernel with these constants."""
        rows, columns, step = self.plan.tile
        wanted, widths, reason = LINE * 8 // self.bits, self.widths, ""
        if rows != ROWS:
            reason = f"tiles have {ROWS} rows, not {rows}"
        elif columns not in widths:
            reason = f"tiles have {', '.join(map(str, widths))} columns, not {columns}"
        elif self.promotes and columns > MOST_PROMOTED:
            reason = f"tiles of promoted sums have at most {MOST_PROMOTED} columns, not {columns}"
        elif step != wanted:
            reason = f"a stage must have {wanted} elements of K (128 bytes), not {step}"
        elif self.plan.cluster not in CLUSTERS or self.plan.split * self.plan.groups != 1:
            reason = "these kernels have no clusters but pairs, (2, 1), and do not split K"
        elif self.pair > 1 and self.block_format:
            reason = "block-scaled products have no pairs of blocks yet"
        elif not _LEAST_STAGES <= self.plan.stages <= _MOST_STAGES:
            reason = f"there are {_LEAST_STAGES} to {_MOST_STAGES} stages, not {self.plan.stages}"
        elif self.shared_bytes > MOST_SHARED:
            reason = f"the stages take {self.shared_bytes} bytes of shared memory; there are {MOST_SHARED}"
        if reason:
            raise LanewiseError(f"tile {self.plan.tile}, {self.plan.stages} stages: {reason}")


def most_stages(traits: BlackwellTraits) -> int:
    """Return as many stages as shared memory has room for."""
    return max(_LEAST_STAGES, min(_MOST_STAGES, MOST_SHARED // traits.stage_bytes))


def traits_of(problem: Problem, plan: Plan) -> BlackwellTraits:
    """Return what a problem, oriented as the kernel computes it, and its plan compile to."""
    if problem.experts or problem.sparse:
        kind = "grouped products" if problem.experts else "products with a sparse b"
        raise LanewiseError(f"plans of family 'blackwell' have no {kind} yet")
    if problem.block_format and problem.batch > 1:
        raise LanewiseError(f"products of {problem.block_format} are planned one by one, not as a batch")
    kept = replace(plan, group=8, swap=False, copy_a=False, copy_b=False, why="")
    return BlackwellTraits(compiled_in(problem), kept, has_aligned_rows(problem))
