"""Holds an asynchronous operation to the memory that it belongs to.

Its bytes have to lie in the variable or array that its address was computed from. Where the instructions do
not tell that, they have to lie in the shared variable in which the operation begins.
"""

from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Value
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker.suspicion_sentences import Suspicion
from lanewise.machine.checker.watch_code.clocks.vector_clocks import suspect, watch_of
from lanewise.machine.checker.watch_code.watch_module import WatchCode, least, most


@inlined
def report_outside(
    kind: int, frame: WarpFrame, row: int, lane: int, low: int, high: int, first: int, end: int
) -> None:
    """Report bytes from `low` to `high` that do not all lie between `first` and `end`."""
    if (low < first) | (high > end):
        # The first byte that lies outside.
        outside = low if low < first else max(low, end)
        suspect(kind, frame, row, lane, outside, first, end)


@compiled()
def hold(
    frame: WarpFrame, row: int, operand: int, lane: int, start: int, low: int, high: int, shared: bool
) -> None:
    """Report bytes that lie elsewhere than they should.

    `operand` is the number of the access in its instruction's record. Addresses of shared memory are offsets
    in a block's own.
    """
    launch = watch_of(frame.block).watch
    bounds = launch.sites[row].operand_bounds
    first, end = bounds[2 * operand], bounds[2 * operand + 1]
    if end != 0:
        report_outside(Suspicion.OUTSIDE, frame, row, lane, low, high, first, end)
        return
    if shared:
        for number in range(launch.extent_count):
            extent = launch.extents[number]
            if (extent.first <= start) & (start < extent.end):
                report_outside(Suspicion.RUNS_OUT, frame, row, lane, low, high, extent.first, extent.end)
                return


class Extent:
    """The first byte that an operation accesses in one memory, and the byte after its last."""

    def __init__(self, code: WatchCode, start: Value) -> None:
        self.code, self.start = code, start
        self.low, self.high = code.variable(start), code.variable(start)

    def begin(self) -> None:
        """Forget all runs: in a loop, each round has its own."""
        self.low.set(self.start)
        self.high.set(self.start)

    def add(self, first: Value, size: Value | int) -> None:
        """Take in a run of bytes."""
        self.low.set(least(self.low.get(), first))
        self.high.set(most(self.high.get(), first + size))

    def hold(self, row: Value, operand: Value | int, lane: Value, shared: bool) -> None:
        """Write that all bytes have to lie in the memory that the operand belongs to."""
        self.code.run(
            hold,
            frame=self.code.record("frame"),
            row=row,
            operand=operand,
            lane=lane,
            start=self.start,
            low=self.low.get(),
            high=self.high.get(),
            shared=shared,
        )
