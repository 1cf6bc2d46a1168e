"""What ptxas alone knows of a kernel: spilled registers. Apart from the verdicts that few checks ask for."""

from dataclasses import replace

from lanewise.isa.multiprocessor import MOST_REGISTERS
from lanewise.machine.checker.findings import Inefficiency, ReportContents
from lanewise.machine.program.source_lines import source_line
from lanewise.ptx import Entry, Loc, Resources, Shape

#: Cycles of a load or store of 4 bytes by a warp, which reaches L1.
_SPILL_CYCLES = 8.0


def spills(entry: Entry, used: Resources, shape: Shape) -> list[Inefficiency]:
    """Return a verdict on the bytes that each thread spills; none if it spills nothing."""
    moved = used.spill_stores + used.spill_loads
    if not moved:
        return []
    loc = next((statement for statement in entry.body if isinstance(statement, Loc)), None)
    source = source_line(entry.module, loc) if loc is not None else None
    words = (
        f"ptxas spills registers on {used.arch}: {used.spill_stores} bytes of stores and "
        f"{used.spill_loads} of loads a thread, with {used.registers} registers"
    )
    cycles = _SPILL_CYCLES * moved / 4 * shape.warps * shape.blocks
    return [
        Inefficiency(
            "spills", entry.demangled, words, entry.function.line, f".entry {entry.name}", source, moved, 0,
            "bytes", _remedy(used, shape), cycles,
        )
    ]  # fmt: skip


def _remedy(used: Resources, shape: Shape) -> str:
    """Return what may end spills; more registers only if a thread can have them in blocks of this size."""
    more = (
        used.registers < MOST_REGISTERS and replace(used, registers=MOST_REGISTERS).threads >= shape.threads
    )
    return "keep fewer values at a time" + (", or let a thread have more registers" if more else "")


def judged_with_spills(
    report: ReportContents, entry: Entry, used: Resources, shape: Shape
) -> list[Inefficiency]:
    """Return what wastes time in a launch, spills included, the most expensive first."""
    return sorted([*report.performance, *spills(entry, used, shape)], key=lambda verdict: -verdict.cycles)
