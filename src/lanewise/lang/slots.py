"""Elements smaller than a register: several in one 32-bit register, taken apart and put together."""

from __future__ import annotations

from typing import Any

from lanewise.formats import Format
from lanewise.lang.builder import Register, current
from lanewise.lang.values import Scalar


class Slot(Scalar):
    """One element of a packed register, taken out where it is used; moved on as it came, it never is."""

    __slots__ = ("origin", "packed", "width")

    def __init__(self, dtype: Format, packed: Register, origin: int, width: int) -> None:
        super().__init__(dtype)
        self.packed, self.origin, self.width = packed, origin, width

    @property
    def operand(self) -> Any:
        builder = current()
        if self.width == 16:
            source = self.packed
            if self.origin:
                source = builder.define("shr.u32", "b32", source, "16")
            return builder.define("cvt.u16.u32", "b16", source, hint=self.hint)
        signed = self.dtype.kind == "int" and self.dtype.signed
        name = "bfe.s32" if signed else "bfe.u32"
        wide = builder.define(name, "b32", self.packed, str(self.origin), str(self.dtype.bits))
        return builder.define("cvt.u16.u32", "b16", wide, hint=self.hint)

    def is_same(self, other: Any) -> bool:
        """Whether another is the same element of the same register."""
        return isinstance(other, Slot) and (self.packed, self.origin, self.dtype) == (
            other.packed,
            other.origin,
            other.dtype,
        )


def taken_apart(register: Register, dtype: Format, slot_bits: int, shift: int = 0) -> list[Scalar]:
    """The elements of a register, lowest first."""
    return [Slot(dtype, register, start + shift, slot_bits) for start in range(0, 32, slot_bits)]


def put_together(values: list[Scalar], slot_bits: int, shift: int = 0) -> Register:
    """A register of elements, lowest first."""
    first = values[0]
    if isinstance(first, Slot) and all(
        isinstance(each, Slot) and each.packed is first.packed and each.origin == number * slot_bits + shift
        for number, each in enumerate(values)
    ):
        return first.packed
    builder = current()
    if slot_bits == 16:
        low, high = (each.in_register for each in values)
        return builder.define("mov.b32", "b32", (low, high))
    found: Register | str = "0"
    for number, value in enumerate(values):
        wide = builder.define("cvt.u32.u16", "b32", value.in_register)
        found = builder.define(
            "bfi.b32", "b32", wide, found, str(number * slot_bits + shift), str(value.dtype.bits)
        )
    assert isinstance(found, Register)
    return found
