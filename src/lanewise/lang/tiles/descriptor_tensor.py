"""Operands of wgmma in shared memory as tiles see them: a tensor of descriptors, one for each instruction.

One descriptor alone, and how its fields follow from a layout, is in `matrix/descriptor.py`.
"""

from __future__ import annotations

from typing import Any

from lanewise.atoms import MMA_Atom
from lanewise.lang.matrix.descriptor import Descriptor, make_gmma_desc
from lanewise.lang.memory.layout_index import offsets, shape_text
from lanewise.lang.memory.view import View, as_coordinate, slice_layout
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.pytrees import Node
from lanewise.layout import Layout, composition, make_layout


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
    """Return the descriptors for a warpgroup's partition (FrgV, RestM, RestK, …) of a tensor."""
    operand = mma.instruction.operands[name.lower()]
    rows, k = (operand.cols, operand.rows) if name == "B" else (operand.rows, operand.cols)
    atom = composition(part.layout[0], Layout((rows, k)))
    first = make_gmma_desc(View(part.addresses, atom))
    major = {"A": mma.tnspA, "B": mma.tnspB}[name].name
    if first.major != major:
        raise current().error(
            f"{mma.name} takes {name} {major}-major, and {part} is {first.major}-major: name the atom with "
            f"GMMA::Major::{first.major} for {name}"
        )
    first.require(rows, k, operand.format, f"{name} of {mma.name}")
    return DescriptorTensor(first, make_layout([Layout(1, 0), *part.layout[1:]]))
