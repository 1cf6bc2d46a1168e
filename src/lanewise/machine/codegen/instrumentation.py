"""The interface of what a checked launch adds to a kernel: steps of threaded code, and a scheduler hook.

The steps themselves, which watch and count, are in `checker/steps.py`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.codegen.threaded_code import Word
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op

#: Called by the scheduler when a barrier completes: the code being written, the block's record, the number of
#: the barrier, and how many threads it is for (0: the whole block).
BarrierHook = Callable[[FunctionCode, Record, Value, Value], None]


class Instrumentation(Protocol):
    """Adds steps to the threaded code of a kernel. `data` is the module that has the words."""

    def registers_read(self) -> Iterable[Register]:
        """Return the registers that steps read besides those of the instructions that they stand beside."""

    def at_begin(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps where a warp begins a basic block: for all its lanes, or those of a guard."""

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps before an instruction that is not of each lane alone."""

    def after(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps after an instruction that has run."""

    def at_end(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps before lanes leave a basic block: for all of them, or those of a guard."""

    def barrier_hook(self) -> BarrierHook:
        """Return the function that the scheduler calls when a barrier completes."""

    def library(self) -> tuple[str, Callable[[], str]]:
        """Return the key of the functions that these steps call, and what writes their LLVM IR."""
