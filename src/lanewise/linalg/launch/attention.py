"""Attention on a GPU: the launch of a kind of call, recorded once and repeated on other memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.gpu.device import Context, Device, context
from lanewise.linalg.attention_call import AttentionCall
from lanewise.linalg.launch.device_view import DeviceView
from lanewise.linalg.launch.prepare import Prepared, current_stream, kept_launches, record_launches
from lanewise.linalg.operands import View
from lanewise.recently_used import RecentlyUsed

#: Kinds of calls that are remembered.
_MOST_KINDS = 1024
_PREPARED: RecentlyUsed[object, Prepared] = RecentlyUsed(_MOST_KINDS)
#: The arch of the kernel's instructions.
_ARCH = "sm_90"


def compute(call: AttentionCall) -> None:
    """Launch the kernel of a call on the current stream of its arrays' library."""
    launches, ordinal = _found(call)
    addresses = [operand.address for operand in _operands(call)]
    launches(addresses, current_stream(call.q, ordinal))


def repeated(call: AttentionCall, order: list[int], shape: tuple[int, ...]) -> Callable[[Any, Any, Any], Any]:
    """Return a function that repeats a call on other tensors of torch: it makes the result, whose axes lie in
    memory in an order, and launches."""
    torch = sys.modules["torch"]
    launches, ordinal = _found(call)
    stream_of = torch._C._cuda_getCurrentRawStream
    sizes, plain = [shape[axis] for axis in order], order == sorted(order)
    back = [order.index(axis) for axis in range(len(order))]
    with_lse, dtype = call.lse is not None, getattr(torch, call.dtype.dtype_name)
    device = torch.device("cuda", ordinal)

    def repeat(q: Any, k: Any, v: Any) -> Any:
        out = torch.empty(sizes, dtype=dtype, device=device)
        if not plain:
            out = out.permute(back)
        addresses = [q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()]
        if not with_lse:
            launches(addresses, stream_of(ordinal))
            return out
        lse = torch.empty(shape[:-1], dtype=torch.float32, device=device)
        launches([*addresses, lse.data_ptr()], stream_of(ordinal))
        return out, lse

    return repeat


def _operands(call: AttentionCall) -> list[View]:
    """Return the arrays of a launch, in the order of their addresses."""
    return [*call.views, *(() if call.lse is None else (call.lse,))]


def _found(call: AttentionCall) -> tuple[Prepared, int]:
    """Return the launch of a call's kind, and the GPU."""
    ordinal = call.q.device
    assert ordinal is not None
    key = (
        call.sizes, call.dtype.name, call.causal, call.scale, call.lse is not None, ordinal,
        *(view.strides for view in call.views),
    )  # fmt: skip
    found = _PREPARED.get(key)
    if found is None:
        found = _prepared(call, _operands(call), context(ordinal), repr(key))
        _PREPARED.put(key, found)
    return found, ordinal


def _prepared(call: AttentionCall, views: list[View], there: Context, name: str) -> Prepared:
    """Return the launch of a call: from disk, or made on the call's own memory and recorded."""
    require_hopper(there.device, "attention")
    name = f"attention {name}"
    kept = kept_launches(name, there)
    if kept is not None:
        return kept
    from lanewise.linalg.kernels.attention.launches import launch_of, traits_of

    traits = traits_of(call.sizes, call.dtype, call.causal)
    arrays = [
        DeviceView(number, view.address, view.shape, view.strides, view.format)
        for number, view in enumerate(views)
    ]
    lse = arrays[4] if call.lse is not None else None
    q, k, v, out = arrays[:4]
    launch = launch_of(traits, call.sizes, (q, k, v, out), lse, call.scale, there.device.multiprocessors)
    return record_launches(name, [launch], there, [view.address for view in views])


def require_hopper(device: Device, what: str) -> None:
    """Raise an error for a GPU that lacks the kernel's instructions."""
    if device.arch.rstrip("a") != _ARCH:
        raise LanewiseError(
            f"{what} runs on Hopper GPUs, {_ARCH}, and {device.name} is {device.arch}; arrays in host memory "
            "are computed on the CPU"
        )
