"""lw.copy: a tiled copy, or one copy atom, over a thread's parts of two tensors, unrolled.

What one atom emits is in `tiles_moves.py`; here is which elements each takes, and under which predicate.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from lanewise.atoms import Copy_Atom
from lanewise.lang.arithmetic import bitwise, compare, truth
from lanewise.lang.arrays import Array
from lanewise.lang.builder import current
from lanewise.lang.tiles import View, view
from lanewise.lang.tiles_memory import Places, Strides
from lanewise.lang.tiles_moves import Move, move
from lanewise.lang.tiles_registers import Registers
from lanewise.lang.tiles_steps import UNKNOWN, written
from lanewise.lang.types import storage_bytes
from lanewise.lang.values import Scalar, describe
from lanewise.layout import flatten, size


def inside(*coordinates: Any) -> Any:
    """As `pred=lw.inside` of lw.copy: move what lies inside the tensor in global memory, and no more."""
    raise current().error("lw.inside is for lw.copy: lw.copy(tiled_copy, source, target, pred=lw.inside)")


def copy(*arguments: Any, pred: Any = None, fill: int | None = None) -> None:
    """Copy a thread's part of one tensor to its part of another: copy(tiled_copy, source, target).

    Without a tiled copy, elements are moved as wide as both sides allow. `pred` is a predicate for all,
    `lw.inside`, or a function that gets the coordinates of each piece in the tensor in global memory; a
    piece for which it fails is not copied, or, with fill=0, zeros are written.

    Inside a kernel: `lw.copy(tiled_copy, tAgA[None, None, None, k], tAsA[None, None, None, stage])`.
    """
    builder = current()
    if len(arguments) not in (2, 3):
        raise builder.error("lw.copy takes a tiled copy, a source and a target; or a source and a target")
    source, target = (_tensor(each) for each in arguments[-2:])
    if fill not in (None, 0):
        raise builder.error(f"lw.copy: fill is 0 or nothing, not {fill!r}")
    for each in (source, target):
        if UNKNOWN in flatten((each.shape,)):
            raise builder.error(
                f"lw.copy of {each}: slice the mode whose extent is known only when the kernel runs"
            )
    atom = arguments[0] if len(arguments) == 3 else _widest(source, target, pred)
    if not isinstance(atom, Copy_Atom):
        raise builder.error(f"lw.copy takes a TiledCopy or a copy atom first, not {describe(atom)}")
    reads, writes = atom.NumValSrc, atom.NumValDst
    count = size(source.layout) // reads
    if size(source.layout) % reads or size(target.layout) % writes or size(target.layout) // writes != count:
        raise builder.error(
            f"lw.copy: {atom.name} of {atom.ValType} takes {reads} and gives {writes} values a thread, which "
            f"source and target of shapes {written(source.shape)} and {written(target.shape)} are no equal "
            "number of; partition or retile both by the tiled copy"
        )
    if "ZFILL" in atom.name:
        fill = 0
    moving = Move(atom, source, target, fill)
    for number in range(count):
        taken, given = (list(range(number * each, (number + 1) * each)) for each in (reads, writes))
        move(moving, taken, given, _holds(pred, source, target, taken[0], given[0], atom))


def _tensor(what: Any) -> View | Registers:
    if isinstance(what, Registers):
        return what
    if isinstance(what, Array | View) and not isinstance(getattr(what, "memory", None), Places):
        return view(what, "lw.copy")
    raise current().error(f"lw.copy moves between tensors, and {describe(what)} is none")


def _holds(
    pred: Any, source: View | Registers, target: View | Registers, read: int, write: int, atom: Copy_Atom
) -> Scalar | None:
    """The predicate of one piece; None where it always holds."""
    if pred is None:
        return None
    if not callable(pred):
        found = truth(pred)
    else:
        part, number, values = _with_coordinates(source, target, read, write, atom)
        coordinates = part.memory.coordinates(part.step(number))
        within = pred is inside
        found = _within(part, number, coordinates, values) if within else truth(pred(*coordinates))
    return None if found.constant is True else found


def _with_coordinates(
    source: View | Registers, target: View | Registers, read: int, write: int, atom: Copy_Atom
) -> tuple[View, int, int]:
    for part, number, values in ((source, read, atom.NumValSrc), (target, write, atom.NumValDst)):
        if isinstance(part, View) and isinstance(part.memory, Strides):
            return part, number, values
    raise current().error(
        "lw.copy with a predicate on coordinates needs a tensor made by lw.make_tensor(pointer, shape, "
        "stride) on one side"
    )


def _within(part: View, number: int, coordinates: tuple[Any, ...], values: int) -> Scalar:
    """Whether a piece is inside the tensor: all of it, since none may be half outside."""
    mode, long = _torn(part, number, coordinates, values)
    if long:
        raise current().error(
            f"lw.inside: a piece of {long} elements may lie half outside, since mode {mode} is not known "
            f"to end at a multiple of {long}: promise it by lw.assume(extent, multiple_of={long}), or "
            "copy fewer elements at a time"
        )
    found: Any = truth(True)
    for here, limit in zip(coordinates, part.memory.limits, strict=True):
        if isinstance(here, Scalar) or isinstance(limit, Scalar):
            test = compare("lt", here, limit)
        else:
            test = truth(here < limit)
        found = test if found.constant is True else bitwise("and", found, test)
    return found  # type: ignore[no-any-return]  # a predicate


def _torn(part: View, number: int, coordinates: tuple[Any, ...], values: int) -> tuple[int, int]:
    """The mode along which a piece may lie half outside, and its length there; (0, 0) if there is none."""
    first, last = part.step(number), part.step(number + values - 1)
    for mode, (here, limit) in enumerate(zip(coordinates, part.memory.limits, strict=True)):
        long = last[mode] - first[mode] + 1
        if long > 1 and gcd(_multiple(here), _multiple(limit)) % long:
            return mode, long
    return 0, 0


def _multiple(value: Any) -> int:
    return value.multiple if isinstance(value, Scalar) else abs(int(value))


def _widest(source: View | Registers, target: View | Registers, pred: Any) -> Copy_Atom:
    """The widest plain copy that the elements of both sides allow."""
    dtype = source.dtype
    widths = [each for each in (128, 64, 32, 16, 8) if each >= dtype.bits]
    count = size(source.layout)
    for bits in widths[:-1]:
        values = bits // dtype.bits
        if count % values or (callable(pred) and pred is not inside):  # which is asked of each element
            continue
        if all(_allows(each, values, count, pred is inside) for each in (source, target)):
            return Copy_Atom(f"UniversalCopy<uint{bits}_t>", dtype)
    return Copy_Atom(f"UniversalCopy<uint{max(8, dtype.bits)}_t>", dtype)


def _allows(tensor: View | Registers, values: int, count: int, within: bool) -> bool:
    if isinstance(tensor, Registers):
        return True
    if tensor.memory.run() and tensor.memory.run() % values:
        return False
    for start in range(0, count, values):
        if tensor.memory.at(tensor.step(start)).align % (values * storage_bytes(tensor.dtype)):
            return False
        if not tensor.neighbours(list(range(start, start + values))):
            return False
        if within and isinstance(tensor.memory, Strides):
            here = tensor.memory.coordinates(tensor.step(start))
            if _torn(tensor, start, here, values)[1]:
                return False
    return True


__all__ = ["copy", "inside"]
