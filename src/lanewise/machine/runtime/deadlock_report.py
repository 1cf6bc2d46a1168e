"""The message of a deadlock: who waits where, which mbarrier lacks what, and who could have sent it."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.analysis.pointer_provenance import AddressSources
from lanewise.machine.analysis.reaching_definitions import ReachingDefinitions
from lanewise.machine.program.basic_blocks import successors
from lanewise.machine.program.instruction_record import Size, Waits
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.program.operands import Register, ResolvedOperand, Symbol
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import short_place, source_line
from lanewise.machine.runtime.shared_names import shared_name
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, UNIT, UNITS, TensorAllocator
from lanewise.machine.warp_ops.mbarrier import Phase
from lanewise.ptx import Immediate

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

#: The instructions at which lanes wait so; others are those of block barriers.
_WAITS = {
    abi.WAITS_FOR_PHASE: (Waits.PHASE,),
    abi.WAITS_FOR_WARPGROUP: (Waits.WARPGROUP,),
    abi.WAITS_FOR_CLUSTER: (Waits.CLUSTER,),
    abi.WAITS_FOR_SIBLINGS: (Waits.MEMBERS, Waits.WARP, Waits.WARPGROUP, Waits.COLUMNS),
    abi.WAITS_FOR_COLUMNS: (Waits.COLUMNS,),
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
    #: Of the same mbarrier in other blocks of the cluster, as far as nobody waits for it: the phases by rank.
    elsewhere: tuple[tuple[int, Phase], ...] = ()

    @property
    def suspicion(self) -> int:
        """How likely it is what the others wait for: 0 is the surest.

        Bytes come from copies, which are over. Arrivals of which a part has come are of threads that would
        have come, too. Where nothing has come, those who send it mostly wait themselves.
        """
        phase = self.phase
        signs = (
            phase.overrun,
            self.is_told_to_first_block,
            phase.bytes < 0,
            phase.bytes > 0 and not phase.pending,
            0 < phase.pending < phase.expected,
        )
        return signs.index(True) if any(signs) else len(signs)

    @property
    def is_cause(self) -> bool:
        """Whether something came, but not all, or too much."""
        return self.suspicion < _NO_SIGN

    @property
    def is_told_to_first_block(self) -> bool:
        """Whether nothing came to it, while the same mbarrier of the first block of its pair is in use."""
        first, never = self.phase_of_first_block, self.phase.is_untouched and not self.phase.parity
        return never and first is not None and not (first.is_untouched and not first.parity)


#: The suspicion of an mbarrier to which nothing has come.
_NO_SIGN = 5


class ShortBarrier(NamedTuple):
    """A named barrier that fewer threads have come to than it counts, and that no other thread comes to."""

    number: int
    threads: int
    come: int
    lane: WaitingLane

    def __str__(self) -> str:
        return f"barrier {self.number} counts {self.threads} threads, and no more than {self.come} come to it"


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
    lanes = list(waiting_lanes(launch, stuck))
    counts = Counter((_line_of_wait(launch, lane), lane.reason) for lane in lanes)
    waits = "; ".join(
        f"{count} thread{'s wait' if count != 1 else ' waits'} "
        f"{_AWAITED.get(reason, f'at barrier {reason}')}, {_line(launch, line)}"
        for (line, reason), count in sorted(counts.items())
    )
    lacking, short = lacking_barriers(launch, lanes), short_barriers(launch, lanes)
    circle = first_of_circle(launch, lacking)
    lacking = sorted(lacking, key=lambda lack: lack != circle)
    words = [lack_in_words(launch, lack) for lack in lacking[:_MOST_NAMED]]
    known = [*words[: len([lack for lack in lacking[:_MOST_NAMED] if lack.is_cause])], *map(str, short)]
    known = known or words[: circle is not None]
    missing = "".join(f"; {sentence}" for sentence in words if sentence not in known)
    missing += _columns_in_words(lanes)
    exited = _exited(launch, stuck)
    where = (
        f"block {stuck[0].ctaid}" if len(stuck) == 1 else f"blocks {', '.join(str(b.ctaid) for b in stuck)}"
    )
    cause = first_cause(launch, lanes)
    first = _line_of_wait(launch, cause) if cause else min((line for line, _ in counts), default=0)
    message = f"deadlock in {where}: {'; '.join((*known, waits))}{missing}{exited}"
    return f"{message}\n{MEND}{_mend(launch, lanes, lacking, short)}", "deadlock", first


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


def _mend(
    launch: LaunchState, lanes: list[WaitingLane], lacking: list[LackingBarrier], short: list[ShortBarrier]
) -> str:
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
    if short and not any(lack.is_cause for lack in lacking):
        number, count, come, _ = short[0]
        return (
            f"count the threads that come to barrier {number}: {come} in place of {count}; or let "
            f"{count - come} more come to it"
        )
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
    circle = first_of_circle(launch, lacking)
    if circle is not None:
        name = circle.name.removeprefix("shared variable ")
        return (
            f"wait for parity 1 of {name} in the first round, and then for 0, 1, 0, …: it waits for what "
            "comes after it, and the phase before the first one counts as complete"
        )
    return _mend_of_phase(launch, lacking[0])


def _mend_of_phase(launch: LaunchState, first: LackingBarrier) -> str:
    """Return what completes the phase of an mbarrier."""
    phase, name = first.phase, first.name.removeprefix("shared variable ")
    if first.is_told_to_first_block:
        return _mend_of_pair(launch, first, name)
    strays = [(rank, there) for rank, there in first.elsewhere if there.bytes < 0 < phase.bytes]
    if strays:
        rank, there = strays[0]
        copies = _lines(launch, senders(launch, first.offset)[1])
        return (
            f"let the copies of the block of rank {rank} tell {name} of their bytes, by its address in that "
            f"block (mapa): {-there.bytes} bytes came to their own mbarrier (copies: {copies})"
        )
    in_cluster = launch.shape.cluster_blocks > 1
    come_elsewhere = [
        (rank, there.expected - there.pending)
        for rank, there in first.elsewhere
        if 0 < phase.pending < phase.expected and 0 < there.pending < there.expected
    ]
    if come_elsewhere:
        rank, come = come_elsewhere[0]
        arrivals = _lines(launch, senders(launch, first.offset)[0])
        return (
            f"let the threads of the block of rank {rank} arrive at {name}, by its address in that block "
            f"(mapa): {come} arrivals came to their own mbarrier (arrivals: {arrivals})"
        )
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
        fewer += ", if no other block uses what it guards" if come and in_cluster else ""
        sources = _lines(launch, senders(launch, first.offset)[0])
        return f"let {phase.pending} more arrive at {name} in each phase ({sources}){fewer}"
    if phase.bytes > 0:
        copies = _lines(launch, senders(launch, first.offset)[1])
        issue = f"issue the copies that bring the other {phase.bytes} bytes (copies: {copies})"
        if in_cluster:
            return (
                f"{issue}: those of other blocks, too, which name this mbarrier by mapa or this block in "
                "their mask"
            )
        fewer = f"announce what the copies bring: {phase.bytes} bytes fewer in expect_tx of {name}"
        return f"{issue}, or {fewer}"
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


def first_cause(launch: LaunchState, lanes: list[WaitingLane]) -> WaitingLane | None:
    """Return a lane that waits for what the others wait for in the end; None if nothing tells."""
    lacking = lacking_barriers(launch, lanes)
    if lacking and lacking[0].is_cause:
        return lacking[0].lane
    short = short_barriers(launch, lanes)
    if short:
        return short[0].lane
    circle = first_of_circle(launch, lacking)
    return circle.lane if circle is not None else None


def first_of_circle(launch: LaunchState, lacking: list[LackingBarrier]) -> LackingBarrier | None:
    """Return the mbarrier that lanes wait for before they copy, if nothing has come to any mbarrier yet.

    Those who wait for the copies arrive at it: each waits for the other.
    """
    fresh = all(barrier.phase.is_untouched and not barrier.phase.parity for barrier in lacking)
    if not fresh or len({barrier.offset for barrier in lacking}) < 2:
        return None
    for barrier in lacking:
        arrivals, _ = senders(launch, barrier.offset)
        others = [other for other in lacking if other.offset != barrier.offset]
        copies = (op for op in _coming(launch, barrier.lane) if op.has("mbarrier::complete_tx::bytes"))
        freed = any(op in arrivals for other in others for op in _coming(launch, other.lane))
        if next(copies, None) is not None and freed:
            return barrier
    return None


def _coming(launch: LaunchState, lane: WaitingLane) -> Iterator[Op]:
    """Yield the instructions that a lane may come to."""
    pending, seen = [launch.compiled.blocks[lane.basic_block]], {lane.basic_block}
    while pending:
        block = pending.pop()
        yield from block.executed
        following = [successor for successor in successors(block) if successor.number not in seen]
        seen |= {successor.number for successor in following}
        pending += following


def short_barriers(launch: LaunchState, lanes: list[WaitingLane]) -> list[ShortBarrier]:
    """Return the named barriers that lack threads, and that no lane that waits elsewhere can come to."""
    short = []
    groups: dict[tuple[int, int], list[WaitingLane]] = {}
    for lane in lanes:
        if lane.reason < _NAMED_BARRIERS:
            groups.setdefault((lane.block[BlockRecord.linear], lane.reason), []).append(lane)
    for (linear, number), there in groups.items():
        op = _awaited(launch, there[0])
        if op is None or len(op.operands) != 2:  # one of all threads, or one that counts a predicate
            continue
        count = _value(op.operands[1], there[0])
        others = {
            lane.basic_block: lane
            for lane in lanes
            if lane.block[BlockRecord.linear] == linear and lane.reason != number
        }
        comes = any(
            met.record.waits is Waits.BARRIER and len(met.operands) == 2 and _may_be(met.operands[0], number)
            for lane in others.values()
            for met in _coming(launch, lane)
        )
        if len(there) < count and not comes:
            short.append(ShortBarrier(number, count, len(there), there[0]))
    return short


#: Barriers of a block are numbered 0 to 15.
_NAMED_BARRIERS = 16


def _awaited(launch: LaunchState, lane: WaitingLane) -> Op | None:
    """Return the instruction at which a lane waits; None if it is not known.

    Barriers of the block and of the cluster end the basic block before the one with which the lane goes on;
    the others are executed in that one, when what they wait for has come.
    """
    blocks = launch.compiled.blocks
    if lane.reason < _NAMED_BARRIERS or lane.reason == abi.WAITS_FOR_CLUSTER:
        before = (block.op for block in blocks if block.following is blocks[lane.basic_block])
        ops = [op for op in before if op is not None]
    else:
        ops = list(blocks[lane.basic_block].executed)
    return next((op for op in ops if op.record.waits in _WAITS.get(lane.reason, (Waits.BARRIER,))), None)


def _line_of_wait(launch: LaunchState, lane: WaitingLane) -> int:
    """Return the line of the PTX at which a lane waits, or else that with which it goes on."""
    op = _awaited(launch, lane)
    return op.line if op is not None else launch.compiled.launch_info.lines[lane.basic_block]


def _value(operand: ResolvedOperand, lane: WaitingLane) -> int:
    """Return the number that an operand has in a lane; 0 if it is none."""
    if isinstance(operand, Register):
        return int(lane.block.lanes(lane.warp, operand.offset, operand.bits)[lane.lane])
    return operand.bits if isinstance(operand, Immediate) else 0


def _may_be(operand: ResolvedOperand, number: int) -> bool:
    """Return whether an operand may be a number."""
    return not isinstance(operand, Immediate) or operand.bits == number


def lacking_barriers(launch: LaunchState, lanes: list[WaitingLane]) -> list[LackingBarrier]:
    """Return the mbarriers that lanes wait for, each once: the likeliest cause of a deadlock first."""
    pairs = any(op.has("cta_group::2") for op in launch.compiled.program.sites)
    blocks = launch.shape.cluster_blocks
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
        name += f" of the block of rank {rank}" if blocks > 1 else ""
        first = _phase(waiting.block, rank - 1, offset) if pairs and rank % 2 else None
        others = ((other, _phase(waiting.block, other, offset)) for other in range(blocks) if other != rank)
        elsewhere = tuple((other, there) for other, there in others if there is not None)
        barrier = LackingBarrier(name, offset, phase, waiting, first, elsewhere)
        lacking.setdefault((rank, offset), barrier)
    awaited = [
        barrier._replace(
            elsewhere=tuple(there for there in barrier.elsewhere if (there[0], barrier.offset) not in lacking)
        )
        for barrier in lacking.values()
    ]
    return sorted(awaited, key=lambda barrier: barrier.suspicion)


def _phase(block: BlockState, rank: int, offset: int) -> Phase | None:
    """Return the phase of an mbarrier of a block of the cluster; None beyond its shared memory."""
    word = block.shared_bytes_at(rank << abi.RANK_SHIFT | offset, MBARRIER_BYTES)
    return Phase.of(int.from_bytes(word, "little")) if len(word) == MBARRIER_BYTES else None


def _awaited_barrier(launch: LaunchState, waiting: WaitingLane) -> int | None:
    """Return the address of the mbarrier that a lane waits for in a basic block; None if it is not known."""
    op = _awaited(launch, waiting)
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
