"""What mends a finding: which barrier or fence, as the kernel's language writes it, between which lines.

A barrier is proposed where the control flow lacks one: on the ways from one access to the other, and back to
the first one in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import Role, Waits
from lanewise.machine.program.ops import Op

if TYPE_CHECKING:
    from collections.abc import Callable


class Language(Enum):
    """The language that a kernel is written in, as far as its PTX says it."""

    CPLUSPLUS = 0
    PYTHON = 1
    PTX = 2

    @classmethod
    def of(cls, source: str | None) -> Language:
        """Return the language of a line, `kernel.cu:12`; that of no line is PTX."""
        if source is None:
            return cls.PTX
        name = source.rpartition(":")[0]
        is_python = name.endswith(".py") or name.startswith(("<", "cell In["))  # a prompt, a notebook
        return cls.PYTHON if is_python else cls.CPLUSPLUS


#: What each language calls the instructions that mends propose: CUDA C++, Python, PTX.
SPELLINGS = {
    "block_barrier": ("__syncthreads()", "lw.syncthreads()", "bar.sync 0"),
    "warp_barrier": ("__syncwarp()", "lw.syncwarp()", "bar.warp.sync 0xffffffff"),
    "cluster_barrier": (
        "cluster.sync()",
        "lw.cluster.sync()",
        "barrier.cluster.arrive; barrier.cluster.wait",
    ),
    "cluster_wait": ("barrier.cluster.wait", "lw.cluster.wait()", "barrier.cluster.wait"),
    "atomic": ("atomicAdd", "lw.atomic_add", "atom.add"),
    "fence": ("__threadfence()", "lw.fence()", "fence.acq_rel.gpu"),
    "proxy_fence": ("fence.proxy.async", "lw.fence_proxy_async()", "fence.proxy.async"),
    "init_fence": ("fence.mbarrier_init", "lw.fence_mbarrier_init()", "fence.mbarrier_init.release.cluster"),
    "copy_wait": ("cp.async.wait_all", "lw.cp_async_wait()", "cp.async.wait_all"),
    "bulk_wait": ("cp.async.bulk.wait_group 0", "lw.tma.wait()", "cp.async.bulk.wait_group 0"),
    "bulk_wait_read": (
        "cp.async.bulk.wait_group.read 0",
        "lw.tma.wait(read=True)",
        "cp.async.bulk.wait_group.read 0",
    ),
    "wgmma_fence": ("wgmma.fence", "lw.wgmma_fence()", "wgmma.fence.sync.aligned"),
    "wgmma_commit": ("wgmma.commit_group", "lw.wgmma_commit()", "wgmma.commit_group.sync.aligned"),
    "wgmma_wait": ("wgmma.wait_group 0", "lw.wgmma_wait()", "wgmma.wait_group.sync.aligned 0"),
}


def spelled(name: str, language: Language) -> str:
    """Return an instruction as a language writes it, between backquotes."""
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
        first, second = (self._places.get(each.site) for each in (one, other))
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
                following = [each for each in successors(block) if each.number not in seen]
                seen |= {each.number for each in following}
                pending += [(each, 0) for each in following]
        return False

    def is_conditional(self, op: Op) -> bool:
        """Return whether threads may come to the end of the function without this instruction."""
        place = self._places.get(op.site)
        if op.guard is not None or place is None:
            return op.guard is not None
        avoided = place[0]
        first = next(each for each in self._blocks if each.is_first and each.body is avoided.body)
        pending, seen = [first] if first is not avoided else [], {first.number}
        while pending:
            block = pending.pop()
            following = successors(block)
            if not following:
                return True
            for each in following:
                if each is not avoided and each.number not in seen:
                    seen.add(each.number)
                    pending.append(each)
        return False


def is_block_barrier(op: Op) -> bool:
    """Return whether all threads of the block wait at an instruction: a barrier with no count of threads."""
    operands = len(op.operands) - 2 * (op.record.role(0) is Role.DEFINED)
    return op.record.waits is Waits.BARRIER and not op.has("arrive") and operands <= 1


def is_warp_barrier(op: Op) -> bool:
    """Return whether the lanes of a warp synchronise at an instruction."""
    return is_block_barrier(op) or op.record.roles == (Role.MEMBERS,)


def is_cluster_barrier(op: Op) -> bool:
    """Return whether all threads of the cluster wait at an instruction."""
    return op.record.waits is Waits.CLUSTER


# races ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threads:
    """How near two threads are to each other, and what waits for both of them."""

    same_thread: bool
    same_warp: bool
    same_block: bool
    same_cluster: bool

    @property
    def barrier(self) -> tuple[str, Callable[[Op], bool], str]:
        """The barrier that orders them: its name in SPELLINGS, which instructions are it, and who waits."""
        if self.same_warp:
            return "warp_barrier", is_warp_barrier, "all lanes of the warp"
        if self.same_block:
            return "block_barrier", is_block_barrier, "all threads of the block"
        return "cluster_barrier", is_cluster_barrier, "all threads of the cluster"


def race_mend(flow: ControlFlow, one: Place, other: Place, threads: Threads, both_write: bool) -> str:
    """Return what orders two accesses of two threads; the places are in any order."""
    language = Language.of(one.source)
    if not threads.same_cluster:
        return _between_blocks(one, other, language, both_write)
    name, closes, everybody = threads.barrier
    barrier = spelled(name, language)
    first, second = (one, other) if flow.is_before(one.op, other.op) else (other, one)
    same_line = (first.file, first.line) == (second.file, second.line)
    gaps = []
    if not same_line and flow.leads(first.op, second.op, closes):
        gaps.append(f"between {first.named(second)} and {second.named(first)}")
    if flow.leads(second.op, first.op, closes):
        back = "it" if same_line else first.named(second)
        gaps.append(f"after {second.named(first)}, before the loop comes back to {back}")
    if not gaps:
        return _without_a_gap(first, second, same_line, both_write, barrier, language, everybody)
    conditional = flow.is_conditional(first.op) or flow.is_conditional(second.op)
    where = f", where {everybody} come by" if conditional else ""
    return f"{barrier} {' and '.join(gaps)}{where}"


def _without_a_gap(
    first: Place,
    second: Place,
    same_line: bool,
    both_write: bool,
    barrier: str,
    language: Language,
    everybody: str,
) -> str:
    """Return what mends two accesses of one line, or two that have a barrier between them."""
    atomic = spelled("atomic", language)
    if same_line and both_write:
        return f"give each thread an element of its own, or add with {atomic}"
    if same_line:
        return (
            f"make {first.named()} one atomic operation ({atomic}); if its threads access different "
            f"elements, read into a register first, then {barrier}, then write"
        )
    return (
        f"let {everybody} come to the barrier between {first.named(second)} and {second.named(first)}: some "
        "skip it, or it counts fewer threads"
    )


def _between_blocks(one: Place, other: Place, language: Language, both_write: bool) -> str:
    """Return what mends two accesses of blocks that no barrier orders."""
    atomic = spelled("atomic", language)
    if both_write or (one.file, one.line) == (other.file, other.line):
        return f"give each block elements of its own, or use {atomic}: no barrier orders two blocks"
    return (
        f"end the kernel between {one.named(other)} and {other.named(one)} and go on in a second launch, or "
        f"publish a flag: {spelled('fence', language)}, then an atomic store; the reader loads the flag with "
        "an atomic, then a fence"
    )
