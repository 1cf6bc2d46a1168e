"""The machine: PTX run on the CPU, a warp at a time, with every access checked.

From the bottom: `abi`, `errors` and `launch_info` are shared by all. `program` has a kernel before code
exists, with one record for each instruction; `analysis` has static facts; `codegen` writes LLVM code over a
warp, with the instructions of `arithmetic`, `tensor_core` and `warp_ops`; `compile` makes images of it,
`runtime` launches them, `checker` watches a launch. How users start a launch is `lanewise.launch`'s.
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
    from lanewise.machine.analysis import fidelity  # deferred: a launch does not need it

    return getattr(fidelity, name)
