"""The interface of what a checked launch adds to a kernel: steps of threaded code, and a scheduler hook.

The steps themselves, which watch and count, are in `checker/steps.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.codegen.function_code import FunctionCode, Record
from lanewise.machine.codegen.threaded_code import Word
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.ops import Op

#: Called by the scheduler when a barrier completes: the code being written, the block's record, the number.
BarrierHook = Callable[[FunctionCode, Record, Value], None]


class Instrumentation(Protocol):
    """Adds steps to the threaded code of a kernel. `data` is the module that has the words."""

    def at_begin(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps where a path of a warp, or its lanes with a guard, begins a block."""

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Return the steps before an instruction that is not of each lane alone."""

    def at_end(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Return the steps before the lanes of a path, or those with a guard, leave a block."""

    def barrier_hook(self) -> BarrierHook:
        """Return the function that the scheduler calls when a barrier completes."""

    def image(self) -> bytes:
        """Return the machine code of the functions that these steps call."""
