"""Listings of machine code with the lines of the source between them, and with encodings.

nvdisasm names the file and the number of a line; here its text is written beside. PTX that was written by
hand, without `.loc`, is its own source.
"""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.ptx.model.statements import Operation
from lanewise.ptx.tools.assembler import Cubin, nvdisasm, ptxas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanewise.ptx.model.module import Module

_MARK = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<rest>.*)$')
#: The name of hand-written PTX in a listing.
PTX_NAME = "module.ptx"


def listing(module: Module, arch: str | None = None, *, lines: bool = False, encodings: bool = False) -> str:
    """Return the machine code of a module; with the lines of its source, and with encodings, on request."""
    cubin = assembled(module, arch, lines=lines)
    return listing_of(cubin, sources(module), lines=lines, encodings=encodings)


def assembled(module: Module, arch: str | None = None, *, lines: bool = False) -> Cubin:
    """Return the cubin of a module; with `lines` it knows where its instructions come from."""
    if not lines:
        return ptxas(module, arch)
    text = str(module) if module.files else marked(module)
    return ptxas(text, arch if arch is not None else module.target, options=["--generate-line-info"])


def listing_of(
    cubin: Cubin, texts: Mapping[str, str], *, lines: bool = False, encodings: bool = False
) -> str:
    """Return the machine code of a cubin as text; `texts` are sources by their file names."""
    text = nvdisasm(cubin, options=["-c", *(["-g"] if lines else []), *(["-hex"] if encodings else [])])
    return interleaved(text, texts) if lines else text


def sources(module: Module) -> dict[str, str]:
    """Return the texts that a module's lines are of, by the names of their files."""
    if not module.files:
        return {PTX_NAME: module.text or str(module)}
    return {} if module.cuda is None else {Path(module.cuda.name).name: module.cuda.text}


def interleaved(text: str, texts: Mapping[str, str]) -> str:
    """Return nvdisasm's listing with the text of each line of the source that it names.

    >>> interleaved('\\t//## File "/tmp/k.cu", line 2\\n  EXIT ;', {"k.cu": "void k() {\\n  return;"})
    '\\n// k.cu:2  return;\\n  EXIT ;'
    """
    known = {name: text.split("\n") for name, text in texts.items()}
    written = []
    for line in text.split("\n"):
        mark = _MARK.match(line)
        if mark is None:
            written.append(line)
            continue
        name, number = Path(mark["file"]).name, int(mark["line"])
        own = known.get(name)
        source = (
            own[number - 1] if own and 0 < number <= len(own) else linecache.getline(mark["file"], number)
        )
        inlined = f"   ({mark['rest'].strip()})" if mark["rest"].strip() else ""
        written.append(f"\n// {name}:{number}  {source.strip()}{inlined}")
    return "\n".join(written)


def marked(module: Module) -> str:
    """Return the PTX of a module with a `.loc` before each line that has an instruction."""
    text = module.text or str(module)
    lines = text.split("\n")
    starts = set()
    for function in (*module.entries.values(), *module.functions.values()):
        starts |= {statement.line for statement in function.body or () if isinstance(statement, Operation)}
    for number in sorted(starts, reverse=True):
        if 0 < number <= len(lines) and "{" not in lines[number - 1].split("//")[0].split(";")[0]:
            lines.insert(number - 1, f"\t.loc 1 {number} 0")
    return "\n".join(lines) + f'\n\t.file 1 "{PTX_NAME}"\n'
