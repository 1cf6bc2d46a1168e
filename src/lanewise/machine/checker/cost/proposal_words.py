"""Layouts as the source writes them: a declaration, an index expression, an argument of lw.shared."""

from __future__ import annotations

from lanewise.layout import Swizzle
from lanewise.machine.checker.cost.shared_arrays import SharedArray

#: Rows of no more bytes are the distance of neighbouring lanes in an array of one dimension.
LONGEST_STRIDE = 16
_PLURALS = {"f32": "floats", "f64": "doubles", "s32": "ints", "u32": "words", "b32": "words"}


def words_for(array: SharedArray, stride: tuple[int, ...], swizzle: Swizzle | None) -> str:
    """Return how the source of an array writes it with other strides, or with a swizzle."""
    match array.source:
        case "python":
            return _python(array, stride, swizzle)
        case "cuda":
            return _cuda(array, stride, swizzle)
    if swizzle is not None:
        of = " of its byte offsets" if array.element_bytes == 1 else ""
        return f"Swizzle({swizzle.bits},{swizzle.base},{swizzle.shift}){of}"
    length = max(stride)
    kind = "row" if length * array.element_bytes > LONGEST_STRIDE + array.element_bytes else "stride"
    return f"a {kind} of {length} {_elements(array)}"


def _elements(array: SharedArray) -> str:
    if array.element_bytes == 1:
        return "bytes"
    return _PLURALS.get(array.element, f"elements of {array.element_bytes} bytes")


def _python(array: SharedArray, stride: tuple[int, ...], swizzle: Swizzle | None) -> str:
    if swizzle is not None:
        return f"swizzle=lw.Swizzle({swizzle.bits}, {swizzle.base}, {swizzle.shift}) for {array.name}"
    return f"lw.Layout({array.shape}, {stride}) for {array.name}"


def _cuda(array: SharedArray, stride: tuple[int, ...], swizzle: Swizzle | None) -> str:
    """Return a declaration with longer rows, or an index expression."""
    if swizzle is not None:
        return _swizzled_index(array, swizzle)
    if stride[0] == 1 < stride[-1]:  # an array of one dimension, seen as rows
        row, longer = array.shape[0], max(stride)
        by = f" * {longer - row}" if longer - row > 1 else ""
        elements = array.shape[1] * longer
        return f"{array.name}[i + i / {row}{by}] of {array.element} {array.name}[{elements}]"
    extents = [array.shape[0]]
    for number in range(1, len(stride)):
        extents.append(stride[number - 1] // stride[number])
    return f"{array.element} {array.name}{''.join(f'[{each}]' for each in extents)}"


def _swizzled_index(array: SharedArray, swizzle: Swizzle) -> str:
    """Return the expression by which an element is indexed, with the last two indices if they are enough."""
    bits, base, shift = swizzle.bits, swizzle.base, swizzle.shift
    mask = (1 << bits) - 1
    columns = array.shape[-1]
    low = columns.bit_length() - 1
    over = base + shift - low
    if (
        len(array.shape) > 1
        and columns == 1 << low
        and base + bits <= low
        and over >= 0
        and (len(array.shape) == 2 or array.shape[-2] % (1 << (over + bits)) == 0)
    ):
        names = [*"hgfe"[: len(array.shape) - 2], "i", "j"]
        row = f"(i >> {over} & {mask})" if over else f"(i & {mask})"
        names[-1] = f"j ^ ({row} << {base})" if base else f"j ^ {row}"
        return f"{array.name}{''.join(f'[{each}]' for each in names)}"
    moved = f"(i >> {base + shift} & {mask})"
    changed = f"i ^ ({moved} << {base})" if base else f"i ^ {moved}"
    of_all = "" if len(array.shape) == 1 else f" of {array.element}* {array.name}"
    return f"{array.name}[{changed}]{of_all}"
