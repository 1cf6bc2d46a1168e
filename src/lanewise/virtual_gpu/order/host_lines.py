"""The line of the program that called into a framework or into the driver."""

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType

from lanewise.virtual_gpu.order.native_lines import native_line

#: The folder of this library.
_OWN = str(Path(__file__).parents[2])


@cache
def _is_library(file: str) -> bool:
    """Return whether a file belongs to Python, to this library or to an installed package."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file.startswith(("<frozen", "<string", _OWN)) or any(
        file.startswith(folder + os.sep) for folder in folders if folder
    )


def host_line() -> str | None:
    """Return the file and line of the program's innermost frame, in Python or in C++; None if unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return native_line()
