"""Scalar: one value of a dtype in a register, in a part of one, or a constant, with Python's operators.

Operators are in `operators.py`, conversions in `convert.py`; both enter their functions into `OPERATORS`, so
that this module depends on neither. Which elements lie packed in which register is decided by those who pack
them: pointers, fragments and conversions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, SupportsFloat, TypeAlias, overload

from lanewise.errors import LanewiseError
from lanewise.formats import Format, bf16, f16, f32, f64, s32
from lanewise.hints import instead_of_attribute
from lanewise.lang.trace.builder import Register, current
from lanewise.lang.trace.traced import Traced, describe, is_number, plain_number, refuse
from lanewise.lang.trace.types import PAIRS, dtype_name, i32, is_float, is_int, pred, register_kind, u32


def constant_text(dtype: Format, value: Any) -> str:
    """Return a number as PTX writes it in a dtype.

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


def _nearest(number: float, dtype: Format) -> float:
    """Return the number of a float format that is nearest to another."""
    code = {f64: "<d", f32: "<f", f16: "<e"}.get(dtype)
    if code is None:
        return float(dtype.decode(dtype.encode([number]))[0])
    return float(struct.unpack(code, struct.pack(code, number))[0])


def float_constant(value: Any, dtype: Format) -> float:
    """Return a Python number as a float dtype holds it: floats are rounded, integers must be exact."""
    try:
        number = float(value)
        nearest = _nearest(number, dtype)
    except OverflowError:
        raise _not_representable(value, dtype) from None
    is_kept = number == value and nearest == number if isinstance(value, int) else True
    if isinstance(value, int | float) and is_kept and (math.isfinite(nearest) or not math.isfinite(number)):
        return nearest
    raise _not_representable(value, dtype)


def _require_number(value: int | float, held: float, dtype: Format) -> None:
    """Raise an error if a small float or a tf32 does not hold an integer, or a float is out of its range."""
    in_range = isinstance(value, float) and abs(value) <= dtype.max and held == held
    if not in_range and not (held == value or (value != value and held != held)):
        raise _not_representable(value, dtype)


def _not_representable(value: int | float, dtype: Format) -> Exception:
    exact = "exactly " if isinstance(value, int) else ""
    return current().error(f"{value} is not {exact}representable in {dtype.name} (up to {dtype.max})")


def default_dtype(value: object) -> Format:
    """Return the dtype of a Python number where nothing else decides: pred, i32 or f32."""
    if isinstance(value, bool):
        return pred
    return i32 if isinstance(value, int) else f32


if TYPE_CHECKING:
    from lanewise.numpy_types import AnyDtype

    class _FormatClass(type, Format):
        """For type checkers the class of a traced number is its format, too: `lw.f16` is both."""

    class _Dtype:
        """`dtype` is NumPy's of a format, `lw.f16.dtype`, and the format of a traced number, `x.dtype`."""

        @overload
        def __get__(self, instance: None, owner: object) -> AnyDtype: ...
        @overload
        def __get__(self, instance: Scalar, owner: object) -> Format: ...
        def __get__(self, instance: object, owner: object) -> Any: ...
        def __set__(self, instance: object, value: Format) -> None: ...

    class _Base(Traced, metaclass=_FormatClass):
        dtype: _Dtype
else:
    _Base = Traced

#: What an operator takes beside a traced number: another, or a number of Python or NumPy.
Number: TypeAlias = SupportsFloat
#: The functions behind the operators and `.to`, by name; the modules that define them enter them.
OPERATORS: dict[str, Callable[..., Scalar]] = {}


#: The method of an operator with two operands.
_Binary: TypeAlias = "Callable[[Scalar, Number], Scalar]"


def _comparison(name: str) -> _Binary:
    """Return the method of a comparison."""
    return lambda self, other: OPERATORS["compare"](name, self, other)


def _operator(name: str) -> tuple[_Binary, _Binary]:
    """Return the methods of an operator: with a Scalar on its left, and with one on its right."""
    return lambda self, other: self._binary(name, other), lambda self, other: self._binary(name, other, True)


class Scalar(_Base):
    """One value of a dtype in a register, or a constant of a dtype.

    An integer may also stand for `root + addend` that no instruction has computed yet: addresses take the
    addend as their offset. `multiple` divides the value; `nonnegative` says that it is never negative.
    """

    __slots__ = ("addend", "constant", "dtype", "hint", "multiple", "nonnegative", "register", "root")

    if TYPE_CHECKING:  # a user's lw.f32(1) is a call of the format, which for type checkers is this class

        @overload
        def __init__(self, value: Number, /) -> None: ...

        @overload
        def __init__(
            self,
            dtype: Format,
            register: Register | None = None,
            *,
            constant: object = None,
            root: Scalar | None = None,
            addend: int = 0,
            multiple: int = 1,
            nonnegative: bool = False,
            hint: str = "",
        ) -> None: ...

    def __init__(
        self,
        dtype: Any,
        register: Register | None = None,
        *,
        constant: Any = None,
        root: Scalar | None = None,
        addend: int = 0,
        multiple: int = 1,
        nonnegative: bool = False,
        hint: str = "",
    ) -> None:
        self.dtype, self.register, self.constant = dtype, register, constant
        self.root, self.addend, self.multiple, self.nonnegative = root, addend, multiple, nonnegative
        self.hint = hint

    @property
    def description(self) -> str:
        """What it is in words, for messages: its dtype, and its Python name if it has one."""
        name = self.hint or (self.register.hint if self.register is not None else "")
        return f"the {dtype_name(self.dtype)} value{f' {name!r}' if name else ''}"

    @property
    def operand(self) -> Any:
        """The operand of an instruction that takes the value: a register, or the text of a constant."""
        if self.register is not None:
            return self.register
        if self.root is not None:
            builder, kind = current(), register_kind(self.dtype)
            return builder.define(
                f"add.{self.dtype.name}", kind, self.root.operand, str(self.addend), hint=self.hint
            )
        text = constant_text(self.dtype, self.constant)
        if self.dtype in (f16, bf16) or self.dtype in PAIRS:  # instructions take no constants of these
            kind = register_kind(self.dtype)
            return current().define(f"mov.{kind}", kind, text, hint=self.hint)
        return text

    @property
    def in_register(self) -> Register:
        """The register that holds the value; a constant is moved to one."""
        operand = self.operand
        if isinstance(operand, Register):
            return operand
        builder = current()
        if self.dtype is pred:
            return builder.define("mov.pred", "pred", operand, hint=self.hint)
        kind = register_kind(self.dtype)
        return builder.define(f"mov.{kind}", kind, operand, hint=self.hint)

    def named(self, name: str) -> None:
        """Give the register the Python name that the value is bound to, unless it has one already."""
        if self.register is None:
            self.hint = self.hint or name
        elif not self.register.hint:
            self.register.hint = name

    def to(self, dtype: Format, *, rounding: str = "", saturate: bool = False) -> Scalar:
        """Return the value converted to another dtype, as `convert.py` describes."""
        return OPERATORS["convert"](self, dtype, rounding, saturate)

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
            "lw.exp and other functions of lw take the place of Python's math"
        )

    def __round__(self, digits: object = None) -> Any:
        raise current().error(f"round() of {describe(self)}: lw.round, or .to(lw.i32, rounding='rn')")

    def __hash__(self) -> int:
        raise current().error(
            f"{describe(self)} is known only when the kernel runs: Python cannot look it up in a set or a "
            "dict. Compare it with each value (`(n == 1) | (n == 2)`), or index an array that the host makes"
        )

    def __eq__(self, other: object) -> Any:
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("ne", other)

    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")

    def _compare(self, name: str, other: object) -> object:
        if other is None or isinstance(other, str):
            return name == "ne"  # `x == None` is a question about Python objects
        return OPERATORS["compare"](name, self, other)

    def _binary(self, name: str, other: object, swapped: bool = False) -> Scalar:
        if isinstance(other, Traced) and not isinstance(other, Scalar):
            return NotImplemented  # type: ignore[no-any-return]  # a pointer, say, has operators of its own
        return OPERATORS[name](other, self) if swapped else OPERATORS[name](self, other)

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("truediv")
    __floordiv__, __rfloordiv__ = _operator("floordiv")
    __mod__, __rmod__ = _operator("mod")
    __and__, __rand__ = _operator("and")
    __or__, __ror__ = _operator("or")
    __xor__, __rxor__ = _operator("xor")
    __lshift__, __rlshift__ = _operator("lshift")
    __rshift__, __rrshift__ = _operator("rshift")

    def __divmod__(self, other: Number) -> tuple[Scalar, Scalar]:
        return self // other, self % other

    def __rdivmod__(self, other: Number) -> tuple[Scalar, Scalar]:
        return other // self, other % self

    def __pow__(self, other: Number) -> Scalar:
        return OPERATORS["pow"](self, other)

    def __rpow__(self, other: object) -> Any:
        raise current().error(f"{other!r} ** x: use lw.exp2(x * log2({other!r})), or 1 << n for integers")

    def __neg__(self) -> Scalar:
        return OPERATORS["neg"](self)

    def __pos__(self) -> Scalar:
        return self

    def __invert__(self) -> Scalar:
        return OPERATORS["invert"](self)

    def __abs__(self) -> Scalar:
        return OPERATORS["abs"](self)

    def __iter__(self) -> Any:
        raise current().error(f"{describe(self)} is one value: it cannot be taken apart or iterated over")

    if not TYPE_CHECKING:  # a checker marks these as what a number does not have

        def __getitem__(self, index: object) -> NoReturn:
            raise current().error(
                f"{describe(self)} is one value and has no elements: an array takes all its coordinates at "
                "once, as in a[row, col]"
            )

        def __setitem__(self, index: object, value: object) -> NoReturn:
            self[index]

        def __getattr__(self, name: str) -> NoReturn:
            hint = instead_of_attribute(type(self), name)
            raise AttributeError(f"a traced value has no .{name}{hint}", name=name, obj=None)

    def __format__(self, spec: str) -> str:
        raise current().error(
            f"{describe(self)} is known only when the kernel runs, and an f-string is made while it is "
            'traced: write print("x is", x), or lw.printf("x is %f", x)'
        )


def literal(value: Any, dtype: Format) -> Scalar:
    """Return a Python number as a constant of a dtype; an error where the dtype has no such number."""
    if dtype is pred:
        if isinstance(value, bool):
            return Scalar(pred, constant=value)
        raise current().error(f"{value!r} is not a truth value: compare it, as in `x != 0`")
    if is_int(dtype):
        if isinstance(value, float):
            raise current().error(
                f"the float {value!r} meets a value of type {dtype_name(dtype)}: convert that with "
                ".to(lw.f32), or write an integer"
            )
        if not dtype.min <= value <= dtype.max:
            raise current().error(
                f"{value} does not fit into {dtype_name(dtype)} ({dtype.min} to {dtype.max}): take a wider "
                "type, and convert an operand beside it with .to(…)"
            )
        number = int(value)
        return Scalar(dtype, constant=number, multiple=abs(number), nonnegative=number >= 0)
    if is_float(dtype):
        return Scalar(dtype, constant=float_constant(value, dtype))
    if dtype.kind != "bits":  # tf32, e4m3, s4: numbers, too, that registers carry as bits
        try:
            bits = int(dtype.encode([value])[0])
        except LanewiseError as error:
            if dtype.kind == "float" and isinstance(value, int | float):
                raise _not_representable(value, dtype) from None
            raise current().error(str(error)) from None
        if dtype.kind == "float" and isinstance(value, int | float):
            _require_number(value, float(dtype.decode([bits])[0]), dtype)
        return Scalar(dtype, constant=bits)
    number = int(value)
    if isinstance(value, float) or not 0 <= number < 1 << dtype.bits:
        raise current().error(
            f"{value!r} cannot stand for raw bits of {dtype.name}: write an unsigned integer"
        )
    return Scalar(dtype, constant=number)


def scalar(value: object, dtype: Format | None = None, what: str = "this") -> Scalar:
    """Return a value as a Scalar: a number becomes a constant of `dtype`, a traced value must have it."""
    if isinstance(value, Scalar):
        if dtype is None or value.dtype is dtype:
            return value
        raise current().error(
            f"{what} takes {dtype_name(dtype)}, and {describe(value)} is given: convert it with "
            f".to(lw.{dtype_name(dtype)})"
        )
    if is_number(value):
        value = plain_number(value)
        return literal(value, default_dtype(value) if dtype is None else dtype)
    refuse(value, what)


class PackedElement(Scalar):
    """One element of a packed register. It is extracted where it is used, and not at all if it only moves on.

    It begins at bit `first_bit` of `packed`; `slot_bits` is the distance from one element to the next.
    """

    __slots__ = ("first_bit", "packed", "slot_bits")

    def __init__(self, dtype: Format, packed: Register, first_bit: int, slot_bits: int) -> None:
        super().__init__(dtype)
        self.packed, self.first_bit, self.slot_bits = packed, first_bit, slot_bits

    @property
    def operand(self) -> Any:
        """A 16-bit register with the element, extracted by a shift or a bit field extract."""
        builder = current()
        if self.slot_bits == 16:
            source = self.packed
            if self.first_bit:
                source = builder.define("shr.u32", "b32", source, "16")
            return builder.define("cvt.u16.u32", "b16", source, hint=self.hint)
        signed = self.dtype.kind == "int" and self.dtype.signed
        name = "bfe.s32" if signed else "bfe.u32"
        wide = builder.define(name, "b32", self.packed, str(self.first_bit), str(self.dtype.bits))
        return builder.define("cvt.u16.u32", "b16", wide, hint=self.hint)

    def is_same(self, other: object) -> bool:
        """Return whether another value is the same element of the same register."""
        return isinstance(other, PackedElement) and (self.packed, self.first_bit, self.dtype) == (
            other.packed,
            other.first_bit,
            other.dtype,
        )


def register_dtype(dtype: Format) -> Format:
    """Return the dtype of a register of elements: f32, f64, i32, or u32 with one or several in it."""
    return dtype if dtype in (f32, f64, s32) else u32


def unpack_register(register: Register, dtype: Format, slot_bits: int, shift: int = 0) -> list[Scalar]:
    """Return the elements of a 32-bit register, lowest first; each begins `shift` bits above its slot."""
    return [PackedElement(dtype, register, start + shift, slot_bits) for start in range(0, 32, slot_bits)]


def pack_register(values: list[Scalar], slot_bits: int, shift: int = 0) -> Register:
    """Return a register that holds elements, lowest first: the one they were unpacked from, if any."""
    first = values[0]
    if isinstance(first, PackedElement) and all(
        isinstance(value, PackedElement)
        and value.packed is first.packed
        and value.first_bit == number * slot_bits + shift
        for number, value in enumerate(values)
    ):
        return first.packed
    builder = current()
    if slot_bits == 16:
        low, high = (value.in_register for value in values)
        return builder.define("mov.b32", "b32", (low, high))
    packed: Register | str = "0"
    for number, value in enumerate(values):
        wide = builder.define("cvt.u32.u16", "b32", value.in_register)
        packed = builder.define(
            "bfi.b32", "b32", wide, packed, str(number * slot_bits + shift), str(value.dtype.bits)
        )
    assert isinstance(packed, Register)
    return packed
