"""Arguments held against the C++ signature of a kernel: an array's elements, numbers where pointers belong.

PTX knows of a pointer that it has 64 bits. The mangled name of a kernel, or its source, knows to what it
points. What neither tells (a struct of the user's, a type of CUTLASS's) takes anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.numpy_types import AnyDtype
from lanewise.ptx.arguments import ArrayArgument, ParameterTypes

if TYPE_CHECKING:
    from lanewise.ptx.model.module import Entry

#: Integers below this are counts or sizes: device addresses are larger, on the machine and on every GPU.
_LOWEST_ADDRESS = 1 << 32
#: Types whose pointers stand for memory as such.
_RAW_BYTES = ("void", "char", "unsigned char", "uint8_t", "uchar", "u_char", "byte", "std::byte")
_ELEMENT = re.compile(r"(bool|bfloat|float|uint|int)(\d*)")
_GETS_BY = "unchecked=True (--unchecked in the shell) passes it as it is"


class Element(NamedTuple):
    """The type of an array's elements: the name that NumPy, ml_dtypes and torch share, its kind and bytes."""

    name: str
    kind: str
    bytes: int


def element_of(array: object) -> Element | None:
    """Return the type of an array's elements; None for structs, and for what is no array.

    >>> element_of(np.zeros(4, np.float16))
    Element(name='float16', kind='float', bytes=2)
    """
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype):
        return _element_of_dtype(dtype)
    return _element_named(str(dtype).removeprefix("torch.")) if dtype is not None else None


@lru_cache(maxsize=256)
def _element_of_dtype(dtype: AnyDtype) -> Element | None:
    """Return the type of the elements of a NumPy array: NumPy takes its time to name it."""
    return _element_named(str(dtype))


def _element_named(name: str) -> Element | None:
    """Return the type of elements by its name."""
    match = _ELEMENT.match(name)
    if match is None:
        return None
    bits = int(match[2]) if match[2] else 8
    return Element(name, match[1], max(1, bits // 8))  # four bits have a byte each


def require_signature(entry: Entry, values: Sequence[object]) -> None:
    """Raise an error for an argument that the kernel's signature in C++ does not take.

    A kernel whose signature is not known takes anything here; so do parameters of types that are not known.
    """
    source = entry.module.cuda.text if entry.module.cuda is not None else ""
    function = entry.function
    if not source and not function.name.startswith("_Z"):
        return  # nothing is known
    types = ParameterTypes(function, source)
    if types.texts is None:
        return
    names = types.names or ("",) * len(types.texts)
    if len(values) != len(types.texts):
        if types.names is not None:
            raise LanewiseError(_miscounted(entry, types.texts, names, len(values)))
        return  # the launch says how many there are
    for number, (text, value) in enumerate(zip(types.texts, values, strict=True)):
        title = f"{number} ({names[number]})" if names[number] else f"{number}"
        wrong = _refusal(text, value, source)
        if wrong is not None:
            raise LanewiseError(f"argument {title} of {entry.demangled} is {text}: {wrong}; {_GETS_BY}")
        if isinstance(value, float | np.floating) and _is_integer(text, source):
            mend = f"; int(…) makes {int(value)} of it" if float(value).is_integer() else ""
            raise LanewiseError(
                f"argument {title} of {entry.demangled} is {text}: it takes an integer; {value} was given"
                f"{mend}"
            )


def _miscounted(entry: Entry, texts: Sequence[str], names: Sequence[str], given: int) -> str:
    """Return the message that a kernel is given too few or too many arguments, by their names in C++."""
    from lanewise.ptx.model.names import plain_name

    listed = [f"{name} ({text})" if name else text for name, text in zip(names, texts, strict=True)]
    count = f"{len(texts)} argument{'s' if len(texts) != 1 else ''}"
    missing = f": there is none for {', '.join(listed[given:])}" if 0 < given < len(texts) else ""
    all_of_them = ", ".join(f"{text} {name}".rstrip() for name, text in zip(names, texts, strict=True))
    listing = f" ({all_of_them})" if texts else ""
    return f"{plain_name(entry.function.name)} takes {count}{listing}; {given} given{missing}"


def _is_integer(text: str, source: str) -> bool:
    """Return whether a type in C++ is that of one integer."""
    from lanewise.ptx.cuda_types import without_qualifiers

    plain = without_qualifiers(text)
    elements = None if plain.endswith("*") else _elements(plain, source)
    return elements is not None and elements[1] == 1 and elements[0].startswith(("int", "uint"))


def _refusal(text: str, value: object, source: str) -> str | None:
    """Return what is wrong with a value for a parameter of a type; None if nothing is."""
    if value is None or isinstance(value, ArrayArgument):
        return None
    from lanewise.ptx.cuda_types import without_qualifiers

    plain = without_qualifiers(text)
    if plain.endswith("*") and "(" not in plain:
        return _pointer_refusal(plain[:-1].strip(), value, source)
    return _number_refusal(plain, value, source)


def _pointer_refusal(pointee: str, value: object, source: str) -> str | None:
    """Return what is wrong with a value for a pointer to a type."""
    if isinstance(value, bool) or (type(value) is int and 0 < value < _LOWEST_ADDRESS):
        return f"it takes an array, None, or lw.address(array); {value!r} was given"
    if isinstance(value, np.integer) and 0 < value < _LOWEST_ADDRESS:
        return f"it takes an array, None, or lw.address(array); {value!r} was given"
    if isinstance(value, list | tuple | str):
        kind = type(value).__name__
        return f"it takes an array; a {kind} was given" + ("; np.array(…) makes one" if kind != "str" else "")
    given = element_of(value)
    if given is None or getattr(value, "ndim", 1) == 0 or pointee in _RAW_BYTES:
        return None
    elements = ("uint64", 1) if pointee.endswith("*") else _elements(pointee, source)
    if elements is None or _takes(*elements, given):
        return None
    wanted = elements[0]
    if _is_raw_words(wanted, given):
        advice = f"array.view({_spelt(wanted)}) takes its bits as such numbers"
    else:
        advice = f"array.astype({_spelt(wanted)}) converts it"
    return f"it takes an array of {wanted}, and one of {given.name} was given; {advice}"


def _number_refusal(plain: str, value: object, source: str) -> str | None:
    """Return what is wrong with a value for a number."""
    elements = _elements(plain, source)
    if elements == ("bool", 1) and isinstance(value, int | np.integer) and int(value) not in (0, 1):
        return f"it takes True or False (1 or 0); {value} was given"
    if elements is None or elements[1] != 1 or not elements[0].startswith("int"):
        return None
    if element_of(value) is not None and getattr(value, "ndim", 0) > 0:
        return "it takes an integer; an array was given"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        limits = np.iinfo(elements[0])
        if not limits.min <= int(value) <= limits.max:
            return f"{value} does not fit into it, {limits.min} to {limits.max}"
    return None


@lru_cache(maxsize=256)
def _elements(name: str, source: str) -> tuple[str, int] | None:
    """Return the numbers of a type, by its own name or by that for which the source has it stand."""
    from lanewise.ptx.cuda_types import elements_of

    elements = elements_of(name)
    if elements is None and source:
        from lanewise.ptx.cuda_types import aliased_type

        elements = elements_of(aliased_type(source, name))
    return elements


def _takes(wanted: str, numbers: int, given: Element) -> bool:
    """Return whether an array is one of a pointer's elements, or of words that hold them.

    Arrays of uint8 are memory as such. Vectors of integers (`int4`, `uint2`) carry anything, unsigned ones
    any elements of their width. Floats of at most 16 bits may come as unsigned integers, since NumPy itself
    has no bfloat16.
    """
    if given.name in (wanted, "uint8"):
        return True
    integer = wanted.startswith(("int", "uint"))
    if integer and numbers > 1:
        return True
    match = _ELEMENT.match(wanted)
    width = int(match[2]) // 8 if match is not None and match[2] else 1
    if given.bytes != width:
        return False
    if wanted.startswith("uint"):
        return True
    if integer or wanted == "bool":
        return given.kind in ("int", "uint", "bool")
    return _is_raw_words(wanted, given) and width <= 2


def _is_raw_words(wanted: str, given: Element) -> bool:
    """Return whether an array has unsigned integers of the width of a float."""
    return given.kind == "uint" and re.sub(r"^b?float(\d+).*$", r"\1", wanted) == str(8 * given.bytes)


def _spelt(dtype: str) -> str:
    """Return a type as Python has it."""
    known = hasattr(np, dtype) or dtype == "bool"
    return f"{'numpy' if known else 'ml_dtypes'}.{dtype}"
