"""lw.copy: a tiled copy, or one copy atom, over a thread's elements of two tensors, unrolled.

What one atom emits is in `copy_atoms.py`; here is which elements each takes, and under which predicate.
"""

from math import gcd
from typing import Any

from lanewise.atoms import Copy_Atom, TmemTensor
from lanewise.lang.memory.addresses import Coordinates, StridedAddresses
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.layout_index import UNKNOWN, shape_text
from lanewise.lang.memory.view import View
from lanewise.lang.tiles.copy_atoms import AtomCopy, emit_copy_atom
from lanewise.lang.tiles.register_tensor import RegisterTensor
from lanewise.lang.tiles.tensor import as_view
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.operators import as_predicate, bitwise, compare
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import storage_bytes
from lanewise.layout import flatten, size


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
        emit_copy_atom(this, inputs, outputs, _predicate(pred, source, target, inputs[0], outputs[0], atom))


def _copy_tensor_memory(
    atom: Copy_Atom, source: View | RegisterTensor, target: View | RegisterTensor, pred: object, wait: bool
) -> None:
    """Emit the loads or stores of tensor memory, and the wait for them."""
    from lanewise.lang.tiles.tensor_copy import (  # loaded where a kernel needs it
        emit_tensor_move,
        emit_tensor_wait,
        require_tensor_sides,
    )

    if pred is not None:
        raise current().error(f"{atom.name} is done by a whole warp: it takes no predicate")
    require_tensor_sides(atom, source, target)
    reads, writes = atom.NumValSrc, atom.NumValDst
    for number in range(size(source.layout) // reads):
        inputs, outputs = (list(range(number * count, (number + 1) * count)) for count in (reads, writes))
        emit_tensor_move(atom, source, target, inputs, outputs)
    if wait:
        emit_tensor_wait(atom)


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


def _predicate(
    pred: object,
    source: View | RegisterTensor,
    target: View | RegisterTensor,
    read: int,
    write: int,
    atom: Copy_Atom,
) -> Scalar | None:
    """Return the predicate of one atom's elements; None where it always holds."""
    if pred is None:
        return None
    if not callable(pred):
        predicate = as_predicate(pred)
    else:
        tensor, number, values = _with_coordinates(source, target, read, write, atom)
        coordinates = tensor.addresses.coordinates(tensor.offset(number))
        if pred is inside:
            predicate = _within_limits(tensor, number, coordinates, values)
        else:
            predicate = as_predicate(pred(*coordinates))
    return None if predicate.constant is True else predicate


def _with_coordinates(
    source: View | RegisterTensor, target: View | RegisterTensor, read: int, write: int, atom: Copy_Atom
) -> tuple[View, int, int]:
    """Return the side that knows its coordinates, the number of its first value, and its values."""
    for tensor, number, values in ((source, read, atom.NumValSrc), (target, write, atom.NumValDst)):
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
