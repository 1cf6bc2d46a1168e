"""Pointers: addresses with a dtype, a state space and what is known of their alignment; loads and stores.

Layouts over a pointer are in `array.py` and `view.py`; atomics and asynchronous copies are intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from lanewise.formats import Format
from lanewise.lang.memory.layout_index import Piece
from lanewise.lang.trace.builder import Address, Register, Symbol, current
from lanewise.lang.trace.convert import convert
from lanewise.lang.trace.operators import compare, mul
from lanewise.lang.trace.scalar import Scalar, pack_register, scalar, unpack_register
from lanewise.lang.trace.traced import Node, describe, is_number, plain_number, refuse
from lanewise.lang.trace.types import (
    dtype_name,
    i64,
    is_int,
    memory_type,
    register_kind,
    storage_bytes,
    u32,
    u64,
)

#: Cache operators of loads and stores.
_CACHES = {"ld": ("ca", "cg", "cs", "lu", "cv", "nc"), "st": ("wb", "cg", "cs", "wt")}
#: Bytes that one load or store moves at most.
_WIDEST_ACCESS = 16
#: State spaces whose addresses are 32-bit.
NARROW_SPACES = ("shared", "local", "shared::cluster")
#: Offsets of addresses are 32-bit; far smaller ones are enough.
_LARGEST_OFFSET = 1 << 20


class Access(NamedTuple):
    """One load or store of `vector` registers, among those that move several elements."""

    offset: int
    register_kind: str
    memory_type: str
    vector: int


def _comparison(name: str) -> Callable[[Pointer, object], Scalar]:
    """Return the method of a comparison."""
    return lambda self, other: self._compared(name, other)


class Pointer(Node):
    """The address of elements of a dtype: `p[i]`, `p[i] = x`, `p + i`, `p.load(4)`, `p.store((x, y))`.

    `align` divides the address, as far as is known. `piece` says how many neighbours there are, if the
    pointer leads into an array with a swizzle. `variable` is the declared memory that the pointer was made
    from; None if a parameter, a loop or a number gave it.
    """

    __slots__ = ("align", "base", "dtype", "offset", "piece", "space", "variable")
    AS_CONDITION = ": p != 0 says whether it is null"

    if TYPE_CHECKING:  # a parameter annotated lw.Ptr[lw.f16, 16] is a pointer (lang/frontend/annotations.py)

        def __class_getitem__(cls, what: Any) -> type[Pointer]: ...

    def __init__(
        self,
        dtype: Format,
        space: str,
        base: Any,
        offset: int = 0,
        align: int = 1,
        piece: Piece | None = None,
        variable: Symbol | None = None,
    ) -> None:
        self.dtype, self.space, self.base, self.offset = dtype, space, base, offset
        self.align, self.piece = align, piece
        self.variable = base if isinstance(base, Symbol) else variable

    # as a node of a pytree: its address may change, its type not
    def children(self) -> list[Any]:
        return [self.as_number()]

    def with_children(self, children: list[Any], fresh: bool = False) -> Pointer:
        register, align = children[0].in_register, storage_bytes(self.dtype)
        return Pointer(self.dtype, self.space, register, 0, align, self.piece)

    def same_kind(self, other: Any) -> bool:
        return isinstance(other, Pointer) and (self.dtype, self.space) == (other.dtype, other.space)

    @property
    def size(self) -> int:
        """The bytes that one element takes."""
        return storage_bytes(self.dtype)

    @property
    def address(self) -> Scalar:
        """The address as a number: u32 in shared and local memory, else u64."""
        self.leave_layout()
        return self.as_number()

    @property
    def operand(self) -> Address:
        """The operand of an instruction that reads or writes what it points to."""
        return Address(self.base, self.offset)

    def as_number(self) -> Scalar:
        """Return the address as a number that nothing is added to."""
        dtype = u32 if self.space in NARROW_SPACES else u64
        base = self.base
        if isinstance(base, Symbol):
            base = current().define(f"mov.u{dtype.bits}", f"b{dtype.bits}", base)
        number = Scalar(dtype, base)
        if self.offset:
            number = Scalar(dtype, root=number, addend=self.offset)
        return number

    def named(self, name: str) -> None:
        """Give the register the Python name that the pointer is bound to, unless it has one already."""
        if isinstance(self.base, Register) and not self.base.hint:
            self.base.hint = name

    def name_variable(self, name: str) -> None:
        """Give the declared memory that it leads to a Python name in the PTX, unless it has one already."""
        if isinstance(self.base, Symbol) and self.base.hint in ("shared", "local"):
            self.base.hint = name

    def to(self, dtype: Format) -> Pointer:
        """Return a pointer to elements of another dtype at the same address."""
        return Pointer(dtype, self.space, self.base, self.offset, self.align, self.piece, self.variable)

    def aligned(self, align: int) -> Pointer:
        """Return the same pointer with the promise that `align` divides its address."""
        align = max(self.align, align)
        return Pointer(self.dtype, self.space, self.base, self.offset, align, self.piece, self.variable)

    def within(self, piece: Piece | None) -> Pointer:
        """Return the same pointer, into an array whose swizzle keeps pieces together."""
        return Pointer(self.dtype, self.space, self.base, self.offset, self.align, piece, self.variable)

    # arithmetic -----------------------------------------------------------------------------------------

    def leave_layout(self) -> None:
        """Record that the kernel computes by itself where elements of shared memory lie.

        Another layout of the array would not move what is computed so: a checker proposes none then.
        """
        if self.space.startswith("shared"):
            current().computed_addresses.add(self.variable)

    def at(self, index: object) -> Pointer:
        """Return the pointer `index` elements further on, where the layout of an array leads."""
        return self.moved(index, self.size)

    def __add__(self, index: object) -> Pointer:
        return self._computed(index)

    __radd__ = __add__

    def __sub__(self, index: Any) -> Pointer:
        if isinstance(index, Pointer):
            raise current().error("the difference of two pointers: subtract their .address values")
        if isinstance(index, Scalar) and not index.dtype.signed and index.dtype.bits < 64:
            index = convert(index, i64)  # its negative is no u32
        return self._computed(-index)

    def _computed(self, index: object) -> Pointer:
        """Return the pointer `index` elements further on, where the kernel's own arithmetic leads."""
        if not (isinstance(index, int) and index == 0):
            self.leave_layout()
        return self.at(index)

    def moved(self, index: Any, size: int) -> Pointer:
        """Return the pointer `index` times `size` bytes further on."""
        if is_number(index) and isinstance(plain_number(index), int) and not isinstance(index, bool):
            step = int(plain_number(index)) * size
            align = gcd(self.align, step) if step else self.align
            return self._offset(self.base, self.offset + step, align)
        if not isinstance(index, Scalar):
            if is_number(index) or isinstance(index, tuple | slice):
                raise current().error(
                    f"the index of a pointer is one integer, not {index!r}: lw.tensor(p, layout) is indexed "
                    "by several, and p.load(n) takes n neighbours"
                )
            refuse(index, "an index")
        if not is_int(index.dtype) or index.dtype.bits < 32:
            raise current().error(
                f"an index is i32, u32, i64 or u64, not {dtype_name(index.dtype)}: "
                "convert it with .to(lw.i32)"
            )
        root, addend = (index.root, index.addend) if index.root is not None else (index, 0)
        if addend and index.dtype == u32 and self.space not in NARROW_SPACES:
            root, addend = Scalar(u32, index.in_register), 0  # u32 wraps, and 64-bit addresses do not
        if root.constant is not None:
            return self.moved(root.constant + addend, size)
        align = gcd(self.align, index.multiple * size)
        return self._offset(self._base_plus(root, size), self.offset + addend * size, align)

    def _offset(self, base: Any, offset: int, align: int) -> Pointer:
        """Return the pointer at an offset from a base; a large offset is added to the base."""
        if abs(offset) >= _LARGEST_OFFSET:
            base, offset = Pointer(self.dtype, self.space, base, offset).as_number().in_register, 0
        return Pointer(self.dtype, self.space, base, offset, align, self.piece, self.variable)

    def _base_plus(self, index: Scalar, size: int) -> Register:
        """Return the register with the base plus a traced index times a size in bytes."""
        builder = current()
        base = self.base
        narrow = self.space in NARROW_SPACES
        bits = 32 if narrow else 64
        if isinstance(base, Symbol):
            base = builder.define(f"mov.u{bits}", f"b{bits}", base)
        if narrow:
            scaled = mul(convert(index, u32) if index.dtype.bits == 64 else index, size)
            return builder.define("add.u32", "b32", base, scaled.operand)
        if index.dtype.bits == 64:
            return builder.define("add.u64", "b64", base, mul(index, size).operand)
        return builder.define(f"mad.wide.{index.dtype.name}", "b64", index.operand, str(size), base)

    # comparisons ----------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> Any:
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("ne", other)

    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")

    def _compared(self, name: str, other: object) -> Scalar:
        """Return the comparison of two addresses, or of one with the null pointer, which is 0 or None."""
        if isinstance(other, Pointer) and other.space == self.space:
            return compare(name, self.as_number(), other.as_number())
        if name in ("eq", "ne") and (other is None or (is_number(other) and other == 0)):
            return compare(name, self.as_number(), 0)
        raise current().error(
            f"{describe(self)} is compared with another of the same memory, or with 0, the null pointer; not "
            f"with {describe(other)}: p.address is its number"
        )

    # access ---------------------------------------------------------------------------------------------

    def __getitem__(self, index: object) -> Scalar:
        return self._computed(index).load()

    def __setitem__(self, index: object, value: object) -> None:
        self._computed(index).store(value)

    def __iter__(self) -> Any:
        raise current().error("a pointer has no length: index it, p[i], in a loop")

    def __len__(self) -> int:
        raise current().error("a pointer has no length: pass the number of elements as a parameter")

    @overload
    def load(  # type: ignore[overload-overlap]  # 1 is an int as well, and the first that fits counts
        self, width: Literal[1] = 1, *, cache: str = "", volatile: bool = False
    ) -> Scalar: ...
    @overload
    def load(self, width: int, *, cache: str = "", volatile: bool = False) -> tuple[Scalar, ...]: ...
    def load(self, width: int = 1, *, cache: str = "", volatile: bool = False) -> Any:
        """Load the element, or a tuple of `width` neighbouring ones, with as few instructions as possible.

        `cache` is ca, cg, cs, lu, cv, or nc for memory that nothing writes while the kernel runs.
        """
        accesses = self._accesses(width)
        opcode = self._opcode("ld", cache, volatile)
        builder = current()
        elements: list[Scalar] = []
        for offset, kind, memory, count in accesses:
            registers = [Register(kind) for _ in range(count)]
            suffix = f".v{count}" if count > 1 else ""
            target: Any = tuple(registers) if count > 1 else registers[0]
            builder.emit(f"{opcode}{suffix}.{memory}", target, Address(self.base, self.offset + offset))
            elements += self._unpacked(registers, kind)
        return elements[0] if width == 1 else tuple(elements)

    def store(self, value: object, *, cache: str = "", volatile: bool = False) -> None:
        """Store a value, or a tuple of values side by side."""
        values = list(value) if isinstance(value, tuple | list) else [value]
        items = [self._stored(value) for value in values]
        opcode = self._opcode("st", cache, volatile)
        done = 0
        for offset, kind, memory, count in self._accesses(len(items)):
            per_register = 4 // self.size if kind == "b32" and self.dtype.bits < 32 else 1
            registers = self.packed(items[done : done + count * per_register], kind)
            done += count * per_register
            suffix = f".v{count}" if count > 1 else ""
            source: Any = tuple(registers) if count > 1 else registers[0]
            current().emit(f"{opcode}{suffix}.{memory}", Address(self.base, self.offset + offset), source)

    def _stored(self, value: Any) -> Scalar:
        """Return a value to be stored as a Scalar of the pointer's dtype; an error if it has another."""
        if isinstance(value, Scalar) and value.dtype != self.dtype:
            raise current().error(
                f"{describe(value)} is stored through a pointer to {dtype_name(self.dtype)}: convert it with "
                f".to(lw.{dtype_name(self.dtype)})"
            )
        return scalar(value, self.dtype, "a store")

    def _opcode(self, verb: str, cache: str, volatile: bool) -> str:
        """Return the opcode of a load or store, without the type, for a state space and a cache operator."""
        if volatile:
            if cache:
                raise current().error("a volatile access takes no cache hint")
            return f"{verb}.volatile{f'.{self.space}' if self.space else ''}"
        if cache and cache not in _CACHES[verb]:
            raise current().error(f"the cache hints of {verb} are {', '.join(_CACHES[verb])}, not {cache!r}")
        if cache and self.space != "global":
            raise current().error(f"a cache hint is for global memory, not {self.space or 'generic'}")
        return f"{verb}{f'.{self.space}' if self.space else ''}{f'.{cache}' if cache else ''}"

    def _accesses(self, width: int) -> list[Access]:
        """Return the loads or stores that move `width` elements."""
        if not isinstance(width, int) or width < 1:
            raise current().error(f"a width is a number of elements, at least 1, not {width!r}")
        total = width * self.size
        own = register_kind(self.dtype)
        if width == 1:
            return [Access(0, own, memory_type(self.dtype), 1)]
        self.require_together(total, f"{width} neighbours")
        step = min(total & -total, _WIDEST_ACCESS)
        if step < min(4, total):
            step = self.size
        accesses = []
        for offset in range(0, total, step):
            if self.dtype.bits < 32 and step >= 4:
                accesses.append(Access(offset, "b32", "b32", step // 4))
            else:
                accesses.append(Access(offset, own, memory_type(self.dtype), step // self.size))
        if len(accesses) > 1:  # a layout keeps together what one access moves, and not more
            self.leave_layout()
        return accesses

    def require_together(self, count: int, what: str) -> None:
        """Raise an error if a swizzle keeps fewer than `count` bytes together; `what` moves so many."""
        if self.piece is not None and self.piece.bytes < count:
            whole = self.piece.whole(count)
            raise current().error(
                f"{what} are {count} bytes, and {self.piece.swizzle!r} of this array keeps only "
                f"{self.piece.bytes} together: the rest lies elsewhere. {whole!r} keeps {count} together; or "
                f"move {self.piece.bytes} bytes at a time"
            )

    def _unpacked(self, registers: list[Register], kind: str) -> list[Scalar]:
        """Return the elements that loaded registers hold."""
        if kind != "b32" or self.dtype.bits >= 32:
            return [Scalar(self.dtype, register) for register in registers]
        return [
            element
            for register in registers
            for element in unpack_register(register, self.dtype, 8 * self.size)
        ]

    def packed(self, values: list[Scalar], kind: str) -> list[object]:
        """Return registers of a kind that hold elements as they lie in memory."""
        if kind != "b32" or self.dtype.bits >= 32:
            return [value.in_register for value in values]
        per_register = 4 // self.size
        return [
            pack_register(values[start : start + per_register], 8 * self.size)
            for start in range(0, len(values), per_register)
        ]

    def __str__(self) -> str:
        return f"a pointer to {dtype_name(self.dtype)} in {self.space or 'generic'} memory"


def pointer(address: object, dtype: Format, space: str = "", align: int = 0) -> Pointer:
    """Return a pointer made of an address: u64, or u32 in shared memory.

    `space` is global, shared, local, or '' for a generic address.
    """
    bits = 32 if space in NARROW_SPACES else 64
    value = scalar(address, None, "lw.pointer")
    if value.dtype.bits != bits or not is_int(value.dtype):
        raise current().error(
            f"an address in {space or 'generic'} memory is u{bits}, not {dtype_name(value.dtype)}"
        )
    if space not in ("", "global", *NARROW_SPACES):
        raise current().error(
            f"a space is global, shared, shared::cluster, local or '' (generic), not {space!r}"
        )
    return Pointer(dtype, space, value.in_register, 0, align or storage_bytes(dtype))
