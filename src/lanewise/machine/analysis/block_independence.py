"""Decides whether the thread blocks of a kernel can run apart: none reads what another writes meanwhile."""

from typing import NamedTuple

from lanewise.machine.program.operands import BranchTarget
from lanewise.machine.program.ops import FunctionBody, Op, Program

#: Modifiers of loads that see what other threads wrote meanwhile.
_LOOKS_AGAIN = frozenset(("volatile", "acquire", "relaxed", "mmio"))


class Dependence(NamedTuple):
    """Why thread blocks depend on one another, and the instruction that shows it, if one does."""

    why: str
    op: Op | None = None


def dependence_between_blocks(program: Program) -> Dependence | None:
    """Return why the blocks of a kernel depend on one another while they run; None if nothing shows that."""
    if program.uses_heap:
        return Dependence("its blocks share a heap (malloc)")
    for body in program.bodies:
        spans = _loops(body)
        for position, op in enumerate(body.ops):
            # A device function may be called from a loop.
            repeated = body.function is not program.entry or any(position in span for span in spans)
            why = _why(op, repeated)
            if why:
                return Dependence(why, op)
    return None


def _loops(body: FunctionBody) -> list[range]:
    """Return the ranges of instructions that a backward branch repeats."""
    spans = []
    for position, op in enumerate(body.ops):
        for operand in op.operands:
            if isinstance(operand, BranchTarget):
                starts = [body.labels[label] for label in operand.positions]
                spans += [range(start, position + 1) for start in starts if start <= position]
    return spans


def _why(op: Op, repeated: bool) -> str:
    """Return why an instruction makes blocks depend on one another; empty if it does not."""
    if op.record.writes_surface:
        return "its blocks write into surfaces"
    if op.space not in ("global", "generic"):
        return ""
    if op.record.is_atomic:
        return "its blocks share memory by atomics"
    if repeated and op.record.is_plain_load and _LOOKS_AGAIN.intersection(op.modifiers):
        return "its blocks may wait for one another in a loop that looks at memory again and again"
    return ""
