"""How records of the table of instructions are written: one call for patterns that are alike."""

from __future__ import annotations

from typing import Any

from lanewise.machine.program.instruction_record import (
    AccessKind,
    AddressFlow,
    CodeLength,
    InstructionRecord,
    Level,
    MemoryAccess,
    Role,
    Size,
)

READ, WRITE, ATOMIC = AccessKind.READ, AccessKind.WRITE, AccessKind.ATOMIC
SUM, COPY, NUMBER = AddressFlow.SUM, AddressFlow.COPY, AddressFlow.MEMORY
#: The most operands of an instruction that takes any number.
MANY = 1 << 16
SMALL_FLOATS, LONG = CodeLength.LONG_FOR_SMALL_FLOATS, CodeLength.LONG


def records(
    patterns: str, level: Level, operands: str, types: str = "", **facts: Any
) -> tuple[InstructionRecord, ...]:
    """Return one record for each of several patterns that are alike.

    `operands` are their roles in order; a question mark marks one that may be missing, a star a last one that
    may be repeated.
    """
    words = operands.split()
    roles = tuple(Role(word.rstrip("?*")) for word in words)
    least = sum(not word.endswith(("?", "*")) for word in words)
    most = MANY if operands.endswith("*") else len(words)
    return tuple(
        InstructionRecord(pattern, level, roles, frozenset(types.split()), least, most, **facts)
        for pattern in patterns.split()
    )


def lane(
    patterns: str, sources: int, lowering: str, *, most: int = 0, **facts: Any
) -> tuple[InstructionRecord, ...]:
    """Return records of instructions of each lane alone: a result, `sources` operands, or up to `most`."""
    operands = " ".join(["def", *["use"] * sources, *["use?"] * (most - sources)])
    return records(patterns, Level.LANE, operands, lowering=f"arithmetic.{lowering}", **facts)


def warp(patterns: str, operands: str, lowering: str = "", **facts: Any) -> tuple[InstructionRecord, ...]:
    """Return records of instructions that a warp executes together."""
    return records(patterns, Level.WARP, operands, lowering=lowering, **facts)


def block(patterns: str, operands: str, lowering: str = "", **facts: Any) -> tuple[InstructionRecord, ...]:
    """Return records of instructions that a thread block executes together."""
    return records(patterns, Level.BLOCK, operands, lowering=lowering, **facts)


def refused(patterns: str, why: str, level: Level = Level.WARP) -> tuple[InstructionRecord, ...]:
    """Return records of instructions that the machine cannot run; the reason is given before a launch."""
    return records(patterns, level, "use*", refused=why)


def typed(kind: AccessKind, operand: int, data: int, **facts: Any) -> tuple[MemoryAccess, ...]:
    """Return an access of as many bytes as the instruction's type and its data operand have."""
    return (MemoryAccess(kind, operand, Size.TYPE, data, **facts),)


def mbarrier(operand: int, kind: AccessKind = WRITE) -> tuple[MemoryAccess, ...]:
    """Return the access to an mbarrier: an arrival publishes earlier writes, a wait acquires them."""
    publishes = kind is WRITE
    return (
        MemoryAccess(kind, operand, Size.MBARRIER, strong=True, releases=publishes, acquires=not publishes),
    )
