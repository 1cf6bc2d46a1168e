"""Lowerings of cp.async: copies from global to shared memory, and the groups that a thread waits for.

By default a copy is complete at once, which is one of the times that the PTX ISA allows it to take. A launch
whose schedule is another one keeps it (`codegen/pending_operations.py`), unless it is shortened.
"""

from typing import NamedTuple

from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64, u8, u32, u64
from lanewise.machine.abi import BlockRecord, FaultKind
from lanewise.machine.codegen.function_code import AddressSlot, BlockCode, Kernel, RegisterSlot, shared_code
from lanewise.machine.codegen.pending_operations import commit_copies, keep_copy, wait_copies
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import MemoryOperand, Register
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import WRITE, Access
from lanewise.ptx import Immediate


class Form(NamedTuple):
    """The operands of a copy: target, source, bytes, and the operand that shortens it or leaves it out."""

    target: MemoryOperand
    source: MemoryOperand
    size: int
    shortened_by: Register | Immediate | None


def _form(op: Op) -> Form:
    """Return the operands of a copy; raise an error if the machine does not support its form."""
    write, read = accesses(op)
    if write.size not in (4, 8, 16):
        raise op.unsupported("a copy is of 4, 8 or 16 bytes")
    rest = op.operands[read.access.shortened_by :]
    if any(modifier.endswith("cache_hint") for modifier in op.modifiers):
        rest = rest[:-1]
    if not rest:
        return Form(write.address, read.address, write.size, None)
    last = rest[0]
    if len(rest) > 1 or not isinstance(last, Register | Immediate):
        raise op.unsupported("what shortens it is neither a register nor a constant")
    return Form(write.address, read.address, write.size, last)


def lower(code: BlockCode, op: Op) -> None:
    """Lower cp.async of 4, 8 or 16 bytes a lane: whole, shortened or left out."""
    target, source, size, rest = _form(op)
    _copy(code, op.site, target, source, size, rest, code.bits(code.active(op)))


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step | None:
    """Return a copy as a shared step; None unless both addresses and what shortens it are in registers."""
    target, source, size, rest = _form(op)
    to, start = target.base, source.base
    if not isinstance(to, Register) or not isinstance(start, Register) or isinstance(rest, Immediate):
        return None
    kind = f"{rest.bits}{'p' * rest.is_predicate}" if rest is not None else ""

    def write(code: BlockCode) -> None:
        values = [code.record("operands").get(8 * number) for number in range(6)]
        site, to_offset, to_displacement, from_offset, from_displacement, shortens = values
        there = AddressSlot(RegisterSlot.like(to, to_offset), to_displacement)
        here = AddressSlot(RegisterSlot.like(start, from_offset), from_displacement)
        last = RegisterSlot.like(rest, shortens) if rest is not None else None
        _copy(code, site, there, here, size, last, code["active"].to(u32))

    name = f"cp.async {size} {to.bits} {start.bits} {kind}"
    function = shared_code(module, name, STEP_ARGUMENTS, write)
    operands = [op.site, to.offset, target.offset, start.offset, source.offset]
    return Step(function, [*operands, rest.offset if rest is not None else 0])


def _copy(
    code: BlockCode,
    site: int | Value,
    target: MemoryOperand | AddressSlot,
    source: MemoryOperand | AddressSlot,
    count: int,
    rest: Register | RegisterSlot | Immediate | None,
    active: Value,
) -> None:
    """Write the copies of all active lanes."""
    to = Access(code, site, "shared", count, count, WRITE)
    whole = Access(code, site, "global", count, count, 0)
    piece = Type("u", 32).by(count // 4)
    pending = code.block.get(BlockRecord.pending).differs(0)
    with code.each_lane(active) as lane:
        host = Pointer(code, u8, to.host(code.address_of(target, lane), lane))

        def put(value: Value, host: Pointer = host) -> None:
            code.store_unaligned(value, host.handle)

        start = code.address_of(source, lane)
        wanted = code.constant(u64, count)
        if isinstance(rest, Register | RegisterSlot) and rest.is_predicate:
            ignored = code.lane_read(rest, u8, lane)
            wanted = ignored.select(code.constant(u64, 0), wanted)
        elif rest is not None:
            wanted = code.lane_read(rest, u32, lane).to(u64)
            wanted = (wanted > count).select(code.constant(u64, count), wanted)
        full = wanted.equals(count)
        with code.when(full):
            located = whole.host(start, lane)
            with code.builder.if_else(pending.handle) as (kept, at_once):
                with kept:
                    places = [
                        Value(code, i64, code.builder.ptrtoint(handle, ir.LONG))
                        for handle in (host.handle, located)
                    ]
                    code.invoke(keep_copy(code.module), code["frame"], lane, *places, count)
                with at_once:
                    put(code.load_unaligned(located, piece))
        with code.when(~full):
            put(code.constant(piece, 0))
            with code.when(wanted.differs(0)):
                _copy_shortened(code, site, start, wanted, count, host, lane)


def _copy_shortened(
    code: BlockCode, site: int | Value, start: Value, wanted: Value, count: int, host: Pointer, lane: Value
) -> None:
    """Copy the first `wanted` bytes; only those are checked, since the others may lie outside."""
    bytewise = Access(code, site, "global", 1, 1, 0)
    with code.when((start & (count - 1)).differs(0)):
        code.fault(FaultKind.MISALIGNED, site, lane, start, count)
    first = Pointer(code, u8, bytewise.host(start, lane))
    bytewise.host(start + wanted - 1, lane)
    with code.loop(wanted.to(i64)) as byte:
        host.store(first.load(byte), byte)


# groups -----------------------------------------------------------------------------------------------------


def commit_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return cp.async.commit_group as a shared step."""
    return Step(commit_copies(module), [])


def wait_step(module: ir.Module, op: Op, kernel: Kernel) -> Step:
    """Return cp.async.wait_group and wait_all as a shared step: how many groups may stay pending."""
    groups = op.operands[0].bits if op.operands and isinstance(op.operands[0], Immediate) else 0
    return Step(wait_copies(module), [groups if op.operands else -1])
