"""The grammar of operands and constant expressions, read token by token.

The whole truth about operands; `body_parser.py` takes short cuts for those that compilers write all the time.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from lanewise.ptx.lexer import Reader, Source
from lanewise.ptx.model.operands import (
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
from lanewise.ptx.syntax.constants import (
    PRECEDENCE,
    Constant,
    ConstantError,
    binary,
    cast,
    choose,
    immediate,
    literal,
    unary,
)

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
        vector = Vector(_list(reader, "{", "}", depth))
        return _paired(reader, vector) if reader.take("|") else vector
    if reader.token == "(" and is_call:
        return Group(_list(reader, "(", ")", depth))
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


def _list(reader: Reader, opening: str, closing: str, depth: int) -> tuple[Operand, ...]:
    reader.expect(opening)
    elements: list[Operand] = []
    if reader.token != closing:
        elements.append(read_operand(reader, depth=depth))
        while reader.take(","):
            elements.append(read_operand(reader, depth=depth))
    reader.expect(closing, f"',' or '{closing}'")
    return tuple(elements)
