"""WMMA in kernels, under the names of the CUDA programming guide: fragments, and functions that change them.

Which fragments and products exist is the catalogue's; how they lie in registers is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format, b1, f16, f32, f64, s4, s8, s32, tf32, u4, u8
from lanewise.isa import Instruction, Operand, instruction
from lanewise.lang import matrix
from lanewise.lang.arithmetic import where
from lanewise.lang.builder import Address, Register, Symbol, current
from lanewise.lang.convert import bitcast
from lanewise.lang.memory import Pointer
from lanewise.lang.trees import Node
from lanewise.lang.types import is_int, u32
from lanewise.lang.values import Scalar, Traced, describe, public, refuse, scalar

POINTER_ALIGNMENT = 32
#: Elements between rows are a multiple of these bits; of 32 elements for u4 and s4, which is the same.
_LEADING_BITS = 128


@dataclass(frozen=True)
class Named:
    """A name of the programming guide: what a fragment is used for, how a matrix lies in memory."""

    name: str

    def __repr__(self) -> str:
        return f"wmma.{self.name}"


matrix_a, matrix_b, accumulator = Named("matrix_a"), Named("matrix_b"), Named("accumulator")
row_major, col_major = Named("row_major"), Named("col_major")
mem_row_major, mem_col_major = Named("mem_row_major"), Named("mem_col_major")
bmmaBitOpXOR, bmmaBitOpAND = Named("bmmaBitOpXOR"), Named("bmmaBitOpAND")  # noqa: N816  # the guide's names
bmmaAccumulateOpPOPC = Named("bmmaAccumulateOpPOPC")  # noqa: N816  # the guide's name
precision = SimpleNamespace(u4=u4, s4=s4, b1=b1, tf32=tf32)

_LETTERS = {matrix_a: "a", matrix_b: "b", accumulator: "c"}
_ORDERS = {row_major: "row", col_major: "col", mem_row_major: "row", mem_col_major: "col"}
#: Formats whose elements are smaller than what C can address, and what they are stored in.
STORAGE = {u4: u32, s4: s32, b1: u32}


@cache
def _known(text: str, stride: bool | None) -> Instruction | LanewiseError:
    try:
        return instruction(text, stride=stride)
    except LanewiseError as error:
        return error


def _find(text: str, what: str, *, stride: bool | None = None) -> Instruction:
    """An instruction of the catalogue; an error in the words of WMMA if there is none."""
    found = _known(text, stride)
    if isinstance(found, LanewiseError):
        raise current().error(f"{what}: there is no {text}. {found}")
    return found


class Elements:
    """`fragment.x`: the elements that this lane holds (for u4, s4 and b1, the words they are stored in)."""

    def __init__(self, fragment: fragment) -> None:
        self._fragment = fragment

    def __len__(self) -> int:
        return self._fragment.num_storage_elements

    def _place(self, index: Any) -> int:
        if isinstance(index, Traced):
            raise current().error("registers have no addresses: the index of .x is a Python integer")
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(f"{self._fragment}.x has {len(self)} elements; {index!r} was asked for")
        return index % len(self)

    def __getitem__(self, index: Any) -> Scalar:
        place, held = self._place(index), self._fragment
        held.require_filled("its elements are read")
        if held.dtype in STORAGE:
            return Scalar(held.storage_element_type, held.registers[place].in_register)
        found: Scalar = held.as_operand()[place]
        return bitcast(Scalar(u32, found.in_register), f32) if held.dtype is tf32 else found

    def __setitem__(self, index: Any, value: Any) -> None:
        place, held = self._place(index), self._fragment
        if held.dtype in STORAGE or held.dtype is tf32:
            kind = held.storage_element_type
            given = scalar(value, kind, f"an element of {held}")
            held.registers[place] = (
                bitcast(given, u32) if held.dtype is tf32 else Scalar(u32, given.in_register)
            )
        else:
            changed = held.as_operand()
            changed[place] = value
            held.registers[:] = changed.registers
        held.filled = True

    def __iter__(self) -> Iterator[Scalar]:
        return (self[index] for index in range(len(self)))


class fragment(Node):
    """A matrix shared out among the lanes of a warp: `wmma.fragment(use, m, n, k, dtype, layout)`.

    `use` is matrix_a, matrix_b or accumulator; `layout` row_major or col_major, and none for accumulators.
    Inside a kernel: `a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)`.
    """

    __slots__ = ("builder", "dtype", "filled", "k", "layout", "m", "n", "operand", "registers", "use")
    mutable = True

    def __init__(self, use: Any, m: int, n: int, k: int, dtype: Any, layout: Any = None) -> None:
        self.builder = current()
        if use not in _LETTERS:
            raise self.builder.error(f"use is wmma.matrix_a, matrix_b or accumulator, not {use!r}")
        if not isinstance(dtype, Format):
            raise self.builder.error(f"a fragment's elements are a format such as lw.f16, not {dtype!r}")
        if use is accumulator and layout is not None:
            raise self.builder.error(
                "an accumulator has no layout: it is named when memory is read or written"
            )
        if use is not accumulator and layout not in (row_major, col_major):
            raise self.builder.error(f"{use.name} is wmma.row_major or wmma.col_major, not {layout!r}")
        self.use, self.m, self.n, self.k, self.dtype, self.layout = use, m, n, k, dtype, layout
        self.operand: Operand = self._loading(_ORDERS.get(layout, "row"), "").operands[_LETTERS[use]]
        dtype_of_register = matrix.register_dtype(self.operand)
        self.registers = [Scalar(dtype_of_register, constant=0) for _ in range(self.operand.registers)]
        self.filled = False

    # as a nested value: the registers may change, what it is does not
    def parts(self) -> list[Any]:
        return list(self.registers)

    def with_parts(self, parts: list[Any], fresh: bool = False) -> fragment:
        target = self
        if fresh:
            target = object.__new__(fragment)
            for name in self.__slots__:
                setattr(target, name, getattr(self, name))
        target.registers = list(parts)
        return target

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, fragment) and self._kind() == other._kind()

    def _kind(self) -> tuple[Any, ...]:
        return self.use, self.m, self.n, self.k, self.dtype, self.layout

    def named(self, name: str) -> None:
        """Let the registers have a Python name."""
        for number, each in enumerate(self.registers):
            each.named(f"{name}{number}")

    @property
    def shape(self) -> str:
        """The shape as PTX writes it."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def element_type(self) -> Format:
        """The format of the elements; tf32 ones are f32 to the program."""
        return f32 if self.dtype is tf32 else self.dtype

    @property
    def storage_element_type(self) -> Format:
        """What `.x` holds: the element type, or the words that u4, s4 and b1 are stored in."""
        return STORAGE.get(self.dtype, self.element_type)

    @property
    def num_elements(self) -> int:
        """Elements that a lane holds."""
        return self.operand.values

    @property
    def num_storage_elements(self) -> int:
        """Elements of `.x`."""
        return self.operand.registers if self.dtype in STORAGE else self.operand.values

    @property
    def x(self) -> Elements:
        """The elements of this lane: every lane may do the same with each of them, whichever they are."""
        return Elements(self)

    def as_operand(self) -> matrix.Fragment:
        """The registers as an operand of the catalogue's."""
        return matrix.Fragment(self.operand, list(self.registers))

    def require_filled(self, what: str) -> None:
        """Complain of a fragment that holds nothing yet."""
        if not self.filled:
            raise current().error(f"{self} holds nothing yet: load or fill it before {what}")

    def require_here(self) -> None:
        """Complain of a fragment of another kernel, or of one traced for another arch."""
        builder = current()
        if self.builder is builder:
            return
        made, used = (each.arch or "the lowest arch" for each in (self.builder, builder))
        raise builder.error(
            f"{self} was made in a kernel traced for {made}, and is used in one for {used}. Which lane holds "
            "which element is each arch's own affair (sm_70 and sm_75 differ), so a fragment does not pass "
            "from one to the other: store it to memory with store_matrix_sync and load it again there"
        )

    def _loading(self, order: str, space: str) -> Instruction:
        where_to = f".{space}" if space else ""
        text = f"wmma.load.{_LETTERS[self.use]}.sync.aligned.{order}.{self.shape}{where_to}.{self.dtype.name}"
        return _find(
            text,
            f"a {self.use.name} fragment of {self.m}×{self.n}×{self.k} {public(self.dtype)}",
            stride=True,
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        order = f", {self.layout.name}" if self.layout is not None else ""
        return f"fragment<{self.use.name}, {self.m}, {self.n}, {self.k}, {public(self.dtype)}{order}>"


# memory ---------------------------------------------------------------------------------------------------


def _fragment(given: Any, what: str) -> fragment:
    if not isinstance(given, fragment):
        if not isinstance(given, Traced):
            refuse(given, what)
        raise current().error(f"{what} takes a wmma.fragment, not {describe(given)}")
    given.require_here()
    return given


def _memory_formats(held: fragment) -> tuple[Format, ...]:
    if held.dtype in STORAGE:
        return (held.dtype, u8, s8, u32, s32)  # whatever the words are called
    return (held.dtype, f32) if held.dtype is tf32 else (held.dtype,)


def _address(pointer: Any, held: fragment, what: str) -> tuple[Address, str]:
    builder = current()
    if not isinstance(pointer, Pointer):
        raise builder.error(
            f"{what} takes a pointer, such as array.ptr(row, column), not {describe(pointer)}"
        )
    if pointer.dtype not in _memory_formats(held):
        names = " or ".join(public(each) for each in _memory_formats(held))
        raise builder.error(f"{what}: {held} lies in memory as {names}, and {pointer} is given")
    if pointer.space == "local":
        raise builder.error(f"{what}: WMMA reaches global and shared memory, not local memory")
    known = _known_alignment(pointer)
    if known and pointer.offset % POINTER_ALIGNMENT and known >= POINTER_ALIGNMENT:
        raise builder.error(
            f"{what}: the pointer must be aligned to {POINTER_ALIGNMENT} bytes (256 bits), and lies "
            f"{pointer.offset % POINTER_ALIGNMENT} bytes after such a place"
        )
    return Address(pointer.base, pointer.offset), pointer.space


def _known_alignment(pointer: Pointer) -> int:
    """The alignment of what a pointer's offset counts from, if that is a variable."""
    if isinstance(pointer.base, Symbol):
        return next((each.align for each in current().variables if each.symbol is pointer.base), 0)
    return 0


def _leading(ldm: Any, held: fragment, what: str) -> Any:
    """The leading dimension, in elements."""
    builder = current()
    bits = 32 if held.dtype is tf32 else held.dtype.bits
    step = _LEADING_BITS // bits
    if isinstance(ldm, Scalar):
        if not is_int(ldm.dtype) or ldm.dtype.bits != 32:
            raise builder.error(f"{what}: ldm is i32 or u32, not {describe(ldm)}")
        return ldm.operand
    if isinstance(ldm, bool) or not isinstance(ldm, int):
        raise builder.error(f"{what}: ldm is a number of elements, not {describe(ldm)}")
    if ldm <= 0 or ldm % step:
        raise builder.error(
            f"{what}: ldm, the elements from one row or column to the next, is a multiple of {step} for "
            f"{public(held.dtype)} ({_LEADING_BITS // 8} bytes), not {ldm}"
        )
    return str(ldm)


def _order(held: fragment, layout: Any, what: str) -> str:
    builder = current()
    if held.use is accumulator:
        if layout not in (mem_row_major, mem_col_major):
            raise builder.error(
                f"{what} of an accumulator names its layout in memory: wmma.mem_row_major or mem_col_major"
            )
        return _ORDERS[layout]
    if layout is not None:
        raise builder.error(f"{what}: {held} has its layout already")
    return _ORDERS[held.layout]


def load_matrix_sync(a: Any, mptr: Any, ldm: Any, layout: Any = None) -> None:
    """Load a fragment from memory; `ldm` counts elements from one row (or column) to the next.

    Inside a kernel: `wmma.load_matrix_sync(a, A + row * K + k, K)`.
    """
    what = "load_matrix_sync"
    held = _fragment(a, what)
    address, space = _address(mptr, held, what)
    inst = held._loading(_order(held, layout, what), space)
    leading = _leading(ldm, held, what)
    matrix.require(inst)
    kind = {"f32": "f32", "f64": "f64"}.get(matrix.register_dtype(held.operand).name, "b32")
    registers = [Register(kind) for _ in held.registers]
    current().emit(inst.text, tuple(registers), address, leading)
    held.registers[:] = [Scalar(matrix.register_dtype(held.operand), each) for each in registers]
    held.filled = True


def store_matrix_sync(mptr: Any, a: Any, ldm: Any, layout: Any) -> None:
    """Store an accumulator to memory, row by row (mem_row_major) or column by column (mem_col_major)."""
    what = "store_matrix_sync"
    held = _fragment(a, what)
    if held.use is not accumulator:
        raise current().error(f"{what} stores accumulators; {held} is none")
    held.require_filled("it is stored")
    address, space = _address(mptr, held, what)
    where_to = f".{space}" if space else ""
    order = _order(held, layout, what)
    text = f"wmma.store.d.sync.aligned.{order}.{held.shape}{where_to}.{held.dtype.name}"
    inst = _find(text, what, stride=True)
    leading = _leading(ldm, held, what)
    matrix.require(inst)
    current().emit(inst.text, address, tuple(each.in_register for each in held.registers), leading)


def fill_fragment(a: Any, v: Any) -> None:
    """Put one value into every element. Inside a kernel: `wmma.fill_fragment(acc, 0.0)`."""
    held = _fragment(a, "fill_fragment")
    if held.dtype in STORAGE:
        value = scalar(v, held.storage_element_type, "fill_fragment")
        word = Scalar(u32, value.in_register) & ((1 << held.dtype.bits) - 1)
        spread = word * (0xFFFFFFFF // ((1 << held.dtype.bits) - 1))  # the same bits in every element
        held.registers[:] = [spread for _ in held.registers]
    elif held.dtype is tf32:
        word = bitcast(scalar(v, f32, "fill_fragment"), u32)
        held.registers[:] = [word for _ in held.registers]
    else:
        held.registers[:] = matrix.full(held.operand, v).registers
    held.filled = True


# products -------------------------------------------------------------------------------------------------


def _products(d: Any, a: Any, b: Any, c: Any, what: str) -> tuple[fragment, fragment, fragment, fragment]:
    found = tuple(_fragment(each, what) for each in (d, a, b, c))
    builder = current()
    for held, use in zip(found, (accumulator, matrix_a, matrix_b, accumulator), strict=True):
        if held.use is not use:
            raise builder.error(f"{what}(d, a, b, c): {held} is given where a {use.name} fragment belongs")
        if (held.m, held.n, held.k) != (found[1].m, found[1].n, found[1].k):
            raise builder.error(f"{what}: {held} and {found[1]} are of different shapes")
    for held in found[1:]:
        held.require_filled("it is multiplied")
    if found[1].dtype != found[2].dtype:
        raise builder.error(f"{what}: {found[1]} and {found[2]} are of different formats")
    return found[0], found[1], found[2], found[3]


def _multiply(inst: Instruction, d: fragment, a: fragment, b: fragment, c: fragment) -> None:
    matrix.require(inst)
    given = [
        matrix.Fragment(inst.operands[name], list(each.registers))
        for name, each in (("a", a), ("b", b), ("c", c))
    ]
    d.registers[:] = matrix.multiply(inst, *given).registers
    d.filled = True


def mma_sync(d: Any, a: Any, b: Any, c: Any, satf: bool = False) -> None:
    """D = A·B + C. With `satf`, integers saturate, and of floats ±Inf becomes ±MAX_NORM and NaN +0."""
    what = "mma_sync"
    to, left, right, start = _products(d, a, b, c, what)
    if left.dtype is b1:
        raise current().error(f"{what}: b1 matrices are multiplied by bmma_sync")
    orders = f"{_ORDERS[left.layout]}.{_ORDERS[right.layout]}"
    types = [to.dtype, *([] if left.dtype is f16 else [left.dtype, right.dtype]), start.dtype]
    whole = to.dtype is s32
    names = ".".join(each.name for each in types)
    text = f"wmma.mma.sync.aligned.{orders}.{left.shape}.{names}{'.satfinite' if satf and whole else ''}"
    if satf and to.dtype is f64:
        raise current().error(f"{what}: f64 sums do not saturate: leave satf out")
    _multiply(_find(text, what), to, left, right, start)
    if satf and not whole:
        _clamp(to)


def _clamp(held: fragment) -> None:
    """What satf means for floats. PTX had a modifier for it until 6.4; its meaning is the guide's."""
    largest = {f32: float.fromhex("0x1.fffffep127"), f16: 65504.0}[held.dtype]
    for number in range(held.num_elements):
        value = held.x[number].to(f32)
        value = where(value > largest, largest, where(value < -largest, -largest, value))
        held.x[number] = where(value == value, value, 0.0).to(held.dtype)


def bmma_sync(
    d: Any,
    a: Any,
    b: Any,
    c: Any,
    bmmaBitOp: Any = bmmaBitOpXOR,
    bmmaAccumulateOp: Any = bmmaAccumulateOpPOPC,
) -> None:
    """D = popc(A xor B) + C for matrices of bits, or with `and` (bmmaBitOpAND, sm_80 on)."""
    what = "bmma_sync"
    to, left, right, start = _products(d, a, b, c, what)
    if left.dtype is not b1:
        raise current().error(f"{what} multiplies b1 matrices; {left} is for mma_sync")
    if bmmaAccumulateOp is not bmmaAccumulateOpPOPC:
        raise current().error(f"{what}: the only sum is wmma.bmmaAccumulateOpPOPC, not {bmmaAccumulateOp!r}")
    operation = {bmmaBitOpXOR: "xor", bmmaBitOpAND: "and"}.get(bmmaBitOp)
    if operation is None:
        raise current().error(f"{what}: wmma.bmmaBitOpXOR or wmma.bmmaBitOpAND, not {bmmaBitOp!r}")
    text = f"wmma.mma.{operation}.popc.sync.aligned.row.col.{left.shape}.s32.b1.b1.s32"
    _multiply(_find(text, what), to, left, right, start)


def float_to_tf32(x: Any) -> Scalar:
    """An f32 rounded to tf32, the nearest one and ties away from zero; it stays an f32."""
    value = scalar(x, f32, "float_to_tf32")
    current().need("cvt.rna.tf32.f32", 80, "7.0")
    return bitcast(Scalar(u32, current().define("cvt.rna.tf32.f32", "b32", value.in_register)), f32)


__all__ = [
    "accumulator", "bmmaAccumulateOpPOPC", "bmmaBitOpAND", "bmmaBitOpXOR", "bmma_sync", "col_major",
    "fill_fragment", "float_to_tf32", "fragment", "load_matrix_sync", "matrix_a", "matrix_b", "mem_col_major",
    "mem_row_major", "mma_sync", "precision", "row_major", "store_matrix_sync",
]  # fmt: skip
