"""The line of the source that an instruction of the PTX came from, as messages name it."""

import linecache
import os
import re
from copy import copy
from pathlib import Path

from lanewise.machine.errors import Unsupported
from lanewise.ptx import Loc, Module, Operation
from lanewise.ptx.notebook_cells import notebook_cell

_LINE = re.compile(r"line (\d+)\b")


def source_line(module: Module, loc: Loc) -> str:
    """Return file and line of the source; for inlined code from a header, those of the caller.

    A file that does not exist is given by its name only.
    """
    return _place(*module.origin(loc))


def short_place(place: str) -> str:
    """Return a file and line with the path from the current folder, if the file is below that."""
    return place.removeprefix(f"{Path.cwd()}{os.sep}")


def source_chain(module: Module, loc: Loc) -> tuple[str, ...]:
    """Return file and line of the source, then those of each call that inlined it; empty if none did."""
    chain = module.inlined_through(loc)
    return tuple(_place(*frame) for frame in chain) if len(chain) > 1 else ()


def _place(name: str, line: int) -> str:
    if Path(name).exists():
        return f"{name}:{line}"
    return f"{notebook_cell(name) or Path(name).name}:{line}"


def source_texts(module: Module, name: str) -> list[str]:
    """Return the lines of a file as the kernel was compiled from it; none if they are not at hand."""
    compiled = module.cuda
    if compiled is not None and Path(compiled.name).name == Path(name).name:
        return compiled.text.split("\n")
    return [line.rstrip("\n") for line in linecache.getlines(name)]


def source_text(module: Module, source: str) -> str:
    """Return the text of a line of the source, `kernel.cu:12`, without the white space around it."""
    name, _, line = source.rpartition(":")
    lines = source_texts(module, name)
    return lines[int(line) - 1].strip() if 0 < int(line) <= len(lines) else ""


def with_source(error: Unsupported, module: Module) -> Unsupported:
    """Return an error that names a line of the PTX with the line of the source beside it, if it is known."""
    match = _LINE.match(str(error))
    if match is None or "\n" in str(error):  # no line, or its source has been added before
        return error
    functions = (*module.entries.values(), *module.functions.values())
    statements = (statement for function in functions for statement in function.body or ())
    for statement in statements:
        if isinstance(statement, Operation) and statement.line == int(match[1]) and statement.loc is not None:
            named = copy(error)
            named.args = (f"{error}\n    from {source_line(module, statement.loc)}",)
            return named
    return error
