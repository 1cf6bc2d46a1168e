"""Whether the blocks of a kernel can run apart from each other: none reads what another writes meanwhile."""

from __future__ import annotations

from typing import NamedTuple

from lanewise.machine.program.operands import BranchTarget
from lanewise.machine.program.ops import FunctionBody, Op, Program

#: Modifiers of loads that look again at what others may have written.
_LOOKS_AGAIN = frozenset(("volatile", "acquire", "relaxed", "mmio"))


class Dependence(NamedTuple):
    """Why blocks need each other, and the instruction that shows it, if one does."""

    why: str
    op: Op | None = None


def dependence_between_blocks(program: Program) -> Dependence | None:
    """Why blocks of a kernel need one another while they run; None if nothing says that they do."""
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
    """Spans of instructions that a branch backwards repeats."""
    spans = []
    for position, op in enumerate(body.ops):
        for operand in op.operands:
            if isinstance(operand, BranchTarget):
                starts = [body.labels[each] for each in operand.positions]
                spans += [range(start, position + 1) for start in starts if start <= position]
    return spans


def _why(op: Op, repeated: bool) -> str:
    if op.space not in ("global", "generic"):
        return ""
    if op.record.is_atomic:
        return "its blocks share memory by atomics"
    if repeated and op.record.is_plain_load and _LOOKS_AGAIN.intersection(op.modifiers):
        return "its blocks may wait for one another in a loop that looks at memory again and again"
    return ""
