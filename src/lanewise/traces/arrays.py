"""Arrays that a traced kernel touched: its arguments in global memory, its variables in shared memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import Format, format_of
from lanewise.hints import nearest
from lanewise.layout import Layout, product, size, suffix_product
from lanewise.machine import abi
from lanewise.machine.program.operands import MemoryOperand, ResolvedOperand, Symbol, elements_of
from lanewise.machine.program.ops import Program
from lanewise.numpy_types import AnyArray, AnyDtype
from lanewise.ptx import Entry
from lanewise.ptx.arguments import own_name
from lanewise.ptx.cuda_types import (
    aliased_type,
    computed_number,
    cuda_type,
    declared_parameters,
    declared_shared,
)
from lanewise.ptx.model.names import demangle
from lanewise.ptx.model.source_names import SourceNames
from lanewise.ptx.tensor_maps import TensorMap


class ElementAddress(NamedTuple):
    """Where an element lies: its generic address and its bytes."""

    address: int
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class ArgumentArray:
    """An array among the arguments of a launch, and its device address."""

    name: str
    address: int
    array: AnyArray
    #: What it held before the launch, if the launch has changed it.
    before: AnyArray | None = None

    @property
    def initial(self) -> AnyArray:
        """What the array held before the launch."""
        return self.array if self.before is None else self.before

    @property
    def order(self) -> Any:
        """The order of its elements in memory, as NumPy calls it."""
        return "C" if self.array.flags.c_contiguous else "F"

    def element(self, index: tuple[int, ...]) -> ElementAddress:
        """Return where an element lies; an error if the array has no such element."""
        shape = self.array.shape
        fits = len(index) == len(shape) and all(0 <= i < n for i, n in zip(index, shape, strict=True))
        if not fits:
            raise LanewiseError(f"{self.name} has the shape {shape}; there is no element {list(index)}")
        offset = sum(i * stride for i, stride in zip(index, self.array.strides, strict=True))
        return ElementAddress(self.address + offset, self.array.itemsize)

    def index_at(self, address: int) -> tuple[int, ...] | None:
        """Return the index of the element at an address; None if it lies outside."""
        offset = address - self.address
        if not 0 <= offset < self.array.nbytes:
            return None
        index = np.unravel_index(offset // self.array.itemsize, self.array.shape, self.order)
        return tuple(int(coordinate) for coordinate in index)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.array.dtype}{list(self.array.shape)}>"


def bytes_of(array: AnyArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array in the order in which they lie in memory; of a contiguous one, a view."""
    return array.ravel(order="K").view(np.uint8)


def with_contents_before(arguments: list[ArgumentArray], before: list[AnyArray]) -> list[ArgumentArray]:
    """Return the arrays of a launch that has run, with copies of those that it has changed."""
    return [
        argument
        if np.array_equal(bytes_of(argument.array), bytes_of(copy))
        else replace(argument, before=copy)
        for argument, copy in zip(arguments, before, strict=True)
    ]


def argument_arrays(
    entry: Entry, values: tuple[object, ...], addresses: dict[int, int]
) -> list[ArgumentArray]:
    """Return the arrays among the arguments, under the names of their parameters, or as arg0, arg1, …."""
    names = [own_name(parameter) for parameter in entry.parameters]
    cuda = entry.module.cuda
    if cuda is not None and not any(names):
        own = entry.demangled.split("(")[0].split("<")[0].split()[-1].split("::")[-1]
        declared = declared_parameters(cuda.text, own)
        if declared is not None and len(declared) == len(names):
            names = [parameter.name for parameter in declared]
    # Of a tensor map, it is the array that the map describes.
    arrays = [value.array if isinstance(value, TensorMap) else value for value in values]
    return [
        ArgumentArray(name or f"arg{number}", addresses[id(value)], value)
        for number, (name, value) in enumerate(zip(names, arrays, strict=False))
        if isinstance(value, np.ndarray) and id(value) in addresses
    ]


@dataclass(frozen=True, eq=False)
class SharedArray:
    """An array in shared memory: its offset in bytes, its elements, and the layout that leads to them."""

    name: str
    offset: int
    #: The format of its elements, or a NumPy dtype that is no format of the catalogue.
    elements: Format | AnyDtype
    layout: Any

    @property
    def dtype(self) -> AnyDtype:
        """The NumPy dtype of the elements."""
        return self.elements.dtype if isinstance(self.elements, Format) else self.elements

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array: the sizes of the layout's modes."""
        shape = self.layout.shape
        return tuple(size(mode) for mode in shape) if isinstance(shape, tuple) else (shape,)

    @cached_property
    def indices(self) -> npt.NDArray[np.int64]:
        """For each element: how many elements after the first it lies, swizzled as the layout says."""
        return np.asarray(self.layout(*np.indices(self.shape)), np.int64)

    @property
    def element_bytes(self) -> int:
        """The bytes of an element in memory."""
        return word_bytes(self.elements)

    def values(self, memory: npt.NDArray[np.uint8]) -> AnyArray:
        """Return the elements out of a block's shared memory."""
        start = self.offset + self.indices.ravel() * self.element_bytes
        raw = memory[start[:, None] + np.arange(self.element_bytes)]
        if not isinstance(self.elements, Format):
            return np.ascontiguousarray(raw).view(self.elements).reshape(self.shape)
        words = np.ascontiguousarray(raw).view(f"uint{8 * self.element_bytes}").reshape(self.shape)
        return self.elements.from_bits(words)

    def element(self, index: tuple[int, ...]) -> ElementAddress:
        """Return where an element lies; an error if the array has no such element."""
        shape = self.shape
        if len(index) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
            raise LanewiseError(f"{self.name} has the shape {shape}; there is no element {list(index)}")
        offset = self.offset + int(self.indices[index]) * self.element_bytes
        return ElementAddress(abi.SHARED_WINDOW + offset, self.element_bytes)

    @cached_property
    def _by_index(self) -> npt.NDArray[np.int64]:
        """Which element, counted in row-major order, lies so many elements after the first; -1: none."""
        positions = np.full(int(self.indices.max(initial=-1)) + 1, -1, np.int64)
        positions[self.indices.ravel()] = np.arange(self.indices.size)
        return positions

    def index_at(self, offset: int) -> tuple[int, ...] | None:
        """Return the coordinates of the element at an offset in shared memory; None if it lies outside."""
        if offset < self.offset:
            return None
        place = (offset - self.offset) // self.element_bytes
        number = int(self._by_index[place]) if place < len(self._by_index) else -1
        if number < 0:
            return None
        return tuple(int(coordinate) for coordinate in np.unravel_index(number, self.shape))


def word_bytes(elements: Format | AnyDtype) -> int:
    """Return the bytes that an element takes in memory."""
    return elements.word_bits // 8 if isinstance(elements, Format) else elements.itemsize


def type_name(elements: Format | AnyDtype) -> str:
    """Return the name of a type of elements, as messages have it."""
    return elements.name


def _elements(dtype: Any) -> Format | AnyDtype:
    """Return what a user names as dtype: a format of the catalogue, or any NumPy dtype of plain numbers."""
    try:
        return format_of(dtype)
    except LanewiseError as error:
        try:
            numpy_type: AnyDtype = np.dtype(dtype)
        except TypeError:
            raise error from None
        if numpy_type.kind not in "iufbc":
            raise error from None
        return numpy_type


class SharedArrays:
    """The variables of a kernel in shared memory, and the arrays that its source declares in them."""

    def __init__(self, program: Program, names: SourceNames | None) -> None:
        self.variables = dict(_shared_variables(program))
        self.declared: dict[str, SharedArray] = {}
        for name, array in names.arrays.items() if names is not None else ():
            variable = self.variables.get(array.symbol)
            if variable is not None:
                start = variable.address + array.offset
                self.declared[name] = SharedArray(name, start, array.format, array.layout)
        cuda = program.module.cuda
        for full, variable in self.variables.items() if cuda is not None else ():
            name = source_name(full)
            shared = _declared_in(cuda.text, name, variable) if cuda is not None else None
            if shared is not None and name not in self.declared:
                self.declared[name] = shared

    def find(self, name: str, dtype: object = None, shape: Any = None, layout: object = None) -> SharedArray:
        """Return an array by the name of the source or of the PTX variable.

        What the source does not say, or if something else is asked for, `dtype`, `shape` or `layout` say.
        """
        declared = self.declared.get(name)
        if declared is not None and dtype is None and shape is None and layout is None:
            return declared
        variable = self._variable(name)
        start = declared.offset if declared is not None else variable.address
        if dtype is None and declared is None:
            known = f"{variable.size} bytes" if variable.size else "the bytes that the launch gives"
            raise LanewiseError(
                f"the PTX does not say what {name} holds ({known}): give dtype= and shape=, as in "
                f'step.shared("{name}", dtype=lw.f16, shape=(64, 64))'
            )
        elements = declared.elements if dtype is None and declared is not None else _elements(dtype)
        if layout is None:
            count = variable.size // word_bytes(elements)
            extents = (shape,) if isinstance(shape, int) else tuple(shape) if shape is not None else (count,)
            layout = Layout(extents, suffix_product(extents))
            if variable.size and product(extents) > count:
                raise LanewiseError(
                    f"{name} has {variable.size} bytes, {count} elements of {type_name(elements)}; "
                    f"the shape {extents} has {product(extents)}"
                )
        return SharedArray(name, start, elements, layout)

    def _variable(self, name: str) -> Symbol:
        """Return a variable by its name in the PTX, or by its own name in CUDA C++."""
        if name in self.declared and name not in self.variables:
            return next(iter(self.variables.values()))
        if name in self.variables:
            return self.variables[name]
        own = [variable for full, variable in self.variables.items() if source_name(full) == name]
        if len(own) == 1:
            return own[0]
        known = [*self.declared, *(source_name(full) for full in self.variables)]
        close = nearest(name, known)
        hint = f"; did you mean {close}?" if close else ""
        there = f"it has {', '.join(dict.fromkeys(known))}" if known else "it has none"
        raise LanewiseError(f"the kernel has no array {name} in shared memory: {there}{hint}")

    def all(self) -> Iterator[SharedArray]:
        """Yield the arrays whose elements are known."""
        yield from self.declared.values()


def _declared_in(source: str, name: str, variable: Symbol) -> SharedArray | None:
    """Return a variable as CUDA C++ declares it; None if that is not understood, or the bytes do not fit."""
    for declaration in declared_shared(source, name):
        kind = cuda_type(declaration.type) or cuda_type(aliased_type(source, declaration.type))
        shape = tuple(computed_number(source, size) or 0 for size in declaration.sizes) or (1,)
        if kind is None or kind.size * product(shape) != variable.size:
            continue
        if kind.numbers > 1:
            shape = (*shape, kind.numbers)
        try:
            elements = _elements(kind.dtype)
        except LanewiseError:
            return None
        return SharedArray(name, variable.address, elements, Layout(shape, suffix_product(shape)))
    return None


def source_name(full: str) -> str:
    """Return the name of a variable without the function that it is declared in.

    >>> source_name("_ZZ2mmPKfE2As"), source_name("As")
    ('As', 'As')
    """
    return demangle(full).split("::")[-1]


def _shared_variables(program: Program) -> Iterator[tuple[str, Symbol]]:
    """Yield the variables in shared memory, each as a symbol for its first byte."""

    def first(symbol: Symbol) -> Symbol:
        start = symbol.address - symbol.into
        if symbol.space == "dynamic":
            start += program.dynamic_offset
        return Symbol(symbol.name, "shared", start, symbol.size)

    def symbols(operand: ResolvedOperand) -> Iterator[Symbol]:
        for part in elements_of(operand):
            inner = part.base if isinstance(part, MemoryOperand) else part
            if isinstance(inner, Symbol) and inner.space in ("shared", "dynamic"):
                yield first(inner)

    for op in program.sites:
        for operand in op.operands:
            for variable in symbols(operand):
                yield variable.name, variable
