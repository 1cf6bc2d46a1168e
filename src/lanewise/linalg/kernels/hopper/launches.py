"""Products by TMA and wgmma on sm_90a: how a problem and its plan become launches.

The kernel is in `kernel.py`. It stores a result whose rows are contiguous, or whose columns are; which of
both it computes, the product or its transpose, is the plan's `swap`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import s32
from lanewise.isa.multiprocessor import LARGEST_GRID
from lanewise.lang.frontend.kernel import Kernel
from lanewise.linalg.arrays import COUNTER_BYTES, Pointers, batch_of_one
from lanewise.linalg.kernels.copies.launches import copied, loaded, require_copies
from lanewise.linalg.kernels.copies.launches import workspace_bytes as copy_bytes
from lanewise.linalg.kernels.family import Launch, launch
from lanewise.linalg.kernels.hopper.kernel import compiled
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.split_k import workspace_bytes as sum_bytes
from lanewise.linalg.kernels.hopper.traits import LINE, MOST_SHARED, Store, Traits, traits_of
from lanewise.linalg.kernels.parameters import arguments_of
from lanewise.linalg.kernels.sparse.metadata import metadata_shape
from lanewise.linalg.operand_copies import has_long_lines
from lanewise.linalg.orientation import computes_transpose, oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import GPUS, resident
from lanewise.linalg.problem import Problem

#: How many of a tile's last stages consumers multiply one after the other, by how many share a tile.
_MOST_SKEW = {2: 4, 3: 3}
#: Columns of a block's only tile up to which TMA stores it.
_MOST_BY_TMA = 128
#: Bytes of an operand up to which L2 gives up first what is read once, by whether its rows begin at multiples
#: of 128 bytes: two stages read a line that lies in two rows of boxes.
_MOST_READ_ONCE = {True: 5 * GPUS["sm_90a"].l2_bytes, False: 2 * GPUS["sm_90a"].l2_bytes}
#: Bytes of a row and of an operand from which on L2 reads 256 bytes of it at once.
_LEAST_PROMOTED_ROW, _LEAST_PROMOTED = 512, 1.4 * GPUS["sm_90a"].l2_bytes


def grid(traits: Traits, m: int, n: int, batch: int, at_once: int) -> tuple[int, int, int]:
    """Return the blocks of a launch: one (or a cluster) for each tile, or as many as run at once."""
    size = traits.cluster_size
    rows, columns = traits.tiles(m, n)
    if traits.grouped:  # how many tiles there are is known to the kernel alone
        return at_once // size * size, 1, 1
    if traits.one_tile:
        return columns * size, rows, batch * traits.plan.groups
    return min(rows * columns * batch, at_once // size) * size, 1, 1


def for_shape(traits: Traits, m: int, n: int, batch: int, at_once: int) -> Traits:
    """Return the constants for a shape: with one tile for each block if all of them run at the same time.

    Where clusters share a tile's K, each block has a part of one tile, however many there are: nobody waits.
    """
    rows, columns = traits.tiles(m, n)
    tiles, plan = rows * columns * batch, traits.plan
    if plan.groups > 1 and not plan.gather:
        counters = tiles * traits.multicasting * traits.owners * traits.consumers
        if counters * 4 > COUNTER_BYTES:
            raise LanewiseError(
                f"groups={plan.groups}: {tiles} tiles need {counters} counters, and there are only "
                f"{COUNTER_BYTES // 4}: take larger tiles, or groups=1"
            )
    if plan.groups > 1:
        return _skewed(replace(traits, one_tile=True), 0)
    if (
        not traits.pingpong
        and not traits.grouped
        and tiles * traits.cluster_size <= at_once
        and batch <= LARGEST_GRID[2]
        and tiles // batch <= LARGEST_GRID[1]
    ):
        return stored_by_warps(_skewed(replace(traits, one_tile=True), 0))
    return _skewed(traits, plan.skew or usual_skew(traits))


def _skewed(traits: Traits, skew: int) -> Traits:
    return replace(traits, plan=replace(traits.plan, skew=skew))


def usual_skew(traits: Traits) -> int:
    """Return how many of a tile's last stages consumers multiply one after the other.

    A consumer stores its results while the next one multiplies. On an H200 this makes squares of 3072 to 8192
    0.6 to 2 % faster.
    """
    if traits.pingpong or traits.consumers == 1 or traits.promotes or traits.grouped:
        return 0
    return min(traits.plan.stages, _MOST_SKEW.get(traits.consumers, 0))


def stored_by_warps(traits: Traits) -> Traits:
    """Return constants of one tile for each block whose warps store wide results, if there is room.

    Nothing overlaps the end of such a block. On an H200 this makes 1792³, 2048³ and 2560³ 1 to 3 % faster;
    narrow tiles, and tiles whose stores overlap the next tile's products, are faster by TMA.
    """
    if traits.store is not Store.TMA or traits.transposed or traits.store_columns <= _MOST_BY_TMA:
        return traits
    changed = replace(traits, store=Store.WARPS)
    return changed if SharedMemory(changed).total <= MOST_SHARED else traits


def cache_hints(traits: Traits, problem: Problem) -> str:
    """Return what L2 is told of A and B, as in a plan: an operand that is read once is given up first.

    Its lines then take each other's place in L2, and nothing that others left there is written back first. On
    an H200 20 to 100 MB are read in 0.89 to 0.98 of the time, and 330 MB and more in 1.01 to 1.1 of it. Where
    clusters share a tile's K, whoever reads a line again does so at the same time; and eight columns of B are
    little beside what is read of A. Then this holds for both. Lines that L2 reads before they are asked for
    are not given up (`is_promoted`): products would take 1.03 to 1.12 times as long.
    """
    T, hints = traits, ""
    rows, columns = T.tiles(problem.m, problem.n)
    together = T.plan.groups > 1 or (columns <= 1 and T.bn == 8)
    of_b = T.element_bytes, T.planes
    of_a = (4, 1) if T.splits_a else of_b
    sides = ("A", problem.a, problem.m, columns, of_a), ("B", problem.b, problem.n, rows, of_b)
    for name, operand, lines, readers, (size, planes) in sides:
        repeated = problem.batch > 1 and not operand.batch_stride
        read_once = together or (readers <= 1 and not repeated)
        read = lines * problem.k * size * planes * (1 if repeated else problem.batch)
        if read_once and read > _MOST_READ_ONCE[operand.leading * size % LINE == 0]:
            return "--"
        hints += "f" if read_once and not is_promoted(problem, name) else "-"
    return hints


def is_promoted(problem: Problem, name: str) -> bool:
    """Return whether L2 reads 256 bytes of an operand at once: those that the next stages ask for.

    Where rows along K do not begin at multiples of 128 bytes, each 128 bytes of a stage lie in two lines, and
    memory would be asked for parts of lines. On an H200 products that are bound by such an operand run at
    1.03 to 1.23 times the speed if it is larger than L2, and at 0.88 to 1.0 if it is smaller; rows that are
    short, or lie along M or N, gain nothing or lose 2 %.
    """
    operand, lines = (problem.a, problem.m) if name == "A" else (problem.b, problem.n)
    size = operand.dtype.word_bits // 8
    matrices = max(problem.experts if name == "B" else 0, problem.batch if operand.batch_stride else 1)
    whole = lines * problem.k * size * matrices
    long = problem.k * size >= _LEAST_PROMOTED_ROW and whole >= _LEAST_PROMOTED
    return operand.k_major and operand.leading * size % LINE != 0 and long


def kernel(problem: Problem, plan: Plan) -> Kernel:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(_launched_traits(problem, plan))


def launches(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int | None = None
) -> list[Launch]:
    """Return the launches of a plan, in order: of copies, of the products, and of the sum over split K."""
    problem, pointers, made = copied(problem, plan, pointers)
    problem, pointers = oriented_launch(problem, plan, pointers)
    made.append(_products(problem, plan, pointers, multiprocessors or GPUS[plan.arch].multiprocessors))
    return [*made, _reduction(problem, plan, pointers)] if plan.gather else made


def _products(problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int) -> Launch:
    """Return the launch of the products of a problem as the kernel computes it.

    Of a sparse A, `pointers.a` are the values that are kept, and `pointers.metadata` says where they stood.
    """
    if problem.sparse:
        T, at_once = traits_of(problem, plan), multiprocessors
    else:
        T, at_once = _traits_for_launch(problem, plan, multiprocessors)
    arguments: dict[str, Any] = arguments_of(problem, pointers, plan.group)
    arguments["counters"], arguments["sums"] = _split_memory(T, problem, pointers)
    if problem.sparse:
        arguments["stage_words"] = prod(metadata_shape(problem.m, problem.k, T.element_bytes)[1:])
    if T.planes > 1 and pointers.out.ndim == 2:
        arguments["C"] = batch_of_one(arguments["C"])
    if T.splits_a:
        a = arguments["A"] if pointers.a.ndim == 3 else batch_of_one(arguments["A"])
        arguments["A"] = a[:1] if T.repeats(T.problem.a) else a
    blocks = grid(T, problem.m, problem.n, problem.batch, at_once)
    configured = compiled(T)[blocks, T.threads, SharedMemory(T).total]
    promoted = [name for name in "AB" if is_promoted(problem, name)]
    return launch(configured, arguments, T.after_copy, promoted)


def _reduction(problem: Problem, plan: Plan, pointers: Pointers) -> Launch:
    """Return the launch of the kernel that adds the groups' sums."""
    from lanewise.linalg.kernels.hopper.split_k import reduction, reduction_shape

    traits = traits_of(problem, replace(plan, stages=0))  # the same kernel for any number of stages
    arguments = arguments_of(problem, pointers)
    arguments["sums"] = _split_memory(traits, problem, pointers)[1]
    shape = reduction_shape(traits, problem.m, problem.n, problem.batch)
    return launch(reduction(traits)[shape], arguments, overlap=True)


def _traits_for_launch(problem: Problem, plan: Plan, multiprocessors: int) -> tuple[Traits, int]:
    """Return what is compiled for a problem as the kernel computes it, and how many blocks run at once."""
    traits = traits_of(problem, plan)
    at_once = resident(traits.cluster_size, multiprocessors)
    traits = replace(traits, plan=replace(traits.plan, l2=plan.l2 or cache_hints(traits, problem)))
    return for_shape(traits, problem.m, problem.n, problem.batch, at_once), at_once


def _launched_traits(problem: Problem, plan: Plan) -> Traits:
    """Return what is compiled for a problem."""
    seen = oriented(loaded(problem, plan), plan)
    return _traits_for_launch(seen, plan, GPUS[plan.arch].multiprocessors)[0]


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""
    if plan.family == "sparse":
        raise LanewiseError("plans of family 'sparse' are for products with a b of lw.sparsify")
    traits = _launched_traits(problem, plan)
    require_possible(traits)
    if not plan.a_in_registers:
        require_copies(problem, plan)
        return
    lying, other = "ba" if computes_transpose(problem, plan) else "ab"
    operand = getattr(problem, lying)
    if getattr(plan, f"copy_{lying}") or operand.inner != 1 or min(operand.leading, operand.batch_stride) < 0:
        raise LanewiseError(
            f"a_in_registers=True: {lying} is loaded as it lies, which takes neighbours in memory and "
            f"copy_{lying}=False"
        )
    if not (traits.loads_a_apart or operand.tma):
        raise LanewiseError(
            f"a_in_registers=True: TMA cannot load {lying} as it lies: take a_in_registers=False and "
            f"copy_{lying}=True"
        )
    if traits.threads_load_a and has_long_lines(oriented(problem, plan)):
        raise LanewiseError(
            f"a_in_registers=True: {lying} has lines of 2 GiB or more, which threads do not load as they "
            f"lie: take a_in_registers=False and copy_{lying}=True"
        )
    require_copies(problem, plan, names=other)


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes: counters, copies of operands, sums over split K."""
    bytes_ = copy_bytes(problem, plan)
    if plan.groups > 1:
        seen = oriented(problem, plan)
        bytes_ += sum_bytes(traits_of(seen, plan), seen.m, seen.n, seen.batch)
    return bytes_ + COUNTER_BYTES if bytes_ else 0


def _split_memory(traits: Traits, problem: Problem, pointers: Pointers) -> tuple[Any, Any]:
    """Return the workspace's counters and memory of sums; null if clusters share no tile."""
    if traits.plan.groups == 1:
        return 0, 0
    size = sum_bytes(traits, problem.m, problem.n, problem.batch)
    assert pointers.workspace is not None
    end = len(pointers.workspace) // 128 * 128  # copies lie before it
    sums = np.int32 if problem.sums is s32 else np.float32
    return pointers.workspace[:COUNTER_BYTES].view(np.int32), pointers.workspace[end - size : end].view(sums)
