"""What mends a finding: which barrier or fence, as the kernel's language writes it, between which lines.

A barrier is proposed where the control flow lacks one: on the ways from one access to the other, and back to
the first one in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property

from lanewise.machine.checker.site_table import by_async_proxy
from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import Order, Role, Size, Waits
from lanewise.machine.program.ops import Op
from lanewise.ptx import Module


class Language(Enum):
    """The language that a kernel is written in, as far as its PTX says it."""

    CPLUSPLUS = 0
    PYTHON = 1
    PTX = 2
    #: Triton, Numba or another language in Python.
    OTHER_PYTHON = 3

    @classmethod
    def of(cls, module: Module, source: str | None) -> Language:
        """Return the language of a line of a module; that of no line is PTX."""
        if module.names is not None:
            return cls.PYTHON
        if source is None:
            return cls.PTX
        return cls.OTHER_PYTHON if source.rpartition(":")[0].endswith(".py") else cls.CPLUSPLUS


def _in_ptx(instruction: str, in_python: str) -> tuple[str, str, str]:
    """Return an instruction that CUDA C++ writes as PTX does, and how the Python language writes it."""
    return instruction, in_python, instruction


#: What each language calls the instructions that mends propose: CUDA C++, Python, PTX.
SPELLINGS = {
    "block_barrier": ("__syncthreads()", "lw.syncthreads()", "bar.sync 0"),
    "named_barrier": _in_ptx("bar.sync id, threads", "lw.barrier(id, threads)"),
    "warp_barrier": ("__syncwarp()", "lw.syncwarp()", "bar.warp.sync 0xffffffff"),
    "cluster_barrier": (
        "cluster.sync()",
        "lw.cluster.sync()",
        "barrier.cluster.arrive; barrier.cluster.wait",
    ),
    "cluster_wait": _in_ptx("barrier.cluster.wait", "lw.cluster.wait()"),
    "atomic": ("atomicAdd", "lw.atomic_add", "atom.add"),
    "fence": ("__threadfence()", "lw.fence()", "fence.acq_rel.gpu"),
    "proxy_fence": _in_ptx("fence.proxy.async", "lw.fence_proxy_async()"),
    "init_fence": ("fence.mbarrier_init", "lw.fence_mbarrier_init()", "fence.mbarrier_init.release.cluster"),
    "copy_wait": _in_ptx("cp.async.wait_all", "lw.cp_async_wait()"),
    "bulk_wait": _in_ptx("cp.async.bulk.wait_group 0", "lw.tma.wait()"),
    "bulk_wait_read": _in_ptx("cp.async.bulk.wait_group.read 0", "lw.tma.wait(read=True)"),
    "wgmma_fence": ("wgmma.fence", "lw.wgmma_fence()", "wgmma.fence.sync.aligned"),
    "wgmma_commit": ("wgmma.commit_group", "lw.wgmma_commit()", "wgmma.commit_group.sync.aligned"),
    "wgmma_wait": ("wgmma.wait_group 0", "lw.wgmma_wait()", "wgmma.wait_group.sync.aligned 0"),
    "tensor_wait_ld": _in_ptx("tcgen05.wait::ld.sync.aligned", "lw.tcgen05.wait_load()"),
    "tensor_wait_st": _in_ptx("tcgen05.wait::st.sync.aligned", "lw.tcgen05.wait_store()"),
    "tensor_before": _in_ptx("tcgen05.fence::before_thread_sync", "lw.tcgen05.fence_before()"),
    "tensor_after": _in_ptx("tcgen05.fence::after_thread_sync", "lw.tcgen05.fence_after()"),
    "tensor_commit": _in_ptx("tcgen05.commit", "lw.tcgen05.commit"),
    "one_lane": _in_ptx("elect.sync", "if lw.elect_one():"),
    "tensor_dealloc": _in_ptx("tcgen05.dealloc", "memory.free()"),
    "tensor_products": _in_ptx("tcgen05.mma", "a product"),
    "tensor_stores": _in_ptx("tcgen05.st", "store"),
    "tensor_copies": _in_ptx("tcgen05.cp", "lw.tcgen05.copy"),
    "bound": ("if (i < n)", "if i < n:", "setp.lt.u32 %p, i, n; @%p …"),
    "is_canceled": _in_ptx("clusterlaunchcontrol.query_cancel.is_canceled", "answer.read()[0]"),
}


#: The same in other languages in Python, where they have it; else it is that of PTX.
_OTHER_PYTHON = {
    "block_barrier": "`tl.debug_barrier()` (Triton) or `cuda.syncthreads()` (Numba)",
    "atomic": "`tl.atomic_add` (Triton) or `cuda.atomic.add` (Numba)",
    "fence": "`cuda.threadfence()` (Numba)",
    "bound": "`mask=i < n` (Triton) or `if i < n:` (Numba)",
}


def spelled(name: str, language: Language) -> str:
    """Return an instruction as a language writes it, between backquotes."""
    if language is Language.OTHER_PYTHON:
        return _OTHER_PYTHON.get(name) or spelled(name, Language.PTX)
    return f"`{SPELLINGS[name][language.value]}`"


@dataclass(frozen=True)
class Place:
    """Where an instruction stands: the line of the source, or that of the PTX if there is none."""

    op: Op
    source: str | None

    @property
    def file(self) -> str:
        """The file of the line; empty for PTX."""
        return self.source.rpartition(":")[0] if self.source else ""

    @property
    def line(self) -> int:
        """The number of the line in its file."""
        return int(self.source.rpartition(":")[2]) if self.source else self.op.line

    def is_on_line_of(self, other: Place) -> bool:
        """Return whether two instructions are of the same line."""
        return (self.file, self.line) == (other.file, other.line)

    def named(self, beside: Place | None = None) -> str:
        """Return "line 12"; with its file, if that is not the one of a line beside it."""
        if beside is None or beside.file == self.file or not self.source:
            return f"line {self.line}"
        return self.source


# the control flow -------------------------------------------------------------------------------------------


class ControlFlow:
    """The ways from one instruction of a kernel to another."""

    def __init__(self, blocks: list[BasicBlock]) -> None:
        self._blocks = blocks

    @cached_property
    def _places(self) -> dict[int, tuple[BasicBlock, int]]:
        """The basic block of each instruction by its site, and its position there."""
        return {
            op.site: (block, number) for block in self._blocks for number, op in enumerate(block.executed)
        }

    def is_before(self, one: Op, other: Op) -> bool:
        """Return whether an instruction comes before another one in the order of the kernel."""
        first, second = (self._places.get(op.site) for op in (one, other))
        if first is None or second is None:
            return one.site < other.site
        return (first[0].number, first[1]) < (second[0].number, second[1])

    def leads(self, one: Op, other: Op, closes: Callable[[Op], bool]) -> bool:
        """Return whether a way leads from an instruction to another, past none that closes it."""
        start = self._places.get(one.site)
        if start is None or other.site not in self._places:
            return self.is_before(one, other)
        pending, seen = [(start[0], start[1] + 1)], set()
        while pending:
            block, first = pending.pop()
            for op in block.executed[first:]:
                if op.site == other.site:
                    return True
                if closes(op):
                    break
            else:
                following = [successor for successor in successors(block) if successor.number not in seen]
                seen |= {successor.number for successor in following}
                pending += [(successor, 0) for successor in following]
        return False

    def between(self, one: Op, other: Op, chosen: Callable[[Op], bool]) -> list[Op]:
        """Return the instructions of a choice to which a way leads from one, and from them to the other."""
        return [op for op in self.after(one, chosen, never) if self.leads(op, other, never)]

    def after(self, one: Op, chosen: Callable[[Op], bool], closes: Callable[[Op], bool]) -> list[Op]:
        """Return the instructions of a choice to which a way leads from one, past none that closes it."""
        candidates = [op for block in self._blocks for op in block.executed if chosen(op)]
        return [op for op in candidates if self.leads(one, op, closes)]

    def is_avoided(self, one: Op, other: Op) -> bool:
        """Return whether threads come from one instruction to it again, or to the end, without another."""
        place = self._places.get(other.site)
        if other.guard is not None or place is None:
            return other.guard is not None
        start = self._places[one.site][0]
        return _leads_past(start, place[0], lambda following: not following or start in following)

    @cached_property
    def has_mbarriers(self) -> bool:
        """Whether threads arrive at mbarriers."""
        return any(arrives_at_mbarrier(op) for block in self._blocks for op in block.executed)

    def is_of_other_threads(self, one: Op, other: Op) -> bool:
        """Return whether no thread comes from one of two instructions to the other: each has a branch."""
        places = (self._places.get(op.site) for op in (one, other))
        return None not in places and not self.leads(one, other, never) and not self.leads(other, one, never)

    def all_come_by(self, one: Op, other: Op) -> bool:
        """Return whether the ways from one instruction to another pass a place that no thread avoids."""
        conditional = self.is_conditional
        ways = [
            block.executed[0]
            for block in self._blocks
            if block.executed and not conditional(block.executed[0])
        ]
        return any(
            self.leads(first, op, never) and self.leads(op, second, never)
            for op in ways
            for first, second in ((one, other), (other, one))
        )

    def is_copied(self, op: Op) -> bool:
        """Return whether the compiler has made copies of an instruction, as of the body of a loop."""
        return len(self._copies[_origin(op)]) > 1

    @cached_property
    def _copies(self) -> dict[tuple[object, str], list[int]]:
        """The sites of each instruction of each line of the source, in the order of the kernel."""
        copies: dict[tuple[object, str], list[int]] = {}
        for block in self._blocks:
            for op in block.executed:
                copies.setdefault(_origin(op), []).append(op.site)
        return copies

    def are_of_one_iteration(self, one: Op, other: Op) -> bool:
        """Return whether two instructions are of the same iteration of a loop that was unrolled.

        An iteration begins where copies of what stands first come after copies of what stands behind it.
        """
        first, second = self._copies[_origin(one)], self._copies[_origin(other)]
        if first is second:
            return one.site == other.site
        first, second = sorted((first, second), key=lambda copies: self._order[copies[0]])
        number, before, numbers = 0, one.site, {}
        for site in sorted((*first, *second), key=self._order.__getitem__):
            number += before in second and site in first
            numbers[site], before = number, site
        return numbers[one.site] == numbers[other.site]

    def are_of_two_loops(self, one: Op, other: Op) -> bool:
        """Return whether all copies of an instruction come before those of another: no loop has both."""
        first, second = self._copies[_origin(one)], self._copies[_origin(other)]
        return len(first) > 1 and len(second) > 1 and self._order[first[-1]] < self._order[second[0]]

    @cached_property
    def _order(self) -> dict[int, int]:
        """The position of each instruction in the kernel, by its site."""
        ordered = (op.site for block in self._blocks for op in block.executed)
        return {site: number for number, site in enumerate(ordered)}

    def are_of_one_branch(self, one: Op, other: Op) -> bool:
        """Return whether two instructions, and so all between them, are in one block that some skip."""
        first, second = (self._places.get(op.site) for op in (one, other))
        if first is None or second is None or first[0] is not second[0]:
            return False
        return self.is_conditional(one)

    def is_conditional(self, op: Op) -> bool:
        """Return whether threads may come to the end of the function without this instruction."""
        place = self._places.get(op.site)
        if op.guard is not None or place is None:
            return op.guard is not None
        avoided = place[0]
        first = next(block for block in self._blocks if block.is_first and block.body is avoided.body)
        return _leads_past(first, avoided, lambda following: not following)


def _leads_past(start: BasicBlock, avoided: BasicBlock, ends: Callable[[list[BasicBlock]], bool]) -> bool:
    """Return whether a way leads from a basic block past an avoided one, to where the followers end it."""
    pending, seen = [start] if start is not avoided else [], {avoided.number}
    while pending:
        following = successors(pending.pop())
        if ends(following):
            return True
        fresh = [successor for successor in following if successor.number not in seen]
        seen |= {successor.number for successor in fresh}
        pending += fresh
    return False


def never(op: Op) -> bool:
    """Return whether an instruction closes a way, where none does."""
    return False


def _origin(op: Op) -> tuple[object, str]:
    """Return what the copies of an instruction that the compiler made have in common."""
    return op.loc.place if op.loc is not None else op.line, op.head


def is_block_barrier(op: Op) -> bool:
    """Return whether all threads of the block wait at an instruction: a barrier with no count of threads."""
    operands = len(op.operands) - 2 * (op.record.role(0) is Role.DEFINED)
    return op.record.waits is Waits.BARRIER and not op.has("arrive") and operands <= 1


def is_named_barrier(op: Op) -> bool:
    """Return whether some threads of the block wait at an instruction: a barrier with a count of threads."""
    return op.record.waits is Waits.BARRIER and not op.has("arrive") and not is_block_barrier(op)


def is_relaxed_arrival(op: Op) -> bool:
    """Return whether threads arrive at the barrier of the cluster without a release."""
    return op.record.orders is Order.CLUSTER_ARRIVAL and op.has("relaxed")


def arrives_at_mbarrier(op: Op) -> bool:
    """Return whether a thread arrives at an mbarrier."""
    return any(access.size is Size.MBARRIER and access.releases for access in op.record.memory)


def is_warp_barrier(op: Op) -> bool:
    """Return whether the lanes of a warp synchronise at an instruction."""
    return is_block_barrier(op) or op.record.roles == (Role.MEMBERS,)


def is_cluster_barrier(op: Op) -> bool:
    """Return whether all threads of the cluster wait at an instruction."""
    return op.record.waits is Waits.CLUSTER


def is_any_barrier(op: Op) -> bool:
    """Return whether all threads of the block or of the cluster wait at an instruction."""
    return is_block_barrier(op) or is_cluster_barrier(op)


# races ------------------------------------------------------------------------------------------------------


class Reach(IntEnum):
    """How far two threads are apart: what orders them has to reach as far."""

    THREAD = 0
    WARP = 1
    BLOCK = 2
    CLUSTER = 3
    GRID = 4


#: For each reach: the barrier in SPELLINGS, which instructions are one, and who comes to it.
_BARRIERS: dict[Reach, tuple[str, Callable[[Op], bool], str]] = {
    Reach.THREAD: ("warp_barrier", is_warp_barrier, "all lanes of the warp"),
    Reach.WARP: ("warp_barrier", is_warp_barrier, "all lanes of the warp"),
    Reach.BLOCK: ("block_barrier", is_block_barrier, "all threads of the block"),
    Reach.CLUSTER: ("cluster_barrier", is_cluster_barrier, "all threads of the cluster"),
}


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders: where they stand, which of them write, how far apart threads are."""

    flow: ControlFlow
    one: Place
    other: Place
    one_writes: bool
    other_writes: bool
    reach: Reach
    language: Language
    #: The line of the source of an instruction.
    source_of: Callable[[Op], str | None]

    def of_source(self, op: Op) -> Place:
        """Return where an instruction stands."""
        return Place(op, self.source_of(op))

    @property
    def relaxed_arrivals(self) -> list[str]:
        """The lines between the two accesses where threads arrive at the cluster's barrier, relaxed.

        None if a way between them has no barrier of the cluster at all.
        """
        first, second = self.one, self.other
        if not self.flow.is_before(first.op, second.op):
            first, second = second, first
        if _gaps(self, is_cluster_barrier):
            return []
        arrivals = self.flow.between(first.op, second.op, is_relaxed_arrival)
        return [self.of_source(op).named() for op in arrivals]

    @property
    def is_of_roles(self) -> bool:
        """Whether the two accesses are of warps in different branches, which mbarriers order."""
        apart = not self.one.is_on_line_of(self.other)
        return apart and self.flow.has_mbarriers and self.flow.is_of_other_threads(self.one.op, self.other.op)

    @property
    def both_write(self) -> bool:
        """Whether both accesses write."""
        return self.one_writes and self.other_writes

    @property
    def has_copy(self) -> bool:
        """Whether one of them is a copy or a product by the asynchronous proxy, which no atomic replaces."""
        return any(by_async_proxy(place.op) for place in (self.one, self.other))

    @property
    def plain_write(self) -> Place | None:
        """The one that writes and is not atomic, if the other one is."""
        for place, writes, atomic in (
            (self.one, self.one_writes, self.other),
            (self.other, self.other_writes, self.one),
        ):
            if writes and atomic.op.record.is_atomic and not place.op.record.is_atomic:
                return place
        return None

    @property
    def initialised(self) -> Place | None:
        """The one that is mbarrier.init, if the other one comes behind a barrier of the cluster alone."""
        for made, used in ((self.one, self.other), (self.other, self.one)):
            if made.op.record.makes_mbarrier and made.op.has("init") and not used.op.record.makes_mbarrier:
                ways = ((made.op, used.op), (used.op, made.op))
                unordered = any(self.flow.leads(first, second, is_any_barrier) for first, second in ways)
                by_cluster = self.flow.leads(made.op, used.op, is_block_barrier)
                return made if by_cluster and not unordered else None
        return None

    @property
    def spins(self) -> bool:
        """Whether one of them exchanges a value in a loop, as a lock is taken."""
        return any(
            place.op.record.is_atomic
            and (place.op.has("cas") or place.op.has("exch"))
            and self.flow.leads(place.op, place.op, never)
            for place in (self.one, self.other)
        )


def reach_farther(races: Sequence[Race], than: Sequence[Race]) -> bool:
    """Return whether the threads of some races are farther apart than those of others, if there are any."""
    return bool(than) and any(race.reach > max(other.reach for other in than) for race in races)


def race_mend(races: Sequence[Race]) -> str:
    """Return what orders the two accesses of a race; several races of the same two lines are one mistake."""
    reach = max(race.reach for race in races)
    first, *_ = (race for race in races if race.reach == reach)
    language = first.language
    if (initialised := first.initialised) is not None:
        fence, line = spelled("init_fence", language), initialised.named()
        return (
            f"{fence} after {line}, in the thread that initialises the mbarrier, before the cluster's barrier"
        )
    if reach is Reach.GRID:
        return _between_blocks(first, language)
    if reach is Reach.CLUSTER and (arrivals := first.relaxed_arrivals):
        lines = " and ".join(dict.fromkeys(arrivals))
        return f"arrive with `.release` in place of `.relaxed` at the cluster's barrier ({lines})"
    if reach is Reach.BLOCK and first.is_of_roles:
        return _between_roles(first)
    if reach is Reach.BLOCK and (named := named_barrier(first.flow, first.one, first.other)):
        return _among_some(first, named)
    plain = first.plain_write
    if plain is not None and first.spins:
        return f"make the access of {plain.named()} atomic, too"
    gaps: dict[str, str] = {}
    for race in races:
        for gap in _gaps(race, _BARRIERS[reach][1]):
            gaps.setdefault(gap.split(", ")[0], gap)  # what stands after a line is before all that follows
    barrier, everybody = spelled(_BARRIERS[reach][0], language), _BARRIERS[reach][2]
    if not gaps:
        return _without_a_gap(first, barrier, everybody, language)
    conditional = any(race.flow.is_conditional(op) for race in races for op in (race.one.op, race.other.op))
    where = ""
    if conditional:
        where = f", where {everybody} come by"
        of_loops = [gap for gap in gaps.values() if gap.endswith("comes again")]
        if of_loops:  # behind the branch, before the next iteration
            gaps = {gap: gap for gap in of_loops}
        elif reach <= Reach.WARP and all(
            race.flow.are_of_one_branch(race.one.op, race.other.op) for race in races
        ):
            where = ", with a mask of the lanes that come by"
    return f"{barrier} {' and '.join(gaps.values())}{where}{_or_atomic(first, language)}"


def named_barrier(flow: ControlFlow, one: Place, other: Place) -> Op | None:
    """Return a barrier of some threads near two accesses, if no place between is where all threads come by.

    So are kernels written whose warps have different tasks.
    """
    if flow.all_come_by(one.op, other.op):
        return None
    near = flow.between(other.op, one.op, is_named_barrier) + flow.between(one.op, other.op, is_named_barrier)
    return near[0] if near else None


def _among_some(race: Race, named: Op) -> str:
    """Return what orders two accesses of threads that have a named barrier of their own."""
    barrier = f"{spelled('named_barrier', race.language)} of the threads that come by"
    gaps = _gaps(race, lambda op: is_block_barrier(op) or is_named_barrier(op))
    if gaps:
        return f"{barrier} {' and '.join(gaps)}, as there is one at {race.of_source(named).named()}"
    one, other = race.one.named(race.other), race.other.named(race.one)
    return (
        f"give the threads of {one} memory of their own, or let them and those of {other} come to one named "
        f"barrier: the barriers between (such as {race.of_source(named).named()}) are of other threads"
    )


def _between_roles(race: Race) -> str:
    """Return what orders two accesses of threads in different branches: an mbarrier."""
    late, early = race.one, race.other
    flow, barrier = race.flow, spelled("warp_barrier", race.language)
    for arrival in flow.after(early.op, arrives_at_mbarrier, closes=is_warp_barrier):
        if not arrival.record.touches_tensor_memory and flow.is_avoided(early.op, arrival):
            place = race.of_source(arrival)
            if not place.is_on_line_of(early):
                return f"{barrier} {_gap(early, place)}, where one lane arrives for the others"
    return (
        f"let the threads of {early.named(late)} arrive at an mbarrier after it (one lane for a warp: "
        f"{barrier} first), and wait for that phase before {late.named(early)}"
    )


def _gaps(race: Race, closes: Callable[[Op], bool]) -> list[str]:
    """Return where a barrier is missing on the ways from one access to the other."""
    flow = race.flow
    first, second = race.one, race.other
    if not flow.is_before(first.op, second.op):
        first, second = second, first
    gaps = []
    if flow.leads(first.op, second.op, closes) and not _is_one_statement(race):
        together = (
            flow.are_of_one_iteration(first.op, second.op)
            or flow.are_of_two_loops(first.op, second.op)
            or first.line > second.line
        )
        gaps.append(_gap(first, second) if together else _gap(second, first))
    if flow.leads(second.op, first.op, closes):
        gaps.append(_gap(second, first))
    return gaps


def gap_before_copy(flow: ControlFlow, read: Place, copy: Place) -> str:
    """Return where a barrier is missing from a read to a later copy into what it reads; else nothing."""
    back = flow.leads(read.op, copy.op, is_block_barrier)
    return _gap(read, copy) if back and not flow.leads(copy.op, read.op, is_block_barrier) else ""


def _gap(first: Place, second: Place) -> str:
    """Return where something stands between two lines; in a loop, the second may come before the first."""
    if first.is_on_line_of(second):
        return f"after {first.named()}, before it comes again"
    if first.file == second.file and first.line > second.line:
        return f"after {first.named()}, before {second.named()} comes again"
    return f"between {first.named(second)} and {second.named(first)}"


def _is_one_statement(race: Race) -> bool:
    """Return whether both accesses are of one line in one iteration, so that nothing fits between."""
    writers = ((race.one, race.one_writes), (race.other, race.other_writes))
    copied = any(writes and race.flow.is_copied(place.op) for place, writes in writers)
    together = not copied or race.flow.are_of_one_iteration(race.one.op, race.other.op)
    return race.one.is_on_line_of(race.other) and together


def _or_atomic(race: Race, language: Language) -> str:
    """Return another mend: atomics, if the accesses may be updates of one element."""
    plain = race.plain_write
    if plain is not None:
        return f"; or make the access of {plain.named()} atomic, too"
    if not race.one.is_on_line_of(race.other) or race.has_copy:
        return ""
    return f"; or {spelled('atomic', language)}, if several threads update the same element"


def _beside_a_copy(race: Race, barrier: str) -> str:
    """Return what orders an access and a copy by the asynchronous proxy that stand in one line."""
    line = race.one.named()
    if race.flow.has_mbarriers and race.flow.is_of_other_threads(race.one.op, race.other.op):
        meet = spelled("warp_barrier", race.language)
        return (
            f"let all lanes that access memory in {line} arrive at the mbarrier that the copying thread "
            f"waits for, or {meet} before one of them arrives for all"
        )
    return f"{barrier} between the access and the copy of {line}"


def _without_a_gap(race: Race, barrier: str, everybody: str, language: Language) -> str:
    """Return what mends two accesses of one line, or two that have a barrier between them."""
    atomic = spelled("atomic", language)
    if race.one.is_on_line_of(race.other) and race.has_copy:
        return _beside_a_copy(race, barrier)
    if race.one.is_on_line_of(race.other) and race.both_write:
        return f"give each thread an element of its own, or add with {atomic}"
    if race.one.is_on_line_of(race.other):
        return (
            f"make {race.one.named()} one atomic operation ({atomic}); if its threads access different "
            f"elements, read into a register first, then {barrier}, then write"
        )
    one, other = race.one, race.other
    return (
        f"let {everybody} come to the barrier between {one.named(other)} and {other.named(one)}: some skip "
        "it, or it counts fewer threads"
    )


def _between_blocks(race: Race, language: Language) -> str:
    """Return what mends two accesses of blocks that no barrier orders."""
    one, other, atomic = race.one, race.other, spelled("atomic", language)
    if race.both_write or one.is_on_line_of(other):
        or_atomic = "" if race.has_copy else f", or use {atomic}"
        return f"give each block elements of its own{or_atomic}: no barrier orders two blocks"
    first, second = (one, other) if race.flow.is_before(one.op, other.op) else (other, one)
    return (
        "no barrier orders two blocks: write to another array than the one that is read, end the kernel "
        f"between {first.named(second)} and {second.named(first)} and go on in a second launch, or let them "
        f"wait for a flag ({spelled('fence', language)}, then an atomic store; an atomic load, then a fence)"
    )
