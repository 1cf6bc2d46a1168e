"""The launches of a call that was made before, repeated by machine code.

torch's tensors are read through DLPack's C exchange API, as in `gpu/native.py`. `repeat` writes addresses
into the parameters of recorded launches and hands them to the driver. Where Python or torch are of another
make, it is not there, and `warm.py` does it in Python. `quick_call.py` makes a whole call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from functools import cache
from typing import TYPE_CHECKING

from lanewise.gpu.native import exchange_function
from lanewise.gpu.python_functions import TABLE_TEXT, can_be_made, load, made, places_in_python
from lanewise.jit import machine_code

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: What of Python's C interface is called: the first words of the table.
_PYTHON = (
    "PyLong_FromUnsignedLongLong", "PyLong_AsUnsignedLongLong", "PyErr_Clear", "PyEval_SaveThread",
    "PyEval_RestoreThread",
)  # fmt: skip
#: Then the function that reads a tensor, None, cuLaunchKernelEx, where the last kernel's number goes, the
#: number, how many launches, and the address of each one's record.
_READ = len(_PYTHON)
#: `repeat` returns the driver's status; this one where a tensor could not be read.
NOT_READ = (1 << 64) - 1
_MOST_OPERANDS = 16

#: What makes one launch; `quick_call.py` has it, too.
LAUNCH_TEXT = """
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

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
_REPEAT_TEXT = """
; A method of Python: the stream's handle, then the operands; None where there is none. Returns the status.
define ptr @repeat(ptr %self, ptr %arguments, i64 %given) {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %number = call ptr @address(ptr %table, i64 0)
  %as_unsigned = call ptr @address(ptr %table, i64 1)
  %clear = call ptr @address(ptr %table, i64 2)
  %save = call ptr @address(ptr %table, i64 3)
  %restore = call ptr @address(ptr %table, i64 4)
  %read = call ptr @address(ptr %table, i64 READ)
  %none = call ptr @address(ptr %table, i64 NONE)
  %start = call ptr @address(ptr %table, i64 LAUNCH)
  %last = call ptr @address(ptr %table, i64 LAST)
  %name = call i64 @word(ptr %table, i64 NAME)
  %launches = call i64 @word(ptr %table, i64 LAUNCHES)
  %operands = alloca [MOST x i64], align 16
  %tensor = alloca [6 x i64], align 16
  call void @llvm.memset.p0.i64(ptr %operands, i8 0, i64 MOST_BYTES, i1 false)
  %stream_object = load ptr, ptr %arguments
  %stream = call i64 %as_unsigned(ptr %stream_object)
  br label %loop
loop:
  %n = phi i64 [ 1, %entry ], [ %n1, %next ]
  %done = icmp uge i64 %n, %given
  br i1 %done, label %begin, label %item
item:
  %at = getelementptr ptr, ptr %arguments, i64 %n
  %object = load ptr, ptr %at
  %absent = icmp eq ptr %object, %none
  br i1 %absent, label %next, label %look
look:
  %failed = call i32 %read(ptr %object, ptr %tensor)
  %was_read = icmp eq i32 %failed, 0
  br i1 %was_read, label %told, label %wrong
told:
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %first = add i64 %data, %offset
  %place = sub i64 %n, 1
  %operand_at = getelementptr i64, ptr %operands, i64 %place
  store i64 %first, ptr %operand_at
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %loop
begin:
  store i64 %name, ptr %last
  %thread = call ptr %save()
  br label %launching
launching:
  %l = phi i64 [ 0, %begin ], [ %l1, %launched ]
  %all = icmp uge i64 %l, %launches
  br i1 %all, label %end, label %launch
launch:
  %record_place = add i64 %l, FIRST_RECORD
  %record = call ptr @address(ptr %table, i64 %record_place)
  %status = call i32 @one(ptr %record, ptr %operands, i64 %stream, ptr %start)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %launched, label %end
launched:
  %l1 = add i64 %l, 1
  br label %launching
end:
  %last_status = phi i32 [ 0, %launching ], [ %status, %launch ]
  call void %restore(ptr %thread)
  %code = sext i32 %last_status to i64
  %result = call ptr %number(i64 %code)
  ret ptr %result
wrong:
  call void %clear()
  %unread = call ptr %number(i64 -1)
  ret ptr %unread
}

declare ptr @PyLong_AsVoidPtr(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
#: Places in the tables, by their names in the text.
_PLACES = {
    "READ": _READ, "NONE": _READ + 1, "LAUNCH": _READ + 2, "LAST": _READ + 3, "NAME": _READ + 4,
    "LAUNCHES": _READ + 5, "FIRST_RECORD": _READ + 6,
}  # fmt: skip
#: Bytes of CUlaunchConfig.
_CONFIG_BYTES = 56


@cache
def _program() -> machine_code.Program | None:
    """Return the compiled functions; None where Python has no global lock, and objects look otherwise."""
    if not can_be_made():
        return None
    text = (
        (TABLE_TEXT + LAUNCH_TEXT + _REPEAT_TEXT)
        .replace("MOST_BYTES", str(8 * _MOST_OPERANDS))
        .replace("[MOST x", f"[{_MOST_OPERANDS} x")
    )
    for name in sorted(_PLACES, key=len, reverse=True):
        text = text.replace(f"i64 {name})", f"i64 {_PLACES[name]})").replace(
            f", {name}\n", f", {_PLACES[name]}\n"
        )
    return load("replay", text)


def _first_words(read: int) -> list[int]:
    return [*places_in_python(_PYTHON), read]


def launch_records(launches: Sequence[RecordedLaunch]) -> tuple[list[int], list[object]]:
    """Return the addresses of what LAUNCH_TEXT reads of each launch, and the memory that holds it."""
    records: list[int] = []
    held: list[object] = []
    for each in launches:
        values, offsets, config, changes = each.parts()
        content = ctypes.create_string_buffer(values, max(len(values), 1))
        places = (c_uint64 * max(len(offsets), 1))(*offsets)
        settings = ctypes.create_string_buffer(config, _CONFIG_BYTES)
        rows = (c_uint64 * max(3 * len(changes), 1))(*(number for change in changes for number in change))
        words = (
            ctypes.addressof(content), len(values), len(offsets), ctypes.addressof(places),
            ctypes.addressof(settings), len(changes), ctypes.addressof(rows), each.kernel.function,
        )  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        records.append(ctypes.addressof(record))
        held.append((content, places, settings, rows, record, each))
    return records, held


def repeat_function(
    launches: Sequence[RecordedLaunch], type_: type, *, launch: int, last: int, name: int
) -> Callable[..., int] | None:
    """Return a function of a stream's handle and the operands' tensors that repeats launches.

    It returns the driver's status, or NOT_READ. `launch` is the place of cuLaunchKernelEx; `last` and `name`
    say where the number of the kernel that was launched last is noted.
    """
    read = exchange_function(type_)
    program = _program()
    if not read or program is None:
        return None
    records, held = launch_records(launches)
    words_of_table = [*_first_words(read), id(None), launch, last, name, len(records), *records]
    repeating: Callable[..., int] = made(program, "repeat", words_of_table, tuple(held))
    return repeating
