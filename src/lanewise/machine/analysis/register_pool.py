"""How many registers a thread begins with in a kernel that moves them between warpgroups by setmaxnreg.

ptxas decides this. Where the kernel bounds its registers, a rule says what ptxas does; else ptxas is asked.
The rule was held against ptxas 13.0.88, and a test repeats that with the ptxas that is installed: with
`.maxnreg`, or with `.maxntid` (or `.reqntid`) and `.minnctapersm`, a thread begins with what the bound
allows, but with no more than the largest number that a setmaxnreg.inc asks for; setmaxnreg.dec does not
count. Without such a bound there is no rule: with `.maxntid` alone ptxas drops setmaxnreg from most kernels
(its note C7508), and keeps it where wgmma accumulators fill the registers that so many threads may have.
"""

from math import prod

import lanewise.disk_cache as disk_cache  # not from lanewise, which would look for it in the language first
from lanewise.errors import LanewiseError
from lanewise.isa.multiprocessor import MOST_REGISTERS, REGISTERS, SCHEDULERS, WARP
from lanewise.machine.program.instruction_record import Order
from lanewise.machine.program.ops import Op, Program
from lanewise.ptx import Immediate
from lanewise.ptx.targets import assembled_for

#: Registers of a thread come in steps of this.
STEP = 8
#: In place of a number of registers: nobody knows it; ptxas leaves setmaxnreg out.
UNKNOWN, IGNORED = 0, -1
#: The seconds that ptxas may take for its answer.
_PATIENCE = 120.0
_IGNORED_NOTE = "'setmaxnreg' ignored"


def registers_at_launch(program: Program, arch: str) -> int:
    """Return how many registers a thread has when the kernel begins, or UNKNOWN or IGNORED."""
    asked = [op for op in program.sites if op.record.orders is Order.REGISTERS]
    if not asked:
        return UNKNOWN
    bound = _bound(program)
    return _by_ptxas(program, arch) if bound is None else _by_rule(bound, asked)


def _bound(program: Program) -> int | None:
    """Return the registers that a thread may have by what the kernel declares; None if that is too little."""
    entry = program.entry
    most, blocks = entry.limit("maxnreg"), entry.limit("minnctapersm")
    threads = entry.limit("reqntid") or entry.limit("maxntid")
    if most is not None:
        return most[0]
    if threads is None or blocks is None:
        return None
    warps = -(-prod(threads) // WARP) * blocks[0]
    groups = max(-(-warps // SCHEDULERS), 1)  # ptxas counts as many warps as every scheduler has one of
    return REGISTERS // (groups * SCHEDULERS * WARP) // STEP * STEP


def _by_rule(bound: int, asked: list[Op]) -> int:
    requested = [
        op.operands[0].bits for op in asked if op.has("inc") and isinstance(op.operands[0], Immediate)
    ]
    return min(bound, MOST_REGISTERS, max(requested, default=MOST_REGISTERS))


def _by_ptxas(program: Program, arch: str) -> int:
    """Return what ptxas gives a thread, from the cache if it was asked before; UNKNOWN without ptxas."""
    from lanewise.ptx.tools.assembler import ptxas  # few kernels need it

    module, name = program.module, program.entry.name
    try:
        target = assembled_for(module.target, arch)
        request = f"registers at launch\0{target}\0{name}\0{module}"
        kept = disk_cache.read(request, ".registers")
        if kept is None:
            cubin = ptxas(module, target, options=("--entry", name), timeout=_PATIENCE)
            count = IGNORED if _IGNORED_NOTE in cubin.log else cubin.resources[name].registers
            kept = str(count).encode()
            disk_cache.keep(request, ".registers", kept)
        return int(kept)
    except (LanewiseError, OSError, KeyError):
        return UNKNOWN
