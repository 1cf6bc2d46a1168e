"""The machine: PTX run on the CPU, a warp at a time, with every access checked.

Passes: `resolve` (names), `blocks` (control flow), `write` (LLVM IR, through the files of each kind of
instruction, and `script`, what is data of it), `schedule` (warps and blocks), `run` (launches). What the
arguments of a launch look like to a user is `lanewise.launch`'s.
"""

from typing import TYPE_CHECKING

from lanewise.machine.compile.compiled import Compiled, compiled
from lanewise.machine.errors import Deadlock, KernelFault, Unsupported
from lanewise.machine.runtime.launch import Launch
from lanewise.ptx import Shape

__all__ = [
    "Compiled", "Deadlock", "KernelFault", "Launch", "Note", "Shape", "Unsupported", "compiled", "fidelity",
]  # fmt: skip

if TYPE_CHECKING:
    from lanewise.machine.analysis.fidelity import Note, fidelity


def __getattr__(name: str) -> object:
    if name not in ("Note", "fidelity"):
        raise AttributeError(f"module 'lanewise.machine' has no attribute {name!r}")
    from lanewise.machine.analysis import fidelity

    return getattr(fidelity, name)
