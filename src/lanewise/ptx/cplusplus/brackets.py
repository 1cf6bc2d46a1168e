"""Brackets in a list of tokens: where they close, and what stands between commas inside them."""

from collections.abc import Sequence

from lanewise.ptx.cplusplus.tokens import Token

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
