"""The driver's linker: PTX texts go in, one comes out, and modules are loaded from it.

What one text declares as external, another one defines.
"""

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from lanewise.isa.archs import arch_number
from lanewise.virtual_gpu.driver.entry_points import U32, U64, Handle, Pointer
from lanewise.virtual_gpu.driver.modules import ptx_in
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DriverState

_HEADER = re.compile(r"^\s*\.(version|target|address_size)\b[^\n]*\n?", re.MULTILINE)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_FILE = re.compile(r"^(\s*\.file\s+)(\d+)", re.MULTILINE)
_LOCATION = re.compile(r"^(\s*\.loc\s+)(\d+)", re.MULTILINE)
#: Where a name is declared at the outermost level: its linkage, its kind, and the name.
_DECLARATION = re.compile(
    r"^[ \t]*(?P<linkage>\.(?:visible|extern|weak|common)\s+)?\.(?P<kind>func|entry|global|const|shared)\b"
    r"(?P<rest>[^;{]*?)(?P<end>[;{=])",
    re.MULTILINE,
)
_NAME = re.compile(r"([A-Za-z_$%][\w$]*)\s*(?:\(|\[|$)")


def linked(texts: Sequence[str]) -> str:
    """Return one PTX text of several: names of a text's own are kept apart, and `.extern` is resolved.

    >>> one = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.extern .global .u32 x;\\n"
    >>> two = ".version 8.1\\n.target sm_80\\n.address_size 64\\n.visible .global .u32 x = 5;\\n"
    >>> print(linked([one, two]))
    .version 8.1
    .target sm_80
    .address_size 64
    .visible .global .u32 x = 5;
    <BLANKLINE>
    """
    if len(texts) == 1:
        return texts[0]
    versions = [(int(major), int(minor)) for text in texts for major, minor in _VERSION.findall(text)]
    targets = [target for text in texts for target in _TARGET.findall(text)]
    major, minor = max(versions, default=(8, 0))
    target = max(targets, key=lambda arch: (arch_number(arch), arch), default="sm_80")
    bodies = [_body(text, number) for number, text in enumerate(texts)]
    defined = {name for body in bodies for name in _defined(body)}
    parts = [_without_resolved(body, defined) for body in bodies]
    head = [f".version {major}.{minor}", f".target {target}", ".address_size 64"]
    return "\n".join([*head, *(part for part in parts if part), ""])


def _body(text: str, number: int) -> str:
    """Return a text without its first lines and debug sections, with names and files of its own."""
    text = _HEADER.sub("", text.split("\0", 1)[0])
    text = re.sub(r"^\s*\.section\s+\.debug_\w+\s*\{[^}]*\}", "", text, flags=re.MULTILINE)
    if not number:
        return text
    text = _FILE.sub(lambda match: f"{match[1]}{int(match[2]) + 1000 * number}", text)
    text = _LOCATION.sub(lambda match: f"{match[1]}{int(match[2]) + 1000 * number}", text)
    own = {name for linkage, _, name, _ in _declarations(text) if linkage == "" and name is not None}
    for name in own:
        text = re.sub(rf"(?<![\w$%]){re.escape(name)}(?![\w$])", f"{name}__{number}", text)
    return text


def _declarations(text: str) -> list[tuple[str, str, str | None, re.Match[str]]]:
    """Return linkage, kind, name and place of what a text declares outside of functions."""
    out = []
    depth = 0
    at = 0
    for match in _DECLARATION.finditer(text):
        between = text[at : match.start()]
        depth += between.count("{") - between.count("}")
        at = match.start()
        if depth == 0:
            rest = re.sub(r"\.attribute\s*\([^)]*\)", "", match["rest"])
            rest = re.sub(r"^\s*\([^)]*\)", "", rest) if match["kind"] == "func" else rest
            rest = re.sub(r"\.\w+(\s+\d+)?", " ", rest.split("(", 1)[0]).strip()
            names = _NAME.findall(rest)
            linkage = (match["linkage"] or "").strip()
            out.append((linkage, match["kind"], names[-1] if names else None, match))
    return out


def _defined(text: str) -> set[str]:
    """Return the names that a text defines for others."""
    return {
        name
        for linkage, kind, name, match in _declarations(text)
        if name is not None
        and linkage != ".extern"
        and (match["end"] != ";" or kind not in ("func", "entry"))
    }


def _without_resolved(text: str, defined: set[str]) -> str:
    """Return a text without the external declarations of names that are defined."""
    for linkage, _, name, match in reversed(_declarations(text)):
        if linkage == ".extern" and name in defined and match["end"] == ";":
            text = text[: match.start()] + text[match.end() :].lstrip("\n")
    return text.strip("\n")


class Linking:
    """The inputs of a link so far, and its result once it is complete."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.result: ctypes.Array[ctypes.c_char] | None = None


class LinkCalls(DriverState):
    """A linker of PTX texts."""

    def cuLinkCreate_v2(self, count: U32, options: Pointer, values: Pointer) -> Annotated[Handle, "state", 3]:
        """Return a new link; options are for a compiler that is not used."""
        return self.handle(Linking())

    def cuLinkAddData_v2(self, state: int, type: int, data: int, bytes: int, *options: object) -> None:
        """Add an input that lies in memory: PTX, or a fatbin with PTX."""
        self.known(state, Linking).inputs.append(ptx_in(ctypes.string_at(data, bytes)))

    def cuLinkAddFile_v2(self, state: int, type: int, path: str, *options: object) -> None:
        """Add an input in a file: PTX, or a fatbin with PTX."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DriverError(Result.FILE_NOT_FOUND, f"{path}: {error.strerror}") from None
        self.known(state, Linking).inputs.append(ptx_in(data))

    def cuLinkComplete(self, state: Handle) -> Annotated[tuple[Pointer, U64], "image bytes", 1]:
        """Return address and size of the result, which is PTX; it lives as long as the link."""
        linking = self.known(state, Linking)
        if not linking.inputs:
            raise DriverError(Result.INVALID_VALUE, "a link without inputs")
        raw = linked(linking.inputs).encode() + b"\0"
        linking.result = ctypes.create_string_buffer(raw, len(raw))
        return ctypes.addressof(linking.result), len(raw)

    def cuLinkDestroy(self, state: Handle) -> None:
        """Forget a link and its result."""
        self.forget(state, Linking)
