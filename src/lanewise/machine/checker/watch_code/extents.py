"""Compiled code that holds an asynchronous operation to the memory that it belongs to.

Its bytes have to lie in the variable or array that its address was computed from. Where the instructions do
not tell that, they have to lie in the shared variable in which the operation begins.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value
from lanewise.machine.abi import BlockRecord, WarpFrame
from lanewise.machine.checker.records import BlockWatch, SharedExtent, SiteRow, WatchRecord
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.vector_clocks import WatchCode, least, most
from lanewise.machine.codegen.function_code import Record


class Extent:
    """The first byte that an operation accesses in one memory, and the byte after its last."""

    def __init__(self, code: WatchCode, start: Value) -> None:
        self.code, self.start = code, start
        self.low, self.high = code.variable(start), code.variable(start)
        self.low.set(start)
        self.high.set(start)

    def add(self, first: Value, size: Value | int) -> None:
        """Take in a run of bytes."""
        self.low.set(least(self.low.get(), first))
        self.high.set(most(self.high.get(), first + size))

    def hold(self, row: Value, operand: Value | int, lane: Value, shared: bool) -> None:
        """Write a call of `hold`: all bytes have to lie in the memory that the operand belongs to."""
        code = self.code
        code.call_number(
            code.module.functions["hold"], code["frame"], row, operand, lane, self.start, self.low.get(),
            self.high.get(), int(shared),
        )  # fmt: skip


def write_extents(module: ir.Module) -> None:
    """Write `hold(frame, row, operand, lane, start, low, high, shared)`: report bytes that lie elsewhere.

    `operand` is the number of the access in its instruction's record. Addresses of shared memory are offsets
    in a block's own.
    """
    arguments = ("frame", "row", "operand", "lane", "start", "low", "high", "shared")
    code = WatchCode(module, "hold", arguments)
    launch = code.record("frame").at(WarpFrame.block).at(BlockRecord.watch).at(BlockWatch.watch)
    row = Record(code, launch.get(WatchRecord.sites) + code["row"] * SiteRow.BYTES)
    bounds = Record(code, row.address + code["operand"] * 16 + SiteRow.operand_bounds)

    def held(kind: Suspicion, first: Value, end: Value) -> None:
        before = code["low"] < first
        with code.when(before | (code["high"] > end)):
            # The first byte that lies outside.
            address = before.select(code["low"], most(code["low"], end))
            code.suspect(kind, code["frame"], code["row"], code["lane"], address, first, end)
        code.done()

    with code.when(bounds.get(8).differs(0)):
        held(Suspicion.OUTSIDE, bounds.get(0), bounds.get(8))
    with code.when(code["shared"].differs(0)), code.loop(launch.get(WatchRecord.extent_count)) as number:
        extent = Record(code, launch.get(WatchRecord.extents) + number * SharedExtent.BYTES)
        first, end = extent.get(SharedExtent.first), extent.get(SharedExtent.end)
        with code.when(~(code["start"] < first) & (code["start"] < end)):
            held(Suspicion.RUNS_OUT, first, end)
    code.done()
