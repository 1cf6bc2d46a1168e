"""Compiled code that follows setmaxnreg: the registers that each warp has, and those that its block has.

A block has as many registers as its threads began with. A warpgroup that takes more waits until others have
given some up; so what the warps have at last must fit.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.analysis.register_pool import IGNORED, STEP
from lanewise.machine.checker.order_kinds import OrderKind
from lanewise.machine.checker.proxy_records import AsyncClock
from lanewise.machine.checker.records import BlockWatch, SiteRow, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.async_clocks import async_clock, first_of_group
from lanewise.machine.checker.watch_code.vector_clocks import LANES, WatchCode, alive_lanes, at_site, wide
from lanewise.machine.codegen.function_code import U32, Record
from lanewise.machine.codegen.lane_vectors import BOOL

#: A prime by which the numbers that a warp has asked for are put into one.
_MIX = 1000003


def _allocated(registers: Value) -> Value:
    """Return how many registers a thread has that asked for a number of them."""
    return (registers + (STEP - 1)) & -STEP


def write_set_registers(module: ir.Module) -> None:
    """Write `set_registers(frame, site, active)`: a warp executes setmaxnreg."""
    code, warp, observed, row = at_site(module, "set_registers")
    clock = async_clock(code, observed, warp.get(WarpFrame.index))
    wanted, at_launch = row.get(SiteRow.displacement), row.get(SiteRow.step)
    active, zero = code["active"].to(U32), code.number(0)
    first = wide(code.intrinsic("cttz", U32, [active, code.constant(BOOL, 0)]))

    def tell(kind: Suspicion, number: Value, other: Value) -> None:
        code.suspect(kind, warp.address, code["site"], first, number, other, zero)

    missing = alive_lanes(code, warp) & ~active
    with code.when(missing.differs(0)):
        tell(Suspicion.REGISTERS_BY_SOME_LANES, wide(missing), zero)
        code.done()
    held = clock.get(AsyncClock.registers)
    held = held.equals(0).select(at_launch, held)
    takes = row.get(SiteRow.flags).equals(OrderKind.TAKE_REGISTERS)
    with code.when(at_launch.equals(IGNORED)):
        tell(Suspicion.REGISTERS_UNBOUNDED, zero, zero)
    needless = takes.select(~(held < wanted), ~(wanted < held))
    with code.when((at_launch > 0) & needless):
        tell(Suspicion.REGISTERS_NEEDLESS, wanted, held)
    clock.set(AsyncClock.registers, wanted)
    clock.set(AsyncClock.registers_row, code["site"])
    clock.set(AsyncClock.registers_history, clock.get(AsyncClock.registers_history) * _MIX + wanted)
    code.done()


def write_registers_at_end(module: ir.Module) -> None:
    """Write `registers_at_end(frame)`: a block ends; look at all its setmaxnreg."""
    code = WatchCode(module, "registers_at_end", ("frame",))
    warp = code.record("frame")
    block = warp.at(WarpFrame.block)
    observed = block.at(BlockRecord.watch)
    zero = code.number(0)
    sites = observed.at(BlockWatch.watch).get(WatchRecord.sites)
    taken, given, held, at_launch = (code.variable(zero) for _ in range(4))
    for each in (taken, given, held, at_launch):
        each.set(zero)

    with code.loop(observed.get(BlockWatch.warps)) as index:
        clock, leader = (async_clock(code, observed, each) for each in (index, first_of_group(index)))
        with code.when(
            clock.get(AsyncClock.registers_history).differs(leader.get(AsyncClock.registers_history))
        ):
            mine, theirs = (each.get(AsyncClock.registers_row) for each in (clock, leader))
            rowed = clock.get(AsyncClock.registers).differs(0)
            code.suspect(
                Suspicion.REGISTERS_OF_SOME_WARPS, warp.address, rowed.select(mine, theirs), zero,
                clock.get(AsyncClock.registers), leader.get(AsyncClock.registers),
                (rowed & leader.get(AsyncClock.registers).differs(0)).select(theirs, zero),
            )  # fmt: skip
            code.done()
        with code.when(clock.get(AsyncClock.registers).differs(0)):
            row = Record(code, sites + clock.get(AsyncClock.registers_row) * SiteRow.BYTES)
            at_launch.set(row.get(SiteRow.step))
            takes = row.get(SiteRow.flags).equals(OrderKind.TAKE_REGISTERS)
            for kept, wanted in ((taken, takes), (given, ~takes)):
                with code.when(wanted):
                    kept.set(clock.get(AsyncClock.registers_row))
    with code.loop(observed.get(BlockWatch.warps)) as index:
        registers = async_clock(code, observed, index).get(AsyncClock.registers)
        held.set(held.get() + _allocated(registers.equals(0).select(at_launch.get(), registers)))
    there = _allocated(at_launch.get()) * observed.get(BlockWatch.warps)
    with code.when(taken.get().differs(0) & (at_launch.get() > 0) & (there < held.get())):
        code.suspect(
            Suspicion.REGISTERS_BEYOND_POOL, warp.address, taken.get(), zero, held.get() * LANES,
            there * LANES, given.get(),
        )  # fmt: skip
    code.done()


def write_register_pool(module: ir.Module) -> None:
    """Write the functions of setmaxnreg into a module."""
    write_set_registers(module)
    write_registers_at_end(module)
