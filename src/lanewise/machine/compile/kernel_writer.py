"""A kernel as LLVM IR: functions for what blocks of code do, their scripts, and the table of them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

from lanewise.errors import LanewiseError
from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.analysis import definite_assignment
from lanewise.machine.arithmetic import (
    approximate,
    bits,
    compare,
    convert,
    float_bits,
    floating,
    integer,
    video,
)
from lanewise.machine.codegen import instrumentation, threaded_code
from lanewise.machine.codegen.function_code import DIVERGED, U32, BlockCode, call
from lanewise.machine.codegen.lane_vectors import BOOL, PURE, Lanes
from lanewise.machine.codegen.outlined_ops import outlined
from lanewise.machine.codegen.scheduler import split, wait
from lanewise.machine.program.basic_blocks import (
    BARRIER_RESULT,
    CALL_RESULTS,
    Block,
    callees,
    entry_block,
    guarded_moves,
    in_loops,
    past_waits,
)
from lanewise.machine.program.resolve import Op, Pointed, Program, Register, Resolved, Several
from lanewise.machine.tensor_core import mma
from lanewise.machine.warp_ops import (
    atomics,
    calls,
    cp_async,
    exchange,
    ldmatrix,
    load_store,
    mbarrier,
    wmma_tiles,
)
from lanewise.ptx import Immediate

#: Nothing is to be done for these: memory is coherent, and hints are hints.
NOTHING = frozenset(
    ("membar", "fence", "prefetch", "prefetchu", "discard", "applypriority", "griddepcontrol", "nanosleep",
     "pmevent", "setmaxnreg", "brkpt")
)  # fmt: skip
WARP: dict[str, Callable[[BlockCode, Op], None]] = {
    "ld": load_store.move, "ldu": load_store.move, "st": load_store.move, "atom": atomics.lower,
    "red": atomics.lower, "shfl": exchange.shuffle, "vote": exchange.vote, "match": exchange.match,
    "redux": exchange.reduce, "elect": exchange.elect,
    "activemask": exchange.activemask, BARRIER_RESULT: exchange.barrier_result, "cp": cp_async.copy_async,
    "mbarrier": mbarrier.lower, "alloca": calls.stack, "stacksave": calls.stack,
    "stackrestore": calls.stack,
    "mma": mma.multiply, "wmma": wmma_tiles.wmma, "ldmatrix": ldmatrix.move, "stmatrix": ldmatrix.move,
    "movmatrix": ldmatrix.transpose,
}  # fmt: skip
#: Instructions after which a long block of code goes on in another function, and functions in another module:
#: LLVM takes more than its share of time for long functions, and modules are compiled side by side.
PIECE, PART = 64, 200
ROOMS = (approximate, compare, convert, floating, integer, bits, float_bits, video)


@contextmanager
def blaming(op: Op) -> Iterator[None]:
    """Let no operand of an instruction end in anything but a complaint that names it, with its line.

    PTX may combine modifiers and operands in ways that nobody thought of. What the code of an opcode trips
    over is a form it does not know; the error itself stays attached as the cause.
    """
    try:
        yield
    except LanewiseError:
        raise
    except Exception as error:
        raise op.unsupported(f"this form is not known ({type(error).__name__}: {error})") from error


def supported(op: Op) -> bool:
    """Whether something writes code for an opcode."""
    return op.opcode in PURE or op.opcode in WARP or op.opcode in NOTHING or op.opcode == CALL_RESULTS


def registers_in(operands: Iterable[Resolved]) -> Iterable[Register]:
    """Every register among operands."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand
        elif isinstance(operand, Several):
            yield from registers_in(operand.elements)
        else:
            for part in ("operand", "base", "register"):
                if (inner := getattr(operand, part, None)) is not None:
                    yield from registers_in((inner,))


def registers_of(op: Op) -> list[Register]:
    """Every register that an instruction has to do with."""
    guard = [op.guard[0]] if op.guard else []
    return [*registers_in(op.operands), *guard]


def pieces_of(ops: list[Op]) -> list[list[Op]]:
    """The instructions of a block of code in pieces, cut between runs of lanes' own where that may be."""
    pieces: list[list[Op]] = [[]]
    for op in ops:
        length = len(pieces[-1])
        if length >= 4 * PIECE or (length >= PIECE and op.opcode not in PURE):
            pieces.append([])
        pieces[-1].append(op)
    return pieces


def members_of(op: Op) -> tuple[int, int]:
    """The lanes that an instruction waits for: the place of a register (0: none), or else their bits."""
    if op.opcode not in ("shfl", "vote", "match", "redux", "elect", "bar", "barrier"):
        return 0, 0xFFFFFFFF
    members = op.operands[-1]
    if isinstance(members, Immediate):
        return 0, members.bits & 0xFFFFFFFF
    assert isinstance(members, Register)
    return members.offset, 0


def plain_barrier(op: Op) -> int | None:
    """The number of a barrier that all threads of the block wait at; None if it is another, or not known."""
    if len(op.operands) > 1 or op.has("arrive") or op.has("red"):
        return None
    given = op.operands[0] if op.operands else Immediate("s64", 0, "0")
    return given.bits if isinstance(given, Immediate) and given.bits < 16 else None


def declared(module: ir.Module, name: str) -> ir.Function:
    """The function of a block of code, or of a piece of one, wherever it is."""
    existing: ir.Function | None = module.globals.get(name)
    return existing or ir.Function(module, ir.FunctionType(ir.WORD, [ir.LONG]), name)


class Writer:
    """Writes the IR of a program."""

    def __init__(
        self,
        program: Program,
        blocks: list[Block],
        arch: str,
        checking: bool,
        finished: Callable[[ir.Module], None],
    ) -> None:
        self.program, self.blocks, self.arch, self.checking = program, blocks, arch, checking
        #: What is done with a module that is written to its end.
        self.finished = finished
        #: The module at hand, and how many instructions it has.
        self.module, self.length = ir.Module(), 0
        #: The module of the table and of what blocks of code have as data.
        self.data, self.words = ir.Module(), list[threaded_code.Word]()
        entry = entry_block(program, blocks)
        self.plan = definite_assignment.plan(blocks, entry) if checking else definite_assignment.Plan()
        self.by_register = any(
            isinstance(block.op.operands[1], Pointed)
            for block in self.blocks
            if block.end == "call" and block.op
        )
        self.loops = in_loops(blocks)
        self.uses = Counter(
            register
            for block in self.blocks
            for op in [*block.ops, *([block.op] if block.op else [])]
            for register in registers_of(op)
        )

    def check(self) -> None:
        """Complain of the first instruction that nothing here can run."""
        for block in self.blocks:
            for op in block.ops:
                if not supported(op):
                    raise op.unsupported()

    def write(self, name: str) -> None:
        """The IR, in modules to be compiled each for itself; `name` is the table of blocks of code."""
        self.check()
        rows = [row for block in self.blocks for row in self.block(block)]
        self.finished(self.module)
        words = threaded_code.data(self.data, "words", self.words)
        kind = ir.ArrayType(ir.BYTES, len(rows))
        texts = [
            each
            if isinstance(each, ir.Operand)
            else ir.Operand(ir.BYTES, f"getelementptr (i8, ptr {words.text}, i64 {each})")
            for each in rows
        ]
        ir.GlobalVariable(self.data, kind, name).initializer = ir.Constant(kind, texts)
        self.finished(self.data)

    def code(self, name: str, length: int, more: tuple[str, ...] = ()) -> BlockCode:
        """A function for so many instructions, in the module at hand or in a new one."""
        if self.length > PART:
            self.finished(self.module)
            self.module, self.length = ir.Module(), 0
        self.length += length
        code = BlockCode(self.module, name, more, linkage="")
        code.dynamic_offset, code.arch = self.program.dynamic_offset, self.arch
        code.program = self.program
        return code

    def put(self, words: list[threaded_code.Word]) -> int:
        """Add words to the data; returns where they begin."""
        place = 8 * len(self.words)
        self.words += words
        return place

    def block(self, block: Block) -> list[ir.Operand | int]:
        """One block of code; returns its row of the table, with places in the data."""
        self.written: dict[Register, None] = {}
        self.often = block.number in self.loops
        if self.checking:
            function, steps = self.whole(block), 0
        else:
            function, steps = ir.Operand(ir.BYTES, "null"), self.put(self.steps_of(block))
        registers = [n for each in self.written for n in (each.offset, each.bits // 8)]
        return [function, self.put([len(self.written), *registers]), steps]

    def steps_of(self, block: Block) -> list[threaded_code.Word]:
        """A block of code as steps: runs of lanes' own instructions, moves, and functions for all others."""
        steps: list[threaded_code.Word] = []
        run: list[Op] = []
        others: list[Op] = []

        def flush() -> None:
            nonlocal steps
            if run:
                inner = self.run_function(self.code, run)
                steps += threaded_code.run_step(
                    self.declared(inner.function), threaded_code.strip(self.often)
                )
            elif others:
                code = self.code(f"piece_{others[0].site}", len(others), ("active", "words"))
                self.piece(code, others)
                code.give(0)
                steps += threaded_code.step(self.declared(code.function), None, [])
            run.clear()
            others.clear()

        for op in [*block.ops, *guarded_moves(block)]:
            if self.is_pure(op):
                if others or len(run) >= 4 * PIECE:
                    flush()
                run.append(op)
            elif op.opcode not in NOTHING:
                with blaming(op):
                    found = self.shared_step(op)
                if found is not None:
                    flush()
                    steps += threaded_code.step(found[0], op, found[1])
                    continue
                if run or len(others) >= PIECE:
                    flush()
                others.append(op)
        flush()
        return steps + self.script_end(block)

    def shared_step(self, op: Op) -> threaded_code.Step | None:
        """An instruction as a step that all kernels share, if it is such."""
        match op.opcode:
            case "ld" | "ldu" | "st":
                return load_store.move_step(self.data, op)
            case "mma":
                return mma.multiply_step(self.data, op, self.arch)
            case "ldmatrix" | "stmatrix":
                return ldmatrix.rows_step(self.data, op, self.program.dynamic_offset)
            case "cp":
                return cp_async.copy_step(self.data, op)
        return None

    def declared(self, function: ir.Function) -> ir.Function:
        """A function of another module, to be named in the data."""
        existing: ir.Function | None = self.data.globals.get(function.name)
        return existing or ir.Function(self.data, function.function_type, function.name)

    def script_end(self, block: Block) -> list[threaded_code.Word]:
        """How a block of code ends: by a function that all kernels share where there is one."""
        following = block.following.number if block.following else -1
        op, data = block.op, self.data
        leaves = block.body.function.is_entry
        if op is None or block.end == "none":
            if following >= 0:
                return threaded_code.on_to(following)
            if leaves:
                return threaded_code.ending(threaded_code.exit_end(data), [0, 0, -1])
        elif block.end == "jump":
            target = block.targets[0].number
            if op.guard is None or guarded_moves(block):
                return threaded_code.on_to(target)
            words = [*threaded_code.guard_words(op), target, following]
            return threaded_code.ending(threaded_code.branch_end(data), words)
        elif block.end == "exit" or (block.end == "ret" and leaves):
            return threaded_code.ending(
                threaded_code.exit_end(data), [*threaded_code.guard_words(op), following]
            )
        elif block.end == "sync" or (block.end == "barrier" and op.has("warp")):
            with blaming(op):
                words = [*threaded_code.guard_words(op), following, *members_of(op)]
                return threaded_code.ending(threaded_code.wait_end(data), words)
        elif block.end == "barrier" and (number := plain_barrier(op)) is not None:
            past = past_waits(block.following).number if block.following else following
            words = [*threaded_code.guard_words(op), following, number, past]
            return threaded_code.ending(threaded_code.barrier_end(data), words)
        code = self.code(f"end_{block.number}", 1, ("words",))
        with blaming(op) if op is not None else nullcontext():
            self.end(code, block)
        return threaded_code.ending(self.declared(code.function), [])

    def whole(self, block: Block) -> ir.Operand:
        """A block of code as one function, with what checks add to it."""
        pieces = pieces_of(block.ops)
        names = [f"block_{block.number}_{number}" for number in range(len(pieces))]
        if len(pieces) > 1:
            for name, ops in zip(names, pieces, strict=True):
                inner = self.code(name, len(ops))
                self.piece(inner, ops)
                inner.give(0)
        code = self.code(f"block_{block.number}", len(pieces[0]) if len(pieces) == 1 else 0)
        instrumentation.block_begins(code, block, self.plan)
        if len(pieces) == 1:
            self.piece(code, pieces[0])
        else:
            for name in names:
                answer = call(code, declared(code.module, name), [code["frame"]])
                with code.when(answer.differs(0)):
                    code.give(answer)
        with blaming(block.op) if block.op is not None else nullcontext():
            self.end(code, block)
        return self.declared(code.function)

    def is_pure(self, op: Op) -> bool:
        """Whether an instruction is each lane's own business."""
        if op.opcode in PURE:
            return True
        if self.checking or op.opcode != "ld":
            return False
        with blaming(op):
            return load_store.parameter_of(op, self.program.parameter_bytes) is not None

    def piece(self, code: BlockCode, ops: list[Op]) -> None:
        """Instructions one after the other."""
        run: list[Op] = []
        for op in ops:
            if op.opcode in PURE:
                run.append(op)
                continue
            self.run(code, run)
            run = []
            if self.checking:
                instrumentation.before(code, op)
            with blaming(op):
                if op.opcode == CALL_RESULTS:
                    calls.results(code, op, self.program)
                elif op.opcode not in NOTHING:
                    WARP[op.opcode](code, op)
        self.run(code, run)

    def run(self, code: BlockCode, ops: list[Op]) -> None:
        """Instructions of lanes' own: a function that does them for some lanes, called for all of them."""
        if not ops:
            return
        inner = self.run_function(lambda name, _, more: self.inside(code, name, more), ops)
        # Not a loop: LLVM would take its time to look for ways to count and for what to move out of it.
        for start in range(0, abi.LANES, threaded_code.strip(self.often)):
            call(code, inner.function, [code["frame"], start])

    def inside(self, code: BlockCode, name: str, more: tuple[str, ...]) -> BlockCode:
        """A function in the module of another."""
        inner = BlockCode(code.module, name, more)
        inner.dynamic_offset, inner.arch, inner.program = code.dynamic_offset, code.arch, code.program
        return inner

    def run_function(
        self, begin: Callable[[str, int, tuple[str, ...]], BlockCode], ops: list[Op]
    ) -> BlockCode:
        """`run(frame, start)`: instructions of lanes' own for the lanes from `start` on."""
        inner = begin(f"run_{ops[0].site}", len(ops), ("start",))
        lanes = Lanes(inner, inner.frame.handle, inner["start"], threaded_code.strip(self.often))
        for op in ops:
            with blaming(op):
                lanes.guard = None
                if op.guard is not None:
                    register, negated = op.guard
                    holds = lanes.register(register)
                    lanes.guard = ~holds if negated else holds
                if op.opcode not in PURE:
                    load_store.load_parameter(lanes, op, self.program.parameter_bytes)
                elif not outlined(lanes, op):
                    PURE[op.opcode](lanes, op)
        here = Counter(register for op in ops for register in registers_of(op))

        def needless(register: Register) -> bool:
            return here[register] == self.uses[register]

        lanes.put_back(needless)
        self.written |= dict.fromkeys(lanes.stored(needless))
        inner.give(0)
        return inner

    # how a block ends ---------------------------------------------------------------------------------------

    def end(self, code: BlockCode, block: Block) -> None:
        """Where the lanes go."""
        following = block.following.number if block.following else -1
        op = block.op
        if self.checking:
            instrumentation.block_ends(code, block, self.plan)
        if block.end == "none" or op is None:
            self.leave(code, block) if following < 0 else code.give(following)
            return
        match block.end:
            case "jump":
                self.branch(code, code.active(op), block.targets[0].number, following, op.guard is not None)
            case "switch":
                self.switch(code, op, block)
            case "ret" | "exit":
                if block.end == "ret" and not block.body.function.is_entry:
                    self.back(code, block, code.active(op), following)
                else:
                    self.branch(
                        code, code.active(op), abi.EXITED, following, op.guard is not None, always=True
                    )
            case "call":
                numbers = [target.number for target in block.targets]
                if isinstance(op.operands[1], Pointed):
                    self.scatter(code, op, -1, calls.choose(code, op, self.program, numbers, following))
                    return
                callee = self.program.body(callees(op)[0])
                calls.enter(code, op, self.program, callee, code.bits(code.active(op)), following)
                # Lanes that do not call still take no results: the pseudo-instruction has the same guard.
                self.branch(code, code.active(op), numbers[0], following, op.guard is not None)
            case "sync":
                self.sync(code, op, following)
            case "barrier":
                self.barrier(code, op, following)
            case "phase":
                waits = mbarrier.unfinished(code, op)
                with code.when(waits.equals(0)):
                    code.give(following)
                lanes = code.constant(U32.by(abi.LANES), abi.PHASE)
                self.park(code, code.lanes_of(waits), following, lanes, lanes)
            case "host":
                active = code.active(op)
                bits = code.bits(active)
                code.set_pcs(code.mask_lanes(), following)
                with code.when(bits.differs(0)):
                    code.frame.set(abi.MASK, bits)
                    code.fault(abi.HOST_CALL, op.site, code.constant(i64, 0), code.constant(i64, 0), 0)
                code.give(DIVERGED)
            case _:
                bits = code.bits(code.active(op))
                with code.when(bits.differs(0)):
                    first = code.intrinsic("cttz", U32, [bits, code.constant(BOOL, 0)])
                    code.fault(4, op.site, first.to(i64), code.constant(i64, 0), 0)
                code.give(max(following, 0))

    def leave(self, code: BlockCode, block: Block) -> None:
        """The end of the text is a return."""
        if block.body.function.is_entry:
            self.branch(code, code.mask_lanes(), abi.EXITED, -1, False, always=True)
        else:
            self.back(code, block, code.mask_lanes(), -1)

    def back(self, code: BlockCode, block: Block, active: Value, following: int) -> None:
        """Some lanes return to where they were called from, the others go on."""
        if self.by_register:
            calls.returns(code, self.program, block.body, active)
        links = code.frame.get(block.body.link.offset, U32, abi.LANES)
        self.scatter_lanes(code, active, links, following)

    def branch(
        self, code: BlockCode, taken: Value, target: int, following: int, guarded: bool, always: bool = False
    ) -> None:
        """Some lanes to a target, the others on; without storing pcs if all go one way."""
        if not guarded and not always:
            code.give(target)
            return
        bits = code.bits(taken)
        if guarded:
            with code.when(bits.equals(0)):
                code.give(following)
        if not always:
            with code.when(bits.equals(code.mask_bits())):
                code.give(target)
        answer = call(code, split(code.module), [code["frame"], bits, target, following])
        code.give(answer)

    def scatter(self, code: BlockCode, op: Op, following: int, targets: Value) -> None:
        """Every lane to a block of its own."""
        self.scatter_lanes(code, code.active(op), targets, following)

    def scatter_lanes(self, code: BlockCode, taken: Value, targets: Value, following: int) -> None:
        """Some lanes to blocks of their own, the others on."""
        if following >= 0:
            code.set_pcs(code.mask_lanes(), following)
        pcs = code.frame.pointer(abi.PCS, U32)
        pcs.store(taken.select(targets, pcs.load(0, abi.LANES)))
        code.give(DIVERGED)

    def switch(self, code: BlockCode, op: Op, block: Block) -> None:
        """brx.idx: by a lane's index into a list of labels."""
        active = code.active(op)
        lanes = Lanes(code, code.frame.handle, code.constant(i64, 0), abi.LANES)
        index = lanes.read(op.operands[0], U32)
        outside = code.bits(active & (index > len(block.targets) - 1))
        with code.when(outside.differs(0)):
            first = code.intrinsic("cttz", U32, [outside, code.constant(BOOL, 0)])
            code.fault(7, op.site, first.to(i64), code.constant(i64, len(block.targets)), 0)
        targets = lanes.constant(U32, 0)
        for place, target in enumerate(block.targets):
            targets = index.equals(place).select(lanes.constant(U32, target.number), targets)
        following = block.following.number if block.following and op.guard else -1
        self.scatter_lanes(code, active, targets, following)

    def sync(self, code: BlockCode, op: Op, following: int) -> None:
        """Wait for the lanes that an instruction names, unless they are all here."""
        register, members = members_of(op)
        bits = code.bits(code.active(op))
        if register == 0:
            with code.when((code.constant(U32, members) & ~bits).equals(0)):
                code.give(following)
        code.give(call(code, wait(code.module), [code["frame"], bits, following, register, members]))

    def park(self, code: BlockCode, active: Value, following: int, which: Value, argument: Value) -> None:
        """Let lanes wait."""
        for offset, value in ((abi.BARRIER, which), (abi.BARRIER_ARGUMENT, argument)):
            place = code.frame.pointer(offset, U32)
            place.store(active.select(value, place.load(0, abi.LANES)))
        values: list[Value | int] = [code["frame"], code.bits(active), following | abi.PARKED, following]
        code.give(call(code, split(code.module), values))

    def barrier(self, code: BlockCode, op: Op, following: int) -> None:
        """bar and barrier: sync, arrive, red, warp.sync."""
        if op.has("warp"):
            self.sync(code, op, following)
            return
        operands = list(op.operands)
        active = code.active(op)
        if plain_barrier(op) is not None:
            # A block of one warp just goes on. Otherwise who is watched waits where the watch can see it.
            alone = code.block.at(abi.LAUNCH).get(abi.WARPS).equals(1)
            with code.when(code.bits(active).equals(-1) & alone):
                code.give(following)
        lanes = Lanes(code, code.frame.handle, code.constant(i64, 0), abi.LANES)
        if op.has("red"):
            predicate = lanes.read(operands.pop(), BOOL)
            operands.pop(0)
            place = code.frame.pointer(abi.BARRIER_VALUE, U32)
            place.store(active.select(predicate.to(U32), place.load(0, abi.LANES)))
        which = lanes.read(operands[0], U32) if operands else lanes.constant(U32, 0)
        count = lanes.read(operands[1], U32) if len(operands) > 1 else lanes.constant(U32, 0)
        wrong = code.bits(active & (which > 15))
        with code.when(wrong.differs(0)):
            first = code.intrinsic("cttz", U32, [wrong, code.constant(BOOL, 0)])
            code.fault(8, op.site, first.to(i64), code.constant(i64, 0), 0)
        if op.has("arrive"):
            block = code.block
            gone = code.bits(code.frame.get(abi.PCS, U32, abi.LANES).equals(abi.EXITED))
            with code.each_lane(code.bits(active)) as lane:
                number = Value(code, U32, code.builder.extract_element(which.handle, lane.handle))
                place_of = number.to(i64) * 8 + abi.ARRIVED
                block.set(place_of, block.get(place_of) + 1)
            with code.when(code.bits(active).differs(0)):
                number = which.lane(0).to(i64) * 8 + abi.ARRIVED
                dead = code.intrinsic("ctpop", U32, [gone])
                block.set(number, block.get(number) + dead.to(i64))
            code.give(following)
            return
        self.park(code, active, following, which, count)
