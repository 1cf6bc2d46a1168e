"""Shared memory of an attention kernel, as TMA writes it and as wgmma reads it: panels of swizzled rows."""

from __future__ import annotations

from lanewise import lang as lw
from lanewise.lang.memory.array import Array
from lanewise.layout import Layout
from lanewise.linalg.kernels.attention.traits import ROWS, Traits


def boxes(T: Traits, rows: int, stages: int, offset: int) -> Array:
    """Return tiles as TMA writes them: (1, 1, row, column of a panel, panel, stage)."""
    panel = rows * T.width
    shape = (1, 1, rows, T.width, T.panels, stages)
    strides = (panel, panel, T.width, 1, panel, rows * T.depth)
    return lw.dynamic_shared(T.dtype, Layout(shape, strides), swizzle=T.swizzle, offset=offset)


def along_depth(T: Traits, rows: int, stages: int, offset: int) -> Array:
    """Return queries or keys as wgmma reads them: (row, column, stage), neighbours along a head."""
    layout = Layout((rows, (T.width, T.panels), stages), (T.width, (1, rows * T.width), rows * T.depth))
    return lw.dynamic_shared(T.dtype, layout, swizzle=T.swizzle, offset=offset)


def along_keys(T: Traits) -> Array:
    """Return values as wgmma reads them: (column, key, stage), transposed."""
    keys = T.tile.keys
    shape, strides = (
        ((T.width, T.panels), keys, T.tile.stages),
        ((1, keys * T.width), T.width, keys * T.depth),
    )
    return lw.dynamic_shared(T.dtype, Layout(shape, strides), swizzle=T.swizzle, offset=T.values_offset)


def results(T: Traits) -> Array:
    """Return results as TMA reads them: (1, 1, row, column of a panel, panel, consumer)."""
    shape = (1, 1, ROWS, T.width, T.panels, T.tile.consumers)
    one = ROWS * T.width
    strides = (one, one, T.width, 1, T.queries * T.width, one)
    return lw.dynamic_shared(T.dtype, Layout(shape, strides), swizzle=T.swizzle, offset=T.results_offset)
