"""Structured sparsity: the 4-bit codes that tell where the elements of a packed A belong, and how to pack it.

A code covers a group of A's row and selects half of it: 1 of 2 (tf32), 2 of 4 (16- and 8-bit elements), or
2 of 4 neighbouring pairs (4-bit elements).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.formats import as_array
from lanewise.isa.operand import SelectedOperand
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray

#: tf32 has 1 of 2: the code is the pair of 16-bit halves that the element covers.
_TF32_CODES = (0b0100, 0b1110)


@dataclass(frozen=True, repr=False)
class Metadata(SelectedOperand):
    """The metadata operand E: a 4-bit code a group; its matrix is (M, groups).

    On arrays, sparsity is given by indices: for every packed element (every pair, for 4-bit formats) the
    place 0…3 (tf32: 0…1) that it takes in its group.

    >>> from lanewise.isa import instruction
    >>> e = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").metadata
    >>> e.indices_shape, e.columns([[0, 3] * 4] * 16)[0].tolist()
    ((16, 8), [0, 3, 4, 7, 8, 11, 12, 15])
    """

    element_bits: int = 16
    #: Whether the indices of a code must ascend; if not, each packed element stands at its own index.
    ordered: bool = True

    @property
    def per_code(self) -> int:
        """Indices a code holds: one for tf32, else two."""
        return 1 if self.element_bits == 32 else 2

    @property
    def run(self) -> int:
        """Neighbouring elements that one index moves together: two for 4-bit elements, else one."""
        return 2 if self.element_bits == 4 else 1

    @property
    def group(self) -> int:
        """Elements of the dense row that a code covers."""
        return {32: 2, 4: 8}.get(self.element_bits, 4)

    @property
    def indices_shape(self) -> tuple[int, int]:
        """The trailing shape of an array of indices: (M, indices a row)."""
        return self.rows, self.cols * self.per_code

    def codes(self, indices: object) -> AnyArray:
        """The 4-bit codes, uint8[..., M, groups], for an array of indices.

        The two indices of a code must differ, and ascend unless the form takes them in any order
        (`ordered` is false), as mma.sp without ::ordered_metadata does for 16-bit floats and integers.
        """
        import numpy as np

        array = self._indices(indices)
        if self.per_code == 1:
            return np.where(array == 0, *_TF32_CODES).astype(np.uint8)
        pairs = array.reshape(*array.shape[:-1], self.cols, 2).astype(np.uint8)
        first, second = pairs[..., 0], pairs[..., 1]
        wrong = np.argwhere(first >= second if self.ordered else first == second)
        if wrong.size:
            place = tuple(int(x) for x in wrong[0])
            raise LanewiseError(
                f"metadata of {self.instruction}: row {place[-2]}, group {place[-1]} selects {first[place]} "
                f"then {second[place]}; the two places of a group must differ" + " and ascend" * self.ordered
            )
        return np.asarray(first | second << 2)

    def _indices(self, indices: object) -> AnyArray:
        """The indices given as an array, if shape and range fit."""
        array = as_array(indices, self.title)
        if array.shape[-2:] != self.indices_shape or array.dtype.kind not in "ui":
            raise LanewiseError(
                f"metadata of {self.instruction} is an integer array (…, {self.rows}, "
                f"{self.indices_shape[1]}) of indices; {array.dtype}{list(array.shape)} was given"
            )
        top = 1 if self.per_code == 1 else 3
        if array.size and (array.min() < 0 or array.max() > top):
            raise LanewiseError(
                f"metadata indices of {self.instruction} lie in 0…{top}; {array.min()}…{array.max()} given"
            )
        return array

    def indices(self, codes: object) -> AnyArray:
        """The indices that 4-bit codes stand for."""
        import numpy as np

        array = as_array(codes, self.title)
        if array.shape[-2:] != self.shape or array.dtype.kind not in "ui" or (array >> 4).any():
            raise LanewiseError(
                f"codes of {self.instruction} are an integer array (…, {self.rows}, {self.cols}) of 4-bit "
                f"codes; {array.dtype}{list(array.shape)} was given"
            )
        if self.per_code == 2:
            pairs = np.stack([array & 3, array >> 2], axis=-1)
            return pairs.reshape(*array.shape[:-1], 2 * array.shape[-1]).astype(np.uint8)
        if not np.isin(array, _TF32_CODES).all():
            strange = array[~np.isin(array, _TF32_CODES)][0]
            raise LanewiseError(
                f"codes of {self.instruction} are 0b0100 (the first of two) or 0b1110 (the second), "
                f"not {int(strange):#06b}"
            )
        return np.asarray(array == _TF32_CODES[1]).astype(np.uint8)

    def pack(self, matrix: object, *, thread_id: int = 0, byte_id: int = 0) -> AnyArray:
        """The word of each lane for an array of indices; `thread_id` is the sparsity selector."""
        codes = self.codes(matrix).astype(self.format.dtype)
        return super().pack(codes, thread_id=thread_id, byte_id=byte_id)

    def unpack(self, words: object, *, thread_id: int = 0, byte_id: int = 0) -> AnyArray:
        """The indices that the lanes' words stand for under a selector."""
        return self.indices(super().unpack(words, thread_id=thread_id, byte_id=byte_id).astype("uint8"))

    def columns(self, indices: object) -> AnyArray:
        """The dense column of every packed element, int[..., M, K/2]."""
        import numpy as np

        array = self._indices(indices).astype(np.intp)
        which = np.arange(array.shape[-1]) // self.per_code
        start = which * self.group + array * self.run
        return np.asarray(start[..., None] + np.arange(self.run)).reshape(*array.shape[:-1], -1)

    def compress(self, dense: object) -> tuple[AnyArray, AnyArray]:
        """Pack a dense A that has the structure: (packed, indices). Zeros fill groups with room to spare."""
        import numpy as np

        array = as_array(dense, f"dense A of {self.instruction}")
        width = self.cols * self.group
        if array.shape[-2:] != (self.rows, width):
            raise LanewiseError(
                f"dense A of {self.instruction} is {self.rows}×{width}; shape {array.shape} was given"
            )
        places = self.group // self.run
        runs = array.reshape(*array.shape[:-1], self.cols, places, self.run)
        used = (runs != 0).any(axis=-1)
        full = np.argwhere(used.sum(axis=-1) > self.per_code)
        if full.size:
            *_, row, group = (int(x) for x in full[0])
            what = "non-zero" if self.run == 1 else "non-zero pairs"
            raise LanewiseError(
                f"row {row}, columns {group * self.group} to {(group + 1) * self.group - 1} hold more than "
                f"{self.per_code} {what} of {places}: not the sparsity of {self.instruction}"
            )
        chosen = np.sort(np.argsort(~used, axis=-1, kind="stable")[..., : self.per_code], axis=-1)
        packed = np.take_along_axis(runs, chosen[..., None], axis=-2)
        flat = array.shape[:-1]
        return packed.reshape(*flat, -1), chosen.reshape(*flat, -1).astype(np.uint8)

    def expand(self, packed: object, indices: object) -> AnyArray:
        """The dense A, zeros where nothing was packed."""
        import numpy as np

        array = as_array(packed, f"packed A of {self.instruction}")
        self.codes(indices)
        columns = self.columns(indices)
        try:
            columns = np.broadcast_to(columns, array.shape)
        except ValueError:
            raise LanewiseError(
                f"packed A of {self.instruction} is {columns.shape[-2]}×{columns.shape[-1]}, after the "
                f"leading dimensions of its indices {columns.shape[:-2]}; shape {array.shape} was given"
            ) from None
        dense = np.zeros((*array.shape[:-1], self.cols * self.group), dtype=array.dtype)
        np.put_along_axis(dense, columns, array, axis=-1)
        return dense


@short_traceback
def prune_2_4(dense: object) -> AnyArray:
    """Return a matrix in which of every four elements of a row the two of largest magnitude are kept.

    The other two become zero: the structure that a sparse instruction takes for 16-bit and 8-bit elements,
    and for 6-bit and 4-bit elements in kind f8f6f4, once `metadata.compress` has packed it. It is not that
    of tf32, which keeps 1 of 2, nor of s4, u4 and the kinds mxf4 and mxf4nvf4, which keep 2 of 4 neighbouring
    pairs. Of elements with the same magnitude the first are kept; NaN counts as larger than infinity.

    >>> prune_2_4([[1.0, -3.0, 2.0, 0.5, 4.0, 4.0, 4.0, 4.0]]).tolist()
    [[0.0, -3.0, 2.0, 0.0, 4.0, 4.0, 0.0, 0.0]]
    """
    import numpy as np

    array = as_array(dense, "a matrix to be pruned")
    if array.ndim == 0 or array.shape[-1] % 4:
        raise LanewiseError(f"rows of a multiple of 4 elements can be pruned; the shape is {array.shape}")
    groups = array.reshape(*array.shape[:-1], array.shape[-1] // 4, 4)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(groups.astype(np.float64))
    order = np.lexsort((-size, ~np.isnan(size)))
    kept = np.zeros(groups.shape, bool)
    np.put_along_axis(kept, order[..., :2], True, axis=-1)
    return np.asarray(np.where(kept, groups, np.zeros((), array.dtype)).reshape(array.shape))
