"""The instances of templates that host code launches, as expressions for the device's compiler.

`scale<64, T><<<grid, block>>>(…)` in host code asks for an instance. Its arguments are replaced by what the
function around the launch says of them: constants, and the arguments that this function is itself called with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lanewise.ptx.cplusplus.declarations import Declaration, Kind
from lanewise.ptx.cplusplus.device_code import SourceFile
from lanewise.ptx.cplusplus.tokens import Token, TokenKind

_MOST = 64
_DEPTH = 3


def launched_instances(files: Iterable[SourceFile], templates: frozenset[str]) -> list[str]:
    """The instances of some templates that left-out functions launch, in the order of the text.

    `templates` are the kernels that are templates. Arguments that cannot be told stay as they are written;
    the compiler refuses such an expression, and it is then dropped.
    """
    host = [each for file in files for each in file.blanked if each.kind is Kind.FUNCTION]
    found: dict[str, None] = {}
    for each in host:
        for name, arguments in _launches(each.tokens):
            if name.split("::")[-1] not in templates:
                continue
            for values in _bindings(each, host, _DEPTH):
                found[f"{name}<{_text(_substituted(arguments, values))}>"] = None
                if len(found) >= _MOST:
                    return list(found)
    return list(found)


def _launches(found: Sequence[Token]) -> Iterator[tuple[str, list[Token]]]:
    """The template names and arguments in front of each `<<<`."""
    for at in range(2, len(found) - 2):
        if [each.text for each in found[at : at + 3]] == ["<", "<", "<"] and found[at - 1].text == ">":
            opening = _opening(found, at - 1)
            if opening is not None and opening > 0 and found[opening - 1].kind is TokenKind.NAME:
                first = opening - 1
                while first >= 2 and found[first - 1].text == "::" and found[first - 2].kind is TokenKind.NAME:
                    first -= 2
                name = "".join(each.text for each in found[first:opening])
                yield name, list(found[opening + 1 : at - 1])


def _opening(found: Sequence[Token], closing: int) -> int | None:
    """The index of the `<` that a `>` closes; None if it closes none."""
    angles = depth = 0
    for at in range(closing, -1, -1):
        text = found[at].text
        depth += (text in (")", "]", "}")) - (text in ("(", "[", "{"))
        if depth < 0 or text == ";":
            return None
        if depth == 0:
            angles += (text == ">") - (text == "<")
            if angles == 0:
                return at
    return None


def _bindings(each: Declaration, host: Sequence[Declaration], depth: int) -> list[dict[str, list[Token]]]:
    """What the names in a function stand for: one mapping for each set of arguments it is called with."""
    constants = _constants(each)
    parameters = _template_parameters(each.tokens)
    if not parameters or depth == 0:
        return [constants]
    found = []
    for caller in host:
        for arguments in _calls(caller.tokens, each.names):
            if caller is each or len(arguments) != len(parameters):
                continue
            for outer in _bindings(caller, host, depth - 1):
                values = {
                    name: _substituted(argument, outer) for name, argument in zip(parameters, arguments, strict=True)
                }
                found.append({name: _substituted(value, values) for name, value in constants.items()} | values)
    return found[:_MOST] or [constants]


def _constants(each: Declaration) -> dict[str, list[Token]]:
    """The constants and type names that a function declares: `const int N = 8;`, `using T = float;`."""
    found: dict[str, list[Token]] = {}
    body = each.tokens[each.head :]
    start = 0
    for at, token in enumerate(body):
        if token.text not in (";", "{", "}"):
            continue
        words = [part.text for part in body[start:at]]
        if words and ({"const", "constexpr", "static"} & set(words[:3]) or words[0] == "using") and "=" in words:
            equals = words.index("=")
            name, value = words[equals - 1], body[start + equals + 1 : at]
            if "," not in words[equals:] and "(" not in words[:equals]:
                found[name] = _substituted(value, found)
        start = at + 1
    return found


def _template_parameters(found: Sequence[Token]) -> list[str]:
    """The names of a template's parameters, in order."""
    if len(found) < 2 or found[0].text != "template" or found[1].text != "<":
        return []
    names, angles, last = [], 0, ""
    for token in found[1:]:
        angles += (token.text == "<") - (token.text == ">")
        if angles == 0 or (angles == 1 and token.text in (",", "=")):
            names.append(last)
            last = ""
            if angles == 0:
                break
        elif angles == 1 and token.kind is TokenKind.NAME:
            last = token.text
    return [name for name in names if name]


def _calls(found: Sequence[Token], names: frozenset[str]) -> Iterator[list[list[Token]]]:
    """The template arguments of each call of a function: `run<64, float>(…)`."""
    for at in range(1, len(found)):
        if found[at].text == "(" and found[at - 1].text == ">":
            opening = _opening(found, at - 1)
            if opening is not None and opening > 0 and found[opening - 1].text in names:
                yield _split(found[opening + 1 : at - 1])


def _split(found: Sequence[Token]) -> list[list[Token]]:
    """Arguments between commas outside brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += (token.text in ("(", "[", "{", "<")) - (token.text in (")", "]", "}", ">"))
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _substituted(found: Sequence[Token], values: Mapping[str, Sequence[Token]]) -> list[Token]:
    """Tokens in which names are replaced by what they stand for, in parentheses where that takes several."""
    made: list[Token] = []
    for token in found:
        value = values.get(token.text) if token.kind is TokenKind.NAME else None
        if value is None:
            made.append(token)
        elif len(value) == 1 or all(part.kind is TokenKind.NAME or part.text in ("::", "*") for part in value):
            made.extend(value)
        else:
            made += [token._replace(kind=TokenKind.MARK, text="("), *value, token._replace(kind=TokenKind.MARK, text=")")]
    return made


def _text(found: Sequence[Token]) -> str:
    """Tokens as text: a space between words, and behind commas."""
    text = ""
    for token in found:
        if text and (text[-1].isalnum() or text[-1] == "_") and (token.text[0].isalnum() or token.text[0] == "_"):
            text += " "
        text += token.text + (" " if token.text == "," else "")
    return text
