"""Coordinates: natural ones (nested like the shape), linear ones, indices, and slices written with None.

Works on shapes and strides alone; Layout calls these.
"""

from __future__ import annotations

from lanewise.errors import LanewiseError
from lanewise.layout.basis import ScaledBasis
from lanewise.layout.int_tuple import (
    Coord,
    IntTuple,
    Nested,
    as_int,
    as_tuple,
    is_int,
    prefix_product,
    product,
    spell,
)


def idx2crd(idx: IntTuple, shape: IntTuple, stride: object = None) -> Nested:
    """The coordinate in shape of an index (column-major unless strides are given).

    >>> idx2crd(5, (2, (3, 2)))
    (1, (2, 0))
    """
    if stride is None:
        if isinstance(idx, tuple) and isinstance(shape, tuple) and len(idx) == len(shape):
            return tuple(idx2crd(i, s) for i, s in zip(idx, shape, strict=True))
        stride = prefix_product(shape)
    if isinstance(shape, tuple):
        if not isinstance(stride, tuple) or len(stride) != len(shape):
            raise LanewiseError(f"idx2crd: stride {spell(stride)} is not nested like shape {spell(shape)}")
        if not isinstance(idx, tuple):
            return tuple(idx2crd(idx, s, d) for s, d in zip(shape, stride, strict=True))
        if len(idx) != len(shape):
            raise LanewiseError(f"idx2crd: index {spell(idx)} does not fit shape {spell(shape)}")
        return tuple(idx2crd(i, s, d) for i, s, d in zip(idx, shape, stride, strict=True))
    if isinstance(idx, tuple) or isinstance(stride, tuple):
        raise LanewiseError(f"idx2crd: index {spell(idx)} with stride {spell(stride)} does not fit {shape}")
    idx, shape, stride = as_int(idx), as_int(shape), as_int(stride)
    if shape == 1:  # so that modes 1:0 do no harm
        return 0
    if shape < 1:
        raise LanewiseError(f"idx2crd: shape {shape} has no elements: every extent is at least 1")
    if stride == 0:
        raise LanewiseError(f"idx2crd: in {shape}:0 all coordinates share one index, so none follows from it")
    return idx // stride % shape


def crd2idx(crd: object, shape: IntTuple, stride: object = None) -> Nested:
    """The index of a coordinate: natural, linear or anything between; None counts as 0.

    A linear coordinate beyond the shape runs on along the last mode. Integer arrays are taken element by
    element.

    >>> crd2idx((1, 2), (4, 8), (8, 1)), crd2idx(9, (4, 8), (8, 1)), crd2idx((1, 5), (4, (2, 4)))
    (10, 10, 21)
    """
    if stride is None:
        return index_of(crd, shape, prefix_product(shape))
    return index_of(crd, *nested_alike(shape, stride))


def nested_alike(shape: object, stride: object) -> tuple[Nested, Nested]:
    """shape and stride in plain ints (strides also in basis steps), if one is nested like the other."""
    if isinstance(shape, tuple):
        if not isinstance(stride, tuple) or len(stride) != len(shape):
            raise LanewiseError(
                f"stride {spell(stride)} is not nested like shape {spell(shape)}: "
                f"give one stride for each mode{as_tuple(stride)}"
            )
        pairs = [nested_alike(s, d) for s, d in zip(shape, stride, strict=True)]
        return tuple(s for s, _ in pairs), tuple(d for _, d in pairs)
    if isinstance(stride, tuple):
        raise LanewiseError(f"stride {spell(stride)} is not nested like shape {spell(shape)}")
    if not is_int(shape):
        raise LanewiseError(f"shape {shape!r} is not an integer or a tuple of integers{as_tuple(shape)}")
    return as_int(shape), stride if isinstance(stride, ScaledBasis) else as_int(stride)


def index_of(crd: Nested, shape: Nested, stride: Nested) -> Nested:
    """crd2idx where shape and stride are known to be nested alike."""
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(crd) != len(shape):
            raise LanewiseError(
                f"coordinate {spell(crd)} does not fit shape {spell(shape)}: "
                "give one integer, or one entry for each mode"
            )
        total: Nested = 0
        for c, s, d in zip(crd, shape, stride, strict=True):
            total = total + index_of(c, s, d)
        return total
    if crd is None:
        crd = 0
    elif type(crd) is not int:
        crd = wide(crd)
    if isinstance(shape, tuple):
        if not shape:
            if not isinstance(crd, int) or crd != 0:
                raise LanewiseError(f"coordinate {crd} does not fit the empty shape (): only 0 does")
            return 0
        total = 0
        for s, d in zip(shape[:-1], stride[:-1], strict=True):
            n = product(s)
            total = total + index_of(crd % n, s, d)
            crd = crd // n
        return total + index_of(crd, shape[-1], stride[-1])
    return crd * stride


def wide(crd: Nested) -> Nested:
    """An integer, or an array of them, that will not overflow as NumPy's narrow ones do."""
    if getattr(crd, "ndim", 0) and getattr(getattr(crd, "dtype", None), "kind", "") in ("i", "u"):
        return crd.astype("int64")
    return as_int(crd)


def crd2crd(crd: IntTuple, dst_shape: IntTuple, src_shape: IntTuple | None = None) -> Nested:
    """A coordinate, nested like dst_shape; src_shape is needed where a tuple becomes one integer.

    >>> crd2crd(5, (2, 4)), crd2crd((1, 2), 8, (2, 4))
    ((1, 2), 5)
    """
    if isinstance(crd, tuple):
        if isinstance(dst_shape, tuple):
            if len(crd) != len(dst_shape):
                raise LanewiseError(f"coordinate {spell(crd)} does not fit shape {spell(dst_shape)}")
            sources = src_shape if isinstance(src_shape, tuple) else (src_shape,) * len(crd)
            if len(sources) != len(crd):
                raise LanewiseError(f"coordinate {spell(crd)} does not fit shape {spell(src_shape)}")
            return tuple(crd2crd(c, d, s) for c, d, s in zip(crd, dst_shape, sources, strict=True))
        if src_shape is None:
            raise LanewiseError(
                f"crd2crd: to make {spell(crd)} one integer, give the shape it is in as src_shape"
            )
        return crd2idx(crd, src_shape)
    if isinstance(dst_shape, tuple):
        return idx2crd(crd, dst_shape)
    crd, dst_shape = as_int(crd), as_int(dst_shape)
    if not 0 <= crd < dst_shape:
        raise LanewiseError(f"coordinate {crd} is outside shape {dst_shape}: 0 to {dst_shape - 1} are inside")
    return crd


def has_none(a: object) -> bool:
    """Whether None stands anywhere in a coordinate, which makes it a slice.

    >>> has_none((1, (None, 2))), has_none((1, 2))
    (True, False)
    """
    return any(map(has_none, a)) if isinstance(a, tuple) else a is None


def slice_(crd: Coord, trg: object) -> tuple[Nested, ...]:
    """What stands in trg where crd has None.

    >>> slice_((None, (0, None)), (4, (2, 3)))
    (4, 3)
    """
    return _pick("slice_", crd, trg, keep_none=True)


def dice(crd: Coord, trg: object) -> tuple[Nested, ...]:
    """What stands in trg where crd has no None: the rest of slice_.

    >>> dice((None, (0, None)), (4, (2, 3)))
    (2,)
    """
    return _pick("dice", crd, trg, keep_none=False)


def _pick(name: str, crd: Coord, trg: object, keep_none: bool) -> tuple[object, ...]:
    if isinstance(crd, tuple):
        if not isinstance(trg, tuple) or len(crd) != len(trg):
            raise LanewiseError(
                f"{name}: {spell(crd)} does not fit {spell(trg)}; give one entry for each mode"
            )
        return tuple(x for c, t in zip(crd, trg, strict=True) for x in _pick(name, c, t, keep_none))
    return (trg,) if (crd is None) == keep_none else ()
