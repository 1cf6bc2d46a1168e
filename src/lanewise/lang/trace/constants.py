"""Python numbers as constants of a dtype: their PTX text, and the nearest number that a float dtype has.

`scalar.py` makes traced values of them.
"""

import struct
from typing import Any

from lanewise.formats import Format, f16, f32, f64
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.types import i32, is_float, pred


def constant_text(dtype: Format, value: Any) -> str:
    """Return a number as PTX writes it in a dtype.

    >>> constant_text(f32, 1.0), constant_text(i32, -3), constant_text(f16, 1.0)
    ('0f3F800000', '-3', '0x3C00')
    """
    if dtype is f32:
        return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"
    if dtype is f64:
        return f"0d{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dtype is f16:
        return f"0x{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if is_float(dtype):
        return f"0x{int(dtype.encode([value])[0]):04X}"
    return str(int(value))


def _nearest(number: float, dtype: Format) -> float:
    """Return the number of a float format that is nearest to another."""
    code = {f64: "<d", f32: "<f", f16: "<e"}.get(dtype)
    if code is None:
        return float(dtype.decode(dtype.encode([number]))[0])
    return float(struct.unpack(code, struct.pack(code, number))[0])


def float_constant(value: Any, dtype: Format) -> float:
    """Return a Python number as a float dtype holds it: floats are rounded, integers must be exact."""
    number = float(value)
    if isinstance(value, int) and number == value and abs(number) <= dtype.max:
        if _nearest(number, dtype) == number:
            return number
    elif isinstance(value, float) and (number != number or abs(number) == float("inf") or dtype is f64):
        return number
    elif isinstance(value, float) and abs(number) <= dtype.max:
        return _nearest(number, dtype)
    exact = "exactly " if isinstance(value, int) else ""
    raise current().error(f"{value} is not {exact}representable in {dtype.name} (up to {dtype.max})")


def default_dtype(value: object) -> Format:
    """Return the dtype of a Python number where nothing else decides: pred, i32 or f32."""
    if isinstance(value, bool):
        return pred
    return i32 if isinstance(value, int) else f32
