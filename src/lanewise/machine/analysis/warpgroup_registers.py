"""Registers of wgmma: which other instructions read or write accumulators, and registers of A.

While a wgmma is in flight its accumulators may not be touched, nor its registers of A written. A copy of such
a register is taken for the register itself: compilers write moves that the assembler removes.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from lanewise.machine.analysis.definite_assignment import Key, key_of
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.machine.program.instruction_record import AddressFlow, Level, Order, Role
from lanewise.machine.program.operands import Register, registers_in
from lanewise.machine.program.ops import Op

#: What orders registers of wgmma: between two of these, the order of events does not matter.
_ORDERS = (Order.WARPGROUP_FENCE, Order.WARPGROUP_COMMIT, Order.WARPGROUP_WAIT)


class Touch(IntEnum):
    """What an instruction does with a register that is followed."""

    READ = 0
    WRITTEN = 1
    #: It is a copy of another one.
    COPIED = 2
    #: It is set to a constant; compilers move such instructions to where they like.
    SET = 3


class RegisterEvent(NamedTuple):
    """An instruction touches a register: what it does, the register's index, its source's, the site."""

    touch: Touch
    register: int
    source: int
    site: int


class Product(NamedTuple):
    """A wgmma: the indices of its accumulators, and of registers that it only reads."""

    accumulators: list[int]
    read: list[int]


@dataclass
class WarpgroupPlan:
    """What the checker follows of the registers of wgmma."""

    registers: list[Register] = field(default_factory=list)
    products: dict[Key, Product] = field(default_factory=dict)
    #: Events from the beginning of a basic block on, by its number, and after an instruction.
    at_begin: dict[int, list[RegisterEvent]] = field(default_factory=dict)
    after: dict[Key, list[RegisterEvent]] = field(default_factory=dict)


def is_product(op: Op) -> bool:
    """Return whether an instruction is a wgmma."""
    return op.record.level is Level.WARPGROUP and op.record.multiplies


def _copies(op: Op) -> bool:
    """Return whether an instruction copies a register."""
    return op.record.level is Level.LANE and op.record.address_flow is AddressFlow.COPY


def _matrix_registers(op: Op) -> set[Register]:
    """Return the registers of 32 bits that a wgmma reads: A and metadata, not descriptors and predicates."""
    registers = {register for operand in op.operands[1:] for register in registers_in(operand)}
    return {register for register in registers if register.bits == 32 and not register.is_predicate}


def warpgroup_plan(blocks: list[BasicBlock]) -> WarpgroupPlan:
    """Return what to follow of a kernel; nothing if it has no wgmma."""
    made = WarpgroupPlan()
    ops = [op for block in blocks for op in block.ops]
    followed: dict[Register, int] = {}

    def follow(registers: set[Register]) -> list[int]:
        ordered = sorted(registers, key=lambda register: register.offset)
        return [followed.setdefault(register, len(followed)) for register in ordered]

    for op in filter(is_product, ops):
        accumulators = op.registers(Role.DEFINED)
        read = _matrix_registers(op) - accumulators
        made.products[key_of(op)] = Product(follow(accumulators), follow(read))
    if not followed:
        return made
    copies = [op for op in ops if _copies(op)]
    grown = True
    while grown:
        grown = False
        for op in copies:
            targets, sources = op.registers(Role.DEFINED), op.registers(Role.USED)
            if (targets | sources) & followed.keys() and (targets | sources) - followed.keys():
                follow((targets | sources) - followed.keys())
                grown = True
    made.registers = list(followed)
    for block in blocks:
        here = made.at_begin.setdefault(block.number, [])
        for op in block.ops:
            if is_product(op) or op.record.orders in _ORDERS:
                here = made.after.setdefault(key_of(op), [])
            else:
                here += _events(op, followed)
    return made


def _events(op: Op, followed: dict[Register, int]) -> list[RegisterEvent]:
    """Return what an instruction does with followed registers."""
    written = op.registers(Role.DEFINED) & followed.keys()
    read = {register for operand in op.operands for register in registers_in(operand)} & followed.keys()
    read -= op.registers(Role.DEFINED)
    if (
        _copies(op) and written and read
    ):  # `mov.b32 {low, high}, sums` has two targets, its reverse two sources
        source = min(read, key=lambda register: register.offset)
        targets = sorted(written, key=lambda register: register.offset)
        return [
            RegisterEvent(Touch.COPIED, followed[target], followed[source], op.site) for target in targets
        ]
    if _copies(op) and written:
        return [RegisterEvent(Touch.SET, followed[register], 0, op.site) for register in written]
    if _copies(op):
        return []
    return [
        *(RegisterEvent(Touch.READ, followed[register], 0, op.site) for register in read),
        *(RegisterEvent(Touch.WRITTEN, followed[register], 0, op.site) for register in written),
    ]
