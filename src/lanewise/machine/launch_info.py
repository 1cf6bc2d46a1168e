"""What a launch has to know of a compiled kernel: sizes, places, lines. Kept on disk beside the machine code.

So a kernel that was compiled before starts without its names resolved: who needs to know more, such as what
stands at the place of a fault, resolves them then.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lanewise.machine.program.basic_blocks import Block
    from lanewise.machine.program.ops import Program


class Footprint(NamedTuple):
    """The memory of a kernel, where it begins, and its matrix products."""

    frame_bytes: int
    local_bytes: int
    shared_bytes: int
    #: Where dynamic shared memory begins.
    dynamic_offset: int
    parameter_bytes: int
    #: Where each parameter lies among those bytes.
    parameters: tuple[int, ...]
    #: Variables of the module: name, space, address, bytes.
    variables: tuple[tuple[str, str, int, int], ...]
    uses_heap: bool
    uses_grid: bool
    #: How many instructions there are, calls and returns included.
    sites: int
    #: The block of code where it begins, and the line of each.
    entry: int
    lines: tuple[int, ...]
    #: Matrix products: the instruction, the key of its machine code (none if Python computes it), its sites.
    products: tuple[tuple[str, str | None, tuple[int, ...]], ...]

    def to_bytes(self) -> bytes:
        """As it lies on disk."""
        return marshal.dumps(tuple(self), 4)

    @classmethod
    def from_bytes(cls, kept: bytes) -> Footprint:
        """As `to_bytes` wrote it; damaged files are noticed before."""
        return cls(*marshal.loads(kept))


def footprint(program: Program, blocks: list[Block], arch: str) -> Footprint:
    """What a launch has to know of a program."""
    from lanewise.machine.program.basic_blocks import entry_block
    from lanewise.machine.program.ops import Symbol
    from lanewise.machine.tensor_core.mma_library import product_key, product_sites

    body = program.body(program.entry.name)
    return Footprint(
        frame_bytes=program.frame_bytes,
        local_bytes=program.local_bytes,
        shared_bytes=program.shared_bytes,
        dynamic_offset=program.dynamic_offset,
        parameter_bytes=program.parameter_bytes,
        parameters=tuple(each.address for each in body.parameters if isinstance(each, Symbol)),
        variables=tuple(
            (name, each.space, each.address, each.size) for name, each in program.globals.items()
        ),
        uses_heap=program.uses_heap,
        uses_grid=program.uses_grid,
        sites=len(program.sites),
        entry=entry_block(program, blocks),
        lines=tuple(block.line for block in blocks),
        products=tuple(
            (instruction.text, product_key(instruction, arch), tuple(sites))
            for instruction, sites in product_sites(program).items()
        ),
    )
