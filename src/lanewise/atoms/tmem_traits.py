"""Copies to and from tensor memory under CUTLASS's names: which bits each thread moves, and where they lie.

Everything is derived from the shapes of tcgen05.ld, st and cp in `isa/tensor_memory`. CuTe counts the bits of
such a copy lane by lane; `ValID` says where in tensor memory each of them lies.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lanewise.atoms.tmem import COLUMN_BITS, LANE_BITS
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_memory import copy_shapes, load_shapes
from lanewise.isa.tensor_memory.copy_shapes import CopyShape
from lanewise.isa.tensor_memory.load_shapes import NUMS, LoadShape
from lanewise.layout import Layout, coalesce, composition, flatten, make_layout

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
