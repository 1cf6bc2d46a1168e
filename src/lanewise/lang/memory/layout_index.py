"""Layouts and swizzles at traced coordinates: the index, or how far a coordinate leads, traced or not.

`index_of` gives the index that an array needs, `offsets` what a view adds to its addresses. A swizzle of a
traced index takes a few instructions, and none for what it leaves alone.
"""

from math import gcd
from typing import Any

from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import mul
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe, plain_number
from lanewise.lang.trace.types import i64, is_int
from lanewise.layout import ComposedLayout, Layout, ScaledBasis, Swizzle, flatten, product, size
from lanewise.layout.int_tuple import Nested, spell
from lanewise.records import record

#: Neighbours that no access moves at once.
_MOST_NEIGHBOURS = 1024


@record(frozen=True)
class Piece:
    """So many bytes, from where a pointer leads, are neighbours behind a swizzle of elements."""

    bytes: int
    swizzle: Swizzle
    element_bytes: int

    def whole(self, count: int) -> Swizzle:
        """Return a swizzle like this one that keeps `count` bytes together.

        >>> Piece(8, Swizzle(3, 2, 4), 2).whole(16)
        Swizzle(3,3,3)
        """
        swizzle = self.swizzle
        together = (-(-count // self.element_bytes) - 1).bit_length()
        shift = abs(swizzle.shift) + swizzle.base - together  # the rows that differ stay the same
        return Swizzle(swizzle.bits, together, max(shift, swizzle.bits))


def run_of(swizzle: Swizzle) -> int:
    """Return how many aligned neighbours stay neighbours behind a swizzle.

    >>> [run_of(swizzle) for swizzle in (Swizzle(3, 3, 3), Swizzle(2, 0, 3), Swizzle(2, 5, -3))]
    [8, 1, 32]
    """
    return 1 << swizzle.base


def piece_at(swizzle: Swizzle, index: int | None, extent: int, element_bytes: int) -> Piece | None:
    """Return what stays together from an index on, in an array of `extent` elements; None for all of it.

    An index of None, which is known when the kernel runs, may be anywhere where a piece begins.
    """
    lowest_source = swizzle.yyy_msk & -swizzle.yyy_msk
    if swizzle.bits == 0 or extent <= lowest_source:  # no index has a bit that moves others
        return None
    if index is None:
        return Piece(run_of(swizzle) * element_bytes, swizzle, element_bytes)
    first, count = swizzle(index), 1
    most = min(extent - index, _MOST_NEIGHBOURS)
    while count < most and swizzle(index + count) == first + count:
        count += 1
    return None if count >= most else Piece(count * element_bytes, swizzle, element_bytes)


def swizzled(swizzle: Swizzle, index: object) -> Any:
    """Return a swizzled index, traced or not.

    Whole periods in the constant addend pass by the swizzle, so that they stay a constant offset.
    """
    if not isinstance(index, Scalar):
        return swizzle(index)
    if swizzle.bits == 0:
        return index
    whole = 0
    if index.root is not None:
        whole = index.addend - index.addend % swizzle.size()
        index = index - whole
    source = index & swizzle.yyy_msk
    moved = source >> swizzle.shift if swizzle.shift > 0 else source << -swizzle.shift
    result = index ^ moved
    result.multiple = gcd(index.multiple, run_of(swizzle))
    return result + whole if whole else result


#: The extent of a mode whose extent only the running kernel knows.
UNKNOWN = 1 << 62

#: How far a coordinate leads along each mode of a tensor; the key () counts elements.
Offsets = dict[tuple[int, ...], Any]


def index_of(layout: Any, coordinate: Nested) -> Any:
    """Return layout(coordinate) for traced and Python integers.

    A swizzle leaves alone what is a multiple of its period, so that this stays a constant offset.
    """
    if isinstance(layout, ComposedLayout):
        inner = index_of(layout.layoutA, coordinate)
        if layout.offset != 0:
            inner = inner + layout.offset
        return (
            swizzled(layout.layoutB, inner)
            if isinstance(layout.layoutB, Swizzle)
            else index_of(layout.layoutB, inner)
        )
    return _index(coordinate, layout.shape, layout.stride)


def _index(crd: Nested, shape: Nested, stride: Nested) -> Any:
    """Return the sum of each coordinate times its stride; one integer counts over all modes of a shape."""
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(crd) != len(shape):
            raise current().error(
                f"{len(crd)} coordinates do not fit shape {shape}: give one for each mode, or one integer"
            )
        total: Any = 0
        for coordinate, extent, step in zip(crd, shape, stride, strict=True):
            total = total + _index(coordinate, extent, step)
        return total
    if isinstance(shape, tuple):
        if len(shape) == 1:
            return _index(crd, shape[0], stride[0])
        total = 0
        for extent, step in zip(shape[:-1], stride[:-1], strict=True):
            count = product(extent)
            digit, crd = crd % count, crd // count
            total = total + _index(digit, extent, step)
        return total + _index(crd, shape[-1], stride[-1])
    if isinstance(crd, Scalar):
        return mul(crd, stride)
    crd = plain_number(crd)
    if isinstance(crd, bool) or not isinstance(crd, int):
        raise current().error(f"a coordinate is an integer, not {describe(crd)}")
    if crd < 0:
        raise current().error(f"coordinate {crd} is negative: coordinates count from 0")
    if isinstance(shape, int) and crd >= shape:
        raise current().error(
            f"coordinate {crd} is beyond the extent {shape}: coordinates are 0 to {shape - 1}"
        )
    return crd * stride


def wide_sum(a: Any, b: Any) -> Any:
    """Return the sum of integers, in 64 bits if their dtypes differ; None and 0 cost no instruction."""
    if a is None or (not isinstance(a, Scalar) and a == 0):
        return b
    if b is None or (not isinstance(b, Scalar) and b == 0):
        return a
    if isinstance(a, Scalar) and isinstance(b, Scalar) and a.dtype != b.dtype:
        a, b = a.to(i64), b.to(i64)
    return a + b


def offsets(shape: object, stride: object, coordinate: object) -> Offsets:
    """Return how far a coordinate of shape:stride leads; None in it counts as 0."""
    total: Offsets = {}
    _add_offsets(total, shape, stride, coordinate)
    return total


def _add_offsets(total: Offsets, shape: Nested, stride: Nested, crd: Nested) -> None:
    """Add to `total` how far a coordinate leads, mode by mode."""
    if crd is None:
        return
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(shape) != len(crd):
            raise current().error(f"coordinate of {len(crd)} entries does not fit shape {shape_text(shape)}")
        for coordinate, extent, step in zip(crd, shape, stride, strict=True):
            _add_offsets(total, extent, step, coordinate)
        return
    traced = isinstance(crd, Scalar)
    if traced and not is_int(crd.dtype):
        raise current().error(f"a coordinate is an integer, not {describe(crd)}")
    if not traced and (isinstance(crd, bool) or not isinstance(crd, int)):
        raise current().error(f"a coordinate is an integer, traced or not, or None; not {describe(crd)}")
    if not traced and not 0 <= crd < product(shape):
        raise current().error(f"coordinate {crd} is outside {shape_text(shape)}")
    modes = list(zip(flatten(shape), flatten(stride), strict=True))
    while len(modes) > 1 and modes[-1][0] == 1:
        modes.pop()
    before = 1
    for number, (extent, step) in enumerate(modes):
        value, path = (step.value, step.modes) if isinstance(step, ScaledBasis) else (step, ())
        if value != 0 and extent > 1:
            digit = crd // before if before > 1 else crd
            if number < len(modes) - 1:
                digit = digit % extent
            total[path] = total.get(path, 0) + digit * value
        before *= extent


def static_offset(step: Any, rank: int) -> Any:
    """Return what a Layout gave for a coordinate as an integer, or, over `rank` modes, one for each."""
    if rank == 0:
        return int(step)
    if isinstance(step, ScaledBasis):
        step = step.as_tuple()
    entries = tuple(step) if isinstance(step, tuple) else ()
    return tuple(int(entry) for entry in entries) + (0,) * (rank - len(entries))


def index_bits(layout: Layout) -> int:
    """Return all bits that are set in some index of a layout of elements."""
    bits = 0
    for number in range(size(layout)):
        bits |= int(layout(number))
    return bits


def static_modes(layout: Layout) -> Layout:
    """Return the modes of a layout whose extents are known while tracing."""
    modes = [mode for mode in layout if UNKNOWN not in flatten((mode.shape,))]
    return Layout._of(tuple(mode.shape for mode in modes), tuple(mode.stride for mode in modes))


def shape_text(shape: object) -> str:
    """Return a shape for messages, with `?` for an extent that only the running kernel knows."""
    return str(spell(shape)).replace(str(UNKNOWN), "?")
