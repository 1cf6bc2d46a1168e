"""What a command is about: an instruction by its PTX text, or an atom by its CUTLASS name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch, instruction
from lanewise.isa.naming.shorthand import is_cutlass_name as is_atom_name
from lanewise.isa.naming.shorthand import possible_texts

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom, MMA_Atom
    from lanewise.isa import Instruction

#: A name with more meanings than this is refused with a list of them; of fewer the most common one is taken.
_FEW_MEANINGS = 4


def atom_named(text: str, kind: str | None = None) -> MMA_Atom | Copy_Atom:
    """The MMA_Atom or Copy_Atom of a CUTLASS name; a copy atom moves values of the given kind."""
    from lanewise.atoms import atom

    return atom(text.strip(), kind)


def copy_named(text: str) -> Copy_Atom | None:
    """The copy atom of a name that stands for no matrix instruction; None for anything else."""
    if not is_atom_name(text):
        return None
    from lanewise.atoms import Copy_Atom

    atom = atom_named(text)
    return atom if isinstance(atom, Copy_Atom) and atom.instruction is None else None


def asynchronous_atom(text: str) -> MMA_Atom | Copy_Atom | None:
    """The atom of a name that stands for tcgen05; None for anything else."""
    if not is_atom_name(text) or "SM100_" not in text:
        return None
    from lanewise.atoms import MMA_Atom

    atom = atom_named(text)
    if isinstance(atom, MMA_Atom):
        return atom if atom.umma is not None else None
    return atom if atom.operation.move is not None else None


def instruction_named(
    text: str,
    *,
    arch: str | None = None,
    a_source: str | None = None,
    stride: bool | None = None,
    descriptor: int | None = None,
) -> Instruction:
    """The instruction that a text spells or that an atom stands for, legal on the arch if one is given.

    >>> instruction_named("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").shape
    (16, 8, 16)
    """
    if not is_atom_name(text):
        return instruction(text, arch=arch, a_source=a_source, stride=stride, descriptor=descriptor)
    if (a_source, stride, descriptor) != (None, None, None):
        raise LanewiseError(
            f"{text} is an atom, whose name already decides this; leave --a-source, --stride and "
            "--descriptor out"
        )
    named = atom_named(text).instruction
    if named is None:
        raise LanewiseError(
            f"{text} is no matrix instruction but a plain copy; see `lanewise draw atom {text}`"
        )
    if arch is not None:
        named.require(arch)
    return named


def usual_instruction(
    text: str, *, arch: str | None = None, a_source: str | None = None, stride: bool | None = None
) -> Instruction:
    """The instruction of a text or a name; of a name with a few meanings the most common, and stderr names
    the others.

    >>> usual_instruction("ldmatrix x4").text
    'ldmatrix.sync.aligned.m8n8.x4.shared.b16'
    """
    others: list[str] = []
    if not is_atom_name(text):
        candidates = possible_texts(text, find_arch(arch) if arch is not None else None)
        if len(candidates) <= _FEW_MEANINGS:
            text, *others = candidates or [text]
    usual = instruction_named(text, arch=arch, a_source=a_source, stride=stride)
    if others:
        print(f"lanewise: taken as {usual.text}; it may also mean {', '.join(others)}", file=sys.stderr)
    return usual
