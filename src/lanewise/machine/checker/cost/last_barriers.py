"""Judges the last barrier of blocks that have ended: compiled code does so only when another block begins.

The rule is that of `watch_code/barrier_phases.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import address
from lanewise.machine.checker.records import BlockWatch, PhaseAccesses, SiteRow

Words = npt.NDArray[np.int64]


def judge_last_barriers(rows: Words, blocks: list[Words]) -> None:
    """Add the last barrier of each block's watch to the counts in the site table, once."""
    for block in blocks:
        judged = int(block[BlockWatch.judged_barrier // 8])
        if not judged:
            continue
        needed = _needs(_phase(block, BlockWatch.earlier_phase), _phase(block, BlockWatch.phase))
        row = rows[(judged - address(rows)) // SiteRow.BYTES]
        row[(SiteRow.barriers_needed if needed else SiteRow.barriers_needless) // 8] += 1
        block[BlockWatch.judged_barrier // 8] = 0


def _phase(block: Words, field: int) -> Words:
    """Return one of the two phases of a block."""
    return block[field // 8 : (field + PhaseAccesses.BYTES) // 8]


def _needs(earlier: Words, later: Words) -> bool:
    """Return whether two phases have to be kept apart by a barrier."""
    first = {name: int(earlier[getattr(PhaseAccesses, name) // 8]) for name in _NAMES}
    second = {name: int(later[getattr(PhaseAccesses, name) // 8]) for name in _NAMES}

    def overlap(one: str, other: str) -> bool:
        before = first[f"{one}_from"] < second[f"{other}_to"]
        return before and second[f"{other}_from"] < first[f"{one}_to"]

    shared = overlap("written", "read") or overlap("written", "written") or overlap("read", "written")
    arrays = first["written_arrays"] & (second["read_arrays"] | second["written_arrays"])
    arrays |= first["read_arrays"] & second["written_arrays"]
    return bool(shared or arrays or first["publishes"] or second["publishes"])


_NAMES = (
    "read_from", "read_to", "written_from", "written_to", "read_arrays", "written_arrays", "publishes",
)  # fmt: skip
