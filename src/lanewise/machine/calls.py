"""Calls of device functions: arguments to the callee's parameters, results back.

A function has one set of registers and parameters a lane: lanes from several calls run through it together.
"""

from __future__ import annotations

from lanewise.arith.simd import Type, Value
from lanewise.machine import frame
from lanewise.machine.code import BlockCode, Record
from lanewise.machine.resolve import Body, Op, Register, Resolved, Several, Symbol


def local_place(code: BlockCode, lane: Value, offset: int) -> Record:
    """A place in a lane's local memory."""
    block = code.block
    each = block.at(frame.LAUNCH).get(frame.LOCAL_BYTES)
    thread = code.frame.get(frame.INDEX) * frame.LANES + lane
    return Record(code, block.get(frame.LOCAL) + thread * each + offset)


def _copy(code: BlockCode, op: Op, source: Resolved, target: Resolved, lane: Value) -> None:
    """One argument or result of one lane."""
    if isinstance(source, Symbol) and isinstance(target, Symbol):
        if source.space != "local" or target.space != "local":
            raise op.unsupported("what it passes is no parameter")
        offset, size = 0, min(source.size, target.size)
        while offset < size:
            step = next(step for step in (8, 4, 2, 1) if offset + step <= size)
            word = Type("u", 8 * step)
            value = local_place(code, lane, source.address + offset).get(0, word)
            local_place(code, lane, target.address + offset).set(0, value)
            offset += step
    elif isinstance(target, Symbol):
        word = Type("u", 8 * min(target.size, 8))
        value = code.lane_read(source, word, lane)
        local_place(code, lane, target.address).set(0, value)
    elif isinstance(target, Register) and isinstance(source, Symbol):
        word = Type("u", 8 * min(source.size, 8))
        code.lane_write(target, local_place(code, lane, source.address).get(0, word), lane)
    else:
        assert isinstance(target, Register)
        code.lane_write(target, code.lane_read(source, Type("u", target.bits), lane), lane)


def _passed(code: BlockCode, op: Op, sources: tuple[Resolved, ...], targets: tuple[Resolved, ...]) -> None:
    if len(sources) != len(targets):
        raise op.unsupported(f"{len(sources)} are passed where the function has {len(targets)}")
    if not sources:
        return
    with code.each_lane(code.bits(code.active(op))) as lane:
        for source, target in zip(sources, targets, strict=True):
            _copy(code, op, source, target, lane)


def arguments(code: BlockCode, op: Op, callee: Body) -> None:
    """What a call passes."""
    given = op.operands[2]
    assert isinstance(given, Several)
    _passed(code, op, given.elements, callee.parameters)


def results(code: BlockCode, op: Op, callee: Body) -> None:
    """What a call gets back."""
    wanted = op.operands[0]
    assert isinstance(wanted, Several)
    _passed(code, op, callee.returns, wanted.elements)
