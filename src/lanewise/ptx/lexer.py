"""PTX text made ready to be read: comments taken out, lines counted, tokens cut; and the syntax error.

Leaves the grammar to the parsers. Offsets are into `code`; lines and columns are those of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

from lanewise.errors import LanewiseError

T = TypeVar("T")
#: How much of a long source line the message shows around the place.
_WIDTH = 100


class PtxSyntaxError(LanewiseError):
    """PTX text that cannot be read; `line` and `column` count from 1.

    >>> from lanewise.ptx import parse
    >>> try:
    ...     parse(".version 9.0\\n.target sm_80\\n.entry k() { add.s32 %r1, %r2 5; }")
    ... except PtxSyntaxError as error:
    ...     print(error)
    line 3, column 31: found '5', expected ',' or ';'
        .entry k() { add.s32 %r1, %r2 5; }
                                      ^
    """

    def __init__(self, line: int, column: int, found: str, expected: str, source_line: str = "") -> None:
        self.line = line
        self.column = column
        self.found = found
        self.expected = expected
        self.source_line = source_line
        super().__init__(f"line {line}, column {column}: {self._complaint()}{self._picture()}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.line, self.column, self.found, self.expected, self.source_line))

    def _complaint(self) -> str:
        return f"found {self.found}, expected {self.expected}" if self.expected else self.found

    def _picture(self) -> str:
        if not self.source_line.strip():
            return ""
        first = max(0, self.column - 1 - _WIDTH // 2)
        shown = self.source_line[first : first + _WIDTH]
        indent = "".join(letter if letter == "\t" else " " for letter in shown[: self.column - 1 - first])
        return f"\n    {'…' if first else ''}{shown}\n    {' ' if first else ''}{indent}^"


#: What separates tokens; Python's own notion of white space is wider.
SPACE = " \t\n\r\f\v"
NAME = r"(?:[a-zA-Z_][\w$]*+|[$%][\w$]++)"
#: Two or more characters where the first is `_`, `$` or `%`: what may be declared, and may be a label.
DECLARED = r"(?:[a-zA-Z][\w$]*+|[_$%][\w$]++)"
STRING = r'"(?:[^"\\\n]|\\[^\n])*+"'
_NUMBER = (
    r"0[xX][0-9a-fA-F]++U?|0[bB][01]++U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d++[eE][+-]?\d++"
    r"|(?:\d++\.\d*+|\.\d++)(?:[eE][+-]?\d++)?|\d++U?"
)
_TOKEN = re.compile(
    rf"""\s*+(?:
        (?P<name>{NAME})
      | (?P<number>(?:{_NUMBER})(?![\w$]))
      | (?P<directive>\.[a-zA-Z_]\w*+(?:::\w++)*+)
      | (?P<string>{STRING})
      | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!?:;,()\[\]{{}}<>=@])
      | (?P<end>\Z)
      | (?P<bad>\d[\w$.]*+|.)
    )""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
#: A string, or a comment: group 1 is the start of one in /* */, group 2 its end. That it begins with a set of
#: characters lets the search skip to them. (A possessive group with a look ahead would be wrong before Python
#: 3.11.5.)
_COMMENT = re.compile(
    r"""["/](?:(?<=")(?:[^"\\\n]|\\[^\n])*+"|(?<=/)/[^\n]*+|(?<=/)(\*)(?s:.*?)(?:(\*/)|\Z))"""
)
#: A line marker of a preprocessor (`# 5 "file.c"`) is passed over as ptxas does.
_LINE_MARKER = re.compile(r"^[ \t]*+\#[ \t]*+\d[^\n]*+", re.ASCII | re.MULTILINE)
_LETTER = re.compile(r"[^\n]")


class Source:
    """A PTX text, without its comments (`code`), and where its lines start."""

    __slots__ = ("code", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts: list[int] = [0]
        # NVRTC ends its PTX with a NUL, some editors begin a file with a mark of the byte order.
        self.code = re.sub("[\0\ufeff]", " ", text) if "\0" in text or "\ufeff" in text else text
        if "/" in text:
            self.code = _COMMENT.sub(self._blank, self.code)
        if "#" in text:
            self.code = _LINE_MARKER.sub("", self.code)
        self.starts += [match.end() for match in re.finditer("\n", self.code)]

    def _blank(self, match: re.Match[str]) -> str:
        """Strings stay; what ends with its line goes; other comments become as much white space."""
        comment = match.group()
        if comment[0] == '"':
            return comment
        if match.group(1) is None:
            return ""
        if match.group(2) is None:
            before = match.string[: match.start()]
            line, column = before.count("\n") + 1, match.start() - before.rfind("\n")
            raise PtxSyntaxError(line, column, "a comment /* without an end", "", self.source_line(line))
        return _LETTER.sub(" ", comment)

    def source_line(self, line: int) -> str:
        """A line of the text as it was given."""
        lines = self.text.split("\n", line)
        return lines[line - 1].rstrip("\r") if line <= len(lines) else ""

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, from 1."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def wrong(self, offset: int, found: str, expected: str = "") -> PtxSyntaxError:
        """The error at an offset."""
        line, column = self.line_and_column(offset)
        return PtxSyntaxError(line, column, found, expected, self.source_line(line))


class Reader:
    """The tokens of a source one after another: `kind`, `token` and `start` are of the one at hand."""

    __slots__ = ("_code", "end", "kind", "source", "start", "token")

    def __init__(self, source: Source, offset: int = 0) -> None:
        self.source = source
        self._code = source.code
        self.token = ""
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Go to the token at an offset, or after the white space there."""
        self.end = offset
        self.advance()

    def advance(self) -> str:
        """Go to the next token; returns the one left behind."""
        left = self.token
        match = _TOKEN.match(self._code, self.end)
        assert match is not None and match.lastgroup is not None  # `bad` takes any character, `end` the end
        self.kind: str = match.lastgroup
        self.token = match.group(match.lastgroup)
        self.start: int = match.start(match.lastgroup)
        self.end = match.end()
        return left

    def found(self) -> str:
        """The token at hand, in words."""
        if len(self.token) > 60:
            return f"'{self.token[:60]}…'"
        if self.kind == "end":
            return "the end of the text"
        if self.kind == "bad" and self.token[0].isdigit():
            return f"malformed number '{self.token}'"
        if self.token == '"':
            return "a string without an end"
        return f"'{self.token}'" if self.token.isprintable() else repr(self.token)

    def wrong(self, expected: str) -> PtxSyntaxError:
        """The error: something else was expected here."""
        return self.source.wrong(self.start, self.found(), expected)

    def unknown(self, known: tuple[str, ...]) -> PtxSyntaxError:
        """The error: no such directive is known here; names the nearest that is."""
        from difflib import get_close_matches  # wanted for a message alone

        near = get_close_matches(self.token[1:], known, n=2, cutoff=0.6)
        names = near or known
        return self.wrong(f"{'' if near else 'one of '}{', '.join(f'.{name}' for name in names)}")

    def line_and_column(self) -> tuple[int, int]:
        """Line and column of the token at hand, from 1."""
        return self.source.line_and_column(self.start)

    def take(self, token: str) -> bool:
        """Pass over a mark or directive if it is at hand."""
        if self.token == token:
            self.advance()
            return True
        return False

    def expect(self, token: str, expected: str = "") -> int:
        """Pass over a mark that must be at hand; returns where it stood."""
        if self.token != token:
            raise self.wrong(expected or f"'{token}'")
        start = self.start
        self.advance()
        return start

    def name(self, what: str) -> str:
        """The name that must be at hand."""
        if self.kind != "name":
            raise self.wrong(what)
        return self.advance()

    def listed(self, read: Callable[[Reader], T], closing: str) -> tuple[T, ...]:
        """What `read` reads, once or more with commas between, up to a closing mark, which is passed over."""
        items = [read(self)]
        while self.take(","):
            items.append(read(self))
        self.expect(closing, f"',' or '{closing}'")
        return tuple(items)

    def enclosed(self, read: Callable[[Reader], T], opening: str, closing: str) -> tuple[T, ...]:
        """What stands between two marks, with commas between; there may be nothing."""
        self.expect(opening)
        return () if self.take(closing) else self.listed(read, closing)
