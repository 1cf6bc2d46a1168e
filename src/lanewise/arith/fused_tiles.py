"""What the fused kernels share: how a model's work is divided, and the memory that one block works on."""

from dataclasses import dataclass
from functools import cached_property

from lanewise.arith.models import FusedSum, Model
from lanewise.jit.simd import Pointer, Value


@dataclass(frozen=True)
class Plan:
    """The division of a model's work into vectors of `lanes` f32 and strips of `strip` columns.

    `element_loads`: whether an element is best spread to a vector from memory (x86) or from a register (Arm).
    """

    model: Model
    lanes: int
    strip: int
    element_loads: bool

    @cached_property
    def scheme(self) -> FusedSum:
        """How the model sums: in blocks of products that are aligned and truncated together."""
        assert isinstance(self.model.scheme, FusedSum)
        return self.model.scheme

    @property
    def spread(self) -> int:
        """The columns of K that a selected element stands for: a sparse A is spread out, with gaps."""
        return 2 if self.model.sparse else 1

    @property
    def length(self) -> int:
        """The columns of K in a block."""
        return self.model.block * self.spread

    @property
    def group(self) -> int:
        """The columns of K in a group."""
        return self.scheme.group if self.scheme.group == 1 else self.scheme.group * self.spread

    @property
    def half(self) -> bool:
        """Whether the sum is carried in f16."""
        return self.scheme.rounding == "RNE-FP16"

    @property
    def narrow(self) -> bool:
        """Whether the narrow method can be used for this model at all."""
        return self.model.scale is None and self.scheme.group == 1

    @property
    def sum_emin(self) -> int:
        """The exponent of subnormal sums."""
        return -14 if self.half else -126

    @property
    def bound(self) -> float:
        """An upper bound of a block's sum, in units of 2^(e_max - fraction)."""
        largest = (2 - 2.0**-self.model.a.mantissa_bits) * (2 - 2.0**-self.model.b.mantissa_bits)
        return (self.model.block * largest + 2) * 2.0**self.scheme.fraction


@dataclass(frozen=True)
class PackedRows:
    """Decoded rows of A: numbers and exponents as [row][k], and a flag for each row and block."""

    values: Pointer
    exponents: Pointer
    flags: Pointer
    blocks: Value


@dataclass(frozen=True)
class Tile:
    """A strip of a matrix of f32 sums."""

    first: Pointer
    row_length: Value

    def load(self, row: Value, column: Value | int, lanes: int) -> Value:
        """Load a vector from a row."""
        return self.first.load(row * self.row_length + column, lanes)

    def store(self, value: Value, row: Value, column: Value | int) -> None:
        """Store a vector to a row."""
        self.first.store(value, row * self.row_length + column)


@dataclass(frozen=True)
class Room:
    """Buffers of a block: for each element of a strip a scale and two sums, for each row a flag."""

    scales: Pointer
    sums: Pointer
    more_sums: Pointer
    unfit: Pointer


@dataclass(frozen=True)
class Block:
    """One block of K for some rows and one strip of columns."""

    rows: Value
    a: PackedRows
    #: The block's number, and the strip's first column in B.
    number: Value
    first_column: Value
    #: B's numbers and exponents as [k][column], and whether some of them need the wide method.
    b_values: Pointer
    b_exponents: Pointer
    b_flag: Value
    room: Room
    #: The sums that enter as C (none: zeros), and where the block's results go.
    before: Tile | None
    after: Tile

    def row_offset(self, row: Value, length: int) -> Value:
        """Return the offset of a row's elements of this block in the packed A."""
        return (row * self.a.blocks + self.number) * length
