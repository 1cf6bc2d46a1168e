"""Texture coordinates in compiled code: which texels a coordinate stands for, and with which weight."""

from __future__ import annotations

from lanewise.jit.simd import Value, f64, i64
from lanewise.machine.abi import AddressMode, TextureRow
from lanewise.machine.arithmetic.small_floats import is_nan
from lanewise.machine.codegen.function_code import FunctionCode, Record

#: Bits of fraction that a coordinate has for the linear filter.
FRACTION = 8
ONE = 1 << FRACTION


def texel_coordinate(code: FunctionCode, row: Record, axis: int, coordinate: Value) -> Value:
    """Return an f32 coordinate in texels, as a double: those that run from 0 to 1 are scaled."""
    size = row.get(TextureRow.size + 8 * axis).to(f64)
    wide = coordinate.to(f64)
    return row.get(TextureRow.normalized_coordinates).differs(0).select(wide * size, wide)


def fixed_point(code: FunctionCode, texels: Value) -> Value:
    """Return a coordinate as a number of 1/256 texels."""
    scaled = texels * float(ONE)
    limit = 2.0**40
    bounded = (scaled > limit).select(code.constant(f64, limit), scaled)
    bounded = (bounded < -limit).select(code.constant(f64, -limit), bounded)
    bounded = is_nan(bounded).select(code.constant(f64, 0.0), bounded)
    return code.intrinsic("floor", f64, [bounded + 0.5]).to(i64)


def floor(code: FunctionCode, texels: Value) -> Value:
    """Return the texel that a coordinate lies in."""
    limit = 2.0**40
    bounded = (texels > limit).select(code.constant(f64, limit), texels)
    bounded = (bounded < -limit).select(code.constant(f64, -limit), bounded)
    bounded = is_nan(bounded).select(code.constant(f64, 0.0), bounded)
    return code.intrinsic("floor", f64, [bounded]).to(i64)


def addressed(code: FunctionCode, row: Record, axis: int, index: Value) -> Value:
    """Return the texel that an address mode gives for an index along an axis; -1 beyond the border."""
    size = row.get(TextureRow.size + 8 * axis)
    mode = row.get(TextureRow.address_mode + 8 * axis)
    normalized = row.get(TextureRow.normalized_coordinates).differs(0)
    last = size - 1
    zero = code.constant(i64, 0)
    low = index.max(0)
    clamped = (low > last).select(last, low)
    outside = clamped.differs(index)
    found = code.variable(clamped)
    with code.when(outside & mode.equals(AddressMode.BORDER)):
        found.set(code.constant(i64, -1))
    with code.when(outside & normalized & mode.equals(AddressMode.WRAP)):
        found.set(_modulo(code, index, size))
    with code.when(outside & normalized & mode.equals(AddressMode.MIRROR)):
        within = _modulo(code, index, size + size)
        found.set((within > last).select(size + size - 1 - within, within))
    return (size.equals(0)).select(zero, found.get())


def _modulo(code: FunctionCode, value: Value, divisor: Value) -> Value:
    """Return the remainder that has the divisor's sign."""
    rest = Value(code, i64, code.builder.srem(value.handle, divisor.handle))
    return (rest < 0).select(rest + divisor, rest)
