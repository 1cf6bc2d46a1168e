"""Predicates that a thread's place in its block decides: constant propagation from %tid and %ntid.

Compilers switch instructions off by such predicates: of the threads that hold the same element of a tensor,
Triton lets one store it. What depends on anything else (parameters, memory, the block) is not known here. A
predicate that is combined with such a value may be known all the same: false and anything is false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.machine import abi
from lanewise.machine.program.instruction_record import Role
from lanewise.machine.program.operands import Negated, Register, ResolvedOperand, SpecialRegister
from lanewise.machine.program.ops import Op, Program
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.ptx import Immediate

#: A number in each thread of a block, as the bits of a register.
Numbers = npt.NDArray[np.uint64]
Threads = npt.NDArray[np.bool_]


class Truth(NamedTuple):
    """The threads in which a predicate surely holds, and those in which it surely does not."""

    true: Threads
    false: Threads

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.true & other.true, self.false | other.false)

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.true | other.true, self.false & other.false)

    def __xor__(self, other: Truth) -> Truth:
        return (self & ~other) | (~self & other)

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true)


class ThreadPredicates:
    """The predicates of a kernel without device functions, in the threads of a block of some shape."""

    def __init__(self, program: Program, block: tuple[int, int, int]) -> None:
        x, y, z = block
        self.count = x * y * z
        linear = np.arange(self.count, dtype=np.uint64)
        places = (linear % x, linear // x % y, linear // (x * y))
        self._special = {
            "%laneid": linear % abi.LANES,
            **{f"%tid.{axis}": place for axis, place in zip("xyz", places, strict=True)},
            **{
                f"%ntid.{axis}": np.full(self.count, size, np.uint64)
                for axis, size in zip("xyz", block, strict=True)
            },
        }
        self._definitions: dict[Register, list[Op]] = {}
        for op in program.sites:
            for register in op.registers(Role.DEFINED):
                self._definitions.setdefault(register, []).append(op)
        #: What was computed; None also while it is being computed, so that a loop ends.
        self._numbers: dict[Register, Numbers | None] = {}
        self._truths: dict[Register, Truth | None] = {}

    def truth(self, operand: ResolvedOperand) -> Truth:
        """Return in which threads a predicate is known to hold, or not to."""
        if isinstance(operand, Negated):
            return ~self.truth(operand.operand)
        if isinstance(operand, Immediate):
            holds = np.full(self.count, operand.bits != 0)
            return Truth(holds, ~holds)
        unknown = np.zeros(self.count, np.bool_)
        known = None
        if isinstance(operand, Register):
            if operand not in self._truths:
                self._truths[operand] = None
                op = self._definition(operand)
                self._truths[operand] = None if op is None else self._predicate(op)
            known = self._truths[operand]
        return Truth(unknown, unknown) if known is None else known

    def _definition(self, register: Register) -> Op | None:
        """Return the one instruction that gives a register its value, if there is one and it always does."""
        ops = self._definitions.get(register, [])
        return ops[0] if len(ops) == 1 and ops[0].guard is None and ops[0].operands[0] == register else None

    def _predicate(self, op: Op) -> Truth | None:
        """Return the predicate that an instruction computes."""
        match op.opcode, op.types:
            case "setp", _:
                return self._comparison(op)
            case "mov", ("pred",):
                return self.truth(op.operands[1])
            case "not", ("pred",):
                return ~self.truth(op.operands[1])
            case "and" | "or" | "xor" as name, ("pred",):
                return _combined(name, self.truth(op.operands[1]), self.truth(op.operands[2]))
        return None

    def _comparison(self, op: Op) -> Truth | None:
        """Return the result of setp, which may be combined with another predicate."""
        name, *further = (modifier for modifier in op.modifiers if modifier not in TYPE_BITS)
        compared = self._compared(name, op)
        if len(op.operands) == 3 and not further:
            return compared
        if len(op.operands) != 4 or len(further) != 1:
            return None
        return _combined(further[0], compared, self.truth(op.operands[3]))

    def _compared(self, name: str, op: Op) -> Truth:
        (type,) = op.types
        sources = [self.number(operand, type) for operand in op.operands[1:3]]
        first, second = sources
        if first is None or second is None or name not in _COMPARISONS:
            unknown = np.zeros(self.count, np.bool_)
            return Truth(unknown, unknown)
        if type.startswith("s"):
            first, second = first.view(np.int64), second.view(np.int64)
        holds = _COMPARISONS[name](first, second)
        return Truth(holds, ~holds)

    def number(self, operand: ResolvedOperand, type: str) -> Numbers | None:
        """Return an operand as an integer of a type, extended to 64 bits; None if it is not known."""
        number = None
        match operand:
            case Immediate(type=kind, bits=value) if kind in ("s64", "u64"):
                number = np.full(self.count, value & (1 << 64) - 1, np.uint64)
            case SpecialRegister(name, element):
                number = self._special.get(f"{name}.{element}" if element else name)
            case Register() if not operand.is_predicate:
                if operand not in self._numbers:
                    self._numbers[operand] = None
                    op = self._definition(operand)
                    self._numbers[operand] = None if op is None else self._integer(op, operand.bits)
                number = self._numbers[operand]
        return None if number is None or type[0] not in "bus" else _extended(number, type)

    def _integer(self, op: Op, width: int) -> Numbers | None:
        """Return what an instruction computes for a register, if it is one by which threads are counted."""
        if not op.types or set(op.modifiers) - {*op.types, "lo", "wide"}:
            return None
        type, sources = op.types[-1], op.operands[1:]
        if op.record.chooses:
            return self._chosen(op, type)
        function = _FUNCTIONS.get(op.opcode)
        bits = TYPE_BITS[op.types[0]] * (2 if op.has("wide") else 1)
        if function is None or width != bits or (type[0] == "s" and not function.is_for_signed):
            return None
        # What is added to a wide product is wide.
        types = (type, *function.further) if function.further else (type, type, f"{type[0]}{bits}")
        numbers = [self.number(*source) for source in zip(sources, types, strict=False)]
        known = [number for number in numbers if number is not None]
        return function.compute(*known) if len(known) == len(sources) else None

    def _chosen(self, op: Op, type: str) -> Numbers | None:
        """Return the result of selp, if all threads are known to choose."""
        choice = self.truth(op.operands[3])
        first, second = (self.number(operand, type) for operand in op.operands[1:3])
        if first is None or second is None or not (choice.true | choice.false).all():
            return None
        return np.where(choice.true, first, second)


def _combined(name: str, first: Truth, second: Truth) -> Truth | None:
    """Return two predicates combined by the name of an operation."""
    match name:
        case "and":
            return first & second
        case "or":
            return first | second
        case "xor":
            return first ^ second
    return None


_COMPARISONS: dict[str, Callable[..., Threads]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


_MOST = np.uint64(63)


def _extended(number: Numbers, type: str) -> Numbers:
    """Return the low bits of a number that a type has, extended to 64 bits: by its sign, or by zeros."""
    above = 64 - TYPE_BITS[type]
    moved = number << np.uint64(above)
    return (moved.view(np.int64) >> above).view(np.uint64) if type[0] == "s" else moved >> np.uint64(above)


def _shl(number: Numbers, distance: Numbers) -> Numbers:
    return np.where(distance > _MOST, 0, number << np.minimum(distance, _MOST))


def _shr(number: Numbers, distance: Numbers) -> Numbers:
    return np.where(distance > _MOST, 0, number >> np.minimum(distance, _MOST))


def _bfe(number: Numbers, position: Numbers, length: Numbers) -> Numbers:
    """A field of bits: the lowest bytes of its position and of its length count."""
    position, length = position & np.uint64(255), length & np.uint64(255)
    return _shr(number, position) & (_shl(np.ones_like(number), length) - np.uint64(1))


class _Function(NamedTuple):
    """What an instruction computes from numbers of 64 bits; whoever reads the result cuts it to its own type.

    Distances of shifts, positions and lengths have a type of their own, which `further` names.
    """

    compute: Callable[..., Numbers]
    further: tuple[str, ...] = ()
    is_for_signed: bool = True


_FUNCTIONS = {
    "mov": _Function(np.positive), "cvt": _Function(np.positive), "not": _Function(np.invert),
    "and": _Function(np.bitwise_and), "or": _Function(np.bitwise_or), "xor": _Function(np.bitwise_xor),
    "add": _Function(np.add), "sub": _Function(np.subtract), "mul": _Function(np.multiply),
    "mad": _Function(lambda first, second, third: first * second + third),
    "shl": _Function(_shl, ("u32",)), "shr": _Function(_shr, ("u32",), is_for_signed=False),
    "bfe": _Function(_bfe, ("u32", "u32"), is_for_signed=False),
}  # fmt: skip
