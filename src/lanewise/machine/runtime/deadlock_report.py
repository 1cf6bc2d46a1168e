"""The message of a deadlock: who waits where, which mbarrier lacks what, and who could have sent it."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.analysis.pointer_provenance import AddressSources
from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.program.instruction_record import Size, Waits
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.program.operands import Register, Symbol
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import short_place, source_line
from lanewise.machine.runtime.shared_names import shared_name
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, UNIT, UNITS, TensorAllocator
from lanewise.machine.warp_ops.mbarrier import Phase

#: mbarriers and instructions that a message names.
_MOST_NAMED = 4
#: What lanes wait for, by the number in their field `barrier`; other numbers are those of block barriers.
_AWAITED = {
    abi.WAITS_FOR_PHASE: "for a phase of an mbarrier",
    abi.WAITS_FOR_WARPGROUP: "for the other warps of their warpgroup",
    abi.WAITS_FOR_CLUSTER: "at the barrier of the cluster",
    abi.WAITS_FOR_SIBLINGS: "for the other lanes of their warp",
    abi.WAITS_FOR_COLUMNS: "for free columns of tensor memory",
}


class WaitingLane(NamedTuple):
    """A lane that waits when a launch is deadlocked: where it goes on, and what it waits for."""

    block: BlockState
    warp: int
    lane: int
    #: The number of the basic block with which it goes on.
    basic_block: int
    reason: int


class LackingBarrier(NamedTuple):
    """An mbarrier that threads wait for: its name, and the phase that is not complete."""

    name: str
    #: Its offset in the shared memory of its block.
    offset: int
    phase: Phase
    #: The first lane that waits for it.
    lane: WaitingLane
    #: If it belongs to the second block of a pair: the phase of the same mbarrier of the first block.
    phase_of_first_block: Phase | None = None

    @property
    def is_cause(self) -> bool:
        """Whether no thread that waits can complete the phase: bytes come from copies, which are over."""
        return self.phase.overrun or (self.phase.bytes != 0 and not self.phase.pending)

    @property
    def is_told_to_first_block(self) -> bool:
        """Whether nothing came to it, while the same mbarrier of the first block of its pair is in use."""
        first, never = self.phase_of_first_block, self.phase.is_untouched and not self.phase.parity
        return never and first is not None and not (first.is_untouched and not first.parity)


def waiting_lanes(launch: LaunchState, stuck: list[BlockState]) -> Iterator[WaitingLane]:
    """Yield the lanes that wait; those for a phase may just have been let go to test it once more."""
    for block in stuck:
        for warp in range(launch.shape.warps):
            pcs, reasons = (
                block.lanes(warp, field, 32) for field in (abi.WarpFrame.pcs, abi.WarpFrame.barrier)
            )
            for lane, (pc, reason) in enumerate(zip(pcs.tolist(), reasons.tolist(), strict=True)):
                parked = abi.PARKED <= pc < abi.EXITED
                if parked or (pc < abi.PARKED and reason == abi.WAITS_FOR_PHASE):
                    yield WaitingLane(block, warp, lane, pc & (abi.PARKED - 1), reason)


def describe_deadlock(launch: LaunchState, state: BlockState) -> tuple[str, str, int]:
    """Return the message of a deadlock (who waits for what, and what mends it), its kind, its first line."""
    stuck = [member for member in (state.members or [state]) if not member[BlockRecord.ended]]
    lines = launch.compiled.launch_info.lines
    lanes = list(waiting_lanes(launch, stuck))
    counts = Counter((lines[lane.basic_block], lane.reason) for lane in lanes)
    waits = "; ".join(
        f"{count} thread{'s wait' if count != 1 else ' waits'} "
        f"{_AWAITED.get(reason, f'at barrier {reason}')} before {_line(launch, line)}"
        for (line, reason), count in sorted(counts.items())
    )
    lacking = sorted(lacking_barriers(launch, lanes), key=lambda lack: not lack.is_cause)
    missing = "".join(f"; {lack_in_words(launch, lack)}" for lack in lacking[:_MOST_NAMED])
    missing += _columns_in_words(lanes)
    exited = _exited(launch, stuck)
    where = (
        f"block {stuck[0].ctaid}" if len(stuck) == 1 else f"blocks {', '.join(str(b.ctaid) for b in stuck)}"
    )
    causes = [lines[lack.lane.basic_block] for lack in lacking if lack.is_cause]
    first = min(causes or (line for line, _ in counts), default=0)
    message = f"deadlock in {where}: {waits}{missing}{exited}"
    return f"{message}\n{MEND}{_mend(launch, lanes, lacking)}", "deadlock", first


def _columns_in_words(lanes: list[WaitingLane]) -> str:
    """Return how many columns of tensor memory are allocated where lanes wait for some."""
    blocks = {lane.block[BlockRecord.linear]: lane.block for lane in lanes if _waits_for_columns(lane)}
    parts = []
    for block in blocks.values():
        record = block.tensor_allocator.view(np.int64)
        asked = int(record[TensorAllocator.asked // 8])
        units = [unit for unit in range(UNITS) if int(record[TensorAllocator.allocated // 8]) >> unit & 1]
        count = UNIT * len(units)
        share = f"all {count}" if count == TENSOR_COLUMNS else f"{count} of {TENSOR_COLUMNS}"
        where = f" in block {block.ctaid}" if len(blocks) > 1 else ""
        waits = f", and a warp waits for {asked} in both blocks of its pair" if asked else ""
        parts.append(f"; {share} columns are allocated{where}{waits}")
    return "".join(parts)


def _waits_for_columns(lane: WaitingLane) -> bool:
    return lane.reason == abi.WAITS_FOR_COLUMNS


#: How the line of the message begins that says what mends it.
MEND = "    mend: "


def _mend(launch: LaunchState, lanes: list[WaitingLane], lacking: list[LackingBarrier]) -> str:
    """Return what ends a deadlock: what its first mbarrier lacks, or threads at another barrier."""
    # Lanes that wait for one of their warp which waits for a phase go on when the phase is complete.
    at_phase = {(lane.block.ctaid, lane.warp) for lane in lanes if lane.reason == abi.WAITS_FOR_PHASE}
    reasons = {
        lane.reason
        for lane in lanes
        if lane.reason != abi.WAITS_FOR_SIBLINGS or (lane.block.ctaid, lane.warp) not in at_phase
    }
    if abi.WAITS_FOR_SIBLINGS in reasons:
        return "move the instruction out of the branch, so that all lanes of its warp come to it"
    if not lacking:
        if abi.WAITS_FOR_COLUMNS in reasons:
            return (
                "free columns (tcgen05.dealloc) before more are allocated, or allocate fewer; with "
                ".cta_group::2 let a warp of each block of the pair allocate"
            )
        if abi.WAITS_FOR_WARPGROUP in reasons:
            return "let all four warps of the warpgroup execute the instruction"
        if abi.WAITS_FOR_CLUSTER in reasons:
            return "let all threads of all blocks of the cluster arrive at its barrier"
        return (
            "let all threads that a barrier counts come to it: move it out of branches, and give it the "
            "number of threads that do"
        )
    first = lacking[0]
    phase, name = first.phase, first.name.removeprefix("shared variable ")
    if first.is_told_to_first_block:
        return _mend_of_pair(launch, first, name)
    if phase.overrun:
        return f"initialise {name} with the number of threads that arrive, or let {phase.expected} of them do"
    if phase.pending:
        if phase.is_untouched and phase.parity:
            return (
                f"wait for parity 0 of {name}, if the phase is meant that is complete: the first phase has "
                f"parity 0, the next one 1, and so on; or let {phase.pending} arrive once more"
            )
        come = phase.expected - phase.pending
        fewer = f", or initialise {name} with {come}" if come else ""
        sources = _lines(launch, senders(launch, first.offset)[0])
        return f"let {phase.pending} more arrive at {name} in each phase ({sources}){fewer}"
    if phase.bytes > 0:
        copies = _lines(launch, senders(launch, first.offset)[1])
        return (
            f"issue the copies that bring the other {phase.bytes} bytes (copies: {copies}), or announce "
            f"what the copies bring: {phase.bytes} bytes fewer in expect_tx of {name}"
        )
    if phase.bytes:
        return f"announce what the copies bring: {-phase.bytes} bytes more in expect_tx of {name}"
    return f"wait for the parity of the phase that {name} is in: it changes with each phase, 0, 1, 0, …"


def _mend_of_pair(launch: LaunchState, barrier: LackingBarrier, name: str) -> str:
    """Return what ends the wait of a pair's second block for what comes to the first block alone."""
    arrivals, _ = senders(launch, barrier.offset)
    commits = [op for op in arrivals if op.record.touches_tensor_memory]
    if commits:
        where = _lines(launch, commits)
        return (
            f"let the commit tell both blocks of the pair: .multicast::cluster with a mask of both ({where})"
        )
    products = [op for op in launch.compiled.program.sites if op.record.multiplies and op.has("cta_group::2")]
    issue = f" and issue what follows ({_lines(launch, products)})" if products else ""
    return (
        f"let the first block of the pair (even rank) alone wait for {name}{issue}: the mbarrier of that "
        "block counts what arrives and what the copies bring"
    )


def _line(launch: LaunchState, line: int) -> str:
    """Return the line of the source that a line of the PTX came from; without one, that of the PTX."""
    ops = (op for op in launch.compiled.program.sites if op.line == line and op.loc is not None)
    source = next((source_line(launch.compiled.module, op.loc) for op in ops if op.loc is not None), None)
    return short_place(source) if source else f"line {line}"


def _exited(launch: LaunchState, stuck: list[BlockState]) -> str:
    """Return how many threads have exited, as the end of a sentence."""
    count = 0
    for block in stuck:
        for warp in range(launch.shape.warps):
            there = min(launch.shape.threads - abi.LANES * warp, abi.LANES)
            count += int((block.lanes(warp, abi.WarpFrame.pcs, 32)[:there] == abi.EXITED).sum())
    return f"; {count} thread{'s have' if count != 1 else ' has'} exited" if count else ""


def lacking_barriers(launch: LaunchState, lanes: list[WaitingLane]) -> list[LackingBarrier]:
    """Return the mbarriers that lanes wait for, each once."""
    lacking: dict[tuple[int, int], LackingBarrier] = {}
    for waiting in lanes:
        if waiting.reason != abi.WAITS_FOR_PHASE:
            continue
        address = _awaited_barrier(launch, waiting)
        if address is None:
            continue
        rank, offset = address >> abi.RANK_SHIFT, address & ((1 << abi.RANK_SHIFT) - 1)
        phase = _phase(waiting.block, rank, offset)
        if phase is None:
            continue
        name = shared_name(launch, offset, MBARRIER_BYTES)
        if rank != waiting.block[BlockRecord.rank]:
            name += f" of the block of rank {rank}"
        first = _phase(waiting.block, rank - 1, offset) if rank % 2 else None
        lacking.setdefault((rank, offset), LackingBarrier(name, offset, phase, waiting, first))
    return list(lacking.values())


def _phase(block: BlockState, rank: int, offset: int) -> Phase | None:
    """Return the phase of an mbarrier of a block of the cluster; None beyond its shared memory."""
    word = block.shared_bytes_at(rank << abi.RANK_SHIFT | offset, MBARRIER_BYTES)
    return Phase.of(int.from_bytes(word, "little")) if len(word) == MBARRIER_BYTES else None


def _awaited_barrier(launch: LaunchState, waiting: WaitingLane) -> int | None:
    """Return the address of the mbarrier that a lane waits for in a basic block; None if it is not known."""
    ops = launch.compiled.blocks[waiting.basic_block].ops
    op = next((op for op in ops if op.record.waits is Waits.PHASE), None)
    if op is None:
        return None
    base = op.address(1).base
    if isinstance(base, Register):
        start = int(waiting.block.lanes(waiting.warp, base.offset, base.bits)[waiting.lane])
    else:
        start = base.address if isinstance(base, Symbol) else base.bits
    address = (start + op.address(1).offset) & ((1 << 64) - 1)
    return address - abi.SHARED_WINDOW if address >= abi.SHARED_WINDOW else address


def lack_in_words(launch: LaunchState, barrier: LackingBarrier) -> str:
    """Return what an mbarrier lacks, and which instructions could have sent it."""
    phase = barrier.phase
    if phase.overrun:
        return (
            f"the mbarrier at {barrier.name} got more arrivals in one instruction than the {phase.expected} "
            "that it was initialised for, and so completed several phases at once"
        )
    arrivals, copies = senders(launch, barrier.offset)
    sent = []
    if phase.pending:
        sent.append(f"arrivals come from {_lines(launch, arrivals)}")
    if phase.bytes > 0:
        sent.append(f"bytes come from {_lines(launch, copies)}")
    if phase.bytes < 0:
        sent.append(f"expect_tx comes from {_lines(launch, arrivals)}")
    senders_named = f" ({', '.join(sent)})" if sent else ""
    which = f" in its phase of parity {phase.parity}" if phase.is_untouched else ""
    return f"the mbarrier at {barrier.name} lacks {phase}{which}{senders_named}"


def senders(launch: LaunchState, offset: int) -> tuple[list[Op], list[Op]]:
    """Return the instructions that may arrive at an mbarrier at an offset, and the copies that bring bytes.

    An arrival at another variable is left out, as far as one can tell where its address comes from.
    """
    arrivals, copies = [], []
    sources = AddressSources(ReachingDefinitions(launch.compiled.blocks))
    for op in launch.compiled.program.sites:
        if op.has("mbarrier::complete_tx::bytes"):
            copies.append(op)
        accesses = [access for access in op.record.memory if access.size is Size.MBARRIER]
        if not accesses or not accesses[0].releases:
            continue
        symbol = sources.variable(op, op.address(accesses[0].operand).base)
        if symbol is None or symbol.address <= offset < symbol.address + symbol.size:
            arrivals.append(op)
    return arrivals, copies


def _lines(launch: LaunchState, ops: list[Op]) -> str:
    """Return the lines of instructions, each once; "nowhere in the kernel" if there is none."""
    module = launch.compiled.module
    places = [
        short_place(source_line(module, op.loc)) if op.loc is not None else f"line {op.line}" for op in ops
    ]
    lines = list(dict.fromkeys(places))
    more = f" and {len(lines) - _MOST_NAMED} more lines" if len(lines) > _MOST_NAMED else ""
    return (", ".join(lines[:_MOST_NAMED]) + more) if lines else "nowhere in the kernel"
