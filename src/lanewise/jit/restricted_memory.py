"""Memory and variables of functions that are compiled from the restricted Python."""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Reference, as_computed, described
from lanewise.jit.record_layout import LANES, Field
from lanewise.jit.simd import Code, Pointer, Type, Value, Variable, i64


class Place:
    """A place in memory with a declared content: one field of a record, or an element of an array."""

    def __init__(self, code: Code, address: Value, field: Field) -> None:
        self.code, self.address, self.field = code, address, field

    def _pointer(self) -> Pointer:
        handle = self.code.builder.inttoptr(self.address.handle, ir.BYTES)
        return Pointer(self.code, Type("u", 8 * self.field.bytes), handle)

    @property
    def is_vector(self) -> bool:
        """Whether it holds an element for each lane."""
        return self.field.elements == LANES and not self.field.row and self.field.target is None

    def _number(self) -> Value:
        return self._pointer().load().to(Type("u", 64)).to(i64)

    def load(self) -> object:
        """Return what is there; of arrays that are no vector, the place itself."""
        field = self.field
        if field.is_pointer and not field.is_table:
            assert callable(field.target)
            return Reference(field.target(), self._number())
        if self.is_vector:
            return self._pointer().load(0, LANES)
        return self if field.is_table or field.elements > 1 else self._number()

    def store(self, value: object) -> None:
        """Put a value there, which must fit."""
        field, value = self.field, as_computed(self.code, value)
        if field.is_pointer and not field.is_table and isinstance(value, Reference):
            assert callable(field.target)
            if field.target() is value.layout:
                self._pointer().store(value.address)
                return
        elif isinstance(value, Value) and value.type.bits > 1 and not field.is_pointer and not field.row:
            type = Type("u", 8 * field.bytes)
            if value.type.lanes == 1 and field.elements == 1:
                self._pointer().store(value.to(type))
                return
            if self.is_vector and (value.type.lanes == 1 or value.type == type.by(LANES)):
                self._pointer().store(value.to(type).spread(LANES) if value.type.lanes == 1 else value)
                return
        raise TypeError(f"{described(value)} does not fit there")

    def start(self) -> Value:
        """Return the address of the array's first element."""
        return self._number() if self.field.is_pointer else self.address

    def element(self, index: Value) -> Place | Reference:
        """Return an element of the array."""
        field, start = self.field, self.start()
        if callable(field.target):
            if not field.is_table:
                raise TypeError("it is one record, and not an array")
            layout = field.target()
            return Reference(layout, start + index * layout.BYTES)
        if field.is_pointer:
            assert isinstance(field.target, int)
            return Place(self.code, start + index * field.target, Field(field.target, 1, field.target))
        if field.elements == 1:
            raise TypeError("it is one number, and not an array")
        count = max(field.row, 1)
        one = Field(field.bytes, count, field.alignment)
        return Place(self.code, start + index * (field.bytes * count), one)


class Slot:
    """A variable of a function: a number, a condition, a vector, or the address of a record."""

    def __init__(self, code: Code, first: object) -> None:
        self.layout = first.layout if isinstance(first, Reference) else None
        self.variable: Variable = code.variable(self._plain(first))

    def _plain(self, value: object) -> Value:
        plain = value.address if isinstance(value, Reference) else value
        assert isinstance(plain, Value)
        return plain

    def get(self) -> object:
        """Return the value that it has here."""
        value = self.variable.get()
        return Reference(self.layout, value) if self.layout else value

    def set(self, value: object) -> None:
        """Write that it has another value from here on, of the same type."""
        same = value.layout if isinstance(value, Reference) else None
        if same is not self.layout or self._plain(value).type != self.variable.type:
            raise TypeError(f"a variable keeps its type, and {described(value)} is assigned to it")
        self.variable.set(self._plain(value))
