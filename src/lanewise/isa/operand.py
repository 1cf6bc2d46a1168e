"""An operand of a matrix instruction: its matrix, and the registers in which lanes hold its elements.

Everything is read off one CuTe layout. Matrices are spoken of as written: A (M, K), B (K, N), C and D (M, N).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from lanewise.engines import FRAGMENT_OF_REGISTERS, FULL_FRAGMENT, Drawn
from lanewise.errors import LanewiseError
from lanewise.formats import Format, as_array
from lanewise.isa.form import stated
from lanewise.layout import Layout
from lanewise.layout.int_tuple import flatten
from lanewise.tracebacks import short_methods

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lanewise.numpy_types import AnyArray, AnyDtype


class Holder(NamedTuple):
    """The lane (or thread of a warpgroup) that holds an element, its register, and the slot in it."""

    lane: int
    register: int
    slot: int


#: How elements lie that no register holds, in words.
_PACKED_IN = {
    "shared memory": "in shared memory, behind a 64-bit descriptor",
    "tensor memory": "in tensor memory, by lanes and columns",
}


class MissingOperand(LanewiseError, AttributeError):
    """An operand that an instruction does not have: also an AttributeError, so that hasattr says no."""


def within(number: int, limit: int, what: str, owner: str) -> int:
    """A number from 0 to below the limit as a plain int, or an error that says what the owner has.

    >>> within(5, 32, "lane", "A")
    5
    """
    try:
        value = index(number)
    except TypeError:
        raise LanewiseError(f"a {what} of {owner} is an integer, not {number!r}") from None
    if not 0 <= value < limit:
        span = f"{what}s 0 to {limit - 1}" if limit > 1 else f"{what} 0 only"
        raise LanewiseError(f"{owner} has {span}; {what} {value} was asked for")
    return value


class _Digit(NamedTuple):
    """A digit of a lane's or a value's number, and the element that it alone leads to."""

    name: str
    divisor: int
    extent: int
    element: tuple[int, int]

    def of(self, number: int) -> int:
        return number // self.divisor % self.extent


def _divisors(mode: object) -> list[tuple[int, int]]:
    """The digits of a number that counts through a mode: what it is divided by, and its extent."""
    divisors, divisor = [], 1
    for extent in flatten(mode):
        if extent > 1:
            divisors.append((divisor, extent))
        divisor *= extent
    return divisors


def _steps(digits: list[_Digit], number: int) -> tuple[int, int]:
    """How many rows and columns a lane's or a value's number leads on from the first element."""
    rows = sum(digit.of(number) * digit.element[0] for digit in digits)
    return rows, sum(digit.of(number) * digit.element[1] for digit in digits)


def _sum(digits: list[_Digit], axis: int, extents: dict[str, int]) -> str:
    """The digits' shares of a row or column, added up in C's notation; neighbours that go on are one term."""
    terms: list[tuple[str, int, int, int]] = []
    for name, divisor, extent, element in digits:
        step = element[axis]
        if terms:
            last, start, length, first = terms[-1]
            if last == name and start * length == divisor and first * length == step:
                terms[-1] = (name, start, length * extent, first)
                continue
        terms.append((name, divisor, extent, step))
    return (
        " + ".join(
            name
            + (f" / {divisor}" if divisor > 1 else "")
            + (f" % {extent}" if divisor * extent < extents[name] else "")
            + (f" * {step}" if step != 1 else "")
            for name, divisor, extent, step in terms
        )
        or "0"
    )


@short_methods
@dataclass(frozen=True, repr=False)
class Operand(Drawn):
    """One operand: a matrix of `rows` × `cols` elements and where the threads hold them.

    `layout` maps (thread, value) to the flat column-major index of the matrix (of its transpose for B, as
    CuTe has it). Value v lies in register v // slots, slot v % slots. For Volta's m8n8k4, which does four
    products a warp, `thr_id` maps the 8 threads of the first product to their lanes; product q adds 4·q.

    >>> from lanewise.isa import instruction
    >>> d = instruction("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32").d
    >>> d.element(lane=5, value=2), d.holder(9, 2)
    ((9, 2), Holder(lane=5, register=2, slot=0))
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
    INSTEAD: ClassVar = {
        "load": "in a kernel, lw.ldmatrix loads a fragment from shared memory; on arrays, pack(matrix) "
        "returns the registers of all lanes",
        "store": "in a kernel, element(i) of a fragment says where its value i goes; on arrays, "
        "unpack(registers) returns the matrix",
    }

    if not TYPE_CHECKING:  # a checker knows that it has no items

        def __getitem__(self, index: object) -> NoReturn:
            raise TypeError(
                "an operand has no items: .holder(row, col) says who holds an element, "
                ".element(lane, value) which element a lane holds"
            )

    @property
    def title(self) -> str:
        """The operand's name with its instruction's, as messages give it."""
        return f"{self.name} of {self.instruction}" if self.instruction else self.name

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) of the matrix."""
        return self.rows, self.cols

    @property
    def slots(self) -> int:
        """How many elements a register holds."""
        return self.register_bits // self.slot_bits

    @property
    def registers(self) -> int:
        """How many registers of a lane hold this operand; 0 for an operand in shared memory."""
        return 0 if self.where != "registers" else -(-self.values // self.slots)

    @property
    def values(self) -> int:
        """How many elements one lane holds; copies of an element count each."""
        return self.layout[1].size()

    @property
    def packing(self) -> str:
        """In words: how the elements are packed into registers."""
        if self.where != "registers":
            return _PACKED_IN[self.where]
        kind = ".f64" if self.register_bits == 64 else ".b32"
        slots = f"{self.slots} {self.format.name} in each" if self.slots > 1 else self.format.name
        shifted = f", in bits {self.shift + self.format.bits - 1}..{self.shift} of each {self.slot_bits}"
        contained = self.slot_bits != self.format.bits
        return f"{self.registers} × {kind}, {slots}{shifted if contained else ''}"

    # the tables behind every question -----------------------------------------------------------------

    @cached_property
    def _cells(self) -> list[list[tuple[int, int, int]]]:
        """For each lane and value: (product, row, col)."""
        self._in_registers()
        outer = self.cols if self.transposed else self.rows
        # A layout is linear in its two modes, so a thread's and a value's share of the index add up.
        of_value = [self.layout(0, value) for value in range(self.values)]
        cells: list[list[tuple[int, int, int]]] = [[] for _ in range(self.threads)]
        for product in range(self.products):
            for thread in range(self.layout[0].size()):
                lane = thread if self.thr_id is None else self.thr_id(thread) + 4 * product
                start = self.layout(thread, 0)
                for offset in of_value:
                    high, inner = divmod(start + offset, outer)
                    cells[lane].append((product, high, inner) if self.transposed else (product, inner, high))
        return cells

    @cached_property
    def _holders(self) -> dict[tuple[int, int, int], tuple[Holder, ...]]:
        holders_of: dict[tuple[int, int, int], list[Holder]] = {}
        for lane, cells in enumerate(self._cells):
            for value, cell in enumerate(cells):
                holders_of.setdefault(cell, []).append(Holder(lane, *divmod(value, self.slots)))
        return {cell: tuple(holders) for cell, holders in holders_of.items()}

    def _in_registers(self) -> None:
        if self.where != "registers":
            if self.where == "tensor memory":
                raise LanewiseError(f"{self.title} lies in tensor memory: no thread's registers hold it")
            raise LanewiseError(
                f"{self.title} lies in shared memory behind a descriptor: no lane holds its elements"
            )

    # questions -----------------------------------------------------------------------------------------

    def holders(self, row: int, col: int, product: int = 0) -> tuple[Holder, ...]:
        """Return every (lane, register, slot) that holds the element at row, col."""
        self._in_registers()
        cell = (
            within(product, self.products, "product", self.title),
            within(row, self.rows, "row", self.title),
            within(col, self.cols, "column", self.title),
        )
        return self._holders[cell]

    def holder(self, row: int, col: int, product: int = 0) -> Holder:
        """Return the first (lane, register, slot) that holds the element at row, col."""
        return self.holders(row, col, product)[0]

    def element(self, lane: int, value: int) -> tuple[int, int]:
        """Return (row, col) of the value-th element of a lane, counted through its registers."""
        return self.cell(lane, value)[1:]

    def cell(self, lane: int, value: int) -> tuple[int, int, int]:
        """Return (product, row, col) of a lane's value; the product is 0, or for m8n8k4 0 to 3."""
        self._in_registers()
        lane = within(lane, self.threads, "lane", self.title)
        return self._cells[lane][within(value, self.values, "value", self.title)]

    # inside kernels ------------------------------------------------------------------------------------

    @property
    def formulas(self) -> tuple[str, str] | None:
        """The row and the column of a lane's value as formulas of C; None for layouts without one.

        >>> from lanewise.isa import instruction
        >>> instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").d.formulas
        ('lane / 4 + value / 2 * 8', 'lane % 4 * 2 + value % 2')
        """
        return self._formulas

    @cached_property
    def _formulas(self) -> tuple[str, str] | None:
        if self.where != "registers" or self.thr_id is not None:
            return None
        extents = {"lane": self.threads, "value": self.values}
        digits = [
            _Digit(name, divisor, extent, self.element(**{"lane": 0, "value": 0, name: divisor}))
            for name, mode in zip(extents, self.layout.shape, strict=True)
            for divisor, extent in _divisors(mode)
        ]
        of_lane, of_value = (
            [_steps([digit for digit in digits if digit.name == name], number) for number in range(extent)]
            for name, extent in extents.items()
        )
        for cells, (row, column) in zip(self._cells, of_lane, strict=True):
            if [cell[1:] for cell in cells] != [(row + down, column + across) for down, across in of_value]:
                return None
        by_row, by_column = ([digit for digit in digits if digit.element[axis]] for axis in (0, 1))
        return _sum(by_row, 0, extents), _sum(by_column, 1, extents)

    def full(self, value: object) -> Any:
        """Return a fragment with one value in every element, inside a kernel."""
        return FULL_FRAGMENT.function(self, value)

    def zeros(self) -> Any:
        """Return a fragment with 0 in every element, inside a kernel."""
        return self.full(0)

    def fragment(self, registers: object) -> Any:
        """Return a fragment made of the given registers, inside a kernel."""
        return FRAGMENT_OF_REGISTERS.function(self, registers)

    # packing -------------------------------------------------------------------------------------------

    @cached_property
    def gather(self) -> NDArray[np.intp]:
        """For each lane, register and slot: which element of the flattened matrix it holds."""
        import numpy as np

        product, row, col = np.moveaxis(np.array(self._cells, dtype=np.intp), -1, 0)
        flat = (product * self.rows + row) * self.cols + col
        return np.asarray(flat).reshape(self.threads, self.registers, self.slots)

    @cached_property
    def scatter(self) -> NDArray[np.intp]:
        """For each element of the flattened matrix: the first slot that holds it, counted over all lanes."""
        import numpy as np

        first = np.empty(self.products * self.rows * self.cols, dtype=np.intp)
        places = self.gather.ravel()
        # Written from the last place to the first, so that the first of several copies stays.
        first[places[::-1]] = np.arange(places.size, dtype=np.intp)[::-1]
        return first

    @property
    def _word(self) -> AnyDtype:
        import numpy as np

        return np.dtype(f"uint{self.register_bits}")

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The trailing shape that `pack` takes: (rows, cols), after the products of a warp if several."""
        return self.shape if self.products == 1 else (self.products, *self.shape)

    def pack(self, matrix: object) -> AnyArray:
        """Return the registers of all lanes for a matrix, as unsigned integers [..., threads, registers].

        Leading dimensions are kept. m8n8k4 takes its four products as (4, rows, cols).
        """
        import numpy as np

        self._in_registers()
        array = as_array(matrix, self.title)
        expected = self.matrix_shape
        batch = array.shape[: max(array.ndim - len(expected), 0)]
        if array.shape[len(batch) :] != expected:
            raise LanewiseError(
                f"{self.title} is {'×'.join(map(str, expected))}, after any leading dimensions; "
                f"an array of shape {array.shape} was given"
            )
        bits = self.format.to_bits(array).reshape(*batch, self.products * self.rows * self.cols)
        words = np.zeros((*batch, self.threads, self.registers), dtype=self._word)
        for slot in range(self.slots):
            held = bits.take(self.gather[..., slot], axis=-1).astype(self._word, copy=False)
            words |= held << self._word.type(slot * self.slot_bits + self.shift)
        return words

    def unpack(self, words: object) -> AnyArray:
        """Return the matrix that registers hold; if several lanes hold an element, the first one counts."""
        import numpy as np

        self._in_registers()
        array = self._registers(words)
        batch = array.shape[:-2]
        ones = self._word.type((1 << self.format.bits) - 1)
        slots = np.empty((*batch, self.threads, self.registers, self.slots), dtype=self.format.word_dtype)
        for slot in range(self.slots):
            slots[..., slot] = array >> self._word.type(slot * self.slot_bits + self.shift) & ones
        bits = slots.reshape(*batch, self.threads * self.values).take(self.scatter, axis=-1)
        return self.format.from_bits(bits.reshape(*batch, *self.matrix_shape))

    def _registers(self, words: object) -> AnyArray:
        """The words given, as unsigned ones; an error if they are not this operand's registers."""
        array = as_array(words, f"the registers of {self.title}")
        fits = array.dtype.kind in "ui" and array.dtype.itemsize == self._word.itemsize
        if fits and array.shape[-2:] == (self.threads, self.registers):
            return array.astype(array.dtype.newbyteorder("="), copy=False).view(self._word)
        raise LanewiseError(
            f"the registers of {self.title} are {self._word}[…, {self.threads}, {self.registers}]; "
            f"{array.dtype}{list(array.shape)} was given"
        )

    def __getstate__(self) -> dict[str, object]:
        return stated(self)

    def __repr__(self) -> str:
        return f"<{self}; {self.layout}>"

    def __str__(self) -> str:
        return f"{self.name} ({self.rows}×{self.cols} {self.format.name}): {self.packing}"


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
