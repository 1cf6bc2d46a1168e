"""ldmatrix, stmatrix and movmatrix on arrays: shared memory and addresses in, registers out, and back."""

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.isa import Instruction
from lanewise.numpy_types import AnyArray

_ROW_BYTES = 16


def move(instruction: Instruction, *operands: object) -> AnyArray:
    """Do what an instruction that moves a matrix does, with the registers of all lanes as uint32[32, n].

    `ldmatrix(shared, addresses)` returns registers; `stmatrix(shared, addresses, registers)` writes into the
    array and returns it; `movmatrix(registers)` returns registers, and `movmatrix(matrix)` of an 8×8 matrix
    of 16-bit elements its transpose. Addresses are bytes from the array's start, one for each lane.

    >>> from lanewise.isa import instruction
    >>> load = instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16")
    >>> tile = np.arange(64, dtype=np.uint16).reshape(8, 8)
    >>> move(load, tile, 16 * np.arange(8))[:2].tolist()
    [[65536], [196610]]
    """
    takes = {"ldmatrix": "(shared, addresses)", "stmatrix": "(shared, addresses, registers)"}
    usage = takes.get(instruction.family, "(registers)")
    if len(operands) != usage.count(",") + 1:
        raise LanewiseError(f"on arrays, {instruction.family} takes {usage}; {len(operands)} were given")
    if instruction.family == "movmatrix":
        return _transposed(instruction, np.asarray(operands[0]))
    if len(instruction.types) > 1:
        raise LanewiseError(
            f"{instruction.text} unpacks elements of {instruction.types[1]}: not done on arrays"
        )
    shared = _shared_bytes(instruction, operands[0])
    rows = _rows(instruction, operands[1], shared.size)
    if instruction.family == "ldmatrix":
        format = instruction.d.format
        return instruction.d.pack(shared[rows].view(format.word_dtype).reshape(instruction.d.shape))
    if not shared.flags.writeable:
        raise LanewiseError(f"{instruction.family} writes into shared, which is a read-only array")
    matrix = instruction.a.unpack(operands[2])
    shared[rows] = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows.shape)
    return np.asarray(operands[0])


def _transposed(instruction: Instruction, given: AnyArray) -> AnyArray:
    """Return what movmatrix makes of registers, or of a whole matrix."""
    if given.shape[-2:] == instruction.a.shape and given.dtype.itemsize == instruction.a.format.bits // 8:
        return np.swapaxes(given, -1, -2).copy()
    registers = given[:, None] if given.shape == (instruction.threads,) else given
    transposed = instruction.d.pack(np.swapaxes(instruction.a.unpack(registers), -1, -2))
    return transposed.reshape(given.shape)


def _shared_bytes(instruction: Instruction, shared: object) -> npt.NDArray[np.uint8]:
    """Return the bytes of the array that stands for shared memory."""
    if not isinstance(shared, np.ndarray) or not shared.flags.c_contiguous or shared.dtype.hasobject:
        raise LanewiseError(
            f"{instruction.family}: shared memory is a NumPy array in one piece, in C's order"
        )
    return shared.reshape(-1).view(np.uint8)


def _rows(instruction: Instruction, addresses: object, size: int) -> npt.NDArray[np.intp]:
    """Return the place of every byte of the rows that lanes point to, after a look at the addresses."""
    rows = np.asarray(addresses)
    count = instruction.row_addresses.rows
    if rows.dtype.kind not in "iu" or rows.ndim != 1 or not count <= rows.size <= instruction.threads:
        given = f"{rows.dtype}{list(rows.shape)}"
        raise LanewiseError(
            f"{instruction.family} takes an address for each of {count} lanes, an array of integers; "
            f"{given} was given"
        )
    for lane, address in enumerate(rows[:count].tolist()):
        if address % _ROW_BYTES:
            raise LanewiseError(
                f"{instruction.family}: the address {address} of lane {lane} is not a multiple of 16"
            )
        if not 0 <= address <= size - _ROW_BYTES:
            raise LanewiseError(
                f"{instruction.family}: lane {lane} points to byte {address} of an array of {size} bytes"
            )
    return rows[:count, None].astype(np.intp) + np.arange(_ROW_BYTES)
