"""What the bytecode of a function reads from outside: globals and closure variables, with their attributes.

`cfg.tile.rows` is one read, a *chain*: the attributes after the variable are known before the code runs, so
that a change of `cfg.name` does not count. `python_reads.py` follows the chains to values.
"""

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

#: A variable, and the attributes that are read from it at once.
Chain = tuple[str, ...]

_GLOBALS = frozenset(["LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"])
_CELLS = frozenset(["LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"])
_ATTRIBUTES = frozenset(["LOAD_ATTR", "LOAD_METHOD"])
#: Instructions whose argument is the number of a name, after some bits of flags.
_SHIFTS = {
    "LOAD_GLOBAL": 1, "LOAD_NAME": 0, "LOAD_FROM_DICT_OR_GLOBALS": 0, "LOAD_METHOD": 0,
    "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0, "LOAD_SUPER_ATTR": 2,
    "IMPORT_NAME": 0, "IMPORT_FROM": 0,
}  # fmt: skip
#: Instructions that stand between two others and do nothing.
_FILLERS = frozenset(["EXTENDED_ARG", "CACHE", "NOP"])
#: Functions whose code is remembered.
_MOST_CODES = 4096


@dataclass(frozen=True)
class CodeReads:
    """What a function, with the functions defined in it, reads from outside."""

    globals: tuple[Chain, ...]
    cells: tuple[Chain, ...]
    #: Modules that it imports when it runs, as they are written.
    imports: tuple[str, ...]
    #: The names of all attributes that it reads of anything.
    attributes: frozenset[str]


@lru_cache(_MOST_CODES)
def code_reads(code: CodeType) -> CodeReads:
    """Return what a code object reads from outside.

    >>> def example():
    ...     return len(cfg.tile.rows)
    >>> code_reads(example.__code__).globals
    (('len',), ('cfg', 'tile', 'rows'))
    """
    chains: dict[str, dict[Chain, None]] = {"global": {}, "cell": {}, "import": {}}
    attributes: set[str] = set()
    for inner in _with_inner(code):
        for kind, chain in _chains(inner, attributes):
            if kind != "cell" or chain[0] in code.co_freevars:
                chains[kind][chain] = None
    imports = tuple(name for (name,) in chains["import"])
    return CodeReads(tuple(chains["global"]), tuple(chains["cell"]), imports, frozenset(attributes))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _chains(code: CodeType, attributes: set[str]) -> Iterator[tuple[str, Chain]]:
    """Yield each read of a variable with its kind; the names of all attributes are added to `attributes`."""
    kind, chain = "", [""]
    for opcode, name in _named_instructions(code):
        if opcode in _ATTRIBUTES:
            attributes.add(name)
            chain.append(name)
            continue
        if kind:
            yield kind, tuple(chain)
        kind = "global" if opcode in _GLOBALS else "cell" if opcode in _CELLS else ""
        chain = [name]
        if opcode == "IMPORT_NAME":
            yield "import", (name,)
        elif opcode in ("IMPORT_FROM", "LOAD_SUPER_ATTR"):
            attributes.add(name)
    if kind:
        yield kind, tuple(chain)


def _named_instructions(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a code object with the names that they read; no name for others.

    `dis.get_instructions` does the same, in a time that grows with the square of the code's branches.
    """
    names = code.co_names
    cells = [*code.co_varnames, *(name for name in code.co_cellvars if name not in code.co_varnames)]
    variables, extended = [*cells, *code.co_freevars], 0
    for opcode, byte in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        word, argument = dis.opname[opcode], extended | byte
        extended = argument << 8 if word == "EXTENDED_ARG" else 0
        if word in _FILLERS:
            continue
        if word in _CELLS:
            yield word, variables[argument]
        elif word in _SHIFTS:
            yield word, names[argument >> _SHIFTS[word]]
        else:
            yield word, ""
