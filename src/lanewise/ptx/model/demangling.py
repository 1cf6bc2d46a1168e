"""Names of the Itanium C++ ABI read in Python, for systems whose C++ runtime has no demangler (Windows).

Reads what NVRTC and nvcc make of kernels, device functions and variables, and writes it as `c++filt` does.
Template arguments that are expressions (`decltype`, `sizeof`, …) are not read: such a name stays mangled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGITS = re.compile(r"\d+")
_SEQUENCE = re.compile(r"([0-9A-Z]*)_")
#: nvcc and GCC name anonymous namespaces so.
_ANONYMOUS = re.compile(r"_GLOBAL_[._$]N")
_DEEPEST = 200


class _Type(NamedTuple):
    """A type in C++: what stands before a declared name, and behind it; whether brackets go around a `*`."""

    left: str
    right: str = ""
    compound: str = ""

    def __str__(self) -> str:
        return f"{self.left}{self.right}"


class _Unreadable(Exception):
    """A name, or a part of one, that is not read here."""


class _Component(NamedTuple):
    """A name while it is read: its text, and what functions of that name need to know."""

    text: str
    last: str
    is_template: bool = False
    qualifiers: str = ""
    returns: bool = True


def demangled(name: str) -> str | None:
    """Return a mangled name as C++ writes it; None if it is not mangled, or not read here.

    >>> demangled("_ZN4deep5scaleI6__halfLi4EEEvPT_i")
    'void deep::scale<__half, 4>(__half*, int)'
    """
    if not name.startswith("_Z"):
        return None
    reader = _Reader(name[2:])
    try:
        text = reader.encoding()
    except (_Unreadable, RecursionError, IndexError, ValueError):
        return None
    return text if reader.at_end() else None


class _Reader:
    """Reads one name from left to right. Parts that may be named again are kept, in order."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.depth = text, 0, 0
        self.kept: list[_Type] = []
        self.arguments: list[list[_Type]] = []
        #: Which element of a pack is written, while a pack is expanded, and how long the pack is.
        self.element: int | None = None
        self.pack_length: int | None = None

    # text ---------------------------------------------------------------------------------------------

    def at_end(self) -> bool:
        return self.position == len(self.text)

    def peek(self, length: int = 1) -> str:
        return self.text[self.position : self.position + length]

    def take(self, sign: str) -> bool:
        """Pass over a sign if it comes next, and return whether it did."""
        if self.text.startswith(sign, self.position):
            self.position += len(sign)
            return True
        return False

    def require(self, sign: str) -> None:
        if not self.take(sign):
            raise _Unreadable

    def number(self) -> int:
        match = _DIGITS.match(self.text, self.position)
        if match is None:
            raise _Unreadable
        self.position = match.end()
        return int(match.group())

    def sequence(self) -> int:
        """Return the number that `_`, `0_`, `1_`, … stand for, in digits and capitals: 0, 1, 2."""
        match = _SEQUENCE.match(self.text, self.position)
        if match is None:
            raise _Unreadable
        self.position = match.end()
        return int(match[1], 36) + 1 if match[1] else 0

    def counted(self) -> int:
        """Return the number that `_`, `0_`, `1_`, … stand for, in decimal digits: 1, 2, 3."""
        if self.take("_"):
            return 1
        number = self.number()
        self.require("_")
        return number + 2

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Unreadable
        yield
        self.depth -= 1

    # names --------------------------------------------------------------------------------------------

    def encoding(self, *, within: bool = False) -> str:
        """Return a function with its parameters, or a variable; around others without what it returns."""
        with self.nested():
            for sign, what in TABLES.items():
                if self.take(sign):
                    return f"{what} for {self.type()}"
            if self.take("GV"):
                return f"guard variable for {self.name().text}"
            name = self.name()
            if self.at_end() or self.peek() in "E.":
                return name.text
            returned = self.type() if name.is_template and name.returns else None
            parameters = self.parameters("E.")
            text = f"{name.text}({parameters}){name.qualifiers}"
            if returned is None or within:
                return text
            return f"{returned.left}{'' if returned.right else ' '}{text}{returned.right}"

    def parameters(self, ends: str) -> str:
        """Return the types of parameters up to the end of the text or one of some letters."""
        types = []
        while not self.at_end() and self.peek() not in ends:
            if self.peek(2) in ("RE", "OE"):  # the function type's own qualifier
                break
            types.append(str(self.type()))
        return "" if types == ["void"] else ", ".join(kind for kind in types if kind)

    def name(self) -> _Component:
        if self.take("N"):
            return self.nested_name()
        if self.take("Z"):
            return self.local_name()
        if self.peek() == "S" and self.peek(2) != "St":
            component = self.substitution()
            return self.with_arguments(_Component(component.left, _last(component.left)))
        name = self.unqualified(f"{STANDARD['t']}::" if self.take("St") else "", "")
        if self.peek() == "I":
            self.kept.append(_Type(name.text))
        return self.with_arguments(name)

    def with_arguments(self, name: _Component) -> _Component:
        if self.peek() != "I":
            return name
        return name._replace(text=_closed(name.text, self.template_arguments()), is_template=True)

    def nested_name(self) -> _Component:
        qualifiers = self.qualifiers()
        qualifiers += " &&" if self.take("O") else " &" if self.take("R") else ""
        name = _Component("", "")
        while not self.take("E"):
            if self.peek() == "S" and self.peek(2) != "St" and not name.text:
                component = self.substitution()
                name = _Component(component.left, _last(component.left))
                continue  # it is kept already
            if self.take("St"):
                name = _Component("std", "std")
                continue
            if self.peek() == "I":
                name = name._replace(text=_closed(name.text, self.template_arguments()), is_template=True)
            elif self.peek() == "T":
                component = self.template_parameter()
                name = _Component(component.left, _last(component.left))
            else:
                prefix = f"{name.text}::" if name.text else ""
                name = self.unqualified(prefix, name.last)
            self.kept.append(_Type(name.text))
        if self.kept and name.text == self.kept[-1].left:
            self.kept.pop()  # the whole name is kept by those who take it for a type
        return name._replace(qualifiers=qualifiers)

    def local_name(self) -> _Component:
        """Return what is declared inside a function."""
        outer = self.encoding_within()
        self.require("E")
        if self.take("s"):
            self.discriminator()
            return _Component(f"{outer}::string literal", "")
        inner = self.name()
        self.discriminator()
        return inner._replace(text=f"{outer}::{inner.text}")

    def encoding_within(self) -> str:
        arguments = self.arguments
        self.arguments = list(arguments)
        try:
            return self.encoding(within=True)
        finally:
            self.arguments = arguments or self.arguments

    def discriminator(self) -> None:
        if self.take("__"):
            self.number()
            self.require("_")
        elif self.peek() == "_" and self.peek(2)[1:].isdigit():
            self.position += 2

    def unqualified(self, prefix: str, class_name: str) -> _Component:
        """Return one name behind a prefix: an identifier, an operator, a constructor, a lambda."""
        letters = self.peek(2)
        returns = True
        if letters[:1].isdigit() or letters[:1] == "L":
            self.take("L")  # it has internal linkage
            text = self.identifier()
        elif letters in ("C1", "C2", "C3", "D0", "D1", "D2"):
            self.position += 2
            text, returns = ("~" if letters[0] == "D" else "") + class_name, False
        elif self.take("Ul"):
            parameters = self.parameters("E")
            self.require("E")
            text = f"{{lambda({parameters})#{self.counted()}}}"
        elif self.take("Ut"):
            text = f"{{unnamed type#{self.counted()}}}"
        elif self.take("cv"):
            text, returns = f"operator {self.type()}", False
        elif letters in OPERATORS:
            self.position += 2
            text = f"operator{OPERATORS[letters]}"
        else:
            raise _Unreadable
        while self.take("B"):
            text += f"[abi:{self.identifier()}]"
        return _Component(prefix + text, text, returns=returns)

    def identifier(self) -> str:
        length = self.number()
        text = self.peek(length)
        if len(text) != length or not length:
            raise _Unreadable
        self.position += length
        return "(anonymous namespace)" if _ANONYMOUS.match(text) else text

    # templates ----------------------------------------------------------------------------------------

    def template_arguments(self) -> str:
        """Return the text between the angle brackets; the arguments are those that `T_` names from now on."""
        self.require("I")
        given: list[list[_Type]] = []
        while not self.take("E"):
            given.append(self.template_argument())
        self.arguments = given
        return ", ".join(str(argument) for pack in given for argument in pack)

    def template_argument(self) -> list[_Type]:
        """Return an argument; a pack has several, or none."""
        if self.take("J"):
            pack: list[_Type] = []
            while not self.take("E"):
                pack += self.template_argument()
            return pack
        if self.peek() == "L":
            return [_Type(self.literal())]
        if self.take("X"):
            # of expressions, literals and parameters alone are read
            inner = self.template_parameter() if self.peek() == "T" else _Type(self.literal())
            self.require("E")
            return [inner]
        arguments = self.arguments
        found_type = self.type()
        self.arguments = arguments  # those of a type inside are its own
        return [found_type]

    def literal(self) -> str:
        self.require("L")
        if self.take("_Z"):
            name = self.encoding_within()
            self.require("E")
            return name
        kind = str(self.type())
        sign = "-" if self.take("n") else ""
        end = self.text.index("E", self.position)
        digits = self.text[self.position : end]
        self.position = end + 1
        if kind == "bool" and digits in ("0", "1"):
            return ("false", "true")[int(digits)]
        if not digits.isdigit():
            raise _Unreadable  # the bits of a float
        before, behind = LITERALS.get(kind, (f"({kind})", ""))
        return f"{before}{sign}{digits}{behind}"

    def template_parameter(self) -> _Type:
        self.require("T")
        number = self.counted() - 1
        if number >= len(self.arguments):
            raise _Unreadable
        pack = self.arguments[number]
        if self.element is None:
            return pack[0] if len(pack) == 1 else _Type(", ".join(map(str, pack)))
        if len(pack) == 1 and self.pack_length not in (None, 1):
            return pack[0]
        self.pack_length = len(pack)
        return pack[self.element] if self.element < len(pack) else _Type("")

    def expansion(self) -> _Type:
        """Return the types that a pack expansion stands for, with commas between them."""
        start, kept = self.position, list(self.kept)
        outer = self.element, self.pack_length
        parts: list[str] = []
        self.element, self.pack_length = 0, None
        self.type()
        length, end, after = self.pack_length or 0, self.position, self.kept
        for self.element in range(length):
            self.position, self.kept = start, list(kept)
            parts.append(str(self.type()))
        self.position, self.kept = end, after
        self.element, self.pack_length = outer
        return _Type(", ".join(parts))

    # types --------------------------------------------------------------------------------------------

    def substitution(self) -> _Type:
        self.require("S")
        letter = self.peek()
        if letter in STANDARD:
            self.position += 1
            return _Type(STANDARD[letter])
        return self.kept[self.sequence()]

    def qualifiers(self) -> str:
        words = ""
        while self.peek() in QUALIFIERS and self.peek():
            words = QUALIFIERS[self.peek()] + words
            self.position += 1
        return words

    def type(self) -> _Type:
        """Return a type. It is kept, so that it can be named again, unless it has a short name anyway."""
        with self.nested():
            letter, pair = self.peek(), self.peek(2)
            if letter in BUILTIN:
                self.position += 1
                return _Type(BUILTIN[letter])
            if pair in BUILTIN_OF_TWO:
                self.position += 2
                return _Type(BUILTIN_OF_TWO[pair])
            if pair == "DF":
                return self.float_of_bits()
            if letter == "S" and pair != "St":
                substituted = self.substitution()
                if self.peek() != "I":
                    return substituted
                substituted = _Type(_closed(substituted.left, self.arguments_of_type()))
            else:
                substituted = self.compound(letter, pair)
            self.kept.append(substituted)
            return substituted

    def compound(self, letter: str, pair: str) -> _Type:
        readers: dict[str, Callable[[], _Type]] = {
            "P": lambda: _declared(self.after("P"), "*"),
            "R": lambda: _declared(self.after("R"), "&"),
            "O": lambda: _declared(self.after("O"), "&&"),
            "F": self.function,
            "A": self.array,
            "M": self.member_pointer,
            "T": self.parameter_type,
            "u": self.vendor_type,
        }
        if letter in QUALIFIERS:
            qualifiers = self.qualifiers()
            inner = self.type()
            if inner.compound == "function":
                return inner._replace(right=inner.right + qualifiers)
            return inner._replace(left=inner.left.removesuffix(qualifiers) + qualifiers)
        if pair == "Dp":
            self.position += 2
            return self.expansion()
        if letter in readers:
            return readers[letter]()
        arguments = self.arguments
        name = self.name()
        self.arguments = arguments
        return _Type(name.text)

    def after(self, sign: str) -> _Type:
        self.require(sign)
        return self.type()

    def float_of_bits(self) -> _Type:
        self.require("DF")
        bits = self.number()
        if self.take("b"):
            return _Type("std::bfloat16_t")
        self.require("_")
        return _Type(f"_Float{bits}")

    def vendor_type(self) -> _Type:
        self.require("u")
        return _Type(self.identifier())

    def parameter_type(self) -> _Type:
        parameter = self.template_parameter()
        if self.peek() != "I":
            return parameter
        self.kept.append(parameter)
        return _Type(_closed(parameter.left, self.arguments_of_type()))

    def arguments_of_type(self) -> str:
        """Return the template arguments of a type, which are not what `T_` names behind it."""
        outer = self.arguments
        text = self.template_arguments()
        self.arguments = outer
        return text

    def function(self) -> _Type:
        self.require("F")
        self.take("Y")
        returned = self.type()
        parameters = self.parameters("E")
        reference = " &" if self.take("R") else " &&" if self.take("O") else ""
        self.require("E")
        return _Type(f"{returned.left} ", f"({parameters}){reference}{returned.right}", "function")

    def array(self) -> _Type:
        self.require("A")
        size = "" if self.peek() == "_" else str(self.number())
        self.require("_")
        inner = self.type()
        rest = inner.right.lstrip() if inner.compound == "array" else inner.right
        return _Type(inner.left, f" [{size}]{rest}", "array")

    def member_pointer(self) -> _Type:
        owner = self.after("M")
        return _declared(self.type(), f"{owner}::*", " ")


def _declared(inner: _Type, sign: str, space: str = "") -> _Type:
    """Return a pointer or a reference to a type; it stands in brackets for functions and arrays."""
    if inner.compound == "function":
        return _Type(f"{inner.left}({sign}", f"){inner.right}")
    if inner.compound == "array":
        return _Type(f"{inner.left} ({sign}", f"){inner.right}")
    if sign in ("&", "&&") and inner.left.endswith("&") and not inner.right:
        return inner  # a reference to a reference
    return _Type(f"{inner.left}{space}{sign}", inner.right)


def _closed(name: str, arguments: str) -> str:
    """Return a name with template arguments; two closing brackets stand apart, as `c++filt` has them."""
    space = " " if arguments.endswith(">") else ""
    opening = f"{name} <" if name.endswith("<") else f"{name}<"
    return f"{opening}{arguments}{space}>"


def _last(name: str) -> str:
    """Return the last identifier of a name, without namespaces and template arguments."""
    depth, start, end = 0, 0, len(name)
    for place, letter in enumerate(name):
        if letter == "<":
            if depth == 0:
                end = place
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0 and name.startswith("::", place):
            start, end = place + 2, len(name)
    return name[start:end]


BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
BUILTIN_OF_TWO = {
    "Dd": "decimal64", "De": "decimal128", "Df": "decimal32", "Dh": "half", "Di": "char32_t",
    "Ds": "char16_t", "Du": "char8_t", "Da": "auto", "Dc": "decltype(auto)", "Dn": "decltype(nullptr)",
}  # fmt: skip
STANDARD = {
    "t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string",
    "i": "std::istream", "o": "std::ostream", "d": "std::iostream",
}  # fmt: skip
#: How literals of a type are written: what stands before and behind the digits.
LITERALS = {
    "int": ("", ""), "unsigned int": ("", "u"), "long": ("", "l"), "unsigned long": ("", "ul"),
    "long long": ("", "ll"), "unsigned long long": ("", "ull"),
}  # fmt: skip
OPERATORS = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "ps": "+", "ng": "-", "ad": "&",
    "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|",
    "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=",
    "oR": "|=", "eO": "^=", "ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=",
    "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||",
    "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()", "ix": "[]",
}  # fmt: skip
#: Tables that the compiler makes for classes.
TABLES = {"TV": "vtable", "TT": "VTT", "TI": "typeinfo", "TS": "typeinfo name"}
QUALIFIERS = {"r": " restrict", "V": " volatile", "K": " const"}
