"""What is compiled into a kernel of products with 4-bit weights: types, tile, epilogue; never a size."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.formats import Format, f32
from lanewise.isa import Instruction, instruction
from lanewise.isa.multiprocessor import multiprocessor
from lanewise.layout import Layout
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_WORDS
from lanewise.linalg.kernels.int4.plans import Tile
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import wgmma_name

LANES, WARPGROUP = 32, 128
#: Words between rows of sums in shared memory beside their columns, so that no two lanes write to one bank.
_GAP = 4
#: K of a line of 128 bytes, and of an instruction.
LINE, DEEP = 64, 16
#: Rows of a tile from which on its sums need registers that a warpgroup which loads gives up; stages at most.
MOVES_REGISTERS, MOST_STAGES = 256, 12
#: Shared memory of a block that its barriers take: the stages behind them are aligned to 1024 bytes.
_OF_BARRIERS = 1024


@dataclass(frozen=True)
class Traits:
    """The constants of one product kernel."""

    #: The problem without sizes; what is fused is compiled in.
    problem: Problem
    tile: Tile
    #: Groups of K in a stage that have scales of their own.
    groups: int
    #: Columns of results that a thread stores at once.
    width: int

    #: The type of sums.
    wide = f32

    @property
    def dtype(self) -> Format:
        """The type of the rows, and of the weights once they are unpacked."""
        return self.problem.a.dtype

    @property
    def out(self) -> Format:
        """The type of results."""
        return self.problem.out.dtype

    @property
    def threads(self) -> int:
        """Threads of a block: beside wgmma one more warp loads; if it moves registers, a warpgroup."""
        if self.tile.teams:
            return self.consumers
        return self.consumers + (WARPGROUP if self.tile.rows >= MOVES_REGISTERS else LANES)

    @property
    def consumers(self) -> int:
        """Threads of a block that multiply."""
        return self.team_threads * self.tile.block_parts

    @property
    def team_threads(self) -> int:
        """Threads that sum a part of K: four warps for each tile of a block's columns."""
        return self.tile.tiles * WARPGROUP

    @property
    def columns(self) -> int:
        """Columns of the weights that a block multiplies."""
        return self.tile.tiles * COLUMNS

    @property
    def sums(self) -> Layout:
        """How sums lie in shared memory: (row, column, part of K)."""
        rows, pitch = self.tile.rows, self.columns + _GAP
        return Layout((rows, self.columns, self.tile.block_parts), (pitch, 1, rows * pitch))

    @property
    def piece_bytes(self) -> tuple[int, int, int]:
        """Bytes of a stage: of rows, of weights, of scales."""
        return self.tile.rows * CHUNK * 2, self.tile.tiles * TILE_WORDS * 4, self.groups * self.columns * 2

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return sum(self.piece_bytes)

    @property
    def stages(self) -> int:
        """Stages of a part of K that fit into shared memory, if so many blocks share a multiprocessor."""
        sm = multiprocessor("sm_90a")
        room = sm.shared_bytes // self.tile.at_once - sm.reserved_bytes - _OF_BARRIERS
        return min(MOST_STAGES, room // (self.tile.block_parts * self.stage_bytes))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages, then sums."""
        sums = self.tile.rows * (self.columns + _GAP) * 4
        return self.tile.block_parts * max(self.stages * self.stage_bytes, sums)

    @property
    def instruction(self) -> Instruction:
        """The instruction that multiplies weights, from registers: 64 columns by a tile's rows, its N; or 16
        columns by eight rows."""
        name = self.dtype.name
        if self.tile.teams:
            return instruction(f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32")
        return instruction(wgmma_name(self.tile.rows, "f32", name, name), a_source="registers")
