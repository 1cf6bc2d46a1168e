"""Attention in f64, and how far a result of f16 or bf16 may be from it."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def reference(
    q: Array, k: Array, v: Array, causal: bool = False, scale: float | None = None
) -> tuple[Array, Array]:
    """Return attention of (batch, heads, length, head size) in f64, and the logarithms of its sums."""
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    length, keys = scores.shape[-2:]
    if causal:  # the last query sees all keys
        seen = np.arange(keys)[None, :] <= np.arange(length)[:, None] + (keys - length)
        scores = np.where(seen, scores, -np.inf)
    highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logarithm = (np.log(total) + np.where(np.isfinite(highest), highest, 0))[..., 0]
    return weights @ v / np.where(total > 0, total, 1), logarithm


def tolerance(out: Array, v: Array) -> float:
    """Return the error that rounding explains: weights and result are rounded to the type, sums to f32.

    A weight has a relative error of half a unit, so has the result; both are at most |v|.
    """
    unit = 2.0**-8 if out.dtype.name == "bfloat16" else 2.0**-11
    return unit * 2.1 * max(1e-3, float(np.abs(np.asarray(v, np.float64)).max(initial=0)))


def require_right(out: Array, lse: Array | None, q: Array, k: Array, v: Array, **options: Any) -> None:
    """Compare a result and the logarithms of its sums with the reference."""
    expected, logarithm = reference(q, k, v, **options)
    error = np.abs(np.asarray(out, np.float64) - expected).max(initial=0)
    assert error <= tolerance(out, v), error
    if lse is not None:
        nothing = np.isneginf(logarithm)
        assert np.array_equal(np.isneginf(lse), nothing)
        limit = 1e-5 * max(1.0, np.abs(logarithm[~nothing]).max(initial=0))
        assert np.abs(lse[~nothing] - logarithm[~nothing]).max(initial=0) <= limit
