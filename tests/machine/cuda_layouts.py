"""Puts a layout that a check proposes for an array of CUDA C++ into the source, as its text says."""

import re

from lanewise.machine.checker.report import Proposal

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class NotIndexed(Exception):
    """The array is used otherwise than by all of its indices, or its declaration is not known."""


def applied(source: str, proposal: Proposal) -> str:
    """Return a source with a proposal in it; NotIndexed if pointers into the array are used."""
    name, text = proposal.array, _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), source)
    index, extents = _parsed(name, proposal.text)
    names = _index_names(index) if index else []
    found, position = "", 0
    for use in re.finditer(rf"(?<![\w.]){re.escape(name)}\b", text):
        start = text.rfind("\n", 0, use.start()) + 1
        indices, end = _indices(text, use.end())
        found += text[position : use.start()]
        position = end
        if "__shared__" in text[start : use.start()]:
            found += name + (extents or text[use.end() : end])
        elif index is None and indices:
            found += text[use.start() : end]
        elif index is not None and len(indices) == len(names):
            values = {one: f"({two})" for one, two in zip(names, indices, strict=True)}
            found += name + _replaced(index.removeprefix(name), values)
        else:
            raise NotIndexed(text[start:end])
    return found + text[position:]


def _replaced(index: str, values: dict[str, str]) -> str:
    """Return an index expression with values for its variables."""
    return re.sub(r"\b[a-j]\b", lambda found: values[found[0]], index)


def _parsed(name: str, text: str) -> tuple[str | None, str]:
    """Return the index expression and the extents that the text of a proposal has, if it has them."""
    if match := re.fullmatch(rf"({name}\[.*\]) of [\w ]+ {name}(\[\d+\])", text):
        return match[1], match[2]
    if match := re.fullmatch(rf"[\w ]+ {name}((?:\[\d+\])+)", text):
        return None, match[1]
    if text.startswith(f"{name}["):
        return text, ""
    raise NotIndexed(text)


def _index_names(index: str) -> list[str]:
    """Return the variables that stand for the indices: the first word of each bracket."""
    return re.findall(r"\[([a-j])\b", index)


def _indices(text: str, start: int) -> tuple[list[str], int]:
    found = []
    while text[start : start + 1] == "[":
        depth, end = 0, start
        while True:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            if depth == 0:
                break
            end += 1
        found.append(text[start + 1 : end])
        start = end + 1
    return found, start
