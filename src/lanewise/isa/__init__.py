"""The catalogue of matrix instructions: text, legality per arch, operands and fragment layouts.

What an instruction computes is `arith/`, how it looks is `draw/`; both attach through `lanewise.engines`.
"""

from lanewise.isa.archs import ARCHS, arch_number, describe_targets, find_arch
from lanewise.isa.catalogue import instruction, instructions
from lanewise.isa.form import FAMILIES, Form
from lanewise.isa.instruction import Instruction
from lanewise.isa.lowering import Lowering
from lanewise.isa.operand import Holder, Operand, SelectedOperand
from lanewise.isa.operands import RowAddresses
from lanewise.isa.sparsity import Metadata

__all__ = [
    "ARCHS",
    "FAMILIES",
    "Form",
    "Holder",
    "Instruction",
    "Lowering",
    "Metadata",
    "Operand",
    "RowAddresses",
    "SelectedOperand",
    "arch_number",
    "describe_targets",
    "find_arch",
    "instruction",
    "instructions",
]
