"""Where the operands of a tcgen05.mma lie: words of tensor memory, and which block of a pair holds what.

The layouts are tables of `isa/tensor_memory`; here they are asked element by element.
"""

from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS
from lanewise.isa.asynchronous.descriptor import InstructionDescriptor, Product
from lanewise.isa.tensor_memory.accumulators import (
    METADATA,
    PARTITION,
    Region,
    a_column,
    block_rows,
    factor_place,
    metadata_place,
    regions,
)
from lanewise.isa.tensor_memory.copy_shapes import EXPANSIONS

#: The operands that lie in tensor memory, or may lie there (A), by their keys.
KEYS = ("a", "metadata", "scale_a", "scale_b", "c", "d")


class Bits(NamedTuple):
    """Some bits of a word of tensor memory: block, lane, column from the operand's address, first bit, count.

    An element that several data paths use has a copy for each.
    """

    block: int
    lane: int
    column: int
    first_bit: int
    bits: int

    @property
    def text(self) -> str:
        """The column, with the bits where they are not the whole word.

        >>> Bits(0, 3, 5, 16, 16).text
        '5 bits 16-31'
        """
        if self.bits == 32:
            return str(self.column)
        return f"{self.column} bits {self.first_bit}-{self.first_bit + self.bits - 1}"


class BlockPart(NamedTuple):
    """The rows and columns of an operand that a block of the pair (or the one block) holds."""

    block: int
    rows: range
    columns: range


def regions_of(descriptor: InstructionDescriptor, product: Product) -> tuple[Region, ...]:
    """Return how the part of D that a block holds is spread over lanes and columns."""
    return regions(descriptor.m, descriptor.n, product.cta_group, product.ws, product.sparse)


def stored_bits(descriptor: InstructionDescriptor, product: Product, name: str) -> tuple[int, int]:
    """Return the bits that an element of A or B takes in memory, and the first bit of it in them.

    fp4 and fp6 beside FP8 take a byte in tensor memory; fp4 of the kinds that have nothing else is packed.
    """
    fmt = FORMATS[getattr(descriptor, name)]
    if fmt.name == "tf32":
        return 32, 0
    if product.kind.narrow or fmt.bits >= 8:
        return fmt.bits, 0
    return 8, next(expansion.first_bit for expansion in EXPANSIONS.values() if expansion.bits == fmt.bits)


def tensor_bits(
    descriptor: InstructionDescriptor, product: Product, key: str, row: int, col: int
) -> tuple[Bits, ...]:
    """Return where an element lies in tensor memory, each copy of it; columns count from its address.

    Rows and columns are those of the whole operand. A's are where it lies in tensor memory.

    >>> from lanewise.isa.asynchronous.descriptor import product_of
    >>> pair = product_of("tcgen05.mma.cta_group::2.kind::f16")
    >>> tensor_bits(InstructionDescriptor("f16", 128, 64), pair, "a", 70, 3)[1]
    Bits(block=1, lane=70, column=1, first_bit=16, bits=16)
    """
    rows = block_rows(descriptor.m, product.cta_group)
    spread = regions_of(descriptor, product)
    if key == "scale_b":
        return tuple(_factors_of_b(descriptor, product, spread, row, col))
    block, inner = divmod(row, rows)
    mine = [part for part in spread if part.row <= inner < part.row + part.rows]
    lanes = [part.lane + inner - part.row for part in mine]
    if key == "a":
        width, first = stored_bits(descriptor, product, "a")
        column, bit = a_column(col, width)
        bits = width if not first else FORMATS[descriptor.a].bits
        return tuple(Bits(block, lane, column, bit + first, bits) for lane in lanes)
    if key in ("c", "d"):
        return tuple(
            Bits(block, lane, col - part.column, 0, FORMATS[descriptor.d].bits)
            for lane, part in zip(lanes, mine, strict=True)
            if part.column <= col < part.column + part.columns
        )
    if key == "scale_a":
        places = [factor_place(inner, col, descriptor.scale_a_id, lane, rows) for lane in lanes]
        return tuple(Bits(block, place.lane, place.column, 8 * place.byte, 8) for place in places)
    if key == "metadata":
        bits = 4 if product.kind.narrow else max(8, FORMATS[descriptor.a].bits)
        bits = 32 if descriptor.a == "tf32" else bits
        pieces = []
        for lane in lanes[:1]:
            there, column, bit = metadata_place(lane, col, bits)
            chosen = descriptor.sparsity_selector if METADATA[bits].paired else 0
            pieces.append(Bits(block, there, column + chosen, bit, 4))
        return tuple(pieces)
    raise LanewiseError(f"{key!r} of tcgen05.mma does not lie in tensor memory; {', '.join(KEYS)} may")


def _factors_of_b(
    descriptor: InstructionDescriptor, product: Product, spread: tuple[Region, ...], factor: int, col: int
) -> list[Bits]:
    """Return the copies of a scale factor of B: one in each partition of lanes that uses it."""
    factors = []
    for block in range(product.cta_group):
        for part in spread:
            if not part.column <= col < part.column + part.columns:
                continue
            for lane in range(part.lane, part.lane + part.rows, PARTITION):
                place = factor_place(col - part.column, factor, descriptor.scale_b_id, lane, part.columns)
                factors.append(Bits(block, place.lane, place.column, 8 * place.byte, 8))
    return factors


def block_parts(descriptor: InstructionDescriptor, product: Product, key: str) -> tuple[BlockPart, ...]:
    """Return which block of a pair holds which rows and columns of A, B or D.

    Each block has half of A's and D's rows, and half of B's columns, in its own memory.

    >>> from lanewise.isa.asynchronous.descriptor import product_of
    >>> pair = product_of("tcgen05.mma.cta_group::2.kind::f16")
    >>> block_parts(InstructionDescriptor("f16", 256, 64), pair, "b")[1]
    BlockPart(block=1, rows=range(0, 16), columns=range(32, 64))
    """
    blocks, terms = product.cta_group, descriptor.k // 2 if product.sparse else descriptor.k
    shape = {"a": (descriptor.m, terms), "b": (descriptor.k, descriptor.n)}.get(
        key, (descriptor.m, descriptor.n)
    )

    def part(size: int, number: int) -> range:
        return range(size // blocks * number, size // blocks * (number + 1))

    return tuple(
        BlockPart(block, range(shape[0]), part(shape[1], block))
        if key == "b"
        else BlockPart(block, part(shape[0], block), range(shape[1]))
        for block in range(blocks)
    )
