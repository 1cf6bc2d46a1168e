"""Variables that branches and loops carry, their values before, and the moves of values into registers.

Which names are carried is found by `liveness.py`; two branches are joined in `join.py`, and what loops carry
is in `loop_values.py`.
"""

from collections.abc import Iterable
from typing import NoReturn

from lanewise.lang.frontend.heap import Container, Scope, State, everything_in_reach
from lanewise.lang.frontend.liveness import Carried
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.ir import Register
from lanewise.lang.trace.packed_register import PackedElement
from lanewise.lang.trace.pytrees import AnyValue
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
