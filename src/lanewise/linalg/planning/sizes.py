"""A problem of sizes and types alone, without arrays: for plans and tables."""

from __future__ import annotations

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format
from lanewise.linalg.block_scaling.formats import BLOCK_FORMATS
from lanewise.linalg.operands import lying
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.types import format_named, precision_of, product_of, result_of, sums_of

#: Bytes at whose multiples arrays begin, and lines that tensor maps can describe.
_ALIGNED = 16


def problem_of_sizes(
    m: int,
    n: int,
    k: int,
    dtype: object,
    *,
    out: object = None,
    precision: str | None = None,
    layout: str = "nn",
    batch: int = 1,
    batch_invariant: bool = False,
) -> Problem:
    """Return the problem of contiguous arrays of these sizes; `layout` has a t for each that is transposed.

    >>> problem_of_sizes(64, 128, 256, "bf16", layout="nt").b.k_major
    True
    """
    blocks = BLOCK_FORMATS.get(str(dtype))
    fmt = FORMATS[blocks.elements[0]] if blocks else format_named(dtype, "dtype")
    if fmt.name == "e2m1" and blocks is None:
        raise LanewiseError(f"dtype={dtype!r}: products of e2m1 are block-scaled, mxfp4 or nvfp4")
    product = product_of(fmt, fmt)
    sums, promote = sums_of(product, fmt, None)
    kind = precision_of(product, fmt, precision)
    result = result_of(product, fmt, None, out, False)
    return Problem(
        m,
        n,
        k,
        _operand(fmt, m, k, layout[0] == "n", batch),
        _operand(fmt, n, k, layout[1] == "t", batch),
        _operand(result, m, n, True, batch),
        sums,
        batch,
        precision=kind,
        promote=promote,
        batch_invariant=batch_invariant,
        block_format=blocks.name if blocks else "",
    )


def _operand(fmt: Format, rows: int, columns: int, k_major: bool, batch: int) -> Operand:
    """Return a contiguous operand, as `lw.matmul` sees it: one line may lie along either of its axes."""
    strides = (columns, 1) if k_major else (1, rows)
    k_major, leading, _ = lying(rows, columns, *strides, _ALIGNED * 8 // fmt.word_bits)
    stride = rows * columns if batch > 1 else 0
    bits = _ALIGNED | leading * fmt.word_bits // 8 | stride * fmt.word_bits // 8
    return Operand(fmt, k_major, leading, stride, bits & -bits)
