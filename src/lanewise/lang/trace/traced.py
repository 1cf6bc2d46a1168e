"""Traced: the base class of everything that exists only while a kernel is traced.

It refuses what Python and NumPy would do with such a value; Python numbers are told apart from it here.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, NoReturn

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
