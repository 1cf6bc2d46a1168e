"""WMMA in kernels, under the names of the CUDA programming guide: fragments, and functions that change them.

The catalogue says which fragments and products exist; a program never sees how they lie in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format, b1, f16, f32, f64, s4, s8, s32, tf32, u4, u8
from lanewise.isa import Instruction, Operand, instruction
from lanewise.lang.matrix.emit import multiply, require
from lanewise.lang.matrix.fragment import Fragment, full_fragment
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import Address, Register, Symbol, current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.operators import where
from lanewise.lang.trace.scalar import Scalar, register_dtype, scalar
from lanewise.lang.trace.traced import Node, Traced, describe, refuse
from lanewise.lang.trace.types import dtype_name, is_int, register_kind, u32

__all__ = [
    "accumulator", "bmmaAccumulateOpPOPC", "bmmaBitOpAND", "bmmaBitOpXOR", "bmma_sync", "col_major",
    "experimental", "fill_fragment", "float_to_tf32", "fragment", "load_matrix_sync", "matrix_a",
    "matrix_b", "mem_col_major", "mem_row_major", "mma_sync", "precision", "row_major", "store_matrix_sync",
]  # fmt: skip


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
#: CUDA C++ keeps what is smaller than a byte in a namespace of its own, nvcuda::wmma::experimental.
experimental = SimpleNamespace(
    precision=SimpleNamespace(u4=u4, s4=s4, b1=b1),
    bmmaBitOpXOR=bmmaBitOpXOR,
    bmmaBitOpAND=bmmaBitOpAND,
    bmmaAccumulateOpPOPC=bmmaAccumulateOpPOPC,
)

LETTERS = {matrix_a: "a", matrix_b: "b", accumulator: "c"}
ORDERS = {row_major: "row", col_major: "col", mem_row_major: "row", mem_col_major: "col"}
#: Formats whose elements are smaller than what C can address, and what they are stored in.
STORAGE = {u4: u32, s4: s32, b1: u32}


@lru_cache(maxsize=1024)
def _known(text: str, stride: bool | None) -> Instruction | LanewiseError:
    """Return an instruction of the catalogue, or the error that there is none."""
    try:
        return instruction(text, stride=stride)
    except LanewiseError as error:
        return error


def find(text: str, what: str, *, stride: bool | None = None) -> Instruction:
    """Return an instruction of the catalogue; an error in the words of WMMA if there is none."""
    known = _known(text, stride)
    if isinstance(known, LanewiseError):
        raise current().error(f"{what}: there is no {text}. {known}")
    return known


class FragmentElements(Node):
    """`fragment.x`: the elements that this lane holds (for u4, s4 and b1, the words they are stored in)."""

    __slots__ = ("_fragment",)
    CHILDREN = ("_fragment",)

    def __init__(self, fragment: fragment) -> None:
        self._fragment = fragment

    def __len__(self) -> int:
        return self._fragment.num_storage_elements

    def _index(self, index: object) -> int:
        """Return the index of an element, counted from 0; an error if it is traced or too large."""
        if isinstance(index, Traced):
            raise current().error("registers have no addresses: the index of .x is a Python integer")
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise current().error(f"{self._fragment}.x has {len(self)} elements; {index!r} was asked for")
        return index % len(self)

    def __getitem__(self, index: object) -> Scalar:
        number, held = self._index(index), self._fragment
        held.require_filled("its elements are read")
        if held.dtype in STORAGE:
            return Scalar(held.storage_element_type, held.registers[number].in_register)
        element: Scalar = held.as_operand()[number]
        return bitcast(Scalar(u32, element.in_register), f32) if held.dtype is tf32 else element

    def __setitem__(self, index: object, value: object) -> None:
        number, held = self._index(index), self._fragment
        if held.dtype in STORAGE or held.dtype is tf32:
            kind = held.storage_element_type
            given = scalar(value, kind, f"an element of {held}")
            held.registers[number] = (
                bitcast(given, u32) if held.dtype is tf32 else Scalar(u32, given.in_register)
            )
        else:
            changed = held.as_operand()
            changed[number] = value
            held.registers[:] = changed.registers
        held.filled = True

    def __iter__(self) -> Iterator[Scalar]:
        return (self[index] for index in range(len(self)))

    def __str__(self) -> str:
        return f"the elements of {self._fragment}"


class fragment(Node):
    """A matrix that the lanes of a warp hold together: `wmma.fragment(use, m, n, k, dtype, layout)`.

    `use` is matrix_a, matrix_b or accumulator; `layout` row_major or col_major, and none for accumulators.
    Inside a kernel: `a = wmma.fragment(wmma.matrix_a, 16, 16, 16, lw.f16, wmma.row_major)`.
    """

    __slots__ = ("builder", "dtype", "filled", "k", "layout", "m", "n", "operand", "registers", "use")
    mutable = True

    def __init__(self, use: Any, m: int, n: int, k: int, dtype: object, layout: Any = None) -> None:
        self.builder = current()
        if use not in LETTERS:
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
        self.operand: Operand = self.loading(ORDERS.get(layout, "row"), "").operands[LETTERS[use]]
        dtype_of_register = register_dtype(self.operand.format)
        self.registers = [Scalar(dtype_of_register, constant=0) for _ in range(self.operand.registers)]
        self.filled = False

    # as a node of a pytree: the registers may change, use, shape and dtype do not
    def children(self) -> list[Any]:
        return list(self.registers)

    def with_children(self, children: list[Any], fresh: bool = False) -> fragment:
        target = self
        if fresh:
            target = object.__new__(fragment)
            for name in self.__slots__:
                setattr(target, name, getattr(self, name))
        target.registers = list(children)
        return target

    def same_kind(self, other: object) -> bool:
        return isinstance(other, fragment) and self._kind() == other._kind()

    def _kind(self) -> tuple[object, ...]:
        return self.use, self.m, self.n, self.k, self.dtype, self.layout

    def named(self, name: str) -> None:
        """Give the registers the Python name that the fragment is bound to, with numbers."""
        for number, register in enumerate(self.registers):
            register.named(f"{name}{number}")

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
        """The number of elements that a lane holds."""
        return self.operand.values

    @property
    def num_storage_elements(self) -> int:
        """The number of elements of `.x`."""
        return self.operand.registers if self.dtype in STORAGE else self.operand.values

    @property
    def x(self) -> FragmentElements:
        """The elements of this lane. Which elements these are is not known, so treat all of them alike."""
        return FragmentElements(self)

    def as_operand(self) -> Fragment:
        """Return the registers as a fragment of the catalogue's operand."""
        return Fragment(self.operand, list(self.registers))

    def require_filled(self, what: str) -> None:
        """Raise an error if the fragment holds nothing yet."""
        if not self.filled:
            raise current().error(f"{self} holds nothing yet: load or fill it before {what}")

    def require_here(self) -> None:
        """Raise an error if the fragment belongs to another kernel, or to one traced for another arch."""
        builder = current()
        if self.builder is builder:
            return
        made, used = (other.arch or "the lowest arch" for other in (self.builder, builder))
        raise builder.error(
            f"{self} was made in a kernel traced for {made}, and is used in one for {used}. Which lane holds "
            "which element is each arch's own affair (sm_70 and sm_75 differ), so a fragment does not pass "
            "from one to the other: store it to memory with store_matrix_sync and load it again there"
        )

    def loading(self, order: str, space: str) -> Instruction:
        """Return the instruction that loads the fragment from memory in row or column order."""
        where_to = f".{space}" if space else ""
        text = f"wmma.load.{LETTERS[self.use]}.sync.aligned.{order}.{self.shape}{where_to}.{self.dtype.name}"
        return find(
            text,
            f"a {self.use.name} fragment of {self.m}×{self.n}×{self.k} {dtype_name(self.dtype)}",
            stride=True,
        )

    def __str__(self) -> str:
        order = f", {self.layout.name}" if self.layout is not None else ""
        return f"fragment<{self.use.name}, {self.m}, {self.n}, {self.k}, {dtype_name(self.dtype)}{order}>"


def given_fragment(given: object, what: str) -> fragment:
    """Return an argument that has to be a fragment of this kernel; an error if it is none."""
    if not isinstance(given, fragment):
        if not isinstance(given, Traced):
            refuse(given, what)
        raise current().error(f"{what} takes a wmma.fragment, not {describe(given)}")
    given.require_here()
    return given


POINTER_ALIGNMENT = 32
#: Elements between rows are a multiple of these bits; of 32 elements for u4 and s4, which is the same.
_LEADING_BITS = 128


def _memory_formats(held: fragment) -> tuple[Format, ...]:
    """Return the formats that a pointer to a fragment's elements may have."""
    if held.dtype in STORAGE:
        return (held.dtype, u8, s8, u32, s32)  # whatever the words are called
    return (held.dtype, f32) if held.dtype is tf32 else (held.dtype,)


def _address(pointer: object, held: fragment, what: str) -> tuple[Address, str]:
    """Return the address and the state space behind a pointer; an error if WMMA cannot use it."""
    builder = current()
    if not isinstance(pointer, Pointer):
        raise builder.error(
            f"{what} takes a pointer, such as array.ptr(row, column), not {describe(pointer)}"
        )
    if pointer.dtype not in _memory_formats(held):
        names = " or ".join(dtype_name(fmt) for fmt in _memory_formats(held))
        raise builder.error(f"{what}: {held} lies in memory as {names}, and {pointer} is given")
    if pointer.space == "local":
        raise builder.error(f"{what}: WMMA reaches global and shared memory, not local memory")
    if pointer.piece is not None:
        raise builder.error(
            f"{what}: WMMA moves rows that lie a fixed distance apart, and {pointer.piece.swizzle!r} of this "
            "array moves them: take an array without a swizzle, or lw.ldmatrix and an mma"
        )
    known = _known_alignment(pointer)
    if known and pointer.offset % POINTER_ALIGNMENT and known >= POINTER_ALIGNMENT:
        raise builder.error(
            f"{what}: the pointer must be aligned to {POINTER_ALIGNMENT} bytes (256 bits), and it lies "
            f"{pointer.offset % POINTER_ALIGNMENT} bytes after such a place"
        )
    pointer.leave_layout()  # ldm says where the next row lies
    return pointer.operand, pointer.space


def _known_alignment(pointer: Pointer) -> int:
    """Return the alignment of the variable that a pointer's offset counts from; 0 if that is none."""
    if isinstance(pointer.base, Symbol):
        return next(
            (variable.align for variable in current().variables if variable.symbol is pointer.base), 0
        )
    return 0


def _leading(ldm: object, held: fragment, what: str) -> object:
    """Return the operand for the leading dimension, in elements; an error if WMMA does not take it."""
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
            f"{dtype_name(held.dtype)} ({_LEADING_BITS // 8} bytes), not {ldm}"
        )
    return str(ldm)


def _order(held: fragment, layout: Any, what: str) -> str:
    """Return row or col: the order in memory, which the fragment has or an accumulator is given."""
    builder = current()
    if held.use is accumulator:
        if layout not in (mem_row_major, mem_col_major):
            raise builder.error(
                f"{what} of an accumulator names its layout in memory: wmma.mem_row_major or mem_col_major"
            )
        return ORDERS[layout]
    if layout is not None:
        raise builder.error(f"{what}: {held} has its layout already")
    return ORDERS[held.layout]


def load_matrix_sync(a: object, mptr: object, ldm: object, layout: object = None) -> None:
    """Load a fragment from memory; `ldm` counts elements from one row (or column) to the next.

    Inside a kernel: `wmma.load_matrix_sync(a, A + row * K + k, K)`.
    """
    what = "load_matrix_sync"
    held = given_fragment(a, what)
    address, space = _address(mptr, held, what)
    inst = held.loading(_order(held, layout, what), space)
    leading = _leading(ldm, held, what)
    require(inst)
    dtype = register_dtype(held.operand.format)
    registers = [Register(register_kind(dtype)) for _ in held.registers]
    current().emit(inst.text, tuple(registers), address, leading)
    held.registers[:] = [Scalar(dtype, register) for register in registers]
    held.filled = True


def store_matrix_sync(mptr: object, a: object, ldm: object, layout: object) -> None:
    """Store an accumulator to memory, row by row (mem_row_major) or column by column (mem_col_major)."""
    what = "store_matrix_sync"
    held = given_fragment(a, what)
    if held.use is not accumulator:
        raise current().error(f"{what} stores accumulators, and {held} is not one")
    held.require_filled("it is stored")
    address, space = _address(mptr, held, what)
    where_to = f".{space}" if space else ""
    order = _order(held, layout, what)
    text = f"wmma.store.d.sync.aligned.{order}.{held.shape}{where_to}.{held.dtype.name}"
    inst = find(text, what, stride=True)
    leading = _leading(ldm, held, what)
    require(inst)
    current().emit(inst.text, address, tuple(register.in_register for register in held.registers), leading)


def fill_fragment(a: object, v: object) -> None:
    """Put one value into every element. Inside a kernel: `wmma.fill_fragment(acc, 0.0)`."""
    held = given_fragment(a, "fill_fragment")
    if held.dtype in STORAGE:
        value = scalar(v, held.storage_element_type, "fill_fragment")
        word = Scalar(u32, value.in_register) & ((1 << held.dtype.bits) - 1)
        spread = word * (0xFFFFFFFF // ((1 << held.dtype.bits) - 1))  # the same bits in every element
        held.registers[:] = [spread for _ in held.registers]
    elif held.dtype is tf32:
        word = bitcast(scalar(v, f32, "fill_fragment"), u32)
        held.registers[:] = [word for _ in held.registers]
    else:
        held.registers[:] = full_fragment(held.operand, v).registers
    held.filled = True


def _operands(
    d: object, a: object, b: object, c: object, what: str
) -> tuple[fragment, fragment, fragment, fragment]:
    """Return the four fragments of a product; an error unless they fit together."""
    fragments = tuple(given_fragment(given, what) for given in (d, a, b, c))
    builder = current()
    for held, use in zip(fragments, (accumulator, matrix_a, matrix_b, accumulator), strict=True):
        if held.use is not use:
            raise builder.error(f"{what}(d, a, b, c): {held} is given where {use.name} belongs")
        if (held.m, held.n, held.k) != (fragments[1].m, fragments[1].n, fragments[1].k):
            raise builder.error(f"{what}: {held} and {fragments[1]} are of different shapes")
    for held in fragments[1:]:
        held.require_filled("it is multiplied")
    if fragments[1].dtype != fragments[2].dtype:
        raise builder.error(f"{what}: {fragments[1]} and {fragments[2]} are of different formats")
    return fragments[0], fragments[1], fragments[2], fragments[3]


def _multiply(inst: Instruction, d: fragment, a: fragment, b: fragment, c: fragment) -> None:
    """Emit a product and put its result into D."""
    require(inst)
    given = [
        Fragment(inst.operands[name], list(fragment_.registers))
        for name, fragment_ in (("a", a), ("b", b), ("c", c))
    ]
    d.registers[:] = multiply(inst, *given).registers
    d.filled = True


def mma_sync(d: object, a: object, b: object, c: object, satf: bool = False) -> None:
    """Set D to A·B + C. With `satf`, integers saturate; floats turn ±Inf into ±MAX_NORM and NaN into +0."""
    what = "mma_sync"
    to, left, right, start = _operands(d, a, b, c, what)
    if left.dtype is b1:
        raise current().error(f"{what}: b1 matrices are multiplied by bmma_sync")
    orders = f"{ORDERS[left.layout]}.{ORDERS[right.layout]}"
    types = [to.dtype, *([] if left.dtype is f16 else [left.dtype, right.dtype]), start.dtype]
    whole = to.dtype is s32
    names = ".".join(fmt.name for fmt in types)
    text = f"wmma.mma.sync.aligned.{orders}.{left.shape}.{names}{'.satfinite' if satf and whole else ''}"
    if satf and to.dtype is f64:
        raise current().error(f"{what}: f64 sums do not saturate: leave satf out")
    _multiply(find(text, what), to, left, right, start)
    if satf and not whole:
        _saturate(to)


def _saturate(held: fragment) -> None:
    """Saturate floats as the programming guide defines satf: PTX had a modifier for it until 6.4."""
    largest = {f32: float.fromhex("0x1.fffffep127"), f16: 65504.0}[held.dtype]
    for number in range(held.num_elements):
        value = held.x[number].to(f32)
        value = where(value > largest, largest, where(value < -largest, -largest, value))
        held.x[number] = where(value == value, value, 0.0).to(held.dtype)


def bmma_sync(
    d: object,
    a: object,
    b: object,
    c: object,
    bmmaBitOp: Any = bmmaBitOpXOR,
    bmmaAccumulateOp: object = bmmaAccumulateOpPOPC,
) -> None:
    """Set D to popc(A xor B) + C for matrices of bits, or with `and` (bmmaBitOpAND, sm_80 on)."""
    what = "bmma_sync"
    to, left, right, start = _operands(d, a, b, c, what)
    if left.dtype is not b1:
        raise current().error(f"{what} multiplies b1 matrices; {left} is for mma_sync")
    if bmmaAccumulateOp is not bmmaAccumulateOpPOPC:
        raise current().error(f"{what}: the only sum is wmma.bmmaAccumulateOpPOPC, not {bmmaAccumulateOp!r}")
    operation = {bmmaBitOpXOR: "xor", bmmaBitOpAND: "and"}.get(bmmaBitOp)
    if operation is None:
        raise current().error(f"{what}: wmma.bmmaBitOpXOR or wmma.bmmaBitOpAND, not {bmmaBitOp!r}")
    text = f"wmma.mma.{operation}.popc.sync.aligned.row.col.{left.shape}.s32.b1.b1.s32"
    _multiply(find(text, what), to, left, right, start)


def float_to_tf32(x: object) -> Scalar:
    """Return an f32 rounded to the nearest tf32, ties away from zero; it stays an f32."""
    value = scalar(x, f32, "float_to_tf32")
    current().need("cvt.rna.tf32.f32", 80, "7.0")
    return bitcast(Scalar(u32, current().define("cvt.rna.tf32.f32", "b32", value.in_register)), f32)
