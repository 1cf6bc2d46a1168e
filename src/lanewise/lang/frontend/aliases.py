"""Aliases that only the running kernel knows: containers that are one object or two, as a branch decides.

After `if c: a = b` with lists a and b, Python's `a[0] = x` changes b too where c holds. A trace cannot say
that, and does not have to as long as nobody changes one of them in place. So it notes such containers, and
raises an error once one is changed while another is still in reach.
"""

from collections.abc import Collection
from typing import Any

from lanewise.lang.frontend.containers import identity
from lanewise.lang.frontend.heap import Container, State, everything_in_reach
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node

#: The name that stands for what `a if c else b` gives.
CHOICE = "value"


class UncertainAliases:
    """Containers of which two may be one object, with their contents when that was last certain."""

    def __init__(self, containers: list[Container], what: str) -> None:
        self.containers, self.what = containers, what
        self.accept()

    def accept(self) -> None:
        """Take the contents that the containers have now for unchanged."""
        for container in self.containers:
            container.note_contents()

    def check(self) -> None:
        """Raise an error if one of them was changed in place while another is in reach."""
        if all(container.is_unchanged() for container in self.containers):
            return
        reach = everything_in_reach(None, None).containers
        if sum(container.key in reach for container in self.containers) > 1:
            raise current().error(may_be_one(self.containers, self.what))
        current().changed_aliases.update(container.key for container in self.containers)
        self.accept()  # on this path nobody else can see the change


def may_be_one(
    containers: list[Container], what: str, change: str = "to change one of them in place, "
) -> str:
    """Return the message that a container is changed of which another location may hold the same."""
    names = sorted({container.name for container in containers} - {"", CHOICE})
    which = " and ".join(names) if len(names) > 1 else f"two values of {names[0]}" if names else "two values"
    kind = containers[0].value
    noun = "fragment" if isinstance(kind, Node) else type(kind).__name__
    return (
        f"{which} begin as one {noun} and part, or become one, in {what}, which only the running kernel "
        f"decides: {change}make a {noun} for each before it"
        + (", as in [mma.zeros() for _ in range(2)]" if isinstance(kind, Node) else "")
    )


def note_uncertain(
    parts: list[tuple[str, list[Any]]], reach: State, what: str, made: Collection[Any] = ()
) -> None:
    """Note groups of containers, each with a name, of which those that are still in reach may be one.

    `made` are containers that come into reach just now. What may be one with a container that is known to be
    uncertain joins the others of that one.
    """
    noted = current().uncertain_aliases
    known = {one.key: one for group in noted for one in group.containers}
    groups = [{one.key: one for one in group.containers} for group in noted]
    for name, values in parts:
        group = {identity(value): Container(value, name) for value in values}
        for other in [candidate for candidate in groups if not candidate.keys().isdisjoint(group)]:
            groups.remove(other)
            group = {**group, **other}
        groups.append(group)
    new = set(map(identity, made))
    before = {frozenset(one.key for one in group.containers): group for group in noted}
    noted.clear()
    for group in groups:
        kept = [
            member for key, member in group.items() if key in known or key in new or key in reach.containers
        ]
        if len(kept) > 1:
            same = before.get(frozenset(member.key for member in kept))
            noted.append(same or UncertainAliases(kept, what))


def may_be_aliases_of(keys: Collection[Any]) -> set[object]:
    """Return the keys of all containers that may be one of some, those themselves left out."""
    others: set[Any] = set()
    for group in current().uncertain_aliases:
        members = {container.key for container in group.containers}
        if not members.isdisjoint(keys):
            others |= members
    return others


def check_aliases() -> None:
    """Raise an error if a container was changed in place that may be another one's alias."""
    for alias in tuple(current().uncertain_aliases):
        alias.check()


def accept_contents() -> None:
    """Take what containers hold now for unchanged: a branch or loop has set it, and not the program."""
    for alias in current().uncertain_aliases:
        alias.accept()
