"""The module of the checker's compiled functions, and what their restricted Python cannot say by itself.

Most functions of the watch are written in the restricted Python of `lanewise.jit.restricted_python`. Those
that work on vectors of shadow memory, or walk over boxes of tensors, are written as LLVM IR by a `WatchCode`.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lanewise.jit import ir
from lanewise.jit.compiled_functions import (
    Fields,
    Function,
    FunctionBody,
    Library,
    Reference,
    primitive,
    signature_only,
)
from lanewise.jit.record_layout import Longs, RecordLayout, Words, field, per_lane
from lanewise.jit.restricted_python import inlined
from lanewise.jit.simd import Code, Value, i64
from lanewise.machine import abi
from lanewise.machine.checker.records import Access, ShadowPlane
from lanewise.machine.codegen.function_code import U8, U16, U32, U64, FunctionCode, Record, write_zeros

P = ParamSpec("P")
T = TypeVar("T")
LANES = abi.LANES
#: The mask of all lanes.
EVERY_LANE = (1 << LANES) - 1
#: An epoch that is later than all others.
FAR = 0x7FFF_FFFF


class WatchModule(Library):
    """The functions of the checker: for kernels with asynchronous operations, or for those without."""

    def __init__(self, follows_async: bool) -> None:
        super().__init__("checker")
        self.follows_async = follows_async


class LaneWords(RecordLayout):
    """A register of 32 bits of all lanes."""

    words = per_lane()


class LaneShorts(RecordLayout):
    """A register of 16 bits of all lanes."""

    shorts = field(2, LANES)


class LaneBytes(RecordLayout):
    """A register of 8 bits of all lanes."""

    bytes = per_lane(1)


class ByteArray(RecordLayout):
    """An array of bytes, whose length is known elsewhere."""

    bytes = field(1, 2)


class LaneLongs(RecordLayout):
    """A number of 64 bits for each lane: a register, addresses or offsets."""

    longs = per_lane(8)


class ShadowCell(Fields):
    """One cell of shadow memory: a 32-bit word in each plane, which is an attribute here."""

    write_epoch: int
    writer: int
    write_lanes: int
    read_epoch: int
    reader: int
    read_lanes: int
    earlier_epoch: int
    earlier_reader: int
    publication: int
    publishers: int
    chain_begin: int
    replaced_word: int
    first_read: int
    read_warps: int
    async_read_epoch: int
    async_reader: int
    async_earlier_epoch: int
    async_earlier_reader: int

    def __init__(self, code: Code, address: Value, stride: Value) -> None:
        self._code, self._address, self._stride = code, address, stride

    def _plane(self, name: str) -> Record:
        return Record(self._code, self._address + self._stride * ShadowPlane[name.upper()])

    def get(self, name: str) -> Value:
        """Load the cell from a plane."""
        if name.upper() not in ShadowPlane.__members__:
            raise TypeError(f"a cell of shadow memory has no plane `{name}`")
        return self._plane(name).get(0, U32).to(U64).to(i64)

    def set(self, name: str, value: Value) -> None:
        """Store the cell in a plane."""
        self._plane(name).set(0, value.to(U32))


@primitive(lambda code, address, stride: ShadowCell(code, address, stride))
def cell_at(address: int, stride: int) -> ShadowCell:
    """Return the cell of shadow memory at an address of its first plane."""
    signature_only()


@inlined
def cell_of(access: Access, offset: int) -> ShadowCell:
    """Return the cell of shadow memory for an offset in the memory."""
    return cell_at(access.plane + ((offset >> access.shift) << 2), access.stride)


@primitive(lambda code: isinstance(code.module, WatchModule) and code.module.follows_async)
def follows_async() -> bool:
    """Return whether the kernel has asynchronous operations, so that there are clocks for them.

    It is known while the code is written: the functions are compiled for either kind of kernels.
    """
    signature_only()


def _report(code: Code, callback: Value, *values: Value | Reference) -> None:
    numbers = [value.address if isinstance(value, Reference) else value for value in values]
    type = ir.FunctionType(ir.VoidType(), [ir.LONG] * len(numbers)).as_pointer()
    function = code.builder.inttoptr(callback.handle, type)
    code.builder.call(function, [number.handle for number in numbers])


@primitive(_report)
def report(
    callback: int, kind: int, frame: abi.WarpFrame, site: int, lane: int, address: int, epoch: int, who: int
) -> None:
    """Call the Python function that suspicions are reported to."""
    signature_only()


@primitive(lambda code, address, size: write_zeros(code, address, size))
def clear_bytes(address: int, size: int) -> None:
    """Set bytes at an address to zero."""
    signature_only()


@primitive(lambda code, number: number.to(U32).spread(LANES))
def words_of(number: int) -> Words:
    """Return a vector with a number in every lane."""
    signature_only()


@primitive(lambda code, words: words.to(U64))
def longs_of(words: Words) -> Longs:
    """Return the elements of a vector with zeros in front, as 64-bit numbers."""
    signature_only()


@primitive(lambda code: Value(code, U32.by(LANES), ir.Constant(U32.by(LANES).ir, list(range(LANES)))))
def lane_numbers() -> Words:
    """Return a vector with the number of each lane."""
    signature_only()


@primitive(lambda code, address: wide(Record(code, address).get(0, U8)))
def load_byte(address: int) -> int:
    """Return the byte at an address."""
    signature_only()


@primitive(lambda code, address: wide(Record(code, address).get(0, U16)))
def load_short(address: int) -> int:
    """Return the 16-bit number at an address."""
    signature_only()


@primitive(lambda code, address: wide(Record(code, address).get(0, U32)))
def load_word(address: int) -> int:
    """Return the 32-bit number at an address."""
    signature_only()


@primitive(lambda code, address: Record(code, address).get(0, U64).to(i64))
def load_long(address: int) -> int:
    """Return the 64-bit number at an address."""
    signature_only()


@primitive(
    lambda code, number, bits: Value(code, i64, code.builder.binary("lshr", number.handle, bits.handle))
)
def shifted_right(number: int, bits: int) -> int:
    """Return a number moved to the right as one without a sign: zeros come from the left."""
    signature_only()


class WatchCode(FunctionCode, FunctionBody):
    """A function of the checker that Python writes as LLVM IR; it calls others by their declarations."""

    loop = Code.loop

    def __init__(self, library: Library, declared: Function[..., T]) -> None:
        FunctionBody.__init__(self, library, declared)

    def record(self, argument: str) -> Record:
        """Return a parameter as a record."""
        bound = self.bound[argument]
        return Record(self, self[argument], bound.layout if isinstance(bound, Reference) else None)

    def done(self, value: Value | int | bool | None = None) -> None:
        """Return a value from the function."""
        self.returns(value)

    def run(self, function: Function[..., T], **arguments: Value | int | bool | Record) -> Value:
        """Write a call of a function with arguments by name; return its result if that is a number."""
        given = {
            name: Reference(value.layout or RecordLayout, value.address)
            if isinstance(value, Record)
            else value
            for name, value in arguments.items()
        }
        answer = function.call(self, **given)
        return answer if isinstance(answer, Value) else self.number(0)

    def stack_bytes(self, bytes: int, layout: type[RecordLayout] | None = None) -> Record:
        """Allocate bytes on the stack and return them as a record."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(ir.ArrayType(ir.LONG, bytes // 8))
            address = self.builder.ptrtoint(slot, ir.LONG)
        return Record(self, Value(self, i64, address), layout)


def written(
    write: Callable[[WatchCode], None], *, name: str = "", external: bool = False, noinline: bool = False
) -> Callable[[Callable[P, T]], Function[P, T]]:
    """Declare a function of the watch by its signature; `write` writes LLVM IR for its body."""
    attributes = ("noinline",) if noinline else ()

    def declare(python: Callable[P, T]) -> Function[P, T]:
        return Function(
            python, lambda library, function: write(WatchCode(library, function)), name, external, attributes
        )

    return declare


def wide(value: Value) -> Value:
    """Return an unsigned word or a condition zero-extended to a 64-bit number."""
    return value.to(U64).to(i64)


def least(a: Value, b: Value | int) -> Value:
    """Return the smaller of two numbers."""
    return (a < b).select(a, b)


def most(a: Value, b: Value | int) -> Value:
    """Return the larger of two numbers."""
    return (a > b).select(a, b)


def lane_is_in(lane: Value, lanes: Value) -> Value:
    """Return whether a lane's bit is set in a mask."""
    return ((lanes >> lane.to(U32)) & 1).differs(0)
