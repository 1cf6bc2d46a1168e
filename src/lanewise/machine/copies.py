"""Asynchronous copies from global to shared memory: done at once, which is one of the times they may take."""

from __future__ import annotations

from lanewise.arith import ir
from lanewise.arith.simd import Pointer, Type, Value, i64
from lanewise.machine import mbarrier
from lanewise.machine.access import WRITE, Access
from lanewise.machine.code import U8, U32, U64, BlockCode
from lanewise.machine.resolve import Op, Place, Register
from lanewise.ptx import Immediate

#: What is done with groups of copies: nothing, for they are complete.
GROUPS = ("commit_group", "wait_group", "wait_all")


def copy_async(code: BlockCode, op: Op) -> None:
    """cp.async of 4, 8 or 16 bytes a lane, whole, shortened or left out."""
    if op.has("mbarrier"):
        mbarrier.arrive_copies(code, op)
        return
    if not op.has("async"):
        raise op.unsupported()
    if any(op.has(each) for each in GROUPS):
        return
    target, source, size, *rest = op.operands
    if not isinstance(target, Place) or not isinstance(source, Place) or not isinstance(size, Immediate):
        raise op.unsupported("of these operands")
    count = int(size.bits)
    if count not in (4, 8, 16):
        raise op.unsupported("a copy is of 4, 8 or 16 bytes")
    if any(each.endswith("cache_hint") for each in op.modifiers):
        rest = rest[:-1]
    if len(rest) > 1 or (rest and not isinstance(rest[0], Register | Immediate)):
        raise op.unsupported("of these operands")
    to = Access(code, op.site, "shared", count, count, WRITE)
    whole = Access(code, op.site, "global", count, count, 0)
    piece = Type("u", 32).by(count // 4)
    with code.each_lane(code.bits(code.active(op))) as lane:
        host = Pointer(code, U8, to.host(code.address_of(target, lane), lane))

        def put(value: Value, host: Pointer = host) -> None:
            code.builder.store(value.handle, host._typed(piece), align=1)

        start = code.address_of(source, lane)
        wanted = code.constant(U64, count)
        if rest and isinstance(rest[0], Register) and rest[0].type == "pred":
            ignored = code.lane_read(rest[0], U8, lane)
            wanted = ignored.select(code.constant(U64, 0), wanted)
        elif rest:
            wanted = code.lane_read(rest[0], U32, lane).to(U64)
            wanted = (wanted > count).select(code.constant(U64, count), wanted)
        full = wanted.equals(count)
        with code.when(full):
            put(_vector(code, whole.host(start, lane), piece))
        with code.when(~full):
            put(code.constant(piece, 0))
            with code.when(wanted.differs(0)):
                _part(code, op, start, wanted, count, host, lane)


def _vector(code: BlockCode, host: ir.Operand, piece: Type) -> Value:
    pointer = code.builder.bitcast(host, piece.ir.as_pointer())
    return Value(code, piece, code.builder.load(pointer, align=1))


def _part(
    code: BlockCode, op: Op, start: Value, wanted: Value, count: int, host: Pointer, lane: Value
) -> None:
    """Some of the bytes. What is not copied may lie outside: only the first `wanted` bytes are checked."""
    bytewise = Access(code, op.site, "global", 1, 1, 0)
    with code.when((start & (count - 1)).differs(0)):
        code.fault(2, op.site, lane, start, count)
    first = Pointer(code, U8, bytewise.host(start, lane))
    bytewise.host(start + wanted - 1, lane)
    with code.loop(wanted.to(i64)) as byte:
        host.store(first.load(byte), byte)
