"""Fragments: operands of matrix instructions as one lane holds them in registers.

Their layouts are the catalogue's (`isa/`); the instructions that take and give them are emitted by `emit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from lanewise.formats import Format, f32
from lanewise.isa import Operand
from lanewise.lang.trace.builder import Register, current
from lanewise.lang.trace.scalar import Scalar, pack_register, register_dtype, scalar, unpack_register
from lanewise.lang.trace.special_registers import lane_id, thread_rank
from lanewise.lang.trace.traced import Node, Traced, describe, refuse
from lanewise.lang.trace.types import dtype_name, register_kind, u16, u32
from lanewise.layout import flatten


def element_dtype(operand: Operand) -> Format:
    """Return the dtype of one element of an operand: its format, u16 for ldmatrix's raw elements."""
    return u16 if operand.format.name == "b16" else operand.format


def is_accumulator(operand: Operand) -> bool:
    """Return whether an operand is the accumulator of wgmma, which changes its registers in place."""
    return operand.threads == 128 and operand.name in ("C", "D")


def accumulator_registers(values: list[Scalar]) -> list[Scalar]:
    """Return values moved into registers of their own, which wgmma may change in place."""
    copies = []
    for value in values:
        register = Register(register_kind(value.dtype), in_place=True)
        current().emit(f"mov.{register.kind}", register, value.operand)
        copies.append(Scalar(value.dtype, register))
    return copies


def read_register(held: Scalar) -> Scalar:
    """Return what a register holds now: a copy, if it is changed in place later."""
    if held.register is None or not held.register.in_place:
        return held
    kind = held.register.kind
    return Scalar(held.dtype, current().result(f"mov.{kind}", kind, held.register))


def write_register(held: Scalar, value: Scalar) -> Scalar:
    """Return the register of a new value: the same one, set to it, if it is changed in place."""
    if held.register is None or not held.register.in_place:
        return value
    current().emit(f"mov.{held.register.kind}", held.register, value.operand)
    return held


def mark_accumulator(registers: list[Any]) -> None:
    """Note that registers, which a loop or branch made, are those of an accumulator and changed in place."""
    for register in registers:
        if isinstance(register, Scalar) and register.register is not None:
            register.register.in_place = True


class Fragment(Node):
    """An operand of a matrix instruction as this lane holds it: `f[i]` is an element, `f.registers` are all.

    A fragment of one instruction is taken by another whose operand has the same layout and format. The
    accumulator of wgmma stays in its registers, which are changed in place: elements are read as copies.
    """

    __slots__ = ("_registers", "operand")
    mutable = True

    def __init__(self, operand: Operand, registers: list[Scalar]) -> None:
        assert len(registers) == operand.registers, (operand, registers)
        self.operand, self._registers = operand, registers

    def children(self) -> list[Any]:
        return list(self._registers)

    def with_children(self, children: list[Any], fresh: bool = False) -> Fragment:
        if fresh:
            return Fragment(self.operand, list(self.children())).with_children(children)
        self._registers[:] = children
        if is_accumulator(self.operand):
            mark_accumulator(self._registers)
        return self

    def same_kind(self, other: object) -> bool:
        return isinstance(other, Fragment) and same_register_layout(self.operand, other.operand)

    @property
    def registers(self) -> tuple[Scalar, ...]:
        """The registers: f32, f64, i32, or u32 with several elements in each."""
        return tuple(map(read_register, self._registers))

    @property
    def dtype(self) -> Format:
        """The format of its elements."""
        return element_dtype(self.operand)

    def named(self, name: str) -> None:
        """Give the registers the Python name that the fragment is bound to, with numbers."""
        for number, register in enumerate(self._registers):
            register.named(f"{name}{number}" if len(self._registers) > 1 else name)

    def __len__(self) -> int:
        return self.operand.values

    def _register_and_slot(self, index: object) -> tuple[int, int]:
        """Return the register and the slot in it that hold an element."""
        if isinstance(index, Traced):
            raise current().error("registers have no addresses: the index of a fragment is a Python integer")
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(f"{self} has elements 0 to {len(self) - 1}; {index!r} was asked for")
        return divmod(index % len(self), self.operand.slots)

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        register, slot = self._register_and_slot(index)
        return self._elements(register)[slot]

    def _elements(self, register: int) -> list[Scalar]:
        """Return the elements of one register, lowest first."""
        held = read_register(self._registers[register])
        if self.operand.slots == 1:
            dtype = self.dtype
            return [held if held.dtype == dtype else Scalar(dtype, held.in_register)]
        return unpack_register(held.in_register, self.dtype, self.operand.slot_bits, self.operand.shift)

    def __setitem__(self, index: object, value: object) -> None:
        register, slot = self._register_and_slot(index)
        elements = self._elements(register)
        elements[slot] = scalar(value, self.dtype, f"an element of {self}")
        self._registers[register] = write_register(self._registers[register], _packed(self.operand, elements))

    def __iter__(self) -> Iterator[Scalar]:
        return (self[index] for index in range(len(self)))

    def _refuse_operator(self, *_: object) -> Any:
        raise current().error(f"{self} is many values: take f[i], or f.map(lambda x: …) for all of them")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _refuse_operator
    )
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_operator

    def map(self, f: Callable[[Any], Any]) -> Fragment:
        """Return the fragment with f applied to each element, of the same format."""
        values = [scalar(f(element), self.dtype, "what .map makes of an element") for element in self]
        slots = self.operand.slots
        packed = [_packed(self.operand, values[at : at + slots]) for at in range(0, len(values), slots)]
        return Fragment(
            self.operand, accumulator_registers(packed) if is_accumulator(self.operand) else packed
        )

    def element(self, index: int) -> tuple[Scalar, Scalar]:
        """Return (row, column) in the matrix of this lane's `index`-th element."""
        return element_coordinates(self.operand, index)

    def __str__(self) -> str:
        return f"the fragment of {self.operand.title}"


def _packed(operand: Operand, elements: list[Scalar]) -> Scalar:
    """Return one register of an operand made of its elements."""
    if operand.slots == 1:
        only = elements[0]
        dtype = register_dtype(operand.format)
        return only if only.dtype == dtype else Scalar(dtype, only.in_register)
    return Scalar(u32, pack_register(elements, operand.slot_bits, operand.shift))


def same_register_layout(a: Operand, b: Operand) -> bool:
    """Return whether two operands lie in registers in the same layout and format."""
    layout_of = attrgetter(
        "rows", "cols", "format", "layout", "slot_bits", "shift", "transposed", "register_bits", "threads",
        "products", "thr_id",
    )  # fmt: skip
    return layout_of(a) == layout_of(b)


def full_fragment(operand: Operand, value: object) -> Fragment:
    """Return a fragment with one value in every element."""
    builder = current()
    if operand.where != "registers":
        raise builder.error(
            f"{operand.title} lies in {operand.where}, not in registers: the accumulator of a tcgen05.mma is "
            "lw.tmem.alloc(columns).accumulator(mma), and mma(a, b, acc, accumulate=False) begins with zeros"
        )
    dtype = element_dtype(operand)
    if operand.slots == 1:
        one = scalar(value, dtype, f"a fragment of {operand.title}")
        dtype = register_dtype(operand.format)
        if one.dtype != dtype:
            one = Scalar(dtype, one.in_register)
    elif not isinstance(value, Traced) and value == 0:
        one = Scalar(u32, constant=0)
    else:
        one = _packed(operand, [scalar(value, dtype, f"a fragment of {operand.title}")] * operand.slots)
    registers = [one] * operand.registers
    return Fragment(operand, accumulator_registers(registers) if is_accumulator(operand) else registers)


def fragment_of_registers(operand: Operand, registers: object) -> Fragment:
    """Return a fragment made of registers: as many as the operand has, of its dtype or u32."""
    scalars = operand_registers(operand, registers, operand.name, operand.instruction)
    return Fragment(operand, accumulator_registers(scalars) if is_accumulator(operand) else scalars)


def operand_registers(operand: Operand, given: object, name: str, instruction: str) -> list[Scalar]:
    """Return the registers of what is given for an operand; an error if its layout is another operand's."""
    builder = current()
    wanted = register_dtype(operand.format)
    if isinstance(given, Fragment):
        raw = given.operand.format.name in ("b16", "b8")
        if raw and len(given.registers) != operand.registers:
            raise builder.error(
                f"{name} of {instruction} has {operand.registers} registers, and {given} has "
                f"{len(given.registers)}: load as many 8×8 matrices, num={operand.registers}"
            )
        if not raw and not same_register_layout(given.operand, operand):
            raise builder.error(
                f"{name} of {instruction} is given {given}, which lies in registers in another way: "
                f"{_difference(given.operand, operand)}. Store it to memory and load it as this operand, "
                "or use an instruction whose operands agree"
            )
        values = list(given.registers)
    elif isinstance(given, tuple | list) and all(isinstance(value, Scalar) for value in given):
        values = list(given)
    elif isinstance(given, Scalar):
        values = [given]
    else:
        if type(given).__module__ == "numpy":
            refuse(given, f"{name} of {instruction}")
        raise builder.error(
            f"{name} of {instruction} takes a fragment or its registers, not {describe(given)}: load "
            "one with lw.ldmatrix from shared memory, or make one of registers, "
            f"mma.{name.lower()}.fragment(registers)"
        )
    if len(values) != operand.registers:
        raise builder.error(
            f"{name} of {instruction} has {operand.registers} registers ({operand}); {len(values)} are given"
        )
    for value in values:
        if value.dtype != wanted and not (
            wanted is u32 and value.dtype.bits == 32 and value.dtype is not f32
        ):
            count = f"[:{len(values)}]" if len(values) > 1 else "[0]"
            raise builder.error(
                f"{name} of {instruction} has {dtype_name(wanted)} registers, and {describe(value)} is given"
                f": f{count} of a fragment f are elements, and f.registers{count} are registers"
            )
    return values


def _difference(a: Operand, b: Operand) -> str:
    """Return in words how an operand that is given differs from the one that is wanted."""
    if a.format != b.format:
        return f"its elements are {a.format.name}, here {b.format.name}"
    if a.shape != b.shape:
        return f"it is {a.rows}×{a.cols}, here {b.rows}×{b.cols}"
    return f"(lane, value) → element is {a.layout}, here {b.layout}"


#: Threads that hold an operand together.
_WARP, _WARPGROUP = 32, 128


def element_coordinates(operand: Operand, index: int) -> tuple[Scalar, Scalar]:
    """Return (row, column) of this lane's `index`-th element of an operand."""
    if operand.thr_id is not None or operand.threads not in (_WARP, _WARPGROUP):
        raise current().error(
            f"{operand.title}: places of elements are known for operands of one warp or warpgroup"
        )
    outer = operand.cols if operand.transposed else operand.rows
    lane = lane_id() if operand.threads == _WARP else thread_rank() % _WARPGROUP
    inner: Any = 0
    high: Any = 0
    shapes, strides = flatten(operand.layout[0].shape), flatten(operand.layout[0].stride)
    left: object = lane
    for number, (shape, stride) in enumerate(zip(shapes, strides, strict=True)):
        last = number == len(shapes) - 1
        digit, left = (left, 0) if last else (left % shape, left // shape)
        # each mode of the lane runs along the rows or along the columns, never across both
        if stride % outer == 0:
            high = high + digit * (stride // outer)
        else:
            inner = inner + digit * stride
    more, less = divmod(operand.layout[1](index), outer)
    inner, high = inner + less, high + more
    return (high, inner) if operand.transposed else (inner, high)
