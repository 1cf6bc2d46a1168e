"""Rung 7: blocks ordered for L2, a tile as large as the registers allow, and rows of C written whole.

Blocks that run at the same time lie close together in C: they read the same rows of A and columns of B.
"""

from typing import Any

import parts
import rung6_double_buffered

import lanewise as lw

TILING = parts.Tiling(BM=256, BN=128, BK=64, WM=64, WN=64, stages=4)
GROUP = 4


def in_groups(number: Any, tall: Any, wide: Any) -> tuple[Any, Any]:
    """Four rows of tiles at a time, column by column."""
    first = number // (wide * GROUP) * GROUP
    rest, size = number % (wide * GROUP), lw.min(tall - first, GROUP)
    return first + rest % size, rest // size


def prepare(
    a: Any, b: Any, c: Any, accumulate: lw.Format = lw.f32
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The configured kernel and its arguments: C = A · B, for any M, N and K."""
    kernel = rung6_double_buffered.kernel(parts.format_of(a), accumulate, TILING, in_groups, rows=True)
    return parts.prepared(kernel, TILING, a, b, c, flat=True)
