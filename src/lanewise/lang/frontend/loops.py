"""Loops while tracing: `for i in lw.range(…)` and `while` on traced values, with break and continue.

Rewritten functions reach them through `control_flow.py`; the variables that they carry are in `merge.py`.
"""

from collections.abc import Callable, Iterator
from math import gcd
from warnings import warn_explicit

from lanewise.lang.frontend.heap import Scope, accept_contents, check_aliases
from lanewise.lang.frontend.liveness import Carried
from lanewise.lang.frontend.loop_values import LoopValues
from lanewise.lang.frontend.merge import CarriedValues, parallel_move
from lanewise.lang.trace.builder import Code, Label, NotPredicate, Register, current
from lanewise.lang.trace.operators import NARROW, as_predicate, bitwise, compare
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import AnyValue, describe, is_number
from lanewise.lang.trace.types import dtype_name, is_int, register_kind


class range:
    """`lw.range(stop)`, `lw.range(start, stop, step)`: a loop of the kernel, not of the trace.

    With `unroll=False` ptxas does not unroll it either.
    """

    def __init__(self, *bounds: object, unroll: bool = True) -> None:
        builder = current()
        if not 1 <= len(bounds) <= 3:
            raise builder.error(f"lw.range takes a stop, or start, stop and step; {len(bounds)} are given")
        first, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        dtype = next((bound.dtype for bound in (first, stop, step) if isinstance(bound, Scalar)), None)
        for bound in (first, stop, step):
            if not isinstance(bound, Scalar) and (not is_number(bound) or isinstance(bound, float)):
                raise builder.error(f"lw.range takes integers, not {describe(bound)}")
        if dtype is not None and not is_int(dtype):
            raise builder.error(f"lw.range takes integers, not values of type {dtype.name}")
        if dtype in NARROW:
            raise builder.error(
                f"lw.range counts in 16 bits or more, not in {dtype.name}: convert with .to(lw.i32)"
            )
        self.start = scalar(first, dtype, "lw.range")
        self.stop = scalar(stop, self.start.dtype, "lw.range")
        if isinstance(step, int) and step < 0 and not self.start.dtype.signed:
            name = dtype_name(self.start.dtype)
            raise builder.error(
                f"lw.range counts in {name}, which has no step of {step}: convert the bounds with .to(lw.i32)"
            )
        self.step = scalar(step, self.start.dtype, "lw.range")
        if self.step.constant == 0:
            raise builder.error("lw.range: the step is 0, and the loop would never end")
        self._require_an_end()
        self.unroll = unroll

    def _require_an_end(self) -> None:
        """Raise an error if the counter is known to pass its type's last number, and to begin again."""
        first, stop, step = (each.constant for each in (self.start, self.stop, self.step))
        if first is None or stop is None or step is None:
            return
        rounds = max(-((first - stop) // step), 0)
        dtype, after = self.start.dtype, first + rounds * step
        if not dtype.min <= after <= dtype.max:
            raise current().error(
                f"lw.range: after its last round the counter is {after}, which {dtype_name(dtype)} does not "
                "have, and the loop would never end: count in a wider type"
            )

    def __iter__(self) -> Iterator[Scalar]:
        raise current().error(
            "lw.range is for a `for` statement in a function under @lw.kernel or @lw.device: mark the "
            "function, or use plain range, which unrolls"
        )


#: Rounds of an unrolled loop after which a sentence names lw.range, if each has emitted instructions.
_MANY_ROUNDS = 10_000
#: Rounds after which a loop that emits instructions in each is taken to have no end.
_MOST_ROUNDS = 200_000


class PythonLoop:
    """A loop on Python values, which Python unrolls; only a `break` under a traced condition is refused."""

    traced = False

    def __init__(
        self, items: object = None, first: object = None, test: Callable[[], object] | None = None
    ) -> None:
        self._items, self._first, self._test = items, first, test
        builder = current()
        self._depth, self._location = len(builder.open_control_flow), builder.location
        self._rounds, self._code, self._begin = 0, builder.code, len(builder.code)

    def items(self) -> Iterator[AnyValue]:
        """Yield what a `for` statement iterates over."""
        items: AnyValue = self._items
        for item in items:
            self._count_round("for")
            yield item

    def _count_round(self, word: str) -> None:
        """Count a round; say in a warning that there are many, and in an error that there are far too many.

        A loop that leaves no instructions behind, and only computes in Python, may take as many as it likes.
        """
        self._rounds += 1
        if self._rounds % _MANY_ROUNDS or len(self._code) - self._begin < self._rounds:
            return
        so_far = (
            f"this `{word}` is a loop of Python, which is unrolled: {self._rounds:,} rounds are "
            f"{len(self._code) - self._begin:,} instructions so far"
        )
        mend = "`for i in lw.range(…)` is a loop of the kernel, which is traced once"
        if word == "while":
            mend = "does what it tests ever change? With i = lw.i32(0) before it, it is a loop of the kernel"
        if self._rounds >= _MOST_ROUNDS:
            raise current().error(f"{so_far}, and it is stopped here; {mend}", self._location)
        if self._rounds == _MANY_ROUNDS:
            file, line = self._location.file, self._location.line
            warn_explicit(f"{so_far}, and each takes time to compile; {mend}", UserWarning, file, line)

    def test(self) -> AnyValue:
        """Return the condition of a `while` statement, evaluated before each round."""
        assert self._test is not None
        if self._first is None:
            condition = self._test()
            if hasattr(condition, "is_traced"):
                raise current().error(
                    "this `while` began with a Python condition, and now it is a traced one: make what it "
                    "tests a traced value before the loop, as in i = lw.i32(0)"
                )
            if condition:
                self._count_round("while")
            return condition
        first, self._first = self._first, None
        return first

    def leave(self, _: dict[str, object], word: str) -> bool:
        """Return True: Python itself is to do the `break` or `continue`."""
        if len(current().open_control_flow) > self._depth:
            raise current().error(
                f"`{word}` under a traced condition in a loop that Python unrolls: write the loop as "
                "`for i in lw.range(…)`"
            )
        return True


class _TracedLoop:
    """What the traced loops share: the registers of carried variables, and the labels to leave to."""

    traced = True
    repeats = True

    def __init__(self, carried: Carried, scope: Scope) -> None:
        self.builder = current()
        self.carried, self.scope, self.location = carried, scope, self.builder.location
        self.head, self.next, self.done = Label("loop"), Label("next"), Label("endloop")
        self.entered_unreachable = self.builder.unreachable

    def begin(self, names: dict[str, object]) -> tuple[AnyValue, ...]:
        """Give the carried variables registers; return the values of the bound names inside the loop."""
        check_aliases()
        self.values = LoopValues(CarriedValues(self.carried, names, self.scope), names, self.location.line)
        self.code: Code = []
        accept_contents()
        return self.values.bound()

    def first_number(self, register: Register | None) -> tuple[str, int] | None:
        """Return the name and the first value of the variable in a register, if it was a Python integer."""
        return self.values.first_number(register)

    def _enter(self) -> None:
        """Trace into the body of the loop from here on."""
        self.outer = self.builder.enter(self.code)
        self.builder.open_control_flow.append(self)

    def _update_registers(self, names: dict[str, object]) -> None:
        """Move what the variables hold now into the registers of the loop."""
        if not self.builder.unreachable:
            check_aliases()
            self.values.update(names)

    def leave(self, names: dict[str, object], word: str) -> bool:
        """Trace `break` or `continue`: branch out of the loop, or to the next round."""
        self._update_registers(names)
        self.builder.branch(self.done if word == "break" else self.next)
        self.builder.unreachable = True
        return False

    def _close(self) -> None:
        """End the tracing into the body of the loop."""
        self.values.close()
        self.builder.open_control_flow.pop()
        self.builder.leave(self.outer)

    def _set_initial_values(self) -> None:
        """Set the registers before the loop.

        A register that the loop never changes becomes an alias instead.
        """
        needed = []
        for register, initial in self.values.registers:
            if initial.register is register:
                continue
            if id(register) in self.values.changed:
                needed.append((register, initial))
            else:
                register.alias = initial.in_register  # not a constant: some instructions take registers alone
        parallel_move(needed)

    def after(self) -> tuple[AnyValue, ...]:
        """Return the values of the bound names after the loop: what the registers hold."""
        self.builder.unreachable = self.entered_unreachable
        self.builder.location = self.location
        values = self.values.after()
        accept_contents()
        return values


class For(_TracedLoop):
    """The loop `for i in lw.range(…)`: its body is traced once, with the index in a register."""

    def __init__(self, items: range, name: str, carried: Carried, scope: Scope) -> None:
        super().__init__(carried, scope)
        self.range, self.name = items, name

    def items(self) -> Iterator[Scalar]:
        """Yield the index once: the body is traced in one round."""
        start, step = self.range.start, self.range.step
        multiple = gcd(start.multiple, step.multiple)
        nonnegative = start.nonnegative and step.nonnegative
        self.index = Register(register_kind(start.dtype), self.name)
        self.value = Scalar(start.dtype, self.index, multiple=multiple, nonnegative=nonnegative)
        if self.name:
            self.builder.bound.setdefault(self.name, []).append(self.value)
        self._enter()
        yield self.value

    def end(self, names: dict[str, object]) -> None:
        """Write the loop, after its body was traced."""
        builder, stop, step = self.builder, self.range.stop, self.range.step
        self._update_registers(names)
        builder.location = self.location
        builder.label(self.next)
        builder.unreachable = builder.unreachable and not self.next.used
        builder.emit(f"add.{step.dtype.name}", self.index, self.index, step.operand, pure=True)
        self._test(stop, self.head)
        builder.unreachable = self.entered_unreachable
        self._close()
        self._write()

    def _comparisons(self, words: tuple[str, str]) -> list[tuple[str, Scalar | None]]:
        """Return how index and stop are compared: upwards, downwards, or both where only the kernel knows."""
        step, (up, down) = self.range.step, words
        if not step.dtype.signed or step.nonnegative:
            return [(up, None)]
        if step.constant is not None:
            return [(down, None)]
        return [(up, compare("ge", step, 0)), (down, compare("lt", step, 0))]

    def _test(self, stop: Scalar, label: Label) -> None:
        """Branch to the next round, if the index has not reached the stop."""
        builder, dtype = self.builder, self.range.step.dtype
        for word, holds in self._comparisons(("lt", "gt")):
            register = Register("pred")  # not `compare`: the index has changed since
            if holds is None:
                builder.emit(f"setp.{word}.{dtype.name}", register, self.index, stop.operand, pure=True)
            else:
                opcode = f"setp.{word}.and.{dtype.name}"
                builder.emit(opcode, register, self.index, stop.operand, holds.operand, pure=True)
            builder.branch(label, register)

    def _write(self) -> None:
        """Write the loop into the code around it, after a test for a loop without any round."""
        builder, start, stop = self.builder, self.range.start, self.range.stop
        self._set_initial_values()
        builder.emit(f"mov.{register_kind(start.dtype)}", self.index, start.operand, pure=True)
        for word, holds in self._comparisons(("ge", "le")):
            empty = compare(word, start, stop)
            if holds is not None:
                empty = bitwise("and", empty, holds)
            if empty.constant is None:
                builder.branch(self.done, empty.operand)
            elif empty.constant:
                builder.branch(self.done)
                builder.unreachable = self.entered_unreachable
        builder.label(self.head)
        if not self.range.unroll:
            builder.emit('.pragma "nounroll"')
        builder.code += self.code
        builder.label(self.done)


class While(_TracedLoop):
    """The loop `while` on a traced condition: condition and body are traced once."""

    def __init__(self, test: Callable[[], object] | None, carried: Carried, scope: Scope) -> None:
        super().__init__(carried, scope)
        self.condition, self.rounds = test, 0

    def test(self) -> bool:
        """Trace the condition before the one round; return whether the body is still to be traced."""
        self.rounds += 1
        if self.rounds > 1:
            return False
        self._enter()
        self.builder.location = self.location
        if self.condition is not None:
            condition = as_predicate(self.condition())
            if condition.constant is None and self.values.is_changed():
                body = Label("body")
                self.builder.branch(body, condition.operand)
                self.values.update(self.values.names)  # what the condition changed stays after the loop
                self.builder.branch(self.done)
                self.builder.unreachable = self.entered_unreachable
                self.builder.label(body)
            elif condition.constant is None:
                self.builder.branch(self.done, NotPredicate(condition.operand))
            elif not condition.constant:
                self.builder.branch(self.done)
        return True

    def end(self, names: dict[str, object]) -> None:
        """Write the loop, after its body was traced."""
        builder = self.builder
        self._update_registers(names)
        builder.label(self.next)
        builder.unreachable = builder.unreachable and not self.next.used
        builder.location = self.location
        builder.branch(self.head)
        builder.unreachable = self.entered_unreachable
        self._close()
        self._set_initial_values()
        builder.label(self.head)
        builder.code += self.code
        builder.label(self.done)
