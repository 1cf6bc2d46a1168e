"""The variables of shared memory as messages name them."""

import re

from lanewise.machine import abi
from lanewise.machine.analysis.pointer_provenance import shared_variables
from lanewise.machine.runtime.state import LaunchState


def space_of_generic(address: int) -> tuple[str, int]:
    """Return the state space of a generic address, and the address in that space."""
    for space, window in (("shared", abi.SHARED_WINDOW), ("local", abi.LOCAL_WINDOW)):
        if 0 <= address - window < abi.WINDOW_BYTES:
            return space, address - window
    return "global", address


def shared_name(launch: LaunchState, offset: int, element_bytes: int = 0) -> str:
    """Return a description of the variable of shared memory at an offset, or at an address in a cluster.

    With the bytes of an element, a variable of several elements is named with the index of that one.
    """
    offset &= abi.OFFSET_MASK
    program = launch.compiled.program
    for symbol in shared_variables(program):
        if symbol.address <= offset < symbol.address + symbol.size:
            several = element_bytes and symbol.size > element_bytes
            index = f"[{(offset - symbol.address) // element_bytes}]" if several else ""
            return f"shared variable {plain_name(symbol.name)}{index}"
    if in_reserved_memory(launch, offset):
        return "the shared memory that the system reserves"
    if launch.shape.shared_bytes and offset >= program.dynamic_offset:
        byte = f", byte {offset - program.dynamic_offset}" if element_bytes else ""
        return f"dynamic shared memory{byte}"
    return "shared memory"


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
    mangled = re.fullmatch(r"_ZZ.*?E(\d+)(.+)", name)
    if mangled is None or len(mangled[2]) < int(mangled[1]):
        return name
    return mangled[2][: int(mangled[1])]
