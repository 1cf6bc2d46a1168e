"""What stops a launch: the exceptions of the machine, each with the place in the PTX.

How a running kernel notices is written by `access.py` and `schedule.py`.
"""

from __future__ import annotations

from lanewise.errors import LanewiseError


class Unsupported(LanewiseError):
    """An instruction that the machine cannot run; named with its line before anything runs."""


class KernelFault(LanewiseError):
    """A kernel that was stopped: `kind` says why, `line` is the line of the PTX."""

    def __init__(self, message: str, kind: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.kind, self.line))


class Deadlock(KernelFault):
    """Threads that wait for one another, none of which can go on."""
