"""Aliases that only the running kernel knows: containers that are one object or two, as a branch decides.

After `if c: a = b` with lists a and b, Python's `a[0] = x` changes b too where c holds. So a trace notes such
containers, with the predicate under which they are one, and selects: `b[0] = x if c else b[0]`. Where no
predicate tells, as after loops, and in statements that call functions, which could read one of them after
they changed the other, it raises an error once one is changed while the other is still in reach.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

from lanewise.lang.frontend.containers import contents, identity, set_contents
from lanewise.lang.frontend.heap import Container, State, everything_in_reach
from lanewise.lang.trace.bitwise import bitwise, invert
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.compare import select
from lanewise.lang.trace.pytrees import Node
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import pred

#: The name that stands for what `a if c else b` gives; no variable of a program has it.
CHOICE = "__choice"


class Condition(NamedTuple):
    """A predicate, and whether two containers are one where it holds, or where it does not."""

    predicate: Scalar
    holds: bool

    def select(self, x: Scalar, y: Scalar) -> Scalar:
        """Return x where the containers are one, and y where they are not."""
        return select(self.predicate, x, y) if self.holds else select(self.predicate, y, x)


class UncertainAliases:
    """Two containers that may be one object, with their contents when that was last certain."""

    def __init__(self, one: Container, two: Container, what: str, condition: Condition | None = None) -> None:
        self.containers = Container(one.value, one.name), Container(two.value, two.name)
        #: Where they are one; None if no predicate tells.
        self.what, self.condition = what, condition
        self._control_flow = tuple(current().open_control_flow)
        self.accept()

    @property
    def keys(self) -> frozenset[Any]:
        """The identities of both."""
        return frozenset(each.key for each in self.containers)

    def accept(self) -> None:
        """Take the contents that the containers have now for unchanged."""
        for each in self.containers:
            each.note_contents()

    def condition_here(self) -> Condition | None:
        """Return where they are one, if the predicate has a value at this point of the kernel."""
        flow = self._control_flow
        return self.condition if tuple(current().open_control_flow)[: len(flow)] == flow else None

    def settle(self, changed: Collection[Any], reach: State) -> None:
        """Carry what a statement changed in one of them over to the other, if that is still in reach.

        It raises an error where that cannot be.
        """
        mine = [each for each in self.containers if each.key in changed]
        others = [each for each in self.containers if each.key in reach.containers]
        if not mine or not others or mine == others:
            current().changed_aliases.update(self.keys if mine else ())
            return
        one, two = mine[0], self.containers[0] if mine[0] is self.containers[1] else self.containers[1]
        if len(mine) > 1 or not self._carry(one, two):
            raise current().error(may_be_one(one, two, self.what, everything_in_reach(None, None)))

    def _carry(self, source: Container, target: Container) -> bool:
        """Give a container the numbers that another one got, where they are one; return whether it can."""
        condition = self.condition_here()
        form, values = contents(source.value)
        target_form, old = contents(target.value)
        if (
            condition is None
            or not current().plain_statement
            or form != source.form
            or len(old) != len(values)
        ):
            return False
        new = []
        for before, now, other in zip(source.held, values, old, strict=True):
            if now is before.value:
                new.append(other)
            elif _is_number(now) and _is_number(other) and now.dtype == other.dtype:
                new.append(condition.select(now, other))
            else:
                return False
        set_contents(target.value, target_form, new)
        return True


def _is_number(value: object) -> bool:
    """Return whether a value is a number of the kernel in a register that instructions do not change."""
    return isinstance(value, Scalar) and not (value.register is not None and value.register.in_place)


def may_be_one(one: Container, two: Container, what: str, reach: State, when: str = "before this") -> str:
    """Return the message that a container is changed, or bound anew, which another location may hold, too.

    The locations are named as the program can write them where the error is; the first one is changed.
    """
    first, second = _two_names(_names(one, reach), _names(two, reach))
    noun, copied = _in_words(one.value)
    which = f"{first} and {second}" if second else f"two values of {first}" if first else "two values"
    return (
        f"{which} are one {noun} on one path through {what} and two on another, and only the running kernel "
        f"knows which: {when}, give one of them a {noun} of its own"
        + (f", as in {first} = {copied.format(first)}" if first else "")
    )


def _names(container: Container, reach: State) -> list[str]:
    """Return how the program can write a container; an empty list if it has a name of the library's alone."""
    known = reach.containers.get(container.key)
    names = [*(known.names if known is not None else ()), container.name]
    return [name for name in names if name and not name.startswith((CHOICE, "__"))]


def _two_names(ones: list[str], twos: list[str]) -> tuple[str, str]:
    """Return a name for each of two containers, the shortest that differ; an empty text if there is none."""
    pairs = [(one, two) for one in ones for two in twos if one != two]
    if pairs:
        return min(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    names = sorted({*ones, *twos}, key=len)
    return (names[0] if names else ""), (names[1] if len(names) > 1 else "")


def _in_words(value: object) -> tuple[str, str]:
    """Return what a container is called, and how Python writes a copy of it."""
    if isinstance(value, Node):
        return "fragment", "{}.map(lambda e: e)" if hasattr(value, "map") else "a new fragment"
    noun = type(value).__name__
    if isinstance(value, list | dict | set | deque | bytearray):
        return noun, f"{noun}({{}})"
    return noun, "copy.copy({})"


class MadeAlias(NamedTuple):
    """A container, the name that holds it, and those that it may be, as (name, container).

    `condition` tells where it is the first of two, and else the other one; None if nothing tells.
    """

    name: str
    value: Any
    candidates: list[tuple[str, Any]]
    condition: Condition | None = None


def note_uncertain(parts: list[MadeAlias], reach: State, what: str) -> None:
    """Note containers that may be one of others, which are still in reach or known to be uncertain.

    What may be one of these may be the new one, too.
    """
    noted = current().uncertain_aliases
    pairs: dict[frozenset[Any], UncertainAliases] = {pair.keys: pair for pair in noted}
    known = set[Any]().union(*pairs, (identity(part.value) for part in parts))
    for part in parts:
        made = Container(part.value, part.name)
        candidates = {identity(value): Container(value, name) for name, value in part.candidates}
        given = set(candidates)
        for pair in tuple(pairs.values()):
            if not given.isdisjoint(pair.keys):
                one, two = pair.containers
                candidates = {one.key: one, two.key: two, **candidates}
        for key, other in candidates.items():
            both = frozenset((made.key, key))
            if len(both) == 1 or both in pairs:
                continue
            condition = _condition(part, key, pairs)
            pairs[both] = UncertainAliases(made, other, what, condition)
            if key in known or key in reach.containers:
                noted.append(pairs[both])


def _condition(
    part: MadeAlias, key: object, pairs: dict[frozenset[Any], UncertainAliases]
) -> Condition | None:
    """Return where a new container is one with another; None if nothing tells."""
    if part.condition is None:
        return None
    sides: list[Any] = []
    for _, value in part.candidates:
        pair = pairs.get(frozenset((identity(value), key)))
        sides.append(identity(value) == key if pair is None else pair.condition_here())
    left, right = sides
    if left is None or right is None:
        return None
    if isinstance(left, bool) and isinstance(right, bool):
        return part.condition._replace(holds=left) if left is not right else None
    test = part.condition.predicate
    both = [
        bitwise("and", predicate, _as_predicate(side))
        for predicate, side in ((test, left), (invert(test), right))
    ]
    return Condition(bitwise("or", *both), True)


def _as_predicate(side: Condition | bool) -> Scalar:
    """Return a condition as a predicate."""
    if isinstance(side, bool):
        return Scalar(pred, constant=side)
    return side.predicate if side.holds else invert(side.predicate)


def may_be_aliases_of(
    keys: Collection[Any], reach: State | None = None, without_condition: bool = False
) -> set[Any]:
    """Return the keys of containers that may be one of some, and of those of these that may be another.

    With `reach`, those count that something still leads to; with `without_condition`, those of which no
    predicate tells whether they are one.
    """
    found: set[Any] = set()
    for pair in current().uncertain_aliases:
        one, two = pair.containers
        if without_condition and pair.condition is not None:
            continue
        for key, other in ((one.key, two.key), (two.key, one.key)):
            is_seen = reach is None or reach.has_callers or other in reach.containers
            if key in keys and is_seen:
                found |= pair.keys
    return found


def forget_conditions(keys: Collection[Any]) -> set[Any]:
    """Take conditions for unknown that tell whether some containers are others; return the keys of both."""
    found: set[Any] = set()
    for pair in current().uncertain_aliases:
        if not pair.keys.isdisjoint(keys):
            pair.condition = None
            found |= pair.keys
    return found


def check_aliases(live: Collection[str] | None = None) -> None:
    """Carry changes of containers in place over to their aliases; an error where that cannot be.

    `live` are the names of the function that is traced that something reads later; None for all of them.
    """
    pairs = tuple(current().uncertain_aliases)
    changed = {each.key for pair in pairs for each in pair.containers if not each.is_unchanged()}
    if changed:
        reach = everything_in_reach(None, None, live)
        for pair in pairs:
            pair.settle(changed, reach)
        accept_contents()


def forget_unreachable(reach: State) -> None:
    """Leave out containers that nothing leads to any more: nobody sees whether they are another one."""
    groups = current().uncertain_aliases
    if not groups or reach.has_callers:
        return
    groups[:] = [pair for pair in groups if pair.keys <= reach.containers.keys()]


def accept_contents() -> None:
    """Take what containers hold now for unchanged: a branch or loop has set it, and not the program."""
    for each in current().uncertain_aliases:
        each.accept()
