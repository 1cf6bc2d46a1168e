"""A larger model of the Hopper kernels' time, to be fitted to a sweep before plans are chosen by it.

Beside what `lanewise.linalg.planning.model` has it knows of stages, of pingpong, of operands along M and N,
of epilogues that the next tile's products hide, of operands that L2 does not keep, and of copies. Its costs
are first guesses: `benchmarks/fit_planner.py --model larger --fit` fits them, and says what the choice by
each of the two models costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.linalg.planning.gpus import Gpu
from lanewise.linalg.planning.model import LINE, ROWS, Case, ceiling

#: An array with a number for each plan.
Values = Any
#: How many times the size of a cluster is doubled, by its size.
_DOUBLINGS = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0])


@dataclass(frozen=True)
class Costs:
    """What things take on a GPU. Times are in microseconds, rates are by microsecond."""

    #: A launch until its blocks run, and its end. The first loads of a block until they are in shared memory.
    launch: float = 2.9
    first_load: float = 1.1
    #: Clusters: for each time that their size doubles.
    cluster: float = 0.4
    #: Products of bf16 numbers of one multiprocessor.
    products: float = 3.3e6
    #: Columns that a wgmma takes beside its own, and the fewest that it takes time for.
    extra_columns: float = 4.0
    least_columns: float = 32.0
    #: A step of K beside its products: for one warpgroup, and for each of several that share the tensor
    #: cores.
    step_alone: float = 0.02
    step_shared: float = 0.01
    #: From the request of a stage to its arrival; by this and the number of stages loads are bound.
    load_latency: float = 1.0
    #: Bytes that L2 gives to all multiprocessors, that one takes in, and that memory moves.
    l2_bytes: float = 7.6e6
    port_bytes: float = 1.1e5
    memory_bytes: float = 4.2e6
    #: Bytes that memory moves for one multiprocessor that loads alone.
    memory_port_bytes: float = 7.0e4
    #: Of operands that do not stay in L2, what share is read again for each wave of tiles.
    read_again: float = 0.3
    #: What operands that are contiguous along M or N add to loads (a share), by the one and by the other.
    loads_along_m: float = 0.05
    loads_along_n: float = 0.05
    #: What rows along K that begin between two sectors of 32 bytes add to what L2 reads (a share).
    half_sectors: float = 0.0625
    #: An epilogue: of a tile, of 64 × 64 results of a warpgroup, more if threads store, if values go through
    #: long functions; what share of it the next tile's products do not hide.
    epilogue: float = 0.4
    epilogue_piece: float = 0.3
    thread_stores: float = 0.3
    long_epilogue: float = 0.5
    #: Of a 4-byte result: more for each piece.
    wide_results: float = 0.2
    exposed_cooperative: float = 0.6
    exposed_pingpong: float = 0.1
    #: Results from registers straight to memory, of a piece of 64 × 8.
    direct_piece: float = 0.05
    #: Parts of K: an exchange in a cluster, one through memory, bytes of sums that a block reads in the
    #: latter case, a second kernel that adds, and bytes of sums that it reads.
    cluster_exchange: float = 0.95
    memory_exchange: float = 2.4
    exchange_bytes: float = 1.1e5
    second_kernel: float = 2.6
    gather_bytes: float = 5e6
    #: A kernel that copies operands, a second one, and the bytes that they move.
    copy: float = 2.0
    second_copy: float = 0.7
    copy_bytes: float = 2.5e6
    #: What adding the sums of a step to f32 totals takes, for 64 × 64 of a warpgroup; and if it has two
    #: accumulators, so that products go on meanwhile.
    promotion: float = 0.03
    promotion_by_turns: float = 0.015
    #: Tiles of a last wave that is not full: what share of a whole wave they take at least.
    last_wave: float = 0.8
    #: How many times as fast 8-bit numbers are multiplied as 16-bit numbers.
    eight_bit: float = 1.9
    #: How much slower than others pingpong multiplies (a share).
    pingpong_share: float = 0.0
    #: Microseconds for each tile of a persistent block beside its products.
    tile: float = 0.1


def _larger(*values: Values) -> Values:
    """Return nearly the largest of some times: things that overlap hinder each other if both take long."""
    total: Values = 0.0
    for value in values:
        squared = value * value
        total = total + squared * squared
    return np.sqrt(np.sqrt(total))


def expected(case: Case, costs: Costs, gpu: Gpu) -> Values:
    """Return the microseconds of plans on a GPU."""
    c, x = costs, case
    size = x.across * x.along * x.split
    resident = np.where(size <= 2, gpu.multiprocessors, gpu.clustered)
    slots = np.floor(resident / size)
    high, wide = ceiling(x.m, x.rows * x.across) + np.floor(x.experts / 2), ceiling(x.n, x.columns * x.along)
    tiles = high * wide * x.batch * x.groups
    whole = np.floor(tiles / slots)
    rest = tiles - whole * slots
    step = LINE / x.element_bytes
    steps = ceiling(ceiling(x.k, step), x.split * x.groups)
    consumers = np.where(
        x.rows >= 2 * ROWS, np.where(x.rows == 192, 3.0, 2.0), np.where(x.pingpong, 2.0, 1.0)
    )

    # one step of K of one tile
    taken = np.maximum(x.columns, c.least_columns) + c.extra_columns
    rate = c.products * np.where(x.element_bytes == 1, c.eight_bit, 2 / x.element_bytes)
    multiply = x.rows * taken * step * x.plane_products / rate * (1 + c.pingpong_share * x.pingpong)
    multiply = multiply + np.where(consumers == 1, c.step_alone, c.step_shared)
    promotion = np.where(x.by_turns, c.promotion_by_turns, c.promotion)
    multiply = multiply + x.promotes * promotion * x.rows / consumers * x.columns / ROWS**2
    line = LINE * x.planes
    factor_a, factor_b = 1 + c.loads_along_m * x.a_along_m, 1 + c.loads_along_n * x.b_along_n
    asked = (x.rows / x.along * factor_a + x.columns / x.across * factor_b) * line
    asked = asked * (1 + c.half_sectors * x.half_sectors)
    port = (x.rows * factor_a + x.columns * factor_b) * line / c.port_bytes
    latency = c.load_latency / x.stages

    # epilogues
    own_rows = np.where(x.pingpong, x.rows, x.rows / consumers)
    pieces = own_rows / ROWS * x.columns / ROWS / x.split
    each_piece = c.epilogue_piece + c.thread_stores * x.thread_stores + c.long_epilogue * x.long_epilogue
    each_piece = each_piece + c.wide_results * (x.out_bytes > 2)
    finish = c.epilogue + each_piece * pieces
    finish = np.where(x.direct, c.epilogue + c.direct_piece * own_rows / ROWS * x.columns / 8, finish)
    finish = np.where(x.gather, 0.5 * finish, finish)
    exposed = np.where(x.pingpong, c.exposed_pingpong, c.exposed_cooperative)
    between = finish * np.minimum(exposed, 1) + c.tile

    def mainloop(active: Values) -> Values:
        return steps * _larger(multiply, active * asked / c.l2_bytes, port, latency)

    full, last = mainloop(slots * size), mainloop(np.maximum(rest, 1) * size)
    last = np.maximum(last, c.last_wave * full * (whole > 0))
    has_rest = rest > 0
    compute = whole * (full + between) + has_rest * (last + between) - between + finish

    # memory: every operand once, and again where waves of tiles do not find it in L2
    reads = (x.m + x.n * np.maximum(x.experts, 1)) * x.k * x.element_bytes * x.planes * x.batch
    stored = x.m * x.n * x.out_bytes * x.batch
    band = np.minimum(x.raster, high) * x.across
    beside = np.minimum(np.maximum(slots * size / x.split / band, 1), wide * x.along)
    again = (band * x.rows + beside * x.columns) * x.k * x.element_bytes * x.planes * tiles / slots - reads
    again = np.where(reads + stored > gpu.l2_bytes, np.maximum(again, 0), 0)
    active = np.minimum(tiles, slots) * size
    rate = np.minimum(c.memory_bytes, active * c.memory_port_bytes)
    memory = (reads + stored + c.read_again * again) / rate

    launch = c.launch + c.first_load + c.cluster * _DOUBLINGS[np.asarray(size, int)]
    exchange = np.where(x.split > 1, c.cluster_exchange, 0.0)
    sums = x.rows * x.columns / x.split * 4
    gathered = high * wide * x.across * x.along * x.batch * x.rows * x.columns * 4 * x.groups
    through = np.where(
        x.gather,
        c.second_kernel + gathered / c.gather_bytes,
        c.memory_exchange + sums * (x.groups + 1) / c.exchange_bytes,
    )
    exchange = exchange + np.where(x.groups > 1, through, 0.0)
    copies = (
        np.where(x.copies > 0, c.copy + c.second_copy * (x.copies - 1), 0.0) + x.copied_bytes / c.copy_bytes
    )
    total = launch + _larger(compute, memory) + exchange + copies
    return total
