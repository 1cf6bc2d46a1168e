"""What a GPU refuses to launch: shared memory beyond its limits, PTX for another GPU."""

from __future__ import annotations

from lanewise.isa.archs import arch_number
from lanewise.machine.checker.report import Finding
from lanewise.machine.program.resolve import Program
from lanewise.machine.runtime.fault_report import source_line
from lanewise.ptx import Loc, Shape

#: Bytes of shared memory that a kernel may declare (CUDA C++ Programming Guide, compute capabilities).
STATIC = 48 * 1024
#: Bytes a block may have with the opt-in of dynamic shared memory, by arch.
DYNAMIC = {
    70: 96 * 1024, 72: 96 * 1024, 75: 64 * 1024, 80: 163 * 1024, 86: 99 * 1024, 87: 163 * 1024, 89: 99 * 1024,
    90: 227 * 1024, 100: 227 * 1024, 101: 227 * 1024, 103: 227 * 1024, 110: 227 * 1024, 120: 99 * 1024,
    121: 99 * 1024,
}  # fmt: skip


def beyond_limits(program: Program, shape: Shape, arch: str, reasons: list[str]) -> list[Finding]:
    """Why a GPU of an arch would not launch a kernel, after reasons that hold for all; empty if it would."""
    found = list(reasons)
    target, number = program.module.arch, arch_number(arch)
    bound = target.endswith(("a", "f"))
    if number < arch_number(target) or (bound and number != arch_number(target)):
        found.append(f"PTX for {target} does not run on {arch}")
    static = program.shared_bytes
    if static > STATIC:
        found.append(
            f"{static} bytes of static shared memory: a kernel may declare {STATIC}; more has to be dynamic"
        )
    whole = program.dynamic_offset + shape.shared_bytes if shape.shared_bytes else static
    most = DYNAMIC.get(number, max(DYNAMIC.values()))
    if whole > most and static <= STATIC:
        found.append(f"{whole} bytes of shared memory a block: {arch} has {most}")
    body = program.entry.body or ()
    loc = next((each for each in body if isinstance(each, Loc)), None)
    source = source_line(program.module, loc) if loc is not None else None
    return [
        Finding("launch", why, program.entry.line, f".entry {program.entry.name}", source) for why in found
    ]
