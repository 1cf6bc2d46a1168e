"""What is compiled into a kernel of the mma.sync family: types, tiles, alignment, epilogue; never a size."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32, f64, tf32
from lanewise.isa import Instruction, instruction
from lanewise.isa.archs import arch_number
from lanewise.linalg.families.warp_tiles import LANES, TileShape
from lanewise.linalg.order import instruction_of, multiplied_as
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue, Problem

#: The first arch with cp.async, and the one whose f64 products are loaded by TMA.
_AMPERE, _HOPPER = 80, 90
#: The tile that TMA loads. It leaves registers to eight warps beside the one that loads.
TILE_BY_TMA = (128, 112, 16)
#: K of the f64 instruction: all give the same bits, and this one leaves registers for a tile of 128 by 128.
_F64_STEP = 8


@dataclass(frozen=True)
class WarpBuild:
    """The constants of one kernel: types, how A and B lie, the tiles, and what is known of alignment."""

    arch: str
    instruction: str
    a: Format
    b: Format
    out: Format
    a_k_major: bool
    b_k_major: bool
    tile: tuple[int, int, int]
    stages: int
    #: Bytes that a copy of A, of B and a store of the result may move at once.
    align_a: int
    align_b: int
    align_out: int
    group: int
    epilogue: Epilogue
    #: Whether TMA loads the tiles, as in products of f64 on Hopper.
    by_tma: bool = False

    @property
    def mma(self) -> Instruction:
        """The matrix instruction that multiplies fragments of A and B."""
        return instruction(self.instruction)

    @property
    def warp(self) -> tuple[int, int]:
        """A warp's part of the tile: 64 by 64, less for f64 and where four warps would not share a tile."""
        if self.by_tma:
            return self.tile[0] // 4, self.tile[1] // 2
        m, n = min(64, self.tile[0]), min(32 if self.a is f64 else 64, self.tile[1])
        while self.tile[0] // m * (self.tile[1] // n) < 4 and max(m, n) > 16:
            m, n = (m // 2, n) if m >= n and m > self.mma.m else (m, n // 2)
        return m, n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.tile[0] // self.warp[0] * (self.tile[1] // self.warp[1]) * LANES

    @property
    def tiles(self) -> tuple[TileShape, TileShape]:
        """The tiles of A and B."""
        m, n, k = self.tile
        return TileShape(self.a, m, k, self.a_k_major), TileShape(self.b, n, k, self.b_k_major)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.stages * sum(each.elements * each.size for each in self.tiles)

    @property
    def asynchronous(self) -> bool:
        """Whether the arch has cp.async."""
        return arch_number(self.arch) >= _AMPERE

    @property
    def wide(self) -> Format:
        """The format of alpha, beta and everything that is done to a sum."""
        return f64 if self.a is f64 else f32


def build_of(problem: Problem, plan: Plan) -> WarpBuild:
    """Return what is compiled for a problem, whose rows of the result are contiguous, and a plan."""
    if problem.promote is not None or problem.precision == "f32":
        asked = "sums promoted along K" if problem.promote is not None else 'precision="f32"'
        raise LanewiseError(
            f"plans of family 'warp' have no {asked}; plans of family 'warpgroup' have (arch sm_90a)"
        )
    if plan.split != 1:
        raise LanewiseError(f"plans of family 'warp' do not split K: split={plan.split}")
    by_tma = plan.tile == TILE_BY_TMA
    if by_tma and not loads_by_tma(problem, plan.arch):
        raise LanewiseError(
            f"tiles {plan.tile} of plans of family 'warp' are loaded by TMA: this takes one product of f64 "
            "on sm_90a with operands contiguous along K, whose addresses and rows are multiples of 16 bytes"
        )
    mma = instruction_of(problem, plan)
    if problem.a.dtype is f64 and mma.k > _F64_STEP:
        mma = instruction(mma.text.replace(f"k{mma.k}.", f"k{_F64_STEP}.", 1))
    of_a, of_b = multiplied_as(problem)
    a = tf32 if of_a == "tf32" else problem.a.dtype
    b = tf32 if of_b == "tf32" else problem.b.dtype
    return WarpBuild(
        plan.arch, mma.text, a, b, problem.out.dtype, problem.a.k_major, problem.b.k_major, plan.tile,
        plan.stages, problem.a.alignment, problem.b.alignment, problem.out.alignment, plan.group,
        problem.epilogue, by_tma,
    )  # fmt: skip


def loads_by_tma(problem: Problem, arch: str) -> bool:
    """Return whether TMA can load the tiles of a product: f64 on Hopper, operands contiguous along K."""
    return (
        problem.a.dtype is f64
        and arch_number(arch) == _HOPPER
        and problem.batch == 1
        and all(each.k_major and each.tma for each in (problem.a, problem.b))
    )
