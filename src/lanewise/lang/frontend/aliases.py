"""Aliases that only the running kernel knows: containers that are one object or two, as a branch decides.

After `if c: a = b` with lists a and b, Python's `a[0] = x` changes b too where c holds. A trace cannot say
that, and does not have to as long as nobody changes one of them in place. So it notes such containers, and
raises an error once one is changed while another is still in reach.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

from lanewise.lang.frontend.containers import identity
from lanewise.lang.frontend.heap import Container, State, everything_in_reach
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node

#: The name that stands for what `a if c else b` gives; no variable of a program has it.
CHOICE = "__choice"


class UncertainAliases:
    """Two containers that may be one object, with their contents when that was last certain."""

    def __init__(self, one: Container, two: Container, what: str) -> None:
        self.containers = Container(one.value, one.name), Container(two.value, two.name)
        self.what = what
        self.accept()

    @property
    def keys(self) -> frozenset[Any]:
        """The identities of both."""
        return frozenset(each.key for each in self.containers)

    def accept(self) -> None:
        """Take the contents that the containers have now for unchanged."""
        for each in self.containers:
            each.note_contents()

    def check(self, live: Collection[str] | None) -> None:
        """Raise an error if one of them was changed in place while the other is in reach, by a live name."""
        changed = [each.key for each in self.containers if not each.is_unchanged()]
        if not changed:
            return
        reach = everything_in_reach(None, None, live)
        if any(each.key in reach.containers and changed != [each.key] for each in self.containers):
            one, two = sorted(self.containers, key=lambda each: each.key not in changed)
            raise current().error(may_be_one(one, two, self.what, everything_in_reach(None, None)))
        current().changed_aliases.update(self.keys)
        self.accept()  # on this path nobody else can see the change


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


def _in_words(value: Any) -> tuple[str, str]:
    """Return what a container is called, and how Python writes a copy of it."""
    if isinstance(value, Node):
        return "fragment", "{}.map(lambda e: e)" if hasattr(value, "map") else "a new fragment"
    noun = type(value).__name__
    if isinstance(value, list | dict | set | deque | bytearray):
        return noun, f"{noun}({{}})"
    return noun, "copy.copy({})"


class MadeAlias(NamedTuple):
    """A container, the name that holds it, and those that it may be, as (name, container)."""

    name: str
    value: Any
    candidates: list[tuple[str, Any]]


def note_uncertain(parts: list[MadeAlias], reach: State, what: str) -> None:
    """Note containers that may be one of others, which are still in reach or known to be uncertain.

    What may be one of these may be the new one, too.
    """
    noted = current().uncertain_aliases
    pairs = {pair.keys: pair.containers for pair in noted}
    known = set[Any]().union(*pairs, (identity(part.value) for part in parts))
    for part in parts:
        made = Container(part.value, part.name)
        candidates = {identity(value): Container(value, name) for name, value in part.candidates}
        given = set(candidates)
        for one, two in pairs.values():
            if not given.isdisjoint((one.key, two.key)):
                candidates = {one.key: one, two.key: two, **candidates}
        for key, other in candidates.items():
            both = frozenset((made.key, key))
            if len(both) == 1 or both in pairs:
                continue
            pairs[both] = made, other
            if key in known or key in reach.containers:
                noted.append(UncertainAliases(made, other, what))


def may_be_aliases_of(keys: Collection[Any], reach: State | None = None) -> set[Any]:
    """Return the keys of containers that may be one of some, and of those of these that may be another.

    With `reach`, those count that something still leads to.
    """
    found: set[Any] = set()
    for pair in current().uncertain_aliases:
        one, two = pair.containers
        for key, other in ((one.key, two.key), (two.key, one.key)):
            is_seen = reach is None or reach.has_callers or other in reach.containers
            if key in keys and is_seen:
                found |= pair.keys
    return found


def check_aliases(live: Collection[str] | None = None) -> None:
    """Raise an error if a container was changed in place that may be another one's alias.

    `live` are the names of the function that is traced that something reads later; None for all of them.
    """
    for each in tuple(current().uncertain_aliases):
        each.check(live)


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
