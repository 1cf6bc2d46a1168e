"""The declarations of C++ source, as they follow each other at the top level and inside namespaces.

Nothing is looked up and no macro is expanded: where a declaration begins and ends, what kind it is and which
names it declares follow from its tokens. What is done with a declaration is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

from lanewise.ptx.cplusplus.tokens import Token, TokenKind, closing_angle, directive, end_of_brackets

#: What may stand before parentheses without being the name of a function.
_ATTRIBUTES = frozenset(
    ("__launch_bounds__", "__align__", "alignas", "__attribute__", "__declspec", "decltype", "explicit",
     "noexcept", "__cluster_dims__", "__maxnreg__", "__block_size__", "requires", "static_assert",
     "_Static_assert", "sizeof", "asm", "_Pragma")
)  # fmt: skip
_CLASS_KEYS = ("struct", "class", "union", "enum")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ACCESS = ("public", "private", "protected")


class Kind(Enum):
    """What a declaration declares."""

    FUNCTION = auto()
    TYPE = auto()
    ALIAS = auto()
    USING = auto()
    VARIABLE = auto()
    MACRO_CALL = auto()
    OTHER = auto()


class _Braces(Enum):
    """What the braces at the end of a declaration's head hold."""

    SCOPE = auto()
    FUNCTION = auto()
    CLASS = auto()
    INITIALISER = auto()


@dataclass(eq=False)
class Declaration:
    """One declaration: its tokens, where its body begins, what it declares, and the conditions around it."""

    tokens: list[Token] = field(repr=False)
    kind: Kind = Kind.OTHER
    names: frozenset[str] = frozenset()
    #: The tokens before the body; all of them if there is none.
    head: int = 0
    has_body: bool = False
    #: The `#if`, `#ifdef` … that it stands behind, outermost first.
    conditions: tuple[str, ...] = ()

    @property
    def start(self) -> int:
        """The offset of its first character."""
        return self.tokens[0].start

    @property
    def end(self) -> int:
        """The offset behind its last character."""
        return self.tokens[-1].end

    @property
    def name(self) -> str:
        """One name to call it by."""
        return min(self.names, default=self.tokens[0].text)

    def words(self) -> frozenset[str]:
        """Every identifier in it."""
        return frozenset(token.text for token in self.tokens if token.kind is TokenKind.NAME)

    def head_words(self) -> frozenset[str]:
        """Every identifier before its body."""
        return frozenset(token.text for token in self.tokens[: self.head] if token.kind is TokenKind.NAME)

    @property
    def is_template(self) -> bool:
        """Whether it is a template, or a specialisation of one."""
        return self.tokens[0].text == "template" and len(self.tokens) > 1 and self.tokens[1].text == "<"

    @property
    def is_instantiation(self) -> bool:
        """Whether it instantiates a template: `template void f<int>(int);`."""
        words = [token.text for token in self.tokens[:3]]
        return (words[:1] == ["template"] and words[1:2] != ["<"]) or words[:2] == ["extern", "template"]


def declarations(tokens: Sequence[Token]) -> list[Declaration]:
    """The declarations of a source; namespaces and `extern "C" {}` are looked into, classes are not.

    >>> from lanewise.ptx.cplusplus.tokens import tokens
    >>> text = "namespace a { int f(int x) { return x; } } struct S { int i; } s; int t[] = {1, 2};"
    >>> [(declared.kind.name, sorted(declared.names)) for declared in declarations(tokens(text))]
    [('FUNCTION', ['f']), ('TYPE', ['S', 's']), ('VARIABLE', ['t'])]
    """
    return _Splitter(tokens).run()


def members(declaration: Declaration) -> list[Declaration]:
    """The members of a class, as declarations."""
    opening = next((at for at, token in enumerate(declaration.tokens) if token.text == "{"), None)
    if opening is None:
        return []
    depth = 0
    for at in range(opening, len(declaration.tokens)):
        depth += {"{": 1, "}": -1}.get(declaration.tokens[at].text, 0)
        if depth == 0:
            return _Splitter(declaration.tokens[opening + 1 : at], in_class=True).run()
    return []  # branches of a conditional that open more braces than they close


@dataclass
class _Conditional:
    """What the splitter knew at an `#if`: another branch begins with the same brackets open."""

    words: str
    brackets: list[str]
    within: bool


class _Splitter:
    def __init__(self, tokens: Sequence[Token], in_class: bool = False) -> None:
        self.tokens = tokens
        self.in_class = in_class
        self.done: list[Declaration] = []
        self.current: list[Token] = []
        self.brackets: list[str] = []
        self.braces: _Braces | None = None
        self.head = 0
        self.opened: list[_Conditional] = []
        self.conditions: tuple[str, ...] = ()
        #: Whether the members that a constructor initialises are being read.
        self.in_initialisers = False
        #: Whether an `#else` came since the last declaration ended.
        self.in_other_branch = False
        self.scopes = 0

    def run(self) -> list[Declaration]:
        for at, token in enumerate(self.tokens):
            if token.kind is TokenKind.DIRECTIVE:
                self._directive(token)
            elif not self.current and not self.brackets:
                self._begin(token)
            else:
                self._continue(token, at)
        if self.current:
            self._finish()
        return self.done

    def _directive(self, token: Token) -> None:
        name, rest = directive(token.text)
        if name in ("if", "ifdef", "ifndef"):
            within = bool(self.current)
            self.opened.append(_Conditional(f"#{name} {rest}", list(self.brackets), within))
        elif name in ("elif", "else", "elifdef", "elifndef") and self.opened:
            opened = self.opened[-1]
            if opened.within and not self.current:
                self._resume()
            if opened.brackets != self.brackets and (opened.within or not self.current):
                self.brackets = list(opened.brackets)
            self.in_other_branch = True
            opened.words = f"#{name} {rest}".strip() + f" of {opened.words.split(' of ')[-1]}"
        elif name == "endif" and self.opened:
            self.opened.pop()

    def _resume(self) -> None:
        """Go on with the declaration that ended last: another branch of a conditional continues it."""
        if self.done:
            last = self.done.pop()
            self.current, self.head = last.tokens, last.head
            self.braces = _Braces.FUNCTION if last.has_body else None
            self.conditions = last.conditions

    def _begin(self, token: Token) -> None:
        if token.text == "}":
            self.scopes = max(self.scopes - 1, 0)
        elif token.text == "{":  # another branch's body of the function before
            if self.in_other_branch:
                self._resume()
            self.braces = _Braces.FUNCTION
            self.current.append(token)
            self.brackets.append("}")
        elif token.text != ";":
            self.current = [token]
            self.braces, self.head = None, 0
            self.conditions = tuple(condition.words for condition in self.opened)
            if token.text in _CLOSING:
                self.brackets.append(_CLOSING[token.text])

    def _continue(self, token: Token, at: int) -> None:
        text = token.text
        if text == "{" and not self.brackets and self.braces is None:
            self._open_body()
            if self.braces is _Braces.SCOPE:
                self.scopes += 1
                self.current = []
                return
        self.current.append(token)
        if token.kind is not TokenKind.MARK:
            return
        if text in _CLOSING:
            self.brackets.append(_CLOSING[text])
        elif self.brackets and text == self.brackets[-1]:
            self.brackets.pop()
            if not self.brackets:
                self._closed(text, at)
        elif text in (")", "]", "}"):
            if text == "}" and "}" in self.brackets:  # a bracket that never closed, as in a macro's half
                while self.brackets.pop() != "}":
                    pass
                if not self.brackets:
                    self._closed(text, at)
        elif not self.brackets and text == ";":
            self._finish()
        elif not self.brackets and text == ":" and self.in_class and self._is_access():
            self.current = []

    def _is_access(self) -> bool:
        """Whether what was read is `public:` or its like."""
        return len(self.current) == 2 and self.current[0].text in _ACCESS

    def _open_body(self) -> None:
        if self.in_initialisers and _names_a_member(self.current[-1]):
            return
        braces = _Braces.FUNCTION if self.in_initialisers else _braces(self.current)
        if braces is None:
            self.in_initialisers = True
        else:
            self.braces, self.head = braces, len(self.current)

    def _closed(self, text: str, at: int) -> None:
        if text == "}" and self.braces is _Braces.FUNCTION:
            self._finish()
        elif text == ")" and self._is_macro_call(at):
            self._finish(macro_call=True)

    def _is_macro_call(self, at: int) -> bool:
        """Whether what was read is a macro's call on lines of its own: `MAKE(float)` without a semicolon."""
        first = self.current[0]
        if first.kind is not TokenKind.NAME or self.current[1].text != "(" or first.text in _ATTRIBUTES:
            return False
        if end_of_brackets(self.current, 1) != len(self.current) - 1:  # one pair of parentheses alone
            return False
        after = self.tokens[at + 1] if at + 1 < len(self.tokens) else None
        if after is None or after.kind is TokenKind.DIRECTIVE:
            following = next(
                (token for token in self.tokens[at + 1 :] if token.kind is not TokenKind.DIRECTIVE), None
            )
            return following is None or following.text not in ("{", ";", ":", "=", ",", "->")
        return after.text == "}" or (after.kind is TokenKind.NAME and after.text not in ("const", "noexcept"))

    def _finish(self, macro_call: bool = False) -> None:
        has_body = self.braces is _Braces.FUNCTION
        head = self.head if self.braces in (_Braces.FUNCTION, _Braces.CLASS) else len(self.current)
        made = Declaration(self.current, head=head, has_body=has_body, conditions=self.conditions)
        if macro_call:
            made.kind, made.names = Kind.MACRO_CALL, frozenset((self.current[0].text,))
        else:
            made.kind, made.names = _describe(self.current, head, self.braces)
        self.done.append(made)
        self.current, self.braces, self.head = [], None, 0
        self.in_other_branch = self.in_initialisers = False


# what a head says ---------------------------------------------------------------------------------------


def _outside(tokens: Sequence[Token]) -> list[tuple[int, Token]]:
    """The tokens outside brackets and outside the parameters of templates, with their indices."""
    kept: list[tuple[int, Token]] = []
    depth = at = 0
    while at < len(tokens):
        text = tokens[at].text
        if depth == 0 and text == "template" and at + 1 < len(tokens) and tokens[at + 1].text == "<":
            closing = closing_angle(tokens, at + 1)
            at = len(tokens) if closing is None else closing + 1
            continue
        if text in (")", "]", "}"):
            depth -= 1
        if depth == 0:
            kept.append((at, tokens[at]))
        if text in _CLOSING:
            depth += 1
        at += 1
    return kept


def _braces(head: Sequence[Token]) -> _Braces | None:
    """What an opening brace behind this head begins; None for a member that a constructor initialises."""
    outside = [token for _, token in _outside(head)]
    words = [token.text for token in outside]
    if words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"]:
        return _Braces.SCOPE
    if len(words) == 2 and words[0] == "extern" and outside[1].kind is TokenKind.STRING:
        return _Braces.SCOPE
    if (
        any(
            text == "=" and words[max(at - 1, 0)] not in ("operator", "=", "!", "<", ">")
            for at, text in enumerate(words)
        )
        and "operator" not in words
    ):
        return _Braces.INITIALISER
    function = _function_name(head)
    key = next((at for at, text in enumerate(words) if text in _CLASS_KEYS), None)
    if key is not None:
        inherits = ":" in words[key:] and (
            function is None or _position(outside, function) > words.index(":", key)
        )
        if function is None or inherits:
            return _Braces.CLASS
    if "(" not in words:
        return _Braces.INITIALISER
    if ":" in words[words.index("(") :] and _names_a_member(outside[-1]):
        return None
    return _Braces.FUNCTION


def _names_a_member(token: Token) -> bool:
    """Whether braces behind a token hold the value of a member, not the body of a constructor."""
    return token.kind is TokenKind.NAME or token.text == ">"


def _position(outside: Sequence[Token], token: Token) -> int:
    return next((at for at, other in enumerate(outside) if other is token), -1)


def _function_name(head: Sequence[Token]) -> Token | None:
    """The token that names a function: what stands before the parentheses of its parameters."""
    outside = _outside(head)
    for place, (at, token) in enumerate(outside):
        if token.text != "(" or place == 0:
            continue
        before = outside[place - 1][1]
        if before.text == ">":  # a specialisation, f<int>(…): back to its name
            angles, back = 0, at - 1
            while back >= 0:
                angles += (head[back].text == ">") - (head[back].text == "<")
                if angles == 0:
                    break
                back -= 1
            before = head[back - 1] if back > 0 else before
        if any(other.text == "operator" for _, other in outside[max(place - 4, 0) : place]):
            return before
        if before.kind is TokenKind.NAME and before.text not in _ATTRIBUTES:
            return before
    return None


def _describe(tokens: Sequence[Token], head: int, braces: _Braces | None) -> tuple[Kind, frozenset[str]]:
    """The kind of a declaration and the names that it declares."""
    outside = [token for _, token in _outside(tokens[:head])]
    words = [token.text for token in outside]
    if words[:1] == ["using"]:
        is_alias = "=" in words and words[1] != "namespace"
        return (Kind.ALIAS, frozenset(words[1:2])) if is_alias else (Kind.USING, frozenset(words[-2:-1]))
    if words[:1] == ["namespace"]:
        return Kind.USING, frozenset(words[1:2])
    if words[:1] == ["typedef"]:
        return Kind.ALIAS, _typedef_names(tokens)
    if words[:1] in (["static_assert"], ["asm"], ["friend"]):
        return Kind.OTHER, frozenset()
    if braces is _Braces.CLASS or (
        words[:1] and words[0] in _CLASS_KEYS and "(" not in words and "=" not in words
    ):
        return Kind.TYPE, _type_names(tokens, outside)
    named = _function_name(tokens[:head])
    assigned = next(
        (at for at, text in enumerate(words) if text == "=" and "operator" not in words[:at]), None
    )
    if named is not None and (assigned is None or _position(outside, named) < assigned):
        return Kind.FUNCTION, frozenset((named.text if named.kind is TokenKind.NAME else "operator",))
    if "operator" in words:
        return Kind.FUNCTION, frozenset(("operator",))
    return Kind.VARIABLE, _variable_names(outside)


def _variable_names(outside: Sequence[Token]) -> frozenset[str]:
    """The names of variables that are declared together, without those in their initialisers."""
    names, in_initialiser = set(), False
    for token, after in pairwise(outside):
        in_initialiser = token.text == "=" or (in_initialiser and token.text != ",")
        is_name = token.kind is TokenKind.NAME and after.text in ("=", ";", "[", ",", "{", "(")
        if is_name and not in_initialiser:
            names.add(token.text)
    return frozenset(names)


def _typedef_names(tokens: Sequence[Token]) -> frozenset[str]:
    """The names that a typedef declares, a pointer to functions' among them; not those inside a struct."""
    outside = [token for _, token in _outside(tokens)]
    pointers = (
        tokens[at + 2].text
        for at in range(len(tokens) - 2)
        if tokens[at].text == "(" and tokens[at + 1].text == "*" and tokens[at + 2].kind is TokenKind.NAME
    )
    return _before(outside, (";", ",", "[")) | frozenset(list(pointers)[:1])


def _before(tokens: Sequence[Token], marks: Sequence[str]) -> frozenset[str]:
    return frozenset(
        token.text
        for token, after in pairwise(tokens)
        if token.kind is TokenKind.NAME and after.text in marks
    )


def _type_names(tokens: Sequence[Token], outside: Sequence[Token]) -> frozenset[str]:
    """The name of a type, the variables declared with it, and the constants of an enumeration."""
    names: set[str] = set()
    key = next(at for at, token in enumerate(outside) if token.text in _CLASS_KEYS)
    for at in range(key + 1, len(outside)):
        token = outside[at]
        after = outside[at + 1].text if at + 1 < len(outside) else ""
        if token.text in (":", "{", ";", "<"):
            break
        if (
            token.kind is TokenKind.NAME
            and token.text not in _ATTRIBUTES
            and token.text not in _CLASS_KEYS
            and after != "("
        ):
            names.add(token.text)
    opening = next((at for at, token in enumerate(tokens) if token.text == "{"), None)
    if opening is None:
        return frozenset(names)
    closing = max(at for at, token in enumerate(tokens) if token.text == "}" or at == opening)
    names |= {token.text for token in tokens[closing:] if token.kind is TokenKind.NAME}
    if outside[key].text == "enum":
        names |= _before(tokens[opening : closing + 1], (",", "=", "}"))
    return frozenset(names)
