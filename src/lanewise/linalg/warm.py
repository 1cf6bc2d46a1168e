"""Calls of `lw.matmul` on torch's tensors that were made before: no rule is looked at twice for one kind.

Shapes, strides, types, alignment and keywords decide what is launched. Under these, a call is found again
with its launches; what is left is to make the result's tensor and to pass the addresses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from lanewise.gpu.streams import stream_handle
from lanewise.linalg.operands import plain_tensors
from lanewise.linalg.replay import NOT_READ, kind_function, repeat_function

if TYPE_CHECKING:
    from lanewise.linalg.on_gpu import Prepared
    from lanewise.linalg.rules import Request

#: Kinds of calls that are remembered; when there are more, all are forgotten.
_MOST_CALLS = 4096
_CALLS: dict[Any, WarmCall] = {}
#: Calls without keywords by the number of their kind, and the function that tells it, once there is one.
PLAIN_CALLS: dict[int, WarmCall] = {}
KIND: list[Callable[..., int]] = []


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
        self.strides = tuple(request.result.stride())
        self.dtype, self.device = request.result.dtype, request.result.device
        self.empty = torch.empty
        self.current_stream = torch._C._cuda_getCurrentRawStream
        self.bytes = torch.uint8
        self.workspace = torch.zeros if prepared.counts else torch.empty
        self.given_out = given_out
        #: Whether what `out` holds is the residual.
        self.adds_out = request.residual is request.out
        context = prepared.launches[0].kernel.context
        #: With one device only: the launches in machine code, and what Inductor makes tensors with.
        self.repeat = self.quick_empty = None
        if context.alone:
            self.repeat = repeat_function(
                prepared.launches, torch.Tensor, launch=context.driver.places[0], last=context.last_place,
                name=context.numbered(prepared.launches[-1].kernel.name),
            )  # fmt: skip
            guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
            self.quick_empty = getattr(guards, "_empty_strided_cuda", None)
        self.error = context.driver.error
        #: From the first byte of each operand to the last, by its address.
        self.extents = [
            None if view is None else _reach(view)
            for view in (
                request.a, request.b, request.out, request.bias, request.residual, request.scale_a.view,
                request.scale_b.view, request.scale_out,
            )
        ]  # fmt: skip

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Any,
        stream: Any,
        bias: Any = None,
        residual: Any = None,
        scale_a: Any = None,
        scale_b: Any = None,
        scale_out: Any = None,
    ) -> Any:
        """Make the call; returns its result, or None if the rules have to be looked at."""
        result = out
        if out is not None:
            if self._may_overlap([_pointer(each) for each in (a, b, out, bias, residual, scale_a, scale_b)]):
                return None
        elif self.quick_empty is not None:
            result = self.quick_empty(self.shape, self.strides, self.dtype)
        else:
            result = self.empty(self.shape, dtype=self.dtype, device=self.device)
        workspace = None
        if self.prepared.workspace_bytes:
            workspace = self.workspace(self.prepared.workspace_bytes, dtype=self.bytes, device=self.device)
        if self.adds_out:
            residual = result
        handle = self.current_stream(self.ordinal) if stream is None else stream_handle(stream)
        operands = (a, b, result, bias, residual, scale_a, scale_b, scale_out, workspace)
        if self.repeat is None:
            self.prepared([_pointer(each) for each in operands], handle)
            return result
        if scale_a is not None or scale_b is not None:  # numbers are part of alpha
            operands = tuple(  # type: ignore[assignment]
                None if isinstance(each, int | float) else each for each in operands
            )
        status = self.repeat(handle, *operands)
        if status == NOT_READ:
            self.prepared([_pointer(each) for each in operands], handle)
        elif status:
            raise self.error(status, "lw.matmul")
        return result

    def _may_overlap(self, addresses: list[int]) -> bool:
        """Return whether the memory of the result and of another operand are not clearly apart."""
        if not self.given_out:
            return True
        own = self.extents[2]
        assert own is not None
        first, last = addresses[2] + own[0], addresses[2] + own[1]
        for place, extent in enumerate(self.extents[: len(addresses)]):
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
    """Return the call of a kind with keywords, if one was made before."""
    return _CALLS.get(key)


def remember(key: Any, made: WarmCall) -> None:
    """Keep a call that was made, for the next one of its kind."""
    if len(_CALLS) >= _MOST_CALLS:
        _CALLS.clear()
    _CALLS[key] = made


def forget() -> None:
    """Forget all calls: plans have changed."""
    _CALLS.clear()
    PLAIN_CALLS.clear()


@cache
def tensor_kind() -> Callable[..., int] | None:
    """Return the function that tells the kind of torch's tensors as a number; None where there is none."""
    return kind_function(plain_tensors())


def remember_plain(made: WarmCall, *tensors: Any) -> None:
    """Keep a call without keywords under the number of its tensors' kind."""
    kind = tensor_kind()
    if kind is None or made.repeat is None:
        return
    if len(PLAIN_CALLS) >= _MOST_CALLS:
        PLAIN_CALLS.clear()
    number = kind(*tensors)
    if number:
        PLAIN_CALLS[number] = made
        if not KIND:
            KIND.append(kind)
