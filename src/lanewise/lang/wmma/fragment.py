"""Fragments of WMMA: matrices shared out among the lanes of a warp, of which a program sees `.x`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lanewise.formats import Format, f32, tf32
from lanewise.isa import Instruction, Operand
from lanewise.lang import matrix
from lanewise.lang.builder import current
from lanewise.lang.convert import bitcast
from lanewise.lang.trees import Node
from lanewise.lang.types import u32
from lanewise.lang.values import Scalar, Traced, describe, public, refuse, scalar
from lanewise.lang.wmma.names import LETTERS, ORDERS, STORAGE, accumulator, col_major, find, row_major


class Elements:
    """`fragment.x`: the elements that this lane holds (for u4, s4 and b1, the words they are stored in)."""

    def __init__(self, fragment: fragment) -> None:
        self._fragment = fragment

    def __len__(self) -> int:
        return self._fragment.num_storage_elements

    def _place(self, index: Any) -> int:
        if isinstance(index, Traced):
            raise current().error("registers have no addresses: the index of .x is a Python integer")
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(f"{self._fragment}.x has {len(self)} elements; {index!r} was asked for")
        return index % len(self)

    def __getitem__(self, index: Any) -> Scalar:
        place, held = self._place(index), self._fragment
        held.require_filled("its elements are read")
        if held.dtype in STORAGE:
            return Scalar(held.storage_element_type, held.registers[place].in_register)
        found: Scalar = held.as_operand()[place]
        return bitcast(Scalar(u32, found.in_register), f32) if held.dtype is tf32 else found

    def __setitem__(self, index: Any, value: Any) -> None:
        place, held = self._place(index), self._fragment
        if held.dtype in STORAGE or held.dtype is tf32:
            kind = held.storage_element_type
            given = scalar(value, kind, f"an element of {held}")
            held.registers[place] = (
                bitcast(given, u32) if held.dtype is tf32 else Scalar(u32, given.in_register)
            )
        else:
            changed = held.as_operand()
            changed[place] = value
            held.registers[:] = changed.registers
        held.filled = True

    def __iter__(self) -> Iterator[Scalar]:
        return (self[index] for index in range(len(self)))


class fragment(Node):
    """A matrix shared out among the lanes of a warp: `wmma.fragment(use, m, n, k, dtype, layout)`.

    `use` is matrix_a, matrix_b or accumulator; `layout` row_major or col_major, and none for accumulators.
    Inside a kernel: `a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)`.
    """

    __slots__ = ("builder", "dtype", "filled", "k", "layout", "m", "n", "operand", "registers", "use")
    mutable = True

    def __init__(self, use: Any, m: int, n: int, k: int, dtype: Any, layout: Any = None) -> None:
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
        dtype_of_register = matrix.register_dtype(self.operand)
        self.registers = [Scalar(dtype_of_register, constant=0) for _ in range(self.operand.registers)]
        self.filled = False

    # as a nested value: the registers may change, what it is does not
    def parts(self) -> list[Any]:
        return list(self.registers)

    def with_parts(self, parts: list[Any], fresh: bool = False) -> fragment:
        target = self
        if fresh:
            target = object.__new__(fragment)
            for name in self.__slots__:
                setattr(target, name, getattr(self, name))
        target.registers = list(parts)
        return target

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, fragment) and self._kind() == other._kind()

    def _kind(self) -> tuple[Any, ...]:
        return self.use, self.m, self.n, self.k, self.dtype, self.layout

    def named(self, name: str) -> None:
        """Let the registers have a Python name."""
        for number, each in enumerate(self.registers):
            each.named(f"{name}{number}")

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
        """Elements that a lane holds."""
        return self.operand.values

    @property
    def num_storage_elements(self) -> int:
        """Elements of `.x`."""
        return self.operand.registers if self.dtype in STORAGE else self.operand.values

    @property
    def x(self) -> Elements:
        """The elements of this lane: every lane may do the same with each of them, whichever they are."""
        return Elements(self)

    def as_operand(self) -> matrix.Fragment:
        """The registers as an operand of the catalogue's."""
        return matrix.Fragment(self.operand, list(self.registers))

    def require_filled(self, what: str) -> None:
        """Complain of a fragment that holds nothing yet."""
        if not self.filled:
            raise current().error(f"{self} holds nothing yet: load or fill it before {what}")

    def require_here(self) -> None:
        """Complain of a fragment of another kernel, or of one traced for another arch."""
        builder = current()
        if self.builder is builder:
            return
        made, used = (each.arch or "the lowest arch" for each in (self.builder, builder))
        raise builder.error(
            f"{self} was made in a kernel traced for {made}, and is used in one for {used}. Which lane holds "
            "which element is each arch's own affair (sm_70 and sm_75 differ), so a fragment does not pass "
            "from one to the other: store it to memory with store_matrix_sync and load it again there"
        )

    def loading(self, order: str, space: str) -> Instruction:
        """The instruction that loads it from memory in an order."""
        where_to = f".{space}" if space else ""
        text = f"wmma.load.{LETTERS[self.use]}.sync.aligned.{order}.{self.shape}{where_to}.{self.dtype.name}"
        return find(
            text,
            f"a {self.use.name} fragment of {self.m}×{self.n}×{self.k} {public(self.dtype)}",
            stride=True,
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        order = f", {self.layout.name}" if self.layout is not None else ""
        return f"fragment<{self.use.name}, {self.m}, {self.n}, {self.k}, {public(self.dtype)}{order}>"


def given_fragment(given: Any, what: str) -> fragment:
    """An argument that has to be a fragment of this kernel."""
    if not isinstance(given, fragment):
        if not isinstance(given, Traced):
            refuse(given, what)
        raise current().error(f"{what} takes a wmma.fragment, not {describe(given)}")
    given.require_here()
    return given
