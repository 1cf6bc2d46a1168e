"""LLVM IR written as text: types, constants, and a builder that appends a line for each instruction.

A small part of `llvmlite.ir` under the same names, some ten times faster: a kernel is tens of thousands of
lines. What is written is checked by LLVM when it reads it; `simd.py` is what kernels are written with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any


class Type:
    """An LLVM type; equal ones are one object."""

    __slots__ = ("bytes", "count", "element", "operands", "result", "text")

    def __init__(self, text: str, bytes: int = 0, element: Type | None = None, count: int = 0) -> None:
        self.text, self.bytes, self.element, self.count = text, bytes, element, count
        #: Of functions.
        self.result: Type = self
        self.operands: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return self.text

    @property
    def pointee(self) -> Type:
        """What a pointer leads to."""
        assert self.element is not None, self.text
        return self.element

    def as_pointer(self) -> Type:
        """A pointer to it. LLVM's pointers know no type: it is remembered for loads and steps."""
        return _pointer(self)


@cache
def IntType(bits: int) -> Type:
    """An integer of so many bits."""
    return Type(f"i{bits}", -(-bits // 8))


@cache
def HalfType() -> Type:
    """f16."""
    return Type("half", 2)


@cache
def FloatType() -> Type:
    """f32."""
    return Type("float", 4)


@cache
def DoubleType() -> Type:
    """f64."""
    return Type("double", 8)


@cache
def VoidType() -> Type:
    """What a function without a result returns."""
    return Type("void")


@cache
def VectorType(element: Type, count: int) -> Type:
    """So many of a type, as a value."""
    return Type(f"<{count} x {element.text}>", element.bytes * count, element, count)


@cache
def ArrayType(element: Type, count: int) -> Type:
    """So many of a type, in memory."""
    return Type(f"[{count} x {element.text}]", element.bytes * count, element, count)


@cache
def _pointer(pointee: Type) -> Type:
    return Type("ptr", 8, pointee)


@cache
def _pair(first: Type, second: Type) -> Type:
    made = Type(f"{{{first.text}, {second.text}}}")
    made.operands = (first, second)
    return made


@cache
def _function(result: Type, operands: tuple[Type, ...]) -> Type:
    made = Type(f"{result.text} ({', '.join(each.text for each in operands)})")
    made.result, made.operands = result, operands
    return made


def FunctionType(result: Type, operands: Iterable[Type]) -> Type:
    """A function's."""
    return _function(result, tuple(operands))


BOOL, WORD, LONG, BYTES = IntType(1), IntType(32), IntType(64), IntType(8).as_pointer()
#: Stands for a value that does not matter.
Undefined = object()


class Operand:
    """A value: its type, what it is called in the text, and which other value's bits it has."""

    __slots__ = ("origin", "text", "type")

    def __init__(self, type: Type, text: str, origin: Operand | None = None) -> None:
        self.type, self.text, self.origin = type, text, origin

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"


class Constant(Operand):
    """A number of a type, or a list of them for a vector or an array."""

    __slots__ = ("constant",)

    def __init__(self, type: Type, value: Any) -> None:
        super().__init__(type, _constant_text(type, value))
        self.constant = value


def _constant_text(type: Type, value: Any) -> str:
    if value is Undefined:
        return "undef"
    if isinstance(value, Operand):
        return value.text
    if isinstance(value, list):
        assert type.element is not None
        texts = [_constant_text(type.element, each) for each in value]
        if type.text[0] == "<":
            if texts.count(texts[0]) == len(texts):
                return f"splat ({type.element.text} {texts[0]})"
            return f"<{', '.join(f'{type.element.text} {each}' for each in texts)}>"
        return f"[{', '.join(f'{type.element.text} {each}' for each in texts)}]"
    if type.text in ("float", "double"):
        number = struct.unpack("<f", struct.pack("<f", value))[0] if type.text == "float" else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if type.text == "i1":
        return "true" if value else "false"
    return str(int(value))


class Block:
    """A basic block: lines, and the one that ends it."""

    __slots__ = ("end", "function", "lines", "name")

    def __init__(self, function: Function, name: str) -> None:
        self.function, self.name = function, name
        self.lines: list[Any] = []
        self.end = ""

    @property
    def is_terminated(self) -> bool:
        """Whether it has its last line."""
        return bool(self.end)


class Phi(Operand):
    """A value that depends on where control came from."""

    __slots__ = ("incoming",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.incoming: list[str] = []

    def add_incoming(self, value: Operand, block: Block) -> None:
        """From a block, this value."""
        self.incoming.append(f"[{value.text}, %{block.name}]")

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"

    def line(self) -> str:
        """As it stands in the text."""
        return f"{self.text} = phi {self.type.text} {', '.join(self.incoming)}"


class Switch:
    """A branch by number, to which cases can be added."""

    def __init__(self, block: Block, start: str) -> None:
        self.block, self.start = block, start
        self.cases: list[str] = []
        block.end = f"{start} []"

    def add_case(self, value: Operand, block: Block) -> None:
        """Where a number leads."""
        self.cases.append(f"{value} , label %{block.name}")
        self.block.end = f"{self.start} [{' '.join(self.cases)}]"


class Module:
    """Functions and variables by name."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.globals: dict[str, Any] = {}
        #: What writes the functions that it only declares because they are compiled apart, by name.
        self.apart: dict[str, Callable[[Module, str], None]] = {}

    @property
    def undefined(self) -> list[str]:
        """The functions that it only declares."""
        functions = [each for each in self.globals.values() if isinstance(each, Function)]
        return [each.name for each in functions if not each.blocks]

    def __str__(self) -> str:
        body = "\n".join(each.definition() for each in self.globals.values())
        return f'{body}\n!0 = distinct !{{!0, !{{!"llvm.loop.unroll.disable"}}}}\n'


class Function(Operand):
    """A function: declared, and defined once it has blocks."""

    __slots__ = ("args", "attributes", "blocks", "function_type", "linkage", "module", "name", "names")

    def __init__(self, module: Module, type: Type, name: str) -> None:
        super().__init__(type.as_pointer(), f'@"{name}"')
        self.module, self.name, self.function_type = module, name, type
        self.args = [Operand(each, f"%a{place}") for place, each in enumerate(type.operands)]
        self.attributes: set[str] = set()
        self.blocks: list[Block] = []
        self.linkage = ""
        self.names = 0
        module.globals[name] = self

    @property
    def return_type(self) -> Type:
        """What it returns."""
        return self.function_type.result

    def append_basic_block(self, name: str = "") -> Block:
        """A new block at its end."""
        self.names += 1
        block = Block(self, f"{name}{self.names}")
        self.blocks.append(block)
        return block

    def definition(self) -> str:
        """As it stands in the text."""
        result = self.return_type.text
        if not self.blocks:
            return f"declare {result} {self.text}({', '.join(each.type.text for each in self.args)})"
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
    """Constant data of a module."""

    __slots__ = ("global_constant", "initializer", "linkage", "value_type")

    def __init__(self, module: Module, type: Type, name: str) -> None:
        super().__init__(type.as_pointer(), f'@"{name}"')
        self.value_type, self.linkage, self.global_constant = type, "", False
        self.initializer = Constant(type, Undefined)
        module.globals[name] = self

    def definition(self) -> str:
        """As it stands in the text."""
        kind = "constant" if self.global_constant else "global"
        return f"{self.text} = {self.linkage} {kind} {self.initializer}"


_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
_ORDERED = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "one"}
_UNORDERED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "ueq", "!=": "une"}


class IRBuilder:
    """Writes instructions at the end of a block."""

    def __init__(self, block: Block) -> None:
        self.block, self.function = block, block.function

    def position_at_end(self, block: Block) -> None:
        """Go on there."""
        self.block = block

    @contextmanager
    def goto_entry_block(self) -> Iterator[None]:
        """Write before the end of the first block."""
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
        assert not self.block.end, "nothing can follow the end of a block"
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
        """What is left of a / b, of signed integers."""
        return self.binary("srem", a, b)

    def urem(self, a: Operand, b: Operand) -> Operand:
        """What is left of a / b, of unsigned integers."""
        return self.binary("urem", a, b)

    def _comparison(self, name: str, a: Operand, b: Operand) -> Operand:
        if a.type is not b.type:
            raise TypeError(f"{name} of {a.type} and {b.type}")
        result = VectorType(BOOL, a.type.count) if a.type.count else BOOL
        return self._value(result, f"{name} {a.type.text} {a.text}, {b.text}")

    def icmp_signed(self, operator: str, a: Operand, b: Operand) -> Operand:
        """A comparison."""
        return self._comparison(f"icmp {_SIGNED[operator]}", a, b)

    def icmp_unsigned(self, operator: str, a: Operand, b: Operand) -> Operand:
        """A comparison."""
        return self._comparison(f"icmp {_UNSIGNED[operator]}", a, b)

    def fcmp_ordered(self, operator: str, a: Operand, b: Operand) -> Operand:
        """A comparison that NaN makes false."""
        return self._comparison(f"fcmp {_ORDERED.get(operator, operator)}", a, b)

    def fcmp_unordered(self, operator: str, a: Operand, b: Operand) -> Operand:
        """A comparison that NaN makes true."""
        return self._comparison(f"fcmp {_UNORDERED.get(operator, operator)}", a, b)

    def select(self, condition: Operand, yes: Operand, no: Operand) -> Operand:
        """One or the other."""
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

    def freeze(self, value: Operand) -> Operand:
        """The same value, of which LLVM does not see where it comes from."""
        return self._value(value.type, f"freeze {value}")

    def sext(self, value: Operand, target: Type) -> Operand:
        """Extended by its sign."""
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
        """One element."""
        return self._value(vector.type.pointee, f"extractelement {vector}, {index}")

    def insert_element(self, vector: Operand, value: Operand, index: Operand) -> Operand:
        """With another element."""
        return self._value(vector.type, f"insertelement {vector}, {value}, {index}")

    def shuffle_vector(self, a: Operand, b: Operand, places: Operand) -> Operand:
        """Elements of two vectors, by their places."""
        count = places.type.count
        text = places.text
        if text.startswith("splat"):
            text = f"<{', '.join([text[7:-1]] * count)}>"
        result = VectorType(a.type.pointee, count)
        return self._value(result, f"shufflevector {a}, {b}, {places.type.text} {text}")

    def extract_value(self, pair: Operand, place: int) -> Operand:
        """One half of what `cmpxchg` answers."""
        return self._value(pair.type.operands[place], f"extractvalue {pair}, {place}")

    # memory -----------------------------------------------------------------------------------------------

    def alloca(self, type: Type, count: int = 1, align: int = 0) -> Operand:
        """Room on the stack."""
        more = f", i32 {count}" if count > 1 else ""
        aligned = f", align {align}" if align else ""
        return self._value(type.as_pointer(), f"alloca {type.text}{more}{aligned}")

    def gep(self, pointer: Operand, indices: list[Operand]) -> Operand:
        """So many elements further on."""
        (index,) = indices
        if isinstance(index, Constant) and index.constant == 0:
            return pointer
        return self._value(
            pointer.type, f"getelementptr {pointer.type.pointee.text}, ptr {pointer.text}, {index}"
        )

    def load(self, pointer: Operand, align: int = 0) -> Operand:
        """What lies there."""
        type = pointer.type.pointee
        aligned = f", align {align}" if align else ""
        return self._value(type, f"load {type.text}, ptr {pointer.text}{aligned}")

    def store(self, value: Operand, pointer: Operand, align: int = 0) -> None:
        """Put a value there."""
        aligned = f", align {align}" if align else ""
        self._line(f"store {value.type.text} {value.text}, ptr {pointer.text}{aligned}")

    def load_atomic(self, pointer: Operand, ordering: str, align: int) -> Operand:
        """What lies there, in one piece."""
        type = pointer.type.pointee
        return self._value(type, f"load atomic {type.text}, ptr {pointer.text} {ordering}, align {align}")

    def store_atomic(self, value: Operand, pointer: Operand, ordering: str, align: int) -> None:
        """Put a value there in one piece."""
        self._line(f"store atomic {value}, ptr {pointer.text} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: Operand, value: Operand, ordering: str) -> Operand:
        """Change what lies there in one step; returns what did."""
        return self._value(value.type, f"atomicrmw {operation} ptr {pointer.text}, {value} {ordering}")

    def cmpxchg(
        self, pointer: Operand, expected: Operand, value: Operand, ordering: str, failing: str
    ) -> Operand:
        """Put a value there if the expected one is; returns what was there, and whether it did."""
        return self._value(
            _pair(expected.type, BOOL),
            f"cmpxchg ptr {pointer.text}, {expected}, {value} {ordering} {failing}",
        )

    # control ----------------------------------------------------------------------------------------------

    def call(self, function: Operand, arguments: list[Operand]) -> Operand:
        """Call a function, or a pointer to one."""
        type = function.type.pointee
        given = tuple(each.type for each in arguments)
        if [each.text for each in given] != [each.text for each in type.operands]:
            raise TypeError(f"{function.text} takes {type.operands}, not {given}")
        line = f"call {type.result.text} {function.text}({', '.join(map(str, arguments))})"
        if type.result.text == "void":
            self._line(line)
            return Operand(type.result, "")
        return self._value(type.result, line)

    def phi(self, type: Type) -> Phi:
        """A value to which where it comes from is added later."""
        self.function.names += 1
        made = Phi(type, f"%v{self.function.names}")
        self.block.lines.append(made)
        return made

    def branch(self, target: Block, *, loop: bool = False) -> None:
        """Go on there; back to the head of a `loop` that is not to be unrolled."""
        self._end(f"br label %{target.name}{', !llvm.loop !0' if loop else ''}")

    def cbranch(self, condition: Operand, yes: Block, no: Block) -> None:
        """Go on here or there."""
        self._end(f"br i1 {condition.text}, label %{yes.name}, label %{no.name}")

    def switch(self, value: Operand, otherwise: Block) -> Switch:
        """Go on by a number."""
        return Switch(self.block, f"switch {value}, label %{otherwise.name}")

    @contextmanager
    def if_then(self, condition: Operand) -> Iterator[None]:
        """The body if a condition holds."""
        yes, after = self.function.append_basic_block("if"), self.function.append_basic_block("endif")
        self.cbranch(condition, yes, after)
        self.block = yes
        yield
        if not self.block.end:
            self.branch(after)
        self.block = after

    @contextmanager
    def if_else(self, condition: Operand) -> Iterator[tuple[AbstractContextManager[None], ...]]:
        """A body for a condition that holds and one for when it does not, in this order."""
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
        """Return a value."""
        self._end(f"ret {value}")

    def ret_void(self) -> None:
        """Return."""
        self._end("ret void")
