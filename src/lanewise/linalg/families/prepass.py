"""Copies of operands that TMA or wgmma cannot take as they lie: odd leading dimensions, or the wrong major.

TMA needs rows that begin at multiples of 16 bytes, and wgmma takes 8-bit and tf32 operands along K only. A
copy to a workspace, with rows padded to 128 bytes, runs at the speed of memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lanewise.formats import bf16
from lanewise.linalg.families.build import PLANES
from lanewise.linalg.families.meeting import COUNTER_BYTES
from lanewise.linalg.families.prepass_kernels import (
    CHUNK,
    ROWS_AT_ONCE,
    THREADS,
    TILE,
    realigning,
    splitting,
    transposing,
)
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import Pointers, flat
from lanewise.linalg.problem import Operand, Problem

#: Bytes that the rows of a workspace are padded to.
_ROW = 128


def needs_transpose(operand: Operand, precision: str) -> bool:
    """Return whether wgmma cannot take an operand because its neighbours lie along M or N."""
    return not operand.k_major and (operand.dtype.bits == 8 or precision in ("tf32", "f32"))


def needs_copy(operand: Operand, precision: str = "") -> bool:
    """Return whether an operand has to be copied before TMA and wgmma can take it."""
    return not operand.tma or precision == "f32" or needs_transpose(operand, precision)


class Copy:
    """One operand's copy: its lines in memory, before and after, and where in the workspace it goes."""

    def __init__(self, operand: Operand, rows: int, k: int, batch: int, precision: str) -> None:
        self.transposed = needs_transpose(operand, precision)
        #: bf16 planes that it is written as, or 1: as it is.
        self.planes = PLANES if precision == "f32" else 1
        self.size = 2 if self.planes > 1 else operand.dtype.bits // 8
        self.operand = operand
        #: Lines in memory and their length, of the source.
        self.lines, self.length = (rows, k) if operand.k_major else (k, rows)
        self.new_lines, self.new_length = (
            (self.length, self.lines) if self.transposed else (self.lines, self.length)
        )
        self.batch = batch if operand.batch_stride else 1
        per_row = _ROW // self.size
        self.padded = -(-self.new_length // per_row) * per_row

    @property
    def bytes(self) -> int:
        """Bytes of the workspace that it takes."""
        return self.batch * self.planes * self.new_lines * self.padded * self.size

    @property
    def result(self) -> Operand:
        """The operand as it lies in the workspace."""
        stride = self.new_lines * self.padded if self.operand.batch_stride else 0
        k_major = self.operand.k_major or self.transposed
        return replace(self.operand, k_major=k_major, leading=self.padded, batch_stride=stride, alignment=16)

    def view(self, workspace: Any, offset: int, like: Any) -> Any:
        """Return the copy in the workspace as an array of the operand's shape."""
        if self.planes > 1:
            return self._planes_view(workspace[offset : offset + self.bytes], like)
        part = workspace[offset : offset + self.bytes].view(like.dtype)
        found = part.reshape(self.batch, self.new_lines, self.padded)[:, :, : self.new_length]
        if like.ndim == 2:
            found = found[0]
        elif self.batch == 1 and like.shape[0] > 1:
            found = _repeated(found, like.shape[0])
        return found

    def _planes_view(self, part: Any, like: Any) -> Any:
        """Return the planes of all matrices of the batch, one after the other."""
        import numpy as np

        kind: Any = bf16.dtype
        if not isinstance(like, np.ndarray):
            import torch

            kind = torch.bfloat16
        return part.view(kind).reshape(self.batch * self.planes, self.new_lines, self.padded)[
            :, :, : self.new_length
        ]

    def launch(self, array: Any, target: Any, stream: Any) -> None:
        """Copy the lines of an array (lines × length, contiguous) to its place in the workspace."""
        if self.planes > 1:
            arguments = (
                flat(array), flat(target), self.lines, self.length, self.operand.leading,
                self.padded, self.operand.batch_stride, self.new_lines * self.padded,
            )  # fmt: skip
            across, along = (self.padded, self.length) if self.transposed else (self.lines, self.padded)
            splitting(self.transposed)[(-(-along // TILE), -(-across // TILE), self.batch), THREADS](
                *arguments, stream=stream
            )
            return
        arguments = (
            _words(array, self.size), _words(target, self.size), self.lines, self.length,
            self.operand.leading, self.padded, self.operand.batch_stride, self.new_lines * self.padded,
        )  # fmt: skip
        if self.transposed:
            # rows beyond the last are zeros up to the padding
            blocks = (-(-self.length // TILE), -(-self.padded // TILE), self.batch)
            transposing(self.size)[blocks, THREADS](*arguments, stream=stream)
            return
        chunks = -(-self.padded * self.size // CHUNK // THREADS)
        blocks = (chunks, -(-self.lines // ROWS_AT_ONCE), self.batch)
        realigning(self.size)[blocks, THREADS](*arguments, stream=stream)


def copies(problem: Problem, plan: Plan) -> tuple[Copy | None, Copy | None]:
    """Return the copies of A and B that a plan makes."""
    of_a = Copy(problem.a, problem.m, problem.k, problem.batch, problem.precision) if plan.copy_a else None
    of_b = Copy(problem.b, problem.n, problem.k, problem.batch, problem.precision) if plan.copy_b else None
    return of_a, of_b


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace, at an address that is a multiple of 128, a plan's copies take."""
    return sum(-(-each.bytes // _ROW) * _ROW for each in copies(problem, plan) if each is not None)


def copied(problem: Problem, plan: Plan, pointers: Pointers, stream: Any = None) -> tuple[Problem, Pointers]:
    """Copy the operands that a plan says, and return the problem and its arrays as they are then."""
    of_a, of_b = copies(problem, plan)
    offset = COUNTER_BYTES
    if of_a is not None:
        lines = pointers.a if problem.a.k_major else pointers.a.swapaxes(-1, -2)
        target = of_a.view(pointers.workspace, offset, lines)
        of_a.launch(lines, target, stream)
        pointers = replace(pointers, a=target if of_a.result.k_major else target.swapaxes(-1, -2))
        problem = replace(problem, a=of_a.result)
        offset += -(-of_a.bytes // _ROW) * _ROW
    if of_b is not None:
        lines = pointers.b.swapaxes(-1, -2) if problem.b.k_major else pointers.b
        target = of_b.view(pointers.workspace, offset, lines)
        of_b.launch(lines, target, stream)
        pointers = replace(pointers, b=target.swapaxes(-1, -2) if of_b.result.k_major else target)
        problem = replace(problem, b=of_b.result)
    return problem, pointers


def _repeated(array: Any, count: int) -> Any:
    """Return an array with its first axis of 1 repeated by a stride of 0."""
    if hasattr(array, "expand"):
        return array.expand(count, *array.shape[1:])
    import numpy as np

    return np.broadcast_to(array, (count, *array.shape[1:]))


def _words(array: Any, size: int) -> Any:
    """Return an array, or a view of its elements as words of their size, for a kernel that only copies."""
    import numpy as np

    array = flat(array)
    if isinstance(array, np.ndarray):
        return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[size])
    return array
