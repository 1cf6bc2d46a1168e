"""Tensors in registers: fragments under CuTe's shapes, changed in place; slices share their registers.

Tensors in memory are the views of `memory/view.py`; `copy.py` moves elements between both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

from lanewise.formats import Format, f32
from lanewise.lang.matrix.fragment import (
    accumulator_registers,
    mark_accumulator,
    read_register,
    write_register,
)
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.layout_index import UNKNOWN, shape_text
from lanewise.lang.memory.view import View, as_coordinate, slice_layout
from lanewise.lang.tiles.tensor import as_view
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.scalar import Scalar, literal, pack_register, register_dtype, scalar, unpack_register
from lanewise.lang.trace.traced import Node, Traced, describe
from lanewise.lang.trace.types import dtype_name, u32
from lanewise.layout import Layout, ScaledBasis, flatten, size
from lanewise.layout import make_fragment_like as fragment_layout
from lanewise.layout.coordinates import has_none
from lanewise.layout.int_tuple import Nested


class RegisterStorage(list[Scalar]):
    """A list of registers that knows the tensors which share them; those of wgmma are changed in place."""

    def __init__(self, registers: list[Scalar], in_place: bool = False) -> None:
        super().__init__(registers)
        self.tensors: WeakSet[RegisterTensor] = WeakSet()
        self.in_place = in_place

    def read(self, number: int) -> Scalar:
        """Return what a register holds now."""
        return read_register(self[number])

    def write(self, number: int, value: Scalar) -> None:
        """Set a register to a value."""
        self[number] = write_register(self[number], value)


class RegisterTensor(Node):
    """Elements in registers through a layout: `r[v, m, k]`, `r[None, m, None]`, `r.to(lw.f16)`, `r.map(f)`.

    Coordinates are Python integers: registers have no addresses.
    """

    __slots__ = ("__weakref__", "dtype", "layout", "offset", "registers")
    mutable = True
    #: The word that messages use in place of a state space.
    space = "registers"

    def __init__(self, dtype: Format, layout: Layout, registers: list[Scalar], offset: int = 0) -> None:
        self.dtype, self.layout, self.offset = dtype, layout, offset
        self.registers = registers if isinstance(registers, RegisterStorage) else RegisterStorage(registers)
        self.registers.tensors.add(self)

    def children(self) -> list[Any]:
        return list(self.registers)

    def with_children(self, children: list[Any], fresh: bool = False) -> RegisterTensor:
        if fresh:
            if len(self.registers.tensors) > 1:
                raise current().error(
                    f"{self} gets a new value in a loop or branch while slices or retiled views of it exist, "
                    "which would keep the old one: change it in place, as lw.copy(value, fragment) does, or "
                    "give the new value another name"
                )
            made = RegisterStorage(list(children), self.registers.in_place)
            if made.in_place:
                mark_accumulator(made)
            return RegisterTensor(self.dtype, self.layout, made, self.offset)
        self.registers[:] = children
        if self.registers.in_place:
            mark_accumulator(self.registers)
        return self

    @property
    def storage(self) -> RegisterStorage:
        """The registers, which slices and retiled views of the tensor share."""
        return self.registers

    def same_kind(self, other: object) -> bool:
        return isinstance(other, RegisterTensor) and self._kind() == other._kind()

    def _kind(self) -> tuple[object, ...]:
        return self.dtype, self.layout, self.offset, len(self.registers)

    @property
    def shape(self) -> Any:
        """The shape of the coordinates."""
        return self.layout.shape

    @property
    def slots(self) -> int:
        """The number of elements in one register."""
        return max(1, 32 // self.dtype.bits)

    def named(self, name: str) -> None:
        """Give the registers the Python name that the tensor is bound to, with numbers."""
        if self.offset == 0 and size(self.layout) == len(self.registers) * self.slots:
            for number, register in enumerate(self.registers):
                register.named(f"{name}{number}")

    def index(self, number: int) -> int:
        """Return the index among all elements of the registers that the number-th coordinate leads to."""
        return self.offset + int(self.layout(number))

    def indices_by_register(self, numbers: list[int]) -> list[list[int]]:
        """Return the indices of some coordinates, in groups that fill one register each."""
        indices = [self.index(number) for number in numbers]
        return [indices[start : start + self.slots] for start in range(0, len(indices), self.slots)]

    def element(self, index: int) -> Scalar:
        """Return an element by its index among all elements of the registers."""
        held = self.registers.read(index // self.slots)
        if self.slots == 1:
            return held if held.dtype == self.dtype else Scalar(self.dtype, held.in_register)
        return unpack_register(held.in_register, self.dtype, self.dtype.bits)[index % self.slots]

    def packed(self, indices: list[int]) -> Scalar:
        """Return one register with some elements side by side: the very register, if they lie so."""
        first = indices[0]
        if first % self.slots == 0 and indices == list(range(first, first + self.slots)):
            return self.registers.read(first // self.slots)
        return Scalar(u32, pack_register([self.element(index) for index in indices], self.dtype.bits))

    def set_elements(self, indices: list[int], values: list[Scalar]) -> None:
        """Set elements by their indices; a register of several is packed once."""
        slots = self.slots
        new: dict[int, dict[int, Scalar]] = {}
        for index, value in zip(indices, values, strict=True):
            new.setdefault(index // slots, {})[index % slots] = value
        for number, elements in new.items():
            if slots == 1:
                self.registers.write(number, as_register(elements[0], register_dtype(self.dtype)))
                continue
            if len(elements) < slots:
                held = unpack_register(self.registers.read(number).in_register, self.dtype, self.dtype.bits)
                elements = {**dict(enumerate(held)), **elements}
            packed = pack_register([elements[slot] for slot in range(slots)], self.dtype.bits)
            self.registers.write(number, Scalar(u32, packed))

    def set_packed(self, indices: list[int], register: Scalar) -> None:
        """Set elements from one register that holds them side by side."""
        first = indices[0]
        if first % self.slots == 0 and indices == list(range(first, first + self.slots)):
            self.registers.write(first // self.slots, as_register(register, register_dtype(self.dtype)))
        else:
            self.set_elements(indices, unpack_register(register.in_register, self.dtype, self.dtype.bits))

    def __getitem__(self, coordinate: object) -> Any:
        crd = self._coordinate(coordinate)
        start = self.offset + int(self.layout(_first(crd)))
        if not has_none(crd):
            return self.element(start)
        return RegisterTensor(self.dtype, slice_layout(crd, self.layout), self.registers, start)

    def __setitem__(self, coordinate: object, value: object) -> None:
        crd = self._coordinate(coordinate)
        if has_none(crd):
            kept = self[crd]
            for number in range(size(kept.layout)):
                kept.set_elements([kept.index(number)], [scalar(value, self.dtype, f"an element of {self}")])
            return
        index = self.offset + int(self.layout(crd))
        self.set_elements([index], [scalar(value, self.dtype, f"an element of {self}")])

    def _coordinate(self, coordinate: object) -> Any:
        """Return a coordinate with None for `:`; an error if it is traced or outside of the shape."""
        crd = as_coordinate(coordinate, self.layout)
        if any(isinstance(coordinate, Traced) for coordinate in flatten((crd,))):
            raise current().error(
                "registers have no addresses: the coordinates of a tensor in registers are Python integers"
            )
        try:
            self.layout(_first(crd))
            inside = _inside(crd, self.shape)
        except (LookupError, TypeError, ValueError):
            inside = False
        if not inside:
            raise current().error(f"coordinate {crd!r} is outside shape {shape_text(self.shape)}")
        return crd

    def __len__(self) -> int:
        return size(self.layout)

    def __iter__(self) -> Iterator[Scalar]:
        return (self.element(self.index(number)) for number in range(size(self.layout)))

    def map(self, f: Callable[[Any], Any]) -> RegisterTensor:
        """Return new registers of the same shape, f applied to each element; f may change the dtype."""
        values = [f(value) for value in self]
        for value in values:
            if not isinstance(value, Scalar) or value.dtype != values[0].dtype:
                raise current().error(f".map: f must give values of one dtype, not {describe(value)}")
        made = make_register_tensor(values[0].dtype, self.layout)
        made.set_elements([made.index(number) for number in range(len(values))], values)
        return made

    def to(self, dtype: Format) -> RegisterTensor:
        """Return new registers of the same shape, each element converted."""
        return self if dtype == self.dtype else self.map(lambda value: value.to(dtype))

    def __str__(self) -> str:
        return f"a tensor of {dtype_name(self.dtype)} in registers, of shape {shape_text(self.shape)}"


def _first(crd: object) -> Any:
    """Return the first of the coordinates that a coordinate with None in it keeps."""
    if isinstance(crd, tuple):
        return tuple(map(_first, crd))
    return 0 if crd is None else crd


def _inside(crd: Nested, shape: Nested) -> bool:
    """Return whether a coordinate lies inside a shape; None in it always does."""
    if isinstance(crd, tuple):
        return all(_inside(c, s) for c, s in zip(crd, shape, strict=True))
    return crd is None or (isinstance(crd, int) and 0 <= crd < size(shape))


def as_register(value: Scalar, dtype: Format) -> Scalar:
    """Return the bits of a value as a register of a dtype of the same size."""
    if value.dtype == dtype:
        return value
    if dtype is u32 and value.dtype.bits == 32 and value.dtype is not f32:
        return Scalar(u32, value.in_register)
    return bitcast(value, dtype)


def make_register_tensor(dtype: Format, layout: Layout, in_place: bool = False) -> RegisterTensor:
    """Return a tensor of zeros in registers for a shape, in the order of a layout, made compact.

    With `in_place` they are registers that wgmma may change.
    """
    if any(isinstance(step, ScaledBasis) for step in flatten((layout.stride,))):
        ordered = Layout(layout.shape)
    else:
        ordered = fragment_layout(layout)
    if UNKNOWN in flatten((layout.shape,)):
        raise current().error(
            f"registers for shape {shape_text(layout.shape)}: slice the mode whose extent is known only when "
            "the kernel runs"
        )
    zero = literal(0, register_dtype(dtype))
    count = -(-ordered.cosize() // max(1, 32 // dtype.bits))
    registers = [zero] * count
    if in_place:
        return RegisterTensor(dtype, ordered, RegisterStorage(accumulator_registers(registers), True))
    return RegisterTensor(dtype, ordered, registers)


def make_fragment_like(tensor: object, dtype: Format | None = None) -> RegisterTensor:
    """Return a tensor of zeros in registers in the shape of a tensor; of another dtype, if one is given.

    Inside a kernel: `rA = lw.make_fragment_like(tAgA[None, None, None, 0])`.
    """
    if isinstance(tensor, Array):
        tensor = as_view(tensor, "lw.make_fragment_like")
    if not isinstance(tensor, View | RegisterTensor):
        raise current().error(f"lw.make_fragment_like takes a tensor, not {describe(tensor)}")
    return make_register_tensor(dtype or tensor.dtype, tensor.layout)


def clear(tensor: object) -> None:
    """Set a tensor in registers to zero."""
    fill(tensor, 0)


def fill(tensor: object, value: object) -> None:
    """Set every element of a tensor in registers to one value."""
    if not isinstance(tensor, RegisterTensor):
        raise current().error(
            f"lw.clear and lw.fill take a tensor in registers, as lw.make_fragment_like makes; not "
            f"{describe(tensor)}"
        )
    slots = tensor.slots
    if slots > 1 and not isinstance(value, Traced) and value == 0:
        one = unpack_register(literal(0, u32).in_register, tensor.dtype, tensor.dtype.bits)
    else:
        one = [scalar(value, tensor.dtype, "lw.fill")] * slots
    indices = sorted({tensor.index(number) for number in range(size(tensor.layout))})
    tensor.set_elements(indices, [one[index % slots] for index in indices])
