"""`lw.vectorized(pointer, width)`: memory counted in groups of elements that one load or store moves.

`p.load(8)` and `p.store(…)` do the same at one address and trust its alignment; here it must be known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lanewise.lang.memory.array import Array
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe

#: Bytes that one load or store moves at most.
_WIDEST = 16


class Vectors(Node):
    """Memory as groups of `width` elements: `v[i]` loads one as a tuple, `v[i] = values` stores one."""

    __slots__ = ("pointer", "width")
    CHILDREN = ("pointer",)

    def __init__(self, pointer: Pointer, width: int) -> None:
        self.pointer, self.width = pointer, width

    def ptr(self, index: object) -> Pointer:
        """Return the pointer to the first element of a group."""
        return self.pointer.moved(index, self.width * self.pointer.size)

    def __getitem__(self, index: object) -> tuple[Scalar, ...]:
        elements = self.ptr(index).load(self.width)
        return elements if isinstance(elements, tuple) else (elements,)

    def __setitem__(self, index: object, values: Iterable[object]) -> None:
        items = tuple(values) if isinstance(values, Iterable) else (values,)
        if len(items) != self.width:
            raise current().error(f"a group has {self.width} elements, and {len(items)} are stored")
        self.ptr(index).store(items)

    def __iter__(self) -> Any:
        raise current().error("the number of groups is not known: index them, v[i], in a loop")

    def __str__(self) -> str:
        return f"groups of {self.width} behind {self.pointer}"


def vectorized(pointer: object, width: int | None = None) -> Vectors:
    """Return memory that is counted in groups of `width` elements, by default of 16 bytes.

    The address must be known to be a multiple of a group's bytes: `x: lw.Ptr[lw.f16, 16]` says so. Inside a
    kernel: `x = lw.vectorized(X); x[i] = tuple(2 * each for each in x[i])`.
    """
    builder = current()
    if isinstance(pointer, Array):
        pointer = pointer.pointer
    if not isinstance(pointer, Pointer):
        raise builder.error(f"lw.vectorized takes a pointer first, not {describe(pointer)}")
    if width is None:
        width = _WIDEST // pointer.size
    if not isinstance(width, int) or width < 1 or width & (width - 1) or width * pointer.size > _WIDEST:
        most = _WIDEST // pointer.size
        raise builder.error(
            f"the width of lw.vectorized is a power of two of at most {most} elements, {_WIDEST} bytes; not "
            f"{width!r}"
        )
    group = width * pointer.size
    if pointer.align % group:
        raise builder.error(
            f"groups of {width} are {group} bytes, and {pointer} is known to be aligned to {pointer.align}: "
            f"annotate the parameter lw.Ptr[…, {group}], or promise it with .aligned({group})"
        )
    pointer.leave_layout()
    return Vectors(pointer, width)
