"""Hooks in the code of a kernel that is checked: what runs, what it touches, where lanes wait for each other.

Each is a call of a function that all kernels share (`shadow.py`) or a count. Registers have to be in the
frame when a hook of an instruction runs. Code that is not checked has none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.jit import ir
from lanewise.jit.simd import Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import U32, U64, BlockCode, FunctionCode, Record
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes
from lanewise.machine.program.basic_blocks import WARP_SYNC
from lanewise.machine.program.resolve import Op, Register

if TYPE_CHECKING:
    from lanewise.machine.analysis.definite_assignment import Plan
    from lanewise.machine.program.basic_blocks import Block

# What a block of threads that is checked has at `frame.OBSERVED`: functions and places of counts.
ACCESS, ARRIVE, RELEASE, ORDER, MEMBERS, PARTED, UNASSIGNED, ASSIGNED, RUNS, DIVERGED, FRESH = range(0, 88, 8)

#: Rows of the watch's table that an instruction has.
ROWS = 2
#: Instructions that touch memory.
MEMORY = frozenset(("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix"))
#: Spaces that nobody else writes while a kernel runs.
UNWATCHED = ("param", "param::entry", "param::func", "const")
#: Instructions that name the lanes which take part.
MASKED = frozenset(("shfl", "vote", "match", "redux", "elect"))
#: Instructions that order memory accesses, or complete asynchronous copies.
ORDERING = frozenset(("membar", "fence"))


def _call(code: FunctionCode, observed: Record, slot: int, values: list[Value]) -> None:
    kinds = [ir.IntType(64)] * len(values)
    pointer = ir.FunctionType(ir.IntType(64), kinds).as_pointer()
    function = code.builder.inttoptr(observed.get(slot).handle, pointer)
    code.builder.call(function, [each.handle for each in values])


def _visit(code: BlockCode, slot: int, op: Op, second: bool = False) -> None:
    """Call `function(frame, row, lanes that take part)`: each access of an instruction has a row."""
    bits = code.mask_bits() if op.guard is None else code.bits(code.active(op))
    if second and len(op.operands) > 3:
        # cp.async with the bytes to read, or whether to ignore the source: no lane reads no byte.
        lanes = Lanes(code, code.frame.handle, code.constant(i64, 0), abi.LANES)
        last = op.operands[3]
        ignores = isinstance(last, Register) and last.type == "pred"
        found = lanes.read(last, BOOL if ignores else U32)
        bits = bits & code.bits(~found if ignores else found.differs(0))
    row = code.number(ROWS * op.site + second)
    _call(code, code.block.at(abi.OBSERVED), slot, [code["frame"], row, bits.to(U64).to(i64)])


def _add(counts: Record, offset: int, more: Value | int) -> None:
    counts.set(offset, counts.get(offset) + more)


def _assigned(code: BlockCode, plan: Plan) -> Record:
    """For each doubtful register of the warp: the lanes that gave it a value."""
    place = code.block.at(abi.OBSERVED).get(ASSIGNED)
    return Record(code, place + code.frame.get(abi.INDEX) * (4 * len(plan.registers)))


def block_begins(code: BlockCode, block: Block, plan: Plan) -> None:
    """A path of a warp begins a block of code: with how many lanes, and with which registers unset."""
    counts = Record(code, code.block.at(abi.OBSERVED).get(RUNS) + 16 * block.number)
    _add(counts, 0, 1)
    _add(counts, 8, code.intrinsic("ctpop", U32, [code.mask_bits()]).to(U64).to(i64))
    if plan.registers and block.number == plan.entry:
        for number in range(len(plan.registers)):
            _assigned(code, plan).set(4 * number, code.constant(U32, 0))
    for number, op in plan.checks.get(block.number, ()):
        missing = code.mask_bits() & ~_assigned(code, plan).get(4 * number, U32)
        with code.when(missing.differs(0)):
            values = [
                code["frame"],
                code.number(ROWS * op.site),
                missing.to(U64).to(i64),
                code.number(number),
            ]
            _call(code, code.block.at(abi.OBSERVED), UNASSIGNED, values)


def before(code: BlockCode, op: Op) -> None:
    """An instruction that is not a lane's own business is about to run."""
    moves = op.has("load") or op.has("store")
    waits = any(op.has(each) for each in ("commit_group", "wait_group", "wait_all", "mbarrier"))
    if op.opcode in ("ld", "st") and any(op.has(each) for each in UNWATCHED):
        return
    if op.opcode in MEMORY or (op.opcode == "wmma" and moves):
        _visit(code, ACCESS, op)
    elif op.opcode == "cp" and not waits:
        _visit(code, ACCESS, op)
        _visit(code, ACCESS, op, second=True)
    elif op.opcode == "mbarrier" and not op.has("pending_count"):
        _visit(code, ACCESS, op)
    elif op.opcode in ORDERING or op.opcode == "cp":
        _visit(code, ORDER, op)
        if op.has("mbarrier"):
            _visit(code, ACCESS, op, second=True)
    elif op.opcode in MASKED and op.has("sync"):
        _visit(code, MEMBERS, op)
    elif op.opcode in WARP_SYNC:
        code.block.at(abi.OBSERVED).set(FRESH, 1)


def block_ends(code: BlockCode, block: Block, plan: Plan) -> None:
    """The lanes are about to go where a block of code sends them."""
    for number in plan.sets.get(block.number, ()):
        given = _assigned(code, plan)
        given.set(4 * number, given.get(4 * number, U32) | code.mask_bits())
    op = block.op
    if op is None:
        return
    if block.end == "jump" and op.guard is not None:
        taken = code.bits(code.active(op))
        diverges = taken.differs(0) & taken.differs(code.mask_bits())
        counts = Record(code, code.block.at(abi.OBSERVED).get(DIVERGED) + 8 * op.site)
        _add(counts, 0, diverges.to(Type("u", 64)).to(i64))
    elif block.end == "barrier":
        _visit(code, ARRIVE, op)
    elif block.end == "sync" and op.opcode in MASKED:
        with code.when(code.bits(code.active(op)).differs(-1)):
            _visit(code, PARTED, op)


def barrier_completes(code: FunctionCode, block: Record, barrier: Value) -> None:
    """All whom a barrier waits for are there, and are still parked."""
    _call(code, block.at(abi.OBSERVED), RELEASE, [block.address, barrier])
