"""Finds out what a GPU would refuse to launch: too much shared memory, PTX for another GPU."""

from __future__ import annotations

from lanewise.isa.archs import arch_number
from lanewise.isa.launch_limits import STATIC_SHARED_BYTES, shared_bytes_of
from lanewise.machine.checker.report import Finding
from lanewise.machine.program.ops import Program
from lanewise.machine.runtime.fault_report import source_line
from lanewise.ptx import Loc, Shape, cluster_refusal, shape_refusals


def beyond_limits(program: Program, shape: Shape, arch: str) -> list[Finding]:
    """Return why a GPU of an arch would not launch a kernel in a shape; empty if it would."""
    found = shape_refusals(program.entry, shape)
    target, number = program.module.arch, arch_number(arch)
    bound = target.endswith(("a", "f"))
    if number < arch_number(target) or (bound and number != arch_number(target)):
        found.append(f"PTX for {target} does not run on {arch}")
    refused = cluster_refusal(shape, arch, target)
    found += [refused] if refused is not None else []
    static = program.shared_bytes - program.shared_base
    if static > STATIC_SHARED_BYTES:
        found.append(
            f"{static} bytes of static shared memory: a kernel may declare {STATIC_SHARED_BYTES}; "
            "more has to be dynamic"
        )
    dynamic = program.dynamic_offset - program.shared_base + shape.shared_bytes
    whole = dynamic if shape.shared_bytes else static
    most = shared_bytes_of(arch)
    if whole > most and static <= STATIC_SHARED_BYTES:
        found.append(f"{whole} bytes of shared memory a block: {arch} has {most}")
    body = program.entry.body or ()
    loc = next((each for each in body if isinstance(each, Loc)), None)
    source = source_line(program.module, loc) if loc is not None else None
    return [
        Finding("launch", why, program.entry.line, f".entry {program.entry.name}", source) for why in found
    ]
