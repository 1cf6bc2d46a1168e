"""Traced values: scalars in registers, with Python's operators.

The instruction behind an operator is chosen in `arithmetic.py` and `convert.py`.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format, bf16, f16, f32, f64
from lanewise.lang.builder import Register, current
from lanewise.lang.types import i32, is_float, is_int, pred, register_kind

#: What the operators of a Scalar do, by the name of the method; `arithmetic.py` fills it.
OPERATORS: dict[str, Callable[..., Any]] = {}


class Traced:
    """Anything that exists only inside a kernel: scalars, pointers, fragments, arrays."""

    __slots__ = ()
    #: By this the catalogue's instructions know that they are to emit themselves.
    is_traced = True

    def __bool__(self) -> bool:
        raise current().error(
            f"the truth of {describe(self)} is known only when the kernel runs. `if`, `while`, `and`, `or`, "
            "`not` and `assert` work on it in a function under @lw.kernel or @lw.device; Python itself asked "
            f"for it{_asking()}"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise current().error(
            f"NumPy cannot compute with {describe(self)}: use lw's own functions in a kernel"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
        """Operators with NumPy's scalars on the left are Python's; NumPy's functions are for arrays."""
        operation = _UFUNCS.get(ufunc.__name__)
        for each in inputs:
            if operation is not None and not isinstance(each, Traced) and not is_number(each):
                refuse(each, f"`{ufunc.__name__}`")
        if operation is None or method != "__call__":
            raise current().error(
                f"NumPy's {ufunc.__name__} cannot compute with {describe(self)}: use lw's own functions"
            )
        return operation(*(each if isinstance(each, Traced) else plain_number(each) for each in inputs))


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "left_shift": operator.lshift,
    "right_shift": operator.rshift, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip


def _asking() -> str:
    """Where Python asked for the truth of a value, the function, its file and line; and what to do."""
    frame = sys._getframe(2)
    code, line = frame.f_code, frame.f_lineno
    place = f" in {code.co_name} ({Path(code.co_filename).name}:{line}): "
    if code.co_name.startswith("<") or "__lanewise" in code.co_freevars:  # a comprehension, or the kernel
        return place + (
            "`in`, max, min, any, all, sorted and the `if` of a comprehension do so. Compare with ==, and "
            "use lw.where, lw.min, lw.max or a `for` statement"
        )
    return place + "mark that function @lw.device, or use lw.where, lw.min or lw.max"


def describe(value: Any) -> str:
    """A value in words, for messages."""
    if isinstance(value, Scalar):
        name = value.hint or (value.register.hint if value.register is not None else "")
        return f"the {public(value.dtype)} value{f' {name!r}' if name else ''}"
    if isinstance(value, Traced):
        return str(value)
    return f"the Python {type(value).__name__} {value!r}"


class Scalar(Traced):
    """One value of a dtype in a register, or a constant of a dtype.

    An integer may also stand for `root + addend` that no instruction has computed yet: addresses take the
    addend as their offset. `multiple` divides the value; `natural` says that it is never negative.
    """

    __slots__ = ("addend", "constant", "dtype", "hint", "multiple", "natural", "register", "root")

    def __init__(
        self,
        dtype: Format,
        register: Register | None = None,
        *,
        constant: Any = None,
        root: Scalar | None = None,
        addend: int = 0,
        multiple: int = 1,
        natural: bool = False,
        hint: str = "",
    ) -> None:
        self.dtype, self.register, self.constant = dtype, register, constant
        self.root, self.addend, self.multiple, self.natural = root, addend, multiple, natural
        self.hint = hint

    @property
    def operand(self) -> Any:
        """What stands for it in an instruction: a register, or a constant's text."""
        if self.register is not None:
            return self.register
        if self.root is not None:
            builder, kind = current(), register_kind(self.dtype)
            return builder.define(
                f"add.{self.dtype.name}", kind, self.root.operand, str(self.addend), hint=self.hint
            )
        text = constant_text(self.dtype, self.constant)
        if self.dtype in (f16, bf16):  # instructions take no constants of these
            return current().define("mov.b16", "b16", text, hint=self.hint)
        return text

    @property
    def in_register(self) -> Register:
        """Its register; a constant is moved to one."""
        found = self.operand
        if isinstance(found, Register):
            return found
        builder = current()
        if self.dtype is pred:
            return builder.define("mov.pred", "pred", found, hint=self.hint)
        kind = register_kind(self.dtype)
        return builder.define(f"mov.{kind}", kind, found, hint=self.hint)

    def named(self, name: str) -> None:
        """Let the register have a Python name, if it has none."""
        if self.register is None:
            self.hint = self.hint or name
        elif not self.register.hint:
            self.register.hint = name

    def to(self, dtype: Format, *, rounding: str = "", saturate: bool = False) -> Scalar:
        """The value converted: see `lanewise.lang.convert`."""
        from lanewise.lang.convert import convert

        return convert(self, dtype, rounding, saturate)

    def __index__(self) -> int:
        raise current().error(
            f"{describe(self)} is known only when the kernel runs, and Python needs an integer here: plain "
            "`range`, list indices and shapes are for the trace. Use lw.range for a loop, lw.local to index"
        )

    def __int__(self) -> int:
        raise current().error(f"{describe(self)} is known only when the kernel runs: .to(lw.i32) converts it")

    def __float__(self) -> float:
        raise current().error(
            f"{describe(self)} is known only when the kernel runs: .to(lw.f32) converts it, and lw.sqrt, "
            "lw.exp and their kin take the place of Python's math"
        )

    def __round__(self, digits: Any = None) -> Any:
        raise current().error(f"round() of {describe(self)}: lw.round, or .to(lw.i32, rounding='rn')")

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> Any:
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("ne", other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("ge", other)

    def _compare(self, name: str, other: Any) -> Any:
        if name in ("eq", "ne") and (other is None or isinstance(other, str)):
            return name == "ne"  # `x == None` is a question about Python objects
        return OPERATORS["compare"](name, self, other)

    def _binary(self, name: str, other: Any, swapped: bool = False) -> Any:
        if isinstance(other, Traced) and not isinstance(other, Scalar):
            return NotImplemented  # a pointer, say, has operators of its own
        return OPERATORS[name](other, self) if swapped else OPERATORS[name](self, other)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, swapped=True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("truediv", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("truediv", other, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary("floordiv", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary("floordiv", other, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._binary("mod", other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary("mod", other, swapped=True)

    def __and__(self, other: Any) -> Any:
        return self._binary("and", other)

    def __rand__(self, other: Any) -> Any:
        return self._binary("and", other, swapped=True)

    def __or__(self, other: Any) -> Any:
        return self._binary("or", other)

    def __ror__(self, other: Any) -> Any:
        return self._binary("or", other, swapped=True)

    def __xor__(self, other: Any) -> Any:
        return self._binary("xor", other)

    def __rxor__(self, other: Any) -> Any:
        return self._binary("xor", other, swapped=True)

    def __lshift__(self, other: Any) -> Any:
        return self._binary("lshift", other)

    def __rlshift__(self, other: Any) -> Any:
        return self._binary("lshift", other, swapped=True)

    def __rshift__(self, other: Any) -> Any:
        return self._binary("rshift", other)

    def __rrshift__(self, other: Any) -> Any:
        return self._binary("rshift", other, swapped=True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any) -> Any:
        return OPERATORS["pow"](self, other)

    def __rpow__(self, other: Any) -> Any:
        raise current().error(f"{other!r} ** x: use lw.exp2(x * log2({other!r})), or 1 << n for integers")

    def __neg__(self) -> Any:
        return OPERATORS["neg"](self)

    def __pos__(self) -> Scalar:
        return self

    def __invert__(self) -> Any:
        return OPERATORS["invert"](self)

    def __abs__(self) -> Any:
        return OPERATORS["abs"](self)

    def __iter__(self) -> Any:
        raise current().error(f"{describe(self)} is one value: it cannot be taken apart or iterated over")

    def __repr__(self) -> str:
        return f"<{describe(self)}>"


def constant_text(dtype: Format, value: Any) -> str:
    """A number as PTX writes it in a dtype.

    >>> constant_text(f32, 1.0), constant_text(i32, -3), constant_text(f16, 1.0)
    ('0f3F800000', '-3', '0x3C00')
    """
    if dtype is f32:
        return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"
    if dtype is f64:
        return f"0d{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dtype is f16:
        return f"0x{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if is_float(dtype):
        return f"0x{int(dtype.encode([value])[0]):04X}"
    return str(int(value))


def literal(value: Any, dtype: Format) -> Scalar:
    """A Python number as a constant of a dtype; an error where the dtype has no such number."""
    if dtype is pred:
        if isinstance(value, bool):
            return Scalar(pred, constant=value)
        raise current().error(f"{value!r} is no truth value: compare it, as in `x != 0`")
    if is_int(dtype):
        if isinstance(value, float):
            raise current().error(
                f"the float {value!r} meets a value of type {public(dtype)}: convert that with .to(lw.f32), "
                f"or write an integer"
            )
        if not dtype.min <= value <= dtype.max:
            raise current().error(
                f"{value} does not fit into {public(dtype)} ({dtype.min} to {dtype.max}): convert the other "
                "operand to a wider type with .to(…)"
            )
        number = int(value)
        return Scalar(dtype, constant=number, multiple=abs(number), natural=number >= 0)
    if is_float(dtype):
        return Scalar(dtype, constant=_float_constant(value, dtype))
    if dtype.kind != "bits":  # tf32, e4m3, s4: numbers, too, that registers carry as bits
        try:
            return Scalar(dtype, constant=int(dtype.encode([value])[0]))
        except LanewiseError as error:
            raise current().error(str(error)) from None
    number = int(value)
    if isinstance(value, float) or not 0 <= number < 1 << dtype.bits:
        raise current().error(
            f"{value!r} cannot stand for raw bits of {dtype.name}: write an unsigned integer"
        )
    return Scalar(dtype, constant=number)


def _rounded(number: float, dtype: Format) -> float:
    """The nearest number of a format."""
    code = {f64: "<d", f32: "<f", f16: "<e"}.get(dtype)
    if code is None:
        return float(dtype.decode(dtype.encode([number]))[0])
    return float(struct.unpack(code, struct.pack(code, number))[0])


def _float_constant(value: Any, dtype: Format) -> float:
    number = float(value)
    if isinstance(value, int) and number == value and abs(number) <= dtype.max:
        if _rounded(number, dtype) == number:
            return number
    elif isinstance(value, float) and (number != number or abs(number) == float("inf") or dtype is f64):
        return number
    elif isinstance(value, float) and abs(number) <= dtype.max:
        return _rounded(number, dtype)
    exact = "exactly " if isinstance(value, int) else ""
    raise current().error(f"{value} is not {exact}representable in {dtype.name} (up to {dtype.max})")


def default_dtype(value: Any) -> Format:
    """The dtype that a Python number gets where nothing else says."""
    if isinstance(value, bool):
        return pred
    return i32 if isinstance(value, int) else f32


def is_number(value: Any) -> bool:
    """Whether something is a Python number (or NumPy scalar) that can become a constant."""
    return isinstance(value, bool | int | float) or (
        type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    )


def plain_number(value: Any) -> Any:
    """A Python number out of a NumPy scalar."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def scalar(value: Any, dtype: Format | None = None, what: str = "this") -> Scalar:
    """A value as a Scalar: a number becomes a constant of `dtype`, a traced value must have it already."""
    if isinstance(value, Scalar):
        if dtype is None or value.dtype is dtype:
            return value
        raise current().error(
            f"{what} takes {public(dtype)}, and {describe(value)} is given: convert it with "
            f".to(lw.{public(dtype)})"
        )
    if is_number(value):
        value = plain_number(value)
        return literal(value, default_dtype(value) if dtype is None else dtype)
    refuse(value, what)
    raise AssertionError


def refuse(value: Any, what: str) -> None:
    """Complain of something that is no value of a kernel."""
    if hasattr(value, "complain"):
        value.complain()
    if type(value).__module__ == "numpy":
        raise current().error(
            f"{what} got a NumPy array: a kernel computes with its parameters only; pass the array as an "
            "lw.Ptr parameter"
        )
    raise current().error(f"{what} takes a number or a traced value, not {describe(value)}")


_PUBLIC = {"s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64"}


def public(dtype: Format) -> str:
    """A dtype's name in the language."""
    return _PUBLIC.get(dtype.name, dtype.name)
