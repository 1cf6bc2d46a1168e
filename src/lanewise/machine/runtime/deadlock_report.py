"""The message of a deadlock: who waits where, which mbarrier lacks what, and who could have sent it."""

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import numpy as np

from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import short_place, source_line
from lanewise.machine.runtime.fault_report import value_in_lane
from lanewise.machine.runtime.shared_names import shared_name
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.machine.runtime.wait_graph import (
    NAMED_BARRIERS,
    Awaited,
    WaitGraph,
    WaitingLane,
    waiting_lanes,
)
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, UNIT, UNITS, TensorAllocator
from lanewise.machine.warp_ops.mbarrier import Before, Phase

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


class Release(Enum):
    """Who would release what is awaited, of the threads that wait."""

    #: None of them: no thread comes any more.
    NOBODY = 0
    #: Threads that wait, in the end, for what it releases itself.
    CIRCLE = 1
    #: Threads that wait for something else.
    OTHERS = 2


class LackingBarrier(NamedTuple):
    """An mbarrier that threads wait for: its name, and the phase that is not complete."""

    name: str
    #: Its offset in the shared memory of its block.
    offset: int
    phase: Phase
    #: The first lane that waits for it.
    lane: WaitingLane
    awaited: Awaited
    release: Release
    #: Whether copies of another block of the cluster that waits may bring bytes.
    copies_wait: bool = False
    #: Whether a phase was completed while nobody had seen that the one before was; in one instruction.
    is_overrun: bool = False
    is_overrun_at_once: bool = False
    #: If it belongs to the second block of a pair: the phase of the same mbarrier of the first block.
    phase_of_first_block: Phase | None = None
    #: Of the same mbarrier in other blocks of the cluster, as far as nobody waits for it: the phases by rank.
    elsewhere: tuple[tuple[int, Phase], ...] = ()

    @property
    def suspicion(self) -> int:
        """How likely it is what the others wait for: 0 is the surest.

        Bytes come from copies, which are over. A thread that waits for a phase, while nobody has seen the one
        before, has missed it. Arrivals of which a part has come are of threads that would have come, too, if
        they do not wait for something else. Where nothing has come, those who send it mostly wait themselves.
        """
        phase = self.phase
        announced, is_partial = phase.bytes > 0 and not phase.pending, 0 < phase.pending < phase.expected
        signs = (
            self.is_overrun or self.is_overrun_at_once,
            self.is_told_to_first_block,
            phase.bytes < 0 and (not phase.pending or self.release is Release.NOBODY),
            announced and not self.copies_wait,
            self.is_missed,
            is_partial and self.release is not Release.OTHERS,
            self.release is Release.NOBODY,
            is_partial,
            announced,
        )
        return signs.index(True) if any(signs) else _NO_SIGN

    @property
    def is_cause(self) -> bool:
        """Whether something came, but not all, or too much, or nothing can come any more."""
        return self.suspicion < _NO_SIGN

    @property
    def is_certain(self) -> bool:
        """Whether what it lacks, or has too much of, is no consequence of what other threads wait for."""
        return self.suspicion <= _BYTES_MISSING

    @property
    def is_missed(self) -> bool:
        """Whether threads wait for a phase, and nobody has seen that the one before is complete."""
        return self.phase.is_untouched and self.phase.before is Before.UNSEEN

    @property
    def is_told_to_first_block(self) -> bool:
        """Whether nothing came to it, while the same mbarrier of the first block of its pair is in use."""
        first = self.phase_of_first_block
        return self.phase.is_fresh and first is not None and not first.is_fresh


#: Suspicions: an mbarrier to which announced bytes have not come, and one that shows nothing.
_BYTES_MISSING, _NO_SIGN = 3, 9


class ShortBarrier(NamedTuple):
    """A named barrier that fewer threads have come to than it counts."""

    number: int
    threads: int
    come: int
    lane: WaitingLane
    #: The other barriers that its threads wait for, and whose threads wait for it; else no thread comes.
    crossed: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.crossed:
            return f"barrier {self.number} counts {self.threads} threads, of which {self.come} have come"
        return f"barrier {self.number} counts {self.threads} threads, and no more than {self.come} come to it"


def describe_deadlock(launch: LaunchState, state: BlockState) -> tuple[str, str, int]:
    """Return the message of a deadlock (who waits for what, and what mends it), its kind, its first line."""
    stuck = [member for member in (state.members or [state]) if not member[BlockRecord.ended]]
    lanes = list(waiting_lanes(launch, stuck))
    graph = WaitGraph(launch, lanes)
    counts = Counter((graph.line(lane), lane.reason) for lane in lanes)
    waits = "; ".join(
        f"{count} thread{'s wait' if count != 1 else ' waits'} "
        f"{_AWAITED.get(reason, f'at barrier {reason}')}, {_line(launch, line)}"
        for (line, reason), count in sorted(counts.items())
    )
    lacking, short = lacking_barriers(graph), short_barriers(graph)
    circle = first_of_circle(graph, lacking)
    lacking = sorted(lacking, key=lambda lack: lack != circle)
    words = [lack_in_words(graph, lack) for lack in lacking[:_MOST_NAMED]]
    known = words[: len([lack for lack in lacking[:_MOST_NAMED] if lack.is_cause])]
    known = [*map(str, short), *known] if not _leads(lacking) else [*known, *map(str, short)]
    known = known or words[: circle is not None]
    missing = "".join(f"; {sentence}" for sentence in words if sentence not in known)
    missing += _columns_in_words(lanes) + ("" if lacking else _absent_in_words(graph))
    exited = _exited(launch, stuck)
    where = (
        f"block {stuck[0].ctaid}" if len(stuck) == 1 else f"blocks {', '.join(str(b.ctaid) for b in stuck)}"
    )
    cause = _cause(graph, lacking, short)
    first = graph.line(cause) if cause else min((line for line, _ in counts), default=0)
    message = f"deadlock in {where}: {'; '.join((*known, waits))}{missing}{exited}"
    return f"{message}\n{MEND}{_mend(graph, lacking, short)}", "deadlock", first


def _leads(lacking: list[LackingBarrier]) -> bool:
    """Return whether the first mbarrier is more likely the cause than a barrier that threads are short of."""
    return bool(lacking) and lacking[0].is_certain


def _absent_in_words(graph: WaitGraph) -> str:
    """Return which of the threads that wait never come to a barrier of all threads of their block."""
    parts = []
    for awaited, there in graph.waiters.items():
        op = graph.instruction(there[0])
        if awaited.reason >= NAMED_BARRIERS or op is None or len(op.operands) > 1:
            continue
        absent = [
            abi.LANES * lane.warp + lane.lane
            for other, lanes in graph.waiters.items()
            if other.home == awaited.home and other.reason < NAMED_BARRIERS and other != awaited
            for lane in lanes
            if awaited not in graph.comes_to(lane)
        ]
        if absent:
            threads = (
                f"thread {absent[0]} never comes"
                if len(absent) == 1
                else f"threads {_ranges(absent)} never come"
            )
            parts.append(f"; {threads} to barrier {awaited.number}")
    return "".join(parts)


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers in words, such as "0 to 31, 64 to 95"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [f"{first} to {last}" if first != last else str(first) for first, last in runs]
    more = " and others" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more


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


def _mend(graph: WaitGraph, lacking: list[LackingBarrier], short: list[ShortBarrier]) -> str:
    """Return what ends a deadlock: what its first mbarrier lacks, or threads at another barrier."""
    # Lanes that wait for one of their warp which waits for a phase go on when the phase is complete.
    at_phase = {(lane.block.ctaid, lane.warp) for lane in graph.lanes if lane.reason == abi.WAITS_FOR_PHASE}
    reasons = {
        lane.reason
        for lane in graph.lanes
        if lane.reason != abi.WAITS_FOR_SIBLINGS or (lane.block.ctaid, lane.warp) not in at_phase
    }
    if abi.WAITS_FOR_SIBLINGS in reasons:
        return "move the instruction out of the branch, so that all lanes of its warp come to it"
    if short and not _leads(lacking):
        number, count, come, _, crossed = short[0]
        if crossed:
            others = " and ".join(map(str, crossed))
            return (
                f"let {count - come} threads arrive at barrier {number} first (bar.arrive), or all come to "
                f"barriers {number} and {others} in one order: its threads and those of barrier {others} "
                "wait for each other"
            )
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
    circle = first_of_circle(graph, lacking)
    if circle is not None:
        return (
            f"wait for parity 1 of {_short(circle)} in the first round, and then for 0, 1, 0, …: it waits "
            "for what comes after it, and the phase before the first one counts as complete"
        )
    if not lacking[0].is_cause and lacking[0].release is Release.CIRCLE:
        return _mend_of_circle(graph, lacking)
    return _mend_of_phase(graph, lacking[0])


def _short(barrier: LackingBarrier) -> str:
    """Return the name of an mbarrier, such as "full[0]"."""
    return barrier.name.removeprefix("shared variable ")


def _mend_of_circle(graph: WaitGraph, lacking: list[LackingBarrier]) -> str:
    """Return what to look at where threads wait for each other, and nothing tells which of them is wrong."""
    names = {barrier.awaited: _short(barrier) for barrier in lacking}
    parts = []
    for barrier in [barrier for barrier in lacking if barrier.release is Release.CIRCLE][:_MOST_NAMED]:
        others = sorted(graph.releases[barrier.awaited])
        waits = [
            f"for {names[other]}"
            if other in names
            else _AWAITED.get(other.reason, f"at barrier {other.number}")
            for other in others
        ]
        lines = _lines(graph.launch, graph.senders(barrier.offset)[0])
        parts.append(
            f"{names[barrier.awaited]} is released at {lines}, by threads that wait {' or '.join(waits)}"
        )
    compare = ", and compare the stages and parities of these waits" if len(names) > 1 else ""
    return f"find out which of these must come first{compare}: {'; '.join(parts)}"


def _mend_of_phase(graph: WaitGraph, first: LackingBarrier) -> str:
    """Return what completes the phase of an mbarrier."""
    launch, phase, name = graph.launch, first.phase, _short(first)
    arrivals, copies = (_lines(launch, ops) for ops in graph.senders(first.offset))
    if first.is_told_to_first_block:
        return _mend_of_pair(graph, first, name)
    strays = [(rank, there) for rank, there in first.elsewhere if there.bytes < 0 < phase.bytes]
    if strays:
        rank, there = strays[0]
        return (
            f"let the copies of the block of rank {rank} tell {name} of their bytes, by its address in that "
            f"block (mapa): {-there.bytes} bytes came to their own mbarrier (copies: {copies})"
        )
    come_elsewhere = [
        (rank, there.expected - there.pending)
        for rank, there in first.elsewhere
        if 0 < phase.pending < phase.expected and 0 < there.pending < there.expected
    ]
    if come_elsewhere:
        rank, come = come_elsewhere[0]
        return (
            f"let the threads of the block of rank {rank} arrive at {name}, by its address in that block "
            f"(mapa): {come} arrivals came to their own mbarrier (arrivals: {arrivals})"
        )
    if first.is_overrun_at_once:
        return f"initialise {name} with the number of threads that arrive, or let {phase.expected} of them do"
    if first.is_overrun or first.is_missed:
        return _mend_of_overrun(graph, first, name, arrivals)
    if phase.pending:
        return _mend_of_arrivals(graph, first, name, arrivals)
    if phase.bytes > 0:
        issue = f"issue the copies that bring the other {phase.bytes} bytes (copies: {copies})"
        if launch.shape.cluster_blocks > 1:
            return (
                f"{issue}: those of other blocks, too, which name this mbarrier by mapa or this block in "
                "their mask"
            )
        fewer = f"announce what the copies bring: {phase.bytes} bytes fewer in expect_tx of {name}"
        return f"{issue}, or {fewer}"
    if phase.bytes:
        more = _surplus_of_phase(graph, first)
        if not more:
            return f"announce in expect_tx of {name} as many bytes as the copies of one phase bring: {copies}"
        return f"announce what the copies bring: {more} bytes more in expect_tx of {name}"
    return f"wait for the parity of the phase that {name} is in: it changes with each phase, 0, 1, 0, …"


def _mend_of_overrun(graph: WaitGraph, first: LackingBarrier, name: str, arrivals: str) -> str:
    """Return what lets threads see each phase of an mbarrier: the parity of their wait, or its count."""
    phase = first.phase
    fewer = (
        f"initialise {name} with the number of arrivals of a phase, or let no more than {phase.expected} "
        f"come ({arrivals})"
    )
    if first.is_overrun:
        return (
            f"{fewer}; if the same threads arrive in two rounds, a wait is missing there or passes too early"
        )
    other = (
        f"wait for parity {1 - phase.parity} of {name}, if the phase is meant that is complete: the first "
        "phase has parity 0, the next one 1, and so on"
    )
    if _has_more_senders(graph, first):
        return f"{fewer}; or {other}"
    return f"{other}; or let {phase.pending} arrive once more" if phase.pending else other


def _has_more_senders(graph: WaitGraph, barrier: LackingBarrier) -> bool:
    """Return whether more instructions of the source arrive at an mbarrier than it expects arrivals."""
    arrivals = graph.senders(barrier.offset)[0]
    # Of a loop that was unrolled, each counts once.
    written = {(op.opcode, op.modifiers, _lines(graph.launch, [op])) for op in arrivals}
    return len(written) > barrier.phase.expected


def _mend_of_arrivals(graph: WaitGraph, first: LackingBarrier, name: str, arrivals: str) -> str:
    """Return what completes a phase that lacks arrivals."""
    phase = first.phase
    if not graph.senders(first.offset)[0]:
        return f"let {phase.pending} arrive at {name} in each phase: no instruction of the kernel does"
    if phase.is_untouched and phase.before is not Before.NONE:
        nobody = first.release is Release.NOBODY
        lines = f"{arrivals}, where no thread that waits comes any more" if nobody else arrivals
        mend = f"let {phase.pending} arrive at {name} once more ({lines}), or wait for it once less"
        missed = (
            "; if these threads missed a phase while others went on, let all meet at a barrier in each round"
        )
        return mend + missed if len(graph.waiters) == 1 else mend
    come = phase.expected - phase.pending
    fewer = f", or initialise {name} with {come}" if come else ""
    if come and graph.launch.shape.cluster_blocks > 1:
        fewer += ", if no other block uses what it guards"
    return f"let {phase.pending} more arrive at {name} in each phase ({arrivals}){fewer}"


def _surplus_of_phase(graph: WaitGraph, barrier: LackingBarrier) -> int:
    """Return how many bytes more than announced come in one phase of an mbarrier; 0 if that is not known.

    What has come is of all phases. Blocks keep the bytes that had come to the first mbarrier which had more
    than were announced, when it was told of more.
    """
    total = -barrier.phase.bytes
    if barrier.phase.before is Before.NONE:
        return total
    array = barrier.name.split("[")[0].split(" of the block")[0]
    members = [barrier.lane.block.member(rank) for rank in range(graph.launch.shape.cluster_blocks)]
    for record in members:
        surplus, host = (
            int(record[note // 8]) for note in (BlockRecord.surplus, BlockRecord.surplus_barrier)
        )
        if not surplus or total % surplus:
            continue
        for home in members:
            offset = host - int(home[BlockRecord.shared // 8])
            in_block = 0 <= offset < graph.launch.shared_limit
            if in_block and shared_name(graph.launch, offset, MBARRIER_BYTES).split("[")[0] == array:
                return surplus
    return 0


def _mend_of_pair(graph: WaitGraph, barrier: LackingBarrier, name: str) -> str:
    """Return what ends the wait of a pair's second block for what comes to the first block alone."""
    launch, (arrivals, _) = graph.launch, graph.senders(barrier.offset)
    commits = [op for op in arrivals if op.record.touches_tensor_memory]
    if commits:
        where = _lines(launch, commits)
        return (
            f"let the commit tell both blocks of the pair: .multicast::cluster with a mask of both ({where})"
        )
    products = [op for op in launch.compiled.program.sites if op.record.multiplies and op.has("cta_group::2")]
    issue = f" and issue what follows ({_lines(launch, products)})" if products else ""
    variable, _, _ = name.partition(" of the block")
    return (
        f"let the first block of the pair (even rank) alone wait for its {variable}{issue}: the mbarrier of "
        "that block counts what arrives and what the copies bring"
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
    graph = WaitGraph(launch, lanes)
    return _cause(graph, lacking_barriers(graph), short_barriers(graph))


def _cause(graph: WaitGraph, lacking: list[LackingBarrier], short: list[ShortBarrier]) -> WaitingLane | None:
    if short and not _leads(lacking):
        return short[0].lane
    circle = first_of_circle(graph, lacking)
    if circle is not None:
        return circle.lane
    return lacking[0].lane if lacking and lacking[0].is_cause else None


def first_of_circle(graph: WaitGraph, lacking: list[LackingBarrier]) -> LackingBarrier | None:
    """Return the mbarrier that lanes wait for before they copy, if nothing has come to any mbarrier yet.

    Those who wait for the copies arrive at it: each waits for the other.
    """
    fresh = all(barrier.phase.is_fresh for barrier in lacking)
    if not fresh or _leads(lacking) or len({barrier.offset for barrier in lacking}) < 2:
        return None
    for barrier in lacking:
        arrivals, _ = graph.senders(barrier.offset)
        others = [other for other in lacking if other.offset != barrier.offset]
        copies = any(op.has("mbarrier::complete_tx::bytes") for op in graph.coming(barrier.lane))
        freed = any(op in graph.coming(other.lane) for other in others for op in arrivals)
        if copies and freed:
            return barrier
    return None


def short_barriers(graph: WaitGraph) -> list[ShortBarrier]:
    """Return the named barriers that lack threads, and that no lane which waits elsewhere can come to.

    If there is none: those whose threads wait for each other at barriers of the block, and for nothing else.
    """
    short, crossed = [], []
    for awaited, there in graph.waiters.items():
        op = graph.instruction(there[0]) if awaited.reason < NAMED_BARRIERS else None
        if op is None or len(op.operands) != 2:  # one of all threads, or one that counts a predicate
            continue
        number, first = awaited.number, there[0]
        count = value_in_lane(first.block, op.operands[1], first.warp, first.lane)
        come = len(there) + there[0].block[BlockRecord.arrived + 8 * number]
        behind = graph.behind(awaited) - {awaited}
        if come >= count:
            continue
        if not behind:
            short.append(ShortBarrier(number, count, come, there[0]))
        elif graph.is_root(awaited) and all(other.reason < NAMED_BARRIERS for other in behind):
            others = tuple(sorted(other.number for other in behind))
            crossed.append(ShortBarrier(number, count, come, there[0], others))
    return short or crossed


def lacking_barriers(graph: WaitGraph) -> list[LackingBarrier]:
    """Return the mbarriers that lanes wait for, each once: the likeliest cause of a deadlock first."""
    launch = graph.launch
    pairs = any(op.has("cta_group::2") for op in launch.compiled.program.sites)
    blocks = launch.shape.cluster_blocks
    lacking = []
    for awaited, lanes in graph.waiters.items():
        if awaited.reason != abi.WAITS_FOR_PHASE:
            continue
        waiting, (_, rank, offset) = lanes[0], awaited
        phase = _phase(waiting.block, rank, offset)
        if phase is None:
            continue
        name = shared_name(launch, offset, MBARRIER_BYTES)
        name += f" of the block of rank {rank}" if blocks > 1 else ""
        first = _phase(waiting.block, rank - 1, offset) if pairs and rank % 2 else None
        others = (
            (other, _phase(waiting.block, other, offset))
            for other in range(blocks)
            if other != rank and awaited._replace(home=other) not in graph.waiters
        )
        elsewhere = tuple((other, there) for other, there in others if there is not None)
        members = [waiting.block.member(other) for other in range(blocks)]
        host = int(members[rank][BlockRecord.shared // 8]) + offset
        overrun, at_once = (
            any(int(record[note // 8]) == host for record in members)
            for note in (BlockRecord.overrun, BlockRecord.overrun_at_once)
        )
        copies = set(graph.senders(offset)[1])
        copies_wait = any(
            lane.block[BlockRecord.rank] != rank and copies & graph.coming(lane)
            for other, lanes in graph.waiters.items()
            if other != awaited
            for lane in lanes[:1]
        )
        barrier = LackingBarrier(
            name, offset, phase, waiting, awaited, _release(graph, awaited), copies_wait, overrun, at_once,
            first, elsewhere,
        )  # fmt: skip
        lacking.append(barrier)
    return sorted(lacking, key=lambda barrier: (barrier.suspicion, barrier.release.value))


def _release(graph: WaitGraph, awaited: Awaited) -> Release:
    """Return who would release what is awaited."""
    if not graph.releases[awaited]:
        return Release.NOBODY
    return Release.CIRCLE if graph.is_root(awaited) else Release.OTHERS


def _phase(block: BlockState, rank: int, offset: int) -> Phase | None:
    """Return the phase of an mbarrier of a block of the cluster; None beyond its shared memory."""
    word = block.shared_bytes_at(rank << abi.RANK_SHIFT | offset, MBARRIER_BYTES)
    return Phase.of(int.from_bytes(word, "little")) if len(word) == MBARRIER_BYTES else None


def lack_in_words(graph: WaitGraph, barrier: LackingBarrier) -> str:
    """Return what an mbarrier lacks, and which instructions could have sent it."""
    launch, phase = graph.launch, barrier.phase
    arrivals, copies = graph.senders(barrier.offset)
    if barrier.is_overrun_at_once:
        return (
            f"the mbarrier at {barrier.name} got more arrivals in one instruction than the {phase.expected} "
            "that it was initialised for, and so completed several phases at once"
        )
    too_many = (
        f"more threads arrive than the {phase.expected} that it was initialised for, or a wait is missing"
    )
    if barrier.is_overrun:
        return (
            f"the mbarrier at {barrier.name} completed a phase before any thread had seen that the phase "
            f"before is complete: {too_many} (arrivals come from {_lines(launch, arrivals)})"
        )
    sent = []
    if phase.pending:
        sent.append(f"arrivals come from {_lines(launch, arrivals)}")
    if phase.bytes > 0:
        sent.append(f"bytes come from {_lines(launch, copies)}")
    if phase.bytes < 0:
        sent.append(f"expect_tx comes from {_lines(launch, arrivals)}")
    senders_named = f" ({', '.join(sent)})" if sent else ""
    which = f" in its phase of parity {phase.parity}" if phase.is_untouched else ""
    missed = ""
    if barrier.is_missed:
        missed = f", and no thread has seen that its phase of parity {1 - phase.parity} is complete"
        missed += f": {too_many}" if _has_more_senders(graph, barrier) else ""
    return f"the mbarrier at {barrier.name} lacks {phase}{which}{senders_named}{missed}"


def _lines(launch: LaunchState, ops: list[Op]) -> str:
    """Return the lines of instructions, each once; "nowhere in the kernel" if there is none."""
    module = launch.compiled.module
    places = [
        short_place(source_line(module, op.loc)) if op.loc is not None else f"line {op.line}" for op in ops
    ]
    lines = list(dict.fromkeys(places))
    more = f" and {len(lines) - _MOST_NAMED} more lines" if len(lines) > _MOST_NAMED else ""
    return (", ".join(lines[:_MOST_NAMED]) + more) if lines else "nowhere in the kernel"
