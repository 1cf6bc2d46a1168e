"""Descriptions for findings: where an instruction is, the variable of an address, what an access does."""

from lanewise.machine import abi
from lanewise.machine.checker.findings import Finding, Three
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import source_line
from lanewise.machine.runtime.shared_names import shared_name, space_of_generic
from lanewise.machine.runtime.state import LaunchState
from lanewise.machine.tensor_memory_records import LANE_SHIFT

_MASK = (1 << 64) - 1


def source_of(launch: LaunchState, op: Op) -> str | None:
    """Return the line of the source that an instruction came from, if the PTX says it."""
    return None if op.loc is None else source_line(launch.compiled.program.module, op.loc)


def finding_at(
    launch: LaunchState,
    op: Op | None,
    kind: str,
    message: str,
    thread: Three | None = None,
    block: Three | None = None,
    address: int | None = None,
    allocation: str | None = None,
    mend: str = "",
) -> Finding:
    """Return a finding at an instruction of a launch, or at none."""
    line, text, source = (op.line, str(op.source), source_of(launch, op)) if op else (0, "", None)
    where = (line, text, source, thread, block, address, allocation or None)
    return Finding(kind, message, *where, mend=mend)


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
    for allocation in launch.allocations:
        if offset in allocation:
            return space, allocation.title_at(offset)
    return space, ""


#: How the description of an address of tensor memory ends.
TENSOR_MEMORY = " of tensor memory"


def tensor_place(address: int) -> str:
    """Return a description of an address of tensor memory.

    >>> tensor_place(0x200005)
    'lane 32, column 5 of tensor memory'
    """
    lane, column = divmod(address & 0xFFFFFFFF, 1 << LANE_SHIFT)
    return f"lane {lane}, column {column}{TENSOR_MEMORY}"


def shared_home(launch: LaunchState, low: int, high: int) -> str:
    """Return a description of the shared memory that an address was made from, by its bounds."""
    base = launch.compiled.launch_info.shared_base
    return "the kernel's shared memory" if base and high == launch.shared_limit else shared_name(launch, low)


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
