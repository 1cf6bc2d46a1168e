"""What a checked launch counted, as verdicts need it: instructions by line, accesses with their samples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lanewise.machine import abi
from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.cost.requests import Requests
from lanewise.machine.checker.counters import Ran
from lanewise.machine.checker.records import MOST_SAMPLE_BASES, LastRequest, SiteRow
from lanewise.machine.program.instruction_record import Size
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.ops import Op


@dataclass(frozen=True)
class AccessCost:
    """One access of one instruction, with what its requests took in all."""

    op: Op
    located: LocatedAccess
    #: Its row in the site table.
    row: int
    #: The bounds of the shared variable that the address was made from; both 0 if it is not known.
    lowest: int
    highest: int
    #: The LastRequest of each row, for each watch.
    last_requests: Sequence[npt.NDArray[np.uint8]] = field(repr=False, compare=False)
    # How many requests there were, and what they took in all.
    requests: int
    threads: int
    wavefronts: int
    ideal: int
    sectors: int
    least_sectors: int

    @cached_property
    def samples(self) -> Requests | None:
        """Some of its requests to shared memory; None if there are none."""
        return self._requests_to(shared=True)

    @cached_property
    def global_samples(self) -> Requests | None:
        """Some of its requests to global memory; None if there are none."""
        return self._requests_to(shared=False)

    def _requests_to(self, shared: bool) -> Requests | None:
        chosen = {key: offsets for key, offsets in sorted(self._sampled.items()) if key[0] is shared}
        if not chosen:
            return None
        bits = np.array([key[1] for key in chosen], np.int64)[:, None] >> np.arange(abi.LANES)
        by_rows = self.located.access.size in (Size.MATRIX_ROW, Size.TILE_LINE)
        return Requests(np.array(list(chosen.values())), (bits & 1).astype(bool), self.located.size, by_rows)

    @cached_property
    def _sampled(self) -> dict[tuple[bool, int, bytes], npt.NDArray[np.int64]]:
        """The lanes' offsets in sampled requests; by whether they are to shared memory, lanes and offsets."""
        seen = {}
        for requests in self.last_requests:
            memory = requests[self.row].view(np.int64)
            for number in range(int(memory[LastRequest.sample_count // 8])):
                start = LastRequest.sample_offsets // 8 + number * abi.LANES
                shared = bool(memory[LastRequest.sample_shared // 8 + number])
                lanes = int(memory[LastRequest.sample_lanes // 8 + number]) & 0xFFFFFFFF
                first = LastRequest.sample_bases // 8 + number * MOST_SAMPLE_BASES
                count = int(memory[LastRequest.sample_base_count // 8 + number])
                for base in memory[first : first + count]:
                    offsets = memory[start : start + abi.LANES] + (base - memory[first])
                    seen[shared, lanes, offsets.tobytes()] = offsets
        return seen


@dataclass(frozen=True)
class LaunchCosts:
    """The counts of a launch, added up over all watches."""

    kernel: CheckedKernel
    ran: Ran
    #: The LastRequest of each row, for each watch.
    last_requests: Sequence[npt.NDArray[np.uint8]]
    #: Whether arrays that were passed to the launch share memory.
    arguments_overlap: bool = False

    @cached_property
    def instructions(self) -> int:
        """The instructions that warps executed."""
        return sum(int(self.ran.runs[block.number, 0]) * len(block.executed) for block in self.kernel.blocks)

    def row(self, op: Op, field: int) -> int:
        """Return a field of the first row of an instruction."""
        return int(self.ran.rows[MOST_ROWS * op.site, field // 8])

    @cached_property
    def accesses(self) -> list[AccessCost]:
        """All accesses that were made."""
        watched, watches = self.kernel.accesses, max(len(self.last_requests), 1)
        numbers = np.array([access.row for access in watched], np.intp)
        counted = self.ran.rows[numbers[:, None], [getattr(SiteRow, name) // 8 for name in _COUNTED]].tolist()
        bounds = self.ran.rows[numbers[:, None], [SiteRow.lowest // 8, SiteRow.highest // 8]] // watches
        return [
            AccessCost(*access, low, high, self.last_requests, **dict(zip(_COUNTED, counts, strict=True)))
            for access, counts, (low, high) in zip(watched, counted, bounds.tolist(), strict=True)
            if counts[_COUNTED.index("requests")]
        ]


_COUNTED = ("requests", "threads", "wavefronts", "ideal", "sectors", "least_sectors")
