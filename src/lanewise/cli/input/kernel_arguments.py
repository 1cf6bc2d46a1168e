"""Arguments of a kernel as they are written on a command line: `.npy` files, and what needs no file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.ptx import launch_text

if TYPE_CHECKING:
    from lanewise.ptx import Variable


def parse_argument(text: str, number: int, variable: Variable) -> Any:
    """Return the value of one `--arg`, for the parameter that it is for; `number` counts from 0."""
    path = Path(text)
    if path.suffix == ".npy" or (len(text) < 4096 and "\0" not in text and path.is_file()):
        from lanewise.cli.input.arrays import load

        return load(path)
    return launch_text.parse_argument(text, number, variable)
