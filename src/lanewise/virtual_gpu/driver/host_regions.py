"""Host memory that a program in C passes to a kernel: where it lies, and what is wrong, in words."""

import re
from dataclasses import replace
from pathlib import Path

from lanewise.machine.checker.report import Finding
from lanewise.virtual_gpu.driver.memory import Memory
from lanewise.virtual_gpu.order.host_lines import current_frame, is_program

#: Addresses this close to memory that host and device share belong to an access that missed it.
_NEAR = 1 << 12
#: What a fault says of the address of an access.
_ADDRESS = re.compile(r"address (0x[0-9a-f]+)(;| is) [^\n]*")
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)")
MEND = (
    "allocate memory of the device with cudaMalloc and copy to it with cudaMemcpy, or let both sides share "
    "memory of cudaMallocManaged"
)


def region(place: int) -> str | None:
    """Return what of the host's memory an address lies in; None if nothing of it is there."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        matched = _LINE.match(line)
        if matched is None:
            continue
        start, end = int(matched[1], 16), int(matched[2], 16)
        if not start <= place < end:
            continue
        if not matched[3].startswith("r"):
            return None
        name = matched[4]
        if name == "[stack]" or (not name and start <= current_frame() < end):
            return "the stack: a local variable"
        if is_program(place):
            return "a global or static variable"
        return "the heap: malloc or new" if name in ("", "[heap]") else "a library"
    return None


def host_memory(memory: Memory, place: int) -> str | None:
    """Return in words that an address which a kernel used is the host's; None if it is not, or not sure."""
    if memory.reserved is None or memory.find(place) is not None or memory.was_device(place):
        return None
    if memory.is_near_shared(place, _NEAR):
        return None
    where = region(place)
    return None if where is None else f"memory of the host ({where}), which kernels cannot access"


def explained(memory: Memory, message: str) -> str:
    """Return what a fault says, with another end where the address is one of the host."""
    matched = _ADDRESS.search(message)
    words = host_memory(memory, int(matched[1], 16)) if matched is not None else None
    if matched is None or words is None:
        return message
    return f"{message[: matched.start()]}address {matched[1]} is {words}: {MEND}{message[matched.end() :]}"


def explained_finding(memory: Memory, finding: Finding) -> Finding:
    """Return a finding of a check, with another mend where the address is one of the host."""
    words = host_memory(memory, finding.address) if finding.address is not None else None
    if words is None:
        return finding
    message = finding.message.partition(" (address")[0]
    return replace(finding, message=f"{message}: {finding.address:#x} is {words}", mend=MEND)
