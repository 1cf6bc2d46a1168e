"""Writes instructions of LLVM IR: a method for each, which appends a line to a basic block.

The methods have llvmlite's names. They check the types of operands, in which mistakes are easily made; LLVM
checks the rest when it reads the text.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lanewise.jit.ir_module import Block, Phi
from lanewise.jit.ir_types import BOOL, Constant, Operand, Type, VectorType, pair_type

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

    def alloca(self, type: Type, count: int = 1, align: int = 0) -> Operand:
        """Memory on the stack for values of a type; returns the pointer to it."""
        more = f", i32 {count}" if count > 1 else ""
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
