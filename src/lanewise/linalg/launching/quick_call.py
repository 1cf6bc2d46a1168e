"""A call of `lw.matmul` without keywords that was made before, as one function of machine code.

It reads a, b and out, finds the call by their kind, makes the result (and a workspace) by the function that
torch's Inductor makes tensors with, asks for the current stream, and launches. What it cannot do itself it
leaves to Python: it returns None then, and nothing has happened.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from functools import cache
from typing import TYPE_CHECKING, Any

from lanewise.gpu.native import exchange_function, stream_function
from lanewise.gpu.python_functions import TABLE_TEXT, can_be_made, load, made, places_in_python
from lanewise.jit import machine_code
from lanewise.linalg.launching.replay import KIND_TEXT, LAUNCH_TEXT, kind_function, launch_records

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: What of Python's C interface is called: the first words of the table.
_PYTHON = (
    "PyLong_FromUnsignedLongLong", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread",
    "PyObject_Call", "Py_IncRef", "Py_DecRef", "PyObject_GetAttr",
)  # fmt: skip
#: The other words of the table, in order; the types of tensors follow. Then the words of a call's record; the
#: addresses of its launches' records follow.
_TABLE = (
    "READ", "STREAM", "NONE", "TRUE", "LAUNCH", "CAPTURING", "LAST", "EMPTY", "GRADIENT", "CALLS", "MASK",
    "TYPES", "FIRST_TYPE",
)  # fmt: skip
_RECORD = (
    "DEVICE", "NAME", "RESULT", "WORKSPACE", "COUNTS", "COUNTING_STREAM", "COUNTING_ADDRESS", "EXTENTS",
    "LAUNCHES", "FIRST_LAUNCH",
)  # fmt: skip
#: The operands' numbers of the result and of the workspace among addresses.
_PLACES = {"OUT": 2, "MEMORY": 8}
#: How many objects a record needs.
_HELD = 6
#: Calls that are found, and places for them: more than twice as many, so that those taken are short rows.
_MOST_CALLS, _ROOM = 4096, 16384

_TEXT = """
; A tensor: its address goes to %place. Returns the kind of what was seen so far and of it; 0: not taken.
define internal i64 @taken(ptr %table, ptr %object, ptr %place, i64 %seen) {
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
  %failed = call i32 %read(ptr %object, ptr %tensor)
  %was_read = icmp eq i32 %failed, 0
  br i1 %was_read, label %told, label %wrong
told:
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %first = add i64 %data, %offset
  store i64 %first, ptr %place
  %more = call i64 @kind_of(ptr %tensor, i64 %seen)
  ret i64 %more
wrong:
  call void %clear()
  br label %refuse
refuse:
  ret i64 0
}

; Whether a tensor requires a gradient, or cannot say.
define internal i1 @has_gradient(ptr %table, ptr %object) {
entry:
  %clear = call ptr @address(ptr %table, i64 1)
  %release = call ptr @address(ptr %table, i64 6)
  %attribute = call ptr @address(ptr %table, i64 7)
  %name = call ptr @address(ptr %table, i64 GRADIENT)
  %true = call ptr @address(ptr %table, i64 TRUE)
  %said = call ptr %attribute(ptr %object, ptr %name)
  %silent = icmp eq ptr %said, null
  br i1 %silent, label %wrong, label %heard
heard:
  %has = icmp eq ptr %said, %true
  call void %release(ptr %said)
  ret i1 %has
wrong:
  call void %clear()
  ret i1 true
}

; The record of the call with a kind; null if there is none. Rows of taken places end with an empty one.
define internal ptr @found(ptr %table, i64 %kind) {
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
  br i1 %same, label %yes, label %more
more:
  %empty = icmp eq i64 %its, 0
  br i1 %empty, label %no, label %next
next:
  %n1 = add i64 %n, 1
  br label %loop
yes:
  %record_at = add i64 %at, 1
  %record = call ptr @address(ptr %calls, i64 %record_at)
  ret ptr %record
no:
  ret ptr null
}

; Whether the memory of the result, given by its address, may be that of another operand.
define internal i1 @overlap(ptr %extents, i64 %number, i64 %other, i64 %out) {
  %low_at = shl i64 %number, 1
  %high_at = add i64 %low_at, 1
  %low = call i64 @word(ptr %extents, i64 %low_at)
  %high = call i64 @word(ptr %extents, i64 %high_at)
  %out_low = call i64 @word(ptr %extents, i64 4)
  %out_high = call i64 @word(ptr %extents, i64 5)
  %first = add i64 %other, %low
  %last = add i64 %other, %high
  %out_first = add i64 %out, %out_low
  %out_last = add i64 %out, %out_high
  %before = icmp ult i64 %first, %out_last
  %after = icmp ult i64 %out_first, %last
  %both = and i1 %before, %after
  ret i1 %both
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
  %unread = call i32 %read(ptr %made, ptr %tensor)
  %good = icmp eq i32 %unread, 0
  br i1 %good, label %told, label %wrong
told:
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %first = add i64 %data, %offset
  store i64 %first, ptr %place
  ret ptr %made
wrong:
  call void %release(ptr %made)
  br label %none
none:
  ret ptr null
}

; A method of Python of a, b, and out or None. Returns the result; None if Python has to make the call; the
; driver's status as a number if a launch failed.
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
  %memory_at = getelementptr i64, ptr %operands, i64 MEMORY
  %three = icmp eq i64 %given, 3
  br i1 %three, label %first, label %refuse
first:
  %a = load ptr, ptr %arguments
  %kind_a = call i64 @taken(ptr %table, ptr %a, ptr %operands, i64 88172645463325252)
  %took_a = icmp ne i64 %kind_a, 0
  br i1 %took_a, label %second, label %refuse
second:
  %b_at = getelementptr ptr, ptr %arguments, i64 1
  %b = load ptr, ptr %b_at
  %place_b = getelementptr i64, ptr %operands, i64 1
  %kind_b = call i64 @taken(ptr %table, ptr %b, ptr %place_b, i64 %kind_a)
  %took_b = icmp ne i64 %kind_b, 0
  br i1 %took_b, label %third, label %refuse
third:
  %given_at = getelementptr ptr, ptr %arguments, i64 2
  %given_out = load ptr, ptr %given_at
  %makes = icmp eq ptr %given_out, %none
  br i1 %makes, label %search, label %take_out
take_out:
  %kind_out = call i64 @taken(ptr %table, ptr %given_out, ptr %out_at, i64 %kind_b)
  %took_out = icmp ne i64 %kind_out, 0
  br i1 %took_out, label %search, label %refuse
search:
  %kind = phi i64 [ %kind_b, %third ], [ %kind_out, %take_out ]
  %record = call ptr @found(ptr %table, i64 %kind)
  %known = icmp ne ptr %record, null
  br i1 %known, label %gradients, label %refuse
gradients:
  %of_a = call i1 @has_gradient(ptr %table, ptr %a)
  %of_b = call i1 @has_gradient(ptr %table, ptr %b)
  %any = or i1 %of_a, %of_b
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
  %extents = getelementptr i64, ptr %record, i64 EXTENTS
  %extents_at = load ptr, ptr %extents
  %out_address = load i64, ptr %out_at
  %a_address = load i64, ptr %operands
  %b_address = load i64, ptr %place_b
  %over_a = call i1 @overlap(ptr %extents_at, i64 0, i64 %a_address, i64 %out_address)
  %over_b = call i1 @overlap(ptr %extents_at, i64 1, i64 %b_address, i64 %out_address)
  %over = or i1 %over_a, %over_b
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
  store i64 %name, ptr %last
  %thread = call ptr %save()
  br label %launching
launching:
  %l = phi i64 [ 0, %begin ], [ %l1, %launched ]
  %all = icmp uge i64 %l, %launches
  br i1 %all, label %end, label %launch
launch:
  %launch_place = add i64 %l, FIRST_LAUNCH
  %one = call ptr @address(ptr %record, i64 %launch_place)
  %status = call i32 @one(ptr %one, ptr %operands, i64 %stream, ptr %start)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %launched, label %end
launched:
  %l1 = add i64 %l, 1
  br label %launching
end:
  %last_status = phi i32 [ 0, %launching ], [ %status, %launch ]
  call void %restore(ptr %thread)
  %used = icmp ne ptr %workspace, null
  br i1 %used, label %give_back, label %say
give_back:
  call void %release(ptr %workspace)
  br label %say
say:
  %done = icmp eq i32 %last_status, 0
  br i1 %done, label %return, label %fault
return:
  ret ptr %result
fault:
  call void %release(ptr %result)
  %code = sext i32 %last_status to i64
  %said = call ptr %number(i64 %code)
  ret ptr %said
failed:
  ret ptr null
refuse:
  call void %keep(ptr %none)
  ret ptr %none
}

declare ptr @PyLong_AsVoidPtr(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


@cache
def _program() -> machine_code.Program | None:
    """Return the compiled functions; None where Python has no global lock, and objects look otherwise."""
    if not can_be_made():
        return None
    text = TABLE_TEXT + KIND_TEXT + LAUNCH_TEXT + _TEXT
    places = {name: len(_PYTHON) + number for number, name in enumerate(_TABLE)}
    places |= {name: number for number, name in enumerate(_RECORD)} | _PLACES
    for name in sorted(places, key=len, reverse=True):
        text = text.replace(f"i64 {name})", f"i64 {places[name]})").replace(
            f", {name}\n", f", {places[name]}\n"
        ).replace(f", i64 {name}\n", f", i64 {places[name]}\n")  # fmt: skip
    return load("quick call", text)


class QuickCalls:
    """Calls that machine code makes: `call(a, b, out)` returns the result, None, or a status."""

    def __init__(
        self, types: Sequence[type], empty: Any, *, launch: int, capturing: int, last: int, stream: int = 0
    ) -> None:
        """`empty` makes tensors; the others are places of driver functions and of the last kernel's number.

        `stream` is the function that tells the current stream, where the types' own is not to be asked.
        """
        program, read = _program(), exchange_function(types[0])
        kind = kind_function(types)
        stream = stream or stream_function(types[0])
        #: Whether there is machine code at all.
        self.possible = bool(program is not None and read and kind is not None and stream)
        self._slots = (c_uint64 * (2 * _ROOM))()
        self._kept: dict[int, Any] = {}
        self._before: dict[int, Any] = {}
        self.kind: Callable[..., int] = kind or (lambda *_: 0)
        self.call: Callable[[Any, Any, Any], Any] = lambda *_: None
        if program is not None and self.possible:
            gradient = "requires_grad"
            words = [
                *places_in_python(_PYTHON), read, stream, id(None), id(True), launch, capturing, last,
                id(empty), id(gradient), ctypes.addressof(self._slots), _ROOM - 1, len(types),
                *map(id, types),
            ]  # fmt: skip
            self.call = made(program, "quick", words, (tuple(types), empty, gradient, self._slots))

    def add(
        self, tensors: Sequence[Any], launches: Sequence[RecordedLaunch], device: int, name: int,
        result: tuple[Any, ...], workspace: tuple[Any, ...] | None, extents: Sequence[int],
        counting: tuple[int, int, object] | None = None,
    ) -> None:  # fmt: skip
        """Have calls of the kind of these tensors made by machine code.

        `result` and `workspace` are the arguments that make their tensors; `extents` are the first and the
        last byte of a, b and out by their addresses; `counting` are the stream and the address of a
        workspace in which kernels count, and the workspace.
        """
        kind = self.kind(*tensors)
        if not kind:
            return
        if len(self._kept) >= _MOST_CALLS:
            self.clear()
        records, held = launch_records(launches)
        bytes_ = (c_uint64 * len(extents))(*(each % (1 << 64) for each in extents))
        stream, address, memory = counting or (0, 0, None)
        words = [
            device, name, id(result), 0 if workspace is None else id(workspace),
            int(counting is not None), stream, address, ctypes.addressof(bytes_), len(records), *records,
        ]  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        place = kind % _ROOM
        while self._slots[2 * place] not in (0, kind):
            place = (place + 1) % _ROOM
        before = self._kept.get(kind, ())[:_HELD]  # another thread may be launching it
        self._kept[kind] = (record, held, bytes_, result, workspace, memory, before)
        self._slots[2 * place + 1] = ctypes.addressof(record)
        self._slots[2 * place] = kind

    def clear(self) -> None:
        """Forget all calls. Their memory stays until the next time: other threads may be launching them."""
        ctypes.memset(self._slots, 0, ctypes.sizeof(self._slots))
        self._before, self._kept = self._kept, {}
