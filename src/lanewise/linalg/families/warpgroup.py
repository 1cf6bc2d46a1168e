"""Products by TMA and wgmma on sm_90a: how a problem and its plan become a launch.

The kernel is in `warpgroup_kernel.py`. It stores a result whose rows are contiguous, or whose columns are;
which of both it computes, the product or its transpose, is the plan's `swap`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import tf32
from lanewise.linalg.families.build import MOST_SHARED, SWIZZLED, Build, build_of
from lanewise.linalg.families.copies.launches import copied, copies
from lanewise.linalg.families.copies.launches import workspace_bytes as copy_bytes
from lanewise.linalg.families.meeting import meeting_bytes
from lanewise.linalg.families.warpgroup_kernel import compiled, operand_tiles
from lanewise.linalg.loading import needs_copy
from lanewise.linalg.orientation import oriented, oriented_launch
from lanewise.linalg.plan import Plan
from lanewise.linalg.pointers import COUNTER_BYTES, Pointers, flat
from lanewise.linalg.problem import Problem


def resident(build: Build, multiprocessors: int) -> int:
    """Return how many blocks run at the same time: clusters of four or eight leave some multiprocessors idle.

    On an H200 with 132 of them, 30 clusters of four and 15 of eight run at the same time.
    """
    return multiprocessors if build.cluster_size <= 2 else multiprocessors * 10 // 11


def grid(build: Build, m: int, n: int, batch: int, multiprocessors: int) -> tuple[int, int, int]:
    """Return the blocks of a launch: one (or a cluster) for each tile, or as many as run at once."""
    across, along = build.cluster
    rows, columns = -(-m // (build.bm * across)), -(-n // (build.bn * along))
    if build.grouped:  # how many tiles there are is known to the kernel alone
        return multiprocessors // build.cluster_size * build.cluster_size, 1, 1
    if build.single:
        return columns * build.cluster_size, rows, batch * build.groups
    return min(rows * columns * batch, multiprocessors // build.cluster_size) * build.cluster_size, 1, 1


def for_shape(build: Build, m: int, n: int, batch: int, multiprocessors: int) -> Build:
    """Return the build for a shape: with one tile for each block if all of them run at the same time.

    Where clusters share a tile's K, each block has a part of one tile, however many there are: nobody waits.
    """
    across, along = build.cluster
    tiles = -(-m // (build.bm * across)) * -(-n // (build.bn * along)) * batch
    build = replace(build, l2=build.l2 or _hints(build, m, n))
    if build.gather:
        return replace(build, single=True, skew=0)
    if build.groups > 1:
        counters = tiles * build.sharing * build.owners * build.consumers
        if counters * 4 > COUNTER_BYTES:
            raise LanewiseError(
                f"groups={build.groups}: {tiles} tiles need {counters} counters, and there are only "
                f"{COUNTER_BYTES // 4}: take larger tiles, or groups=1"
            )
        return replace(build, single=True, skew=0)
    if (
        build.schedule == "cooperative"
        and not build.grouped
        and tiles * build.cluster_size <= multiprocessors
        and batch <= _MOST_ALONG_Z
        and tiles // batch <= _MOST_ALONG_Z
    ):
        return stored_by_warps(replace(build, single=True, skew=0))
    if _stores_aside(build):  # the warps that store take the warpgroups' results in a fixed order
        return replace(build, skew=0, aside=True)
    return replace(build, skew=build.skew or skew(build))


def skew(build: Build) -> int:
    """Return how many of a tile's last stages warpgroups multiply one after the other.

    A warpgroup stores its results while the next one multiplies. On an H200 this makes squares of 3072 to
    8192 0.6 to 2 % faster.
    """
    if build.schedule != "cooperative" or build.consumers == 1 or build.promotes or build.grouped:
        return 0
    return min(build.stages, _MOST_SKEW.get(build.consumers, 0))


#: The same by the number of warpgroups that share a tile, if there are so many stages.
_MOST_SKEW = {2: 4, 3: 3}


def stored_by_warps(build: Build) -> Build:
    """Return a build of one tile for each block whose warps store wide results themselves, if there is room.

    Nothing overlaps the end of such a block. On an H200 this makes 1792³, 2048³ and 2560³ 1 to 3 % faster;
    narrow tiles, and tiles whose stores overlap the next tile's products, are faster by TMA.
    """
    if not build.store_by_tma or build.transposed or build.store_columns <= _MOST_BY_TMA:
        return build
    changed = replace(build, store_by_tma=False, by_warps=True)
    return changed if changed.shared_bytes <= MOST_SHARED else build


def _stores_aside(build: Build) -> bool:
    """Return whether idle warps store the results of a persistent block: where threads have to store rows."""
    threads_store = not (build.store_by_tma or build.wide_stores or build.direct or build.transposed)
    return (
        threads_store
        and build.schedule == "cooperative"
        and build.split == 1
        and not (build.grouped or build.promotes)
    )


def with_room_for_results(problem: Problem, plan: Plan) -> Plan:
    """Return a plan with fewer stages, at least three, if idle warps then store a tile's results at once.

    On an H200, 4095³ of bf16 takes 213 µs with three stages, and 226 with four.
    """
    seen = oriented(problem, plan)
    for stages in range(plan.stages, _LEAST_STAGES - 1, -1):
        build = build_of(seen, replace(plan, stages=stages))
        build = for_shape(build, seen.m, seen.n, seen.batch, resident(build, _MULTIPROCESSORS))
        if not build.aside:
            return plan
        if build.stages_all_at_once:
            return replace(plan, stages=stages)
    return plan


#: Stages that are enough, and the multiprocessors of the GPU that plans are for.
_LEAST_STAGES, _MULTIPROCESSORS = 3, 132
#: Columns of a block's only tile up to which TMA stores it.
_MOST_BY_TMA = 128


def _hints(build: Build, m: int, n: int) -> str:
    """Return what L2 is told of A and B, as in a plan: an operand that is read once is given up first.

    Where clusters share a tile's K, whoever reads a line again does so at the same time; and eight columns of
    B are little beside what is read of A. Then this holds for both.
    """
    across, along = build.cluster
    if build.groups > 1 or (n <= build.bn * along and build.bn == 8):
        return "ff"
    return ("f" if n <= build.bn * along else "-") + ("f" if m <= build.bm * across else "-")


#: Blocks that a grid can have along y and z.
_MOST_ALONG_Z = 65535


def tensor_maps(build: Build, a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """Return the tensor maps of A, B and the result (the array itself if it is not stored by TMA)."""
    from lanewise.tensor_maps import tensor_map

    T = build
    lead, planes = ((1,), (T.planes,)) if T.batched else ((), ())
    tile_a, tile_b = operand_tiles(T)
    kind: Any = {"dtype": "tf32"} if T.a is tf32 else {}
    rows_a = a if T.a_k_major else a.swapaxes(-1, -2)
    rows_b = b.swapaxes(-1, -2) if T.b_k_major else b
    rows_out = out.swapaxes(-1, -2) if T.transposed else out
    if T.planes > 1 and rows_out.ndim == 2:
        rows_out = rows_out[None]
    of_out = flat(rows_out)
    if T.store_by_tma:
        wide = T.box_columns * T.out.bits // 8
        swizzle: Any = f"{wide}B" if wide in SWIZZLED else "none"
        of_out = tensor_map(rows_out, (*lead, T.box_rows, T.box_columns), swizzle=swizzle)
    return (
        tensor_map(rows_a, (*(() if T.grouped else planes), *tile_a.box), swizzle="128B", **kind),
        tensor_map(rows_b, (*planes, *tile_b.box), swizzle="128B", **kind),
        of_out,
    )


def kernel(problem: Problem, plan: Plan) -> Any:
    """Return the kernel of a plan, cached by what is compiled in."""
    return compiled(build_of(oriented(problem, plan), plan))


def launch(
    problem: Problem, plan: Plan, pointers: Pointers, stream: Any = None, multiprocessors: int = 132
) -> None:
    """Compute a problem by a plan, on the GPU of the arrays or, for NumPy's, on the CPU machine."""
    if plan.copy_a or plan.copy_b:
        problem, pointers = copied(problem, plan, pointers, stream)
    after_copy = plan.copy_a or plan.copy_b
    for number, (configured, arguments) in enumerate(launches(problem, plan, pointers, multiprocessors)):
        configured(*arguments, stream=stream, overlap=number > 0 or after_copy)


def launches(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int = 132
) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the configured kernels of a plan and their arguments, in order."""
    found = [prepared(problem, plan, pointers, multiprocessors)]
    if plan.gather:
        found.append(prepared_gathering(problem, plan, pointers))
    return found


def prepared_gathering(problem: Problem, plan: Plan, pointers: Pointers) -> tuple[Any, tuple[Any, ...]]:
    """Return the kernel that adds the groups' sums, configured, and its arguments."""
    from lanewise.linalg.families.gathering import gathering, gathering_shape

    problem, pointers = oriented_launch(problem, plan, pointers)
    build = replace(build_of(problem, plan), stages=0)  # the same kernel for any number of stages
    arguments = (
        flat(pointers.out.swapaxes(-1, -2) if build.transposed else pointers.out),
        problem.m, problem.n, problem.out.leading, problem.out.batch_stride,
        _or_null(pointers.bias), _or_null(pointers.residual), *_residual_strides(problem),
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        float(pointers.alpha), float(pointers.beta), problem.folded_rows,
        _meeting_memory(build, problem, pointers)[1],
    )  # fmt: skip
    return gathering(build)[gathering_shape(build, problem.m, problem.n, problem.batch)], arguments


def _residual_strides(problem: Problem) -> tuple[int, int, int]:
    """Return the residual's steps along rows, columns and the batch."""
    residual = problem.epilogue.residual
    if residual is None:
        return 0, 0, 0
    return (*residual.strides, residual.batch_stride)


def prepared(
    problem: Problem, plan: Plan, pointers: Pointers, multiprocessors: int = 132
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel of the products and its arguments: to be launched, or checked."""
    problem, pointers = oriented_launch(problem, plan, pointers)
    build, at_once = _build_for_launch(problem, plan, multiprocessors)
    blocks = grid(build, problem.m, problem.n, problem.batch, at_once)
    arguments = (
        *tensor_maps(build, pointers.a, pointers.b, pointers.out),
        problem.m, problem.n, problem.k, problem.batch, plan.group,
        problem.out.leading, problem.out.batch_stride,
        _or_null(pointers.bias), _or_null(pointers.residual), *_residual_strides(problem),
        _or_null(pointers.scale_a), _or_null(pointers.scale_b), _or_null(pointers.scale_out),
        *(_scale_strides(pointers.scale_a, pointers.scale_b) if _scales_blocks(problem) else (0, 0, 0, 0)),
        float(pointers.alpha), float(pointers.beta),
        _or_null(pointers.starts), _or_null(pointers.ends), problem.experts, int(problem.clears_rest),
        problem.folded_rows,
        *_meeting_memory(build, problem, pointers),
    )  # fmt: skip
    return compiled(build)[blocks, build.threads, build.shared_bytes], arguments


def _build_for_launch(problem: Problem, plan: Plan, multiprocessors: int) -> tuple[Build, int]:
    """Return what is compiled for a problem as the kernel computes it, and how many blocks run at once."""
    build = build_of(problem, plan)
    at_once = resident(build, multiprocessors)
    return for_shape(build, problem.m, problem.n, problem.batch, at_once), at_once


def require_kernel(problem: Problem, plan: Plan) -> None:
    """Raise the error that a launch would raise if there is no kernel of a plan for a problem."""
    of_a, of_b = copies(problem, plan)
    loaded = replace(
        problem,
        a=problem.a if of_a is None else of_a.result,
        b=problem.b if of_b is None else of_b.result,
    )
    _build_for_launch(oriented(loaded, plan), plan, _MULTIPROCESSORS)[0].require_possible()
    for name, operand, is_copied in (("a", problem.a, plan.copy_a), ("b", problem.b, plan.copy_b)):
        if needs_copy(operand, problem.precision) and not is_copied:
            raise LanewiseError(
                f"copy_{name}=False: TMA and wgmma cannot take {name} as it lies, and the plan does not copy "
                f"it: make the plan for these arrays, or take copy_{name}=True"
            )


def workspace_bytes(problem: Problem, plan: Plan) -> int:
    """Return how many bytes of workspace a plan takes, at an address that is a multiple of 128; 0: none.

    Its first bytes are counters: they are zero before the first launch, and each launch leaves them zero.
    """
    bytes_ = copy_bytes(problem, plan)
    if plan.groups > 1:
        seen = oriented(problem, plan)
        bytes_ += meeting_bytes(build_of(seen, plan), seen.m, seen.n, seen.batch)
    return bytes_ + COUNTER_BYTES if bytes_ else 0


def _meeting_memory(build: Build, problem: Problem, pointers: Pointers) -> tuple[Any, Any]:
    """Return the workspace's counters and memory of sums; null if clusters share no tile."""
    if build.groups == 1:
        return 0, 0
    size = meeting_bytes(build, problem.m, problem.n, problem.batch)
    end = len(pointers.workspace) // 128 * 128  # copies lie before it
    import numpy as np

    parts = pointers.workspace[:COUNTER_BYTES], pointers.workspace[end - size : end]
    if isinstance(parts[0], np.ndarray):
        return parts[0].view(np.int32), parts[1].view(np.float32)
    return parts


def _scales_blocks(problem: Problem) -> bool:
    """Return whether sums are scaled as they are promoted; `scale_blocks` of (0, 0) says they are not."""
    return problem.promote is not None and any(problem.scale_blocks)


def _scale_strides(scale_a: Any, scale_b: Any) -> tuple[int, int, int, int]:
    """Return the steps of block scales in elements: along rows and K of A's, along columns and K of B's."""

    def steps(array: Any) -> list[int]:
        if hasattr(array, "stride"):
            return [int(each) for each in array.stride()]
        return [each // array.itemsize for each in array.strides]

    (row, row_k), (column_k, column) = steps(scale_a), steps(scale_b)
    return row, row_k, column, column_k


def _or_null(array: Any) -> Any:
    """Return an array's memory, or the address that a kernel never reads."""
    return 0 if array is None else flat(array)
