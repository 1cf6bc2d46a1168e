"""Fragments from memory, to memory, and filled with a value; the rules of pointers and leading dimensions.

What a fragment is stands in `fragment.py`; products of fragments are in `mma.py`.
"""

from typing import Any

from lanewise.formats import Format, f32, s8, s32, tf32, u8
from lanewise.lang.matrix.emit import require
from lanewise.lang.matrix.fragment import full_fragment
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.ir import Address, Register, Symbol
from lanewise.lang.trace.packed_register import register_dtype
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import dtype_name, is_int, register_kind, u32
from lanewise.lang.wmma.fragment import fragment, given_fragment
from lanewise.lang.wmma.names import ORDERS, STORAGE, accumulator, find, mem_col_major, mem_row_major

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
    return Address(pointer.base, pointer.offset), pointer.space


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
