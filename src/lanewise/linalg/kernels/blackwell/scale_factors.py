"""Scale factors of block-scaled products: TMA loads blocks of 128 × 4, tcgen05.cp copies to tensor memory.

The factors of a stage overwrite those of the stage before without a wait. The PTX ISA (9.0, 9.7.16.6.2)
promises that a product follows a copy of its thread in order; that a copy follows a product is not among its
pairs. It rests on CUTLASS's block-scaled main loop (sm100_blockscaled_mma_warpspecialized.hpp), which does
the same.
"""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.formats import f32, s32, u8
from lanewise.lang.matrix.tensor_memory import TmemMatrix
from lanewise.lang.memory.array import Array
from lanewise.layout import Layout
from lanewise.linalg.block_scaling import SWIZZLED_BYTES, SWIZZLED_FACTORS
from lanewise.linalg.kernels.blackwell.traits import FACTOR_COLUMNS, BlackwellTraits

#: Words of a block of 128 × 4 factors; lanes of tensor memory that it is copied to, and bytes for each.
BLOCK_WORDS = SWIZZLED_BYTES // 4
_LANES, _LANE_BYTES = 32, 16


class ScaleFactors:
    """The scale factors of A and B in the stages of a block, and in tensor memory."""

    def __init__(self, traits: BlackwellTraits) -> None:
        self.traits, self.blocks = traits, traits.factor_blocks
        #: Bytes from the factors of A to those of B.
        self.of_all_stages = traits.plan.stages * traits.factor_bytes

    @property
    def box(self) -> tuple[int, int, int]:
        """The box of the factors' tensor maps: (128 rows, four factors, words)."""
        return 1, self.blocks, BLOCK_WORDS

    def _array(self, which: int, dtype, shape, strides) -> Array:
        """Return the factors of A (0) or B (1) in shared memory."""
        offset = self.traits.factor_offset + which * self.of_all_stages
        return lw.dynamic_shared(dtype, Layout(shape, strides), offset=offset)

    @lw.device
    def load(self, maps, rows, step, stage, barrier) -> None:
        """Load the factors of a stage; `rows` are which 128 rows of A and which 128 columns of B."""
        shape = (self.blocks, BLOCK_WORDS, self.traits.plan.stages)
        for which in range(2):
            strides = (BLOCK_WORDS, 1, self.blocks * BLOCK_WORDS)
            target = self._array(which, s32, shape, strides)
            at = (rows[which], step * self.blocks, 0)
            lw.tma.load(target[None, None, stage], maps[which], at, barrier)

    @lw.device
    def copy(self, memory, stage) -> None:
        """Copy the factors of a stage to tensor memory; the thread that multiplies calls it."""
        shape = (_LANES, _LANE_BYTES, self.blocks, self.traits.plan.stages)
        for which in range(2):
            strides = (_LANE_BYTES, 1, SWIZZLED_BYTES, self.traits.factor_bytes)
            source = lw.make_umma_desc(self._array(which, u8, shape, strides))
            for block in range(self.blocks):
                lw.tcgen05.copy(self.place(memory, which, block), source[0, 0, block, stage], "32x128b")

    def place(self, memory, which: int, block: int) -> TmemMatrix:
        """Return the columns of tensor memory that hold a block of factors."""
        column = self.traits.factor_column + (which * self.blocks + block) * FACTOR_COLUMNS
        return memory.matrix(f32, FACTOR_COLUMNS, column=column)

    def of_product(self, memory, k: int) -> dict[str, TmemMatrix | int]:
        """Return where the factors of a product lie that begins at an element of a stage."""
        fmt = self.traits.block_format
        assert fmt is not None
        block, number = divmod(k // fmt.block, SWIZZLED_FACTORS)
        return {
            "scale_a": self.place(memory, 0, block), "scale_a_id": number,
            "scale_b": self.place(memory, 1, block), "scale_b_id": number,
        }  # fmt: skip
