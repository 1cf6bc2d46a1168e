"""Instructions that complete later, with their legality: tcgen05, bulk copies and tensor copies.

`isa/` itself has the matrix instructions whose fragments lie in registers.
"""

from lanewise.isa.asynchronous.descriptor import InstructionDescriptor
from lanewise.isa.asynchronous.instruction import (
    AsyncInstruction,
    async_instruction,
    async_instructions,
    is_asynchronous,
)
from lanewise.isa.asynchronous.products import Tcgen05Instruction, tcgen05_instruction
from lanewise.isa.asynchronous.table import families

__all__ = [
    "AsyncInstruction",
    "InstructionDescriptor",
    "Tcgen05Instruction",
    "async_instruction",
    "async_instructions",
    "families",
    "is_asynchronous",
    "tcgen05_instruction",
]
