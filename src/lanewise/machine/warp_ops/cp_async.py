"""Asynchronous copies from global to shared memory: done at once, which is one of the times they may take."""

from __future__ import annotations

from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64
from lanewise.machine.codegen.function_code import U8, U32, U64, BlockCode, shared_code
from lanewise.machine.codegen.threaded_code import Step, call_step
from lanewise.machine.program.resolve import Op, Place, Register
from lanewise.machine.warp_ops import mbarrier
from lanewise.machine.warp_ops.addresses import WRITE, Access
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
    found = copy_step(code.module, op)
    if found is not None:
        call_step(code, op, found)
        return
    target, source, count, rest = _form(op)
    _copy(code, op.site, target, source, count, rest, code.bits(code.active(op)))


def _form(op: Op) -> tuple[Place, Place, int, Register | Immediate | None]:
    """Where to, where from, how many bytes, and how many of them or whether to leave them out."""
    target, source, size, *rest = op.operands
    if not isinstance(target, Place) or not isinstance(source, Place) or not isinstance(size, Immediate):
        raise op.unsupported("of these operands")
    count = int(size.bits)
    if count not in (4, 8, 16):
        raise op.unsupported("a copy is of 4, 8 or 16 bytes")
    if any(each.endswith("cache_hint") for each in op.modifiers):
        rest = rest[:-1]
    if not rest:
        return target, source, count, None
    last = rest[0]
    if len(rest) > 1 or not isinstance(last, Register | Immediate):
        raise op.unsupported("of these operands")
    return target, source, count, last


def copy_step(module: ir.Module, op: Op) -> Step | None:
    """A copy as a step: site, bases and displacements, the register that shortens it. None if it is another.

    Only addresses in registers are; and what shortens it is in one, or always the same.
    """
    if op.has("mbarrier") or not op.has("async") or any(op.has(each) for each in GROUPS):
        return None
    target, source, count, rest = _form(op)
    to, start = target.base, source.base
    if not isinstance(to, Register) or not isinstance(start, Register) or isinstance(rest, Immediate):
        return None
    kind = f"{rest.bits}{'p' * (rest.type == 'pred')}" if rest is not None else ""
    words = [op.site, to.offset, target.offset, start.offset, source.offset]

    def write(code: BlockCode) -> None:
        given: list[Any] = [code.record("words").get(8 * number) for number in range(6)]
        site, place, displacement, origin, more, shortens = given
        there = Place(Register(to.name, to.type, to.bits, place), displacement)
        here = Place(Register(start.name, start.type, start.bits, origin), more)
        last = Register(rest.name, rest.type, rest.bits, shortens) if rest is not None else None
        _copy(code, site, there, here, count, last, code["active"].to(U32))
        code.give(0)

    name = f"cp.async {count} {to.bits} {start.bits} {kind}"
    function = shared_code(module, name, ("active", "words"), write)
    return function, [*words, rest.offset if rest is not None else 0]


def _copy(
    code: BlockCode,
    site: int | Value,
    target: Place,
    source: Place,
    count: int,
    rest: Register | Immediate | None,
    active: Value,
) -> None:
    to = Access(code, site, "shared", count, count, WRITE)
    whole = Access(code, site, "global", count, count, 0)
    piece = Type("u", 32).by(count // 4)
    with code.each_lane(active) as lane:
        host = Pointer(code, U8, to.host(code.address_of(target, lane), lane))

        def put(value: Value, host: Pointer = host) -> None:
            code.builder.store(value.handle, host._typed(piece), align=1)

        start = code.address_of(source, lane)
        wanted = code.constant(U64, count)
        if isinstance(rest, Register) and rest.type == "pred":
            ignored = code.lane_read(rest, U8, lane)
            wanted = ignored.select(code.constant(U64, 0), wanted)
        elif rest is not None:
            wanted = code.lane_read(rest, U32, lane).to(U64)
            wanted = (wanted > count).select(code.constant(U64, count), wanted)
        full = wanted.equals(count)
        with code.when(full):
            put(_vector(code, whole.host(start, lane), piece))
        with code.when(~full):
            put(code.constant(piece, 0))
            with code.when(wanted.differs(0)):
                _part(code, site, start, wanted, count, host, lane)


def _vector(code: BlockCode, host: ir.Operand, piece: Type) -> Value:
    pointer = code.builder.bitcast(host, piece.ir.as_pointer())
    return Value(code, piece, code.builder.load(pointer, align=1))


def _part(
    code: BlockCode, site: int | Value, start: Value, wanted: Value, count: int, host: Pointer, lane: Value
) -> None:
    """Some of the bytes. What is not copied may lie outside: only the first `wanted` bytes are checked."""
    bytewise = Access(code, site, "global", 1, 1, 0)
    with code.when((start & (count - 1)).differs(0)):
        code.fault(2, site, lane, start, count)
    first = Pointer(code, U8, bytewise.host(start, lane))
    bytewise.host(start + wanted - 1, lane)
    with code.loop(wanted.to(i64)) as byte:
        host.store(first.load(byte), byte)
