"""Emission of tcgen05: forms of the catalogue, which the arch that is traced for must have."""

from lanewise.errors import IllegalInstruction
from lanewise.isa.asynchronous import async_instruction
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.traced import describe

#: The target of kernels that are traced for no arch.
_TARGET = "sm_100a"


def emit_tcgen05(text: str, *operands: object) -> None:
    """Emit a form of tcgen05, and note which targets have it."""
    require_tcgen05(text)
    current().emit(text, *operands)


def require_tcgen05(text: str) -> None:
    """Note that the kernel has a form of tcgen05; an error if the arch that is traced for lacks it."""
    builder, instruction = current(), async_instruction(text)
    try:
        arch = instruction.require(builder.arch or _TARGET)
    except IllegalInstruction as error:
        raise builder.error(f'{error}: launch or trace the kernel with arch="{_TARGET}"') from None
    builder.need_specific(text, arch, instruction.since)


def group_word(cta_group: object) -> str:
    """Return the word of an instruction of one block, or of a pair of blocks."""
    if isinstance(cta_group, bool) or cta_group not in (1, 2):
        raise current().error(
            f"cta_group is 1 (this block) or 2 (the pair of blocks of a cluster), not {describe(cta_group)}"
        )
    return f"cta_group::{cta_group}"
