"""Traced values: the base class of everything that exists only while a kernel is traced, and trees of them.

`Traced` refuses what Python and NumPy would do with such a value; Python numbers are told apart from it here.
A `Node` is made of other values. Pytrees are tuples, lists, dicts, dataclasses and nodes, flattened to their
leaves and built again. Which leaves branches and loops have to carry is decided in `frontend/merge.py`;
containers that they change in place are in `frontend/containers.py`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, NoReturn, TypeAlias

from lanewise.lang.trace.builder import current

#: The name under which a rewritten function finds the object that traces its control flow.
RUNTIME_NAME = "__lanewise"


#: Methods of NumPy's arrays that are functions here.
_METHODS_ELSEWHERE = (
    "exp", "sqrt", "sin", "cos", "tanh", "log", "abs", "max", "min", "round", "floor", "ceil",
)  # fmt: skip


class Traced:
    """Anything that exists only inside a kernel: scalars, pointers, fragments, arrays."""

    __slots__ = ()
    #: By this attribute the catalogue's instructions know that they are to emit themselves.
    is_traced = True
    #: What to write where it stands as a condition and is none: the end of a message.
    AS_CONDITION: ClassVar[str] = ""
    #: What a kernel has in place of methods of NumPy's arrays.
    INSTEAD: ClassVar = {
        **dict.fromkeys(("astype", "type", "float", "int", "half", "item"), ".to(lw.f32) converts a value"),
        **{name: f"use lw.{name}(…)" for name in _METHODS_ELSEWHERE},
        "sum": "a loop adds up the values of a thread, lw.warp_reduce those of the lanes of a warp",
    }

    @property
    def description(self) -> str:
        """What it is in words, for messages."""
        return str(self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, _: object) -> Any:
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<{self.description}>"

    def __bool__(self) -> bool:
        raise current().error(
            f"the truth of {describe(self)} is known only when the kernel runs. `if`, `while`, `and`, `or`, "
            "`not` and `assert` work on it in a function under @lw.kernel or @lw.device; Python itself asked "
            f"for it{_who_asked()}"
        )

    def __array__(self, *_: object, **__: object) -> Any:
        raise current().error(
            f"NumPy cannot compute with {describe(self)}: use lw's own functions in a kernel"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **_: object) -> Any:
        """Compute an operator whose left side is a NumPy scalar; NumPy's other functions are refused."""
        operation = _UFUNCS.get(ufunc.__name__)
        for operand in inputs:
            if operation is not None and not isinstance(operand, Traced) and not is_number(operand):
                refuse(operand, f"`{ufunc.__name__}`")
        if operation is None or method != "__call__":
            raise current().error(
                f"NumPy's {ufunc.__name__} cannot compute with {describe(self)}: "
                f"use {_own_function(ufunc.__name__)}"
            )
        return operation(
            *(operand if isinstance(operand, Traced) else plain_number(operand) for operand in inputs)
        )

    @classmethod
    def __torch_function__(cls, function: Any, *_: object) -> NoReturn:
        name = function.__name__
        raise current().error(
            f"torch's {name} cannot compute with values of a kernel: use {_own_function(name)}"
        )


_UFUNCS: dict[str, Callable[..., object]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "left_shift": operator.lshift,
    "right_shift": operator.rshift, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip


#: Functions of the language that NumPy has by other names.
_OWN_NAMES = {"absolute": "abs", "fabs": "abs", "maximum": "max", "minimum": "min", "rint": "round"}


def _own_function(name: str) -> str:
    """Return what a kernel calls instead of a function of NumPy: `lw.exp` for `np.exp`."""
    own = _OWN_NAMES.get(name, name)
    names = getattr(sys.modules.get("lanewise.lang"), "__all__", ())
    return f"lw.{own}" if own in names else "lw's own functions"


def _who_asked() -> str:
    """Return which function asked for the truth of a value, at which line, and what to write instead."""
    frame = sys._getframe(2)
    code, line = frame.f_code, frame.f_lineno
    where = f" in {code.co_name} ({Path(code.co_filename).name}:{line}): "
    if code.co_filename == "<string>":  # that dataclasses write
        return where + "compare the fields one by one"
    if code.co_name.startswith("<") or RUNTIME_NAME in code.co_freevars:  # a comprehension, or the kernel
        return where + (
            "`in`, max, min, any, all, sorted and the `if` of a comprehension do so. Compare with ==, and "
            "use lw.where, lw.min, lw.max or a `for` statement"
        )
    return where + "mark that function @lw.device, or use lw.where, lw.min or lw.max"


def describe(value: object) -> str:
    """Return a value in words, for messages: a traced value's own description, or a Python object's type."""
    if isinstance(value, FunctionType):
        return f"the function {value.__name__}: write {value.__name__}(…), which calls it"
    return value.description if isinstance(value, Traced) else f"the Python {type(value).__name__} {value!r}"


def is_number(value: object) -> bool:
    """Return whether a value is a Python number or a NumPy scalar, which can become a constant."""
    return isinstance(value, bool | int | float) or (
        type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    )


def plain_number(value: object) -> Any:
    """Return the Python number that a NumPy scalar stands for; other values as they are."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def refuse(value: object, what: str) -> NoReturn:
    """Raise the error that `what` was given something that is no value of a kernel."""
    if hasattr(value, "complain"):
        value.complain()
    if type(value).__module__ == "numpy":
        raise current().error(
            f"{what} was given a NumPy array, but a kernel computes only with its parameters: pass the array "
            "as an lw.Ptr parameter"
        )
    raise current().error(f"{what} takes a number or a traced value, not {describe(value)}")


#: What a variable of a kernel may hold: a traced value, a container of values, any other object of Python.
AnyValue: TypeAlias = Any


class Node(Traced):
    """A traced value made of other values, as a pointer is of its address and a fragment of its registers."""

    __slots__: tuple[str, ...] = ()
    #: Whether assignment changes it in place.
    mutable = False
    #: The slots with values of the kernel, if all others say what kind of value it is.
    CHILDREN: ClassVar[tuple[str, ...]] = ()

    def children(self) -> list[AnyValue]:
        """Return the values that this one is made of."""
        return [getattr(self, name) for name in self.CHILDREN]

    def with_children(self, children: list[AnyValue], fresh: bool = False) -> AnyValue:
        """Return such a value of other children; a mutable one is changed and returned, unless `fresh`."""
        made = object.__new__(type(self))
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        for name, child in zip(self.CHILDREN, children, strict=True):
            setattr(made, name, child)
        return made

    def __copy__(self) -> Any:
        return self.with_children(self.children(), fresh=True) if self.mutable else self

    @property
    def storage(self) -> AnyValue:
        """What is changed when this value is changed in place: itself, or registers that others share."""
        return self

    def same_kind(self, other: AnyValue) -> bool:
        """Return whether another value differs from this one in its children alone."""
        kind = [name for name in self.__slots__ if name not in self.CHILDREN] if self.CHILDREN else []
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in kind)


def _field_names(value: AnyValue) -> list[str]:
    """Return the names of the attributes that are an object's children, in a fixed order."""
    return [field.name for field in fields(value)] if is_dataclass(value) else sorted(value.__dict__)


def _is_object(value: AnyValue) -> bool:
    """Return whether a value is an object of a user's class with traced values among its attributes."""
    home = type(value).__module__
    if type(getattr(value, "__dict__", None)) is not dict or isinstance(value, type):
        return False
    return (
        home != "builtins"
        and not home.startswith("lanewise.")
        and any(
            isinstance(child, Traced)
            or (isinstance(child, tuple | list) and any(isinstance(leaf, Traced) for leaf in child))
            for child in vars(value).values()
        )
    )


def is_node(value: AnyValue) -> bool:
    """Return whether a value is made of others, and not a leaf."""
    if isinstance(value, tuple | list | dict | Node):
        return True
    if isinstance(value, Traced | type):
        return False
    return (is_dataclass(value) and type(value).__module__[:9] != "lanewise.") or _is_object(value)


def children(value: AnyValue) -> list[AnyValue]:
    """Return the values that a tuple, a list, a dict, a Node or an object is made of."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, Node):
        return value.children()
    return [getattr(value, name) for name in _field_names(value)]


def rebuild(value: AnyValue, new: list[AnyValue]) -> AnyValue:
    """Return a new value like another, made of other values."""
    if isinstance(value, tuple):
        return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
    if isinstance(value, list):
        return list(new)
    if isinstance(value, dict):
        return dict(zip(value, new, strict=True))
    if isinstance(value, Node):
        return value.with_children(new, fresh=True)
    made = object.__new__(type(value))
    for name, child in zip(_field_names(value), new, strict=True):
        object.__setattr__(made, name, child)
    return made


class Snapshot:
    """The leaves that a value had at one time, and how to build the value from other leaves."""

    __slots__ = ("children", "leaves", "value")

    def __init__(self, value: AnyValue) -> None:
        self.value = value
        self.children = [Snapshot(child) for child in children(value)] if is_node(value) else None
        if self.children is None:
            self.leaves: list[AnyValue] = [value]
        else:
            self.leaves = [leaf for child in self.children for leaf in child.leaves]

    def build(self, leaves: Iterable[AnyValue]) -> AnyValue:
        """Return a new value of the same structure with other leaves."""
        rest = iter(leaves)
        if self.children is None:
            return next(rest)
        return rebuild(self.value, [child.build(rest) for child in self.children])

    def _describe(self) -> str:
        if isinstance(self.value, tuple | list | dict) and self.children is not None:
            return f"a {type(self.value).__name__} of {len(self.children)}"
        return describe(self.value)

    def mismatch(self, other: Snapshot, name: str) -> str:
        """Return why another value is of another structure than this one; an empty text if it is not."""
        if self.children is None or other.children is None:
            if (self.children is None) != (other.children is None):
                return f"{name} is {self._describe()} and {other._describe()}"
            return ""
        same = type(self.value) is type(other.value)
        if isinstance(self.value, Node):
            same = self.value.same_kind(other.value)
        if not same or len(self.children) != len(other.children):
            return f"{name} is {self._describe()} and {other._describe()}"
        if isinstance(self.value, dict) and list(self.value) != list(other.value):
            return f"{name} has the keys {list(self.value)} and {list(other.value)}"
        for number, (mine, theirs) in enumerate(zip(self.children, other.children, strict=True)):
            if why := mine.mismatch(theirs, f"{name}[{number}]"):
                return why
        return ""


def map_leaves(f: Callable[[AnyValue, AnyValue], AnyValue], a: AnyValue, b: AnyValue, what: str) -> AnyValue:
    """Return f of the leaves of two values of one structure, as a new value of that structure."""
    if not is_node(a) and not is_node(b):
        return f(a, b)
    first, second = Snapshot(a), Snapshot(b)
    if why := first.mismatch(second, "the value"):
        raise current().error(f"{what}: {why}; both must have the same form")
    new = [map_leaves(f, x, y, what) for x, y in zip(children(a), children(b), strict=True)]
    return rebuild(a, new)
