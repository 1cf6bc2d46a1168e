"""Variables that branches and loops carry: flattened, moved through registers, and merged where paths join.

Which names are carried is found by `liveness.py`; branches are in `control_flow.py`, loops in `loops.py`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lanewise.formats import f32
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.constants import default_dtype
from lanewise.lang.trace.ir import Register, SourceLocation
from lanewise.lang.trace.packed_register import PackedElement
from lanewise.lang.trace.pytrees import Snapshot, has_settable_attributes, is_mutable, is_node
from lanewise.lang.trace.scalar import Scalar, literal
from lanewise.lang.trace.traced import Traced, describe, is_number, plain_number
from lanewise.lang.trace.types import dtype_name, pred, register_kind


class Undefined:
    """The value of a variable that only one path through the code sets: every use of it is an error."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        object.__setattr__(self, "reason", reason)

    def complain(self) -> NoReturn:
        """Raise the error that says why there is no value."""
        raise current().error(self.reason)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("is_traced",):
            raise AttributeError(name)
        self.complain()

    def _use(self, *_: Any) -> Any:
        self.complain()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __floordiv__ = __mod__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __pow__ = __matmul__ = (
        _use
    )
    __rfloordiv__ = __rmod__ = __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __rpow__ = _use
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __getitem__ = __setitem__ = __iter__ = _use
    __call__ = __bool__ = __index__ = __int__ = __float__ = __len__ = __neg__ = __abs__ = __invert__ = _use
    __hash__ = object.__hash__


class CarriedValues:
    """The values of names before a branch or loop: those bound in it, and mutable ones read in it."""

    def __init__(
        self,
        bound: tuple[str, ...],
        read: tuple[str, ...],
        names: dict[str, Any],
        restored: tuple[str, ...] = (),
    ) -> None:
        self.bound, self.restored = bound, restored
        mutable = [name for name in read if name in names and is_mutable(names[name])]
        self.names = (*bound, *restored, *mutable)
        #: Objects of users' classes that hold no traced value yet.
        self.untraced_objects = {
            name: value
            for name, value in names.items()
            if has_settable_attributes(value) and not is_node(value)
        }
        self.first = [Snapshot(names[name]) if name in names else None for name in self.names]

    def now(self, names: dict[str, Any]) -> list[Snapshot | None]:
        """Return snapshots of the values that the names have at another point."""
        for name, value in self.untraced_objects.items():
            if is_node(value):
                raise current().error(
                    f"{name} gets its first traced attribute inside a branch or loop of the kernel: set "
                    "its attributes before it"
                )
        return [Snapshot(names[name]) if name in names else None for name in self.names]

    def restore(self) -> tuple[Any, ...]:
        """Set everything back to what it was.

        It returns the values of the bound names and of those only restored.
        """
        found = []
        for name, snapshot in zip(self.names, self.first, strict=True):
            if snapshot is None:
                found.append(Undefined(f"{name} has no value here"))
            else:
                found.append(snapshot.build(snapshot.leaves))
        return tuple(found[: len(self.bound) + len(self.restored)])

    def rebind(self, values: list[Snapshot | None]) -> list[Any]:
        """Return the values of another point, mutable ones changed in place."""
        return [
            Undefined(f"{name} has no value here: give it one first")
            if value is None
            else value.build(value.leaves, fresh=False)
            for name, value in zip(self.names, values, strict=True)
        ]


def convert_to_carried(value: Any, dtype: Any, name: str, what: str) -> Scalar:
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
    saved: list[tuple[Register, Scalar, Any]] = []
    for register, value, operand in ready:
        if operand is register:
            continue
        if id(operand) in targets:
            kind = register_kind(value.dtype)
            operand = current().result(f"mov.{kind}", kind, operand)
        saved.append((register, value, operand))
    for register, value, operand in saved:
        current().emit(f"mov.{register_kind(value.dtype)}", register, operand, pure=True)


def is_same_value(a: Any, b: Any) -> bool:
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


def _equal(a: Any, b: Any) -> bool:
    """Return whether two Python objects are equal and look the same."""
    try:
        return bool(a == b) and repr(a) == repr(b)  # -0.0 and 0.0 are equal, and differ
    except Exception:  # an object that cannot be compared is not the same
        return False


#: Registers, and the values that they get at the end of each of two branches.
MergeMoves = list[tuple[Register, tuple[Scalar, Scalar]]]


def merge(
    values: CarriedValues,
    left: list[Any],
    right: list[Any],
    left_location: SourceLocation,
    right_location: SourceLocation,
) -> tuple[list[Any], MergeMoves]:
    """Return the values after two branches, and the registers that have to be set at the end of each."""
    out: list[Any] = []
    moves: MergeMoves = []
    for name, one, two in zip(values.names, left, right, strict=True):
        if name in values.restored:
            out.append(None)  # nothing reads it from here on
            continue
        if one is None or two is None or isinstance(one.value, Undefined) or isinstance(two.value, Undefined):
            out.append(_set_in_one_branch(name, one, two, left_location, right_location))
            continue
        if why := one.mismatch(two, name):
            out.append(
                Undefined(f"{why} after the branches of lines {_lines(left_location, right_location)}")
            )
            continue
        leaves = []
        for x, y in zip(one.leaves, two.leaves, strict=True):
            leaf = _merge_leaf(name, x, y, moves)
            leaves.append(leaf)
        changed = any(x is not y for x, y in zip(leaves, one.leaves, strict=True))
        in_place = name not in values.bound or not changed
        out.append(one.build(leaves, fresh=not in_place))
    return out, moves


def _lines(a: SourceLocation, b: SourceLocation) -> str:
    """Return the lines where two branches end, for messages."""
    return f"{a.line} and {b.line}" if a.line != b.line else str(a.line)


def _set_in_one_branch(
    name: str, one: Any, two: Any, left: SourceLocation, right: SourceLocation
) -> Undefined:
    """Return the undefined value of a name that only one of two branches sets."""
    for side in (one, two):
        if side is not None and isinstance(side.value, Undefined) and side.value.reason.find("line") >= 0:
            return side.value
    given, missing = (
        (left, right) if one is not None and not isinstance(one.value, Undefined) else (right, left)
    )
    return Undefined(
        f"{name} has a value only where the branch up to line {given.line} runs, and none after the other "
        f"(line {missing.line}): give it a value before the `if`"
    )


def _merge_leaf(name: str, x: Any, y: Any, moves: MergeMoves) -> Any:
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
    a, b = (_as_dtype(each, dtype, name) for each in (x, y))
    if isinstance(a, Undefined) or isinstance(b, Undefined):
        return a if isinstance(a, Undefined) else b
    register = Register(register_kind(dtype), name)
    moves.append((register, (a, b)))
    nonnegative = a.nonnegative and b.nonnegative
    return Scalar(dtype, register, nonnegative=nonnegative)


def _as_dtype(value: Any, dtype: Any, name: str) -> Any:
    """Return a branch's value as a Scalar of the merged dtype; undefined if it has another."""
    if (isinstance(value, Scalar) and value.dtype == dtype) or is_number(value):
        return convert_to_carried(value, dtype, name, "in one branch")
    kind = dtype_name(value.dtype) if isinstance(value, Scalar) else describe(value)
    return Undefined(
        f"{name} is {dtype_name(dtype)} in one branch and {kind} in the other: convert one of them"
    )


def loop_registers(values: CarriedValues, what: str) -> tuple[list[Any], list[list[Any]]]:
    """Return the values of names inside a loop, and the registers for those that it may change."""
    out: list[Any] = []
    registers: list[list[Any]] = []
    for number, (name, snapshot) in enumerate(zip(values.names, values.first, strict=True)):
        if snapshot is None:
            out.append(Undefined(f"{name} has no value before {what}: give it one"))
            registers.append([])
            continue
        bound = number < len(values.bound)
        leaves: list[Any] = []
        own: list[Any] = []
        for position, leaf in enumerate(snapshot.leaves):
            label = name if len(snapshot.leaves) == 1 else f"{name}{position}"
            if isinstance(leaf, Scalar) or (bound and is_number(leaf) and snapshot.children is None):
                start = leaf if isinstance(leaf, Scalar) else literal(leaf, default_dtype(plain_number(leaf)))
                if start.register is not None and start.register.in_place:
                    register = start.register  # what the loop does to it stays in it
                else:
                    register = Register(register_kind(start.dtype), label)
                leaves.append(Scalar(start.dtype, register))
                own.append((register, start))
            else:
                leaves.append(leaf)
                own.append(None)
        out.append(snapshot.build(leaves, fresh=bound))
        registers.append(own)
    return out, registers
