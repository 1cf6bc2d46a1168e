"""Compiled code of cp.async that has not taken effect yet: each thread keeps its copies, the oldest first.

By default a copy takes effect when it is issued, and nothing is kept. Otherwise it is kept until its thread
waits for its group, or until its thread has no room for more; with a seed, some take effect at once. What a
block leaves behind when it ends nobody can see any more.
"""

from lanewise.jit.simd import Value
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.async_records import (
    MOST_COPIES,
    KeptCopy,
    PendingOperations,
    ThreadCopies,
)
from lanewise.machine.codegen.function_code import (
    U32,
    BlockCode,
    FunctionCode,
    Record,
    copy_bytes,
    shared_function,
)
from lanewise.machine.codegen.pending_operations import call_function, drawn_at_once
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS

#: Operands of the step that waits: how many groups may stay pending (-1: none, nor copies without a group).
_KEPT = 0


def _copies_of(code: BlockCode, lane: Value) -> Record:
    """Return the copies of a lane of the running warp."""
    thread = code.frame.get(WarpFrame.index) * abi.LANES + lane
    table = code.block.at(BlockRecord.pending).get(PendingOperations.copies)
    return Record(code, table + thread * ThreadCopies.BYTES)


def _copy(code: BlockCode, copies: Record, number: Value) -> Record:
    """Return one of the copies of a thread."""
    return Record(code, copies.address + ThreadCopies.entries + number * KeptCopy.BYTES)


def _carry_out(code: BlockCode, kept: Record) -> None:
    """Write that the bytes of a copy are copied."""
    target, source, size = (kept.get(field) for field in (KeptCopy.target, KeptCopy.source, KeptCopy.size))
    copy_bytes(code, target, source, size)
    _tell(code, kept, 1)


def _tell(code: BlockCode, kept: Record, done: int) -> None:
    """Tell a trace, if there is one, that a copy is kept, or that it has taken effect."""
    hook = code.block.get(BlockRecord.kept_hook)
    with code.when(hook.differs(0)):
        call_function(code, hook, code.block.address, kept.address, code.number(done))


@shared_function("keep_copy", ("lane", "target", "source", "bytes"))
def keep(code: BlockCode) -> None:
    """`keep_copy(frame, lane, target, source, bytes)`: a copy of a lane, given by host addresses."""
    copies = _copies_of(code, code["lane"])
    with code.when(drawn_at_once(code, code.block)):
        copy_bytes(code, code["target"], code["source"], code["bytes"])
        code.give(0)
    with code.when(copies.get(ThreadCopies.count).equals(MOST_COPIES)):
        _carry_out(code, _copy(code, copies, code.number(0)))
        _drop(code, copies, code.number(1))
    count = copies.get(ThreadCopies.count)
    kept = _copy(code, copies, count)
    for field, value in (
        (KeptCopy.target, code["target"]),
        (KeptCopy.source, code["source"]),
        (KeptCopy.size, code["bytes"]),
        (KeptCopy.group, copies.get(ThreadCopies.groups) + 1),
        (KeptCopy.lane, code["lane"]),
        (KeptCopy.issue_entry, code.block.get(BlockRecord.log_entry)),
    ):
        kept.set(field, value)
    _tell(code, kept, 0)
    copies.set(ThreadCopies.count, count + 1)


def _drop(code: BlockCode, copies: Record, done: Value) -> None:
    """Write that the first copies are forgotten, since they have taken effect."""
    left = copies.get(ThreadCopies.count) - done
    with code.loop(left) as number:
        to, start = (_copy(code, copies, place).address for place in (number, number + done))
        copy_bytes(code, to, start, code.number(KeptCopy.BYTES))
    copies.set(ThreadCopies.count, left)


def _carry_out_groups(code: BlockCode, copies: Record, last: Value) -> None:
    """Write that all copies of a thread take effect whose group is not beyond the last one."""
    done = code.variable(code.number(0))
    with code.loop(copies.get(ThreadCopies.count)) as number:
        kept = _copy(code, copies, number)
        with code.when(~(kept.get(KeptCopy.group) > last)):  # groups never decrease from one to the next
            _carry_out(code, kept)
            done.set(number + 1)
    with code.when(done.get() > 0):
        _drop(code, copies, done.get())


@shared_function("finish_copies", ("lane",))
def finish(code: BlockCode) -> None:
    """`finish_copies(frame, lane)`: all copies of a lane take effect, as an mbarrier tracks them."""
    copies = _copies_of(code, code["lane"])
    _carry_out_groups(code, copies, copies.get(ThreadCopies.groups) + 1)


@shared_function("commit_copies", STEP_ARGUMENTS)
def commit(code: BlockCode) -> None:
    """The step of cp.async.commit_group: later copies of the thread belong to the next group."""
    with code.when(code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    with code.each_lane(code["active"].to(U32)) as lane:
        copies = _copies_of(code, lane)
        copies.set(ThreadCopies.groups, copies.get(ThreadCopies.groups) + 1)


@shared_function("wait_copies", STEP_ARGUMENTS)
def wait(code: BlockCode) -> None:
    """The step of cp.async.wait_group and wait_all: copies of the thread take effect."""
    with code.when(code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    with code.each_lane(code["active"].to(U32)) as lane:
        copies = _copies_of(code, lane)
        _carry_out_groups(code, copies, copies.get(ThreadCopies.groups) - code.record("operands").get(_KEPT))


def forget_copies(code: FunctionCode, block: Record) -> None:
    """Write that a block begins without pending copies."""
    table = block.at(BlockRecord.pending).get(PendingOperations.copies)
    with code.loop(block.at(BlockRecord.launch).get(LaunchRecord.warps) * abi.LANES) as thread:
        Record(code, table + thread * ThreadCopies.BYTES).set(ThreadCopies.count, 0)
