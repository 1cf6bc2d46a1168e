"""Registers: those that a path may leave without a value, those of wgmma, and how many a warp has.

The steps that follow single registers have a list of operands. Its first number is how many registers are
followed, and registers are named by their index among them.

A block has as many registers as its threads began with. A warpgroup that takes more by setmaxnreg waits until
others have given some up; so what the warps have at last must fit.
"""

from lanewise.jit.lane_functions import address_of, choose, lanes_in, lowest_bit, mask_of
from lanewise.jit.record_layout import RecordLayout, field
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.analysis.register_pool import IGNORED, STEP
from lanewise.machine.analysis.warpgroup_registers import Touch
from lanewise.machine.checker.proxy_records import AsyncClock, RegisterState
from lanewise.machine.checker.records import BlockWatch, OrderKind, RegisterValue
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.clusters import lanes_with_block
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    frame_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_clock, first_of_group
from lanewise.machine.checker.watch_code.watch_module import EVERY_LANE, LANES, LaneBytes, words_of
from lanewise.machine.program.instruction_table import MOST_ROWS


class StepOperands(RecordLayout):
    """The operands of a step, as many as the first ones say."""

    numbers = field(8, 2)


# values -----------------------------------------------------------------------------------------------------


@inlined
def value_of(frame: WarpFrame, operands: StepOperands, register: int) -> RegisterValue:
    """Return what is known of the value of a register in a warp."""
    number = frame.index * operands.numbers[0] + register
    return RegisterValue.at(watch_of(frame.block).assigned + number * RegisterValue.BYTES)


@inlined
def lanes_with_value(frame: WarpFrame, operands: StepOperands, register: int) -> int:
    """Return the lanes in which a register has a value: in all, if it is -1."""
    if register < 0:
        return EVERY_LANE
    return value_of(frame, operands, register).lanes


@inlined
def assign(value: RegisterValue, active: int, held: int) -> None:
    """Let a register have a value in those of the active lanes that hold one, and in no other of these."""
    value.lanes = (value.lanes & ~active) | (held & active)


@inlined
def assign_from(
    frame: WarpFrame, operands: StepOperands, target: int, active: int, held: int, lacking: int, row: int
) -> None:
    """Assign, and note for want of which register's value the others of the active lanes have none.

    The row is one more than that of an instruction that computes, and 0 if it is none.
    """
    value = value_of(frame, operands, target)
    assign(value, active, held)
    if active & ~held == 0:
        return
    source = value_of(frame, operands, lacking)
    if (source.row == 0) & (row != 0):
        value.register = lacking + 1
        value.row = row
    else:
        value.register = source.register
        value.row = source.row


@inlined
def assign_delivered(frame: WarpFrame, operands: StepOperands, target: int, active: int, held: int) -> None:
    """Assign what was not computed: a finding names the target itself."""
    value = value_of(frame, operands, target)
    assign(value, active, held)
    if active & ~held != 0:
        value.row = 0


@inlined
def lanes_where(frame: WarpFrame, predicate: int) -> int:
    """Return the lanes in which a predicate holds, given by its offset in the frame."""
    return mask_of(LaneBytes.at(address_of(frame) + predicate).bytes != 0)


@inlined
def report_without_value(
    frame: WarpFrame, operands: StepOperands, row: int, lanes: int, register: int
) -> None:
    """Report lanes that use a register without a value, or the one that it was first computed from."""
    origin, value = watch_of(frame.block).undelivered_by, value_of(frame, operands, register)
    first = register if value.row == 0 else value.register - 1
    suspect(Suspicion.NO_VALUE, frame, row, lowest_bit(lanes), first, origin, value.row)


@compiled()
def clear_values(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """A function begins: registers have no value. Operands: their count, and they."""
    for number in range(operands.numbers[1]):
        assign_delivered(frame, operands, operands.numbers[2 + number], active, 0)


@compiled()
def check_value(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """Lanes are about to use a register. Operands: row, register."""
    register = operands.numbers[2]
    missing = active & ~value_of(frame, operands, register).lanes
    if missing != 0:
        report_without_value(frame, operands, operands.numbers[1], missing, register)


@compiled()
def check_values_where(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """Lanes for which a predicate holds are about to use registers: the first without a value is reported.

    Operands: row, the predicate's offset, the count of registers, and they.
    """
    lanes = active & lanes_where(frame, operands.numbers[2])
    if lanes == 0:
        return
    for number in range(operands.numbers[3]):
        register = operands.numbers[4 + number]
        missing = lanes & ~value_of(frame, operands, register).lanes
        if missing != 0:
            report_without_value(frame, operands, operands.numbers[1], missing, register)
            return


@compiled()
def note_values(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """Targets have a value if sources do. Operands: row, targets and sources, each with their count."""
    count, held, lacking = operands.numbers[2], active, -1
    for number in range(operands.numbers[3 + count]):
        register = operands.numbers[4 + count + number]
        held &= value_of(frame, operands, register).lanes
        if (lacking < 0) & (held != active):
            lacking = register
    for number in range(count):
        assign_from(frame, operands, operands.numbers[3 + number], active, held, lacking, operands.numbers[1])


@compiled()
def choose_value(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """A predicate chooses one of two sources. Operands: target, both sources, the predicate, its offset."""
    first, second, predicate = operands.numbers[2], operands.numbers[3], operands.numbers[4]
    holds, known = lanes_where(frame, operands.numbers[5]), lanes_with_value(frame, operands, predicate)
    given = lanes_with_value(frame, operands, first)
    held = known & ((holds & given) | (~holds & lanes_with_value(frame, operands, second)))
    lacking = second
    if active & ~known != 0:
        lacking = predicate
    elif active & holds & ~given != 0:
        lacking = first
    assign_from(frame, operands, operands.numbers[1], active, held, lacking, 0)


@compiled()
def combine_values(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """Predicates, and perhaps a comparison, are combined by `and` or `or`: one that decides is enough.

    Operands: row, targets, sources of the comparison, predicates; each with their count. A predicate is its
    index, its offset, and whether it decides where it holds.
    """
    count, held, lacking, decided = operands.numbers[2], active, -1, 0
    sources = 3 + count
    predicates = sources + 1 + operands.numbers[sources]
    for number in range(operands.numbers[sources]):
        register = operands.numbers[sources + 1 + number]
        held &= value_of(frame, operands, register).lanes
        if (lacking < 0) & (held != active):
            lacking = register
    for number in range(operands.numbers[predicates]):
        first = predicates + 1 + 3 * number
        register, holds = operands.numbers[first], lanes_where(frame, operands.numbers[first + 1])
        known = lanes_with_value(frame, operands, register)
        held &= known
        if (lacking < 0) & (held != active):
            lacking = register
        decided |= known & (holds if operands.numbers[first + 2] != 0 else ~holds)
    for number in range(count):
        target = operands.numbers[3 + number]
        assign_from(frame, operands, target, active, held | decided, lacking, operands.numbers[1])


@compiled()
def let_comparison_decide(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """A comparison is about to be combined with a predicate, which gets a value that does not decide.

    That is in lanes in which it has none. Operands: the predicate, its offset, whether it decides where it
    holds.
    """
    missing = active & ~lanes_with_value(frame, operands, operands.numbers[1])
    watch_of(frame.block).undecided = missing
    if missing == 0:
        return
    predicate = LaneBytes.at(address_of(frame) + operands.numbers[2])
    predicate.bytes = choose(lanes_in(missing), 0 if operands.numbers[3] != 0 else 1, predicate.bytes)


@compiled()
def settle_values(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """A comparison has been combined with a predicate: its results have a value where it decided.

    Operands: the result of a comparison that decides, sources, targets; each with their count. A target is
    its index and its offset.
    """
    held, targets = watch_of(frame.block).undecided, 3 + operands.numbers[2]
    for number in range(operands.numbers[2]):
        held &= value_of(frame, operands, operands.numbers[3 + number]).lanes
    for number in range(operands.numbers[targets]):
        value = value_of(frame, operands, operands.numbers[targets + 1 + 2 * number])
        holds = lanes_where(frame, operands.numbers[targets + 2 + 2 * number])
        value.lanes |= held & (holds if operands.numbers[1] != 0 else ~holds)


@inlined
def note_delivered(frame: WarpFrame, active: int, operands: StepOperands, held: int) -> None:
    """Targets have a value in lanes that hold one. Operands: row, another one, targets with their count."""
    if active & ~held != 0:
        watch_of(frame.block).undelivered_by = operands.numbers[1]
    for number in range(operands.numbers[3]):
        assign_delivered(frame, operands, operands.numbers[4 + number], active, held)


@compiled()
def note_shuffled(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """A shuffle reads a register of other lanes. Operands: row, that register, targets with their count."""
    there = lanes_with_value(frame, operands, operands.numbers[2])
    sources = watch_of(frame.block).shuffle_sources
    has_value = (words_of(there) >> (sources & (LANES - 1))) & 1 != 0
    note_delivered(frame, active, operands, mask_of(has_value & (sources < LANES)))


@compiled()
def note_decoded(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """An answer of cluster launch control is decoded. Operands: row, its offset, targets with their count."""
    note_delivered(frame, active, operands, lanes_with_block(frame, operands.numbers[2], active))


@compiled()
def note_loaded(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """Registers are loaded from local memory. Operands: row, count, pairs of a target and its element."""
    watch = watch_of(frame.block)
    for number in range(operands.numbers[2]):
        target, element = operands.numbers[3 + 2 * number], operands.numbers[4 + 2 * number]
        unwritten = watch.unwritten_lanes[element]
        if active & unwritten != 0:
            watch.undelivered_by = operands.numbers[1]
        assign_delivered(frame, operands, target, active, ~unwritten)


# registers of wgmma -----------------------------------------------------------------------------------------

#: Words of a RegisterEvent among the operands.
EVENT_WORDS = 4


@inlined
def state_of(frame: WarpFrame, operands: StepOperands, register: int) -> RegisterState:
    """Return the state of a register in a warp."""
    number = frame.index * operands.numbers[0] + register
    return RegisterState.at(watch_of(frame.block).register_states + number * RegisterState.BYTES)


@compiled()
def suspect_register(frame: WarpFrame, kind: int, site: int, register: int, other: int) -> None:
    """Report a register of wgmma: in flight, not fenced, or of an instruction without wgmma.fence."""
    watch_of_running(frame)
    suspect(kind, frame, site * MOST_ROWS, 0, register, other, 0)


@inlined
def copy_state(state: RegisterState, origin: RegisterState) -> None:
    """Take a copy of a register for the register itself."""
    state.group = origin.group
    state.read_group = origin.read_group
    state.product = origin.product
    state.shape = origin.shape
    state.written = origin.written
    state.writer = origin.writer


@compiled()
def touch_registers(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """Instructions touch registers of wgmma. Operands: the count of events, and they: RegisterEvents."""
    clock = async_clock(watch_of(frame.block), frame.index)
    clock.sums = 0
    if active == 0:
        return
    for number in range(operands.numbers[1]):
        event = 2 + EVENT_WORDS * number
        touch, register = operands.numbers[event], operands.numbers[event + 1]
        source, site = operands.numbers[event + 2], operands.numbers[event + 3]
        state = state_of(frame, operands, register)
        is_read = state.read_group > clock.wgmma_done
        if touch == Touch.COPIED:
            origin = state_of(frame, operands, source)
            # Another value than the one that a wgmma in flight reads from there.
            differs = (origin.written != state.written) | (origin.writer != state.writer)
            if is_read & differs:
                suspect_register(frame, Suspicion.REGISTER_IN_FLIGHT, site, register, state.product)
            copy_state(state, origin)
        else:
            writes = touch != Touch.READ
            if (state.group > clock.wgmma_done) | (writes & is_read):
                suspect_register(frame, Suspicion.REGISTER_IN_FLIGHT, site, register, state.product)
            if writes:
                state.group = 0
                state.read_group = 0
                state.written = clock.fences + 1 if touch == Touch.WRITTEN else 0
                state.writer = site


@inlined
def check_operand(
    frame: WarpFrame, operands: StepOperands, clock: AsyncClock, register: int, is_sum: bool, is_silent: bool
) -> bool:
    """Report a register of a product unless it is silent, and put it on record; return whether it is good.

    Sums in flight may be those of this product, if it has the same shape, but not its factor.
    """
    site, shape, state = operands.numbers[1], operands.numbers[2], state_of(frame, operands, register)
    is_unfenced, is_busy = state.written > clock.fences, state.group > clock.wgmma_done
    if is_sum:
        is_busy = is_busy & (state.shape != shape)
    if is_unfenced & (not is_silent):
        suspect_register(frame, Suspicion.REGISTER_UNFENCED, site, register, state.writer)
    elif is_busy & (not is_silent):
        suspect_register(frame, Suspicion.REGISTER_IN_FLIGHT, site, register, state.product)
    state.product = site
    if is_sum:
        state.group = clock.wgmma_groups + 1
        state.shape = shape
    else:
        state.read_group = clock.wgmma_groups + 1
    return not (is_unfenced | is_busy)


@compiled()
def check_product(frame: WarpFrame, active: int, operands: StepOperands) -> None:
    """A wgmma is about to be executed; one thing that is wrong with it is reported.

    Operands: site, shape, accumulators and registers that are read, each with their count.
    """
    if active == 0:
        return
    clock, site = async_clock(watch_of(frame.block), frame.index), operands.numbers[1]
    is_told = clock.fences == 0
    if is_told:
        suspect_register(frame, Suspicion.NO_WGMMA_FENCE, site, 0, 0)
    count, first = operands.numbers[3], operands.numbers[4]
    is_range = operands.numbers[3 + count] - first + 1 == count
    sums = (first << 32) | count if is_range else 0
    # Sums of the wgmma before, in the same group: there is nothing new to be said of them.
    is_known = (sums != 0) & (clock.sums == sums) & (clock.sums_group == clock.wgmma_groups + 1)
    clock.sums = sums
    clock.sums_group = clock.wgmma_groups + 1
    if not is_known:
        for number in range(count):
            is_good = check_operand(frame, operands, clock, operands.numbers[4 + number], True, is_told)
            is_told = is_told | (not is_good)
    for number in range(operands.numbers[4 + count]):
        register = operands.numbers[5 + count + number]
        is_good = check_operand(frame, operands, clock, register, False, is_told)
        is_told = is_told | (not is_good)


# setmaxnreg -------------------------------------------------------------------------------------------------

#: A prime by which the numbers that a warp has asked for are put into one.
_MIX = 1000003


@inlined
def allocated(registers: int) -> int:
    """Return how many registers a thread has that asked for a number of them."""
    return (registers + (STEP - 1)) & -STEP


@compiled()
def set_registers(frame: WarpFrame, site: int, active: int) -> None:
    """A warp executes setmaxnreg."""
    if active == 0:
        return
    watch = watch_of_running(frame)
    row, clock = watch.watch.sites[site], async_clock(watch, frame.index)
    wanted, at_launch, lane = row.displacement, row.step, lowest_bit(active)
    missing = alive_lanes(frame) & ~active
    if missing != 0:
        suspect(Suspicion.REGISTERS_BY_SOME_LANES, frame, site, lane, missing, 0, 0)
        return
    held = clock.registers if clock.registers != 0 else at_launch
    takes = row.flags == OrderKind.TAKE_REGISTERS
    if at_launch == IGNORED:
        suspect(Suspicion.REGISTERS_UNBOUNDED, frame, site, lane, 0, 0, 0)
    is_needless = held >= wanted if takes else wanted >= held
    if (at_launch > 0) & is_needless:
        # Only setmaxnreg.dec gives registers to the pool, and only inc takes some.
        suspect(Suspicion.REGISTERS_NEEDLESS, frame, site, lane, wanted, held, 0)
        clock.registers = held
    else:
        clock.registers = wanted
    clock.registers_row = site
    clock.registers_history = clock.registers_history * _MIX + wanted


@inlined
def warps_agree(block: BlockRecord, watch: BlockWatch, index: int) -> bool:
    """Return whether a warp has asked for what its warpgroup's first has; report it if not."""
    first = first_of_group(index)
    clock, leader = async_clock(watch, index), async_clock(watch, first)
    if clock.registers_history == leader.registers_history:
        return True
    has_asked, leader_has = clock.registers != 0, leader.registers != 0
    row = clock.registers_row if has_asked else leader.registers_row
    other = leader.registers_row if has_asked & leader_has else 0
    asking = frame_of(block, index if has_asked else first)
    suspect(Suspicion.REGISTERS_OF_SOME_WARPS, asking, row, 0, clock.registers, leader.registers, other)
    return False


@compiled()
def registers_at_end(frame: WarpFrame) -> None:
    """A block ends: look at all its setmaxnreg."""
    watch = watch_of(frame.block)
    taking_row, giving_row, held, at_launch, agree = 0, 0, 0, 0, 1
    for index in range(watch.warps):
        clock = async_clock(watch, index)
        if agree != 0 and not warps_agree(frame.block, watch, index):
            agree = 0
        if clock.registers != 0:
            row = watch.watch.sites[clock.registers_row]
            at_launch = row.step
            if row.flags != OrderKind.TAKE_REGISTERS:
                giving_row = clock.registers_row
            elif clock.registers > at_launch:
                taking_row = clock.registers_row
    for index in range(watch.warps):
        registers = async_clock(watch, index).registers
        held += allocated(registers if registers != 0 else at_launch)
    there = allocated(at_launch) * watch.warps
    if (taking_row != 0) & (at_launch > 0) & (there < held):
        suspect(
            Suspicion.REGISTERS_BEYOND_POOL, frame, taking_row, 0, held * LANES, there * LANES, giving_row
        )
