"""Bytes that were read and never written, and that nobody may need: padding of structures that are copied.

A compiler copies a structure with its padding. It lies beside members, in one block of the size that the
variable is aligned to; a block of which nothing was written is no padding.
"""

from __future__ import annotations

import ctypes

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.analysis.value_uses import Use, ValueUses
from lanewise.machine.checker import records
from lanewise.machine.checker.access_descriptions import space_of_generic
from lanewise.machine.checker.records import BlockWatch, ShadowPlane
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.runtime.state import BlockState

#: The largest alignment of a structure whose padding is told from memory that was forgotten.
_LARGEST_ALIGNMENT = 128


def padded_block(size: int, elements: int, alignment: int) -> int:
    """Return the bytes of the aligned block in which an access may meet padding and members of a structure.

    Compilers copy padding in vectors, or byte by byte; a scalar of several bytes is a member.

    >>> padded_block(16, 4, 64), padded_block(16, 4, 4), padded_block(4, 1, 16), padded_block(1, 1, 4)
    (64, 16, 4, 4)
    """
    return size if elements == 1 and size > 1 else max(size, min(alignment, _LARGEST_ALIGNMENT))


def may_be_padding(
    program: Program, uses: ValueUses, state: BlockState, warp: int, op: Op, lane: int, address: int
) -> bool:
    """Return whether bytes of shared memory that a lane reads, and nobody wrote, may be ones nobody needs.

    A value that is only chosen from is perhaps dropped. What is only copied, and lies beside bytes that were
    written, is perhaps padding.
    """
    if not op.record.is_plain_load:
        return False
    (located,) = accesses(op)
    base = located.address.base
    elements = len(elements_of(op.operands[located.access.data]))
    if not isinstance(base, Register):
        return False
    start = int(state.lanes(warp, base.offset, base.bits)[lane]) + located.address.offset
    start, address = (
        space_of_generic(each)[1] if located.space == "generic" else each for each in (start, address)
    )
    element_bytes = located.size // elements
    byte = address - start
    if not 0 <= byte < located.size:
        return False
    use = uses.of(op, byte // element_bytes)
    if use is not Use.COPIED:
        return use is Use.DROPPED
    offset = start - state[BlockRecord.shared_first]
    if elements == 1 and byte % element_bytes > 0:
        return True  # the first bytes of a word were written
    if not 0 <= offset < abi.OFFSET_MASK:
        return elements > 1  # in another block of the cluster
    block = padded_block(located.size, elements, _alignment_at(program, offset))
    first = offset & -block
    return any(_is_written(state, each) for each in range(first, max(first + block, offset + located.size)))


def _alignment_at(program: Program, offset: int) -> int:
    """Return what the shared variable at an offset is aligned to."""
    for symbol in shared_variables(program):
        if symbol.address <= offset < symbol.address + symbol.size:
            return symbol.alignment
    return program.dynamic_alignment


def _is_written(state: BlockState, offset: int) -> bool:
    """Return whether a byte of a block's shared memory was written since the block began."""
    watch = state[BlockRecord.watch]

    def get(field: int) -> int:
        return int(ctypes.c_int64.from_address(watch + field).value)

    if offset >= get(BlockWatch.shared_bytes):
        return False
    cell = get(BlockWatch.shadow) + ShadowPlane.WRITE_EPOCH * get(BlockWatch.stride)
    stored = ctypes.c_uint32.from_address(cell + 4 * (offset >> get(BlockWatch.cell_shift))).value
    return (stored & records.EPOCHS) >= get(BlockWatch.start)
