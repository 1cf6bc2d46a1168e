"""What a loop carries: a register for each location that its body may change.

At the head of the loop each carried name, and each slot of a container in reach, holds a register. A name
that the body binds gets containers of its own, since the next round may find another one there. Fragments in
lists and attributes do so too where several locations hold one; what else is shared stays shared.
"""

from collections import defaultdict

from lanewise.lang.frontend.containers import contents, empty_copy, identity, is_array, set_contents
from lanewise.lang.frontend.heap import Container, Held, State, may_be_aliases_of, may_be_one, note_uncertain
from lanewise.lang.frontend.merge import (
    CarriedValues,
    Undefined,
    convert_to_carried,
    difference,
    is_same_value,
    parallel_move,
)
from lanewise.lang.trace.builder import Register, current
from lanewise.lang.trace.scalar import Scalar, default_dtype, literal, scalar
from lanewise.lang.trace.traced import AnyValue, Node, describe, is_number, plain_number, rebuild
from lanewise.lang.trace.types import register_kind


class Head:
    """One location at the head of a loop: what it held before, and what it holds in the body."""

    __slots__ = ("children", "container", "entry", "initial", "register", "value")

    def __init__(self, entry: Held) -> None:
        self.entry = entry
        self.value = entry.value
        #: The register of a leaf, and the value that it has before the first round.
        self.register: Register | None = None
        self.initial: Scalar | None = None
        self.children: list[Head] | None = None
        self.container: HeadContainer | None = None


class HeadContainer:
    """A container at the head of a loop: the one that was there before, or a copy of its own."""

    def __init__(self, entry: Container, value: AnyValue) -> None:
        self.entry, self.value = entry, value
        self.heads: list[Head] = []
        #: The values that it holds at the head.
        self.contents: list[AnyValue] = []
        self.locations = 0
        #: Whether a location holds another container after a round.
        self.is_rebound = False
        self.is_changed_in_place = False

    @property
    def is_copy(self) -> bool:
        """Whether it is another object than the one before the loop."""
        return self.value is not self.entry.value

    def fill(self) -> None:
        """Give the container the contents of the head."""
        self.contents = [head.value for head in self.heads]
        if isinstance(self.value, Node) and self.is_copy:
            self.contents = contents(self.value)[1]
        else:
            set_contents(self.value, self.entry.form, self.contents)
            self.contents = contents(self.value)[1]

    def differs(self) -> bool:
        """Return whether the container holds other values now than at the head."""
        form, values = contents(self.value)
        return form != self.entry.form or any(
            now is not head for now, head in zip(values, self.contents, strict=True)
        )

    def note_change(self) -> None:
        """Note whether the body has changed the container in place."""
        self.is_changed_in_place = self.is_changed_in_place or self.differs()


class LoopValues:
    """The locations that a loop carries, with their registers."""

    def __init__(self, values: CarriedValues, names: dict[str, AnyValue], line: int) -> None:
        self.values, self.line = values, line
        self.reach = values.in_reach(names)
        self._in_place: dict[AnyValue, HeadContainer] = {}
        self._copies: list[HeadContainer] = []
        self._copied: dict[tuple[str, AnyValue], HeadContainer] = {}
        self._copied_keys: set[AnyValue] = set()
        #: Containers of global variables without values of the kernel.
        self._left_to_python: list[Container] = []
        #: Registers with their initial values, in order; and the ids of those that the loop changes.
        self.registers: list[tuple[Register, Scalar]] = []
        self.changed: set[int] = set()
        #: Head containers that may be one object with another, and what they may be.
        self._uncertain: list[tuple[HeadContainer, Container]] = []
        self.heads: dict[str, Head] = {}
        for name in values.names:
            root = values.first.roots.get(name)
            if root is None:
                continue
            before = len(self.registers)
            own = name in values.bound
            self.heads[name] = self._head(root, name, own, is_root=True, is_fixed=not own)
            labelled = self.registers[before:]
            for position, (register, initial) in enumerate(labelled):
                if initial.register is not register:
                    register.hint = name if len(labelled) == 1 else f"{name}{position}"
        for container in values.first.containers.values():
            if container.key not in self._in_place and container.key not in self._copied_keys:
                if container.key in values.first.of_globals and not container.holds_traced():
                    self._left_to_python.append(container)
                    continue
                self._container_in_place(container, container.name)
        #: The variables of the function, as they are at the head.
        self.names = {**names, **{name: head.value for name, head in self.heads.items()}}
        #: Head containers that hold another one's after a round.
        self._handed_on: list[tuple[HeadContainer, HeadContainer]] = []
        self._note_aliases_of_head()

    def _note_aliases_of_head(self) -> None:
        """Note which copies may be one object with another location's, as they are in the first round."""
        copies_of: dict[AnyValue, int] = defaultdict(int)
        for kept in self._copies:
            copies_of[kept.entry.key] += 1
        parts = [
            (copy.entry.name, [copy.value, copy.entry.value])
            for copy in self._copies
            if copies_of[copy.entry.key] > 1 or self._has_other_locations(copy)
        ]
        if parts:
            made = [copy.value for copy in self._copies]
            note_uncertain(parts, self.values.in_reach(self.names), f"the loop of line {self.line}", made)

    def _has_other_locations(self, container: HeadContainer) -> bool:
        """Return whether a location that is none of this head container's may hold what it was before."""
        key = container.entry.key
        return self.reach.references[key] > container.locations or bool(may_be_aliases_of([key]))

    # the head -------------------------------------------------------------------------------------------

    def bound(self) -> tuple[AnyValue, ...]:
        """Return the values of the bound names inside the loop."""
        what = f"the loop in line {self.line}"
        return tuple(
            self.heads[name].value
            if name in self.heads
            else Undefined(f"{name} has no value before {what}: give it one")
            for name in self.values.bound
        )

    def first_number(self, register: Register | None) -> tuple[str, int] | None:
        """Return the name and the first value of the variable in a register, if it was a Python integer."""
        for name, head in self.heads.items():
            if head.register is not None and head.register is register:
                return (name, head.entry.value) if type(head.entry.value) is int else None
        return None

    def _head(self, entry: Held, name: str, own: bool, is_root: bool = False, is_fixed: bool = False) -> Head:
        """Return a location at the head of the loop; `own` if its name is bound in the loop.

        What a fixed location holds is changed in place, if at all: nothing else is bound to it, and a
        number in it needs no register.
        """
        head = Head(entry)
        if entry.container is not None:
            head.container = self._container(entry.container, name, own, is_fixed)
            head.container.locations += 1
            head.value = head.container.value
            if isinstance(entry.value, Node) and head.value is entry.container.value:
                head.value = entry.value  # another view of the same registers
        elif entry.children is not None:
            head.children = [self._head(child, name, own, is_fixed=is_fixed) for child in entry.children]
            if any(
                new.value is not old.value for new, old in zip(head.children, entry.children, strict=True)
            ):
                head.value = rebuild(entry.value, [child.value for child in head.children])
        elif not is_fixed and (
            isinstance(entry.value, Scalar) or (own and is_root and is_number(entry.value))
        ):
            self._leaf(head)
        return head

    def _leaf(self, head: Head) -> None:
        """Give a leaf a register; one that is changed in place stays in its own."""
        value = head.entry.value
        start = value if isinstance(value, Scalar) else literal(value, default_dtype(plain_number(value)))
        if start.register is not None and start.register.in_place:
            head.register = start.register
        else:
            head.register = Register(register_kind(start.dtype))
        head.initial = start
        head.value = Scalar(start.dtype, head.register)
        self.registers.append((head.register, start))

    def _container(self, entry: Container, name: str, own: bool, is_fixed: bool) -> HeadContainer:
        """Return the container of a location at the head: the same as before, or a copy."""
        is_node = isinstance(entry.value, Node)
        parts = is_node and entry.value.storage is entry.value and self.reach.references[entry.key] > 1
        if isinstance(entry.value, type) or (not own and (is_fixed or not parts)):
            return self._container_in_place(entry, name)
        self._copied_keys.add(entry.key)
        if not is_node and (name, entry.key) in self._copied:
            return self._copied[name, entry.key]
        if is_node:
            heads = [self._head(child, name, own) for child in entry.held]
            copy = HeadContainer(entry, entry.value.with_children([head.value for head in heads], fresh=True))
            copy.heads = heads
            self._copied[name, entry.key] = copy
        else:
            copy = HeadContainer(entry, empty_copy(entry.value))
            self._copied[name, entry.key] = copy
            copy.heads = [self._head(child, name, own) for child in entry.held]
        copy.fill()
        self._copies.append(copy)
        return copy

    def _container_in_place(self, entry: Container, name: str) -> HeadContainer:
        container = self._in_place.get(entry.key)
        if container is None:
            container = self._in_place[entry.key] = HeadContainer(entry, entry.value)
            container.heads = [self._head(child, name, False) for child in entry.held]
            container.fill()
        return container

    def is_changed(self) -> bool:
        """Return whether a container holds other values than at the head of the loop."""
        return any(container.differs() for container in (*self._in_place.values(), *self._copies))

    # the end of a round ---------------------------------------------------------------------------------

    def update(self, names: dict[str, AnyValue]) -> None:
        """Move what the locations hold now into the registers of the loop."""
        containers = [*self._in_place.values(), *self._copies]
        known = [Container(container.value, container.entry.name) for container in containers]
        now = self.values.now(names, known)
        for left in self._left_to_python:
            what = f"the loop of line {self.line}"
            self.values.require_unchanged_global(left.key, now.containers[left.key], what)
        round_ = _Round(self, now)
        for name, head in self.heads.items():
            if name in now.roots:
                round_.match(name, head, now.roots[name])
        for member in containers:
            member.note_change()
            if id(member) not in round_.sources:
                round_.take_contents(member, now.containers[identity(member.value)])
        by_key = {identity(container.value): container for container in containers}
        for container, key in round_.holders:
            if key in by_key and by_key[key] is not container:
                self._handed_on.append((container, by_key[key]))
        uncertain = may_be_aliases_of(round_.held_by)
        tracked = {identity(container.value): container.locations for container in containers}
        for container, key in round_.holders:
            shared = len(round_.held_by[key]) > 1
            outside = key != container.entry.key and self.reach.references[key] > tracked.get(key, 0)
            if shared or outside or key in uncertain:
                self._uncertain.append((container, now.containers[key]))
        for member in containers if uncertain else ():
            if identity(member.value) in uncertain:
                self._uncertain.append((member, known[containers.index(member)]))
        parallel_move(round_.moves)

    def close(self) -> None:
        """Raise an error if the body changes a container in place that may be another location's."""
        by_entry: dict[AnyValue, list[HeadContainer]] = defaultdict(list)
        for container in (*self._in_place.values(), *self._copies):
            by_entry[container.entry.key].append(container)
        for key, group in by_entry.items():
            parts = any(container.is_copy or container.is_rebound for container in group)
            if parts and (len(group) > 1 or self.reach.references[key] > group[0].locations):
                self._uncertain += [(container, container.entry) for container in group]
        self._refuse_changes_handed_on()
        for container, other in self._uncertain:
            if container.is_changed_in_place and not _changes_registers(container):
                entries = [container.entry, other]
                entries += [one.entry for one, same in self._uncertain if same.key == other.key]
                raise current().error(may_be_one(entries, f"the loop of line {self.line}"))

    def _handed_around(self) -> list[list[HeadContainer]]:
        """Return head containers that hand theirs on to each other, if one may be another location's, too."""
        classes: dict[int, list[HeadContainer]] = {}
        for pair in self._handed_on:
            members = list(
                {id(one): one for member in pair for one in classes.get(id(member), [member])}.values()
            )
            for one in members:
                classes[id(one)] = members
        return [
            members
            for members in {id(members): members for members in classes.values()}.values()
            if len({one.entry.key for one in members}) < len(members)
            or any(map(self._has_other_locations, members))
        ]

    def _refuse_changes_handed_on(self) -> None:
        """Raise an error if a round changes what a later round finds at another name that has an alias."""
        for members in self._handed_around():
            keys = {key for one in members for key in (identity(one.value), one.entry.key)}
            changed = any(one.is_changed_in_place and not _changes_registers(one) for one in members)
            if changed or not keys.isdisjoint(current().changed_aliases):
                raise current().error(
                    may_be_one([one.entry for one in members], f"the loop of line {self.line}")
                )

    # after the loop -------------------------------------------------------------------------------------

    def after(self) -> tuple[AnyValue, ...]:
        """Set everything to what it is after the loop; return the values of the bound names."""
        done: dict[int, AnyValue] = {}
        for container in (*self._in_place.values(), *self._copies):
            self._container_after(container, done)
        outcome = {name: self._value_after(head, done) for name, head in self.heads.items()}
        for name in self.values.bound:
            if name not in outcome:
                outcome[name] = Undefined(
                    f"{name} has a value only inside the loop of line {self.line}: give one first"
                )
        #: What stands after the loop for a container of its head.
        later = {
            identity(container.value): done[id(container)]
            for container in (*self._in_place.values(), *self._copies)
        }
        parts = []
        for container, other in self._uncertain:
            if container.is_rebound:
                values = [done[id(container)], container.entry.value, later.get(other.key, other.value)]
                parts.append((container.entry.name, values))
        for container in (*self._in_place.values(), *self._copies):
            if done[id(container)] is not container.value and may_be_aliases_of([identity(container.value)]):
                parts.append((container.entry.name, [container.value, done[id(container)]]))
        for members in self._handed_around():
            values = [value for one in members for value in (done[id(one)], one.entry.value)]
            parts.append((members[0].entry.name, values))
        if parts:
            names = {**self.names, **outcome}
            note_uncertain(parts, self.values.in_reach(names), f"the loop of line {self.line}")
        return tuple(outcome[name] for name in self.values.bound)

    def _container_after(self, container: HeadContainer, done: dict[int, AnyValue]) -> AnyValue:
        """Return the container that a location holds after the loop, with its contents set."""
        if id(container) in done:
            return done[id(container)]
        keep = container.is_copy and not container.is_rebound
        target = container.entry.value if keep else container.value
        if container.is_rebound and not container.is_copy and not isinstance(target, Node):
            target = empty_copy(target)  # others may still hold the one from before the loop
            if not container.is_changed_in_place:
                container.entry.restore()
        done[id(container)] = target
        values = [self._value_after(head, done) for head in container.heads]
        if keep and all(new is head.entry.value for new, head in zip(values, container.heads, strict=True)):
            return target
        set_contents(target, container.entry.form, values)
        return target

    def _value_after(self, head: Head, done: dict[int, AnyValue]) -> AnyValue:
        if head.container is not None:
            target = self._container_after(head.container, done)
            if isinstance(target, Node) and target is head.container.entry.value:
                return head.entry.value  # another view of the same registers
            return target
        if head.children is not None:
            values = [self._value_after(child, done) for child in head.children]
            if all(new is child.entry.value for new, child in zip(values, head.children, strict=True)):
                return head.entry.value
            return rebuild(head.entry.value, values)
        if head.register is None or head.initial is None:
            return head.entry.value
        return (
            Scalar(head.initial.dtype, head.register) if id(head.register) in self.changed else head.initial
        )


def _changes_registers(container: HeadContainer) -> bool:
    """Return whether a container's registers are changed in place, so that copies of it share them."""
    return any(head.register is not None and head.register.in_place for head in container.heads)


class _Round:
    """What the locations of a loop hold at the end of a round, location by location."""

    def __init__(self, loop: LoopValues, now: State) -> None:
        self.loop, self.now = loop, now
        self.moves: list[tuple[Register, Scalar]] = []
        #: Where the contents of a head container come from, by its id.
        self.sources: dict[int, AnyValue] = {}
        self.holders: list[tuple[HeadContainer, AnyValue]] = []
        self.held_by: dict[AnyValue, set[int]] = defaultdict(set)

    def match(self, name: str, head: Head, held: Held) -> None:
        """Move what a location holds into its registers; `name` is the variable that leads to it."""
        if why := difference(head.entry, held, name):
            self._refuse(name, head.entry.value, held.value, why)
        if head.container is not None and held.container is not None:
            self._match_container(name, head.container, held.container)
        elif head.children is not None and held.children is not None:
            for child, now in zip(head.children, held.children, strict=True):
                self.match(name, child, now)
        elif head.register is None or head.initial is None:
            self._require_unchanged(name, head.entry.value, held.value)
        else:
            value = convert_to_carried(held.value, head.initial.dtype, name, "before the loop")
            if value.register is not head.register:
                self.moves.append((head.register, value))
                self.loop.changed.add(id(head.register))

    def _match_container(self, name: str, head: HeadContainer, now: Container) -> None:
        """Move the contents of the container that a location holds now into the registers of the head."""
        self.holders.append((head, now.key))
        self.held_by[now.key].add(id(head))
        if now.key != identity(head.value):
            head.is_rebound = True
        if id(head) not in self.sources:
            self.take_contents(head, now, name)
        elif self.sources[id(head)] != now.key:
            raise current().error(may_be_one([head.entry], f"the loop of line {self.loop.line}", change=""))

    def take_contents(self, head: HeadContainer, now: Container, name: str = "") -> None:
        """Move the contents of a container into the registers of one at the head."""
        self.sources[id(head)] = now.key
        name = name or head.entry.name or "a variable"
        if why := difference(Held(head.value, container=head.entry), Held(now.value, container=now), name):
            self._refuse(name, head.value, now.value, why)
        for child, held in zip(head.heads, now.held, strict=True):
            self.match(name, child, held)

    def _refuse(self, name: str, first: AnyValue, now: AnyValue, why: str) -> None:
        """Raise the error that a variable is of another structure or dtype after one round."""
        if isinstance(now, Undefined):
            now.complain()
        if isinstance(first, Scalar) or is_number(first):
            convert_to_carried(now, scalar(first).dtype, name, "before the loop")
        if is_array(first) and is_array(now):
            raise self.loop.values.array_is_changed(name, first, f"the loop of line {self.loop.line}")
        raise current().error(f"{why} before and after one round of the loop: it must keep its form")

    def _require_unchanged(self, name: str, start: AnyValue, leaf: AnyValue) -> None:
        """Raise an error if a Python value, for which the loop has no register, changes in it."""
        if start is leaf:
            return
        if isinstance(leaf, Undefined):
            leaf.complain()
        if not is_same_value(start, leaf):
            raise current().error(
                f"{name} holds {describe(start)} before the loop and {describe(leaf)} after one round: "
                "what a traced loop changes must be a traced value before it, as in lw.i32(0)"
            )
