"""Copies of operands that TMA or wgmma cannot take as they lie: odd leading dimensions, or the wrong major.

TMA needs rows that begin at multiples of 16 bytes, and wgmma takes 8-bit and tf32 operands along K only. A
copy to a workspace, with rows padded to 128 bytes, runs at the speed of memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import bf16
from lanewise.linalg.arrays import COUNTER_BYTES, Memory, Pointers, flat
from lanewise.linalg.kernels.copies.kernels import CHUNKS_EACH, THREADS, Kind, copying, division, tiles_of
from lanewise.linalg.kernels.family import Launch, launch
from lanewise.linalg.operand_copies import needs_copy, needs_transpose
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import planes_of

#: Bytes that the rows of a workspace are padded to, bytes that are read at once, and four of bytes.
_ROW, _GRANULE, _WORD = 128, 16, 4
#: Bytes of an array in which there may be too few of those.
_TINY = 5 * _GRANULE


class Copy:
    """One operand's copy: its lines in memory, before and after, and where in the workspace it goes."""

    def __init__(self, operand: Operand, rows: int, problem: Problem) -> None:
        self.transposed = needs_transpose(operand, problem.precision)
        #: bf16 planes that it is written as, or 1: as it is.
        self.planes = planes_of(problem)
        self.size = (bf16 if self.planes > 1 else operand.dtype).word_bits // 8
        self.operand = operand
        #: Lines in memory and their length, of the source.
        self.lines, self.length = (rows, problem.k) if operand.k_major else (problem.k, rows)
        self.new_lines, self.new_length = (
            (self.length, self.lines) if self.transposed else (self.lines, self.length)
        )
        self.batch = problem.batch if operand.batch_stride else 1
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

    def view(self, workspace: Memory, offset: int, like: Memory) -> Memory:
        """Return the copy in the workspace as an array of the operand's shape; of matrices that a batch
        shares, as one."""
        part = workspace[offset : offset + self.bytes].view(bf16.dtype if self.planes > 1 else like.dtype)
        whole = part.reshape(self.batch * self.planes, self.new_lines, self.padded)
        view: Memory = whole[:, :, : self.new_length]
        if self.planes > 1:  # those of all matrices of the batch, one after the other
            return view
        return view[0] if like.ndim == 2 else view

    @property
    def kind(self) -> Kind:
        """What of it is compiled in."""
        size = self.operand.dtype.word_bits // 8
        return Kind(
            size,
            self.transposed,
            self.planes,
            self.batch > 1,
            self.operand.alignment >= (_GRANULE if not self.transposed else _WORD),
            self._chunks >= 1 << 31,
            self._bytes_read < _TINY and not self.transposed,
        )

    @property
    def _chunks(self) -> int:
        """Chunks of 16 bytes of all matrices (of one plane, if there are several)."""
        return self.batch * self.new_lines * self.padded * self.size // _GRANULE

    @property
    def _bytes_read(self) -> int:
        """Bytes from the first element to the last."""
        operand = self.operand
        between = (self.lines - 1) * operand.leading + (self.batch - 1) * operand.batch_stride
        return (between + self.length) * operand.dtype.word_bits // 8

    @property
    def blocks(self) -> int:
        """Blocks of the launch that make it."""
        if self.transposed:
            return self.batch * tiles_of(self.length, self.padded, self.kind.transposes_words)
        return -(-self._chunks // (THREADS * CHUNKS_EACH[self.planes]))

    def arguments(self, array: Memory, target: Memory) -> tuple[object, ...]:
        """Return what the kernel gets of it: `array` has the lines, `target` is its part of the workspace."""
        source, into = flat(array), flat(target)
        if self.planes == 1:  # the kernel copies words
            source, into = (memory.view(f"u{self.size}") for memory in (source, into))
        return (
            source, into, self.lines, self.length, self.operand.leading, self.padded,
            self.operand.batch_stride, self.new_lines * self.padded, self.batch,
            *division(self.padded * self.size // _GRANULE),
        )  # fmt: skip


def copies(problem: Problem, plan: Plan) -> dict[str, Copy]:
    """Return the copies of A and B, by name, that a plan makes."""
    sides = ("a", problem.a, problem.m, plan.copy_a), ("b", problem.b, problem.n, plan.copy_b)
    return {name: Copy(operand, rows, problem) for name, operand, rows, is_copied in sides if is_copied}


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace, at an address that is a multiple of 128, a plan's copies take."""
    return sum(-(-copy.bytes // _ROW) * _ROW for copy in copies(problem, plan).values())


def loaded(problem: Problem, plan: Plan) -> Problem:
    """Return a problem with its operands as they are loaded: after the copies that a plan makes."""
    results: dict[str, Any] = {name: copy.result for name, copy in copies(problem, plan).items()}
    return replace(problem, **results)


def require_copies(problem: Problem, plan: Plan, names: str = "ab", tcgen05: bool = False) -> None:
    """Raise an error if TMA or the instruction cannot take an operand, by name, that a plan does not copy."""
    for name in names:
        is_copied = getattr(plan, f"copy_{name}")
        if needs_copy(getattr(problem, name), problem.precision, tcgen05=tcgen05) and not is_copied:
            raise LanewiseError(
                f"copy_{name}=False: TMA and {'tcgen05' if tcgen05 else 'wgmma'} cannot take {name} as it "
                "lies, and the plan does not copy it: make the plan for these arrays, or take "
                f"copy_{name}=True"
            )


def copied(problem: Problem, plan: Plan, pointers: Pointers) -> tuple[Problem, Pointers, list[Launch]]:
    """Return the problem and its arrays after the copies that a plan makes, and the launch of these."""
    if not (plan.copy_a or plan.copy_b):
        return problem, pointers, []
    workspace, offset = pointers.workspace, COUNTER_BYTES
    assert workspace is not None
    jobs = []
    made: dict[str, Any] = {}
    for name, copy in copies(problem, plan).items():
        array: Memory = getattr(pointers, name)
        lines = array if copy.operand.k_major else array.swapaxes(-1, -2)
        target = copy.view(workspace, offset, lines)
        jobs.append((copy, copy.arguments(lines, target)))
        if copy.planes == 1 and target.ndim == 3 and len(target) < len(lines):  # nobody writes to this view
            target = np.broadcast_to(target, (len(lines), *target.shape[1:]), subok=True)
        made[name] = target if copy.result.k_major else target.swapaxes(-1, -2)
        offset += -(-copy.bytes // _ROW) * _ROW
    return loaded(problem, plan), replace(pointers, **made), [copy_launch(jobs)]


def copy_launch(jobs: list[tuple[Copy, tuple[object, ...]]]) -> Launch:
    """Return the one launch that makes one or two copies."""
    blocks = [copy.blocks for copy, _ in jobs]
    arguments = [value for _, given in jobs for value in given]
    if len(jobs) > 1:
        arguments.append(blocks[0])
    kernel = copying(*(copy.kind for copy, _ in jobs))
    return launch(kernel[sum(blocks), THREADS], arguments)
