"""Loops while tracing: `for i in lw.range(…)` and `while` on traced values, with break and continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import Any

from lanewise.lang.arithmetic import bitwise, compare, truth
from lanewise.lang.builder import Code, Label, Negated, Register, current
from lanewise.lang.carry import Undefined, before, converted, fresh_copies, moves, same
from lanewise.lang.trees import Snapshot
from lanewise.lang.types import is_int, register_kind
from lanewise.lang.values import Scalar, describe, is_number, literal, scalar


class range:
    """`lw.range(stop)`, `lw.range(start, stop, step)`: a loop of the kernel, not of the trace.

    With `unroll=False` ptxas does not unroll it either.
    """

    def __init__(self, *bounds: Any, unroll: bool = True) -> None:
        builder = current()
        if not 1 <= len(bounds) <= 3:
            raise builder.error(f"lw.range takes a stop, or start, stop and step; {len(bounds)} are given")
        first, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        dtype = next((each.dtype for each in (first, stop, step) if isinstance(each, Scalar)), None)
        for each in (first, stop, step):
            if not isinstance(each, Scalar) and (not is_number(each) or isinstance(each, float)):
                raise builder.error(f"lw.range takes integers, not {describe(each)}")
        if dtype is not None and not is_int(dtype):
            raise builder.error(f"lw.range takes integers, not values of type {dtype.name}")
        self.start = scalar(first, dtype, "lw.range")
        self.stop = scalar(stop, self.start.dtype, "lw.range")
        self.step = scalar(step, self.start.dtype, "lw.range")
        if self.step.constant == 0:
            raise builder.error("lw.range: the step is 0, and the loop would never end")
        self.unroll = unroll

    def __iter__(self) -> Iterator[Any]:
        raise current().error(
            "lw.range is for a `for` statement in a function under @lw.kernel or @lw.device: mark the "
            "function, or use plain range, which unrolls"
        )


class Plain:
    """A loop on Python values: plain Python, but for a `break` under a traced condition."""

    traced = False

    def __init__(self, items: Any = None, first: Any = None, test: Callable[[], Any] | None = None) -> None:
        self._items, self._first, self._test = items, first, test
        self._open = len(current().open)

    def items(self) -> Any:
        """What `for` goes through."""
        return self._items

    def test(self) -> Any:
        """What `while` asks each time."""
        assert self._test is not None
        if self._first is None:
            found = self._test()
            if hasattr(found, "is_traced"):
                raise current().error(
                    "this `while` began with a Python condition, and now it is a traced one: make what it "
                    "tests a traced value before the loop, as in i = lw.i32(0)"
                )
            return found
        first, self._first = self._first, None
        return first

    def leave(self, _: dict[str, Any], word: str) -> bool:
        """`break` and `continue`."""
        if len(current().open) > self._open:
            raise current().error(
                f"`{word}` under a traced condition in a loop that Python unrolls: write the loop as "
                "`for i in lw.range(…)`"
            )
        return True


class _Loop:
    """What the traced loops share: the carried variables and the ways out."""

    traced = True

    def __init__(self, bound: tuple[str, ...], read: tuple[str, ...]) -> None:
        self.builder = current()
        self.bound, self.read, self.place = bound, read, self.builder.place
        self.head, self.next, self.done = Label("loop"), Label("next"), Label("endloop")
        self.unreached = self.builder.dead

    def _carry(self, names: dict[str, Any]) -> tuple[Any, ...]:
        self.values = before(self.bound, self.read, names)
        self.code: Code = []
        found, self.registers = fresh_copies(self.values, f"the loop in line {self.place.line}")
        self.entry = [each for own in self.registers for each in own if each is not None]
        self.moved: set[int] = set()  # registers that the loop sets
        return tuple(found[: len(self.bound)])

    def _enter(self) -> None:
        self.outer = self.builder.enter(self.code)
        self.builder.open.append(self)

    def _set(self, names: dict[str, Any]) -> None:
        """Move what the variables hold now into the registers of the loop."""
        builder = self.builder
        if builder.dead:
            return
        pairs: list[tuple[Register, Scalar]] = []
        for name, first, own, now in zip(
            self.values.names, self.values.first, self.registers, self.values.now(names), strict=True
        ):
            if first is None or now is None:
                continue
            if why := first.mismatch(now, name):
                self._changed(name, first, now, why)
            for start, held, leaf in zip(first.leaves, own, now.leaves, strict=True):
                if held is None:
                    self._static(name, start, leaf)
                    continue
                register, initial = held
                value = converted(leaf, initial.dtype, name, "before the loop")
                if value.register is not register:
                    pairs.append((register, value))
                    self.moved.add(id(register))
        moves(pairs)

    def _changed(self, name: str, first: Snapshot, now: Snapshot, why: str) -> None:
        if isinstance(now.value, Undefined):
            now.value.complain()
        if isinstance(first.value, Scalar) or is_number(first.value):
            dtype = (
                first.value.dtype
                if isinstance(first.value, Scalar)
                else literal(0, scalar(first.value).dtype).dtype
            )
            converted(now.value, dtype, name, "before the loop")
        raise self.builder.error(f"{why} before and after one round of the loop: it must stay alike")

    def _static(self, name: str, start: Any, leaf: Any) -> None:
        if isinstance(leaf, Undefined):
            leaf.complain()
        if not same(start, leaf):
            raise self.builder.error(
                f"{name} holds {describe(start)} before the loop and {describe(leaf)} after one round: "
                "what a traced loop changes must be a traced value before it, as in lw.i32(0)"
            )

    def leave(self, names: dict[str, Any], word: str) -> bool:
        """`break` and `continue`: on with the next round, or out of the loop."""
        self._set(names)
        self.builder.branch(self.done if word == "break" else self.next)
        self.builder.dead = True
        return False

    def _close(self) -> None:
        self.builder.open.pop()
        self.builder.leave(self.outer)

    def _write_entry(self) -> None:
        """Set the registers of the loop before it; what it never changes needs none."""
        needed = []
        for register, initial in self.entry:
            if id(register) in self.moved:
                needed.append((register, initial))
            else:
                register.alias = initial.in_register if initial.constant is None else initial.operand
        moves(needed)

    def after(self) -> tuple[Any, ...]:
        """After the loop: the variables are what the registers hold."""
        self.builder.dead = self.unreached
        self.builder.place = self.place
        out = []
        for number, (name, first, own) in enumerate(
            zip(self.values.names, self.values.first, self.registers, strict=True)
        ):
            if first is None:
                out.append(
                    Undefined(
                        f"{name} has a value only inside the loop of line {self.place.line}: give one first"
                    )
                )
                continue
            leaves = [
                leaf if held is None else self._outcome(held)
                for leaf, held in zip(first.leaves, own, strict=True)
            ]
            out.append(first.build(leaves, fresh=number < len(self.bound)))
        return tuple(out[: len(self.bound)])

    def _outcome(self, held: tuple[Register, Scalar]) -> Scalar:
        register, initial = held
        return Scalar(initial.dtype, register) if id(register) in self.moved else initial


class For(_Loop):
    """`for i in lw.range(…)`."""

    def __init__(self, items: range, bound: tuple[str, ...], read: tuple[str, ...], name: str) -> None:
        super().__init__(bound, read)
        self.range, self.name = items, name

    def begin(self, names: dict[str, Any]) -> tuple[Any, ...]:
        """Before the loop."""
        return self._carry(names)

    def items(self) -> Iterator[Scalar]:
        """Its one round."""
        start, step = self.range.start, self.range.step
        multiple = gcd(start.multiple, step.multiple)
        natural = start.natural and step.natural
        self.index = Register(register_kind(start.dtype), self.name)
        self.value = Scalar(start.dtype, self.index, multiple=multiple, natural=natural)
        self._enter()
        yield self.value

    def end(self, names: dict[str, Any]) -> None:
        """After the one round."""
        builder, stop, step = self.builder, self.range.stop, self.range.step
        self._set(names)
        builder.place = self.place
        builder.label(self.next)
        builder.dead = builder.dead and not self.next.used
        builder.emit(f"add.{step.dtype.name}", self.index, self.index, step.operand, pure=True)
        self._test(stop, self.head)
        builder.dead = self.unreached
        self._close()
        self._write()

    def _ways(self, words: tuple[str, str]) -> list[tuple[str, Scalar | None]]:
        """How index and stop are compared: upwards, downwards, or either where only the kernel knows."""
        step, (up, down) = self.range.step, words
        if not step.dtype.signed or step.natural:
            return [(up, None)]
        if step.constant is not None:
            return [(down, None)]
        return [(up, compare("ge", step, 0)), (down, compare("lt", step, 0))]

    def _test(self, stop: Scalar, label: Label) -> None:
        """Once more, if the index has not reached the stop."""
        builder, dtype = self.builder, self.range.step.dtype
        for word, holds in self._ways(("lt", "gt")):
            register = Register("pred")  # not `compare`: the index has changed since
            if holds is None:
                builder.emit(f"setp.{word}.{dtype.name}", register, self.index, stop.operand, pure=True)
            else:
                opcode = f"setp.{word}.and.{dtype.name}"
                builder.emit(opcode, register, self.index, stop.operand, holds.operand, pure=True)
            builder.branch(label, register)

    def _write(self) -> None:
        builder, start, stop = self.builder, self.range.start, self.range.stop
        self._write_entry()
        builder.emit(f"mov.{register_kind(start.dtype)}", self.index, start.operand, pure=True)
        for word, holds in self._ways(("ge", "le")):
            empty = compare(word, start, stop)
            if holds is not None:
                empty = bitwise("and", empty, holds)
            if empty.constant is None:
                builder.branch(self.done, empty.operand)
            elif empty.constant:
                builder.branch(self.done)
                builder.dead = self.unreached
        builder.label(self.head)
        if not self.range.unroll:
            builder.emit('.pragma "nounroll"')
        builder.code += self.code
        builder.label(self.done)


class While(_Loop):
    """`while` on a traced condition."""

    def __init__(self, test: Callable[[], Any] | None, bound: tuple[str, ...], read: tuple[str, ...]) -> None:
        super().__init__(bound, read)
        self.condition, self.rounds = test, 0

    def begin(self, names: dict[str, Any]) -> tuple[Any, ...]:
        """Before the loop."""
        return self._carry(names)

    def test(self) -> bool:
        """The condition, traced before the one round."""
        self.rounds += 1
        if self.rounds > 1:
            return False
        self._enter()
        self.builder.place = self.place
        if self.condition is not None:
            found = truth(self.condition())
            if found.constant is None:
                self.builder.branch(self.done, Negated(found.operand))
            elif not found.constant:
                self.builder.branch(self.done)
        return True

    def end(self, names: dict[str, Any]) -> None:
        """After the one round."""
        builder = self.builder
        self._set(names)
        builder.label(self.next)
        builder.dead = builder.dead and not self.next.used
        builder.place = self.place
        builder.branch(self.head)
        builder.dead = self.unreached
        self._close()
        self._write_entry()
        builder.label(self.head)
        builder.code += self.code
        builder.label(self.done)
