"""`load`: PTX from a file, or as text, to a Module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.ptx.model.module import Module
from lanewise.ptx.syntax.parser import parse
from lanewise.ptx.syntax_error import PtxSyntaxError
from lanewise.ptx.text_or_path import read_text_or_path
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from pathlib import Path


@short_traceback
def load(path_or_text: str | Path) -> Module:
    """Read PTX: a Path, the path of a file as text, or the PTX itself.

    >>> load(".version 9.0\\n.target sm_80\\n.visible .entry k() { ret; }")["k"]
    <entry k>
    """
    text, path = read_text_or_path(path_or_text, suffixes=(".ptx",), what="PTX")
    if path is None:
        if ".version" not in text and "\n" not in text.strip():
            raise LanewiseError(
                f"{text.strip()[:80]!r} is neither a file nor PTX (which begins with .version)"
            )
        return parse(text)
    if path.endswith((".cu", ".cuh")):
        raise LanewiseError(f"{path} is CUDA C++, not PTX: lanewise.cuda(path, arch=…) compiles it")
    if text.startswith("\x7fELF"):
        raise LanewiseError(f"{path} is a cubin or another ELF file, not PTX")
    try:
        return parse(text)
    except PtxSyntaxError as error:
        error.add_note(f"in {path}")
        raise
