"""`lw.attention`: softmax(scale · q kᵀ) v, on a Hopper GPU, or on the CPU by the same kernel."""

from __future__ import annotations

import sys
from math import inf, isfinite, prod, sqrt
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from lanewise.errors import LanewiseError, shown
from lanewise.formats import f32
from lanewise.linalg.arrays import Array
from lanewise.linalg.kernels.attention.plans import HEAD_SIZES, tile_of
from lanewise.linalg.kernels.attention.sizes import AttentionCall, Operands, Sizes, Tile
from lanewise.linalg.launch.known_calls import CALLS, remember
from lanewise.linalg.operands import (
    View,
    empty,
    is_followed,
    note_written,
    of_library,
    require_apart,
    require_not_followed,
    require_own_elements,
    view_of,
)
from lanewise.tracebacks import short_traceback

#: Types of queries, keys and values.
_FORMATS = ("f16", "bf16")
#: Bytes that TMA wants addresses and strides to be multiples of, and the longest stride and axis that it has.
_ALIGNED, _LONGEST_STRIDE, _LONGEST_AXIS = 16, 1 << 40, 1 << 31


@short_traceback
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
    stream: object = None,
) -> Any:
    """Return softmax(scale · q · kᵀ) · v of every head: on the arrays' GPU, or on the CPU.

    Arrays are (batch, heads, length, head size) of f16 or bf16, in this order and with any strides; axes
    from the left may be left out of all three. A head has 64, 96, 128 or 256 elements. k and v may have fewer
    heads than q: neighbouring heads of q then share one. They may have another length than q, too. `scale` is
    1/√(head size) unless it is given. With `causal`, the last query sees all keys, the one before it all but
    the last, and so on. A query that sees no key gets zeros.

    With `return_lse`, returns the result and ln Σ exp(scale · q · kᵀ), f32 of shape (batch, heads, length);
    -inf for a query that sees no key.

    Where there are few queries and many keys, the keys are divided among multiprocessors, and how often
    depends on all sizes. `batch_invariant` computes them in one chain: a query's bits are then the same
    whatever is computed beside it.

    >>> import numpy as np
    >>> v = np.arange(128, dtype=np.float16).reshape(2, 64)
    >>> attention(np.zeros((1, 64), np.float16), np.zeros((2, 64), np.float16), v)[0, :3].tolist()
    [32.0, 33.0, 34.0]
    """
    if is_followed():
        require_not_followed("attention", {"q": q, "k": k, "v": v, "out": out})
    settings = AttentionSettings(causal, scale, return_lse, batch_invariant)
    return attention_of_operator(q, k, v, settings, out, stream)


class AttentionSettings(NamedTuple):
    """What a call of `lw.attention` is given beside arrays."""

    causal: bool
    scale: float | None
    return_lse: bool
    batch_invariant: bool

    def checked(self, depth: int) -> AttentionSettings:
        """Return them with the scale as a float; an error for what they cannot be."""
        for name in ("causal", "return_lse", "batch_invariant"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise LanewiseError(f"{name}={value!r} must be True or False")
        return self._replace(scale=_scale(self.scale, depth))


def attention_of_operator(
    q: Array, k: Array, v: Array, settings: AttentionSettings, out: Array | None = None, stream: object = None
) -> Any:
    """Return attention, also where torch follows what is computed, as its operator has rules for that."""
    kind = _kind(q, k, v, settings) if out is None else None
    if kind is not None and stream is None:
        try:
            repeat = CALLS.get(kind)
        except TypeError:  # an option that cannot be one
            repeat = None
        if repeat is not None:
            return repeat(q, k, v)
    if stream is not None:
        from lanewise.linalg.launch.streams import working_on

        on_it = working_on(stream, q)
        if on_it is not None:
            with on_it:
                return attention_of_operator(q, k, v, settings, out)
    views = [_operand(array, name) for array, name in ((q, "q"), (k, "k"), (v, "v"))]
    _require_fitting(*views)
    settings = settings.checked(views[0].shape[-1])
    result = _empty_like(views[0]) if out is None else out
    target = view_of(result, "out")
    if out is not None:
        _require_result(target, views)
    sums = empty(views[0], views[0].shape[:-1], f32) if settings.return_lse else None
    lse = None if sums is None else view_of(sums, "lse")
    call = _compute(views, target, lse, settings, stream)
    note_written(out)
    if out is None:
        result = of_library(views[0], q, result)
    if kind is not None and call is not None and target.device is not None and target.library == "torch":
        from lanewise.linalg.launch.attention import repeated

        remember(kind, repeated(call, axes_in_memory(views[0].strides), views[0].shape))
    return (result, of_library(views[0], q, sums)) if settings.return_lse else result


# the rules --------------------------------------------------------------------------------------------------


def _operand(array: object, name: str) -> View:
    """Return the view of queries, keys or values; an error if no attention takes it."""
    torch = sys.modules.get("torch")
    needs_gradient = torch is not None and isinstance(array, torch.Tensor) and array.requires_grad
    if torch is not None and needs_gradient and torch.is_grad_enabled():
        raise LanewiseError(
            f"{name} requires a gradient, and lw.attention has none: pass {name}.detach(), or call it "
            "under torch.no_grad()"
        )
    view = view_of(array, name)
    if view.format.name not in _FORMATS:
        raise LanewiseError(f"{name} is {view.format.dtype_name}; lw.attention takes float16 and bfloat16")
    if not 2 <= len(view.shape) <= 4:
        raise LanewiseError(
            f"{name} has shape {view.shape}; lw.attention takes (batch, heads, length, head size), "
            "(heads, length, head size) or (length, head size)"
        )
    return view


def _require_fitting(q: View, k: View, v: View) -> None:
    """Raise an error unless queries, keys and values fit together."""
    shapes = f"q has shape {q.shape}, k {k.shape} and v {v.shape}"
    if not len(q.shape) == len(k.shape) == len(v.shape):
        raise LanewiseError(f"{shapes}: they must have the same number of axes")
    if not q.format == k.format == v.format:
        types = [view.format.dtype_name for view in (q, k, v)]
        raise LanewiseError(f"q is {types[0]}, k is {types[1]} and v is {types[2]}: convert them to one type")
    if not q.device == k.device == v.device:
        raise LanewiseError(f"q lies {q.where}, k {k.where} and v {v.where}: move them to one device")
    if k.shape != v.shape:
        raise LanewiseError(f"{shapes}: k and v must have the same shape")
    if q.shape[-1] != k.shape[-1]:
        raise LanewiseError(f"{shapes}: heads of q and k must have the same size, the last axis")
    if q.shape[-1] not in HEAD_SIZES:
        allowed = ", ".join(map(str, HEAD_SIZES))
        raise LanewiseError(
            f"the head size, the last axis, is {q.shape[-1]}; lw.attention has kernels for {allowed}: pad q, "
            "k and v with zeros, and pass scale="
        )
    if len(q.shape) == 4 and q.shape[0] != k.shape[0]:
        raise LanewiseError(f"{shapes}: they must have the same batch, the first axis")
    if len(q.shape) > 2:
        heads, shared = q.shape[-3], k.shape[-3]
        if heads != shared and (not shared or heads % shared):
            raise LanewiseError(
                f"q has {heads} heads and k {shared}: those of q must be a multiple of those of k (axes are "
                "(batch, heads, length, head size); swapaxes(1, 2) exchanges heads and length without a copy)"
            )
    if prod(q.shape[:-1]) >= _LONGEST_AXIS or prod(k.shape[:-1]) >= _LONGEST_AXIS:
        raise LanewiseError(f"{shapes}: lw.attention takes less than 2³¹ rows in all")


def _scale(given: object, depth: int) -> float:
    """Return the factor of scores: the given one, or 1/√(head size)."""
    if given is None:
        return 1 / sqrt(depth)
    single: Any = given
    given = single.item() if getattr(given, "shape", None) == () else given
    if isinstance(given, bool | np.bool_) or not isinstance(given, Real):
        raise LanewiseError(f"scale={shown(given)} must be a number above 0")
    try:
        with np.errstate(over="ignore"):
            value = float(np.float32(given))
    except OverflowError:  # an integer
        value = inf
    if not (isfinite(value) and value > 0):
        raise LanewiseError(
            f"scale={shown(given)} must be a number above 0 that f32 holds; for a negative one, pass -q and "
            "-scale"
        )
    return value


def _require_result(out: View, operands: list[View]) -> None:
    """Raise an error unless an array can hold the result."""
    q = operands[0]
    if out.shape != q.shape or out.format != q.format or out.device != q.device:
        raise LanewiseError(
            f"out is {out.format.dtype_name} {out.shape} {out.where}; it must be as q: "
            f"{q.format.dtype_name} {q.shape} {q.where}"
        )
    require_own_elements(out, "out")
    for operand, name in zip(operands, "qkv", strict=True):
        require_apart(out, operand, name)


# memory -----------------------------------------------------------------------------------------------------


def axes_in_memory(strides: tuple[int, ...]) -> list[int]:
    """Return the axes of an array as they lie in memory, the outermost first; the last one stays the last.

    >>> axes_in_memory((51200, 64, 512, 1))
    [0, 2, 1, 3]
    """
    outer = range(len(strides) - 1)
    return [*sorted(outer, key=lambda axis: (-abs(strides[axis]), axis)), len(strides) - 1]


def _empty_like(q: View) -> Any:
    """Return a new array of q's shape, whose axes lie in memory in the order of q's."""
    order = axes_in_memory(q.strides)
    made = empty(q, [q.shape[axis] for axis in order], q.format)
    back = [order.index(axis) for axis in range(len(order))]
    return made.permute(back) if hasattr(made, "permute") else made.transpose(back)


def _loadable(view: View) -> bool:
    """Return whether TMA can load or store a view."""
    steps = [step * view.bytes for size, step in zip(view.shape, view.strides, strict=True) if size > 1]
    last = view.strides[-1] == 1
    outer = steps[:-1]
    return last and not view.address % _ALIGNED and all(
        0 < step < _LONGEST_STRIDE and step % _ALIGNED == 0 for step in outer
    )  # fmt: skip


def _copied(view: View, name: str) -> View:
    """Return a contiguous copy, made by the array's own library."""
    array = view.array
    if view.device is None or view.library == "cupy":
        return view_of(array.copy(order="C"), name)._replace(library=view.library)
    if view.library == "torch":
        return view_of(array.clone(memory_format=sys.modules["torch"].contiguous_format), name)
    raise LanewiseError(
        f"{name} has strides {view.strides} that TMA cannot load: pass a contiguous array that begins at a "
        "multiple of 16 bytes"
    )


def _with_four_axes(view: View) -> View:
    """Return a view as (batch, heads, length, head size); an axis of one element has a stride that fits."""
    missing = 4 - len(view.shape)
    shape, strides = (1,) * missing + view.shape, (0,) * missing + view.strides
    step, steps = shape[-1], [1]
    for axis in (2, 1, 0):
        steps.append(strides[axis] if shape[axis] > 1 else step)
        step = max(step, steps[-1] * shape[axis])
    return view._replace(shape=shape, strides=tuple(reversed(steps)))


def _compute(
    views: list[View], out: View, lse: View | None, settings: AttentionSettings, stream: object
) -> AttentionCall | None:
    """Compute on arrays that fit together, and write results; return the call if the kernel took all of them
    as they lie."""
    if 0 in out.shape:
        return None
    if not views[1].shape[-2]:  # no keys
        if not hasattr(out.array, "__setitem__"):
            raise LanewiseError(
                f"there are no keys, and lanewise cannot fill an array of {out.library} with zeros"
            )
        out.array[...] = 0
        if lse is not None:
            lse.array[...] = -np.inf
        return None
    if out.device is not None and not hasattr(out.array, "__setitem__") and not _loadable(out):
        raise LanewiseError(
            f"out has strides {out.strides} that TMA cannot store: pass a contiguous array of {out.library} "
            "that begins at a multiple of 16 bytes"
        )
    taken = [
        view if _loadable(view) else _copied(view, name) for view, name in zip(views, "qkv", strict=True)
    ]
    target = out if _loadable(out) else view_of(empty(out, out.shape, out.format), "out")
    call = _call(taken, target, lse, settings)
    if out.device is None:
        _on_cpu(call)
    else:
        from lanewise.linalg.launch.attention import compute

        compute(call, stream)
    if target is not out:
        out.array[...] = target.array
    return call if all(map(_loadable, (*views, out))) else None


def _on_cpu(call: AttentionCall) -> None:
    """Compute a call whose arrays are in host memory, by the CPU machine. A bar shows the progress of a long
    one."""
    from lanewise.linalg.cpu.progress import Progress
    from lanewise.linalg.kernels.attention.kernel import launches_of
    from lanewise.linalg.kernels.attention.split_keys import partial_bytes
    from lanewise.linalg.planning.gpus import GPUS

    q, k, v, out = (
        np.lib.stride_tricks.as_strided(view.array, view.shape, [step * view.bytes for step in view.strides])
        for view in call.views
    )
    operands = Operands(
        q, k, v, out, None if call.lse is None else call.lse.array, np.zeros(1, np.uint32),
        np.empty(partial_bytes(call.sizes, call.tile.parts) // 4, np.float32),
    )  # fmt: skip
    at_once = GPUS["sm_90a"].multiprocessors
    launches = launches_of(call.sizes, call.dtype, call.causal, call.tile, operands, call.scale, at_once)
    with Progress("lw.attention") as progress:
        for launch in launches:
            launch.kernel(*launch.arguments, arch="sm_90a", progress=progress)


def _call(views: list[View], out: View, lse: View | None, settings: AttentionSettings) -> AttentionCall:
    """Return a call as it is computed, on views of four axes."""
    q, k, v, result = map(_with_four_axes, (*views, out))
    batch, heads, queries, depth = q.shape
    sizes = Sizes(batch, heads, k.shape[1], queries, k.shape[2], depth)
    assert settings.scale is not None  # they were checked
    given = AttentionCall(q, k, v, result, lse, sizes, bool(settings.causal), settings.scale, Tile())
    call = _folded(given)
    return call._replace(tile=tile_of(call.sizes, call.causal, bool(settings.batch_invariant)))


# calls that were made before --------------------------------------------------------------------------------


def _kind(q: Any, k: Any, v: Any, settings: AttentionSettings) -> Any:
    """Return what decides a launch: of tensors all but their addresses and numbers.

    None of other arrays, and of tensors for which the rules have to be asked again.
    """
    try:
        if q.requires_grad or k.requires_grad or v.requires_grad or q.is_neg() or k.is_neg() or v.is_neg():
            return None
        kinds = [
            (type(view), view.shape, view.stride(), view.dtype, view.data_ptr() & 15, view.get_device())
            for view in (q, k, v)
        ]
        return ("attention", *kinds, *settings, *map(type, settings))
    except (AttributeError, TypeError, RuntimeError):
        return None


def _folded(call: AttentionCall) -> AttentionCall:
    """Return a call in which heads of one query each are the queries of the head of keys that they share.

    One query sees all keys, causal or not.
    """
    sizes = call.sizes
    if sizes.queries > 1:
        return call
    group = sizes.heads // sizes.key_heads

    def joined(view: View) -> View:
        batch, head, _, last = view.strides
        strides = (batch, head * group, head if group > 1 else view.shape[-1], last)
        shape = (sizes.batch, sizes.key_heads, group, sizes.depth)
        return view._replace(shape=shape, strides=strides)

    return call._replace(
        q=joined(call.q), out=joined(call.out), causal=False,
        sizes=sizes._replace(heads=sizes.key_heads, queries=group),
    )  # fmt: skip
