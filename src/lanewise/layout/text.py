"""The shape and stride that a text spells, as CuTe prints them and as C++ writes their types."""

import re
from typing import NoReturn

from lanewise.errors import LanewiseError

Nested = int | tuple["Nested", ...]

_TOKEN = re.compile(r"\s*(?:_?(-?\d{1,18})(?![\w.])|([(),:]))")
_TOO_LONG = re.compile(r"\s*_?-?\d{19}")
_DEEPEST = 32
#: Integers of CuTe: Int<8>, C<8>, integral_constant<int, 8>.
_INTEGER = re.compile(r"\b(?:Int|C|(?:integral_constant|constant)\s*<\s*int\s*,)\s*<?\s*(-?\d+)\s*>")
_TUPLE = re.compile(r"\b(?:Shape|Stride|Step|Coord|Tile|tuple)\s*<")
_LAYOUT = re.compile(r"Layout\s*<(.*)>", re.DOTALL)


def read_shape_and_stride(text: str) -> tuple[Nested, Nested | None]:
    """Return the shape and the stride that a text spells; None for the stride of a shape alone.

    >>> read_shape_and_stride("(4,8):(1,4)")
    ((4, 8), (1, 4))
    >>> read_shape_and_stride("Layout<Shape<_4, Shape<_2,_4>>, Stride<_1, Stride<_4,Int<8>>>>")
    ((4, (2, 4)), (1, (4, 8)))
    """
    tokens = _Tokens(text, _as_printed(text))
    shape = tokens.nested(0)
    stride = None
    if tokens.take(":"):
        stride = tokens.nested(0)
    if tokens.rest():
        tokens.fail("one layout ends before")
    return shape, stride


def _as_printed(text: str) -> str:
    """Return a type of C++ as CuTe prints its value; any other text as it is.

    >>> _as_printed("Layout<Shape<_4,_8>>")
    '(_4,_8)'
    """
    plain = re.sub(r"\{\s*\}\s*$", "", re.sub(r"\bcute::", "", text.strip()))
    if "<" not in plain:
        return plain
    plain = _INTEGER.sub(r"\1", plain)
    match = _LAYOUT.fullmatch(plain)
    parts = at_commas(match[1], "<>()") if match is not None else [plain]
    return ":".join(re.sub(r"\s*>", ")", _TUPLE.sub("(", part)).strip() for part in parts)


def at_commas(text: str, brackets: str = "()") -> list[str]:
    """Return the parts of a text between the commas that stand in no brackets.

    >>> at_commas("32, (8, 2), 16")
    ['32', '(8, 2)', '16']
    """
    parts, depth = [""], 0
    for letter in text:
        if letter in brackets:
            depth += 1 if brackets.index(letter) % 2 == 0 else -1
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


class _Tokens:
    """The words of a layout, taken one after another."""

    def __init__(self, written: str, text: str) -> None:
        self.written, self.text = written, text
        self.position = 0

    def rest(self) -> str:
        return self.text[self.position :].strip()

    def take(self, sign: str) -> bool:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.group(2) != sign:
            return False
        self.position = match.end()
        return True

    def nested(self, depth: int) -> Nested:
        if depth > _DEEPEST:
            raise LanewiseError(f"a layout nested more than {_DEEPEST} deep is not supported")
        match = _TOKEN.match(self.text, self.position)
        if match is not None and match.group(1):
            self.position = match.end()
            return int(match.group(1))
        if _TOO_LONG.match(self.text, self.position):
            raise LanewiseError(f"{self.written[:80]!r} is no layout: its numbers have at most 18 digits")
        if not self.take("("):
            self.fail("a number or ( is missing before")
        parts = [self.nested(depth + 1)]
        while self.take(","):
            if self.take(")"):  # (8,) is a tuple of one
                return tuple(parts)
            parts.append(self.nested(depth + 1))
        if not self.take(")"):
            self.fail(", or ) is missing before")
        return tuple(parts)

    def fail(self, what: str) -> NoReturn:
        place = repr(self.rest()) if self.rest() else "the end"
        if re.match(r"\s*(?:cute::)?(?:Sw|ComposedLayout)", self.written, re.I):
            raise LanewiseError(
                f"{self.written!r} is a swizzled layout, which lw.make_layout reads; lw.Layout is one without"
            )
        raise LanewiseError(
            f"{self.written!r} is no layout: {what} {place}; "
            "write shape:stride, such as (8,64):(64,1), or a shape alone"
        )
