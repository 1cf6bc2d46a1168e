"""Expressions of the layout algebra, read by a small grammar: nothing that is typed is ever run as Python.

Lines are `name = expression` or an expression; the last one is the result. An expression is a layout
(`(8,8):(8,1)`), a tuple, a number, a swizzle (`Sw<3,3,3>`), a name, a function of the algebra with arguments
(`logical_divide(A, (4,2))`), or several with `o` between them, which is composition.
"""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from lanewise import layout as algebra
from lanewise.errors import LanewiseError
from lanewise.layout import ComposedLayout, Layout, Swizzle, composition, flatten
from lanewise.layout.reading import read_layout

#: Letters of everything that is typed, lines, and how deep expressions may be nested.
MOST_LETTERS, MOST_LINES, DEEPEST = 4000, 40, 32
#: Numbers that a layout is made of, and bits that each of them has.
MOST_PARTS, MOST_BITS = 256, 64

#: The functions that an expression may name, all of `lanewise.layout`.
FUNCTIONS: dict[str, Callable[..., object]] = {
    name: getattr(algebra, name)
    for name in (
        "Layout", "Swizzle", "ComposedLayout", "composition", "complement", "coalesce", "filter", "flatten",
        "logical_divide", "zipped_divide", "tiled_divide", "flat_divide", "logical_product", "zipped_product",
        "tiled_product", "flat_product", "blocked_product", "raked_product", "tile_to_shape",
        "right_inverse", "left_inverse", "nullspace", "make_layout", "make_ordered_layout",
        "make_identity_layout", "make_layout_like", "with_shape", "upcast", "downcast", "recast_layout",
        "select", "group", "append", "prepend", "take", "size", "cosize", "rank", "depth",
        "max_common_layout", "max_common_vector",
    )
}  # fmt: skip

#: Functions whose first argument is a number or a shape; that of the others is a layout.
_OF_NUMBERS = ("Layout", "Swizzle", "ComposedLayout", "make_ordered_layout", "make_identity_layout")

_TOKEN = re.compile(
    r"\s*(?:(?P<swizzle>(?:Sw<|SW_|Swizzle<)\s*(\d{1,3})[,_]\s*(\d{1,3})[,_]\s*(-?\d{1,3})\s*>?)"
    r"|(?P<number>_?-?\d{1,18}(?![\w.]))|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>[(),:=\[\]]))"
)


def evaluate(text: str) -> tuple[Any, dict[str, Any]]:
    """Return the value of what was typed, and the values of its names.

    >>> evaluate("A = (8,8):(8,1)\\nlogical_divide(A, 4)")[0]
    (4,(2,8)):(8,(32,1))
    >>> evaluate("Sw<2,0,3> o (8,8):(8,1)")[0]
    SW_2_0_3 o 0 o (8,8):(8,1)
    """
    if len(text) > MOST_LETTERS:
        raise LanewiseError(f"an expression has at most {MOST_LETTERS} letters")
    names: dict[str, object] = {}
    value: object = None
    lines = [line.split("#")[0].strip() for line in re.split(r"[\n;]", text)]
    lines = [line for line in lines if line]
    if not lines:
        raise LanewiseError("type a layout, such as (8,64):(64,1), or an expression of the algebra")
    if len(lines) > MOST_LINES:
        raise LanewiseError(f"an expression has at most {MOST_LINES} lines")
    for line in lines:
        named = re.fullmatch(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", line)
        value = _value(named[2] if named else line, names)
        if named:
            if named[1] in FUNCTIONS or named[1] == "o":
                raise LanewiseError(f"{named[1]} is a name of the algebra; choose another")
            names[named[1]] = value
    return value, names


def _value(text: str, names: dict[str, object]) -> Any:
    if re.match(r"\s*(?:cute::)?(?:ComposedLayout|Layout|Shape)\s*<", text):
        return read_layout(text)  # types of C++
    reader = _Reader(text, names)
    value = reader.expression(0)
    if reader.rest():
        reader.fail("an expression ends before")
    return value


class _Reader:
    """The words of a line, taken one after another."""

    def __init__(self, text: str, names: dict[str, object]) -> None:
        self.text, self.names, self.position = text, names, 0

    def rest(self) -> str:
        return self.text[self.position :].strip()

    def fail(self, what: str) -> NoReturn:
        place = repr(self.rest()[:40]) if self.rest() else "the end"
        raise LanewiseError(f"{self.text[:80]!r} is no expression: {what} {place}")

    def peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.position)

    def take(self, sign: str) -> bool:
        token = self.peek()
        if token is None or token["sign"] != sign:
            return False
        self.position = token.end()
        return True

    def takes_o(self) -> bool:
        token = self.peek()
        if token is None or token["name"] != "o":
            return False
        self.position = token.end()
        return True

    def expression(self, depth: int) -> Any:
        """Read terms with `o` between them."""
        if depth > DEEPEST:
            raise LanewiseError(f"an expression nested more than {DEEPEST} deep is not supported")
        terms = [self.term(depth)]
        while self.takes_o():
            terms.append(self.term(depth))
        if len(terms) == 3 and isinstance(terms[0], Swizzle) and isinstance(terms[1], int):
            return ComposedLayout(terms[0], terms[1], _layout(terms[2]))
        value = terms.pop()
        while terms:
            outer = terms.pop()
            value = _called("composition", composition, (_layout(outer), value))
        return value

    def term(self, depth: int) -> object:
        """Read a value; a shape with a stride behind it is a layout."""
        value = self.plain(depth)
        if isinstance(value, int | tuple) and self.take(":"):
            return _called("Layout", Layout, (value, self.plain(depth)))
        while self.take("["):
            mode = self.expression(depth + 1)
            if not self.take("]"):
                self.fail("] is missing before")
            if not isinstance(value, Layout | tuple) or not isinstance(mode, int):
                self.fail("only modes of a layout have numbers in brackets, before")
            value = _called("a mode", lambda layout, number: layout[number], (value, mode))
        return value

    def plain(self, depth: int) -> Any:
        token = self.peek()
        if token is None:
            self.fail("a layout, a number or a name is missing before")
        if token["swizzle"]:
            self.position = token.end()
            return _called("Swizzle", Swizzle, tuple(int(group) for group in token.groups()[1:4]))
        if token["number"]:
            self.position = token.end()
            return int(token["number"].lstrip("_"))
        if token["name"]:
            self.position = token.end()
            return self.named(token["name"], depth)
        if self.take("("):
            return self.inside(depth)
        self.fail("a layout, a number or a name is missing before")

    def inside(self, depth: int) -> Any:
        """Read what stands in parentheses: a tuple, or one expression."""
        parts = [self.expression(depth + 1)]
        comma = False
        while self.take(","):
            comma = True
            if self.take(")"):
                return tuple(parts)
            parts.append(self.expression(depth + 1))
        if not self.take(")"):
            self.fail(", or ) is missing before")
        return tuple(parts) if comma else parts[0]

    def named(self, name: str, depth: int) -> object:
        if name == "_":
            return None
        arguments: tuple[object, ...] | None = None
        if self.take("("):
            if self.take(")"):
                arguments = ()
            else:
                inside = [self.expression(depth + 1)]
                while self.take(","):
                    inside.append(self.expression(depth + 1))
                if not self.take(")"):
                    self.fail(", or ) is missing before")
                arguments = tuple(inside)
        if name in self.names:
            value = self.names[name]
            return value if arguments is None else _called(name, value, arguments)
        if name in FUNCTIONS:
            if arguments is None:
                raise LanewiseError(f"{name} is a function: write its arguments in parentheses")
            if arguments and name not in _OF_NUMBERS:
                arguments = (_layout(arguments[0]), *arguments[1:])
            return _called(name, FUNCTIONS[name], arguments)
        raise LanewiseError(
            f"{name[:40]!r} is neither a name above nor one of {', '.join(sorted(FUNCTIONS))}"
        )


def _layout(value: object) -> object:
    """Return a value as a layout: a shape alone is compact."""
    return Layout(value) if isinstance(value, int | tuple) else value


def _bounded(value: object) -> Any:
    """Return a value, unless it has numbers or modes beyond those of any memory."""
    if isinstance(value, Swizzle):
        parts: tuple[object, ...] = (1 << value.bits, 1 << value.base, 1 << abs(value.shift))
    elif isinstance(value, ComposedLayout):
        _bounded(value.layoutB)
        return value if _bounded(value.layoutA) is not None else None
    elif isinstance(value, Layout):
        parts = (*flatten(value.shape), *flatten(value.stride))
    else:
        parts = flatten(value) if isinstance(value, tuple) else (value,)
    numbers = [part for part in parts if isinstance(part, int)]
    if len(parts) > MOST_PARTS or any(abs(number).bit_length() > MOST_BITS for number in numbers):
        raise LanewiseError("this grows beyond any memory; take something smaller")
    return value


def _called(name: str, function: object, arguments: tuple[object, ...]) -> object:
    """Call a function of the algebra; arguments that it does not take become a sentence."""
    if not callable(function):
        raise LanewiseError(f"{name} is {function}, which takes no arguments")
    try:
        return _bounded(function(*arguments))
    except LanewiseError:
        raise
    except (
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        AttributeError,
        AssertionError,
        ArithmeticError,
    ) as error:
        spelled = ", ".join(str(argument)[:60] for argument in arguments)
        raise LanewiseError(f"{name}({spelled}) is not possible: {error}") from None
