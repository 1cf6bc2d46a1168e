"""How long a plan takes on Hopper: a model whose costs were fitted to measurements on an H200.

All arithmetic is on arrays, one element for each plan, so that a thousand plans are compared at once. It
consists of sums, products, quotients, square roots, maxima and minima, which every machine rounds alike: the
same problem has the same plan everywhere. `benchmarks/fit_planner.py` fits the costs to a sweep, and says how
far off the times are and what the choices cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from lanewise.linalg.kernels.hopper.traits import (
    LARGEST_CLUSTER,
    LINE,
    MOST_SHARED,
    ROWS,
    WIDEST,
    WIDEST_PROMOTED,
)
from lanewise.linalg.kernels.tile_traits import SECTOR, columns_apart, has_aligned_rows
from lanewise.linalg.kernels.warp.traits import MOST_RESULT_BYTES, PADDING
from lanewise.linalg.operand_copies import needs_copy, needs_transpose
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import Gpu
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.sum_order import element_bytes, plane_products, planes_of

#: Bytes of a partial sum, and of what memory moves at once.
_SUM_BYTES, _ATOM = 4, 64
#: Shared memory and registers of a multiprocessor; registers of a thread of the mma.sync kernels beside its
#: sums, without and with a loop over K.
_SHARED, _REGISTERS, _WARP_REGISTERS, _LOOP_REGISTERS = 227_000, 65_536, 12, 90
#: Threads and blocks that a multiprocessor has at the same time.
_THREADS, _BLOCKS = 2048, 32
#: How many times as large as L2 results are of which it holds a small part; bytes that a block has loaded
#: ahead then which hinder its stores least, and most.
_STREAMED_L2, _AHEAD, _FAR_AHEAD = 4, 65_536, 98_304
#: Columns of a tile of the mma.sync kernels that is stored from registers, at most.
_NARROW = 8
_LANES = 32
#: Copies of a thread that move 16 bytes to where they belong, up to which no code is waited for: of a step in
#: a loop, and where there is only one step.
_COPIES_OF_LOOP, _COPIES_AT_ONCE = 6, 24
#: How many times the size of a cluster is doubled, by its size.
_DOUBLINGS = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0])
#: What rows of boxes of results consist of, in bytes; the widest tile and the widest box in such pieces; rows
#: of boxes whose pieces are swizzled; those of the narrowest box of which there are several buffers.
_PIECE, _WIDEST_TILE, _WIDEST_BOX, _SWIZZLED, _NARROW_BOX = 16, 96, 32, (2, 4, 8), 4
#: An array with a number for each plan, or one number for all of them.
Values = Any


class Costs(NamedTuple):
    """What things take on a GPU, an H200. Times are in microseconds, rates are by microsecond, shares have no
    unit."""

    #: A launch until its blocks run, and its end; the first loads of a block until they are in shared memory;
    #: clusters, for each time that their size doubles.
    launch: float = 3.04
    first_load: float = 1.22
    cluster: float = 0.0886
    #: Products of bf16 numbers of one multiprocessor; how many times as fast 8-bit numbers are multiplied.
    products: float = 3.66e6
    eight_bit: float = 1.91
    #: Until the clock falls because products draw much power; what share more those take that come later.
    full_power: float = 492.0
    slower_clock: float = 0.17
    #: Columns that a wgmma takes beside its own, if warpgroups share a tile and if they alternate; and the
    #: fewest that it takes time for.
    extra_columns: float = 25.6
    extra_pingpong: float = 15.5
    least_columns: float = 17.5
    #: A step of K beside its products, for one warpgroup that has the tensor cores for itself.
    step_alone: float = 0.0413
    #: From the request of a stage to its arrival: by this and the number of stages loads are bound.
    load_latency: float = 1.72
    #: Bytes that L2 gives to all multiprocessors, that one takes in, and that memory moves for all and for
    #: one that loads alone.
    l2_bytes: float = 1.42e7
    port_bytes: float = 8.69e5
    memory_bytes: float = 3.85e6
    memory_port_bytes: float = 4.33e5
    #: Until L2 has written back what others left in it, if at least so many bytes are moved.
    drain: float = 1.16
    dirty_bytes: float = 4.35e6
    #: Of operands that do not stay in L2, what share is read again for each wave of tiles. Of those that many
    #: clusters read, what share is read by both halves of L2.
    read_again: float = 0.0336
    far_reads: float = 0.306
    #: What operands that are contiguous along M, or N, rows of boxes that lie in two lines of L2, and those
    #: that begin between two sectors of 32 bytes add to loads, and the latter to what memory reads (shares).
    loads_along_m: float = 0.0328
    loads_along_n: float = 0.183
    split_lines: float = 0.749
    half_sectors: float = 0.335
    half_atoms: float = 0.235
    #: Bytes that memory could move while a sector of 32 bytes, an atom of 64 or a line of 128 of the results
    #: is written by two tiles, and while a sector is by two boxes of a tile.
    broken_sector: float = 23.5
    broken_atom: float = 105
    broken_line: float = 26.4
    broken_box: float = 72.3
    #: What is added to the bytes of results that TMA stores and L2 does not hold, for each thousand rows that
    #: tiles write at the same time: memory opens pages for each of them (a share).
    open_rows: float = 0.03
    #: What is added to those of which L2 holds a small part if operands are loaded far ahead (a share).
    read_ahead: float = 0.12
    #: What is added to those that bulk copies store, a row of a tile each (a share).
    copied_rows: float = 0.122
    #: An epilogue: of a tile, of 64 × 64 results of a warpgroup; more of the latter if threads store, the
    #: same where warpgroups alternate, if values go through long functions, and if results have four bytes;
    #: bulk copies of 64 rows; of 64 × 8 straight from registers.
    epilogue: float = 0.226
    epilogue_piece: float = 0.296
    thread_stores: float = 0.144
    thread_stores_pingpong: float = 0.0909
    thread_lines: float = 0.0661
    long_epilogue: float = 0.814
    wide_results: float = 0.307
    row_copies: float = 0.398
    direct_piece: float = 0.0411
    #: Where warpgroups alternate, what share of it the next tile's products do not hide; half of what an
    #: epilogue takes longer than a tile's products comes to that.
    exposed_pingpong: float = 0.0386
    #: What share of a full wave's time a last one takes at least.
    last_wave: float = 0.624
    #: Adding the sums of a step to f32 totals, for 64 × 64 of a warpgroup; with two accumulators, so that
    #: products go on meanwhile; of a wide tile in two halves, beside the products of the other warpgroup.
    promotion: float = 0.035
    promotion_by_turns: float = 0.005
    promotion_in_halves: float = 0.014
    #: Splitting 64 × 64 f32 into bf16 in the registers of a warpgroup, while others multiply; the same of
    #: loading the fragments of 64 × 32 tf32 that lie along M.
    register_split: float = 0.2
    register_transpose: float = 0.033
    #: A at any address: one granule that threads load; what share more loads from L2 and from memory take, as
    #: each row of a step lies in two lines; and reading 64 × 128 bytes of 8 or 16 bits in the registers of a
    #: warpgroup, words along K and elements along M.
    granule_load: float = 0.00043
    granule_lines: float = 1.95
    granule_reads: float = 0.22
    register_words: float = 0.172
    register_elements: float = 0.174
    #: Parts of K: an exchange in a cluster and the bytes of sums that a block gets, one through memory by who
    #: comes last and the bytes of sums that it reads, a second kernel and the bytes that all of it reads.
    cluster_exchange: float = 0.477
    cluster_bytes: float = 4.1e4
    memory_exchange: float = 1.89
    exchange_bytes: float = 7.74e4
    second_kernel: float = 1.45
    gather_bytes: float = 2.68e6
    #: A kernel that copies operands first, a second one, more if elements of four bytes are transposed, and
    #: the bytes that they read and write.
    copy: float = 1.51
    second_copy: float = 0.095
    transposing_copy: float = 2.59
    copy_bytes: float = 3.55e6
    #: The mma.sync kernels: a launch, the first loads of a tile, products of bf16 numbers of one
    #: multiprocessor; one copy by a thread, and 16 bytes that it then moves in shared memory; an element of a
    #: fragment that is loaded by itself, an f32 of one that is split into bf16, and a byte of any; a step of
    #: K beside all that; the sums of another part of K in a block, and of other blocks of a cluster, for each
    #: time that its size doubles; 64 × 64 results, what is added to that if their rows begin between
    #: multiples of 16 bytes, one result of a narrow tile, and what is added to 64 × 64 of four bytes, but for
    #: those of split f32; what share of the bytes for broken sectors, atoms and lines of results comes to
    #: theirs; waiting for the code of a copy that moves 16 bytes, for each that a thread makes in a step
    #: beyond those whose code is held, and that of another copy as a share of it; the warps of a
    #: multiprocessor up to which their instructions take longer, as few hide their latencies; from the
    #: request of a step to its arrival, by which the number of stages bounds a loop.
    warp_launch: float = 3.65
    warp_first: float = 0.513
    warp_long_epilogue: float = 0.38
    warp_loose_results: float = 0.89
    warp_products: float = 1.24e6
    warp_piece: float = 0.00013
    warp_shifted: float = 0.000558
    warp_element: float = 9.25e-05
    warp_split: float = 4.76e-05
    warp_fragment: float = 7e-06
    warp_step: float = 0.173
    warp_exchange: float = 0.082
    warp_cluster: float = 0.238
    warp_store: float = 0.0092
    warp_store_odd: float = 0.13
    warp_store_element: float = 7.5e-05
    warp_direct_element: float = 5.8e-05
    warp_staging: float = 0.2
    warp_wide_results: float = 0.06
    warp_broken: float = 0.467
    warp_code: float = 0.0491
    warp_copy_code: float = 0.143
    warp_enough: float = 5.2
    warp_latency: float = 1.09


H200 = Costs()
#: By what share of the time the planner is typically off (the root of the mean square), by the part of the
#: time that is longest, on a fourth of the products of the sweeps of an H200 (`python
#: benchmarks/fit_planner.py`). There are no products there whose exchanges take longest.
ERRORS = {
    "launch": 0.083, "tensor_cores": 0.066, "loads": 0.099, "memory": 0.087, "epilogue": 0.126,
    "exchange": 0.3, "copies": 0.133,
}  # fmt: skip


class Case(NamedTuple):
    """Plans and their problems in the kernel's orientation: each field has a number for each of them."""

    m: Values
    n: Values
    k: Values
    batch: Values
    element_bytes: Values
    out_bytes: Values
    #: bf16 numbers of which each element consists, and products of them: 1 and 1, or 3 and 6 for f32.
    planes: Values
    plane_products: Values
    #: Whether A is contiguous along M, and B along N, as wgmma gets them.
    a_along_m: Values
    b_along_n: Values
    #: The bytes, up to a line, at whose multiples rows of A and of B begin as TMA loads them; the same, up to
    #: 16, as they lie; and the same as the former of an A that is not copied, but lies along M.
    lines_a: Values
    lines_b: Values
    lying_lines_a: Values
    aligned_a: Values
    aligned_b: Values
    #: Whether fragments of A and of B are put together element by element by mma.sync kernels.
    single_a: Values
    single_b: Values
    #: Bytes of a contiguous line of the result, and whether lines lie along N.
    line_bytes: Values
    along_n: Values
    #: Whether threads store results, a long function is fused, and sums are promoted.
    thread_stores: Values
    long_epilogue: Values
    promotes: Values
    #: 0, or how many matrices B has, each for some rows of A.
    experts: Values
    #: Operands that are copied first, whether elements of four bytes are transposed, of all and of B; and the
    #: bytes that are read and written for it, of all and of A.
    copies: Values
    transposes: Values
    transposes_b: Values
    copied_bytes: Values
    copied_a_bytes: Values
    #: The plan. `warp`: it is one of mma.sync, which copies nothing.
    warp: Values
    rows: Values
    columns: Values
    step: Values
    across: Values
    along: Values
    split: Values
    groups: Values
    gather: Values
    stages: Values
    pingpong: Values
    by_turns: Values
    direct: Values
    a_in_registers: Values
    raster: Values
    whole_sectors: Values

    def of(self, chosen: object) -> Case:
        """Return some of the plans, by their places."""
        return Case(*[values[chosen] for values in self])


class Parts(NamedTuple):
    """The microseconds of plans, and of what they consist: parts of a kernel overlap each other."""

    total: Values
    #: Tiles for each block or cluster that runs at the same time.
    waves: Values
    launch: Values
    tensor_cores: Values
    loads: Values
    memory: Values
    epilogue: Values
    exchange: Values
    copies: Values


def ceiling(one: Values, other: Values) -> Values:
    """Return quotients of integers, rounded up.

    >>> ceiling(np.array([128.0, 129.0]), 64).tolist()
    [2.0, 3.0]
    """
    return -((-one) // other)


def _larger(*values: Values) -> Values:
    """Return nearly the largest of some times: things that overlap hinder each other if both take long."""
    total: Values = 0.0
    for value in values:
        squared = value * value
        total = total + squared * squared
    return np.sqrt(np.sqrt(total))


def expected(case: Case, costs: Costs, gpu: Gpu) -> Parts:
    """Return the time of plans on a GPU."""
    hopper = _hopper(case, costs, gpu)
    if not np.any(case.warp):
        return hopper
    warp = _warp(case, costs, gpu)
    return Parts(*[np.where(case.warp > 0, *values) for values in zip(warp, hopper, strict=True)])


# what a time consists of: `x` are the plans, `c` what things take -------------------------------------------


def _memory_bytes(x: Case, c: Costs, element: Values) -> tuple[Values, Values]:
    """Return the bytes of operands, whose elements have a size, and of results: more where sectors are
    written in parts."""
    readers_a, matrices = _tiles_across(x), _matrices(x)
    readers_b = np.maximum(ceiling(_tiles_down(x, x.rows), x.across) / matrices, 1)
    rows = x.m * (1 + c.half_atoms * (_lines_a(x) < SECTOR) + c.far_reads * (1 - 1 / readers_a))
    rows = rows * _share_of_planes(x) * (1 + c.granule_reads * _has_granules(x))
    of_b = 1 + c.half_atoms * (x.lines_b < SECTOR) + c.far_reads * (1 - 1 / readers_b)
    reads = (rows + x.n * matrices * of_b) * x.k * element * x.batch
    lines = np.where(x.along_n > 0, x.m, x.n) * x.batch
    line_bytes, run, tile = (
        np.asarray(values).astype(int) for values in (x.line_bytes, _run_bytes(x), _tile_bytes(x))
    )
    common = np.where(x.whole_sectors > 0, line_bytes, np.gcd(tile, line_bytes))
    pieces = ((SECTOR, c.broken_sector), (_ATOM, c.broken_atom), (LINE, c.broken_line))
    broken = sum(cost * (1 - np.gcd(common, size) / size) for size, cost in pieces)
    wholes = np.gcd(run, SECTOR) / SECTOR, np.gcd(line_bytes, SECTOR) / SECTOR
    # rows of a box of four-byte results that begin within sectors and end within others take both times
    of_both = (x.out_bytes == 4) & (x.thread_stores == 0)
    broken_box = c.broken_box * np.where(of_both, 2 - sum(wholes), 1 - np.minimum(*wholes))
    edges = ceiling(x.line_bytes, tile) * broken + ceiling(x.line_bytes, run) * broken_box
    edges = np.where(x.whole_sectors > 0, broken, edges)  # only rows end within sectors
    return reads, x.m * x.n * x.out_bytes * x.batch + lines * edges * np.where(x.warp > 0, c.warp_broken, 1.0)


def _matrices(x: Case) -> Values:
    """Return how many matrices B has that are read: experts with few rows in the mean may have none."""
    return np.where(x.experts > 0, x.experts * x.m / (x.m + x.experts), 1.0)


def _tiles_down(x: Case, rows: Values) -> Values:
    """Return how many tiles of so many rows there are along M.

    Of experts with many rows, the last tile is half empty in the mean; those with few have one tile each.
    """
    experts = _matrices(x)
    high = rows * experts / x.m
    return np.where(x.experts > 0, x.m / rows + experts * (2 + high) / (4 + high), ceiling(x.m, rows))


def _overlap(x: Case) -> Values:
    """Return the columns that a tile has in common with the next, so that one of both stores a sector."""
    return np.where(x.whole_sectors > 0, x.columns - columns_apart(x.columns, x.out_bytes), 0.0)


def _tiles_across(x: Case) -> Values:
    """Return how many tiles, or those of a cluster, there are along N."""
    overlap = _overlap(x)
    return ceiling(np.maximum(x.n - overlap, 1), (x.columns - overlap) * x.along)


def _share_of_planes(x: Case) -> Values:
    """Return what share of the bytes of its bf16 numbers A has: less if it is f32 that registers split."""
    return np.where((x.a_in_registers > 0) & (x.planes > 1), 2 / 3, 1.0)


def _is_transposed(x: Case) -> Values:
    """Return whether A, of tf32, is loaded along M, and transposed in registers."""
    return (x.a_in_registers > 0) & (x.planes == 1) & (x.element_bytes == 4)


def _has_granules(x: Case) -> Values:
    """Return whether threads load A, at any address, and registers shift or split it."""
    return (x.a_in_registers > 0) & (x.element_bytes < 4) & ((x.planes == 1) | (x.aligned_a < 16))


def _lines_a(x: Case) -> Values:
    """Return the bytes, up to a line, at whose multiples rows of A begin as TMA loads them."""
    return np.where(_is_transposed(x), x.lying_lines_a, x.lines_a)


def _drained(moved: Values, c: Costs) -> Values:
    """Return the microseconds until L2 has written back what others left in it."""
    return c.drain * np.minimum(1.0, moved / c.dirty_bytes)


def _tile_bytes(x: Case) -> Values:
    """Return the bytes of a line of the result that one tile has."""
    return np.where(x.along_n > 0, x.columns, x.rows) * x.out_bytes


def _run_bytes(x: Case) -> Values:
    """Return how many neighbouring bytes of a line of the result are stored together."""
    tile = _tile_bytes(x)
    whole = (x.direct > 0) | (x.warp > 0) | (x.thread_stores > 0)
    return np.where(whole, tile, np.where(x.along_n > 0, box_bytes(x), LINE))


@cache
def _widest_boxes() -> Any:
    """Return the pieces of the widest box by those of a tile's row and by the most that a box may have.

    Boxes divide the tile, and have rows without conflicts of shared memory's banks (`shared_memory.py`).
    """
    tile, box = np.indices((_WIDEST_TILE + 1, _WIDEST_TILE + 1))
    divides = (tile > 0) & (box > 0) & (box <= _WIDEST_BOX) & (tile % np.maximum(box, 1) == 0)
    without_conflicts = (box % 2 == 1) | np.isin(box, _SWIZZLED)
    return np.maximum.accumulate(np.where(divides & without_conflicts, box, 0), axis=1)


def box_bytes(x: Case) -> Values:
    """Return the bytes of a row of a box that TMA stores: the widest of which several buffers fit."""
    widest = _widest_boxes()
    pieces = np.minimum(ceiling(x.columns / x.split * x.out_bytes, _PIECE), _WIDEST_TILE).astype(int)
    exchange = np.where(x.split > 1, x.rows * x.columns * _SUM_BYTES, 0)
    stages = x.stages * (x.rows + _loaded_columns(x)) * LINE * x.planes
    consumers = consumers_of(x.rows, x.pingpong)
    room = (MOST_SHARED - stages - exchange) // consumers // (ROWS * _PIECE)
    room = np.clip(room, 0, _WIDEST_TILE * 4).astype(int)
    box = widest[pieces, np.minimum(room // 4, _WIDEST_TILE)]
    box = np.where(box >= _NARROW_BOX, box, widest[pieces, np.minimum(room // 2, _WIDEST_TILE)])
    box = np.where(box >= _NARROW_BOX, box, widest[pieces, _NARROW_BOX])
    holds_all = (x.rows / np.where(x.pingpong > 0, 1, consumers) == ROWS) & (x.long_epilogue == 0)
    box = np.where(holds_all & (pieces <= room), widest[pieces, pieces], box)
    return np.maximum(box, 1) * _PIECE


def consumers_of(rows: Values, pingpong: Values) -> Values:
    """Return the warpgroups that multiply in blocks with tiles of so many rows, as the kernels' traits do.

    >>> consumers_of(np.array([64, 64, 128, 192, 256]), np.array([0, 1, 0, 0, 0])).tolist()
    [1, 2, 2, 3, 2]
    """
    return np.where(rows == 3 * ROWS, 3, np.where((rows > ROWS) | (pingpong > 0), 2, 1))


def _loaded_columns(x: Case) -> Values:
    """Return the columns of B that a stage has: those that are contiguous are loaded in whole lines."""
    line = LINE / x.element_bytes
    return np.where(x.b_along_n > 0, ceiling(x.columns, line) * line, x.columns)


def _load_factors(x: Case, c: Costs) -> tuple[Values, Values]:
    """Return how much longer loads of A and of B from L2 take than those of lines that TMA loads whole.

    Boxes of a B that is contiguous along N begin at multiples of the tile's columns.
    """
    columns = np.asarray((x.columns - _overlap(x)) * x.element_bytes).astype(int)
    begin_b = np.gcd(np.asarray(x.lines_b).astype(int), np.where(x.b_along_n > 0, columns, LINE))
    along_a = c.loads_along_m * np.maximum(x.a_along_m, _is_transposed(x))
    along_b = c.loads_along_n * x.b_along_n
    factors = []
    for begin, along in ((_lines_a(x), along_a), (begin_b, along_b)):
        crossing = c.split_lines * (1 - begin / LINE)
        factors.append((1 + along + crossing) * (1 + c.half_sectors * (begin < SECTOR)))
    return np.where(_has_granules(x), 1 + c.granule_lines, factors[0]), factors[1]


def _hopper(x: Case, c: Costs, gpu: Gpu) -> Parts:
    """Return the time of plans of the Hopper kernels.

    Products of a tile, its loads from L2, what one multiprocessor takes in and the latency of loads overlap
    each other, and all of that overlaps the loads from memory.
    """
    size = x.across * x.along * x.split
    slots = gpu.slots(size)
    high, wide = ceiling(_tiles_down(x, x.rows), x.across), _tiles_across(x)
    tiles = high * wide * x.batch * x.groups
    whole = tiles // slots
    rest = tiles - whole * slots
    steps = ceiling(ceiling(x.k, LINE // x.element_bytes), x.split * x.groups)
    consumers = consumers_of(x.rows, x.pingpong)

    multiply = _products_of_step(x, c, consumers, tiles > slots)
    factor_a, factor_b = _load_factors(x, c)
    line = np.minimum(LINE, ceiling(x.k * x.element_bytes, SECTOR) * SECTOR) * x.planes
    loaded, rows = _loaded_columns(x), x.rows * _share_of_planes(x)
    asked = (rows / x.along * factor_a + loaded / x.across * factor_b) * line
    port = (rows + loaded) * line / c.port_bytes
    flows = x.m * x.n * x.out_bytes * x.batch > _STREAMED_L2 * gpu.l2_bytes  # results that L2 does not hold
    # warpgroups that alternate wait for tiles of one step at different times
    latency = c.load_latency / x.stages / np.where((x.pingpong > 0) & (steps == 1) & flows, 2, 1)
    waits = (x.stages == 2) & (steps > 2) & (x.planes == 1)  # one is loaded while one is multiplied
    latency = latency * np.where(waits, 2, 1)
    granules = x.rows * LINE / _PIECE * np.where(x.planes > 1, 2, 1)  # of f32, numbers twice as long
    by_threads = np.where(_has_granules(x), granules * c.granule_load, 0)
    finish = _epilogue(x, c, consumers)

    def mainloop(active: Values) -> Values:
        return steps * _larger(multiply, active * asked / c.l2_bytes, port, latency, by_threads)

    full, last = mainloop(slots * size), mainloop(np.maximum(rest, 1) * size)
    stored_by_threads = np.minimum(_thread_stores(x, c), finish)
    hidden = finish - stored_by_threads
    alternating = c.exposed_pingpong * hidden + np.maximum(hidden - full, 0) / 2
    between = stored_by_threads + np.where(x.pingpong > 0, np.minimum(alternating, hidden), hidden)
    last = np.maximum(last, np.minimum(c.last_wave, 1) * full * (whole > 0))
    computed = whole * (full + between) + (rest > 0) * (last + between) - between + finish
    # power is drawn by products, whatever the plan is: all plans slow down alike
    rate = gpu.multiprocessors * _products_of_microsecond(x, c)
    work = x.m * x.n * x.k * x.batch * x.plane_products / rate
    computed = computed + c.slower_clock * np.maximum(work - c.full_power, 0)

    reads, stored = _memory_bytes(x, c, x.element_bytes * x.planes)
    band = np.minimum(x.raster, high) * x.across
    beside = np.minimum(np.maximum(slots * size / x.split / band, 1), wide * x.along)
    again = (band * x.rows + beside * x.columns) * x.k * x.element_bytes * x.planes * tiles / slots - reads
    again = np.where(reads + stored > gpu.l2_bytes, np.maximum(again, 0), 0)
    at_once = np.where(x.along_n > 0, np.minimum(band * x.rows, x.m), np.minimum(beside * x.columns, x.n))
    streamed = np.maximum(stored - gpu.l2_bytes, 0) * (x.thread_stores == 0)
    ahead = x.stages * (x.rows + _loaded_columns(x)) * LINE
    far_ahead = np.clip((ahead - _AHEAD) / (_FAR_AHEAD - _AHEAD), 0, 1) * flows
    stored = stored + streamed * (c.open_rows * at_once / 1000 + c.read_ahead * far_ahead)
    stored = stored * (1 + c.copied_rows * x.whole_sectors)
    rate = np.minimum(c.memory_bytes, np.minimum(tiles, slots) * size * c.memory_port_bytes)
    memory = (reads + stored + c.read_again * again) / rate + _drained(reads + stored, c)

    launch = c.launch + c.first_load + c.cluster * _DOUBLINGS[np.asarray(size, int)]
    share = x.rows * x.columns / x.split * _SUM_BYTES
    sums = high * wide * x.across * x.along * x.batch * x.rows * x.columns * _SUM_BYTES * x.groups
    by_kernel = c.second_kernel + sums / c.gather_bytes
    by_last = c.memory_exchange + share * (x.groups + 1) / c.exchange_bytes
    sent = x.rows * x.columns * _SUM_BYTES
    exchange = np.where(x.split > 1, c.cluster_exchange + sent / c.cluster_bytes, 0.0)
    exchange = exchange + np.where(x.groups > 1, np.where(x.gather > 0, by_kernel, by_last), 0.0)
    number = x.copies - x.a_in_registers
    copies = np.where(number > 0, c.copy + c.second_copy * (number - 1), 0.0)
    transposes: Values = np.where(x.a_in_registers > 0, x.transposes_b, x.transposes)
    copies = copies + c.transposing_copy * transposes
    copies = copies + (x.copied_bytes - x.a_in_registers * x.copied_a_bytes) / c.copy_bytes
    total = launch + _larger(computed, memory) + exchange + copies
    waves = np.maximum(tiles / slots, 1)
    loads = waves * steps * _larger(np.minimum(tiles, slots) * size * asked / c.l2_bytes, port, latency)
    return Parts(
        total, tiles / slots, launch, waves * steps * multiply, loads, memory,
        finish + (waves - 1) * between, exchange, copies,
    )  # fmt: skip


def _products_of_microsecond(x: Case, c: Costs) -> Values:
    """Return how many products of numbers a multiprocessor computes in a microsecond."""
    return c.products * np.where(x.element_bytes == 1, c.eight_bit, 2 / x.element_bytes)


def _products_of_step(x: Case, c: Costs, consumers: Values, persistent: Values) -> Values:
    """Return the microseconds of the products of one step of K of a tile."""
    extra = np.where(x.pingpong > 0, c.extra_pingpong, c.extra_columns)
    columns = np.maximum(x.columns, c.least_columns) + extra * ceiling(x.columns, WIDEST)
    multiply = x.rows * columns * (LINE / x.element_bytes) * x.plane_products
    multiply = multiply / _products_of_microsecond(x, c)
    promotion = np.where(x.columns > WIDEST_PROMOTED, c.promotion_in_halves, c.promotion)
    promotion = np.where(x.by_turns > 0, c.promotion_by_turns, promotion)
    promoted = x.promotes * promotion * x.rows / consumers * x.columns / ROWS**2
    # two accumulators keep the tensor cores busy; of those that alternate, one has a block's only tile
    alone = ((consumers == 1) & (x.by_turns == 0)) | ((x.pingpong > 0) & ~persistent)
    high = np.where(x.pingpong > 0, x.rows, x.rows / consumers) / ROWS
    shifted = np.where(x.a_along_m > 0, c.register_elements, c.register_words) * high
    single = np.where(_has_granules(x), shifted, c.register_transpose * high)
    registers = np.where(x.planes > 1, c.register_split, single)
    multiply = np.maximum(multiply, x.a_in_registers * (multiply / consumers + registers))
    return multiply + np.where(alone, c.step_alone, 0.0) + promoted


def _epilogue(x: Case, c: Costs, consumers: Values) -> Values:
    """Return the microseconds of a tile's epilogue."""
    high = np.where(x.pingpong > 0, x.rows, x.rows / consumers) / ROWS
    piece = c.epilogue_piece + c.long_epilogue * x.long_epilogue + c.wide_results * (x.out_bytes > 2)
    finish = c.epilogue + piece * high * x.columns / ROWS / x.split
    finish = finish + _thread_stores(x, c) + c.row_copies * x.whole_sectors * high
    finish = np.where(x.direct > 0, c.epilogue + c.direct_piece * high * x.columns / 8, finish)
    return np.where(x.gather > 0, 0.5 * finish, finish)


def _thread_stores(x: Case, c: Costs) -> Values:
    """Return the microseconds by which a tile's epilogue is longer if threads store it: no products hide
    them, and warpgroups that share a tile hinder each other as much as they help."""
    piece = np.where(x.pingpong > 0, c.thread_stores_pingpong, c.thread_stores)
    lines = c.thread_lines * np.where(x.along_n > 0, x.rows / ROWS, x.rows / ROWS * x.columns / ROWS)
    return x.thread_stores * (piece * x.rows / ROWS * x.columns / ROWS + lines) / x.split


def _warp(x: Case, c: Costs, gpu: Gpu) -> Parts:
    """Return the time of plans of the mma.sync kernels: blocks of one tile, some of them at the same time."""
    groups = np.minimum(x.groups, LARGEST_CLUSTER)
    tiles = ceiling(x.m, x.rows) * ceiling(x.n, x.columns) * x.batch * groups / gpu.multiprocessors
    size = np.where(x.planes > 1, _SUM_BYTES, x.element_bytes)
    high, wide = _part_of_warp(x)
    team = x.rows / high * x.columns / wide * _LANES
    here = np.minimum(ceiling(tiles, 1.0), _resident_warp_blocks(x, team, size))
    multiply = x.rows * x.columns * x.step * x.element_bytes / 2 * x.plane_products / c.warp_products
    loads, used = _warp_loads(x, c, size, high, wide)
    code = _warp_code(x, c, team, size)
    behind = loads * x.split * (x.stages - 1)  # stages behind the end of K are filled with zeros
    steps = ceiling(ceiling(x.k, x.step), x.split * groups)
    staged = (x.columns > _NARROW) & (groups == 1)
    piece = np.where(
        x.columns <= _LANES, c.warp_store_element * ROWS**2, c.warp_store + c.warp_store_odd * x.thread_stores
    )
    piece = np.where(staged, piece, c.warp_direct_element * ROWS**2)
    piece = piece + c.warp_long_epilogue * x.long_epilogue
    loose = x.rows * (x.columns + PADDING) * x.out_bytes > np.maximum(
        _staged_bytes(x, size), MOST_RESULT_BYTES
    )
    piece = piece + c.warp_loose_results * (loose & (x.thread_stores > 0))
    piece = piece + c.warp_wide_results * ((x.out_bytes > 2) & (x.planes == 1))
    store = piece * x.rows * np.minimum(x.columns, x.n) / ROWS**2 / groups
    first = c.warp_first + c.warp_staging * staged + c.warp_exchange * (x.split - 1)
    first = first + c.warp_cluster * _DOUBLINGS[groups.astype(int)]

    latency = c.warp_latency / np.maximum(x.stages - 1, 1) * np.maximum(steps - x.stages, 0) / steps

    def together(blocks: Values) -> Values:
        warps = team / _LANES * x.split * np.maximum(blocks, 1)
        busy = _larger(multiply + used, loads) * blocks * x.split * np.maximum(c.warp_enough / warps, 1)
        busy = _larger(busy, latency)
        return first + steps * (busy + c.warp_step + code * blocks) + (behind + store) * blocks

    whole = tiles // here
    rest = ceiling(tiles - whole * here, 1.0)
    computed = whole * together(here) + (rest > 0) * together(rest)
    reads, stored = _memory_bytes(x, c, size)
    memory = (reads + stored) / c.memory_bytes + _drained(reads + stored, c)
    total = c.warp_launch + _larger(computed, memory)
    none = np.zeros_like(total)
    return Parts(
        total, tiles, none + c.warp_launch, tiles * steps * multiply * x.split,
        tiles * steps * loads * x.split, memory, tiles * store, none, none,
    )  # fmt: skip


def _part_of_warp(x: Case) -> tuple[Values, Values]:
    """Return a warp's rows and columns of a mma.sync kernel's tile: at least four warps share it."""
    most = np.where(x.planes > 1, ROWS / 2, ROWS)
    high, wide = np.minimum(most, x.rows), np.minimum(most, x.columns)
    for _ in range(2):
        few = (x.rows / high * x.columns / wide < 4) & (np.maximum(high, wide) > 16)
        by_rows = (high >= wide) & (high > 16)
        high, wide = np.where(few & by_rows, high / 2, high), np.where(few & ~by_rows, wide / 2, wide)
    return high, wide


def _warp_loads(x: Case, c: Costs, size: Values, high: Values, wide: Values) -> tuple[Values, Values]:
    """Return the microseconds of copies to shared memory and of fragments from there, for a step of K."""
    bytes_ = [np.where(each >= 4, each, 16.0) for each in (x.aligned_a, x.aligned_b)]
    pieces = (x.rows / bytes_[0] + x.columns / bytes_[1]) * x.step * size
    odd = (x.rows * (x.aligned_a < 4) + x.columns * (x.aligned_b < 4)) * x.step * size / _PIECE
    elements = x.rows * x.columns * x.step
    single = elements * (x.single_a / wide + x.single_b / high)
    fragments = elements * (1 / wide + 1 / high)
    each = c.warp_fragment * size + c.warp_split * (x.planes > 1)
    return pieces * c.warp_piece + odd * c.warp_shifted, fragments * each + single * c.warp_element


def _warp_code(x: Case, c: Costs, team: Values, size: Values) -> Values:
    """Return the microseconds by which a step of K waits for code: that of copies is unrolled."""
    moved = other = 0.0
    for lines, aligned in ((x.rows, x.aligned_a), (x.columns, x.aligned_b)):
        bytes_ = lines * x.step * size / team
        moved = moved + bytes_ / _PIECE * (aligned < 4)
        other = other + bytes_ / np.maximum(aligned, 4) * (aligned >= 4)
    held = np.where(x.stages > 1, _COPIES_OF_LOOP, _COPIES_AT_ONCE)
    return c.warp_code * np.maximum(moved + c.warp_copy_code * other - held, 0.0)


def _staged_bytes(x: Case, size: Values) -> Values:
    """Return the bytes of all stages of a mma.sync kernel in shared memory."""
    return x.stages * (x.rows + x.columns) * x.step * size * x.split


def _resident_warp_blocks(x: Case, team: Values, size: Values) -> Values:
    """Return how many blocks of a mma.sync kernel a multiprocessor has at the same time, by its registers and
    shared memory, in which results take the operands' place if they fit."""
    staged = _staged_bytes(x, size)
    results = x.rows * (x.columns + PADDING) * x.out_bytes
    results = np.where(results <= np.maximum(staged, MOST_RESULT_BYTES), results, 0)
    shared = np.maximum(staged, results) + 1024
    sums = x.rows * x.columns / team * np.where(x.planes > 1, 2, 1)
    registers = np.maximum(sums + np.where(x.stages > 1, _LOOP_REGISTERS, _WARP_REGISTERS), 40)
    fit = np.minimum(_SHARED // shared, _REGISTERS // (team * x.split * registers))
    return np.maximum(np.minimum(fit, np.minimum(_THREADS // (team * x.split), _BLOCKS)), 1)


# plans and their problem as the model sees them: numbers, many plans side by side ---------------------------


def problem_columns(problem: Problem, plan: Plan) -> dict[str, float]:
    """Return what the model asks of a problem, as the kernel of a plan computes it."""
    seen = oriented(problem, plan)
    planes, size = planes_of(problem), element_bytes(problem)
    out = seen.out.dtype.word_bits // 8
    across = seen.n if seen.out.k_major else seen.m
    copied = [
        (operand, rows)
        for operand, rows in ((seen.a, seen.m), (seen.b, seen.n))
        if needs_copy(operand, problem.precision)
    ]
    along = [
        not operand.k_major and not needs_transpose(operand, problem.precision)
        for operand in (seen.a, seen.b)
    ]
    return {
        "m": seen.m, "n": seen.n, "k": seen.k, "batch": seen.batch, "element_bytes": size, "out_bytes": out,
        "planes": planes, "plane_products": len(plane_products(planes)),
        "a_along_m": along[0], "b_along_n": along[1],
        "lines_a": _begins_at(seen.a, problem), "lines_b": _begins_at(seen.b, problem),
        "lying_lines_a": _lies_at(seen.a),
        "aligned_a": min(seen.a.alignment, 16), "aligned_b": min(seen.b.alignment, 16),
        "single_a": not seen.a.k_major and size != 2, "single_b": not seen.b.k_major and size != 2,
        "line_bytes": across * out, "along_n": seen.out.k_major,
        "thread_stores": not has_aligned_rows(seen),
        "long_epilogue": problem.epilogue.is_long,
        "promotes": problem.promote is not None or planes > 1,
        "experts": problem.experts,
        "copies": len(copied),
        "transposes": size == 4 and any(needs_transpose(operand, problem.precision) for operand, _ in copied),
        "transposes_b": size == 4 and needs_transpose(seen.b, problem.precision),
        "copied_bytes": sum(_copied_bytes(operand, rows, problem, planes) for operand, rows in copied),
        "copied_a_bytes": needs_copy(seen.a, problem.precision)
        and _copied_bytes(seen.a, seen.m, problem, planes),
    }  # fmt: skip


def _begins_at(operand: Operand, problem: Problem) -> int:
    """Return the bytes, up to a line, at whose multiples the rows of an operand begin; copies have lines."""
    if needs_copy(operand, problem.precision):
        return LINE
    return _lies_at(operand)


def _lies_at(operand: Operand) -> int:
    """Return the bytes, up to a line, at whose multiples the rows of an operand begin as they lie."""
    return gcd(operand.leading * operand.dtype.word_bits // 8, LINE)


def _copied_bytes(operand: Operand, rows: int, problem: Problem, planes: int) -> float:
    """Return the bytes that a copy of an operand reads and writes: its rows are padded to whole lines."""
    batch = problem.batch if operand.batch_stride else 1
    size, along_k = element_bytes(problem), operand.k_major or needs_transpose(operand, problem.precision)
    lines, length = (rows, problem.k) if along_k else (problem.k, rows)
    written = lines * (-(-length * size // LINE) * LINE) * planes
    return float(batch) * (rows * problem.k * operand.dtype.word_bits // 8 + written)


def plan_columns(plan: Plan) -> dict[str, float]:
    """Return what the model asks of a plan."""
    return {
        "warp": plan.family == "warp", "rows": plan.tile[0], "columns": plan.tile[1], "step": plan.tile[2],
        "across": plan.cluster[0], "along": plan.cluster[1],
        "split": plan.split, "groups": plan.groups, "gather": plan.gather, "stages": plan.stages,
        "pingpong": plan.schedule == "pingpong", "by_turns": plan.schedule == "by turns",
        "direct": plan.direct,
        "a_in_registers": plan.a_in_registers, "raster": plan.group, "whole_sectors": plan.whole_sectors,
    }  # fmt: skip


def case_of(problem: Problem, plans: Sequence[Plan]) -> Case:
    """Return the case of some plans of one problem."""
    orientations = {plan.swap: plan for plan in plans}
    by_swap = {swap: problem_columns(problem, plan) for swap, plan in orientations.items()}
    return joined([{**by_swap[plan.swap], **plan_columns(plan)} for plan in plans])


def joined(rows: Sequence[dict[str, Any]]) -> Case:
    """Return the case of many problems and plans."""
    return Case(*[np.array([float(row[name]) for row in rows]) for name in Case._fields])
