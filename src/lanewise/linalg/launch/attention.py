"""Attention on a GPU: the launch of a kind of call, recorded once and repeated on other memory."""

from __future__ import annotations

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.gpu import recorded
from lanewise.gpu.device import Context, Device, context
from lanewise.linalg.attention_call import AttentionCall
from lanewise.linalg.launch.device_view import DeviceView
from lanewise.linalg.launch.prepare import Prepared, current_stream
from lanewise.linalg.operands import View
from lanewise.recently_used import RecentlyUsed

#: Kinds of calls that are remembered.
_MOST_KINDS = 1024
_PREPARED: RecentlyUsed[Any, Prepared] = RecentlyUsed(_MOST_KINDS)
#: The arch of the kernel's instructions.
_ARCH = "sm_90"


def compute(call: AttentionCall) -> None:
    """Launch the kernel of a call on the current stream of its arrays' library."""
    ordinal = call.q.device
    assert ordinal is not None
    views = [*call.views, *(() if call.lse is None else (call.lse,))]
    key = (
        call.sizes, call.dtype.name, call.causal, call.scale, call.lse is not None, ordinal,
        *(each.strides for each in call.views),
    )  # fmt: skip
    found = _PREPARED.get(key)
    if found is None:
        found = _prepared(call, views, context(ordinal), repr(key))
        _PREPARED.put(key, found)
    found([each.address for each in views], current_stream(call.q, ordinal))


def _prepared(call: AttentionCall, views: list[View], there: Context, name: str) -> Prepared:
    """Return the launch of a call: from disk, or made on the call's own memory and recorded."""
    require_hopper(there.device, "attention")
    name = f"attention {name}"
    kept = recorded.kept(name, there)
    if kept is not None:
        return Prepared(kept[0], 0, counts=False)
    from lanewise.linalg.kernels.attention.launches import launch_of, traits_of

    traits = traits_of(call.sizes, call.dtype, call.causal)
    arrays = [
        DeviceView(number, view.address, view.shape, view.strides, view.format)
        for number, view in enumerate(views)
    ]
    lse = arrays[4] if call.lse is not None else None
    q, k, v, out = arrays[:4]
    launch = launch_of(traits, call.sizes, (q, k, v, out), lse, call.scale, there.device.multiprocessors)
    kernel, arguments = launch.traced()
    addresses = [view.address for view in views]
    made = recorded.record(kernel.entry, kernel.shape, arguments, there, _operand_of, addresses)
    recorded.keep(name, [(made, kernel.entry)], {})
    return Prepared([made], 0, counts=False)


def require_hopper(device: Device, what: str) -> None:
    """Raise an error for a GPU that lacks the kernel's instructions."""
    if device.arch.rstrip("a") != _ARCH:
        raise LanewiseError(
            f"{what} runs on Hopper GPUs, {_ARCH}, and {device.name} is {device.arch}; arrays in host memory "
            "are computed on the CPU"
        )


def _operand_of(memory: Any) -> int | None:
    return memory.operand if isinstance(memory, DeviceView) else None
