"""Calls on torch's tensors that were made before: no rule is looked at twice for one kind of call.

Shapes, strides, types, alignment and settings decide what is launched. Under these, a call is found again
with its launches; what is left is to make the result's tensor and to pass the addresses. `KnownCall` does so
in Python. Calls that are made often are given to machine code (`native_calls.py`): `repeated` asks it first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from lanewise.gpu.streams import stream_handle
from lanewise.linalg.epilogue_function import EpilogueFunction
from lanewise.linalg.launch.workspaces import counting_workspace, kept_workspace
from lanewise.linalg.operands import Following, following, note_written, plain_tensors, reach
from lanewise.linalg.options import ARRAYS, NO_SETTINGS, Options, settings_of
from lanewise.linalg.quantize import QuantizedMatrix
from lanewise.linalg.sparsify import SparseMatrix

if TYPE_CHECKING:
    from lanewise.linalg.launch.native_calls import NativeCalls
    from lanewise.linalg.launch.prepare import Prepared
    from lanewise.linalg.rules import Request

#: Calls after which one is worth machine code, and how often it is offered: calls on changing streams, which
#: machine code refuses, are not offered for ever.
_OFTEN = 8
#: What makes a kind of call that was made before, of `lw.matmul`, `lw.grouped_matmul` and `lw.attention`, and
#: how many are remembered; when there are more, all are forgotten.
CALLS: dict[object, Any] = {}
_MOST_CALLS = 4096
#: Machine code that makes calls, once one was made often.
NATIVE_CALLS: list[NativeCalls] = []
#: The numbers by which machine code knows settings (with the kind of a b in two arrays).
_NUMBERS: dict[tuple[object, ...], int] = {}
_NEXT = count()  # threads never get the same one
#: Types of values that are their own kind; made once, as this is asked of every operand of a call.
_SHORT = (int, float, str)
#: Types of matrices that lie in two arrays; made once, too.
_IN_TWO_ARRAYS = (SparseMatrix, QuantizedMatrix)


def kind_of_tensor(value: Any) -> Any:
    """Return what of an operand decides a launch: of a tensor all but its address and its numbers."""
    if value is None or isinstance(value, _SHORT):
        return value
    if type(value) in _IN_TWO_ARRAYS:
        return value.kind
    return value.shape, value.stride(), value.dtype, value.data_ptr() & 15, value.get_device()


def is_negated(*arrays: Any) -> bool:
    """Return whether memory of a tensor holds the numbers with the other sign, as that of x.conj().imag does.

    Nothing else of such a tensor differs, so that no key of a call can tell.
    """
    tensors = (x for x in arrays if not (x is None or isinstance(x, _SHORT) or type(x) in _IN_TWO_ARRAYS))
    return any(tensor.is_neg() for tensor in tensors)


def remember(key: object, call: object) -> None:
    """Keep what makes a kind of call."""
    if len(CALLS) >= _MOST_CALLS:
        CALLS.clear()
    CALLS[key] = call


def forget() -> None:
    """Forget all calls: plans have changed."""
    CALLS.clear()
    _NUMBERS.clear()
    for native_calls in NATIVE_CALLS:
        native_calls.clear()


# in Python --------------------------------------------------------------------------------------------------


class CallKind(NamedTuple):
    """A kind of call: its key, its settings, and what makes it, if one was made before."""

    key: tuple[object, ...]
    settings: tuple[object, ...]
    call: KnownCall | None

    def remember(self, prepared: Prepared, request: Request, options: Options) -> None:
        """Keep the launches of a call for the next one of its kind."""
        if request.a.library == "torch":
            remember(self.key, KnownCall(prepared, request))

    def offer(self, a: object, b: object, options: Options) -> None:
        """Give a call that is made often to machine code, which makes it from now on, if it can."""
        call = self.call
        assert call is not None
        if call.calls < _OFTEN or call.calls >= 2 * _OFTEN or call.quick_empty is None:
            return
        machine_code = _machine_code(call)
        if machine_code is None:
            return
        arrays = [getattr(options, name) for name in ARRAYS]
        plain = self.settings == NO_SETTINGS and not any(array is not None for array in arrays[1:])
        arguments, settings = [a, b, *arrays], self.settings
        metadata: tuple[object, ...] = ()
        if isinstance(b, _IN_TWO_ARRAYS):
            there = b.copies["torch", call.ordinal]
            arguments[1], metadata, settings = there.values, (there.metadata,), (*settings, b.kind)
        elif plain:
            arguments = arguments[:3]
        if len(arguments) > 3:
            if len(_NUMBERS) >= _MOST_CALLS:
                forget()
            arguments += [_NUMBERS.setdefault(settings, next(_NEXT)), *metadata]
        call.give_to(machine_code, arguments)


def known_call(a: Any, b: object, options: Options) -> CallKind | None:
    """Return the kind of a call on torch's tensors on a GPU; None of others, or if gradients are recorded."""
    torch = sys.modules.get("torch")
    if torch is None or type(a) not in plain_tensors() or not a.is_cuda:
        return None
    arrays = [getattr(options, name) for name in ARRAYS]
    try:
        if torch.is_grad_enabled() and any(
            getattr(array, "requires_grad", False) for array in (a, b, *arrays)
        ):
            return None
        if is_negated(a, b, *arrays):
            return None
        settings = _settings(options.__dict__)
        key = (*map(kind_of_tensor, (a, b, *arrays)), settings)
        return CallKind(key, settings, CALLS.get(key))
    except (AttributeError, TypeError, RuntimeError):  # not what a call takes: the rules say so
        return None


def _settings(given: Mapping[str, object]) -> tuple[object, ...]:
    """Return the settings of a call, a user's function as it is now."""
    function = given.get("epilogue")
    if type(function) is EpilogueFunction:
        given = {**given, "epilogue": function.current()}
    return settings_of(given)


class KnownCall:
    """What makes a kind of call again: its launches, and what its result is."""

    def __init__(self, prepared: Prepared, request: Request) -> None:
        torch = sys.modules["torch"]
        self.prepared = prepared
        self.ordinal: int = request.a.device or 0
        self.shape = tuple(request.result.shape)
        self.strides = tuple(request.result.stride())
        self.dtype, self.device = request.result.dtype, request.result.device
        self.empty, self.bytes = torch.empty, torch.uint8
        self.current_stream = torch._C._cuda_getCurrentRawStream
        #: Whether what `out` holds is the residual.
        self.adds_out = request.residual is request.out
        self.context = prepared.launches[0].kernel.context
        #: What Inductor makes tensors with, on the only device.
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self.quick_empty: Callable[..., Any] | None = None
        if self.context.alone:
            self.quick_empty = getattr(guards, "_empty_strided_cuda", None)
        self.calls = 0
        #: The factor of the result in memory, if it was given as a number.
        self.scale_out = None if request.scale_out is None else request.scale_out.array
        #: From the first byte of each operand to the last, by its address.
        self.extents = [None if view is None else reach(view) for view in request.views.values()]

    def __call__(self, a: object, b: object, options: Options) -> Any:
        """Make the call; returns its result, or None if the rules have to be looked at."""
        result, residual, scale_out = options.out, options.residual, options.scale_out
        metadata = None
        if isinstance(b, _IN_TWO_ARRAYS):
            there = b.copies.get(("torch", self.ordinal))
            if there is None:
                return None
            b, metadata = there.values, there.metadata
        operands = [a, b, result, options.bias, residual, options.scale_a, options.scale_b]
        if result is not None:
            if self._may_overlap([_pointer(operand) for operand in operands]):
                return None
        elif self.quick_empty is not None:
            result = self.quick_empty(self.shape, self.strides, self.dtype)
        else:
            result = self.empty(self.shape, dtype=self.dtype, device=self.device)
        stream = options.stream
        handle = self.current_stream(self.ordinal) if stream is None else stream_handle(stream)
        workspace = self._workspace(handle) if self.prepared.workspace_bytes else None
        if self.adds_out:
            residual = result
        if isinstance(scale_out, int | float):
            scale_out = self.scale_out
        self.calls += 1
        operands[2], operands[4] = result, residual
        addresses = [_pointer(operand) for operand in (*operands, scale_out, workspace)]
        self.prepared([*addresses, 0, 0, _pointer(metadata)], handle)  # 0: there are no bounds of groups
        return result

    def _workspace(self, stream: int) -> Any:
        """Return memory for the call: of its own, or, if kernels count in it, that of its stream."""
        size = self.prepared.workspace_bytes
        if not self.prepared.counts:
            return self.empty(size, dtype=self.bytes, device=self.device)
        return counting_workspace(self.ordinal, stream, size)

    def _may_overlap(self, addresses: list[int]) -> bool:
        """Return whether the memory of the result and of another operand are not clearly apart."""
        own = self.extents[2]
        assert own is not None
        first, last = addresses[2] + own[0], addresses[2] + own[1]
        for place, extent in enumerate(self.extents[: len(addresses)]):
            if extent is None or place == 2 or (place == 4 and self.adds_out):
                continue
            if addresses[place] + extent[0] < last and first < addresses[place] + extent[1]:
                return True
        return False

    def give_to(self, machine_code: NativeCalls, arguments: list[object]) -> None:
        """Have machine code make calls of the kind of these arguments."""
        prepared, workspace, counting = self.prepared, None, None
        if prepared.counts:
            stream = self.current_stream(self.ordinal)
            kept = kept_workspace(self.ordinal, stream, prepared.workspace_bytes)
            if kept is None:
                return
            counting = (stream, kept.data_ptr(), kept)
        elif prepared.workspace_bytes:
            workspace = ((prepared.workspace_bytes,), (1,), self.bytes)
        machine_code.add(
            arguments, prepared.launches, self.ordinal,
            self.context.numbered(prepared.launches[-1].kernel.name),
            (self.shape, self.strides, self.dtype), workspace, self.extents, counting, self.adds_out,
        )  # fmt: skip


def _pointer(value: Any) -> int:
    return value.data_ptr() if value is not None and not isinstance(value, int | float) else 0


# in machine code --------------------------------------------------------------------------------------------


def repeated(a: Any, b: Any, out: Any, bias: object, activation: object, more: Mapping[str, object]) -> Any:
    """Make a call by machine code; returns its result, or None if it has to be made in Python.

    `more` are the other keywords; out, bias and activation are apart, as they are common.
    """
    for levels, modes, transforms, tracing in _FOLLOWING:
        if levels._current_level >= 0 or modes() or transforms() or tracing():
            return None
    call = NATIVE_CALLS[0].call
    if not more and bias is None and activation is None and type(b) not in _IN_TWO_ARRAYS:
        try:
            if a.is_neg() or b.is_neg() or (out is not None and out.is_neg()):
                return None
        except AttributeError:  # no tensor of torch's
            return None
        result = call(a, b, out)
    else:
        if more.get("stream") is not None:
            return None
        others = [more.get(name) for name in _OTHER_ARRAYS]
        try:
            if is_negated(a, b, out, bias, *others):
                return None
            settings: Any = _settings({"activation": activation, **more}) if more else (activation, *_REST)
            metadata: tuple[object, ...] = ()
            if isinstance(b, _IN_TWO_ARRAYS):
                there = b.copies.get(("torch", 0))  # it launches where there is one device alone
                if there is None:
                    return None
                settings, b, metadata = (*settings, b.kind), there.values, (there.metadata,)
            number = _NUMBERS.get(settings)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # not what a call takes
            return None
        if number is None:
            return None
        result = call(a, b, out, bias, *others, number, *metadata)
    if type(result) is int:
        from lanewise.gpu.device import context

        raise context(0).driver.error(result, "lw.matmul")
    if out is not None and result is not None:
        note_written(out)
    return result


#: What says whether torch follows computations, once there is machine code.
_FOLLOWING: list[Following] = []
#: The settings after the activation if none is given, and the arrays after out and bias.
_REST, _OTHER_ARRAYS = NO_SETTINGS[1:], ARRAYS[2:]


def _machine_code(call: KnownCall) -> NativeCalls | None:
    """Return what makes calls by machine code; None where there is none."""
    if not NATIVE_CALLS:
        from lanewise.linalg.launch.native_calls import NativeCalls

        context, torch = call.context, sys.modules["torch"]
        made = NativeCalls(
            plain_tensors(), call.quick_empty, torch.is_grad_enabled, launch=context.driver.places[0],
            capturing=context.driver.capturing_place, last=context.last_place,
        )  # fmt: skip
        if not made.possible:
            call.quick_empty = None  # so that it is not asked again
            return None
        _FOLLOWING.append(following())
        NATIVE_CALLS.append(made)
    return NATIVE_CALLS[0]
