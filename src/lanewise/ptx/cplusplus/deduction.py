"""Template arguments that C++ deduces from what a function is given, as far as declared types tell them."""

from collections.abc import Sequence
from itertools import pairwise

from lanewise.ptx.cplusplus.brackets import closing_angle, split_at_commas
from lanewise.ptx.cplusplus.declarations import Declaration
from lanewise.ptx.cplusplus.tokens import Token, TokenKind

_QUALIFIERS = frozenset(
    ("const", "volatile", "restrict", "__restrict__", "__restrict", "static", "constexpr", "extern",
     "register", "__grid_constant__", "struct", "typename", "inline", "auto", "return", "else", "case",
     "new", "delete", "void")
)  # fmt: skip


def template_parameters(tokens: Sequence[Token]) -> list[tuple[str, bool]]:
    """The names of a template's parameters, in order, and whether each has a default."""
    if len(tokens) < 2 or tokens[0].text != "template" or tokens[1].text != "<":
        return []
    closing = closing_angle(tokens, 1)
    parameters = []
    for part in split_at_commas(tokens[2:closing]) if closing is not None else ():
        words = [token.text for token in part]
        equals = words.index("=") if "=" in words else len(words)
        names = [token.text for token in part[:equals] if token.kind is TokenKind.NAME]
        parameters.append((names[-1] if len(names) > 1 else "", equals < len(words)))
    return parameters


def completed(
    explicit: list[list[Token]],
    given: list[list[Token]] | None,
    kernel: Declaration,
    places: Sequence[Sequence[Token]],
) -> list[list[Token]] | None:
    """The template arguments, with those that follow from what the kernel is given; None if some do not."""
    parameters = template_parameters(kernel.tokens)
    done = list(explicit)
    for name, has_default in parameters[len(explicit) :]:
        if has_default:
            break
        deduced = _deduced(name, kernel, given, places) if given is not None else None
        if deduced is None:
            return None
        done.append(deduced)
    return done


def _deduced(
    name: str, kernel: Declaration, given: Sequence[Sequence[Token]], places: Sequence[Sequence[Token]]
) -> list[Token] | None:
    """What a type parameter stands for, by the first function parameter of that type."""
    for parameter, argument in zip(_function_parameters(kernel), given, strict=False):
        words = [token.text for token in parameter if token.text not in _QUALIFIERS]
        stars = words.count("*") + words.count("[")
        if not words or words[0] != name or "<" in words or "::" in words:
            continue
        deduced = _type_of(argument, places)
        if deduced is not None and len(deduced[1]) >= stars:
            return [*deduced[0], *deduced[1][stars:]]
    return None


def _function_parameters(kernel: Declaration) -> list[list[Token]]:
    """The parameters of a kernel, each with its type and its name."""
    head = kernel.tokens[: kernel.head]
    depth, end = 0, None
    for at in range(len(head) - 1, -1, -1):  # the last parentheses of the head
        text = head[at].text
        if text == ")":
            end = at if end is None else end
            depth += 1
        elif text == "(":
            depth -= 1
            if depth == 0 and end is not None:
                return split_at_commas(head[at + 1 : end])
    return []


def _type_of(
    argument: Sequence[Token], places: Sequence[Sequence[Token]]
) -> tuple[list[Token], list[Token]] | None:
    """The type of an argument, as its base and its stars: by a cast, or by the declaration of its name."""
    words = [token.text for token in argument]
    if words[:1] == ["("] and ")" in words:
        return _base_and_stars(argument[1 : words.index(")")])
    if words and words[0] in ("reinterpret_cast", "static_cast") and ">" in words:
        return _base_and_stars(argument[2 : words.index(">")])
    address = words[:1] == ["&"]
    names = [token for token in argument if token.kind is TokenKind.NAME]
    if not names:
        return None
    last = names[0]
    for before, token in pairwise(argument):  # a.b.c: the member
        if before.text in (".", "->") and token.kind is TokenKind.NAME:
            last = token
    for place in places:
        declared = _declared(place, last.text)
        if declared is not None:
            star = last._replace(kind=TokenKind.MARK, text="*")
            return (declared[0], [*declared[1], star]) if address and "[" not in words else declared
    return None


def _declared(place: Sequence[Token], name: str) -> tuple[list[Token], list[Token]] | None:
    """The type with which a name is declared in some code; None if it is not declared there."""
    for at in range(1, len(place) - 1):
        if place[at].text != name or place[at + 1].text not in (";", ",", ")", "=", "[", "{"):
            continue
        before = at - 1
        while before >= 0 and place[before].text in ("*", "&", *_QUALIFIERS):
            before -= 1
        stars = [token for token in place[before + 1 : at] if token.text == "*"]
        start = before
        if before >= 0 and place[before].text == ",":  # float *a, *b: the type stands at the beginning
            while start > 0 and place[start - 1].text not in (";", "{", "}", "("):
                start -= 1
            before = start
            while (
                before + 1 < at
                and place[before + 1].kind is TokenKind.NAME
                and place[before].text in _QUALIFIERS
            ):
                before += 1
        base = [token for token in _type_run(place, before) if token.text not in _QUALIFIERS]
        if base and (stars or place[before + 1].kind is TokenKind.NAME or before + 1 == at):
            if place[at + 1].text == "[":
                stars = [*stars, place[at]._replace(kind=TokenKind.MARK, text="*")]
            return base, stars
    return None


def _type_run(place: Sequence[Token], last: int) -> list[Token]:
    """The words of a type that ends at an index: `unsigned int`, `ns::half_t`."""
    if last < 0 or place[last].kind is not TokenKind.NAME:
        return []
    first = last
    while first > 0 and (place[first - 1].kind is TokenKind.NAME or place[first - 1].text == "::"):
        first -= 1
    return list(place[first : last + 1])


def _base_and_stars(tokens: Sequence[Token]) -> tuple[list[Token], list[Token]] | None:
    base = [token for token in tokens if token.text not in ("*", *_QUALIFIERS)]
    return (base, [token for token in tokens if token.text == "*"]) if base else None
