"""Letters of the Itanium C++ ABI, and the words of C++ that they stand for; `demangling.py` reads names."""

from __future__ import annotations

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
