"""Operands of which an instruction reads some lanes or bytes only, by a selector: metadata and scale factors.

What the codes of metadata mean is left to `sparsity.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.isa.operand import Holder, Operand, within

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray


@dataclass(frozen=True, repr=False)
class SelectedOperand(Operand):
    """An operand with modes of stride 0: a selector says which of those lanes (and bytes) are read.

    `lane_choices` counts the selectable lanes of a quad, `lane_step` their distance; `byte_choices` and
    `byte_step` likewise for the bytes of a word.
    """

    lane_choices: int = 1
    lane_step: int = 1
    byte_choices: int = 1
    byte_step: int = 4

    def selected(self, lane: int, value: int, thread_id: int = 0, byte_id: int = 0) -> bool:
        """Whether the instruction reads this lane's value under these selectors."""
        thread = lane % 4 // self.lane_step % self.lane_choices
        first = value // self.byte_step * self.byte_step
        return thread == thread_id and (self.byte_choices == 1 or first == byte_id)

    def holders(
        self,
        row: int,
        col: int,
        product: int = 0,
        *,
        thread_id: int | None = None,
        byte_id: int | None = None,
    ) -> tuple[Holder, ...]:
        """Every holder that may have the item; with selectors (0 where left out), the holder that is read."""
        every = super().holders(row, col, product)
        if thread_id is None and byte_id is None:
            return every
        thread, byte = self._selectors(thread_id or 0, byte_id or 0)
        return tuple(holder for holder in every if self.selected(holder.lane, holder.slot, thread, byte))

    def _selectors(self, thread_id: int, byte_id: int) -> tuple[int, int]:
        thread = within(thread_id, self.lane_choices, "selector", self.title)
        byte = within(byte_id, 4, "byte-id", self.title)
        allowed = range(0, self.byte_choices * self.byte_step, self.byte_step)
        if byte not in allowed:
            raise LanewiseError(
                f"{self.title} takes byte-id {', '.join(map(str, allowed))}; {byte_id} was given"
            )
        return thread, byte

    def pack(self, matrix: object, *, thread_id: int = 0, byte_id: int = 0) -> AnyArray:
        """The word of each lane, uint32[..., threads, 1]; lanes and bytes that are not read hold zero."""
        import numpy as np

        thread, byte = self._selectors(thread_id, byte_id)
        words = super().pack(matrix)
        ones = (1 << self.slot_bits) - 1
        masks = [
            sum(
                ones << v * self.slot_bits for v in range(self.values) if self.selected(lane, v, thread, byte)
            )
            for lane in range(self.threads)
        ]
        return np.asarray(words & np.array(masks, dtype=words.dtype)[:, None])

    def unpack(self, words: object, *, thread_id: int = 0, byte_id: int = 0) -> AnyArray:
        """What the instruction reads out of the lanes' words under these selectors."""
        import numpy as np

        thread, byte = self._selectors(thread_id, byte_id)
        array = self._registers(words)
        # Move what is selected to where the first holder of each item is, then read as ever.
        period = self.lane_step * self.lane_choices
        lanes = np.arange(self.threads)
        source = lanes - lanes % period + lanes % self.lane_step + thread * self.lane_step
        return super().unpack(array[..., source, :] >> np.uint32(byte * self.slot_bits))
