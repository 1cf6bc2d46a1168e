"""The grammar of operands and constant expressions, read token by token.

The whole truth about operands; `body_parser.py` takes short cuts for those that compilers write all the time.
Constants have 64-bit types. They follow ptxas where it and the PTX ISA's table of evaluation rules differ: a
remainder is unsigned, `&`, `|` and `^` convert as `+` does, `?:` has the type of the side taken, and shifts
count modulo 64.
"""

import math
import operator as operators
import re
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar

from lanewise.ptx.lexer import Reader, Source
from lanewise.ptx.model.statements import (
    Address,
    Element,
    Group,
    Immediate,
    Index,
    Name,
    Offset,
    Operand,
    Pair,
    Unary,
    Vector,
)

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
    "&": operators.and_, "|": operators.or_, "^": operators.xor, "+": operators.add, "-": operators.sub,
    "*": operators.mul,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operators.eq, "!=": operators.ne, "<": operators.lt, "<=": operators.le, ">": operators.gt,
    ">=": operators.ge,
}  # fmt: skip


T = TypeVar("T")
#: How deep brackets, signs and lists may be nested.
MAX_DEPTH = 32
_AN_OPERAND = "an operand (register, constant, address or vector)"


def constant(text: str) -> Immediate:
    """Return the constant that a literal or a constant expression spells.

    >>> constant("0x10 + WARP_SZ * 2").value
    80
    """
    reader = Reader(Source(text))
    value = read_constant(reader)
    if reader.kind != "end":
        raise reader.wrong("an operator or the end of the constant")
    return value


# constants ----------------------------------------------------------------------------------------------


def read_literal(reader: Reader, what: str = "a number") -> Immediate:
    """One number, which is no expression."""
    if reader.kind != "number":
        raise reader.wrong(what)
    number = _placed(reader, reader.start, partial(literal, reader.token))
    reader.advance()
    return number


def read_count(reader: Reader, what: str) -> int:
    """One integer, which is no expression."""
    start, token = reader.start, reader.token
    number = read_literal(reader, what)
    if not number.is_integer:
        raise reader.source.wrong(start, f"'{token}'", what)
    return number.bits


def read_integer(reader: Reader, what: str) -> int:
    """A constant expression that must be an integer, as its value."""
    start = reader.start
    if not starts_constant(reader):
        raise reader.wrong(what)
    value = _ternary(reader, 0)[1]
    if isinstance(value, float):
        raise reader.source.wrong(start, f"the floating-point number {_text(reader, start)}", what)
    return value


def starts_constant(reader: Reader) -> bool:
    """Whether the token at hand can begin a constant expression."""
    return reader.kind == "number" or reader.token in ("(", "-", "+", "!", "~", "WARP_SZ")


def read_constant(reader: Reader) -> Immediate:
    """Read a constant expression and return its value, computed as ptxas does."""
    start = reader.start
    if _is_single(reader):
        return read_literal(reader)
    value = _ternary(reader, 0)
    return immediate(value, _text(reader, start))


def _is_single(reader: Reader) -> bool:
    """0f…, which stands alone: ptxas computes with doubles only."""
    return reader.kind == "number" and reader.token[1:2] in ("f", "F")


def _text(reader: Reader, start: int) -> str:
    return " ".join(reader.source.code[start : reader.start].split())


def _placed(reader: Reader, start: int, compute: Callable[[], T]) -> T:
    try:
        return compute()
    except ConstantError as error:
        raise reader.source.wrong(start, str(error)) from None


def _ternary(reader: Reader, depth: int) -> Constant:
    start = reader.start
    condition = _binary(reader, 1, depth)
    if not reader.take("?"):
        return condition
    first = _ternary(reader, _deeper(reader, depth))
    reader.expect(":", "':' and what holds if the condition does not")
    second = _ternary(reader, _deeper(reader, depth))
    return _placed(reader, start, partial(choose, condition, first, second))


def _binary(reader: Reader, binding: int, depth: int) -> Constant:
    start = reader.start
    left = _unary(reader, depth)
    while (strength := PRECEDENCE.get(reader.token, 0)) >= binding:
        operator = reader.advance()
        right = _binary(reader, strength + 1, depth)
        left = _placed(reader, start, partial(binary, operator, left, right))
    return left


def _unary(reader: Reader, depth: int) -> Constant:
    start = reader.start
    if reader.kind == "number":
        if _is_single(reader):
            raise reader.wrong("a number that can be computed with (0f… stands alone)")
        literal = read_literal(reader)
        return literal.type, literal.value
    if reader.take("WARP_SZ"):
        return "s64", 32
    if reader.token in ("-", "+", "!", "~"):
        operator = reader.advance()
        operand = _unary(reader, _deeper(reader, depth))
        return _placed(reader, start, partial(unary, operator, operand))
    if not reader.take("("):
        raise reader.wrong("a constant")
    if reader.kind == "directive":
        if reader.token not in (".s64", ".u64"):
            raise reader.wrong("a cast to .s64 or .u64")
        kind = reader.advance()[1:]
        reader.expect(")")
        operand = _unary(reader, _deeper(reader, depth))
        return _placed(reader, start, partial(cast, kind, operand))
    inside = _ternary(reader, _deeper(reader, depth))
    reader.expect(")", "an operator or ')'")
    return inside


def _deeper(reader: Reader, depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise reader.source.wrong(reader.start, f"an expression nested more than {MAX_DEPTH} deep")
    return depth + 1


# operands -----------------------------------------------------------------------------------------------


def read_operands(reader: Reader, is_call: bool) -> tuple[Operand, ...]:
    """The operands of an instruction, up to its semicolon; a call's are grouped by parentheses."""
    if reader.token in ("}", ",") or reader.kind in ("end", "bad", "string", "directive"):
        raise reader.wrong(f"{_AN_OPERAND} or ';'")
    operands = [read_operand(reader, is_call)]
    while reader.take(","):
        operands.append(read_operand(reader, is_call))
    if reader.token != ";":
        raise reader.wrong("',' or ';'")
    return tuple(operands)


def read_operand(reader: Reader, is_call: bool = False, depth: int = 0) -> Operand:
    """Read one operand: a name, an address, a vector, a constant, or a group of arguments of a call."""
    depth = _deeper(reader, depth)
    if _at_name(reader):
        return _named(reader)
    if reader.token == "[":
        return _address(reader, depth)
    if reader.token == "{":
        vector = Vector(reader.enclosed(partial(read_operand, depth=depth), "{", "}"))
        return _paired(reader, vector) if reader.take("|") else vector
    if reader.token == "(" and is_call:
        return Group(reader.enclosed(partial(read_operand, depth=depth), "(", ")"))
    if reader.token in ("!", "-"):
        return _negated(reader)
    if not starts_constant(reader):
        raise reader.wrong(_AN_OPERAND)
    return read_constant(reader)


def _at_name(reader: Reader) -> bool:
    return reader.kind == "name" and reader.token != "WARP_SZ"


def _negated(reader: Reader) -> Operand:
    """`!%p` or `-%r`; a constant may begin so as well."""
    operator, start = reader.token, reader.start
    reader.advance()
    if _at_name(reader):
        return Unary(operator, _name_or_element(reader))
    reader.seek(start)
    return read_constant(reader)


def _name_or_element(reader: Reader) -> Name | Element:
    """A name; `.x` belongs to it only if nothing stands between."""
    after = reader.end
    name = reader.advance()
    if reader.kind == "directive" and reader.start == after and "::" not in reader.token:
        return Element(name, reader.advance()[1:])
    return Name(name)


def _named(reader: Reader) -> Operand:
    first = _name_or_element(reader)
    if reader.take("|"):
        return _paired(reader, first)
    if isinstance(first, Name):
        if reader.take("+"):
            return Offset(first.name, read_integer(reader, "a constant number of bytes"))
        if reader.take("["):
            return _index(reader, first.name)
    return first


def _paired(reader: Reader, first: Name | Element | Vector) -> Pair:
    """A pair of destinations, of which the first and the bar were read."""
    if not _at_name(reader):
        raise reader.wrong("the second destination of a pair")
    return Pair(first, _name_or_element(reader))


def _index(reader: Reader, name: str) -> Index:
    register, offset = "", 0
    if _at_name(reader):
        register = reader.advance()
        if reader.take("+"):
            offset = read_integer(reader, "a constant")
    else:
        offset = read_integer(reader, "an index: a register or a constant")
    reader.expect("]", "'+' or ']'" if register else "']'")
    return Index(name, register, offset)


def _address(reader: Reader, depth: int) -> Address:
    reader.expect("[")
    offset, says_zero = 0, False
    base: Name | Element | Immediate
    if _at_name(reader):
        base = _name_or_element(reader)
        if reader.take("+"):
            offset = read_integer(reader, "a constant number of bytes")
            says_zero = offset == 0
    elif starts_constant(reader):
        base = read_constant(reader)
    else:
        raise reader.wrong("an address: a register, a variable or a constant")
    rest = []
    while reader.take(","):
        rest.append(read_operand(reader, depth=depth))
    reader.expect("]", "'+', ',' or ']'")
    return Address(base, offset, tuple(rest), says_zero)
