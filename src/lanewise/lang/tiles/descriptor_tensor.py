"""Operands of wgmma and tcgen05 in shared memory as tiles see them: one descriptor for each instruction.

One descriptor alone, and how its fields follow from a layout, is in `matrix/descriptor.py`.
"""

from __future__ import annotations

from typing import Any

from lanewise.atoms import MMA_Atom
from lanewise.isa.matrix_descriptor import TCGEN05_VERSION
from lanewise.lang.matrix.descriptor import Descriptor, make_gmma_desc, make_umma_desc
from lanewise.lang.memory.layout_index import offsets, shape_text
from lanewise.lang.memory.view import View, as_coordinate, slice_layout
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node
from lanewise.layout import Layout, composition, make_layout, size, zipped_divide


class DescriptorTensor(Node):
    """Descriptors (1, RestM, RestK, …) of one operand: `t[None, None, k, stage]`, and `t.at(m, k)` is one."""

    __slots__ = ("first", "layout")

    def __init__(self, first: Descriptor, layout: Layout) -> None:
        self.first, self.layout = first, layout

    def children(self) -> list[Any]:
        return [self.first]

    def with_children(self, children: list[Any], fresh: bool = False) -> DescriptorTensor:
        return DescriptorTensor(children[0], self.layout)

    def same_kind(self, other: object) -> bool:
        return isinstance(other, DescriptorTensor) and self.layout == other.layout

    @property
    def shape(self) -> Any:
        """The shape of the coordinates; the first mode, that of one instruction, has extent 1."""
        return self.layout.shape

    def __iter__(self) -> Any:
        raise current().error("a tensor of descriptors is not iterated over: index it in a loop")

    def __getitem__(self, coordinate: object) -> DescriptorTensor:
        crd = as_coordinate(coordinate, self.layout)
        step = offsets(self.layout.shape, self.layout.stride, crd).get((), 0)
        kept = slice_layout(crd, self.layout)
        return DescriptorTensor(self.first.advanced(step), kept)

    def at(self, number: int) -> Descriptor:
        """Return the descriptor of a coordinate, counted along the first mode first."""
        return self.first.advanced(int(self.layout(number)))

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"a tensor of descriptors, of shape {shape_text(self.shape)}"


def descriptor_tensor(mma: MMA_Atom, name: str, part: View) -> DescriptorTensor:
    """Return the descriptors for a partition (FrgV, RestM, RestK, …), a warpgroup's or a block's."""
    operand = mma.instruction.operands[name.lower()]
    rows, k = (operand.cols, operand.rows) if name == "B" else (operand.rows, operand.cols)
    rows //= size(mma.ThrID) if mma.umma is not None else 1
    atom = composition(part.layout[0], Layout((rows, k)))
    here = View(part.addresses, atom)
    first = make_gmma_desc(here) if mma.umma is None else make_umma_desc(here)
    major = {"A": mma.tnspA, "B": mma.tnspB}[name].name
    if first.major != major:
        raise current().error(
            f"{mma.name} takes {name} {major}-major, and {part} is {first.major}-major: name the atom with "
            f"{'G' if mma.umma is None else 'U'}MMA::Major::{first.major} for {name}"
        )
    version = 0 if mma.umma is None else TCGEN05_VERSION
    first.require(rows, k, operand.format, f"{name} of {mma.name}", version)
    return DescriptorTensor(first, make_layout([Layout(1, 0), *part.layout[1:]]))


def block_partition(mma: MMA_Atom, name: str, tensor: View) -> View:
    """Return a block's own tile (rows, K, …) as ((rows, k) of one tcgen05.mma, Rest, RestK, …)."""
    rows, k = mma.umma_part(name)
    layout = tensor.layout
    if len(layout) < 2 or size(layout[0]) % rows or size(layout[1]) % k:
        whole = "its whole tile" if size(mma.ThrID) == 1 else "its half of the pair's tile"
        raise current().error(
            f"{mma.name} takes {rows} × {k} elements of {name} from each block, and {tensor} is no multiple "
            f"of that: a block gives {whole}, (rows, K, …)"
        )
    tiles = zipped_divide(layout, (rows, k))
    return View(tensor.addresses, make_layout([tiles[0], *tiles[1]]))
