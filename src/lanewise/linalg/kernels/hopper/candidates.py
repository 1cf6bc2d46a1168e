"""What the Hopper kernels take for a plan by a model of their time, and a plan with its stages filled in.

The model's figures were fitted to an H200: the speed of products, what L2 gives to all multiprocessors and to
one of them, the cost of a launch, of a tile's epilogue, and of an exchange between blocks. Which plans are
worth a look is up to `planning/hopper_model.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import ROWS, Store, Traits, consumers_of, resident, traits_of
from lanewise.linalg.order import element_bytes, plane_products, planes_of
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem

#: bf16 products of one multiprocessor in a microsecond; bytes that L2 gives to all and to one, and memory.
_PRODUCTS, _L2, _PORT, _MEMORY = 3.3e6, 7.6e6, 1.1e5, 4.2e6
#: What L2 gives to all in short products of one wave, and to those with few rows; so many products of numbers
#: are short, so many rows few.
_L2_SHORT, _SHORT, _FEW = 1.2e7, 5e9, 128
#: Microseconds of a launch, and more for each time that clusters are doubled; until the first loads are
#: there; of an epilogue, and for each 64 columns of a warpgroup.
_LAUNCH, _CLUSTER, _FILL, _EPILOGUE, _TURN = 2.9, 0.4, 1.1, 0.4, 0.5
#: Microseconds of an exchange in a cluster, of one through memory by who comes last and for each byte that it
#: reads alone, and of a second kernel.
_CLUSTER_EXCHANGE, _MEMORY_EXCHANGE, _SECOND_KERNEL = 0.95, 2.4, 2.6
#: Blocks that run at the same time on the GPU that plans are for, by the size of a cluster.
RESIDENT = {size: resident(size, GPUS["sm_90a"].multiprocessors) for size in (1, 2, 4, 8)}
#: Microseconds until L2 has written back what others left in it, if more than some bytes are read.
_DRAIN, _DIRTY_BYTES = 2.2, 1.6e7
#: Multiprocessors that it takes to fill the memory's bandwidth; how much a last wave that is not full costs.
_FILLING, _UNEVEN = 60, 0.6
_MOST_STAGES, _LEAST_STAGES = 16, 3


class Sizes(NamedTuple):
    """A problem as the model sees it, in the kernel's orientation: its sizes, and the bytes of elements."""

    m: int
    n: int
    k: int
    batch: int
    element_bytes: int
    out_bytes: int
    planes: int
    #: How many matrices B has, if rows of A belong to experts; how much more L2 reads between sectors.
    experts: int = 0
    sectors: float = 1.0

    @classmethod
    def of(cls, problem: Problem) -> Sizes:
        """Return the sizes of a problem that is oriented as the kernel computes it."""
        size, planes = element_bytes(problem), planes_of(problem)
        out = problem.out.dtype.word_bits // 8
        between = sectors(problem, size)
        return cls(
            problem.m, problem.n, problem.k, problem.batch, size, out, planes, problem.experts, between
        )  # fmt: skip


class Cut(NamedTuple):
    """What of a plan the model asks for."""

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    split: int = 1
    groups: int = 1
    gather: bool = False

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.split


def expected_time(sizes: Sizes, cut: Cut) -> tuple[float, float]:
    """Return the microseconds that the model expects, and the waves of tiles."""
    (rows, columns, step), (across, along), size = cut.tile, cut.cluster, cut.cluster_size
    high = -(-sizes.m // (rows * across)) + sizes.experts // 2  # each expert's last tile is half empty, say
    each = high * -(-sizes.n // (columns * along)) * sizes.batch
    tiles, at_once = each * cut.groups, RESIDENT[size] // size
    active = min(tiles * size, RESIDENT[size])
    parts = cut.split * cut.groups
    all_steps = -(-sizes.k // step)
    steps = -(-all_steps // parts)
    line = step * sizes.element_bytes * sizes.planes
    products = rows * max(columns, 32) * step * len(plane_products(sizes.planes))
    multiply = products * sizes.element_bytes / 2 / _PRODUCTS
    waves = -(-tiles // at_once)
    few = min(sizes.m, sizes.n) <= _FEW
    short = few or (waves == 1 and sizes.m * sizes.n * sizes.k * sizes.batch < _SHORT)
    shared = active * (rows / along + columns / across) * line / (_L2_SHORT if short else _L2)
    shared *= sizes.sectors
    port = (rows + columns) * line / _PORT
    finish = _EPILOGUE + _TURN * rows / consumers_of(rows) / ROWS * columns / 64
    time = waves * (steps * max(multiply, shared, port) + finish)
    moved = (sizes.m + sizes.n * max(sizes.experts, 1)) * sizes.k * sizes.element_bytes
    moved += sizes.m * sizes.n * sizes.out_bytes
    filled = min(1.0, max(active, 1) / _FILLING)  # fewer blocks do not fill the memory's bandwidth
    moved *= sizes.batch
    drained = _DRAIN * min(1.0, moved / _DIRTY_BYTES)
    uneven = 1.0 + _UNEVEN * (waves * at_once / tiles - 1.0) if waves > 1 else 1.0
    time = max(time, moved / (_MEMORY * filled) * uneven + drained + finish)
    time += _LAUNCH + _FILL + _CLUSTER * (size.bit_length() - 1)
    if cut.split > 1:
        time += _CLUSTER_EXCHANGE
    if cut.groups > 1:
        share = rows * columns / cut.split * 4
        if cut.gather:
            sums = each * size // cut.split * rows * columns * 4 * cut.groups
            time += _SECOND_KERNEL + share / _PORT + sums / _L2
        else:
            time += _MEMORY_EXCHANGE + share * (cut.groups + 1) / _PORT
    return time, tiles / at_once


def fitted(problem: Problem, plan: Plan) -> Plan | None:
    """Return a plan with as many stages as shared memory holds; None if the kernel cannot have its tile.

    Results leave through two buffers at least. Those that threads store one by one, and those of sums that
    were promoted, leave all at once, if three stages are left then.
    """
    seen = oriented(problem, plan)
    most: Plan | None = None
    for stages in range(_MOST_STAGES, 1, -1):
        tried = replace(plan, stages=stages)
        try:
            traits = traits_of(seen, tried)
            require_possible(traits)
        except LanewiseError:
            continue
        memory = SharedMemory(traits)
        enough = memory.buffers >= min(2, memory.subtiles) and not traits.promotes
        stores_at_once = traits.store is Store.REGISTERS or plan.gather or memory.holds_all_results
        if stores_at_once or (traits.store is Store.TMA and enough):
            return tried
        most = most or tried
        if stages <= _LEAST_STAGES:
            break
    return most


def sectors(problem: Problem, element_bytes: int) -> float:
    """Return how much more L2 reads where rows along K have half a sector of 32 bytes too many.

    Every second row begins between two sectors then, and lines of 128 bytes take five of them instead of
    four. K alone decides, not where an array lies, as plans must not depend on that.
    """
    if problem.k * element_bytes % 32 != 16:
        return 1.0
    return 1.0 + 0.0625 * (problem.a.k_major + problem.b.k_major)


def traits_for(problem: Problem, plan: Plan) -> Traits:
    """Return what is compiled for a problem and a plan, on the GPU that plans are for."""
    from lanewise.linalg.kernels.hopper.launches import for_shape

    seen = oriented(problem, plan)
    traits = traits_of(seen, plan)
    return for_shape(traits, seen.m, seen.n, seen.batch, RESIDENT[traits.cluster_size])
