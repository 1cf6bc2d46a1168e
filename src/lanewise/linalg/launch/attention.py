"""Attention on a GPU: the launch of a kind of call, recorded once and repeated on other memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import f32
from lanewise.gpu.device import Device
from lanewise.gpu.streams import stream_handle
from lanewise.lang import u32
from lanewise.linalg.arrays import COUNTER_BYTES, device_view
from lanewise.linalg.kernels.attention.sizes import AttentionCall, Operands
from lanewise.linalg.kernels.attention.split_keys import partial_bytes
from lanewise.linalg.kernels.family import Launch
from lanewise.linalg.launch.prepare import Prepared, address_of, current_stream, hopper_launches
from lanewise.linalg.launch.workspaces import counters_for, counting_workspace, workspace_for


def compute(call: AttentionCall, given: object) -> None:
    """Launch the kernel of a call on a stream, if none is given on the current one of its arrays' library."""
    ordinal = call.q.device
    assert ordinal is not None
    stream = current_stream(call.q, ordinal) if given is None else stream_handle(given)
    counters = counters_for(call.q, ordinal, stream) if call.tile.persistent else None
    size = partial_bytes(call.sizes, call.tile.parts)
    if size and call.q.library not in ("torch", "cupy"):
        raise LanewiseError(
            f"keys are divided, and sums of {size} bytes go to memory, which torch and CuPy alone can "
            "allocate: pass arrays of theirs, or batch_invariant=True, which divides none"
        )
    partial = workspace_for(call.q, size) if size else None  # until both kernels are launched
    addresses = _addresses(call, counters, partial)
    _launches_of(call, addresses, ordinal)(addresses, stream)


def repeated(call: AttentionCall, order: list[int], shape: tuple[int, ...]) -> Callable[[Any, Any, Any], Any]:
    """Return a function that repeats a call on other tensors of torch: it makes the result, whose axes lie in
    memory in an order, and launches."""
    torch = sys.modules["torch"]
    stream_of = torch._C._cuda_getCurrentRawStream
    ordinal = call.q.device
    assert ordinal is not None
    counts, partial_size = call.tile.persistent, partial_bytes(call.sizes, call.tile.parts)
    device = torch.device("cuda", ordinal)

    def memory(stream: int) -> tuple[Any, Any]:
        """Return the counters and the sums of parts of a call."""
        counters = counting_workspace(ordinal, stream, COUNTER_BYTES) if counts else None
        partial = torch.empty(partial_size, dtype=torch.uint8, device=device) if partial_size else None
        return counters, partial

    launches = _launches_of(call, _addresses(call, *memory(stream_of(ordinal))), ordinal)
    sizes, plain = [shape[axis] for axis in order], order == sorted(order)
    back = [order.index(axis) for axis in range(len(order))]
    with_lse, dtype = call.lse is not None, getattr(torch, call.dtype.dtype_name)

    def repeat(q: Any, k: Any, v: Any) -> Any:
        out = torch.empty(sizes, dtype=dtype, device=device)
        if not plain:
            out = out.permute(back)
        lse = torch.empty(shape[:-1], dtype=torch.float32, device=device) if with_lse else None
        stream = stream_of(ordinal)
        arrays = (q, k, v, out, lse, *memory(stream))
        launches([0 if array is None else array.data_ptr() for array in arrays], stream)
        return out if lse is None else (out, lse)

    return repeat


def _addresses(call: AttentionCall, counters: object, partial: object) -> list[int]:
    """Return the addresses of `Operands`; 0: there are none."""
    lse = 0 if call.lse is None else call.lse.address
    return [*(view.address for view in call.views), lse, address_of(counters), address_of(partial)]


def _launches_of(call: AttentionCall, addresses: list[int], ordinal: int) -> Prepared:
    """Return the launch of a call's kind."""
    kind = (
        call.sizes, call.dtype.name, call.causal, call.scale, call.tile, *map(bool, addresses[4:]),
        *(view.strides for view in call.views),
    )  # fmt: skip

    def launches(device: Device) -> list[Launch]:
        from lanewise.linalg.kernels.attention.kernel import launches_of

        arrays = (
            device_view(number, view.address, view.shape, view.strides, view.format)
            for number, view in enumerate(call.views)
        )
        partial = partial_bytes(call.sizes, call.tile.parts) // 4
        others = (
            device_view(number, addresses[number], (size,), (1,), fmt) if addresses[number] else None
            for number, size, fmt in ((4, prod(call.out.shape[:-1]), f32), (5, 1, u32), (6, partial, f32))
        )
        return launches_of(
            call.sizes, call.dtype, call.causal, call.tile, Operands(*arrays, *others), call.scale,
            device.multiprocessors,
        )  # fmt: skip

    return hopper_launches("attention", kind, ordinal, addresses, launches)
