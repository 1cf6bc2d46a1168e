"""Kernels with a bug and their repaired twins, read from the files beside this one.

A line that ends in `// bug` is only in the kernel with the bug, one that ends in `// fix` only in its twin.
The arrow in `// bug <- race` or `// <- race` says which finding is due on that line; where several kinds are
named, one of them is. The line above a kernel has its launch, [grid, block, shared bytes], and its arguments
as `lanewise run` takes them; `!` after one makes it read-only. In silent.cu nothing is due.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lanewise
from lanewise.cli.launching import parse_argument
from lanewise.ptx import Entry, Module

FOLDER = Path(__file__).parent
KINDS = (
    "out of bounds", "misaligned", "read-only", "uninitialised", "race", "divergence", "barrier", "deadlock",
    "asynchronous copy", "wmma", "launch", "trap", "assertion", "endless",
)  # fmt: skip
_KERNEL = re.compile(
    r"^// (?P<what>.*)\n// \[(?P<launch>.*)\] ?(?P<arguments>.*)\n"
    r"(?:__global__ void|\.visible \.entry) (?P<name>\w+)\(",
    re.MULTILINE,
)
_MARK = re.compile(r"//(?: (bug|fix))?(?: <- (.*))?$")


@dataclass(frozen=True)
class Case:
    """One kernel: what is wrong with it in words, and the findings that are due, by line."""

    file: str
    name: str
    what: str
    arch: str
    launch: str
    arguments: tuple[str, ...]
    #: The line of the finding, and the kinds of which it is one.
    line: int
    kinds: tuple[str, ...]

    def entry(self, repaired: bool) -> Entry:
        """The kernel, or its twin."""
        return module(self.file, repaired)[self.name]

    def configuration(self, repaired: bool) -> Any:
        """Grid, block and shared memory; `a or b` is a with the bug, b without."""
        text = re.sub(r"(\d+) or (\d+)", r"\2" if repaired else r"\1", self.launch)
        return ast.literal_eval(f"({text})")

    def values(self) -> list[Any]:
        """New arguments."""
        parameters = self.entry(repaired=True).parameters
        made = []
        for number, text in enumerate(part for part in self.arguments if "=" not in part):
            value = parse_argument(text.removesuffix("!"), number, parameters[number])
            if text.endswith("!"):
                value.flags.writeable = False
            made.append(value)
        return made

    @property
    def options(self) -> dict[str, Any]:
        """`steps=` and its like."""
        return {
            name: int(value) for name, _, value in (part.partition("=") for part in self.arguments) if value
        }


def text_of(file: str, repaired: bool) -> str:
    """A file with the lines of one variant; the others are empty, so that numbers of lines stay."""
    unwanted = "bug" if repaired else "fix"
    lines = (FOLDER / file).read_text().split("\n")
    return "\n".join("" if (mark := _MARK.search(line)) and mark[1] == unwanted else line for line in lines)


@cache
def module(file: str, repaired: bool) -> Module:
    """A file compiled, with its bugs or without."""
    text = text_of(file, repaired)
    if file.endswith(".ptx"):
        return lanewise.load(text)
    return lanewise.cuda(text, arch=_arch(text))


def _arch(text: str) -> str:
    return text.split("\n", 1)[0].removeprefix("// arch: ").strip()


def cases(file: str) -> list[Case]:
    """The kernels of a file."""
    text = (FOLDER / file).read_text()
    lines = text.split("\n")
    found = []
    starts = [match.start() for match in _KERNEL.finditer(text)]
    for match, end in zip(_KERNEL.finditer(text), [*starts[1:], len(text)], strict=True):
        first, last = (text.count("\n", 0, place) for place in (match.start(), end))
        marks = [
            (number + 1, mark[2])
            for number in range(first, last)
            if (mark := _MARK.search(lines[number])) and mark[2]
        ]
        silent = file.startswith("silent")
        assert len(marks) == (0 if silent else 1), f"{file}: {match['name']} has {len(marks)} findings due"
        line, words = (0, "") if silent else marks[0]
        kinds = tuple(kind for kind in KINDS if kind in words)
        assert silent or (kinds and len(" ".join(kinds)) == len(words.strip())), f"{file}:{line}: {words}"
        found.append(
            Case(
                file,
                match["name"],
                match["what"],
                _arch(text),
                match["launch"],
                tuple(match["arguments"].split()),
                line,
                kinds,
            )
        )
    return found


FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".cu", ".ptx"))
CASES = [case for file in FILES for case in cases(file)]
