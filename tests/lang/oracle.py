"""The language without a tracer: an `lw` with which a kernel's Python source runs as it stands, lane by lane.

Values are numbers of a type, computed with NumPy. Every lane of a block runs the function in a thread of its
own; what lanes do together (shuffles, votes, barriers, matrix instructions) is a meeting of their threads.
Nothing of `lanewise.lang` is used: formats and the arithmetic of matrix instructions are below it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

import lanewise

LANES = 32
INTEGERS = {f"{sign}{bits}": (sign == "i", bits) for sign in "iu" for bits in (8, 16, 32, 64)}
FLOATS = ("f16", "bf16", "f32", "f64")
SMALL = ("e4m3", "e5m2")
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


class Refusal(Exception):
    """The program does what the language does not allow; then the trace must refuse it as well."""


class Dtype:
    """A type: `lw.f32` in an annotation or a conversion, and `lw.f32(1)` for a value."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Value:
        return value.to(self) if isinstance(value, Value) else Value(self.name, _literal(value, self.name))

    @property
    def storage(self) -> Any:
        """NumPy's type of elements in memory."""
        if self.name in INTEGERS:
            signed, bits = INTEGERS[self.name]
            return np.dtype(f"{'int' if signed else 'uint'}{bits}")
        return np.dtype(
            {"bf16": np.uint16, "e4m3": np.uint8, "e5m2": np.uint8}.get(self.name, NUMPY.get(self.name))
        )


def rounded(number: float, name: str) -> float:
    """The number of a float type nearest to another."""
    with np.errstate(all="ignore"):
        if name in NUMPY:
            return float(NUMPY[name](number))
        single = np.float32(number)
        bits = int(single.view(np.uint32))
        if math.isnan(number) or math.isinf(float(single)):
            return float(single)
        bits += 0x7FFF + (bits >> 16 & 1)
        return float(np.uint32(bits & 0xFFFF0000).view(np.float32))


def wrapped(number: int, name: str) -> int:
    """An integer as a register of a type holds it."""
    signed, bits = INTEGERS[name]
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def _literal(value: Any, name: str) -> Any:
    if name == "pred":
        return bool(value)
    if name in INTEGERS:
        if isinstance(value, float) or wrapped(int(value), name) != int(value):
            raise Refusal(f"{value!r} is no {name}")
        return int(value)
    if name in SMALL:
        return float(np.asarray(_small(float(value), name)))
    return rounded(float(value), name)


def _small(number: float, name: str) -> float:
    form = getattr(lanewise, name)
    return float(form.decode(form.encode([number], saturate=True))[0])


class Value:
    """One number of a type, as one lane has it."""

    __slots__ = ("name", "number")

    def __init__(self, name: str, number: Any) -> None:
        self.name, self.number = name, number

    def _pair(self, other: Any) -> tuple[Any, Any]:
        if isinstance(other, Value):
            if other.name != self.name:
                raise Refusal(f"{self.name} meets {other.name}")
            return self.number, other.number
        return self.number, _literal(other, self.name)

    def _make(self, number: Any) -> Value:
        if self.name in INTEGERS:
            return Value(self.name, wrapped(int(number), self.name))
        if self.name == "pred":
            return Value("pred", bool(number))
        return Value(self.name, rounded(float(number), self.name))

    def _compute(self, other: Any, integers: Callable[[int, int], int], floats: Any, swap: bool) -> Value:
        a, b = self._pair(other)
        if swap:
            a, b = b, a
        if self.name in ("i8", "u8", *SMALL):
            raise Refusal(f"{self.name} has no arithmetic")
        if self.name in INTEGERS or self.name == "pred":
            return self._make(integers(a, b))
        if floats is None:
            raise Refusal(f"no such operator of {self.name}")
        kind = NUMPY.get(self.name, np.float32)
        with np.errstate(all="ignore"):
            return self._make(floats(kind(a), kind(b)))

    def __add__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a + b, np.add, False)

    def __radd__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a + b, np.add, True)

    def __sub__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a - b, np.subtract, False)

    def __rsub__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a - b, np.subtract, True)

    def __mul__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a * b, np.multiply, False)

    def __rmul__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a * b, np.multiply, True)

    def __truediv__(self, other: Any) -> Value:
        return self._compute(other, _no_integers, np.divide, False)

    def __floordiv__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a // b, None, False)

    def __mod__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a % b, None, False)

    def __and__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a & b, None, False)

    def __or__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a | b, None, False)

    def __xor__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a ^ b, None, False)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Any) -> Value:
        return self._make(self.number << plain(other))

    def __rshift__(self, other: Any) -> Value:
        return self._make(self.number >> plain(other))

    def __neg__(self) -> Value:
        return self._make(-self.number)

    def __invert__(self) -> Value:
        return Value("pred", not self.number) if self.name == "pred" else self._make(~self.number)

    def __abs__(self) -> Value:
        return self._make(abs(self.number))

    def __lt__(self, other: Any) -> Value:
        a, b = self._pair(other)
        return Value("pred", a < b)

    def __le__(self, other: Any) -> Value:
        a, b = self._pair(other)
        return Value("pred", a <= b)

    def __gt__(self, other: Any) -> Value:
        a, b = self._pair(other)
        return Value("pred", a > b)

    def __ge__(self, other: Any) -> Value:
        a, b = self._pair(other)
        return Value("pred", a >= b)

    def __eq__(self, other: object) -> Any:
        a, b = self._pair(other)
        return Value("pred", a == b)

    def __ne__(self, other: object) -> Any:
        a, b = self._pair(other)
        return Value("pred", a != b)

    def __hash__(self) -> int:
        raise Refusal("a value is not hashed")

    def __bool__(self) -> bool:
        return bool(self.number)

    def to(self, dtype: Dtype) -> Value:
        """The value in another type, as PTX's cvt converts it."""
        name = dtype.name
        if name == self.name:
            return self
        if self.name == "pred":
            return Value(name, _literal(int(self.number), name))
        if name in INTEGERS:
            if self.name in INTEGERS:
                return Value(name, wrapped(self.number, name))
            signed, bits = INTEGERS[name]
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            if math.isnan(self.number):
                return Value(name, 0)
            number = high if self.number >= high else low if self.number <= low else math.trunc(self.number)
            return Value(name, number)
        if name in SMALL:
            return Value(name, _small(self.number, name))
        if self.name in INTEGERS and name == "bf16":
            return Value(name, rounded(float(np.float32(self.number)), name))
        if self.name in INTEGERS:
            with np.errstate(all="ignore"):
                exact = np.int64 if INTEGERS[self.name][0] else np.uint64
                return Value(name, float(NUMPY[name](exact(self.number))))
        return Value(name, rounded(self.number, name))


def _no_integers(a: int, b: int) -> int:
    raise Refusal("integers are divided by //")


def plain(value: Any) -> Any:
    """The number of a value, or a Python number itself."""
    return value.number if isinstance(value, Value) else value


class Memory:
    """Elements of a type: an array argument, a shared array, or one of a lane's own."""

    def __init__(self, dtype: Dtype, data: np.ndarray[Any, Any]) -> None:
        self.dtype, self.data = dtype, data.reshape(-1)

    def read(self, index: int) -> Value:
        """The element at an index, counted from the beginning."""
        if not 0 <= index < self.data.size:
            raise Refusal(f"index {index} of {self.data.size} elements")
        stored, name = self.data[index], self.dtype.name
        if name in INTEGERS:
            return Value(name, int(stored))
        if name == "bf16":
            return Value(name, float(np.uint32(int(stored) << 16).view(np.float32)))
        if name in SMALL:
            return Value(name, float(getattr(lanewise, name).decode(np.array([stored]))[0]))
        return Value(name, float(stored))

    def write(self, index: int, value: Any) -> None:
        """Set the element at an index to a value of the type, or to a Python number."""
        name = self.dtype.name
        if isinstance(value, Value) and value.name != name:
            raise Refusal(f"{value.name} is stored as {name}")
        if not 0 <= index < self.data.size:
            raise Refusal(f"index {index} of {self.data.size} elements")
        number = value.number if isinstance(value, Value) else _literal(value, name)
        if name == "bf16":
            number = int(np.float32(number).view(np.uint32)) >> 16
        elif name in SMALL:
            number = int(getattr(lanewise, name).encode([number], saturate=True)[0])
        self.data[index] = number


class Pointer:
    """An address of memory, moved by whole elements."""

    def __init__(self, memory: Memory, offset: int = 0) -> None:
        self.memory, self.offset = memory, offset

    def __add__(self, index: Any) -> Pointer:
        return Pointer(self.memory, self.offset + plain(index))

    def __getitem__(self, index: Any) -> Value:
        return self.memory.read(self.offset + plain(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.memory.write(self.offset + plain(index), value)

    def load(self, width: int = 1) -> Any:
        """One element, or a tuple of several."""
        return self[0] if width == 1 else tuple(self[number] for number in range(width))

    def store(self, values: Any) -> None:
        """Store one value, or several side by side."""
        for number, value in enumerate(values if isinstance(values, tuple | list) else (values,)):
            self[number] = value


class Array(Pointer):
    """A row-major array, indexed by one coordinate for each of its extents."""

    def __init__(self, memory: Memory, shape: tuple[int, ...]) -> None:
        super().__init__(memory)
        self.shape = shape

    def _index(self, index: Any) -> int:
        at = 0
        for extent, coordinate in zip(
            self.shape, index if isinstance(index, tuple) else (index,), strict=True
        ):
            at = at * extent + plain(coordinate)
        return at

    def __getitem__(self, index: Any) -> Value:
        return self.memory.read(self._index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.memory.write(self._index(index), value)

    def ptr(self, *index: Any) -> Pointer:
        """The address of an element."""
        return Pointer(self.memory, self._index(index))


class Meeting:
    """What threads that wait for each other have given so far: those of a warp, or of the whole block."""

    def __init__(self, count: int) -> None:
        self.count, self.completed = count, 0
        self.given: dict[int, tuple[str, Any]] = {}
        self.values: list[Any] = []


class Block:
    """The threads of one block: where all of them meet, where those of each warp do, and what they share."""

    def __init__(self, warps: int) -> None:
        self.thread = threading.local()
        self._everyone = Meeting(LANES * warps)
        self._warps = [Meeting(LANES) for _ in range(warps)]
        self._changed = threading.Condition()
        self._ended = 0
        #: Why no thread can go on; empty as long as they can.
        self.trouble = ""
        self.shared: dict[int, Array] = {}
        #: Held while one thread changes memory by an atomic operation.
        self.atomic = threading.Lock()

    @property
    def lane(self) -> int:
        """The lane that asks."""
        return int(self.thread.number) % LANES

    def meet_warp(self, what: str, value: Any) -> list[Any]:
        """Give a value, and return those of all lanes of the warp."""
        return self._meet(self._warps[self.thread.number // LANES], self.lane, what, value)

    def meet_all(self, what: str, value: Any) -> list[Any]:
        """Give a value, and return those of all threads of the block."""
        return self._meet(self._everyone, self.thread.number, what, value)

    def _meet(self, meeting: Meeting, number: int, what: str, value: Any) -> list[Any]:
        """Give a value and return those of all, once every thread has given its own to the same."""
        with self._changed:
            meeting.given[number] = what, value
            completed = meeting.completed
            if len(meeting.given) == meeting.count:
                if len({each for each, _ in meeting.given.values()}) > 1:
                    self.stop("lanes wait for others at different instructions")
                meeting.values = [meeting.given[each][1] for each in range(meeting.count)]
                meeting.given = {}
                meeting.completed += 1
                self._changed.notify_all()
            self._stop_if_all_wait()
            while meeting.completed == completed and not self.trouble:
                self._changed.wait()
            if self.trouble:
                raise Refusal(self.trouble)
            return meeting.values

    def end(self) -> None:
        """Note that this thread has ended; those that wait for it stop."""
        with self._changed:
            self._ended += 1
            self._stop_if_all_wait()

    def _stop_if_all_wait(self) -> None:
        waiting = sum(len(each.given) for each in (self._everyone, *self._warps))
        if waiting and waiting + self._ended == self._everyone.count:
            self.stop(
                f"lanes wait for others {'that have ended' if self._ended else 'at different instructions'}"
            )

    def stop(self, why: str) -> None:
        """Let no thread go on."""
        with self._changed:
            self.trouble = self.trouble or why
            self._changed.notify_all()


class Fragment:
    """One lane's elements of an operand of a matrix instruction."""

    def __init__(self, operand: Operand, values: list[Value]) -> None:
        self.operand, self.values = operand, values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Value:
        return self.values[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.values[index] = self.operand.element(value)

    def __iter__(self) -> Iterator[Value]:
        return iter(list(self.values))

    def map(self, function: Callable[[Value], Any]) -> Fragment:
        """The fragment with a function of every element."""
        return Fragment(self.operand, [self.operand.element(function(each)) for each in self.values])


class Operand:
    """An operand of a matrix instruction: its type, and which element is the i-th of a lane."""

    def __init__(
        self, name: str, shape: tuple[int, int], where: Callable[[int, int], tuple[int, int]], count: int
    ) -> None:
        self.name, self.shape, self.where, self.count = name, shape, where, count

    def element(self, value: Any) -> Value:
        """A value, or a Python number, as an element."""
        if isinstance(value, Value) and value.name != self.name:
            raise Refusal(f"{value.name} in a fragment of {self.name}")
        return value if isinstance(value, Value) else Value(self.name, _literal(value, self.name))

    def full(self, value: Any) -> Fragment:
        """A fragment with one value everywhere."""
        return Fragment(self, [self.element(value)] * self.count)

    def zeros(self) -> Fragment:
        """A fragment of zeros."""
        return self.full(0)

    def matrix(self, lanes: list[list[Any]], dtype: Any) -> np.ndarray[Any, Any]:
        """The matrix of what all lanes hold."""
        found = np.zeros(self.shape, dtype)
        for lane, values in enumerate(lanes):
            for number, value in enumerate(values):
                found[self.where(lane, number)] = value
        return found


class Instruction:
    """A matrix instruction m16n8k16 of halves, or m16n8k32 of bytes; layouts as the PTX ISA draws them."""

    def __init__(self, block: Block, text: str) -> None:
        self.block, self.whole = block, lanewise.instruction(text)
        *_, self.out, element, _, accumulated = text.split(".")
        names = {"s32": "i32", "s8": "i8", "u8": "u8"}
        inner, each = (32, 4) if element in ("s8", "u8") else (16, 2)
        self.dtypes = (
            np.dtype({"s8": "int8", "u8": "uint8"}.get(element, "float16")),
            np.dtype({"s32": "int32", "f16": "float16"}.get(accumulated, "float32")),
        )

        def of_a(lane: int, number: int) -> tuple[int, int]:
            group, slot = divmod(number, each)
            return lane // 4 + 8 * (group % 2), lane % 4 * each + slot + inner // 2 * (group // 2)

        def of_b(lane: int, number: int) -> tuple[int, int]:
            group, slot = divmod(number, each)
            return lane % 4 * each + slot + inner // 2 * group, lane // 4

        def of_c(lane: int, number: int) -> tuple[int, int]:
            return lane // 4 + 8 * (number // 2), lane % 4 * 2 + number % 2

        self.a = Operand(names.get(element, element), (16, inner), of_a, inner // 2)
        self.b = Operand(names.get(element, element), (inner, 8), of_b, inner // 4)
        self.c = Operand(names.get(accumulated, accumulated), (16, 8), of_c, 4)

    def zeros(self) -> Fragment:
        """An accumulator of zeros."""
        return self.c.zeros()

    def __call__(self, a: Fragment, b: Fragment, c: Fragment) -> Fragment:
        given = [[value.number for value in each.values] for each in (a, b, c)]
        lanes = self.block.meet_warp("mma", given)
        narrow, wide = self.dtypes
        matrices = [
            operand.matrix([each[number] for each in lanes], dtype)
            for number, (operand, dtype) in enumerate(((self.a, narrow), (self.b, narrow), (self.c, wide)))
        ]
        out = self.whole(*matrices, arch="sm_90")
        lane = self.block.lane
        values = [out[self.c.where(lane, number)].item() for number in range(4)]
        return Fragment(self.c, [Value(self.c.name, value) for value in values])


class Pair:
    """Two 16-bit numbers in one register, computed side by side."""

    def __init__(self, low: Value, high: Value) -> None:
        self.low, self.high = low, high

    def _both(self, other: Pair, function: Callable[[Value, Value], Value]) -> Pair:
        if not isinstance(other, Pair) or other.low.name != self.low.name:
            raise Refusal("a pair meets something else")
        return Pair(function(self.low, other.low), function(self.high, other.high))

    def __add__(self, other: Pair) -> Pair:
        return self._both(other, Value.__add__)

    def __sub__(self, other: Pair) -> Pair:
        return self._both(other, Value.__sub__)

    def __mul__(self, other: Pair) -> Pair:
        return self._both(other, Value.__mul__)


class Registers:
    """A tensor in a lane's registers: elements of a list, which slices of the tensor share."""

    def __init__(self, dtype: Dtype, storage: list[Value], numbers: np.ndarray[Any, Any]) -> None:
        self.dtype, self.storage, self.numbers = dtype, storage, numbers

    def __getitem__(self, index: Any) -> Any:
        chosen = self.numbers[tuple(slice(None) if each is None else each for each in index)]
        if isinstance(chosen, np.ndarray):
            return Registers(self.dtype, self.storage, chosen)
        return self.storage[int(chosen)]

    def __setitem__(self, index: Any, value: Any) -> None:
        held = self[index if isinstance(index, tuple) else (index,)]
        if isinstance(held, Registers):
            held.fill(value)
        else:
            number = self.numbers[index if isinstance(index, tuple) else (index,)]
            self.storage[int(number)] = self.element(value)

    def element(self, value: Any) -> Value:
        """A value, or a Python number, as an element."""
        if isinstance(value, Value) and value.name != self.dtype.name:
            raise Refusal(f"{value.name} in registers of {self.dtype.name}")
        return value if isinstance(value, Value) else self.dtype(value)

    def fill(self, value: Any) -> None:
        """Set every element."""
        for number in self.numbers.reshape(-1):
            self.storage[int(number)] = self.element(value)

    def __iter__(self) -> Iterator[Value]:
        return iter([self.storage[int(number)] for number in self.numbers.reshape(-1, order="F")])

    def map(self, function: Callable[[Value], Value]) -> Registers:
        """New registers, with a function of every element."""
        values = [function(each) for each in self]
        numbers = np.arange(len(values)).reshape(self.numbers.shape, order="F")
        return Registers(Dtype(values[0].name), values, numbers)


class Tensor:
    """Memory through a column-major shape."""

    def __init__(self, pointer: Pointer, layout: Any) -> None:
        self.pointer, self.shape = pointer, layout.shape

    def like(self, dtype: Dtype) -> Registers:
        """Registers of zeros in this shape."""
        count = math.prod(self.shape)
        return Registers(dtype, [dtype(0)] * count, np.arange(count).reshape(self.shape, order="F"))


def copy(source: Any, target: Any) -> None:
    """Copy between memory and registers, element by element."""
    if isinstance(source, Tensor):
        values = [source.pointer[number] for number in range(math.prod(source.shape))]
    else:
        values = list(source)
    for number, value in enumerate(values):
        if isinstance(target, Tensor):
            target.pointer[number] = value
        else:
            target.storage[int(target.numbers.reshape(-1, order="F")[number])] = value


class WmmaFragment:
    """One lane's elements of a 16×16 matrix; which they are follows the fragments of the instruction."""

    def __init__(self, use: str, m: int, n: int, k: int, dtype: Dtype, layout: Any = None) -> None:
        self.operand = Wmma.whole.operands[use]
        self.dtype, self.num_elements = dtype, self.operand.registers * (1 if dtype.name == "f32" else 2)
        self.x: list[Value] = []

    def where(self, lane: int, number: int) -> tuple[int, int]:
        """The row and column of an element."""
        row, column = self.operand.element(lane, number)
        return int(row), int(column)


class Wmma:
    """`lw.wmma`, as far as random programs use it."""

    whole = lanewise.instruction("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32")
    matrix_a, matrix_b, accumulator, row_major, mem_row_major = "a", "b", "c", "row", "row"
    fragment = WmmaFragment

    def __init__(self, block: Block) -> None:
        self.block = block

    def fill_fragment(self, held: WmmaFragment, value: Any) -> None:
        """Set every element."""
        held.x[:] = [held.dtype(value)] * held.num_elements

    def load_matrix_sync(self, held: WmmaFragment, pointer: Pointer, ldm: int, _: Any = None) -> None:
        """Load a row-major matrix."""
        self.block.meet_warp("load", None)
        at = [held.where(self.block.lane, number) for number in range(held.num_elements)]
        held.x[:] = [pointer[row * ldm + column] for row, column in at]

    def store_matrix_sync(self, pointer: Pointer, held: WmmaFragment, ldm: int, _: Any) -> None:
        """Store a row-major matrix."""
        for number, value in enumerate(held.x):
            row, column = held.where(self.block.lane, number)
            pointer[row * ldm + column] = value
        self.block.meet_warp("store", None)

    def mma_sync(self, d: WmmaFragment, a: WmmaFragment, b: WmmaFragment, c: WmmaFragment) -> None:
        """Multiply and add; the target is changed."""
        given = [[value.number for value in each.x] for each in (a, b, c)]
        lanes = self.block.meet_warp("wmma", given)
        matrices = [np.zeros((16, 16), kind) for kind in (np.float16, np.float16, np.float32)]
        for matrix, held, number in zip(matrices, (a, b, c), range(3), strict=True):
            for lane in range(LANES):
                for index, value in enumerate(lanes[lane][number]):
                    matrix[held.where(lane, index)] = value
        out = self.whole(*matrices, arch="sm_90")
        places = [d.where(self.block.lane, number) for number in range(d.num_elements)]
        d.x[:] = [Value("f32", float(out[place])) for place in places]


class Groups:
    """`lw.vectorized`: memory in groups of 16 bytes."""

    def __init__(self, pointer: Pointer) -> None:
        self.pointer, self.width = pointer, 16 // pointer.memory.dtype.storage.itemsize

    def __getitem__(self, index: Any) -> Any:
        return (self.pointer + plain(index) * self.width).load(self.width)

    def __setitem__(self, index: Any, values: Any) -> None:
        (self.pointer + plain(index) * self.width).store(tuple(values))


class Annotation:
    """`lw.Ptr[lw.f32]`: the type of a parameter, as far as this module needs it."""

    def __class_getitem__(cls, what: Any) -> Any:
        return what[0] if isinstance(what, tuple) else what


def language(block: Block) -> SimpleNamespace:
    """The names of `lw` that random programs use."""
    types = {name: Dtype(name) for name in (*INTEGERS, *FLOATS, *SMALL, "pred")}

    def lane() -> Value:
        return Value("i32", block.lane)

    def thread() -> Value:
        return Value("i32", block.thread.number)

    def loop(*bounds: Any) -> Iterator[Value]:
        name = next((each.name for each in bounds if isinstance(each, Value)), "i32")
        for each in bounds:
            _literal(plain(each), name)
        return (Value(name, number) for number in range(*map(plain, bounds)))

    def choice(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b

    def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
        def best(first: Any, *rest: Any) -> Any:
            for each in rest:
                kind = first if isinstance(first, Value) else each
                x, y = (each if isinstance(each, Value) else Dtype(kind.name)(each) for each in (first, each))
                first = Value(x.name, function(x._pair(y)))
            return first

        return best

    def shared(dtype: Dtype, shape: Any) -> Array:
        number = block.thread.arrays = block.thread.arrays + 1
        if block.thread.number == 0:
            block.shared[number] = local(dtype, shape)
        block.meet_all("shared", None)
        return block.shared[number]

    def local(dtype: Dtype, shape: Any) -> Array:
        extents = shape if isinstance(shape, tuple) else (shape,)
        return Array(Memory(dtype, np.zeros(math.prod(extents), dtype.storage)), extents)

    def shuffled(source: Callable[[int, int], int]) -> Callable[..., Value]:
        def shuffle(value: Value, other: Any) -> Value:
            lanes, here = block.meet_warp("shuffle", value), block.lane
            there = source(here, plain(other))
            found: Value = lanes[there] if 0 <= there < LANES else value
            return found

        return shuffle

    def vote(function: Callable[[list[bool]], Any], name: str) -> Callable[[Any], Value]:
        return lambda condition: Value(
            name, function([bool(each) for each in block.meet_warp("vote", condition)])
        )

    def bitcast(value: Value, dtype: Dtype) -> Value:
        data = Memory(Dtype(value.name), np.zeros(1, Dtype(value.name).storage))
        data.write(0, value)
        return Memory(dtype, data.data.view(dtype.storage)).read(0)

    def pack(low: Value, high: Value, dtype: Dtype | None = None) -> Any:
        if dtype is not None:
            low, high = low.to(dtype), high.to(dtype)
        if low.name in INTEGERS:
            return Value("u32", (low.number & 0xFFFF) | (high.number & 0xFFFF) << 16)
        return Pair(low, high)

    def atomic_add(pointer: Pointer, value: Any) -> Value:
        with block.atomic:
            before = pointer[0]
            pointer[0] = before + value
        return before

    def reduced(value: Value, op: str = "sum") -> Value:
        first, *rest = block.meet_warp("reduce", value)
        for each in rest:
            first = first + each if op == "sum" else extreme(max if op == "max" else min)(first, each)
        found: Value = first
        return found

    def fma(a: Value, b: Value, c: Value) -> Value:
        exact = np.longdouble(a.number) * np.longdouble(b.number) + np.longdouble(c.number)
        return Value(a.name, float(np.float32(exact)))

    return SimpleNamespace(
        **types, Ptr=Annotation, device=lambda function: function, kernel=lambda function: function,
        range=loop, lane_id=lane, warp_id=lambda: thread() // LANES, thread_rank=thread, where=choice,
        min=extreme(min), max=extreme(max), abs=abs, shared=shared, local=local, bitcast=bitcast, fma=fma,
        syncthreads=lambda: block.meet_all("barrier", None),
        syncwarp=lambda: block.meet_warp("barrier", None),
        shfl_sync=shuffled(lambda here, there: there % LANES),
        shfl_xor_sync=shuffled(lambda here, mask: here ^ mask),
        shfl_up_sync=shuffled(lambda here, delta: here - delta),
        shfl_down_sync=shuffled(lambda here, delta: here + delta),
        any_sync=vote(any, "pred"), all_sync=vote(all, "pred"),
        ballot_sync=vote(lambda all_: sum(1 << number for number, each in enumerate(all_) if each), "u32"),
        popc=lambda value: Value("i32", (value.number & (1 << INTEGERS[value.name][1]) - 1).bit_count()),
        instruction=lambda text: Instruction(block, text), wmma=Wmma(block), vectorized=Groups,
        pack=pack, unpack=lambda pair: (pair.low, pair.high), atomic_add=atomic_add, warp_reduce=reduced,
        Layout=lanewise.Layout, make_tensor=Tensor, make_fragment_like=Tensor.like, fill=Registers.fill,
        copy=copy,
    )  # fmt: skip


def run(source: str, arguments: list[tuple[str, Any]], warps: int = 1) -> None:
    """Run the function `program` of a source on arrays and numbers: (type, array) or (type, number).

    The arrays are changed. An error of one lane is raised here.
    """
    block = Block(warps)
    names = language(block)
    code = compile(source.replace("import lanewise as lw\n", "\n"), "<program>", "exec")
    errors: list[BaseException] = []

    def one_lane(number: int) -> None:
        block.thread.number, block.thread.arrays = number, 0
        given = [
            Pointer(Memory(getattr(names, name), value))
            if isinstance(value, np.ndarray)
            else Value(name, value)
            for name, value in arguments
        ]
        module: dict[str, Any] = {"__name__": "oracle_program", "lw": names}
        try:
            exec(code, module)  # each lane has global variables of its own
            module["program"](*given)
        except BaseException as error:  # handed to the thread that waits
            errors.append(error)
            block.stop("another lane has raised an error")
        finally:
            block.end()

    threads = [
        threading.Thread(target=one_lane, args=(number,), daemon=True) for number in range(LANES * warps)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]
