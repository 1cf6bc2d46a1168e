"""The instances of templates that host code uses, as expressions for the device's compiler.

`scale<64, T><<<grid, block>>>(…)` in host code asks for an instance. Its arguments are replaced by what the
code around says of them: constants of the function, and the arguments that this function is itself used with.
Macros are expanded. Arguments that C++ would deduce follow from the types of what the kernel is given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lanewise.ptx.cplusplus.declarations import Declaration, Kind
from lanewise.ptx.cplusplus.host_code import is_launch
from lanewise.ptx.cplusplus.macros import Macro, expanded
from lanewise.ptx.cplusplus.source_file import SourceFile
from lanewise.ptx.cplusplus.tokens import Token, TokenKind, closing_angle, parenthesised, split_at_commas

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


#: How many instances are compiled without being asked for: of one kernel, and of a file.
_MOST_OF_A_KERNEL, _MOST = 4, 48
_DEPTH = 4
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


@dataclass(frozen=True)
class _HostCode:
    """A host function with its macros expanded, and the parameters that it is a template of."""

    declaration: Declaration
    tokens: Sequence[Token]
    parameters: tuple[str, ...]


class UsedInstances(NamedTuple):
    """The templates that host code launches, by name, and the instances of them as expressions.

    A template without an expression is launched with arguments that only a compiler of host code deduces.
    """

    launched: tuple[str, ...] = ()
    #: The template that each expression is an instance of.
    expressions: Mapping[str, str] = {}


def used_instances(
    files: Sequence[SourceFile], templates: Mapping[str, Declaration], macros: Mapping[str, Macro]
) -> UsedInstances:
    """The instances of kernels that host code launches or names, in the order of the text.

    `templates` are the kernels that are templates, by name. Arguments that cannot be told stay as they are
    written; the compiler refuses such an expression, and it is then dropped. `decltype(…)` names a variable
    of the host function and would be refused for certain, which takes seconds with headers such as CUTLASS's.
    """
    if not templates:
        return UsedInstances()
    host = [
        _HostCode(declaration, expanded(declaration.tokens, macros, _DEPTH), _names(declaration))
        for file in files
        for declaration in file.blanked
        if declaration.kind in (Kind.FUNCTION, Kind.MACRO_CALL, Kind.TYPE)
    ]
    types = [
        declaration.tokens
        for file in files
        for declaration in file.declared
        if declaration.kind is not Kind.FUNCTION
    ]
    host += [
        _HostCode(declaration, declaration.tokens, ())
        for file in files
        for declaration in file.declared
        if declaration.is_instantiation and all(declaration is not other.declaration for other in host)
    ]
    instances: dict[str, str] = {}
    launched: dict[str, None] = {}
    for code in host:
        for name, short, explicit, given in _uses(code.tokens, templates):
            launched.setdefault(short)
            arguments = completed(explicit, given, templates[short], [code.tokens, *types])
            if arguments is None:
                continue
            for values in _bindings(code, host, types, _DEPTH):
                parts = [_text(_substituted(argument, values)) for argument in arguments]
                if any("decltype" in part for part in parts):
                    continue
                if list(instances.values()).count(short) < _MOST_OF_A_KERNEL and len(instances) < _MOST:
                    instances.setdefault(f"{name}<{', '.join(parts)}>", short)
    return UsedInstances(tuple(launched), instances)


def _uses(
    tokens: Sequence[Token], templates: Mapping[str, Declaration]
) -> Iterator[tuple[str, str, list[list[Token]], list[list[Token]] | None]]:
    """Where a template is named: its qualified and its short name, its arguments, and what it is given."""
    for at, token in enumerate(tokens):
        if token.text not in templates or at + 1 >= len(tokens):
            continue
        explicit: list[list[Token]] = []
        after = at + 1
        if tokens[after].text == "<" and not is_launch(tokens, after):
            closing = closing_angle(tokens, after)
            if closing is None:
                continue
            explicit = split_at_commas(tokens[after + 1 : closing])
            after = closing + 1
        given = _given(tokens, after) if is_launch(tokens, after) else None
        if not explicit and given is None:
            continue
        first = at
        while first >= 2 and tokens[first - 1].text == "::" and tokens[first - 2].kind is TokenKind.NAME:
            first -= 2
        yield "".join(token.text for token in tokens[first : at + 1]), token.text, explicit, given


def _given(tokens: Sequence[Token], launch: int) -> list[list[Token]] | None:
    """The arguments of a launch, which stand in parentheses behind `>>>`."""
    depth = 0
    for at in range(launch + 3, len(tokens) - 3):
        text = tokens[at].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if text == ";":
            return None
        if depth == 0 and [token.text for token in tokens[at : at + 4]] == [">", ">", ">", "("]:
            return parenthesised(tokens, at + 3)
    return None


# what names stand for -----------------------------------------------------------------------------------


def _names(declaration: Declaration) -> tuple[str, ...]:
    return tuple(name for name, _ in template_parameters(declaration.tokens))


def _bindings(
    code: _HostCode, host: Sequence[_HostCode], types: Sequence[Sequence[Token]], depth: int
) -> list[dict[str, list[Token]]]:
    """What the names in host code stand for: one mapping for each set of arguments it is used with."""
    constants = _constants(code.tokens)
    if not code.parameters or depth == 0:
        return [constants]
    bindings = []
    for user in host:
        if user is code:
            continue
        for arguments in _calls(user.tokens, code, types):
            pairs = list(zip(code.parameters, arguments, strict=False))
            for outer in _bindings(user, host, types, depth - 1):
                values = {name: _substituted(argument, outer) for name, argument in pairs}
                own = {name: _substituted(value, values) for name, value in constants.items()}
                bindings.append({**own, **values})
                if len(bindings) >= _MOST:
                    return bindings
    return bindings or [constants]


def _constants(tokens: Sequence[Token]) -> dict[str, list[Token]]:
    """The constants and type names that code declares: `const int N = 8;`, `using T = float;`."""
    constants: dict[str, list[Token]] = {}
    start = 0
    for at, token in enumerate(tokens):
        if token.text not in (";", "{", "}"):
            continue
        words = [part.text for part in tokens[start:at]]
        equals = words.index("=") if "=" in words else 0
        if {"const", "constexpr", "static", "using"} & set(words[:equals]):
            for number, part in enumerate(split_at_commas(tokens[start + equals - 1 : at])):
                if len(part) > 2 and part[1].text == "=" and (number == 0 or part[0].kind is TokenKind.NAME):
                    constants[part[0].text] = _substituted(part[2:], constants)
        start = at + 1
    return constants


def _calls(
    tokens: Sequence[Token], code: _HostCode, types: Sequence[Sequence[Token]]
) -> Iterator[list[list[Token]]]:
    """The template arguments of each use of a function: `run<64, float>(…)`, `run(a)`."""
    names = code.declaration.names | _class_of_member(code.declaration)
    for at in range(len(tokens) - 1):
        if tokens[at].text not in names:
            continue
        explicit: list[list[Token]] = []
        after = at + 1
        if tokens[after].text == "<":
            closing = closing_angle(tokens, after)
            if closing is None:
                continue
            explicit, after = split_at_commas(tokens[after + 1 : closing]), closing + 1
        elif at and tokens[at - 1].kind is TokenKind.NAME and tokens[at - 1].text != "return":
            continue  # a declaration, not a call
        given = parenthesised(tokens, after) if after < len(tokens) and tokens[after].text == "(" else None
        complete = completed(explicit, given, code.declaration, [tokens, *types])
        if complete is not None:
            yield complete


def _class_of_member(declaration: Declaration) -> frozenset[str]:
    """The class template that a function is a member of: `X` of `template <class T> void X<T>::run()`."""
    head = declaration.tokens[: declaration.head]
    for at in range(1, len(head)):
        if head[at].text == "<" and head[at - 1].kind is TokenKind.NAME and head[at - 1].text != "template":
            closing = closing_angle(head, at)
            if closing is not None and closing + 1 < len(head) and head[closing + 1].text == "::":
                return frozenset((head[at - 1].text,))
    return frozenset()


def _substituted(tokens: Sequence[Token], values: Mapping[str, Sequence[Token]]) -> list[Token]:
    """Tokens in which names are replaced by what they stand for, in parentheses where that takes several."""
    made: list[Token] = []
    for token in tokens:
        value = values.get(token.text) if token.kind is TokenKind.NAME else None
        if value is None:
            made.append(token)
        elif len(value) == 1 or all(
            part.kind is TokenKind.NAME or part.text in ("::", "*") for part in value
        ):
            made.extend(value)
        else:
            mark = token._replace(kind=TokenKind.MARK)
            made += [mark._replace(text="("), *value, mark._replace(text=")")]
    return made


def _text(tokens: Sequence[Token]) -> str:
    """Tokens as text: a space between words, and behind commas."""
    text = ""
    for token in tokens:
        if (
            text
            and (text[-1].isalnum() or text[-1] == "_")
            and (token.text[0].isalnum() or token.text[0] == "_")
        ):
            text += " "
        text += token.text + (" " if token.text == "," else "")
    return text
