"""Asynchronous operations while code for them is written: operands checked, carried out, mbarriers signalled.

All addresses are checked when an operation is issued, so that nothing but an mbarrier can fault later.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord, MemberRow
from lanewise.machine.async_records import NO_PIPE, OPEN_GROUP, AsyncOperation
from lanewise.machine.bulk_copies.faults import Wrong
from lanewise.machine.codegen.cluster_scheduler import member_row
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, Record
from lanewise.machine.codegen.pending_operations import address_of, issue
from lanewise.machine.codegen.tensor_pipe import blank_operation, tell_barrier
from lanewise.machine.warp_ops.addresses import CLUSTER, GENERIC, WRITE, locate
from lanewise.machine.warp_ops.mbarrier import complete_bytes

#: Arguments after the frame of every function that issues operations.
ISSUER = ("site", "lane")
#: What addresses and sizes of bulk copies are multiples of.
GRANULE = 16
MBARRIER_BYTES = 8


class Issue:
    """An operation of one lane while the function that issues it is written."""

    def __init__(self, code: BlockCode) -> None:
        self.code, self.block = code, code.block
        self.record = blank_operation(code, code["site"], code["lane"])
        self.record.set(AsyncOperation.group, OPEN_GROUP)
        self.record.set(AsyncOperation.pipe, NO_PIPE)

    def demand(self, holds: Value, why: Wrong, number: Value) -> None:
        """Stop the launch unless a condition holds."""
        with self.code.when(~holds):
            self.code.fault(FaultKind.BULK_COPY, self.code["site"], self.code["lane"], number, int(why))

    def host(self, space: str, address: Value, size: Value, flags: int = 0) -> Value:
        """Return the host address of some bytes in a state space; stop the launch if one is out of bounds.

        "shared" is the shared memory of the cluster: an address says of which block.
        """
        code = self.code
        flags |= {"generic": GENERIC, "shared": CLUSTER}.get(space, 0)
        facts = (size, 1, flags, code["site"], code["lane"])
        located = code.invoke(locate(code.module), code["frame"], address, *facts)
        code.stop_if(located.equals(0))
        return located

    def own_shared(self, address: Value, size: Value) -> Value:
        """Return the host address of some bytes in the shared memory of the block itself (`shared::cta`).

        The shared memory of another block of the cluster is out of bounds.
        """
        code = self.code
        offset = (address - self.block.get(BlockRecord.shared_first)).to(u64)
        limit = self.block.at(BlockRecord.launch).get(LaunchRecord.shared_bytes, u64)
        with code.when(~((offset < limit) & ((offset + size.to(u64) - 1) < limit))):
            code.fault(FaultKind.OUT_OF_BOUNDS, code["site"], code["lane"], address, size)
        return self.block.get(BlockRecord.shared) + offset.to(i64)

    def aligned(self, address: Value, why: Wrong = Wrong.ALIGNMENT, alignment: int = GRANULE) -> None:
        """Stop the launch unless an address is a multiple of an alignment."""
        self.demand((address & (alignment - 1)).equals(0), why, address)

    def to_shared(self, address: Value) -> None:
        """Put on record which shared memory it writes."""
        self.record.set(AsyncOperation.target_address, address & abi.OFFSET_MASK)
        self.record.set(AsyncOperation.target_block, self._owner(address))

    def _owner(self, address: Value) -> Value:
        """Return the record of the block that a shared address belongs to."""
        return member_row(self.code, self.block, address >> abi.RANK_SHIFT).get(MemberRow.block)

    def told_to(self, barrier: Value) -> None:
        """Let an mbarrier count the bytes: then the operation belongs to no group."""
        bytes_ = self.code.number(MBARRIER_BYTES)
        with self.code.when((barrier & (MBARRIER_BYTES - 1)).differs(0)):
            code = self.code
            code.fault(FaultKind.MISALIGNED, code["site"], code["lane"], barrier, MBARRIER_BYTES)
        self.record.set(AsyncOperation.barrier, self.host("shared", barrier, bytes_, WRITE))
        self.record.set(AsyncOperation.barrier_address, barrier)
        self.record.set(AsyncOperation.barrier_block, self._owner(barrier))
        self.record.set(AsyncOperation.group, 0)

    def give(self, execute: ir.Function) -> None:
        """Issue the operation and return its answer from the function."""
        self.record.set(AsyncOperation.execute, address_of(self.code, execute))
        self.code.give(self.code.invoke(issue(self.code.module), self.code["frame"], self.record.address))


def finish(code: FunctionCode, operation: Record) -> None:
    """Write the end of an operation that was carried out, and return from the function.

    The mbarrier is signalled, and a trace, if there is one, records it.
    """
    size, barrier = operation.get(AsyncOperation.size), operation.get(AsyncOperation.barrier)
    with code.when(barrier.differs(0)):
        owner = operation.get(AsyncOperation.barrier_block)
        tell_barrier(code, operation, code.invoke(complete_bytes(code.module), owner, barrier, size))
    hook = operation.at(AsyncOperation.block).get(BlockRecord.written_hook)
    with code.when(hook.differs(0)):
        code.invoke(hook, operation.address)
    code.give(0)
