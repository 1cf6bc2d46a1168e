"""Counters of a checked run under Nsight Compute's names, in total and for each line.

They count instructions of the PTX: where ptxas merges, splits or removes some, the SASS has others.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.machine.checker.records import SiteRow
from lanewise.machine.checker.site_table import first_access_row
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import AccessKind, BlockEnd, Waits
from lanewise.machine.program.memory_accesses import watched_accesses
from lanewise.machine.program.ops import Op

Counts = dict[str, int | float]

INSTRUCTIONS = "smsp__inst_executed.sum"
THREADS = "smsp__thread_inst_executed.sum"
TENSOR = "smsp__inst_executed_pipe_tensor.sum"
#: Has no name in Nsight Compute: multiplications and additions of matrix instructions.
FLOPS = "lanewise__tensor_flops.sum"
BRANCHES = "smsp__inst_executed_op_branch.sum"
DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
BARRIERS = "lanewise__barriers.sum"
WAVEFRONTS = "memory_l1_wavefronts_shared"
IDEAL = "memory_l1_wavefronts_shared_ideal"
EXCESSIVE = "derived__memory_l1_wavefronts_shared_excessive"
_SHARED = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_BYTES = "smsp__sass_data_bytes_mem_{}_op_{}.sum"
_BY_SPACE = "smsp__inst_executed_op_{}_{}.sum"
_EFFICIENCY = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.pct"
LDSM = "smsp__inst_executed_op_ldsm.sum"
#: Instructions whose count Nsight Compute does not name by their space.
_INSTRUCTIONS = {"ldsm": LDSM, "ldgsts": "smsp__inst_executed_op_ldgsts.sum"}
#: Bytes of a sector, and of a wavefront of shared memory.
SECTOR, _WAVEFRONT = 32, 128
#: Instructions of the pipe that TMA has; those that copy, by the way they go, and the sectors that they move.
_TMA = "smsp__inst_executed_pipe_tma.sum"
_TMA_INSTRUCTIONS = "smsp__sass_inst_executed_op_tma_{}.sum"
_TMA_READ = "l1tex__m_xbar2l1tex_read_{}_mem_global_op_tma_{}.sum"
_TMA_WRITTEN = "l1tex__m_l1tex2xbar_write_{}_mem_global_op_tma_{}.sum"
#: Products of warpgroups, and what their operands take of shared memory.
_GMMA = "smsp__inst_executed_pipe_tensor_op_gmma.sum"
_GMMA_BYTES = _BYTES.format("shared", "gmma")
_GMMA_WAVEFRONTS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
_GMMA_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum"
#: Clusters that were launched.
CLUSTERS = "gpc__cgas_launched.sum"


class _Counted(NamedTuple):
    """What one instruction counts each time that it runs, and the rows of its accesses."""

    #: Tensor-core instructions and operations; none if it is no product.
    product: tuple[int, int] | None
    branches: bool
    waits: bool
    by_tma: bool
    first_row: int
    end_row: int

    @property
    def is_plain(self) -> bool:
        """Whether it counts as an instruction and nothing else."""
        others = self.product is not None or self.branches or self.waits or self.by_tma
        return not others and self.first_row == self.end_row


class Ran(NamedTuple):
    """What the watches of a launch have counted in all."""

    #: For each basic block: how often it ran, and with how many threads in all.
    runs: npt.NDArray[np.int64]
    #: The table of the checker.
    rows: npt.NDArray[np.int64]
    #: For each instruction: how often lanes parted at it.
    diverged: npt.NDArray[np.int64]


class SiteCounters:
    """What each instruction of a kernel counts each time that it runs: worked out once for all launches."""

    def __init__(self, blocks: Iterable[BasicBlock], sites: list[Op], arch: str) -> None:
        pairs = [
            (op.site, block.number) for block in blocks for op in block.executed if not op.record.second_half
        ]
        self._sites, self._blocks = (np.array([pair[side] for pair in pairs], np.intp) for side in (0, 1))
        self.sites = sites
        self._counted = [_counted(op, arch) for op in sites]
        self._is_plain = np.array([counted.is_plain for counted in self._counted], bool)

    def of_launch(self, ran: Ran) -> list[tuple[Op, Counts]]:
        """Return the counters of all instructions that ran."""
        return self._of_sites(ran, self._executed(ran), np.arange(len(self.sites)))

    def total(self, ran: Ran) -> Counts:
        """Return the sum of all counters."""
        executed = self._executed(ran)
        times, threads = executed[self._is_plain].sum(axis=0).tolist()
        others = self._of_sites(ran, executed, np.flatnonzero(~self._is_plain))
        return _total_of([{INSTRUCTIONS: times, THREADS: threads}, *(counts for _, counts in others)])

    def _executed(self, ran: Ran) -> npt.NDArray[np.int64]:
        """Return how often each instruction ran, and with how many threads in all."""
        executed = np.zeros((len(self.sites), 2), np.int64)
        np.add.at(executed, self._sites, ran.runs[self._blocks])
        return executed

    def _of_sites(
        self, ran: Ran, executed: npt.NDArray[np.int64], sites: npt.NDArray[np.intp]
    ) -> list[tuple[Op, Counts]]:
        """Return the counters of those of some instructions that ran."""
        costs = ran.rows[:, [field // 8 for field in _COST_FIELDS]].tolist()
        counts = zip(sites.tolist(), executed[sites].tolist(), ran.diverged[sites].tolist(), strict=True)
        return [
            (self.sites[site], _of_site(self.sites[site], self._counted[site], times, threads, parted, costs))
            for site, (times, threads), parted in counts
            if times
        ]


def _counted(op: Op, arch: str) -> _Counted:
    """Return what one instruction counts."""
    record, first = op.record, first_access_row(op)
    return _Counted(
        _of_product(op, arch) if record.multiplies else None,
        record.ends in (BlockEnd.JUMP, BlockEnd.SWITCH),
        record.waits is Waits.BARRIER,
        record.counter == "tma",
        first,
        first + len(watched_accesses(op)),
    )


def _of_site(
    op: Op, counted: _Counted, times: int, threads: int, parted: int, costs: list[list[int]]
) -> Counts:
    """Return the counters of one instruction."""
    counts: Counts = {INSTRUCTIONS: times, THREADS: threads}
    if counted.product is not None:
        tensor, operations = counted.product
        counts[TENSOR], counts[FLOPS] = tensor * times, operations * times
        if op.record.counter == "wgmma":
            _add(counts, _of_warpgroup(op, times))
    if counted.by_tma:
        counts[_TMA] = times
        if op.record.memory and costs[counted.first_row][0]:
            _add(counts, _of_bulk_copy(op, times, costs[counted.first_row]))
    if counted.branches:
        counts[BRANCHES], counts[DIVERGENT] = times, parted
    if counted.waits:
        counts[BARRIERS] = times
    for cost in costs[counted.first_row : counted.end_row]:
        if cost[0]:
            _add(counts, _of_memory(op, *cost))
    return counts


def _of_product(op: Op, arch: str) -> tuple[int, int]:
    """Return the tensor-core instructions of SASS and the operations of a matrix product, for one warp."""
    instruction = op.source.instruction()
    if instruction is None or not instruction.multiplies:
        return 0, 0
    operations = 2 * instruction.m * instruction.n * instruction.k * instruction.products
    try:
        detail = instruction.lowering(arch).detail
    except LanewiseError:
        detail = ""
    match = re.search(r"(\d+) [A-Z]*MMA", detail)
    tensor = int(match[1]) if match else (0 if "without" in detail else 1)
    return tensor, operations // (instruction.threads // 32)


def _of_warpgroup(op: Op, times: int) -> Counts:
    """Return what the operands of a wgmma in shared memory take, for so many warps that executed it.

    A descriptor names pieces of 128 bytes that meet all banks once, in every swizzle: there is no conflict.
    """
    instruction = op.source.instruction()
    assert instruction is not None
    read = (instruction.a, instruction.b) if instruction.a_source == "descriptor" else (instruction.b,)
    bits = sum(operand.rows * operand.cols * operand.format.bits for operand in read)
    moved = bits // 8 * times // (instruction.threads // 32)
    return {
        _GMMA: times,
        _GMMA_BYTES: moved,
        _GMMA_WAVEFRONTS: moved // _WAVEFRONT,
        _GMMA_CONFLICTS: 0,
    }


#: What is counted for each access, in the rows of the checker's table.
_COST_FIELDS = (
    SiteRow.requests,
    SiteRow.wavefronts,
    SiteRow.ideal,
    SiteRow.sectors,
    SiteRow.moved_bytes,
)


def _of_memory(op: Op, requests: int, wavefronts: int, ideal: int, sectors: int, moved: int) -> Counts:
    """Return the counters of one access."""
    operation = op.record.counter
    counts: Counts = {}
    if wavefronts:
        counts |= {
            _SHARED.format(operation): wavefronts,
            _CONFLICTS.format(operation): wavefronts - ideal,
            WAVEFRONTS: wavefronts,
            IDEAL: ideal,
            EXCESSIVE: wavefronts - ideal,
            _BYTES.format("shared", operation): moved,
        }
        counts[_INSTRUCTIONS.get(operation, _BY_SPACE.format("shared", operation))] = requests
    if sectors:
        counts |= {
            _SECTORS.format(operation): sectors,
            _REQUESTS.format(operation): requests,
            _BYTES.format("global", operation): moved,
        }
        if operation != "ldgsts":
            counts[_BY_SPACE.format("global", operation)] = requests
    if not wavefronts and not sectors and requests and op.space == "local":
        counts[_BY_SPACE.format("local", operation)] = requests
    return counts


def _of_bulk_copy(op: Op, times: int, cost: list[int]) -> Counts:
    """Return the counters of a copy by TMA: its way, and the sectors of global memory that it moves."""
    target, source = op.record.memory[:2]
    if target.space == "global":
        way, name = "red" if target.kind is AccessKind.ATOMIC else "st", _TMA_WRITTEN
    elif source.space == "global":
        way, name = "ld", _TMA_READ
    else:
        return {}  # from block to block
    sectors = cost[_COST_FIELDS.index(SiteRow.sectors)]
    return {
        _TMA_INSTRUCTIONS.format(way): times,
        name.format("sectors", way): sectors,
        name.format("bytes", way): SECTOR * sectors,
    }


def _add(total: Counts, more: Counts) -> None:
    """Add counters to a total."""
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _total_of(counts: Iterable[Counts]) -> Counts:
    """Return the sum of all counters, with the ratios that only a sum has: bytes used of each sector."""
    names = [
        INSTRUCTIONS,
        THREADS,
        TENSOR,
        FLOPS,
        BRANCHES,
        DIVERGENT,
        BARRIERS,
        WAVEFRONTS,
        IDEAL,
        EXCESSIVE,
    ]
    for operation in ("ld", "st"):
        names += [name.format(operation) for name in (_SECTORS, _REQUESTS, _SHARED, _CONFLICTS)]
    total: Counts = dict.fromkeys([*names, LDSM, _SHARED.format("ldsm"), _CONFLICTS.format("ldsm")], 0)
    for site_counts in counts:
        _add(total, site_counts)
    for operation in ("ld", "st"):
        sectors = total[_SECTORS.format(operation)]
        if sectors:
            moved = total.get(_BYTES.format("global", operation), 0)
            total[_EFFICIENCY.format(operation)] = 100 * moved / (SECTOR * sectors)
    return total
