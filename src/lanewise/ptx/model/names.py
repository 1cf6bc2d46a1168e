"""Names of kernels: mangled ones as C++ writes them, and which of them a user's spelling means.

Knows names alone; the module that has the kernels looks them up by what is found here.
"""

import ctypes
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from lanewise.hints import nearest
from lanewise.layout.text import at_commas

#: The C++ runtime's own demangler keeps its state on the stack; far longer names are left as they are.
_LONGEST = 4096
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
_LENGTH = re.compile(r"[1-9]\d{0,4}", re.ASCII)
_SUBSTITUTION = re.compile(r"[STA][0-9A-Z]*_|S[abdiost]|DF\d+_", re.ASCII)
#: Other spellings of the types that kernels are instantiated with.
_ALIASES = {
    "half": "__half", "half2": "__half2", "nv_bfloat16": "__nv_bfloat16", "nv_bfloat162": "__nv_bfloat162",
    "bfloat16": "__nv_bfloat16", "uint8_t": "unsigned char", "int8_t": "signed char", "int16_t": "short",
    "uint16_t": "unsigned short", "uint32_t": "unsigned int", "int32_t": "int",
}  # fmt: skip


@cache
def _runtime() -> tuple[Any, Any] | None:
    """`__cxa_demangle` and `free` of the C++ runtime; None where the runtime is not installed."""
    library = {"darwin": "libc++.1.dylib"}.get(sys.platform, "libstdc++.so.6")
    try:
        function = ctypes.CDLL(library).__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError, TypeError):
        return None
    function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_char_p, *[ctypes.c_void_p] * 3)
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    return function, free


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """Return a mangled name as C++ writes it; any other name, or one that cannot be read, is unchanged.

    >>> demangle("_Z4copyPKfPfi"), demangle("copy")
    ('copy(float const*, float*, int)', 'copy')
    """
    if not _MANGLED.fullmatch(name) or len(name) > _LONGEST:
        return name
    from lanewise.ptx.model.demangling import demangled  # most kernels have plain names

    runtime = _runtime()
    if runtime is None:
        return demangled(name) or name
    function, free = runtime
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    if not text or status.value != 0:
        return demangled(name) or name  # an older runtime does not know the newest types
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free(text)


def plain_name(mangled: str) -> str:
    """The last identifier of a mangled name, without namespaces, template arguments and parameters.

    Read off the mangling itself, for names that the runtime cannot demangle.

    >>> plain_name("_ZN4deep5inner5scaleIfLi4EEEvPT_S2_")
    'scale'
    """
    if not _MANGLED.fullmatch(mangled):
        return mangled
    word, place, depth = "", 2, 0
    nested = mangled[place : place + 1] == "N"
    place += nested
    while place < len(mangled):
        if number := _LENGTH.match(mangled, place):
            place = number.end() + int(number.group())
            if depth == 0:
                word = mangled[number.end() : place]
            if not nested and depth == 0:
                break
        elif skipped := _SUBSTITUTION.match(mangled, place):
            place = skipped.end()
        else:
            if mangled[place] in "INXLJFZ":
                depth += 1
            elif mangled[place] == "E":
                depth -= 1
                if depth < 0:
                    break
            place += 1
    return word or mangled


# finding ------------------------------------------------------------------------------------------------


def matching(name: str, mangled: Iterable[str]) -> list[str]:
    """Those of some mangled names that a name may mean: itself if it is there, else by its C++ spellings.

    >>> matching("copy", ["_Z4copyPKfPfi", "_Z5scalef"])
    ['_Z4copyPKfPfi']
    """
    names = list(mangled)
    if name in names:
        return [name]
    wanted = _normal(name)
    return [name for name in names if wanted in _spellings(name)]


def matching_variables(name: str, mangled: Iterable[str]) -> list[str]:
    """Those of some mangled names of variables that a name may mean, with or without its namespaces.

    >>> matching_variables("weights", ["_ZN2nn7weightsE", "_ZZ1kPfE5count"])
    ['_ZN2nn7weightsE']
    """
    names = list(mangled)
    if name in names:
        return [name]
    wanted = _normal(name)
    return [
        name
        for name in names
        if any(
            wanted in (_normal(part), _normal(_without_arguments(part)))
            for part in _suffixes(demangle(name).replace("(anonymous namespace)", "{anonymous}"))
        )
    ]


def missing_entry(name: str, entries: Iterable[str], functions: Iterable[str], cuda_text: str = "") -> str:
    """The message for a name that no entry has, with what was perhaps meant, and the entries there are."""
    entries = list(entries)
    if matching(name, functions):
        return f"{name!r} is a device function, no entry\nentries are:\n{listed(entries)}"
    templates = re.findall(r"__global__[^;{}()]*?\b(\w+)\s*\(", cuda_text)
    known = [*{plain_name(entry) for entry in entries}, *entries, *templates]
    near = nearest(name.partition("<")[0] if templates else name, known)
    hint = f"; did you mean {near!r}?" if near else ""
    if re.search(rf"\b{re.escape(name)}\b", cuda_text):
        hint = f"; a template is instantiated by its full name, as module['{name}<float>']"
    return f"no entry {name!r}{hint}\nentries are:\n{listed(entries)}"


def listed(mangled: Iterable[str]) -> str:
    """Names one a line, as C++ writes them, the mangled name behind where it is another."""
    lines = []
    for name in mangled:
        cpp = demangle(name)
        lines.append(f"    {cpp}" if cpp == name else f"    {cpp}  ({name})")
    return "\n".join(lines) or "    (none)"


def _normal(text: str) -> str:
    """A C++ name in one spelling: `const` behind its type, integers without suffix, no needless spaces."""
    text = re.sub(r"\bunsigned\b(?! (?:int|char|short|long)\b)", "unsigned int", text.strip())
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda match: _ALIASES.get(match.group(), match.group()), text)
    text = text.replace("unsigned int int", "unsigned int")
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
    text = re.sub(r"\bconst\s+((?:unsigned |signed )?[\w:]+)", r"\1 const", text)
    return re.sub(r"\s+", " ", re.sub(r"\s*([^\w\s])\s*", r"\1", text))


@lru_cache(maxsize=4096)
def _spellings(name: str) -> frozenset[str]:
    """Every spelling of a function's name: with and without namespaces, template arguments and parameters."""
    full = demangle(name)
    if full == name:
        return frozenset((name, plain_name(name)))
    head, parameters = _split_parameters(full)
    spellings = {full}
    for qualified in _suffixes(head):
        bare = _without_arguments(qualified)
        spellings |= {qualified, bare, qualified + parameters, bare + parameters}
    return frozenset(_normal(spelling) for spelling in spellings)


def _split_parameters(full: str) -> tuple[str, str]:
    """`void ns::f<int>(float*)` to `ns::f<int>` and `(float*)`; the type it returns is dropped."""
    full = full.replace("(anonymous namespace)", "{anonymous}")
    depth = 0
    end = len(full)
    for place in range(len(full) - 1, -1, -1):
        letter = full[place]
        if letter in ")>":
            depth += 1
        elif letter in "(<":
            depth -= 1
            if depth == 0 and letter == "(":
                end = place
                break
    head = full[:end]
    depth, start = 0, 0
    for place, letter in enumerate(head):
        depth += (letter in "<(") - (letter in ">)")
        if letter == " " and depth == 0:
            start = place + 1
    return head[start:], full[end:]


def parameter_texts(full: str) -> list[str]:
    """The types of the parameters in the name of a function as C++ writes it.

    >>> parameter_texts("void k<float>(float4, std::pair<int, int>, float const*)")
    ['float4', 'std::pair<int, int>', 'float const*']
    """
    parts = at_commas(_split_parameters(full)[1].strip()[1:-1], "<>()[]")
    return parts if parts[-1] else parts[:-1]


def _suffixes(qualified: str) -> Iterator[str]:
    """`a::b::c` as `a::b::c`, `b::c` and `c`; what stands in template arguments stays together."""
    yield qualified
    depth = 0
    for place, letter in enumerate(qualified):
        depth += (letter in "<(") - (letter in ">)")
        if depth == 0 and qualified.startswith("::", place):
            yield qualified[place + 2 :]


def _without_arguments(qualified: str) -> str:
    """A qualified name without the template arguments at its end: `ns::f<int>` becomes `ns::f`."""
    if not qualified.endswith(">"):
        return qualified
    depth = 0
    for place in range(len(qualified) - 1, -1, -1):
        depth += (qualified[place] == ">") - (qualified[place] == "<")
        if depth == 0:
            return qualified[:place]
    return qualified
