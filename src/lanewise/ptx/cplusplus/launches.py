"""The instances of templates that host code uses, as expressions for the device's compiler.

`scale<64, T><<<grid, block>>>(…)` in host code asks for an instance. Its arguments are replaced by what the code
around says of them: constants of the function, and the arguments that this function, or macro, is itself used
with. Arguments that C++ would deduce are deduced from the declared types of what the kernel is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lanewise.ptx.cplusplus.declarations import Declaration, Kind
from lanewise.ptx.cplusplus.device_code import Macro, SourceFile
from lanewise.ptx.cplusplus.tokens import Token, TokenKind

#: How many instances are compiled without being asked for: of one kernel, and of a file.
_MOST_OF_A_KERNEL, _MOST = 4, 48
_DEPTH = 4
_MOST_TOKENS = 200_000
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_QUALIFIERS = frozenset(
    ("const", "volatile", "restrict", "__restrict__", "__restrict", "static", "constexpr", "extern", "register",
     "__grid_constant__", "struct", "typename", "inline", "auto", "return", "else", "case", "new", "delete", "void")
)  # fmt: skip


@dataclass(frozen=True)
class _HostCode:
    """A host function with its macros expanded, and the parameters that it is a template of."""

    declaration: Declaration
    tokens: Sequence[Token]
    parameters: tuple[str, ...]


def used_instances(
    files: Sequence[SourceFile], templates: Mapping[str, Declaration], macros: Mapping[str, Macro]
) -> list[str]:
    """The instances of kernels that host code launches or names, in the order of the text.

    `templates` are the kernels that are templates, by name. Arguments that cannot be told stay as they are
    written; the compiler refuses such an expression, and it is then dropped.
    """
    if not templates:
        return []
    host = [
        _HostCode(each, _expanded(each.tokens, macros, _DEPTH), _names(each))
        for file in files
        for each in file.blanked
        if each.kind in (Kind.FUNCTION, Kind.MACRO_CALL, Kind.TYPE)
    ]
    types = [each.tokens for file in files for each in file.declared if each.kind is not Kind.FUNCTION]
    found: dict[str, str] = {}
    for each in host:
        for name, short, explicit, given in _uses(each.tokens, templates):
            arguments = _completed(explicit, given, templates[short], [each.tokens, *types])
            if arguments is None:
                continue
            for values in _bindings(each, host, types, _DEPTH):
                parts = [_text(_substituted(argument, values)) for argument in arguments]
                if list(found.values()).count(short) < _MOST_OF_A_KERNEL and len(found) < _MOST:
                    found.setdefault(f"{name}<{', '.join(parts)}>", short)
    return list(found)


def _uses(
    found: Sequence[Token], templates: Mapping[str, Declaration]
) -> Iterator[tuple[str, str, list[list[Token]], list[list[Token]] | None]]:
    """Where a template is named: its name, qualified and short, its template arguments, and what it is given."""
    for at, token in enumerate(found):
        if token.text not in templates or at + 1 >= len(found):
            continue
        explicit: list[list[Token]] = []
        after = at + 1
        if found[after].text == "<" and not _is_launch(found, after):
            closing = _closing_angle(found, after)
            if closing is None:
                continue
            explicit = _split(found[after + 1 : closing])
            after = closing + 1
        given = _given(found, after) if _is_launch(found, after) else None
        if not explicit and given is None:
            continue
        first = at
        while first >= 2 and found[first - 1].text == "::" and found[first - 2].kind is TokenKind.NAME:
            first -= 2
        yield "".join(each.text for each in found[first : at + 1]), token.text, explicit, given


def _is_launch(found: Sequence[Token], at: int) -> bool:
    return [each.text for each in found[at : at + 3]] == ["<", "<", "<"]


def _closing_angle(found: Sequence[Token], opening: int) -> int | None:
    """The index of the `>` that closes a `<`; None if a statement ends first."""
    angles = depth = 0
    for at in range(opening, len(found)):
        text = found[at].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth < 0 or text == ";":
            return None
        if depth == 0:
            angles += (text == "<") - (text == ">")
            if angles == 0:
                return at
    return None


def _given(found: Sequence[Token], launch: int) -> list[list[Token]] | None:
    """The arguments of a launch, which stand in parentheses behind `>>>`."""
    depth = 0
    for at in range(launch + 3, len(found) - 3):
        text = found[at].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if text == ";":
            return None
        if depth == 0 and [each.text for each in found[at : at + 4]] == [">", ">", ">", "("]:
            return _parenthesised(found, at + 3)
    return None


# arguments that C++ would deduce ------------------------------------------------------------------------


def _completed(
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
        found = _type_of(argument, places)
        if found is not None and len(found[1]) >= stars:
            return [*found[0], *found[1][stars:]]
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
                return _split(head[at + 1 : end])
    return []


def _type_of(argument: Sequence[Token], places: Sequence[Sequence[Token]]) -> tuple[list[Token], list[Token]] | None:
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
    for before, token in zip(argument, argument[1:], strict=False):  # a.b.c: the member
        if before.text in (".", "->") and token.kind is TokenKind.NAME:
            last = token
    for place in places:
        found = _declared(place, last.text)
        if found is not None:
            star = last._replace(kind=TokenKind.MARK, text="*")
            return (found[0], [*found[1], star]) if address and "[" not in words else found
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
            while before + 1 < at and place[before + 1].kind is TokenKind.NAME and place[before].text in _QUALIFIERS:
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


def _base_and_stars(found: Sequence[Token]) -> tuple[list[Token], list[Token]] | None:
    base = [token for token in found if token.text not in ("*", *_QUALIFIERS)]
    return (base, [token for token in found if token.text == "*"]) if base else None


# macros -------------------------------------------------------------------------------------------------


def _expanded(found: Sequence[Token], macros: Mapping[str, Macro], depth: int) -> list[Token]:
    """Tokens in which calls of the project's macros are replaced by what these are defined as."""
    made: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        macro = macros.get(token.text) if token.kind is TokenKind.NAME and depth else None
        if macro is None or not macro.parameters or at + 1 >= len(found) or found[at + 1].text != "(":
            made.append(token)
            at += 1
            continue
        end = _end_of_parentheses(found, at + 1)
        given = _split(found[at + 2 : end], angles=False)
        values = dict(zip(macro.parameters, given, strict=False))
        if macro.parameters[-1] == "...":
            rest = given[len(macro.parameters) - 1 :]
            comma = token._replace(kind=TokenKind.MARK, text=",")
            values["__VA_ARGS__"] = [each for part in rest for each in (*part, comma)][:-1]
        body = [each for part in macro.tokens for each in values.get(part.text, [part])]
        made += _expanded(_pasted(body), macros, depth - 1) if len(made) < _MOST_TOKENS else ()
        at = end + 1
    return made


def _pasted(found: Sequence[Token]) -> list[Token]:
    """Tokens joined where `##` stands between them."""
    made: list[Token] = []
    at = 0
    while at < len(found):
        if found[at].text == "#" and found[at + 1 : at + 2] and found[at + 1].text == "#" and made and at + 2 < len(found):
            made[-1] = made[-1]._replace(text=made[-1].text + found[at + 2].text)
            at += 3
        else:
            made.append(found[at])
            at += 1
    return made


# what names stand for -----------------------------------------------------------------------------------


def _names(each: Declaration) -> tuple[str, ...]:
    return tuple(name for name, _ in template_parameters(each.tokens))


def _bindings(
    each: _HostCode, host: Sequence[_HostCode], types: Sequence[Sequence[Token]], depth: int
) -> list[dict[str, list[Token]]]:
    """What the names in host code stand for: one mapping for each set of arguments it is used with."""
    constants = _constants(each.tokens)
    if not each.parameters or depth == 0:
        return [constants]
    found = []
    for user in host:
        if user is each:
            continue
        for arguments in _calls(user.tokens, each, types):
            pairs = list(zip(each.parameters, arguments, strict=False))
            for outer in _bindings(user, host, types, depth - 1):
                values = {name: _substituted(argument, outer) for name, argument in pairs}
                own = {name: _substituted(value, values) for name, value in constants.items()}
                found.append({**own, **values})
                if len(found) >= _MOST:
                    return found
    return found or [constants]


def _constants(found: Sequence[Token]) -> dict[str, list[Token]]:
    """The constants and type names that code declares: `const int N = 8;`, `using T = float;`."""
    constants: dict[str, list[Token]] = {}
    start = 0
    for at, token in enumerate(found):
        if token.text not in (";", "{", "}"):
            continue
        words = [part.text for part in found[start:at]]
        equals = words.index("=") if "=" in words else 0
        if {"const", "constexpr", "static", "using"} & set(words[:equals]):
            for number, part in enumerate(_split(found[start + equals - 1 : at])):
                if len(part) > 2 and part[1].text == "=" and (number == 0 or part[0].kind is TokenKind.NAME):
                    constants[part[0].text] = _substituted(part[2:], constants)
        start = at + 1
    return constants


def template_parameters(found: Sequence[Token]) -> list[tuple[str, bool]]:
    """The names of a template's parameters, in order, and whether each has a default."""
    if len(found) < 2 or found[0].text != "template" or found[1].text != "<":
        return []
    closing = _closing_angle(found, 1)
    parameters = []
    for part in _split(found[2:closing]) if closing is not None else ():
        words = [token.text for token in part]
        equals = words.index("=") if "=" in words else len(words)
        names = [token.text for token in part[:equals] if token.kind is TokenKind.NAME]
        parameters.append((names[-1] if len(names) > 1 else "", equals < len(words)))
    return parameters


def _calls(
    found: Sequence[Token], code: _HostCode, types: Sequence[Sequence[Token]]
) -> Iterator[list[list[Token]]]:
    """The template arguments of each use of a function: `run<64, float>(…)`, `run(a)`."""
    for at in range(len(found) - 1):
        if found[at].text not in code.declaration.names:
            continue
        explicit: list[list[Token]] = []
        after = at + 1
        if found[after].text == "<":
            closing = _closing_angle(found, after)
            if closing is None:
                continue
            explicit, after = _split(found[after + 1 : closing]), closing + 1
        elif at and found[at - 1].kind is TokenKind.NAME and found[at - 1].text != "return":
            continue  # a declaration, not a call
        given = _parenthesised(found, after) if after < len(found) and found[after].text == "(" else None
        complete = _completed(explicit, given, code.declaration, [found, *types])
        if complete is not None:
            yield complete


def _parenthesised(found: Sequence[Token], opening: int) -> list[list[Token]]:
    """The parts between commas inside the parentheses that open at an index."""
    return _split(found[opening + 1 : _end_of_parentheses(found, opening)])


def _end_of_parentheses(found: Sequence[Token], opening: int) -> int:
    """The index of the parenthesis that closes one; the last index if none does."""
    depth = 0
    for end in range(opening, len(found)):
        depth += (found[end].text in _OPENING) - (found[end].text in _CLOSING)
        if depth == 0:
            return end
    return len(found) - 1


def _split(found: Sequence[Token], angles: bool = True) -> list[list[Token]]:
    """Parts between commas outside brackets."""
    opening, closing = (("<", *_OPENING), (">", *_CLOSING)) if angles else (_OPENING, _CLOSING)
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += (token.text in opening) - (token.text in closing)
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
            mark = token._replace(kind=TokenKind.MARK)
            made += [mark._replace(text="("), *value, mark._replace(text=")")]
    return made


def _text(found: Sequence[Token]) -> str:
    """Tokens as text: a space between words, and behind commas."""
    text = ""
    for token in found:
        if text and (text[-1].isalnum() or text[-1] == "_") and (token.text[0].isalnum() or token.text[0] == "_"):
            text += " "
        text += token.text + (" " if token.text == "," else "")
    return text
