"""Declarations of compiled functions: names and types of parameters, checked at every call that is written.

A function is declared once, by a Python function whose annotations are its types: `int` is a 64-bit number,
`bool` a condition, a `RecordLayout` the address of such a record; `Words`, `Longs` and `Conditions` are
vectors with an element for each lane. `restricted_python.py` compiles its body, or Python code writes LLVM IR
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NoReturn, ParamSpec, TypeVar, get_type_hints

from lanewise.jit import ir
from lanewise.jit.record_layout import LANES, Conditions, Longs, RecordLayout, Words
from lanewise.jit.simd import Code, Type, Value, i64, u32, u64

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
CONDITION = Type("u", 1)
_VECTORS: dict[type, Type] = {Words: u32.by(LANES), Longs: u64.by(LANES), Conditions: CONDITION.by(LANES)}


class Reference:
    """The address of a record whose layout is known, in code being written."""

    def __init__(self, layout: type[RecordLayout], address: Value) -> None:
        self.layout, self.address = layout, address


class Fields:
    """Something with named fields that is no record: a subclass says how code reads and writes them."""

    def get(self, name: str) -> Value:
        """Write the code that reads a field."""
        raise KeyError(name)

    def set(self, name: str, value: Value) -> None:
        """Write the code that changes a field."""
        raise KeyError(name)


#: What an argument is while code is written: a number known by then, or what code computes.
Argument = int | bool | Value | Reference | Fields | None


class Kind(Enum):
    """Parameters and results that are neither records nor vectors."""

    NUMBER = "a number"
    CONDITION = "a condition"
    NOTHING = "nothing"


#: The type of a parameter or a result.
Annotation = Kind | type


def kind_of(annotation: object, where: str) -> Annotation:
    """Return the type that an annotation stands for."""
    kinds: dict[object, Annotation] = {
        int: Kind.NUMBER,
        bool: Kind.CONDITION,
        None: Kind.NOTHING,
        type(None): Kind.NOTHING,
    }
    if annotation in kinds:
        return kinds[annotation]
    if annotation in _VECTORS or (
        isinstance(annotation, type) and issubclass(annotation, RecordLayout | Fields)
    ):
        assert isinstance(annotation, type)
        return annotation
    raise TypeError(
        f"{where} is annotated with {annotation}; int, bool, a record's class, Words, Longs and Conditions "
        "are allowed"
    )


def described(argument: object) -> str:
    """Return what an argument is, in words."""
    if isinstance(argument, bool):
        return "a condition"
    if isinstance(argument, int):
        return "a number"
    if isinstance(argument, Reference):
        return f"a record {argument.layout.__name__}"
    if isinstance(argument, Value):
        if argument.type.lanes > 1:
            return (
                "conditions of lanes" if argument.type.bits == 1 else f"a vector of {argument.type.bits} bits"
            )
        return "a condition" if argument.type.bits == 1 else "a number"
    return "nothing" if argument is None else f"{argument!r}"


def _name(kind: Annotation) -> str:
    if isinstance(kind, Kind):
        return kind.value
    if kind in _VECTORS:
        return f"a vector {kind.__name__}"
    return f"a record {kind.__name__}"


def fits(argument: object, kind: Annotation) -> bool:
    """Return whether an argument has a type."""
    if kind is Kind.NUMBER:
        return (isinstance(argument, int) and not isinstance(argument, bool)) or (
            isinstance(argument, Value) and argument.type.bits == 64 and argument.type.lanes == 1
        )
    if kind is Kind.CONDITION:
        return isinstance(argument, bool) or (isinstance(argument, Value) and argument.type == CONDITION)
    if kind is Kind.NOTHING:
        return argument is None
    assert isinstance(kind, type)
    if kind in _VECTORS:
        return isinstance(argument, Value) and argument.type.by(LANES) == _VECTORS[kind] == argument.type
    if issubclass(kind, Fields):
        return isinstance(argument, kind)
    return isinstance(argument, Reference) and argument.layout is kind


class Declared(Generic[P, T]):
    """A function that code being written may call; from Python it cannot be called."""

    def __init__(self, python: Callable[P, T], name: str = "") -> None:
        self.python, self.name = python, name or python.__name__
        self.__doc__, self.__name__, self.__module__ = python.__doc__, python.__name__, python.__module__
        self._signature: tuple[dict[str, Annotation], Annotation] | None = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> T:
        raise TypeError(f"{self.name} is compiled; only other compiled functions call it")

    @property
    def signature(self) -> tuple[dict[str, Annotation], Annotation]:
        """The types of the parameters by name, and of the result."""
        if self._signature is None:
            hints = get_type_hints(self.python)
            code = self.python.__code__
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            missing = [name for name in (*names, "return") if name not in hints]
            if missing:
                raise TypeError(f"{self.name} has no annotation for {', '.join(missing)}")
            kinds = {name: kind_of(hints[name], f"`{name}` of {self.name}") for name in names}
            self._signature = kinds, kind_of(hints["return"], f"the result of {self.name}")
        return self._signature

    def bind(self, arguments: list[object], named: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name; a call that does not fit the declaration is a TypeError."""
        kinds, _ = self.signature
        takes = f"{self.name}({', '.join(kinds)})"
        if len(arguments) > len(kinds):
            raise TypeError(f"{takes} takes {len(kinds)} arguments, and {len(arguments)} are given")
        bound = dict(zip(kinds, arguments, strict=False))
        for name, value in named.items():
            if name not in kinds:
                raise TypeError(f"{takes} has no parameter `{name}`")
            if name in bound:
                raise TypeError(f"{takes} is given `{name}` twice")
            bound[name] = value
        missing = [kind for kind in kinds if kind not in bound]
        if missing:
            raise TypeError(f"the call of {takes} lacks {', '.join(f'`{name}`' for name in missing)}")
        for name, kind in kinds.items():
            if not fits(bound[name], kind):
                raise TypeError(
                    f"`{name}` of {takes} is {_name(kind)}, and {described(bound[name])} is given"
                )
        return bound


class Primitive(Declared[P, T]):
    """A function whose code Python writes in place, for what the restricted Python cannot say."""

    def __init__(self, python: Callable[P, T], write: Callable[..., Argument]) -> None:
        super().__init__(python)
        self.write = write

    def written(self, code: Code, bound: Mapping[str, object]) -> Argument:
        """Write its code; return its result."""
        kinds, result = self.signature
        made = self.write(code, *(as_computed(code, bound[kind]) for kind in kinds))
        if not fits(made, result):
            raise TypeError(f"{self.name} returns {described(made)}, and {_name(result)} is declared")
        return made


def signature_only() -> NoReturn:
    """Stand for the body of a function that is declared by its signature: its decorator writes the code."""
    raise TypeError("a function that is declared by its signature has no Python of its own")


def primitive(write: Callable[..., Argument]) -> Callable[[Callable[P, T]], Primitive[P, T]]:
    """Declare a function by its signature; `write(code, *arguments)` writes its code, returns its result."""
    return lambda python: Primitive(python, write)


class Function(Declared[P, T]):
    """A function of a module of LLVM IR: of 64-bit numbers, whatever its parameters stand for."""

    def __init__(
        self,
        python: Callable[P, T],
        write: Callable[[Library, Function[P, T]], None],
        name: str = "",
        external: bool = False,
        attributes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(python, name)
        self.write, self.external, self.attributes = write, external, attributes

    def call(self, code: Code, *arguments: object, **named: object) -> Argument:
        """Write a call; it is checked against the declaration. Returns the result."""
        bound = self.bind(list(arguments), named)
        function = Library.of(code.module).declared(self)
        handles = [as_number(code, bound[name]).handle for name in self.signature[0]]
        answer = Value(code, i64, code.builder.call(function, handles))
        return from_number(answer, self.signature[1])


class Library(ir.Module):
    """A module of compiled functions: those that are called from it are written into it, each once."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._declared: dict[str, Function[..., object]] = {}
        self._unwritten: list[Function[..., object]] = []

    @staticmethod
    def of(module: ir.Module) -> Library:
        """Return a module as a library, which it must be."""
        assert isinstance(module, Library), "compiled functions call each other within a library"
        return module

    def declared(self, function: Function[..., T]) -> ir.Function:
        """Return a function of the module; its body is written by `finish`."""
        existing = self._declared.get(function.name)
        if existing is None:
            if function.name in self.functions:
                raise TypeError(f"the module has another function {function.name}")
            kinds, _ = function.signature
            made = ir.Function(self, ir.FunctionType(ir.LONG, [ir.LONG] * len(kinds)), function.name)
            # Not "internal": the linker of machine code takes a local symbol of another module for its own.
            made.linkage = "" if function.external else "private"
            made.attributes.update(function.attributes)
            self._declared[function.name] = function
            self._unwritten.append(function)
        elif existing is not function:
            raise TypeError(f"two functions are called {function.name}")
        return self.functions[function.name]

    def finish(self) -> None:
        """Write the bodies of all functions that were declared, and of those that they call."""
        while self._unwritten:
            function = self._unwritten.pop()
            function.write(self, function)


class FunctionBody(Code):
    """The body of a compiled function while it is written."""

    unrolled = False  # unrolling would only take time to compile

    def __init__(self, library: Library, declared: Function[..., T]) -> None:
        self.module, self.name = library, declared.name
        self.function = library.declared(declared)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        body = self.function.append_basic_block("body")
        self.builder.branch(body)
        self.builder.position_at_end(body)
        kinds, self.result = declared.signature
        names_and_handles = zip(kinds, self.function.args, strict=True)
        self._arguments = {name: Value(self, i64, handle) for name, handle in names_and_handles}
        #: The parameters, as what they are declared to be.
        self.bound: dict[str, object] = {
            name: from_number(self._arguments[name], kind) for name, kind in kinds.items()
        }

    def returns(self, value: object) -> None:
        """Write that the function returns a value, of the declared type."""
        if not fits(value, self.result):
            raise TypeError(f"{self.name} returns {described(value)}, and {_name(self.result)} is declared")
        number = self.constant(i64, 0) if value is None else as_number(self, value)
        self.builder.ret(number.handle)


def as_computed(code: Code, argument: object) -> object:
    """Return an argument with numbers that are known as constants of the code."""
    if isinstance(argument, bool):
        return code.constant(CONDITION, int(argument))
    if isinstance(argument, int):
        return code.constant(i64, argument)
    return argument


def as_number(code: Code, argument: object) -> Value:
    """Return an argument as the 64-bit number that stands for it in a call."""
    argument = as_computed(code, argument)
    if isinstance(argument, Reference):
        return argument.address
    if isinstance(argument, Value) and argument.type.lanes == 1:
        return argument.to(i64) if argument.type.bits == 64 else argument.to(u64).to(i64)
    raise TypeError(f"{described(argument)} cannot be passed to a function, or returned from it")


def from_number(number: Value, kind: Annotation) -> Argument:
    """Return what a 64-bit number stands for."""
    if kind is Kind.NUMBER:
        return number
    if kind is Kind.CONDITION:
        return number.differs(0)
    if kind is Kind.NOTHING:
        return None
    if isinstance(kind, type) and issubclass(kind, RecordLayout):
        return Reference(kind, number)
    raise TypeError(f"{_name(kind)} cannot be passed to a function, or returned from it")
