"""Instructions of each lane alone, written as vector code over several lanes of a warp at a time.

A run of such instructions becomes one function: registers are loaded from the frame when first used and
stored at the end. The package `arithmetic` has the lowerings.
"""

import struct
from collections.abc import Callable

from lanewise.jit import ir
from lanewise.jit.simd import Code, Kind, Pointer, Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.errors import UnfitOperand
from lanewise.machine.program.operands import (
    Negated,
    Register,
    ResolvedOperand,
    Sink,
    SpecialRegister,
    Symbol,
)
from lanewise.machine.program.ops import Op
from lanewise.machine.program.ptx_types import SMALL_FLOATS, TYPE_BITS, VALUE_TYPES
from lanewise.ptx import Immediate

BOOL = Type("u", 1)
CARRY = Register("carry flag", "pred", 8, abi.WarpFrame.carry)
#: Lowers an instruction of each lane alone.
Lower = Callable[["Lanes", Op], None]

_KINDS: dict[str, Kind] = {"s": "i", "u": "u", "b": "u", "f": "f"}


#: Special registers that are a number of the launch's record (those of axes: the first of three), and what
#: is added to it.
_OF_LAUNCH = {
    "%ntid": (abi.LaunchRecord.ntid, 0),
    "%nctaid": (abi.LaunchRecord.nctaid, 0),
    "%nwarpid": (abi.LaunchRecord.warps, 0),
    "%cluster_nctaid": (abi.LaunchRecord.cluster, 0),
    "%cluster_nctarank": (abi.LaunchRecord.cluster_blocks, 0),
    "%is_explicit_cluster": (abi.LaunchRecord.explicit_cluster, 0),
    "%dynamic_smem_size": (abi.LaunchRecord.dynamic_shared_bytes, 0),
    "%total_smem_size": (abi.LaunchRecord.own_shared_bytes, 0),
    # With what the system reserves, as the PTX ISA says.
    "%aggr_smem_size": (abi.LaunchRecord.own_shared_bytes, abi.RESERVED_SHARED_BYTES),
    **{
        f"%reserved_smem_offset_{end}": (abi.LaunchRecord.reserved_shared, more)
        for end, more in (
            ("begin", 0), ("0", 0), ("1", 0), ("end", abi.RESERVED_USED_BYTES),
            ("cap", abi.RESERVED_SHARED_BYTES),
        )
    },
}  # fmt: skip


def type_of(name: str) -> Type:
    """Return the type of the values of a PTX type: 16-bit floats and packed types are unsigned words.

    >>> type_of("s32"), type_of("bf16x2").bits
    (Type(kind='i', bits=32, lanes=1), 32)
    """
    if name not in VALUE_TYPES:
        raise KeyError(name)
    plain = name[0] in _KINDS and name not in SMALL_FLOATS and "x" not in name
    return Type(_KINDS[name[0]] if plain else "u", TYPE_BITS[name])


class Lanes:
    """The registers of some lanes of a warp while a run of instructions is written."""

    def __init__(
        self,
        code: Code,
        frame_pointer: ir.Operand | None,
        start: Value,
        count: int,
        dynamic_offset: int = 0,
        clusters: bool = False,
    ) -> None:
        self.code, self._frame, self.start, self.count = code, frame_pointer, start, count
        #: Where dynamic shared memory begins; whether its addresses have the rank of the block in a cluster.
        self.dynamic_offset, self.clusters = dynamic_offset, clusters
        self.values: dict[Register, Value] = {}
        #: By the bytes of an element: the frame's address plus the offset of the first of these lanes.
        self.lane_pointers: dict[int, ir.Operand] = {}
        #: The addresses of records, by the pointer and the offset that lead to each: none of them moves.
        self._records: dict[tuple[str, int], ir.Operand] = {}
        self.loaded: set[Register] = set()
        self.dirty: dict[Register, None] = {}
        self.guard: Value | None = None
        #: Floats by register whose NaNs are not yet those of a GPU; `register` replaces them.
        self.any_nan: dict[Register, Value] = {}
        self.carry = CARRY
        #: The lanes whose registers change; None for all, where the scheduler restores the other lanes.
        self.mask: Value | None = None

    @property
    def frame(self) -> ir.Operand:
        """The address of the warp's frame; a function of vectors alone has none."""
        assert self._frame is not None
        return self._frame

    # memory ---------------------------------------------------------------------------------------------

    def at(self, offset: int, size: int) -> Pointer:
        """Return a pointer to these lanes' elements of an array in the frame, of `size` bytes each."""
        pointer = self.lane_pointers.get(size)
        if pointer is None:
            pointer = self.lane_pointers[size] = (
                Pointer(self.code, Type("u", size * 8), self.frame) + self.start
            ).handle
        handle = self.code.builder.gep(pointer, [ir.Constant(ir.IntType(64), offset)])
        return Pointer(self.code, Type("u", size * 8), handle)

    # values ---------------------------------------------------------------------------------------------

    def constant(self, type: Type, number: int | float) -> Value:
        """Return a number in every lane."""
        return self.code.constant(type.by(self.count), number)

    def register(self, register: Register) -> Value:
        """Return the values of a register: unsigned words, or conditions for predicates."""
        if register in self.any_nan:
            value = canonical_nan(self.any_nan.pop(register))
            self.values[register] = value.view(Type("u", 32))
        if register not in self.values:
            size = register.bits // 8
            value = self.at(register.offset, size).load(0, self.count)
            self.loaded.add(register)
            self.values[register] = value.differs(0) if register.type == "pred" else value
        return self.values[register]

    def read(self, operand: ResolvedOperand, type: Type) -> Value:
        """Return an operand as values of a type: wider registers are truncated, narrower ones extended."""
        match operand:
            case Register():
                return fit(self.register(operand), type.by(self.count))
            case Immediate():
                return self.immediate(operand, type)
            case SpecialRegister():
                return fit(self.special(operand), type.by(self.count))
            case Symbol():
                return fit(self.symbol(operand), type.by(self.count))
            case Negated(operator, inner):
                value = self.read(inner, type)
                return ~value if operator == "!" else self.constant(type, 0) - value
        raise UnfitOperand("one of its sources is not one value")

    def number(self, operand: ResolvedOperand, type: Type) -> Value:
        """Return an operand as numbers, for what does not depend on which NaN a NaN is."""
        is_f32 = type.kind == "f" and type.bits == 32
        if is_f32 and isinstance(operand, Register) and operand in self.any_nan:
            return self.any_nan[operand]
        return self.read(operand, type)

    def write_number(self, operand: ResolvedOperand, value: Value) -> None:
        """Write floats to a 32-bit register; any NaN stands for the one that GPUs compute."""
        if isinstance(operand, Register) and operand.bits == 32 and self.guard is None:
            self.any_nan[operand] = value
            self.dirty[operand] = None
        else:
            self.write(operand, canonical_nan(value))

    def immediate(self, operand: Immediate, type: Type) -> Value:
        """Return a constant as values of a type."""
        return self.immediate_of(self.code, operand, type.by(self.count))

    @staticmethod
    def immediate_of(code: Code, operand: Immediate, type: Type) -> Value:
        """Return a constant of PTX as one value of a type, or as a vector of it."""
        if type.kind == "f":
            value = float(operand.value)
            if type.bits == 32 and operand.type != "f32":
                try:
                    bits = struct.unpack("<I", struct.pack("<f", value))[0]
                except OverflowError:
                    bits = 0xFF800000 if value < 0 else 0x7F800000
            elif type.bits == 32:
                bits = operand.bits
            else:
                bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            return code.constant(Type("u", type.bits, type.lanes), bits).view(type)
        if type.bits == 1:
            return code.constant(type, int(bool(operand.bits)))
        return code.constant(type, operand.bits)

    def write(self, operand: ResolvedOperand, value: Value) -> None:
        """Write values to a register; narrower ones are extended by their own sign."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise UnfitOperand("its result is not one register")
        if operand.type != "pred":
            if value.type.kind == "f":
                value = value.view(Type("u", value.type.bits))
            value = value.to(Type(value.type.kind, operand.bits)).to(Type("u", operand.bits))
        if self.guard is not None:
            value = self.guard.select(value, self.register(operand))
        self.any_nan.pop(operand, None)
        self.values[operand] = value
        self.dirty[operand] = None

    def put_back(self, needless: Callable[[Register], bool]) -> None:
        """Store the registers that were written to the frame."""
        for register in self.stored(needless):
            value = self.register(register)
            if register.type == "pred":
                value = value.to(Type("u", 8))
            pointer = self.at(register.offset, register.bits // 8)
            if self.mask is not None:
                value = self.mask.select(value, pointer.load(0, self.count))
            pointer.store(value)

    def stored(self, needless: Callable[[Register], bool]) -> list[Register]:
        """Return the registers that were written and that other code may read."""
        return [register for register in self.dirty if register in self.loaded or not needless(register)]

    # special registers ------------------------------------------------------------------------------------

    def number_at(self, pointer: ir.Operand, offset: int) -> Value:
        """Return a 64-bit number of a record, in every lane."""
        return Pointer(self.code, i64, pointer).load(offset // 8).spread(self.count)

    def record(self, offset: int, pointer: ir.Operand | None = None) -> ir.Operand:
        """Return the address of the record that a pointer in the frame, or in another record, leads to."""
        start = self.frame if pointer is None else pointer
        if (start.text, offset) not in self._records:
            word = Pointer(self.code, i64, start).load(offset // 8)
            address = self.code.builder.inttoptr(word.handle, ir.IntType(8).as_pointer())
            self._records[start.text, offset] = address
        return self._records[start.text, offset]

    def _launch_number(self, block: ir.Operand, field: int) -> Value:
        """Return a number of the launch's record, in every lane."""
        return self.number_at(self.record(abi.BlockRecord.launch, block), field)

    def special(self, operand: SpecialRegister) -> Value:
        """Return the value of a special register, as 32 or 64 bits."""
        block = self.record(abi.WarpFrame.block)
        axis = "xyz".find(operand.element) if operand.element else 0
        lanes = self.lane_numbers()
        ones = self.constant(Type("u", 32), 0xFFFFFFFF)
        match operand.name:
            case "%tid":
                return self.at(abi.WarpFrame.tid + 128 * axis, 4).load(0, self.count)
            case "%ctaid":
                return self.number_at(block, abi.BlockRecord.ctaid + 8 * axis)
            case "%clusterid" | "%nclusterid" | "%cluster_ctaid":
                return self._cluster_place(operand.name, block, axis)
            case name if name in _OF_LAUNCH:
                field, more = _OF_LAUNCH[name]
                number = self._launch_number(block, field + 8 * axis)
                return number + more if more else number
            case "%cluster_ctarank":
                return self.number_at(block, abi.BlockRecord.rank)
            case "%laneid":
                return lanes
            case "%warpid":
                return self.number_at(self.frame, abi.WarpFrame.index)
            case "%lanemask_eq":
                return self.constant(Type("u", 32), 1) << lanes
            case "%lanemask_lt":
                return (self.constant(Type("u", 32), 1) << lanes) - 1
            case "%lanemask_le":
                return ones >> (self.constant(Type("u", 32), 31) - lanes)
            case "%lanemask_ge":
                return ones << lanes
            case "%lanemask_gt":
                return (ones << lanes) << 1
            case "%clock" | "%clock64" | "%globaltimer" | "%globaltimer_lo" | "%clock_hi" | "%globaltimer_hi":
                time = self._time(block)
                return time >> 32 if operand.name.endswith("_hi") else time
            case "WARP_SZ":
                return self.constant(Type("u", 32), 32)
            case "%envreg1":  # where the words of the grid's barrier lie, for cooperative groups
                return self.constant(Type("u", 32), abi.GRID_BASE >> 32)
            case "%envreg2":
                return self.constant(Type("u", 32), abi.GRID_BASE & 0xFFFFFFFF)
            case "%nsmid":
                return self.constant(Type("u", 32), 1)
        return self.constant(Type("u", 32), 0)

    def _time(self, block: ir.Operand) -> Value:
        """Return the time of a block, which passes with every reading: two readings differ."""
        own = Pointer(self.code, i64, block)
        idle = own.load(abi.BlockRecord.idle_time // 8)
        own.store(idle + abi.CLOCK_READING_CYCLES, abi.BlockRecord.idle_time // 8)
        time = own.load(abi.BlockRecord.steps // 8) + idle
        return time.spread(self.count).to(Type("u", 64))

    def _cluster_place(self, name: str, block: ir.Operand, axis: int) -> Value:
        """Return which cluster a block is in, how many there are, or which block of the cluster it is."""
        word = Type("u", 32)
        size = self._launch_number(block, abi.LaunchRecord.cluster + 8 * axis).to(word)
        if name == "%nclusterid":
            number = self._launch_number(block, abi.LaunchRecord.nctaid + 8 * axis).to(word)
        else:
            number = self.number_at(block, abi.BlockRecord.ctaid + 8 * axis).to(word)
        quotient = Value(self.code, number.type, self.code.builder.udiv(number.handle, size.handle))
        return number - quotient * size if name == "%cluster_ctaid" else quotient

    def lane_numbers(self) -> Value:
        """Return the numbers of these lanes, from 0 to 31."""
        counting = ir.Constant(ir.VectorType(ir.IntType(32), self.count), list(range(self.count)))
        numbers = Value(self.code, Type("u", 32, self.count), counting)
        return numbers + self.start.to(Type("u", 32)).spread(self.count)

    def symbol(self, operand: Symbol) -> Value:
        """Return the address of a variable in its state space."""
        offset = self.dynamic_offset if operand.space == "dynamic" else 0
        address = self.constant(Type("u", 64), operand.address + offset)
        if self.clusters and operand.space in ("shared", "dynamic"):
            first = self.number_at(self.record(abi.WarpFrame.block), abi.BlockRecord.shared_first)
            address = address + first.to(Type("u", 64))
        return address


def canonical_nan(value: Value) -> Value:
    """Return f32 values with every NaN replaced by the one that GPUs compute, 0x7FFFFFFF."""
    code = value.code
    nan = code.constant(Type("u", 32, value.type.lanes), 0x7FFFFFFF).view(value.type)
    is_nan = code.builder.fcmp_unordered("uno", value.handle, value.handle)
    return Value(code, value.type, code.builder.select(is_nan, nan.handle, value.handle))


def fit(value: Value, type: Type) -> Value:
    """Return words as another type: truncated or extended, then with the same bits."""
    if type.bits == 1 or value.type.bits == 1:
        if value.type.bits == type.bits:
            return value
        return value.differs(0) if type.bits == 1 else value.to(type)
    if value.type.bits != type.bits:
        kind = "u" if type.kind == "f" else type.kind
        value = value.to(Type(value.type.kind, type.bits)).to(Type(kind, type.bits))
    return value.view(Type(type.kind, type.bits))


def intrinsic(name: str, *values: Value, extra: tuple[Value, ...] = ()) -> Value:
    """Return the result of an LLVM intrinsic on values of one type."""
    return values[0].code.intrinsic(name, values[0].type, [*values, *extra])
