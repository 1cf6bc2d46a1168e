"""Aliases that only the running kernel knows: containers that are one object or two, as a branch decides.

After `if c: a = b` with lists a and b, Python's `a[0] = x` changes b too where c holds. A trace cannot say
that, and does not have to as long as nobody changes one of them in place. So it notes such containers, and
raises an error once one is changed while another is still in reach.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from lanewise.lang.frontend.containers import identity
from lanewise.lang.frontend.heap import Container, State, everything_in_reach
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node

#: The name that stands for what `a if c else b` gives.
CHOICE = "value"


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
        reach = everything_in_reach(None, None, live).containers
        if any(each.key in reach and changed != [each.key] for each in self.containers):
            raise current().error(may_be_one(list(self.containers), self.what))
        current().changed_aliases.update(self.keys)
        self.accept()  # on this path nobody else can see the change


def may_be_one(
    containers: list[Container], what: str, change: str = "to change one of them in place, "
) -> str:
    """Return the message that a container is changed of which another location may hold the same."""
    names = sorted({each.name for each in containers} - {"", CHOICE})
    which = " and ".join(names) if len(names) > 1 else f"two values of {names[0]}" if names else "two values"
    kind = containers[0].value
    noun = "fragment" if isinstance(kind, Node) else type(kind).__name__
    return (
        f"{which} begin as one {noun} and part, or become one, in {what}, which only the running kernel "
        f"decides: {change}make a {noun} for each before it"
        + (", as in [mma.zeros() for _ in range(2)]" if isinstance(kind, Node) else "")
    )


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
