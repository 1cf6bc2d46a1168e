"""A compiler for functions in a restricted Python: what they compute reads like Python, and is LLVM IR.

Statements: assignments, `if`, `while`, `for … in range(…)`, `for lane in set_bits(mask)`, `return`, `break`,
`continue`, calls. A `for` over a tuple is written once for each element, and of an `if` whose condition is
known while the code is written only one branch is compiled. Expressions: numbers of 64 bits that wrap around,
conditions, comparisons, `and`, `or`, `not`, `x if c else y`, arithmetic (`//` and `%` of numbers that are not
negative), fields of declared records (`clock.seen[3]`), `home is watch`, `min`, `max`, `int(condition)`, and
calls of other compiled functions. Vectors that are assigned to a name are values, other arrays are the memory
itself. Everything else is an error that names the line.
"""

import ast
import linecache
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, ParamSpec, TypeVar

from lanewise.jit import ir
from lanewise.jit.compiled_functions import (
    Declared,
    Function,
    FunctionBody,
    Library,
    Reference,
    as_computed,
    described,
    fits,
)
from lanewise.jit.lane_functions import lowest_bit, set_bits
from lanewise.jit.restricted_expressions import Expressions, Place, RestrictedPythonError, Slot
from lanewise.jit.simd import Code, Value, i64

P = ParamSpec("P")
T = TypeVar("T")


class Inlined(Declared[P, T]):
    """A function that is compiled anew wherever it is called, with what is known there."""


def compiled(
    *, name: str = "", external: bool = False, noinline: bool = False
) -> Callable[[Callable[P, T]], Function[P, T]]:
    """Declare a function of the module, whose body is in the restricted Python."""
    attributes = ("noinline",) if noinline else ()

    def declare(python: Callable[P, T]) -> Function[P, T]:
        return Function(python, _compile, name, external, attributes)

    return declare


def inlined(python: Callable[P, T]) -> Inlined[P, T]:
    """Declare a function in the restricted Python that is compiled wherever it is called."""
    return Inlined(python)


class _Definition(NamedTuple):
    """The syntax tree of a function, the names that it assigns, and those that it assigns more than once."""

    tree: ast.FunctionDef
    assigned: frozenset[str]
    variables: frozenset[str]


@cache
def _definitions(path: str) -> dict[int, ast.FunctionDef]:
    """Return the syntax trees of a file's functions by their first lines."""
    tree = ast.parse("".join(linecache.getlines(path)), path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]): node
        for node in functions
    }


@cache
def _definition(python: Callable[..., object]) -> _Definition:
    """Return the syntax tree of a function, from its source file."""
    code = python.__code__
    tree = _definitions(code.co_filename).get(code.co_firstlineno)
    if tree is None or tree.name != python.__name__:
        raise RestrictedPythonError(f"{code.co_filename} has no source of {python.__name__}")
    return _Definition(tree, frozenset(_assigned_names(tree)), _variables(tree))


def _compile(library: Library, function: Function[..., T]) -> None:
    """Write the body of a function of the module."""
    code = FunctionBody(library, function)
    body = _Body(code, function.python, dict(code.bound))
    body.run()
    if not body.ended:
        body.on_line(body.definition, lambda: code.returns(None))


def _assigned_names(node: ast.AST) -> list[str]:
    stored = (ast.Store,)
    return [
        child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, stored)
    ]


def _variables(definition: ast.FunctionDef) -> frozenset[str]:
    """Return the names that are assigned in several places, or changed; those of loops do not count."""
    names: list[str] = []
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign):
            names += [name for target in node.targets for name in _assigned_names(target)]
        elif isinstance(node, ast.AugAssign):
            names += 2 * _assigned_names(node.target)
    loops = [node for node in ast.walk(definition) if isinstance(node, ast.For)]
    of_loops = {name for loop in loops for name in _assigned_names(loop.target)}
    return frozenset(name for name in names if names.count(name) > 1 or name in of_loops)


class _Body(Expressions):
    """The body of one function, written at the end of the code so far."""

    def __init__(
        self, code: Code, python: Callable[..., object], scope: dict[str, object], *, inlined: bool = False
    ) -> None:
        self.definition, assigned, self.variables = _definition(python)
        super().__init__(code, python, scope, assigned)
        self.parameters = frozenset(scope)
        self.slots: dict[str, Slot] = {}
        #: Whether control never comes to the end of what is written so far.
        self.ended = False
        #: Where `continue` and `break` go, for each loop.
        self.loops: list[tuple[ir.Block, ir.Block]] = []
        self.is_inlined = inlined
        #: Of a function in place: where its result is put, and where the code after it begins.
        self.result: Slot | None = None
        self.answer: object = None
        self.after: ir.Block | None = None

    def expand(self, function: Declared[..., object], bound: dict[str, object]) -> object:
        """Write the body of a function in place; return its result."""
        body = _Body(self.code, function.python, dict(bound), inlined=True)
        body.write_inlined()
        if not fits(body.answer, function.signature[1]):
            body.fail(body.definition, f"it returns {described(body.answer)}, which is not what it declares")
        return body.answer

    def write_inlined(self) -> None:
        """Write the body where it is called; a return in its midst goes to the code after it."""
        returns = [node for node in ast.walk(self.definition) if isinstance(node, ast.Return)]
        if returns and returns != [self.definition.body[-1]]:
            self.after = self.block("returned")
        self.run()
        if self.after is not None:
            if not self.ended:
                self.builder.branch(self.after)
            self.builder.position_at_end(self.after)
            self.answer = self.result.get() if self.result is not None else None

    # statements -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Write all statements, but the docstring."""
        first, *rest = self.definition.body
        is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        self.statements(rest if is_docstring else [first, *rest])

    def statements(self, nodes: list[ast.stmt]) -> None:
        """Write statements one after the other."""
        for node in nodes:
            if self.ended:
                self.fail(node, "this is never reached")
            method = getattr(self, f"_{type(node).__name__}", None)
            if method is None:
                self.fail(node, f"the restricted Python has no {type(node).__name__}")
            method(node)

    def _Pass(self, node: ast.Pass) -> None:
        pass

    def _Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            self.fail(node, "the value is not used")
        self.evaluate(node.value)

    def _Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail(node, "one target is allowed")
        self.assign(node.targets[0], node.value)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Write an assignment; several targets are assigned after all values are computed."""
        if not isinstance(target, ast.Tuple):
            self.put(target, self.evaluate(value))
            return
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
            self.fail(value, f"{len(target.elts)} targets take a tuple of as many values")
        values = [self.evaluate(element) for element in value.elts]
        for element, made in zip(target.elts, values, strict=True):
            self.put(element, made)

    def put(self, target: ast.expr, value: object) -> None:
        """Write that a name, a field or an element has a value from here on."""
        if isinstance(target, ast.Name):
            self.name(target, value)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            self.store(target, self.place(target), value)
        else:
            self.fail(target, "a name, a field or an element of an array is assigned to")

    def store(self, target: ast.expr, place: object, value: object) -> None:
        """Write that a place in memory, or a field, changes."""
        if isinstance(place, Place):
            self.on_line(target, lambda: place.store(value))
        elif isinstance(place, tuple):
            fields, name = place
            made = as_computed(self.code, value)
            if not isinstance(made, Value):
                self.fail(target, f"{described(value)} does not fit there")
            fields.set(name, made)
        else:
            self.fail(target, "it cannot be assigned to")

    def name(self, target: ast.Name, value: object) -> None:
        """Give a name its value: a variable's if it is assigned more than once."""
        if target.id in self.parameters:
            self.fail(target, f"the parameter `{target.id}` keeps its value")
        if value is None:
            self.fail(target, "the call returns nothing")
        if target.id not in self.variables:
            self.scope[target.id] = value
            return
        made = as_computed(self.code, value)
        if not isinstance(made, Value | Reference):
            self.fail(target, f"a variable cannot hold {described(value)}")
        slot = self.slots.get(target.id)
        if slot is None:
            self.scope[target.id] = self.slots[target.id] = Slot(self.code, made)
        else:
            self.on_line(target, lambda: slot.set(made))
            self.scope[target.id] = slot

    def _AugAssign(self, node: ast.AugAssign) -> None:
        right = self.evaluate(node.value)
        if isinstance(node.target, ast.Name):
            left = self.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
            self.name(node.target, self.binary(node, node.op, left, right))
            return
        place = self.place(node.target)
        left = place.load() if isinstance(place, Place) else place[0].get(place[1])
        self.store(node.target, place, self.binary(node, node.op, left, right))

    def _Return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.evaluate(node.value)
        if isinstance(self.code, FunctionBody) and not self.is_inlined:
            body = self.code
            self.on_line(node, lambda: body.returns(value))
        else:
            self._return_inlined(node, value)
        self.ended = True

    def _return_inlined(self, node: ast.AST, value: object) -> None:
        """Write that the code after a function in place goes on with its result."""
        if self.after is None:  # the only return, at the end
            self.answer = value
            return
        if value is not None:
            made = as_computed(self.code, value)
            if not isinstance(made, Value | Reference):
                self.fail(node, f"one of several results cannot be {described(value)}")
            if self.result is None:
                self.result = Slot(self.code, made)
            else:
                result = self.result
                self.on_line(node, lambda: result.set(made))
        self.builder.branch(self.after)

    def _If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            self.statements(node.body if condition else node.orelse)
            return
        yes, after = self.block("if"), self.block("endif")
        no = self.block("else") if node.orelse else after
        self.builder.cbranch(condition.handle, yes, no)
        before, ends = dict(self.scope), [] if node.orelse else [dict(self.scope)]
        for block, body in ((yes, node.body), (no, node.orelse)):
            if not body:
                continue
            self.scope = dict(before)
            self.builder.position_at_end(block)
            self.statements(body)
            if not self.ended:
                self.builder.branch(after)
                ends.append(self.scope)
            self.ended = False
        self.builder.position_at_end(after)
        self.ended = not ends
        # A name has a value if it has the same one on every way to here.
        first = ends[0] if ends else before
        self.scope = {
            name: value for name, value in first.items() if all(end.get(name) is value for end in ends)
        }

    def body_of_loop(self, nodes: list[ast.stmt], again: ir.Block, after: ir.Block) -> None:
        """Write the body of a loop, after which control goes to `again`; then go on at `after`."""
        before = dict(self.scope)
        self.loops.append((again, after))
        self.statements(nodes)
        self.loops.pop()
        if not self.ended:
            self.builder.branch(again)
        self.ended, self.scope = False, before

    def _While(self, node: ast.While) -> None:
        if node.orelse:
            self.fail(node, "a loop has no else")
        head, body, after = self.block("head"), self.block("loop"), self.block("after")
        again = self.block("again")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        condition = as_computed(self.code, self.condition(node.test))
        assert isinstance(condition, Value)
        self.builder.cbranch(condition.handle, body, after)
        self.builder.position_at_end(body)
        self.body_of_loop(node.body, again, after)
        self.builder.position_at_end(again)
        self.builder.branch(head, loop=True)
        self.builder.position_at_end(after)

    def _For(self, node: ast.For) -> None:
        if node.orelse:
            self.fail(node, "a loop has no else")
        if isinstance(node.iter, ast.Tuple):
            for element in node.iter.elts:
                self.assign(node.target, element)
                self.statements(node.body)
            return
        callee = self.known(node.iter.func) if isinstance(node.iter, ast.Call) else None
        if not isinstance(node.iter, ast.Call) or callee not in (range, set_bits) or node.iter.keywords:
            self.fail(node, "a loop goes over range(…), set_bits(…) or a tuple")
        if not isinstance(node.target, ast.Name) or node.target.id in self.variables:
            self.fail(node.target, "a loop has one name of its own")
        limits = [self.number(argument) for argument in node.iter.args]
        if not 1 <= len(limits) <= (2 if callee is range else 1):
            self.fail(node.iter, "range takes an end, or a start and an end; set_bits takes a number")
        self._loop(node, node.target.id, limits, over_bits=callee is set_bits)

    def _loop(self, node: ast.For, name: str, limits: list[Value], over_bits: bool) -> None:
        """Write a loop over numbers up to a limit, or over the bits of a number."""
        zero = self.code.constant(i64, 0)
        start, end = (limits[0], zero) if over_bits else ([zero, *limits][-2], limits[-1])
        before = self.builder.block
        head, body, again, after = (self.block(name) for name in ("head", "loop", "again", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        phi = self.builder.phi(ir.LONG)
        phi.add_incoming(start.handle, before)
        held = Value(self.code, i64, phi)
        self.builder.cbranch((held.differs(0) if over_bits else held < end).handle, body, after)
        self.builder.position_at_end(body)
        kept = dict(self.scope)
        self.scope[name] = lowest_bit.written(self.code, {"mask": held}) if over_bits else held
        self.body_of_loop(node.body, again, after)
        self.builder.position_at_end(again)
        phi.add_incoming((held & (held - 1) if over_bits else held + 1).handle, again)
        self.builder.branch(head, loop=True)
        self.builder.position_at_end(after)
        self.scope = kept

    def _Continue(self, node: ast.Continue) -> None:
        self._leave(node, 0)

    def _Break(self, node: ast.Break) -> None:
        self._leave(node, 1)

    def _leave(self, node: ast.stmt, place: int) -> None:
        if not self.loops:
            self.fail(node, "a loop over a tuple cannot be left")
        self.builder.branch(self.loops[-1][place])
        self.ended = True
