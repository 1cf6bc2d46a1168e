"""Operands of which the instruction reads only some lanes or bytes, by a selector: metadata and scale factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.isa.operand import Holder, Operand

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
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
        return thread == thread_id and (self.byte_choices == 1 or value // self.byte_step * self.byte_step == byte_id)

    def holders(
        self, row: int, col: int, product: int = 0, *, thread_id: int | None = None, byte_id: int | None = None
    ) -> tuple[Holder, ...]:
        """Every place that may hold the item; with selectors, the one that is read."""
        every = super().holders(row, col, product)
        if thread_id is None and byte_id is None:
            return every
        self._check_selectors(thread_id or 0, byte_id or 0)
        return tuple(
            holder
            for holder in every
            if self.selected(holder.lane, holder.register * self.slots + holder.slot, thread_id or 0, byte_id or 0)
        )

    def _check_selectors(self, thread_id: int, byte_id: int) -> None:
        self._check(thread_id, self.lane_choices, "selector")
        allowed = range(0, self.byte_choices * self.byte_step, self.byte_step)
        if byte_id not in allowed:
            raise LanewiseError(
                f"{self.name} of {self.instruction} takes byte-id {', '.join(map(str, allowed))}; {byte_id} was given"
            )

    def pack(self, matrix: Any, *, thread_id: int = 0, byte_id: int = 0) -> NDArray[Any]:
        """The word of each lane, uint32[..., threads, 1]; lanes and bytes that are not read hold zero."""
        import numpy as np

        self._check_selectors(thread_id, byte_id)
        words = super().pack(matrix)
        ones = (1 << self.slot_bits) - 1
        mask = np.zeros((self.threads, 1), dtype=words.dtype)
        for lane in range(self.threads):
            for value in range(self.values):
                if self.selected(lane, value, thread_id, byte_id):
                    mask[lane, 0] |= ones << value * self.slot_bits
        return np.asarray(words & mask)

    def unpack(self, words: Any, *, thread_id: int = 0, byte_id: int = 0) -> NDArray[Any]:
        """What the instruction reads out of the lanes' words under these selectors."""
        import numpy as np

        self._check_selectors(thread_id, byte_id)
        # Move what is selected to where the first holder of each item is, then read as ever.
        array = np.asarray(words)
        if array.shape[-2:] != (self.threads, self.registers):
            return super().unpack(array)
        lanes = np.arange(self.threads)
        other = thread_id * self.lane_step
        first = lanes // (self.lane_step * self.lane_choices) * (self.lane_step * self.lane_choices)
        source = first + lanes % self.lane_step + other if self.lane_choices > 1 else lanes
        moved = array[..., source, :] >> np.uint32(byte_id * self.slot_bits)
        return super().unpack(moved)
