"""The checker's steps for Tensor Cores: the registers of wgmma, and what tcgen05 does to tensor memory.

Registers of wgmma are followed because they may be in flight, or written without a fence.
"""

from collections.abc import Callable
from typing import NamedTuple

from lanewise.jit import ir
from lanewise.jit.compiled_functions import Function, Library, Reference
from lanewise.jit.simd import Value, i64
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.analysis.warpgroup_registers import Product, RegisterEvent, Touch
from lanewise.machine.checker.proxy_records import AsyncClock, RegisterState, TensorWait
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.warp_order import register_suspected
from lanewise.machine.checker.watch_code.tensor.cells import (
    allocate_columns,
    fence_after_sync,
    free_columns,
    move_words,
    wait_for_moves,
)
from lanewise.machine.checker.watch_code.tensor.pipe_operations import (
    Hook,
    commit_issued,
    copy_hooks,
    product_issued,
    shift_issued,
)
from lanewise.machine.codegen.function_code import U32, U64, BlockCode, Record
from lanewise.machine.program.instruction_table import MOST_ROWS
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, elements_of
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate

#: Words of an event in the operands of a step: what is done, the register, its source, the site.
_WORDS = 4
#: Operands of both steps: how many registers are followed, then those of their own.
_FOLLOWED, _FIRST = 0, 8


def event_operands(registers: int, events: list[RegisterEvent]) -> list[int]:
    """Return the operands of `touch_registers`."""
    return [registers, len(events), *(int(word) for event in events for word in event)]


def product_operands(registers: int, site: int, product: Product) -> list[int]:
    """Return the operands of `check_product`."""
    lists = (product.accumulators, product.read)
    shape = len(product.accumulators)
    return [registers, site, shape, *(word for numbers in lists for word in (len(numbers), *numbers))]


class _Registers:
    """The states of the registers that are followed, of the warp that runs."""

    def __init__(self, code: BlockCode, operands: Record) -> None:
        self.code = code
        observed = code.block.at(BlockRecord.watch)
        index = code.frame.get(WarpFrame.index)
        size = operands.get(_FOLLOWED) * RegisterState.BYTES
        self.states = observed.get(BlockWatch.register_states) + index * size
        self.clock = Record(code, observed.get(BlockWatch.async_clocks) + index * AsyncClock.BYTES)

    def state(self, register: Value) -> Record:
        """Return the state of a register by its index."""
        return Record(self.code, self.states + register * RegisterState.BYTES)

    def in_flight(self, state: Record) -> Value:
        """Return whether a wgmma that writes the register is not known to be complete."""
        return self._number(state, RegisterState.group) > self.clock.get(AsyncClock.wgmma_done)

    def is_read(self, state: Record) -> Value:
        """Return whether a wgmma that reads the register is not known to be complete."""
        return self._number(state, RegisterState.read_group) > self.clock.get(AsyncClock.wgmma_done)

    @staticmethod
    def _number(state: Record, field: int) -> Value:
        return state.get(field, U32).to(U64).to(i64)

    def suspect(self, kind: Suspicion, site: Value, register: Value, other: Value) -> None:
        """Report a suspicion to Python."""
        register_suspected.call(
            self.code,
            frame=Reference(WarpFrame, self.code["frame"]),
            row=site * MOST_ROWS,
            register=register,
            other=other,
            kind=int(kind),
        )


def touch_registers(code: BlockCode, operands: Record) -> None:
    """Operands: followed, how many events, events. Instructions touch registers of wgmma."""
    registers = _Registers(code, operands)
    registers.clock.set(AsyncClock.sums, 0)
    with code.when(code["active"].to(U32).differs(0)), code.loop(operands.get(_FIRST)) as number:
        event = Record(code, operands.address + number * (8 * _WORDS) + (_FIRST + 8))
        touch, register, source, site = (event.get(8 * word) for word in range(_WORDS))
        state = registers.state(register)
        copied = touch.equals(Touch.COPIED)
        with code.when(copied):
            origin = registers.state(source)
            # Another value than the one that a wgmma in flight reads from there.
            differs = origin.get(RegisterState.written, U32).differs(state.get(RegisterState.written, U32))
            differs = differs | origin.get(RegisterState.writer, U32).differs(
                state.get(RegisterState.writer, U32)
            )
            with code.when(registers.is_read(state) & differs):
                reads = state.get(RegisterState.product, U32).to(U64).to(i64)
                registers.suspect(Suspicion.REGISTER_IN_FLIGHT, site, register, reads)
            for state_field in RegisterState.FIELDS.values():
                state.set(state_field.offset, origin.get(state_field.offset, U32))
        other = state.get(RegisterState.product, U32).to(U64).to(i64)
        writes = touch.equals(Touch.WRITTEN) | touch.equals(Touch.SET)
        busy = registers.in_flight(state) | (writes & registers.is_read(state))
        with code.when(~copied & busy):
            registers.suspect(Suspicion.REGISTER_IN_FLIGHT, site, register, other)
        with code.when(writes):
            computed = touch.equals(Touch.WRITTEN)
            fences = (registers.clock.get(AsyncClock.fences) + 1).to(U32)
            for field, value in (
                (RegisterState.group, code.constant(U32, 0)),
                (RegisterState.read_group, code.constant(U32, 0)),
                (RegisterState.written, computed.select(fences, code.constant(U32, 0))),
                (RegisterState.writer, site.to(U32)),
            ):
                state.set(field, value)


def check_product(code: BlockCode, operands: Record) -> None:
    """Operands: followed, site, shape, accumulators and registers that are read, each with their count."""
    registers = _Registers(code, operands)
    site, shape = operands.get(_FIRST), operands.get(_FIRST + 8).to(U32)
    fences, group = (registers.clock.get(counter) for counter in (AsyncClock.fences, AsyncClock.wgmma_groups))
    place = code.variable(operands.address + (_FIRST + 16))
    with code.when(code["active"].equals(0)):
        code.give(0)
    is_reported = code.variable(code.constant(U32, 0))
    with code.when(fences.equals(0)):
        registers.suspect(Suspicion.NO_WGMMA_FENCE, site, code.constant(i64, 0), code.constant(i64, 0))
        is_reported.set(code.constant(U32, 1))
    for field in (RegisterState.group, RegisterState.read_group):
        words = Record(code, place.get())
        count = words.get(0)
        looped = count
        if field == RegisterState.group:
            # Sums of the wgmma before, in the same group: there is nothing new to be said of them.
            first, last = words.get(8), words.get(count * 8)
            side_by_side = (last - first + 1).equals(count)
            sums = side_by_side.select((first << 32) | count, code.constant(i64, 0))
            known = registers.clock.get(AsyncClock.sums).equals(sums) & sums.differs(0)
            known = known & registers.clock.get(AsyncClock.sums_group).equals(group + 1)
            looped = known.select(code.constant(i64, 0), count)
            registers.clock.set(AsyncClock.sums, sums)
            registers.clock.set(AsyncClock.sums_group, group + 1)
        with code.loop(looped) as number:
            register = words.get(number * 8 + 8)
            state = registers.state(register)
            unfenced = state.get(RegisterState.written, U32).to(U64).to(i64) > fences
            with code.when(unfenced & is_reported.get().equals(0)):
                other = state.get(RegisterState.writer, U32).to(U64).to(i64)
                registers.suspect(Suspicion.REGISTER_UNFENCED, site, register, other)
                is_reported.set(code.constant(U32, 1))
            # Sums in flight may be those of this product, if it has the same shape, but not its factor.
            busy = registers.in_flight(state)
            if field == RegisterState.group:
                busy = busy & state.get(RegisterState.shape, U32).differs(shape)
            with code.when(busy & is_reported.get().equals(0)):
                other = state.get(RegisterState.product, U32).to(U64).to(i64)
                registers.suspect(Suspicion.REGISTER_IN_FLIGHT, site, register, other)
                is_reported.set(code.constant(U32, 1))
            state.set(field, (group + 1).to(U32))
            state.set(RegisterState.product, site.to(U32))
            if field == RegisterState.group:
                state.set(RegisterState.shape, shape)
        place.set(place.get() + count * 8 + 8)


#: What is called when an operation of the pipe is issued, by the second word of the instruction, and for a
#: copy by its shape.
_HOOKS: dict[str, Hook] = {"mma": product_issued, "shift": shift_issued, "commit": commit_issued} | {
    f"cp {name}": hook for name, hook in copy_hooks.items()
}
#: Lanes that a shape of tcgen05.ld and st reaches, but for those of 16 lanes.
_WHOLE_WARP = "32x32b"
_HALVES = "16x32bx2"


_WAITS = {
    "wait::ld": TensorWait.LOADS,
    "wait::st": TensorWait.STORES,
    "fence::before_thread_sync": TensorWait.FENCE,
}


class TensorStep(NamedTuple):
    """A step by the name of its function, and its operands."""

    name: str
    operands: list[int]


def tensor_step(op: Op) -> TensorStep | None:
    """Return the step before an instruction of tcgen05; None if it has none."""
    row, verb = MOST_ROWS * op.site, op.source.head.split(".")[1]
    if verb == "cp":
        shape = next(name for name in copy_hooks if set(name.split(".")) <= set(op.modifiers))
        return TensorStep(_hook_step(f"cp {shape}"), [])
    if verb in _HOOKS:
        return TensorStep(_hook_step(verb), [])
    match verb:
        case "ld" | "st":
            return TensorStep("check_tensor_move", [row, *_move(op, verb == "st")])
        case "wait::ld" | "wait::st" | "fence::before_thread_sync":
            return TensorStep("check_tensor_wait", [_WAITS[verb]])
        case "fence::after_thread_sync":
            return TensorStep("check_tensor_fence", [])
        case "alloc":
            return TensorStep("check_tensor_alloc", [row, *_operand(op.operands[-1])])
        case "dealloc":
            address, count = op.operands
            return TensorStep("check_tensor_dealloc", [row, *_operand(address), *_operand(count)])
    return None


def _hook_step(verb: str) -> str:
    """Return the name of the step that sets a hook."""
    return f"set tensor hook of {verb}"


def _operand(operand: ResolvedOperand) -> list[int]:
    """Return a 32-bit operand as a register's offset (0: none) and a number."""
    if isinstance(operand, MemoryOperand):
        register, number = _operand(operand.base)
        return [register, number + operand.offset]
    if isinstance(operand, Register):
        return [operand.offset, 0]
    return [0, operand.bits & 0xFFFFFFFF if isinstance(operand, Immediate) else 0]


def _move(op: Op, stores: bool) -> list[int]:
    """Return the operands of a load or store: address, lanes, columns, columns to the second half."""
    operands = list(op.operands)
    (address,) = (operand for operand in operands if isinstance(operand, MemoryOperand))
    vector = operands[operands.index(address) + 1 if stores and not op.has(_HALVES) else -1 if stores else 0]
    lanes = 32 if op.has(_WHOLE_WARP) else 16
    words = len(elements_of(vector)) * 32
    is_packed = op.has("pack::16b") or op.has("unpack::16b")
    halves = 2 if op.has(_HALVES) else 1
    columns = words // (lanes * halves) * (2 if is_packed else 1)
    split = operands[operands.index(address) + 1] if op.has(_HALVES) else None
    distance = split.bits if isinstance(split, Immediate) else 0
    return [*_operand(address), lanes, columns, distance, int(stores)]


# the functions ----------------------------------------------------------------------------------------------


#: Writes the function of a step, given its operands.
StepWriter = Callable[[BlockCode, Record], None]


def calls(function: Function[..., None], *names: str) -> StepWriter:
    """Return the writer of a step that calls a function with the active lanes, and its operands by name."""

    def write(code: BlockCode, operands: Record) -> None:
        frame, given = Reference(WarpFrame, code["frame"]), enumerate(names)
        named = {name: operands.get(8 * number) for number, name in given}
        function.call(code, frame=frame, active=code["active"], **named)

    return write


def sets_hooks(**hooks: Function[..., None]) -> StepWriter:
    """Return the writer of a step that has functions called by the next operation, by fields of a block."""

    def write(code: BlockCode, operands: Record) -> None:
        for field, hook in hooks.items():
            function = code.builder.ptrtoint(Library.of(code.module).declared(hook), ir.LONG)
            code.block.set(getattr(BlockRecord, field), Value(code, i64, function))

    return write


def _check_move(code: BlockCode, operands: Record) -> None:
    """A warp loads or stores columns; a store that is kept has been looked at then."""
    calls(move_words, "row", "register", "number", "lanes", "columns", "split", "stores")(code, operands)
    code.block.set(BlockRecord.issued_hook, 0)


#: The functions of the steps by name.
TENSOR_STEPS: dict[str, StepWriter] = {
    "check_tensor_move": _check_move,
    "check_tensor_wait": calls(wait_for_moves, "kind"),
    "check_tensor_fence": calls(fence_after_sync),
    "check_tensor_alloc": calls(allocate_columns, "row", "count_register", "count"),
    "check_tensor_dealloc": calls(free_columns, "row", "register", "number", "count_register", "count"),
} | {_hook_step(verb): sets_hooks(issued_hook=hook) for verb, hook in _HOOKS.items()}
