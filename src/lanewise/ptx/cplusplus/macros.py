"""The macros that a program's files define, and which of them lead to which words."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lanewise.ptx.cplusplus.source_file import SourceFile
from lanewise.ptx.cplusplus.tokens import (
    Token,
    TokenKind,
    directive,
    end_of_brackets,
    split_at_commas,
    tokens,
)

#: No more tokens than these are written for one piece of code.
_MOST_TOKENS = 200_000


@dataclass
class Macro:
    """What a macro may expand to: the tokens of all its definitions, whichever of them holds."""

    tokens: list[Token]
    words: frozenset[str]
    parameters: tuple[str, ...] = ()


_DEFINE = re.compile(r"(?P<name>[^\W\d]\w*)(?:\((?P<parameters>[^)]*)\))?")


def defined_macros(files: Iterable[SourceFile]) -> dict[str, Macro]:
    """The macros that some files define, by name."""
    definitions: dict[str, list[Token]] = {}
    parameters: dict[str, tuple[str, ...]] = {}
    for file in files:
        lines = (
            (token.text for token in file.tokens if token.kind is TokenKind.DIRECTIVE)
            if file.is_split
            else re.findall(r"^[ \t]*#[ \t]*define(?:\\\n|[^\n])*", file.text, re.MULTILINE)
        )
        for text in lines:
            name, rest = directive(text)
            match = _DEFINE.match(rest) if name == "define" else None
            if match:
                definitions.setdefault(match["name"], []).extend(tokens(rest[match.end() :]))
                if match["parameters"]:
                    parameters[match["name"]] = tuple(part.strip() for part in match["parameters"].split(","))
    return {
        name: Macro(
            body,
            frozenset(token.text for token in body if token.kind is TokenKind.NAME),
            parameters.get(name, ()),
        )
        for name, body in definitions.items()
    }


def expanding_to(words: frozenset[str], macros: Mapping[str, Macro]) -> frozenset[str]:
    """Some words, and all macros that expand to one of them."""
    names = set(words)
    while fresh := {
        name for name, macro in macros.items() if name not in names and not macro.words.isdisjoint(names)
    }:
        names |= fresh
    return frozenset(names)


def used_by(names: Iterable[str], macros: Mapping[str, Macro]) -> set[str]:
    """Some macros, and all that their definitions use."""
    used, fresh = set(), set(names)
    while fresh:
        used |= fresh
        fresh = {word for name in fresh for word in macros[name].words if word in macros} - used
    return used


def expanded(tokens: Sequence[Token], macros: Mapping[str, Macro], depth: int) -> list[Token]:
    """Tokens in which calls of the project's macros are replaced by what these are defined as."""
    made: list[Token] = []
    _expand(tokens, macros, depth, made)
    return made


def _expand(tokens: Sequence[Token], macros: Mapping[str, Macro], depth: int, made: list[Token]) -> None:
    at = 0
    while at < len(tokens) and len(made) < _MOST_TOKENS:
        token = tokens[at]
        macro = macros.get(token.text) if token.kind is TokenKind.NAME and depth else None
        if macro is None or not macro.parameters or at + 1 >= len(tokens) or tokens[at + 1].text != "(":
            made.append(token)
            at += 1
            continue
        end = end_of_brackets(tokens, at + 1)
        given = split_at_commas(tokens[at + 2 : end], angles=False)
        values = dict(zip(macro.parameters, given, strict=False))
        if macro.parameters[-1] == "...":
            rest = given[len(macro.parameters) - 1 :]
            comma = token._replace(kind=TokenKind.MARK, text=",")
            values["__VA_ARGS__"] = [token for part in rest for token in (*part, comma)][:-1]
        body = [token for part in macro.tokens for token in values.get(part.text, [part])]
        _expand(_pasted(body), macros, depth - 1, made)
        at = end + 1


def _pasted(tokens: Sequence[Token]) -> list[Token]:
    """Tokens joined where `##` stands between them."""
    made: list[Token] = []
    at = 0
    while at < len(tokens):
        if (
            tokens[at].text == "#"
            and tokens[at + 1 : at + 2]
            and tokens[at + 1].text == "#"
            and made
            and at + 2 < len(tokens)
        ):
            made[-1] = made[-1]._replace(text=made[-1].text + tokens[at + 2].text)
            at += 3
        else:
            made.append(tokens[at])
            at += 1
    return made
