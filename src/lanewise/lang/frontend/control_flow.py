"""Control flow while tracing: branches and loops on traced values, and the variables that they carry.

Rewritten functions call a `Runtime`. A branch or loop on plain Python values leaves no trace.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable

from lanewise.lang.frontend.heap import CHOICE, Scope, State, accept_contents, check_aliases, holds_container
from lanewise.lang.frontend.liveness import Carried
from lanewise.lang.frontend.loops import For, PythonLoop, While
from lanewise.lang.frontend.loops import range as traced_range
from lanewise.lang.frontend.merge import CarriedValues, Join, MergeMoves, Undefined, move
from lanewise.lang.intrinsics.debug import assert_, print_values
from lanewise.lang.matrix.tensor_memory import TmemMatrix
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import Code, Label, NotPredicate, Register, SourceLocation, current, is_pure
from lanewise.lang.trace.operators import as_predicate, bitwise, invert, select, where
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import AnyValue, Traced, describe, is_number, plain_number
from lanewise.lang.trace.types import pred


class PythonIf:
    """An `if` on a Python value: one of its branches is traced."""

    traced = False

    def __init__(self, holds: bool) -> None:
        self.then, self.otherwise = holds, not holds


_HOLDS, _FAILS = PythonIf(True), PythonIf(False)


class If:
    """An `if` on a traced value: both branches are traced, and what they bind is merged."""

    traced = then = otherwise = True
    repeats = False

    def __init__(self, test: Scalar, carried: Carried, scope: Scope) -> None:
        self.builder, self.test = current(), test
        self.carried, self.scope = carried, scope
        self.branches: list[tuple[Code, State, bool, SourceLocation]] = []
        self.entered_unreachable = self.builder.unreachable
        self.location = self.builder.location

    def begin(self, names: dict[str, AnyValue]) -> None:
        """Keep the values that the branches may change, and trace into the first branch."""
        check_aliases()
        self.values = CarriedValues(self.carried, names, self.scope)
        self._enter()

    def _enter(self) -> None:
        """Trace into a list of code of the next branch."""
        self.code: Code = []
        self.outer = self.builder.enter(self.code)
        self.builder.open_control_flow.append(self)

    def end(self, names: dict[str, AnyValue]) -> None:
        """End a branch: keep its code, and the values that names have at its end."""
        check_aliases()
        self.names: dict[str, AnyValue] | None = names
        self.branches.append(
            (self.code, self.values.now(names), self.builder.unreachable, self.builder.location)
        )
        self.builder.open_control_flow.pop()
        self.builder.leave(self.outer)
        self.builder.unreachable = self.entered_unreachable

    def restore(self) -> tuple[AnyValue, ...]:
        """Set everything back to what it was, and trace into the second branch.

        It returns the values of the bound names and of those only restored.
        """
        first = self.values.restore()
        accept_contents()
        self._enter()
        return first

    def merge(self) -> tuple[AnyValue, ...]:
        """Write both branches; return the values that the bound names have from here on."""
        (then, left, left_ends, left_location), (other, right, right_ends, right_location) = self.branches
        builder = self.builder
        builder.location = self.location
        moves: MergeMoves = []
        if left_ends or right_ends:  # what follows two ends is never reached, and any values will do
            values = self.values.rebind(left if right_ends else right)
        else:
            join = Join(self.values, left, right, (left_location, right_location), self.names)
            values, moves = join.bound, join.moves
        accept_contents()
        for code, side in ((then, 0), (other, 1)):
            with builder.into(code):
                for register, sources in moves:
                    move(register, sources[side])
        self._write(then, other, left_ends)
        builder.unreachable = self.entered_unreachable or (left_ends and right_ends)
        return values

    def select(self) -> AnyValue:
        """Return the value of two expressions that only compute: one is selected, without a branch."""
        (_, left, *_), (_, right, *_) = self.branches
        one, two = left.roots[CHOICE], right.roots[CHOICE]
        if not (holds_container(one) or holds_container(two)):
            return where(self.test, one.value, two.value)
        join = Join(self.values, left, right, (self.location, self.location), self.names)
        for register, (a, b) in join.moves:
            move(register, select(self.test, a, b))
        accept_contents()
        return join.bound[0]

    def _write(self, then: Code, other: Code, then_ends: bool) -> None:
        """Write the branches into the code around them, with a branch around each."""
        builder, code = self.builder, self.builder.code
        if not then and not other:
            return
        skip, end = Label("else" if other and then else "endif"), Label("endif")
        if not then:
            builder.branch(skip, self.test.operand)
            code += [*other, skip]
        else:
            builder.branch(skip, NotPredicate(self.test.operand))
            code += then
            if other and not then_ends:
                builder.branch(end)
                builder.unreachable = self.entered_unreachable
            code += [skip, *other, end] if other else [skip]


class Runtime:
    """What a rewritten function calls for its control flow.

    Each function has its own, which knows the file.
    """

    def __init__(self, file: str, scope: Scope) -> None:
        self.file, self.scope = file, scope

    def at(self, line: int, column: int) -> None:
        """Note that the statement at this line and column is traced next."""
        builder = current()
        if builder.uncertain_aliases:
            check_aliases()
        builder.location = SourceLocation(self.file, line, column)

    def named(self, name: AnyValue, value: AnyValue) -> AnyValue:
        """Return a value that is bound to a name, or to several; its registers get the name."""
        if isinstance(name, str):
            _name(name, value)
        elif isinstance(value, tuple | list) and len(value) == len(name):
            for one, part in zip(name, value, strict=True):
                if isinstance(one, str):
                    _name(one, part)
                else:
                    _note_arrays(one, part)
        return value

    # statements -----------------------------------------------------------------------------------------

    def if_(self, test: object, *names: tuple[str, ...]) -> If | PythonIf:
        """Begin an `if`: both branches are traced where its condition is traced."""
        if isinstance(test, Traced):
            condition = as_predicate(test)
            if condition.constant is None:
                return If(condition, Carried(*names), self.scope)
            return _HOLDS if condition.constant else _FAILS
        if isinstance(test, Undefined):
            test.complain()
        return _HOLDS if test else _FAILS

    def while_(self, test: Callable[[], AnyValue] | None, *names: tuple[str, ...]) -> AnyValue:
        """Begin a `while`; a test of None is always true, and the loop a traced one."""
        if test is None:
            return While(None, Carried(*names), self.scope)
        builder = current()
        before_test, scope, state = len(builder.code), dict(builder.scopes[-1]), self._state(test)
        first = test()
        if not isinstance(first, Traced):
            return PythonLoop(first=first, test=test)
        del builder.code[before_test:]  # traced again, on the registers of the loop
        builder.scopes[-1] = scope
        state.restore()
        return While(test, Carried(*names), self.scope)

    def _state(self, *functions: Callable[[], AnyValue]) -> State:
        """Return what expressions, as functions, may change when they are evaluated."""
        return State({}, self.scope, functions)

    def for_(self, items: object, name: str, *names: tuple[str, ...]) -> AnyValue:
        """Begin a `for`: over lw.range it is a loop of the kernel, else Python unrolls it."""
        if isinstance(items, traced_range):
            return For(items, name, Carried(*names), self.scope)
        if isinstance(items, Traced) and not hasattr(items, "__iter__"):
            raise current().error(f"{describe(items)} cannot be iterated over: use `for i in lw.range(…)`")
        return PythonLoop(items=items)

    def exit(self) -> bool:
        """Trace `return` in a kernel, which ends the thread; return whether Python itself is to return."""
        builder = current()
        if not builder.open_control_flow:
            return True
        builder.emit("ret")
        builder.unreachable = True
        return False

    def assert_(self, test: Callable[[], AnyValue], message: object, text: str) -> None:
        """Trace `assert`: on a traced value, the kernel stops with __assertfail."""
        condition = test()
        if isinstance(condition, Traced):
            assert_(condition, str(message) if message is not None else text)
        elif not condition:
            raise current().error(
                f"assertion failed while tracing: {message if message is not None else text}"
            )

    # expressions ----------------------------------------------------------------------------------------

    def print_(self, function: Callable[..., AnyValue], *values: AnyValue, **options: AnyValue) -> AnyValue:
        """Print: traced values when the kernel runs; what Python knows, now, while the kernel is traced."""
        if function is not builtins.print or not any(isinstance(value, Traced) for value in values):
            return function(*values, **options)
        return print_values(values, **options)

    def and_(self, first: object, *rest: Callable[[], AnyValue]) -> AnyValue:
        """Return `a and b`: b is traced under the condition that a holds, where it does more than compute."""
        return self._logic(first, rest, conjunction=True)

    def or_(self, first: object, *rest: Callable[[], AnyValue]) -> AnyValue:
        """Return `a or b`: b is traced under the condition that a fails, where it does more than compute."""
        return self._logic(first, rest, conjunction=False)

    def _logic(self, value: object, rest: tuple[Callable[[], AnyValue], ...], conjunction: bool) -> AnyValue:
        """Return the conjunction or disjunction of values, each evaluated only if it decides."""
        for following in rest:
            if not isinstance(value, Traced):
                if bool(value) is not conjunction:
                    return value
                value = following()
                continue
            value = self._both(as_predicate(value), following, conjunction)
        return value

    def _both(self, first: Scalar, following: Callable[[], AnyValue], conjunction: bool) -> Scalar:
        """Return the conjunction or disjunction of a predicate and an expression not yet traced."""
        builder = current()
        if first.constant is not None:
            decides = bool(first.constant) is not conjunction
            return first if decides else _operand_of_logic(following(), conjunction)
        code: Code = []
        state = self._state(following)
        with builder.into(code):
            second = _operand_of_logic(following(), conjunction)
            register = second.in_register if not is_pure(code) else None
        if state.is_changed():  # in a list, say: what it holds from here on depends on the first operand
            state.restore()
            return as_predicate(
                self.choose(first, following, _evaluated(first))
                if conjunction
                else self.choose(first, _evaluated(first), following)
            )
        if register is None:
            builder.code += code
            return bitwise("and" if conjunction else "or", first, second)
        outcome, done = Register("pred"), Label("decided")
        builder.emit("mov.pred", outcome, first.in_register)
        builder.branch(done, NotPredicate(outcome) if conjunction else outcome)
        builder.code += code
        builder.emit("mov.pred", outcome, register)
        builder.label(done)
        return Scalar(pred, outcome)

    def require_called(self, value: object, text: str) -> None:
        """Raise an error for a statement that names a function and does not call it."""
        if callable(value) and not isinstance(value, Traced):
            raise current().error(f"{text} is a function that is not called: write {text}()")

    def not_none(self, value: object, name: str) -> AnyValue:
        """Return a parameter of a kernel that is compared with None, if Python knows the answer."""
        if isinstance(value, Traced):
            raise current().error(
                f"`{name} is None` is decided before the kernel runs, when {name} is {describe(value)}: "
                f"`{name} == 0` asks for a null pointer, which None is when a kernel is launched"
            )
        return value

    def identity(self, word: str, left: object, right: object) -> bool:
        """Return `a is b` or `a is not b`, which asks about Python's objects and not about their values."""
        return _is(left, right) if word == "Is" else not _is(left, right)

    def not_(self, value: object) -> AnyValue:
        """Return `not a`, a predicate where a is traced."""
        return invert(as_predicate(value)) if isinstance(value, Traced) else not value

    def choose(
        self, test: object, then: Callable[[], AnyValue], otherwise: Callable[[], AnyValue]
    ) -> AnyValue:
        """Return `a if c else b`: both are computed if that has no other effect; else one branch runs."""
        if not isinstance(test, Traced):
            return then() if test else otherwise()
        condition = as_predicate(test)
        if condition.constant is not None:
            return then() if condition.constant else otherwise()
        branch = If(condition, Carried((CHOICE,), ("then", "otherwise")), self.scope)
        functions = {"then": then, "otherwise": otherwise}
        branch.begin(functions)
        left = then()
        changed = branch.values.first.is_changed()
        branch.end(functions | {CHOICE: left})
        branch.restore()
        right = otherwise()
        changed = changed or branch.values.first.is_changed()
        branch.end(functions | {CHOICE: right})
        branch.names = None
        if changed or not all(is_pure(code) for code, *_ in branch.branches):
            return branch.merge()[0]
        for code, *_ in branch.branches:
            current().code += code
        return left if left is right else branch.select()

    def chain(self, words: tuple[str, ...], left: object, *rest: Callable[[], AnyValue]) -> AnyValue:
        """Return a chain of comparisons such as `a < b < c`, each operand evaluated once."""
        outcome: AnyValue = True
        for word, following in zip(words, rest, strict=True):
            if not isinstance(outcome, Traced) and not outcome:
                return outcome
            right = following()
            this = _COMPARISONS[word](left, right)
            outcome = self.and_(outcome, _evaluated(this))
            left = right
        return outcome


def _operand_of_logic(value: object, conjunction: bool) -> Scalar:
    """Return an operand of `and` or `or` as a predicate: an error for a Python number that is no truth value.

    Python would return that number itself where the first operand does not decide.
    """
    if is_number(value) and not isinstance(plain_number(value), bool):
        word, then, otherwise = ("and", value, 0) if conjunction else ("or", "a", value)
        raise current().error(
            f"`a {word} {value}` of a value that the kernel computes is a truth value, and not one of the "
            f"two: lw.where(a != 0, {then}, {otherwise}) chooses a number"
        )
    return as_predicate(value)


def _evaluated(value: object) -> Callable[[], AnyValue]:
    """Return an operand that has been evaluated, for operators that evaluate theirs when they need it."""
    return lambda: value


def _is(left: object, right: object) -> bool:
    """Return whether two operands are one object; an error if one is a value that the kernel computes.

    Fragments, tensors and arrays are objects of the trace, and an object that is no number marks what is not
    given: these may be asked for.
    """
    for value, other in ((left, right), (right, left)):
        if isinstance(value, Scalar | Pointer) and (isinstance(other, Scalar | Pointer) or is_number(other)):
            raise current().error(
                f"`is` asks whether two names hold one object of Python, which says nothing of "
                f"{describe(value)}: == and != compare values"
            )
    return left is right


#: Python's comparisons by the names of their syntax nodes.
_COMPARISONS: dict[str, Callable[[AnyValue, AnyValue], AnyValue]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Eq": operator.eq,
    "NotEq": operator.ne, "Is": lambda a, b: _is(a, b), "IsNot": lambda a, b: not _is(a, b),
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


def _note_arrays(names: AnyValue, value: AnyValue) -> None:
    """Note the names of arrays that a tuple within a tuple is bound to; registers keep theirs."""
    if isinstance(names, str):
        if isinstance(value, Traced):
            current().bound.setdefault(names, []).append(value)
    elif isinstance(value, tuple | list) and len(value) == len(names):
        for one, part in zip(names, value, strict=True):
            _note_arrays(one, part)


def _name(name: str, value: object) -> None:
    """Give the registers of a value, or of those in a list or tuple, a Python name."""
    if isinstance(value, Traced) and hasattr(value, "named"):
        value.named(name)
        current().bound.setdefault(name, []).append(value)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            if isinstance(part, Traced):
                _name(f"{name}{number}", part)
    if isinstance(value, list | tuple | dict | int | float | TmemMatrix):  # for the debugger
        current().bound.setdefault(name, []).append(value)
