"""What is compiled into a kernel of the mma.sync family: types, tiles, alignment, epilogue; never a size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from lanewise.errors import LanewiseError
from lanewise.formats import Format, f64
from lanewise.isa import Instruction, instruction
from lanewise.isa.archs import arch_number
from lanewise.isa.multiprocessor import MOST_THREADS, shared_bytes_of
from lanewise.linalg.kernels.tile_traits import TileTraits, compiled_in
from lanewise.linalg.kernels.warp.tiles import LANES, PIECE, TileShape
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import instruction_of, multiplied_formats

#: The first arch with cp.async, and the one whose f64 products are loaded by TMA.
_AMPERE, _HOPPER = 80, 90
#: The tile that TMA loads. It leaves registers to eight warps beside the one that loads.
TILE_BY_TMA = (128, 112, 16)
#: K of the f64 instruction: all give the same bits, and this one leaves registers for a tile of 128 by 128.
_F64_STEP = 8
#: Columns between the rows of results in shared memory, and bytes that results may always have there.
PADDING, MOST_RESULT_BYTES = 8, 40_960
#: Bytes of a sum of which K may be split; blocks of a cluster that may share a tile's K.
_SUM_BYTES, BLOCKS_OF_K = 4, (1, 2, 4, 8)


@dataclass(frozen=True)
class WarpTraits(TileTraits):
    """The constants of one kernel: its problem without sizes and strides, and its plan."""

    #: Whether few tiles lie along M, so that rows and columns of tiles are axes of the grid: a division is
    #: longer than all other arithmetic before the first loads.
    one_group: bool = False
    #: Whether so many blocks read A, and B, that they read it through the cache of their multiprocessor.
    cached: tuple[bool, bool] = (False, False)

    @cached_property
    def a(self) -> Format:
        """The format of A as it lies in shared memory; f32 may be split into bf16 behind it."""
        return self.problem.a.dtype if self.planes > 1 else multiplied_formats(self.problem)[0]

    @cached_property
    def b(self) -> Format:
        """The format of B as it lies in shared memory."""
        return self.problem.b.dtype if self.planes > 1 else multiplied_formats(self.problem)[1]

    @cached_property
    def mma(self) -> Instruction:
        """The matrix instruction that multiplies fragments of A and B."""
        mma = instruction_of(self.problem, self.plan)
        if self.a is f64 and mma.k > _F64_STEP:
            return instruction(mma.text.replace(f"k{mma.k}.", f"k{_F64_STEP}.", 1))
        return mma

    @property
    def by_tma(self) -> bool:
        """Whether TMA loads the tiles, as in products of f64 on Hopper."""
        return self.plan.tile == TILE_BY_TMA

    @property
    def warp(self) -> tuple[int, int]:
        """A warp's part of the tile: 64 by 64, less for f64, for f32 that is split into bf16, and where four
        warps would not share a tile."""
        if self.by_tma:
            return self.plan.tile[0] // 4, self.plan.tile[1] // 2
        m = min(64 if self.planes == 1 else 32, self.plan.tile[0])
        n = min(32 if self.a is f64 or self.planes > 1 else 64, self.plan.tile[1])
        while self.plan.tile[0] // m * (self.plan.tile[1] // n) < 4 and max(m, n) > 16:
            m, n = (m // 2, n) if m >= n and m > self.mma.m else (m, n // 2)
        return m, n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.team * self.plan.split

    @property
    def team(self) -> int:
        """Threads that share a part of K."""
        return self.plan.tile[0] // self.warp[0] * (self.plan.tile[1] // self.warp[1]) * LANES

    @property
    def all_stages(self) -> int:
        """Stages of all parts of K."""
        return self.plan.stages * self.plan.split

    @property
    def tiles(self) -> tuple[TileShape, TileShape]:
        """The tiles of A and B."""
        m, n, k = self.plan.tile
        return (
            TileShape(self.a, m, k, self.problem.a.k_major, self.cached[0]),
            TileShape(self.b, n, k, self.problem.b.k_major, self.cached[1]),
        )

    @property
    def stage_bytes(self) -> int:
        """Shared memory of the operands' tiles, and of what lies behind their rows."""
        return self.offsets_behind[1] + self.all_stages * self.tiles[1].rows * PIECE * self.shifted[1]

    @property
    def offsets_behind(self) -> tuple[int, int]:
        """Where in shared memory the 16 bytes behind the rows of A and of B are."""
        a, b = self.tiles
        first = self.all_stages * (a.elements * a.size + b.elements * b.size)
        return first, first + self.all_stages * a.rows * PIECE * self.shifted[0]

    @property
    def staged_columns(self) -> int:
        """Columns of a row of results in shared memory: rows begin in different banks."""
        return self.plan.tile[1] + PADDING

    @property
    def stages_results(self) -> bool:
        """Whether results go through shared memory: where this takes little more of it than the operands."""
        if self.by_tma or self.out.bits not in (16, 32) or self.plan.tile[1] <= self.mma.n:
            return False
        if self.plan.groups > 1:  # a block has some of each warp's sums
            return False
        return self._result_bytes <= max(self.stage_bytes, MOST_RESULT_BYTES)

    @property
    def _result_bytes(self) -> int:
        return self.plan.tile[0] * self.staged_columns * self.out.bits // 8

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: results take the operands' place."""
        parts = self.plan.tile[0] * self.plan.tile[1] * (self.plan.split - 1) * _SUM_BYTES
        own = max(self.stage_bytes, parts, self._result_bytes if self.stages_results else 0)
        return -(-own // PIECE) * PIECE + self.exchange_bytes

    @property
    def exchange_bytes(self) -> int:
        """Shared memory for the sums of other blocks of a cluster that shares K, behind all else."""
        return self.plan.tile[0] * self.plan.tile[1] * _SUM_BYTES if self.plan.groups > 1 else 0

    @property
    def shifted(self) -> tuple[bool, bool]:
        """Whether pieces of A and of B are moved in shared memory to where they belong."""
        (a, b), team = self.tiles, self.team
        if not self.asynchronous or self.by_tma:
            return False, False
        return a.is_shifted(team, self.problem.a.alignment), b.is_shifted(team, self.problem.b.alignment)

    @property
    def asynchronous(self) -> bool:
        """Whether the arch has cp.async."""
        return arch_number(self.plan.arch) >= _AMPERE

    def require_possible(self) -> None:
        """Raise an error for tiles that the kernel cannot have."""
        reason = self._reason_against_tile()
        if not reason and not self.by_tma:
            reason = self._reason_against_copies()
        if reason:
            raise LanewiseError(f"tile {self.plan.tile}, {self.plan.stages} stages: {reason}")

    def _reason_against_tile(self) -> str:
        """Return why no kernel has such a tile, or nothing."""
        (bm, bn, bk), (wm, wn), mma = self.plan.tile, self.warp, self.mma
        most = shared_bytes_of(self.plan.arch)
        if not self.by_tma and (bm % wm or bn % wn or wm % mma.m or wn % mma.n):
            return f"{bm} × {bn} cannot be divided among warps into multiples of {mma.m} × {mma.n}"
        if bk % mma.k:
            return f"{bk} elements of K are not a multiple of {mma.k}, those of {mma.text}"
        if self.planes > 1 and bk != mma.k:
            return f"{bk} elements of K are not those of {mma.text}, whose sums of split f32 are promoted"
        if self.shared_bytes > most:
            return f"they take {self.shared_bytes} bytes of shared memory; {self.plan.arch} has {most}"
        if self.plan.groups not in BLOCKS_OF_K or (self.plan.groups > 1 and self.plan.arch != "sm_90a"):
            return (
                f"groups={self.plan.groups} is not possible: the blocks of a cluster that share K are 1, 2, "
                f"4 or 8, and more than one on sm_90a alone; the plan is for {self.plan.arch}"
            )
        if self.threads > MOST_THREADS:
            return f"it takes {self.threads} threads; a block has at most {MOST_THREADS}"
        return ""

    def _reason_against_copies(self) -> str:
        """Return why threads do not copy such tiles, or nothing."""
        alignments = self.problem.a.alignment, self.problem.b.alignment
        for name, tile, alignment, is_shifted in zip("ab", self.tiles, alignments, self.shifted, strict=True):
            width = tile.piece(self.team, tile.width(alignment))
            if not is_shifted and not tile.is_shared_evenly(self.team, width):
                return f"{self.team} threads cannot share the copies of {name} evenly"
        return ""


def traits_of(problem: Problem, plan: Plan) -> WarpTraits:
    """Return what is compiled for a problem, whose rows of the result are contiguous, and a plan."""
    if problem.promote is not None:
        raise LanewiseError(
            "plans of family 'warp' have no sums promoted along K, which accumulate='f32' of 8 bits takes "
            "and scales of blocks; those of 'warpgroup' have, on sm_90a, and arrays in host memory"
        )
    parts = plan.split * plan.groups
    if parts > 1 and (problem.sums.bits != 32 or plan.tile == TILE_BY_TMA):
        raise LanewiseError(
            "plans of family 'warp' split K among warps and the blocks of a cluster, for sums of 32 bits: "
            f"split={plan.split}, groups={plan.groups}, sums={problem.sums.name}"
        )
    if plan.stages == 1 and problem.k > plan.tile[2] * parts:  # it is not all of K
        plan = replace(plan, stages=2)
    by_tma = plan.tile == TILE_BY_TMA
    if by_tma and not loads_by_tma(problem, plan.arch):
        raise LanewiseError(
            f"tiles {plan.tile} of plans of family 'warp' are loaded by TMA: this takes one product of f64 "
            "on sm_90a with operands contiguous along K, whose addresses and rows are multiples of 16 bytes"
        )
    instruction_of(problem, plan)  # an error if there is none
    # the matrices of a batch are an axis of the grid
    compiled = compiled_in(replace(problem, batch=1), aligned=True)
    return WarpTraits(compiled, replace(plan, why=""))


def loads_by_tma(problem: Problem, arch: str) -> bool:
    """Return whether TMA can load the tiles of a product: f64 on Hopper, operands contiguous along K."""
    return (
        problem.a.dtype is f64
        and arch_number(arch) == _HOPPER
        and problem.batch == 1
        and all(operand.k_major and operand.tma for operand in (problem.a, problem.b))
    )
