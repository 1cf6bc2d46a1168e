"""Block-scaled products: scale factors on their way to tensor memory, and what operands become before.

TMA loads scale factors in blocks of 128 × 4, tcgen05.cp copies them to tensor memory. The factors of a stage
overwrite those of the stage before without a wait. The PTX ISA (9.0, 9.7.16.6.2) promises that a product
follows a copy of its thread in order; that a copy follows a product is not among its pairs. It rests on
CUTLASS's block-scaled main loop (sm100_blockscaled_mma_warpspecialized.hpp), which does the same.

Arrays of e2m1 have a byte for each element, and scale factors lie row by row; tcgen05 wants both otherwise:
bytes of two elements, and scales in 128×4 order. Two small kernels write them to a workspace before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lanewise import lang as lw
from lanewise.formats import f32, s32, u8
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.matrix.tensor_memory import TmemMatrix
from lanewise.lang.memory.array import Array
from lanewise.layout import Layout
from lanewise.linalg.arrays import Memory, Pointers
from lanewise.linalg.block_scaling import (
    BLOCK_FORMATS,
    SWIZZLED,
    SWIZZLED_BYTES,
    SWIZZLED_FACTORS,
    SWIZZLED_ROWS,
    swizzled_bytes,
)
from lanewise.linalg.kernels.blackwell.traits import FACTOR_COLUMNS, BlackwellTraits
from lanewise.linalg.kernels.family import Launch, launch, made_by_constants
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import stored_bits

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


# what operands become before --------------------------------------------------------------------------------


_THREADS = 256
#: Bytes that rows of packed operands are padded to.
_ROW = 128


def prepared_bytes(problem: Problem) -> int:
    """Return the bytes of workspace for packed operands and swizzled scale factors of a problem."""
    return sum(new_bytes(problem).values())


def new_bytes(problem: Problem) -> dict[str, int]:
    """Return the bytes of what is written to a workspace, by the names of the arrays that it replaces."""
    if not problem.block_format:
        return {}
    rows = {"a": problem.m, "b": problem.n}
    steps = dict(zip(rows, problem.factor_steps, strict=True))
    packed = {name: count * _packed_row(problem) for name, count in rows.items() if stored_bits(problem) == 4}
    return packed | {
        f"scale_{name}": swizzled_bytes(count, _factors(problem))
        for name, count in rows.items()
        if steps[name] != SWIZZLED
    }


def _packed_row(problem: Problem) -> int:
    """Return the bytes of a row of an operand with two elements in a byte."""
    return -(-problem.k // (2 * _ROW)) * _ROW


def _factors(problem: Problem) -> int:
    """Return how many factors a row has."""
    return -(-problem.k // BLOCK_FORMATS[problem.block_format].block)


def prepare(problem: Problem, pointers: Pointers, workspace: Memory | None) -> tuple[Pointers, list[Launch]]:
    """Return the arrays of a problem as kernels take them, and the launches that write what is new.

    Packed operands are contiguous along K already. `workspace` are the bytes for what is new.
    """
    launches, offset = [], 0
    rows = {"a": problem.m, "b": problem.n, "scale_a": problem.m, "scale_b": problem.n}
    made: dict[str, Memory] = {}
    for name, size in new_bytes(problem).items():
        assert workspace is not None
        given, count, target = getattr(pointers, name), rows[name], workspace[offset : offset + size]
        if name in ("a", "b"):
            leading = getattr(problem, name).leading
            launches.append(_packing_launch(problem, given, leading, target, count))
            target = target.reshape(count, _packed_row(problem))
        else:
            launches.append(_swizzling_launch(given, target, count, _factors(problem)))
        made[name] = target
        offset += size
    deep = -(-_factors(problem) // SWIZZLED_FACTORS)
    for name in ("scale_a", "scale_b"):
        words = made.get(name, getattr(pointers, name)).view(np.uint8).view(np.int32)
        made[name] = words.reshape(-(-rows[name] // SWIZZLED_ROWS), deep, SWIZZLED_BYTES // 4)
    return replace(pointers, **made), launches


@made_by_constants
def packing() -> Kernel:
    """Return the kernel that puts two elements of a row into each byte, those of even columns low."""

    @lw.kernel(max_threads=_THREADS)
    def pack_two(
        source: lw.Ptr[u8], target: lw.Ptr[u8], rows: lw.i32, k: lw.i32, leading: lw.i64, padded: lw.i32
    ):
        at = lw.block_idx.x.to(lw.i64) * _THREADS + lw.thread_idx.x.to(lw.i64)
        if at < rows.to(lw.i64) * padded.to(lw.i64):
            row, column = at // padded.to(lw.i64), (at % padded.to(lw.i64)).to(lw.i32) * 2
            line = source + row * leading
            low, high = lw.u32(0), lw.u32(0)
            if column < k:
                low = line[column].to(lw.u32) & 15
            if column + 1 < k:
                high = line[column + 1].to(lw.u32) & 15
            target[at] = (low | (high << 4)).to(u8)

    return pack_two


def _packing_launch(problem: Problem, source: Memory, leading: int, target: Memory, rows: int) -> Launch:
    """Return the launch that packs the rows of an operand."""
    padded = _packed_row(problem)
    arguments = (source.view(np.uint8), target, rows, problem.k, leading, padded)
    return launch(packing()[-(-rows * padded // _THREADS), _THREADS], arguments)


@made_by_constants
def swizzling() -> Kernel:
    """Return the kernel that puts scale factors into NVIDIA's 128×4 order; padding becomes zeros."""

    @lw.kernel(max_threads=_THREADS)
    def swizzle_factors(
        source: lw.Ptr[u8], target: lw.Ptr[u8], rows: lw.i32, factors: lw.i32, row_step: lw.i64,
        factor_step: lw.i64, deep: lw.i32, size: lw.i32,
    ):  # fmt: skip
        at = lw.block_idx.x * _THREADS + lw.thread_idx.x
        if at < size:
            block, inner = at // SWIZZLED_BYTES, at % SWIZZLED_BYTES
            lane, part, factor = inner // 16, inner // 4 % 4, inner % 4
            row = block // deep * SWIZZLED_ROWS + part * 32 + lane
            factor = block % deep * SWIZZLED_FACTORS + factor
            value = u8(0)
            if (row < rows) & (factor < factors):
                value = source[row.to(lw.i64) * row_step + factor.to(lw.i64) * factor_step]
            target[at] = value

    return swizzle_factors


def _swizzling_launch(plain: Memory, target: Memory, rows: int, factors: int) -> Launch:
    """Return the launch that swizzles the scale factors of an operand."""
    size = swizzled_bytes(rows, factors)
    row, factor = plain.strides  # of bytes, which are elements
    deep = -(-factors // SWIZZLED_FACTORS)
    arguments = (plain.view(np.uint8), target, rows, factors, row, factor, deep, size)
    return launch(swizzling()[-(-size // _THREADS), _THREADS], arguments)
