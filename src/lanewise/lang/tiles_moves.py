"""What one copy atom emits: loads and stores, cp.async, ldmatrix, stmatrix, movmatrix; and its conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lanewise.atoms import Copy_Atom
from lanewise.formats import Format, f32, tf32
from lanewise.lang.arithmetic import where
from lanewise.lang.builder import Operation, Register, current
from lanewise.lang.convert import bitcast
from lanewise.lang.intrinsics.copies import cp_async
from lanewise.lang.matrix import emit
from lanewise.lang.memory import Pointer
from lanewise.lang.tiles import View
from lanewise.lang.tiles_memory import Strides
from lanewise.lang.tiles_registers import Registers, as_word
from lanewise.lang.types import storage_bytes, u32
from lanewise.lang.values import Scalar, literal, public


@dataclass(frozen=True)
class Move:
    """One kind of copy between two tensors; `fill` is what is written where a predicate fails."""

    atom: Copy_Atom
    source: View | Registers
    target: View | Registers
    fill: int | None

    def __post_init__(self) -> None:
        atom, pair = self.atom, (self.source, self.target)
        for each in pair:
            if each.dtype.bits < 8 and isinstance(each, View):
                raise current().error(
                    f"lw.copy of {each}: elements smaller than a byte have no addresses; load the words that "
                    "hold them, and set the fragment's elements"
                )
            if each.dtype.bits != atom.ValType.bits:
                raise current().error(
                    f"lw.copy: {atom.name} moves values of {atom.ValType} ({atom.ValType.bits} bits), and "
                    f"{each} has {each.dtype.bits} bits an element; name the type where the copy is made"
                )
        kinds = {each.dtype for each in pair}
        if len(kinds) > 1 and kinds != {f32, tf32}:
            raise current().error(
                f"lw.copy moves bits and converts nothing: from {self.source} to {self.target}; "
                f"use .to(lw.{public(self.target.dtype)}) on registers"
            )

    def wants(self, source: str, target: str) -> None:
        """An error unless source and target are where the atom takes and puts them."""
        for what, tensor, space in (("reads", self.source, source), ("writes", self.target, target)):
            if tensor.space != space:
                raise current().error(f"{self.atom.name} {what} {_where(space)}, and here it is {tensor}")


def _where(space: str) -> str:
    return space if space == "registers" else f"{space} memory"


def move(this: Move, reads: list[int], writes: list[int], holds: Scalar | None) -> None:
    """Emit one atom on the values of these numbers, if a predicate holds."""
    atom = this.atom
    if holds is not None:
        holds = Scalar(holds.dtype, holds.in_register)  # computed before what it guards
    if atom.instruction is not None and not atom.name.startswith("SM100"):
        if holds is not None:
            raise current().error(f"{atom.name} is done by a whole warp: it takes no predicate")
        return _by_warp(this, reads, writes)
    if atom.name.startswith("SM80_CP_ASYNC"):
        return _async(this, reads, writes, holds)
    if atom.name.startswith("UniversalCopy"):
        return _plain(this, reads, writes, holds)
    raise current().error(f"{atom.name} cannot be used by lw.copy in a kernel yet")


def pointer(tensor: View, numbers: list[int], what: str) -> Pointer:
    """The pointer to elements that lie side by side and can be moved at once; an error if they cannot."""
    count = len(numbers)
    width = count * storage_bytes(tensor.dtype)
    found = tensor.memory.at(tensor.step(numbers[0]))
    if count == 1:
        return found
    reason = ""
    if not tensor.neighbours(numbers):
        reason = "they do not lie side by side in its layout"
    elif tensor.memory.run() and tensor.memory.run() % count:
        reason = f"the swizzle {tensor.memory.swizzle} keeps only {tensor.memory.run()} together"
    elif found.align % width:
        reason = f"its address is known to be a multiple of {found.align} bytes only"
        if isinstance(tensor.memory, Strides):
            reason += "; promise more by lw.assume(stride, multiple_of=…), lw.Ptr[dtype, 16]"
    if reason:
        raise current().error(
            f"{what}: a vector width of {count} elements ({width} bytes) cannot be for {tensor}: {reason}"
        )
    return found


def _by_warp(this: Move, reads: list[int], writes: list[int]) -> None:
    atom, source, target = this.atom, this.source, this.target
    inst = atom.instruction
    assert inst is not None
    if inst.family == "ldmatrix":
        this.wants("shared", "registers")
        assert isinstance(source, View) and isinstance(target, Registers)
        made = emit(inst, pointer(source, reads, atom.name))
        for places, word in zip(_by_word(target, writes), made.registers, strict=True):
            target.put_word(places, word)
    elif inst.family == "stmatrix":
        this.wants("registers", "shared")
        assert isinstance(source, Registers) and isinstance(target, View)
        words = [as_word(source.word(places), u32) for places in _by_word(source, reads)]
        emit(inst, pointer(target, writes, atom.name), words)
    else:
        this.wants("registers", "registers")
        assert isinstance(source, Registers) and isinstance(target, Registers)
        word = as_word(source.word(_by_word(source, reads)[0]), u32)
        target.put_word(_by_word(target, writes)[0], emit(inst, word))


def _by_word(tensor: Registers, numbers: list[int]) -> list[list[int]]:
    places = [tensor.place(number) for number in numbers]
    return [places[start : start + tensor.slots] for start in range(0, len(places), tensor.slots)]


def _async(this: Move, reads: list[int], writes: list[int], holds: Scalar | None) -> None:
    this.wants("global", "shared")
    assert isinstance(this.source, View) and isinstance(this.target, View)
    name = this.atom.name
    bits = this.atom.operation.bits
    here, there = pointer(this.target, writes, name), pointer(this.source, reads, name)
    cache = "ca" if "CACHEALWAYS" in name else "cg"
    if holds is None:
        cp_async(here, there, bits // 8, cache=cache)
    elif this.fill is not None:
        cp_async(here, there, bits // 8, where(holds, bits // 8, 0), cache=cache)
    else:
        start = len(current().code)
        cp_async(here, there, bits // 8, cache=cache)
        _guard(start, holds)


def _plain(this: Move, reads: list[int], writes: list[int], holds: Scalar | None) -> None:
    source, target, name = this.source, this.target, this.atom.name
    if isinstance(source, Registers):
        values = [source.get(source.place(number)) for number in reads]
    else:
        place = pointer(source, reads, name)
        if holds is None:
            values = _listed(place.load(len(reads)))
        else:
            values = _loaded(place, len(reads), holds, _before(this, writes))
    values = [_same_bits(each, target.dtype) for each in values]
    if isinstance(target, Registers):
        places = [target.place(number) for number in writes]
        if holds is not None and isinstance(source, Registers):
            values = [
                where(holds, new, literal(0, new.dtype) if this.fill is not None else target.get(place))
                for new, place in zip(values, places, strict=True)
            ]
        target.put(places, values)
        return
    place = pointer(target, writes, name)
    if holds is not None and this.fill is not None and isinstance(source, Registers):
        values = [where(holds, each, literal(0, each.dtype)) for each in values]
    start = len(current().code)
    place.store(values)
    if holds is not None and this.fill is None:
        _guard(start, holds)


def _before(this: Move, writes: list[int]) -> list[Scalar] | None:
    """What a load leaves where its predicate fails: zeros (None), or what registers held."""
    target = this.target
    if this.fill is not None or not isinstance(target, Registers):
        return None
    return [target.get(target.place(number)) for number in writes]


def _loaded(place: Pointer, width: int, holds: Scalar, otherwise: list[Scalar] | None) -> list[Scalar]:
    """Neighbouring elements, loaded if a predicate holds; else zeros, or other values."""
    builder = current()
    start = len(builder.code)
    values = _listed(place.load(width))
    done = 0
    for number in range(start, len(builder.code)):
        load = builder.code[number]
        if load.pure:
            continue
        load.guard = holds.in_register
        registers = load.operands[0] if isinstance(load.operands[0], tuple) else (load.operands[0],)
        for register in registers:
            each = 32 // place.dtype.bits if register.kind == "b32" and place.dtype.bits < 32 else 1
            if otherwise is None:
                word: Any = _ZEROS.get(register.kind, "0")
            else:
                part = otherwise[done : done + each]
                word = place._put_together(part, register.kind)[0]
            done += each
            builder.emit(f"mov.{register.kind}", register, word, pure=True)
    _bring_forward(builder.code, start)
    return values


_ZEROS = {"f32": "0f00000000", "f64": "0d0000000000000000"}


def _bring_forward(code: list[Any], start: int) -> None:
    """Put guarded instructions last: what they leave alone is set before them."""
    late = [each for each in code[start:] if isinstance(each, Operation) and each.guard is not None]
    early = [each for each in code[start:] if not (isinstance(each, Operation) and each.guard is not None)]
    code[start:] = early + late


def _guard(start: int, holds: Scalar) -> None:
    """Let what was emitted since, but for pure computation, happen only where a predicate holds."""
    register: Register = holds.in_register
    for each in current().code[start:]:
        if isinstance(each, Operation) and not each.pure:
            each.guard = register


def _listed(found: Any) -> list[Scalar]:
    return list(found) if isinstance(found, tuple) else [found]


def _same_bits(value: Scalar, dtype: Format) -> Scalar:
    """f32 and tf32 share their bits."""
    return value if value.dtype == dtype else bitcast(value, dtype)


__all__ = ["Move", "move", "pointer"]
