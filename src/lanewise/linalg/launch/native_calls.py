"""A call of `lw.matmul` that was made before, as one function of machine code.

It reads a, b, out and other operands, finds the call by their kind, makes the result (and a workspace) by
the function that torch's Inductor makes tensors with, asks for the current stream, and launches. What it
cannot do itself it leaves to Python: it returns None then, and nothing has happened.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from lanewise.gpu.native import (
    DLTensor,
    LaunchConfig,
    Object,
    Py_DecRef,
    Py_IncRef,
    PyBytes_FromStringAndSize,
    PyErr_Clear,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    PyLong_AsUnsignedLongLong,
    PyLong_AsVoidPtr,
    PyLong_FromLongLong,
    PyObject_Call,
    PyObject_GetAttr,
    Words,
    axes_of,
    call_status,
    copy_words,
    exchange_function,
    first_element,
    launch_kernel,
    load,
    made,
    read_tensor,
    record_of,
    stack_words,
    stream_function,
    words_of,
)
from lanewise.jit import machine_code
from lanewise.jit.compiled_functions import primitive, signature_only
from lanewise.jit.lane_functions import address_of, unsigned_less
from lanewise.jit.record_layout import RecordLayout, field, numbers, pointer, table
from lanewise.jit.restricted_python import compiled

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: Numbers of operands: the result, what is added to it, the workspace, where a sparse b's elements stood.
#: Arguments have the same ones, but for the number of the other keywords in the place of the workspace, and
#: the metadata behind it.
_OUT, _ADDED, _MEMORY, _METADATA = 2, 4, 8, 11
_OTHER_KEYWORDS, _METADATA_ARGUMENT = 8, 9
#: Operands that a call may have, and all numbers of them.
_OPERANDS, _OPERAND_NUMBERS = 8, 16
#: How many arguments there are: a, b and out alone; other operands and the number of the keywords as well;
#: and a sparse b's metadata.
_PLAIN, _FULL, _SPARSE = 3, 9, 10
#: Words of the longest key; the words of a tensor in it beside those of its axes, the word for an argument
#: that is absent, and what is added to the alignment of one that is there.
_KEY_ROOM, _TENSOR_WORDS, _ABSENT, _GIVEN = 191, 3, 0, 16
#: Where the hash of a key begins, and what spreads its bits.
_FIRST_HASH, _SPREADING = 88172645463325252, -7046029254386353131
_CUDA = 2
#: The name under which the machine code is kept.
_PROGRAM = "native call"
#: Calls that are found, and places for them: more than twice as many, so that those taken are short rows.
_MOST_CALLS, _ROOM = 4096, 16384


# records that machine code reads ----------------------------------------------------------------------------


class Key(RecordLayout):
    """What identifies a call: words that say all that its arguments are, but for numbers and addresses.

    The hash of a key says where to look for a call, the comparison of all words whether it was found.
    """

    count = field()
    words = field(8, _KEY_ROOM + 16)  # the number of the keywords and the hash come behind the longest


class Operands(RecordLayout):
    """The addresses of operands by their numbers; 0: there is none."""

    addresses = field(8, _OPERAND_NUMBERS)


class Change(RecordLayout):
    """A word of a launch's values that differs from call to call: an operand's address, and what is added."""

    place = field()
    operand = field()
    addend = field()


class Launch(RecordLayout):
    """A recorded launch: its parameters' values, at which word each begins, and what changes."""

    values = pointer(lambda: Words)
    value_words = field()
    parameters = field()
    offsets = numbers(8)
    config = pointer(lambda: LaunchConfig)
    changes = field()
    changed = table(lambda: Change)
    function = field()


class LaunchPointer(RecordLayout):
    """An element of an array of pointers to launches."""

    launch = pointer(lambda: Launch)


class Call(RecordLayout):
    """A kind of call."""

    device = field()
    name = field()
    #: The arguments that make the result and the workspace; 0: there is none.
    result = field()
    workspace = field()
    #: Whether kernels count in the workspace, and then its stream and its address.
    counts = field()
    counting_stream = field()
    counting_address = field()
    #: The first and the last byte of each operand by its address.
    extents = numbers(8)
    #: Whether what out holds is the residual.
    adds_out = field()
    key = pointer(lambda: Key)
    launches = table(lambda: LaunchPointer)
    launch_count = field()


class Slot(RecordLayout):
    """A place for a call, found by its hash; 0: it is empty."""

    hash = field()
    call = pointer(lambda: Call)


class Caller(RecordLayout):
    """What calls need: addresses of functions and of objects, and the calls."""

    read = field()
    stream = field()
    none = field()
    true = field()
    launch = field()
    capturing = field()
    last = pointer(lambda: Words)
    empty = field()
    requires_grad = field()
    recording = field()
    nothing = field()
    slots = table(lambda: Slot)
    mask = field()
    types = numbers(8)
    type_count = field()


# the key of a call ------------------------------------------------------------------------------------------


@compiled()
def mixed(seen: int, more: int) -> int:
    """Return a hash of what was seen before and of a word."""
    spread = (seen ^ more) * _SPREADING
    return spread ^ ((spread >> 29) & ((1 << 35) - 1))


@compiled()
def put(key: Key, seen: int, value: int) -> int:
    """Append a word to a key; return the hash of what was seen before and of it."""
    key.words[key.count] = value
    key.count += 1
    return mixed(seen, value)


@compiled()
def same_key(key: Key, other: Key) -> bool:
    """Return whether two keys are the same, word for word."""
    same = key.count == other.count
    for n in range(key.count):
        if not same:
            break
        same = key.words[n] == other.words[n]
    return same


@compiled()
def put_tensor(tensor: DLTensor, key: Key, seen: int) -> int:
    """Append to a key what a tensor is, but for its numbers and its address.

    Returns the hash; 0: it has no strides, or too many axes. The number of axes is among the words, so that
    no two lists of tensors have the same ones.
    """
    axes = axes_of(tensor)
    if address_of(tensor.strides) == 0 or key.count + 2 * axes + _TENSOR_WORDS > _KEY_ROOM:
        return 0
    hashed = put(key, seen, (first_element(tensor) & 15) + _GIVEN)
    hashed = put(key, hashed, tensor.device)
    hashed = put(key, hashed, tensor.axes_and_dtype)
    for n in range(axes):
        hashed = put(key, put(key, hashed, tensor.shape[n]), tensor.strides[n])
    return hashed


@compiled()
def take(caller: Caller, object: int, operands: Operands, number: int, key: Key, seen: int) -> int:
    """Read a tensor: its address goes to the operands, what it is to the key. Return the hash, or 0."""
    tensor, own = DLTensor.on_stack(), Object.at(object).type
    for n in range(caller.type_count):
        if caller.types[n] == own:
            if read_tensor(caller.read, object, tensor):
                operands.addresses[number] = first_element(tensor)
                return put_tensor(tensor, key, seen)
            PyErr_Clear()
            return 0
    return 0


@compiled()
def take_all(caller: Caller, arguments: Words, given: int, operands: Operands, key: Key) -> int:
    """Read all arguments of a call; return the hash of its key, 0 if an argument is not to be taken."""
    key.count = 0
    if given != _PLAIN and given != _FULL and given != _SPARSE:
        return 0
    hashed = put(key, _FIRST_HASH, given)
    for n in range(min(given, _OPERANDS)):
        if arguments.words[n] != caller.none:
            hashed = take(caller, arguments.words[n], operands, n, key, hashed)
            if hashed == 0:
                return 0
        elif n < _OUT:
            return 0
        else:
            hashed = put(key, hashed, _ABSENT)
    if given > _PLAIN:
        if arguments.words[_OTHER_KEYWORDS] == caller.none:
            return 0
        hashed = put(key, hashed, PyLong_AsUnsignedLongLong(arguments.words[_OTHER_KEYWORDS]))
    if given == _SPARSE:
        hashed = take(caller, arguments.words[_METADATA_ARGUMENT], operands, _METADATA, key, hashed)
    return hashed


@compiled(external=True)
def kind(self: int, arguments: Words, given: int) -> int:
    """Return the key of a call as bytes, its hash behind it; none if machine code does not take it.

    A method of Python.
    """
    caller, operands, key = Caller.at(PyLong_AsVoidPtr(self)), Operands.on_stack(), Key.on_stack()
    hashed = take_all(caller, arguments, given, operands, key)
    key.words[key.count] = hashed
    return PyBytes_FromStringAndSize(address_of(key), 8 * (key.count + 2) if hashed != 0 else 0)


@compiled()
def found(caller: Caller, hashed: int, key: Key) -> Call:
    """Return the call with a key, whose hash says where to look; null if there is none.

    Rows of taken places end with an empty one.
    """
    n = hashed & caller.mask
    while caller.slots[n].hash != 0:
        if caller.slots[n].hash == hashed and same_key(key, caller.slots[n].call.key):
            return caller.slots[n].call
        n = (n + 1) & caller.mask
    return Call.at(0)


# what decides whether it is made here -----------------------------------------------------------------------


@compiled()
def has_gradient(caller: Caller, object: int) -> bool:
    """Return whether a tensor requires a gradient that is recorded now, or cannot say."""
    said = PyObject_GetAttr(object, caller.requires_grad)
    Py_DecRef(said)
    if said == caller.true:
        said = PyObject_Call(caller.recording, caller.nothing, 0)
        Py_DecRef(said)
    if said == 0:
        PyErr_Clear()
    return said == 0 or said == caller.true


@compiled()
def any_gradient(caller: Caller, arguments: Words, given: int) -> bool:
    """Return whether an argument requires a gradient that is recorded now."""
    for n in range(min(given, _OPERANDS)):
        if arguments.words[n] != caller.none and has_gradient(caller, arguments.words[n]):
            return True
    return False


@compiled()
def overlaps(call: Call, operands: Operands) -> bool:
    """Return whether the memory of a given result may be that of another operand, but for what is added."""
    out = operands.addresses[_OUT]
    first, last = out + call.extents[2 * _OUT], out + call.extents[2 * _OUT + 1]
    for n in range(_OPERANDS):
        address = operands.addresses[n]
        apart = address == 0 or n == _OUT or (n == _ADDED and call.adds_out != 0)
        begins_before = unsigned_less(address + call.extents[2 * n], last)
        if not apart and begins_before and unsigned_less(first, address + call.extents[2 * n + 1]):
            return True
    return False


@primitive(call_status)
def _current_stream(function: int, device_type: int, ordinal: int, stream: Words) -> int:
    """Call DLPack's function that tells the current stream."""
    signature_only()


@primitive(call_status)
def _is_capturing(function: int, stream: int, answer: Words) -> int:
    """Call cuStreamIsCapturing."""
    signature_only()


@compiled()
def captures(caller: Caller, stream: int) -> bool:
    """Return whether a graph is captured from a stream, or the driver does not say."""
    answer = Words.on_stack()
    answer.words[0] = 0
    return _is_capturing(caller.capturing, stream, answer) != 0 or answer.words[0] != 0


# launches ---------------------------------------------------------------------------------------------------


@compiled(noinline=True)
def launch_one(launch: Launch, operands: Operands, stream: int, start: int) -> int:
    """Make a launch on the operands' addresses; return the status."""
    values, places = stack_words(launch.value_words), stack_words(launch.parameters)
    copy_words(values, launch.values, launch.value_words)
    for n in range(launch.parameters):
        places.words[n] = address_of(values) + launch.offsets[n]
    for n in range(launch.changes):
        change = launch.changed[n]
        value = Words.at(address_of(values) + change.place)
        value.words[0] = operands.addresses[change.operand] + change.addend
    return launch_kernel(start, launch.config, stream, launch.function, places)


@compiled()
def launch_all(call: Call, operands: Operands, stream: int, start: int) -> int:
    """Make all launches of a call; return the status of the last one made."""
    for n in range(call.launch_count):
        status = launch_one(call.launches[n].launch, operands, stream, start)
        if status != 0:
            return status
    return 0


@compiled()
def new(caller: Caller, arguments: int, operands: Operands, number: int) -> int:
    """Return a tensor made by torch, whose address goes to the operands; 0 with an error of Python's."""
    tensor = DLTensor.on_stack()
    tensor_object = PyObject_Call(caller.empty, arguments, 0)
    if tensor_object == 0:
        return 0
    if not read_tensor(caller.read, tensor_object, tensor):
        Py_DecRef(tensor_object)
        return 0
    operands.addresses[number] = first_element(tensor)
    return tensor_object


@compiled()
def launched(caller: Caller, call: Call, out: int, operands: Operands, stream: int) -> int:
    """Return the result of a call after its launches; the driver's status as a number if one failed.

    0 with an error of Python's if there is no memory.
    """
    workspace, result = 0, out
    if call.workspace != 0:
        workspace = new(caller, call.workspace, operands, _MEMORY)
        if workspace == 0:
            return 0
    if out != caller.none:
        Py_IncRef(out)
    else:
        result = new(caller, call.result, operands, _OUT)
        if result == 0:
            Py_DecRef(workspace)
            return 0
    if call.adds_out != 0:
        operands.addresses[_ADDED] = operands.addresses[_OUT]
    caller.last.words[0] = call.name
    thread = PyEval_SaveThread()
    status = launch_all(call, operands, stream, caller.launch)
    PyEval_RestoreThread(thread)
    Py_DecRef(workspace)
    if status != 0:
        Py_DecRef(result)
        return PyLong_FromLongLong(status)
    return result


@compiled()
def left_to_python(caller: Caller) -> int:
    """Return None, so that Python makes the call."""
    Py_IncRef(caller.none)
    return caller.none


@compiled(external=True)
def quick(self: int, arguments: Words, given: int) -> int:
    """Make a call; return the result, or None if Python has to make it, or the status of a failed launch.

    A method of Python of a, b, and out or None; or of these, bias, residual, scale_a, scale_b and scale_out
    (each may be None) and the number of the other keywords; or of these and the metadata of a sparse b.
    """
    caller, operands, key = Caller.at(PyLong_AsVoidPtr(self)), Operands.on_stack(), Key.on_stack()
    for n in range(_OPERAND_NUMBERS):
        operands.addresses[n] = 0
    hashed = take_all(caller, arguments, given, operands, key)
    if hashed == 0:
        return left_to_python(caller)
    call, current = found(caller, hashed, key), Words.on_stack()
    if (
        address_of(call) == 0
        or any_gradient(caller, arguments, given)
        or _current_stream(caller.stream, _CUDA, call.device, current) != 0
    ):
        return left_to_python(caller)
    stream, out = current.words[0], arguments.words[_OUT]
    if call.counts != 0:
        if call.counting_stream != stream or captures(caller, stream):
            return left_to_python(caller)
        operands.addresses[_MEMORY] = call.counting_address
    if out != caller.none and overlaps(call, operands):
        return left_to_python(caller)
    return launched(caller, call, out, operands, stream)


@cache
def _program() -> machine_code.Program | None:
    return load(_PROGRAM, kind, quick)


# calls of Python --------------------------------------------------------------------------------------------


class NativeCalls:
    """Calls that machine code makes: `call(a, b, out)` returns the result, None, or a status."""

    def __init__(
        self, types: Sequence[type], empty: object, recording: object, *, launch: int, capturing: int,
        last: int, stream: int = 0,
    ) -> None:  # fmt: skip
        """`empty` makes tensors, `recording` tells whether gradients are recorded; the others are places of
        driver functions and of the last kernel's number.

        `stream` is the function that tells the current stream, where the types' own is not to be asked.
        """
        program, read = _program(), exchange_function(types[0])
        stream = stream or stream_function(types[0])
        #: Whether there is machine code at all.
        self.possible = bool(program is not None and read and stream)
        self._slots = (c_uint64 * (2 * _ROOM))()
        self._kept: dict[bytes, tuple[object, ...]] = {}
        self._before: dict[bytes, tuple[object, ...]] = {}
        #: Where calls are among the slots, by their keys; one thread at a time adds some.
        self._taken: dict[bytes, int] = {}
        self._adding = Lock()
        #: The key of a call's arguments with its hash, empty if machine code does not take them. The call.
        self.kind: Callable[..., bytes] = lambda *_: b""
        self.call: Callable[..., Any] = lambda *_: None
        if program is not None and self.possible:
            gradient, nothing = "requires_grad", ()
            record = record_of(
                Caller, types, empty, gradient, recording, nothing, read=read, stream=stream, none=id(None),
                true=id(True), launch=launch, capturing=capturing, last=last, empty=id(empty),
                requires_grad=id(gradient), recording=id(recording), nothing=id(nothing), slots=self._slots,
                mask=_ROOM - 1, types=words_of(map(id, types)), type_count=len(types),
            )  # fmt: skip
            self.kind, self.call = made(program, "kind", record), made(program, "quick", record)

    def add(
        self, arguments: Sequence[object], launches: Sequence[RecordedLaunch], device: int, name: int,
        result: tuple[object, ...], workspace: tuple[object, ...] | None,
        extents: Sequence[tuple[int, int] | None],
        counting: tuple[int, int, object] | None = None, adds_out: bool = False,
    ) -> None:  # fmt: skip
        """Have calls of the kind of these arguments made by machine code.

        `result` and `workspace` are the arguments that make their tensors; `extents` are the first and the
        last byte of each operand by its address; `counting` are the stream and the address of a workspace in
        which kernels count, and the workspace; `adds_out` says that what out holds is the residual.
        """
        kind = self.kind(*arguments)
        if not kind:
            return
        records = [launch_record(launch) for launch in launches]
        all_extents = [*extents, *[None] * (_OPERANDS - len(extents))]
        stream, address, memory = counting or (0, 0, None)
        *key, hash_ = struct.unpack(f"<{len(kind) // 8}Q", kind)
        record = record_of(
            Call, records, result, workspace, memory, device=device, name=name, result=id(result),
            workspace=0 if workspace is None else id(workspace), counts=int(counting is not None),
            counting_stream=stream, counting_address=address,
            extents=words_of(byte for extent in all_extents for byte in extent or (0, 0)),
            adds_out=int(adds_out), key=words_of(key), launches=words_of(map(ctypes.addressof, records)),
            launch_count=len(records),
        )  # fmt: skip
        with self._adding:
            if len(self._kept) >= _MOST_CALLS:
                self.clear()
            place = self._taken.get(kind, -1)
            if place < 0:
                place = hash_ % _ROOM
                while self._slots[2 * place]:  # taken, by a call with another key
                    place = (place + 1) % _ROOM
            self._taken[kind] = place
            before = self._kept.get(kind, ())[:1]  # another thread may be launching it
            self._kept[kind] = (record, *before)
            self._slots[2 * place + 1] = ctypes.addressof(record)
            self._slots[2 * place] = hash_

    def clear(self) -> None:
        """Forget all calls. Their memory stays until the next time: other threads may be launching them."""
        ctypes.memset(self._slots, 0, ctypes.sizeof(self._slots))
        self._before, self._kept, self._taken = self._kept, {}, {}


def launch_record(launch: RecordedLaunch) -> ctypes.Array[c_uint64]:
    """Return what `launch_one` reads of a launch."""
    values, offsets, config, changes = launch.parts()
    content = words_of(struct.unpack(f"<{-(-len(values) // 8)}Q", values + bytes(-len(values) % 8)))
    return record_of(
        Launch, launch, values=content, value_words=len(content), parameters=len(offsets),
        offsets=words_of(offsets), config=ctypes.create_string_buffer(config, LaunchConfig.BYTES),
        changes=len(changes), changed=words_of(number for change in changes for number in change),
        function=launch.kernel.function,
    )  # fmt: skip
