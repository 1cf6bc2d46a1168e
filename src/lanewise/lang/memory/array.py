"""Arrays of a kernel: shared, dynamic shared and local memory, and tensors, all indexed through layouts.

The index of an element is computed in `layout_index.py`; a slice of an array is a `View` of `view.py`.
`lw.vectorized(pointer, width)` counts memory in groups of elements that one load or store moves: `p.load(8)`
and `p.store(…)` do the same at one address and trust its alignment; here it must be known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.multiprocessor import MOST_SHARED_BYTES
from lanewise.lang.memory.layout_index import UNKNOWN, index_of, piece_at
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.memory.view import StridedAddresses, SwizzledAddresses, View
from lanewise.lang.trace.builder import Symbol, Variable, current, tracing
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import Ptr, dtype_name, pred, storage_bytes, written_as
from lanewise.layout import (
    ComposedLayout,
    Layout,
    ScaledBasis,
    Swizzle,
    flatten,
    is_layout,
    make_identity_layout,
    suffix_product,
)
from lanewise.layout.int_tuple import Nested
from lanewise.records import record
from lanewise.tracebacks import short_traceback

#: The alignment in bytes of a declared array: vector loads and ldmatrix need 16, WMMA 32.
_ALIGNMENT = 32


@record(frozen=True)
class ArrayType:
    """The annotation of a parameter that is an array: `lw.Array[lw.f16, (16, 16)]`, a layout or a shape."""

    pointer: Ptr
    layout: Any


class Strided:
    """Shape and stride with traced numbers among them: a layout that is known only when the kernel runs."""

    def __init__(self, shape: Nested, stride: Nested) -> None:
        self.shape, self.stride = shape, stride

    def __str__(self) -> str:
        return "with strides known when the kernel runs"


class Array(Node):
    """Elements behind a pointer, indexed by the coordinates of a layout: `a[row, col]`, `a.ptr(row, col)`.

    Coordinates may be traced or Python integers. A plain shape is laid out with its last mode running
    fastest, as in C and NumPy; give an `lw.Layout` for anything else.
    """

    __slots__ = ("layout", "pointer")
    CHILDREN = ("pointer",)
    INSTEAD: ClassVar = Node.INSTEAD | dict.fromkeys(
        ("reshape", "flatten", "ravel", "T", "transpose"),
        "lw.tensor(array.pointer, layout) is the same memory under another layout",
    )

    def __init__(self, pointer: Pointer, layout: Any) -> None:
        self.pointer, self.layout = pointer, layout

    @short_traceback
    def __class_getitem__(cls, what: object) -> ArrayType:
        """Return the type that an annotation names."""
        dtype, layout = what if isinstance(what, tuple) and len(what) == 2 else (what, None)
        if not isinstance(dtype, Format) or layout is None:
            raise LanewiseError("lw.Array[dtype, layout] takes a format and a layout or a shape")
        return ArrayType(Ptr(dtype, storage_bytes(dtype)), as_layout(layout))

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
        """The bytes from the first element to the end of the last."""
        return int(self.layout.cosize()) * storage_bytes(self.dtype)

    def named(self, name: str) -> None:
        """Give the variable in the PTX the Python name that the array is bound to."""
        self.pointer.name_variable(name)

    def index(self, *coordinates: Nested) -> Any:
        """Return the index of a coordinate, in elements, as the layout gives it."""
        crd = coordinates[0] if len(coordinates) == 1 else coordinates
        return index_of(self.layout, crd)

    def ptr(self, *coordinates: Nested) -> Pointer:
        """Return the pointer to an element; without coordinates, to the first."""
        if not coordinates:
            return self.pointer
        pointer: Pointer = self.pointer.at(self.index(*coordinates))
        layout = self.layout
        if not isinstance(layout, ComposedLayout) or not isinstance(layout.layoutB, Swizzle):
            return pointer
        index = None  # known when the kernel runs
        if not any(isinstance(coordinate, Scalar) for coordinate in flatten(coordinates)):
            crd = coordinates[0] if len(coordinates) == 1 else coordinates
            index = layout.offset + index_of(layout.layoutA, crd)
        extent = int(layout.layoutA.cosize()) + int(layout.offset)
        return pointer.within(piece_at(layout.layoutB, index, extent, pointer.size))

    def view(self, what: str) -> View:
        """Return the array as a view, which can be sliced and tiled; `what` names the function that asks."""
        layout = self.layout
        if isinstance(layout, Strided):
            shape, stride = integer_entries(layout.shape), integer_entries(layout.stride)
            extents = tuple(UNKNOWN if isinstance(extent, Scalar) else extent for extent in shape)
            addresses = StridedAddresses(self.pointer, stride, shape, (0,) * len(shape))
            return View(addresses, make_identity_layout(extents))
        swizzle, offset = None, 0
        if isinstance(layout, ComposedLayout):
            if not isinstance(layout.layoutB, Swizzle) or not isinstance(layout.layoutA, Layout):
                raise current().error(f"{what} takes a layout, or a swizzle after one; not {layout}")
            swizzle, offset, layout = layout.layoutB, layout.offset, layout.layoutA
            if swizzle.bits == 0:
                swizzle = None
        if any(isinstance(step, ScaledBasis) for step in flatten((layout.stride,))):
            raise current().error(f"{what}: {layout} leads to coordinates, not to elements")
        return View(SwizzledAddresses(self.pointer, swizzle, static=offset), layout)

    def __getitem__(self, coordinate: Nested) -> Any:
        """Load an element; with None or `:` in the coordinate, return the slice as a view."""
        if any(part is None or isinstance(part, slice) for part in flatten((coordinate,))):
            return self.view("a slice")[coordinate]
        return self.ptr(coordinate).load()

    def __setitem__(self, coordinate: Nested, value: object) -> None:
        self.ptr(coordinate).store(value)

    def __iter__(self) -> Any:
        raise current().error("an array is not iterated over: index it in a loop")

    def __str__(self) -> str:
        return f"an array of {dtype_name(self.dtype)} in {self.space} memory, {self.layout}"


def _error(message: str) -> LanewiseError:
    """Return an error, with the line being traced; an annotation, outside of a kernel, has none."""
    return current().error(message) if tracing() else LanewiseError(message)


def as_layout(layout: Any, swizzle: Swizzle | None = None) -> Any:
    """Return a layout made of a layout or a shape (last mode fastest), with a swizzle after it."""
    if not is_layout(layout):
        shape = (layout,) if isinstance(layout, int | Scalar) else layout
        if isinstance(shape, list):
            shape = tuple(shape)
        if not isinstance(shape, tuple):
            raise _error(f"a shape is an integer or a tuple of them, or an lw.Layout; not {layout!r}")
        for extent in shape:
            if isinstance(extent, Scalar):
                raise _error(
                    "the shape of an array has to be known while the kernel is traced, and "
                    f"{describe(extent)} is not: take a number, or a parameter that is an lw.Constexpr"
                )
        try:
            layout = Layout(shape, suffix_product(shape))
        except ValueError as error:
            raise _error(str(error)) from None
    if swizzle is not None:
        if not isinstance(swizzle, Swizzle):
            raise _error(f"swizzle= takes lw.Swizzle(bits, base, shift), not {swizzle!r}")
        layout = ComposedLayout(swizzle, 0, layout)
    return layout


def integer_entries(what: object) -> tuple[Any, ...]:
    """Return a shape or a stride as a tuple; an error unless its entries are integers, traced or not."""
    entries = what if isinstance(what, tuple) else (what,)
    for entry in entries:
        if not isinstance(entry, Scalar) and (isinstance(entry, bool) or not isinstance(entry, int)):
            raise current().error(f"shapes and strides are integers, traced or not; not {describe(entry)}")
    return entries


def _bytes_of(dtype: Format, layout: Any) -> int:
    """Return the bytes that an array takes: a swizzled one whole periods of the swizzle."""
    if isinstance(layout, ComposedLayout) and isinstance(layout.layoutB, Swizzle):
        period = layout.layoutB.size()
        elements = -(-int(layout.layoutA.cosize()) // period) * period
    else:
        elements = int(layout.cosize())
    return elements * storage_bytes(dtype)


def _no_truth_values(space: str) -> LanewiseError:
    """Return the error that predicates have no place in memory."""
    return current().error(f"lw.{space} holds no truth values: take lw.u8, store x.to(lw.u8), compare with 0")


def _declare(space: str, dtype: Format, layout: object, swizzle: Swizzle | None, align: int) -> Array:
    """Declare a variable in a state space and return it as an array."""
    builder = current()
    if not isinstance(dtype, Format):
        raise builder.error(
            f"lw.{space} takes a dtype such as lw.f16 first, and then a shape; not {dtype!r}"
            f"{written_as(dtype)}"
        )
    laid = as_layout(layout, swizzle)
    if dtype is pred:
        raise _no_truth_values(space)
    least = storage_bytes(dtype)
    size = _bytes_of(dtype, laid)
    if swizzle is not None:
        align = align or max(_ALIGNMENT, min(1024, swizzle.size() * least))
    align = align or _ALIGNMENT
    if align & (align - 1) or align < least:
        raise builder.error(f"an alignment is a power of two of at least {least} bytes, not {align}")
    earlier = sum(variable.size or 0 for variable in builder.variables if variable.space == "shared")
    if space == "shared" and size + earlier > MOST_SHARED_BYTES:
        raise builder.error(
            f"this array takes {size:,} bytes of shared memory, and those before it {earlier:,}: no GPU has "
            f"more than {MOST_SHARED_BYTES:,}"
        )
    symbol = Symbol(space)
    builder.variables.append(Variable(space, symbol, size, align))
    return Array(Pointer(dtype, space, symbol, 0, align), laid)


def shared(dtype: Format, layout: object, *, swizzle: Swizzle | None = None, align: int = 0) -> Array:
    """Declare an array in the block's shared memory; `layout` is a shape or an `lw.Layout`.

    Inside a kernel: `As = lw.shared(lw.f16, (64, 64), swizzle=lw.Swizzle(3, 3, 3))`.
    """
    return _declare("shared", dtype, layout, swizzle, align)


def local(dtype: Format, layout: object, *, align: int = 0) -> Array:
    """Declare an array of this thread's own, for indices known only when the kernel runs; else use a list."""
    return _declare("local", dtype, layout, None, align)


def dynamic_shared(
    dtype: Format, layout: object, *, swizzle: Swizzle | None = None, offset: int = 0
) -> Array:
    """Return an array in the shared memory whose size the launch gives: `kernel[grid, block, bytes]`.

    All such arrays begin at the same address; `offset` counts bytes from there. A launch that gives no bytes,
    `kernel[grid, block]`, has as many as the arrays take.
    """
    builder = current()
    if not isinstance(dtype, Format):
        raise builder.error(
            f"lw.dynamic_shared takes a dtype such as lw.f16 first, not {dtype!r}{written_as(dtype)}"
        )
    variable = next(
        (variable for variable in builder.variables if variable.space == "shared" and variable.size is None),
        None,
    )
    if variable is None:
        variable = Variable("shared", Symbol("dynamic_shared"), None, 1024)
        builder.variables.append(variable)
    if dtype is pred:
        raise _no_truth_values("dynamic_shared")
    if not isinstance(offset, int) or offset < 0 or offset % storage_bytes(dtype):
        raise builder.error(f"offset= counts bytes, a multiple of {storage_bytes(dtype)}, not {offset!r}")
    base = Pointer(dtype, "shared", variable.symbol, 0, variable.align)
    laid = as_layout(layout, swizzle)
    builder.dynamic_shared_bytes = max(builder.dynamic_shared_bytes, offset + _bytes_of(dtype, laid))
    return Array(base.moved(offset, 1), laid)


def tensor(pointer: Any, layout: Any, *, swizzle: Swizzle | None = None) -> Array:
    """Return a pointer, or the memory of an array, seen through a layout, or through (shape, stride)."""
    if isinstance(pointer, Array):
        pointer = pointer.pointer
    if not isinstance(pointer, Pointer):
        raise current().error(f"lw.tensor takes a pointer first, not {describe(pointer)}")
    pointer.leave_layout()
    if isinstance(layout, tuple) and len(layout) == 2 and isinstance(layout[1], tuple):
        return Array(pointer, Strided(*layout))
    return Array(pointer, as_layout(layout, swizzle))


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
