"""`lw.grouped_matmul`: rows of one A multiplied by different matrices, as a mixture of experts does it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.linalg.call import matmul
from lanewise.linalg.operands import empty, view_of
from lanewise.linalg.types import product_of, result_of


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    out: Any = None,
    counts: Any = None,
    out_dtype: Any = None,
    batch_invariant: bool = True,
    **keywords: Any,
) -> Any:
    """Return the rows of `a` multiplied by the matrix of their group: one matrix of `b` for each group.

    `a` is (rows, K), `b` (groups, K, N). `offsets` are integers, one for each group: where the group's rows
    end (and the next group's begin), as in torch._grouped_mm. With `counts`, group g has only its first
    counts[g] rows; the other rows of the result are left as they are (`out`) or zero. Keywords are those of
    `lw.matmul`; rows have the bits that they have in any group, unless `batch_invariant` is False.

    >>> import numpy as np
    >>> a, b = np.ones((3, 4), np.float16), np.stack([np.full((4, 2), x, np.float16) for x in (1, 10)])
    >>> grouped_matmul(a, b, [1, 3]).tolist()
    [[4.0, 4.0], [40.0, 40.0], [40.0, 40.0]]
    """
    left, right = view_of(a, "a"), view_of(b, "b")
    if len(left.shape) != 2 or len(right.shape) != 3:
        raise LanewiseError(
            f"a is (rows, K) and b (groups, K, N); they have shapes {left.shape} and {right.shape}"
        )
    groups = right.shape[0]
    ends = _integers(offsets, "offsets", groups)
    rows = None if counts is None else _integers(counts, "counts", groups)
    starts = [0, *ends[:-1]]
    if any(end < start for start, end in zip(starts, ends, strict=True)) or (
        ends and ends[-1] > left.shape[0]
    ):
        raise LanewiseError(f"offsets {ends} ascend from 0 to at most the {left.shape[0]} rows of a")
    if rows is not None and any(
        not 0 <= count <= end - start for count, start, end in zip(rows, starts, ends, strict=True)
    ):
        raise LanewiseError(f"counts {rows} are at least 0 and at most the rows of their groups")
    for name in ("residual", "scale_a", "scale_b", "bias", "plan"):
        if keywords.get(name) is not None and name != "bias":
            raise LanewiseError(f"lw.grouped_matmul takes no {name}=")
    whole = rows is None and bool(ends) and ends[-1] == left.shape[0]
    if out is None:
        product = product_of(left.format, right.format)
        fmt = result_of(product, left.format, None, out_dtype, False)
        out = empty(left, (left.shape[0], right.shape[2]), fmt)
        if not whole:
            out[...] = 0
    for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
        end = end if rows is None else start + rows[group]
        if end > start:
            matmul(a[start:end], b[group], out=out[start:end], batch_invariant=batch_invariant, **keywords)
    return out


def _integers(given: Any, name: str, groups: int) -> list[int]:
    """Return offsets or counts as integers: one for each group."""
    values = given.tolist() if hasattr(given, "tolist") else given
    try:
        found = [int(each.__index__()) for each in values]
    except (TypeError, AttributeError):
        raise LanewiseError(f"{name} are integers, one for each group; not {given!r}") from None
    if len(found) != groups:
        raise LanewiseError(f"{name} has {len(found)} numbers; b has {groups} groups")
    return found


def group_of_rows(ends: list[int], rows: int) -> np.ndarray[Any, Any]:
    """Return the group of each row: a table for kernels that run all groups in one launch.

    >>> group_of_rows([1, 3], 4).tolist()
    [0, 1, 1, -1]
    """
    found = np.searchsorted(np.asarray(ends), np.arange(rows), side="right")
    return np.where(found < len(ends), found, -1)
