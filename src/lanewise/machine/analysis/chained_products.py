"""Products of wgmma that follow one another: sums that nobody can see before the next product is added."""

from __future__ import annotations

from functools import lru_cache

from lanewise.machine.program.basic_blocks import end_of
from lanewise.machine.program.instruction_record import BlockEnd, Level
from lanewise.machine.program.operands import elements_of, registers_in
from lanewise.machine.program.ops import FunctionBody, Op, Program, all_registers


@lru_cache(maxsize=8)
def chained_products(program: Program) -> frozenset[int]:
    """Return the sites of products that may be computed together with the next one.

    The next one adds to the same registers by the same instruction, without a guard on either, and until it
    comes nothing names these registers, and control goes nowhere else.
    """
    return frozenset(
        op.site
        for body in program.bodies
        for position, op in enumerate(body.ops)
        if _is_product(op) and _is_followed(body, position)
    )


def _is_product(op: Op) -> bool:
    """Return whether an instruction is a product of a warpgroup that every warp executes."""
    return op.record.multiplies and op.record.level is Level.WARPGROUP and op.guard is None


def _is_followed(body: FunctionBody, position: int) -> bool:
    """Return whether nothing comes between a product and the next one on the same registers."""
    op, leaders = body.ops[position], set(body.labels.values())
    sums = set(registers_in(op.operands[0]))
    if len(sums) != len(elements_of(op.operands[0])):
        return False
    for number in range(position + 1, len(body.ops)):
        other = body.ops[number]
        if number in leaders:
            return False
        if _is_product(other):
            named = {register for operand in other.operands[1:] for register in registers_in(operand)}
            alike = other.source.head == op.source.head and other.operands[0] == op.operands[0]
            return alike and sums.isdisjoint(named)
        if end_of(other) is not BlockEnd.FALLTHROUGH or not sums.isdisjoint(all_registers(other)):
            return False
    return False
