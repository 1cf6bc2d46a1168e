"""How many registers a thread begins with in a kernel that moves them between warpgroups by setmaxnreg."""

from __future__ import annotations

from math import prod

from lanewise.isa.multiprocessor import MOST_REGISTERS, REGISTERS
from lanewise.machine.program.instruction_record import Order
from lanewise.machine.program.ops import Program
from lanewise.ptx import Immediate

#: Registers of a thread come in steps of this.
STEP = 8


def registers_at_launch(program: Program) -> int:
    """Return how many registers ptxas gives each thread at the start; 0 where it ignores setmaxnreg.

    A bound has to be known: `.maxnreg`, or the most threads and the least blocks of a multiprocessor. ptxas
    gives what the bound allows, but no more than the largest number that a setmaxnreg asks for (held against
    ptxas 13.0).
    """
    entry = program.entry
    bound, blocks = entry.limit("maxnreg"), entry.limit("minnctapersm")
    threads = entry.limit("reqntid") or entry.limit("maxntid")
    asked = [
        op.operands[0].bits
        for op in program.sites
        if op.record.orders is Order.REGISTERS and isinstance(op.operands[0], Immediate)
    ]
    if bound is not None:
        allowed = bound[0]
    elif threads is not None and blocks is not None:
        allowed = REGISTERS // max(prod(threads) * blocks[0], 1) // STEP * STEP
    else:
        return 0
    return min(allowed, MOST_REGISTERS, max(asked, default=0))
