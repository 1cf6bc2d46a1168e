"""The smallest accesses of a kernel: by the parameter that leads to the memory, and to shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.machine.analysis.written_parameters import origin_of, origins_of
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.ops import Program

#: The bytes that are returned where no access is smaller.
WORD_BYTES = 4


@dataclass(frozen=True)
class AccessSizes:
    """The bytes of the smallest accesses, at most WORD_BYTES."""

    #: To shared memory.
    shared: int
    #: To memory that a parameter leads to, by the parameter's offset.
    by_parameter: dict[int, int]
    #: To memory that may be anywhere.
    elsewhere: int

    @property
    def smallest(self) -> int:
        """The bytes of the smallest access to any memory but shared."""
        return min((self.elsewhere, *self.by_parameter.values()))


def access_sizes(program: Program) -> AccessSizes:
    """Return the smallest accesses of a kernel."""
    origins = origins_of(program)
    shared = elsewhere = WORD_BYTES
    by_parameter: dict[int, int] = {}
    for op in program.sites:
        for each in watched_accesses(op):
            size = min(each.size, WORD_BYTES)
            if each.space == "local" or size == WORD_BYTES:
                continue
            if each.space in ("shared", "generic"):
                shared = min(shared, size)
            if each.space == "shared":
                continue
            origin = origin_of(op.operands[each.access.operand], origins)
            if not origin:  # a variable, or anything
                elsewhere = min(elsewhere, size)
            for parameter in origin or ():
                by_parameter[parameter] = min(by_parameter.get(parameter, WORD_BYTES), size)
    return AccessSizes(shared, by_parameter, elsewhere)
