"""Variables that branches and loops carry: their values before, moves into registers, and joins.

Which names are carried is found by `liveness.py`; what loops carry is in `loop_values.py`. Where two branches
join, each location gets the value of the branch that ran, in a register if they differ. A container that both
branches hold stays itself, and its contents are joined in place. Two containers that one location holds
become a third one, whose aliases are followed in `heap.py`.
"""

from collections.abc import Iterable
from typing import NoReturn

from lanewise.formats import f32
from lanewise.lang.frontend.containers import array_in_words, empty_copy, in_words, is_array, set_contents
from lanewise.lang.frontend.heap import Container, Held, Scope, State, everything_in_reach, note_uncertain
from lanewise.lang.frontend.liveness import Carried
from lanewise.lang.trace.builder import Register, SourceLocation, current
from lanewise.lang.trace.errors import KernelError
from lanewise.lang.trace.scalar import PackedElement, Scalar, default_dtype, literal
from lanewise.lang.trace.traced import AnyValue, Node, Traced, describe, is_number, plain_number, rebuild
from lanewise.lang.trace.types import dtype_name, pred, register_kind


class Undefined:
    """The value of a variable that only one path through the code sets: every use of it is an error."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        object.__setattr__(self, "reason", reason)

    def complain(self) -> NoReturn:
        """Raise the error that says why there is no value."""
        raise current().error(self.reason)

    def __getattr__(self, name: str) -> AnyValue:
        if name.startswith("__") or name in ("is_traced",):
            raise AttributeError(name)
        self.complain()

    def _use(self, *_: object) -> AnyValue:
        self.complain()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __floordiv__ = __mod__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __pow__ = __matmul__ = (
        _use
    )
    __rfloordiv__ = __rmod__ = __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __rpow__ = _use
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __getitem__ = __setitem__ = __iter__ = _use
    __call__ = __bool__ = __index__ = __int__ = __float__ = __len__ = __neg__ = __abs__ = __invert__ = _use
    __hash__ = object.__hash__


#: Why Python's own changes of its objects do not belong under control flow of the kernel.
_CHANGED_ONCE = (
    "Python changes them once, while the kernel is traced, and not where and as often as the kernel runs"
)


class CarriedValues:
    """What names hold before a branch or loop: those bound in it, and the others that are read in it."""

    def __init__(self, carried: Carried, names: dict[str, object], scope: Scope | None) -> None:
        self.bound, self.restored, self.live = carried.bound, carried.restored, carried.live
        self.read, self.scope = carried.read, scope
        self.names = (*self.bound, *self.restored, *(name for name in self.read if name in names))
        #: Names without a value, which count as if nothing had been bound to them.
        self._undefined = {name: value for name, value in names.items() if isinstance(value, Undefined)}
        self.first = self._state({name: names[name] for name in names if name not in self._undefined})

    def _state(self, names: dict[str, object], containers: Iterable[Container] = ()) -> State:
        held = {name: names[name] for name in self.names if name in names}
        return State(held, self.scope, containers=containers, read=self.read)

    def now(self, names: dict[str, object], containers: Iterable[Container] = ()) -> State:
        """Return what the names hold at another point, and the containers that they led to before."""
        return self._state(names, (*self.first.containers.values(), *containers))

    def restore(self) -> tuple[AnyValue, ...]:
        """Set everything back to what it was.

        It returns the values of the bound names and of those only restored.
        """
        self.first.restore()
        return tuple(
            self.first.roots[name].value
            if name in self.first.roots
            else self._undefined.get(name, Undefined(f"{name} has no value here"))
            for name in (*self.bound, *self.restored)
        )

    def rebind(self, state: State) -> tuple[object, ...]:
        """Set everything to what it was at another point; return the values of the bound names."""
        state.restore()
        return tuple(
            state.roots[name].value
            if name in state.roots
            else Undefined(f"{name} has no value here: give it one first")
            for name in self.bound
        )

    def require_unchanged_global(self, key: object, now: Container, where: str) -> None:
        """Raise an error if a branch or loop sets elements of a global container that is read later.

        Python does it while it traces, in both branches and once for a loop. What other functions do with
        their own global variables, and what is added to a container, as to a log, is left to Python.
        """
        before, names = self.first.containers[key], set(self.read).intersection(self.live)
        if before.holds_traced() or now.holds_traced() or self.scope is None:
            return
        name = next((name for name in sorted(names) if self.scope.globals.get(name) is now.value), None)
        if name is None:
            return
        if is_array(now.value):
            if before.form != now.form:
                before.restore()
                raise self.array_is_changed(name, now.value, where)
        elif before.form == now.form and not all(
            is_same_value(old.value, new.value) for old, new in zip(before.held, now.held, strict=True)
        ):
            before.restore()  # so that the next trace finds what this one found
            raise current().error(
                f"{name} is a global {type(now.value).__name__}, and its elements change in {where}: "
                f"{_CHANGED_ONCE}. Copy it into a variable of the kernel first, as in "
                f"{name.lower()}_here = copy.copy({name}), or use lw.local"
            )

    def array_is_changed(self, name: str, array: object, where: str) -> KernelError:
        """Return the error for an array whose elements Python changes in a branch or loop."""
        self.first.restore()  # so that the next trace finds what this one found
        return current().error(
            f"{name} is {array_in_words(array)}, and its elements change in {where}: {_CHANGED_ONCE}. "
            "lw.local(lw.f32, 4) is an array of each thread, lw.shared(lw.f32, 4) one of the block"
        )

    def in_reach(self, names: dict[str, object] | None) -> State:
        """Return all that can still be reached, from names of this function and of those that called it."""
        if names is None:
            return everything_in_reach(None, self.scope)
        return everything_in_reach({name: names[name] for name in self.live if name in names}, self.scope)


def convert_to_carried(value: AnyValue, dtype: AnyValue, name: str, what: str) -> Scalar:
    """Return a value as a Scalar of the dtype that a carried variable has; an error if it has another."""
    if isinstance(value, Scalar) and value.dtype == dtype:
        return value
    if is_number(value) and not (isinstance(value, bool) and dtype is not pred):
        return literal(plain_number(value), dtype)
    if isinstance(value, Undefined):
        value.complain()
    kind = dtype_name(value.dtype) if isinstance(value, Scalar) else describe(value)
    raise current().error(
        f"{name} is {dtype_name(dtype)} {what} and becomes {kind}: a variable keeps its type; convert it "
        f"with .to(lw.{dtype_name(dtype)}), or use another name"
    )


def move(register: Register, value: Scalar) -> None:
    """Emit the move of a value into a register."""
    current().emit(f"mov.{register_kind(value.dtype)}", register, value.operand, pure=True)


def parallel_move(pairs: list[tuple[Register, Scalar]]) -> None:
    """Emit the moves of values into registers in such an order that none is overwritten before it is read."""
    ready = [(register, value, value.operand) for register, value in pairs]
    targets = {id(register) for register, _, operand in ready if operand is not register}
    saved: list[tuple[Register, Scalar, object]] = []
    for register, value, operand in ready:
        if operand is register:
            continue
        if id(operand) in targets:
            kind = register_kind(value.dtype)
            operand = current().result(f"mov.{kind}", kind, operand)
        saved.append((register, value, operand))
    for register, value, operand in saved:
        current().emit(f"mov.{register_kind(value.dtype)}", register, operand, pure=True)


def is_same_value(a: object, b: object) -> bool:
    """Return whether two leaves are one value, so that nothing has to be carried."""
    if a is b:
        return True
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        if a.dtype != b.dtype or isinstance(a, PackedElement) or isinstance(b, PackedElement):
            return isinstance(a, PackedElement) and a.is_same(b)
        if a.register is not None:
            return a.register is b.register
        if a.root is not None:
            return b.root is not None and is_same_value(a.root, b.root) and a.addend == b.addend
        return b.root is None and b.register is None and _equal(a.constant, b.constant)
    if isinstance(a, Traced) or isinstance(b, Traced):
        return False
    return type(a) is type(b) and _equal(a, b)


def _equal(a: object, b: object) -> bool:
    """Return whether two Python objects are equal and look the same."""
    try:
        return bool(a == b) and repr(a) == repr(b)  # -0.0 and 0.0 are equal, and differ
    except Exception:  # an object that cannot be compared is not the same
        return False


#: Registers, and the values that they get at the end of each of two branches.
MergeMoves = list[tuple[Register, tuple[Scalar, Scalar]]]


def _same_kind(a: object, b: object) -> bool:
    """Return whether two containers or frozen nodes differ in what they hold alone."""
    if isinstance(a, type):
        return a is b
    return a.same_kind(b) if isinstance(a, Node) else type(a) is type(b)


def difference(a: Held, b: Held, name: str) -> str:
    """Return why two values are of another structure; an empty text if contents alone differ."""
    if a.container is not None and b.container is not None:
        one, two = a.container, b.container
        same = _same_kind(a.value, b.value)
        if same and one.form == two.form and len(one.held) == len(two.held):
            return ""
        if same and is_array(a.value) and is_array(b.value) and a.value.shape == b.value.shape:
            return f"{name} is two different arrays ({array_in_words(a.value)})"
        if same and isinstance(a.value, dict):
            return f"{name} has the keys {list(one.form)} and {list(two.form)}"
        if same and not isinstance(a.value, Node) and isinstance(one.form, tuple):
            more = ", ".join(sorted({*one.form} ^ {*two.form}))
            return f"{name} gets its attribute {more} inside a branch or loop, and has it not"
        if same and isinstance(one.form, int):
            kind = type(a.value).__name__
            return f"{name} is a {kind} of {one.form} and a {kind} of {two.form}"
        if same and isinstance(one.form, set | bytearray):
            return f"{name} is {one.form!r} and {two.form!r}"
        return f"{name} is {in_words(a.value)} and {in_words(b.value)}"
    if a.children is not None and b.children is not None:
        same = _same_kind(a.value, b.value)
        if same and len(a.children) == len(b.children):
            return ""
    elif a.is_leaf and b.is_leaf:
        return ""
    return f"{name} is {in_words(a.value)} and {in_words(b.value)}"


class Join:
    """Joins what two branches leave behind."""

    def __init__(
        self,
        values: CarriedValues,
        left: State,
        right: State,
        locations: tuple[SourceLocation, SourceLocation],
        names: dict[str, object] | None,
    ) -> None:
        self.values, self.left, self.right, self.locations = values, left, right, locations
        self.moves: MergeMoves = []
        #: Containers that a location holds after either branch, and the one that it holds from here on.
        self._made: dict[tuple[object, object], tuple[Container, Container, object]] = {}
        self._joined: set[object] = set()
        outcome: dict[str, object] = {}
        for name in values.names:
            if name in values.restored:
                continue  # nothing reads it from here on
            one, two = left.roots.get(name), right.roots.get(name)
            if one is not None and two is not None and name not in values.bound:
                if one.container is not None and one.value is two.value:
                    self._in_place(one.container.key)
            else:
                outcome[name] = self._root(name, one, two)
        for key in values.first.containers:
            self._in_place(key)
        self.bound = tuple(outcome.get(name) for name in values.bound)
        self._note_aliases(None if names is None else {**names, **outcome})

    @property
    def _lines(self) -> str:
        a, b = self.locations
        return f"{a.line} and {b.line}" if a.line != b.line else str(a.line)

    def _root(self, name: str, one: Held | None, two: Held | None) -> object:
        """Return the value of a bound name."""
        if one is None or two is None or isinstance(one.value, Undefined) or isinstance(two.value, Undefined):
            return self._set_in_one_branch(name, one, two)
        return self._value(name, one, two)

    def _set_in_one_branch(self, name: str, one: Held | None, two: Held | None) -> Undefined:
        """Return the undefined value of a name that only one of two branches sets."""
        left, right = self.locations
        for side in (one, two):
            if side is not None and isinstance(side.value, Undefined) and "line" in side.value.reason:
                return side.value
        given, missing = (
            (left, right) if one is not None and not isinstance(one.value, Undefined) else (right, left)
        )
        return Undefined(
            f"{name} has a value only where the branch up to line {given.line} runs, and none after the "
            f"other (line {missing.line}): give it a value before the `if`"
        )

    def _value(self, name: str, one: Held, two: Held) -> AnyValue:
        """Return what a location holds after the branches."""
        if one.value is two.value:
            if one.container is not None:
                self._in_place(one.container.key)
            return one.value
        if why := difference(one, two, name):
            if isinstance(one.value, Undefined) or isinstance(two.value, Undefined):
                return one.value if isinstance(one.value, Undefined) else two.value
            return Undefined(f"{why} after the branches of lines {self._lines}")
        if one.container is not None and two.container is not None:
            return self._container(name, one.container, two.container)
        if one.children is not None and two.children is not None:
            children = [self._value(name, x, y) for x, y in zip(one.children, two.children, strict=True)]
            if all(new is old.value for new, old in zip(children, one.children, strict=True)):
                return one.value
            return rebuild(one.value, children)
        return merge_leaf(name, one.value, two.value, self.moves)

    def _container(self, name: str, one: Container, two: Container) -> object:
        """Return the container that stands for two: one of them after one branch, one after the other."""
        if one.key == two.key:  # tensors that share their registers
            self._in_place(one.key)
            return one.value
        known = self._made.get((one.key, two.key))
        if known is not None:
            return known[2]
        if isinstance(one.value, Node):
            children = [self._value(name, x, y) for x, y in zip(one.held, two.held, strict=True)]
            made = one.value.with_children(children, fresh=True)
            self._made[one.key, two.key] = one, two, made
            return made
        made = empty_copy(one.value)
        self._made[one.key, two.key] = one, two, made
        children = [self._value(name, x, y) for x, y in zip(one.held, two.held, strict=True)]
        set_contents(made, one.form, children)
        return made

    def _in_place(self, key: object) -> None:
        """Join the contents that a container has after either branch."""
        if key in self._joined:
            return
        self._joined.add(key)
        one, two = self.left.containers.get(key), self.right.containers.get(key)
        if one is None or two is None:
            return  # only one branch reaches it
        if key in self.values.first.of_globals:
            self.values.require_unchanged_global(key, two, f"the branches of lines {self._lines}")
        if one.form == two.form and all(
            x.value is y.value and x.is_leaf for x, y in zip(one.held, two.held, strict=True)
        ):
            return
        first = self.values.first.containers.get(key, one)
        untraced = not any(form.holds_traced() for form in (first, one, two))
        if key in self.values.first.of_globals and untraced:
            return
        name = one.name or "a variable"
        if is_array(one.value) and one.form != two.form:
            raise self.values.array_is_changed(name, one.value, f"the branches of lines {self._lines}")
        if why := difference(Held(one.value, container=one), Held(two.value, container=two), name):
            raise current().error(
                f"{why} after the branches of lines {self._lines}: a list, dict or object that both branches "
                "share keeps its form; add to it in both or in none"
            )
        children = [self._value(name, x, y) for x, y in zip(one.held, two.held, strict=True)]
        if any(new is not old.value for new, old in zip(children, two.held, strict=True)):
            set_contents(one.value, one.form, children)

    def _note_aliases(self, names: dict[str, object] | None) -> None:
        """Note the containers that became one location's, but may be another location's too."""
        if self._made:
            reach = self.values.in_reach(names)
            parts = [(one.name, [one.value, two.value, made]) for one, two, made in self._made.values()]
            made = [made for _, _, made in self._made.values()]
            note_uncertain(parts, reach, f"the branches of lines {self._lines}", made)


def merge_leaf(name: str, x: AnyValue, y: AnyValue, moves: MergeMoves) -> AnyValue:
    """Return the value of one leaf after two branches; a register, if they differ, is added to `moves`."""
    if is_same_value(x, y):
        return x
    if isinstance(x, Undefined) or isinstance(y, Undefined):
        return x if isinstance(x, Undefined) else y
    if isinstance(x, Scalar):
        dtype = x.dtype
    elif isinstance(y, Scalar):
        dtype = y.dtype
    elif is_number(x) and is_number(y):
        dtype = f32 if float in (type(x), type(y)) else default_dtype(x)
    else:
        return Undefined(
            f"{name} is {describe(x)} in one branch and {describe(y)} in the other: it must be alike"
        )
    a, b = (_as_dtype(value, dtype, name) for value in (x, y))
    if isinstance(a, Undefined) or isinstance(b, Undefined):
        return a if isinstance(a, Undefined) else b
    register = Register(register_kind(dtype), name)
    moves.append((register, (a, b)))
    nonnegative = a.nonnegative and b.nonnegative
    return Scalar(dtype, register, nonnegative=nonnegative)


def _as_dtype(value: object, dtype: AnyValue, name: str) -> AnyValue:
    """Return a branch's value as a Scalar of the merged dtype; undefined if it has another."""
    if (isinstance(value, Scalar) and value.dtype == dtype) or is_number(value):
        return convert_to_carried(value, dtype, name, "in one branch")
    kind = dtype_name(value.dtype) if isinstance(value, Scalar) else describe(value)
    return Undefined(
        f"{name} is {dtype_name(dtype)} in one branch and {kind} in the other: convert one of them"
    )
