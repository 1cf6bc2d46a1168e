"""Shapes of tcgen05.ld and st: which lane and column of tensor memory each register of each thread holds.

Facts: PTX ISA, "Data movement shape"; the layouts of CUTLASS's copy traits, as they were printed
(tests/isa/cutlass_tensor_copies.json). None was seen on a GPU. Two facts that neither states come from Apache
TVM's tests for a B200: an address whose lane is below 32 names the lanes of whichever warp uses it, and
.pack::16b takes the low half of each column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Threads of a warp, which are also the lanes of tensor memory that a warp reaches: its partition.
WARP, PARTITION = 32, 32
#: How often a shape may be repeated along the columns, and the registers that a thread may have for it.
NUMS, MOST_REGISTERS = (1, 2, 4, 8, 16, 32, 64, 128), 128


@dataclass(frozen=True)
class LoadShape:
    """A shape: lanes and columns of 32 bits, and the word that each register of each thread holds.

    `threads` and `registers` are layouts to `lane + lanes * column`, of one repetition. A shape of two halves
    is two accesses: threads from 16 on hold the second one, at another column.
    """

    name: str
    lanes: int
    columns: int
    threads: Layout
    registers: Layout
    halves: int = 1

    def __post_init__(self) -> None:
        words = {
            self.threads(thread) + self.registers(register)
            for thread in range(WARP // self.halves)
            for register in range(self.registers.size())
        }
        assert words == set(range(self.lanes * self.columns)), self.name
        assert self.threads.size() * self.halves == WARP, self.name

    def registers_of(self, num: int) -> int:
        """Return the registers of a thread for so many repetitions; raise an error if there are too many."""
        count = self.registers.size() * num
        if num not in NUMS or count > MOST_REGISTERS:
            most = MOST_REGISTERS // self.registers.size()
            raise LanewiseError(f".{self.name} is repeated .x1, .x2, .x4, … up to .x{most}, not .x{num}")
        return count

    def columns_of(self, num: int, packed: bool = False) -> int:
        """Return the columns that each half reaches; twice as many if two columns make a register."""
        return self.columns * num * (2 if packed else 1)

    def layout(self, num: int) -> Layout:
        """Return the layout from (thread, register) to `lane + lanes * column` of an access (of one half).

        >>> SHAPES["16x256b"].layout(2)
        ((4,8),((2,2),2)):((32,1),((16,8),128))
        """
        self.registers_of(num)
        step = self.lanes * self.columns
        return Layout(
            (self.threads.shape, (self.registers.shape, num)),
            (self.threads.stride, (self.registers.stride, step)),
        )

    def places(
        self, num: int, packed: bool = False, half_split: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return lanes and columns of the words that [thread, register] holds, counted from the address.

        A packed register holds the low halves of its column and the next one.

        >>> lanes, columns = SHAPES["16x64b"].places(1)
        >>> lanes[:6, 0].tolist(), columns[:6, 0].tolist()
        ([0, 8, 0, 8, 1, 9], [0, 0, 1, 1, 0, 0])
        """
        import numpy as np

        layout = self.layout(num)
        threads = np.array([layout(thread, 0) for thread in range(WARP // self.halves)])
        words = threads[:, None] + np.array(
            [layout(0, register) for register in range(self.registers_of(num))]
        )
        lanes, columns = words % self.lanes, words // self.lanes * (2 if packed else 1)
        return (
            np.concatenate([lanes] * self.halves),
            np.concatenate([columns + half * half_split for half in range(self.halves)]),
        )


SHAPES = {
    shape.name: shape
    for shape in (
        LoadShape("32x32b", 32, 1, Layout(32, 1), Layout(1, 0)),
        LoadShape("16x64b", 16, 2, Layout((2, 2, 8), (8, 16, 1)), Layout(1, 0)),
        LoadShape("16x128b", 16, 4, Layout((4, 8), (16, 1)), Layout(2, 8)),
        LoadShape("16x256b", 16, 8, Layout((4, 8), (32, 1)), Layout((2, 2), (16, 8))),
        LoadShape("16x32bx2", 16, 1, Layout(16, 1), Layout(1, 0), halves=2),
    )
}
