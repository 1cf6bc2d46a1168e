"""Copies of operands that TMA or wgmma cannot take as they lie: odd leading dimensions, or the wrong major.

TMA needs rows that begin at multiples of 16 bytes, and wgmma takes 8-bit and tf32 operands along K only. A copy
to a workspace, with rows padded to 128 bytes, runs at the speed of memory and is small beside the product.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from lanewise import lang as lw
from lanewise.formats import bf16, f32, u8
from lanewise.lang.trace.types import u16, u32
from lanewise.layout import Layout
from lanewise.linalg.families.build import PLANES
from lanewise.linalg.families.meeting import COUNTER_BYTES
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import Pointers, flat
from lanewise.linalg.problem import Operand, Problem

#: Bytes that the rows of a workspace are padded to, that a thread copies at once; threads and rows of a block.
_ROW, _CHUNK, _THREADS, _ROWS_AT_ONCE = 128, 16, 256, 4
#: Rows and columns of a tile that is transposed through shared memory.
_TILE = 64
_WORDS = {1: u8, 2: u16, 4: u32}


@cache
def realigning(size: int) -> Any:
    """Return the kernel that copies rows of elements of `size` bytes to rows that begin at multiples of 16 bytes."""
    word, per_chunk = _WORDS[size], _CHUNK // size

    @lw.kernel(max_threads=_THREADS)
    def realign(
        source: lw.Ptr[word], target: lw.Ptr[word, 16], rows: lw.i32, columns: lw.i32, leading: lw.i64,
        padded: lw.i32, source_stride: lw.i64, target_stride: lw.i64,
    ):  # fmt: skip
        column = (lw.block_idx.x * _THREADS + lw.thread_idx.x) * per_chunk
        matrix = lw.block_idx.z.to(lw.i64)
        last = (rows - 1).to(lw.i64) * leading + columns.to(lw.i64)  # elements from the first to the end
        base = source + matrix * source_stride
        if column < padded:
            for number in range(_ROWS_AT_ONCE):
                row = lw.block_idx.y * _ROWS_AT_ONCE + number
                if row < rows:
                    flat = row.to(lw.i64) * leading + column.to(lw.i64)
                    place = (
                        target
                        + matrix * target_stride
                        + row.to(lw.i64) * padded.to(lw.i64)
                        + column.to(lw.i64)
                    )
                    words = copied_chunk(base, flat, last, columns - column, size)
                    store_chunk(place, words)

    return realign


@lw.device
def copied_chunk(base: Any, flat: Any, last: Any, left: Any, size: Any) -> Any:
    """Return 16 bytes from an element on as four words; beyond the row's end they are zero.

    Inside of the array five aligned words are read and shifted; at its ends, element by element.
    """
    per_word = 4 // size
    address = (base + flat).address.to(lw.u64)
    shift = (address & 3).to(lw.u32) * 8
    words = [lw.u32(0) for _ in range(4)]
    inside = (flat >= per_word) & (flat + 5 * per_word < last)
    if inside:
        read = []
        for i in range(5):
            read.append(lw.asm("ld.global.nc.b32 {d}, [{p}];", d=lw.u32, p=(address - (address & 3)) + 4 * i))
        for i in range(4):
            words[i] = lw.asm(
                "shf.r.clamp.b32 {d}, {a}, {b}, {c};", d=lw.u32, a=read[i], b=read[i + 1], c=shift
            )
    else:
        for i in range(4):
            for j in range(per_word):
                if i * per_word + j < left:
                    value = base[flat + (i * per_word + j)].to(lw.u32)
                    words[i] = words[i] | (value << (8 * size * j))
    for i in range(4):
        here = left - i * per_word  # elements of this word that belong to the row
        if here < per_word:
            kept = lw.max(here, 0) * (8 * size)
            words[i] = lw.where(kept == 0, lw.u32(0), words[i] & ((lw.u32(1) << kept.to(lw.u32)) - 1))
    return words


@lw.device
def store_chunk(place: Any, words: Any):
    """Store four words at an address that is a multiple of 16 bytes."""
    lw.pointer(place.address, u32, "global", _CHUNK).store(words)


@cache
def transposing(size: int) -> Any:
    """Return the kernel that copies a matrix of elements of `size` bytes to its transpose, with padded rows."""
    word = _WORDS[size]
    per_word = 4 // size
    # a line more than the tile's width keeps columns of the tile in different banks
    layout = Layout((_TILE, _TILE), (_TILE + per_word, 1))

    @lw.kernel(max_threads=_THREADS)
    def transpose(
        source: lw.Ptr[word], target: lw.Ptr[word, 16], rows: lw.i32, columns: lw.i32, leading: lw.i64,
        padded: lw.i32, source_stride: lw.i64, target_stride: lw.i64,
    ):  # fmt: skip
        tile = lw.shared(word, layout)
        thread = lw.thread_idx.x
        first_row, first_column = lw.block_idx.y * _TILE, lw.block_idx.x * _TILE
        matrix = lw.block_idx.z.to(lw.i64)
        base = source + matrix * source_stride
        for step in range(0, _TILE * _TILE, _THREADS):
            row, column = (step + thread) // _TILE, (step + thread) % _TILE
            value = word(0)
            if (first_row + row < rows) & (first_column + column < columns):
                value = base[(first_row + row).to(lw.i64) * leading + (first_column + column).to(lw.i64)]
            tile[row, column] = value
        lw.syncthreads()
        for step in range(0, _TILE * _TILE // per_word, _THREADS):
            number = step + thread
            column, row = number // (_TILE // per_word), number % (_TILE // per_word) * per_word
            packed = lw.u32(0)
            for i in range(per_word):
                packed = packed | (tile[row + i, column].to(lw.u32) << (8 * size * i))
            if (first_column + column < columns) & (first_row + row < padded):
                at = (first_column + column).to(lw.i64) * padded.to(lw.i64) + (first_row + row).to(lw.i64)
                lw.asm("st.global.b32 [{p}], {v};", p=target + matrix * target_stride + at, v=packed)

    return transpose


@cache
def splitting(transposed: bool) -> Any:
    """Return the kernel that writes f32 numbers as three bf16 numbers, in planes with padded rows.

    The first is x rounded towards zero, the others what is left, rounded to nearest; their sum is x.
    """
    columns_of_tile = _TILE + 1  # columns of the tile lie in different banks

    @lw.kernel(max_threads=_THREADS)
    def split(
        source: lw.Ptr[f32], target: lw.Ptr[bf16, 16], rows: lw.i32, columns: lw.i32, leading: lw.i64,
        padded: lw.i32, source_stride: lw.i64, plane: lw.i64,
    ):  # fmt: skip
        tile = lw.shared(f32, Layout((_TILE, _TILE), (columns_of_tile, 1)))
        thread = lw.thread_idx.x
        first_row, first_column = lw.block_idx.y * _TILE, lw.block_idx.x * _TILE
        matrix = lw.block_idx.z.to(lw.i64)
        base = source + matrix * source_stride
        for step in range(0, _TILE * _TILE, _THREADS):
            row, column = (step + thread) // _TILE, (step + thread) % _TILE
            value = f32(0.0)
            if (first_row + row < rows) & (first_column + column < columns):
                value = base[(first_row + row).to(lw.i64) * leading + (first_column + column).to(lw.i64)]
            tile[row, column] = value
        lw.syncthreads()
        # lines of the result, eight numbers at once
        line_first, inner_first = (first_column, first_row) if transposed else (first_row, first_column)
        lines = columns if transposed else rows
        for step in range(0, _TILE * _TILE // 8, _THREADS):
            line, inner = (step + thread) // (_TILE // 8), (step + thread) % (_TILE // 8) * 8
            parts = [
                split_number(tile[inner + i, line] if transposed else tile[line, inner + i]) for i in range(8)
            ]
            if (line_first + line < lines) & (inner_first + inner < padded):
                at = (line_first + line).to(lw.i64) * padded.to(lw.i64) + (inner_first + inner).to(lw.i64)
                for part in range(3):
                    place = target + (matrix * 3 + part) * plane + at
                    words = [
                        lw.bitcast(lw.pack(parts[i][part], parts[i + 1][part]), u32) for i in (0, 2, 4, 6)
                    ]
                    store_chunk(place, words)

    return split


@lw.device
def split_number(value: Any) -> Any:
    """Return an f32 as three bf16 whose sum it is; of an infinity the others are zero."""
    high = value.to(bf16, rounding="rz")
    rest = lw.where(lw.abs(value) < float("inf"), value - high.to(f32), f32(0.0))
    middle = rest.to(bf16)
    low = (rest - middle.to(f32)).to(bf16)
    return high, middle, low


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
            splitting(self.transposed)[(-(-along // _TILE), -(-across // _TILE), self.batch), _THREADS](
                *arguments, stream=stream
            )
            return
        arguments = (
            _words(array, self.size), _words(target, self.size), self.lines, self.length, self.operand.leading,
            self.padded, self.operand.batch_stride, self.new_lines * self.padded,
        )  # fmt: skip
        if self.transposed:
            # rows beyond the last are zeros up to the padding
            blocks = (-(-self.length // _TILE), -(-self.padded // _TILE), self.batch)
            transposing(self.size)[blocks, _THREADS](*arguments, stream=stream)
            return
        chunks = -(-self.padded * self.size // _CHUNK // _THREADS)
        blocks = (chunks, -(-self.lines // _ROWS_AT_ONCE), self.batch)
        realigning(self.size)[blocks, _THREADS](*arguments, stream=stream)


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
