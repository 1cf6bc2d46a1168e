"""Barriers that keep nothing apart, whatever the data are: found in the flow of control, not in one launch.

A barrier is needed if something that is accessed between the barrier before and it may be the same memory as
something that is accessed between it and the next one, and one of the two is a write. Shared memory is told
apart by variables, global memory by the parameters that addresses are made from. Fences, atomics, waits for
copies, and whatever else may be part of a longer order make the barriers next to them needed: when in doubt,
a barrier is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lanewise.machine.checker.checked_kernel import CheckedKernel
from lanewise.machine.checker.site_table import first_access_row
from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import BlockEnd, Level, Order, Proxy, Role, Size, Waits
from lanewise.machine.program.memory_accesses import LocatedAccess, watched_accesses
from lanewise.machine.program.ops import Op
from lanewise.machine.runtime.fault_report import handle_operand

#: Stands for all variables of dynamic shared memory, which begin at one address.
_DYNAMIC = "dynamic shared memory"


class Memory(NamedTuple):
    """Memory that an access may touch: a state space, and in it a variable or a parameter; None for any."""

    space: str | None = None
    which: object = None

    def may_be(self, other: Memory) -> bool:
        """Return whether two of them may be the same memory."""
        if self.space is None or other.space is None:
            return True
        any_of_space = self.which is None or other.which is None
        return self.space == other.space and (any_of_space or self.which == other.which)


class Accesses(NamedTuple):
    """The memory that some code reads and writes; whether it may be part of a longer order."""

    read: frozenset[Memory] = frozenset()
    written: frozenset[Memory] = frozenset()
    orders: bool = False

    def __or__(self, other: object) -> Accesses:
        assert isinstance(other, Accesses)
        return Accesses(self.read | other.read, self.written | other.written, self.orders or other.orders)

    def conflicts_with(self, other: Accesses) -> bool:
        """Return whether a barrier is needed between the two."""
        if self.orders or other.orders:
            return True
        return (
            _meet(self.written, other.read)
            or _meet(self.written, other.written)
            or _meet(self.read, other.written)
        )


def _meet(one: frozenset[Memory], other: frozenset[Memory]) -> bool:
    """Return whether two sets may have memory in common."""
    return any(memory.may_be(another) for memory in one for another in other)


def needless_barriers(kernel: CheckedKernel, arguments_overlap: bool = False) -> list[Op]:
    """Return the barriers of the whole block that can all be taken out of a kernel.

    If arguments of the launch overlap, memory behind one parameter may be that behind another.
    """
    blocks = kernel.blocks
    if any(block.end is BlockEnd.CALL for block in blocks) or not _is_plain(kernel.program.sites):
        return []
    finder = _Finder(kernel, arguments_overlap)
    needless: list[Op] = []
    taken_out: set[int] = set()
    for block in blocks:
        if _is_block_barrier(block):
            before, after = finder.before(block, taken_out), finder.after(block, taken_out)
            if not before.conflicts_with(after):
                assert block.op is not None
                needless.append(block.op)
                taken_out.add(block.number)
    return needless


def _is_plain(sites: Iterable[Op]) -> bool:
    """Return whether only accesses can be the reason for a barrier: not clocks, no asynchronous proxy."""
    for op in sites:
        unseen = op.record.level in (Level.WARPGROUP, Level.CLUSTER) or op.record.touches_tensor_memory
        if unseen or "%clock" in str(op.source):
            return False
        if any(access.proxy is Proxy.ASYNC for access in op.record.memory):
            return False
    return True


def _is_block_barrier(block: BasicBlock) -> bool:
    """Return whether a basic block ends with a barrier of the whole block that returns no value."""
    op = block.op
    if block.end is not BlockEnd.BARRIER or op is None or op.guard is not None or op.has("arrive"):
        return False
    return op.record.role(0) is not Role.DEFINED and len(op.operands) < 2


class _Finder:
    """Finds what is accessed between barriers."""

    def __init__(self, kernel: CheckedKernel, arguments_overlap: bool) -> None:
        self.arguments_overlap = arguments_overlap
        self.parameters = kernel.address_parameters
        self.sources = kernel.address_sources
        self.by_block = {block.number: self._of_block(block) for block in kernel.blocks}
        self.predecessors: dict[int, list[BasicBlock]] = {}
        for block in kernel.blocks:
            for successor in successors(block):
                self.predecessors.setdefault(successor.number, []).append(block)

    def after(self, barrier: BasicBlock, taken_out: set[int]) -> Accesses:
        """Return what may be accessed after a barrier, up to the next ones that stay."""

        def following(block: BasicBlock) -> list[BasicBlock]:
            stays = _is_block_barrier(block) and block.number not in taken_out
            return [] if stays else successors(block)

        return self._of_ways(successors(barrier), following)

    def before(self, barrier: BasicBlock, taken_out: set[int]) -> Accesses:
        """Return what may be accessed before a barrier, back to the previous ones that stay."""

        def preceding(block: BasicBlock) -> list[BasicBlock]:
            before = self.predecessors.get(block.number, ())
            return [one for one in before if not _is_block_barrier(one) or one.number in taken_out]

        return self._of_ways([barrier], preceding)

    def _of_ways(
        self, pending: list[BasicBlock], onward: Callable[[BasicBlock], list[BasicBlock]]
    ) -> Accesses:
        """Return what basic blocks access, and those to which ways lead onward from them."""
        accesses, seen = Accesses(), set[int]()
        while pending:
            block = pending.pop()
            if block.number not in seen:
                seen.add(block.number)
                accesses |= self.by_block[block.number]
                pending += onward(block)
        return accesses

    def _of_block(self, block: BasicBlock) -> Accesses:
        accesses = Accesses()
        if block.end is BlockEnd.HOST_CALL:
            accesses = Accesses(orders=True)
        for op in block.executed:
            accesses |= self._of_op(op)
        return accesses

    def _of_op(self, op: Op) -> Accesses:
        """Return what one instruction accesses."""
        record = op.record
        of_block = record.waits is Waits.BARRIER and not op.has("arrive") and len(op.operands) < 2
        waits = record.waits in (Waits.BARRIER, Waits.PHASE) and not of_block
        if record.orders not in (Order.NOTHING, Order.COMMIT) or waits or handle_operand(op) is not None:
            return Accesses(orders=True)
        accesses = Accesses()
        for row, located in enumerate(watched_accesses(op), first_access_row(op)):
            access = located.access
            if record.is_atomic or access.strong or access.size is Size.MBARRIER or op.has("volatile"):
                return Accesses(orders=True)
            if located.space == "local":
                continue
            memory = self._memory(row, op, located)
            read = memory if access.reads else frozenset[Memory]()
            written = memory if access.writes else frozenset[Memory]()
            accesses |= Accesses(read, written)
        return accesses

    def _memory(self, row: int, op: Op, located: LocatedAccess) -> frozenset[Memory]:
        if located.space == "shared":
            known = self.sources.variable(op, located.address.base)
            if known is not None and not known.size:
                return frozenset((Memory("shared", _DYNAMIC),))  # all that are declared extern are one memory
            return frozenset((Memory("shared", known),))
        if located.space != "global":
            return frozenset((Memory(),))
        parameters = () if self.arguments_overlap else self.parameters.get(row, ())
        if not parameters:
            return frozenset((Memory("global"),))
        return frozenset(Memory("global", parameter) for parameter in parameters)
