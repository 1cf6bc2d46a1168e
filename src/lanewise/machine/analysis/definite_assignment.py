"""Definite assignment: registers that a path may leave without a value, by dataflow analysis.

What the analysis cannot decide is followed at run time, lane by lane. An instruction that only moves, chooses
or converts bits passes the lack of a value on: compilers write such for values that nobody reads afterwards.
An instruction that computes, stores, branches or exchanges values needs them.

A comparison passes the lack on, too, with the arithmetic that only comparisons depend on: compilers turn
`i < n && d > 0` into two comparisons and one `and`, which has a value where `i < n` does not hold. Who needs
a predicate without a value reports the first instruction that computed without one.

Compilers may fold a variable without a value, too: LLVM computes a sum or product with an undefined operand
ahead, as NaN. So a register that was never set is gone from the PTX of straight-line code; the constant,
0x7FC00000 or its like in double precision, stays. `is_folded` finds such NaNs that the source does not ask
for.

Values pass through parameters and results of device functions as well. A *slot* is where a value lies in the
parameter memory of a function. It is given as a register that no frame has, so that dataflow analysis follows
it like any other; no number of a real offset is negative.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from lanewise.machine.analysis.demanded_bits import DemandedBits
from lanewise.machine.program.basic_blocks import BasicBlock, callees, successors
from lanewise.machine.program.instruction_record import BlockEnd, Level, Role
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import (
    IndirectCallee,
    Negated,
    OperandList,
    Register,
    ResolvedOperand,
    Symbol,
    elements_of,
    registers_in,
)
from lanewise.machine.program.ops import FunctionBody, Op
from lanewise.ptx import Immediate, Module


class Move(NamedTuple):
    """A value goes from one register or slot to another; without a source it is one that has a value."""

    target: Register
    source: Register | None


def slot_at(address: int) -> Register:
    """Return the slot at an address of a lane's local memory, where parameters lie."""
    return Register("a parameter", "b8", 8, -1 - address)


def _address(slot: Register) -> int:
    return -1 - slot.offset


def is_slot(register: Register) -> bool:
    """Return whether a register is a slot."""
    return register.offset < 0


def _elements(op: Op) -> list[tuple[Register, ResolvedOperand]]:
    """Return the slots that a plain load or store of a parameter accesses, with its registers."""
    if op.space != "param" or not (op.record.is_plain_load or op.record.is_plain_store):
        return []
    (located,) = accesses(op)
    base = located.address.base
    if not isinstance(base, Symbol) or base.space != "local":
        return []
    elements = elements_of(op.operands[located.access.data])
    first, size = base.address + located.address.offset, located.size // len(elements)
    return [(slot_at(first + size * number), element) for number, element in enumerate(elements)]


class ParameterSlots:
    """The moves of values by which the functions of a program pass parameters and results."""

    def __init__(self, blocks: list[BasicBlock]) -> None:
        self.bodies: dict[str, FunctionBody] = {block.body.function.name: block.body for block in blocks}
        ops = [op for block in blocks for op in block.executed]
        calls = [block.op for block in blocks if block.end is BlockEnd.CALL and block.op is not None]
        self.stored = sorted(
            {_address(slot) for op in ops if op.record.is_plain_store for slot, _ in _elements(op)}
        )
        #: Calls through registers are not followed, nor is anything if there are some.
        self.followed = bool(calls) and not any(isinstance(op.operands[1], IndirectCallee) for op in calls)
        if self.followed:
            # What one function passes on to another is stored there too.
            grown = True
            while grown:
                passed = {_address(move.target) for op in ops for move in self._passed(op)}
                grown = not passed <= set(self.stored)
                self.stored = sorted(passed.union(self.stored))

    def moves(self, op: Op) -> list[Move]:
        """Return the moves to or from slots that an instruction makes."""
        if not self.followed:
            return []
        if op.record.is_plain_store:
            pairs = _elements(op)
            return [Move(slot, element if isinstance(element, Register) else None) for slot, element in pairs]
        if op.record.is_plain_load:
            return [Move(element, slot) for slot, element in _elements(op) if isinstance(element, Register)]
        return self._passed(op)

    def _passed(self, op: Op) -> list[Move]:
        """Return the moves of a call: arguments in its first half, results in the second."""
        if op.record.role(1) is not Role.CALLEE or callees(op)[0] not in self.bodies:
            return []
        body = self.bodies[callees(op)[0]]
        wanted, given = op.operands[0], op.operands[2]
        assert isinstance(wanted, OperandList) and isinstance(given, OperandList)
        targets: tuple[ResolvedOperand, ...] = wanted.elements if op.record.second_half else body.parameters
        sources: tuple[ResolvedOperand, ...] = body.returns if op.record.second_half else given.elements
        moves = []
        for target, source in zip(targets, sources, strict=False):
            if isinstance(source, Symbol) and isinstance(target, Symbol):
                end = source.address + min(source.size, target.size)
                inside = [address for address in self.stored if source.address <= address < end]
                shift = target.address - source.address
                moves += [Move(slot_at(address + shift), slot_at(address)) for address in inside]
            elif isinstance(target, Symbol):
                moves.append(Move(slot_at(target.address), source if isinstance(source, Register) else None))
        return moves


#: The quiet NaNs that LLVM makes; those of CUDA's math functions are others.
_NANS = frozenset((0x7FC00000, 0x7FF8000000000000))
#: How PTX spells them.
_IN_PTX = re.compile(r"0f7FC00000|2143289344|0d7FF8000000000000|9221120237041090560", re.IGNORECASE)
#: How a source asks for a NaN: by its name (NAN, nanf, quiet_NaN), by its bits, or as 0/0.
_ASKED_FOR = re.compile(
    r"nan(?![a-eg-z])|7fc0|7ff8|2143289344|9221120237041090560|\b0\.?0*f?\s*/\s*\(?-?0\.?0*f?\b",
    re.IGNORECASE,
)
#: State spaces of copies of values: what is stored there may be padding that nobody reads.
_COPIES = frozenset(("local", "param"))
#: Roles of operands whose registers need a value in any case.
_NEEDED = (
    Role.ADDRESS,
    Role.DESCRIPTOR,
    Role.TENSOR_ADDRESS,
    Role.MATRIX,
    Role.HANDLE,
    Role.TENSOR,
    Role.MEMBERS,
    Role.BARRIER,
)
#: Roles of operands that an instruction reads.
_SOURCES = tuple(role for role in Role if role is not Role.DEFINED)
#: An instruction of a plan: its site, and whether it is the second half of it.
Key = tuple[int, bool]


def key_of(op: Op) -> Key:
    """Return what tells an instruction from all others of a kernel."""
    return op.site, op.record.second_half


def assigned(op: Op) -> set[Register]:
    """Return the registers that an instruction writes; the first half of one with two writes none."""
    if op.record.has_code:
        return op.registers(Role.DEFINED)
    return set()


def passes_on(op: Op) -> bool:
    """Return whether an instruction only moves bits: its result has a value if all its sources have one."""
    return op.record.level is Level.LANE and not op.record.needs_values


def compares(op: Op) -> bool:
    """Return whether an instruction of each lane alone makes predicates of numbers."""
    results = assigned(op) if op.record.level is Level.LANE else set()
    is_comparison = bool(results) and all(register.is_predicate for register in results)
    return is_comparison and any(not register.is_predicate for register in op.registers(Role.USED))


def is_zero_of_itself(op: Op) -> bool:
    """Return whether an instruction is `xor` of a register with itself: 0, whatever the register holds."""
    return op.record.cancels_equal_sources and op.operands[1] == op.operands[2]


def needed(op: Op) -> set[Register]:
    """Return the registers whose values an instruction needs."""
    registers = {op.guard[0]} if op.guard is not None else set()
    if op.record.second_half or op.record.does_nothing:
        return registers
    registers |= op.registers(*_NEEDED)
    if _adds_to_sums(op):
        registers |= op.registers(Role.DEFINED)
    stores_copy = op.record.is_plain_store and op.space in _COPIES
    if op.record.shuffles:  # what it reads counts by lanes
        return registers | {register for operand in op.operands[2:] for register in registers_in(operand)}
    if not passes_on(op) and not stores_copy and op.record.role(1) is not Role.CALLEE:
        registers |= op.registers(Role.USED)
    return registers


def _scale_d(op: Op) -> ResolvedOperand | None:
    """Return the operand of a wgmma that says whether it adds to its accumulators; None for others."""
    if op.record.level is not Level.WARPGROUP or not op.record.multiplies:
        return None
    return op.operands[5 if op.has("sp") else 3]  # metadata and a selector come before it


def _adds_to_sums(op: Op) -> bool:
    """Return whether a wgmma always adds to its accumulators: scale-d is a constant, and not 0."""
    scale = _scale_d(op)
    return isinstance(scale, Immediate) and scale.bits != 0


def needed_where(op: Op) -> tuple[set[Register], Register] | None:
    """Return registers whose values an instruction needs where a predicate holds, and the predicate.

    They are the accumulators of a wgmma whose scale-d is no constant.
    """
    scale = _scale_d(op)
    return (op.registers(Role.DEFINED), scale) if isinstance(scale, Register) else None


def may_deliver_nothing(op: Op) -> bool:
    """Return whether an instruction may leave its result without a value, which shows when it runs.

    A shuffle does if it reads a lane that takes no part, or a register without a value there; a load from
    local memory if nothing was written to it; the block that an answer names if it names none, unless a
    predicate asks for that.
    """
    decodes = decodes_block(op) and op.guard is None
    return op.record.shuffles or (op.record.is_plain_load and op.space == "local") or decodes


def loads_lanes(op: Op) -> bool:
    """Return whether an instruction loads a lane of tensor memory for each lane of a warp.

    Some of them may have no value, which shows when it runs: a product of M = 64 writes 16 of each 32 lanes.
    """
    return op.record.touches_tensor_memory and op.has("ld") and op.has("32x32b")


def decodes_block(op: Op) -> bool:
    """Return whether an instruction decodes which block an answer of cluster launch control names."""
    return op.record.decodes_answer and not op.has("is_canceled")


def _always_assigns(op: Op) -> bool:
    """Return whether the registers that an instruction assigns count as assigned after it.

    Those of a block that is decoded under a predicate do: CUTLASS's tile scheduler computes, and branches,
    with the block of an answer that names none, and then drops the result.
    """
    return op.guard is None or decodes_block(op)


def _is_guarded_load(op: Op) -> bool:
    """Return whether an instruction is a load under a predicate, which leaves registers as they are."""
    return op.guard is not None and op.record.is_plain_load


def passed(op: Op) -> set[Register]:
    """Return the registers whose lack of a value an instruction passes on to its result."""
    return op.registers(Role.USED) if passes_on(op) and not is_zero_of_itself(op) else set()


class PassedOn:
    """The registers whose lack of a value instructions pass on, of one program.

    A vector that is packed once, of registers that are assigned once at most, and unpacked: each element is
    what was packed there. Compilers pack a register that nobody has set beside one that is read. Bits that no
    instruction depends on are not passed on, once `demanded` says which these are. Arithmetic passes the lack
    on if only comparisons depend on its result, once `compared` says so.
    """

    def __init__(self, blocks: list[BasicBlock]) -> None:
        made: dict[Register, list[Op]] = {}
        for op in chain.from_iterable(block.executed for block in blocks):
            for register in assigned(op):
                made.setdefault(register, []).append(op)
        self.demanded: DemandedBits | None = None
        self.compared: set[Register] = set()
        self._elements: dict[Register, tuple[ResolvedOperand, ...]] = {}
        for register, ops in made.items():
            elements = elements_of(ops[0].operands[1]) if _packs(ops[0]) else ()
            settled = all(
                len(made.get(element, ())) <= 1 for element in elements if isinstance(element, Register)
            )
            if len(ops) == 1 and settled and len(elements) > 1:
                self._elements[register] = tuple(elements)

    def __call__(self, op: Op) -> set[Register]:
        """Return the registers whose lack of a value an instruction passes on to its result."""
        source = op.operands[1] if _unpacks(op) else None
        elements = self._elements.get(source, ()) if isinstance(source, Register) else ()
        targets = elements_of(op.operands[0]) if elements else []
        if not elements or len(targets) != len(elements):
            sources = op.registers(Role.USED) if self._is_compared(op) else passed(op)
            return self.demanded.passed(op, sources) if self.demanded is not None else sources
        pairs = zip(targets, elements, strict=True)
        return {
            element
            for target, element in pairs
            if isinstance(target, Register) and isinstance(element, Register)
        }

    def needed(self, op: Op) -> set[Register]:
        """Return the registers whose values an instruction needs."""
        return needed(op) - op.registers(Role.USED) if self._is_compared(op) else needed(op)

    def _is_compared(self, op: Op) -> bool:
        """Return whether an instruction computes what only comparisons depend on, and leaves no carry."""
        return computes(op) and not op.has("cc") and assigned(op) <= self.compared


def _only_compared(blocks: list[BasicBlock]) -> set[Register]:
    """Return the registers on which only comparisons depend, perhaps through arithmetic in each lane."""
    ops = [op for block in reversed(blocks) for op in reversed(block.executed)]
    compared = set().union(*(assigned(op) for op in ops if op.record.level is Level.LANE))
    for body in {id(block.body): block.body for block in blocks}.values():
        compared -= {register for register in body.returns if isinstance(register, Register)}
    moves = []
    for op in ops:
        if op.guard is not None:
            compared.discard(op.guard[0])
        sources = op.registers(*(Role if op.record.multiplies else _SOURCES))
        if op.record.level is not Level.LANE:
            compared -= sources
        elif not compares(op):
            moves.append((sources, assigned(op)))
    changed = True
    while changed:
        before = len(compared)
        for sources, targets in moves:
            if not targets <= compared:
                compared -= sources
        changed = len(compared) < before
    return compared


def _packs(op: Op) -> bool:
    """Return whether an instruction packs a vector of registers into one, whatever lanes execute it."""
    is_move = passes_on(op) and op.guard is None and len(op.operands) == 2
    return is_move and len(elements_of(op.operands[1])) > 1


def _unpacks(op: Op) -> bool:
    """Return whether an instruction unpacks a register into a vector of registers."""
    return passes_on(op) and len(op.operands) == 2 and len(elements_of(op.operands[0])) > 1


def computes(op: Op) -> bool:
    """Return whether an instruction of each lane alone computes with its sources."""
    return op.record.level is Level.LANE and op.record.needs_values


def read_by_lane(op: Op) -> set[Register]:
    """Return the registers that an instruction of each lane alone reads."""
    reads = op.record.level is Level.LANE and not is_zero_of_itself(op)
    return op.registers(Role.USED) if reads else set()


class Predicate(NamedTuple):
    """A predicate that an instruction reads, which may have no value."""

    #: Its index among the tracked registers; -1: it always has a value.
    tracked: int
    #: Its offset in the frame.
    offset: int
    #: Of logic: whether it decides on the result where it holds, rather than where it does not.
    holds: bool = True


@dataclass(frozen=True)
class Assignment:
    """An instruction that writes tracked registers, and the tracked registers that it moves or compares."""

    targets: tuple[int, ...]
    sources: tuple[int, ...] = ()
    #: Whether it computes: a finding names the first instruction that has computed without a value.
    computes: bool = False
    #: Of a choice: the indices of the sources for a predicate that holds and one that does not (-1: it always
    #: has a value), and the predicate.
    choice: tuple[int, int, Predicate] | None = None
    #: Of `and` and `or`: the predicates of which one that decides is enough.
    combined: tuple[Predicate, ...] = ()
    #: Of a comparison that is combined with such a predicate: the targets, each with its offset in the frame,
    #: and the result that the comparison decides on.
    settled: tuple[tuple[int, int], ...] = ()
    decided_by: bool = False
    #: Of a shuffle: the index of the register that is read (-1: it always has a value).
    shuffled: int | None = None
    #: Of a load from local memory: the elements of the load that the targets are.
    loaded: tuple[int, ...] | None = None
    #: Of the block that an answer of cluster launch control names: the answer's offset in the frame.
    answer: int | None = None


@dataclass
class Plan:
    """What the checker adds to a kernel to track registers, which are known by their index."""

    registers: list[Register] = field(default_factory=list)
    #: For each: whether a shuffle or a load may have left it without a value.
    undelivered: list[bool] = field(default_factory=list)
    #: Registers that have to have a value before an instruction.
    checks: dict[Key, list[int]] = field(default_factory=dict)
    #: The same for those that have to have one where a predicate holds, with its offset in the frame.
    checks_where: dict[Key, tuple[int, list[int]]] = field(default_factory=dict)
    assignments: dict[Key, Assignment] = field(default_factory=dict)
    #: Moves to and from parameters of functions: pairs of a target and a source (-1: it has a value).
    moves: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)
    #: By the first basic block of a function: registers that have no value there.
    clears: dict[int, list[int]] = field(default_factory=dict)
    #: Registers that get what stands for no value.
    folded: set[int] = field(default_factory=set)
    #: Predicates, and answers, that say for which lanes registers are assigned: the steps read them.
    predicates: set[Register] = field(default_factory=set)
    #: Whether what is loaded from lanes of tensor memory may have no value.
    follows_lanes: bool = False

    def may_deliver_nothing(self, op: Op) -> bool:
        """Return whether an instruction that is followed may leave its result without a value."""
        return may_deliver_nothing(op) or (self.follows_lanes and loads_lanes(op))


#: Gives the registers that an instruction assigns.
Assigned = Callable[[Op], set[Register]]


def plan(
    blocks: list[BasicBlock], folded: Callable[[Op], bool] | None = None, follows_lanes: bool = False
) -> Plan:
    """Return the registers that may be used before they are assigned, and where to follow and check them.

    `folded` says which instructions assign what stands for no value. With `follows_lanes` those are followed,
    too, that are loaded from lanes of tensor memory: few kernels need it, and it takes time.
    """

    def gives(op: Op) -> set[Register]:
        return set() if folded is not None and folded(op) else assigned(op)

    bodies: dict[int, list[BasicBlock]] = {}
    for block in blocks:
        bodies.setdefault(id(block.body), []).append(block)
    made = Plan(follows_lanes=follows_lanes)
    slots = ParameterSlots(blocks)
    moved = PassedOn(blocks)
    assigned_in = {number: _assigned_in(own, gives) for number, own in bodies.items()}

    def doubtful_in() -> dict[int, set[Register]]:
        return {
            number: _used_without_value(own, known, slots, gives, moved)
            for number, own in bodies.items()
            if (known := assigned_in[number]) is not None
        }

    doubtful = doubtful_in()
    unset = set().union(*doubtful.values())
    if unset:
        moved.compared = _only_compared(blocks)
        unset |= _tainted(blocks, unset, moved, gives, slots)
        moved.demanded = DemandedBits((op for block in blocks for op in block.executed), unset)
        doubtful = doubtful_in()
    without = _slots_without_value(slots, bodies, doubtful, gives, moved)
    made.registers += sorted(without, key=lambda register: register.offset)
    made.undelivered += [False] * len(without)
    for number, own in bodies.items():
        _add_body(made, own, assigned_in[number], doubtful.get(number, set()), slots, without, gives, moved)
    return made


#: By basic block the registers that have a value on all paths to it.
Known = dict[int, set[Register]]


def _assigned_in(blocks: list[BasicBlock], gives: Assigned) -> Known | None:
    """Return what is assigned in one function; None for one whose registers go to the stack, too."""
    body = blocks[0].body
    known = _definitely_assigned(body, next(block for block in blocks if block.is_first), blocks, gives)
    return known if body.base is None else None


def _slots_without_value(
    slots: ParameterSlots,
    bodies: dict[int, list[BasicBlock]],
    doubtful: dict[int, set[Register]],
    gives: Assigned,
    moved: PassedOn,
) -> set[Register]:
    """Return the slots of parameters and results through which a lack of values may pass."""
    unassigned: set[Register] = set()
    grown = bool(slots.followed and doubtful)
    while grown:
        before = len(unassigned)
        for number, here in doubtful.items():
            tainted = _tainted(bodies[number], here | unassigned, moved, gives, slots)
            unassigned |= {register for register in tainted if is_slot(register)}
        grown = len(unassigned) > before
    return unassigned


def _add_body(
    made: Plan,
    blocks: list[BasicBlock],
    known: Known | None,
    doubtful: set[Register],
    slots: ParameterSlots,
    without: set[Register],
    gives: Assigned,
    moved: PassedOn,
) -> None:
    """Add the registers of one function; `doubtful` ones and `without`, of the slots, may lack a value."""

    def given_by(chosen: Callable[[Op], bool]) -> set[Register]:
        return {register for block in blocks for op in block.executed if chosen(op) for register in gives(op)}

    first = next(block for block in blocks if block.is_first)
    if known is None:
        return
    tainted = _tainted(blocks, doubtful | without, moved, gives, slots)
    tainted = {register for register in tainted if not is_slot(register)}
    # What a shuffle or a load leaves without a value is followed through arithmetic too: compilers compute
    # ahead with values that they drop afterwards.
    undelivered = given_by(made.may_deliver_nothing)
    undelivered |= _tainted(blocks, undelivered, read_by_lane, gives)
    # So is what a load under a predicate leaves without a value: Triton's reductions add in all lanes, and
    # only those that loaded something store the sum.
    ahead = given_by(_is_guarded_load) & (doubtful | tainted)
    ahead |= _tainted(blocks, ahead, read_by_lane, gives)
    followed = undelivered | ahead
    tracked = sorted(doubtful | tainted | followed, key=lambda register: register.offset)
    if not tracked and not without:
        return
    index = {register: len(made.registers) + number for number, register in enumerate(tracked)}
    places = index | {slot: made.registers.index(slot) for slot in without}
    made.registers += tracked
    made.undelivered += [register in undelivered for register in tracked]
    made.clears[first.number] = list(index.values())
    for block in blocks:
        here = set(known[id(block)])
        for op in block.executed:
            needs = moved.needed(op)
            missing = (needs & tainted) | ((needs & doubtful) - here)
            if not computes(op):
                missing |= needs & followed
            elif op.guard is None or op.guard[0] not in ahead:
                missing -= ahead
            checks = missing & index.keys()
            if checks:
                made.checks[key_of(op)] = sorted(index[register] for register in checks)
            where = needed_where(op)
            if where is not None:
                sums, predicate = where
                unset = (sums & tainted) | ((sums & index.keys()) - here)
                if unset:
                    made.checks_where[key_of(op)] = predicate.offset, sorted(index[sum_] for sum_ in unset)
                    made.predicates.add(predicate)
            moves = [move for move in slots.moves(op) if move.target in places]
            if moves:
                sources = [places.get(move.source, -1) if move.source is not None else -1 for move in moves]
                made.moves[key_of(op)] = [
                    (places[move.target], source) for move, source in zip(moves, sources, strict=True)
                ]
            elif not index.keys().isdisjoint(gives(op)):
                made.assignments[key_of(op)] = _assignment(op, index, followed, moved)
            made.folded |= {index[register] for register in assigned(op) - gives(op) if register in index}
            if key_of(op) in made.checks or key_of(op) in made.assignments:
                made.predicates |= _read_by_steps(op)
            if _always_assigns(op):
                here |= gives(op)


def _assignment(
    op: Op, index: dict[Register, int], undelivered: set[Register], moved: PassedOn
) -> Assignment:
    """Return what an instruction does to tracked registers."""
    targets = tuple(sorted(index[register] for register in assigned(op) if register in index))
    if op.record.shuffles:
        return Assignment(targets, shuffled=_index_of(registers_in(op.operands[1]), index))
    if decodes_block(op):
        response = op.operands[1]
        return Assignment(targets, answer=response.offset if isinstance(response, Register) else None)
    if loads_lanes(op):
        return Assignment(targets, loaded=(0,) * len(targets))
    if may_deliver_nothing(op):
        numbered = {
            index[element]: number
            for number, element in enumerate(elements_of(op.operands[0]))
            if isinstance(element, Register) and element in index
        }
        return Assignment(tuple(numbered), loaded=tuple(numbered.values()))
    if op.record.chooses and isinstance(op.operands[3], Register):
        first, second = (_index_of(registers_in(operand), index) for operand in op.operands[1:3])
        chosen = index.get(op.operands[3], -1) if op.operands[1] != op.operands[2] else -1
        return Assignment(targets, choice=(first, second, Predicate(chosen, op.operands[3].offset)))
    combined, results = _combined(op), assigned(op)
    sources = (moved(op) | (read_by_lane(op) & undelivered - passed(op))) - combined.keys()
    settled = {index[register]: register.offset for register in results if register in index}
    if not compares(op) or combined.keys().isdisjoint(index):
        settled = {}
    return Assignment(
        targets,
        tuple(sorted(index[register] for register in sources if register in index)),
        computes=computes(op) or compares(op),
        combined=tuple(
            Predicate(index.get(register, -1), register.offset, holds) for register, holds in combined.items()
        ),
        settled=tuple(sorted(settled.items())),
        decided_by=bool(op.record.decided_by),
    )


def _read_by_steps(op: Op) -> set[Register]:
    """Return the predicates, and answers, that the steps of an instruction read."""
    read = {op.guard[0]} if op.guard is not None else set()
    read |= set(registers_in(op.operands[3])) if op.record.chooses else set()
    read |= set(registers_in(op.operands[1])) if decodes_block(op) else set()
    combined = set(_combined(op))
    return read | combined | (assigned(op) if combined and compares(op) else set())


def _combined(op: Op) -> dict[Register, bool]:
    """Return the predicates that `and` or `or` combines, and with which of its values each one decides."""
    combined = {}
    for operand in op.operands[1:] if op.record.decided_by is not None else ():
        register = operand.operand if isinstance(operand, Negated) else operand
        if isinstance(register, Register) and register.is_predicate:
            combined[register] = bool(op.record.decided_by) != isinstance(operand, Negated)
    return combined


def _index_of(registers: Iterable[Register], index: dict[Register, int]) -> int:
    return next((index[register] for register in registers if register in index), -1)


def _definitely_assigned(
    body: FunctionBody, first: BasicBlock, blocks: list[BasicBlock], gives: Assigned
) -> dict[int, set[Register]] | None:
    """Return by basic block the registers that have a value on all paths to it; None if nobody can tell."""
    every = set().union(*(gives(op) for block in blocks for op in block.executed))
    before = {id(block): set(every) for block in blocks}
    before[id(first)] = {parameter for parameter in body.parameters if isinstance(parameter, Register)}
    changed = True
    while changed:
        changed = False
        for block in blocks:
            after = set(before[id(block)])
            for op in block.executed:
                if _always_assigns(op):
                    after |= gives(op)
            for following in successors(block):
                if following is first:  # where lanes begin is no place of its own
                    return None
                held = before[id(following)]
                if not held <= after:
                    held &= after
                    changed = True
    return before


def _used_without_value(
    blocks: list[BasicBlock], known: Known, slots: ParameterSlots, gives: Assigned, moved: PassedOn
) -> set[Register]:
    """Return the registers that some instruction uses where a path may have left them without a value."""
    unassigned: set[Register] = set()
    for block in blocks:
        here = set(known[id(block)])
        for op in block.executed:
            shuffled = set(registers_in(op.operands[1])) if op.record.shuffles else set()
            where = needed_where(op)
            used = needed(op) | moved(op) | shuffled | (where[0] if where is not None else set())
            used |= {move.source for move in slots.moves(op) if move.source and not is_slot(move.source)}
            unassigned |= used - here
            if _always_assigns(op):
                here |= gives(op)
    return unassigned


def _tainted(
    blocks: list[BasicBlock],
    doubtful: set[Register],
    sources_of: Callable[[Op], set[Register]],
    gives: Assigned,
    slots: ParameterSlots | None = None,
) -> set[Register]:
    """Return the registers, and slots of parameters, that instructions may pass the lack of a value on to."""
    moves = [(sources_of(op), gives(op)) for block in blocks for op in block.executed]
    if slots is not None:
        passed_on = (move for block in blocks for op in block.executed for move in slots.moves(op))
        moves += [({move.source}, {move.target}) for move in passed_on if move.source is not None]
    tainted: set[Register] = set()
    without, changed = set(doubtful), bool(doubtful)
    while changed:
        changed = False
        for sources, targets in moves:
            if not targets <= tainted and not without.isdisjoint(sources):
                tainted |= targets
                without |= targets
                changed = True
    return tainted


def has_folded_values(module: Module) -> bool:
    """Return whether the PTX has a NaN of LLVM's, and its source does not ask for one."""
    source = module.cuda
    if source is None or _IN_PTX.search(module.text or "") is None:
        return False
    return not any(_ASKED_FOR.search(text) for text in source.texts())


def is_folded(op: Op) -> bool:
    """Return whether an instruction gives nothing but such a NaN: it moves the constant, or adds to it."""
    constants = [
        operand for operand in op.operands if isinstance(operand, Immediate) and operand.bits in _NANS
    ]
    if not constants or op.record.level is not Level.LANE:
        return False
    if op.record.needs_values:
        return op.has("f32") or op.has("f64")
    return not op.registers(Role.USED)
