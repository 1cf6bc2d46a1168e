"""Atomics on global and shared memory, also that of other blocks of a cluster: they return the old value.

Plain loads and stores are methods of a pointer (`memory/pointer.py`).
"""

from lanewise.formats import bf16, f16, f32, f64
from lanewise.isa.multiprocessor import TORN_IN_CLUSTERS
from lanewise.lang.intrinsics.sync import scope_name
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import PAIRS, dtype_name, i32, i64, is_int, register_kind, u32, u64

_ORDERS = {"relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
#: The state spaces that atomics reach; "" for generic addresses.
_SPACES = ("global", "shared", "shared::cluster", "")


def _atomic(name: str, pointer: object, values: tuple[object, ...], scope: str, order: str) -> Scalar:
    """Emit an atomic operation on memory and return the old value."""
    builder = current()
    if not isinstance(pointer, Pointer) or pointer.space not in _SPACES:
        raise builder.error(
            f"lw.atomic_{name} takes a pointer to global or shared memory, such as p + i, not "
            f"{describe(pointer)}"
        )
    if order not in _ORDERS:
        raise builder.error(f"the order of lw.atomic_{name} is {', '.join(_ORDERS)}, not {order!r}")
    scope = scope_name(scope, f"lw.atomic_{name}")
    dtype = pointer.dtype
    if pointer.space == "shared::cluster" and is_int(dtype) and dtype.bits == 64 and name in TORN_IN_CLUSTERS:
        raise builder.error(
            f"lw.atomic_{name} of {dtype_name(dtype)} in another block's memory loses updates on a GPU: "
            "use 32 bits, or a loop with lw.atomic_cas"
        )
    operands = [scalar(value, dtype, f"lw.atomic_{name}").in_register for value in values]
    space = f".{pointer.space}" if pointer.space else ""
    opcode = f"atom.{_ORDERS[order]}.{scope}{space}.{name}{_type(name, pointer)}"
    previous = builder.result(opcode, register_kind(dtype), pointer.operand, *operands, hint="old")
    return Scalar(dtype, previous)


def _type(name: str, pointer: Pointer) -> str:
    """Return the type that an atomic operation names; an error if there is none for the dtype."""
    builder, dtype = current(), pointer.dtype
    wide = dtype.bits in (32, 64)
    if name in ("exch", "cas") and (wide or (name == "cas" and dtype.bits == 16)):
        return f".b{dtype.bits}"
    if name in ("and", "or", "xor") and wide and is_int(dtype):
        return f".b{dtype.bits}"
    if name in ("inc", "dec") and dtype is u32:
        return ".u32"
    if name in ("min", "max") and dtype in (i32, u32, i64, u64):
        return f".{dtype.name}"
    if name == "add":
        if dtype in (i32, u32, u64, f32, f64):
            return f".{dtype.name}"
        if dtype is i64:
            return ".u64"  # the same bits
        if dtype in (f16, bf16) or dtype in PAIRS:
            element = PAIRS.get(dtype, dtype)
            arch, version = (90, "7.8") if element is bf16 else (70, "6.3")
            builder.need(f"atomic add of {dtype.name}", arch, version)
            return f".noftz.{dtype.name}"
    raise builder.error(f"there is no atomic {name} of {dtype_name(dtype)}")


def atomic_add(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Add to memory; the outcome is the old value. Inside a kernel: `lw.atomic_add(p + i, 1)`."""
    return _atomic("add", pointer, (value,), scope, order)


def atomic_min(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Keep the lesser of two values in memory; the outcome is the old value."""
    return _atomic("min", pointer, (value,), scope, order)


def atomic_max(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Keep the greater of two values in memory; the outcome is the old value."""
    return _atomic("max", pointer, (value,), scope, order)


def atomic_and(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Clear the bits in memory that `value` lacks; the outcome is the old value."""
    return _atomic("and", pointer, (value,), scope, order)


def atomic_or(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Set the bits of `value` in memory; the outcome is the old value."""
    return _atomic("or", pointer, (value,), scope, order)


def atomic_xor(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Flip the bits of `value` in memory; the outcome is the old value."""
    return _atomic("xor", pointer, (value,), scope, order)


def atomic_inc(pointer: object, limit: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Count up (u32); after `limit` it begins again at 0. The outcome is the old value."""
    return _atomic("inc", pointer, (limit,), scope, order)


def atomic_dec(pointer: object, limit: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Count down (u32); below 0 it begins again at `limit`. The outcome is the old value."""
    return _atomic("dec", pointer, (limit,), scope, order)


def atomic_exch(pointer: object, value: object, *, scope: str = "gpu", order: str = "relaxed") -> Scalar:
    """Put a value into memory; the outcome is the old value."""
    return _atomic("exch", pointer, (value,), scope, order)


def atomic_cas(
    pointer: object, compare: object, value: object, *, scope: str = "gpu", order: str = "relaxed"
) -> Scalar:
    """Put a value into memory if it holds `compare`; the outcome is the old value."""
    return _atomic("cas", pointer, (compare, value), scope, order)
