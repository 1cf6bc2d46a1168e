"""The expression of a source line that an access came from, such as `tile[threadIdx.x][…]`."""

import linecache
import re
from pathlib import Path

from lanewise.ptx import Module

#: Indices longer than this are left out of a message.
MOST_CHARACTERS = 12
_INDEXED = re.compile(r"([A-Za-z_]\w*(?:(?:\.|->)\w+)*)\s*(?=\[)")
_ASSIGNMENT = re.compile(r"(?<![=!<>+\-*/%&|^])(?:=|[+\-*/%&|^]=|<<=|>>=)(?!=)")


def source_text(module: Module, place: str | None) -> str:
    """Return the text of a line of the source, `file:line`; empty if the source is not at hand."""
    if place is None:
        return ""
    name, _, number = place.rpartition(":")
    compiled = module.cuda
    if compiled is not None and Path(compiled.name).name == Path(name).name:
        lines = compiled.text.split("\n")
        return lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ""
    return linecache.getline(name, int(number)).strip()


def expression(text: str, name: str, writes: bool) -> str:
    """Return the indexed expression that a line reads or writes, shortened; empty if it is not plain which.

    `name` is that of the variable; if it is empty, any will do.

    >>> line = "out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];"
    >>> expression(line, "tile", False), expression(line, "", True)
    ('tile[threadIdx.x][…]', 'out[…]')
    """
    assigned = _ASSIGNMENT.search(text)
    if assigned is None:
        sides = text
    elif writes:
        sides = text[: assigned.start()]
    else:
        sides = text[assigned.end() :] if assigned[0] == "=" else text
    uses = [use for use in _indexed(sides) if not name or use[0].split(".")[0] == name]
    if writes and assigned is not None:
        uses = uses[-1:]  # what stands next to the sign of an assignment
    if name and not uses:
        uses = [use for use in _indexed(text) if use[0].split(".")[0] == name]
    if len({use[0] for use in uses}) != 1:
        return ""
    variable, indices = uses[0]
    return variable + "".join(f"[{index if len(index) <= MOST_CHARACTERS else '…'}]" for index in indices)


def _indexed(text: str) -> list[tuple[str, list[str]]]:
    """Return the names in a text that are indexed, each with its indices; not those inside an index."""
    uses = []
    position = 0
    while (match := _INDEXED.search(text, position)) is not None:
        indices, position = [], match.end()
        while text[position : position + 1] == "[":
            end = _closing(text, position)
            indices.append(text[position + 1 : end].strip())
            position = end + 1
        uses.append((match[1], indices))
    return uses


def _closing(text: str, start: int) -> int:
    """Return where a bracket is closed; the end of the text if it is not."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)
