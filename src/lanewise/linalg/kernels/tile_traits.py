"""What kernels of every family compile in of a problem and its plan: formats, a tile's sizes; never a size of
the problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lanewise.formats import Format, f32, f64
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import multiplied_formats, planes_of

#: Bytes that memory writes at once.
SECTOR = 32


@dataclass(frozen=True)
class TileTraits:
    """The constants of a kernel that follow from its problem and plan alone; families add theirs."""

    #: The problem as the kernel computes it, without what is an argument: sizes, strides, addresses.
    problem: Problem
    #: The plan, without what is an argument, or what is in the problem already.
    plan: Plan

    @cached_property
    def a(self) -> Format:
        """The format of A as it is multiplied."""
        return multiplied_formats(self.problem)[0]

    @cached_property
    def b(self) -> Format:
        """The format of B as it is multiplied."""
        return multiplied_formats(self.problem)[1]

    @property
    def out(self) -> Format:
        """The format of the result."""
        return self.problem.out.dtype

    @property
    def wide(self) -> Format:
        """The format of alpha, beta and everything that is done to a sum."""
        return f64 if self.a is f64 else f32

    @property
    def bm(self) -> int:
        """Rows of a block's tile."""
        return self.plan.tile[0]

    @property
    def bn(self) -> int:
        """Columns of a block's tile."""
        return self.plan.tile[1]

    @property
    def bk(self) -> int:
        """Elements of K in one stage."""
        return self.plan.tile[2]

    @property
    def overlap(self) -> int:
        """Columns that a tile has in common with the next: of each row, one of both stores them."""
        return self.bn - self.column_step

    @property
    def column_step(self) -> int:
        """Columns from one tile to the next."""
        if not self.plan.whole_sectors:
            return self.bn
        apart: int = columns_apart(self.bn, self.out.word_bits // 8)
        return max(1, apart)  # a tile of which nothing is left is refused

    def tiles_across(self, n: int, along: int = 1) -> int:
        """Return how many tiles, or clusters of so many side by side, there are along N."""
        return -(-max(n - self.overlap, 1) // (self.column_step * along))

    @cached_property
    def planes(self) -> int:
        """Into how many bf16 each element is split; 3 make six products, whose sums are promoted."""
        return planes_of(self.problem)

    @property
    def grouped(self) -> bool:
        """Whether each matrix of B is multiplied by rows of A of its own, whose limits the kernel reads."""
        return self.problem.experts > 0

    @property
    def batched(self) -> bool:
        """Whether tensor maps have a third axis: of the batch, of planes, or of experts."""
        return self.problem.batch > 1 or self.planes > 1 or self.grouped

    @property
    def transposed(self) -> bool:
        """Whether the result's columns are contiguous, so that tiles are stored transposed."""
        return not self.problem.out.k_major

    @property
    def promotes(self) -> bool:
        """Whether the sums of each stage are added to others by ordinary arithmetic."""
        return self.problem.promote is not None or self.planes > 1

    @property
    def scaled_by_blocks(self) -> bool:
        """Whether promoted sums of a stage have scales of their own."""
        return any(self.problem.scale_blocks)

    def repeats(self, operand: Operand) -> bool:
        """Return whether planes of A, or of B, are the same for all matrices of the batch."""
        return self.planes > 1 and self.problem.batch > 1 and not operand.batch_stride


def columns_apart(columns: Any, size: Any) -> Any:
    """Return how many columns apart tiles that overlap are, for numbers or arrays of them.

    These are whole sectors of results of a size, so that tiles have half a sector or more in common.

    >>> columns_apart(184, 2), columns_apart(192, 2)
    (176, 176)
    """
    return (columns * size - SECTOR // 2) // SECTOR * SECTOR // size


def compiled_in(problem: Problem, a_in_registers: bool = False, aligned: bool = False) -> Problem:
    """Return a problem without what is an argument of its kernel: sizes, strides, and alignment, but for that
    of an A that goes through registers, or, if kernels are made for an alignment, of all operands."""
    is_split = planes_of(problem) > 1

    def kind(operand: Operand, strided: bool = False) -> Operand:
        alignment = operand.alignment if aligned else 16
        return Operand(
            operand.dtype, operand.k_major, 0, int(strided and operand.batch_stride != 0), alignment
        )

    many = is_split and problem.batch > 1
    first = kind(problem.a, many)
    if a_in_registers:
        first = replace(first, leading=1, alignment=16 if problem.a.tma else min(problem.a.alignment, 4))
    return Problem(
        0, 0, 0, first, kind(problem.b, many), kind(problem.out), problem.sums,
        batch=min(problem.batch, 2), epilogue=problem.epilogue.compiled_in, precision=problem.precision,
        promote=problem.promote,
        scale_blocks=problem.scale_blocks if problem.promote is not None else (0, 0),
        experts=min(problem.experts, 1), sparse=problem.sparse,
        is_transpose=problem.is_transpose and is_split, block_format=problem.block_format,
    )  # fmt: skip


def has_aligned_rows(problem: Problem) -> bool:
    """Return whether rows of the result (columns, if those are contiguous) begin and end at multiples of 16
    bytes."""
    out = problem.out
    row_bytes = (problem.n if out.k_major else problem.m) * out.dtype.word_bits // 8
    return out.tma and row_bytes % 16 == 0
