"""Limits on the memory that a kernel may ask for; what no GPU has is refused before it is allocated.

What a launch adds (dynamic shared memory, threads) is checked by `lanewise.launch`.
"""

from lanewise.errors import LanewiseError
from lanewise.machine.program.ops import Program
from lanewise.ptx import Variable

#: Bytes in all by state space: local memory is a thread's; a program's static data stay within 2 GiB, so that
#: 32-bit relocations reach them; the PTX ISA gives constants ten banks of 64 KiB and one for the compiler.
MOST = {"local": 512 << 10, "const": 11 * (64 << 10), "global": 2 << 30}
#: Bytes that a variable may be aligned to.
COARSEST = 1 << 16


def check_variable(variable: Variable) -> None:
    """Raise an error if the alignment or size of a variable is not possible."""
    alignment = variable.alignment
    if alignment & (alignment - 1) or alignment > COARSEST:
        raise LanewiseError(
            f"line {variable.line}: {variable.name} cannot be aligned to {alignment} bytes; "
            f"an alignment is a power of two up to {COARSEST}"
        )
    if variable.size > MOST["global"]:
        raise LanewiseError(
            f"line {variable.line}: {variable.name} has {variable.size} bytes; "
            f"a variable has at most {MOST['global']}"
        )


def check_program(program: Program) -> None:
    """Raise an error if all variables together exceed what a GPU has."""
    totals = dict.fromkeys(MOST, 0) | {"local": program.local_bytes}
    for symbol in program.globals.values():
        if symbol.space in ("const", "global"):
            totals[symbol.space] += symbol.size
    for space, most in MOST.items():
        if totals[space] > most:
            whose = "a thread of " if space == "local" else ""
            raise LanewiseError(
                f"{whose}{program.entry.name} needs {totals[space]} bytes of .{space} memory; "
                f"there are at most {most}"
            )
