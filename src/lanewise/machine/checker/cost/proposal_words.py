"""Layouts as the source writes them: a declaration, an index expression, an argument of lw.shared."""

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
    return f"{array.element} {array.name}{''.join(f'[{extent}]' for extent in extents)}"


def can_be_written(array: SharedArray, swizzle: Swizzle) -> bool:
    """Return whether the source can swizzle an index of the array where it stands.

    In CUDA C++ an array of several extents is indexed by row and column: the columns have to be a power of
    two, the bits that change have to be those of a column, and the others those of the row.
    """
    if array.source != "cuda" or len(array.shape) == 1:
        return True
    columns = array.shape[-1]
    low = columns.bit_length() - 1
    over = swizzle.base + swizzle.shift - low
    if columns != 1 << low or swizzle.base + swizzle.bits > low or over < 0:
        return False
    return len(array.shape) == 2 or array.shape[-2] % (1 << (over + swizzle.bits)) == 0


def _swizzled_index(array: SharedArray, swizzle: Swizzle) -> str:
    """Return the expression by which an element is indexed."""
    names = ["i"] if len(array.shape) == 1 else [*"hgfedcba"[: len(array.shape) - 2], "i", "j"]
    low = (array.shape[-1].bit_length() - 1) if len(array.shape) > 1 else 0
    over = swizzle.base + swizzle.shift - low
    source = f"i >> {over}" if over else "i"
    moved = f"({source} & {(1 << swizzle.bits) - 1})"
    names[-1] += f" ^ ({moved} << {swizzle.base})" if swizzle.base else f" ^ {moved}"
    return f"{array.name}{''.join(f'[{name}]' for name in names)}"
