"""Reading a C++ name with template arguments: `SM90::GMMA::MMA_64x8x16_F32F16F16_SS<GMMA::Major::K, …>`.

Only the text is taken apart; what a name and its arguments mean is decided by those who call this.
"""

import re
from typing import NamedTuple

from lanewise.errors import LanewiseError

_NAME = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")


class Template(NamedTuple):
    """A name with its namespaces, and the arguments in angle brackets (None where there are no brackets)."""

    name: str
    arguments: tuple[str, ...] | None


def read_template(text: str) -> Template:
    """A C++ name and its template arguments; `cute::`, `cutlass::` and a closing `{}` do not matter.

    >>> read_template("cute::SM120_16x8x32_TN<cutlass::float_e4m3_t,float_e5m2_t, float>{}")
    Template(name='SM120_16x8x32_TN', arguments=('float_e4m3_t', 'float_e5m2_t', 'float'))
    """
    if not isinstance(text, str):
        raise LanewiseError(
            f"an operation is named by text such as 'SM80_16x8x16_F32F16F16F32_TN', not {text!r}"
        )
    plain = re.sub(r"\{\s*\}\s*$", "", text.strip())
    plain = re.sub(r"\b(?:cute|cutlass)::", "", plain.removeprefix("::"))
    name, bracket, rest = plain.partition("<")
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise LanewiseError(
            f"{text!r} is not the name of an operation, such as 'SM80_16x8x16_F32F16F16F32_TN'"
        )
    if not bracket:
        return Template(name, None)
    rest = rest.rstrip()
    if not rest.endswith(">"):
        raise LanewiseError(f"{text!r}: the template arguments are not closed with '>'")
    return Template(name, _split(text, rest[:-1]))


def _split(text: str, arguments: str) -> tuple[str, ...]:
    """The arguments between commas that are not inside brackets of their own."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter == "<") - (letter == ">")
        if depth < 0:
            raise LanewiseError(f"{text!r}: a '>' too many among the template arguments")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    parts = [part.strip() for part in parts]
    if depth or ("" in parts and len(parts) > 1):
        raise LanewiseError(f"{text!r}: a template argument is empty or not closed")
    return tuple(part for part in parts if part)


def last_name(name: str) -> str:
    """A name without its namespaces.

    >>> last_name("GMMA::Major::K")
    'K'
    """
    return name.rpartition("::")[2]


#: Templates around an operation that say what it is used for.
_WRAPPERS = ("MMA_Atom", "Copy_Atom", "MMA_Traits", "Copy_Traits")


def unwrapped(text: str) -> tuple[str, str | None]:
    """The operation in `MMA_Atom<…>` or `Copy_Atom<…, half_t>`, and the type behind it; else the text itself.

    >>> unwrapped("Copy_Atom<SM75_U32x4_LDSM_N, half_t>"), unwrapped("MMA_Atom<MMA_Traits<SM80_A>>{}")
    (('SM75_U32x4_LDSM_N', 'half_t'), ('SM80_A', None))
    """
    kind: str | None = None
    while isinstance(text, str) and re.match(rf"\s*(?:cute::)?(?:{'|'.join(_WRAPPERS)})\s*<", text):
        arguments = read_template(text).arguments or ()
        if not 1 <= len(arguments) <= 2:
            raise LanewiseError(
                f"{text!r}: an operation stands in the brackets, and for a copy a type behind it"
            )
        text, kind = arguments[0], arguments[1] if len(arguments) == 2 else kind
    return text, kind
