"""Basic blocks: instructions up to a branch, or up to an instruction that lanes may have to wait for.

They are numbered in reverse post-order, callees before callers: the lowest number among diverged lanes is
where they can reconverge soonest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

from lanewise.errors import LanewiseError
from lanewise.machine.program.instruction_record import BlockEnd, Role, Waits
from lanewise.machine.program.instruction_table import BARRIER_RESULT, CALL_RESULTS
from lanewise.machine.program.operands import BranchTarget, Callee, IndirectCallee
from lanewise.machine.program.ops import PROVIDED, FunctionBody, Op, Program

#: Ends at which lanes wait before the instruction itself, which then begins the next basic block.
_WAITS_BEFORE = (BlockEnd.WARP_SYNC, BlockEnd.WARPGROUP_SYNC, BlockEnd.PHASE, BlockEnd.COLUMNS)
#: Ends that go to the targets of their instruction.
_BRANCHES = (BlockEnd.JUMP, BlockEnd.SWITCH)
#: Ends after which the next basic block follows only for lanes whose guard does not hold.
_LEAVES = (*_BRANCHES, BlockEnd.RETURN, BlockEnd.EXIT, BlockEnd.TRAP)

#: How an instruction that lanes wait for ends a basic block.
_ENDS_OF_WAITS = {
    Waits.MEMBERS: BlockEnd.WARP_SYNC,
    Waits.WARP: BlockEnd.WARP_SYNC,
    Waits.WARPGROUP: BlockEnd.WARPGROUP_SYNC,
    Waits.BARRIER: BlockEnd.BARRIER,
    Waits.PHASE: BlockEnd.PHASE,
    Waits.CLUSTER: BlockEnd.CLUSTER,
    Waits.COLUMNS: BlockEnd.COLUMNS,
}

#: Loads and stores that a branch may skip and that are done under its guard instead.
MOST_GUARDED = 8


@dataclass(eq=False)
class BasicBlock:
    """A sequence of instructions without a branch, and how it ends."""

    body: FunctionBody
    ops: list[Op] = field(default_factory=list)
    end: BlockEnd = BlockEnd.FALLTHROUGH
    #: The instruction that ends it, if one does.
    op: Op | None = None
    targets: list[BasicBlock] = field(default_factory=list)
    following: BasicBlock | None = None
    number: int = -1
    #: Whether its function begins with it.
    is_first: bool = False

    @property
    def line(self) -> int:
        """The line of the PTX where it begins."""
        first = self.ops[0] if self.ops else self.op
        return first.line if first else self.body.function.line

    @property
    def executed(self) -> list[Op]:
        """The instructions that run in it; one that lanes wait for at its end runs in the next."""
        ended = [self.op] if self.op is not None and not self.waits_before else []
        return [*self.ops, *ended]

    @property
    def waits_before(self) -> bool:
        """Whether lanes wait here for the instruction at its end, which runs in the next one."""
        return self.op is not None and self.end in _WAITS_BEFORE and self.op.record.has_code


def end_of(op: Op) -> BlockEnd:
    """Return how an instruction ends its basic block; FALLTHROUGH if it does not end one."""
    record = op.record
    if record.ends is BlockEnd.CALL:
        callee = op.operands[1]
        return BlockEnd.HOST_CALL if isinstance(callee, Callee) and callee.name in PROVIDED else BlockEnd.CALL
    return _ENDS_OF_WAITS.get(record.waits, record.ends)


def takes_whole_warp(op: Op) -> bool:
    """Return whether an instruction waits for all lanes of its warp, whatever its operands are."""
    return op.record.waits is Waits.WARP and op.guard is None


def _is_waited_for(block: BasicBlock, op: Op) -> bool:
    """Return whether a basic block begins with a wait for all lanes, so that another wait is not needed."""
    return bool(block.ops) and takes_whole_warp(block.ops[0]) and takes_whole_warp(op)


def past_waits(block: BasicBlock) -> BasicBlock:
    """Return the basic block where a whole warp goes on: the next one if this one only waits for the warp."""
    waits = block.end is BlockEnd.WARP_SYNC and block.op is not None and takes_whole_warp(block.op)
    return block.following if waits and not block.ops and block.following is not None else block


def guarded_moves(block: BasicBlock) -> list[Op]:
    """Return the loads and stores that a branch skips, with its guard; empty if it skips anything else.

    With them the lanes need not part: `@p bra L; st …; L:` does what `@!p st …` does.
    """
    inner, op = block.following, block.op
    if block.end is not BlockEnd.JUMP or inner is None or op is None or op.guard is None:
        return []
    moves = all(
        (op.record.is_plain_load or op.record.is_plain_store) and op.guard is None for op in inner.ops
    )
    joins = inner.end is BlockEnd.FALLTHROUGH and inner.following is block.targets[0]
    if not moves or not joins or len(inner.ops) > MOST_GUARDED:
        return []
    register, negated = op.guard
    return [replace(op, guard=(register, not negated)) for op in inner.ops]


def split(program: Program) -> list[BasicBlock]:
    """Return all basic blocks of a program by number; `entry_block` finds the first one of the kernel."""
    firsts: dict[str, BasicBlock] = {}
    ordered: list[list[BasicBlock]] = []
    for body in program.bodies:  # callees come before their callers
        blocks = _split_body(body)
        blocks[0].is_first = True
        firsts[body.function.name] = blocks[0]
        ordered.append(_ordered(blocks))
    numbered = [block for blocks in ordered for block in blocks]
    for number, block in enumerate(numbered):
        block.number = number
        if block.end is BlockEnd.CALL:
            assert block.op is not None
            block.targets = [firsts[name] for name in callees(block.op)]
    return numbered


def callees(op: Op) -> tuple[str, ...]:
    """Return the names of the functions that a call may lead to."""
    callee = op.operands[1]
    assert isinstance(callee, Callee | IndirectCallee)
    return (callee.name,) if isinstance(callee, Callee) else callee.names


def entry_block(program: Program, blocks: list[BasicBlock]) -> int:
    """Return the number of the basic block where a kernel begins."""
    return next(block.number for block in blocks if block.body.function is program.entry)


def in_loops(blocks: list[BasicBlock]) -> set[int]:
    """Return the numbers of basic blocks that may run more than once: in loops, or in device functions.

    Numbers are in reverse post-order, so a branch to the same or a lower number goes back.
    """
    numbers = {block.number for block in blocks if not block.body.function.is_entry}
    for block in blocks:
        for target in successors(block):
            numbers.update(range(target.number, block.number + 1))
    return numbers


def _split_body(body: FunctionBody) -> list[BasicBlock]:
    """Return the basic blocks of a function in the order of its text, with targets and successors."""
    leaders = set(body.labels.values())
    blocks: list[BasicBlock] = [BasicBlock(body)]
    starts: dict[int, BasicBlock] = {}

    def begin() -> BasicBlock:
        block = BasicBlock(body)
        blocks[-1].following = block
        blocks.append(block)
        return block

    for position, op in enumerate(body.ops):
        if position in leaders and (blocks[-1].ops or blocks[-1].op):
            begin()
        if position in leaders:
            starts[position] = blocks[-1]
        if blocks[-1].op is not None:
            begin()
        end = end_of(op)
        if end is BlockEnd.FALLTHROUGH or (end is BlockEnd.WARP_SYNC and _is_waited_for(blocks[-1], op)):
            blocks[-1].ops.append(op)
            continue
        if end in (BlockEnd.WARPGROUP_SYNC, BlockEnd.COLUMNS):  # the lanes of the warp meet before it waits
            blocks[-1].end, blocks[-1].op = BlockEnd.WARP_SYNC, op
            begin()
        blocks[-1].end, blocks[-1].op = end, op
        if blocks[-1].waits_before:
            begin().ops.append(op)
        elif end is BlockEnd.BARRIER and op.record.role(0) is Role.DEFINED:
            begin().ops.append(replace(op, opcode=BARRIER_RESULT))
        elif end is BlockEnd.CALL:
            begin().ops.append(replace(op, opcode=CALL_RESULTS))
    last = len(body.ops)
    if last in leaders or blocks[-1].op is not None or not body.ops:
        if blocks[-1].ops or blocks[-1].op:
            begin()
        starts[last] = blocks[-1]
    for block in blocks:
        if block.end in _BRANCHES:
            assert block.op is not None
            target = block.op.operands[-1]
            if not isinstance(target, BranchTarget):
                raise LanewiseError(f"line {block.op.line}: '{block.op.source}': there is no such label")
            block.targets = [starts[body.labels[position]] for position in target.positions]
    return blocks


def successors(block: BasicBlock) -> list[BasicBlock]:
    """Return the basic blocks of the same function that may follow one."""
    following = list(block.targets) if block.end in _BRANCHES else []
    goes_on = block.end not in _LEAVES or (block.op is not None and block.op.guard is not None)
    if goes_on and block.following is not None:
        following.append(block.following)
    return following


def _ordered(blocks: list[BasicBlock]) -> list[BasicBlock]:
    """Return basic blocks in reverse post-order; of two successors the later one in the text comes later."""
    layout = {id(block): position for position, block in enumerate(blocks)}
    seen = {id(blocks[0])}
    finished: list[BasicBlock] = []
    stack = [(blocks[0], iter(sorted(successors(blocks[0]), key=lambda b: -layout[id(b)])))]
    while stack:
        block, rest = stack[-1]
        following = next((operand for operand in rest if id(operand) not in seen), None)
        if following is None:
            finished.append(block)
            stack.pop()
        else:
            seen.add(id(following))
            further = sorted(successors(following), key=lambda b: -layout[id(b)])
            stack.append((following, iter(further)))
    return finished[::-1]


def until_lanes_meet(branch: BasicBlock, known: dict[int, int]) -> dict[int, BasicBlock]:
    """Return the basic blocks after a branch up to where all of its paths have met, by number.

    `known` is what `postdominators` returns.
    """
    meeting = _meeting(branch, known)
    between: dict[int, BasicBlock] = {}
    pending = [*successors(branch)]
    while pending:
        follower = pending.pop()
        if follower.number not in between and follower.number != meeting:
            between[follower.number] = follower
            pending += successors(follower)
    return between


def _meeting(branch: BasicBlock, known: dict[int, int]) -> int:
    """Return the number of the first basic block that all paths from a branch go through; -1 if none does."""
    following = successors(branch)
    if not following:
        return -1
    common = reduce(and_, (known[block.number] for block in following))
    if any(known[block.number] < 0 for block in following):
        # Some path never ends, and is said to go through everything: only what it reaches counts.
        common &= reduce(and_, (sum(1 << number for number in _reachable(block)) for block in following))
    return (common & -common).bit_length() - 1


def postdominators(blocks: list[BasicBlock]) -> dict[int, int]:
    """Return for each basic block those that every path from it to the end goes through, as bits of a mask.

    It is -1, all bits, for a block from which no path ends. Numbers are in reverse post-order, so that one
    round from the last to the first does nearly everything.
    """
    masks = {block.number: -1 for block in blocks}
    changed = True
    while changed:
        changed = False
        for block in sorted(blocks, key=lambda block: -block.number):
            following = successors(block)
            common = -1 if following else 0
            for follower in following:
                common &= masks[follower.number]
            new = common | 1 << block.number
            if new != masks[block.number]:
                masks[block.number], changed = new, True
    return masks


def _reachable(block: BasicBlock) -> set[int]:
    """Return the numbers of a basic block and all that can follow it in its function."""
    reached = {block.number}
    pending = successors(block)
    while pending:
        follower = pending.pop()
        if follower.number not in reached:
            reached.add(follower.number)
            pending += successors(follower)
    return reached
