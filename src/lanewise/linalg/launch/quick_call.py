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
    TABLE_TEXT,
    can_be_made,
    exchange_function,
    load,
    made,
    places_in_python,
    stream_function,
    with_places,
)
from lanewise.jit import machine_code

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: What of Python's C interface is called: the first words of the table.
_PYTHON = (
    "PyLong_FromUnsignedLongLong", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread",
    "PyObject_Call", "Py_IncRef", "Py_DecRef", "PyObject_GetAttr", "PyLong_AsUnsignedLongLong",
    "PyBytes_FromStringAndSize",
)  # fmt: skip
#: The other words of the table, in order; the types of tensors follow. Then the words of a call's record; the
#: addresses of its launches' records follow.
_TABLE = (
    "READ", "STREAM", "NONE", "TRUE", "LAUNCH", "CAPTURING", "LAST", "EMPTY", "GRADIENT", "RECORDING",
    "NOTHING", "CALLS", "MASK", "TYPES", "FIRST_TYPE",
)  # fmt: skip
_RECORD = (
    "DEVICE", "NAME", "RESULT", "WORKSPACE", "COUNTS", "COUNTING_STREAM", "COUNTING_ADDRESS", "EXTENTS",
    "ADDS_OUT", "KEY", "LAUNCHES", "FIRST_LAUNCH",
)  # fmt: skip
#: Numbers of operands: the result, what is added to it, the workspace, where a sparse b's elements stood.
#: Arguments have the same ones, but for the number of the other keywords in the place of the workspace, and
#: the metadata behind it.
_PLACES = {"OUT": 2, "ADDED": 4, "MEMORY": 8, "METADATA": 11}
#: Words of the longest key; the words of a tensor in it beside those of its axes, the word for an argument
#: that is absent, and what is added to the alignment of one that is there.
_KEY_ROOM = 192
_KEY = {"KEY_ROOM": _KEY_ROOM, "TENSOR_WORDS": 3, "ABSENT": 0, "GIVEN": 16}
#: Bytes of CUlaunchConfig.
_CONFIG_BYTES = 56
#: Operands that a call may have, and how many objects a record needs.
_OPERANDS, _HELD = 8, 6
#: Calls that are found, and places for them: more than twice as many, so that those taken are short rows.
_MOST_CALLS, _ROOM = 4096, 16384


@cache
def _program() -> machine_code.Program | None:
    """Return the compiled functions; None where Python has no global lock, and objects look otherwise."""
    if not can_be_made():
        return None
    places = {name: len(_PYTHON) + number for number, name in enumerate(_TABLE)}
    places |= {name: number for number, name in enumerate(_RECORD)} | _PLACES | _KEY
    # Behind the longest key there is room for the keywords' number and the hash.
    text = QUICK_TEXT.replace("[KEY_WORDS x", f"[{_KEY_ROOM + 16} x")
    return load("quick call", with_places(text, places))


class QuickCalls:
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
            words = [
                *places_in_python(_PYTHON), read, stream, id(None), id(True), launch, capturing, last,
                id(empty), id(gradient), id(recording), id(nothing), ctypes.addressof(self._slots), _ROOM - 1,
                len(types), *map(id, types),
            ]  # fmt: skip
            held = (tuple(types), empty, gradient, recording, nothing, self._slots)
            self.kind = made(program, "kind", words, held)
            self.call = made(program, "quick", words, held)

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
        records, held = launch_records(launches)
        bytes_ = (c_uint64 * (2 * _OPERANDS))()
        for number, extent in enumerate(extents):
            if extent is not None:
                bytes_[2 * number], bytes_[2 * number + 1] = (address % (1 << 64) for address in extent)
        stream, address, memory = counting or (0, 0, None)
        *key_words, hash_ = struct.unpack(f"<{len(kind) // 8}Q", kind)
        key = (c_uint64 * len(key_words))(*key_words)
        words = [
            device, name, id(result), 0 if workspace is None else id(workspace),
            int(counting is not None), stream, address, ctypes.addressof(bytes_), int(adds_out),
            ctypes.addressof(key), len(records), *records,
        ]  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        with self._adding:
            if len(self._kept) >= _MOST_CALLS:
                self.clear()
            place = self._taken.get(kind, -1)
            if place < 0:
                place = hash_ % _ROOM
                while self._slots[2 * place]:  # taken, by a call with another key
                    place = (place + 1) % _ROOM
            self._taken[kind] = place
            before = self._kept.get(kind, ())[:_HELD]  # another thread may be launching it
            self._kept[kind] = (record, held, bytes_, result, workspace, (memory, key), before)
            self._slots[2 * place + 1] = ctypes.addressof(record)
            self._slots[2 * place] = hash_

    def clear(self) -> None:
        """Forget all calls. Their memory stays until the next time: other threads may be launching them."""
        ctypes.memset(self._slots, 0, ctypes.sizeof(self._slots))
        self._before, self._kept, self._taken = self._kept, {}, {}


def launch_records(launches: Sequence[RecordedLaunch]) -> tuple[list[int], list[object]]:
    """Return the addresses of what LAUNCH_TEXT reads of each launch, and the memory that holds it."""
    records: list[int] = []
    held: list[object] = []
    for launch in launches:
        values, offsets, config, changes = launch.parts()
        content = ctypes.create_string_buffer(values, max(len(values), 1))
        places = (c_uint64 * max(len(offsets), 1))(*offsets)
        settings = ctypes.create_string_buffer(config, _CONFIG_BYTES)
        rows = (c_uint64 * max(3 * len(changes), 1))(*(number for change in changes for number in change))
        words = (
            ctypes.addressof(content), len(values), len(offsets), ctypes.addressof(places),
            ctypes.addressof(settings), len(changes), ctypes.addressof(rows), launch.kernel.function,
        )  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        records.append(ctypes.addressof(record))
        held.append((content, places, settings, rows, record, launch))
    return records, held


# the text, in LLVM's language; words in capital letters are places in the tables above ----------------------

#: What identifies a call: a list of words that say all that its arguments are, but for numbers and addresses.
#: The first word is how many there are. The hash of a key says where to look for a call, the comparison of
#: all words whether it was found.
KEY_TEXT = """
define internal i64 @mixed(i64 %seen, i64 %more) alwaysinline {
  %both = xor i64 %seen, %more
  %spread = mul i64 %both, -7046029254386353131
  %high = lshr i64 %spread, 29
  %mixed = xor i64 %spread, %high
  ret i64 %mixed
}

; Appends a word to a key; returns the hash of what was seen before and of it.
define internal i64 @put(ptr %key, i64 %seen, i64 %value) alwaysinline {
  %count = call i64 @word(ptr %key, i64 0)
  %at = getelementptr i64, ptr %key, i64 %count
  store i64 %value, ptr %at
  %more = add i64 %count, 1
  store i64 %more, ptr %key
  %hash = call i64 @mixed(i64 %seen, i64 %value)
  ret i64 %hash
}

; Whether two keys are the same, word for word.
define internal i1 @same_key(ptr %one, ptr %other) {
entry:
  %count = call i64 @word(ptr %one, i64 0)
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %done = icmp uge i64 %n, %count
  br i1 %done, label %yes, label %compare
compare:
  %own = call i64 @word(ptr %one, i64 %n)
  %its = call i64 @word(ptr %other, i64 %n)
  %same = icmp eq i64 %own, %its
  br i1 %same, label %next, label %no
next:
  %n1 = add i64 %n, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Appends to a key what a DLTensor is, but for its numbers and its address: data 0, device 8, axes 16, type
; 20, shape 24, strides 32, offset 40. Returns the hash; 0: it has no strides, or too many axes. The number of
; axes is among the words, so that no two lists of tensors have the same ones.
define internal i64 @kind_of(ptr %tensor, ptr %key, i64 %seen) {
entry:
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %first = add i64 %data, %offset
  %alignment = and i64 %first, 15
  %device = call i64 @word(ptr %tensor, i64 1)
  %type = call i64 @word(ptr %tensor, i64 2)
  %axes = trunc i64 %type to i32
  %count = zext i32 %axes to i64
  %shape = call ptr @address(ptr %tensor, i64 3)
  %strides = call ptr @address(ptr %tensor, i64 4)
  %unsaid = icmp eq ptr %strides, null
  %before = call i64 @word(ptr %key, i64 0)
  %two = shl i64 %count, 1
  %own = add i64 %two, TENSOR_WORDS
  %after = add i64 %before, %own
  %long = icmp ugt i64 %after, KEY_ROOM
  %not_taken = or i1 %unsaid, %long
  br i1 %not_taken, label %none, label %words
none:
  ret i64 0
words:
  %there = add i64 %alignment, GIVEN
  %h0 = call i64 @put(ptr %key, i64 %seen, i64 %there)
  %h1 = call i64 @put(ptr %key, i64 %h0, i64 %device)
  %h2 = call i64 @put(ptr %key, i64 %h1, i64 %type)
  br label %loop
loop:
  %n = phi i64 [ 0, %words ], [ %n1, %next ]
  %h = phi i64 [ %h2, %words ], [ %h4, %next ]
  %done = icmp uge i64 %n, %count
  br i1 %done, label %end, label %next
next:
  %size = call i64 @word(ptr %shape, i64 %n)
  %stride = call i64 @word(ptr %strides, i64 %n)
  %h3 = call i64 @put(ptr %key, i64 %h, i64 %size)
  %h4 = call i64 @put(ptr %key, i64 %h3, i64 %stride)
  %n1 = add i64 %n, 1
  br label %loop
end:
  ret i64 %h
}
"""

#: Recorded launches, made on the operands' addresses.
LAUNCH_TEXT = """
; All launches of a call, whose records' addresses lie at %records. Returns the status of the last one made.
define internal i32 @launch_all(ptr %records, i64 %count, ptr %operands, i64 %stream, ptr %start) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %launch ]
  %before = phi i32 [ 0, %entry ], [ %status, %launch ]
  %all = icmp uge i64 %n, %count
  %failed = icmp ne i32 %before, 0
  %done = or i1 %all, %failed
  br i1 %done, label %end, label %launch
launch:
  %record = call ptr @address(ptr %records, i64 %n)
  %status = call i32 @one(ptr %record, ptr %operands, i64 %stream, ptr %start)
  %n1 = add i64 %n, 1
  br label %loop
end:
  ret i32 %before
}

; One launch: the record has the values, their bytes, how many parameters, where each begins among the values,
; the configuration, how many words change, these (place, operand, what is added), and the function.
define internal i32 @one(ptr %record, ptr %operands, i64 %stream, ptr %start) noinline {
entry:
  %from = call ptr @address(ptr %record, i64 0)
  %size = call i64 @word(ptr %record, i64 1)
  %count = call i64 @word(ptr %record, i64 2)
  %offsets = call ptr @address(ptr %record, i64 3)
  %template = call ptr @address(ptr %record, i64 4)
  %changes = call i64 @word(ptr %record, i64 5)
  %rows = call ptr @address(ptr %record, i64 6)
  %function = call ptr @address(ptr %record, i64 7)
  %values = alloca i8, i64 %size, align 64
  %places = alloca ptr, i64 %count, align 16
  %config = alloca [7 x i64], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %from, i64 %size, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %config, ptr %template, i64 56, i1 false)
  %handle_at = getelementptr i64, ptr %config, i64 4
  store i64 %stream, ptr %handle_at
  br label %parameters
parameters:
  %p = phi i64 [ 0, %entry ], [ %p1, %parameter ]
  %all_placed = icmp uge i64 %p, %count
  br i1 %all_placed, label %words, label %parameter
parameter:
  %offset = call i64 @word(ptr %offsets, i64 %p)
  %value = getelementptr i8, ptr %values, i64 %offset
  %place_at = getelementptr ptr, ptr %places, i64 %p
  store ptr %value, ptr %place_at
  %p1 = add i64 %p, 1
  br label %parameters
words:
  %w = phi i64 [ 0, %parameters ], [ %w1, %change ]
  %all_changed = icmp uge i64 %w, %changes
  br i1 %all_changed, label %go, label %change
change:
  %row = mul i64 %w, 3
  %row1 = add i64 %row, 1
  %row2 = add i64 %row, 2
  %place = call i64 @word(ptr %rows, i64 %row)
  %operand = call i64 @word(ptr %rows, i64 %row1)
  %addend = call i64 @word(ptr %rows, i64 %row2)
  %base = call i64 @word(ptr %operands, i64 %operand)
  %address = add i64 %base, %addend
  %at = getelementptr i8, ptr %values, i64 %place
  store i64 %address, ptr %at
  %w1 = add i64 %w, 1
  br label %words
go:
  %status = call i32 %start(ptr %config, ptr %function, ptr %places, ptr null)
  ret i32 %status
}
"""

#: The call: arguments become a key, the key a record, the record launches.
CALL_TEXT = """
; A tensor: its address goes to %place, what it is to %key. Returns the hash of the key; 0: not taken.
define internal i64 @taken(ptr %table, ptr %object, ptr %place, ptr %key, i64 %seen) {
entry:
  %clear = call ptr @address(ptr %table, i64 1)
  %read = call ptr @address(ptr %table, i64 READ)
  %types = call i64 @word(ptr %table, i64 TYPES)
  %tensor = alloca [6 x i64], align 16
  %its_type = call i64 @word(ptr %object, i64 1)
  br label %which
which:
  %t = phi i64 [ 0, %entry ], [ %t1, %other ]
  %no_more = icmp uge i64 %t, %types
  br i1 %no_more, label %refuse, label %compare
compare:
  %type_place = add i64 %t, FIRST_TYPE
  %type = call i64 @word(ptr %table, i64 %type_place)
  %same = icmp eq i64 %type, %its_type
  br i1 %same, label %look, label %other
other:
  %t1 = add i64 %t, 1
  br label %which
look:
  %was_read = call i1 @read_tensor(ptr %read, ptr %object, ptr %tensor, ptr %place)
  br i1 %was_read, label %told, label %wrong
told:
  %more = call i64 @kind_of(ptr %tensor, ptr %key, i64 %seen)
  ret i64 %more
wrong:
  call void %clear()
  br label %refuse
refuse:
  ret i64 0
}

; Whether a tensor requires a gradient that is recorded now, or cannot say.
define internal i1 @has_gradient(ptr %table, ptr %object) {
entry:
  %clear = call ptr @address(ptr %table, i64 1)
  %ask = call ptr @address(ptr %table, i64 4)
  %release = call ptr @address(ptr %table, i64 6)
  %attribute = call ptr @address(ptr %table, i64 7)
  %name = call ptr @address(ptr %table, i64 GRADIENT)
  %recording = call ptr @address(ptr %table, i64 RECORDING)
  %nothing = call ptr @address(ptr %table, i64 NOTHING)
  %true = call ptr @address(ptr %table, i64 TRUE)
  %said = call ptr %attribute(ptr %object, ptr %name)
  %silent = icmp eq ptr %said, null
  br i1 %silent, label %wrong, label %heard
heard:
  call void %release(ptr %said)
  %has = icmp eq ptr %said, %true
  br i1 %has, label %now, label %no
now:
  %records = call ptr %ask(ptr %recording, ptr %nothing, ptr null)
  %mute = icmp eq ptr %records, null
  br i1 %mute, label %wrong, label %told
told:
  call void %release(ptr %records)
  %yes = icmp eq ptr %records, %true
  ret i1 %yes
wrong:
  call void %clear()
  ret i1 true
no:
  ret i1 false
}

; The key of a call: 3 arguments, or 9, or 10 with a sparse b's metadata. Addresses go to %operands. Returns
; the hash of the key; 0 if an argument is not to be taken.
define internal i64 @kind_of_call(ptr %table, ptr %arguments, i64 %given, ptr %operands, ptr %key) {
entry:
  store i64 1, ptr %key
  %begun = call i64 @put(ptr %key, i64 88172645463325252, i64 %given)
  %as_number = call ptr @address(ptr %table, i64 8)
  %none = call ptr @address(ptr %table, i64 NONE)
  %few = icmp eq i64 %given, 3
  %sparse = icmp eq i64 %given, 10
  %dense = icmp eq i64 %given, 9
  %many = or i1 %dense, %sparse
  %right = or i1 %few, %many
  %tensors = select i1 %few, i64 3, i64 8
  br i1 %right, label %loop, label %refuse
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %seen = phi i64 [ %begun, %entry ], [ %more, %next ]
  %done = icmp uge i64 %n, %tensors
  br i1 %done, label %last, label %item
item:
  %at = getelementptr ptr, ptr %arguments, i64 %n
  %object = load ptr, ptr %at
  %absent = icmp eq ptr %object, %none
  %required = icmp ult i64 %n, 2
  br i1 %absent, label %none_given, label %look
none_given:
  %without = call i64 @put(ptr %key, i64 %seen, i64 ABSENT)
  br i1 %required, label %refuse, label %next
look:
  %place = getelementptr i64, ptr %operands, i64 %n
  %taken = call i64 @taken(ptr %table, ptr %object, ptr %place, ptr %key, i64 %seen)
  %good = icmp ne i64 %taken, 0
  br i1 %good, label %next, label %refuse
next:
  %more = phi i64 [ %without, %none_given ], [ %taken, %look ]
  %n1 = add i64 %n, 1
  br label %loop
last:
  br i1 %few, label %plain, label %others
plain:
  ret i64 %seen
others:
  %number_at = getelementptr ptr, ptr %arguments, i64 8
  %number_object = load ptr, ptr %number_at
  %unnumbered = icmp eq ptr %number_object, %none
  br i1 %unnumbered, label %refuse, label %numbered
numbered:
  %number = call i64 %as_number(ptr %number_object)
  %all = call i64 @put(ptr %key, i64 %seen, i64 %number)
  br i1 %sparse, label %kept, label %whole
whole:
  ret i64 %all
kept:
  %metadata_at = getelementptr ptr, ptr %arguments, i64 9
  %metadata_object = load ptr, ptr %metadata_at
  %metadata_place = getelementptr i64, ptr %operands, i64 METADATA
  %with_metadata = call i64 @taken(ptr %table, ptr %metadata_object, ptr %metadata_place, ptr %key, i64 %all)
  ret i64 %with_metadata
refuse:
  ret i64 0
}

; A method of Python: the key of a call as bytes, its hash behind it; none if machine code does not take it.
define ptr @kind(ptr %self, ptr %arguments, i64 %given) {
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %bytes = call ptr @address(ptr %table, i64 9)
  %operands = alloca [16 x i64], align 16
  %key = alloca [KEY_WORDS x i64], align 16
  %kind = call i64 @kind_of_call(ptr %table, ptr %arguments, i64 %given, ptr %operands, ptr %key)
  %count = call i64 @word(ptr %key, i64 0)
  %hash_at = getelementptr i64, ptr %key, i64 %count
  store i64 %kind, ptr %hash_at
  %all = add i64 %count, 1
  %long = shl i64 %all, 3
  %takes = icmp ne i64 %kind, 0
  %size = select i1 %takes, i64 %long, i64 0
  %said = call ptr %bytes(ptr %key, i64 %size)
  ret ptr %said
}

; Whether an argument requires a gradient that is recorded now.
define internal i1 @any_gradient(ptr %table, ptr %arguments, i64 %given) {
entry:
  %none = call ptr @address(ptr %table, i64 NONE)
  %few = icmp eq i64 %given, 3
  %tensors = select i1 %few, i64 3, i64 8
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %done = icmp uge i64 %n, %tensors
  br i1 %done, label %no, label %item
item:
  %at = getelementptr ptr, ptr %arguments, i64 %n
  %object = load ptr, ptr %at
  %absent = icmp eq ptr %object, %none
  br i1 %absent, label %next, label %ask
ask:
  %has = call i1 @has_gradient(ptr %table, ptr %object)
  br i1 %has, label %yes, label %next
next:
  %n1 = add i64 %n, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; The record of the call with a key, whose hash says where to look; null if there is none. Rows of taken
; places end with an empty one.
define internal ptr @found(ptr %table, i64 %kind, ptr %key) {
entry:
  %calls = call ptr @address(ptr %table, i64 CALLS)
  %mask = call i64 @word(ptr %table, i64 MASK)
  br label %loop
loop:
  %n = phi i64 [ %kind, %entry ], [ %n1, %next ]
  %slot = and i64 %n, %mask
  %at = shl i64 %slot, 1
  %its = call i64 @word(ptr %calls, i64 %at)
  %same = icmp eq i64 %its, %kind
  br i1 %same, label %look, label %more
look:
  %record_at = add i64 %at, 1
  %record = call ptr @address(ptr %calls, i64 %record_at)
  %its_key = call ptr @address(ptr %record, i64 KEY)
  %equal = call i1 @same_key(ptr %key, ptr %its_key)
  br i1 %equal, label %yes, label %next
more:
  %empty = icmp eq i64 %its, 0
  br i1 %empty, label %no, label %next
next:
  %n1 = add i64 %n, 1
  br label %loop
yes:
  ret ptr %record
no:
  ret ptr null
}

; Whether the memory of a given result may be that of another operand, but for what it is added to.
define internal i1 @overlaps(ptr %record, ptr %operands) {
entry:
  %extents = call ptr @address(ptr %record, i64 EXTENTS)
  %adds_out = call i64 @word(ptr %record, i64 ADDS_OUT)
  %adds = icmp ne i64 %adds_out, 0
  %out = call i64 @word(ptr %operands, i64 OUT)
  %out_low = call i64 @word(ptr %extents, i64 4)
  %out_high = call i64 @word(ptr %extents, i64 5)
  %out_first = add i64 %out, %out_low
  %out_last = add i64 %out, %out_high
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %done = icmp uge i64 %n, 8
  br i1 %done, label %no, label %item
item:
  %address = call i64 @word(ptr %operands, i64 %n)
  %absent = icmp eq i64 %address, 0
  %itself = icmp eq i64 %n, OUT
  %is_added = icmp eq i64 %n, ADDED
  %added = and i1 %is_added, %adds
  %either = or i1 %absent, %itself
  %skip = or i1 %either, %added
  br i1 %skip, label %next, label %compare
compare:
  %low_at = shl i64 %n, 1
  %high_at = add i64 %low_at, 1
  %low = call i64 @word(ptr %extents, i64 %low_at)
  %high = call i64 @word(ptr %extents, i64 %high_at)
  %first = add i64 %address, %low
  %last = add i64 %address, %high
  %before = icmp ult i64 %first, %out_last
  %after = icmp ult i64 %out_first, %last
  %both = and i1 %before, %after
  br i1 %both, label %yes, label %next
next:
  %n1 = add i64 %n, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; A tensor made by torch, whose address goes to %place; null with an error of Python's.
define internal ptr @new(ptr %table, ptr %arguments, ptr %place) {
entry:
  %call = call ptr @address(ptr %table, i64 4)
  %release = call ptr @address(ptr %table, i64 6)
  %read = call ptr @address(ptr %table, i64 READ)
  %empty = call ptr @address(ptr %table, i64 EMPTY)
  %tensor = alloca [6 x i64], align 16
  %made = call ptr %call(ptr %empty, ptr %arguments, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %look
look:
  %good = call i1 @read_tensor(ptr %read, ptr %made, ptr %tensor, ptr %place)
  br i1 %good, label %told, label %wrong
told:
  ret ptr %made
wrong:
  call void %release(ptr %made)
  br label %none
none:
  ret ptr null
}

; A method of Python of a, b, and out or None; or of these, bias, residual, scale_a, scale_b and scale_out
; (each may be None) and the number of the other keywords; or of these and the metadata of a sparse b. Returns
; the result; None if Python has to make the call; the driver's status as a number if a launch failed.
define ptr @quick(ptr %self, ptr %arguments, i64 %given) {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %number = call ptr @address(ptr %table, i64 0)
  %save = call ptr @address(ptr %table, i64 2)
  %restore = call ptr @address(ptr %table, i64 3)
  %keep = call ptr @address(ptr %table, i64 5)
  %release = call ptr @address(ptr %table, i64 6)
  %ask = call ptr @address(ptr %table, i64 STREAM)
  %none = call ptr @address(ptr %table, i64 NONE)
  %start = call ptr @address(ptr %table, i64 LAUNCH)
  %capturing = call ptr @address(ptr %table, i64 CAPTURING)
  %last = call ptr @address(ptr %table, i64 LAST)
  %operands = alloca [16 x i64], align 16
  %stream_at = alloca i64, align 8
  %status_at = alloca i32, align 8
  call void @llvm.memset.p0.i64(ptr %operands, i8 0, i64 128, i1 false)
  %out_at = getelementptr i64, ptr %operands, i64 OUT
  %added_at = getelementptr i64, ptr %operands, i64 ADDED
  %memory_at = getelementptr i64, ptr %operands, i64 MEMORY
  %key = alloca [KEY_WORDS x i64], align 16
  %kind = call i64 @kind_of_call(ptr %table, ptr %arguments, i64 %given, ptr %operands, ptr %key)
  %takes = icmp ne i64 %kind, 0
  br i1 %takes, label %search, label %refuse
search:
  %given_at = getelementptr ptr, ptr %arguments, i64 OUT
  %given_out = load ptr, ptr %given_at
  %makes = icmp eq ptr %given_out, %none
  %record = call ptr @found(ptr %table, i64 %kind, ptr %key)
  %known = icmp ne ptr %record, null
  br i1 %known, label %gradients, label %refuse
gradients:
  %any = call i1 @any_gradient(ptr %table, ptr %arguments, i64 %given)
  br i1 %any, label %refuse, label %streams
streams:
  %device = call i64 @word(ptr %record, i64 DEVICE)
  %ordinal = trunc i64 %device to i32
  %unknown = call i32 %ask(i32 2, i32 %ordinal, ptr %stream_at)
  %told = icmp eq i32 %unknown, 0
  br i1 %told, label %counting, label %refuse
counting:
  %stream = load i64, ptr %stream_at
  %counts = call i64 @word(ptr %record, i64 COUNTS)
  %counted = icmp ne i64 %counts, 0
  br i1 %counted, label %same_stream, label %apart
same_stream:
  %own_stream = call i64 @word(ptr %record, i64 COUNTING_STREAM)
  %is_own = icmp eq i64 %own_stream, %stream
  br i1 %is_own, label %captured, label %refuse
captured:
  store i32 0, ptr %status_at
  %unsaid = call i32 %capturing(i64 %stream, ptr %status_at)
  %capture = load i32, ptr %status_at
  %hindered = or i32 %unsaid, %capture
  %free = icmp eq i32 %hindered, 0
  br i1 %free, label %own_memory, label %refuse
own_memory:
  %counting_address = call i64 @word(ptr %record, i64 COUNTING_ADDRESS)
  store i64 %counting_address, ptr %memory_at
  br label %apart
apart:
  br i1 %makes, label %workspaces, label %overlaps
overlaps:
  %over = call i1 @overlaps(ptr %record, ptr %operands)
  br i1 %over, label %refuse, label %workspaces
workspaces:
  %wanted = call ptr @address(ptr %record, i64 WORKSPACE)
  %wants = icmp ne ptr %wanted, null
  br i1 %wants, label %make_workspace, label %results
make_workspace:
  %new_workspace = call ptr @new(ptr %table, ptr %wanted, ptr %memory_at)
  %no_workspace = icmp eq ptr %new_workspace, null
  br i1 %no_workspace, label %failed, label %results
results:
  %workspace = phi ptr [ null, %workspaces ], [ %new_workspace, %make_workspace ]
  br i1 %makes, label %make_result, label %keep_out
make_result:
  %shape = call ptr @address(ptr %record, i64 RESULT)
  %new_result = call ptr @new(ptr %table, ptr %shape, ptr %out_at)
  %no_result = icmp eq ptr %new_result, null
  br i1 %no_result, label %drop, label %begin
drop:
  %had = icmp ne ptr %workspace, null
  br i1 %had, label %drop_workspace, label %failed
drop_workspace:
  call void %release(ptr %workspace)
  br label %failed
keep_out:
  call void %keep(ptr %given_out)
  br label %begin
begin:
  %result = phi ptr [ %new_result, %make_result ], [ %given_out, %keep_out ]
  %name = call i64 @word(ptr %record, i64 NAME)
  %launches = call i64 @word(ptr %record, i64 LAUNCHES)
  %adds_out = call i64 @word(ptr %record, i64 ADDS_OUT)
  %adds = icmp ne i64 %adds_out, 0
  %out_address = load i64, ptr %out_at
  %own_added = load i64, ptr %added_at
  %added = select i1 %adds, i64 %out_address, i64 %own_added
  store i64 %added, ptr %added_at
  store i64 %name, ptr %last
  %thread = call ptr %save()
  %records = getelementptr i64, ptr %record, i64 FIRST_LAUNCH
  %status = call i32 @launch_all(ptr %records, i64 %launches, ptr %operands, i64 %stream, ptr %start)
  call void %restore(ptr %thread)
  %used = icmp ne ptr %workspace, null
  br i1 %used, label %give_back, label %say
give_back:
  call void %release(ptr %workspace)
  br label %say
say:
  %done = icmp eq i32 %status, 0
  br i1 %done, label %return, label %fault
return:
  ret ptr %result
fault:
  call void %release(ptr %result)
  %code = sext i32 %status to i64
  %said = call ptr %number(i64 %code)
  ret ptr %said
failed:
  ret ptr null
refuse:
  call void %keep(ptr %none)
  ret ptr %none
}
"""

QUICK_TEXT = TABLE_TEXT + KEY_TEXT + LAUNCH_TEXT + CALL_TEXT
