"""Finds what compilers leave of a variable without a value: a NaN that the source does not ask for.

LLVM computes a sum or product with an undefined operand ahead, as NaN. So a register that was never set is
gone from the PTX of straight-line code; the constant, 0x7FC00000 or its like in double precision, stays.
"""

from __future__ import annotations

import re

from lanewise.machine.program.instruction_record import Level, Role
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate, Module

#: The quiet NaNs that LLVM makes; those of CUDA's math functions are others.
_NANS = frozenset((0x7FC00000, 0x7FF8000000000000))
#: How PTX spells them.
_IN_PTX = re.compile(r"0f7FC00000|2143289344|0d7FF8000000000000|9221120237041090560", re.IGNORECASE)
#: How a source asks for a NaN: by its name (NAN, nanf, quiet_NaN), by its bits, or as 0/0.
_ASKED_FOR = re.compile(
    r"nan(?![a-eg-z])|7fc0|7ff8|2143289344|9221120237041090560|\b0\.?0*f?\s*/\s*\(?-?0\.?0*f?\b",
    re.IGNORECASE,
)


def has_folded_values(module: Module) -> bool:
    """Return whether the PTX has such a NaN, and was compiled from a source that does not ask for one."""
    source = module.cuda
    if source is None or _IN_PTX.search(module.text or "") is None:
        return False
    return not any(_ASKED_FOR.search(text) for text in source.texts())


def is_folded(op: Op) -> bool:
    """Return whether an instruction gives nothing but such a NaN: it moves the constant, or adds to it."""
    constants = [each for each in op.operands if isinstance(each, Immediate) and each.bits in _NANS]
    if not constants or op.record.level is not Level.LANE:
        return False
    if op.record.needs_values:
        return op.has("f32") or op.has("f64")
    return not op.registers(Role.USED)
