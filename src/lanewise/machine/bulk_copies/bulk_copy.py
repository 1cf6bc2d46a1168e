"""Lowerings of bulk copies and reductions of global and shared memory, of st.async, and of bulk groups."""

from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import FaultKind, LaunchRecord
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.bulk_copies.faults import Wrong
from lanewise.machine.bulk_copies.operation import GRANULE, ISSUER, Issue, finish
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Kernel,
    Record,
    routine,
    shared_code,
    shared_function,
    shared_routine,
)
from lanewise.machine.codegen.pending_operations import address_of, commit_bulk_group, wait_bulk_group
from lanewise.machine.codegen.threaded_code import Step
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.machine.warp_ops.addresses import WRITE
from lanewise.machine.warp_ops.atomics import BULK, atomic_update
from lanewise.ptx import Immediate

#: Operations of reductions.
OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def operation_of(op: Op) -> str:
    """Return the operation that an instruction names; raise an error if it names none."""
    return op.one_of(OPERATIONS, "it names no operation")


def reduction(module: ir.Module, op: Op, name: str, fmt: str, space: str) -> ir.Function:
    """Return `reduce(target, source, bytes)` for an operation and a type of elements in a state space."""
    arguments = ("target", "source", "bytes")

    def write(code: FunctionCode) -> None:
        word = Type("u", TYPE_BITS[fmt])
        size = word.bits // 8
        with code.loop(code["bytes"] >> (size.bit_length() - 1)) as number:
            operand = code.load_unaligned(Record(code, code["source"] + number * size).handle, word)
            target = Record(code, code["target"] + number * size).pointer(0, word)._typed(word)
            atomic_update(code, op, name, fmt, target, operand, space)

    title = f"reduce {name} {fmt} in {space}"
    if module.functions.get(title) is None:
        # Errors are raised here, where the line is known.
        write(FunctionCode(ir.Module(), title, arguments, ir.WORD, ""))
    return routine(module, title, arguments, write)


@contextmanager
def each_receiver(
    code: BlockCode, op: Op, mask: list[ResolvedOperand], lane: Value, *addresses: Value
) -> Iterator[tuple[Value, ...]]:
    """Run the body for each block that a copy goes to, with shared addresses in that block's memory.

    Without a mask the addresses say which block it is.
    """
    if not mask:
        yield addresses
        return
    blocks = code.launch.get(LaunchRecord.cluster_blocks)
    named = code.lane_read(mask[0], Type("u", 16), lane).to(u64).to(i64)
    with code.when((named >> blocks).differs(0)):
        code.fault(FaultKind.BULK_COPY, op.site, lane, named, int(Wrong.MULTICAST))
    with code.loop(blocks) as rank, code.when(((named >> rank) & 1).differs(0)):
        target, *barriers = addresses
        there = (target & abi.OFFSET_MASK) | (rank << abi.RANK_SHIFT)
        # With .cta_group::2 the mbarrier is in the block of the pair that has the rank's parity of its own.
        moved = [
            (barrier & (abi.OFFSET_MASK | 1 << abi.RANK_SHIFT)) | ((rank & -2) << abi.RANK_SHIFT)
            if op.has("cta_group::2")
            else (barrier & abi.OFFSET_MASK) | (rank << abi.RANK_SHIFT)
            for barrier in barriers
        ]
        yield there, *moved


def refuse_other_forms(op: Op) -> None:
    """Raise an error for forms that the machine does not run."""
    if op.has("ignore_oob"):
        raise op.unsupported(".ignore_oob is of a later version of PTX than 9.0")


def after_size(op: Op, first: int) -> list[ResolvedOperand]:
    """Return the operands that follow the required ones, without the cache policy."""
    rest = list(op.operands[first:])
    if op.has("L2::cache_hint"):
        if not rest:
            raise op.unsupported("it names no cache policy")
        rest.pop(-2 if op.has("cp_mask") and len(rest) > 1 else -1)
    return rest


def lower(code: BlockCode, op: Op) -> None:
    """Lower cp.async.bulk and cp.reduce.async.bulk, lane after lane."""
    refuse_other_forms(op)
    written, read = accesses(op)[:2]
    is_told = not op.has("bulk_group")
    rest = after_size(op, 4 if is_told else 3)
    if (op.has("multicast::cluster") or op.has("cp_mask")) != (len(rest) == 1) or len(rest) > 1:
        raise op.unsupported("its operands do not fit its modifiers")
    combine, mask = code.number(0), []
    if op.has("cp_mask"):
        mask, rest = rest, []
    if op.opcode == "cp" and "reduce" in op.modifiers:
        fmt = op.types[-1] if op.types else ""
        if not fmt:
            raise op.unsupported("it names no type")
        space = BULK if written.space == "global" else written.space
        combine = address_of(code, reduction(code.module, op, operation_of(op), fmt, space))
    function = _issuer(code.module, read.space, written.space, is_told, bool(mask))
    with code.each_lane(code.bits(code.active(op))) as lane:
        size = code.lane_read(op.operands[2], u32, lane).to(u64).to(i64)
        barrier: Value = code.number(0)
        if is_told:
            barrier = code.address_of(op.address(3), lane).to(i64)
        target, source = (code.address_of(access.address, lane).to(i64) for access in (written, read))
        with each_receiver(code, op, rest, lane, target, barrier) as (there, mbarrier):
            values = [there, source, size, mbarrier, combine]
            values += [code.lane_read(word, Type("u", 16), lane) for word in mask]
            code.invoke_or_stop(function, code["frame"], op.site, lane, *values)


def _issuer(
    module: ir.Module, source_space: str, target_space: str, is_told: bool, is_masked: bool
) -> ir.Function:
    """Return the function that issues a copy of some bytes: its operands are checked here."""

    def write(code: BlockCode) -> None:
        made = Issue(code)
        size, target, source = code["size"], code["target"], code["source"]
        made.demand((size & (GRANULE - 1)).equals(0), Wrong.SIZE, size)
        made.aligned(target)
        made.aligned(source)
        with code.when(size.equals(0)):
            code.give(0)
        made.record.set(AsyncOperation.target, made.host(target_space, target, size, WRITE))
        if source_space == "shared":
            host = made.own_shared(source, size)
        else:
            host = made.host(source_space, source, size)
        made.record.set(AsyncOperation.source, host)
        made.record.set(AsyncOperation.source_bytes, size)
        made.record.set(AsyncOperation.size, size)
        made.record.set(AsyncOperation.combine, code["combine"])
        if target_space == "shared":
            made.to_shared(target)
        if is_told:
            made.told_to(code["barrier"])
        if is_masked:
            made.record.set(AsyncOperation.data, code["mask"])
        made.give(_masked_executor(code.module) if is_masked else executor(code.module))

    name = f"bulk copy {source_space} to {target_space}{' with mbarrier' if is_told else ''}"
    arguments: tuple[str, ...] = (*ISSUER, "target", "source", "size", "barrier", "combine")
    if is_masked:
        name, arguments = f"masked {name}", (*arguments, "mask")
    return shared_code(module, name, arguments, write, quickly=True)


@shared_routine("execute masked copy", ("operation",), quickly=True)
def _masked_executor(code: FunctionCode) -> None:
    """`copy(operation)` for .cp_mask: of every 16 bytes those are copied whose bits are set."""
    operation, byte = code.record("operation"), Type("u", 8)
    mask = operation.get(AsyncOperation.data)
    # Byte by byte, since others may write the bytes between at the same time.
    with code.loop(operation.get(AsyncOperation.size)) as offset:
        chosen = (mask >> (offset & (GRANULE - 1))) & 1
        with code.when(chosen.differs(0)):
            source = Record(code, operation.get(AsyncOperation.source) + offset)
            Record(code, operation.get(AsyncOperation.target) + offset).set(0, source.get(0, byte))
    finish(code, operation)


@shared_routine("execute bulk copy", ("operation",))
def executor(code: FunctionCode) -> None:
    """`copy(operation)`: carry out a copy or reduction of bytes that lie side by side."""
    operation = code.record("operation")
    target, size = operation.get(AsyncOperation.target), operation.get(AsyncOperation.size)
    held = operation.get(AsyncOperation.source)
    source = held.equals(0).select(operation.address + AsyncOperation.data, held)
    combine = operation.get(AsyncOperation.combine)
    with code.builder.if_else(combine.equals(0).handle) as (copies, reduces):
        with copies:
            code.copy_bytes(target, source, size, may_overlap=True)
        with reduces:
            code.invoke(combine, target, source, size)
    finish(code, operation)


# stores of registers ----------------------------------------------------------------------------------------


def lower_store(code: BlockCode, op: Op) -> None:
    """Lower st.async and red.async: values of registers go to shared memory, and an mbarrier counts them.

    In the forms without an mbarrier they go to global memory at any later time.
    """
    located, is_told = accesses(op)[0], len(op.operands) > 2
    fmt = op.types[-1]
    elements = elements_of(op.operands[1])
    bits = TYPE_BITS[fmt]
    if (bits not in (32, 64) and (is_told or bits not in (8, 16))) or len(elements) * bits > 128:
        raise op.unsupported("it stores 32 or 64 bits, or up to four of them")
    combine: Value = code.number(0)
    if op.opcode == "red":
        space = "shared" if is_told else "global"
        combine = address_of(code, reduction(code.module, op, operation_of(op), fmt, space))
    size = bits // 8 * len(elements)
    function = storer(code.module) if is_told else _global_storer(code.module, located.space)
    with code.each_lane(code.bits(code.active(op))) as lane:
        words: list[Value] = [code.lane_read(element, Type("u", bits), lane).to(u64) for element in elements]
        if bits == 32:  # two to a word
            words += [code.constant(u64, 0)] * (len(words) % 2)
            words = [low | (high << 32) for low, high in zip(words[::2], words[1::2], strict=True)]
        words += [code.constant(u64, 0)] * (2 - len(words))
        target = code.address_of(located.address, lane).to(i64)
        barrier = code.address_of(op.address(2), lane).to(i64) if is_told else code.number(0)
        data = [word.to(i64) for word in words]
        values = [target, code.number(size), barrier, combine, *data]
        code.invoke_or_stop(function, code["frame"], op.site, lane, *values)


_STORE_ARGUMENTS = (*ISSUER, "target", "size", "barrier", "combine", "low", "high")


def _global_storer(module: ir.Module, space: str) -> ir.Function:
    """Return the function that issues a store to global memory, which no mbarrier counts."""

    def write(code: BlockCode) -> None:
        made = _stored(code, space)
        made.record.set(AsyncOperation.group, 0)
        made.give(executor(code.module))

    return shared_code(module, f"store asynchronously to {space}", _STORE_ARGUMENTS, write)


@shared_function("store asynchronously", _STORE_ARGUMENTS)
def storer(code: BlockCode) -> None:
    """Issue a store of up to 16 bytes, which an mbarrier counts."""
    made = _stored(code, "shared")
    made.to_shared(code["target"])
    made.told_to(code["barrier"])
    made.give(executor(code.module))


def _stored(code: BlockCode, space: str) -> Issue:
    """Write the store of up to 16 bytes to a state space."""
    made = Issue(code)
    size, target = code["size"], code["target"]
    with code.when((target & (size - 1)).differs(0)):
        code.fault(FaultKind.MISALIGNED, code["site"], code["lane"], target, size)
    made.record.set(AsyncOperation.target, made.host(space, target, size, WRITE))
    made.record.set(AsyncOperation.source, 0)
    made.record.set(AsyncOperation.size, size)
    made.record.set(AsyncOperation.combine, code["combine"])
    for number, word in enumerate(("low", "high")):
        made.record.set(AsyncOperation.data + 8 * number, code[word])
    return made


#: What sizes and addresses of st.bulk are multiples of, and the most bytes.
_ZEROED_UNIT, _MOST_ZEROED = 8, 1 << 24


def zero(code: BlockCode, op: Op) -> None:
    """Lower st.bulk: bytes of the block's shared memory become zeros."""
    initial = op.operands[2]
    if not isinstance(initial, Immediate) or initial.bits:
        raise op.unsupported("its value must be 0")
    address = op.address(0)
    start = abi.SHARED_WINDOW if op.space == "generic" and isinstance(address.base, Register) else 0
    function = shared_code(code.module, "zero shared memory", (*ISSUER, "target", "size"), _write_zero)
    with code.each_lane(code.bits(code.active(op))) as lane:
        target = code.address_of(address, lane).to(i64) - start
        size = code.lane_read(op.operands[1], u64, lane).to(i64)
        code.invoke_or_stop(function, code["frame"], op.site, lane, target, size)


def _write_zero(code: BlockCode) -> None:
    made, target, size = Issue(code), code["target"], code["size"]
    is_good = (size & (_ZEROED_UNIT - 1)).equals(0) & ~(size.to(u64) > _MOST_ZEROED)
    made.demand(is_good, Wrong.BULK_STORE, size)
    made.aligned(target, Wrong.BULK_STORE_ALIGNMENT, _ZEROED_UNIT)
    with code.when(size.differs(0)):
        code.zero_bytes(made.own_shared(target, size), size)


# groups -----------------------------------------------------------------------------------------------------


def commit_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return cp.async.bulk.commit_group as a shared step."""
    return Step(commit_bulk_group(module), [])


def wait_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return cp.async.bulk.wait_group as a shared step: how many groups may stay, whether reads suffice."""
    groups = op.operands[0]
    if not isinstance(groups, Immediate):
        raise op.unsupported("its number of groups is not a constant")
    return Step(wait_bulk_group(module), [groups.bits, int(op.has("read"))])
