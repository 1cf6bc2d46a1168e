"""Reading layouts as people write them: `((4,8),(2,2)):((32,1),(16,8))`, `Sw<3,4,3> o 0 o (8,64)`."""

from __future__ import annotations

import re
from typing import NoReturn

from lanewise.errors import LanewiseError
from lanewise.layout import ComposedLayout, Layout, Swizzle

Nested = int | tuple["Nested", ...]

_TOKEN = re.compile(r"\s*(?:_?(-?\d{1,18})(?![\w.])|([(),:]))")
#: CuTe prints a swizzle as Sw<3,4,3>, pycute as SW_3_4_3.
_SWIZZLE = re.compile(r"(?:Sw<|SW_|Swizzle[<(])?\s*(\d{1,3})[,_]\s*(\d{1,3})[,_]\s*(-?\d{1,3})\s*[>)]?", re.I)
_DEEPEST = 32


def read_layout(text: str) -> Layout | ComposedLayout:
    """The layout that a text spells; without strides it is compact, the first mode fastest.

    >>> read_layout("((4,8),(2,2)):((32,1),(16,8))")
    ((4,8),(2,2)):((32,1),(16,8))
    >>> read_layout("(_4, _8)"), read_layout("Sw<2,0,2> o 0 o (4,4):(4,1)")
    ((4,8):(1,4), SW_2_0_2 o 0 o (4,4):(4,1))
    """
    parts = re.split(r"\s+o\s+", text.strip())
    if len(parts) == 3:
        offset = read_integers(parts[1], "an offset")
        if len(offset) != 1:
            raise LanewiseError(
                f"{text!r}: the offset between swizzle and layout is one number, not {parts[1]!r}"
            )
        return ComposedLayout(read_swizzle(parts[0]), offset[0], _plain(parts[2]))
    if len(parts) == 2:
        return ComposedLayout(read_swizzle(parts[0]), 0, _plain(parts[1]))
    return _plain(text)


def read_plain_layout(text: str) -> Layout:
    """A layout without a swizzle.

    >>> read_plain_layout("(16,8):(8,1)")
    (16,8):(8,1)
    """
    return _plain(text)


def read_swizzle(text: str) -> Swizzle:
    """The swizzle that `3,4,3`, `Sw<3,4,3>` or `SW_3_4_3` spells.

    >>> read_swizzle("3,4,3")
    Swizzle(3,4,3)
    """
    match = _SWIZZLE.fullmatch(text.strip())
    if match is None:
        raise LanewiseError(f"{text!r} is no swizzle; write bits, base and shift, such as 3,4,3")
    return Swizzle(*(int(part) for part in match.groups()))


def read_integers(text: str, what: str) -> tuple[int, ...]:
    """Integers with commas between them, `2,2,1`.

    >>> read_integers("2,2,1", "an atom layout")
    (2, 2, 1)
    """
    parts = text.strip().strip("()").split(",")
    if not all(re.fullmatch(r"\s*_?-?\d{1,18}\s*", part) for part in parts):
        raise LanewiseError(f"{text!r} is not {what}; write integers with commas between them, such as 2,2,1")
    return tuple(int(part.strip().lstrip("_")) for part in parts)


def _plain(text: str) -> Layout:
    tokens = _Tokens(text)
    shape = tokens.nested(0)
    stride = None
    if tokens.take(":"):
        stride = tokens.nested(0)
    if tokens.rest():
        tokens.fail("one layout ends before")
    return Layout(shape, stride)


class _Tokens:
    """The words of a layout, taken one after another."""

    def __init__(self, text: str) -> None:
        self.text = text
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
            raise LanewiseError(f"a layout nested more than {_DEEPEST} deep is none that anyone meant")
        match = _TOKEN.match(self.text, self.position)
        if match is not None and match.group(1):
            self.position = match.end()
            return int(match.group(1))
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
        raise LanewiseError(
            f"{self.text!r} is no layout: {what} {place}; "
            "write shape:stride, such as (8,64):(64,1), or a shape alone"
        )
