"""What C knows of an entry point: its parameters in order, their types, and which of them are results.

A method of `Driver` or of `Runtime` has the name of its entry point. It takes what C passes, but for pointers
to results, and returns the results: `-> Annotated[U64, "address"]` is a pointer to which C's function writes
an address. Results are the first parameters in C, unless a number says how many others stand before them. The
decoding of arguments from C, the log and the exported names derive from these annotations. A method that
takes the words as they come is declared in a text, as cuda.h has it in fewer words.
"""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from lanewise.virtual_gpu.driver.results import DriverError, Result

#: The types of parameters and results, as ctypes has them.
C_TYPES: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "pointer": ctypes.c_uint64,
    "handle": ctypes.c_uint64,
    "text": ctypes.c_uint64,
}


#: The first address that may be memory.
_LOWEST = 4096


def read_word(type: str, word: int) -> Any:
    """Return the argument that C passes as a word of 64 bits."""
    if type == "text":
        return ctypes.string_at(word).decode(errors="replace") if word else ""
    return C_TYPES[type](word).value


class Parameter(NamedTuple):
    """A parameter of an entry point: its type, its name, and whether a result is written to it."""

    type: str
    name: str
    is_result: bool


class EntryPoint(NamedTuple):
    """An entry point: its name with the version that cuda.h maps it to, and its parameters in order."""

    name: str
    parameters: tuple[Parameter, ...]

    def call(
        self, method: Callable[..., Any], raw: Sequence[int], read: Callable[[str, int], Any] = read_word
    ) -> Any:
        """Call a method as C does: 64-bit words in, results written to memory; return what it returns.

        `read` returns the argument that a word is, by the type of the parameter.
        """
        given = list(zip(self.parameters, raw, strict=False))
        values = method(*(read(parameter.type, word) for parameter, word in given if not parameter.is_result))
        targets = [(C_TYPES[parameter.type], word) for parameter, word in given if parameter.is_result]
        results = values if isinstance(values, tuple) else (values,)
        for (kind, place), value in zip(targets, results, strict=False):
            if place:
                if place < _LOWEST:
                    raise DriverError(Result.INVALID_VALUE, f"{place:#x} is the address of no memory")
                kind.from_address(place).value = value
        return values

    def written(self, raw: Sequence[int]) -> str:
        """Return the arguments of a call as the log has them."""
        return ", ".join(
            f"{parameter.name}={word:#x}" for parameter, word in zip(self.parameters, raw, strict=False)
        )

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The parameters that a method of `Driver` takes."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_result)

    @property
    def results(self) -> tuple[Parameter, ...]:
        """The parameters that a method of `Driver` returns."""
        return tuple(parameter for parameter in self.parameters if parameter.is_result)


#: The types of parameters and results. `Text` is a string that ends in a zero byte; `Pointer` is an address
#: that a method reads or writes by itself.
I32 = Annotated[int, "i32"]
U32 = Annotated[int, "u32"]
U64 = Annotated[int, "u64"]
F32 = Annotated[float, "f32"]
Pointer = Annotated[int, "pointer"]
Handle = Annotated[int, "handle"]
Text = Annotated[str, "text"]

_PARAMETER = re.compile(r"(out )?(\w+) (\w+)")


def declared_by(calls: type, prefixes: Mapping[str, str]) -> dict[str, EntryPoint]:
    """Return the entry points that the methods of a class declare by their annotations, by name.

    Their names begin with a prefix and a capital letter; C has another prefix in its place.
    """
    declared = {}
    for own, prefix in prefixes.items():
        for attribute in dir(calls):
            name = prefix + attribute.removeprefix(own)
            if attribute.startswith(own) and attribute[len(own)].isupper():
                parameters = _parameters(getattr(calls, attribute))
                if parameters is not None:
                    declared[name] = EntryPoint(name, parameters)
    return declared


def _parameters(method: Callable[..., object]) -> tuple[Parameter, ...] | None:
    """Return the parameters of C's function; None for a method that takes words as they come."""
    types = get_type_hints(method, include_extras=True)
    answer = types.pop("return")
    if not all(hasattr(kind, "__metadata__") for kind in types.values()):
        return None
    inputs = [Parameter(kind.__metadata__[0], name, False) for name, kind in types.items()]
    if not hasattr(answer, "__metadata__"):
        return tuple(inputs)
    *words, before = (
        answer.__metadata__ if isinstance(answer.__metadata__[-1], int) else (*answer.__metadata__, 0)
    )
    *kind, names = words
    kinds = kind or [part.__metadata__[0] for part in get_args(answer.__origin__)]
    results = [Parameter(kind, name, True) for kind, name in zip(kinds, names.split(), strict=True)]
    return (*inputs[:before], *results, *inputs[before:])


def declared_in(text: str) -> dict[str, EntryPoint]:
    """Return the entry points that a text declares, one in a line, by name."""
    declared = {}
    for name, inside in re.findall(r"^(\w+)\((.*)\)(?: = \d+)?$", text, re.MULTILINE):
        parameters = tuple(Parameter(kind, own, bool(out)) for out, kind, own in _PARAMETER.findall(inside))
        declared[name] = EntryPoint(name, parameters)
    return declared
