"""What a launch has to know of a compiled kernel: sizes, offsets, lines. It is kept on disk beside the code.

With it, a kernel that was compiled before starts without resolving its names. Whoever needs more, such as the
instruction that faulted, resolves them then.
"""

from __future__ import annotations

import marshal
from typing import NamedTuple

from lanewise.machine import abi
from lanewise.ptx import Module


class LaunchInfo(NamedTuple):
    """The memory that a kernel needs, the basic block where it begins, and its matrix products."""

    frame_bytes: int
    local_bytes: int
    #: Where shared memory begins, and where static shared memory ends.
    shared_base: int
    shared_bytes: int
    #: Where dynamic shared memory begins.
    dynamic_offset: int
    parameter_bytes: int
    #: The offset of each parameter among those bytes.
    parameters: tuple[int, ...]
    #: Variables of the module: name, space, address, bytes.
    variables: tuple[tuple[str, str, int, int], ...]
    uses_heap: bool
    uses_grid: bool
    uses_reserved_memory: bool
    #: Whether it has instructions of tcgen05, so that its blocks have tensor memory.
    uses_tensor_memory: bool
    reads_clock: bool
    #: Whether its clusters take over others that have not begun.
    takes_over_clusters: bool
    #: How many instructions there are, calls and returns included.
    sites: int
    #: The basic block where it begins, and the line of each.
    entry: int
    lines: tuple[int, ...]
    #: Matrix products: the instruction, the key of its machine code (none if Python computes it), its sites.
    products: tuple[tuple[str, str | None, tuple[int, ...]], ...]
    #: The seconds that a draft took to compile; 0 for optimised code.
    draft_seconds: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the record as bytes for the cache on disk."""
        return marshal.dumps(tuple(self), 4)

    @classmethod
    def from_bytes(cls, kept: bytes) -> LaunchInfo:
        """Read what `to_bytes` wrote; the cache has already checked that the file is not damaged."""
        return cls(*marshal.loads(kept))


#: Addresses between two variables that belong to neither, so that an overrun is a fault.
VARIABLE_GAP = 1 << 16


def variable_addresses(module: Module) -> dict[str, int]:
    """Return the address of each variable in global or constant memory, the same for every kernel."""
    bases = {"const": abi.CONST_BASE, "global": abi.GLOBAL_BASE}
    addresses = {}
    for variable in module.variables.values():
        if variable.space in bases:
            addresses[variable.name] = abi.aligned(bases[variable.space], max(variable.alignment, 16))
            bases[variable.space] = addresses[variable.name] + abi.aligned(variable.size, 16) + VARIABLE_GAP
    return addresses


def function_addresses(module: Module) -> dict[str, int]:
    """Return an address for each device function. Nothing is stored there; indirect calls compare with it."""
    return {name: abi.FUNCTION_BASE + 16 * number for number, name in enumerate(module.functions)}
