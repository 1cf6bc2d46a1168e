"""Reductions and scans over the lanes of a warp and the threads of a block.

An operation is "sum", "max", "min", "argmax" or "argmin", or a function of two values. Values may be tuples,
dataclasses and other structures of numbers. A warp exchanges them by shuffles; a block puts one value of each
warp into shared memory. Every lane or thread gets the result.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from lanewise.isa import arch_number
from lanewise.lang.intrinsics.maths import cdiv, maximum, minimum
from lanewise.lang.intrinsics.sync import syncthreads
from lanewise.lang.intrinsics.warp import (
    reduce_add_sync,
    reduce_max_sync,
    reduce_min_sync,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
)
from lanewise.lang.memory.array import Array, shared
from lanewise.lang.trace.builder import Operation, arch, current
from lanewise.lang.trace.operators import where
from lanewise.lang.trace.scalar import Scalar, literal, scalar
from lanewise.lang.trace.special_registers import block_dim, lane_id, thread_rank, warp_id
from lanewise.lang.trace.traced import Snapshot, describe, map_leaves
from lanewise.lang.trace.types import i32, is_float, pred, u32

WARP = 32
#: Warps that a block has at most.
_MOST_WARPS = 32
Combine = Callable[[Any, Any], Any]
_LEAFWISE: dict[str, Combine] = {
    "sum": lambda a, b: a + b,
    "max": maximum,
    "min": minimum,
}
#: Reductions of a whole warp in one instruction, of 32-bit integers.
_REDUX = {"sum": reduce_add_sync, "max": reduce_max_sync, "min": reduce_min_sync}
_OPERATIONS = (*_LEAFWISE, "argmax", "argmin")


def warp_reduce(value: object, op: str | Combine = "sum", *, width: int = WARP) -> Any:
    """Return a value combined over the lanes of a warp; with `width`, over each group of so many lanes.

    "argmax" and "argmin" give (value, index): the index is the lane, or what is given beside the value in
    `lw.warp_reduce((x, i), "argmax")`; of equal values the least index counts. A function must be
    associative; values are combined in the order of the lanes. Inside a kernel: `total = lw.warp_reduce(x)`.
    """
    _check_width(width)
    value = _with_index(value, op, lane_id)
    if isinstance(value, Scalar) and isinstance(op, str) and width == WARP:
        redux = _REDUX.get(op) if value.dtype in (i32, u32) and arch_number(arch()) >= 80 else None
        if redux is not None:
            return redux(value)
    combine = _combination(op)
    distances = [1 << bit for bit in range(width.bit_length() - 1)]
    if isinstance(op, str):  # commutative: all lanes get the same bits
        for distance in distances:
            value = combine(value, shfl_xor_sync(value, distance))
        return value
    for distance in distances:
        value = combine(value, shfl_down_sync(value, distance, width))
    return shfl_sync(value, 0, width)


def warp_scan(
    value: object,
    op: str | Combine = "sum",
    *,
    exclusive: bool = False,
    initial: object = None,
    width: int = WARP,
) -> Any:
    """Return a value combined over this lane and those before it; `exclusive` leaves out the lane itself.

    `initial` is combined in before the first lane. Without it the first lane of an exclusive scan gets 0 of a
    sum, the least number of "max", the greatest of "min". A function has no such number: give it. Inside a
    kernel: `at = lw.warp_scan(n, exclusive=True)`.
    """
    _check_width(width)
    value, combine = _with_index(value, op, lane_id), _combination(op)
    lane = lane_id() % width
    result = _inclusive_scan(value, combine, lane, width)
    if exclusive:
        result = shfl_up_sync(result, 1, width)
    return _from_initial(value, op, initial, lane == 0 if exclusive else None, result)


def block_reduce(value: object, op: str | Combine = "sum") -> Any:
    """Return a value combined over the threads of a block, as lw.warp_reduce does over a warp.

    All threads of the block must get here: it has barriers. The block has a multiple of 32 threads. The
    index of "argmax" and "argmin" is lw.thread_rank(), unless one is given beside the value.
    """
    _require_whole_warps("lw.block_reduce")
    value = _with_index(value, op, thread_rank)
    of_warp = warp_reduce(value, op)
    of_warps, warps = _exchanged(of_warp, lane_id() == 0)
    lane, combine = lane_id(), _combination(op)
    for distance in (1, 2, 4, 8, 16):
        other = shfl_down_sync(of_warps, distance)
        of_warps = where(lane + distance < warps, combine(of_warps, other), of_warps)
    return shfl_sync(of_warps, 0)


def block_scan(
    value: object, op: str | Combine = "sum", *, exclusive: bool = False, initial: object = None
) -> Any:
    """Return a value combined over this thread and those before it, as lw.warp_scan does over a warp.

    Threads are in the order of lw.thread_rank(). All threads of the block must get here: it has barriers.
    """
    _require_whole_warps("lw.block_scan")
    value = _with_index(value, op, thread_rank)
    lane, warp, combine = lane_id(), warp_id(), _combination(op)
    within = _inclusive_scan(value, combine, lane, WARP)
    of_warps, _ = _exchanged(within, lane == WARP - 1)
    until_warp = _inclusive_scan(of_warps, combine, lane, WARP)
    before = shfl_sync(until_warp, maximum(warp - 1, 0))
    first = None
    after_others = combine(before, within)
    if exclusive:
        within, first = shfl_up_sync(within, 1), (warp == 0) & (lane == 0)
        after_others = where(lane == 0, before, combine(before, within))
    return _from_initial(value, op, initial, first, where(warp == 0, within, after_others))


# the pieces ---------------------------------------------------------------------------------------------


def _inclusive_scan(value: object, combine: Combine, lane: Scalar, width: int) -> object:
    """Return a value combined over this lane and those before it in its group of `width` lanes."""
    for bit in range(width.bit_length() - 1):
        before = shfl_up_sync(value, 1 << bit, width)
        value = where(lane >= (1 << bit), combine(before, value), value)
    return value


def _exchanged(value: object, writes: Scalar) -> tuple[object, Scalar]:
    """Return what one lane of each warp holds, lane n that of warp n, and the number of warps.

    Lanes beyond the last warp get that of the last warp.
    """
    kept = Snapshot(value)
    leaves = [leaf.to(i32) if leaf.dtype is pred else leaf for leaf in kept.leaves]
    slots = [shared(leaf.dtype, _MOST_WARPS) for leaf in leaves]
    warps = cdiv(block_dim.x * block_dim.y * block_dim.z, WARP)
    for array, leaf in zip(slots, leaves, strict=True):
        _store_where(writes, array, leaf)
    syncthreads()
    index = minimum(lane_id(), warps - 1)
    loaded = [array[index] for array in slots]
    exchanged = kept.build(
        new != 0 if old.dtype is pred else new for old, new in zip(kept.leaves, loaded, strict=True)
    )
    if current().in_loop:
        syncthreads()  # the next round of the loop writes here again
    return exchanged, warps


def _store_where(writes: Scalar, slots: Array, leaf: Scalar) -> None:
    """Store a value in the slot of this warp on the lanes for which a predicate holds."""
    builder = current()
    guard = writes.in_register
    code: list[object] = []
    with builder.into(code):
        slots[warp_id()] = leaf
    for statement in code:
        if isinstance(statement, Operation) and statement.opcode.startswith("st."):
            statement.guard = guard
    if not builder.unreachable:
        builder.code += code


def _combination(op: str | Combine) -> Combine:
    """Return the function of two values that an operation stands for."""
    if isinstance(op, str) and op in _LEAFWISE:
        return partial(map_leaves, _LEAFWISE[op], what=f'"{op}"')
    if op in ("argmax", "argmin"):
        return partial(_better, op == "argmax")
    if callable(op):
        return op
    names = ", ".join(map(repr, _OPERATIONS))
    raise current().error(f"an operation is {names}, or a function of two values; not {describe(op)}")


def _better(largest: bool, a: Any, b: Any) -> object:
    """Return the pair with the better value; of equal ones that with the least index; NaN is never better."""
    (x, i), (y, j) = a, b
    other_first = j < i
    better = (y > x) if largest else (y < x)
    better = better | ((y == x) & other_first)
    if is_float(x.dtype):
        nan_x, nan_y = x != x, y != y
        better = better | (nan_x & ~nan_y) | (nan_x & nan_y & other_first)
    return where(better, y, x), where(better, j, i)


def _with_index(value: object, op: object, index: Callable[[], Scalar]) -> object:
    """Return a value as traced numbers; for argmax and argmin, as a pair with the index beside it."""
    kept = Snapshot(value)
    value = kept.build(scalar(leaf, None, "a reduction") for leaf in kept.leaves)
    if op not in ("argmax", "argmin"):
        return value
    if isinstance(value, Scalar):
        return value, index()
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, Scalar) for part in value):
        return value
    raise current().error(f'"{op}" takes a number, or a number and its index; not {value!r}')


def _from_initial(value: object, op: str | Combine, initial: object, first: Any, result: object) -> object:
    """Return a scan that begins with `initial`; `first`, of an exclusive one: where nothing is before."""
    if initial is None:
        return result if first is None else where(first, _initial(value, op), result)
    kept, given = Snapshot(value), Snapshot(initial)
    if len(kept.leaves) != len(given.leaves):
        raise current().error(f"initial={initial!r} has another form than the value: {value!r}")
    begin = kept.build(
        scalar(number, leaf.dtype, "initial=") for number, leaf in zip(given.leaves, kept.leaves, strict=True)
    )
    combined = _combination(op)(begin, result)
    return combined if first is None else where(first, begin, combined)


def _initial(value: object, op: object) -> object:
    """Return what the first of an exclusive scan gets."""
    if op not in _LEAFWISE:
        what = op if isinstance(op, str) else "a function"
        raise current().error(f"an exclusive scan with {what} needs initial=…, with which it begins")
    kept = Snapshot(value)
    return kept.build(_neutral(leaf, op) for leaf in kept.leaves)


def _neutral(leaf: Scalar, op: str) -> Scalar:
    """Return the number that changes nothing in a sum, a maximum or a minimum."""
    dtype = leaf.dtype
    if op == "sum":
        return literal(0, dtype)
    if is_float(dtype):
        return literal(-inf if op == "max" else inf, dtype)
    return literal(int(dtype.min if op == "max" else dtype.max), dtype)


def _check_width(width: object) -> None:
    if width not in (1, 2, 4, 8, 16, 32):
        raise current().error(f"width= is how many lanes, a power of two up to 32; not {width!r}")


def _require_whole_warps(what: str) -> None:
    """Note that blocks must have a multiple of 32 threads: in others some lanes would be missing."""
    builder = current()
    builder.whole_warps.append((what, builder.location))
