"""Elements smaller than a register, several of them packed in one 32-bit register: unpacked and packed here.

Which elements lie in which register is decided by those who call: pointers, fragments and conversions.
"""

from typing import Any

from lanewise.formats import Format, f32, f64, s32
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.ir import Register
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import u32


class PackedElement(Scalar):
    """One element of a packed register. It is extracted where it is used, and not at all if it only moves on.

    It begins at bit `first_bit` of `packed`; `slot_bits` is the distance from one element to the next.
    """

    __slots__ = ("first_bit", "packed", "slot_bits")

    def __init__(self, dtype: Format, packed: Register, first_bit: int, slot_bits: int) -> None:
        super().__init__(dtype)
        self.packed, self.first_bit, self.slot_bits = packed, first_bit, slot_bits

    @property
    def operand(self) -> Any:
        """A 16-bit register with the element, extracted by a shift or a bit field extract."""
        builder = current()
        if self.slot_bits == 16:
            source = self.packed
            if self.first_bit:
                source = builder.define("shr.u32", "b32", source, "16")
            return builder.define("cvt.u16.u32", "b16", source, hint=self.hint)
        signed = self.dtype.kind == "int" and self.dtype.signed
        name = "bfe.s32" if signed else "bfe.u32"
        wide = builder.define(name, "b32", self.packed, str(self.first_bit), str(self.dtype.bits))
        return builder.define("cvt.u16.u32", "b16", wide, hint=self.hint)

    def is_same(self, other: object) -> bool:
        """Return whether another value is the same element of the same register."""
        return isinstance(other, PackedElement) and (self.packed, self.first_bit, self.dtype) == (
            other.packed,
            other.first_bit,
            other.dtype,
        )


def register_dtype(dtype: Format) -> Format:
    """Return the dtype of a register of elements: f32, f64, i32, or u32 with one or several in it."""
    return dtype if dtype in (f32, f64, s32) else u32


def unpack_register(register: Register, dtype: Format, slot_bits: int, shift: int = 0) -> list[Scalar]:
    """Return the elements of a 32-bit register, lowest first; each begins `shift` bits above its slot."""
    return [PackedElement(dtype, register, start + shift, slot_bits) for start in range(0, 32, slot_bits)]


def pack_register(values: list[Scalar], slot_bits: int, shift: int = 0) -> Register:
    """Return a register that holds elements, lowest first: the one they were unpacked from, if any."""
    first = values[0]
    if isinstance(first, PackedElement) and all(
        isinstance(value, PackedElement)
        and value.packed is first.packed
        and value.first_bit == number * slot_bits + shift
        for number, value in enumerate(values)
    ):
        return first.packed
    builder = current()
    if slot_bits == 16:
        low, high = (value.in_register for value in values)
        return builder.define("mov.b32", "b32", (low, high))
    packed: Register | str = "0"
    for number, value in enumerate(values):
        wide = builder.define("cvt.u32.u16", "b32", value.in_register)
        packed = builder.define(
            "bfi.b32", "b32", wide, packed, str(number * slot_bits + shift), str(value.dtype.bits)
        )
    assert isinstance(packed, Register)
    return packed
