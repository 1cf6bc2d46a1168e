"""Functions of a kernel while they are written: records of the ABI, lanes, faults, shared functions.

A function takes pointers and numbers, all 64 bits wide. Lowerings of instructions are in other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lanewise.jit import ir
from lanewise.jit.record_layout import RecordLayout
from lanewise.jit.simd import Code, Pointer, Type, Value, i64, u8, u16, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockAnswer, FaultKind
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes
from lanewise.machine.errors import UnfitOperand
from lanewise.machine.program.operands import MemoryOperand, Register, ResolvedOperand, Sink, Symbol
from lanewise.machine.program.ops import Op, Program
from lanewise.ptx import Immediate

BYTE = ir.IntType(8).as_pointer()
#: The names that the checker has for these types.
U8, U16, U32, U64 = u8, u16, u32, u64


@dataclass(frozen=True)
class Kernel:
    """The kernel that code is written for, and the GPU whose matrix instructions it computes like."""

    program: Program
    arch: str
    #: Whether somebody looks at the registers after every instruction.
    is_traced: bool = False

    def symbol_address(self, symbol: Symbol) -> int:
        """Return the address of a variable in its space; dynamic shared memory follows the static."""
        return symbol.address + (self.program.dynamic_offset if symbol.space == "dynamic" else 0)


@dataclass(frozen=True)
class RegisterSlot:
    """A register whose size is known while code is written; its offset is an operand, read at run time."""

    bits: int
    is_predicate: bool
    offset: Value

    @classmethod
    def like(cls, register: Register, offset: Value) -> RegisterSlot:
        """Return a slot for registers of the same kind at another offset."""
        return cls(register.bits, register.is_predicate, offset)


@dataclass(frozen=True)
class AddressSlot:
    """An address in a register whose offset and displacement are operands, read at run time."""

    base: RegisterSlot
    offset: Value


def write_zeros(code: Code, to: Value, size: Value) -> None:
    """Write code that sets bytes at an address to zero."""
    types = [BYTE, ir.IntType(8), ir.IntType(64), ir.IntType(1)]
    function = code.external("llvm.memset.p0.i64", ir.VoidType(), types)
    zeros = [ir.Constant(ir.IntType(8), 0), size.handle, ir.Constant(ir.IntType(1), 0)]
    code.builder.call(function, [code.builder.inttoptr(to.handle, BYTE), *zeros])


class FunctionCode(Code):
    """A function of 64-bit pointers and numbers that returns a 32-bit number or a pointer."""

    unrolled = False  # unrolling would only take time to compile

    def __init__(
        self,
        module: ir.Module,
        name: str,
        arguments: tuple[str, ...],
        result: ir.Type,
        linkage: str = "internal",
    ) -> None:
        self.module = module
        kinds = [ir.IntType(64)] * len(arguments)
        self.function = ir.Function(module, ir.FunctionType(result, kinds), name)
        self.function.linkage = linkage
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        body = self.function.append_basic_block("body")
        self.builder.branch(body)
        self.builder.position_at_end(body)
        self._arguments = {
            argument: Value(self, i64, handle)
            for argument, handle in zip(arguments, self.function.args, strict=True)
        }

    def number(self, number: int | Value) -> Value:
        """Return a Python number as a 64-bit constant; a Value stays as it is."""
        return number if isinstance(number, Value) else self.constant(i64, number)

    def record(self, argument: str) -> Record:
        """Return an argument as the address of a record."""
        return Record(self, self[argument])

    def give(self, number: int | Value) -> None:
        """Return a number from the function."""
        kind = self.function.return_type
        handle = ir.Constant(kind, number) if isinstance(number, int) else number.handle
        self.builder.ret(handle)

    def end(self) -> None:
        """Return 0 where the function has not returned yet."""
        if not self.builder.block.end:
            self.give(0)

    def stop_if(self, condition: Value) -> None:
        """Return from the function if the launch stops."""
        with self.when(condition):
            self.give(BlockAnswer.STOPPING)

    def invoke(self, function: ir.Operand | Value, *values: Value | int) -> Value:
        """Call a function of 64-bit numbers, or the one at an address, and return its answer.

        Narrower numbers are extended by zeros. A function at an address answers with 32 bits.
        """
        numbers = [self.number(value) for value in values]
        wide = [number.to(u64).to(i64) if number.type.bits < 64 else number for number in numbers]
        if isinstance(function, Value):
            kind = ir.FunctionType(ir.WORD, [ir.LONG] * len(wide))
            function = self.builder.inttoptr(function.handle, kind.as_pointer())
        answer = self.builder.call(function, [value.handle for value in wide])
        return Value(self, i64 if answer.type.text == ir.LONG.text else u32, answer)

    def invoke_or_stop(self, function: ir.Operand | Value, *values: Value | int) -> None:
        """Call a function as `invoke` does; unless it answers 0, the launch stops."""
        self.stop_if(self.invoke(function, *values).differs(0))

    def room(self, type: Type, count: int, align: int = 64) -> Pointer:
        """Return memory on the stack for some elements; its content is arbitrary."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(ir.ArrayType(ir.IntType(8), count * type.bits // 8), align=align)
        return Pointer(self, type, self.builder.bitcast(slot, BYTE))

    def stack_record(self, bytes: int, align: int = 8, layout: type[RecordLayout] | None = None) -> Record:
        """Return memory on the stack as a record."""
        place = self.builder.ptrtoint(self.room(u8, bytes, align).handle, ir.LONG)
        return Record(self, Value(self, i64, place), layout)

    def load_unaligned(self, place: ir.Operand, type: Type) -> Value:
        """Load a value or a vector from a host address, which need not be aligned as the device's is."""
        pointer = self.builder.bitcast(place, type.ir.as_pointer())
        return Value(self, type, self.builder.load(pointer, align=1))

    def store_unaligned(self, value: Value, place: ir.Operand) -> None:
        """Store a value or a vector to a host address, which need not be aligned as the device's is."""
        pointer = self.builder.bitcast(place, value.type.ir.as_pointer())
        self.builder.store(value.handle, pointer, align=1)

    def copy_bytes(self, to: Value, source: Value, size: Value, may_overlap: bool = False) -> None:
        """Write code that copies bytes from one address to another."""
        types = [BYTE, BYTE, ir.IntType(64), ir.IntType(1)]
        name = "memmove" if may_overlap else "memcpy"
        function = self.external(f"llvm.{name}.p0.p0.i64", ir.VoidType(), types)
        handles = [self.builder.inttoptr(address.handle, BYTE) for address in (to, source)]
        self.builder.call(function, [*handles, size.handle, ir.Constant(ir.IntType(1), 0)])

    zero_bytes = write_zeros

    def record_fault(
        self,
        block: Record,
        kind: FaultKind,
        site: int | Value,
        lane: Value | int,
        address: Value | int,
        size: int | Value,
    ) -> None:
        """Write the reason why a thread block stops into its record."""
        fields = abi.BlockRecord
        block.set(fields.fault_kind, kind)
        for field, value in (
            (fields.fault_site, site),
            (fields.fault_lane, lane),
            (fields.fault_address, address),
            (fields.fault_size, size),
        ):
            block.set(field, self.number(value).to(i64))


class Record:
    """Code that reads and writes a record in memory by the offsets of its fields."""

    def __init__(self, code: Code, address: Value, layout: type[RecordLayout] | None = None) -> None:
        self.code, self.address, self.layout = code, address, layout
        self.handle = code.builder.inttoptr(address.handle, BYTE)

    def pointer(self, offset: int | Value, type: Type) -> Pointer:
        """Return a pointer to a field."""
        offset = offset if isinstance(offset, Value) else self.code.constant(i64, offset)
        return Pointer(self.code, type, self.code.builder.gep(self.handle, [offset.handle]))

    def get(self, offset: int | Value, type: Type = i64, lanes: int = 1) -> Value:
        """Load a field, or a vector of `lanes` elements."""
        return self.pointer(offset, type).load(0, lanes)

    def set(self, offset: int | Value, value: Value | int) -> None:
        """Store a field; a plain number is stored as 64 bits."""
        value = value if isinstance(value, Value) else self.code.constant(i64, value)
        self.pointer(offset, value.type.by(1)).store(value)

    def at(self, offset: int) -> Record:
        """Return the record that a field points to; its layout is known if that is declared."""
        fields = self.layout.FIELDS.values() if self.layout else ()
        target = next((field.target for field in fields if field.offset == offset and field.is_pointer), None)
        return Record(self.code, self.get(offset), target() if callable(target) else None)


class BlockCode(FunctionCode):
    """A function `i32 f(frame, …)` of a warp: a step of threaded code or the end of a basic block.

    It returns 0, the number of a basic block, or a `BlockAnswer`.
    """

    def __init__(
        self,
        module: ir.Module,
        name: str,
        more: tuple[str, ...] = (),
        linkage: str = "internal",
        kernel: Kernel | None = None,
    ) -> None:
        super().__init__(module, name, ("frame", *more), ir.IntType(32), linkage)
        self.function.attributes.add("noinline")  # compile time stays in proportion to the code
        self.frame = self.record("frame")
        self._kernel = kernel
        #: Values returned by `mask_lanes` and `active`, with the guard; `bits` loads them as bits instead.
        self.masks: dict[str, tuple[int, bool] | None] = {}

    @property
    def kernel(self) -> Kernel:
        """The kernel that the function is written for; shared functions have none."""
        assert self._kernel is not None, self.function.name
        return self._kernel

    @property
    def block(self) -> Record:
        """The record of the thread block."""
        return self.frame.at(abi.WarpFrame.block)

    @property
    def launch(self) -> Record:
        """The record of the launch."""
        return self.block.at(abi.BlockRecord.launch)

    def all_lanes(self) -> Lanes:
        """Return the registers of all 32 lanes as vectors."""
        zero, kernel = self.constant(i64, 0), self._kernel
        if kernel is None:
            return Lanes(self, self.frame.handle, zero, abi.LANES)
        program = kernel.program
        return Lanes(
            self, self.frame.handle, zero, abi.LANES, program.dynamic_offset, program.may_have_clusters
        )

    # which lanes ------------------------------------------------------------------------------------------

    def mask_bits(self) -> Value:
        """Return the lanes that execute the basic block, as bits."""
        return self.frame.get(abi.WarpFrame.mask, u32)

    def mask_lanes(self) -> Value:
        """Return the lanes that execute the basic block, as conditions."""
        lanes = self.frame.get(abi.WarpFrame.mask_bytes, u8, abi.LANES).differs(0)
        self.masks[lanes.handle.text] = None
        return lanes

    def active(self, op: Op | None) -> Value:
        """Return the lanes for which an instruction's guard holds too."""
        mask = self.mask_lanes()
        if op is None or op.guard is None:
            return mask
        register, negated = op.guard
        holds = self.frame.get(register.offset, u8, abi.LANES).differs(0)
        lanes = mask & (~holds if negated else holds)
        self.masks[lanes.handle.text] = (register.offset, negated)
        return lanes

    def bits(self, condition: Value) -> Value:
        """Return conditions of 32 lanes as the bits of a word."""
        name = condition.handle.text
        if name in self.masks:
            guard = self.masks[name]
            if guard is None:
                return self.mask_bits()
            return self.invoke(guarded(self.module), self["frame"], *guard)
        return Value(self, u32, self.builder.bitcast(condition.handle, ir.IntType(32)))

    def lanes_of(self, bits: Value) -> Value:
        """Return the bits of a word as conditions of 32 lanes."""
        vector = ir.VectorType(ir.IntType(1), abi.LANES)
        return Value(self, BOOL.by(abi.LANES), self.builder.bitcast(bits.handle, vector))

    def first_lane(self, bits: Value) -> Value:
        """Return the lowest lane whose bit is set; 32 if there is none."""
        return self.intrinsic("cttz", u32, [bits, self.constant(BOOL, 0)]).to(u64).to(i64)

    @contextmanager
    def each_lane(self, active: Value) -> Iterator[Value]:
        """Run the body for every lane whose bit is set, with the lane's number."""
        with self.loop(abi.LANES) as lane:
            chosen = (active >> lane.to(u32)) & 1
            with self.when(chosen.differs(0)):
                yield lane

    # one lane's registers and addresses -------------------------------------------------------------------

    def lane_read(self, operand: ResolvedOperand | RegisterSlot, type: Type, lane: Value) -> Value:
        """Return the value of an operand in one lane."""
        if isinstance(operand, Register | RegisterSlot):
            value = self.frame.pointer(operand.offset, Type("u", operand.bits)).load(lane)
            return value.differs(0) if operand.is_predicate else _scalar_fit(value, type)
        if isinstance(operand, Immediate):
            return Lanes.immediate_of(self, operand, type)
        vector = self.all_lanes().read(operand, type)
        return Value(self, type, self.builder.extract_element(vector.handle, lane.handle))

    def lane_write(self, operand: ResolvedOperand | RegisterSlot, value: Value, lane: Value) -> None:
        """Write one lane's value to a register."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register | RegisterSlot):
            raise UnfitOperand("its result is not one register")
        if operand.is_predicate:
            value = value.to(u8)
        else:
            if value.type.kind == "f":
                value = value.view(Type("u", value.type.bits))
            value = value.to(Type(value.type.kind, operand.bits))
        self.frame.pointer(operand.offset, Type("u", operand.bits)).store(value, lane)

    def address_of(self, address: MemoryOperand | AddressSlot, lane: Value) -> Value:
        """Return one lane's address; a 32-bit register wraps around before it is extended."""
        base = address.base
        if isinstance(base, Register | RegisterSlot):
            word = self.frame.pointer(base.offset, Type("u", base.bits)).load(lane)
            offset = address.offset
            if isinstance(offset, int):
                offset = self.constant(i64, offset)
            return (word + offset.to(word.type)).to(u64)
        start = self.kernel.symbol_address(base) if isinstance(base, Symbol) else base.bits
        assert isinstance(address.offset, int)
        result = self.constant(u64, start + address.offset)
        if isinstance(base, Symbol) and base.space in ("shared", "dynamic"):
            result = result + self.block.get(abi.BlockRecord.shared_first, u64)
        return result

    # where lanes go ---------------------------------------------------------------------------------------

    def set_pcs(self, condition: Value, number: int) -> None:
        """Send some lanes to a basic block."""
        pcs = self.frame.pointer(abi.WarpFrame.pcs, u32)
        pcs.store(condition.select(self.constant(u32.by(abi.LANES), number), pcs.load(0, abi.LANES)))

    def fault(
        self,
        kind: FaultKind,
        site: int | Value,
        lane: Value | int = 0,
        address: Value | int = 0,
        size: int | Value = 0,
    ) -> None:
        """Record why the launch stops, and return from the function."""
        self.record_fault(self.block, kind, site, lane, address, size)
        self.give(BlockAnswer.STOPPING)

    def demand_whole_warp(self, site: Value) -> None:
        """Return from a step that no lane executes, and stop the launch if only some lanes do."""
        active = self["active"].to(u32)
        with self.when(active.equals(0)):
            self.give(0)
        with self.when(active.differs(-1)):
            self.fault(FaultKind.DIVERGENCE, site)

    def fault_where(self, wrong: Value, kind: FaultKind, site: int, address: Value | int = 0) -> None:
        """Stop the launch if any bit is set in `wrong`; the first such lane is named."""
        with self.when(wrong.differs(0)):
            self.fault(kind, site, self.first_lane(wrong), address)


#: Writes a function into a module, with a linkage that lets other modules call it.
Write = Callable[[ir.Module, str], None]


class CompiledQuickly:
    """The writer of a function in which little of a launch's time is spent: LLVM's passes cost more."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def __call__(self, module: ir.Module, name: str) -> None:
        self._write(module, name)


def shared(
    module: ir.Module, name: str, type: ir.Type, write: Write, *, quickly: bool = False
) -> ir.Function:
    """Declare a function that all kernels share; it is compiled apart and once, so its name identifies it.

    It is compiled `quickly` if little of a launch's time is spent in it.
    """
    existing: ir.Function | None = module.functions.get(name)
    if existing is not None:
        return existing
    module.apart[name] = CompiledQuickly(write) if quickly else write
    return ir.Function(module, type, name)


def shared_code(
    module: ir.Module,
    name: str,
    more: tuple[str, ...],
    write: Callable[[BlockCode], None],
    *,
    quickly: bool = False,
) -> ir.Function:
    """Declare a shared function of the frame and of more numbers; unless another is given, it returns 0."""
    type = ir.FunctionType(ir.WORD, [ir.LONG] * (1 + len(more)))

    def write_function(module: ir.Module, name: str) -> None:
        code = BlockCode(module, name, more, "")
        write(code)
        code.end()

    return shared(module, name, type, write_function, quickly=quickly)


def routine(
    module: ir.Module,
    name: str,
    arguments: tuple[str, ...],
    write: Callable[[FunctionCode], None],
    result: ir.Type = ir.WORD,
    *,
    quickly: bool = False,
) -> ir.Function:
    """Declare a shared function of numbers, without a frame; unless another is given, it returns 0."""
    type = ir.FunctionType(result, [ir.LONG] * len(arguments))

    def write_function(module: ir.Module, name: str) -> None:
        code = FunctionCode(module, name, arguments, result, "")
        write(code)
        code.end()

    return shared(module, name, type, write_function, quickly=quickly)


def shared_function(
    name: str, more: tuple[str, ...], *, quickly: bool = False
) -> Callable[[Callable[[BlockCode], None]], Callable[[ir.Module], ir.Function]]:
    """Make of what writes a shared function the function that declares it in a module."""

    def declaring(write: Callable[[BlockCode], None]) -> Callable[[ir.Module], ir.Function]:
        return lambda module: shared_code(module, name, more, write, quickly=quickly)

    return declaring


def shared_routine(
    name: str, arguments: tuple[str, ...], result: ir.Type = ir.WORD, *, quickly: bool = False
) -> Callable[[Callable[[FunctionCode], None]], Callable[[ir.Module], ir.Function]]:
    """Make of what writes a shared function without a frame the function that declares it in a module."""

    def declaring(write: Callable[[FunctionCode], None]) -> Callable[[ir.Module], ir.Function]:
        return lambda module: routine(module, name, arguments, write, result, quickly=quickly)

    return declaring


@shared_function("guarded", ("predicate", "negated"))
def guarded(code: BlockCode) -> None:
    """`guarded(frame, predicate, negated)`: the active lanes whose predicate holds, as bits."""
    negated = code["negated"].to(u8).spread(abi.LANES)
    holds = code.frame.get(code["predicate"], u8, abi.LANES).differs(negated)
    code.give(code.bits(code.mask_lanes() & holds))


def guarded_bits(code: BlockCode, predicate: Value, negated: Value) -> Value:
    """The lanes that `guarded` returns, computed in place: in the scheduler a call costs more than that."""
    holds = code.frame.get(predicate, u8, abi.LANES).differs(negated.to(u8).spread(abi.LANES))
    return code.bits(code.mask_lanes() & holds)


def _scalar_fit(value: Value, type: Type) -> Value:
    """Return a word as another type: truncated or extended, then with the same bits."""
    if value.type.bits != type.bits:
        kind = "u" if type.kind == "f" else type.kind
        value = value.to(Type(value.type.kind, type.bits)).to(Type(kind, type.bits))
    return value.view(Type(type.kind, type.bits))
