"""Scales of A and B: a number, one for each row of A or column of B, or one for each block of 128."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import f32
from lanewise.linalg.operands import View, view_of
from lanewise.linalg.types import BLOCK, Product


@dataclass(frozen=True)
class Scale:
    """A scale in its form: None, "tensor", "row" or "block". A plain number is part of alpha."""

    form: str | None = None
    view: View | None = None
    #: Strides in elements: (batch), row of A or column of B (or block of columns), block of K.
    strides: tuple[int, int, int] = (0, 0, 0)
    #: Strides along the axes of the batch.
    batch: tuple[int, ...] = ()
    number: float = 1.0


def scale_of(
    given: object, name: str, side: str, batch: tuple[int, ...], rows: int, k: int, product: Product, a: View
) -> Scale:
    """Return the scale of A (`side` "a") or B, whose form its shape tells; an error if none fits."""
    if given is None:
        return Scale()
    if isinstance(given, bool | np.bool_):
        raise LanewiseError(f"{name} must be a number or an array of float32, not bool")
    if not product.scales:
        raise LanewiseError(
            f"{name} is for e4m3, e5m2 and int8; products of {a.format.dtype_name} are scaled by alpha="
        )
    if isinstance(given, int | float | np.floating | np.integer):
        try:
            return Scale(number=float(given))
        except OverflowError:
            raise LanewiseError(f"{name} must be at most 1.8e308; this integer is larger") from None
    view = view_of(given, name)
    if view.format != f32:
        raise LanewiseError(f"{name} has elements of type {view.format.dtype_name}; scales must be float32")
    if all(size == 1 for size in view.shape):
        return Scale("tensor", view)
    blocks = -(-k // BLOCK)
    if len(view.shape) == 1:
        if view.shape == (rows,):
            return Scale("row", view, (0, view.strides[0], 0), (0,) * len(batch))
        raise _unfitting(view, name, side, rows, k, product)
    row, block = (-2, -1) if side == "a" else (-1, -2)
    along, deep = view.shape[row], view.shape[block]
    strides = (0, view.strides[row] if along > 1 else 0, view.strides[block] if deep > 1 else 0)
    outer = _batch(view, batch, name)
    if (along, deep) == (rows, 1):
        return Scale("row", view, strides, outer)
    wanted = (rows, blocks) if side == "a" else (-(-rows // BLOCK), blocks)
    if (along, deep) == wanted and "block" in product.scales:
        return Scale("block", view, strides, outer)
    raise _unfitting(view, name, side, rows, k, product)


def _batch(view: View, batch: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return a scale's strides along the axes of the batch."""
    own = view.shape[:-2]
    try:
        fits = np.broadcast_shapes(own, batch) == batch
    except ValueError:
        fits = False
    if not fits:
        raise LanewiseError(
            f"{name} has shape {view.shape}; its first axes do not broadcast to the batch {batch}"
        )
    steps = [0 if size == 1 else step for size, step in zip(own, view.strides, strict=False)]
    return (0,) * (len(batch) - len(own)) + tuple(steps)


def _unfitting(view: View, name: str, side: str, rows: int, k: int, product: Product) -> LanewiseError:
    """Return the error for a scale whose shape is none of the forms."""
    blocks = -(-k // BLOCK)
    if side == "a":
        forms = f"({rows}, 1) for the rows of a"
        more = f" or ({rows}, {blocks}) for blocks of 1×128"
    else:
        forms = f"(1, {rows}) for the columns of b"
        more = f" or ({blocks}, {-(-rows // BLOCK)}) for blocks of 128×128"
    return LanewiseError(
        f"{name} has shape {view.shape}; it must be a number, or have shape {forms}"
        f"{more if 'block' in product.scales else ''}"
    )
