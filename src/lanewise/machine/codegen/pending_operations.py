"""Compiled code of the queue of pending operations: asynchronous copies that have not taken effect yet.

By default a launch has no queue, and an operation takes effect when it is issued. Otherwise it is kept with
its operands evaluated until somebody waits for it, until nothing else can go on, or until a seed draws it.

Copies of cp.async are kept by each thread, the oldest first: until it waits for their group, or until it has
no room for more; with a seed, some take effect at once. What a block leaves behind when it ends nobody can
see any more.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u32, u64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord, WarpFrame
from lanewise.machine.async_records import (
    MOST_COPIES,
    MOST_PENDING,
    NO_PIPE,
    OPEN_GROUP,
    STAGE_BYTES,
    AsyncOperation,
    CompleteHow,
    Completion,
    KeptCopy,
    PendingOperations,
    ThreadCopies,
)
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    shared_function,
    shared_routine,
)
from lanewise.machine.codegen.lane_vectors import BOOL
from lanewise.machine.codegen.run_order import mixed
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS

#: Odd constants that keep the inputs of the hash apart from one another, and from those of the run order.
_DRAW, _BLOCK = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F
#: Of so many operations one completes when it is issued, or when its block has had a turn.
_ODDS = 4
#: Answers of `complete`.
NONE, SOME, FAULT = range(3)
#: Operands of the step that waits for groups: how many may stay pending (of cp.async -1: none, nor copies
#: without a group), and for bulk groups whether to read sources is enough.
_KEPT, _READ = 0, 8


def address_of(code: FunctionCode, function: ir.Function) -> Value:
    """Return the address of a function as a number."""
    return Value(code, i64, code.builder.ptrtoint(function, ir.LONG))


def _operation(code: FunctionCode, queue: Record, index: Value) -> Record:
    """Return a pending operation by its number."""
    return Record(code, queue.get(PendingOperations.operations) + index * AsyncOperation.BYTES)


def _draw(code: FunctionCode, block: Record, queue: Record) -> Value:
    """Return a random number that depends on the seed, the block, and how many were drawn before."""
    draws = queue.get(PendingOperations.draws) + 1
    queue.set(PendingOperations.draws, draws)
    seed = block.at(BlockRecord.launch).get(LaunchRecord.seed).to(u64)
    return mixed(seed + block.get(BlockRecord.linear).to(u64) * _BLOCK + draws.to(u64) * _DRAW)


def _is_random(block: Record) -> Value:
    """Return whether a seed draws when operations take effect."""
    return block.at(BlockRecord.launch).get(LaunchRecord.completion).equals(Completion.RANDOM)


def drawn_at_once(code: FunctionCode, block: Record) -> Value:
    """Return whether a seed draws an operation to take effect when it is issued."""
    drawn = code.variable(code.constant(BOOL, 0))
    with code.when(_is_random(block)):
        number = _draw(code, block, block.at(BlockRecord.pending))
        drawn.set((number & (_ODDS - 1)).equals(0))
    return drawn.get()


# issue ------------------------------------------------------------------------------------------------------


@shared_function("issue_operation", ("operation",), quickly=True)
def issue(code: BlockCode) -> None:
    """`issue_operation(frame, operation)`: it takes effect now, or is kept."""
    operation = code.record("operation")
    block = code.block
    operation.set(AsyncOperation.block, block.address)
    operation.set(AsyncOperation.warp, code.frame.get(WarpFrame.index))
    operation.set(AsyncOperation.issue_entry, block.get(BlockRecord.log_entry))
    operation.set(AsyncOperation.read_entry, 0)
    piped = operation.get(AsyncOperation.pipe).differs(NO_PIPE)
    with code.when(block.get(BlockRecord.issued_hook).differs(0)):
        code.invoke(block.get(BlockRecord.issued_hook), code["frame"], operation.address)
    with code.when(block.get(BlockRecord.pending).equals(0)):
        code.give(_carried_out(code, operation))
    queue = block.at(BlockRecord.pending)
    queue.set(PendingOperations.complete, address_of(code, complete(code.module)))
    at_once = drawn_at_once(code, block)
    with code.when(at_once & ~piped):
        code.give(code.invoke(operation.get(AsyncOperation.execute), operation.address))
    with code.when(queue.get(PendingOperations.count).equals(MOST_PENDING)):
        answer = _complete_at(code, block, code.number(0))
        with code.when(answer.differs(0)):
            code.give(answer)
    count = queue.get(PendingOperations.count)
    kept = _operation(code, queue, count)
    code.copy_bytes(kept.address, operation.address, code.number(AsyncOperation.BYTES))
    queue.set(PendingOperations.count, count + 1)
    with code.when(at_once):  # after the earlier ones of its pipe
        code.give(_complete_at(code, block, count))


# completion -------------------------------------------------------------------------------------------------


def _complete_at(code: FunctionCode, block: Record, index: Value) -> Value:
    """Write a call that carries out a pending operation by its number and removes it; return the answer.

    Earlier operations of its pipe are carried out before it, so that later numbers may change by more than 1.
    """
    return code.invoke(_complete_operation(code.module), block.address, index)


@shared_routine("complete_operation", ("block", "index"), quickly=True)
def _complete_operation(code: FunctionCode) -> None:
    block = code.record("block")
    queue = block.at(BlockRecord.pending)
    index = _complete_earlier(code, block, queue, code["index"])
    bytes_each = code.number(AsyncOperation.BYTES)
    mine = code.stack_record(AsyncOperation.BYTES)
    code.copy_bytes(mine.address, _operation(code, queue, index).address, bytes_each)
    count = queue.get(PendingOperations.count) - 1
    queue.set(PendingOperations.count, count)
    with code.loop(count, index) as number:
        following = _operation(code, queue, number + 1)
        code.copy_bytes(_operation(code, queue, number).address, following.address, bytes_each)
    with code.when(count.equals(0)):
        queue.set(PendingOperations.staged_bytes, 0)
    code.give(_carried_out(code, mine))


def _carried_out(code: FunctionCode, operation: Record) -> Value:
    """Write code that carries out an operation, and tells a trace of those of pipes; return the answer."""
    answer = code.invoke(operation.get(AsyncOperation.execute), operation.address)
    piped = operation.get(AsyncOperation.pipe).differs(NO_PIPE)
    with code.when(piped & answer.equals(0)):
        tell_piped(code, operation)
    return answer


def tell_piped(code: FunctionCode, operation: Record) -> None:
    """Write code that tells a trace, if there is one, of an operation of a pipe that has taken effect."""
    hook = operation.at(AsyncOperation.block).get(BlockRecord.piped_hook)
    with code.when(hook.differs(0)):
        code.invoke(hook, operation.address)


def _complete_earlier(code: FunctionCode, block: Record, queue: Record, index: Value) -> Value:
    """Write code that completes the operations of the same pipe before one; return its number after that."""
    pipe = _operation(code, queue, index).get(AsyncOperation.pipe)
    position, own = code.variable(code.number(0)), code.variable(index)
    with code.when(pipe.differs(NO_PIPE)), code.loop(index):
        number = position.get()
        earlier = _operation(code, queue, number).get(AsyncOperation.pipe).equals(pipe)
        with code.builder.if_else(earlier.handle) as (completes, passes):
            with completes:
                answer = _complete_at(code, block, number)
                with code.when(answer.differs(0)):
                    code.give(answer)
                own.set(own.get() - 1)
            with passes:
                position.set(number + 1)
    return own.get()


def complete_pipe(code: FunctionCode, block: Record, pipe: Value) -> Value:
    """Write code that completes all pending operations of a pipe; return 0, or a fault's answer.

    The last of them completes the others before it. The block has a queue.
    """
    queue = block.at(BlockRecord.pending)
    last = code.variable(code.number(-1))
    with code.loop(queue.get(PendingOperations.count)) as number:
        belongs = _operation(code, queue, number).get(AsyncOperation.pipe).equals(pipe)
        last.set(belongs.select(number, last.get()))
    answer = code.variable(code.constant(u32, 0))
    with code.when(~(last.get() < 0)):
        answer.set(_complete_at(code, block, last.get()))
    return answer.get()


@shared_routine("complete_operations", ("block", "how"), quickly=True)
def complete(code: FunctionCode) -> None:
    """`complete_operations(block, how)`: complete some as a CompleteHow says; NONE, SOME or FAULT."""
    block, how = code.record("block"), code["how"]
    queue = block.at(BlockRecord.pending)
    done = code.variable(code.constant(u32, NONE))

    def carry_out(index: Value) -> None:
        with code.when(_complete_at(code, block, index).differs(0)):
            code.give(FAULT)
        done.set(code.constant(u32, SOME))

    with code.when(how.equals(CompleteHow.EVERY)), code.loop(queue.get(PendingOperations.count)):
        carry_out(code.number(0))
    with code.when(_is_random(block)):
        before = queue.get(PendingOperations.count)
        # From the last one on, since numbers of later ones change.
        with code.loop(before) as number, code.when((_draw(code, block, queue) & (_ODDS - 1)).equals(0)):
            index = before - 1 - number
            with code.when(index < queue.get(PendingOperations.count)):
                carry_out(index)
    left = queue.get(PendingOperations.count)
    with code.when(how.equals(CompleteHow.ONE) & done.get().equals(NONE) & left.differs(0)):
        # Whoever is stuck waits for an mbarrier rather than for a group, which its thread waits for itself.
        chosen = code.variable(code.number(0))
        with code.loop(left) as number:
            index = left - 1 - number
            has_barrier = _operation(code, queue, index).get(AsyncOperation.barrier).differs(0)
            with code.when(has_barrier):
                chosen.set(index)
        with code.when(_is_random(block)):
            drawn = (_draw(code, block, queue) >> 1).to(i64)
            chosen.set(drawn % left)
        carry_out(chosen.get())
    code.give(done.get())


# bulk groups ------------------------------------------------------------------------------------------------


@contextmanager
def _each_thread(code: BlockCode, queue: Record) -> Iterator[tuple[Value, Record]]:
    """Run the body for each active lane, with its number and the record of its committed groups."""
    with code.each_lane(code["active"].to(u32)) as lane:
        thread = code.frame.get(WarpFrame.index) * abi.LANES + lane
        yield lane, Record(code, queue.get(PendingOperations.groups) + thread * 8)


def _is_of(code: BlockCode, operation: Record, lane: Value) -> Value:
    """Return whether a lane of the running warp issued an operation."""
    same_warp = operation.get(AsyncOperation.warp).equals(code.frame.get(WarpFrame.index))
    return same_warp & operation.get(AsyncOperation.lane).equals(lane)


@shared_function("commit_bulk_group", STEP_ARGUMENTS, quickly=True)
def commit_bulk_group(code: BlockCode) -> None:
    """The step that makes the open operations of each thread a group."""
    with code.when(code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    queue = code.block.at(BlockRecord.pending)
    with _each_thread(code, queue) as (lane, groups):
        number = groups.get(0) + 1
        groups.set(0, number)
        with code.loop(queue.get(PendingOperations.count)) as index:
            operation = _operation(code, queue, index)
            is_open = operation.get(AsyncOperation.group).equals(OPEN_GROUP)
            with code.when(is_open & _is_of(code, operation, lane)):
                operation.set(AsyncOperation.group, number)


@shared_function("wait_bulk_group", STEP_ARGUMENTS, quickly=True)
def wait_bulk_group(code: BlockCode) -> None:
    """The step that waits for groups: all but the latest take effect, or have their sources read."""
    block = code.block
    with code.when(block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    queue, operands = block.at(BlockRecord.pending), code.record("operands")
    with _each_thread(code, queue) as (lane, groups):
        last = groups.get(0) - operands.get(_KEPT)
        count = queue.get(PendingOperations.count)
        with code.loop(count) as number:  # from the last one on, since numbers of later ones change
            index = count - 1 - number
            operation = _operation(code, queue, index)
            group = operation.get(AsyncOperation.group)
            with code.when((group > 0) & ~(group > last) & _is_of(code, operation, lane)):
                staged = code.variable(code.constant(u32, 0))
                with code.when(operands.get(_READ).differs(0)):
                    staged.set(_staged(code, queue, operation))
                with code.when(staged.get().equals(0)):
                    code.stop_if(_complete_at(code, block, index).differs(0))


def _staged(code: BlockCode, queue: Record, operation: Record) -> Value:
    """Write code that saves the source of an operation; return 1, or 0 if there is no room."""
    done = code.variable(code.constant(u32, 0))
    size, used = operation.get(AsyncOperation.source_bytes), queue.get(PendingOperations.staged_bytes)
    with code.when(size.equals(0)):  # it is a copy already
        done.set(code.constant(u32, 1))
    with code.when(size.differs(0) & ~((used + size) > STAGE_BYTES)):
        place = queue.get(PendingOperations.stage) + used
        code.copy_bytes(place, operation.get(AsyncOperation.source), size)
        operation.set(AsyncOperation.source, place)
        operation.set(AsyncOperation.source_bytes, 0)
        operation.set(AsyncOperation.read_entry, code.block.get(BlockRecord.log_entry))
        queue.set(PendingOperations.staged_bytes, used + size)
        done.set(code.constant(u32, 1))
    return done.get()


# copies of cp.async -----------------------------------------------------------------------------------------


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
    code.copy_bytes(target, source, size)
    _tell(code, kept, 1)


def _tell(code: BlockCode, kept: Record, done: int) -> None:
    """Tell a trace, if there is one, that a copy is kept, or that it has taken effect."""
    hook = code.block.get(BlockRecord.kept_hook)
    with code.when(hook.differs(0)):
        code.invoke(hook, code.block.address, kept.address, code.number(done))


@shared_function("keep_copy", ("lane", "target", "source", "bytes"))
def keep_copy(code: BlockCode) -> None:
    """`keep_copy(frame, lane, target, source, bytes)`: a copy of a lane, given by host addresses."""
    copies = _copies_of(code, code["lane"])
    with code.when(drawn_at_once(code, code.block)):
        code.copy_bytes(code["target"], code["source"], code["bytes"])
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
        code.copy_bytes(to, start, code.number(KeptCopy.BYTES))
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
def finish_copies(code: BlockCode) -> None:
    """`finish_copies(frame, lane)`: all copies of a lane take effect, as an mbarrier tracks them."""
    copies = _copies_of(code, code["lane"])
    _carry_out_groups(code, copies, copies.get(ThreadCopies.groups) + 1)


@shared_function("commit_copies", STEP_ARGUMENTS)
def commit_copies(code: BlockCode) -> None:
    """The step of cp.async.commit_group: later copies of the thread belong to the next group."""
    with code.when(code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    with code.each_lane(code["active"].to(u32)) as lane:
        copies = _copies_of(code, lane)
        copies.set(ThreadCopies.groups, copies.get(ThreadCopies.groups) + 1)


@shared_function("wait_copies", STEP_ARGUMENTS)
def wait_copies(code: BlockCode) -> None:
    """The step of cp.async.wait_group and wait_all: copies of the thread take effect."""
    with code.when(code.block.get(BlockRecord.pending).equals(0)):
        code.give(0)
    with code.each_lane(code["active"].to(u32)) as lane:
        copies = _copies_of(code, lane)
        _carry_out_groups(code, copies, copies.get(ThreadCopies.groups) - code.record("operands").get(_KEPT))


def forget_copies(code: FunctionCode, block: Record) -> None:
    """Write that a block begins without pending copies."""
    table = block.at(BlockRecord.pending).get(PendingOperations.copies)
    with code.loop(block.at(BlockRecord.launch).get(LaunchRecord.warps) * abi.LANES) as thread:
        Record(code, table + thread * ThreadCopies.BYTES).set(ThreadCopies.count, 0)
