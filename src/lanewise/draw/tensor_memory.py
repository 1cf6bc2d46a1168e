"""A block's tensor memory at one moment: its words, which columns are allocated, who wrote what.

The picture has a cell for 16 lanes × 16 columns. Where a tcgen05 instruction finds its operands in tensor
memory is drawn by `tcgen05.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lanewise.draw.options import Options
from lanewise.draw.picture import PASTELS, SHARED, WHITE, Axis, Cell, Legend, Panel, Picture
from lanewise.engines import Drawn
from lanewise.errors import LanewiseError
from lanewise.formats import Format, format_of
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, PARTITION

if TYPE_CHECKING:  # answers without a picture must not load it
    import numpy as np
    import numpy.typing as npt

    from lanewise.numpy_types import AnyArray

#: Lanes and columns of a cell of the picture.
CELL = 16
#: What stands for a word that nothing has written.
UNWRITTEN = -1


class Touched(NamedTuple):
    """Words that a step reads or writes: an operand of its instruction, and a mask of lanes × columns."""

    kind: str
    operand: str
    words: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TensorMemory(Drawn):
    """The tensor memory of a block after a step: 128 lanes × 512 columns of 32 bits.

    `memory[lane, column]` is a word, and `memory.read("f32")` gives all words as numbers.
    """

    #: The words as unsigned integers, [lane, column].
    words: npt.NDArray[np.uint32]
    #: The step that wrote each word; UNWRITTEN if none did.
    writers: npt.NDArray[np.int64]
    #: The columns that are allocated, an entry for each allocation.
    allocated: tuple[range, ...] = ()
    #: What the step itself reads and writes.
    touched: tuple[Touched, ...] = ()
    title: str = field(default="Tensor memory")

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.words[index]
        except IndexError:
            raise LanewiseError(
                f"tensor memory has lanes 0 to {LANES - 1} and columns 0 to {COLUMNS - 1}; not {index}"
            ) from None

    def __iter__(self) -> Any:
        return iter(self.words)

    def read(self, dtype: Any = "f32") -> AnyArray:
        """Return the words as numbers of a format with 32 bits; of a smaller one, the low bits of each.

        >>> import numpy as np
        >>> ones = np.full((128, 512), 0x3F800000, np.uint32)
        >>> TensorMemory(ones, np.zeros((128, 512), np.int64)).read("f32")[3, 5]
        np.float32(1.0)
        """
        fmt = format_of(dtype)
        if fmt.word_bits > 32:
            raise LanewiseError(f"a word of tensor memory has 32 bits; {fmt.name} has {fmt.word_bits}")
        return bits_as(self.words, fmt)

    @property
    def is_allocated(self) -> npt.NDArray[np.bool_]:
        """For each of the 512 columns, whether it is allocated."""
        import numpy as np

        allocated = np.zeros(COLUMNS, np.bool_)
        for columns in self.allocated:
            allocated[columns.start : columns.stop] = True
        return allocated

    def __repr__(self) -> str:
        written = int((self.writers != UNWRITTEN).any(axis=0).sum())
        return f"<tensor memory: {allocated_text(self.allocated)}, {written} columns with values>"


def bits_as(words: npt.NDArray[np.uint32], fmt: Format) -> AnyArray:
    """Return the low bits of words as numbers of a format."""
    low = words & words.dtype.type((1 << fmt.bits) - 1 if fmt.bits < 32 else 0xFFFFFFFF)
    return fmt.from_bits(low.astype(f"uint{fmt.word_bits}"))


def allocated_text(allocated: tuple[range, ...]) -> str:
    """Return which columns are allocated, in words.

    >>> allocated_text((range(0, 64), range(128, 160)))
    'columns 0–63 and 128–159 are allocated'
    """
    if not allocated:
        return "no column is allocated"
    spans = [f"{columns.start}–{columns.stop - 1}" for columns in allocated]
    return f"columns {' and '.join(spans)} {'are'} allocated"


def picture_of_memory(memory: TensorMemory, options: Options) -> Picture:
    """Return the picture of tensor memory: a cell for 16 lanes × 16 columns, coloured by its last writer."""
    options.refuse("tensor memory", "lane", "operand", "element", "product", "colour", "inputs")
    steps = sorted(set(memory.writers[memory.writers != UNWRITTEN].tolist()))
    colour = {step: PASTELS[number % len(PASTELS)] for number, step in enumerate(steps)}
    allocated = memory.is_allocated
    cells = []
    for lane in range(0, LANES, CELL):
        line = []
        for column in range(0, COLUMNS, CELL):
            part = (slice(lane, lane + CELL), slice(column, column + CELL))
            writers = memory.writers[part]
            last = int(writers.max())
            fill = colour[last] if last != UNWRITTEN else WHITE if allocated[column] else SHARED
            touched = [access for access in memory.touched if access.words[part].any()]
            line.append(_cell(lane, column, last, fill, touched))
        cells.append(line)
    panel = Panel(
        "tensor memory",
        f"{LANES} lanes × {COLUMNS} columns of 32 bits",
        cells,
        Axis("lane", tuple(str(lane) for lane in range(0, LANES, CELL))),
        Axis("column", tuple(str(column) for column in range(0, COLUMNS, CELL))),
        rule=(PARTITION // CELL, 2 * PARTITION // CELL),
    )
    legend = Legend(
        "cells",
        (
            (SHARED, "not allocated"),
            (WHITE, "allocated, nothing written"),
            *((colour[step], f"written by step {step}") for step in steps[-8:]),
        ),
    )
    notes = ["A cell is 16 lanes × 16 columns. Lanes 0–31 are those of warps 0, 4, …, 32–63 of 1, 5, …"]
    notes += [f"Marked: {access.operand} is {_verb(access.kind)} by the step." for access in memory.touched]
    about = allocated_text(memory.allocated)
    return Picture(memory.title, about[0].upper() + about[1:] + ".", (panel,), (legend,), tuple(notes))


def _verb(kind: str) -> str:
    return {"read": "read", "write": "written"}.get(kind, "read and written")


def _cell(lane: int, column: int, last: int, fill: str, touched: list[Touched]) -> Cell:
    """Return the cell of some lanes and columns."""
    words = (f"s{last}",) if last != UNWRITTEN else ()
    what = "; ".join(f"{access.operand} is {_verb(access.kind)}" for access in touched)
    place = f"lanes {lane}–{lane + CELL - 1}, columns {column}–{column + CELL - 1}"
    by = f"last written by step {last}" if last != UNWRITTEN else "nothing written"
    return Cell(words, fill, f"{place}: {by}{f'; {what}' if what else ''}", bool(touched))
