"""What becomes of a value that an instruction loads: is it computed with, only copied, or perhaps dropped?"""

from __future__ import annotations

from enum import IntEnum
from weakref import WeakKeyDictionary

from lanewise.machine.analysis.definite_assignment import assigned, needed, passed
from lanewise.machine.program.instruction_record import Level, Role, Waits
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import Register, elements_of, registers_in
from lanewise.machine.program.ops import Op, Program


class Use(IntEnum):
    """What a kernel does with a value, in the order of what it means that the value is missing."""

    #: Nothing, or a choice between it and another value.
    DROPPED = 0
    #: It is stored, and nothing is computed with it.
    COPIED = 1
    COMPUTED = 2


#: What becomes of the elements of loads, by instruction and element; each is followed once for a program.
_USES: WeakKeyDictionary[Program, dict[tuple[int, int], Use]] = WeakKeyDictionary()


def use_of(program: Program, load: Op, element: int) -> Use:
    """Return what becomes of an element that a load gives, as far as registers tell."""
    uses = _USES.setdefault(program, {})
    key = load.site, element
    if key not in uses:
        uses[key] = _followed_use(program, load, element)
    return uses[key]


def _followed_use(program: Program, load: Op, element: int) -> Use:
    """Follow an element that a load gives through the registers of a program."""
    elements = elements_of(load.operands[0])
    first = elements[element] if element < len(elements) else None
    if not isinstance(first, Register):
        return Use.COMPUTED
    followed, left, found = {first}, [first], Use.DROPPED
    while left:
        register = left.pop()
        for op in program.sites:
            if register in needed(op):
                addresses = op.record.is_plain_store and register not in _stored(op)
                stores = op.record.is_plain_store and not addresses
                found = max(found, Use.COPIED if stores else Use.COMPUTED)
            elif register in passed(op) and not op.record.chooses:
                further = assigned(op) - followed
                followed |= further
                left += further
    return found


def may_be_padding(program: Program, load: Op, byte: int) -> bool:
    """Return whether a byte of what a plain load reads may be one that nobody needs.

    A value that is only chosen from is perhaps dropped; part of a word, or of a vector, that is only copied
    is perhaps padding of a structure.
    """
    (located,) = accesses(load)
    elements = len(elements_of(load.operands[located.access.data]))
    element_bytes = located.size // elements
    use = use_of(program, load, byte // element_bytes)
    part = elements > 1 or byte % element_bytes > 0
    return use is Use.DROPPED or (use is Use.COPIED and part)


def padding_bytes(program: Program, load: Op) -> int:
    """Return the bytes of what a plain load reads that may be padding, as the bits of a mask."""
    (located,) = accesses(load)
    return sum(1 << byte for byte in range(located.size) if may_be_padding(program, load, byte))


def _stored(op: Op) -> set[Register]:
    """Return the registers that a plain store writes to memory."""
    (access,) = op.record.memory
    return {each for each in elements_of(op.operands[access.data]) if isinstance(each, Register)}


def unheeded_tests(program: Program) -> set[int]:
    """Return the sites of tests of mbarriers whose result decides on nothing: they show nothing.

    A result is heeded if it, or what is computed from it, guards an instruction, chooses a value or leaves
    the registers, other than to global memory: there it comes too late for the thread itself.
    """
    tests = [op for op in program.sites if op.record.waits is Waits.PHASE]
    if not tests:
        return set()
    users: dict[Register, list[Op]] = {}
    for op in program.sites:
        used = {each for operand in op.operands for each in registers_in(operand)} - assigned(op)
        for register in used | ({op.guard[0]} if op.guard is not None else set()):
            users.setdefault(register, []).append(op)
    return {op.site for op in tests if not _decides(op, users)}


def _decides(test: Op, users: dict[Register, list[Op]]) -> bool:
    """Return whether the result of an instruction guards another one, chooses, or leaves the registers."""
    followed = set(test.registers(Role.DEFINED))
    left = list(followed)
    while left:
        register = left.pop()
        for op in users.get(register, []):
            if op.guard is not None and op.guard[0] == register:
                return True
            if op.record.is_plain_store and op.space == "global" and register in _stored(op):
                continue
            if op.record.level is not Level.LANE or _chooses_by(op, register):
                return True
            further = assigned(op) - followed
            followed |= further
            left += further
    return False


def _chooses_by(op: Op, register: Register) -> bool:
    """Return whether a register chooses between values, one of which at least is no constant."""
    if not op.record.chooses or op.operands[3] != register:
        return False
    return any(True for operand in op.operands[1:3] for _ in registers_in(operand))
