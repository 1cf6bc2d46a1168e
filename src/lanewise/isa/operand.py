"""An operand of a matrix instruction: its matrix, and the registers in which lanes hold its elements.

Everything is read off one CuTe layout. Matrices are spoken of as written: A (M, K), B (K, N), C and D (M, N).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Holder(NamedTuple):
    """A place that holds an element: lane (thread of the group), register, and slot within the register."""

    lane: int
    register: int
    slot: int


@dataclass(frozen=True)
class Operand:
    """One operand: a matrix of `rows` × `cols` elements and where the threads hold them.

    `layout` maps (thread, value) to the flat column-major index of the matrix (of its transpose for B, as CuTe
    has it). Value v lies in register v // slots, slot v % slots. For Volta's m8n8k4, which does four products a
    warp, `thr_id` maps the 8 threads of the first product to their lanes, and product q adds 4·q.
    """

    name: str
    rows: int
    cols: int
    format: Format
    layout: Layout
    source: str
    slot_bits: int
    transposed: bool = False
    register_bits: int = 32
    shift: int = 0
    threads: int = 32
    products: int = 1
    thr_id: Layout | None = None
    where: str = "registers"
    instruction: str = field(default="", compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) of the matrix."""
        return self.rows, self.cols

    @property
    def slots(self) -> int:
        """Elements a register holds."""
        return self.register_bits // self.slot_bits

    @property
    def registers(self) -> int:
        """Registers a lane gives to this operand; none for an operand in shared memory."""
        return 0 if self.where != "registers" else -(-self.values // self.slots)

    @property
    def values(self) -> int:
        """Elements that one lane holds, copies counted."""
        return self.layout[1].size()

    @property
    def packing(self) -> str:
        """How elements sit in registers, in words."""
        if self.where != "registers":
            return "in shared memory, behind a 64-bit descriptor"
        kind = ".f64" if self.register_bits == 64 else ".b32"
        slots = f"{self.slots} {self.format.name} a register" if self.slots > 1 else self.format.name
        shifted = f", in bits {self.shift + self.format.bits - 1}..{self.shift} of each {self.slot_bits}"
        contained = self.slot_bits != self.format.bits
        return f"{self.registers} × {kind}, {slots}{shifted if contained else ''}"

    # the tables behind every question -----------------------------------------------------------------

    @cached_property
    def _cells(self) -> list[list[tuple[int, int, int]]]:
        """For each lane and value: (product, row, col)."""
        self._in_registers()
        outer = self.cols if self.transposed else self.rows
        cells: list[list[tuple[int, int, int]]] = [[] for _ in range(self.threads)]
        for product in range(self.products):
            for thread in range(self.layout[0].size()):
                lane = thread if self.thr_id is None else self.thr_id(thread) + 4 * product
                for value in range(self.values):
                    inner, high = self.layout(thread, value) % outer, self.layout(thread, value) // outer
                    row, col = (high, inner) if self.transposed else (inner, high)
                    cells[lane].append((product, row, col))
        return cells

    @cached_property
    def _holders(self) -> dict[tuple[int, int, int], tuple[Holder, ...]]:
        found: dict[tuple[int, int, int], list[Holder]] = {}
        for lane, cells in enumerate(self._cells):
            for value, cell in enumerate(cells):
                found.setdefault(cell, []).append(Holder(lane, *divmod(value, self.slots)))
        return {cell: tuple(holders) for cell, holders in found.items()}

    def _in_registers(self) -> None:
        if self.where != "registers":
            raise LanewiseError(
                f"{self.name} of {self.instruction} lies in shared memory behind a descriptor: no lane holds it"
            )

    # questions -----------------------------------------------------------------------------------------

    def holders(self, row: int, col: int, product: int = 0) -> tuple[Holder, ...]:
        """Every (lane, register, slot) that holds the element at row, col."""
        self._check(row, self.rows, "row")
        self._check(col, self.cols, "column")
        self._check(product, self.products, "product")
        self._in_registers()
        return self._holders[product, row, col]

    def holder(self, row: int, col: int, product: int = 0) -> Holder:
        """The first (lane, register, slot) that holds the element at row, col."""
        return self.holders(row, col, product)[0]

    def element(self, lane: int, value: int) -> tuple[int, int]:
        """(row, col) of the element that a lane holds as its value-th, counted through its registers."""
        return self.cell(lane, value)[1:]

    def cell(self, lane: int, value: int) -> tuple[int, int, int]:
        """(product, row, col) of a lane's value; the product is 0 but for m8n8k4, where four go side by side."""
        self._in_registers()
        self._check(lane, self.threads, "lane")
        self._check(value, self.values, "value")
        return self._cells[lane][value]

    def _check(self, number: int, limit: int, what: str) -> None:
        if not isinstance(number, int) and not hasattr(number, "__index__"):
            raise LanewiseError(f"{what} {number!r} is not an integer")
        if not 0 <= number < limit:
            plural = {"product": "one product" if limit == 1 else "products"}.get(what, f"{what}s")
            span = f"has {plural} 0 to {limit - 1}" if limit > 1 else f"has {what} 0 only"
            raise LanewiseError(f"{self.name} of {self.instruction} {span}; {what} {number} was asked for")

    # packing -------------------------------------------------------------------------------------------

    @cached_property
    def _gather(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        import numpy as np

        cells = np.array(self._cells, dtype=np.intp)
        return cells[..., 0], cells[..., 1], cells[..., 2]

    @cached_property
    def _scatter(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        import numpy as np

        first = np.array(
            [
                [[self._holders[q, r, c][0] for c in range(self.cols)] for r in range(self.rows)]
                for q in range(self.products)
            ],
            dtype=np.intp,
        )
        return first[..., 0], first[..., 1] * self.slots + first[..., 2]

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The trailing shape that `pack` takes: (rows, cols), with the products of a warp before it if several."""
        return self.shape if self.products == 1 else (self.products, *self.shape)

    def pack(self, matrix: Any) -> NDArray[Any]:
        """The registers of all lanes for a matrix: unsigned[..., threads, registers].

        Leading dimensions are kept. m8n8k4 takes its four products as (4, rows, cols).
        """
        import numpy as np

        self._in_registers()
        array = np.asarray(matrix)
        expected = self.matrix_shape
        if array.shape[-len(expected) :] != expected:
            raise LanewiseError(
                f"{self.name} of {self.instruction} is {'×'.join(map(str, expected))}; "
                f"an array of shape {array.shape} was given"
            )
        bits = self.format.to_bits(array).reshape(*array.shape[: -len(expected)], self.products, *self.shape)
        word = np.dtype(f"uint{self.register_bits}")
        product, row, col = self._gather
        values = bits[..., product, row, col].astype(word)
        values = values.reshape(*values.shape[:-1], self.registers, self.slots)
        places = (np.arange(self.slots) * self.slot_bits + self.shift).astype(word)
        return np.asarray(np.bitwise_or.reduce(values << places, axis=-1))

    def unpack(self, words: Any) -> NDArray[Any]:
        """The matrix that registers hold; where several lanes hold an element, the first is read."""
        import numpy as np

        self._in_registers()
        array = np.asarray(words)
        word = np.dtype(f"uint{self.register_bits}")
        expected = (self.threads, self.registers)
        if array.shape[-2:] != expected or array.dtype.kind not in "ui" or array.dtype.itemsize != word.itemsize:
            raise LanewiseError(
                f"the registers of {self.name} of {self.instruction} are {word}[…, {self.threads}, "
                f"{self.registers}]; {array.dtype}{list(array.shape)} was given"
            )
        places = (np.arange(self.slots) * self.slot_bits + self.shift).astype(word)
        values = array.view(word)[..., None] >> places & word.type((1 << self.format.bits) - 1)
        values = values.reshape(*array.shape[:-1], self.registers * self.slots)
        lane, value = self._scatter
        bits = values[..., lane, value]
        if self.products == 1:
            bits = bits[..., 0, :, :]
        return self.format.from_bits(bits)

    def __str__(self) -> str:
        return f"{self.name} ({self.rows}×{self.cols} {self.format.name}): {self.packing}"
