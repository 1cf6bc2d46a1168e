"""Kernels with bank conflicts, drawn at random: element types, extents, widths of vectors, kinds of access.

Each takes the layout of its shared array, so that a proposal can be put into it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import lanewise as lw

TYPES = ("f16", "bf16", "f32", "f64", "i8", "u8", "i16", "i32", "e4m3", "e5m2")
THREADS = 128
Make = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Case:
    """A kernel as a function of its array's layout and swizzle; the layout it has; its elements."""

    name: str
    make: Make
    layout: Any
    dtype: Any
    elements: int


def draw(kind: str, element: str, seed: int) -> Case:
    """Draw a kernel of a kind whose shared array has elements of a type."""
    rng = np.random.default_rng((seed, KINDS.index(kind), TYPES.index(element)))
    dtype = getattr(lw, element)
    size = max(dtype.bits // 8, 1)
    rows = int(rng.choice([16, 32, 64]))
    columns = int(rng.choice([16, 24, 32, 40, 64, 96, 128]))
    while rows * columns * size > 16384 or rows * columns % (THREADS * 16 // size):
        rows, columns = (int(rng.choice(each)) for each in ([16, 32, 64], [16, 32, 48, 64, 128]))
    width = int(rng.choice([each for each in (1, 2, 4, 8, 16) if 4 <= each * size <= 16]))
    shape: Any = (rows, columns)
    if kind == "planes":
        shape = (2, rows, columns)
    if kind == "linear":
        shape = rows * columns
    if kind == "column-major":
        shape = lw.Layout((rows, columns), (1, rows))
    make = partial(_MAKERS[kind], dtype, rows, columns, width)
    count = (2 if kind == "planes" else 1) * rows * columns
    return Case(f"{kind} {element} {rows}×{columns} by {width}", make, shape, dtype, count)


def run(case: Case, layout: Any, swizzle: Any = None) -> tuple[Any, Any]:
    """Check a kernel with a layout of its array; return the report and the bits of the result."""
    words = np.random.default_rng(7).integers(0, 100, case.elements)
    given = words.astype(case.dtype.dtype)
    out = np.zeros(4 * case.elements, np.uint32 if "matrices" in case.name else case.dtype.dtype)
    report = lw.check(case.make(layout, swizzle)[1, THREADS], given, out)
    return report, out.view(np.uint8)


def _transpose(dtype: Any, rows: int, columns: int, width: int, layout: Any, swizzle: Any) -> Any:
    @lw.kernel
    def k(x: lw.Ptr[dtype], y: lw.Ptr[dtype]) -> None:
        s = lw.shared(dtype, layout, swizzle=swizzle)
        i = lw.thread_idx.x
        for n in lw.range(rows * columns // THREADS):
            e = n * THREADS + i
            s[e // columns, e % columns] = x[e]
        lw.syncthreads()
        for n in lw.range(rows * columns // THREADS):
            e = n * THREADS + i
            y[e] = s[e % rows, e // rows]

    return k


def _vectors(dtype: Any, rows: int, columns: int, width: int, layout: Any, swizzle: Any) -> Any:
    """Rows are written by vectors, and read by vectors down the columns."""

    @lw.kernel
    def k(x: lw.Ptr[dtype, 16], y: lw.Ptr[dtype, 16]) -> None:
        s = lw.shared(dtype, layout, swizzle=swizzle)
        i = lw.thread_idx.x
        for n in lw.range(rows * columns // width // THREADS):
            e = (n * THREADS + i) * width
            s.ptr(e // columns, e % columns).store((x + e).load(width))
        lw.syncthreads()
        for n in lw.range(rows * columns // width // THREADS):
            e = n * THREADS + i
            (y + e * width).store(s.ptr(e % rows, e // rows * width).load(width))

    return k


def _planes(dtype: Any, rows: int, columns: int, width: int, layout: Any, swizzle: Any) -> Any:
    @lw.kernel
    def k(x: lw.Ptr[dtype], y: lw.Ptr[dtype]) -> None:
        s = lw.shared(dtype, layout, swizzle=swizzle)
        i = lw.thread_idx.x
        for plane in lw.range(2):
            for n in lw.range(rows * columns // THREADS):
                e = n * THREADS + i
                s[plane, e // columns, e % columns] = x[plane * rows * columns + e]
        lw.syncthreads()
        for plane in lw.range(2):
            for n in lw.range(rows * columns // THREADS):
                e = n * THREADS + i
                y[plane * rows * columns + e] = s[1 - plane, e % rows, e // rows]

    return k


def _linear(dtype: Any, rows: int, columns: int, width: int, layout: Any, swizzle: Any) -> Any:
    """An array of one dimension, which the kernel uses as rows."""

    @lw.kernel
    def k(x: lw.Ptr[dtype], y: lw.Ptr[dtype]) -> None:
        s = lw.shared(dtype, layout, swizzle=swizzle)
        i = lw.thread_idx.x
        for n in lw.range(rows * columns // THREADS):
            s[n * THREADS + i] = x[n * THREADS + i]
        lw.syncthreads()
        for n in lw.range(rows * columns // THREADS):
            e = n * THREADS + i
            y[e] = s[e % rows * columns + e // rows]

    return k


def _matrices(trans: bool, dtype: Any, rows: int, columns: int, width: int, layout: Any, swizzle: Any) -> Any:
    """The array is written by rows and read by ldmatrix, whose rows have 16 bytes."""
    each = 128 // dtype.bits  # elements of a matrix row

    @lw.kernel
    def k(x: lw.Ptr[dtype, 16], y: lw.Ptr[lw.u32]) -> None:
        s = lw.shared(dtype, layout, swizzle=swizzle)
        i = lw.thread_idx.x
        for n in lw.range(rows * columns // width // THREADS):
            e = (n * THREADS + i) * width
            s.ptr(e // columns, e % columns).store((x + e).load(width))
        lw.syncthreads()
        lane = i % 32
        total = lw.u32(0)
        for m in lw.range(rows // 16):
            for c in lw.range(columns // each // 2):
                row, column = m * 16 + lane % 16, (c * 2 + lane // 16) * each
                found = lw.ldmatrix(s.ptr(row, column), trans=trans)
                for register in found.registers:
                    total = total * 7 + lw.bitcast(register, lw.u32)
        y[i] = total

    return k


def _copies(dtype: Any, rows: int, columns: int, width: int, layout: Any, swizzle: Any) -> Any:
    """The array is written by cp.async of 16 bytes, and read down the columns."""
    each = 128 // dtype.bits

    @lw.kernel
    def k(x: lw.Ptr[dtype, 16], y: lw.Ptr[dtype]) -> None:
        s = lw.shared(dtype, layout, swizzle=swizzle)
        i = lw.thread_idx.x
        for n in lw.range(rows * columns // each // THREADS):
            e = (n * THREADS + i) * each
            lw.cp_async(s.ptr(e // columns, e % columns), x + e)
        lw.cp_async_commit()
        lw.cp_async_wait(0)
        lw.syncthreads()
        for n in lw.range(rows * columns // THREADS):
            e = n * THREADS + i
            y[e] = s[e % rows, e // rows]

    return k


_MAKERS: dict[str, Callable[..., Any]] = {
    "transpose": _transpose,
    "vectors": _vectors,
    "planes": _planes,
    "linear": _linear,
    "rows of matrices": partial(_matrices, False),
    "matrices transposed": partial(_matrices, True),
    "copies": _copies,
    "column-major": _transpose,
}
KINDS = tuple(_MAKERS)
