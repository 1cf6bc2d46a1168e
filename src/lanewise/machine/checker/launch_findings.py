"""Finds out what a GPU would refuse to launch: too much shared memory, PTX for another GPU."""

from __future__ import annotations

from lanewise.isa.archs import arch_number
from lanewise.machine.checker.report import Finding
from lanewise.machine.program.ops import Program
from lanewise.machine.program.source_lines import source_line
from lanewise.ptx import (
    Loc,
    Resources,
    Shape,
    cluster_refusal,
    register_refusals,
    shape_refusals,
    shared_refusals,
)


def beyond_limits(program: Program, shape: Shape, arch: str, used: Resources | None = None) -> list[Finding]:
    """Return why a GPU of an arch would not launch a kernel in a shape; empty if it would.

    `used` is what ptxas says that the kernel uses there, if it was asked.
    """
    found = shape_refusals(program.entry, shape)
    target, number = program.module.arch, arch_number(arch)
    bound = target.endswith(("a", "f"))
    if number < arch_number(target) or (bound and number != arch_number(target)):
        found.append(f"PTX for {target} does not run on {arch}")
    refused = cluster_refusal(shape, arch, target)
    found += [refused] if refused is not None else []
    base = program.shared_base
    found += shared_refusals(
        program.shared_bytes - base, program.dynamic_offset - base, shape.shared_bytes, arch
    )
    if used is not None:
        found += register_refusals(used, shape.threads)
    body = program.entry.body or ()
    loc = next((each for each in body if isinstance(each, Loc)), None)
    source = source_line(program.module, loc) if loc is not None else None
    return [
        Finding("launch", why, program.entry.line, f".entry {program.entry.name}", source) for why in found
    ]
