"""Findings for launches that do not run to their end: faults, deadlocks, endless loops, what GPUs refuse."""

import ctypes
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lanewise.isa.archs import arch_number
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, WarpFrame
from lanewise.machine.checker.access_descriptions import allocation_at, finding_at, source_of
from lanewise.machine.checker.mends import Language, Place, spelled
from lanewise.machine.checker.report import Finding
from lanewise.machine.errors import KernelFault, Refused
from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import Waits
from lanewise.machine.program.memory_accesses import LocatedAccess, watched_accesses
from lanewise.machine.program.operands import Register, Symbol
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.program.source_lines import source_line
from lanewise.machine.runtime.deadlock_report import MEND, first_cause
from lanewise.machine.runtime.fault_report import (
    KEEP_ALIVE,
    NULL_PAGES,
    faulting_access,
    freed_memory,
    handle_operand,
    title_of,
)
from lanewise.machine.runtime.resident_blocks import Stuck
from lanewise.machine.runtime.shared_names import space_of_generic
from lanewise.machine.runtime.state import BlockState, LaunchState, Three
from lanewise.machine.runtime.wait_graph import WaitingLane, waiting_lanes
from lanewise.machine.tensor_core.tcgen05_faults import COLUMNS
from lanewise.machine.tensor_core.tcgen05_faults import Wrong as WrongProduct
from lanewise.machine.tensor_memory.faults import Wrong
from lanewise.machine.tensor_memory_records import FREED_COLUMN
from lanewise.machine.warp_ops.mbarrier import MENDS as MBARRIER_MENDS
from lanewise.machine.warp_ops.mbarrier import NOT_INITIALISED
from lanewise.ptx import (
    Loc,
    Resources,
    Shape,
    cluster_refusal,
    register_refusals,
    shape_refusals,
    shared_refusals,
)


class Mend(NamedTuple):
    """What mends a fault, and the same in the Python language if that has other words for it."""

    text: str
    in_python: str = ""

    def spelled(self, language: Language) -> str:
        """Return it as the kernel's language writes it."""
        return self.in_python if self.in_python and language is Language.PYTHON else self.text


_ALLOCATE_MORE = Mend(
    "allocate as many columns as are used (32, 64, 128, 256 or 512), and free them after their last use"
)
_BOTH_BLOCKS = Mend(
    "let both blocks of the pair meet at the barrier of the cluster before one of them ends",
    "let both blocks of the pair call `lw.cluster.sync()` before one of them ends",
)
_CLUSTER = Mend(
    "launch clusters of an even number of blocks (__cluster_dims__(2, 1, 1))",
    "launch clusters of an even number of blocks: `@lw.kernel(cluster=2)`",
)

#: By the number of what is wrong with tensor memory.
_TENSOR_MENDS: dict[int, Mend] = {
    Wrong.COUNT: Mend("ask for 32, 64, 128, 256 or 512 columns"),
    Wrong.COUNTS_DIFFER: Mend("give all lanes of the warp the same number of columns"),
    Wrong.RELINQUISHED: Mend(
        "allocate all columns before tcgen05.relinquish_alloc_permit",
        "allocate with `relinquish=False` before the last `lw.tmem.alloc`",
    ),
    Wrong.NOT_AN_ALLOCATION: Mend(
        "free what tcgen05.alloc wrote, once, with the same number of columns", "call `memory.free()` once"
    ),
    Wrong.NO_PAIR: _CLUSTER,
    Wrong.PAIR_EXITED: _BOTH_BLOCKS,
    Wrong.PAIR_COUNT: Mend("let both blocks of the pair ask for the same number of columns"),
    Wrong.NOT_ALLOCATED: _ALLOCATE_MORE,
    Wrong.BEYOND_COLUMNS: _ALLOCATE_MORE,
    Wrong.LANES_OF_OTHERS: Mend(
        "add 32 * (warp % 4) to the lane of the address: address + ((warp % 4) << 21)"
    ),
    Wrong.ADDRESSES_DIFFER: Mend(
        "give all lanes of the warp the same address, without the lane's own offset",
        "give all lanes of the warp the same column",
    ),
}
#: By the number of what is wrong with a product.
_PRODUCT_MENDS: dict[int, Mend] = {
    WrongProduct.NO_PAIR: _CLUSTER,
    WrongProduct.ODD_RANK: Mend("let the block of the pair with the even rank in the cluster issue it"),
    WrongProduct.PARTNER_EXITED: _BOTH_BLOCKS,
    **dict.fromkeys(COLUMNS, _ALLOCATE_MORE),
}
_FREE_LATER = Mend(
    "let all threads that use the columns synchronise with the warp that frees them, before tcgen05.dealloc",
    "let all threads that use the columns synchronise with the warp that frees them, before `memory.free()`",
)


#: The kinds of findings for faults that have another name in the machine.
_RENAMED = {
    "bad branch": "out of bounds",
    "bad operand": "barrier",
    "mbarrier": "barrier",
    "bad rank": "cluster",
    "exited block": "cluster",
    "host call": "trap",
}
_MASK = (1 << 64) - 1
#: The threads that the report of a deadlock names first: others, at barriers of many threads, wait for these.
#: Lanes that wait for one of their warp which waits for a phase are among the others.
_NAMED_FIRST = {abi.WAITS_FOR_SIBLINGS: 0, abi.WAITS_FOR_PHASE: 1}


#: What mends faults that have no numbers of their own.
_FAULT_MENDS = {
    FaultKind.TRAP: "look at what leads to the trap: the kernel stops there on purpose",
    FaultKind.ASSERTION: "look at what makes the condition of the assert false for this thread",
    FaultKind.BAD_BRANCH: "bound the index of the branch by the number of its targets",
    FaultKind.BAD_CALL: "give the pointer a function with these parameters before it is called",
    FaultKind.WARPGROUP: (
        "let all four warps of a warpgroup execute it, with the same descriptors and operands in all threads"
    ),
}


class Endless(KernelFault):
    """A launch that can never end, found while it ran; it has the finding that says so."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message, finding.kind, finding.line)
        self.finding = finding


def stopped(launch: LaunchState, state: BlockState, fault: KernelFault) -> Finding:
    """Return the finding for an instruction that could not be executed."""
    op = launch.compiled.program.sites[state[BlockRecord.fault_site]]
    kind = _RENAMED.get(fault.kind, fault.kind)
    if fault.kind == FaultKind.BAD_OPERAND.title and op.record.waits is not Waits.BARRIER:
        kind = "trap"
    message = str(fault).split("\n")[0]
    address, allocation = None, ""
    if state[BlockRecord.fault_kind] in (*abi.ADDRESS_FAULTS, FaultKind.BAD_TEXTURE, FaultKind.BULK_COPY):
        message += f" ({str(fault).splitlines()[-1].strip()})"
    if state[BlockRecord.fault_kind] in (FaultKind.TENSOR_MEMORY, FaultKind.TENSOR_PRODUCT):
        message = str(fault).splitlines()[-1].strip()
    if handle_operand(op) is not None:
        allocation = title_of(launch, state, op)
    elif state[BlockRecord.fault_kind] in abi.ADDRESS_FAULTS:
        address = state[BlockRecord.fault_address] & _MASK
        access = faulting_access(launch, state, op)
        _, allocation = allocation_at(launch, access.space if access else op.space, address)
    thread = launch.thread_at(state[BlockRecord.fault_warp], state[BlockRecord.fault_lane])
    message = message.replace(f"; {KEEP_ALIVE}", "")
    mend = _mend(launch, state, op)
    return finding_at(launch, op, kind, message, thread, state.ctaid, address, allocation, mend)


def _mend(launch: LaunchState, state: BlockState, op: Op) -> str:
    """Return what mends a fault."""
    size, address = state[BlockRecord.fault_size], state[BlockRecord.fault_address] & _MASK
    source = source_of(launch, op)
    here, language = Place(op, source).named(), Language.of(launch.compiled.module, source)
    access = faulting_access(launch, state, op)
    space = access.space if access is not None else op.space
    space = space_of_generic(address)[0] if space == "generic" else space
    match FaultKind(state[BlockRecord.fault_kind]):
        case FaultKind.OUT_OF_BOUNDS if access is None and op.record.memory:  # by a descriptor
            return (
                f"correct the matrix descriptor of {here}: its start, its leading and stride byte offsets "
                "and its swizzle have to be those of the tile, in the layout (K-major or MN-major) that the "
                "instruction reads"
            )
        case FaultKind.OUT_OF_BOUNDS if space == "shared" and not launch.shared_bytes:
            return (
                "give the launch dynamic shared memory: kernel[grid, block, bytes] in Python, "
                "<<<grid, block, bytes>>> in C++"
            )
        case FaultKind.OUT_OF_BOUNDS if space == "global" and address < NULL_PAGES:
            return "pass an array where the kernel gets a null pointer, or compare it with null first"
        case FaultKind.OUT_OF_BOUNDS if space == "global" and freed_memory(launch, address) is not None:
            return "free the memory after the last launch that uses it has ended"
        case FaultKind.OUT_OF_BOUNDS:
            return f"bound the index of {here}: {spelled('bound', language)}; or make the array larger"
        case FaultKind.MISALIGNED:
            return (
                f"make the address a multiple of {size}: align the array and count the index in whole "
                f"accesses of {size} bytes, or access fewer bytes at a time"
            )
        case FaultKind.READ_ONLY:
            return "write to another array, or pass one that may be written"
        case FaultKind.DIVERGENCE:
            return f"move {here} out of the branch, so that all lanes of the warp execute it"
        case FaultKind.BAD_OPERAND:
            return "number barriers 0 to 15"
        case FaultKind.MBARRIER:
            if size == NOT_INITIALISED and _is_of_cluster(launch, state, op, address):
                return (
                    "let one thread of each block initialise it first (mbarrier.init, then "
                    f"{spelled('init_fence', language)}), then all threads of the cluster meet: "
                    f"{spelled('cluster_barrier', language)}"
                )
            return MBARRIER_MENDS.get(size, "")
        case FaultKind.EXITED_BLOCK:
            return KEEP_ALIVE
        case FaultKind.BAD_RANK:
            return f"name a rank below {launch.shape.cluster_blocks}, the number of blocks of the cluster"
        case FaultKind.STACK:
            return "nest fewer calls, or make a loop of the recursion"
        case FaultKind.TENSOR_MEMORY:
            anew = f"give {here} an address that tcgen05.alloc has written"
            if size == Wrong.MASK:
                blocks = launch.shape.cluster_blocks
                return f"name blocks of the cluster alone in the mask: bits 0 to {blocks - 1}"
            is_freed = size == Wrong.NOT_ALLOCATED and address & FREED_COLUMN
            mend = _FREE_LATER if is_freed else _TENSOR_MENDS.get(size, Mend(anew))
            return mend.spelled(language)
        case FaultKind.TENSOR_PRODUCT:
            anew = f"make the descriptor of {here} anew"
            is_freed = size in COLUMNS and address & FREED_COLUMN
            mend = _FREE_LATER if is_freed else _PRODUCT_MENDS.get(size, Mend(anew))
            return mend.spelled(language)
        case FaultKind.CLUSTER_BARRIER:
            return "wait once for each arrival at the barrier of the cluster"
    return _FAULT_MENDS.get(FaultKind(state[BlockRecord.fault_kind]), "")


def _is_of_cluster(launch: LaunchState, state: BlockState, op: Op, address: int) -> bool:
    """Return whether an instruction uses an mbarrier of another block, or one of several blocks."""
    if launch.shape.cluster_blocks == 1:
        return False
    return op.has("multicast::cluster") or address >> abi.RANK_SHIFT != state[BlockRecord.rank]


def deadlock(launch: LaunchState, state: BlockState, message: str) -> Finding:
    """Return the finding of a deadlock: threads wait for lanes elsewhere, or at barriers."""
    message, _, mend = message.partition(f"\n{MEND}")
    lanes = list(waiting_lanes(launch, state.members or [state]))
    if not lanes:
        return finding_at(launch, None, "deadlock", message, None, state.ctaid, mend=mend)
    cause = first_cause(launch, lanes)
    at_phase = {(id(lane.block), lane.warp) for lane in lanes if lane.reason == abi.WAITS_FOR_PHASE}

    def place(lane: WaitingLane) -> int:
        is_among_others = lane.reason == abi.WAITS_FOR_SIBLINGS and (id(lane.block), lane.warp) in at_phase
        return len(_NAMED_FIRST) if is_among_others else _NAMED_FIRST.get(lane.reason, len(_NAMED_FIRST))

    # Lanes of the first block lead.
    first = min(lanes, key=lambda lane: (place(lane), lane != cause))
    if place(first) and cause is not None:
        first = cause
    op = _waited_for(launch.compiled.blocks, first.basic_block)
    kind = "barrier" if place(first) else "divergence"
    thread = launch.thread_at(first.warp, first.lane)
    return finding_at(launch, op, kind, message, thread, first.block.ctaid, mend=mend)


def _waited_for(blocks: list[BasicBlock], number: int) -> Op | None:
    """Return the instruction at which lanes wait that go on with a basic block."""
    for block in blocks:
        waits = block.op is not None and block.op.record.waits is not Waits.NOBODY
        if waits and block.following and block.following.number == number:
            return block.op
    return None


# loops that never end ---------------------------------------------------------------------------------------


#: What ends a loop that waits for no other thread.
_LOOP = "let the loop come to its end: look at what its condition reads, and at what changes that"


class Spin(NamedTuple):
    """A thread in a loop: the instruction that shows it, and the memory that it reads again and again."""

    state: BlockState
    thread: Three
    op: Op | None
    access: LocatedAccess | None = None
    address: int = 0
    space: str = ""
    allocation: str = ""
    #: A store of the loop to the same address.
    store: Op | None = None

    def finding(self, kind: str, message: str) -> Finding:
        """Return a finding at this loop."""
        address = self.address if self.access is not None else None
        launch, where = self.state.launch, (self.thread, self.state.ctaid, address, self.allocation)
        made = finding_at(launch, self.op, kind, message, *where, self.mend())
        if self.store is None:
            return made
        words = "it writes there itself, in the same loop"
        return replace(made, other=finding_at(launch, self.store, kind, words, *where))

    def mend(self) -> str:
        """Return what ends the loop."""
        if self.access is None or self.store is not None:
            return _LOOP
        what = self.allocation or f"{self.space} memory"
        return (
            f"let a thread that runs by then change {what} (an atomic store), and let no thread wait for one "
            "that has not begun or waits itself"
        )

    def words(self) -> str:
        """Return what the thread does, as the end of a sentence."""
        if self.access is None:
            return "runs in a loop that reads no memory"
        value = _value(self.state, self.space, self.address, self.access.size)
        holds = f", which holds {value}" if value is not None else ""
        return f"waits for {self.allocation or self.space + ' memory'} to change{holds}"


def over_the_limit(launch: LaunchState, state: BlockState, message: str) -> Finding:
    """Return the finding of a block that ran longer than `steps=` allows: the first thread that runs."""
    spins = _spins(launch, state)
    if not spins:
        return finding_at(launch, None, "endless", message, launch.thread_at(0, 0), state.ctaid, mend=_LOOP)
    reads = f"; this thread {spins[0].words()}" if spins[0].access is not None else ""
    return spins[0].finding("endless", message + reads)


def endless(launch: LaunchState, stuck: Stuck) -> Endless:
    """Return the error of a launch that never ends; its finding names the first thread that spins.

    The other place of the finding is a thread of another block, or in another loop.
    """
    spins: list[Spin] = []
    for state in stuck.blocks:
        spins += _spins(launch, state)
        if len({spin.state[BlockRecord.linear] for spin in spins}) > 1:
            break
    if not spins:
        block, message = stuck.blocks[0].ctaid, "the launch never ends"
        return Endless(finding_at(launch, None, "endless", message, None, block, mend=_LOOP))
    first = spins[0]
    why = "and nothing will change any more" if stuck.certain else "and nothing has changed for very long"
    message = f"the launch never ends: the thread {first.words()}, {why}"
    if len(stuck.blocks) > 1:
        message += f"; {len(stuck.blocks)} blocks wait or run in such a loop"
    if stuck.not_begun:
        message += (
            f", and {stuck.not_begun} more cannot begin: as on a GPU, a block begins when another one has "
            "ended, so no block may wait for one that comes much later"
        )
    kind = "deadlock" if stuck.not_begun else "endless"
    others = [spin for spin in spins[1:] if spin.op is not first.op]
    others += [spin for spin in spins[1:] if spin.state is not first.state]
    made = first.finding(kind, message)
    if others and made.other is None:
        other = others[-1]
        made = replace(made, other=other.finding(kind, f"another thread {other.words()}"))
    return Endless(made)


def _spins(launch: LaunchState, state: BlockState) -> list[Spin]:
    """Return a thread for each basic block in which threads of a block run."""
    by_basic_block: dict[int, Spin] = {}
    for warp in range(launch.shape.warps):
        pcs = state.lanes(warp, WarpFrame.pcs, 32)
        for lane in np.flatnonzero(pcs < abi.PARKED):
            number = int(pcs[lane])
            if number not in by_basic_block:
                by_basic_block[number] = _spin(launch, state, warp, int(lane), number)
    unique: dict[int, Spin] = {}
    for spin in by_basic_block.values():
        unique.setdefault(spin.op.site if spin.op is not None else -1, spin)
    return list(unique.values())


def _spin(launch: LaunchState, state: BlockState, warp: int, lane: int, number: int) -> Spin:
    """Return what a thread that runs in a basic block reads in the loop around it."""
    thread, loop = launch.thread_at(warp, lane), _loop_around(launch.compiled.blocks[number])
    touched = [
        (op, access)
        for block in loop
        for op in block.executed
        for access in watched_accesses(op)
        if access.space != "local"
    ]
    reads = [(op, access) for op, access in touched if access.access.reads]
    if not reads:
        block = launch.compiled.blocks[number]
        return Spin(state, thread, next(iter(block.ops), block.op))
    op, access = min(reads, key=lambda read: not read[0].record.is_atomic and not read[0].has("volatile"))
    address = _address(state, warp, lane, access)
    space, allocation = allocation_at(launch, access.space, address)
    stores = (
        store
        for store, written in touched
        if store.record.is_plain_store and _address(state, warp, lane, written) == address
    )
    return Spin(state, thread, op, access, address, space, allocation, next(stores, None))


def _address(state: BlockState, warp: int, lane: int, access: LocatedAccess) -> int:
    """Return the address of a lane's access, from the registers as they are now."""
    base = access.address.base
    if isinstance(base, Register):
        start = int(state.lanes(warp, base.offset, base.bits)[lane])
    elif isinstance(base, Symbol):
        program = state.launch.compiled.program
        start = base.address + (program.dynamic_offset if base.space == "dynamic" else 0)
        start += state[BlockRecord.shared_first] if access.space == "shared" else 0
    else:
        start = base.bits
    return (start + access.address.offset) & _MASK


def _loop_around(block: BasicBlock) -> list[BasicBlock]:
    """Return the basic blocks of the loop that a basic block is in, by number; itself if there is none."""
    reached = _reachable(block)
    loop = [other for other in reached.values() if block.number in _reachable(other)]
    return sorted(loop, key=lambda other: other.number) or [block]


def _reachable(block: BasicBlock) -> dict[int, BasicBlock]:
    """Return the basic blocks of a function that can follow one, by number."""
    reached: dict[int, BasicBlock] = {}
    pending = successors(block)
    while pending:
        follower = pending.pop()
        if follower.number not in reached:
            reached[follower.number] = follower
            pending += successors(follower)
    return reached


def _value(state: BlockState, space: str, address: int, size: int) -> int | None:
    """Return the number that memory holds at an address; None if it is not one word."""
    if size > 8:
        return None
    if space == "shared":
        offset = space_of_generic(address)[1] if address >= abi.SHARED_WINDOW else address
        offset -= state[BlockRecord.shared_first]
        if not 0 <= offset <= state.shared.size - size:  # in another block of the cluster
            return None
        return int.from_bytes(state.shared[offset : offset + size].tobytes(), "little")
    for allocation in state.launch.allocations:
        if address in allocation and address + size <= allocation.first + allocation.size:
            return int.from_bytes(
                ctypes.string_at(allocation.host + address - allocation.first, size), "little"
            )
    return None


# launches that a GPU refuses --------------------------------------------------------------------------------


def refused_by_ptxas(refusal: Refused) -> Finding:
    """Return the finding of a kernel that ptxas refuses."""
    message, _, source = str(refusal).partition("\n    from ")
    words = message.removeprefix(f"line {refusal.line}: ")
    return Finding("launch", words, refusal.line, refusal.text, source or None, mend=refusal.mend)


def beyond_limits(program: Program, shape: Shape, arch: str, used: Resources | None = None) -> list[Finding]:
    """Return why a GPU of an arch would not launch a kernel in a shape; empty if it would.

    `used` is what ptxas says that the kernel uses there, if it was asked.
    """
    reasons = shape_refusals(program.entry, shape)
    target, number = program.module.arch, arch_number(arch)
    bound = target.endswith(("a", "f"))
    if number < arch_number(target) or (bound and number != arch_number(target)):
        reasons.append(f"PTX for {target} does not run on {arch}")
    refused = cluster_refusal(shape, arch, target)
    reasons += [refused] if refused is not None else []
    base = program.shared_base
    reasons += shared_refusals(
        program.shared_bytes - base, program.dynamic_offset - base, shape.shared_bytes, arch
    )
    if used is not None:
        reasons += register_refusals(used, shape.threads)
    body = program.entry.body or ()
    loc = next((statement for statement in body if isinstance(statement, Loc)), None)
    source = source_line(program.module, loc) if loc is not None else None
    return [
        Finding("launch", why, program.entry.line, f".entry {program.entry.name}", source) for why in reasons
    ]
