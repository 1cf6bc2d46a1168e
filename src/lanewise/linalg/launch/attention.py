"""Attention on a GPU: the launch of a kind of call, recorded once and repeated on other memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any

from lanewise.formats import f32
from lanewise.gpu.device import Device
from lanewise.lang import u32
from lanewise.linalg.arrays import COUNTER_BYTES, device_view
from lanewise.linalg.kernels.attention.sizes import AttentionCall, tile_of
from lanewise.linalg.kernels.family import Launch
from lanewise.linalg.launch.prepare import Prepared, address_of, current_stream, hopper_launch
from lanewise.linalg.launch.workspaces import counters_for, counting_workspace


def compute(call: AttentionCall) -> None:
    """Launch the kernel of a call on the current stream of its arrays' library."""
    ordinal = call.q.device
    assert ordinal is not None
    stream = current_stream(call.q, ordinal)
    counters = counters_for(call.q, ordinal, stream) if _counts(call) else None
    addresses = _addresses(call, counters)
    _launches_of(call, addresses, ordinal)(addresses, stream)


def repeated(call: AttentionCall, order: list[int], shape: tuple[int, ...]) -> Callable[[Any, Any, Any], Any]:
    """Return a function that repeats a call on other tensors of torch: it makes the result, whose axes lie in
    memory in an order, and launches."""
    torch = sys.modules["torch"]
    stream_of = torch._C._cuda_getCurrentRawStream
    ordinal = call.q.device
    assert ordinal is not None
    counts = _counts(call)
    counters = counting_workspace(ordinal, stream_of(ordinal), COUNTER_BYTES) if counts else None
    launches = _launches_of(call, _addresses(call, counters), ordinal)
    sizes, plain = [shape[axis] for axis in order], order == sorted(order)
    back = [order.index(axis) for axis in range(len(order))]
    with_lse, dtype = call.lse is not None, getattr(torch, call.dtype.dtype_name)
    device = torch.device("cuda", ordinal)

    def repeat(q: Any, k: Any, v: Any) -> Any:
        out = torch.empty(sizes, dtype=dtype, device=device)
        if not plain:
            out = out.permute(back)
        lse = torch.empty(shape[:-1], dtype=torch.float32, device=device) if with_lse else None
        stream = stream_of(ordinal)
        counters = counting_workspace(ordinal, stream, COUNTER_BYTES) if counts else None
        arrays = (q, k, v, out, lse, counters)
        launches([0 if array is None else array.data_ptr() for array in arrays], stream)
        return out if lse is None else (out, lse)

    return repeat


def _counts(call: AttentionCall) -> bool:
    """Return whether blocks count the tiles that they take."""
    return tile_of(call.sizes, call.causal).persistent


def _addresses(call: AttentionCall, counters: object) -> list[int]:
    """Return the addresses of queries, keys, values, results, logarithms and counters; 0: there are none."""
    lse = 0 if call.lse is None else call.lse.address
    return [*(view.address for view in call.views), lse, address_of(counters)]


def _launches_of(call: AttentionCall, addresses: list[int], ordinal: int) -> Prepared:
    """Return the launch of a call's kind."""
    kind = (
        call.sizes, call.dtype.name, call.causal, call.scale, *map(bool, addresses[4:]),
        *(view.strides for view in call.views),
    )  # fmt: skip

    def launch(device: Device) -> Launch:
        from lanewise.linalg.kernels.attention.kernel import launch_of, traits_of

        q, k, v, out = (
            device_view(number, view.address, view.shape, view.strides, view.format)
            for number, view in enumerate(call.views)
        )
        lse, counter = (
            device_view(number, addresses[number], (size,), (1,), fmt) if addresses[number] else None
            for number, size, fmt in ((4, prod(call.out.shape[:-1]), f32), (5, 1, u32))
        )
        traits = traits_of(call.sizes, call.dtype, call.causal)
        return launch_of(traits, call.sizes, (q, k, v, out), lse, call.scale, device.multiprocessors, counter)

    return hopper_launch("attention", kind, ordinal, addresses, launch)
