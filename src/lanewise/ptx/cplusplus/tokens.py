"""The tokens of C++ source, with their offsets: as much of a lexer as finding declarations takes.

Comments are left out; a preprocessor line, with its continuations, is one token; `#if 0` is a comment. Also
where brackets in a list of tokens close, and what stands between commas inside them.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:[^\n\\]|\\\r?\n|\\.|\\$)*+ | /\*.*?(?:\*/|\Z) )
    | (?P<directive> ^[ \t]*\#(?:[^\n\\/]|\\\r?\n|\\.|/\*.*?(?:\*/|\Z)|//(?:[^\n\\]|\\\r?\n|\\.)*+|/)*+ )
    | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\\\s"]{0,16})\(.*?(?:\)(?P=fence)"|\Z) )
    | (?P<string> (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*+"? | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)++' )
    | (?P<number> \.?[0-9](?:[eEpP][+-]|'(?=\w)|[\w.])*+ )
    | (?P<name> [^\W0-9][\w$]*+ )
    | (?P<mark> ::|->|[^\s\\] )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w*)[ \t]*(.*)", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_CONTINUATION = re.compile(r"\\\r?\n")


class TokenKind(Enum):
    """What a token is."""

    NAME = auto()
    NUMBER = auto()
    STRING = auto()
    MARK = auto()
    DIRECTIVE = auto()


class Token(NamedTuple):
    """A token: its kind, its text, and where it stands."""

    kind: TokenKind
    text: str
    start: int
    end: int


_KINDS = {
    "raw": TokenKind.STRING,
    "string": TokenKind.STRING,
    "number": TokenKind.NUMBER,
    "name": TokenKind.NAME,
    "mark": TokenKind.MARK,
    "directive": TokenKind.DIRECTIVE,
}


def tokens(text: str) -> list[Token]:
    """The tokens of a source, without comments and without what stands behind `#if 0`.

    >>> [token.text for token in tokens("int a; // b\\nchar c = '\\\\'';")]
    ['int', 'a', ';', 'char', 'c', '=', "'\\\\''", ';']
    """
    listed: list[Token] = []
    skipped = 0  # the depth of conditionals inside an `#if 0`
    for match in _TOKEN.finditer(text):
        group = match.lastgroup if match.lastgroup != "fence" else "raw"
        if group is None or group == "comment":
            continue
        token = Token(_KINDS[group], match.group(), match.start(), match.end())
        if token.kind is not TokenKind.DIRECTIVE:
            if not skipped:
                listed.append(token)
            continue
        name, rest = directive(token.text)
        if skipped:
            skipped += name in ("if", "ifdef", "ifndef")
            skipped -= name == "endif"
            if skipped > 1 or (skipped == 1 and name not in ("else", "elif")):
                continue
            skipped = 0
        elif name == "if" and rest in ("0", "false"):
            skipped = 1
        listed.append(token)
    return listed


def directive(text: str) -> tuple[str, str]:
    """The name of a preprocessor directive, and the rest of its line without comments and continuations.

    >>> directive("#  define A \\\\\\n3 // three")
    ('define', 'A  3')
    """
    match = _DIRECTIVE.match(_COMMENT.sub(" ", _CONTINUATION.sub(" ", text)))
    return (match.group(1), match.group(2).strip()) if match else ("", "")


class Lines:
    """The numbers of the lines of a text, by offset."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> int:
        """The line that an offset lies in; the first is 1."""
        return bisect_right(self._starts, offset)


_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


def closing_angle(tokens: Sequence[Token], opening: int) -> int | None:
    """The index of the `>` that closes a `<`; None if a statement ends first."""
    angles = depth = 0
    for at in range(opening, len(tokens)):
        text = tokens[at].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth < 0 or text == ";":
            return None
        if depth == 0:
            angles += (text == "<") - (text == ">")
            if angles == 0:
                return at
    return None


def parenthesised(tokens: Sequence[Token], opening: int) -> list[list[Token]]:
    """The parts between commas inside the parentheses that open at an index."""
    return split_at_commas(tokens[opening + 1 : end_of_brackets(tokens, opening)])


def end_of_brackets(tokens: Sequence[Token], opening: int) -> int:
    """The index of the parenthesis that closes one; the last index if none does."""
    depth = 0
    for end in range(opening, len(tokens)):
        depth += (tokens[end].text in _OPENING) - (tokens[end].text in _CLOSING)
        if depth == 0:
            return end
    return len(tokens) - 1


def split_at_commas(tokens: Sequence[Token], angles: bool = True) -> list[list[Token]]:
    """Parts between commas outside brackets."""
    opening, closing = (("<", *_OPENING), (">", *_CLOSING)) if angles else (_OPENING, _CLOSING)
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in opening) - (token.text in closing)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]
