"""Tensor memory as CuTe lays it out: tensors in it, and which bits each thread of a copy to or from it moves.

Addresses have the data path (lane) above the columns. Where an accumulator lies is decided in
`isa/tensor_memory/accumulators.py`. Copies under CUTLASS's names are derived from the shapes of tcgen05.ld,
st and cp in `isa/tensor_memory`: CuTe counts their bits lane by lane, and `ValID` says where in tensor memory
each of them lies. Tiled copies are in `tiled_copy.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lanewise.atoms.value_types import ValueType
from lanewise.errors import LanewiseError
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.isa.tensor_memory import copy_shapes, load_shapes
from lanewise.isa.tensor_memory.accumulators import COLUMNS, LANES, regions
from lanewise.isa.tensor_memory.copy_shapes import CopyShape
from lanewise.isa.tensor_memory.load_shapes import NUMS, LoadShape
from lanewise.layout import (
    Layout,
    Tensor,
    coalesce,
    composition,
    flatten,
    make_layout,
    product,
    size,
    tiled_product,
)
from lanewise.layout.int_tuple import Nested, spell

#: Bits of a column, and by how many bits of an address lanes lie above columns.
COLUMN_BITS, LANE_SHIFT = 32, 16
#: The bit addresses from one lane to the next, as CuTe's traits count them (TMEM::DP_b).
LANE_BITS = COLUMN_BITS << LANE_SHIFT


def lane_stride(bits: int) -> int:
    """Return how many values of some bits one lane lies after another: TMEM::DP<T>.

    >>> lane_stride(32), lane_stride(16)
    (65536, 131072)
    """
    if bits not in (4, 8, 16, 32):
        raise LanewiseError(f"tensor memory is counted in values of 4, 8, 16 or 32 bits, not {bits}")
    return LANE_BITS // bits


class TmemTensor(Tensor):
    """A tensor in tensor memory, counted in values of its type from an address on.

    >>> from lanewise.atoms.value_types import value_type
    >>> TmemTensor(value_type("float"), Layout((128, 32), (65536, 1)), 65536 * 3 + 8)
    tmem_[32b](0x0003.0008) o (128,32):(65536,1)
    """

    __slots__ = ("value_type",)

    value_type: ValueType

    def __init__(self, value_type: ValueType, layout: Layout, offset: int = 0) -> None:
        super().__init__(offset, layout)
        self.value_type = value_type

    def _at(self, layout: object, offset: object) -> TmemTensor:
        new = TmemTensor.__new__(TmemTensor)
        new.data, new.layout, new.offset, new.value_type = None, layout, offset, self.value_type
        return new

    def place(self, *coordinate: Nested) -> tuple[int, int]:
        """Return the lane and the first bit within the lane's columns of an element.

        >>> from lanewise.atoms.value_types import value_type
        >>> TmemTensor(value_type("half_t"), Layout((128, 8), (131072, 2))).place(5, 3)
        (5, 96)
        """
        value: Any = self(*coordinate)
        lane, inside = divmod(value, lane_stride(self.value_type.bits))
        return lane, inside * self.value_type.bits

    def columns(self) -> int:
        """Return how many columns it reaches, counted from its address."""
        bits, lanes = self.value_type.bits, lane_stride(self.value_type.bits)
        inside = [
            (extent - 1) * stride
            for extent, stride in zip(flatten(self.layout.shape), flatten(self.layout.stride), strict=True)
            if stride < lanes
        ]
        reached: int = (sum(inside) + 1) * bits
        return -(-reached // COLUMN_BITS)

    def __repr__(self) -> str:
        offset: Any = self.offset
        address = offset * self.value_type.bits // COLUMN_BITS
        lane, column = divmod(address, 1 << LANE_SHIFT)
        return f"tmem_[{self.value_type.bits}b](0x{lane:04x}.{column:04x}) o {self.layout}"


def find_tmem_tensor_col_offset(tensor: TmemTensor) -> int:
    """Return how many columns of tensor memory a tensor takes, as CUTLASS's function of this name does."""
    if not isinstance(tensor, TmemTensor):
        raise LanewiseError(f"only a tensor in tensor memory takes columns of it, not {tensor!r}")
    return tensor.columns()


def tmem_fragment(
    mma: Tcgen05Instruction,
    value: ValueType,
    storage_bits: int,
    shape: object,
    *,
    interleaved: bool = True,
    copied: bool = False,
) -> TmemTensor:
    """Return the tensor for a block's part ((rows, columns), Rest, …) of an operand of tcgen05.mma.

    Rows go to the lanes that the data path of the instruction has for D. A value lies in `storage_bits` of a
    lane's columns. Tiles fill lanes that one leaves empty first, if they are `interleaved`, and then columns.
    `copied` operands have a copy in every group of lanes that holds other columns of D.

    >>> from lanewise.atoms.value_types import value_type
    >>> from lanewise.isa import instruction
    >>> tmem_fragment(instruction("tcgen05 m64n32k16 f16"), value_type("float"), 32, ((64, 32), 2, 1))
    tmem_[32b](0x0000.0000) o (((16,4),32),2,1):(((65536,2097152),1),1048576,0)
    """
    if not isinstance(shape, tuple) or len(shape) < 3 or not isinstance(shape[0], tuple):
        raise LanewiseError(
            "a fragment in tensor memory is made for a partition ((rows, columns), Rest, …), not "
            f"{spell(shape)}"
        )
    rest, columns = shape[1:], product(shape[0][1])
    if product(shape) * storage_bits > LANES * COLUMNS * COLUMN_BITS:
        raise LanewiseError(
            f"a fragment of shape {spell(shape)} needs more than the {COLUMNS} columns of tensor memory: "
            "take a smaller tile, or fewer stages"
        )
    atom = _atom_layout(mma, columns, copied)
    step = 1 if interleaved or size(atom[0]) > LANES // 2 else 2
    tiles = Layout(rest) if step == 1 else _spaced(rest, step)
    logical = tiled_product(atom, tiles)
    restride = Layout((LANES, COLUMNS * COLUMN_BITS), (lane_stride(value.bits), storage_bits // value.bits))
    return TmemTensor(value, composition(restride, logical))


def _atom_layout(mma: Tcgen05Instruction, columns: int, copied: bool) -> Layout:
    """Return the layout from (row, column) of one operation's part to lane + 128·column."""
    product_ = mma.product
    spread = regions(mma.m, mma.n, mma.cta_group, product_.ws, product_.sparse)
    first, count = spread[0], len(spread)
    step = spread[1].lane if count > 1 else 0
    if first.columns < mma.n:  # the same rows in several groups of lanes, with other columns
        if copied:
            return Layout((LANES, columns), (1, LANES))
        return Layout((first.rows, (columns // count, count)), (1, (LANES, step)))
    if count > 1:
        return Layout(((first.rows, count), columns), ((1, step), LANES))
    return Layout((first.rows, columns), (1, LANES))


def _spaced(shape: object, step: int) -> Layout:
    """Return the compact layout of a shape, its strides multiplied."""
    compact = Layout(shape)
    return make_layout([Layout(mode.shape, _times(mode.stride, step)) for mode in compact])


def _times(stride: Any, step: int) -> Any:
    return tuple(_times(mode, step) for mode in stride) if isinstance(stride, tuple) else stride * step


#: Bits of a value that is packed with another one into a register.
_PACKED_BITS = 16


@dataclass(frozen=True)
class TensorMove:
    """A copy to or from tensor memory: its PTX, its threads, and its (thread, bit) layouts on both sides.

    `val_id` maps a number of a bit to its address in tensor memory, in bits. The `target` of a load is its
    registers, that of a store or of a copy from shared memory is tensor memory.
    """

    text: str
    threads: int
    val_id: Layout
    source: Layout
    target: Layout

    @property
    def kind(self) -> str:
        """ "ld", "st" or "cp"."""
        return self.text.split(".")[1]

    @property
    def reference(self) -> Layout:
        """The side in tensor memory, by which CuTe arranges the copy."""
        return self.source if self.kind == "ld" else self.target


def tensor_moves() -> Iterator[tuple[str, TensorMove]]:
    """Every copy to or from tensor memory that CUTLASS has a name for.

    >>> moves = dict(tensor_moves())
    >>> moves["SM100_TMEM_LOAD_16dp256b1x"].target
    ((4,8),(64,2)):((64,256),(1,2048))
    """
    for shape in load_shapes.SHAPES.values():
        lanes, _, rest = shape.name.partition("x")
        for num in NUMS:
            try:
                shape.registers_of(num)
            except LanewiseError:
                continue  # more registers than a thread may have
            for packed in (False, True):
                name = f"{lanes}dp{rest.removesuffix('x2')}{num}x{'_16b' * packed}"
                yield f"SM100_TMEM_LOAD_{name}", _load_or_store("ld", shape, num, packed)
                yield f"SM100_TMEM_STORE_{name}", _load_or_store("st", shape, num, packed)
    for cutlass, ptx in _COPIES.items():
        for ctas in (1, 2):
            yield f"SM100_UTCCP_{cutlass}_{ctas}cta", _from_shared(copy_shapes.SHAPES[ptx], ctas)


#: CUTLASS's names of the copies from shared memory, with PTX's.
_COPIES = {
    "128dp256bit": "128x256b",
    "128dp128bit": "128x128b",
    "4dp256bit": "4x256b",
    "2x64dp128bitlw0213": "64x128b.warpx2::02_13",
    "2x64dp128bitlw0123": "64x128b.warpx2::01_23",
    "4x32dp128bit": "32x128b.warpx4",
}


def _load_or_store(kind: str, shape: LoadShape, num: int, packed: bool) -> TensorMove:
    """Return the load or store of a shape, repeated `num` times along the columns."""
    inside = shape.columns * num * COLUMN_BITS  # of a lane, for each half
    width = inside * shape.halves
    in_bits = Layout((shape.lanes, shape.columns * num), (width, COLUMN_BITS))
    threads = composition(in_bits, shape.threads)
    if shape.halves > 1:
        threads = Layout((threads.shape, shape.halves), (threads.stride, inside))
    registers = composition(in_bits, shape.registers)
    step = shape.columns * COLUMN_BITS
    bits = make_layout([Layout(COLUMN_BITS), *_modes(registers), Layout(num, step)])
    held = make_layout(threads, coalesce(bits))
    whole = Layout((load_shapes.WARP, width * shape.lanes), (0, 1))
    row = Layout(width) if not packed else Layout((_PACKED_BITS, width // _PACKED_BITS), (1, COLUMN_BITS))
    val_id = make_layout(row, Layout(shape.lanes, LANE_BITS))
    pack = {"ld": ".pack::16b", "st": ".unpack::16b"}[kind] * packed
    text = f"tcgen05.{kind}.sync.aligned.{shape.name}.x{num}{pack}.b32"
    sides = (whole, held) if kind == "ld" else (held, whole)
    return TensorMove(text, load_shapes.WARP, val_id, *sides)


def _modes(layout: Layout) -> list[Layout]:
    """Return the flat modes of a layout."""
    flat = zip(flatten((layout.shape,)), flatten((layout.stride,)), strict=True)
    return [Layout(extent, stride) for extent, stride in flat]


def _from_shared(shape: CopyShape, ctas: int) -> TensorMove:
    """Return the copy of a matrix in shared memory, by one block or by both of a pair."""
    text = f"tcgen05.cp.cta_group::{ctas}.{shape.name}"
    rows, copies = shape.lanes
    if shape.rows < load_shapes.WARP:  # one lane of each partition: CuTe says which bits of all lanes
        lanes = shape.rows * load_shapes.PARTITION
        val_id = Layout((lanes, shape.bits), (LANE_BITS, 1))
        refreshed = Layout((ctas, (shape.rows, shape.bits)), (0, (load_shapes.PARTITION, lanes)))
        return TensorMove(text, ctas, val_id, refreshed, refreshed)
    first, *others = _modes(rows)
    bits = Layout(shape.bits)
    modes = [(first, LANE_BITS), (bits, 1), *((other, LANE_BITS) for other in others)]
    modes += [(copies, LANE_BITS)] if shape.copies > 1 else []
    val_id = make_layout([Layout(mode.shape, mode.stride * unit) for mode, unit in modes])
    whole = Layout((ctas, val_id.size()), (0, 1))
    if shape.copies == 1:
        return TensorMove(text, ctas, val_id, whole, whole)
    read = Layout(val_id.shape).stride[:-1]
    source = Layout((ctas, val_id.shape), (0, (*read, 0)))
    return TensorMove(text, ctas, val_id, source, whole)
