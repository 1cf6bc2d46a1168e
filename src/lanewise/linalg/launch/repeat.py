"""Calls of `lw.matmul` on torch's tensors that were made before: no rule is looked at twice for one kind.

Shapes, strides, types, alignment and keywords decide what is launched. Under these, a call is found again
with its launches; what is left is to make the result's tensor and to pass the addresses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from lanewise.gpu.streams import stream_handle
from lanewise.linalg.launch.replay import NOT_READ, repeat_function
from lanewise.linalg.operands import plain_tensors
from lanewise.linalg.pointers import COUNTER_BYTES
from lanewise.linalg.sparse_matrix import SparseMatrix

if TYPE_CHECKING:
    from lanewise.linalg.launch.prepare import Prepared
    from lanewise.linalg.launch.quick_call import QuickCalls
    from lanewise.linalg.rules import Request

#: Calls after which one is worth machine code: a program that multiplies a few times does not wait for that.
_OFTEN = 8
#: Kinds of calls that are remembered; when there are more, all are forgotten.
_MOST_CALLS = 4096
_CALLS: dict[Any, WarmCall] = {}
#: The function of machine code that makes calls, once one was made often, and what it is told of them.
QUICK: list[Callable[..., Any]] = []
_QUICK_CALLS: list[QuickCalls] = []
#: What the keywords are that are no tensors, after the activation, if they are not given.
NOT_GIVEN = (1.0, None, None, None, None, None, False, None, None)
#: Keywords that are no tensors (then the kind of a sparse b), and their numbers.
KEYWORDS: dict[tuple[Any, ...], int] = {}
_NUMBERS = count()  # threads never get the same one


#: Types of values that are their own kind; made once, as this is asked of every operand of a call.
_SHORT = (int, float, str)


def kind_of_tensor(value: Any) -> Any:
    """Return what of a keyword's value decides a launch: of a tensor all but its address and its numbers."""
    if value is None or isinstance(value, _SHORT):
        return value
    if type(value) is SparseMatrix:
        return value.kind
    return value.shape, value.stride(), value.dtype, value.data_ptr() & 15, value.get_device()


#: Workspaces in which kernels count, by device and stream. Each launch leaves its counters zero, and the
#: launches of a stream follow each other.
_COUNTING: dict[tuple[int, int], Any] = {}


def counting_workspace(ordinal: int, stream: int, size: int) -> Any:
    """Return a workspace that begins with zeros: the stream's own; a new one while a graph is captured."""
    torch = sys.modules["torch"]
    found = _COUNTING.get((ordinal, stream))
    if torch.cuda.is_current_stream_capturing():
        found = None
    if found is None or found.numel() < size:
        made = torch.empty(size, dtype=torch.uint8, device=f"cuda:{ordinal}")
        made[:COUNTER_BYTES].zero_()
        if torch.cuda.is_current_stream_capturing():
            return made
        found = _COUNTING[ordinal, stream] = made
    return found


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
        self.given_out = given_out
        #: Whether what `out` holds is the residual.
        self.adds_out = request.residual is request.out
        self.context = prepared.launches[0].kernel.context
        #: The launches in machine code, once the call was made often, and what Inductor makes tensors with.
        self.repeat: Callable[..., int] | None = None
        self.quick_empty: Callable[..., Any] | None = None
        self.calls = 0
        #: How often machine code was offered the whole call; it refuses those on changing streams.
        self.offered = 0
        #: The factor of the result in memory, if it was given as a number.
        self.scale_out = None if request.scale_out is None else request.scale_out.array
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
        result, metadata = out, None
        if type(b) is SparseMatrix:
            there = b.copies.get(("torch", self.ordinal))
            if there is None:
                return None
            b, metadata = there.values, there.metadata
        if out is not None:
            if self._may_overlap([_pointer(each) for each in (a, b, out, bias, residual, scale_a, scale_b)]):
                return None
        elif self.quick_empty is not None:
            result = self.quick_empty(self.shape, self.strides, self.dtype)
        else:
            result = self.empty(self.shape, dtype=self.dtype, device=self.device)
        handle = self.current_stream(self.ordinal) if stream is None else stream_handle(stream)
        workspace = None
        if self.prepared.workspace_bytes:
            workspace = self._workspace(handle)
        if self.adds_out:
            residual = result
        if scale_out is not None and isinstance(scale_out, int | float):
            scale_out = self.scale_out
        self.calls += 1
        if self.calls == _OFTEN:
            self._compile()
        operands: tuple[Any, ...] = (a, b, result, bias, residual, scale_a, scale_b, scale_out, workspace)
        if metadata is not None:
            operands = (*operands, None, None, metadata)  # without the bounds of groups
        if self.repeat is None:
            self.prepared([_pointer(each) for each in operands], handle)
            return result
        if scale_a is not None or scale_b is not None:  # numbers are part of alpha
            operands = tuple(None if isinstance(each, int | float) else each for each in operands)
        status = self.repeat(handle, *operands)
        if status == NOT_READ:
            self.prepared([_pointer(each) for each in operands], handle)
        elif status:
            raise self.context.driver.error(status, "lw.matmul")
        return result

    def _compile(self) -> None:
        """Make machine code of the launches. With several devices, Python sees to their contexts instead."""
        if not self.context.alone:
            return
        torch, launches = sys.modules["torch"], self.prepared.launches
        self.repeat = repeat_function(
            launches,
            torch.Tensor,
            launch=self.context.driver.places[0],
            last=self.context.last_place,
            name=self.context.numbered(launches[-1].kernel.name),
        )
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self.quick_empty = getattr(guards, "_empty_strided_cuda", None)

    def _workspace(self, stream: int) -> Any:
        """Return memory for the call: of its own, or, if kernels count in it, that of its stream."""
        size = self.prepared.workspace_bytes
        if not self.prepared.counts:
            return self.empty(size, dtype=self.bytes, device=self.device)
        return counting_workspace(self.ordinal, stream, size)

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
    KEYWORDS.clear()
    for each in _QUICK_CALLS:
        each.clear()


def remember_quick(made: WarmCall, arguments: tuple[Any, ...], keywords: tuple[Any, ...] | None) -> None:
    """Have machine code make a call from now on, if it can.

    `arguments` are a, b and out; with `keywords`, those that are no tensors, or with a sparse b, also the
    other operands.
    """
    context, prepared = made.context, made.prepared
    made.offered += 1
    if made.repeat is None or made.quick_empty is None or made.offered > _OFTEN:
        return
    if not _QUICK_CALLS:
        from lanewise.linalg.launch.quick_call import QuickCalls

        driver, torch = context.driver, sys.modules["torch"]
        found = QuickCalls(
            plain_tensors(), made.quick_empty, torch.is_grad_enabled, launch=driver.places[0],
            capturing=driver.capturing_place, last=context.last_place,
        )  # fmt: skip
        _QUICK_CALLS.append(found)
        if found.possible:
            QUICK.append(found.call)
    if not QUICK:
        return
    b, metadata = arguments[1], cast(tuple[Any, ...], ())
    if type(b) is SparseMatrix:
        there = b.copies["torch", made.ordinal]
        arguments, metadata = (arguments[0], there.values, *arguments[2:]), (there.metadata,)
        keywords = (*(keywords or (None, *NOT_GIVEN)), b.kind)
    if keywords is not None:
        if len(KEYWORDS) >= _MOST_CALLS:
            forget()
        arguments = (*arguments, KEYWORDS.setdefault(keywords, next(_NUMBERS)), *metadata)
    workspace, counting = None, None
    if prepared.counts:
        stream = made.current_stream(made.ordinal)
        counted = _COUNTING.get((made.ordinal, stream))
        if counted is None or counted.numel() < prepared.workspace_bytes:
            return
        counting = (stream, counted.data_ptr(), counted)
    elif prepared.workspace_bytes:
        workspace = ((prepared.workspace_bytes,), (1,), made.bytes)
    _QUICK_CALLS[0].add(
        arguments, prepared.launches, made.ordinal, context.numbered(prepared.launches[-1].kernel.name),
        (made.shape, made.strides, made.dtype), workspace, made.extents, counting, made.adds_out,
    )  # fmt: skip


def quick_sparse(keywords: tuple[Any, ...], a: Any, b: SparseMatrix, *others: Any) -> Any:
    """Have machine code make a call with a sparse b, which it is not told of but as two tensors.

    `keywords` are those that are no tensors; `others` are out, bias, residual and the scales. Returns what
    machine code returns: None if Python has to make the call.
    """
    number = KEYWORDS.get((*keywords, b.kind))
    there = b.copies.get(("torch", 0))  # it launches where there is one device alone
    if number is None or there is None:
        return None
    return QUICK[0](a, there.values, *others, number, there.metadata)


def quick_fault(status: int) -> Exception:
    """Return the error for the driver's status of a launch that machine code made."""
    from lanewise.gpu.device import context

    return context(0).driver.error(status, "lw.matmul")  # it launches where there is one device alone
