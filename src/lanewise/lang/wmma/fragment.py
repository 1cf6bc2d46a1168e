"""Fragments of WMMA: matrices shared out among the lanes of a warp, of which a program sees `.x`.

Loads, stores and fills are in `load_store.py`, products in `mma.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lanewise.formats import Format, f32, tf32
from lanewise.isa import Instruction, Operand
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.packed_register import register_dtype
from lanewise.lang.trace.pytrees import Node
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Traced, describe, refuse
from lanewise.lang.trace.types import dtype_name, u32
from lanewise.lang.wmma.names import LETTERS, ORDERS, STORAGE, accumulator, col_major, find, row_major


class FragmentElements(Node):
    """`fragment.x`: the elements that this lane holds (for u4, s4 and b1, the words they are stored in)."""

    __slots__ = ("_fragment",)

    def __init__(self, fragment: fragment) -> None:
        self._fragment = fragment

    def children(self) -> list[Any]:
        return [self._fragment]

    def with_children(self, children: list[Any], fresh: bool = False) -> FragmentElements:
        return FragmentElements(children[0])

    def __len__(self) -> int:
        return self._fragment.num_storage_elements

    def _index(self, index: object) -> int:
        """Return the index of an element, counted from 0; an error if it is traced or too large."""
        if isinstance(index, Traced):
            raise current().error("registers have no addresses: the index of .x is a Python integer")
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(f"{self._fragment}.x has {len(self)} elements; {index!r} was asked for")
        return index % len(self)

    def __getitem__(self, index: object) -> Scalar:
        number, held = self._index(index), self._fragment
        held.require_filled("its elements are read")
        if held.dtype in STORAGE:
            return Scalar(held.storage_element_type, held.registers[number].in_register)
        element: Scalar = held.as_operand()[number]
        return bitcast(Scalar(u32, element.in_register), f32) if held.dtype is tf32 else element

    def __setitem__(self, index: object, value: object) -> None:
        number, held = self._index(index), self._fragment
        if held.dtype in STORAGE or held.dtype is tf32:
            kind = held.storage_element_type
            given = scalar(value, kind, f"an element of {held}")
            held.registers[number] = (
                bitcast(given, u32) if held.dtype is tf32 else Scalar(u32, given.in_register)
            )
        else:
            changed = held.as_operand()
            changed[number] = value
            held.registers[:] = changed.registers
        held.filled = True

    def __iter__(self) -> Iterator[Scalar]:
        return (self[index] for index in range(len(self)))


class fragment(Node):
    """A matrix that the lanes of a warp hold together: `wmma.fragment(use, m, n, k, dtype, layout)`.

    `use` is matrix_a, matrix_b or accumulator; `layout` row_major or col_major, and none for accumulators.
    Inside a kernel: `a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)`.
    """

    __slots__ = ("builder", "dtype", "filled", "k", "layout", "m", "n", "operand", "registers", "use")
    mutable = True

    def __init__(self, use: Any, m: int, n: int, k: int, dtype: object, layout: Any = None) -> None:
        self.builder = current()
        if use not in LETTERS:
            raise self.builder.error(f"use is wmma.matrix_a, matrix_b or accumulator, not {use!r}")
        if not isinstance(dtype, Format):
            raise self.builder.error(f"a fragment's elements are a format such as lw.f16, not {dtype!r}")
        if use is accumulator and layout is not None:
            raise self.builder.error(
                "an accumulator has no layout: it is named when memory is read or written"
            )
        if use is not accumulator and layout not in (row_major, col_major):
            raise self.builder.error(f"{use.name} is wmma.row_major or wmma.col_major, not {layout!r}")
        self.use, self.m, self.n, self.k, self.dtype, self.layout = use, m, n, k, dtype, layout
        self.operand: Operand = self.loading(ORDERS.get(layout, "row"), "").operands[LETTERS[use]]
        dtype_of_register = register_dtype(self.operand.format)
        self.registers = [Scalar(dtype_of_register, constant=0) for _ in range(self.operand.registers)]
        self.filled = False

    # as a node of a pytree: the registers may change, use, shape and dtype do not
    def children(self) -> list[Any]:
        return list(self.registers)

    def with_children(self, children: list[Any], fresh: bool = False) -> fragment:
        target = self
        if fresh:
            target = object.__new__(fragment)
            for name in self.__slots__:
                setattr(target, name, getattr(self, name))
        target.registers = list(children)
        return target

    def same_kind(self, other: object) -> bool:
        return isinstance(other, fragment) and self._kind() == other._kind()

    def _kind(self) -> tuple[object, ...]:
        return self.use, self.m, self.n, self.k, self.dtype, self.layout

    def named(self, name: str) -> None:
        """Give the registers the Python name that the fragment is bound to, with numbers."""
        for number, register in enumerate(self.registers):
            register.named(f"{name}{number}")

    @property
    def shape(self) -> str:
        """The shape as PTX writes it."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def element_type(self) -> Format:
        """The format of the elements; tf32 ones are f32 to the program."""
        return f32 if self.dtype is tf32 else self.dtype

    @property
    def storage_element_type(self) -> Format:
        """What `.x` holds: the element type, or the words that u4, s4 and b1 are stored in."""
        return STORAGE.get(self.dtype, self.element_type)

    @property
    def num_elements(self) -> int:
        """The number of elements that a lane holds."""
        return self.operand.values

    @property
    def num_storage_elements(self) -> int:
        """The number of elements of `.x`."""
        return self.operand.registers if self.dtype in STORAGE else self.operand.values

    @property
    def x(self) -> FragmentElements:
        """The elements of this lane. Which elements these are is not known, so treat all of them alike."""
        return FragmentElements(self)

    def as_operand(self) -> Fragment:
        """Return the registers as a fragment of the catalogue's operand."""
        return Fragment(self.operand, list(self.registers))

    def require_filled(self, what: str) -> None:
        """Raise an error if the fragment holds nothing yet."""
        if not self.filled:
            raise current().error(f"{self} holds nothing yet: load or fill it before {what}")

    def require_here(self) -> None:
        """Raise an error if the fragment belongs to another kernel, or to one traced for another arch."""
        builder = current()
        if self.builder is builder:
            return
        made, used = (other.arch or "the lowest arch" for other in (self.builder, builder))
        raise builder.error(
            f"{self} was made in a kernel traced for {made}, and is used in one for {used}. Which lane holds "
            "which element is each arch's own affair (sm_70 and sm_75 differ), so a fragment does not pass "
            "from one to the other: store it to memory with store_matrix_sync and load it again there"
        )

    def loading(self, order: str, space: str) -> Instruction:
        """Return the instruction that loads the fragment from memory in row or column order."""
        where_to = f".{space}" if space else ""
        text = f"wmma.load.{LETTERS[self.use]}.sync.aligned.{order}.{self.shape}{where_to}.{self.dtype.name}"
        return find(
            text,
            f"a {self.use.name} fragment of {self.m}×{self.n}×{self.k} {dtype_name(self.dtype)}",
            stride=True,
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        order = f", {self.layout.name}" if self.layout is not None else ""
        return f"fragment<{self.use.name}, {self.m}, {self.n}, {self.k}, {dtype_name(self.dtype)}{order}>"


def given_fragment(given: object, what: str) -> fragment:
    """Return an argument that has to be a fragment of this kernel; an error if it is none."""
    if not isinstance(given, fragment):
        if not isinstance(given, Traced):
            refuse(given, what)
        raise current().error(f"{what} takes a wmma.fragment, not {describe(given)}")
    given.require_here()
    return given
