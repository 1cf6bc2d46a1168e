"""The complaint about PTX text that cannot be read: where, what was found, what could have stood there."""

from lanewise.errors import LanewiseError

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
