"""The exceptions that the machine raises, each with the line of the PTX that it is about.

Compiled code detects faults in `warp_ops/` and `codegen/scheduler.py`; `runtime/fault_report.py` words them.
"""

from lanewise.errors import LanewiseError


class Unsupported(LanewiseError):
    """An instruction that the machine cannot run.

    It is raised before the kernel starts and names the line.
    """


class Refused(Unsupported):
    """A kernel that breaks a rule to which ptxas holds it as well: the instruction, and what mends it."""

    def __init__(self, message: str, line: int, text: str, mend: str) -> None:
        super().__init__(message)
        self.line, self.text, self.mend = line, text, mend

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.line, self.text, self.mend))


class UnfitOperand(Exception):
    """An operand that cannot be what its place needs, found where the instruction is not at hand.

    `compile/lowering.py` turns it into Unsupported, with the line.
    """


class KernelFault(LanewiseError):
    """A kernel that was stopped while it ran: `kind` says why, `line` is the line of the PTX."""

    def __init__(self, message: str, kind: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.kind, self.line))


class Deadlock(KernelFault):
    """Threads of a kernel wait for one another, and none of them can go on."""
