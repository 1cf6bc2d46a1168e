"""KernelError: what is wrong with a kernel, at which line of which Python file, and what to do.

It is raised while a kernel is made, traced or launched; the machine reports what a running kernel does.
"""

import sys
from pathlib import Path

from lanewise.errors import LanewiseError


def _shown(file: str) -> str:
    """Return the name of a file without its folders; of a cell of a notebook, its number."""
    cell = ""
    if "IPython" in sys.modules:
        from lanewise.ptx.notebook_cells import notebook_cell

        cell = notebook_cell(file)
    return cell or Path(file).name


class KernelError(LanewiseError):
    """A mistake in a kernel. `file` and `line` say where it is; the message begins with them.

    >>> print(KernelError("a type changed", "gemm.py", 12))
    gemm.py:12: a type changed
    """

    def __init__(self, message: str, file: str = "", line: int = 0, source: str = "") -> None:
        self.message, self.file, self.line, self.source = message, file, line, source
        location = f"{_shown(file)}:{line}: " if file else ""
        super().__init__(f"{location}{message}" + (f"\n    {source}" if source else ""))
