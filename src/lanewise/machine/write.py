"""A kernel as LLVM IR: a function for each block of code, and the table by which the scheduler finds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

from lanewise.arith import ir, machine_code
from lanewise.arith.simd import Value, i64
from lanewise.errors import LanewiseError
from lanewise.machine import (
    approximate,
    atomics,
    calls,
    compare,
    convert,
    copies,
    floating,
    frame,
    integer,
    logic,
    matrix,
    mbarrier,
    moves,
    observe,
    rows,
    signs,
    unassigned,
    video,
    warp,
    wmma,
)
from lanewise.machine.blocks import BARRIER_RESULT, CALL_RESULTS, Block, callees, entry_block, in_loops
from lanewise.machine.code import DIVERGED, TOGETHER, U32, BlockCode, call
from lanewise.machine.lanes import BOOL, PURE, Lanes
from lanewise.machine.outline import outlined
from lanewise.machine.resolve import Op, Pointed, Program, Register, Resolved, Several
from lanewise.machine.schedule import split, wait
from lanewise.ptx import Immediate

#: Nothing is to be done for these: memory is coherent, and hints are hints.
NOTHING = frozenset(
    ("membar", "fence", "prefetch", "prefetchu", "discard", "applypriority", "griddepcontrol", "nanosleep",
     "pmevent", "setmaxnreg", "brkpt")
)  # fmt: skip
WARP: dict[str, Callable[[BlockCode, Op], None]] = {
    "ld": moves.move, "ldu": moves.move, "st": moves.move, "atom": atomics.lower, "red": atomics.lower,
    "shfl": warp.shuffle, "vote": warp.vote, "match": warp.match, "redux": warp.reduce, "elect": warp.elect,
    "activemask": warp.activemask, BARRIER_RESULT: warp.barrier_result, "cp": copies.copy_async,
    "mbarrier": mbarrier.lower, "alloca": calls.stack, "stacksave": calls.stack,
    "stackrestore": calls.stack,
    "mma": matrix.multiply, "wmma": wmma.wmma, "ldmatrix": rows.load, "stmatrix": rows.store,
    "movmatrix": rows.transpose,
}  # fmt: skip
#: Instructions after which a long block of code goes on in another function, and functions in another module:
#: LLVM takes more than its share of time for long functions, and modules are compiled side by side.
PIECE, PART = 64, 200
ROOMS = (approximate, compare, convert, floating, integer, logic, signs, video)


def strip(often: bool) -> int:
    """Lanes done together: more than a vector has where code runs often, for two operations at a time."""
    return max(8, machine_code.lanes_of(32)) if often else machine_code.lanes_of(32)


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
        entry = entry_block(program, blocks)
        self.plan = unassigned.plan(blocks, entry) if checking else unassigned.Plan()
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
        written = [self.block(block) for block in self.blocks]
        self.table(name, written)
        self.finished(self.module)

    def code(self, name: str, length: int) -> BlockCode:
        """A function for so many instructions, in the module at hand or in a new one."""
        if self.length > PART:
            self.finished(self.module)
            self.module, self.length = ir.Module(), 0
        self.length += length
        code = BlockCode(self.module, name, linkage="")
        code.dynamic_offset, code.arch = self.program.dynamic_offset, self.arch
        code.program = self.program
        return code

    def table(self, name: str, written: list[list[Register]]) -> None:
        """For each block of code its function, and the registers that it writes in every lane."""
        module, rows = self.module, []
        for block, registers in zip(self.blocks, written, strict=True):
            numbers = [len(registers), *(n for each in registers for n in (each.offset, each.bits // 8))]
            kind = ir.ArrayType(ir.LONG, len(numbers))
            listed = ir.GlobalVariable(module, kind, f"registers_{block.number}")
            listed.initializer, listed.linkage = ir.Constant(kind, numbers), "internal"
            rows += [declared(module, f"block_{block.number}"), listed]
        kind = ir.ArrayType(ir.BYTES, len(rows))
        ir.GlobalVariable(module, kind, name).initializer = ir.Constant(kind, rows)

    def block(self, block: Block) -> list[Register]:
        """One block of code; returns the registers that it writes in every lane."""
        self.written: dict[Register, None] = {}
        self.often = block.number in self.loops
        pieces = pieces_of(block.ops)
        names = [f"block_{block.number}_{number}" for number in range(len(pieces))]
        if len(pieces) > 1:
            for name, ops in zip(names, pieces, strict=True):
                inner = self.code(name, len(ops))
                self.piece(inner, ops)
                inner.give(0)
        code = self.code(f"block_{block.number}", len(pieces[0]) if len(pieces) == 1 else 0)
        if self.checking:
            observe.block_begins(code, block, self.plan)
        if len(pieces) == 1:
            self.piece(code, pieces[0])
        else:
            for name in names:
                answer = call(code, declared(code.module, name), [code["frame"]])
                with code.when(answer.differs(0)):
                    code.give(answer)
        with blaming(block.op) if block.op is not None else nullcontext():
            self.end(code, block)
        return list(self.written)

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
                observe.before(code, op)
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
        inner = BlockCode(code.module, f"run_{ops[0].site}", ("start",))
        inner.dynamic_offset, inner.arch, inner.program = code.dynamic_offset, code.arch, code.program
        width = strip(self.often)
        lanes = Lanes(inner, inner.frame.handle, inner["start"], width)
        for op in ops:
            with blaming(op):
                lanes.guard = None
                if op.guard is not None:
                    register, negated = op.guard
                    holds = lanes.register(register)
                    lanes.guard = ~holds if negated else holds
                if not outlined(lanes, op):
                    PURE[op.opcode](lanes, op)
        here = Counter(register for op in ops for register in registers_of(op))

        def needless(register: Register) -> bool:
            return here[register] == self.uses[register]

        lanes.put_back(needless)
        self.written |= dict.fromkeys(lanes.stored(needless))
        inner.give(0)
        # Not a loop: LLVM would take its time to look for ways to count and for what to move out of it.
        for start in range(0, frame.LANES, width):
            call(code, inner.function, [code["frame"], start])

    # how a block ends ---------------------------------------------------------------------------------------

    def end(self, code: BlockCode, block: Block) -> None:
        """Where the lanes go."""
        following = block.following.number if block.following else -1
        op = block.op
        if self.checking:
            observe.block_ends(code, block, self.plan)
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
                        code, code.active(op), frame.EXITED, following, op.guard is not None, always=True
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
                lanes = code.constant(U32.by(frame.LANES), frame.PHASE)
                self.park(code, code.lanes_of(waits), following, lanes, lanes)
            case "host":
                active = code.active(op)
                bits = code.bits(active)
                code.set_pcs(code.mask_lanes(), following)
                with code.when(bits.differs(0)):
                    code.frame.set(frame.MASK, bits)
                    code.fault(frame.HOST_CALL, op.site, code.constant(i64, 0), code.constant(i64, 0), 0)
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
            self.branch(code, code.mask_lanes(), frame.EXITED, -1, False, always=True)
        else:
            self.back(code, block, code.mask_lanes(), -1)

    def back(self, code: BlockCode, block: Block, active: Value, following: int) -> None:
        """Some lanes return to where they were called from, the others go on."""
        if self.by_register:
            calls.returns(code, self.program, block.body, active)
        links = code.frame.get(block.body.link.offset, U32, frame.LANES)
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
        pcs = code.frame.pointer(frame.PCS, U32)
        pcs.store(taken.select(targets, pcs.load(0, frame.LANES)))
        code.give(DIVERGED)

    def switch(self, code: BlockCode, op: Op, block: Block) -> None:
        """brx.idx: by a lane's index into a list of labels."""
        active = code.active(op)
        lanes = Lanes(code, code.frame.handle, code.constant(i64, 0), frame.LANES)
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
        named = op.opcode in ("shfl", "vote", "match", "redux", "elect", "bar", "barrier")
        members = op.operands[-1] if named else Immediate("s64", (1 << 64) - 1, "-1")
        bits = code.bits(code.active(op))
        if isinstance(members, Immediate):
            with code.when((code.constant(U32, members.bits) & ~bits).equals(0)):
                code.give(following)
            code.give(
                call(code, wait(code.module), [code["frame"], bits, following, 0, members.bits & 0xFFFFFFFF])
            )
        else:
            assert isinstance(members, Register)
            code.give(call(code, wait(code.module), [code["frame"], bits, following, members.offset, 0]))

    def park(self, code: BlockCode, active: Value, following: int, which: Value, argument: Value) -> None:
        """Let lanes wait."""
        for offset, value in ((frame.BARRIER, which), (frame.BARRIER_ARGUMENT, argument)):
            place = code.frame.pointer(offset, U32)
            place.store(active.select(value, place.load(0, frame.LANES)))
        values: list[Value | int] = [code["frame"], code.bits(active), following | frame.PARKED, following]
        code.give(call(code, split(code.module), values))

    def together(self, code: BlockCode, active: Value, following: int, barrier: int) -> None:
        """A whole warp at a plain barrier: no lane has to be parked. A block of one warp just goes on."""
        with code.when(code.bits(active).equals(-1)):
            with code.when(code.block.at(frame.LAUNCH).get(frame.WARPS).equals(1)):
                code.give(following)
            if not self.checking:  # who is watched waits where the watch can see it
                number = following + 1 | barrier << frame.TOGETHER_BITS
                code.frame.set(frame.TOGETHER, code.constant(U32, number))
                code.give(TOGETHER)

    def barrier(self, code: BlockCode, op: Op, following: int) -> None:
        """bar and barrier: sync, arrive, red, warp.sync."""
        if op.has("warp"):
            self.sync(code, op, following)
            return
        operands = list(op.operands)
        active = code.active(op)
        if len(operands) < 2 and not op.has("arrive"):
            given = operands[0] if operands else Immediate("s64", 0, "0")
            if isinstance(given, Immediate) and given.bits < 16:
                self.together(code, active, following, given.bits)
        lanes = Lanes(code, code.frame.handle, code.constant(i64, 0), frame.LANES)
        if op.has("red"):
            predicate = lanes.read(operands.pop(), BOOL)
            operands.pop(0)
            place = code.frame.pointer(frame.BARRIER_VALUE, U32)
            place.store(active.select(predicate.to(U32), place.load(0, frame.LANES)))
        which = lanes.read(operands[0], U32) if operands else lanes.constant(U32, 0)
        count = lanes.read(operands[1], U32) if len(operands) > 1 else lanes.constant(U32, 0)
        wrong = code.bits(active & (which > 15))
        with code.when(wrong.differs(0)):
            first = code.intrinsic("cttz", U32, [wrong, code.constant(BOOL, 0)])
            code.fault(8, op.site, first.to(i64), code.constant(i64, 0), 0)
        if op.has("arrive"):
            block = code.block
            gone = code.bits(code.frame.get(frame.PCS, U32, frame.LANES).equals(frame.EXITED))
            with code.each_lane(code.bits(active)) as lane:
                number = Value(code, U32, code.builder.extract_element(which.handle, lane.handle))
                place_of = number.to(i64) * 8 + frame.ARRIVED
                block.set(place_of, block.get(place_of) + 1)
            with code.when(code.bits(active).differs(0)):
                number = which.lane(0).to(i64) * 8 + frame.ARRIVED
                dead = code.intrinsic("ctpop", U32, [gone])
                block.set(number, block.get(number) + dead.to(i64))
            code.give(following)
            return
        self.park(code, active, following, which, count)
