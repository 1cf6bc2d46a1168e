"""What a checked launch adds to a kernel: steps of its threaded code, and a hook of the scheduler.

Only the interface stands here. The steps themselves, which watch and count, are the checker's.
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
    """Steps that are put into the threaded code of one kernel. `data` is the module that has the words."""

    def at_begin(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Steps for a path of a warp that begins a basic block: all its lanes, or those of a guard."""

    def before(self, data: ir.Module, op: Op) -> list[Word]:
        """Steps for an instruction that is about to run and is not of each lane alone."""

    def at_end(self, data: ir.Module, block: BasicBlock, guarded: Op | None = None) -> list[Word]:
        """Steps for lanes that are about to go where a basic block sends them: all, or those of a guard."""

    def barrier_hook(self) -> BarrierHook:
        """What the scheduler calls when a barrier completes."""

    def image(self) -> bytes:
        """The machine code of the functions that these steps call."""
