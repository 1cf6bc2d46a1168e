"""Scales of A and B: a number, one for each row of A or column of B, for each block of 128, or those of a
block-scaled format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32
from lanewise.linalg.block_scaling import SWIZZLED, BlockFormat, SwizzledScales, block_format_of
from lanewise.linalg.operands import View, batch_strides, view_of
from lanewise.linalg.types import BLOCK, Product, number_of


@dataclass(frozen=True)
class Scale:
    """A scale in its form: None, "tensor", "row", "block" or "factors". A plain number is part of alpha."""

    form: str | None = None
    view: View | None = None
    #: Strides in elements: (batch), row of A or column of B (or block of columns), block of K.
    strides: tuple[int, int, int] = (0, 0, 0)
    #: Strides along the axes of the batch.
    batch: tuple[int, ...] = ()
    number: float = 1.0
    #: Of form "factors", one for each row (or column of B) and some elements of K: the block-scaled format,
    #: and whether they are in NVIDIA's 128×4 order.
    block_format: BlockFormat | None = None
    swizzled: bool = False


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
        return Scale(number=number_of(given, name))
    if isinstance(given, SwizzledScales):
        return _swizzled(given, name, rows, k, a)
    view = view_of(given, name)
    if view.format != f32:
        return _factors(view, name, side, batch, rows, k, a)
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


def _factors(view: View, name: str, side: str, batch: tuple[int, ...], rows: int, k: int, a: View) -> Scale:
    """Return the scale factors of a block-scaled format; an error if there is no such format, or shape."""
    fmt = _block_format(view, name, a)
    row, block = (-2, -1) if side == "a" else (-1, -2)
    wanted = (rows, -(-k // fmt.block))
    if len(view.shape) < 2 or (view.shape[row], view.shape[block]) != wanted:
        shape = wanted if side == "a" else wanted[::-1]
        hint = f": pass {name}.T" if view.shape[-2:] == shape[::-1] and shape[0] != shape[1] else ""
        raise LanewiseError(
            f"{name} has shape {view.shape}; {fmt.name} has a factor for each {fmt.block} elements of K, "
            f"{'(M, K/' if side == 'a' else '(K/'}{fmt.block}{')' if side == 'a' else ', N)'}, which is "
            f"{shape}{hint}"
        )
    strides = (0, view.strides[row], view.strides[block])
    if view.device is not None and min(strides) < 0:
        raise LanewiseError(f"{name} runs backwards through memory: pass a contiguous copy of it")
    return Scale("factors", view, strides, _batch(view, batch, name), block_format=fmt)


def _swizzled(given: SwizzledScales, name: str, rows: int, k: int, a: View) -> Scale:
    """Return scale factors in NVIDIA's order."""
    view = view_of(given.array, name)
    fmt = _block_format(view, name, a)
    length = 1
    for size, step in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size > 1 and step != length:
            raise LanewiseError(f"{name} is not contiguous, as scales in 128×4 order must be: pass a copy")
        length *= size
    if view.device is not None and view.address % 16:
        raise LanewiseError(f"{name} lies at an address that is not a multiple of 16 bytes: pass a copy")
    wanted = (rows, -(-k // fmt.block))
    if (given.rows, given.factors) != wanted:
        raise LanewiseError(
            f"{name} are scales of {given.rows} rows, {given.factors} each; {fmt.name} with a K of {k} has "
            f"{wanted[0]} rows, {wanted[1]} each"
        )
    return Scale("factors", view, (0, *SWIZZLED), block_format=fmt, swizzled=True)


def _block_format(view: View, name: str, a: View) -> BlockFormat:
    """Return the block-scaled format that scales belong to; an error if a's elements have no such format."""
    fmt = block_format_of(a.format, view.format.dtype_name)
    if fmt is None:
        forms = {
            "e2m1": "float8_e8m0fnu (mxfp4) or float8_e4m3fn (nvfp4)",
            "s8": "float32",
        }.get(a.format.name, "float32, or float8_e8m0fnu for blocks of 32 (mxfp8)")
        raise LanewiseError(
            f"{name} has elements of type {view.format.dtype_name}; scales of {a.format.dtype_name} must be "
            f"{forms}"
        )
    return fmt


def matching_factors(a: Scale, b: Scale, element: Format) -> str:
    """Return the block-scaled format of a product, "" if it has none; an error if one of both lacks it."""
    named = [scale.block_format for scale in (a, b)]
    if named == [None, None]:
        if element.name == "e2m1":
            raise LanewiseError(
                "products of float4_e2m1fn are block-scaled: pass scale_a and scale_b, of float8_e8m0fnu for "
                "each 32 elements of K (mxfp4), or of float8_e4m3fn for each 16 (nvfp4)"
            )
        return ""
    if named[0] is None or named[1] is None:
        there, missing = ("a", "b") if named[1] is None else ("b", "a")
        fmt = named[0] or named[1]
        assert fmt is not None
        raise LanewiseError(
            f"scale_{there} has factors of {fmt.name}; scale_{missing} must have them, too: one for each "
            f"{fmt.block} elements of K"
        )
    if named[0] != named[1]:
        raise LanewiseError(
            f"scale_a has factors of {named[0].name} and scale_b of {named[1].name}; both must have the same"
        )
    return named[0].name


def _batch(view: View, batch: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return a scale's strides along the axes of the batch."""
    try:
        fits = np.broadcast_shapes(view.shape[:-2], batch) == batch
    except ValueError:
        fits = False
    if not fits:
        raise LanewiseError(
            f"{name} has shape {view.shape}; its first axes do not broadcast to the batch {batch}"
        )
    return batch_strides(view, batch)


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
