"""Compiled code that analyses the pattern of a warp's request: its extent, its tiling, and what it costs.

Instructions in loops repeat the same request some bytes further on, so all of this is computed once for each
new pattern and stored beside the instruction.
"""

from __future__ import annotations

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.checker.records import (
    CELLS_TOGETHER,
    COSTS,
    MOST_SAMPLE_BASES,
    MOST_SAMPLES,
    Flag,
    LastRequest,
    SiteRow,
)
from lanewise.machine.checker.watch_code.bank_model import ROWS, lane_is_in
from lanewise.machine.checker.watch_code.vector_clocks import WatchCode, wide
from lanewise.machine.codegen.function_code import U8, U32, U64, Record
from lanewise.machine.codegen.lane_vectors import BOOL

LANES = abi.LANES


def remember(
    code: WatchCode,
    row: Record,
    kept: Record,
    offsets: Record,
    base: Value,
    active: Value,
    shared: Value,
    shift: Value,
) -> None:
    """Compute everything that is kept of a new pattern.

    `base` is the offset of the first active lane, `shift` the bytes of a cell as a power of two.
    """
    pattern = kept.get(LastRequest.pattern, U64, LANES)
    lanes = Value(
        code, BOOL.by(LANES), code.builder.bitcast(active.handle, ir.VectorType(ir.IntType(1), LANES))
    )
    extent = lanes.select(pattern.view(i64), 0)
    for name, field in (("smin", LastRequest.least_offset), ("smax", LastRequest.most_offset)):
        kept.set(field, code.intrinsic(f"vector.reduce.{name}", i64, [extent], of=extent.type))
    _find_tiling(code, row, kept, offsets, base, active, shift)
    count_costs(code, row, kept, offsets, active, shared)
    _keep_sample(code, kept, offsets, base, active, shared)


def _keep_sample(
    code: WatchCode, kept: Record, offsets: Record, base: Value, active: Value, shared: Value
) -> None:
    """Find the sample with the same distances between lanes, or keep the request as one if there is room."""
    count, found = kept.get(LastRequest.sample_count), code.variable(code.number(-1))
    found.set(code.number(-1))
    shares, lanes = (
        kept.pointer(field, i64) for field in (LastRequest.sample_shared, LastRequest.sample_lanes)
    )
    samples, bases = (
        kept.pointer(LastRequest.sample_offsets, U64),
        kept.pointer(LastRequest.sample_bases, i64),
    )
    is_shared = shared.to(U64).to(i64)
    pattern = kept.get(LastRequest.pattern, U64, LANES)
    with code.loop(count) as number:
        first = bases.load(number * MOST_SAMPLE_BASES).to(U64).spread(LANES)
        like = ~(samples.load(number * LANES, LANES) - first).differs(pattern).any()
        of_same = shares.load(number).equals(is_shared) & lanes.load(number).equals(wide(active))
        with code.when(like & of_same):
            found.set(number)
    with code.when((found.get() < 0) & (count < MOST_SAMPLES)):
        found.set(count)
        kept.set(LastRequest.sample_count, count + 1)
        shares.store(is_shared, count)
        lanes.store(wide(active), count)
        samples.store(offsets.get(0, U64, LANES), count * LANES)
        kept.pointer(LastRequest.sample_base_count, i64).store(code.number(0), count)
        bases.store(base, count * MOST_SAMPLE_BASES)
    kept.set(LastRequest.current_sample, found.get())


def keep_base(code: WatchCode, kept: Record, base: Value) -> None:
    """Keep where a request lies whose distances between lanes are those of a sample, if there is room."""
    current = kept.get(LastRequest.current_sample)
    with code.when(~(current < 0)):
        counts, bases = (
            kept.pointer(field, i64) for field in (LastRequest.sample_base_count, LastRequest.sample_bases)
        )
        count, start = counts.load(current), current * MOST_SAMPLE_BASES
        with code.when(count < MOST_SAMPLE_BASES):
            fresh = code.variable(code.constant(BOOL, 1))
            fresh.set(code.constant(BOOL, 1))
            with code.loop(count) as number:
                fresh.set(fresh.get() & bases.load(start + number).differs(base))
            with code.when(fresh.get()):
                bases.store(base, start + count)
                counts.store(count + 1, current)


def _find_tiling(
    code: WatchCode, row: Record, kept: Record, offsets: Record, base: Value, active: Value, shift: Value
) -> None:
    """Find out whether the lanes' bytes fill a range of cells exactly, and which lane has each cell."""
    size, flags = row.get(SiteRow.access_size), row.get(SiteRow.flags)
    lowest = base + kept.get(LastRequest.least_offset)
    count = wide(code.intrinsic("ctpop", U32, [active]))
    each = size >> shift
    cells = count * each
    by_word = (flags & Flag.BY_WORD).differs(0)
    holders = kept.pointer(LastRequest.lane_of_cell, U8)
    kept.set(LastRequest.tiled_cells, 0)
    filled = code.variable(code.number(0))
    one = code.number(1)
    power = wide(code.intrinsic("cttz", U32, [size.to(U32), code.constant(BOOL, 0)]))
    sized = (size & (size - 1)).equals(0) & (size < 17) & ~(size < (one << shift))
    with code.when(sized & (cells & (CELLS_TOGETHER - 1)).equals(0)):
        filled.set(code.number(0))
        with code.loop(LANES) as lane, code.when(lane_is_in(lane, active)):
            offset = offsets.get(lane * 8) - lowest
            with code.when((offset & (size - 1)).equals(0) & (offset < (cells << shift))):
                with code.loop(each) as number:
                    # stmatrix: a word of a row comes from the lane that holds it, not from the address's.
                    word = number >> (code.number(2) - shift)
                    holder = by_word.select(((lane & 7) << 2) + word, lane)
                    holders.store(holder.to(U8), (offset >> shift) + number)
                filled.set(filled.get() | (one << (offset >> power)))
        every = (one << count) - 1
        with code.when(filled.get().equals(every)):
            kept.set(LastRequest.tiled_cells, cells)


def count_costs(
    code: WatchCode, row: Record, kept: Record, offsets: Record, active: Value, shared: Value
) -> None:
    """Count the wavefronts of shared memory, or the sectors of global memory, that a request takes."""
    size, lanes = row.get(SiteRow.access_size), wide(active)
    wavefronts, ideal, sectors, least = (field for field, _ in COSTS)
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
                kept.set(least, 0)
    with code.when(~shared):
        kept.set(wavefronts, 0)
        kept.set(ideal, 0)
        answer = code.call_number(functions["sectors"], offsets.address, lanes, size)
        kept.set(sectors, answer & 0xFFFFFFFF)
        kept.set(least, answer >> 32)
