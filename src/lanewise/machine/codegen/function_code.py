"""A block of code being written: `i32 block(frame)`, which returns the number of the block that follows.

-1 says that the lanes' pcs were stored, -2 that the launch stops or Python is wanted, -3 that the whole warp
waits at a barrier. Loops over lanes, the frame's records and faults are here; what instructions do is
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Code, Pointer, Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes
from lanewise.machine.program.resolve import Op, Place, Program, Register, Resolved, Sink, Symbol
from lanewise.ptx import Immediate

BYTE = ir.IntType(8).as_pointer()
U8, U32, U64 = Type("u", 8), Type("u", 32), Type("u", 64)
DIVERGED, STOPPING, TOGETHER = -1, -2, -3


class FunctionCode(Code):
    """A function of pointers and numbers, all 64 bits wide, that returns a 32-bit number or a pointer."""

    unrolled = False  # that would only take time to compile

    def __init__(
        self, module: ir.Module, name: str, arguments: tuple[str, ...], result: Any, linkage: str = "internal"
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
            each: Value(self, i64, handle) for each, handle in zip(arguments, self.function.args, strict=True)
        }

    def number(self, number: int | Value) -> Value:
        """A 64-bit number."""
        return number if isinstance(number, Value) else self.constant(i64, number)

    def record(self, argument: str) -> Record:
        """An argument as the address of a record."""
        return Record(self, self[argument])

    def give(self, number: int | Value) -> None:
        """Return a number."""
        kind = self.function.return_type
        handle = ir.Constant(kind, number) if isinstance(number, int) else number.handle
        self.builder.ret(handle)


class Record:
    """Memory with fields at known offsets."""

    def __init__(self, code: Code, address: Value) -> None:
        self.code, self.address = code, address
        self.handle = code.builder.inttoptr(address.handle, BYTE)

    def pointer(self, offset: int | Value, type: Type) -> Pointer:
        """The place of a field."""
        offset = offset if isinstance(offset, Value) else self.code.constant(i64, offset)
        return Pointer(self.code, type, self.code.builder.gep(self.handle, [offset.handle]))

    def get(self, offset: int | Value, type: Type = i64, lanes: int = 1) -> Value:
        """A field."""
        return self.pointer(offset, type).load(0, lanes)

    def set(self, offset: int | Value, value: Value | int) -> None:
        """Change a field; a plain number is one of 64 bits."""
        value = value if isinstance(value, Value) else self.code.constant(i64, value)
        self.pointer(offset, value.type.by(1)).store(value)

    def at(self, offset: int) -> Record:
        """The record that a field points to."""
        return Record(self.code, self.get(offset))


class BlockCode(FunctionCode):
    """A block of code of a warp."""

    def __init__(
        self, module: ir.Module, name: str, more: tuple[str, ...] = (), linkage: str = "internal"
    ) -> None:
        super().__init__(module, name, ("frame", *more), ir.IntType(32), linkage)
        self.function.attributes.add("noinline")  # compile time stays in proportion to the code
        self.frame = self.record("frame")
        #: What `mask_lanes` and `active` returned, with the guard: as bits there is a quicker way to it.
        self.masks: dict[str, tuple[int, bool] | None] = {}

    @property
    def block(self) -> Record:
        """The record of the block of threads."""
        return self.frame.at(abi.BLOCK)

    def mask_bits(self) -> Value:
        """The lanes that take part, as bits."""
        return self.frame.get(abi.MASK, U32)

    def mask_lanes(self) -> Value:
        """The lanes that take part, as conditions."""
        lanes = self.frame.get(abi.MASK_BYTES, U8, abi.LANES).differs(0)
        self.masks[lanes.handle.text] = None
        return lanes

    def active(self, op: Op | None) -> Value:
        """The lanes for which an instruction's guard holds too."""
        mask = self.mask_lanes()
        if op is None or op.guard is None:
            return mask
        register, negated = op.guard
        holds = self.frame.get(register.offset, U8, abi.LANES).differs(0)
        lanes = mask & (~holds if negated else holds)
        self.masks[lanes.handle.text] = (register.offset, negated)
        return lanes

    def bits(self, condition: Value) -> Value:
        """Conditions of 32 lanes as bits of a word."""
        name = condition.handle.text
        if name in self.masks:
            guard = self.masks[name]
            if guard is None:
                return self.mask_bits()
            return call(self, guarded(self.module), [self["frame"], *guard])
        return Value(self, U32, self.builder.bitcast(condition.handle, ir.IntType(32)))

    def lanes_of(self, bits: Value) -> Value:
        """Bits of a word as conditions of 32 lanes."""
        vector = ir.VectorType(ir.IntType(1), abi.LANES)
        return Value(self, BOOL.by(abi.LANES), self.builder.bitcast(bits.handle, vector))

    @contextmanager
    def each_lane(self, active: Value) -> Iterator[Value]:
        """The body for every lane among some (bits), with the lane's number."""
        with self.loop(abi.LANES) as lane:
            chosen = (active >> lane.to(U32)) & 1
            with self.when(chosen.differs(0)):
                yield lane

    def lane_read(self, operand: Resolved, type: Type, lane: Value) -> Value:
        """What one lane has in an operand."""
        if isinstance(operand, Register):
            size = Type("u", operand.bits)
            value = self.frame.pointer(operand.offset, size).load(lane)
            if operand.type == "pred":
                return value.differs(0)
            return _scalar_fit(value, type)
        if isinstance(operand, Immediate):
            scalar = Lanes.__new__(Lanes)
            scalar.code, scalar.count = self, 1
            return scalar.immediate(operand, type)
        whole = Lanes(self, self.frame.handle, self.constant(i64, 0), abi.LANES)
        vector = whole.read(operand, type)
        handle = self.builder.extract_element(vector.handle, lane.handle)
        return Value(self, type, handle)

    def lane_write(self, operand: Resolved, value: Value, lane: Value) -> None:
        """Put one lane's value into a register."""
        if isinstance(operand, Sink):
            return
        assert isinstance(operand, Register)
        if operand.type == "pred":
            value = value.to(U8)
        else:
            if value.type.kind == "f":
                value = value.view(Type("u", value.type.bits))
            value = value.to(Type(value.type.kind, operand.bits))
        self.frame.pointer(operand.offset, Type("u", operand.bits)).store(value, lane)

    def address_of(self, place: Place, lane: Value) -> Value:
        """One lane's address."""
        base = place.base
        if isinstance(base, Register):
            word = self.frame.pointer(base.offset, Type("u", base.bits)).load(lane)
            value = word.to(U64)
            offset: int | Value = place.offset
            if isinstance(offset, Value):
                offset = offset.to(U64)
                return (word + offset.to(U32)).to(U64) if base.bits == 32 else value + offset
            if base.bits == 32 and offset:
                return (word + offset).to(U64)
            return value + offset
        if isinstance(base, Symbol):
            if base.space == "dynamic":
                return self.constant(U64, self.dynamic_offset + place.offset)
            return self.constant(U64, base.address + place.offset)
        return self.constant(U64, base.bits + place.offset)

    #: Where dynamic shared memory begins.
    dynamic_offset = 0
    #: The GPU that matrix instructions compute like.
    arch = ""
    #: What is written: of a block of code, not of functions that several have.
    program: Program | None = None

    def set_pcs(self, condition: Value, number: int) -> None:
        """Send some lanes to a block."""
        pcs = self.frame.pointer(abi.PCS, U32)
        pcs.store(condition.select(self.constant(U32.by(abi.LANES), number), pcs.load(0, abi.LANES)))

    def fault(self, kind: int, site: int | Value, lane: Value, address: Value, size: int | Value) -> None:
        """Record why the launch stops, and return."""
        block = self.block
        block.set(abi.KIND, kind)
        block.set(abi.SITE, site)
        block.set(abi.LANE, lane)
        block.set(abi.ADDRESS, address.to(i64))
        block.set(abi.SIZE, size)
        self.builder.ret(ir.Constant(ir.IntType(32), STOPPING))


#: Writes a function into a module, with a linkage that lets other modules call it.
Write = Callable[[ir.Module, str], None]
#: What writes the functions that all kernels share, by name.
SHARED: dict[str, Write] = {}


def shared(module: ir.Module, name: str, type: ir.Type, write: Write) -> ir.Function:
    """A function that kernels share, compiled apart from them and only once: its name says all about it."""
    existing: ir.Function | None = module.globals.get(name)
    if existing is not None:
        return existing
    SHARED[name] = write
    return ir.Function(module, type, name)


def shared_code(
    module: ir.Module, name: str, more: tuple[str, ...], write: Callable[[BlockCode], None]
) -> ir.Function:
    """A function of the frame and of more numbers that kernels share, like `shared`."""
    type = ir.FunctionType(ir.WORD, [ir.LONG] * (1 + len(more)))
    return shared(module, name, type, lambda module, name: write(BlockCode(module, name, more, "")))


def guarded(module: ir.Module) -> ir.Function:
    """`guarded(frame, predicate, negated)`: the lanes that take part for which a predicate holds, as bits."""

    def write(code: BlockCode) -> None:
        code.give(guarded_bits(code, code["predicate"], code["negated"]))

    return shared_code(module, "guarded", ("predicate", "negated"), write)


def guarded_bits(code: BlockCode, predicate: Value, negated: Value) -> Value:
    """What `guarded` returns, computed in place."""
    holds = code.frame.get(predicate, U8, abi.LANES).differs(negated.to(U8).spread(abi.LANES))
    return code.bits(code.mask_lanes() & holds)


def call(code: BlockCode, function: Any, values: list[Value | int]) -> Value:
    """Call a function of the program with numbers; returns its answer."""
    given = [each if isinstance(each, Value) else code.constant(i64, each) for each in values]
    wide = [each.to(U64).to(i64) if each.type.bits < 64 else each for each in given]
    return Value(code, U32, code.builder.call(function, [each.handle for each in wide]))


def _scalar_fit(value: Value, type: Type) -> Value:
    if value.type.bits != type.bits:
        kind = "u" if type.kind == "f" else type.kind
        value = value.to(Type(value.type.kind, type.bits)).to(Type(kind, type.bits))
    return value.view(Type(type.kind, type.bits))
