"""Blocks of code: instructions up to a branch or to a place where lanes may have to wait, and their order.

Numbers are in reverse post-order, callees before their callers: the lowest number among diverged lanes is
where they can meet again soonest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lanewise.errors import LanewiseError
from lanewise.machine.program.resolve import PROVIDED, Body, Callee, Op, Pointed, Program, Target

#: Instructions for which all lanes that they name must be there.
WARP_SYNC = {"shfl", "vote", "match", "redux", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "elect"}
#: Those of them that name no lanes: all of the warp's take part.
WHOLE_WARP = {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}
#: What ends a block.
ENDS = {"bra", "brx", "ret", "exit", "call", "trap"}

#: Loads and stores that a branch may skip and that are done under its guard instead.
MOST_GUARDED = 8

#: What is done first after a wait: taking the results of bar.red, of a device function.
BARRIER_RESULT, CALL_RESULTS = "(bar.red)", "(call)"


@dataclass(eq=False)
class Block:
    """Instructions that run one after the other, and how they end."""

    body: Body
    ops: list[Op] = field(default_factory=list)
    #: none (falls through), jump, switch, ret, exit, call, sync, barrier, phase, host, trap
    end: str = "none"
    op: Op | None = None
    targets: list[Block] = field(default_factory=list)
    following: Block | None = None
    number: int = -1

    @property
    def line(self) -> int:
        """Where it begins."""
        first = self.ops[0] if self.ops else self.op
        return first.line if first else self.body.function.line


def is_sync(op: Op) -> bool:
    """Whether an instruction waits for other lanes of its warp."""
    return op.opcode in WARP_SYNC and ("sync" in op.modifiers) and op.opcode != "bar"


def takes_whole_warp(op: Op) -> bool:
    """Whether an instruction waits for all lanes of its warp, whatever its operands are."""
    return is_sync(op) and op.opcode in WHOLE_WARP and op.guard is None


def waited_for(block: Block, op: Op) -> bool:
    """Whether a block of code begins with a wait for all lanes, after which another one has nothing to do."""
    return bool(block.ops) and takes_whole_warp(block.ops[0]) and takes_whole_warp(op)


def past_waits(block: Block) -> Block:
    """Where a whole warp goes on that comes to a block: behind it, if all it does is wait for the warp."""
    only_waits = not block.ops and block.end == "sync" and block.op is not None and takes_whole_warp(block.op)
    return block.following if only_waits and block.following is not None else block


def is_barrier(op: Op) -> bool:
    """Whether an instruction waits at a barrier."""
    return op.opcode in ("bar", "barrier")


def is_wait(op: Op) -> bool:
    """Whether an instruction may wait for a phase of an mbarrier."""
    return op.opcode == "mbarrier" and (op.has("try_wait") or op.has("test_wait"))


def is_host(op: Op) -> bool:
    """Whether Python does it."""
    return op.opcode == "call" and isinstance(op.operands[1], Callee) and op.operands[1].name in PROVIDED


def cut(program: Program) -> list[Block]:
    """All blocks of a program by number; the entry's first block is the one `entry_block` finds."""
    firsts: dict[str, Block] = {}
    found: list[list[Block]] = []
    for body in program.bodies:  # callees come before their callers
        blocks = _cut_body(body)
        firsts[body.function.name] = blocks[0]
        found.append(_ordered(blocks))
    every = [block for blocks in found for block in blocks]
    for number, block in enumerate(every):
        block.number = number
        if block.end == "call":
            assert block.op is not None
            block.targets = [firsts[name] for name in callees(block.op)]
    return every


def callees(op: Op) -> tuple[str, ...]:
    """The functions that a call may lead to."""
    callee = op.operands[1]
    assert isinstance(callee, Callee | Pointed)
    return (callee.name,) if isinstance(callee, Callee) else callee.names


def entry_block(program: Program, blocks: list[Block]) -> int:
    """The number of the block where a kernel begins."""
    return next(block.number for block in blocks if block.body.function is program.entry)


def in_loops(blocks: list[Block]) -> set[int]:
    """The numbers of blocks that may run more than once: between a branch back and where it leads, or called.

    Numbers are in reverse post-order, so a branch to no higher number goes back.
    """
    found = {block.number for block in blocks if not block.body.function.is_entry}
    for block in blocks:
        for target in successors(block):
            found.update(range(target.number, block.number + 1))
    return found


def guarded_moves(block: Block) -> list[Op]:
    """The loads and stores that a block's branch skips, under its guard: empty if it skips anything else.

    With them the lanes need not part: `@p bra L; st …; L:` does what `@!p st …` does.
    """
    inner, op = block.following, block.op
    if block.end != "jump" or inner is None or op is None or op.guard is None:
        return []
    moves = all(each.opcode in ("ld", "st") and each.guard is None for each in inner.ops)
    joins = inner.end == "none" and inner.following is block.targets[0]
    if not moves or not joins or len(inner.ops) > MOST_GUARDED:
        return []
    register, negated = op.guard
    return [replace(each, guard=(register, not negated)) for each in inner.ops]


def _cut_body(body: Body) -> list[Block]:
    leaders = set(body.labels.values())
    blocks: list[Block] = [Block(body)]
    starts: dict[int, Block] = {}

    def begin() -> Block:
        block = Block(body)
        blocks[-1].following = block
        blocks.append(block)
        return block

    for place, op in enumerate(body.ops):
        if place in leaders and (blocks[-1].ops or blocks[-1].op):
            begin()
        if place in leaders:
            starts[place] = blocks[-1]
        if blocks[-1].op is not None:
            begin()
        if is_sync(op) and not waited_for(blocks[-1], op):
            blocks[-1].end, blocks[-1].op = "sync", op
            begin().ops.append(op)
        elif is_wait(op):
            blocks[-1].end, blocks[-1].op = "phase", op
            begin().ops.append(op)
        elif is_barrier(op):
            blocks[-1].end, blocks[-1].op = "barrier", op
            if "red" in op.modifiers:
                begin().ops.append(replace(op, opcode=BARRIER_RESULT))
        elif is_host(op):
            blocks[-1].end, blocks[-1].op = "host", op
        elif op.opcode in ENDS:
            blocks[-1].end = {"bra": "jump", "brx": "switch"}.get(op.opcode, op.opcode)
            blocks[-1].op = op
            if op.opcode == "call":
                begin().ops.append(replace(op, opcode=CALL_RESULTS))
        else:
            blocks[-1].ops.append(op)
    last = len(body.ops)
    if last in leaders or blocks[-1].op is not None or not body.ops:
        if blocks[-1].ops or blocks[-1].op:
            begin()
        starts[last] = blocks[-1]
    for block in blocks:
        if block.end in ("jump", "switch"):
            assert block.op is not None
            target = block.op.operands[-1]
            if not isinstance(target, Target):
                raise LanewiseError(f"line {block.op.line}: '{block.op.source}': there is no such label")
            block.targets = [starts[body.labels[place]] for place in target.places]
    return blocks


def successors(block: Block) -> list[Block]:
    """The blocks of the same function that may follow one."""
    found = list(block.targets) if block.end in ("jump", "switch") else []
    goes_on = block.end not in ("jump", "switch", "ret", "exit", "trap") or (
        block.op is not None and block.op.guard is not None
    )
    if goes_on and block.following is not None:
        found.append(block.following)
    return found


def _ordered(blocks: list[Block]) -> list[Block]:
    """Reverse post-order; of two ways out of a block the one further down in the text comes later."""
    layout = {id(block): place for place, block in enumerate(blocks)}
    seen = {id(blocks[0])}
    finished: list[Block] = []
    stack = [(blocks[0], iter(sorted(successors(blocks[0]), key=lambda b: -layout[id(b)])))]
    while stack:
        block, rest = stack[-1]
        following = next((each for each in rest if id(each) not in seen), None)
        if following is None:
            finished.append(block)
            stack.pop()
        else:
            seen.add(id(following))
            further = sorted(successors(following), key=lambda b: -layout[id(b)])
            stack.append((following, iter(further)))
    return finished[::-1]
