"""Records in memory that compiled code and Python agree on: declared field by field, offsets computed.

A class holds the offsets: `WarpClock.synced` is a number of bytes. To a type checker an instance holds the
fields: in a function of `restricted_python.py` whose parameter is `clock: WarpClock`, `clock.synced` is a
number and `clock.seen[3]` an element. There are no instances; such functions are only compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, cast, overload

#: Lanes of a warp, the elements of a vector.
LANES = 32


class Numbers(Protocol):
    """An array of numbers, as a compiled function sees it. Elements of fewer than 64 bits are unsigned."""

    def __getitem__(self, index: int) -> int: ...

    def __setitem__(self, index: int, value: int) -> None: ...


class Conditions(Protocol):
    """A condition for each lane."""

    def __and__(self, other: Conditions) -> Conditions: ...

    def __or__(self, other: Conditions) -> Conditions: ...

    def __invert__(self) -> Conditions: ...


class Vector(Numbers, Protocol):
    """A number for each lane; numbers beside it count for every lane, and comparisons are unsigned."""

    def __add__(self, other: Self | int) -> Self: ...

    def __sub__(self, other: Self | int) -> Self: ...

    def __and__(self, other: Self | int) -> Self: ...

    def __or__(self, other: Self | int) -> Self: ...

    def __xor__(self, other: Self | int) -> Self: ...

    def __invert__(self) -> Self: ...

    def __rshift__(self, other: Self | int) -> Self: ...

    def __lshift__(self, other: Self | int) -> Self: ...

    def __lt__(self, other: Self | int) -> Conditions: ...

    def __le__(self, other: Self | int) -> Conditions: ...

    def __gt__(self, other: Self | int) -> Conditions: ...

    def __ge__(self, other: Self | int) -> Conditions: ...

    def __eq__(self, other: Self | int) -> Conditions: ...  # type: ignore[override]  # lane by lane

    def __ne__(self, other: Self | int) -> Conditions: ...  # type: ignore[override]  # lane by lane


class Words(Vector, Protocol):
    """A 32-bit number for each lane."""


class Longs(Vector, Protocol):
    """A 64-bit number for each lane."""


R = TypeVar("R", bound="RecordLayout")
A_co = TypeVar("A_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class Rows(Protocol):
    """Several vectors, one after the other."""

    def __getitem__(self, index: int) -> Words: ...

    def __setitem__(self, index: int, value: Words | int) -> None: ...


class Table(Protocol[A_co]):
    """An array of records."""

    def __getitem__(self, index: int) -> A_co: ...


class Declared(Protocol[A_co]):
    """A declared field that is not one number: its offset in the class, what it holds in a record."""

    @overload
    def __get__(self, record: None, owner: type) -> int: ...

    @overload
    def __get__(self, record: RecordLayout, owner: type) -> A_co: ...


class Assigned(Protocol[A_co, V_contra]):
    """A declared vector or pointer, to which another may be assigned."""

    @overload
    def __get__(self, record: None, owner: type) -> int: ...

    @overload
    def __get__(self, record: RecordLayout, owner: type) -> A_co: ...

    def __set__(self, record: RecordLayout, value: V_contra) -> None: ...


AssignedWords = Assigned[Words, Words | int]
AssignedLongs = Assigned[Longs, Longs | int]


class Field(NamedTuple):
    """A declared field: its size and alignment, its offset once the class is complete, what it leads to."""

    bytes: int
    elements: int
    alignment: int
    offset: int = -1
    #: The elements of one row, if a field has several rows.
    row: int = 0
    #: Which record it points to (`is_pointer`), or is made of; or the bytes of the numbers that it points to.
    target: Callable[[], type[RecordLayout]] | int | None = None
    is_pointer: bool = False
    #: Whether it points to, or is, an array of records or numbers.
    is_table: bool = False


@overload
def field(bytes: int = 8) -> int: ...


@overload
def field(bytes: int = 8, elements: int = ..., alignment: int = ...) -> Declared[Numbers]: ...


def field(bytes: int = 8, elements: int = 1, alignment: int = 0) -> int | Declared[Numbers]:
    """Declare a field of a record; when the class is complete, its attribute holds the field's offset."""
    return cast(int, Field(bytes, elements, alignment or bytes))


@overload
def per_lane(bytes: Literal[1, 4] = 4) -> AssignedWords: ...


@overload
def per_lane(bytes: Literal[8]) -> AssignedLongs: ...


@overload
def per_lane(bytes: Literal[4] = 4, elements: int = ...) -> Declared[Rows]: ...


def per_lane(bytes: int = 4, elements: int = 1) -> AssignedWords | AssignedLongs | Declared[Rows]:
    """Declare a field with some elements for each lane of a warp, aligned for vector loads and stores."""
    row = LANES if elements > 1 else 0
    return cast(AssignedWords, Field(bytes, LANES * elements, min(bytes * LANES, 64), row=row))


def pointer(target: Callable[[], type[R]]) -> Assigned[R, R]:
    """Declare a field with the address of a record, whose class a function returns: it may come later."""
    return cast(Assigned[R, R], Field(8, 1, 8, target=target, is_pointer=True))


def table(target: Callable[[], type[R]]) -> Declared[Table[R]]:
    """Declare a field with the address of an array of records."""
    return cast(Declared[Table[R]], Field(8, 1, 8, target=target, is_pointer=True, is_table=True))


def numbers(bytes: int) -> Declared[Numbers]:
    """Declare a field with the address of an array of unsigned numbers of some bytes."""
    return cast(Declared[Numbers], Field(8, 1, 8, target=bytes, is_pointer=True, is_table=True))


def embedded(target: type[R], count: int) -> Declared[Table[R]]:
    """Declare a field that is an array of so many records."""
    return cast(
        Declared[Table[R]],
        Field(8, count * target.BYTES // 8, 64, target=lambda: target, is_table=True),
    )


class RecordLayout:
    """The layout of a record in memory: attributes that `field` declares become offsets in bytes."""

    BYTES: ClassVar[int]
    FIELDS: ClassVar[dict[str, Field]]

    def __init_subclass__(cls) -> None:
        offset, alignment = 0, 8
        cls.FIELDS = {}
        for name, declared in list(vars(cls).items()):
            if isinstance(declared, Field):
                offset = aligned(offset, declared.alignment)
                cls.FIELDS[name] = declared._replace(offset=offset)
                setattr(cls, name, offset)
                offset += declared.bytes * declared.elements
                alignment = max(alignment, declared.alignment)
        cls.BYTES = aligned(offset, alignment)

    @classmethod
    def at(cls, address: int) -> Self:
        """In a compiled function: the record at an address."""
        raise TypeError("only compiled functions have records")

    @classmethod
    def on_stack(cls) -> Self:
        """In a compiled function: a new record on the stack, whose content is arbitrary."""
        raise TypeError("only compiled functions have records")


def aligned(size: int, alignment: int) -> int:
    """Return a size rounded up to a multiple of an alignment.

    >>> aligned(13, 8)
    16
    """
    return -(-size // alignment) * alignment
