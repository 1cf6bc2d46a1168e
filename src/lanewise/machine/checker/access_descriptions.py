"""Descriptions for messages: the variable that an address lies in, what an access does, where lanes are."""

from __future__ import annotations

import re

from lanewise.machine import abi
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import source_line
from lanewise.machine.runtime.state import LaunchState

_MASK = (1 << 64) - 1


def source_of(launch: LaunchState, op: Op) -> str | None:
    """Return the line of the source that an instruction came from, if the PTX says it."""
    return None if op.loc is None else source_line(launch.compiled.program.module, op.loc)


def described(located: LocatedAccess, space: str) -> str:
    """Return a description of an access, such as "shared write of 4 bytes"."""
    size = "a tile" if located.access.size is Size.TILE_LINE else f"{located.size} bytes"
    return f"{space} {located.access.verb} of {size}"


def allocation_at(launch: LaunchState, space: str, address: int) -> tuple[str, str]:
    """Return the state space of an address, generic ones resolved, and its allocation."""
    offset = address & _MASK
    if space == "generic":
        space, offset = space_of_generic(offset)
    if space == "shared":
        return space, shared_name(launch, offset)
    if space == "local":
        return space, "local memory"
    for each in launch.allocations:
        if offset in each:
            return space, each.title_at(offset)
    return space, ""


def space_of_generic(address: int) -> tuple[str, int]:
    """Return the state space of a generic address, and the address in that space."""
    for space, window in (("shared", abi.SHARED_WINDOW), ("local", abi.LOCAL_WINDOW)):
        if 0 <= address - window < abi.WINDOW_BYTES:
            return space, address - window
    return "global", address


def shared_name(launch: LaunchState, offset: int) -> str:
    """Return a description of the variable of shared memory at an offset, or at an address in a cluster."""
    offset &= abi.OFFSET_MASK
    program = launch.compiled.program
    for symbol in shared_variables(program):
        if symbol.address <= offset < symbol.address + symbol.size:
            return f"shared variable {plain_name(symbol.name)}"
    if in_reserved_memory(launch, offset):
        return "the shared memory that the system reserves"
    if launch.shape.shared_bytes and offset >= program.dynamic_offset:
        return "dynamic shared memory"
    return "shared memory"


def shared_home(launch: LaunchState, low: int, high: int) -> str:
    """Return a description of the shared memory that an address was made from, by its bounds."""
    base = launch.compiled.launch_info.shared_base
    return "the kernel's shared memory" if base and high == launch.shared_limit else shared_name(launch, low)


def in_reserved_memory(launch: LaunchState, address: int) -> bool:
    """Return whether an address of shared memory is in the part that the system reserves and zeroes."""
    start = launch.reserved_shared
    inside = start <= space_of_generic(address)[1] < start + abi.RESERVED_SHARED_BYTES
    return inside and launch.compiled.launch_info.uses_reserved_memory


def plain_name(name: str) -> str:
    """Return the name of a variable inside a C++ function without the function's name before it.

    >>> plain_name("_ZZ1kPKfPfiE4tile"), plain_name("buffer")
    ('tile', 'buffer')
    """
    found = re.fullmatch(r"_ZZ.*?E(\d+)(.+)", name)
    if found is None or len(found[2]) < int(found[1]):
        return name
    return found[2][: int(found[1])]


def lanes_in_words(bits: int) -> str:
    """Return a description of the lanes of a mask.

    >>> lanes_in_words(0xFFFF0000), lanes_in_words(0b1001), lanes_in_words(1)
    ('lanes 16 to 31', 'lanes 0, 3', 'lane 0')
    """
    lanes = [lane for lane in range(abi.LANES) if bits >> lane & 1]
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and lane == runs[-1][-1] + 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    names = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"lane{'s' if len(lanes) != 1 else ''} {', '.join(names) or 'not known'}"
