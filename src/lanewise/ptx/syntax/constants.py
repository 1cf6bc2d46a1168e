"""Constants of PTX: the literals, and the arithmetic of constant expressions with its 64-bit types.

Follows ptxas where it and the PTX ISA's table of evaluation rules differ: a remainder is unsigned, `&`, `|`
and `^` convert as `+` does, `?:` has the type of the side taken, and shifts count modulo 64.
"""

import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache

from lanewise.ptx.model.operands import Immediate

#: A constant while it is computed with: its type, and the number in that type's range.
Constant = tuple[str, int | float]

_LIMIT = 1 << 64
_INTEGER = re.compile(r"(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|(0[0-7]*)|([1-9][0-9]*))(U?)", re.ASCII)
_FLOAT_BITS = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", re.ASCII)
_DECIMAL = re.compile(r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+", re.ASCII)

#: Binary operators and how tightly they bind.
PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip


_MIXED = "integer and floating-point number in one constant expression; nothing converts them"


class ConstantError(ValueError):
    """A constant that has no value; the parser adds line and column."""


@lru_cache(maxsize=1 << 15)
def literal(text: str) -> Immediate:
    """The constant that one literal spells."""
    if match := _INTEGER.fullmatch(text):
        digits, base = next(
            (part, base) for part, base in zip(match.groups(), (16, 2, 8, 10), strict=False) if part
        )
        # 64 binary digits are the longest that fit; Python refuses to convert thousands of digits.
        value = int(digits, base) if len(digits) <= 80 else _LIMIT
        if value >= _LIMIT:
            raise ConstantError(f"integer {text[:40]} does not fit into 64 bits")
        return Immediate("u64" if match.group(5) or value >> 63 else "s64", value, text)
    if match := _FLOAT_BITS.fullmatch(text):
        single, double = match.groups()
        return Immediate("f32", int(single, 16), text) if single else Immediate("f64", int(double, 16), text)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ConstantError(f"floating-point number {text[:40]} does not fit into 64 bits")
        return Immediate("f64", _double_bits(number), text)
    raise ConstantError(f"malformed number {text[:40]}")


def immediate(constant: Constant, text: str) -> Immediate:
    """A computed constant as an operand."""
    kind, value = constant
    bits = _double_bits(value) if isinstance(value, float) else value % _LIMIT
    return Immediate(kind, bits, text)


def _double_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def _wrap(kind: str, value: int) -> Constant:
    value %= _LIMIT
    return kind, value - _LIMIT if kind == "s64" and value >> 63 else value


def _integer(constant: Constant) -> int:
    if isinstance(constant[1], float):
        raise ConstantError("a floating-point number where a constant expression needs an integer")
    return constant[1]


def cast(kind: str, constant: Constant) -> Constant:
    """`(.s64)` or `(.u64)` of an integer."""
    return _wrap(kind, _integer(constant))


def unary(operator: str, constant: Constant) -> Constant:
    """`+`, `-`, `!` or `~` of a constant."""
    kind, value = constant
    match operator:
        case "!":
            return "s64", int(_integer(constant) == 0)
        case "~":
            return _wrap("u64", ~_integer(constant))
        case "-":
            return (kind, -value) if isinstance(value, float) else _wrap(kind, -value)
        case _:
            return constant


def choose(condition: Constant, first: Constant, second: Constant) -> Constant:
    """`condition ? first : second`."""
    if isinstance(first[1], float) != isinstance(second[1], float):
        raise ConstantError(_MIXED)
    return first if _integer(condition) else second


def binary(operator: str, left: Constant, right: Constant) -> Constant:
    """Two constants joined by an operator."""
    if operator in ("&&", "||"):
        both = bool(_integer(left)), bool(_integer(right))
        return "s64", int(all(both) if operator == "&&" else any(both))
    if operator in ("<<", ">>"):
        value, count = _integer(left), _integer(right) % 64  # ptxas shifts as its processor does
        return _wrap(left[0], value << count if operator == "<<" else value >> count)
    if operator == "%":
        a, b = _integer(left) % _LIMIT, _integer(right) % _LIMIT
        if b == 0:
            raise ConstantError("remainder of a division by zero")
        return "u64", a % b
    if isinstance(left[1], float) or isinstance(right[1], float):
        return _floating(operator, left, right)
    kind = _common(left, right)
    a, b = (int(cast(kind, part)[1]) for part in (left, right))
    if operator in _COMPARISONS:
        return "s64", int(_COMPARISONS[operator](a, b))
    if operator == "/":
        if b == 0:
            raise ConstantError("division by zero")
        return _wrap(kind, abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1))
    return _wrap(kind, _INTEGER_OPERATIONS[operator](a, b))


def _common(left: Constant, right: Constant) -> str:
    _integer(left), _integer(right)
    return "u64" if "u64" in (left[0], right[0]) else "s64"


def _floating(operator: str, left: Constant, right: Constant) -> Constant:
    a, b = left[1], right[1]
    if not (isinstance(a, float) and isinstance(b, float)):
        raise ConstantError(_MIXED)
    if operator in _COMPARISONS:
        return "s64", int(_COMPARISONS[operator](a, b))
    if operator == "/" and b == 0:
        raise ConstantError("division by zero")
    return "f64", {"+": a + b, "-": a - b, "*": a * b}[operator] if operator != "/" else a / b


_INTEGER_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
