"""Functions that help to find mistakes: printf, assertions, trap, the clock.

The `assert` statement of a kernel comes here from `frontend/control_flow.py`.
"""

import re
from pathlib import Path

from lanewise.formats import Format, bf16, f16, f32, f64
from lanewise.lang.trace.builder import Address, CallOperands, Label, Register, Symbol, Variable, current
from lanewise.lang.trace.operators import as_predicate
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Traced, describe
from lanewise.lang.trace.types import i32, is_int, pred, u64

_VPRINTF = ".extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 values);"
_ASSERTFAIL = (
    ".extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line, "
    ".param .b64 function, .param .b64 size);"
)


def _text(text: str) -> Register:
    """Return the generic address of a text in global memory."""
    builder = current()
    data = text.encode() + b"\0"
    variable = next((variable for variable in builder.variables if variable.text == data), None)
    if variable is None:
        variable = Variable("global", Symbol("text"), None, 1, data)
        builder.variables.append(variable)
    address = builder.define("mov.u64", "b64", variable.symbol)
    return builder.define("cvta.global.u64", "b64", address)


def trap() -> None:
    """Stop the kernel: the launch fails."""
    current().emit("trap")


def clock() -> Scalar:
    """Return the clock of the multiprocessor, a u64."""
    return Scalar(u64, current().result("mov.u64", "b64", "%clock64"))


def assert_(condition: object, message: str = "assertion failed") -> None:
    """Stop the kernel with a message, unless the condition holds."""
    builder = current()
    test = as_predicate(condition)
    fine = Label("fine")
    builder.branch(fine, test.in_register)
    builder.externals.setdefault("__assertfail", _ASSERTFAIL)
    location = builder.location
    words = [_text(message), _text(Path(location.file).name), str(location.line), _text("kernel"), "1"]
    builder.emit("call.uni", "__assertfail", CallOperands(words))
    builder.emit("trap")
    builder.label(fine)


def printf(format: str, *values: object) -> None:
    """Print as C does: `lw.printf("lane %d: %f\\n", lane, x)`."""
    builder = current()
    scalars = [scalar(value, None, "lw.printf") for value in values]
    promoted = [_promoted(scalar) for scalar in scalars]
    _check_format(format, promoted)
    offset, offsets = 0, []
    for argument in promoted:
        size = argument.dtype.bits // 8
        offset = -(-offset // size) * size
        offsets.append(offset)
        offset += size
    base: object = "0"
    if promoted:
        buffer = Variable("local", Symbol("printed"), max(8, -(-offset // 8) * 8), 8)
        builder.variables.append(buffer)
        for argument, offset in zip(promoted, offsets, strict=True):
            kind = f"b{argument.dtype.bits}" if is_int(argument.dtype) else argument.dtype.name
            builder.emit(f"st.local.{kind}", Address(buffer.symbol, offset), argument.in_register)
        address = builder.define("mov.u64", "b64", buffer.symbol)
        base = builder.define("cvta.local.u64", "b64", address)
    builder.externals.setdefault("vprintf", _VPRINTF)
    builder.emit("call.uni", CallOperands([Register("b32")]), "vprintf", CallOperands([_text(format), base]))


def print_values(values: tuple[object, ...], sep: str = " ", end: str = "\n", **others: object) -> None:
    """Print values as Python's `print` does, when the kernel runs; lw.printf says how each is written."""
    if others:
        raise current().error(f"`print` of traced values takes sep= and end=, not {', '.join(others)}=")
    words, printed = [], []
    for value in values:
        if not isinstance(value, Traced):
            words.append(str(value).replace("%", "%%"))
            continue
        if not isinstance(value, Scalar):
            raise current().error(
                f"`print` writes numbers, and {describe(value)} is many: print its elements"
            )
        promoted = _promoted(value)
        words.append("%g" if promoted.dtype is f64 else _integer_conversion(promoted.dtype))
        printed.append(promoted)
    printf(sep.replace("%", "%%").join(words) + end.replace("%", "%%"), *printed)


def _integer_conversion(dtype: Format) -> str:
    """Return the conversion by which printf writes an integer of 32 or 64 bits."""
    return f"%{'ll' if dtype.bits == 64 else ''}{'d' if dtype.signed else 'u'}"


#: %[flags][width][.precision][length]conversion, as vprintf reads it.
_CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l|z)?([a-zA-Z%])")


def _check_format(format: str, values: list[Scalar]) -> None:
    """Raise an error for a conversion that does not fit its value: a GPU would print something else."""
    if not isinstance(format, str):
        raise current().error(f"lw.printf takes a text first, not {describe(format)}")
    wanted = [match.groups() for match in _CONVERSION.finditer(format) if match[2] != "%"]
    if len(wanted) != len(values):
        raise current().error(f"lw.printf: the text has {len(wanted)} conversions, for {len(values)} values")
    for (length, letter), value in zip(wanted, values, strict=True):
        if letter in "eEfFgGaA":
            fits = value.dtype is f64
        elif letter in "diouxXc":
            fits = is_int(value.dtype) and (length in ("l", "ll", "z")) == (value.dtype.bits == 64)
        else:
            fits = letter == "p" and value.dtype is u64
        if not fits:
            right = "%f" if value.dtype is f64 else _integer_conversion(value.dtype)
            raise current().error(
                f"lw.printf: %{length or ''}{letter} does not print {describe(value)}: write {right}"
            )


def _promoted(value: Scalar) -> Scalar:
    """Return a value as C promotes it among a variable number of arguments."""
    if value.dtype in (f16, bf16):
        return value.to(f32).to(f64)
    if value.dtype is f32:
        return value.to(f64)
    if value.dtype is pred or (is_int(value.dtype) and value.dtype.bits < 32):
        return value.to(i32)
    if is_int(value.dtype) or value.dtype is f64:
        return value
    raise current().error(f"lw.printf cannot print {describe(value)}")
