"""Compiled code that analyses the pattern of a warp's request: its extent, its tiling, and what it costs.

Instructions in loops repeat the same request some bytes further on, so all of this is computed once for each
new pattern and stored beside the instruction.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.checker.bank_model import ROWS, lane_is_in
from lanewise.machine.checker.records import COSTS, WORDS_TOGETHER, Flag, LastRequest, SiteRow
from lanewise.machine.checker.vector_clocks import WatchCode, wide
from lanewise.machine.codegen.function_code import U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

LANES = abi.LANES


def remember(
    code: WatchCode, row: Record, kept: Record, offsets: Record, base: Value, active: Value, shared: Value
) -> None:
    """Compute everything that is kept of a new pattern; `base` is the offset of the first active lane."""
    pattern = kept.get(LastRequest.pattern, U64, LANES)
    lanes = Value(
        code, BOOL.by(LANES), code.builder.bitcast(active.handle, ir.VectorType(ir.IntType(1), LANES))
    )
    extent = lanes.select(pattern.view(i64), 0)
    for name, field in (("smin", LastRequest.least_offset), ("smax", LastRequest.most_offset)):
        kept.set(field, code.intrinsic(f"vector.reduce.{name}", i64, [extent], of=extent.type))
    counting = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    steps = Value(code, U64.by(LANES), counting) * row.get(SiteRow.access_size).to(U64).spread(LANES)
    kept.set(LastRequest.side_by_side, (~pattern.differs(steps).any()).to(U64).to(i64))
    _find_tiling(code, row, kept, offsets, base, active)
    count_costs(code, row, kept, offsets, active, shared)


def _find_tiling(
    code: WatchCode, row: Record, kept: Record, offsets: Record, base: Value, active: Value
) -> None:
    """Find out whether the lanes' bytes fill a range of words exactly, and which lane has each word."""
    size, flags = row.get(SiteRow.access_size), row.get(SiteRow.flags)
    lowest = base + kept.get(LastRequest.least_offset)
    count = wide(code.intrinsic("ctpop", U32, [active]))
    words = count * (size >> 2)
    by_word = (flags & Flag.BY_WORD).differs(0)
    holders = kept.pointer(LastRequest.lane_of_word, U32)
    kept.set(LastRequest.tiled_words, 0)
    filled = code.variable(code.number(0))
    one = code.number(1)
    shift = size >> 3  # of 4, 8 and 16 bytes: 0, 1 and 2
    sized = size.equals(4) | size.equals(8) | size.equals(16)
    with code.when(sized & (words & (WORDS_TOGETHER - 1)).equals(0)):
        filled.set(code.number(0))
        with code.loop(LANES) as lane, code.when(lane_is_in(lane, active)):
            offset = offsets.get(lane * 8) - lowest
            with code.when((offset & (size - 1)).equals(0) & (offset < words * 4)):
                unit = (offset >> 2) >> shift
                with code.loop(size >> 2) as number:
                    word = (offset >> 2) + number
                    # stmatrix: a word of a row comes from the lane that holds it, not from the address's.
                    holder = by_word.select(((lane & 7) << 2) + number, lane)
                    holders.store(holder.to(U32), word)
                filled.set(filled.get() | (one << unit))
        every = (one << count) - 1
        with code.when(filled.get().equals(every)):
            kept.set(LastRequest.tiled_words, words)


def count_costs(
    code: WatchCode, row: Record, kept: Record, offsets: Record, active: Value, shared: Value
) -> None:
    """Count the wavefronts of shared memory, or the sectors of global memory, that a request takes."""
    size, lanes = row.get(SiteRow.access_size), wide(active)
    wavefronts, ideal, sectors = (field for field, _ in COSTS)
    functions = code.module.functions
    with code.when(shared):
        rows = (row.get(SiteRow.flags) & (Flag.MATRIX | Flag.TILE)).differs(0)
        for bytes_each, fits in (
            (4, size < 5),
            (8, size.equals(8)),
            (16, size.equals(16) & ~rows),
            (ROWS, rows),
        ):
            with code.when(fits):
                answer = code.call_number(functions[f"wavefronts_{bytes_each}"], offsets.address, lanes)
                kept.set(wavefronts, answer & 0xFFFFFFFF)
                kept.set(ideal, answer >> 32)
                kept.set(sectors, 0)
    with code.when(~shared):
        kept.set(wavefronts, 0)
        kept.set(ideal, 0)
        kept.set(sectors, code.call_number(functions["sectors"], offsets.address, lanes, size))
