"""Compiled code that puts asynchronous writes of shared memory on record: by whom and when is left open.

Such a cell counts as written, and no access is said to be unordered with that write.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.machine.abi import BlockRecord
from lanewise.machine.checker.records import BY_NOBODY, BlockWatch, ShadowPlane
from lanewise.machine.checker.watch_code.shadow_cells import Cell
from lanewise.machine.checker.watch_code.vector_clocks import WatchCode
from lanewise.machine.codegen.function_code import U32

#: The function that the block's record has the address of.
ASYNCHRONOUS_WRITE = "asynchronous_write"
_READS = (ShadowPlane.READ_EPOCH, ShadowPlane.READER, ShadowPlane.READ_LANES, ShadowPlane.EARLIER_EPOCH)


def write_asynchronous_writes(module: ir.Module) -> None:
    """Write `asynchronous_write(block, address, bytes)`: bytes of the block's shared memory were written."""
    code = WatchCode(module, ASYNCHRONOUS_WRITE, ("block", "address", "bytes"), external=True)
    observed = code.record("block").at(BlockRecord.watch)
    shift, stride = observed.get(BlockWatch.cell_shift), observed.get(BlockWatch.stride)
    first = code["address"] >> shift
    last = (code["address"] + code["bytes"] - 1) >> shift
    with code.loop(last + 1, first) as number:
        cell = Cell(code, observed.get(BlockWatch.shadow) + number * 4, stride)
        cell.set(ShadowPlane.WRITE_EPOCH, code.constant(U32, BY_NOBODY))
        for plane in (ShadowPlane.WRITER, *_READS):
            cell.set(plane, code.constant(U32, 0))
    code.done()
