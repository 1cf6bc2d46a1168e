"""tcgen05.commit: an arrival at an mbarrier, once all earlier operations of the pipe have taken effect."""

from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.jit.simd import Type, Value, i64, u64
from lanewise.machine import abi
from lanewise.machine.abi import FaultKind, LaunchRecord, MemberRow
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.codegen.cluster_scheduler import member_row
from lanewise.machine.codegen.function_code import BlockCode, FunctionCode, shared_code, shared_routine
from lanewise.machine.codegen.tensor_pipe import ISSUER, PipeOperation, is_paired, tell_barrier
from lanewise.machine.program.memory_accesses import MBARRIER_BYTES
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_memory.allocation import is_for_pair
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.warp_ops.addresses import CLUSTER, WRITE, locate
from lanewise.machine.warp_ops.mbarrier import arrive_once


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.commit, lane after lane: one operation for each block whose mbarrier it names."""
    paired, multicast = is_for_pair(op), op.has("multicast::cluster")
    if multicast != (len(op.operands) == 2):
        raise op.unsupported("it has a mask of blocks as its second operand if it is a .multicast::cluster")
    function = shared_code(code.module, "tcgen05.commit", (*ISSUER, "barrier"), _write_issue, quickly=True)
    blocks = code.launch.get(LaunchRecord.cluster_blocks)
    with code.each_lane(code.bits(code.active(op))) as lane:
        if paired:
            with code.when(~is_paired(code.block)):
                code.fault(FaultKind.TENSOR_MEMORY, op.site, lane, blocks, int(Wrong.NO_PAIR))
        with _each_barrier(code, op, lane, blocks) as barrier:
            code.invoke_or_stop(function, code["frame"], op.site, lane, barrier)


@contextmanager
def _each_barrier(code: BlockCode, op: Op, lane: Value, blocks: Value) -> Iterator[Value]:
    """Run the body for each mbarrier: the one that is named, or those at its offset in blocks of a mask."""
    barrier = _shared_address(code, op, lane)
    if len(op.operands) == 1:
        yield barrier
        return
    mask = code.lane_read(op.operands[1], Type("u", 16), lane).to(u64).to(i64)
    with code.when((mask >> blocks).differs(0)):
        code.fault(FaultKind.TENSOR_MEMORY, op.site, lane, mask, int(Wrong.MASK))
    with code.loop(blocks) as rank, code.when(((mask >> rank) & 1).differs(0)):
        yield (barrier & abi.OFFSET_MASK) | (rank << abi.RANK_SHIFT)


def _shared_address(code: BlockCode, op: Op, lane: Value) -> Value:
    """Return the address of the mbarrier in the shared memory of the cluster; else it is a fault.

    Without .shared::cluster the PTX ISA calls the address generic. Kernels of Triton 3.6, which run on a
    B200, give an address of shared memory there, extended to 64 bits: both are taken.
    """
    address = code.address_of(op.address(0), lane)
    if op.space == "shared":
        return address.to(i64)
    offset = address - abi.SHARED_WINDOW
    generic = offset < abi.WINDOW_BYTES
    with code.when(~(generic | (address < abi.WINDOW_BYTES))):
        code.fault(FaultKind.TENSOR_MEMORY, op.site, lane, address.to(i64), int(Wrong.NOT_SHARED))
    return generic.select(offset, address).to(i64)


def _write_issue(code: BlockCode) -> None:
    made, barrier = PipeOperation(code), code["barrier"]
    facts = (MBARRIER_BYTES, MBARRIER_BYTES, CLUSTER | WRITE, code["site"], code["lane"])
    host = code.invoke(locate(code.module), code["frame"], barrier, *facts)
    code.stop_if(host.equals(0))
    owner = member_row(code, code.block, barrier >> abi.RANK_SHIFT).get(MemberRow.block)
    made.record.set(AsyncOperation.barrier, host)
    made.record.set(AsyncOperation.barrier_address, barrier)
    made.record.set(AsyncOperation.barrier_block, owner)
    made.give(_executor(code.module))


@shared_routine("execute tcgen05.commit", ("operation",))
def _executor(code: FunctionCode) -> None:
    """`arrive(operation)`: the arrival itself."""
    operation = code.record("operation")
    owner, host = (operation.get(field) for field in (AsyncOperation.barrier_block, AsyncOperation.barrier))
    tell_barrier(code, operation, code.invoke(arrive_once(code.module), owner, host))
