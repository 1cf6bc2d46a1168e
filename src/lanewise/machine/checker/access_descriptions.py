"""Descriptions for messages: the variable that an address lies in, what an access does, where lanes are."""

from __future__ import annotations

import re

from lanewise.machine import abi
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import source_line
from lanewise.machine.runtime.state import LaunchState

_MASK = (1 << 64) - 1
#: The end of advice about barriers that threads have left by an exit.
NOT_PROMISED = "GPUs are known not to wait for them, but the PTX ISA does not promise it"


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


def grid_message(threads: int) -> str:
    """Return the sentence about threads of a block that have exited before the barrier of the grid."""
    left = f"{threads} threads of this block have" if threads != 1 else "1 thread of this block has"
    return (
        f"the barrier of the grid (grid.sync()) is for all threads of all blocks, but {left} returned "
        "before: what it does then is not defined; let these threads skip the work, and not the barrier"
    )


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


def mask_message(kind: Suspicion, mask: int, lanes: int) -> str:
    """Return the sentence about the mask of an instruction, such as shfl.sync, and the lanes that differ."""
    named = f"the mask {mask & 0xFFFFFFFF:#010x} of this instruction"
    match kind:
        case Suspicion.NOT_A_MEMBER:
            return f"{named} leaves out a lane that executes it: all that execute it have to be in the mask"
        case Suspicion.ABSENT_MEMBER:
            return f"{named} names lanes that are elsewhere in the kernel: {lanes_in_words(lanes)}"
        case Suspicion.MASKS_DIFFER:
            return f"{named} names lanes that execute it with another mask: {lanes_in_words(lanes)}"
    return f"{named} names lanes that have exited: {lanes_in_words(lanes)}"


def split_barrier_message(absent: int, gone: int, harmless: bool = False) -> str:
    """Return the sentence about a barrier that only some lanes of a warp have come to.

    `absent` and `gone` are masks of the lanes that are elsewhere and of those that have exited. Lanes that
    skipped the barrier before they exited are an error. That lanes exited earlier is `harmless` on GPUs.

    >>> split_barrier_message(0xFFFF0000, 1).split(", but ")[1]
    'some are elsewhere in the kernel (lanes 16 to 31) and some have exited (lane 0)'
    """
    told = []
    if absent or not gone:
        told.append(f"some are elsewhere in the kernel ({lanes_in_words(absent)})")
    if gone:
        how = "some have exited" if told or harmless else "some have skipped it and exited"
        told.append(f"{how} ({lanes_in_words(gone)})")
    message = f"all lanes of a warp have to come to this barrier together, but {' and '.join(told)}"
    return f"{message}; {NOT_PROMISED}" if harmless else message
