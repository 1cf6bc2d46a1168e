"""Explicit vector code: typed values whose Python operators write LLVM IR, with loops and conditions.

A kernel written with it says which vectors it wants instead of hoping for a vectoriser. Compiling the module
and keeping it on disk is `machine_code.py`; what the kernels compute is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from lanewise.jit import ir

Kind = Literal["i", "u", "f"]


@dataclass(frozen=True)
class Type:
    """Signed or unsigned integers or floats of some width, one or a vector of them."""

    kind: Kind
    bits: int
    lanes: int = 1

    @property
    def ir(self) -> ir.Type:
        """The type as LLVM has it, which does not tell signed integers from unsigned ones."""
        return _llvm_type(self)

    @property
    def name(self) -> str:
        """The name LLVM's intrinsics give it, as in v4f32."""
        element = f"{'f' if self.kind == 'f' else 'i'}{self.bits}"
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    def by(self, lanes: int) -> Type:
        """The vector of so many elements of this type, or one element for 1."""
        return self if lanes == self.lanes else _type(self.kind, self.bits, lanes)


@cache
def _type(kind: Kind, bits: int, lanes: int) -> Type:
    return Type(kind, bits, lanes)


@cache
def _llvm_type(type: Type) -> ir.Type:
    if type.kind == "f":
        element = {16: ir.HalfType, 32: ir.FloatType, 64: ir.DoubleType}[type.bits]()
    else:
        element = ir.IntType(type.bits)
    return element if type.lanes == 1 else ir.VectorType(element, type.lanes)


@lru_cache(maxsize=1 << 13)
def _integer(type: Type, number: int) -> ir.Constant:
    """Return a constant of an integer type in every lane; kernels use the same few thousands of times."""
    if type.bits > 1:
        number = (number + (1 << type.bits - 1)) % (1 << type.bits) - (1 << type.bits - 1)
    return ir.Constant(type.ir, number if type.lanes == 1 else [number] * type.lanes)


i8, i16, i32, i64 = (Type("i", bits) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (Type("u", bits) for bits in (8, 16, 32, 64))
f32, f64 = Type("f", 32), Type("f", 64)
_BOOL = Type("u", 1)


class Value:
    """A value in the code being written. Plain numbers beside it take its type; scalars spread to vectors."""

    def __init__(self, code: Code, type: Type, handle: ir.Operand) -> None:
        self.code, self.type, self.handle = code, type, handle

    def _with(self, other: Value | int | float) -> tuple[ir.Operand, ir.Operand, Type]:
        """Both operands in one type."""
        if not isinstance(other, Value):
            other = self.code.constant(self.type, other)
        left, right = self, other
        if left.type.lanes != right.type.lanes:
            lanes = max(left.type.lanes, right.type.lanes)
            left, right = left.spread(lanes), right.spread(lanes)
        assert (left.type.kind, left.type.bits) == (right.type.kind, right.type.bits), (left.type, right.type)
        return left.handle, right.handle, left.type

    def _binary(self, other: Value | int | float, on_integers: str, on_floats: str = "") -> Value:
        left, right, type = self._with(other)
        name = on_floats if type.kind == "f" else on_integers
        return Value(self.code, type, self.code.builder.binary(name, left, right))

    def __add__(self, other: Value | int | float) -> Value:
        return self._binary(other, "add", "fadd")

    def __sub__(self, other: Value | int | float) -> Value:
        return self._binary(other, "sub", "fsub")

    def __rsub__(self, other: int | float) -> Value:
        return self.code.constant(self.type, other) - self

    def __mul__(self, other: Value | int | float) -> Value:
        return self._binary(other, "mul", "fmul")

    __radd__, __rmul__ = __add__, __mul__

    def __and__(self, other: Value | int) -> Value:
        return self._binary(other, "and")

    def __or__(self, other: Value | int) -> Value:
        return self._binary(other, "or")

    def __xor__(self, other: Value | int) -> Value:
        return self._binary(other, "xor")

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary(other, "shl")

    def __rshift__(self, other: Value | int) -> Value:
        return self._binary(other, "lshr" if self.type.kind == "u" else "ashr")

    def __floordiv__(self, other: Value) -> Value:
        return Value(self.code, self.type, self.code.builder.sdiv(self.handle, other.handle))

    def __mod__(self, other: Value) -> Value:
        return Value(self.code, self.type, self.code.builder.srem(self.handle, other.handle))

    def __invert__(self) -> Value:
        return self ^ -1

    def _compare(self, operator: str, other: Value | int | float) -> Value:
        left, right, type = self._with(other)
        if type.kind == "f":
            handle = self.code.builder.fcmp_ordered(operator, left, right)
        elif type.kind == "u":
            handle = self.code.builder.icmp_unsigned(operator, left, right)
        else:
            handle = self.code.builder.icmp_signed(operator, left, right)
        return Value(self.code, _BOOL.by(type.lanes), handle)

    def __lt__(self, other: Value | int | float) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Value | int | float) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Value | int | float) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Value | int | float) -> Value:
        return self._compare(">=", other)

    def equals(self, other: Value | int | float) -> Value:
        """Lane by lane; a NaN equals nothing."""
        return self._compare("==", other)

    def differs(self, other: Value | int | float) -> Value:
        """Lane by lane, of integers."""
        return self._compare("!=", other)

    def select(self, yes: Value, no: Value | int | float) -> Value:
        """`yes` in the lanes where this condition holds, else `no`."""
        left, right, type = yes._with(no)
        condition = self.spread(type.lanes).handle if type.lanes > 1 else self.handle
        return Value(self.code, type, self.code.builder.select(condition, left, right))

    def mask(self, type: Type) -> Value:
        """This condition as integers: all ones where it holds."""
        return Value(self.code, type, self.code.builder.sext(self.handle, type.ir))

    def any(self) -> Value:
        """Whether the condition holds in some lane."""
        if self.type.lanes == 1:
            return self
        return self.code.intrinsic("vector.reduce.or", _BOOL, [self], of=self.type)

    def to(self, target: Type) -> Value:
        """Converted in value: integers extend by their own sign, floats to integers truncate toward zero."""
        source, target = self.type, target.by(self.type.lanes)
        if (source.kind == "f") == (target.kind == "f"):
            if source.bits == target.bits:
                return Value(self.code, target, self.handle)
            narrow = target.bits < source.bits
            if source.kind == "f":
                method = "fptrunc" if narrow else "fpext"
            else:
                method = "trunc" if narrow else ("zext" if source.kind == "u" else "sext")
        elif source.kind == "f":
            method = "fptoui" if target.kind == "u" else "fptosi"
        else:
            method = "uitofp" if source.kind == "u" else "sitofp"
        return Value(self.code, target, self.code.builder.convert(method, self.handle, target.ir))

    def view(self, target: Type) -> Value:
        """The same bits as another type of the same width."""
        target = target.by(self.type.lanes)
        assert target.bits == self.type.bits
        if (target.kind == "f") == (self.type.kind == "f"):
            return Value(self.code, target, self.handle)
        return Value(self.code, target, self.code.builder.bitcast(self.handle, target.ir))

    def spread(self, lanes: int) -> Value:
        """A scalar in every lane of a vector."""
        if self.type.lanes == lanes:
            return self
        assert self.type.lanes == 1, self.type
        builder, type = self.code.builder, self.type.by(lanes)
        if isinstance(self.handle, ir.Constant):
            return Value(self.code, type, ir.Constant(type.ir, [self.handle.constant] * lanes))
        undefined = ir.Constant(type.ir, ir.Undefined)
        first = builder.insert_element(undefined, self.handle, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return Value(self.code, type, builder.shuffle_vector(first, undefined, zeros))

    def lane(self, index: int) -> Value:
        """One lane as a scalar."""
        handle = self.code.builder.extract_element(self.handle, ir.Constant(ir.IntType(32), index))
        return Value(self.code, self.type.by(1), handle)

    def part(self, start: int, lanes: int) -> Value:
        """So many neighbouring lanes from `start` on, as a shorter vector."""
        indices = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(start, start + lanes)))
        handle = self.code.builder.shuffle_vector(
            self.handle, ir.Constant(self.type.ir, ir.Undefined), indices
        )
        return Value(self.code, self.type.by(lanes), handle)

    def _intrinsic(self, other: Value | int, name: str) -> Value:
        left, right, type = self._with(other)
        return self.code.intrinsic(name, type, [Value(self.code, type, left), Value(self.code, type, right)])

    def max(self, other: Value | int) -> Value:
        """The larger, of integers."""
        return self._intrinsic(other, "umax" if self.type.kind == "u" else "smax")

    def saturating_add(self, other: Value) -> Value:
        """The sum of signed integers, clamped to their range."""
        return self._intrinsic(other, "sadd.sat")


class Variable:
    """A value that changes: kept in a stack slot, which LLVM turns back into registers."""

    def __init__(self, code: Code, value: Value) -> None:
        self.code, self.type = code, value.type
        with code.builder.goto_entry_block():
            self.slot = code.builder.alloca(value.type.ir)
        self.set(value)

    def get(self) -> Value:
        """The value that was set last on the way to here."""
        return Value(self.code, self.type, self.code.builder.load(self.slot))

    def set(self, value: Value) -> None:
        """From here on, this value."""
        assert value.type == self.type, (value.type, self.type)
        self.code.builder.store(value.handle, self.slot)


class Pointer:
    """Memory that holds elements of one type, addressed by element."""

    def __init__(self, code: Code, type: Type, handle: ir.Operand) -> None:
        self.code, self.type, self.handle = code, type, handle

    def __add__(self, elements: Value | int) -> Pointer:
        size = self.type.bits // 8
        offset = elements * size if isinstance(elements, Value) else self.code.constant(i64, elements * size)
        return Pointer(self.code, self.type, self.code.builder.gep(self.handle, [offset.handle]))

    def moved(self, bytes: Value) -> Pointer:
        """So many bytes further on."""
        return Pointer(self.code, self.type, self.code.builder.gep(self.handle, [bytes.handle]))

    def _typed(self, type: Type) -> ir.Operand:
        return self.code.builder.bitcast(self.handle, type.ir.as_pointer())

    def load(self, offset: Value | int = 0, lanes: int = 1) -> Value:
        """One element, or so many neighbouring ones."""
        type = self.type.by(lanes)
        handle = self.code.builder.load((self + offset)._typed(type), align=self.type.bits // 8)
        return Value(self.code, type, handle)

    def store(self, value: Value, offset: Value | int = 0) -> None:
        """Put one element or a vector of them there."""
        assert value.type.bits == self.type.bits, (value.type, self.type)
        target = (self + offset)._typed(value.type)
        self.code.builder.store(value.handle, target, align=self.type.bits // 8)


class Code:
    """A function being written: `void name(int64 *arguments)`, the arguments found by name."""

    #: Whether LLVM may unroll its loops.
    unrolled = True

    def __init__(self, module: ir.Module, name: str, arguments: tuple[str, ...]) -> None:
        self.module = module
        pointer = ir.IntType(64).as_pointer()
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), name)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        body = self.function.append_basic_block("body")
        self._arguments: dict[str, Value] = {}
        for index, argument in enumerate(arguments):
            place = self.builder.gep(self.function.args[0], [ir.Constant(ir.IntType(64), index)])
            self._arguments[argument] = Value(self, i64, self.builder.load(place))
        self.builder.branch(body)
        self.builder.position_at_end(body)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments' names, in order."""
        return tuple(self._arguments)

    __iter__ = None

    def __getitem__(self, argument: str) -> Value:
        return self._arguments[argument]

    def pointer(self, argument: str, type: Type) -> Pointer:
        """The argument as the address of elements of a type."""
        handle = self.builder.inttoptr(self[argument].handle, ir.IntType(8).as_pointer())
        return Pointer(self, type, handle)

    def constant(self, type: Type, number: int | float) -> Value:
        """A number, in every lane."""
        if type.kind != "f":
            return Value(self, type, _integer(type, int(number)))
        scalar = float(number)  # not kept, since 0.0 and -0.0 are equal
        return Value(self, type, ir.Constant(type.ir, scalar if type.lanes == 1 else [scalar] * type.lanes))

    def variable(self, value: Value) -> Variable:
        """A variable that starts with this value."""
        return Variable(self, value)

    def intrinsic(self, name: str, result: Type, operands: list[Value], of: Type | None = None) -> Value:
        """Call `llvm.<name>` of the result's type, or of another."""
        full = f"llvm.{name}.{(of or result).name}"
        function = self.external(full, result.ir, [operand.type.ir for operand in operands])
        return Value(self, result, self.builder.call(function, [operand.handle for operand in operands]))

    @contextmanager
    def loop(self, count: Value | int, start: Value | int = 0) -> Iterator[Value]:
        """Run the body with an index from `start` below `count`."""
        builder = self.builder
        first = start if isinstance(start, Value) else self.constant(i64, start)
        last = count if isinstance(count, Value) else self.constant(i64, count)
        before = builder.block
        head = self.function.append_basic_block("head")
        body = self.function.append_basic_block("loop")
        after = self.function.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(ir.IntType(64))
        index.add_incoming(first.handle, before)
        builder.cbranch(builder.icmp_signed("<", index, last.handle), body, after)
        builder.position_at_end(body)
        yield Value(self, i64, index)
        index.add_incoming(builder.add(index, ir.Constant(ir.IntType(64), 1)), builder.block)
        builder.branch(head, loop=not self.unrolled)
        builder.position_at_end(after)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the body if a scalar condition holds."""
        with self.builder.if_then(condition.handle):
            yield

    def call(self, other: Code, **arguments: Value | Pointer) -> None:
        """Call another function of the module with arguments by name."""
        names = other.arguments
        assert set(names) == set(arguments), set(names) ^ set(arguments)
        with self.builder.goto_entry_block():
            block = self.builder.alloca(ir.IntType(64), len(names))
        for index, name in enumerate(names):
            value = arguments[name]
            handle = value.handle
            if isinstance(value, Pointer):
                handle = self.builder.ptrtoint(handle, ir.IntType(64))
            place = self.builder.gep(block, [ir.Constant(ir.IntType(64), index)])
            self.builder.store(handle, place)
        self.builder.call(other.function, [block])

    def external(self, name: str, result: ir.Type, operands: list[ir.Type]) -> ir.Function:
        """Declare a function that LLVM or the process knows by name; returns it for calls."""
        function = self.module.functions.get(name)
        return function or ir.Function(self.module, ir.FunctionType(result, operands), name)

    def end(self) -> None:
        """End the function: it returns to its caller here."""
        self.builder.ret_void()
