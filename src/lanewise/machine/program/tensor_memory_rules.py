"""Rules for the instructions of tensor memory in a whole program, which are checked before it is compiled."""

from __future__ import annotations

from lanewise.errors import LanewiseError
from lanewise.isa.archs import ARCHS, describe_targets
from lanewise.isa.asynchronous import async_instruction
from lanewise.machine.errors import Unsupported
from lanewise.machine.program.ops import Op, Program

#: The modifiers that say whether an instruction is one of a block or of a pair of blocks.
GROUPS = ("cta_group::1", "cta_group::2")


def check_tensor_memory(program: Program) -> None:
    """Raise an error where a program breaks a rule that ptxas holds it to, too.

    Its target has to have each form, and all of them are for one block, or all for a pair of blocks.
    """
    sites = [op for op in program.sites if op.record.touches_tensor_memory]
    for op in sites:
        _check_target(op, program.module.arch)
    of_group = {group: next((op for op in sites if op.has(group)), None) for group in GROUPS}
    one, pair = of_group.values()
    if one is not None and pair is not None:
        raise Unsupported(
            f"line {pair.line}: '{pair.source}' is for a pair of blocks, and '{one.source}' (line {one.line})"
            " for one: the tcgen05 instructions of a kernel all have .cta_group::1 or all .cta_group::2"
        )


def _check_target(op: Op, target: str) -> None:
    """Raise an error if the GPUs that the PTX is for do not have an instruction."""
    if target not in ARCHS:
        return
    try:
        archs = async_instruction(op.head).archs
    except LanewiseError:  # no form of the catalogue: its lowering looks at it
        return
    if target not in archs:
        needed = describe_targets(archs)
        raise Unsupported(f"line {op.line}: '{op.source}' needs {needed}; this PTX is for {target}")
