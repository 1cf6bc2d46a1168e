"""How long a plan of the Hopper kernels takes: a model whose figures were measured on an H200.

All arithmetic is on arrays, one element for each plan, so that a thousand plans are compared at once. It
consists of sums, products, quotients, maxima and minima, which every machine rounds alike: the same problem
has the same plan everywhere. `benchmarks/fit_planner.py` says how far off the times are, and fits the costs
to a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lanewise.linalg.planning.gpus import Gpu

#: Rows of one wgmma; bytes of a line of shared memory, which is K of one stage.
ROWS, LINE = 64, 128
#: Columns of a piece of an epilogue, and bytes of a partial sum.
_PIECE, _SUM_BYTES = 64, 4
#: How many times the size of a cluster is doubled, by its size.
_DOUBLINGS = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0])
#: An array with a number for each plan, or one number for all of them.
Values = Any


@dataclass(frozen=True)
class Costs:
    """What things take on a GPU. Times are in microseconds, rates are by microsecond."""

    #: A launch from start to end, the first loads of a block, and each time that a cluster's size doubles.
    launch: float
    first_load: float
    cluster: float
    #: Products of bf16 numbers of one multiprocessor. A wgmma of fewer columns takes as long as one of these.
    products: float
    least_columns: float
    #: Bytes that L2 gives to all multiprocessors, and in short products of one wave or of few rows; how many
    #: products of numbers are short, how many rows are few.
    l2_bytes: float
    l2_bytes_short: float
    short: float
    few: float
    #: Bytes that one multiprocessor takes in, and that memory moves for all.
    port_bytes: float
    memory_bytes: float
    #: Multiprocessors that it takes to fill the memory's bandwidth; what share of their time is lost in a
    #: last wave that is not full.
    filling: float
    uneven: float
    #: Until L2 has written back what others left in it, if at least so many bytes are read.
    drain: float
    dirty_bytes: float
    #: An epilogue, and more for each 64 × 64 results of a warpgroup.
    epilogue: float
    epilogue_piece: float
    #: Parts of K: an exchange of sums in a cluster, one through memory by who comes last, and a second
    #: kernel.
    cluster_exchange: float
    memory_exchange: float
    second_kernel: float
    #: Kernels that copy operands first, and the bytes that they read and write.
    copy: float
    copy_bytes: float


@dataclass(frozen=True)
class Case:
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
    #: Whether A is contiguous along M, and B along N.
    a_along_m: Values
    b_along_n: Values
    #: Whether threads store results, a long function is fused, and sums are promoted.
    thread_stores: Values
    long_epilogue: Values
    promotes: Values
    #: 0, or how many matrices B has, each for some rows of A.
    experts: Values
    #: How many of A and B have rows along K with half a sector (16 bytes) too many.
    half_sectors: Values
    #: Kernels that copy operands first, and the bytes that they read and write.
    copies: Values
    copied_bytes: Values
    #: The plan.
    rows: Values
    columns: Values
    across: Values
    along: Values
    split: Values
    groups: Values
    gather: Values
    stages: Values
    pingpong: Values
    by_turns: Values
    direct: Values
    raster: Values

    def of(self, chosen: Any) -> Case:
        """Return some of the plans, by their places."""
        return Case(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


@dataclass(frozen=True)
class Parts:
    """The microseconds of plans, and of what they consist: parts of a kernel overlap each other."""

    #: The kernel of the product alone, which differs from plan to plan of a problem, and with copies before
    #: it.
    kernel: Values
    total: Values
    #: Tiles for each block or cluster that runs at the same time.
    waves: Values
    launch: Values
    tensor_cores: Values
    l2: Values
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


def expected(case: Case, costs: Costs, gpu: Gpu) -> Parts:
    """Return the time of plans on a GPU.

    The products of a tile, its loads from L2 and what one multiprocessor takes in overlap each other, and all
    of that overlaps the loads from memory. Each expert's last tile is half empty, say.
    """
    c, x = costs, case
    size = x.across * x.along * x.split
    resident = np.where(size <= 2, gpu.multiprocessors, gpu.clustered)
    slots = resident // size
    high = ceiling(x.m, x.rows * x.across) + x.experts // 2
    tiles_of_result = high * ceiling(x.n, x.columns * x.along) * x.batch
    tiles = tiles_of_result * x.groups
    active, waves = np.minimum(tiles * size, resident), ceiling(tiles, slots)
    step = LINE // x.element_bytes
    steps = ceiling(ceiling(x.k, step), x.split * x.groups)
    line = LINE * x.planes

    products = x.rows * np.maximum(x.columns, c.least_columns) * step * x.plane_products
    multiply = products * x.element_bytes / 2 / c.products
    few = np.minimum(x.m, x.n) <= c.few
    is_short = few | ((waves == 1) & (x.m * x.n * x.k * x.batch < c.short))
    loaded = active * (x.rows / x.along + x.columns / x.across) * line
    shared = loaded / np.where(is_short, c.l2_bytes_short, c.l2_bytes) * (1.0 + 0.0625 * x.half_sectors)
    shared = np.maximum(shared, (x.rows + x.columns) * line / c.port_bytes)
    consumers = np.where(x.rows < 2 * ROWS, 1, np.where(x.rows % (2 * ROWS) == 0, 2, x.rows // ROWS))
    finish = c.epilogue + c.epilogue_piece * x.rows / consumers / ROWS * x.columns / _PIECE
    computed = waves * (steps * np.maximum(multiply, shared) + finish)

    moved = (x.m + x.n * np.maximum(x.experts, 1)) * x.k * x.element_bytes + x.m * x.n * x.out_bytes
    moved = moved * x.batch
    filled = np.minimum(1.0, np.maximum(active, 1) / c.filling)
    uneven = np.where(waves > 1, 1.0 + c.uneven * (waves * slots / tiles - 1.0), 1.0)
    drained = c.drain * np.minimum(1.0, moved / c.dirty_bytes)
    memory = moved / (c.memory_bytes * filled) * uneven + drained

    launch = c.launch + c.first_load + c.cluster * _DOUBLINGS[np.asarray(size, int)]
    share = x.rows * x.columns / x.split * _SUM_BYTES
    sums = tiles_of_result * size // x.split * x.rows * x.columns * _SUM_BYTES * x.groups
    by_kernel = c.second_kernel + share / c.port_bytes + sums / c.l2_bytes
    by_last = c.memory_exchange + share * (x.groups + 1) / c.port_bytes
    in_cluster = np.where(x.split > 1, c.cluster_exchange, 0.0)
    through_memory = np.where(x.groups > 1, np.where(x.gather > 0, by_kernel, by_last), 0.0)
    kernel = np.maximum(computed, memory + finish) + launch + in_cluster + through_memory
    copies = np.where(x.copies > 0, c.copy + x.copied_bytes / c.copy_bytes, 0.0)
    return Parts(
        kernel, kernel + copies, tiles / slots, launch, waves * steps * multiply, waves * steps * shared,
        memory, waves * finish, in_cluster + through_memory, copies,
    )  # fmt: skip
