"""Bytes that were read and never written, and that nobody may need: padding of structures that are copied.

A compiler copies a structure with its padding. It lies beside members, in one block of the size that the
variable is aligned to; a block of which nothing was written is no padding.
"""

import ctypes
from typing import NamedTuple

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.analysis.value_uses import Use, ValueUses
from lanewise.machine.checker import records
from lanewise.machine.checker.records import BlockWatch, ShadowPlane
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.runtime.shared_names import space_of_generic
from lanewise.machine.runtime.state import BlockState

#: The largest alignment of a structure whose padding is distinguished from memory that was forgotten.
_LARGEST_ALIGNMENT = 128


def padded_block(size: int, elements: int, alignment: int) -> int:
    """Return the bytes of the aligned block in which an access may meet padding and members of a structure.

    Compilers copy padding in vectors, or byte by byte; a scalar of several bytes is a member.

    >>> padded_block(16, 4, 64), padded_block(16, 4, 4), padded_block(4, 1, 16), padded_block(1, 1, 4)
    (64, 16, 4, 4)
    """
    return size if elements == 1 and size > 1 else max(size, min(alignment, _LARGEST_ALIGNMENT))


class Padding(NamedTuple):
    """Bytes of a load that may be padding, as masks.

    Nobody needs those that are `dropped`. Those that are only `copied` are padding if something was written
    in the same aligned block of so many bytes.
    """

    dropped: int
    copied: int
    block: int


def padding_met(
    program: Program, uses: ValueUses, state: BlockState, warp: int, op: Op, lane: int, address: int
) -> Padding | None:
    """Return which bytes of a load may be padding, if the byte that a lane reads and nobody wrote is one.

    A value that is only chosen from is perhaps dropped. What is only copied, and lies beside bytes that were
    written, is perhaps padding.
    """
    if not op.record.is_plain_load:
        return None
    (located,) = accesses(op)
    base = located.address.base
    elements = len(elements_of(op.operands[located.access.data]))
    if not isinstance(base, Register):
        return None
    start = int(state.lanes(warp, base.offset, base.bits)[lane]) + located.address.offset
    start, address = (
        space_of_generic(generic_address)[1] if located.space == "generic" else generic_address
        for generic_address in (start, address)
    )
    byte = address - start
    if not 0 <= byte < located.size:
        return None
    offset = start - state[BlockRecord.shared_first]
    is_own = 0 <= offset < abi.OFFSET_MASK
    alignment = _alignment_at(program, offset) if is_own else located.size
    padding = _padding_of(uses, op, located.size, elements, alignment)
    if padding.dropped >> byte & 1:
        return padding
    if not padding.copied >> byte & 1:
        return None
    if not is_own:  # in another block of the cluster
        return padding if elements > 1 else None
    first = offset & -padding.block
    end = max(first + padding.block, offset + located.size)
    return padding if any(_is_written(state, byte_offset) for byte_offset in range(first, end)) else None


def _padding_of(uses: ValueUses, op: Op, size: int, elements: int, alignment: int) -> Padding:
    """Return which bytes of a load may be padding, by what becomes of its elements."""
    element_bytes = size // elements
    dropped = copied = 0
    for byte in range(size):
        use = uses.of(op, byte // element_bytes)
        part_of_word = elements == 1 and byte % element_bytes > 0  # its first bytes were written
        if use is Use.DROPPED or (use is Use.COPIED and part_of_word):
            dropped |= 1 << byte
        elif use is Use.COPIED:
            copied |= 1 << byte
    return Padding(dropped, copied, padded_block(size, elements, alignment))


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
