"""Arrays of a kernel: shared, dynamic shared and local memory, and tensors, all indexed through layouts."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.lang.arithmetic import add, mul, xor
from lanewise.lang.builder import Symbol, Variable, current, tracing
from lanewise.lang.memory import Pointer
from lanewise.lang.trees import Node
from lanewise.lang.types import Ptr, storage_bytes
from lanewise.lang.values import Scalar, describe, plain_number, public
from lanewise.layout import ComposedLayout, Layout, Swizzle, flatten, is_layout, product, suffix_product

_MOST_SHARED = 227 * 1024
#: Bytes: vector loads and ldmatrix ask for 16, WMMA for 32.
_ALIGN = 32


@dataclass(frozen=True)
class ArrayType:
    """The annotation of a parameter that is an array: `lw.Array[lw.f16, (16, 16)]`, a layout or a shape."""

    pointer: Ptr
    layout: Any


class Array(Node):
    """Elements behind a pointer, indexed by the coordinates of a layout: `a[row, col]`, `a.ptr(row, col)`.

    Coordinates may be traced or Python integers. A plain shape is laid out with its last mode running
    fastest, as in C and NumPy; give an `lw.Layout` for anything else.
    """

    __slots__ = ("layout", "pointer")

    def __init__(self, pointer: Pointer, layout: Any) -> None:
        self.pointer, self.layout = pointer, layout

    def __class_getitem__(cls, what: Any) -> ArrayType:
        dtype, layout = what if isinstance(what, tuple) and len(what) == 2 else (what, None)
        if not isinstance(dtype, Format) or layout is None:
            raise LanewiseError("lw.Array[dtype, layout] takes a format and a layout or a shape")
        return ArrayType(Ptr(dtype, storage_bytes(dtype)), as_layout(layout))

    def parts(self) -> list[Any]:
        return [self.pointer]

    def with_parts(self, parts: list[Any], fresh: bool = False) -> Array:
        return Array(parts[0], self.layout)

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, Array) and self.layout == other.layout

    @property
    def dtype(self) -> Format:
        """The dtype of the elements."""
        return self.pointer.dtype

    @property
    def shape(self) -> Any:
        """The shape of the coordinates."""
        return self.layout.shape

    @property
    def space(self) -> str:
        """The state space: shared, local, global."""
        return self.pointer.space

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last."""
        return int(self.layout.cosize()) * storage_bytes(self.dtype)

    def named(self, name: str) -> None:
        """Let the variable in the PTX have a Python name."""
        base = self.pointer.base
        if isinstance(base, Symbol) and base.hint in ("shared", "local", "dynamic"):
            base.hint = name

    def index(self, *coordinates: Any) -> Any:
        """The index of a coordinate: what the layout says, in elements."""
        crd = coordinates[0] if len(coordinates) == 1 else coordinates
        return index_of(self.layout, crd)

    def ptr(self, *coordinates: Any) -> Pointer:
        """The pointer to an element; without coordinates, to the first."""
        return self.pointer + self.index(*coordinates) if coordinates else self.pointer

    def __getitem__(self, coordinate: Any) -> Any:
        """The element; with None or `:` in the coordinate, the slice as a tensor."""
        if any(each is None or isinstance(each, slice) for each in flatten((coordinate,))):
            from lanewise.lang.tiles import view

            return view(self, "a slice")[coordinate]
        return self.ptr(coordinate).load()

    def __setitem__(self, coordinate: Any, value: Any) -> None:
        self.ptr(coordinate).store(value)

    def __iter__(self) -> Any:
        raise current().error("an array is not iterated over: index it in a loop")

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"an array of {public(self.dtype)} in {self.space} memory, {self.layout}"


def _wrong(message: str) -> LanewiseError:
    """An error at the line that is traced; outside of a kernel, in an annotation, without one."""
    return current().error(message) if tracing() else LanewiseError(message)


def as_layout(layout: Any, swizzle: Swizzle | None = None) -> Any:
    """A layout out of a layout or a shape (last mode fastest), with a swizzle after it."""
    if not is_layout(layout):
        shape = (layout,) if isinstance(layout, int) else layout
        if isinstance(shape, list):
            shape = tuple(shape)
        if not isinstance(shape, tuple):
            raise _wrong(f"a shape is an integer or a tuple of them, or an lw.Layout; not {layout!r}")
        try:
            layout = Layout(shape, suffix_product(shape))
        except ValueError as error:
            raise _wrong(str(error)) from None
    if swizzle is not None:
        if not isinstance(swizzle, Swizzle):
            raise _wrong(f"swizzle= takes lw.Swizzle(bits, base, shift), not {swizzle!r}")
        layout = ComposedLayout(swizzle, 0, layout)
    return layout


def index_of(layout: Any, coordinate: Any) -> Any:
    """layout(coordinate) for traced and Python integers.

    A swizzle leaves alone what is a multiple of its period, so that this stays a constant offset.
    """
    if isinstance(layout, ComposedLayout):
        inner = index_of(layout.layoutA, coordinate)
        if layout.offset != 0:
            inner = _plus(inner, layout.offset)
        return (
            swizzled(layout.layoutB, inner)
            if isinstance(layout.layoutB, Swizzle)
            else index_of(layout.layoutB, inner)
        )
    return _index(coordinate, layout.shape, layout.stride)


def swizzled(swizzle: Swizzle, index: Any) -> Any:
    """A swizzle applied to an index."""
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
    found = xor(index, moved)
    unit = 1 << min(swizzle.base, swizzle.base + swizzle.shift)
    found.multiple = gcd(index.multiple, unit)
    return found + whole if whole else found


def _plus(a: Any, b: Any) -> Any:
    return add(a, b) if isinstance(a, Scalar) or isinstance(b, Scalar) else a + b


def _index(crd: Any, shape: Any, stride: Any) -> Any:
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(crd) != len(shape):
            raise current().error(
                f"{len(crd)} coordinates do not fit shape {shape}: give one for each mode, or one integer"
            )
        total: Any = 0
        for each, size, step in zip(crd, shape, stride, strict=True):
            total = _plus(total, _index(each, size, step))
        return total
    if isinstance(shape, tuple):
        if len(shape) == 1:
            return _index(crd, shape[0], stride[0])
        total = 0
        for size, step in zip(shape[:-1], stride[:-1], strict=True):
            count = product(size)
            digit, crd = crd % count, crd // count
            total = _plus(total, _index(digit, size, step))
        return _plus(total, _index(crd, shape[-1], stride[-1]))
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


def _declared(space: str, dtype: Format, layout: Any, swizzle: Swizzle | None, align: int) -> Array:
    builder = current()
    if not isinstance(dtype, Format):
        raise builder.error(f"lw.{space} takes a dtype such as lw.f16 first, not {dtype!r}")
    laid = as_layout(layout, swizzle)
    least = storage_bytes(dtype)
    size = int(laid.cosize()) * least
    if swizzle is not None:
        period = swizzle.size()
        size = -(-int(laid.layoutA.cosize()) // period) * period * least
        align = align or max(_ALIGN, min(1024, period * least))
    align = align or _ALIGN
    if align & (align - 1) or align < least:
        raise builder.error(f"an alignment is a power of two of at least {least} bytes, not {align}")
    taken = sum(each.size or 0 for each in builder.variables if each.space == "shared")
    if space == "shared" and size + taken > _MOST_SHARED:
        raise builder.error(f"{size} bytes of shared memory after {taken}: no GPU has over {_MOST_SHARED}")
    symbol = Symbol(space)
    builder.variables.append(Variable(space, symbol, size, align))
    return Array(Pointer(dtype, space, symbol, 0, align), laid)


def shared(dtype: Format, layout: Any, *, swizzle: Swizzle | None = None, align: int = 0) -> Array:
    """An array in the block's shared memory; `layout` is a shape or an `lw.Layout`.

    Inside a kernel: `As = lw.shared(lw.f16, (64, 64), swizzle=lw.Swizzle(3, 3, 3))`.
    """
    return _declared("shared", dtype, layout, swizzle, align)


def local(dtype: Format, layout: Any, *, align: int = 0) -> Array:
    """An array of this thread's own, for indices known only when the kernel runs; else use a list."""
    return _declared("local", dtype, layout, None, align)


def dynamic_shared(dtype: Format, layout: Any, *, swizzle: Swizzle | None = None, offset: int = 0) -> Array:
    """An array in the shared memory whose size the launch gives: `kernel[grid, block, bytes]`.

    All of them begin at the same place; `offset` counts bytes from there.
    """
    builder = current()
    if not isinstance(dtype, Format):
        raise builder.error(f"lw.dynamic_shared takes a dtype such as lw.f16 first, not {dtype!r}")
    found = next((each for each in builder.variables if each.space == "shared" and each.size is None), None)
    if found is None:
        found = Variable("shared", Symbol("dynamic_shared"), None, 1024)
        builder.variables.append(found)
    if not isinstance(offset, int) or offset < 0 or offset % storage_bytes(dtype):
        raise builder.error(f"offset= counts bytes, a multiple of {storage_bytes(dtype)}, not {offset!r}")
    base = Pointer(dtype, "shared", found.symbol, 0, found.align)
    return Array(base.moved(offset, 1), as_layout(layout, swizzle))


def tensor(pointer: Any, layout: Any, *, swizzle: Swizzle | None = None) -> Array:
    """A pointer, or the memory of an array, seen through a layout, or through (shape, stride)."""
    if isinstance(pointer, Array):
        pointer = pointer.pointer
    if not isinstance(pointer, Pointer):
        raise current().error(f"lw.tensor takes a pointer first, not {describe(pointer)}")
    if isinstance(layout, tuple) and len(layout) == 2 and isinstance(layout[1], tuple):
        return Array(pointer, Strided(*layout))
    return Array(pointer, as_layout(layout, swizzle))


class Strided:
    """Shape and stride with traced numbers among them: what a Layout is, known only when the kernel runs."""

    def __init__(self, shape: Any, stride: Any) -> None:
        self.shape, self.stride = shape, stride

    def __str__(self) -> str:
        return "with strides known when the kernel runs"
