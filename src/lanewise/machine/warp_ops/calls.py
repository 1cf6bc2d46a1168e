"""Calls of device functions: arguments to the callee's parameters, results back, frames on the stack.

A function has one set of registers and parameters for each lane: lanes from several calls run through it
together. If a lane may be in it more than once, its registers are saved on the lane's stack.
"""

from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import FaultKind
from lanewise.machine.codegen.function_code import BlockCode, Record
from lanewise.machine.program.basic_blocks import callees
from lanewise.machine.program.operands import (
    IndirectCallee,
    OperandList,
    Register,
    ResolvedOperand,
    StackVariable,
    Symbol,
)
from lanewise.machine.program.ops import FunctionBody, Op, Program


def local_memory(code: BlockCode, lane: Value, offset: int | Value) -> Record:
    """Return a record at an offset in a lane's local memory."""
    block = code.block
    local_bytes = block.at(abi.BlockRecord.launch).get(abi.LaunchRecord.local_bytes)
    thread = code.frame.get(abi.WarpFrame.index) * abi.LANES + lane
    return Record(code, block.get(abi.BlockRecord.local) + thread * local_bytes + offset)


def _parameter_memory(code: BlockCode, op: Op, symbol: Symbol | StackVariable, lane: Value) -> Record:
    """Return a parameter in local memory as a record."""
    if isinstance(symbol, StackVariable):
        start = code.lane_read(symbol.register, u64, lane).to(i64)
        return local_memory(code, lane, start + symbol.address)
    if symbol.space != "local":
        raise op.unsupported("what it passes is no parameter")
    return local_memory(code, lane, symbol.address)


def _copy(source: Record, target: Record, size: int) -> None:
    """Copy bytes from one record to another."""
    offset = 0
    while offset < size:
        step = next(step for step in (8, 4, 2, 1) if offset + step <= size)
        target.set(offset, source.get(offset, Type("u", 8 * step)))
        offset += step


def _passed(
    code: BlockCode,
    op: Op,
    sources: tuple[ResolvedOperand, ...],
    targets: tuple[ResolvedOperand, ...],
    lane: Value,
    between: Callable[[], None],
) -> None:
    """Pass values of one lane from sources to targets; `between` pushes or pops a frame.

    All sources are loaded before it and all targets stored after it, since both may belong to one function.
    """
    if len(sources) != len(targets):
        raise op.unsupported(f"{len(sources)} are passed where the function has {len(targets)}")
    loaded: list[Value | Record] = []
    for source, target in zip(sources, targets, strict=True):
        if isinstance(source, Symbol | StackVariable):
            loaded.append(_parameter_memory(code, op, source, lane))
        else:
            bits = target.bits if isinstance(target, Register) else 8 * min(getattr(target, "size", 8), 8)
            loaded.append(code.lane_read(source, Type("u", bits), lane))
    between()
    for value, source, target in zip(loaded, sources, targets, strict=True):
        if isinstance(value, Record):
            assert isinstance(source, Symbol | StackVariable)
            if isinstance(target, Symbol | StackVariable):
                _copy(value, _parameter_memory(code, op, target, lane), min(source.size, target.size))
            else:
                code.lane_write(target, value.get(0, Type("u", 8 * min(source.size, 8))), lane)
        elif isinstance(target, Symbol | StackVariable):
            _parameter_memory(code, op, target, lane).set(0, value)
        else:
            code.lane_write(target, value, lane)


def _mover(code: BlockCode, callee: FunctionBody, back: bool) -> ir.Operand:
    """Return `save(frame, lane, offset)` or `restore`: a function's registers to or from the stack."""
    name = f"{'restore' if back else 'save'}_{callee.link.offset}"
    existing: ir.Operand | None = code.module.functions.get(name)
    if existing is not None:
        return existing
    inner = BlockCode(code.module, name, ("lane", "offset"))
    stack = local_memory(inner, inner["lane"], inner["offset"])
    offset = 0
    for register in sorted(callee.registers, key=lambda held: -held.bits):
        word = Type("u", register.bits)
        slot = inner.frame.pointer(register.offset, word)
        if back:
            slot.store(stack.get(offset, word), inner["lane"])
        else:
            stack.set(offset, slot.load(inner["lane"]))
        offset += register.bits // 8
    inner.give(0)
    return inner.function


def enter(
    code: BlockCode, op: Op, program: Program, callee: FunctionBody, lanes: Value, following: int
) -> None:
    """Write the passing of arguments for some lanes (bits), and where they return to."""
    arguments = op.operands[2]
    assert isinstance(arguments, OperandList)
    with code.each_lane(lanes) as lane:

        def push() -> None:
            if callee.base is None:
                return
            used = code.lane_read(program.stack, u64, lane).to(i64)
            top = used + (callee.saved + callee.size)
            with code.when(top > abi.STACK_BYTES):
                code.fault(FaultKind.STACK, op.site, lane)
            start = used + program.stack_base
            code.invoke(_mover(code, callee, False), code["frame"], lane, start)
            code.lane_write(callee.base, (start + callee.saved).view(u64), lane)
            code.lane_write(program.stack, top.view(u64), lane)

        _passed(code, op, arguments.elements, callee.parameters, lane, push)
        code.lane_write(callee.link, code.constant(u32, following), lane)


def _leave(code: BlockCode, op: Op, program: Program, callee: FunctionBody, lanes: Value) -> None:
    """Write the passing of results back to the caller for some lanes (bits)."""
    wanted = op.operands[0]
    assert isinstance(wanted, OperandList)
    if not wanted.elements and not callee.returns and callee.base is None:
        return
    with code.each_lane(lanes) as lane:

        def pop() -> None:
            if callee.base is None:
                return
            start = code.lane_read(callee.base, u64, lane).to(i64) - callee.saved
            code.invoke(_mover(code, callee, True), code["frame"], lane, start)
            code.lane_write(program.stack, (start - program.stack_base).view(u64), lane)

        _passed(code, op, callee.returns, wanted.elements, lane, pop)


def results(code: BlockCode, op: Op) -> None:
    """Lower the second half of a call: take the results of the function, or of whichever was called."""
    active = code.active(op)
    program = code.kernel.program
    bodies = [program.body(name) for name in callees(op)]
    if not isinstance(op.operands[1], IndirectCallee):
        _leave(code, op, program, bodies[0], code.bits(active))
        return
    returned_from = code.frame.get(program.returned.offset, u32, abi.LANES)
    for body in bodies:
        _leave(code, op, program, body, code.bits(active & returned_from.equals(program.bodies.index(body))))


def choose(code: BlockCode, op: Op, program: Program, numbers: list[int], following: int) -> Value:
    """Write a call through a register: each lane's arguments go to its function.

    Returns the basic block that each lane goes to.
    """
    target = op.operands[1]
    assert isinstance(target, IndirectCallee)
    active = code.active(op)
    word = Type("u", target.register.bits)
    addresses = code.frame.get(target.register.offset, word, abi.LANES).to(u64)
    chosen = [active & addresses.equals(program.functions[name].address) for name in target.names]
    none = active
    for selected in chosen:
        none = none & ~selected
    lost = code.bits(none)
    with code.when(lost.differs(0)):
        lane = code.first_lane(lost)
        address = Value(code, u64, code.builder.extract_element(addresses.handle, lane.handle))
        code.fault(FaultKind.BAD_CALL, op.site, lane, address)
    targets = code.constant(u32.by(abi.LANES), 0)
    for name, number, selected in zip(target.names, numbers, chosen, strict=True):
        enter(code, op, program, program.body(name), code.bits(selected), following)
        targets = selected.select(code.constant(u32.by(abi.LANES), number), targets)
    return targets


def note_return(code: BlockCode, program: Program, body: FunctionBody, active: Value) -> None:
    """Remember which function lanes return from, for calls through registers."""
    pointer = code.frame.pointer(program.returned.offset, u32)
    index = code.constant(u32.by(abi.LANES), program.bodies.index(body))
    pointer.store(active.select(index, pointer.load(0, abi.LANES)))


def stack(code: BlockCode, op: Op) -> None:
    """Lower alloca, stacksave and stackrestore, which use addresses in local memory."""
    program = code.kernel.program
    with code.each_lane(code.bits(code.active(op))) as lane:
        used = code.lane_read(program.stack, u64, lane)
        if op.record.opcode == "stacksave":
            code.lane_write(op.operands[0], used + program.stack_base, lane)
        else:
            if op.record.opcode == "stackrestore":
                now = code.lane_read(op.operands[0], u64, lane) - program.stack_base
            else:
                alignment = max([16, *(int(getattr(operand, "bits", 16)) for operand in op.operands[2:])])
                start = (used + (program.stack_base + alignment - 1)) & -alignment
                code.lane_write(op.operands[0], start, lane)
                most = code.constant(u64, abi.STACK_BYTES + 1)
                size = code.lane_read(op.operands[1], u64, lane)
                now = ((start + (size > most).select(most, size) + 15) & -16) - program.stack_base
            with code.when(now > abi.STACK_BYTES):
                code.fault(FaultKind.STACK, op.site, lane)
            code.lane_write(program.stack, now, lane)
