"""`lw.grouped_matmul`: rows of one A multiplied by different matrices, as a mixture of experts does it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.linalg.arrays import Array
from lanewise.linalg.cpu.sums import compute
from lanewise.linalg.launch.known_calls import CALLS, is_negated, kind_of_tensor, remember
from lanewise.linalg.matmul import product
from lanewise.linalg.operands import (
    View,
    empty,
    is_followed,
    note_written,
    operand,
    plain_tensors,
    require_apart,
    require_not_followed,
    require_own_elements,
    view_of,
    with_items,
)
from lanewise.linalg.options import Options, given_names, options_of
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.planning.planner import chain_plan, plan_of
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import Request, request_of
from lanewise.linalg.scales import Scale
from lanewise.linalg.types import product_of, result_of, sums_of
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from lanewise.linalg.launch.prepare import Prepared

Integers = npt.NDArray[np.int64]

#: Types of which a kernel computes all groups in one launch; those of others are computed one by one.
_AT_ONCE = ("f16", "bf16")
#: Keywords of `lw.matmul` that groups do not have.
_NOT_TAKEN = ("residual", "scale_a", "scale_b", "plan", "beta")


@short_traceback
def grouped_matmul(a: Array, b: Array, offsets: object, *, counts: object = None, **keywords: object) -> Any:
    """Return the rows of `a` multiplied by the matrix of their group: one matrix of `b` for each group.

    `a` is (rows, K), `b` (groups, K, N). `offsets` are integers, one for each group: where the group's rows
    end (and the next group's begin), as in torch._grouped_mm. If they are torch's tensor on the GPU of `a`,
    the kernel reads them there, and the host does not wait for them: one that is smaller than the one before
    it, or larger than the number of rows, is then taken as the nearest that is neither. With `counts`, group
    g has only its first counts[g] rows; the other rows of the result are left as they are (`out`) or zero.
    Keywords are those of `lw.matmul`, but for residual, beta, scale_a, scale_b and plan. Sums are one chain
    along K, so that a row's bits do not depend on its group's size.

    >>> import numpy as np
    >>> a, b = np.ones((3, 4), np.float16), np.stack([np.full((4, 2), x, np.float16) for x in (1, 10)])
    >>> grouped_matmul(a, b, [1, 3]).tolist()
    [[4.0, 4.0], [40.0, 40.0], [40.0, 40.0]]
    """
    key = None
    if is_followed():
        require_not_followed("grouped_matmul", {"a": a, "b": b, **keywords})
    elif counts is None and not keywords:
        key = _kind(a, b, offsets)
        made = CALLS.get(key)
        if made is not None:
            return _again(made, a, b, offsets)
    options = options_of("lw.grouped_matmul", keywords, _NOT_TAKEN)
    return _computed(a, b, offsets, counts, options, key)


def _computed(a: Any, b: Any, offsets: Any, counts: object, options: Options, key: object) -> Any:
    """Check the arguments of `grouped_matmul` and compute it: in one launch, or one product after another.

    With a `key` the launch is remembered for the next call.
    """
    left, right = view_of(a, "a"), view_of(b, "b")
    if len(left.shape) != 2 or len(right.shape) != 3 or left.shape[1] != right.shape[1]:
        raise LanewiseError(
            "a must have shape (rows, K) and b shape (groups, K, N); they have shapes "
            f"{left.shape} and {right.shape}"
        )
    if left.device != right.device:
        raise LanewiseError(f"a is {left.where} and b {right.where}: move them to one device")
    if "e2m1" in (left.format.name, right.format.name):
        raise LanewiseError("products of float4_e2m1fn are block-scaled, which lw.grouped_matmul is not")
    groups, rows = right.shape[0], left.shape[0]
    biases = _biases(options.bias, rows, right.shape[2])
    out, given = _result(left, right, options)
    problem = _in_one_launch(left, right, given) if _is_plain(options) and groups else None
    made_here = options.out is None
    if problem is not None and counts is None and _is_beside(offsets, left, groups):
        problem = replace(problem, consecutive=True, clears_rest=made_here)
        bounds = offsets.to(sys.modules["torch"].int32).contiguous()
    else:
        starts, ends = _bounds(offsets, groups, rows)
        whole = counts is None and bool(groups) and int(ends[-1]) == rows
        if counts is None and groups > 1 and not whole and int(ends.sum()) == rows:
            warn(
                f"offsets={ends.tolist()} are where groups end, and rows from {int(ends[-1])} on belong "
                f"to none; they add up to {rows}, the rows of a: if they are sizes, pass np.cumsum(sizes)",
                stacklevel=4,
            )
        if counts is not None:
            kept = _integers(counts, "counts", groups)
            if ((kept < 0) | (kept > ends - starts)).any():
                raise LanewiseError(
                    f"counts={kept.tolist()}: each must be at least 0 and at most the rows of its group"
                )
            ends = starts + kept
        if made_here and not whole:
            out[...] = 0
        if problem is not None:
            bounds = _on_device(starts, ends, left.device or 0)
    if problem is not None:
        prepared = _launched(problem, left, right, given, bounds, out)
        if key is not None and not prepared.workspace_bytes:
            remember(key, prepared)
        note_written(options.out)
        return out
    if left.device is None:
        a, b, target = left.array, right.array, given.array
    else:
        a, b, target = with_items(a, "a"), with_items(b, "b"), with_items(out, "out")
    for group, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if end > start:
            part = replace(options, out=target[start:end], out_dtype=None, bias=biases(start, end))
            _one_group(a[start:end], b[group], part)
    note_written(options.out)
    return out


def _biases(bias: object, rows: int, columns: int) -> Callable[[int, int], Any]:
    """Return what gives the bias of a group's rows: all of it if it is a number for each column, else their
    part."""
    view = None if bias is None else view_of(bias, "bias")
    if view is None or view.shape in ((columns,), (1, columns)):
        return lambda start, end: bias
    if view.shape != (rows, 1):
        raise LanewiseError(
            f"bias has shape {view.shape}; it must be ({columns},), a number for each column of the result, "
            f"or ({rows}, 1), a number for each row"
        )
    numbers: Any = view.array if view.device is None else with_items(bias, "bias")
    return lambda start, end: numbers[start:end]


def _result(left: View, right: View, options: Options) -> tuple[Any, View]:
    """Return the array of the result, made if none is given, and its view."""
    shape = left.shape[0], right.shape[2]
    given = None if options.out is None else view_of(options.out, "out")
    product = product_of(left.format, right.format)
    fmt = result_of(product, left.format, None if given is None else given.format, options.out_dtype, False)
    out: Any = options.out
    if given is None:
        out = empty(left, shape, fmt)
        given = view_of(out, "out")
        return out, given
    if given.shape != shape:
        raise LanewiseError(f"out has shape {given.shape}; the result has {shape}")
    if given.device != left.device:
        raise LanewiseError(f"a is {left.where} and out {given.where}: move them to one device")
    require_own_elements(given, "out")
    for view, name in ((left, "a"), (right, "b")):  # of all groups: those that come later are still read
        require_apart(given, view, name)
    return out, given


def _is_plain(options: Options) -> bool:
    """Return whether nothing is fused, so that one kernel may compute all groups."""
    return given_names(options) <= {"out", "out_dtype", "arch"}


def _one_group(a: object, b: object, options: Options) -> None:
    """Compute one group by a plan whose sums are one chain along K."""
    request = request_of(a, b, options)
    assert request.problem is not None
    if request.a.device is None:  # the order of sums is all that counts
        compute(request, request.problem, chain_plan(request.problem, planned_arch(options.arch)))
        return
    from lanewise.linalg.launch.prepare import arch_of_device

    chained = chain_plan(request.problem, arch_of_device(request.a.device), fitted=True)
    product(a, b, replace(options, plan=chained, arch=None))


def _is_beside(offsets: Any, left: View, groups: int) -> bool:
    """Return whether offsets are torch's integers on the GPU of `a`, one for each group."""
    torch = sys.modules.get("torch")
    if torch is None or type(offsets) not in plain_tensors() or not offsets.is_cuda:
        return False
    if offsets.dtype not in (torch.int32, torch.int64) or offsets.shape != (groups,):
        return False
    return bool(offsets.get_device() == left.device)


def _kind(a: Any, b: Any, offsets: Any) -> Any:
    """Return what of two of torch's tensors on a GPU, and of where groups end, decides a launch.

    None for other arrays, for tensors that require a gradient or are negated, and for offsets on a GPU that
    no kernel reads as they lie.
    """
    if sys.modules.get("torch") is None or type(a) not in plain_tensors() or type(b) not in plain_tensors():
        return None
    if not a.is_cuda or a.requires_grad or b.requires_grad or is_negated(a, b):  # the rules look at these
        return None
    beside = type(offsets) in plain_tensors() and offsets.is_cuda
    if beside:
        read = offsets.dtype is sys.modules["torch"].int32 and offsets.is_contiguous()
        if not read or offsets.get_device() != a.get_device():
            return None
    return "groups", kind_of_tensor(a), kind_of_tensor(b), kind_of_tensor(offsets) if beside else None


def _again(prepared: Prepared, a: Any, b: Any, offsets: Any) -> Any:
    """Make a call of a kind that was made before: its result, the bounds of its groups, and its launch."""
    from lanewise.linalg.launch.prepare import OPERANDS

    torch = sys.modules["torch"]
    rows, groups = a.shape[0], b.shape[0]
    known = {"a": a.data_ptr(), "b": b.data_ptr()}
    make = torch.empty
    if type(offsets) in plain_tensors() and offsets.is_cuda:
        known["ends"] = offsets.data_ptr()
    else:
        starts, ends = _bounds(offsets, groups, rows)
        if int(ends[-1]) != rows:
            make = torch.zeros
        bounds = _on_device(starts, ends, a.get_device())
        known["starts"] = bounds.data_ptr()
        known["ends"] = known["starts"] + 4 * groups
    out = make((rows, b.shape[2]), dtype=a.dtype, device=a.device)
    known["out"] = out.data_ptr()
    addresses = [known.get(name, 0) for name in OPERANDS]
    prepared(addresses, torch._C._cuda_getCurrentRawStream(a.get_device()))
    return out


def _on_device(starts: Integers, ends: Integers, ordinal: int) -> Any:
    """Return where groups begin and end as a tensor on a GPU, (2, groups)."""
    torch = sys.modules["torch"]
    both = np.empty((2, len(ends)), np.int32)
    both[0], both[1] = starts, ends
    return torch.from_numpy(both).to(f"cuda:{ordinal}", non_blocking=True)


def _in_one_launch(left: View, right: View, given: View) -> Problem | None:
    """Return the problem of all groups in one launch; None if kernels cannot take the arrays as they lie."""
    if left.device is None or left.library != "torch" or left.format.name not in _AT_ONCE:
        return None
    from lanewise.linalg.launch.prepare import arch_of_device

    (rows, k), (groups, _, n) = left.shape, right.shape
    if arch_of_device(left.device) != "sm_90a" or not (rows and k and n):
        return None
    sums, _ = sums_of(product_of(left.format, right.format), left.format, None)
    of_b = operand(right, n, k, right.strides[2], right.strides[1], groups, right.strides[0])
    problem = Problem(
        rows,
        n,
        k,
        operand(left, rows, k, left.strides[0], left.strides[1], 1, 0),
        replace(of_b, batch_stride=right.strides[0]),
        operand(given, rows, n, given.strides[0], given.strides[1], 1, 0),
        sums,
        experts=groups,
    )
    possible = problem.a.tma and problem.b.tma and problem.out.k_major and problem.out.inner == 1
    return problem if possible else None


def _launched(
    problem: Problem, left: View, right: View, given: View, bounds: object, out: object
) -> Prepared:
    """Compute all groups in one launch on the GPU; returns what repeats it."""
    from lanewise.linalg.launch.prepare import run

    request = Request(
        left, right, given, None, None, Scale(), Scale(), None, 1.0, 1.0, (), problem.m, problem.n,
        problem.k, problem, out, bounds=bounds,
    )  # fmt: skip
    prepared = run(request, problem, None, plan_of(problem, "sm_90a"), None)
    assert prepared is not None  # there are rows, columns and a K
    return prepared


def _bounds(offsets: object, groups: int, rows: int) -> tuple[Integers, Integers]:
    """Return where the rows of each group begin and end, if they ascend."""
    ends = _integers(offsets, "offsets", groups)
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1]
    if groups and ((ends < starts).any() or ends[-1] > rows):
        raise LanewiseError(f"offsets={ends.tolist()} must ascend from 0 to at most {rows}, the rows of a")
    return starts, ends


def _integers(given: Any, name: str, groups: int) -> Integers:
    """Return offsets or counts as integers: one for each group."""
    try:
        values = given.tolist() if hasattr(given, "tolist") else given
        integers = np.asarray(values if isinstance(values, list | tuple) else list(values))
    except Exception:  # whatever an object raises that is no list of numbers
        integers = np.zeros((), np.float64)
    if integers.ndim != 1 or (integers.size and integers.dtype.kind not in "iu"):
        raise LanewiseError(f"{name} must be integers, one for each group, not {given!r}")
    if len(integers) != groups:
        raise LanewiseError(
            f"{name} has {len(integers)} numbers, and b has {groups} groups: pass one number for each group"
        )
    return integers.astype(np.int64)
