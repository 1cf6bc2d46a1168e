"""lw.copy: a tiled copy, or one copy atom, over a thread's elements of two tensors, unrolled.

First, which elements each atom takes, and under which predicate. Then what one atom emits: loads and stores,
cp.async, ldmatrix, stmatrix, movmatrix; and, to and from tensor memory, tcgen05.ld and st of a warp with the
wait for them, whose layouts are those of `atoms/tmem.py`.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

from lanewise.atoms import Copy_Atom, TmemTensor
from lanewise.atoms.tmem import TensorMove
from lanewise.formats import f32, f64, tf32
from lanewise.isa.tensor_memory import load_shapes
from lanewise.lang.intrinsics.cp_async import cp_async
from lanewise.lang.matrix.emit import emit
from lanewise.lang.matrix.tensor_memory import emit_tcgen05
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.layout_index import UNKNOWN, shape_text
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.memory.view import Coordinates, StridedAddresses, TmemAddresses, View
from lanewise.lang.tiles.register_tensor import RegisterTensor, as_register
from lanewise.lang.tiles.tensor import as_view
from lanewise.lang.trace.builder import Address, Operation, Register, current
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.operators import as_predicate, bitwise, compare, where
from lanewise.lang.trace.scalar import Scalar, constant_text, literal, register_dtype
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import dtype_name, register_kind, storage_bytes, u32
from lanewise.layout import Layout, coalesce, composition, flatten, size, upcast


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
                where_to = space if space == "registers" else f"{space} memory"
                raise current().error(f"{self.atom.name} {what} {where_to}, and here it is {tensor}")


def inside(*coordinates: object) -> Any:
    """Stand for the predicate `pred=lw.inside` of lw.copy, which leaves out what lies outside of a tensor."""
    raise current().error("lw.inside is for lw.copy: lw.copy(tiled_copy, source, target, pred=lw.inside)")


def copy(*arguments: object, pred: object = None, fill: int | None = None, wait: bool = True) -> None:
    """Copy a thread's elements of one tensor to those of another: copy(tiled_copy, source, target).

    Without a tiled copy, elements are moved as wide as both sides allow. `pred` is a predicate for all,
    `lw.inside`, or a function that gets the coordinates of each piece in the tensor in global memory; a
    piece for which it fails is not copied, or, with fill=0, zeros are written. Copies to and from tensor
    memory are waited for; with wait=False, lw.tcgen05.wait_load() or wait_store() has to follow.

    Inside a kernel: `lw.copy(tiled_copy, tAgA[None, None, None, k], tAsA[None, None, None, stage])`.
    """
    builder = current()
    if len(arguments) not in (2, 3):
        raise builder.error("lw.copy takes a tiled copy, a source and a target; or a source and a target")
    if len(arguments) == 3 and hasattr(arguments[0], "copy_boxes"):
        if pred is not None or fill is not None:
            raise builder.error("a copy by TMA takes no predicate: what lies outside of the tensor is zeros")
        arguments[0].copy_boxes(*arguments[1:])
        return
    source, target = (_tensor(argument) for argument in arguments[-2:])
    if fill not in (None, 0):
        raise builder.error(f"lw.copy: fill is 0 or nothing, not {fill!r}")
    for tensor in (source, target):
        if UNKNOWN in flatten((tensor.shape,)):
            raise builder.error(
                f"lw.copy of {tensor}: slice the mode whose extent is known only when the kernel runs"
            )
    atom = arguments[0] if len(arguments) == 3 else _widest_copy(source, target, pred)
    if not isinstance(atom, Copy_Atom):
        raise builder.error(f"lw.copy takes a TiledCopy or a copy atom first, not {describe(atom)}")
    reads, writes = atom.NumValSrc, atom.NumValDst
    count = size(source.layout) // reads
    if size(source.layout) % reads or size(target.layout) % writes or size(target.layout) // writes != count:
        raise builder.error(
            f"lw.copy: {atom.name} of {atom.ValType} takes {reads} and gives {writes} values a thread, which "
            f"source and target of shapes {shape_text(source.shape)} and {shape_text(target.shape)} are no "
            "equal number of; partition or retile both by the tiled copy"
        )
    if atom.operation.move is not None:
        _copy_tensor_memory(atom, source, target, pred, wait)
        return
    if "ZFILL" in atom.name:
        fill = 0
    this = AtomCopy(atom, source, target, fill)
    for number in range(count):
        inputs, outputs = (list(range(number * count, (number + 1) * count)) for count in (reads, writes))
        emit_copy_atom(this, inputs, outputs, _predicate(pred, this, inputs[0], outputs[0]))


def _copy_tensor_memory(
    atom: Copy_Atom, source: View | RegisterTensor, target: View | RegisterTensor, pred: object, wait: bool
) -> None:
    """Emit the loads or stores of tensor memory, and the wait for them."""
    move = atom.operation.move
    assert move is not None
    if pred is not None:
        raise current().error(f"{atom.name} is done by a whole warp: it takes no predicate")
    _require_tensor_sides(atom, move, source, target)
    reads, writes = atom.NumValSrc, atom.NumValDst
    for number in range(size(source.layout) // reads):
        inputs, outputs = (list(range(number * count, (number + 1) * count)) for count in (reads, writes))
        _emit_tensor_move(move, source, target, inputs, outputs)
    if wait:
        emit_tcgen05(f"tcgen05.wait::{move.kind}.sync.aligned")


def _tensor(what: object) -> View | RegisterTensor:
    """Return an argument of lw.copy as a tensor; an error if it is none."""
    if isinstance(what, RegisterTensor):
        return what
    if isinstance(what, Array | View) and not isinstance(getattr(what, "addresses", None), Coordinates):
        return as_view(what, "lw.copy")
    if isinstance(what, TmemTensor):
        raise current().error(
            f"lw.copy: {what!r} is a fragment that is not allocated: memory.tensor(fragment) of memory = "
            "lw.tmem.alloc(columns) says where it lies"
        )
    raise current().error(f"lw.copy moves between tensors; {describe(what)} is not a tensor")


def _predicate(pred: object, this: AtomCopy, read: int, write: int) -> Scalar | None:
    """Return the predicate of one atom's elements; None where it always holds."""
    if pred is None:
        return None
    if not callable(pred):
        predicate = as_predicate(pred)
    else:
        tensor, number, values = _with_coordinates(this, read, write)
        coordinates = tensor.addresses.coordinates(tensor.offset(number))
        if pred is inside:
            predicate = _within_limits(tensor, number, coordinates, values)
        else:
            predicate = as_predicate(pred(*coordinates))
    return None if predicate.constant is True else predicate


def _with_coordinates(this: AtomCopy, read: int, write: int) -> tuple[View, int, int]:
    """Return the side that knows its coordinates, the number of its first value, and its values."""
    sides = ((this.source, read, this.atom.NumValSrc), (this.target, write, this.atom.NumValDst))
    for tensor, number, values in sides:
        if isinstance(tensor, View) and isinstance(tensor.addresses, StridedAddresses):
            return tensor, number, values
    raise current().error(
        "lw.copy with a predicate on coordinates needs a tensor made by lw.make_tensor(pointer, shape, "
        "stride) on one side"
    )


def _within_limits(tensor: View, number: int, coordinates: tuple[object, ...], values: int) -> Scalar:
    """Return the predicate that an atom's elements lie inside the tensor.

    It raises an error if they may lie half outside.
    """
    mode, long = _straddled_mode(tensor, number, coordinates, values)
    if long:
        raise current().error(
            f"lw.inside: a piece of {long} elements may lie half outside, since mode {mode} is not known "
            f"to end at a multiple of {long}: promise it by lw.assume(extent, multiple_of={long}), or "
            "copy fewer elements at a time"
        )
    predicate: Any = as_predicate(True)
    for here, limit in zip(coordinates, tensor.addresses.limits, strict=True):
        if isinstance(here, Scalar) or isinstance(limit, Scalar):
            test = compare("lt", here, limit)
        else:
            test = as_predicate(here < limit)
        predicate = test if predicate.constant is True else bitwise("and", predicate, test)
    return predicate  # type: ignore[no-any-return]  # a predicate


def _straddled_mode(
    tensor: View, number: int, coordinates: tuple[object, ...], values: int
) -> tuple[int, int]:
    """Return the mode along which elements may lie half outside, and how many they are; (0, 0) for none."""
    first, last = tensor.offset(number), tensor.offset(number + values - 1)
    for mode, (here, limit) in enumerate(zip(coordinates, tensor.addresses.limits, strict=True)):
        long = last[mode] - first[mode] + 1
        if long > 1 and gcd(_multiple(here), _multiple(limit)) % long:
            return mode, long
    return 0, 0


def _multiple(value: Any) -> int:
    """Return a number that is known to divide an integer, traced or not."""
    return value.multiple if isinstance(value, Scalar) else abs(int(value))


def _widest_copy(source: View | RegisterTensor, target: View | RegisterTensor, pred: object) -> Copy_Atom:
    """Return the atom of the widest load and store that the elements of both sides allow."""
    dtype = source.dtype
    widths = [width for width in (128, 64, 32, 16, 8) if width >= dtype.bits]
    count = size(source.layout)
    for bits in widths[:-1]:
        values = bits // dtype.bits
        if count % values or (callable(pred) and pred is not inside):  # which is asked of each element
            continue
        if all(_allows_width(tensor, values, count, pred is inside) for tensor in (source, target)):
            return Copy_Atom(f"UniversalCopy<uint{bits}_t>", dtype)
    return Copy_Atom(f"UniversalCopy<uint{max(8, dtype.bits)}_t>", dtype)


def _allows_width(tensor: View | RegisterTensor, values: int, count: int, within: bool) -> bool:
    """Return whether a tensor's elements can be moved so many at a time."""
    if isinstance(tensor, RegisterTensor):
        return True
    if tensor.addresses.contiguous_run() and tensor.addresses.contiguous_run() % values:
        return False
    for start in range(0, count, values):
        if tensor.addresses.pointer_at(tensor.offset(start)).align % (values * storage_bytes(tensor.dtype)):
            return False
        if not tensor.are_contiguous(list(range(start, start + values))):
            return False
        if within and isinstance(tensor.addresses, StridedAddresses):
            here = tensor.addresses.coordinates(tensor.offset(start))
            if _straddled_mode(tensor, start, here, values)[1]:
                return False
    return True


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
    # f32 and tf32 share their bits
    values = [value if value.dtype == target.dtype else bitcast(value, target.dtype) for value in values]
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
    # guarded instructions last, after those that set the registers which they may leave alone
    builder.code[start:] = sorted(builder.code[start:], key=lambda statement: statement.guard is not None)
    return values


#: Zero as a constant of a register kind, where it is not written as 0.
_ZEROS = {dtype.name: constant_text(dtype, 0.0) for dtype in (f32, f64)}


def guard_since(start: int, holds: Scalar) -> None:
    """Guard the instructions emitted since `start` by a predicate, but for pure computation."""
    register: Register = holds.in_register
    for statement in current().code[start:]:
        if isinstance(statement, Operation) and not statement.pure:
            statement.guard = register


def _as_list(values: Any) -> list[Scalar]:
    """Return what a load gave, one value or a tuple, as a list."""
    return list(values) if isinstance(values, tuple) else [values]


def _require_tensor_sides(
    atom: Copy_Atom, move: TensorMove, source: View | RegisterTensor, target: View | RegisterTensor
) -> None:
    """Raise an error unless one side is in tensor memory as the atom wants it, and the other in registers."""
    loads = move.kind == "ld"
    if move.kind == "cp":
        raise current().error(
            f"{atom.name} copies from shared memory by a descriptor: lw.tcgen05.copy(target, descriptor, "
            "shape)"
        )
    inside, outside = (source, target) if loads else (target, source)
    for tensor, space, verb in (
        (inside, "tensor", "reads" if loads else "writes"),
        (outside, "registers", "writes" if loads else "reads"),
    ):
        if tensor.space != space:
            where = "tensor memory" if space == "tensor" else "registers"
            raise current().error(f"{atom.name} {verb} {where}, and here it is {tensor}")
    count = atom.NumValSrc if loads else atom.NumValDst
    wanted, have = _wanted(atom), coalesce(composition(inside.layout, Layout(count)))
    if have != wanted:
        raise current().error(
            f"{atom.name} moves values that lie at {wanted} in tensor memory, and here they lie at {have}: "
            "partition the tensor by lw.make_tmem_copy(atom, tensor)"
        )


@lru_cache(maxsize=256)
def _wanted(atom: Copy_Atom) -> Layout:
    """Return where in tensor memory the values of an atom lie, from the first on."""
    layout: Layout = coalesce(upcast(atom.ValID, atom.ValType.bits))
    return layout


def _emit_tensor_move(
    move: TensorMove,
    source: View | RegisterTensor,
    target: View | RegisterTensor,
    reads: list[int],
    writes: list[int],
) -> None:
    """Emit one load or store of tensor memory on the values of these numbers."""
    if move.kind == "ld":
        assert isinstance(source, View) and isinstance(target, RegisterTensor)
        groups = target.indices_by_register(writes)
        kind = register_dtype(target.dtype)
        results = [Register(register_kind(kind)) for _ in groups]
        emit_tcgen05(move.text, tuple(results), _address(source, reads[0]), *_half_split(move.text))
        for indices, register in zip(groups, results, strict=True):
            target.set_packed(indices, Scalar(kind, register))
        return
    assert isinstance(source, RegisterTensor) and isinstance(target, View)
    kind = register_dtype(source.dtype)
    values = [as_register(source.packed(indices), kind) for indices in source.indices_by_register(reads)]
    registers = tuple(value.in_register for value in values)
    emit_tcgen05(move.text, _address(target, writes[0]), *_half_split(move.text), registers)


def _address(tensor: View, number: int) -> Address:
    """Return the operand of an address in tensor memory."""
    addresses = tensor.addresses
    assert isinstance(addresses, TmemAddresses)
    return Address(addresses.address_at(int(tensor.layout(number))).in_register)


def _half_split(text: str) -> tuple[str, ...]:
    """Return the operand that says how many columns later the second half lies, if the shape has two."""
    words = text.split(".")
    shape = load_shapes.SHAPES[words[4]]
    if shape.halves == 1:
        return ()
    return (str(shape.columns_of(int(words[5][1:]), "16b" in text)),)
