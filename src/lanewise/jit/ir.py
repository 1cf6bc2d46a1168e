"""LLVM IR written as text: types, constants, modules, and a builder that appends a line for each instruction.

A small part of `llvmlite.ir` under the same names, some ten times faster: a kernel is tens of thousands of
lines. What is written is checked by LLVM when it reads it; `simd.py` is what kernels are written with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
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


class Phi(Operand):
    """A value that depends on which basic block control came from."""

    __slots__ = ("incoming",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.incoming: list[str] = []

    def add_incoming(self, value: Operand, block: Block) -> None:
        """Say which value it has when control comes from a basic block."""
        self.incoming.append(f"[{value.text}, %{block.name}]")

    def line(self) -> str:
        """Return its line of the text, with all basic blocks that were added by now."""
        return f"{self.text} = phi {self.type.text} {', '.join(self.incoming)}"


class Block:
    """A basic block: lines, and the one that ends it."""

    __slots__ = ("end", "function", "lines", "name")

    def __init__(self, function: Function, name: str) -> None:
        self.function, self.name = function, name
        self.lines: list[str | Phi] = []
        self.end = ""


class Module:
    """Functions and variables by name, compiled together."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, GlobalVariable] = {}
        #: What writes the functions that it only declares because they are compiled apart, by name.
        self.apart: dict[str, Callable[[Module, str], None]] = {}

    def __str__(self) -> str:
        variables = [variable.definition() for variable in self.variables.values()]
        functions = [function.definition() for function in self.functions.values()]
        return "\n".join(variables + functions) + '\n!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}\n'


class Function(Operand):
    """A function: declared, and defined once it has basic blocks."""

    __slots__ = ("args", "attributes", "blocks", "function_type", "linkage", "module", "name", "names")

    def __init__(self, module: Module, type: Type, name: str) -> None:
        super().__init__(type.as_pointer(), f'@"{name}"')
        self.module, self.name, self.function_type = module, name, type
        self.args = [Operand(operand, f"%a{place}") for place, operand in enumerate(type.operands)]
        self.attributes: set[str] = set()
        self.blocks: list[Block] = []
        self.linkage = ""
        #: How many names were given to values and basic blocks.
        self.names = 0
        module.functions[name] = self

    @property
    def return_type(self) -> Type:
        """The type of its result, `void` if it has none."""
        return self.function_type.result

    def append_basic_block(self, name: str = "") -> Block:
        """Return a new basic block at the function's end."""
        self.names += 1
        block = Block(self, f"{name}{self.names}")
        self.blocks.append(block)
        return block

    def definition(self) -> str:
        """Return its text: the declaration alone if it has no basic blocks."""
        result = self.return_type.text
        if not self.blocks:
            return f"declare {result} {self.text}({', '.join(argument.type.text for argument in self.args)})"
        lines = [
            f"define {self.linkage} {result} {self.text}({', '.join(map(str, self.args))}) "
            f"{' '.join(sorted(self.attributes))} {{"
        ]
        for block in self.blocks:
            lines.append(f"{block.name}:")
            lines += [line.line() if isinstance(line, Phi) else line for line in block.lines]
            lines.append(block.end or "unreachable")
        lines.append("}")
        return "\n".join(lines)


class GlobalVariable(Operand):
    """Data of a module, constant or not."""

    __slots__ = ("global_constant", "initializer", "linkage", "value_type")

    def __init__(self, module: Module, type: Type, name: str) -> None:
        super().__init__(type.as_pointer(), f'@"{name}"')
        self.value_type, self.linkage, self.global_constant = type, "", False
        self.initializer = Constant(type, Undefined)
        module.variables[name] = self

    def definition(self) -> str:
        """Return its line of the text, with its initial value."""
        kind = "constant" if self.global_constant else "global"
        return f"{self.text} = {self.linkage} {kind} {self.initializer}"


_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
_ORDERED = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "one"}
_UNORDERED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "ueq", "!=": "une"}


class IRBuilder:
    """Writes instructions at the end of a basic block."""

    def __init__(self, block: Block) -> None:
        self.block, self.function = block, block.function

    def position_at_end(self, block: Block) -> None:
        """Write the next instructions at the end of another basic block."""
        self.block = block

    @contextmanager
    def goto_entry_block(self) -> Iterator[None]:
        """Write in the function's first basic block, before the line that ends it."""
        kept, self.block = self.block, self.function.blocks[0]
        yield
        self.block = kept

    # lines ------------------------------------------------------------------------------------------------

    def _line(self, line: str) -> None:
        self.block.lines.append(line)

    def _value(self, type: Type, line: str) -> Operand:
        function = self.function
        function.names += 1
        name = f"%v{function.names}"
        self.block.lines.append(f"{name} = {line}")
        return Operand(type, name)

    def _end(self, line: str) -> None:
        assert not self.block.end, "nothing can follow the end of a basic block"
        self.block.end = line

    # arithmetic -------------------------------------------------------------------------------------------

    def binary(self, name: str, a: Operand, b: Operand) -> Operand:
        """An instruction of two operands by LLVM's name."""
        if a.type is not b.type:
            raise TypeError(f"{name} of {a.type} and {b.type}")
        return self._value(a.type, f"{name} {a.type.text} {a.text}, {b.text}")

    def add(self, a: Operand, b: Operand) -> Operand:
        """a + b, of integers."""
        return self.binary("add", a, b)

    def fdiv(self, a: Operand, b: Operand) -> Operand:
        """a / b, of floats."""
        return self.binary("fdiv", a, b)

    def sdiv(self, a: Operand, b: Operand) -> Operand:
        """a / b, of signed integers."""
        return self.binary("sdiv", a, b)

    def udiv(self, a: Operand, b: Operand) -> Operand:
        """a / b, of unsigned integers."""
        return self.binary("udiv", a, b)

    def srem(self, a: Operand, b: Operand) -> Operand:
        """The remainder of a / b, of signed integers; it has a's sign."""
        return self.binary("srem", a, b)

    def urem(self, a: Operand, b: Operand) -> Operand:
        """The remainder of a / b, of unsigned integers."""
        return self.binary("urem", a, b)

    def _comparison(self, name: str, a: Operand, b: Operand) -> Operand:
        if a.type is not b.type:
            raise TypeError(f"{name} of {a.type} and {b.type}")
        result = VectorType(BOOL, a.type.count) if a.type.count else BOOL
        return self._value(result, f"{name} {a.type.text} {a.text}, {b.text}")

    def icmp_signed(self, operator: str, a: Operand, b: Operand) -> Operand:
        """Compare signed integers by a Python operator, lane by lane."""
        return self._comparison(f"icmp {_SIGNED[operator]}", a, b)

    def icmp_unsigned(self, operator: str, a: Operand, b: Operand) -> Operand:
        """Compare unsigned integers by a Python operator, lane by lane."""
        return self._comparison(f"icmp {_UNSIGNED[operator]}", a, b)

    def fcmp_ordered(self, operator: str, a: Operand, b: Operand) -> Operand:
        """Compare floats by a Python operator; a NaN makes it false. `ord`: neither is a NaN."""
        return self._comparison(f"fcmp {_ORDERED.get(operator, operator)}", a, b)

    def fcmp_unordered(self, operator: str, a: Operand, b: Operand) -> Operand:
        """Compare floats by a Python operator; a NaN makes it true. `uno`: one of them is a NaN."""
        return self._comparison(f"fcmp {_UNORDERED.get(operator, operator)}", a, b)

    def select(self, condition: Operand, yes: Operand, no: Operand) -> Operand:
        """`yes` where the condition holds, else `no`; lane by lane for a vector of conditions."""
        if yes.type is not no.type:
            raise TypeError(f"select of {yes.type} and {no.type}")
        return self._value(
            yes.type, f"select {condition.type.text} {condition.text}, {yes}, {no.type.text} {no.text}"
        )

    # conversions ------------------------------------------------------------------------------------------

    def convert(self, name: str, value: Operand, target: Type) -> Operand:
        """A conversion by LLVM's name."""
        if value.type is target:
            return value
        return self._value(target, f"{name} {value.type.text} {value.text} to {target.text}")

    def sext(self, value: Operand, target: Type) -> Operand:
        """An integer made wider, its sign in the new bits."""
        return self.convert("sext", value, target)

    def bitcast(self, value: Operand, target: Type) -> Operand:
        """The same bits as another type; pointers are all alike."""
        if value.type.text == "ptr":
            return Operand(target, value.text)
        if isinstance(value, Constant):
            return Operand(target, f"bitcast ({value} to {target.text})")
        origin = value.origin or value
        if origin.type is target:
            return origin
        made = self._value(target, f"bitcast {origin} to {target.text}")
        made.origin = origin
        return made

    def inttoptr(self, value: Operand, target: Type) -> Operand:
        """A number as a pointer."""
        return self._value(target, f"inttoptr {value} to ptr")

    def ptrtoint(self, value: Operand, target: Type) -> Operand:
        """A pointer as a number."""
        return self._value(target, f"ptrtoint ptr {value.text} to {target.text}")

    # vectors and pairs ------------------------------------------------------------------------------------

    def extract_element(self, vector: Operand, index: Operand) -> Operand:
        """One element of a vector, as a scalar."""
        return self._value(vector.type.pointee, f"extractelement {vector}, {index}")

    def insert_element(self, vector: Operand, value: Operand, index: Operand) -> Operand:
        """The vector with one of its elements replaced."""
        return self._value(vector.type, f"insertelement {vector}, {value}, {index}")

    def shuffle_vector(self, a: Operand, b: Operand, places: Operand) -> Operand:
        """A vector of elements of two others, chosen by their numbers: those of `b` follow those of `a`."""
        count = places.type.count
        text = places.text
        if text.startswith("splat"):
            text = f"<{', '.join([text[7:-1]] * count)}>"
        result = VectorType(a.type.pointee, count)
        return self._value(result, f"shufflevector {a}, {b}, {places.type.text} {text}")

    def extract_value(self, pair: Operand, place: int) -> Operand:
        """One value of the pair that `cmpxchg` answers with."""
        return self._value(pair.type.operands[place], f"extractvalue {pair}, {place}")

    # memory -----------------------------------------------------------------------------------------------

    def alloca(self, type: Type, count: int | Operand = 1, align: int = 0) -> Operand:
        """Memory on the stack for values of a type; returns the pointer to it."""
        counted = count if isinstance(count, Operand) else f"i32 {count}" if count > 1 else ""
        more = f", {counted}" if counted else ""
        aligned = f", align {align}" if align else ""
        return self._value(type.as_pointer(), f"alloca {type.text}{more}{aligned}")

    def gep(self, pointer: Operand, indices: list[Operand]) -> Operand:
        """The pointer moved by so many elements; the same pointer for a constant zero."""
        (index,) = indices
        if isinstance(index, Constant) and index.constant == 0:
            return pointer
        return self._value(
            pointer.type, f"getelementptr {pointer.type.pointee.text}, ptr {pointer.text}, {index}"
        )

    def load(self, pointer: Operand, align: int = 0) -> Operand:
        """Load the value that a pointer leads to; without `align` the address is a multiple of its size."""
        type = pointer.type.pointee
        aligned = f", align {align}" if align else ""
        return self._value(type, f"load {type.text}, ptr {pointer.text}{aligned}")

    def store(self, value: Operand, pointer: Operand, align: int = 0) -> None:
        """Store a value where a pointer leads to; without `align` the address is a multiple of its size."""
        aligned = f", align {align}" if align else ""
        self._line(f"store {value.type.text} {value.text}, ptr {pointer.text}{aligned}")

    def load_atomic(self, pointer: Operand, ordering: str, align: int) -> Operand:
        """Load a value that other threads may be storing: either the old one or the new, never of both."""
        type = pointer.type.pointee
        return self._value(type, f"load atomic {type.text}, ptr {pointer.text} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: Operand, value: Operand, ordering: str) -> Operand:
        """Change a value in memory in one step, by LLVM's name of the operation; returns the old value."""
        return self._value(value.type, f"atomicrmw {operation} ptr {pointer.text}, {value} {ordering}")

    def cmpxchg(
        self, pointer: Operand, expected: Operand, value: Operand, ordering: str, failing: str
    ) -> Operand:
        """Store a value if the expected one is there, in one step; returns the old one and whether it did."""
        return self._value(
            pair_type(expected.type, BOOL),
            f"cmpxchg ptr {pointer.text}, {expected}, {value} {ordering} {failing}",
        )

    # control ----------------------------------------------------------------------------------------------

    def call(self, function: Operand, arguments: list[Operand]) -> Operand:
        """Call a function, or a pointer to one."""
        type = function.type.pointee
        given = tuple(argument.type for argument in arguments)
        if [value.text for value in given] != [operand.text for operand in type.operands]:
            raise TypeError(f"{function.text} takes {type.operands}, not {given}")
        line = f"call {type.result.text} {function.text}({', '.join(map(str, arguments))})"
        if type.result.text == "void":
            self._line(line)
            return Operand(type.result, "")
        return self._value(type.result, line)

    def phi(self, type: Type) -> Phi:
        """A value that depends on where control came from, which `Phi.add_incoming` says later."""
        self.function.names += 1
        made = Phi(type, f"%v{self.function.names}")
        self.block.lines.append(made)
        return made

    def branch(self, target: Block, *, loop: bool = False) -> None:
        """Go on at a basic block; `loop`: it is the head of a loop that LLVM is not to unroll."""
        self._end(f"br label %{target.name}{', !llvm.loop !0' if loop else ''}")

    def cbranch(self, condition: Operand, yes: Block, no: Block) -> None:
        """Go on at one basic block if a condition holds, at another if not."""
        self._end(f"br i1 {condition.text}, label %{yes.name}, label %{no.name}")

    @contextmanager
    def if_then(self, condition: Operand) -> Iterator[None]:
        """Write the body so that it runs only if a condition holds."""
        yes, after = self.function.append_basic_block("if"), self.function.append_basic_block("endif")
        self.cbranch(condition, yes, after)
        self.block = yes
        yield
        if not self.block.end:
            self.branch(after)
        self.block = after

    @contextmanager
    def if_else(self, condition: Operand) -> Iterator[tuple[AbstractContextManager[None], ...]]:
        """Write two bodies: the first runs if a condition holds, the second if it does not."""
        names = ("if", "else", "endif")
        yes, no, after = (self.function.append_basic_block(name) for name in names)
        self.cbranch(condition, yes, no)

        @contextmanager
        def body(block: Block) -> Iterator[None]:
            self.block = block
            yield
            if not self.block.end:
                self.branch(after)

        yield body(yes), body(no)
        self.block = after

    def ret(self, value: Operand) -> None:
        """End the function with a result."""
        self._end(f"ret {value}")

    def ret_void(self) -> None:
        """End a function that has no result."""
        self._end("ret void")
