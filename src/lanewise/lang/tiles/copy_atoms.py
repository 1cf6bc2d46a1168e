"""What one copy atom emits: loads and stores, cp.async, ldmatrix, stmatrix, movmatrix; and its conditions.

Which elements each atom of a copy takes, and under which predicate, is decided in `copy.py`.
"""

from dataclasses import dataclass
from typing import Any

from lanewise.atoms import Copy_Atom
from lanewise.formats import Format, f32, f64, tf32
from lanewise.lang.intrinsics.cp_async import cp_async
from lanewise.lang.matrix.emit import emit
from lanewise.lang.memory.addresses import StridedAddresses
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.memory.view import View
from lanewise.lang.tiles.register_tensor import RegisterTensor, as_register
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.ir import Operation, Register
from lanewise.lang.trace.operators import where
from lanewise.lang.trace.scalar import Scalar, constant_text, literal
from lanewise.lang.trace.types import dtype_name, storage_bytes, u32


@dataclass(frozen=True)
class AtomCopy:
    """A copy atom between two tensors that it fits; `fill` is what is written where a predicate fails."""

    atom: Copy_Atom
    source: View | RegisterTensor
    target: View | RegisterTensor
    fill: int | None

    def __post_init__(self) -> None:
        atom, sides = self.atom, (self.source, self.target)
        for side in sides:
            if side.dtype.bits < 8 and isinstance(side, View):
                raise current().error(
                    f"lw.copy of {side}: elements smaller than a byte have no addresses; load the words that "
                    "hold them, and set the fragment's elements"
                )
            if side.dtype.bits != atom.ValType.bits:
                raise current().error(
                    f"lw.copy: {atom.name} moves values of {atom.ValType} ({atom.ValType.bits} bits), and "
                    f"{side} has {side.dtype.bits} bits an element; name the type where the copy is made"
                )
        kinds = {side.dtype for side in sides}
        if len(kinds) > 1 and kinds != {f32, tf32}:
            raise current().error(
                f"lw.copy moves bits and converts nothing: from {self.source} to {self.target}; "
                f"use .to(lw.{dtype_name(self.target.dtype)}) on registers"
            )

    def require_spaces(self, source: str, target: str) -> None:
        """Raise an error unless source and target lie in these state spaces, or in registers."""
        for what, tensor, space in (("reads", self.source, source), ("writes", self.target, target)):
            if tensor.space != space:
                raise current().error(
                    f"{self.atom.name} {what} {_space_text(space)}, and here it is {tensor}"
                )


def _space_text(space: str) -> str:
    """Return a state space in the words of messages."""
    return space if space == "registers" else f"{space} memory"


def emit_copy_atom(this: AtomCopy, reads: list[int], writes: list[int], holds: Scalar | None) -> None:
    """Emit one copy atom on the values of these numbers, to be done where a predicate holds."""
    atom = this.atom
    if holds is not None:
        holds = Scalar(holds.dtype, holds.in_register)  # computed before what it guards
    if atom.instruction is not None and not atom.name.startswith("SM100"):
        if holds is not None:
            raise current().error(f"{atom.name} is done by a whole warp: it takes no predicate")
        return _warp_copy(this, reads, writes)
    if atom.name.startswith("SM80_CP_ASYNC"):
        return _async_copy(this, reads, writes, holds)
    if atom.name.startswith("UniversalCopy"):
        return _load_store(this, reads, writes, holds)
    raise current().error(f"{atom.name} cannot be used by lw.copy in a kernel yet")


def vector_pointer(tensor: View, numbers: list[int], what: str) -> Pointer:
    """Return the pointer to elements that are moved by one access; an error if they cannot be."""
    count = len(numbers)
    width = count * storage_bytes(tensor.dtype)
    pointer = tensor.addresses.pointer_at(tensor.offset(numbers[0]))
    if count == 1:
        return pointer
    reason = ""
    if not tensor.are_contiguous(numbers):
        reason = "they do not lie side by side in its layout"
    elif tensor.addresses.contiguous_run() and tensor.addresses.contiguous_run() % count:
        reason = (
            f"the swizzle {tensor.addresses.swizzle} keeps only {tensor.addresses.contiguous_run()} together"
        )
    elif pointer.align % width:
        reason = f"its address is known to be a multiple of {pointer.align} bytes only"
        if isinstance(tensor.addresses, StridedAddresses):
            reason += "; promise more by lw.assume(stride, multiple_of=…), lw.Ptr[dtype, 16]"
    if reason:
        raise current().error(
            f"{what}: a vector width of {count} elements ({width} bytes) cannot be for {tensor}: {reason}"
        )
    return pointer


def _warp_copy(this: AtomCopy, reads: list[int], writes: list[int]) -> None:
    """Emit an atom that a whole warp does together: ldmatrix, stmatrix or movmatrix."""
    atom, source, target = this.atom, this.source, this.target
    inst = atom.instruction
    assert inst is not None
    if inst.family == "ldmatrix":
        this.require_spaces("shared", "registers")
        assert isinstance(source, View) and isinstance(target, RegisterTensor)
        made = emit(inst, vector_pointer(source, reads, atom.name))
        for indices, register in zip(target.indices_by_register(writes), made.registers, strict=True):
            target.set_packed(indices, register)
    elif inst.family == "stmatrix":
        this.require_spaces("registers", "shared")
        assert isinstance(source, RegisterTensor) and isinstance(target, View)
        registers = [
            as_register(source.packed(indices), u32) for indices in source.indices_by_register(reads)
        ]
        emit(inst, vector_pointer(target, writes, atom.name), registers)
    else:
        this.require_spaces("registers", "registers")
        assert isinstance(source, RegisterTensor) and isinstance(target, RegisterTensor)
        register = as_register(source.packed(source.indices_by_register(reads)[0]), u32)
        target.set_packed(target.indices_by_register(writes)[0], emit(inst, register))


def _async_copy(this: AtomCopy, reads: list[int], writes: list[int], holds: Scalar | None) -> None:
    """Emit cp.async, which writes zeros or nothing where the predicate fails."""
    this.require_spaces("global", "shared")
    assert isinstance(this.source, View) and isinstance(this.target, View)
    name = this.atom.name
    bits = this.atom.operation.bits
    to, source = vector_pointer(this.target, writes, name), vector_pointer(this.source, reads, name)
    cache = "ca" if "CACHEALWAYS" in name else "cg"
    if holds is None:
        cp_async(to, source, bits // 8, cache=cache)
    elif this.fill is not None:
        cp_async(to, source, bits // 8, where(holds, bits // 8, 0), cache=cache)
    else:
        start = len(current().code)
        cp_async(to, source, bits // 8, cache=cache)
        guard_since(start, holds)


def _load_store(this: AtomCopy, reads: list[int], writes: list[int], holds: Scalar | None) -> None:
    """Emit a load, a store or both, each guarded by the predicate or followed by a selection."""
    source, target, name = this.source, this.target, this.atom.name
    if isinstance(source, RegisterTensor):
        values = [source.element(source.index(number)) for number in reads]
    else:
        pointer = vector_pointer(source, reads, name)
        if holds is None:
            values = _as_list(pointer.load(len(reads)))
        else:
            values = _guarded_load(pointer, len(reads), holds, _values_before(this, writes))
    values = [_same_bits(value, target.dtype) for value in values]
    if isinstance(target, RegisterTensor):
        indices = [target.index(number) for number in writes]
        if holds is not None and isinstance(source, RegisterTensor):
            values = [
                where(holds, new, literal(0, new.dtype) if this.fill is not None else target.element(index))
                for new, index in zip(values, indices, strict=True)
            ]
        target.set_elements(indices, values)
        return
    pointer = vector_pointer(target, writes, name)
    if holds is not None and this.fill is not None and isinstance(source, RegisterTensor):
        values = [where(holds, value, literal(0, value.dtype)) for value in values]
    start = len(current().code)
    pointer.store(values)
    if holds is not None and this.fill is None:
        guard_since(start, holds)


def _values_before(this: AtomCopy, writes: list[int]) -> list[Scalar] | None:
    """Return what a load leaves where its predicate fails: None for zeros, or what registers held."""
    target = this.target
    if this.fill is not None or not isinstance(target, RegisterTensor):
        return None
    return [target.element(target.index(number)) for number in writes]


def _guarded_load(
    pointer: Pointer, width: int, holds: Scalar, otherwise: list[Scalar] | None
) -> list[Scalar]:
    """Return neighbouring elements, loaded where a predicate holds; elsewhere zeros, or other values."""
    builder = current()
    start = len(builder.code)
    values = _as_list(pointer.load(width))
    done = 0
    for number in range(start, len(builder.code)):
        load = builder.code[number]
        if load.pure:
            continue
        load.guard = holds.in_register
        registers = load.operands[0] if isinstance(load.operands[0], tuple) else (load.operands[0],)
        for register in registers:
            per_register = (
                32 // pointer.dtype.bits if register.kind == "b32" and pointer.dtype.bits < 32 else 1
            )
            if otherwise is None:
                initial: object = _ZEROS.get(register.kind, "0")
            else:
                initial = pointer.packed(otherwise[done : done + per_register], register.kind)[0]
            done += per_register
            builder.emit(f"mov.{register.kind}", register, initial, pure=True)
    _guarded_last(builder.code, start)
    return values


#: Zero as a constant of a register kind, where it is not written as 0.
_ZEROS = {dtype.name: constant_text(dtype, 0.0) for dtype in (f32, f64)}


def _guarded_last(code: list[object], start: int) -> None:
    """Put guarded instructions last, after those that set the registers which they may leave alone."""
    late = [
        statement
        for statement in code[start:]
        if isinstance(statement, Operation) and statement.guard is not None
    ]
    early = [
        statement
        for statement in code[start:]
        if not (isinstance(statement, Operation) and statement.guard is not None)
    ]
    code[start:] = early + late


def guard_since(start: int, holds: Scalar) -> None:
    """Guard the instructions emitted since `start` by a predicate, but for pure computation."""
    register: Register = holds.in_register
    for statement in current().code[start:]:
        if isinstance(statement, Operation) and not statement.pure:
            statement.guard = register


def _as_list(values: Any) -> list[Scalar]:
    """Return what a load gave, one value or a tuple, as a list."""
    return list(values) if isinstance(values, tuple) else [values]


def _same_bits(value: Scalar, dtype: Format) -> Scalar:
    """Return a value as the dtype of the target: f32 and tf32 share their bits."""
    return value if value.dtype == dtype else bitcast(value, dtype)
