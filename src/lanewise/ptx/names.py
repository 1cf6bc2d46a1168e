"""Names of kernels: C++'s in place of mangled ones, and the kernel that a name means."""

from __future__ import annotations

import ctypes
import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.ptx.module import Entry, Function, Module

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
    """`__cxa_demangle` and `free` of the C++ runtime; None where there is no such thing."""
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
    """A mangled name as C++ writes it; any other name, and one that cannot be read, as it is.

    >>> demangle("_Z4copyPKfPfi"), demangle("copy")
    ('copy(float const*, float*, int)', 'copy')
    """
    runtime = _runtime()
    if not _MANGLED.fullmatch(name) or len(name) > _LONGEST or runtime is None:
        return name
    function, free = runtime
    status = ctypes.c_int()
    found = function(name.encode(), None, None, ctypes.byref(status))
    if not found or status.value != 0:
        return name
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        free(found)


def plain_name(mangled: str) -> str:
    """The last identifier of a mangled name, without namespaces, template arguments and parameters.

    Read off the mangling itself, for names that the runtime cannot demangle.

    >>> plain_name("_ZN4deep5inner5scaleIfLi4EEEvPT_S2_")
    'scale'
    """
    if not _MANGLED.fullmatch(mangled):
        return mangled
    found, place, depth = "", 2, 0
    nested = mangled[place : place + 1] == "N"
    place += nested
    while place < len(mangled):
        if number := _LENGTH.match(mangled, place):
            place = number.end() + int(number.group())
            if depth == 0:
                found = mangled[number.end() : place]
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
    return found or mangled


# finding ------------------------------------------------------------------------------------------------


def find_entry(module: Module, name: str) -> Entry:
    """The entry that a name means: mangled, demangled or plain; an instance of a template is compiled."""
    if not isinstance(name, str):
        raise LanewiseError(f"an entry is asked for by name, as module['mm'], not by {name!r}")
    if name in module.entries:
        return Entry(module, module.entries[name])
    wanted = _normal(name)
    found = [function for function in module.entries.values() if wanted in _spellings(function.name)]
    if len(found) == 1:
        return Entry(module, found[0])
    if found:
        raise LanewiseError(f"{name!r} may be any of:\n{_listed(found)}")
    if "<" in name and module.cuda is not None:
        instance, lowered = module.cuda.instance(name, module.entries)
        if lowered not in instance.entries:
            raise LanewiseError(f"{name!r} is no kernel: only a __global__ function can be launched")
        return Entry(instance, instance.entries[lowered])
    raise LanewiseError(_not_there(module, name, wanted))


def _not_there(module: Module, name: str, wanted: str) -> str:
    if any(wanted in _spellings(function) or name == function for function in module.functions):
        return f"{name!r} is a device function, no entry\nentries are:\n{_listed(module.entries.values())}"
    plain = {plain_name(function) for function in module.entries}
    near = difflib.get_close_matches(name, [*plain, *module.entries], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if module.cuda is not None and re.search(rf"\b{re.escape(name)}\b", module.cuda.text):
        hint = f"; a template is instantiated by its full name, as module['{name}<float>']"
    return f"no entry {name!r}{hint}\nentries are:\n{_listed(module.entries.values())}"


def _listed(functions: Iterable[Function]) -> str:
    lines = []
    for function in functions:
        cpp = demangle(function.name)
        lines.append(f"    {cpp}" if cpp == function.name else f"    {cpp}  ({function.name})")
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
    """Every way to call a function: with and without namespaces, template arguments and parameters."""
    full = demangle(name)
    if full == name:
        return frozenset((name, plain_name(name)))
    head, parameters = _split_parameters(full)
    found = {full}
    for qualified in _suffixes(head):
        bare = _without_arguments(qualified)
        found |= {qualified, bare, qualified + parameters, bare + parameters}
    return frozenset(_normal(spelling) for spelling in found)


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


def _suffixes(qualified: str) -> Iterator[str]:
    """`a::b::c` as `a::b::c`, `b::c` and `c`; what stands in template arguments stays together."""
    yield qualified
    depth = 0
    for place, letter in enumerate(qualified):
        depth += (letter in "<(") - (letter in ">)")
        if depth == 0 and qualified.startswith("::", place):
            yield qualified[place + 2 :]


def _without_arguments(qualified: str) -> str:
    """`ns::f<int>` to `ns::f`."""
    if not qualified.endswith(">"):
        return qualified
    depth = 0
    for place in range(len(qualified) - 1, -1, -1):
        depth += (qualified[place] == ">") - (qualified[place] == "<")
        if depth == 0:
            return qualified[:place]
    return qualified
