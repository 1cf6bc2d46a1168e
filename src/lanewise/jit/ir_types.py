"""Types of LLVM IR, and the values that instructions take: what they are called in the text, and constants.

Equal types are one object, so that a builder compares them with `is`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import Enum
from functools import cache
from weakref import WeakValueDictionary


class Type:
    """An LLVM type; equal ones are one object."""

    __slots__ = ("__weakref__", "_pointer", "bytes", "count", "element", "operands", "result", "text")

    def __init__(self, text: str, bytes: int = 0, element: Type | None = None, count: int = 0) -> None:
        self.text, self.bytes, self.element, self.count = text, bytes, element, count
        #: Of functions.
        self.result: Type = self
        self.operands: tuple[Type, ...] = ()
        self._pointer: Type | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def pointee(self) -> Type:
        """The type that a pointer leads to, and that a vector or an array is made of."""
        assert self.element is not None, self.text
        return self.element

    def as_pointer(self) -> Type:
        """Return the pointer to this type. LLVM's own know no type: it is remembered for loads and steps."""
        if self._pointer is None:
            self._pointer = Type("ptr", 8, self)
        return self._pointer


@cache
def IntType(bits: int) -> Type:
    """Return the integer of so many bits; LLVM's integers have no sign, its instructions do."""
    return Type(f"i{bits}", -(-bits // 8))


@cache
def HalfType() -> Type:
    """Return LLVM's `half`, the format f16."""
    return Type("half", 2)


@cache
def FloatType() -> Type:
    """Return LLVM's `float`, the format f32."""
    return Type("float", 4)


@cache
def DoubleType() -> Type:
    """Return LLVM's `double`, the format f64."""
    return Type("double", 8)


@cache
def VoidType() -> Type:
    """Return the type that functions without a result have for a result."""
    return Type("void")


@cache
def VectorType(element: Type, count: int) -> Type:
    """Return the vector of so many elements: one value, in registers."""
    return Type(f"<{count} x {element.text}>", element.bytes * count, element, count)


#: Array types that are in use. There are as many as lengths of tables, so those of finished code are dropped.
_ARRAYS: WeakValueDictionary[tuple[Type, int], Type] = WeakValueDictionary()


def ArrayType(element: Type, count: int) -> Type:
    """Return the array of so many elements, which lies in memory."""
    array_type = _ARRAYS.get((element, count))
    if array_type is None:
        text = f"[{count} x {element.text}]"
        array_type = _ARRAYS.setdefault((element, count), Type(text, element.bytes * count, element, count))
    return array_type


@cache
def pair_type(first: Type, second: Type) -> Type:
    """Return the structure of two values, which `cmpxchg` answers with."""
    made = Type(f"{{{first.text}, {second.text}}}")
    made.operands = (first, second)
    return made


@cache
def _function_type(result: Type, operands: tuple[Type, ...]) -> Type:
    made = Type(f"{result.text} ({', '.join(operand.text for operand in operands)})")
    made.result, made.operands = result, operands
    return made


def FunctionType(result: Type, operands: Iterable[Type]) -> Type:
    """Return the type of functions that take these operands and return such a result."""
    return _function_type(result, tuple(operands))


BOOL, WORD, LONG, BYTES = IntType(1), IntType(32), IntType(64), IntType(8).as_pointer()


class UndefinedValue(Enum):
    """The type of `Undefined`."""

    UNDEFINED = "undef"


#: Stands for a value that does not matter.
Undefined = UndefinedValue.UNDEFINED


class Operand:
    """A value: its type, what it is called in the text, and which other value's bits it has."""

    __slots__ = ("origin", "text", "type")

    def __init__(self, type: Type, text: str, origin: Operand | None = None) -> None:
        self.type, self.text, self.origin = type, text, origin

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"


#: What an element of a constant is: a number, a value whose text is known, or one that does not matter.
Element = int | float | Operand | UndefinedValue
#: What a constant is made of: one element, or the list of a vector's or an array's.
Content = Element | list[int] | list[float] | list[Operand] | list[int | Operand] | list["Content"]


class Constant(Operand):
    """A number of a type, or a list of them for a vector or an array."""

    __slots__ = ("constant",)

    def __init__(self, type: Type, value: Content) -> None:
        super().__init__(type, _constant_text(type, value))
        self.constant = value


def _constant_text(type: Type, value: Content) -> str:
    if value is Undefined:
        return "undef"
    if isinstance(value, Operand):
        return value.text
    if isinstance(value, list):
        assert type.element is not None
        # Kernels' data are long lists of plain integers, so these take the shortest way.
        plain = type.element.text in ("i8", "i16", "i32", "i64")
        texts = [
            str(item) if plain and item.__class__ is int else _constant_text(type.element, item)
            for item in value
        ]
        if type.text[0] == "<":
            if texts.count(texts[0]) == len(texts):
                return f"splat ({type.element.text} {texts[0]})"
            return f"<{', '.join(f'{type.element.text} {text}' for text in texts)}>"
        return f"[{', '.join(f'{type.element.text} {text}' for text in texts)}]"
    if type.text in ("float", "double"):
        number = struct.unpack("<f", struct.pack("<f", value))[0] if type.text == "float" else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if type.text == "i1":
        return "true" if value else "false"
    return str(int(value))
