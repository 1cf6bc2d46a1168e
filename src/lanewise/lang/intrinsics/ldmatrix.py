"""ldmatrix, stmatrix and movmatrix as functions with options, in the file where one looks for them.

They are emitted by `matrix/emit.py`.
"""

from functools import cache
from typing import Any

from lanewise.isa import instruction
from lanewise.lang.matrix.emit import emit
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.trace.builder import current

#: An instruction of the catalogue, looked up once.
_instruction = cache(instruction)


def _matrix_count(num: int, what: str) -> int:
    """Return the number of matrices; an error unless it is 1, 2 or 4."""
    if num not in (1, 2, 4):
        raise current().error(f"lw.{what} moves 1, 2 or 4 matrices, not {num!r}")
    return num


def ldmatrix(pointer: object, num: int = 4, *, trans: bool = False) -> Fragment:
    """Load 8×8 matrices of 16-bit elements from shared memory: lane r points to row r, counted over all.

    Inside a kernel: `a = lw.ldmatrix(As.ptr(lane % 16, lane // 16 * 8), num=4)`. The fragment has `num`
    registers; an `mma` takes it for an operand of as many, or some of its `.registers`.
    """
    middle = ".trans" if trans else ""
    text = f"ldmatrix.sync.aligned.m8n8.x{_matrix_count(num, 'ldmatrix')}{middle}.shared.b16"
    return emit(_instruction(text), pointer)  # type: ignore[no-any-return]  # ldmatrix gives a fragment


def stmatrix(pointer: object, fragment: object, *, trans: bool = False) -> None:
    """Store 8×8 matrices of 16-bit elements to shared memory, as many as there are registers (sm_90 on)."""
    held = fragment.registers if isinstance(fragment, Fragment) else fragment
    num = len(held) if isinstance(held, tuple | list) else 1
    middle = ".trans" if trans else ""
    text = f"stmatrix.sync.aligned.m8n8.x{_matrix_count(num, 'stmatrix')}{middle}.shared.b16"
    emit(_instruction(text), pointer, held if num > 1 else fragment)


def movmatrix(fragment: object) -> Any:
    """Return an 8×8 matrix of 16-bit elements transposed across the warp: one register in, one out."""
    return emit(_instruction("movmatrix.sync.aligned.m8n8.trans.b16"), fragment)
