"""Finding atoms by the names of CUTLASS's operations."""

import re
from contextlib import suppress
from fnmatch import fnmatchcase

from lanewise.atoms.copy_atom import Copy_Atom
from lanewise.atoms.copy_names import copy_operations, find_copy
from lanewise.atoms.mma_atom import MMA_Atom
from lanewise.atoms.names import (
    find_operation,
    name_of_instruction,
    operation_names,
    operations,
    unknown_name,
)
from lanewise.atoms.template import unwrapped
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.isa import Instruction, instruction
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.isa.naming.shorthand import is_cutlass_name
from lanewise.tracebacks import short_traceback


@short_traceback
def atom(name: str | Instruction, kind: object = None) -> MMA_Atom | Copy_Atom:
    """Return the MMA or copy atom of an operation of CUTLASS, by its name with template arguments.

    `kind` is the type of the values that a copy atom moves (a C++ name, format, dtype or number of bits). In
    place of a name you can give an instruction, as PTX, as a short name or as an object.

    >>> atom("SM80_16x8x16_F32F16F16F32_TN")
    MMA_Atom(SM80_16x8x16_F32F16F16F32_TN)
    >>> atom("SM75_U32x4_LDSM_N", "half_t")
    Copy_Atom(SM75_U32x4_LDSM_N, half_t)
    >>> atom("Copy_Atom<SM75_U32x4_LDSM_N, half_t>") == atom("SM75_U32x4_LDSM_N", "half_t")
    True
    >>> atom("m16n8k16 bf16")
    MMA_Atom(SM80_16x8x16_F32BF16BF16F32_TN)
    """
    if isinstance(name, Instruction):
        name = _name_of(name)
    if isinstance(name, str) and not is_cutlass_name(name) and re.search(r"[.\s]", name.strip()):
        with suppress(IllegalInstruction):  # else it is no instruction either
            name = _name_of(instruction(name))
    name, own = unwrapped(name)
    kind = kind if own is None else own
    operation = find_operation(name)
    if operation is not None:
        if kind is not None:
            raise LanewiseError(f"{name} multiplies; a type of values ({kind!r}) is for copy atoms only")
        return MMA_Atom(*operation)
    copy = find_copy(name)
    if copy is not None:
        return Copy_Atom(copy, kind)
    if name.startswith("UniversalFMA"):
        raise LanewiseError(f"{name} is an fma of one thread; atoms are matrix instructions")
    raise unknown_name("operation", name, (*operation_names(), *copy_operations()))


def _name_of(wanted: Instruction) -> str:
    """CUTLASS's name of the operation that is an instruction, or an error if it has none."""
    if isinstance(wanted, Tcgen05Instruction):
        return name_of_instruction(wanted)
    for operation in operations():
        if operation.instruction == wanted:
            return operation.name.partition("<")[0] if operation.parameters else operation.name
    for name, copy in copy_operations().items():
        if copy.instruction == wanted:
            return name
    raise LanewiseError(f"CUTLASS has no operation for {wanted.text}")


def instruction_of(name: str) -> Instruction | None:
    """The matrix instruction that an atom stands for, by CUTLASS's name; None for a plain copy.

    >>> instruction_of("MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>").text
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
    """
    return atom(name.strip()).instruction


def atoms(pattern: str = "*") -> list[str]:
    """Return the names of operations that have a pattern in them; * and ? stand for anything.

    If none has it as it is written, namespaces may be left out: "SM90_64x128x16" finds those of SM90::GMMA.

    >>> atoms("SM75*LDSM_N")
    ['SM75_U32x1_LDSM_N', 'SM75_U32x2_LDSM_N', 'SM75_U32x4_LDSM_N']
    """
    if not isinstance(pattern, str):
        raise LanewiseError(f"a pattern is text such as 'SM80*F16*', not {pattern!r}")
    names = [*operation_names(), *copy_operations()]

    def matching(wanted: str) -> list[str]:
        return [name for name in names if fnmatchcase(name.lower(), f"*{wanted.lower()}*")]

    return matching(pattern) or matching(re.sub(r"::|_", "*", pattern))
