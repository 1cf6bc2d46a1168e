"""Checks of what users pass as operands: arrays of the right dtype and shape, or nested lists.

Numbers in lists have to be exact in the format. Errors name the operand, what it should be, and how to get
there.
"""

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import Format, as_array
from lanewise.isa import Instruction
from lanewise.numpy_types import AnyArray

Array = AnyArray


def as_operand(name: str, value: object, fmt: Format) -> Array:
    """Return the operand as an array of the format's dtype, at least a matrix."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # numpy.ma is slow to import
        raise LanewiseError(f"{name} is a masked array; .filled(value) says what its masked elements are")
    array = value if isinstance(value, np.ndarray) else exact_array(name, value, fmt)
    if array.dtype != fmt.dtype:
        raise LanewiseError(
            f"{name} is {fmt.name} and takes an array of dtype {fmt.dtype}, not {array.dtype}; "
            f"lanewise.formats.{fmt.name}.array({name}) rounds numbers to it"
        )
    if array.ndim < 2:
        raise LanewiseError(f"{name} is a matrix or a batch of them; got an array of shape {array.shape}")
    return array


def exact_array(name: str, value: object, fmt: Format) -> Array:
    """Return numbers that are no array yet as one, if the format holds each of them exactly."""
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return as_array(value, name)
    try:
        numbers = np.asarray(value if value is not None else "None", dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LanewiseError(f"{name} is neither an array nor nested lists of numbers: {error}") from error
    words = fmt.encode(numbers)
    back = fmt.decode(words).astype(np.float64)
    if not np.array_equal(back, numbers, equal_nan=True):
        worst = numbers[(back != numbers) & ~np.isnan(numbers)].flat[0]
        raise LanewiseError(
            f"{name}: {worst} is not a number of {fmt.name}; "
            f"lanewise.formats.{fmt.name}.array({name}) rounds numbers to it"
        )
    return fmt.from_bits(words)


def check_shape(
    name: str, array: Array, rows: int | None, cols: int | None, why: str, remedy: str = ""
) -> None:
    """Raise an error if a matrix is not (rows, cols); None means any number. It ends with the remedy."""
    got = array.shape[-2:]
    if rows not in (None, got[0]) or cols not in (None, got[1]):
        wanted = f"(…, {'any' if rows is None else rows}, {'any' if cols is None else cols})"
        raise LanewiseError(f"{name} has shape {array.shape}; {why} takes {wanted}{remedy}")


def batch_of(**arrays: Array | None) -> tuple[int, ...]:
    """Return the leading dimensions of all operands together, as NumPy broadcasts them."""
    shapes = {name: array.shape[:-2] for name, array in arrays.items() if array is not None}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise LanewiseError(f"the batch dimensions do not broadcast: {listed}") from error


def as_indices(instruction: Instruction, metadata: object, packed: Array, groups: int) -> Array:
    """Return the dense column of every packed element of a sparse A, for K of `groups` instructions."""
    operand = instruction.metadata
    rows, per_instruction = operand.indices_shape
    if metadata is None:
        raise LanewiseError(
            f"{instruction.text} needs metadata: an integer array (…, {packed.shape[-2]}, "
            f"{per_instruction * groups}) of the places that A's elements take in their groups"
        )
    indices = as_array(metadata, "metadata")
    wanted = (packed.shape[-2], per_instruction * groups)
    if indices.dtype.kind not in "ui" or indices.ndim < 2 or indices.shape[-2:] != wanted:
        raise LanewiseError(
            f"metadata is an integer array (…, {wanted[0]}, {wanted[1]}) of places in groups; "
            f"got {indices.dtype} {indices.shape}"
        )
    # Each tile of the instruction is checked separately, then they are joined again.
    whole = -wanted[0] % rows
    padded = np.concatenate(
        [indices, np.broadcast_to(indices[..., :1, :], (*indices.shape[:-2], whole, wanted[1]))], -2
    )
    tiles = padded.reshape(*indices.shape[:-2], -1, rows, groups, per_instruction).swapaxes(-3, -2)
    operand.codes(tiles)
    columns = operand.columns(tiles) + (np.arange(groups) * instruction.k)[:, None, None]
    columns = columns.swapaxes(-3, -2).reshape(*indices.shape[:-2], -1, packed.shape[-1])
    return np.asarray(columns[..., : wanted[0], :])
