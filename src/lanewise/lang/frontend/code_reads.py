"""What the bytecode of a function reads from outside: globals and closure variables, with their attributes.

`cfg.tile.rows` is one read, a *chain*: the attributes after the variable are known before the code runs, so
that a change of `cfg.name` does not count. `python_reads.py` follows the chains to values.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

#: A variable, and the attributes that are read from it at once.
Chain = tuple[str, ...]

_GLOBALS = frozenset(["LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"])
_CELLS = frozenset(["LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"])
_ATTRIBUTES = frozenset(["LOAD_ATTR", "LOAD_METHOD"])
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
    found: dict[str, dict[Chain, None]] = {"global": {}, "cell": {}, "import": {}}
    attributes: set[str] = set()
    for each in _with_inner(code):
        for kind, chain in _chains(each, attributes):
            if kind != "cell" or chain[0] in code.co_freevars:
                found[kind][chain] = None
    imports = tuple(name for (name,) in found["import"])
    return CodeReads(tuple(found["global"]), tuple(found["cell"]), imports, frozenset(attributes))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions defined in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _with_inner(each)


def _chains(code: CodeType, attributes: set[str]) -> Iterator[tuple[str, Chain]]:
    """Yield each read of a variable with its kind; the names of all attributes are added to `attributes`."""
    kind, chain = "", []
    for each in dis.get_instructions(code):
        name = each.opname
        if name in _FILLERS:
            continue
        if name in _ATTRIBUTES:
            attributes.add(each.argval)
            chain.append(each.argval)
            continue
        if kind:
            yield kind, tuple(chain)
        kind = "global" if name in _GLOBALS else "cell" if name in _CELLS else ""
        chain = [each.argval]
        if name == "IMPORT_NAME":
            yield "import", (each.argval,)
        elif name in ("IMPORT_FROM", "LOAD_SUPER_ATTR"):
            attributes.add(each.argval)
    if kind:
        yield kind, tuple(chain)
