"""Records of the instructions that a warpgroup, four neighbouring warps, executes together: wgmma."""

from __future__ import annotations

from typing import Any

from lanewise.machine.program.instruction_record import (
    InstructionRecord,
    Level,
    MemoryAccess,
    Order,
    Proxy,
    Size,
    Waits,
)
from lanewise.machine.program.record_builders import READ, records


def _warpgroup(patterns: str, operands: str, **facts: Any) -> tuple[InstructionRecord, ...]:
    return records(patterns, Level.WARPGROUP, operands, since=90, **facts)


def _operand(number: int) -> MemoryAccess:
    """Return the access to a matrix in shared memory that a descriptor names."""
    return MemoryAccess(READ, number, Size.DESCRIPTOR, space="shared", asynchronous=True, proxy=Proxy.ASYNC)


WARPGROUP = (
    *_warpgroup(
        "wgmma.mma_async", "def descriptor descriptor use use*", shared_step="tensor_core.wgmma:step",
        waits=Waits.WARPGROUP, multiplies=True, counter="wgmma", memory=(_operand(1), _operand(2)),
    ),
    *_warpgroup("wgmma.fence", "", orders=Order.WARPGROUP_FENCE),
    *_warpgroup("wgmma.commit_group", "", orders=Order.WARPGROUP_COMMIT),
    *_warpgroup("wgmma.wait_group", "use", orders=Order.WARPGROUP_WAIT),
)  # fmt: skip
