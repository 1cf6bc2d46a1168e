"""Plans of the Blackwell kernels, by a model whose costs come from data sheets: no B200 has confirmed them.

The model knows what a tile's products, loads and stores take one multiprocessor, how many tiles each has, and
what crosses the memory bus. It decides which tile is taken, and never the bits: K is one chain in all plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from lanewise.errors import LanewiseError
from lanewise.linalg.kernels.blackwell.traits import CLUSTERS, LINE, ROWS, WIDTHS, most_stages, traits_of
from lanewise.linalg.operand_copies import as_loaded, with_copies
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Estimate, Plan
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import plane_products, planes_of, stored_bits

ARCH = "sm_100a"
#: Rows and columns up to which a product is left to mma.sync: one of its tiles, half of an instruction here.
TOO_SMALL = 64
#: What a plan's `why` says of the model.
UNMEASURED = "the times are estimates from data sheets, which no B200 has confirmed"


@dataclass(frozen=True)
class BlackwellCosts:
    """What the model of the Blackwell kernels assumes; none of it was measured."""

    #: Cycles in a second, and microseconds: a launch, the first loads of a block, a copy of an operand.
    clock: float = 1.85e9
    launch: float = 3.0
    first_loads: float = 1.2
    copy: float = 2.0
    #: Microseconds in which both blocks of a pair meet, at the beginning and at the end.
    pair: float = 1.0
    #: Bytes that a multiprocessor multiplies, reads of shared memory, and loads from L2, in a cycle; products
    #: are counted as bytes of A's rows times columns of B, so that all types have the same number.
    product_bytes: float = 8192.0
    shared_bytes: float = 128.0
    l2_bytes: float = 64.0
    #: Cycles in which four warps bring one column of sums of a tile to memory.
    column: float = 6.0
    #: The same for sums that are added to totals after each stage.
    promoted_column: float = 3.0


B200 = BlackwellCosts()


def suits_tcgen05(problem: Problem) -> bool:
    """Return whether a product is one for tcgen05: f64 and small products are left to mma.sync.

    Which of both it is does not depend on M if plans are batch-invariant. Small floats, and sums that are
    promoted, always are: mma.sync of sm_100 computes e4m3 as f16.

    >>> from lanewise.linalg.rules import problem_of_sizes
    >>> [suits_tcgen05(problem_of_sizes(n, n, n, "bf16")) for n in (32, 256)]
    [False, True]
    """
    if problem.a.dtype.name == "f64":
        return False
    promoted = problem.promote is not None or problem.precision == "f32" or problem.experts > 0
    if promoted or problem.batch_invariant or problem.a.dtype.word_bits == 8:
        return True
    return max(problem.m, problem.n) > TOO_SMALL


def blackwell_plans(problem: Problem) -> Iterator[Plan]:
    """Yield the plans that there are for a problem: tiles of each width, of the product and its transpose, of
    blocks alone and of pairs."""
    step = LINE * 8 // stored_bits(problem)
    for swap, cluster, columns in product((False, True), CLUSTERS, reversed(WIDTHS)):
        tile = (ROWS, columns, step)
        plan = Plan("blackwell", ARCH, tile, 2, cluster, schedule="persistent", swap=swap)
        loaded = as_loaded(problem, plan)
        traits = traits_of(oriented(loaded, plan), plan)
        plan = replace(plan, stages=most_stages(traits))
        try:
            traits_of(oriented(loaded, plan), plan).require_possible()
        except LanewiseError:
            continue
        yield with_copies(problem, plan)


def blackwell_plan(problem: Problem) -> Plan:
    """Return the plan that takes least time by the model."""
    plans = list(blackwell_plans(problem))
    best = min(plans, key=lambda plan: expected(problem, plan).seconds)
    tiles = expected(problem, best).waves * GPUS[ARCH].multiprocessors
    rows, columns, _ = best.tile
    who = "pairs of blocks" if best.cluster[0] > 1 else "blocks"
    why = (
        f"of {len(plans)} candidates a model expects the least time of it: {tiles:.0f} tiles of "
        f"{rows}×{columns}, by {who}, on {GPUS[ARCH].multiprocessors} multiprocessors; {UNMEASURED}"
    )
    return replace(best, why=why)


def expected(problem: Problem, plan: Plan, costs: BlackwellCosts = B200) -> Estimate:
    """Return what the model says of a plan."""
    gpu, size = GPUS[ARCH], stored_bits(problem) / 8
    seen = oriented(problem, plan)
    (rows, columns, step), pair = plan.tile, plan.cluster[0]
    tiles = -(-seen.m // (rows * pair)) * pair * -(-seen.n // columns) * problem.batch
    waves = tiles / gpu.multiprocessors
    read = rows + columns // pair  # rows of A and columns of B that a block loads, and reads of shared memory
    most_tiles = math.ceil(waves)  # tiles of the block that has most
    planes, products = planes_of(problem), len(plane_products(planes_of(problem)))
    steps = -(-problem.k // step)
    multiplied = products * max(rows * columns * LINE / costs.product_bytes, read * LINE / costs.shared_bytes)
    loaded = planes * read * LINE / costs.l2_bytes
    promotes = problem.promote is not None or planes > 1
    stored = columns * costs.column + (steps * columns * costs.promoted_column if promotes else 0)
    cycle = 1e6 / costs.clock
    moved = problem.batch * (
        (seen.m + seen.n) * problem.k * size * planes + seen.m * seen.n * problem.out.dtype.word_bits // 8
    )
    copies = sum(
        costs.copy + rows_of * problem.k * problem.batch * 2 * size * planes / gpu.bandwidth * 1e6
        for rows_of, is_copied in ((problem.m, plan.copy_a), (problem.n, plan.copy_b))
        if is_copied
    )
    first = costs.first_loads + costs.pair * (pair - 1)
    overlapping = {
        "tensor cores": first + (most_tiles * steps * multiplied + stored) * cycle,
        "loads from L2": first + (most_tiles * steps * loaded + stored) * cycle,
        "bandwidth": moved / gpu.bandwidth * 1e6,
        "epilogues": first + most_tiles * stored * cycle,
    }
    parts = {"latency of a launch": costs.launch, **overlapping, "copies of operands": copies}
    seconds = (costs.launch + copies + max(overlapping.values())) / 1e6
    return Estimate(seconds, waves, max(parts, key=parts.__getitem__), math.nan, parts)
