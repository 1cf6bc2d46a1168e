"""Messages for faults: what happened, the line of PTX and source, the thread, and the address."""

import numpy as np

from lanewise.isa.tensor_map_fields import EVERY_TYPE
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, FaultKind, LaunchRecord
from lanewise.machine.bulk_copies.bulk_copy import operation_of
from lanewise.machine.bulk_copies.faults import Wrong as WrongCopy
from lanewise.machine.bulk_copies.tensor_copy import REDUCED_TYPES
from lanewise.machine.program.instruction_record import Proxy, Role
from lanewise.machine.program.memory_accesses import LocatedAccess, accesses
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, Symbol, TexelOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.program.source_lines import source_line
from lanewise.machine.runtime.address_book import AddressedMemory
from lanewise.machine.runtime.state import BlockState, LaunchState
from lanewise.machine.tensor_core.tcgen05_faults import sentence as product_sentence
from lanewise.machine.tensor_memory.faults import sentence as tensor_sentence
from lanewise.machine.textures.objects import geometry_of, named_coordinates
from lanewise.machine.warp_ops.mbarrier import WRONG
from lanewise.ptx import Immediate
from lanewise.ptx.model.names import demangle
from lanewise.ptx.textures import Surface


def location_of(launch: LaunchState, op: Op) -> str:
    """Return the line and text of an instruction, and the line of the source that it came from."""
    text = f"line {op.line}: {op.source}"
    if op.loc is not None:
        text += f"\n    from {source_line(launch.compiled.program.module, op.loc)}"
    return text


def value_in_lane(state: BlockState, operand: ResolvedOperand, warp: int, lane: int) -> int:
    """Return the number that an operand is in a lane: of a register or constant, or an address; else 0."""
    if isinstance(operand, Register):
        return int(state.lanes(warp, operand.offset, operand.bits)[lane])
    if isinstance(operand, Symbol):
        return operand.address
    return operand.bits if isinstance(operand, Immediate) else 0


def _fault_value(state: BlockState, operand: ResolvedOperand) -> int:
    """Return the number that an operand is in the lane that faulted."""
    return value_in_lane(state, operand, state[BlockRecord.fault_warp], state[BlockRecord.fault_lane])


#: Addresses below this are offsets from a null pointer.
NULL_PAGES = 1 << 16
#: How the shared memory of a block is kept until the others of its cluster are done with it.
KEEP_ALIVE = (
    "let all threads of the cluster execute barrier.cluster.arrive and barrier.cluster.wait (cluster.sync()) "
    "after the last such access, or let that block wait for an mbarrier at which this one arrives after it"
)


def thread_of(launch: LaunchState, state: BlockState, warp: int, lane: int) -> str:
    """Return a sentence fragment that names a thread and its block, as CUDA counts them."""
    return f"by thread {launch.thread_at(warp, lane)} in block {state.ctaid}"


def freed_memory(launch: LaunchState, address: int) -> AddressedMemory | None:
    """Return the memory that was at an address of global memory and was freed; None if there was none."""
    collected = launch.book.collected_at(address)
    is_taken = any(address in allocation for allocation in launch.allocations)
    return collected if not is_taken else None


def _describe_address(launch: LaunchState, address: int, space: str) -> str:
    """Return an address with the allocation that it lies in or next to."""
    if space == "shared" or 0 <= address - abi.SHARED_WINDOW < abi.WINDOW_BYTES:
        offset = address - abi.SHARED_WINDOW if address >= abi.SHARED_WINDOW else address
        if launch.shape.cluster_blocks > 1:
            return _describe_in_cluster(launch, offset)
        base = launch.compiled.launch_info.shared_base
        first = f", from {base:#x} on" if base and launch.shared_bytes else ""
        return f"address {offset:#x}; the block has {launch.shared_bytes} bytes of shared memory{first}"
    if space == "local" or 0 <= address - abi.LOCAL_WINDOW < abi.WINDOW_BYTES:
        offset = address - abi.LOCAL_WINDOW if address >= abi.LOCAL_WINDOW else address
        return (
            f"address {offset:#x}; a thread has {launch.compiled.program.local_bytes} bytes of local memory"
        )
    if space == "param":
        return (
            f"address {address:#x}; there are {launch.compiled.program.parameter_bytes} bytes of parameters"
        )
    if address < NULL_PAGES:
        what = "a null pointer" if address == 0 else f"{address} bytes past a null pointer"
        heap = ", or malloc found no memory" if launch.compiled.launch_info.uses_heap else ""
        return f"address {address:#x} is {what}: None or 0 was passed, or nothing gave it a value{heap}"
    collected = freed_memory(launch, address)
    if collected is not None:
        where = f"byte {address - collected.first} of {collected.title}, which was freed"
        return f"address {address:#x} is {where}: keep the array for as long as kernels use its address"
    if not launch.allocations:
        return f"address {address:#x}; the kernel was given no array"
    near = min(launch.allocations, key=lambda allocation: allocation.distance(address))
    if address in near:
        relation = f"byte {address - near.first} of"
    elif address < near.first:
        relation = f"{near.first - address} bytes before"
    else:
        distance = address - near.first - near.size
        relation = f"{distance} bytes past the end of" if distance else "just past the end of"
    where = f"({near.size} bytes at {near.first:#x})"
    return f"address {address:#x} is {relation} {near.whole_title} {where}"


def _describe_in_cluster(launch: LaunchState, address: int) -> str:
    """Return an address in the shared memory of a cluster, with the rank of the block that it is of."""
    rank, offset = address >> abi.RANK_SHIFT, address & abi.OFFSET_MASK
    blocks, base = launch.shape.cluster_blocks, launch.compiled.launch_info.shared_base
    whose = (
        f"offset {offset:#x} in the block of rank {rank}" if rank < blocks else f"in a block of rank {rank}"
    )
    first = f" from {base:#x} on" if base and launch.shared_bytes else ""
    return (
        f"address {address:#x} is {whose}; the cluster has {blocks} blocks, each with "
        f"{launch.shared_bytes} bytes of shared memory{first}"
    )


#: How the message of a fault of an mbarrier begins.
MBARRIER_FAULT = "mbarrier: "


def faulting_access(launch: LaunchState, state: BlockState, op: Op) -> LocatedAccess | None:
    """Return the access of an instruction that faulted; None if it accesses no memory.

    A copy has two: it is the write unless the fault has another address, or the write's address is good.
    """
    located = accesses(op)
    if len(located) < 2:
        return located[0] if located else None
    if any(access.access.proxy is Proxy.ASYNC for access in located):
        return _asynchronous_access(state, located)
    target = located[0]
    fault, base = state[BlockRecord.fault_address], target.address.base
    start = _fault_value(state, base) + target.address.offset
    start += state[BlockRecord.shared_first] if isinstance(base, Symbol) else 0
    size, first = state[BlockRecord.fault_size], state[BlockRecord.shared_first]
    good = start % size == 0 and 0 <= start - first <= launch.shared_limit - size
    return located[1] if start != fault or good else target


def _warpgroup_reason(number: int) -> str:
    """Return what is wrong with an instruction of a warpgroup."""
    return next((f"wgmma: {fault.sentence()}" for fault in abi.WarpgroupFault if fault == number), "")


def _asynchronous_access(state: BlockState, located: list[LocatedAccess]) -> LocatedAccess:
    """Return the access of a bulk copy whose address faulted; else the one to global memory."""
    fault = state[BlockRecord.fault_address]
    for access in located:
        if _fault_value(state, access.address.base) + access.address.offset == fault:
            return access
    return next((access for access in located if access.space == "global"), located[0])


def describe(launch: LaunchState, state: BlockState) -> tuple[str, int]:
    """Return the message of a fault, and its line."""
    kind = FaultKind(state[BlockRecord.fault_kind])
    op = launch.compiled.program.sites[state[BlockRecord.fault_site]]
    if handle_operand(op) is not None:
        thread = thread_of(launch, state, state[BlockRecord.fault_warp], state[BlockRecord.fault_lane])
        head, reason = describe_texture_fault(launch, state, op)
        return "\n".join([head, f"    {location_of(launch, op)}", f"    {thread}", f"    {reason}"]), op.line
    access = faulting_access(launch, state, op)
    verb, space = (access.access.kind.value, access.space) if access is not None else ("read", op.space)
    if access is None and op.record.memory:  # by a descriptor
        space = op.record.memory[0].space
    size, address = state[BlockRecord.fault_size], state[BlockRecord.fault_address] & (1 << 64) - 1
    thread = thread_of(launch, state, state[BlockRecord.fault_warp], state[BlockRecord.fault_lane])
    head = {
        FaultKind.OUT_OF_BOUNDS: f"{space} {verb} of {size} bytes out of bounds",
        FaultKind.MISALIGNED: f"misaligned {space} {verb} of {size} bytes",
        FaultKind.READ_ONLY: (
            f"{space} {verb} of {size} bytes to read-only memory; if it is an array, pass array.copy()"
        ),
        FaultKind.BAD_RANK: f"shared {verb} of {size} bytes in a block that the cluster does not have",
        FaultKind.EXITED_BLOCK: (
            f"shared {verb} of {size} bytes in a block of the cluster that has exited; {KEEP_ALIVE}"
        ),
        FaultKind.BAD_BRANCH: "brx.idx has an index beyond its list of targets",
        FaultKind.BAD_OPERAND: "an operand is out of range (barriers are numbered 0 to 15)",
        FaultKind.DIVERGENCE: _divergence_reason(launch),
        FaultKind.MBARRIER: f"{MBARRIER_FAULT}{WRONG.get(size, '')}",
        FaultKind.WARPGROUP: _warpgroup_reason(size),
        FaultKind.STACK: (
            f"the thread's stack of {abi.STACK_BYTES} bytes is full: calls are nested too deeply, or alloca "
            "asks for too much"
        ),
        FaultKind.BULK_COPY: "a bulk copy that no GPU can make",
        FaultKind.TENSOR_MEMORY: "a rule of tensor memory is broken",
        FaultKind.TENSOR_PRODUCT: "a product of tcgen05 that no GPU can make",
        FaultKind.BAD_CALL: "a call through a register that holds no function with such parameters",
    }.get(kind, kind.title)
    reached = address >> abi.RANK_SHIFT
    elsewhere = reached < launch.shape.cluster_blocks and reached != state[BlockRecord.rank]
    # A bulk copy reads the shared memory of its own block alone, wherever it writes.
    bulk_read = access is not None and access.access.proxy is Proxy.ASYNC and not access.access.writes
    only_own = space == "shared" and (bulk_read or not op.has("shared::cluster"))
    if kind is FaultKind.OUT_OF_BOUNDS and only_own and elsewhere:
        allowed = "only an instruction with .shared::cluster can do that"
        if bulk_read:
            allowed = "a bulk copy reads that of its own block only"
        head = f"{verb} of {size} bytes in the shared memory of another block: {allowed}"
    lines = [head, f"    {location_of(launch, op)}", f"    {thread}"]
    if kind in (*abi.ADDRESS_FAULTS, FaultKind.MBARRIER):
        lines.append(f"    {_describe_address(launch, address, space)}")
    sentences = {
        FaultKind.BULK_COPY: lambda why, number: _copy_reason(op, why, number),
        FaultKind.TENSOR_MEMORY: tensor_sentence,
        FaultKind.TENSOR_PRODUCT: product_sentence,
    }
    if kind in sentences:
        lines.append(f"    {sentences[kind](size, address)}")
    return "\n".join(lines), op.line


def _copy_reason(op: Op, why: int, number: int) -> str:
    """Return what is wrong with a bulk copy or a tensor copy."""
    reason = WrongCopy.numbered(why)
    if reason is not WrongCopy.TYPE:
        return reason.sentence(number)
    operation = operation_of(op)
    name = next((kind.name for kind in EVERY_TYPE.values() if kind.code == number), f"number {number}")
    allowed = ", ".join(f".{fmt}" for fmt in REDUCED_TYPES[operation])
    return f".{operation} cannot reduce elements of the tensor map's type .{name}; it can reduce {allowed}"


def _divergence_reason(launch: LaunchState) -> str:
    """Return that lanes are missing; if the block has too few threads, how many it should have."""
    reason, threads = "not all lanes of the warp execute this instruction together", launch.shape.threads
    if threads % 32 == 0:
        return reason
    return f"{reason}; a block of {threads} threads has a warp of fewer than 32: launch a multiple of 32"


def describe_limit(launch: LaunchState, state: BlockState) -> tuple[str, int]:
    """Return the message of a block that ran longer than `steps=` allows, and its first thread's line."""
    allowed = launch[LaunchRecord.step_limit]
    name = demangle(launch.compiled.function.name)
    message = f"{name}: a block ran more than {allowed:,} steps, the limit that steps= (--steps) sets"
    for warp in range(launch.shape.warps):
        pcs = state.lanes(warp, abi.WarpFrame.pcs, 32)
        for lane in np.flatnonzero(pcs < abi.PARKED):
            block = launch.compiled.blocks[int(pcs[lane])]
            op = next(iter(block.ops), block.op)
            if op is not None:
                thread = thread_of(launch, state, warp, int(lane))
                return f"{message}\n    {location_of(launch, op)}\n    {thread}", op.line
    return message, 0


def handle_operand(op: Op) -> int | None:
    """Return the number of the operand that is a texture or surface; None if there is none."""
    return next((n for n in range(len(op.operands)) if op.record.role(n) is Role.HANDLE), None)


def title_of(launch: LaunchState, state: BlockState, op: Op) -> str:
    """Return the argument whose texture or surface an instruction accesses; empty if its handle is wrong."""
    texture = launch.textures.find(_handle(state, op)) if launch.textures is not None else None
    return f"argument {texture[0]}" if texture else ""


def describe_texture_fault(launch: LaunchState, state: BlockState, op: Op) -> tuple[str, str]:
    """Return the first line of a fault's message, and the line that gives the reason."""
    kind, size = FaultKind(state[BlockRecord.fault_kind]), state[BlockRecord.fault_size]
    handle = _handle(state, op)
    wanted = "surface" if op.opcode.startswith("su") else "texture"
    texture = launch.textures.find(handle) if launch.textures is not None else None
    if kind is FaultKind.BAD_TEXTURE:
        head = f"{op.opcode} through a handle that is not a {wanted} of this launch"
        if texture is None:
            return head, f"the handle is {handle:#x}; pass lw.{wanted}(array) for the kernel's parameter"
        title, image = texture
        given = "surface" if isinstance(image, Surface) else "texture"
        if given != wanted:
            return head, f"argument {title} is a {given}; pass lw.{wanted}(array)"
        return (
            f"{op.opcode} is for another geometry than that of the {wanted}",
            f"argument {title} is a {image.geometry} {wanted}, read as {geometry_of(op).title}",
        )
    assert texture is not None
    title, image = texture
    verb = "write" if op.record.writes_surface else "read"
    head = f"surface {verb} of {size} bytes out of bounds"
    if kind is FaultKind.MISALIGNED:
        head = f"misaligned surface {verb} of {size} bytes"
    number = handle_operand(op)
    assert number is not None
    places = [
        f"{'byte ' if name == 'x' else ''}{name} = {_operand_value(state, operand)}"
        for name, operand in named_coordinates(op, number).items()
    ]
    width, height, depth = image.size
    sizes = [f"rows of {width * image.texel_bytes} bytes"]
    sizes += [f"{height} rows"] if image.dimensions > 1 else []
    sizes += [f"{depth} planes"] if image.dimensions > 2 else []
    sizes += [f"{image.layers} layers"] if image.layered else []
    return head, f"{', '.join(places)}; argument {title} has {', '.join(sizes)}"


def _handle(state: BlockState, op: Op) -> int:
    """Return the handle that the faulting lane has."""
    number = handle_operand(op)
    assert number is not None
    operand = op.operands[number]
    if isinstance(operand, TexelOperand):
        return _operand_value(state, operand.handle)
    assert isinstance(operand, MemoryOperand) and isinstance(operand.base, Register)
    return _operand_value(state, operand.base)


def _operand_value(state: BlockState, operand: ResolvedOperand) -> int:
    """Return the value of an operand in the faulting lane; coordinates are signed."""
    if isinstance(operand, Immediate):
        return int(operand.value)
    if not isinstance(operand, Register):
        return 0
    word = _fault_value(state, operand)
    return word - (word >> 31 << 32) if operand.bits == 32 else word
