"""Calls of `lw.matmul` on torch's tensors that were made before: no rule is looked at twice for one kind.

Shapes, strides, types, alignment and keywords decide what is launched. Under these, a call is found again
with its launches; what is left is to make the result's tensor and to pass the addresses.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lanewise.gpu.streams import stream_handle

if TYPE_CHECKING:
    from lanewise.linalg.on_gpu import Prepared
    from lanewise.linalg.rules import Request

#: Kinds of calls that are remembered; when there are more, all are forgotten.
_MOST_CALLS = 4096
_CALLS: dict[Any, WarmCall] = {}


def kind_of_tensor(value: Any) -> Any:
    """Return what of a keyword's value decides a launch: of a tensor all but its address and its numbers."""
    if value is None or isinstance(value, int | float | str):
        return value
    return value.shape, value.stride(), value.dtype, value.data_ptr() & 15, value.get_device()


class WarmCall:
    """A kind of call that was made before."""

    def __init__(self, prepared: Prepared, request: Request, given_out: bool) -> None:
        torch = sys.modules["torch"]
        self.prepared = prepared
        self.ordinal: int = request.a.device or 0
        self.shape = tuple(request.result.shape)
        self.dtype = request.result.dtype
        self.device = request.result.device
        self.empty = torch.empty
        self.current_stream = torch._C._cuda_getCurrentRawStream
        self.bytes = torch.uint8
        self.given_out = given_out
        #: Whether what `out` holds is the residual.
        self.adds_out = request.residual is request.out
        #: From the first byte of each operand to the last, by its address.
        self.extents = [
            None if view is None else _reach(view)
            for view in (
                request.a, request.b, request.out, request.bias, request.residual, request.scale_a.view,
                request.scale_b.view, request.scale_out,
            )
        ]  # fmt: skip

    def __call__(self, tensors: tuple[Any, ...], out: Any, stream: Any) -> Any:
        """Make the call on a, b, bias, residual and the scales; None if the rules have to be looked at."""
        a, b, bias, residual, scale_a, scale_b, scale_out = tensors
        result = out
        if out is None:
            result = self.empty(self.shape, dtype=self.dtype, device=self.device)
        addresses = [
            a.data_ptr(),
            b.data_ptr(),
            result.data_ptr(),
            _pointer(bias),
            _pointer(residual),
            _pointer(scale_a),
            _pointer(scale_b),
            _pointer(scale_out),
            0,
        ]
        if self.adds_out:
            addresses[4] = addresses[2]
        if out is not None and self._may_overlap(addresses):
            return None
        if self.prepared.workspace_bytes:
            workspace = self.empty(self.prepared.workspace_bytes, dtype=self.bytes, device=self.device)
            addresses[8] = workspace.data_ptr()
        handle = self.current_stream(self.ordinal) if stream is None else stream_handle(stream)
        for launch in self.prepared.launches:
            launch(addresses, handle)
        return result

    def _may_overlap(self, addresses: list[int]) -> bool:
        """Return whether the memory of the result and of another operand are not clearly apart."""
        if not self.given_out:
            return True
        own = self.extents[2]
        assert own is not None
        first, last = addresses[2] + own[0], addresses[2] + own[1]
        for place, extent in enumerate(self.extents):
            if extent is None or place == 2 or (place == 4 and self.adds_out):
                continue
            if addresses[place] + extent[0] < last and first < addresses[place] + extent[1]:
                return True
        return False


def _pointer(value: Any) -> int:
    return value.data_ptr() if value is not None and not isinstance(value, int | float) else 0


def _reach(view: Any) -> tuple[int, int]:
    """Return the bytes before and after an operand's address that it takes."""
    steps = [step * (size - 1) for step, size in zip(view.strides, view.shape, strict=True) if size]
    return view.bytes * sum(each for each in steps if each < 0), view.bytes * (
        1 + sum(each for each in steps if each > 0)
    )


def find(key: Any) -> WarmCall | None:
    """Return the call of a kind, if one was made before."""
    return _CALLS.get(key)


def remember(key: Any, prepared: Prepared, request: Request, given_out: bool) -> None:
    """Keep a call that was made, for the next one of its kind."""
    if len(_CALLS) >= _MOST_CALLS:
        _CALLS.clear()
    _CALLS[key] = WarmCall(prepared, request, given_out)
