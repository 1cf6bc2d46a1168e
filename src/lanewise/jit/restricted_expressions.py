"""Expressions of the restricted Python, compiled to LLVM IR: a method for each kind of syntax node.

Also the memory and the variables that they read and write.
"""

from __future__ import annotations

import abc
import ast
import linecache
import operator
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from lanewise.jit import ir
from lanewise.jit.compiled_functions import (
    CONDITION,
    Declared,
    Fields,
    Function,
    Primitive,
    Reference,
    as_computed,
    described,
)
from lanewise.jit.lane_functions import address_of, choose, joined, largest, smallest
from lanewise.jit.record_layout import LANES, Field, RecordLayout
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


T = TypeVar("T")


class RestrictedPythonError(Exception):
    """A function is outside of the restricted Python, or its types do not fit."""


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
#: Operators that conditions have, too.
_LOGICAL = (ast.BitAnd, ast.BitOr, ast.BitXor)
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: lambda a, b: a.equals(b) if isinstance(a, Value) else a == b,
    ast.NotEq: lambda a, b: a.differs(b) if isinstance(a, Value) else a != b,
}


class Expressions(abc.ABC):
    """The expressions of one function, whose code is written at the end of the code so far."""

    def __init__(
        self, code: Code, python: Callable[..., object], scope: dict[str, object], assigned: frozenset[str]
    ) -> None:
        self.code, self.builder, self.python = code, code.builder, python
        self.globals = python.__globals__
        #: What names stand for here, and all names that are assigned somewhere.
        self.scope, self.assigned = scope, assigned

    @abc.abstractmethod
    def expand(self, function: Declared[..., object], bound: dict[str, object]) -> object:
        """Write the body of a function in place; return its result."""

    # errors -----------------------------------------------------------------------------------------------

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Raise an error that names the line."""
        file = self.python.__code__.co_filename
        line = getattr(node, "lineno", 0)
        source = linecache.getline(file, line).strip()
        raise RestrictedPythonError(f"{file}:{line}: in {self.python.__name__}: {message}\n    {source}")

    def on_line(self, node: ast.AST, action: Callable[[], T]) -> T:
        """Return what an action returns; its TypeErrors name the line."""
        try:
            return action()
        except TypeError as error:
            self.fail(node, str(error))

    def block(self, name: str) -> ir.Block:
        """Return a new basic block of the function."""
        return self.code.function.append_basic_block(name)

    # expressions ------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> object:
        """Write an expression; return its value, a Python number or object if it is known by now."""
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None or isinstance(node, ast.Tuple):
            self.fail(node, f"the restricted Python has no {type(node).__name__}")
        return method(node)

    def condition(self, node: ast.expr) -> bool | Value:
        """Write an expression that is a condition."""
        value = self.evaluate(node)
        if isinstance(value, bool) or (isinstance(value, Value) and value.type == CONDITION):
            return value
        self.fail(node, f"a condition is needed here, and it is {described(value)}")

    def number(self, node: ast.expr) -> Value:
        """Write an expression that is a number."""
        value = self.evaluate(node)
        made = as_computed(self.code, value)
        if isinstance(value, bool) or not isinstance(made, Value) or made.type != i64:
            self.fail(node, f"a number is needed here, and it is {described(value)}")
        return made

    def _Constant(self, node: ast.Constant) -> object:
        if not isinstance(node.value, int):
            self.fail(node, f"{node.value!r} is neither a number nor a condition")
        return node.value

    def _Name(self, node: ast.Name) -> object:
        if node.id in self.scope:
            value = self.scope[node.id]
            return value.get() if isinstance(value, Slot) else value
        if node.id in self.assigned:
            self.fail(node, f"`{node.id}` has no value on some way to here")
        return self.known(node)

    def known(self, node: ast.expr) -> object:
        """Return what an expression of global names is in Python: a number, a class, a function."""
        if isinstance(node, ast.Name) and node.id not in self.scope:
            builtin = {function.__name__: function for function in (range, min, max, int, bool)}
            value = self.globals.get(node.id, builtin.get(node.id, self))
            if value is self:
                self.fail(node, f"there is no `{node.id}`")
            return value.value if isinstance(value, Enum) else value
        if isinstance(node, ast.Attribute):
            owner = self.known(node.value)
            if isinstance(owner, ModuleType | type) and hasattr(owner, node.attr):
                value = getattr(owner, node.attr)
                return value.value if isinstance(value, Enum) else value
        self.fail(node, "it is not known while the code is written")

    def is_known(self, node: ast.expr) -> bool:
        """Return whether an expression consists of global names."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self.scope

    def place(self, node: ast.expr) -> Place | tuple[Fields, str]:
        """Write where a field or an element is; of `Fields`, return them and the field's name."""
        if isinstance(node, ast.Attribute):
            owner = self.evaluate(node.value)
            if isinstance(owner, Fields):
                return owner, node.attr
            if not isinstance(owner, Reference):
                self.fail(node, f"{described(owner)} has no fields")
            field = owner.layout.FIELDS.get(node.attr)
            if field is None:
                self.fail(node, f"{owner.layout.__name__} has no field `{node.attr}`")
            return Place(self.code, owner.address + field.offset, field)
        element = self.element(node)
        if not isinstance(element, Place):
            self.fail(node, "a record as a whole is not assigned to")
        return element

    def element(self, node: ast.expr) -> Place | Reference:
        """Write where an element of an array is."""
        assert isinstance(node, ast.Subscript)
        inner = node.value
        is_place = isinstance(inner, ast.Attribute | ast.Subscript) and not self.is_known(inner)
        array = self.place(inner) if is_place else self.evaluate(inner)
        if not isinstance(array, Place):
            self.fail(node, f"{described(array)} is not an array in memory")
        index = self.number(node.slice)
        return self.on_line(node, lambda: array.element(index))

    def _Attribute(self, node: ast.Attribute) -> object:
        if self.is_known(node):
            return self.known(node)
        place = self.place(node)
        if isinstance(place, tuple):
            return self.on_line(node, lambda: place[0].get(place[1]))
        return place.load()

    def _Subscript(self, node: ast.Subscript) -> object:
        element = self.element(node)
        return element.load() if isinstance(element, Place) else element

    def _BinOp(self, node: ast.BinOp) -> object:
        return self.binary(node, node.op, self.evaluate(node.left), self.evaluate(node.right))

    def binary(self, node: ast.AST, kind: ast.operator, left: object, right: object) -> object:
        """Write an operator of two values."""
        write = _BINARY.get(type(kind))
        if write is None:
            self.fail(node, f"the restricted Python has no operator {type(kind).__name__}")
        if isinstance(left, int) and isinstance(right, int):
            return write(left, right)
        a, b = self.alike(node, left, right)
        if a.type.bits == 1 and not isinstance(kind, _LOGICAL):
            self.fail(node, "conditions have the operators &, | and ^")
        return write(a, b)

    def alike(self, node: ast.AST, left: object, right: object) -> tuple[Value, Value]:
        """Return two values of one type: a number beside a vector counts for every lane."""
        a, b = as_computed(self.code, left), as_computed(self.code, right)
        if isinstance(a, Value) and isinstance(b, Value):
            lanes = max(a.type.lanes, b.type.lanes)
            if lanes > 1 and a.type.bits > 1 and b.type.bits > 1:
                vector = a.type if a.type.lanes > 1 else b.type
                a, b = (
                    operand.to(vector.by(1)).spread(lanes) if operand.type.lanes == 1 else operand
                    for operand in (a, b)
                )
            if a.type == b.type:
                return a, b
        self.fail(node, f"{described(left)} and {described(right)} do not go together")

    def _UnaryOp(self, node: ast.UnaryOp) -> object:
        if isinstance(node.op, ast.Not):
            condition = self.condition(node.operand)
            return not condition if isinstance(condition, bool) else condition ^ 1
        value = self.evaluate(node.operand)
        if isinstance(value, int) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else ~value
        if not isinstance(value, Value) or value.type == CONDITION:
            self.fail(node, f"{described(value)} has no such operator")
        if isinstance(node.op, ast.Invert):
            return ~value
        if isinstance(node.op, ast.USub) and value.type == i64:
            return 0 - value
        self.fail(node, f"the restricted Python has no operator {type(node.op).__name__}")

    def _Compare(self, node: ast.Compare) -> object:
        left, made = self.evaluate(node.left), None
        for kind, operand in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(operand)
            one = self.compared(node, kind, left, right)
            made = one if made is None else self.binary(node, ast.BitAnd(), made, one)
            left = right
        return made

    def compared(self, node: ast.AST, kind: ast.cmpop, left: object, right: object) -> object:
        """Write a comparison of two values; records are compared by `is`."""
        if isinstance(kind, ast.Is | ast.IsNot):
            if (
                not isinstance(left, Reference)
                or not isinstance(right, Reference)
                or left.layout is not right.layout
            ):
                self.fail(node, "`is` compares records of one kind")
            same = left.address.equals(right.address)
            return same ^ 1 if isinstance(kind, ast.IsNot) else same
        write = _COMPARED.get(type(kind))
        if write is None:
            self.fail(node, f"the restricted Python has no operator {type(kind).__name__}")
        if isinstance(left, int) and isinstance(right, int):
            return write(left, right)
        a, b = self.alike(node, left, right)
        return write(a, b)

    def is_plain(self, node: ast.expr) -> bool:
        """Return whether an expression reads no memory and calls nothing: it may be computed needlessly."""
        if isinstance(node, ast.Attribute):
            return self.is_known(node)
        if isinstance(node, ast.Call | ast.Subscript):
            return False
        return all(
            self.is_plain(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        )

    def _BoolOp(self, node: ast.BoolOp) -> bool | Value:
        is_and, rest = isinstance(node.op, ast.And), list(node.values)
        while rest:
            first = self.condition(rest.pop(0))
            if isinstance(first, bool):
                if first is not is_and:
                    return first
            elif not rest:
                return first
            elif all(self.is_plain(operand) for operand in rest):
                others = as_computed(self.code, self._BoolOp(ast.BoolOp(node.op, rest)))
                assert isinstance(others, Value)
                return first & others if is_and else first | others
            else:
                return self._lazily(first, is_and, ast.BoolOp(node.op, rest))
        return is_and

    def _lazily(self, first: Value, is_and: bool, rest: ast.BoolOp) -> Value:
        """Write the rest of an `and` or `or`, computed only if the first condition decides nothing."""
        before, other, after = self.builder.block, self.block("then"), self.block("joined")
        self.builder.cbranch(first.handle, *((other, after) if is_and else (after, other)))
        self.builder.position_at_end(other)
        second = as_computed(self.code, self._BoolOp(rest))
        assert isinstance(second, Value)
        return self._joined([(self.code.constant(CONDITION, int(not is_and)), before), (second, None)], after)

    def _joined(self, ways: list[tuple[Value, ir.Block | None]], after: ir.Block) -> Value:
        """Write that control comes to a block on two ways, with a value each; None: from here."""
        end = self.builder.block
        self.builder.branch(after)
        self.builder.position_at_end(after)
        phi = self.builder.phi(ways[0][0].type.ir)
        for value, block in ways:
            phi.add_incoming(value.handle, block or end)
        return Value(self.code, ways[0][0].type, phi)

    def _IfExp(self, node: ast.IfExp) -> object:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            return self.evaluate(node.body if condition else node.orelse)
        if self.is_plain(node.body) and self.is_plain(node.orelse):
            yes, no, layout = self._same(node, self.evaluate(node.body), self.evaluate(node.orelse))
            return _as(layout, condition.select(yes, no))
        yes_block, no_block, after = self.block("then"), self.block("else"), self.block("joined")
        self.builder.cbranch(condition.handle, yes_block, no_block)
        self.builder.position_at_end(yes_block)
        first = as_computed(self.code, self.evaluate(node.body))
        end = self.builder.block
        self.builder.branch(after)
        self.builder.position_at_end(no_block)
        yes, no, layout = self._same(node, first, self.evaluate(node.orelse))
        return _as(layout, self._joined([(yes, end), (no, None)], after))

    def _same(self, node: ast.AST, a: object, b: object) -> tuple[Value, Value, type[RecordLayout] | None]:
        """Return two values of one type, and their layout if they are records."""
        a, b = as_computed(self.code, a), as_computed(self.code, b)
        if isinstance(a, Reference) and isinstance(b, Reference) and a.layout is b.layout:
            return a.address, b.address, a.layout
        if isinstance(a, Value) and isinstance(b, Value) and a.type == b.type:
            return a, b, None
        self.fail(node, f"{described(a)} and {described(b)} do not go together")

    # calls ------------------------------------------------------------------------------------------------

    def _Call(self, node: ast.Call) -> object:
        callee = self.on_record(node) if isinstance(node.func, ast.Attribute) else None
        if callee is not None:
            return callee
        function = self.known(node.func)
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(
            not keyword.arg for keyword in node.keywords
        ):
            self.fail(node, "arguments are given one by one")
        given = [self.argument(argument, function is address_of) for argument in node.args]
        named = {str(keyword.arg): self.evaluate(keyword.value) for keyword in node.keywords}
        for known, write in _BUILTIN.items():
            if function is known:
                if named:
                    self.fail(node, "it takes no names of arguments")
                return write(self, node, given)
        if not isinstance(function, Declared):
            self.fail(node, "only compiled functions are called")
        return self.on_line(node, lambda: self._called(function, given, named))

    def argument(self, node: ast.expr, is_address: bool) -> object:
        """Write an argument; of an array whose address is asked for, only where it is."""
        if not is_address or self.is_known(node) or not isinstance(node, ast.Attribute | ast.Subscript):
            return self.evaluate(node)
        return self.place(node) if isinstance(node, ast.Attribute) else self.element(node)

    def on_record(self, node: ast.Call) -> Reference | None:
        """Write `Layout.at(address)` or `Layout.on_stack()`; None if it is another call."""
        assert isinstance(node.func, ast.Attribute)
        owner = self.known(node.func.value) if self.is_known(node.func.value) else None
        if not isinstance(owner, type) or not issubclass(owner, RecordLayout):
            return None
        if node.func.attr == "at" and len(node.args) == 1 and not node.keywords:
            return Reference(owner, self.number(node.args[0]))
        if node.func.attr == "on_stack" and not node.args and not node.keywords:
            with self.builder.goto_entry_block():
                made = self.builder.alloca(ir.ArrayType(ir.LONG, -(-owner.BYTES // 8)), align=64)
                address = self.builder.ptrtoint(made, ir.LONG)
            return Reference(owner, Value(self.code, i64, address))
        self.fail(node, f"{owner.__name__} has .at(address) and .on_stack()")

    def _extreme(self, node: ast.Call, given: list[object]) -> object:
        name = "min" if self.known(node.func) is min else "max"
        if len(given) < 2:
            self.fail(node, f"{name} takes two values or more")
        made = given[0]
        for value in given[1:]:
            if isinstance(made, int) and isinstance(value, int):
                made = min(made, value) if name == "min" else max(made, value)
                continue
            a, b = self.alike(node, made, value)
            if a.type != i64:
                self.fail(node, f"{name} takes numbers")
            made = self.code.intrinsic(f"s{name}", a.type, [a, b])
        return made

    def _joined_vectors(self, node: ast.Call, given: list[object]) -> object:
        if len(given) != 2:
            self.fail(node, "joined takes two vectors")
        a, b = self.alike(node, *given)
        if a.type.lanes == 1 or a.type.bits == 1:
            self.fail(node, f"joined takes vectors, and not {described(given[0])}")
        return a.max(b)

    def _one(self, node: ast.Call, given: list[object]) -> object:
        if len(given) != 1:
            self.fail(node, "it takes one argument")
        return as_computed(self.code, given[0])

    def _int(self, node: ast.Call, given: list[object]) -> object:
        value = self._one(node, given)
        if not isinstance(value, Value) or value.type != CONDITION:
            self.fail(node, f"int takes a condition, and not {described(given[0])}")
        return int(given[0]) if isinstance(given[0], bool) else value.to(Type("u", 64)).to(i64)

    def _address(self, node: ast.Call, given: list[object]) -> object:
        value = self._one(node, given)
        if isinstance(value, Place):
            return value.start()
        if not isinstance(value, Reference):
            self.fail(node, f"a record has an address, and not {described(given[0])}")
        return value.address

    def _choose(self, node: ast.Call, given: list[object]) -> object:
        if len(given) != 3 or not isinstance(given[0], Value) or given[0].type != CONDITION.by(LANES):
            self.fail(node, "choose takes conditions of lanes and two values")
        yes, no = self.alike(node, given[1], given[2])
        return given[0].select(yes, no)

    def _reduced(self, node: ast.Call, given: list[object]) -> object:
        value = self._one(node, given)
        if not isinstance(value, Value) or value.type.lanes == 1 or value.type.bits == 1:
            self.fail(node, f"a vector is needed here, and it is {described(given[0])}")
        name = "umin" if self.known(node.func) is smallest else "umax"
        made = self.code.intrinsic(f"vector.reduce.{name}", value.type.by(1), [value], of=value.type)
        return made.to(Type("u", 64)).to(i64)

    def _called(
        self, function: Declared[..., object], given: list[object], named: dict[str, object]
    ) -> object:
        """Write a call that is checked against the function's declaration."""
        if isinstance(function, Function):
            return function.call(self.code, *given, **named)
        bound = function.bind(given, named)
        if isinstance(function, Primitive):
            return function.written(self.code, bound)
        return self.expand(function, bound)


def _as(layout: type[RecordLayout] | None, value: Value) -> object:
    return Reference(layout, value) if layout else value


_BUILTIN: dict[Callable[..., object], Callable[[Expressions, ast.Call, list[object]], object]] = {
    min: Expressions._extreme,
    max: Expressions._extreme,
    int: Expressions._int,
    address_of: Expressions._address,
    choose: Expressions._choose,
    joined: Expressions._joined_vectors,
    smallest: Expressions._reduced,
    largest: Expressions._reduced,
}
