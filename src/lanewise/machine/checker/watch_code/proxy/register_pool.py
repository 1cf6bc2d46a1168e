"""Follows setmaxnreg: the registers that each warp has, and those that its block has.

A block has as many registers as its threads began with. A warpgroup that takes more waits until others have
given some up; so what the warps have at last must fit.
"""

from lanewise.jit.lane_functions import lowest_bit
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.analysis.register_pool import IGNORED, STEP
from lanewise.machine.checker.records import BlockWatch, OrderKind
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    alive_lanes,
    frame_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.proxy.async_clocks import async_clock, first_of_group
from lanewise.machine.checker.watch_code.watch_module import LANES

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
