"""Whether the registers of a tcgen05.ld are needed before threads synchronise, by forward dataflow analysis.

The PTX ISA asks for tcgen05.wait::ld before others overwrite what is loaded (9.7.16.6.4.5). Where everything
that was loaded is stored, or decides a branch, before the thread arrives anywhere, a GPU has delivered the
registers by then, and with them read tensor memory: it is done with the columns.
"""

from __future__ import annotations

from lanewise.machine.analysis.observed_loads import registers_of
from lanewise.machine.program.basic_blocks import BasicBlock, successors
from lanewise.machine.program.instruction_record import BitFlow, BlockEnd, Order, Waits
from lanewise.machine.program.ops import Op

#: Ends of a thread's way.
_ENDS = (BlockEnd.EXIT, BlockEnd.RETURN)
#: Ends behind which a program goes on in another function.
_CALLS = (BlockEnd.CALL, BlockEnd.HOST_CALL)
_BARRIERS = (Waits.BARRIER, Waits.CLUSTER)


class _Needed:
    """What must be delivered at a place: loaded registers are bits, and other registers depend on them."""

    def __init__(self, needed: int, depends: dict[int, int]) -> None:
        self.needed, self.depends = needed, depends

    def copy(self) -> _Needed:
        return _Needed(self.needed, dict(self.depends))

    def meet(self, other: _Needed) -> bool:
        """Keep what holds on both ways to a place; return whether it is less."""
        before = self.needed, self.depends
        self.needed &= other.needed
        common = {register: bits & other.depends.get(register, 0) for register, bits in self.depends.items()}
        self.depends = {register: bits for register, bits in common.items() if bits}
        return before != (self.needed, self.depends)

    def step(self, op: Op) -> None:
        """Execute an instruction that arrives nowhere."""
        read, written = registers_of(op)
        bits = 0
        for register in read:
            bits |= self.depends.get(register, 0)
        touches = bool(op.record.memory) and op.space != "local"
        if touches or op.record.touches_tensor_memory or op.record.ends is BlockEnd.JUMP:
            self.needed |= bits
        for register in written:
            # Under a guard the register is what it was, or the result.
            kept = self.depends.get(register, 0) if op.guard is not None else 0
            self.depends[register] = bits | kept


def is_delivered(load: Op, blocks: list[BasicBlock]) -> bool:
    """Return whether all that a tcgen05.ld loads is needed before its thread arrives anywhere."""
    loaded = sorted(registers_of(load).written)
    everything = (1 << len(loaded)) - 1
    first = _Needed(0, {register: 1 << number for number, register in enumerate(loaded)})
    begin, place = _place_of(load, blocks)
    known: dict[int, _Needed] = {}
    left: list[tuple[BasicBlock, int, _Needed]] = [(begin, place + 1, first)]
    while left:
        block, start, state = left.pop()
        ended = False
        for op in block.executed[start:]:
            ended = _begins_anew(op, load)
            if ended:
                break
            if _arrives(op):
                if state.needed != everything:
                    return False
                ended = True
                break
            state.step(op)
        if ended:
            continue
        if block.end in _CALLS or (block.end in _ENDS and state.needed != everything):
            return False
        for following in successors(block):
            before = known.get(following.number)
            if before is None:
                known[following.number] = state.copy()
            elif not before.meet(state):
                continue
            left.append((following, 0, known[following.number].copy()))
    return True


def is_used_behind_a_barrier(load: Op, blocks: list[BasicBlock]) -> bool:
    """Return whether a way leads from a tcgen05.ld over a barrier to the first use of what it loads.

    Only then it matters that columns are freed behind the barrier: a GPU has delivered what was used before,
    and what nobody uses may be anything. Copies of registers are no use of them.
    """
    begin, place = _place_of(load, blocks)
    known: dict[tuple[int, bool], set[int]] = {}
    left = [(begin, place + 1, False, set(registers_of(load).written))]
    while left:
        block, start, crossed, unused = left.pop()
        for op in block.executed[start:]:
            if _begins_anew(op, load):
                unused.clear()
                break
            read, written = registers_of(op)
            copies, uses = op.record.bit_flow is BitFlow.MOVE, not unused.isdisjoint(read)
            if uses and crossed and not copies:
                return True
            crossed = crossed or op.record.waits in _BARRIERS
            if op.guard is None:
                unused -= set(written) if copies else {*read, *written}
            if uses and copies:
                unused |= set(written)
        for following in successors(block) if unused and block.end not in _CALLS else ():
            before = known.setdefault((following.number, crossed), set())
            if not unused <= before:
                before |= unused
                left.append((following, 0, crossed, set(before)))
    return False


def _place_of(load: Op, blocks: list[BasicBlock]) -> tuple[BasicBlock, int]:
    """Return the basic block of an instruction, and its place there."""
    places = (
        (block, place) for block in blocks for place, op in enumerate(block.executed) if op.site == load.site
    )
    return next(places)


def _begins_anew(op: Op, load: Op) -> bool:
    """Return whether a way from a load ends at an instruction: a wait for loads, or the load itself."""
    return op.site == load.site or (op.record.touches_tensor_memory and op.has("wait::ld"))


def _arrives(op: Op) -> bool:
    """Return whether others may learn by an instruction how far its thread is."""
    record = op.record
    if record.waits in _BARRIERS:
        return True
    if record.orders in (Order.FENCE, Order.CLUSTER_ARRIVAL):
        return True
    arrives = any(op.has(word) for word in ("arrive", "arrive_drop", "warp"))  # bar.warp.sync, too
    commits = record.touches_tensor_memory and op.has("commit")
    return arrives or commits or any(access.releases for access in record.memory)
