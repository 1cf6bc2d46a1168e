"""A file of a program: its text, its declarations, and its text without those that are left out.

What is left out becomes blank, so that every line keeps its number.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from lanewise.ptx.cplusplus.declarations import Declaration, declarations
from lanewise.ptx.cplusplus.host_code import holds_host_code
from lanewise.ptx.cplusplus.tokens import Lines, Token, TokenKind, directive, tokens

_ANNOTATIONS = ("__device__", "__host__")
#: Preprocessor lines that stay where a declaration around them is left out: what comes later depends on them.
_KEPT_DIRECTIVES = frozenset(
    ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef", "include")
)


@dataclass(eq=False)
class SourceFile:
    """A file of the program: its text, its declarations, and those that are not compiled."""

    name: str
    text: str
    is_header: bool = False
    blanked: dict[Declaration, str] = field(default_factory=dict, repr=False)

    @cached_property
    def is_split(self) -> bool:
        """Whether declarations are judged; headers without kernels and host code are taken as they are."""
        return not self.is_header or "__global__" in self.text or holds_host_code(self.text)

    @cached_property
    def lines(self) -> Lines:
        """The numbers of the lines, by offset."""
        return Lines(self.text)

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens of the text; none of a header that is taken as it is."""
        return tokens(self.text) if self.is_split else []

    @cached_property
    def declared(self) -> list[Declaration]:
        """The declarations of the text; none of a header that is taken as it is."""
        return declarations(self.tokens)

    def split(self) -> None:
        """Judge the declarations of a header after all."""
        self.is_split = True
        for name in ("tokens", "declared"):
            self.__dict__.pop(name, None)

    def at_line(self, line: int) -> Declaration | None:
        """The declaration that a line belongs to."""
        for declaration in self.declared:
            if self.lines.at(declaration.start) <= line <= self.lines.at(declaration.end - 1):
                return declaration
        return None

    def line(self, declaration: Declaration) -> int:
        """The line on which a declaration begins."""
        return self.lines.at(declaration.start)

    def is_conditional(self, declaration: Declaration, token: Token) -> bool:
        """Whether a token of a declaration stands behind an `#if` inside the declaration."""
        depth = 0
        for later in self.tokens[bisect_left(self.tokens, declaration.start, key=_start) :]:
            if later.start >= token.start:
                break
            if later.kind is TokenKind.DIRECTIVE:
                name = directive(later.text)[0]
                depth += (name in ("if", "ifdef", "ifndef")) - (name == "endif")
        return depth > 0

    def compiled_text(self) -> str:
        """The text with blanks for what is left out; conditionals, macros and includes stay."""
        text = self._without_lambda_annotations()
        kept = [
            token
            for token in self.tokens
            if token.kind is TokenKind.DIRECTIVE and directive(token.text)[0] in _KEPT_DIRECTIVES
        ]
        pieces, done, following = [], 0, 0
        for declaration in sorted(self.blanked, key=lambda one: one.start):
            if declaration.start < done:  # a member of a class that is left out itself
                continue
            pieces.append(text[done : declaration.start])
            done = declaration.start
            while following < len(kept) and kept[following].start < declaration.end:
                token = kept[following]
                if token.start >= done:
                    pieces += [_blank(text[done : token.start]), token.text]
                    done = token.end
                following += 1
            pieces.append(_blank(text[done : declaration.end]))
            done = declaration.end
        return "".join([*pieces, text[done:]])

    def _without_lambda_annotations(self) -> str:
        """The text without `__device__` on lambdas, which NVRTC refuses; all its lambdas are the device's."""
        pieces, done = [], 0
        for before, token in pairwise(self.tokens):
            follows = before.text == "]" or (done == before.end and before.text in _ANNOTATIONS)
            if follows and token.text in _ANNOTATIONS:
                pieces += [self.text[done : token.start], " " * len(token.text)]
                done = token.end
        return "".join([*pieces, self.text[done:]])


def _start(token: Token) -> int:
    return token.start


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
